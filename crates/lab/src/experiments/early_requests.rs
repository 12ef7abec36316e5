//! What `untar` earns by sending requests before it knows the destination: at each round trip and size, the same archive
//! with less and less of it, in turns ([`Early`]).
//!
//! Volume and log are in memory: what is measured is the network's round trips and processor time.

use super::client_bench::{Bench, Setup};
use super::{Choices, Findings, Progress, Row};
use crate::error::{Context, Result};
use crate::measure::ms;
use crate::net::Link;
use landfast_client::put::{Early, PutOptions, Tuning};
use std::time::Duration;

const ROUND_TRIPS_MS: [u64; 3] = [1, 10, 50];

const FILES: [u64; 3] = [100, 4096, 32_768];

/// Rounds of few files, whose times are short, and of many.
const ROUNDS: u64 = 9;
const ROUNDS_MANY: u64 = 5;
const MANY: u64 = 10_000;

const WAYS: [(&str, Early); 4] = [
    ("nothing", Early::Nothing),
    ("destination", Early::Destination),
    ("and directories", Early::Directories),
    ("and files", Early::Files),
];

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::namespace::run_private(|| {
        let mut found = Findings::default();
        match choices.files {
            Some(files) => measure(files.max(1), progress, &mut found)?,
            None => FILES.iter().try_for_each(|files| measure(*files, progress, &mut found))?,
        }
        Ok(found)
    })?
}

fn measure(files: u64, progress: Progress<'_>, found: &mut Findings) -> Result<()> {
    let mut bench = Bench::new(files, Setup::Memory)?;
    let runtime = tokio::runtime::Runtime::new().context(|| "start a runtime".into())?;
    let rounds = if files < MANY { ROUNDS } else { ROUNDS_MANY };
    for rtt_ms in ROUND_TRIPS_MS {
        let link = Link::start(bench.addr(), Duration::from_millis(rtt_ms))?;
        let really_ms = ms(link.measure()?);
        let mut seconds: [Vec<f64>; WAYS.len()] = Default::default();
        for round in 0..rounds {
            for ((name, early), seconds) in WAYS.iter().zip(&mut seconds) {
                progress(&format!("{files} files, {rtt_ms} ms, round {} of {rounds}: {name}", round + 1));
                let tuning = Tuning { early: *early, ..Tuning::default() };
                let options = PutOptions { tuning, ..PutOptions::default() };
                seconds.push(bench.untar_here(&runtime, options, &link)?.as_secs_f64());
            }
        }
        let seconds = seconds.map(super::middle);
        for ((name, _), took) in WAYS.iter().zip(seconds) {
            let values = [
                ("rtt_ms", really_ms),
                ("seconds", took),
                ("files_per_s", files as f64 / took),
                ("round_trips_earned", (seconds[0] - took) * 1000.0 / really_ms),
                ("times_as_fast", seconds[0] / took),
            ];
            found.lines.push(Row::new(&format!("{files} files, {rtt_ms} ms, early: {name}"), values));
        }
    }
    bench.stop()
}
