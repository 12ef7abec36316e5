//! `landfast lab report`: what is kept, what is measured again, what the page has, and the exit status.

mod common;

use common::{emulates_disks, path, run, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn report(out: &Path, more: &[&str]) -> (Option<i32>, Value) {
    let ran = run(&[&["lab", "report", "--quick", "--json", "--out", path(out)], more].concat());
    let report = serde_json::from_str(&stdout(&ran)).unwrap_or_else(|e| panic!("{e}: {}", stderr(&ran)));
    (ran.status.code(), report)
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn rows_are_kept_until_somebody_asks_for_them_again() {
    if !emulates_disks() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (status, first) = report(dir.path(), &["--only", "6"]);
    assert_eq!(status, Some(0), "{first:#}");
    assert_eq!(
        (first["rows"][0]["row"].as_u64(), first["left"].as_array().map(Vec::len)),
        (Some(6), Some(0))
    );
    let (_, second) = report(dir.path(), &["--only", "6"]);
    assert_eq!(first, second, "it was measured again");
    let (_, again) = report(dir.path(), &["--only", "6", "--again", "6"]);
    assert_ne!(first["rows"][0]["took_s"], again["rows"][0]["took_s"]);

    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("WRITE 32 KiB FILE_SYNC") && page.contains("--only 6"));
    assert!(!page.contains("<script") && !page.contains("src="), "the page needs something else");
    let picture = fs::read_to_string(dir.path().join("results/6.svg")).unwrap();
    assert!(picture.starts_with("<svg xmlns=") && picture.contains("<style>"));
    assert!(fs::read_to_string(dir.path().join("results.md")).unwrap().contains("](results/6.svg)"));

    // A claim that does not hold, in a row that is kept.
    let row = dir.path().join("rows/06.json");
    let text = fs::read_to_string(&row).unwrap().replace("\"holds\": true", "\"holds\": false");
    fs::write(&row, text).unwrap();
    let (status, _) = report(dir.path(), &["--only", "6"]);
    assert_eq!(status, Some(1));
    assert!(fs::read_to_string(dir.path().join("report.html")).unwrap().contains("do not hold"));
}

#[test]
fn a_row_that_had_no_time_is_named_and_nothing_measured_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let (status, report) = report(dir.path(), &["--limit", "0"]);
    assert_eq!((status, report["left"].as_array().map(Vec::len)), (Some(2), Some(12)));
    let text = fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(text.contains("Not measured") && text.contains("the time limit has come"));
}
