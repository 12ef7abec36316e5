//! Logs seen from outside: what one holds, in terms of the volume's records. Nothing is changed.

use std::path::Path;

pub use landfast_intentlog::OpenError;
use landfast_intentlog::hex;
pub use landfast_intentlog::inspect::{Batch, Inspected};
pub use landfast_intentlog::shape::{create, resize};
use serde::Serialize;

use crate::record::Record;

/// What a file or device holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Contents {
    /// Bytes of the file or device.
    pub bytes: u64,
    /// What the system says of the device that it is on.
    pub device: String,
    /// The log; `None` if it was never used.
    pub log: Option<Held>,
}

/// What a log says of itself, and what would be replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Version of the format.
    pub version: u32,
    /// The log's identity, hexadecimal.
    pub log_id: String,
    /// The volume that it belongs to, hexadecimal.
    pub volume_id: String,
    /// It was shut down in order.
    pub clean: bool,
    /// Number of the last completed checkpoint.
    pub checkpoint: u64,
    /// Records to replay.
    pub records: u64,
    /// Batches that they are in.
    pub batches: u64,
    /// Bytes of the ring that they take.
    pub used: u64,
    /// Bytes of the ring.
    pub ring: u64,
}

/// Opens a log for reading.
///
/// # Errors
/// [`OpenError`].
pub fn open(path: &Path) -> Result<Inspected, OpenError> {
    Inspected::open(path)
}

/// What it holds.
///
/// # Errors
/// It is damaged.
pub fn contents(log: &Inspected) -> Result<Contents, OpenError> {
    summary(log, |_, _| ())
}

/// The same, with each record read.
///
/// # Errors
/// It is damaged, or a record in it is none.
pub fn check(log: &Inspected) -> Result<Contents, CheckError> {
    let mut wrong = None;
    let found = summary(log, |batch, records| {
        for (seq, bytes) in (batch.first_seq..).zip(records) {
            if let Err(source) = Record::decode(bytes) {
                wrong.get_or_insert(CheckError::Record { seq, offset: batch.offset, source });
            }
        }
    })?;
    wrong.map_or(Ok(found), Err)
}

/// Why a log is not whole.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// As a log.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// A batch is whole, but what is in it is not of this program.
    #[error("record {seq}, in the batch at offset {offset}: {source}")]
    Record {
        /// Its sequence number.
        seq: u64,
        /// Of the batch, on the device.
        offset: u64,
        /// Why.
        source: crate::record::RecordError,
    },
}

fn summary(log: &Inspected, mut each: impl FnMut(&Batch, &[Vec<u8>])) -> Result<Contents, OpenError> {
    let Some(superblock) = log.superblock() else {
        return Ok(Contents { bytes: log.bytes(), device: log.device(), log: None });
    };
    let (mut records, mut batches) = (0, 0);
    let scan = log.walk(|batch, all| {
        if batch.restart {
            (records, batches) = (0, 0);
        }
        records += all.len() as u64;
        batches += 1;
        each(batch, &all);
    })?;
    let held = Held {
        version: superblock.version,
        log_id: hex(&superblock.identity.log_id),
        volume_id: hex(&superblock.volume_id),
        clean: superblock.clean_end.is_some(),
        checkpoint: scan.checkpoint,
        records,
        batches,
        used: scan.end - scan.tail,
        ring: superblock.ring_bytes,
    };
    Ok(Contents { bytes: log.bytes(), device: log.device(), log: Some(held) })
}
