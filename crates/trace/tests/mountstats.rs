//! Counters of real clients: two that are kept here, and those beside the captures in LANDFAST_CAPTURES (see `captures.rs`), of which
//! `meta.json` says what was injected.

use landfast_model::Bound;
use landfast_trace::mountstats::findings::Findings;
use landfast_trace::mountstats::{Mount, Mountstats, difference, parse};
use std::path::PathBuf;

fn one(text: &str) -> Mount {
    let found = parse(text.as_bytes());
    assert_eq!((found.mounts.len(), found.strange, found.too_many), (1, 0, 0), "{text}");
    found.mounts.into_iter().next().expect("a mount")
}

/// Each operation's nine numbers, read in the simplest way.
fn numbers(text: &str) -> Vec<(String, Vec<u64>)> {
    let (_, lines) = text.split_once("per-op statistics").expect("operations");
    let row = |line: &str| {
        let (name, numbers) = line.trim().split_once(':')?;
        Some((name.to_owned(), numbers.split_whitespace().map(|n| n.parse().expect("a number")).collect()))
    };
    lines.lines().filter_map(row).collect()
}

fn is_exact(text: &str, mount: &Mount) {
    let rows = numbers(text);
    assert_eq!(rows.iter().map(|(name, _)| name).collect::<Vec<_>>(), mount.order.iter().collect::<Vec<_>>());
    for (name, n) in rows {
        let c = mount.operations[&name];
        let read = [
            c.ops,
            c.transmissions,
            c.timeouts,
            c.bytes_sent,
            c.bytes_received,
            c.queue_ms,
            c.rtt_ms,
            c.execute_ms,
        ];
        assert_eq!(read[..], n[..8], "{name}");
        assert_eq!(c.errors, n.get(8).copied(), "{name}");
    }
    // Each call is one request on the connection, but for those whose replies are still to come.
    let sends: u64 = mount.transports.iter().map(|t| t.sends).sum();
    assert!(sends.abs_diff(mount.ops()) <= 16, "{sends} {}", mount.ops());
}

#[test]
fn version_3_over_ten_milliseconds() {
    let text = include_str!("mountstats/v3.txt");
    let mount = one(text);
    is_exact(text, &mount);
    assert_eq!((mount.ops(), mount.version(), mount.on.as_str()), (1877, "3".to_owned(), "/mnt"));
    let setattr = mount.operations["SETATTR"];
    assert_eq!((setattr.ops, mount.operations["LOOKUP"].errors), (827, Some(200)));
    assert!((setattr.average(setattr.rtt_ms) - 12087.0 / 827.0).abs() < 1e-12);
    let found = Findings::of(&mount, None);
    assert_eq!(found.verdict.expect("a verdict").bound, Bound::Rtt, "{found:?}");
    assert!((0.0145..0.015).contains(&found.terms.round_trip_s), "{found:?}");
    assert_eq!((found.work.calls, found.work.synchronous_calls, found.work.bytes), (1877, 1236, 673_652));
    assert_eq!(found.terms.in_flight, 1.0);
}

#[test]
fn version_4_1_on_a_slow_disk() {
    let text = include_str!("mountstats/v4.1.txt");
    let mount = one(text);
    is_exact(text, &mount);
    assert_eq!((mount.ops(), mount.version()), (2483, "4.1".to_owned()));
    let found = Findings::of(&mount, None);
    assert_eq!(found.verdict.expect("a verdict").bound, Bound::Persistence, "{found:?}");
    assert!((0.008..0.015).contains(&found.terms.persistence_s), "{found:?}");
}

#[test]
fn a_reading_less_itself_is_nothing_and_less_nothing_is_itself() {
    let reading = parse(include_bytes!("mountstats/v4.1.txt"));
    let nothing = difference(&reading, &reading);
    assert_eq!((nothing.mounts[0].ops(), nothing.mounts[0].age_s), (0, 0));
    assert_eq!(nothing.mounts[0].used().count(), 0);
    let all = difference(&Mountstats::default(), &reading);
    assert_eq!(all.mounts, reading.mounts);
}

#[test]
#[ignore = "needs LANDFAST_CAPTURES"]
fn counters_of_captures_say_what_was_injected() {
    let all = PathBuf::from(std::env::var("LANDFAST_CAPTURES").expect("LANDFAST_CAPTURES"));
    let mut seen = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(all).expect("a directory").map(|e| e.expect("an entry").path()) {
        let (Ok(text), Ok(meta)) = (
            std::fs::read_to_string(entry.join("mountstats.txt")),
            std::fs::read_to_string(entry.join("meta.json")),
        ) else {
            continue;
        };
        let mount = one(&text);
        is_exact(&text, &mount);
        seen += 1;
        let found = Findings::of(&mount, None);
        let label = meta.lines().find(|l| l.contains("expected_verdict")).unwrap_or_default().to_lowercase();
        let verdict = found.verdict.expect("a verdict");
        println!("{}: {verdict:?} {:?}\n    {label}", entry.display(), found.shares);
        let named = |bound: Bound| label.contains(bound.name());
        // With averages alone a machine that is slow by itself stands beside what was injected.
        let fits = match verdict.bound {
            Bound::Mixed => named(Bound::Mixed) || named(verdict.first) || named(verdict.runner_up),
            bound => named(bound),
        };
        if !fits && !label.contains("\"\"") {
            wrong.push(format!("{}: {verdict:?}, {label}", entry.display()));
        }
    }
    assert!(seen > 0);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
