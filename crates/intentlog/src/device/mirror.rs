//! Two devices with the same contents: a write is done when both have it.
//!
//! When one of them fails, the other goes on alone, and [`Device::half_lost`] tells the log. The log then acknowledges nothing
//! until two further checkpoints are complete, which the lost half does not have. The volume's tag is then two checkpoints
//! ahead of that half, so that a start refuses it if it comes back alone. The lost half is not written any more in this run;
//! the next start writes it anew.
//!
//! Invariant: while `alone` is not set, every write that returned success is on both halves.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::Device;
use crate::aligned::AlignedBuf;
use crate::faults::{point, stops_at};
use crate::replay::ReadAt;

#[derive(Debug)]
struct Alone {
    /// The remaining half, 0 or 1.
    half: usize,
    why: String,
}

pub struct Mirror {
    halves: [Option<Arc<dyn Device>>; 2],
    /// The half that is read; the other one is only written.
    read: usize,
    alone: OnceLock<Alone>,
    lost: Arc<AtomicBool>,
    bytes: u64,
    /// Writes the second half while the caller writes the first. `None` if only one half was there at the start.
    second: Option<Mutex<Second>>,
}

/// The thread that writes the second half.
struct Second {
    jobs: Option<mpsc::SyncSender<Job>>,
    done: mpsc::Receiver<(Job, io::Result<()>)>,
    thread: Option<JoinHandle<()>>,
    /// The last job, whose memory is reused.
    spare: Option<Job>,
}

#[derive(Default)]
struct Job {
    bytes: AlignedBuf,
    /// Offset on the device and length of each part; `bytes` holds the parts one after the other.
    parts: Vec<(u64, usize)>,
}

impl Mirror {
    /// Two halves; the contents of half number `read` count.
    pub fn new(halves: [Box<dyn Device>; 2], read: usize) -> io::Result<Mirror> {
        Mirror::telling(halves, read, Arc::default())
    }

    /// As [`Mirror::new`]; sets `lost` when a half is lost.
    fn telling(halves: [Box<dyn Device>; 2], read: usize, lost: Arc<AtomicBool>) -> io::Result<Mirror> {
        let [first, second] = halves.map(Arc::<dyn Device>::from);
        let bytes = first.bytes().min(second.bytes());
        let writer = Second::start(second.clone())?;
        Ok(Mirror {
            halves: [Some(first), Some(second)],
            read,
            alone: OnceLock::new(),
            lost,
            bytes,
            second: Some(Mutex::new(writer)),
        })
    }

    /// Half number `half` alone; `why` says what is wrong with the other.
    pub fn alone(device: Box<dyn Device>, half: usize, why: String) -> Mirror {
        let bytes = device.bytes();
        let mut halves = [None, None];
        if let Some(place) = halves.get_mut(half) {
            *place = Some(device.into());
        }
        Mirror {
            halves,
            read: half,
            alone: OnceLock::from(Alone { half, why }),
            lost: Arc::new(AtomicBool::new(true)),
            bytes,
            second: None,
        }
    }

    fn half(&self, half: usize) -> io::Result<&Arc<dyn Device>> {
        self.halves.get(half).and_then(Option::as_ref).ok_or_else(|| io::Error::other("no such half"))
    }

    /// Records that the other half is lost, before anything is acknowledged without it. `false`: this half itself was found
    /// lost before.
    fn go_alone(&self, half: usize, error: &str) -> bool {
        let lost = self.halves.get(1 - half).and_then(Option::as_ref);
        let why = format!("{}: {error}", lost.map_or_else(String::new, |d| d.describe()));
        let alone = self.alone.get_or_init(|| {
            tracing::error!(
                "a half of the log's mirror is lost: {why}; the log goes on with the other one alone"
            );
            Alone { half, why }
        });
        if alone.half != half {
            return false;
        }
        self.lost.store(true, Ordering::Release);
        point("mirror.lost");
        true
    }

    fn write_both(&self, second: &Mutex<Second>, parts: &[(u64, &[u8])]) -> io::Result<()> {
        let mut second = second.lock();
        // Both at once, unless a test stops the process between the two.
        let apart = stops_at("mirror.one-written");
        if !apart {
            second.begin(parts)?;
        }
        let first = self.half(0)?.write_durable(parts);
        point("mirror.one-written");
        if apart {
            second.begin(parts)?;
        }
        let second = second.finish();
        match (first, second) {
            (Ok(()), Ok(())) => Ok(()),
            // If the half that has the write was found lost meanwhile, the write has failed.
            (Ok(()), Err(e)) if self.go_alone(0, &e.to_string()) => Ok(()),
            (Err(e), Ok(())) if self.go_alone(1, &e.to_string()) => Ok(()),
            (Ok(()), Err(e)) | (Err(e), Ok(())) => Err(e),
            (Err(first), Err(second)) => {
                Err(io::Error::new(first.kind(), format!("both halves of the mirror: {first}; {second}")))
            }
        }
    }
}

impl Second {
    fn start(device: Arc<dyn Device>) -> io::Result<Second> {
        let (jobs, todo) = mpsc::sync_channel::<Job>(1);
        let (answer, done) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("landfast-mirror".into()).spawn(move || {
            for job in todo {
                let mut at = 0;
                let parts: Vec<(u64, &[u8])> = job
                    .parts
                    .iter()
                    .map(|(offset, length)| {
                        let part = job.bytes.get(at..at + length).unwrap_or_default();
                        at += length;
                        (*offset, part)
                    })
                    .collect();
                let result = device.write_durable(&parts);
                drop(parts);
                if answer.send((job, result)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Second { jobs: Some(jobs), done, thread: Some(thread), spare: None })
    }

    fn begin(&mut self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        let mut job = self.spare.take().unwrap_or_default();
        job.bytes.clear();
        job.parts.clear();
        for (offset, part) in parts {
            job.bytes.extend(part);
            job.parts.push((*offset, part.len()));
        }
        let jobs = self.jobs.as_ref();
        jobs.and_then(|jobs| jobs.send(job).ok())
            .ok_or_else(|| io::Error::other("the mirror's thread is gone"))
    }

    fn finish(&mut self) -> io::Result<()> {
        let (job, result) = self.done.recv().map_err(|_| io::Error::other("the mirror's thread is gone"))?;
        self.spare = Some(job);
        result
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already failed a write.
            let _ = thread.join();
        }
    }
}

impl ReadAt for Mirror {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let half = self.alone.get().map_or(self.read, |alone| alone.half);
        self.half(half)?.read_at(offset, buf)
    }
}

impl Device for Mirror {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn write_durable(&self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        match (self.alone.get(), &self.second) {
            (Some(alone), _) => self.half(alone.half)?.write_durable(parts),
            (None, Some(second)) => self.write_both(second, parts),
            (None, None) => Err(io::Error::other("a mirror without a second half")),
        }
    }

    fn describe(&self) -> String {
        let all: Vec<String> = self.halves.iter().flatten().map(|half| half.describe()).collect();
        format!("mirror of {}", all.join(" and "))
    }

    fn warning(&self) -> Option<String> {
        let all: Vec<String> = self.halves.iter().flatten().filter_map(|half| half.warning()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn trouble(&self) -> Option<String> {
        let alone = self.alone.get()?;
        Some(format!(
            "one half of the log's mirror is lost ({}): nothing is protected by a second copy until it is replaced and the \
             server restarted",
            alone.why
        ))
    }

    /// If one half is lost, the other goes on alone, as after a failed write.
    fn look(&self, contents: bool) -> Result<(), String> {
        if let Some(alone) = self.alone.get() {
            return self.half(alone.half).map_err(|e| e.to_string())?.look(contents);
        }
        let looked = [0, 1]
            .map(|half| self.half(half).map_err(|e| e.to_string()).and_then(|device| device.look(contents)));
        match looked {
            [Ok(()), Ok(())] => Ok(()),
            [Ok(()), Err(why)] if self.go_alone(0, &why) => Ok(()),
            [Err(why), Ok(())] if self.go_alone(1, &why) => Ok(()),
            [Ok(()), Err(why)] | [Err(why), Ok(())] => Err(why),
            [Err(first), Err(second)] => Err(format!("both halves of the mirror: {first}; {second}")),
        }
    }

    fn half_lost(&self) -> Arc<AtomicBool> {
        self.lost.clone()
    }

    /// Replaces both halves or none, because the user asked for a mirror.
    fn successor(&self) -> Result<Box<dyn Device>, String> {
        let made = |half: usize| match self.halves.get(half) {
            Some(Some(device)) => device.successor(),
            _ => Err("no new log: a half of the mirror was not there from the start".to_owned()),
        };
        let halves = [made(0)?, made(1)?];
        let mirror = Mirror::telling(halves, 0, self.lost.clone());
        mirror
            .map(|mirror| Box::new(mirror) as Box<dyn Device>)
            .map_err(|e| format!("starting a thread: {e}"))
    }

    fn take_place(&self) -> Result<Vec<PathBuf>, String> {
        let mut aside = Vec::new();
        for half in self.halves.iter().flatten() {
            aside.append(&mut half.take_place()?);
        }
        // That was about the lost halves.
        self.lost.store(false, Ordering::Release);
        Ok(aside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::BLOCK_BYTES;
    use crate::sim::{Fault, SimDisk};

    const BYTES: usize = 16 * BLOCK_BYTES;

    fn block(n: u8) -> AlignedBuf {
        let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
        block.fill(n);
        block
    }

    #[test]
    fn both_have_what_was_written() {
        let disks = [SimDisk::new(BYTES, 1), SimDisk::new(BYTES, 2)];
        let mirror = Mirror::new([disks[0].device(), disks[1].device()], 0).unwrap();
        mirror.write_durable(&[(0, &block(1)), (8192, &block(2))]).unwrap();
        mirror.write_durable(&[(4096, &block(3))]).unwrap();
        assert_eq!(disks[0].image(), disks[1].image());
        assert_eq!(disks[0].image()[8192], 2);
        assert!(mirror.trouble().is_none());
    }

    #[test]
    fn it_goes_on_with_either_half_and_not_without_both() {
        for lost in 0..2 {
            let disks = [SimDisk::new(BYTES, 1), SimDisk::new(BYTES, 2)];
            let mirror = Mirror::new([disks[0].device(), disks[1].device()], lost).unwrap();
            disks[lost].set_fault(Fault::Error(1));
            mirror.write_durable(&[(0, &block(1))]).unwrap();
            assert!(!mirror.half_lost().load(Ordering::Acquire));
            mirror.write_durable(&[(0, &block(2))]).unwrap();
            assert!(mirror.half_lost().load(Ordering::Acquire));
            mirror.write_durable(&[(0, &block(3))]).unwrap();
            assert_eq!((disks[1 - lost].image()[0], disks[lost].image()[0]), (3, 1));
            let mut read = block(0);
            mirror.read_at(0, &mut read).unwrap();
            assert_eq!(read[0], 3, "what is left is read");
            assert!(mirror.trouble().unwrap().contains("injected write error"));
            disks[1 - lost].set_fault(Fault::Error(0));
            assert!(mirror.write_durable(&[(0, &block(4))]).is_err());
        }
    }

    #[test]
    fn a_half_that_is_found_lost_is_done_without() {
        for lost in 0..2 {
            let disks = [SimDisk::new(BYTES, 1), SimDisk::new(BYTES, 2)];
            let mirror = Mirror::new([disks[0].device(), disks[1].device()], 0).unwrap();
            mirror.write_durable(&[(0, &block(1))]).unwrap();
            assert_eq!(mirror.look(true), Ok(()));
            assert!(!mirror.half_lost().load(Ordering::Acquire));
            disks[lost].edit(|bytes| bytes[0] = 9);
            assert_eq!(mirror.look(true), Ok(()));
            assert!(mirror.half_lost().load(Ordering::Acquire));
            assert!(mirror.trouble().unwrap().contains("overwritten"));
            mirror.write_durable(&[(0, &block(2))]).unwrap();
            assert_eq!((disks[1 - lost].image()[0], disks[lost].image()[0]), (2, 9));
            // Without this one there is none.
            disks[1 - lost].lose("was removed");
            assert!(mirror.look(true).unwrap_err().contains("was removed"));
        }
    }

    #[test]
    fn a_write_that_only_the_lost_half_has_is_an_error() {
        let disks = [SimDisk::new(BYTES, 1), SimDisk::new(BYTES, 2)];
        let mirror = Mirror::new([disks[0].device(), disks[1].device()], 0).unwrap();
        disks[0].set_fault(Fault::Error(0));
        disks[1].hold(true);
        std::thread::scope(|s| {
            let write = s.spawn(|| mirror.write_durable(&[(0, &block(1))]));
            disks[1].await_held();
            disks[1].lose("was removed");
            assert_eq!(mirror.look(false), Ok(()), "the first half is all that is left");
            disks[1].hold(false);
            assert!(write.join().unwrap().is_err());
        });
    }

    #[test]
    fn an_error_of_both_at_once_is_an_error() {
        let disks = [SimDisk::new(BYTES, 1), SimDisk::new(BYTES, 2)];
        let mirror = Mirror::new([disks[0].device(), disks[1].device()], 0).unwrap();
        disks.iter().for_each(|d| d.set_fault(Fault::Error(0)));
        assert!(mirror.write_durable(&[(0, &block(1))]).is_err());
        assert!(mirror.trouble().is_none(), "neither is better than the other");
    }
}
