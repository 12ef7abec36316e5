//! A log that is lost under a served volume is replaced by a new one, and power fails at each step. Everything acknowledged is
//! there afterwards: from the new log once it exists; without any log once the volume says so; before that from the lost log,
//! if it returns.
//!
//! A test program of its own, since the points hold all volumes of the process.
#![cfg(debug_assertions)]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::image::{Image, Kernel};
use common::*;
use landfast_volume::faults::hold;
use landfast_volume::*;

/// Far more than a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with one client, whose session must be known after a crash.
struct OneNote;

impl NoteKeeper for OneNote {
    fn snapshot(&self) -> Box<dyn landfast_volume::Snapshot> {
        Box::new(vec![b"session".to_vec()])
    }
}

fn mkdir(volume: &Volume, name: &str) -> Result<Bytes, Error> {
    let mut tx = volume.tx();
    let made = volume.mkdir(&mut tx, &root(), &volume.root(), name.as_bytes(), mode(0o755));
    tx.finish().wait_blocking()?;
    Ok(made?.node.fh())
}

fn has(volume: &Volume, name: &str, fh: &Bytes) {
    let found = volume.lookup(&root(), &volume.root(), name.as_bytes());
    assert_eq!(found.unwrap_or_else(|e| panic!("{name}: {e}")).fh(), *fh);
    assert!(volume.resolve(fh).is_ok(), "{name}");
}

/// What the next start finds after a power cut at this point.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Finds {
    /// The volume is in use and there is no log: refused until the lost one is put back.
    NoLog,
    NoneNeeded,
    NewLog,
}

fn the_power_fails_at(kernel: Kernel, point: &'static str, finds: Finds) {
    let Some(mut image) = Image::new(kernel) else { return };
    let (dir, log) = (image.path().join("export"), image.path().join("log"));
    let away = image.path().join("away");
    fs::create_dir(&dir).expect("mkdir");
    let options = OpenOptions { log_size: 8 << 20, ..OpenOptions::with_log(&dir, &log) };
    let (volume, _) = Volume::open(options.clone()).expect("open");
    volume.start(Arc::new(OneNote)).expect("start");
    let mut all: Vec<(String, Bytes)> = Vec::new();
    for n in 0..20 {
        let name = format!("d{n}");
        let fh = mkdir(&volume, &name).expect("acknowledged");
        all.push((name, fh));
    }
    let file = {
        let mut tx = volume.tx();
        let how = CreateHow::Guarded(mode(0o644));
        let made =
            volume.create(&mut tx, &root(), &volume.root(), b"file", how, OpenMode::BOTH).expect("create");
        let data = Bytes::from(vec![7; 100_000]);
        volume.write(&mut tx, &made.file, 0, data, Stable::FileSync).expect("write");
        tx.finish().wait_blocking().expect("acknowledged");
        made.node.fh()
    };
    let held = hold(point);
    fs::rename(&log, &away).expect("the log");
    fs::File::open(image.path()).and_then(|dir| dir.sync_all()).expect("it is away for good");
    assert!(held.has(1, PATIENCE), "{point} is not passed");
    // Nothing is acknowledged meanwhile.
    let acknowledged = AtomicBool::new(false);
    std::thread::scope(|s| {
        let late = s.spawn(|| {
            let fh = mkdir(&volume, "late");
            acknowledged.store(true, Ordering::SeqCst);
            fh
        });
        image.cut_as("cut", &[]);
        assert!(!acknowledged.load(Ordering::SeqCst), "acknowledged at {point}");
        drop(held);
        all.push((
            "late".to_owned(),
            late.join().expect("a thread").expect("acknowledged when there is a new log"),
        ));
    });
    // Service continues, and only the new log has the last change.
    for (name, fh) in &all {
        has(&volume, name, fh);
    }
    assert_eq!(volume.stats().log.expect("a log").renewed, 1);
    drop(volume);
    all.pop();

    image.load_when_free("cut", &[]);
    println!("{kernel:?}, {point}: {:?}", names(image.path()));
    match finds {
        Finds::NoLog => {
            let refused = Volume::open(options.clone())
                .expect_err("acknowledged work may be in the lost log")
                .to_string();
            assert!(refused.contains("acknowledged operations"), "{refused}");
            if log.exists() {
                fs::remove_file(&log).expect("what that start has made");
            }
            fs::rename(&away, &log).expect("the lost log, put back");
        }
        Finds::NoneNeeded => {
            is_refused_as_old(&options, &log, &away);
            assert!(!log.exists(), "there is none");
        }
        Finds::NewLog => {
            fs::rename(&log, log.with_extension("new")).expect("the new log");
            is_refused_as_old(&options, &log, &away);
            fs::rename(log.with_extension("new"), &log).expect("the new log");
        }
    }
    let (volume, report) = Volume::open(options).expect("open");
    volume.start(Arc::new(OneNote)).expect("start");
    println!("{report:?}");
    if finds == Finds::NewLog {
        assert_eq!(report.notes, [b"session".to_vec()], "what checkpoints carry over is in the new log");
    }
    for (name, fh) in &all {
        has(&volume, name, fh);
    }
    let node = volume.resolve(&file).expect("the file");
    let open = volume.open_file(&root(), &node, OpenMode::BOTH).expect("open");
    assert_eq!(volume.read(&open, 0, 200_000).expect("read").0, vec![7; 100_000]);
    drop(open);
    mkdir(&volume, "goes on").expect("acknowledged");
    volume.shutdown().expect("a clean stop");
}

/// The lost log returns too late.
fn is_refused_as_old(options: &OpenOptions, log: &Path, away: &Path) {
    fs::rename(away, log).expect("the lost log, put back");
    let refused = Volume::open(options.clone()).expect_err("it is old").to_string();
    assert!(refused.contains("older copy of the log"), "{refused}");
    fs::rename(log, away).expect("the lost log");
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir)
        .expect("a directory")
        .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect()
}

fn at_each_point(kernel: Kernel) {
    for (point, finds) in [
        ("lost.cut", Finds::NoLog),
        ("lost.synced", Finds::NoLog),
        ("lost.marked", Finds::NoneNeeded),
        ("lost.built", Finds::NoneNeeded),
        ("lost.placed", Finds::NewLog),
        ("lost.resumed", Finds::NewLog),
        ("lost.renewed", Finds::NewLog),
    ] {
        the_power_fails_at(kernel, point, finds);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn on_ext4() {
    at_each_point(Kernel::Ext4);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn on_xfs() {
    at_each_point(Kernel::Xfs);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn on_btrfs() {
    at_each_point(Kernel::Btrfs);
}
