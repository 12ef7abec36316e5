//! Arithmetic of the ring. Pure.
//!
//! A *position* counts all bytes ever written, so it only grows. It determines the offset in the ring and the
//! generation. Invariants: `tail <= head <= tail + bytes`; all are multiples of
//! [`BLOCK_BYTES`](crate::limits::BLOCK_BYTES).

use crate::limits::RING_OFFSET;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    pub bytes: u64,
}

impl Ring {
    /// Offset in the ring of `position`.
    pub fn offset(&self, position: u64) -> u64 {
        position % self.bytes
    }

    /// How often the ring was filled before `position`.
    pub fn generation(&self, position: u64) -> u64 {
        position / self.bytes
    }

    /// The one or two extents on the device of `length` bytes at `position`: `(device offset, length)`.
    /// The second has length 0 unless the bytes wrap. `length` must not exceed the ring.
    pub fn extents(&self, position: u64, length: u64) -> [(u64, u64); 2] {
        let offset = self.offset(position);
        let first = length.min(self.bytes - offset);
        [(RING_OFFSET + offset, first), (RING_OFFSET, length - first)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn extents_cover_each_byte_once(blocks in 1u64..20, position in 0u64..200, length in 0u64..20) {
            let ring = Ring { bytes: blocks * 4096 };
            let (position, length) = (position * 4096, length.min(blocks) * 4096);
            let mut covered = Vec::new();
            for (offset, len) in ring.extents(position, length) {
                for block in 0..len / 4096 {
                    covered.push(offset + block * 4096);
                }
            }
            let expected: Vec<u64> =
                (0..length / 4096).map(|i| RING_OFFSET + (position + i * 4096) % ring.bytes).collect();
            prop_assert_eq!(covered, expected);
            prop_assert_eq!(ring.generation(position) * ring.bytes + ring.offset(position), position);
        }
    }
}
