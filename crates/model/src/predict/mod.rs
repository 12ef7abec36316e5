//! How long `tar -x` takes, now and after changes.
//!
//! ```text
//! time  =  waits x round trip  +  calls x (server + think)  +  files x their own think  +  synchronous calls x persistence  +  bytes / bandwidth
//! ```
//!
//! This holds for a client that does one thing at a time. N streams do N things at once, each with its share of the
//! files. They wait for each other when the server makes changes durable: a call that arrives during a flush must
//! wait for the next flush.
//!
//! | file | subject |
//! |---|---|
//! | `job` | what is extracted, and which calls a client sends for it |
//! | `change` | the changes that can be predicted |
//! | `earned` | how far predictions were off when they were tested: the error bar |

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

/// The largest value of a term, in seconds: an hour.
const TERM_MAX_S: f64 = 3600.0;

/// Why one change cannot be predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unknown {
    /// The number of created files is unknown.
    #[error("it is not known how many files were made")]
    Files,
    /// Only NFSv4 has delegations that would save anything.
    #[error("delegations need NFSv4, and files that are made")]
    Delegations,
}

/// How long something takes, and what this time consists of.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outlook {
    pub seconds: f64,
    /// Error bar in seconds: nine of ten tested cases were within. `None`: no case of this kind was tested.
    pub within_s: Option<(f64, f64)>,
    pub shares: Shares,
    pub calls: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    #[serde(flatten)]
    pub change: Change,
    pub name: String,
    /// The prediction with this change.
    #[serde(flatten)]
    pub outlook: Option<Outlook>,
    /// Why there is no prediction.
    pub unknown: Option<Unknown>,
}

/// A complete prediction: everything that a table or a chart needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    pub now: Outlook,
    /// How long it really took, if known, in seconds.
    pub measured_s: Option<f64>,
    /// Each change by itself, in the given order.
    pub each: Vec<Outcome>,
    /// All predictable changes at once. Of several of a kind, the last one counts. `None`: fewer than two.
    pub together: Option<Outlook>,
}

/// How long `job` takes with these terms, now and with each of `changes`.
/// Errors: Impossible values of terms, job or changes.
pub fn predict(terms: &Terms, job: &Job, changes: &[Change]) -> Result<Prediction, Refused> {
    predict_with(terms, job, changes, Earned::stored())
}

/// Like [`predict()`], with other error bars.
/// Errors: As [`predict()`].
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
    // If the equation is wrong for the observed work already, a prediction cannot be better.
    let seen = job.measured_s.map_or(0.0, |measured| (plan.shares().total() - measured).abs() / measured);
    let outlook = |plan: &Plan, kind| {
        let shares = plan.shares();
        let seconds = shares.total();
        let within_s = earned.within(kind).map(|part| {
            // The errors of the tests and the error here are independent.
            let part = (part * margin(earned.tried(kind))).hypot(seen);
            let (low, high) = (seconds / (1.0 + part), seconds / (1.0 - part.min(PART_MAX)));
            // The server may not have more processors for more streams.
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
    // A kind that was never tested by itself was not tested together with others, either.
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

/// With few cases, the largest error says little about nine of ten. It is multiplied by this.
fn margin(cases: usize) -> f64 {
    1.0 + FEW_CASES / (cases as f64).max(1.0)
}

/// With this many cases the margin is two.
const FEW_CASES: f64 = 3.0;

/// The most that other streams may slow down the server's work, as a factor minus one.
const STREAMS_WAIT_MAX: f64 = 7.0;

/// An error bar never exceeds a factor of ten.
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
    let rates = [terms.upload_bytes_per_s, terms.download_bytes_per_s];
    if rates.into_iter().flatten().any(|b| !b.is_finite() || b <= 0.0) {
        return Err(Refused::Nonsense("a bandwidth of nothing"));
    }
    Ok(())
}

/// The work, as the equation sees it.
#[derive(Debug, Clone)]
struct Plan {
    terms: Terms,
    calls: f64,
    waits: f64,
    synchronous: f64,
    files: f64,
    bytes: f64,
    bytes_down: f64,
    call_bytes: f64,
    /// The server's work for them, counted in calls.
    worked: f64,
    /// Waits with nothing in parallel.
    alone: f64,
    streams: f64,
    /// The number of streams when the terms were measured. Their waits for each other are already part of
    /// `persistence`.
    seen: f64,
    /// The bandwidth when the terms were measured. The time for the bytes of calls without data is already part of
    /// the terms.
    seen_bytes_per_s: Option<f64>,
    /// The number of independent chains of calls.
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
            bytes_down: job.bytes_down as f64,
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
            // Nobody would buy a slower device than the present one.
            Change::LogDevice { persistence_s } => {
                self.terms.persistence_s = self.terms.persistence_s.min(persistence_s);
            }
            Change::RoundTrip { round_trip_s } => self.terms.round_trip_s = round_trip_s,
            Change::Link { bytes_per_s } => {
                // A bandwidth that was never reached bounds nothing, unless the new link is that narrow. Then it is
                // the way of most bytes that it narrows.
                let Terms { upload_bytes_per_s: up, download_bytes_per_s: down, .. } = &mut self.terms;
                let known = (up.is_some() && self.bytes > 0.0, down.is_some() && self.bytes_down > 0.0);
                let (is_up, is_down) = match known {
                    (false, false) => (self.bytes >= self.bytes_down, self.bytes < self.bytes_down),
                    known => known,
                };
                *up = if is_up { Some(bytes_per_s) } else { *up };
                *down = if is_down { Some(bytes_per_s) } else { *down };
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
                // Large files are sent as before: WRITEs together, then a COMMIT.
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
                // Most of the cost of a call does not depend on its content. Each object in it costs as much again.
                self.worked = compounds + members as f64 + 3.0 * large + rest;
                self.parts = compounds + large + rest;
                self.compounds = true;
            }
        }
        Ok(())
    }

    /// The clients' own time. Each stream does its share, unless the streams are COMPOUNDs of one client.
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
            // What a stream does between two synchronous calls.
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
            // On the previous link they were part of round trip and server time.
            let mut less = -messages / streams;
            for part in [&mut shares.server, &mut shares.rtt] {
                let from_here = less.min(*part);
                *part -= from_here;
                less -= from_here;
            }
        }
        let up = t.upload_bytes_per_s.map_or(0.0, |b| self.bytes / b);
        let down = t.download_bytes_per_s.map_or(0.0, |b| self.bytes_down / b);
        let data = up + down + messages.max(0.0);
        shares.bandwidth = shared(data, shares.total(), streams, self.seen);
        shares
    }

    /// The time that the bytes of a call without data, and of its reply, take on a link.
    fn message_s(&self, bytes_per_s: Option<f64>) -> f64 {
        bytes_per_s.map_or(0.0, |b| self.call_bytes / b)
    }
}

/// How long streams wait for bytes that take `data` on the link. Each of `streams` sends its share and does other
/// things for `between`. With `seen` streams the transfers did not overlap.
///
/// One stream's bytes cross the link while the others wait for something else, until the link is saturated. Bytes
/// that arrive while it is busy wait for half a message on average.
fn shared(data: f64, between: f64, streams: f64, seen: f64) -> f64 {
    if data <= 0.0 || streams <= seen {
        return data;
    }
    let own = data * seen / streams;
    let busy = ((streams - seen) * own / (between + own)).min(1.0);
    (own * (1.0 + busy / 2.0)).max(data - between)
}

/// How long a synchronous call waits until it is durable. A flush takes `persistence`, and each of `streams` does
/// other things for `between`.
///
/// A call that arrives during a flush waits for its end, half a flush on average, and then for the next flush, which
/// covers all calls that have arrived. The other streams' flushes determine how often that happens. If a flush takes
/// longer than `between`, every call arrives during a flush: then a call and what precedes it take two flushes,
/// regardless of `between`.
fn waited(persistence: f64, between: f64, streams: f64) -> f64 {
    if streams <= 1.0 || persistence <= 0.0 {
        return persistence;
    }
    let busy = ((streams - 1.0) * persistence / (between + persistence)).min(1.0);
    (persistence * (1.0 + busy / 2.0)).max(2.0 * persistence - between)
}

#[cfg(test)]
mod tests;
