//! The log is lost while it is used: each way of it is noticed, nothing is acknowledged afterwards, and the owner is told once.

mod common;

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::VOLUME;
use landfast_intentlog::device::SyncMethod;
use landfast_intentlog::sim::SimDisk;
use landfast_intentlog::{Checkpoint, Config, Log, LogError, LogPlace};
use parking_lot::{Condvar, Mutex};

const SIZE: u64 = 1 << 20;

/// Far more than a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Records what it is told.
#[derive(Default)]
struct Owner {
    told: Mutex<Vec<String>>,
    changed: Condvar,
    missing: Mutex<Option<String>>,
}

impl Checkpoint for Owner {
    fn snapshot(&self) -> Box<dyn landfast_intentlog::Snapshot> {
        Box::new(Vec::new())
    }

    fn sync(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn look(&self) -> Result<(), String> {
        self.missing.lock().clone().map_or(Ok(()), Err)
    }

    fn lost(&self, why: &str) {
        self.told.lock().push(why.to_owned());
        self.changed.notify_all();
    }
}

impl Owner {
    /// What it is told, if within that time.
    fn told_within(&self, time: Duration) -> Option<String> {
        let until = Instant::now() + time;
        let mut told = self.told.lock();
        while told.is_empty() {
            if self.changed.wait_until(&mut told, until).timed_out() {
                break;
            }
        }
        told.first().cloned()
    }
}

fn append(log: &Log) -> Result<(), LogError> {
    let mut txn = log.begin()?;
    txn.append(b"record");
    txn.commit().wait_blocking()
}

struct Place {
    dir: tempfile::TempDir,
    log: Log,
    owner: Arc<Owner>,
}

impl Place {
    /// A log in a directory of its own, in use.
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("logs")).unwrap();
        // Without the self-test: only what is written for good is read back.
        let path = dir.path().join("logs/log");
        let config = Config { sync_method: Some(SyncMethod::Flush), ..Config::new(path, SIZE, VOLUME) };
        let (log, _) = Log::open(config).unwrap();
        let owner = Arc::new(Owner::default());
        log.start(owner.clone()).unwrap();
        append(&log).unwrap();
        Place { dir, log, owner }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("logs/log")
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        fs::File::options().write(true).open(self.path()).unwrap().write_all_at(bytes, at).unwrap();
    }

    /// The first block of the last batch: after the empty snapshot, record by record.
    fn last_batch(&self) -> u64 {
        let held = fs::read(self.path()).unwrap();
        let batches = held.chunks(4096).enumerate().filter(|(_, block)| block.starts_with(b"LANDFBAT"));
        batches.map(|(n, _)| n as u64 * 4096).max().unwrap()
    }
}

fn is_noticed(name: &str, lose: impl FnOnce(&Place), words: &[&str]) {
    let place = Place::new();
    lose(&place);
    let begun = Instant::now();
    let told = place.owner.told_within(PATIENCE).unwrap_or_else(|| panic!("{name}: not noticed"));
    println!("{name}: noticed after {:?}: {told}", begun.elapsed());
    let path = place.path();
    for word in words.iter().chain([&path.to_str().unwrap()]) {
        assert!(told.contains(word), "{name}: no '{word}' in: {told}");
    }
    while place.log.failed().is_none() {
        std::thread::yield_now();
    }
    assert!(matches!(append(&place.log), Err(LogError::Failed(why)) if *why == *told), "{name}");
    assert!(place.log.await_transactions());
    drop(place.log);
    assert_eq!(place.owner.told.lock().len(), 1, "{name}: told once");
}

#[test]
fn removed() {
    is_noticed("removed", |p| fs::remove_file(p.path()).unwrap(), &["was removed"]);
}

#[test]
fn renamed_away() {
    let away = |p: &Place| fs::rename(p.path(), p.dir.path().join("away")).unwrap();
    is_noticed("renamed", away, &["is not there any more", "it is at ", "/away now"]);
}

#[test]
fn its_directory_renamed() {
    let away = |p: &Place| fs::rename(p.dir.path().join("logs"), p.dir.path().join("gone")).unwrap();
    is_noticed("directory renamed", away, &["is not there any more", "/gone/log now"]);
}

#[test]
fn replaced_by_a_rename() {
    let replace = |p: &Place| {
        let other = p.dir.path().join("other");
        fs::copy(p.path(), &other).unwrap();
        fs::hard_link(p.path(), p.dir.path().join("kept")).unwrap();
        fs::rename(other, p.path()).unwrap();
    };
    is_noticed("replaced", replace, &["was replaced"]);
}

#[test]
fn truncated() {
    for left in [0, 4096, SIZE - 4096] {
        let cut = |p: &Place| {
            fs::File::options().write(true).open(p.path()).unwrap().set_len(left).unwrap();
        };
        is_noticed("truncated", cut, &["was truncated"]);
    }
}

#[test]
fn overwritten_with_zeroes() {
    is_noticed("zeroed", |p| p.write(0, &vec![0; SIZE as usize]), &["was overwritten"]);
}

/// Further batches do not hide it.
#[test]
fn a_ring_overwritten_while_it_is_written() {
    let over = |p: &Place| {
        append(&p.log).unwrap();
        p.write(65536, &vec![0; SIZE as usize - 65536]);
        let _ = append(&p.log);
    };
    is_noticed("ring", over, &["was overwritten", "at offset"]);
}

#[test]
fn truncated_and_made_as_long_again() {
    let again = |p: &Place| {
        let file = fs::File::create(p.path()).unwrap();
        file.set_len(SIZE).unwrap();
    };
    is_noticed("made again", again, &["was "]);
}

#[test]
fn a_byte_of_a_superblock_or_of_the_last_batch_overwritten() {
    for slot in [0, 1] {
        is_noticed("superblock", |p| p.write(slot * 4096 + 100, b"x"), &["was overwritten", "at offset"]);
    }
    let batch = |p: &Place| p.write(p.last_batch() + 20, b"x");
    is_noticed("batch", batch, &["was overwritten", "at offset"]);
}

#[test]
fn what_the_owner_needs_is_looked_for_as_well() {
    let place = Place::new();
    *place.owner.missing.lock() = Some("the state directory was removed".into());
    assert_eq!(place.owner.told_within(PATIENCE).as_deref(), Some("the state directory was removed"));
}

/// Replaced by itself, moved and moved back, opened by others, made longer: nothing is lost.
#[test]
fn what_is_no_loss_is_none() {
    let place = Place::new();
    let (path, link) = (place.path(), place.dir.path().join("link"));
    fs::hard_link(&path, &link).unwrap();
    fs::read(&path).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(SIZE + 4096).unwrap();
    for _ in 0..20 {
        append(&place.log).unwrap();
        assert_eq!(place.owner.told_within(Duration::from_millis(100)), None);
    }
    fs::remove_file(link).unwrap();
    place.log.checkpoint_now().unwrap();
    place.log.shutdown().unwrap();
    assert_eq!(place.owner.told_within(Duration::ZERO), None);
}

#[test]
fn one_half_of_a_mirror_that_is_removed_is_done_without() {
    for lost in ["a", "b"] {
        let dir = tempfile::tempdir().unwrap();
        let config =
            Config::new(LogPlace::new(dir.path().join("a"), Some(dir.path().join("b"))), SIZE, VOLUME);
        let (log, _) = Log::open(config).unwrap();
        let owner = Arc::new(Owner::default());
        log.start(owner.clone()).unwrap();
        append(&log).unwrap();
        fs::remove_file(dir.path().join(lost)).unwrap();
        let begun = Instant::now();
        while log.stats().trouble.is_none() {
            assert!(begun.elapsed() < PATIENCE, "not noticed");
            append(&log).unwrap();
        }
        let trouble = log.stats().trouble.unwrap();
        let path = dir.path().join(lost);
        assert!(trouble.contains("was removed") && trouble.contains(path.to_str().unwrap()), "{trouble}");
        // It goes on, and the half that is left is known to be ahead.
        append(&log).unwrap();
        assert!(log.stats().checkpoint >= 2);
        assert_eq!(owner.told_within(Duration::ZERO), None);
        log.shutdown().unwrap();
    }
}

#[test]
fn both_halves_of_a_mirror_that_are_removed_are_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let paths = [dir.path().join("a"), dir.path().join("b")];
    let config = Config::new(LogPlace::Mirror(paths.clone()), SIZE, VOLUME);
    let (log, _) = Log::open(config).unwrap();
    let owner = Arc::new(Owner::default());
    log.start(owner.clone()).unwrap();
    paths.iter().for_each(|path| fs::remove_file(path).unwrap());
    let told = owner.told_within(PATIENCE).expect("noticed");
    assert!(told.contains("was removed"), "{told}");
}

#[test]
fn any_device_is_looked_at() {
    let disk = SimDisk::new(SIZE as usize, 1);
    let (log, _) = Log::open_device(disk.device(), Config::new("simulated", SIZE, VOLUME)).unwrap();
    let owner = Arc::new(Owner::default());
    log.start(owner.clone()).unwrap();
    append(&log).unwrap();
    disk.edit(|bytes| bytes.fill(0));
    assert!(owner.told_within(PATIENCE).expect("noticed").contains("overwritten"));
}

/// The checks above see a log that does not look.
#[test]
#[cfg(debug_assertions)]
fn the_deliberate_bug_is_seen() {
    use landfast_intentlog::faults::{Bug, with};
    let place = with(Some(Bug::LostLogUnnoticed), Place::new);
    fs::remove_file(place.path()).unwrap();
    assert!(!Path::new(&place.path()).exists());
    // As long as several looks take.
    let until = Instant::now() + 5 * landfast_intentlog::limits::WATCH_EVERY;
    while Instant::now() < until {
        append(&place.log).expect("acknowledged, though the log is gone");
    }
    assert_eq!(place.owner.told_within(Duration::ZERO), None);
}
