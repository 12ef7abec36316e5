//! The grace period after a restart (RFC 8881 section 8.4.2.1; RFC 7530 section 9.6.2): who may still reclaim, and
//! until when.
//!
//! It ends when every client that was recorded with opens or locks has sent RECLAIM_COMPLETE or is gone, at the latest
//! after one lease. NFSv4.0 clients never report that they are done. With no client to wait for, the grace period never
//! begins.
//!
//! Before anybody else gets anything after an expiry, the log must record that the remaining clients may not reclaim
//! after a further restart either ([`super::State::end_grace`]; the edge conditions of RFC 7530 section 9.6.3.4).

use super::clock::Millis;
use super::nlm::is_nlm;
use super::notes::Stamped;
use std::collections::HashSet;

#[derive(Debug, Default)]
pub struct Grace {
    until: Millis,
    waiting: HashSet<u64>,
    /// There may be others, which are not known: it lasts for its whole time.
    for_unknown: bool,
    /// Its time is over. These notes are offered to the logs again and again until one has taken them.
    ending: Option<Vec<Stamped>>,
    ended: bool,
}

impl Grace {
    /// Begins: these clients may reclaim, until `until`.
    pub fn begin(&mut self, clients: impl IntoIterator<Item = u64>, until: Millis) {
        *self = Grace { until, waiting: clients.into_iter().collect(), ..Grace::default() };
    }

    /// Lets it last for its whole time: there may be clients that are not known.
    pub fn waits_for_unknown(&mut self) {
        self.for_unknown = true;
    }

    fn is_for_any(&self) -> bool {
        self.for_unknown || !self.waiting.is_empty()
    }

    /// Whether it lasts: even after its time, until [`Grace::ended`].
    pub fn active(&self, now: Millis) -> bool {
        self.ending.is_some() || (self.is_for_any() && (now < self.until || !self.ended))
    }

    /// Whether its time is over but it has not ended.
    pub fn is_over(&self, now: Millis) -> bool {
        self.is_for_any() && now >= self.until && self.ending.is_none() && !self.ended
    }

    pub fn may_reclaim(&self, now: Millis) -> bool {
        self.active(now) && self.ending.is_none()
    }

    /// Starts to end it. Until the log has taken these notes, nobody may reclaim and nobody gets anything new.
    pub fn end(&mut self, notes: Vec<Stamped>) {
        self.ending = Some(notes);
    }

    /// The notes that the log is to take before the end.
    pub fn ending(&self) -> Option<&[Stamped]> {
        self.ending.as_deref()
    }

    pub fn ended(&mut self) {
        (self.ending, self.ended, self.for_unknown) = (None, true, false);
        self.waiting.clear();
    }

    pub fn done(&mut self, client: u64) {
        self.waiting.remove(&client);
    }

    /// Whether it lasts for somebody else's sake: another client may still reclaim.
    pub fn waits_for_others(&self, client: u64, now: Millis) -> bool {
        self.active(now)
            && (self.ending.is_some() || self.for_unknown || self.waiting.iter().any(|id| *id != client))
    }

    /// Whether an NFSv4 client may still reclaim. It may have denied others something: the log does not say what it had
    /// open.
    pub fn waits_for_nfs4(&self, now: Millis) -> bool {
        self.active(now) && (self.for_unknown || self.waiting.iter().any(|id| !is_nlm(*id)))
    }

    /// Also lets this client reclaim: it is one that is waited for, under a new ID.
    pub fn wait_for(&mut self, client: u64) {
        self.waiting.insert(client);
    }
}
