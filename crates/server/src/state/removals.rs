//! Clients that are gone, and of which it is not known yet that the log has said so.
//!
//! Such a client is in nobody's way any more, but after a crash it might be there again, with all that it held. So who asks whether anybody is in his
//! way writes their notes as well: his answer waits for a flush that has them. Where delegations are asked about, only the notes of those who had one of the same file
//! count, since everybody asks about these.

use super::bugs::{Bug, bug};
use super::ids::FileKey;
use super::notes::{Note, Stamped};
use crate::limits;
use std::collections::{BTreeMap, HashSet};

#[derive(Debug, Default)]
pub struct Removals {
    /// By the versions of their notes.
    unsettled: BTreeMap<u64, Removal>,
    /// How many of them had delegations.
    holders: usize,
}

#[derive(Debug)]
struct Removal {
    client: u64,
    /// The files and directories that it had delegations of.
    delegated: HashSet<FileKey>,
}

impl Removal {
    fn note(&self, v: u64) -> Stamped {
        Stamped { v, note: Note::ClientGone(self.client) }
    }
}

impl Removals {
    /// The caller writes this note.
    pub(super) fn add(&mut self, v: u64, client: u64, delegated: HashSet<FileKey>) {
        self.holders += usize::from(!delegated.is_empty());
        self.unsettled.insert(v, Removal { client, delegated });
        // There are many only when a log has failed, and then nobody whose answer rests on it is answered.
        if self.unsettled.len() > limits::UNSETTLED_REMOVALS_MAX
            && let Some((_, oldest)) = self.unsettled.pop_first()
        {
            self.is_forgotten(&oldest);
        }
    }

    fn is_forgotten(&mut self, removal: &Removal) {
        self.holders -= usize::from(!removal.delegated.is_empty());
    }

    /// What an answer rests on that found none of these clients in its way.
    pub fn unsettled(&self) -> Vec<Stamped> {
        if bug(Bug::RemovalUnlogged) {
            return Vec::new();
        }
        self.unsettled.iter().map(|(v, removal)| removal.note(*v)).collect()
    }

    /// What an answer rests on that found none of these clients to have a delegation of this file.
    pub fn of_file(&self, file: &FileKey) -> Vec<Stamped> {
        if bug(Bug::RemovalUnlogged) {
            return Vec::new();
        }
        let of_file = self.unsettled.iter().filter(|(_, removal)| removal.delegated.contains(file));
        of_file.map(|(v, removal)| removal.note(*v)).collect()
    }

    /// How many of these clients had delegations.
    pub fn of_holders(&self) -> usize {
        self.holders
    }

    /// The versions of those among these notes.
    pub fn among(notes: &[Stamped]) -> impl Iterator<Item = u64> {
        notes.iter().filter(|note| matches!(note.note, Note::ClientGone(_))).map(|note| note.v)
    }

    /// The log has these.
    pub fn settled(&mut self, versions: impl IntoIterator<Item = u64>) {
        for v in versions {
            if let Some(removal) = self.unsettled.remove(&v) {
                self.is_forgotten(&removal);
            }
        }
    }
}
