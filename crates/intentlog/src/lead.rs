//! A waiting thread writes its batch itself when no other transaction is at work.
//!
//! To hand a batch to the writer and to be woken by it costs two changes of threads, about as much as a flush of a fast
//! device. That pays only where several transactions share the flush. So a waiter whose batch is the log's only work
//! takes the device for that one batch.
//!
//! The device has one user at a time: the writer, except while [`State::leading`] is set. It is set only while the writer
//! is idle, and the writer touches nothing while it is. New records collect in the open batch or the queue, as behind any
//! batch that is being written.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::core::{Core, Phase, Sealed, Stage, State};
use crate::outcome::Outcome;

/// Writes the batch of `outcome` on this thread if nothing else is at work and flushes are fast. `false`: nothing was done.
pub(crate) fn flush(core: &Arc<Core>, outcome: &Arc<Outcome>) -> bool {
    let fast = core.counters.recent_flush().is_some_and(|recent| recent <= core.timing.lead_flush);
    fast && flush_alone(core, outcome)
}

/// As [`flush`], however long a flush takes.
pub(crate) fn flush_alone(core: &Arc<Core>, outcome: &Arc<Outcome>) -> bool {
    core.intents.none() && lead(core, outcome)
}

/// As [`flush_alone`], even if requests are announced.
pub(crate) fn lead(core: &Arc<Core>, outcome: &Arc<Outcome>) -> bool {
    let mut state = core.state.lock();
    if !may_lead(core, &state, outcome) {
        return false;
    }
    let Some(device) = core.device.upgrade() else { return false };
    state.rotate();
    let Some(Sealed::Batch { mut buf, outcome, commits, .. }) = state.queue.pop_front() else { return false };
    state.put_in_flight(outcome, commits);
    state.leading = true;
    drop(state);

    let turn = Turn(core);
    let length = buf.padded_bytes();
    let written = core.write_batch(&*device, &mut buf, false);
    // A shutdown waits for the turn to end, and then needs the device to be closed.
    drop(device);
    let mut state = match written {
        Ok(()) => core.state.lock(),
        Err(error) => {
            core.fail(&format!("writing a batch: {error}"));
            return true;
        }
    };
    state.written(buf, length);
    if state.checkpoint_due(core.ring) {
        core.checkpointer.notify_one();
    }
    core.counters.led.fetch_add(1, Relaxed);
    turn.end(&mut state);
    core.acknowledge(state);
    true
}

fn may_lead(core: &Core, state: &State, outcome: &Arc<Outcome>) -> bool {
    let open = &state.open;
    state.phase == Phase::Running
        && state.failed.is_none()
        && state.loss.is_none()
        && state.stage == Stage::Idle
        && !state.leading
        && !state.sealing
        && state.shared == 0
        && !state.wanted
        && state.txns == 0
        && state.at_gate == 0
        && state.queue.is_empty()
        && state.in_flight.is_empty()
        && Arc::ptr_eq(&open.outcome, outcome)
        && open.buf.records() > 0
        && !open.snapshot
        && !open.oversize
        && state.fits(core.ring, open.buf.padded_bytes(), false)
}

/// The turn at the device. It ends even if the device panics, and then the log fails.
struct Turn<'a>(&'a Core);

impl Turn<'_> {
    fn end(self, state: &mut State) {
        end_turn(self.0, state);
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("a thread that wrote to the log panicked");
        }
        end_turn(self.0, &mut self.0.state.lock());
    }
}

fn end_turn(core: &Core, state: &mut State) {
    state.leading = false;
    let stopping = state.phase != Phase::Running;
    let has_work = state.wanted || !state.queue.is_empty() || state.stage != Stage::Idle || state.to_renew();
    if stopping || has_work {
        core.writer.notify_one();
    }
    if stopping {
        core.progress.notify_all();
    }
}
