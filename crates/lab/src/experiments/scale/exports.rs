//! One server with 1 to 1,000 exports, each with a directory and a log of its own; eight clients that work on each in turn.

use super::growth::{per_unit, tenfold};
use super::{BestOf, Figure, flat, mebibytes, start};
use crate::crowd::{Crowd, Work};
use crate::error::{Context, Error, Result};
use crate::experiments::{Check, Findings, Progress, Row};
use crate::memory_disk::MemoryDisk;
use crate::mounts::Filesystem;
use crate::served::{Durability, Other, ServeOptions, Served};
use std::path::Path;
use std::time::Duration;

/// The most exports, unless chosen otherwise; the claim is about 1,000 as well.
const EXPORTS: u64 = 100;
/// What each export reserves of its filesystem for recovery (the volume's `RESERVE_BYTES_MAX`), and the rest of the filesystem.
const RESERVE_BYTES: u64 = 256 << 20;
const FILESYSTEM_BYTES: u64 = 16 << 30;
/// Size of each export's log.
const LOG_BYTES: u64 = 4 << 20;
const SINGLE: u64 = 2_000;
const TOGETHER: u64 = 10_000;
const CLIENTS: u64 = 8;
const FILE: &str = "file";
const ROUNDS: u64 = 3;

/// For so long the server has nothing to do, while its processor time is counted.
const IDLE: Duration = Duration::from_secs(5);

/// The claims, for each export: memory; time of a start; processor time of a server without work, in a second.
const BYTES_EACH_MAX: f64 = 512.0 * 1024.0;
const START_MS_EACH_MAX: f64 = 25.0;
const IDLE_US_EACH_MAX: f64 = 200.0;

#[derive(Default)]
struct Figures {
    getattr: Figure,
    write: Figure,
    cpu: Figure,
    memory: Figure,
    start: Figure,
    recovery: Figure,
    idle: Figure,
}

pub(super) fn measure(files: Option<u64>, progress: Progress<'_>) -> Result<Findings> {
    let (mut lines, mut figures) = (Vec::new(), Figures::default());
    for exports in tenfold(1, files.unwrap_or(EXPORTS)) {
        progress(&format!("{exports} exports"));
        lines.push(one_size(exports, &mut figures)?);
    }
    let checks = vec![
        flat("median latency of GETATTR, over exports", &figures.getattr),
        flat("median latency of WRITE FILE_SYNC, over exports", &figures.write),
        flat("processor time of a WRITE, eight at a time, over exports", &figures.cpu),
        Check::at_most("bytes of memory for each export", per_unit(&figures.memory), BYTES_EACH_MAX),
        Check::at_most(
            "ms of a clean start for each export",
            per_unit(&figures.start) / 1e3,
            START_MS_EACH_MAX,
        ),
        Check::at_most(
            "ms of a start after SIGKILL for each export",
            per_unit(&figures.recovery) / 1e3,
            START_MS_EACH_MAX,
        ),
        Check::at_most(
            "us of processor time in a second without work, for each export",
            per_unit(&figures.idle),
            IDLE_US_EACH_MAX,
        ),
    ];
    Ok(Findings { lines, checks, ..Findings::default() })
}

/// The name of export number `n`.
fn name(n: u64) -> String {
    if n == 0 { "first".to_owned() } else { format!("other-{n:04}") }
}

/// Makes an export's directory with its file.
fn fill(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).context(|| dir.display().to_string())?;
    let file = dir.join(FILE);
    std::fs::File::create(&file).context(|| file.display().to_string()).map(drop)
}

fn one_size(exports: u64, figures: &mut Figures) -> Result<Row> {
    let disk = MemoryDisk::sized(Filesystem::Xfs, FILESYSTEM_BYTES + exports * RESERVE_BYTES)?;
    let dir = |n| disk.export().join(name(n));
    let log = |n| disk.scratch().join(name(n));
    for n in 0..exports {
        fill(&dir(n))?;
        // A file of zeros is an unused log. One that the server makes itself would have at least 16 MiB.
        let zeros = std::fs::File::create(log(n)).and_then(|file| file.set_len(LOG_BYTES));
        zeros.context(|| log(n).display().to_string())?;
    }
    crate::mounts::syncfs(disk.export())?;
    let others = (1..exports).map(|n| Other { dir: dir(n), name: name(n), log: log(n) }).collect();
    let options = ServeOptions {
        // From a file, as several exports are.
        limits: vec![("clients", 4096)],
        others,
        ..ServeOptions::new(&dir(0), Some(&log(0)), Durability::Log)
    };
    // The first start makes the logs.
    let made = start(&options)?;
    let first_ms = made.start_took().as_secs_f64() * 1e3;
    made.stop()?;
    let server = start(&options)?;
    let start_us = server.start_took().as_secs_f64() * 1e6;
    let memory = server.rss_bytes().unwrap_or(0);
    let (threads, descriptors) = server.threads_and_descriptors().unwrap_or_default();
    let before = cpu(&server)?;
    std::thread::sleep(IDLE);
    let idle_us = cpu(&server)?.saturating_sub(before).as_secs_f64() * 1e6 / IDLE.as_secs_f64();
    // A lone export is the root.
    let path = |n| {
        let export = (exports > 1).then(|| name(n).into_bytes());
        export.into_iter().chain([FILE.as_bytes().to_vec()]).collect()
    };
    let crowd = Crowd::connect(server.addr(), CLIENTS, |_| (0..exports).map(path).collect())?;
    let (mut getattr, mut write, mut together) = (BestOf::default(), BestOf::default(), BestOf::default());
    let (mut used, mut took) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        getattr.add(crowd.work(Work::Getattr, SINGLE, 1)?.1);
        write.add(crowd.work(Work::Write, SINGLE, 1)?.1);
        let before = cpu(&server)?;
        let (whole, latencies) = crowd.work(Work::Write, TOGETHER, CLIENTS)?;
        used = used.min(cpu(&server)?.saturating_sub(before));
        took = took.min(whole);
        together.add(latencies);
    }
    let peak = server.peak_rss_bytes().unwrap_or(0);
    server.kill();
    drop(crowd);
    let restarted = start(&options)?;
    let recovery_us = restarted.start_took().as_secs_f64() * 1e6;
    restarted.stop()?;
    let size = exports as f64;
    let cpu_us = used.as_secs_f64() * 1e6 / TOGETHER as f64;
    figures.getattr.push((size, getattr.us(0.5)));
    figures.write.push((size, write.us(0.5)));
    figures.cpu.push((size, cpu_us));
    figures.memory.push((size, memory as f64));
    figures.start.push((size, start_us));
    figures.recovery.push((size, recovery_us));
    figures.idle.push((size, idle_us));
    Ok(Row::new(
        &format!("{exports} exports"),
        [
            ("getattr_p50_us", getattr.us(0.5)),
            ("getattr_p99_us", getattr.us(0.99)),
            ("getattr_p999_us", getattr.us(0.999)),
            ("write_p50_us", write.us(0.5)),
            ("write_p99_us", write.us(0.99)),
            ("write_p999_us", write.us(0.999)),
            ("eight_at_once_writes_per_s", TOGETHER as f64 / took.as_secs_f64()),
            ("eight_at_once_p50_us", together.us(0.5)),
            ("eight_at_once_p99_us", together.us(0.99)),
            ("eight_at_once_cpu_us_per_write", cpu_us),
            ("rss_mib", mebibytes(memory)),
            ("peak_rss_mib", mebibytes(peak)),
            ("threads", threads as f64),
            ("descriptors", descriptors as f64),
            ("idle_cpu_us_per_s", idle_us),
            ("first_start_ms", first_ms),
            ("start_ms", start_us / 1e3),
            ("start_after_kill_ms", recovery_us / 1e3),
        ],
    ))
}

fn cpu(server: &Served) -> Result<Duration> {
    server.cpu().ok_or_else(|| Error::Child { role: "server", what: "ended".into() })
}
