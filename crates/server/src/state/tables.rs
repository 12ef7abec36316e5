//! [`State`], all tables together, and operations that concern several of them.

use super::bugs::{Bug, bug};
use super::clients::{Client, Clients, ExchangeId, Exchanged};
use super::clock::Millis;
use super::copies::Copies;
use super::drc::Drc;
use super::grace::Grace;
use super::ids::Secret;
use super::nlm::hosts::{Hosts, is_nlm};
use super::notes::{LogId, Note, Stamped};
use super::opens::Files;
use super::owners::Owners;
use super::removals::Removals;
use super::sessions::Sessions;
use super::unwritten::Unwritten;
use crate::limited::{Limit, Limits};
use crate::limits;
use landfast_nfs::v4::flags::{SEQ4_STATUS_RECALLABLE_STATE_REVOKED, SEQ4_STATUS_RESTART_RECLAIM_NEEDED};
use landfast_nfs::v4::{NfsStat, SessionId};

/// How much the state may keep; the log has to hold all of it at each checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes that all slots together may keep.
    pub reply_bytes: u64,
    pub clients: usize,
    pub nlm_hosts: usize,
    pub call_bytes: u64,
    /// Delegations that stand in the log.
    pub delegations: usize,
    /// Bytes of locks in the log; 0 without a log.
    pub lock_bytes: u64,
    /// Bytes of opens in the log; 0 without a log.
    pub open_bytes: u64,
    /// The configured limits. Client records may be fewer: see `clients`.
    pub limits: Limits,
    /// Bytes of the smallest log; `None` without one.
    pub log_bytes: Option<u64>,
}

impl Bounds {
    /// The bounds for a log of `log_bytes`. Without a log only memory counts.
    pub fn new(log_bytes: Option<u64>) -> Bounds {
        Bounds::with(log_bytes, Limits::default())
    }

    /// [`Bounds::new`] with these limits.
    pub fn with(log_bytes: Option<u64>, limits: Limits) -> Bounds {
        let configured = limits;
        let share = |parts| log_bytes.map_or(u64::MAX, |b| (b / limits::LOG_PARTS).saturating_mul(parts));
        let clients = share(limits::LOG_PARTS_CLIENTS) / limits::CLIENT_NOTE_BYTES;
        let clients = usize::try_from(clients).unwrap_or(usize::MAX);
        let hosts = share(limits::LOG_PARTS_NLM) / limits::NLM_HOST_NOTE_BYTES;
        let hosts = usize::try_from(hosts).unwrap_or(usize::MAX);
        Bounds {
            reply_bytes: limits::CACHED_BYTES_TOTAL_MAX.min(share(limits::LOG_PARTS_SESSIONS)),
            clients: configured[Limit::Clients].min(clients).max(1),
            nlm_hosts: limits::NLM_HOSTS_MAX.min(hosts).max(1),
            delegations: match log_bytes {
                None => 0,
                Some(_) => {
                    let fit = share(limits::LOG_PARTS_DELEGATIONS) / limits::DELEGATION_NOTE_BYTES;
                    usize::try_from(fit).unwrap_or(usize::MAX).min(limits::LOGGED_DELEGATIONS_MAX)
                }
            },
            lock_bytes: match log_bytes {
                None => 0,
                Some(_) => share(limits::LOG_PARTS_LOCKS).min(limits::LOGGED_LOCKS_BYTES_MAX),
            },
            open_bytes: match log_bytes {
                None => 0,
                Some(_) => share(limits::LOG_PARTS_OPENS).min(limits::LOGGED_OPENS_BYTES_MAX),
            },
            call_bytes: limits::DRC_BYTES_MAX.min(share(limits::LOG_PARTS_CALLS)),
            limits: configured,
            log_bytes,
        }
    }

    /// Whether a log of so many bytes has room for all that the state may keep.
    pub fn fit(&self, log_bytes: u64) -> bool {
        let fitting = Bounds::with(Some(log_bytes), self.limits);
        let pairs = [
            (self.reply_bytes, fitting.reply_bytes),
            (self.call_bytes, fitting.call_bytes),
            (self.lock_bytes, fitting.lock_bytes),
            (self.open_bytes, fitting.open_bytes),
            (self.clients as u64, fitting.clients as u64),
            (self.nlm_hosts as u64, fitting.nlm_hosts as u64),
            (self.delegations as u64, fitting.delegations as u64),
        ];
        pairs.iter().all(|(kept, fits)| kept <= fits)
    }
}

/// All state. `F` is what the shell keeps with an open (its descriptors).
pub struct State<F> {
    pub clients: Clients,
    pub sessions: Sessions,
    pub files: Files<F>,
    /// Open owners and lock owners of NFSv4.0.
    pub owners: Owners,
    pub hosts: Hosts,
    pub copies: Copies,
    pub drc: Drc,
    pub removals: Removals,
    pub grace: Grace,
    pub lease_ms: Millis,
    pub bounds: Bounds,
    /// Until then clients of before the restart may have opens that they have not used since.
    pub(super) unknown_opens_until: Millis,
    /// The version that the next change gets.
    pub(crate) version: u64,
    /// The note of the logs that notes may be in.
    pub(super) logs: Option<Stamped>,
    pub unwritten: Unwritten,
}

impl<F> State<F> {
    /// Empty state of the server instance `epoch`, which must differ from every earlier instance's, as must its `secret`.
    pub fn of_instance(epoch: u32, secret: Secret, lease_ms: Millis, bounds: Bounds) -> Self {
        State {
            clients: Clients::new(secret),
            sessions: Sessions::new(bounds.reply_bytes, &bounds.limits),
            files: Files::new(epoch, bounds.limits, secret),
            owners: Owners::default(),
            hosts: Hosts::default(),
            copies: Copies::default(),
            drc: Drc::new(bounds.call_bytes),
            removals: Removals::default(),
            grace: Grace::default(),
            lease_ms,
            bounds,
            unknown_opens_until: 0,
            version: 0,
            logs: None,
            unwritten: Unwritten::default(),
        }
    }

    /// [`State::of_instance`] with a secret that anybody can guess.
    #[cfg(test)]
    pub fn new(epoch: u32, lease_ms: Millis, bounds: Bounds) -> Self {
        State::of_instance(epoch, [epoch as u8; 16], lease_ms, bounds)
    }

    /// From now on notes may be in these logs. Returns the note of it, which each of them is to have before any of them has others.
    pub fn note_logs(&mut self, logs: Vec<LogId>) -> Stamped {
        let noted = Stamped { v: self.next_version(), note: Note::Logs(logs) };
        self.logs = Some(noted.clone());
        noted
    }

    /// Whether notes may be in other logs than these.
    pub fn may_be_in_others(&self, here: &[LogId]) -> bool {
        match self.logs.as_ref().map(|logs| &logs.note) {
            Some(Note::Logs(logs)) => logs.iter().any(|log| !here.contains(log)),
            _ => false,
        }
    }

    /// Whether nothing was noted since [`State::note_logs`].
    pub fn is_as_logs_have_it(&self) -> bool {
        self.logs.as_ref().is_some_and(|logs| logs.v == self.version)
    }

    pub(crate) fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Removes a client with its sessions, opens and locks. Returns the notes for the log.
    pub fn remove_client(&mut self, id: u64) -> Vec<Stamped> {
        let mut out = Vec::new();
        let Some(client) = self.clients.remove(id) else { return out };
        for session in self.sessions.of_client(id) {
            self.sessions.remove(&session);
            if client.confirmed {
                let v = self.next_version();
                out.push(Stamped { v, note: Note::SessionGone(session) });
            }
        }
        let held = self.files.holds_anything(id);
        let delegated = self.files.delegated_to(id);
        if client.v40.is_some() {
            self.files.expire(id);
            self.owners.remove_client(id);
        }
        self.files.remove_client(id);
        self.copies.remove_client(id);
        self.grace.done(id);
        if client.confirmed {
            let v = self.next_version();
            out.push(Stamped { v, note: Note::ClientGone(id) });
            // Without a log nobody is there again, and who has left with empty hands is in nobody's way.
            if held && self.bounds.open_bytes > 0 {
                self.removals.add(v, id, delegated);
            }
        }
        out
    }

    /// Removes the record `old`, which `id` replaces. If both are the same instance of the client, and it may still reclaim after a
    /// restart of the server, the new record inherits that right, and its note has to say so.
    pub fn succeed_client(&mut self, now: Millis, id: u64, old: u64) -> Vec<Stamped> {
        let (reclaims, went_on, missed_grace) = match (self.clients.get(id), self.clients.get(old)) {
            (Some(new), Some(old)) => {
                let same = new.verifier == old.verifier && new.principal == old.principal;
                let reclaims = same && old.needs_reclaim && self.grace.may_reclaim(now);
                (reclaims, reclaims && old.went_on, reclaims && old.missed_grace)
            }
            _ => (false, false, false),
        };
        if let Some(c) = self.clients.get_mut(id) {
            (c.needs_reclaim, c.holds) = (reclaims, reclaims);
            (c.went_on, c.missed_grace) = (went_on, missed_grace);
        }
        if reclaims {
            self.grace.wait_for(id);
            self.files.delegations.revocations.is_succeeded(id, old);
            let of_client = self.files.unreclaimed.values_mut().filter(|(client, _)| *client == old);
            of_client.for_each(|(client, _)| *client = id);
        }
        self.remove_client(old)
    }

    /// EXCHANGE_ID: see [`Clients::exchange_id`].
    pub fn exchange_id(&mut self, now: Millis, ask: &ExchangeId) -> Result<Exchanged, NfsStat> {
        let (files, sessions, lease) = (&self.files, &self.sessions, self.lease_ms);
        self.clients.exchange_id(now, ask, |c| {
            let nothing = files.opens_of(c.id) == 0 && sessions.of_client(c.id).is_empty();
            nothing || now.saturating_sub(c.renewed) > lease
        })
    }

    pub(super) fn is_busy(&self, client: u64) -> bool {
        self.sessions.client_is_busy(client) || self.owners.client_is_busy(client)
    }

    /// Removes a session. Returns the note for the log.
    pub fn remove_session(&mut self, id: &SessionId) -> Option<Stamped> {
        self.sessions.remove(id)?;
        let v = self.next_version();
        Some(Stamped { v, note: Note::SessionGone(*id) })
    }

    /// Whether a client has state in the sense of RFC 8881 section 18.35.4 (cases 3) and 18.50.3: a session, an open or a
    /// lock, under a lease that has not expired.
    pub fn has_state(&self, client: u64, now: Millis) -> bool {
        !self.lapsed(client, now)
            && (self.files.opens_of(client) > 0 || !self.sessions.of_client(client).is_empty())
    }

    /// The `sr_status_flags` of a SEQUENCE of this client (RFC 8881 section 18.46.3). Each flag is computed from the
    /// state itself, so none can be stuck.
    pub fn status_flags(&self, client: u64) -> u32 {
        let reclaim = match self.clients.get(client) {
            Some(c) if c.needs_reclaim => SEQ4_STATUS_RESTART_RECLAIM_NEEDED,
            _ => 0,
        };
        let revoked = self.files.delegations.revocations.any(client);
        reclaim | if revoked { SEQ4_STATUS_RECALLABLE_STATE_REVOKED } else { 0 }
    }

    /// Whether the client's lease has expired. An NLM host has no lease.
    pub fn lapsed(&self, client: u64, now: Millis) -> bool {
        !is_nlm(client)
            && self.clients.get(client).is_none_or(|c| now.saturating_sub(c.renewed) > self.lease_ms)
    }

    /// RECLAIM_COMPLETE for the whole server (RFC 8881 section 18.51).
    /// Errors: `COMPLETE_ALREADY` if this client has sent it before.
    pub fn reclaim_complete(&mut self, client: u64) -> Result<Option<Stamped>, NfsStat> {
        let v = self.next_version();
        let c = self.clients.get_mut(client).ok_or(NfsStat::NFS4ERR_STALE_CLIENTID)?;
        if c.reclaim_complete {
            return Err(NfsStat::NFS4ERR_COMPLETE_ALREADY);
        }
        c.version = v;
        self.clients.complete(client);
        self.grace.done(client);
        Ok(self.clients.get(client).map(|c| Stamped { v, note: c.note() }))
    }

    /// Whether an open, a lock or a change of names that is no reclaim must wait (RFC 8881 section 8.4.2.1). It must
    /// during the grace period. A client that is new to this instance of the server, or has to reclaim, must wait until
    /// it has sent RECLAIM_COMPLETE (section 18.51.3).
    pub fn must_wait_for_grace(&self, client: u64, now: Millis) -> bool {
        let owes = |c: &Client| c.v40.is_none() && (c.needs_reclaim || c.must_complete);
        (self.grace.active(now) && !bug(Bug::GraceIgnored)) || self.clients.get(client).is_some_and(owes)
    }

    /// Checks that this client may reclaim now.
    /// Errors: `NO_GRACE` outside the grace period or after its RECLAIM_COMPLETE; `RECLAIM_BAD` when the server has no
    /// record that it held state, or it had not reclaimed all in an earlier grace period (RFC 8881 section 8.4.3).
    pub fn may_reclaim(&self, client: u64, now: Millis) -> Result<(), NfsStat> {
        let c = self.clients.get(client).ok_or(NfsStat::NFS4ERR_STALE_CLIENTID)?;
        if c.reclaim_complete || !self.grace.may_reclaim(now) {
            return Err(NfsStat::NFS4ERR_NO_GRACE);
        }
        if !c.needs_reclaim || c.missed_grace && !bug(Bug::ReclaimedLater) {
            return Err(NfsStat::NFS4ERR_RECLAIM_BAD);
        }
        Ok(())
    }

    /// If the client holds an open or a lock and its record in the log does not say so yet: the note to write. It must be durable before
    /// the reply, or the client could not reclaim after a power cut.
    pub fn note_holding(&mut self, client: u64) -> Option<Stamped> {
        if self.unlogged_of(client) == 0 || bug(Bug::HoldingUnlogged) {
            return None;
        }
        let v = self.version + 1;
        let c = self.clients.get_mut(client)?;
        if c.holding_noted {
            return None;
        }
        c.version = v;
        c.holds = true;
        let note = c.note();
        self.version = v;
        Some(Stamped { v, note })
    }

    /// The note of [`State::note_holding`] of this version is durable. A later one may have said meanwhile that the client holds nothing: then the next
    /// is needed, which another request may have written, and which need not be durable yet.
    pub fn holding_is_noted(&mut self, client: u64, v: u64) {
        if let Some(c) = self.clients.get_mut(client) {
            c.holding_noted |= c.holds && v > c.nothing_held;
        }
    }
}
