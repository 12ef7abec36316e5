//! Reassembles UDP datagrams whose IPv4 packets were fragmented (RFC 791 section 3.2). No I/O.
//!
//! Fragments belong together if they have the same 16-bit identification. A busy sender reuses it within seconds, so
//! a datagram is dropped if it does not become complete soon or if a fragment contradicts it.

use crate::frame::Fragment;
use crate::limits::{FRAGMENTED_BYTES_MAX, FRAGMENTED_MAX, FRAGMENTED_NS_MAX};
use crate::stream::Stamp;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Length of a UDP header.
const HEADER: usize = 8;

/// A complete datagram, as far as it was captured.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub from: SocketAddr,
    pub to: SocketAddr,
    /// Its payload as it was in frames; at least one part.
    pub parts: Vec<(Vec<u8>, Stamp)>,
    /// Bytes after that which were not captured.
    pub missing: u32,
    pub fragments: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FragmentResult {
    /// Others are missing.
    Waits,
    /// It was captured twice.
    Copy,
    Whole(Datagram),
}

#[derive(Debug)]
struct FragmentBytes {
    bytes: Vec<u8>,
    /// Length on the wire.
    len: u32,
    at: Stamp,
}

#[derive(Debug)]
struct Arriving {
    key: (Ipv4Addr, Ipv4Addr, u16),
    /// Pieces by their offset in the datagram.
    pieces: BTreeMap<u32, FragmentBytes>,
    /// Where it ends, once known.
    end: Option<u32>,
    bytes: usize,
}

/// Incomplete datagrams, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    arriving: VecDeque<Arriving>,
    bytes: usize,
}

impl Fragments {
    pub fn take(&mut self, fragment: &Fragment<'_>, at: Stamp) -> FragmentResult {
        let Fragment { from, to, number, offset, more, payload, len } = *fragment;
        let old = |a: &Arriving| {
            let last = a.pieces.values().map(|piece| piece.at.ns).max().unwrap_or(at.ns);
            at.ns.abs_diff(last) > FRAGMENTED_NS_MAX
        };
        while self.arriving.front().is_some_and(old) {
            self.give_up(0);
        }
        let key = (from, to, number);
        let piece = FragmentBytes { bytes: payload.to_vec(), len, at };
        let mut there = self.arriving.iter().position(|a| a.key == key);
        if let Some(n) = there {
            match self.arriving[n].fit(offset, &piece, more) {
                Fit::New => {}
                Fit::Known => return FragmentResult::Copy,
                // The identification is used again.
                Fit::Not => {
                    self.give_up(n);
                    there = None;
                }
            }
        }
        let n = there.unwrap_or_else(|| {
            let new = Arriving { key, pieces: BTreeMap::new(), end: None, bytes: 0 };
            self.arriving.push_back(new);
            self.arriving.len() - 1
        });
        let arriving = &mut self.arriving[n];
        if !more {
            arriving.end = Some(offset + len);
        }
        let held = payload.len() + size_of::<FragmentBytes>();
        arriving.bytes += held;
        self.bytes += held;
        arriving.pieces.insert(offset, piece);
        if arriving.is_whole() {
            let whole = self.arriving.remove(n);
            self.bytes -= whole.as_ref().map_or(0, |a| a.bytes);
            return whole.and_then(Arriving::datagram).map_or(FragmentResult::Waits, FragmentResult::Whole);
        }
        while self.arriving.len() > FRAGMENTED_MAX || self.bytes > FRAGMENTED_BYTES_MAX {
            self.give_up(0);
        }
        FragmentResult::Waits
    }

    fn give_up(&mut self, n: usize) {
        self.bytes -= self.arriving.remove(n).map_or(0, |a| a.bytes);
    }
}

/// How a fragment fits to those before.
enum Fit {
    New,
    Known,
    Not,
}

impl Arriving {
    fn fit(&self, offset: u32, piece: &FragmentBytes, more: bool) -> Fit {
        let end = offset + piece.len;
        if let Some(there) = self.pieces.get(&offset) {
            let same = there.len == piece.len && there.bytes == piece.bytes;
            return if same && (more || self.end == Some(end)) { Fit::Known } else { Fit::Not };
        }
        let before = self.pieces.range(..offset).next_back().map(|(at, piece)| at + piece.len);
        let behind = self.pieces.range(offset..).next().map(|(at, _)| *at);
        let overlaps = before.is_some_and(|to| to > offset) || behind.is_some_and(|from| from < end);
        let beyond = match (self.end, more) {
            (Some(all), true) => end >= all,
            (Some(_), false) => true,
            (None, false) => behind.is_some(),
            (None, true) => false,
        };
        if overlaps || beyond { Fit::Not } else { Fit::New }
    }

    fn is_whole(&self) -> bool {
        let mut next = 0;
        for (at, piece) in &self.pieces {
            if *at != next {
                return false;
            }
            next += piece.len;
        }
        self.end == Some(next)
    }

    /// `None`: its header was not captured.
    fn datagram(self) -> Option<Datagram> {
        let (from, to, _) = self.key;
        let all = self.end?.checked_sub(HEADER as u32)?;
        let header: [u8; HEADER] = self.pieces.get(&0)?.bytes.get(..HEADER)?.try_into().ok()?;
        let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (fragments, mut parts, mut have, mut cut) = (self.pieces.len() as u64, Vec::new(), 0, false);
        for (at, FragmentBytes { bytes, len, at: stamp }) in self.pieces {
            let skip = if at == 0 { HEADER } else { 0 };
            // After a gap nothing can be read, but the time of the last fragment still counts.
            let bytes = if cut { Vec::new() } else { bytes[skip..].to_vec() };
            have += bytes.len() as u32;
            cut |= bytes.len() + skip < len as usize;
            parts.push((bytes, stamp));
        }
        let (from, to) = (IpAddr::V4(from), IpAddr::V4(to));
        let (from, to) = (SocketAddr::new(from, port(0)), SocketAddr::new(to, port(2)));
        Some(Datagram { from, to, parts, missing: all.saturating_sub(have), fragments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stamp(ns: i64) -> Stamp {
        Stamp { ns, ..Stamp::default() }
    }

    /// A datagram with a header, in fragments that end at multiples of 8.
    fn pieces(len: usize, each: usize) -> Vec<(u32, bool, Vec<u8>)> {
        let mut all = vec![3, 32, 8, 1, 0, 0, 0, 0];
        all.extend((0..len).map(|n| n as u8));
        let last = (all.len() - 1) / each;
        all.chunks(each).enumerate().map(|(n, bytes)| ((n * each) as u32, n < last, bytes.to_vec())).collect()
    }

    fn fragment(number: u16, (offset, more, payload): &(u32, bool, Vec<u8>)) -> Fragment<'_> {
        Fragment {
            from: Ipv4Addr::new(10, 0, 0, 2),
            to: Ipv4Addr::new(10, 0, 0, 1),
            number,
            offset: *offset,
            more: *more,
            payload,
            len: payload.len() as u32,
        }
    }

    fn payload(datagram: &Datagram) -> Vec<u8> {
        datagram.parts.iter().flat_map(|(bytes, _)| bytes.clone()).collect()
    }

    proptest! {
        #[test]
        fn fragments_in_any_order_become_the_datagram(
            len in 2000usize..9000,
            order in any::<u64>(),
            copies in any::<bool>(),
        ) {
            let all = pieces(len, 1480);
            let mut order_of: Vec<usize> = (0..all.len()).collect();
            order_of.sort_by_key(|n| order.rotate_left(*n as u32 * 7) ^ *n as u64);
            let mut fragments = Fragments::default();
            for (turn, n) in order_of.iter().enumerate() {
                let taken = fragments.take(&fragment(7, &all[*n]), stamp(turn as i64));
                if turn + 1 < all.len() {
                    prop_assert_eq!(taken, FragmentResult::Waits);
                    if copies {
                        let again = fragments.take(&fragment(7, &all[*n]), stamp(turn as i64));
                        prop_assert_eq!(again, FragmentResult::Copy);
                    }
                    continue;
                }
                let FragmentResult::Whole(datagram) = taken else { return Err(TestCaseError::fail("not whole")) };
                prop_assert_eq!(payload(&datagram), (0..len).map(|n| n as u8).collect::<Vec<_>>());
                prop_assert_eq!((datagram.from.port(), datagram.to.port(), datagram.missing), (800, 2049, 0));
                prop_assert_eq!(datagram.parts.iter().map(|(_, at)| at.ns).max(), Some(turn as i64));
            }
            prop_assert_eq!((fragments.bytes, fragments.arriving.len()), (0, 0));
        }

        #[test]
        fn whatever_comes_memory_is_bounded(
            all in prop::collection::vec((0u16..200, 0u32..8192, any::<bool>(), 0usize..1500, 0u32..3, 0i64..1_000_000_000), 0..600),
        ) {
            let (mut fragments, mut now) = (Fragments::default(), 0);
            for (number, offset, more, len, cut, later) in all {
                now += later;
                let piece = (offset * 8, more, vec![0; len]);
                let mut fragment = fragment(number, &piece);
                fragment.len += cut;
                fragments.take(&fragment, stamp(now));
                prop_assert!(fragments.bytes <= FRAGMENTED_BYTES_MAX && fragments.arriving.len() <= FRAGMENTED_MAX);
                prop_assert_eq!(fragments.bytes, fragments.arriving.iter().map(|a| a.bytes).sum::<usize>());
            }
        }
    }

    #[test]
    fn a_number_that_is_used_again_begins_another_datagram() {
        let (first, second) = (pieces(3000, 1480), pieces(2990, 1480));
        let mut fragments = Fragments::default();
        assert_eq!(fragments.take(&fragment(7, &first[0]), stamp(0)), FragmentResult::Waits);
        // The second datagram begins with the same bytes; only its end differs.
        assert_eq!(fragments.take(&fragment(7, &first[2]), stamp(1)), FragmentResult::Waits);
        assert_eq!(fragments.take(&fragment(7, &second[2]), stamp(2)), FragmentResult::Waits);
        assert_eq!(fragments.take(&fragment(7, &second[0]), stamp(3)), FragmentResult::Waits);
        let FragmentResult::Whole(datagram) = fragments.take(&fragment(7, &second[1]), stamp(4)) else {
            panic!("not whole")
        };
        assert_eq!(payload(&datagram).len(), 2990);
        // What came too long ago belongs to another datagram.
        assert_eq!(fragments.take(&fragment(8, &first[0]), stamp(0)), FragmentResult::Waits);
        let late = FRAGMENTED_NS_MAX.cast_signed() + 1;
        for piece in &first[1..] {
            assert_eq!(fragments.take(&fragment(8, piece), stamp(late)), FragmentResult::Waits);
        }
    }

    #[test]
    fn what_was_cut_when_captured_is_missing() {
        let mut all = pieces(3000, 1480);
        let lens: Vec<u32> = all.iter().map(|(_, _, bytes)| bytes.len() as u32).collect();
        all.iter_mut().for_each(|(_, _, bytes)| bytes.truncate(100));
        let mut fragments = Fragments::default();
        let mut last = FragmentResult::Waits;
        for (n, piece) in all.iter().enumerate() {
            last = fragments.take(&Fragment { len: lens[n], ..fragment(7, piece) }, stamp(n as i64));
        }
        let FragmentResult::Whole(datagram) = last else { panic!("not whole") };
        assert_eq!((payload(&datagram).len(), datagram.missing), (92, 2908));
        assert_eq!(datagram.parts.last().map(|(_, at)| at.ns), Some(2));
    }
}
