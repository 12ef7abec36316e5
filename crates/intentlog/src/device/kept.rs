//! What a log's device must still hold: copies of the superblocks and of the last batch's first block, to be read back and compared.
//!
//! A log that somebody has overwritten or truncated takes further writes as if nothing had happened; only reading shows it.

use std::io;

use parking_lot::Mutex;

use crate::aligned::AlignedBuf;
use crate::limits::{BLOCK_BYTES, RING_OFFSET, SCRATCH_OFFSET};
use crate::replay::ReadAt;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks that are kept: both superblocks, and the first of the last batch.
const SLOTS: usize = 3;

/// Copies of what was written.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Copies>);

#[derive(Debug, Default)]
struct Copies {
    /// Of each slot: offset on the device and the block.
    blocks: [Option<(u64, Vec<u8>)>; SLOTS],
    /// Grows when a write begins and when it ends.
    writes: u64,
    /// Writes under way.
    underway: u64,
}

impl Kept {
    /// A write of these parts begins.
    pub(crate) fn begins(&self) {
        let mut copies = self.0.lock();
        copies.writes += 1;
        copies.underway += 1;
    }

    /// It has ended, well or with an error, after which nothing is compared that it may have touched.
    pub(crate) fn ended(&self, parts: &[(u64, &[u8])], written: bool) {
        let mut copies = self.0.lock();
        copies.writes += 1;
        copies.underway -= 1;
        // A batch that goes over the end of the ring has its first block in the first part.
        let Some((offset, bytes)) = parts.first() else { return };
        let (Some(slot), Some(block)) = (slot(*offset), bytes.get(..BLOCK_BYTES)) else { return };
        let Some(place) = copies.blocks.get_mut(slot) else { return };
        if !written {
            *place = None;
            return;
        }
        let (at, copy) = place.get_or_insert_with(|| (*offset, vec![0; BLOCK_BYTES]));
        *at = *offset;
        copy.copy_from_slice(block);
    }

    /// Reads it back. `Some`: what stands there is something else, in words. Where a write went on meanwhile nothing is said: the
    /// next time will do.
    pub(crate) fn compare(&self, device: &dyn ReadAt) -> Option<String> {
        let mut found = AlignedBuf::zeroed(BLOCK_BYTES);
        for slot in 0..SLOTS {
            let (offset, wanted, writes) = {
                let copies = self.0.lock();
                let Some(Some((offset, wanted))) = copies.blocks.get(slot) else { continue };
                if copies.underway > 0 {
                    return None;
                }
                (*offset, wanted.clone(), copies.writes)
            };
            let read = device.read_at(offset, &mut found);
            let copies = self.0.lock();
            if copies.writes != writes {
                return None;
            }
            drop(copies);
            match read {
                Ok(()) if found.get(..) == Some(wanted.as_slice()) => {}
                Ok(()) => {
                    return Some(format!(
                        "was overwritten: at offset {offset} stands something else than was written"
                    ));
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Some(format!("was truncated: it ends before offset {offset}"));
                }
                Err(error) => return Some(format!("cannot be read back at offset {offset}: {error}")),
            }
        }
        None
    }
}

/// Where a write that begins at this offset is kept, if it is.
fn slot(offset: u64) -> Option<usize> {
    match offset {
        0 => Some(0),
        BLOCK => Some(1),
        SCRATCH_OFFSET..RING_OFFSET => None,
        _ => Some(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::sim::SimDisk;

    fn write(disk: &SimDisk, offset: u64, byte: u8) {
        let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
        block.fill(byte);
        disk.write_durable(&[(offset, &block)]).unwrap();
    }

    #[test]
    fn what_was_written_last_is_compared_and_the_rest_is_not() {
        let disk = SimDisk::new(1 << 20, 1);
        assert_eq!(disk.look(true), Ok(()));
        let ring = RING_OFFSET + 5 * BLOCK;
        for (offset, byte) in [(0, 1), (BLOCK, 2), (SCRATCH_OFFSET, 3), (ring, 4), (ring + BLOCK, 5)] {
            write(&disk, offset, byte);
        }
        assert_eq!(disk.look(true), Ok(()));
        // Scratch, and a batch that is not the last.
        for offset in [SCRATCH_OFFSET, ring] {
            disk.edit(|bytes| bytes[offset as usize] ^= 1);
            assert_eq!(disk.look(true), Ok(()));
        }
        for offset in [0, BLOCK, ring + BLOCK] {
            disk.edit(|bytes| bytes[offset as usize + 4095] ^= 1);
            let told = disk.look(true).unwrap_err();
            assert!(told.contains("overwritten") && told.contains(&format!("offset {offset} ")), "{told}");
            assert_eq!(disk.look(false), Ok(()), "nothing was read");
            disk.edit(|bytes| bytes[offset as usize + 4095] ^= 1);
        }
        assert_eq!(disk.look(true), Ok(()));
    }

    #[test]
    fn while_a_write_is_under_way_nothing_is_said() {
        let disk = SimDisk::new(1 << 20, 1);
        write(&disk, 0, 1);
        disk.edit(|bytes| bytes[0] = 9);
        disk.hold(true);
        std::thread::scope(|s| {
            s.spawn(|| write(&disk, BLOCK, 2));
            disk.await_held();
            assert_eq!(disk.look(true), Ok(()));
            disk.hold(false);
        });
        assert!(disk.look(true).is_err());
    }
}
