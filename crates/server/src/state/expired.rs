//! Which stateids are `EXPIRED` (RFC 7530 section 9.6.3.1).

use crate::limits;
use std::collections::{HashSet, VecDeque};

/// States that went without their client's doing, remembered so that their stateids are `EXPIRED`: the last
/// [`limits::EXPIRED_STATES_MAX`] of them.
#[derive(Debug, Default)]
pub(super) struct Expired {
    known: HashSet<u64>,
    by_age: VecDeque<u64>,
}

impl Expired {
    /// The state with this number has expired.
    pub(super) fn add(&mut self, id: u64) {
        if self.known.insert(id) {
            self.by_age.push_back(id);
        }
        while self.by_age.len() > limits::EXPIRED_STATES_MAX {
            if let Some(old) = self.by_age.pop_front() {
                self.known.remove(&old);
            }
        }
    }

    /// Whether the state with this number has expired, as far as that is remembered.
    pub(super) fn has(&self, id: u64) -> bool {
        self.known.contains(&id)
    }
}
