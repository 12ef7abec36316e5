//! Checkpoints: what the owner of the log has to provide, and the thread that decides when and runs the slow
//! part.
//!
//! Order, for checkpoint number n + 1: the writer closes the gate, seals, marks the cut, begins a snapshot and takes
//! its first part as the first records of the next batch, opens the gate; this thread makes the volume durable while
//! transactions go on, and the writer puts a further part into each next batch, in the same way; when the volume and
//! all parts are durable, the writer writes the superblock with the new tail and number; then the space is free.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::core::{Core, Stage, State};
use crate::faults::point;
use crate::step::{Did, Step};

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

/// The checkpoint thread.
pub(crate) struct Checkpointer {
    pub(crate) core: Arc<Core>,
    pub(crate) checkpoint: Arc<dyn Checkpoint>,
}

impl Checkpointer {
    /// The thread: runs until the log stops or fails.
    pub(crate) fn run(&self) {
        loop {
            match self.step(Some(Instant::now())) {
                Step::Did(_) => {}
                Step::Idle | Step::Blocked(_) => self.wait(),
                Step::Ended => return,
            }
        }
    }

    /// Asks for a cut if one is due, or makes the volume durable if there is one. Without `now`, none is due by time.
    pub(crate) fn step(&self, now: Option<Instant>) -> Step {
        let core = &self.core;
        let mut state = core.state.lock();
        if state.dead() {
            return Step::Ended;
        }
        match state.stage {
            Stage::Syncing => {
                let number = state.checkpoint + 1;
                drop(state);
                let start = Instant::now();
                if let Err(error) = self.checkpoint.sync(number) {
                    core.fail(&format!("making the volume durable: {error}"));
                    return Step::Ended;
                }
                core.counters.checkpoint(start.elapsed());
                point("checkpoint.synced");
                core.state.lock().stage = Stage::Synced;
                core.writer.notify_one();
                Step::Did(Did::Synced)
            }
            Stage::Idle if state.loss.is_none() && self.due(&state, now) => {
                state.stage = Stage::Wanted;
                core.writer.notify_one();
                Step::Did(Did::AskedForCut)
            }
            _ => Step::Idle,
        }
    }

    /// A cut is due. Pure.
    fn due(&self, state: &State, now: Option<Instant>) -> bool {
        let asked = |since: Instant| {
            state.checkpoint_asked
                || state.half_full(self.core.ring)
                || now.is_some_and(|now| now >= since + self.core.timing.checkpoint_after)
        };
        state.must_be_known() || state.dirty_since.is_some_and(asked)
    }

    /// Waits until there may be something to do.
    fn wait(&self) {
        let core = &self.core;
        let mut state = core.state.lock();
        while !state.dead() && state.stage != Stage::Syncing {
            match state.dirty_since.filter(|_| state.stage == Stage::Idle) {
                _ if state.loss.is_some() => core.checkpointer.wait(&mut state),
                _ if state.stage == Stage::Idle && self.due(&state, Some(Instant::now())) => return,
                Some(since) => {
                    core.checkpointer.wait_until(&mut state, since + core.timing.checkpoint_after);
                }
                None => core.checkpointer.wait(&mut state),
            }
        }
    }
}

/// The completed-checkpoint count to wait for so that all committed records are covered; `None` if they are.
pub(crate) fn target(state: &State) -> Option<u64> {
    let known = state.alone_from.filter(|_| state.must_be_known());
    let covered = match (state.dirty_since, state.stage) {
        (Some(_), _) | (None, Stage::Wanted) => Some(state.cuts + 1),
        (None, Stage::Idle) => None,
        (None, Stage::Cutting | Stage::Syncing | Stage::Synced | Stage::Absorbing) => Some(state.cuts),
    };
    known.max(covered)
}
