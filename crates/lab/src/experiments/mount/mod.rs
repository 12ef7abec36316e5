//! Unmodified programs on `landfast mount`, over networks with several round trips and on disks with several flush latencies, beside
//! the same programs on a local filesystem of the same kind of disk, and `landfast untar`.
//!
//! A time ends when everything is stable: behind it is `landfast sync`, on the local side `syncfs`. What a work leaves is looked at on
//! the server's disk, not through the mount.

mod kit;
mod programs;
mod works;

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::{Context, Error, Result};
use crate::fuse_mount::FuseMount;
use crate::measure::ms;
use crate::net::Link;
use crate::rig::{Latency, Rig, RigOptions};
use crate::served::{Durability, ServeOptions, Served};
use kit::{Counts, Kit};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use works::Work;

/// Files, unless chosen otherwise.
const FILES: u64 = 128;

/// Round trips, and latencies of a flush, of both disks. Without a choice each is varied while the other is the shortest.
const ROUND_TRIPS_MS: [f64; 4] = [0.1, 1.0, 10.0, 50.0];
const FLUSHES_MS: [f64; 3] = [0.05, 1.0, 10.0];

/// Room for everything, so that no checkpoint is forced.
const LOG_BYTES: u64 = 256 << 20;

/// Bytes of the data disk for each file, over all works, and besides.
const DISK_BYTES_EACH: u64 = 64 << 10;
const DISK_BYTES: u64 = 1 << 30;

/// Round trips that `tar xf` waits for: for each file, and besides.
const TAR_WAITS_MAX: (f64, f64) = (1.25, 20.0);
/// With `close=local` RPCs and flushes of the log are for many files each, and no file is waited for.
const TAR_LOCAL_MAX: (f64, f64) = (0.1, 40.0);
/// The shortest of the longest round trips at which this is claimed, in milliseconds: there the machine's other work matters little.
pub(crate) const TAR_WAITS_FROM_MS: f64 = 50.0;
/// Flushes of the log that `tar xf` needs: for each file, and besides.
const TAR_FLUSHES_MAX: (f64, f64) = (1.1, 20.0);

/// What a round trip costs is said where the longest is so many times the shortest.
const TIMES_SHORTEST: f64 = 10.0;

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    let (works, notes) = works::chosen(&choices.only, programs::has)?;
    if works.is_empty() {
        return Err(Error::Unable(notes.join("; ")));
    }
    let counts = Counts::of(choices.files.unwrap_or(FILES));
    let settings = settings(&choices.round_trips_ms, &choices.flushes_ms);
    let mut found = crate::namespace::run_private(|| {
        // What no work needs is not made.
        let needed = |program: &str| works.iter().any(|work| work.needs.contains(&program));
        let kit = Kit::make(counts, |program| needed(program) && programs::has(program))?;
        let bytes = DISK_BYTES + DISK_BYTES_EACH * counts.files;
        let rig = Rig::new(&RigOptions { data_bytes: bytes, log_bytes: LOG_BYTES, ..RigOptions::default() })?;
        let options = choices.mount_options.clone();
        Bench { kit, rig, works, options, found: Findings::default(), wrong: 0 }.measure(&settings, progress)
    })??;
    found.notes.extend(notes);
    Ok(found)
}

/// Pairs of round trip and flush, in milliseconds, in the order of the flushes.
fn settings(round_trips: &[f64], flushes: &[f64]) -> Vec<(f64, f64)> {
    let all = |given: &[f64], usual: &[f64]| if given.is_empty() { usual.to_vec() } else { given.to_vec() };
    let chosen = !round_trips.is_empty() || !flushes.is_empty();
    let (round_trips, flushes) = (all(round_trips, &ROUND_TRIPS_MS), all(flushes, &FLUSHES_MS));
    let mut settings = Vec::new();
    for (i, flush) in flushes.iter().enumerate() {
        for (j, round_trip) in round_trips.iter().enumerate() {
            if chosen || i == 0 || j == 0 {
                settings.push((*round_trip, *flush));
            }
        }
    }
    settings
}

/// Whether a work is the one whose counts are claimed.
fn is_tar(work: &Work) -> bool {
    work.name == works::ALL[0].name
}

/// What a limit for each and besides is for so many.
fn most((each, besides): (f64, f64), objects: f64) -> f64 {
    each * objects + besides
}

/// What one work took on one side.
#[derive(Debug, Clone, Copy)]
struct Took {
    seconds: f64,
    rpcs: u64,
    /// Flushes of the log's disk, and of the data's.
    flushes: [u64; 2],
}

struct Bench {
    kit: Kit,
    rig: Rig,
    works: Vec<&'static Work>,
    /// Options of the mount.
    options: String,
    found: Findings,
    /// Works whose results were not what they should be.
    wrong: u64,
}

/// A mount at work: the parts go in this order.
struct Mounted {
    mount: FuseMount,
    link: Link,
    server: Served,
}

impl Bench {
    fn measure(mut self, settings: &[(f64, f64)], progress: Progress<'_>) -> Result<Findings> {
        let mut local: Vec<Took> = Vec::new();
        let mut last_flush = None;
        // Seconds of each work by round trip, at each flush latency.
        let mut by_trip: BTreeMap<&str, Vec<(f64, f64, f64)>> = BTreeMap::new();
        for (round_trip_ms, flush_ms) in settings {
            let flush = Duration::from_secs_f64(flush_ms / 1000.0);
            let latency = Latency { data_flush: flush, log_flush: flush };
            if last_flush.replace(flush_ms) != Some(flush_ms) {
                progress(&format!("flush {flush_ms} ms: local"));
                local = self.local(latency)?;
            }
            let before = format!("{round_trip_ms} ms, flush {flush_ms} ms");
            let untar = self.untar(latency, *round_trip_ms, progress, &before)?;
            let (rtt_ms, took) = self.mounted(latency, *round_trip_ms, progress, &before)?;
            for ((work, took), local) in self.works.clone().into_iter().zip(took).zip(&local) {
                by_trip.entry(work.name).or_default().push((*flush_ms, rtt_ms, took.seconds));
                self.row(&before, work, &took, local, (rtt_ms, untar));
            }
        }
        self.waits(&by_trip);
        let what = "works whose results are not what they should be";
        self.found.checks.push(Check::of_data(what, self.wrong as f64, 0.0));
        self.found.notes.push(
            "local programs read from memory what they have just written; the mount does so for files only while nobody else can have changed them"
                .to_owned(),
        );
        Ok(self.found)
    }

    fn row(
        &mut self,
        before: &str,
        work: &Work,
        took: &Took,
        local: &Took,
        (rtt_ms, untar): (f64, Option<Took>),
    ) {
        let objects = (work.objects)(&self.kit.counts) as f64;
        let each = |n: u64| n as f64 / objects;
        let mut row = Row::new(
            &format!("{before}: {}", work.name),
            [
                ("objects", objects),
                ("rtt_ms", rtt_ms),
                ("seconds", took.seconds),
                ("rpcs", took.rpcs as f64),
                ("rpcs_each", each(took.rpcs)),
                ("log_flushes_each", each(took.flushes[0])),
                ("data_flushes", took.flushes[1] as f64),
                ("local_seconds", local.seconds),
                ("local_flushes", local.flushes[1] as f64),
                ("times_local", took.seconds / local.seconds),
            ],
        );
        if let Some(untar) = untar.filter(|_| is_tar(work)) {
            row.values.extend([
                ("untar_seconds".into(), untar.seconds),
                ("untar_rpcs_each".into(), each(untar.rpcs)),
                ("untar_log_flushes_each".into(), each(untar.flushes[0])),
            ]);
        }
        self.found.lines.push(row);
        // Version 3 takes one for each step.
        if !self.is_v3() {
            let what = format!("{before}: {}: RPCs for {objects}", work.name);
            let most = if self.is_local() && is_tar(work) {
                most(TAR_LOCAL_MAX, objects)
            } else {
                work.rpcs_max(&self.kit.counts)
            };
            self.found.checks.push(Check::at_most(&what, took.rpcs as f64, most));
        }
        if is_tar(work) && !self.is_v3() {
            let what = format!("{before}: {}: flushes of the log for {objects} files", work.name);
            let limit = if self.is_local() { TAR_LOCAL_MAX } else { TAR_FLUSHES_MAX };
            self.found.checks.push(Check::at_most(&what, took.flushes[0] as f64, most(limit, objects)));
        }
    }

    /// What a longer network costs each work.
    fn waits(&mut self, by_trip: &BTreeMap<&str, Vec<(f64, f64, f64)>>) {
        for work in self.works.clone() {
            let Some(all) = by_trip.get(work.name) else { continue };
            let Some((flush_ms, ..)) = all.first() else { continue };
            let same = || all.iter().filter(|(f, ..)| f == flush_ms);
            let short = same().min_by(|a, b| a.1.total_cmp(&b.1));
            let long = same().max_by(|a, b| a.1.total_cmp(&b.1));
            let (Some(short), Some(long)) = (short, long) else { continue };
            if long.1 < short.1 * TIMES_SHORTEST {
                continue;
            }
            let objects = (work.objects)(&self.kit.counts) as f64;
            let waits = (long.2 - short.2) * 1000.0 / (long.1 - short.1);
            let what = format!("{}: round trips that are waited for, for {objects}", work.name);
            if is_tar(work) && !self.is_v3() && long.1.round() >= TAR_WAITS_FROM_MS {
                let limit = if self.is_local() { TAR_LOCAL_MAX } else { TAR_WAITS_MAX };
                self.found.checks.push(Check::at_most(&what, waits, most(limit, objects)));
            } else {
                self.found.notes.push(format!("{what}: {waits:.0}, {:.2} for each", waits / objects));
            }
        }
    }

    /// All works on a filesystem of this machine.
    fn local(&mut self, latency: Latency) -> Result<Vec<Took>> {
        self.rig.format()?;
        let dir = self.rig.export();
        self.rig.set_latency(latency)?;
        let mut all = Vec::new();
        for work in self.works.clone() {
            work.prepare(&self.kit, &dir)?;
            crate::mounts::syncfs(&dir)?;
            let (before, start) = (self.rig.stats()?, Instant::now());
            work.run(&self.kit, &dir)?;
            crate::mounts::syncfs(&dir)?;
            let seconds = start.elapsed().as_secs_f64();
            let since = self.rig.stats()?.since(&before);
            all.push(Took { seconds, rpcs: 0, flushes: [since.log.flushes, since.data.flushes] });
            self.look("local", work, &dir)?;
        }
        self.rig.set_latency(Latency::default())?;
        Ok(all)
    }

    /// Looks at what a work has left.
    fn look(&mut self, side: &str, work: &Work, real: &Path) -> Result<()> {
        if let Some(wrong) = work.wrong(&self.kit, real)? {
            self.wrong += 1;
            self.found.notes.push(format!("WRONG, {side}: {wrong}"));
        }
        Ok(())
    }

    fn serve(&mut self, latency: Latency, round_trip_ms: f64) -> Result<(Served, Link)> {
        self.rig.format()?;
        // The server tries at its start which way of flushing is quicker on this device.
        self.rig.set_latency(latency)?;
        let log = self.rig.log_device()?.to_owned();
        let options = ServeOptions::new(&self.rig.export(), Some(&log), Durability::Log);
        let server = Served::start(&ServeOptions { write_delegations: self.is_local(), ..options })?;
        let link = Link::start(server.addr(), Duration::from_secs_f64(round_trip_ms / 1000.0))?;
        Ok((server, link))
    }

    /// `landfast untar`, if `tar` is among the works.
    fn untar(
        &mut self,
        latency: Latency,
        round_trip_ms: f64,
        progress: Progress<'_>,
        before: &str,
    ) -> Result<Option<Took>> {
        if !self.works.iter().any(|work| work.name == works::ALL[0].name) {
            return Ok(None);
        }
        progress(&format!("{before}: landfast untar"));
        let (server, link) = self.serve(latency, round_trip_ms)?;
        let archive = self.kit.path().join("archive.tar");
        let stats = self.rig.stats()?;
        let taken = crate::measure::untar(link.addr(), &archive, std::process::Stdio::null())?;
        let since = self.rig.stats()?.since(&stats);
        crate::verify::compare(self.kit.archive()?, &self.rig.export())?.into_result()?;
        drop(link);
        self.rig.set_latency(Latency::default())?;
        server.stop()?;
        let flushes = [since.log.flushes, since.data.flushes];
        Ok(Some(Took { seconds: taken.seconds, rpcs: taken.rpcs, flushes }))
    }

    /// All works on a mount, with the round trip as it really is.
    fn mounted(
        &mut self,
        latency: Latency,
        round_trip_ms: f64,
        progress: Progress<'_>,
        before: &str,
    ) -> Result<(f64, Vec<Took>)> {
        let (server, link) = self.serve(latency, round_trip_ms)?;
        let real = self.rig.export().join("work");
        std::fs::create_dir(&real).context(|| format!("create {}", real.display()))?;
        let rtt_ms = ms(link.measure()?);
        let at = self.rig.scratch().join("mounted");
        let mut mounted = Mounted { mount: self.mount(&link, &at)?, link, server };
        let dir = at.join("work");
        let mut all = Vec::new();
        for work in self.works.clone() {
            progress(&format!("{before}: {}", work.name));
            if work.cold {
                mounted = self.again(mounted, &at)?;
            }
            work.prepare(&self.kit, &dir)?;
            mounted.mount.sync()?;
            let (rpcs, stats) = (mounted.mount.rpcs()?, self.rig.stats()?);
            let start = Instant::now();
            work.run(&self.kit, &dir)?;
            mounted.mount.sync()?;
            let seconds = start.elapsed().as_secs_f64();
            let since = self.rig.stats()?.since(&stats);
            let flushes = [since.log.flushes, since.data.flushes];
            all.push(Took { seconds, rpcs: mounted.mount.rpcs()? - rpcs, flushes });
            self.look(before, work, &real)?;
        }
        let Mounted { mount, link, server } = mounted;
        mount.stop()?;
        drop(link);
        self.rig.set_latency(Latency::default())?;
        server.stop()?;
        Ok((rtt_ms, all))
    }

    /// Whether programs do not wait for the server where nobody else is.
    fn is_local(&self) -> bool {
        self.options.split(',').any(|o| o == "close=local")
    }

    fn is_v3(&self) -> bool {
        self.options.split(',').any(|o| o == "vers=3")
    }

    fn mount(&self, link: &Link, at: &Path) -> Result<FuseMount> {
        // With version 3 an export is mounted by its own path.
        let path = if self.is_v3() { self.rig.export().display().to_string() } else { "/".to_owned() };
        FuseMount::start(&format!("nfs://{}{path}", link.addr()), at, &self.options)
    }

    /// Unmounts and mounts once more: nothing is in memory then.
    fn again(&self, mounted: Mounted, at: &Path) -> Result<Mounted> {
        let Mounted { mount, link, server } = mounted;
        mount.stop()?;
        Ok(Mounted { mount: self.mount(&link, at)?, link, server })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_choice_one_of_both_is_the_shortest() {
        assert_eq!(settings(&[], &[]).len(), ROUND_TRIPS_MS.len() + FLUSHES_MS.len() - 1);
        assert_eq!(settings(&[1.0], &[]), [(1.0, 0.05), (1.0, 1.0), (1.0, 10.0)]);
        assert_eq!(settings(&[1.0, 50.0], &[10.0]), [(1.0, 10.0), (50.0, 10.0)]);
    }
}
