//! The state that all threads of the log share, and the gate.
//!
//! One mutex, [`Core::state`], guards everything; condition variables announce changes. It is held for a memory copy at
//! most, never over I/O or a callback.
//!
//! The gate: a transaction joins the open batch when it begins and leaves it when it commits. Sealing closes the gate, so
//! that no transaction joins; waits until all open ones have committed; takes the batch; and opens the gate again. So a
//! batch holds whole transactions, and the order of records is the order of the appends.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::aligned::AlignedBuf;
use crate::device::Device;
use crate::error::LogError;
use crate::faults::{self, Bug, point};
use crate::format::{BatchBuf, BatchPlace, Identity};
use crate::generation::Intents;
use crate::limits::{
    BATCH_BYTES_MAX, BATCH_RING_FRACTION, BUFFER_BYTES_KEPT, BUFFERS_KEPT, CHECKPOINT_PERCENT,
    CHECKPOINTS_ALONE, COMPANY_BATCHES, GATE_WAIT_MAX, RESERVE_RING_FRACTION,
};
use crate::lock::{Condvar, Mutex, MutexGuard};
use crate::loss::{Loss, RenewalStage};
use crate::outcome::{Outcome, Wakeups};
use crate::pace::Company;
use crate::ring::Ring;
use crate::stats::Counters;
use crate::step::{Did, Step, Wait};

/// Where the log is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Opened; the caller replays the records.
    Replaying,
    /// Takes records.
    Running,
    /// Takes no new transactions; those open may finish.
    Closing,
    /// Everything is checkpointed; the writer must mark the log clean and end.
    Finishing,
    /// Threads have ended or must end.
    Stopped,
}

/// How far a checkpoint is. The checkpoint thread sets `Wanted` and `Synced`, the writer the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Idle,
    /// The writer must make the cut.
    Wanted,
    /// The cut is made; the first part of the snapshot is being taken, without the lock.
    Cutting,
    /// The checkpoint thread is making the volume durable; the writer takes the other parts of the snapshot meanwhile.
    Syncing,
    /// The volume is durable up to the cut; the superblock is not yet written.
    Synced,
    /// The writer runs a checkpoint itself, to make batches durable that do not fit.
    Absorbing,
}

/// An entry of the writer's queue.
#[derive(Debug)]
pub(crate) enum Sealed {
    Batch {
        buf: BatchBuf,
        outcome: Arc<Outcome>,
        commits: u64,
        /// Begins with a part of a checkpoint's snapshot.
        snapshot: bool,
        /// Larger than the ring; the records that did not fit were not kept.
        oversize: bool,
    },
    /// The cut of a checkpoint: replay starts with what follows it.
    Cut,
}

#[derive(Debug, Default)]
pub(crate) struct Open {
    pub(crate) buf: BatchBuf,
    pub(crate) outcome: Arc<Outcome>,
    pub(crate) snapshot: bool,
    pub(crate) oversize: bool,
    pub(crate) commits: u64,
}

/// The part of the ring that is in use. Only whoever has the device changes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    pub(crate) head: u64,
    pub(crate) tail: u64,
    pub(crate) next_seq: u64,
}

impl Space {
    pub(crate) fn used(&self) -> u64 {
        self.head - self.tail
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// A simulation runs the log without threads ([`crate::stepper`]).
    pub(crate) stepped: bool,
    pub(crate) failed: Option<Arc<str>>,
    /// The gate is closed.
    pub(crate) sealing: bool,
    /// Open transactions.
    pub(crate) txns: u64,
    /// Threads that wait to begin a transaction.
    pub(crate) at_gate: u64,
    /// The writer gave up a seal for now, and the gate is open for the threads that wait at it.
    pub(crate) reopened: bool,
    /// The open batch is full, but takes one more transaction.
    overfull: bool,
    pub(crate) open: Open,
    /// A ticket of the open batch is waited for.
    pub(crate) wanted: bool,
    pub(crate) queue: VecDeque<Sealed>,
    /// Batches that the writer or a leader has taken from the queue and not yet acknowledged.
    pub(crate) in_flight: Vec<Arc<Outcome>>,
    /// A waiting thread has the device and writes its batch itself ([`crate::lead`]).
    pub(crate) leading: bool,
    /// Set to [`COMPANY_BATCHES`] by a batch with several transactions; each batch with one counts it down.
    pub(crate) shared: u32,
    pub(crate) company: Company,
    /// Transactions in `in_flight`.
    pub(crate) transactions_in_flight: u64,
    /// The writer waits until the open batch has this many transactions (`pace.rs`).
    pub(crate) gathering: Option<u64>,
    /// Bytes in the queue and in the batch that is being written.
    pub(crate) queued_bytes: u64,
    pub(crate) space: Space,
    /// Bytes of the ring kept free for a snapshot.
    pub(crate) reserve: u64,
    /// Bytes that the last snapshot takes in the ring.
    pub(crate) snapshot_bytes: u64,
    /// Number of the last completed checkpoint.
    pub(crate) checkpoint: u64,
    pub(crate) stage: Stage,
    /// When the first record was appended that no cut covers yet.
    pub(crate) dirty_since: Option<Instant>,
    /// A caller waits for a checkpoint.
    pub(crate) checkpoint_asked: bool,
    /// Half of a mirror is lost: nothing is acknowledged until `completed` has reached this number.
    pub(crate) acknowledge_from: Option<u64>,
    /// Batches that are durable on the half that is left, and are not acknowledged yet for that reason.
    withheld: Vec<Arc<Outcome>>,
    /// The log was found lost: nothing is acknowledged until a new one has replaced it.
    pub(crate) loss: Option<Loss>,
    /// Cuts made in this run.
    pub(crate) cuts: u64,
    /// The cuts of this run whose checkpoints are complete.
    pub(crate) completed: u64,
    buffers: Vec<AlignedBuf>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) checkpoint_after: Duration,
    pub(crate) intent_wait: Duration,
    pub(crate) lead_flush: Duration,
}

pub(crate) struct Core {
    /// Weak, so that a ticket which outlives the log keeps no device open. The log's handle and the writer own it.
    pub(crate) device: Weak<dyn Device>,
    pub(crate) half_lost: Arc<AtomicBool>,
    pub(crate) ring: Ring,
    pub(crate) identity: Identity,
    pub(crate) batch_max: u64,
    pub(crate) timing: Timing,
    pub(crate) state: Mutex<State>,
    /// Waited on to begin a transaction.
    pub(crate) gate: Condvar,
    /// Waited on by the writer.
    pub(crate) writer: Condvar,
    /// Waited on by the checkpoint thread.
    pub(crate) checkpointer: Condvar,
    /// Waited on by callers of checkpoint and shutdown, and by blocked admissions.
    pub(crate) progress: Condvar,
    /// Waited on by the watch thread ([`crate::watch`]).
    pub(crate) watcher: Condvar,
    /// A batch was written.
    pub(crate) drained: Notify,
    /// A checkpoint freed space.
    pub(crate) freed: Notify,
    pub(crate) intents: Intents,
    /// Number of the last acknowledged batch. Set under the lock of `state`.
    pub(crate) durable: AtomicU64,
    pub(crate) counters: Counters,
}

impl Core {
    pub(crate) fn new(
        device: &Arc<dyn Device>,
        ring: Ring,
        identity: Identity,
        space: Space,
        checkpoint: u64,
        timing: Timing,
    ) -> Core {
        Core {
            device: Arc::downgrade(device),
            half_lost: device.half_lost(),
            ring,
            identity,
            batch_max: BATCH_BYTES_MAX.min(ring.bytes / BATCH_RING_FRACTION),
            timing,
            state: Mutex::new(State {
                phase: Phase::Replaying,
                stepped: false,
                failed: None,
                sealing: false,
                txns: 0,
                at_gate: 0,
                reopened: false,
                overfull: false,
                open: Open { outcome: Arc::new(Outcome::of(1)), ..Open::default() },
                wanted: false,
                queue: VecDeque::new(),
                in_flight: Vec::new(),
                leading: false,
                shared: 0,
                company: Company::default(),
                transactions_in_flight: 0,
                gathering: None,
                queued_bytes: 0,
                space,
                reserve: ring.bytes / RESERVE_RING_FRACTION,
                snapshot_bytes: 0,
                checkpoint,
                stage: Stage::Idle,
                dirty_since: None,
                checkpoint_asked: false,
                acknowledge_from: None,
                withheld: Vec::new(),
                loss: None,
                cuts: 0,
                completed: 0,
                buffers: Vec::new(),
            }),
            gate: Condvar::new(),
            writer: Condvar::new(),
            checkpointer: Condvar::new(),
            progress: Condvar::new(),
            watcher: Condvar::new(),
            drained: Notify::new(),
            freed: Notify::new(),
            intents: Intents::default(),
            durable: AtomicU64::new(0),
            counters: Counters::default(),
        }
    }

    /// Joins the open batch and returns its number. Waits only while a batch is being sealed.
    pub(crate) fn begin(&self) -> Result<u64, LogError> {
        let mut state = self.state.lock();
        let mut waited: Option<Instant> = None;
        loop {
            state.check_open()?;
            let full = state.full(self.batch_max);
            if full && state.txns == 0 && !state.sealing {
                state.rotate();
                self.writer.notify_one();
            } else if full && state.stepped {
                // No other thread could commit the open transactions.
                state.overfull = true;
            } else if state.sealing || full {
                waited.get_or_insert_with(Instant::now);
                self.wait_at_gate(&mut state);
            } else {
                break;
            }
        }
        state.txns += 1;
        let batch = state.open.outcome.batch();
        if let Some(since) = waited {
            drop(state);
            self.counters.gate_waits.waited(since.elapsed());
        }
        Ok(batch)
    }

    /// Waits until the gate may have opened.
    fn wait_at_gate(&self, state: &mut MutexGuard<'_, State>) {
        state.at_gate += 1;
        if state.sealing {
            self.gate.wait(state);
        } else if self.gate.wait_for(state, GATE_WAIT_MAX).timed_out() {
            // The batch is full, but an open transaction does not end, so this one may join as well.
            state.overfull = true;
        }
        state.at_gate -= 1;
        if state.at_gate == 0 && state.reopened {
            self.writer.notify_one();
        }
    }

    pub(crate) fn append(&self, parts: &[&[u8]]) {
        let mut state = self.state.lock();
        if state.dead() {
            return;
        }
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let state = &mut *state;
        let open = &mut state.open;
        // A record that the ring can never hold is not kept: a checkpoint will make its effect durable.
        if open.buf.payload_bytes() as u64 + length as u64 >= self.ring.bytes || !open.buf.push(parts) {
            open.oversize = true;
        }
        self.counters.record(length as u64);
        if state.dirty_since.is_none() {
            state.dirty_since = Some(Instant::now());
            self.checkpointer.notify_one();
        }
    }

    /// Ends a transaction; the outcome of the batch that it joined.
    pub(crate) fn leave(&self) -> Arc<Outcome> {
        let mut state = self.state.lock();
        state.txns -= 1;
        state.open.commits += 1;
        let outcome = state.open.outcome.clone();
        if state.gathering.is_some_and(|all| state.open.commits >= all) {
            self.writer.notify_one();
        }
        if state.txns == 0 {
            if state.phase == Phase::Closing || state.dead() {
                self.progress.notify_all();
            }
            if state.sealing {
                self.writer.notify_one();
            } else if state.open.buf.padded_bytes() >= self.batch_max && !state.dead() {
                // No transaction is open: close the full batch here, so that none has to wait for the writer.
                state.rotate();
                self.writer.notify_one();
                self.gate.notify_all();
            }
        }
        outcome
    }

    /// The outcome of `batch`; `None` once it is durable.
    pub(crate) fn pending(&self, batch: u64) -> Option<Arc<Outcome>> {
        if batch <= self.durable.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state.lock();
        let queued = state.queue.iter().filter_map(|sealed| match sealed {
            Sealed::Batch { outcome, .. } => Some(outcome),
            Sealed::Cut => None,
        });
        let all = state.withheld.iter().chain(&state.in_flight).chain(queued).chain([&state.open.outcome]);
        let found = all.into_iter().find(|outcome| outcome.batch() == batch).cloned();
        let durable = batch <= self.durable.load(Ordering::Acquire);
        let outcome = match found {
            Some(outcome) => outcome,
            None if durable => return None,
            // The log failed or stopped before the batch was durable.
            None => {
                let lost = Outcome::of(batch);
                let _ = lost.set(Err(state.check_alive().err().unwrap_or(LogError::Closed)));
                Arc::new(lost)
            }
        };
        Some(outcome)
    }

    /// Asks the writer to seal the batch of `outcome` if it is the open one.
    pub(crate) fn want(&self, outcome: &Arc<Outcome>) {
        let mut state = self.state.lock();
        if Arc::ptr_eq(&state.open.outcome, outcome) && !state.wanted {
            state.wanted = true;
            self.writer.notify_one();
        }
    }

    /// Writes `buf` at the head. Called by whoever has the device: the writer, or a leader.
    pub(crate) fn write_batch(
        &self,
        device: &dyn Device,
        buf: &mut BatchBuf,
        restart: bool,
    ) -> io::Result<()> {
        let (space, checkpoint) = {
            let state = self.state.lock();
            (state.space, state.checkpoint)
        };
        let checkpoint = if restart { checkpoint + 1 } else { checkpoint };
        if faults::bug(Bug::ReplyBeforeFlush) {
            self.acknowledge(self.state.lock());
        }
        point("log.before-write");
        let start = Instant::now();
        let length = self.put_batch(device, buf, &space, checkpoint, restart)?;
        self.counters.flush(start.elapsed());
        self.counters.batch(length);
        point("log.written");
        Ok(())
    }

    /// Makes a batch durable at the head of the ring; its length in the ring.
    pub(crate) fn put_batch(
        &self,
        device: &dyn Device,
        buf: &mut BatchBuf,
        space: &Space,
        checkpoint: u64,
        restart: bool,
    ) -> io::Result<u64> {
        let place = BatchPlace {
            offset: self.ring.offset(space.head),
            generation: self.ring.generation(space.head),
            first_seq: space.next_seq,
            checkpoint,
            restart,
        };
        let bytes = buf.seal(&place, &self.identity);
        let [(first, first_len), (second, _)] = self.ring.extents(space.head, bytes.len() as u64);
        let (head, rest) = bytes.split_at(first_len as usize);
        let parts = [(first, head), (second, rest)];
        let parts = if rest.is_empty() { &parts[..1] } else { &parts[..] };
        match device.write_durable(parts) {
            Err(error) if !faults::bug(Bug::FlushErrorIgnored) => return Err(error),
            _ => {}
        }
        if parts.len() > 1 {
            point("log.wrapped");
        }
        Ok(bytes.len() as u64)
    }

    /// Acknowledges the batches in flight, which are durable now, and wakes their waiters.
    pub(crate) fn acknowledge(&self, mut state: MutexGuard<'_, State>) {
        self.look_for_loss(&mut state);
        let wakeups = state.acknowledge(&self.durable);
        drop(state);
        for wakeup in wakeups {
            wakeup.wake();
        }
        self.drained.notify_waiters();
        self.progress.notify_all();
        point("log.acknowledged");
    }

    /// Notices that the last write lost half of a mirror. From here on the volume must record that the lost half is
    /// incomplete before anything is acknowledged. Its tag may be one checkpoint ahead of a log, so two are needed.
    pub(crate) fn look_for_loss(&self, state: &mut State) {
        if state.acknowledge_from.is_none() && self.half_lost.load(Ordering::Acquire) {
            state.acknowledge_from = Some(state.cuts + CHECKPOINTS_ALONE);
            self.checkpointer.notify_one();
        }
    }

    pub(crate) fn open_gate(&self) {
        self.state.lock().sealing = false;
        self.gate.notify_all();
    }

    /// One step towards a stop in order; `Blocked` says what has to happen first.
    pub(crate) fn stop(&self) -> Step {
        let mut state = self.state.lock();
        if state.dead() {
            return Step::Ended;
        }
        match state.phase {
            Phase::Replaying => {
                state.phase = Phase::Stopped;
                Step::Ended
            }
            Phase::Running => {
                state.phase = Phase::Closing;
                self.gate.notify_all();
                Step::Did(Did::AskedToStop)
            }
            Phase::Closing if state.txns > 0 => Step::Blocked(Wait::Gate),
            Phase::Closing => {
                // The checkpoint itself may lose half of a mirror, and then further ones are needed.
                if state.checkpoint_target().is_some() {
                    state.ask_checkpoint();
                    self.checkpointer.notify_one();
                    return Step::Blocked(Wait::Checkpoint);
                }
                state.phase = Phase::Finishing;
                self.writer.notify_one();
                Step::Did(Did::AskedToStop)
            }
            Phase::Finishing => Step::Blocked(Wait::Writer),
            Phase::Stopped => Step::Ended,
        }
    }

    /// Wakes the writer. With the lock held the writer either waits already or has yet to check for work.
    pub(crate) fn wake_writer(&self) {
        let _state = self.state.lock();
        self.writer.notify_one();
    }

    /// Fails every ticket that has no result, and all later ones.
    pub(crate) fn fail(&self, why: &str) {
        let mut state = self.state.lock();
        if state.failed.is_none() {
            tracing::error!(why, "the intent log has failed; nothing is acknowledged any more");
            state.failed = Some(why.into());
        }
        self.abandon(state);
    }

    /// Gives every batch without a result an error, and wakes every thread.
    pub(crate) fn abandon(&self, mut state: MutexGuard<'_, State>) {
        let error = state.check_alive().err().unwrap_or(LogError::Closed);
        let mut lost = std::mem::take(&mut state.in_flight);
        lost.append(&mut state.withheld);
        for sealed in std::mem::take(&mut state.queue) {
            if let Sealed::Batch { outcome, .. } = sealed {
                lost.push(outcome);
            }
        }
        let mut wakeups: Vec<Wakeups> = lost.iter().map(|outcome| outcome.set(Err(error.clone()))).collect();
        // Open transactions may still append, but their batch has failed.
        wakeups.push(state.open.outcome.set(Err(error)));
        state.sealing = false;
        drop(state);
        self.gate.notify_all();
        self.writer.notify_all();
        self.checkpointer.notify_all();
        self.progress.notify_all();
        self.watcher.notify_all();
        self.drained.notify_waiters();
        self.freed.notify_waiters();
        for wakeup in wakeups {
            wakeup.wake();
        }
    }
}

impl State {
    /// Asks for a checkpoint, unless every record is covered by one.
    pub(crate) fn ask_checkpoint(&mut self) {
        self.checkpoint_asked = self.dirty_since.is_some();
    }

    /// The log has failed or stopped.
    pub(crate) fn dead(&self) -> bool {
        self.failed.is_some() || self.phase == Phase::Stopped
    }

    pub(crate) fn check_alive(&self) -> Result<(), LogError> {
        match &self.failed {
            Some(why) => Err(LogError::Failed(why.clone())),
            None if self.phase == Phase::Stopped => Err(LogError::Closed),
            None => Ok(()),
        }
    }

    /// `Err` unless transactions may begin.
    pub(crate) fn check_open(&self) -> Result<(), LogError> {
        if let Some(why) = &self.failed {
            return Err(LogError::Failed(why.clone()));
        }
        match self.phase {
            Phase::Running => Ok(()),
            Phase::Replaying => Err(LogError::NotStarted),
            Phase::Closing | Phase::Finishing | Phase::Stopped => Err(LogError::Closed),
        }
    }

    fn full(&self, batch_max: u64) -> bool {
        !self.overfull && self.open.buf.padded_bytes() >= batch_max
    }

    /// Moves the open batch to the writer's queue and opens an empty one. No transaction may be open.
    pub(crate) fn rotate(&mut self) {
        debug_assert_eq!(self.txns, 0, "a batch holds whole transactions");
        self.wanted = false;
        self.overfull = false;
        if self.open.buf.records() == 0 && !self.open.oversize {
            return;
        }
        // The next buffer has room for a batch like this one, since growing copies, under the lock. A small one that was kept is given up.
        let room = self.open.buf.capacity().min(BUFFER_BYTES_KEPT);
        let kept = self.buffers.pop().filter(|memory| memory.capacity() >= room);
        let fresh = Open {
            buf: kept.map_or_else(|| BatchBuf::with_capacity(room), BatchBuf::reusing),
            outcome: Arc::new(Outcome::of(self.open.outcome.batch() + 1)),
            ..Open::default()
        };
        let Open { buf, outcome, snapshot, oversize, commits } = std::mem::replace(&mut self.open, fresh);
        self.shared = if commits > 1 { COMPANY_BATCHES } else { self.shared.saturating_sub(1) };
        self.queued_bytes += buf.padded_bytes();
        if self.shared == 0 {
            self.company.dissolve();
        }
        self.queue.push_back(Sealed::Batch { buf, outcome, commits, snapshot, oversize });
    }

    /// Parts of a snapshot are not yet in the ring.
    pub(crate) fn has_parts(&self) -> bool {
        self.open.snapshot
            || self.queue.iter().any(|sealed| matches!(sealed, Sealed::Batch { snapshot: true, .. }))
    }

    /// Sizes the reserve while a snapshot is taken, which has `bytes` so far. Until its last part it counts only if it is
    /// larger than the snapshot before.
    pub(crate) fn snapshot_grows(&mut self, ring: Ring, bytes: u64, last: bool) {
        if last || bytes > self.snapshot_bytes {
            self.set_reserve(ring, bytes);
        }
    }

    /// Reserves room for two snapshots of `snapshot_bytes` in the ring.
    pub(crate) fn set_reserve(&mut self, ring: Ring, snapshot_bytes: u64) {
        self.snapshot_bytes = snapshot_bytes;
        self.reserve = (2 * snapshot_bytes).max(ring.bytes / RESERVE_RING_FRACTION).min(ring.bytes / 2);
    }

    /// The open batch may wait for company: nothing else asks for the writer.
    pub(crate) fn may_gather(&self) -> bool {
        self.wanted
            && self.phase == Phase::Running
            && self.failed.is_none()
            && self.loss.is_none()
            && matches!(self.stage, Stage::Idle | Stage::Syncing)
            && self.queue.is_empty()
    }

    pub(crate) fn put_in_flight(&mut self, outcome: Arc<Outcome>, commits: u64) {
        self.in_flight.push(outcome);
        self.transactions_in_flight += commits;
    }

    /// After a failure nothing is in flight: [`Core::abandon`] has given it an error, under the same lock.
    fn acknowledge(&mut self, durable: &AtomicU64) -> Vec<Wakeups> {
        self.company.answered(std::mem::take(&mut self.transactions_in_flight), self.open.commits);
        self.withheld.append(&mut self.in_flight);
        self.release(durable)
    }

    /// The volume does not record yet that half of the mirror is lost.
    pub(crate) fn loss_unrecorded(&self) -> bool {
        self.acknowledge_from.is_some_and(|cuts| self.completed < cuts)
    }

    /// Acknowledges the withheld batches, unless they must be withheld longer.
    pub(crate) fn release(&mut self, durable: &AtomicU64) -> Vec<Wakeups> {
        if self.loss_unrecorded() || self.loss.is_some() {
            return Vec::new();
        }
        let answer = |outcome: Arc<Outcome>| {
            durable.fetch_max(outcome.batch(), Ordering::Release);
            outcome.set(Ok(()))
        };
        self.withheld.drain(..).map(answer).collect()
    }

    /// A batch of `length` bytes has been written to the ring.
    pub(crate) fn written(&mut self, buf: BatchBuf, length: u64) {
        self.queued_bytes -= length;
        self.space.head += length;
        self.space.next_seq += buf.records();
        self.recycle(buf);
    }

    /// Whether a batch of `length` bytes leaves the reserve free. A snapshot must leave room for one more, because after a
    /// crash the next start writes its own beside it.
    pub(crate) fn fits(&self, ring: Ring, length: u64, snapshot: bool) -> bool {
        let reserve = if snapshot { self.snapshot_bytes } else { self.reserve };
        length + reserve <= ring.bytes - self.space.used()
    }

    /// A checkpoint is due because the ring fills up.
    pub(crate) fn checkpoint_due(&self, ring: Ring) -> bool {
        self.stage == Stage::Idle && self.dirty_since.is_some() && self.half_full(ring)
    }

    fn recycle(&mut self, buf: BatchBuf) {
        let memory = buf.into_memory();
        if self.buffers.len() < BUFFERS_KEPT && memory.capacity() <= BUFFER_BYTES_KEPT {
            self.buffers.push(memory);
        }
    }

    /// The kept buffers, if nothing was logged since the cut of the checkpoint that has just ended: a log that nobody uses needs none.
    pub(crate) fn spare_buffers(&mut self) -> Vec<AlignedBuf> {
        if self.dirty_since.is_none() { std::mem::take(&mut self.buffers) } else { Vec::new() }
    }

    /// Bytes that are not yet in the ring.
    pub(crate) fn pending(&self) -> u64 {
        self.queued_bytes + self.open.buf.padded_bytes()
    }

    /// The ring is full enough for a checkpoint. Measured as admission measures, without the reserve: admission must not
    /// wait for space before a checkpoint is due.
    pub(crate) fn half_full(&self, ring: Ring) -> bool {
        (self.space.used() + self.pending()) * 100 >= (ring.bytes - self.reserve) * CHECKPOINT_PERCENT
    }

    /// Makes the cut: later records are not covered by this checkpoint. The stage changes under the same lock:
    /// [`State::checkpoint_target`] reads both, and must not count this cut as one that is still to come.
    pub(crate) fn begin_cut(&mut self, stage: Stage) {
        self.stage = stage;
        self.cuts += 1;
        self.dirty_since = None;
        self.checkpoint_asked = false;
    }

    /// Stops transactions from beginning; `true` when none is open.
    pub(crate) fn close_gate(&mut self) -> bool {
        self.sealing = true;
        self.txns == 0
    }

    /// The value of `completed` at which all committed records are covered; `None` if they are now.
    pub(crate) fn checkpoint_target(&self) -> Option<u64> {
        let known = self.acknowledge_from.filter(|_| self.loss_unrecorded());
        let covered = match (self.dirty_since, self.stage) {
            (Some(_), _) | (None, Stage::Wanted) => Some(self.cuts + 1),
            (None, Stage::Idle) => None,
            (None, Stage::Cutting | Stage::Syncing | Stage::Synced | Stage::Absorbing) => Some(self.cuts),
        };
        known.max(covered)
    }

    /// The writer must make a new log.
    pub(crate) fn to_renew(&self) -> bool {
        self.loss.as_ref().is_some_and(|loss| loss.stage == RenewalStage::Noticed)
    }
}
