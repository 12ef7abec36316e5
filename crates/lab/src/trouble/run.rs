//! The harness: one round for each fault, on fresh disks.

use super::fault::{Disk, Fault, SLOW, UNREADABLE, UNWRITTEN};
use super::{probe, unreadable, unwritten};
use crate::error::{Context, Error, Result};
use crate::mounts::Filesystem;
use crate::powercut::model::Model;
use crate::powercut::peer::Peer;
use crate::powercut::workload::{Mixed, Workload};
use crate::powercut::{check, found};
use crate::rig::{Rig, RigOptions};
use crate::serial::{Action, Actor, Node, v3};
use crate::served::{Durability, ReservedPort, ServeOptions, Served};
use landfast_verify::rng::Rng;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, Clone)]
pub struct Options {
    pub fs: Filesystem,
    /// What fails, one after the other.
    pub faults: Vec<Fault>,
    pub rounds: u32,
    /// Seed of all random choices.
    pub seed: u64,
    pub clients: u32,
    pub show: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Round {
    pub fault: String,
    pub acknowledged: u64,
    /// Milliseconds from the fault until the server reported its failure; `None`: it never did.
    pub noticed_after_ms: Option<u64>,
    /// How the failed server ended.
    pub ended: String,
    /// Objects compared on the disk afterwards.
    pub objects: u64,
    /// What is wrong; empty when nothing is.
    pub wrong: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    pub fs: Filesystem,
    pub seed: u64,
    pub rounds: u32,
    pub acknowledged: u64,
    pub failures: u32,
}

/// Small, so that checkpoints come often: a data disk that fails is noticed by one.
const LOG_BYTES: u64 = 1 << 20;

/// A fault of the data disk shows with the next checkpoint at the latest, which comes after five seconds of work.
const NOTICED_MAX: Duration = Duration::from_secs(20);

/// A fault that need not show is given this long.
const UNNOTICED_AFTER: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
enum Version {
    V3,
    V4,
}

struct Worker {
    dir: String,
    version: Version,
    model: Model,
    workload: Mixed,
    acknowledged: u64,
    under_way: Option<Action>,
    wrong: Option<String>,
}

/// What the clients and the thread that causes the fault share.
#[derive(Default)]
struct Shared {
    acknowledged: AtomicU64,
    /// The fault is active: errors are expected.
    troubled: AtomicBool,
    /// The server has said that it has failed: nothing that is sent from here on may succeed.
    failed: AtomicBool,
    stop: AtomicBool,
}

impl Worker {
    fn work(&mut self, peer: &mut Peer, shared: &Shared) {
        while !shared.stop.load(Ordering::Acquire) {
            let action = self.workload.next(&self.model);
            let late = shared.failed.load(Ordering::Acquire);
            match peer.act(&action) {
                Ok(_) if late && changes_something(&action) => {
                    self.wrong = Some(format!("{action:.60?} succeeds after the server has failed"));
                    return;
                }
                Ok(done) => {
                    shared.acknowledged.fetch_add(1, Ordering::AcqRel);
                    self.acknowledged += 1;
                    match self.model.apply(&action) {
                        Ok(Some(id)) => self.model.learn(id, done.attrs.as_ref(), None),
                        Ok(None) => {}
                        Err(e) => self.wrong = Some(e.to_string()),
                    }
                    self.model.forget_unreachable();
                }
                Err(e) => {
                    if !shared.troubled.load(Ordering::Acquire) {
                        self.wrong = Some(format!("before the fault: {e}"));
                    }
                    self.under_way = Some(action);
                    return;
                }
            }
        }
    }
}

/// CLOSE changes the state of the client only; it is answered from memory.
fn changes_something(action: &Action) -> bool {
    !matches!(action, Action::Close { .. })
}

/// Runs all rounds of each fault and calls `progress` after each. Call it on a thread of [`crate::namespace::run_private`].
/// Errors: What keeps the harness from working; what the oracle finds is in the report.
pub fn run(options: &Options, mut progress: impl FnMut(&Round)) -> Result<Report> {
    let mut rng = Rng::new(options.seed);
    let mut report = Report { fs: options.fs, seed: options.seed, rounds: 0, acknowledged: 0, failures: 0 };
    let mut rig = Rig::new(&RigOptions {
        fs: options.fs,
        data_bytes: options.fs.size_min().max(320 << 20),
        log_bytes: LOG_BYTES,
        mirror: false,
        seed: options.seed,
    })?;
    for _ in 0..options.rounds {
        for fault in &options.faults {
            rig.format()?;
            let round = Harness { options, fault, rig: &mut rig, rng: &mut rng }.round()?;
            progress(&round);
            report.rounds += 1;
            report.acknowledged += round.acknowledged;
            report.failures += u32::from(!round.wrong.is_empty());
        }
    }
    Ok(report)
}

struct Harness<'a> {
    options: &'a Options,
    fault: &'a Fault,
    rig: &'a mut Rig,
    rng: &'a mut Rng,
}

impl Harness<'_> {
    /// The log, and its second half where there is one: a file on a disk that does not fail.
    fn serve(&self, metrics: Option<SocketAddr>, stop_at: Option<&str>) -> Result<Served> {
        let log = self.rig.log_device()?;
        let mirror = self.fault.mirror.then(|| self.rig.scratch().join("half"));
        Served::start(&ServeOptions {
            lease: Duration::from_secs(2),
            show: self.options.show,
            log_bytes: mirror.is_some().then_some(LOG_BYTES),
            mirror,
            metrics,
            envs: stop_at.map(|at| ("LANDFAST_STOP_AT".to_owned(), at.to_owned())).into_iter().collect(),
            ..ServeOptions::new(&self.rig.export(), Some(log), Durability::Log)
        })
    }

    /// Flushes the data disk from this process; the flush fails. `before`: requests that the disk had refused by then.
    fn flush_in_vain(&self, before: u64) -> Result<()> {
        // What is said of it does not matter: the filesystem's own timer may have come before it, in vain as well.
        let _ = std::fs::File::open(self.rig.export()).map(|dir| rustix::fs::syncfs(&dir));
        match self.rig.stats()?.data.refused > before {
            true => Ok(()),
            false => Err(Error::Unable("a flush was to fail and has not".into())),
        }
    }

    /// Loses unstable data; the error goes to another process.
    fn lose_unstable(&self, server: &Served) -> Result<Vec<String>> {
        let connect = |version| peer(server.addr(), "unwritten", "", version);
        let mut peers = [connect(Version::V3)?, connect(Version::V4)?];
        unwritten::strike(self.rig, server.pid(), &mut peers, probe::DIR, probe::FILE)
    }

    fn control(&self, words: &str) -> Result<()> {
        match self.fault.disk {
            Disk::Log => self.rig.control_log(words),
            Disk::Data => self.rig.control_data(words),
        }
    }

    fn round(mut self) -> Result<Round> {
        let mut round = Round { fault: self.fault.name.to_owned(), ..Round::default() };
        // Empty: it becomes a half of the log that is made.
        let half = self.rig.scratch().join("half");
        std::fs::write(&half, b"").context(|| format!("make {}", half.display()))?;
        let reserved = ReservedPort::new()?;
        let metrics = reserved.addr();
        let server = self.serve(Some(metrics), self.fault.beside)?;
        let mut setup = peer(server.addr(), "probe", "", Version::V4)?;
        probe::prepare(&mut setup)?;
        if self.fault.words == UNREADABLE {
            unreadable::prepare(&mut setup)?;
        }
        if self.fault.words == UNWRITTEN {
            unwritten::prepare(&mut setup, self.rig, probe::DIR)?;
        }
        let mut probes = vec![setup, peer(server.addr(), "probe", "", Version::V3)?];
        let verifier = probe::verifier(&mut probes)?;
        let mut workers = Vec::new();
        for n in 0..self.options.clients.max(1) {
            let dir = format!("client{n}");
            probes[0].act(&Action::Make { path: dir.clone().into(), node: Node::Dir, mode: 0o755 })?;
            workers.push(Worker {
                dir,
                version: if n % 2 == 0 { Version::V4 } else { Version::V3 },
                model: Model::new(),
                workload: Mixed::new(self.rng.next_u64()),
                acknowledged: 0,
                under_way: None,
                wrong: None,
            });
        }
        self.trouble(&server, metrics, &mut workers, &mut round)?;
        for w in &mut workers {
            if let Some(action) = w.under_way.as_ref().filter(|_| self.fault.harmless) {
                round.wrong.push(format!("{}: {action:.80?} is refused", w.dir));
            }
            round.acknowledged += w.acknowledged;
            round.wrong.extend(w.wrong.take());
        }
        // XFS refuses everything once it could not write its journal.
        let may_be_read = self.fault.disk == Disk::Log || self.options.fs != Filesystem::Xfs;
        if round.noticed_after_ms.is_some() {
            for probe in &mut probes {
                round.wrong.extend(probe::refuses(probe, may_be_read));
            }
            round.wrong.extend(probe::tells(metrics, &server));
        } else {
            for probe in &mut probes {
                round.wrong.extend(probe::reads(probe));
            }
            if self.fault.words == UNREADABLE {
                round.wrong.extend(probes.iter_mut().filter_map(unreadable::refused));
                self.control("mend")?;
                round.wrong.extend(probes.iter_mut().filter_map(unreadable::readable));
            }
            if self.fault.words == SLOW && !probe::log_was_full(metrics)? {
                round.wrong.push("the metrics do not tell that anybody was slowed down or held back".into());
            }
            if self.fault.mirror && !probe::trouble_told(metrics)? {
                round.wrong.push("the metrics do not tell of the half that was lost".into());
            }
        }
        let clean = self.end(server, probes, &mut round)?;
        self.ask(&mut workers, (!clean).then_some(verifier), &mut round)?;
        Ok(round)
    }

    /// Clients work, something fails, and the server says so.
    fn trouble(
        &mut self,
        server: &Served,
        metrics: SocketAddr,
        workers: &mut [Worker],
        round: &mut Round,
    ) -> Result<()> {
        let mut peers = Vec::new();
        for worker in workers.iter() {
            peers.push(peer(server.addr(), &worker.dir, &worker.dir, worker.version)?);
        }
        let before = 20 + self.rng.below(400);
        let shared = Shared::default();
        std::thread::scope(|s| {
            let threads: Vec<_> = workers
                .iter_mut()
                .zip(&mut peers)
                .map(|(worker, peer)| s.spawn(|| worker.work(peer, &shared)))
                .collect();
            let ended = || threads.iter().all(|t| t.is_finished());
            if self.fault.beside.is_some() {
                shared.troubled.store(true, Ordering::Release);
                if !server.wait_stopped(NOTICED_MAX) {
                    shared.stop.store(true, Ordering::Release);
                    server.thaw();
                    return Err(Error::Unable("the server does not come to the point where it stops".into()));
                }
            } else {
                // Nothing signals an acknowledged operation to somebody else.
                while shared.acknowledged.load(Ordering::Acquire) < before && !ended() {
                    std::thread::sleep(POLL);
                }
            }
            shared.troubled.store(true, Ordering::Release);
            let refused = self.rig.stats().map(|s| s.data.refused);
            let mut done = match self.fault.words {
                UNREADABLE => unreadable::strike(self.rig),
                UNWRITTEN => {
                    // They would have the disk flushed all the time.
                    shared.stop.store(true, Ordering::Release);
                    while !ended() {
                        std::thread::sleep(POLL);
                    }
                    self.lose_unstable(server).map(|wrong| round.wrong.extend(wrong))
                }
                words => self.control(words),
            };
            if self.fault.beside.is_some() {
                done = done.and_then(|()| self.flush_in_vain(refused?));
                server.thaw();
            }
            let start = Instant::now();
            let most = if self.fault.noticed && !self.fault.mirror { NOTICED_MAX } else { UNNOTICED_AFTER };
            if self.fault.words == SLOW {
                // How long it takes to fill the log is the machine's business.
                while start.elapsed() < NOTICED_MAX && !matches!(probe::log_was_full(metrics), Ok(true)) {
                    std::thread::sleep(SCRAPE);
                }
            }
            // A single call that the filesystem refuses is no failure: the others go on until a flush fails.
            while start.elapsed() < most {
                if server.words().contains(probe::FAILED) {
                    shared.failed.store(true, Ordering::Release);
                    round.noticed_after_ms = u64::try_from(start.elapsed().as_millis()).ok();
                    break;
                }
                std::thread::sleep(POLL);
            }
            // After a failure they go on until they are refused.
            shared.stop.store(round.noticed_after_ms.is_none(), Ordering::Release);
            done
        })?;
        let expected = self.fault.noticed && !self.fault.mirror;
        match round.noticed_after_ms {
            None if expected => round.wrong.push("it is not noticed".into()),
            Some(_) if self.fault.harmless => round.wrong.push("the server does not go on".into()),
            _ => {}
        }
        Ok(())
    }

    /// Ends the server in a random way, mends the disk and mounts the filesystem again. Returns whether the server stopped cleanly.
    fn end(&mut self, server: Served, probes: Vec<Peer>, round: &mut Round) -> Result<bool> {
        let power = self.rng.below(3);
        round.ended = ["SIGTERM", "SIGKILL", "a power cut"][power as usize].to_owned();
        let mut clean = false;
        match power {
            0 => {
                drop(probes);
                let failed = round.noticed_after_ms.is_some();
                match server.stop() {
                    Err(Error::Child { what, .. }) if failed => {
                        if !what.contains("not cleanly") || !what.contains("the log is kept") {
                            round.wrong.push(format!("what it says when it is stopped: {what}"));
                        }
                    }
                    Ok(()) if failed => round.wrong.push("it says that it stopped cleanly".into()),
                    // A fault that comes to light only now.
                    Err(Error::Child { .. }) if !self.fault.noticed => {}
                    done => {
                        done?;
                        clean = true;
                    }
                }
                self.control("mend flush_us=0")?;
            }
            1 => {
                server.kill();
                self.control("mend flush_us=0")?;
            }
            _ => {
                server.freeze();
                self.rig.cut()?;
                server.kill();
                self.control("mend flush_us=0")?;
                self.rig.power_on()?;
            }
        }
        self.remount()?;
        Ok(clean)
    }

    fn remount(&mut self) -> Result<()> {
        self.rig.unmount()?;
        if self.fault.disk == Disk::Data {
            self.rig.preen()?;
        }
        self.rig.mount()
    }

    /// A new server recovers; everything acknowledged must be there, and its write verifier must not be `verifier`.
    fn ask(&mut self, workers: &mut [Worker], verifier: Option<[u8; 8]>, round: &mut Round) -> Result<()> {
        let server = match self.serve(None, None) {
            Ok(server) => server,
            Err(e @ Error::Child { .. }) => {
                round.wrong.push(format!("no recovery: {e}"));
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let tree = found::on_disk(&self.rig.export())?;
        round.objects = tree.len() as u64;
        for worker in workers {
            let prefix = format!("{}/", worker.dir).into_bytes();
            let own: found::Tree = tree
                .iter()
                .filter_map(|(path, found)| Some((path.strip_prefix(&prefix[..])?.to_vec(), found.clone())))
                .collect();
            let under_way = worker.under_way.take();
            worker.workload.interrupt();
            let variants = worker.model.variants(under_way.as_ref());
            let variants = variants.map_err(|e| Error::Unable(e.to_string()))?;
            if let Err(e) = check::agree(&variants, &own) {
                round.wrong.push(format!("{} ({:.80?} under way): {e}", worker.dir, under_way));
            }
        }
        let mut probes = [Version::V4, Version::V3]
            .map(|v| peer(server.addr(), "probe", "", v))
            .into_iter()
            .collect::<Result<Vec<_>>>()?;
        for (probe, name) in probes.iter_mut().zip(["after", "after3"]) {
            let made = Action::Make { path: name.into(), node: Node::Dir, mode: 0o755 };
            if let Err(e) = probe.act(&made) {
                round.wrong.push(format!("the new server does not work: {e}"));
            }
        }
        let now = probe::verifier(&mut probes)?;
        if verifier == Some(now) {
            round
                .wrong
                .push("the write verifier is the same although the server did not stop cleanly".into());
        }
        drop(probes);
        server.stop()?;
        match self.rig.fsck() {
            Ok(()) => Ok(()),
            Err(e @ Error::Tool { .. }) => {
                round.wrong.push(e.to_string());
                Ok(())
            }
            Err(e) => Err(e),
        }
    }
}

/// There is no event for what is waited for with this.
const POLL: Duration = Duration::from_millis(1);

/// Between two looks at the metrics.
const SCRAPE: Duration = Duration::from_millis(50);

fn peer(addr: SocketAddr, name: &str, root: &str, version: Version) -> Result<Peer> {
    Ok(match version {
        Version::V4 => Peer::V4(Box::new(Actor::connect(addr, format!("trouble {name}"), root)?)),
        Version::V3 => Peer::V3(Box::new(v3::Actor3::connect(addr, root, 1)?)),
    })
}
