//! A model of what owns a log: numbered effects, "applied" in memory, made durable by checkpoints.
//!
//! The oracle: *what was acknowledged is there; what was not is there whole or not at all.*

// Each test file uses a part of it.
#![allow(dead_code)]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use landfast_intentlog::{Checkpoint, Config, Log, LogError, Part, Replay, Snapshot, Ticket};
use parking_lot::{Condvar, Mutex};

pub const VOLUME: [u8; 16] = [7; 16];

/// The volume: effects 1, 2, 3, ... in order of application.
#[derive(Default)]
pub struct Model {
    state: Arc<Mutex<State>>,
    changed: Condvar,
}

/// Its snapshot: an `S` with the effects at the cut and so many bytes that follow, then `P`s with these bytes, each with the effects when
/// it was taken.
struct Taken {
    state: Arc<Mutex<State>>,
    begun: bool,
    left: usize,
    /// An empty part is the last.
    ends_empty: bool,
}

impl Snapshot for Taken {
    fn part(&mut self, bytes: usize) -> Part {
        if self.begun && self.left == 0 {
            return Part { records: Vec::new(), last: true };
        }
        let here = self.left.min(bytes);
        self.left -= here;
        let kind = if self.begun { b"P" } else { b"S" };
        self.begun = true;
        let applied = self.state.lock().applied.to_le_bytes();
        let record = [kind, &applied[..], &(self.left as u64).to_le_bytes(), &vec![0; here]].concat();
        Part { records: vec![record], last: self.left == 0 && !self.ends_empty }
    }
}

#[derive(Default)]
struct State {
    /// Effects applied, in memory.
    applied: u64,
    /// Effects that a crash cannot lose.
    durable: u64,
    /// Checkpoint number kept next to the durable effects.
    number: u64,
    /// Where the current cut is.
    cut: u64,
    sync_error: bool,
    hold_sync: bool,
    in_sync: bool,
    snapshot_bytes: usize,
    in_snapshot: Option<Box<dyn FnOnce() + Send>>,
}

impl Checkpoint for Model {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        let hook = self.state.lock().in_snapshot.take();
        if let Some(hook) = hook {
            hook();
        }
        let mut state = self.state.lock();
        state.cut = state.applied;
        let (left, ends_empty) = (state.snapshot_bytes, state.snapshot_bytes % 2 == 1);
        Box::new(Taken { state: self.state.clone(), begun: false, left, ends_empty })
    }

    fn sync(&self, number: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.in_sync = true;
        self.changed.notify_all();
        while state.hold_sync {
            self.changed.wait(&mut state);
        }
        state.in_sync = false;
        if state.sync_error {
            return Err(io::Error::other("injected sync error"));
        }
        state.number = number;
        state.durable = state.durable.max(state.cut);
        Ok(())
    }
}

impl Model {
    /// Runs once, inside the next snapshot.
    pub fn in_snapshot(&self, hook: impl FnOnce() + Send + 'static) {
        self.state.lock().in_snapshot = Some(Box::new(hook));
    }

    pub fn set_sync_error(&self) {
        self.state.lock().sync_error = true;
    }

    pub fn set_snapshot_bytes(&self, bytes: usize) {
        self.state.lock().snapshot_bytes = bytes;
    }

    /// Number of the last checkpoint that the volume knows of.
    pub fn number(&self) -> u64 {
        self.state.lock().number
    }

    pub fn hold_sync(&self, hold: bool) {
        self.state.lock().hold_sync = hold;
        self.changed.notify_all();
    }

    pub fn await_sync(&self) {
        let mut state = self.state.lock();
        while !state.in_sync {
            self.changed.wait(&mut state);
        }
    }

    /// Applies and logs `sizes.len()` effects in one transaction. Gives the last one's number.
    pub fn operate(&self, log: &Log, sizes: &[usize]) -> Result<(u64, Ticket), LogError> {
        let mut txn = log.begin()?;
        // Apply and append in one critical section, so that log order is apply order.
        let mut state = self.state.lock();
        for (index, size) in sizes.iter().enumerate() {
            state.applied += 1;
            txn.append_parts(&[
                b"E",
                &state.applied.to_le_bytes(),
                &[index as u8, sizes.len() as u8],
                &vec![state.applied as u8; *size],
            ]);
        }
        let last = state.applied;
        drop(state);
        Ok((last, txn.commit()))
    }

    /// Checks a replay against `acknowledged` (the highest effect whose ticket succeeded) and applies it.
    pub fn recover(&self, replay: &Replay, acknowledged: u64) {
        let mut state = self.state.lock();
        let number = state.number;
        assert!(
            number == replay.checkpoint || number == replay.checkpoint + 1,
            "the volume is at checkpoint {number}, the log at {}",
            replay.checkpoint
        );
        let mut at = None;
        let mut open = 0u8;
        // Snapshots so far, and the bytes that the latest still lacks.
        let (mut snapshots, mut lacks) = (0, 0);
        for record in &replay.records {
            let value = u64::from_le_bytes(record[1..9].try_into().unwrap());
            match record[0] {
                b'S' => {
                    assert!(open == 0, "a snapshot stands between two records of one transaction");
                    if let Some(at) = at {
                        assert_eq!(value, at, "the snapshot is not where the log is");
                    } else {
                        assert!(
                            value <= state.durable,
                            "{value} effects are relied on, {} are durable",
                            state.durable
                        );
                    }
                    at = Some(value);
                    assert_eq!(lacks, 0, "a snapshot begins when the one before is whole");
                    snapshots += 1;
                    lacks = left(record);
                }
                b'P' => {
                    assert!(open == 0, "a part stands between two records of one transaction");
                    assert_eq!(Some(value), at, "a part is not where the log is");
                    let here = (record.len() - 17) as u64;
                    assert_eq!(left(record) + here, lacks, "parts are in order and none is missing");
                    lacks = left(record);
                }
                b'E' => {
                    let last = at.expect("a log begins with a snapshot");
                    assert_eq!(value, last + 1, "effects are in order and none is missing");
                    assert_eq!(record[9], open, "a transaction's records stand together");
                    open = if record[9] + 1 == record[10] { 0 } else { open + 1 };
                    assert!(record[11..].iter().all(|byte| *byte == value as u8));
                    at = Some(value);
                }
                other => panic!("unknown record {other}"),
            }
        }
        assert_eq!(open, 0, "the last transaction is whole");
        assert!(snapshots != 1 || lacks == 0, "the snapshot that replay begins with is whole");
        let reached = at.unwrap_or(0);
        assert!(reached >= acknowledged, "effect {acknowledged} was acknowledged, replay ends at {reached}");
        // The caller makes replayed effects durable before it starts the log.
        state.applied = reached;
        state.durable = reached;
        state.cut = reached;
    }
}

/// Bytes of a snapshot that follow a record of it.
fn left(record: &[u8]) -> u64 {
    u64::from_le_bytes(record[9..17].try_into().unwrap())
}

pub fn config() -> Config {
    let mut config = Config::new("simulated", 0, VOLUME);
    config.checkpoint_after = Duration::from_secs(3600);
    config
}

/// Starts a log on a simulated disk.
pub fn start(disk: &landfast_intentlog::sim::SimDisk, model: &Arc<Model>, config: Config) -> Log {
    let (log, _) = Log::open_device(disk.device(), config).unwrap();
    log.start(model.clone()).unwrap();
    log
}
