//! The log's public interface: open, replay, start, append, stop.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;

use crate::admit::{Fill, Pressure, pressure};
use crate::checkpoint::Checkpointer;
use crate::config::Config;
use crate::core::{Core, Phase, Space, Stage, Timing};
use crate::device::{self, Current, Device};
use crate::error::{LogError, OpenError};
use crate::examine::{Random, check, create, damaged_superblock, io_error, scan_error};
use crate::faults::{self, Bug, point};
use crate::format::{BatchBuf, Identity, Superblock};
use crate::intent::Intent;
use crate::limits::{BLOCK_BYTES, CHECKPOINTS_ALONE, DEVICE_BYTES_MAX, DEVICE_BYTES_MIN, QUIESCE_MAX};
use crate::owner::{self, Checkpoint};
use crate::replay;
use crate::ring::Ring;
use crate::stats::Stats;
use crate::step::{Step, Wait};
use crate::stepper::Stepper;
use crate::superblocks::Superblocks;
use crate::ticket::Ticket;
use crate::transaction::Txn;
use crate::watch::Watch;
use crate::writer::Writer;

/// What a log held when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// Records since the last checkpoint, oldest first. It begins with that checkpoint's snapshot.
    pub records: Vec<Vec<u8>>,
    /// Number of the last completed checkpoint; 0 if there was none. After a crash during a checkpoint, the owner of the
    /// [`Checkpoint`] may have this number + 1.
    pub checkpoint: u64,
    /// The log was shut down cleanly: the records are a snapshot and nothing else.
    pub clean: bool,
    pub batches: u64,
    /// For each batch in `records`: the number of records up to its end.
    pub ends: Vec<usize>,
    pub bytes: u64,
    pub fresh: bool,
    /// Drawn when the log was created: its owner can tell it from another log of the same volume.
    pub log_id: [u8; 16],
}

/// An open log. Cloning gives another handle; when the last is dropped without [`Log::shutdown`], the log stops
/// as in a crash, except that what was acknowledged stays so.
#[derive(Clone)]
pub struct Log {
    handle: Arc<Handle>,
}

struct Handle {
    core: Arc<Core>,
    device: Arc<Current>,
    info: String,
    warning: Option<String>,
    superblocks: Mutex<Option<Superblocks>>,
    /// Sequence number of the first record to replay.
    tail_seq: u64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Log").field(&self.handle.info).finish()
    }
}

impl Log {
    /// Opens or creates a log, locks it for this process, checks it, and reads what is to be replayed. Nothing
    /// on the device changes, apart from the self-test's scratch blocks, until [`Log::start`]; an empty or
    /// all-zero device is made a log.
    pub fn open(config: Config) -> Result<(Log, Replay), OpenError> {
        Self::open_device(device::open(&config)?, config)
    }

    /// Opens a mirror on any two [`Device`]s, of which one may be missing; `config.place` only names them in
    /// errors.
    pub fn open_mirror<D: Device + 'static>(
        devices: [Option<D>; 2],
        config: Config,
    ) -> Result<(Log, Replay), OpenError> {
        let mut paths = config.place.paths().iter().cloned();
        let paths = [paths.next().unwrap_or_default(), paths.next().unwrap_or_default()];
        Self::open_device(device::open_devices(devices, &paths, &config)?, config)
    }

    /// Opens a log on any [`Device`]; `config.place` only names it in errors, and the size is the device's.
    pub fn open_device(device: Box<dyn Device>, config: Config) -> Result<(Log, Replay), OpenError> {
        let path = config.place.first_path();
        let bytes = device.bytes().min(DEVICE_BYTES_MAX) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        if bytes < DEVICE_BYTES_MIN {
            return Err(OpenError::TooSmall { path: path.into(), bytes, min: DEVICE_BYTES_MIN });
        }
        let mut random = Random::new(config.seed);
        let found = check(&*device, path, &config.volume_id)?;
        let fresh = found.is_none();
        let superblocks = match found {
            Some(superblocks) => {
                let damaged = replay::damaged_superblock(&*device);
                if let Some(offset) = damaged.map_err(|source| io_error(path, "read", source))? {
                    tracing::warn!("{}", damaged_superblock(path, offset));
                }
                superblocks
            }
            None => create(&*device, bytes, config.volume_id, &mut random)
                .map_err(|source| io_error(path, "write the first superblock of", source))?,
        };
        let scan = replay::scan(&*device, &superblocks.last).map_err(|error| scan_error(path, error))?;
        let replay = Replay {
            bytes: scan.records.iter().map(|record| record.len() as u64).sum(),
            records: scan.records,
            checkpoint: scan.checkpoint,
            clean: fresh || superblocks.last.clean_end.is_some(),
            batches: scan.batches,
            ends: scan.ends,
            fresh,
            log_id: superblocks.last.identity.log_id,
        };
        let current = Arc::new(Current::new(device.into(), config.injected_flush));
        let device: Arc<dyn Device> = current.clone();
        // A new salt: batches of earlier runs, torn ones too, can never be taken for this run's.
        let salt = random.draw().map_err(|source| io_error(path, "draw an identity for", source))?;
        let warning = device.warning();
        if let Some(warning) = &warning {
            tracing::warn!("{warning}");
        }
        let info = device.describe();
        tracing::info!("log: {info}");
        let core = Core::new(
            &device,
            Ring { bytes: superblocks.last.ring_bytes },
            Identity { salt, ..superblocks.last.identity },
            Space { head: scan.end, tail: scan.tail, next_seq: scan.end_seq },
            scan.checkpoint,
            Timing {
                checkpoint_after: config.checkpoint_after,
                intent_wait: config.intent_wait,
                lead_flush: config.lead_flush,
            },
        );
        let handle = Handle {
            warning,
            core: Arc::new(core),
            info,
            device: current,
            superblocks: Mutex::new(Some(superblocks)),
            tail_seq: scan.tail_seq,
            threads: Mutex::new(Vec::new()),
        };
        Ok((Log { handle: Arc::new(handle) }, replay))
    }

    /// Call this when the replayed records have been applied. It takes a snapshot and runs a checkpoint under the next
    /// number, which empties the log; then the log takes transactions.
    /// Errors: [`LogError::AlreadyStarted`]; [`LogError::Failed`] if the checkpoint or the device fails or if the
    /// snapshot does not fit.
    pub fn start(&self, checkpoint: Arc<dyn Checkpoint>) -> Result<(), LogError> {
        let (writer, checkpointer) = self.begin_running(checkpoint, false)?;
        let core = &self.handle.core;
        let watch = self.watch(&checkpointer);
        let spawned = spawn("landfast-log", core, move || writer.run())
            .and_then(|first| {
                self.handle.threads.lock().push(first);
                spawn("landfast-ckpt", core, move || checkpointer.run())
            })
            .and_then(|second| {
                self.handle.threads.lock().push(second);
                spawn("landfast-watch", core, move || watch.run())
            })
            .map(|third| self.handle.threads.lock().push(third));
        spawned.map_err(|error| {
            let why = format!("starting a thread: {error}");
            core.fail(&why);
            LogError::Failed(why.as_str().into())
        })
    }

    /// As [`Log::start`], but without threads: the [`Stepper`] does their work when it is told to.
    pub fn start_stepped(&self, checkpoint: Arc<dyn Checkpoint>) -> Result<Stepper, LogError> {
        let (writer, checkpointer) = self.begin_running(checkpoint, true)?;
        let watch = self.watch(&checkpointer);
        Ok(Stepper::new(self.handle.core.clone(), writer, checkpointer, watch))
    }

    fn watch(&self, checkpointer: &Checkpointer) -> Watch {
        let handle = &self.handle;
        Watch::new(handle.core.clone(), handle.device.clone(), checkpointer.checkpoint.clone())
    }

    fn begin_running(
        &self,
        checkpoint: Arc<dyn Checkpoint>,
        stepped: bool,
    ) -> Result<(Writer, Checkpointer), LogError> {
        let core = &self.handle.core;
        let Some(mut superblocks) = self.handle.superblocks.lock().take() else {
            return Err(LogError::AlreadyStarted);
        };
        core.state.lock().check_alive()?;
        if let Err(why) = self.restart(&mut superblocks, &*checkpoint) {
            core.fail(&why);
            return Err(LogError::Failed(why.as_str().into()));
        }
        let checkpointer = Checkpointer { core: core.clone(), checkpoint: checkpoint.clone() };
        let writer = Writer::new(core.clone(), self.handle.device.clone(), checkpoint, superblocks);
        let mut state = core.state.lock();
        state.phase = Phase::Running;
        state.stepped = stepped;
        Ok((writer, checkpointer))
    }

    /// Empties the log under a new salt: snapshot, volume durable, snapshot's batch, both superblocks.
    fn restart(&self, superblocks: &mut Superblocks, checkpoint: &dyn Checkpoint) -> Result<(), String> {
        let core = &self.handle.core;
        let device = &*self.handle.device;
        let mut buf = BatchBuf::default();
        let mut fits = true;
        for record in owner::all_records(checkpoint.snapshot()) {
            fits &= buf.push(&[&record]);
        }
        let (space, number) = {
            let state = core.state.lock();
            (state.space, state.checkpoint + 1)
        };
        let length = buf.padded_bytes();
        // The old records count until the superblocks are written, so the snapshot must fit beside them.
        if !fits || length > core.ring.bytes - space.used() {
            return Err(format!(
                "the log is too small: a snapshot of {} bytes does not fit; make it larger",
                buf.payload_bytes()
            ));
        }
        let sync = || checkpoint.sync(number).map_err(|error| format!("making the volume durable: {error}"));
        if !faults::bug(Bug::EmptyBeforeSync) {
            sync()?;
        }
        let records = buf.records();
        if space.tail != superblocks.last.tail {
            // Replay began at a restart batch behind the tail of the superblock (see `Writer::absorb`). Until a superblock names
            // it, it is found only through the batches before it, so nothing may be written over them.
            let next = Superblock {
                tail: space.tail,
                tail_seq: self.handle.tail_seq,
                checkpoint: number - 1,
                durable_end: (space.head, space.next_seq),
                ..superblocks.last
            };
            superblocks.write(device, next).map_err(|error| format!("writing a superblock: {error}"))?;
        }
        if records > 0 {
            core.put_batch(device, &mut buf, &space, number, false)
                .map_err(|error| format!("writing a snapshot: {error}"))?;
        }
        let next = Superblock {
            identity: core.identity,
            tail: space.head,
            tail_seq: space.next_seq,
            checkpoint: number,
            durable_end: (space.head + length, space.next_seq + records),
            clean_end: None,
            ..superblocks.last
        };
        // Both: if the newer one is ever damaged, the other must not lead back to an earlier run's records.
        for _ in 0..2 {
            superblocks.write(device, next).map_err(|error| format!("writing a superblock: {error}"))?;
        }
        point("recovery.emptied");
        if faults::bug(Bug::EmptyBeforeSync) {
            sync()?;
        }
        let mut number = number;
        // From here on a copy of the log from before this start is two checkpoints behind the volume's tag, and is refused
        // for that. With one half of a mirror alone, the other must be that far behind before anything is acknowledged.
        let alone = core.half_lost.load(Acquire);
        for _ in 0..if alone { CHECKPOINTS_ALONE } else { 1 } {
            number += 1;
            checkpoint.sync(number).map_err(|error| format!("making the volume durable: {error}"))?;
            let next = Superblock { checkpoint: number, ..next };
            superblocks.write(device, next).map_err(|error| format!("writing a superblock: {error}"))?;
        }
        let mut state = core.state.lock();
        // A half that was lost just now has one of these checkpoints itself, so two more are needed.
        state.acknowledge_from = alone.then_some(state.completed);
        core.look_for_loss(&mut state);
        state.space.tail = space.head;
        state.space.head = space.head + length;
        state.space.next_seq = space.next_seq + records;
        state.checkpoint = number;
        state.set_reserve(core.ring, length);
        Ok(())
    }

    /// Begins a transaction, which joins the open batch. Waits only while a batch is being sealed, for the transactions
    /// that are open.
    ///
    /// A thread must not begin a second transaction while it has one open, and must not hold a lock that an open
    /// transaction may need (see the crate's lock order).
    /// Errors: Every [`LogError`] except `AlreadyStarted`.
    pub fn begin(&self) -> Result<Txn, LogError> {
        Txn::begin(self.handle.core.clone())
    }

    /// It has been started and not been stopped or failed.
    pub fn takes_transactions(&self) -> bool {
        self.handle.core.state.lock().check_open().is_ok()
    }

    /// See [`Intent`].
    pub fn expect(&self) -> Intent {
        Intent::new(self.handle.core.clone())
    }

    /// Back-pressure: a request that modifies awaits this before it runs. Needs a tokio runtime with time enabled. Returns
    /// at once while the log is less than three quarters full.
    pub async fn admit(&self) -> Result<(), LogError> {
        let core = &*self.handle.core;
        let mut waited = AdmissionTimer::new(core);
        loop {
            let (freed, drained) = (core.freed.notified(), core.drained.notified());
            tokio::pin!(freed, drained);
            freed.as_mut().enable();
            drained.as_mut().enable();
            let pressure = self.pressure()?;
            waited.start_if_slowed(pressure);
            match pressure {
                Pressure::Go => return Ok(()),
                Pressure::Slow(delay) => {
                    core.counters.admit_slowed.fetch_add(1, Relaxed);
                    // Freed space ends the delay early; the request is admitted either way.
                    let _ = tokio::time::timeout(delay, freed).await;
                    return self.pressure().map(drop);
                }
                Pressure::AwaitDrain => {
                    core.counters.admit_waited.fetch_add(1, Relaxed);
                    drained.await;
                }
                Pressure::AwaitSpace => {
                    core.counters.admit_waited.fetch_add(1, Relaxed);
                    freed.await;
                }
            }
        }
    }

    /// As [`Log::admit`], but blocks the thread.
    pub fn admit_blocking(&self) -> Result<(), LogError> {
        let core = &*self.handle.core;
        let mut waited = AdmissionTimer::new(core);
        let mut state = core.state.lock();
        loop {
            state.check_open()?;
            let pressure = pressure(&state.fill(core));
            waited.start_if_slowed(pressure);
            match pressure {
                Pressure::Go => return Ok(()),
                Pressure::Slow(delay) => {
                    core.counters.admit_slowed.fetch_add(1, Relaxed);
                    core.progress.wait_for(&mut state, delay);
                    return state.check_open();
                }
                Pressure::AwaitDrain | Pressure::AwaitSpace => {
                    core.counters.admit_waited.fetch_add(1, Relaxed);
                    core.progress.wait(&mut state);
                }
            }
        }
    }

    fn pressure(&self) -> Result<Pressure, LogError> {
        let core = &*self.handle.core;
        let state = core.state.lock();
        state.check_open()?;
        Ok(pressure(&state.fill(core)))
    }

    /// Runs a checkpoint that covers everything committed before, and waits for it. Does nothing if nothing was logged
    /// since the last one.
    pub fn checkpoint_now(&self) -> Result<(), LogError> {
        let core = &*self.handle.core;
        let mut state = core.state.lock();
        state.check_alive()?;
        if state.phase == Phase::Replaying {
            return Err(LogError::NotStarted);
        }
        let Some(target) = state.checkpoint_target() else { return Ok(()) };
        state.ask_checkpoint();
        core.checkpointer.notify_one();
        while state.completed < target {
            state.check_alive()?;
            core.progress.wait(&mut state);
        }
        Ok(())
    }

    /// Asks for a checkpoint that covers everything committed before, and does not wait for it.
    pub fn ask_checkpoint(&self) {
        let core = &*self.handle.core;
        core.state.lock().ask_checkpoint();
        core.checkpointer.notify_one();
    }

    /// Stops cleanly: refuses new transactions, waits for open ones, runs a checkpoint, marks the log as clean and ends the
    /// threads. A second call does nothing.
    /// Errors: [`LogError::Failed`]: something failed before or during this; the log is not marked clean.
    pub fn shutdown(&self) -> Result<(), LogError> {
        let core = &*self.handle.core;
        {
            let state = core.state.lock();
            if let Some(why) = &state.failed {
                return Err(LogError::Failed(why.clone()));
            }
            if matches!(state.phase, Phase::Closing | Phase::Finishing | Phase::Stopped) {
                return Ok(());
            }
        }
        loop {
            match core.stop() {
                Step::Did(_) | Step::Idle => {}
                Step::Blocked(Wait::Gate) => {
                    let mut state = core.state.lock();
                    while state.txns > 0 && !state.dead() {
                        core.progress.wait(&mut state);
                    }
                }
                Step::Blocked(Wait::Checkpoint) => self.checkpoint_now()?,
                Step::Blocked(_) | Step::Ended => break,
            }
        }
        self.handle.join();
        match &core.state.lock().failed {
            Some(why) => Err(LogError::Failed(why.clone())),
            None => Ok(()),
        }
    }

    /// Fails the log because its owner cannot keep its promise: no ticket succeeds any more that has not yet. A device must
    /// not call this.
    pub fn fail(&self, why: &str) {
        self.handle.core.fail(why);
    }

    /// After a failure, waits for a bounded time until no transaction is open; `false` if some still are.
    pub fn await_transactions(&self) -> bool {
        let core = &*self.handle.core;
        let until = Instant::now() + QUIESCE_MAX;
        let mut state = core.state.lock();
        while state.txns > 0 {
            if core.progress.wait_until(&mut state, until).timed_out() {
                return state.txns == 0;
            }
        }
        true
    }

    pub fn failed(&self) -> Option<String> {
        self.handle.core.state.lock().failed.as_deref().map(str::to_owned)
    }

    /// The device in one line: path, size, how it is flushed and what the self-test measured.
    pub fn info(&self) -> &str {
        &self.handle.info
    }

    /// One line on what weakens durability on this device. `tracing` also got it when the log was opened.
    pub fn warning(&self) -> Option<&str> {
        self.handle.warning.as_deref()
    }

    /// A ticket of the batch with this number ([`Txn::batch`]), for a reply that depends on records of others. `None` once
    /// it is durable, which costs one load.
    pub fn pending(&self, batch: u64) -> Option<Ticket> {
        let outcome = self.handle.core.pending(batch)?;
        Some(Ticket::new(self.handle.core.clone(), outcome))
    }

    pub fn stats(&self) -> Stats {
        let core = &*self.handle.core;
        let state = core.state.lock();
        Stats {
            checkpointing: state.stage != Stage::Idle,
            used: state.space.used(),
            pending: state.pending(),
            capacity: core.ring.bytes,
            checkpoint: state.checkpoint,
            device: self.handle.info.clone(),
            trouble: self.handle.device.trouble(),
            ..core.counters.read()
        }
    }
}

impl Handle {
    fn join(&self) {
        let mut state = self.core.state.lock();
        while state.leading {
            self.core.progress.wait(&mut state);
        }
        drop(state);
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The owner of the checkpoint may drop the last handle on one of these threads.
            if thread.thread().id() != std::thread::current().id() {
                // A panic there has already failed the log.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.core.state.lock();
        state.phase = Phase::Stopped;
        self.core.abandon(state);
        self.join();
    }
}

/// Counts how long an admission waited, when it is dropped.
struct AdmissionTimer<'a> {
    core: &'a Core,
    since: Option<Instant>,
}

impl<'a> AdmissionTimer<'a> {
    fn new(core: &'a Core) -> AdmissionTimer<'a> {
        AdmissionTimer { core, since: None }
    }

    fn start_if_slowed(&mut self, pressure: Pressure) {
        if pressure != Pressure::Go {
            self.since.get_or_insert_with(Instant::now);
        }
    }
}

impl Drop for AdmissionTimer<'_> {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            self.core.counters.room_waits.waited(since.elapsed());
        }
    }
}

impl crate::core::State {
    pub(crate) fn fill(&self, core: &Core) -> Fill {
        Fill {
            capacity: core.ring.bytes,
            reserve: self.reserve,
            used: self.space.used(),
            pending: self.pending(),
            batch_max: core.batch_max,
            relief: self.dirty_since.is_some() || self.stage != Stage::Idle,
        }
    }
}

/// Starts a thread that fails the log if it panics; otherwise others would wait for it for ever.
fn spawn(
    name: &str,
    core: &Arc<Core>,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    struct FailOnPanic(Arc<Core>);
    impl Drop for FailOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.fail("a thread of the log panicked");
            }
        }
    }
    let guard = FailOnPanic(core.clone());
    std::thread::Builder::new().name(name.into()).spawn(move || {
        let _guard = guard;
        body();
    })
}
