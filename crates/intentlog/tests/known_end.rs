//! What a superblock knows of the log's end: what was durable when it was written cannot be missing unnoticed.

mod common;

use std::sync::Arc;

use common::{Model, config};
use landfast_intentlog::limits::{BLOCK_BYTES, RING_OFFSET};
use landfast_intentlog::sim::SimDisk;
use landfast_intentlog::{Log, OpenError};

fn started(disk: &SimDisk, model: &Arc<Model>) -> Log {
    let (log, _) = Log::open_device(disk.device(), config()).expect("open");
    log.start(model.clone()).expect("start");
    log
}

/// Offsets of the blocks that begin as a batch does.
fn batches(disk: &SimDisk) -> Vec<usize> {
    let mut found = Vec::new();
    disk.edit(|bytes| {
        found = (RING_OFFSET as usize..bytes.len())
            .step_by(BLOCK_BYTES)
            .filter(|at| bytes[*at..].starts_with(b"LANDFBAT"))
            .collect();
    });
    found
}

/// Until then the end of the log was told by nothing but the log: its last batch could be lost without a trace, and the
/// server's state with it.
#[test]
fn the_last_batch_is_missed_once_a_checkpoint_has_passed() {
    for at in 0..112 + 4 + 9 {
        let (disk, model) = (SimDisk::new(1 << 20, 1), Arc::new(Model::default()));
        let log = started(&disk, &model);
        model.operate(&log, &[100]).expect("appended").1.wait_blocking().expect("acknowledged");
        log.checkpoint_now().expect("a checkpoint");
        drop(log);
        // All that is replayed is the snapshot that the checkpoint began with.
        let last = *batches(&disk).last().expect("a snapshot");
        disk.edit(|bytes| bytes[last + at] ^= 4);
        match Log::open_device(disk.device(), config()) {
            Err(OpenError::Corrupt { what, .. }) => {
                assert!(
                    what.contains(&format!("offset {last}")) && what.contains("a superblock knows"),
                    "{what}"
                );
            }
            other => panic!("byte {at}: {:?}", other.map(|(_, replay)| replay)),
        }
    }
}

#[test]
fn what_came_after_the_last_superblock_ends_the_log_as_a_torn_write_does() {
    let (disk, model) = (SimDisk::new(1 << 20, 1), Arc::new(Model::default()));
    let log = started(&disk, &model);
    for _ in 0..3 {
        model.operate(&log, &[100]).expect("appended").1.wait_blocking().expect("acknowledged");
    }
    drop(log);
    let last = *batches(&disk).last().expect("a batch");
    disk.edit(|bytes| bytes[last + 120] ^= 4);
    let (_, replay) = Log::open_device(disk.device(), config()).expect("open");
    assert_eq!(replay.records.len(), 3, "a snapshot and two effects: {replay:?}");
}

#[test]
fn a_log_of_an_earlier_run_has_both_superblocks_marked_after_a_clean_stop() {
    let (disk, model) = (SimDisk::new(1 << 20, 1), Arc::new(Model::default()));
    let log = started(&disk, &model);
    model.operate(&log, &[100]).expect("appended").1.wait_blocking().expect("acknowledged");
    log.shutdown().expect("stopped");
    drop(log);
    for slot in 0..2 {
        disk.edit(|bytes| bytes[slot * BLOCK_BYTES + 50] ^= 1);
        let (_, replay) = Log::open_device(disk.device(), config()).expect("open");
        assert!(replay.clean, "slot {slot}");
        disk.edit(|bytes| bytes[slot * BLOCK_BYTES + 50] ^= 1);
    }
}
