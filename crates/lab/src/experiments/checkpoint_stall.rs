//! What a checkpoint costs clients that work while it runs: latencies of operations that overlap one, beside those that do not.
//!
//! Eight clients make small files, one operation at a time each, on a data disk that takes 10 ms for a flush and 200 MiB/s for what
//! it flushes. A checkpoint comes every 5 s. The server's metrics, read all the time, say whether one is running.
//!
//! ext4 reads a block of its inode table when it makes two files of that block at once for the first time, and on this disk a
//! read or write waits for a flush that has begun. So the directory has held as many files before, and the table is in memory; and ext4
//! commits its journal for checkpoints only. By itself it would do so every 5 s, too: of two commits at a time the second waits for the
//! first one's flush, and whoever needs one of its blocks waits with it.

use super::{Check, Choices, Findings, Progress, Row, actor};
use crate::error::{Context, Error, Result};
use crate::measure::ms;
use crate::rig::{Latency, Rig, RigOptions};
use crate::scrape;
use crate::serial::{Action, Actor};
use crate::served::{Durability, ReservedPort, ServeOptions, Served};
use landfast_xdr::Bytes;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: u64 = 8;
const DATA_FLUSH: Duration = Duration::from_millis(10);
const LOG_FLUSH: Duration = Duration::from_millis(1);
const FILE_BYTES: usize = 4096;
const MOUNT_OPTIONS: &str = "commit=300";
/// Files that a client's directory has held before; none of the clients makes as many.
const FORMER_FILES: usize = 4_000;
/// Long enough for two checkpoints.
const WINDOW: Duration = Duration::from_secs(13);
/// How often the server is asked.
const POLL: Duration = Duration::from_millis(2);
/// A stall is bounded by the slower of this and twice the device's flush.
const STALL_MS: f64 = 50.0;

/// One operation: when it began, and how long it took.
type Timed = (Instant, Duration);

pub(super) fn run(_: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::namespace::run_private(|| measure(progress))?
}

fn measure(progress: Progress<'_>) -> Result<Findings> {
    let mut rig = Rig::new(&RigOptions { log_bytes: 256 << 20, ..RigOptions::default() })?;
    rig.set_mount_options(MOUNT_OPTIONS);
    rig.format()?;
    make_and_remove(&rig.export())?;
    rig.set_latency(Latency { data_flush: DATA_FLUSH, log_flush: LOG_FLUSH })?;
    rig.control("drain_mib=200")?;
    let log = rig.log_device()?.to_owned();
    let reserved = ReservedPort::new()?;
    let metrics = reserved.addr();
    let server = Served::start(&ServeOptions {
        metrics: Some(metrics),
        ..ServeOptions::new(&rig.export(), Some(&log), Durability::Log)
    })?;
    let actors = (0..CLIENTS).map(|n| actor(server.addr(), n)).collect::<Result<Vec<_>>>()?;
    progress(&format!("{CLIENTS} clients for {} s", WINDOW.as_secs()));
    let before = rig.stats()?;
    let until = Instant::now() + WINDOW;
    let done = AtomicBool::new(false);
    let panic = |_| Error::Child { role: "client", what: "panic".into() };
    let (timed, running) = std::thread::scope(|s| {
        let watch = s.spawn(|| watch(metrics, &done));
        let all: Vec<_> = actors.into_iter().map(|actor| s.spawn(move || work(actor, until))).collect();
        let timed: Result<Vec<_>> = all.into_iter().map(|one| one.join().map_err(panic)?).collect();
        done.store(true, Ordering::Release);
        Ok::<_, Error>((timed?.concat(), watch.join().map_err(panic)??))
    })?;
    let did = rig.stats()?.since(&before);
    let page = scrape::page(metrics)?;
    rig.set_latency(Latency::default())?;
    server.stop()?;

    let overlaps =
        |(began, took): &Timed| running.iter().any(|(from, to)| *began < *to && *began + *took > *from);
    let (during, without): (Vec<Timed>, Vec<Timed>) = timed.iter().copied().partition(overlaps);
    let operations = timed.len().max(1) as f64;
    let (during, without) = (Latencies::of(&during), Latencies::of(&without));
    let longest = running.iter().map(|(from, to)| ms(*to - *from)).fold(0.0, f64::max);
    let lines = vec![
        without.line("no checkpoint under way"),
        during.line("a checkpoint under way"),
        Row::new(
            "all",
            [
                ("operations", operations),
                ("log_flushes_per_operation", did.log.flushes as f64 / operations),
                ("checkpoints", running.len() as f64),
                ("longest_checkpoint_ms", longest),
                ("waits_at_the_gate_s", scrape::value(&page, "log_gate_wait_seconds_sum")?),
                ("waits_for_room_s", scrape::value(&page, "log_room_wait_seconds_sum")?),
            ],
        ),
    ];
    let bound = STALL_MS.max(2.0 * ms(DATA_FLUSH));
    let checks = vec![
        Check::at_least("checkpoints while there was work", running.len() as f64, 2.0),
        Check::at_most(
            "ms that the slowest of 1,000 operations takes longer than the median while a checkpoint runs",
            during.percentile(0.999) - without.percentile(0.5),
            bound,
        ),
    ];
    Ok(Findings { lines, checks, ..Findings::default() })
}

/// Makes the directories of all clients with files in them, and removes them.
fn make_and_remove(export: &Path) -> Result<()> {
    let dirs: Vec<_> = (0..CLIENTS).map(|n| export.join(format!("client{n}"))).collect();
    for dir in &dirs {
        std::fs::create_dir(dir).context(|| format!("create {}", dir.display()))?;
        for n in 0..FORMER_FILES {
            let file = dir.join(format!("file{n}"));
            std::fs::File::create(&file).context(|| format!("create {}", file.display()))?;
        }
    }
    for dir in &dirs {
        std::fs::remove_dir_all(dir).context(|| format!("remove {}", dir.display()))?;
    }
    crate::mounts::syncfs(export)
}

struct Latencies(Vec<f64>);

impl Latencies {
    fn of(timed: &[Timed]) -> Latencies {
        let mut all: Vec<f64> = timed.iter().map(|(_, took)| ms(*took)).collect();
        all.sort_unstable_by(f64::total_cmp);
        Latencies(all)
    }

    /// The least value that this part of all values does not exceed.
    fn percentile(&self, part: f64) -> f64 {
        let rank = (self.0.len() as f64 * part).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    }

    fn line(&self, name: &str) -> Row {
        Row::new(
            name,
            [
                ("operations", self.0.len() as f64),
                ("p50_ms", self.percentile(0.5)),
                ("p99_ms", self.percentile(0.99)),
                ("p99.9_ms", self.percentile(0.999)),
                ("max_ms", self.percentile(1.0)),
            ],
        )
    }
}

/// Makes files until then, and times each operation that must be stable before its reply.
fn work(mut actor: Actor, until: Instant) -> Result<Vec<Timed>> {
    let data = Bytes::from(vec![b'x'; FILE_BYTES]);
    let mut timed = Vec::new();
    for n in 0u64.. {
        let path = format!("file{n}").into_bytes();
        for action in [
            Action::Create { path: path.clone(), mode: 0o644 },
            Action::Write { path: path.clone(), offset: 0, data: data.clone(), stable: true },
        ] {
            let began = Instant::now();
            actor.perform(&action)?;
            timed.push((began, began.elapsed()));
        }
        actor.perform(&Action::Close { path })?;
        if Instant::now() >= until {
            break;
        }
    }
    Ok(timed)
}

/// When checkpoints were running: from the last look before each to the first after it.
fn watch(metrics: SocketAddr, done: &AtomicBool) -> Result<Vec<(Instant, Instant)>> {
    let mut running: Vec<(Instant, Instant)> = Vec::new();
    let (mut last, mut was, mut completed) = (Instant::now(), false, 0.0);
    while !done.load(Ordering::Acquire) {
        let page = scrape::page(metrics)?;
        let now = Instant::now();
        let is = scrape::value(&page, "log_checkpoint_running")? > 0.0;
        let so_far = scrape::value(&page, "log_checkpoints_total")?;
        match running.last_mut().filter(|_| was) {
            Some((_, to)) => *to = now,
            // Begun since the last look, or begun and completed.
            None if is || so_far > completed => running.push((last, now)),
            None => {}
        }
        (last, was, completed) = (now, is, so_far);
        std::thread::sleep(POLL);
    }
    Ok(running)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let all = Latencies((1..=1000).map(f64::from).collect());
        assert_eq!([0.5, 0.99, 0.999, 1.0].map(|p| all.percentile(p)), [500.0, 990.0, 999.0, 1000.0]);
        assert_eq!(Latencies(Vec::new()).percentile(0.5), 0.0);
    }
}
