//! Revocation of delegations (RFC 8881 section 10.2.1): of one that was not returned in time, in two halves around a note in the log; and of all on an export that is no
//! longer served.
//!
//! Invariant: the log has what is known of a revocation ([`super::revoked`]) before anybody goes on. So a client hears of each, also after a restart.

use super::bugs::{Bug, bug};
use super::ids::FileKey;
use super::notes::{Note, Stamped};
use super::opens::Files;
use super::revoked::Revoked;
use super::tables::State;

impl<F> Files<F> {
    /// Whether this file's delegation was revoked from the client, so that it may reclaim nothing of it.
    pub fn is_barred(&self, client: u64, file: &FileKey) -> bool {
        self.delegations.revocations.bars(client, file)
    }
}

impl<F> State<F> {
    /// The first half of a revocation (RFC 8881 section 10.2.1): what the log must have before anybody goes on. From now on the client
    /// may reclaim nothing of the file. A client from which very much was revoked loses everything.
    pub fn note_revocation(&mut self, id: u64) -> Vec<Stamped> {
        let Some(open) = self.files.opens.get(&id).filter(|o| o.delegation.is_some()) else {
            return Vec::new();
        };
        let (client, file, mark) = (open.client, open.file.clone(), open.mark);
        let bars = !open.delegation.as_ref().is_some_and(|d| d.right.is_of_directory());
        if !self.files.delegations.revocations.begins(client, file, Revoked { id, mark, bars }) {
            return self.note_expulsion(client);
        }
        if bug(Bug::RevocationUnlogged) {
            return Vec::new();
        }
        let mut notes = self.note_client(client);
        notes.push(Stamped { v: self.next_version(), note: Note::DelegationGone(id) });
        notes
    }

    /// The second half: the delegation ends, or its client goes. Returns what the log is to hear of what has come since the first.
    pub fn revoke(&mut self, client: u64, id: u64) -> Vec<Stamped> {
        let Some(open) = self.files.opens.get(&id).filter(|o| o.delegation.is_some()) else {
            // It came back while the log was being told.
            self.files.delegations.revocations.free(client, id);
            return self.note_client(client);
        };
        let (mark, file) = (open.mark, open.file.clone());
        self.files.delegations.counts.revoked += 1;
        if !self.files.delegations.revocations.has(client, &file) {
            return self.remove_client(client);
        }
        self.files.delegations.revocations.is_now_revoked(client, id, mark);
        let handles = self.files.drop_open(id);
        self.files.closed.extend(handles);
        Vec::new()
    }

    /// The export of these files is no longer served: all opens, locks and delegations on them end, the delegations as revoked, since who goes on in the belief that
    /// he is alone must hear of it. Returns what the shell had opened for them, and what the log must have before anybody is served the files again.
    pub fn remove_files(&mut self, which: impl Fn(&FileKey) -> bool) -> (Vec<F>, Vec<Stamped>) {
        let (handles, delegations) = self.files.remove_files(which);
        let mut holders: Vec<u64> = delegations.iter().map(|(client, ..)| *client).collect();
        for (client, id, mark) in delegations {
            self.files.delegations.revocations.is_now_revoked(client, id, mark);
        }
        holders.sort_unstable();
        holders.dedup();
        let mut notes = self.take_gone();
        for client in holders {
            notes.extend(self.note_client(client));
        }
        (handles, notes)
    }

    /// The client opens a file anew: if it was revoked from it, it may reclaim it again. Returns the notes for the log, also of locks that are under this
    /// open from now on.
    pub fn is_opened_anew(&mut self, client: u64, file: &FileKey) -> Vec<Stamped> {
        let mut notes = self.log_moved_locks();
        if self.files.delegations.revocations.is_opened_anew(client, file) {
            notes.extend(self.note_client(client));
        }
        notes
    }

    /// The client's notes in the log under a new version: something of them has changed.
    pub fn note_client(&mut self, client: u64) -> Vec<Stamped> {
        let v = self.next_version();
        if let Some(c) = self.clients.get_mut(client) {
            c.version = v;
        }
        self.client_notes(client)
    }

    /// A client's notes in the log.
    pub fn client_notes(&self, client: u64) -> Vec<Stamped> {
        let Some(c) = self.clients.get(client) else { return Vec::new() };
        let revoked = self.files.delegations.revocations.notes(client);
        let went_on = c.went_on.then_some(Note::WentOn(client));
        let missed_grace = c.missed_grace.then_some(Note::MissedGrace(client));
        let others = revoked.chain(went_on).chain(missed_grace);
        c.notes().into_iter().chain(others.map(|note| Stamped { v: c.version, note })).collect()
    }
}
