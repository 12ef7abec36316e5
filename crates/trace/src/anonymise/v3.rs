//! NFS version 3 (RFC 1813 section 3.3).

use super::scrub::Scrub;
use landfast_nfs::v3::proc;

pub(super) fn call(procedure: u32, s: &mut Scrub<'_>) -> Option<()> {
    s.opaque()?;
    match procedure {
        proc::SETATTR => {
            settable(s)?;
            s.optional(|s| s.zero(8))
        }
        proc::LOOKUP | proc::REMOVE | proc::RMDIR => s.name(),
        proc::CREATE => {
            s.name()?;
            if s.word()? == 2 { s.fixed(8) } else { settable(s) }
        }
        proc::MKDIR => {
            s.name()?;
            settable(s)
        }
        proc::SYMLINK => {
            s.name()?;
            settable(s)?;
            s.name()
        }
        proc::MKNOD => {
            s.name()?;
            match s.word()? {
                3 | 4 => {
                    settable(s)?;
                    s.keep(8)
                }
                6 | 7 => settable(s),
                _ => Some(()),
            }
        }
        proc::RENAME => {
            s.name()?;
            s.opaque()?;
            s.name()
        }
        proc::LINK => {
            s.opaque()?;
            s.name()
        }
        proc::ACCESS => s.keep(4),
        proc::READ | proc::COMMIT => s.keep(12),
        proc::WRITE => {
            s.keep(16)?;
            s.blank()
        }
        proc::READDIR => {
            s.fixed(8)?;
            s.fixed(8)?;
            s.keep(4)
        }
        proc::READDIRPLUS => {
            s.fixed(8)?;
            s.fixed(8)?;
            s.keep(8)
        }
        _ => Some(()),
    }
}

pub(super) fn reply(procedure: u32, s: &mut Scrub<'_>) -> Option<()> {
    let ok = s.word()? == 0;
    match procedure {
        proc::GETATTR if ok => attributes(s),
        proc::GETATTR => Some(()),
        proc::SETATTR | proc::REMOVE | proc::RMDIR => change(s),
        proc::LOOKUP if ok => {
            s.opaque()?;
            optional_attributes(s)?;
            optional_attributes(s)
        }
        proc::CREATE | proc::MKDIR | proc::SYMLINK | proc::MKNOD => {
            if ok {
                s.optional(Scrub::opaque)?;
                optional_attributes(s)?;
            }
            change(s)
        }
        proc::WRITE | proc::COMMIT => {
            change(s)?;
            match (ok, procedure) {
                (false, _) => return Some(()),
                (true, proc::WRITE) => s.keep(8)?,
                _ => {}
            }
            s.fixed(8)
        }
        proc::RENAME => {
            change(s)?;
            change(s)
        }
        proc::LINK => {
            optional_attributes(s)?;
            change(s)
        }
        _ => {
            optional_attributes(s)?;
            if ok { behind_attributes(procedure, s) } else { Some(()) }
        }
    }
}

fn behind_attributes(procedure: u32, s: &mut Scrub<'_>) -> Option<()> {
    match procedure {
        proc::ACCESS => s.keep(4),
        proc::READLINK => s.name(),
        proc::READ => {
            s.keep(8)?;
            s.blank()
        }
        proc::READDIR | proc::READDIRPLUS => {
            s.fixed(8)?;
            s.list(|s| {
                s.zero(8)?;
                s.name()?;
                s.fixed(8)?;
                if procedure == proc::READDIRPLUS {
                    optional_attributes(s)?;
                    s.optional(Scrub::opaque)?;
                }
                Some(())
            })?;
            s.keep(4)
        }
        proc::FSSTAT => s.zero(52),
        proc::FSINFO => s.keep(48),
        proc::PATHCONF => s.keep(24),
        _ => Some(()),
    }
}

/// `sattr3`.
fn settable(s: &mut Scrub<'_>) -> Option<()> {
    s.optional(|s| s.keep(4))?;
    s.optional(Scrub::id)?;
    s.optional(Scrub::id)?;
    s.optional(|s| s.keep(8))?;
    for _ in 0..2 {
        if s.word()? == 2 {
            s.zero(8)?;
        }
    }
    Some(())
}

/// `fattr3`: type, mode, links and size stay.
fn attributes(s: &mut Scrub<'_>) -> Option<()> {
    s.keep(12)?;
    s.id()?;
    s.id()?;
    s.keep(16)?;
    s.zero(48)
}

pub(super) fn optional_attributes(s: &mut Scrub<'_>) -> Option<()> {
    s.optional(attributes)
}

/// `wcc_data`.
fn change(s: &mut Scrub<'_>) -> Option<()> {
    s.optional(|s| {
        s.keep(8)?;
        s.zero(16)
    })?;
    optional_attributes(s)
}
