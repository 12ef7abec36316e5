//! Puts one direction of a TCP connection in order. No I/O.
//!
//! Data in order is passed on without a copy. Data after a hole is stored, in bounded memory, until the hole is
//! filled. If the other end has acknowledged it, or if too much is stored, the hole is one of the capture.

use crate::limits::{MESSAGES_MAX, STORED_ACKNOWLEDGED_MAX, STORED_BYTES_ALL_MAX, STORED_BYTES_MAX};
use crate::limits::{STORED_SEGMENTS_MAX, WINDOW_MAX};
use crate::stream::{Around, Stamp, Stream};
use std::collections::VecDeque;

/// A segment after a hole.
#[derive(Debug)]
struct Stored {
    seq: u32,
    bytes: Vec<u8>,
    /// Bytes that were not captured, or that do not matter.
    missing: u32,
    /// The bytes in `missing` were captured, but do not matter.
    indifferent: bool,
    at: Stamp,
}

impl Stored {
    fn len(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX).saturating_add(self.missing)
    }

    /// Memory in bytes: its data, and a place in a queue that has at most twice the needed capacity.
    fn held(&self) -> usize {
        self.bytes.len() + 2 * size_of::<Stored>()
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Segments without anything new.
    pub retransmitted: u64,
    /// Segments that arrived before an earlier one.
    pub early: u64,
    pub holes: u64,
    pub hole_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Half {
    /// Sequence number of the next byte. `None`: no segment yet.
    next: Option<u32>,
    /// Sequence number of the SYN.
    begun: Option<u32>,
    stored: VecDeque<Stored>,
    /// Memory for the stored segments.
    stored_bytes: usize,
    pub stream: Stream,
    pub seen: SegmentCounts,
}

fn signed_distance(seq: u32, of: u32) -> i32 {
    seq.wrapping_sub(of).cast_signed()
}

impl Half {
    /// Memory of a stored segment beside its bytes.
    #[cfg(test)]
    pub const STORED_BYTES: usize = size_of::<Stored>();

    pub fn new() -> Self {
        Half {
            next: None,
            begun: None,
            stored: VecDeque::new(),
            stored_bytes: 0,
            stream: Stream::new(false),
            seen: SegmentCounts::default(),
        }
    }

    /// Sequence number of the next byte. `None`: no segment yet.
    pub fn next(&self) -> Option<u32> {
        self.next
    }

    /// Whether segments are stored after a hole.
    pub fn waits(&self) -> bool {
        !self.stored.is_empty()
    }

    /// Whether stored segments can be passed on by [`Half::drain`].
    pub fn is_ready(&self) -> bool {
        let first = self.next.zip(self.stored.front());
        first.is_some_and(|(next, first)| signed_distance(first.seq, next) <= 0)
    }

    /// Whether this SYN was seen already.
    pub fn began_at(&self, seq: u32) -> bool {
        self.begun == Some(seq)
    }

    /// A connection begins. Returns `true` if it is a new one.
    pub fn begin(&mut self, seq: u32, all: &mut usize) -> bool {
        if self.began_at(seq) {
            return false;
        }
        self.drop_stored(all);
        self.begun = Some(seq);
        self.next = Some(seq.wrapping_add(1));
        self.stream.begin(true);
        true
    }

    fn drop_stored(&mut self, all: &mut usize) {
        *all -= self.stored_bytes;
        self.stored_bytes = 0;
        self.stored = VecDeque::new();
    }

    /// A segment. `all` counts the memory of all connections.
    pub fn segment(
        &mut self,
        seq: u32,
        payload: &[u8],
        missing: u32,
        at: Stamp,
        all: &mut usize,
        around: &mut Around<'_>,
    ) {
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX).saturating_add(missing);
        if len == 0 {
            return;
        }
        let next = *self.next.get_or_insert(seq);
        let distance = signed_distance(seq, next);
        if distance.unsigned_abs() > WINDOW_MAX.unsigned_abs() {
            // Other traffic on the same ports, whose beginning was not captured.
            self.drop_stored(all);
            self.stream.lose();
            self.next = Some(seq);
            self.hand_on(payload, missing, at, around);
        } else if distance > 0 {
            self.seen.early += 1;
            self.store(seq, payload, missing, at, all);
            if self.stored.len() > STORED_SEGMENTS_MAX
                || self.stored_bytes > STORED_BYTES_MAX
                || *all > STORED_BYTES_ALL_MAX
            {
                self.give_up(all, around);
            }
        } else {
            let old = distance.unsigned_abs();
            if old >= len {
                // A single byte before the next one is a keep-alive probe.
                self.seen.retransmitted += u64::from(len > 1 || old > 1);
                return;
            }
            self.hand_on_rest(old, payload, missing, at, around);
            self.drain(all, around);
        }
    }

    /// The other end has acknowledged all bytes before `ack`.
    pub fn acknowledged(&mut self, ack: u32, all: &mut usize, around: &mut Around<'_>) {
        if self.stored.len() >= STORED_ACKNOWLEDGED_MAX
            && self.next.is_some_and(|next| signed_distance(ack, next) > 0)
        {
            self.give_up(all, around);
        }
    }

    /// The hole before the stored segments is one of the capture.
    pub fn give_up(&mut self, all: &mut usize, around: &mut Around<'_>) {
        let (Some(next), Some(first)) = (self.next, self.stored.front()) else { return };
        let hole = signed_distance(first.seq, next);
        if hole > 0 {
            let hole = hole.unsigned_abs();
            self.next = Some(first.seq);
            self.seen.holes += 1;
            self.seen.hole_bytes += u64::from(hole);
            self.stream.hole(hole.into(), None, around);
        }
        self.drain(all, around);
    }

    fn store(&mut self, seq: u32, payload: &[u8], missing: u32, at: Stamp, all: &mut usize) {
        let next = self.next.unwrap_or(seq);
        let distance = signed_distance(seq, next);
        // Of data that is skipped anyway, only the length is kept.
        let len = payload.len() as u64 + u64::from(missing);
        let indifferent =
            u64::from(distance.unsigned_abs()) + len <= self.stream.indifferent() && missing == 0;
        let place = self.stored.partition_point(|s| signed_distance(s.seq, next) < distance);
        if let Some(same) = self.stored.get(place)
            && same.seq == seq
            && u64::from(same.len()) >= len
        {
            self.seen.retransmitted += 1;
            return;
        }
        let (bytes, missing) = match indifferent {
            true => (Vec::new(), u32::try_from(len).unwrap_or(u32::MAX)),
            false => (payload.to_vec(), missing),
        };
        let stored = Stored { seq, bytes, missing, indifferent, at };
        self.stored_bytes += stored.held();
        *all += stored.held();
        if self.stored.capacity() == 0 {
            self.stored.reserve_exact(1);
        }
        self.stored.insert(place, stored);
    }

    /// Passes on stored segments up to the next hole, or until there are so many messages that they have to be taken
    /// first.
    pub fn drain(&mut self, all: &mut usize, around: &mut Around<'_>) {
        while self.is_ready() && around.out.len() < MESSAGES_MAX {
            let (Some(next), Some(first)) = (self.next, self.stored.pop_front()) else { break };
            self.stored_bytes -= first.held();
            *all -= first.held();
            let old = signed_distance(first.seq, next).unsigned_abs();
            if old >= first.len() {
                self.seen.retransmitted += 1;
            } else if first.indifferent {
                let new = first.len() - old;
                self.next = Some(next.wrapping_add(new));
                self.stream.pass(new, first.at, around);
            } else {
                self.hand_on_rest(old, &first.bytes, first.missing, first.at, around);
            }
        }
        if self.stored.capacity() > 2 * self.stored.len() {
            self.stored.shrink_to(self.stored.len() * 3 / 2);
        }
    }

    /// Passes on what follows the first `old` bytes.
    fn hand_on_rest(&mut self, old: u32, payload: &[u8], missing: u32, at: Stamp, around: &mut Around<'_>) {
        let known = payload.len().min(old as usize);
        let missing = missing - (old - u32::try_from(known).unwrap_or(old)).min(missing);
        self.hand_on(&payload[known..], missing, at, around);
    }

    fn hand_on(&mut self, payload: &[u8], missing: u32, at: Stamp, around: &mut Around<'_>) {
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX).wrapping_add(missing);
        self.next = self.next.map(|next| next.wrapping_add(len));
        self.stream.feed(payload, at, around);
        if missing > 0 {
            self.stream.hole(missing.into(), Some(at), around);
        }
    }
}
