//! The results of a step of the log's threads.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Did(Did),
    /// There is nothing to do now.
    Idle,
    /// There is a task, which must wait.
    Blocked(Wait),
    /// The log has stopped or failed; no step does anything any more.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Did {
    /// Writer: the open batch is sealed and queued.
    Sealed,
    /// Writer: as `Sealed`, with the cut of a checkpoint behind it and the first part of the snapshot in the next batch.
    Cut,
    /// Writer: every batch before the cut is written, so its position is known.
    CutPlaced,
    /// Writer: a batch is durable and acknowledged.
    Wrote,
    /// Writer: a superblock has moved the tail; a checkpoint is complete.
    MovedTail,
    /// Writer: a batch does not fit; every waiting batch and a snapshot were taken.
    AbsorbCut,
    /// Writer: the volume is durable for that snapshot.
    AbsorbSynced,
    /// Writer: the snapshot is in the ring, and every waiting batch is acknowledged.
    Absorbed,
    /// Writer: the log is lost; the gate is closed, and every waiting batch and a snapshot were taken.
    LossCut,
    /// Writer: the volume is durable without the log and records that.
    SetAside,
    /// Writer: a new log is complete and has no name yet.
    Built,
    /// Writer: the new log is at the lost one's path.
    Placed,
    /// Writer: the volume records that it is in use again.
    Resumed,
    /// Writer: so does the new log; the gate is open, and every waiting batch is acknowledged.
    Renewed,
    /// Writer: the log is marked as shut down cleanly.
    MarkedClean,
    /// Checkpoint thread: asked for a cut.
    AskedForCut,
    /// Checkpoint thread: the volume is durable up to the cut.
    Synced,
    /// A leader has written its own batch.
    Led,
    /// Stopping: the next thing was asked for.
    AskedToStop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// More transactions to join the batch (`pace.rs`); the next step continues without them.
    Company,
    /// Announced requests ([`crate::Intent`]); the next step continues without them.
    Requests,
    /// Open transactions must commit.
    Gate,
    /// The checkpoint thread must make the volume durable.
    Sync,
    /// A checkpoint must be completed, by steps of the writer and of the checkpoint thread.
    Checkpoint,
    /// The writer must mark the log as clean.
    Writer,
}
