//! The emulated disk against a model: what a flush made durable survives a power cut, what was not
//! flushed is lost or torn, and nothing else changes.

use landfast_lab::disk::device::Device;
use landfast_lab::disk::medium::Medium;
use landfast_verify::rng::Rng;
use proptest::prelude::*;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

const SIZE: usize = (2 << 20) + 8192;
const BLOCK: usize = 4096;

#[derive(Debug, Clone)]
enum Step {
    Write { off: usize, len: usize, fill: u8 },
    Mark,
    Commit,
    Cut { seed: u64, keep: u64, torn: bool },
}

fn step() -> impl Strategy<Value = Step> {
    // Near the chunk borders and the end, where mistakes are.
    let place = prop_oneof![0..3 * BLOCK, (1 << 20) - 2 * BLOCK..(1 << 20) + 2 * BLOCK, SIZE - 9000..SIZE];
    prop_oneof![
        4 => (place, 1usize..9000, any::<u8>()).prop_map(|(off, len, fill)| Step::Write {
            off,
            len: len.min(SIZE - off),
            fill,
        }),
        1 => Just(Step::Mark),
        1 => Just(Step::Commit),
        1 => (any::<u64>(), prop_oneof![Just(0u64), Just(1000), Just(400)], any::<bool>())
            .prop_map(|(seed, keep, torn)| Step::Cut { seed, keep, torn }),
    ]
}

fn all(m: &Medium) -> Vec<u8> {
    let mut buf = vec![0; SIZE];
    m.read(0, &mut buf).unwrap();
    buf
}

fn run(steps: &[Step], image: Option<std::fs::File>) -> Result<(), TestCaseError> {
    let medium = Medium::new(SIZE as u64, image).unwrap();
    let mut cache = vec![0u8; SIZE];
    let mut durable = vec![0u8; SIZE];
    let mut dirty = std::collections::BTreeSet::new();
    let mut marked = medium.marked();
    let mut carried = std::collections::BTreeSet::new();
    let mut since_mark = std::collections::BTreeSet::new();
    for step in steps {
        match *step {
            Step::Write { off, len, fill } => {
                medium.write(off as u64, &vec![fill; len]).unwrap();
                cache[off..off + len].fill(fill);
                let blocks = off / BLOCK..(off + len).div_ceil(BLOCK);
                dirty.extend(blocks.clone());
                since_mark.extend(blocks);
            }
            Step::Mark => {
                medium.mark(&mut marked);
                carried = dirty.clone();
                since_mark.clear();
                prop_assert_eq!(marked.blocks(), dirty.len() as u64);
            }
            Step::Commit => {
                medium.commit(&marked).unwrap();
                for b in std::mem::take(&mut carried) {
                    let r = b * BLOCK..(b + 1) * BLOCK;
                    durable[r.clone()].copy_from_slice(&cache[r]);
                    if !since_mark.contains(&b) {
                        dirty.remove(&b);
                    }
                }
                marked = medium.marked();
            }
            Step::Cut { seed, keep, torn } => {
                let mut rng = Rng::new(seed);
                let loss = medium.cut(torn, || rng.chance(keep)).unwrap();
                prop_assert_eq!(loss.lost_blocks + loss.kept_blocks, dirty.len() as u64);
                let now = all(&medium);
                for b in 0..SIZE / BLOCK {
                    let r = b * BLOCK..(b + 1) * BLOCK;
                    if !dirty.contains(&b) {
                        prop_assert!(now[r.clone()] == cache[r], "block {} changed though it was clean", b);
                        continue;
                    }
                    let unit = if torn { 512 } else { BLOCK };
                    for at in r.step_by(unit) {
                        let s = at..at + unit;
                        let old = now[s.clone()] == durable[s.clone()];
                        let new = now[s.clone()] == cache[s.clone()];
                        prop_assert!(old || new, "a sector of block {} is neither old nor new", b);
                        prop_assert!(keep != 0 || old);
                        prop_assert!(keep != 1000 || new);
                    }
                }
                cache.copy_from_slice(&now);
                durable.copy_from_slice(&now);
                dirty.clear();
                carried.clear();
                marked = medium.marked();
            }
        }
        prop_assert_eq!(medium.dirty_blocks(), dirty.len() as u64);
    }
    prop_assert!(all(&medium) == cache);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn memory_disk_follows_the_model(steps in proptest::collection::vec(step(), 1..40)) {
        run(&steps, None)?;
    }

    #[test]
    fn image_disk_follows_the_model(steps in proptest::collection::vec(step(), 1..20)) {
        run(&steps, Some(tempfile::tempfile().unwrap()))?;
    }
}

fn device(size: u64) -> Device {
    Device::new(Medium::new(size, None).unwrap())
}

fn at(d: &Device, off: u64) -> u8 {
    let mut b = [0];
    d.read(off, &mut b).unwrap();
    b[0]
}

#[test]
fn a_cut_takes_what_was_not_flushed_and_nothing_else() {
    let d = device(1 << 20);
    d.write(0, &[1; BLOCK]).unwrap();
    d.flush().unwrap();
    d.write(0, &[2; BLOCK]).unwrap();
    d.write(8192, &[3; BLOCK]).unwrap();
    let loss = d.power_cut().unwrap();
    assert_eq!((loss.lost_blocks, loss.kept_blocks), (2, 0));
    assert!(d.read(0, &mut [0]).is_err() && d.write(0, &[1]).is_err() && d.flush().is_err());
    d.power_on();
    assert_eq!((at(&d, 0), at(&d, 8192)), (1, 0));
}

#[test]
fn a_flush_that_the_cut_overtakes_fails_and_carries_nothing() {
    let d = device(1 << 20);
    d.settings.flush_ns.store(200_000_000, Relaxed);
    d.write(0, &[1; BLOCK]).unwrap();
    std::thread::scope(|s| {
        let flush = s.spawn(|| d.flush());
        // The cut comes as soon as the flush holds its turn; it then waits for 200 ms.
        d.power_cut().unwrap();
        d.power_on();
        assert!(flush.join().unwrap().is_err() || at(&d, 0) == 0);
    });
    assert_eq!(at(&d, 0), 0);
}

#[test]
fn survivors_are_the_same_for_the_same_seed() {
    let image = |seed| {
        let d = device(1 << 20);
        d.settings.keep_permille.store(500, Relaxed);
        d.settings.torn.store(true, Relaxed);
        d.seed(seed);
        d.write(0, &[7; 1 << 20]).unwrap();
        d.power_cut().unwrap();
        d.power_on();
        let mut all = vec![0; 1 << 20];
        d.read(0, &mut all).unwrap();
        all
    };
    assert!(image(1) == image(1));
    assert!(image(1) != image(2));
    assert!(image(1).contains(&0) && image(1).contains(&7));
}

#[test]
fn a_flush_takes_its_latency_and_is_counted() {
    let d = device(1 << 20);
    d.settings.flush_ns.store(20_000_000, Relaxed);
    let start = std::time::Instant::now();
    for byte in [1, 2] {
        d.write(0, &[byte; BLOCK]).unwrap();
        d.flush().unwrap();
    }
    assert!(start.elapsed() >= std::time::Duration::from_millis(40));
    assert_eq!((d.counters.flushes.load(Relaxed), d.counters.empty_flushes.load(Relaxed)), (2, 0));
}

#[test]
fn a_flush_of_an_empty_cache_costs_no_latency_and_is_counted_apart() {
    let d = device(1 << 20);
    d.write(0, &[1; BLOCK]).unwrap();
    d.flush().unwrap();
    d.settings.flush_ns.store(60_000_000_000, Relaxed);
    d.flush().unwrap();
    assert_eq!((d.counters.flushes.load(Relaxed), d.counters.empty_flushes.load(Relaxed)), (1, 1));
}

/// Two writes of one block, the second while the first is being flushed: both flushes have their work.
#[test]
fn a_block_written_during_a_flush_is_not_clean_after_it() {
    let medium = Medium::new(1 << 20, None).unwrap();
    let mut marked = medium.marked();
    medium.write(0, &[1; BLOCK]).unwrap();
    medium.mark(&mut marked);
    medium.write(0, &[2; BLOCK]).unwrap();
    medium.commit(&marked).unwrap();
    assert_eq!(medium.dirty_blocks(), 1);
    medium.mark(&mut marked);
    medium.commit(&marked).unwrap();
    assert_eq!(medium.dirty_blocks(), 0);
}

#[test]
fn a_durable_image_outlives_the_device_with_what_was_flushed() {
    let file = tempfile::tempfile().unwrap();
    let d = Device::new(Medium::new(1 << 20, Some(file.try_clone().unwrap())).unwrap());
    d.write(0, &[1; BLOCK]).unwrap();
    d.flush().unwrap();
    d.write(4096, &[2; BLOCK]).unwrap();
    drop(d);
    let mut b = [9; 2];
    file.read_exact_at(&mut b[..1], 0).unwrap();
    file.read_exact_at(&mut b[1..], 4096).unwrap();
    assert_eq!(b, [1, 0]);
    let again = Device::new(Medium::new(1 << 20, Some(file)).unwrap());
    assert_eq!((at(&again, 0), at(&again, 4096)), (1, 0));
}

#[test]
fn nothing_reaches_past_the_end() {
    let d = device(8192);
    assert!(d.write(8191, &[1, 2]).is_err() && d.write(u64::MAX, &[1]).is_err());
    assert_eq!(d.read(8191, &mut [0; 10]).unwrap(), 1);
    assert_eq!(d.read(9000, &mut [0; 10]).unwrap_or(0), 0);
}
