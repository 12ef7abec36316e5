//! Logs and directories that do not belong together, or are damaged. A real volume has lost power, and only its log has some of
//! the acknowledged work. Then each possible defect is made. A start either restores everything acknowledged, or is refused
//! with a message that says what is wrong, and has changed nothing.
//!
//! This test checks the table "What is refused and what it says" in `docs/internals/intent-log.md`: a case that is missing
//! there, or says something else, fails the test.

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::image::{Image, Kernel};
use common::*;
use landfast_volume::log;
use landfast_volume::*;

const BLOCK: usize = 4096;
const LOG_BYTES: u64 = 1 << 20;
const DOC: &str = include_str!("../../../docs/internals/intent-log.md");

/// A server with some state.
struct Notes;

impl NoteKeeper for Notes {
    fn snapshot(&self) -> Box<dyn landfast_volume::Snapshot> {
        Box::new(vec![vec![7; 200]])
    }
}

/// A volume that has lost power, with everything that belongs to it.
struct Scene {
    image: Image,
    /// Acknowledged contents by name.
    acknowledged: BTreeMap<String, Vec<u8>>,
    /// The log when power failed.
    log_now: Vec<u8>,
    /// The directory has changed since power failed.
    touched: bool,
    /// Each case and its message.
    table: Vec<(&'static str, &'static str)>,
}

impl Scene {
    /// Three lives: the first ends cleanly, the second with a crash of the server, the third with a power cut.
    fn new() -> Option<Scene> {
        let image = Image::new(Kernel::Ext4)?;
        std::fs::create_dir(image.path().join("dir")).expect("a directory");
        let (log_now, acknowledged) = (Vec::new(), BTreeMap::new());
        let mut scene = Scene { image, acknowledged, log_now, touched: false, table: Vec::new() };
        let volume = scene.open().expect("new");
        scene.work(&volume, "first");
        volume.shutdown().expect("stopped");
        drop(volume);
        scene.image.save_as("stopped");
        scene.keep_log("log-stopped");
        let volume = scene.open().expect("as it was");
        scene.work(&volume, "second");
        drop(volume);
        scene.keep_log("log-crashed");
        let volume = scene.open().expect("recovered");
        scene.work(&volume, "third");
        scene.image.commit();
        scene.work(&volume, "fourth");
        scene.image.power_off();
        drop(volume);
        scene.image.power_on();
        scene.image.save_as("now");
        scene.log_now = std::fs::read(scene.log()).expect("the log");
        Some(scene)
    }

    fn log(&self) -> PathBuf {
        self.image.beside().join("log")
    }

    fn dir(&self) -> PathBuf {
        self.image.path().join("dir")
    }

    fn state(&self, file: &str) -> PathBuf {
        self.dir().join(".landfast").join(file)
    }

    fn options(&self) -> OpenOptions {
        OpenOptions { log_size: LOG_BYTES, ..OpenOptions::with_log(self.dir(), self.log()) }
    }

    fn open(&self) -> Result<Volume, OpenError> {
        let (volume, _) = Volume::open(self.options())?;
        volume.start(std::sync::Arc::new(Notes))?;
        Ok(volume)
    }

    /// A few acknowledged operations, each in a batch of its own.
    fn work(&mut self, volume: &Volume, round: &str) {
        let top = volume.root();
        let run = |op: &mut dyn FnMut(&mut Tx) -> Result<(), Error>| {
            let mut tx = volume.tx();
            op(&mut tx).expect("done");
            tx.finish().wait_blocking().expect("acknowledged");
        };
        for n in 0..6 {
            let (name, data) = (format!("{round}{n}"), vec![b'a' + n; 1500]);
            run(&mut |tx| {
                let how = CreateHow::Guarded(mode(0o644));
                let made = volume.create(tx, &root(), &top, name.as_bytes(), how, OpenMode::BOTH)?;
                volume.write(tx, &made.file, 0, data.clone().into(), Stable::FileSync).map(drop)
            });
            self.acknowledged.insert(name, data);
        }
        let (from, to) = (format!("{round}1"), format!("{round}-renamed"));
        run(&mut |tx| volume.rename(tx, &root(), &top, from.as_bytes(), &top, to.as_bytes()).map(drop));
        let moved = self.acknowledged.remove(&from).expect("there");
        self.acknowledged.insert(to, moved);
        let gone = format!("{round}2");
        run(&mut |tx| volume.remove(tx, &root(), &top, gone.as_bytes()).map(drop));
        self.acknowledged.remove(&gone);
    }

    fn keep_log(&self, name: &str) {
        std::fs::copy(self.log(), self.image.beside().join(name)).expect("a copy");
    }

    fn other_log(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.image.beside().join(name)).expect("a copy")
    }

    /// Restores the state when power failed.
    fn reset(&mut self) {
        if std::mem::take(&mut self.touched) {
            self.image.load("now");
        }
        self.put_log(&self.log_now);
    }

    fn put_log(&self, bytes: &[u8]) {
        let _ = std::fs::remove_file(self.log());
        std::fs::write(self.log(), bytes).expect("written");
    }

    /// Changes the current log.
    fn with_log(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.log_now.clone();
        change(&mut bytes);
        self.put_log(&bytes);
    }

    /// The contents of the volume, and its log.
    fn look(&self) -> (Vec<(PathBuf, Vec<u8>)>, Vec<u8>) {
        let mut all = Vec::new();
        let mut dirs = vec![self.dir()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).expect("a directory").map(|e| e.expect("an entry").path()) {
                let kind = entry.symlink_metadata().expect("an entry").file_type();
                if kind.is_dir() {
                    dirs.push(entry);
                } else if kind.is_file() {
                    all.push((entry.clone(), std::fs::read(entry).expect("a file")));
                } else {
                    // A FIFO, which has no contents, keeps room for orphans.
                    all.push((entry, Vec::new()));
                }
            }
        }
        all.sort();
        (all, std::fs::read(self.log()).unwrap_or_default())
    }

    /// Checks that a start is refused with these words and changes nothing.
    fn refused(&mut self, case: &'static str, says: &'static str) {
        let options = self.options();
        self.refused_with(case, says, options);
    }

    fn refused_with(&mut self, case: &'static str, says: &'static str, options: OpenOptions) {
        let before = self.look();
        let line = refusal(options, case);
        println!("{case}: {line}");
        assert!(line.contains(says), "{case}: no '{says}' in: {line}");
        let path_named = [self.log(), self.dir()].iter().any(|p| line.contains(&*p.to_string_lossy()));
        assert!(path_named || line.contains("/"), "{case}: no path in: {line}");
        // A file that was emptied may have become an empty log of the same size as a new one.
        let after = self.look();
        assert!(before.0 == after.0, "{case}: the directory was changed");
        let empty = before.1.iter().all(|byte| *byte == 0);
        assert!(empty || before.1 == after.1, "{case}: the log was changed");
        self.table.push((case, says));
    }

    /// As `refused`, and `landfast log check` says so, too.
    fn refused_and_seen(&mut self, case: &'static str, says: &'static str) {
        self.refused(case, says);
        let line = match log::open(&self.log()) {
            Err(e) => e.to_string(),
            Ok(found) => {
                assert!(log::contents(&found).is_err(), "{case}: info finds nothing wrong");
                log::check(&found).expect_err(case).to_string()
            }
        };
        assert!(line.contains(says), "{case}: no '{says}' in what check says: {line}");
    }

    /// Checks that a start restores everything acknowledged.
    fn recovers(&mut self, case: &'static str, says: &'static str) {
        self.touched = true;
        let volume = self.open().unwrap_or_else(|e| panic!("{case}: {e}"));
        for (name, data) in &self.acknowledged {
            let found =
                std::fs::read(self.dir().join(name)).unwrap_or_else(|e| panic!("{case}: {name}: {e}"));
            assert!(found == *data, "{case}: {name} is another");
        }
        let names = std::fs::read_dir(self.dir()).expect("a directory").count();
        assert_eq!(names, self.acknowledged.len() + 1, "{case}: names that nobody made");
        volume.shutdown().expect("stopped");
        self.table.push((case, says));
    }
}

/// The message of a start that must fail.
fn refusal(options: OpenOptions, case: &str) -> String {
    match Volume::open(options) {
        Ok(_) => panic!("{case}: served"),
        Err(e) => {
            let line = e.to_string();
            assert!(!line.contains('\n'), "one line: {line}");
            line
        }
    }
}

/// Changes a field of a superblock and makes its checksum right again.
fn reseal(bytes: &mut [u8], slot: usize, change: impl FnOnce(&mut [u8])) {
    let block = &mut bytes[slot * BLOCK..(slot + 1) * BLOCK];
    change(block);
    let crc = crc32c::crc32c(&block[..BLOCK - 4]);
    block[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
}

fn set_version(bytes: &mut [u8], slot: usize) {
    reseal(bytes, slot, |block| block[8] = 99);
}

fn flip(path: &Path, at: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1], at).expect("changed");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn each_is_detected_named_and_never_served_over() {
    let Some(mut scene) = Scene::new() else { return };
    logs(&mut scene);
    every_byte(&mut scene);
    paths(&mut scene);
    in_use(&mut scene);
    directories(&mut scene);
    after_a_clean_stop(&mut scene);
    let rows = scene.table.iter().map(|(case, says)| format!("| {case} | {says} |"));
    let missing: Vec<_> = rows.clone().filter(|row| !DOC.lines().any(|l| l == row)).collect();
    assert!(missing.is_empty(), "not in docs/internals/intent-log.md:\n{}", missing.join("\n"));
    let table = DOC.split("## What is refused and what it says").nth(1).expect("the section");
    let table = table.split("\n## ").next().expect("its text");
    let told: Vec<_> = table.lines().filter(|l| l.starts_with("| ")).skip(1).collect();
    let rows: Vec<_> = rows.collect();
    let unknown: Vec<_> = told.iter().filter(|l| !rows.iter().any(|r| r == *l)).collect();
    assert!(unknown.is_empty(), "in docs/internals/intent-log.md, but not here: {unknown:#?}");
}

fn logs(s: &mut Scene) {
    s.reset();
    s.recovers("nothing", "everything acknowledged is back");

    s.reset();
    let whole = s.log_now.len();
    for blocks in (1..whole / BLOCK).rev() {
        s.with_log(|log| log.truncate(blocks * BLOCK));
        let line = refusal(s.options(), "cut off");
        assert!(line.contains("are there;") || line.contains("bytes are too few"), "{blocks}: {line}");
        let check = log::open(&s.log()).expect_err("cut off").to_string();
        assert_eq!(line, check, "{blocks}");
    }
    s.with_log(|log| log.truncate(whole / 2));
    s.refused_and_seen("the log was cut off", "it was made with 1048576 bytes, but only 524288 are there");
    s.with_log(|log| log.truncate(2 * BLOCK));
    s.refused_and_seen("the log was cut off before its ring", "but only 8192 are there");
    s.put_log(&[]);
    s.refused("the log was emptied", "what stands at");
    s.with_log(|log| log.fill(0));
    s.refused("the log was overwritten with zeroes", "is another one, or an emptied one");

    s.with_log(|log| log[..2 * BLOCK].fill(0));
    s.refused_and_seen(
        "both superblocks are zero",
        "both superblocks (offsets 0 and 4096) are erased or overwritten",
    );
    s.with_log(|log| log[..2 * BLOCK].fill(0xa5));
    s.refused_and_seen(
        "other bytes stand where both superblocks were",
        "but batches of a log stand behind them",
    );
    s.with_log(|log| log.fill(0xa5));
    s.refused_and_seen("other bytes stand everywhere", "holds something that is not a Landfast log");
    s.with_log(|log| {
        log[40] ^= 1;
        log[BLOCK + 40] ^= 1;
    });
    s.refused_and_seen("both superblocks are damaged", "neither superblock (offsets 0 and 4096) is valid");
    for (slot, case) in
        ["the first superblock is damaged", "the second superblock is damaged"].into_iter().enumerate()
    {
        s.with_log(|log| log[slot * BLOCK + 40] ^= 1);
        let found = log::open(&s.log()).expect("the other one counts");
        let says = [
            "the superblock at offset 0 is torn or damaged",
            "the superblock at offset 4096 is torn or damaged",
        ];
        assert!(found.warning().expect("it is seen").contains(says[slot]));
        drop(found);
        s.recovers(
            case,
            [
                "everything acknowledged is back; warns: the superblock at offset 0 is torn or damaged",
                "everything acknowledged is back; warns: the superblock at offset 4096 is torn or damaged",
            ][slot],
        );
        s.reset();
    }
    s.with_log(|log| {
        set_version(log, 0);
        set_version(log, 1);
    });
    s.refused_and_seen("a newer version wrote it", "was written by a newer Landfast, in format version 99");
    s.with_log(|log| set_version(log, 1));
    s.refused_and_seen(
        "a newer version has begun to write it",
        "was written by a newer Landfast, in format version 99",
    );

    let batches = batches(&s.log_now, s);
    let (first, middle, last) = (batches[0], batches[batches.len() / 2], batches[batches.len() - 1]);
    s.with_log(|log| log[first.offset as usize + 130] ^= 0x10);
    s.refused_and_seen("the first batch is damaged", "is missing or damaged, but");
    s.with_log(|log| log[middle.offset as usize + 130] ^= 0x10);
    s.refused_and_seen(
        "a batch in the middle is damaged",
        "is missing or damaged, but a later one with sequence numbers",
    );
    s.with_log(|log| log[middle.offset as usize..last.offset as usize].fill(0));
    s.refused_and_seen("batches in the middle are gone", "stands at offset");
    s.with_log(|log| log.swap_with_slice(&mut s.other_log("log-stopped")));
    s.refused("the log of the last clean stop was put back", "this is an older copy of the log");
    s.with_log(|log| log.swap_with_slice(&mut s.other_log("log-crashed")));
    s.refused("a log of an earlier run was put back", "this is an older copy of the log");
}

/// Superblocks: every bit of the used bytes and the checksum, one bit of each other byte. Batches: one bit of each byte of a batch
/// at the beginning, in the middle and at the end.
fn every_byte(s: &mut Scene) {
    let memory = common::beside();
    let path = memory.path().join("log");
    std::fs::write(&path, &s.log_now).expect("written");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("a file");
    let held =
        |path: &Path| log::open(path).and_then(|log| log::contents(&log)).map(|c| c.log.expect("a log"));
    let whole = held(&path).expect("whole");
    let log_now = &s.log_now;
    let flipped = |at: usize, bit: usize| {
        file.write_all_at(&[log_now[at] ^ (1 << bit)], at as u64).expect("changed");
        let found = held(&path);
        file.write_all_at(&log_now[at..=at], at as u64).expect("as it was");
        found
    };
    for at in 0..2 * BLOCK {
        let used = at % BLOCK < 128 || at % BLOCK >= BLOCK - 4;
        for bit in if used { 0..8 } else { at % 8..at % 8 + 1 } {
            let found = flipped(at, bit).unwrap_or_else(|e| panic!("byte {at}, bit {bit}: {e}"));
            assert_eq!(
                (found.records, found.log_id),
                (whole.records, whole.log_id.clone()),
                "byte {at}, bit {bit}"
            );
        }
    }
    let batches = batches(log_now, s);
    let (middle, last) = (batches.len() / 2, batches.len() - 1);
    for which in [1, middle, last] {
        let batch = batches[which];
        let from = batch.offset as usize;
        let length = u32::from_le_bytes(log_now[from + 72..from + 76].try_into().expect("4 bytes")) as usize;
        for at in 0..batch.bytes as usize {
            let found = flipped(from + at, at % 8);
            match found {
                // Padding.
                Ok(found) if at >= 112 + length => assert_eq!(found.records, whole.records),
                // The last batch: it looks torn.
                Ok(found) if which == last => {
                    assert_eq!(
                        found.records,
                        whole.records - (batch.last_seq - batch.first_seq + 1),
                        "byte {at}"
                    );
                }
                Ok(_) => panic!("byte {at} of batch {which} at {from} is not missed"),
                Err(e) => {
                    let places = [
                        format!("the batch at offset {from} "),
                        format!("sequence number {} ", batch.first_seq),
                    ];
                    let line = e.to_string();
                    assert!(
                        which != last && at < 112 + length && places.iter().all(|p| line.contains(p)),
                        "{at}: {line}"
                    );
                }
            }
        }
    }
}

fn batches(log_bytes: &[u8], s: &Scene) -> Vec<log::Batch> {
    let path = s.image.beside().join("look");
    std::fs::write(&path, log_bytes).expect("written");
    let mut all = Vec::new();
    log::open(&path).expect("a log").walk(|batch, _| all.push(*batch)).expect("whole");
    assert!(all.len() > 12);
    all
}

fn paths(s: &mut Scene) {
    s.reset();
    let at = |s: &Scene, name: &str| s.image.beside().join(name);
    let with = |s: &Scene, log: PathBuf| OpenOptions { log: Some(log.into()), ..s.options() };
    std::fs::create_dir(at(s, "directory")).expect("a directory");
    s.refused_with(
        "the log is a directory",
        "must be a regular file or a block device",
        with(s, at(s, "directory")),
    );
    s.refused_with(
        "the log is a device that holds nothing",
        "must be a regular file or a block device",
        with(s, "/dev/null".into()),
    );
    let fifo = at(s, "fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    s.refused_with("the log is a pipe", "must be a regular file or a block device", with(s, fifo));
    std::os::unix::fs::symlink("nowhere", at(s, "dangling")).expect("a link");
    s.refused_with(
        "the log is a symbolic link to nothing",
        "cannot follow the symbolic link",
        with(s, at(s, "dangling")),
    );
    assert!(!at(s, "nowhere").exists());
    s.refused_with(
        "the log is a device that is mounted",
        "another process, or mounted, or part of another device",
        with(s, s.image.device().into()),
    );
    s.refused_with(
        "the log lies in the directory",
        "may not lie inside the exported directory",
        with(s, s.dir().join("log")),
    );
    let swap = at(s, "swap");
    std::fs::write(&swap, vec![0; LOG_BYTES as usize]).expect("a file");
    std::fs::OpenOptions::new()
        .write(true)
        .open(&swap)
        .and_then(|f| f.write_all_at(b"SWAPSPACE2", 4086))
        .expect("signed");
    s.refused_with(
        "the log is a swap file, a filesystem, a partition table",
        "holds something that is not a Landfast log",
        with(s, swap),
    );
    if let Some(device) = Loop::new(&s.log(), &["--read-only"]) {
        s.refused_with(
            "the log is a device that is read-only",
            "cannot write to: Read-only file system",
            with(s, device.0.clone().into()),
        );
    }
    std::os::unix::fs::symlink("log", at(s, "link")).expect("a link");
    let (volume, _) = open(with(s, at(s, "link")));
    drop(volume);
    s.touched = true;
}

/// A loop device, detached when dropped.
struct Loop(String);

impl Loop {
    fn new(file: &Path, options: &[&str]) -> Option<Loop> {
        let made =
            Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output().ok()?;
        assert!(made.status.success(), "losetup");
        Some(Loop(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

fn in_use(s: &mut Scene) {
    s.reset();
    s.touched = true;
    let at = |s: &Scene, name: &str| s.image.beside().join(name);
    let other = s.image.path().join("other");
    std::fs::create_dir(&other).expect("a directory");
    let mine = format!("process {}", std::process::id());
    let check = |s: &mut Scene, case: &'static str, says: &'static str, options: OpenOptions| {
        let line = refusal(options, case);
        println!("{case}: {line}");
        assert!(line.contains(says), "{case}: no '{says}' in: {line}");
        s.table.push((case, says));
        line
    };
    let first = s.open().expect("served");
    let line = check(
        s,
        "another server has the directory",
        "in use by another landfast server (process",
        s.options(),
    );
    assert!(line.contains(&mine), "{line}");
    let bound = s.image.path().join("bound");
    std::fs::create_dir(&bound).expect("a directory");
    let mount = |args: &[&Path]| Command::new("mount").args(args).status().is_ok_and(|s| s.success());
    assert!(mount(&[Path::new("--bind"), &s.dir(), &bound]), "a bind mount");
    let through = OpenOptions { dir: bound.clone(), ..s.options() };
    check(
        s,
        "another server has the directory, through a bind mount",
        "in use by another landfast server",
        through,
    );
    assert!(Command::new("umount").arg(&bound).status().is_ok_and(|s| s.success()));
    let elsewhere = |s: &Scene, log: PathBuf| OpenOptions {
        dir: s.image.path().join("other"),
        log: Some(log.into()),
        ..s.options()
    };
    let line = check(s, "another server has the log", "in use by process", elsewhere(s, s.log()));
    assert!(line.contains(&mine), "{line}");
    std::fs::hard_link(s.log(), at(s, "hard")).expect("a link");
    check(
        s,
        "another server has the log, under another name",
        "in use by process",
        elsewhere(s, at(s, "hard")),
    );
    assert!(log::open(&at(s, "hard")).expect_err("locked").to_string().contains(&mine));
    if let Some(device) = Loop::new(&s.log(), &[]) {
        check(
            s,
            "another server has the log, below a loop device",
            "in use by process",
            elsewhere(s, device.0.clone().into()),
        );
    }
    assert!(!other.join(".landfast").exists(), "a trace of a start that was refused");
    drop(first);
    s.reset();
    s.touched = true;
    std::fs::create_dir(&other).expect("a directory");
    if let Some(device) = Loop::new(&s.log(), &[]) {
        let (volume, _) = open(OpenOptions { log: Some((&device.0).into()), ..s.options() });
        let stat = std::fs::metadata(&device.0).expect("the device");
        let number = std::os::unix::fs::MetadataExt::rdev(&stat);
        let (major, minor) = (rustix::fs::major(number).to_string(), rustix::fs::minor(number).to_string());
        let node = at(s, "node");
        assert!(
            Command::new("mknod").arg(&node).args(["b", &major, &minor]).status().is_ok_and(|s| s.success())
        );
        check(
            s,
            "another server has the device, under another name",
            "another process, or mounted",
            elsewhere(s, node),
        );
        check(s, "another server has a loop device of the file", "in use by process", elsewhere(s, s.log()));
        drop(volume);
    }
}

fn directories(s: &mut Scene) {
    let tag = "trusted.landfast.tag";
    let fresh = |s: &mut Scene| {
        s.touched = true;
        s.reset();
        s.touched = true;
    };
    fresh(s);
    std::fs::rename(s.dir(), s.image.path().join("away")).expect("moved");
    std::fs::create_dir(s.dir()).expect("a directory");
    s.refused("an empty directory stands in its place", "belongs to another volume");
    assert!(!s.dir().join(".landfast").exists());
    std::fs::rename(s.image.path().join("away/.landfast"), s.dir().join(".landfast")).expect("moved");
    s.refused(
        "a new directory with the old state directory stands in its place",
        "this is a copy of a directory that was not stopped cleanly",
    );

    fresh(s);
    std::fs::remove_dir_all(s.dir().join(".landfast")).expect("removed");
    s.refused(
        "the state directory is gone",
        ".landfast/volume: damaged (it is missing, and the directory was not stopped cleanly)",
    );
    assert!(!s.dir().join(".landfast").exists());
    std::fs::create_dir(s.dir().join(".landfast")).expect("made");
    s.refused("the state directory is empty", "it is missing, and the directory was not stopped cleanly");

    fresh(s);
    for (file, case) in [("remap", "the remap table is gone"), ("marker", "the marker is gone")] {
        let away = s.image.path().join(file);
        std::fs::rename(s.state(file), &away).expect("moved");
        s.refused(
            case,
            if file == "remap" {
                ".landfast/remap: damaged (it is missing)"
            } else {
                ".landfast/marker: damaged (it is missing)"
            },
        );
        std::fs::rename(&away, s.state(file)).expect("put back");
    }
    for (file, case, says) in [
        ("volume", "a byte of the identity is damaged", ".landfast/volume: damaged"),
        ("remap", "a byte of the remap table is damaged", ".landfast/remap: damaged"),
    ] {
        for at in 0..std::fs::metadata(s.state(file)).expect("a file").len() {
            flip(&s.state(file), at);
            let line = refusal(s.options(), case);
            assert!(line.contains(says), "{case} at {at}: {line}");
            flip(&s.state(file), at);
        }
        flip(&s.state(file), 10);
        s.refused(case, says);
        flip(&s.state(file), 10);
    }
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(s.dir(), tag, &mut value[..]).expect("the tag");
    let set = |s: &Scene, value: &[u8]| {
        rustix::fs::setxattr(s.dir(), tag, value, rustix::fs::XattrFlags::empty()).expect("set")
    };
    for at in 0..length {
        value[at] ^= 1;
        set(s, &value[..length]);
        let line = refusal(s.options(), "tag");
        assert!(line.contains("trusted.landfast.tag is damaged"), "{at}: {line}");
        value[at] ^= 1;
    }
    value[5] ^= 1;
    set(s, &value[..length]);
    s.refused("the tag is damaged", "xattr trusted.landfast.tag is damaged or of a newer version");
    rustix::fs::removexattr(s.dir(), tag).expect("removed");
    s.refused("the tag is gone", "this one carries no xattr trusted.landfast.tag");
    value[5] ^= 1;
    set(s, &value[..length]);

    let other = s.image.path().join("other");
    std::fs::create_dir(&other).expect("a directory");
    let elsewhere = OpenOptions { dir: other, ..s.options() };
    s.refused_with("the log is another volume's", "belongs to another volume", elsewhere);
    let second = OpenOptions { log: Some(s.image.beside().join("second").into()), ..s.options() };
    s.refused_with("a new log, while the old one holds something", "start once with --log", second.clone());
    s.refused_with("another log of the same volume", "acknowledged operations are in its log", second);
    let none = OpenOptions { log: None, durability: Durability::Sync, ..s.options() };
    s.refused_with("no log, while the old one holds something", "start once with --log", none);

    s.image.load("stopped");
    s.touched = true;
    s.refused("an older snapshot of the directory was put back", "an older copy or snapshot was put back");
    s.put_log(&s.other_log("log-stopped"));
    let (volume, report) = open(s.options());
    assert!(report.clean, "both as of one moment");
    drop(volume);
}

fn after_a_clean_stop(s: &mut Scene) {
    s.touched = true;
    s.reset();
    s.touched = true;
    s.open().expect("recovered").shutdown().expect("stopped");
    let stopped = std::fs::read(s.log()).expect("the log");
    s.put_log(&s.log_now);
    s.refused(
        "stopped cleanly; the log of the crash before was put back",
        "this is an older copy of the log",
    );
    // The very last moment: only the mark "clean" is missing.
    let mut unmarked = stopped.clone();
    for slot in 0..2 {
        reseal(&mut unmarked, slot, |block| block[12] = 0);
    }
    s.put_log(&unmarked);
    s.refused(
        "stopped cleanly; a log from just before was put back",
        "this directory was stopped cleanly at checkpoint",
    );
    let batch = batches_of_stopped(&stopped, s);
    let mut hurt = stopped.clone();
    for byte in &mut hurt[batch..batch + BLOCK] {
        *byte = 0;
    }
    s.put_log(&hurt);
    s.refused_and_seen(
        "stopped cleanly; the last batch is damaged",
        "it was shut down cleanly with its end at offset",
    );
    // Used with another log since.
    s.put_log(&stopped);
    let another = OpenOptions { log: Some(s.image.beside().join("another").into()), ..s.options() };
    let (volume, _) = open(another);
    volume.shutdown().expect("stopped");
    drop(volume);
    s.refused("stopped cleanly with another log", "it was last served with the log");
}

/// The offset of the only batch in a cleanly stopped log; there is one only if there was a snapshot.
fn batches_of_stopped(bytes: &[u8], s: &Scene) -> usize {
    let path = s.image.beside().join("look");
    std::fs::write(&path, bytes).expect("written");
    let mut at = None;
    log::open(&path).expect("a log").walk(|batch, _| at = Some(batch.offset)).expect("whole");
    at.expect("a snapshot") as usize
}
