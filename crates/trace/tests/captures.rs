//! Captures of real traffic against the tables that tshark made of them: a directory of directories, each with `NAME.pcap.gz` (or
//! `.pcapng.gz`), `NAME.srt-vN.txt` (`tshark -q -z rpc,srt,100003,N`), and perhaps `NAME.ops.tsv.gz` (a line a reply) and
//! `NAME.v4-mainop.tsv`, in LANDFAST_CAPTURES.

use landfast_model::Bound;
use landfast_trace::analysis::Analysis;
use landfast_trace::anonymise::{Anonymiser, LeftOut};
use landfast_trace::listing;
use landfast_trace::skim::{Program, v4};
use landfast_trace::source::{Capture, End};
use landfast_trace::table::{Item, Place, Row, Table, main_operation, seconds};
use landfast_trace::trace::{Call, Ends, Observer, Reply, Shortest, Totals, Trace};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

#[derive(Default)]
struct Seen {
    table: Table,
    analysis: Analysis,
    shown: Vec<String>,
    /// By xid: procedure or main operation, operations that were carried out, service time in nanoseconds.
    replies: Vec<(u32, Vec<u8>, Option<u32>, i64)>,
}

impl Observer for Seen {
    fn stall(&mut self, ends: Ends, from_ns: i64, to_ns: i64) {
        self.analysis.stall(ends, from_ns, to_ns);
    }
    fn moving(&mut self, ends: Ends, from_ns: i64, to_ns: i64) {
        self.analysis.moving(ends, from_ns, to_ns);
    }
    fn path(&mut self, ends: Ends, shortest: [Option<Shortest>; 2]) {
        self.analysis.path(ends, shortest);
    }
    fn begun(&mut self, ns: i64) {
        self.analysis.begun(ns);
    }
    fn wants_detail(&self) -> bool {
        true
    }
    fn call(&mut self, ends: Ends, call: &Call) {
        self.analysis.call(ends, call);
        self.shown.extend(call.head.shown.iter().map(|(_, text)| text.clone()));
    }
    fn reply(&mut self, ends: Ends, call: &Call, reply: &Reply) {
        self.analysis.reply(ends, call, reply);
        self.table.add(call, reply);
        if call.head.kind.program != Program::Nfs {
            return;
        }
        let (Some(from), Some(to)) = (call.times.counted(), reply.times.counted()) else { return };
        let done = reply.head.operations.map_or(call.head.ops.len(), |n| n as usize);
        let ops = call.head.ops[..done.min(call.head.ops.len())].to_vec();
        let main = if ops.is_empty() { Some(call.head.kind.procedure) } else { main_operation(call, reply) };
        self.replies.push((call.head.xid, ops, main, to.ns - from.ns));
    }
}

fn unpacked(path: &Path) -> Box<dyn Read + Send> {
    let file = File::open(path).expect("the file");
    match path.extension().is_some_and(|e| e == "gz") {
        true => Box::new(flate2::read::MultiGzDecoder::new(file)),
        false => Box::new(file),
    }
}

fn text(path: &Path) -> String {
    let mut text = String::new();
    unpacked(path).read_to_string(&mut text).expect("text");
    text
}

fn trace(path: &Path) -> (Totals, Seen) {
    let mut capture = Capture::open(unpacked(path)).expect("a capture");
    let mut trace = Trace::new(Seen::default());
    assert_eq!(capture.each(|frame| trace.frame(frame)).expect("frames"), End::Whole);
    trace.finish()
}

/// Name, calls, and the four times as tshark prints them.
type Line = (String, String, [String; 4]);

fn tshark(table: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [index, name, calls, min, max, avg, sum] = words[..]
            && index.parse::<u32>().is_ok()
        {
            lines.push((name.to_owned(), calls.to_owned(), [min, max, avg, sum].map(str::to_owned)));
        }
    }
    assert!(!lines.is_empty());
    lines
}

fn mainop(table: &str) -> Vec<Line> {
    let lines = table.lines().filter(|l| !l.starts_with('#')).map(|line| {
        let words: Vec<&str> = line.split('\t').collect();
        (
            words[0].to_owned(),
            words[1].to_owned(),
            [words[2], words[3], words[4], words[5]].map(str::to_owned),
        )
    });
    let mut lines: Vec<Line> = lines.collect();
    lines.sort();
    lines
}

fn ours(table: &Table, of: impl Fn(&Place) -> bool) -> Vec<Line> {
    let line =
        |row: &Row| [row.min_ns.into(), row.max_ns.into(), row.avg_ns().into(), row.sum_ns].map(seconds);
    table.rows().filter(|(p, _)| of(p)).map(|(p, r)| (p.name(), r.calls.to_string(), line(r))).collect()
}

fn captures(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for sub in std::fs::read_dir(dir).expect("the directory") {
        let sub = sub.expect("an entry").path();
        for file in sub.is_dir().then(|| std::fs::read_dir(&sub).expect("a directory")).into_iter().flatten()
        {
            let file = file.expect("an entry").path();
            if file.file_name().is_some_and(|n| n.to_string_lossy().contains(".pcap")) {
                found.push(file);
            }
        }
    }
    found.sort();
    found
}

/// Names in the arguments, as a listing shows them.
fn names(seen: &Seen) -> BTreeSet<Vec<u8>> {
    let behind = |text: &str| {
        text.split_once("DH: 0x").and_then(|(_, rest)| rest.split_once('/')).map(|(_, n)| n.to_owned())
    };
    let names = seen.shown.iter().filter_map(|text| behind(text));
    let word = |name: String| name.split(' ').next().unwrap_or("").as_bytes().to_vec();
    names.map(word).filter(|name| name.len() >= 5).collect()
}

#[test]
#[ignore = "needs captures in LANDFAST_CAPTURES"]
fn copies_without_names_have_the_same_tables() {
    let dir = std::env::var_os("LANDFAST_CAPTURES").expect("LANDFAST_CAPTURES");
    let mut looked_for = 0;
    for path in captures(Path::new(&dir)) {
        let (before, seen) = trace(&path);
        let mut capture = Capture::open(unpacked(&path)).expect("a capture");
        let mut copy = Anonymiser::new(&[3; 16], Vec::new());
        let end = capture.each(|frame| copy.frame(frame).expect("memory")).expect("frames");
        let (totals, left_out, file) = copy.finish().expect("memory");
        assert_eq!((end, left_out, &totals), (End::Whole, LeftOut::default(), &before));
        let names = names(&seen);
        looked_for += names.len();
        let mut starts: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
        names.iter().for_each(|name| starts.entry(&name[..5]).or_default().push(name));
        for (at, window) in file.windows(5).enumerate() {
            for name in starts.get(window).into_iter().flatten() {
                assert!(!file[at..].starts_with(name), "{}: {}", path.display(), name.escape_ascii());
            }
        }
        let mut capture = Capture::open(Cursor::new(file)).expect("a capture");
        let mut again = Trace::new(Seen::default());
        assert_eq!(capture.each(|frame| again.frame(frame)).expect("frames"), End::Whole);
        let (after, found) = again.finish();
        assert_eq!(after, before, "{}", path.display());
        assert_eq!(found.replies, seen.replies);
        assert_eq!(ours(&found.table, |_| true), ours(&seen.table, |_| true));
        let findings = [seen, found].map(|seen| {
            let found = seen.analysis.finish();
            format!("{:?} {:?} {:?}", found.shares, found.verdict, found.shapes)
        });
        assert_eq!(findings[0], findings[1]);
    }
    assert!(looked_for > 0);
}

#[test]
#[ignore = "needs captures with tshark's tables in LANDFAST_CAPTURES"]
fn the_tables_are_tsharks() {
    let dir = std::env::var_os("LANDFAST_CAPTURES").expect("LANDFAST_CAPTURES");
    let captures = captures(Path::new(&dir));
    assert!(!captures.is_empty());
    for path in captures {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let beside =
            |what: &str| path.with_file_name(format!("{}.{what}", name.split('.').next().unwrap_or("")));
        let (totals, seen) = trace(&path);
        println!("{}: {totals:?}", path.display());
        let (mut checked, mut calls) = (0, 0);
        for version in [3, 4] {
            let table = beside(&format!("srt-v{version}.txt"));
            if table.exists() {
                let expected = tshark(&text(&table));
                calls += expected.iter().map(|line| line.1.parse::<u64>().expect("a count")).sum::<u64>();
                let found = ours(&seen.table, |p| {
                    p.program == Program::Nfs && p.version == version && matches!(p.item, Item::Procedure(_))
                });
                assert_eq!(found, expected, "{}", table.display());
                checked += 1;
            }
        }
        assert!(checked > 0, "no table beside {}", path.display());
        assert_eq!((totals.calls_seen, totals.calls_matched), (calls, calls));
        if beside("v4-mainop.tsv").exists() {
            let mut found = ours(&seen.table, |p| matches!(p.item, Item::Operation(_)));
            found.sort();
            assert_eq!(found.len(), mainop(&text(&beside("v4-mainop.tsv"))).len());
            // That table was rounded from sums of rounded times.
            for (ours, theirs) in found.iter().zip(mainop(&text(&beside("v4-mainop.tsv")))) {
                assert_eq!((&ours.0, &ours.1), (&theirs.0, &theirs.1));
                for (ours, theirs) in ours.2.iter().zip(&theirs.2) {
                    let [ours, theirs] = [ours, theirs].map(|t| t.parse::<f64>().expect("a time"));
                    assert!((ours - theirs).abs() < 1.5e-6, "{ours} is not {theirs}");
                }
            }
        }
        if beside("ops.tsv.gz").exists() {
            replies(&seen, &text(&beside("ops.tsv.gz")));
        }
    }
}

/// What a listing has of each frame, behind the frame's length.
#[derive(Default)]
struct Lines(Vec<(u64, String)>);

impl Lines {
    fn push(&mut self, line: &str) {
        let frame = line.split(' ').next().and_then(|n| n.parse().ok()).expect("a frame");
        let about = line.find(" V").map_or("", |at| &line[at + 1..]);
        self.0.push((frame, about.to_owned()));
    }
}

impl Observer for Lines {
    fn wants_detail(&self) -> bool {
        true
    }
    fn call(&mut self, ends: Ends, call: &Call) {
        self.push(&listing::call(0, ends, call));
    }
    fn reply(&mut self, ends: Ends, call: &Call, reply: &Reply) {
        self.push(&listing::reply(0, ends, call, reply));
    }
    fn stall(&mut self, _ends: Ends, _from_ns: i64, _to_ns: i64) {}
    fn path(&mut self, _ends: Ends, _shortest: [Option<Shortest>; 2]) {}
}

/// Each line begins with what tshark says of the frame.
#[test]
#[ignore = "needs captures in LANDFAST_CAPTURES, and tshark"]
fn the_listing_is_tsharks() {
    let dir = std::env::var_os("LANDFAST_CAPTURES").expect("LANDFAST_CAPTURES");
    let (mut compared, mut without) = (0, 0);
    for path in captures(Path::new(&dir)) {
        let mut tshark = std::process::Command::new("tshark");
        tshark.args(["-n", "-d", "tcp.port==2049,rpc", "-Y", "nfs || mount || nlm || nfsacl"]);
        tshark.args(["-T", "fields", "-e", "frame.number", "-e", "_ws.col.Info", "-r"]).arg(&path);
        let out = String::from_utf8(tshark.output().expect("tshark").stdout).expect("text");
        let mut capture = Capture::open(unpacked(&path)).expect("a capture");
        let mut trace = Trace::new(Lines::default());
        capture.each(|frame| trace.frame(frame)).expect("frames");
        let ours: BTreeMap<u64, String> = trace.finish().1.0.into_iter().collect();
        for line in out.lines() {
            let (frame, info) = line.split_once('\t').expect("two columns");
            // What is sent again stands in no line of ours.
            let Some(ours) = ours.get(&frame.parse().expect("a number")) else {
                without += 1;
                continue;
            };
            let told = info.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(ours.starts_with(&told), "{} {frame}: {ours}\n{told}", path.display());
            compared += 1;
        }
    }
    println!("{compared} lines, {without} frames without one");
    assert!(compared > 1000 && without < compared / 100);
}

/// Each reply for itself: its operations, its main operation, its service time to the nanosecond.
fn replies(seen: &Seen, expected: &str) {
    let mut by_xid: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for (xid, ops, main, ns) in &seen.replies {
        by_xid.entry(*xid).or_default().push((ops, *main, *ns));
    }
    let mut lines = 0;
    for line in expected.lines().filter(|l| !l.starts_with('#')) {
        let f: Vec<&str> = line.split('\t').collect();
        let xid = u32::from_str_radix(f[4].trim_start_matches("0x"), 16).expect("an xid");
        let time: f64 = f[9].parse().expect("a time");
        let all = by_xid.get(&xid).unwrap_or_else(|| panic!("no reply for {line}"));
        let ops: Vec<u32> = f[7].split(',').filter_map(|op| op.parse().ok()).collect();
        let first: u32 = if ops.is_empty() { f[6] } else { f[8] }
            .split(',')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        let same = all.iter().any(|(o, main, ns)| {
            o.iter().map(|op| v4::number(*op).0).eq(ops.iter().copied())
                && *main == Some(first)
                && (*ns as f64 / 1e9 - time).abs() < 1.5e-9
        });
        assert!(same, "{line}: {all:?}");
        lines += 1;
    }
    assert_eq!(lines, seen.replies.len());
}

/// What was done to the traffic, out of `meta.json` beside it, against what the analysis says.
#[test]
#[ignore = "needs captures with meta.json in LANDFAST_CAPTURES"]
fn verdicts_are_what_was_done() {
    let dir = std::env::var_os("LANDFAST_CAPTURES").expect("LANDFAST_CAPTURES");
    let mut checked = 0;
    for path in captures(Path::new(&dir)) {
        let meta = std::fs::read_to_string(path.with_file_name("meta.json")).expect("meta.json");
        let string =
            |key: &str| meta.split(&format!("\"{key}\": \"")).nth(1).and_then(|rest| rest.split('"').next());
        let number = |key: &str| {
            let rest = meta.split(&format!("\"{key}\": ")).nth(1)?;
            rest.split([',', '}']).next()?.trim().parse::<u64>().ok()
        };
        let bound = match string("expected_verdict").unwrap_or("") {
            "" => continue,
            s if s.starts_with("mixed") => Bound::Mixed,
            s if s.starts_with("RTT") => Bound::Rtt,
            s if s.starts_with("persistence") => Bound::Persistence,
            s if s.starts_with("client") => Bound::Client,
            s if s.starts_with("bandwidth") => Bound::Bandwidth,
            s if s.contains("loss") => Bound::Loss,
            other => panic!("{}: what is {other}?", path.display()),
        };
        let mut capture = Capture::open(unpacked(&path)).expect("a capture");
        let mut trace = Trace::new(Analysis::new());
        capture.each(|frame| trace.frame(frame)).expect("frames");
        let found = trace.finish().1.finish();
        assert_eq!(found.verdict.expect("a verdict").bound, bound, "{}: {:?}", path.display(), found.shares);
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if number("rtt_added_us").is_some_and(|us| us >= 500) {
            assert!(name.starts_with(found.side.name()), "{}: {:?}", path.display(), found.side);
        }
        checked += 1;
    }
    assert!(checked > 0);
}
