//! What the owner of a log provides: it makes the effects of old records durable elsewhere.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Makes the effects of old records durable elsewhere, so that their space can be used again.
pub trait Checkpoint: Send + Sync {
    /// Begins a snapshot: records that must follow the cut, with records of transactions between its parts. Called with the
    /// gate closed, as [`Snapshot::part`] is.
    fn snapshot(&self) -> Box<dyn Snapshot>;

    /// Makes everything that was applied before the cut durable, and records the checkpoint's number, against which the
    /// next start checks the log. May be called again with the same number.
    /// Errors: Any error fails the log for ever, because the system may have dropped what it could not write.
    fn sync(&self, number: u64) -> io::Result<()>;

    /// Checks that what the owner needs besides the log is still there; called several times a second.
    /// Errors: What is missing, in words. [`Checkpoint::lost`] follows.
    fn look(&self) -> Result<(), String> {
        Ok(())
    }

    /// The log is lost (`why`), and a new one is about to be made. Makes everything that was applied durable, as
    /// [`Checkpoint::sync`] does, and records that the next start needs no log, as after a clean stop. The gate is closed
    /// until [`Checkpoint::resume`] has returned, so nothing is applied meanwhile. [`Checkpoint::lost`] follows if no new log
    /// can be made.
    /// Errors: Nothing is acknowledged any more; [`Checkpoint::lost`] follows.
    fn set_aside(&self, _number: u64, _why: &str) -> io::Result<()> {
        Err(io::Error::other("the log's owner does not go on without it"))
    }

    /// A new log has replaced the lost one. Records, as [`Checkpoint::sync`] does, that the log is in use and needed.
    fn resume(&self, number: u64) -> io::Result<()> {
        self.sync(number)
    }

    /// The log continues on a new device.
    fn renewed(&self, _renewed: &Renewed) {}

    /// The log is lost and no new one could be made, or [`Checkpoint::look`] returned an error. Called once, on a thread of its
    /// own. What was acknowledged has been applied, so the owner can make it durable elsewhere. The log fails when this
    /// returns, unless the owner has failed it before ([`crate::Log::fail`]).
    fn lost(&self, _why: &str) {}
}

/// A snapshot that is taken part by part, so that a transaction waits for one part at most.
///
/// A crash may leave any number of parts in the log, with records of transactions between them. The snapshot counts only if
/// all parts are there, so the last part must say that it is the last.
pub trait Snapshot: Send {
    /// The next records, of about `bytes` bytes; a longer record is a part of its own. They describe the state now, or at some
    /// time since the snapshot began. No transaction is open and none begins until this returns. So it must be quick, and a
    /// lock that it takes must never be held while calling [`crate::Log::begin`]. Not called again after the last part.
    fn part(&mut self, bytes: usize) -> Part;
}

/// A part of a [`Snapshot`].
#[derive(Debug, Default)]
pub struct Part {
    pub records: Vec<Vec<u8>>,
    pub last: bool,
}

/// A small snapshot: one part, whatever its size.
impl Snapshot for Vec<Vec<u8>> {
    fn part(&mut self, _: usize) -> Part {
        Part { records: std::mem::take(self), last: true }
    }
}

/// All parts at once, for callers that hold transactions off anyway.
pub(crate) fn all_records(mut snapshot: Box<dyn Snapshot>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let part = snapshot.part(usize::MAX);
        all.extend(part.records);
        if part.last {
            return all;
        }
    }
}

/// How a lost log was replaced.
#[derive(Debug, Clone)]
pub struct Renewed {
    /// Why the log was lost.
    pub why: String,
    /// The new names of the files that were at its path.
    pub aside: Vec<PathBuf>,
    /// How long nothing was acknowledged.
    pub took: Duration,
}
