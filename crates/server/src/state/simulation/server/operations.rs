//! What each operation does (`v4/`).

use super::super::model::Model;
use super::super::op::{Done, Op};
use super::super::rights::{DIRECTORY, Effect, File};
use super::{Server, Work, attrs, key, owner};
use crate::state::delegations::Right as Given;
use crate::state::locks::Locker;
use crate::state::opens::{READ, Share, WRITE};
use crate::state::ranges::Span;
use crate::state::removals::Removals;
use landfast_nfs::v4::{LockType, NfsStat, Stateid};

impl Server {
    /// Something is done. Without an open it may be done to files of a client that has to reclaim its delegations, in the grace period.
    pub(super) fn effect(&self, m: &mut Model, w: &Work, file: File, effect: Effect, what: &str) {
        let without_open = !matches!(w.call.op, Op::Read { stateid, .. } | Op::Write { stateid, .. } if stateid != Stateid::ANONYMOUS);
        let dead = |id: &u64| self.st.clients.get(*id).is_some_and(|c| c.needs_reclaim);
        let excused: Vec<bool> = m.ids.iter().map(|id| without_open && dead(id)).collect();
        let by = w.by.client.map(|_| w.by.who);
        m.effect(by, file, effect, what, |who| excused.get(who).is_some_and(|dead| *dead));
    }

    /// Share reservations are for NFSv4: NFSv3 does not look at them.
    pub(super) fn reads_or_writes(&self, m: &mut Model, w: &Work, file: File, want: Share) {
        if w.by.client.is_some() {
            m.reads_or_writes(w.by.who, file, want, (want == READ).then_some(w.call.print));
        }
    }

    /// What an operation does.
    pub(super) fn second(&mut self, m: &mut Model, w: &mut Work) -> Result<Done, NfsStat> {
        let client = w.by.client.unwrap_or(0);
        match w.call.op.clone() {
            Op::Nothing => Ok(Done::of(NfsStat::NFS4_OK)),
            Op::Read { file, stateid } => {
                self.opened(w, file, &stateid, READ)?;
                m.used(w.by.who, &stateid, READ);
                self.effect(m, w, file, Effect::Reads, "a READ");
                self.reads_or_writes(m, w, file, READ);
                Ok(Done::with(stateid, file))
            }
            Op::Write { file, stateid } => {
                self.opened(w, file, &stateid, WRITE)?;
                m.used(w.by.who, &stateid, WRITE);
                self.effect(m, w, file, Effect::Changes, "a WRITE");
                self.reads_or_writes(m, w, file, WRITE);
                self.writes(w, file);
                Ok(Done::with(stateid, file))
            }
            Op::SetAttributes { file } => {
                self.effect(m, w, file, Effect::Changes, "a SETATTR");
                self.change += 2;
                w.modified = true;
                Ok(Done::with(Stateid::ANONYMOUS, file))
            }
            Op::Look { file } => {
                if file == DIRECTORY {
                    self.effect(m, w, file, Effect::Reads, "a GETATTR");
                }
                let mut shown = attrs(self.size(file), self.change);
                if let Some(told) = w.told {
                    told.show_in(&mut shown);
                    m.figures.told += 1;
                }
                if let Some(had) = w.had.filter(|had| w.told.is_some() && shown.size < *had) {
                    let size = shown.size;
                    m.fails(format!("a GETATTR of file {file} is told {size} bytes where its holder had {had} before it asked"));
                }
                Ok(Done::with(Stateid::ANONYMOUS, file))
            }
            Op::TestLock { file, owner: by, exclusive, range } => {
                let span = Span::of(range.0, range.1).ok_or(NfsStat::NFS4ERR_INVAL)?;
                if self.st.must_wait_for_grace(client, self.now) {
                    return Err(NfsStat::NFS4ERR_GRACE);
                }
                let done = loop {
                    match self.st.files.lock_test(client, &key(file), &owner(by), exclusive, span) {
                        Some(d) if d.client != client && self.st.lapsed(d.client, self.now) => {
                            w.notes.extend(self.removes(d.client));
                        }
                        Some(_) => break Err(NfsStat::NFS4ERR_DENIED),
                        None => break Ok(Done::with(Stateid::ANONYMOUS, file)),
                    }
                };
                w.notes.extend(self.st.removals.unsettled());
                done
            }
            Op::Remove { name } => {
                self.must_not_wait(w)?;
                let file = self.at(name).ok_or(NfsStat::NFS4ERR_NOENT)?;
                self.effect(m, w, file, Effect::Changes, "a REMOVE");
                self.renames(m, w, [(name, None), (name, None)]);
                Ok(Done::with(Stateid::ANONYMOUS, file))
            }
            Op::Rename { from, to } => {
                self.must_not_wait(w)?;
                let file = self.at(from).ok_or(NfsStat::NFS4ERR_NOENT)?;
                self.effect(m, w, file, Effect::Changes, "a RENAME");
                if let Some(over) = self.at(to).filter(|over| *over != file) {
                    self.effect(m, w, over, Effect::Changes, "a RENAME over");
                }
                if from != to {
                    self.renames(m, w, [(from, None), (to, Some(file))]);
                }
                Ok(Done::with(Stateid::ANONYMOUS, file))
            }
            Op::Open { name, owner, access, deny, instead, .. } => match w.made {
                Some(file) => {
                    let before = w.waits.len();
                    // The OPEN must not fail any more: it has made the file.
                    let beside = self.recalls_from(w, file);
                    w.waits.truncate(before);
                    w.notes.extend(self.st.log_beside(&key(file), w.by.client));
                    self.opens(w, file, owner, access, deny, Some(instead), false)
                        .map(|done| Done { beside, ..done })
                }
                None => {
                    let file = self.at(name).ok_or(NfsStat::NFS4ERR_NOENT)?;
                    self.opens(w, file, owner, access, deny, Some(instead), false)
                }
            },
            Op::OpenFile { file, owner, access, deny, instead, by } => {
                self.opens(w, file, owner, access, deny, by.is_none().then_some(instead), false)
            }
            Op::Reclaim { file, owner, access, deny } => self.opens(w, file, owner, access, deny, None, true),
            Op::Downgrade { file, stateid, access, deny } => {
                let (now, of) = (self.now, key(file));
                let usable = self.st.may_use_in_grace(now, client, &of, &stateid, access);
                let adopted = usable.and_then(|()| self.st.adopt(now, client, &of, &stateid, access));
                adopted.map_err(|_| NfsStat::NFS4ERR_DELAY)?;
                let new = self.st.files.downgrade(client, &key(file), &stateid, access, deny)?;
                Ok(Done::with(new, file))
            }
            Op::Close { file, stateid } => {
                if !self.st.close_unused_former(client, &key(file), &stateid) {
                    let open = self.st.files.find_open(client, &key(file), &stateid)?;
                    let releases = self.st.files.has_logged_locks(open);
                    self.st.files.close(client, &key(file), &stateid)?;
                    if releases {
                        let gone = self.st.take_gone();
                        w.notes.extend(gone);
                    }
                }
                Ok(Done::with(Stateid::INVALID, file))
            }
            Op::Lock { file, open, owner: by, known, exclusive, range, reclaim } => {
                let span = Span::of(range.0, range.1).ok_or(NfsStat::NFS4ERR_INVAL)?;
                let kind = if exclusive { LockType::Write } else { LockType::Read };
                let locker = match known {
                    Some(known) => Locker::Known(known),
                    None => Locker::New { open, owner: owner(by) },
                };
                self.locks(w, file, &locker, kind, span, reclaim)
            }
            Op::Unlock { file, stateid, range } => {
                let span = Span::of(range.0, range.1).ok_or(NfsStat::NFS4ERR_INVAL)?;
                let new = self.st.files.unlock(client, &key(file), &stateid, span)?;
                let notes = self.st.log_locks(&new);
                w.notes.extend(notes);
                Ok(Done::with(new, file))
            }
            Op::Return { file, stateid } => {
                self.st.files.return_delegation(client, &key(file), &stateid)?;
                if self.st.many_gone() {
                    let gone = self.st.take_gone();
                    w.notes.extend(gone);
                }
                Ok(Done::with(stateid, file))
            }
            Op::Test { stateids } => {
                let each = |s: &Stateid| self.st.files.find(client, s).err().unwrap_or(NfsStat::NFS4_OK);
                Ok(Done { tests: stateids.iter().map(each).collect(), ..Done::of(NfsStat::NFS4_OK) })
            }
            Op::Free { stateid } => {
                let revoked = self.st.files.find(client, &stateid) == Err(NfsStat::NFS4ERR_DELEG_REVOKED);
                self.st.files.free(client, &stateid)?;
                if revoked {
                    let notes = self.st.note_client(client);
                    w.notes.extend(notes);
                }
                Ok(Done::with(stateid, DIRECTORY))
            }
            Op::Directory { write } => {
                if !self.st.has_room_for_directory(client) || self.st.must_wait_for_grace(client, self.now) {
                    return Err(NfsStat::NFS4ERR_DIRDELEG_UNAVAIL);
                }
                let whole = if write { self.gives_whole_directory(w).ok() } else { None };
                let (given, write) = match whole {
                    Some(given) => (given, true),
                    None => {
                        let by = self.may_delegate(w, DIRECTORY, Given::Names);
                        let given = by.and_then(|by| self.gives(w, DIRECTORY, Given::Names, by));
                        (given.map_err(|_| NfsStat::NFS4ERR_DIRDELEG_UNAVAIL)?, false)
                    }
                };
                let notes = self.st.is_opened_anew(client, &key(DIRECTORY));
                w.notes.extend(notes);
                Ok(Done { delegation: Some((given, write)), ..Done::with(given, DIRECTORY) })
            }
            Op::Complete => {
                let note = self.st.reclaim_complete(client)?;
                w.notes.extend(note);
                Ok(Done::of(NfsStat::NFS4_OK))
            }
        }
    }

    /// REMOVE and RENAME wait for the end of the grace period.
    pub(super) fn must_not_wait(&self, w: &Work) -> Result<(), NfsStat> {
        match w.by.client {
            Some(client) if self.st.must_wait_for_grace(client, self.now) => Err(NfsStat::NFS4ERR_GRACE),
            _ => Ok(()),
        }
    }

    pub(in super::super) fn size(&self, file: File) -> u64 {
        self.sizes.get(usize::from(file)).copied().unwrap_or(0)
    }

    pub(in super::super) fn grows(&mut self, file: File, to: u64) {
        if let Some(size) = self.sizes.get_mut(usize::from(file)) {
            *size = (*size).max(to);
        }
        self.change += 2;
    }

    pub(super) fn writes(&mut self, w: &mut Work, file: File) {
        self.grows(file, self.size(file) + 1);
        w.modified = true;
    }

    pub(super) fn renames(&mut self, m: &mut Model, w: &mut Work, changes: [(usize, Option<File>); 2]) {
        for (name, file) in changes {
            if let Some(place) = self.names.get_mut(name) {
                *place = file;
            }
        }
        (w.modified, w.renamed) = (true, true);
        self.effect(m, w, DIRECTORY, Effect::Renames, "a change of names");
    }

    pub(super) fn opened(
        &mut self,
        w: &mut Work,
        file: File,
        stateid: &Stateid,
        want: Share,
    ) -> Result<(), NfsStat> {
        let Some(client) = w.by.client else { return Ok(()) };
        if *stateid == Stateid::ANONYMOUS {
            if self.st.grace.active(self.now) {
                return Err(NfsStat::NFS4ERR_GRACE);
            }
            let done = loop {
                match self.st.files.check_anonymous(&key(file), want) {
                    Ok(()) => break Ok(()),
                    Err(who) if self.st.lapsed(who.client, self.now) => {
                        w.notes.extend(self.removes(who.client));
                    }
                    Err(_) => break Err(NfsStat::NFS4ERR_LOCKED),
                }
            };
            w.notes.extend(self.st.removals.unsettled());
            let waits = want == WRITE && Removals::among(&w.notes).next().is_some();
            return if waits { done.and(Err(NfsStat::NFS4ERR_DELAY)) } else { done };
        }
        self.st.may_use_in_grace(self.now, client, &key(file), stateid, want)?;
        self.st.adopt(self.now, client, &key(file), stateid, want)?;
        let done = loop {
            match self.st.files.io(client, &key(file), stateid, want) {
                Err(NfsStat::NFS4ERR_LOCKED) => {}
                done => break done.map(drop),
            }
            match self.st.files.check_denied_read(client, &key(file), stateid) {
                Err(who) if self.st.lapsed(who.client, self.now) => {
                    w.notes.extend(self.removes(who.client));
                }
                _ => break Err(NfsStat::NFS4ERR_LOCKED),
            }
        };
        w.notes.extend(self.st.removals.unsettled());
        done
    }
}
