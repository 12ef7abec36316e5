//! Two emulated disks with a volatile write cache and one power switch: a filesystem to export on one, the log on the other.
//!
//! Each is used through a loop device with direct I/O. The kernel's caches above are gone with the power: the filesystem is unmounted and the loop
//! devices are taken off while there is none.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::guest::chance::Chance;
use crate::guest::disk::Disk;
use crate::proc::{command, output};

/// Bytes of the disk with the filesystem, as XFS wants at least, and of the log's. They are in memory.
const DATA_BYTES: u64 = 512 << 20;
const LOG_BYTES: u64 = 64 << 20;

/// Chances in 1000 that a block survives a cut though it was not flushed; each cut has one of them.
const KEEP_PERMILLE: [u64; 4] = [0, 300, 700, 950];

/// How long a loop device may take to go when nobody uses it any more.
const LOOP_LIMIT: Duration = Duration::from_secs(20);

pub struct Disks {
    fs: String,
    dir: PathBuf,
    /// While there is power.
    attached: Option<Attached>,
    data: Disk,
    log: Disk,
}

/// The mounted filesystem, and the log's device.
struct Attached {
    data: Loop,
    log: Loop,
}

impl Disks {
    /// Starts both below `dir` and makes the filesystem, with an empty directory to export.
    pub fn new(binary: &Path, dir: &Path, fs: &str, seed: u64) -> Result<Disks, String> {
        let start = |name: &str, bytes, seed| {
            Disk::start(binary, &dir.join(name), bytes, &format!("flush_us=0 seed={seed}"))
        };
        let (data, log) =
            (start("data", DATA_BYTES, seed)?, start("log-disk", LOG_BYTES, seed.wrapping_add(1))?);
        let options: &[&str] = match fs {
            "ext4" => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"],
            _ => &["-q", "-f", "-K"],
        };
        output(command(&format!("mkfs.{fs}"), options).arg(data.image()))?;
        output(command("sync", ["--file-system"]).arg(data.image()))?;
        let mut disks = Disks { fs: fs.to_owned(), dir: dir.to_owned(), attached: None, data, log };
        let volume = disks.volume();
        fs::create_dir(&volume).map_err(|e| format!("{}: {e}", volume.display()))?;
        disks.attach()?;
        let export = disks.export();
        fs::create_dir(&export).map_err(|e| format!("{}: {e}", export.display()))?;
        disks.write_out()?;
        Ok(disks)
    }

    fn volume(&self) -> PathBuf {
        self.dir.join("volume")
    }

    /// What is to be exported.
    pub fn export(&self) -> PathBuf {
        self.volume().join("export")
    }

    /// The log's device, by a name that stays.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Has the filesystem write everything that it has in memory.
    pub fn write_out(&self) -> Result<(), String> {
        output(command("sync", ["--file-system"]).arg(self.export())).map(drop)
    }

    /// Takes the power from both at once. Of what was not flushed, chance decides what survives: blocks of 4 KiB or, of the log and of ext4,
    /// now and then single sectors. (XFS and btrfs take 4 KiB for one write.)
    pub fn cut(&self, chance: &mut Chance) -> Result<(), String> {
        let keep = KEEP_PERMILLE[chance.below(KEEP_PERMILLE.len() as u64) as usize];
        let torn = chance.below(2);
        let torn_data = if self.fs == "ext4" { torn } else { 0 };
        self.data.control(&format!("keep_permille={keep} torn={torn_data}"))?;
        self.log.control(&format!("keep_permille={keep} torn={torn}"))?;
        std::thread::scope(|scope| {
            let log = scope.spawn(|| self.log.control("cut"));
            let data = self.data.control("cut");
            log.join().map_err(|_| "the cut of the log's disk panicked".to_owned())?.and(data)
        })
    }

    /// Forgets all that the kernel has of them, puts the power on, and mounts the filesystem. Nobody may use them any more.
    pub fn power_on(&mut self) -> Result<(), String> {
        self.detach()?;
        self.data.control("on")?;
        self.log.control("on")?;
        self.attach()
    }

    /// Blocks that all cuts have taken away.
    pub fn lost_blocks(&self) -> Result<u64, String> {
        Ok(self.data.count("lost_blocks")? + self.log.count("lost_blocks")?)
    }

    fn attach(&mut self) -> Result<(), String> {
        let (data, log) = (Loop::attach(&self.data.image())?, Loop::attach(&self.log.image())?);
        let mount = || {
            output(command("mount", ["-t", &self.fs, "-o", "noatime"]).arg(&data.device).arg(self.volume()))
        };
        // ext4's superblock lies across two sectors: torn, it is repaired as at boot. A status of 1 says that all was corrected.
        if let Err(why) = mount() {
            if self.fs != "ext4" {
                return Err(why);
            }
            let repair = r#"PATH=$PATH:/usr/sbin:/sbin; e2fsck -f -y "$0"; test $? -le 1"#;
            output(command("sh", ["-c", repair]).arg(&data.device))?;
            mount()?;
        }
        // At once, so that there is a log by this name at all times.
        let (new, name) = (self.dir.join("log-new"), self.log());
        symlink(&log.device, &new)
            .and_then(|()| fs::rename(&new, &name))
            .map_err(|e| format!("{}: {e}", name.display()))?;
        self.attached = Some(Attached { data, log });
        Ok(())
    }

    fn detach(&mut self) -> Result<(), String> {
        let Some(Attached { data, log }) = self.attached.take() else { return Ok(()) };
        // Not lazily: what would stay in memory must not come onto a disk that has power again.
        output(&mut command("umount", [self.volume()]))?;
        data.detach()?;
        log.detach()
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        if self.attached.take().is_some() {
            // Before the disks go; if somebody still uses it, the namespace's end does it.
            let _ = output(command("umount", ["--lazy"]).arg(self.volume()));
        }
    }
}

/// A loop device with direct I/O, so that its disk sees each write and flush as it comes. It goes when its last user does, of which this
/// value is one.
struct Loop {
    device: PathBuf,
    open: File,
}

impl Loop {
    fn attach(image: &Path) -> Result<Loop, String> {
        let name = output(command("losetup", ["--find", "--show", "--direct-io=on"]).arg(image))?;
        let device = PathBuf::from(name.trim());
        let open = File::open(&device).map_err(|e| format!("{}: {e}", device.display()))?;
        // In use, it is only marked to go at its last close.
        output(command("losetup", ["--detach"]).arg(&device))?;
        Ok(Loop { device, open })
    }

    /// Waits until nobody uses it any more.
    fn detach(self) -> Result<(), String> {
        let name = self.device.file_name().unwrap_or_default().to_string_lossy().into_owned();
        drop(self.open);
        let backing = Path::new("/sys/block").join(&name).join("loop/backing_file");
        let image_of = || fs::read_to_string(&backing).ok();
        let ours = image_of();
        let deadline = Instant::now() + LOOP_LIMIT;
        // Another process may take the device as soon as it is free.
        while ours.is_some() && image_of() == ours {
            if Instant::now() > deadline {
                return Err(format!("{}: somebody still uses it", self.device.display()));
            }
            // The kernel tells nobody.
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}
