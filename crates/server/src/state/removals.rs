//! Clients that are gone, and of which it is not known yet that the log has said so.
//!
//! Such a client is in nobody's way any more, but after a crash it might be there again, with all that it held. So who asks whether anybody is in his
//! way writes their notes as well: his answer waits for a flush that has them.

use super::bugs::{Bug, bug};
use super::notes::{Note, Stamped};
use crate::limits;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Removals {
    /// The clients, by the versions of their notes.
    unsettled: BTreeMap<u64, u64>,
}

impl Removals {
    /// The caller writes this note.
    pub(super) fn add(&mut self, v: u64, client: u64) {
        self.unsettled.insert(v, client);
        // There are many only when a log has failed, and then nobody whose answer rests on it is answered.
        if self.unsettled.len() > limits::UNSETTLED_REMOVALS_MAX {
            self.unsettled.pop_first();
        }
    }

    /// What an answer rests on that found none of these clients in its way.
    pub fn unsettled(&self) -> Vec<Stamped> {
        if bug(Bug::RemovalUnlogged) {
            return Vec::new();
        }
        let note = |(v, client): (&u64, &u64)| Stamped { v: *v, note: Note::ClientGone(*client) };
        self.unsettled.iter().map(note).collect()
    }

    /// The versions of those among these notes.
    pub fn among(notes: &[Stamped]) -> impl Iterator<Item = u64> {
        notes.iter().filter(|note| matches!(note.note, Note::ClientGone(_))).map(|note| note.v)
    }

    /// The log has these.
    pub fn settled(&mut self, versions: impl IntoIterator<Item = u64>) {
        for v in versions {
            self.unsettled.remove(&v);
        }
    }
}
