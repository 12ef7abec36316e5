//! Where the time of the captured work went, and what bounds it. No I/O.
//!
//! - `sweep` lays each client's calls beside each other in time and decides what each instant was spent on.
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
use foldhash::fast::FixedState;
use foldhash::{HashMap, HashSet};
use label::{BESIDE, UNKNOWN, V4};
pub use label::{is_v4, name};
use landfast_nfs::v4::OpNum;
use limits::{CONNECTIONS_KNOWN_MAX, FOLLOWS_MAX, PAIRS_MAX};
use longest::Long;
use series::Series;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
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
    /// Of each pair of client and server.
    places: HashMap<(IpAddr, IpAddr), Place>,
    /// The result of the last lookup.
    last: Option<((IpAddr, IpAddr), Place)>,
    /// The books of the pairs. What is beyond the limit has one more book, the last.
    books: Vec<Book>,
    /// The index of each client.
    client_places: HashMap<IpAddr, usize>,
    /// What is beyond the limit is one more client, the last.
    clients: Vec<Client>,
    /// Connections on which there were calls: they tell which end is the client.
    connections: HashSet<u64>,
    common: Common,
    both: Option<Both>,
}

/// Where a pair of client and server is kept.
#[derive(Debug, Clone, Copy)]
struct Place {
    book: u8,
    client: usize,
}

/// The book of all pairs beyond the limit.
const OTHERS: u8 = {
    assert!(PAIRS_MAX < u8::MAX as usize);
    PAIRS_MAX as u8
};

struct Client {
    sweep: Sweep,
    track: Track,
}

impl Client {
    fn new() -> Self {
        Client { sweep: Sweep::new(), track: Track::default() }
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
    /// Nanoseconds in which clients had calls in flight.
    busy: f64,
}

/// The books of the pairs and the shared part, while calls are accounted for.
struct Writer<'a> {
    books: &'a mut [Book],
    common: &'a mut Common,
}

impl Writer<'_> {
    fn book(&mut self, pair: Option<u8>) -> Option<&mut Book> {
        self.books.get_mut(usize::from(pair?))
    }
}

impl Ledger for Writer<'_> {
    fn spent(&mut self, spent: &Spent) {
        let Spent { exchange, wait, moving, paused, lost } = spent;
        let Some(book) = self.book(exchange.pair) else { return };
        let ns = exchange.waited_ns;
        let network = exchange.network_ns.map(|network| network.clamp(0, ns));
        let rest = ns - network.unwrap_or(0);
        let part = if ns > 0 { rest as f64 / ns as f64 } else { 1.0 };
        if let Some(network) = network {
            book.split += 1;
            book.network_ns += network as f64;
            book.network += wait * (1.0 - part);
        }
        book.waits[exchange.class as usize].add(rest.unsigned_abs(), wait * part);
        let label = usize::from(exchange.label);
        if book.labels.len() <= label {
            book.labels.resize(label + 1, 0);
        }
        book.labels[label] = book.labels[label].saturating_add(1);
        book.longest.add(Long {
            rest_ns: rest.unsigned_abs(),
            network_ns: network.unwrap_or(0).unsigned_abs(),
            from_ns: exchange.at[1],
            to_ns: exchange.at[2],
            quiet_ns: 0,
            weight: *wait,
            class: exchange.class,
            label: exchange.label,
        });
        book.moving += moving;
        book.paused += paused;
        book.lost += lost;
        let step = self.common.series.at(exchange.at[3]);
        step.calls += 1;
        step.wait_ns += ns as f64;
        step.longest_ns = step.longest_ns.max(ns.unsigned_abs());
        if exchange.class.is_synchronous() {
            step.synchronous += 1;
            step.synchronous_wait_ns += ns as f64;
        }
    }

    fn gap(&mut self, before: u8, after: &Exchange, from_ns: i64, to_ns: i64, whole: bool) {
        let ns = to_ns.saturating_sub(from_ns);
        let Exchange { pair: Some(pair), label: after, .. } = *after else { return };
        let Some(book) = self.book(Some(pair)) else { return };
        if whole {
            let least = &mut book.gap_least_ns;
            *least = Some(least.map_or(ns.unsigned_abs(), |least| least.min(ns.unsigned_abs())));
        }
        book.gaps.add(ns.unsigned_abs(), ns as f64);
        book.idle.pause(from_ns, to_ns);
        let follows = &mut self.common.follows;
        let key = (pair, before, after);
        if follows.len() < FOLLOWS_MAX || follows.contains_key(&key) {
            follows.entry(key).or_default().add(ns.unsigned_abs(), ns as f64);
        }
        self.common.series.span(from_ns, to_ns, |step, ns| step.idle_ns += ns);
    }

    fn apart(&mut self, after: &Exchange, from_ns: i64, to_ns: i64, lost: bool) {
        let Some(book) = self.book(after.pair) else { return };
        let of = if lost { &mut book.lost } else { &mut book.moving };
        *of += (to_ns - from_ns) as f64;
    }

    fn busy(&mut self, calls: &[(Option<u8>, usize)], from_ns: i64, to_ns: i64) {
        let ns = (to_ns - from_ns) as f64;
        let mut all = 0;
        for (pair, calls) in calls {
            let Some(book) = self.book(*pair) else { continue };
            book.busy += ns;
            book.under_way += ns * *calls as f64;
            all += calls;
        }
        if all > 0 {
            self.common.busy += ns;
            self.common.series.span(from_ns, to_ns, |step, ns| step.under_way_ns += ns * all as f64);
        }
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
        let pair = (size_of::<Book>() + size_of::<Client>()) * 3 / 2;
        let pairs = (PAIRS_MAX + 1) * (pair + sweep + 7 * spread + longest);
        let connections =
            (CONNECTIONS_KNOWN_MAX * 8 / 7).next_power_of_two() * 3 / 2 * (size_of::<u64>() + 1);
        let file = limits::SEQUENCE_MAX * size_of::<files::Item>() + 300;
        let timed = limits::TIMED_MAX + limits::SHAPES_MAX * limits::SAMPLE_MAX;
        let timed = timed
            * (limits::TIMED_CALLS_MAX * size_of::<typical::Timed>() * 3 / 2 + size_of::<typical::Steps>());
        let compounds = limits::SHAPES_MAX * (spread + limits::SHAPE_OPERATIONS_MAX);
        pairs
            + connections
            + files::Files::KEYS_BYTES_MAX
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

    /// Where the calls of a client to a server are kept, from the first wanted call on.
    fn pair(&mut self, client: IpAddr, server: IpAddr) -> Place {
        let key = (client, server);
        if let Some(place) = self.place(key) {
            return place;
        }
        let client = self.client(client).unwrap_or_else(|| {
            let number = self.clients.len().min(PAIRS_MAX);
            if number < PAIRS_MAX {
                self.client_places.insert(client, number);
            }
            if self.clients.len() <= number {
                self.clients.push(Client::new());
            }
            number
        });
        if self.books.len() < PAIRS_MAX {
            let place = Place { book: u8::try_from(self.books.len()).unwrap_or(OTHERS), client };
            self.books.push(Book::default());
            self.places.insert(key, place);
            return place;
        }
        self.books.resize_with(PAIRS_MAX + 1, Book::default);
        Place { book: OTHERS, client }
    }

    fn place(&mut self, key: (IpAddr, IpAddr)) -> Option<Place> {
        if let Some((last, place)) = self.last
            && last == key
        {
            return Some(place);
        }
        let place = *self.places.get(&key)?;
        self.last = Some((key, place));
        Some(place)
    }

    fn client(&self, client: IpAddr) -> Option<usize> {
        self.client_places.get(&client).copied()
    }

    /// Client and server of a connection, either of which may be `from`. If calls came both ways or none is known to
    /// have come, it is the pair that is known.
    fn parties(&mut self, ends: Ends) -> Option<(Ends, Place)> {
        let ways = [ends, Ends { from: ends.to, to: ends.from }];
        let called = ways.into_iter().find(|way| self.connections.contains(&connection(*way)));
        called.into_iter().chain(ways).find_map(|way| Some((way, self.place((way.from.ip(), way.to.ip()))?)))
    }

    /// A call is in flight from now on.
    fn begins(&mut self, client: usize, ends: Ends, xid: u32, first_ns: i64) {
        let connection = connection(ends);
        if self.connections.len() < CONNECTIONS_KNOWN_MAX {
            self.connections.insert(connection);
        }
        self.clients[client].sweep.call(connection, xid, first_ns);
    }

    /// What a connection did outside its calls. Returns whether the connection is known.
    fn aside(&mut self, ends: Ends, from_ns: i64, to_ns: i64, lost: bool) -> bool {
        let Some((ends, place)) = self.parties(ends) else { return false };
        let aside = Aside { connection: connection(ends), from_ns, to_ns, lost };
        self.clients[place.client].sweep.aside(aside);
        true
    }

    /// The findings at the end of the capture.
    pub fn finish(mut self) -> Findings {
        for client in &mut self.clients {
            client.sweep.finish(&mut Writer { books: &mut self.books, common: &mut self.common });
        }
        let mut ends: Vec<_> = self.places.into_iter().collect();
        ends.sort_unstable_by_key(|(_, place)| place.book);
        let keys = ends.into_iter().map(|(key, _)| Some(key)).chain([None]);
        let mut books: Vec<_> =
            keys.zip(0..).zip(self.books).map(|((key, number), book)| (key, number, book)).collect();
        books.sort_by_key(|(key, ..)| *key);
        let Common { follows, series, files, compounds, think, busy } = self.common;
        let mut found = findings::find(books, busy, &follows, series, files, compounds);
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

/// The status of a reply, if it is not of success.
fn error(reply: &Reply) -> u32 {
    match reply.head.outcome {
        Outcome::Done(status) => status.unwrap_or(0),
        Outcome::NotTaken(n) => n,
        Outcome::Denied => 1,
    }
}

impl Exchange {
    /// A call with its reply, in no book. `None`: their times are not known.
    fn of(connection: u64, call: &Call, reply: &Reply) -> Option<Self> {
        let (whole, end) = (call.times.last?, reply.times.last?);
        // A failed call had nothing to make durable.
        let class = if error(reply) == 0 { class(call, reply) } else { Class::Light };
        let at = [call.times.first.ns, whole.ns, reply.times.first.ns, end.ns].map(sane);
        let paused_ns = call.times.paused_ns.saturating_add(reply.times.paused_ns);
        let waited_ns = (at[2] - at[1] - call.times.on_line_ns[1] - reply.times.on_line_ns[0]).max(0);
        let label = label(call, reply);
        Some(Exchange { pair: None, connection, class, label, at, waited_ns, paused_ns, network_ns: None })
    }
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

/// A number for a connection, from client to server.
fn connection(Ends { from, to }: Ends) -> u64 {
    let mut hasher = FixedState::with_seed(0).build_hasher();
    for end in [from, to] {
        match end {
            SocketAddr::V4(end) => {
                hasher.write_u64(u64::from(end.ip().to_bits()) << 16 | u64::from(end.port()));
            }
            SocketAddr::V6(end) => {
                hasher.write_u128(end.ip().to_bits());
                hasher.write_u16(end.port());
            }
        }
    }
    hasher.finish()
}

impl Observer for Analysis {
    fn call(&mut self, ends: Ends, call: &Call) {
        if !counts(call) {
            return;
        }
        let place = self.pair(ends.from.ip(), ends.to.ip());
        let first = sane(call.times.first.ns);
        let book = &mut self.books[usize::from(place.book)];
        book.first_ns = Some(book.first_ns.map_or(first, |ns| ns.min(first)));
        self.begins(place.client, ends, call.head.xid, first);
    }

    fn unwanted_call(&mut self, ends: Ends, call: &Call) {
        if counts(call)
            && let Some(client) = self.client(ends.from.ip())
        {
            self.begins(client, ends, call.head.xid, sane(call.times.first.ns));
        }
    }

    fn unwanted_reply(&mut self, ends: Ends, call: &Call, reply: &Reply) {
        let Some(client) = self.client(ends.to.ip()).filter(|_| counts(call)) else { return };
        let back = Ends { from: ends.to, to: ends.from };
        let exchange = Exchange::of(connection(back), call, reply);
        let line = exchange.map_or([None; 4], |e| on_line(&e, &call.times, &reply.times));
        let Client { sweep, track } = &mut self.clients[client];
        line.into_iter().take(3).flatten().for_each(|aside| sweep.aside(aside));
        let writer = &mut Writer { books: &mut self.books, common: &mut self.common };
        sweep.reply(call.head.xid, connection(back), exchange, writer);
        line[3].into_iter().for_each(|aside| sweep.aside(aside));
        if let Some(exchange) = exchange {
            track.busy_until(exchange.at[3]);
        }
    }

    fn reply(&mut self, ends: Ends, call: &Call, reply: &Reply) {
        if !counts(call) {
            return;
        }
        let error = error(reply);
        let place = self.pair(ends.to.ip(), ends.from.ip());
        let connection = connection(Ends { from: ends.to, to: ends.from });
        let exchange = Exchange::of(connection, call, reply).map(|exchange| {
            let network_ns = self.both.as_mut().and_then(|both| both.network_ns(exchange.label, call, reply));
            Exchange { pair: Some(place.book), network_ns, ..exchange }
        });
        let Client { sweep, track } = &mut self.clients[place.client];
        let book = &mut self.books[usize::from(place.book)];
        let line = exchange.map_or([None; 4], |e| on_line(&e, &call.times, &reply.times));
        line.into_iter().take(3).flatten().for_each(|aside| sweep.aside(aside));
        book.on_line |= line.iter().any(Option::is_some);
        book.bytes_up += call.times.bytes;
        book.bytes_down += reply.times.bytes;
        if error == 0 {
            book.files_made += u64::from(call.head.facts.makes);
        }
        if reply.times.last.is_some() {
            // If the clock was set back, a reply is older than its call.
            let at = [Some(call.times.first), call.times.last, Some(reply.times.first), reply.times.last];
            let latest = at.into_iter().flatten().map(|stamp| sane(stamp.ns)).max();
            book.last_ns = book.last_ns.max(latest.unwrap_or(0));
        }
        let xid = call.head.xid;
        let common = &mut self.common;
        sweep.reply(xid, connection, exchange, &mut Writer { books: &mut self.books, common });
        line[3].into_iter().for_each(|aside| sweep.aside(aside));
        let Some(Exchange { at, network_ns, label, class, .. }) = exchange else { return };
        if label == BESIDE {
            return common.think.call(track, at[0], at[3], About::default());
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
        common.think.call(track, at[0], at[3], about);
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
        let Some((way, place)) = self.parties(ends) else { return };
        let ways = if way == ends { shortest } else { [shortest[1], shortest[0]] };
        let book = &mut self.books[usize::from(place.book)];
        for (best, new) in book.acknowledged.iter_mut().zip(ways) {
            let bare = [*best, new].into_iter().flatten().any(|shortest| shortest.bare);
            *best = [*best, new].into_iter().flatten().min_by_key(|shortest| shortest.ns);
            *best = best.map(|best| Shortest { bare, ..best });
        }
        self.connections.remove(&connection(way));
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
