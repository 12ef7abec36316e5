//! Merges the notes of several logs: what a server with several volumes knew when it went down.
//!
//! A note goes into the log of the volume that its request changed, or into any log. Each log is emptied at its own
//! checkpoints and gets a snapshot of the whole state instead. So two logs may contradict each other: one says that a
//! thing exists, the other has said that it is gone and no longer mentions it. The rules:
//!
//! 1. Only logs of one server count, and only those of its last instance. (Before an instance serves anybody, it writes
//!    a snapshot of all that it found into each log. So a log without one has nothing that the others lack.)
//! 2. Of several notes on one thing the newest version counts ([`super::State::restore`]).
//!    Where such a log is missing, clients reclaim ([`Known::NotAll`]).
//! 3. A client, session, NLM host, delegation, lock or open is gone if it is missing in the newest complete snapshot and no note on it is
//!    newer. This does not hold for slots, since a snapshot leaves out what is staged in another log. A slot goes with
//!    its session.

use super::notes::{LogId, Note, Stamped};
use super::restore::Known;
use landfast_nfs::v4::SessionId;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Merged {
    pub notes: Vec<Stamped>,
    /// The server that they belong to; `None` when no log says.
    pub server: Option<[u8; 16]>,
    /// Its last instance; 0 when no log says.
    pub epoch: u32,
    /// The logs that count, by their places.
    pub used: Vec<usize>,
    /// Whether there are logs of other servers.
    pub of_others: bool,
    /// The logs that notes may be in ([`Note::Logs`]).
    pub logs: Vec<LogId>,
}

impl Merged {
    /// Whether these are all notes of the server that were durable. `here`: the logs that were merged, in their order.
    pub fn known(&self, here: &[LogId]) -> Known {
        let counts = |log: &LogId| self.used.iter().any(|at| here.get(*at) == Some(log));
        match self.logs.iter().all(counts) {
            false => Known::NotAll,
            true if self.of_others => Known::OfOneServer,
            true => Known::All,
        }
    }
}

/// The things that rule 3 concerns.
#[derive(PartialEq, Eq, Hash)]
enum Thing {
    Client(u64),
    Session(SessionId),
    Host(u64),
    Delegation(u64),
    Locks(u64),
    Open(u64),
}

fn thing(note: &Note) -> Option<Thing> {
    match note {
        Note::Client(c) => Some(Thing::Client(c.id)),
        Note::Client40(c) => Some(Thing::Client(c.id)),
        Note::ClientGone(id) => Some(Thing::Client(*id)),
        Note::Session(s) => Some(Thing::Session(s.id)),
        Note::SessionGone(id) => Some(Thing::Session(*id)),
        Note::NlmHost(h) => Some(Thing::Host(h.id)),
        Note::NlmHostGone(id) => Some(Thing::Host(*id)),
        Note::Delegation(d) => Some(Thing::Delegation(d.id)),
        Note::DelegationGone(id) => Some(Thing::Delegation(*id)),
        Note::Locks(l) => Some(Thing::Locks(l.id)),
        Note::LocksGone(id) => Some(Thing::Locks(*id)),
        Note::Open(o) => Some(Thing::Open(o.id)),
        Note::OpenGone(id) => Some(Thing::Open(*id)),
        _ => None,
    }
}

/// The last complete snapshot of a log.
struct Last<'a> {
    v: u64,
    server: [u8; 16],
    epoch: u32,
    /// Its notes and those of requests between them. What these concern is either in the snapshot or newer.
    notes: &'a [Stamped],
}

fn last_snapshot(log: &[Stamped]) -> Option<Last<'_>> {
    log.iter().enumerate().rev().find_map(|(end, s)| {
        let (server, epoch, begin) = match &s.note {
            Note::Complete(mark) => (mark.server, mark.epoch, end.saturating_sub(mark.count as usize)),
            Note::Ends(mark) => {
                let begins = |b: &Stamped| b.v == s.v && b.note == Note::Begins;
                (mark.server, mark.epoch, log.get(..end)?.iter().rposition(begins)?)
            }
            _ => return None,
        };
        Some(Last { v: s.v, server, epoch, notes: log.get(begin..end)? })
    })
}

/// Merges logs. Each is in the order in which it was written.
pub fn merge(logs: &[Vec<Stamped>]) -> Merged {
    let snapshots: Vec<_> = logs.iter().map(|log| last_snapshot(log)).collect();
    // Of several servers, the one in most logs counts; then the one whose log comes first.
    let mut servers: HashMap<[u8; 16], (usize, Reverse<usize>, u32)> = HashMap::new();
    for (at, last) in snapshots.iter().flatten().enumerate() {
        let known = servers.entry(last.server).or_insert((0, Reverse(at), 0));
        *known = (known.0 + 1, known.1, known.2.max(last.epoch));
    }
    let chosen = servers.into_iter().max_by_key(|(_, (logs, first, _))| (*logs, *first));
    let Some((server, (.., epoch))) = chosen else {
        return Merged { notes: logs.concat(), ..Merged::default() };
    };
    let of_others = snapshots.iter().flatten().any(|last| last.server != server);
    let used: Vec<_> = logs
        .iter()
        .zip(&snapshots)
        .enumerate()
        .filter_map(|(at, (log, last))| last.as_ref().map(|last| (at, log, last)))
        .filter(|(.., last)| last.server == server && last.epoch == epoch)
        .collect();
    let mut known = HashSet::new();
    let mut complete = 0;
    if let Some((.., last)) = used.iter().max_by_key(|(.., last)| last.v) {
        complete = last.v;
        known.extend(last.notes.iter().filter_map(|s| thing(&s.note)));
    }
    let counts = |s: &&Stamped| s.v > complete || thing(&s.note).is_none_or(|t| known.contains(&t));
    let notes: Vec<Stamped> =
        used.iter().flat_map(|(_, log, _)| log.iter()).filter(counts).cloned().collect();
    let newest = notes.iter().filter(|s| matches!(s.note, Note::Logs(_))).max_by_key(|s| s.v);
    let logs = match newest.map(|s| &s.note) {
        Some(Note::Logs(logs)) => logs.clone(),
        _ => Vec::new(),
    };
    let used = used.iter().map(|(at, ..)| *at).collect();
    Merged { notes, server: Some(server), epoch, used, of_others, logs }
}

#[cfg(test)]
mod tests {
    use super::super::clients::ExchangeId;
    use super::super::identity::Requester;
    use super::super::notes::{CompleteNote, EndsNote};
    use super::super::sessions::{Begin, CachedReply, NewSession, SlotUse};
    use super::super::snapshot::{PartMax, Snapshot};
    use super::super::{Bounds, Principal, State};
    use super::*;
    use bytes::Bytes;
    use landfast_nfs::v4::ChannelAttrs;
    use proptest::prelude::*;
    use std::net::IpAddr;

    const LOGS: usize = 3;
    const SERVER: [u8; 16] = [9; 16];

    fn id(log: usize) -> [u8; 16] {
        [log as u8; 16]
    }

    /// A log: what is flushed, and what follows it.
    #[derive(Default)]
    struct Log {
        flushed: Vec<Stamped>,
        tail: Vec<Stamped>,
        taking: Option<Taking>,
    }

    /// A snapshot that is being taken for a log; what is logged meanwhile stands between its parts.
    struct Taking {
        snapshot: Snapshot,
        /// Where it begins: so many notes stand before it, flushed or not.
        at: usize,
        /// The beginning of the ring moves there when all of it is flushed; otherwise there is a crash before that.
        cut: bool,
    }

    impl Log {
        fn flush(&mut self) {
            self.flushed.append(&mut self.tail);
            if let Some(Taking { at, cut, .. }) = self.taking.take_if(|taking| taking.snapshot.is_over())
                && cut
            {
                self.flushed.drain(..at);
            }
        }
    }

    /// A request whose effect and reply are in a log, and wait for its flush.
    #[derive(Clone)]
    struct Staged {
        log: usize,
        session: SessionId,
        slot: u32,
        sequence: u32,
    }

    /// A request with effects in two logs, none of which has its reply yet.
    #[derive(Clone)]
    struct Over {
        marks: [u64; 2],
        session: SessionId,
        slot: u32,
        sequence: u32,
        home: usize,
    }

    /// Notes on clients that never were stand for effects.
    const MARKS: u64 = 1 << 40;

    fn mark(s: &Stamped) -> Option<u64> {
        match s.note {
            Note::ClientGone(mark) if mark >= MARKS => Some(mark),
            _ => None,
        }
    }

    /// A server with several logs, and what it has acknowledged.
    struct Model {
        st: State<u32>,
        epoch: u32,
        logs: Vec<Log>,
        staged: Vec<Staged>,
        /// By session and slot: the last sequence number whose reply was sent, and all that were ever staged, with the
        /// log and the position in it by which the effect is durable.
        sent: HashMap<(SessionId, u32), u32>,
        next: HashMap<(SessionId, u32), u32>,
        /// Sessions: by name, with whether it was told to the client that it is (true) or is gone (false).
        told: HashMap<SessionId, bool>,
        pending: Vec<(usize, SessionId, bool)>,
        names: u8,
        over: Vec<Over>,
        /// Effects so far, those that are durable, and those that a reply speaks of.
        marks: u64,
        durable: HashSet<u64>,
        needs: HashMap<(SessionId, u32, u32), [u64; 2]>,
        /// Replies of requests over two logs are written down with the last effect: to see that it is seen.
        early: bool,
    }

    #[derive(Debug, Clone)]
    enum Step {
        Session { log: usize },
        Gone { log: usize, which: usize },
        Request { log: usize, which: usize, slot: u32 },
        Over { logs: [usize; 2], which: usize, slot: u32 },
        Flush { log: usize },
        Checkpoint { log: usize, cut: bool },
        Part { log: usize, most: usize },
        Crash { keep: [u8; LOGS] },
    }

    fn step() -> impl Strategy<Value = Step> {
        let log = || 0..LOGS;
        prop_oneof![
            2 => log().prop_map(|log| Step::Session { log }),
            1 => (log(), 0usize..8).prop_map(|(log, which)| Step::Gone { log, which }),
            6 => (log(), 0usize..8, 0u32..2).prop_map(|(log, which, slot)| Step::Request { log, which, slot }),
            4 => (log(), 1..LOGS, 0usize..8, 0u32..2).prop_map(|(log, other, which, slot)| Step::Over {
                logs: [log, (log + other) % LOGS],
                which,
                slot
            }),
            6 => log().prop_map(|log| Step::Flush { log }),
            3 => (log(), any::<bool>()).prop_map(|(log, cut)| Step::Checkpoint { log, cut }),
            12 => (log(), 1usize..4).prop_map(|(log, most)| Step::Part { log, most }),
            1 => any::<[u8; LOGS]>().prop_map(|keep| Step::Crash { keep }),
        ]
    }

    impl Model {
        fn new() -> Model {
            let mut m = Model {
                st: State::new(1, 90_000, Bounds::new(None)),
                epoch: 1,
                logs: (0..LOGS).map(|_| Log::default()).collect(),
                staged: Vec::new(),
                sent: HashMap::new(),
                next: HashMap::new(),
                told: HashMap::new(),
                pending: Vec::new(),
                names: 0,
                over: Vec::new(),
                marks: MARKS,
                durable: HashSet::new(),
                needs: HashMap::new(),
                early: false,
            };
            let ask = ExchangeId {
                owner: Bytes::from_static(b"client"),
                verifier: [1; 8],
                by: Requester {
                    principal: Principal { flavor: 1, uid: 0 },
                    addr: IpAddr::from([192, 0, 2, 1]),
                },
                update: false,
            };
            let client = m.st.clients.exchange_id(0, &ask, |_| true).expect("new").client;
            let v = m.st.next_version();
            m.st.clients.created(client, 0, Bytes::new(), v);
            m.begin_life();
            m
        }

        fn client(&self) -> u64 {
            self.st.clients.ids()[0]
        }

        fn begin_life(&mut self) {
            for log in 0..LOGS {
                let all = self.st.snapshot_in(id(log), SERVER, self.epoch);
                self.logs[log] = Log { flushed: all, ..Log::default() };
            }
        }

        fn sessions(&self) -> Vec<SessionId> {
            let mut all: Vec<_> = self.st.sessions.iter().map(|s| s.id).collect();
            all.sort_unstable();
            all
        }

        fn apply(&mut self, step: &Step) -> Result<(), TestCaseError> {
            match step {
                Step::Session { log } => {
                    if self.names == u8::MAX {
                        return Ok(());
                    }
                    self.names += 1;
                    let name = [self.names; 16];
                    let fore = ChannelAttrs {
                        max_requests: 2,
                        max_response_size_cached: 64,
                        ..ChannelAttrs::default()
                    };
                    let new = NewSession {
                        id: name,
                        client: self.client(),
                        fore,
                        back: ChannelAttrs::default(),
                        callback_program: 0,
                        flags: 0,
                        callback_cred: None,
                    };
                    let v = self.st.next_version();
                    self.st.sessions.insert(new, v, 0);
                    let note = self.st.sessions.get(&name).expect("it").to_note();
                    self.logs[*log].tail.push(Stamped { v, note: Note::Session(note) });
                    self.pending.push((*log, name, true));
                }
                Step::Gone { log, which } => {
                    let Some(name) = self.sessions().get(*which).copied() else { return Ok(()) };
                    if self.st.sessions.get(&name).is_some_and(|s| s.busy()) {
                        return Ok(());
                    }
                    let note = self.st.remove_session(&name).expect("it is there");
                    self.logs[*log].tail.push(note);
                    self.pending.push((*log, name, false));
                }
                Step::Request { log, which, slot } => {
                    let Some((session, sequence)) = self.request(*which, *slot) else { return Ok(()) };
                    self.stage(*log, session, *slot, sequence);
                }
                Step::Over { logs, which, slot } => {
                    let Some((session, sequence)) = self.request(*which, *slot) else { return Ok(()) };
                    let marks = logs.map(|log| {
                        self.marks += 1;
                        let note = Note::ClientGone(self.marks);
                        let v = self.st.next_version();
                        self.logs[log].tail.push(Stamped { v, note });
                        self.marks
                    });
                    self.needs.insert((session, *slot, sequence), marks);
                    match self.early {
                        true => self.stage(logs[1], session, *slot, sequence),
                        false => {
                            self.over.push(Over { marks, session, slot: *slot, sequence, home: logs[1] })
                        }
                    }
                }
                Step::Flush { log } => self.flush(*log),
                Step::Checkpoint { log, cut } => {
                    let snapshot = self.st.begin_snapshot(Some(id(*log)));
                    let Log { flushed, tail, taking } = &mut self.logs[*log];
                    if taking.is_none() {
                        let at = flushed.len() + tail.len();
                        tail.push(snapshot.begins());
                        *taking = Some(Taking { snapshot, at, cut: *cut });
                    }
                }
                Step::Part { log, most } => {
                    let Log { tail, taking, .. } = &mut self.logs[*log];
                    let Some(taking) = taking.as_mut().filter(|taking| !taking.snapshot.is_over()) else {
                        return Ok(());
                    };
                    let most = PartMax { notes: *most, bytes: usize::MAX };
                    tail.extend(self.st.snapshot_part(&mut taking.snapshot, most));
                    if taking.snapshot.is_over() {
                        tail.push(taking.snapshot.ends(SERVER, self.epoch));
                    }
                }
                Step::Crash { keep } => self.crash(keep)?,
            }
            Ok(())
        }

        /// A new request of a session, if the one before was answered.
        fn request(&mut self, which: usize, slot: u32) -> Option<(SessionId, u32)> {
            let name = self.sessions().get(which).copied()?;
            let next = self.next.entry((name, slot)).or_insert(1);
            let ask = SlotUse { slot, sequence: *next, highest: 1, fingerprint: 0, solo: false };
            let begun = self.st.sessions.get_mut(&name).expect("it").begin(0, &ask, true, || Ok(()));
            if begun != Ok(Begin::New) {
                return None;
            }
            let sequence = *next;
            *next += 1;
            Some((name, sequence))
        }

        /// Its reply goes into this log.
        fn stage(&mut self, log: usize, session: SessionId, slot: u32, sequence: u32) {
            let v = self.st.next_version();
            let reply = CachedReply::Reply(Bytes::copy_from_slice(&sequence.to_be_bytes()));
            let mut s = self.st.sessions.get_mut(&session).expect("it");
            let note = s.stage(slot, reply, v, Some(id(log))).expect("the slot");
            drop(s);
            self.logs[log].tail.push(Stamped { v, note: Note::Slot(note) });
            self.staged.push(Staged { log, session, slot, sequence });
        }

        fn flush(&mut self, log: usize) {
            self.durable.extend(self.logs[log].tail.iter().filter_map(mark));
            self.logs[log].flush();
            for (_, name, is) in self.pending.extract_if(.., |(l, ..)| *l == log) {
                // Answers may overtake each other; names are not used twice.
                *self.told.entry(name).or_insert(is) &= is;
            }
            for s in self.staged.extract_if(.., |s| s.log == log).collect::<Vec<_>>() {
                self.sent.insert((s.session, s.slot), s.sequence);
                self.st.sessions.get_mut(&s.session).expect("busy").release(s.slot);
            }
            let durable = &self.durable;
            let whole = |o: &mut Over| o.marks.iter().all(|mark| durable.contains(mark));
            for o in self.over.extract_if(.., whole).collect::<Vec<_>>() {
                self.stage(o.home, o.session, o.slot, o.sequence);
            }
        }

        fn crash(&mut self, keep: &[u8; LOGS]) -> Result<(), TestCaseError> {
            let mut effects: HashSet<(SessionId, u32, u32)> = HashSet::new();
            let mut logs = Vec::new();
            for (log, keep) in self.logs.iter().zip(keep) {
                let kept = usize::from(*keep) % (log.tail.len() + 1);
                self.durable.extend(log.tail[..kept].iter().filter_map(mark));
                for s in &log.tail[..kept] {
                    if let Note::Slot(n) = &s.note {
                        effects.insert((n.session, n.slot, n.sequence));
                    }
                }
                logs.push([&log.flushed[..], &log.tail[..kept]].concat());
            }
            let merged = merge(&logs);
            prop_assert_eq!((merged.server, merged.epoch), (Some(SERVER), self.epoch));
            self.epoch += 1;
            let mut st: State<u32> = State::new(self.epoch, 90_000, Bounds::new(None));
            st.restore(merged.notes, 0);
            prop_assert_eq!(st.clients.len(), 1);
            for (name, is) in &self.told {
                let open = self.pending.iter().any(|(_, n, _)| n == name);
                prop_assert!(
                    open || st.sessions.get(name).is_some() == *is,
                    "session {:?} was told {}",
                    name,
                    is
                );
            }
            for s in st.sessions.iter() {
                for (_, note) in s.slot_notes(0, None) {
                    let sent = self.sent.get(&(s.id, note.slot)).copied().unwrap_or(0);
                    prop_assert!(note.sequence >= sent, "a sent reply is kept");
                    let needs = self.needs.get(&(s.id, note.slot, note.sequence));
                    let effect = note.sequence == sent
                        || effects.contains(&(s.id, note.slot, note.sequence))
                        || needs.is_some();
                    prop_assert!(effect, "no reply without its effect");
                    let all = needs.is_none_or(|marks| marks.iter().all(|m| self.durable.contains(m)));
                    prop_assert!(all, "no reply without all of its effects");
                    let reply = note.sequence.to_be_bytes();
                    let kept = note.reply.map(|kept| kept.0);
                    prop_assert_eq!(kept.as_deref(), Some(&reply[..]));
                }
            }
            for ((name, slot), sent) in &self.sent {
                let there = st.sessions.get(name);
                let kept =
                    there.map(|s| s.slot_notes(0, None).any(|(_, n)| n.slot == *slot && n.sequence >= *sent));
                prop_assert_ne!(kept, Some(false), "the reply of a live session was sent and is gone");
            }
            // The client repeats what it has no answer to; the model lets it go on from what is known.
            self.sent.clear();
            self.next.clear();
            for s in st.sessions.iter() {
                for (_, note) in s.slot_notes(0, None) {
                    self.sent.insert((s.id, note.slot), note.sequence);
                    self.next.insert((s.id, note.slot), note.sequence + 1);
                }
            }
            self.told = self
                .told
                .keys()
                .copied()
                .chain(st.sessions.iter().map(|s| s.id))
                .map(|n| (n, false))
                .collect();
            for s in st.sessions.iter() {
                self.told.insert(s.id, true);
            }
            (self.staged, self.pending) = (Vec::new(), Vec::new());
            self.over.clear();
            self.needs.clear();
            self.st = st;
            self.begin_life();
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn any_interleaving_of_notes_checkpoints_and_crashes(steps in prop::collection::vec(step(), 1..90)) {
            let mut m = Model::new();
            for step in &steps {
                m.apply(step)?;
            }
            m.crash(&[255; LOGS])?;
        }
    }

    /// The model sees a reply that is in a log before all of its effects are.
    #[test]
    fn a_reply_that_is_kept_early_is_seen_by_the_model() {
        let mut m = Model::new();
        m.early = true;
        let steps = [
            Step::Session { log: 0 },
            Step::Flush { log: 0 },
            Step::Over { logs: [0, 1], which: 0, slot: 0 },
            Step::Flush { log: 1 },
        ];
        for step in &steps {
            m.apply(step).expect("nothing is wrong yet");
        }
        let seen = m.crash(&[0; LOGS]).expect_err("half of it is lost");
        assert!(seen.to_string().contains("all of its effects"), "{seen}");
        // As it is done: the same steps, and one more flush of each.
        let mut m = Model::new();
        for step in &steps {
            m.apply(step).expect("right");
        }
        for log in [0, 1] {
            m.apply(&Step::Flush { log }).expect("right");
        }
        assert_eq!(m.sent.len(), 1, "it is answered when all is durable");
        m.crash(&[0; LOGS]).expect("right");
    }

    fn complete(v: u64, server: u8, epoch: u32, count: u32) -> Stamped {
        Stamped { v, note: Note::Complete(CompleteNote { server: [server; 16], epoch, count }) }
    }

    fn gone(v: u64, id: u64) -> Stamped {
        Stamped { v, note: Note::ClientGone(id) }
    }

    #[test]
    fn logs_of_another_server_or_an_earlier_life_do_not_count() {
        let a = vec![complete(5, 1, 3, 0), gone(6, 1)];
        let b = vec![complete(9, 1, 2, 0), gone(10, 2)];
        let c = vec![complete(90, 2, 7, 0), gone(91, 3)];
        let d = vec![gone(100, 4)];
        let merged = merge(&[a.clone(), b, c.clone(), d.clone()]);
        assert_eq!((merged.server, merged.epoch), (Some([1; 16]), 3));
        assert_eq!(merged.notes, [complete(5, 1, 3, 0), gone(6, 1)]);
        // Alone, each counts: the server has moved.
        assert_eq!(merge(&[c]).server, Some([2; 16]));
        assert_eq!(merge(std::slice::from_ref(&d)), Merged { notes: d, ..Merged::default() });
        assert_eq!(merge(&[]), Merged::default());
    }

    #[test]
    fn what_is_known_depends_on_the_logs_that_are_there() {
        let [a, b, c] = [[1; 16], [2; 16], [3; 16]];
        let logs = |v, logs: &[LogId]| Stamped { v, note: Note::Logs(logs.to_vec()) };
        let first = vec![logs(1, &[a, b]), complete(1, 1, 3, 1)];
        let second = vec![logs(1, &[a, b]), complete(1, 1, 3, 1), gone(2, 1)];
        let known = |all: &[Vec<Stamped>], here: &[LogId]| merge(all).known(here);
        assert_eq!(known(&[first.clone(), second.clone()], &[a, b]), Known::All);
        assert_eq!(known(std::slice::from_ref(&second), &[b]), Known::NotAll);
        // One that comes back is of an earlier life.
        let old = vec![logs(1, &[a, b]), complete(1, 1, 2, 1)];
        assert_eq!(known(&[old.clone(), second.clone()], &[a, b]), Known::NotAll);
        let alone = [&second[..], &[logs(9, &[b])]].concat();
        assert_eq!(known(&[old, alone.clone()], &[a, b]), Known::All);
        // A clean stop: whichever says so has all.
        let stopped = [&second[..], &[logs(9, &[])]].concat();
        assert_eq!(known(std::slice::from_ref(&stopped), &[b]), Known::All);
        assert_eq!(known(&[first.clone(), stopped], &[a, b]), Known::All);
        // Another server's: the first counts, and its clients are all.
        let other = vec![logs(5, &[c]), complete(5, 2, 40, 1)];
        assert_eq!(merge(&[alone.clone(), other.clone()]).server, Some([1; 16]));
        assert_eq!(known(&[alone, other], &[b, c]), Known::OfOneServer);
        // A program that did not write them.
        assert_eq!(known(&[vec![complete(5, 1, 3, 0)], vec![]], &[a, b]), Known::All);
    }

    /// What earlier programs wrote: the number of notes says where a snapshot begins.
    #[test]
    fn a_snapshot_of_an_earlier_program_is_read() {
        let log = vec![gone(3, 1), gone(4, 2), complete(5, 1, 3, 1), gone(6, 3)];
        let merged = merge(std::slice::from_ref(&log));
        assert_eq!(merged.notes, log[1..]);
    }

    /// A snapshot counts when its end is there, wherever requests have noted something between.
    #[test]
    fn notes_of_requests_between_the_parts_of_a_snapshot() {
        let begins = |v| Stamped { v, note: Note::Begins };
        let ends = |v| Stamped { v, note: Note::Ends(EndsNote { server: [1; 16], epoch: 3 }) };
        let first = [begins(1), gone(1, 1), gone(1, 2), ends(1)];
        let second = [begins(5), gone(7, 3), gone(4, 2), gone(8, 4)];
        let unfinished = [&first[..], &second].concat();
        assert_eq!(merge(std::slice::from_ref(&unfinished)).notes, unfinished, "the first one counts");
        let whole = [&unfinished[..], &[ends(5), gone(9, 5)]].concat();
        let merged = merge(std::slice::from_ref(&whole));
        let lost: Vec<_> = whole.iter().filter(|s| !merged.notes.contains(s)).cloned().collect();
        assert_eq!(lost, [gone(1, 1)], "what is not in the second and no newer is gone");
    }
}
