//! `untar` to a server on this machine beside `tar -x` and a sync on the same kind of disk: what is left of the local
//! speed when every file is stable before its reply. No network is emulated.
//!
//! Both sides have their turn in each round, on a filesystem made anew, and both trees are compared with the archive. The
//! round in the middle counts.
//!
//! One more round, which is not timed, says what the server's system calls for a file are and how long each has a processor, from the kernel's
//! tracepoints.
//!
//! Processor time is that of `tar` on one side, and of `landfast untar` and the server on the other. What the two take beyond what `tar` takes is the cost
//! of serving a file at all: of a protocol, of a log and of a second process.

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::{Context, Error, Result};
use crate::kernel_trace::{CallCost, Tracer, call_costs, events};
use crate::measure::{local_untar, untar};
use crate::rig::{Latency, Rig, RigOptions};
use crate::served::{Durability, ServeOptions, Served};
use crate::tarball::{Shape, write_random};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const FILES: u64 = 16_384;

const ROUNDS: usize = 5;

/// Files of the round that is traced: what the tracer's buffer takes.
const TRACED: u64 = 2048;

/// System calls of which there are fewer for a file are added up.
const SHOWN_MIN: f64 = 0.2;

/// The share of the local speed that is claimed.
const SHARE: f64 = 0.5;

/// Disks: what a flush takes, of the data disk and of the log.
const DISKS: [(&str, Latency); 2] = [
    ("no latency", Latency { data_flush: Duration::ZERO, log_flush: Duration::ZERO }),
    (
        "data disk 10 ms, log 0.05 ms",
        Latency { data_flush: Duration::from_millis(10), log_flush: Duration::from_micros(50) },
    ),
];

/// The log has room for everything, so that no checkpoint is forced.
const LOG_BYTES: u64 = 512 << 20;

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::namespace::run_private(|| measure(choices.files.unwrap_or(FILES).max(1), progress))?
}

fn measure(files: u64, progress: Progress<'_>) -> Result<Findings> {
    let mut rig = Rig::new(&RigOptions { log_bytes: LOG_BYTES, ..RigOptions::default() })?;
    let archive = rig.scratch().join("archive.tar");
    write_archive(&archive, files)?;

    let mut found = Findings::default();
    for (name, latency) in DISKS {
        let mut seconds = [Vec::new(), Vec::new()];
        // Of `tar`, of `landfast untar`, of the server.
        let mut cpu = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            progress(&format!("{name}, round {} of {ROUNDS}: tar -x and sync", round + 1));
            let (took, used) = local(&mut rig, &archive, latency)?;
            seconds[0].push(took);
            cpu[0].push(used);
            progress(&format!("{name}, round {} of {ROUNDS}: landfast untar", round + 1));
            let (took, client, server) = served(&mut rig, &archive, latency)?;
            seconds[1].push(took);
            cpu[1].push(client);
            cpu[2].push(server);
        }
        let [tar_us, client_us, server_us] = cpu.map(|used| super::middle(used) * 1e6 / files as f64);
        let [local, served] = seconds.map(super::middle);
        let share = local / served;
        found.lines.push(Row::new(
            name,
            [
                ("local_files_per_s", files as f64 / local),
                ("untar_files_per_s", files as f64 / served),
                ("share", share),
                ("tar_cpu_us_per_file", tar_us),
                ("untar_cpu_us_per_file", client_us),
                ("server_cpu_us_per_file", server_us),
                ("cpu_us_per_file_beyond_tar", client_us + server_us - tar_us),
            ],
        ));
        let what = format!("{name}: untar's share of the speed of local tar -x and sync");
        found.checks.push(Check::at_least(&what, share, SHARE));
    }
    progress("the server's system calls");
    let traced = files.min(TRACED);
    write_archive(&archive, traced)?;
    found.notes.extend(system_calls(&mut rig, &archive, traced)?);
    Ok(found)
}

fn write_archive(archive: &Path, files: u64) -> Result<()> {
    let what = || format!("write {}", archive.display());
    let mut out = BufWriter::new(File::create(archive).context(what)?);
    write_random(Shape { files, ..Shape::default() }, &mut out).and_then(|()| out.flush()).context(what)
}

/// The server's system calls for a file of this archive, as lines.
fn system_calls(rig: &mut Rig, archive: &Path, files: u64) -> Result<Vec<String>> {
    rig.format()?;
    let server = Served::start(&ServeOptions::new(&rig.export(), Some(rig.log_device()?), Durability::Log))?;
    let tracer = Tracer::new(server.pid())?;
    let text = tracer.during(|| untar(server.addr(), archive, Stdio::null()).map(drop))?;
    drop(tracer);
    same(archive, &rig.export())?;
    server.stop()?;
    Ok(table(&call_costs(&events(&text)).into_iter().collect::<Vec<_>>(), files))
}

/// The most expensive first.
fn table(costs: &[(String, CallCost)], files: u64) -> Vec<String> {
    let for_a_file = |n: u64| n as f64 / files as f64;
    let line = |calls: f64, us: f64, what: &str| format!("{calls:10.2} {us:8.1}  {what}");
    let (mut shown, few): (Vec<_>, Vec<_>) =
        costs.iter().partition(|(_, cost)| for_a_file(cost.calls) >= SHOWN_MIN);
    shown.sort_by_key(|(_, cost)| std::cmp::Reverse(cost.on_cpu_us));
    let sum = |some: &[&(String, CallCost)]| {
        some.iter().fold((0, 0), |(n, us), (_, cost)| (n + cost.calls, us + cost.on_cpu_us))
    };
    let mut lines = vec![
        String::new(),
        "the server's system calls for a file, and their microseconds on a processor while they are traced:"
            .to_owned(),
    ];
    lines.extend(
        shown.iter().map(|(name, cost)| line(for_a_file(cost.calls), for_a_file(cost.on_cpu_us), name)),
    );
    let (calls, us) = sum(&few);
    lines.push(line(for_a_file(calls), for_a_file(us), "others"));
    let (calls, us) = sum(&costs.iter().collect::<Vec<_>>());
    lines.push(line(for_a_file(calls), for_a_file(us), "all"));
    lines
}

fn same(archive: &Path, tree: &Path) -> Result<()> {
    let open = File::open(archive).context(|| format!("open {}", archive.display()))?;
    crate::verify::compare(BufReader::new(open), tree)?.into_result().map(drop)
}

/// Seconds, and seconds of processor time.
fn local(rig: &mut Rig, archive: &Path, latency: Latency) -> Result<(f64, f64)> {
    rig.format()?;
    rig.set_latency(latency)?;
    let before = ended_children()?;
    let took = local_untar(archive, &rig.export())?;
    let used = ended_children()? - before;
    rig.set_latency(Latency::default())?;
    same(archive, &rig.export())?;
    Ok((took.as_secs_f64(), used))
}

/// Seconds of processor time of the child processes that have ended.
fn ended_children() -> Result<f64> {
    let used = crate::sys::ended_children_cpu().context(|| "ask for processor time".to_owned())?;
    Ok(used.as_secs_f64())
}

/// Seconds, and seconds of processor time of client and server.
fn served(rig: &mut Rig, archive: &Path, latency: Latency) -> Result<(f64, f64, f64)> {
    rig.format()?;
    // The server tries at its start which way of flushing is quicker on this device.
    rig.set_latency(latency)?;
    let server = Served::start(&ServeOptions::new(&rig.export(), Some(rig.log_device()?), Durability::Log))?;
    let cpu = || {
        let ended = || Error::Child { role: "server", what: "ended".into() };
        server.cpu().map(|used| used.as_secs_f64()).ok_or_else(ended)
    };
    let (client_before, server_before) = (ended_children()?, cpu()?);
    let taken = untar(server.addr(), archive, Stdio::null())?;
    let (client, used) = (ended_children()? - client_before, cpu()? - server_before);
    rig.set_latency(Latency::default())?;
    same(archive, &rig.export())?;
    server.stop()?;
    Ok((taken.seconds, client, used))
}
