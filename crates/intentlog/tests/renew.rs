//! A log that is lost while it is used is written anew where that is possible, and nothing is acknowledged between the notice and that.

mod common;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::VOLUME;
use landfast_intentlog::sim::SimDisk;
use landfast_intentlog::{Checkpoint, Config, Log, LogError, LogPlace, Renewed};
use parking_lot::{Condvar, Mutex};

const SIZE: u64 = 1 << 20;

/// Far more than a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// What it was told, in order.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Synced(u64),
    SetAside(u64),
    Resumed(u64),
    Renewed(Vec<PathBuf>),
    Lost(String),
}

/// An owner that goes on, unless it is told not to.
#[derive(Default)]
struct Owner {
    told: Mutex<Vec<Told>>,
    changed: Condvar,
    /// What it answers to being set aside, if it is not to succeed.
    refuses: Mutex<Option<String>>,
    /// It takes its time.
    held: Mutex<bool>,
    let_go: Condvar,
    waiting: Mutex<Option<mpsc::Sender<()>>>,
}

impl Owner {
    fn hears(&self, what: Told) {
        self.told.lock().push(what);
        self.changed.notify_all();
    }

    /// Waits until it is told such a thing.
    #[track_caller]
    fn await_told(&self, what: impl Fn(&Told) -> bool) -> Told {
        let until = Instant::now() + PATIENCE;
        let mut told = self.told.lock();
        loop {
            if let Some(found) = told.iter().find(|told| what(told)) {
                return found.clone();
            }
            assert!(!self.changed.wait_until(&mut told, until).timed_out(), "told only {told:?}");
        }
    }

    fn renewed(&self) -> Vec<PathBuf> {
        match self.await_told(|told| matches!(told, Told::Renewed(_) | Told::Lost(_))) {
            Told::Renewed(aside) => aside,
            other => panic!("{other:?}"),
        }
    }

    fn lost(&self) -> String {
        match self.await_told(|told| matches!(told, Told::Renewed(_) | Told::Lost(_))) {
            Told::Lost(why) => why,
            other => panic!("{other:?}"),
        }
    }
}

impl Checkpoint for Owner {
    fn snapshot(&self) -> Box<dyn landfast_intentlog::Snapshot> {
        Box::new(vec![b"carried over".to_vec()])
    }

    fn sync(&self, number: u64) -> io::Result<()> {
        self.hears(Told::Synced(number));
        Ok(())
    }

    fn set_aside(&self, number: u64, why: &str) -> io::Result<()> {
        assert!(!why.is_empty());
        self.hears(Told::SetAside(number));
        if let Some(waiting) = self.waiting.lock().take() {
            waiting.send(()).unwrap();
        }
        let mut held = self.held.lock();
        while *held {
            self.let_go.wait(&mut held);
        }
        self.refuses.lock().clone().map_or(Ok(()), |why| Err(io::Error::other(why)))
    }

    fn resume(&self, number: u64) -> io::Result<()> {
        self.hears(Told::Resumed(number));
        Ok(())
    }

    fn renewed(&self, renewed: &Renewed) {
        self.hears(Told::Renewed(renewed.aside.clone()));
    }

    fn lost(&self, why: &str) {
        self.hears(Told::Lost(why.to_owned()));
    }
}

fn append(log: &Log, record: &str) -> Result<(), LogError> {
    let mut txn = log.begin()?;
    txn.append(record.as_bytes());
    txn.commit().wait_blocking()
}

struct Place {
    dir: tempfile::TempDir,
    config: Config,
    log: Log,
    owner: Arc<Owner>,
}

impl Place {
    fn new(mirrored: bool) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let place = LogPlace::new(dir.path().join("a"), mirrored.then(|| dir.path().join("b")));
        let config = Config::new(place, SIZE, VOLUME);
        let (log, _) = Log::open(config.clone()).unwrap();
        let owner = Arc::new(Owner::default());
        log.start(owner.clone()).unwrap();
        append(&log, "before").unwrap();
        Place { dir, config, log, owner }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// What a start after a crash finds.
    fn crash(self, mirror: Option<PathBuf>, path: PathBuf) -> (Vec<String>, u64) {
        drop(self.log);
        let (_, replay) = Log::open(Config { place: LogPlace::new(path, mirror), ..self.config }).unwrap();
        let records = replay.records.into_iter().map(|r| String::from_utf8(r).unwrap()).collect();
        (records, replay.checkpoint)
    }
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|s| (*s).to_owned()).collect()
}

#[test]
fn it_goes_on_in_a_new_file_with_what_checkpoints_carry_over() {
    let place = Place::new(false);
    let number = place.log.stats().checkpoint;
    place.remove("a");
    assert!(place.owner.renewed().is_empty());
    for record in ["one", "two"] {
        append(&place.log, record).unwrap();
    }
    assert_eq!((place.log.stats().renewed, place.log.failed()), (1, None));
    // In this order, and the new log is beyond what the lost one can be one behind of.
    let told = place.owner.told.lock().clone();
    let [.., Told::SetAside(first), Told::Resumed(second), Told::Renewed(_)] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert_eq!((*first, *second), (number + 1, number + 2));
    let path = place.path("a");
    assert_eq!(place.crash(None, path), (strings(&["carried over", "one", "two"]), number + 2));
}

#[test]
fn what_stands_in_its_place_is_put_aside_and_the_log_can_be_closed_in_order() {
    let place = Place::new(false);
    fs::write(place.path("other"), "somebody's").unwrap();
    fs::rename(place.path("other"), place.path("a")).unwrap();
    assert_eq!(place.owner.renewed(), [place.path("a.lost-1")]);
    assert_eq!(fs::read_to_string(place.path("a.lost-1")).unwrap(), "somebody's");
    append(&place.log, "after").unwrap();
    place.log.shutdown().unwrap();
    drop(place.log);
    let (_, replay) = Log::open(place.config).unwrap();
    assert!(replay.clean);
}

#[test]
fn through_a_symbolic_link() {
    let place = Place::new(false);
    let Place { dir, config, log, .. } = place;
    drop(log);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path().join("a"), &link).unwrap();
    let (log, _) = Log::open(Config { place: link.clone().into(), ..config }).unwrap();
    let owner = Arc::new(Owner::default());
    log.start(owner.clone()).unwrap();
    fs::remove_file(dir.path().join("a")).unwrap();
    assert!(owner.renewed().is_empty());
    append(&log, "after").unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&link).unwrap().len(), SIZE);
}

#[test]
fn both_halves_of_a_mirror_are_made_anew() {
    // Both at once; or one, which is gone on without, and then the other.
    for one_first in [false, true] {
        let place = Place::new(true);
        place.remove("a");
        if one_first {
            let begun = Instant::now();
            while place.log.stats().trouble.is_none() {
                assert!(begun.elapsed() < PATIENCE);
                append(&place.log, "alone").unwrap();
            }
        }
        place.remove("b");
        place.owner.renewed();
        append(&place.log, "after").unwrap();
        assert_eq!(place.log.stats().trouble, None, "both are there");
        let (a, b) = (place.path("a"), place.path("b"));
        assert_eq!(fs::read(&a).unwrap(), fs::read(&b).unwrap());
        // And one that is lost again is done without.
        place.remove("a");
        let begun = Instant::now();
        while place.log.stats().trouble.is_none() {
            assert!(begun.elapsed() < PATIENCE);
            append(&place.log, "after").unwrap();
        }
        assert_eq!(place.log.stats().renewed, 1);
        let (records, _) = place.crash(Some(a), b);
        assert_eq!(records.first().map(String::as_str), Some("carried over"));
    }
}

#[test]
fn nothing_is_acknowledged_and_nobody_begins_before_the_new_log_stands() {
    let place = Place::new(false);
    *place.owner.held.lock() = true;
    let (waiting, waits) = mpsc::channel();
    *place.owner.waiting.lock() = Some(waiting);
    let mut inside = place.log.begin().unwrap();
    place.remove("a");
    // While a transaction is open nothing is done but to wait for it.
    let begun = Instant::now();
    while place.log.stats().gate_reopened == 0 {
        assert!(begun.elapsed() < PATIENCE, "not noticed");
        thread::yield_now();
    }
    inside.append(b"inside");
    let inside = inside.commit();
    inside.request();
    waits.recv_timeout(PATIENCE).expect("set aside");
    thread::scope(|s| {
        let late = s.spawn(|| append(&place.log, "late"));
        assert!(inside.poll_now().is_none(), "acknowledged without a log");
        assert!(!late.is_finished(), "it began while the log was lost");
        assert_eq!(place.log.stats().renewed, 0);
        *place.owner.held.lock() = false;
        place.owner.let_go.notify_all();
        late.join().unwrap().unwrap();
    });
    inside.wait_blocking().unwrap();
    assert!(place.owner.renewed().is_empty());
    let path = place.path("a");
    let (records, _) = place.crash(None, path);
    assert_eq!(records, strings(&["carried over", "late"]));
}

#[test]
fn an_owner_that_cannot_be_made_durable_is_not_asked_again() {
    let place = Place::new(false);
    *place.owner.refuses.lock() = Some("the disk is broken".to_owned());
    place.remove("a");
    let why = place.owner.lost();
    assert!(why.contains("was removed; the disk is broken"), "{why}");
    while place.log.failed().is_none() {
        thread::yield_now();
    }
    assert!(append(&place.log, "late").is_err());
    assert!(!place.path("a").exists(), "nothing was made");
    let asked = place.owner.told.lock().iter().filter(|told| matches!(told, Told::SetAside(_))).count();
    assert_eq!(asked, 1);
}

#[test]
fn where_no_other_can_be_made_it_is_given_up_with_the_reason() {
    let place = Place::new(false);
    place.remove("a");
    fs::create_dir(place.path("a")).unwrap();
    let why = place.owner.lost();
    assert!(why.contains("no new log") && why.contains("no file"), "{why}");
    assert!(append(&place.log, "late").is_err());

    let disk = SimDisk::new(SIZE as usize, 1);
    let (log, _) = Log::open_device(disk.device(), Config::new("simulated", SIZE, VOLUME)).unwrap();
    let owner = Arc::new(Owner::default());
    log.start(owner.clone()).unwrap();
    disk.lose("was removed");
    let why = owner.lost();
    assert!(why.contains("was removed; where it was, no other one can be made"), "{why}");
}

/// The writer is held by the device that is lost: nothing waits for it for ever.
#[test]
fn a_write_to_the_lost_one_that_does_not_end_is_not_waited_for_for_ever() {
    let disk = SimDisk::new(SIZE as usize, 1);
    let (log, _) = Log::open_device(disk.device(), Config::new("simulated", SIZE, VOLUME)).unwrap();
    let owner = Arc::new(Owner::default());
    log.start(owner.clone()).unwrap();
    disk.hold(true);
    thread::scope(|s| {
        let waits = s.spawn(|| append(&log, "late"));
        disk.await_held();
        disk.lose("was removed");
        assert_eq!(owner.lost(), "was removed");
        while log.failed().is_none() {
            thread::yield_now();
        }
        disk.hold(false);
        assert!(waits.join().unwrap().is_err(), "not acknowledged");
    });
    assert!(!owner.told.lock().iter().any(|told| matches!(told, Told::SetAside(_))));
}

/// A stop while the log is lost: it is stopped in order, with the new one.
#[test]
fn a_stop_waits_for_the_new_log() {
    let place = Place::new(false);
    *place.owner.held.lock() = true;
    let (waiting, waits) = mpsc::channel();
    *place.owner.waiting.lock() = Some(waiting);
    place.remove("a");
    waits.recv_timeout(PATIENCE).expect("set aside");
    thread::scope(|s| {
        let stops = s.spawn(|| place.log.shutdown());
        *place.owner.held.lock() = false;
        place.owner.let_go.notify_all();
        stops.join().unwrap().unwrap();
    });
    drop(place.log);
    let (_, replay) = Log::open(place.config).unwrap();
    assert!(replay.clean && Path::new(&place.dir.path().join("a")).exists());
}
