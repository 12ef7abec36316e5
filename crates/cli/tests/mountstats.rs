//! `landfast trace --mountstats`: a client's counters as they are found, two readings, and what is none.

mod common;

use common::{landfast, one_line_with, path, run, stderr, stdout};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const V3: &str = include_str!("../../trace/tests/mountstats/v3.txt");
const V41: &str = include_str!("../../trace/tests/mountstats/v4.1.txt");

fn file(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

fn json(args: &[&str]) -> Value {
    let o = run(&[&["trace", "--mountstats", "--json"], args].concat());
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    serde_json::from_str(&stdout(&o)).expect("JSON")
}

#[test]
fn one_reading() {
    let dir = tempfile::tempdir().expect("a directory");
    let v3 = file(dir.path(), "v3", V3);
    let text = stdout(&run(&["trace", "--mountstats", path(&v3)]));
    let row = text.lines().find(|l| l.starts_with("SETATTR")).expect("a row");
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["SETATTR", "827", "26.7", "144", "144", "0", "0", "0", "0.170", "14.615", "14.972"]
    );
    for part in [
        "10.77.0.1:/export mounted on /mnt: NFS 3",
        "VERDICT: bound by round trips",
        "1,877 round trips of 14.6",
        "A capture",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let report = json(&[path(&v3)]);
    assert_eq!(report["verdict"]["bound"], "rtt");
    assert_eq!(
        (report["work"]["calls"].as_u64(), report["work"]["bytes"].as_u64()),
        (Some(1877), Some(673_652))
    );
    assert!(
        report["terms"]["round_trip_s"].as_f64().is_some_and(|s| (0.014..0.015).contains(&s)),
        "{report}"
    );
    let operations = report["mounts"][0]["operations"].as_array().expect("operations");
    let lookup = operations.iter().find(|o| o["name"] == "LOOKUP").expect("LOOKUP");
    assert_eq!(
        (lookup["ops"].as_u64(), lookup["rtt_ms"].as_u64(), lookup["errors"].as_u64()),
        (Some(609), Some(8967), Some(200))
    );
    // From a pipe; and the reading with the most calls is the one that is spoken of.
    let both = file(dir.path(), "both", &[V3, V41].concat());
    let piped = landfast()
        .args(["trace", "--mountstats", "--json", "-"])
        .stdin(std::fs::File::open(&both).expect("it"))
        .output();
    let report: Value = serde_json::from_slice(&piped.expect("landfast runs").stdout).expect("JSON");
    assert_eq!(
        (report["mounts"].as_array().map(Vec::len), &report["verdict"]["bound"]),
        (Some(2), &Value::from("persistence"))
    );
}

#[test]
fn two_readings() {
    let dir = tempfile::tempdir().expect("a directory");
    let before = file(dir.path(), "before", V3);
    let later = V3.replace("age:\t31", "age:\t41").replace(
        "SETATTR: 827 827 0 119124 119088 141 12087 12382 0",
        "SETATTR: 927 928 1 129124 129088 151 22087 22392 2",
    );
    assert_ne!(later, V3);
    let after = file(dir.path(), "after", &later);
    let report = json(&[path(&before), path(&after)]);
    let mount = &report["mounts"][0];
    assert_eq!((mount["age_s"].as_u64(), mount["operations"].as_array().map(Vec::len)), (Some(10), Some(1)));
    let row = &mount["operations"][0];
    let numbers =
        ["ops", "retransmissions", "timeouts", "bytes_sent", "queue_ms", "rtt_ms", "execute_ms", "errors"];
    assert_eq!(
        numbers.map(|n| row[n].as_u64().expect("a number")),
        [100, 1, 1, 10_000, 10, 10_000, 10_010, 2]
    );
    assert_eq!(row["avg_rtt_ms"].as_f64(), Some(100.0));
    let text = stdout(&run(&["trace", "--mountstats", path(&before), path(&after)]));
    assert!(
        text.contains("10.0 s between two readings") && text.contains("1 requests were sent again"),
        "{text}"
    );
    // The same file twice: nothing came in between.
    let o = run(&["trace", "--mountstats", path(&before), "--interval", "0.2"]);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    assert!(stdout(&o).contains("0.2 s between two readings\nno calls"), "{}", stdout(&o));
}

#[test]
fn what_is_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = |args: &[&str], parts: &[&str]| {
        let o = run(&[&["trace", "--mountstats"], args].concat());
        assert_eq!(o.status.code(), Some(2), "{}", stdout(&o));
        one_line_with(&stderr(&o), parts);
    };
    let other = file(dir.path(), "other", "not that\n");
    refused(&[path(&other)], &["other", "no counters of mounts"]);
    let local = file(dir.path(), "local", "device /dev/sda1 mounted on / with fstype ext4\n");
    refused(&[path(&local)], &["local", "no NFS mount"]);
    refused(&["/no/such/file"], &["/no/such/file"]);
    for wrong in [
        &["trace"][..],
        &["trace", "--interval", "1", "x"],
        &["trace", "--mountstats", "--list", "x"],
        &["trace", "x", "y"],
    ] {
        let o = run(wrong);
        assert_eq!(o.status.code(), Some(2), "{wrong:?}: {}", stdout(&o));
        assert!(stderr(&o).contains("Usage"), "{}", stderr(&o));
    }
    // This machine's own, whatever is mounted here.
    let o = landfast().args(["trace", "--mountstats"]).stdin(Stdio::null()).output().expect("landfast runs");
    assert!(o.status.success() || stderr(&o).contains("/proc/self/mountstats"), "{}", stderr(&o));
    let broken = V3.replace("31", "x").replace("SETATTR: 827", "SETATTR: -827");
    let o = run(&["trace", "--mountstats", path(&file(dir.path(), "broken", &broken))]);
    assert_eq!(o.status.code(), Some(0), "{}", stdout(&o));
    one_line_with(&stderr(&o), &["lines were not understood"]);
}
