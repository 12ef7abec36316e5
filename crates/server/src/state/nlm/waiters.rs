//! The requests that wait for a lock by NLM.

use crate::limits;
use crate::state::ids::FileKey;
use crate::state::ranges::{Held, Span};
use crate::state::share::is_over_its_share;
use bytes::Bytes;
use landfast_nfs::nlm::Lock;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

/// A request that waits for a lock.
#[derive(Debug, Clone)]
pub struct Waiter {
    /// Never used twice.
    pub id: u64,
    pub host: u64,
    /// The client whose share it counts against.
    pub from: IpAddr,
    pub owner: Bytes,
    pub file: FileKey,
    pub span: Span,
    pub exclusive: bool,
    /// The lock as requested: GRANTED repeats it.
    pub lock: Lock,
    /// How the request came, and so how GRANTED is sent.
    pub by: RequestForm,
    /// It holds the range; GRANTED is being sent.
    pub granting: bool,
    /// GRANTED was sent again after it may have been heard.
    pub repeated: bool,
    /// What its owner would hold of the range without the grant.
    pub before: Held,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestForm {
    pub udp: bool,
    pub message: bool,
    /// The server's address that it came to, where the system says so. Linux takes GRANTED only from there.
    pub at: Option<IpAddr>,
}

#[derive(Debug, Default)]
pub struct Waiters {
    pub(super) by_id: BTreeMap<u64, Waiter>,
    by_file: HashMap<FileKey, BTreeSet<u64>>,
    pub(super) by_host: HashMap<u64, usize>,
    by_owner: HashMap<(u64, Bytes), BTreeSet<u64>>,
    pub(super) last: u64,
    /// Files with waiters on which a range has become free.
    pub(super) freed: HashSet<FileKey>,
}

impl Waiters {
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(in crate::state) fn freed(&mut self, file: &FileKey) {
        if self.any_of_file(file) {
            self.freed.insert(file.clone());
        }
    }

    /// Whether a waiter may be granted its lock.
    pub fn any_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// Whether one more waiter from this address would exceed its share, whatever names the hosts there give
    /// themselves.
    pub(super) fn are_many_of(&self, from: IpAddr) -> bool {
        let own = || self.by_id.values().filter(|w| w.from == from).count();
        is_over_its_share(self.len(), limits::NLM_WAITERS_MAX, 1, own)
    }

    pub(in crate::state) fn any_of_file(&self, file: &FileKey) -> bool {
        self.by_file.contains_key(file)
    }

    /// The waiters on a file, oldest first.
    pub(super) fn of_file(&self, file: &FileKey) -> Vec<u64> {
        self.by_file.get(file).map(|ids| ids.iter().copied().collect()).unwrap_or_default()
    }

    pub(in crate::state) fn of_owner(&self, host: u64, owner: &Bytes) -> impl Iterator<Item = &Waiter> {
        let ids = self.by_owner.get(&(host, owner.clone()));
        ids.into_iter().flatten().filter_map(|id| self.by_id.get(id))
    }

    pub(super) fn insert(&mut self, w: Waiter) {
        self.by_owner.entry((w.host, w.owner.clone())).or_default().insert(w.id);
        *self.by_host.entry(w.host).or_default() += 1;
        self.by_file.entry(w.file.clone()).or_default().insert(w.id);
        self.by_id.insert(w.id, w);
    }

    /// Nobody waits for these files any more.
    pub(in crate::state) fn remove_files(&mut self, which: impl Fn(&FileKey) -> bool) {
        let ids: Vec<u64> = self.by_id.values().filter(|w| which(&w.file)).map(|w| w.id).collect();
        ids.into_iter().for_each(|id| drop(self.remove(id)));
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Waiter> {
        let w = self.by_id.remove(&id)?;
        if let Some(ids) = self.by_file.get_mut(&w.file) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_file.remove(&w.file);
                self.freed.remove(&w.file);
            }
        }
        let owner = (w.host, w.owner.clone());
        if let Some(ids) = self.by_owner.get_mut(&owner) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
        if let Some(n) = self.by_host.get_mut(&w.host) {
            *n -= 1;
            if *n == 0 {
                self.by_host.remove(&w.host);
            }
        }
        Some(w)
    }
}

#[derive(Debug, Clone)]
pub struct LockRequest {
    pub host: u64,
    /// The client whose share it counts against ([`landfast_rpc::share_of`]).
    pub from: IpAddr,
    pub owner: Bytes,
    pub file: FileKey,
    pub span: Span,
    pub exclusive: bool,
}

impl Waiter {
    /// Whether this owner waits for some of the same bytes.
    pub(super) fn overlaps(&self, ask: &LockRequest) -> bool {
        self.host == ask.host && self.owner == ask.owner && self.span.overlaps(&ask.span)
    }

    pub(super) fn is(&self, ask: &LockRequest) -> bool {
        self.host == ask.host
            && self.owner == ask.owner
            && self.span == ask.span
            && self.exclusive == ask.exclusive
    }

    pub(super) fn ask(&self) -> LockRequest {
        LockRequest {
            host: self.host,
            from: self.from,
            owner: self.owner.clone(),
            file: self.file.clone(),
            span: self.span,
            exclusive: self.exclusive,
        }
    }
}
