//! What the acknowledgements of a TCP connection say of the way between its ends: round trips, and stalls after losses. Pure.

use crate::line::{Line, Pace, SEGMENT};
use std::ops::Range;

/// The shortest time from a segment to its acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shortest {
    /// Nanoseconds.
    pub ns: i64,
    /// What of these the bytes of both took on a narrow line.
    pub on_line_ns: i64,
    /// Whether whoever acknowledged it was seen to send acknowledgements alone: else they may have waited for bytes to go with.
    pub bare: bool,
}

/// One direction: what was sent, and when the other end was heard to have it.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// The number behind the last byte that was sent.
    high: Option<u32>,
    /// The number behind the last byte that the other end has.
    acked: Option<u32>,
    /// The segment whose acknowledgement is waited for: the number behind it, and when it went by.
    timed: Option<(u32, i64)>,
    timed_len: u32,
    /// The same of one at a time, whatever is sent behind it; at 0 there is none.
    sampled: (u32, i64),
    shortest_ns: Option<i64>,
    /// Bytes of the segment that was acknowledged soonest.
    shortest_len: u32,
    latest_ns: i64,
    /// Since when segments behind a hole wait.
    early_ns: Option<i64>,
    /// The first number of the last long message and the one behind it, and since when bytes are on their way of which nothing more was sent: the end of that is
    /// when the other end was last heard to get more.
    long: Option<(u32, u32)>,
    rest: (i64, i64),
    /// When bytes were sent last.
    sent_ns: i64,
    /// Since when nothing more of what was sent is acknowledged.
    waiting_ns: i64,
    /// Bytes that were sent without a pause of half a round trip: since the last one, and the most that there were.
    burst: u32,
    most: u32,
    /// Its sender sends less at a time because something was lost.
    held: Option<Held>,
    /// How long bytes took, one behind the other: those that were acknowledged, and those that came by.
    acknowledged: Pace,
    came: Pace,
    /// The number and the length of the last packet.
    packet: (u16, u32),
    /// Packets with numbers, and how many of them did not follow the one before though nothing was waited for.
    numbers: (u32, u32),
    /// Acknowledgements without bytes that its sender sent.
    bare: u32,
    /// What the last of them acknowledged, and how often that was said again.
    said: (u32, u8),
    /// The last packets, by which a second copy of one is known; the next place.
    copies: ([(u32, u32); COPIES], u8),
}

/// Packets of which a second copy is known.
const COPIES: usize = 4;

/// Of so many packets no more than one may break the row of the numbers by itself, or they tell nothing.
const IN_ROW: u32 = 8;

/// An acknowledgement that is said again so often tells of a loss (RFC 5681 section 3.2).
const SAID_AGAIN: u8 = 3;

/// A sender that lost something: it goes on with fewer bytes at a time (RFC 5681 section 3.1) until there are as many as before.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// The number behind the last byte that was sent before.
    until: u32,
    /// As many bytes as would be sent at a time if nothing had been lost.
    reach: u32,
}

/// What the number of a packet says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbered {
    /// Nothing.
    None,
    /// It follows the one before.
    InRow,
    /// A few are missing between the two.
    Missing,
    /// It has nothing to do with the one before: numbers by chance, or one row for all that a host sends.
    Elsewhere,
}

/// What a segment carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carried {
    /// Bytes that did not go by before.
    New,
    /// Bytes that went by before, and the other end was not heard to have them.
    Missing,
    /// Bytes that the other end was heard to have: what said so was late, or lost.
    Known,
}

fn is_behind(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

impl Way {
    /// A segment went by, up to before `end`.
    pub fn sent(&mut self, end: u32, ns: i64) -> Carried {
        let new = self.high.is_none_or(|high| is_behind(end, high));
        if new {
            if self.high.is_none_or(|high| self.acked.is_none_or(|acked| !is_behind(high, acked))) {
                self.waiting_ns = ns;
            }
            self.timed_len = self.high.map_or(0, |high| end.wrapping_sub(high));
            self.high = Some(end);
            self.timed = Some((end, ns));
            if self.sampled.1 == 0 {
                self.sampled = (end, ns);
            }
            return Carried::New;
        }
        // Nobody knows which of the two an acknowledgement is for.
        self.timed = None;
        self.sampled.1 = 0;
        if self.acked.is_none_or(|acked| is_behind(end, acked)) { Carried::Missing } else { Carried::Known }
    }

    /// The other end has all before `ack`. `true`: that is news.
    pub fn acked(&mut self, ack: u32, ns: i64) -> bool {
        if let Some((end, sent)) = self.timed
            && !is_behind(end, ack)
        {
            let took = ns.saturating_sub(sent).max(0);
            if self.shortest_ns.is_none_or(|ns| took < ns) {
                (self.shortest_ns, self.shortest_len) = (Some(took), self.timed_len);
            }
            self.timed = None;
        }
        let (end, sent) = self.sampled;
        if sent != 0 && !is_behind(end, ack) {
            self.latest_ns = ns.saturating_sub(sent).max(0);
            self.sampled.1 = 0;
        }
        let news = self.acked.is_none_or(|acked| is_behind(ack, acked));
        if news {
            // Of one message, which had all been sent; what acknowledges its end may have waited for more, or for a program to read.
            if let (Some((begin, end)), Some(acked), None) = (self.long, self.acked, self.held)
                && is_behind(acked, begin)
                && is_behind(end, ack)
                && self.waiting_ns >= self.sent_ns
            {
                self.acknowledged.add(ack.wrapping_sub(acked), ns.saturating_sub(self.waiting_ns));
            }
            self.waiting_ns = ns;
            if let (Some((_, end)), Some(shortest)) = (self.long, self.shortest_ns) {
                // What acknowledges the end may have waited for more, or for a program to read.
                if is_behind(end, ack) {
                    self.rest.1 = ns.saturating_sub(shortest).max(self.rest.1);
                } else {
                    self.long = None;
                }
            }
            self.acked = Some(ack);
        }
        news
    }

    /// Since when what was sent stands still, now that some of it is sent again: nothing more of it was acknowledged, or its sender sent
    /// no more.
    pub fn sent_again(&mut self, ns: i64) -> i64 {
        let waiting_ns = std::mem::replace(&mut self.waiting_ns, ns);
        // Of a SYN nothing was sent yet.
        if self.sent_ns == 0 { waiting_ns } else { waiting_ns.min(self.sent_ns) }
    }

    /// Something that was sent in this direction was lost, as it shows now.
    pub fn lost(&mut self) {
        let reach = self.held.map_or(0, |held| held.reach).max(self.most);
        self.held = self.high.map(|until| Held { until, reach });
    }

    /// When bytes were sent last.
    pub fn sent_last_ns(&self) -> i64 {
        self.sent_ns
    }

    /// How much of a pause in the middle of a message there would not be if nothing had been lost: then its sender would have sent more at
    /// a time, twice as much after each round trip.
    pub fn held_back(&mut self, pause_ns: i64, around: &Range<i64>) -> i64 {
        let Some(held) = &mut self.held else { return 0 };
        if pause_ns < around.start {
            return 0;
        }
        let part =
            if pause_ns < around.end { f64::from(self.burst) / f64::from(held.reach.max(1)) } else { 0.0 };
        held.reach = held.reach.saturating_mul(2).min(REACH_MAX.max(self.most));
        (pause_ns as f64 * (1.0 - part.min(1.0))) as i64
    }

    /// A packet with this number and so many bytes went by: whether its sender had sent others before that did not come here. (Linux
    /// numbers the packets of a connection one after another; one that the network card cut in pieces has more numbers than one.)
    pub fn numbered(&mut self, number: u16, len: u32) -> Numbered {
        let (before, pieces) =
            (self.packet.0, self.packet.1.saturating_sub(PIECE_MAX).div_ceil(PIECE_MIN) + 1);
        self.packet = (number, len);
        let passed = u32::from(number.wrapping_sub(before));
        if number == 0 || before == 0 {
            return Numbered::None;
        }
        self.numbers.0 = self.numbers.0.saturating_add(1);
        match passed {
            p if p <= pieces => Numbered::InRow,
            p if p <= pieces + NUMBERS_MAX => Numbered::Missing,
            _ => Numbered::Elsewhere,
        }
    }

    /// Whether this very packet was captured before: a port that mirrors both ways, or an interface and the bridge behind it. What is sent
    /// again has another number; of packets without numbers nothing is known.
    pub fn is_copy(&mut self, number: u16, seq: u32, len: u32) -> bool {
        if number == 0 {
            return false;
        }
        let this = (seq, u32::from(number) << 16 | (len & 0xffff));
        let (last, next) = &mut self.copies;
        if last.contains(&this) {
            return true;
        }
        last[usize::from(*next) % COPIES] = this;
        *next = next.wrapping_add(1);
        false
    }

    /// A packet broke the row of the numbers, and nobody had waited for one.
    pub fn out_of_row(&mut self) {
        self.numbers.1 = self.numbers.1.saturating_add(1);
    }

    /// Whether the numbers of its packets tell of those that did not come here: they follow each other, and bare acknowledgements, which have
    /// numbers, too, are in the capture.
    pub fn has_row(&self) -> bool {
        let (packets, out) = self.numbers;
        self.bare > 0 && out.saturating_mul(IN_ROW) <= packets
    }

    /// An acknowledgement without bytes. `true`: it says again what was said, as whoever misses something does. (`outstanding`: more was
    /// sent to it.)
    pub fn bare(&mut self, ack: u32, outstanding: bool) -> bool {
        self.bare = self.bare.saturating_add(1);
        let (said, times) = &mut self.said;
        if *said != ack || !outstanding {
            self.said = (ack, 0);
            return false;
        }
        *times = times.saturating_add(1);
        *times == SAID_AGAIN
    }

    /// Whether something was sent that the other end was not heard to have.
    pub fn is_outstanding(&self) -> bool {
        self.high.is_some_and(|high| self.acked.is_none_or(|acked| is_behind(high, acked)))
    }

    /// What segments wait behind is a hole in the capture.
    pub fn no_loss(&mut self) {
        self.early_ns = None;
    }

    /// Segments wait behind a hole, or no longer: since when they did.
    pub fn waits(&mut self, waits: bool, ns: i64) -> Option<i64> {
        match (waits, self.early_ns) {
            (true, None) => self.early_ns = Some(ns),
            (false, Some(_)) => return self.early_ns.take(),
            _ => {}
        }
        None
    }

    /// A message of so many bytes ended at about `end`, at this time.
    pub fn message(&mut self, bytes: u64, end: u32) {
        if bytes > LONG_MIN {
            self.long = Some((end.wrapping_sub(bytes.try_into().unwrap_or(u32::MAX)), end));
        }
    }

    /// Bytes went by that did not before, so many; `inside`: of a message that had begun. A round trip takes so long.
    pub fn went_on(&mut self, ns: i64, len: u32, inside: bool, round_trip_ns: i64) {
        let pause = ns.saturating_sub(self.sent_ns);
        if pause >= round_trip_ns / 2 {
            self.burst = 0;
        }
        self.burst = self.burst.saturating_add(len);
        if self.held.is_some_and(|held| {
            self.burst >= self.most && self.high.is_some_and(|high| is_behind(high, held.until))
        }) {
            self.held = None;
        }
        if self.held.is_none() {
            self.most = self.most.max(self.burst);
            if inside {
                self.came.add(len, pause);
            }
        }
    }

    /// Bytes went by.
    pub fn sent_at(&mut self, ns: i64) {
        self.sent_ns = ns;
        self.rest = (ns, ns);
    }

    /// Whether nothing was heard that tells of bytes on their way, and nothing was lost.
    pub fn is_quiet(&self) -> bool {
        self.rest.1 <= self.rest.0 && self.held.is_none()
    }

    /// From when to when bytes were on their way of which nothing more was sent, as far as it is known and was not told before, if that was
    /// long.
    pub fn moved(&mut self) -> Option<(i64, i64)> {
        let (from, until) = self.rest;
        let long = until.saturating_sub(from) > QUEUE_NS;
        self.rest.0 = if long { until } else { from };
        long.then_some((from, until))
    }

    /// The shortest time from a segment to its acknowledgement, in nanoseconds.
    pub fn shortest_ns(&self) -> Option<i64> {
        self.shortest_ns
    }

    /// How long bytes are on a narrow line: of a sender here their acknowledgements tell, of one there they themselves.
    fn line(&self) -> Option<Line> {
        let [acknowledged, came] = [&self.acknowledged, &self.came].map(Pace::line);
        [acknowledged, came].into_iter().flatten().max_by(|a, b| a.takes_ns(0).cmp(&b.takes_ns(0)))
    }

    /// Whether bytes are queueing on the way: they take much longer than they have to.
    pub fn queues(&self) -> bool {
        self.shortest_ns.is_some_and(|ns| self.latest_ns > 2 * ns + QUEUE_NS)
    }

    /// Another connection began.
    pub fn begin(&mut self) {
        let Way { shortest_ns, shortest_len, acknowledged, came, bare, copies, .. } = *self;
        *self = Way { shortest_ns, shortest_len, acknowledged, came, bare, copies, ..Way::default() };
    }
}

/// Longer messages are acknowledged in parts (RFC 9293 section 3.8.6.3: every second segment).
pub(crate) const LONG_MIN: u64 = 3 * 1460;

/// What goes over a network uncut.
const PIECE_MAX: u32 = 1460;

/// No sender is taken to send more than this at a time if it never did.
const REACH_MAX: u32 = 1 << 20;

/// The least that a network card makes pieces of.
const PIECE_MIN: u32 = 1200;

/// Packets that may be missing between two. Beyond that the numbers do not follow each other.
const NUMBERS_MAX: u32 = 64;

/// What both ways take at least, in nanoseconds; 0: not known.
pub(crate) fn both_ways(ways: &[Way; 2]) -> i64 {
    ways.iter().filter_map(Way::shortest_ns).sum()
}

/// A message that was sent in one direction took so long to come by: how much longer its bytes are on a narrow line, before they come by
/// here, and behind.
pub(crate) fn on_line_ns(ways: &[Way; 2], sender: usize, bytes: u64, took_ns: i64) -> [i64; 2] {
    let (Some(line), [Some(on), Some(back)]) =
        (line(ways, sender), [sender, 1 - sender].map(|way| ways[way].shortest_ns()))
    else {
        return [0; 2];
    };
    // Its first segment came over the line, and the others as it let them pass; or all of it waits there. Of what was acknowledged before its
    // end was sent acknowledgements tell more.
    let [before, behind] = if back > on + on / 2 {
        [line.takes_ns(bytes.min(SEGMENT)), 0]
    } else if on > back + back / 2 && took_ns < on {
        [0, line.takes_ns(bytes).saturating_sub(took_ns)]
    } else {
        [0, 0]
    };
    [before, behind].map(|ns| if ns < LINE_MIN_NS { 0 } else { ns })
}

/// The shortest time to an acknowledgement of what was sent in one direction.
pub(crate) fn shortest(ways: &[Way; 2], sender: usize) -> Option<Shortest> {
    let Way { shortest_ns, shortest_len, .. } = ways[sender];
    let ns = shortest_ns?;
    let on_line = line(ways, sender).map_or(0, |line| line.takes_ns(shortest_len.into()) + line.takes_ns(0));
    Some(Shortest { ns, on_line_ns: on_line.min(ns), bare: ways[1 - sender].bare > 0 })
}

/// The line in one direction. Where nothing tells, it is taken to be as the other.
fn line(ways: &[Way; 2], sender: usize) -> Option<Line> {
    ways[sender].line().or_else(|| ways[1 - sender].line())
}

/// Less than this is not worth telling.
const LINE_MIN_NS: i64 = 100_000;

/// Whether a pause of a connection is long enough for its sender to have waited for an acknowledgement in vain.
pub(crate) fn in_vain(ways: &[Way; 2], pause_ns: i64) -> bool {
    let both = both_ways(ways);
    pause_ns > both.saturating_mul(2).saturating_add(2 * QUEUE_NS)
}

/// What an acknowledgement may be late by without anything queueing.
const QUEUE_NS: i64 = 1_000_000;

/// Pauses of a sender that waits for acknowledgements before it may go on: about a round trip, in nanoseconds.
pub(crate) fn pauses(ways: &[Way; 2], sender: usize) -> Range<i64> {
    round_trips(ways, sender).map_or(0..0, |around| around.start.max(QUEUE_NS)..around.end)
}

/// What is about a round trip; `None`: it is not known, or bytes queue before a narrow line.
pub(crate) fn round_trips(ways: &[Way; 2], sender: usize) -> Option<Range<i64>> {
    let both = both_ways(ways);
    (both != 0 && !ways[sender].queues()).then(|| both / 2..both.saturating_add(both / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_the_shortest_time_to_an_acknowledgement() {
        let mut way = Way::default();
        assert_eq!(way.sent(101, 0), Carried::New);
        assert!(way.acked(101, 21_000_000));
        assert_eq!(way.sent(u32::MAX, 30_000_000), Carried::Known, "behind 101, around the end");
        assert_eq!(way.shortest_ns(), Some(21_000_000));
        let mut way = Way::default();
        way.sent(u32::MAX - 5, 0);
        way.sent(50, 1_000_000);
        assert!(way.acked(u32::MAX - 5, 2_000_000), "news, but not of the last segment");
        assert_eq!(way.shortest_ns(), None);
        assert!(way.acked(50, 11_000_000));
        assert_eq!(way.shortest_ns(), Some(10_000_000));
        assert!(!way.acked(50, 12_000_000));
    }

    #[test]
    fn what_is_sent_again_tells_of_a_loss_only_while_it_is_missing() {
        let mut way = Way::default();
        way.sent(100, 0);
        assert_eq!(way.sent(100, 200_000_000), Carried::Missing);
        assert!(way.acked(100, 210_000_000));
        assert_eq!(way.shortest_ns(), None, "which of the two?");
        assert_eq!(way.sent(100, 220_000_000), Carried::Known, "it was there");
    }

    #[test]
    fn a_packet_that_did_not_come_here_leaves_its_number() {
        let mut way = Way::default();
        assert_eq!(way.numbered(7, 100), Numbered::None, "the first");
        assert_eq!(way.numbered(8, 4000), Numbered::InRow);
        assert_eq!(way.numbered(11, 0), Numbered::InRow, "three pieces");
        assert_eq!(way.numbered(13, 0), Numbered::Missing);
        assert_eq!(way.numbered(12, 0), Numbered::Elsewhere, "it came later");
        assert_eq!(way.numbered(0, 0), Numbered::None);
        assert_eq!(way.numbered(3, 0), Numbered::None, "nobody knows what came before");
        assert_eq!(way.numbered(40_000, 0), Numbered::Elsewhere, "another way of counting");
    }

    #[test]
    fn numbers_tell_only_where_they_follow_each_other() {
        let mut way = Way::default();
        assert!(!way.has_row(), "no bare acknowledgement is there");
        way.bare(1, false);
        (1..40).for_each(|n| _ = way.numbered(n, 0));
        assert!(way.has_row());
        (0..6).for_each(|_| way.out_of_row());
        assert!(!way.has_row());
        // The same packet twice, and the same bytes again.
        assert!(!way.is_copy(7, 100, 10) && !way.is_copy(8, 110, 10) && way.is_copy(7, 100, 10));
        assert!(!way.is_copy(9, 100, 10) && !way.is_copy(0, 100, 10) && !way.is_copy(0, 100, 10));
        // Said again three times.
        assert_eq!([(); 5].map(|()| way.bare(5, true)), [false, false, false, true, false]);
    }

    #[test]
    fn a_full_queue_is_no_pause_of_the_sender() {
        let mut ways = [Way::default(), Way::default()];
        ways[0].sent(1, 0);
        ways[0].acked(1, 20_000_000);
        assert_eq!(pauses(&ways, 0), 10_000_000..30_000_000);
        ways[0].sent(2, 30_000_000);
        ways[0].acked(2, 130_000_000);
        assert_eq!(pauses(&ways, 0), 0..0);
    }
}
