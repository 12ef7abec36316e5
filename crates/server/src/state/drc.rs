//! The duplicate request cache: keeps replies to calls of protocols without sessions (NFSv3, NFSv4.0), so that a
//! retried call is not executed twice (RFC 1813 section 4.5, RFC 7530 section 3.1.1).
//!
//! An entry goes through these phases:
//! - busy ([`Drc::begin`]);
//! - answered ([`Drc::answered`]): its reply is known and stands in snapshots, but is not yet durable;
//! - kept ([`Drc::settle`]): the reply may be sent, and sent again.
//!
//! The reply of a call that changed something is a note in the same transaction as the change. So after a power cut
//! both are there or neither is.
//!
//! The key of a call is its sender's address, transaction id, program, version, procedure, and a digest of caller and
//! arguments. The port is not part of it: many clients use another port after they lost their connection. But a client
//! that has *closed* its connection, and has acknowledged all that was sent on it, has its replies. A later call from another port is then a
//! new call that happens to look the same (a program that was restarted and counts from the beginning).
//!
//! Invariants:
//! - Bytes and entries stay within their bounds.
//! - The bounds never evict an entry that is busy or answered.
//! - At the bounds the oldest entry is evicted of the client (an address; of IPv6 the first 64 bits) that has most. So
//!   a client that calls much does not evict the replies of others.

pub use super::call_key::{CallKey, CallNumbers};
use super::ids::ConnId;
use super::notes::{CallNote, KeptBytes, LogId};
use crate::limits;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    pub conn: ConnId,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// Execute it. It is busy until [`Drc::settle`] or [`Drc::forget`].
    New,
    /// In progress: do not answer this retry.
    Busy,
    /// A retry: send this reply.
    Replay(Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Busy,
    Answered,
    Kept,
}

#[derive(Debug)]
struct Entry {
    phase: Phase,
    /// `None` after a restart.
    origin: Option<Origin>,
    reply: Bytes,
    /// The version of its note; 0 when no log has it.
    version: u64,
    /// The log that has its note; `None` when no log has it, or after a restart.
    log: Option<LogId>,
    place: u64,
    /// The reply was sent on a connection that was still open.
    sent: bool,
}

#[derive(Debug)]
pub struct Drc {
    entries: HashMap<CallKey, Entry>,
    order: EvictionOrder,
    next_place: u64,
    bytes_max: u64,
    entries_max: usize,
    ended: EndedConnections,
}

#[derive(Debug, Default)]
struct EvictionOrder {
    by_place: BTreeMap<u64, (CallKey, u64)>,
    of_client: HashMap<IpAddr, ClientEntries>,
    /// Clients by the bytes that they have.
    by_bytes: BTreeSet<(u64, IpAddr)>,
    /// Bytes of all replies and of their entries.
    bytes: u64,
}

#[derive(Debug, Default)]
struct ClientEntries {
    places: BTreeSet<u64>,
    bytes: u64,
}

impl EvictionOrder {
    fn add(&mut self, place: u64, key: CallKey, bytes: u64) {
        let share = key.share();
        let of_client = self.of_client.entry(share).or_default();
        self.by_bytes.remove(&(of_client.bytes, share));
        of_client.bytes += bytes;
        of_client.places.insert(place);
        self.by_bytes.insert((of_client.bytes, share));
        self.bytes += bytes;
        self.by_place.insert(place, (key, bytes));
    }

    fn remove(&mut self, place: u64) {
        let Some((key, bytes)) = self.by_place.remove(&place) else { return };
        self.bytes = self.bytes.saturating_sub(bytes);
        let share = key.share();
        let Some(of_client) = self.of_client.get_mut(&share) else { return };
        self.by_bytes.remove(&(of_client.bytes, share));
        of_client.bytes = of_client.bytes.saturating_sub(bytes);
        of_client.places.remove(&place);
        if of_client.places.is_empty() {
            self.of_client.remove(&share);
        } else {
            self.by_bytes.insert((of_client.bytes, share));
        }
    }

    /// The oldest entry of the client that has most.
    fn first(&self) -> Option<CallKey> {
        let (_, share) = self.by_bytes.last()?;
        let place = self.of_client.get(share)?.places.first()?;
        self.by_place.get(place).map(|(key, _)| key.clone())
    }

    fn len(&self) -> usize {
        self.by_place.len()
    }
}

#[derive(Debug, Default)]
struct EndedConnections {
    /// `true` when it ended in order, and the client had all replies.
    answered: HashMap<ConnId, bool>,
    order: VecDeque<ConnId>,
}

impl EndedConnections {
    fn add(&mut self, conn: ConnId, answered: bool) {
        if self.answered.insert(conn, answered).is_none() {
            self.order.push_back(conn);
        }
        while self.order.len() > limits::DRC_ENDED_CONNECTIONS_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.answered.remove(&oldest);
            }
        }
    }
}

fn cost(reply: &Bytes) -> u64 {
    reply.len() as u64 + limits::DRC_ENTRY_BYTES
}

impl Drc {
    pub fn new(bytes_max: u64) -> Drc {
        Drc {
            entries: HashMap::new(),
            order: EvictionOrder::default(),
            next_place: 0,
            bytes_max,
            entries_max: limits::DRC_ENTRIES_MAX,
            ended: EndedConnections::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn bytes(&self) -> u64 {
        self.order.bytes
    }

    pub fn begin(&mut self, key: &CallKey, from: Origin) -> Begin {
        if let Some(e) = self.entries.get(key) {
            if e.phase != Phase::Kept {
                return Begin::Busy;
            }
            if !self.is_another_call(e, from) {
                return Begin::Replay(e.reply.clone());
            }
            self.remove(key);
        }
        let entry = Entry {
            phase: Phase::Busy,
            origin: Some(from),
            reply: Bytes::new(),
            version: 0,
            log: None,
            place: 0,
            sent: false,
        };
        self.entries.insert(key.clone(), entry);
        Begin::New
    }

    /// Whether the sender of the entry's call certainly received the reply, so that this call is no retry.
    fn is_another_call(&self, e: &Entry, from: Origin) -> bool {
        let Some(origin) = e.origin else { return false };
        e.sent
            && origin.port != from.port
            && origin.conn != from.conn
            && self.ended.answered.get(&origin.conn) == Some(&true)
    }

    /// The call was executed and this is its reply, not yet durable. With a version and a log, returns the note for the
    /// call's transaction in that log.
    pub fn answered(&mut self, key: &CallKey, reply: Bytes, noted: Option<(u64, LogId)>) -> Option<CallNote> {
        let e = self.entries.get_mut(key).filter(|e| e.phase == Phase::Busy)?;
        e.phase = Phase::Answered;
        e.reply = reply;
        e.version = noted.map_or(0, |(version, _)| version);
        e.log = noted.map(|(_, log)| log);
        noted.map(|_| CallNote { key: key.clone(), reply: KeptBytes(e.reply.clone()) })
    }

    /// Puts a reply that no log has into this log after all, under this version. Returns the note.
    pub fn noted(&mut self, key: &CallKey, version: u64, log: LogId) -> Option<CallNote> {
        let e = self.entries.get_mut(key).filter(|e| e.phase == Phase::Answered)?;
        (e.version, e.log) = (version, Some(log));
        Some(CallNote { key: key.clone(), reply: KeptBytes(e.reply.clone()) })
    }

    /// The reply may be sent, now and again.
    pub fn settle(&mut self, key: &CallKey) {
        let Some(e) = self.entries.get_mut(key).filter(|e| e.phase == Phase::Answered) else { return };
        e.phase = Phase::Kept;
        e.place = self.next_place;
        e.sent = e.origin.is_some_and(|o| !self.ended.answered.contains_key(&o.conn));
        self.next_place += 1;
        self.order.add(e.place, key.clone(), cost(&e.reply));
        self.keep_within_bounds();
    }

    /// The call was not executed, or its outcome is unknown: a retry executes it.
    pub fn forget(&mut self, key: &CallKey) {
        if self.entries.get(key).is_some_and(|e| e.phase != Phase::Kept) {
            self.entries.remove(key);
        }
    }

    /// A connection delivers no further calls.
    pub fn connection_ended(&mut self, conn: ConnId) {
        self.ended.add(conn, false);
    }

    /// A connection that had ended, in order: the client has all replies that were sent on it.
    pub fn connection_answered(&mut self, conn: ConnId) {
        self.ended.add(conn, true);
    }

    fn remove(&mut self, key: &CallKey) {
        if let Some(e) = self.entries.remove(key)
            && e.phase == Phase::Kept
        {
            self.order.remove(e.place);
        }
    }

    fn keep_within_bounds(&mut self) {
        while self.order.bytes > self.bytes_max || self.order.len() > self.entries_max {
            let Some(first) = self.order.first() else { break };
            self.remove(&first);
        }
    }

    pub fn keys(&self) -> Vec<CallKey> {
        self.entries.keys().cloned().collect()
    }

    /// The note of a call for this log (or for the only one), with its version. A reply that is not durable yet goes
    /// into no log but its own: another log could keep it without the change that it reports.
    pub fn note(&self, key: &CallKey, log: Option<LogId>) -> Option<(u64, CallNote)> {
        let e = self.entries.get(key)?;
        let here = e.version > 0 && (e.phase == Phase::Kept || log.is_none() || e.log == log);
        here.then(|| (e.version, CallNote { key: key.clone(), reply: KeptBytes(e.reply.clone()) }))
    }

    #[cfg(test)]
    fn notes(&self, log: Option<LogId>) -> impl Iterator<Item = (u64, CallNote)> {
        self.entries.keys().filter_map(move |key| self.note(key, log))
    }

    /// Restores an entry from the log. Call this in the order of versions.
    pub fn restore(&mut self, note: CallNote, version: u64) {
        self.remove(&note.key);
        let place = self.next_place;
        self.next_place += 1;
        let reply = note.reply.0;
        self.order.add(place, note.key.clone(), cost(&reply));
        let entry = Entry { phase: Phase::Kept, origin: None, reply, version, log: None, place, sent: false };
        self.entries.insert(note.key, entry);
        self.keep_within_bounds();
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::Principal;
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn key(xid: u32) -> CallKey {
        key_of(1, xid)
    }

    fn key_of(client: u8, xid: u32) -> CallKey {
        let call = CallNumbers { xid, program: 100_003, version: 3, procedure: 8 };
        CallKey::new([10, 0, 0, client].into(), call, Principal { flavor: 1, uid: 0 }, b"args")
    }

    const LOG: LogId = [1; 16];
    const OTHER_LOG: LogId = [2; 16];

    const A: Origin = Origin { conn: 1, port: 700 };
    const SAME_PORT: Origin = Origin { conn: 2, port: 700 };
    const OTHER_PORT: Origin = Origin { conn: 3, port: 701 };

    fn reply(n: u8) -> Bytes {
        Bytes::from(vec![n; 8])
    }

    fn keep(drc: &mut Drc, xid: u32, n: u8) {
        keep_of(drc, 1, xid, n);
    }

    fn keep_of(drc: &mut Drc, client: u8, xid: u32, n: u8) {
        let key = key_of(client, xid);
        assert_eq!(drc.begin(&key, A), Begin::New);
        drc.answered(&key, reply(n), Some((u64::from(xid), LOG)));
        drc.settle(&key);
    }

    #[test]
    fn who_calls_much_makes_nobody_elses_replies_be_forgotten() {
        let mut drc = Drc::new(10 * (8 + limits::DRC_ENTRY_BYTES));
        for client in 1..4 {
            keep_of(&mut drc, client, 1, client);
        }
        for xid in 2..100 {
            keep_of(&mut drc, 9, xid, 9);
        }
        assert_eq!(drc.len(), 10);
        for client in 1..4 {
            assert_eq!(drc.begin(&key_of(client, 1), A), Begin::Replay(reply(client)));
        }
        assert_eq!(drc.begin(&key_of(9, 92), A), Begin::New, "its own oldest went");
        assert_eq!(drc.begin(&key_of(9, 93), A), Begin::Replay(reply(9)));
        // After a restart as well, in the order of what the log has.
        let mut notes: Vec<_> = drc.notes(None).collect();
        notes.sort_by_key(|(version, _)| *version);
        let mut again = Drc::new(8 * (8 + limits::DRC_ENTRY_BYTES));
        notes.into_iter().for_each(|(version, note)| again.restore(note, version));
        assert_eq!(again.begin(&key_of(3, 1), A), Begin::Replay(reply(3)));
        assert_eq!(again.begin(&key_of(9, 99), A), Begin::Replay(reply(9)));
    }

    #[test]
    fn a_call_is_busy_until_its_reply_is_durable_then_it_is_repeated() {
        let mut drc = Drc::new(1 << 20);
        assert_eq!(drc.begin(&key(1), A), Begin::New);
        assert_eq!(drc.begin(&key(1), A), Begin::Busy);
        let note = drc.answered(&key(1), reply(7), Some((5, LOG))).expect("a note");
        assert_eq!((&note.key, &note.reply.0[..]), (&key(1), &[7; 8][..]));
        assert_eq!(drc.begin(&key(1), SAME_PORT), Begin::Busy, "not before it is durable");
        for log in [None, Some(LOG)] {
            assert_eq!(
                drc.notes(log).collect::<Vec<_>>(),
                [(5, note.clone())],
                "a snapshot in between has it"
            );
        }
        assert_eq!(drc.notes(Some(OTHER_LOG)).count(), 0, "but not the one of another log");
        drc.settle(&key(1));
        assert_eq!(drc.notes(Some(OTHER_LOG)).collect::<Vec<_>>(), [(5, note)]);
        assert_eq!(drc.begin(&key(1), A), Begin::Replay(reply(7)));
        assert_eq!(drc.begin(&key(1), OTHER_PORT), Begin::Replay(reply(7)));
    }

    #[test]
    fn a_reply_that_is_noted_later_is_in_no_log_before() {
        let mut drc = Drc::new(1 << 20);
        assert!(drc.noted(&key(1), 5, LOG).is_none(), "nobody has asked");
        assert_eq!(drc.begin(&key(1), A), Begin::New);
        assert!(drc.noted(&key(1), 5, LOG).is_none(), "it has no reply");
        assert!(drc.answered(&key(1), reply(7), None).is_none());
        assert_eq!(drc.begin(&key(1), SAME_PORT), Begin::Busy);
        assert_eq!(drc.notes(Some(LOG)).count(), 0, "a snapshot before it is noted has not got it");
        let note = drc.noted(&key(1), 5, LOG).expect("a note");
        assert_eq!(drc.notes(Some(LOG)).collect::<Vec<_>>(), [(5, note)]);
        assert_eq!(drc.notes(Some(OTHER_LOG)).count(), 0);
        drc.settle(&key(1));
        assert_eq!(drc.notes(Some(OTHER_LOG)).count(), 1);
        assert!(drc.noted(&key(1), 6, LOG).is_none(), "once");
    }

    #[test]
    fn what_is_forgotten_is_executed_again() {
        let mut drc = Drc::new(1 << 20);
        assert_eq!(drc.begin(&key(1), A), Begin::New);
        drc.forget(&key(1));
        assert_eq!(drc.begin(&key(1), A), Begin::New);
        drc.answered(&key(1), reply(1), Some((1, LOG)));
        drc.forget(&key(1));
        assert!(drc.is_empty());
        keep(&mut drc, 1, 2);
        drc.forget(&key(1));
        assert_eq!(drc.len(), 1, "what is kept stays");
    }

    #[test]
    fn another_call_has_another_name() {
        let name = |client: [u8; 4], xid, procedure, uid, args: &[u8]| {
            let call = CallNumbers { xid, program: 100_003, version: 3, procedure };
            CallKey::new(client.into(), call, Principal { flavor: 1, uid }, args)
        };
        let one = name([1, 2, 3, 4], 1, 8, 0, b"abc");
        assert_eq!(one, name([1, 2, 3, 4], 1, 8, 0, b"abc"));
        for other in [
            name([1, 2, 3, 5], 1, 8, 0, b"abc"),
            name([1, 2, 3, 4], 2, 8, 0, b"abc"),
            name([1, 2, 3, 4], 1, 9, 0, b"abc"),
            name([1, 2, 3, 4], 1, 8, 5, b"abc"),
            name([1, 2, 3, 4], 1, 8, 0, b"abd"),
            name([1, 2, 3, 4], 1, 8, 0, b"abc\0"),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn who_closed_its_connection_in_order_has_its_replies() {
        let mut drc = Drc::new(1 << 20);
        keep(&mut drc, 1, 1);
        drc.connection_ended(A.conn);
        assert_eq!(drc.begin(&key(1), OTHER_PORT), Begin::Replay(reply(1)), "it may not have come");
        drc.connection_answered(A.conn);
        assert_eq!(drc.begin(&key(1), SAME_PORT), Begin::Replay(reply(1)));
        assert_eq!(drc.begin(&key(1), OTHER_PORT), Begin::New);
        // A connection that broke may have lost the reply.
        let mut drc = Drc::new(1 << 20);
        keep(&mut drc, 1, 1);
        drc.connection_ended(A.conn);
        assert_eq!(drc.begin(&key(1), OTHER_PORT), Begin::Replay(reply(1)));
        // So has one that ended before there was a reply.
        let mut drc = Drc::new(1 << 20);
        assert_eq!(drc.begin(&key(1), A), Begin::New);
        drc.answered(&key(1), reply(1), None);
        drc.connection_ended(A.conn);
        drc.settle(&key(1));
        drc.connection_answered(A.conn);
        assert_eq!(drc.begin(&key(1), OTHER_PORT), Begin::Replay(reply(1)));
    }

    #[test]
    fn the_log_gives_back_what_it_was_given() {
        let mut drc = Drc::new(1 << 20);
        keep(&mut drc, 3, 3);
        keep(&mut drc, 4, 4);
        assert_eq!(drc.begin(&key(5), A), Begin::New);
        assert!(drc.answered(&key(5), reply(5), None).is_none(), "changed nothing");
        drc.settle(&key(5));
        let mut notes: Vec<_> = drc.notes(None).collect();
        notes.sort_by_key(|(v, _)| *v);
        let mut again = Drc::new(1 << 20);
        for (v, note) in notes.clone() {
            again.restore(note, v);
        }
        let mut same: Vec<_> = again.notes(None).collect();
        same.sort_by_key(|(v, _)| *v);
        assert_eq!(same, notes);
        assert_eq!(again.begin(&key(3), OTHER_PORT), Begin::Replay(reply(3)));
        assert_eq!(again.begin(&key(5), OTHER_PORT), Begin::New);
    }

    #[test]
    fn the_oldest_go_at_the_bounds() {
        let mut drc = Drc::new(10 * (8 + limits::DRC_ENTRY_BYTES));
        for xid in 0..25 {
            keep(&mut drc, xid, xid as u8);
        }
        assert_eq!(drc.len(), 10);
        assert!(drc.bytes() <= drc.bytes_max);
        assert_eq!(drc.begin(&key(15), A), Begin::Replay(reply(15)));
        assert_eq!(drc.begin(&key(14), A), Begin::New);
    }

    proptest! {
        #[test]
        fn bounds_hold_whatever_comes(
            steps in prop::collection::vec((0u8..6, 0u32..12, 0usize..400, 0u8..3), 0..200)
        ) {
            let mut drc = Drc::new(2000);
            for (what, xid, len, client) in steps {
                let k = key_of(client, xid);
                match what {
                    0 | 1 => { drc.begin(&k, if what == 0 { A } else { OTHER_PORT }); }
                    2 => { drc.answered(&k, vec![0; len].into(), Some((1 + u64::from(xid), LOG))); }
                    3 => drc.settle(&k),
                    4 => drc.forget(&k),
                    _ if len % 2 == 0 => drc.connection_answered(u64::from(xid)),
                    _ => drc.connection_ended(u64::from(xid)),
                }
                prop_assert!(drc.bytes() <= drc.bytes_max);
                let kept: Vec<_> = drc.entries.values().filter(|e| e.phase == Phase::Kept).collect();
                prop_assert_eq!(kept.len(), drc.order.len());
                prop_assert_eq!(kept.iter().map(|e| cost(&e.reply)).sum::<u64>(), drc.bytes());
                let of_clients = drc.order.of_client.values();
                prop_assert_eq!(of_clients.map(|c| c.bytes).sum::<u64>(), drc.bytes());
                prop_assert_eq!(drc.order.by_bytes.len(), drc.order.of_client.len());
            }
        }
    }

    #[test]
    fn connections_that_ended_are_remembered_within_bounds() {
        let mut ended = EndedConnections::default();
        for conn in 0..2 * limits::DRC_ENDED_CONNECTIONS_MAX as u64 {
            ended.add(conn, true);
            ended.add(conn, false);
        }
        assert_eq!(ended.answered.len(), limits::DRC_ENDED_CONNECTIONS_MAX);
        assert_eq!(ended.answered.keys().collect::<HashSet<_>>().len(), ended.order.len());
    }
}
