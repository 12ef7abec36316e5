//! A server on emulated disks behind an emulated network, and the work that rows put on it: an archive, extracted one file at a
//! time, by several clients that do so, or by `landfast untar`.

use super::content::Whose;
use crate::error::{Context, Error, Result};
use crate::limits::UNTAR_FILES_TIMES;
use crate::measure::{Budget, Terms, Untarred, serial_untar_with};
use crate::mounts::Filesystem;
use crate::net::Link;
use crate::peers::ganesha::{self, Ganesha};
use crate::rig::{Latency, Rig, RigOptions, RigStats};
use crate::serial::{Actor, Connect, Session};
use crate::served::{Durability, ServeOptions, Served};
use crate::tarball::{Shape, write_random};
use crate::tools;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Size of the server's log, in bytes.
const LOG_BYTES: u64 = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    Landfast(Durability),
    Ganesha,
}

/// A server with its filesystem.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub name: &'static str,
    pub whose: Whose,
    pub server: Server,
    pub fs: Filesystem,
    /// As `mount -o` takes them.
    pub mount_options: &'static str,
    /// ext4's journal lies on the log disk.
    pub journal_on_log: bool,
}

impl Setup {
    pub const LOG: Setup = Setup {
        name: "Landfast with its log",
        whose: Whose::Ours,
        server: Server::Landfast(Durability::Log),
        fs: Filesystem::Ext4,
        mount_options: "",
        journal_on_log: false,
    };
    pub const SYNC: Setup =
        Setup { name: "Landfast without a log", server: Server::Landfast(Durability::Sync), ..Setup::LOG };
    /// It calls fsync for data only; `wsync` makes XFS write each change of names before it returns.
    pub const GANESHA: Setup = Setup {
        name: "nfs-ganesha, XFS wsync",
        whose: Whose::Peer,
        server: Server::Ganesha,
        fs: Filesystem::Xfs,
        mount_options: "wsync",
        journal_on_log: false,
    };
    /// ext4 that writes data and names to its journal before a call returns.
    pub const GANESHA_JOURNAL: Setup = Setup {
        name: "nfs-ganesha, ext4 data=journal sync",
        fs: Filesystem::Ext4,
        mount_options: "data=journal,sync",
        ..Setup::GANESHA
    };
    /// The same with the journal on the small fast device.
    pub const GANESHA_JOURNAL_OUTSIDE: Setup = Setup {
        name: "nfs-ganesha, ext4 data=journal sync, journal on the log device",
        journal_on_log: true,
        ..Setup::GANESHA_JOURNAL
    };
    pub const UNSAFE: Setup = Setup {
        name: "Landfast, told to lie (--durability unsafe)",
        whose: Whose::NotDurable,
        server: Server::Landfast(Durability::Unsafe),
        ..Setup::LOG
    };
    /// As people run it.
    pub const GANESHA_EXT4: Setup = Setup {
        name: "nfs-ganesha, ext4 as it comes",
        whose: Whose::NotDurable,
        fs: Filesystem::Ext4,
        mount_options: "",
        ..Setup::GANESHA
    };

    /// Whether it can run here.
    ///
    /// # Errors
    /// What is missing, with the package.
    pub fn possible(&self) -> Result<()> {
        crate::rig::possible()?;
        match self.server {
            Server::Landfast(_) => Ok(()),
            Server::Ganesha => ganesha::possible(),
        }
    }

    /// Whether rows that compare servers by `landfast untar` run it there: on Landfast with its log, and on each other server that keeps
    /// what it acknowledges.
    pub fn takes_untar(&self) -> bool {
        self.whose == Whose::Peer || self.name == Setup::LOG.name
    }

    /// Of a file's flushes those that its client waits for: those of the log where there is one, else all.
    fn waited(&self, stats: &RigStats) -> Flushes {
        match self.server {
            Server::Landfast(Durability::Log) => Flushes { data: 0, log: stats.log.flushes },
            _ => Flushes { data: stats.data.flushes, log: stats.log.flushes },
        }
    }
}

/// Those of `setups` that can run here; what is missing for the others goes to `absent`.
pub fn here(setups: &[Setup], absent: &mut Vec<String>) -> Vec<Setup> {
    let mut can = Vec::new();
    for setup in setups {
        match setup.possible() {
            Ok(()) => can.push(*setup),
            Err(why) => absent.push(format!("{}: {why}", setup.name)),
        }
    }
    can
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Flushes {
    data: u64,
    log: u64,
}

/// Files that were put on a server.
#[derive(Debug, Clone, Copy, Default)]
pub struct Put {
    pub files: u64,
    pub seconds: f64,
    pub rpcs: u64,
    pub data_flushes: u64,
    pub log_flushes: u64,
    waited: Flushes,
}

impl Put {
    pub fn files_per_s(&self) -> f64 {
        self.files as f64 / self.seconds
    }

    pub fn ms_per_file(&self) -> f64 {
        self.seconds * 1e3 / self.files as f64
    }

    pub fn each(&self, n: u64) -> f64 {
        n as f64 / self.files.max(1) as f64
    }

    /// Flushes of both disks for a file.
    pub fn flushes_each(&self) -> f64 {
        self.each(self.data_flushes + self.log_flushes)
    }

    /// Flushes that the client waits for, for a file.
    pub fn waited_each(&self) -> f64 {
        self.each(self.waited.data + self.waited.log)
    }

    /// Files a second that the equation allows one client that does one thing at a time, with the counted RPCs and flushes.
    pub fn serial_limit(&self, terms: &Terms) -> f64 {
        let flushes = self.each(self.waited.data) * terms.data_write_ms
            + self.each(self.waited.log) * terms.log_write_ms;
        1000.0 / (self.each(self.rpcs) * terms.rtt_ms + flushes + terms.syscalls_ms).max(1e-9)
    }

    /// The same for requests that overlap: one round trip and one flush for all of them, then whichever takes longer, the
    /// server's system calls or the flushes that were made one after another.
    pub fn batched_limit(&self, terms: &Terms) -> f64 {
        let flushes = self.each(self.waited.data) * terms.data_write_ms
            + self.each(self.waited.log) * terms.log_write_ms;
        let flush_ms = if self.waited.data > 0 { terms.data_write_ms } else { terms.log_write_ms };
        let ms = terms.syscalls_ms.max(flushes) + (terms.rtt_ms + flush_ms) / self.files.max(1) as f64;
        1000.0 / ms.max(1e-9)
    }
}

/// The archive that all clients extract.
#[derive(Debug)]
pub struct Archive {
    dir: tempfile::TempDir,
    pub files: u64,
    pub bytes: u64,
}

impl Archive {
    /// `files` random files of 4 KiB in directories of 64.
    pub fn random(files: u64) -> Result<Archive> {
        let dir = crate::machine::scratch_dir("landfast-archive-")?;
        let archive = Archive { dir, files, bytes: files * 4096 };
        let what = || format!("write {}", archive.path().display());
        let mut out = BufWriter::new(File::create(archive.path()).context(what)?);
        let shape = Shape { files, ..Shape::default() };
        write_random(shape, &mut out).and_then(|()| out.flush()).context(what)?;
        Ok(archive)
    }

    /// An archive that somebody named, decompressed.
    ///
    /// # Errors
    /// It cannot be read, or has no regular file.
    pub fn given(path: &Path) -> Result<Archive> {
        let dir = crate::machine::scratch_dir("landfast-archive-")?;
        let mut archive = Archive { dir, files: 0, bytes: 0 };
        let plain = archive.path();
        let file = File::open(path).context(|| format!("open {}", path.display()))?;
        let unable = |e: &dyn std::fmt::Display| Error::Unable(format!("{}: {e}", path.display()));
        let (_, mut tar) = landfast_client::archive::open(Box::new(file)).map_err(|e| unable(&e))?;
        let mut out = File::create(&plain).context(|| format!("write {}", plain.display()))?;
        std::io::copy(&mut tar, &mut out).context(|| format!("decompress {}", path.display()))?;
        crate::tarball::read(archive.open()?, |member| {
            if let crate::tarball::Kind::File(data) = member.kind {
                archive.files += 1;
                archive.bytes += data.len() as u64;
            }
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        if archive.files == 0 { Err(unable(&"no regular file in it")) } else { Ok(archive) }
    }

    /// Its first files, for a server on which the whole would take too long: [`UNTAR_FILES_TIMES`] those that were put there one at a
    /// time.
    pub fn first(&self, one_at_a_time: &Put) -> Result<Archive> {
        let dir = crate::machine::scratch_dir("landfast-archive-")?;
        let mut archive = Archive { dir, files: 0, bytes: 0 };
        let what = || format!("write {}", archive.path().display());
        let mut out = BufWriter::new(File::create(archive.path()).context(what)?);
        let files = one_at_a_time.files.max(1) * UNTAR_FILES_TIMES;
        let (files, bytes) = crate::tarball::write_first(files, &self.path(), &mut out)?;
        out.flush().context(what)?;
        (archive.files, archive.bytes) = (files, bytes);
        Ok(archive)
    }

    /// Bytes that a disk needs for it, with room for the filesystem's own.
    pub fn disk_bytes(&self) -> u64 {
        (self.bytes + self.files * 8192) * 2 + (1 << 30)
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("archive.tar")
    }

    pub fn open(&self) -> Result<BufReader<File>> {
        let path = self.path();
        Ok(BufReader::new(File::open(&path).context(|| format!("open {}", path.display()))?))
    }
}

enum Running {
    Landfast(Served),
    Ganesha(Ganesha),
}

/// A running server on its disks.
pub struct Stand {
    // The order of the fields is the order in which they go.
    running: Running,
    rig: Rig,
    setup: Setup,
    dirs: u64,
}

impl Stand {
    /// Makes disks and filesystem without latencies and starts the server with them: it tries at its start which way of flushing
    /// is quicker. Call it in a private mount namespace.
    pub fn start(setup: Setup, latency: Latency, data_bytes: u64) -> Result<Stand> {
        let data_bytes = data_bytes.max(setup.fs.size_min());
        let rig = RigOptions { fs: setup.fs, data_bytes, log_bytes: LOG_BYTES, ..RigOptions::default() };
        let mut rig = Rig::new(&rig)?;
        rig.set_mount_options(setup.mount_options);
        rig.set_journal_on_log(setup.journal_on_log);
        rig.format()?;
        rig.set_latency(latency)?;
        let running = match setup.server {
            Server::Landfast(durability) => {
                let options = ServeOptions::new(&rig.export(), Some(rig.log_device()?), durability);
                Running::Landfast(Served::start(&options)?)
            }
            Server::Ganesha => Running::Ganesha(Ganesha::start(&rig.export())?),
        };
        Ok(Stand { running, rig, setup, dirs: 0 })
    }

    pub fn addr(&self) -> SocketAddr {
        match &self.running {
            Running::Landfast(server) => server.addr(),
            Running::Ganesha(server) => server.addr(),
        }
    }

    /// Processor time of the server so far.
    pub fn cpu(&self) -> Option<Duration> {
        match &self.running {
            Running::Landfast(server) => server.cpu(),
            Running::Ganesha(server) => server.cpu(),
        }
    }

    /// The server's largest memory so far, in bytes.
    pub fn peak_rss_bytes(&self) -> Option<u64> {
        match &self.running {
            Running::Landfast(server) => server.peak_rss_bytes(),
            Running::Ganesha(server) => server.peak_rss_bytes(),
        }
    }

    pub fn set_latency(&mut self, latency: Latency) -> Result<()> {
        self.rig.set_latency(latency)
    }

    /// The served directory on this machine.
    pub fn export(&self) -> PathBuf {
        self.rig.export()
    }

    /// Directories for work, made past the link. Their names below the root.
    pub fn dirs(&mut self, count: u64) -> Result<Vec<String>> {
        let names: Vec<String> = (self.dirs..self.dirs + count).map(|n| format!("work{n}")).collect();
        self.dirs += count;
        let urls: Vec<String> = names.iter().map(|name| format!("nfs://{}/{name}", self.addr())).collect();
        let args: Vec<&str> = ["mkdir"].into_iter().chain(urls.iter().map(String::as_str)).collect();
        tools::run(&args)?;
        Ok(names)
    }

    fn count(&self, work: impl FnOnce() -> Result<Put>) -> Result<Put> {
        let before = self.rig.stats()?;
        let put = work()?;
        let did = self.rig.stats()?.since(&before);
        Ok(Put {
            data_flushes: did.data.flushes,
            log_flushes: did.log.flushes,
            waited: self.setup.waited(&did),
            ..put
        })
    }

    /// Extracts the archive with so many clients, each into a directory of its own and one operation at a time, until all are done or the time
    /// is over.
    pub fn serial(&mut self, link: &Link, archive: &Archive, clients: u64, time: Duration) -> Result<Put> {
        let dirs = self.dirs(clients)?;
        let mut actors = Vec::new();
        for dir in &dirs {
            let mut session =
                Session::connect(&Connect::new(link.addr(), format!("{} {dir}", self.setup.name)))?;
            let root = session.walk(dir)?;
            actors.push(Actor::new(session, root));
        }
        self.count(|| {
            let work = |mut actor: Actor| -> Result<Untarred> {
                let budget = Budget { files: u64::MAX, time };
                let taken = serial_untar_with(&mut actor, archive.open()?, budget)?;
                actor.into_session().close()?;
                Ok(taken)
            };
            let all = std::thread::scope(|scope| {
                let all: Vec<_> = actors.into_iter().map(|actor| scope.spawn(|| work(actor))).collect();
                let gone = |_| Error::Child { role: "client", what: "panic".into() };
                all.into_iter().map(|one| one.join().map_err(gone)?).collect::<Result<Vec<_>>>()
            })?;
            Ok(Put {
                files: all.iter().map(|t| t.files).sum(),
                seconds: all.iter().map(|t| t.seconds).fold(0.0, f64::max),
                rpcs: all.iter().map(|t| t.rpcs).sum(),
                ..Put::default()
            })
        })
    }

    /// The directory of the last work.
    pub fn last_dir(&self) -> String {
        format!("work{}", self.dirs.saturating_sub(1))
    }

    /// Extracts the archive with `landfast untar`, a process of its own. Each file is compared afterwards.
    pub fn untar(&mut self, link: &Link, archive: &Archive) -> Result<Put> {
        let dir = self.dirs(1)?.remove(0);
        let put = self.count(|| {
            let url = format!("nfs://{}/{dir}", link.addr());
            let ran = tools::run(&["untar", "-p", &archive.path().to_string_lossy(), &url])?;
            Ok(Put { files: ran.objects, seconds: ran.took.as_secs_f64(), rpcs: ran.rpcs, ..Put::default() })
        })?;
        let there = crate::verify::same_contents(archive.open()?, &self.export().join(&dir))?;
        if there != archive.files || put.files != there {
            let what = format!("untar on {}: {there} of {} files are there", self.setup.name, archive.files);
            return Err(Error::WrongData(what));
        }
        Ok(put)
    }

    /// The same on any server in some seconds: Landfast with its log gets the whole archive, others its
    /// [first files](Archive::first).
    pub fn untar_in_time(&mut self, link: &Link, archive: &Archive, one_at_a_time: &Put) -> Result<Put> {
        if self.setup.name == Setup::LOG.name {
            return self.untar(link, archive);
        }
        self.untar(link, &archive.first(one_at_a_time)?)
    }

    /// Control words for both disks.
    pub fn control(&self, words: &str) -> Result<()> {
        self.rig.control(words)
    }

    /// Control words for the data disk, and for the log's.
    pub fn control_each(&self, data: &str, log: &str) -> Result<()> {
        self.rig.control_data(data)?;
        self.rig.control_log(log)
    }

    /// Flushes of both disks so far.
    pub fn flushes(&self) -> Result<u64> {
        self.rig.stats().map(|stats| stats.data.flushes + stats.log.flushes)
    }

    /// Cuts the power at once, puts it on again, mounts, and starts the server, which recovers. Returns how many files of the archive are there
    /// below `dir`, with their contents.
    ///
    /// # Errors
    /// The filesystem does not mount any more, or the server does not start: then nothing is there.
    pub fn files_after_cut(self, archive: &Archive, dir: &str) -> Result<u64> {
        let Stand { running, mut rig, setup, .. } = self;
        match &running {
            Running::Landfast(server) => server.freeze(),
            Running::Ganesha(server) => server.freeze(),
        }
        rig.cut()?;
        match running {
            Running::Landfast(server) => server.kill(),
            Running::Ganesha(server) => server.kill(),
        }
        rig.set_latency(Latency::default())?;
        rig.control("ignore_flush=0")?;
        rig.power_on()?;
        rig.mount_or_repair()
            .map_err(|_| Error::Unable("the filesystem does not mount, nor can it be repaired".into()))?;
        if let Server::Landfast(durability) = setup.server {
            // Nothing else changes the files of the others when they start.
            let options = ServeOptions::new(&rig.export(), Some(rig.log_device()?), durability);
            let started = Served::start(&options)
                .map_err(|_| Error::Unable("the server refuses to start on what is left".into()))?;
            started.stop()?;
        }
        files_there(archive, &rig.export().join(dir))
    }

    /// Ends the server and gives back the disks.
    pub fn stop(mut self) -> Result<()> {
        self.rig.set_latency(Latency::default())?;
        match self.running {
            Running::Landfast(server) => server.stop(),
            Running::Ganesha(server) => {
                server.kill();
                Ok(())
            }
        }
    }
}

/// Files of the archive that are below `dir` with their contents. One with other contents counts as missing.
fn files_there(archive: &Archive, dir: &Path) -> Result<u64> {
    let mut there = 0;
    crate::tarball::read(archive.open()?, |member| {
        if let crate::tarball::Kind::File(data) = &member.kind {
            let path = dir.join(std::ffi::OsStr::from_bytes(&member.path));
            there += u64::from(std::fs::read(path).is_ok_and(|found| found == data[..]));
        }
        Ok(std::ops::ControlFlow::Continue(()))
    })?;
    Ok(there)
}

/// The terms of the equation on a new ext4 with these latencies, over the link.
pub fn terms(latency: Latency, link: &Link) -> Result<Terms> {
    let mut rig = Rig::new(&RigOptions { log_bytes: LOG_BYTES, ..RigOptions::default() })?;
    rig.format()?;
    rig.set_latency(latency)?;
    Terms::measure(&rig, link)
}

/// Local `tar -x` and sync on a new filesystem, as `setup` has it, without its server; `delay`: control words for the data disk.
pub fn local(setup: &Setup, latency: Latency, delay: &str, archive: &Archive) -> Result<Put> {
    let data_bytes = archive.disk_bytes().max(setup.fs.size_min());
    let rig = RigOptions { fs: setup.fs, data_bytes, log_bytes: LOG_BYTES, ..RigOptions::default() };
    let mut rig = Rig::new(&rig)?;
    rig.set_mount_options(setup.mount_options);
    rig.set_journal_on_log(setup.journal_on_log);
    rig.format()?;
    rig.set_latency(latency)?;
    rig.control_data(delay)?;
    let before = rig.stats()?;
    let took = crate::measure::local_untar(&archive.path(), &rig.export())?;
    let did = rig.stats()?.since(&before);
    rig.control_data("write_us=0 read_us=0")?;
    rig.set_latency(Latency::default())?;
    Ok(Put {
        files: archive.files,
        seconds: took.as_secs_f64(),
        rpcs: 0,
        data_flushes: did.data.flushes,
        log_flushes: did.log.flushes,
        waited: Flushes { data: did.data.flushes, log: did.log.flushes },
    })
}

/// The same in a tmpfs.
pub fn local_memory(archive: &Archive) -> Result<Put> {
    let dir = crate::machine::scratch_dir("landfast-tmpfs-")?;
    let memory = crate::mounts::Mount::tmpfs(&dir.path().join("tmpfs"))?;
    let took = crate::measure::local_untar(&archive.path(), memory.path())?;
    Ok(Put { files: archive.files, seconds: took.as_secs_f64(), ..Put::default() })
}

pub fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1000.0)
}

/// The tone of a side's series: green is Landfast with its log.
pub fn tone_of(setup: &Setup, n: usize) -> u8 {
    if setup.name == Setup::LOG.name { 0 } else { (n % 7 + 1) as u8 }
}

/// A link to nowhere, to be pointed at servers.
pub fn link(rtt_ms: f64) -> Result<Link> {
    Link::start(SocketAddr::from(([127, 0, 0, 1], 9)), ms(rtt_ms))
}
