//! The hosts that lock by NLM.

use crate::state::clock::Millis;
use crate::state::notes::NlmHostNote;
use bytes::Bytes;
use std::collections::HashMap;
use std::net::IpAddr;

/// Client IDs with this bit are NLM hosts.
pub const NLM_BIT: u64 = 1 << 63;

/// Whether this client ID is an NLM host's.
#[must_use]
pub fn is_nlm(client: u64) -> bool {
    client & NLM_BIT != 0
}

/// A host that locks by NLM.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its client ID in the tables.
    pub id: u64,
    /// Its address.
    pub addr: IpAddr,
    /// `caller_name`.
    pub name: Bytes,
    /// When it was last heard of.
    pub used: Millis,
    /// The log has, or is about to get, a note that it may hold locks.
    pub monitored: bool,
    /// That note is durable.
    pub noted: bool,
    /// It may have held locks before the restart.
    pub restored: bool,
    /// It held nothing at the end of a grace period or at a clean stop, and its note says so.
    pub(super) settled: bool,
    /// Version of the last change.
    pub version: u64,
}

/// All hosts.
#[derive(Debug, Default)]
pub struct Hosts {
    pub(super) by_id: HashMap<u64, Host>,
    by_name: HashMap<(IpAddr, Bytes), u64>,
    pub(super) last: u64,
}

impl Hosts {
    /// The host of this identity.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<&Host> {
        self.by_id.get(&id)
    }

    /// The host at this address that calls itself so.
    #[must_use]
    pub fn find(&self, addr: IpAddr, name: &Bytes) -> Option<u64> {
        self.by_name.get(&(addr, name.clone())).copied()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The identities of all hosts.
    #[must_use]
    pub fn ids(&self) -> Vec<u64> {
        self.by_id.keys().copied().collect()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Host> {
        self.by_id.values()
    }

    pub(super) fn insert(&mut self, host: Host) {
        self.last = self.last.max(host.id & !NLM_BIT);
        self.by_name.insert((host.addr, host.name.clone()), host.id);
        self.by_id.insert(host.id, host);
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Host> {
        let host = self.by_id.remove(&id)?;
        self.by_name.remove(&(host.addr, host.name.clone()));
        Some(host)
    }
}

impl Host {
    /// Whether a status monitor at `addr` that says `name` means this host: its name, up to the case and the domain, since a
    /// status monitor may call itself by another form of it than the lock manager. An address as a name is its own.
    #[must_use]
    pub fn is_called(&self, name: &[u8], addr: IpAddr) -> bool {
        let first = |n: &[u8]| n.split(|b| *b == b'.').next().unwrap_or_default().to_ascii_lowercase();
        match std::str::from_utf8(name).ok().and_then(|n| n.parse::<IpAddr>().ok()) {
            Some(literal) => literal.to_canonical() == addr && self.addr == addr,
            None => first(&self.name) == first(name),
        }
    }

    /// What the log keeps.
    #[must_use]
    pub fn to_note(&self) -> NlmHostNote {
        NlmHostNote { id: self.id, addr: self.addr, name: self.name.to_vec(), holds: !self.settled }
    }
}
