//! A whole run: step by step, within a time budget.

use crate::ask::{Answer, Ask, Calls, File, Operation};
use crate::burst::{Until, burst, is_later, one};
use crate::delegations::Delegations;
use crate::error::{Error, Result};
use crate::findings::{Measured, PerFile, Remark, RemarkKind};
use crate::limits::{
    BANDWIDTH_PART, BANDWIDTH_RISE, BURST_BYTES_MAX, BURST_FILE_BYTES, BURST_IN_FLIGHT, CALLS_MAX,
    CONCURRENCY_PART, CONNECTS, COUNT, IN_FLIGHT, LATER_PATIENCE, LONG, LONG_MAX, PATIENCE, ROUNDS_PART,
    SECONDS, WRITE_BYTES,
};
use crate::offers;
use crate::place::{Place, connect, connect_time};
use crate::progress::Progress;
use crate::report::{Bandwidth, Found, Latency, Rate, Report, Tls};
use crate::search::{self, Operations};
use crate::times::Times;
use bytes::Bytes;
use landfast_model::Bound;
use landfast_verify::Target;
use landfast_verify::error::Error as ServerError;
use landfast_verify::url::Version;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The most rounds of single calls.
    pub count: u64,
    pub time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { count: COUNT, time: Duration::from_secs_f64(SECONDS) }
    }
}

/// Measures the server of a URL. Fails if nothing can be measured, or after a signal. Even then the probe's directory
/// has been removed, or its name has been reported.
pub fn run(target: &Target, options: &Options, stop: &AtomicBool, tell: &dyn Progress) -> Result<Report> {
    let started = Instant::now();
    tell.doing("what the server offers");
    let versions = offers::versions(target)?;
    let mut target = target.clone();
    if !target.version_given {
        target.version = versions.last().copied().unwrap_or(target.version);
    } else if !versions.contains(&target.version) {
        return Err(Error::NotOffered {
            server: format!("{}:{}", target.host, target.port),
            version: target.version.to_string(),
            offered: versions.iter().map(Version::to_string).collect::<Vec<_>>().join(", "),
        });
    }
    let tls = Tls { offered: offers::tls(&target, target.version)? };
    let mut calls = connect(&target)?;
    let (place, left) = Place::make(&mut *calls, &target, stop, tell)?;
    for url in left {
        tell.notice(&format!(
            "{url} is there: of another probe that runs now, or left by one that was killed; then remove it with landfast rm -r '{url}'"
        ));
    }
    let mut run = Run {
        calls: &mut *calls,
        target: &target,
        options,
        stop,
        tell,
        place: &place,
        remarks: Vec::new(),
        later: 0,
    };
    let found = run.measure();
    let (remarks, later) = (std::mem::take(&mut run.remarks), run.later);
    tell.doing("clearing up");
    // After a connection was lost, replies may be missing on the old one.
    let usable = !matches!(&found, Err(Error::While { why, .. } | Error::Server(why)) if why.is_gone());
    if let Err(e) = place.remove(calls, usable, &target) {
        let url = &place.url;
        tell.notice(&format!("{url} could not be removed ({e}); remove it with landfast rm -r '{url}'"));
    }
    let parts = found?;
    Ok(parts.report(&target, &versions, tls, remarks, later, started.elapsed()))
}

/// The results before they are combined.
struct Parts {
    measured: Measured,
    rates: Vec<Rate>,
    operations: Option<Operations>,
    delegations: Delegations,
    bandwidth: Option<Bandwidth>,
}

impl Parts {
    fn report(
        self,
        target: &Target,
        versions: &[Version],
        tls: Tls,
        mut remarks: Vec<Remark>,
        later: u64,
        took: Duration,
    ) -> Report {
        let file = if target.version == Version::V3 { PerFile::V3 } else { PerFile::V4 };
        let shares = self.measured.shares(&file);
        remarks.extend(self.measured.held_up());
        remarks.extend(self.measured.remarks());
        if later > 0 {
            let text = format!("{later} calls were answered \"later\", and count for nothing");
            remarks.push(Remark { kind: RemarkKind::Later, text });
        }
        let verdict = shares.verdict();
        let (bound, first, runner_up) =
            verdict.map_or((Bound::Rtt, Bound::Rtt, Bound::Server), |v| (v.bound, v.first, v.runner_up));
        Report {
            url: target.text.clone(),
            version: target.version.to_string(),
            versions: versions.iter().map(Version::to_string).collect(),
            seconds: took.as_secs_f64(),
            terms: self.measured.terms(&file),
            verdict: Found { bound, first, runner_up, shares, file, device: self.measured.device(), remarks },
            connect: self.measured.connect,
            latencies: self
                .measured
                .latencies
                .iter()
                .map(|(operation, times)| Latency { operation: *operation, times: *times })
                .collect(),
            concurrency: self.rates,
            operations_per_compound: self.operations,
            delegations: self.delegations,
            tls,
            bandwidth: self.bandwidth,
        }
    }
}

struct Run<'a> {
    calls: &'a mut dyn Calls,
    target: &'a Target,
    options: &'a Options,
    stop: &'a AtomicBool,
    tell: &'a dyn Progress,
    place: &'a Place,
    remarks: Vec<Remark>,
    later: u64,
}

fn while_doing(doing: &str) -> impl Fn(ServerError) -> Error + '_ {
    move |why| Error::While { doing: doing.to_owned(), why }
}

impl Run<'_> {
    fn measure(&mut self) -> Result<Parts> {
        let held = self.hold()?;
        let mut measured = self.rounds()?;
        let rates = self.concurrency()?;
        let operations = self.operations()?;
        let delegations = self.delegations()?;
        let bandwidth = self.bandwidth()?;
        measured.upload_bytes_per_s = bandwidth.filter(|b| !b.at_least).map(|b| b.upload_bytes_per_s);
        self.drop_all(held)?;
        Ok(Parts { measured, rates, operations, delegations, bandwidth })
    }

    fn go_on(&self) -> Result<()> {
        if self.stop.load(Ordering::Acquire) { Err(Error::Interrupted) } else { Ok(()) }
    }

    fn until(&self, time: Duration) -> Until<'_> {
        Until { time: Instant::now() + time, stop: self.stop }
    }

    fn one(&mut self, what: &str, ask: &Ask) -> Result<(Answer, Duration)> {
        let (answer, took, later) = one(self.calls, self.stop, ask).map_err(|why| match is_later(&why) {
            true if self.stop.load(Ordering::Acquire) => Error::Interrupted,
            _ => while_doing(what)(why),
        })?;
        self.later += later;
        Ok((answer, took))
    }

    fn create(&mut self, name: &str) -> Result<(File, Duration)> {
        match self.one("CREATE", &Ask::Create(name.to_owned()))? {
            (Answer::Made(file), took) if file.confirm => {
                match self.one("OPEN_CONFIRM", &Ask::Confirm(file))? {
                    (Answer::Made(file), _) => Ok((file, took)),
                    _ => Err(no_file()),
                }
            }
            (Answer::Made(file), took) => Ok((file, took)),
            _ => Err(no_file()),
        }
    }

    /// Makes one call in each of the first lanes at the same time. Returns the successful replies.
    fn in_lanes(&mut self, what: &str, asks: Vec<Ask>) -> Result<Vec<Answer>> {
        let mut asks: Vec<Option<Ask>> = asks.into_iter().map(Some).collect();
        let mut answers = Vec::new();
        let until = Until { time: Instant::now() + LATER_PATIENCE, stop: self.stop };
        let mut next = |lane: usize| asks.get_mut(lane).and_then(Option::take);
        let lanes = self.calls.lanes();
        let done = burst(self.calls, lanes, until, &mut next, &mut |_, _, answer, _| answers.push(answer));
        self.later += done.map_err(while_doing(what))?.later;
        self.go_on()?;
        Ok(answers)
    }

    /// Opens a file in each lane if a lane's first open costs an additional call.
    fn hold(&mut self) -> Result<Vec<File>> {
        if !self.calls.confirms() {
            return Ok(Vec::new());
        }
        let made = |answers: Vec<Answer>| -> Vec<File> {
            let files =
                answers.into_iter().filter_map(|a| if let Answer::Made(f) = a { Some(f) } else { None });
            files.collect()
        };
        let names = (0..self.calls.lanes()).map(|lane| Ask::Create(format!("held-{lane}"))).collect();
        let mut files = made(self.in_lanes("OPEN", names)?);
        files.sort_by_key(|f| f.lane);
        // Some servers do not ask for confirmation. A call goes in the lane of its position, and an owner's in its
        // own lane.
        if files.len() == self.calls.lanes() && files.iter().all(|f| f.confirm) {
            let confirms = files.into_iter().map(Ask::Confirm).collect();
            files = made(self.in_lanes("OPEN_CONFIRM", confirms)?);
        }
        Ok(files)
    }

    /// Closes the files in their lanes, and removes them.
    fn drop_all(&mut self, files: Vec<File>) -> Result<()> {
        let lanes = self.calls.lanes();
        // Only in version 4.0 does the lane matter.
        let own = self.calls.confirms();
        let mut queues: Vec<VecDeque<File>> = vec![VecDeque::new(); lanes];
        for (n, file) in files.into_iter().enumerate() {
            let lane = if own { file.lane } else { n % lanes };
            queues[lane].push_back(file);
        }
        let until = Until { time: Instant::now() + LATER_PATIENCE, stop: self.stop };
        let mut next = |lane: usize| queues.get_mut(lane).and_then(VecDeque::pop_front).map(Ask::Drop);
        let done = burst(self.calls, lanes, until, &mut next, &mut |_, _, _, _| {});
        self.later += done.map_err(while_doing("REMOVE"))?.later;
        self.go_on()
    }

    /// Makes each operation once per round, so that other work of the server affects all alike.
    fn rounds(&mut self) -> Result<Measured> {
        let mut times: BTreeMap<Operation, Times> = BTreeMap::new();
        let (mut connects, mut unstable_was_stable) = (Times::default(), true);
        let (mut longest, begun) = (Vec::new(), Instant::now());
        let data = Bytes::from(vec![0x5a; WRITE_BYTES]);
        let until = self.until(self.options.time.mul_f64(ROUNDS_PART)).time;
        // The first round is not counted, because caches are cold.
        for round in 0..=self.options.count {
            if round > 1 && Instant::now() >= until {
                break;
            }
            self.tell.doing(&format!("single calls, round {round} of at most {}", self.options.count));
            let mut add = |operation, took: Duration| {
                if round > 0 {
                    times.entry(operation).or_default().add(took);
                    if took >= LONG && longest.len() < LONG_MAX {
                        longest.push((begun.elapsed().as_secs_f64(), took.as_secs_f64()));
                    }
                }
            };
            if round < CONNECTS
                && let Some(took) = connect_time(self.target, PATIENCE)
            {
                connects.add(took);
            }
            for (operation, ask) in [
                (Operation::Null, Ask::Null),
                (Operation::Getattr, Ask::Getattr),
                (Operation::Access, Ask::Access),
            ] {
                self.go_on()?;
                add(operation, self.one(operation.name(), &ask)?.1);
            }
            let name = format!("round-{round}");
            let (file, took) = self.create(&name)?;
            add(Operation::Create, took);
            let write = |offset: usize, stable| Ask::Write {
                file: file.clone(),
                offset: offset as u64,
                data: data.clone(),
                stable,
            };
            let mut asks = vec![
                (Operation::WriteUnstable, write(0, false)),
                (Operation::Commit, Ask::Commit(file.clone())),
                (Operation::WriteFileSync, write(WRITE_BYTES, true)),
                (Operation::Setattr, Ask::Setattr(file.clone(), 0o600)),
            ];
            if self.calls.has_opens() {
                asks.push((Operation::Close, Ask::Close(file.clone())));
            }
            asks.push((Operation::Remove, Ask::Remove(name)));
            for (operation, ask) in asks {
                self.go_on()?;
                let (answer, took) = self.one(operation.name(), &ask)?;
                if let Answer::Written { count, stable } = answer {
                    self.check_written(operation, count, stable)?;
                    unstable_was_stable &= stable;
                }
                add(operation, took);
            }
        }
        let latencies = times.into_iter().filter_map(|(op, t)| Some((op, t.distribution()?))).collect();
        Ok(Measured {
            connect: connects.distribution(),
            latencies,
            unstable_was_stable,
            upload_bytes_per_s: None,
            longest,
        })
    }

    /// A short WRITE would be measured as a longer one, so it is an error.
    fn check_written(&self, operation: Operation, count: u32, stable: bool) -> Result<()> {
        let said = match (operation, stable) {
            _ if (count as usize) < WRITE_BYTES => format!("the server took {count} of {WRITE_BYTES} bytes"),
            (Operation::WriteFileSync, false) => {
                "the server answered a WRITE FILE_SYNC as not stable".to_owned()
            }
            _ => return Ok(()),
        };
        Err(while_doing(operation.name())(ServerError::Nonsense(said)))
    }

    fn concurrency(&mut self) -> Result<Vec<Rate>> {
        let levels: Vec<usize> = IN_FLIGHT.into_iter().filter(|n| *n <= self.calls.lanes()).collect();
        if let (Some(most), Some(all)) = (levels.last(), IN_FLIGHT.last())
            && most < all
        {
            let text = format!("the server takes only {} calls at a time on a session", self.calls.lanes());
            self.remarks.push(Remark { kind: RemarkKind::NotMeasured, text });
        }
        let each = self.options.time.mul_f64(CONCURRENCY_PART / (2 * IN_FLIGHT.len()) as f64);
        let mut rates = Vec::new();
        for in_flight in levels {
            self.tell.doing(&format!("{in_flight} calls under way"));
            for operation in [Operation::Getattr, Operation::Create] {
                let (mut asked, mut calls, mut files) = (0, 0, Vec::new());
                let until = Until { time: Instant::now() + each, stop: self.stop };
                let mut next = |_| {
                    asked += 1;
                    (asked <= CALLS_MAX).then(|| match operation {
                        Operation::Getattr => Ask::Getattr,
                        _ => Ask::Create(format!("with-{in_flight}-{asked}")),
                    })
                };
                let mut done = |_, _: &Ask, answer, _| {
                    calls += 1;
                    if let Answer::Made(file) = answer {
                        files.push(file);
                    }
                };
                let what = format!("{} with {in_flight} calls under way", operation.name());
                let done = burst(self.calls, in_flight, until, &mut next, &mut done);
                let done = done.map_err(while_doing(&what))?;
                self.later += done.later;
                self.go_on()?;
                let calls_per_s = calls as f64 / done.took.as_secs_f64().max(1e-9);
                rates.push(Rate { operation, in_flight, calls, calls_per_s });
                self.drop_all(files)?;
            }
        }
        Ok(rates)
    }

    fn operations(&mut self) -> Result<Option<Operations>> {
        let Version::V4(minor) = self.target.version else { return Ok(None) };
        self.tell.doing("how many operations a COMPOUND may have");
        match search::operations(self.target, minor, self.stop) {
            Ok(found) => {
                self.go_on()?;
                Ok(Some(found))
            }
            Err(e) => {
                self.go_on()?;
                let text = format!("how many operations a COMPOUND may have was not found out: {e}");
                self.remarks.push(Remark { kind: RemarkKind::NotMeasured, text });
                Ok(None)
            }
        }
    }

    fn delegations(&mut self) -> Result<Delegations> {
        self.tell.doing("delegations");
        let names = ["to-read", "to-write"];
        for name in names {
            self.go_on()?;
            let (file, _) = self.create(name)?;
            if self.calls.has_opens() {
                self.one("CLOSE", &Ask::Close(file))?;
            }
        }
        let found = offers::delegations(self.target, &self.place.fh, names)?;
        for name in names {
            self.go_on()?;
            self.one("REMOVE", &Ask::Remove(name.to_owned()))?;
        }
        Ok(found)
    }

    /// Writes with more and more large WRITEs in flight, until the time or the bytes are used up. Returns the highest
    /// rate.
    fn bandwidth(&mut self) -> Result<Option<Bandwidth>> {
        self.tell.doing("bytes a second");
        let (file, _) = self.create("large")?;
        let data = Bytes::from(vec![0xa5; self.calls.write_bytes_max()]);
        let budget = self.options.time.mul_f64(BANDWIDTH_PART);
        let end = Instant::now() + budget;
        let most = BURST_IN_FLIGHT.min(self.calls.lanes());
        let (mut in_flight, mut sent, mut rates) = (1, 0, Vec::new());
        loop {
            let (mut left, mut written) = (2 * in_flight as u64, 0u64);
            let mut next = |_| {
                left = left.checked_sub(1)?;
                let offset = sent % BURST_FILE_BYTES;
                sent += data.len() as u64;
                Some(Ask::Write { file: file.clone(), offset, data: data.clone(), stable: false })
            };
            let mut done = |_, _: &Ask, answer, _| {
                if let Answer::Written { count, .. } = answer {
                    written += u64::from(count);
                }
            };
            let until = Until { time: Instant::now() + LATER_PATIENCE, stop: self.stop };
            let took = match burst(self.calls, in_flight, until, &mut next, &mut done) {
                Ok(done) => {
                    self.later += done.later;
                    done.took
                }
                Err(why) if why.is_gone() => return Err(while_doing("WRITE")(why)),
                // No space, or a quota: what was measured is still valid.
                Err(why) => {
                    let text = format!("the burst of WRITEs ended early: {why}");
                    self.remarks.push(Remark { kind: RemarkKind::NotMeasured, text });
                    break;
                }
            };
            self.go_on()?;
            rates.push((in_flight, written as f64 / took.as_secs_f64().max(1e-9)));
            // The next batch takes at most about twice as long as this one.
            if Instant::now() + 2 * took > end || sent >= BURST_BYTES_MAX {
                break;
            }
            in_flight = (2 * in_flight).min(most);
        }
        self.drop_all(vec![file])?;
        let found = bandwidth_of(&rates, sent);
        if let Some(found) = found.filter(|found| found.at_least) {
            let text = format!(
                "the bandwidth was not reached: it is at least {:.1} MB a second, and with more WRITEs under way more came through each time",
                found.upload_bytes_per_s / 1e6
            );
            self.remarks.push(Remark { kind: RemarkKind::NotMeasured, text });
        }
        Ok(found)
    }
}

/// The highest of the rates in bytes a second, each with so many WRITEs in flight. The bandwidth bounds it only if
/// twice as many in flight are hardly faster. On a long way each reply is waited for, and TCP sends more and more.
fn bandwidth_of(rates: &[(usize, f64)], bytes: u64) -> Option<Bandwidth> {
    let &(in_flight, upload_bytes_per_s) = rates.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = rates.iter().map(|(in_flight, _)| *in_flight).max()?;
    let best = |wanted: &dyn Fn(usize) -> bool| {
        let rates = rates.iter().filter(|(in_flight, _)| wanted(*in_flight)).map(|(_, rate)| *rate);
        rates.max_by(f64::total_cmp)
    };
    let (with_half, with_most) = (best(&|n| 2 * n <= most), best(&|n| n == most));
    let is_reached = with_half.zip(with_most).is_some_and(|(half, most)| most <= BANDWIDTH_RISE * half);
    Some(Bandwidth { upload_bytes_per_s, bytes, in_flight, at_least: !is_reached })
}

fn no_file() -> Error {
    Error::Server(ServerError::Nonsense("a CREATE that made no file".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_rises_with_each_doubling_is_no_bandwidth() {
        let of = |rates: &[(usize, f64)]| {
            bandwidth_of(rates, 1).map(|b| (b.upload_bytes_per_s, b.in_flight, b.at_least))
        };
        // A link of 12.5 MB/s over 50 ms, and one over which the time was too short.
        let link =
            [(1, 1.3e6), (2, 2.6e6), (4, 5.2e6), (8, 10.1e6), (16, 12.4e6), (32, 12.5e6), (32, 12.4e6)];
        assert_eq!(of(&link), Some((12.5e6, 32, false)));
        assert_eq!(of(&link[..4]), Some((10.1e6, 8, true)));
        // TCP's slow start goes on with as many under way.
        assert_eq!(of(&[(16, 10e6), (32, 11e6), (32, 25e6)]), Some((25e6, 32, true)));
        // A server that is busy with one, and where more under way are slower.
        assert_eq!(of(&[(1, 5e6), (2, 5.1e6)]), Some((5.1e6, 2, false)));
        assert_eq!(of(&[(1, 5e6), (2, 4e6)]), Some((5e6, 1, false)));
        // Nothing to compare with: a session of one slot, or no time.
        assert_eq!(of(&[(1, 5e6), (1, 5e6)]), Some((5e6, 1, true)));
        assert_eq!(of(&[]), None);
    }
}
