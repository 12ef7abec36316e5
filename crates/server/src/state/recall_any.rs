//! Clients that are asked to return some delegations, whichever (CB_RECALL_ANY, RFC 8881 section 20.6). Who is asked, and when: [`super::crowding`].

use super::clock::Millis;
use crate::limits;
use landfast_nfs::v4::SessionId;
use std::collections::{HashMap, VecDeque};

/// What a client is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecallAny {
    pub client: u64,
    /// How many it may keep.
    pub keep: u32,
    /// It has some of files, of directories.
    pub files: bool,
    pub directories: bool,
    /// The session in which it was given one of them, and its minor version.
    pub session: SessionId,
    pub minor: u32,
}

#[derive(Debug, Default)]
pub(super) struct RecallsAny {
    due: VecDeque<RecallAny>,
    /// Until when a client is not asked again.
    asked_until: HashMap<u64, Millis>,
    /// Until when it is not looked again whom to ask for the sake of all.
    looked_until: Millis,
}

impl RecallsAny {
    /// Whether the client may be asked again.
    pub(super) fn may_ask(&self, now: Millis, client: u64) -> bool {
        self.asked_until.get(&client).is_none_or(|until| *until <= now)
    }

    pub(super) fn ask(&mut self, until: Millis, what: RecallAny) {
        self.asked_until.insert(what.client, until);
        self.due.push_back(what);
    }

    /// Whether it is to be looked for clients to ask.
    pub(super) fn looks(&mut self, now: Millis) -> bool {
        let looks = self.looked_until <= now;
        if looks {
            self.looked_until = now + limits::CROWDED_LOOK_MS;
        }
        looks
    }

    pub(super) fn take(&mut self) -> Option<RecallAny> {
        self.due.pop_front()
    }

    pub(super) fn forget_client(&mut self, client: u64) {
        self.asked_until.remove(&client);
        self.due.retain(|what| what.client != client);
    }
}
