//! A walk through a record: keeps what is known to be harmless, hashes or zeroes the rest. Lengths stay.

use super::key::Key;

/// The most elements of a list.
const ELEMENTS_MAX: u32 = 1 << 16;

/// A position in a record. What follows it when the walk ends is zeroed.
pub(super) struct Scrub<'a> {
    pub(super) bytes: &'a mut [u8],
    pub(super) at: usize,
    pub(super) key: &'a Key,
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

    /// Zeroes up to an offset in the record, with padding.
    pub fn zero_to(&mut self, end: usize) -> Option<()> {
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
