//! The state that all parties share, and the gate.
//!
//! One mutex, [`Core::state`], guards everything; four condition variables say what changed. It is held for
//! a memory copy at most, never over I/O or a callback.
//!
//! The gate: a transaction joins the open batch when it begins and leaves it when it commits. Sealing
//! closes the gate (nobody joins), waits until those inside have left, takes the batch, and opens the gate
//! again. So all records of a transaction are in one batch, a batch never holds a part of a transaction, and
//! the order of records is the order of the appends.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
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
use crate::loss::{Course, Loss};
use crate::outcome::{Outcome, Wakeups};
use crate::pace::Company;
use crate::ring::Ring;
use crate::stats::Counters;
use crate::step::{Did, Step, Wait};

/// Where the log is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Opened; records are being replayed by the caller.
    Replaying,
    /// Takes records.
    Running,
    /// Takes no new transactions; those open may finish.
    Closing,
    /// Everything is checkpointed; the writer is to mark the log clean and go.
    Finishing,
    /// Threads are gone or told to go.
    Stopped,
}

/// A checkpoint on its way. Set by: checkpoint thread (`Wanted`, `Synced`), writer (the others).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Idle,
    /// The writer is asked for a cut.
    Wanted,
    /// The cut is made; the first part of the snapshot is being taken, without the lock.
    Cutting,
    /// The checkpoint thread is making the volume durable; the writer takes the other parts of the snapshot meanwhile.
    Syncing,
    /// The volume is durable up to the cut; the superblock is not yet written.
    Synced,
    /// The writer itself runs a checkpoint that stands in for batches which do not fit.
    Absorbing,
}

/// A sealed batch on its way to the device, or a mark between two.
#[derive(Debug)]
pub(crate) enum Sealed {
    Batch {
        buf: BatchBuf,
        outcome: Arc<Outcome>,
        /// Transactions that have ended in it.
        commits: u64,
        /// It begins with a part of a checkpoint's snapshot.
        snapshot: bool,
        /// It is larger than the ring can ever take; its records were not kept.
        oversize: bool,
    },
    /// The cut of a checkpoint: what follows is replayed after it.
    Cut,
}

/// The batch that transactions join.
#[derive(Debug, Default)]
pub(crate) struct Open {
    pub(crate) buf: BatchBuf,
    pub(crate) outcome: Arc<Outcome>,
    pub(crate) snapshot: bool,
    pub(crate) oversize: bool,
    /// Transactions that have ended in it.
    pub(crate) commits: u64,
}

/// The part of the ring that is in use. Changed by the writer only.
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
    /// There are no threads: see [`crate::stepper`].
    pub(crate) stepped: bool,
    pub(crate) failed: Option<Arc<str>>,
    /// The gate is closed.
    pub(crate) sealing: bool,
    /// Transactions inside the gate.
    pub(crate) txns: u64,
    /// Those who wait to begin.
    pub(crate) at_gate: u64,
    /// The gate was closed in vain and is open for those who wait at it.
    pub(crate) reopened: bool,
    /// The open batch is full, but had to take one more.
    overfull: bool,
    pub(crate) open: Open,
    /// Somebody waits for the open batch, or it is large.
    pub(crate) wanted: bool,
    pub(crate) queue: VecDeque<Sealed>,
    /// What the writer or a leader has taken and not yet answered.
    pub(crate) in_flight: Vec<Arc<Outcome>>,
    /// A waiter writes its batch itself ([`crate::lead`]); the device is its.
    pub(crate) leading: bool,
    /// Batches since one had several transactions, counted down from [`COMPANY_BATCHES`].
    pub(crate) shared: u32,
    /// Transactions of late at work together, and those in `in_flight`.
    pub(crate) company: Company,
    pub(crate) flying: u64,
    /// So many transactions in the open batch wake the writer, which waits for company.
    pub(crate) gathering: Option<u64>,
    /// Bytes in the queue and with the writer.
    pub(crate) queued_bytes: u64,
    pub(crate) space: Space,
    /// Bytes of the ring kept free for a snapshot.
    pub(crate) reserve: u64,
    /// Bytes that the last snapshot takes in the ring.
    pub(crate) snapshot_bytes: u64,
    /// Number of the last completed checkpoint.
    pub(crate) checkpoint: u64,
    pub(crate) stage: Stage,
    /// When the first record was logged that no cut covers yet.
    pub(crate) dirty_since: Option<Instant>,
    /// Somebody waits for a checkpoint.
    pub(crate) checkpoint_asked: bool,
    /// A half of a mirror is lost: nothing is acknowledged until so many checkpoints are completed (of `cuts`).
    pub(crate) alone_from: Option<u64>,
    /// What is durable on the half that is left, and waits for that.
    withheld: Vec<Arc<Outcome>>,
    /// The log was found lost: nothing is acknowledged until another has taken its place.
    pub(crate) loss: Option<Loss>,
    /// Cuts made and checkpoints completed in this run, for those who wait.
    pub(crate) cuts: u64,
    pub(crate) completed: u64,
    buffers: Vec<AlignedBuf>,
}

/// How long things may take; see [`crate::Config`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) checkpoint_after: Duration,
    pub(crate) intent_wait: Duration,
    pub(crate) lead_flush: Duration,
}

/// Everything that the log, its transactions, tickets and threads share.
pub(crate) struct Core {
    /// Held by the log's handle and the writer: a ticket that is kept keeps no device open.
    pub(crate) device: Weak<dyn Device>,
    /// See [`Device::half_lost`].
    pub(crate) half_lost: Arc<AtomicBool>,
    pub(crate) ring: Ring,
    pub(crate) identity: Identity,
    pub(crate) batch_max: u64,
    pub(crate) timing: Timing,
    pub(crate) state: Mutex<State>,
    /// Waited on by those who want to begin.
    pub(crate) gate: Condvar,
    /// Waited on by the writer.
    pub(crate) writer: Condvar,
    /// Waited on by the checkpoint thread.
    pub(crate) checkpointer: Condvar,
    /// Waited on by callers of checkpoint and shutdown, and by blocked admissions.
    pub(crate) progress: Condvar,
    /// Waited on by the thread that looks whether the log is still there.
    pub(crate) watcher: Condvar,
    /// A batch was written.
    pub(crate) drained: Notify,
    /// A checkpoint freed space.
    pub(crate) freed: Notify,
    pub(crate) intents: Intents,
    /// The number of the last batch that was acknowledged. Set under the lock of `state`.
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
                flying: 0,
                gathering: None,
                queued_bytes: 0,
                space,
                reserve: ring.bytes / RESERVE_RING_FRACTION,
                snapshot_bytes: 0,
                checkpoint,
                stage: Stage::Idle,
                dirty_since: None,
                checkpoint_asked: false,
                alone_from: None,
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

    /// Joins the open batch, and says its number. Waits only while a batch is being sealed.
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
                // Nobody else could end what is open.
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
            // The batch is full, but a transaction inside does not end; let this one in as well.
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
        // What the ring can never take is not kept: a checkpoint will stand for it.
        if open.buf.payload_bytes() as u64 + length as u64 >= self.ring.bytes || !open.buf.push(parts) {
            open.oversize = true;
        }
        self.counters.record(length as u64);
        if state.dirty_since.is_none() {
            state.dirty_since = Some(Instant::now());
            self.checkpointer.notify_one();
        }
    }

    /// Leaves the gate. The outcome is that of the batch that was joined.
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
                // A quiet moment: close the full batch here, so that nobody has to wait for the writer.
                state.rotate();
                self.writer.notify_one();
                self.gate.notify_all();
            }
        }
        outcome
    }

    /// What a reply must wait for that rests on records of `batch`: `None` once they are durable.
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
            // It was given up when the log failed or stopped.
            None => {
                let lost = Outcome::of(batch);
                let _ = lost.set(Err(state.check_alive().err().unwrap_or(LogError::Closed)));
                Arc::new(lost)
            }
        };
        Some(outcome)
    }

    /// Somebody waits for `outcome`: if that is the open batch, the writer is told.
    pub(crate) fn want(&self, outcome: &Arc<Outcome>) {
        let mut state = self.state.lock();
        if Arc::ptr_eq(&state.open.outcome, outcome) && !state.wanted {
            state.wanted = true;
            self.writer.notify_one();
        }
    }

    /// Writes the sealed bytes of `buf` at the head. For whoever has the device: the writer, or a leader.
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

    /// Makes a batch durable at the head of the ring; its length there.
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

    /// What was in flight is durable: answers it, and wakes those who wait for it.
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

    /// When a half of a mirror was lost by the writes so far: from here on it must be known, on the volume, that this
    /// half has not all. Its tag may be one checkpoint ahead of a log, so two are needed.
    pub(crate) fn look_for_loss(&self, state: &mut State) {
        if state.alone_from.is_none() && self.half_lost.load(Ordering::Acquire) {
            state.alone_from = Some(state.cuts + CHECKPOINTS_ALONE);
            self.checkpointer.notify_one();
        }
    }

    /// Lets those who wait begin.
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
                // A half of a mirror may be lost by the checkpoint itself, which takes further ones.
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

    /// Wakes the writer; the lock makes sure that it is either waiting or about to look.
    pub(crate) fn wake_writer(&self) {
        let _state = self.state.lock();
        self.writer.notify_one();
    }

    /// Makes every waiter fail, now and for ever.
    pub(crate) fn fail(&self, why: &str) {
        let mut state = self.state.lock();
        if state.failed.is_none() {
            tracing::error!(why, "the intent log has failed; nothing is acknowledged any more");
            state.failed = Some(why.into());
        }
        self.abandon(state);
    }

    /// Gives every batch that has no result yet an error, and wakes everybody.
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
        // Open transactions may still append; their batch is already lost.
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
    /// A checkpoint is wanted, if there is anything that none covers.
    pub(crate) fn ask_checkpoint(&mut self) {
        self.checkpoint_asked = self.dirty_since.is_some();
    }

    /// Nothing will be acknowledged any more.
    pub(crate) fn dead(&self) -> bool {
        self.failed.is_some() || self.phase == Phase::Stopped
    }

    /// `Ok` while the log can still acknowledge.
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

    /// The open batch takes no further transactions.
    fn full(&self, batch_max: u64) -> bool {
        !self.overfull && self.open.buf.padded_bytes() >= batch_max
    }

    /// Moves the open batch to the writer's queue and opens an empty one. No transaction may be inside.
    pub(crate) fn rotate(&mut self) {
        debug_assert_eq!(self.txns, 0, "a batch holds whole transactions");
        self.wanted = false;
        self.overfull = false;
        if self.open.buf.records() == 0 && !self.open.oversize {
            return;
        }
        let fresh = Open {
            buf: self.buffers.pop().map(BatchBuf::reusing).unwrap_or_default(),
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

    /// Parts of a snapshot are on their way to the ring.
    pub(crate) fn has_parts(&self) -> bool {
        self.open.snapshot
            || self.queue.iter().any(|sealed| matches!(sealed, Sealed::Batch { snapshot: true, .. }))
    }

    /// A snapshot that is being taken has so many bytes up to its latest part. Its size is known after the last; until then the one
    /// before says how large it may become.
    pub(crate) fn snapshot_grows(&mut self, ring: Ring, bytes: u64, last: bool) {
        if last || bytes > self.snapshot_bytes {
            self.set_reserve(ring, bytes);
        }
    }

    /// Sizes the reserve by the last snapshot, of `snapshot_bytes` in the ring: room for two like it.
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

    /// What was taken from the queue is about to be written.
    pub(crate) fn take_off(&mut self, outcome: Arc<Outcome>, commits: u64) {
        self.in_flight.push(outcome);
        self.flying += commits;
    }

    /// What the writer had in flight is durable. After a failure there is nothing left to acknowledge:
    /// [`Core::abandon`] has answered, under the same lock.
    fn acknowledge(&mut self, durable: &AtomicU64) -> Vec<Wakeups> {
        self.company.answered(std::mem::take(&mut self.flying), self.open.commits);
        self.withheld.append(&mut self.in_flight);
        self.release(durable)
    }

    /// The volume does not say yet that a half of the mirror is lost.
    pub(crate) fn must_be_known(&self) -> bool {
        self.alone_from.is_some_and(|cuts| self.completed < cuts)
    }

    /// What was withheld, once nothing stands in its way.
    pub(crate) fn release(&mut self, durable: &AtomicU64) -> Vec<Wakeups> {
        if self.must_be_known() || self.loss.is_some() {
            return Vec::new();
        }
        let answer = |outcome: Arc<Outcome>| {
            durable.fetch_max(outcome.batch(), Ordering::Release);
            outcome.set(Ok(()))
        };
        self.withheld.drain(..).map(answer).collect()
    }

    /// A batch of `length` bytes stands in the ring.
    pub(crate) fn written(&mut self, buf: BatchBuf, length: u64) {
        self.queued_bytes -= length;
        self.space.head += length;
        self.space.next_seq += buf.records();
        self.recycle(buf);
    }

    /// A batch of `length` bytes leaves the ring its reserve; a snapshot leaves room for one more: after a crash
    /// the next start puts its own beside it.
    pub(crate) fn fits(&self, ring: Ring, length: u64, snapshot: bool) -> bool {
        let reserve = if snapshot { self.snapshot_bytes } else { self.reserve };
        length + reserve <= ring.bytes - self.space.used()
    }

    /// A checkpoint is due because the ring fills up.
    pub(crate) fn checkpoint_due(&self, ring: Ring) -> bool {
        self.stage == Stage::Idle && self.dirty_since.is_some() && self.half_full(ring)
    }

    /// Takes a batch's memory back.
    fn recycle(&mut self, buf: BatchBuf) {
        let memory = buf.into_memory();
        if self.buffers.len() < BUFFERS_KEPT && memory.capacity() <= BUFFER_BYTES_KEPT {
            self.buffers.push(memory);
        }
    }

    /// Bytes that are not yet on the device.
    pub(crate) fn pending(&self) -> u64 {
        self.queued_bytes + self.open.buf.padded_bytes()
    }

    /// The ring is full enough for a checkpoint. Measured as admission measures, without the reserve: nobody may
    /// be made to wait for space before a checkpoint is due.
    pub(crate) fn half_full(&self, ring: Ring) -> bool {
        (self.space.used() + self.pending()) * 100 >= (ring.bytes - self.reserve) * CHECKPOINT_PERCENT
    }

    /// From here on records count as not covered by a checkpoint. The stage changes in the same moment: who asks
    /// for a checkpoint reads both, and must not take this cut for one that is still to come.
    pub(crate) fn begin_cut(&mut self, stage: Stage) {
        self.stage = stage;
        self.cuts += 1;
        self.dirty_since = None;
        self.checkpoint_asked = false;
    }

    /// Lets nobody begin; `true` when no transaction is open either.
    pub(crate) fn close_gate(&mut self) -> bool {
        self.sealing = true;
        self.txns == 0
    }

    /// The completed-checkpoint count to wait for so that all committed records are covered; `None` if they are.
    pub(crate) fn checkpoint_target(&self) -> Option<u64> {
        let known = self.alone_from.filter(|_| self.must_be_known());
        let covered = match (self.dirty_since, self.stage) {
            (Some(_), _) | (None, Stage::Wanted) => Some(self.cuts + 1),
            (None, Stage::Idle) => None,
            (None, Stage::Cutting | Stage::Syncing | Stage::Synced | Stage::Absorbing) => Some(self.cuts),
        };
        known.max(covered)
    }

    /// The writer is to make a new log.
    pub(crate) fn to_renew(&self) -> bool {
        self.loss.as_ref().is_some_and(|loss| loss.course == Course::Noticed)
    }
}
