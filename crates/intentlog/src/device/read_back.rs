//! Copies of blocks that a log's device must still hold, to read them back and compare: both superblocks, and the first block of
//! the last batch and of the oldest batch since a superblock was written.
//!
//! A log that was overwritten or truncated takes further writes without an error; only reading shows the damage. The oldest
//! batch is among the copies because further batches do not write over it: if the whole ring was overwritten, it shows.

use std::io;

use parking_lot::Mutex;

use crate::aligned::AlignedBuf;
use crate::limits::{BLOCK_BYTES, RING_OFFSET, SCRATCH_OFFSET};
use crate::replay::ReadAt;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Both superblocks, and the first block of the last batch and of the oldest.
const SLOTS: usize = 4;
const LAST: usize = 2;
const OLDEST: usize = 3;

#[derive(Debug, Default)]
pub(crate) struct ReadBack(Mutex<Copies>);

type Copies = [SlotCopy; SLOTS];

/// Each slot counts its own writes: the superblocks can be compared even if the ring is written without a pause.
#[derive(Debug, Default)]
struct SlotCopy {
    /// Offset on the device, and the block.
    block: Option<(u64, Vec<u8>)>,
    /// Counts the beginnings and ends of writes.
    writes: u64,
    /// Writes under way.
    underway: u64,
}

impl SlotCopy {
    fn keep(&mut self, offset: u64, block: &[u8]) {
        let (at, kept) = self.block.get_or_insert_with(|| (offset, vec![0; BLOCK_BYTES]));
        *at = offset;
        kept.copy_from_slice(block);
    }

    /// A comparison that is under way ignores it.
    fn forget(&mut self) {
        self.block = None;
        self.writes += 1;
    }
}

impl ReadBack {
    /// A write of these parts begins.
    pub(crate) fn begins(&self, parts: &[(u64, &[u8])]) {
        let Some(slot) = first_slot(parts) else { return };
        let mut copies = self.0.lock();
        if let Some(copy) = copies.get_mut(slot) {
            copy.writes += 1;
            copy.underway += 1;
        }
        if let Some(oldest) = copies.get_mut(OLDEST)
            && oldest.block.as_ref().is_some_and(|(at, _)| parts.iter().any(|part| covers(part, *at)))
        {
            oldest.forget();
        }
    }

    /// The write has ended. After an error nothing is compared that it may have touched.
    pub(crate) fn ended(&self, parts: &[(u64, &[u8])], written: bool) {
        // The first block of a batch that wraps around the ring is in the first part.
        let (Some(slot), Some((offset, bytes))) = (first_slot(parts), parts.first()) else { return };
        let mut copies = self.0.lock();
        let Some(copy) = copies.get_mut(slot) else { return };
        copy.writes += 1;
        copy.underway -= 1;
        let Some(block) = bytes.get(..BLOCK_BYTES).filter(|_| written) else {
            copy.block = None;
            return;
        };
        copy.keep(*offset, block);
        let Some(oldest) = copies.get_mut(OLDEST) else { return };
        match slot {
            LAST if oldest.block.is_none() => oldest.keep(*offset, block),
            LAST => {}
            // After a superblock was written, earlier batches may be free.
            _ => oldest.forget(),
        }
    }

    /// Reads the blocks back; `Some` says what differs. Skips slots that are being written: the next call checks them.
    pub(crate) fn compare(&self, device: &dyn ReadAt) -> Option<String> {
        let mut found = AlignedBuf::zeroed(BLOCK_BYTES);
        for slot in 0..SLOTS {
            let (offset, wanted, writes) = {
                let copies = self.0.lock();
                let Some(copy) = copies.get(slot).filter(|copy| copy.underway == 0) else { continue };
                let Some((offset, wanted)) = &copy.block else { continue };
                (*offset, wanted.clone(), copy.writes)
            };
            let read = device.read_at(offset, &mut found);
            if self.0.lock().get(slot).is_none_or(|copy| copy.writes != writes) {
                continue;
            }
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

/// Whether this part of a write covers the block at `at`.
fn covers((offset, bytes): &(u64, &[u8]), at: u64) -> bool {
    (*offset..offset.saturating_add(bytes.len() as u64)).contains(&at)
}

fn first_slot(parts: &[(u64, &[u8])]) -> Option<usize> {
    parts.first().and_then(|(offset, _)| slot(*offset))
}

/// The slot for a write at this offset; `None`: it is not kept.
fn slot(offset: u64) -> Option<usize> {
    match offset {
        0 => Some(0),
        BLOCK => Some(1),
        SCRATCH_OFFSET..RING_OFFSET => None,
        _ => Some(LAST),
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
    fn the_first_and_the_last_that_was_written_are_compared_and_the_rest_is_not() {
        let disk = SimDisk::new(1 << 20, 1);
        assert_eq!(disk.look(true), Ok(()));
        let ring = RING_OFFSET + 5 * BLOCK;
        write(&disk, ring - BLOCK, 6);
        for (offset, byte) in [(0, 1), (BLOCK, 2), (SCRATCH_OFFSET, 3)] {
            write(&disk, offset, byte);
        }
        for byte in 0..3 {
            write(&disk, ring + u64::from(byte) * BLOCK, byte);
        }
        assert_eq!(disk.look(true), Ok(()));
        // A batch from before the superblocks, scratch, and a batch that is neither the first since then nor the last.
        for offset in [ring - BLOCK, SCRATCH_OFFSET, ring + BLOCK] {
            disk.edit(|bytes| bytes[offset as usize] ^= 1);
            assert_eq!(disk.look(true), Ok(()));
        }
        for offset in [0, BLOCK, ring, ring + 2 * BLOCK] {
            disk.edit(|bytes| bytes[offset as usize + 4095] ^= 1);
            let told = disk.look(true).unwrap_err();
            assert!(told.contains("overwritten") && told.contains(&format!("offset {offset} ")), "{told}");
            assert_eq!(disk.look(false), Ok(()), "nothing was read");
            disk.edit(|bytes| bytes[offset as usize + 4095] ^= 1);
        }
        assert_eq!(disk.look(true), Ok(()));
    }

    #[test]
    fn the_log_may_write_over_its_oldest_batch() {
        let disk = SimDisk::new(1 << 20, 1);
        let ring = RING_OFFSET + 5 * BLOCK;
        write(&disk, 0, 1);
        for byte in 2..5 {
            write(&disk, ring, byte);
            write(&disk, ring + BLOCK, byte);
            assert_eq!(disk.look(true), Ok(()));
        }
        // The oldest is the one at `ring` now, which was the last to be written over.
        disk.edit(|bytes| bytes[ring as usize] ^= 1);
        assert!(disk.look(true).is_err());
        // A batch of two blocks over the one whose first block is kept.
        let disk = SimDisk::new(1 << 20, 1);
        write(&disk, 0, 1);
        write(&disk, ring + BLOCK, 2);
        let mut blocks = AlignedBuf::zeroed(2 * BLOCK_BYTES);
        blocks.fill(3);
        disk.write_durable(&[(ring, &blocks)]).unwrap();
        assert_eq!(disk.look(true), Ok(()));
    }

    #[test]
    fn of_a_slot_that_is_being_written_nothing_is_said() {
        let disk = SimDisk::new(1 << 20, 1);
        write(&disk, 0, 1);
        disk.edit(|bytes| bytes[0] = 9);
        let look_during_write = |offset| {
            disk.hold(true);
            std::thread::scope(|s| {
                s.spawn(|| write(&disk, offset, 2));
                disk.await_held();
                let told = disk.look(true);
                disk.hold(false);
                told
            })
        };
        assert!(look_during_write(RING_OFFSET).is_err(), "the ring is written, the superblock is looked at");
        assert_eq!(look_during_write(0), Ok(()));
        assert_eq!(disk.look(true), Ok(()), "it was written anew");
    }
}
