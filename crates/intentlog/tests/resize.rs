//! Another size for a log: what a clean stop left is there afterwards, whatever interrupts it.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{Model, config, start};
use landfast_intentlog::sim::{Fault, SimDisk};
use landfast_intentlog::{Config, Log, OpenError, shape};

const SMALL: usize = 64 * 1024 + 256 * 1024;
const LARGE: usize = 64 * 1024 + 1024 * 1024;

/// A log of `SMALL` bytes on a larger disk, stopped cleanly after `effects`.
fn stopped(effects: usize, snapshot: usize) -> (SimDisk, Arc<Model>) {
    let disk = SimDisk::new(SMALL, effects as u64);
    let model = Arc::new(Model::default());
    model.set_snapshot_bytes(snapshot);
    let log = start(&disk, &model, config());
    for _ in 0..effects {
        model.operate(&log, &[3000]).unwrap().1.wait_blocking().unwrap();
    }
    log.shutdown().unwrap();
    drop(log);
    disk.grow(LARGE);
    (disk, model)
}

#[test]
fn a_resized_log_holds_what_it_held() {
    // So that the snapshot stands anywhere in the ring, its end included.
    for effects in 0..70 {
        let (disk, model) = stopped(effects, 9000);
        for size in [LARGE, SMALL, SMALL + 8 * 4096] {
            shape::resize_device(&disk, Path::new("log"), size as u64).unwrap();
            let (log, replay) = Log::open_device(disk.device(), config()).unwrap();
            assert!(replay.clean);
            assert_eq!(log.stats().capacity, size as u64 - 64 * 1024);
            model.recover(&replay, effects as u64);
        }
        let (log, replay) = Log::open_device(disk.device(), config()).unwrap();
        model.recover(&replay, effects as u64);
        log.start(model.clone()).unwrap();
        model.operate(&log, &[10]).unwrap().1.wait_blocking().unwrap();
    }
}

#[test]
fn a_power_cut_in_its_middle_leaves_one_size_or_the_other() {
    for effects in [0, 5, 60, 61, 62, 63] {
        for cut in 0..3 {
            let (disk, model) = stopped(effects, 9000);
            disk.set_fault(Fault::PowerCut(cut));
            assert!(shape::resize_device(&disk, Path::new("log"), LARGE as u64).is_err());
            disk.revive();
            let (_log, replay) = Log::open_device(disk.device(), config()).unwrap();
            assert!(replay.clean);
            model.recover(&replay, effects as u64);
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_and_a_crashed_log_too() {
    let (disk, _) = stopped(3, 100_000);
    let before = disk.image();
    let refused = shape::resize_device(&disk, Path::new("log"), SMALL as u64 - 128 * 1024);
    assert!(matches!(refused, Err(OpenError::TooSmall { .. })), "{refused:?}");
    assert!(disk.image() == before);

    let disk = SimDisk::new(SMALL, 1);
    let model = Arc::new(Model::default());
    drop(start(&disk, &model, config()));
    let refused = shape::resize_device(&disk, Path::new("log"), LARGE as u64);
    assert!(matches!(refused, Err(OpenError::NotClean { .. })), "{refused:?}");
}

#[test]
fn files_grow_and_shrink() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let said = shape::create(&path, SMALL as u64).unwrap();
    assert!(said.starts_with("file "), "{said}");
    shape::create(&path, SMALL as u64).unwrap();
    let model = Arc::new(Model::default());
    let open = || Log::open(Config::new(path.clone(), 0, common::VOLUME)).unwrap();
    let (log, replay) = open();
    assert!(replay.fresh);
    log.start(model.clone()).unwrap();
    let (last, ticket) = model.operate(&log, &[500]).unwrap();
    ticket.wait_blocking().unwrap();
    assert!(matches!(shape::resize(&path, Some(LARGE as u64)), Err(OpenError::InUse { .. })));
    log.shutdown().unwrap();
    drop(log);
    assert!(matches!(shape::create(&path, SMALL as u64), Err(OpenError::AlreadyALog { .. })));
    for (from, to) in [(SMALL, LARGE), (LARGE, SMALL)] {
        assert_eq!(shape::resize(&path, Some(to as u64)).unwrap(), (from as u64, to as u64));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), to as u64);
        let (log, replay) = open();
        assert_eq!((log.stats().capacity, replay.clean), (to as u64 - 64 * 1024, true));
        model.recover(&replay, last);
    }
    assert!(shape::resize(&dir.path().join("none"), None).is_err());
    assert!(!dir.path().join("none").exists());
}
