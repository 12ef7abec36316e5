//! Clients that each do one thing at a time, 1 to 64 of them at once: how their operations share flushes, and how evenly they are served.
//!
//! Each client makes files (CREATE, then WRITE FILE_SYNC of 4 KiB, then SETATTR), in NFSv3, each operation waiting for its reply. `--peer PROGRAM` names another
//! build of `landfast`, whose server has its turns on the same disks; what is claimed of throughput and flushes is then claimed beside it.
//! `--files N` measures that number of clients alone.
//!
//! The clients run on the processors of the server, so what they see is in part their own doing: a client whose reply has come waits for a processor
//! behind the others. How long it did, the kernel says (`schedstat`), and that is left out of a second pair of percentiles. And the same clients have turns at a
//! stand-in ([`StandIn`]), which answers at once after the processor time that the server took: the spread that they see there is the machine's.

use super::{Check, Choices, Findings, Progress, Row};
use crate::child::waited;
use crate::error::{Error, Result};
use crate::latencies::Latencies;
use crate::rig::{Latency, Rig, RigOptions};
use crate::serial::lone::{Kind, Lone, Version};
use crate::served::{Durability, ServeOptions, Served};
use crate::standin::StandIn;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const CLIENTS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The number of clients of which a spread is claimed.
const MANY: u64 = 64;

/// How long the clients work in a turn, and how many turns each build has.
const TURN: Duration = Duration::from_millis(1200);
const TURNS: usize = 3;

/// What is claimed of 64 clients: p99 in times of p50.
const SPREAD_MAX: f64 = 2.0;
/// What is claimed of two clients: their throughput, in times of that of one.
const PAIR_MIN: f64 = 1.0;
/// What is claimed beside another build: throughput, and flushes for an operation, in times of its own.
const SPEED_MIN: f64 = 0.9;
const FLUSHES_MAX: f64 = 1.15;

const KINDS: [Kind; 3] = [Kind::Create, Kind::Write4k, Kind::Setattr];

/// Threads of the stand-in: as many as the server's runtime has on two processors.
const STAND_IN_THREADS: u64 = 2;

/// What one turn showed.
#[derive(Debug, Clone, Default)]
struct Turn {
    per_s: f64,
    flushes: f64,
    /// Processor time of the server for an operation.
    cpu: Duration,
    /// How long its threads waited for a processor for an operation.
    waited: Duration,
    times: Times,
}

/// How long operations took, and how long without the client's own wait for a processor. In microseconds: p50 and p99.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    seen: [f64; 2],
    own: [f64; 2],
}

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    let peer = choices.peers.first().map(std::path::PathBuf::as_path);
    let numbers: Vec<u64> = choices.files.map_or_else(|| CLIENTS.to_vec(), |only| vec![only]);
    crate::namespace::run_private(|| measure(&numbers, peer, progress))?
}

fn measure(numbers: &[u64], peer: Option<&Path>, progress: Progress<'_>) -> Result<Findings> {
    let mut rig = Rig::new(&RigOptions { log_bytes: 256 << 20, ..RigOptions::default() })?;
    let mut findings = Findings::default();
    for flush in [Duration::from_micros(50), Duration::from_millis(1)] {
        let mut one = None;
        for &clients in numbers {
            let what = format!("{clients} clients, flush of {flush:?}");
            let (mut ours, mut theirs, mut machines) = (Turn::default(), Turn::default(), Turn::default());
            for turn in 0..TURNS {
                progress(&format!("{what}, turn {} of {TURNS}", turn + 1));
                if let Some(peer) = peer {
                    theirs = quicker(theirs, one_turn(&mut rig, flush, clients, Some(peer))?);
                }
                ours = quicker(ours, one_turn(&mut rig, flush, clients, None)?);
                if clients == MANY {
                    machines = quicker(machines, stand_in_turn(clients, ours.cpu)?);
                }
            }
            let mut row = Row::new(&what, [("flushes_per_operation", ours.flushes)]);
            row.values.extend(ours.values(""));
            if peer.is_some() {
                let (speed, flushes) = (ours.per_s / theirs.per_s, ours.flushes / theirs.flushes);
                row.values.extend(theirs.values("peer_"));
                row.values.insert("peer_flushes_per_operation".to_owned(), theirs.flushes);
                row.values.insert("times_peers_speed".to_owned(), speed);
                let check = Check::at_least(&format!("{what}: times the peer's speed"), speed, SPEED_MIN);
                findings.checks.push(check);
                let check =
                    Check::at_most(&format!("{what}: times the peer's flushes"), flushes, FLUSHES_MAX);
                findings.checks.push(check);
            }
            match (clients, one) {
                (1, _) => one = Some(ours.per_s),
                (2, Some(one)) => {
                    let what = format!("{what}: speed in times of one client's");
                    findings.checks.push(Check::at_least(&what, ours.per_s / one, PAIR_MIN));
                }
                _ => {}
            }
            if clients == MANY {
                row.values.extend(machines.values("stand_in_"));
                let what =
                    format!("{what}: p99 in times of p50, without the clients' own wait for a processor");
                findings.checks.push(Check::at_most(
                    &what,
                    ours.times.own[1] / ours.times.own[0],
                    SPREAD_MAX,
                ));
            }
            findings.lines.push(row);
        }
    }
    Ok(findings)
}

impl Turn {
    fn values(&self, prefix: &str) -> [(String, f64); 7] {
        let us = |time: Duration| time.as_nanos() as f64 / 1e3;
        [
            ("operations_per_s", self.per_s),
            ("server_cpu_us", us(self.cpu)),
            ("server_waited_us", us(self.waited)),
            ("p50_us", self.times.seen[0]),
            ("p99_us", self.times.seen[1]),
            ("own_p50_us", self.times.own[0]),
            ("own_p99_us", self.times.own[1]),
        ]
        .map(|(name, value)| (format!("{prefix}{name}"), value))
    }
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
    let (before, cpu, waited) = (rig.stats()?, server.cpu(), server.waited());
    let (times, operations, seconds) = together(all, |client, n| client.run(KINDS[n % KINDS.len()], 1))?;
    let flushes = rig.stats()?.since(&before).log.flushes as f64;
    let each = |now: Option<Duration>, before: Option<Duration>| {
        now.zip(before).map_or(Duration::ZERO, |(now, before)| now.saturating_sub(before)) / operations
    };
    let (cpu, waited) = (each(server.cpu(), cpu), each(server.waited(), waited));
    rig.set_latency(Latency::default())?;
    server.stop()?;
    let operations = f64::from(operations);
    Ok(Turn { per_s: operations / seconds, flushes: flushes / operations, cpu, waited, times })
}

fn stand_in_turn(clients: u64, work: Duration) -> Result<Turn> {
    let (stand_in, all) = StandIn::start(clients, STAND_IN_THREADS, work)?;
    let (times, operations, seconds) = together(all, |client, _| client.ask())?;
    stand_in.end()?;
    Ok(Turn { per_s: f64::from(operations) / seconds, cpu: work, times, ..Turn::default() })
}

/// All clients at once, for one turn: how long each operation took, how many there were, and seconds in all. `one` is told the operation's number.
fn together<C: Send>(
    clients: Vec<C>,
    one: impl Fn(&mut C, usize) -> Result<()> + Sync,
) -> Result<(Times, u32, f64)> {
    let begin = Barrier::new(clients.len() + 1);
    let own_wait = || waited(Path::new("/proc/thread-self/schedstat")).unwrap_or_default();
    let work = |mut client: C| {
        begin.wait();
        let (began, mut times, mut waited) = (Instant::now(), Vec::new(), own_wait());
        while began.elapsed() < TURN || times.len() % KINDS.len() > 0 {
            let start = Instant::now();
            one(&mut client, times.len())?;
            let took = start.elapsed();
            let waits = own_wait();
            times.push((took, took.saturating_sub(waits - waited)));
            waited = waits;
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
        let (seconds, operations) = (start.elapsed().as_secs_f64(), times.len().max(1) as u32);
        let (seen, own): (Vec<_>, Vec<_>) = times.into_iter().unzip();
        let [seen, own] = [seen, own].map(|times| {
            let times = Latencies::new(times);
            [times.us(0.5), times.us(0.99)]
        });
        Ok((Times { seen, own }, operations, seconds))
    })
}
