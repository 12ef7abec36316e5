//! Logs of 64 MiB to 16 GiB with the same work: what a larger log costs when it is made, at a start, for an operation, in memory, and when
//! the server was killed.
//!
//! A start after that reads the whole log: if it has lost a batch in front of later ones, nothing may be served, and where the later ones
//! would be nobody knows. What it holds is bounded by time: a checkpoint comes 5 s after the first record, or when half of the log is full
//! (`recovery-speed` measures that).

use super::growth::per_unit;
use super::{BestOf, Figure, dir_ops, flat, mebibytes, start};
use crate::error::Result;
use crate::experiments::{Check, Findings, Progress, Row};
use crate::latencies::OneAtATime;
use crate::memory_disk::MemoryDisk;
use crate::mounts::Filesystem;
use crate::served::{Durability, ServeOptions};
use landfast_xdr::Bytes;

const FIRST_MIB: u64 = 64;
/// The largest log in MiB, unless chosen otherwise; the claim is about 16,384 as well. The logs are files of this machine's own disk.
const LAST_MIB: u64 = 1024;
const CHANGES: u64 = 1_000;
const ROUNDS: u64 = 3;

/// The claim: a start after the server was killed reads the whole log, at half the speed of a slow SSD at least.
const RECOVERY_MS_EACH_MAX: f64 = 4.0;
/// The claim: peak memory of the server in MiB, whatever the log's size.
const PEAK_MIB_MAX: f64 = 128.0;

#[derive(Default)]
struct Figures {
    make: Figure,
    start: Figure,
    recovery: Figure,
    peak: f64,
}

pub(super) fn measure(files: Option<u64>, progress: Progress<'_>) -> Result<Findings> {
    let (mut lines, mut figures) = (Vec::new(), Figures::default());
    let last = files.unwrap_or(LAST_MIB).max(FIRST_MIB);
    for mib in std::iter::successors(Some(FIRST_MIB), |n| n.checked_mul(4)).take_while(|n| *n <= last) {
        progress(&format!("a log of {mib} MiB"));
        lines.push(one_size(mib, &mut figures)?);
    }
    let checks = vec![
        flat("median latency of CREATE, over the log's size", &figures.make),
        flat("time of a clean start, over the log's size", &figures.start),
        Check::at_most(
            "ms of a start after SIGKILL for each MiB of the log",
            per_unit(&figures.recovery) / 1e3,
            RECOVERY_MS_EACH_MAX,
        ),
        Check::at_most("peak memory of the server in MiB, any size of the log", figures.peak, PEAK_MIB_MAX),
    ];
    Ok(Findings { lines, checks, ..Findings::default() })
}

fn one_size(mib: u64, figures: &mut Figures) -> Result<Row> {
    let disk = MemoryDisk::of(Filesystem::Xfs)?;
    let dir = crate::machine::scratch_dir("landfast-scale-")?;
    let log = dir.path().join("log");
    let options = ServeOptions {
        log_bytes: Some(mib << 20),
        ..ServeOptions::new(disk.export(), Some(&log), Durability::Log)
    };
    let made = start(&options)?;
    let first_ms = made.start_took().as_secs_f64() * 1e3;
    made.stop()?;
    let (mut start_us, mut recovery_us, mut peak) = (f64::MAX, f64::MAX, 0);
    let mut make = BestOf::default();
    for round in 0..ROUNDS {
        let server = start(&options)?;
        start_us = start_us.min(server.start_took().as_secs_f64() * 1e6);
        let mut client = OneAtATime::connect(server.addr(), "logs")?;
        let root = client.0.walk("/")?;
        make.add(client.times(CHANGES, |n| dir_ops(&root, Bytes::from(format!("made-{round}-{n}"))))?);
        peak = peak.max(server.peak_rss_bytes().unwrap_or(0));
        server.kill();
        let restarted = start(&options)?;
        recovery_us = recovery_us.min(restarted.start_took().as_secs_f64() * 1e6);
        peak = peak.max(restarted.peak_rss_bytes().unwrap_or(0));
        restarted.stop()?;
    }
    let size = mib as f64;
    figures.make.push((size, make.us(0.5)));
    figures.start.push((size, start_us));
    figures.recovery.push((size, recovery_us));
    figures.peak = figures.peak.max(mebibytes(peak));
    Ok(Row::new(
        &format!("a log of {mib} MiB"),
        [
            ("create_p50_us", make.us(0.5)),
            ("create_p99_us", make.us(0.99)),
            ("create_p999_us", make.us(0.999)),
            ("creates_per_s", 1e6 / make.us(0.5)),
            ("peak_rss_mib", mebibytes(peak)),
            ("first_start_ms", first_ms),
            ("start_ms", start_us / 1e3),
            ("start_after_kill_ms", recovery_us / 1e3),
        ],
    ))
}
