//! What a step of the log's threads came to.

/// What one step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Something was done.
    Did(Did),
    /// There is nothing to do until something is asked for.
    Idle,
    /// There is something to do, and it cannot go on yet.
    Blocked(Wait),
    /// The log has stopped or failed; no step does anything any more.
    Ended,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Did {
    /// Writer: the open batch is sealed and queued.
    Sealed,
    /// Writer: the same, with the cut of a checkpoint behind it and the first part of the snapshot in the next batch.
    Cut,
    /// Writer: all before the cut is written, so its place in the ring is known.
    CutPlaced,
    /// Writer: a batch is durable and answered.
    Wrote,
    /// Writer: a superblock has moved the tail; a checkpoint is complete.
    MovedTail,
    /// Writer: a batch does not fit; all that waits was taken, with a snapshot.
    AbsorbCut,
    /// Writer: the volume is durable for it.
    AbsorbSynced,
    /// Writer: the snapshot stands in the ring for it, and all that waited is answered.
    Absorbed,
    /// Writer: the log is lost; the gate is closed, all that waits was taken, with a snapshot.
    LossCut,
    /// Writer: the volume is durable without the log and says so.
    SetAside,
    /// Writer: a new log is whole and has no name yet.
    Built,
    /// Writer: it stands where the lost one stood.
    Placed,
    /// Writer: the volume says that it is in use again.
    Resumed,
    /// Writer: so does the new log; the gate is open, and all that waited is answered.
    Renewed,
    /// Writer: the log is marked as shut down in order.
    MarkedClean,
    /// Checkpoint thread: it has asked for a cut.
    AskedForCut,
    /// Checkpoint thread: the volume is durable up to the cut.
    Synced,
    /// A waiter has written its own batch.
    Led,
    /// Stopping: one more thing was asked for.
    AskedToStop,
}

/// What a step cannot go on without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// As many transactions as were of late at work together (`pace.rs`); the next step goes on without them.
    Company,
    /// Requests in hand ([`crate::Intent`]); the next step goes on without them.
    Requests,
    /// Open transactions must commit.
    Gate,
    /// The checkpoint thread must make the volume durable.
    Sync,
    /// The steps of the writer and of the checkpoint thread must complete a checkpoint.
    Checkpoint,
    /// The writer's next steps must mark the log.
    Writer,
}
