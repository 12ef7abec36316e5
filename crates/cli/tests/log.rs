//! `landfast log`: what a log holds, and whether it is whole.

mod common;

use common::{Serving, one_line_with, path, run, stderr, stdout};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A log with acknowledged operations in it, whose server was killed.
fn killed(dir: &std::path::Path) -> PathBuf {
    let (volume, log) = (dir.join("volume"), dir.join("log"));
    fs::create_dir(&volume).expect("a directory");
    let server = Serving::start(&volume, &log);
    fs::write(dir.join("hello"), "world").expect("a file");
    let tar = dir.join("one.tar");
    let made = std::process::Command::new("tar").args(["-cf", path(&tar), "-C", path(dir), "hello"]).status();
    assert!(made.expect("tar").success());
    let o = run(&["log", "info", path(&log)]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &[path(&log), "in use"]);
    assert!(run(&["untar", path(&tar), &server.url]).status.success());
    server.end(Signal::KILL);
    log
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_a_log_holds() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = killed(dir.path());
    let o = run(&["log", "info", path(&log), "--json"]);
    assert!(o.status.success(), "{}", stderr(&o));
    let info: serde_json::Value = serde_json::from_str(&stdout(&o)).expect("JSON");
    assert_eq!((info["bytes"].as_u64(), info["log"]["clean"].as_bool()), (Some(32 << 20), Some(false)));
    let records = info["log"]["records"].as_u64().expect("a number");
    assert!(records > 1);
    let dump = stdout(&run(&["log", "dump", path(&log)]));
    assert!(dump.contains("entry \"hello\" of ") && dump.contains("has 5 bytes written at 0"), "{dump}");
    let lines = stdout(&run(&["log", "dump", path(&log), "--json"]));
    assert_eq!(lines.lines().count() as u64, records);
    let o = run(&["log", "check", path(&log)]);
    assert!(o.status.success() && stdout(&o).contains("whole"), "{}", stderr(&o));
    assert!(stdout(&o).contains("by a crash"));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_can_be_had_out_of_any_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = killed(dir.path());
    fs::remove_dir_all(dir.path().join("volume")).expect("the volume is gone");
    let salvaged = |to: &str, status: i32| {
        let to = dir.path().join(to);
        let o = run(&["log", "salvage", path(&log), "--to", path(&to)]);
        assert_eq!(o.status.code(), Some(status), "{}{}", stdout(&o), stderr(&o));
        let report = fs::read_to_string(to.join("REPORT")).expect("a report");
        let top = fs::read_dir(&to).expect("a directory").map(|e| e.expect("an entry").path());
        (report, top.filter(|p| p.is_dir()).collect::<Vec<_>>())
    };
    let (report, tops) = salvaged("whole", 0);
    let [top] = &tops[..] else { panic!("{tops:?}: {report}") };
    assert_eq!(fs::read(top.join("hello")).expect("the file"), b"world");
    let line = report.lines().find(|l| l.ends_with("/hello")).unwrap_or_else(|| panic!("{report}"));
    assert!(line.starts_with("whole   file 0") && line.contains(" 5 bytes "), "{line}");
    // Nothing is written over.
    let o = run(&["log", "salvage", path(&log), "--to", path(&dir.path().join("whole"))]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["the directory is not empty"]);

    // Both superblocks erased, and a batch in the middle damaged.
    let dump = stdout(&run(&["log", "dump", path(&log)]));
    let offsets: Vec<u64> =
        dump.lines().filter_map(|l| l.strip_prefix("batch at ")?.split(':').next()?.parse().ok()).collect();
    let file = fs::OpenOptions::new().write(true).open(&log).expect("the log");
    file.write_all_at(&[0; 8192], 0).expect("erased");
    let (report, tops) = salvaged("erased", 1);
    assert!(report.contains("# no superblock is whole"), "{report}");
    assert_eq!(fs::read(tops[0].join("hello")).expect("the file"), b"world");
    assert!(offsets.len() > 1, "{dump}");
    file.write_all_at(b"x", offsets[0] + 120).expect("damaged");
    let (report, _) = salvaged("damaged", 1);
    assert!(report.contains("damaged"), "{report}");

    // And any file at all.
    fs::write(&log, [0x5a; 100_000]).expect("rubbish");
    let (report, tops) = salvaged("rubbish", 1);
    assert!(report.starts_with("# 0 objects") && tops.is_empty(), "{report}");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_is_damaged_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = killed(dir.path());
    let o = run(&["log", "dump", path(&log)]);
    let first = stdout(&o).lines().next().expect("a batch").to_owned();
    let offset: u64 = first["batch at ".len()..first.find(':').expect("a colon")].parse().expect("a number");
    let file = fs::OpenOptions::new().read(true).write(true).open(&log).expect("the log");
    // In the first batch, with later ones behind it: what was acknowledged is damaged.
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset + 120).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1], offset + 120).expect("changed");
    let o = run(&["log", "check", path(&log)]);
    assert_eq!(o.status.code(), Some(1));
    one_line_with(&stderr(&o), &[path(&log), "damaged", &format!("offset {offset}")]);
    let info = run(&["log", "info", path(&log)]);
    assert_eq!((info.status.code(), stderr(&info)), (Some(1), stderr(&o)), "the same words");
    let served =
        run(&["serve", path(&dir.path().join("volume")), "--log", path(&log), "--listen", "127.0.0.1:0"]);
    assert_eq!(served.status.code(), Some(2));
    assert_eq!(stderr(&served), stderr(&o), "the same words");
    file.write_all_at(&byte, offset + 120).expect("as it was");
    // One superblock, then both.
    let mut kept = [0; 16];
    file.read_exact_at(&mut kept, 4196).expect("bytes");
    file.write_all_at(&[0xff; 16], 4196).expect("changed");
    for command in ["info", "check"] {
        let o = run(&["log", command, path(&log)]);
        assert!(o.status.success(), "{}", stderr(&o));
        one_line_with(
            &stderr(&o),
            &[path(&log), "the superblock at offset 4096 is torn or damaged; the other one counts"],
        );
    }
    file.write_all_at(&[0xff; 16], 100).expect("changed");
    for command in ["info", "check"] {
        let o = run(&["log", command, path(&log)]);
        assert_eq!(o.status.code(), Some(1));
        one_line_with(&stderr(&o), &[path(&log), "damaged: neither superblock (offsets 0 and 4096)"]);
    }
    file.write_all_at(&kept, 4196).expect("as it was");
    let server = Serving::start(&dir.path().join("volume"), &log);
    assert!(server.words.contains("the superblock at offset 0 is torn or damaged"), "{}", server.words);
    server.end(Signal::TERM);
    let other = dir.path().join("other");
    fs::write(&other, vec![b'x'; 1 << 20]).expect("a file");
    let o = run(&["log", "check", path(&other)]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["not a Landfast log"]);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_made_beforehand_grows_between_two_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let (volume, log) = (dir.path().join("volume"), dir.path().join("log"));
    fs::create_dir(&volume).expect("a directory");
    let o = run(&["log", "create", path(&log), "--size", "16M"]);
    assert!(o.status.success() && stdout(&o).contains("chosen"), "{}", stderr(&o));
    let grow = || run(&["log", "resize", path(&log), "--size", "24M"]);
    let server = Serving::with(&volume, &["--log", path(&log)]);
    assert!(server.words.contains("16.0 MiB"), "{}", server.words);
    one_line_with(&stderr(&grow()), &["in use"]);
    server.end(Signal::KILL);
    let o = grow();
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["not stopped cleanly"]);
    Serving::with(&volume, &["--log", path(&log)]).end(Signal::TERM);
    let o = grow();
    assert!(o.status.success(), "{}", stderr(&o));
    assert_eq!(fs::metadata(&log).expect("a file").len(), 24 << 20);
    let server = Serving::with(&volume, &["--log", path(&log)]);
    assert!(server.words.contains("clean start") && server.words.contains("24.0 MiB"), "{}", server.words);
    let o = run(&["log", "create", path(&log)]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["in use"]);
}
