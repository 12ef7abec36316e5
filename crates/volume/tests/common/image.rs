//! A filesystem in a file that can lose power.
//!
//! It is mounted in a mount namespace of the test's own thread. In the common namespace, any process that copies the namespace
//! (`unshare -m`) would keep the mount alive after it was unmounted. One test at a time, since a child that another test has just
//! forked keeps descriptors open for a moment.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::thread::UnshareFlags;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Files that take up space.
const BALLOONS: usize = 3;

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

/// Resizes a loop device's file; the driver refuses access beyond its end.
#[allow(dead_code)] // Not every test has use for it.
pub fn resize_loop(backing: &Path, device: &Path, bytes: u64) {
    std::fs::File::options().write(true).open(backing).and_then(|f| f.set_len(bytes)).expect("a new size");
    assert!(sh("losetup", &["-c", device.to_str().unwrap_or("")]), "the device sees it");
}

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
    /// `None`, with a message, where that is impossible.
    pub fn new(kernel: Kernel) -> Option<Image> {
        Image::with(kernel, &[], "noatime")
    }

    /// The same with additional mkfs arguments and other mount options.
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

    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// A directory beside it that does not lose power.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn beside(&self) -> &Path {
        self.dir.path()
    }

    /// Sets a limit for all files of a btrfs. (Limits of users need a kernel with CONFIG_QUOTA; the error is the same.) Returns
    /// false, with a message, where that is impossible.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn limited(&self, bytes: &str) -> bool {
        let run = |args: &[&str]| sh("btrfs", args);
        let path = self.path().to_str().expect("a path");
        // A limit has no effect until the present contents are counted, which enabling starts.
        let done = run(&["quota", "enable", path])
            && run(&["quota", "rescan", "-w", path])
            && run(&["qgroup", "limit", bytes, path]);
        if !done {
            println!("skipped: needs btrfs with quotas");
        }
        done
    }

    /// Removes the limit. (A fully used limit cannot be raised.)
    #[allow(dead_code)] // Not every test has use for it.
    pub fn unlimited(&self) -> bool {
        sh("btrfs", &["quota", "disable", self.path().to_str().expect("a path")])
    }

    /// Uses all free space.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn fill(&self) {
        use std::os::unix::fs::FileExt;
        let dir = std::fs::File::open(self.path()).expect("the mount point");
        // Some filesystems find a little more space once they have written what they held back.
        for round in 0..BALLOONS {
            let Ok(balloon) = std::fs::File::create(self.balloon(round)) else { break };
            // Most of it at once; a quota allows less than that.
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

    /// Frees the space that [`Image::fill`] has used.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn free(&self) {
        for round in 0..BALLOONS {
            // A full filesystem may have had no space for the next name.
            let _ = std::fs::remove_file(self.balloon(round));
        }
        let dir = std::fs::File::open(self.path()).expect("the mount point");
        rustix::fs::syncfs(dir).expect("syncfs");
    }

    fn balloon(&self, round: usize) -> PathBuf {
        self.path().join(format!("balloon{round}"))
    }

    /// Always on a fresh loop device, since `mount -o loop` may reuse one that is about to go. Tries several times, since other tests
    /// look for free loop devices, too.
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

    /// Cuts the power: unflushed data is lost, and nothing more gets through. Whoever has files open on it must close them
    /// before [`Image::power_on`].
    pub fn power_off(&self) {
        let mount = self.mount.to_str().unwrap_or("");
        let copy = self.file.with_extension("copy");
        let (file, copy) = (self.file.to_str().unwrap_or(""), copy.to_str().unwrap_or(""));
        match self.kernel {
            Kernel::Ext4 | Kernel::Xfs => assert!(sh("xfs_io", &["-x", "-c", "shutdown", mount]), "shutdown"),
            Kernel::Btrfs => assert!(sh("cp", &["--sparse=always", file, copy]), "copy of the image"),
        }
    }

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

    /// Keeps a copy of its contents; it must not be in use.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn keep(&mut self) {
        self.unmount();
        std::fs::copy(&self.file, self.file.with_extension("kept")).expect("a copy");
        assert!(self.mount(), "mount");
    }

    #[allow(dead_code)] // Not every test has use for it.
    pub fn put_back(&mut self) {
        self.unmount();
        std::fs::rename(self.file.with_extension("kept"), &self.file).expect("the copy in place");
        assert!(self.mount(), "mount");
    }

    /// Keeps a copy of its contents under a name, to be restored any number of times. It must not be in use.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn save_as(&mut self, name: &str) {
        self.unmount();
        let copy = self.file.with_extension(name);
        let (file, copy) = (self.file.to_str().unwrap_or(""), copy.to_str().unwrap_or(""));
        assert!(sh("cp", &["--sparse=always", file, copy]), "a copy");
        assert!(self.mount(), "mount");
    }

    /// Restores such a copy; the image must not be in use.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn load(&mut self, name: &str) {
        self.unmount();
        let copy = self.file.with_extension(name);
        let (file, copy) = (self.file.to_str().unwrap_or(""), copy.to_str().unwrap_or(""));
        assert!(sh("cp", &["--sparse=always", copy, file]), "the copy in place");
        assert!(self.mount(), "mount");
    }

    /// Keeps a copy of the disk and of these files beside it at one moment, while all of it is in use. Repeats the copy until
    /// nothing was written meanwhile. For [`Image::load_when_free`].
    #[allow(dead_code)] // Not every test has use for it.
    pub fn cut_as(&self, name: &str, beside: &[&Path]) {
        let writes = || {
            let device = self.device.rsplit('/').next().unwrap_or("");
            let stat =
                std::fs::read_to_string(format!("/sys/block/{device}/stat")).expect("the disk's figures");
            let numbers: Vec<u64> = stat.split_whitespace().filter_map(|n| n.parse().ok()).collect();
            // Completed writes and flushes, and those in flight.
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

    /// Restores such a copy once nobody uses the image any more.
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

    /// Whether the disk fails all accesses except to its first block. Its contents are there again when it stops failing.
    #[allow(dead_code)] // Not every test has use for it.
    pub fn breaks(&self, broken: bool) {
        let aside = self.file.with_extension("aside");
        let (from, to) = if broken { (&self.file, &aside) } else { (&aside, &self.file) };
        let path = |path: &Path| path.to_str().expect("a path").to_owned();
        // Writes into the file that the device has open. (Nothing else could be written to it meanwhile.)
        assert!(sh("cp", &["--sparse=always", &path(from), &path(to)]), "a copy of the image");
        resize_loop(&self.file, Path::new(&self.device), if broken { 4096 } else { BYTES });
    }

    #[allow(dead_code)] // Not every test has use for it.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Brings all metadata changes so far to disk; on ext4 and XFS no data.
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
