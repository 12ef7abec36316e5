//! The NFSv4 state of the server as a pure core: no I/O, no clock, no threads. Values in, values out.
//!
//! - [`clients`]: EXCHANGE_ID and CREATE_SESSION, leases; [`identity`]: which host a client is, who may speak for it;
//! - [`sessions`]: slots, the reply cache, retries;
//! - [`copies`]: copies that go on after their COPY was answered;
//! - [`opens`]: opens, share reservations, stateids; [`locks`]: byte ranges (`ranges`: the table of one file);
//! - [`owners`]: the sequence numbers of NFSv4.0's owners; [`v40`], [`opens40`]: that version on the same state;
//! - [`nlm`]: the hosts of NFSv3's lock manager, whose locks are in the same tables;
//! - [`drc`]: replies to calls without a session;
//! - [`ids`]: the numbers of clients and stateids;
//! - [`grace`]: who may reclaim after a restart;
//! - `room`: who gives opens up when they are short;
//! - [`refusals`]: which limits have refused something;
//! - [`notes`]: what of it stands in the log, and how it is read back; [`merge`]: from several logs.
//!
//! Time is a number of milliseconds that never goes backwards, given by the caller ([`Millis`]). All of it lives
//! behind one mutex ([`crate::server::Shared`]), which is a leaf: nothing is called with it held.
//!
//! Invariants: an open belongs to a live client; a lock state belongs to a live open; a session belongs to a confirmed
//! client; what a note says carries a version that grows with each change, so that notes may reach the log in any order.

pub mod clients;
pub mod copies;
mod deadlock;
pub mod drc;
pub mod grace;
pub mod identity;
pub mod ids;
pub mod locks;
pub mod merge;
pub mod nlm;
pub mod notes;
pub mod opens;
pub mod opens40;
pub mod owners;
pub mod ranges;
pub mod refusals;
mod room;
mod session_room;
pub mod sessions;
pub mod v40;

use crate::limited::{Limit, Limits};
use crate::limits;
use clients::Clients;
use drc::Drc;
use grace::Grace;
use ids::Secret;
use landfast_nfs::v4::flags::SEQ4_STATUS_RESTART_RECLAIM_NEEDED;
use landfast_nfs::v4::{NfsStat, SessionId};
use notes::Stamped;
use opens::Files;
use owners::Owners;
use refusals::AtLimit;
use sessions::Sessions;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

/// Milliseconds on a clock that never goes backwards.
pub type Millis = u64;

/// Who sent a request: the flavour and the user of the RPC credential (RFC 8881 section 2.4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Principal {
    /// The RPC flavour (0 none, 1 AUTH_SYS).
    pub flavor: u32,
    /// The user ID of AUTH_SYS; 0 for AUTH_NONE.
    pub uid: u32,
}

/// How much the state may keep, which the log has to hold at each checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes that all slots together may at worst keep.
    pub reply_bytes: u64,
    /// Client records.
    pub clients: usize,
    /// NLM hosts.
    pub nlm_hosts: usize,
    /// Bytes of the duplicate request cache.
    pub call_bytes: u64,
    /// What can be set; client records may be fewer, see above.
    pub limits: Limits,
}

impl Bounds {
    /// For a server whose log has `log_bytes`; without a log only memory counts.
    #[must_use]
    pub fn new(log_bytes: Option<u64>) -> Bounds {
        Bounds::with(log_bytes, Limits::default())
    }

    /// The same with these limits.
    #[must_use]
    pub fn with(log_bytes: Option<u64>, limits: Limits) -> Bounds {
        let configured = limits;
        use crate::limits;
        let share = |parts| log_bytes.map_or(u64::MAX, |b| (b / limits::LOG_PARTS).saturating_mul(parts));
        let clients = share(limits::LOG_PARTS_CLIENTS) / limits::CLIENT_NOTE_BYTES;
        let clients = usize::try_from(clients).unwrap_or(usize::MAX);
        let hosts = share(limits::LOG_PARTS_NLM) / limits::NLM_HOST_NOTE_BYTES;
        let hosts = usize::try_from(hosts).unwrap_or(usize::MAX);
        Bounds {
            reply_bytes: limits::CACHED_BYTES_TOTAL_MAX.min(share(limits::LOG_PARTS_SESSIONS)),
            clients: configured[Limit::Clients].min(clients).max(1),
            nlm_hosts: limits::NLM_HOSTS_MAX.min(hosts).max(1),
            call_bytes: limits::DRC_BYTES_MAX.min(share(limits::LOG_PARTS_CALLS)),
            limits: configured,
        }
    }
}

/// All state. `F` is what the shell keeps with an open (its descriptors).
pub struct State<F> {
    /// Client records.
    pub clients: Clients,
    /// Sessions and their slots.
    pub sessions: Sessions,
    /// Opens and locks, by file.
    pub files: Files<F>,
    /// Open owners and lock owners of NFSv4.0.
    pub owners: Owners,
    /// Hosts that lock by NLM.
    pub hosts: nlm::Hosts,
    /// Copies under way.
    pub copies: copies::Copies,
    /// Replies to calls without a session.
    pub drc: Drc,
    /// The grace period.
    pub grace: Grace,
    /// Lease time.
    pub lease_ms: Millis,
    /// How much may be kept.
    pub bounds: Bounds,
    /// The version that the next change gets.
    pub(crate) version: u64,
}

/// The address that a client was first heard of from, as it has a share.
fn share_of_client(c: &clients::Client) -> Option<IpAddr> {
    c.addrs.all().first().copied().map(landfast_rpc::share_of)
}

impl<F> State<F> {
    /// Empty state of the server instance `epoch`, which must differ from every earlier instance's, as must its `secret`.
    #[must_use]
    pub fn of_instance(epoch: u32, secret: Secret, lease_ms: Millis, bounds: Bounds) -> Self {
        State {
            clients: Clients::new(secret),
            sessions: Sessions::new(bounds.reply_bytes, &bounds.limits),
            files: Files::new(epoch, bounds.limits, secret),
            owners: Owners::default(),
            hosts: nlm::Hosts::default(),
            copies: copies::Copies::default(),
            drc: Drc::new(bounds.call_bytes),
            grace: Grace::default(),
            lease_ms,
            bounds,
            version: 0,
        }
    }

    /// [`State::of_instance`] with a secret that is none.
    #[cfg(test)]
    #[must_use]
    pub fn new(epoch: u32, lease_ms: Millis, bounds: Bounds) -> Self {
        State::of_instance(epoch, [epoch as u8; 16], lease_ms, bounds)
    }

    pub(crate) fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Takes a client away with its sessions, opens and locks. The notes say so in the log.
    pub fn remove_client(&mut self, id: u64) -> Vec<Stamped> {
        let mut out = Vec::new();
        let Some(client) = self.clients.remove(id) else { return out };
        for session in self.sessions.of_client(id) {
            self.sessions.remove(&session);
            if client.confirmed {
                let v = self.next_version();
                out.push(Stamped { v, note: notes::Note::SessionGone(session) });
            }
        }
        if client.v40.is_some() {
            self.files.expire(id);
            self.owners.remove_client(id);
        }
        self.files.remove_client(id);
        self.copies.remove_client(id);
        self.grace.done(id);
        if client.confirmed {
            let v = self.next_version();
            out.push(Stamped { v, note: notes::Note::ClientGone(id) });
        }
        out
    }

    /// The record `id` has taken the place of `old`, which goes. If this is the same instance of the client after a restart
    /// of the server, what it may still reclaim goes on with the new record, whose note has to say so.
    pub fn succeed_client(&mut self, now: Millis, id: u64, old: u64) -> Vec<Stamped> {
        let reclaims = match (self.clients.get(id), self.clients.get(old)) {
            (Some(new), Some(old)) => {
                let same = new.verifier == old.verifier && new.principal == old.principal;
                same && old.needs_reclaim && self.grace.may_reclaim(now)
            }
            _ => false,
        };
        if let Some(c) = self.clients.get_mut(id) {
            (c.needs_reclaim, c.holds) = (reclaims, reclaims);
        }
        if reclaims {
            self.grace.wait_for(id);
        }
        self.remove_client(old)
    }

    /// EXCHANGE_ID ([`Clients::exchange_id`]).
    ///
    /// # Errors
    /// As there.
    pub fn exchange_id(
        &mut self,
        now: Millis,
        ask: &clients::ExchangeId,
    ) -> Result<clients::Exchanged, NfsStat> {
        let (files, sessions, lease) = (&self.files, &self.sessions, self.lease_ms);
        self.clients.exchange_id(now, ask, |c| {
            let nothing = files.opens_of(c.id) == 0 && sessions.of_client(c.id).is_empty();
            nothing || now.saturating_sub(c.renewed) > lease
        })
    }

    /// Room for one more client record of this address. The last places are for addresses that have few: so whoever fills the others,
    /// with clients that each hold something, keeps nobody out.
    ///
    /// # Errors
    /// As for [`State::make_room_for_client`].
    pub fn room_for_client(&mut self, now: Millis, addr: IpAddr) -> Result<Vec<Stamped>, NfsStat> {
        let (has, max) = (self.clients.len(), self.bounds.clients);
        let place = has < max - max / limits::CLIENTS_KEPT_DIVISOR
            || (has < max && self.records_of(addr) < limits::CLIENT_RECORDS_FEW);
        if place { Ok(Vec::new()) } else { self.make_room_for_client(now, addr) }
    }

    fn records_of(&self, addr: IpAddr) -> usize {
        let share = landfast_rpc::share_of(addr);
        self.clients.iter().filter(|c| share_of_client(c) == Some(share)).count()
    }

    /// One client record goes: one that holds nothing, of the address that has most records, and never of one that has fewer
    /// than who asks; of these unconfirmed before confirmed, then the one that was silent longest. So who makes many takes its own
    /// places.
    ///
    /// # Errors
    /// `DELAY` when each holds something.
    pub fn make_room_for_client(&mut self, now: Millis, addr: IpAddr) -> Result<Vec<Stamped>, NfsStat> {
        let first = share_of_client;
        let own = self.records_of(addr);
        let mut of_address = HashMap::new();
        for c in self.clients.iter() {
            *of_address.entry(first(c)).or_insert(0_usize) += 1;
        }
        let count = |c: &clients::Client| of_address.get(&first(c)).copied().unwrap_or(0);
        let idle = self
            .clients
            .iter()
            .filter(|c| self.files.opens_of(c.id) == 0 && !c.needs_reclaim && !self.is_busy(c.id))
            .filter(|c| count(c) >= own)
            .min_by_key(|c| (Reverse(count(c)), c.confirmed, c.renewed))
            .map(|c| c.id);
        let lapsed = || {
            let over = self.clients.iter().filter(|c| self.lapsed(c.id, now) && !self.is_busy(c.id));
            over.min_by_key(|c| c.renewed).map(|c| c.id)
        };
        let Some(id) = idle.or_else(lapsed) else {
            self.files.refusals.at(AtLimit::Clients);
            return Err(NfsStat::NFS4ERR_DELAY);
        };
        Ok(self.remove_client(id))
    }

    /// Whether a request of the client is being worked on.
    fn is_busy(&self, client: u64) -> bool {
        self.sessions.client_is_busy(client) || self.owners.client_is_busy(client)
    }

    /// Takes a session away.
    pub fn remove_session(&mut self, id: &SessionId) -> Option<Stamped> {
        self.sessions.remove(id)?;
        let v = self.next_version();
        Some(Stamped { v, note: notes::Note::SessionGone(*id) })
    }

    /// Whether a client has state in the sense of RFC 8881 section 18.35.4 (cases 3) and 18.50.3: a session, an open or a
    /// lock, under a lease that goes on.
    #[must_use]
    pub fn has_state(&self, client: u64, now: Millis) -> bool {
        !self.lapsed(client, now)
            && (self.files.opens_of(client) > 0 || !self.sessions.of_client(client).is_empty())
    }

    /// The `sr_status_flags` of a SEQUENCE of this client (RFC 8881 section 18.46.3). Each flag is computed from the
    /// state that it speaks of, so none can be stuck.
    #[must_use]
    pub fn status_flags(&self, client: u64) -> u32 {
        match self.clients.get(client) {
            Some(c) if c.needs_reclaim => SEQ4_STATUS_RESTART_RECLAIM_NEEDED,
            _ => 0,
        }
    }

    /// Whether the client's lease is over. An NLM host has none.
    #[must_use]
    pub fn lapsed(&self, client: u64, now: Millis) -> bool {
        !nlm::is_nlm(client)
            && self.clients.get(client).is_none_or(|c| now.saturating_sub(c.renewed) > self.lease_ms)
    }

    /// RECLAIM_COMPLETE for the whole server (RFC 8881 section 18.51).
    ///
    /// # Errors
    /// `COMPLETE_ALREADY` when this client has said so before.
    pub fn reclaim_complete(&mut self, client: u64) -> Result<Option<Stamped>, NfsStat> {
        let v = self.next_version();
        let c = self.clients.get_mut(client).ok_or(NfsStat::NFS4ERR_STALE_CLIENTID)?;
        if c.reclaim_complete {
            return Err(NfsStat::NFS4ERR_COMPLETE_ALREADY);
        }
        c.version = v;
        self.clients.complete(client);
        self.grace.done(client);
        Ok(self.clients.get(client).map(|c| Stamped { v, note: notes::Note::of(c) }))
    }

    /// Whether an open, a lock or a change of names that is no reclaim must wait (RFC 8881 section 8.4.2.1): during the
    /// grace period, and for a client that is new to this instance of the server, or has to reclaim, until it has said that
    /// it is done (section 18.51.3).
    #[must_use]
    pub fn must_wait_for_grace(&self, client: u64, now: Millis) -> bool {
        let owes = |c: &clients::Client| c.v40.is_none() && (c.needs_reclaim || c.must_complete);
        self.grace.active(now) || self.clients.get(client).is_some_and(owes)
    }

    /// Whether this client may reclaim now.
    ///
    /// # Errors
    /// `NO_GRACE` outside the grace period or after its RECLAIM_COMPLETE; `RECLAIM_BAD` when the server has no
    /// record that it held state.
    pub fn may_reclaim(&self, client: u64, now: Millis) -> Result<(), NfsStat> {
        let c = self.clients.get(client).ok_or(NfsStat::NFS4ERR_STALE_CLIENTID)?;
        if c.reclaim_complete || !self.grace.may_reclaim(now) {
            return Err(NfsStat::NFS4ERR_NO_GRACE);
        }
        if !c.needs_reclaim {
            return Err(NfsStat::NFS4ERR_RECLAIM_BAD);
        }
        Ok(())
    }

    /// Whether `client` holds an open or a lock that the log does not know of yet: then its record must be in the log
    /// before the reply, or it could not reclaim after a power cut. The note to write, if so.
    pub fn note_holding(&mut self, client: u64) -> Option<Stamped> {
        if self.files.opens_of(client) == 0 {
            return None;
        }
        let v = self.version + 1;
        let c = self.clients.get_mut(client)?;
        if c.holding_noted {
            return None;
        }
        c.version = v;
        c.holds = true;
        let note = notes::Note::of(c);
        self.version = v;
        Some(Stamped { v, note })
    }

    /// The note of [`State::note_holding`] is on stable storage.
    pub fn holding_is_noted(&mut self, client: u64) {
        if let Some(c) = self.clients.get_mut(client) {
            c.holding_noted = true;
        }
    }

    /// What goes on by time alone: forgets unconfirmed clients, and clients that were silent for very long; and lets the log know who
    /// has come to hold nothing, so that nobody has to wait for them after a restart. Called every few seconds.
    pub fn tick(&mut self, now: Millis) -> Vec<Stamped> {
        // Nobody waits for the copies of a client that has been silent for a lease, whatever else it keeps.
        for client in self.copies.clients() {
            if self.lapsed(client, now) {
                self.copies.remove_client(client);
            }
        }
        self.copies.tick(now, self.lease_ms);
        let unconfirmed_ms = self.lease_ms * limits::UNCONFIRMED_LEASES;
        let mut out = self.nlm_tick(now);
        for id in self.clients.ids() {
            let Some(c) = self.clients.get(id) else { continue };
            let silent = now.saturating_sub(c.renewed);
            let limit = match (c.confirmed, self.files.opens_of(id) > 0 || c.needs_reclaim) {
                (false, _) => unconfirmed_ms,
                (true, false) => self.lease_ms.max(limits::IDLE_MS),
                (true, true) => self.lease_ms.max(limits::COURTESY_MS),
            };
            if silent > limit && !self.is_busy(id) {
                out.extend(self.remove_client(id));
            } else if c.holding_noted && !c.needs_reclaim && self.files.opens_of(id) == 0 {
                out.extend(self.note_holding_nothing(id));
            }
        }
        out
    }

    /// The next open or lock is noted again before anybody hears of it ([`State::note_holding`]), under a later version.
    fn note_holding_nothing(&mut self, client: u64) -> Option<Stamped> {
        let v = self.next_version();
        let c = self.clients.get_mut(client)?;
        (c.holds, c.holding_noted, c.version) = (false, false, v);
        Some(Stamped { v, note: notes::Note::of(c) })
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests40;
#[cfg(test)]
mod tests_clock;
#[cfg(test)]
mod tests_identity;
#[cfg(test)]
mod tests_room;
