//! The log on real files and block devices: creation, refusals, commit, restart, replay.

mod common;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{Model, VOLUME};
use landfast_intentlog::device::SyncMethod;
use landfast_intentlog::{Config, Log, OpenError};

const SIZE: u64 = 1 << 20;

fn config(path: &Path) -> Config {
    Config::new(path, SIZE, VOLUME)
}

/// Several threads operate on `log`; gives the highest acknowledged effect.
fn operate(log: &Log, model: &Arc<Model>, rounds: usize) -> u64 {
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (log, model) = (log.clone(), model.clone());
            thread::spawn(move || {
                let mut acknowledged = 0;
                for round in 0..rounds {
                    let (last, ticket) = model.operate(&log, &[round * 7 % 900, 40]).unwrap();
                    ticket.wait_blocking().unwrap();
                    acknowledged = last;
                }
                acknowledged
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
}

/// Commits, stops without warning, starts again, several times; then a clean end.
fn restarts(config: &Config) {
    let model = Arc::new(Model::default());
    let mut acknowledged = 0;
    for round in 0..4 {
        let (log, replay) = Log::open(config.clone()).unwrap();
        assert_eq!((replay.fresh, replay.clean), (round == 0, round == 0));
        model.recover(&replay, acknowledged);
        log.start(model.clone()).unwrap();
        acknowledged = operate(&log, &model, 15);
    }
    let (log, replay) = Log::open(config.clone()).unwrap();
    model.recover(&replay, acknowledged);
    log.start(model.clone()).unwrap();
    acknowledged = operate(&log, &model, 3);
    log.shutdown().unwrap();
    drop(log);
    let (_log, replay) = Log::open(config.clone()).unwrap();
    assert!(replay.clean && replay.records.len() == 1);
    model.recover(&replay, acknowledged);
}

#[test]
fn a_file_restarts_with_everything_acknowledged_however_it_is_flushed() {
    let dir = tempfile::tempdir().unwrap();
    for method in [None, Some(SyncMethod::WriteThrough), Some(SyncMethod::Flush)] {
        let path = dir.path().join(format!("{method:?}"));
        let config = Config { sync_method: method, ..config(&path) };
        restarts(&config);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_block_device_restarts_with_everything_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    fs::write(&image, vec![0; 4 << 20]).unwrap();
    let attached = Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
    let device = match attached {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap().trim().to_owned(),
        _ => {
            println!("skipped: needs loop devices");
            return;
        }
    };
    struct Detach(String);
    impl Drop for Detach {
        fn drop(&mut self) {
            let _ = Command::new("losetup").args(["--detach", &self.0]).status();
        }
    }
    let device = Detach(device);
    restarts(&config(Path::new(&device.0)));
    let (log, _) = Log::open(config(Path::new(&device.0))).unwrap();
    assert!(log.info().starts_with("block device"), "{}", log.info());
    let refused = Log::open(config(Path::new(&device.0))).unwrap_err();
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    drop(log);
    a_claim_by_another_program(&device.0);
}

/// One that lasts is refused, and who has the device open is named; one that ends soon is waited out.
fn a_claim_by_another_program(device: &str) {
    let claim = || {
        OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::EXCL.bits().cast_signed())
            .open(device)
            .unwrap()
    };
    let mut other = Command::new("sh").args(["-c", "exec sleep 600 <\"$0\"", device]).spawn().unwrap();
    let claimed = claim();
    let refused = Log::open(config(Path::new(device))).unwrap_err().to_string();
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(refused.contains(&format!("in use by process {} (", other.id())), "{refused}");
    drop(claimed);
    let claimed = claim();
    thread::scope(|s| {
        s.spawn(move || {
            thread::sleep(Duration::from_millis(300));
            drop(claimed);
        });
        Log::open(config(Path::new(device))).unwrap();
    });
}

#[test]
fn a_new_file_has_its_blocks_and_one_holder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let (log, _) = Log::open(config(&path)).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), SIZE);
    assert!(metadata.blocks() * 512 >= SIZE, "no holes");
    let error = Log::open(config(&path)).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }));
    assert!(error.to_string().contains("in use by "), "{error}");
    drop(log);
    Log::open(config(&path)).unwrap();
}

#[test]
fn an_existing_log_keeps_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    drop(Log::open(config(&path)).unwrap());
    let (log, replay) = Log::open(Config { create_size: 4 * SIZE, ..config(&path) }).unwrap();
    assert!(!replay.fresh);
    assert!(log.stats().capacity < SIZE);
}

#[test]
fn a_creation_that_was_cut_off_is_done_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    // Nothing allocated yet; then allocated, but no superblock.
    for length in [0, SIZE] {
        let file = fs::File::create(&path).unwrap();
        file.set_len(length).unwrap();
        drop(file);
        let (_log, replay) = Log::open(config(&path)).unwrap();
        assert!(replay.fresh);
        assert!(fs::metadata(&path).unwrap().blocks() * 512 >= SIZE);
    }
}

#[test]
fn what_is_not_a_log_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    // Something at the start, and something behind zeroes, as some filesystems have it.
    for at in [0, 65_536, SIZE - 512] {
        let mut contents = vec![0; SIZE as usize];
        contents[at as usize..at as usize + 5].copy_from_slice(b"hello");
        fs::write(&path, &contents).unwrap();
        let error = Log::open(config(&path)).unwrap_err();
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), contents);
    }
    assert!(matches!(Log::open(config(dir.path())), Err(OpenError::Kind { .. })));
    let small = Config { create_size: 1000, ..config(&dir.path().join("small")) };
    assert!(matches!(Log::open(small), Err(OpenError::TooSmall { .. })));
    let nowhere = config(&dir.path().join("no/such/directory"));
    let error = Log::open(nowhere).unwrap_err().to_string();
    assert!(error.contains("no/such/directory: cannot open"), "{error}");
}

#[test]
fn a_log_of_another_volume_or_cut_short_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    drop(Log::open(config(&path)).unwrap());
    let before = fs::read(&path).unwrap();
    let error = Log::open(Config { volume_id: [8; 16], ..config(&path) }).unwrap_err();
    assert!(matches!(error, OpenError::OtherVolume { .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before, "refusing changes nothing");
    fs::File::options().write(true).open(&path).unwrap().set_len(SIZE / 2).unwrap();
    let error = Log::open(config(&path)).unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
}

#[test]
fn damage_in_the_middle_is_refused_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let model = Arc::new(Model::default());
    let (log, _) = Log::open(config(&path)).unwrap();
    log.start(model.clone()).unwrap();
    for _ in 0..5 {
        model.operate(&log, &[100]).unwrap().1.wait_blocking().unwrap();
    }
    drop(log);
    // The snapshot is the first batch, each operation the next block.
    let damaged = 65_536 + 3 * 4096;
    fs::File::options().write(true).open(&path).unwrap().write_all_at(b"x", damaged + 200).unwrap();
    let error = Log::open(config(&path)).unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { .. }));
    assert!(error.to_string().contains(&format!("offset {damaged} ")), "{error}");
}

#[test]
fn a_log_in_memory_is_refused() {
    let dir = match tempfile::tempdir_in("/dev/shm") {
        // Not by a command: a child that is just being started shares the descriptors of the tests beside this one,
        // and with them the claim on a block device.
        Ok(dir) if rustix::fs::statfs(dir.path()).unwrap().f_type as u32 == 0x0102_1994 => dir,
        _ => return println!("skipped: /dev/shm is not memory"),
    };
    let path = dir.path().join("log");
    let error = Log::open(Config { accept_weak: false, ..config(&path) }).unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()) && error.contains("is on tmpfs"), "{error}");
    assert!(error.contains("memory") && error.contains("--accept-weak"), "{error}");
    drop(Log::open(Config { accept_weak: true, ..config(&path) }).unwrap());
}

#[test]
fn a_file_for_which_there_is_no_space_can_be_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let error = Log::open(Config { create_size: 1 << 39, ..config(&path) }).unwrap_err().to_string();
    assert!(error.contains("cannot preallocate"), "{error}");
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    assert!(Log::open(config(&path)).unwrap().1.fresh);
}
