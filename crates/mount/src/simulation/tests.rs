//! Runs of the simulation: a few seeds as a test, as many as asked for by `cargo xtask simulate --what mount`.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::bug_scenes;
use super::figures::Figures;
use super::world::run;
use crate::core::bugs::{Bug, with};

/// Default number of seeds of a run.
const SEEDS: u64 = if cfg!(debug_assertions) { 150 } else { 3000 };

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn once(number: u64, with_history: bool) -> Result<Figures, String> {
    catch_unwind(AssertUnwindSafe(|| run(number, with_history))).unwrap_or_else(|why| Err(said(why)))
}

/// What a panic said.
fn said(why: Box<dyn Any + Send>) -> String {
    let told = why.downcast_ref::<String>().cloned();
    told.or_else(|| why.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
}

/// Runs a seed; if it fails, runs it again with its history.
fn one(number: u64) -> Result<Figures, String> {
    once(number, false).map_err(|first| {
        let again = (0..20).find_map(|_| once(number, true).err());
        let told = again.unwrap_or_else(|| format!("not the same when it was run again: {first}"));
        format!("seed {number}: {told}")
    })
}

/// After so many failures no further seed is run.
const FAILURES_MAX: usize = 100;

/// Runs these seeds on `threads` threads. Tells of all that fail: of the first with its history, of the others what was seen.
fn seeds(from: u64, count: u64, threads: u64) -> Result<Figures, String> {
    let next = AtomicU64::new(from);
    let found = Mutex::new((Figures::default(), BTreeMap::<u64, String>::new()));
    let work = || {
        let mut own = Figures::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + count || found.lock().1.len() >= FAILURES_MAX {
                return found.lock().0.add(&own);
            }
            match one(seed) {
                Ok(figures) => own.add(&figures),
                Err(told) => _ = found.lock().1.insert(seed, told),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let (figures, mut wrong) = found.into_inner();
    let Some((_, mut told)) = wrong.pop_first() else { return Ok(figures) };
    for other in wrong.values() {
        told.push_str("\n\nalso ");
        told.push_str(other.lines().next().unwrap_or_default());
    }
    Err(told)
}

/// `cargo xtask simulate --what mount` runs this with its options in `LANDFAST_SEED`, `LANDFAST_SEEDS` and `LANDFAST_THREADS`.
#[test]
fn programs_on_three_mounts_have_one_file_system() {
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

fn told_by(scene: fn()) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(scene)).map_err(said)
}

#[test]
fn each_deliberate_bug_is_seen_by_its_scene_and_nothing_without_it() {
    for (bug, scene) in bug_scenes::ALL {
        assert_eq!(told_by(scene), Ok(()), "without {bug:?}");
        let told = with(Some(bug), || told_by(scene));
        let told = told.expect_err("a bug");
        println!("{bug:?}: {}", told.lines().next().unwrap_or_default());
    }
    assert!(Bug::ALL.iter().all(|bug| bug_scenes::ALL.iter().any(|(of, _)| of == bug)));
}

/// Within this many seeds a deliberate bug is looked for.
const SEEDS_FOR_A_BUG: u64 = 2000;

/// Which seed sees which deliberate bug: `docs/internals/mount-simulation.md`. Not each can be seen by one; each has a scene.
#[test]
#[ignore = "takes minutes"]
fn deliberate_bugs_are_seen_by_seeds() {
    let count = number("LANDFAST_SEEDS").unwrap_or(SEEDS_FOR_A_BUG);
    for bug in Bug::ALL {
        let seen = (1..=count).find_map(|seed| {
            let told = with(Some(bug), || once(seed, false)).err()?;
            // What fails without it shows nothing of it.
            once(seed, false).is_ok().then_some((seed, told))
        });
        let Some((seed, told)) = seen else {
            println!("{bug:?}: not seen within {count} seeds");
            continue;
        };
        let told = told.lines().next().unwrap_or_default();
        println!("{bug:?}: seen by seed {seed}: {}", told.get(..200).unwrap_or(told));
    }
}

#[test]
fn a_seed_is_the_same_each_time() {
    for seed in 1..20 {
        let [first, again] = [(), ()].map(|()| once(seed, false));
        assert_eq!(first, again, "seed {seed}");
    }
}
