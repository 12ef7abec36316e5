//! What is asked of a server, in whatever version.

use bytes::Bytes;
use landfast_nfs::v4::Stateid;
use landfast_rpc::message::Outcome;
use landfast_verify::blocking::nfs::{Fh, Nfs};
use landfast_verify::error::Result;
use serde::Serialize;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Operation {
    /// Nothing: there and back.
    Null,
    /// Attributes of a directory.
    Getattr,
    /// What is allowed in it.
    Access,
    /// A new file; in version 4 an OPEN.
    Create,
    /// A WRITE that need not be stable when it is answered.
    WriteUnstable,
    /// What makes it so.
    Commit,
    /// A WRITE that is stable when it is answered.
    WriteFileSync,
    /// A new mode.
    Setattr,
    /// The end of an open; none in version 3.
    Close,
    /// One file less.
    Remove,
}

impl Operation {
    /// Its name in tables.
    #[must_use]
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

/// A file of the probe's.
#[derive(Debug, Clone)]
pub struct File {
    /// Its name in the probe's directory.
    pub name: String,
    /// Its handle.
    pub fh: Fh,
    /// The open by which it was made (version 4).
    pub open: Stateid,
    /// That open has to be confirmed (version 4.0).
    pub confirm: bool,
    /// The lane that has it open.
    pub lane: usize,
}

/// One call.
#[derive(Debug, Clone)]
pub enum Ask {
    /// NULL.
    Null,
    /// GETATTR of the probe's directory.
    Getattr,
    /// ACCESS of the probe's directory.
    Access,
    /// A new file of this name in it.
    Create(String),
    /// OPEN_CONFIRM (version 4.0).
    Confirm(File),
    /// WRITE.
    Write {
        /// Which file.
        file: File,
        /// Where.
        offset: u64,
        /// What.
        data: Bytes,
        /// FILE_SYNC instead of UNSTABLE.
        stable: bool,
    },
    /// COMMIT of a file.
    Commit(File),
    /// SETATTR of a file's mode.
    Setattr(File, u32),
    /// CLOSE (version 4).
    Close(File),
    /// REMOVE of a name.
    Remove(String),
    /// What is open is closed, and removed.
    Drop(File),
}

/// What came of it.
#[derive(Debug, Clone)]
pub enum Answer {
    /// It was done.
    Done,
    /// A file.
    Made(File),
    /// A WRITE.
    Written {
        /// So many bytes.
        count: u32,
        /// They are stable already.
        stable: bool,
    },
}

/// A client with calls under way on one connection, each in a lane of its own: a slot, an open owner, or nothing but a number.
pub trait Calls {
    /// The same client for one call at a time; none may be under way.
    fn nfs(&mut self) -> &mut dyn Nfs;
    /// Where files are made from now on.
    fn set_dir(&mut self, dir: Fh);
    /// So many lanes there are.
    fn lanes(&self) -> usize;
    /// There is CLOSE.
    fn has_opens(&self) -> bool;
    /// A lane's first open has to be confirmed, and kept (version 4.0).
    fn confirms(&self) -> bool;
    /// Bytes of a WRITE at most.
    fn write_bytes_max(&self) -> usize;
    /// Sends a call in a lane that has none under way: its transaction id.
    ///
    /// # Errors
    /// The connection is gone.
    fn submit(&mut self, lane: usize, ask: &Ask) -> Result<u32>;
    /// The next reply, to whichever call.
    ///
    /// # Errors
    /// None comes.
    fn next_reply(&mut self) -> Result<(u32, Outcome)>;
    /// What a reply says.
    ///
    /// # Errors
    /// The server refused.
    fn answer(&mut self, lane: usize, ask: &Ask, outcome: Outcome) -> Result<Answer>;
}
