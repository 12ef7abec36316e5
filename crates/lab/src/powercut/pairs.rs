//! Pairs of clients that race on one object, as in `landfast verify`, with this harness's ways to lose power.
//!
//! Flushes are slow here, so that some time passes between the effect of an operation and its durability. If possible the power
//! goes while several pairs have a reply to the second operation and none to the first.

use super::found;
use super::options::{CutReport, Variant};
use super::run::{Harness, PROBE, millis};
use crate::error::{Error, Result};
use crate::limits::{POINT_PATIENCE, VERIFY_WAIT};
use crate::pairs::{self, Work};
use crate::rig::Latency;
use crate::served::{Durability, Served};
use landfast_verify::check;
use landfast_verify::report::Report;
use std::time::{Duration, Instant};

const PAIRS: u32 = 8;

/// The versions of NFS, one a cut.
const VERSIONS: [&str; 4] = ["3", "4.0", "4.1", "4.2"];

/// A flush takes at least the first and less than the second, in microseconds.
const FLUSH_MICROS: (u64, u64) = (40_000, 100_000);

/// The power goes after fewer acknowledgements than this.
const ACKS: u64 = 120;

impl Harness<'_> {
    pub(super) fn cut_pairs(&mut self, n: u32) -> Result<CutReport> {
        let mut plan = self.plan();
        if self.options.durability != Durability::Log && plan.variant != Variant::Kill {
            // There is no log to be slow or lost.
            plan.variant = Variant::Power;
        }
        let mut report = CutReport { cut: n, how: plan.variant.name().to_owned(), ..CutReport::default() };
        let (server, stopped) = Served::start_or_stop(&self.serve_options(plan.point.as_ref())?)?;
        self.weather(plan.variant)?;
        let slow = Duration::from_micros(FLUSH_MICROS.0 + self.rng.below(FLUSH_MICROS.1 - FLUSH_MICROS.0));
        self.rig.set_latency(match self.options.durability {
            Durability::Log => Latency { data_flush: Duration::ZERO, log_flush: slow },
            _ => Latency { data_flush: slow, log_flush: Duration::ZERO },
        })?;
        let start = Instant::now();
        let version = VERSIONS[self.rng.below(VERSIONS.len() as u64) as usize];
        let url = |server: &Served| format!("nfs://{}/?version={version}", server.addr());
        let journal = self.rig.scratch().join(format!("pairs-{n}"));
        let acks = 1 + self.rng.below(ACKS);
        let seed = self.rng.next_u64();
        let work = if stopped {
            None
        } else {
            let options = pairs::options(&journal, 1, seed);
            Some(Work::start(&url(&server), landfast_verify::write::Options { pairs: PAIRS, ..options })?)
        };
        match (&plan.point, &work) {
            (Some((name, _)), _) if stopped || server.wait_stopped(POINT_PATIENCE) => {
                report.points.push(name.clone());
            }
            (_, Some(work)) => {
                work.wait_for_acks(acks)?;
                work.wait_for_alone(PAIRS);
            }
            (_, None) => {}
        }
        self.end(server, &plan)?;
        report.after_ms = millis(start);
        self.rig.set_latency(Latency::default())?;
        // One that was stopped before the first reply has no journal.
        let written = work.and_then(|work| work.end().ok());
        let server = self.recover(&plan, &mut report)?;
        if let Some(server) = server {
            if written.is_some() {
                self.ask_pairs(&url(&server), &journal, &mut report)?;
            }
            if let Err(e) = server.stop() {
                report.wrong.push(format!("after recovery: {e}"));
            }
        }
        self.after(&plan, &mut report)?;
        Ok(report)
    }

    /// Has the journal judged, and what is left looked at.
    fn ask_pairs(&self, url: &str, journal: &std::path::Path, report: &mut CutReport) -> Result<()> {
        let failed = |e: String| Error::Child { role: "verify check", what: e };
        let target = url.parse().map_err(|e: landfast_verify::Error| failed(e.to_string()))?;
        let options = check::Options { journal: journal.to_owned(), patience: VERIFY_WAIT, remove: true };
        let told = match check::run(&target, &options, &|_| {}) {
            Ok(told) => told,
            Err(e) => {
                report.wrong.push(format!("after recovery: {e}"));
                return Ok(());
            }
        };
        report.acknowledged = told.acknowledged + told.rounds();
        (report.handles, report.objects) = (told.handles, told.objects + told.rounds());
        let alone: u64 = told.met.iter().map(|m| m.second_alone).sum();
        if alone > 0 {
            report.under_way.push(format!("{alone} pairs of which only the second was answered"));
        }
        report.wrong.extend(wrong(&told));
        let mut disk = found::on_disk(&self.rig.export())?;
        disk.remove(PROBE.as_bytes());
        report.wrong.extend(disk.keys().take(5).map(|p| format!("{}: appeared", p.escape_ascii())));
        Ok(())
    }
}

fn wrong(told: &Report) -> Vec<String> {
    let rows = told.rows.iter().filter(|row| row.lost > 0).flat_map(|row| &row.examples);
    let met = told.met.iter().flat_map(|met| &met.examples);
    let others = [&told.strange, &told.stale, &told.renumbered].map(|found| &found.examples);
    let all: Vec<String> =
        rows.chain(met).chain(others.into_iter().flatten()).take(WRONG_SHOWN_MAX).cloned().collect();
    if all.is_empty() && told.has_losses() { vec!["losses without an example".to_owned()] } else { all }
}

/// Mistakes of one cut that are described.
const WRONG_SHOWN_MAX: usize = 8;
