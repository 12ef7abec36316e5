//! Draws conclusions from the accumulated calls: round trip, parts of the time, what bounds the work. No I/O.

use super::book::{Book, Compounds, Follows};
use super::both::Both;
use super::files::{Files, Item, Sequences, Shape};
use super::label::UNKNOWN;
use super::series::Series;
use super::spread::Spread;
use super::stalls::{Stalls, take_out};
use super::typical::Steps;
use crate::path::Shortest;
use crate::skim::facts::Class;

use landfast_model::{Bound, Shares, Terms, Verdict, Work};
use std::collections::BTreeMap;
use std::net::IpAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// At the clients: service times include the network.
    Client,
    /// At the servers: service times exclude the network.
    Server,
    Middle,
    /// Client and server are the same machine.
    Loopback,
    /// Both sides are equally near, or nothing tells.
    Unknown,
}

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Server => "server",
            Side::Middle => "middle",
            Side::Loopback => "loopback",
            Side::Unknown => "unknown",
        }
    }
}

pub type Addresses = (IpAddr, IpAddr);

#[derive(Debug, Clone)]
pub struct Pair {
    /// Client and server. `None`: all pairs beyond the limit.
    pub ends: Option<Addresses>,
    pub calls: u64,
    /// Answered calls whose effect had to be durable.
    pub synchronous: u64,
    pub round_trip_ns: f64,
    /// Where the capture was made.
    pub side: Side,
    /// The capture lacks acknowledgements without data, so they do not tell where it was made.
    pub no_acknowledgements: bool,
    /// Where its time went, in seconds.
    pub shares: Shares,
    /// Rare pauses that were longer than usual for their kind, in seconds. Not in `shares`.
    pub irregular_s: f64,
    /// Few waits that were much longer than others of their kind. Not in `shares`.
    pub stalls: Stalls,
    /// From the first call to the last reply, in seconds.
    pub span_s: f64,
    /// Average number of calls in flight while any was in flight.
    pub in_flight: f64,
    pub verdict: Option<Verdict>,
}

impl Pair {
    /// Seconds lost to what bounds its work, or to stalls if these took more.
    pub fn lost_s(&self) -> f64 {
        self.shares.parts()[0].1.max(self.stalls.time_s)
    }
}

/// Pauses with nothing in flight between a reply of one kind and a call of another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pause {
    /// What the reply before was for.
    pub before: u8,
    /// What the call after was for.
    pub after: u8,
    /// How many pauses there were.
    pub count: u64,
    /// Median, in nanoseconds.
    pub median_ns: f64,
    /// Sum of such pauses, in nanoseconds.
    pub sum_ns: f64,
}

/// At most this many kinds of pauses are reported.
const PAUSES: usize = 12;

#[derive(Debug)]
pub struct Findings {
    /// By client and server; the pair that lost most time comes first.
    pub pairs: Vec<Pair>,
    /// The pairs are bound by different things. `verdict` is that of the first.
    pub several: bool,
    /// Where the time of all pairs together went, in seconds.
    pub shares: Shares,
    /// Client pauses beyond the usual ones, in seconds. Not in `shares`.
    pub irregular_s: f64,
    /// Few waits that were much longer than others of their kind. Not in `shares`.
    pub stalls: Stalls,
    pub verdict: Option<Verdict>,
    pub terms: Terms,
    pub work: Work,
    pub side: Side,
    /// Waits minus the round trip, by what the server had to do. For durable changes the server's usual time is
    /// subtracted as well.
    pub waits: [Spread; 6],
    /// Calls whose operation could not be read.
    pub unread: u64,
    /// Waits as measured.
    pub raw_waits: [Spread; 6],
    /// The server's usual time for a call with nothing to make durable, in nanoseconds.
    pub floor_ns: f64,
    /// Where the clients paused, longest sum first.
    pub pauses: Vec<Pause>,
    /// Sequences of calls for files, and how many files had each.
    pub shapes: Vec<(Vec<Item>, Shape)>,
    /// A typical file for each of the first sequences, if times are known.
    pub typical: Vec<Option<Steps>>,
    /// All calls for directories.
    pub directories: Shape,
    /// Files whose sequences exceed the limit.
    pub other_files: Shape,
    /// COMPOUNDs by their operations, with service times.
    pub compounds: Vec<(Vec<u8>, Spread)>,
    pub series: Series,
    /// The comparison of two captures of the same traffic.
    pub both: Option<Both>,
}

const S: f64 = 1e-9;

/// A capture is far from an end if that side takes this many times as long as the other.
const FAR: f64 = 1.5;
/// Below this, differences between the two sides are chance, in nanoseconds.
const NEAR_NS: f64 = 100_000.0;

fn side(ends: Option<Addresses>, to_server: Option<f64>, to_client: Option<f64>) -> Side {
    if ends.is_some_and(|(client, server)| client == server || (client.is_loopback() && server.is_loopback()))
    {
        return Side::Loopback;
    }
    let (Some(to_server), Some(to_client)) = (to_server, to_client) else { return Side::Unknown };
    if to_server < NEAR_NS && to_client < NEAR_NS {
        return Side::Unknown;
    }
    if to_server > FAR * to_client {
        Side::Client
    } else if to_client > FAR * to_server {
        Side::Server
    } else {
        Side::Middle
    }
}

/// Sum of pauses, each capped at the 75th percentile of its kind.
struct Regular {
    part: f64,
    pauses: Vec<Pause>,
}

/// The percentile up to which times are usual.
const USUAL: f64 = 75.0;

/// Kinds with fewer pauses are judged by all kinds together.
const KIND_MIN: u64 = 8;

impl Regular {
    /// For the pauses of one pair.
    fn of<'a>(follows: impl Iterator<Item = (&'a (u8, u8, u8), &'a Spread)> + Clone) -> Self {
        let mut all = Spread::default();
        follows.clone().for_each(|(_, spread)| all.merge(spread));
        let usual = all.percentile_ns(USUAL).unwrap_or(0.0);
        let (mut regular, mut total) = (0.0, 0.0);
        let mut pauses = Vec::new();
        for ((_, before, after), spread) in follows {
            let most = match spread.count() {
                0..KIND_MIN => usual,
                _ => spread.percentile_ns(USUAL).unwrap_or(usual),
            };
            let sum_ns = spread.sum_of(|ns| ns.min(most));
            let median_ns = spread.percentile_ns(50.0).unwrap_or(0.0);
            pauses.push(Pause { before: *before, after: *after, count: spread.count(), median_ns, sum_ns });
            regular += sum_ns;
            total += spread.sum_ns();
        }
        Regular { part: if total > 0.0 { regular / total } else { 1.0 }, pauses }
    }
}

/// Merges the pauses of all pairs, longest sum first.
fn pauses_of_all(all: Vec<Pause>) -> Vec<Pause> {
    let mut by_kind: BTreeMap<(u8, u8), Pause> = BTreeMap::new();
    for pause in all {
        by_kind
            .entry((pause.before, pause.after))
            .and_modify(|known| {
                // The median of the pair with most of them stands for all.
                if pause.count > known.count {
                    known.median_ns = pause.median_ns;
                }
                known.count += pause.count;
                known.sum_ns += pause.sum_ns;
            })
            .or_insert(pause);
    }
    let mut pauses: Vec<Pause> = by_kind.into_values().collect();
    pauses.sort_by(|a, b| b.sum_ns.total_cmp(&a.sum_ns));
    pauses.truncate(PAUSES);
    pauses
}

/// The part of a pair's round trip that is contained in its waits, and in its pauses.
struct Trip {
    in_waits: f64,
    in_gaps: f64,
    /// Measured call by call, and already subtracted.
    known: f64,
    side: Side,
    /// The client acknowledges, but never without data: such acknowledgements are missing from the capture.
    no_acknowledgements: bool,
}

impl Trip {
    fn of(ends: Option<Addresses>, book: &Book) -> Self {
        let calls: u64 = book.waits.iter().map(Spread::count).sum();
        if book.split * 2 > calls {
            // For nearly every wait the network's part is known and already subtracted.
            let known = book.network_ns / book.split as f64;
            let side = Side::Client;
            return Trip { in_waits: 0.0, in_gaps: 0.0, known, side, no_acknowledgements: false };
        }
        let least = |a: Option<f64>, b: Option<u64>| {
            let all = [a, b.map(|ns| ns as f64)];
            all.into_iter().flatten().min_by(f64::total_cmp)
        };
        // The part of a wait that a slow link took is only an estimate.
        let [to_server, to_client] = book.acknowledged;
        // An acknowledgement that comes only with the next call includes the client's work, so it tells nothing about
        // the path.
        let no_acknowledgements = to_client.is_some_and(|shortest| !shortest.bare);
        let wait = book.waits.iter().filter_map(Spread::least_ns).min();
        let wait = wait.filter(|_| !book.on_line || to_server.is_none());
        // A call soon after a reply may belong to another program that did not wait for the reply. The
        // acknowledgement of the reply tells more.
        let gap = book.gap_least_ns.filter(|_| to_client.is_none());
        let ways = |beyond_line: bool| {
            let of = |shortest: Shortest| {
                (shortest.ns - if beyond_line { shortest.on_line_ns } else { 0 }).max(0) as f64
            };
            let [by_server, by_client] = book.acknowledged.map(|shortest| shortest.map(of));
            (least(by_server, wait), if no_acknowledgements { None } else { least(by_client, gap) })
        };
        let (to_server, to_client) = ways(false);
        let mut side = side(ends, to_server, to_client);
        if no_acknowledgements
            && side == Side::Unknown
            && book.acknowledged[0].is_some_and(|shortest| shortest.bare && shortest.ns as f64 > NEAR_NS)
        {
            side = Side::Client;
        }
        let (to_server, to_client) = ways(true);
        let in_waits = if side == Side::Server { 0.0 } else { to_server.unwrap_or(0.0) };
        // At the client, the shortest pause is the client's own work.
        let in_gaps =
            if matches!(side, Side::Server | Side::Middle) { to_client.unwrap_or(0.0) } else { 0.0 };
        Trip { in_waits, in_gaps, known: 0.0, side, no_acknowledgements }
    }

    fn both(&self) -> f64 {
        self.in_waits + self.in_gaps + self.known
    }
}

/// The server's usual time for calls with nothing to make durable, in nanoseconds.
fn floor(book: &Book, trip: &Trip) -> f64 {
    let light = &book.waits[Class::Light as usize];
    light.percentile_ns(50.0).map_or(0.0, |ns| (ns - trip.in_waits).max(0.0))
}

/// How much longer waits for durable changes take than the round trip and the waits with nothing to make durable. It
/// compares the quickest with the quickest and the slowest with the slowest, so that a server that is sometimes slow
/// at everything is not taken for a slow disk. For each step of `waits`: nanoseconds, number, weight.
fn beyond_light<'a>(
    waits: &'a Spread,
    light: &'a Spread,
    in_waits: f64,
) -> impl Iterator<Item = (f64, u64, f64)> + 'a {
    let all = waits.count() as f64;
    // Rare values say nothing about the others.
    let usual = light.percentile_ns(USUAL).unwrap_or(0.0);
    let mut seen = 0.0;
    waits.steps().map(move |(ns, count, weight)| {
        let from = seen;
        seen += count as f64;
        let light = light.mean_between_ns(from / all, seen / all).map_or(0.0, |ns| ns.min(usual));
        let lasting = (ns - in_waits.max(light)).max(0.0);
        (lasting, count, if ns > 0.0 { weight * lasting / ns } else { 0.0 })
    })
}

/// A pair with less than this part of the time does not count against the verdict on the others.
const MATTERS: f64 = 0.05;

/// Whether the pairs that matter are bound by different things.
fn several(pairs: &[Pair]) -> bool {
    let of = |pair: &Pair| pair.shares.total() + pair.stalls.time_s;
    let all: f64 = pairs.iter().map(of).sum();
    // What bounds a pair: one thing, or two of similar size. `None`: stalls.
    let bounds = |pair: &Pair| -> Vec<Option<Bound>> {
        match pair.verdict {
            _ if pair.stalls.time_s > pair.shares.parts()[0].1 => vec![None],
            Some(verdict) if verdict.bound == Bound::Mixed => {
                vec![Some(verdict.first), Some(verdict.runner_up)]
            }
            Some(verdict) => vec![Some(verdict.first)],
            None => Vec::new(),
        }
    };
    let mut matter = pairs.iter().filter(|pair| of(pair) >= MATTERS * all && pair.verdict.is_some());
    let Some(first) = matter.next() else { return false };
    let mut of_all = bounds(first);
    for pair in matter {
        let these = bounds(pair);
        of_all.retain(|bound| these.contains(bound));
    }
    of_all.is_empty()
}

/// Turns the accumulated calls into findings. `busy_ns`: nanoseconds in which clients had calls in flight.
pub(super) fn find(
    books: Vec<(Option<Addresses>, u8, Book)>,
    busy_ns: f64,
    follows: &Follows,
    series: Series,
    files: Files,
    compounds: Compounds,
) -> Findings {
    let mut sums = Sums { busy: busy_ns, ..Sums::default() };
    let mut pauses = Vec::new();
    let mut pairs: Vec<Pair> = books
        .into_iter()
        .map(|(ends, number, mut book)| {
            let regular = Regular::of(follows.range((number, 0, 0)..=(number, u8::MAX, u8::MAX)));
            let pair = sums.add(ends, &mut book, &regular);
            pauses.extend(regular.pauses);
            pair
        })
        .collect();
    pairs.sort_by(|a, b| b.lost_s().total_cmp(&a.lost_s()).then_with(|| b.calls.cmp(&a.calls)));
    let Sequences { shapes, typical, directories, others: other_files } = files.finish();
    let mut compounds: Vec<_> = compounds.into_iter().collect();
    compounds.sort_by(|a, b| b.1.count().cmp(&a.1.count()).then_with(|| a.0.cmp(&b.0)));
    let side = sums.side();
    let shares = sums.shares;
    let several = several(&pairs);
    let of_first = pairs.first().and_then(|pair| pair.verdict);
    Findings {
        pairs,
        several,
        shares,
        irregular_s: sums.irregular_s,
        stalls: std::mem::take(&mut sums.stalls),
        verdict: if several { of_first } else { shares.verdict() },
        terms: sums.terms(),
        work: sums.work(),
        side,
        floor_ns: sums.floor_ns / (sums.calls as f64).max(1.0),
        waits: sums.waits,
        raw_waits: sums.raw,
        unread: sums.unread,
        pauses: pauses_of_all(pauses),
        shapes,
        typical,
        directories,
        other_files,
        compounds,
        series,
        both: None,
    }
}

/// Below this part of the time in transfer, the measured bandwidth means nothing.
const RATE_MIN: f64 = 0.02;

#[derive(Default)]
struct Sums {
    shares: Shares,
    irregular_s: f64,
    stalls: Stalls,
    waits: [Spread; 6],
    raw: [Spread; 6],
    unread: u64,
    calls: u64,
    synchronous: u64,
    round_trip_ns: f64,
    floor_ns: f64,
    persistence_ns: f64,
    server_ns: f64,
    /// Nanoseconds in which clients had calls in flight: counted once, and counted once per call.
    busy: f64,
    under_way: f64,
    moving: f64,
    bytes_up: u64,
    bytes_down: u64,
    files: u64,
    /// First call and last reply of each client.
    spans: BTreeMap<Option<IpAddr>, (i64, i64)>,
    sides: BTreeMap<&'static str, (u64, Option<Side>)>,
}

impl Sums {
    fn add(&mut self, ends: Option<Addresses>, book: &mut Book, regular: &Regular) -> Pair {
        self.raw.iter_mut().zip(&book.waits).for_each(|(raw, waits)| raw.merge(waits));
        self.unread += u64::from(book.labels.get(usize::from(UNKNOWN)).copied().unwrap_or(0));
        let stalls = take_out(book);
        let book = &*book;
        let trip = Trip::of(ends, book);
        let floor = floor(book, &trip);
        let mut shares = Shares::default();
        let (mut calls, mut synchronous) = (0, 0);
        for (class, spread) in Class::ALL.into_iter().zip(&book.waits) {
            calls += spread.count();
            let beyond = |ns: f64| (ns - trip.in_waits).max(0.0);
            let all = spread.weight();
            let rtt = spread.weight_of(|ns| ns.min(trip.in_waits));
            shares.rtt += rtt * S;
            let lasting = if class.is_synchronous() {
                synchronous += spread.count();
                let light = &book.waits[Class::Light as usize];
                let mut lasting = 0.0;
                for (ns, count, counts) in beyond_light(spread, light, trip.in_waits) {
                    self.persistence_ns += ns * count as f64;
                    self.waits[class as usize].add_many(ns as u64, count);
                    lasting += counts;
                }
                lasting
            } else {
                for (ns, count, _) in spread.steps() {
                    self.waits[class as usize].add_many(beyond(ns) as u64, count);
                }
                self.server_ns += spread.sum_of(beyond);
                0.0
            };
            shares.persistence += lasting * S;
            shares.server += (all - rtt - lasting).max(0.0) * S;
        }
        shares.rtt += (book.paused + book.network) * S;
        shares.bandwidth = (book.moving - book.paused).max(0.0) * S;
        shares.loss = book.lost * S;
        let gaps = book.gaps.sum_ns();
        let on_the_way = book.gaps.sum_of(|ns| ns.min(trip.in_gaps));
        shares.rtt += on_the_way * S;
        shares.client = (gaps * regular.part - on_the_way).max(0.0) * S;
        let irregular_s = gaps * (1.0 - regular.part) * S;
        let pair = Pair {
            ends,
            calls,
            synchronous,
            round_trip_ns: trip.both(),
            side: trip.side,
            no_acknowledgements: trip.no_acknowledgements,
            shares,
            irregular_s,
            stalls,
            span_s: book.first_ns.map_or(0.0, |first| (book.last_ns - first).max(0) as f64 * S),
            in_flight: if book.busy > 0.0 { book.under_way / book.busy } else { 0.0 },
            verdict: shares.verdict(),
        };
        self.sum_up(&pair, book, floor);
        pair
    }

    fn sum_up(&mut self, pair: &Pair, book: &Book, floor: f64) {
        let calls = pair.calls as f64;
        self.shares += pair.shares;
        self.irregular_s += pair.irregular_s;
        self.stalls.add(&pair.stalls);
        self.calls += pair.calls;
        self.synchronous += pair.synchronous;
        self.round_trip_ns += pair.round_trip_ns * calls;
        self.floor_ns += floor * calls;
        self.under_way += book.under_way;
        self.moving += (book.moving - book.paused).max(0.0);
        self.bytes_up += book.bytes_up;
        self.bytes_down += book.bytes_down;
        self.files += book.files_made;
        if let Some(first_ns) = book.first_ns {
            let client = pair.ends.map(|(client, _)| client);
            let span = self.spans.entry(client).or_insert((first_ns, book.last_ns));
            *span = (span.0.min(first_ns), span.1.max(book.last_ns));
        }
        let side = self.sides.entry(pair.side.name()).or_default();
        *side = (side.0 + pair.calls, Some(pair.side));
    }

    /// Where most of the calls were captured.
    fn side(&self) -> Side {
        let most = self.sides.values().max_by_key(|(calls, _)| *calls);
        most.and_then(|(_, side)| *side).unwrap_or(Side::Unknown)
    }

    /// From the first call to the last reply, in seconds.
    fn span_s(&self) -> Option<f64> {
        let first = self.spans.values().map(|(first, _)| *first).min()?;
        let last = self.spans.values().map(|(_, last)| *last).max()?;
        Some((last - first).max(0) as f64 * S)
    }

    /// The average number of clients at work at the same time.
    fn beside(&self) -> f64 {
        let spans: f64 = self.spans.values().map(|(first, last)| (last - first).max(0) as f64 * S).sum();
        self.span_s().filter(|span| *span > 0.0).map_or(1.0, |span| (spans / span).max(1.0))
    }

    fn terms(&self) -> Terms {
        let beside = self.beside();
        let calls = (self.calls as f64).max(1.0);
        let others = (self.calls - self.synchronous) as f64;
        let matters = self.shares.bandwidth > RATE_MIN * self.shares.total();
        // The way of most bytes stands for both.
        let is_up = self.bytes_up >= self.bytes_down;
        let rate = |bytes: u64| beside * bytes as f64 / (self.moving * S);
        let matters = matters && self.moving > 0.0;
        Terms {
            round_trip_s: self.round_trip_ns / calls * S,
            server_s: self.server_ns / others.max(1.0) * S,
            persistence_s: self.persistence_ns / (self.synchronous as f64).max(1.0) * S,
            // Clients that work in parallel also pause in parallel.
            think_s: self.shares.client / calls / beside,
            file_think_s: 0.0,
            upload_bytes_per_s: (matters && is_up).then(|| rate(self.bytes_up)),
            download_bytes_per_s: (matters && !is_up).then(|| rate(self.bytes_down)),
            in_flight: if self.busy > 0.0 { self.under_way / self.busy * beside } else { 0.0 },
        }
    }

    fn work(&self) -> Work {
        Work {
            files: self.files,
            bytes: self.bytes_up,
            bytes_down: self.bytes_down,
            calls: self.calls,
            synchronous_calls: self.synchronous,
            span_s: self.span_s(),
        }
    }
}
