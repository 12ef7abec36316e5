//! Client records and their leases: EXCHANGE_ID (RFC 8881 section 18.35) and confirmation by CREATE_SESSION (section
//! 18.36); for NFSv4.0 SETCLIENTID and SETCLIENTID_CONFIRM (RFC 7530 sections 16.33, 16.34).
//!
//! Invariant: for each host ([`super::identity`]) an owner has at most one confirmed and one unconfirmed record. The
//! confirmed record goes when the unconfirmed one of that host is confirmed. At EXCHANGE_ID it goes only if another
//! principal asks and there is nothing to lose (no session, no open), or the lease is over. So nobody can take a
//! client's state who only knows its owner name, its client ID and its sequence numbers.

use super::clock::Millis;
use super::identity::{Addrs, Principal, Requester};
use super::ids::{Ids, Kind, Secret};
use super::notes::{AddrsNote, Client40Note, ClientNote, Note, Stamped};
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::v40::{CallbackClient, ClientAddr};
use landfast_nfs::v4::{NfsStat, Verifier};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;

#[derive(Debug, Clone)]
pub struct Client {
    pub id: u64,
    pub owner: Bytes,
    /// `co_verifier`: tells instances of the owner apart.
    pub verifier: Verifier,
    /// The principal that sent the EXCHANGE_ID.
    pub principal: Principal,
    pub addrs: Addrs,
    pub confirmed: bool,
    /// The sequence number that the next CREATE_SESSION must carry.
    pub create_sequence: u32,
    /// The encoded result of the last CREATE_SESSION (its one-slot reply cache, section 18.36.4).
    pub create_reply: Option<Bytes>,
    pub renewed: Millis,
    /// May have had opens or locks, according to the record in the log.
    pub holds: bool,
    /// That record is durable in this instance of the server.
    pub holding_noted: bool,
    /// The version of the last note that says that it holds nothing.
    pub nothing_held: u64,
    pub reclaim_complete: bool,
    /// Had state before the restart and has not sent RECLAIM_COMPLETE since.
    pub needs_reclaim: bool,
    /// A former instance of the server knew it: it may have opens that this one does not know ([`super::former`]).
    pub restored: bool,
    /// It went on after a restart, this one or one before, and may have opens that the server did not know before the next.
    pub went_on: bool,
    /// A grace period was over before its RECLAIM_COMPLETE: it may reclaim nothing.
    pub missed_grace: bool,
    /// Its lease is over and somebody else needs what it holds: it goes as soon as the log knows.
    pub leaves: bool,
    /// New to this instance of the server: may open nothing before its RECLAIM_COMPLETE (RFC 8881 section 18.51.3).
    pub must_complete: bool,
    pub version: u64,
    /// The NFSv4.0 part; `None` for a client of NFSv4.1 or 4.2.
    pub v40: Option<V40>,
}

/// Where callbacks go (RFC 7530 section 16.33): `callback` and `callback_ident`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Callback {
    pub client: CallbackClient,
    /// Sent back in each callback.
    pub ident: u32,
}

/// The part of a record that only NFSv4.0 uses.
#[derive(Debug, Clone, Default)]
pub struct V40 {
    /// The verifier of its SETCLIENTID_CONFIRM, past or future.
    pub confirm: Verifier,
    /// Where callbacks would go. The server grants no delegation, so it sends none.
    pub callback: Callback,
    /// An unconfirmed SETCLIENTID that changes the callback.
    pub update: Option<(Verifier, Callback)>,
}

#[derive(Debug, Clone)]
pub struct SetClientId {
    pub owner: Bytes,
    pub verifier: Verifier,
    pub by: Requester,
    pub callback: Callback,
    /// The verifier that SETCLIENTID_CONFIRM must carry; never used before.
    pub confirm: Verifier,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetClientIdError {
    /// Another principal uses the name, from this address.
    InUse(ClientAddr),
    Status(NfsStat),
}

impl From<NfsStat> for SetClientIdError {
    fn from(s: NfsStat) -> Self {
        SetClientIdError::Status(s)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmed40 {
    pub first: bool,
    /// The owner's former confirmed record. The caller must now remove its state.
    pub replaced: Option<u64>,
}

impl Client {
    fn owner_name(&self) -> OwnerName {
        OwnerName { v40: self.v40.is_some(), name: self.owner.clone() }
    }

    pub fn note(&self) -> Note {
        if self.v40.is_some() {
            return Note::Client40(Client40Note {
                id: self.id,
                owner: self.owner.to_vec(),
                verifier: self.verifier,
                principal: self.principal,
                holds: self.holds,
            });
        }
        Note::Client(ClientNote {
            id: self.id,
            owner: self.owner.to_vec(),
            verifier: self.verifier,
            principal: self.principal,
            create_sequence: self.create_sequence,
            create_reply: self.create_reply.as_ref().map(|b| b.to_vec()),
            holds: self.holds,
            reclaim_complete: self.reclaim_complete,
        })
    }

    /// The address that it was first heard from, as it is counted for shares.
    pub fn share(&self) -> Option<IpAddr> {
        self.addrs.all().first().copied().map(landfast_rpc::share_of)
    }

    pub fn notes(&self) -> [Stamped; 2] {
        let addrs = AddrsNote { client: self.id, addrs: self.addrs.all().to_vec() };
        [self.note(), Note::Addrs(addrs)].map(|note| Stamped { v: self.version, note })
    }
}

/// The arguments of an EXCHANGE_ID (RFC 8881 section 18.35.3).
#[derive(Debug, Clone)]
pub struct ExchangeId {
    /// `co_ownerid`.
    pub owner: Bytes,
    pub verifier: Verifier,
    pub by: Requester,
    /// `EXCHGID4_FLAG_UPD_CONFIRMED_REC_A`.
    pub update: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchanged {
    pub client: u64,
    /// The sequence number for CREATE_SESSION.
    pub sequence: u32,
    /// `EXCHGID4_FLAG_CONFIRMED_R`.
    pub confirmed: bool,
    /// The replaced record of another principal. The caller must remove it with all its state.
    pub replaced: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateSession {
    New,
    /// A retry: send this encoded result again.
    Replay(Bytes),
}

/// NFSv4.0 owners and those of later versions are separate name spaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct OwnerName {
    v40: bool,
    name: Bytes,
}

fn later(name: &Bytes) -> OwnerName {
    OwnerName { v40: false, name: name.clone() }
}

#[derive(Debug)]
pub struct Clients {
    ids: Ids,
    by_id: HashMap<u64, Client>,
    /// All records of a name, whatever their host, confirmed or not.
    by_owner: HashMap<OwnerName, Vec<u64>>,
    completed: Completed,
}

/// The owners that have sent RECLAIM_COMPLETE to this instance of the server: the newest
/// [`limits::COMPLETED_OWNERS_MAX`]. An owner that returns after its lease was lost has nothing to reclaim from an
/// earlier instance. It need not send RECLAIM_COMPLETE again, and Linux does not always do so.
#[derive(Debug, Default)]
struct Completed {
    owners: HashSet<Bytes>,
    order: VecDeque<Bytes>,
}

impl Completed {
    fn add(&mut self, owner: &Bytes) {
        if self.owners.insert(owner.clone()) {
            self.order.push_back(owner.clone());
        }
        if self.order.len() > limits::COMPLETED_OWNERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.owners.remove(&oldest);
        }
    }
}

impl Clients {
    /// New client IDs are computed from `secret`.
    pub fn new(secret: Secret) -> Self {
        Clients {
            ids: Ids::new(secret, Kind::Client),
            by_id: HashMap::new(),
            by_owner: HashMap::new(),
            completed: Completed::default(),
        }
    }

    pub fn get(&self, id: u64) -> Option<&Client> {
        self.by_id.get(&id)
    }

    pub fn get_mut(&mut self, id: u64) -> Option<&mut Client> {
        self.by_id.get_mut(&id)
    }

    /// In order, so that a run of the simulation is the same each time.
    pub fn ids(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.by_id.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.by_id.values()
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Removes a record. The caller must remove its sessions and opens ([`super::State::remove_client`]).
    pub fn remove(&mut self, id: u64) -> Option<Client> {
        let client = self.by_id.remove(&id)?;
        let name = client.owner_name();
        if let Some(ids) = self.by_owner.get_mut(&name) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_owner.remove(&name);
            }
        }
        Some(client)
    }

    fn insert(&mut self, client: Client) {
        self.by_owner.entry(client.owner_name()).or_default().push(client.id);
        self.by_id.insert(client.id, client);
    }

    fn named(&self, name: &OwnerName) -> impl Iterator<Item = &Client> {
        self.by_owner.get(name).into_iter().flatten().filter_map(|id| self.by_id.get(id))
    }

    /// The name's confirmed record at an address: the newest if several hosts have been seen there.
    fn confirmed_at(&self, name: &OwnerName, addr: IpAddr) -> Option<&Client> {
        self.named(name).filter(|c| c.confirmed && c.addrs.has(addr)).max_by_key(|c| c.version)
    }

    /// The other confirmed record of the same name and host, which this newly confirmed one replaces.
    fn former(&self, id: u64) -> Option<u64> {
        let c = self.by_id.get(&id)?;
        let other = |o: &&Client| o.id != id && o.confirmed && o.addrs.overlaps(&c.addrs);
        self.named(&c.owner_name()).filter(other).max_by_key(|o| o.version).map(|o| o.id)
    }

    /// Restores a record from the log. A second record of the same owner at the same address replaces the first.
    pub fn restore(&mut self, client: Client) {
        self.remove(client.id);
        let name = client.owner_name();
        let old: Vec<u64> =
            self.named(&name).filter(|o| o.addrs.overlaps(&client.addrs)).map(|o| o.id).collect();
        for id in old {
            self.remove(id);
        }
        self.insert(client);
    }

    /// The client has proved who it is from this address.
    pub fn heard_at(&mut self, id: u64, addr: IpAddr) {
        if let Some(c) = self.by_id.get_mut(&id) {
            c.addrs.add(addr);
        }
    }

    pub fn complete(&mut self, id: u64) {
        if let Some(c) = self.by_id.get_mut(&id) {
            c.reclaim_complete = true;
            c.needs_reclaim = false;
            c.must_complete = false;
            c.missed_grace = false;
            self.completed.add(&c.owner);
        }
    }

    /// EXCHANGE_ID; the numbers in the code are the cases of RFC 8881 section 18.35.4. `idle` says whether a confirmed
    /// client has nothing, not even a session, or has let its lease expire.
    /// Errors: `CLID_INUSE`, `NOENT`, `NOT_SAME`, `PERM`, according to the case.
    pub fn exchange_id(
        &mut self,
        now: Millis,
        ask: &ExchangeId,
        idle: impl FnOnce(&Client) -> bool,
    ) -> Result<Exchanged, NfsStat> {
        let mut replaced = None;
        let name = later(&ask.owner);
        let Requester { principal, addr } = ask.by;
        let confirmed = self.confirmed_at(&name, addr);
        let dead = confirmed.is_some_and(|c| self.is_dead(c.id));
        match (confirmed, ask.update) {
            (None, true) => return Err(NfsStat::NFS4ERR_NOENT), // case 7
            (Some(c), true) if c.principal != principal => return Err(NfsStat::NFS4ERR_PERM), // case 9
            (Some(c), true) if c.verifier != ask.verifier => return Err(NfsStat::NFS4ERR_NOT_SAME), // case 8
            // The same instance of the client; it must reclaim under another client ID.
            (Some(c), true) if dead && c.principal == principal => return Err(NfsStat::NFS4ERR_NOENT),
            (Some(c), false) if dead && c.principal == principal => {}
            // Case 6 (update) and case 2 (the same instance asks again): the record stays.
            (Some(c), update) if c.principal == principal && c.verifier == ask.verifier => {
                let found =
                    Exchanged { client: c.id, sequence: c.create_sequence, confirmed: true, replaced: None };
                if !update {
                    self.drop_unconfirmed(&name, addr);
                }
                return Ok(found);
            }
            // Case 3, another principal: allowed only when nothing is lost.
            (Some(c), false) if c.principal != principal && !idle(c) => {
                return Err(NfsStat::NFS4ERR_CLID_INUSE);
            }
            (Some(c), false) if c.principal != principal => replaced = Some(c.id),
            // Cases 1 (new), 4 (replaces an unconfirmed one), 5 (the client has restarted).
            _ => {}
        }
        self.drop_unconfirmed(&name, addr);
        let id = self.fresh();
        let client = Client {
            id,
            owner: ask.owner.clone(),
            verifier: ask.verifier,
            principal,
            addrs: Addrs::at(addr),
            confirmed: false,
            create_sequence: 1,
            create_reply: None,
            renewed: now,
            holds: false,
            holding_noted: false,
            nothing_held: 0,
            reclaim_complete: false,
            needs_reclaim: false,
            restored: false,
            went_on: false,
            missed_grace: false,
            leaves: false,
            must_complete: !self.completed.owners.contains(&ask.owner),
            version: 0,
            v40: None,
        };
        self.insert(client);
        Ok(Exchanged { client: id, sequence: 1, confirmed: false, replaced })
    }

    fn fresh(&mut self) -> u64 {
        loop {
            let id = self.ids.fresh();
            // The log may have kept a record of a former instance under this ID.
            if !self.by_id.contains_key(&id) {
                return id;
            }
        }
    }

    pub fn is_of_this_instance(&self, id: u64) -> bool {
        self.ids.was_given(id)
    }

    /// Whether a former instance of the server issued this client ID and state held under it is now lost (RFC 8881
    /// section 8.4.2). Sessions of a dead client answer only retries (`DEADSESSION`), and it gets no new ones
    /// (`STALE_CLIENTID`). A client that held nothing keeps its ID and its sessions.
    pub fn is_dead(&self, id: u64) -> bool {
        let lost = self.by_id.get(&id).is_some_and(|c| c.v40.is_none() && c.needs_reclaim);
        lost && !self.is_of_this_instance(id)
    }

    /// SETCLIENTID; follows the cases of RFC 7530 section 16.33.5 in their order. `idle` says whether a confirmed
    /// client holds nothing or has let its lease expire.
    /// Errors: `CLID_INUSE`.
    pub fn set_client_id(
        &mut self,
        now: Millis,
        ask: SetClientId,
        idle: impl FnOnce(&Client) -> bool,
    ) -> Result<u64, SetClientIdError> {
        let name = OwnerName { v40: true, name: ask.owner.clone() };
        let Requester { principal, addr } = ask.by;
        if let Some(c) = self.confirmed_at(&name, addr) {
            if c.principal != principal && !idle(c) {
                let using = c.v40.as_ref().map(|v| v.callback.client.location.clone());
                return Err(SetClientIdError::InUse(using.unwrap_or_default()));
            }
            // The same instance of the client, perhaps with another callback. An ID of a former instance of the server
            // does not qualify: it is stale.
            if c.principal == principal && c.verifier == ask.verifier && self.is_of_this_instance(c.id) {
                let id = c.id;
                self.drop_unconfirmed(&name, addr);
                if let Some(v) = self.by_id.get_mut(&id).and_then(|c| c.v40.as_mut()) {
                    v.update = Some((ask.confirm, ask.callback));
                }
                return Ok(id);
            }
        }
        // A new client, or one that has restarted, with or without an unconfirmed record.
        self.drop_unconfirmed(&name, addr);
        let id = self.fresh();
        let client = Client {
            id,
            owner: ask.owner,
            verifier: ask.verifier,
            principal,
            addrs: Addrs::at(addr),
            confirmed: false,
            create_sequence: 0,
            create_reply: None,
            renewed: now,
            holds: false,
            holding_noted: false,
            nothing_held: 0,
            reclaim_complete: false,
            needs_reclaim: false,
            restored: false,
            went_on: false,
            missed_grace: false,
            leaves: false,
            must_complete: false,
            version: 0,
            v40: Some(V40 { confirm: ask.confirm, callback: ask.callback, update: None }),
        };
        self.insert(client);
        Ok(id)
    }

    /// SETCLIENTID_CONFIRM (RFC 7530 section 16.34.5).
    /// Errors: `STALE_CLIENTID` when no record of this host matches; `CLID_INUSE` for another principal.
    pub fn confirm_client_id(
        &mut self,
        now: Millis,
        id: u64,
        confirm: Verifier,
        by: Requester,
    ) -> Result<Confirmed40, NfsStat> {
        const STALE: NfsStat = NfsStat::NFS4ERR_STALE_CLIENTID;
        if !self.is_of_this_instance(id) {
            return Err(STALE);
        }
        let c = self.by_id.get_mut(&id).filter(|c| c.addrs.has(by.addr)).ok_or(STALE)?;
        let v = c.v40.as_mut().ok_or(STALE)?;
        let update = v.update.as_ref().is_some_and(|(u, _)| *u == confirm);
        if !update && v.confirm != confirm {
            return Err(STALE);
        }
        if c.principal != by.principal {
            return Err(NfsStat::NFS4ERR_CLID_INUSE);
        }
        if update && let Some((confirm, callback)) = v.update.take() {
            (v.confirm, v.callback) = (confirm, callback);
        }
        if c.confirmed {
            return Ok(Confirmed40 { first: false, replaced: None });
        }
        c.confirmed = true;
        c.renewed = now;
        Ok(Confirmed40 { first: true, replaced: self.former(id) })
    }

    /// Removes the unconfirmed record of this host, since a new one replaces it.
    fn drop_unconfirmed(&mut self, name: &OwnerName, addr: IpAddr) {
        let found = self.named(name).find(|c| !c.confirmed && c.addrs.has(addr)).map(|c| c.id);
        if let Some(id) = found {
            self.remove(id);
        }
    }

    /// The first phases of CREATE_SESSION (RFC 8881 section 18.36.4): checks the client ID, its principal and the
    /// sequence number. Changes nothing. Only the principal that created the client ID may create its sessions, even
    /// after confirmation. Others could use up its sessions, and a replay would tell them the session IDs.
    /// Errors: `STALE_CLIENTID`, `CLID_INUSE`, `SEQ_MISORDERED`.
    pub fn check_create_session(
        &self,
        id: u64,
        sequence: u32,
        by: Requester,
    ) -> Result<CreateSession, NfsStat> {
        let c = self.by_id.get(&id).ok_or(NfsStat::NFS4ERR_STALE_CLIENTID)?;
        if !c.addrs.has(by.addr) {
            return Err(NfsStat::NFS4ERR_STALE_CLIENTID);
        }
        if c.principal != by.principal {
            return Err(NfsStat::NFS4ERR_CLID_INUSE);
        }
        if sequence.wrapping_add(1) == c.create_sequence {
            let reply = c.create_reply.clone().ok_or(NfsStat::NFS4ERR_SEQ_MISORDERED)?;
            return Ok(CreateSession::Replay(reply));
        }
        if sequence != c.create_sequence {
            return Err(NfsStat::NFS4ERR_SEQ_MISORDERED);
        }
        if self.is_dead(id) {
            return Err(NfsStat::NFS4ERR_STALE_CLIENTID);
        }
        Ok(CreateSession::New)
    }

    /// After a successful CREATE_SESSION: confirms the record and keeps the reply. Returns the owner's former confirmed
    /// record; the caller must now remove its state.
    pub fn created(&mut self, id: u64, now: Millis, reply: Bytes, version: u64) -> Option<u64> {
        let c = self.by_id.get_mut(&id)?;
        c.create_sequence = c.create_sequence.wrapping_add(1);
        c.create_reply = Some(reply);
        c.renewed = now;
        c.version = version;
        if c.confirmed {
            return None;
        }
        c.confirmed = true;
        self.former(id)
    }

    /// Renews the lease (RFC 8881 section 8.3).
    pub fn renew(&mut self, id: u64, now: Millis) {
        if let Some(c) = self.by_id.get_mut(&id) {
            c.renewed = c.renewed.max(now);
        }
    }
}
