//! Reads a log without changing it: its superblock, its batches, and whether all of it is valid.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::device::Report;
use crate::error::OpenError;
use crate::examine::{damaged_superblock, io_error, scan_error, superblocks};
use crate::format::{BatchHeader, Superblock};
use crate::limits::{DEVICE_BYTES_MIN, RING_OFFSET};
use crate::replay::{self, ReadAt, Scan, Superblocks};
use crate::ring::Ring;
use crate::superblocks::{check_size, cut_off};

/// A log that is open for reading. Until it is dropped no server can start on the log.
#[derive(Debug)]
pub struct Inspected {
    file: File,
    path: PathBuf,
    bytes: u64,
    superblock: Option<Superblock>,
    damaged_superblock: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Offset on the device, in bytes.
    pub offset: u64,
    /// Bytes on the device, with header and padding.
    pub bytes: u64,
    pub first_seq: u64,
    pub last_seq: u64,
    /// The last checkpoint that was complete when it was written.
    pub checkpoint: u64,
    /// Replay starts here: nothing before it is replayed.
    pub restart: bool,
}

impl Batch {
    pub(crate) fn of(header: &BatchHeader, ring: Ring) -> Batch {
        Batch {
            offset: RING_OFFSET + header.offset % ring.bytes,
            bytes: header.padded_bytes(),
            first_seq: header.first_seq,
            last_seq: header.last_seq,
            checkpoint: header.checkpoint,
            restart: header.restart,
        }
    }
}

impl ReadAt for Inspected {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}

/// Opens a file or block device for reading; its size in bytes.
pub(crate) fn open_to_read(path: &Path) -> Result<(File, u64), OpenError> {
    let file = File::open(path).map_err(|e| io_error(path, "open", e))?;
    let kind = file.metadata().map_err(|e| io_error(path, "examine", e))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(OpenError::Kind { path: path.into() });
    }
    let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0));
    let bytes = size.map_err(|e| io_error(path, "size", e.into()))?;
    Ok((file, bytes))
}

impl Inspected {
    /// The device that the log is on, in one line.
    pub fn device(&self) -> String {
        Report::of(&self.path).to_string()
    }

    /// Errors: [`OpenError`]: a server runs on it; it is no log; neither superblock is whole.
    pub fn open(path: &Path) -> Result<Inspected, OpenError> {
        let (file, bytes) = open_to_read(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).map_err(|error| match error {
            Errno::WOULDBLOCK => OpenError::InUse { path: path.into(), holder: crate::holder::of(&file) },
            other => io_error(path, "lock", other.into()),
        })?;
        let mut log =
            Inspected { file, path: path.into(), bytes, superblock: None, damaged_superblock: None };
        if bytes < DEVICE_BYTES_MIN {
            let small = OpenError::TooSmall { path: path.into(), bytes, min: DEVICE_BYTES_MIN };
            return Err(cut_off(&log, bytes, path).unwrap_or(small));
        }
        if let Superblocks::Found(superblock, _) = superblocks(&log, bytes, path)? {
            check_size(&superblock, bytes, path)?;
            log.superblock = Some(superblock);
        }
        log.damaged_superblock =
            replay::damaged_superblock(&log).map_err(|source| io_error(path, "read", source))?;
        Ok(log)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// `None` on a device that was never used.
    pub fn superblock(&self) -> Option<&Superblock> {
        self.superblock.as_ref()
    }

    /// One line on a damaged superblock beside the valid one.
    pub fn warning(&self) -> Option<String> {
        self.damaged_superblock.map(|offset| damaged_superblock(&self.path, offset))
    }

    /// Reads everything that would be replayed, batch by batch, and returns where it ends.
    /// Errors: Acknowledged records are damaged; the error says where.
    pub fn walk(&self, mut each: impl FnMut(&Batch, Vec<Vec<u8>>)) -> Result<Scan, OpenError> {
        let Some(superblock) = &self.superblock else { return Ok(Scan::default()) };
        let ring = Ring { bytes: superblock.ring_bytes };
        let told = |header: &BatchHeader, records: Vec<Vec<u8>>| {
            each(&Batch::of(header, ring), records);
        };
        replay::walk(self, superblock, told).map_err(|error| scan_error(&self.path, error))
    }
}
