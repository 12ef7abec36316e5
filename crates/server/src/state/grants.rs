//! Delegations that were given where nothing else goes into the log, as to an OPEN of a file that was there: which of their OPENs wait for the log, and
//! which delegations it does not know yet. What is done with both: [`super::settling`].

use super::clock::Millis;
use crate::limits;
use std::collections::{BTreeMap, HashMap};

#[derive(Debug, Default)]
pub(super) struct Grants {
    /// Given, and the requests that they were given to have not ended yet.
    under_way: Vec<u64>,
    /// Those for which the log had no room.
    no_room: Vec<u64>,
    /// Answered, and unknown to the log, by client.
    answered: BTreeMap<u64, Answered>,
    /// There is a client in `answered` that was not there when the shell last asked.
    news: bool,
    /// How far ahead of time the OPENs of a client have waited for the log.
    waited: HashMap<u64, Millis>,
}

#[derive(Debug, Default)]
struct Answered {
    ids: Vec<u64>,
    /// When the last of them was.
    last: Millis,
}

impl Grants {
    pub(super) fn given(&mut self, id: u64) {
        self.under_way.push(id);
    }

    /// Whether one more OPEN of this client may wait for the log now; it does.
    pub(super) fn waits(&mut self, now: Millis, client: u64) -> bool {
        let until = self.waited.entry(client).or_default();
        let next = now.max(*until) + limits::GRANTS_AWAITED_EACH_MS;
        let may = next - now <= limits::GRANTS_AWAITED_EACH_MS * limits::GRANTS_AWAITED_AT_ONCE;
        if may {
            *until = next;
        }
        may
    }

    /// The OPENs of those for which `is` are about to be answered. Some of them are settled already.
    pub(super) fn answered(
        &mut self,
        now: Millis,
        client: u64,
        is: impl Fn(u64) -> bool,
        settled: impl Fn(u64) -> bool,
    ) {
        let known = self.answered.contains_key(&client);
        for id in self.under_way.extract_if(.., |id| is(*id)).filter(|id| !settled(*id)) {
            let of_client = self.answered.entry(client).or_default();
            of_client.ids.push(id);
            of_client.last = now;
        }
        self.news |= !known && self.answered.contains_key(&client);
    }

    /// The shell is told that there is another time to settle.
    pub(super) fn news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// When the log is to be told of the first of those that it does not know.
    pub(super) fn due(&self) -> Option<Millis> {
        self.answered.values().map(|of_client| of_client.last + limits::GRANTS_SETTLE_MS).min()
    }

    /// Those of clients that were given none for a while, with their clients, so many at a time.
    pub(super) fn take_quiet(&mut self, now: Millis) -> Vec<(u64, Vec<u64>)> {
        let is_due = |of_client: &Answered| of_client.last + limits::GRANTS_SETTLE_MS <= now;
        let clients: Vec<u64> = self.answered.iter().filter(|(_, a)| is_due(a)).map(|(c, _)| *c).collect();
        self.take_from(clients)
    }

    /// Those whose OPENs were answered, so many at a time, of clients that are given more all the time, too. Called once a tick.
    pub(super) fn take_at_tick(&mut self, lives: impl Fn(u64) -> bool) -> Vec<u64> {
        self.under_way.retain(|id| lives(*id));
        let most = self.no_room.len().min(limits::DELEGATIONS_NOTED_AT_ONCE);
        let mut ids: Vec<u64> = self.no_room.drain(..most).collect();
        let clients: Vec<u64> = self.answered.keys().copied().collect();
        ids.extend(self.take_from(clients).into_iter().flat_map(|(_, of_client)| of_client));
        ids
    }

    fn take_from(&mut self, clients: Vec<u64>) -> Vec<(u64, Vec<u64>)> {
        let (mut taken, mut left) = (Vec::new(), limits::DELEGATIONS_NOTED_AT_ONCE);
        for client in clients {
            let Some(of_client) = self.answered.get_mut(&client) else { continue };
            let some = of_client.ids.len().min(left);
            left -= some;
            taken.push((client, of_client.ids.drain(..some).collect()));
            if of_client.ids.is_empty() {
                self.answered.remove(&client);
            }
            if left == 0 {
                break;
            }
        }
        taken
    }

    /// There was no room for it in the log.
    pub(super) fn put_back(&mut self, id: u64) {
        self.no_room.push(id);
    }

    pub(super) fn forget_client(&mut self, client: u64) {
        self.answered.remove(&client);
        self.waited.remove(&client);
    }
}
