//! The thread that owns the device, but for moments when it has nothing to do and a waiter leads
//! ([`crate::lead`]): seals, writes, moves the tail.
//!
//! One flush is in flight at a time; the next batch collects meanwhile. Invariants:
//! - a batch is written only when every earlier one is durable, so a torn batch is the last one;
//! - a ticket succeeds only after the flush that covers it returned success and nothing has failed before;
//! - space is given away only after the superblock that frees it is durable;
//! - an ordinary batch leaves [`State::reserve`](crate::core::State) bytes free, so that a snapshot, and
//!   with it a checkpoint, is always possible.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use parking_lot::MutexGuard;

use crate::checkpoint::Checkpoint;
use crate::core::{Core, Phase, Sealed, Stage, State};
use crate::device::Device;
use crate::faults::{self, Bug, point};
use crate::format::{BatchBuf, Superblock};
use crate::limits::GATE_WAIT_MAX;

/// Position and sequence number where the tail will be once a checkpoint is complete.
#[derive(Debug, Clone, Copy)]
struct Cut {
    position: u64,
    seq: u64,
    /// The snapshot that begins there is durable, or there is none.
    durable: bool,
}

pub(crate) struct Writer {
    pub(crate) core: Arc<Core>,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) checkpoint: Arc<dyn Checkpoint>,
    pub(crate) superblocks: Superblocks,
    cut: Option<Cut>,
}

/// The pair on the device: which was written last.
pub(crate) struct Superblocks {
    pub(crate) last: Superblock,
    /// Slot of `last`, 0 or 1.
    pub(crate) slot: usize,
}

impl Superblocks {
    /// Writes `next` over the older one. Its serial is set here.
    pub(crate) fn write(&mut self, device: &dyn Device, next: Superblock) -> io::Result<()> {
        let next = Superblock { serial: self.last.serial + 1, ..next };
        let slot = 1 - self.slot;
        let block = next.encode();
        device.write_durable(&[((slot * block.len()) as u64, &block)])?;
        self.last = next;
        self.slot = slot;
        Ok(())
    }
}

enum Work {
    Sealed(Sealed),
    Seal { cut: bool },
    Superblock,
    Finish,
    Stop,
}

impl Writer {
    pub(crate) fn new(
        core: Arc<Core>,
        device: Arc<dyn Device>,
        checkpoint: Arc<dyn Checkpoint>,
        superblocks: Superblocks,
    ) -> Self {
        Writer { core, device, checkpoint, superblocks, cut: None }
    }

    /// Runs until shutdown, drop or failure.
    pub(crate) fn run(mut self) {
        loop {
            let done = match self.next_work() {
                Work::Sealed(Sealed::Batch { buf, snapshot, oversize, .. }) => {
                    self.put(buf, snapshot, oversize)
                }
                Work::Sealed(Sealed::Cut) => {
                    self.place_cut();
                    Ok(())
                }
                Work::Seal { cut } => {
                    self.seal(cut);
                    Ok(())
                }
                Work::Superblock => self.finish_checkpoint(),
                Work::Finish => {
                    if let Err(error) = self.mark_clean() {
                        self.core.fail(&format!("writing the clean mark: {error}"));
                    }
                    return;
                }
                Work::Stop => return,
            };
            if let Err(why) = done {
                self.core.fail(&why);
                return;
            }
        }
    }

    fn next_work(&self) -> Work {
        let mut state = self.core.state.lock();
        loop {
            if state.dead() {
                return Work::Stop;
            }
            if state.leading {
                self.core.writer.wait(&mut state);
                continue;
            }
            if state.stage == Stage::Synced && self.cut.is_some_and(|cut| cut.durable) {
                return Work::Superblock;
            }
            if let Some(sealed) = state.queue.pop_front() {
                if let Sealed::Batch { outcome, .. } = &sealed {
                    let outcome = outcome.clone();
                    state.in_flight.push(outcome);
                }
                return Work::Sealed(sealed);
            }
            if state.stage == Stage::Wanted {
                return Work::Seal { cut: true };
            }
            // `Synced` here: all that is missing is the snapshot, which is in the open batch.
            if state.wanted || state.stage == Stage::Synced {
                return Work::Seal { cut: false };
            }
            if state.phase == Phase::Finishing && state.stage == Stage::Idle {
                return match state.open.buf.records() {
                    0 => Work::Finish,
                    _ => Work::Seal { cut: false },
                };
            }
            self.core.writer.wait(&mut state);
        }
    }

    /// Moves the open batch to the queue; with `cut`, marks the cut behind it and puts the snapshot first
    /// into the next.
    fn seal(&self, cut: bool) {
        let mut state = self.core.state.lock();
        if state.wanted {
            self.await_requests_in_hand(&mut state);
        }
        if !self.close_gate(&mut state) {
            return;
        }
        state.rotate();
        if cut {
            state.queue.push_back(Sealed::Cut);
            begin_cut(&mut state, Stage::Cutting);
            drop(state);
            let records = self.checkpoint.snapshot();
            state = self.core.state.lock();
            for record in &records {
                let open = &mut state.open;
                open.snapshot = true;
                open.oversize |= !open.buf.push(&[record]);
            }
            let snapshot_bytes = state.open.buf.padded_bytes();
            state.set_reserve(self.core.ring, snapshot_bytes);
            state.stage = Stage::Syncing;
            self.core.checkpointer.notify_one();
        }
        self.open_gate(state);
        if cut {
            point("checkpoint.cut");
        }
    }

    /// Waits for those requests that were received before now and have not yet committed, within bounds.
    fn await_requests_in_hand(&self, state: &mut MutexGuard<'_, State>) {
        let Some(generation) = self.core.intents.close() else { return };
        let until = Instant::now() + self.core.timing.intent_wait;
        self.core.counters.intent_waits.fetch_add(1, Relaxed);
        generation.set_awaited();
        while !generation.is_empty() && !state.dead() {
            if self.core.writer.wait_until(state, until).timed_out() {
                self.core.counters.intent_timeouts.fetch_add(1, Relaxed);
                return;
            }
        }
    }

    /// Lets nobody begin and waits until no transaction is open. `false`: the log is dead.
    ///
    /// Should one of those open need something that a thread holds who waits to begin, the wait would never
    /// end. Nothing is decided before the last one has left, so the gate is opened again for those at it.
    fn close_gate(&self, state: &mut MutexGuard<'_, State>) -> bool {
        state.sealing = true;
        let mut until = Instant::now() + GATE_WAIT_MAX;
        while state.txns > 0 && !state.dead() {
            if self.core.writer.wait_until(state, until).timed_out() {
                self.core.counters.gate_reopened.fetch_add(1, Relaxed);
                state.sealing = false;
                state.reopened = true;
                self.core.gate.notify_all();
                until = Instant::now() + GATE_WAIT_MAX;
                while state.at_gate > 0 && !state.dead() {
                    if self.core.writer.wait_until(state, until).timed_out() {
                        break;
                    }
                }
                state.reopened = false;
                state.sealing = true;
                until = Instant::now() + GATE_WAIT_MAX;
            }
        }
        if state.dead() {
            state.sealing = false;
        }
        !state.dead()
    }

    fn open_gate(&self, mut state: MutexGuard<'_, State>) {
        state.sealing = false;
        drop(state);
        self.core.gate.notify_all();
    }

    fn place_cut(&mut self) {
        let state = self.core.state.lock();
        // Without a snapshot there is nothing to wait for: the tail moves to whatever comes next.
        let durable = !state.open.snapshot
            && !state.queue.iter().any(|sealed| matches!(sealed, Sealed::Batch { snapshot: true, .. }));
        self.cut = Some(Cut { position: state.space.head, seq: state.space.next_seq, durable });
    }

    /// Makes one batch durable: in the ring, or, if it does not fit, through a checkpoint.
    fn put(&mut self, mut buf: BatchBuf, snapshot: bool, oversize: bool) -> Result<(), String> {
        let length = buf.padded_bytes();
        while oversize || !self.core.state.lock().fits(self.core.ring, length, snapshot) {
            // A checkpoint that is under way and needs nothing more from the ring frees space.
            if self.cut.is_some_and(|cut| cut.durable) && self.await_sync() {
                self.finish_checkpoint()?;
            } else {
                return self.absorb(length);
            }
        }
        self.core
            .write_batch(&*self.device, &mut buf, false)
            .map_err(|error| format!("writing a batch: {error}"))?;
        let mut state = self.core.state.lock();
        state.written(buf, length);
        if snapshot && let Some(cut) = &mut self.cut {
            cut.durable = true;
        }
        if state.checkpoint_due(self.core.ring) {
            self.core.checkpointer.notify_one();
        }
        self.core.acknowledge(state);
        Ok(())
    }

    /// Waits for the checkpoint thread's part of a checkpoint. `false`: none is under way, or the log is dead.
    fn await_sync(&self) -> bool {
        let mut state = self.core.state.lock();
        while state.stage == Stage::Syncing && !state.dead() {
            self.core.writer.wait(&mut state);
        }
        state.stage == Stage::Synced && !state.dead()
    }

    fn finish_checkpoint(&mut self) -> Result<(), String> {
        let Some(mut cut) = self.cut.take() else { return Ok(()) };
        if faults::bug(Bug::CutLate) {
            let space = self.core.state.lock().space;
            (cut.position, cut.seq) = (space.head, space.next_seq);
        }
        self.move_tail(cut.position, cut.seq)
    }

    fn move_tail(&mut self, tail: u64, tail_seq: u64) -> Result<(), String> {
        let number = self.superblocks.last.checkpoint + 1;
        let next = Superblock { tail, tail_seq, checkpoint: number, ..self.superblocks.last };
        self.write_superblock(next).map_err(|error| format!("writing a superblock: {error}"))?;
        point("checkpoint.freed");
        let mut state = self.core.state.lock();
        state.space.tail = tail;
        state.checkpoint = number;
        state.stage = Stage::Idle;
        state.completed = state.cuts;
        self.core.look_for_loss(&mut state);
        let wakeups = state.release();
        drop(state);
        for wakeup in wakeups {
            wakeup.wake();
        }
        self.core.checkpointer.notify_one();
        self.core.progress.notify_all();
        self.core.freed.notify_waiters();
        Ok(())
    }

    fn write_superblock(&mut self, next: Superblock) -> io::Result<()> {
        let start = Instant::now();
        self.superblocks.write(&*self.device, next)?;
        self.core.counters.flush(start.elapsed());
        Ok(())
    }

    /// A batch does not fit, and no checkpoint under way will make room. Its effects have been applied, so a
    /// checkpoint makes them durable as well as the ring would: everything that waits is answered by it, and
    /// only the snapshot is written, marked as the point where replay starts.
    fn absorb(&mut self, length: u64) -> Result<(), String> {
        self.await_sync();
        let mut state = self.core.state.lock();
        if !self.close_gate(&mut state) {
            return Err("stopped while waiting for space".into());
        }
        state.rotate();
        state.queued_bytes -= length;
        while let Some(sealed) = state.queue.pop_front() {
            if let Sealed::Batch { buf, outcome, .. } = sealed {
                state.queued_bytes -= buf.padded_bytes();
                state.in_flight.push(outcome);
            }
        }
        self.cut = None;
        begin_cut(&mut state, Stage::Absorbing);
        let number = state.checkpoint + 1;
        drop(state);
        let records = self.checkpoint.snapshot();
        self.open_gate(self.core.state.lock());

        let start = Instant::now();
        self.checkpoint.sync(number).map_err(|error| format!("making the volume durable: {error}"))?;
        self.core.counters.checkpoint(start.elapsed());
        point("checkpoint.synced");
        let mut buf = BatchBuf::default();
        let fits = records.iter().all(|record| buf.push(&[record]));
        let length = buf.padded_bytes();
        let space = self.core.state.lock().space;
        if !fits || length > self.core.ring.bytes - space.used() {
            return Err(format!(
                "the log is too small: a snapshot of {} bytes does not fit; make it larger",
                buf.payload_bytes()
            ));
        }
        if buf.records() > 0 {
            self.core
                .write_batch(&*self.device, &mut buf, true)
                .map_err(|error| format!("writing a snapshot: {error}"))?;
            let mut state = self.core.state.lock();
            state.space.head += length;
            state.space.next_seq += buf.records();
            state.set_reserve(self.core.ring, length);
        }
        self.core.counters.absorbed.fetch_add(1, Relaxed);
        self.move_tail(space.head, space.next_seq)?;
        self.core.acknowledge(self.core.state.lock());
        Ok(())
    }

    /// Shutdown: everything is checkpointed and written.
    fn mark_clean(&mut self) -> io::Result<()> {
        let space = self.core.state.lock().space;
        let next = Superblock { clean_end: Some((space.head, space.next_seq)), ..self.superblocks.last };
        self.write_superblock(next)?;
        let mut state = self.core.state.lock();
        state.phase = Phase::Stopped;
        self.core.abandon(state);
        Ok(())
    }
}

/// From here on records count as not covered by a checkpoint. The stage changes in the same moment: who asks
/// for a checkpoint reads both, and must not take this cut for one that is still to come.
fn begin_cut(state: &mut State, stage: Stage) {
    state.stage = stage;
    state.cuts += 1;
    state.dirty_since = None;
    state.checkpoint_asked = false;
}
