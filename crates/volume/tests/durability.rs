//! What each durability mode does to the disk, and what a failure leaves.

mod common;

use std::time::{Duration, Instant};

use bytes::Bytes;
use common::image::{Image, Kernel, resize_loop};
use common::*;
use landfast_volume::*;
use rustix::fs::Advice;

/// How many fsync calls one operation makes.
fn fsyncs<T>(rig: &Rig, op: impl FnOnce(&mut Tx) -> Result<T, Error>) -> u64 {
    let before = rig.volume.stats();
    rig.run(op).unwrap();
    let after = rig.volume.stats();
    assert_eq!((after.fdatasyncs, after.log.is_none()), (before.fdatasyncs, true));
    after.fsyncs - before.fsyncs
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn sync_flushes_once_for_an_operation_where_one_journal_has_all_changes() {
    sync_flushes(Kernel::Ext4, 1);
    sync_flushes(Kernel::Xfs, 1);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn sync_flushes_what_changed_and_its_directory_on_btrfs() {
    sync_flushes(Kernel::Btrfs, 2);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn sync_flushes_what_changed_and_its_directory_on_ext4_without_a_journal() {
    let Some(image) = Image::with(Kernel::Ext4, &["-O", "^has_journal"], "noatime") else { return };
    let temp = tempfile::tempdir_in(image.path()).expect("tempdir");
    std::fs::create_dir(temp.path().join("dir")).expect("mkdir");
    let beside = tempfile::tempdir().expect("tempdir");
    let mut options = options(temp.path(), beside.path(), Durability::Sync);
    options.accept_weak = true;
    let (v, _) = open(options);
    let mut tx = v.tx();
    let how = CreateHow::Guarded(mode(0o644));
    v.create(&mut tx, &root(), &v.root(), b"f", how, OpenMode::BOTH).unwrap();
    tx.finish().wait_blocking().unwrap();
    assert_eq!(v.stats().fsyncs, 2);
}

/// `both`: how many flushes an operation needs that changes an object and its directory, or two directories.
fn sync_flushes(kernel: Kernel, both: u64) {
    let Some(image) = Image::new(kernel) else { return };
    let rig = Rig::at(tempfile::tempdir_in(image.path()).expect("tempdir"), Durability::Sync);
    assert!(!rig.volume.keeps_notes());
    let (v, dir, r) = (&rig.volume, rig.volume.root(), root());
    let how = CreateHow::Guarded(mode(0o644));
    assert_eq!(fsyncs(&rig, |tx| v.create(tx, &r, &dir, b"f", how, OpenMode::BOTH)), both);
    assert_eq!(fsyncs(&rig, |tx| v.mkdir(tx, &r, &dir, b"d", mode(0o755))), both);
    assert_eq!(fsyncs(&rig, |tx| v.symlink(tx, &r, &dir, b"l", b"t", mode(0))), 1);
    assert_eq!(fsyncs(&rig, |tx| v.mknod(tx, &r, &dir, b"p", Special::Fifo, mode(0o600))), 1);
    let (f, d) = (rig.lookup(&r, &dir, "f").unwrap(), rig.lookup(&r, &dir, "d").unwrap());
    assert_eq!(fsyncs(&rig, |tx| v.link(tx, &r, &f, &d, b"g")), both);
    assert_eq!(fsyncs(&rig, |tx| v.rename(tx, &r, &d, b"g", &d, b"h")), 1);
    assert_eq!(fsyncs(&rig, |tx| v.rename(tx, &r, &d, b"h", &dir, b"i")), both);
    assert_eq!(fsyncs(&rig, |tx| v.remove(tx, &r, &dir, b"i")), 1);
    assert_eq!(fsyncs(&rig, |tx| v.setattr(tx, &r, &f, None, mode(0o600))), 1);
    assert_eq!(fsyncs(&rig, |tx| v.setattr(tx, &r, &d, None, mode(0o700))), 1);
    let file = v.open_file(&r, &f, OpenMode::WRITE).unwrap();
    let write = |tx: &mut Tx, stable| v.write(tx, &file, 0, Bytes::from_static(b"data"), stable);
    assert_eq!(fsyncs(&rig, |tx| write(tx, Stable::FileSync)), 1);
    assert_eq!(fsyncs(&rig, |tx| write(tx, Stable::DataSync)), 1);
    assert_eq!(fsyncs(&rig, |tx| write(tx, Stable::Unstable)), 0);
    assert_eq!(fsyncs(&rig, |tx| v.commit(tx, &f, 0, 0)), 1);
    // An object that cannot be opened is flushed with everything else.
    let link = rig.lookup(&r, &dir, "l").unwrap();
    let before = v.stats().syncfs;
    let owner = SetAttrs { uid: Some(1), ..SetAttrs::default() };
    assert_eq!(fsyncs(&rig, |tx| v.setattr(tx, &r, &link, None, owner)), 0);
    assert_eq!(v.stats().syncfs, before + 1);
    // So is one that gets an owner after it was made: its directory may be on disk by then, and the owner is no part of that.
    assert_eq!(fsyncs(&rig, |tx| v.symlink(tx, &r, &dir, b"l2", b"t", owner)), 0);
    assert_eq!(v.stats().syncfs, before + 2);
    // Looking costs no flush, and a failure does not, either.
    let before = v.stats().fsyncs;
    v.getattr(&f).unwrap();
    v.readdir(&r, &dir, 0, 10, EntryDetail::Attrs).unwrap();
    assert_eq!(rig.remove(&r, &dir, "none").unwrap_err(), Error::NoEnt);
    assert_eq!(v.stats().fsyncs, before);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn unsafe_flushes_nothing_until_the_stop() {
    let rig = Rig::new(Durability::Unsafe);
    let made = rig.create(&root(), &rig.volume.root(), "f").unwrap();
    assert_eq!(rig.write(&made.file, 0, b"x").unwrap(), (1, Stable::FileSync));
    rig.run(|tx| rig.volume.commit(tx, &made.node, 0, 0)).unwrap();
    let s = rig.volume.stats();
    assert_eq!((s.fsyncs, s.fdatasyncs, s.syncfs), (0, 0, 0));
    rig.volume.shutdown().unwrap();
    assert_eq!(rig.volume.stats().syncfs, 1);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn with_the_log_one_flush_for_a_request_and_none_on_the_disk() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    assert!(rig.volume.keeps_notes());
    let (v, dir, r) = (&rig.volume, rig.volume.root(), root());
    let flushes = || v.stats().log.unwrap().batches;
    let before = flushes();
    rig.create(&r, &dir, "f").unwrap();
    assert_eq!(flushes(), before + 1);
    // However many operations the request has.
    let mut tx = v.tx();
    for i in 0..50 {
        let name = format!("f{i}");
        let how = CreateHow::Guarded(mode(0o644));
        let made = v.create(&mut tx, &r, &dir, name.as_bytes(), how, OpenMode::BOTH).unwrap();
        v.write(&mut tx, &made.file, 0, Bytes::from_static(b"data"), Stable::FileSync).unwrap();
        v.setattr(&mut tx, &r, &made.node, Some(&made.file), mode(0o600)).unwrap();
    }
    assert!(tx.modified());
    tx.finish().wait_blocking().unwrap();
    assert_eq!(flushes(), before + 2);
    // A request that only looks, or that fails, waits for no flush.
    let mut tx = v.tx();
    assert_eq!(v.remove(&mut tx, &r, &dir, b"none").unwrap_err(), Error::NoEnt);
    assert!(!tx.modified());
    tx.finish().wait_blocking().unwrap();
    assert_eq!(flushes(), before + 2);
    // A request whose work was already done, by somebody who may not have waited, does wait.
    rig.link(&r, &rig.lookup(&r, &dir, "f").unwrap(), &dir, "g").unwrap();
    rig.rename(&r, (&dir, "f"), (&dir, "g")).unwrap();
    assert_eq!(flushes(), before + 4);
    let s = v.stats();
    assert_eq!((s.fsyncs, s.fdatasyncs), (0, 0));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn unstable_data_waits_for_no_flush_and_what_stands_beside_it_for_one() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    let (v, dir, r) = (&rig.volume, rig.volume.root(), root());
    let made = rig.create(&r, &dir, "f").unwrap();
    for lasts in [false, true] {
        let before = v.stats().log.unwrap().batches;
        let mut tx = v.tx();
        v.write(&mut tx, &made.file, 0, Bytes::from_static(b"data"), Stable::Unstable).unwrap();
        if lasts {
            v.mkdir(&mut tx, &r, &dir, b"d", mode(0o755)).unwrap();
        }
        assert_eq!((tx.modified(), tx.lasting()), (true, lasts));
        let receipt = tx.finish();
        assert_eq!(receipt.waits(), lasts);
        receipt.wait_blocking().unwrap();
        assert_eq!(v.stats().log.unwrap().batches, before + u64::from(lasts));
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn notes_come_back_after_a_crash_in_order() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    for i in 0..3u8 {
        let mut tx = rig.volume.tx();
        rig.volume.mkdir(&mut tx, &root(), &rig.volume.root(), &[b'a' + i], mode(0o755)).unwrap();
        tx.note(vec![i; 3]);
        tx.finish().wait_blocking().unwrap();
    }
    let mut tx = rig.volume.tx();
    tx.note(b"alone".to_vec());
    assert!(!tx.modified());
    tx.finish().wait_blocking().unwrap();
    let rig = rig.crash();
    assert_eq!(rig.report.notes, [vec![0; 3], vec![1; 3], vec![2; 3], b"alone".to_vec()]);
    assert!(!rig.report.clean && rig.report.records >= 4);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn after_a_crash_everything_is_as_it_was_but_newer() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    let (v, r) = (&rig.volume, root());
    let dir = rig.mkdir(&r, &v.root(), "d").unwrap();
    let made = rig.create(&user(0), &dir, "f").unwrap();
    rig.write(&made.file, 0, b"data").unwrap();
    rig.setattr(&r, &made.node, SetAttrs { uid: Some(9), ..mode(0o4711) }).unwrap();
    let verifier = v.write_verifier();
    let (fh, before, dir_fh, dir_before) = (made.node.fh(), rig.attrs(&made.node), dir.fh(), rig.attrs(&dir));
    drop((made, dir));
    let rig = rig.crash();
    let v = &rig.volume;
    let node = v.resolve(&fh).unwrap();
    let after = rig.attrs(&node);
    assert!(after.change > before.change, "what a crash may have lost must not look the same");
    assert!(after.change - before.change > 3_000_000_000_000);
    let same = |a: Attrs, b: Attrs| {
        assert_eq!(Attrs { change: 0, ctime: b.ctime, used: b.used, ..a }, Attrs { change: 0, ..b })
    };
    same(after, before);
    let dir_after = rig.attrs(&v.resolve(&dir_fh).unwrap());
    assert!(dir_after.change > dir_before.change);
    same(dir_after, dir_before);
    assert_ne!(v.write_verifier(), verifier);
    let file = v.open_file(&r, &node, OpenMode::READ).unwrap();
    assert_eq!(v.read(&file, 0, 10).unwrap().0, "data");
    // A clean stop does not change the floor.
    let now = rig.attrs(&node).change;
    drop((file, node));
    let rig = rig.restart();
    assert!(rig.report.clean && rig.report.notes.is_empty());
    let later = rig.attrs(&rig.volume.resolve(&fh).unwrap()).change;
    assert!(later >= now && later - now < 3_000_000_000_000);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn injected_latency_is_in_each_sync_call() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir(temp.path().join("dir")).unwrap();
    let pause = Duration::from_millis(30);
    let slow = OpenOptions {
        experiment: Experiment { injected_flush: Some(pause), ..Experiment::default() },
        ..OpenOptions::new(temp.path().join("dir"), Durability::Sync)
    };
    let (volume, _) = open(slow);
    let begun = Instant::now();
    let mut tx = volume.tx();
    volume.mkdir(&mut tx, &root(), &volume.root(), b"d", mode(0o755)).unwrap();
    assert!(begun.elapsed() >= 2 * pause);
    assert_eq!(volume.stats().fsyncs, 2);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_stopped_volume_acknowledges_nothing() {
    let rig = Rig::new(Durability::Sync);
    let dir = rig.volume.root();
    let made = rig.create(&root(), &dir, "f").unwrap();
    let mut pending = rig.volume.tx();
    rig.volume.mkdir(&mut pending, &root(), &dir, b"d", mode(0o755)).unwrap();
    let mut unstable = rig.volume.tx();
    rig.volume.write(&mut unstable, &made.file, 0, Bytes::new(), Stable::Unstable).unwrap();
    assert!(unstable.modified() && !unstable.lasting());
    rig.volume.shutdown().unwrap();
    for tx in [pending, unstable] {
        assert_eq!(tx.finish().wait_blocking().unwrap_err(), Error::Failed);
    }
    assert_eq!(rig.create(&root(), &dir, "g").unwrap_err(), Error::Failed);
    assert_eq!(rig.write(&made.file, 0, b"x").unwrap_err(), Error::Failed);
    assert_eq!(rig.run(|tx| rig.volume.commit(tx, &made.node, 0, 0)).unwrap_err(), Error::Failed);
    assert_eq!(rig.volume.shutdown().unwrap_err(), Error::Failed);
    // Looking still works.
    assert_eq!(rig.attrs(&made.node).size, 0);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_volume_whose_log_fails_acknowledges_nothing_any_more() {
    if !tempdir_suits() {
        return;
    }
    // A block device under the log that disappears: writes to it fail.
    let Some(device) = LoopDevice::new(8 << 20) else {
        println!("skipped: needs loop devices");
        return;
    };
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir(temp.path().join("dir")).unwrap();
    let (volume, _) = open(OpenOptions::with_log(temp.path().join("dir"), &device.path));
    let dir = volume.root();
    let make = |name: &[u8]| {
        let mut tx = volume.tx();
        let made = volume.mkdir(&mut tx, &root(), &dir, name, mode(0o755));
        (made.map(drop), tx.finish().wait_blocking())
    };
    assert_eq!(make(b"a"), (Ok(()), Ok(())));
    let verifier = volume.write_verifier();
    device.break_it();
    // Applied, but never acknowledged.
    assert_eq!(make(b"b"), (Ok(()), Err(Error::Failed)));
    assert!(volume.failed().is_some());
    assert_ne!(volume.write_verifier(), verifier);
    device.mend_it();
    // Nor is anything acknowledged later, even when the device works again.
    assert_eq!(make(b"c").0, Err(Error::Failed));
    assert_eq!(volume.shutdown().unwrap_err(), Error::Failed);
    assert!(volume.lookup(&root(), &dir, b"a").is_ok());
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_commit_does_not_copy_what_is_on_the_disk_where_writing_back_has_failed() {
    let Some(image) = Image::new(Kernel::Ext4) else { return };
    let log = beside();
    std::fs::create_dir(image.path().join("dir")).expect("mkdir");
    let (volume, _) = open(options(image.path(), log.path(), Durability::Log));
    let (dir, cred) = (volume.root(), root());
    let run = |tx: Tx| tx.finish().wait_blocking();
    let mut tx = volume.tx();
    let how = CreateHow::Guarded(mode(0o644));
    let file = volume.create(&mut tx, &cred, &dir, b"f", how, OpenMode::BOTH).expect("create").file;
    let data = Bytes::from(vec![7; 64 << 10]);
    volume.write(&mut tx, &file, 0, data.clone(), Stable::Unstable).expect("write");
    run(tx).expect("stable");

    // Somebody's flush meets a disk that fails for a moment; then the kernel needs the memory for something else.
    let path = image.path().join("dir/f");
    let stranger = std::fs::File::open(&path).expect("open");
    image.breaks(true);
    rustix::fs::fdatasync(&stranger).expect_err("the disk fails");
    image.breaks(false);
    rustix::fs::fadvise(&stranger, 0, None, Advice::DontNeed).expect("fadvise");
    assert_ne!(std::fs::read(&path).ok().as_deref(), Some(&data[..]), "the kernel has it no longer");

    let mut tx = volume.tx();
    volume.commit(&mut tx, file.node(), 0, 0).expect_err("it is lost");
    assert!(volume.failed().is_some_and(|why| why.contains("writing back")), "{:?}", volume.failed());
}

/// A loop device whose backing file can be taken away.
struct LoopDevice {
    path: std::path::PathBuf,
    backing: std::path::PathBuf,
    size: u64,
    _temp: tempfile::TempDir,
}

impl LoopDevice {
    fn new(size: u64) -> Option<LoopDevice> {
        let temp = tempfile::tempdir().ok()?;
        let backing = temp.path().join("device");
        std::fs::File::create(&backing).ok()?.set_len(size).ok()?;
        let out =
            std::process::Command::new("losetup").args(["--find", "--show"]).arg(&backing).output().ok()?;
        let path = String::from_utf8(out.stdout).ok()?.trim().to_owned();
        (out.status.success() && !path.is_empty()).then(|| LoopDevice {
            path: path.into(),
            backing,
            size,
            _temp: temp,
        })
    }

    /// From now on everything beyond the first block fails: the driver refuses access beyond the file's end.
    fn break_it(&self) {
        self.resize(4096);
    }

    fn mend_it(&self) {
        self.resize(self.size);
    }

    fn resize(&self, size: u64) {
        resize_loop(&self.backing, &self.path, size);
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").arg("-d").arg(&self.path).status();
    }
}

const TAG: &str = "trusted.landfast.tag";

fn tag_of(path: &std::path::Path) -> Vec<u8> {
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(path, TAG, &mut value[..]).expect("a tag");
    value[..length].to_vec()
}

fn set_tag(path: &std::path::Path, value: &[u8]) {
    rustix::fs::setxattr(path, TAG, value, rustix::fs::XattrFlags::empty()).expect("set");
}

/// Works until this many more checkpoints are done.
fn checkpoints(rig: &Rig, dir: &Node, more: u64) {
    let done = || rig.volume.stats().log.expect("a log").checkpoints;
    for n in 0..more {
        let (begun, before) = (Instant::now(), done());
        rig.create(&root(), dir, &format!("{before}-{n}")).unwrap();
        while done() == before {
            assert!(begun.elapsed() < Duration::from_secs(60), "a checkpoint comes");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_checkpoint_leaves_the_root_as_it_is_and_is_known_all_the_same() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    let dir = rig.mkdir(&root(), &rig.volume.root(), "d").unwrap();
    let state = rig.dir().join(".landfast");
    let (before, older) = (rig.attrs(&rig.volume.root()), tag_of(&state));
    checkpoints(&rig, &dir, 2);
    let after = rig.attrs(&rig.volume.root());
    assert_eq!((after.ctime, after.change), (before.ctime, before.change), "nobody changed the root");
    assert_ne!(tag_of(&state), older, "each checkpoint is marked");

    // A tree from before those checkpoints was restored.
    let path = rig.dir();
    let (root_then, now) = (tag_of(&path), tag_of(&state));
    let Rig { temp, beside, volume, .. } = rig;
    drop(volume);
    let options = options(temp.path(), beside.path(), Durability::Log);
    let refused = || {
        let begun = Instant::now();
        loop {
            match Volume::open(options.clone()) {
                Err(OpenError::DirInUse { .. } | OpenError::Log(_)) if begun.elapsed().as_secs() < 30 => {
                    std::thread::yield_now();
                }
                Err(OpenError::WrongVolume { why, .. }) => break why,
                other => panic!("{other:?}"),
            }
        }
    };
    set_tag(&state, &older);
    assert!(refused().contains("an older copy or snapshot was put back"));
    // As left by an earlier version, which had only the root's tag.
    rustix::fs::removexattr(&state, TAG).unwrap();
    assert!(refused().contains("an older copy or snapshot was put back"));
    set_tag(&path, &now);
    let (volume, _) = open(options.clone());
    assert_ne!(tag_of(&path), root_then);
    // And after a clean stop of it.
    volume.shutdown().expect("a clean stop");
    drop(volume);
    rustix::fs::removexattr(&state, TAG).unwrap();
    let (volume, _) = open(options);
    assert!(volume.lookup(&root(), &volume.root(), b"d").is_ok());
}
