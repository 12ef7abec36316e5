//! A tree of small files put on servers whose disks take a while to make something stable, at a round trip of 1 ms, by our client
//! and by others, in turns ([`super::client_bench`]).
//!
//! All that is written is stable when a clock stops. nfs-ganesha stands on XFS mounted `wsync`, where names are stable with their reply as
//! data is; Landfast on ext4 with a log. nfs-ganesha flushes its disk for each file, Landfast its log for all that is
//! in flight together: a client that waits for each of its calls waits for each of these flushes, too. So it matters how much is
//! in flight at a time. A client whose pace is measured, and not its time from start to end, looks better.

use super::client_bench::{Bench, Runs, Setup, Side, sides};
use super::{Check, Choices, Findings, Progress, Row};
use crate::error::Result;
use crate::net::Link;
use crate::peers::ganesha;
use std::time::Duration;

const FILES: u64 = 4096;

const ROUND_TRIP_MS: f64 = 1.0;

/// What a flush takes: that of a solid state disk without capacitors, about.
const FLUSH: Duration = Duration::from_millis(1);

/// Runs of each side; the one in the middle counts.
const ROUNDS: u64 = 3;

/// How many times the files a second of the quickest of the others are claimed on nfs-ganesha.
const TIMES_PEERS: f64 = 3.0;

/// Between which round trips, in milliseconds, how many times as long the same may take.
const FROM_TO_MS: [f64; 2] = [0.1, 50.0];
const TIMES_SHORTEST: f64 = 2.0;

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    ganesha::possible()?;
    let files = choices.files.unwrap_or(FILES).max(1);
    let mut found = Findings::default();
    for (name, stand, v3) in
        [("nfs-ganesha", Setup::Ganesha(FLUSH), false), ("Landfast", Setup::Landfast(FLUSH), true)]
    {
        let (sides, notes) = sides(choices, v3)?;
        crate::namespace::run_private(|| measure((name, stand), files, &sides, progress, &mut found))??;
        for note in notes {
            if !found.notes.contains(&note) {
                found.notes.push(note);
            }
        }
    }
    Ok(found)
}

fn measure(
    (name, stand): (&str, Setup),
    files: u64,
    sides: &[Side],
    progress: Progress<'_>,
    found: &mut Findings,
) -> Result<()> {
    let mut bench = Bench::new(files, stand)?;
    let link = Link::start(bench.addr(), Duration::from_secs_f64(ROUND_TRIP_MS / 1000.0))?;
    let really_ms = crate::measure::ms(link.measure()?);
    let mut sides: Vec<(&Side, Runs)> = sides.iter().map(|side| (side, Runs::default())).collect();
    for round in 0..ROUNDS {
        let mut failed = Vec::new();
        for (i, (side, runs)) in sides.iter_mut().enumerate() {
            progress(&format!("{name}, round {} of {ROUNDS}: {}", round + 1, side.name()));
            match bench.run(side, &link) {
                Ok(run) => runs.push(&run, files),
                // Another's program need not get along with every server.
                Err(why) if matches!(side, Side::Program(..)) => {
                    found.notes.push(format!("on {name} {} is not measured: {why}", side.name()));
                    failed.push(i);
                }
                Err(why) => return Err(why),
            }
        }
        for i in failed.into_iter().rev() {
            sides.remove(i);
        }
    }
    let (mut ours, mut one, mut many) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    for (side, runs) in sides {
        let (mut line, seconds, _) = runs.line(&format!("on {name}, {}", side.name()), really_ms, files);
        match side {
            Side::Untar => ours = seconds,
            Side::Copy => {}
            side if side.at_a_time() == 1 => one = one.min(seconds),
            _ => many = many.min(seconds),
        }
        line.values.insert("times_untar".into(), seconds / ours);
        found.lines.push(line);
    }
    let mut took = [Vec::new(), Vec::new()];
    for (rtt_ms, took) in FROM_TO_MS.iter().zip(&mut took) {
        let link = Link::start(bench.addr(), Duration::from_secs_f64(rtt_ms / 1000.0))?;
        for round in 0..ROUNDS {
            progress(&format!("{name}, round {} of {ROUNDS}: landfast untar at {rtt_ms} ms", round + 1));
            took.push(bench.run(&Side::Untar, &link)?.pace.seconds);
        }
    }
    let [short, long] = took.map(super::middle);
    for (rtt_ms, seconds) in FROM_TO_MS.iter().zip([short, long]) {
        let values = [("files_per_s", files as f64 / seconds), ("rtt_ms", *rtt_ms), ("seconds", seconds)];
        found.lines.push(Row::new(&format!("on {name}, landfast untar at {rtt_ms} ms"), values));
    }
    let times =
        format!("untar on {name}: the time at {} ms, times that at {} ms", FROM_TO_MS[1], FROM_TO_MS[0]);
    let best = one.min(many);
    if let Setup::Ganesha(_) = stand {
        let what = format!("untar on {name}: times the files a second of the quickest of the others");
        found.checks.push(Check::at_most(&times, long / short, TIMES_SHORTEST));
        found.checks.push(Check::at_least(&what, best / ours, TIMES_PEERS));
    } else {
        // It does so much in a round trip that these are most of the time (see client-round-trips); and processor time counts, and
        // what many calls in flight need of it.
        found.notes.push(format!("{times}: {:.2}", long / short));
        found.notes.push(format!(
            "on {name} the quickest of the others with one call under way takes {:.2} times as long as untar, of all others \
             {:.2} times",
            one / ours,
            best / ours
        ));
    }
    bench.stop()
}
