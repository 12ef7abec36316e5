//! Rebuilds the state after a restart from the notes in the log.

use super::clients::{Client, V40};
use super::identity::Addrs;
use super::notes::{
    AddrsNote, BackchannelNote, CallNote, Client40Note, ClientNote, DelegationNote, LocksNote, NlmHostNote,
    Note, OpenNote, RevokedNote, RevokedStateidsNote, SessionNote, SlotNote, Stamped,
};
use super::sessions::NewSession;
use super::{Millis, State};
use bytes::Bytes;
use landfast_nfs::v4::{ChannelAttrs, SessionId};
use std::collections::{HashMap, HashSet};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restored {
    pub clients: usize,
    pub sessions: usize,
    pub replies: usize,
    pub reclaiming: usize,
}

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
        nothing_held: 0,
        reclaim_complete: note.reclaim_complete,
        needs_reclaim: note.holds,
        restored: true,
        went_on: false,
        missed_grace: false,
        leaves: false,
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

/// Whether the notes that a server starts with are all that it wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    All,
    /// There were notes of another server. Its clients are not known any more; they have a lease to find that out before others are given anything.
    OfOneServer,
    /// A log is missing. What clients hold may have been noted there, or that they hold it no more, and replies. So each client
    /// that is known has to reclaim, with a new session, and one that is not known any more has a lease to find that out before others are given anything.
    NotAll,
}

impl<F> State<F> {
    /// Rebuilds an empty state from these notes. Clients that held opens or locks may reclaim them for one lease from `now`.
    pub fn restore(&mut self, notes: impl IntoIterator<Item = Stamped>, now: Millis) -> Restored {
        self.restore_known(notes, Known::All, now)
    }

    /// The same where notes may be missing.
    pub fn restore_known(
        &mut self,
        notes: impl IntoIterator<Item = Stamped>,
        known: Known,
        now: Millis,
    ) -> Restored {
        let (all, alone) = (known != Known::NotAll, known == Known::All);
        let mut clients: HashMap<u64, (u64, Option<Client>)> = HashMap::new();
        let mut sessions: HashMap<SessionId, (u64, Option<SessionNote>)> = HashMap::new();
        let mut calls: Vec<(u64, CallNote)> = Vec::new();
        let mut slots: HashMap<(SessionId, u32), (u64, SlotNote)> = HashMap::new();
        let mut backs: HashMap<SessionId, (u64, BackchannelNote)> = HashMap::new();
        let mut hosts: HashMap<u64, (u64, Option<NlmHostNote>)> = HashMap::new();
        let mut addrs: HashMap<u64, (u64, AddrsNote)> = HashMap::new();
        let mut delegations: HashMap<u64, (u64, Option<DelegationNote>)> = HashMap::new();
        let mut locks: HashMap<u64, (u64, Option<LocksNote>)> = HashMap::new();
        let mut opens: HashMap<u64, (u64, Option<OpenNote>)> = HashMap::new();
        let mut revoked: HashMap<u64, (u64, RevokedNote)> = HashMap::new();
        let mut revoked_stateids: HashMap<u64, (u64, RevokedStateidsNote)> = HashMap::new();
        let (mut went_on, mut missed_grace) = (HashSet::new(), HashSet::new());
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
                Note::Complete(_) | Note::Begins | Note::Ends(_) | Note::Logs(_) => {}
                Note::Call(c) => calls.push((v, c)),
                Note::Backchannel(b) => newest(&mut backs, b.session, v, b),
                Note::Addrs(a) => newest(&mut addrs, a.client, v, a),
                Note::Delegation(d) => newest(&mut delegations, d.id, v, Some(d)),
                Note::DelegationGone(id) => newest(&mut delegations, id, v, None),
                Note::Locks(l) => newest(&mut locks, l.id, v, Some(l)),
                Note::LocksGone(id) => newest(&mut locks, id, v, None),
                Note::Open(o) => newest(&mut opens, o.id, v, Some(o)),
                Note::OpenGone(id) => newest(&mut opens, id, v, None),
                Note::Revoked(r) => newest(&mut revoked, r.client, v, r),
                Note::RevokedStateids(r) => newest(&mut revoked_stateids, r.client, v, r),
                Note::WentOn(id) => {
                    went_on.insert(id);
                }
                Note::MissedGrace(id) => {
                    missed_grace.insert(id);
                }
            }
        }
        let mut found = Restored::default();
        let mut reclaiming = Vec::new();
        let mut by_age: Vec<_> = clients.into_values().filter_map(|(v, c)| c.map(|c| (v, c))).collect();
        by_age.sort_by_key(|(v, _)| *v);
        for (_, mut c) in by_age {
            if !all {
                (c.holds, c.needs_reclaim) = (true, true);
            }
            c.missed_grace = c.holds && !c.reclaim_complete && missed_grace.contains(&c.id);
            c.reclaim_complete &= !c.holds;
            if c.holds {
                reclaiming.push(c.id);
            }
            c.went_on = went_on.contains(&c.id) || c.v40.is_none() && !c.needs_reclaim;
            c.addrs = Addrs::restored(addrs.remove(&c.id).map(|(_, note)| note.addrs).unwrap_or_default());
            if let Some((_, note)) = revoked.remove(&c.id) {
                self.files.delegations.revocations.restore_files(note);
            }
            if let Some((_, note)) = revoked_stateids.remove(&c.id) {
                self.files.delegations.revocations.restore_stateids(note);
            }
            self.clients.restore(c);
        }
        let mut delegations: Vec<_> =
            delegations.into_values().filter_map(|(v, note)| Some((v, note?))).collect();
        delegations.sort_by_key(|(v, _)| std::cmp::Reverse(*v));
        for (v, note) in delegations {
            self.restore_delegation(v, note);
        }
        self.restore_locks(locks.into_values().filter_map(|(v, note)| Some((v, note?))));
        self.restore_opens(opens.into_values().filter_map(|(v, note)| Some((v, note?))));
        if self.clients.iter().any(|c| c.v40.is_none() && !c.needs_reclaim) {
            self.unknown_opens_until = now + self.lease_ms;
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
        let may_hold = |h: &NlmHostNote| h.holds || !all;
        for (version, host) in hosts.into_values().filter_map(|(v, h)| h.filter(may_hold).map(|h| (v, h))) {
            reclaiming.push(self.nlm_restore(version, host, now));
        }
        found.reclaiming = reclaiming.len();
        self.files.preserved.may_be_reclaimed = !reclaiming.is_empty();
        self.grace.begin(reclaiming, now + self.lease_ms);
        if !alone {
            self.grace.waits_for_unknown();
        }
        found
    }
}
