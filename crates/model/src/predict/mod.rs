//! How long `tar -x` takes, now and after changes.
//!
//! ```text
//! time  =  waits x round trip  +  calls x (server + think)  +  files x their own think  +  synchronous calls x persistence  +  bytes / bandwidth
//! ```
//!
//! for a client that does one thing at a time. N streams do N of them at once, each with its share of the files, and wait for each
//! other where the server makes things stable: what comes while a flush is under way has to wait for the next one.
//!
//! | file | subject |
//! |---|---|
//! | `job` | what is extracted, and what a client sends for it |
//! | `change` | what can be changed |
//! | `earned` | how far predictions were off when they were tried: the error bar |

mod change;
mod earned;
mod job;
mod refused;

pub use change::{Change, Kind, Time};
pub use earned::{Case, Earned};
pub use job::{Calls, Job, Looks, Manner, Tree, Version, WRITE_BYTES};
pub use refused::Refused;

use crate::shares::Shares;
use crate::terms::Terms;
use change::{
    COMPOUND_SYNCHRONOUS, FILE_IN_TURN_S, FILE_WORK_S, OBJECT_CALLS_MAX, OBJECT_SYNCHRONOUS_MAX,
    SESSION_SYNCHRONOUS, SESSION_WAITS, SESSION_WAITS_ELSEWHERE,
};
use serde::{Deserialize, Serialize};

/// The longest time that a term may be, in seconds: an hour.
const TERM_MAX_S: f64 = 3600.0;

/// Why one change cannot be predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unknown {
    /// How many files were made is not known.
    #[error("it is not known how many files were made")]
    Files,
    /// Delegations that would save anything are of NFSv4.
    #[error("delegations need NFSv4, and files that are made")]
    Delegations,
}

/// How long something takes, and of what.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outlook {
    /// In seconds.
    pub seconds: f64,
    /// It is within these bounds in nine of ten cases that were tried, in seconds; `None`: nothing of the kind was tried.
    pub within_s: Option<(f64, f64)>,
    /// What it is made of.
    pub shares: Shares,
    /// Calls.
    pub calls: u64,
}

/// What a change does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The change.
    #[serde(flatten)]
    pub change: Change,
    /// In words.
    pub name: String,
    /// With it.
    #[serde(flatten)]
    pub outlook: Option<Outlook>,
    /// Why not.
    pub unknown: Option<Unknown>,
}

/// What was predicted: all that a table or a chart needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// As it is.
    pub now: Outlook,
    /// What it took really, where that is known, in seconds.
    pub measured_s: Option<f64>,
    /// Each change by itself, in the order asked for.
    pub each: Vec<Outcome>,
    /// All that can be predicted at once; of several of a kind the last one. `None`: fewer than two.
    pub together: Option<Outlook>,
}

/// How long `job` takes on a way to a server with these terms, now and under each of `changes`.
///
/// # Errors
/// Terms, a job or a change that cannot be.
pub fn predict(terms: &Terms, job: &Job, changes: &[Change]) -> Result<Prediction, Refused> {
    predict_with(terms, job, changes, Earned::stored())
}

/// As [`predict()`], with other error bars.
///
/// # Errors
/// As [`predict()`].
pub fn predict_with(
    terms: &Terms,
    job: &Job,
    changes: &[Change],
    earned: &Earned,
) -> Result<Prediction, Refused> {
    check(terms)?;
    if job.calls.all == 0 {
        return Err(Refused::Nothing);
    }
    changes.iter().try_for_each(Change::check)?;
    let plan = Plan::new(terms, job);
    // Where the equation is off already for what was seen, no change is known better than that.
    let seen = job.measured_s.map_or(0.0, |measured| (plan.shares().total() - measured).abs() / measured);
    let outlook = |plan: &Plan, kind| {
        let shares = plan.shares();
        let seconds = shares.total();
        let within_s = earned.within(kind).map(|part| {
            // What was off before and what is off here have nothing to do with each other.
            let part = (part * margin(earned.tried(kind))).hypot(seen);
            let (low, high) = (seconds / (1.0 + part), seconds / (1.0 - part.min(PART_MAX)));
            // More streams may find no more processors at the server.
            (low, high + shares.server * (plan.streams / plan.seen - 1.0).clamp(0.0, STREAMS_WAIT_MAX))
        });
        Outlook { seconds, within_s, shares, calls: plan.calls.ceil() as u64 }
    };
    let (mut together, mut tried) = (plan.clone(), plan.clone());
    let mut possible = 0;
    let mut each = Vec::with_capacity(changes.len());
    for change in changes {
        let mut plan = plan.clone();
        let unknown = plan.change(change, job).err();
        if unknown.is_none() {
            together.change(change, job).ok();
            possible += 1;
            if earned.within(change.kind()).is_some() {
                tried.change(change, job).ok();
            }
        }
        let outlook = unknown.is_none().then(|| outlook(&plan, change.kind()));
        each.push(Outcome { change: *change, name: change.to_string(), outlook, unknown });
    }
    // What was never tried by itself was not tried with others either.
    let all = |together: &Plan| match outlook(together, Kind::Together) {
        all if tried.shares() == all.shares => all,
        all => Outlook { within_s: None, ..all },
    };
    Ok(Prediction {
        now: outlook(&plan, Kind::Now),
        measured_s: job.measured_s,
        each,
        together: (possible > 1).then(|| all(&together)),
    })
}

/// Of few cases the worst says little of what nine of ten will be: it is taken for so many times as much.
fn margin(cases: usize) -> f64 {
    1.0 + FEW_CASES / (cases as f64).max(1.0)
}

/// With so many cases the margin is two.
const FEW_CASES: f64 = 3.0;

/// The server's work is never taken to be so many times as long because of other streams.
const STREAMS_WAIT_MAX: f64 = 7.0;

/// An error bar never says that something takes more than ten times as long.
const PART_MAX: f64 = 0.9;

fn check(terms: &Terms) -> Result<(), Refused> {
    let time = |s: f64| s.is_finite() && (0.0..=TERM_MAX_S).contains(&s);
    if !time(terms.round_trip_s) || terms.round_trip_s == 0.0 {
        return Err(Refused::Nonsense("a round trip that takes no time, or more than an hour"));
    }
    let others = [terms.server_s, terms.persistence_s, terms.think_s, terms.file_think_s];
    if !others.into_iter().all(time) {
        return Err(Refused::Nonsense("a term below zero or above an hour"));
    }
    if terms.upload_bytes_per_s.is_some_and(|b| !b.is_finite() || b <= 0.0) {
        return Err(Refused::Nonsense("a bandwidth of nothing"));
    }
    Ok(())
}

/// What is done, as far as the equation goes.
#[derive(Debug, Clone)]
struct Plan {
    terms: Terms,
    calls: f64,
    waits: f64,
    synchronous: f64,
    files: f64,
    bytes: f64,
    call_bytes: f64,
    /// What the server has to do for them, in calls.
    worked: f64,
    /// Waits that nothing else goes on beside.
    alone: f64,
    streams: f64,
    /// Those under which the terms were seen: what they wait for each other is in the persistence already.
    seen: f64,
    /// The bandwidth under which they were seen: what a call without data needs for its bytes is in them already.
    seen_bytes_per_s: Option<f64>,
    /// The chains that can go on beside each other.
    parts: f64,
    compounds: bool,
}

impl Plan {
    fn new(terms: &Terms, job: &Job) -> Plan {
        Plan {
            terms: *terms,
            calls: job.calls.all as f64,
            waits: job.calls.waits as f64,
            synchronous: job.calls.synchronous as f64,
            files: job.files as f64,
            bytes: job.bytes as f64,
            call_bytes: job.call_bytes as f64,
            worked: job.calls.all as f64,
            alone: 0.0,
            streams: job.in_flight.max(1.0),
            seen: job.in_flight.max(1.0),
            seen_bytes_per_s: terms.upload_bytes_per_s,
            parts: if job.files > 0 { job.files as f64 } else { f64::INFINITY },
            compounds: false,
        }
    }

    fn change(&mut self, change: &Change, job: &Job) -> Result<(), Unknown> {
        match *change {
            // A device that is slower than what is there would not be bought.
            Change::LogDevice { persistence_s } => {
                self.terms.persistence_s = self.terms.persistence_s.min(persistence_s);
            }
            Change::RoundTrip { round_trip_s } => self.terms.round_trip_s = round_trip_s,
            Change::Link { bytes_per_s } => {
                // What was never reached bounds nothing, until a link is as narrow.
                self.terms.upload_bytes_per_s = Some(bytes_per_s);
            }
            Change::Server { times } => self.terms.server_s /= times,
            Change::Streams { streams } => self.streams = self.streams.max(streams as f64),
            Change::Delegations => {
                let saved = job.delegations_save.ok_or(Unknown::Delegations)?;
                // In a COMPOUND with the rest of their file they cost no call.
                if !self.compounds {
                    self.calls -= saved.all as f64;
                    self.waits -= saved.waits as f64;
                    self.worked -= saved.all as f64;
                    self.synchronous -= saved.synchronous as f64;
                }
            }
            Change::Compound { files, at_once } => {
                if job.files == 0 {
                    return Err(Unknown::Files);
                }
                let small = job.files.saturating_sub(job.large);
                let members = small.saturating_add(job.others);
                let compounds = members.div_ceil(files) as f64;
                // Large files as before: WRITEs together, and a COMMIT.
                let large = job.large as f64;
                let objects = job.files.saturating_add(job.others);
                let beyond = |n: u64, each: u64| n.saturating_sub(objects.saturating_mul(each)) as f64;
                let rest = beyond(job.calls.waits, OBJECT_CALLS_MAX);
                let rest_synchronous = beyond(job.calls.synchronous, OBJECT_SYNCHRONOUS_MAX);
                self.waits = compounds + 3.0 * large + rest;
                self.alone = if at_once { SESSION_WAITS } else { SESSION_WAITS_ELSEWHERE } as f64;
                self.calls = self.waits + self.alone;
                let each = small.saturating_mul(COMPOUND_SYNCHRONOUS).saturating_add(job.others) as f64;
                let stable = if at_once { compounds } else { each };
                self.synchronous = stable + 2.0 * large + SESSION_SYNCHRONOUS as f64 + rest_synchronous;
                // What a call costs comes with any call for the most part, whatever is in it: an object in it costs another one.
                self.worked = compounds + members as f64 + 3.0 * large + rest;
                self.parts = compounds + large + rest;
                self.compounds = true;
            }
        }
        Ok(())
    }

    /// What clients do by themselves: each stream its share, but for streams that are one client's COMPOUNDs.
    fn client(&self, streams: f64) -> f64 {
        let all = self.calls * self.terms.think_s + self.files * self.terms.file_think_s;
        if self.compounds || streams <= self.seen { all } else { all * self.seen / streams }
    }

    fn shares(&self) -> Shares {
        let t = &self.terms;
        let streams = self.streams.min(self.parts).max(1.0);
        let rtt = self.waits * t.round_trip_s / streams;
        let in_turn = if self.compounds && streams <= 1.0 { FILE_IN_TURN_S } else { 0.0 };
        let server = (self.worked * t.server_s / streams).max(self.files * (FILE_WORK_S + in_turn));
        let client = self.client(streams);
        let mut persistence = 0.0;
        if self.synchronous > 0.0 && t.persistence_s > 0.0 {
            // What a stream does between two of them.
            let between = (rtt + server + client) * streams / self.synchronous;
            let waits = |streams| waited(t.persistence_s, between, streams);
            let more = if streams > self.seen { waits(streams) / waits(self.seen) } else { 1.0 };
            persistence = self.synchronous * t.persistence_s * more / streams;
        }
        let mut shares = Shares {
            rtt: rtt + self.alone * t.round_trip_s,
            persistence,
            server,
            bandwidth: 0.0,
            client,
            loss: 0.0,
        };
        let messages =
            self.worked * (self.message_s(t.upload_bytes_per_s) - self.message_s(self.seen_bytes_per_s));
        if messages < 0.0 {
            // On the link as it was they made round trips and the server's part longer.
            let mut less = -messages / streams;
            for part in [&mut shares.server, &mut shares.rtt] {
                let from_here = less.min(*part);
                *part -= from_here;
                less -= from_here;
            }
        }
        let data = t.upload_bytes_per_s.map_or(0.0, |b| self.bytes / b) + messages.max(0.0);
        shares.bandwidth = shared(data, shares.total(), streams, self.seen);
        shares
    }

    /// What the bytes of a call without data, and of its answer, take on a link.
    fn message_s(&self, bytes_per_s: Option<f64>) -> f64 {
        bytes_per_s.map_or(0.0, |b| self.call_bytes / b)
    }
}

/// How long bytes are waited for that take `data` on the link, where each of `streams` has its share of them and does other things for
/// `between`. Under `seen` streams they were waited for one after another.
///
/// One stream's bytes go while the others wait for something else, until the link has no time left. Those that come while it is busy
/// wait for half a message on average.
fn shared(data: f64, between: f64, streams: f64, seen: f64) -> f64 {
    if data <= 0.0 || streams <= seen {
        return data;
    }
    let own = data * seen / streams;
    let busy = ((streams - seen) * own / (between + own)).min(1.0);
    (own * (1.0 + busy / 2.0)).max(data - between)
}

/// How long a synchronous call waits until it is stable, where a flush takes `persistence` and each of `streams` does other things for
/// `between`.
///
/// What comes while a flush is under way waits for its end, half of it on average, and then for the next one, together with all
/// that came. How often that is, the other streams' flushes say. Where flushes are longer than what is between, everybody comes back
/// while one is under way: a call and what is before it take two flushes, whatever is before it.
fn waited(persistence: f64, between: f64, streams: f64) -> f64 {
    if streams <= 1.0 || persistence <= 0.0 {
        return persistence;
    }
    let busy = ((streams - 1.0) * persistence / (between + persistence)).min(1.0);
    (persistence * (1.0 + busy / 2.0)).max(2.0 * persistence - between)
}

#[cfg(test)]
mod tests;
