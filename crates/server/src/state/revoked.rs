//! Revoked delegations (RFC 8881 sections 10.2.1 and 18.38): what their clients still have to hear, and what they may not reclaim.
//!
//! Two things are known of a revocation:
//! - the *stateid*, until its client frees it: so long each SEQUENCE says that something was revoked, and TEST_STATEID says what;
//! - of a file also the *bar*, until its client opens the file anew: after a restart it may reclaim nothing of the file, which others have changed. Directories are
//!   not reclaimed (section 10.9.5), so they have none.
//!
//! How a revocation comes about: [`super::revocation`].

use super::ids::FileKey;
use super::notes::{Note, RevokedNote, RevokedStateidsNote};
use crate::limits;
use std::collections::{HashMap, HashSet};

/// A delegation that was revoked, or is about to be: the number and mark in its stateid. Number 0: the client has freed it, or has another ID by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Revoked {
    pub(super) id: u64,
    pub(super) mark: u32,
    /// The client may reclaim nothing: false of a directory.
    pub(super) bars: bool,
}

/// What was revoked from each client.
#[derive(Debug, Default)]
pub(super) struct Revocations {
    /// Stateids that are not freed yet: their marks by client and number. A client stays here when it has freed all, so that its note says so.
    stateids: HashMap<u64, HashMap<u64, u32>>,
    /// Files and directories, from the moment that the log is told.
    files: HashMap<u64, HashMap<FileKey, Revoked>>,
}

impl Revocations {
    /// Whether this stateid was a delegation of this client and was revoked.
    pub(super) fn is_revoked(&self, id: u64, mark: u32, client: u64) -> bool {
        let revoked = self.stateids.get(&client).and_then(|of_client| of_client.get(&id));
        revoked == Some(&mark)
    }

    pub(super) fn is_now_revoked(&mut self, client: u64, id: u64, mark: u32) {
        self.stateids.entry(client).or_default().insert(id, mark);
    }

    /// The log is about to be told. False: very much was revoked from the client already.
    pub(super) fn begins(&mut self, client: u64, file: FileKey, revoked: Revoked) -> bool {
        // It may have begun before, and the log has not taken it.
        if self.of_client(client) >= limits::REVOKED_MAX && !self.has(client, &file) {
            return false;
        }
        self.files.entry(client).or_default().insert(file, revoked);
        true
    }

    /// How many revocations are known of a client.
    fn of_client(&self, client: u64) -> usize {
        let files = || self.files.get(&client).into_iter().flat_map(HashMap::values);
        let known: HashSet<u64> = files().map(|revoked| revoked.id).collect();
        let stateids = self.stateids.get(&client).into_iter().flat_map(HashMap::keys);
        files().count() + stateids.filter(|id| !known.contains(id)).count()
    }

    /// The client knows of it, or has returned it after all: after a restart only the bar remains.
    pub(super) fn free(&mut self, client: u64, id: u64) {
        if let Some(files) = self.files.get_mut(&client) {
            files.retain(|_, revoked| revoked.id != id || revoked.bars);
            files.values_mut().filter(|revoked| revoked.id == id).for_each(|revoked| revoked.id = 0);
        }
        if let Some(of_client) = self.stateids.get_mut(&client) {
            of_client.remove(&id);
        }
    }

    /// Whether the client has revoked delegations that it has not freed: SEQ4_STATUS_RECALLABLE_STATE_REVOKED.
    pub(super) fn any(&self, client: u64) -> bool {
        self.stateids.get(&client).is_some_and(|of_client| !of_client.is_empty())
    }

    /// Whether this was revoked from the client, or is about to be.
    pub(super) fn has(&self, client: u64, file: &FileKey) -> bool {
        self.files.get(&client).is_some_and(|files| files.contains_key(file))
    }

    /// Whether this file's delegation was revoked from the client, so that it may reclaim nothing of it.
    pub(super) fn bars(&self, client: u64, file: &FileKey) -> bool {
        self.files.get(&client).and_then(|files| files.get(file)).is_some_and(|revoked| revoked.bars)
    }

    /// The client opens the file anew. Returns whether there was a bar. One whose revocation the log is being told of stays.
    pub(super) fn is_opened_anew(&mut self, client: u64, file: &FileKey) -> bool {
        let Some(revoked) = self.files.get(&client).and_then(|files| files.get(file)) else { return false };
        if revoked.id != 0 && !self.is_revoked(revoked.id, revoked.mark, client) {
            return false;
        }
        self.files.get_mut(&client).is_some_and(|files| files.remove(file).is_some())
    }

    /// The client has a new ID, under which it reclaims.
    pub(super) fn is_succeeded(&mut self, id: u64, old: u64) {
        if let Some(mut files) = self.files.remove(&old) {
            files.retain(|_, revoked| revoked.bars);
            // It has none of the old ID's stateids.
            files.values_mut().for_each(|revoked| revoked.id = 0);
            self.files.insert(id, files);
        }
    }

    pub(super) fn forget_client(&mut self, client: u64) {
        self.stateids.remove(&client);
        self.files.remove(&client);
    }

    pub(super) fn restore_files(&mut self, note: RevokedNote) {
        let files = note.files.into_iter().map(|(file, id, mark)| {
            if id != 0 {
                self.is_now_revoked(note.client, id, mark);
            }
            (FileKey::from(file), Revoked { id, mark, bars: true })
        });
        let files = files.collect();
        self.files.insert(note.client, files);
    }

    pub(super) fn restore_stateids(&mut self, note: RevokedStateidsNote) {
        self.stateids.entry(note.client).or_default().extend(note.stateids);
    }

    /// Stateids that the client has not freed, and that stand for no bar.
    fn stateids_alone(&self, client: u64) -> impl Iterator<Item = (u64, u32)> {
        let files = || self.files.get(&client).into_iter().flat_map(HashMap::values);
        let barring: HashSet<u64> =
            files().filter(|revoked| revoked.bars).map(|revoked| revoked.id).collect();
        let directories = files().filter(|revoked| !revoked.bars).map(|revoked| (revoked.id, revoked.mark));
        let of_client = self.stateids.get(&client).into_iter().flatten().map(|(id, mark)| (*id, *mark));
        let alone: HashMap<u64, u32> =
            of_client.chain(directories).filter(|(id, _)| !barring.contains(id)).collect();
        alone.into_iter()
    }

    /// The client's notes of what was revoked from it.
    pub(super) fn notes(&self, client: u64) -> impl Iterator<Item = Note> {
        let files = self.files.get(&client).map(|files| {
            let barring = files.iter().filter(|(_, revoked)| revoked.bars);
            let files = barring.map(|(f, r)| (f.to_vec(), r.id, r.mark)).collect();
            Note::Revoked(RevokedNote { client, files })
        });
        let any = self.stateids.contains_key(&client) || files.is_some();
        let stateids = any.then(|| {
            let stateids = self.stateids_alone(client).collect();
            Note::RevokedStateids(RevokedStateidsNote { client, stateids })
        });
        files.into_iter().chain(stateids)
    }
}
