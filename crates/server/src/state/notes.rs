//! What of the state stands in the intent log, and how it is read back after a restart.
//!
//! A note says how one thing is now, not what happened to it, and carries a version that grows with each change of
//! the state. So notes may come in any order and more than once (a snapshot at a checkpoint says again what
//! earlier notes said): the highest version of each thing counts. Several logs: [`super::merge`].

use super::clients::{Client, V40};
use super::drc::{CallKey, CallNote};
use super::identity::Addrs;
use super::sessions::NewSession;
use super::{Millis, Principal, State};
use bytes::Bytes;
use landfast_nfs::v4::{ChannelAttrs, SessionId, Verifier};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::mem;

/// The version of the notes' format; a log with another is read as if it held no notes.
const FORMAT: u8 = 1;

/// A confirmed client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientNote {
    /// The client ID.
    pub id: u64,
    /// `co_ownerid`.
    pub owner: Vec<u8>,
    /// `co_verifier`.
    pub verifier: Verifier,
    /// Who may speak for it.
    pub principal: Principal,
    /// The sequence number of the next CREATE_SESSION.
    pub create_sequence: u32,
    /// The encoded result of the last one.
    pub create_reply: Option<Vec<u8>>,
    /// It may hold opens or locks.
    pub holds: bool,
    /// It has sent RECLAIM_COMPLETE.
    pub reclaim_complete: bool,
}

/// A confirmed client of NFSv4.0. Its client ID is stale after a restart; what counts is who it is, and whether it may have
/// to reclaim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client40Note {
    /// The client ID.
    pub id: u64,
    /// `nfs_client_id4.id`.
    pub owner: Vec<u8>,
    /// `nfs_client_id4.verifier`.
    pub verifier: Verifier,
    /// Who may speak for it.
    pub principal: Principal,
    /// It may hold opens or locks.
    pub holds: bool,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionNote {
    /// Its name.
    pub id: SessionId,
    /// Its client.
    pub client: u64,
    /// The fore channel: request, response, cached response, operations, slots.
    pub fore: [u32; 5],
    /// The back channel, in the same order.
    pub back: [u32; 5],
    /// The program number for callbacks.
    pub callback_program: u32,
    /// `csr_flags`.
    pub flags: u32,
}

/// What the log knows of a session's back channel. It goes with its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackNote {
    /// The session.
    pub session: SessionId,
    /// The callbacks' RPC credential, flavor and body.
    pub cred: Option<(u32, Vec<u8>)>,
    /// The client has asked for a back channel.
    pub asked: bool,
    /// Callbacks may have been sent: nobody knows the numbers of its slots after a restart.
    pub called: bool,
}

/// The last request of a slot that changed anything, and its reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotNote {
    /// The session.
    pub session: SessionId,
    /// Which slot.
    pub slot: u32,
    /// The request's sequence number.
    pub sequence: u32,
    /// Digest of the request.
    pub fingerprint: u64,
    /// The encoded COMPOUND result, if kept.
    pub reply: Option<KeptBytes>,
}

/// A reply as a note has it: shared with what keeps it, so that no note copies one under the state's lock. In the log it is a
/// sequence of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptBytes(pub Bytes);

impl Serialize for KeptBytes {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for KeptBytes {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(KeptBytes(Vec::deserialize(from)?.into()))
    }
}

/// A host that locks by NLM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NlmHostNote {
    /// Its identity in the tables.
    pub id: u64,
    /// Its address.
    pub addr: std::net::IpAddr,
    /// What it calls itself.
    pub name: Vec<u8>,
    /// It may hold something.
    pub holds: bool,
}

/// Where a client calls from ([`super::identity`]). It goes with its client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddrsNote {
    /// The client.
    pub client: u64,
    /// Its addresses, oldest first.
    pub addrs: Vec<std::net::IpAddr>,
}

/// Names a log: the identity of its volume.
pub type LogId = [u8; 16];

/// The end of a snapshot as earlier programs took it, with nothing else between its notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompleteNote {
    /// See [`EndsNote`].
    pub server: [u8; 16],
    /// See [`EndsNote`].
    pub epoch: u32,
    /// So many notes before this one are the snapshot.
    pub count: u32,
}

/// The end of a snapshot: nothing that is a client or a session and does not stand between [`Note::Begins`] of the same version and
/// this one existed at that version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndsNote {
    /// The identity of the server whose state it is.
    pub server: [u8; 16],
    /// Which life of it.
    pub epoch: u32,
}

/// How one thing is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// This client is.
    Client(ClientNote),
    /// This client is no more.
    ClientGone(u64),
    /// This session is.
    Session(SessionNote),
    /// This session is no more.
    SessionGone(SessionId),
    /// A slot's last request.
    Slot(SlotNote),
    /// This client of NFSv4.0 is.
    Client40(Client40Note),
    /// This NLM host may hold something.
    NlmHost(NlmHostNote),
    /// It does not any more.
    NlmHostGone(u64),
    /// A snapshot of an earlier program ends here. Read, not written.
    Complete(CompleteNote),
    /// A call without a session, and its reply.
    Call(CallNote),
    /// The back channel of a session.
    Back(BackNote),
    /// Where a client calls from.
    Addrs(AddrsNote),
    /// A snapshot begins here; notes of requests may stand between its own.
    Begins,
    /// It ends here.
    Ends(EndsNote),
}

impl Note {
    /// How a client is.
    #[must_use]
    pub fn of(c: &Client) -> Note {
        match c.v40 {
            None => Note::Client(c.to_note()),
            Some(_) => Note::Client40(Client40Note {
                id: c.id,
                owner: c.owner.to_vec(),
                verifier: c.verifier,
                principal: c.principal,
                holds: c.holds,
            }),
        }
    }
}

impl Client {
    /// All that the log keeps of it.
    #[must_use]
    pub fn notes(&self) -> [Stamped; 2] {
        [Note::of(self), Note::Addrs(self.addrs_note())].map(|note| Stamped { v: self.version, note })
    }
}

/// What is read back of a client.
fn client_of(note: ClientNote, version: u64, now: Millis) -> Client {
    Client {
        id: note.id,
        owner: Bytes::from(note.owner),
        verifier: note.verifier,
        principal: note.principal,
        addrs: Addrs::default(),
        confirmed: true,
        create_sequence: note.create_sequence,
        create_reply: note.create_reply.map(Bytes::from),
        renewed: now,
        holds: note.holds,
        holding_noted: note.holds,
        reclaim_complete: note.reclaim_complete && !note.holds,
        needs_reclaim: note.holds,
        must_complete: false,
        version,
        v40: None,
    }
}

fn client_of_40(note: Client40Note, version: u64, now: Millis) -> Client {
    let Client40Note { id, owner, verifier, principal, holds } = note;
    let (create_sequence, create_reply, reclaim_complete) = (0, None, false);
    let same =
        ClientNote { id, owner, verifier, principal, create_sequence, create_reply, holds, reclaim_complete };
    Client { v40: Some(V40::default()), ..client_of(same, version, now) }
}

/// A note with the version of what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamped {
    /// The version.
    pub v: u64,
    /// What it says.
    pub note: Note,
}

/// Room for a note: few need more.
const NOTE_BYTES_MOSTLY: usize = 512;

impl Stamped {
    /// The form in the log.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Plain data into a growing vector: postcard has no error for it but "does not fit".
        let mut out = Vec::with_capacity(NOTE_BYTES_MOSTLY);
        out.push(FORMAT);
        landfast_volume::record::append(self, out).unwrap_or_default()
    }

    /// Bytes of the reply that it keeps.
    pub(super) fn reply_bytes(&self) -> usize {
        match &self.note {
            Note::Slot(slot) => slot.reply.as_ref().map_or(0, |reply| reply.0.len()),
            Note::Call(call) => call.reply.0.len(),
            _ => 0,
        }
    }

    /// Reads the form in the log; `None` for what is not (this version of) a note.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Stamped> {
        match bytes.split_first() {
            Some((&FORMAT, rest)) => postcard::from_bytes(rest).ok(),
            _ => None,
        }
    }
}

/// The five numbers of a channel that matter over TCP.
pub(super) fn channel_to_note(c: &ChannelAttrs) -> [u32; 5] {
    [c.max_request_size, c.max_response_size, c.max_response_size_cached, c.max_operations, c.max_requests]
}

fn channel_from_note(n: &[u32; 5]) -> ChannelAttrs {
    ChannelAttrs {
        header_pad_size: 0,
        max_request_size: n[0],
        max_response_size: n[1],
        max_response_size_cached: n[2],
        max_operations: n[3],
        max_requests: n[4].clamp(1, crate::limits::SLOTS_MAX),
        rdma_ird: Vec::new(),
    }
}

/// What a restart found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restored {
    /// Client records.
    pub clients: usize,
    /// Sessions that go on.
    pub sessions: usize,
    /// Replies that can be sent again.
    pub replies: usize,
    /// Clients that may reclaim opens and locks.
    pub reclaiming: usize,
}

/// A snapshot that is being taken, part by part. Nobody waits longer than for one part: the state may change between two parts, and
/// what changes it goes into the log that the snapshot is for, between them. While a part is taken no transaction of that log is
/// open, and the part stands behind all that were before.
///
/// Why that is as good as all at once: each note says how one thing is at some time after the beginning. What a later change says has
/// a later version, and stands behind the beginning of this snapshot or in another log. Both marks have the version of the beginning: so
/// what is new since then, and may be missing here, is not taken for gone ([`super::merge`]), and what went since then is said by its
/// own note. No reply stands before its effect: a part has those of transactions that stand before it. A snapshot without its end
/// is no snapshot: its notes are as good as others.
#[derive(Debug)]
pub struct Snapshot {
    log: Option<LogId>,
    version: u64,
    names: Names,
}

/// What is still to be looked at. Each list is made when it is begun.
#[derive(Debug)]
enum Names {
    Clients(std::vec::IntoIter<u64>),
    Hosts(std::vec::IntoIter<u64>),
    Sessions(std::vec::IntoIter<SessionId>),
    /// Slots of the first session, from this one on; then the other sessions.
    Slots(SessionId, usize, std::vec::IntoIter<SessionId>),
    Calls(std::vec::IntoIter<CallKey>),
    Nothing,
}

/// How much a part has at most: notes and bytes of replies. One note more may be in it.
#[derive(Debug, Clone, Copy)]
pub struct PartMax {
    /// Notes, and things that have none.
    pub notes: usize,
    /// Bytes of replies.
    pub bytes: usize,
}

impl Snapshot {
    /// The note that stands before all others of it.
    #[must_use]
    pub fn begins(&self) -> Stamped {
        Stamped { v: self.version, note: Note::Begins }
    }

    /// The note that stands behind all others of it, and makes it a snapshot.
    #[must_use]
    pub fn ends(&self, server: [u8; 16], epoch: u32) -> Stamped {
        Stamped { v: self.version, note: Note::Ends(EndsNote { server, epoch }) }
    }

    /// All its notes were taken.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.names, Names::Nothing)
    }
}

impl<F> State<F> {
    /// All that has to be in the log, as of now, where there is one log.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Stamped> {
        self.whole(None).0
    }

    /// All that has to be in this log, as of now, with its marks.
    #[must_use]
    pub fn snapshot_in(&self, log: LogId, server: [u8; 16], epoch: u32) -> Vec<Stamped> {
        let (mut all, snapshot) = self.whole(Some(log));
        all.insert(0, snapshot.begins());
        all.push(snapshot.ends(server, epoch));
        all
    }

    fn whole(&self, log: Option<LogId>) -> (Vec<Stamped>, Snapshot) {
        let mut snapshot = self.begin_snapshot(log);
        let all = self.snapshot_part(&mut snapshot, PartMax { notes: usize::MAX, bytes: usize::MAX });
        (all, snapshot)
    }

    /// Begins a snapshot for this log, or for the only one.
    #[must_use]
    pub fn begin_snapshot(&self, log: Option<LogId>) -> Snapshot {
        Snapshot { log, version: self.version, names: Names::Clients(self.clients.ids().into_iter()) }
    }

    /// The next notes of a snapshot.
    pub fn snapshot_part(&self, snapshot: &mut Snapshot, most: PartMax) -> Vec<Stamped> {
        let log = snapshot.log;
        let mut out: Vec<Stamped> = Vec::new();
        let (mut looked_at, mut bytes) = (0, 0);
        while looked_at < most.notes && bytes < most.bytes {
            looked_at += 1;
            let before = out.len();
            match &mut snapshot.names {
                Names::Clients(left) => match left.next() {
                    Some(id) => {
                        let confirmed = self.clients.get(id).filter(|c| c.confirmed);
                        out.extend(confirmed.into_iter().flat_map(Client::notes));
                    }
                    None => snapshot.names = Names::Hosts(self.hosts.ids().into_iter()),
                },
                Names::Hosts(left) => match left.next() {
                    Some(id) => {
                        let monitored = self.hosts.get(id).filter(|h| h.monitored);
                        out.extend(
                            monitored.map(|h| Stamped { v: h.version, note: Note::NlmHost(h.to_note()) }),
                        );
                    }
                    None => snapshot.names = Names::Sessions(self.sessions.ids().into_iter()),
                },
                Names::Sessions(left) => match left.next() {
                    Some(id) => {
                        out.extend(self.sessions.get(&id).into_iter().flat_map(|s| s.notes()));
                        snapshot.names = Names::Slots(id, 0, mem::take(left));
                    }
                    None => snapshot.names = Names::Calls(self.drc.keys().into_iter()),
                },
                Names::Slots(id, from, left) => {
                    // It may have gone since the last part.
                    let next = self.sessions.get(id).and_then(|s| s.slot_notes_from(*from, log).next());
                    match next {
                        Some((v, note)) => {
                            *from = note.slot as usize + 1;
                            out.push(Stamped { v, note: Note::Slot(note) });
                        }
                        None => snapshot.names = Names::Sessions(mem::take(left)),
                    }
                }
                Names::Calls(left) => match left.next() {
                    Some(key) => {
                        let call = self.drc.note(&key, log);
                        out.extend(call.map(|(v, note)| Stamped { v, note: Note::Call(note) }));
                    }
                    None => snapshot.names = Names::Nothing,
                },
                Names::Nothing => break,
            }
            bytes += out.iter().skip(before).map(Stamped::reply_bytes).sum::<usize>();
        }
        out
    }

    /// Before the last snapshot of a clean stop: who holds nothing now has nothing to reclaim. The notes say so.
    pub fn settle_holders(&mut self) -> Vec<Stamped> {
        let mut out = self.nlm_settle();
        for id in self.clients.ids() {
            let v = self.version + 1;
            let holds = self.files.opens_of(id) > 0;
            // A client that has still not reclaimed keeps its right to.
            if let Some(c) = self.clients.get_mut(id).filter(|c| c.holds && !holds && !c.needs_reclaim) {
                c.holds = false;
                c.version = v;
                self.version = v;
                out.push(Stamped { v, note: Note::of(c) });
            }
        }
        out
    }

    /// Puts back what the log kept, in an empty state. Who held opens or locks may reclaim for one lease from `now`.
    pub fn restore(&mut self, notes: impl IntoIterator<Item = Stamped>, now: Millis) -> Restored {
        let mut clients: HashMap<u64, (u64, Option<Client>)> = HashMap::new();
        let mut sessions: HashMap<SessionId, (u64, Option<SessionNote>)> = HashMap::new();
        let mut calls: Vec<(u64, CallNote)> = Vec::new();
        let mut slots: HashMap<(SessionId, u32), (u64, SlotNote)> = HashMap::new();
        let mut backs: HashMap<SessionId, (u64, BackNote)> = HashMap::new();
        let mut hosts: HashMap<u64, (u64, Option<NlmHostNote>)> = HashMap::new();
        let mut addrs: HashMap<u64, (u64, AddrsNote)> = HashMap::new();
        fn newest<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, (u64, V)>, k: K, v: u64, value: V) {
            match map.entry(k) {
                std::collections::hash_map::Entry::Occupied(mut e) if e.get().0 <= v => {
                    e.insert((v, value));
                }
                std::collections::hash_map::Entry::Occupied(_) => {}
                std::collections::hash_map::Entry::Vacant(e) => {
                    e.insert((v, value));
                }
            }
        }
        for Stamped { v, note } in notes {
            self.version = self.version.max(v);
            match note {
                Note::Client(c) => newest(&mut clients, c.id, v, Some(client_of(c, v, now))),
                Note::Client40(c) => newest(&mut clients, c.id, v, Some(client_of_40(c, v, now))),
                Note::ClientGone(id) => newest(&mut clients, id, v, None),
                Note::Session(s) => newest(&mut sessions, s.id, v, Some(s)),
                Note::SessionGone(id) => newest(&mut sessions, id, v, None),
                Note::Slot(s) => newest(&mut slots, (s.session, s.slot), v, s),
                Note::NlmHost(h) => newest(&mut hosts, h.id, v, Some(h)),
                Note::NlmHostGone(id) => newest(&mut hosts, id, v, None),
                Note::Complete(_) | Note::Begins | Note::Ends(_) => {}
                Note::Call(c) => calls.push((v, c)),
                Note::Back(b) => newest(&mut backs, b.session, v, b),
                Note::Addrs(a) => newest(&mut addrs, a.client, v, a),
            }
        }
        let mut found = Restored::default();
        let mut reclaiming = Vec::new();
        let mut by_age: Vec<_> = clients.into_values().filter_map(|(v, c)| c.map(|c| (v, c))).collect();
        by_age.sort_by_key(|(v, _)| *v);
        for (_, mut c) in by_age {
            if c.holds {
                reclaiming.push(c.id);
            }
            c.addrs = Addrs::restored(addrs.remove(&c.id).map(|(_, note)| note.addrs).unwrap_or_default());
            self.clients.restore(c);
        }
        for (version, s) in sessions.into_values().filter_map(|(v, s)| s.map(|s| (v, s))) {
            if self.clients.get(s.client).is_none() {
                continue;
            }
            let new = NewSession {
                id: s.id,
                client: s.client,
                fore: channel_from_note(&s.fore),
                back: channel_from_note(&s.back),
                callback_program: s.callback_program,
                callback_cred: None,
                flags: s.flags,
            };
            self.sessions.insert(new, version, now);
            if let Some(mut restored) = self.sessions.get_mut(&s.id) {
                restored.restore_back(backs.remove(&s.id).map(|(_, note)| note));
            }
            found.sessions += 1;
        }
        for (version, note) in slots.into_values() {
            if let Some(mut s) = self.sessions.get_mut(&note.session) {
                s.restore_slot(&note, version);
                found.replies += usize::from(note.reply.is_some());
            }
        }
        for id in self.sessions.iter().map(|s| s.id).collect::<Vec<_>>() {
            if let Some(mut s) = self.sessions.get_mut(&id) {
                s.expect_any();
            }
        }
        calls.sort_by_key(|(v, _)| *v);
        for (v, note) in calls {
            self.drc.restore(note, v);
        }
        found.replies += self.drc.len();
        reclaiming.retain(|id| self.clients.get(*id).is_some());
        found.clients = self.clients.len();
        for (version, host) in hosts.into_values().filter_map(|(v, h)| h.filter(|h| h.holds).map(|h| (v, h)))
        {
            reclaiming.push(self.nlm_restore(version, host, now));
        }
        found.reclaiming = reclaiming.len();
        self.grace.begin(reclaiming, now + self.lease_ms);
        found
    }
}
