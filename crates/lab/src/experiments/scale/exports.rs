//! One server with 1 to 1,000 exports, each with a directory and a log of its own; a client of each.

use super::growth::{per_unit, tenfold};
use super::{BestOf, Figure, flat, mebibytes};
use crate::crowd::{Crowd, Work, file_name};
use crate::error::{Context, Error, Result};
use crate::experiments::{Check, Findings, Progress, Row};
use crate::memory_disk::MemoryDisk;
use crate::mounts::Filesystem;
use crate::served::{Durability, Other, ServeOptions, Served};
use std::path::Path;
use std::time::Duration;

/// The most exports, unless chosen otherwise; the claim is about 1,000 as well.
const EXPORTS: u64 = 100;
/// Size of each export's log.
const LOG_BYTES: usize = 1 << 20;
const SINGLE: u64 = 2_000;
const TOGETHER: u64 = 10_000;
const AT_ONCE: u64 = 8;
const ROUNDS: u64 = 3;

/// Limits of the server that a client for each export needs, all of one address.
const LIMITS: [(&str, u64); 1] = [("client_connections", 2_048)];

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

/// Makes an export's directory with the file of its client.
fn fill(dir: &Path, n: u64) -> Result<()> {
    std::fs::create_dir_all(dir).context(|| dir.display().to_string())?;
    let file = dir.join(file_name(n));
    std::fs::File::create(&file).context(|| file.display().to_string()).map(drop)
}

fn one_size(exports: u64, figures: &mut Figures) -> Result<Row> {
    let disk = MemoryDisk::of(Filesystem::Xfs)?;
    let dir = |n| disk.export().join(name(n));
    let log = |n| disk.scratch().join(name(n));
    for n in 0..exports {
        fill(&dir(n), n)?;
        // A file of zeros is an unused log. One that the server makes itself would have at least 16 MiB.
        std::fs::write(log(n), vec![0; LOG_BYTES]).context(|| log(n).display().to_string())?;
    }
    crate::mounts::syncfs(disk.export())?;
    let others = (1..exports).map(|n| Other { dir: dir(n), name: name(n), log: log(n) }).collect();
    let options = ServeOptions {
        limits: LIMITS.to_vec(),
        others,
        ..ServeOptions::new(&dir(0), Some(&log(0)), Durability::Log)
    };
    // The first start makes the logs.
    let made = Served::start(&options)?;
    let first_ms = made.start_took().as_secs_f64() * 1e3;
    made.stop()?;
    let server = Served::start(&options)?;
    let start_us = server.start_took().as_secs_f64() * 1e6;
    let memory = server.rss_bytes().unwrap_or(0);
    let (threads, descriptors) = server.threads_and_descriptors().unwrap_or_default();
    let before = cpu(&server)?;
    std::thread::sleep(IDLE);
    let idle_us = cpu(&server)?.saturating_sub(before).as_secs_f64() * 1e6 / IDLE.as_secs_f64();
    // A lone export is the root.
    let crowd = Crowd::connect(server.addr(), exports, |n| {
        let export = (exports > 1).then(|| name(n).into_bytes());
        export.into_iter().chain([file_name(n).into_bytes()]).collect()
    })?;
    let (mut getattr, mut write, mut together) = (BestOf::default(), BestOf::default(), BestOf::default());
    let (mut used, mut took) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        getattr.add(crowd.work(Work::Getattr, SINGLE, 1)?.1);
        write.add(crowd.work(Work::Write, SINGLE, 1)?.1);
        let before = cpu(&server)?;
        let (whole, latencies) = crowd.work(Work::Write, TOGETHER, AT_ONCE)?;
        used = used.min(cpu(&server)?.saturating_sub(before));
        took = took.min(whole);
        together.add(latencies);
    }
    let peak = server.peak_rss_bytes().unwrap_or(0);
    server.kill();
    drop(crowd);
    let restarted = Served::start(&options)?;
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
