//! A whole volume with its log on a simulated kernel, disk and clock: `docs/internals/simulation.md`.
//!
//! The oracle. After each power cut, whatever happened to the disks since:
//! - the volume is what it was at one moment, not before the last acknowledged operation, with the replies of that moment and
//!   nothing of what came after it;
//! - handles and fileids lead to the objects for which they were given, and no number means two objects;
//! - nothing of a stranger is deleted;
//! - after an error nothing is acknowledged.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

mod counts;
mod figures;
mod found;
mod oracle;
mod orphans;
mod past;
mod quotas;
mod replies;
mod requests;
mod strangers;
mod world;

use figures::Figures;
use world::run;

/// Default number of seeds of a run.
const SEEDS: u64 = if cfg!(debug_assertions) { 150 } else { 3000 };

/// Each deliberate bug must be seen within this many seeds.
const SEEDS_FOR_A_BUG: u64 = 400;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a seed; if it fails, runs it again with its history.
fn one(seed: u64) -> Result<Figures, String> {
    run(seed, false).map_err(|first| match run(seed, true) {
        Err(told) => told,
        Ok(_) => format!("not the same when it was run again: {first}"),
    })
}

/// Runs these seeds on `threads` threads, until the first failure.
fn seeds(from: u64, count: u64, threads: u64) -> Result<Figures, String> {
    let next = AtomicU64::new(from);
    let found = Mutex::new((Figures::default(), None::<(u64, String)>));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + count || found.lock().1.is_some() {
                return;
            }
            let result = one(seed);
            let mut found = found.lock();
            match result {
                Ok(figures) => found.0.add(&figures),
                Err(told) if found.1.as_ref().is_none_or(|(known, _)| *known > seed) => {
                    found.1 = Some((seed, told))
                }
                Err(_) => {}
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        // The first is a thread of its own, too, since this thread's identity must not change.
        scope.spawn(work);
    });
    let (figures, wrong) = found.into_inner();
    match wrong {
        Some((_, told)) => Err(told),
        None => Ok(figures),
    }
}

/// `cargo xtask simulate` runs this with its options in `LANDFAST_SEED`, `LANDFAST_SEEDS` and `LANDFAST_THREADS`.
#[test]
fn a_volume_survives() {
    let (from, count) = match (number("LANDFAST_SEED"), number("LANDFAST_SEEDS")) {
        (Some(seed), None) => (seed, 1),
        (seed, count) => (seed.unwrap_or(1), count.unwrap_or(SEEDS)),
    };
    let begun = std::time::Instant::now();
    match seeds(from, count, number("LANDFAST_THREADS").unwrap_or(1)) {
        Ok(figures) => {
            let seconds = begun.elapsed().as_secs_f64();
            println!(
                "{count} seeds from {from} in {seconds:.1} s, {:.0} a minute",
                count as f64 / seconds * 60.0
            );
            println!("{figures}");
        }
        Err(told) => panic!("{told}"),
    }
}

#[test]
fn a_seed_is_the_same_each_time() {
    for seed in 1..40 {
        let [first, again] = [(), ()].map(|()| run(seed, false).map(|f| (f.digest, f.calls)));
        assert_eq!(first, again, "seed {seed}");
    }
}

/// Deliberate bugs that the simulation cannot reach, and the tests that see them.
#[cfg(debug_assertions)]
const ELSEWHERE: &[(crate::faults::Bug, &str)] = &[
    // Needs threads of the server's runtime; the simulation has one thread and no server.
    (crate::faults::Bug::FlushInPlace, "server/tests/held_flush.rs"),
    // Needs two volumes and the server's own replies.
    (crate::faults::Bug::ReplyKeptEarly, "server/tests/several_logs.rs"),
    // Needs mount options and devices below.
    (crate::faults::Bug::VolatileUnnoticed, "volume/tests/flush_check.rs"),
    // Needs two servers or two volumes.
    (crate::faults::Bug::OverlapUnlocked, "volume/tests/nested.rs"),
];

/// The oracle must see each deliberate bug that it can reach.
#[cfg(debug_assertions)]
#[test]
fn deliberate_bugs_are_seen() {
    use crate::faults::{Bug, with};

    let mut unseen = Vec::new();
    for bug in Bug::ALL.into_iter().filter(|bug| ELSEWHERE.iter().all(|(other, _)| other != bug)) {
        let seen =
            (1..=SEEDS_FOR_A_BUG).find_map(|seed| Some((seed, with(Some(bug), || run(seed, false)).err()?)));
        match seen {
            Some((seed, told)) => {
                let told = told.lines().next().unwrap_or_default();
                println!("{bug}: seen after {seed} seeds: {}", told.get(..200).unwrap_or(told));
            }
            None => unseen.push(bug),
        }
    }
    assert!(unseen.is_empty(), "not seen within {SEEDS_FOR_A_BUG} seeds: {unseen:?}");
}

/// Seeds that once found bugs of the product. The simulation has changed since, so these numbers no longer lead there; it only
/// matters that some seed still takes each way.
#[test]
fn what_was_found_stays_mended() {
    for seed in [61, 368, 408, 1075, 2076, 3478, 4007, 5965, 8665, 9820, 13608] {
        if let Err(told) = one(seed) {
            panic!("{told}");
        }
    }
}
