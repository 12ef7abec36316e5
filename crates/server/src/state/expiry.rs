//! Expiry: what time alone ends.

use super::clients::Client;
use super::clock::Millis;
use super::notes::Stamped;
use super::tables::State;
use crate::limits;

impl<F> State<F> {
    /// Called every few seconds. Forgets unconfirmed clients, and clients that were silent for very long. Returns notes for the log, also
    /// of clients that hold nothing any more: after a restart nobody has to wait for their reclaims.
    pub fn tick(&mut self, now: Millis) -> Vec<Stamped> {
        // A client whose lease is over keeps what it holds for a while, but not its copies.
        for client in self.copies.clients() {
            if self.lapsed(client, now) {
                self.copies.remove_client(client);
            }
        }
        self.copies.tick(now, self.lease_ms);
        let unconfirmed_ms = self.lease_ms * limits::UNCONFIRMED_LEASES;
        let mut out = self.nlm_tick(now);
        out.extend(self.take_gone());
        // Before the notes of clients that hold nothing besides, with which they go into the log together.
        out.extend(self.log_delegations());
        out.extend(self.log_more_locks());
        out.extend(self.tick_unlinked(now));
        for id in self.clients.ids() {
            let Some(c) = self.clients.get(id) else { continue };
            let silent = now.saturating_sub(c.renewed);
            let limit = match (c.confirmed, self.holds_open(id) || c.needs_reclaim) {
                (false, _) => unconfirmed_ms,
                (true, false) => self.lease_ms.max(limits::IDLE_MS),
                (true, true) => self.lease_ms.max(limits::COURTESY_MS),
            };
            if silent > limit && !self.is_busy(id) {
                out.extend(self.remove_client(id));
            } else {
                out.extend(self.note_if_nothing_is_held(id));
            }
        }
        out
    }

    /// Whether a client has opens, used since a restart or not.
    pub(super) fn holds_open(&self, client: u64) -> bool {
        self.files.opens_of(client) > 0 || self.files.preserved.has_any(client)
    }

    /// If the log says that a client may hold something, and that is so no more: the note that it holds nothing. Its next open or lock is noted again
    /// ([`State::note_holding`]), under a later version.
    pub(super) fn note_if_nothing_is_held(&mut self, client: u64) -> Option<Stamped> {
        let is_so = |c: &&Client| c.holds && !c.needs_reclaim;
        self.clients.get(client).filter(is_so)?;
        if self.unlogged_of(client) > 0 {
            return None;
        }
        let v = self.next_version();
        let c = self.clients.get_mut(client)?;
        (c.holds, c.holding_noted, c.version, c.nothing_held) = (false, false, v, v);
        Some(Stamped { v, note: c.note() })
    }
}
