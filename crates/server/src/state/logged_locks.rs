//! Which locks stand in the log, and what makes an open one of a former instance of the server. What is done with both: [`super::former`].

use bytes::Bytes;
use std::collections::BTreeSet;

/// The sequence number of a former open until its client has told it.
pub(super) const UNKNOWN_SEQID: u32 = 0;

/// What is known of an open that a former instance gave.
#[derive(Debug)]
pub(super) struct Former {
    /// The owner, if the log knows it.
    pub(super) owner: Option<Bytes>,
}

/// The note of a lock state.
#[derive(Debug)]
pub(super) struct Logged {
    pub(super) v: u64,
    pub(super) bytes: u64,
}

/// The lock states that stand in the log.
#[derive(Debug, Default)]
pub struct LoggedLocks {
    pub(super) ids: BTreeSet<u64>,
    /// What their notes take.
    pub(super) bytes: u64,
    /// Those for which there was no room, until a tick has noted them.
    pub(super) no_room: BTreeSet<u64>,
    /// Those that the log still has and must forget.
    gone: Vec<u64>,
    /// Those that are under another open than the log says.
    pub(super) moved: Vec<u64>,
}

impl LoggedLocks {
    pub(super) fn dropped(&mut self, id: u64, logged: &Logged) {
        self.ids.remove(&id);
        self.bytes -= logged.bytes;
        self.gone.push(id);
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.ids.iter().copied().collect()
    }

    pub(super) fn gone(&self) -> usize {
        self.gone.len()
    }

    pub(super) fn take_gone(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.gone)
    }
}
