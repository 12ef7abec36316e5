//! A step of one request takes long, and something else happens meanwhile.
//!
//! A test program of its own, since the points hold all volumes of the process.
#![cfg(debug_assertions)]

mod common;

use std::fs;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::image::{Image, Kernel};
use common::*;
use landfast_volume::faults::hold;
use landfast_volume::*;
use rustix::process::{Resource, Rlimit, setrlimit};

/// Far more than a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Descriptors of the process: so few that a few files take most places of witnesses.
const DESCRIPTORS: u64 = 256;

/// Its number in the sets of capabilities (`linux/capability.h`).
const CAP_SYS_RESOURCE: u32 = 24;

/// A file with unstable data.
fn unstable(rig: &Rig, name: &str, bytes: usize) -> Created {
    let made = rig.create(&root(), &rig.volume.root(), name).expect("create");
    let data = Bytes::from(vec![7; bytes]);
    rig.run(|tx| rig.volume.write(tx, &made.file, 0, data, Stable::Unstable)).expect("write");
    made
}

fn rig_on(image: &Image) -> Rig {
    Rig::at(tempfile::tempdir_in(image.path()).expect("a directory on the image"), Durability::Log)
}

/// While a system call changes a file, the file counts as clean, and clean files lose their witnesses first.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_slow_change_of_a_range_keeps_its_witness() {
    let limit = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    setrlimit(Resource::Nofile, limit).expect("fewer descriptors");
    let places = DESCRIPTORS / limits::WITNESS_FDS_DIVISOR;
    let Some(image) = Image::new(Kernel::Xfs) else { return };
    for op in ["allocate", "copy", "clone"] {
        let rig = rig_on(&image);
        let v = &rig.volume;
        let source = rig.create(&root(), &v.root(), "source").expect("create").file;
        rig.write(&source, 0, &vec![7; 2 << 20]).expect("write");
        let dest = rig.create(&root(), &v.root(), "dest").expect("create");
        let held = hold("range.watched");
        std::thread::scope(|s| {
            let slow = s.spawn(|| {
                rig.run(|tx| match op {
                    "allocate" => v.allocate(tx, &dest.file, 0, 2 << 20),
                    "copy" => v.copy_range(tx, &source, 0, &dest.file, 0, 2 << 20).map(drop),
                    _ => v.clone_range(tx, &source, 0, &dest.file, 0, 2 << 20),
                })
            });
            assert!(held.has(1, PATIENCE), "{op} has a witness");
            // So many that the oldest lose theirs.
            let _others: Vec<_> = (0..=places / 2).map(|n| unstable(&rig, &format!("f{n}"), 1)).collect();
            assert!(v.has_idle(), "{op}: too few are watched");
            v.close_idle();
            drop(held);
            assert_eq!(slow.join().expect("a thread"), Ok(()), "{op}: {:?}", v.failed());
        });
        rig.run(|tx| v.commit(tx, &dest.node, 0, 0)).expect("commit");
        assert_eq!(v.failed(), None, "{op}");
    }
}

/// The kernel tells of an error in writing back only once. If it has told a checkpoint, the flush with which the volume gives its
/// lost log up succeeds, though acknowledged data is lost.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_is_not_given_up_for_a_disk_that_has_just_failed() {
    let Some(image) = Image::new(Kernel::Ext4) else { return };
    let rig = rig_on(&image);
    let v = &rig.volume;
    let made = rig.create(&root(), &v.root(), "lost").expect("create");
    v.checkpoint().expect("a checkpoint");
    // Whoever makes the next checkpoint waits before its flush, then after it.
    let tagged = hold("volume.tagged");
    let flushed = hold("volume.flushed");
    std::thread::scope(|s| {
        rig.write(&made.file, 0, &vec![7; 64 << 10]).expect("acknowledged");
        let checkpoint = s.spawn(|| v.checkpoint());
        assert!(tagged.has(1, PATIENCE), "a checkpoint");
        let stranger = fs::File::open(rig.dir().join("lost")).expect("open");
        image.breaks(true);
        assert!(rustix::fs::fdatasync(&stranger).is_err(), "its data is lost");
        image.breaks(false);
        drop(tagged);
        assert!(flushed.has(1, PATIENCE), "the checkpoint has flushed");
        fs::remove_file(rig.beside.path().join("log")).expect("the log");
        let begun = Instant::now();
        while v.failed().is_none() {
            assert!(begun.elapsed() < PATIENCE, "not noticed");
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(flushed);
        assert_eq!(checkpoint.join().expect("a thread"), Err(Error::Failed));
    });
    drop(made);
    let Rig { temp, beside, volume, .. } = rig;
    drop(volume);
    let begun = Instant::now();
    let refused = loop {
        match Volume::open(options(temp.path(), beside.path(), Durability::Log)) {
            // The watch thread still gives the log up.
            Err(OpenError::DirInUse { .. }) if begun.elapsed() < PATIENCE => std::thread::yield_now(),
            Err(e) => break e.to_string(),
            Ok(_) => panic!("a new log is taken, and what was acknowledged is lost"),
        }
    };
    assert!(refused.contains("acknowledged operations are in its log"), "{refused}");
}

/// Recovery may exceed quotas, and nobody else: what it makes again was within them when it was promised.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn recovery_alone_may_exceed_quotas() {
    let Some(image) = Image::new(Kernel::Ext4) else { return };
    let rig = rig_on(&image);
    rig.mkdir(&root(), &rig.volume.root(), "d").expect("mkdir");
    let Rig { temp, beside, volume, .. } = rig;
    drop(volume);
    let (tell, told) = std::sync::mpsc::channel();
    let may = |thread: i32| {
        let status =
            fs::read_to_string(format!("/proc/self/task/{thread}/status")).expect("the thread's status");
        let set = |name: &str| {
            let bits =
                status.lines().find_map(|line| line.strip_prefix(name)).expect("a set of capabilities");
            u64::from_str_radix(bits.trim(), 16).expect("a number") & 1 << CAP_SYS_RESOURCE != 0
        };
        (set("CapPrm:"), set("CapEff:"))
    };
    let begun = hold("recovery.begin");
    std::thread::scope(|s| {
        let opens = s.spawn(|| {
            let thread = rustix::thread::gettid().as_raw_nonzero().get();
            tell.send(thread).expect("it is awaited");
            let (volume, report) = open(options(temp.path(), beside.path(), Durability::Log));
            assert!(report.records > 0);
            drop(volume);
            may(thread)
        });
        let thread = told.recv().expect("a thread");
        assert!(begun.has(1, PATIENCE), "recovery begins");
        let (has, uses) = may(thread);
        drop(begun);
        assert_eq!(uses, has, "during recovery");
        assert!(!opens.join().expect("a thread").1, "afterwards");
    });
}

/// A request that meets the stop between two of its transactions comes too late. That is no fault of the log.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_stop_is_clean_though_a_request_comes_too_late() {
    let Some(image) = Image::new(Kernel::Ext4) else { return };
    let rig = rig_on(&image);
    let v = &rig.volume;
    let made = unstable(&rig, "file", 2 << 20);
    v.checkpoint().expect("a checkpoint");
    let flushed = hold("commit.flushed");
    std::thread::scope(|s| {
        let late = s.spawn(|| rig.run(|tx| v.commit(tx, &made.node, 0, 0)));
        assert!(flushed.has(1, PATIENCE), "the COMMIT is between two transactions");
        // The last checkpoint has something to do, and takes long.
        let tagged = hold("volume.tagged");
        rig.mkdir(&root(), &v.root(), "d").expect("mkdir");
        let stop = s.spawn(|| v.shutdown());
        assert!(tagged.has(1, PATIENCE), "the last checkpoint");
        drop(flushed);
        assert_eq!(late.join().expect("a thread"), Err(Error::Failed));
        drop(tagged);
        stop.join().expect("a thread").expect("a clean stop");
    });
    drop(made);
    let Rig { temp, beside, volume, .. } = rig;
    drop(volume);
    let (_, report) = open(options(temp.path(), beside.path(), Durability::Log));
    assert!(report.clean, "{report:?}");
}
