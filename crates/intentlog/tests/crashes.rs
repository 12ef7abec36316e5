//! Power cuts at every kind of moment, with threads at work: see the oracle in `common`.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Model, config};
use landfast_intentlog::sim::{Fault, SimDisk};
use landfast_intentlog::{Log, OpenError};
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};

/// Threads operate until the power fails; gives the highest acknowledged effect.
fn run_until_cut(log: &Log, model: &Arc<Model>, seed: u64, most: usize) -> u64 {
    let threads: Vec<_> = (0..3)
        .map(|thread| {
            let (log, model) = (log.clone(), model.clone());
            std::thread::spawn(move || {
                let mut random = StdRng::seed_from_u64(seed ^ (thread << 32));
                let mut acknowledged = 0;
                for _ in 0..most {
                    let sizes: Vec<usize> = (0..random.random_range(1..4))
                        .map(|_| match random.random_range(0..20) {
                            0 => random.random_range(0..60_000),
                            _ => random.random_range(0..600),
                        })
                        .collect();
                    let Ok((last, ticket)) = model.operate(&log, &sizes) else { break };
                    // Sometimes nobody waits.
                    if random.random_range(0..5) > 0 {
                        if ticket.wait_blocking().is_err() {
                            break;
                        }
                        acknowledged = acknowledged.max(last);
                    }
                }
                acknowledged
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn what_was_acknowledged_is_there_after_any_number_of_power_cuts(
        seed in any::<u64>(),
        cuts in prop::collection::vec((0u64..60, 0u8..4), 1..5),
        snapshot_bytes in prop_oneof![Just(0usize), 0usize..20_000],
    ) {
        let disk = SimDisk::new(64 * 1024 + 256 * 1024, seed);
        let model = Arc::new(Model::default());
        model.set_snapshot_bytes(snapshot_bytes);
        let mut acknowledged = 0;
        let mut timed = config();
        timed.checkpoint_after = Duration::from_millis(3);
        for (round, (writes, kind)) in cuts.into_iter().enumerate() {
            disk.revive();
            // Sometimes the power fails while the log is being opened or started.
            if kind == 0 {
                disk.set_fault(Fault::PowerCut(writes % 6));
            }
            let config = if kind == 1 { timed.clone() } else { config() };
            let (log, replay) = match Log::open_device(disk.device(), config) {
                Ok(opened) => opened,
                // Creating it was interrupted: there is nothing yet that could be lost.
                Err(OpenError::Io { .. } | OpenError::Corrupt { .. }) if round == 0 && kind == 0 => return Ok(()),
                Err(error) => panic!("{error}"),
            };
            model.recover(&replay, acknowledged);
            if kind != 0 {
                disk.set_fault(Fault::PowerCut(writes + 3));
            }
            if log.start(model.clone()).is_ok() {
                acknowledged = acknowledged.max(run_until_cut(&log, &model, seed ^ round as u64, 40));
                if kind == 3 && !disk.is_dead() && log.shutdown().is_ok() {
                    let (_, replay) = { drop(log); Log::open_device(disk.device(), common::config()).unwrap() };
                    prop_assert!(replay.clean);
                    model.recover(&replay, acknowledged);
                    continue;
                }
            }
            drop(log);
        }
        disk.revive();
        let (_log, replay) = Log::open_device(disk.device(), config()).unwrap();
        model.recover(&replay, acknowledged);
    }
}

#[test]
fn wraps_many_times_and_checkpoints_free_the_space() {
    let disk = SimDisk::new(64 * 1024 + 256 * 1024, 1);
    let model = Arc::new(Model::default());
    let log = common::start(&disk, &model, config());
    let acknowledged = run_until_cut(&log, &model, 5, 2000);
    let stats = log.stats();
    assert!(stats.batch_bytes > 20 * stats.capacity, "{stats:?}");
    assert!(stats.checkpoints > 20 && stats.used <= stats.capacity, "{stats:?}");
    drop(log);
    let (_log, replay) = Log::open_device(disk.device(), config()).unwrap();
    model.recover(&replay, acknowledged);
}
