//! Creates a log beforehand, and resizes one. Both lock the device.
//!
//! A resize writes the snapshot of the clean stop once more, under a new salt, at a place that the old superblock does not
//! use; then both superblocks. So whatever interrupts it, one of the two layouts is valid.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::device::{Device, FileDevice, LogPlace};
use crate::error::OpenError;
use crate::examine::{Random, hex, io_error, is_unused, scan_error, superblocks};
use crate::format::{BatchBuf, BatchPlace, Identity, Superblock};
use crate::limits::{BLOCK_BYTES, DEVICE_BYTES_MAX, DEVICE_BYTES_MIN, RING_OFFSET};
use crate::replay::{self, Scan};
use crate::ring::Ring;
use crate::superblocks::Superblocks;

/// Prepares a file (of `bytes`) or block device: allocates it and writes it once. The first volume that is served with it
/// owns it. One line on what it is and how it will be flushed.
/// Errors: [`OpenError::AlreadyALog`] if it is a log already, [`OpenError::Foreign`] if it holds anything else.
pub fn create(path: &Path, bytes: u64) -> Result<String, OpenError> {
    let (mut device, unused) = FileDevice::open_filled(path, bytes)?;
    if !unused {
        return Err(match superblocks(&device, device.bytes(), path)? {
            replay::Superblocks::Found(superblock, _) => {
                OpenError::AlreadyALog { path: path.into(), volume: hex(&superblock.volume_id) }
            }
            replay::Superblocks::Blank => OpenError::Foreign { path: path.into() },
        });
    }
    device.choose(None).map_err(|source| io_error(path, "self-test", source))?;
    Ok(device.describe())
}

/// Bytes that a log has for records: of one that is there by the size of its file or device, of one that is still to be made if it is made
/// in `size` bytes. What cannot be read counts as not there.
pub fn capacity(place: &LogPlace, size: u64) -> u64 {
    let bytes = |path: &Path| {
        let kind = path.metadata().ok()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return None;
        }
        File::open(path).ok()?.seek(SeekFrom::End(0)).ok().filter(|end| *end > 0)
    };
    let smallest = place.paths().iter().map(|path| bytes(path).unwrap_or(size)).min().unwrap_or(size);
    (smallest - smallest % BLOCK_BYTES as u64).saturating_sub(RING_OFFSET)
}

/// Resizes a log: a file to `bytes`, a block device (`None`) to its own size. The log must have been stopped cleanly.
/// Returns the bytes of the log before and after.
/// Errors: [`OpenError::NotClean`]; [`OpenError::TooSmall`] if what it holds does not fit.
pub fn resize(path: &Path, bytes: Option<u64>) -> Result<(u64, u64), OpenError> {
    let io = |action| move |source| io_error(path, action, source);
    if !path.exists() {
        return Err(io_error(path, "open", io::ErrorKind::NotFound.into()));
    }
    let (mut device, is_new) = FileDevice::open(path, DEVICE_BYTES_MIN)?;
    let held = device.bytes();
    let wanted = bytes.unwrap_or(held).min(DEVICE_BYTES_MAX) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    if wanted < DEVICE_BYTES_MIN {
        return Err(OpenError::TooSmall { path: path.into(), bytes: wanted, min: DEVICE_BYTES_MIN });
    }
    if is_new || is_unused(&device).map_err(|error| scan_error(path, error))? {
        device.set_size(wanted).map_err(io("resize"))?;
        return Ok((held, wanted));
    }
    if wanted > held {
        device.set_size(wanted).map_err(io("resize"))?;
    }
    let before = resize_device(&device, path, wanted)?;
    if wanted < held {
        device.set_size(wanted).map_err(io("resize"))?;
    }
    Ok((before, wanted))
}

/// As [`resize`], on a device that is large enough for both sizes; the bytes of the log before.
pub fn resize_device(device: &dyn Device, path: &Path, bytes: u64) -> Result<u64, OpenError> {
    let found = superblocks(device, device.bytes(), path)?;
    let replay::Superblocks::Found(old, slot) = found else {
        return Err(OpenError::Foreign { path: path.into() });
    };
    let Some((_, end_seq)) = old.clean_end else { return Err(OpenError::NotClean { path: path.into() }) };
    let scan = replay::scan(device, &old).map_err(|error| scan_error(path, error))?;
    let mut buf = BatchBuf::default();
    let fits = scan.records.iter().all(|record| buf.push(&[record]));
    let ring = Ring { bytes: bytes - RING_OFFSET };
    let free = free_place(&scan, Ring { bytes: old.ring_bytes }, ring, buf.padded_bytes());
    // The next start writes its own snapshot beside this one.
    let room = fits && 2 * buf.padded_bytes() <= ring.bytes;
    let Some(offset) = free.filter(|_| room) else {
        let min = RING_OFFSET + 2 * buf.padded_bytes() + (scan.end - scan.tail);
        return Err(OpenError::TooSmall { path: path.into(), bytes, min });
    };
    let io = |action| move |source| io_error(path, action, source);
    let identity =
        Identity { salt: Random::system().draw().map_err(io("draw an identity for"))?, ..old.identity };
    let (length, records) = (buf.padded_bytes(), buf.records());
    if records > 0 {
        let place = BatchPlace {
            offset,
            generation: 0,
            first_seq: end_seq,
            checkpoint: old.checkpoint,
            restart: false,
        };
        let batch = buf.seal(&place, &identity);
        device.write_durable(&[(RING_OFFSET + offset, batch)]).map_err(io("write"))?;
    }
    let next = Superblock {
        identity,
        ring_bytes: ring.bytes,
        tail: offset,
        tail_seq: end_seq,
        durable_end: (0, 0),
        clean_end: Some((offset + length, end_seq + records)),
        ..old
    };
    let mut superblocks = Superblocks { last: old, slot };
    for _ in 0..2 {
        superblocks.write(device, next).map_err(io("write a superblock of"))?;
    }
    Ok(RING_OFFSET + old.ring_bytes)
}

/// An offset in the `new` ring for `length` bytes that do not overlap the contents of the `old` one. Pure.
fn free_place(scan: &Scan, old: Ring, new: Ring, length: u64) -> Option<u64> {
    let [(first, first_len), (second, second_len)] = old.extents(scan.tail, scan.end - scan.tail);
    let held = [(first - RING_OFFSET, first_len), (second.saturating_sub(RING_OFFSET), second_len)];
    let apart = |at: u64| {
        at + length <= new.bytes && held.iter().all(|(from, len)| at + length <= *from || from + len <= at)
    };
    let after = held.iter().map(|(from, len)| from + len);
    std::iter::once(0).chain(after).find(|at| apart(*at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    #[test]
    fn what_is_written_touches_nothing_that_counts() {
        let scan = |tail: u64, end: u64| Scan { tail: tail * BLOCK, end: end * BLOCK, ..Scan::default() };
        let ring = |blocks: u64| Ring { bytes: blocks * BLOCK };
        let place = |s: Scan, old, new, length: u64| free_place(&s, ring(old), ring(new), length * BLOCK);
        assert_eq!(place(scan(5, 7), 10, 20, 2), Some(0));
        assert_eq!(place(scan(0, 2), 10, 20, 2), Some(2 * BLOCK));
        // Round the end of the old ring: blocks 9 and 0.
        assert_eq!(place(scan(9, 11), 10, 20, 2), Some(10 * BLOCK));
        assert_eq!(place(scan(9, 11), 10, 10, 2), Some(BLOCK));
        assert_eq!(place(scan(1, 3), 10, 4, 2), None);
        assert_eq!(place(scan(3, 3), 10, 4, 0), Some(0));
    }
}
