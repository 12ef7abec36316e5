//! The calls that the probe makes, in any version.

use bytes::Bytes;
use landfast_nfs::v4::Stateid;
use landfast_rpc::message::Outcome;
use landfast_verify::blocking::nfs::{Fh, Nfs};
use landfast_verify::error::Result;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Operation {
    /// NULL: no work, only the round trip.
    Null,
    Getattr,
    /// ACCESS of a directory.
    Access,
    /// CREATE of a file; in version 4 an OPEN that creates.
    Create,
    /// A WRITE that need not be durable when it is answered.
    WriteUnstable,
    Commit,
    /// A WRITE that is durable when it is answered.
    WriteFileSync,
    Setattr,
    /// Ends an open. Version 3 has none.
    Close,
    Remove,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Operation::Null => "NULL",
            Operation::Getattr => "GETATTR",
            Operation::Access => "ACCESS",
            Operation::Create => "CREATE",
            Operation::WriteUnstable => "WRITE UNSTABLE",
            Operation::Commit => "COMMIT",
            Operation::WriteFileSync => "WRITE FILE_SYNC",
            Operation::Setattr => "SETATTR",
            Operation::Close => "CLOSE",
            Operation::Remove => "REMOVE",
        }
    }
}

#[derive(Debug, Clone)]
pub struct File {
    pub name: String,
    pub fh: Fh,
    /// The open that created it (version 4).
    pub open: Stateid,
    /// The open must be confirmed (version 4.0).
    pub confirm: bool,
    /// The lane that has it open.
    pub lane: usize,
}

#[derive(Debug, Clone)]
pub enum Ask {
    Null,
    Getattr,
    Access,
    /// Creates a file of this name in the probe's directory.
    Create(String),
    Confirm(File),
    Write {
        file: File,
        offset: u64,
        data: Bytes,
        /// FILE_SYNC instead of UNSTABLE.
        stable: bool,
    },
    Commit(File),
    Setattr(File, u32),
    Close(File),
    Remove(String),
    /// Closes the file if it is open, and removes it.
    Drop(File),
}

#[derive(Debug, Clone)]
pub enum Answer {
    Done,
    Made(File),
    Written {
        count: u32,
        /// They are durable already.
        stable: bool,
    },
}

/// A client with several calls in flight on one connection, at most one per lane. A lane is a slot, an open owner, or
/// in version 3 a mere number.
pub trait Calls {
    /// The same client for one call at a time. No other call may be in flight.
    fn nfs(&mut self) -> &mut dyn Nfs;
    fn set_dir(&mut self, dir: Fh);
    fn lanes(&self) -> usize;
    fn has_opens(&self) -> bool;
    /// A lane's first open must be confirmed and kept (version 4.0).
    fn confirms(&self) -> bool;
    fn write_bytes_max(&self) -> usize;
    /// Sends a call in a lane with none in flight. Returns its transaction id. Fails if the connection is lost.
    fn submit(&mut self, lane: usize, ask: &Ask) -> Result<u32>;
    /// Waits for the next reply to any call. Fails if none arrives.
    fn next_reply(&mut self) -> Result<(u32, Outcome)>;
    /// Decodes a reply. Fails if the server refused the call.
    fn answer(&mut self, lane: usize, ask: &Ask, outcome: Outcome) -> Result<Answer>;
}
