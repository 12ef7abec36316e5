//! What may be opened, and the one line that says why not.

mod common;

use std::path::Path;

use common::*;
use landfast_volume::*;
use rustix::thread::CapabilitiesSecureBits;

/// The message of a refusal.
fn refused(options: OpenOptions) -> String {
    match Volume::open(options) {
        Ok(_) => panic!("opened"),
        Err(e) => {
            let line = e.to_string();
            println!("{line}");
            assert!(!line.contains('\n'), "one line: {line}");
            line
        }
    }
}

fn place() -> (tempfile::TempDir, tempfile::TempDir) {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir(temp.path().join("dir")).unwrap();
    (temp, beside())
}

#[test]
fn a_directory_that_is_none() {
    let temp = tempfile::tempdir().unwrap();
    let line = refused(options(temp.path(), temp.path(), Durability::Sync));
    assert!(line.contains("no such directory") && line.contains("dir"), "{line}");
    std::fs::write(temp.path().join("dir"), b"").unwrap();
    assert!(refused(options(temp.path(), temp.path(), Durability::Sync)).contains("not a directory"));
}

#[test]
fn a_log_goes_with_durability_log_only() {
    let (temp, logs) = place();
    let no_log = OpenOptions { log: None, ..options(temp.path(), logs.path(), Durability::Log) };
    assert!(refused(no_log).contains("--log"));
    let log = Some(logs.path().join("log").into());
    assert!(
        refused(OpenOptions { log, ..options(temp.path(), logs.path(), Durability::Sync) }).contains("log")
    );
    assert!(!temp.path().join("dir/.landfast").exists(), "a refusal leaves no trace");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn filesystems_that_cannot_keep_the_promise() {
    if !Path::new("/dev/shm").is_dir() {
        return;
    }
    let temp = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::create_dir(temp.path().join("dir")).unwrap();
    let line = refused(options(temp.path(), temp.path(), Durability::Log));
    assert!(line.contains("tmpfs") && line.contains("ext4, XFS, btrfs") && line.contains("sync"), "{line}");
    assert!(!temp.path().join("dir/.landfast").exists(), "a refusal leaves no trace");
    // With each operation flushed by itself it works there.
    let (volume, _) = open(options(temp.path(), temp.path(), Durability::Sync));
    let mut tx = volume.tx();
    let made = volume.mkdir(&mut tx, &root(), &volume.root(), b"d", mode(0o755)).unwrap();
    assert_eq!(volume.resolve(&made.node.fh()).unwrap(), made.node);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn two_servers_cannot_share_a_directory() {
    let rig = Rig::new(Durability::Sync);
    let line = refused(options(rig.temp.path(), rig.beside.path(), Durability::Sync));
    assert!(line.contains("in use by another"), "{line}");
    let Rig { temp, beside, volume, .. } = rig;
    drop(volume);
    open(options(temp.path(), beside.path(), Durability::Sync));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_log_must_be_this_volumes_own_and_nobody_elses() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    let (other, _logs) = place();
    let theirs = |rig: &Rig| OpenOptions {
        log: Some(rig.beside.path().join("log").into()),
        ..options(other.path(), rig.beside.path(), Durability::Log)
    };
    let line = refused(theirs(&rig));
    assert!(line.contains("in use"), "{line}");
    rig.volume.shutdown().unwrap();
    let Rig { temp, beside, volume, report } = rig;
    let log = beside.path().join("log");
    drop((volume, report));
    let line = refused(OpenOptions::with_log(other.path().join("dir"), &log));
    assert!(line.contains("another volume") || line.contains("belongs"), "{line}");
    let inside = OpenOptions::with_log(other.path().join("dir"), other.path().join("dir/log"));
    assert!(refused(inside).contains("inside"));
    open(options(temp.path(), beside.path(), Durability::Log));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_that_refuses_leaves_no_trace_in_the_directory() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    let (temp, logs) = place();
    let dir = temp.path().join("dir");
    let in_use = rig.beside.path().join("log");
    let missing = logs.path().join("nowhere/log");
    let foreign = logs.path().join("foreign");
    std::fs::write(&foreign, vec![7; 16 << 20]).unwrap();
    let small = logs.path().join("small");
    std::fs::write(&small, vec![0; 4096]).unwrap();
    let inside = dir.join("log");
    for log in [&in_use, &missing, &foreign, &small, &inside, &logs.path().to_owned()] {
        refused(OpenOptions::with_log(&dir, log));
        let left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{left:?} after {}", log.display());
    }
    rig.volume.shutdown().unwrap();
    let Rig { temp: others, beside, volume, report } = rig;
    drop((volume, report));
    refused(OpenOptions::with_log(&dir, &in_use));
    assert!(!dir.join(".landfast").exists(), "the log of another");
    // A directory that has been served keeps its identity, whatever log it is started with.
    let before = std::fs::read(others.path().join("dir/.landfast/volume")).unwrap();
    refused(OpenOptions::with_log(others.path().join("dir"), &foreign));
    assert_eq!(std::fs::read(others.path().join("dir/.landfast/volume")).unwrap(), before);
    open(options(others.path(), beside.path(), Durability::Log));
    open(options(temp.path(), logs.path(), Durability::Log));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_a_log_still_holds_is_never_left_behind() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    rig.mkdir(&root(), &rig.volume.root(), "d").unwrap();
    let Rig { temp, beside, volume, .. } = rig;
    drop(volume);
    // Not stopped: neither without the log nor with another one.
    let line = refused(options(temp.path(), beside.path(), Durability::Sync));
    assert!(line.contains("--log"), "{line}");
    let fresh = common::beside();
    for _ in 0..2 {
        // Nor once the other one is no longer new.
        let line = refused(options(temp.path(), fresh.path(), Durability::Log));
        assert!(line.contains("--log"), "{line}");
    }
    let (volume, report) = open(options(temp.path(), beside.path(), Durability::Log));
    assert!(!report.clean);
    volume.shutdown().unwrap();
    drop(volume);
    let (volume, report) = open(options(temp.path(), beside.path(), Durability::Sync));
    assert!(report.clean && report.epoch >= 3);
    volume.shutdown().unwrap();
    drop(volume);
    let (_, report) = open(options(temp.path(), common::beside().path(), Durability::Log));
    assert!(report.clean, "after a clean stop another log is as good");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_copy_is_not_the_original() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    let fh = rig.mkdir(&root(), &rig.volume.root(), "d").unwrap().fh();
    let copy = tempfile::tempdir().unwrap();
    let cp = |rig: &Rig| {
        let status = std::process::Command::new("cp").arg("-a").arg(rig.dir()).arg(copy.path()).status();
        assert!(status.unwrap().success());
    };
    cp(&rig);
    let line = refused(options(copy.path(), common::beside().path(), Durability::Sync));
    assert!(line.contains("copy") || line.contains("--log"), "{line}");
    let rig = rig.restart();
    rig.volume.shutdown().unwrap();
    std::fs::remove_dir_all(copy.path().join("dir")).unwrap();
    cp(&rig);
    // After a clean stop it may be served as another volume. Handles of the original do not lead there.
    let (volume, _) = open(options(copy.path(), common::beside().path(), Durability::Sync));
    assert_eq!(volume.resolve(&fh).unwrap_err(), Error::BadHandle);
    assert_ne!(volume.id(), rig.volume.id());
    assert!(volume.lookup(&root(), &volume.root(), b"d").is_ok());
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn damage_to_the_state_is_seen() {
    let rig = Rig::new(Durability::Sync);
    let file = rig.dir().join(".landfast/volume");
    let Rig { temp, beside, volume, .. } = rig;
    drop(volume);
    let good = std::fs::read(&file).unwrap();
    let mut bad = good.clone();
    bad[20] ^= 1;
    std::fs::write(&file, bad).unwrap();
    let line = refused(options(temp.path(), beside.path(), Durability::Sync));
    assert!(line.contains("damaged") && line.contains(".landfast/volume"), "{line}");
    std::fs::write(&file, good).unwrap();
    open(options(temp.path(), beside.path(), Durability::Sync));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_state_directory_is_private() {
    let rig = Rig::new(Durability::Sync);
    let mode = |path: &Path| std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(path).unwrap()) & 0o777;
    assert_eq!(mode(&rig.dir().join(".landfast")), 0o700);
    assert_eq!(mode(&rig.dir().join(".landfast/volume")), 0o600);
    let Rig { temp, beside, volume, .. } = rig;
    drop(volume);
    // A stranger's directory under that name is not trusted.
    std::os::unix::fs::chown(temp.path().join("dir/.landfast"), Some(1000), None).unwrap();
    assert!(refused(options(temp.path(), beside.path(), Durability::Sync)).contains("another user"));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn missing_capabilities_are_named() {
    let (temp, logs) = place();
    let options = options(temp.path(), logs.path(), Durability::Sync);
    // On a thread of its own, which gives up the capabilities.
    let thread = std::thread::spawn(move || {
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective.remove(rustix::thread::CapabilitySet::SETGID);
        rustix::thread::set_capabilities(None, sets).unwrap();
        refused(options)
    });
    let line = thread.join().unwrap();
    assert!(line.ends_with("missing: CAP_SETGID"), "{line}");
}

/// With these securebits, and capabilities that an exec would keep.
fn opened_with(bits: CapabilitiesSecureBits) -> Result<(), String> {
    let (temp, logs) = place();
    let options = options(temp.path(), logs.path(), Durability::Sync);
    // They belong to the thread and end with it.
    let thread = std::thread::spawn(move || {
        rustix::thread::set_capabilities_secure_bits(bits).unwrap();
        let opened = Volume::open(options).map(drop).map_err(|e| e.to_string());
        assert_eq!(opened.is_ok(), temp.path().join("dir/.landfast").exists(), "a refusal leaves no trace");
        opened
    });
    thread.join().unwrap()
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn whoever_would_keep_the_superusers_rights_as_another_user_serves_nothing() {
    use CapabilitiesSecureBits as Bits;
    for bits in [
        Bits::NO_SETUID_FIXUP,
        Bits::NO_SETUID_FIXUP | Bits::NO_SETUID_FIXUP_LOCKED | Bits::KEEP_CAPS | Bits::NO_ROOT,
    ] {
        let line = opened_with(bits).unwrap_err();
        println!("{line}");
        let parts =
            ["as user 65534", "CAP_DAC_OVERRIDE", "opening root's files", "no_setuid_fixup", "setpriv"];
        for part in parts {
            assert!(line.contains(part), "no '{part}' in {line}");
        }
        assert!(!line.contains('\n'), "{line}");
    }
    // These concern an exec, or a switch of all of a process's users.
    for bits in [Bits::KEEP_CAPS, Bits::NO_ROOT | Bits::NO_ROOT_LOCKED, Bits::NO_CAP_AMBIENT_RAISE] {
        opened_with(bits).unwrap();
    }
}

/// As the demo does without root: everything within one run, as the process's own user.
#[test]
fn without_privileges_for_experiments() {
    let (temp, logs) = place();
    let work = move || {
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective = rustix::thread::CapabilitySet::empty();
        rustix::thread::set_capabilities(None, sets).unwrap();
        let experiment = Experiment { unprivileged: true, ..Experiment::default() };
        for durability in [Durability::Sync, Durability::Log, Durability::Unsafe] {
            let options = OpenOptions { experiment, ..options(temp.path(), logs.path(), durability) };
            let (volume, _) = open(options);
            let name = format!("{durability:?}");
            let mut tx = volume.tx();
            let dir =
                volume.mkdir(&mut tx, &root(), &volume.root(), name.as_bytes(), mode(0o755)).unwrap().node;
            for i in 0..100 {
                let name = format!("f{i}");
                let how = CreateHow::Guarded(SetAttrs { mtime: Some(TimeSet::Now), ..mode(0o644) });
                let made =
                    volume.create(&mut tx, &user(7), &dir, name.as_bytes(), how, OpenMode::BOTH).unwrap();
                volume.write(&mut tx, &made.file, 0, "data".into(), Stable::FileSync).unwrap();
                let fh = made.node.fh();
                drop(made);
                let node = volume.resolve(&fh).unwrap();
                volume.setattr(&mut tx, &root(), &node, None, mode(0o600)).unwrap();
                assert_eq!(volume.getattr(&node).unwrap().size, 4);
            }
            assert_eq!(
                volume.readdir(&root(), &dir, 0, 1000, EntryDetail::Attrs).unwrap().entries.len(),
                100
            );
            volume.remove(&mut tx, &root(), &dir, b"f1").unwrap();
            tx.finish().wait_blocking().unwrap();
            volume.shutdown().unwrap();
        }
    };
    std::thread::spawn(work).join().unwrap();
}

/// After a clean stop any new log is accepted, also one that an interrupted start has made.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_first_start_with_a_new_log_that_is_cut_short() {
    if !tempdir_suits() {
        return;
    }
    let mut rig = Rig::log();
    for name in ["one", "two", "three"] {
        rig.create(&root(), &rig.volume.root(), name).expect("create");
        // Each a checkpoint further.
        rig = rig.restart();
    }
    let Rig { temp, beside, volume, .. } = rig;
    volume.shutdown().expect("a clean stop");
    drop(volume);
    let log = beside.path().join("log");
    std::fs::remove_file(&log).expect("the log");
    let again = || Volume::open(options(temp.path(), beside.path(), Durability::Log));
    // It is opened but never started.
    for _ in 0..2 {
        let (volume, report) = again().expect("a new log, or the one of the attempt before");
        assert!(report.notes.is_empty());
        drop(volume);
    }
    let (volume, _) = open(options(temp.path(), beside.path(), Durability::Log));
    assert!(volume.lookup(&root(), &volume.root(), b"three").is_ok());
}
