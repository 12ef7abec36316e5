//! Hosts that lock by NLM (NFSv3's lock manager), their locks and share reservations in the tables of all versions, and
//! the requests that wait for a lock.
//!
//! A host is an address and the name that it gives itself. In the tables it is a client ID with [`NLM_BIT`], which no
//! NFSv4 client has. There is no lease: what a host holds ends by UNLOCK or UNSHARE, or when the host reports a restart
//! (SM_NOTIFY, FREE_ALL).
//!
//! Invariants:
//! - A host's lock state holds at least one range.
//! - A host is in the log before it is told GRANTED, so that it hears of a restart of the server.
//! - A grant takes the range first and tells the host afterwards, so that nobody else gets it in between.
//! - Who is being told of a grant holds its range: whatever takes some of it away ends the telling.

pub mod hosts;
pub mod waiters;

use super::ids::FileKey;
use super::locks::{Denied, LockError};
use super::notes::{NlmHostNote, Note, Stamped};
use super::opens::{Files, Share, ShareConflict};
use super::ranges::{Growth, Held, given};
use super::refusals::AtLimit;
use super::{Millis, State};
use crate::limits;
use bytes::Bytes;
pub use hosts::{Host, Hosts, NLM_BIT, is_nlm};
use landfast_nfs::nlm::Lock;
use landfast_nfs::v4::NfsStat;
use landfast_rpc::share_of;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
pub use waiters::{LockRequest, RequestForm, Waiter, Waiters};

/// The lock owner of a process on a host: `svid` and `oh` together, as the tables name it.
pub fn owner(svid: i32, oh: &[u8]) -> Bytes {
    let mut o = svid.to_be_bytes().to_vec();
    o.extend_from_slice(oh);
    Bytes::from(o)
}

/// `svid` and `oh` of a holder. An NFSv4 owner is its own `oh` and has no process.
pub fn holder(d: &Denied) -> (i32, Bytes) {
    match d.owner.split_first_chunk::<4>() {
        Some((svid, _)) if is_nlm(d.client) => (i32::from_be_bytes(*svid), d.owner.slice(4..)),
        _ => (0, d.owner.clone()),
    }
}

impl<F> Files<F> {
    /// LOCK. An owner gets again what it already has. Errors: the lock in the way; `NOSPC` at the limits.
    pub fn nlm_lock(&mut self, ask: &LockRequest) -> Result<(), LockError> {
        let known = self.lock_state(ask.host, &ask.owner, &ask.file);
        let growth = match self.files.get(&ask.file) {
            Some(f) => {
                if let Some(r) = f.ranges.conflict(&ask.span, ask.exclusive, known) {
                    return Err(LockError::Denied(self.denied(&r)));
                }
                known.map_or(1, |id| f.ranges.growth_of_set(&ask.span, id))
            }
            None => 1,
        };
        self.room_for_ranges(ask.host, Some(ask.from), &ask.file, growth)?;
        let id = match known {
            Some(id) => id,
            None => {
                let id = self.new_lock_state(ask.host, Some(ask.from), &ask.owner, &ask.file, None)?;
                self.files.entry(ask.file.clone()).or_default();
                id
            }
        };
        self.change_ranges(id, ask.span, Some(ask.exclusive));
        for id in self.waiters.of_file(&ask.file) {
            let Some(w) = self.waiters.by_id.get_mut(&id).filter(|w| w.overlaps(ask)) else { continue };
            // An owner that gets the lock by asking no longer waits and need not be told. One that changes a part into a
            // shared lock must not be told of an exclusive one.
            if w.is(ask) || w.granting && w.exclusive && !ask.exclusive {
                self.waiters.remove(id);
            } else if w.granting
                && let Some(common) = ask.span.common(&w.span)
            {
                // No more than that is taken back one day.
                w.before = given(w.before.take(), common, ask.exclusive, limits::NLM_RANGES_REMEMBERED_MAX);
            }
        }
        Ok(())
    }

    /// What an owner holds of the range that it asks for, for [`Files::nlm_give_back`].
    pub fn nlm_held(&self, ask: &LockRequest) -> Held {
        match (self.lock_state(ask.host, &ask.owner, &ask.file), self.files.get(&ask.file)) {
            (Some(id), Some(f)) => f.ranges.held(&ask.span, id, limits::NLM_RANGES_REMEMBERED_MAX),
            _ => Some(Vec::new()),
        }
    }

    /// UNLOCK; the range need not be locked. The owner also stops waiting for locks in the range, and is no longer told of
    /// a grant there: it may have heard, and others may have the range next.
    /// Errors: `NOSPC` when a range would become two at the limit of ranges.
    pub fn nlm_unlock(&mut self, ask: &LockRequest) -> Result<(), NfsStat> {
        for id in self.waiters.of_file(&ask.file) {
            if self.waiters.by_id.get(&id).is_some_and(|w| w.overlaps(ask)) {
                self.waiters.remove(id);
            }
        }
        let Some(id) = self.lock_state(ask.host, &ask.owner, &ask.file) else { return Ok(()) };
        let growth = self.files.get(&ask.file).map_or(0, |f| f.ranges.growth_of_clear(&ask.span, id));
        self.room_for_ranges(ask.host, Some(ask.from), &ask.file, growth)?;
        self.change_ranges(id, ask.span, None);
        if self.files.get(&ask.file).is_none_or(|f| !f.ranges.holds(id)) {
            self.drop_lock_state(id);
        }
        Ok(())
    }

    /// Queues the request; one that already waits stays in the queue. `NOSPC` at the limits of waiting requests.
    pub fn nlm_wait(&mut self, ask: LockRequest, lock: Lock, by: RequestForm) -> Result<(), NfsStat> {
        let waiting = self.waiters.of_file(&ask.file);
        let same = |id: &&u64| self.waiters.by_id.get(id).is_some_and(|w| w.is(&ask) && !w.granting);
        if let Some(id) = waiting.iter().find(same) {
            if let Some(w) = self.waiters.by_id.get_mut(id) {
                (w.by, w.lock) = (by, lock);
            }
            return Ok(());
        }
        // It is denied what it was granted, so it does not hold that any more and must not be told of it.
        for id in &waiting {
            if self.waiters.by_id.get(id).is_some_and(|w| w.is(&ask)) {
                self.waiters.remove(*id);
            }
        }
        let of_host = self.waiters.by_host.get(&ask.host).copied().unwrap_or(0);
        if of_host >= limits::NLM_WAITERS_PER_HOST_MAX
            || waiting.len() >= limits::NLM_WAITERS_PER_FILE_MAX
            || self.waiters.are_many_of(ask.from)
        {
            self.refusals.at(AtLimit::NlmWaiters);
            return Err(NfsStat::NFS4ERR_NOSPC);
        }
        self.waiters.last += 1;
        let LockRequest { host, from, owner, file, span, exclusive } = ask;
        let id = self.waiters.last;
        self.waiters.insert(Waiter {
            id,
            host,
            from,
            owner,
            file,
            span,
            exclusive,
            lock,
            by,
            granting: false,
            repeated: false,
            before: None,
        });
        Ok(())
    }

    /// CANCEL; returns whether the request was waiting, and waits no longer. A request that is being told of its grant
    /// loses the lock again: either the client has not heard of it, or it unlocks what it heard of. If it cannot be taken
    /// back it counts as granted before: then Linux unlocks it.
    pub fn nlm_cancel(&mut self, ask: &LockRequest) -> bool {
        let found = self
            .waiters
            .of_file(&ask.file)
            .into_iter()
            .find(|id| self.waiters.by_id.get(id).is_some_and(|w| w.is(ask)));
        let Some(w) = found.and_then(|id| self.waiters.remove(id)) else { return false };
        !w.granting || self.nlm_give_back(&w.ask(), &w.before)
    }

    /// Grants free ranges to waiting requests in the order of their arrival. Returns whom to tell.
    pub fn nlm_grant(&mut self) -> Vec<Waiter> {
        let mut out = Vec::new();
        for file in std::mem::take(&mut self.waiters.freed) {
            // A grant that turns an exclusive lock into a shared one may let others in, so repeat until a round changes
            // nothing.
            while self.grant_some(&file, &mut out) {}
            self.waiters.freed.remove(&file);
        }
        out
    }

    fn grant_some(&mut self, file: &FileKey, out: &mut Vec<Waiter>) -> bool {
        let before = out.len();
        for id in self.waiters.of_file(file) {
            let Some(w) = self.waiters.by_id.get(&id).filter(|w| !w.granting).cloned() else { continue };
            // Out of the queue while the lock is taken: taking it would otherwise count as the client asking again.
            self.waiters.remove(id);
            let before = self.nlm_held(&w.ask());
            let w = Waiter { granting: self.nlm_lock(&w.ask()).is_ok(), before, ..w };
            if w.granting {
                out.push(w.clone());
            }
            self.waiters.insert(w);
        }
        out.len() > before
    }

    /// Whether the request must still be told that it has the lock.
    pub fn nlm_granting(&self, id: u64) -> bool {
        self.waiters.by_id.get(&id).is_some_and(|w| w.granting)
    }

    /// GRANTED is about to be sent, `again` if the client may have heard it before. Returns whether it still must be.
    pub fn nlm_sends(&mut self, id: u64, again: bool) -> bool {
        let Some(w) = self.waiters.by_id.get_mut(&id).filter(|w| w.granting) else { return false };
        w.repeated |= again;
        true
    }

    /// The client has confirmed the grant. Returns whether this is the host that was told.
    pub fn nlm_told(&mut self, host: impl Fn(u64) -> bool, id: u64) -> bool {
        let known = self.waiters.by_id.get(&id).is_some_and(|w| w.granting && host(w.host));
        known && self.waiters.remove(id).is_some()
    }

    /// The client rejected the grant or cannot have heard of it: the lock is released. But who has heard rejects GRANTED
    /// when it comes again, since it no longer waits: then the client keeps the lock.
    pub fn nlm_refused(&mut self, host: impl Fn(u64) -> bool, id: u64) {
        let known = self.waiters.by_id.get(&id).is_some_and(|w| w.granting && host(w.host));
        if let Some(w) = known.then(|| self.waiters.remove(id)).flatten()
            && !w.repeated
        {
            self.nlm_give_back(&w.ask(), &w.before);
        }
    }

    /// Takes back a lock that was granted: its owner has what it held `before`, as far as it still holds that. Returns
    /// whether it could be taken back. It cannot at the limit of ranges, nor when `before` was too much to remember: then
    /// the range stays held until its owner unlocks it.
    pub fn nlm_give_back(&mut self, ask: &LockRequest, before: &Held) -> bool {
        let Some(before) = before else { return false };
        let Some(id) = self.lock_state(ask.host, &ask.owner, &ask.file) else { return true };
        let Some(f) = self.files.get(&ask.file) else { return true };
        let kept = f.ranges.still_held(before, id);
        let growth = f.ranges.growth_of_clear(&ask.span, id) + kept.len() as Growth;
        if self.room_for_ranges(ask.host, Some(ask.from), &ask.file, growth).is_err() {
            return false;
        }
        self.change_ranges(id, ask.span, None);
        for (span, exclusive) in kept {
            self.change_ranges(id, span, Some(exclusive));
        }
        if self.files.get(&ask.file).is_none_or(|f| !f.ranges.holds(id)) {
            self.drop_lock_state(id);
        }
        true
    }

    /// SHARE: replaces the owner's share reservation on the file, if any. Errors: who is in the way; `NOSPC` at the
    /// limits of opens.
    pub fn nlm_share(
        &mut self,
        (host, from): (u64, IpAddr),
        oh: &Bytes,
        file: &FileKey,
        access: Share,
        deny: Share,
    ) -> Result<Result<(), ShareConflict>, NfsStat> {
        if let Err(limit) = self.room_for_open(host, Some((oh, file)), from) {
            self.refusals.at(limit);
            return Err(NfsStat::NFS4ERR_NOSPC);
        }
        let before = self.set_share(file, host, oh, 0, 0);
        if let Err(who) = self.check_share(file, access, deny) {
            if let Some((access, deny)) = before {
                self.set_share(file, host, oh, access, deny);
            }
            return Ok(Err(who));
        }
        self.open_from(from, file, host, oh, access, deny, None)?;
        self.set_share(file, host, oh, access, deny);
        Ok(Ok(()))
    }

    /// UNSHARE; the file need not be reserved.
    pub fn nlm_unshare(&mut self, host: u64, oh: &Bytes, file: &FileKey) {
        self.close_owner(host, oh, file);
    }

    /// The owner's share reservation on the file: access and deny.
    pub fn nlm_shared(&self, host: u64, oh: &Bytes, file: &FileKey) -> Option<(Share, Share)> {
        let id = self.clients.get(&host)?.opens.get(&(oh.clone(), file.clone()))?;
        self.opens.get(id).map(|open| (open.access, open.deny))
    }

    /// Takes back a share reservation that was granted: its owner has the one of `before`. If others have got meanwhile
    /// what that would deny, the owner keeps what it was granted.
    pub fn nlm_share_back(
        &mut self,
        by: (u64, IpAddr),
        oh: &Bytes,
        file: &FileKey,
        before: Option<(Share, Share)>,
    ) {
        match before {
            Some((access, deny)) => {
                let _ = self.nlm_share(by, oh, file, access, deny);
            }
            None => self.nlm_unshare(by.0, oh, file),
        }
    }

    /// Whether the host holds or waits for anything.
    pub fn nlm_busy(&self, host: u64) -> bool {
        self.clients.contains_key(&host) || self.waiters.by_host.contains_key(&host)
    }

    fn remove_waiters(&mut self, host: u64) {
        let ids: Vec<_> = self.waiters.by_id.values().filter(|w| w.host == host).map(|w| w.id).collect();
        for id in ids {
            self.waiters.remove(id);
        }
    }
}

impl<F> State<F> {
    /// Makes room for one more host of this address, as [`State::room_for_client`] does for a client record. A host
    /// that holds nothing is removed, of the address that has most, and never of one that has fewer than the asker. The
    /// last places are for addresses that have few.
    fn room_for_nlm_host(&mut self, addr: IpAddr) -> Result<Option<Stamped>, NfsStat> {
        let (has, max) = (self.hosts.len(), self.bounds.nlm_hosts);
        let kept = max / limits::CLIENTS_KEPT_DIVISOR;
        if has < max - kept {
            return Ok(None);
        }
        let mut of_address = HashMap::new();
        for h in self.hosts.iter() {
            *of_address.entry(share_of(h.addr)).or_insert(0_usize) += 1;
        }
        let count = |addr| of_address.get(&share_of(addr)).copied().unwrap_or(0);
        let own = count(addr);
        if has < max && own < limits::CLIENT_RECORDS_FEW {
            return Ok(None);
        }
        let idle = self.hosts.iter().filter(|h| !self.files.nlm_busy(h.id) && !h.restored);
        let of_who_has_most = idle.filter(|h| count(h.addr) >= own);
        let Some(id) = of_who_has_most.min_by_key(|h| (Reverse(count(h.addr)), h.used)).map(|h| h.id) else {
            self.files.refusals.at(AtLimit::NlmHosts);
            return Err(NfsStat::NFS4ERR_NOSPC);
        };
        Ok(self.nlm_forget(id))
    }

    /// Finds or creates the host of this address and name.
    /// Errors: `NOSPC` at the limit of hosts if each holds something, or if this address has its share.
    pub fn nlm_host(
        &mut self,
        addr: IpAddr,
        name: &Bytes,
        now: Millis,
    ) -> Result<(u64, Option<Stamped>), NfsStat> {
        if let Some(id) = self.hosts.find(addr, name) {
            if let Some(h) = self.hosts.by_id.get_mut(&id) {
                h.used = now;
            }
            return Ok((id, None));
        }
        let note = self.room_for_nlm_host(addr)?;
        let id = NLM_BIT | (self.hosts.last + 1);
        self.hosts.insert(Host {
            id,
            addr,
            name: name.clone(),
            used: now,
            monitored: false,
            noted: false,
            restored: false,
            settled: false,
            asked_in: None,
            asked_since: now,
            version: 0,
        });
        Ok((id, note))
    }

    /// The host asks for something, in this state of its status monitor if it says so.
    pub fn nlm_asks_in(&mut self, id: u64, state: Option<i32>, now: Millis) {
        let busy = self.files.nlm_busy(id);
        if let Some(h) = self.hosts.by_id.get_mut(&id)
            && !(busy && h.asked_in == state)
        {
            (h.asked_in, h.asked_since) = (state.filter(|_| !busy), now);
        }
    }

    /// A status monitor at `by` that calls itself `name` says that these hosts have restarted, and that its state is now
    /// `state` (SM_NOTIFY). Monitors say it several times, and a host may have asked for something in between: what is
    /// known already frees nothing, nor is taken what was asked for in that state.
    pub fn nlm_restarted(
        &mut self,
        (by, name): (IpAddr, &[u8]),
        state: i32,
        hosts: Vec<u64>,
        now: Millis,
    ) -> Vec<Stamped> {
        // Several hosts may be meant, so what is known is looked up before anything is added.
        let mut known: BTreeSet<IpAddr> =
            hosts.iter().filter_map(|id| self.hosts.get(*id)).map(|h| h.addr).collect();
        known.insert(by);
        known.retain(|addr| self.hosts.reported.hears(*addr, name, state, now));
        let mut notes = Vec::new();
        for id in hosts {
            let asked_since =
                |h: &Host| h.asked_in == Some(state) && hosts::is_of_one_restart(h.asked_since, now);
            let spared = self.hosts.get(id).is_none_or(|h| asked_since(h) || known.contains(&h.addr));
            if !spared {
                notes.extend(self.nlm_free(id));
            }
        }
        notes
    }

    /// The host has restarted: it holds nothing, waits for nothing, and has nothing to reclaim.
    pub fn nlm_free(&mut self, id: u64) -> Option<Stamped> {
        self.files.remove_waiters(id);
        self.files.remove_client(id);
        self.grace.done(id);
        self.nlm_forget(id)
    }

    fn nlm_forget(&mut self, id: u64) -> Option<Stamped> {
        let monitored = self.hosts.remove(id)?.monitored;
        monitored.then(|| Stamped { v: self.next_version(), note: Note::NlmHostGone(id) })
    }

    /// The note that must be durable before the host is told that it has something.
    pub fn nlm_note(&mut self, id: u64) -> Option<Stamped> {
        let v = self.version + 1;
        let h = self.hosts.by_id.get_mut(&id)?;
        if h.noted {
            return None;
        }
        (h.monitored, h.settled, h.version) = (true, false, v);
        let note = Note::NlmHost(h.to_note());
        self.version = v;
        Some(Stamped { v, note })
    }

    /// The note of [`State::nlm_note`] is durable.
    pub fn nlm_is_noted(&mut self, id: u64) {
        if let Some(h) = self.hosts.by_id.get_mut(&id) {
            h.noted = true;
        }
    }

    /// Hosts to notify of the server's restart.
    pub fn nlm_to_notify(&self) -> Vec<Host> {
        self.hosts.iter().filter(|h| h.restored).cloned().collect()
    }

    /// Restores a host from the log; returns its client ID for the grace period.
    pub(super) fn nlm_restore(&mut self, version: u64, note: NlmHostNote, now: Millis) -> u64 {
        let id = note.id | NLM_BIT;
        self.hosts.insert(Host {
            id,
            addr: note.addr,
            name: Bytes::from(note.name),
            used: now,
            monitored: true,
            noted: true,
            restored: true,
            settled: false,
            asked_in: None,
            asked_since: now,
            version,
        });
        id
    }

    /// Forgets hosts that hold nothing and were silent for long.
    pub(super) fn nlm_tick(&mut self, now: Millis) -> Vec<Stamped> {
        let grace = self.grace.active(now);
        let idle = |h: &&Host| !(self.files.nlm_busy(h.id) || grace && h.restored);
        let old = |h: &&Host| now.saturating_sub(h.used) > limits::IDLE_MS;
        let ids: Vec<_> = self.hosts.iter().filter(idle).filter(old).map(|h| h.id).collect();
        ids.into_iter().filter_map(|id| self.nlm_forget(id)).collect()
    }

    /// The grace period ends. A host that has reclaimed nothing may not reclaim after a further restart either, since
    /// others may have got what it held. It is still notified of the restart.
    pub(super) fn nlm_grace_ends(&mut self) -> Vec<Stamped> {
        let mut out = Vec::new();
        for h in self.hosts.by_id.values_mut().filter(|h| h.restored) {
            h.restored = false;
            if !self.files.nlm_busy(h.id) {
                self.version += 1;
                (h.settled, h.noted, h.version) = (true, false, self.version);
                out.push(Stamped { v: self.version, note: Note::NlmHost(h.to_note()) });
            }
        }
        out
    }

    /// Called before the last snapshot of a clean stop: hosts that hold nothing now need no notification of the
    /// restart.
    pub(super) fn nlm_settle(&mut self) -> Vec<Stamped> {
        let mut out = Vec::new();
        for h in self.hosts.by_id.values_mut().filter(|h| h.monitored && !h.settled) {
            if !self.files.nlm_busy(h.id) {
                self.version += 1;
                (h.settled, h.version) = (true, self.version);
                out.push(Stamped { v: self.version, note: Note::NlmHost(h.to_note()) });
            }
        }
        out
    }
}

#[cfg(test)]
mod tests;
