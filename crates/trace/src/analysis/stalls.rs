//! Finds the few waits that are much longer than others of their kind, e.g. when a server answers nobody for a while,
//! or when a quota holds it up periodically. They say nothing about the cost of a call, so they are reported
//! separately. No I/O.

use super::book::Book;
use super::limits::LONGEST_MAX;
use super::longest::{LEAST_NS, Long};
use super::spread::Spread;
use crate::skim::facts::Class;
use landfast_model::rhythm::period_s;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A wait is a stall if it takes this many times the 75th percentile of its kind.
const ODD: f64 = 8.0;
/// Shorter rare waits may be a seek or two of a disk.
const SELDOM_NS: f64 = 50e6;
/// At most one call in this many may be a stall, or three in total.
const SELDOM: u64 = 50;
const SELDOM_MIN: u64 = 3;
/// Fewer calls do not show what is usual: of one kind, and in total.
const KIND_MIN: u64 = 8;
const ALL_MIN: u64 = 20;
/// COMMITs wait for whatever was written before, so a few of them need not resemble each other.
const COMMITS_MIN: u64 = 20;
/// Stalls are reported if they take this part of the time.
const WORTH: f64 = 0.05;
/// If this part of the stalled calls are of one operation that is rarer among the others, the operation is the cause.
const ONE_OPERATION: f64 = 0.8;
/// If this part of a wait passed without any reply, nobody was answered.
const NOBODY: f64 = 0.5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The server. With a capture of one end only, it may be the network.
    Server,
    /// The network: both ends have the call, and the server answered quickly.
    Network,
    /// The client sent nothing.
    Client,
}

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Place::Server => "server",
            Place::Network => "network",
            Place::Client => "client",
        }
    }
}

/// An exceptionally long wait or pause of a client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stall {
    pub place: Place,
    /// Start, in nanoseconds since 1970.
    pub from_ns: i64,
    pub to_ns: i64,
    /// Number of calls that waited.
    pub calls: u64,
    /// No other call of the client was answered meanwhile.
    pub nobody: bool,
}

impl Stall {
    pub fn length_s(&self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns).max(0) as f64 / 1e9
    }
}

/// Periodic stalls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rhythm {
    /// From one to the next, in seconds.
    pub period_s: f64,
    /// Median length of one, in seconds.
    pub each_s: f64,
}

/// What was removed from a client's waits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stalls {
    /// The longest, longest first, including pauses of clients.
    pub longest: Vec<Stall>,
    /// Number of waits for the server or the network, and how many calls waited.
    pub count: u64,
    pub calls: u64,
    /// Seconds beyond what such calls usually take. The excess of pauses counts with the irregular ones instead.
    pub time_s: f64,
    /// Set if they are periodic.
    pub rhythm: Option<Rhythm>,
}

/// At most this many stalls are reported individually.
pub const TOLD_MAX: usize = 8;

impl Stalls {
    /// Adds those of another client.
    pub fn add(&mut self, other: &Stalls) {
        // Keeps the rhythm of whichever took more time.
        if self.rhythm.is_none() || other.time_s > self.time_s {
            self.rhythm = other.rhythm.or(self.rhythm);
        }
        self.longest.extend(&other.longest);
        self.longest.sort_by_key(|stall| Reverse(stall.to_ns.saturating_sub(stall.from_ns)));
        self.longest.truncate(TOLD_MAX);
        self.count += other.count;
        self.calls += other.calls;
        self.time_s += other.time_s;
    }

    /// Those of the server or the network, longest first.
    pub fn waits(&self) -> impl Iterator<Item = &Stall> {
        self.longest.iter().filter(|stall| stall.place != Place::Client)
    }
}

/// The usual wait for each class of calls, in nanoseconds. `None`: too few calls.
struct Usual([Option<f64>; 6]);

impl Usual {
    fn of(waits: &[Spread; 6]) -> Self {
        let group = |synchronous: bool| {
            let mut all = Spread::default();
            let of = Class::ALL.into_iter().filter(|class| class.is_synchronous() == synchronous);
            of.for_each(|class| all.merge(&waits[class as usize]));
            match all.count() {
                KIND_MIN.. => all.percentile_ns(75.0),
                3.. => all.percentile_ns(50.0),
                _ => None,
            }
        };
        let groups = [group(false), group(true)];
        Usual(Class::ALL.map(|class| {
            let spread = &waits[class as usize];
            match spread.count() {
                0..COMMITS_MIN if class == Class::Commit => None,
                KIND_MIN.. => spread.percentile_ns(75.0),
                _ => groups[usize::from(class.is_synchronous())],
            }
        }))
    }

    /// A longer wait is a stall.
    fn limit(&self, class: Class, least_ns: f64) -> f64 {
        self.0[class as usize].map_or(f64::INFINITY, |ns| (ODD * ns).max(least_ns))
    }
}

/// Waits at the same time.
struct Episode {
    stall: Stall,
    /// When the first of them ended.
    first_ns: i64,
}

fn episodes(odd: &[Long]) -> Vec<Episode> {
    let mut odd = odd.to_vec();
    odd.sort_unstable_by_key(|long| (long.from_ns, long.to_ns));
    let mut all: Vec<Episode> = Vec::new();
    let mut quiet = 0;
    for long in &odd {
        let place = if long.network_ns > long.rest_ns { Place::Network } else { Place::Server };
        match all.last_mut() {
            Some(Episode { stall, first_ns }) if long.from_ns < stall.to_ns => {
                stall.to_ns = stall.to_ns.max(long.to_ns);
                *first_ns = (*first_ns).min(long.to_ns);
                stall.calls += 1;
                quiet = quiet.max(long.quiet_ns);
                stall.nobody = quiet as f64 >= NOBODY * stall.to_ns.saturating_sub(stall.from_ns) as f64;
            }
            _ => {
                quiet = long.quiet_ns;
                let length = long.to_ns.saturating_sub(long.from_ns);
                let nobody = quiet as f64 >= NOBODY * length as f64;
                let stall = Stall { place, from_ns: long.from_ns, to_ns: long.to_ns, calls: 1, nobody };
                all.push(Episode { stall, first_ns: long.to_ns });
            }
        }
    }
    all
}

/// Removes the stalls from a client's waits. What is usual stays of each.
pub(super) fn take_out(book: &mut Book) -> Stalls {
    let mut stalls = waits(book).unwrap_or_default();
    stalls.longest.sort_by_key(|stall| Reverse(stall.to_ns.saturating_sub(stall.from_ns)));
    stalls.longest.truncate(TOLD_MAX);
    stalls.longest.extend(pauses(book));
    stalls
}

fn waits(book: &mut Book) -> Option<Stalls> {
    let all: u64 = book.waits.iter().map(Spread::count).sum();
    if all < ALL_MIN || book.longest.waits.is_empty() {
        return None;
    }
    let usual = Usual::of(&book.waits);
    let long: Vec<Long> = book.longest.waits.iter().map(|Reverse(long)| *long).collect();
    // Where the network's part is known: what it is of the other waits.
    let of_longest: u64 = long.iter().map(|l| l.network_ns).sum();
    let others = book.split.saturating_sub(long.iter().filter(|l| l.network_ns > 0).count() as u64);
    let network = if others > 0 {
        (book.network_ns - of_longest as f64).max(0.0) / others as f64
    } else {
        f64::INFINITY
    };
    let beyond = |least: f64| {
        let odd = |l: &&Long| {
            l.rest_ns as f64 > usual.limit(l.class, least) || l.network_ns as f64 > (ODD * network).max(least)
        };
        long.iter().filter(odd).copied().collect::<Vec<Long>>()
    };
    let is_one_operation = |odd: &[Long]| {
        let mut by: BTreeMap<u8, u64> = BTreeMap::new();
        odd.iter().for_each(|l| *by.entry(l.label).or_default() += 1);
        by.iter().max_by_key(|(_, n)| **n).is_some_and(|(label, n)| {
            let of_all = book.labels.get(usize::from(*label)).copied().unwrap_or(0) as f64 / all as f64;
            *n as f64 > ONE_OPERATION * odd.len() as f64 && of_all < ONE_OPERATION / 2.0
        })
    };
    let odd = beyond(LEAST_NS as f64);
    let found = episodes(&odd);
    let ends: Vec<f64> =
        found.iter().map(|e| e.first_ns.saturating_sub(found[0].first_ns) as f64 / 1e9).collect();
    let rhythm = period_s(&ends).filter(|_| !is_one_operation(&odd));
    let (odd, found, least) = match rhythm {
        Some(_) => (odd, found, LEAST_NS as f64),
        None => {
            let odd = beyond(SELDOM_NS);
            let found = episodes(&odd);
            (odd, found, SELDOM_NS)
        }
    };
    let seldom = found.len() as u64 <= SELDOM_MIN.max(all / SELDOM) && odd.len() < LONGEST_MAX;
    if found.is_empty() || (rhythm.is_none() && (!seldom || (found.len() > 3 && is_one_operation(&odd)))) {
        return None;
    }
    // The excess over the usual.
    let clipped: Vec<(Class, f64, f64)> = Class::ALL
        .into_iter()
        .filter_map(|class| Some((class, usual.limit(class, least), usual.0[class as usize]?)))
        .collect();
    let excess = |book: &Book| {
        let of = |(class, limit, to): &(Class, f64, f64)| book.waits[*class as usize].beyond(*limit, *to);
        clipped.iter().map(of).fold((0u64, 0.0), |(n, s), (m, t)| (n + m, s + t))
    };
    let (mut calls, mut time_ns) = excess(book);
    let on_network: Vec<&Long> =
        odd.iter().filter(|l| l.network_ns as f64 > (ODD * network).max(least)).collect();
    let part = |l: &Long| l.weight * (l.network_ns as f64 - network) / l.ns() as f64;
    let network_time: f64 = on_network.iter().map(|l| part(l)).sum();
    calls += on_network.len() as u64;
    time_ns += network_time;
    let total: f64 = book.waits.iter().map(Spread::weight).sum::<f64>()
        + book.network
        + book.gaps.sum_ns()
        + book.moving
        + book.lost;
    if time_ns < WORTH * total {
        return None;
    }
    for (class, limit, to) in clipped {
        book.waits[class as usize].clip(limit, to);
    }
    book.network = (book.network - network_time).max(0.0);
    book.network_ns -= on_network.iter().map(|l| l.network_ns as f64 - network).sum::<f64>();
    let mut lengths: Vec<f64> = found.iter().map(|e| e.stall.length_s()).collect();
    lengths.sort_unstable_by(f64::total_cmp);
    let rhythm = rhythm.map(|period_s| Rhythm { period_s, each_s: lengths[lengths.len() / 2] });
    // Waits beyond those kept count as one stall each.
    let more = calls.saturating_sub(odd.len() as u64);
    Some(Stalls {
        count: found.len() as u64 + more,
        calls,
        time_s: time_ns / 1e9,
        rhythm,
        longest: found.into_iter().map(|e| e.stall).collect(),
    })
}

/// Exceptionally long pauses of the client.
fn pauses(book: &Book) -> Vec<Stall> {
    let usual = book.gaps.percentile_ns(75.0).unwrap_or(f64::INFINITY);
    let mut pauses: Vec<&Long> = book.idle.waits.iter().map(|Reverse(long)| long).collect();
    let total = book.gaps.sum_ns() + book.busy;
    pauses.retain(|l| {
        l.rest_ns as f64 > (ODD * usual).max(SELDOM_NS)
            && l.rest_ns as f64 > WORTH * total
            && book.gaps.count() >= ALL_MIN
    });
    pauses.sort_unstable_by_key(|long| Reverse(long.rest_ns));
    let told = pauses.into_iter().take(TOLD_MAX / 2);
    told.map(|l| Stall { place: Place::Client, from_ns: l.from_ns, to_ns: l.to_ns, calls: 0, nobody: true })
        .collect()
}
