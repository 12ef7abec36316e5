//! Counts refusals at limits, so that the server can log them at most once a minute for each limit, however often
//! clients run into it. The shell asks regularly what there is to log.

use super::clock::Millis;
use crate::limits::REFUSALS_SAID_MS;

/// A limit of what clients may have and hold, by the name that `docs/limits.md` has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtLimit {
    Opens,
    ClientOpens,
    AddressOpens,
    /// Locked ranges, and lock owners, of all clients.
    Locks,
    ClientLocks,
    AddressLocks,
    FileLocks,
    LockOwners,
    Owners,
    Clients,
    ReplayBytes,
    NlmHosts,
    NlmWaiters,
}

const ALL: [(AtLimit, &str); 13] = [
    (AtLimit::Opens, "limits.opens"),
    (AtLimit::ClientOpens, "limits.client_opens"),
    (AtLimit::AddressOpens, "what one address may have of limits.opens"),
    (AtLimit::Locks, "limits.locks"),
    (AtLimit::ClientLocks, "limits.client_locks"),
    (AtLimit::AddressLocks, "what one address may have of limits.locks"),
    (AtLimit::FileLocks, "locked ranges of one file"),
    (AtLimit::LockOwners, "lock owners of one client"),
    (AtLimit::Owners, "owners of NFSv4.0"),
    (AtLimit::Clients, "limits.clients"),
    (AtLimit::ReplayBytes, "replay_bytes"),
    (AtLimit::NlmHosts, "nlm_hosts"),
    (AtLimit::NlmWaiters, "nlm_waiters"),
];

#[derive(Debug, Default)]
pub struct Refusals {
    /// Since the last message.
    count: [u64; ALL.len()],
    said: [Option<Millis>; ALL.len()],
}

impl Refusals {
    pub fn at(&mut self, limit: AtLimit) {
        if let Some(i) = ALL.iter().position(|(l, _)| *l == limit) {
            self.count[i] = self.count[i].saturating_add(1);
        }
    }

    /// What there is to log: each limit that has refused something, and how often since the last message.
    pub fn due(&mut self, now: Millis) -> Vec<(&'static str, u64)> {
        let mut out = Vec::new();
        for (i, (_, name)) in ALL.iter().enumerate() {
            let soon = self.said[i].is_some_and(|said| now.saturating_sub(said) < REFUSALS_SAID_MS);
            if self.count[i] > 0 && !soon {
                out.push((*name, std::mem::take(&mut self.count[i])));
                self.said[i] = Some(now);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_named_once_a_minute_with_what_was_held_back() {
        let mut r = Refusals::default();
        assert_eq!(r.due(0), []);
        r.at(AtLimit::Locks);
        r.at(AtLimit::Locks);
        assert_eq!(r.due(10), [("limits.locks", 2)]);
        r.at(AtLimit::Locks);
        r.at(AtLimit::NlmWaiters);
        assert_eq!(r.due(20), [("nlm_waiters", 1)], "the other was named just now");
        r.at(AtLimit::Locks);
        assert_eq!(r.due(9 + REFUSALS_SAID_MS), []);
        assert_eq!(r.due(10 + REFUSALS_SAID_MS), [("limits.locks", 2)]);
        assert_eq!(r.due(Millis::MAX), [], "nothing more was refused");
    }
}
