//! GNU tar on `landfast mount`, with and without write directory delegations, beside `landfast untar` and local tar with a sync.

use crate::error::{Error, Result};
use crate::experiments::mount::TAR_WAITS_FROM_MS;
use crate::experiments::{self, Check, Choices, Report};
use crate::report::content::{Found, Picture, Series, Table, Unit, Whose};
use crate::report::plan::Plan;

/// At the last of them the experiment also judges how many round trips are waited for.
const ROUND_TRIPS_MS: [f64; 4] = [0.1, 1.0, 10.0, TAR_WAITS_FROM_MS];
const QUICK_MS: [f64; 2] = [1.0, 10.0];
/// Both disks: a usual solid state disk, so that no side has a better one.
const FLUSH_MS: f64 = 1.0;

/// The claim at the longest round trip: `tar` and `landfast sync` with write delegations, in times of the files a second without them.
const TIMES_MIN: f64 = 3.0;

/// What is measured of one way at one round trip.
#[derive(Clone, Copy)]
struct Point {
    rtt_ms: f64,
    seconds: f64,
    files: f64,
    rpcs: Option<f64>,
    flushes: Option<f64>,
}

impl Point {
    fn files_per_s(&self) -> f64 {
        self.files / self.seconds
    }
}

struct Way {
    name: &'static str,
    whose: Whose,
    tone: u8,
    points: Vec<Point>,
}

pub fn run(plan: &mut Plan<'_>) -> Result<Found> {
    let round_trips: &[f64] = plan.pick(&QUICK_MS[..], &ROUND_TRIPS_MS[..]);
    let files = plan.pick(128, 1024);
    let mut with = |options: &str| -> Result<Report> {
        let choices = Choices {
            files: Some(files),
            round_trips_ms: round_trips.to_vec(),
            flushes_ms: vec![FLUSH_MS],
            only: vec!["tar".to_owned()],
            mount_options: options.to_owned(),
            ..Choices::default()
        };
        plan.step(&format!("tar on a mount, {}", if options.is_empty() { "no options" } else { options }))?;
        experiments::run("mount", &choices, &mut |_| {})
    };
    let (held, plain) = (with("close=local")?, with("")?);
    found(files, round_trips, &held, &plain, plan.judges_times())
}

/// What the experiment says with write delegations and without.
fn found(files: u64, round_trips: &[f64], held: &Report, plain: &Report, times: bool) -> Result<Found> {
    let way = |name, whose, tone, report: &Report, keys: [&str; 3]| -> Result<Way> {
        let points = report.lines.iter().zip(round_trips).map(|(row, rtt_ms)| point(row, *rtt_ms, keys));
        Ok(Way { name, whose, tone, points: points.collect::<Result<_>>()? })
    };
    let of_mount = ["seconds", "rpcs_each", "log_flushes_each"];
    let ways = [
        way("tar and sync, local disk (ext4)", Whose::Local, 7, held, ["local_seconds", "", ""])?,
        way(
            "landfast untar",
            Whose::Ours,
            0,
            held,
            ["untar_seconds", "untar_rpcs_each", "untar_log_flushes_each"],
        )?,
        way("tar on a mount with write delegations, and landfast sync", Whose::Ours, 6, held, of_mount)?,
        way("tar on a mount without, each close stable", Whose::Ours, 2, plain, of_mount)?,
    ];
    let [local, .., delegated, waiting] = &ways;

    let columns = [
        ("files/s", Unit::PerSecond),
        ("a file takes", Unit::Milliseconds),
        ("times local tar and sync", Unit::Times),
        ("RPCs a file", Unit::Each),
        ("flushes of the log, a file", Unit::Each),
    ];
    let mut table = Table::new("way and round trip", columns);
    let mut series = Vec::new();
    for way in &ways {
        for (p, local) in way.points.iter().zip(&local.points) {
            let pace = p.files_per_s();
            let values = [Some(pace), Some(1e3 / pace), Some(pace / local.files_per_s()), p.rpcs, p.flushes];
            table.add(&format!("{}, {} ms", way.name, p.rtt_ms), way.whose, values);
        }
        let points = way.points.iter().map(|p| (p.rtt_ms, p.files_per_s())).collect();
        series.push(Series {
            name: way.name.to_owned(),
            whose: way.whose,
            points,
            tone: way.tone,
            is_limit: false,
        });
    }
    let mut found = Found::new(Picture::by_round_trip(series), table);
    let both = [("with write delegations", held), ("without", plain)];
    found.checks = both.iter().flat_map(|(which, report)| worst(which, &report.checks)).collect();
    if times && let (Some(delegated), Some(waiting)) = (delegated.points.last(), waiting.points.last()) {
        let what = format!(
            "tar with write delegations and a sync at {} ms: times the files a second without them",
            delegated.rtt_ms
        );
        let times = delegated.files_per_s() / waiting.files_per_s();
        found.checks.push(Check::at_least(&what, times, TIMES_MIN));
    }
    found.notes = vec![
        format!("{files} files of 4 KiB by GNU tar; a flush takes {FLUSH_MS} ms on every disk, and Landfast has its log"),
        "with write delegations (`landfast mount -o close=local` on an export with `write_delegations`) nothing is durable before `landfast sync` returns, \
         as on a local disk; its time is within. Without, a file is durable when `close` returns"
            .to_owned(),
        "`landfast lab run mount` has more programs, round trips and flushes".to_owned(),
    ];
    found.notes.extend(both.iter().flat_map(|(which, report)| notes(which, &report.notes)));
    Ok(found)
}

/// The experiment's notes, what is wrong among them.
fn notes(which: &str, notes: &[String]) -> Vec<String> {
    notes.iter().map(|note| format!("{which}: {note}")).collect()
}

/// `keys`: seconds, RPCs and flushes for each file; empty where there is no such figure.
fn point(row: &experiments::Row, rtt_ms: f64, keys: [&str; 3]) -> Result<Point> {
    let of = |key: &str| row.values.get(key).copied();
    let wanted = |key: &str| of(key).ok_or_else(|| Error::Protocol(format!("`{}` has no {key}", row.name)));
    let [seconds, rpcs, flushes] = keys;
    Ok(Point {
        rtt_ms,
        seconds: wanted(seconds)?,
        files: wanted("objects")?,
        rpcs: of(rpcs),
        flushes: of(flushes),
    })
}

/// Of checks that differ in the network and the disk only, the one with the largest value, or one that does not hold.
fn worst(which: &str, checks: &[Check]) -> Vec<Check> {
    let mut all: Vec<Check> = Vec::new();
    for check in checks {
        let subject = check.what.split_once(": ").map_or(check.what.as_str(), |(_, subject)| subject);
        let what = format!("{which}: {subject}");
        match all.iter_mut().find(|other| other.what == what) {
            Some(other) if (!check.holds, check.value) > (!other.holds, other.value) => {
                *other = Check { what, ..check.clone() };
            }
            Some(_) => {}
            None => all.push(Check { what, ..check.clone() }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_and_notes_of_the_experiment_are_the_rows() {
        let report = |check: Check, note: &str| {
            let keys = [
                "objects",
                "seconds",
                "rpcs_each",
                "log_flushes_each",
                "local_seconds",
                "untar_seconds",
                "untar_rpcs_each",
                "untar_log_flushes_each",
            ];
            let values = keys.iter().map(|key| ((*key).to_owned(), 1.0)).collect();
            Report {
                name: String::new(),
                about: String::new(),
                terms: None,
                lines: vec![experiments::Row { name: String::new(), values }],
                checks: vec![check],
                notes: vec![note.to_owned()],
                holds: true,
                total_s: 0.0,
            }
        };
        let waits = "tar xf: round trips that are waited for, for 1024";
        let held = report(Check::at_most(waits, 9.0, 10.0), "local programs read from memory");
        let plain = report(Check::at_most(waits, 1400.0, 1300.0), "WRONG, 50 ms: a file is missing");
        let found = found(1024, &[50.0], &held, &plain, false).unwrap();
        assert!(!found.checks.iter().all(|check| check.holds), "{:#?}", found.checks);
        for note in ["with write delegations: local programs", "without: WRONG, 50 ms: a file is missing"] {
            assert!(found.notes.iter().any(|line| line.starts_with(note)), "{note}: {:#?}", found.notes);
        }
    }

    #[test]
    fn a_whole_run_reaches_the_round_trip_at_which_waits_are_judged() {
        assert!(ROUND_TRIPS_MS.iter().any(|ms| *ms >= TAR_WAITS_FROM_MS));
    }

    #[test]
    fn of_a_claim_at_several_round_trips_the_worst_remains() {
        let check =
            |ms: u32, value| Check::at_most(&format!("{ms} ms, flush 1 ms: tar xf: RPCs for 8"), value, 10.0);
        let found =
            worst("x", &[check(1, 3.0), check(10, 11.0), check(50, 4.0), Check::exactly("wrong", 0.0, 0.0)]);
        let shown: Vec<(&str, f64, bool)> =
            found.iter().map(|c| (c.what.as_str(), c.value, c.holds)).collect();
        assert_eq!(shown, [("x: tar xf: RPCs for 8", 11.0, false), ("x: wrong", 0.0, true)]);
    }
}
