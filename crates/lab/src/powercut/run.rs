//! The harness: lets clients work, cuts the power, restarts the server, asks the oracle; again and again on one volume, so that
//! later cuts hit what earlier recoveries made.

use super::found::{self, FoundObject, Tree};
use super::moment::{Acks, Moment};
use super::options::{CutReport, Load, Options, Points, Report, Variant};
use super::overwrite::Overwrite;
use super::untar::{Archive, Transfer};
use super::worker::{Findings, Version, Worker, describe};
use super::workload::{Mixed, SerialTar, Workload};
use crate::error::{Context, Error, Result};
use crate::limits::{POINT_PASSES, POINT_PASSES_RARE, POINT_PASSES_SESSION, POINT_PATIENCE};
use crate::mounts::Filesystem;
use crate::net::Link;
use crate::rig::{Half, Latency, Rig, RigOptions};
use crate::serial::{Action, Actor};
use crate::served::{Durability, ServeOptions, Served};
use landfast_intentlog::faults;
use landfast_nfs::v4::FileHandle;
use landfast_verify::rng::Rng;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) struct Plan {
    pub(super) variant: Variant,
    /// The point at which the server is to stop, with the number of the pass.
    pub(super) point: Option<(String, u64)>,
    /// Server and disks stop at once. Otherwise the disks stop first, and the server must not acknowledge anything afterwards.
    pub(super) at_once: bool,
    /// How long the server runs on without its disks.
    alone: Duration,
    /// The filesystem is flushed just before the cut, so that the disk is ahead of the log.
    pub(super) ahead: bool,
}

pub(super) struct Harness<'a> {
    pub(super) options: &'a Options,
    pub(super) rig: Rig,
    pub(super) rng: Rng,
    workers: Vec<Worker>,
    /// Blocks lost by disks that have been replaced.
    blocks_lost: u64,
    finished: Vec<Archive>,
    /// A file whose COMMIT returns the write verifier.
    probe: FileHandle,
    /// Write verifiers of server instances that ended uncleanly.
    verifiers: HashSet<[u8; 8]>,
}

/// Runs all cuts and calls `progress` after each. Call it on a thread of [`crate::namespace::run_private`].
/// Errors: What keeps the harness from working; what the oracle finds is in the report.
pub fn run(options: &Options, mut progress: impl FnMut(&CutReport)) -> Result<Report> {
    let mut rng = Rng::new(options.seed);
    let mirror = match options.variant {
        Some(variant) => variant == Variant::HalfLost,
        None => rng.chance(300),
    };
    let log_bytes = LOG_BYTES[rng.below(LOG_BYTES.len() as u64) as usize];
    let one = |name: &str| matches!(&options.points, Points::One(n) if n.starts_with(name));
    let mut rig = Rig::new(&RigOptions {
        fs: options.fs,
        data_bytes: options.fs.size_min().max(512 << 20),
        log_bytes: if one("checkpoint.") || one("log.wrapped") { LOG_BYTES[0] } else { log_bytes },
        mirror: (mirror || one("mirror.")) && options.durability == Durability::Log,
        seed: options.seed,
    })?;
    rig.format()?;
    let mut harness = Harness {
        options,
        rig,
        rng,
        workers: Vec::new(),
        blocks_lost: 0,
        finished: Vec::new(),
        probe: FileHandle::default(),
        verifiers: HashSet::new(),
    };
    harness.prepare()?;
    let mut report = Report {
        fs: options.fs,
        workload: options.load,
        seed: options.seed,
        cuts: 0,
        acknowledged: 0,
        handles: 0,
        repeated: 0,
        recovery_s_max: 0.0,
        blocks_lost: 0,
        failures: 0,
        failed: Vec::new(),
    };
    for n in 1..=options.cuts {
        let cut = match options.load {
            Load::Untar => harness.cut_untar(n, Transfer::Extracted),
            Load::Resume => harness.cut_untar(n, Transfer::Resumed),
            Load::Copy => harness.cut_untar(n, Transfer::Copied),
            Load::Pairs => harness.cut_pairs(n),
            Load::Scenes => harness.cut_scene(n),
            _ => harness.cut(n),
        };
        // One request's panic breaks its connection, and a client that connects again would hide it.
        let panics = crate::child::take_panics();
        let mut cut = match cut {
            Err(e) if !panics.is_empty() => {
                return Err(Error::Unable(format!("{e}; {}", panics.join("; "))));
            }
            cut => cut?,
        };
        cut.wrong.extend(panics);
        progress(&cut);
        report.cuts = n;
        report.acknowledged += cut.acknowledged;
        report.handles += cut.handles;
        report.repeated += cut.repeated;
        report.recovery_s_max = report.recovery_s_max.max(cut.recovery_s);
        if !cut.wrong.is_empty() {
            report.failures += 1;
            report.failed.push(cut);
            if options.until_wrong {
                break;
            }
            // What went wrong would go wrong again at every later cut.
            harness.start_over()?;
        }
    }
    report.blocks_lost = harness.blocks_lost + harness.blocks_lost_now()?;
    Ok(report)
}

/// An address where nobody listens (the discard port).
const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);

/// Mistakes of one cut that are described.
const WRONG_SHOWN_MAX: usize = 8;

/// Trees of earlier cuts that are compared again after each cut.
const OLD_TREES_MAX: usize = 3;

/// Small logs, so that every run has checkpoints and wraps around the ring.
const LOG_BYTES: [u64; 3] = [2 << 20, 8 << 20, 32 << 20];

/// The file whose COMMIT returns the write verifier.
pub(super) const PROBE: &str = "probe";

/// Points that a server passes only now and then.
const RARE: [&str; 7] = [
    "checkpoint.cut",
    "volume.tagged",
    "checkpoint.synced",
    "checkpoint.freed",
    "log.wrapped",
    "commit.flushed",
    "mirror.lost",
];

impl Harness<'_> {
    pub(super) fn serve_options(&self, stop_at: Option<&(String, u64)>) -> Result<ServeOptions> {
        let log = self.rig.log_device()?;
        let mut envs = Vec::new();
        envs.extend(self.options.bug.iter().map(|bug| ("LANDFAST_BUG".to_owned(), bug.clone())));
        envs.extend(stop_at.map(|(name, pass)| ("LANDFAST_STOP_AT".to_owned(), format!("{name}:{pass}"))));
        Ok(ServeOptions {
            lease: Duration::from_secs(2),
            show: self.options.show,
            mirror: self.rig.mirror_device().map(std::path::Path::to_owned),
            binary: self.options.binary.clone(),
            envs,
            ..ServeOptions::new(&self.rig.export(), Some(log), self.options.durability)
        })
    }

    pub(super) fn serve(&self) -> Result<Served> {
        Served::start(&self.serve_options(None)?)
    }

    /// Makes the clients' directories, which are durable before the first cut.
    fn prepare(&mut self) -> Result<()> {
        self.workers.clear();
        self.verifiers.clear();
        let server = self.serve()?;
        let mut actor = setup(server.addr())?;
        actor.perform(&Action::Create { path: PROBE.into(), mode: 0o644 })?;
        actor.perform(&Action::Close { path: PROBE.into() })?;
        self.probe = actor.handle(PROBE.as_bytes())?;
        for (n, (version, workload)) in (0..).zip(self.assign_workloads()) {
            let dir = format!("client{n}");
            let node = crate::serial::Node::Dir;
            actor.perform(&Action::Make { path: dir.clone().into(), node, mode: 0o755 })?;
            let xid = self.xid();
            self.workers.push(Worker::new(dir, version, workload, xid));
        }
        // A client that never comes back would keep later servers in their grace period.
        actor.into_session().close()?;
        server.stop()
    }

    /// The first xid of a version 3 client, far from all that it will use after it connects again.
    pub(super) fn xid(&mut self) -> u32 {
        (self.rng.next_u64() as u32) & 0x3fff_ffff
    }

    fn assign_workloads(&mut self) -> Vec<(Version, Box<dyn Workload>)> {
        let (load, rng) = (self.options.load, &mut self.rng);
        let mut one = |load: Load| -> (Version, Box<dyn Workload>) {
            let seed = rng.next_u64();
            match load {
                Load::Mixed => (Version::V42, Box::new(Mixed::new(seed).with_xattrs().with_lists())),
                Load::V3 if seed % 2 == 0 => (Version::V3, Box::new(Mixed::new(seed))),
                Load::V3 => (Version::V3, Box::new(SerialTar::new(seed))),
                Load::Overwrite if seed % 3 == 0 => (Version::V3, Box::new(Overwrite::new(seed))),
                Load::Overwrite => (Version::V42, Box::new(Overwrite::new(seed))),
                _ => (Version::V41, Box::new(SerialTar::new(seed))),
            }
        };
        match load {
            Load::Untar | Load::Resume | Load::Copy | Load::Pairs | Load::Scenes => Vec::new(),
            Load::Clients => {
                [Load::Mixed, Load::Serial, Load::V3, Load::Overwrite, Load::Mixed].map(one).into()
            }
            load => (0..self.options.clients.max(1)).map(|_| one(load)).collect(),
        }
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

    pub(super) fn plan(&mut self) -> Plan {
        let variant = match self.options.variant {
            Some(variant) => variant,
            None => match self.rng.below(100) {
                0..10 => Variant::Kill,
                10..18 => Variant::SlowLog,
                18..26 => Variant::LogLost,
                26..60 if self.rig.mirror_device().is_some() => Variant::HalfLost,
                _ => Variant::Power,
            },
        };
        let names: Vec<&str> = faults::POINTS.iter().map(|(name, _)| *name).collect();
        let mirrored = self.rig.mirror_device().is_some();
        let here = |name: &&str| {
            !name.starts_with("recovery.")
                && *name != "mirror.lost"
                // Most of its passes are before anything is served; a moment at random is as good.
                && !["volume.flushing", "volume.flushed"].contains(name)
                // Few workloads have these operations.
                && *name != "range.watched"
                // Without a log only.
                && *name != "answer.rests"
                // Where requests of several clients cross, for tests that hold threads.
                && !name.starts_with("cross.")
                // The log's device is not lost while the server runs.
                && !name.starts_with("lost.")
                && (mirrored || !name.starts_with("mirror."))
        };
        let point = match &self.options.points {
            Points::None => None,
            Points::One(name) => Some(name.clone()).filter(|name| !name.starts_with("recovery.")),
            Points::Each => {
                let names: Vec<&str> = names.into_iter().filter(here).collect();
                let name = names[self.rng.below(names.len() as u64) as usize];
                self.rng.chance(850).then(|| name.to_owned())
            }
        };
        let point = point.map(|name| {
            if RARE.contains(&name.as_str()) {
                return (name, 1 + self.rng.below(POINT_PASSES_RARE));
            }
            // The sessions of all are to be there by then.
            let sessions = POINT_PASSES_SESSION * (2 + self.workers.len() as u64);
            (name, sessions + self.rng.below(POINT_PASSES))
        });
        let at_once = self.rng.chance(500);
        // Where an effect is not logged, it may be on the disk all the same.
        let likely = point.as_ref().is_some_and(|(name, _)| name == "op.applied");
        let ahead = self.rng.chance(if likely { 500 } else { 250 });
        let alone = Duration::from_millis(self.rng.below(20));
        Plan { variant, point, at_once, alone, ahead }
    }

    /// Chooses at random what survives of unflushed data and how long flushes take.
    pub(super) fn weather(&mut self, variant: Variant) -> Result<()> {
        let keep = [0, 300, 700, 950][self.rng.below(4) as usize];
        let torn = self.rng.below(2);
        self.rig.control(&format!("keep_permille={keep} torn={torn}"))?;
        if self.options.fs != Filesystem::Ext4 {
            // XFS and btrfs take 4 KiB for one write (checksums over blocks and superblocks): what tears within does
            // not mount again, and no server on it is to blame.
            self.rig.control_data("torn=0")?;
        }
        let micros = |r: &mut Rng, max| Duration::from_micros(r.below(max));
        let log_max = if variant == Variant::SlowLog { 40_000 } else { 800 };
        let latency =
            Latency { data_flush: micros(&mut self.rng, 5000), log_flush: micros(&mut self.rng, log_max) };
        self.rig.set_latency(latency)
    }

    /// One cut, one recovery, one check.
    fn cut(&mut self, n: u32) -> Result<CutReport> {
        let plan = self.plan();
        let mut report = CutReport { cut: n, how: plan.variant.name().to_owned(), ..CutReport::default() };
        let (server, stopped) = Served::start_or_stop(&self.serve_options(plan.point.as_ref())?)?;
        self.weather(plan.variant)?;
        report.after_ms = self.work_until_cut(server, stopped, &plan, &mut report)?;
        for w in &mut self.workers {
            report.acknowledged += std::mem::take(&mut w.acknowledged);
            report.under_way.extend(w.under_way.as_ref().map(describe));
        }
        if let Some(server) = self.recover(&plan, &mut report)? {
            match self.ask(&server, &mut report) {
                Ok(()) => {}
                Err(e @ (Error::Nfs { .. } | Error::Protocol(_) | Error::Lost { .. })) => {
                    report.wrong.push(format!("after recovery: {e}"));
                }
                Err(e) => return Err(e),
            }
            if let Err(e) = server.stop() {
                report.wrong.push(format!("after recovery: {e}"));
            }
        }
        self.after(&plan, &mut report)?;
        Ok(report)
    }

    /// Power comes back, perhaps goes again a few times, and a server starts and recovers.
    pub(super) fn recover(&mut self, plan: &Plan, report: &mut CutReport) -> Result<Option<Served>> {
        let half = [Half::First, Half::Second][self.rng.below(2) as usize];
        let mut replace = false;
        if plan.variant == Variant::HalfLost && self.rig.mirror_device().is_some() {
            replace = self.rng.chance(500);
            if !replace {
                self.rig.set_dead_half(Some(half));
            }
        }
        self.power_on(plan)?;
        if replace {
            self.rig.replace_half(half)?;
        }
        let wanted = match &self.options.points {
            Points::One(name) if name.starts_with("recovery.") => 1000,
            _ => 250,
        };
        while self.rng.chance(if report.cuts_in_recovery == 0 { wanted } else { 250 })
            && report.cuts_in_recovery < 3
        {
            report.cuts_in_recovery += 1;
            self.cut_in_recovery(plan, report)?;
        }
        self.rig.set_latency(Latency::default())?;
        if plan.variant == Variant::LogLost {
            self.try_other_logs(report)?;
        }
        self.start_again(report)
    }

    /// Starts the server after the power came back; `None` if it does not start, which is reported as wrong.
    pub(super) fn start_again(&self, report: &mut CutReport) -> Result<Option<Served>> {
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

    /// Does nothing after a `kill -9`.
    pub(super) fn power_on(&mut self, plan: &Plan) -> Result<()> {
        if plan.variant == Variant::Kill {
            return Ok(());
        }
        self.rig.power_on()?;
        self.rig.mount_or_repair().map(drop)
    }

    /// A server whose log is another device, or none, must not start, and must say what to do.
    fn try_other_logs(&mut self, report: &mut CutReport) -> Result<()> {
        let blank = self.rig.scratch().join("another.log");
        let file = std::fs::File::create(&blank).context(|| format!("create {}", blank.display()))?;
        file.set_len(4 << 20).context(|| format!("make room for {}", blank.display()))?;
        let missing = self.rig.scratch().join("missing.log");
        for (what, log) in [("an empty log", &blank), ("a log that is not there", &missing)] {
            let mut options = self.serve_options(None)?;
            (options.log, options.log_bytes) = (Some(log.clone()), Some(4 << 20));
            options.mirror = None;
            report.refused += 1;
            match Served::start(&options) {
                Ok(server) => {
                    report.wrong.push(format!("served with {what} in the place of its own"));
                    server.kill();
                }
                Err(Error::Child { what: said, .. }) => {
                    // The message names the log and what to do about it.
                    let clear = said.contains("--log") || said.contains(".landfast");
                    if !clear {
                        report.wrong.push(format!("refused {what} without saying what to do: {said}"));
                    }
                }
                Err(e) => return Err(e),
            }
        }
        for log in [blank, missing] {
            let _ = std::fs::remove_file(log);
        }
        Ok(())
    }

    /// Checks the filesystem, and mounts it again, with all disks whole.
    pub(super) fn after(&mut self, plan: &Plan, report: &mut CutReport) -> Result<()> {
        self.rig.unmount()?;
        match self.rig.fsck() {
            Ok(()) => {}
            Err(e @ Error::Tool { .. }) => report.wrong.push(e.to_string()),
            Err(e) => return Err(e),
        }
        if plan.variant == Variant::HalfLost {
            // The half returns as it was at the cut; it is an old copy now.
            self.rig.set_dead_half(None);
            self.rig.power_on()?;
        }
        self.rig.mount()
    }

    /// One cut during an `untar` or a copy, which goes on when the server is back.
    fn cut_untar(&mut self, n: u32, way: Transfer) -> Result<CutReport> {
        let plan = self.plan();
        let mut report = CutReport { cut: n, how: plan.variant.name().to_owned(), ..CutReport::default() };
        let archive = Archive::new(u64::from(n), self.rng.next_u64(), way, self.rig.scratch())?;
        let server = self.serve()?;
        let mut actor = setup(server.addr())?;
        for dir in archive.dirs() {
            let node = crate::serial::Node::Dir;
            actor.perform(&Action::Make { path: dir.into_bytes(), node, mode: 0o755 })?;
        }
        actor.into_session().close()?;
        if archive.has_source() {
            archive.prepare(&Link::start(server.addr(), Duration::ZERO)?)?;
        }
        server.stop()?;
        let (server, stopped) = Served::start_or_stop(&self.serve_options(plan.point.as_ref())?)?;
        self.weather(plan.variant)?;
        let moment = Moment::random(&mut self.rng);
        let link = Link::start(server.addr(), Duration::ZERO)?;
        let start = Instant::now();
        let extraction = if stopped { None } else { Some(archive.extract(&link)?) };
        if let (Some(extraction), None) = (&extraction, &plan.point) {
            extraction.wait_for(moment);
        }
        if let Some((name, _)) = &plan.point
            && (stopped || server.wait_stopped(POINT_PATIENCE))
        {
            report.points.push(name.clone());
        }
        // All at once: a server that outlived its disks would tell the client of errors.
        let plan = Plan { at_once: true, ..plan };
        self.end(server, &plan)?;
        report.after_ms = millis(start);
        link.retarget(NOBODY);
        link.sever();
        let extraction = match extraction {
            Some(extraction) => extraction,
            None => archive.extract(&link)?,
        };
        let Some(server) = self.recover(&plan, &mut report)? else {
            // Nobody will ever answer this client: it ends with the process.
            return Ok(report);
        };
        // The client cannot reach the new server yet, so this is all that it was ever told.
        let (stable, extraction) = archive.after_cut(extraction)?;
        report.acknowledged = stable.len() as u64;
        let mut reader = setup(server.addr())?;
        let tree = found::over_nfs(&mut reader, false)?;
        reader.into_session().close()?;
        let (objects, wrong) = archive.check(tree, &stable);
        report.objects = objects;
        report.wrong.extend(wrong.into_iter().take(WRONG_SHOWN_MAX));
        if !report.wrong.is_empty() {
            // After a loss it does not matter whether the client can go on.
            server.stop()?;
            return Ok(report);
        }
        link.retarget(server.addr());
        let extraction = match extraction {
            Some(extraction) => extraction,
            None => archive.extract(&link)?,
        };
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
        self.after(&plan, &mut report)?;
        Ok(report)
    }

    /// All clients work until the power goes, and the server with it.
    fn work_until_cut(
        &mut self,
        server: Served,
        stopped: bool,
        plan: &Plan,
        report: &mut CutReport,
    ) -> Result<u64> {
        let moment = Moment::random(&mut self.rng);
        let start = Instant::now();
        if let Some((name, _)) = plan.point.as_ref().filter(|_| stopped) {
            report.points.push(name.clone());
            self.end(server, plan)?;
            return Ok(millis(start));
        }
        let acks = Acks::default();
        match (self.begin(server.addr(), report), &plan.point) {
            (Ok(()), _) => {}
            // It stopped before all were there.
            (Err(Error::Lost { .. }), Some((name, _))) => {
                report.points.push(name.clone());
                self.end(server, plan)?;
                return Ok(millis(start));
            }
            (Err(e), _) => return Err(e),
        }
        let cut = AtomicBool::new(false);
        let mut workers = std::mem::take(&mut self.workers);
        let done = std::thread::scope(|s| {
            for worker in &mut workers {
                s.spawn(|| worker.work(&cut, &acks));
            }
            match &plan.point {
                Some((name, _)) if server.wait_stopped(POINT_PATIENCE) => report.points.push(name.clone()),
                // It never came by: a moment like any other.
                Some(_) => {}
                None => moment.wait(&acks),
            }
            cut.store(true, Ordering::Release);
            self.end(server, plan)
        });
        self.workers = workers;
        done.map(|()| millis(start))
    }

    fn begin(&mut self, addr: SocketAddr, report: &mut CutReport) -> Result<()> {
        self.note_verifier(addr, report)?;
        self.workers.iter_mut().try_for_each(|worker| worker.connect(addr))
    }

    /// The power goes, or only the server.
    pub(super) fn end(&mut self, server: Served, plan: &Plan) -> Result<()> {
        if plan.variant == Variant::Kill {
            server.kill();
            return Ok(());
        }
        if plan.point.is_some() || plan.at_once {
            server.freeze();
            if plan.ahead {
                // As the kernel does by itself every few seconds.
                server.wait_stopped(POINT_PATIENCE);
                crate::mounts::syncfs(&self.rig.export())?;
            }
        }
        let done = self.rig.cut();
        if plan.point.is_none() && !plan.at_once {
            std::thread::sleep(plan.alone);
        }
        server.kill();
        done
    }

    /// Remembers the write verifier of a server that will end uncleanly.
    fn note_verifier(&mut self, addr: SocketAddr, report: &mut CutReport) -> Result<()> {
        let mut actor = setup(addr)?;
        let verifier = actor.verifier(&self.probe)?;
        actor.into_session().close()?;
        if !self.verifiers.insert(verifier) {
            report.wrong.push("the write verifier is one of before an unclean start".to_owned());
        }
        Ok(())
    }

    /// Starts a recovery and cuts the power again, at a random moment or at a named point.
    fn cut_in_recovery(&mut self, plan: &Plan, report: &mut CutReport) -> Result<()> {
        self.weather(plan.variant)?;
        let after = Duration::from_millis(self.rng.below(80));
        let points =
            faults::POINTS.iter().map(|(name, _)| *name).filter(|name| name.starts_with("recovery."));
        let names: Vec<&str> = points.collect();
        let point = match &self.options.points {
            Points::None => None,
            Points::One(name) => Some(name.clone()).filter(|name| name.starts_with("recovery.")),
            Points::Each => Some(names[self.rng.below(names.len() as u64) as usize].to_owned()),
        };
        let point = point.map(|name| (name, 1));
        let options = self.serve_options(point.as_ref())?;
        let server = match point {
            None => {
                let server = Served::spawn(&options)?;
                std::thread::sleep(after);
                server
            }
            Some((name, _)) => match Served::start_or_stop(&options) {
                Ok((server, stopped)) => {
                    report.points.extend(stopped.then_some(name));
                    server
                }
                Err(e @ Error::Child { .. }) => {
                    report.wrong.push(format!("no recovery: {e}"));
                    return Ok(());
                }
                Err(e) => return Err(e),
            },
        };
        if plan.variant == Variant::Kill {
            server.kill();
            return Ok(());
        }
        self.rig.cut()?;
        server.kill();
        self.power_on(plan)
    }

    /// Compares the disk and NFS with what was acknowledged, and takes what is there as the new state.
    fn ask(&mut self, server: &Served, report: &mut CutReport) -> Result<()> {
        let mut disk = found::on_disk(&self.rig.export())?;
        disk.remove(PROBE.as_bytes());
        let mut before = Vec::new();
        let mut findings: Vec<Findings> = Vec::new();
        let unclean = self.options.durability == Durability::Log;
        for worker in &mut self.workers {
            let (_, own) = found::take_subtree(&mut disk, &worker.dir);
            let mut out = Findings::default();
            before.push(worker.come_back(server.addr(), &own, unclean, &mut out)?);
            findings.push(out);
        }
        let strangers = disk.keys().map(|p| format!("{}: appeared", p.escape_ascii()));
        report.wrong.extend(strangers.take(5));
        let mut reader = setup(server.addr())?;
        if unclean && self.verifiers.contains(&reader.verifier(&self.probe)?) {
            report.wrong.push("the write verifier is one of before an unclean start".to_owned());
        }
        let mut tree: Tree = found::over_nfs(&mut reader, true)?;
        reader.into_session().close()?;
        for ((worker, before), out) in self.workers.iter_mut().zip(before).zip(&mut findings) {
            let (top, own): (Option<FoundObject>, Tree) = found::take_subtree(&mut tree, &worker.dir);
            if let Some(before) = before {
                worker.verify(&before, &own, top.as_ref(), out)?;
            }
            report.wrong.extend(out.wrong.drain(..).map(|w| format!("{}: {w}", worker.dir)));
            report.repeated += out.repeated;
            report.ahead += out.ahead;
            report.handles += out.handles;
            report.objects += out.objects;
        }
        Ok(())
    }
}

pub(super) fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The harness's own client, at the export's root.
pub(super) fn setup(addr: SocketAddr) -> Result<Actor> {
    Actor::connect(addr, "power cut", "/")
}
