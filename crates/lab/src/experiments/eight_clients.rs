//! Eight clients that each do one thing at a time, at once: they share log flushes.

use super::{Check, Choices, Findings, Progress, Row, actor};
use crate::error::{Error, Result};
use crate::measure::{Budget, Untarred, serial_untar_with};
use crate::net::Link;
use crate::rig::{Latency, Rig, RigOptions};
use crate::serial::Actor;
use crate::served::{Durability, ServeOptions, Served};
use crate::tarball::{Shape, write_random};
use std::time::{Duration, Instant};

const CLIENTS: u64 = 8;

/// Log flushes per modifying operation that are claimed at most.
const FLUSHES_MAX: f64 = 0.35;

/// What a flush of the log's device takes while the server starts.
const START_FLUSH: Duration = Duration::from_millis(2);

/// Files of each client, unless chosen otherwise, and the time after which no more are begun.
const FILES: u64 = 300;
const WINDOW: Duration = Duration::from_secs(10);

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::namespace::run_private(|| measure(choices.files.unwrap_or(FILES), progress))?
}

fn measure(files: u64, progress: Progress<'_>) -> Result<Findings> {
    let mut rig = Rig::new(&RigOptions::default())?;
    let latency = Latency { data_flush: Duration::from_millis(10), log_flush: Duration::from_micros(50) };
    let link = Link::start(([127, 0, 0, 1], 9).into(), Duration::from_micros(200))?;
    let (mut lines, mut flushes, mut all_flushes) = (Vec::new(), 1.0, 0.0);
    for clients in [1, CLIENTS] {
        progress(&format!("{clients} at once"));
        rig.format()?;
        // The server tries at its start which way of flushing is quicker on this device. One takes two flushes: where they are
        // slow, that is seen on a machine that has other work, too.
        rig.set_latency(Latency { log_flush: START_FLUSH, ..latency })?;
        let log = rig.log_device()?.to_owned();
        let server = Served::start(&ServeOptions::new(&rig.export(), Some(&log), Durability::Log))?;
        rig.set_latency(latency)?;
        link.retarget(server.addr());
        let actors = (0..clients).map(|n| actor(link.addr(), n)).collect::<Result<Vec<_>>>()?;
        let before = rig.stats()?;
        let start = Instant::now();
        let taken = together(actors, files)?;
        let seconds = start.elapsed().as_secs_f64();
        let did = rig.stats()?.since(&before);
        rig.set_latency(Latency::default())?;
        server.stop()?;
        let modifying = taken.iter().map(|t| t.modifying_rpcs).sum::<u64>().max(1) as f64;
        let done = taken.iter().map(|t| t.files).sum::<u64>() as f64;
        all_flushes = did.log.flushes as f64;
        flushes = all_flushes / modifying;
        lines.push(Row::new(
            &format!("{clients} clients"),
            [
                ("files", done),
                ("files_per_s", done / seconds),
                ("modifying_rpcs", modifying),
                ("log_flushes", all_flushes),
                ("log_flushes_per_modifying_rpc", flushes),
            ],
        ));
    }
    let what = "log flushes per modifying operation of eight clients";
    // A server that flushes nothing would have the fewest.
    let some = "log flushes of eight clients";
    let checks = vec![Check::at_most(what, flushes, FLUSHES_MAX), Check::at_least(some, all_flushes, 1.0)];
    Ok(Findings { lines, checks, ..Findings::default() })
}

/// All of them at once, each with its own archive.
fn together(actors: Vec<Actor>, files: u64) -> Result<Vec<Untarred>> {
    let archives = (0..actors.len() as u64)
        .map(|seed| {
            let mut tar = Vec::new();
            write_random(Shape { files, seed, ..Shape::default() }, &mut tar).map(|()| tar)
        })
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(|source| Error::Io { what: "archive".into(), source })?;
    std::thread::scope(|s| {
        let running: Vec<_> = actors
            .into_iter()
            .zip(&archives)
            .map(|(mut actor, tar)| {
                s.spawn(move || serial_untar_with(&mut actor, &tar[..], Budget { files, time: WINDOW }))
            })
            .collect();
        let panic = |_| Error::Child { role: "client", what: "panic".into() };
        running.into_iter().map(|r| r.join().map_err(panic)?).collect()
    })
}
