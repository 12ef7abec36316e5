//! Phrases the findings for people: the verdict, its evidence, advice, and how far to trust it. No I/O.

use super::findings::{Findings, Side};
use super::name;
use super::stalls::{Place, Rhythm, Stall};
use crate::skim::facts::Class;
use crate::trace::Totals;
use landfast_model::{Bound, Device, SEEN_S, Shares, Wait};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words {
    /// What bounds the work, in one sentence.
    pub verdict: String,
    /// What in the capture supports the verdict.
    pub evidence: Vec<String>,
    /// What would change it.
    pub advice: Vec<String>,
    /// Reasons to doubt it.
    pub doubts: Vec<String>,
    pub confidence: Confidence,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Few calls, or many are missing.
    #[default]
    Low,
    /// Something is missing.
    Medium,
    /// Nearly all calls have replies, and the place of the capture is known.
    High,
}

impl Confidence {
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

/// Fewer calls of a kind do not make a distribution.
const FEW: u64 = 10;
/// At most this many clients get a sentence each.
const CLIENTS: usize = 6;
/// A smaller part gets no sentence.
const WORTH: f64 = 0.05;
/// One hole in this many calls matters.
const HOLES_EACH: u64 = 100;
/// If the clock was set back by a smaller part of the span, little was shifted.
const SET_BACK_LITTLE: f64 = 0.01;
/// From this part of the calls on, unreadable calls matter.
const SOME: f64 = 0.02;

/// A longer period is not that of a quota, in seconds.
const QUOTA_S: f64 = 1.0;

/// When a stall began, relative to the first frame.
fn since(stall: &Stall, totals: &Totals) -> String {
    let first = totals.span.map_or(stall.from_ns, |(first, _)| first);
    format!("{:.2} s", stall.from_ns.saturating_sub(first).max(0) as f64 / 1e9)
}

/// What a part of the time was spent on.
pub fn part(bound: Bound) -> &'static str {
    match bound {
        Bound::Rtt => "round trips",
        Bound::Persistence => "persistence",
        Bound::Server => "the server's other work",
        Bound::Bandwidth => "bandwidth",
        Bound::Client => "the client itself",
        Bound::Loss => "losses",
        Bound::Mixed => "several things alike",
    }
}

/// A time with three digits and a unit.
pub fn time(s: f64) -> String {
    Unit::of([s]).show(s)
}

/// One unit for times shown below each other: chosen for the longest, with enough digits for the shortest.
#[derive(Debug, Clone, Copy)]
pub struct Unit {
    a_second: f64,
    name: &'static str,
    digits: usize,
}

/// The shortest time may have at most this many digits more than the longest needs.
const MORE_DIGITS: usize = 2;

impl Unit {
    /// For these times, in seconds.
    pub fn of(times: impl IntoIterator<Item = f64>) -> Unit {
        let (mut most, mut least) = (0.0f64, f64::INFINITY);
        for s in times.into_iter().map(f64::abs).filter(|s| s.is_finite() && *s > 0.0) {
            (most, least) = (most.max(s), least.min(s));
        }
        let (a_second, name) = match most {
            t if t >= 2.0 * 86_400.0 => (1.0 / 86_400.0, "days"),
            t if t >= 2.0 * 3600.0 => (1.0 / 3600.0, "h"),
            t if t >= 600.0 => (1.0 / 60.0, "min"),
            t if t >= 0.9995 => (1.0, "s"),
            t if t >= 0.9995e-3 => (1e3, "ms"),
            _ => (1e6, "µs"),
        };
        let digits = match most * a_second {
            v if v >= 99.95 => 0,
            v if v >= 9.995 => 1,
            _ => 2,
        };
        // Two digits of the shortest are visible.
        let hidden = (1.0 - (least * a_second).log10().floor()).clamp(0.0, (digits + MORE_DIGITS) as f64);
        let digits = if least < most { digits.max(hidden as usize) } else { digits };
        Unit { a_second, name, digits }
    }

    pub fn show(&self, s: f64) -> String {
        format!("{:.*} {}", self.digits, s * self.a_second, self.name)
    }
}

/// What bounds work with these parts.
fn bound_by(shares: &Shares) -> String {
    let total = shares.total();
    let percent = |s: f64| format!("{:.0} %", s / total.max(f64::MIN_POSITIVE) * 100.0);
    let [(first, most), (second, next), ..] = shares.parts();
    if next < 0.005 * total {
        return format!("Bound by {}: {} of {}", part(first), percent(most), time(total));
    }
    let mixed = shares.verdict().is_some_and(|verdict| verdict.bound == Bound::Mixed);
    let [first, second] = [first, second].map(part);
    match mixed {
        true => format!(
            "Bound by {first} ({}) and {second} ({}) alike, of {}",
            percent(most),
            percent(next),
            time(total)
        ),
        false => format!(
            "Bound by {first}: {} of {}. Next: {second}, {}",
            percent(most),
            time(total),
            percent(next)
        ),
    }
}

/// A count with its noun: `1 call`, `1,888 calls`.
fn many(n: u64, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{} {one}s", count(n)) }
}

fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl Findings {
    /// The findings in words. `None`: no call was answered.
    pub fn words(&self, totals: &Totals) -> Option<Words> {
        if self.several {
            return Some(self.words_of_each(totals));
        }
        self.verdict?;
        let total = self.shares.total();
        let parts = self.shares.parts();
        let [(first, most), (second, _), ..] = parts;
        let stalls = self.stalls.time_s;
        let verdict = bound_by(&self.shares);
        let verdict = match self.stalled(totals) {
            Some(said) if stalls > most => format!(
                "{said}: {:.0} % of {}. The rest: {}{}",
                stalls / (total + stalls) * 100.0,
                time(total + stalls),
                verdict[..1].to_lowercase(),
                &verdict[1..]
            ),
            _ => verdict,
        };
        let worth = || parts.iter().filter(|(_, s)| *s >= WORTH * total);
        let mut evidence = self.stall_lines(totals);
        evidence.extend(worth().map(|(bound, s)| self.evidence(*bound, *s, totals)));
        evidence.extend(self.device().map(|(device, wait)| {
            format!(
                "The wait for stable storage ({} in the middle) looks like {}",
                time(wait.median_s),
                device.words()
            )
        }));
        let bounds = if self.verdict?.bound == Bound::Mixed { vec![first, second] } else { vec![first] };
        let of_stalls = (stalls > 0.0).then(|| self.advice_on_stalls());
        let of_parts = bounds.into_iter().map(|bound| self.advice(bound));
        // The largest cause comes first.
        let advice: Vec<String> = match stalls > most {
            true => of_stalls.into_iter().chain(of_parts).collect(),
            false => of_parts.chain(of_stalls).collect(),
        };
        Some(Words {
            verdict,
            evidence,
            advice,
            doubts: self.doubts(totals),
            confidence: self.confidence(totals),
        })
    }

    /// The stalls in one sentence. `None`: there are none.
    fn stalled(&self, totals: &Totals) -> Option<String> {
        let stalls = &self.stalls;
        let longest = stalls.waits().next()?;
        let who = match longest.place {
            Place::Network => "the network delivered no answer",
            _ if longest.nobody => "the server answered nobody",
            _ => "the server left calls waiting",
        };
        Some(match (stalls.rhythm, stalls.count) {
            (Some(Rhythm { period_s, each_s }), n) => format!(
                "Every {} {who} for {} ({}, {} waited)",
                time(period_s),
                time(each_s),
                many(n, "time"),
                many(stalls.calls, "call")
            ),
            (None, 1) => format!(
                "At {} {who} for {} ({} waited)",
                since(longest, totals),
                time(longest.length_s()),
                many(stalls.calls, "call")
            ),
            (None, n) => format!(
                "{} times {who} ({} waited; longest for {} at {})",
                count(n),
                many(stalls.calls, "call"),
                time(longest.length_s()),
                since(longest, totals)
            ),
        })
    }

    /// One line for each reported stall, with its time and its calls.
    fn stall_lines(&self, totals: &Totals) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(said) = self.stalled(totals) {
            let beside = match self.stalls.rhythm {
                Some(_) => "",
                None if self.stalls.waits().any(|s| s.place == Place::Network) => "",
                None if self.both.is_some() => ": both ends have it, it is the server",
                None if matches!(self.side, Side::Server | Side::Loopback) => "",
                None => "; the server or the way to it, captures of both ends tell which (`--merge`)",
            };
            lines.push(format!("{said}: {} that is in no part below{beside}", time(self.stalls.time_s)));
            let others = self.stalls.waits().skip(1).take(3).filter(|_| self.stalls.rhythm.is_none());
            let others: Vec<String> = others
                .map(|s| {
                    format!("at {} for {} ({})", since(s, totals), time(s.length_s()), many(s.calls, "call"))
                })
                .collect();
            if !others.is_empty() {
                lines.push(format!("Also {}", others.join(", ")));
            }
        }
        let pauses = self.stalls.longest.iter().filter(|s| s.place == Place::Client).take(3);
        let pauses: Vec<String> =
            pauses.map(|s| format!("at {} for {}", since(s, totals), time(s.length_s()))).collect();
        if !pauses.is_empty() {
            lines.push(format!("The client asked for nothing {}: in no part below", pauses.join(", ")));
        }
        lines
    }

    fn advice_on_stalls(&self) -> String {
        match self.stalls.rhythm {
            Some(rhythm) if rhythm.period_s <= QUOTA_S => {
                "A quota holds the server up at equal distances: look at its share of processor time and of input and output \
                 (cgroup cpu.max and io.max, a container's or a cloud volume's limits). No log device and no shorter way changes that"
            }
            Some(_) => {
                "Something at the server runs at equal distances and holds it up: a journal's commit, a cache that is written back, a \
                 snapshot. Look at what runs there then"
            }
            None if self.stalls.waits().any(|s| s.place == Place::Network) => {
                "Look at the network at these times: what was queued, rerouted or paused. Neither the server nor its disks were slow"
            }
            None => {
                "Look at what the server did at these times: its log, load, memory, disks, a snapshot, a restart. A log device, a shorter way or \
                 fewer calls do not help against these"
            }
        }
        .to_owned()
    }

    /// A verdict for each client, if they are bound by different things. Those that lost most time come first.
    fn words_of_each(&self, totals: &Totals) -> Words {
        let mut evidence = Vec::new();
        let mut bounds: Vec<Bound> = Vec::new();
        for pair in self.pairs.iter().take(CLIENTS) {
            evidence.push(self.of_client(pair));
            let [(first, most), (second, _), ..] = pair.shares.parts();
            if let Some(verdict) = pair.verdict
                && most >= pair.stalls.time_s
            {
                bounds.push(first);
                bounds.extend((verdict.bound == Bound::Mixed).then_some(second));
            }
        }
        let others = self.pairs.len().saturating_sub(CLIENTS);
        if others > 0 {
            let lost: f64 = self.pairs.iter().skip(CLIENTS).map(super::findings::Pair::lost_s).sum();
            evidence.push(format!(
                "{}, by which {} were lost",
                many(others as u64, "other client"),
                time(lost)
            ));
        }
        evidence.extend(self.stall_lines(totals));
        let mut known = Vec::new();
        bounds.retain(|bound| {
            let new = !known.contains(bound);
            known.push(*bound);
            new
        });
        let stalls = (self.stalls.time_s > 0.0).then(|| self.advice_on_stalls());
        let advice = bounds
            .into_iter()
            .take(3)
            .map(|bound| format!("Against {}: {}", part(bound), self.advice(bound)));
        let first = self.pairs.first().map_or_else(String::new, |pair| self.of_client(pair));
        Words {
            verdict: format!(
                "{} are bound by different things. Most time is lost by {first}",
                many(self.pairs.len() as u64, "client")
            ),
            evidence,
            advice: advice.chain(stalls).collect(),
            doubts: self.doubts(totals),
            confidence: self.confidence(totals),
        }
    }

    /// What bounds one client's work.
    fn of_client(&self, pair: &super::findings::Pair) -> String {
        // Names the server if there are several.
        let servers = |pair: &super::findings::Pair| pair.ends.map(|(_, server)| server);
        let one_server = self.pairs.iter().all(|other| servers(other) == servers(pair));
        let who = match pair.ends {
            Some((client, _)) if one_server => client.to_string(),
            Some((client, server)) => format!("{client} at {server}"),
            None => "others, too many to be told apart".to_owned(),
        };
        let calls = many(pair.calls, "call");
        let (total, stalls) = (pair.shares.total(), pair.stalls.time_s);
        let bound = bound_by(&pair.shares);
        let bound = format!("{}{}", bound[..1].to_lowercase(), &bound[1..]);
        if stalls > pair.shares.parts()[0].1 {
            let n = many(pair.stalls.count, "stall");
            return format!(
                "{who}: {n} took {} of {} ({calls}); the rest is {bound}",
                time(stalls),
                time(total + stalls)
            );
        }
        format!("{who}: {bound} ({calls})")
    }

    fn evidence(&self, bound: Bound, s: f64, totals: &Totals) -> String {
        let (t, w) = (&self.terms, &self.work);
        let under_way = match t.in_flight {
            n if n < 1.05 => "one at a time".to_owned(),
            n => format!("{n:.1} under way at a time"),
        };
        match bound {
            Bound::Rtt => format!(
                "{}, {under_way}, with a round trip of {}: {}",
                many(w.calls, "call"),
                time(t.round_trip_s),
                time(s)
            ),
            Bound::Persistence => format!(
                "{} whose effect had to be stable took {} longer than others on average: {}{}",
                many(w.synchronous_calls, "call"),
                time(t.persistence_s),
                time(s),
                self.spread_of_waits()
            ),
            Bound::Server => format!(
                "Beyond the round trip the server took {} for a call with nothing to make stable: {} in all",
                time(t.server_s),
                time(s)
            ),
            Bound::Bandwidth => format!("Bytes were on their way for {}{}", time(s), self.rate()),
            Bound::Client => format!(
                "Between an answer and the next call, with nothing under way, the client took {} a call: {}{}{}",
                time(s / (w.calls as f64).max(1.0)),
                time(s),
                self.pauses_of_files(s),
                self.longest_pauses()
            ),
            Bound::Loss | Bound::Mixed => format!(
                "Connections stood still for {} until what was lost was sent again ({} seen twice)",
                time(s),
                many(totals.tcp.retransmitted, "segment")
            ),
        }
    }

    /// A clause on the program's own work between files, if it is a considerable part of the client's time.
    fn pauses_of_files(&self, client_s: f64) -> String {
        let own_s = self.terms.file_think_s * self.work.files as f64;
        if own_s < 0.2 * client_s {
            return String::new();
        }
        format!(", {} of it before a file is begun ({} each)", time(own_s), time(self.terms.file_think_s))
    }

    fn rate(&self) -> String {
        let rate = self.terms.upload_bytes_per_s.or(self.terms.download_bytes_per_s);
        rate.map_or_else(String::new, |rate| {
            format!(", at {:.2} MB/s ({:.1} Mbit/s)", rate / 1e6, rate * 8.0 / 1e6)
        })
    }

    fn spread_of_waits(&self) -> String {
        let Some(class) = self.slowest() else { return String::new() };
        let waits = &self.waits[class as usize];
        let at = |percent| waits.percentile_ns(percent).map_or_else(String::new, |ns| time(ns / 1e9));
        format!(" ({}: median {}, 99th percentile {})", class.words(), at(50.0), at(99.0))
    }

    /// The kind of durable change that waited longest in total.
    fn slowest(&self) -> Option<Class> {
        let stable =
            Class::ALL.into_iter().filter(|c| c.is_synchronous() && self.waits[*c as usize].count() > 0);
        stable.max_by(|a, b| self.waits[*a as usize].sum_ns().total_cmp(&self.waits[*b as usize].sum_ns()))
    }

    fn longest_pauses(&self) -> String {
        let Some(pause) = self.pauses.first() else { return String::new() };
        format!(
            "; most of it between {} and {} ({}, {} each)",
            name(pause.before),
            name(pause.after),
            many(pause.count, "time"),
            time(pause.median_ns / 1e9)
        )
    }

    /// The device that the waits for durability look like. It uses WRITE FILE_SYNC and COMMIT or, without any,
    /// metadata changes.
    pub fn device(&self) -> Option<(Device, Wait)> {
        let waits =
            [Class::StableWrite, Class::Commit, Class::Metadata].map(|class| &self.waits[class as usize]);
        let waits = waits.into_iter().find(|waits| waits.count() >= FEW)?;
        let (Some(p10), Some(median)) = (waits.percentile_ns(10.0), waits.percentile_ns(50.0)) else {
            return None;
        };
        let wait = Wait { p10_s: p10 / 1e9, median_s: median / 1e9 };
        Some((Device::of(&wait), wait))
    }

    fn advice(&self, bound: Bound) -> String {
        match bound {
            Bound::Rtt if self.terms.in_flight < 1.5 => {
                "A faster disk or server changes little. Fewer calls for a file, or many at a time: whole trees in few COMPOUNDs \
                 (`landfast untar`, `landfast cp`), several processes, delegations; or a shorter way to the server"
            }
            Bound::Rtt => "A faster disk or server changes little. Fewer calls for a file (`landfast untar`, `landfast cp`), or a shorter way",
            Bound::Persistence => {
                "A log on a device that is stable at once (flash with power-loss protection) in front of the server's disks \
                 (`landfast serve --log`, a ZFS log device), or many calls at a time that share a flush. A faster network changes little"
            }
            Bound::Server => {
                "The server's processor, its threads, or disks that it reads from: look there (load, iowait) while the work runs. \
                 A log device and a shorter way change little"
            }
            Bound::Bandwidth => "A faster link, less to send, or work nearer to the data. Neither a log device nor fewer calls help",
            Bound::Client => {
                "The server waits for the client: look at what the program does between its calls, or run several at a time. \
                 Neither the network nor the server's disks matter much"
            }
            Bound::Loss | Bound::Mixed => {
                "Find where segments are lost: cables, duplex, a full queue, an MTU that differs. One loss costs a timeout of 200 ms or more"
            }
        }
        .to_owned()
    }

    fn doubts(&self, totals: &Totals) -> Vec<String> {
        let mut doubts = self.stability();
        if self.irregular_s > WORTH * self.shares.total() {
            doubts.push(format!(
                "Not in these parts: {} of pauses that came now and then and were longer than such pauses mostly are (idle, or disturbed)",
                time(self.irregular_s)
            ));
        }
        doubts.push(
            match self.side {
                Side::Client => "Captured at the client: service times have the network in them",
                Side::Server => "Captured at the server: the network is in the pauses between calls, not in the service times",
                Side::Middle => "Captured between client and server",
                Side::Loopback => "Client and server are one machine",
                Side::Unknown if self.pairs.iter().any(|pair| pair.no_acknowledgements) => {
                    "Where the capture was made cannot be told: acknowledgements without data are not in it (filtered out, or exported without them). \
                     A way between client and server would be among the client's pauses, and losses are not seen"
                }
                Side::Unknown => "Where the capture was made cannot be told: both ways are short",
            }
            .to_owned(),
        );
        if self.encrypted(totals) > SOME {
            doubts.push(format!(
                "{} of {} calls are encrypted (krb5p): which of them had to be stable, a capture tells of version 3 by their procedures, but for \
                 WRITE, and of version 4 not at all; what they waited for storage is among the server's other work and the round trips \
                 then (`landfast trace --mountstats` at the client knows the operations)",
                count(totals.encrypted_calls),
                count(totals.calls_seen)
            ));
        }
        doubts.extend(self.weaknesses(totals).into_iter().map(|(_, said)| said));
        if totals.calls_seen > totals.calls_matched {
            doubts.push(format!(
                "{} of {} calls have no answer with times in the capture",
                count(totals.calls_seen - totals.calls_matched),
                count(totals.calls_seen)
            ));
        }
        doubts
    }

    /// Whether the replies look durable at all.
    fn stability(&self) -> Vec<String> {
        const VERIFY: &str = "a capture cannot tell which; `landfast verify` around a power cut can";
        let middle = |class: Class| {
            let waits = &self.waits[class as usize];
            (waits.count() >= FEW).then(|| waits.percentile_ns(50.0)).flatten().map(|ns| ns / 1e9)
        };
        let data = [Class::StableWrite, Class::Commit].into_iter().filter_map(|c| middle(c).map(|s| (c, s)));
        let data = data.max_by(|a, b| a.1.total_cmp(&b.1));
        let metadata = middle(Class::Metadata);
        let unstable = middle(Class::Unstable).map(|s| (s - self.floor_ns / 1e9).max(0.0));
        let mut doubts = Vec::new();
        match (data, unstable) {
            (Some((class, s)), Some(unstable)) if s <= SEEN_S.max(1.2 * unstable) => doubts.push(format!(
                "{} is answered as fast as WRITE UNSTABLE ({} and {} beyond a lookup): memory that survives a power cut, or answers \
                 before the data is stable; {VERIFY}",
                class.words(),
                time(s),
                time(unstable)
            )),
            (Some((class, s)), None) if s <= SEEN_S => doubts.push(format!(
                "{} is answered as fast as a lookup: memory that survives a power cut, or answers before the data is stable; {VERIFY}",
                class.words()
            )),
            _ => {}
        }
        if let (Some((class, s)), Some(changes)) = (data, metadata)
            && s >= 1e-3
            && changes <= 0.2 * s
        {
            doubts.push(format!(
                "Changes of names and attributes are answered {} a lookup where {} takes {}: perhaps they are not on stable storage when \
                 they are answered (an `async` export, or a server that does not commit them); {VERIFY}",
                if changes < SEEN_S { "as fast as".to_owned() } else { format!("{} after", time(changes)) },
                class.words(),
                time(s)
            ));
        }
        doubts
    }

    /// The part of all calls that is encrypted, counted over the whole capture.
    fn encrypted(&self, totals: &Totals) -> f64 {
        (totals.encrypted_calls as f64 / (totals.calls_seen as f64).max(1.0)).min(1.0)
    }

    /// What lowers the confidence in the verdict, and how far.
    fn weaknesses(&self, totals: &Totals) -> Vec<(Confidence, String)> {
        use Confidence::{Low, Medium};
        let mut found = Vec::new();
        let Some(verdict) = self.verdict else { return found };
        if totals.set_back > 0 {
            // Frames after the step overlap those before, so stalls and pauses there are not real. A single small
            // step does little harm.
            let back = totals.set_back_ns as f64;
            let span = totals.span.map_or(0.0, |(from, to)| to.saturating_sub(from) as f64);
            found.push((
                if totals.set_back >= 3 || back > SET_BACK_LITTLE * span { Low } else { Medium },
                format!(
                    "The clock of the capture was set back {}, by at least {}{}: times across that are wrong, and what came after lies upon what was \
                     before",
                    many(totals.set_back, "time"),
                    time(back * 1e-9),
                    if totals.set_back > 1 { " in all" } else { "" }
                ),
            ));
        }
        // Then durability counts as part of the server's other work.
        let unread = self.unread.saturating_sub(totals.encrypted_calls);
        let of_all = unread as f64 / (totals.calls_matched as f64).max(1.0);
        if of_all > SOME && matches!(verdict.first, Bound::Server | Bound::Persistence) {
            found.push((
                if of_all > 0.5 { Low } else { Medium },
                format!(
                    "Of {} of {} not even the operation was captured: their waits for stable storage, if they have any, count as the \
                     server's other work; capture 512 bytes of each frame or all (tcpdump -s 0)",
                    many(unread, "call"),
                    count(totals.calls_matched)
                ),
            ));
        }
        if totals.copies > 0 {
            found.push((
                Medium,
                format!(
                    "{} were captured twice (a mirrored port, or several interfaces): each counts once",
                    many(totals.copies, "packet")
                ),
            ));
        }
        if totals.tcp.holes * HOLES_EACH > totals.calls_matched {
            found.push((
                Medium,
                format!("{} in the capture: what was in them is in no part", many(totals.tcp.holes, "hole")),
            ));
        }
        let plain = self.waits[Class::Light as usize].count();
        let compares = matches!(verdict.first, Bound::Persistence | Bound::Server);
        if compares && plain < FEW {
            let said = match plain {
                0 => "No call with nothing to make stable is there to compare with".to_owned(),
                n => format!(
                    "Only {} with nothing to make stable {} there to compare with",
                    many(n, "call"),
                    if n == 1 { "is" } else { "are" }
                ),
            };
            found.push((Medium, format!("{said}: what the server takes otherwise is not known")));
        }
        if let Some(n) = self.half_in(verdict.first)
            && n < FEW
        {
            found.push((
                if n < 3 { Low } else { Medium },
                format!(
                    "Half of the time of {} is in {}: it may be another thing the next time",
                    part(verdict.first),
                    many(n, "call")
                ),
            ));
        }
        if let Some((_, sum)) = self.both.as_ref().map(super::both::Both::rows) {
            let share = sum.calls as f64 / (totals.calls_matched as f64).max(1.0);
            if share < 0.9 {
                found.push((
                    if share < 0.5 { Low } else { Medium },
                    format!(
                        "Only {} of {} calls are in both captures",
                        count(sum.calls),
                        count(totals.calls_matched)
                    ),
                ));
            } else if sum.there_ns > sum.here_ns {
                found.push((
                    Medium,
                    "Calls take longer at the server than at the client: the two captures do not agree"
                        .to_owned(),
                ));
            }
        }
        found
    }

    /// How few calls make up half of a part of the time. `None`: the part does not consist of waits that differ.
    fn half_in(&self, bound: Bound) -> Option<u64> {
        let synchronous = match bound {
            Bound::Persistence => true,
            Bound::Server => false,
            _ => return None,
        };
        let classes = Class::ALL.into_iter().filter(|class| class.is_synchronous() == synchronous);
        let mut steps: Vec<(f64, u64)> =
            classes.flat_map(|class| self.waits[class as usize].steps().map(|(ns, n, _)| (ns, n))).collect();
        steps.sort_by(|a, b| b.0.total_cmp(&a.0));
        let half = steps.iter().map(|(ns, n)| ns * *n as f64).sum::<f64>() / 2.0;
        let (mut calls, mut sum) = (0u64, 0.0);
        for (ns, n) in steps {
            if ns <= 0.0 {
                break;
            }
            let wanted = ((half - sum) / ns).ceil().max(0.0);
            if wanted <= n as f64 {
                return Some(calls + wanted as u64);
            }
            calls += n;
            sum += ns * n as f64;
        }
        None
    }

    fn confidence(&self, totals: &Totals) -> Confidence {
        let matched = totals.calls_matched as f64 / (totals.calls_seen as f64).max(1.0);
        let encrypted = self.encrypted(totals);
        let of_calls = if totals.calls_matched < 20 || matched < 0.5 || encrypted > 0.5 {
            Confidence::Low
        } else if encrypted > SOME
            || matched < 0.98
            || self.side == Side::Unknown
            || totals.calls_matched < 100
        {
            Confidence::Medium
        } else {
            Confidence::High
        };
        let weaknesses = self.weaknesses(totals);
        // Three small weaknesses count like one large one.
        let all = if weaknesses.len() >= 3 { Confidence::Low } else { Confidence::High };
        weaknesses.into_iter().map(|(confidence, _)| confidence).fold(of_calls.min(all), Confidence::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let shown = [0.0, 1e-7, 85e-6, 0.01009, 0.9999, 1.234, 31.94, 3661.0, 1e4, 1e6].map(time);
        let expected = [
            "0.00 µs",
            "0.10 µs",
            "85.0 µs",
            "10.1 ms",
            "1.00 s",
            "1.23 s",
            "31.9 s",
            "61.0 min",
            "2.78 h",
            "11.6 days",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn times_below_each_other_have_one_unit() {
        let shown = |times: &[f64]| {
            let unit = Unit::of(times.iter().copied());
            times.iter().map(|s| unit.show(*s)).collect::<Vec<_>>()
        };
        assert_eq!(shown(&[1.234, 0.0567, 0.0]), ["1.234 s", "0.057 s", "0.000 s"]);
        assert_eq!(shown(&[0.02, 85e-6]), ["20.000 ms", "0.085 ms"]);
        assert_eq!(shown(&[0.2, 0.1]), ["200 ms", "100 ms"]);
        // A value close to nothing beside the others is shown like that.
        assert_eq!(shown(&[12.0, 1e-7]), ["12.000 s", "0.000 s"]);
        assert_eq!(shown(&[]), Vec::<String>::new());
        assert_eq!(Unit::of([]).show(0.0), "0.00 µs");
    }

    #[test]
    fn counts_have_groups() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }
}
