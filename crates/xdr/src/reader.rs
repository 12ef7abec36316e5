//! The cursor that decoding reads from.

use crate::{Error, padding};
use bytes::{Buf, Bytes};

/// A cursor over a record; opaque data comes out as slices that share the record's memory.
#[derive(Debug, Clone)]
pub struct Reader {
    rest: Bytes,
}

impl Reader {
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Reader { rest: bytes }
    }

    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The bytes not yet read.
    #[must_use]
    pub fn into_rest(self) -> Bytes {
        self.rest
    }

    #[inline]
    fn need(&self, n: usize) -> Result<(), Error> {
        if self.rest.len() < n { Err(Error::Short(n - self.rest.len())) } else { Ok(()) }
    }

    /// An unsigned 32-bit integer (RFC 4506 section 4.2).
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Error> {
        self.need(4)?;
        Ok(self.rest.get_u32())
    }

    /// An unsigned 64-bit integer (RFC 4506 section 4.5).
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Error> {
        self.need(8)?;
        Ok(self.rest.get_u64())
    }

    /// `n` bytes and their padding (RFC 4506 section 4.9), sharing the record's memory.
    ///
    /// # Errors
    /// [`Error::Short`]; [`Error::Padding`] when the padding is not zero.
    pub fn fixed(&mut self, n: usize) -> Result<Bytes, Error> {
        let pad = padding(n);
        self.need(n.saturating_add(pad))?;
        let data = self.rest.split_to(n);
        if self.rest[..pad].iter().any(|&b| b != 0) {
            return Err(Error::Padding);
        }
        self.rest.advance(pad);
        Ok(data)
    }

    /// Variable-length opaque data (RFC 4506 section 4.10) of at most `max` bytes, sharing the record's memory.
    ///
    /// # Errors
    /// [`Error::TooLong`] above `max`; [`Error::Short`]; [`Error::Padding`].
    pub fn opaque(&mut self, max: usize) -> Result<Bytes, Error> {
        let len = self.u32()? as usize;
        if len > max {
            return Err(Error::TooLong { len, max });
        }
        self.fixed(len)
    }

    /// [`Reader::opaque`] in memory of its own: for what is kept for longer than the record.
    ///
    /// # Errors
    /// As [`Reader::opaque`].
    pub fn opaque_copied(&mut self, max: usize) -> Result<Bytes, Error> {
        self.opaque(max).map(|data| Bytes::copy_from_slice(&data))
    }

    /// The count of a variable-length array (RFC 4506 section 4.13). [`Error::Short`] when the remaining bytes cannot
    /// hold so many elements: each takes at least four.
    pub fn count(&mut self) -> Result<usize, Error> {
        let n = self.u32()? as usize;
        self.need(n.saturating_mul(4))?;
        Ok(n)
    }
}
