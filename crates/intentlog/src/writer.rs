//! The thread that seals and writes batches and moves the tail. It owns the device, except while it is idle and a waiting
//! thread leads ([`crate::lead`]).
//!
//! It works in steps that never wait ([`Writer::step`]); the thread waits between them ([`Writer::run`]). A simulation runs
//! the same steps in an order of its own ([`crate::stepper`]).
//!
//! One flush is in flight at a time; the next batch collects meanwhile. Invariants:
//! - a batch is written only when every earlier one is durable, so a torn batch is the last one;
//! - a ticket succeeds only after the flush that covers it returned success and nothing has failed before;
//! - space is used again only after the superblock that frees it is durable;
//! - an ordinary batch leaves [`State::reserve`](crate::core::State) bytes free, so that a snapshot, and
//!   with it a checkpoint, is always possible.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::core::{Core, Phase, Sealed, Stage, State};
use crate::device::Current;
use crate::faults::{self, Bug, point};
use crate::format::{BatchBuf, Superblock};
use crate::limits::{GATE_WAIT_MAX, SNAPSHOT_PART_BYTES, SNAPSHOT_PART_RING_FRACTION};
use crate::owner::{self, Checkpoint, Snapshot};
use crate::pace::Gathering;
use crate::step::{Did, Step, Wait};
use crate::superblocks::Superblocks;
use crate::task::{Renewal, SealPhase, Task};

/// Position and sequence number where the tail will be once a checkpoint is complete.
#[derive(Debug, Clone, Copy)]
struct Cut {
    position: u64,
    seq: u64,
    /// The whole snapshot that begins there is durable, or there is none.
    durable: bool,
}

pub(crate) struct Writer {
    pub(crate) core: Arc<Core>,
    pub(crate) device: Arc<Current>,
    pub(crate) checkpoint: Arc<dyn Checkpoint>,
    pub(crate) superblocks: Superblocks,
    cut: Option<Cut>,
    taking: Option<SnapshotInProgress>,
    pub(crate) task: Option<Task>,
}

/// A checkpoint's snapshot whose last part is not taken yet.
struct SnapshotInProgress {
    snapshot: Box<dyn Snapshot>,
    /// Bytes of the parts so far in the ring.
    bytes: u64,
}

enum Todo {
    Stop,
    Renew,
    Superblock,
    Take,
    Seal { cut: bool },
    Finish,
}

impl Writer {
    pub(crate) fn new(
        core: Arc<Core>,
        device: Arc<Current>,
        checkpoint: Arc<dyn Checkpoint>,
        superblocks: Superblocks,
    ) -> Self {
        Writer { core, device, checkpoint, superblocks, cut: None, taking: None, task: None }
    }

    /// The thread: runs until shutdown, drop or failure.
    pub(crate) fn run(mut self) {
        // Waits for company are tens of microseconds, and by default a timer may fire 50 microseconds late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        loop {
            match self.step() {
                Step::Did(_) => {}
                Step::Ended => return,
                Step::Idle => self.await_work(),
                Step::Blocked(wait) => self.wait(wait),
            }
        }
    }

    /// Works without waiting, up to the next change that another thread can observe.
    pub(crate) fn step(&mut self) -> Step {
        if self.core.state.lock().dead() {
            return Step::Ended;
        }
        let stepped = match self.task.take() {
            None => self.begin(),
            Some(Task::Seal { cut, phase }) => Ok(self.seal(cut, phase)),
            Some(Task::Put { buf, snapshot, oversize }) => self.put(buf, snapshot, oversize),
            Some(Task::Absorb { length }) => Ok(self.absorb(length)),
            Some(Task::AbsorbSync { records, number }) => self.absorb_sync(records, number),
            Some(Task::AbsorbWrite { records }) => self.absorb_write(&records),
            Some(Task::Renew(next)) => self.renew(next),
        };
        stepped.unwrap_or_else(|why| {
            self.core.fail(&why);
            Step::Ended
        })
    }

    fn begin(&mut self) -> Result<Step, String> {
        let mut state = self.core.state.lock();
        match self.todo(&state) {
            None => Ok(Step::Idle),
            Some(Todo::Stop) => Ok(Step::Ended),
            Some(Todo::Renew) => {
                drop(state);
                self.renew(Renewal::Cut)
            }
            Some(Todo::Superblock) => {
                drop(state);
                self.finish_checkpoint()
            }
            Some(Todo::Take) => match state.queue.pop_front() {
                None => Ok(Step::Idle),
                Some(Sealed::Batch { buf, outcome, commits, snapshot, oversize }) => {
                    state.put_in_flight(outcome, commits);
                    drop(state);
                    self.put(buf, snapshot, oversize)
                }
                Some(Sealed::Cut) => {
                    drop(state);
                    self.place_cut();
                    Ok(Step::Did(Did::CutPlaced))
                }
            },
            Some(Todo::Seal { cut }) => {
                drop(state);
                Ok(self.seal(cut, SealPhase::Start))
            }
            Some(Todo::Finish) => {
                drop(state);
                self.mark_clean().map_err(|error| format!("writing the clean mark: {error}"))?;
                Ok(Step::Did(Did::MarkedClean))
            }
        }
    }

    /// The next task; `None`: there is nothing to do. Pure.
    fn todo(&self, state: &State) -> Option<Todo> {
        if state.dead() {
            return Some(Todo::Stop);
        }
        if state.leading {
            return None;
        }
        if state.to_renew() {
            return Some(Todo::Renew);
        }
        if state.stage == Stage::Synced && self.cut.is_some_and(|cut| cut.durable) {
            return Some(Todo::Superblock);
        }
        if !state.queue.is_empty() {
            return Some(Todo::Take);
        }
        if state.stage == Stage::Wanted {
            return Some(Todo::Seal { cut: true });
        }
        // With `Synced` only the last part of the snapshot is missing, which is in the open batch.
        if state.wanted || self.taking.is_some() || state.stage == Stage::Synced {
            return Some(Todo::Seal { cut: false });
        }
        if state.phase == Phase::Finishing && state.stage == Stage::Idle {
            return Some(match state.open.buf.records() {
                0 => Todo::Finish,
                _ => Todo::Seal { cut: false },
            });
        }
        None
    }

    fn await_work(&self) {
        let mut state = self.core.state.lock();
        while self.todo(&state).is_none() {
            self.core.writer.wait(&mut state);
        }
    }

    fn wait(&mut self, wait: Wait) {
        match wait {
            Wait::Company => self.await_company(),
            Wait::Requests => self.await_requests_in_hand(),
            Wait::Gate => self.await_last_out(),
            Wait::Sync => {
                let mut state = self.core.state.lock();
                while state.stage == Stage::Syncing && !state.dead() {
                    self.core.writer.wait(&mut state);
                }
            }
            // Only a shutdown waits for these.
            Wait::Checkpoint | Wait::Writer => {}
        }
    }

    /// Moves the open batch to the queue; with `cut`, queues the cut behind it and begins a snapshot. The next batch begins
    /// with the next part of the snapshot, if one is being taken.
    fn seal(&mut self, cut: bool, mut phase: SealPhase) -> Step {
        let core = self.core.clone();
        let mut state = core.state.lock();
        if let SealPhase::Company { before } = phase {
            let here = state.open.commits;
            state.company.waited(before, here);
            core.counters.company_waits.fetch_add(1, Relaxed);
            core.counters.company_vain.fetch_add(u64::from(here <= before), Relaxed);
            phase = SealPhase::CompanyDone;
        }
        if let SealPhase::Start = phase {
            let before = state.open.commits;
            if !cut && state.may_gather() && state.company.waits(before) {
                self.task = Some(Task::Seal { cut, phase: SealPhase::Company { before } });
                return Step::Blocked(Wait::Company);
            }
            phase = SealPhase::CompanyDone;
        }
        if let SealPhase::CompanyDone = phase {
            phase = match state.wanted.then(|| core.intents.close()).flatten() {
                Some(generation) => {
                    core.counters.intent_waits.fetch_add(1, Relaxed);
                    generation.set_awaited();
                    SealPhase::Requests(generation)
                }
                None => SealPhase::Ready,
            };
        }
        if matches!(&phase, SealPhase::Requests(generation) if !generation.is_empty()) {
            self.task = Some(Task::Seal { cut, phase });
            return Step::Blocked(Wait::Requests);
        }
        if !state.close_gate() {
            self.task = Some(Task::Seal { cut, phase: SealPhase::Ready });
            return Step::Blocked(Wait::Gate);
        }
        state.rotate();
        if cut {
            state.queue.push_back(Sealed::Cut);
            state.begin_cut(Stage::Cutting);
            drop(state);
            self.taking = Some(SnapshotInProgress { snapshot: self.checkpoint.snapshot(), bytes: 0 });
            self.take_part();
            state = core.state.lock();
            state.stage = Stage::Syncing;
            core.checkpointer.notify_one();
        } else if self.taking.is_some() {
            drop(state);
            self.take_part();
            state = core.state.lock();
        }
        state.sealing = false;
        drop(state);
        core.gate.notify_all();
        if cut {
            point("checkpoint.cut");
        }
        Step::Did(if cut { Did::Cut } else { Did::Sealed })
    }

    /// Puts the next part of the snapshot into the open batch, which is empty because the gate is closed.
    fn take_part(&mut self) {
        let ring = self.core.ring;
        let bytes = SNAPSHOT_PART_BYTES.min(ring.bytes / SNAPSHOT_PART_RING_FRACTION);
        let Some(mut taking) = self.taking.take() else { return };
        let part = taking.snapshot.part(bytes as usize);
        let mut state = self.core.state.lock();
        for record in &part.records {
            let open = &mut state.open;
            open.snapshot = true;
            open.oversize |= !open.buf.push(&[record]);
        }
        taking.bytes += state.open.buf.padded_bytes();
        state.snapshot_grows(ring, taking.bytes, part.last);
        if !part.last {
            self.taking = Some(taking);
        } else if !state.has_parts()
            && let Some(cut) = &mut self.cut
        {
            // The last part is empty, and the earlier ones are written.
            cut.durable = true;
        }
    }

    /// Waits, within bounds, until the open batch has as many transactions as recently ran together ([`crate::pace`]).
    fn await_company(&mut self) {
        let Some(Task::Seal { phase, .. }) = &mut self.task else { return };
        let mut state = self.core.state.lock();
        let flush = self.core.counters.recent_flush().unwrap_or_default();
        let Some(mut gathering) = Gathering::begin(Instant::now(), state.open.commits, flush) else {
            *phase = SealPhase::CompanyDone;
            return;
        };
        let all = state.company.most();
        state.gathering = Some(all);
        while state.may_gather() && state.open.commits < all {
            let Some(until) = gathering.until(Instant::now(), state.open.commits) else { break };
            self.core.writer.wait_until(&mut state, until);
        }
        state.gathering = None;
    }

    /// Waits, within bounds, for the requests that were received before the seal began and have not yet committed.
    fn await_requests_in_hand(&mut self) {
        let Some(Task::Seal { phase: SealPhase::Requests(generation), .. }) = &self.task else { return };
        let until = Instant::now() + self.core.timing.intent_wait;
        let mut state = self.core.state.lock();
        while !generation.is_empty() && !state.dead() {
            if self.core.writer.wait_until(&mut state, until).timed_out() {
                drop(state);
                return self.stop_waiting_for_requests();
            }
        }
    }

    /// Continues the seal without the announced requests.
    pub(crate) fn stop_waiting_for_requests(&mut self) {
        if let Some(Task::Seal { phase, .. }) = &mut self.task {
            self.core.counters.intent_timeouts.fetch_add(1, Relaxed);
            *phase = SealPhase::Ready;
        }
    }

    /// Waits, with the gate closed, until no transaction is open.
    ///
    /// This would never end if an open transaction needed a lock whose holder waits to begin. So after a while the gate
    /// opens again for the threads that wait at it; the seal has decided nothing yet.
    fn await_last_out(&self) {
        let mut state = self.core.state.lock();
        let mut until = Instant::now() + GATE_WAIT_MAX;
        while state.txns > 0 && !state.dead() {
            if self.core.writer.wait_until(&mut state, until).timed_out() {
                self.core.counters.gate_reopened.fetch_add(1, Relaxed);
                state.sealing = false;
                state.reopened = true;
                self.core.gate.notify_all();
                until = Instant::now() + GATE_WAIT_MAX;
                while state.at_gate > 0 && !state.dead() {
                    if self.core.writer.wait_until(&mut state, until).timed_out() {
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
    }

    fn place_cut(&mut self) {
        let state = self.core.state.lock();
        // Without a snapshot the tail can move at once, to the next batch.
        let durable = self.taking.is_none() && !state.has_parts();
        self.cut = Some(Cut { position: state.space.head, seq: state.space.next_seq, durable });
    }

    fn put(&mut self, mut buf: BatchBuf, snapshot: bool, oversize: bool) -> Result<Step, String> {
        let length = buf.padded_bytes();
        let (fits, stage) = {
            let state = self.core.state.lock();
            (state.fits(self.core.ring, length, snapshot), state.stage)
        };
        if oversize || !fits {
            // A checkpoint whose snapshot is already in the ring will free space.
            return match (self.cut.is_some_and(|cut| cut.durable), stage) {
                (true, Stage::Syncing) => {
                    self.task = Some(Task::Put { buf, snapshot, oversize });
                    Ok(Step::Blocked(Wait::Sync))
                }
                (true, Stage::Synced) => {
                    self.task = Some(Task::Put { buf, snapshot, oversize });
                    self.finish_checkpoint()
                }
                _ => Ok(self.absorb(length)),
            };
        }
        self.core
            .write_batch(&*self.device, &mut buf, false)
            .map_err(|error| format!("writing a batch: {error}"))?;
        let mut state = self.core.state.lock();
        state.written(buf, length);
        let last = snapshot && self.taking.is_none() && !state.has_parts();
        if last && let Some(cut) = &mut self.cut {
            cut.durable = true;
        }
        if state.checkpoint_due(self.core.ring) {
            self.core.checkpointer.notify_one();
        }
        self.core.acknowledge(state);
        Ok(Step::Did(Did::Wrote))
    }

    fn finish_checkpoint(&mut self) -> Result<Step, String> {
        if let Some(mut cut) = self.cut.take() {
            if faults::bug(Bug::CutLate) {
                let space = self.core.state.lock().space;
                (cut.position, cut.seq) = (space.head, space.next_seq);
            }
            self.move_tail(cut.position, cut.seq)?;
        }
        Ok(Step::Did(Did::MovedTail))
    }

    fn move_tail(&mut self, tail: u64, tail_seq: u64) -> Result<(), String> {
        let number = self.superblocks.last.checkpoint + 1;
        let space = self.core.state.lock().space;
        let durable_end = (space.head, space.next_seq);
        let next = Superblock { tail, tail_seq, checkpoint: number, durable_end, ..self.superblocks.last };
        self.write_superblock(next).map_err(|error| format!("writing a superblock: {error}"))?;
        point("checkpoint.freed");
        let mut state = self.core.state.lock();
        state.space.tail = tail;
        state.checkpoint = number;
        state.stage = Stage::Idle;
        state.completed = state.cuts;
        self.core.look_for_loss(&mut state);
        let wakeups = state.release(&self.core.durable);
        let unused = state.spare_buffers();
        drop(state);
        drop(unused);
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

    /// A batch does not fit, and no checkpoint under way will free space. Its effects have been applied, so a checkpoint
    /// makes them durable as well as the ring would. It acknowledges everything that waits; only the snapshot is written,
    /// marked as the point where replay starts.
    fn absorb(&mut self, length: u64) -> Step {
        let core = self.core.clone();
        let mut state = core.state.lock();
        let wait = match state.stage {
            Stage::Syncing => Some(Wait::Sync),
            _ => (!state.close_gate()).then_some(Wait::Gate),
        };
        if let Some(wait) = wait {
            self.task = Some(Task::Absorb { length });
            return Step::Blocked(wait);
        }
        state.queued_bytes -= length;
        self.take_all(&mut state);
        state.begin_cut(Stage::Absorbing);
        let number = state.checkpoint + 1;
        drop(state);
        let records = owner::all_records(self.checkpoint.snapshot());
        core.open_gate();
        point("checkpoint.cut");
        self.task = Some(Task::AbsorbSync { records, number });
        Step::Did(Did::AbsorbCut)
    }

    /// Takes every batch that waits; a checkpoint will acknowledge them.
    pub(crate) fn take_all(&mut self, state: &mut State) {
        state.rotate();
        while let Some(sealed) = state.queue.pop_front() {
            if let Sealed::Batch { buf, outcome, commits, .. } = sealed {
                state.queued_bytes -= buf.padded_bytes();
                state.put_in_flight(outcome, commits);
            }
        }
        (self.cut, self.taking) = (None, None);
    }

    fn absorb_sync(&mut self, records: Vec<Vec<u8>>, number: u64) -> Result<Step, String> {
        let start = Instant::now();
        self.checkpoint.sync(number).map_err(|error| format!("making the volume durable: {error}"))?;
        self.core.counters.checkpoint(start.elapsed());
        point("checkpoint.synced");
        self.task = Some(Task::AbsorbWrite { records });
        Ok(Step::Did(Did::AbsorbSynced))
    }

    fn absorb_write(&mut self, records: &[Vec<u8>]) -> Result<Step, String> {
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
        Ok(Step::Did(Did::Absorbed))
    }

    /// Marks the log as shut down cleanly; everything is checkpointed and written.
    fn mark_clean(&mut self) -> io::Result<()> {
        let space = self.core.state.lock().space;
        let next = Superblock { clean_end: Some((space.head, space.next_seq)), ..self.superblocks.last };
        // Both: if one is damaged later, the other must not say that there are records to replay.
        for _ in 0..2 {
            self.write_superblock(next)?;
        }
        let mut state = self.core.state.lock();
        state.phase = Phase::Stopped;
        self.core.abandon(state);
        Ok(())
    }
}
