//! A tree of small files put on a server over networks of several round trips, by our client and by others, in turns.
//!
//! All go through the same emulated link to the same server, on a filesystem and a log in memory: what is measured is the
//! network's round trips and processor time ([`super::client_bench`]).

use super::client_bench::{Bench, Runs, Setup, Side, sides};
use super::{Check, Choices, Findings, Progress, Row};
use crate::error::Result;
use crate::net::Link;
use std::time::Duration;

const ROUND_TRIPS_MS: [f64; 4] = [0.1, 1.0, 10.0, 50.0];

const FILES: u64 = 4096;

/// So many times as many, for what is claimed of the longest round trip.
const MANY: u64 = 8;

/// Runs of each side at each round trip; the one in the middle counts.
const ROUNDS: u64 = 5;
/// The same of the others, whose pace is measured for so long.
const PEER_ROUNDS: u64 = 3;

/// How many times the files a second of the quickest of the others are claimed at 1 ms.
const TIMES_PEERS: f64 = 3.0;

/// How many times as long as at the shortest round trip many files may take at the longest.
const TIMES_SHORTEST: f64 = 2.0;

/// Round trips that one extraction, or copy, may wait for, one after another, from its start to its end.
const WAITED_MAX: f64 = 4.0;

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    let files = choices.files.unwrap_or(FILES).max(1);
    let (sides, notes) = sides(choices, true)?;
    let mut found = crate::namespace::run_private(|| measure(files, &sides, progress))??;
    found.notes.extend(notes);
    Ok(found)
}

fn measure(files: u64, sides: &[Side], progress: Progress<'_>) -> Result<Findings> {
    let mut found = Findings::default();
    let mut bench = Bench::new(files, Setup::Memory)?;
    // Seconds for all files, by round trip and side, and those from start to end.
    let mut table: Vec<Vec<f64>> = Vec::new();
    let mut whole: Vec<Vec<Option<f64>>> = Vec::new();
    let mut round_trips = Vec::new();
    for rtt_ms in ROUND_TRIPS_MS {
        let link = Link::start(bench.addr(), Duration::from_secs_f64(rtt_ms / 1000.0))?;
        let really_ms = crate::measure::ms(link.measure()?);
        round_trips.push(really_ms);
        let mut runs = vec![Runs::default(); sides.len()];
        for round in 0..ROUNDS {
            for (side, runs) in sides.iter().zip(&mut runs) {
                if !side.is_ours() && round >= PEER_ROUNDS {
                    continue;
                }
                progress(&format!("{rtt_ms} ms, round {} of {ROUNDS}: {}", round + 1, side.name()));
                runs.push(&bench.run(side, &link)?, files);
            }
        }
        let (mut row, mut row_whole) = (Vec::new(), Vec::new());
        for (side, runs) in sides.iter().zip(runs) {
            let (mut line, seconds, whole_s) =
                runs.line(&format!("{rtt_ms} ms, {}", side.name()), really_ms, files);
            row.push(seconds);
            row_whole.push(whole_s);
            line.values.insert("times_untar".into(), seconds / row[0]);
            found.lines.push(line);
        }
        table.push(row);
        whole.push(row_whole);
    }
    let ones = sides.iter().zip(&table[1]).filter(|(side, _)| !side.is_ours() && !side.is_vectored_peer());
    let best = ones.map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
    found.checks.push(Check::at_least(
        "untar at a round trip of 1 ms: times the files a second of the quickest of the others that put one file into a call",
        best / table[1][0],
        TIMES_PEERS,
    ));
    for (rtt_ms, row) in ROUND_TRIPS_MS.iter().zip(&whole) {
        let many = sides.iter().zip(row).filter(|(side, _)| side.is_vectored_peer());
        let best = many.filter_map(|(_, whole_s)| *whole_s).min_by(f64::total_cmp);
        if let (Some(best), [Some(untar), Some(copy), ..]) = (best, row.as_slice()) {
            found.notes.push(format!(
                "from its start to its end the quickest of the others that put many files into a call takes {:.2} times as long \
                 as untar at {rtt_ms} ms, and {:.2} times as long as cp -r, which reads the same files",
                best / untar,
                best / copy
            ));
        }
    }
    let last = ROUND_TRIPS_MS.len() - 1;
    let (short, long) = (table[0][0], table[last][0]);
    let waited = (long - short) * 1000.0 / (round_trips[last] - round_trips[0]);
    found.checks.push(Check::at_most(
        &format!(
            "round trips that untar of {files} files waits for, from what it takes longer at {} ms",
            ROUND_TRIPS_MS[last]
        ),
        waited,
        WAITED_MAX,
    ));
    found.notes.push(format!(
        "untar of {files} files takes {:.2} times as long at {} ms as at {} ms: a session costs two round trips whatever is \
         done in it, directories and files one",
        long / short,
        ROUND_TRIPS_MS[last],
        ROUND_TRIPS_MS[0]
    ));
    found.checks.push(Check::at_most(
        &format!(
            "round trips that cp -r of {files} files waits for, from what it takes longer at {} ms",
            ROUND_TRIPS_MS[last]
        ),
        (table[last][1] - table[0][1]) * 1000.0 / (round_trips[last] - round_trips[0]),
        WAITED_MAX,
    ));
    bench.stop()?;
    many(files * MANY, progress, &mut found)?;
    Ok(found)
}

/// Many files at the shortest and the longest round trip.
fn many(files: u64, progress: Progress<'_>, found: &mut Findings) -> Result<()> {
    let mut bench = Bench::new(files, Setup::Memory)?;
    let ends = [ROUND_TRIPS_MS[0], ROUND_TRIPS_MS[ROUND_TRIPS_MS.len() - 1]];
    let mut seconds = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for (rtt_ms, seconds) in ends.iter().zip(&mut seconds) {
            progress(&format!("{files} files, {rtt_ms} ms, round {} of {ROUNDS}", round + 1));
            let link = Link::start(bench.addr(), Duration::from_secs_f64(rtt_ms / 1000.0))?;
            seconds.push(bench.run(&Side::Untar, &link)?.pace.seconds);
        }
    }
    let [short, long] = seconds.map(super::middle);
    for (rtt_ms, seconds) in [(ends[0], short), (ends[1], long)] {
        let values = [("files_per_s", files as f64 / seconds), ("seconds", seconds)];
        found.lines.push(Row::new(&format!("{rtt_ms} ms, landfast untar, {files} files"), values));
    }
    found.checks.push(Check::at_most(
        &format!("untar of {files} files: the time at {} ms, times that at {} ms", ends[1], ends[0]),
        long / short,
        TIMES_SHORTEST,
    ));
    bench.stop()
}
