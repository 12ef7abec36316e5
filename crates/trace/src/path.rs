//! What the acknowledgements of a TCP connection say of the way between its ends: round trips, and stalls after losses. Pure.

use std::ops::Range;

/// One direction: what was sent, and when the other end was heard to have it.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// The number behind the last byte that was sent.
    high: Option<u32>,
    /// The number behind the last byte that the other end has.
    acked: Option<u32>,
    /// The segment whose acknowledgement is waited for: the number behind it, and when it went by.
    timed: Option<(u32, i64)>,
    shortest_ns: Option<i64>,
    latest_ns: i64,
    /// Since when segments behind a hole wait.
    early_ns: Option<i64>,
    /// The number and the length of the last packet.
    packet: (u16, u32),
}

fn is_behind(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

impl Way {
    /// A segment went by, up to before `end`. `true`: it went by before, and the other end was not heard to have it.
    pub fn sent(&mut self, end: u32, ns: i64) -> bool {
        let new = self.high.is_none_or(|high| is_behind(end, high));
        if new {
            self.high = Some(end);
            self.timed = Some((end, ns));
            return false;
        }
        // Nobody knows which of the two an acknowledgement is for.
        self.timed = None;
        self.acked.is_none_or(|acked| is_behind(end, acked))
    }

    /// The other end has all before `ack`. `true`: that is news.
    pub fn acked(&mut self, ack: u32, ns: i64) -> bool {
        if let Some((end, sent)) = self.timed
            && !is_behind(end, ack)
        {
            self.latest_ns = ns.saturating_sub(sent).max(0);
            self.shortest_ns = Some(self.shortest_ns.map_or(self.latest_ns, |ns| ns.min(self.latest_ns)));
            self.timed = None;
        }
        let news = self.acked.is_none_or(|acked| is_behind(ack, acked));
        if news {
            self.acked = Some(ack);
        }
        news
    }

    /// A packet with this number and so many bytes went by. `true`: its sender had sent others before that did not come here. (Linux
    /// numbers the packets of a connection one after another; one that the network card cut in pieces has more numbers than one.)
    pub fn numbered(&mut self, number: u16, len: u32) -> bool {
        let (before, pieces) =
            (self.packet.0, self.packet.1.saturating_sub(PIECE_MAX).div_ceil(PIECE_MIN) + 1);
        self.packet = (number, len);
        let passed = u32::from(number.wrapping_sub(before));
        number != 0 && before != 0 && passed > pieces && passed <= pieces + NUMBERS_MAX
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

    /// The shortest time from a segment to its acknowledgement, in nanoseconds.
    pub fn shortest_ns(&self) -> Option<i64> {
        self.shortest_ns
    }

    /// Whether bytes are queueing on the way: they take much longer than they have to.
    pub fn queues(&self) -> bool {
        self.shortest_ns.is_some_and(|ns| self.latest_ns > 2 * ns + QUEUE_NS)
    }

    /// Another connection began.
    pub fn begin(&mut self) {
        *self = Way { shortest_ns: self.shortest_ns, ..Way::default() };
    }
}

/// What goes over a network uncut.
const PIECE_MAX: u32 = 1460;

/// The least that a network card makes pieces of.
const PIECE_MIN: u32 = 1200;

/// Packets that may be missing between two. Beyond that the numbers do not follow each other.
const NUMBERS_MAX: u32 = 64;

/// Whether a pause of a connection is long enough for its sender to have waited for an acknowledgement in vain.
pub(crate) fn in_vain(ways: &[Way; 2], pause_ns: i64) -> bool {
    let both = ways.iter().filter_map(Way::shortest_ns).sum::<i64>();
    pause_ns > both.saturating_mul(2).saturating_add(2 * QUEUE_NS)
}

/// What an acknowledgement may be late by without anything queueing.
const QUEUE_NS: i64 = 1_000_000;

/// Pauses of a sender that waits for acknowledgements before it may go on: about a round trip, in nanoseconds.
pub(crate) fn pauses(ways: &[Way; 2], sender: usize) -> Range<i64> {
    let both = ways.iter().filter_map(Way::shortest_ns).sum::<i64>();
    if both == 0 || ways[sender].queues() {
        return 0..0;
    }
    (both / 2).max(QUEUE_NS)..both.saturating_add(both / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_the_shortest_time_to_an_acknowledgement() {
        let mut way = Way::default();
        assert!(!way.sent(101, 0));
        assert!(way.acked(101, 21_000_000));
        assert!(!way.sent(u32::MAX, 30_000_000), "behind 101, around the end");
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
        assert!(way.sent(100, 200_000_000));
        assert!(way.acked(100, 210_000_000));
        assert_eq!(way.shortest_ns(), None, "which of the two?");
        assert!(!way.sent(100, 220_000_000), "it was there");
    }

    #[test]
    fn a_packet_that_did_not_come_here_leaves_its_number() {
        let mut way = Way::default();
        assert!(!way.numbered(7, 100), "the first");
        assert!(!way.numbered(8, 4000));
        assert!(!way.numbered(11, 0), "three pieces");
        assert!(way.numbered(13, 0));
        assert!(!way.numbered(12, 0), "it came later");
        assert!(!way.numbered(0, 0));
        assert!(!way.numbered(3, 0), "nobody knows what came before");
        assert!(!way.numbered(40_000, 0), "another way of counting");
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
