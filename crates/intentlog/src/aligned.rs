//! A growable byte buffer whose first byte lies on a block boundary, as O_DIRECT requires.
//!
//! It allocates one block more than it needs and starts at the first aligned byte. So it needs no `unsafe`; growing copies. Room that is
//! not used yet is not written to either, so it costs no memory.

use crate::limits::BLOCK_BYTES;

/// Bytes that start at an address divisible by [`BLOCK_BYTES`].
#[derive(Debug, Default)]
pub struct AlignedBuf {
    /// `start` bytes without a meaning, then the contents.
    raw: Vec<u8>,
    start: usize,
}

impl AlignedBuf {
    /// An empty buffer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut raw = Vec::with_capacity(capacity + BLOCK_BYTES);
        let misfit = raw.as_ptr() as usize % BLOCK_BYTES;
        let start = if misfit == 0 { 0 } else { BLOCK_BYTES - misfit };
        raw.resize(start, 0);
        AlignedBuf { raw, start }
    }

    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::with_capacity(len);
        buf.resize(len);
        buf
    }

    /// Bytes that fit wherever the allocation begins.
    pub fn capacity(&self) -> usize {
        self.raw.capacity().saturating_sub(BLOCK_BYTES)
    }

    /// Forgets the contents, keeps the memory.
    pub fn clear(&mut self) {
        self.raw.truncate(self.start);
    }

    pub fn extend(&mut self, bytes: &[u8]) {
        self.reserve(self.len() + bytes.len());
        self.raw.extend_from_slice(bytes);
    }

    /// Appends zeroes up to `len` bytes in all; shortens to `len` if there are more.
    pub fn resize(&mut self, len: usize) {
        self.reserve(len);
        self.raw.resize(self.start + len, 0);
    }

    fn reserve(&mut self, needed: usize) {
        if needed <= self.capacity() {
            return;
        }
        let mut larger =
            AlignedBuf::with_capacity(needed.max(self.capacity() * 2).next_multiple_of(BLOCK_BYTES));
        larger.raw.extend_from_slice(self);
        *self = larger;
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.raw[self.start..]
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.raw[self.start..]
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
    fn doubling_gives_whole_powers_of_two() {
        // Else the buffer of a full batch would be a little larger than what is kept of buffers.
        let mut buf = AlignedBuf::with_capacity(64 << 10);
        while buf.len() < 9 << 20 {
            buf.extend(&[1; 4200]);
        }
        assert_eq!(buf.capacity(), 16 << 20);
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
