//! The grace period after a restart (RFC 8881 section 8.4.2.1): who may still reclaim, and until when.
//!
//! It ends when the last client that was recorded with opens or locks has sent RECLAIM_COMPLETE or is gone, at the
//! latest after one lease. With no such client it never begins.

use super::Millis;
use std::collections::HashSet;

/// The grace period.
#[derive(Debug, Default)]
pub struct Grace {
    until: Millis,
    waiting: HashSet<u64>,
}

impl Grace {
    /// Begins: these clients may reclaim, until `until`.
    pub fn begin(&mut self, clients: impl IntoIterator<Item = u64>, until: Millis) {
        self.waiting = clients.into_iter().collect();
        self.until = until;
    }

    /// Whether it is going on.
    #[must_use]
    pub fn active(&self, now: Millis) -> bool {
        now < self.until && !self.waiting.is_empty()
    }

    /// This client has nothing more to reclaim.
    pub fn done(&mut self, client: u64) {
        self.waiting.remove(&client);
    }

    /// How many clients are waited for.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
