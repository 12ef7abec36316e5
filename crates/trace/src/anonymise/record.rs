//! A record from its header on: what each program's calls and replies hold stands in the modules below.

use super::key::Key;
use super::scrub::{Scrub, sys};
use super::{others, v3, v4};
use crate::skim::{Kind, Program, Protection};

/// Walks through a record. `answers`: the call that it answers, if known.
pub(super) fn record(bytes: &mut [u8], answers: Option<Kind>, key: &Key) {
    let mut scrub = Scrub { bytes, at: 0, key };
    // If the walk ends early, the rest is not kept.
    let _ = message(&mut scrub, answers);
    let at = scrub.at;
    bytes[at..].fill(0);
}

const RPCSEC_GSS: u32 = 6;

fn message(s: &mut Scrub<'_>, answers: Option<Kind>) -> Option<()> {
    s.keep(4)?;
    if s.word()? == 0 {
        s.keep(4)?;
        let (program, version, procedure) = (s.word()?, s.word()?, s.word()?);
        let protection = credential(s)?;
        s.word()?;
        s.blank()?;
        let kind = Kind { program: Program::of(program), version, procedure, protection, ..Kind::default() };
        return body(s, kind, v3::call, v4::call, others::call);
    }
    if s.word()? != 0 {
        // Denied: reason, with versions or a status.
        return s.keep(8);
    }
    s.word()?;
    s.blank()?;
    match s.word()? {
        0 => body(s, answers?, v3::reply, v4::reply, others::reply),
        2 => s.keep(8),
        _ => Some(()),
    }
}

fn body(
    s: &mut Scrub<'_>,
    kind: Kind,
    v3: fn(u32, &mut Scrub<'_>) -> Option<()>,
    v4: fn(&mut Scrub<'_>) -> Option<()>,
    others: fn(Kind, &mut Scrub<'_>) -> Option<()>,
) -> Option<()> {
    match kind.protection {
        Protection::Privacy => return s.blank(),
        Protection::TlsProbe => return Some(()),
        Protection::Integrity => s.keep(8)?,
        Protection::None => {}
    }
    if kind.procedure == 0 {
        return Some(());
    }
    match (kind.program, kind.version) {
        (Program::Nfs, 3) => v3(kind.procedure, s),
        (Program::Nfs, 4) => v4(s),
        _ => others(kind, s),
    }
}

/// The credential of a call. Returns how the arguments are protected.
fn credential(s: &mut Scrub<'_>) -> Option<Protection> {
    let flavor = s.word()?;
    match flavor {
        1 => {
            let len = s.word()? as usize;
            let end = s.at.checked_add(len)?;
            let _ = sys(s);
            s.zero_to(end)?;
            Some(Protection::None)
        }
        RPCSEC_GSS => {
            let len = s.word()? as usize;
            let (end, from) = (s.at.checked_add(len)?, s.at);
            s.keep(16)?;
            let word = |n: usize| s.bytes[from + 4 * n + 3];
            let protection = match (word(0), word(1), word(3)) {
                (1, 0, 2) => Protection::Integrity,
                (1, 0, 3) => Protection::Privacy,
                _ => Protection::None,
            };
            s.opaque()?;
            s.zero_to(end)?;
            Some(protection)
        }
        7 => {
            s.blank()?;
            Some(Protection::TlsProbe)
        }
        _ => {
            s.blank()?;
            Some(Protection::None)
        }
    }
}
