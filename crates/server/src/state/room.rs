//! Makes room for one more client record or open. Where room is short, clients are removed that hold nothing or whose
//! lease has expired, the one silent longest first.

use super::clients::Client;
use super::ids::FileKey;
use super::notes::Stamped;
use super::refusals::AtLimit;
use super::{Millis, State};
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::NfsStat;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

impl<F> State<F> {
    /// Room for one more client record of this address. The last places are for addresses that have few. So one that
    /// fills the others, with clients that each hold something, keeps nobody out.
    /// Errors: Those of [`State::make_room_for_client`].
    pub fn room_for_client(&mut self, now: Millis, addr: IpAddr) -> Result<Vec<Stamped>, NfsStat> {
        let (has, max) = (self.clients.len(), self.bounds.clients);
        let place = has < max - max / limits::CLIENTS_KEPT_DIVISOR
            || (has < max && self.records_of(addr) < limits::CLIENT_RECORDS_FEW);
        if place { Ok(Vec::new()) } else { self.make_room_for_client(now, addr) }
    }

    fn records_of(&self, addr: IpAddr) -> usize {
        let share = landfast_rpc::share_of(addr);
        self.clients.iter().filter(|c| c.share() == Some(share)).count()
    }

    /// Removes one client record that holds nothing, of the address that has most records, and never of one that has
    /// fewer than `addr`. Unconfirmed records go before confirmed ones, then the one silent longest. So an address
    /// that creates many records takes its own places.
    /// Errors: `DELAY` when each record holds something.
    pub fn make_room_for_client(&mut self, now: Millis, addr: IpAddr) -> Result<Vec<Stamped>, NfsStat> {
        let first = Client::share;
        let own = self.records_of(addr);
        let mut of_address = HashMap::new();
        for c in self.clients.iter() {
            *of_address.entry(first(c)).or_insert(0_usize) += 1;
        }
        let count = |c: &Client| of_address.get(&first(c)).copied().unwrap_or(0);
        let idle = self
            .clients
            .iter()
            .filter(|c| !self.holds_open(c.id) && !c.needs_reclaim && !self.is_busy(c.id))
            .filter(|c| !(c.restored && self.may_have_unknown_opens(now)))
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

    /// Makes sure that a client at this address may have one more open, or keep the open that is known
    /// ([`super::opens::Files::room_for_open`]). Always write the returned notes: they are about clients that were
    /// removed.
    /// Errors: `NOSPC` if the client is at its own limit; `DELAY` if its address has its share, or all opens are in
    /// use: others may close theirs.
    pub fn make_room_for_open(
        &mut self,
        now: Millis,
        client: u64,
        known: Option<(&Bytes, &FileKey)>,
        from: IpAddr,
    ) -> (Result<(), NfsStat>, Vec<Stamped>) {
        let mut notes = Vec::new();
        loop {
            let limit = match self.files.room_for_open(client, known, from) {
                Ok(()) => return (Ok(()), notes),
                Err(limit) => limit,
            };
            let lapsed = match limit {
                AtLimit::ClientOpens => None,
                _ => self
                    .clients
                    .iter()
                    .filter(|c| c.id != client && self.files.opens_of(c.id) > 0)
                    .filter(|c| self.lapsed(c.id, now) && !self.is_busy(c.id))
                    .min_by_key(|c| c.renewed)
                    .map(|c| c.id),
            };
            let Some(lapsed) = lapsed else {
                self.files.refusals.at(limit);
                let status = match limit {
                    AtLimit::ClientOpens => NfsStat::NFS4ERR_NOSPC,
                    _ => NfsStat::NFS4ERR_DELAY,
                };
                return (Err(status), notes);
            };
            notes.extend(self.remove_client(lapsed));
        }
    }
}
