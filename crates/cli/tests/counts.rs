//! Counts may not get worse: RPCs for each of the client's commands, and for each file of a lone client. (System calls of the server are claims of
//! `landfast lab run operation-steps`.)
//!
//! `tests/counts.json` has the most of each. Where a run needs more, this test fails; where it needs fewer, it says so. After a change that is
//! worth it, `LANDFAST_WRITE_COUNTS=1 cargo test -p landfast-cli --test counts` writes the file anew: commit it, and say why in the
//! commit's message. Times are not counted: another machine has others.

mod common;

use common::{emulates_disks, run, stderr, stdout};
use serde_json::Value;
use std::collections::BTreeMap;

/// The file, and the variable that lets this test write it.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/counts.json");
const WRITE: &str = "LANDFAST_WRITE_COUNTS";

/// A figure that is a count, and what may come on top by chance.
type Figure = (&'static str, f64);

/// An experiment, its arguments, and those of its figures that are counts.
const EXPERIMENTS: [(&str, &[&str], &[Figure]); 2] = [
    // What is packed into a COMPOUND depends on what has come in.
    ("client-rpcs", &["--files", "1024"], &[("rpcs", 3.0)]),
    // Directories count for more where a slow machine makes fewer files.
    ("serial-flushes", &["--files", "400"], &[("rpcs_per_file", 0.5), ("modifying_rpcs_per_file", 0.5)]),
];

/// The counts of an experiment's report, by `experiment: line: figure`, each with its slack.
fn counts(report: &Value, name: &str, figures: &[Figure]) -> Vec<(String, f64, f64)> {
    let mut all = Vec::new();
    for line in report["lines"].as_array().expect("lines") {
        for (figure, slack) in figures {
            if let Some(value) = line["values"][figure].as_f64() {
                let what = line["name"].as_str().expect("a line's name");
                all.push((format!("{name}: {what}: {figure}"), value, *slack));
            }
        }
    }
    all
}

/// The part of a count that may come on top by chance, where that is more.
const PART: f64 = 0.25;

/// What is worse than it was, and what is better, as lines.
fn compare(were: &BTreeMap<String, f64>, are: &[(String, f64, f64)]) -> (Vec<String>, Vec<String>) {
    let (mut worse, mut better) = (Vec::new(), Vec::new());
    for (name, value, slack) in are {
        let was = were.get(name);
        let slack = was.map_or(*slack, |was| slack.max(was * PART));
        match was {
            None => worse.push(format!("{name}: {value}, and the file does not have it")),
            Some(was) if *value > was + slack => worse.push(format!("{name}: {value}, was {was}")),
            Some(was) if *value < was - slack => better.push(format!("{name}: {value}, was {was}")),
            Some(_) => {}
        }
    }
    (worse, better)
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn no_count_is_worse_than_the_committed_one() {
    if !emulates_disks() {
        return;
    }
    let mut were: BTreeMap<String, f64> =
        serde_json::from_str(include_str!("counts.json")).expect("tests/counts.json");
    let mut are = Vec::new();
    for (name, args, figures) in EXPERIMENTS {
        let out = run(&[&["lab", "run", name, "--json"], args].concat());
        // 1: one of its own claims does not hold.
        assert!(matches!(out.status.code(), Some(0 | 1)), "{name}: {}", stderr(&out));
        let report: Value = serde_json::from_str(&stdout(&out)).expect("a report");
        are.extend(counts(&report, name, figures));
    }
    assert!(!are.is_empty(), "nothing was counted");
    if std::env::var_os(WRITE).is_some() {
        were.extend(are.into_iter().map(|(name, value, _)| (name, value)));
        let text = serde_json::to_string_pretty(&were).expect("JSON") + "\n";
        std::fs::write(FILE, text).expect("write tests/counts.json");
        return;
    }
    let (worse, better) = compare(&were, &are);
    better.iter().for_each(|line| eprintln!("better: {line}"));
    assert!(worse.is_empty(), "counts are worse ({WRITE}=1 writes {FILE} anew):\n{}", worse.join("\n"));
}

#[test]
fn a_count_that_grows_is_named() {
    let were = BTreeMap::from([("a".to_owned(), 4.0), ("b".to_owned(), 4.0), ("c".to_owned(), 4.0)]);
    let are = [("a", 5.0), ("b", 6.1), ("c", 2.0), ("d", 1.0)].map(|(n, v)| (n.to_owned(), v, 1.0));
    let (worse, better) = compare(&were, &are);
    assert_eq!(worse, ["b: 6.1, was 4", "d: 1, and the file does not have it"]);
    assert_eq!(better, ["c: 2, was 4"]);
}
