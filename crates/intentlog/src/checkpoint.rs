//! Checkpoints: what the owner of the log has to provide, and the thread that decides when and runs the slow
//! part.
//!
//! Order, for checkpoint number n + 1: the writer closes the gate, seals, marks the cut, takes the snapshot
//! as the first records of the next batch, opens the gate; this thread makes the volume durable while
//! transactions go on; when that is done and the snapshot's batch is durable, the writer writes the superblock
//! with the new tail and number; then the space is free.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::core::{Core, Stage, State};
use crate::faults::point;

/// What makes the effects of old records durable elsewhere, so that their space can be used again.
pub trait Checkpoint: Send + Sync {
    /// Records that must stand first after the cut. Called with the gate closed: no transaction is open and
    /// none begins until this returns, so it must be quick and must not wait for anybody who waits to begin:
    /// a lock that is taken here is never to be held while calling [`crate::Log::begin`].
    fn snapshot(&self) -> Vec<Vec<u8>>;

    /// Makes everything that was applied before the cut durable, and the checkpoint's number known to
    /// whatever is checked against it at the next start. May be called again with the same number.
    ///
    /// # Errors
    /// Any error fails the log for ever: what the system has not made durable it may have thrown away.
    fn sync(&self, number: u64) -> io::Result<()>;
}

/// The checkpoint thread. Runs until the log stops or fails.
pub(crate) fn run(core: &Arc<Core>, checkpoint: &dyn Checkpoint) {
    while let Some(number) = next_cut(core) {
        let start = Instant::now();
        if let Err(error) = checkpoint.sync(number) {
            core.fail(&format!("making the volume durable: {error}"));
            return;
        }
        core.counters.checkpoint(start.elapsed());
        point("checkpoint.synced");
        let mut state = core.state.lock();
        state.stage = Stage::Synced;
        core.writer.notify_one();
    }
}

/// Asks for cuts when they are due; returns when the writer has made one. `None`: the log has stopped.
fn next_cut(core: &Core) -> Option<u64> {
    let mut state = core.state.lock();
    loop {
        if state.dead() {
            return None;
        }
        match state.stage {
            Stage::Syncing => return Some(state.checkpoint + 1),
            Stage::Idle => {
                if state.must_be_known() {
                    state.stage = Stage::Wanted;
                    core.writer.notify_one();
                    continue;
                }
                if let Some(since) = state.dirty_since {
                    let due = since + core.timing.checkpoint_after;
                    if state.checkpoint_asked || state.half_full(core.ring) || Instant::now() >= due {
                        state.stage = Stage::Wanted;
                        core.writer.notify_one();
                    } else {
                        core.checkpointer.wait_until(&mut state, due);
                    }
                    continue;
                }
            }
            Stage::Wanted | Stage::Cutting | Stage::Synced | Stage::Absorbing => {}
        }
        core.checkpointer.wait(&mut state);
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
