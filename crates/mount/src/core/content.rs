//! A file's data on its way to the server.
//!
//! | state | leaves it by |
//! |---|---|
//! | waiting | [`Content::take`]: it is sent |
//! | in flight | [`Content::written`], stable or not; [`Content::failed`] |
//! | written, not stable | [`Content::committed`]: it is stable, or waits again because the server has restarted |
//!
//! Of two writes to one place the later wins: a piece is not sent while an earlier one that overlaps it is in flight.

use std::collections::BTreeMap;

use bytes::Bytes;
use landfast_nfs::v4::Verifier;

use super::extents::{Extents, overlay};
use crate::limits::{EXTENT_BYTES_MIN, PIECE_BYTES};

#[derive(Debug)]
struct Piece {
    offset: u64,
    data: Bytes,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    InFlight,
    Unstable(Verifier),
    /// Kept because it lies over one that is not stable: if that is sent again, so is this.
    Stable,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

/// The data of one file that is not known to be stable.
#[derive(Debug)]
pub struct Content {
    waiting: Extents,
    /// By their numbers, which are in the order in which they were sent.
    sent: BTreeMap<u64, Piece>,
    /// Bytes of all in `sent`.
    sent_bytes: u64,
    /// Where those in flight begin and end. They do not overlap.
    flying: BTreeMap<u64, u64>,
    flying_bytes: u64,
    next: u64,
}

impl Default for Content {
    fn default() -> Content {
        Content {
            waiting: Extents::new(PIECE_BYTES),
            sent: BTreeMap::new(),
            sent_bytes: 0,
            flying: BTreeMap::new(),
            flying_bytes: 0,
            next: 0,
        }
    }
}

/// What parts of a file's data count as.
fn counted(bytes: u64, parts: usize) -> u64 {
    bytes.max(parts as u64 * EXTENT_BYTES_MIN)
}

impl Content {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }

    /// Bytes held, in all states, and what goes with them if they are many small parts.
    pub fn bytes(&self) -> u64 {
        counted(self.waiting.bytes() + self.sent_bytes, self.waiting.count() + self.sent.len())
    }

    /// The same of what waits.
    pub fn waiting_bytes(&self) -> u64 {
        counted(self.waiting.bytes(), self.waiting.count())
    }

    /// Bytes that were written and wait for their COMMIT.
    pub fn uncommitted_bytes(&self) -> u64 {
        self.sent_bytes - self.flying_bytes
    }

    /// Pieces that were sent and are not known to be stable.
    pub fn sent_count(&self) -> usize {
        self.sent.len()
    }

    /// Whether something waits that begins before `end`.
    pub fn waits_before(&self, end: u64) -> bool {
        self.waiting.iter().next().is_some_and(|(at, _)| at < end)
    }

    pub fn waiting(&self) -> &Extents {
        &self.waiting
    }

    /// The offset behind the last byte held.
    pub fn end(&self) -> u64 {
        self.sent.values().map(Piece::end).max().unwrap_or(0).max(self.waiting.end())
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        self.waiting.write(offset, data);
    }

    /// Cuts off what waits at `size` and behind. What was sent must be stable before.
    pub fn truncate(&mut self, size: u64) {
        self.waiting.truncate(size);
    }

    /// The next piece to send: its number, offset and data. `None`: nothing waits that may be sent now.
    pub fn take(&mut self) -> Option<(u64, u64, Bytes)> {
        self.take_before(u64::MAX)
    }

    /// The same of what begins before `end`.
    pub fn take_before(&mut self, end: u64) -> Option<(u64, u64, Bytes)> {
        let mut offset = 0;
        loop {
            let (at, data) = self.waiting.from(offset).next().filter(|(at, _)| *at < end)?;
            offset = at;
            // Of those that begin before the end of this one, the last ends last.
            let before = self.flying.range(..at + data.len() as u64).next_back().map(|(_, end)| *end);
            match before.filter(|end| *end > at) {
                // All that lies below it waits for it.
                Some(end) => offset = end,
                None => break,
            }
        }
        let data = Bytes::from(self.waiting.take(offset)?);
        let number = self.next;
        self.next += 1;
        let piece = Piece { offset, data: data.clone(), state: State::InFlight };
        self.flying.insert(offset, piece.end());
        self.flying_bytes += data.len() as u64;
        self.sent_bytes += data.len() as u64;
        self.sent.insert(number, piece);
        Some((number, offset, data))
    }

    /// The reply to a piece came: it is not in flight any more. The caller says what it is now.
    fn landed(&mut self, number: u64) {
        let piece = self.sent.get_mut(&number).filter(|piece| piece.state == State::InFlight);
        let Some(piece) = piece else { return };
        piece.state = State::Stable;
        self.flying.remove(&piece.offset);
        self.flying_bytes -= piece.data.len() as u64;
    }

    fn forget(&mut self, number: u64) {
        self.landed(number);
        if let Some(piece) = self.sent.remove(&number) {
            self.sent_bytes -= piece.data.len() as u64;
        }
    }

    fn take_sent(&mut self) -> BTreeMap<u64, Piece> {
        (self.sent_bytes, self.flying_bytes) = (0, 0);
        self.flying.clear();
        std::mem::take(&mut self.sent)
    }

    /// The server has written a piece: not stable yet (`verifier`), or stable.
    pub fn written(&mut self, number: u64, verifier: Option<Verifier>) {
        self.landed(number);
        let Some(piece) = self.sent.get(&number) else { return };
        let over = |p: &Piece| p.offset < piece.end() && piece.offset < p.end();
        let state = match verifier {
            Some(verifier) => State::Unstable(verifier),
            None if self.sent.range(..number).any(|(_, p)| over(p)) => State::Stable,
            None => return self.forget(number),
        };
        if let Some(piece) = self.sent.get_mut(&number) {
            piece.state = state;
        }
    }

    /// The server refuses a piece. It is gone: the file has an error.
    pub fn failed(&mut self, number: u64) {
        self.forget(number);
    }

    /// Data that was sent and not written waits again, below what was written here since.
    pub fn again(&mut self, offset: u64, data: &[u8]) {
        self.waiting.write_under(offset, data);
    }

    /// What waits goes so many bytes further behind.
    pub fn shift(&mut self, by: u64) {
        let waiting = std::mem::replace(&mut self.waiting, Extents::new(PIECE_BYTES));
        waiting.iter().for_each(|(at, data)| self.waiting.write(at + by, data));
    }

    /// Whether anything was sent that is not stable.
    pub fn is_sent(&self) -> bool {
        !self.sent.is_empty()
    }

    /// All data is gone: the file has an error.
    pub fn drop_all(&mut self) {
        self.take_sent();
        self.waiting.truncate(0);
    }

    /// A COMMIT of the whole file gave `verifier`, sent when nothing was in flight. If some of it was written under another,
    /// the server has lost that: then all waits again, below what was written here since. Returns whether all of it is stable.
    pub fn committed(&mut self, verifier: Verifier) -> bool {
        let stable = |p: &Piece| matches!(p.state, State::Stable) || p.state == State::Unstable(verifier);
        let all = self.sent.values().all(stable);
        let sent = self.take_sent();
        if !all {
            // Later pieces first: an earlier one lies below.
            sent.into_values().rev().for_each(|p| self.waiting.write_under(p.offset, &p.data));
        }
        all
    }

    /// Puts what is held into `out`, which begins at `offset`.
    pub fn read_over(&self, offset: u64, out: &mut [u8]) {
        for piece in self.sent.values() {
            overlay(piece.offset, &piece.data, offset, out);
        }
        self.waiting.read_over(offset, out);
    }

    /// A copy of what is held between `offset` and `end`: offsets and bytes, later ones over earlier ones.
    pub fn copy(&self, offset: u64, end: u64) -> Vec<(u64, Bytes)> {
        let sent = self.sent.values().map(|p| (p.offset, &p.data[..]));
        let inside = |(at, data): (u64, &[u8])| {
            let (from, to) = (at.max(offset), (at + data.len() as u64).min(end));
            (from < to)
                .then(|| (from, Bytes::copy_from_slice(&data[(from - at) as usize..(to - at) as usize])))
        };
        sent.chain(self.waiting.within(offset, end)).filter_map(inside).collect()
    }

    /// Whether all bytes from `offset` to `end` are among those that wait.
    pub fn covers(&self, offset: u64, end: u64) -> bool {
        self.waiting.covers(offset, end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::limits::{PIECES_IN_FLIGHT, UNCOMMITTED_PIECES_MAX};
    use proptest::prelude::*;

    const SPACE: usize = 64;

    #[derive(Debug, Clone)]
    enum Op {
        Write(u64, Vec<u8>),
        Send,
        /// The reply to the n-th piece in flight: stable or not.
        Reply(usize, bool),
        Commit,
        Restart,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (0..40u64, proptest::collection::vec(1u8.., 1..20)).prop_map(|(at, d)| Op::Write(at, d)),
            3 => Just(Op::Send),
            3 => (any::<usize>(), any::<bool>()).prop_map(|(n, stable)| Op::Reply(n, stable)),
            1 => Just(Op::Commit),
            1 => Just(Op::Restart),
        ]
    }

    /// A server that executes a WRITE when it is replied to, and loses what is not stable when it restarts.
    struct Server {
        cache: [u8; SPACE],
        disk: [u8; SPACE],
        verifier: u64,
    }

    impl Server {
        fn verifier(&self) -> Verifier {
            self.verifier.to_be_bytes()
        }
    }

    #[test]
    fn what_waits_goes_behind_what_somebody_else_wrote() {
        let mut content = Content::default();
        content.write(3, b"de");
        content.write(9, b"j");
        content.shift(100);
        assert_eq!(content.copy(0, 200), [(103, Bytes::from_static(b"de")), (109, Bytes::from_static(b"j"))]);
    }

    #[test]
    fn what_is_written_behind_an_end_waits() {
        let mut content = Content::default();
        content.write(0, b"ab");
        content.write(5, b"cd");
        assert_eq!(content.take_before(5), Some((0, 0, Bytes::from_static(b"ab"))));
        assert_eq!(content.take_before(5), None);
        assert_eq!(content.take(), Some((1, 5, Bytes::from_static(b"cd"))));
    }

    /// One-byte writes that do not touch each other, sent with as many in flight as a file has, and with a COMMIT behind so many.
    #[test]
    fn a_tiny_write_among_very_many_costs_as_much_as_among_few() {
        let count = 200_000;
        // Looking at all parts for each of them takes an hour.
        let most = Duration::from_secs(60);
        let begun = Instant::now();
        let mut content = Content::default();
        for n in 0..count {
            content.write(2 * n, b"x");
            assert_eq!(content.bytes(), (n + 1) * EXTENT_BYTES_MIN);
        }
        let (mut flying, mut commits) = (VecDeque::new(), 0u64);
        while !content.is_empty() {
            let may = content.sent_count() < UNCOMMITTED_PIECES_MAX && flying.len() < PIECES_IN_FLIGHT;
            match if may { content.take() } else { None } {
                Some((number, _, _)) => flying.push_back(number),
                None => match flying.pop_front() {
                    Some(number) => content.written(number, Some([0; 8])),
                    None => {
                        commits += 1;
                        assert!(content.committed([0; 8]));
                    }
                },
            }
            assert!(content.bytes() <= count * EXTENT_BYTES_MIN && begun.elapsed() < most);
        }
        assert_eq!((content.bytes(), commits), (0, count.div_ceil(UNCOMMITTED_PIECES_MAX as u64)));
    }

    proptest! {
        #[test]
        fn what_the_reader_sees_and_what_is_stable_at_last_is_what_was_written(ops in proptest::collection::vec(op(), 0..40)) {
            let (mut content, mut model) = (Content::default(), [0u8; SPACE]);
            let mut server = Server { cache: [0; SPACE], disk: [0; SPACE], verifier: 1 };
            let mut flying: Vec<(u64, u64, Bytes)> = Vec::new();
            let see = |content: &Content, server: &Server| {
                let mut out = server.cache;
                content.read_over(0, &mut out);
                out
            };
            let reply = |content: &mut Content, server: &mut Server, (n, at, data): (u64, u64, Bytes), stable: bool| {
                let place = at as usize..at as usize + data.len();
                server.cache[place.clone()].copy_from_slice(&data);
                if stable {
                    server.disk[place].copy_from_slice(&data);
                }
                content.written(n, (!stable).then(|| server.verifier()));
            };
            for op in ops.into_iter().chain([Op::Restart]) {
                match op {
                    Op::Write(at, data) => {
                        content.write(at, &data);
                        model[at as usize..at as usize + data.len()].copy_from_slice(&data);
                    }
                    Op::Send => flying.extend(content.take()),
                    Op::Reply(n, stable) if !flying.is_empty() => {
                        let piece = flying.remove(n % flying.len());
                        reply(&mut content, &mut server, piece, stable);
                    }
                    Op::Reply(..) => {}
                    Op::Commit if flying.is_empty() => {
                        server.disk = server.cache;
                        content.committed(server.verifier());
                    }
                    Op::Commit => {}
                    Op::Restart => {
                        server.cache = server.disk;
                        server.verifier += 1;
                    }
                }
                prop_assert_eq!(see(&content, &server), model);
                let bytes = |flies: bool| {
                    let sent = content.sent.values().filter(|p| flies || p.state != State::InFlight);
                    sent.map(|p| p.data.len() as u64).sum::<u64>()
                };
                prop_assert_eq!((content.sent_bytes, content.uncommitted_bytes()), (bytes(true), bytes(false)));
                prop_assert_eq!(content.flying.len(), flying.len());
            }
            // The end of a file: all is sent and committed, however often that takes.
            while !content.is_empty() {
                flying.extend(std::iter::from_fn(|| content.take()));
                let all = std::mem::take(&mut flying);
                all.into_iter().for_each(|piece| reply(&mut content, &mut server, piece, false));
                if content.take().is_none() && content.waiting_bytes() == 0 {
                    server.disk = server.cache;
                    content.committed(server.verifier());
                }
            }
            prop_assert_eq!(server.disk, model);
        }
    }
}
