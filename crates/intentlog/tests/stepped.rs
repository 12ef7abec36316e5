//! The log in steps: the same choices give the same bytes, nothing waits, and after any number of lives on a disk whose power
//! fails the oracle of `common` holds. Deliberate bugs in the order of things are seen.

mod common;

use std::collections::HashSet;
use std::sync::Arc;

use common::{Model, config};
use landfast_intentlog::admit::Pressure;
use landfast_intentlog::sim::{Fault, SimDisk};
use landfast_intentlog::step::{Did, Step, Wait};
use landfast_intentlog::{Config, Log, Stepper, Ticket};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const BYTES: usize = 64 * 1024 + 256 * 1024;

fn seeded(seed: u64) -> Config {
    Config { seed: Some(seed), ..config() }
}

fn start(disk: &SimDisk, model: &Arc<Model>, seed: u64) -> (Log, Stepper) {
    let (log, _) = Log::open_device(disk.device(), seeded(seed)).unwrap();
    let stepper = log.start_stepped(model.clone()).unwrap();
    (log, stepper)
}

/// Some lives, each ended by a power cut or a stop in order; what was done, and the image at the end.
fn lives(seed: u64, seen: &mut HashSet<Did>) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(seed);
    let disk = SimDisk::new(BYTES, seed);
    let model = Arc::new(Model::default());
    let mut acknowledged = 0;
    for life in 0..3 {
        let (log, replay) = Log::open_device(disk.device(), seeded(seed * 10 + life)).unwrap();
        model.recover(&replay, acknowledged);
        let mut stepper = log.start_stepped(model.clone()).unwrap();
        if rng.random_bool(0.7) {
            disk.set_fault(Fault::PowerCut(rng.random_range(0..60)));
        }
        let snapshot = *[0, 100, 6_000].get(rng.random_range(0..3)).unwrap();
        model.set_snapshot_bytes(snapshot);
        acknowledged = acknowledged.max(live(&log, &mut stepper, &model, &mut rng, seen));
        disk.revive();
    }
    disk.image()
}

fn live(log: &Log, stepper: &mut Stepper, model: &Model, rng: &mut StdRng, seen: &mut HashSet<Did>) -> u64 {
    let mut tickets: Vec<(u64, Ticket)> = Vec::new();
    for _ in 0..400 {
        let step = match rng.random_range(0..10) {
            0..=2 if stepper.admit() == Ok(Pressure::Go) || rng.random_bool(0.05) => {
                let most = if rng.random_bool(0.1) { 40_000 } else { 900 };
                let most = if rng.random_bool(0.01) { 400_000 } else { most };
                let size = rng.random_range(0..most);
                match model.operate(log, &[size, 3]) {
                    Ok(operated) => tickets.push(operated),
                    Err(_) => break,
                }
                continue;
            }
            3 => {
                let Some((_, ticket)) = tickets.last() else { continue };
                stepper.lead(ticket)
            }
            4 => {
                tickets.iter().for_each(|(_, ticket)| ticket.request());
                continue;
            }
            5 if rng.random_bool(0.2) => {
                stepper.ask_checkpoint();
                continue;
            }
            6 if rng.random_bool(0.01) => stepper.stop(),
            7 => stepper.checkpoint(),
            _ => stepper.write(),
        };
        match step {
            Step::Did(did) => {
                seen.insert(did);
            }
            Step::Ended => break,
            Step::Idle | Step::Blocked(_) => {}
        }
    }
    tickets.iter().filter(|(_, t)| t.poll_now() == Some(Ok(()))).map(|(last, _)| *last).max().unwrap_or(0)
}

#[test]
fn the_same_choices_give_the_same_bytes_and_the_oracle_holds() {
    let mut seen = HashSet::new();
    for seed in 1..400 {
        let first = lives(seed, &mut seen);
        if seed < 20 {
            assert!(lives(seed, &mut seen) == first, "seed {seed}");
        }
    }
    for did in [
        Did::Sealed,
        Did::Cut,
        Did::CutPlaced,
        Did::Wrote,
        Did::MovedTail,
        Did::AbsorbCut,
        Did::AbsorbSynced,
        Did::Absorbed,
        Did::MarkedClean,
        Did::AskedForCut,
        Did::Synced,
        Did::Led,
        Did::AskedToStop,
    ] {
        assert!(seen.contains(&did), "{did:?} never came");
    }
}

/// A log that was nearly full when it absorbed a batch, and whose power failed when the restart batch was durable and the superblock
/// that frees what is before it was not. Also gives the last acknowledged effect.
fn absorbed() -> (SimDisk, Arc<Model>, u64) {
    let disk = SimDisk::new(BYTES, 1);
    let model = Arc::new(Model::default());
    let (log, mut stepper) = start(&disk, &model, 1);
    // Some blocks: the reserve has room for one such snapshot.
    model.set_snapshot_bytes(10_000);
    let mut acknowledged = 0;
    loop {
        let (last, ticket) = model.operate(&log, &[3_000]).unwrap();
        ticket.request();
        while ticket.poll_now().is_none() {
            match stepper.write() {
                Step::Did(Did::AbsorbSynced) => disk.set_fault(Fault::Error(1)),
                Step::Ended => {
                    disk.revive();
                    return (disk, model, acknowledged);
                }
                _ => {}
            }
        }
        if ticket.poll_now() == Some(Ok(())) {
            acknowledged = last;
        }
    }
}

#[test]
fn the_next_start_does_not_write_over_what_leads_to_a_restart_batch() {
    for writes in 0..4 {
        let (disk, model, acknowledged) = absorbed();
        let (log, replay) = Log::open_device(disk.device(), seeded(2)).unwrap();
        model.recover(&replay, acknowledged);
        disk.set_fault(Fault::Error(writes));
        assert!(log.start_stepped(model.clone()).is_err(), "power fails in write {writes}");
        drop(log);
        disk.revive();
        let (log, replay) = Log::open_device(disk.device(), seeded(3))
            .unwrap_or_else(|e| panic!("power failed in write {writes}: {e}"));
        model.recover(&replay, acknowledged);
        log.start_stepped(model.clone()).unwrap();
    }
}

/// Whoever fills the batch of the first part closes it, so that it is written before the next part is asked for; and that is empty.
#[test]
fn a_snapshot_whose_last_part_is_empty_ends() {
    let disk = SimDisk::new(BYTES, 1);
    let model = Arc::new(Model::default());
    let (log, mut stepper) = start(&disk, &model, 1);
    model.set_snapshot_bytes(101);
    model.operate(&log, &[3]).unwrap();
    stepper.ask_checkpoint();
    while stepper.write() != Step::Did(Did::Cut) {
        stepper.checkpoint();
    }
    model.operate(&log, &[40_000]).unwrap();
    let moved = (0..50).any(|_| {
        stepper.checkpoint();
        stepper.write() == Step::Did(Did::MovedTail)
    });
    assert!(moved, "the checkpoint does not end");
}

#[test]
#[cfg(debug_assertions)]
fn deliberate_bugs_of_the_log_are_seen() {
    use landfast_intentlog::faults::{Bug, with};
    let seen = [Bug::ReplyBeforeFlush, Bug::FlushErrorIgnored, Bug::CutLate].map(|bug| {
        let caught =
            |seed| std::panic::catch_unwind(|| with(Some(bug), || lives(seed, &mut HashSet::new()))).is_err();
        (bug, (1..200).any(caught))
    });
    assert!(seen.iter().all(|(_, seen)| *seen), "{seen:?}");
}

#[test]
fn a_closed_gate_opens_again_while_a_transaction_is_open() {
    let disk = SimDisk::new(BYTES, 1);
    let model = Arc::new(Model::default());
    let (log, mut stepper) = start(&disk, &model, 1);
    let (_, ticket) = model.operate(&log, &[1]).unwrap();
    ticket.request();
    let open = log.begin().unwrap();
    assert_eq!(stepper.write(), Step::Blocked(Wait::Gate));
    // Whoever takes the steps can begin: the gate is not left closed.
    let other = log.begin().unwrap();
    assert_eq!(stepper.write(), Step::Blocked(Wait::Gate));
    drop((open, other));
    assert_eq!(stepper.write(), Step::Did(Did::Sealed));
    assert_eq!(ticket.poll_now(), None);
    assert_eq!(stepper.write(), Step::Did(Did::Wrote));
    assert_eq!(ticket.poll_now(), Some(Ok(())));
    assert_eq!(stepper.write(), Step::Idle);
}

#[test]
fn requests_in_hand_are_waited_for_in_one_step_only() {
    let disk = SimDisk::new(BYTES, 1);
    let model = Arc::new(Model::default());
    let (log, mut stepper) = start(&disk, &model, 1);
    let in_hand = log.expect();
    model.operate(&log, &[1]).unwrap().1.request();
    assert_eq!(stepper.write(), Step::Blocked(Wait::Requests));
    assert_eq!(stepper.write(), Step::Did(Did::Sealed));
    drop(in_hand);
}

#[test]
fn company_is_waited_for_in_one_step_and_shares_the_flush() {
    let disk = SimDisk::new(BYTES, 1);
    let model = Arc::new(Model::default());
    let (log, mut stepper) = start(&disk, &model, 1);
    let commit = |n: usize| {
        let tickets: Vec<_> = (0..n).map(|_| model.operate(&log, &[1]).unwrap().1).collect();
        tickets.iter().for_each(Ticket::request);
        tickets
    };
    let one_batch = |stepper: &mut Stepper| {
        assert_eq!(stepper.write(), Step::Did(Did::Sealed));
        assert_eq!(stepper.write(), Step::Did(Did::Wrote));
    };
    // One is no company.
    commit(1);
    one_batch(&mut stepper);
    commit(1);
    assert_eq!(stepper.write(), Step::Did(Did::Sealed));
    // Four are at work: one is answered while three are behind it.
    commit(3);
    assert_eq!(stepper.write(), Step::Did(Did::Wrote));
    one_batch(&mut stepper);
    // Now one alone waits, and who comes meanwhile is in its batch.
    let batches = log.stats().batches;
    let mut tickets = commit(1);
    assert_eq!(stepper.write(), Step::Blocked(Wait::Company));
    assert!(tickets[0].poll_now().is_none());
    tickets.extend(commit(1));
    one_batch(&mut stepper);
    assert!(tickets.iter().all(|ticket| ticket.poll_now() == Some(Ok(()))));
    assert_eq!(log.stats().batches, batches + 1);
    // Half of them do not wait.
    commit(2);
    one_batch(&mut stepper);
    assert_eq!((log.stats().company_waits, log.stats().company_vain), (1, 0));
    // A checkpoint does not wait either; and nobody is expected for ever.
    commit(1);
    stepper.ask_checkpoint();
    assert_eq!(stepper.checkpoint(), Step::Did(Did::AskedForCut));
    assert_eq!(stepper.write(), Step::Did(Did::Cut));
    while !stepper.covered() {
        stepper.write();
        stepper.checkpoint();
    }
    let mut vain = 0;
    for _ in 0..2 * landfast_intentlog::limits::COMPANY_BATCHES {
        commit(1);
        vain += u64::from(stepper.write() == Step::Blocked(Wait::Company));
        while stepper.write() != Step::Idle {}
    }
    assert!((1..=2).contains(&vain), "{vain}");
    assert_eq!((log.stats().company_waits, log.stats().company_vain), (1 + vain, vain));
}

#[test]
fn a_checkpoint_in_steps_and_a_stop() {
    let disk = SimDisk::new(BYTES, 1);
    let model = Arc::new(Model::default());
    let (log, mut stepper) = start(&disk, &model, 1);
    model.operate(&log, &[1]).unwrap();
    assert_eq!(stepper.checkpoint(), Step::Idle, "none is due by time");
    stepper.ask_checkpoint();
    assert_eq!(stepper.checkpoint(), Step::Did(Did::AskedForCut));
    assert_eq!(stepper.checkpoint(), Step::Idle);
    assert_eq!(stepper.write(), Step::Did(Did::Cut));
    let number = model.number();
    assert_eq!(stepper.checkpoint(), Step::Did(Did::Synced));
    assert_eq!(model.number(), number + 1);
    for did in [Did::Wrote, Did::CutPlaced, Did::Sealed, Did::Wrote, Did::MovedTail] {
        assert!(!stepper.covered());
        assert_eq!(stepper.write(), Step::Did(did));
    }
    assert!(stepper.covered());
    let open = log.begin().unwrap();
    assert_eq!(stepper.stop(), Step::Did(Did::AskedToStop));
    assert!(log.begin().is_err());
    assert_eq!(stepper.stop(), Step::Blocked(Wait::Gate));
    drop(open);
    assert_eq!(stepper.stop(), Step::Did(Did::AskedToStop));
    assert_eq!(stepper.stop(), Step::Blocked(Wait::Writer));
    assert_eq!(stepper.write(), Step::Did(Did::MarkedClean));
    assert_eq!(
        (stepper.write(), stepper.checkpoint(), stepper.stop()),
        (Step::Ended, Step::Ended, Step::Ended)
    );
    drop((log, stepper));
    assert!(Log::open_device(disk.device(), seeded(2)).unwrap().1.clean);
}

#[test]
fn a_full_batch_beside_an_open_transaction_keeps_nobody_waiting() {
    let disk = SimDisk::new(BYTES, 1);
    let model = Arc::new(Model::default());
    let (log, mut stepper) = start(&disk, &model, 1);
    let mut open = log.begin().unwrap();
    open.append(&[0; 30_000]);
    let other = log.begin().unwrap();
    drop((open, other));
    assert_eq!(stepper.write(), Step::Did(Did::Wrote), "it was closed by the last one out");
}
