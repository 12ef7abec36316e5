//! The pair of superblocks on a device.

use std::io;
use std::path::Path;

use crate::device::Device;
use crate::error::OpenError;
use crate::format::{FORMAT_VERSION, Superblock};
use crate::limits::RING_OFFSET;
use crate::replay::{self, ReadAt};

pub(crate) struct Superblocks {
    pub(crate) last: Superblock,
    /// Slot of `last`, 0 or 1.
    pub(crate) slot: usize,
}

impl Superblocks {
    /// Writes `next` over the older superblock, in the current format and with the next serial.
    pub(crate) fn write(&mut self, device: &dyn Device, next: Superblock) -> io::Result<()> {
        let next = Superblock { version: FORMAT_VERSION, serial: self.last.serial + 1, ..next };
        let slot = 1 - self.slot;
        let block = next.encode();
        device.write_durable(&[((slot * block.len()) as u64, &block)])?;
        self.last = next;
        self.slot = slot;
        Ok(())
    }
}

/// An error if the device is smaller than the log that the superblock describes.
pub(crate) fn check_size(superblock: &Superblock, bytes: u64, path: &Path) -> Result<(), OpenError> {
    if superblock.ring_bytes <= bytes.saturating_sub(RING_OFFSET) {
        return Ok(());
    }
    let made = superblock.ring_bytes + RING_OFFSET;
    let what = format!("it was made with {made} bytes, but only {bytes} are there");
    Err(OpenError::Corrupt { path: path.into(), what })
}

/// The error for a device too small for any log, if it begins with a superblock: the log was cut off.
pub(crate) fn cut_off(device: &dyn ReadAt, bytes: u64, path: &Path) -> Option<OpenError> {
    match replay::read_superblocks(device) {
        Ok(replay::Superblocks::Found(superblock, _)) => check_size(&superblock, bytes, path).err(),
        _ => None,
    }
}
