//! Clients that each do one thing at a time, 1 to 64 of them at once: how their operations share flushes, and how evenly they are served.
//!
//! Each client makes files (CREATE, then WRITE FILE_SYNC of 4 KiB, then SETATTR), in NFSv3, each operation waiting for its reply. `--peer PROGRAM` names another
//! build of `landfast`, whose server has its turns on the same disks; what is claimed of throughput and flushes is then claimed beside it.

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::{Error, Result};
use crate::rig::{Latency, Rig, RigOptions};
use crate::serial::lone::{Kind, Lone, Version};
use crate::served::{Durability, ServeOptions, Served};
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const CLIENTS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// How long the clients work in a turn, and how many turns each build has.
const TURN: Duration = Duration::from_millis(1200);
const TURNS: usize = 3;

/// What is claimed of 64 clients: p99 in times of p50.
const SPREAD_MAX: f64 = 2.0;
/// What is claimed beside another build: throughput, and flushes for an operation, in times of its own.
const SPEED_MIN: f64 = 0.9;
const FLUSHES_MAX: f64 = 1.15;

const KINDS: [Kind; 3] = [Kind::Create, Kind::Write4k, Kind::Setattr];

/// What one turn showed.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    per_s: f64,
    flushes: f64,
    p50: f64,
    p99: f64,
}

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    let peer = choices.peers.first().map(std::path::PathBuf::as_path);
    crate::namespace::run_private(|| measure(peer, progress))?
}

fn measure(peer: Option<&Path>, progress: Progress<'_>) -> Result<Findings> {
    let mut rig = Rig::new(&RigOptions { log_bytes: 256 << 20, ..RigOptions::default() })?;
    let mut findings = Findings::default();
    for flush in [Duration::from_micros(50), Duration::from_millis(1)] {
        for clients in CLIENTS {
            let what = format!("{clients} clients, flush of {flush:?}");
            let (mut ours, mut theirs) = (Turn::default(), Turn::default());
            for turn in 0..TURNS {
                progress(&format!("{what}, turn {} of {TURNS}", turn + 1));
                if let Some(peer) = peer {
                    theirs = quicker(theirs, one_turn(&mut rig, flush, clients, Some(peer))?);
                }
                ours = quicker(ours, one_turn(&mut rig, flush, clients, None)?);
            }
            let mut row = Row::new(
                &what,
                [
                    ("operations_per_s", ours.per_s),
                    ("flushes_per_operation", ours.flushes),
                    ("p50_us", ours.p50),
                    ("p99_us", ours.p99),
                ],
            );
            if peer.is_some() {
                let (speed, flushes) = (ours.per_s / theirs.per_s, ours.flushes / theirs.flushes);
                row.values.extend([
                    ("peer_operations_per_s".to_owned(), theirs.per_s),
                    ("peer_flushes_per_operation".to_owned(), theirs.flushes),
                    ("times_peers_speed".to_owned(), speed),
                ]);
                let check = Check::at_least(&format!("{what}: times the peer's speed"), speed, SPEED_MIN);
                findings.checks.push(check);
                let check =
                    Check::at_most(&format!("{what}: times the peer's flushes"), flushes, FLUSHES_MAX);
                findings.checks.push(check);
            }
            findings.lines.push(row);
            if clients == CLIENTS[CLIENTS.len() - 1] {
                let spread = ours.p99 / ours.p50;
                findings.checks.push(Check::at_most(
                    &format!("{what}: p99 in times of p50"),
                    spread,
                    SPREAD_MAX,
                ));
            }
        }
    }
    Ok(findings)
}

fn quicker(one: Turn, other: Turn) -> Turn {
    if other.per_s > one.per_s { other } else { one }
}

fn one_turn(rig: &mut Rig, flush: Duration, clients: u64, binary: Option<&Path>) -> Result<Turn> {
    rig.set_latency(Latency::default())?;
    rig.format()?;
    rig.set_latency(Latency { data_flush: Duration::from_millis(1), log_flush: flush })?;
    let log = rig.log_device()?.to_owned();
    let options = ServeOptions::new(&rig.export(), Some(&log), Durability::Log);
    let server = Served::start(&ServeOptions { binary: binary.map(Path::to_owned), ..options })?;
    let all: Vec<Lone> = (0..clients)
        .map(|n| Lone::connect_to_create(server.addr(), Version::V3, &format!("client{n}")))
        .collect::<Result<_>>()?;
    let before = rig.stats()?;
    let (mut times, seconds) = together(all)?;
    let flushes = rig.stats()?.since(&before).log.flushes as f64;
    rig.set_latency(Latency::default())?;
    server.stop()?;
    times.sort_unstable();
    let at = |percent: usize| {
        let time = times.get(times.len() * percent / 100).copied().unwrap_or_default();
        time.as_secs_f64() * 1e6
    };
    let operations = times.len().max(1) as f64;
    Ok(Turn { per_s: operations / seconds, flushes: flushes / operations, p50: at(50), p99: at(99) })
}

/// All clients at once, for one turn: the time of each operation, and seconds in all.
fn together(clients: Vec<Lone>) -> Result<(Vec<Duration>, f64)> {
    let begin = Barrier::new(clients.len() + 1);
    let work = |mut client: Lone| {
        begin.wait();
        let (began, mut times) = (Instant::now(), Vec::new());
        while began.elapsed() < TURN {
            for kind in KINDS {
                let start = Instant::now();
                client.run(kind, 1)?;
                times.push(start.elapsed());
            }
        }
        Ok::<_, Error>(times)
    };
    let work = &work;
    std::thread::scope(|scope| {
        let all: Vec<_> = clients.into_iter().map(|client| scope.spawn(move || work(client))).collect();
        begin.wait();
        let start = Instant::now();
        let mut times = Vec::new();
        for client in all {
            let panicked = |_| Error::Child { role: "client", what: "panicked".into() };
            times.extend(client.join().map_err(panicked)??);
        }
        Ok((times, start.elapsed().as_secs_f64()))
    })
}
