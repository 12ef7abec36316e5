//! Filesystems that cannot keep what a flush promises are refused, for the directory and for the log; others are accepted.
//!
//! Uses real mounts, in a mount namespace of the test's own thread.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::*;
use landfast_intentlog::device::below::{Below, Gravity};
use landfast_volume::*;
use rustix::thread::UnshareFlags;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn sh(command: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(command).args(args).output().ok()?;
    if !out.status.success() {
        println!("{command} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        return None;
    }
    Some(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// A filesystem in a file on a loop device, mounted.
struct Mounted {
    dir: tempfile::TempDir,
    device: String,
    _only: MutexGuard<'static, ()>,
}

impl Mounted {
    /// `None`, with a message, where that is impossible.
    fn new(mkfs: &[&str], options: &str) -> Option<Mounted> {
        let only = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: only this thread's view of mounts becomes its own; descriptors are not touched.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.ok()?;
        sh("mount", &["--make-rprivate", "/"])?;
        let dir = tempfile::tempdir().ok()?;
        let (image, mount) = (dir.path().join("image"), dir.path().join("mnt"));
        fs::create_dir(&mount).ok()?;
        fs::File::create(&image).and_then(|f| f.set_len(320 << 20)).ok()?;
        let (image, mount) = (image.to_str()?.to_owned(), mount.to_str()?.to_owned());
        let (program, args) = mkfs.split_first()?;
        sh(program, &[args, &[image.as_str()]].concat())?;
        let device = sh("losetup", &["--find", "--show", &image])?;
        let mounted = Mounted { dir, device, _only: only };
        sh("mount", &["-o", options, &mounted.device, &mount])?;
        fs::create_dir(mounted.path().join("dir")).ok()?;
        Some(mounted)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Opens a volume with this as the filesystem of the directory, which is checked first, and of the log.
    fn as_directory(&self, durability: Durability) -> Result<(Volume, RecoveryReport), OpenError> {
        let _ = fs::remove_file(self.path().join("log"));
        let options = OpenOptions { accept_weak: false, ..options(&self.path(), &self.path(), durability) };
        let opened = Volume::open(options);
        if let Ok((volume, _)) = &opened {
            volume.start(Arc::new(NoNotes)).expect("start");
            volume.shutdown().expect("a clean stop");
        }
        opened
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        sh("umount", &[self.path().to_str().unwrap_or_default()]);
        sh("losetup", &["--detach", &self.device]);
    }
}

const EXT4: &[&str] = &["mkfs.ext4", "-q", "-F"];
const XFS: &[&str] = &["mkfs.xfs", "-q", "-f"];
const BTRFS: &[&str] = &["mkfs.btrfs", "-q", "-f"];

/// The filesystem made with these mkfs arguments and mount options cannot keep the promise, and the message says why.
fn is_refused(mkfs: &[&str], options: &str, words: &[&str]) {
    let Some(there) = Mounted::new(mkfs, options) else {
        println!("skipped: {mkfs:?} -o {options}");
        return;
    };
    for durability in [Durability::Log, Durability::Sync] {
        let refused = there.as_directory(durability).expect_err("taken").to_string();
        assert!(!refused.contains('\n'), "{refused}");
        for word in words.iter().chain([&there.path().join("dir").to_str().unwrap(), &"--durability unsafe"])
        {
            assert!(refused.contains(word), "no '{word}' in: {refused}");
        }
        assert!(!there.path().join("dir/.landfast").exists(), "a refusal leaves no trace");
    }
    drop(there.as_directory(Durability::Unsafe).expect("nothing is promised"));
    // Whoever claims to know better may.
    let beside = beside();
    let options = options_of(&there, beside.path());
    drop(Volume::open(OpenOptions { accept_weak: true, ..options }).expect("taken"));
}

fn options_of(there: &Mounted, beside: &Path) -> OpenOptions {
    options(&there.path(), beside, Durability::Log)
}

fn is_taken(mkfs: &[&str], options: &str) {
    let Some(there) = Mounted::new(mkfs, options) else {
        println!("skipped: {mkfs:?} -o {options}");
        return;
    };
    for durability in [Durability::Log, Durability::Sync] {
        let opened = there.as_directory(durability);
        drop(opened.unwrap_or_else(|e| panic!("{mkfs:?} -o {options}: {e}")));
    }
    assert!(!there.path().join("dir/.landfast/probe").exists(), "nothing is left of the self-test");
    // As the log's filesystem, and the mirror's.
    let dir = there.path().join("dir");
    let options = OpenOptions {
        accept_weak: false,
        log_size: 16 << 20,
        ..OpenOptions::with_log(
            &dir,
            LogPlace::new(there.path().join("log"), Some(there.path().join("mirror"))),
        )
    };
    drop(Volume::open(options).expect("taken"));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn usual_mounts_are_taken() {
    for options in ["noatime", "data=writeback", "data=journal", "commit=300"] {
        is_taken(EXT4, options);
    }
    is_taken(XFS, "noatime");
    for options in ["noatime", "flushoncommit", "notreelog", "nodatacow"] {
        is_taken(BTRFS, options);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn no_journal() {
    is_refused(&["mkfs.ext4", "-q", "-F", "-O", "^has_journal"], "noatime", &["has no journal", "tune2fs"]);
    is_refused(&["mkfs.ext2", "-q", "-F", "-I", "256"], "noatime", &["has no journal"]);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn nobarrier() {
    is_refused(EXT4, "nobarrier", &["nobarrier", "no flush reaches the disk"]);
    is_refused(EXT4, "barrier=0", &["no flush reaches the disk"]);
    is_refused(BTRFS, "nobarrier", &["nobarrier", "no flush reaches the disk"]);
}

/// As the log's and the mirror's filesystem, with the directory on a good one.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_or_a_mirror_on_a_filesystem_without_flushes() {
    let Some(there) = Mounted::new(EXT4, "nobarrier") else { return };
    let base = there.dir.path();
    // A second filesystem in the same namespace.
    let (image, good) = (base.join("good-image"), base.join("good"));
    fs::create_dir(&good).expect("mkdir");
    fs::File::create(&image).and_then(|f| f.set_len(320 << 20)).expect("an image");
    let (image, good_at) = (image.to_str().unwrap(), good.to_str().unwrap());
    sh("mkfs.ext4", &["-q", "-F", image]).expect("mkfs");
    sh("mount", &["-o", "loop", image, good_at]).expect("mount");
    fs::create_dir(good.join("dir")).expect("mkdir");
    let with = |log: PathBuf, mirror: Option<PathBuf>| OpenOptions {
        accept_weak: false,
        log_size: 16 << 20,
        ..OpenOptions::with_log(good.join("dir"), LogPlace::new(log, mirror))
    };
    let weak = there.path().join("log");
    for options in [
        with(weak.clone(), None),
        with(weak.clone(), Some(good.join("log"))),
        with(good.join("log"), Some(weak.clone())),
    ] {
        let refused = Volume::open(options).expect_err("taken").to_string();
        assert!(refused.contains("nobarrier") && refused.contains(weak.to_str().unwrap()), "{refused}");
        assert!(!good.join("dir/.landfast").exists(), "a refusal leaves no trace");
        for log in [&weak, &good.join("log")] {
            let _ = fs::remove_file(log);
        }
    }
    drop(Volume::open(with(good.join("log"), Some(good.join("mirror")))).expect("taken"));
    sh("umount", &[good_at]).expect("umount");
}

/// A filesystem on a loop device whose file is on another filesystem that drops flushes, or in memory.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_a_loop_device_stands_on() {
    for options in ["nobarrier", "noatime"] {
        let Some(there) = Mounted::new(EXT4, options) else { return };
        let memory = there.dir.path().join("memory");
        fs::create_dir(&memory).expect("mkdir");
        sh("mount", &["-t", "tmpfs", "tmpfs", memory.to_str().unwrap()]).expect("mount");
        for (base, words) in [
            (there.path(), (options == "nobarrier").then_some(["nobarrier", "no flush reaches the disk"])),
            (memory.clone(), Some(["tmpfs", "memory"])),
        ] {
            let (image, at) = (base.join("image"), there.dir.path().join("upper"));
            fs::create_dir_all(&at).expect("mkdir");
            fs::File::create(&image).and_then(|f| f.set_len(200 << 20)).expect("an image");
            let (image, at) = (image.to_str().unwrap(), at.to_str().unwrap());
            sh("mkfs.ext4", &["-q", "-F", image]).expect("mkfs");
            sh("mount", &["-o", "loop", image, at]).expect("mount");
            fs::create_dir(Path::new(at).join("dir")).expect("mkdir");
            for durability in [Durability::Log, Durability::Sync] {
                let at = Path::new(at);
                let opened = Volume::open(OpenOptions { accept_weak: false, ..options_at(at, durability) });
                match words {
                    None => {
                        let (volume, _) = opened.expect("taken");
                        volume.start(Arc::new(NoNotes)).expect("start");
                        volume.shutdown().expect("a clean stop");
                    }
                    Some(words) => {
                        let refused = opened.expect_err("taken").to_string();
                        for word in words.iter().chain([&image, &at.join("dir").to_str().unwrap()]) {
                            assert!(refused.contains(word), "no '{word}' in: {refused}");
                        }
                        assert!(!at.join("dir/.landfast").exists(), "a refusal leaves no trace");
                    }
                }
            }
            sh("umount", &[at]).expect("umount");
        }
        // The directory itself in memory.
        fs::create_dir(memory.join("dir")).expect("mkdir");
        let options = OpenOptions { accept_weak: false, ..options_at(&memory, Durability::Sync) };
        let refused = Volume::open(options).expect_err("taken").to_string();
        assert!(refused.contains("is on tmpfs on tmpfs, which is memory"), "{refused}");
        sh("umount", &[memory.to_str().unwrap()]).expect("umount");
    }
}

fn options_at(at: &Path, durability: Durability) -> OpenOptions {
    options(at, at, durability)
}

/// Without checking any option: the device counts.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_device_tells_whether_a_flush_arrives() {
    for (options, arrives) in [("noatime", true), ("nobarrier", false)] {
        let Some(there) = Mounted::new(EXT4, options) else { return };
        let file = fs::File::create(there.path().join("file")).unwrap();
        let below = Below::of(&there.path());
        let name = there.device.trim_start_matches("/dev/");
        assert_eq!(below.counting(), Some(name), "a loop device has a cache and counts");
        let found = below.flushes(|| file.write_all_at(b"x", 0).and_then(|()| file.sync_all())).unwrap();
        let refused = found.as_ref().is_some_and(|w| w.gravity == Gravity::Refuse && w.what.contains(name));
        assert_eq!(refused, !arrives, "{options}: {found:?}");
    }
}

/// The checks above detect a server that does not look.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
#[cfg(debug_assertions)]
fn the_deliberate_bug_is_seen() {
    use landfast_volume::faults::{Bug, with};
    let Some(there) = Mounted::new(EXT4, "nobarrier") else { return };
    drop(with(Some(Bug::VolatileUnnoticed), || there.as_directory(Durability::Log)).expect("taken"));
    there.as_directory(Durability::Log).expect_err("refused without the bug");
}
