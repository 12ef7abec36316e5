//! The checkpoint thread decides when a checkpoint is due and makes the volume durable for it.
//!
//! Checkpoint number n + 1:
//! 1. The writer closes the gate, seals the batch, makes the cut, puts the first part of a snapshot into the next batch, and
//!    opens the gate.
//! 2. This thread makes the volume durable while transactions go on. Meanwhile each next batch begins with a further part.
//! 3. When the volume and all parts are durable, the writer writes the superblock with the new tail and number. Then the
//!    space is free.

use std::sync::Arc;
use std::time::Instant;

use crate::core::{Core, Stage, State};
use crate::faults::point;
use crate::owner::Checkpoint;
use crate::step::{Did, Step};

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

    /// Asks for a cut if one is due, or makes the volume durable after a cut. Without `now`, none is due by time.
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
        state.loss_unrecorded() || state.dirty_since.is_some_and(asked)
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
