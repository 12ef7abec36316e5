//! Before there are so many delegations that no more are given, clients are asked to return some (CB_RECALL_ANY, RFC 8881 section 20.6): which, they know best.
//!
//! | near its limit | who is asked | to keep |
//! |---|---|---|
//! | what one client has open, delegations included | this client | so many that it has a quarter free |
//! | what all have open, as far as delegations may fill it; the delegations that the log takes | clients, those first that were silent longest; those whose lease is over are not asked, but go, as where they are in somebody's way | nothing, until what is left to return makes a quarter free; the last of them the rest |
//!
//! A client is asked once a lease. What comes of it is its own affair (Linux returns all whose files it has not open): where there is no room, none is given, as before.

use super::clock::Millis;
use super::delegations::owner;
use super::opens::Files;
use super::recall_any::RecallAny;
use super::tables::State;
use crate::limited::Limit;
use crate::limits;

/// By how much what is in use exceeds what should be, if it is near the limit.
fn excess(used: usize, most: usize) -> usize {
    let part = |parts: usize| most / limits::CROWDED_PARTS * parts;
    if most > 0 && used >= part(limits::CROWDED_PARTS_ASKED) {
        used - part(limits::CROWDED_PARTS_KEPT).min(used)
    } else {
        0
    }
}

impl<F> Files<F> {
    /// What this client is asked if it is to return so many.
    fn any_of(&self, client: u64, excess: usize) -> Option<RecallAny> {
        let [files, directories] = self.delegations.of_client(client);
        let of_client = self.clients.get(&client)?;
        let name = owner();
        let some = of_client.opens.iter().find(|((owner, _), _)| *owner == name);
        let by = self.opens.get(some?.1)?.delegation.as_ref()?.given_to;
        let keep = u32::try_from((files + directories).saturating_sub(excess)).unwrap_or(u32::MAX);
        let (files, directories) = (files > 0, directories > 0);
        Some(RecallAny { client, keep, files, directories, session: by.session, minor: by.minor })
    }
}

impl<F> State<F> {
    /// After a delegation was given: asks clients to return some if there are so many that there is hardly room for more.
    pub fn make_room_for_delegations(&mut self, now: Millis, client: u64) {
        let limits = self.bounds.limits;
        let of_client = excess(self.files.opens_of(client), limits[Limit::ClientOpens]);
        if of_client > 0 {
            self.ask_for_any(now, client, of_client);
        }
        let opens = excess(self.files.len(), limits[Limit::Opens] / limits::DELEGATED_OPENS_DIVISOR);
        let logged = excess(self.files.delegations.live(), self.bounds.delegations);
        let mut excess = opens.max(logged);
        if excess == 0 || !self.files.delegations.any.looks(now) {
            return;
        }
        let mut by_age: Vec<(Millis, u64)> = self.clients.iter().map(|c| (c.renewed, c.id)).collect();
        by_age.sort_unstable();
        for (_, client) in by_age {
            let gives = self.files.delegations.of_client(client).iter().sum::<usize>().min(excess);
            if gives == 0 {
                continue;
            }
            if !self.lapsed(client, now) {
                // Who is asked already will return some.
                self.ask_for_any(now, client, gives);
                excess -= gives;
            } else if self.expels(now, client) {
                // Nobody hears whose lease is over: he loses what he has, as where that is in somebody's way.
                excess -= gives;
            }
            if excess == 0 {
                return;
            }
        }
    }

    fn ask_for_any(&mut self, now: Millis, client: u64, excess: usize) {
        if !self.files.delegations.any.may_ask(now, client) {
            return;
        }
        if let Some(what) = self.files.any_of(client, excess) {
            self.files.delegations.ask_any(now + self.lease_ms, what);
        }
    }
}
