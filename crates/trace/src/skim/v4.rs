//! Operations of NFSv4: the length of their arguments without data, and what a listing shows of them.

use super::cursor::Cursor;
use super::facts::{Facts, Gather, WantedFiles};
use super::opened::{created, open};
use super::show::{self, Show, stateid};
use landfast_nfs::v4::{NfsStat, OpNum};
use std::fmt::Write;

pub(super) fn rank(op: u8) -> u8 {
    match number(op) {
        OpNum::SEQUENCE => 6,
        OpNum::PUTFH | OpNum::PUTPUBFH | OpNum::SAVEFH | OpNum::RESTOREFH => 5,
        OpNum::GETFH => 4,
        OpNum::GETATTR | OpNum::PUTROOTFH => 3,
        OpNum::ACCESS => 2,
        _ => 1,
    }
}

/// An operation as one byte. Only one number does not fit.
pub(crate) fn byte(op: OpNum) -> u8 {
    u8::try_from(op.0).unwrap_or(u8::MAX)
}

/// The reverse of `byte`.
pub fn number(op: u8) -> OpNum {
    if op == u8::MAX { OpNum::ILLEGAL } else { OpNum(op.into()) }
}

/// How far arguments were read.
pub(crate) enum Arguments {
    All,
    /// Skipped up to this many bytes of data plus padding.
    Data(u64),
    /// Their end is unknown.
    Unknown,
}

/// Skips the arguments of `op`.
pub(super) fn arguments(
    op: OpNum,
    c: &mut Cursor<'_>,
    (gather, facts, asked): (&mut Gather, &mut Facts, Option<&dyn WantedFiles>),
    show: Option<&mut Show>,
) -> Option<Arguments> {
    let from = *c;
    let mut data = None;
    match op {
        OpNum::GETFH | OpNum::LOOKUPP | OpNum::PUTPUBFH | OpNum::PUTROOTFH | OpNum::READLINK => {}
        OpNum::RESTOREFH | OpNum::SAVEFH | OpNum::ILLEGAL => {}
        OpNum::ACCESS | OpNum::OPENATTR | OpNum::SECINFO_NO_NAME | OpNum::RECLAIM_COMPLETE => c.skip(4)?,
        OpNum::DELEGPURGE | OpNum::RENEW | OpNum::DESTROY_CLIENTID => c.skip(8)?,
        OpNum::COMMIT | OpNum::LISTXATTRS => c.skip(12)?,
        OpNum::DELEGRETURN | OpNum::DESTROY_SESSION | OpNum::FREE_STATEID => c.skip(16)?,
        OpNum::OFFLOAD_CANCEL | OpNum::OFFLOAD_STATUS | OpNum::SETCLIENTID_CONFIRM => c.skip(16)?,
        OpNum::CLOSE | OpNum::OPEN_CONFIRM => c.skip(20)?,
        OpNum::BIND_CONN_TO_SESSION | OpNum::GETDEVICELIST => c.skip(24)?,
        OpNum::OPEN_DOWNGRADE | OpNum::READ | OpNum::READ_PLUS | OpNum::SEEK => c.skip(28)?,
        OpNum::SEQUENCE | OpNum::ALLOCATE | OpNum::DEALLOCATE => c.skip(32)?,
        OpNum::LOCKU => c.skip(40)?,
        OpNum::LAYOUTGET => c.skip(56)?,
        OpNum::CLONE => c.skip(56)?,
        OpNum::GETATTR => c.bitmap()?,
        OpNum::NVERIFY | OpNum::VERIFY => c.fattr()?,
        OpNum::LINK | OpNum::LOOKUP | OpNum::PUTFH | OpNum::REMOVE | OpNum::SECINFO => {
            c.opaque()?;
        }
        OpNum::GETXATTR | OpNum::REMOVEXATTR => {
            c.opaque()?;
        }
        OpNum::RENAME | OpNum::SET_SSV => {
            c.opaque()?;
            c.opaque()?;
        }
        OpNum::CREATE => {
            created(c)?;
            c.fattr()?;
        }
        OpNum::LOCK => {
            c.skip(24)?;
            match c.u32()? {
                0 => c.skip(20)?,
                _ => {
                    c.skip(24)?;
                    c.owner()?;
                }
            }
        }
        OpNum::LOCKT => {
            c.skip(20)?;
            c.owner()?;
        }
        OpNum::RELEASE_LOCKOWNER => c.owner()?,
        OpNum::OPEN => {
            open(c)?;
        }
        OpNum::READDIR => {
            c.skip(24)?;
            c.bitmap()?;
        }
        OpNum::SETATTR => {
            c.skip(16)?;
            c.fattr()?;
        }
        OpNum::WRITE => {
            c.skip(28)?;
            data = Some(u64::from(c.u32()?));
        }
        OpNum::SETXATTR => {
            c.skip(4)?;
            c.opaque()?;
            data = Some(u64::from(c.u32()?));
        }
        OpNum::SETCLIENTID => {
            c.skip(8)?;
            c.opaque()?;
            c.skip(4)?;
            c.opaque()?;
            c.opaque()?;
            c.skip(4)?;
        }
        OpNum::BACKCHANNEL_CTL => {
            c.skip(4)?;
            c.array(security)?;
        }
        OpNum::EXCHANGE_ID => exchange_id(c)?,
        OpNum::CREATE_SESSION => {
            c.skip(16)?;
            for _ in 0..2 {
                c.skip(24)?;
                c.bitmap()?;
            }
            c.skip(4)?;
            c.array(security)?;
        }
        OpNum::TEST_STATEID => c.array(|c| c.skip(16))?,
        OpNum::GET_DIR_DELEGATION => {
            c.skip(4)?;
            c.bitmap()?;
            c.skip(24)?;
            c.bitmap()?;
            c.bitmap()?;
        }
        OpNum::GETDEVICEINFO => {
            c.skip(24)?;
            c.bitmap()?;
        }
        OpNum::LAYOUTCOMMIT => {
            c.skip(36)?;
            optional(c, 8)?;
            optional(c, 12)?;
            c.skip(4)?;
            c.opaque()?;
        }
        OpNum::LAYOUTRETURN => {
            c.skip(12)?;
            if c.u32()? == 1 {
                c.skip(32)?;
                c.opaque()?;
            }
        }
        OpNum::WANT_DELEGATION => {
            c.skip(4)?;
            if c.u32()? == 1 {
                c.skip(4)?;
            }
        }
        OpNum::COPY => {
            c.skip(64)?;
            c.array(location)?;
        }
        OpNum::COPY_NOTIFY => {
            c.skip(16)?;
            location(c)?;
        }
        OpNum::IO_ADVISE => {
            c.skip(32)?;
            c.bitmap()?;
        }
        OpNum::LAYOUTERROR => {
            c.skip(32)?;
            c.array(|c| c.skip(24))?;
        }
        OpNum::LAYOUTSTATS => {
            c.skip(84)?;
            c.opaque()?;
        }
        OpNum::WRITE_SAME => {
            c.skip(64)?;
            c.opaque()?;
        }
        _ => return Some(Arguments::Unknown),
    }
    gather.operation(op, rank(byte(op)), from, facts, asked);
    if let Some(show) = show {
        describe(op, from, show);
    }
    Some(data.map_or(Arguments::All, Arguments::Data))
}

fn optional(c: &mut Cursor<'_>, n: usize) -> Option<()> {
    if c.u32()? != 0 { c.skip(n) } else { Some(()) }
}

fn security(c: &mut Cursor<'_>) -> Option<()> {
    match c.u32()? {
        1 => {
            c.skip(4)?;
            c.opaque()?;
            c.skip(8)?;
            c.bitmap()
        }
        6 => {
            c.skip(4)?;
            c.opaque()?;
            c.opaque().map(drop)
        }
        _ => Some(()),
    }
}

fn exchange_id(c: &mut Cursor<'_>) -> Option<()> {
    c.owner()?;
    c.skip(4)?;
    let protect = c.u32()?;
    if protect == 1 || protect == 2 {
        c.bitmap()?;
        c.bitmap()?;
    }
    if protect == 2 {
        c.array(|c| c.opaque().map(drop))?;
        c.array(|c| c.opaque().map(drop))?;
        c.skip(8)?;
    }
    c.array(|c| {
        c.opaque()?;
        c.opaque()?;
        c.skip(12)
    })
}

fn location(c: &mut Cursor<'_>) -> Option<()> {
    let kind = c.u32()?;
    c.opaque()?;
    if kind == 3 { c.opaque().map(drop) } else { Some(()) }
}

/// What a listing shows of an operation: `SETATTR FH: 0x1d14c75e`.
fn describe(op: OpNum, mut c: Cursor<'_>, show: &mut Show) {
    let mut text = op.to_string();
    let _: Option<()> = (|| {
        match op {
            OpNum::PUTFH => show.handle = Some(show::digest(c.opaque()?)),
            OpNum::PUTROOTFH | OpNum::PUTPUBFH => show.handle = None,
            OpNum::SAVEFH => show.saved = show.handle,
            OpNum::RESTOREFH => show.handle = show.saved,
            OpNum::LOOKUP | OpNum::REMOVE | OpNum::LINK | OpNum::SECINFO => {
                let name = c.opaque()?;
                show.name(&mut text, name);
            }
            OpNum::OPEN => {
                if let Some(name) = open(&mut c)?.name {
                    show.name(&mut text, name);
                }
            }
            OpNum::CREATE => {
                let name = created(&mut c)?;
                show.name(&mut text, name);
            }
            OpNum::RENAME => {
                let (from, to) = (c.opaque()?, c.opaque()?);
                let _ = write!(text, " From: {} To: {}", show::text(from), show::text(to));
            }
            OpNum::GETATTR | OpNum::NVERIFY | OpNum::VERIFY | OpNum::SETATTR => show.handle(&mut text),
            OpNum::ACCESS => {
                show.handle(&mut text);
                let bits = c.u32()?;
                show.checks(bits);
                let _ = write!(text, ", [Check: {}]", show::access(bits));
            }
            OpNum::CLOSE => {
                c.skip(4)?;
                stateid(&mut c, &mut text)?;
            }
            OpNum::READ | OpNum::READ_PLUS => {
                stateid(&mut c, &mut text)?;
                let _ = write!(text, " Offset: {} Len: {}", c.u64()?, c.u32()?);
            }
            OpNum::WRITE => {
                stateid(&mut c, &mut text)?;
                let (offset, stable) = (c.u64()?, c.u32()?);
                let _ = write!(text, " Offset: {offset} Len: {} {}", c.u32()?, show::stable(stable));
            }
            OpNum::COMMIT => {
                show.handle(&mut text);
                let _ = write!(text, " Offset: {} Len: {}", c.u64()?, c.u32()?);
            }
            OpNum::DELEGRETURN | OpNum::FREE_STATEID => stateid(&mut c, &mut text)?,
            OpNum::LOCK | OpNum::LOCKT | OpNum::LOCKU => {
                c.skip(if op == OpNum::LOCKT { 4 } else { 8 })?;
                if op == OpNum::LOCKU {
                    c.skip(16)?;
                }
                show.handle(&mut text);
                show::range(c.u64()?, c.u64()?, u64::MAX, &mut text);
            }
            _ => {}
        }
        Some(())
    })();
    // The object found by one of these has no handle in the call.
    if matches!(op, OpNum::LOOKUP | OpNum::LOOKUPP | OpNum::OPEN | OpNum::CREATE) {
        show.handle = None;
    }
    show.push(byte(op), text);
}

/// What a listing shows of an operation's results: `OPEN StateID: 0x3aa3`.
pub(super) fn describe_results(op: OpNum, status: u32, mut c: Cursor<'_>, show: &mut Show) {
    let mut text = op.to_string();
    let _: Option<()> = (|| {
        match op {
            _ if status != 0 => {}
            OpNum::ACCESS => {
                let (supported, allowed) = (c.u32()?, c.u32()?);
                let checked = show.checks.unwrap_or(0).into();
                text.push_str(&show::answered(checked, supported, allowed));
            }
            OpNum::OPEN => stateid(&mut c, &mut text)?,
            OpNum::READ => {
                c.skip(4)?;
                let _ = write!(text, " Len: {}", c.u32()?);
            }
            OpNum::WRITE => {
                let (len, stable) = (c.u32()?, c.u32()?);
                let _ = write!(text, " Len: {len} {}", show::stable(stable));
            }
            _ => {}
        }
        Some(())
    })();
    show.push(byte(op), text);
}

/// Skips the results of an operation without its data, or finds the handle in it. `None`: more bytes are needed.
pub(super) fn results(op: OpNum, status: u32, c: &mut Cursor<'_>) -> Option<Results> {
    if op == OpNum::SETATTR {
        c.bitmap()?;
        return Some(Results::Passed);
    }
    if status != 0 {
        return Some(Results::Unknown);
    }
    match op {
        OpNum::PUTFH | OpNum::PUTROOTFH | OpNum::PUTPUBFH | OpNum::SAVEFH | OpNum::RESTOREFH => {}
        OpNum::LOOKUP | OpNum::LOOKUPP | OpNum::VERIFY | OpNum::NVERIFY | OpNum::OPENATTR => {}
        OpNum::LOCKT | OpNum::DELEGRETURN | OpNum::RECLAIM_COMPLETE | OpNum::FREE_STATEID => {}
        OpNum::ALLOCATE | OpNum::DEALLOCATE | OpNum::CLONE => {}
        OpNum::GETFH => return Some(Results::Handle(super::facts::digest(c.opaque()?))),
        OpNum::SEQUENCE => c.skip(36)?,
        OpNum::ACCESS | OpNum::COMMIT => c.skip(8)?,
        OpNum::GETATTR => c.fattr()?,
        OpNum::CLOSE | OpNum::WRITE | OpNum::OPEN_CONFIRM | OpNum::OPEN_DOWNGRADE => c.skip(16)?,
        OpNum::LOCK | OpNum::LOCKU => c.skip(16)?,
        OpNum::REMOVE | OpNum::LINK => c.skip(20)?,
        OpNum::RENAME => c.skip(40)?,
        OpNum::READ => {
            c.skip(4)?;
            return Some(Results::Data(c.u32()?.into()));
        }
        OpNum::CREATE => {
            c.skip(20)?;
            c.bitmap()?;
        }
        OpNum::OPEN => {
            c.skip(40)?;
            c.bitmap()?;
            let entry = |c: &mut Cursor<'_>| {
                c.skip(12)?;
                c.opaque().map(drop)
            };
            match c.u32()? {
                1 | 4 => {
                    c.skip(20)?;
                    entry(c)?;
                }
                2 | 5 => {
                    c.skip(32)?;
                    entry(c)?;
                }
                3 => {
                    if matches!(c.u32()?, 1 | 2) {
                        c.skip(4)?;
                    }
                }
                _ => {}
            }
        }
        _ => return Some(Results::Unknown),
    }
    Some(Results::Passed)
}

/// How far results were read.
pub(super) enum Results {
    Passed,
    /// Skipped up to this many bytes of data plus padding.
    Data(u64),
    /// Contains the handle of the object that was found or created.
    Handle(u64),
    /// Their end is unknown, or nothing follows.
    Unknown,
}

/// A COMPOUND's main operations as a listing shows them: `ACCESS FH: 0x1d14c75e, [Check: RD MD XT XE]`.
pub(crate) fn line(operations: &[(u8, String)]) -> String {
    let best = operations.iter().map(|(op, _)| rank(*op)).min().unwrap_or(0);
    let shown: Vec<&str> =
        operations.iter().filter(|(op, _)| rank(*op) == best).map(|(_, t)| t.as_str()).collect();
    shown.join(" | ")
}

/// How a COMPOUND ended, as a listing shows it: ` Status: NFS4ERR_SAME`.
pub(crate) fn status(status: u32) -> String {
    if status == 0 { String::new() } else { format!(" Status: {}", NfsStat(status)) }
}
