//! 1 to 10,000 clients, each with a client record, a session of 64 slots and a connection, of which one in a hundred works at a time.

use super::growth::{per_unit, tenfold};
use super::{BestOf, Figure, flat, mebibytes, start};
use crate::crowd::{Crowd, Work, file_name};
use crate::error::{Context, Error, Result};
use crate::experiments::{Check, Findings, Progress, Row};
use crate::memory_disk::MemoryDisk;
use crate::served::{Durability, ServeOptions, Served};
use std::time::Duration;

/// The most clients, unless chosen otherwise.
const CLIENTS: u64 = 10_000;
/// One client of so many works at a time.
const IDLE_FOR_EACH: u64 = 100;
/// Operations of each kind, one at a time; and with one client in a hundred at a time.
const SINGLE: u64 = 2_000;
const TOGETHER: u64 = 20_000;
/// Rounds; the best figure of them counts.
const ROUNDS: u64 = 3;

/// Limits of the server that so many clients of one address need. (The usual ones are 4,096 clients, 8,192 connections, 256 of one
/// address.)
const LIMITS: [(&str, u64); 3] =
    [("clients", 16_384), ("connections", 16_384), ("client_connections", 16_384)];
/// The log that has room for the replies that so many sessions may have kept.
const LOG_BYTES: u64 = 512 << 20;
const LEASE: Duration = Duration::from_secs(90);

/// The server frees a connection's buffer after 2 s without a request.
const IDLE: Duration = Duration::from_millis(2_500);

/// The claim: memory for each client that is connected and idle.
const BYTES_EACH_MAX: f64 = 48.0 * 1024.0;
/// The claim: time of a start for each session that it finds in the log.
const START_US_EACH_MAX: f64 = 150.0;

#[derive(Default)]
struct Figures {
    getattr: Figure,
    write: Figure,
    cpu: Figure,
    memory: Figure,
    start: Figure,
}

pub(super) fn measure(files: Option<u64>, progress: Progress<'_>) -> Result<Findings> {
    let most = files.unwrap_or(CLIENTS);
    let (mut lines, mut figures) = (Vec::new(), Figures::default());
    for clients in tenfold(1, most) {
        progress(&format!("{clients} clients"));
        lines.push(one_size(clients, &mut figures)?);
    }
    let checks = vec![
        flat("median latency of GETATTR, one at a time, over clients", &figures.getattr),
        flat("median latency of WRITE FILE_SYNC, one at a time, over clients", &figures.write),
        flat(
            "processor time for an operation, one client in a hundred at a time, over clients",
            &figures.cpu,
        ),
        Check::at_most("bytes of memory for each idle client", per_unit(&figures.memory), BYTES_EACH_MAX),
        Check::at_most(
            "us of a start after SIGKILL for each session",
            per_unit(&figures.start),
            START_US_EACH_MAX,
        ),
    ];
    Ok(Findings { lines, checks, ..Findings::default() })
}

fn one_size(clients: u64, figures: &mut Figures) -> Result<Row> {
    let disk = MemoryDisk::new()?;
    for n in 0..clients {
        let file = disk.export().join(file_name(n));
        std::fs::File::create(&file).context(|| file.display().to_string())?;
    }
    let log = disk.scratch().join("log");
    let options = ServeOptions {
        log_bytes: Some(LOG_BYTES),
        lease: LEASE,
        limits: LIMITS.to_vec(),
        ..ServeOptions::new(disk.export(), Some(&log), Durability::Log)
    };
    let server = start(&options)?;
    let connecting = std::time::Instant::now();
    let crowd = Crowd::new(server.addr(), clients)?;
    let connect_us = connecting.elapsed().as_secs_f64() * 1e6 / clients as f64;
    // Nothing tells from outside when the server has freed the buffers of connections that are idle.
    std::thread::sleep(IDLE);
    let memory = server.rss_bytes().unwrap_or(0);
    let at_once = (clients / IDLE_FOR_EACH).max(1);
    let (mut getattr, mut write, mut together) = (BestOf::default(), BestOf::default(), BestOf::default());
    let (mut used, mut took) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        getattr.add(crowd.work(Work::Getattr, SINGLE, 1)?.1);
        write.add(crowd.work(Work::Write, SINGLE, 1)?.1);
        let before = cpu(&server)?;
        let (whole, latencies) = crowd.work(Work::Write, TOGETHER, at_once)?;
        used = used.min(cpu(&server)?.saturating_sub(before));
        took = took.min(whole);
        together.add(latencies);
    }
    let peak = server.peak_rss_bytes().unwrap_or(0);
    server.kill();
    drop(crowd);
    let restarted = start(&options)?;
    let start_us = restarted.start_took().as_secs_f64() * 1e6;
    restarted.stop()?;
    let size = clients as f64;
    let cpu_us = used.as_secs_f64() * 1e6 / TOGETHER as f64;
    figures.getattr.push((size, getattr.us(0.5)));
    figures.write.push((size, write.us(0.5)));
    figures.cpu.push((size, cpu_us));
    figures.memory.push((size, memory as f64));
    figures.start.push((size, start_us));
    Ok(Row::new(
        &format!("{clients} clients"),
        [
            ("getattr_p50_us", getattr.us(0.5)),
            ("getattr_p99_us", getattr.us(0.99)),
            ("getattr_p999_us", getattr.us(0.999)),
            ("write_p50_us", write.us(0.5)),
            ("write_p99_us", write.us(0.99)),
            ("write_p999_us", write.us(0.999)),
            ("at_once", at_once as f64),
            ("at_once_writes_per_s", TOGETHER as f64 / took.as_secs_f64()),
            ("at_once_p50_us", together.us(0.5)),
            ("at_once_p99_us", together.us(0.99)),
            ("at_once_p999_us", together.us(0.999)),
            ("at_once_cpu_us_per_write", cpu_us),
            ("connect_us", connect_us),
            ("rss_mib", mebibytes(memory)),
            ("peak_rss_mib", mebibytes(peak)),
            ("start_after_kill_ms", start_us / 1e3),
        ],
    ))
}

fn cpu(server: &Served) -> Result<Duration> {
    server.cpu().ok_or_else(|| Error::Child { role: "server", what: "ended".into() })
}
