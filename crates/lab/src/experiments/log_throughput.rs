//! The log by itself, on an emulated device: what it adds to the device's own synchronous write, and how far writers share
//! flushes.
//!
//! The device's own latency is that of a durable 4 KiB write with O_DIRECT to the log's scratch blocks, on the same device, in the
//! quicker of two ways: with O_DSYNC, or with fdatasync after it. It is measured in turns with the log: a shared machine makes turns slower, never quicker, so of each the median of the
//! quickest turn counts.

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::{Context, Error, Result};
use crate::rig::{Latency, Rig, RigOptions};
use landfast_intentlog::aligned::AlignedBuf;
use landfast_intentlog::limits::{BLOCK_BYTES, SCRATCH_OFFSET};
use landfast_intentlog::{Checkpoint, Config, Log, LogError};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a record: about what creating a file takes.
const RECORD_BYTES: usize = 300;
const WRITERS: u64 = 64;
/// Turns of each, and the time of one.
const TURNS: usize = 4;
const TURN: Duration = Duration::from_millis(400);
/// The most latency of one writer, as a multiple of the device's own, with a flush of a millisecond.
const ADDED_MAX: f64 = 1.15;
/// The least operations of 64 writers, as a multiple of one writer's, with the same flush.
const SHARED_MIN: f64 = 20.0;

/// Nothing to make durable: the log alone is measured.
struct NoVolume;

impl Checkpoint for NoVolume {
    fn snapshot(&self) -> Box<dyn landfast_intentlog::Snapshot> {
        Box::new(Vec::new())
    }

    fn sync(&self, _: u64) -> std::io::Result<()> {
        Ok(())
    }
}

pub(super) fn run(_: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::namespace::run_private(|| measure(progress))?
}

fn failed(why: LogError) -> Error {
    Error::Child { role: "log", what: why.to_string() }
}

fn measure(progress: Progress<'_>) -> Result<Findings> {
    let (mut lines, mut checks) = (Vec::new(), Vec::new());
    for flush in [Duration::from_millis(1), Duration::from_micros(50)] {
        progress(&format!("a device whose flush takes {flush:?}"));
        let mut rig = Rig::new(&RigOptions::default())?;
        rig.format()?;
        rig.set_latency(Latency { data_flush: Duration::ZERO, log_flush: flush })?;
        let found = on_device(rig.log_device()?)?;
        let name = |what: &str| format!("{what}, flush of {flush:?}");
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let ratio = us(found.log) / us(found.device);
        let shared = found.many.per_s / found.one.per_s;
        lines.push(Row::new(
            &name("one writer"),
            [
                ("device_us", us(found.device)),
                ("log_us", us(found.log)),
                ("log_to_device", ratio),
                ("operations_per_s", found.one.per_s),
                ("flushes_per_operation", found.one.flushes),
            ],
        ));
        lines.push(Row::new(
            &name(&format!("{WRITERS} writers")),
            [
                ("operations_per_s", found.many.per_s),
                ("to_one_writer", shared),
                ("flushes_per_operation", found.many.flushes),
            ],
        ));
        if flush >= Duration::from_millis(1) {
            let what = "one writer's latency to the device's own";
            checks.push(Check::at_most(what, ratio, ADDED_MAX));
            let what = format!("operations of {WRITERS} writers to those of one");
            checks.push(Check::at_least(&what, shared, SHARED_MIN));
            let what = "flushes per operation of one writer";
            checks.push(Check::exactly(what, found.one.flushes, 1.0));
        }
    }
    let notes = vec![
        "with a flush of 50 us the emulated disk's own threads take as long as the log; figures, no claims"
            .to_owned(),
    ];
    Ok(Findings { lines, checks, notes, ..Findings::default() })
}

#[derive(Default)]
struct Work {
    per_s: f64,
    flushes: f64,
}

struct Measured {
    device: Duration,
    log: Duration,
    one: Work,
    many: Work,
}

fn on_device(path: &Path) -> Result<Measured> {
    let open = |e: landfast_intentlog::OpenError| Error::Child { role: "log", what: e.to_string() };
    let (log, _) = Log::open(Config::new(path, 0, [1; 16])).map_err(open)?;
    log.start(Arc::new(NoVolume)).map_err(failed)?;
    let beside = |flags| {
        let file = File::options().write(true).custom_flags(libc::O_DIRECT | flags).open(path);
        file.context(|| format!("{}", path.display()))
    };
    let (through, flushed) = (beside(libc::O_DSYNC)?, beside(0)?);
    let (mut device, mut own) = (Duration::MAX, Duration::MAX);
    let (mut one, mut many) = (Work::default(), Work::default());
    for _ in 0..TURNS {
        device = device.min(device_turn(&through, false, path)?).min(device_turn(&flushed, true, path)?);
        let (work, median) = log_turn(&log, 1)?;
        own = own.min(median);
        if work.per_s > one.per_s {
            one = work;
        }
        let (work, _) = log_turn(&log, WRITERS)?;
        if work.per_s > many.per_s {
            many = work;
        }
    }
    log.shutdown().map_err(failed)?;
    Ok(Measured { device, log: own, one, many })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(Duration::MAX)
}

/// The median of the device's own writes in one turn, each with an fdatasync or, on a file with O_DSYNC, without.
fn device_turn(device: &File, sync: bool, path: &Path) -> Result<Duration> {
    let block = AlignedBuf::zeroed(BLOCK_BYTES);
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < TURN {
        let start = Instant::now();
        let written = device.write_all_at(&block, SCRATCH_OFFSET);
        let durable = written.and_then(|()| if sync { device.sync_data() } else { Ok(()) });
        durable.context(|| format!("{}", path.display()))?;
        times.push(start.elapsed());
    }
    Ok(median(times))
}

/// The median of a transaction while so many writers work for one turn.
fn log_turn(log: &Log, writers: u64) -> Result<(Work, Duration)> {
    let before = log.stats();
    let began = Instant::now();
    let times = std::thread::scope(|s| {
        let all: Vec<_> = (0..writers).map(|_| s.spawn(|| writer(log, began))).collect();
        let panic = |_| Error::Child { role: "writer", what: "panic".into() };
        all.into_iter().map(|one| one.join().map_err(panic)?).collect::<Result<Vec<_>>>()
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let times: Vec<Duration> = times.into_iter().flatten().collect();
    let operations = times.len().max(1) as f64;
    // Superblocks are checkpoints' business.
    let flushes = log.stats().batches - before.batches;
    let work = Work { per_s: operations / seconds, flushes: flushes as f64 / operations };
    Ok((work, median(times)))
}

fn writer(log: &Log, began: Instant) -> Result<Vec<Duration>> {
    let record = [7; RECORD_BYTES];
    let mut times = Vec::new();
    while began.elapsed() < TURN {
        let start = Instant::now();
        let mut transaction = log.begin().map_err(failed)?;
        transaction.append(&record);
        transaction.commit().wait_blocking().map_err(failed)?;
        times.push(start.elapsed());
    }
    Ok(times)
}
