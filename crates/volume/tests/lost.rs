//! The log or the state directory is lost while the volume is served: noticed, nothing is acknowledged any more, and after a start as
//! the message says everything that was acknowledged is there, with the same handles.

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

/// What was acknowledged: name and handle.
type Acknowledged = Vec<(String, bytes::Bytes)>;

/// One more directory; false when that is not acknowledged.
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

/// The same under a name that no request that was not acknowledged may have left.
fn goes_on(volume: &Volume) {
    let mut tx = volume.tx();
    volume.mkdir(&mut tx, &root(), &volume.root(), b"goes on", mode(0o755)).expect("mkdir");
    tx.finish().wait_blocking().expect("acknowledged");
}

/// Works until it is told that the volume has failed: why, and what was acknowledged.
fn work_until_noticed(volume: &Volume, all: &mut Acknowledged) -> String {
    let begun = Instant::now();
    while one_more(volume, all) {
        assert!(begun.elapsed() < PATIENCE, "not noticed");
        std::thread::sleep(Duration::from_millis(2));
    }
    println!("noticed after {:?}, {} acknowledged", begun.elapsed(), all.len());
    volume.failed().expect("it has failed")
}

/// Waits until nobody holds the volume: what is done about a loss is done. `state` was opened before the loss: its lock is the volume's.
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

/// A volume of whose log or state directory `lose` takes something, and `mend` what the message says to do.
fn loses(lose: impl FnOnce(&Rig), words: &[&str], mend: impl FnOnce(&Path, &Path)) -> Option<RecoveryReport> {
    if !is_root() || !tempdir_suits() {
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
fn a_log_that_is_removed() {
    let report = loses(remove_log, &["/log was removed"], nothing);
    assert!(report.is_none_or(|r| r.clean && r.records == 0), "all is on the disk");
}

#[test]
fn a_log_that_is_truncated() {
    let cut = |rig: &Rig| fs::File::options().write(true).open(log_of(rig)).unwrap().set_len(8192).unwrap();
    loses(cut, &["/log was truncated"], remove_what_is_left);
}

#[test]
fn a_log_that_is_overwritten() {
    let zero = |rig: &Rig| {
        let file = fs::File::options().write(true).open(log_of(rig)).unwrap();
        file.write_all_at(&vec![0; 16 << 20], 0).unwrap();
    };
    loses(zero, &["/log was overwritten"], remove_what_is_left);
}

#[test]
fn a_log_that_is_replaced() {
    let replace = |rig: &Rig| {
        let other = rig.beside.path().join("other");
        fs::copy(log_of(rig), &other).unwrap();
        fs::hard_link(log_of(rig), rig.beside.path().join("kept")).unwrap();
        fs::rename(other, log_of(rig)).unwrap();
    };
    loses(replace, &["/log was replaced"], remove_what_is_left);
}

/// The lost log comes back: it is known to be old, and nothing of it is replayed.
#[test]
fn a_log_that_was_away_and_comes_back_is_refused() {
    if !is_root() || !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    let mut all = Acknowledged::new();
    assert!(one_more(&rig.volume, &mut all));
    let held = state_of(&rig.dir());
    let away = rig.beside.path().join("away");
    fs::rename(log_of(&rig), &away).unwrap();
    let why = work_until_noticed(&rig.volume, &mut all);
    assert!(why.contains("is not there any more") && why.contains("/away now"), "{why}");
    let log = log_of(&rig);
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
fn a_state_directory_that_is_removed_is_written_again() {
    let remove = |rig: &Rig| fs::remove_dir_all(state(rig)).unwrap();
    let report = loses(remove, &[".landfast was removed"], nothing);
    assert!(report.is_none_or(|r| !r.clean), "the log is replayed");
}

#[test]
fn a_state_directory_that_is_renamed_is_written_again() {
    let rename = |rig: &Rig| fs::rename(state(rig), rig.temp.path().join("away")).unwrap();
    loses(rename, &[".landfast was removed or renamed"], nothing);
}

#[test]
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
fn each_state_file_that_is_removed_is_written_again() {
    for file in ["volume", "remap", "marker"] {
        let remove = |rig: &Rig| fs::remove_file(state(rig).join(file)).unwrap();
        loses(remove, &[&format!(".landfast/{file} was removed")], nothing);
    }
}

#[test]
fn an_export_that_is_deleted_as_a_whole_is_no_lost_state_directory() {
    if !is_root() || !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    fs::remove_dir_all(rig.dir()).unwrap();
    std::thread::sleep(5 * landfast_volume::limits::WATCH_EVERY);
    assert_eq!(rig.volume.failed(), None, "its handles are stale, which is answer enough");
    assert!(!rig.dir().exists(), "nothing was made in its place");
}

/// Acknowledged between the loss and its notice, on a log that is gone: kept, also when the power fails after the notice.
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
    work_until_noticed(&volume, &mut all);
    is_let_go(volume, &held);
    drop(held);
    image.power_off();
    image.power_on();
    let (volume, report) = open(options);
    assert!(report.clean, "no log is needed");
    has_all(&volume, &all);
    drop(volume);
}

#[test]
fn on_ext4_it_survives_a_power_cut_after_the_notice() {
    survives_a_power_cut_after_the_notice(Kernel::Ext4);
}

#[test]
fn on_xfs_it_survives_a_power_cut_after_the_notice() {
    survives_a_power_cut_after_the_notice(Kernel::Xfs);
}

#[test]
fn on_btrfs_it_survives_a_power_cut_after_the_notice() {
    survives_a_power_cut_after_the_notice(Kernel::Btrfs);
}

/// The checks above see a server that does not look.
#[test]
#[cfg(debug_assertions)]
fn the_deliberate_bug_is_seen() {
    use landfast_volume::faults::{Bug, with};
    if !is_root() || !tempdir_suits() {
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
