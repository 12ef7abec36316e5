//! The record of one program: its history, and what others want of the program.

use super::history::{History, Id};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Shared by a program, those who look at what it does, and the harness.
#[derive(Debug)]
pub struct Record {
    start: Instant,
    /// Each close is stable, and each change of names (`close=wait`).
    waits: bool,
    history: Mutex<History>,
    over: AtomicBool,
    closes: AtomicBool,
    calls: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Record {
    /// `first`: numbers of its objects are higher.
    pub fn new(start: Instant, waits: bool, first: Id) -> Record {
        Record {
            start,
            waits,
            history: Mutex::new(History::numbered_from(first)),
            over: AtomicBool::new(false),
            closes: AtomicBool::new(true),
            calls: AtomicU64::new(0),
            failure: Mutex::new(None),
        }
    }

    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Notes something that happens now.
    pub fn with<T>(&self, note: impl FnOnce(&mut History, Duration) -> T) -> T {
        let mut history = self.history.lock();
        // Within the lock: whoever has looked at the history before this knows an earlier time.
        let now = self.start.elapsed();
        note(&mut history, now)
    }

    /// A call that changes names has returned.
    pub fn named(&self, dir: Id, step: usize) {
        let waits = self.waits;
        self.with(|h, now| {
            h.end(dir, step, now);
            if waits {
                h.stable_names(dir);
            }
        });
    }

    /// A file was closed, or its mode set.
    pub fn closed(&self, object: Id) {
        if self.waits {
            self.with(|h, _| h.stable(object));
        }
    }

    /// A call has returned that promises that something is stable.
    pub fn synced(&self, note: impl FnOnce(&mut History)) {
        self.with(|h, _| {
            h.syncs += 1;
            note(h);
        });
    }

    pub fn counted(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls that have returned.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The program ends after the call that it is at. `closes`: it closes first what it has open.
    pub fn end(&self, closes: bool) {
        self.closes.store(closes, Ordering::Release);
        self.over.store(true, Ordering::Release);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub fn closes_at_end(&self) -> bool {
        self.closes.load(Ordering::Acquire)
    }

    /// A call has failed, and the program ends.
    pub fn failed(&self, what: &str) {
        self.failure.lock().get_or_insert_with(|| what.to_owned());
    }

    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }
}
