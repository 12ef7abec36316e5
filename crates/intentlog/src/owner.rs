//! What the owner of a log has to provide: it makes durable elsewhere what old records say.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What makes the effects of old records durable elsewhere, so that their space can be used again.
pub trait Checkpoint: Send + Sync {
    /// Begins a snapshot: records that must stand after the cut, whatever transactions log between its parts. Called with the
    /// gate closed, as [`Snapshot::part`] is.
    fn snapshot(&self) -> Box<dyn Snapshot>;

    /// Makes everything that was applied before the cut durable, and the checkpoint's number known to
    /// whatever is checked against it at the next start. May be called again with the same number.
    ///
    /// # Errors
    /// Any error fails the log for ever: what the system has not made durable it may have thrown away.
    fn sync(&self, number: u64) -> io::Result<()>;

    /// Looks whether what the owner needs beside the log is still there; called several times a second.
    ///
    /// # Errors
    /// What is missing, in words. [`Checkpoint::lost`] follows.
    fn look(&self) -> Result<(), String> {
        Ok(())
    }

    /// The log is lost (`why`), and another is about to be made. Makes everything that was applied durable under this checkpoint's
    /// number, as [`Checkpoint::sync`] does, and says so on whatever is checked against it at the next start: as after a stop in order,
    /// no log is needed. Called with the gate closed, and it stays closed until [`Checkpoint::resume`] has returned: nothing is applied
    /// meanwhile. [`Checkpoint::lost`] follows if no other log can be made.
    ///
    /// # Errors
    /// Nothing is acknowledged any more; [`Checkpoint::lost`] follows.
    fn set_aside(&self, _number: u64, _why: &str) -> io::Result<()> {
        Err(io::Error::other("the log's owner does not go on without it"))
    }

    /// A new log stands in the place of the lost one. Says, as [`Checkpoint::sync`] under this number, that it is in use and needed.
    ///
    /// # Errors
    /// As [`Checkpoint::sync`].
    fn resume(&self, number: u64) -> io::Result<()> {
        self.sync(number)
    }

    /// The log goes on, on a new device.
    fn renewed(&self, _renewed: &Renewed) {}

    /// The log is not what or where it was and no other could be made, or what [`Checkpoint::look`] looked for is gone. Called once, on a thread of its own. The
    /// log fails when this returns, if the owner has not made it fail before ([`crate::Log::fail`]). What was acknowledged before
    /// is applied, so the owner can make it durable elsewhere.
    fn lost(&self, _why: &str) {}
}

/// A snapshot that is being taken, part by part, so that a transaction waits for one part of it at most.
///
/// A crash may leave any number of parts in the log, with records of transactions between them: the snapshot counts when all of it
/// is there, which its last part has to say.
pub trait Snapshot: Send {
    /// The next records, of about so many bytes; a record that is longer is a part of its own. They say what is so now, or was
    /// at some time since the beginning. Called with the gate closed: no transaction is open and none begins until this returns,
    /// so it must be quick and must not wait for anybody who waits to begin: a lock that is taken here is never to be held
    /// while calling [`crate::Log::begin`]. Not called again after the last part.
    fn part(&mut self, bytes: usize) -> Part;
}

/// A part of a [`Snapshot`].
#[derive(Debug, Default)]
pub struct Part {
    /// Its records.
    pub records: Vec<Vec<u8>>,
    /// Nothing follows.
    pub last: bool,
}

/// A snapshot of few records: one part, whatever its size.
impl Snapshot for Vec<Vec<u8>> {
    fn part(&mut self, _: usize) -> Part {
        Part { records: std::mem::take(self), last: true }
    }
}

/// All parts at once, where transactions are held off anyway.
pub(crate) fn whole(mut snapshot: Box<dyn Snapshot>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let part = snapshot.part(usize::MAX);
        all.extend(part.records);
        if part.last {
            return all;
        }
    }
}

/// A lost log was written anew.
#[derive(Debug, Clone)]
pub struct Renewed {
    /// What was lost, in words.
    pub why: String,
    /// What stood in its place, and where it is now.
    pub aside: Vec<PathBuf>,
    /// How long nothing was acknowledged.
    pub took: Duration,
}
