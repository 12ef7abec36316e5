//! A volume and a log on emulated disks, for a server of an experiment.
//!
//! The data disk carries a filesystem with one directory `export`; the log is the raw second disk.
//! Latencies are off while filesystems are made and mounted, so that only the measured work pays.

use crate::disk::{DiskOptions, DiskProcess, DiskStats};
use crate::error::{Context, Error, Result};
use crate::limits::{SPIN, SPIN_BELOW};
use crate::loopdev::LoopDevice;
use crate::mounts::{Filesystem, Mount};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct RigOptions {
    pub fs: Filesystem,
    /// Size of the data disk in bytes; memory is taken as it is written, twice.
    pub data_bytes: u64,
    /// Size of the log disk in bytes.
    pub log_bytes: u64,
    /// A second log disk, for a mirror.
    pub mirror: bool,
    /// Seed of what survives a power cut.
    pub seed: u64,
}

impl Default for RigOptions {
    /// ext4 on 2 GiB, a log of 64 MiB.
    fn default() -> Self {
        RigOptions { fs: Filesystem::Ext4, data_bytes: 2 << 30, log_bytes: 64 << 20, mirror: false, seed: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    pub data_flush: Duration,
    pub log_flush: Duration,
}

/// Two disks and what is on them. Dropping it takes all of it away.
#[derive(Debug)]
pub struct Rig {
    // The order of the fields is the order in which they go.
    mount: Option<Mount>,
    data_dev: Option<LoopDevice>,
    log_dev: Option<LoopDevice>,
    mirror_dev: Option<LoopDevice>,
    data: DiskProcess,
    log: DiskProcess,
    mirror: Option<DiskProcess>,
    dir: tempfile::TempDir,
    options: RigOptions,
    /// How often the disks were replaced by new ones.
    generation: u64,
    latency: Latency,
    mount_options: String,
    /// The filesystem's journal lies on the log disk.
    journal_on_log: bool,
    /// The half of the log that has no power even when the others have.
    dead: Option<Half>,
}

/// A half of a log on two disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    First,
    Second,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RigStats {
    pub data: DiskStats,
    pub log: DiskStats,
}

impl RigStats {
    pub fn since(&self, before: &RigStats) -> RigStats {
        RigStats { data: self.data.since(&before.data), log: self.log.since(&before.log) }
    }
}

/// Blocks of a disk that are read at a time to find one.
const FIND_BLOCKS: usize = 256;

/// The control words for a flush latency: short ones are busy-waited at their end.
fn flush_words(flush: Duration) -> String {
    let spin = if flush.is_zero() || flush >= SPIN_BELOW { Duration::ZERO } else { SPIN };
    format!("flush_us={} spin_us={}", flush.as_secs_f64() * 1e6, spin.as_micros())
}

/// Whether this process can make a rig.
/// Errors: [`Error::Unable`] with what is missing.
pub fn possible() -> Result<()> {
    crate::machine::needs_root()?;
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(device).exists() {
            return Err(Error::Unable(format!("needs {device}")));
        }
    }
    Ok(())
}

impl Rig {
    /// Starts both disks, without a filesystem yet. Call it on a thread of
    /// [`crate::namespace::run_private`].
    pub fn new(options: &RigOptions) -> Result<Self> {
        possible()?;
        let dir = crate::machine::scratch_dir("landfast-lab-")?;
        let (data, log, mirror) = start_disks(dir.path(), options, 0)?;
        Ok(Rig {
            mount: None,
            data_dev: None,
            log_dev: None,
            mirror_dev: None,
            data,
            log,
            mirror,
            dir,
            options: options.clone(),
            generation: 0,
            latency: Latency::default(),
            mount_options: String::new(),
            journal_on_log: false,
            dead: None,
        })
    }

    /// Options for the data disk's filesystem, as `mount -o` takes them, from the next mount on.
    pub fn set_mount_options(&mut self, options: &str) {
        options.clone_into(&mut self.mount_options);
    }

    /// From the next [`Rig::format`] on an ext4's journal lies on the log disk, which then is no server's log.
    pub fn set_journal_on_log(&mut self, there: bool) {
        self.journal_on_log = there;
    }

    /// Replaces both disks by new, empty ones (with counters at zero), makes a filesystem with an
    /// empty `export` directory; without latency until [`Rig::set_latency`].
    pub fn format(&mut self) -> Result<()> {
        self.detach()?;
        self.generation += 1;
        (self.data, self.log, self.mirror) = start_disks(self.dir.path(), &self.options, self.generation)?;
        self.dead = None;
        self.latency = Latency::default();
        let data_dev = self.attach_data()?;
        self.attach_log()?;
        match self.journal_on_log {
            true => self.options.fs.make_with_journal(&data_dev, self.log_device()?)?,
            false => self.options.fs.make(&data_dev)?,
        }
        self.mount()?;
        let export = self.export();
        std::fs::create_dir(&export).context(|| format!("create {}", export.display()))?;
        crate::mounts::syncfs(&export)
    }

    fn attach_data(&mut self) -> Result<PathBuf> {
        let dev = match self.data_dev.take() {
            Some(dev) => dev,
            None => LoopDevice::attach(&self.data.image())?,
        };
        Ok(self.data_dev.insert(dev).path().to_owned())
    }

    fn attach_log(&mut self) -> Result<()> {
        if self.log_dev.is_none() {
            self.log_dev = Some(LoopDevice::attach(&self.log.image())?);
        }
        if let (None, Some(mirror)) = (&self.mirror_dev, &self.mirror) {
            self.mirror_dev = Some(LoopDevice::attach(&mirror.image())?);
        }
        Ok(())
    }

    /// Attaches the loop devices and mounts the filesystem (its journal is replayed).
    pub fn mount(&mut self) -> Result<()> {
        let dev = self.attach_data()?;
        self.attach_log()?;
        if self.mount.is_none() {
            self.mount = Some(Mount::with(
                &dev,
                &self.dir.path().join("volume"),
                self.options.fs,
                &self.mount_options,
            )?);
        }
        Ok(())
    }

    /// As [`Rig::mount`]; a filesystem whose superblock was torn in a power cut (ext4's lies across two sectors) is
    /// repaired first. Returns whether it was.
    pub fn mount_or_repair(&mut self) -> Result<bool> {
        let Err(error) = self.mount() else { return Ok(false) };
        tracing::warn!("{error}");
        let dev = self.attach_data()?;
        self.options.fs.repair(&dev)?;
        self.mount().map(|()| true)
    }

    /// Unmounts the filesystem; the loop devices stay.
    pub fn unmount(&mut self) -> Result<()> {
        self.mount.take().map_or(Ok(()), Mount::unmount)
    }

    /// Unmounts and takes the loop devices off.
    pub fn detach(&mut self) -> Result<()> {
        let done = self.unmount();
        self.data_dev = None;
        self.log_dev = None;
        self.mirror_dev = None;
        done
    }

    pub fn fsck(&mut self) -> Result<()> {
        self.unmount()?;
        let dev = self.attach_data()?;
        self.options.fs.check(&dev)
    }

    /// Repairs an unmounted filesystem whose disk has failed. ext4 marks such a filesystem and does not free files that were removed
    /// while open until its checker has run. The others need nothing.
    /// Errors: No checker, or damage that it cannot mend.
    pub fn preen(&mut self) -> Result<()> {
        self.unmount()?;
        let dev = self.attach_data()?;
        if self.options.fs != Filesystem::Ext4 {
            return Ok(());
        }
        let mut check = std::process::Command::new("e2fsck");
        match crate::mounts::run(check.arg("-y").arg(dev), "e2fsprogs") {
            // 1: mended.
            Err(Error::Tool { status, .. }) if status == "exit status: 1" => Ok(()),
            done => done.map(drop),
        }
    }

    /// Sets the flush latencies of both disks.
    pub fn set_latency(&mut self, latency: Latency) -> Result<()> {
        self.data.control(&flush_words(latency.data_flush))?;
        for half in self.halves() {
            half.control(&flush_words(latency.log_flush))?;
        }
        self.latency = latency;
        Ok(())
    }

    /// Runs `work` without latencies.
    pub fn without_latency<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let latency = self.latency;
        self.set_latency(Latency::default())?;
        let done = work(self);
        self.set_latency(latency)?;
        done
    }

    fn halves(&self) -> impl Iterator<Item = &DiskProcess> {
        [Some(&self.log), self.mirror.as_ref()].into_iter().flatten()
    }

    /// Control words for all disks.
    pub fn control(&self, words: &str) -> Result<()> {
        self.data.control(words)?;
        self.halves().try_for_each(|half| half.control(words))
    }

    /// Control words for the data disk alone.
    pub fn control_data(&self, words: &str) -> Result<()> {
        self.data.control(words)
    }

    /// The offset of a block with these contents on the data disk, in bytes. Blocks begin at multiples of their length.
    pub fn find_data(&self, block: &[u8]) -> Result<Option<u64>> {
        let image = self.data.image();
        let find = || -> std::io::Result<Option<u64>> {
            let mut disk = std::fs::File::open(&image)?;
            let piece_bytes = (block.len().max(1) * FIND_BLOCKS) as u64;
            let mut at = 0;
            loop {
                let mut piece = Vec::new();
                let got = disk.by_ref().take(piece_bytes).read_to_end(&mut piece)?;
                if let Some(n) = piece.chunks(block.len().max(1)).position(|b| b == block) {
                    return Ok(Some(at + (n * block.len()) as u64));
                }
                if got == 0 {
                    return Ok(None);
                }
                at += got as u64;
            }
        };
        find().context(|| format!("read {}", image.display()))
    }

    pub fn control_log(&self, words: &str) -> Result<()> {
        self.log.control(words)
    }

    pub fn cut(&self) -> Result<()> {
        std::thread::scope(|s| {
            let halves: Vec<_> = self.halves().map(|half| s.spawn(|| half.cut())).collect();
            let mut done = self.data.cut();
            for half in halves {
                let gone = |_| Error::Child { role: "disk", what: "panic".into() };
                done = half.join().map_err(gone)?.and(done);
            }
            done
        })
    }

    /// Unmounts what is on disks without power, and puts the power on.
    pub fn power_on(&mut self) -> Result<()> {
        // The filesystem could not write its last words; that is what a power cut is.
        self.mount = None;
        self.data_dev = None;
        self.log_dev = None;
        self.mirror_dev = None;
        self.data.power_on()?;
        if self.dead != Some(Half::First) {
            self.log.power_on()?;
        }
        match &self.mirror {
            Some(mirror) if self.dead != Some(Half::Second) => mirror.power_on(),
            _ => Ok(()),
        }
    }

    /// From the next [`Rig::power_on`] on this half of the log has no power; `None`: both have.
    pub fn set_dead_half(&mut self, half: Option<Half>) {
        self.dead = half;
    }

    /// Puts a new, empty disk in the place of one half of the log.
    pub fn replace_half(&mut self, half: Half) -> Result<()> {
        self.generation += 1;
        let name = format!("log-disk-new-{}", self.generation);
        let disk = start_disk(self.dir.path(), &name, self.options.log_bytes, self.generation)?;
        match half {
            Half::First => {
                self.log_dev = None;
                self.log = disk;
            }
            Half::Second => {
                self.mirror_dev = None;
                self.mirror = Some(disk);
            }
        }
        self.dead = self.dead.filter(|dead| *dead != half);
        self.attach_log()
    }

    pub fn export(&self) -> PathBuf {
        self.dir.path().join("volume").join("export")
    }

    pub fn log_device(&self) -> Result<&Path> {
        let dev = self.log_dev.as_ref().map(LoopDevice::path);
        dev.ok_or_else(|| Error::Unable("the log disk is not attached".into()))
    }

    /// The second log disk's block device, where there is one.
    pub fn mirror_device(&self) -> Option<&Path> {
        self.mirror_dev.as_ref().map(LoopDevice::path)
    }

    /// A directory for other files of the run, on neither disk.
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    pub fn stats(&self) -> Result<RigStats> {
        Ok(RigStats { data: self.data.stats()?, log: self.log.stats()? })
    }

    pub fn filesystem(&self) -> Filesystem {
        self.options.fs
    }
}

/// Starts the data disk and the disks of the log below `dir`.
fn start_disks(
    dir: &Path,
    options: &RigOptions,
    generation: u64,
) -> Result<(DiskProcess, DiskProcess, Option<DiskProcess>)> {
    let disk =
        |name: &str, size: u64, seed: u64| start_disk(dir, &format!("{name}-{generation}"), size, seed);
    let seed = options.seed.wrapping_add(generation.wrapping_mul(2));
    let data = disk("data-disk", options.data_bytes.max(options.fs.size_min()), seed)?;
    let log = disk("log-disk", options.log_bytes, seed.wrapping_add(1))?;
    let mirror = options.mirror.then(|| disk("mirror-disk", options.log_bytes, !seed)).transpose()?;
    Ok((data, log, mirror))
}

fn start_disk(dir: &Path, name: &str, size: u64, seed: u64) -> Result<DiskProcess> {
    DiskProcess::start(DiskOptions {
        mountpoint: dir.join(name),
        size: size.next_multiple_of(4096),
        settings: format!("seed={seed}"),
        ..DiskOptions::default()
    })
}
