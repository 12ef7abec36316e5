//! Runs `landfast verify write` with pairs of clients in this process, so that the power can go at the moment that matters: when
//! the second of a pair has been answered and the first has not.

use crate::error::{Error, Result};
use crate::limits::{PAIRS_ALONE, PAIRS_ALONE_FEWER, PEERCUT_PATIENCE};
use landfast_verify::Target;
use landfast_verify::write::{self, Event, Options};
use parking_lot::{Condvar, Mutex};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

#[derive(Debug, Default)]
struct Progress {
    acknowledged: u64,
    /// Late COMMITs that were announced.
    late: u64,
    /// Pairs of which only the second has been answered.
    alone: u32,
    ended: bool,
}

pub struct Work {
    thread: std::thread::JoinHandle<landfast_verify::error::Result<write::Report>>,
    now: Arc<(Mutex<Progress>, Condvar)>,
    stop: Arc<AtomicBool>,
}

fn failed(what: impl ToString) -> Error {
    Error::Child { role: "verify write", what: what.to_string() }
}

impl Work {
    pub fn start(url: &str, options: Options) -> Result<Work> {
        let target: Target = url.parse().map_err(failed)?;
        let now: Arc<(Mutex<Progress>, Condvar)> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (theirs, stopping) = (now.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let progress = |event: Event| {
                let (now, changed) = &*theirs;
                match event {
                    Event::Acknowledged(n) => now.lock().acknowledged = n,
                    Event::Late => now.lock().late += 1,
                    Event::Alone(n) => now.lock().alone = n,
                }
                changed.notify_all();
            };
            let done = write::run(&target, &options, &stopping, &progress);
            theirs.0.lock().ended = true;
            theirs.1.notify_all();
            done
        });
        Ok(Work { thread, now, stop })
    }

    /// Waits until `count` late COMMITs have been announced, or for the end. Returns how many operations are acknowledged then.
    pub fn wait_for_late(&self, count: u64) -> Result<u64> {
        self.wait_for(count, "late COMMITs", |now| now.late)
    }

    /// Waits for `count` acknowledgements, or for the end, which [`Work::end`] reports.
    pub fn wait_for_acks(&self, count: u64) -> Result<()> {
        self.wait_for(count, "acknowledgements", |now| now.acknowledged).map(drop)
    }

    fn wait_for(&self, count: u64, what: &str, of: impl Fn(&Progress) -> u64) -> Result<u64> {
        let until = Instant::now() + PEERCUT_PATIENCE;
        let (now, changed) = &*self.now;
        let mut now = now.lock();
        while of(&now) < count && !now.ended {
            if changed.wait_until(&mut now, until).timed_out() {
                return Err(failed(format!("{} {what} and no more", of(&now))));
            }
        }
        Ok(now.acknowledged)
    }

    /// Waits until of several pairs, later of one, only the second has been answered. A server that keeps its promise lets
    /// nobody see that for longer than it takes to send two replies: then after a while any moment is as good.
    pub fn wait_for_alone(&self, pairs: u32) {
        let (now, changed) = &*self.now;
        let start = Instant::now();
        let mut now = now.lock();
        for (wanted, until) in [(pairs / 4, PAIRS_ALONE), (1, PAIRS_ALONE + PAIRS_ALONE_FEWER)] {
            while now.alone < wanted.max(1) && !now.ended {
                if changed.wait_until(&mut now, start + until).timed_out() {
                    break;
                }
            }
            if now.alone >= wanted.max(1) {
                return;
            }
        }
    }

    /// Ends the work when the server is gone.
    /// Errors: It could not begin, or not write its journal.
    pub fn end(self) -> Result<write::Report> {
        self.stop.store(true, std::sync::atomic::Ordering::Release);
        self.thread.join().map_err(|_| failed("panic"))?.map_err(failed)
    }
}

/// The options of `landfast verify write` with these arguments.
pub fn options(journal: &Path, clients: u32, seed: u64) -> Options {
    Options {
        journal: journal.to_owned(),
        operations: None,
        time: None,
        clients,
        seed: Some(seed),
        kinds: Vec::new(),
        pairs: 0,
        meetings: Vec::new(),
    }
}
