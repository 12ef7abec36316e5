//! The grace period after a restart (RFC 8881 section 8.4.2.1; RFC 7530 section 9.6.2): who may still reclaim, and until when.
//!
//! It ends when the last client that was recorded with opens or locks has sent RECLAIM_COMPLETE or is gone, at the
//! latest after one lease: then, before anybody else gets anything, the log has to say that the others may not reclaim
//! after a further restart either ([`super::State::end_grace`]; the edge conditions of RFC 7530 section 9.6.3.4). Clients
//! of NFSv4.0 never say that they are done. With no client to wait for it never begins.

use super::clock::Millis;
use super::notes::Stamped;
use std::collections::HashSet;

/// The grace period.
#[derive(Debug, Default)]
pub struct Grace {
    until: Millis,
    waiting: HashSet<u64>,
    /// Its time is over, and this is what the log is being told: again and again until some log has taken it.
    ending: Option<Vec<Stamped>>,
    /// The log has been told.
    ended: bool,
}

impl Grace {
    /// Begins: these clients may reclaim, until `until`.
    pub fn begin(&mut self, clients: impl IntoIterator<Item = u64>, until: Millis) {
        *self = Grace { until, waiting: clients.into_iter().collect(), ending: None, ended: false };
    }

    /// Whether it is going on: also when its time is over, until [`Grace::ended`].
    #[must_use]
    pub fn active(&self, now: Millis) -> bool {
        self.ending.is_some() || (!self.waiting.is_empty() && (now < self.until || !self.ended))
    }

    /// Whether its time is over and nobody has ended it.
    #[must_use]
    pub fn is_over(&self, now: Millis) -> bool {
        !self.waiting.is_empty() && now >= self.until && self.ending.is_none() && !self.ended
    }

    /// Whether a client may still reclaim.
    #[must_use]
    pub fn may_reclaim(&self, now: Millis) -> bool {
        self.active(now) && self.ending.is_none()
    }

    /// It is going to end, when the log has taken these: nobody reclaims any more, nobody gets anything new yet.
    pub fn end(&mut self, notes: Vec<Stamped>) {
        self.ending = Some(notes);
    }

    /// What the log is being told, while it is.
    #[must_use]
    pub fn ending(&self) -> Option<&[Stamped]> {
        self.ending.as_deref()
    }

    /// It has ended.
    pub fn ended(&mut self) {
        (self.ending, self.ended) = (None, true);
        self.waiting.clear();
    }

    /// This client has nothing more to reclaim.
    pub fn done(&mut self, client: u64) {
        self.waiting.remove(&client);
    }

    /// This client may reclaim too: it is one that is waited for, under a new ID.
    pub fn wait_for(&mut self, client: u64) {
        self.waiting.insert(client);
    }

    /// How many clients are waited for.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
