//! The log is removed under a running server, as its operator and its clients see it.

mod common;

use common::{Serving, path, root, run, stderr};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// One file by NFS; whether it was acknowledged.
fn land(dir: &Path, url: &str, name: &str) -> bool {
    fs::write(dir.join(name), name).expect("a file");
    let tar = dir.join("one.tar");
    let made = std::process::Command::new("tar").args(["-cf", path(&tar), "-C", path(dir), name]).status();
    assert!(made.expect("tar").success());
    let o = run(&["untar", path(&tar), url]);
    assert!(o.status.success() || !stderr(&o).is_empty());
    o.status.success()
}

#[test]
fn nothing_is_acknowledged_a_second_after_the_log_is_removed_and_nothing_acknowledged_is_lost() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (volume, log) = (dir.path().join("volume"), dir.path().join("log"));
    fs::create_dir(&volume).expect("a directory");
    let mut server = Serving::start(&volume, &log);
    let mut landed = Vec::new();
    assert!(land(dir.path(), &server.url, "before"));
    landed.push("before".to_owned());
    fs::remove_file(&log).expect("the log");
    let removed = Instant::now();
    // As long as it is not noticed; the line is waited for, however slow the machine is.
    while removed.elapsed() < Duration::from_millis(100) {
        let name = format!("after{}", landed.len());
        if land(dir.path(), &server.url, &name) {
            landed.push(name);
        }
    }
    let said = loop {
        let line = server.next_line();
        assert!(!line.is_empty(), "it ended");
        if line.contains("has FAILED") {
            break line;
        }
    };
    println!("said after {:?}: {said}", removed.elapsed());
    for words in [path(&log), "was removed", "All that was acknowledged is on the disk", "it makes a new log"]
    {
        assert!(said.contains(words), "no '{words}' in: {said}");
    }
    assert!(!land(dir.path(), &server.url, "late"), "acknowledged though it was noticed");
    let (code, words) = server.end(Signal::TERM);
    assert_eq!(code, Some(1), "{words}");
    let server = Serving::start(&volume, &log);
    for name in &landed {
        assert_eq!(fs::read_to_string(volume.join(name)).expect("there"), *name);
    }
    assert!(land(dir.path(), &server.url, "again"));
    let (code, words) = server.end(Signal::TERM);
    assert_eq!(code, Some(0), "{words}");
}
