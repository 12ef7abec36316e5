//! What the acknowledgements of a TCP connection tell about the path between its ends: round trips, and stalls after
//! losses. No I/O.

use crate::line::{Line, Pace, SEGMENT};
use std::ops::Range;

/// The shortest time from a segment to its acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shortest {
    pub ns: i64,
    /// The part of `ns` that the segment and its acknowledgement spent on a slow link.
    pub on_line_ns: i64,
    /// The receiver was seen to send acknowledgements without data. If not, an acknowledgement may have waited for
    /// data to go with.
    pub bare: bool,
}

/// One direction: what was sent, and when the other end acknowledged it.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    /// Sequence number after the last byte that was sent.
    high: Option<u32>,
    /// Sequence number after the last byte that was acknowledged.
    acked: Option<u32>,
    /// The segment whose acknowledgement is timed: the sequence number after it, and when it was captured.
    timed: Option<(u32, i64)>,
    timed_len: u32,
    /// As `timed`, but one segment at a time, whatever is sent after it. The time is 0 if there is none.
    sampled: (u32, i64),
    shortest_ns: Option<i64>,
    /// Length in bytes of the segment with the shortest time to its acknowledgement.
    shortest_len: u32,
    latest_ns: i64,
    /// Since when segments wait behind a hole.
    early_ns: Option<i64>,
    /// The first sequence number of the last long message and the one after its end. Then: since when bytes are in
    /// flight with nothing more sent, until the last acknowledgement of new bytes.
    long: Option<(u32, u32)>,
    rest: (i64, i64),
    sent_ns: i64,
    /// Since when nothing new is acknowledged.
    waiting_ns: i64,
    /// Bytes sent without a pause of half a round trip: in the current burst, and in the largest one.
    burst: u32,
    most: u32,
    /// Set while the sender sends less at a time because of a loss.
    held: Option<LossEpisode>,
    /// How fast bytes follow each other: measured by acknowledgements, and by the arrival of the bytes.
    acknowledged: Pace,
    came: Pace,
    /// IP identification and length of the last packet.
    packet: (u16, u32),
    /// Packets with an IP identification, and how many of these broke the sequence though nothing had been waited
    /// for.
    numbers: (u32, u32),
    /// Acknowledgements without data sent by this direction's sender.
    bare: u32,
    /// What the last of these acknowledged, and how often it was repeated.
    said: (u32, u8),
    /// The last packets, to recognise a second copy of one, and the next place to write.
    copies: ([(u32, u32); COPIES], u8),
}

/// How many packets are remembered to recognise copies.
const COPIES: usize = 4;

/// At most one packet in this many may break the sequence of IP identifications by itself. Otherwise the numbers mean
/// nothing.
const IN_ROW: u32 = 8;

/// Duplicate acknowledgements that signal a loss (RFC 5681 section 3.2).
const SAID_AGAIN: u8 = 3;

/// A sender after a loss: it sends fewer bytes at a time (RFC 5681 section 3.1) until the window is as large as
/// before.
#[derive(Debug, Clone, Copy)]
struct LossEpisode {
    /// Sequence number after the last byte that was sent before the loss.
    until: u32,
    /// Bytes that would be sent at a time without the loss.
    reach: u32,
}

/// What the IP identification of a packet tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbered {
    None,
    /// It follows the packet before.
    InRow,
    /// A few packets are missing between the two.
    Missing,
    /// Unrelated to the packet before: random numbers, or one counter for everything that a host sends.
    Elsewhere,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carried {
    /// New bytes.
    New,
    /// A retransmission of bytes that were not acknowledged.
    Missing,
    /// A retransmission of acknowledged bytes: the acknowledgement was late or lost.
    Known,
}

fn is_behind(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

impl Direction {
    /// A segment that ends before sequence number `end` was captured.
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
        // Whether an acknowledgement is for the original or the retransmission cannot be known.
        self.timed = None;
        self.sampled.1 = 0;
        if self.acked.is_none_or(|acked| is_behind(end, acked)) { Carried::Missing } else { Carried::Known }
    }

    /// The other end acknowledges everything before `ack`. Returns `true` if that is news.
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
            // Only within a message that was sent completely: the acknowledgement of its end may have waited for more
            // bytes or for a program to read.
            if let (Some((begin, end)), Some(acked), None) = (self.long, self.acked, self.held)
                && is_behind(acked, begin)
                && is_behind(end, ack)
                && self.waiting_ns >= self.sent_ns
            {
                self.acknowledged.add(ack.wrapping_sub(acked), ns.saturating_sub(self.waiting_ns));
            }
            self.waiting_ns = ns;
            if let (Some((_, end)), Some(shortest)) = (self.long, self.shortest_ns) {
                // The acknowledgement of the end may have waited for more bytes or for a program to read.
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

    /// Since when the data that is now retransmitted made no progress: nothing new was acknowledged, or the sender
    /// sent nothing.
    pub fn sent_again(&mut self, ns: i64) -> i64 {
        let waiting_ns = std::mem::replace(&mut self.waiting_ns, ns);
        // Before a SYN nothing was sent.
        if self.sent_ns == 0 { waiting_ns } else { waiting_ns.min(self.sent_ns) }
    }

    /// A loss in this direction has been detected.
    pub fn lost(&mut self) {
        let reach = self.held.map_or(0, |held| held.reach).max(self.most);
        self.held = self.high.map(|until| LossEpisode { until, reach });
    }

    pub fn sent_last_ns(&self) -> i64 {
        self.sent_ns
    }

    /// How much of a pause within a message is due to an earlier loss. Without it the sender would have sent more at
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

    /// Judges a packet by its IP identification and length: are packets missing that its sender sent before it? Linux
    /// numbers the packets of a connection one after another. A packet that the network card segmented counts as
    /// several.
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

    /// Whether the same packet was captured before, e.g. on a port that mirrors both directions, or on an interface
    /// and the bridge behind it. A retransmission has another IP identification. Of packets without identifications
    /// nothing is known.
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

    /// A packet broke the sequence of IP identifications, and nobody had waited for one.
    pub fn out_of_row(&mut self) {
        self.numbers.1 = self.numbers.1.saturating_add(1);
    }

    /// Whether the IP identifications reveal missing packets: they are consecutive, and bare acknowledgements, which
    /// are numbered too, are in the capture.
    pub fn has_row(&self) -> bool {
        let (packets, out) = self.numbers;
        self.bare > 0 && out.saturating_mul(IN_ROW) <= packets
    }

    /// An acknowledgement without data. Returns `true` for the duplicate that signals a loss. `outstanding`:
    /// unacknowledged data was sent to its sender.
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

    /// Whether something was sent that is not acknowledged yet.
    pub fn is_outstanding(&self) -> bool {
        self.high.is_some_and(|high| self.acked.is_none_or(|acked| is_behind(high, acked)))
    }

    /// The hole that segments wait behind is one of the capture, not a loss.
    pub fn no_loss(&mut self) {
        self.early_ns = None;
    }

    /// Segments now wait behind a hole, or no longer do. When they stop, returns since when they waited.
    pub fn waits(&mut self, waits: bool, ns: i64) -> Option<i64> {
        match (waits, self.early_ns) {
            (true, None) => self.early_ns = Some(ns),
            (false, Some(_)) => return self.early_ns.take(),
            _ => {}
        }
        None
    }

    /// A message of this many bytes ended at about `end`.
    pub fn message(&mut self, bytes: u64, end: u32) {
        if bytes > LONG_MIN {
            self.long = Some((end.wrapping_sub(bytes.try_into().unwrap_or(u32::MAX)), end));
        }
    }

    /// `len` new bytes were sent. `inside`: within a message that had begun.
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

    pub fn sent_at(&mut self, ns: i64) {
        self.sent_ns = ns;
        self.rest = (ns, ns);
    }

    /// Whether no bytes are known to be in flight and nothing was lost.
    pub fn is_quiet(&self) -> bool {
        self.rest.1 <= self.rest.0 && self.held.is_none()
    }

    /// The time span in which bytes were in flight with nothing more sent, if it is known, long, and not reported
    /// yet.
    pub fn moved(&mut self) -> Option<(i64, i64)> {
        let (from, until) = self.rest;
        let long = until.saturating_sub(from) > QUEUE_NS;
        self.rest.0 = if long { until } else { from };
        long.then_some((from, until))
    }

    pub fn shortest_ns(&self) -> Option<i64> {
        self.shortest_ns
    }

    /// The slow link that the bytes cross. A sender on this side of it shows by its acknowledgements, one beyond it
    /// by the arrival of the bytes.
    fn line(&self) -> Option<Line> {
        let [acknowledged, came] = [&self.acknowledged, &self.came].map(Pace::line);
        [acknowledged, came].into_iter().flatten().max_by(|a, b| a.takes_ns(0).cmp(&b.takes_ns(0)))
    }

    /// Whether bytes are queueing on the path: they take much longer than necessary.
    pub fn queues(&self) -> bool {
        self.shortest_ns.is_some_and(|ns| self.latest_ns > 2 * ns + QUEUE_NS)
    }

    /// Another connection began on these ports.
    pub fn begin(&mut self) {
        let Direction { shortest_ns, shortest_len, acknowledged, came, bare, copies, .. } = *self;
        *self =
            Direction { shortest_ns, shortest_len, acknowledged, came, bare, copies, ..Direction::default() };
    }
}

/// Longer messages are acknowledged in parts: every second segment (RFC 9293 section 3.8.6.3).
pub(crate) const LONG_MIN: u64 = 3 * 1460;

/// The largest segment that crosses a network unsplit, in bytes.
const PIECE_MAX: u32 = 1460;

/// The most bytes at a time that a sender is assumed to send if it never did.
const REACH_MAX: u32 = 1 << 20;

/// The smallest segments that a network card cuts, in bytes.
const PIECE_MIN: u32 = 1200;

/// At most this many packets are missing between two consecutive IP identifications. Beyond that they are unrelated.
const NUMBERS_MAX: u32 = 64;

/// The minimum for both directions together, in nanoseconds. 0: unknown.
pub(crate) fn both_ways(ways: &[Direction; 2]) -> i64 {
    ways.iter().filter_map(Direction::shortest_ns).sum()
}

/// A message took `took_ns` to be captured. Returns how much longer its bytes are on a slow link: before they are
/// captured here, and after.
pub(crate) fn on_line_ns(ways: &[Direction; 2], sender: usize, bytes: u64, took_ns: i64) -> [i64; 2] {
    let (Some(line), [Some(on), Some(back)]) =
        (line(ways, sender), [sender, 1 - sender].map(|way| ways[way].shortest_ns()))
    else {
        return [0; 2];
    };
    // Either its first segment crossed the link before and paced the others, or all of it still has to cross. For
    // what was acknowledged before its end was sent, acknowledgements tell more.
    let [before, behind] = if back > on + on / 2 {
        [line.takes_ns(bytes.min(SEGMENT)), 0]
    } else if on > back + back / 2 && took_ns < on {
        [0, line.takes_ns(bytes).saturating_sub(took_ns)]
    } else {
        [0, 0]
    };
    [before, behind].map(|ns| if ns < LINE_MIN_NS { 0 } else { ns })
}

/// The shortest time to an acknowledgement of data sent in one direction.
pub(crate) fn shortest(ways: &[Direction; 2], sender: usize) -> Option<Shortest> {
    let Direction { shortest_ns, shortest_len, .. } = ways[sender];
    let ns = shortest_ns?;
    let on_line = line(ways, sender).map_or(0, |line| line.takes_ns(shortest_len.into()) + line.takes_ns(0));
    Some(Shortest { ns, on_line_ns: on_line.min(ns), bare: ways[1 - sender].bare > 0 })
}

/// The slow link in one direction. Without a measurement it is assumed to be as in the other.
fn line(ways: &[Direction; 2], sender: usize) -> Option<Line> {
    ways[sender].line().or_else(|| ways[1 - sender].line())
}

/// Shorter times on a link are not reported.
const LINE_MIN_NS: i64 = 100_000;

/// Whether a pause is so long that the sender must have waited in vain for an acknowledgement.
pub(crate) fn in_vain(ways: &[Direction; 2], pause_ns: i64) -> bool {
    let both = both_ways(ways);
    pause_ns > both.saturating_mul(2).saturating_add(2 * QUEUE_NS)
}

/// How late an acknowledgement may be without any queue.
const QUEUE_NS: i64 = 1_000_000;

/// The range of pauses, in nanoseconds, in which a sender waits for acknowledgements: about a round trip.
pub(crate) fn pauses(ways: &[Direction; 2], sender: usize) -> Range<i64> {
    round_trips(ways, sender).map_or(0..0, |around| around.start.max(QUEUE_NS)..around.end)
}

/// The range of times that count as about a round trip. `None`: unknown, or bytes queue before a slow link.
pub(crate) fn round_trips(ways: &[Direction; 2], sender: usize) -> Option<Range<i64>> {
    let both = both_ways(ways);
    (both != 0 && !ways[sender].queues()).then(|| both / 2..both.saturating_add(both / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_the_shortest_time_to_an_acknowledgement() {
        let mut way = Direction::default();
        assert_eq!(way.sent(101, 0), Carried::New);
        assert!(way.acked(101, 21_000_000));
        assert_eq!(way.sent(u32::MAX, 30_000_000), Carried::Known, "behind 101, around the end");
        assert_eq!(way.shortest_ns(), Some(21_000_000));
        let mut way = Direction::default();
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
        let mut way = Direction::default();
        way.sent(100, 0);
        assert_eq!(way.sent(100, 200_000_000), Carried::Missing);
        assert!(way.acked(100, 210_000_000));
        assert_eq!(way.shortest_ns(), None, "which of the two?");
        assert_eq!(way.sent(100, 220_000_000), Carried::Known, "it was there");
    }

    #[test]
    fn a_packet_that_did_not_come_here_leaves_its_number() {
        let mut way = Direction::default();
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
        let mut way = Direction::default();
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
        let mut ways = [Direction::default(), Direction::default()];
        ways[0].sent(1, 0);
        ways[0].acked(1, 20_000_000);
        assert_eq!(pauses(&ways, 0), 10_000_000..30_000_000);
        ways[0].sent(2, 30_000_000);
        ways[0].acked(2, 130_000_000);
        assert_eq!(pauses(&ways, 0), 0..0);
    }
}
