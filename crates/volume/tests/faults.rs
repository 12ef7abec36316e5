//! Deliberate faults of the volume: each point is passed, and the bugs that show without a power cut are seen.
#![cfg(debug_assertions)]

mod common;

use std::sync::Arc;

use common::*;
use landfast_volume::faults::{Bug, passes, with};
use landfast_volume::*;

/// Opens again as after a crash, with a bug in the opening.
fn crash_with(rig: Rig, bug: Option<Bug>) -> Rig {
    let Rig { temp, beside, volume, .. } = rig;
    drop(volume);
    let (volume, report) =
        with(bug, || Volume::open(options(temp.path(), beside.path(), Durability::Log))).expect("open");
    volume.start(Arc::new(NoNotes)).expect("start");
    Rig { temp, beside, volume, report }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn each_point_of_an_operation_is_passed() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    let created = rig.create(&root(), &rig.volume.root(), "f").expect("create");
    let data = bytes::Bytes::from(vec![7; 2 << 20]);
    rig.run(|tx| rig.volume.write(tx, &created.file, 0, data, Stable::FileSync)).expect("write");
    // An open file keeps the volume.
    drop(created);
    let rig = rig.crash();
    for name in
        ["tx.joined", "op.applied", "commit.flushed", "volume.tagged", "recovery.begin", "recovery.emptied"]
    {
        assert!(passes(name) > 0, "{name}");
    }
    drop(rig);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_kept_verifier_is_the_same_after_a_crash_and_otherwise_it_is_another() {
    if !tempdir_suits() {
        return;
    }
    let rig = crash_with(Rig::log(), Some(Bug::VerifierKept));
    let kept = rig.volume.write_verifier();
    let rig = crash_with(rig, Some(Bug::VerifierKept));
    assert_eq!(rig.volume.write_verifier(), kept);
    let rig = crash_with(rig, None);
    assert_ne!(rig.volume.write_verifier(), kept);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_reply_apart_comes_after_its_effect_is_durable() {
    if !tempdir_suits() {
        return;
    }
    for (bug, records) in [(None, 1), (Some(Bug::ReplyApart), 0)] {
        let rig = Rig::log();
        let before = rig.volume.stats().log.expect("log").batches;
        with(bug, || {
            let mut tx = rig.volume.tx();
            rig.volume.mkdir(&mut tx, &root(), &rig.volume.root(), b"d", mode(0o755)).expect("mkdir");
            tx.note(b"reply".to_vec());
            tx.finish().wait_blocking().expect("wait");
        });
        assert_eq!(rig.volume.stats().log.expect("log").batches - before, 1);
        // Without the log's last batch, for which nobody waited.
        let rig = rig.crash();
        assert_eq!(rig.report.notes.len(), records, "{bug:?}");
    }
}
