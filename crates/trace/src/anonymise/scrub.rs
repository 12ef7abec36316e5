//! Walks through a record: keeps what is known to be harmless, hashes or zeroes the rest. Lengths stay.

use super::key::Key;
use crate::skim::{Kind, Program, Protection};

/// The most elements of a list.
const ELEMENTS_MAX: u32 = 1 << 16;

/// A position in a record. What follows it when the walk ends is zeroed.
pub(super) struct Scrub<'a> {
    bytes: &'a mut [u8],
    at: usize,
    key: &'a Key,
}

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
        return body(s, kind, super::v3::call, super::v4::call, super::others::call);
    }
    if s.word()? != 0 {
        // Denied: reason, with versions or a status.
        return s.keep(8);
    }
    s.word()?;
    s.blank()?;
    match s.word()? {
        0 => body(s, answers?, super::v3::reply, super::v4::reply, super::others::reply),
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

/// AUTH_SYS: stamp, machine name, uid, gids.
pub(super) fn sys(s: &mut Scrub<'_>) -> Option<()> {
    s.zero(4)?;
    s.name()?;
    s.id()?;
    s.id()?;
    s.array(Scrub::id)
}

impl Scrub<'_> {
    fn next(&mut self, n: usize) -> Option<usize> {
        let from = self.at;
        let to = from.checked_add(n).filter(|to| *to <= self.bytes.len())?;
        self.at = to;
        Some(from)
    }

    /// Harmless bytes.
    pub fn keep(&mut self, n: usize) -> Option<()> {
        self.next(n).map(drop)
    }

    /// A harmless number.
    pub fn word(&mut self) -> Option<u32> {
        let from = self.next(4)?;
        let b = &self.bytes[from..from + 4];
        Some(u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// Bytes that nobody needs.
    pub fn zero(&mut self, n: usize) -> Option<()> {
        let from = self.next(n)?;
        self.bytes[from..from + n].fill(0);
        Some(())
    }

    fn zero_to(&mut self, end: usize) -> Option<()> {
        self.zero(end.next_multiple_of(4).checked_sub(self.at)?)
    }

    /// An identifier of fixed length. All zeros and all ones have a meaning and stay.
    pub fn fixed(&mut self, n: usize) -> Option<()> {
        let from = self.next(n)?;
        let bytes = &mut self.bytes[from..from + n];
        if bytes.iter().any(|b| *b != bytes[0]) || !matches!(bytes.first(), Some(0 | 0xff)) {
            let old = bytes.to_vec();
            self.key.opaque(&old, bytes);
        }
        Some(())
    }

    /// A stateid. Its seqid stays.
    pub fn stateid(&mut self) -> Option<()> {
        self.keep(4)?;
        self.fixed(12)
    }

    pub fn id(&mut self) -> Option<()> {
        let id = self.word()?;
        let at = self.at;
        self.bytes[at - 4..at].copy_from_slice(&self.key.id(id).to_be_bytes());
        Some(())
    }

    fn variable(&mut self, f: impl FnOnce(&Key, &mut [u8])) -> Option<()> {
        let len = usize::try_from(self.word()?).ok()?;
        let from = self.next(len.checked_next_multiple_of(4)?)?;
        f(self.key, &mut self.bytes[from..from + len]);
        self.bytes[from + len..self.at].fill(0);
        Some(())
    }

    pub fn name(&mut self) -> Option<()> {
        self.variable(|key, name| {
            let old = name.to_vec();
            key.name(&old, name);
        })
    }

    /// An identifier of variable length: handle, owner.
    pub fn opaque(&mut self) -> Option<()> {
        self.variable(|key, bytes| {
            let old = bytes.to_vec();
            key.opaque(&old, bytes);
        })
    }

    /// Data. Only its length is needed.
    pub fn blank(&mut self) -> Option<()> {
        let len = usize::try_from(self.word()?).ok()?;
        let padded = len.checked_next_multiple_of(4)?;
        // The end of a long record is not held. Then all data that is here belongs to this.
        self.zero(padded.min(self.bytes.len() - self.at))
    }

    pub fn array(&mut self, mut each: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        let n = self.word()?;
        if n > ELEMENTS_MAX {
            return None;
        }
        (0..n).try_for_each(|_| each(self))
    }

    /// An optional value, preceded by a boolean.
    pub fn optional(&mut self, each: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        if self.word()? == 0 { Some(()) } else { each(self) }
    }

    /// A linked list, each element preceded by a boolean.
    pub fn list(&mut self, mut each: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        while self.word()? != 0 {
            each(self)?;
        }
        Some(())
    }

    /// The bits that are set in a bitmap.
    pub fn bitmap(&mut self) -> Option<Vec<u32>> {
        let words = self.word()?;
        if words > 64 {
            return None;
        }
        let mut set = Vec::new();
        for n in 0..words {
            let word = self.word()?;
            set.extend((0..32).filter(|bit| word >> bit & 1 == 1).map(|bit| n * 32 + bit));
        }
        Some(set)
    }

    /// Walks through the content of an opaque. What `walk` does not consume is zeroed.
    pub fn inside(&mut self, walk: impl FnOnce(&mut Scrub<'_>) -> Option<()>) -> Option<()> {
        let len = usize::try_from(self.word()?).ok()?;
        let from = self.next(len.checked_next_multiple_of(4)?)?;
        let mut inner = Scrub { bytes: &mut self.bytes[from..from + len], at: 0, key: self.key };
        let _ = walk(&mut inner);
        let at = inner.at;
        self.bytes[from + at..self.at].fill(0);
        Some(())
    }
}
