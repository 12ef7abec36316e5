//! The log or the state directory is lost while the volume is served. Where a new log can be made, it is, and service continues.
//! Otherwise nothing more is acknowledged, and after a start as the message says everything acknowledged is there. Handles
//! stay the same in all cases.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::image::{Image, Kernel};
use common::*;
use landfast_volume::*;

/// Far more than a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two requests. Without it they could go round the ring and past two checkpoints before anybody has looked; then
/// everything that somebody took away is written again, and nothing is lost.
const PAUSE: Duration = Duration::from_millis(2);

/// Name and handle of each acknowledged directory.
type Acknowledged = Vec<(String, bytes::Bytes)>;

/// Makes one more directory; returns false if that is not acknowledged.
fn one_more(volume: &Volume, all: &mut Acknowledged) -> bool {
    let name = format!("d{}", all.len());
    let mut tx = volume.tx();
    let made = volume.mkdir(&mut tx, &root(), &volume.root(), name.as_bytes(), mode(0o755));
    let stable = tx.finish().wait_blocking();
    match (made, stable) {
        (Ok(made), Ok(())) => {
            all.push((name, made.node.fh()));
            true
        }
        _ => false,
    }
}

/// The same under a name that no unacknowledged request can have left.
fn goes_on(volume: &Volume) {
    let mut tx = volume.tx();
    volume.mkdir(&mut tx, &root(), &volume.root(), b"goes on", mode(0o755)).expect("mkdir");
    tx.finish().wait_blocking().expect("acknowledged");
}

/// Works until the volume has failed; returns why, and adds what was acknowledged.
fn work_until_noticed(volume: &Volume, all: &mut Acknowledged) -> String {
    let begun = Instant::now();
    while one_more(volume, all) {
        assert!(begun.elapsed() < PATIENCE, "not noticed");
        std::thread::sleep(PAUSE);
    }
    println!("noticed after {:?}, {} acknowledged", begun.elapsed(), all.len());
    volume.failed().expect("it has failed")
}

/// Waits until nobody holds the volume, so that the loss is fully handled. `state` was opened before the loss: its lock is the volume's.
fn is_let_go(volume: Volume, state: &fs::File) {
    drop(volume);
    let begun = Instant::now();
    while rustix::fs::flock(state, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        assert!(begun.elapsed() < PATIENCE, "somebody holds the volume");
        std::thread::sleep(Duration::from_millis(2));
    }
    rustix::fs::flock(state, rustix::fs::FlockOperation::Unlock).expect("unlock");
}

fn state_of(dir: &Path) -> fs::File {
    fs::File::open(dir.join(".landfast")).expect("the state directory")
}

fn has_all(volume: &Volume, all: &Acknowledged) {
    for (name, fh) in all {
        let found = volume.lookup(&root(), &volume.root(), name.as_bytes());
        let found = found.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(found.fh(), *fh, "{name} has another handle");
        assert!(volume.resolve(fh).is_ok(), "the handle of {name} is stale");
    }
}

/// `lose` takes away a part of a volume's log or state directory; `mend` does what the message says.
fn loses(lose: impl FnOnce(&Rig), words: &[&str], mend: impl FnOnce(&Path, &Path)) -> Option<RecoveryReport> {
    if !tempdir_suits() {
        return None;
    }
    let rig = Rig::log();
    let mut all = Acknowledged::new();
    for _ in 0..20 {
        assert!(one_more(&rig.volume, &mut all));
    }
    let held = state_of(&rig.dir());
    lose(&rig);
    let why = work_until_noticed(&rig.volume, &mut all);
    for word in words {
        assert!(why.contains(word), "no '{word}' in: {why}");
    }
    assert!(!one_more(&rig.volume, &mut all), "nothing succeeds after the first failure");
    has_all(&rig.volume, &all);
    let Rig { temp, beside, volume, .. } = rig;
    is_let_go(volume, &held);
    mend(temp.path(), beside.path());
    let (volume, report) = open(options(temp.path(), beside.path(), Durability::Log));
    has_all(&volume, &all);
    goes_on(&volume);
    volume.shutdown().expect("a clean stop");
    Some(report)
}

/// `lose` takes away a volume's log; the volume makes a new one and continues. Nothing is refused, and everything acknowledged
/// before and afterwards is there after a crash. Returns the rig, to look at what is left in the log's directory.
fn goes_on_after(lose: impl FnOnce(&Rig), times: u64) -> Option<Rig> {
    if !tempdir_suits() {
        return None;
    }
    let rig = Rig::log();
    let mut all = Acknowledged::new();
    for _ in 0..20 {
        assert!(one_more(&rig.volume, &mut all));
    }
    let verifier = rig.volume.write_verifier();
    lose(&rig);
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    while renewed(&rig.volume) < times {
        let asked = Instant::now();
        assert!(one_more(&rig.volume, &mut all), "{:?} after {:?}", rig.volume.failed(), begun.elapsed());
        longest = longest.max(asked.elapsed());
        assert!(begun.elapsed() < PATIENCE, "not noticed; {} acknowledged, one took {longest:?}", all.len());
        std::thread::sleep(PAUSE);
    }
    println!("a new log after {:?}, {} acknowledged", begun.elapsed(), all.len());
    for _ in 0..20 {
        assert!(one_more(&rig.volume, &mut all));
    }
    assert_eq!(rig.volume.write_verifier(), verifier, "nothing unstable was lost");
    assert_eq!(fs::metadata(log_of(&rig)).expect("a log").len(), 16 << 20);
    has_all(&rig.volume, &all);
    let rig = rig.crash();
    assert!(rig.report.records > 0, "the last are in the new log");
    has_all(&rig.volume, &all);
    goes_on(&rig.volume);
    Some(rig)
}

fn renewed(volume: &Volume) -> u64 {
    volume.stats().log.expect("a log").renewed
}

/// The files beside the log.
fn put_aside(rig: &Rig) -> Vec<String> {
    let entries = fs::read_dir(rig.beside.path()).unwrap();
    let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name != "log").collect();
    names.sort();
    names
}

fn log_of(rig: &Rig) -> PathBuf {
    rig.beside.path().join("log")
}

fn nothing(_: &Path, _: &Path) {}

fn remove_log(rig: &Rig) {
    fs::remove_file(log_of(rig)).expect("the log");
}

fn remove_what_is_left(_: &Path, beside: &Path) {
    fs::remove_file(beside.join("log")).expect("the log");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_that_is_removed() {
    let Some(rig) = goes_on_after(remove_log, 1) else { return };
    assert!(put_aside(&rig).is_empty(), "nothing stood in its place");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_that_is_truncated() {
    let cut = |rig: &Rig| fs::File::options().write(true).open(log_of(rig)).unwrap().set_len(8192).unwrap();
    let Some(rig) = goes_on_after(cut, 1) else { return };
    assert_eq!(put_aside(&rig), ["log.lost-1"]);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_that_is_overwritten() {
    let zero = |rig: &Rig| {
        let file = fs::File::options().write(true).open(log_of(rig)).unwrap();
        file.write_all_at(&vec![0; 16 << 20], 0).unwrap();
    };
    let Some(rig) = goes_on_after(zero, 1) else { return };
    assert_eq!(put_aside(&rig), ["log.lost-1"]);
    let held = fs::read(rig.beside.path().join("log.lost-1")).unwrap();
    assert_eq!(held.len(), 16 << 20, "what somebody has written is not written over");
    // The server has continued to write to it until it noticed.
    assert!(held.ends_with(&[0; 1 << 20]));
}

/// A file that somebody has put there stays his.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_that_is_replaced() {
    let replace = |rig: &Rig| {
        let other = rig.beside.path().join("other");
        fs::write(&other, "somebody's").unwrap();
        fs::hard_link(log_of(rig), rig.beside.path().join("kept")).unwrap();
        fs::write(rig.beside.path().join("log.lost-1"), "an older one").unwrap();
        fs::rename(other, log_of(rig)).unwrap();
    };
    let Some(rig) = goes_on_after(replace, 1) else { return };
    assert_eq!(put_aside(&rig), ["kept", "log.lost-1", "log.lost-2"]);
    let read = |name| fs::read_to_string(rig.beside.path().join(name)).unwrap();
    assert_eq!(
        (read("log.lost-1"), read("log.lost-2")),
        ("an older one".to_owned(), "somebody's".to_owned())
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_that_is_lost_again_and_again() {
    let lose = |rig: &Rig| {
        for times in 1..3 {
            remove_log(rig);
            let begun = Instant::now();
            while renewed(&rig.volume) < times {
                assert!(begun.elapsed() < PATIENCE, "not noticed");
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        remove_log(rig);
    };
    goes_on_after(lose, 3);
}

/// The lost log returns beside the new one: it is known to be old and is not replayed.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_that_was_away_and_comes_back_for_the_new_one_is_refused() {
    let rename = |rig: &Rig| fs::rename(log_of(rig), rig.beside.path().join("away")).unwrap();
    let Some(rig) = goes_on_after(rename, 1) else { return };
    let (log, away) = (log_of(&rig), rig.beside.path().join("away"));
    let Rig { temp, beside, volume, .. } = rig;
    let held = state_of(&temp.path().join("dir"));
    is_let_go(volume, &held);
    drop(held);
    fs::rename(&log, beside.path().join("new")).unwrap();
    fs::rename(&away, &log).unwrap();
    let refused = Volume::open(options(temp.path(), beside.path(), Durability::Log)).unwrap_err().to_string();
    assert!(refused.contains("older copy of the log"), "{refused}");
    fs::rename(beside.path().join("new"), &log).unwrap();
    let (volume, _) = open(options(temp.path(), beside.path(), Durability::Log));
    assert!(volume.lookup(&root(), &volume.root(), b"goes on").is_ok());
}

/// Takes the log away and leaves something else than a file in its place.
fn in_whose_place_is_a_directory(rig: &Rig) {
    remove_log(rig);
    fs::create_dir(log_of(rig)).expect("a directory");
}

fn remove_the_directory(_: &Path, beside: &Path) {
    fs::remove_dir(beside.join("log")).expect("nothing is in it");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_in_whose_place_no_other_can_stand_is_given_up() {
    let words = &["/log was re", "no new log", "something else stands there that is no file"];
    let report = loses(in_whose_place_is_a_directory, words, remove_the_directory);
    assert!(report.is_none_or(|r| r.clean && r.records == 0), "all is on the disk");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_in_whose_place_is_a_file_that_is_in_use_is_given_up() {
    let mut lock = None;
    let replace = |rig: &Rig| {
        let other = rig.beside.path().join("other");
        let file = fs::File::create(&other).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        lock = Some(file);
        fs::rename(other, log_of(rig)).unwrap();
    };
    loses(replace, &["/log was re", "another file stands there, which is in use by"], remove_what_is_left);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_whose_directory_is_gone_is_given_up() {
    let away = |rig: &Rig| {
        let beside = rig.beside.path();
        fs::rename(beside, beside.with_extension("away")).expect("the log's directory");
    };
    let back = |_: &Path, beside: &Path| {
        fs::rename(beside.with_extension("away"), beside).expect("the log's directory");
        fs::remove_file(beside.join("log")).expect("the log");
    };
    loses(away, &["/log is not there any more", "its directory cannot be opened"], back);
}

/// A log that was given up returns: it is known to be old and is not replayed.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_that_was_away_and_comes_back_is_refused() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    let mut all = Acknowledged::new();
    assert!(one_more(&rig.volume, &mut all));
    let held = state_of(&rig.dir());
    let away = rig.beside.path().join("away");
    fs::create_dir(rig.beside.path().join("empty")).unwrap();
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    fs::hard_link(log_of(&rig), &away).unwrap();
    let (log, empty) = (log_of(&rig), rig.beside.path().join("empty"));
    rustix::fs::renameat_with(rustix::fs::CWD, &log, rustix::fs::CWD, &empty, exchange).unwrap();
    let why = work_until_noticed(&rig.volume, &mut all);
    assert!(why.contains("/log was replaced"), "{why}");
    fs::remove_dir(&log).unwrap();
    let Rig { temp, beside, volume, .. } = rig;
    is_let_go(volume, &held);
    fs::rename(&away, &log).unwrap();
    let refused = Volume::open(options(temp.path(), beside.path(), Durability::Log)).unwrap_err().to_string();
    assert!(refused.contains("older copy of the log") && refused.contains("or a new one"), "{refused}");
    fs::remove_file(&log).unwrap();
    let (volume, _) = open(options(temp.path(), beside.path(), Durability::Log));
    has_all(&volume, &all);
}

fn state(rig: &Rig) -> PathBuf {
    rig.dir().join(".landfast")
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_state_directory_that_is_removed_is_written_again() {
    let remove = |rig: &Rig| fs::remove_dir_all(state(rig)).unwrap();
    let report = loses(remove, &[".landfast was removed"], nothing);
    assert!(report.is_none_or(|r| !r.clean), "the log is replayed");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_state_directory_that_is_renamed_is_written_again() {
    let rename = |rig: &Rig| fs::rename(state(rig), rig.temp.path().join("away")).unwrap();
    loses(rename, &[".landfast was removed or renamed"], nothing);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_state_directory_in_whose_place_something_stands_is_left_alone() {
    let replace = |rig: &Rig| {
        fs::rename(state(rig), rig.temp.path().join("away")).unwrap();
        fs::create_dir(state(rig)).unwrap();
    };
    let put_back = |base: &Path, _: &Path| {
        let state = base.join("dir/.landfast");
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0, "nothing was made there");
        fs::remove_dir(&state).unwrap();
        fs::rename(base.join("away"), state).unwrap();
    };
    loses(replace, &[".landfast was replaced"], put_back);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn each_state_file_that_is_removed_is_written_again() {
    for file in ["volume", "remap", "marker"] {
        let remove = |rig: &Rig| fs::remove_file(state(rig).join(file)).unwrap();
        loses(remove, &[&format!(".landfast/{file} was removed")], nothing);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_export_that_is_deleted_as_a_whole_is_no_lost_state_directory() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    fs::remove_dir_all(rig.dir()).unwrap();
    std::thread::sleep(5 * landfast_volume::limits::WATCH_EVERY);
    assert_eq!(rig.volume.failed(), None, "its handles are stale, which is answer enough");
    assert!(!rig.dir().exists(), "nothing was made in its place");
}

/// Changes acknowledged between the loss and its detection, on a lost log, are kept, even if power fails after the detection.
fn survives_a_power_cut_after_the_notice(kernel: Kernel) {
    let Some(mut image) = Image::new(kernel) else { return };
    let dir = image.path().join("export");
    fs::create_dir(&dir).expect("mkdir");
    let log = image.beside().join("log");
    let options = OpenOptions { log_size: 16 << 20, ..OpenOptions::with_log(&dir, &log) };
    let (volume, _) = open(options.clone());
    let mut all = Acknowledged::new();
    assert!(one_more(&volume, &mut all));
    let held = state_of(&dir);
    fs::remove_file(&log).expect("the log");
    fs::create_dir(&log).expect("no new log can be made there");
    work_until_noticed(&volume, &mut all);
    is_let_go(volume, &held);
    drop(held);
    image.power_off();
    image.power_on();
    fs::remove_dir(&log).expect("nothing is in it");
    let (volume, report) = open(options);
    assert!(report.clean, "no log is needed");
    has_all(&volume, &all);
    drop(volume);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn on_ext4_it_survives_a_power_cut_after_the_notice() {
    survives_a_power_cut_after_the_notice(Kernel::Ext4);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn on_xfs_it_survives_a_power_cut_after_the_notice() {
    survives_a_power_cut_after_the_notice(Kernel::Xfs);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn on_btrfs_it_survives_a_power_cut_after_the_notice() {
    survives_a_power_cut_after_the_notice(Kernel::Btrfs);
}

/// The checks above detect a server that does not look.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
#[cfg(debug_assertions)]
fn the_deliberate_bug_is_seen() {
    use landfast_volume::faults::{Bug, with};
    if !tempdir_suits() {
        return;
    }
    let rig = with(Some(Bug::LostLogUnnoticed), Rig::log);
    let mut all = Acknowledged::new();
    let held = state_of(&rig.dir());
    remove_log(&rig);
    let until = Instant::now() + 5 * landfast_volume::limits::WATCH_EVERY;
    while Instant::now() < until {
        assert!(one_more(&rig.volume, &mut all), "acknowledged, though the log is gone");
        std::thread::sleep(Duration::from_millis(2));
    }
    let Rig { temp, beside, volume, .. } = rig;
    is_let_go(volume, &held);
    let refused = Volume::open(options(temp.path(), beside.path(), Durability::Log)).unwrap_err().to_string();
    assert!(refused.contains("acknowledged operations are in its log"), "{refused}");
}
