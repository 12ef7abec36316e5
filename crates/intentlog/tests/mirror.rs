//! Two disks that hold one log, either of which may be lost at any moment: see the oracle in `common`. A half that was lost is
//! told by the volume's tag, which allows a log to be one checkpoint behind and no more (`landfast-volume`, `tag.rs`).

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use common::{Model, config};
use landfast_intentlog::sim::{Fault, SimDisk};
use landfast_intentlog::{Config, Log, LogPlace, OpenError, Replay};
use proptest::prelude::*;

const BYTES: usize = 64 * 1024 + 256 * 1024;

fn mirrored() -> Config {
    Config { place: LogPlace::new("simulated", Some("second".into())), ..config() }
}

fn open(disks: &[Option<SimDisk>; 2]) -> Result<(Log, Replay), OpenError> {
    Log::open_mirror(disks.clone(), mirrored())
}

fn disks(seed: u64) -> [Option<SimDisk>; 2] {
    [Some(SimDisk::new(BYTES, seed)), Some(SimDisk::new(BYTES, seed ^ 0xabcd))]
}

fn each(disks: &[Option<SimDisk>; 2], then: impl Fn(&SimDisk)) {
    disks.iter().flatten().for_each(then);
}

/// Operates until something is refused, or `most` times; the highest acknowledged effect.
fn operate(log: &Log, model: &Model, most: usize, sizes: &[usize]) -> u64 {
    let mut acknowledged = 0;
    for i in 0..most {
        let size = sizes.get(i % sizes.len()).copied().unwrap_or(0);
        let Ok((last, ticket)) = model.operate(log, &[size]) else { break };
        if ticket.wait_blocking().is_err() {
            break;
        }
        acknowledged = last;
    }
    acknowledged
}

/// Opens what is there; `false` when the volume's tag would refuse it.
fn recover(disks: &[Option<SimDisk>; 2], model: &Model, acknowledged: u64) -> bool {
    let (log, replay) = open(disks).unwrap_or_else(|e| panic!("{e}"));
    drop(log);
    if model.number() - replay.checkpoint > 1 {
        return false;
    }
    model.recover(&replay, acknowledged);
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, ..ProptestConfig::default() })]

    /// The power fails for both, in any write of each: either half alone has all, and both together do.
    #[test]
    fn after_a_power_cut_each_half_has_what_was_acknowledged(
        seed in any::<u64>(),
        cut in 3u64..80,
        apart in 0u64..2,
        first in any::<bool>(),
        left in 0usize..3,
        sizes in prop::collection::vec(0usize..9000, 1..8),
    ) {
        let (disks, model) = (disks(seed), Arc::new(Model::default()));
        let (log, replay) = open(&disks).unwrap();
        model.recover(&replay, 0);
        for (half, disk) in disks.iter().flatten().enumerate() {
            // One of them may get one write further than the other.
            disk.set_fault(Fault::PowerCut(cut + if (half == 0) == first { apart } else { 0 }));
        }
        let acknowledged = match log.start(model.clone()) {
            Ok(()) => operate(&log, &model, 100, &sizes),
            Err(_) => 0,
        };
        drop(log);
        each(&disks, SimDisk::revive);
        let there = match left {
            2 => disks,
            left => { let mut there = disks; there[1 - left] = None; there }
        };
        // Where one got further, the other one was lost for a moment, and may be known to be.
        let may_be_refused = apart == 1 && left == usize::from(first);
        prop_assert!(recover(&there, &model, acknowledged) || may_be_refused);
    }

    /// One half fails, the log goes on, the power fails. What is left has all, also with the lost half beside it; the lost
    /// half alone has all, or is known to have not.
    #[test]
    fn a_half_that_was_lost_is_never_taken_for_a_whole_one(
        seed in any::<u64>(),
        lost in 0usize..2,
        loss in 0u64..40,
        cut in 0u64..40,
        sizes in prop::collection::vec(0usize..9000, 1..8),
        what in 0u8..3,
    ) {
        let (disks, model) = (disks(seed), Arc::new(Model::default()));
        let (log, replay) = open(&disks).unwrap();
        model.recover(&replay, 0);
        disks[lost].as_ref().unwrap().set_fault(Fault::Error(loss));
        disks[1 - lost].as_ref().unwrap().set_fault(Fault::PowerCut(loss + cut));
        let acknowledged = match log.start(model.clone()) {
            Ok(()) => operate(&log, &model, 100, &sizes),
            Err(_) => 0,
        };
        drop(log);
        each(&disks, SimDisk::revive);
        let mut there = disks.clone();
        match what {
            0 => prop_assert!(recover(&there, &model, acknowledged)),
            1 => { there[lost] = None; prop_assert!(recover(&there, &model, acknowledged)); }
            _ => { there[1 - lost] = None; recover(&there, &model, acknowledged); }
        }
    }
}

/// The same for each of a start's own writes, of which there are few.
#[test]
fn a_half_that_is_lost_while_the_log_starts_is_known_to_be() {
    for (lost, loss) in (0..2).flat_map(|lost| (0..8).map(move |loss| (lost, loss))) {
        let (disks, model) = (disks(loss), Arc::new(Model::default()));
        let (log, replay) = open(&disks).unwrap();
        model.recover(&replay, 0);
        disks[lost].as_ref().unwrap().set_fault(Fault::Error(loss));
        log.start(model.clone()).unwrap();
        let acknowledged = operate(&log, &model, 3, &[100]);
        assert_eq!(acknowledged, 3);
        drop(log);
        each(&disks, SimDisk::revive);
        let mut there = disks.clone();
        there[1 - lost] = None;
        recover(&there, &model, acknowledged);
    }
}

/// Nothing is acknowledged between the loss of a half and the moment from which that is known.
#[test]
fn what_only_one_half_has_is_acknowledged_when_the_loss_is_known() {
    let (disks, model) = (disks(3), Arc::new(Model::default()));
    let (log, replay) = open(&disks).unwrap();
    model.recover(&replay, 0);
    log.start(model.clone()).unwrap();
    assert_eq!(operate(&log, &model, 5, &[100]), 5);
    assert_eq!(log.stats().trouble, None);
    let before = model.number();
    disks[1].as_ref().unwrap().set_fault(Fault::Error(0));
    model.hold_sync(true);
    let (last, ticket) = model.operate(&log, &[100]).unwrap();
    ticket.request();
    // The checkpoint that makes it known has begun, so the batch is on the half that is left.
    model.await_sync();
    assert!(ticket.poll_now().is_none());
    model.hold_sync(false);
    ticket.wait_blocking().unwrap();
    assert!(model.number() >= before + 2, "{} after {before}", model.number());
    assert!(log.stats().trouble.unwrap().contains("injected write error"));
    assert_eq!(operate(&log, &model, 3, &[100]), last + 3);
    log.shutdown().unwrap();
    drop(log);
    each(&disks, SimDisk::revive);

    // The lost half alone is refused by the tag, and both together are whole again.
    assert!(!recover(&[None, disks[1].clone()], &model, last + 3));
    let (log, replay) = open(&disks).unwrap();
    model.recover(&replay, last + 3);
    log.start(model.clone()).unwrap();
    assert_eq!(log.stats().trouble, None);
    operate(&log, &model, 3, &[100]);
    drop(log);
    for half in 0..2 {
        let mut there = disks.clone();
        there[half] = None;
        assert!(recover(&there, &model, last + 6));
    }
}

/// A start without one half makes that known before it takes anything.
#[test]
fn a_start_with_one_half_leaves_the_other_one_behind() {
    let (disks, model) = (disks(4), Arc::new(Model::default()));
    let (log, replay) = open(&disks).unwrap();
    model.recover(&replay, 0);
    log.start(model.clone()).unwrap();
    let acknowledged = operate(&log, &model, 4, &[50]);
    drop(log);
    let alone = [disks[0].clone(), None];
    let (log, replay) = open(&alone).unwrap();
    model.recover(&replay, acknowledged);
    log.start(model.clone()).unwrap();
    assert!(log.stats().trouble.is_some());
    let acknowledged = operate(&log, &model, 4, &[50]);
    drop(log);
    assert!(!recover(&[None, disks[1].clone()], &model, acknowledged));
    assert!(recover(&disks, &model, acknowledged));
}

#[test]
fn files_make_a_mirror_and_an_empty_one_becomes_a_copy_again() {
    let dir = tempfile::tempdir().unwrap();
    let paths = [dir.path().join("a"), dir.path().join("b")];
    let config = || Config::new(LogPlace::Mirror(paths.clone()), BYTES as u64, common::VOLUME);
    let model = Arc::new(Model::default());
    let (log, replay) = Log::open(config()).unwrap();
    assert!(replay.fresh);
    model.recover(&replay, 0);
    log.start(model.clone()).unwrap();
    let acknowledged = operate(&log, &model, 10, &[500]);
    assert!(log.info().starts_with("mirror of file "), "{}", log.info());
    drop(log);
    assert_eq!(std::fs::read(&paths[0]).unwrap()[..8], std::fs::read(&paths[1]).unwrap()[..8]);

    // A file that is gone is not made anew: its disk may not be mounted.
    std::fs::remove_file(&paths[1]).unwrap();
    let (log, replay) = Log::open(config()).unwrap();
    model.recover(&replay, acknowledged);
    log.start(model.clone()).unwrap();
    assert!(log.stats().trouble.unwrap().contains("b"));
    assert!(!paths[1].exists());
    let acknowledged = operate(&log, &model, 10, &[500]);
    drop(log);

    std::fs::write(&paths[1], []).unwrap();
    let (log, replay) = Log::open(config()).unwrap();
    model.recover(&replay, acknowledged);
    log.start(model.clone()).unwrap();
    assert_eq!(log.stats().trouble, None);
    let acknowledged = operate(&log, &model, 10, &[500]);
    drop(log);
    let alone = Config::new(paths[1].clone(), BYTES as u64, common::VOLUME);
    let (_log, replay) = Log::open(alone).unwrap();
    model.recover(&replay, acknowledged);
}

#[test]
fn what_is_no_half_of_this_log_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let paths = [dir.path().join("a"), dir.path().join("b")];
    let single = |path: &PathBuf| {
        let model = Arc::new(Model::default());
        let (log, _) = Log::open(Config::new(path.clone(), BYTES as u64, common::VOLUME)).unwrap();
        log.start(model.clone()).unwrap();
        operate(&log, &model, 3, &[10]);
    };
    single(&paths[0]);
    let mirror = || Log::open(Config::new(LogPlace::Mirror(paths.clone()), BYTES as u64, common::VOLUME));
    single(&paths[1]);
    assert!(matches!(mirror(), Err(OpenError::Halves { .. })));
    std::fs::write(&paths[1], vec![7u8; BYTES]).unwrap();
    assert!(matches!(mirror(), Err(OpenError::Foreign { .. })));
    std::fs::write(&paths[1], vec![0u8; BYTES / 2]).unwrap();
    assert!(matches!(mirror(), Err(OpenError::TooSmall { .. })));
    std::fs::write(&paths[1], vec![0u8; BYTES]).unwrap();
    mirror().unwrap();
}
