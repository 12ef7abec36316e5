//! CB_COMPOUND, an NFSv4 server's calls to its clients (RFC 8881 section 20, RFC 7862 section 16): its operations,
//! and what a listing shows of them.

use super::cursor::Cursor;
use super::facts::WantedFiles;
use super::show::{self, Show, stateid};
use landfast_nfs::v4::NfsStat;
use std::fmt::Write;

const GETATTR: u32 = 3;
const RECALL: u32 = 4;
const LAYOUTRECALL: u32 = 5;
const NOTIFY: u32 = 6;
const PUSH_DELEG: u32 = 7;
const RECALL_ANY: u32 = 8;
const RECALLABLE_OBJ_AVAIL: u32 = 9;
const RECALL_SLOT: u32 = 10;
const SEQUENCE: u32 = 11;
const WANTS_CANCELLED: u32 = 12;
const NOTIFY_LOCK: u32 = 13;
const NOTIFY_DEVICEID: u32 = 14;
const OFFLOAD: u32 = 15;
const ILLEGAL: u32 = 10044;

pub(super) fn name(op: u32) -> Option<&'static str> {
    Some(match op {
        GETATTR => "CB_GETATTR",
        RECALL => "CB_RECALL",
        LAYOUTRECALL => "CB_LAYOUTRECALL",
        NOTIFY => "CB_NOTIFY",
        PUSH_DELEG => "CB_PUSH_DELEG",
        RECALL_ANY => "CB_RECALL_ANY",
        RECALLABLE_OBJ_AVAIL => "CB_RECALLABLE_OBJ_AVAIL",
        RECALL_SLOT => "CB_RECALL_SLOT",
        SEQUENCE => "CB_SEQUENCE",
        WANTS_CANCELLED => "CB_WANTS_CANCELLED",
        NOTIFY_LOCK => "CB_NOTIFY_LOCK",
        NOTIFY_DEVICEID => "CB_NOTIFY_DEVICEID",
        OFFLOAD => "CB_OFFLOAD",
        ILLEGAL => "CB_ILLEGAL",
        _ => return None,
    })
}

/// The rank for choosing the main operation, as in [`super::v4`]: CB_SEQUENCE comes last.
pub(super) fn rank(op: u8) -> u8 {
    if u32::from(op) == SEQUENCE { 2 } else { 1 }
}

/// An operation whose arguments were skipped.
pub(super) struct Read {
    pub op: u32,
    /// Whether the end of its arguments is known.
    pub ends: bool,
    /// Whether the arguments contain the handle of a wanted file.
    pub asked: bool,
}

/// Skips an operation and its arguments. `None`: more bytes are needed.
pub(super) fn arguments(
    c: &mut Cursor<'_>,
    asked: Option<&dyn WantedFiles>,
    show: Option<&mut Show>,
) -> Option<Read> {
    let op = c.u32()?;
    let mut text = shown(op);
    let mut found = false;
    let mut handle = |c: &mut Cursor<'_>, text: &mut String| {
        let handle = c.opaque()?;
        found |= asked.is_some_and(|asked| asked.handle(handle));
        let _ = write!(text, " FH: 0x{:08x}", show::digest(handle));
        Some(())
    };
    let ends = match op {
        GETATTR => {
            handle(c, &mut text)?;
            c.bitmap().map(|()| true)
        }
        RECALL => {
            stateid(c, &mut text)?;
            c.skip(4)?;
            handle(c, &mut text).map(|()| true)
        }
        LAYOUTRECALL => {
            c.skip(8)?;
            let changed = c.u32()? != 0;
            let known = match c.u32()? {
                1 => {
                    handle(c, &mut text)?;
                    show::range(c.u64()?, c.u64()?, u64::MAX, &mut text);
                    stateid(c, &mut text)?;
                    true
                }
                2 => {
                    text.push_str(" of a filesystem");
                    c.skip(16)?;
                    true
                }
                3 => {
                    text.push_str(" of all");
                    true
                }
                _ => false,
            };
            text.push_str(if changed { " (changed)" } else { "" });
            Some(known)
        }
        NOTIFY => {
            stateid(c, &mut text)?;
            handle(c, &mut text)?;
            notifications(c).map(|()| true)
        }
        // A delegation follows as in the results of OPEN. No server is known to send it.
        PUSH_DELEG => handle(c, &mut text).map(|()| false),
        RECALL_ANY | RECALLABLE_OBJ_AVAIL => {
            let _ = write!(text, " Keep: {}", c.u32()?);
            c.bitmap().map(|()| true)
        }
        RECALL_SLOT => {
            let _ = write!(text, " Highest slot: {}", c.u32()?);
            Some(true)
        }
        SEQUENCE => {
            c.skip(32)?;
            c.array(|c| {
                c.skip(16)?;
                c.array(|c| c.skip(8))
            })
            .map(|()| true)
        }
        WANTS_CANCELLED => c.skip(8).map(|()| true),
        NOTIFY_LOCK => {
            handle(c, &mut text)?;
            c.skip(8)?;
            c.opaque().map(|_| true)
        }
        NOTIFY_DEVICEID => notifications(c).map(|()| true),
        OFFLOAD => {
            handle(c, &mut text)?;
            stateid(c, &mut text)?;
            match c.u32()? {
                0 => {
                    c.array(|c| c.skip(16))?;
                    let (count, stable) = (c.u64()?, c.u32()?);
                    let _ = write!(text, " Len: {count} {}", show::stable(stable));
                    c.skip(8)?;
                }
                status => _ = write!(text, " Len: {} Status: {}", c.u64()?, NfsStat(status)),
            }
            Some(true)
        }
        ILLEGAL => Some(true),
        _ => Some(false),
    }?;
    if let Some(show) = show {
        show.push(0, text);
    }
    Some(Read { op, ends, asked: found })
}

/// Skips an operation and its results. `None`: more bytes are needed. `Some(false)`: their end is unknown.
pub(super) fn results(c: &mut Cursor<'_>, show: &mut Show) -> Option<bool> {
    let (op, status) = (c.u32()?, c.u32()?);
    let known = match op {
        _ if status != 0 => false,
        SEQUENCE => c.skip(32).map(|()| true)?,
        GETATTR => c.fattr().map(|()| true)?,
        RECALL..=ILLEGAL => true,
        _ => false,
    };
    show.push(0, shown(op));
    Some(known)
}

fn shown(op: u32) -> String {
    name(op).map_or_else(|| format!("operation {op}"), str::to_owned)
}

fn notifications(c: &mut Cursor<'_>) -> Option<()> {
    c.array(|c| {
        c.bitmap()?;
        c.opaque().map(drop)
    })
}
