//! The demo on emulated disks: flushes are counted at the device, and the power is cut after each row's last acknowledgement.

use super::archive::{Archive, Sources};
use super::lost::{self, Acknowledged, Lost};
use super::report::{
    DemoOptions, DemoReport, Emulation, Flushes, Progress, Row, UNTAR_ON_PEER, local_row, row, serial_row,
    verify,
};
use crate::error::{Context, Result};
use crate::limits::{DEMO_RENAMED_FILES, DEMO_ROW_TIME, UNTAR_FILES_TIMES};
use crate::measure::{self, Budget, Terms, Untarred};
use crate::mounts::Filesystem;
use crate::net::Link;
use crate::peers::ganesha::{self, Ganesha};
use crate::peers::{libnfs, packages};
use crate::rig::{Latency, Rig, RigOptions};
use crate::scrape;
use crate::serial::{Action, Actor, Connect, Session};
use crate::served::{Durability, ReservedPort, ServeOptions, Served};
use crate::tarball::Kind;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Stdio;

/// The data disk is so many times as large as the files, and a bit.
const DISK_FACTOR: u64 = 2;
const DISK_BYTES_MORE: u64 = 1 << 30;

/// Bytes that a small file needs besides its contents, rounded up.
const FILE_OVERHEAD_BYTES: u64 = 8192;

/// nfs-ganesha with the promise and without: the row's name, the filesystem, its mount options, whether it is durable, what is
/// shown while it works.
const GANESHA: [(&str, Filesystem, &str, bool, &str); 2] = [
    ("ganesha-xfs", Filesystem::Xfs, "wsync", true, "nfs-ganesha on XFS mounted wsync"),
    ("ganesha-ext4", Filesystem::Ext4, "", false, "nfs-ganesha on ext4 as it is mounted by default"),
];

/// The three ways in which Landfast serves a client that does one thing at a time.
const LANDFAST: [(&str, Durability, &str); 3] = [
    ("sync", Durability::Sync, "Landfast, every operation flushed to the disk"),
    ("log", Durability::Log, "Landfast with its log"),
    ("unsafe", Durability::Unsafe, "Landfast, nothing flushed"),
];

/// What all rows share.
struct Bench<'a> {
    archive: &'a Archive,
    latency: Latency,
    link: Link,
    terms: Terms,
    progress: &'a mut (dyn FnMut(Progress) + Send),
}

/// Measures all rows. `scratch` is on neither disk. Must run on a thread of [`crate::namespace::run_private`].
pub(super) fn run(
    options: &DemoOptions,
    archive: &Archive,
    scratch: &Path,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<DemoReport> {
    progress(Progress::Doing("measuring the disks and the network by themselves".into()));
    // Nothing listens at this address: the link is pointed at servers later.
    let link = Link::start(SocketAddr::from(([127, 0, 0, 1], 9)), options.rtt)?;
    let mut rig = rig_on(Filesystem::Ext4, archive)?;
    let latency = Latency { data_flush: options.flush, log_flush: options.log_flush };
    rig.format()?;
    rig.set_latency(latency)?;
    let terms = Terms::measure(&rig, &link)?;
    let mut report = DemoReport::new(archive, options, Emulation::Disk, terms);
    let mut bench = Bench { archive, latency, link, terms, progress };

    // Without what the measurement has left.
    rig.format()?;
    rig.set_latency(latency)?;
    let local = bench.local(&mut rig)?;
    report.push(local, bench.progress);
    let missing = packages::missing();
    if !missing.is_empty() {
        report.notes.push(format!("not measured: {}", packages::how_to_get(&missing)));
    }
    for (name, fs, mount, durable, what) in GANESHA {
        if ganesha::possible().and_then(|()| fs.possible()).is_err() {
            continue;
        }
        // Its disks go away before the next row, with the memory that they take.
        let mut other = rig_on(fs, archive)?;
        other.set_mount_options(mount);
        let row = bench.ganesha(&mut other, name, durable, what);
        let taken = row.as_ref().map_or(0, |row| row.files);
        report.push_peer(what, row, bench.progress);
        if durable && taken > 0 {
            let row =
                bench.ganesha_untar(&mut other, &format!("{name}{UNTAR_ON_PEER}"), what, taken, scratch);
            report.push_peer(&format!("{what}, with untar,"), row, bench.progress);
        }
    }
    for (name, durability, what) in LANDFAST {
        let row = bench.landfast(&mut rig, name, durability, what)?;
        report.push(row, bench.progress);
        if name == "log" && libnfs::possible().is_ok() {
            let row = bench.nfs_cp(&mut rig, scratch);
            report.push_peer("libnfs' nfs-cp", row, bench.progress);
        }
    }
    let row = bench.untar(&mut rig)?;
    report.push(row, bench.progress);
    bench.doing("comparing the tree of untar with the archive");
    report.verified = verify(archive, &rig.export(), true)?;
    Ok(report)
}

fn rig_on(fs: Filesystem, archive: &Archive) -> Result<Rig> {
    let need = archive.bytes + archive.files * FILE_OVERHEAD_BYTES;
    Rig::new(&RigOptions { fs, data_bytes: need * DISK_FACTOR + DISK_BYTES_MORE, ..RigOptions::default() })
}

impl Bench<'_> {
    fn doing(&mut self, what: &str) {
        (self.progress)(Progress::Doing(what.to_owned()));
    }

    /// Extracts one operation at a time, as far as the time of a row allows.
    fn one_at_a_time(&self, name: &str) -> Result<(Untarred, Actor)> {
        let mut session = Session::connect(&Connect::new(self.link.addr(), name))?;
        let root = session.walk("/")?;
        let mut actor = Actor::new(session, root);
        let budget = Budget { files: u64::MAX, time: DEMO_ROW_TIME };
        let taken = measure::serial_untar_with(&mut actor, self.archive.open()?, budget)?;
        Ok((taken, actor))
    }

    /// Renames the last files that were extracted, one after another, as who publishes what is complete does. No data is written
    /// after a rename that would make it durable as well.
    fn rename(&self, files: u64, actor: &mut Actor) -> Result<()> {
        let mut last = std::collections::VecDeque::new();
        let mut nth = 0;
        crate::tarball::read(self.archive.open()?, |member| {
            if let Kind::File(_) = member.kind {
                nth += 1;
                last.push_back(member.path);
            }
            if last.len() as u64 > DEMO_RENAMED_FILES {
                last.pop_front();
            }
            Ok(if nth < files { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        for from in last {
            let to = lost::new_name(&from);
            actor.perform(&Action::Rename { from, to })?;
        }
        Ok(())
    }

    fn local(&mut self, rig: &mut Rig) -> Result<Row> {
        self.doing("on the disk itself: tar -x, then sync");
        let before = rig.stats()?;
        let took = measure::local_untar(&self.archive.plain, &rig.export())?;
        let flushes = rig.stats()?.since(&before).data.flushes;
        let flushes = Flushes { data: Some(flushes), log: Some(0) };
        let mut row = local_row(self.archive, &self.terms, took, flushes);
        rig.cut()?;
        row.lost = Some(self.lost_on(rig, Acknowledged::First(self.archive.files))?);
        Ok(row)
    }

    fn ganesha(&mut self, rig: &mut Rig, name: &str, durable: bool, what: &str) -> Result<Row> {
        self.doing(&format!("{what}: one operation at a time"));
        let (taken, flushes) = self.on_ganesha(rig, |bench| {
            let (taken, actor) = bench.one_at_a_time(name)?;
            Ok((taken, Some(actor)))
        })?;
        // Without the promise nothing is waited for but the disk under each stable WRITE.
        let (taken_as, persistence_ms) = match durable {
            true => (taken, self.terms.data_write_ms),
            false => (Untarred { modifying_rpcs: taken.files, ..taken }, self.terms.data_write_ms),
        };
        let mut row = serial_row(name, durable, &self.terms, &taken_as, flushes, persistence_ms);
        row.lost = Some(self.lost_on(rig, renamed(taken.files))?);
        Ok(row)
    }

    /// `landfast untar` on nfs-ganesha, with [`UNTAR_FILES_TIMES`] the files that one operation at a time did in its time.
    fn ganesha_untar(
        &mut self,
        rig: &mut Rig,
        name: &str,
        what: &str,
        one_at_a_time: u64,
        scratch: &Path,
    ) -> Result<Row> {
        self.doing(&format!("{what}: landfast untar, many files in one request"));
        let some = self.archive.first(one_at_a_time * UNTAR_FILES_TIMES, scratch)?;
        let (taken, flushes) = self.on_ganesha(rig, |bench| {
            let taken = measure::untar(bench.link.addr(), &some.plain, Stdio::null())?;
            Ok((Untarred { complete: some.files == bench.archive.files, ..taken }, None))
        })?;
        let mut row = row(name, true, &taken, flushes);
        let flushes = row.disk_flushes_per_file.unwrap_or(0.0);
        row.limit_files_per_s = batched_limit(&self.terms, &row, flushes, self.terms.data_write_ms);
        row.lost = Some(self.lost_on(rig, Acknowledged::First(taken.files))?);
        Ok(row)
    }

    fn landfast(&mut self, rig: &mut Rig, name: &str, durability: Durability, what: &str) -> Result<Row> {
        self.doing(&format!("{what}: one operation at a time"));
        let (taken, flushes) = self.served(rig, durability, |bench, _| {
            let (taken, actor) = bench.one_at_a_time(name)?;
            Ok((taken, Some(actor)))
        })?;
        let persistence_ms = self.terms.persistence_ms(durability);
        let durable = durability != Durability::Unsafe;
        let mut row = serial_row(name, durable, &self.terms, &taken, flushes, persistence_ms);
        recover(rig, durability)?;
        row.lost = Some(lost::count(self.archive, renamed(taken.files), &rig.export())?);
        Ok(row)
    }

    /// libnfs' client on Landfast's server with its log. It makes no directories: these are there before.
    fn nfs_cp(&mut self, rig: &mut Rig, scratch: &Path) -> Result<Row> {
        self.doing("Landfast with its log: libnfs' nfs-cp, a process for each file");
        let Sources { tree, files, dirs } = self.archive.sources(scratch.join("sources"))?;
        let (taken, flushes) = self.served(rig, Durability::Log, |bench, metrics| {
            let all: Vec<String> =
                dirs.iter().map(|dir| format!("nfs://{}/{dir}", bench.link.addr())).collect();
            for some in all.chunks(DIRS_AT_A_TIME) {
                let args: Vec<&str> =
                    ["mkdir", "-p"].into_iter().chain(some.iter().map(String::as_str)).collect();
                crate::tools::run(&args)?;
            }
            let before = scrape::calls(&scrape::page(metrics)?);
            let pace = libnfs::copy(bench.link.addr(), "", &tree, &files, 1, DEMO_ROW_TIME)?;
            let rpcs = scrape::calls(&scrape::page(metrics)?) - before;
            let complete = pace.files == files.len() as u64;
            let taken = Untarred {
                files: pace.files,
                seconds: pace.seconds,
                rpcs: rpcs as u64,
                modifying_rpcs: 0,
                complete,
            };
            Ok((taken, None))
        })?;
        let mut row = row("nfs-cp", true, &taken, flushes);
        // Which of its calls are synchronous is its own affair: each waits for a flush of the log.
        row.limit_files_per_s = self.terms.limit(
            row.rpcs_per_file,
            row.log_flushes_per_file.unwrap_or(0.0),
            self.terms.log_write_ms,
        );
        recover(rig, Durability::Log)?;
        let copied = usize::try_from(taken.files).unwrap_or(usize::MAX).min(files.len());
        row.lost = Some(lost::count(self.archive, Acknowledged::Named(&files[..copied]), &rig.export())?);
        std::fs::remove_dir_all(&tree).context(|| format!("remove {}", tree.display()))?;
        Ok(row)
    }

    fn untar(&mut self, rig: &mut Rig) -> Result<Row> {
        self.doing("Landfast with its log: landfast untar, many files in one request");
        let (taken, flushes) = self.served(rig, Durability::Log, |bench, _| {
            Ok((measure::untar(bench.link.addr(), &bench.archive.plain, Stdio::null())?, None))
        })?;
        let mut row = row("untar", true, &taken, flushes);
        let flushes = row.log_flushes_per_file.unwrap_or(0.0);
        row.limit_files_per_s = batched_limit(&self.terms, &row, flushes, self.terms.log_write_ms);
        recover(rig, Durability::Log)?;
        row.lost = Some(lost::count(self.archive, Acknowledged::First(taken.files), &rig.export())?);
        Ok(row)
    }

    /// A fresh volume, Landfast's server on it, and work through the link; what was flushed for that. Then files are renamed, if
    /// `work` returns who does that, and the power is cut. `work` is also told where the server's metrics are.
    fn served(
        &mut self,
        rig: &mut Rig,
        durability: Durability,
        work: impl FnOnce(&mut Self, SocketAddr) -> Result<(Untarred, Option<Actor>)>,
    ) -> Result<(Untarred, Flushes)> {
        rig.format()?;
        // The server tries at its start which way of flushing is quicker on this device.
        rig.set_latency(self.latency)?;
        let reserved = ReservedPort::new()?;
        let metrics = reserved.addr();
        let options = ServeOptions::new(&rig.export(), Some(rig.log_device()?), durability);
        let server = Served::start(&ServeOptions { metrics: Some(metrics), ..options })?;
        self.link.retarget(server.addr());
        let done = self.counted(rig, |bench| work(bench, metrics))?;
        server.freeze();
        rig.cut()?;
        server.kill();
        Ok(done)
    }

    /// The same with nfs-ganesha as the server, which has no log.
    fn on_ganesha(
        &mut self,
        rig: &mut Rig,
        work: impl FnOnce(&mut Self) -> Result<(Untarred, Option<Actor>)>,
    ) -> Result<(Untarred, Flushes)> {
        rig.format()?;
        rig.set_latency(self.latency)?;
        let server = Ganesha::start(&rig.export())?;
        self.link.retarget(server.addr());
        let (taken, flushes) = self.counted(rig, work)?;
        server.freeze();
        rig.cut()?;
        server.kill();
        Ok((taken, Flushes { log: None, ..flushes }))
    }

    /// Work, and what was flushed for it; behind that, the renames of who `work` returns.
    fn counted(
        &mut self,
        rig: &Rig,
        work: impl FnOnce(&mut Self) -> Result<(Untarred, Option<Actor>)>,
    ) -> Result<(Untarred, Flushes)> {
        let before = rig.stats()?;
        let (taken, actor) = work(self)?;
        let did = rig.stats()?.since(&before);
        if let Some(mut actor) = actor {
            self.rename(taken.files, &mut actor)?;
        }
        Ok((taken, Flushes { data: Some(did.data.flushes), log: Some(did.log.flushes) }))
    }

    /// What is lost on disks without power, where nothing but the filesystem has to recover.
    fn lost_on(&self, rig: &mut Rig, acknowledged: Acknowledged<'_>) -> Result<Lost> {
        recover(rig, Durability::Sync)?;
        lost::count(self.archive, acknowledged, &rig.export())
    }
}

/// Of so many extracted files the last ones were renamed.
fn renamed(files: u64) -> Acknowledged<'static> {
    Acknowledged::Renamed(files, DEMO_RENAMED_FILES)
}

/// URLs that one command is given.
const DIRS_AT_A_TIME: usize = 512;

/// The disks come back with what was flushed and nothing else; the filesystem recovers, and with a log the server does.
fn recover(rig: &mut Rig, durability: Durability) -> Result<()> {
    rig.set_latency(Latency::default())?;
    rig.power_on()?;
    rig.mount_or_repair()?;
    if durability == Durability::Log {
        Served::start(&ServeOptions::new(&rig.export(), Some(rig.log_device()?), durability))?.stop()?;
    }
    Ok(())
}

/// The equation for requests that overlap: one round trip and one flush in all, then whichever is
/// slower: the server's system calls, or the flushes that were needed one after another.
/// `flushes`: of a file, those that are waited for; `write_ms`: what each of them takes.
fn batched_limit(terms: &Terms, line: &Row, flushes: f64, write_ms: f64) -> f64 {
    let files = line.files.max(1) as f64;
    let ms = terms.syscalls_ms.max(flushes * write_ms) + (terms.rtt_ms + write_ms) / files;
    1000.0 / ms.max(1e-9)
}
