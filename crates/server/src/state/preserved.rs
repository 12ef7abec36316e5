//! Which opens stand in the log, and which files are kept without a name for those who have them open. What is done with both:
//! [`super::unlinked`].

use super::ids::FileKey;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// An open that stands in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoggedOpen {
    pub(super) v: u64,
    /// The mark of the instance that gave it.
    pub(super) mark: u32,
    pub(super) client: u64,
    pub(super) owner: Bytes,
    pub(super) file: FileKey,
    /// What its note takes.
    pub(super) bytes: u64,
    /// Its client was told that the file outlasts its last name (`OPEN4_RESULT_PRESERVE_UNLINKED`).
    pub(super) promised: bool,
}

#[derive(Debug, Default)]
pub struct Preserved {
    logged: BTreeMap<u64, LoggedOpen>,
    of_client: BTreeSet<(u64, u64)>,
    /// Of these, those of a former instance that their clients have not used since, by file.
    unused: HashMap<FileKey, Vec<u64>>,
    /// What all notes take, and those of each client.
    bytes: u64,
    bytes_of: HashMap<u64, u64>,
    /// How many were promised something.
    promised: usize,
    /// Opens that do not stand in the log yet, and whether a tick has passed since.
    unlogged: BTreeMap<u64, bool>,
    /// The first of these that is looked at at the next tick: those before it had their turn, even if there was no room for them.
    next_unlogged: u64,
    /// Of these, those that go into the log with what is noted next.
    pub(super) urgent: Vec<u64>,
    /// Opens that the log still has and must forget.
    gone: Vec<u64>,
    /// Files that are kept without a name.
    orphans: HashSet<FileKey>,
    /// Former orphans, which nobody has open: to be removed by the shell.
    released: Vec<FileKey>,
    /// Clients may still reclaim what they had open, so no orphan is released.
    pub(super) may_be_reclaimed: bool,
}

impl Preserved {
    pub(super) fn logged(&self, id: u64) -> Option<&LoggedOpen> {
        self.logged.get(&id)
    }

    pub(super) fn logged_ids(&self) -> Vec<u64> {
        self.logged.keys().copied().collect()
    }

    /// Whether the log has room for so many bytes more of this client, where it takes `most`. A client may have as many as are free.
    pub(super) fn has_room(&self, client: u64, bytes: u64, most: u64) -> bool {
        let of_client = self.bytes_of.get(&client).copied().unwrap_or(0);
        self.bytes + bytes <= most && of_client + bytes <= most - self.bytes
    }

    /// How many places for files without a name are taken or promised, by opens.
    pub(super) fn places(&self) -> usize {
        self.orphans.len() + self.promised
    }

    /// The note of this open is being written.
    pub(super) fn log(&mut self, id: u64, open: LoggedOpen) {
        self.forget(id);
        self.unlogged.remove(&id);
        self.of_client.insert((open.client, id));
        self.bytes += open.bytes;
        *self.bytes_of.entry(open.client).or_default() += open.bytes;
        self.promised += usize::from(open.promised);
        self.logged.insert(id, open);
    }

    pub(super) fn promise(&mut self, id: u64, v: u64) {
        if let Some(open) = self.logged.get_mut(&id) {
            self.promised += usize::from(!open.promised);
            (open.promised, open.v) = (true, v);
        }
    }

    fn forget(&mut self, id: u64) -> Option<LoggedOpen> {
        let open = self.logged.remove(&id)?;
        self.of_client.remove(&(open.client, id));
        self.bytes -= open.bytes;
        self.promised -= usize::from(open.promised);
        if let Some(of_client) = self.bytes_of.get_mut(&open.client) {
            *of_client -= open.bytes;
            if *of_client == 0 {
                self.bytes_of.remove(&open.client);
            }
        }
        Some(open)
    }

    /// An open is not there any more.
    pub(super) fn closed(&mut self, id: u64) {
        self.unlogged.remove(&id);
        if self.forget(id).is_some() {
            self.gone.push(id);
        }
    }

    /// It stands in the log, and its client has not used it since the restart.
    pub(super) fn is_unused(&mut self, id: u64) {
        if let Some(open) = self.logged.get(&id) {
            self.unused.entry(open.file.clone()).or_default().push(id);
        }
    }

    /// Its client uses it.
    pub(super) fn is_used(&mut self, id: u64) {
        let Some(open) = self.logged.get(&id) else { return };
        if let Some(of_file) = self.unused.get_mut(&open.file) {
            of_file.retain(|other| *other != id);
            if of_file.is_empty() {
                self.unused.remove(&open.file);
            }
        }
    }

    /// Those of a file that were not used since the restart.
    pub(super) fn unused_of(&self, file: &FileKey) -> &[u64] {
        self.unused.get(file).map_or(&[], Vec::as_slice)
    }

    /// Those of a client, used or not.
    pub(super) fn ids_of(&self, client: u64) -> Vec<u64> {
        self.of_client.range((client, 0)..=(client, u64::MAX)).map(|(_, id)| *id).collect()
    }

    pub(super) fn has_any(&self, client: u64) -> bool {
        self.of_client.range((client, 0)..=(client, u64::MAX)).next().is_some()
    }

    /// An unused one ends.
    pub(super) fn end_unused(&mut self, id: u64) -> Option<FileKey> {
        self.is_used(id);
        let open = self.forget(id)?;
        self.gone.push(id);
        Some(open.file)
    }

    pub(super) fn is_to_be_logged(&mut self, id: u64) {
        if !self.logged.contains_key(&id) {
            self.unlogged.entry(id).or_insert(false);
        }
    }

    /// A delegation that stands in the log has ended: its holder's opens of the file go into the log with that.
    pub(super) fn is_urgent(&mut self, id: u64) {
        if self.unlogged.contains_key(&id) {
            self.urgent.push(id);
        }
    }

    /// Opens that were there at the last tick and do not stand in the log, so many. Notes that a tick has passed for the others.
    pub(super) fn take_unlogged(&mut self, most: usize) -> Vec<u64> {
        let (next, all) = (self.next_unlogged, &self.unlogged);
        let in_turn = all.range(next..).chain(all.range(..next));
        let old: Vec<u64> = in_turn.filter(|(_, old)| **old).map(|(id, _)| *id).take(most).collect();
        self.next_unlogged = old.last().map_or(next, |id| id.wrapping_add(1));
        self.unlogged.values_mut().for_each(|old| *old = true);
        old
    }

    pub(super) fn gone(&self) -> usize {
        self.gone.len()
    }

    pub(super) fn take_gone(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.gone)
    }

    pub fn is_orphan(&self, file: &FileKey) -> bool {
        self.orphans.contains(file)
    }

    pub(super) fn orphans(&self) -> impl Iterator<Item = &FileKey> {
        self.orphans.iter()
    }

    /// How many files are kept without a name.
    pub fn orphans_len(&self) -> usize {
        self.orphans.len()
    }

    pub(super) fn is_kept(&mut self, file: FileKey) {
        self.orphans.insert(file);
    }

    pub(super) fn is_not_kept(&mut self, file: &FileKey) {
        self.orphans.remove(file);
    }

    /// Nobody has this orphan open any more.
    pub(super) fn release(&mut self, file: &FileKey) {
        if let Some(file) = self.orphans.take(file) {
            self.released.push(file);
        }
    }

    pub fn any_released(&self) -> bool {
        !self.released.is_empty()
    }

    pub fn take_released(&mut self) -> Vec<FileKey> {
        std::mem::take(&mut self.released)
    }

    /// Takes this file out of what is to be removed, if it is there.
    pub fn take_released_file(&mut self, file: &FileKey) -> bool {
        let before = self.released.len();
        self.released.retain(|other| other != file);
        self.released.len() < before
    }

    /// The files that `which` selects are not served any more: nobody has them open. Orphans go when they are served again.
    pub(super) fn remove_files(&mut self, which: impl Fn(&FileKey) -> bool) {
        self.orphans.retain(|file| !which(file));
        self.released.retain(|file| !which(file));
        let ids: Vec<u64> = self.logged.iter().filter(|(_, o)| which(&o.file)).map(|(id, _)| *id).collect();
        for id in ids {
            self.end_unused(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_that_find_no_room_keep_no_others_out() {
        let mut p = Preserved::default();
        (0..5).for_each(|id| p.is_to_be_logged(id));
        assert!(p.take_unlogged(2).is_empty(), "no tick has passed");
        let turns: Vec<_> = (0..3).map(|_| p.take_unlogged(2)).collect();
        assert_eq!(turns, [[0, 1], [2, 3], [4, 0]]);
    }
}
