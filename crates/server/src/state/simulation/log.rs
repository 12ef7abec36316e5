//! The log as the state sees it: groups of notes in an order. A power cut leaves a prefix that has all that was flushed.

use super::super::notes::Stamped;
use super::rights::Names;

/// What one transaction has written.
#[derive(Debug)]
pub(super) struct Group {
    id: u64,
    notes: Vec<Stamped>,
    /// The names after it, if it has changed any.
    names: Option<Names>,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    groups: Vec<Group>,
    /// So many of these are on the device.
    flushed: usize,
    /// Written by requests that have let go of the state and have not joined the log yet.
    late: Vec<Group>,
    last: u64,
    /// The names before all groups.
    names: Names,
}

impl Log {
    /// Appends a transaction; returns its number.
    pub(super) fn append(&mut self, notes: Vec<Stamped>, names: Option<Names>) -> u64 {
        self.last += 1;
        self.groups.push(Group { id: self.last, notes, names });
        self.last
    }

    /// The same for one that joins the log later: others may come first.
    pub(super) fn append_late(&mut self, notes: Vec<Stamped>) -> u64 {
        self.last += 1;
        self.late.push(Group { id: self.last, notes, names: None });
        self.last
    }

    pub(super) fn late(&self) -> usize {
        self.late.len()
    }

    pub(super) fn arrives(&mut self, at: usize) {
        if at < self.late.len() {
            let group = self.late.remove(at);
            self.groups.push(group);
        }
    }

    pub(super) fn flush(&mut self) {
        self.flushed = self.groups.len();
    }

    pub(super) fn is_durable(&self, id: u64) -> bool {
        let waits = self.groups.iter().skip(self.flushed).chain(&self.late);
        !waits.into_iter().any(|group| group.id == id)
    }

    /// How many groups a power cut may take.
    pub(super) fn at_risk(&self) -> usize {
        self.groups.len() - self.flushed
    }

    /// What is there after a power cut that takes the last groups.
    pub(super) fn cut(&mut self, takes: usize) -> (Vec<Stamped>, Names) {
        self.late.clear();
        self.groups.truncate(self.groups.len() - takes.min(self.at_risk()));
        let names = self.groups.iter().rev().find_map(|group| group.names).unwrap_or(self.names);
        (self.groups.iter().flat_map(|group| group.notes.iter().cloned()).collect(), names)
    }

    /// A snapshot that began with this group is complete and on the device: nothing before it is needed.
    pub(super) fn forget_before(&mut self, id: u64) {
        let before = self.groups.iter().take_while(|group| group.id < id).count();
        for group in self.groups.drain(..before) {
            self.names = group.names.unwrap_or(self.names);
        }
        self.flushed -= before;
    }

    /// Begins anew with this, which is on the device.
    pub(super) fn begins_with(&mut self, notes: Vec<Stamped>, names: Names) {
        *self = Log { last: self.last, names, ..Log::default() };
        self.append(notes, None);
        self.flush();
    }
}
