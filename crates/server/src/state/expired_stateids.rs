//! Expired stateids (RFC 7530 sections 9.1.4.4 and 9.6.3.1).

use crate::limits;
use std::collections::{HashSet, VecDeque};

/// The last [`limits::EXPIRED_STATES_MAX`] states that the server took from their clients: their stateids get `EXPIRED`.
#[derive(Debug, Default)]
pub(super) struct ExpiredStateids {
    known: HashSet<u64>,
    by_age: VecDeque<u64>,
}

impl ExpiredStateids {
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

    pub(super) fn has(&self, id: u64) -> bool {
        self.known.contains(&id)
    }
}
