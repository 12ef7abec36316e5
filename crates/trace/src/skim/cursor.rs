//! Reads XDR in place, without copies. `None`: more bytes are needed.

/// A position in bytes that may not be complete yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(all: &'a [u8]) -> Self {
        Cursor { all, at: 0 }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let taken = self.all.get(self.at..self.at.checked_add(n)?)?;
        self.at += n;
        Some(taken)
    }

    pub fn u32(&mut self) -> Option<u32> {
        let b = self.take(4)?;
        Some(u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some((u64::from(self.u32()?) << 32) | u64::from(self.u32()?))
    }

    /// Bytes with their length before and padding after them.
    pub fn opaque(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        let padded = self.take(len.checked_next_multiple_of(4)?)?;
        Some(&padded[..len])
    }

    /// Skips an array; `each` skips an element.
    pub fn array(&mut self, mut each: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        for _ in 0..self.u32()? {
            each(self)?;
        }
        Some(())
    }

    pub fn bitmap(&mut self) -> Option<()> {
        let words = usize::try_from(self.u32()?).ok()?;
        self.take(words.checked_mul(4)?).map(drop)
    }

    pub fn fattr(&mut self) -> Option<()> {
        self.bitmap()?;
        self.opaque().map(drop)
    }

    pub fn skip(&mut self, n: usize) -> Option<()> {
        self.take(n).map(drop)
    }

    /// Skips a client id and what it calls an owner (RFC 8881 section 3.3.10).
    pub fn owner(&mut self) -> Option<()> {
        self.skip(8)?;
        self.opaque().map(drop)
    }
}
