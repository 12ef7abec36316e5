//! Files that are removed while clients have them open, and outlast a restart of the server all the same (RFC 8881 section 18.16,
//! `OPEN4_RESULT_PRESERVE_UNLINKED`).
//!
//! A file that loses its last name while it is open becomes an *orphan*: the volume keeps it. In the same transaction the log gets a note of each
//! open of it that it does not have yet. So after a restart it is known who has the file open, whether they use it or not; and when the last of them
//! closes it or goes, the file goes.
//!
//! Clients unlink what they have open only if they were told that they may. Linux remembers that with the file for as long as it knows the file, and not with
//! the open. So it is not enough that the log knows an open from the removal on: an open is in no log for a while, and the server may die in between and
//! not know it when the file is removed. Therefore:
//!
//! - A client is told so only where the open goes into the log with its OPEN, at no further flush: where the OPEN makes the file, or changes something else.
//! - All other opens that are there for longer than a tick go into the log as well, and those under a delegation when that ends.
//!
//! After a restart an open that stands in the log is *unused* until its client uses it. It is in nobody's way, but an orphan stays for its sake.
//!
//! Clients of NFSv4.0, and others that have to reclaim, do so in the grace period, until whose end all orphans stay.

use super::clock::Millis;
use super::ids::FileKey;
use super::nlm::hosts::is_nlm;
use super::notes::{Note, OpenNote, Stamped};
use super::opens::{Files, number};
use super::preserved::LoggedOpen;
use super::tables::State;
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::Stateid;

impl<F> Files<F> {
    /// Whether a client has the file open and may want it to outlast a restart.
    fn is_held(&self, file: &FileKey) -> bool {
        let of_client = |id: &u64| self.opens.get(id).is_some_and(|o| !is_nlm(o.client));
        self.files.get(file).is_some_and(|f| f.opens.iter().any(of_client))
            || !self.preserved.unused_of(file).is_empty()
    }

    /// An open of this file has ended.
    pub(super) fn let_go(&mut self, file: &FileKey) {
        if self.preserved.is_orphan(file) && !self.preserved.may_be_reclaimed && !self.is_held(file) {
            self.preserved.release(file);
        }
    }

    /// Notes that an open has ended, after it was removed.
    pub(super) fn open_ended(&mut self, id: u64, file: &FileKey) {
        self.preserved.closed(id);
        self.let_go(file);
    }

    /// A delegation that the log knew has ended.
    pub(super) fn delegation_ended(&mut self, client: u64, file: &FileKey) {
        let Some(f) = self.files.get(file) else { return };
        for id in &f.opens {
            if self.opens.get(id).is_some_and(|o| o.client == client) {
                self.preserved.is_urgent(*id);
            }
        }
    }

    /// An unused open ends: its client closes it.
    pub(super) fn close_unused(&mut self, id: u64) {
        if let Some(file) = self.preserved.end_unused(id) {
            self.let_go(&file);
        }
    }

    /// Whether there is a place for one more file without a name. Each open and each delegation that was promised one may need it.
    fn has_place(&self) -> bool {
        self.preserved.places() + self.delegations.logged.len() < limits::ORPHANS_MAX
    }

    /// Whether the log has this delegation, and the file outlasts its last name.
    pub fn delegation_is_promised(&self, stateid: &Stateid) -> bool {
        let open = self.opens.get(&number(stateid));
        self.has_place() && open.and_then(|o| o.delegation.as_ref()).is_some_and(|d| d.logged.is_some())
    }

    /// Whether one of these clients has the file open and was promised that it outlasts its last name.
    fn was_promised_to(&self, file: &FileKey, these: impl Fn(u64) -> bool) -> bool {
        let promised =
            |id: &u64| self.preserved.logged(*id).is_some_and(|open| open.promised && these(open.client));
        let delegated = |id: &u64| {
            let open = self.opens.get(id).filter(|open| these(open.client));
            open.and_then(|o| o.delegation.as_ref()).is_some_and(|d| d.logged.is_some())
        };
        self.preserved.unused_of(file).iter().any(promised)
            || self.files.get(file).is_some_and(|f| f.opens.iter().any(|id| promised(id) || delegated(id)))
    }

    /// An owner opens the file anew: what it had before the restart ends.
    pub(super) fn end_unused_of_owner(&mut self, client: u64, owner: &Bytes, file: &FileKey) {
        // As in `replace_former`.
        let orphan = self.preserved.is_orphan(file);
        let same = |o: &LoggedOpen| o.owner == *owner || (o.owner.is_empty() && !orphan);
        let ends = |id: &&u64| self.preserved.logged(**id).is_some_and(|o| o.client == client && same(o));
        let ids: Vec<u64> = self.preserved.unused_of(file).iter().filter(ends).copied().collect();
        for id in ids {
            self.preserved.end_unused(id);
        }
    }

    /// The client goes: its unused opens end.
    pub(super) fn end_unused_of_client(&mut self, client: u64) {
        for id in self.preserved.ids_of(client) {
            self.close_unused(id);
        }
    }

    /// The owner of an unused open that its client is about to use. `None` if the log does not know it; an error if the open is somebody else's.
    pub(super) fn unused_owner(&self, id: u64, client: u64, file: &FileKey) -> Result<Option<Bytes>, ()> {
        match self.preserved.logged(id) {
            None => Ok(None),
            Some(open) if open.client == client && open.file == *file => {
                Ok((!open.owner.is_empty()).then(|| open.owner.clone()))
            }
            Some(_) => Err(()),
        }
    }

    pub(super) fn open_note(&self, id: u64) -> Option<Stamped> {
        let LoggedOpen { v, mark, client, owner, file, promised, .. } = self.preserved.logged(id)?.clone();
        let (owner, file) = (owner.to_vec(), file.to_vec());
        Some(Stamped { v, note: Note::Open(OpenNote { id, mark, client, owner, file, promised }) })
    }

    /// Has the log know an open under this version. `None` if it has no room.
    fn log_open(&mut self, id: u64, v: u64, most: u64) -> Option<Stamped> {
        if self.preserved.logged(id).is_none() {
            let open = self.opens.get(&id).filter(|o| o.delegation.is_none())?;
            let owner = match &open.former {
                Some(former) => former.owner.clone().unwrap_or_default(),
                None => open.owner.clone(),
            };
            let bytes = limits::OPEN_NOTE_BYTES + (owner.len() + open.file.len()) as u64;
            let (mark, client, file) = (open.mark, open.client, open.file.clone());
            if !self.preserved.has_room(client, bytes, most) {
                return None;
            }
            let logged = LoggedOpen { v, mark, client, owner, file, bytes, promised: false };
            self.preserved.log(id, logged);
        }
        self.open_note(id)
    }
}

impl<F> State<F> {
    /// The client of an open, if it is one whose opens go on after a restart.
    fn goes_into_log(&self, id: u64) -> bool {
        let client = self.files.opens.get(&id).map(|o| o.client);
        let of = client.and_then(|id| self.clients.get(id));
        self.bounds.open_bytes > 0 && of.is_some_and(|c| c.v40.is_none())
    }

    fn log_open(&mut self, id: u64) -> Option<Stamped> {
        if !self.goes_into_log(id) {
            return None;
        }
        let v = self.next_version();
        self.files.log_open(id, v, self.bounds.open_bytes)
    }

    /// Has an open stand in the log, in the transaction of its OPEN, so that its client may be told that the file outlasts its last name. `None` if the log
    /// has its fill of them, or if there may be no further file without a name.
    pub fn promise_open(&mut self, stateid: &Stateid) -> Option<Stamped> {
        let id = number(stateid);
        if self.goes_into_log(id) {
            // If there is no room now, there may be later.
            self.files.preserved.is_to_be_logged(id);
        }
        if !self.files.preserved.logged(id).is_some_and(|open| open.promised) && !self.files.has_place() {
            return None;
        }
        self.log_open(id)?;
        let v = self.next_version();
        self.files.preserved.promise(id, v);
        self.files.open_note(id)
    }

    /// After an OPEN that changes nothing: the open goes into the log later. Whether its client has been told already that the file outlasts its last name.
    pub fn is_promised(&mut self, stateid: &Stateid) -> bool {
        let id = number(stateid);
        if self.goes_into_log(id) {
            self.files.preserved.is_to_be_logged(id);
        }
        self.files.preserved.logged(id).is_some_and(|open| open.promised)
    }

    /// A file is about to lose its last name. If somebody has it open, it is an orphan from now on, and these notes say who has. `None`: nobody has, or
    /// there are too many orphans, and nobody was promised this one.
    pub fn keep_unlinked(&mut self, file: &FileKey) -> Option<Vec<Stamped>> {
        if !self.files.is_held(file)
            || !(self.files.has_place() || self.files.was_promised_to(file, |_| true))
        {
            return None;
        }
        self.files.preserved.is_kept(file.clone());
        let ids = self.files.files.get(file).map(|f| f.opens.clone()).unwrap_or_default();
        let mut notes = Vec::new();
        for id in ids {
            match self.files.opens.get(&id).map(|o| o.delegation.as_ref().map(|d| d.logged)) {
                Some(Some(None)) => notes.extend(self.note_delegation(id)),
                Some(None) if self.files.preserved.logged(id).is_none() => notes.extend(self.log_open(id)),
                _ => {}
            }
        }
        Some(notes)
    }

    /// Whether somebody whose lease runs was promised that the file outlasts its last name. For others nothing is refused to those who are there.
    pub fn was_promised_to_the_living(&self, now: Millis, file: &FileKey) -> bool {
        self.files.was_promised_to(file, |client| !self.lapsed(client, now))
    }

    /// The volume has not kept it.
    pub fn is_not_kept(&mut self, file: &FileKey) {
        self.files.preserved.is_not_kept(file);
    }

    /// Orphans of a volume that is served from now on.
    pub fn has_orphans(&mut self, files: impl IntoIterator<Item = FileKey>) {
        files.into_iter().for_each(|file| self.files.preserved.is_kept(file));
    }

    /// Whether an orphan may be removed that was released. If not, it is one again.
    pub fn may_remove(&mut self, file: &FileKey) -> bool {
        let free = !self.files.preserved.may_be_reclaimed && !self.files.is_held(file);
        if !free {
            self.files.preserved.is_kept(file.clone());
        }
        free
    }

    /// An orphan could not be removed: the next tick tries again.
    pub fn is_still_there(&mut self, file: FileKey) {
        self.files.preserved.is_kept(file);
    }

    /// Releases the orphans that nobody has open, and notes opens that are there for longer than a tick.
    pub(super) fn tick_unlinked(&mut self, now: Millis) -> Vec<Stamped> {
        self.files.preserved.may_be_reclaimed = self.grace.active(now);
        let orphans: Vec<FileKey> = self.files.preserved.orphans().cloned().collect();
        orphans.iter().for_each(|file| self.files.let_go(file));
        let unlogged = self.files.preserved.take_unlogged(limits::OPENS_NOTED_AT_ONCE);
        unlogged.into_iter().filter_map(|id| self.log_open(id)).collect()
    }

    /// Notes that go into the log with whatever goes there next: opens that have ended, and opens whose delegation has.
    pub(super) fn take_gone_opens(&mut self) -> Vec<Stamped> {
        let mut notes = Vec::new();
        for id in std::mem::take(&mut self.files.preserved.urgent) {
            notes.extend(self.log_open(id));
        }
        for id in self.files.preserved.take_gone() {
            notes.push(Stamped { v: self.next_version(), note: Note::OpenGone(id) });
        }
        notes
    }

    /// Puts back what the log kept of opens, of clients that need not reclaim.
    pub(super) fn restore_opens(&mut self, notes: impl IntoIterator<Item = (u64, OpenNote)>) {
        for (v, note) in notes {
            if !self.goes_on(note.client) || note.file.is_empty() {
                continue;
            }
            let bytes = limits::OPEN_NOTE_BYTES + (note.owner.len() + note.file.len()) as u64;
            let OpenNote { id, mark, client, owner, file, promised } = note;
            let (owner, file) = (Bytes::from(owner), FileKey::from(file));
            self.files.preserved.log(id, LoggedOpen { v, mark, client, owner, file, bytes, promised });
            // Its locks may have brought it back already.
            if !self.files.opens.contains_key(&id) {
                self.files.preserved.is_unused(id);
            }
        }
    }
}
