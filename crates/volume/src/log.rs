//! Inspects a log from outside, in terms of the volume's records. Changes nothing.

use std::path::Path;

pub use landfast_intentlog::OpenError;
use landfast_intentlog::hex;
pub use landfast_intentlog::inspect::{Batch, Inspected};
pub use landfast_intentlog::shape::{capacity, create, resize};
use serde::Serialize;

use crate::record::Record;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Contents {
    pub bytes: u64,
    /// What the system says of its device.
    pub device: String,
    /// `None` if it was never used as a log.
    pub log: Option<LogSummary>,
}

/// The state of a log, and what would be replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogSummary {
    pub version: u32,
    /// The log's identity, hexadecimal.
    pub log_id: String,
    /// The volume to which it belongs, hexadecimal.
    pub volume_id: String,
    pub clean: bool,
    pub checkpoint: u64,
    pub records: u64,
    /// Batches that hold those records.
    pub batches: u64,
    /// Bytes of the ring that those records take.
    pub used: u64,
    /// Size of the ring, bytes.
    pub ring: u64,
}

pub fn open(path: &Path) -> Result<Inspected, OpenError> {
    Inspected::open(path)
}

/// Summarises the log. Fails if it is damaged.
pub fn contents(log: &Inspected) -> Result<Contents, OpenError> {
    summary(log, |_, _| ())
}

/// As [`contents`], and decodes each record. Fails if the log is damaged or a record is malformed.
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

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Log(#[from] OpenError),
    /// The batch is whole, but holds something that is not a record of this program.
    #[error("record {seq}, in the batch at offset {offset}: {source}")]
    Record {
        seq: u64,
        /// Of the batch, on the device.
        offset: u64,
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
    let held = LogSummary {
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
