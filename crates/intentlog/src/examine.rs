//! Determines what a device holds before it is used: nothing, a log of this volume, or something else.

use std::path::Path;

use crate::aligned::AlignedBuf;
use crate::device::Device;
use crate::error::OpenError;
use crate::format::{BatchHeader, FORMAT_VERSION, Identity, Superblock};
use crate::limits::{BLANK_CHECK_BYTES, BLOCK_BYTES, RING_OFFSET, STREAM_BYTES};
use crate::replay::{self, ReadAt, ScanError};
use crate::superblocks::{Superblocks, check_size};

/// Reads the superblocks of a log of this volume; `None` on a device without contents.
pub(crate) fn check(
    device: &dyn Device,
    path: &Path,
    volume_id: &[u8; 16],
) -> Result<Option<Superblocks>, OpenError> {
    let (last, slot) = match superblocks(device, device.bytes(), path) {
        Ok(replay::Superblocks::Found(last, slot)) => (last, slot),
        other => {
            return match is_unused(device).map_err(|error| scan_error(path, error))? {
                true => Ok(None),
                false => Err(other.err().unwrap_or(OpenError::Foreign { path: path.into() })),
            };
        }
    };
    if last.volume_id != *volume_id {
        let (found, wanted) = (hex(&last.volume_id), hex(volume_id));
        return Err(OpenError::OtherVolume { path: path.into(), found, wanted });
    }
    check_size(&last, device.bytes(), path)?;
    Ok(Some(Superblocks { last, slot }))
}

/// One line on a damaged superblock beside a valid one.
pub fn damaged_superblock(path: &Path, offset: u64) -> String {
    format!(
        "log {}: the superblock at offset {offset} is torn or damaged; the other one counts",
        path.display()
    )
}

/// The superblocks of a device of this size. A log that has lost both is damaged: the device must not count as unused.
pub(crate) fn superblocks(
    device: &dyn ReadAt,
    bytes: u64,
    path: &Path,
) -> Result<replay::Superblocks, OpenError> {
    let read = replay::read_superblocks(device);
    if matches!(read, Ok(replay::Superblocks::Blank) | Err(ScanError::Foreign))
        && has_batches(device, bytes).map_err(|source| io_error(path, "read", source))?
    {
        let what = format!(
            "both superblocks (offsets 0 and {BLOCK_BYTES}) are erased or overwritten, but batches of a log stand behind them"
        );
        return Err(OpenError::Corrupt { path: path.into(), what });
    }
    read.map_err(|error| scan_error(path, error))
}

/// Whether a block in the first part of the ring begins as a batch does.
fn has_batches(device: &dyn ReadAt, bytes: u64) -> std::io::Result<bool> {
    let mut chunk = AlignedBuf::zeroed(STREAM_BYTES);
    let end = (bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64).min(RING_OFFSET + BLANK_CHECK_BYTES);
    for start in (RING_OFFSET..end).step_by(STREAM_BYTES) {
        let length = (end - start).min(STREAM_BYTES as u64) as usize;
        device.read_at(start, &mut chunk[..length])?;
        if chunk[..length].chunks(BLOCK_BYTES).any(BatchHeader::resembles) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Both ends are zero: no superblock, no partition table, no filesystem. The first block may also hold a torn first
/// superblock: a power cut during the creation of a log, which has never held anything.
pub(crate) fn is_unused(device: &dyn Device) -> Result<bool, ScanError> {
    let mut first = AlignedBuf::zeroed(BLOCK_BYTES);
    device.read_at(0, &mut first)?;
    if !Superblock::may_be_torn_creation(&first) || Superblock::decode(&first).is_ok() {
        return Ok(false);
    }
    let bytes = device.bytes();
    let mut chunk = AlignedBuf::zeroed(bytes.min(STREAM_BYTES as u64) as usize);
    let zeros = [0; BLOCK_BYTES];
    let front = (0..bytes.min(BLANK_CHECK_BYTES)).step_by(STREAM_BYTES);
    let back = bytes.saturating_sub(STREAM_BYTES as u64);
    for start in front.chain([back]) {
        let length = (bytes - start).min(STREAM_BYTES as u64) as usize;
        device.read_at(start, &mut chunk[..length])?;
        let of_first = (BLOCK_BYTES as u64).saturating_sub(start).min(length as u64) as usize;
        chunk[..of_first].fill(0);
        // As slices: quick also in programs that were not optimised, whose tests make many logs.
        if chunk[..length].chunks(BLOCK_BYTES).any(|block| *block != zeros[..block.len()]) {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) fn create(
    device: &dyn Device,
    bytes: u64,
    volume_id: [u8; 16],
    random: &mut Random,
) -> std::io::Result<Superblocks> {
    let mut log_id = [0; 16];
    let (front, back) = log_id.split_at_mut(8);
    front.copy_from_slice(&random.draw()?.to_le_bytes());
    back.copy_from_slice(&random.draw()?.to_le_bytes());
    let last = Superblock {
        version: FORMAT_VERSION,
        identity: Identity { log_id, salt: random.draw()? },
        volume_id,
        serial: 0,
        ring_bytes: bytes - RING_OFFSET,
        tail: 0,
        tail_seq: 1,
        checkpoint: 0,
        durable_end: (0, 0),
        clean_end: None,
    };
    let mut superblocks = Superblocks { last, slot: 1 };
    for _ in 0..2 {
        superblocks.write(device, last)?;
    }
    Ok(superblocks)
}

/// A source of identities and salts: the system, or a seed.
pub(crate) struct Random(Option<u64>);

impl Random {
    pub(crate) fn new(seed: Option<u64>) -> Random {
        Random(seed)
    }

    pub(crate) fn system() -> Random {
        Random(None)
    }

    pub(crate) fn draw(&mut self) -> std::io::Result<u64> {
        let Some(state) = &mut self.0 else { return getrandom::u64().map_err(std::io::Error::other) };
        // SplitMix64: neighbouring seeds give unlike numbers.
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Ok(mixed ^ (mixed >> 31))
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn io_error(path: &Path, action: &'static str, source: std::io::Error) -> OpenError {
    OpenError::Io { path: path.into(), action, source }
}

pub(crate) fn scan_error(path: &Path, error: ScanError) -> OpenError {
    let path = path.to_owned();
    match error {
        ScanError::Io(source) => OpenError::Io { path, action: "read", source },
        ScanError::Foreign => OpenError::Foreign { path },
        ScanError::Version(found) => OpenError::Version { path, found, known: FORMAT_VERSION },
        ScanError::Corrupt(what) => OpenError::Corrupt { path, what },
    }
}
