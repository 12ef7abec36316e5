//! Lays the calls of one client beside each other in time, to whichever servers, and decides what each instant was
//! spent on. No I/O.
//!
//! - Several calls in flight share an instant in equal parts.
//! - While bytes of another message cross its connection, a pending call waits for these bytes.
//! - While its connection makes no progress after a loss, a pending call waits for the retransmission.

use super::limits::{ASIDES_MAX, PENDING_MAX};
use crate::skim::facts::Class;
use foldhash::{HashMap, HashMapExt};
use std::collections::VecDeque;

#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    /// The number of client and server, in whose book it is. `None`: it is in no book, but takes its time.
    pub pair: Option<u8>,
    pub connection: u64,
    /// What the server had to do.
    pub class: Class,
    /// A short name of the operation, to tell what follows what.
    pub label: u8,
    /// First and last byte of the call, first and last byte of the reply, in nanoseconds.
    pub at: [i64; 4],
    /// Nanoseconds between the last byte of the call and the first of the reply, regardless of what was accounted for
    /// before.
    pub waited_ns: i64,
    /// Nanoseconds in which the sender of either message waited for acknowledgements.
    pub paused_ns: i64,
    /// The network's part of its wait in nanoseconds, if known.
    pub network_ns: Option<i64>,
}

/// What the time of a call was spent on, in nanoseconds. With n calls in flight, each gets the nth part of an
/// instant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spent {
    pub exchange: Exchange,
    /// Waiting for the reply.
    pub wait: f64,
    /// While bytes crossed its connection.
    pub moving: f64,
    /// The part of `moving` in which the sender waited for acknowledgements.
    pub paused: f64,
    /// While its connection made no progress after a loss.
    pub lost: f64,
}

/// A time in which a connection did something outside its calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aside {
    pub connection: u64,
    /// Start, in nanoseconds.
    pub from_ns: i64,
    pub to_ns: i64,
    /// `true`: no progress after a loss. `false`: bytes of a message were in flight after it had been sent.
    pub lost: bool,
}

pub(super) trait Ledger {
    fn spent(&mut self, spent: &Spent);
    /// Nothing was in flight between the operation `before` and the call `after`. `whole`: this is the whole pause
    /// between two calls to the same server.
    fn gap(&mut self, before: u8, after: &Exchange, from_ns: i64, to_ns: i64, whole: bool);
    /// No call was in flight before the call `after`, and a connection made no progress after a loss, or had bytes in
    /// flight.
    fn apart(&mut self, after: &Exchange, from_ns: i64, to_ns: i64, lost: bool);
    /// Calls were in flight: so many of each pair.
    fn busy(&mut self, calls: &[(Option<u8>, usize)], from_ns: i64, to_ns: i64);
}

/// The accumulated shares of a connection.
#[derive(Debug, Default)]
struct RegressionLine {
    messages: u32,
    stalls: u32,
    asides: u32,
    since: f64,
    moved: f64,
    lost: f64,
}

impl RegressionLine {
    fn settle(&mut self, now: f64) {
        let passed = now - self.since;
        if self.stalls > 0 {
            self.lost += passed;
        } else if self.messages > 0 || self.asides > 0 {
            self.moved += passed;
        }
        self.since = now;
    }
}

/// A call in flight, with the accumulated shares at its four times.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    time: [f64; 3],
    moved: [f64; 3],
    lost: [f64; 3],
}

/// Pending calls by connection and transaction id. Mostly there is one.
#[derive(Debug, Default)]
struct Open {
    one: Option<((u64, u32), i64)>,
    more: HashMap<(u64, u32), i64>,
}

impl Open {
    fn is_empty(&self) -> bool {
        self.one.is_none() && self.more.is_empty()
    }

    /// A call that is sent again stays in flight since the first time.
    fn insert(&mut self, call: (u64, u32), first_ns: i64) {
        match &mut self.one {
            Some((known, _)) if *known == call => {}
            _ if self.more.contains_key(&call) => {}
            one @ None => *one = Some((call, first_ns)),
            Some(_) if self.more.len() < PENDING_MAX => _ = self.more.insert(call, first_ns),
            Some(_) => {}
        }
    }

    fn remove(&mut self, call: (u64, u32)) {
        if self.one.is_some_and(|(known, _)| known == call) {
            self.one = None;
        } else if !self.more.is_empty() {
            self.more.remove(&call);
        }
    }

    fn first_ns(&self) -> Option<i64> {
        self.one.iter().map(|(_, first)| first).chain(self.more.values()).copied().min()
    }

    fn forget_until(&mut self, ns: i64) {
        self.one = self.one.filter(|(_, first)| *first > ns);
        self.more.retain(|_, first| *first > ns);
    }
}

/// A loss that is reported this much after it began is late, in nanoseconds.
const LATE_NS: i64 = 10_000_000;

#[derive(Debug)]
pub(super) struct Sweep {
    open: Open,
    pending: Vec<Exchange>,
    asides: VecDeque<Aside>,
    /// All time before this is accounted for.
    at: Option<i64>,
    /// Losses of one connection were reported after the time of others had been accounted for. From now on accounting
    /// is delayed, so that more of them come in time.
    later: bool,
    /// The connection of the first call, and whether others had calls, too.
    first: Option<u64>,
    several: bool,
    /// The operation of the call that ended last, and its pair.
    last: (u8, Option<u8>),
}

impl Sweep {
    pub fn new() -> Self {
        Sweep {
            open: Open::default(),
            pending: Vec::new(),
            asides: VecDeque::new(),
            at: None,
            later: false,
            first: None,
            several: false,
            last: (0, None),
        }
    }

    pub fn call(&mut self, connection: u64, xid: u32, first_ns: i64) {
        self.open.insert((connection, xid), first_ns);
        self.several |= *self.first.get_or_insert(connection) != connection;
    }

    /// A call was answered, or never will be. `exchange` is set if its times are known.
    pub fn reply(&mut self, xid: u32, connection: u64, exchange: Option<Exchange>, ledger: &mut impl Ledger) {
        self.open.remove((connection, xid));
        if let Some(exchange) = exchange {
            if self.open.is_empty() && self.pending.is_empty() && self.asides.is_empty() && !self.later {
                return self.alone(exchange, ledger);
            }
            self.pending.push(exchange);
        }
        let held = self.pending.len();
        if (self.open.is_empty() && !self.later) || held >= PENDING_MAX {
            let mut until = self.open.first_ns().unwrap_or(i64::MAX);
            if self.later {
                until = until.min(self.between());
            }
            self.run(until, ledger);
            if self.pending.len() == held && held >= PENDING_MAX {
                // A call that is never answered must not hold up all that follow.
                self.open.forget_until(until);
            }
        }
    }

    pub fn aside(&mut self, aside: Aside) {
        if let Some(last) = self.asides.back_mut()
            && (last.connection, last.lost) == (aside.connection, aside.lost)
            && (last.from_ns..=last.to_ns).contains(&aside.from_ns)
        {
            last.to_ns = last.to_ns.max(aside.to_ns);
            return;
        }
        let late = self.at.is_some_and(|at| at.saturating_sub(aside.from_ns) > LATE_NS);
        self.later |= self.several && aside.lost && late;
        if self.asides.len() >= ASIDES_MAX {
            self.asides.pop_front();
            // Too many to wait.
            (self.later, self.several) = (false, false);
        }
        if aside.to_ns > aside.from_ns {
            self.asides.push_back(aside);
        }
    }

    pub fn finish(&mut self, ledger: &mut impl Ledger) {
        self.open = Open::default();
        self.run(i64::MAX, ledger);
    }

    /// Accounts for a call with no other in parallel. A fast path of [`Sweep::run`].
    fn alone(&mut self, mut exchange: Exchange, ledger: &mut impl Ledger) {
        let e = &mut exchange;
        let mut least = self.at.unwrap_or(e.at[0]);
        for at in &mut e.at {
            *at = (*at).max(least);
            least = *at;
        }
        let [begun, whole, answered, ended] = e.at;
        let at = self.at.unwrap_or(begun);
        if begun > at {
            ledger.gap(self.last.0, e, at, begun, self.last.1 == e.pair);
        }
        if ended > begun {
            ledger.busy(&[(e.pair, 1)], begun, ended);
        }
        self.at = Some(ended);
        self.last = (e.label, e.pair);
        let moving = ((whole - begun) + (ended - answered)) as f64;
        let paused = (e.paused_ns as f64).clamp(0.0, moving);
        ledger.spent(&Spent { exchange, wait: (answered - whole) as f64, moving, paused, lost: 0.0 });
    }

    /// A time at which none of the pending calls was in flight, after the first quarter of them if possible.
    fn between(&self) -> i64 {
        let mut spans: Vec<(i64, i64)> = self.pending.iter().map(|e| (e.at[0], e.at[3])).collect();
        spans.sort_unstable();
        let mut end = i64::MIN;
        for (i, (begun, ended)) in spans.iter().enumerate() {
            if i > spans.len() / 4 && *begun > end {
                return *begun;
            }
            end = end.max(*ended);
        }
        i64::MAX
    }

    /// Accounts for the calls that ended before `until`, and for all time before the first of the others.
    fn run(&mut self, until: i64, ledger: &mut impl Ledger) {
        // Calls that began later than `until` wait, because a call in flight may have begun before them.
        let (mut now, later): (Vec<Exchange>, Vec<Exchange>) =
            std::mem::take(&mut self.pending).into_iter().partition(|e| e.at[0] < until);
        self.pending = later;
        if now.is_empty() {
            return;
        }
        if let Some(at) = self.at {
            now.iter_mut().for_each(|e| e.at.iter_mut().for_each(|t| *t = (*t).max(at)));
        }
        let end = now.iter().map(|e| e.at[3]).max().unwrap_or(i64::MIN);
        let mut events: Vec<(i64, u8, u32)> = Vec::with_capacity(now.len() * 4);
        for (i, e) in now.iter_mut().enumerate() {
            // Clocks and reordering may disturb the order: each time is at least the one before.
            for k in 1..4 {
                e.at[k] = e.at[k].max(e.at[k - 1]);
            }
            let i = u32::try_from(i).unwrap_or(u32::MAX);
            events.extend(e.at.iter().zip(0u8..).map(|(ns, what)| (*ns, what, i)));
        }
        let mut asides: Vec<Aside> = Vec::new();
        while self.asides.front().is_some_and(|aside| aside.from_ns <= end) {
            asides.extend(self.asides.pop_front());
        }
        asides.sort_unstable_by_key(|aside| aside.from_ns);
        for (i, aside) in asides.iter().enumerate() {
            let i = u32::try_from(i).unwrap_or(u32::MAX);
            events.extend([(aside.from_ns, 4, i), (aside.to_ns, 5, i)]);
        }
        // What goes on beyond the end belongs to later calls.
        let beyond = asides.iter().filter(|aside| aside.to_ns > end);
        beyond.rev().for_each(|aside| self.asides.push_front(Aside { from_ns: end, ..*aside }));
        events.sort_unstable();
        let mut marks = vec![Marks::default(); now.len()];
        let mut lines: HashMap<u64, RegressionLine> = HashMap::new();
        let (mut under_way, mut shared) = (0usize, 0.0);
        // The same by pair.
        let mut of_pairs: Vec<(Option<u8>, usize)> = Vec::new();
        for (ns, what, i) in events {
            if what >= 4 && self.at.is_none() {
                continue;
            }
            let at = *self.at.get_or_insert(ns);
            if ns > at {
                if under_way > 0 {
                    shared += (ns - at) as f64 / under_way as f64;
                    ledger.busy(&of_pairs, at, ns);
                } else if what == 0 {
                    let after = &now[i as usize];
                    let (before, pair) = self.last;
                    let mut from = at;
                    // A connection without progress is so at the end of a pause, when the lost data is sent again.
                    // Bytes in flight are so at the beginning.
                    for aside in asides.iter().filter(|a| a.to_ns > at && a.from_ns < ns) {
                        let (begun, ended) = (aside.from_ns.max(from), aside.to_ns.min(ns));
                        if begun < ended {
                            if from < begun {
                                ledger.gap(before, after, from, begun, false);
                            }
                            ledger.apart(after, begun, ended, aside.lost);
                            from = ended;
                        }
                    }
                    if from < ns {
                        ledger.gap(before, after, from, ns, from == at && pair == after.pair);
                    }
                }
                if under_way > 0 || what == 0 {
                    self.at = Some(ns);
                }
            }
            if what >= 4 {
                let aside = asides[i as usize];
                if let Some(line) = lines.get_mut(&aside.connection) {
                    line.settle(shared);
                    let of = if aside.lost { &mut line.stalls } else { &mut line.asides };
                    *of = if what == 4 { *of + 1 } else { of.saturating_sub(1) };
                }
                continue;
            }
            let (e, marks) = (&now[i as usize], &mut marks[i as usize]);
            let line = lines.entry(e.connection).or_default();
            line.settle(shared);
            match what {
                0 => {
                    under_way += 1;
                    match of_pairs.iter_mut().find(|(pair, _)| *pair == e.pair) {
                        Some((_, calls)) => *calls += 1,
                        None => of_pairs.push((e.pair, 1)),
                    }
                    line.messages += 1;
                }
                1 => line.messages -= 1,
                2 => line.messages += 1,
                _ => {}
            }
            if what < 3 {
                let k = usize::from(what);
                (marks.time[k], marks.moved[k], marks.lost[k]) = (shared, line.moved, line.lost);
                continue;
            }
            line.messages -= 1;
            under_way -= 1;
            if let Some(place) = of_pairs.iter().position(|(pair, _)| *pair == e.pair) {
                of_pairs[place].1 -= 1;
                if of_pairs[place].1 == 0 {
                    of_pairs.swap_remove(place);
                }
            }
            self.last = (e.label, e.pair);
            ledger.spent(&spent(e, marks, shared, line));
        }
    }
}

fn spent(e: &Exchange, marks: &Marks, shared: f64, line: &RegressionLine) -> Spent {
    let moving = line.moved - marks.moved[0];
    let lost = line.lost - marks.lost[0];
    let wait =
        (marks.time[2] - marks.time[1]) - (marks.moved[2] - marks.moved[1]) - (marks.lost[2] - marks.lost[1]);
    // The transfer of its own messages is not waiting.
    let own_ns = ((e.at[1] - e.at[0]) + (e.at[3] - e.at[2])) as f64;
    let part = if own_ns > 0.0 { (e.paused_ns as f64 / own_ns).clamp(0.0, 1.0) } else { 0.0 };
    let own = (shared - marks.time[0]) - (marks.time[2] - marks.time[1]);
    Spent { exchange: *e, wait: wait.max(0.0), moving, paused: own.min(moving).max(0.0) * part, lost }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Sum {
        calls: u64,
        wait: f64,
        moving: f64,
        lost: f64,
        gaps: i64,
        whole: u32,
        stalled: i64,
        busy: i64,
    }

    impl Ledger for Sum {
        fn spent(&mut self, spent: &Spent) {
            assert!(spent.wait >= 0.0 && spent.moving >= 0.0 && spent.lost >= 0.0, "{spent:?}");
            assert!(spent.paused <= spent.moving, "{spent:?}");
            self.calls += 1;
            self.wait += spent.wait;
            self.moving += spent.moving;
            self.lost += spent.lost;
        }
        fn gap(&mut self, _: u8, _: &Exchange, from: i64, to: i64, whole: bool) {
            assert!(to > from);
            self.whole += u32::from(whole);
            self.gaps += to - from;
        }
        fn apart(&mut self, _: &Exchange, from: i64, to: i64, _: bool) {
            assert!(to > from);
            self.stalled += to - from;
        }
        fn busy(&mut self, calls: &[(Option<u8>, usize)], from: i64, to: i64) {
            assert!(!calls.is_empty() && calls.iter().all(|(_, calls)| *calls > 0) && to > from);
            self.busy += to - from;
        }
    }

    fn exchange(connection: u64, at: [i64; 4]) -> Exchange {
        Exchange {
            pair: Some(0),
            connection,
            class: Class::Light,
            label: 0,
            at,
            waited_ns: at[2] - at[1],
            paused_ns: 0,
            network_ns: None,
        }
    }

    fn stalls(stalls: &[(u64, i64, i64)]) -> Vec<Aside> {
        let stall = |(line, from, to): &(u64, i64, i64)| Aside {
            connection: *line,
            from_ns: *from,
            to_ns: *to,
            lost: true,
        };
        stalls.iter().map(stall).collect()
    }

    /// Feeds calls with replies and what connections did outside them, in the order in which a capture has them.
    fn told(calls: &[Exchange], asides: &[Aside]) -> Sum {
        let mut events: Vec<(i64, usize, usize)> = Vec::new();
        for (i, e) in calls.iter().enumerate() {
            events.extend([(e.at[1], 0, i), (e.at[3], 2, i)]);
        }
        events.extend(asides.iter().enumerate().map(|(i, a)| (a.to_ns, 1, i)));
        events.sort_unstable();
        let (mut sweep, mut sum) = (Sweep::new(), Sum::default());
        for (_, what, i) in events {
            let xid = u32::try_from(i).unwrap();
            match what {
                0 => sweep.call(calls[i].connection, xid, calls[i].at[0]),
                1 => sweep.aside(asides[i]),
                _ => sweep.reply(xid, calls[i].connection, Some(calls[i]), &mut sum),
            }
        }
        sweep.finish(&mut sum);
        sum
    }

    proptest! {
        /// Every instant is accounted for once.
        #[test]
        fn all_time_is_accounted_for(
            calls in proptest::collection::vec((0u64..3, 0i64..5000, 0i64..50, 0i64..300, 0i64..50), 1..60),
            asides in proptest::collection::vec((0u64..3, 0i64..5000, 1i64..200, proptest::bool::ANY), 0..5),
        ) {
            let calls: Vec<Exchange> = calls
                .iter()
                .map(|(line, from, up, wait, down)| exchange(*line, [*from, from + up, from + up + wait, from + up + wait + down]))
                .collect();
            let aside = |(line, from, len, lost): &(u64, i64, i64, bool)| {
                Aside { connection: *line, from_ns: *from, to_ns: from + len, lost: *lost }
            };
            let sum = told(&calls, &asides.iter().map(aside).collect::<Vec<_>>());
            let first = calls.iter().map(|e| e.at[0]).min().unwrap();
            let last = calls.iter().map(|e| e.at[3]).max().unwrap();
            prop_assert_eq!(sum.calls, calls.len() as u64);
            prop_assert!(sum.busy + sum.gaps + sum.stalled <= last - first);
            // A call whose beginning was seen late shares only time not accounted for before.
            prop_assert!((sum.wait + sum.moving + sum.lost) <= sum.busy as f64 + 1e-3);
        }
    }

    #[test]
    fn calls_one_after_another_take_all_of_their_time() {
        let calls: Vec<_> = (0..1000).map(|i| exchange(1, [0, 10, 60, 70].map(|t| t + 100 * i))).collect();
        let sum = told(&calls, &[]);
        assert_eq!((sum.calls, sum.gaps, sum.busy), (1000, 999 * 30, 70_000));
        assert!((sum.wait - 50_000.0).abs() < 1.0 && (sum.moving - 20_000.0).abs() < 1.0);
    }

    #[test]
    fn what_waits_behind_the_bytes_of_others_waits_for_these() {
        // Four calls at once on one connection; their replies come one after another.
        let calls: Vec<_> = (0..4).map(|i| exchange(1, [0, 0, 100 + 100 * i, 200 + 100 * i])).collect();
        let sum = told(&calls, &[]);
        assert!((sum.wait - 100.0).abs() < 1e-6, "{}", sum.wait);
        assert!((sum.moving - 400.0).abs() < 1e-6, "{}", sum.moving);
        // On separate connections they do not.
        let calls: Vec<_> =
            (0..2).map(|i: i64| exchange(i.unsigned_abs(), [0, 0, 100 + 100 * i, 200 + 100 * i])).collect();
        let sum = told(&calls, &[]);
        assert!((sum.wait - 150.0).abs() < 1e-6, "{}", sum.wait);
    }

    #[test]
    fn standing_still_after_a_loss_is_not_waiting() {
        let calls = [exchange(1, [0, 0, 1000, 1000]), exchange(1, [2000, 2000, 2010, 2010])];
        let sum = told(&calls, &stalls(&[(1, 100, 900), (1, 1200, 1900)]));
        assert!((sum.lost - 800.0).abs() < 1e-6 && (sum.wait - 210.0).abs() < 1e-6);
        assert_eq!((sum.stalled, sum.gaps, sum.whole), (700, 300, 0));
    }

    #[test]
    fn a_loss_that_is_told_when_others_went_on_is_theirs_too() {
        // Connection 1: a call each millisecond that takes a tenth of it. Connection 2: no progress for 200 ms of
        // each 300.
        let (mut sweep, mut sum) = (Sweep::new(), Sum::default());
        let ms = 1_000_000;
        sweep.call(2, 9, 0);
        sweep.reply(9, 2, None, &mut sum);
        for i in 0..3000_i64 {
            let xid = u32::try_from(i).unwrap();
            sweep.call(1, xid, i * ms);
            sweep.reply(xid, 1, Some(exchange(1, [0, 0, ms / 10, ms / 10].map(|t| t + i * ms))), &mut sum);
            if i % 300 == 299 {
                let stall = Aside { connection: 2, from_ns: (i - 200) * ms, to_ns: i * ms, lost: true };
                sweep.aside(stall);
            }
        }
        sweep.finish(&mut sum);
        assert_eq!(sum.calls, 3000);
        assert_eq!(sum.busy + sum.gaps + sum.stalled, 2999 * ms + ms / 10);
        // Except the first, which showed that losses are reported late, and what was accounted for before.
        let stalls = 9 * 200 * ms * 9 / 10 * 9 / 10;
        assert!((stalls..stalls * 5 / 4).contains(&sum.stalled), "{} of {stalls}", sum.stalled);
    }

    #[test]
    fn a_call_without_an_answer_holds_nothing_up() {
        let (mut sweep, mut sum) = (Sweep::new(), Sum::default());
        sweep.call(9, 9, 0);
        for i in 0..10 * PENDING_MAX as i64 {
            let xid = u32::try_from(i).unwrap();
            sweep.call(1, xid, 100 + i * 10);
            sweep.reply(xid, 1, Some(exchange(1, [0, 0, 5, 5].map(|t| t + 100 + i * 10))), &mut sum);
        }
        assert!(sum.calls > 8 * PENDING_MAX as u64);
        assert!(sweep.pending.len() <= PENDING_MAX);
    }
}
