//! A quick keyed hash for the node cache's tables: a multiplication and a fold for each eight bytes.
//!
//! Keys are kernel handles that this process was given by the kernel or found signed, and inode numbers: what a client can
//! choose of them, it chooses through the filesystem, so the secret key need not withstand more than that.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes hashers with one random key.
#[derive(Clone)]
pub(crate) struct Quick(u64);

impl Quick {
    pub(crate) fn new() -> Quick {
        Quick(RandomState::new().hash_one(0x6c61_6e64) | 1)
    }
}

impl BuildHasher for Quick {
    type Hasher = QuickHasher;

    fn build_hasher(&self) -> QuickHasher {
        QuickHasher { key: self.0, state: self.0.rotate_left(32) }
    }
}

/// See [`Quick`].
pub(crate) struct QuickHasher {
    key: u64,
    state: u64,
}

impl Hasher for QuickHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            if let Some(start) = word.get_mut(..chunk.len()) {
                start.copy_from_slice(chunk);
            }
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(self.key ^ 0x9e37_79b9_7f4a_7c15);
        self.state = (product as u64) ^ (product >> 64) as u64 ^ self.key;
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_i32(&mut self, n: i32) {
        self.write_u64(u64::from(n.cast_unsigned()));
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn finish(&self) -> u64 {
        // Tables use the lowest and the highest bits.
        let product = u128::from(self.state) * 0xff51_afd7_ed55_8ccd;
        (product as u64) ^ (product >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn inode_numbers_in_a_row_spread_over_all_bits() {
        let quick = Quick::new();
        let hashes: HashSet<u64> = (0..100_000u64).map(|n| quick.hash_one(n)).collect();
        assert_eq!(hashes.len(), 100_000);
        for shift in [0, 7, 28, 57] {
            let mut counts = [0u32; 16];
            for h in &hashes {
                counts[(h >> shift) as usize % 16] += 1;
            }
            assert!(counts.iter().all(|n| (5_500..7_000).contains(n)), "{shift}: {counts:?}");
        }
    }

    #[test]
    fn bytes_count_with_their_length_and_place() {
        let quick = Quick::new();
        let keys: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"abcdefgh", b"abcdefgh\0", b"habcdefg"];
        let hashes: HashSet<u64> = keys.iter().map(|k| quick.hash_one(k)).collect();
        assert_eq!(hashes.len(), keys.len());
        assert_ne!(quick.hash_one(1u64), Quick::new().hash_one(1u64), "another key");
    }
}
