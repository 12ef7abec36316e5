//! Open owners and lock owners of NFSv4.0. For each owner this keeps the sequence number and the reply of its last
//! request (RFC 7530 sections 9.1.7 to 9.1.11). This gives a client without a session exactly-once semantics.
//!
//! - A request with the number after the last one is new. One with the last number is a retry: it gets the first reply
//!   if operation, arguments, caller and current filehandle are the same. Any other number gets `BAD_SEQID`.
//! - An error that does not advance the client's number ([`NfsStat::advances_seqid`]) changes nothing here.
//! - An unknown open owner may start with any number, and must confirm it ([`Owner::confirmed`]). A lock owner is
//!   introduced under its open owner's number.
//! - An owner is busy from a request until its reply may be sent ([`Owners::take`]), so that no retry is answered
//!   before the log is durable.
//!
//! Invariant: a lock owner is kept exactly as long as it has a lock state. An open owner is kept as long as it has an
//! open, and for [`limits::OWNER_IDLE_LEASES`] leases after its last use.

use super::clock::Millis;
use crate::errors;
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::{NfsStat, OpNum, ResOp};
use std::collections::{HashMap, HashSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Open,
    Lock,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerKey {
    pub client: u64,
    pub kind: Kind,
    pub name: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Last {
    /// Digest of the arguments, the caller and the current filehandle.
    pub fingerprint: u64,
    pub res: ResOp,
    /// The current filehandle that the operation set, if any (OPEN).
    pub fh: Option<Bytes>,
}

#[derive(Debug)]
pub struct Owner {
    /// The sequence number of its last request.
    pub seqid: u32,
    /// Its sequence number is confirmed (RFC 7530 section 9.1.11).
    pub confirmed: bool,
    last: Last,
    used: Millis,
    /// Number of lock states; lock owners only.
    states: usize,
    /// The open that its last request closed, so that a retry of that CLOSE finds its owner. For an unconfirmed owner:
    /// the open that it will not confirm.
    closed: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    New,
    /// A retry: send this reply again.
    Replay(Box<Last>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub op: OpNum,
    /// Digest of the arguments, the caller and the current filehandle.
    pub fingerprint: u64,
}

#[derive(Debug, Default)]
pub struct Owners {
    by_client: HashMap<u64, HashMap<(Kind, Bytes), Owner>>,
    by_closed: HashMap<u64, OwnerKey>,
    busy: HashSet<OwnerKey>,
    count: usize,
}

/// Whether `next` comes after `last`. After the largest number comes 1 (RFC 7530 section 9.1.3), or 0 from clients that
/// just count.
fn follows(last: u32, next: u32) -> bool {
    next == last.wrapping_add(1) || (last == u32::MAX && next == 1)
}

impl Owner {
    /// Tells a new request of this owner from a retry; the error is `BAD_SEQID`.
    pub fn check(&self, seqid: u32, request: &Request) -> Result<Turn, NfsStat> {
        if seqid == self.seqid {
            let same = self.last.res.op == request.op && self.last.fingerprint == request.fingerprint;
            return if same {
                Ok(Turn::Replay(Box::new(self.last.clone())))
            } else {
                Err(NfsStat::NFS4ERR_BAD_SEQID)
            };
        }
        if follows(self.seqid, seqid) { Ok(Turn::New) } else { Err(NfsStat::NFS4ERR_BAD_SEQID) }
    }

    /// Whether its only OPEN was released because a confirmation had a wrong number (RFC 7530 section 16.18.4).
    pub fn cancelled(&self) -> bool {
        !self.confirmed && self.closed.is_some()
    }
}

impl Owners {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn get(&self, key: &OwnerKey) -> Option<&Owner> {
        self.by_client.get(&key.client)?.get(&(key.kind, key.name.clone()))
    }

    fn get_mut(&mut self, key: &OwnerKey) -> Option<&mut Owner> {
        self.by_client.get_mut(&key.client)?.get_mut(&(key.kind, key.name.clone()))
    }

    /// The owner whose last open was closed by an operation.
    pub fn of_closed(&self, open: u64) -> Option<&OwnerKey> {
        self.by_closed.get(&open)
    }

    /// Makes these owners busy: all of them or none.
    #[must_use]
    pub fn take(&mut self, keys: &[OwnerKey]) -> bool {
        if keys.iter().any(|k| self.busy.contains(k)) {
            return false;
        }
        self.busy.extend(keys.iter().cloned());
        true
    }

    pub fn give_back(&mut self, keys: &[OwnerKey]) {
        for k in keys {
            self.busy.remove(k);
        }
    }

    pub fn client_is_busy(&self, client: u64) -> bool {
        self.busy.iter().any(|k| k.client == client)
    }

    pub fn of(&self, client: u64) -> usize {
        self.by_client.get(&client).map_or(0, HashMap::len)
    }

    pub fn has_room(&self, client: u64) -> bool {
        self.count < limits::OWNERS_MAX && self.of(client) < limits::OWNERS_PER_CLIENT_MAX
    }

    /// Records an answered request as its owner's last one, unless its status does not advance the number.
    pub fn record(&mut self, now: Millis, key: &OwnerKey, seqid: u32, confirmed: bool, last: Last) {
        if !last.res.status.advances_seqid() {
            return;
        }
        let old = self.get_mut(key).map(|o| {
            o.seqid = seqid;
            o.used = now;
            o.confirmed |= confirmed;
            o.last = last.clone();
            o.closed.take()
        });
        match old {
            Some(closed) => {
                if let Some(open) = closed {
                    self.by_closed.remove(&open);
                }
            }
            None => {
                let owner = Owner { seqid, confirmed, last, used: now, states: 0, closed: None };
                self.by_client.entry(key.client).or_default().insert((key.kind, key.name.clone()), owner);
                self.count += 1;
            }
        }
    }

    /// Bars the owner's last reply from being sent again: its effect could not be made durable.
    pub fn spoil(&mut self, key: &OwnerKey) {
        if let Some(o) = self.get_mut(key) {
            o.last.res = ResOp::failed(o.last.res.op, errors::status_of_failed(o.last.res.op));
            o.last.fh = None;
        }
    }

    /// Records that the owner's last request closed this open, or is about to.
    pub fn closed(&mut self, key: &OwnerKey, open: u64) {
        let Some(o) = self.get_mut(key) else { return };
        if let Some(before) = o.closed.replace(open) {
            self.by_closed.remove(&before);
        }
        self.by_closed.insert(open, key.clone());
    }

    pub fn add_state(&mut self, key: &OwnerKey) {
        if let Some(o) = self.get_mut(key) {
            o.states += 1;
        }
    }

    /// Takes one lock state from a lock owner, and removes the owner with its last one.
    pub fn drop_state(&mut self, key: &OwnerKey) {
        if let Some(o) = self.get_mut(key) {
            o.states = o.states.saturating_sub(1);
            if o.states == 0 {
                self.remove(key);
            }
        }
    }

    pub fn remove(&mut self, key: &OwnerKey) {
        let Some(of_client) = self.by_client.get_mut(&key.client) else { return };
        if let Some(owner) = of_client.remove(&(key.kind, key.name.clone())) {
            self.count -= 1;
            if let Some(open) = owner.closed {
                self.by_closed.remove(&open);
            }
        }
        if of_client.is_empty() {
            self.by_client.remove(&key.client);
        }
    }

    pub fn remove_client(&mut self, client: u64) {
        for owner in self.by_client.remove(&client).unwrap_or_default().into_values() {
            self.count -= 1;
            if let Some(open) = owner.closed {
                self.by_closed.remove(&open);
            }
        }
    }

    pub fn clients(&self) -> Vec<u64> {
        self.by_client.keys().copied().collect()
    }

    /// A client's open owners that are not busy and were not used since `before`; the flag says whether they are
    /// confirmed.
    pub fn silent(&self, client: u64, before: Millis) -> Vec<(OwnerKey, bool)> {
        let Some(of_client) = self.by_client.get(&client) else { return Vec::new() };
        of_client
            .iter()
            .filter(|((kind, _), o)| *kind == Kind::Open && o.used < before)
            .map(|((kind, name), o)| (OwnerKey { client, kind: *kind, name: name.clone() }, o.confirmed))
            .filter(|(key, _)| !self.busy.contains(key))
            .collect()
    }
}
