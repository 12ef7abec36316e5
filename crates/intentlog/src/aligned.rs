//! A growable byte buffer whose first byte lies on a block boundary, as O_DIRECT requires.
//!
//! It allocates one block more than it needs and starts at the first aligned byte. So it needs no `unsafe`; growing copies.

use crate::limits::BLOCK_BYTES;

/// Bytes that start at an address divisible by [`BLOCK_BYTES`].
#[derive(Debug, Default)]
pub struct AlignedBuf {
    raw: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// An empty buffer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let raw = vec![0u8; capacity + BLOCK_BYTES];
        let misfit = raw.as_ptr() as usize % BLOCK_BYTES;
        let start = if misfit == 0 { 0 } else { BLOCK_BYTES - misfit };
        AlignedBuf { raw, start, len: 0 }
    }

    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::with_capacity(len);
        buf.len = len;
        buf
    }

    /// Bytes that fit without growing.
    pub fn capacity(&self) -> usize {
        self.raw.len() - self.start.min(self.raw.len())
    }

    /// Forgets the contents, keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn extend(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.reserve(end);
        self.raw[self.start + self.len..self.start + end].copy_from_slice(bytes);
        self.len = end;
    }

    /// Appends zeroes up to `len` bytes in all; shortens to `len` if there are more.
    pub fn resize(&mut self, len: usize) {
        self.reserve(len);
        if len > self.len {
            self.raw[self.start + self.len..self.start + len].fill(0);
        }
        self.len = len;
    }

    fn reserve(&mut self, needed: usize) {
        if needed <= self.capacity() && !self.raw.is_empty() {
            return;
        }
        let mut larger =
            AlignedBuf::with_capacity(needed.max(self.capacity() * 2).next_multiple_of(BLOCK_BYTES));
        larger.raw[larger.start..larger.start + self.len].copy_from_slice(self);
        larger.len = self.len;
        *self = larger;
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.raw[self.start..self.start + self.len]
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.raw[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_aligned_and_keeps_bytes_while_growing() {
        let mut buf = AlignedBuf::default();
        let mut plain = Vec::new();
        for i in 0..20_000u32 {
            buf.extend(&i.to_le_bytes());
            plain.extend_from_slice(&i.to_le_bytes());
            assert_eq!(buf.as_ptr() as usize % BLOCK_BYTES, 0);
        }
        assert_eq!(&buf[..], &plain[..]);
    }

    #[test]
    fn resize_zeroes_what_an_earlier_use_left() {
        let mut buf = AlignedBuf::with_capacity(64);
        buf.extend(&[7; 64]);
        buf.clear();
        buf.extend(&[1, 2]);
        buf.resize(64);
        assert_eq!(&buf[..2], &[1, 2]);
        assert!(buf[2..].iter().all(|b| *b == 0));
    }
}
