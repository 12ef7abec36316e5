//! Turns frames into calls with their replies: tracks connections and matches replies to calls. No I/O; time comes
//! with the frames.

use crate::fragments::{Datagram, FragmentResult, Fragments};
use crate::frame::{Packet, Passed, Tcp, fragment, packet};
use crate::limits::{
    ANSWERED_MAX, CALLS_HARD_MAX, CALLS_MAX, CONNECTIONS_MAX, HELD_ALL_MAX, MESSAGES_MAX, OPERATIONS_KEPT,
    RECORD_MAX, UNANSWERED_MAX,
};
pub use crate::path::Shortest;
use crate::path::{
    Carried, Direction, LONG_MIN, Numbered, both_ways, in_vain, on_line_ns, pauses, round_trips, shortest,
};
use crate::skim::facts::WantedFiles;
use crate::skim::{CallHead, Head, Kind, Program, Protection, ReplyHead};
use crate::source::Frame;
pub use crate::stream::Times;
use crate::stream::{Around, Message, Stamp, Wish};
use crate::tcp::{Half, SegmentCounts};
use crate::whole::Whole;
use foldhash::{HashMap, HashMapExt};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Sender and receiver of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    pub from: SocketAddr,
    pub to: SocketAddr,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub head: CallHead,
    pub times: Times,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub head: ReplyHead,
    pub times: Times,
}

/// Receives what is found, in the order in which messages became complete.
pub trait Observer {
    /// Whether it wants [`CallHead::shown`] and [`ReplyHead::shown`].
    fn wants_detail(&self) -> bool {
        false
    }
    /// Recognises the wanted files, if only some files are wanted.
    fn asked(&self) -> Option<&dyn WantedFiles> {
        None
    }
    /// If it wants whole records: the counter of the bytes held for them.
    fn wants_whole(&self) -> Option<&Arc<AtomicUsize>> {
        None
    }
    /// A record, if it wants them; in order within each direction of a connection.
    fn whole(&mut self, _record: Whole) {}
    /// The time of the first frame. Called before anything else.
    fn begun(&mut self, _ns: i64) {}
    /// A call that was not seen before, i.e. not a retransmission.
    fn call(&mut self, ends: Ends, call: &Call);
    fn reply(&mut self, ends: Ends, call: &Call, reply: &Reply);
    /// A call of a wanted client that is not wanted itself, while those are that a filter passes on. It shows that the
    /// client did not pause.
    fn unwanted_call(&mut self, _ends: Ends, _call: &Call) {}
    fn unwanted_reply(&mut self, _ends: Ends, _call: &Call, _reply: &Reply) {}
    /// Whether the segments of a connection between these ends are counted, and its stream.
    fn counts_segments(&self, _ends: Ends) -> bool {
        true
    }
    /// A connection made no progress in this time, in nanoseconds, because of a loss.
    fn stall(&mut self, ends: Ends, from_ns: i64, to_ns: i64);
    /// Bytes were still in flight in this time, in nanoseconds, though their message had been sent completely.
    fn moving(&mut self, _ends: Ends, _from_ns: i64, _to_ns: i64) {}
    /// A connection with RPC has ended. `shortest`: the shortest times to an acknowledgement, of data sent in the
    /// direction of `ends` and against it.
    fn path(&mut self, ends: Ends, shortest: [Option<Shortest>; 2]);
}

/// What the capture contained, and what of it was unusable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    pub frames: u64,
    /// Frames that were captured only in part.
    pub cut_frames: u64,
    /// Frames that were skipped, by reason.
    pub passed: BTreeMap<Passed, u64>,
    /// TCP connections with payload.
    pub connections: u64,
    /// Pairs of TCP or UDP ports with RPC between them.
    pub rpc_connections: u64,
    /// Connections forgotten because too many were open.
    pub forgotten: u64,
    /// Calls to NFS without retransmissions.
    pub calls_seen: u64,
    /// NFS calls with a reply and both times known.
    pub calls_matched: u64,
    /// NFS calls with a reply, but call or reply ends in a hole of the capture.
    pub calls_unmeasured: u64,
    pub other_calls: u64,
    pub repeated_calls: u64,
    pub repeated_replies: u64,
    /// Replies whose call was not captured.
    pub stray_replies: u64,
    /// Replies without a call on connections that show no other sign of RPC: they begin a segment or a datagram and
    /// look like replies.
    pub replies_alone: u64,
    /// Calls to NFS whose arguments are encrypted (krb5p).
    pub encrypted_calls: u64,
    /// Probes for RPC over TLS. What follows on such a connection is encrypted.
    pub tls_probes: u64,
    /// How often the clock of the capture went back: frames more than a millisecond older than the one before.
    pub set_back: u64,
    /// The sum of these steps, in nanoseconds, at least: the time between the two frames is unknown.
    pub set_back_ns: u64,
    /// Packets that were captured twice. Second copies are ignored.
    pub copies: u64,
    /// What was seen of the TCP streams.
    pub tcp: SegmentCounts,
    /// How often the record marks of a stream were lost.
    pub out_of_step: u64,
    /// Time of the first and of the last frame.
    pub span: Option<(i64, i64)>,
}

/// Calls of one direction that wait for replies, and the last replies.
#[derive(Debug, Default)]
struct Calls {
    open: HashMap<u32, Box<Call>>,
    answered: VecDeque<u32>,
    /// Calls without an answer when a new connection began on the same ports. Clients send them again there.
    #[expect(clippy::vec_box, reason = "there is little memory for places that are empty")]
    unanswered: Vec<Box<Call>>,
}

/// For how many calls a pending one counts.
fn weight(call: &Call) -> usize {
    1 + call.head.ops.len() / OPERATIONS_KEPT
}

/// Places that a table of pending calls may have before it shrinks.
fn places_max(calls: usize) -> usize {
    4 * calls + 3
}

impl Calls {
    fn kind(&self, xid: u32) -> Option<Kind> {
        self.open.get(&xid).map(|call| call.head.kind)
    }

    fn weight(&self) -> usize {
        self.open.values().chain(&self.unanswered).map(|call| weight(call)).sum()
    }

    /// Another connection begins on the same ports. Returns the weight of what is forgotten.
    fn begin(&mut self) -> usize {
        let before = self.weight();
        self.answered.clear();
        self.unanswered = std::mem::take(&mut self.open).into_values().take(UNANSWERED_MAX).collect();
        before - self.weight()
    }

    /// Forgets calls up to a time, but no more than `left`. Returns the weight of what is forgotten.
    fn forget_until(&mut self, ns: i64, left: &mut usize) -> usize {
        let mut forgotten = 0;
        let mut keeps = |call: &Call| {
            let forget = call.times.first.ns <= ns && *left > 0;
            if forget {
                *left -= 1;
                forgotten += weight(call);
            }
            !forget
        };
        self.open.retain(|_, call| keeps(call));
        self.unanswered.retain(|call| keeps(call));
        self.shrink();
        forgotten
    }

    fn take(&mut self, xid: u32) -> Option<Box<Call>> {
        let call = self.open.remove(&xid);
        self.shrink();
        call
    }

    /// The same call on the connection before on these ports.
    fn sent_before(&mut self, xid: u32, kind: Kind) -> Option<Box<Call>> {
        let place =
            self.unanswered.iter().position(|old| (old.head.xid, old.head.kind.unlisted()) == (xid, kind));
        let old = place.map(|i| self.unanswered.swap_remove(i));
        self.shrink();
        old
    }

    fn shrink(&mut self) {
        if self.open.capacity() > places_max(self.open.len()) {
            self.open.shrink_to((2 * self.open.len()).max(3));
        }
        if self.unanswered.capacity() > places_max(self.unanswered.len()) {
            self.unanswered.shrink_to(2 * self.unanswered.len());
        }
    }
}

/// A connection. Index 0 is the direction from the lower address to the higher.
struct Connection {
    halves: [Half; 2],
    calls: [Calls; 2],
    ways: [Direction; 2],
    last_ns: i64,
    /// Time of the last progress.
    progress_ns: i64,
    /// Signs of loss (retransmissions, duplicate acknowledgements), and how often only the IP identifications showed
    /// one.
    losses: u32,
    alone: u32,
    rpc: bool,
}

/// The ends of a connection, lower address first, and whether it is TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key(SocketAddr, SocketAddr, bool);

/// Hashes few words, because every frame is looked up.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for end in [self.0, self.1] {
            match end {
                SocketAddr::V4(end) => {
                    state.write_u64(u64::from(end.ip().to_bits()) << 16 | u64::from(end.port()));
                }
                SocketAddr::V6(end) => {
                    state.write_u128(end.ip().to_bits());
                    state.write_u16(end.port());
                }
            }
        }
    }
}

struct Common<O> {
    observer: O,
    totals: Totals,
    stored: usize,
    held: usize,
    open: usize,
}

pub struct Trace<O> {
    connections: HashMap<Key, Box<Connection>>,
    common: Common<O>,
    fragments: Fragments,
    messages: Vec<Message>,
    last_ns: Option<i64>,
}

impl<O: Observer> Trace<O> {
    pub fn new(observer: O) -> Self {
        let common = Common { observer, totals: Totals::default(), stored: 0, held: 0, open: 0 };
        Trace {
            connections: HashMap::new(),
            common,
            fragments: Fragments::default(),
            messages: Vec::new(),
            last_ns: None,
        }
    }

    pub fn frame(&mut self, frame: &Frame<'_>) {
        let totals = &mut self.common.totals;
        totals.frames += 1;
        totals.cut_frames += u64::from((frame.data.len() as u64) < u64::from(frame.wire_len));
        if totals.span.is_none() {
            self.common.observer.begun(frame.ns);
        }
        let (first, last) = totals.span.unwrap_or((frame.ns, frame.ns));
        totals.span = Some((first.min(frame.ns), last.max(frame.ns)));
        let at = Stamp {
            ns: frame.ns,
            frame: totals.frames,
            gap_ns: frame.ns.saturating_sub(self.last_ns.unwrap_or(frame.ns)),
            wire_len: frame.wire_len,
        };
        if at.gap_ns < -SET_BACK_NS {
            totals.set_back += 1;
            totals.set_back_ns = totals.set_back_ns.saturating_add(at.gap_ns.unsigned_abs());
        }
        self.last_ns = Some(frame.ns);
        match packet(frame) {
            Ok(packet) => self.packet(&packet, at, &[]),
            Err(why) => {
                *totals.passed.entry(why).or_default() += 1;
                if why == Passed::Fragment {
                    self.fragment(frame, at);
                }
            }
        }
    }

    #[cold]
    fn fragment(&mut self, frame: &Frame<'_>, at: Stamp) {
        let Some(fragment) = fragment(frame) else { return };
        let totals = &mut self.common.totals;
        let used = match self.fragments.take(&fragment, at) {
            FragmentResult::Waits => return,
            FragmentResult::Copy => {
                totals.copies += 1;
                1
            }
            FragmentResult::Whole(Datagram { from, to, parts, missing, fragments }) => {
                if let Some(((payload, first), more)) = parts.split_first() {
                    let packet = Packet { from, to, payload, missing, tcp: None };
                    self.packet(&packet, *first, more);
                }
                fragments
            }
        };
        let passed = &mut self.common.totals.passed;
        if let Some(left) = passed.get_mut(&Passed::Fragment) {
            *left = left.saturating_sub(used);
            if *left == 0 {
                passed.remove(&Passed::Fragment);
            }
        }
    }

    /// A packet, with the fragments of it that came in frames of their own.
    fn packet(&mut self, packet: &Packet<'_>, at: Stamp, more: &[(Vec<u8>, Stamp)]) {
        let up = packet.from <= packet.to;
        let dir = usize::from(!up);
        let (low, high) = if up { (packet.from, packet.to) } else { (packet.to, packet.from) };
        let key = Key(low, high, packet.tcp.is_some());
        let connection = match self.connections.entry(key) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(_) => {
                let bare = packet.payload.is_empty() && packet.missing == 0;
                self.common.totals.replies_alone +=
                    u64::from(packet.tcp.is_none() && begins_reply(packet.payload));
                if packet.tcp.map_or_else(|| !begins_call(packet.payload), |tcp| bare && !tcp.syn) {
                    return;
                }
                self.make_room();
                self.connections.entry(key).or_insert_with(|| Box::new(Connection::new(at.ns)))
            }
        };
        connection.last_ns = at.ns;
        if !connection.rpc && packet.tcp.is_some() && connection.halves[dir].stream.searches() {
            self.common.totals.replies_alone += u64::from(begins_marked_reply(packet.payload));
        }
        self.common.held -= connection.held();
        let ends = Ends { from: packet.from, to: packet.to };
        let mut messages = std::mem::take(&mut self.messages);
        match packet.tcp {
            Some(tcp) => connection.segment(dir, packet, tcp, at, &mut messages, &mut self.common),
            None => connection.datagram(dir, packet, (at, more), &mut messages, &self.common),
        }
        connection.settle_all(dir, ends, &mut messages, &mut self.common);
        connection.hand_on_whole(&mut self.common);
        messages.shrink_to(MESSAGES_MAX);
        self.messages = messages;
        if self.common.held + connection.held() > HELD_ALL_MAX {
            connection.halves.iter_mut().for_each(|half| half.stream.let_go());
        }
        self.common.held += connection.held();
        if self.common.open > CALLS_MAX {
            self.forget_calls();
        }
    }

    /// If there are too many connections, forgets those that were silent longest.
    fn make_room(&mut self) {
        if self.connections.len() < CONNECTIONS_MAX {
            return;
        }
        let mut times: Vec<i64> = self.connections.values().map(|c| c.last_ns).collect();
        let (_, oldest, _) = times.select_nth_unstable(CONNECTIONS_MAX / 4);
        let oldest = *oldest;
        let common = &mut self.common;
        let mut room = CONNECTIONS_MAX / 4;
        self.connections.retain(|key, connection| {
            let forget = connection.last_ns <= oldest && room > 0;
            if forget {
                room -= 1;
                common.totals.forgotten += 1;
                connection.end(*key, common);
            }
            !forget
        });
    }

    /// Forgets the older half of the pending calls.
    fn forget_calls(&mut self) {
        let calls = self.connections.values().flat_map(|c| &c.calls);
        let all = calls.flat_map(|c| c.open.values().chain(&c.unanswered));
        let mut times: Vec<i64> = all.map(|call| call.times.first.ns).collect();
        let middle = times.len() / 2;
        let (_, oldest, _) = times.select_nth_unstable(middle);
        let (oldest, mut left) = (*oldest, middle + 1);
        for calls in self.connections.values_mut().flat_map(|c| &mut c.calls) {
            self.common.open -= calls.forget_until(oldest, &mut left);
        }
    }

    pub fn observer(&mut self) -> &mut O {
        &mut self.common.observer
    }

    /// The counts so far, without those added at the end of each connection.
    pub fn totals(&self) -> &Totals {
        &self.common.totals
    }

    pub fn finish(mut self) -> (Totals, O) {
        let mut rest: Vec<_> = self.connections.drain().collect();
        rest.sort_unstable_by_key(|(key, _)| *key);
        for (key, mut connection) in rest {
            connection.end(key, &mut self.common);
        }
        (self.common.totals, self.common.observer)
    }
}

/// Frames from several queues of a network card are out of order by less than this, in nanoseconds.
const SET_BACK_NS: i64 = 1_000_000;

/// For each other sign of a loss, at most this many are accepted from IP identifications alone.
const ALONE_MAX: u32 = 4;

/// With no call pending, a longer pause is idle time, in nanoseconds. Retransmissions mostly come sooner.
const IDLE_NS: i64 = 2_000_000_000;

fn wish<O: Observer>(observer: &O) -> Wish<'_> {
    Wish { detail: observer.wants_detail(), asked: observer.asked(), whole: observer.wants_whole() }
}

/// Whether a datagram begins like a call of a known program.
fn begins_call(payload: &[u8]) -> bool {
    let word = |at: usize| Some(u32::from_be_bytes(<[u8; 4]>::try_from(payload.get(at..at + 4)?).ok()?));
    word(4) == Some(0)
        && word(8) == Some(2)
        && word(12).is_some_and(|p| !matches!(Program::of(p), Program::Other(_) | Program::Callback))
}

/// Whether a segment begins with a record that is a reply.
fn begins_marked_reply(payload: &[u8]) -> bool {
    let Some((mark, message)) = payload.split_first_chunk() else { return false };
    let mark = u32::from_be_bytes(*mark);
    let len = mark & 0x7fff_ffff;
    mark >> 31 == 1 && len <= RECORD_MAX && len % 4 == 0 && begins_reply(message)
}

/// Whether this looks like a reply to an accepted call: five words at least, of which one may be anything.
fn begins_reply(message: &[u8]) -> bool {
    let word = |n: usize| {
        message.get(4 * n..4 * n + 4).and_then(|b| <[u8; 4]>::try_from(b).ok()).map(u32::from_be_bytes)
    };
    let (Some(1), Some(0), Some(flavor), Some(len)) = (word(1), word(2), word(3), word(4)) else {
        return false;
    };
    // The verifier is empty or of RPCSEC_GSS.
    let verifier = matches!((flavor, len), (0, 0) | (6, 1..=400));
    verifier && word(5 + len.div_ceil(4) as usize).is_some_and(|status| status <= 5)
}

impl Connection {
    fn new(ns: i64) -> Self {
        Connection {
            halves: [Half::new(), Half::new()],
            calls: [Calls::default(), Calls::default()],
            ways: [Direction::default(), Direction::default()],
            last_ns: ns,
            progress_ns: ns,
            losses: 0,
            alone: 0,
            rpc: false,
        }
    }

    fn segment<O: Observer>(
        &mut self,
        dir: usize,
        packet: &Packet<'_>,
        tcp: Tcp,
        at: Stamp,
        out: &mut Vec<Message>,
        common: &mut Common<O>,
    ) {
        let ends = Ends { from: packet.from, to: packet.to };
        let mut seq = tcp.seq;
        let payload = u32::try_from(packet.payload.len()).unwrap_or(u32::MAX).saturating_add(packet.missing);
        if self.ways[dir].is_copy(tcp.packet, tcp.seq, payload) {
            common.totals.copies += 1;
            return;
        }
        if tcp.syn {
            // Pending data of the previous connection on these ports.
            while self.halves[dir].waits() && !self.halves[dir].began_at(tcp.seq) {
                let wish = wish(&common.observer);
                self.with(dir, wish, out, |half, around| half.give_up(&mut common.stored, around));
                self.settle(dir, ends, out, common);
            }
            if self.halves[dir].begin(tcp.seq, &mut common.stored) {
                self.ways[dir].begin();
                common.open -= self.calls[dir].begin();
            }
            seq = seq.wrapping_add(1);
        }
        let len = u32::try_from(packet.payload.len()).unwrap_or(u32::MAX).saturating_add(packet.missing);
        let end = (len > 0 || tcp.syn).then(|| seq.wrapping_add(len));
        let missing = self.is_missing(dir, tcp, seq, len, at.ns);
        let (stood_since, new) = self.progress(dir, (len, end), missing, tcp.ack, at.ns);
        if let Some(since) = stood_since {
            self.ways[dir].lost();
            common.observer.stall(ends, since, at.ns);
        }
        if len > 0 {
            if !self.is_quiet(dir) {
                self.went_on(dir, ends, at.ns, common);
            }
            if new {
                let inside = self.halves[dir].stream.inside_since_ns(1).is_some();
                let both = both_ways(&self.ways);
                self.ways[dir].went_on(at.ns, len, inside, both);
            }
            self.ways[dir].sent_at(at.ns);
        }
        if let Some(ack) = tcp.ack
            && self.halves[1 - dir].waits()
        {
            let mut other = Vec::new();
            let wish = wish(&common.observer);
            let holes = self.halves[1 - dir].seen.holes;
            self.with(1 - dir, wish, &mut other, |half, around| {
                half.acknowledged(ack, &mut common.stored, around);
            });
            if self.halves[1 - dir].seen.holes > holes {
                self.ways[1 - dir].no_loss();
            }
            let back = Ends { from: packet.to, to: packet.from };
            self.settle_all(1 - dir, back, &mut other, common);
        }
        let wish = wish(&common.observer);
        let holes = self.halves[dir].seen.holes;
        self.with(dir, wish, out, |half, around| {
            half.segment(seq, packet.payload, packet.missing, at, &mut common.stored, around);
        });
        let half = &self.halves[dir];
        if let Some(since) = self.ways[dir].waits(half.waits(), at.ns)
            && half.seen.holes == holes
        {
            self.ways[dir].lost();
            common.observer.stall(ends, since, at.ns);
        }
    }

    /// Whether packets before this one are missing from the capture, according to IP identifications. Requires all
    /// of:
    ///
    /// - the identifications of this direction are consecutive;
    /// - the connection shows losses in other ways, too;
    /// - a call was pending not long ago.
    fn is_missing(&mut self, dir: usize, tcp: Tcp, seq: u32, len: u32, ns: i64) -> bool {
        if len == 0
            && !tcp.syn
            && let Some(ack) = tcp.ack
        {
            let outstanding = self.ways[1 - dir].is_outstanding();
            let missed = self.ways[dir].bare(ack, outstanding) || tcp.sack;
            self.losses = self.losses.saturating_add(missed.into());
        }
        let numbered = self.ways[dir].numbered(tcp.packet, len);
        if matches!(numbered, Numbered::None | Numbered::InRow) {
            return false;
        }
        let pause = ns.saturating_sub(self.progress_ns);
        // If this is the next expected byte, the missing packet was a retransmission, so the capture misses nothing.
        let waited = in_vain(&self.ways, pause) && self.halves[dir].next() == Some(seq);
        if numbered == Numbered::Elsewhere || !waited {
            self.ways[dir].out_of_row();
            return false;
        }
        let asked = self.calls.iter().any(|calls| !calls.open.is_empty())
            || self.halves.iter().any(|half| half.stream.inside_since_ns(1).is_some());
        let known = self.ways[dir].has_row()
            && self.alone < self.losses.saturating_mul(ALONE_MAX)
            && (asked || pause <= IDLE_NS);
        self.alone = self.alone.saturating_add(known.into());
        known
    }

    /// The common case: the time before a segment with data needs no report.
    fn is_quiet(&self, dir: usize) -> bool {
        let other = &self.halves[1 - dir].stream;
        self.ways[0].is_quiet() && self.ways[1].is_quiet() && other.inside_since_ns(LONG_MIN).is_none()
    }

    /// Reports what the connection did before a segment with data.
    #[cold]
    fn went_on<O: Observer>(&mut self, dir: usize, ends: Ends, ns: i64, common: &mut Common<O>) {
        let back = Ends { from: ends.to, to: ends.from };
        if let Some((from, until)) = self.ways[1 - dir].moved() {
            common.observer.moving(back, from, until);
        }
        // The call is still incomplete, so no observer knows it.
        if let Some(since) = self.halves[1 - dir].stream.inside_since_ns(LONG_MIN) {
            common.observer.moving(back, since, ns);
        }
        // Within a message the sender waits for acknowledgements before it goes on; after a loss it waits for more of
        // them.
        let before = self.ways[dir].sent_last_ns();
        if self.halves[dir].stream.inside_since_ns(1).is_some()
            && let Some(around) = round_trips(&self.ways, dir)
        {
            let lost = self.ways[dir].held_back(ns.saturating_sub(before), &around);
            if lost > 0 {
                common.observer.stall(ends, ns.saturating_sub(lost), ns);
            }
        }
        if let Some((from, until)) = self.ways[dir].moved() {
            common.observer.moving(ends, from, until);
        }
    }

    /// Judges a segment with data up to before `end` that acknowledges everything before `ack`. `missing`: packets
    /// before it are missing from the capture. Returns whether and since when the connection made no progress, and
    /// whether the data is new.
    fn progress(
        &mut self,
        dir: usize,
        (len, end): (u32, Option<u32>),
        missing: bool,
        ack: Option<u32>,
        ns: i64,
    ) -> (Option<i64>, bool) {
        let carried = end.map(|end| self.ways[dir].sent(end, ns));
        let news = ack.is_some_and(|ack| self.ways[1 - dir].acked(ack, ns));
        let lost = carried == Some(Carried::Missing) || (missing && carried.is_some());
        // A single old byte is a keep-alive probe.
        let again = matches!(carried, Some(Carried::Missing | Carried::Known)) && len != 1;
        self.losses = self.losses.saturating_add(again.into());
        // Other data may still flow: a loss holds up only what is behind it.
        let since = match carried {
            Some(Carried::Missing) => self.ways[dir].sent_again(ns),
            _ => self.progress_ns,
        };
        if carried == Some(Carried::New) || news || lost {
            self.progress_ns = ns;
        }
        (lost.then_some(since), carried == Some(Carried::New))
    }

    fn datagram<O: Observer>(
        &mut self,
        dir: usize,
        packet: &Packet<'_>,
        (at, more): (Stamp, &[(Vec<u8>, Stamp)]),
        out: &mut Vec<Message>,
        common: &Common<O>,
    ) {
        let len = packet.payload.len() + more.iter().map(|(part, _)| part.len()).sum::<usize>();
        let Ok(len) = u32::try_from(len) else { return };
        let mark = (len.saturating_add(packet.missing) | 0x8000_0000).to_be_bytes();
        self.with(dir, wish(&common.observer), out, |half, around| {
            half.stream.begin(true);
            half.stream.feed(&mark, at, around);
            half.stream.feed(packet.payload, at, around);
            more.iter().for_each(|(part, at)| half.stream.feed(part, *at, around));
            let last = more.iter().map(|(_, at)| *at).max_by_key(|at| at.ns);
            half.stream.hole(packet.missing.into(), Some(last.unwrap_or(at)), around);
        });
    }

    /// Lets one direction read, with access to the calls of the other.
    fn with(
        &mut self,
        dir: usize,
        wish: Wish<'_>,
        out: &mut Vec<Message>,
        read: impl FnOnce(&mut Half, &mut Around<'_>),
    ) {
        let calls = &self.calls[1 - dir];
        let known = |xid| calls.kind(xid);
        let pauses = pauses(&self.ways, dir);
        read(&mut self.halves[dir], &mut Around { known: &known, out, wish, pauses });
    }

    /// Takes messages, and those that are in the segments behind them.
    fn settle_all<O: Observer>(
        &mut self,
        dir: usize,
        ends: Ends,
        messages: &mut Vec<Message>,
        common: &mut Common<O>,
    ) {
        self.settle(dir, ends, messages, common);
        while self.halves[dir].is_ready() {
            let wish = wish(&common.observer);
            self.with(dir, wish, messages, |half, around| half.drain(&mut common.stored, around));
            self.settle(dir, ends, messages, common);
        }
    }

    fn settle<O: Observer>(
        &mut self,
        dir: usize,
        ends: Ends,
        messages: &mut Vec<Message>,
        common: &mut Common<O>,
    ) {
        if let Some(Message { times, .. }) = messages.last()
            && let Some(end) = self.halves[dir].next()
        {
            self.ways[dir].message(times.bytes, end);
        }
        for message in messages.drain(..) {
            if !std::mem::replace(&mut self.rpc, true) {
                common.totals.rpc_connections += 1;
            }
            if let Head::Reply(head) = &message.head {
                // The server answers, so it has the call. If the call waits behind a hole, the hole is in the
                // capture.
                while !self.calls[1 - dir].open.contains_key(&head.xid) && self.halves[1 - dir].waits() {
                    let mut calls = Vec::new();
                    let wish = wish(&common.observer);
                    self.with(1 - dir, wish, &mut calls, |half, around| {
                        half.give_up(&mut common.stored, around);
                    });
                    self.ways[1 - dir].no_loss();
                    let back = Ends { from: ends.to, to: ends.from };
                    calls.into_iter().for_each(|call| self.take(1 - dir, back, call, common));
                }
            }
            self.take(dir, ends, message, common);
        }
    }

    fn take<O: Observer>(&mut self, dir: usize, ends: Ends, message: Message, common: &mut Common<O>) {
        let Message { head, mut times } = message;
        let last = times.last.unwrap_or(times.first);
        let took_ns = last.ns.saturating_sub(times.first.ns);
        times.on_line_ns = on_line_ns(&self.ways, dir, times.bytes, took_ns);
        match head {
            Head::Call(head) => self.call(dir, ends, Call { head, times }, common),
            Head::Reply(head) => self.reply(dir, ends, Reply { head, times }, common),
        }
    }

    fn call<O: Observer>(&mut self, dir: usize, ends: Ends, mut call: Call, common: &mut Common<O>) {
        let (calls, totals) = (&mut self.calls[dir], &mut common.totals);
        let xid = call.head.xid;
        if calls.open.contains_key(&xid) || calls.answered.contains(&xid) {
            totals.repeated_calls += 1;
            return;
        }
        let kind = call.head.kind.unlisted();
        let sent_before = calls.sent_before(xid, kind);
        if let Some(before) = &sent_before {
            common.open -= weight(before);
            totals.repeated_calls += 1;
        } else if kind.program == Program::Nfs {
            totals.calls_seen += 1;
            totals.encrypted_calls += u64::from(kind.protection == Protection::Privacy);
        } else {
            totals.other_calls += 1;
        }
        totals.tls_probes += u64::from(kind.protection == Protection::TlsProbe);
        common.observer.call(ends, &call);
        // The client waits since the first time.
        if let Some(before) = sent_before.filter(|before| before.times.last.is_some()) {
            call.times = before.times;
        }
        // A reply's line does not need it, and many calls may be pending.
        call.head.shown = Vec::new();
        if call.head.ops.capacity() > OPERATIONS_KEPT {
            call.head.ops.shrink_to_fit();
        }
        let weight = weight(&call);
        if common.open + weight <= CALLS_HARD_MAX {
            calls.open.insert(xid, Box::new(call));
            common.open += weight;
        }
    }

    fn reply<O: Observer>(&mut self, dir: usize, ends: Ends, reply: Reply, common: &mut Common<O>) {
        let (calls, totals) = (&mut self.calls[1 - dir], &mut common.totals);
        let Some(call) = calls.take(reply.head.xid) else {
            if calls.answered.contains(&reply.head.xid) {
                totals.repeated_replies += 1;
            } else {
                totals.stray_replies += 1;
            }
            return;
        };
        common.open -= weight(&call);
        if calls.answered.len() >= ANSWERED_MAX {
            calls.answered.pop_front();
        }
        calls.answered.push_back(reply.head.xid);
        if call.head.kind.program == Program::Nfs {
            let measured = call.times.counted().is_some() && reply.times.counted().is_some();
            totals.calls_matched += u64::from(measured);
            totals.calls_unmeasured += u64::from(!measured);
        }
        common.observer.reply(ends, &call, &reply);
    }

    fn hand_on_whole<O: Observer>(&mut self, common: &mut Common<O>) {
        for half in &mut self.halves {
            half.stream.whole(|record| common.observer.whole(record));
        }
    }

    fn held(&self) -> usize {
        self.halves.iter().map(|half| half.stream.held()).sum()
    }

    fn end<O: Observer>(&mut self, key: Key, common: &mut Common<O>) {
        common.held -= self.held();
        for dir in 0..2 {
            let (from, to) = if dir == 0 { (key.0, key.1) } else { (key.1, key.0) };
            while self.halves[dir].waits() {
                let mut out = Vec::new();
                let wish = wish(&common.observer);
                self.with(dir, wish, &mut out, |half, around| half.give_up(&mut common.stored, around));
                self.settle(dir, Ends { from, to }, &mut out, common);
            }
        }
        self.halves.iter_mut().for_each(|half| half.stream.end());
        self.hand_on_whole(common);
        if self.rpc && key.2 {
            let shortest = [0, 1].map(|way| shortest(&self.ways, way));
            common.observer.path(Ends { from: key.0, to: key.1 }, shortest);
        }
        let totals = &mut common.totals;
        totals.connections += u64::from(key.2);
        let counts = common.observer.counts_segments(Ends { from: key.0, to: key.1 });
        for half in self.halves.iter().filter(|_| counts) {
            totals.tcp.retransmitted += half.seen.retransmitted;
            totals.tcp.early += half.seen.early;
            totals.tcp.holes += half.seen.holes;
            totals.tcp.hole_bytes += half.seen.hole_bytes;
            totals.out_of_step += half.stream.lost;
        }
        common.open -= self.calls.iter().map(Calls::weight).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::FILTER_BYTES_MAX;
    use crate::limits::{
        BLOCK_MAX, FRAGMENTED_BYTES_MAX, FRAME_MAX, ROWS_MAX, STORED_BYTES_ALL_MAX, STORED_SEGMENTS_MAX,
        WAITING_MAX, WHOLE_ALL_MAX, WHOLE_MAX,
    };
    use crate::table::Row;

    #[test]
    fn all_limits_together_stay_below_64_mib() {
        // A table that has just grown held half as much before, and both exist for a moment.
        let places = CONNECTIONS_MAX.next_power_of_two() * 3 / 2 * (size_of::<(Key, usize)>() + 1);
        let connections = CONNECTIONS_MAX * size_of::<Connection>() + places;
        // Transaction ids of their answered calls.
        let answered = 2 * CONNECTIONS_MAX * ANSWERED_MAX * size_of::<u32>();
        // Each with some operations, and a place in a table that has at most so many.
        let places = places_max(CALLS_HARD_MAX) + 2 * CONNECTIONS_MAX * places_max(0);
        let places = (places * 8 / 7 + CALLS_HARD_MAX) * (size_of::<(u32, usize)>() + 1);
        let calls = CALLS_HARD_MAX * (size_of::<Call>() + OPERATIONS_KEPT) + places;
        let rows = ROWS_MAX * Row::BYTES_MAX;
        // Half of a tree may be empty.
        let read = BLOCK_MAX * 3 / 2 + 2 * FRAGMENTED_BYTES_MAX;
        // The shortest call has forty bytes behind its mark.
        let messages = (MESSAGES_MAX + FRAME_MAX / 44).next_power_of_two() * 3 / 2 * size_of::<Message>();
        let read = read + messages;
        // The queue of one direction while it grows.
        let stored = STORED_BYTES_ALL_MAX + STORED_SEGMENTS_MAX * Half::STORED_BYTES;
        let stored = stored + HELD_ALL_MAX + read + crate::analysis::Analysis::BYTES_MAX;
        // An anonymised copy holds other things instead.
        let read_all = STORED_BYTES_ALL_MAX + HELD_ALL_MAX + read;
        // The write buffer, and a record that is being rewritten.
        let written = (1 << 20) + WHOLE_MAX;
        let copy = connections + answered + calls + read_all + WHOLE_ALL_MAX + WAITING_MAX + written;
        assert!(copy < 64 << 20, "a copy {copy}");
        let all = connections + answered + calls + rows + FILTER_BYTES_MAX + stored;
        assert!(
            all < 64 << 20,
            "{all}: a connection {}, a call {}",
            size_of::<Connection>(),
            size_of::<Call>()
        );
    }
}
