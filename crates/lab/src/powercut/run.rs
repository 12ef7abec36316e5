//! The harness: works, cuts the power, restarts, asks the oracle; again and again on one volume, so
//! that later cuts meet what earlier recoveries made.

use super::check::{self, Tree};
use super::model::{Kind, Model};
use super::moment::{Acks, Moment};
use super::untar::Archive;
use super::workload::{Mixed, SerialTar, Workload};
use crate::error::{Error, Result};
use crate::limits::REMOVED_HANDLES_MAX;
use crate::mounts::Filesystem;
use crate::net::Link;
use crate::rig::{Latency, Rig, RigOptions};
use crate::rng::Rng;
use crate::serial::{Action, Actor, Connect, Session};
use crate::served::{Durability, ServeOptions, Served};
use landfast_nfs::v4::FileHandle;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is going on when the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// `landfast untar`.
    Untar,
    /// `tar -x` as a kernel client does it.
    Serial,
    /// Everything that changes a tree.
    Mixed,
}

impl std::str::FromStr for Load {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match s {
            "untar" => Ok(Load::Untar),
            "serial" => Ok(Load::Serial),
            "mixed" => Ok(Load::Mixed),
            _ => Err(Error::Unable(format!("`{s}` is not a workload: use untar, serial or mixed"))),
        }
    }
}

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The data disk's filesystem.
    pub fs: Filesystem,
    /// How many cuts.
    pub cuts: u32,
    /// What is going on.
    pub load: Load,
    /// Everything random comes from here.
    pub seed: u64,
    /// Clients that work at the same time, each in a directory of its own; `untar` is one.
    pub clients: u32,
    /// What the server promises. Anything but [`Durability::Log`] is for showing that the oracle
    /// finds what is lost.
    pub durability: Durability,
    /// Show the server's messages.
    pub show: bool,
}

/// One cut.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CutReport {
    /// Counted from 1.
    pub cut: u32,
    /// Milliseconds from the start of the work to the cut.
    pub after_ms: u64,
    /// Operations acknowledged since the last cut.
    pub acknowledged: u64,
    /// What was under way, for each client that had something under way.
    pub under_way: Vec<String>,
    /// Times that the power went again while the server recovered.
    pub cuts_in_recovery: u32,
    /// Seconds from the server's start to its first connection.
    pub recovery_s: f64,
    /// Objects compared on the disk.
    pub objects: u64,
    /// Handles from before the cut that were tried.
    pub handles: u64,
    /// What is wrong; empty when nothing is.
    pub wrong: Vec<String>,
}

/// All cuts of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The data disk's filesystem.
    pub fs: Filesystem,
    /// What was going on.
    pub workload: Load,
    /// The seed.
    pub seed: u64,
    /// Cuts made.
    pub cuts: u32,
    /// Operations acknowledged.
    pub acknowledged: u64,
    /// Handles tried.
    pub handles: u64,
    /// Longest recovery in seconds.
    pub recovery_s_max: f64,
    /// Blocks that the cuts took from both disks.
    pub blocks_lost: u64,
    /// Cuts after which something was wrong.
    pub failures: u32,
    /// The cuts with something wrong.
    pub failed: Vec<CutReport>,
}

/// One client with what it knows.
struct Worker {
    /// Its directory below the export.
    dir: String,
    model: Model,
    workload: Box<dyn Workload>,
    removed: Vec<FileHandle>,
    under_way: Option<Action>,
    acknowledged: u64,
    wrong: Option<String>,
}

impl Worker {
    /// Works until the connection breaks or the server refuses.
    fn work(&mut self, actor: &mut Actor, cut: &AtomicBool, acks: &Acks) {
        loop {
            let action = self.workload.next(&self.model);
            let done = actor.perform(&action);
            match done {
                Ok(attrs) => {
                    acks.note();
                    self.acknowledged += u64::from(action.is_durable());
                    match self.model.apply(&action) {
                        Ok(Some(id)) => {
                            let fh = path_of(&action).and_then(|p| actor.handles().get(p));
                            self.model.learn(id, attrs.as_ref(), fh);
                        }
                        Ok(None) => {}
                        Err(e) => self.wrong = Some(e.to_string()),
                    }
                    self.removed.extend(self.model.forget_unreachable());
                }
                Err(e) => {
                    // A server whose disks have no power refuses; before the cut nothing may fail.
                    if !cut.load(Ordering::Acquire) {
                        self.wrong = Some(format!("before the cut: {}: {e}", describe(&action)));
                    }
                    self.under_way = Some(action);
                    return;
                }
            }
        }
    }
}

/// The path under which an action's object is afterwards.
fn path_of(action: &Action) -> Option<&Vec<u8>> {
    match action {
        Action::Create { path, .. }
        | Action::Write { path, .. }
        | Action::Commit { path }
        | Action::Set { path, .. }
        | Action::Close { path }
        | Action::Make { path, .. } => Some(path),
        Action::Link { to, .. } | Action::Rename { to, .. } => Some(to),
        Action::Remove { .. } => None,
    }
}

/// The run.
struct Harness<'a> {
    options: &'a Options,
    rig: Rig,
    rng: Rng,
    workers: Vec<Worker>,
    /// By disks that are gone.
    blocks_lost: u64,
    /// Archives extracted to their end on these disks.
    finished: Vec<Archive>,
}

/// Cuts the power so many times, and reports. Call it on a thread of
/// [`crate::namespace::run_private`]. `progress` hears of each cut.
///
/// # Errors
/// What keeps the harness from working; what the oracle finds is in the report.
pub fn run(options: &Options, mut progress: impl FnMut(&CutReport)) -> Result<Report> {
    let mut rig = Rig::new(&RigOptions {
        fs: options.fs,
        data_bytes: options.fs.size_min().max(512 << 20),
        log_bytes: LOG_BYTES,
        seed: options.seed,
    })?;
    rig.format()?;
    let mut harness = Harness {
        options,
        rig,
        rng: Rng::new(options.seed),
        workers: Vec::new(),
        blocks_lost: 0,
        finished: Vec::new(),
    };
    harness.prepare()?;
    let mut report = Report {
        fs: options.fs,
        workload: options.load,
        seed: options.seed,
        cuts: 0,
        acknowledged: 0,
        handles: 0,
        recovery_s_max: 0.0,
        blocks_lost: 0,
        failures: 0,
        failed: Vec::new(),
    };
    for n in 1..=options.cuts {
        let cut = match options.load {
            Load::Untar => harness.cut_untar(n)?,
            Load::Serial | Load::Mixed => harness.cut(n)?,
        };
        progress(&cut);
        report.cuts = n;
        report.acknowledged += cut.acknowledged;
        report.handles += cut.handles;
        report.recovery_s_max = report.recovery_s_max.max(cut.recovery_s);
        if !cut.wrong.is_empty() {
            report.failures += 1;
            report.failed.push(cut);
            // What went wrong would go wrong again at every later cut.
            harness.start_over()?;
        }
    }
    report.blocks_lost = harness.blocks_lost + harness.blocks_lost_now()?;
    Ok(report)
}

/// An address where nobody listens (the discard port).
const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);

/// So many mistakes of one cut are described.
const WRONG_SHOWN_MAX: usize = 8;

/// So many trees of earlier cuts are compared again after each cut.
const OLD_TREES_MAX: usize = 3;

/// A small log, so that checkpoints happen during every run.
const LOG_BYTES: u64 = 32 << 20;

impl Harness<'_> {
    fn serve(&self) -> Result<Served> {
        let log = self.rig.log_device()?;
        Served::start(&ServeOptions {
            lease: Duration::from_secs(2),
            show: self.options.show,
            ..ServeOptions::new(&self.rig.export(), Some(log), self.options.durability)
        })
    }

    /// Makes each client's directory; they are durable before the first cut.
    fn prepare(&mut self) -> Result<()> {
        self.workers.clear();
        let server = self.serve()?;
        let mut actor = at_export(session(server.addr(), "setup")?)?;
        let clients = if self.options.load == Load::Untar { 0 } else { self.options.clients.max(1) };
        for n in 0..clients {
            let dir = format!("client{n}");
            let node = crate::serial::Node::Dir;
            actor.perform(&Action::Make { path: dir.clone().into(), node, mode: 0o755 })?;
            let seed = self.rng.next_u64();
            let workload: Box<dyn Workload> = match self.options.load {
                Load::Mixed => Box::new(Mixed::new(seed)),
                _ => Box::new(SerialTar::new(seed)),
            };
            self.workers.push(Worker {
                dir,
                model: Model::new(),
                workload,
                removed: Vec::new(),
                under_way: None,
                acknowledged: 0,
                wrong: None,
            });
        }
        // A client that never comes back would keep later servers in their grace period.
        actor.into_session().close()?;
        server.stop()
    }

    fn blocks_lost_now(&self) -> Result<u64> {
        let stats = self.rig.stats()?;
        Ok(stats.data.lost_blocks + stats.log.lost_blocks)
    }

    fn start_over(&mut self) -> Result<()> {
        self.blocks_lost += self.blocks_lost_now()?;
        self.finished.clear();
        self.rig.format()?;
        self.prepare()
    }

    /// Random weather: what the disks do to what was not flushed, and how long flushes take.
    fn weather(&mut self) -> Result<()> {
        let keep = [0, 300, 700, 950][self.rng.below(4) as usize];
        let torn = self.rng.below(2);
        self.rig.control(&format!("keep_permille={keep} torn={torn}"))?;
        let micros = |r: &mut Rng, max| Duration::from_micros(r.below(max));
        let latency =
            Latency { data_flush: micros(&mut self.rng, 5000), log_flush: micros(&mut self.rng, 800) };
        self.rig.set_latency(latency)
    }

    /// One cut, one recovery, one question to the oracle.
    fn cut(&mut self, n: u32) -> Result<CutReport> {
        let mut report = CutReport { cut: n, ..CutReport::default() };
        let server = self.serve()?;
        self.weather()?;
        report.after_ms = self.work_until_cut(server)?;
        for w in &mut self.workers {
            report.acknowledged += std::mem::take(&mut w.acknowledged);
            report.under_way.extend(w.under_way.as_ref().map(describe));
            report.wrong.extend(w.wrong.take());
        }
        if let Some(server) = self.recover(&mut report)? {
            self.ask(&server, &mut report)?;
            server.stop()?;
        }
        self.fsck(&mut report)?;
        Ok(report)
    }

    /// Power comes back, perhaps goes again a few times, and a server starts and recovers.
    fn recover(&mut self, report: &mut CutReport) -> Result<Option<Served>> {
        self.rig.power_on()?;
        self.rig.mount()?;
        while self.rng.chance(250) && report.cuts_in_recovery < 3 {
            report.cuts_in_recovery += 1;
            self.cut_in_recovery()?;
        }
        self.rig.set_latency(Latency::default())?;
        match self.serve() {
            Ok(server) => {
                report.recovery_s = server.start_took().as_secs_f64();
                Ok(Some(server))
            }
            Err(e @ Error::Child { .. }) => {
                report.wrong.push(format!("no recovery: {e}"));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Checks the filesystem, and mounts it again.
    fn fsck(&mut self, report: &mut CutReport) -> Result<()> {
        self.rig.unmount()?;
        match self.rig.fsck() {
            Ok(()) => {}
            Err(e @ Error::Tool { .. }) => report.wrong.push(e.to_string()),
            Err(e) => return Err(e),
        }
        self.rig.mount()
    }

    /// One cut in the middle of an `untar`, which goes on when the server is back.
    fn cut_untar(&mut self, n: u32) -> Result<CutReport> {
        let mut report = CutReport { cut: n, ..CutReport::default() };
        let archive = Archive::new(u64::from(n), self.rng.next_u64())?;
        let server = self.serve()?;
        let mut actor = at_export(session(server.addr(), "setup")?)?;
        let node = crate::serial::Node::Dir;
        actor.perform(&Action::Make { path: archive.dir.clone().into_bytes(), node, mode: 0o755 })?;
        actor.into_session().close()?;
        self.weather()?;
        let moment = Moment::random(&mut self.rng);
        let link = Link::start(server.addr(), Duration::ZERO)?;
        let start = Instant::now();
        let extraction = archive.extract(&link)?;
        extraction.wait_for(moment);
        // All at once: a server that outlived its disks would tell the client of errors.
        server.freeze();
        self.rig.cut()?;
        report.after_ms = millis(start);
        server.kill();
        link.retarget(NOBODY);
        link.sever();
        let Some(server) = self.recover(&mut report)? else {
            // Nobody will ever answer this client: it ends with the process.
            return Ok(report);
        };
        // The client cannot reach the new server yet, so this is all that it was ever told.
        let stable = extraction.stable();
        report.acknowledged = stable.len() as u64;
        let (objects, wrong) = archive.check(&self.rig.export(), &stable)?;
        report.objects = objects;
        report.wrong.extend(wrong.into_iter().take(WRONG_SHOWN_MAX));
        if !report.wrong.is_empty() {
            // What is lost is lost; whether the client can go on without it is not the question.
            server.stop()?;
            return Ok(report);
        }
        link.retarget(server.addr());
        let unfinished = extraction.end();
        server.stop()?;
        if unfinished.is_empty() {
            report.wrong.extend(archive.compare(&self.rig.export())?);
        }
        report.wrong.extend(unfinished);
        for old in self.finished.iter().rev().take(OLD_TREES_MAX) {
            report.wrong.extend(old.compare(&self.rig.export())?);
        }
        self.finished.push(archive);
        self.fsck(&mut report)?;
        Ok(report)
    }

    /// All clients work; then the power goes, and the server with it.
    fn work_until_cut(&mut self, server: Served) -> Result<u64> {
        let moment = Moment::random(&mut self.rng);
        let acks = Acks::default();
        let mut actors = Vec::new();
        for worker in &self.workers {
            actors.push(actor_for(session(server.addr(), &worker.dir)?, worker)?);
        }
        // Half of the cuts take server and disks at once; in the others the disks go first, and the
        // server must not acknowledge anything any more.
        let at_once = self.rng.chance(500);
        let cut = AtomicBool::new(false);
        let start = Instant::now();
        std::thread::scope(|s| {
            for (worker, actor) in self.workers.iter_mut().zip(&mut actors) {
                s.spawn(|| worker.work(actor, &cut, &acks));
            }
            moment.wait(&acks);
            cut.store(true, Ordering::Release);
            if at_once {
                server.freeze();
            }
            let done = self.rig.cut();
            server.kill();
            done
        })?;
        Ok(millis(start))
    }

    /// Starts a recovery and cuts the power again.
    fn cut_in_recovery(&mut self) -> Result<()> {
        self.weather()?;
        let after = Duration::from_millis(self.rng.below(80));
        let log = self.rig.log_device()?.to_owned();
        let options = ServeOptions::new(&self.rig.export(), Some(&log), self.options.durability);
        let server = Served::spawn(&options)?;
        std::thread::sleep(after);
        self.rig.cut()?;
        server.kill();
        self.rig.power_on()?;
        self.rig.mount()
    }

    /// Compares disk and wire with what was acknowledged, and takes the answer as the new state.
    fn ask(&mut self, server: &Served, report: &mut CutReport) -> Result<()> {
        let tree = check::read_tree(&self.rig.export())?;
        report.objects = tree.len() as u64;
        let mut rest = tree.clone();
        for worker in &mut self.workers {
            let own = take_subtree(&mut rest, &worker.dir);
            let under_way = worker.under_way.take();
            worker.workload.interrupt();
            let variants = worker.model.variants(under_way.as_ref());
            let variants = variants.map_err(|e| Error::Unable(e.to_string()))?;
            match check::agree(&variants, &own) {
                Ok(which) => {
                    worker.model = variants.into_iter().nth(which).unwrap_or_default();
                    worker.removed.extend(worker.model.forget_unreachable());
                    let skip = worker.removed.len().saturating_sub(REMOVED_HANDLES_MAX);
                    worker.removed.drain(..skip);
                    adopt(&mut worker.model, &own);
                    let mut actor = actor_for(session(server.addr(), &worker.dir)?, worker)?;
                    match check::handles(&worker.model, &own, &worker.removed, &mut actor) {
                        Ok(tried) => report.handles += tried,
                        Err(e) => report.wrong.push(format!("{}: {e}", worker.dir)),
                    }
                }
                Err(e) => {
                    let doing = under_way.as_ref().map_or("nothing".into(), describe);
                    report.wrong.push(format!("{} ({doing} under way): {e}", worker.dir));
                }
            }
        }
        let strangers = rest.keys().map(|p| format!("{}: appeared", p.escape_ascii()));
        report.wrong.extend(strangers.take(5));
        Ok(())
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// What an action is, without its data.
fn describe(action: &Action) -> String {
    let path = |p: &[u8]| p.escape_ascii().to_string();
    match action {
        Action::Create { path: p, .. } => format!("create {}", path(p)),
        Action::Write { path: p, offset, data, stable } => {
            let how = if *stable { "stable" } else { "unstable" };
            format!("{how} write of {} bytes at {offset} to {}", data.len(), path(p))
        }
        Action::Commit { path: p } => format!("commit {}", path(p)),
        Action::Set { path: p, change } => format!("set {change:?} of {}", path(p)),
        Action::Close { path: p } => format!("close {}", path(p)),
        Action::Make { path: p, node, .. } => format!("make {node:?} {}", path(p)),
        Action::Link { from, to } => format!("link {} to {}", path(to), path(from)),
        Action::Rename { from, to } => format!("rename {} to {}", path(from), path(to)),
        Action::Remove { path: p } => format!("remove {}", path(p)),
    }
}

/// A session of the client of this name: the same client as before the cut, started anew, so that
/// the server's grace period ends when all of them have come back.
fn session(addr: SocketAddr, name: &str) -> Result<Session> {
    Session::connect(&Connect::new(addr, format!("power cut {name}")))
}

/// An actor at the export's root.
fn at_export(mut session: Session) -> Result<Actor> {
    let root = session.walk("/")?;
    Ok(Actor::new(session, root))
}

/// An actor at a worker's directory that remembers every handle from before.
fn actor_for(mut session: Session, worker: &Worker) -> Result<Actor> {
    let root = session.walk(&worker.dir)?;
    let mut actor = Actor::new(session, root);
    for (path, id) in worker.model.paths() {
        if let Some(fh) = worker.model.object(id).and_then(|o| o.fh.clone()) {
            actor.remember(path, fh);
        }
    }
    Ok(actor)
}

/// Moves what is below `dir` out of a tree, with paths from there; `dir` itself goes too.
fn take_subtree(tree: &mut Tree, dir: &str) -> Tree {
    tree.remove(dir.as_bytes());
    let prefix = format!("{dir}/").into_bytes();
    let below: Vec<Vec<u8>> = tree.keys().filter(|p| p.starts_with(&prefix)).cloned().collect();
    let moved = below.into_iter().filter_map(|p| Some((p[prefix.len()..].to_vec(), tree.remove(&p)?)));
    moved.collect()
}

/// The disk's answer to what was left open is the state from now on.
fn adopt(model: &mut Model, tree: &Tree) {
    for (path, id) in model.paths() {
        let (Some(object), Some(found)) = (model.object_mut(id), tree.get(&path)) else { continue };
        object.mtime = Some(found.mtime());
        if let Kind::File(contents) = &mut object.kind {
            contents.stable = found.bytes().to_vec();
            contents.pending.clear();
        }
    }
}
