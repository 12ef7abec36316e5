//! The parts of the shared state that only NFSv4.0 needs (RFC 7530 section 9): client IDs, and operations that carry an
//! owner's sequence number.
//!
//! Such an operation has three steps:
//! 1. [`State::begin40`] finds the owner and tells a new operation from a retry.
//! 2. The shell executes it as in NFSv4.1.
//! 3. [`State::end40`] keeps its reply.
//!
//! Its owners are busy from before the first step until the reply is sent ([`State::take_owners`]).
//!
//! Order of errors (RFC 7530 sections 9.1.4.4, 9.1.9): first those for an argument that names no owner
//! (`STALE_CLIENTID`, `EXPIRED`, `STALE_STATEID`, `BAD_STATEID`), then `BAD_SEQID` or the replay, then `OLD_STATEID`
//! and the others.

use super::clients::{Client, Confirmed40, SetClientId, SetClientIdError};
use super::identity::Requester;
use super::notes::{Note, Stamped};
use super::opens::{FileKey, OpenOrLock};
use super::owners::{Kind, Last, OwnerKey, Owners, Request, Turn};
use super::refusals::AtLimit;
use super::share::is_over_its_share;
use super::{Millis, State};
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::{NfsStat, ResOp, Stateid, Verifier};
use std::net::IpAddr;

/// What an operation with a sequence number refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Open {
        /// `open_owner.clientid`.
        client: u64,
        /// `open_owner.owner`.
        owner: Bytes,
        /// CLAIM_PREVIOUS: needs no confirmation (RFC 7530 section 9.1.11).
        reclaim: bool,
    },
    Confirm(Stateid),
    /// CLOSE, OPEN_DOWNGRADE.
    OfOpen(Stateid),
    /// LOCK of a new lock owner; `seqid` of the [`SeqidRequest`] is the open owner's.
    NewLock {
        open: Stateid,
        /// `lock_owner.clientid`.
        client: u64,
        /// `lock_owner.owner`.
        owner: Bytes,
        /// The lock owner's sequence number.
        seqid: u32,
    },
    /// LOCK of a known lock owner, LOCKU.
    OfLock(Stateid),
}

#[derive(Debug, Clone)]
pub struct SeqidRequest {
    pub subject: Subject,
    pub seqid: u32,
    pub request: Request,
}

/// A new operation whose owners are known and which is to be executed.
#[derive(Debug)]
pub struct Started<F> {
    pub client: u64,
    /// The owners with their sequence numbers. The first is the open owner, or the lock owner if no open owner takes
    /// part.
    owners: Vec<(OwnerKey, u32)>,
    request: Request,
    /// The open owner is new: if the OPEN succeeds, it must be confirmed.
    pub confirm: bool,
    pub open: Option<u64>,
    /// The lock owner already has a lock state on the file.
    known_lock: bool,
    /// Descriptors of an open that was never confirmed; drop them outside the lock.
    pub freed: Vec<F>,
}

#[derive(Debug)]
pub enum Step<F> {
    Run(Started<F>),
    /// A retry: send this reply again.
    Replay(Box<Last>),
}

const BAD: NfsStat = NfsStat::NFS4ERR_BAD_STATEID;

impl<F> State<F> {
    /// SETCLIENTID (RFC 7530 section 16.33). `confirm` is a value never used before.
    /// Errors: `CLID_INUSE` with the user's address; `DELAY` when there is no room.
    pub fn set_client_id(
        &mut self,
        now: Millis,
        ask: SetClientId,
    ) -> Result<(u64, Vec<Stamped>), SetClientIdError> {
        let gone = self.room_for_client(now, ask.by.addr)?;
        let (files, lease, grace) = (&self.files, self.lease_ms, self.grace.active(now));
        let id = self.clients.set_client_id(now, ask, |c| {
            let holds = files.opens_of(c.id) > 0 || (grace && c.needs_reclaim);
            !holds || now.saturating_sub(c.renewed) > lease
        })?;
        Ok((id, gone))
    }

    /// SETCLIENTID_CONFIRM (RFC 7530 section 16.34).
    /// Errors: `STALE_CLIENTID`, `CLID_INUSE`.
    pub fn confirm_client_id(
        &mut self,
        now: Millis,
        id: u64,
        confirm: Verifier,
        by: Requester,
    ) -> Result<Vec<Stamped>, NfsStat> {
        let mut notes = Vec::new();
        let Confirmed40 { first, replaced } = self.clients.confirm_client_id(now, id, confirm, by)?;
        if !first {
            return Ok(notes);
        }
        if let Some(old) = replaced {
            notes = self.succeed_client(now, id, old);
        }
        let v = self.next_version();
        if let Some(c) = self.clients.get_mut(id) {
            c.version = v;
            notes.extend(c.notes());
        }
        Ok(notes)
    }

    /// Checks that this is a confirmed client ID of NFSv4.0, and renews its lease (RFC 7530 section 9.5).
    /// Errors: `STALE_CLIENTID` for an ID of another instance of the server or of another minor version, or one never
    /// issued; `EXPIRED` if its state is gone.
    pub fn live40(&mut self, now: Millis, id: u64) -> Result<(), NfsStat> {
        self.known40(id)?;
        self.clients.renew(id, now);
        Ok(())
    }

    fn known40(&self, id: u64) -> Result<(), NfsStat> {
        match self.clients.get(id) {
            Some(c) if c.v40.is_some() && c.confirmed && self.clients.is_of_this_instance(id) => Ok(()),
            None if self.clients.is_of_this_instance(id) => Err(NfsStat::NFS4ERR_EXPIRED),
            _ => Err(NfsStat::NFS4ERR_STALE_CLIENTID),
        }
    }

    /// [`State::live40`] for an operation that names a client only by its ID. The ID is no secret, so only an address
    /// of the client may speak for it. A caller at another address may be the client itself after a move. It is
    /// accepted once the lease of the known address is over, and then keeps what nobody else has taken.
    /// Errors: Those of [`State::live40`]; `DELAY` for another address before that.
    pub fn speaks40(&mut self, now: Millis, id: u64, addr: IpAddr) -> Result<(), NfsStat> {
        self.known40(id)?;
        if self.clients.get(id).is_some_and(|c| !c.addrs.has(addr)) {
            if !self.lapsed(id, now) {
                return Err(NfsStat::NFS4ERR_DELAY);
            }
            self.clients.heard_at(id, addr);
        }
        self.clients.renew(id, now);
        Ok(())
    }

    /// Finds what an NFSv4.0 stateid names, whatever its seqid, and renews the lease.
    /// Errors: `STALE_STATEID`, `EXPIRED`, `BAD_STATEID`.
    pub fn locate40(&mut self, now: Millis, stateid: &Stateid) -> Result<(OpenOrLock, u64), NfsStat> {
        let (which, client) = self.files.locate(stateid)?;
        if self.clients.get(client).is_none_or(|c| c.v40.is_none()) {
            return Err(BAD);
        }
        self.clients.renew(client, now);
        Ok((which, client))
    }

    /// The client of a stateid used for I/O (RFC 7530 section 9.1.6). An unconfirmed open does not count.
    /// Errors: Those of [`State::locate40`]; `OLD_STATEID`; `BAD_STATEID`.
    pub fn client_of_io40(&mut self, now: Millis, stateid: &Stateid) -> Result<u64, NfsStat> {
        let (which, client) = self.locate40(now, stateid)?;
        if let OpenOrLock::Open(id) = which
            && !self.is_confirmed(id)
        {
            return Err(BAD);
        }
        self.files.exact(stateid)?;
        Ok(client)
    }

    fn open_owner(&self, open: u64) -> Option<OwnerKey> {
        let (client, name) = self.files.owner_of_open(open)?;
        Some(OwnerKey { client, kind: Kind::Open, name })
    }

    fn lock_owner(&self, lock: u64) -> Option<OwnerKey> {
        let (client, name) = self.files.owner_of_lock(lock)?;
        Some(OwnerKey { client, kind: Kind::Lock, name })
    }

    fn is_confirmed(&self, open: u64) -> bool {
        self.open_owner(open).and_then(|k| self.owners.get(&k).map(|o| o.confirmed)).unwrap_or(false)
    }

    /// The owners that an operation will use, as far as they are known before it runs.
    fn owners_of(&self, subject: &Subject) -> Vec<OwnerKey> {
        let of_open = |s: &Stateid| match self.files.locate(s) {
            Ok((OpenOrLock::Open(id), _)) => self.open_owner(id),
            Ok(_) => None,
            Err(_) => self.owners.of_closed(self.files.id_of(s)?).cloned(),
        };
        match subject {
            Subject::Open { client, owner, .. } => {
                vec![OwnerKey { client: *client, kind: Kind::Open, name: owner.clone() }]
            }
            Subject::Confirm(s) | Subject::OfOpen(s) => of_open(s).into_iter().collect(),
            Subject::NewLock { open, client, owner, .. } => {
                let lock = OwnerKey { client: *client, kind: Kind::Lock, name: owner.clone() };
                of_open(open).into_iter().chain([lock]).collect()
            }
            Subject::OfLock(s) => match self.files.locate(s) {
                Ok((OpenOrLock::Lock(id), _)) => self.lock_owner(id).into_iter().collect(),
                _ => Vec::new(),
            },
        }
    }

    /// Whether an operation from this address may make its owners busy. One that names a client by its ID must come
    /// from an address of that client; otherwise [`State::speaks40`] decides its answer.
    pub fn may_take(&self, subject: &Subject, addr: IpAddr) -> bool {
        match subject {
            Subject::Open { client, .. } | Subject::NewLock { client, .. } => {
                self.clients.get(*client).is_some_and(|c| c.addrs.has(addr))
            }
            Subject::Confirm(_) | Subject::OfOpen(_) | Subject::OfLock(_) => true,
        }
    }

    /// Makes the owners of these operations busy. `None`: another request uses one of them.
    pub fn take_owners<'a>(&mut self, subjects: impl Iterator<Item = &'a Subject>) -> Option<Vec<OwnerKey>> {
        let mut keys = Vec::new();
        for subject in subjects {
            for key in self.owners_of(subject) {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        self.owners.take(&keys).then_some(keys)
    }

    /// Tells a new operation from a retry. `taken` are the owners that the request has made busy.
    /// Errors: See the module's documentation; `RESOURCE` at the limit of owners, and when the owner is not in `taken`.
    pub fn begin40(
        &mut self,
        now: Millis,
        ask: &SeqidRequest,
        taken: &[OwnerKey],
    ) -> Result<Step<F>, NfsStat> {
        let started = |client, owners, open| Started {
            client,
            owners,
            request: ask.request,
            confirm: false,
            open,
            known_lock: false,
            freed: Vec::new(),
        };
        let step = match &ask.subject {
            Subject::Open { client, owner, reclaim } => {
                return self.begin_open(now, ask, *client, owner, *reclaim, taken);
            }
            Subject::Confirm(s) | Subject::OfOpen(s) => {
                let open = match self.locate40(now, s) {
                    Ok((OpenOrLock::Open(id), _)) => Some(id),
                    Ok((OpenOrLock::Lock(_), _)) => return Err(BAD),
                    Err(e) => match self.files.id_of(s).filter(|id| self.owners.of_closed(*id).is_some()) {
                        Some(_) => None,
                        None => return Err(e),
                    },
                };
                let key = match open {
                    Some(id) => self.open_owner(id),
                    None => self.files.id_of(s).and_then(|id| self.owners.of_closed(id).cloned()),
                };
                let key = key.ok_or(BAD)?;
                must_be_taken(&key, taken)?;
                let owner = self.owners.get(&key).ok_or(BAD)?;
                let (confirmed, confirming) = (owner.confirmed, matches!(ask.subject, Subject::Confirm(_)));
                if !confirmed && !confirming {
                    return Err(BAD);
                }
                match owner.check(ask.seqid, &ask.request) {
                    Ok(Turn::Replay(last)) => return Ok(Step::Replay(last)),
                    Ok(Turn::New) => {}
                    Err(e) => {
                        if !confirmed && let Some(id) = open {
                            // RFC 7530 section 16.18.4: the client will not confirm that OPEN. Its owner stays known
                            // for a while, so that a retry gets the same answer.
                            self.files.drop_open(id);
                            self.owners.closed(&key, id);
                        }
                        return Err(e);
                    }
                }
                // Closed or confirmed before.
                if open.is_none() || (confirmed && confirming) {
                    return Err(BAD);
                }
                started(key.client, vec![(key, ask.seqid)], open)
            }
            Subject::NewLock { open, client, owner, seqid } => {
                self.live40(now, *client)?;
                let (which, of) = self.locate40(now, open)?;
                let OpenOrLock::Open(id) = which else { return Err(BAD) };
                if of != *client {
                    return Err(BAD);
                }
                let open_key = self.open_owner(id).ok_or(BAD)?;
                let lock_key = OwnerKey { client: *client, kind: Kind::Lock, name: owner.clone() };
                must_be_taken(&open_key, taken)?;
                must_be_taken(&lock_key, taken)?;
                let by_open = self.owners.get(&open_key).ok_or(BAD)?;
                if !by_open.confirmed {
                    return Err(BAD);
                }
                // RFC 7530 section 9.1.9: a wrong sequence number takes precedence over a retry.
                let by_open = by_open.check(ask.seqid, &ask.request)?;
                let by_lock =
                    self.owners.get(&lock_key).map(|o| o.check(*seqid, &ask.request)).transpose()?;
                if let Turn::Replay(last) = by_open {
                    return Ok(Step::Replay(last));
                }
                if let Some(Turn::Replay(last)) = by_lock {
                    return Ok(Step::Replay(last));
                }
                let known_lock = self.files.lock_state_of(*client, owner, id);
                if let Some((_, true)) = known_lock {
                    // RFC 7530 section 16.10.5: the lock owner already has locks under this open. One that has unlocked
                    // everything counts as released (section 9.1.10): it may start again, with its next sequence
                    // number.
                    return Err(NfsStat::NFS4ERR_BAD_SEQID);
                }
                if self.owners.get(&lock_key).is_none() {
                    self.make_room(now, *client)?;
                }
                Started {
                    known_lock: known_lock.is_some(),
                    ..started(*client, vec![(open_key, ask.seqid), (lock_key, *seqid)], Some(id))
                }
            }
            Subject::OfLock(s) => {
                let (which, client) = self.locate40(now, s)?;
                let OpenOrLock::Lock(id) = which else { return Err(BAD) };
                let key = self.lock_owner(id).ok_or(BAD)?;
                must_be_taken(&key, taken)?;
                match self.owners.get(&key).ok_or(BAD)?.check(ask.seqid, &ask.request)? {
                    Turn::Replay(last) => return Ok(Step::Replay(last)),
                    Turn::New => started(client, vec![(key, ask.seqid)], None),
                }
            }
        };
        Ok(Step::Run(step))
    }

    fn begin_open(
        &mut self,
        now: Millis,
        ask: &SeqidRequest,
        client: u64,
        owner: &Bytes,
        reclaim: bool,
        taken: &[OwnerKey],
    ) -> Result<Step<F>, NfsStat> {
        self.live40(now, client)?;
        let key = OwnerKey { client, kind: Kind::Open, name: owner.clone() };
        must_be_taken(&key, taken)?;
        let mut freed = Vec::new();
        let known = match self.owners.get(&key) {
            None => false,
            Some(o) => match (o.check(ask.seqid, &ask.request), o.confirmed) {
                (Ok(Turn::Replay(last)), _) if !o.cancelled() => return Ok(Step::Replay(last)),
                (turn, true) => {
                    turn?;
                    true
                }
                // RFC 7530 section 16.18.5: the unconfirmed OPEN was a stray; this one counts.
                (_, false) => {
                    freed = self.files.drop_opens_of(client, owner);
                    self.owners.remove(&key);
                    false
                }
            },
        };
        if !known {
            self.make_room(now, client)?;
        }
        Ok(Step::Run(Started {
            client,
            owners: vec![(key, ask.seqid)],
            request: ask.request,
            confirm: !known && !reclaim,
            open: None,
            known_lock: false,
            freed,
        }))
    }

    /// Whether a client may have one more owner. As with opens, the clients at one address may have only as many as are
    /// still free.
    fn has_room_for_owner(&self, client: u64) -> bool {
        let own = || {
            let share = self.clients.get(client).and_then(Client::share);
            let same = self.clients.iter().filter(|c| c.share() == share);
            same.map(|c| self.owners.of(c.id)).sum()
        };
        self.owners.has_room(client) && !is_over_its_share(self.owners.len(), limits::OWNERS_MAX, 1, own)
    }

    /// Makes room for one more owner by removing idle ones of the client.
    fn make_room(&mut self, now: Millis, client: u64) -> Result<(), NfsStat> {
        if self.has_room_for_owner(client) {
            return Ok(());
        }
        let in_use = self.files.opens_by_owner(client);
        for (key, _) in self.owners.silent(client, now.saturating_add(1)) {
            if !in_use.contains_key(&key.name) {
                self.owners.remove(&key);
            }
        }
        if self.has_room_for_owner(client) {
            return Ok(());
        }
        self.files.refusals.at(AtLimit::Owners);
        Err(NfsStat::NFS4ERR_RESOURCE)
    }

    /// OPEN_CONFIRM (RFC 7530 section 16.18) of the open that [`State::begin40`] found.
    /// Errors: `BAD_STATEID` for the open of another file; `OLD_STATEID`.
    pub fn confirm_open(
        &mut self,
        started: &Started<F>,
        file: &FileKey,
        stateid: &Stateid,
    ) -> Result<Stateid, NfsStat> {
        self.files.exact(stateid)?;
        self.files.find_open(started.client, file, stateid)?;
        self.files.confirm(started.open.ok_or(BAD)?).ok_or(BAD)
    }

    /// Keeps the reply of an executed operation. `fh` is the current filehandle that an OPEN has set.
    pub fn end40(&mut self, now: Millis, started: &Started<F>, res: &ResOp, fh: Option<Bytes>) {
        use landfast_nfs::v4::OpNum;
        let ok = res.status.is_ok();
        let op = started.request.op;
        for (key, seqid) in &started.owners {
            let known = self.owners.get(key).is_some();
            let new_lock_state =
                key.kind == Kind::Lock && started.owners.len() == 2 && !started.known_lock && ok;
            // A lock owner that got no lock is not recorded: it would be in the way of the next one with its name.
            if key.kind == Kind::Lock && !known && !new_lock_state {
                continue;
            }
            let last = Last { fingerprint: started.request.fingerprint, res: res.clone(), fh: fh.clone() };
            let confirmed = match op {
                OpNum::OPEN => !started.confirm && ok,
                OpNum::OPEN_CONFIRM => ok,
                _ => true,
            };
            self.owners.record(now, key, *seqid, confirmed, last);
            if new_lock_state {
                self.owners.add_state(key);
            }
            if op == OpNum::CLOSE
                && ok
                && let Some(open) = started.open
            {
                self.owners.closed(key, open);
            }
        }
    }

    /// A CLOSE begins: from now on a retry finds the open's owner by the stateid alone, and waits while the owner is busy.
    ///
    /// Returns the lock owners whose lock states the CLOSE removes; an owner's sequence number goes with its last lock state.
    /// Pass them to [`State::lock_states_gone`] after the CLOSE.
    pub fn begin_close(&mut self, open: u64) -> Vec<OwnerKey> {
        if let Some(owner) = self.open_owner(open) {
            self.owners.closed(&owner, open);
        }
        self.files.locks_under(open).into_iter().filter_map(|id| self.lock_owner(id)).collect()
    }

    /// Each of these lock owners has lost a lock state.
    pub fn lock_states_gone(&mut self, owners: &[OwnerKey]) {
        for key in owners {
            self.owners.drop_state(key);
        }
    }

    /// RELEASE_LOCKOWNER (RFC 7530 section 16.37).
    /// Errors: `STALE_CLIENTID`, `EXPIRED`, `LOCKS_HELD`.
    pub fn release_lock_owner(&mut self, now: Millis, client: u64, name: &Bytes) -> Result<(), NfsStat> {
        self.live40(now, client)?;
        self.files.release_lock_owner(client, name)?;
        self.owners.remove(&OwnerKey { client, kind: Kind::Lock, name: name.clone() });
        Ok(())
    }

    /// Ends the grace period when its time is over (RFC 7530 section 9.6.3.4, RFC 8881 section 8.4.3). A client that
    /// has not reclaimed by then may not do so after a further restart. When the returned notes are durable, call
    /// [`super::grace::Grace::ended`]. If the log refuses them, this returns them again, since nothing else records
    /// what they say.
    pub fn end_grace(&mut self, now: Millis) -> Option<Vec<Stamped>> {
        if let Some(refused) = self.grace.ending() {
            return Some(refused.to_vec());
        }
        if !self.grace.is_over(now) {
            return None;
        }
        let mut notes = self.nlm_grace_ends();
        for id in self.clients.ids() {
            let holds = self.files.opens_of(id) > 0;
            let this_instance = self.clients.is_of_this_instance(id);
            let v = self.version + 1;
            let Some(c) = self.clients.get_mut(id).filter(|c| c.needs_reclaim) else { continue };
            // What it held is lost, and it has not heard of that. Known after a further restart, it would go on as if it held it still.
            if !this_instance {
                notes.extend(self.remove_client(id));
                continue;
            }
            // An NFSv4.1 client must still send RECLAIM_COMPLETE before it gets anything new.
            c.needs_reclaim &= c.v40.is_none();
            (c.holds, c.holding_noted, c.version) = (holds, holds, v);
            c.nothing_held = if holds { c.nothing_held } else { v };
            notes.push(Stamped { v, note: c.note() });
            c.missed_grace = c.needs_reclaim;
            notes.extend(c.missed_grace.then_some(Stamped { v, note: Note::MissedGrace(id) }));
            self.version = v;
        }
        self.grace.end(notes.clone());
        Some(notes)
    }

    /// Removes NFSv4.0 owners whose time is over: opens that were never confirmed, and open owners without an open.
    /// Returns what the shell must drop outside the lock.
    pub fn tick_owners(&mut self, now: Millis) -> Vec<F> {
        let mut freed = Vec::new();
        let idle = now.saturating_sub(self.lease_ms.saturating_mul(limits::OWNER_IDLE_LEASES));
        for client in self.owners.clients() {
            let silent = self.owners.silent(client, idle);
            if silent.is_empty() {
                continue;
            }
            let in_use = self.files.opens_by_owner(client);
            for (key, confirmed) in silent {
                match in_use.get(&key.name) {
                    Some(_) if confirmed => continue,
                    Some(opens) => freed.extend(opens.iter().flat_map(|id| self.files.drop_open(*id))),
                    None => {}
                }
                self.owners.remove(&key);
            }
        }
        freed
    }
}

fn must_be_taken(key: &OwnerKey, taken: &[OwnerKey]) -> Result<(), NfsStat> {
    // Reached only if the stateid did not name this owner yet when the request arrived.
    if taken.contains(key) { Ok(()) } else { Err(NfsStat::NFS4ERR_RESOURCE) }
}

impl Owners {
    pub fn spoil_all(&mut self, keys: &[OwnerKey]) {
        for key in keys {
            self.spoil(key);
        }
    }
}
