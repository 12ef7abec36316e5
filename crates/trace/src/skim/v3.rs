//! What a listing shows of the calls and replies of NFS version 3 (RFC 1813 section 3.3).

use super::cursor::Cursor;
use super::kind::Kind;
use super::show::{self, Show};
use landfast_nfs::v3::{NfsStat3, proc};
use std::fmt::Write;

/// `DH: 0xad487762/singlefile`. `None`: more bytes are needed; with `last` there are none.
pub(super) fn call(procedure: u32, c: &mut Cursor<'_>, last: bool, show: &mut Show) -> Option<String> {
    let mut out = String::new();
    let whole = arguments(procedure, c, &mut out, show);
    if whole.is_none() && !last {
        return None;
    }
    Some(out)
}

fn arguments(procedure: u32, c: &mut Cursor<'_>, out: &mut String, show: &mut Show) -> Option<()> {
    if procedure == proc::NULL {
        return Some(());
    }
    let handle = show::digest(c.opaque()?);
    match procedure {
        proc::LOOKUP
        | proc::CREATE
        | proc::MKDIR
        | proc::SYMLINK
        | proc::MKNOD
        | proc::REMOVE
        | proc::RMDIR => {
            let _ = write!(out, ", DH: 0x{handle:08x}/{}", show::text(c.opaque()?));
            if procedure == proc::CREATE {
                let mode = c.u32()?;
                let name = ["UNCHECKED", "GUARDED", "EXCLUSIVE"].get(mode as usize).unwrap_or(&"?");
                let _ = write!(out, " Mode: {name}");
            }
            if procedure == proc::SYMLINK {
                for bytes in [4, 4, 4, 8] {
                    if c.u32()? != 0 {
                        c.take(bytes)?;
                    }
                }
                for _ in 0..2 {
                    if c.u32()? == 2 {
                        c.take(8)?;
                    }
                }
                let _ = write!(out, " To: {}", show::text(c.opaque()?));
            }
        }
        proc::RENAME => {
            let _ = write!(out, ", From DH: 0x{handle:08x}/{}", show::text(c.opaque()?));
            let to = show::digest(c.opaque()?);
            let _ = write!(out, " To DH: 0x{to:08x}/{}", show::text(c.opaque()?));
        }
        proc::LINK => {
            let to = show::digest(c.opaque()?);
            let _ = write!(out, ", FH: 0x{handle:08x} To DH: 0x{to:08x}/{}", show::text(c.opaque()?));
        }
        proc::ACCESS => {
            let bits = c.u32()?;
            show.checks(bits);
            let _ = write!(out, ", FH: 0x{handle:08x}, [Check: {}]", show::access(bits));
        }
        proc::READ => {
            let _ = write!(out, ", FH: 0x{handle:08x} Offset: {} Len: {}", c.u64()?, c.u32()?);
        }
        proc::WRITE => {
            let (offset, len, stable) = (c.u64()?, c.u32()?, c.u32()?);
            let stable = show::stable(stable);
            let _ = write!(out, ", FH: 0x{handle:08x} Offset: {offset} Len: {len} {stable}");
        }
        _ => _ = write!(out, ", FH: 0x{handle:08x}"),
    }
    Some(())
}

/// ` Error: NFS3ERR_NOENT`, ` Directory mode: 0777 uid: 0 gid: 0`, and so on.
pub(super) fn reply(kind: &Kind, status: u32, c: &mut Cursor<'_>, last: bool) -> Option<String> {
    if status != 0 {
        return Some(format!(" Error: {}", NfsStat3(status)));
    }
    let mut out = String::new();
    let whole = results(kind, c, &mut out);
    if whole.is_none() && !last {
        return None;
    }
    Some(out)
}

fn results(kind: &Kind, c: &mut Cursor<'_>, out: &mut String) -> Option<()> {
    match kind.procedure {
        proc::GETATTR => {
            let names = [
                "Regular File",
                "Directory",
                "Block Device",
                "Character Device",
                "Symbolic Link",
                "Socket",
                "FIFO",
            ];
            let kind = c.u32()?;
            let name = (kind as usize).checked_sub(1).and_then(|i| names.get(i)).unwrap_or(&"?");
            let (mode, _links, uid, gid) = (c.u32()?, c.u32()?, c.u32()?, c.u32()?);
            let _ = write!(out, " {name} mode: {:04o} uid: {uid} gid: {gid}", mode & 0o7777);
        }
        proc::ACCESS => {
            attributes(c)?;
            let checked = kind.checks.into();
            out.push_str(&show::answered(checked, checked, c.u32()?));
        }
        proc::READ => {
            attributes(c)?;
            let _ = write!(out, " Len: {}", c.u32()?);
        }
        proc::WRITE => {
            if c.u32()? != 0 {
                c.take(24)?;
            }
            attributes(c)?;
            let (len, stable) = (c.u32()?, c.u32()?);
            let _ = write!(out, " Len: {len} {}", show::stable(stable));
        }
        proc::LOOKUP => {
            let _ = write!(out, ", FH: 0x{:08x}", show::digest(c.opaque()?));
        }
        _ => {}
    }
    Some(())
}

/// `post_op_attr`.
fn attributes(c: &mut Cursor<'_>) -> Option<()> {
    if c.u32()? != 0 {
        c.take(84)?;
    }
    Some(())
}
