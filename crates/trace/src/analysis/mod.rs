//! Where the time of the captured work went, and what bounds it. No I/O.
//!
//! - `sweep` lays each client's calls to each server beside each other in time and decides what each instant was
//!   spent on.
//! - [`spread`] keeps this as distributions.
//! - [`findings`] computes the parts of the time from them, once the round trip is known.

mod book;
pub mod both;
pub mod files;
pub mod findings;
mod label;
pub mod limits;
mod longest;
pub mod series;
pub mod spread;
pub mod stalls;
mod sweep;
mod think;
pub mod typical;
pub mod words;

use crate::path::Shortest;
use crate::skim::facts::{Class, of_name};
use crate::skim::{Outcome, Program, v2, v4};
use crate::table::main_operation;
use crate::trace::{Call, Ends, Observer, Reply, Times};
use book::{Book, Compounds, Follows};
use both::{Both, OtherEnd};
use files::{Answered, Files};
use findings::Findings;
use foldhash::HashMap;
use label::{BESIDE, UNKNOWN, V4};
pub use label::{is_v4, name};
use landfast_nfs::v4::OpNum;
use limits::{FOLLOWS_MAX, PAIRS_MAX};
use longest::Long;
use series::Series;
use std::net::IpAddr;
use sweep::{Aside, Exchange, Ledger, Spent, Sweep};
use think::{About, Think, Track};

/// What was called, as a procedure number of version 3.
fn procedure(call: &Call) -> Option<u32> {
    let kind = &call.head.kind;
    match (kind.program, kind.version) {
        (Program::Nfs, v2::VERSION) => v2::as_v3(kind.procedure),
        _ => Some(kind.procedure),
    }
}

fn label(call: &Call, reply: &Reply) -> u8 {
    if is_beside(call) {
        return BESIDE;
    }
    if !call.head.kind.is_compound() {
        return procedure(call).and_then(|n| u8::try_from(n).ok()).filter(|p| *p < V4).unwrap_or(UNKNOWN);
    }
    let main = main_operation(call, reply);
    let op = main.and_then(|op| u8::try_from(op).ok()).and_then(|op| op.checked_add(V4));
    op.filter(|op| *op != BESIDE).unwrap_or(UNKNOWN)
}

fn class(call: &Call, reply: &Reply) -> Class {
    let facts = &call.head.facts;
    // If the arguments were captured, they contain a handle or a name.
    let seen = match call.head.kind.is_compound() {
        true => facts.class != Class::Light || facts.name.is_some(),
        false => facts.handle.is_some() || call.head.kind.program != Program::Nfs,
    };
    if seen || !call.times.cut {
        return facts.class;
    }
    match call.head.kind.is_compound() {
        true => main_operation(call, reply).map_or(facts.class, |op| of_name(Some(OpNum(op)), 0)),
        false => procedure(call).map_or(facts.class, |n| of_name(None, n)),
    }
}

/// Observes the calls of all clients.
#[derive(Default)]
pub struct Analysis {
    /// The index of each pair of client and server.
    places: HashMap<(IpAddr, IpAddr), usize>,
    /// The result of the last lookup.
    last: Option<((IpAddr, IpAddr), usize)>,
    pairs: Vec<Pair>,
    others: Option<Box<Pair>>,
    common: Common,
    both: Option<Both>,
}

struct Pair {
    number: u8,
    sweep: Sweep,
    book: Book,
    track: Track,
}

impl Pair {
    fn new(number: usize) -> Self {
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        Pair { number, sweep: Sweep::new(), book: Book::default(), track: Track::default() }
    }
}

/// What is shared by all pairs.
#[derive(Default)]
struct Common {
    follows: Follows,
    series: Series,
    files: Files,
    compounds: Compounds,
    think: Think,
}

/// A pair's book and the shared part, while calls are accounted for.
struct Writer<'a> {
    /// The number of the pair.
    pair: u8,
    book: &'a mut Book,
    common: &'a mut Common,
}

impl Ledger for Writer<'_> {
    fn spent(&mut self, spent: &Spent) {
        let Spent { exchange, wait, moving, paused, lost } = spent;
        let ns = exchange.waited_ns;
        let network = exchange.network_ns.map(|network| network.clamp(0, ns));
        let rest = ns - network.unwrap_or(0);
        let part = if ns > 0 { rest as f64 / ns as f64 } else { 1.0 };
        if let Some(network) = network {
            self.book.split += 1;
            self.book.network_ns += network as f64;
            self.book.network += wait * (1.0 - part);
        }
        self.book.waits[exchange.class as usize].add(rest.unsigned_abs(), wait * part);
        let label = usize::from(exchange.label);
        if self.book.labels.len() <= label {
            self.book.labels.resize(label + 1, 0);
        }
        self.book.labels[label] = self.book.labels[label].saturating_add(1);
        self.book.longest.add(Long {
            rest_ns: rest.unsigned_abs(),
            network_ns: network.unwrap_or(0).unsigned_abs(),
            from_ns: exchange.at[1],
            to_ns: exchange.at[2],
            quiet_ns: 0,
            weight: *wait,
            class: exchange.class,
            label: exchange.label,
        });
        self.book.moving += moving;
        self.book.paused += paused;
        self.book.lost += lost;
        let step = self.common.series.at(exchange.at[3]);
        step.calls += 1;
        step.wait_ns += ns as f64;
        step.longest_ns = step.longest_ns.max(ns.unsigned_abs());
        if exchange.class.is_synchronous() {
            step.synchronous += 1;
            step.synchronous_wait_ns += ns as f64;
        }
    }

    fn gap(&mut self, before: u8, after: u8, from_ns: i64, to_ns: i64, whole: bool) {
        let ns = to_ns.saturating_sub(from_ns);
        if whole {
            let least = &mut self.book.gap_least_ns;
            *least = Some(least.map_or(ns.unsigned_abs(), |least| least.min(ns.unsigned_abs())));
        }
        self.book.gaps.add(ns.unsigned_abs(), ns as f64);
        self.book.idle.pause(from_ns, to_ns);
        let follows = &mut self.common.follows;
        let key = (self.pair, before, after);
        if follows.len() < FOLLOWS_MAX || follows.contains_key(&key) {
            follows.entry(key).or_default().add(ns.unsigned_abs(), ns as f64);
        }
        self.common.series.span(from_ns, to_ns, |step, ns| step.idle_ns += ns);
    }

    fn apart(&mut self, from_ns: i64, to_ns: i64, lost: bool) {
        let of = if lost { &mut self.book.lost } else { &mut self.book.moving };
        *of += (to_ns - from_ns) as f64;
    }

    fn busy(&mut self, calls: usize, from_ns: i64, to_ns: i64) {
        let ns = (to_ns - from_ns) as f64;
        self.book.busy += ns;
        self.book.under_way += ns * calls as f64;
        self.common.series.span(from_ns, to_ns, |step, ns| step.under_way_ns += ns * calls as f64);
    }
}

impl Analysis {
    /// The most memory that all of it can take, in bytes. A table that has just grown held half as much before; an
    /// entry of a tree needs half as much again.
    #[cfg(test)]
    pub(crate) const BYTES_MAX: usize = {
        let spread = spread::STEPS_ALL * 24;
        let sweep =
            limits::PENDING_MAX * (size_of::<Exchange>() + 48) + limits::ASIDES_MAX * size_of::<Aside>();
        let longest = longest::Longest::BYTES_MAX * 9 / 8 + 3 * 256 / 2 * size_of::<u32>();
        let pairs = PAIRS_MAX * (size_of::<Pair>() * 3 / 2 + sweep + 7 * spread + longest);
        let file = limits::SEQUENCE_MAX * size_of::<files::Item>() + 300;
        let timed = limits::TIMED_MAX + limits::SHAPES_MAX * limits::SAMPLE_MAX;
        let timed = timed
            * (limits::TIMED_CALLS_MAX * size_of::<typical::Timed>() * 3 / 2 + size_of::<typical::Steps>());
        let compounds = limits::SHAPES_MAX * (spread + limits::SHAPE_OPERATIONS_MAX);
        pairs
            + (FOLLOWS_MAX + 2) * spread
            + (limits::FILES_MAX + limits::SHAPES_MAX) * file
            + timed
            + compounds
    };

    pub fn new() -> Self {
        Analysis::default()
    }

    /// With the calls as the other end captured them.
    pub fn with_other_end(other: OtherEnd) -> Self {
        Analysis { both: Some(Both::new(other)), ..Analysis::default() }
    }

    fn pair(&mut self, client: IpAddr, server: IpAddr) -> (&mut Pair, &mut Common) {
        let key = (client, server);
        let place = match self.place(key) {
            None if self.pairs.len() < PAIRS_MAX => {
                self.places.insert(key, self.pairs.len());
                self.pairs.push(Pair::new(self.pairs.len()));
                Some(self.pairs.len() - 1)
            }
            place => place,
        };
        let pair = match place {
            Some(place) => &mut self.pairs[place],
            None => self.others.get_or_insert_with(|| Box::new(Pair::new(PAIRS_MAX))),
        };
        (pair, &mut self.common)
    }

    fn place(&mut self, key: (IpAddr, IpAddr)) -> Option<usize> {
        if let Some((last, place)) = self.last
            && last == key
        {
            return Some(place);
        }
        let place = *self.places.get(&key)?;
        self.last = Some((key, place));
        Some(place)
    }

    /// What a connection did outside its calls. Returns whether the connection is known.
    fn aside(&mut self, ends: Ends, from_ns: i64, to_ns: i64, lost: bool) -> bool {
        // Either end may be the client.
        for (client, server) in [(ends.from, ends.to), (ends.to, ends.from)] {
            if let Some(place) = self.place((client.ip(), server.ip())) {
                let connection = connection(client.port(), server.port());
                self.pairs[place].sweep.aside(Aside { connection, from_ns, to_ns, lost });
                return true;
            }
        }
        false
    }

    /// The findings at the end of the capture.
    pub fn finish(mut self) -> Findings {
        let others = self.others.take().map(|pair| (None, *pair));
        let mut ends: Vec<_> = self.places.into_iter().collect();
        ends.sort_unstable_by_key(|(_, place)| *place);
        let pairs = ends.into_iter().map(|(key, _)| Some(key)).zip(self.pairs).chain(others);
        let mut books: Vec<_> = pairs
            .map(|(key, Pair { number, mut sweep, mut book, .. })| {
                sweep.finish(&mut Writer { pair: number, book: &mut book, common: &mut self.common });
                (key, number, book)
            })
            .collect();
        books.sort_by_key(|(key, ..)| *key);
        let Common { follows, series, files, compounds, think } = self.common;
        let mut found = findings::find(books, &follows, series, files, compounds);
        let client_s = found.terms.think_s * found.work.calls as f64;
        think.divide(&mut found.terms, client_s, found.work.calls, found.work.files);
        Findings { both: self.both, ..found }
    }
}

/// Procedures of NLM that a client waits for: TEST, LOCK, CANCEL, UNLOCK. The others come from a server, or get their
/// answer in another call.
const NLM_WAITED_FOR: std::ops::RangeInclusive<u32> = 1..=4;

/// Whether a call counts as work: not callbacks, and not calls to unrelated programs.
fn counts(call: &Call) -> bool {
    matches!(call.head.kind.program, Program::Nfs | Program::NfsAcl) || is_beside(call)
}

/// Whether a client waits for it though it is not NFS. For example, a client that mounts a directory for each file
/// waits for MOUNT.
fn is_beside(call: &Call) -> bool {
    match call.head.kind.program {
        Program::Mount => true,
        Program::Nlm => NLM_WAITED_FOR.contains(&call.head.kind.procedure),
        _ => false,
    }
}

/// Clamps a time so that differences cannot overflow. A capture may contain any time.
fn sane(ns: i64) -> i64 {
    ns.clamp(-(i64::MAX / 4), i64::MAX / 4)
}

/// When the bytes of a call and its reply were on a slow link: before the call was captured, after it, before the
/// reply, and after it.
fn on_line(exchange: &Exchange, call: &Times, reply: &Times) -> [Option<Aside>; 4] {
    let [begun, whole, answered, ended] = exchange.at;
    let [[before, behind], [before_reply, behind_reply]] = [call.on_line_ns, reply.on_line_ns];
    let while_ = [
        (begun - before, begun),
        (whole, answered.min(whole + behind)),
        (whole.max(answered - before_reply), answered),
        (ended, ended + behind_reply),
    ];
    while_.map(|(from_ns, to_ns)| {
        let connection = exchange.connection;
        (from_ns < to_ns).then_some(Aside { connection, from_ns, to_ns, lost: false })
    })
}

fn connection(client_port: u16, server_port: u16) -> u32 {
    u32::from(client_port) << 16 | u32::from(server_port)
}

impl Observer for Analysis {
    fn call(&mut self, ends: Ends, call: &Call) {
        if !counts(call) {
            return;
        }
        let (pair, _) = self.pair(ends.from.ip(), ends.to.ip());
        let first = sane(call.times.first.ns);
        pair.book.first_ns = Some(pair.book.first_ns.map_or(first, |ns| ns.min(first)));
        pair.sweep.call(connection(ends.from.port(), ends.to.port()), call.head.xid, first);
    }

    fn reply(&mut self, ends: Ends, call: &Call, reply: &Reply) {
        if !counts(call) {
            return;
        }
        let label = label(call, reply);
        let error = match reply.head.outcome {
            Outcome::Done(status) => status.unwrap_or(0),
            Outcome::NotTaken(n) => n,
            Outcome::Denied => 1,
        };
        // A failed call had nothing to make durable.
        let class = if error == 0 { class(call, reply) } else { Class::Light };
        let connection = connection(ends.to.port(), ends.from.port());
        let times = (call.times.last, reply.times.last);
        let exchange = if let (Some(whole), Some(end)) = times {
            let at = [call.times.first.ns, whole.ns, reply.times.first.ns, end.ns].map(sane);
            let paused_ns = call.times.paused_ns.saturating_add(reply.times.paused_ns);
            let network_ns = self.both.as_mut().and_then(|both| both.network_ns(label, call, reply));
            let waited_ns = (at[2] - at[1] - call.times.on_line_ns[1] - reply.times.on_line_ns[0]).max(0);
            Some(Exchange { connection, class, label, at, waited_ns, paused_ns, network_ns })
        } else {
            None
        };
        let (pair, common) = self.pair(ends.to.ip(), ends.from.ip());
        let line = exchange.map_or([None; 4], |e| on_line(&e, &call.times, &reply.times));
        line.into_iter().take(3).flatten().for_each(|aside| pair.sweep.aside(aside));
        pair.book.on_line |= line.iter().any(Option::is_some);
        pair.book.bytes_up += call.times.bytes;
        pair.book.bytes_down += reply.times.bytes;
        if error == 0 {
            pair.book.files_made += u64::from(call.head.facts.makes);
        }
        if times.1.is_some() {
            // If the clock was set back, a reply is older than its call.
            let at = [Some(call.times.first), times.0, Some(reply.times.first), times.1];
            let latest = at.into_iter().flatten().map(|stamp| sane(stamp.ns)).max();
            pair.book.last_ns = pair.book.last_ns.max(latest.unwrap_or(0));
        }
        let xid = call.head.xid;
        let writer = &mut Writer { pair: pair.number, book: &mut pair.book, common };
        pair.sweep.reply(xid, connection, exchange, writer);
        line[3].into_iter().for_each(|aside| pair.sweep.aside(aside));
        let Some(Exchange { at, network_ns, .. }) = exchange else { return };
        if label == BESIDE {
            return common.think.call(&mut pair.track, at[0], at[3], About::default());
        }
        if call.head.kind.is_compound() {
            common.compounds_add(&call.head.ops, (at[3] - at[1]).max(0).unsigned_abs());
        }
        let about = common.files.add(&Answered {
            label,
            facts: call.head.facts,
            synchronous: class.is_synchronous(),
            error,
            found: reply.head.handle,
            at,
            network_ns,
            ends: (ends.to.ip(), ends.from.ip()),
        });
        common.think.call(&mut pair.track, at[0], at[3], about);
    }

    fn stall(&mut self, ends: Ends, from_ns: i64, to_ns: i64) {
        let (from_ns, to_ns) = (sane(from_ns), sane(to_ns));
        if self.aside(ends, from_ns, to_ns, true) {
            self.common.series.span(from_ns, to_ns, |step, ns| step.stalled_ns += ns);
        }
    }

    fn moving(&mut self, ends: Ends, from_ns: i64, to_ns: i64) {
        self.aside(ends, sane(from_ns), sane(to_ns), false);
    }

    fn path(&mut self, ends: Ends, shortest: [Option<Shortest>; 2]) {
        for (client, server, [up, down]) in
            [(ends.from, ends.to, shortest), (ends.to, ends.from, [shortest[1], shortest[0]])]
        {
            if let Some(place) = self.place((client.ip(), server.ip())) {
                for (best, new) in self.pairs[place].book.acknowledged.iter_mut().zip([up, down]) {
                    let bare = [*best, new].into_iter().flatten().any(|shortest| shortest.bare);
                    *best = [*best, new].into_iter().flatten().min_by_key(|shortest| shortest.ns);
                    *best = best.map(|best| Shortest { bare, ..best });
                }
                return;
            }
        }
    }
}

impl Common {
    fn compounds_add(&mut self, ops: &[u8], ns: u64) {
        let known = &ops[..ops.len().min(limits::SHAPE_OPERATIONS_MAX)];
        if let Some(spread) = self.compounds.get_mut(known) {
            spread.add(ns, 1.0);
        } else if self.compounds.len() < limits::SHAPES_MAX {
            self.compounds.entry(known.to_vec()).or_default().add(ns, 1.0);
        }
    }
}

/// The operations of a COMPOUND, with repetitions folded: `SEQUENCE PUTFH (OPEN WRITE) x3`.
pub fn compound(ops: &[u8]) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut at = 0;
    while at < ops.len() {
        // The longest part that is repeated immediately.
        let repeated = (1..=(ops.len() - at) / 2).rev().find_map(|len| {
            let part = &ops[at..at + len];
            let times = ops[at..].chunks_exact(len).take_while(|chunk| *chunk == part).count();
            (times > 1 && !(1..len).any(|n| len % n == 0 && part.chunks_exact(n).all(|c| c == &part[..n])))
                .then_some((len, times))
        });
        let (len, times) = repeated.unwrap_or((1, 1));
        let part: Vec<String> = ops[at..at + len].iter().map(|op| v4::number(*op).to_string()).collect();
        words.push(match (len, times) {
            (_, 1) => part.join(" "),
            (1, n) => format!("{} x{n}", part[0]),
            (_, n) => format!("({}) x{n}", part.join(" ")),
        });
        at += len * times;
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_short_however_many_files_are_in_it() {
        assert_eq!(compound(&[53, 22, 38]), "SEQUENCE PUTFH WRITE");
        assert_eq!(
            compound(&[53, 22, 18, 38, 34, 18, 38, 34, 18, 38, 34]),
            "SEQUENCE PUTFH (OPEN WRITE SETATTR) x3"
        );
        assert_eq!(compound(&[53, 22, 28, 28, 28]), "SEQUENCE PUTFH REMOVE x3");
        assert_eq!(compound(&[]), "");
    }

    #[test]
    fn labels_have_names() {
        assert_eq!([name(7), name(V4 + 18), name(UNKNOWN)], ["WRITE", "OPEN", "COMPOUND"]);
    }
}
