//! One operation at a time on devices of different speed: how near to what the equation allows, which is a round trip and one flush of the log's device.
//!
//! The round trip is that of a request that does nothing; the device's own time is that of a durable append of 4 KiB: on an emulated device
//! a write to the blocks of the log's self-test (it does not care where one writes), on the machine's own disk an append to a second file that was
//! written before, as the log's was. Both are made in the quicker of two ways. A server that does nothing else does both at once
//! (`least`). All are measured in turns on one server. A shared machine
//! makes turns slower, never quicker, so of each the median of the quickest turn counts.

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::{Context, Result};
use crate::rig::{Latency, Rig, RigOptions};
use crate::serial::least::{BlockWriter, LeastServer, Method};
use crate::serial::lone::{Kind, Lone, Version};
use crate::served::{Durability, ServeOptions, Served};
use landfast_intentlog::limits::{BLOCK_BYTES, SCRATCH_OFFSET};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Turns of each, unless chosen otherwise, and how many requests or writes are in one.
const TURNS: u64 = 12;
const PER_TURN: u64 = 60;

/// What is claimed: the part of an operation's time that is the round trip and the flush.
const SHARE_FAST: f64 = 0.6;
const SHARE_SLOW: f64 = 0.85;

const KINDS: [Kind; 3] = [Kind::Create, Kind::Write4k, Kind::Setattr];

/// A device of the log: an emulated one whose flush takes this long, or a file on the machine's own disk.
enum LogDevice {
    Emulated(Duration),
    Own,
}

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    let turns = choices.files.map_or(TURNS, |files| files.div_ceil(PER_TURN).max(1));
    crate::namespace::run_private(|| measure(turns, progress))?
}

fn measure(turns: u64, progress: Progress<'_>) -> Result<Findings> {
    let us = |us| LogDevice::Emulated(Duration::from_micros(us));
    let mut findings = Findings::default();
    for device in [LogDevice::Own, us(50), us(1_000), us(10_000)] {
        for version in [Version::V3, Version::V42] {
            let (name, slow) = match device {
                LogDevice::Own => ("the machine's own disk".to_owned(), false),
                LogDevice::Emulated(flush) => {
                    (format!("{} ms", flush.as_secs_f64() * 1000.0), flush >= Duration::from_millis(1))
                }
            };
            let what = format!("{}, {name}", version.name());
            progress(&what);
            // A slow device needs fewer turns to be as exact.
            let turns = if slow { turns.div_ceil(3) } else { turns };
            let best = on_device(&device, version, turns)?;
            let own = best.round_trip + best.device;
            let share = |took: Duration| own.as_secs_f64() / took.as_secs_f64();
            let micros = |time: Duration| time.as_secs_f64() * 1e6;
            let all = best.kinds.iter().sum::<Duration>() / KINDS.len() as u32;
            findings.lines.push(Row::new(
                &what,
                [
                    ("round_trip_us", micros(best.round_trip)),
                    ("device_us", micros(best.device)),
                    ("least_us", micros(best.least)),
                    ("create_us", micros(best.kinds[0])),
                    ("write_us", micros(best.kinds[1])),
                    ("setattr_us", micros(best.kinds[2])),
                    ("share_create", share(best.kinds[0])),
                    ("share_write", share(best.kinds[1])),
                    ("share_setattr", share(best.kinds[2])),
                    ("share", share(all)),
                    ("least_share", best.least.as_secs_f64() / all.as_secs_f64()),
                    ("flushes", best.flushes),
                ],
            ));
            // Whatever else the machine's own disk has to do meanwhile is not known.
            if let LogDevice::Emulated(_) = device {
                let claimed = if slow { SHARE_SLOW } else { SHARE_FAST };
                let what = format!("(round trip + one flush) / operation, {what}");
                findings.checks.push(Check::at_least(&what, share(all), claimed));
            }
        }
    }
    Ok(findings)
}

/// The median of the quickest turn of each.
struct Best {
    round_trip: Duration,
    device: Duration,
    /// Both at once, by a server that does nothing else.
    least: Duration,
    kinds: [Duration; KINDS.len()],
    /// Of the emulated device, for each operation.
    flushes: f64,
}

fn on_device(device: &LogDevice, version: Version, turns: u64) -> Result<Best> {
    let mut rig = Rig::new(&RigOptions::default())?;
    rig.format()?;
    let own = crate::machine::scratch_dir("landfast-lab-")?;
    let log = match device {
        LogDevice::Emulated(flush) => {
            rig.set_latency(Latency { data_flush: Duration::ZERO, log_flush: *flush })?;
            rig.log_device()?.to_owned()
        }
        LogDevice::Own => own.path().join("log"),
    };
    let options = ServeOptions::new(&rig.export(), Some(&log), Durability::Log);
    let server = Served::start(&ServeOptions { log_bytes: Some(64 << 20), ..options })?;
    let mut client = Lone::connect(server.addr(), version, "lone")?;
    let (path, place) = match device {
        LogDevice::Emulated(_) => (log, SCRATCH_OFFSET..SCRATCH_OFFSET + BLOCK_BYTES as u64),
        LogDevice::Own => (second_file(own.path())?, 0..SECOND_BYTES),
    };
    let mut device = BlockWriter::open(&path, place.clone())?;
    let mut least = LeastServer::start(BlockWriter::open(&path, place)?)?;
    let max = Duration::MAX;
    let mut best = Best { round_trip: max, device: max, least: max, kinds: [max; KINDS.len()], flushes: 0.0 };
    let mut flushes = 0;
    for turn in 0..=turns {
        let round_trip = median(|| client.null())?;
        let mut write =
            |method| median(|| device.write(method).context(|| "write beside the log".to_owned()));
        let (flushed, through) = (write(Method::Flushed)?, write(Method::Through)?);
        let quicker = if through < flushed { Method::Through } else { Method::Flushed };
        let answered = median(|| least.call(quicker))?;
        let mut kinds = [max; KINDS.len()];
        let before = rig.stats()?.log.flushes;
        for (took, kind) in kinds.iter_mut().zip(KINDS) {
            *took = median(|| client.run(kind, 1))?;
        }
        flushes += rig.stats()?.log.flushes - before;
        client.close_all()?;
        // The first turn warms up.
        if turn > 0 {
            best.round_trip = best.round_trip.min(round_trip);
            best.device = best.device.min(flushed).min(through);
            best.least = best.least.min(answered);
            for (best, took) in best.kinds.iter_mut().zip(kinds) {
                *best = took.min(*best);
            }
        }
    }
    rig.set_latency(Latency::default())?;
    drop(client);
    server.stop()?;
    best.flushes = flushes as f64 / ((turns + 1) * PER_TURN * KINDS.len() as u64) as f64;
    Ok(best)
}

/// Size of the file that is appended to beside the log.
const SECOND_BYTES: u64 = 64 << 20;

/// A file whose blocks have all been written.
fn second_file(dir: &Path) -> Result<PathBuf> {
    let path = dir.join("beside");
    let made =
        std::fs::write(&path, vec![0; SECOND_BYTES as usize]).and_then(|()| File::open(&path)?.sync_all());
    made.context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// The median time of [`PER_TURN`] runs.
fn median(mut work: impl FnMut() -> Result<()>) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..PER_TURN {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
