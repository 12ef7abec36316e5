//! The log is lost under a running server, as its operator and its clients see it: a new one is made, and work goes on; or it cannot be, and
//! nothing is acknowledged any more.

mod common;

use common::{Serving, path, run, stderr};
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

/// What `/metrics` says of one figure of the export.
fn figure(server: &Serving, volume: &Path, name: &str) -> u64 {
    use std::io::{Read, Write};
    let said = server.words.lines().find_map(|l| l.strip_prefix("landfast: metrics at http://"));
    let address = said.and_then(|rest| rest.strip_suffix("/metrics")).expect("where");
    let mut stream = std::net::TcpStream::connect(address).expect("the metrics");
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("an answer");
    let line = format!("landfast_{name}_total{{export=\"{}\"}} ", path(volume));
    let value =
        page.lines().find_map(|l| l.strip_prefix(&*line)).unwrap_or_else(|| panic!("no {line}in {page}"));
    value.parse().expect("a number")
}

/// One client that goes on through all of it, and a server that is killed at the end.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_server_goes_on_through_the_loss_of_its_log_and_everything_is_there_after_a_kill() {
    let dir = tempfile::tempdir().expect("a directory");
    let (volume, log) = (dir.path().join("volume"), dir.path().join("log"));
    fs::create_dir(&volume).expect("a directory");
    let options = ["--log", path(&log), "--log-size", "32M", "--metrics", "127.0.0.1:0"];
    let mut server = Serving::with(&volume, &options);
    let mut landed = Vec::new();
    let file = || fs::File::options().write(true).open(&log).expect("the log");
    type Lose<'a> = (&'a str, &'a dyn Fn());
    let ways: [Lose<'_>; 4] = [
        ("was removed", &|| fs::remove_file(&log).expect("the log")),
        ("was truncated", &|| file().set_len(4096).expect("cut")),
        ("was overwritten", &|| {
            std::os::unix::fs::FileExt::write_all_at(&file(), &[7; 1 << 20], 0).expect("written")
        }),
        ("is not there any more", &|| fs::rename(&log, dir.path().join("away")).expect("away")),
    ];
    for (times, (words, lose)) in (1..).zip(ways) {
        assert!(land(dir.path(), &server.url, &format!("before{times}")));
        landed.push(format!("before{times}"));
        lose();
        let lost = Instant::now();
        // Whether it was noticed or not, nothing is refused.
        while figure(&server, &volume, "log_renewed") < times {
            let name = format!("meanwhile{}", landed.len());
            assert!(land(dir.path(), &server.url, &name));
            landed.push(name);
            assert!(lost.elapsed() < Duration::from_secs(60), "not noticed");
        }
        let said = server.until("a new log was made in the same place");
        let line = said.lines().last().expect("a line");
        println!("after {:?}: {line}", lost.elapsed());
        for part in [path(&log), words, "ERROR", "all that was before is on the disk", "work goes on"] {
            assert!(line.contains(part), "no '{part}' in: {line}");
        }
        assert!(land(dir.path(), &server.url, &format!("after{times}")));
        landed.push(format!("after{times}"));
    }
    let (code, words) = server.end(Signal::KILL);
    assert_eq!(code, None, "{words}");
    let server = Serving::start(&volume, &log);
    assert!(server.words.contains("recovered"), "{}", server.words);
    for name in &landed {
        assert_eq!(fs::read_to_string(volume.join(name)).expect("there"), *name);
    }
    assert!(land(dir.path(), &server.url, "again"));
    let (code, words) = server.end(Signal::TERM);
    assert_eq!(code, Some(0), "{words}");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn where_no_new_log_can_be_made_nothing_is_acknowledged_and_nothing_acknowledged_is_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let (volume, log) = (dir.path().join("volume"), dir.path().join("log"));
    fs::create_dir(&volume).expect("a directory");
    let mut server = Serving::start(&volume, &log);
    let mut landed = Vec::new();
    assert!(land(dir.path(), &server.url, "before"));
    landed.push("before".to_owned());
    fs::remove_file(&log).expect("the log");
    fs::create_dir(&log).expect("a directory in its place");
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
    for words in [
        path(&log),
        "was re",
        "no new log",
        "stands there that is no file",
        "All that was acknowledged is on the disk",
        "it makes a new log",
    ] {
        assert!(said.contains(words), "no '{words}' in: {said}");
    }
    assert!(!land(dir.path(), &server.url, "late"), "acknowledged though it was noticed");
    let (code, words) = server.end(Signal::TERM);
    assert_eq!(code, Some(1), "{words}");
    fs::remove_dir(&log).expect("nothing is in it");
    let server = Serving::start(&volume, &log);
    for name in &landed {
        assert_eq!(fs::read_to_string(volume.join(name)).expect("there"), *name);
    }
    assert!(land(dir.path(), &server.url, "again"));
    let (code, words) = server.end(Signal::TERM);
    assert_eq!(code, Some(0), "{words}");
}
