//! What the experiments with other clients share: the sides, a server with an archive and its tree beside it, one run of one
//! side.
//!
//! Each run writes into a directory of its own, which is compared with the archive and removed, by all sides alike. What is slow
//! is stopped after a while, and its pace counts. Ours does more than the others: it sets modes, owners and times as in the
//! archive, and its time holds its start, its session and its end; the others' directories are made before their clock starts.
//! What a side needed from its start to its end, mount, session and directories among it, stands beside where it has put all
//! files there. RPCs are those that the server answered in all that time.

use super::{Choices, Row};
use crate::error::{Context, Error, Result};
use crate::measure::{Budget, serial_untar_with};
use crate::memory_disk::MemoryDisk;
use crate::mounts::Filesystem;
use crate::net::Link;
use crate::peers::ganesha::Ganesha;
use crate::peers::libnfs;
use crate::peers::program::{self, KNOWN, Mode, Pace};
use crate::rig::{Latency, Rig, RigOptions};
use crate::scrape;
use crate::serial::{Actor, Connect, Session};
use crate::served::{Durability, ReservedPort, ServeOptions, Served};
use crate::tarball::{Shape, write_random};
use crate::tools;
use landfast_client::NfsUrl;
use landfast_client::put::{PutOptions, Silent};
use landfast_client::untar::{self, Archive};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How long the others' pace is measured.
const PEER_TIME: Duration = Duration::from_secs(2);

const LOG_BYTES: u64 = 256 << 20;

#[derive(Debug, Clone)]
pub(super) enum Side {
    Untar,
    Copy,
    Serial,
    NfsCp(usize),
    Program(PathBuf, Mode),
}

impl Side {
    pub(super) fn name(&self) -> String {
        match self {
            Side::Untar => "landfast untar".into(),
            Side::Copy => "landfast cp -r".into(),
            Side::Serial => "one operation at a time".into(),
            Side::NfsCp(n) => format!("libnfs nfs-cp, {n} at a time"),
            Side::Program(path, way) => {
                format!("{} {}, {} at a time", program::name(path), way.name, way.at_a_time)
            }
        }
    }

    /// Calls that another's client has in flight.
    pub(super) fn at_a_time(&self) -> usize {
        match self {
            Side::NfsCp(n) => *n,
            Side::Program(_, way) => way.at_a_time,
            Side::Untar | Side::Copy | Side::Serial => 1,
        }
    }

    pub(super) fn is_ours(&self) -> bool {
        matches!(self, Side::Untar | Side::Copy)
    }

    /// Whether it is another's that puts many files into a call.
    pub(super) fn is_vectored_peer(&self) -> bool {
        matches!(self, Side::Program(_, way) if way.vectored)
    }
}

/// Those that are to be measured, and what is said of those that are not. `v3`: the server has version 3.
pub(super) fn sides(choices: &Choices, v3: bool) -> Result<(Vec<Side>, Vec<String>)> {
    let mut sides = vec![Side::Untar, Side::Copy, Side::Serial];
    let mut notes = vec!["`one operation at a time` stands for GNU tar over a kernel's client: the lab's own client of version 4.2, with the RPCs of a kernel's and no cost of one".to_owned()];
    match libnfs::possible() {
        _ if !v3 => notes.push("nfs-cp, of version 3, is not measured on a server that has none".into()),
        Ok(()) => sides.extend([Side::NfsCp(1), Side::NfsCp(16)]),
        Err(why) => notes.push(format!("libnfs is not measured: {why}")),
    }
    for program in &choices.peers {
        match program::ways(program) {
            Ok(ways) => {
                let ways = ways.into_iter().filter(|way| v3 || !way.is_v3());
                sides.extend(ways.map(|way| Side::Program(program.clone(), way)));
            }
            Err(e @ Error::Missing(_)) => return Err(e),
            Err(why) => notes.push(format!("{} is not measured: {why}", program::name(program))),
        }
    }
    for (name, packages) in KNOWN {
        if !choices.peers.iter().any(|program| program::name(program) == name) {
            let packages = packages.map(|p| format!(" (Debian packages {p})")).unwrap_or_default();
            notes.push(format!(
                "{name} is not measured: build peers/{name}{packages} and name its program with --peer"
            ));
        }
    }
    Ok((sides, notes))
}

/// A server, and what it stands on.
#[derive(Debug, Clone, Copy)]
pub(super) enum Setup {
    /// Landfast, volume and log in memory.
    Memory,
    /// Landfast, on disks whose flushes take so long.
    Landfast(Duration),
    /// nfs-ganesha, on XFS mounted `wsync` on such a disk, with versions 4: there names are stable with their reply, too.
    Ganesha(Duration),
}

enum Server {
    /// With the address of its metrics.
    Landfast(Served, SocketAddr),
    Ganesha(Ganesha),
}

pub(super) struct Run {
    pub(super) pace: Pace,
    whole_s: f64,
    /// Calls that the server answered, where it counts them.
    rpcs: Option<f64>,
}

/// The runs of one side at one round trip.
#[derive(Debug, Clone, Default)]
pub(super) struct Runs {
    /// Seconds for all files.
    seconds: Vec<f64>,
    /// Seconds of runs that have put all files there.
    whole_s: Vec<f64>,
    rpcs_per_file: Vec<f64>,
}

impl Runs {
    pub(super) fn push(&mut self, run: &Run, files: u64) {
        let written = run.pace.files.max(1) as f64;
        self.seconds.push(run.pace.seconds / written * files as f64);
        self.rpcs_per_file.extend(run.rpcs.map(|rpcs| rpcs / written));
        if run.pace.files == files {
            self.whole_s.push(run.whole_s);
        }
    }

    /// The figures in the middle, the seconds, and those of the whole of a run.
    pub(super) fn line(self, name: &str, rtt_ms: f64, files: u64) -> (Row, f64, Option<f64>) {
        let seconds = super::middle(self.seconds);
        let mut values = Row::new(
            name,
            [("rtt_ms", rtt_ms), ("files_per_s", files as f64 / seconds), ("seconds", seconds)],
        );
        if !self.rpcs_per_file.is_empty() {
            values.values.insert("rpcs_per_file".into(), super::middle(self.rpcs_per_file));
        }
        let whole_s = (!self.whole_s.is_empty()).then(|| super::middle(self.whole_s));
        values.values.extend(whole_s.map(|s| ("whole_s".to_owned(), s)));
        (values, seconds, whole_s)
    }
}

pub(super) struct Bench {
    // The order of the fields is the order in which they go.
    server: Server,
    rig: Option<Rig>,
    export: PathBuf,
    archive: PathBuf,
    /// The archive's tree, here.
    tree: PathBuf,
    /// Its files, by their names from there.
    names: Vec<String>,
    files: u64,
    runs: u64,
    disk: MemoryDisk,
}

impl Bench {
    pub(super) fn new(files: u64, stand: Setup) -> Result<Bench> {
        let disk = MemoryDisk::new()?;
        let archive = disk.scratch().join("archive.tar");
        let tree = disk.filesystem().join("source");
        let what = || format!("write {}", archive.display());
        let mut out = BufWriter::new(File::create(&archive).context(what)?);
        write_random(Shape { files, ..Shape::default() }, &mut out)
            .and_then(|()| out.flush())
            .context(what)?;
        std::fs::create_dir(&tree).context(|| format!("create {}", tree.display()))?;
        crate::measure::local_untar(&archive, &tree)?;
        let mut names = Vec::new();
        crate::tarball::read(open(&archive)?, |member| {
            if let crate::tarball::Kind::File(_) = member.kind {
                names.push(String::from_utf8_lossy(&member.path).into_owned());
            }
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        let mut rig = match stand {
            Setup::Memory => None,
            Setup::Landfast(_) => {
                Some(Rig::new(&RigOptions { log_bytes: LOG_BYTES, ..RigOptions::default() })?)
            }
            Setup::Ganesha(_) => {
                let mut rig = Rig::new(&RigOptions { fs: Filesystem::Xfs, ..RigOptions::default() })?;
                rig.set_mount_options("wsync");
                Some(rig)
            }
        };
        if let Some(rig) = &mut rig {
            rig.format()?;
        }
        let export = rig.as_ref().map_or_else(|| disk.export().to_owned(), Rig::export);
        let server = match stand {
            Setup::Ganesha(_) => Server::Ganesha(Ganesha::start(&export)?),
            Setup::Memory | Setup::Landfast(_) => {
                let reserved = ReservedPort::new()?;
                let metrics = reserved.addr();
                let (log, log_bytes) = match &rig {
                    Some(rig) => (rig.log_device()?.to_owned(), None),
                    None => (disk.scratch().join("log"), Some(LOG_BYTES)),
                };
                let options = ServeOptions::new(&export, Some(&log), Durability::Log);
                let options = ServeOptions { log_bytes, metrics: Some(metrics), ..options };
                Server::Landfast(Served::start(&options)?, metrics)
            }
        };
        if let (Some(rig), Setup::Landfast(flush) | Setup::Ganesha(flush)) = (&mut rig, stand) {
            rig.set_latency(Latency { data_flush: flush, log_flush: flush })?;
        }
        Ok(Bench { server, rig, export, archive, tree, names, files, runs: 0, disk })
    }

    pub(super) fn stop(self) -> Result<()> {
        let Bench { server, mut rig, disk, .. } = self;
        if let Some(rig) = &mut rig {
            rig.set_latency(Latency::default())?;
        }
        match server {
            Server::Landfast(server, _) => server.stop()?,
            Server::Ganesha(server) => server.kill(),
        }
        drop((rig, disk));
        Ok(())
    }

    pub(super) fn addr(&self) -> SocketAddr {
        match &self.server {
            Server::Landfast(server, _) => server.addr(),
            Server::Ganesha(server) => server.addr(),
        }
    }

    /// A URL of the server itself, not through a link.
    fn near(&self, path: &str) -> String {
        format!("nfs://{}/{path}", self.addr())
    }

    /// Calls that the server has answered, where it counts them.
    fn calls(&self) -> Result<Option<f64>> {
        match self.server {
            Server::Landfast(_, metrics) => scrape::page(metrics).map(|page| Some(scrape::calls(&page))),
            Server::Ganesha(_) => Ok(None),
        }
    }

    /// Makes the directory of the next run.
    fn make_dir(&mut self) -> Result<String> {
        self.runs += 1;
        let dir = format!("run{}", self.runs);
        tools::run(&["mkdir", &self.near(&dir)])?;
        Ok(dir)
    }

    /// Compares an extracted tree with the archive, attributes included.
    fn compare(&self, dir: &str) -> Result<()> {
        crate::verify::compare(open(&self.archive)?, &self.export.join(dir))?.into_result().map(drop)
    }

    fn remove(&self, dir: &str) -> Result<()> {
        tools::run(&["rm", "-r", &self.near(dir)]).map(drop)
    }

    /// One run in a directory of its own, which is compared and removed.
    pub(super) fn run(&mut self, side: &Side, link: &Link) -> Result<Run> {
        let dir = self.make_dir()?;
        if let Side::NfsCp(_) = side {
            let dirs: Vec<String> = self.dirs().iter().map(|d| self.near(&format!("{dir}/{d}"))).collect();
            let args: Vec<&str> =
                ["mkdir", "-p"].into_iter().chain(dirs.iter().map(String::as_str)).collect();
            tools::run(&args)?;
        }
        let (before, start) = (self.calls()?, Instant::now());
        let pace = self.go(side, link, &dir)?;
        let whole_s = start.elapsed().as_secs_f64();
        let rpcs = self.calls()?.zip(before).map(|(after, before)| after - before);
        let there = crate::verify::same_contents(open(&self.archive)?, &self.export.join(&dir))?;
        if there < pace.files || (side.is_ours() && there != self.files) {
            let what = format!("{}: {there} files are there, {} were said to be", side.name(), pace.files);
            return Err(Error::WrongData(what));
        }
        if let Side::Untar = side {
            self.compare(&dir)?;
        }
        self.remove(&dir)?;
        Ok(Run { pace, whole_s, rpcs })
    }

    /// One extraction by this process, with the client's library, into a directory of its own, which is compared and removed.
    /// Returns its time from before the session to after it.
    pub(super) fn untar_here(
        &mut self,
        runtime: &Runtime,
        options: PutOptions,
        link: &Link,
    ) -> Result<Duration> {
        let dir = self.make_dir()?;
        let url: NfsUrl =
            format!("nfs://{}/{dir}", link.addr()).parse().map_err(|e| super::client_failed(&e))?;
        let source = Archive::reader(open(&self.archive)?);
        let options = PutOptions { same_permissions: Some(true), same_owner: Some(true), ..options };
        let start = Instant::now();
        let report = runtime
            .block_on(untar::run(options, source, &url, Arc::new(Silent)))
            .map_err(|e| super::client_failed(&e))?;
        let took = start.elapsed();
        if !report.complete() {
            return Err(Error::Protocol(format!("untar: {:?}", report.failed)));
        }
        self.compare(&dir)?;
        self.remove(&dir)?;
        Ok(took)
    }

    fn go(&self, side: &Side, link: &Link, dir: &str) -> Result<Pace> {
        let url = format!("nfs://{}/{dir}", link.addr());
        let text = |path: &Path| path.to_string_lossy().into_owned();
        // With version 3 an export is mounted by its own path.
        let path = format!("{}/{dir}", text(&self.export));
        let ours = |ran: tools::ToolRun| Pace { files: self.files, seconds: ran.took.as_secs_f64() };
        match side {
            Side::Untar => tools::run(&["untar", "-p", &text(&self.archive), &url]).map(ours),
            Side::Copy => tools::run(&["cp", "-r", &text(&self.tree.join("tree")), &url]).map(ours),
            Side::Serial => {
                let mut session = Session::connect(&Connect::new(link.addr(), format!("serial {dir}")))?;
                let root = session.walk(dir)?;
                let mut actor = Actor::new(session, root);
                let budget = Budget { files: u64::MAX, time: PEER_TIME };
                let taken = serial_untar_with(&mut actor, open(&self.archive)?, budget)?;
                actor.into_session().close()?;
                Ok(Pace { files: taken.files, seconds: taken.seconds })
            }
            Side::NfsCp(n) => libnfs::copy(link.addr(), &path, &self.tree, &self.names, *n, PEER_TIME),
            Side::Program(program, way) => {
                let url = if way.is_v3() { format!("nfs://{}{path}", link.addr()) } else { url };
                program::copy(program, &url, &self.tree, way, PEER_TIME)
            }
        }
    }

    fn dirs(&self) -> Vec<&str> {
        let mut dirs: Vec<&str> =
            self.names.iter().filter_map(|n| n.rsplit_once('/').map(|(d, _)| d)).collect();
        dirs.dedup();
        dirs
    }
}

fn open(archive: &Path) -> Result<BufReader<File>> {
    Ok(BufReader::new(File::open(archive).context(|| format!("open {}", archive.display()))?))
}
