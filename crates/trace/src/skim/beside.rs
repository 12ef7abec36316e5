//! What a listing shows of the programs beside NFS version 3: MOUNT (RFC 1813 section 5), NLM (section 6), NFSACL.

use super::cursor::Cursor;
use super::kind::Kind;
use super::program::Program;
use super::show::{self, range};
use landfast_nfs::nlm::{self, NlmStat};
use landfast_nfs::v3::NfsStat3;
use landfast_nfs::{mount, nfsacl};
use std::fmt::Write;

/// ` /export`, `, FH: 0x44856022 Offset: 0 Length: 100 EXCLUSIVE`. `None`: more bytes are needed; with `last` there are none.
pub(super) fn call(kind: &Kind, c: &mut Cursor<'_>, last: bool) -> Option<String> {
    let mut out = String::new();
    let whole = match kind.program {
        Program::Mount => mounted(kind, c, &mut out),
        Program::Nlm => locked(kind, c, &mut out),
        Program::NfsAcl => acl(kind, c, &mut out),
        _ => Some(()),
    };
    (whole.is_some() || last).then_some(out)
}

/// `, FH: 0x44856022`, ` Error: MNT3ERR_ACCES`, ` NLM_BLOCKED`. As [`call`].
pub(super) fn reply(kind: &Kind, c: &mut Cursor<'_>, last: bool) -> Option<String> {
    let mut out = String::new();
    let whole = match kind.program {
        Program::Mount => mount_result(kind, c, &mut out),
        Program::Nlm => lock_result(kind, c, &mut out),
        Program::NfsAcl => acl_result(kind, c, &mut out),
        _ => Some(()),
    };
    (whole.is_some() || last).then_some(out)
}

fn handle(c: &mut Cursor<'_>, out: &mut String) -> Option<()> {
    let _ = write!(out, ", FH: 0x{:08x}", show::digest(c.opaque()?));
    Some(())
}

fn mounted(kind: &Kind, c: &mut Cursor<'_>, out: &mut String) -> Option<()> {
    if matches!(kind.procedure, mount::proc::MNT | mount::proc::UMNT) {
        let _ = write!(out, " {}", show::text(c.opaque()?));
    }
    Some(())
}

fn mount_result(kind: &Kind, c: &mut Cursor<'_>, out: &mut String) -> Option<()> {
    if kind.procedure != mount::proc::MNT {
        return Some(());
    }
    match c.u32()? {
        0 if kind.version == 3 => handle(c, out)?,
        // A handle has a fixed length (RFC 1094 section 2.3.3).
        0 => _ = write!(out, ", FH: 0x{:08x}", show::digest(c.take(32)?)),
        // The same numbers and names as in NFS version 3.
        status => _ = write!(out, " Error: {}", NfsStat3(status).to_string().replacen("NFS3", "MNT3", 1)),
    }
    Some(())
}

fn acl(kind: &Kind, c: &mut Cursor<'_>, out: &mut String) -> Option<()> {
    if kind.version == nfsacl::VERSION
        && matches!(kind.procedure, nfsacl::proc::GETACL | nfsacl::proc::SETACL)
    {
        handle(c, out)?;
    }
    Some(())
}

fn acl_result(kind: &Kind, c: &mut Cursor<'_>, out: &mut String) -> Option<()> {
    if kind.version == nfsacl::VERSION
        && matches!(kind.procedure, nfsacl::proc::GETACL | nfsacl::proc::SETACL)
    {
        let status = c.u32()?;
        if status != 0 {
            let _ = write!(out, " Error: {}", NfsStat3(status));
        }
    }
    Some(())
}

fn locked(kind: &Kind, c: &mut Cursor<'_>, out: &mut String) -> Option<()> {
    use nlm::proc::*;
    let words = match kind.procedure {
        UNLOCK | UNLOCK_MSG => 0,
        TEST | TEST_MSG | GRANTED | GRANTED_MSG => 1,
        LOCK | LOCK_MSG | CANCEL | CANCEL_MSG | NM_LOCK => 2,
        TEST_RES | LOCK_RES | CANCEL_RES | UNLOCK_RES | GRANTED_RES => return lock_result(kind, c, out),
        SHARE | UNSHARE => {
            c.opaque()?;
            c.opaque()?;
            return handle(c, out);
        }
        _ => return Some(()),
    };
    c.opaque()?;
    let waits = words == 2 && c.u32()? != 0;
    let exclusive = if words > 0 { Some(c.u32()? != 0) } else { None };
    c.opaque()?;
    handle(c, out)?;
    c.opaque()?;
    held(c.u32()?, kind, c, out)?;
    out.push_str(exclusive.map_or("", exclusively));
    if waits {
        out.push_str(" BLOCK");
    }
    if matches!(kind.procedure, LOCK | LOCK_MSG) && c.u32()? != 0 {
        out.push_str(" RECLAIM");
    }
    Some(())
}

fn exclusively(exclusive: bool) -> &'static str {
    if exclusive { " EXCLUSIVE" } else { " SHARED" }
}

/// The owner and the byte range of a lock. Before version 4, offsets have 32 bits.
fn held(svid: u32, kind: &Kind, c: &mut Cursor<'_>, out: &mut String) -> Option<()> {
    let mut place = || if kind.version == nlm::VERSION { c.u64() } else { c.u32().map(u64::from) };
    let (offset, length) = (place()?, place()?);
    let _ = write!(out, " svid: {}", svid.cast_signed());
    range(offset, length, 0, out);
    Some(())
}

fn lock_result(kind: &Kind, c: &mut Cursor<'_>, out: &mut String) -> Option<()> {
    use nlm::proc::*;
    // Calls with a later answer, and FREE_ALL, have no result here.
    let answers =
        (TEST..=GRANTED).contains(&kind.procedure) || (TEST_RES..=GRANTED_RES).contains(&kind.procedure);
    if !answers && !matches!(kind.procedure, SHARE | UNSHARE | NM_LOCK) {
        return Some(());
    }
    c.opaque()?;
    let status = NlmStat(c.u32()?);
    match status.name() {
        Some("GRANTED") => {}
        Some(name) => _ = write!(out, " NLM_{name}"),
        None => _ = write!(out, " status {}", status.0),
    }
    if matches!(kind.procedure, TEST | TEST_RES) && status == NlmStat::DENIED {
        let (exclusive, svid) = (c.u32()? != 0, c.u32()?);
        c.opaque()?;
        held(svid, kind, c, out)?;
        out.push_str(exclusively(exclusive));
    }
    Some(())
}
