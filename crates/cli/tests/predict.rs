//! `landfast predict`: from traces, probes and typed terms, of archives, directories and counts; and what it refuses.

mod common;
#[path = "../../trace/tests/wire/mod.rs"]
#[allow(dead_code)]
mod wire;

use common::{landfast, one_line_with, path, run, stderr, stdout};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;

const TYPED: [&str; 7] = ["predict", "--rtt", "1ms", "--persistence", "4ms", "--server", "50us"];

fn with<'a>(base: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [base, more].concat()
}

fn predicted(args: &[&str]) -> Value {
    let o = run(&with(args, &["--json"]));
    assert!(o.status.success(), "{args:?}: {}", stderr(&o));
    serde_json::from_str(&stdout(&o)).expect("JSON")
}

#[track_caller]
fn refused(args: &[&str], parts: &[&str]) {
    let o = run(args);
    assert_eq!(o.status.code(), Some(2), "{args:?}: {}", stdout(&o));
    assert_eq!(stdout(&o), "");
    one_line_with(&stderr(&o), parts);
}

fn near(value: &Value, expected: f64) {
    let value = value.as_f64().expect("a number");
    assert!((value - expected).abs() < 1e-6 * expected, "{value} is not {expected}");
}

fn report(dir: &Path, name: &str, value: &Value) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, value.to_string()).expect("a file");
    path
}

fn terms(round_trip_s: f64) -> Value {
    json!({ "round_trip_s": round_trip_s, "server_s": 50e-6, "persistence_s": 4e-3, "think_s": 0.0,
            "upload_bytes_per_s": null, "in_flight": 1.0 })
}

/// A directory with 20 small files, one that is empty, one of two WRITEs, a second name, a link, a FIFO and a directory.
fn fill(top: &Path) {
    std::fs::create_dir_all(top.join("sub")).expect("directories");
    for n in 0..20 {
        std::fs::write(top.join(format!("sub/{n}")), [1; 4096]).expect("a file");
    }
    std::fs::write(top.join("empty"), []).expect("a file");
    std::fs::write(top.join("large"), vec![1; (1 << 20) + 1]).expect("a file");
    std::fs::hard_link(top.join("large"), top.join("zz other name")).expect("a link");
    std::os::unix::fs::symlink("large", top.join("link")).expect("a link");
    let fifo = std::process::Command::new("mkfifo").arg(top.join("fifo")).status();
    assert!(fifo.expect("mkfifo").success());
}

#[test]
fn what_a_call_costs_is_said_in_one_unit() {
    let o = run(&with(&TYPED, &["--files", "10"]));
    let said = "round trip 1.000 ms, server 0.050 ms a call, persistence 4.000 ms more.";
    assert!(stdout(&o).contains(said), "{}", stdout(&o));
}

#[test]
fn typed_terms_and_a_count_of_files() {
    let all = predicted(&with(&TYPED, &["--vers", "3", "--files", "1000", "--dirs", "0"]));
    near(&all["now"]["seconds"], 6000.0 * 5.05e-3);
    assert_eq!(all["job"]["calls"], json!({ "all": 6000, "synchronous": 6000, "waits": 6000 }));
    let names: Vec<&str> =
        all["each"].as_array().expect("changes").iter().filter_map(|c| c["change"].as_str()).collect();
    assert_eq!(names, ["log-device", "compound", "compound", "streams", "delegations", "round-trip"]);
    assert_eq!(all["each"][4]["unknown"], "delegations");
    let together = all["together"]["seconds"].as_f64().expect("a number");
    for change in all["each"].as_array().expect("changes").iter().filter(|c| c["unknown"].is_null()) {
        let s = change["seconds"].as_f64().expect("a number");
        assert!(together <= s && s <= 6000.0 * 5.05e-3 + 1e-6, "{change}");
    }
    // Only what is asked for.
    let chosen =
        ["--files", "1000", "--dirs", "0", "--log-device", "50us", "--round-trip", "0.1ms", "--streams", "1"];
    let all = predicted(&with(&TYPED, &chosen));
    assert_eq!(all["each"].as_array().map(Vec::len), Some(3));
    near(&all["now"]["seconds"], 7000.0 * 1.05e-3 + 6000.0 * 4e-3);
    near(&all["each"][0]["seconds"], 7000.0 * 1.05e-3 + 6000.0 * 50e-6);
    near(&all["together"]["seconds"], 7000.0 * 0.15e-3 + 6000.0 * 50e-6);
    // As tar's own options say it.
    let less = [
        "--vers",
        "3",
        "--files",
        "10",
        "--dirs",
        "0",
        "--no-same-owner",
        "--no-same-permissions",
        "-m",
        "--guarded",
    ];
    assert_eq!(predicted(&with(&TYPED, &less))["job"]["calls"]["all"], 20);
}

#[test]
fn an_archive_a_directory_and_a_pipe_are_counted_alike() {
    let dir = tempfile::tempdir().expect("a directory");
    let top = dir.path().join("top");
    fill(&top);
    let counted = predicted(&with(&TYPED, &["--dir", path(&top)]))["tree"].clone();
    assert_eq!(
        counted,
        json!({ "files": 22, "empty": 1, "large": 1, "large_writes": 2, "bytes": 20 * 4096 + (1 << 20) + 1,
                "dirs": 2, "symlinks": 1, "hard_links": 1, "others": 1 })
    );
    let tar = dir.path().join("an archive.tar.gz");
    let made = std::process::Command::new("tar").args(["-czf", path(&tar), "-C", path(&top), "."]).status();
    assert!(made.expect("tar").success());
    assert_eq!(predicted(&with(&TYPED, &["--archive", path(&tar)]))["tree"], counted);
    let piped = landfast()
        .args(with(&TYPED, &["--archive", "-", "--json"]))
        .stdin(std::fs::File::open(&tar).expect("it"))
        .stderr(Stdio::inherit())
        .output()
        .expect("landfast runs");
    let piped: Value = serde_json::from_slice(&piped.stdout).expect("JSON");
    assert_eq!(piped["tree"], counted);
    let small = predicted(&with(&TYPED, &["--archive", path(&tar), "--write-size", "32K"]));
    assert_eq!(small["tree"]["large_writes"], 33);
}

#[test]
fn a_trace_is_done_again_or_is_the_way_to_something_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let work =
        json!({ "files": 200, "bytes": 819_200, "calls": 1880, "synchronous_calls": 1236, "span_s": 7.0 });
    let procedures =
        json!([{ "version": 3, "name": "WRITE", "calls": 200 }, { "version": 4, "name": "x", "calls": 7 }]);
    let whole = json!({ "terms": terms(1e-3), "work": work, "procedures": procedures, "verdict": { "bound": "persistence" } });
    let trace = report(dir.path(), "trace.json", &whole);
    let all = predicted(&["predict", "--trace", path(&trace)]);
    near(&all["now"]["seconds"], 1880.0 * 1.05e-3 + 1236.0 * 4e-3);
    near(&all["measured_s"], 7.0);
    // 9.4 calls a file, of version 3: what looks for each name.
    let all = predicted(&["predict", "--trace", path(&trace), "--files", "1000", "--dirs", "0"]);
    assert_eq!(all["job"]["calls"], json!({ "all": 9000, "synchronous": 6000, "waits": 9000 }));
    assert!(all["measured_s"].is_null());
    // From a pipe; and a probe has no work to be done again.
    let o = landfast()
        .args(["predict", "--trace", "-"])
        .stdin(std::fs::File::open(&trace).expect("it"))
        .output()
        .expect("landfast runs");
    let text = stdout(&o);
    for part in ["What the trace saw, again", "now, as it was seen", "log device of 50 us", "all of them"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains('█'), "{text}");
    let probe = report(dir.path(), "probe.json", &json!({ "terms": terms(1e-3) }));
    refused(&["predict", "--probe", path(&probe)], &["--archive", "--dir", "--files"]);
    assert_eq!(
        predicted(&["predict", "--probe", path(&probe), "--files", "10", "--dirs", "0"])["now"]["calls"],
        70
    );
}

#[test]
fn what_a_program_does_between_its_files_is_no_part_of_its_calls() {
    const MS: i64 = 1_000_000;
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let mut wire = wire::Wire::new(700);
    wire.open();
    // CREATE, WRITE FILE_SYNC, SETATTR of each of 50 files; 40 ms before each, 2 ms between its calls.
    for file in 1..=50u32 {
        let own = words(&[8, file, 77]);
        let create = [words(&[8, 0, 77, 4]), file.to_be_bytes().to_vec()].concat();
        let write = [&own[..], &words(&[0, 0, 4, 2, 4, 7])].concat();
        let made = [words(&[0, 1]), own.clone()].concat();
        wire.wait(38 * MS);
        for (n, (procedure, arguments, results)) in
            (0..).zip([(8, &create, &made), (7, &write, &vec![0; 4]), (2, &own, &vec![0; 4])])
        {
            wire.wait(2 * MS);
            wire.send(true, &wire::call(file * 4 + n, 100_003, 3, procedure, arguments));
            wire.wait(4 * MS);
            wire.send(false, &wire::reply(file * 4 + n, results));
        }
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (capture, trace) = (dir.path().join("capture"), dir.path().join("trace.json"));
    std::fs::write(&capture, wire::pcap(&wire.frames)).expect("a capture");
    std::fs::write(&trace, run(&["trace", "--json", path(&capture)]).stdout).expect("a report");
    let all = predicted(&["predict", "--trace", path(&trace), "--compound", "10"]);
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} is no number"));
    let (terms, now) = (&all["terms"], number(&all["now"]["seconds"]));
    assert!((number(&terms["file_think_s"]) - 0.038).abs() < 0.004, "{terms}");
    assert!((number(&terms["think_s"]) - 0.002).abs() < 0.001, "{terms}");
    assert!((now - 50.0 * 0.056).abs() < 0.1, "{now}");
    // Five COMPOUNDs in place of 150 calls: the program needs its time for each file all the same.
    let then = number(&all["each"][0]["seconds"]);
    assert!((1.8..2.2).contains(&then), "{then}");
    // It is said in words, and can be typed.
    let text = stdout(&run(&["trace", path(&capture)])).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("of it before a file is begun"), "{text}");
    let typed = with(
        &TYPED,
        &["--vers", "3", "--files", "1000", "--dirs", "0", "--think", "1ms", "--file-think", "40ms"],
    );
    near(&predicted(&typed)["now"]["seconds"], 6000.0 * 6.05e-3 + 40.0);
}

#[test]
fn what_was_never_tried_says_so() {
    let args = with(&TYPED, &["--files", "1000", "--delegations", "--log-device", "50us"]);
    let all = predicted(&args);
    assert_eq!(all["earned"]["delegations"], json!({ "cases": 0, "within": null }));
    assert!(all["earned"]["log-device"]["within"].as_f64() > Some(0.0));
    assert!(all["each"][1]["within_s"].is_null() && all["together"]["within_s"].is_null(), "{all}");
    let text = stdout(&run(&args));
    let row = text.lines().find(|l| l.starts_with(" delegations")).expect("its row");
    assert!(row.contains("not tried"), "{row}");
    assert!(text.contains("not tried: nothing that does delegations was there to measure"), "{text}");
    let text = stdout(&run(&with(&TYPED, &["--files", "1000", "--log-device", "50us"])));
    assert!(!text.contains("not tried"), "{text}");
}

#[test]
fn the_chart_is_as_wide_as_the_terminal_and_goes_into_a_pipe_when_asked_for() {
    let args = with(&TYPED, &["--files", "290000", "--chart"]);
    let o = landfast().args(&args).env("COLUMNS", "100").output().expect("landfast runs");
    let text = stdout(&o);
    let bars: Vec<&str> = text.lines().filter(|l| l.contains('▓')).collect();
    assert!(bars.len() >= 4, "{text}");
    assert!(bars.iter().all(|l| l.chars().count() <= 100), "{text}");
    // The reader may stop.
    let mut child = landfast().args(&args).stdout(Stdio::piped()).spawn().expect("landfast");
    drop(child.stdout.take());
    let ended = child.wait().expect("it ends").code();
    assert!(matches!(ended, Some(0 | 141)), "{ended:?}");
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let o = landfast().args(&args).stdout(full).output().expect("landfast runs");
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["standard output"]);
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = ["--files", "10"];
    refused(&with(&TYPED, &["--archive", "/no/such.tar"]), &["/no/such.tar", "No such file"]);
    refused(&with(&TYPED, &["--dir", "/no/such"]), &["/no/such", "No such file"]);
    refused(&with(&TYPED, &["--dir", "/etc/passwd"]), &["/etc/passwd", "not a directory"]);
    refused(&with(&TYPED, &["--archive", "/etc/passwd"]), &["/etc/passwd"]);
    refused(&with(&TYPED, &["--archive", path(dir.path())]), &[path(dir.path())]);
    refused(&TYPED, &["missing work"]);
    refused(&with(&["predict", "--rtt", "0"], &files), &["round trip"]);
    refused(&with(&["predict", "--rtt", "2000m"], &files), &["round trip"]);
    refused(&with(&TYPED, &["--files", "0", "--dirs", "0"]), &["nothing to do"]);
    refused(&with(&TYPED, &["--files", "10", "--streams", "0"]), &["stream"]);
    refused(&with(&TYPED, &["--files", "10", "--compound", "0"]), &["COMPOUND"]);
    refused(&with(&TYPED, &["--files", "10", "--round-trip", "0"]), &["round trip"]);
    refused(&with(&TYPED, &["--files", "10", "--write-size", "0"]), &["--write-size"]);
    refused(&with(&["predict", "--rtt", "1ms", "--bandwidth", "0"], &files), &["bandwidth"]);
    let json = |name: &str, value: Value| report(dir.path(), name, &value);
    let again = |path: &Path| run(&["predict", "--trace", common::path(path)]);
    for (file, parts) in [
        (json("no terms", json!({ "procedures": [] })), vec!["no \"terms\"", "landfast trace --json"]),
        (json("null", json!({ "terms": null })), vec!["too little"]),
        (json("part", json!({ "terms": { "round_trip_s": 1.0 } })), vec!["missing field", "part"]),
        (json("list", json!([1, 2])), vec!["no \"terms\""]),
        (json("zero", json!({ "terms": terms(0.0), "work": null })), vec!["missing work"]),
        (
            json(
                "mad",
                json!({ "terms": terms(1e-3), "work":
                { "files": 1, "bytes": 1, "calls": 1, "synchronous_calls": 2, "span_s": 1.0 } }),
            ),
            vec!["more synchronous calls than calls"],
        ),
    ] {
        let o = again(&file);
        assert_eq!(o.status.code(), Some(2), "{}", file.display());
        one_line_with(&stderr(&o), &parts);
    }
    let text = dir.path().join("text");
    std::fs::write(&text, "not JSON").expect("a file");
    let o = again(&text);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["no JSON", path(&text)]);
    refused(&with(&["predict", "--trace", "/no/such.json"], &files), &["/no/such.json", "No such file"]);
    // What is typed wrongly.
    for bad in [
        with(&["predict"], &files),
        with(&TYPED, &["--files", "many"]),
        with(&TYPED, &["--files", "1", "--dir", "/etc"]),
        with(&TYPED, &["--files", "1", "--trace", "x"]),
        with(&TYPED, &["--files", "1", "--vers", "5"]),
        vec!["predict", "--persistence", "4ms", "--files", "1"],
        vec!["predict", "--trace", "x", "--think", "1ms"],
        vec!["predict", "--rtt", "-1ms", "--files", "1"],
    ] {
        assert_eq!(run(&bad).status.code(), Some(2), "{bad:?}");
    }
}
