//! Replaces a lost log with a new one while the server runs.
//!
//! Everything acknowledged has been applied, so it can be made durable without the log. When the log is found lost
//! ([`crate::watch`]), nothing more is acknowledged. The writer finishes its task and then does what a clean stop and the next
//! start would do. The gate is closed, so nothing is applied meanwhile. Each step is durable before the next begins. So
//! whatever interrupts them, the next start has everything acknowledged:
//!
//! | step | the volume says | at the log's path | the next start |
//! |---|---|---|---|
//! | the cut is made: every waiting batch is taken, with a snapshot | in use, checkpoint n or n + 1 | nothing, or what somebody has put there | as after the loss alone: refused |
//! | set aside: durable, and marked | stopped cleanly, n + 1 | the same | makes a new log |
//! | built: snapshot and superblocks on a device without a name | the same | the same | the same |
//! | placed | the same | the new log: shut down cleanly, n + 1 | takes it |
//! | resumed | in use, n + 2 | the same | takes it |
//! | renewed | in use, n + 2 | in use, n + 2 | takes it |
//!
//! The new log has the same identity. If the lost one comes back, it is at checkpoint n, and a volume that was stopped at
//! n + 1 or is in use at n + 2 refuses it. The new ring is empty, so positions and sequence numbers continue.
//!
//! An error up to "placed" is reported to the log's owner ([`Checkpoint::lost`](crate::Checkpoint::lost)) and fails the log. A
//! later error is one of the new log, which fails and holds everything.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::core::{Core, Phase, Stage};
use crate::device::Device;
use crate::faults::point;
use crate::format::{BatchBuf, Superblock};
use crate::loss::{Loss, RenewalStage};
use crate::owner::{self, Renewed};
use crate::step::{Did, Step, Wait};
use crate::superblocks::Superblocks;
use crate::task::{NewLog, Renewal, Task};
use crate::writer::Writer;

impl Core {
    /// The log is lost: acknowledges nothing from here on until a new one has replaced it. `false`: that cannot be tried.
    pub(crate) fn hold(&self, why: &str) -> bool {
        let mut state = self.state.lock();
        if state.dead() || state.phase == Phase::Replaying || state.loss.is_some() {
            return false;
        }
        state.loss =
            Some(Loss { why: why.to_owned(), noticed: Instant::now(), stage: RenewalStage::Noticed });
        self.writer.notify_one();
        true
    }

    fn why_lost(&self) -> String {
        self.state.lock().loss.as_ref().map_or_else(String::new, |loss| loss.why.clone())
    }
}

impl Writer {
    pub(crate) fn renew(&mut self, next: Renewal) -> Result<Step, String> {
        let done = match next {
            Renewal::Cut => return Ok(self.loss_cut()),
            Renewal::SetAside { records } => self.set_aside(records),
            Renewal::Build { records } => self.build(&records),
            Renewal::Place { made } => self.place(made),
            Renewal::Resume { aside } => return self.resume(aside),
            Renewal::Renew { aside } => return self.open_again(aside),
        };
        Ok(done.unwrap_or_else(|reason| {
            let why = format!("{}; {reason}", self.core.why_lost());
            self.checkpoint.lost(&why);
            self.core.fail(&why);
            Step::Ended
        }))
    }

    fn loss_cut(&mut self) -> Step {
        let core = self.core.clone();
        let mut state = core.state.lock();
        let wait = match state.stage {
            Stage::Syncing => Some(Wait::Sync),
            _ => (!state.close_gate()).then_some(Wait::Gate),
        };
        if let Some(wait) = wait {
            self.task = Some(Task::Renew(Renewal::Cut));
            return Step::Blocked(wait);
        }
        match &mut state.loss {
            Some(loss) if loss.stage == RenewalStage::Noticed => loss.stage = RenewalStage::Renewing,
            // It took too long, and the watch thread has given up.
            _ => {
                drop(state);
                core.open_gate();
                return Step::Idle;
            }
        }
        self.take_all(&mut state);
        state.begin_cut(Stage::Absorbing);
        drop(state);
        // The gate stays closed.
        let records = owner::all_records(self.checkpoint.snapshot());
        point("lost.cut");
        self.task = Some(Task::Renew(Renewal::SetAside { records }));
        Step::Did(Did::LossCut)
    }

    fn set_aside(&mut self, records: Vec<Vec<u8>>) -> Result<Step, String> {
        let number = self.core.state.lock().checkpoint + 1;
        let start = Instant::now();
        self.checkpoint.set_aside(number, &self.core.why_lost()).map_err(|e| e.to_string())?;
        self.core.counters.checkpoint(start.elapsed());
        self.task = Some(Task::Renew(Renewal::Build { records }));
        Ok(Step::Did(Did::SetAside))
    }

    fn build(&mut self, records: &[Vec<u8>]) -> Result<Step, String> {
        let core = self.core.clone();
        let device = self.device.successor()?;
        if device.bytes() < self.device.bytes() {
            return Err("the new log is smaller than the lost one".to_owned());
        }
        let mut buf = BatchBuf::default();
        let fits = records.iter().all(|record| buf.push(&[record]));
        let length = buf.padded_bytes();
        if !fits || length > core.ring.bytes {
            return Err(format!("a snapshot of {} bytes does not fit into the new log", buf.payload_bytes()));
        }
        let (space, number) = {
            let state = core.state.lock();
            (state.space, state.checkpoint + 1)
        };
        let failed = |e: std::io::Error| format!("writing the new log: {e}");
        if buf.records() > 0 {
            core.put_batch(&*device, &mut buf, &space, number, false).map_err(failed)?;
        }
        let end = (space.head + length, space.next_seq + buf.records());
        let Superblocks { last, slot } = self.superblocks;
        let mut superblocks = Superblocks { last, slot };
        let next = Superblock {
            tail: space.head,
            tail_seq: space.next_seq,
            checkpoint: number,
            durable_end: end,
            clean_end: Some(end),
            ..last
        };
        for _ in 0..2 {
            superblocks.write(&*device, next).map_err(failed)?;
        }
        point("lost.built");
        let made = NewLog { device, superblocks, length, records: buf.records() };
        self.task = Some(Task::Renew(Renewal::Place { made }));
        Ok(Step::Did(Did::Built))
    }

    fn place(&mut self, made: NewLog) -> Result<Step, String> {
        let aside = made.device.take_place()?;
        point("lost.placed");
        self.device.replace(made.device);
        self.superblocks = made.superblocks;
        let mut state = self.core.state.lock();
        state.space.tail = state.space.head;
        state.space.head += made.length;
        state.space.next_seq += made.records;
        state.checkpoint += 1;
        state.set_reserve(self.core.ring, made.length);
        self.task = Some(Task::Renew(Renewal::Resume { aside }));
        Ok(Step::Did(Did::Placed))
    }

    fn resume(&mut self, aside: Vec<PathBuf>) -> Result<Step, String> {
        let number = self.core.state.lock().checkpoint + 1;
        self.checkpoint.resume(number).map_err(|e| format!("making the volume durable: {e}"))?;
        point("lost.resumed");
        self.task = Some(Task::Renew(Renewal::Renew { aside }));
        Ok(Step::Did(Did::Resumed))
    }

    fn open_again(&mut self, aside: Vec<PathBuf>) -> Result<Step, String> {
        let core = self.core.clone();
        let number = core.state.lock().checkpoint + 1;
        let next = Superblock { checkpoint: number, clean_end: None, ..self.superblocks.last };
        // Both: if one is damaged later, the other must not say that there is nothing to replay.
        for _ in 0..2 {
            self.superblocks.write(&*self.device, next).map_err(|e| format!("writing a superblock: {e}"))?;
        }
        point("lost.renewed");
        let mut state = core.state.lock();
        let Some(loss) = state.loss.take() else { return Ok(Step::Idle) };
        state.checkpoint = number;
        state.stage = Stage::Idle;
        state.completed = state.cuts;
        // That was about the lost log.
        state.acknowledge_from = None;
        state.sealing = false;
        core.counters.renewed.fetch_add(1, Relaxed);
        core.acknowledge(state);
        core.gate.notify_all();
        core.checkpointer.notify_one();
        core.watcher.notify_all();
        core.freed.notify_waiters();
        self.checkpoint.renewed(&Renewed { why: loss.why, aside, took: loss.noticed.elapsed() });
        Ok(Step::Did(Did::Renewed))
    }
}
