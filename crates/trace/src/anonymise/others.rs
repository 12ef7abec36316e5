//! MOUNT, NLM, NFSACL and NFSv4 callbacks. Nothing of other programs is known to be harmless.

use super::scrub::Scrub;
use super::v3::optional_attributes;
use super::v4;
use crate::skim::{Kind, Program};
use landfast_nfs::nlm::proc;

pub(super) fn call(kind: Kind, s: &mut Scrub<'_>) -> Option<()> {
    match (kind.program, kind.procedure) {
        (Program::Callback, 1) => v4::callback(s),
        (Program::Mount, 1 | 3) => s.name(),
        (Program::NfsAcl, 1) => {
            s.opaque()?;
            s.keep(4)
        }
        (Program::NfsAcl, 2) => {
            s.opaque()?;
            lists(s)
        }
        (Program::Nlm, procedure) => lock_call(procedure, kind.version, s),
        _ => Some(()),
    }
}

pub(super) fn reply(kind: Kind, s: &mut Scrub<'_>) -> Option<()> {
    match (kind.program, kind.procedure) {
        // Version 2: mostly a status.
        (Program::Nfs, _) => s.keep(4),
        (Program::Callback, 1) => v4::callback_reply(s),
        (Program::Mount, 1) => match (s.word()?, kind.version) {
            (0, 3) => {
                s.opaque()?;
                s.array(|s| s.keep(4))
            }
            (0, _) => s.fixed(32),
            _ => Some(()),
        },
        (Program::Mount, 2) => s.list(|s| {
            s.name()?;
            s.name()
        }),
        (Program::Mount, 5) => s.list(|s| {
            s.name()?;
            s.list(Scrub::name)
        }),
        (Program::NfsAcl, procedure) => {
            let ok = s.word()? == 0;
            optional_attributes(s)?;
            if ok && procedure == 1 { lists(s) } else { Some(()) }
        }
        (Program::Nlm, procedure) => answer(procedure, kind.version, s),
        _ => Some(()),
    }
}

/// Access ACLs and default ACLs.
fn lists(s: &mut Scrub<'_>) -> Option<()> {
    s.keep(4)?;
    for _ in 0..2 {
        s.keep(4)?;
        s.array(|s| {
            s.keep(4)?;
            s.id()?;
            s.keep(4)
        })?;
    }
    Some(())
}

fn lock_call(procedure: u32, version: u32, s: &mut Scrub<'_>) -> Option<()> {
    match procedure {
        proc::FREE_ALL => {
            s.name()?;
            s.keep(4)
        }
        proc::TEST_RES..=proc::GRANTED_RES => answer(procedure, version, s),
        proc::SHARE | proc::UNSHARE => {
            s.opaque()?;
            s.name()?;
            s.opaque()?;
            s.opaque()?;
            s.keep(12)
        }
        _ => {
            s.opaque()?;
            s.keep(match procedure {
                proc::TEST | proc::TEST_MSG | proc::GRANTED | proc::GRANTED_MSG => 4,
                proc::LOCK | proc::LOCK_MSG | proc::NM_LOCK | proc::CANCEL | proc::CANCEL_MSG => 8,
                _ => 0,
            })?;
            s.name()?;
            s.opaque()?;
            s.opaque()?;
            s.id()?;
            s.keep(range(version))?;
            if matches!(procedure, proc::LOCK | proc::LOCK_MSG | proc::NM_LOCK) {
                s.keep(8)
            } else {
                Some(())
            }
        }
    }
}

fn answer(procedure: u32, version: u32, s: &mut Scrub<'_>) -> Option<()> {
    s.opaque()?;
    let status = s.word()?;
    match procedure {
        proc::TEST | proc::TEST_RES if status == 1 => {
            s.keep(4)?;
            s.id()?;
            s.opaque()?;
            s.keep(range(version))
        }
        proc::SHARE | proc::UNSHARE => s.keep(4),
        _ => Some(()),
    }
}

/// Length of offset and length: 64 bits each since version 4.
fn range(version: u32) -> usize {
    if version >= 4 { 16 } else { 8 }
}
