//! A filesystem in a file that can lose power.
//!
//! It is mounted in a mount namespace of the test's own thread: were it in the common one, any process that takes a
//! copy of that (`unshare -m`) would keep it alive after it was unmounted. One test at a time, since a child that another
//! test has just forked keeps descriptors open for a moment.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::thread::UnshareFlags;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Files that take room.
const BALLOONS: usize = 3;

/// Which filesystem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kernel {
    Ext4,
    Xfs,
    Btrfs,
}

fn sh(command: &str, args: &[&str]) -> bool {
    match Command::new(command).args(args).output() {
        Ok(out) if out.status.success() => true,
        Ok(out) => {
            println!("{command} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
            false
        }
        Err(e) => {
            println!("{command}: {e}");
            false
        }
    }
}

const BYTES: u64 = 320 << 20;

/// Gives a loop device's file another size; the driver refuses what is behind its end.
#[allow(dead_code)] // Not every test has use for it.
pub fn resize_loop(backing: &Path, device: &Path, bytes: u64) {
    std::fs::File::options().write(true).open(backing).and_then(|f| f.set_len(bytes)).expect("a new size");
    assert!(sh("losetup", &["-c", device.to_str().unwrap_or("")]), "the device sees it");
}

/// A filesystem in a file, mounted; unmounted when dropped.
pub struct Image {
    pub kernel: Kernel,
    file: PathBuf,
    mount: PathBuf,
    mounted: bool,
    options: String,
    device: String,
    dir: tempfile::TempDir,
    _only: MutexGuard<'static, ()>,
}

impl Image {
    /// `None`, with a line that says so, where that cannot be done.
    pub fn new(kernel: Kernel) -> Option<Image> {
        Image::with(kernel, &[], "noatime")
    }

    /// The same, made with more arguments of mkfs and mounted with other options.
    pub fn with(kernel: Kernel, mkfs: &[&str], options: &str) -> Option<Image> {
        let image = Image::made(kernel, mkfs, options);
        if image.is_none() {
            println!("skipped: needs root, loop devices and mkfs for {kernel:?}");
        }
        image
    }

    fn made(kernel: Kernel, mkfs: &[&str], options: &str) -> Option<Image> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let only = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: only this thread's view of mounts becomes its own; descriptors are not touched.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.ok()?;
        if !sh("mount", &["--make-rprivate", "/"]) {
            return None;
        }
        let dir = tempfile::tempdir().ok()?;
        let (file, mount) = (dir.path().join("image"), dir.path().join("mnt"));
        std::fs::create_dir(&mount).ok()?;
        std::fs::File::create(&file).and_then(|f| f.set_len(BYTES)).ok()?;
        let path = file.to_str()?;
        let made = match kernel {
            Kernel::Ext4 => sh("mkfs.ext4", &[&["-q", "-F"], mkfs, &[path]].concat()),
            Kernel::Xfs => sh("mkfs.xfs", &[&["-q", "-f"], mkfs, &[path]].concat()),
            Kernel::Btrfs => sh("mkfs.btrfs", &[&["-q", "-f"], mkfs, &[path]].concat()),
        };
        let mut image = Image {
            kernel,
            file,
            mount,
            mounted: false,
            options: options.to_owned(),
            device: String::new(),
            dir,
            _only: only,
        };
        (made && image.mount()).then_some(image)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// A directory beside it that keeps its power.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn beside(&self) -> &Path {
        self.dir.path()
    }

    /// A limit for all files of a btrfs. (Limits of users need a kernel with CONFIG_QUOTA; the error is the same.) False, with a
    /// line that says so, where that cannot be had.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn limited(&self, bytes: &str) -> bool {
        let run = |args: &[&str]| sh("btrfs", args);
        let path = self.path().to_str().expect("a path");
        // Until what is there has been counted, which enabling begins, a limit is none.
        let done = run(&["quota", "enable", path])
            && run(&["quota", "rescan", "-w", path])
            && run(&["qgroup", "limit", bytes, path]);
        if !done {
            println!("skipped: needs btrfs with quotas");
        }
        done
    }

    /// Ends that. (The limit itself cannot be raised where it is used up to the last.)
    #[allow(dead_code)] // Not every test has use for it.
    pub fn unlimited(&self) -> bool {
        sh("btrfs", &["quota", "disable", self.path().to_str().expect("a path")])
    }

    /// Takes all that is free.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn fill(&self) {
        use std::os::unix::fs::FileExt;
        let dir = std::fs::File::open(self.path()).expect("the mount point");
        // Some filesystems find a little more room once they have written what they held back.
        for round in 0..BALLOONS {
            let Ok(balloon) = std::fs::File::create(self.balloon(round)) else { break };
            // Most of it at once; where there is a quota, that is more than may be.
            let free = rustix::fs::statvfs(self.path()).expect("statvfs");
            let most = (free.f_bavail * free.f_frsize).saturating_sub(16 << 20);
            let taken = most > 0
                && rustix::fs::fallocate(&balloon, rustix::fs::FallocateFlags::empty(), 0, most).is_ok();
            let mut at = if taken { most } else { 0 };
            for piece in [1 << 20, 4096] {
                let bytes = vec![1; piece];
                while balloon.write_all_at(&bytes, at).is_ok() {
                    at += piece as u64;
                }
            }
            let _ = balloon.sync_all();
            rustix::fs::syncfs(&dir).expect("syncfs");
        }
    }

    /// Gives back what [`Image::fill`] has taken.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn free(&self) {
        for round in 0..BALLOONS {
            // A full one may have had no room for the name of the next.
            let _ = std::fs::remove_file(self.balloon(round));
        }
        let dir = std::fs::File::open(self.path()).expect("the mount point");
        rustix::fs::syncfs(dir).expect("syncfs");
    }

    fn balloon(&self, round: usize) -> PathBuf {
        self.path().join(format!("balloon{round}"))
    }

    /// Always on a fresh loop device: `mount -o loop` may take one again that is about to go. Tried a few times, since
    /// other tests look for free loop devices, too.
    fn mount(&mut self) -> bool {
        for _ in 0..5 {
            let attach = Command::new("losetup").args(["--find", "--show"]).arg(&self.file).output();
            let Some(device) = attach.ok().filter(|o| o.status.success()) else { continue };
            self.device = String::from_utf8_lossy(&device.stdout).trim().to_owned();
            self.mounted =
                sh("mount", &["-o", &self.options, &self.device, self.mount.to_str().unwrap_or("")]);
            if self.mounted {
                return true;
            }
            self.unmount();
        }
        false
    }

    fn unmount(&mut self) {
        if self.mounted {
            self.mounted = !sh("umount", &[self.mount.to_str().unwrap_or("")]);
        }
        if !self.device.is_empty() {
            sh("losetup", &["--detach", &self.device]);
            self.device.clear();
        }
    }

    /// The power fails: what was not flushed is lost, and nothing more gets through. Those who have files open on it
    /// must let go before [`Image::power_on`].
    pub fn power_off(&self) {
        let mount = self.mount.to_str().unwrap_or("");
        let copy = self.file.with_extension("copy");
        let (file, copy) = (self.file.to_str().unwrap_or(""), copy.to_str().unwrap_or(""));
        match self.kernel {
            Kernel::Ext4 | Kernel::Xfs => assert!(sh("xfs_io", &["-x", "-c", "shutdown", mount]), "shutdown"),
            Kernel::Btrfs => assert!(sh("cp", &["--sparse=always", file, copy]), "copy of the image"),
        }
    }

    /// The power comes back.
    pub fn power_on(&mut self) {
        self.unmount();
        assert!(!self.mounted, "unmount");
        if self.kernel == Kernel::Btrfs {
            std::fs::rename(self.file.with_extension("copy"), &self.file).expect("the copy in place");
        }
        assert!(self.mount(), "mount after the crash");
    }

    /// Mounts it again after somebody has unmounted it.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn remount(&mut self) {
        self.mounted = false;
        self.unmount();
        assert!(self.mount(), "mount");
    }

    /// Keeps a copy of all that is on it, which must not be in use.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn keep(&mut self) {
        self.unmount();
        std::fs::copy(&self.file, self.file.with_extension("kept")).expect("a copy");
        assert!(self.mount(), "mount");
    }

    /// Puts the copy back.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn put_back(&mut self) {
        self.unmount();
        std::fs::rename(self.file.with_extension("kept"), &self.file).expect("the copy in place");
        assert!(self.mount(), "mount");
    }

    /// Keeps a copy of all that is on it under a name, to be put back any number of times. It must not be in use.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn save_as(&mut self, name: &str) {
        self.unmount();
        let copy = self.file.with_extension(name);
        let (file, copy) = (self.file.to_str().unwrap_or(""), copy.to_str().unwrap_or(""));
        assert!(sh("cp", &["--sparse=always", file, copy]), "a copy");
        assert!(self.mount(), "mount");
    }

    /// Puts such a copy in the place of what is there, which must not be in use.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn load(&mut self, name: &str) {
        self.unmount();
        let copy = self.file.with_extension(name);
        let (file, copy) = (self.file.to_str().unwrap_or(""), copy.to_str().unwrap_or(""));
        assert!(sh("cp", &["--sparse=always", copy, file]), "the copy in place");
        assert!(self.mount(), "mount");
    }

    /// Keeps a copy of what the disk and these files beside it have at one moment, while all of it is in use: it is made again until
    /// nothing was written meanwhile. For [`Image::load_when_free`].
    #[allow(dead_code)] // Not every test has use for it.
    pub fn cut_as(&self, name: &str, beside: &[&Path]) {
        let writes = || {
            let device = self.device.rsplit('/').next().unwrap_or("");
            let stat =
                std::fs::read_to_string(format!("/sys/block/{device}/stat")).expect("the disk's figures");
            let numbers: Vec<u64> = stat.split_whitespace().filter_map(|n| n.parse().ok()).collect();
            // Writes and flushes that have ended, and what is under way.
            let ended = (numbers[4], numbers.get(15).copied());
            let at = |path: &&Path| path.metadata().and_then(|m| m.modified()).expect("a file");
            (ended, numbers[8], beside.iter().map(at).collect::<Vec<_>>())
        };
        loop {
            let before = writes();
            for path in [&*self.file].iter().chain(beside) {
                let copy = path.with_extension(name);
                let (path, copy) = (path.to_str().unwrap_or(""), copy.to_str().unwrap_or(""));
                assert!(sh("cp", &["--sparse=always", path, copy]), "a copy");
            }
            if before.1 == 0 && before == writes() {
                return;
            }
        }
    }

    /// Puts such a copy in the place of what is there, once nobody has it in use any more.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn load_when_free(&mut self, name: &str, beside: &[&Path]) {
        let begin = std::time::Instant::now();
        while self.mounted && begin.elapsed() < std::time::Duration::from_secs(60) {
            self.unmount();
        }
        assert!(!self.mounted, "unmount");
        for path in [&*self.file].iter().chain(beside) {
            std::fs::rename(path.with_extension(name), path).expect("the copy in place");
        }
        assert!(self.mount(), "mount after the cut");
    }

    /// Whether the disk fails all but its first block. What is on it is there again when it fails no longer.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn breaks(&self, broken: bool) {
        let aside = self.file.with_extension("aside");
        let (from, to) = if broken { (&self.file, &aside) } else { (&aside, &self.file) };
        let path = |path: &Path| path.to_str().expect("a path").to_owned();
        // Into the file that the device has open. (Nothing could be written to it meanwhile.)
        assert!(sh("cp", &["--sparse=always", &path(from), &path(to)]), "a copy of the image");
        resize_loop(&self.file, Path::new(&self.device), if broken { 4096 } else { BYTES });
    }

    /// Its block device.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Brings changes of metadata so far to disk; on ext4 and XFS no data.
    pub fn commit(&self) {
        let path = self.mount.join("elsewhere");
        if self.kernel == Kernel::Btrfs {
            let dir = std::fs::File::open(&self.mount).expect("the mount point");
            rustix::fs::syncfs(dir).expect("syncfs");
            return;
        }
        std::fs::write(&path, b"x").expect("a byte");
        std::fs::File::open(&path).and_then(|f| f.sync_all()).expect("fsync");
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        self.unmount();
    }
}
