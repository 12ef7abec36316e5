//! Grouping, the gate, checkpoints, back-pressure, failure and stopping, on a simulated disk that can hold
//! its writes back: no test here depends on how long anything takes.

mod common;

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::{Model, config, start};
use landfast_intentlog::format::Superblock;
use landfast_intentlog::limits::BLOCK_BYTES;
use landfast_intentlog::sim::{Fault, SimDisk};
use landfast_intentlog::{Log, LogError};

const RING: usize = 1 << 20;

fn disk(ring: usize) -> SimDisk {
    SimDisk::new(64 * 1024 + ring, 1)
}

fn started(ring: usize) -> (SimDisk, Arc<Model>, Log) {
    let disk = disk(ring);
    let model = Arc::new(Model::default());
    let log = start(&disk, &model, config());
    (disk, model, log)
}

/// Contents of the disk at this moment, replayed: nothing acknowledged may be missing.
fn recovers(disk: &SimDisk, model: &Model, acknowledged: u64) {
    let copy = SimDisk::new(disk.image().len(), 1);
    copy.edit(|bytes| bytes.copy_from_slice(&disk.image()));
    let (_log, replay) = Log::open_device(copy.device(), config()).unwrap();
    model.recover(&replay, acknowledged);
}

#[test]
fn one_flush_for_each_operation_of_a_single_client() {
    let (_disk, model, log) = started(RING);
    let before = log.stats().flushes;
    for _ in 0..50 {
        model.operate(&log, &[300, 10, 20]).unwrap().1.wait_blocking().unwrap();
    }
    assert_eq!(log.stats().flushes - before, 50);
}

/// A log on which a waiter that is alone makes the flush itself, whatever it takes.
fn led(ring: usize) -> (SimDisk, Arc<Model>, Log) {
    let disk = disk(ring);
    let model = Arc::new(Model::default());
    let mut config = config();
    config.lead_flush = Duration::MAX;
    let log = start(&disk, &model, config);
    // The first flush is the writer's: nobody knows yet how long one takes.
    model.operate(&log, &[1]).unwrap().1.wait_blocking().unwrap();
    assert_eq!(log.stats().led, 0);
    (disk, model, log)
}

/// Somebody waits for a batch and makes its flush, which the disk holds back.
fn leader(disk: &SimDisk, model: &Arc<Model>, log: &Log) -> thread::JoinHandle<Result<(), LogError>> {
    disk.hold(true);
    let ticket = model.operate(log, &[1]).unwrap().1;
    let leader = thread::spawn(move || ticket.wait_blocking());
    disk.await_held();
    leader
}

#[test]
fn a_waiter_that_is_alone_makes_the_flush_itself() {
    let (disk, model, log) = led(RING);
    let before = log.stats().flushes;
    for _ in 0..50 {
        model.operate(&log, &[300, 10]).unwrap().1.wait_blocking().unwrap();
    }
    let stats = log.stats();
    assert_eq!((stats.led, stats.flushes - before), (50, 50));
    recovers(&disk, &model, 101);
    // Not when another is known to be coming, and not when it may have to wait for long.
    let other = log.expect();
    assert!(!other.in_company());
    let ticket = model.operate(&log, &[1]).unwrap().1;
    ticket.wait_blocking().unwrap();
    drop(other);
    assert_eq!(log.stats().led, 50);
    drop(log);
    let mut config = config();
    config.lead_flush = Duration::ZERO;
    let log = start(&disk, &model, config);
    for _ in 0..5 {
        model.operate(&log, &[1]).unwrap().1.wait_blocking().unwrap();
    }
    assert_eq!(log.stats().led, 0);
}

/// For a thread that nobody waits for: it makes the flush however long that takes, unless others share it; if it fails, it fails all who wait.
#[test]
fn who_waits_on_a_thread_of_its_own_flushes_there() {
    let disk = disk(RING);
    let model = Arc::new(Model::default());
    let mut config = config();
    config.lead_flush = Duration::ZERO;
    let log = start(&disk, &model, config);
    let waits_here = |ticket: landfast_intentlog::Ticket| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        thread::spawn(move || runtime.block_on(ticket.wait_here()))
    };
    for _ in 0..10 {
        waits_here(model.operate(&log, &[300]).unwrap().1).join().unwrap().unwrap();
    }
    assert_eq!(log.stats().led, 10);
    // Another is known to be coming.
    let other = log.expect();
    waits_here(model.operate(&log, &[1]).unwrap().1).join().unwrap().unwrap();
    drop(other);
    assert_eq!(log.stats().led, 10);
    recovers(&disk, &model, 11);

    disk.hold(true);
    disk.set_fault(Fault::ErrorOnce(0));
    let leader = waits_here(model.operate(&log, &[1]).unwrap().1);
    disk.await_held();
    let rest: Vec<_> = (0..5).map(|_| model.operate(&log, &[1]).unwrap().1).collect();
    let behind = waits_here(rest[0].clone());
    disk.hold(false);
    assert!(matches!(leader.join().unwrap(), Err(LogError::Failed(_))));
    assert!(matches!(behind.join().unwrap(), Err(LogError::Failed(_))));
    assert!(rest.iter().all(|ticket| matches!(ticket.wait_blocking(), Err(LogError::Failed(_)))));
    assert!(matches!(model.operate(&log, &[1]).map(drop), Err(LogError::Failed(_))));
}

#[test]
fn what_commits_while_a_waiter_makes_the_flush_shares_the_next() {
    let (disk, model, log) = led(RING);
    let leader = leader(&disk, &model, &log);
    let before = log.stats();
    let rest: Vec<_> = (0..20).map(|_| model.operate(&log, &[1]).unwrap().1).collect();
    // Asked for while the device is the leader's: nobody writes beside it.
    rest.iter().for_each(landfast_intentlog::Ticket::request);
    assert!(rest.iter().all(|ticket| ticket.poll_now().is_none()));
    disk.hold(false);
    leader.join().unwrap().unwrap();
    for ticket in rest {
        ticket.wait_blocking().unwrap();
    }
    let stats = log.stats();
    assert_eq!((stats.batches - before.batches, stats.led - before.led), (2, 1));
    recovers(&disk, &model, 22);
    // There is company now, so that requests let others announce themselves; after a while of none they do not.
    assert!(log.expect().in_company());
    let mut alone = 0;
    while log.expect().in_company() {
        model.operate(&log, &[1]).unwrap().1.wait_blocking().unwrap();
        alone += 1;
        assert!(alone <= 2 * landfast_intentlog::limits::COMPANY_BATCHES, "for ever in company");
    }
}

/// Each thread one at a time. With one no batch waits for company; with two and eight some do, and none for long.
#[test]
fn company_is_waited_for_where_there_is_some() {
    for (clients, waits) in [(1, false), (2, true), (8, true)] {
        let disk = disk(RING);
        let model = Arc::new(Model::default());
        let mut config = config();
        config.injected_flush = Some(Duration::from_millis(1));
        let log = start(&disk, &model, config);
        thread::scope(|s| {
            for _ in 0..clients {
                s.spawn(|| {
                    for _ in 0..50 {
                        model.operate(&log, &[10]).unwrap().1.wait_blocking().unwrap();
                    }
                });
            }
        });
        let stats = log.stats();
        assert_eq!(stats.company_waits > 0, waits, "{clients}: {stats:?}");
        assert!(stats.company_vain <= stats.company_waits);
        recovers(&disk, &model, clients * 50);
    }
}

#[test]
fn an_error_of_a_flush_that_a_waiter_makes_fails_the_log() {
    let (disk, model, log) = led(RING);
    disk.set_fault(Fault::ErrorOnce(0));
    assert!(matches!(model.operate(&log, &[1]).unwrap().1.wait_blocking(), Err(LogError::Failed(_))));
    assert!(matches!(log.begin(), Err(LogError::Failed(_))));
    assert!(log.failed().is_some());
    recovers(&disk, &model, 1);
}

#[test]
fn stopping_waits_for_a_flush_that_a_waiter_makes() {
    let (disk, model, log) = led(RING);
    let leader_of_shutdown = leader(&disk, &model, &log);
    let stopper = thread::spawn({
        let log = log.clone();
        move || log.shutdown()
    });
    while !matches!(log.begin(), Err(LogError::Closed)) {
        thread::yield_now();
    }
    disk.hold(false);
    leader_of_shutdown.join().unwrap().unwrap();
    stopper.join().unwrap().unwrap();
    drop(log);
    let log = {
        let (log, replay) = Log::open_device(disk.device(), config()).unwrap();
        assert!(replay.clean);
        log.start(model.clone()).unwrap();
        log
    };
    drop(log);

    // A drop is as a crash for what was not acknowledged, and does not leave the device in use behind it.
    let (disk, model, log) = led(RING);
    let lost = leader(&disk, &model, &log);
    let dropper = thread::spawn(move || drop(log));
    while disk.writes() == 0 || !dropper.is_finished() {
        disk.hold(false);
        thread::yield_now();
    }
    dropper.join().unwrap();
    // Acknowledged or not, as the one or the other came first; nothing that was is missing.
    let acknowledged = if lost.join().unwrap().is_ok() { 2 } else { 1 };
    recovers(&disk, &model, acknowledged);
}

#[test]
fn what_commits_during_a_flush_shares_the_next() {
    let (disk, model, log) = started(RING);
    disk.hold(true);
    let first = model.operate(&log, &[1]).unwrap().1;
    first.request();
    disk.await_held();
    let before = log.stats().batches;
    let rest: Vec<_> = (0..20).map(|_| model.operate(&log, &[1]).unwrap().1).collect();
    assert_eq!(first.poll_now(), None);
    disk.hold(false);
    for ticket in rest {
        ticket.wait_blocking().unwrap();
    }
    assert_eq!(log.stats().batches - before, 2);
}

#[test]
fn requests_in_hand_join_before_the_seal_and_later_ones_are_not_waited_for() {
    let disk = disk(RING);
    let model = Arc::new(Model::default());
    let mut config = config();
    config.intent_wait = Duration::from_secs(3600);
    let log = start(&disk, &model, config);
    let before = log.stats().batches;
    let mut intents: Vec<_> = (0..8).map(|_| log.expect()).collect();
    // The first is done and asks; the writer waits for the seven others.
    let mut tickets = vec![model.operate(&log, &[10]).unwrap().1];
    intents.pop();
    tickets[0].request();
    while log.stats().intent_waits == 0 {
        thread::yield_now();
    }
    // One that comes now and never commits holds nobody up.
    std::mem::forget(log.expect());
    for intent in intents {
        assert_eq!(log.stats().batches, before);
        tickets.push(model.operate(&log, &[10]).unwrap().1);
        drop(intent);
    }
    for ticket in tickets {
        ticket.wait_blocking().unwrap();
    }
    assert_eq!(log.stats().batches - before, 1);
    assert_eq!(log.stats().intent_timeouts, 0);
}

#[test]
fn a_request_that_does_not_come_delays_one_seal_only() {
    let (_disk, model, log) = started(RING);
    std::mem::forget(log.expect());
    for _ in 0..10 {
        model.operate(&log, &[10]).unwrap().1.wait_blocking().unwrap();
    }
    let stats = log.stats();
    assert_eq!((stats.intent_waits, stats.intent_timeouts), (1, 1));
}

#[test]
fn sealing_waits_for_open_transactions_and_takes_them_whole() {
    let (disk, model, log) = started(RING);
    let mut txn = log.begin().unwrap();
    let record =
        |effect: u64, index: u8, of: u8| [b"E".as_slice(), &effect.to_le_bytes(), &[index, of]].concat();
    txn.append(&record(1, 0, 2));
    // Somebody waits while the transaction is open.
    let (asked, has_asked) = mpsc::channel();
    let waiter = thread::spawn({
        let log = log.clone();
        move || {
            let ticket = log.begin().unwrap().commit();
            ticket.request();
            asked.send(()).unwrap();
            ticket.wait_blocking()
        }
    });
    has_asked.recv().unwrap();
    txn.append(&record(2, 1, 2));
    let ticket = txn.commit();
    ticket.wait_blocking().unwrap();
    waiter.join().unwrap().unwrap();
    recovers(&disk, &model, 2);
}

#[test]
fn a_lock_held_by_one_who_waits_to_begin_does_not_stop_the_log() {
    let (_disk, _model, log) = started(RING);
    let lock = Arc::new(parking_lot::Mutex::new(()));
    let mut inside = log.begin().unwrap();
    inside.append(b"x");
    let held = lock.lock();
    // The log wants to seal: the gate closes behind `inside`.
    let sealer = thread::spawn({
        let log = log.clone();
        move || log.checkpoint_now()
    });
    // `inside` needs the lock, its holder wants to begin.
    let wants_lock = thread::spawn({
        let lock = lock.clone();
        move || {
            let _held = lock.lock();
            inside.commit()
        }
    });
    while log.stats().gate_reopened == 0 {
        thread::yield_now();
    }
    let mut late = log.begin().unwrap();
    late.append(b"y");
    let late = late.commit();
    drop(held);
    wants_lock.join().unwrap().wait_blocking().unwrap();
    late.wait_blocking().unwrap();
    sealer.join().unwrap().unwrap();
}

#[test]
fn nothing_is_freed_before_the_volume_is_durable() {
    let (disk, model, log) = started(RING);
    let mut last = 0;
    for _ in 0..10 {
        let (effect, ticket) = model.operate(&log, &[100]).unwrap();
        ticket.wait_blocking().unwrap();
        last = effect;
    }
    model.hold_sync(true);
    let checkpoint = thread::spawn({
        let log = log.clone();
        move || log.checkpoint_now()
    });
    model.await_sync();
    let used = log.stats().used;
    // Operations go on meanwhile, more than one batch.
    for _ in 0..10 {
        let (effect, ticket) = model.operate(&log, &[100]).unwrap();
        ticket.wait_blocking().unwrap();
        last = effect;
    }
    assert!(log.stats().used > used);
    recovers(&disk, &model, last);
    // That was a copy of the disk; the log itself goes on.
    model.hold_sync(false);
    checkpoint.join().unwrap().unwrap();
    let stats = log.stats();
    assert!(stats.used < used, "{stats:?}");
    assert_eq!((stats.checkpoints, stats.checkpoint), (1, 3), "a start makes two");
    recovers(&disk, &model, last);
}

#[test]
fn a_checkpoint_asked_for_while_a_snapshot_is_taken_ends_with_that_one() {
    let (_disk, model, log) = started(RING);
    model.operate(&log, &[1]).unwrap();
    let (ended, has_ended) = mpsc::channel();
    model.in_snapshot({
        let log = log.clone();
        move || {
            let (begun, has_begun) = mpsc::channel();
            thread::spawn(move || {
                begun.send(rustix::thread::gettid()).unwrap();
                ended.send(log.checkpoint_now())
            });
            // The call is to fall into the snapshot: it has when its thread sleeps.
            let stat = format!("/proc/self/task/{}/stat", has_begun.recv().unwrap().as_raw_nonzero());
            while !std::fs::read_to_string(&stat).unwrap().rsplit(')').next().unwrap().starts_with(" S") {
                thread::yield_now();
            }
        }
    });
    log.checkpoint_now().unwrap();
    has_ended.recv_timeout(Duration::from_secs(20)).expect("the second call never ends").unwrap();
    assert_eq!(log.stats().checkpoints, 1);
}

#[test]
fn no_checkpoint_if_nothing_was_logged() {
    let (disk, model, log) = started(RING);
    let writes = disk.writes();
    log.checkpoint_now().unwrap();
    log.checkpoint_now().unwrap();
    assert_eq!(disk.writes(), writes);
    model.operate(&log, &[1]).unwrap();
    log.checkpoint_now().unwrap();
    assert_eq!(log.stats().checkpoints, 1);
    log.checkpoint_now().unwrap();
    assert_eq!(log.stats().checkpoints, 1);
}

#[test]
fn a_checkpoint_comes_by_itself_after_the_set_time_and_when_half_full() {
    let disk = disk(RING);
    let model = Arc::new(Model::default());
    let mut timed = config();
    timed.checkpoint_after = Duration::from_millis(1);
    let log = start(&disk, &model, timed);
    model.operate(&log, &[1]).unwrap();
    while log.stats().checkpoints < 1 {
        thread::yield_now();
    }
    drop(log);
    let model = Arc::new(Model::default());
    let disk = self::disk(RING);
    let log = start(&disk, &model, config());
    while log.stats().checkpoints < 1 {
        model.operate(&log, &[10_000]).unwrap().1.wait_blocking().unwrap();
        assert!(log.stats().record_bytes < RING as u64, "it was more than half full");
    }
}

#[test]
fn a_transaction_larger_than_what_is_left_or_than_the_ring_neither_hangs_nor_is_lost() {
    for (ring, size) in [(256 << 10, 200 << 10), (256 << 10, 255 << 10), (256 << 10, 3 << 20)] {
        let (disk, model, log) = started(ring);
        model.set_snapshot_bytes(9_000);
        let mut acknowledged = 0;
        for _ in 0..4 {
            model.operate(&log, &[100]).unwrap().1.wait_blocking().unwrap();
            let (effect, ticket) = model.operate(&log, &[5, size / 2, size / 2]).unwrap();
            ticket.wait_blocking().unwrap();
            acknowledged = effect;
        }
        log.checkpoint_now().unwrap();
        let stats = log.stats();
        assert!(stats.used <= stats.capacity && stats.pending == 0, "{stats:?}");
        // The first size fits as soon as the checkpoint that its predecessor brings about is done.
        assert!(stats.absorbed > 0 || size < 255 << 10, "{stats:?}");
        recovers(&disk, &model, acknowledged);
    }
}

#[test]
fn room_for_a_snapshot_is_kept() {
    let (disk, model, log) = started(256 << 10);
    model.set_snapshot_bytes(20_000);
    model.operate(&log, &[1]).unwrap();
    log.checkpoint_now().unwrap();
    // Would fit if the reserve did not count, and leave no room for the next snapshot.
    let left = log.stats().capacity - log.stats().used;
    let (_, ticket) = model.operate(&log, &[left as usize - 5_000]).unwrap();
    ticket.wait_blocking().unwrap();
    let (last, ticket) = model.operate(&log, &[1]).unwrap();
    ticket.wait_blocking().unwrap();
    log.checkpoint_now().unwrap();
    recovers(&disk, &model, last);
}

#[test]
fn absorbing_is_complete_when_its_snapshot_is_durable() {
    let (disk, model, log) = started(256 << 10);
    model.operate(&log, &[100]).unwrap().1.wait_blocking().unwrap();
    // Larger than the ring. First the snapshot is written, then the superblock, which fails.
    disk.set_fault(Fault::Error(1));
    let (_, ticket) = model.operate(&log, &[300 << 10]).unwrap();
    assert!(matches!(ticket.wait_blocking(), Err(LogError::Failed(_))));
    drop(log);
    disk.revive();
    let (log, replay) = Log::open_device(disk.device(), config()).unwrap();
    assert_eq!(replay.records.len(), 1, "the older records no longer count");
    assert_eq!(replay.checkpoint, 3);
    model.recover(&replay, 2);
    log.start(model).unwrap();
}

#[test]
fn a_crash_between_snapshot_and_superblock_leaves_room_for_the_next_start() {
    for (snapshot, size) in [(40_000, 180_000), (260_000, 200_000), (300_000, 180_000), (400_000, 50_000)] {
        let disk = disk(RING);
        let model = Arc::new(Model::default());
        model.set_snapshot_bytes(snapshot);
        let log = start(&disk, &model, config());
        // The operation's batch, the snapshot, the superblock: the last fails.
        disk.set_fault(Fault::Error(2));
        let (last, ticket) = model.operate(&log, &[size]).unwrap();
        let acknowledged = if ticket.wait_blocking().is_ok() { last } else { 0 };
        assert!(matches!(log.checkpoint_now(), Err(LogError::Failed(_))));
        drop(log);
        disk.revive();
        let (log, replay) = Log::open_device(disk.device(), config()).unwrap();
        model.recover(&replay, acknowledged);
        log.start(model).unwrap_or_else(|error| panic!("snapshot of {snapshot} bytes: {error}"));
    }
}

#[test]
fn a_snapshot_larger_than_the_ring_is_an_error_and_says_so() {
    let (_disk, model, log) = started(256 << 10);
    model.set_snapshot_bytes(1 << 20);
    model.operate(&log, &[1]).unwrap();
    let error = log.checkpoint_now().unwrap_err();
    assert!(error.to_string().contains("too small"), "{error}");
}

#[test]
fn admission_waits_when_nearly_full_and_goes_on_when_space_is_free() {
    let (_disk, model, log) = started(RING);
    model.operate(&log, &[1]).unwrap().1.wait_blocking().unwrap();
    model.hold_sync(true);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Fill it with a checkpoint under way that does not end.
    let capacity = log.stats().capacity as usize;
    while log.stats().used < capacity as u64 * 90 / 100 {
        model.operate(&log, &[capacity / 50]).unwrap().1.wait_blocking().unwrap();
    }
    model.await_sync();
    let waiting = runtime
        .block_on(async { tokio::time::timeout(Duration::from_millis(30), log.admit()).await.is_err() });
    assert!(waiting, "{:?}", log.stats());
    assert!(log.stats().admit_waited > 0);
    let blocked = thread::spawn({
        let log = log.clone();
        move || log.admit_blocking()
    });
    model.hold_sync(false);
    runtime.block_on(log.admit()).unwrap();
    blocked.join().unwrap().unwrap();
}

#[test]
fn admission_never_waits_for_a_checkpoint_that_is_not_due_however_large_the_snapshot() {
    for snapshot in [0, 200_000, 300_000] {
        let model = Arc::new(Model::default());
        model.set_snapshot_bytes(snapshot);
        let log = start(&disk(RING), &model, config());
        let (ended, has_ended) = mpsc::channel();
        let worker = thread::spawn({
            let (log, model) = (log.clone(), model.clone());
            move || {
                for _ in 0..300 {
                    log.admit_blocking().unwrap();
                    model.operate(&log, &[9_000]).unwrap().1.wait_blocking().unwrap();
                }
                ended.send(()).unwrap();
            }
        });
        has_ended
            .recv_timeout(Duration::from_secs(30))
            .unwrap_or_else(|_| panic!("stuck: {:?}", log.stats()));
        worker.join().unwrap();
    }
}

#[test]
fn nobody_who_ignores_admission_is_stuck_in_a_full_ring() {
    let (_disk, model, log) = started(256 << 10);
    model.hold_sync(true);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (log, model) = (log.clone(), model.clone());
            thread::spawn(move || {
                for _ in 0..30 {
                    model.operate(&log, &[9_000]).unwrap().1.wait_blocking().unwrap();
                }
            })
        })
        .collect();
    model.await_sync();
    model.hold_sync(false);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn after_an_error_every_waiter_fails_and_nothing_succeeds_again() {
    for fault in [Fault::Error(0), Fault::ErrorOnce(0), Fault::ErrorOnce(1), Fault::PowerCut(1)] {
        let (disk, model, log) = started(RING);
        model.operate(&log, &[1]).unwrap().1.wait_blocking().unwrap();
        disk.set_fault(fault);
        disk.hold(true);
        let first = model.operate(&log, &[1]).unwrap().1;
        first.request();
        disk.await_held();
        let next: Vec<_> = (0..5).map(|_| model.operate(&log, &[1]).unwrap().1).collect();
        let threads: Vec<_> =
            next.iter().cloned().map(|ticket| thread::spawn(move || ticket.wait_blocking())).collect();
        let open = log.begin().unwrap();
        thread::spawn(move || disk.hold(false)).join().unwrap();
        // The second batch cannot be sealed while `open` is; the error of a first comes without it.
        if !matches!(fault, Fault::Error(0) | Fault::ErrorOnce(0)) {
            first.wait_blocking().unwrap();
            assert!(matches!(open.commit().wait_blocking(), Err(LogError::Failed(_))));
        } else {
            assert!(matches!(first.wait_blocking(), Err(LogError::Failed(_))));
            assert!(matches!(open.commit().wait_blocking(), Err(LogError::Failed(_))));
        }
        for thread in threads {
            assert!(matches!(thread.join().unwrap(), Err(LogError::Failed(_))));
        }
        assert!(log.failed().is_some_and(|why| why.contains("injected")));
        assert!(matches!(log.begin(), Err(LogError::Failed(_))));
        assert!(matches!(log.admit_blocking(), Err(LogError::Failed(_))));
        assert!(matches!(log.checkpoint_now(), Err(LogError::Failed(_))));
        assert!(matches!(log.shutdown(), Err(LogError::Failed(_))));
    }
}

#[test]
fn a_failed_checkpoint_fails_the_log() {
    let (disk, model, log) = started(RING);
    let (last, ticket) = model.operate(&log, &[1]).unwrap();
    ticket.wait_blocking().unwrap();
    model.set_sync_error();
    assert!(matches!(log.checkpoint_now(), Err(LogError::Failed(_))));
    assert!(matches!(log.begin(), Err(LogError::Failed(_))));
    drop(log);
    recovers(&disk, &model, last);
}

#[test]
fn a_write_that_succeeds_after_a_checkpoint_has_failed_is_not_acknowledged() {
    let (disk, model, log) = started(RING);
    // On the disk before the cut, so that the write that is held back is the one after it.
    model.operate(&log, &[1]).unwrap().1.wait_blocking().unwrap();
    model.hold_sync(true);
    let checkpoint = thread::spawn({
        let log = log.clone();
        move || log.checkpoint_now()
    });
    model.await_sync();
    disk.hold(true);
    let ticket = model.operate(&log, &[1]).unwrap().1;
    ticket.request();
    disk.await_held();
    model.set_sync_error();
    model.hold_sync(false);
    assert!(matches!(checkpoint.join().unwrap(), Err(LogError::Failed(_))));
    disk.hold(false);
    assert!(matches!(ticket.wait_blocking(), Err(LogError::Failed(_))));
    // The batch counts as written once the write is through; the failure must outlast that.
    while log.stats().batches < 2 {
        thread::yield_now();
    }
    for _ in 0..1000 {
        assert!(matches!(log.begin(), Err(LogError::Failed(_))));
        thread::yield_now();
    }
    assert!(matches!(log.shutdown(), Err(LogError::Failed(_))));
}

#[test]
fn a_failed_superblock_fails_the_log_and_loses_nothing() {
    let (disk, model, log) = started(RING);
    let (last, ticket) = model.operate(&log, &[1]).unwrap();
    ticket.wait_blocking().unwrap();
    // The snapshot's batch is written first.
    disk.set_fault(Fault::Error(1));
    assert!(matches!(log.checkpoint_now(), Err(LogError::Failed(_))));
    drop(log);
    recovers(&disk, &model, last);
}

#[test]
fn shutdown_waits_for_open_transactions_and_marks_the_log_clean() {
    let (disk, model, log) = started(RING);
    let mut txn = log.begin().unwrap();
    txn.append(b"E\x01\0\0\0\0\0\0\0\0\x01");
    let stopper = thread::spawn({
        let log = log.clone();
        move || log.shutdown()
    });
    while !matches!(log.begin(), Err(LogError::Closed)) {
        thread::yield_now();
    }
    let ticket = txn.commit();
    stopper.join().unwrap().unwrap();
    ticket.wait_blocking().unwrap();
    assert_eq!(log.shutdown(), Ok(()));
    drop(log);
    let (log, replay) = Log::open_device(disk.device(), config()).unwrap();
    assert!(replay.clean);
    assert_eq!(replay.records.len(), 1, "a snapshot and nothing else");
    // A clean end that is not followed by a start stays clean.
    drop(log);
    let (log, replay) = Log::open_device(disk.device(), config()).unwrap();
    assert!(replay.clean);
    log.start(model.clone()).unwrap();
    drop(log);
    let (_log, replay) = Log::open_device(disk.device(), config()).unwrap();
    assert!(!replay.clean, "it was started and not shut down");
}

#[test]
fn dropping_the_log_answers_everybody() {
    let (disk, model, log) = started(RING);
    disk.hold(true);
    let ticket = model.operate(&log, &[1]).unwrap().1;
    ticket.request();
    disk.await_held();
    let next = model.operate(&log, &[1]).unwrap().1;
    let dropper = thread::spawn(move || drop(log));
    assert_eq!(next.wait_blocking(), Err(LogError::Closed));
    disk.hold(false);
    dropper.join().unwrap();
    assert!(ticket.wait_blocking().is_err());
}

#[test]
fn order_of_calls_is_checked() {
    let disk = disk(RING);
    let (log, replay) = Log::open_device(disk.device(), config()).unwrap();
    assert!(replay.fresh);
    assert!(matches!(log.begin(), Err(LogError::NotStarted)));
    assert_eq!(log.checkpoint_now(), Err(LogError::NotStarted));
    let model = Arc::new(Model::default());
    log.start(model.clone()).unwrap();
    assert_eq!(log.start(model), Err(LogError::AlreadyStarted));
}

#[test]
fn each_start_draws_a_new_salt_and_leaves_no_superblock_of_an_earlier_run() {
    let (disk, model, log) = started(RING);
    let salts = |disk: &SimDisk| {
        let image = disk.image();
        [0, 1].map(|slot| {
            Superblock::decode(&image[slot * BLOCK_BYTES..(slot + 1) * BLOCK_BYTES]).unwrap().identity.salt
        })
    };
    let first = salts(&disk);
    drop(log);
    let log = start(&disk, &model, config());
    let second = salts(&disk);
    assert_eq!(first[0], first[1]);
    assert_eq!(second[0], second[1]);
    assert_ne!(first, second);
    drop(log);
}

#[test]
fn async_waiters_are_woken_and_may_give_up() {
    let (disk, model, log) = started(RING);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    disk.hold(true);
    let tickets: Vec<_> = (0..50).map(|_| model.operate(&log, &[1]).unwrap().1).collect();
    runtime.block_on(async {
        let given_up = tokio::time::timeout(Duration::from_millis(5), tickets[0].wait()).await;
        assert!(given_up.is_err());
        let tasks: Vec<_> =
            tickets.into_iter().map(|ticket| tokio::spawn(async move { ticket.wait().await })).collect();
        disk.hold(false);
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    });
}
