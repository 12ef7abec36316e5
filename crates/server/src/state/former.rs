//! What former instances of the server gave to clients that go on after a restart: byte-range locks, which stand in the log, and opens, which
//! do not.
//!
//! A lock state has a note, written in the transaction of each LOCK and LOCKU; so a restart is not felt by who holds a lock, and nobody else gets it.
//!
//! An open without locks that denies nothing is in nobody's way, so nothing is lost if the server does not know it for a while. Its client goes on to
//! use its stateid, which says who gave it: a former instance. From then on the server knows the open again, with the access that was
//! used. It is a *former* open. What it does not know of one is the owner, unless a lock's note names it, and the sequence number. So an OPEN by
//! its owner gets another stateid, and the former open ends: if it was another owner's, that one's next use brings it back.
//!
//! This is only for a client whose record in the log says that it holds nothing else ([`super::clients::Client::holds`]): no
//! delegation, lock or denying open that the log does not know. Any other client reclaims all that it holds, as RFC 8881 section 8.4.2.1 says.

use super::bugs::{Bug, bug};
use super::clock::Millis;
use super::delegations::Right;
use super::ids::FileKey;
use super::logged_locks::{Former, Logged, UNKNOWN_SEQID};
use super::notes::{LocksNote, Note, Stamped};
use super::opens::{
    Files, LockState, MARK, OPENED_FOR_WRITING, Open, READ, Share, WRITE, bump, mark, number,
};
use super::ranges::Span;
use super::tables::State;
use crate::limited::Limit;
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::{NfsStat, Stateid};

/// The name under which a former open is kept: longer than any that a client can send (RFC 8881 section 3.2), and not a delegation's.
fn owner_of_former(id: u64, mark: u32) -> Bytes {
    let mut name = vec![0; 1025];
    name.extend_from_slice(&mark.to_be_bytes());
    name.extend_from_slice(&id.to_be_bytes());
    name.into()
}

impl<F> Open<F> {
    fn former(
        client: u64,
        file: FileKey,
        (id, mark): (u64, u32),
        access: Share,
        owner: Option<Bytes>,
    ) -> Self {
        let name = owner_of_former(id, mark);
        let former = Some(Former { owner });
        Open { seqid: UNKNOWN_SEQID, access, former, ..Open::new(client, name, file, mark) }
    }

    /// OPEN_DOWNGRADE of a former open: which OPENs are in effect is not known, so the client's word counts.
    /// Errors: `INVAL` if it is to deny something; `BAD_STATEID` if it asks for more than is known of it, which another's share
    /// reservation keeps it from ([`State::adopt`] comes first).
    pub(super) fn downgrade_former(
        &mut self,
        id: u64,
        stateid: &Stateid,
        access: Share,
        deny: Share,
    ) -> Result<Stateid, NfsStat> {
        if deny != 0 {
            return Err(NfsStat::NFS4ERR_INVAL);
        }
        if access & !self.access != 0 {
            return Err(NfsStat::NFS4ERR_BAD_STATEID);
        }
        self.access = access;
        self.seqid = stateid.seqid;
        Ok(Files::<F>::marked(self.mark, id, bump(&mut self.seqid)))
    }
}

impl<F> Files<F> {
    /// Whether a former instance gave this stateid to the client, and this one knows nothing of it. A delegation that was there and has ended is no open that might come back.
    fn is_unknown_former(&self, client: u64, stateid: &Stateid) -> bool {
        let (mark, id) = (mark(stateid), number(stateid));
        mark.wrapping_sub(MARK) < self.mark.wrapping_sub(MARK)
            && !self.delegations.revocations.is_revoked(id, mark, client)
            && !self.delegations.ended_of_former.contains(&id)
            && !self.opens.contains_key(&id)
            && !self.locks.contains_key(&id)
    }

    /// Whether the instance before this one knew an open with all its access from the beginning: it gave it. Of an older one it may have known nothing, and
    /// have given a delegation or a share reservation to somebody who has not reclaimed it yet.
    fn was_known_before(&self, mark: u32) -> bool {
        mark == self.mark.wrapping_sub(1) || bug(Bug::OlderAdopted)
    }

    fn adopt(
        &mut self,
        client: u64,
        file: &FileKey,
        stateid: &Stateid,
        want: Share,
        grace: bool,
    ) -> Result<(), NfsStat> {
        if let Ok(id) = self.open_of(client, file, stateid) {
            let widens = |o: &&Open<F>| o.former.is_some() && o.access & want != want;
            let Some(mark) = self.opens.get(&id).filter(widens).map(|o| o.mark) else { return Ok(()) };
            if grace && !self.was_known_before(mark) {
                return Err(NfsStat::NFS4ERR_GRACE);
            }
            if self.check_share(file, want, 0).is_ok()
                && let Some(open) = self.opens.get_mut(&id)
            {
                open.access |= want;
            }
            return Ok(());
        }
        if !self.is_unknown_former(client, stateid) {
            return Ok(());
        }
        let (id, mark) = (number(stateid), mark(stateid));
        if grace && !self.was_known_before(mark) {
            return Err(NfsStat::NFS4ERR_GRACE);
        }
        let full = self.opens_of(client) >= self.limits[Limit::ClientOpens]
            || self.opens.len() >= self.limits[Limit::Opens];
        if full || self.check_share(file, want, 0).is_err() {
            return Ok(());
        }
        let Ok(owner) = self.unused_owner(id, client, file) else { return Ok(()) };
        self.preserved.is_used(id);
        self.enter_open(id, Open::former(client, file.clone(), (id, mark), want, owner));
        self.preserved.is_to_be_logged(id);
        Ok(())
    }

    /// An owner has opened a file anew, as `new`: its former open ends, and its locks are under the new one.
    pub(super) fn replace_former(&mut self, new: u64) {
        let Some(open) = self.opens.get(&new) else { return };
        let (client, owner, file) = (open.client, open.owner.clone(), open.file.clone());
        let of_file = self.files.get(&file).map(|f| f.opens.clone()).unwrap_or_default();
        // Without the former open it would go, before its client's next use brings that back.
        let orphan = self.preserved.is_orphan(&file);
        for id in of_file {
            let Some(Open { client: of, former: Some(former), lock_states, .. }) = self.opens.get_mut(&id)
            else {
                continue;
            };
            let same = former.owner.as_ref() == Some(&owner);
            let unknown = former.owner.is_none() && lock_states.is_empty() && !orphan;
            if *of != client || !(same || unknown) {
                continue;
            }
            let locks = std::mem::take(lock_states);
            for lock in &locks {
                if let Some(l) = self.locks.get_mut(lock) {
                    l.open = Some(new);
                    self.logged_locks.moved.extend(l.logged.is_some().then_some(*lock));
                }
            }
            self.opens.get_mut(&new).into_iter().for_each(|o| o.lock_states.extend(&locks));
            let handles = self.drop_open(id);
            self.closed.extend(handles);
        }
    }

    /// Whether there are locks under this open that the log has to forget before a CLOSE is answered.
    pub fn has_logged_locks(&self, open: u64) -> bool {
        let of_open = self.opens.get(&open).map(|o| (&o.lock_states, self.files.get(&o.file)));
        of_open.is_some_and(|(states, file)| {
            let held = |id: &u64| file.is_some_and(|f| f.ranges.holds(*id));
            states.iter().any(|id| held(id) && self.logged_locks.ids.contains(id))
        })
    }

    /// The note of a lock state that stands in the log.
    pub(super) fn locks_note(&self, id: u64) -> Option<Stamped> {
        let v = self.locks.get(&id)?.logged.as_ref()?.v;
        Some(Stamped { v, note: Note::Locks(self.note_of_locks(id)?) })
    }

    fn note_of_locks(&self, id: u64) -> Option<LocksNote> {
        let l = self.locks.get(&id)?;
        let open = l.open?;
        let o = self.opens.get(&open)?;
        let owner = match &o.former {
            Some(former) => former.owner.clone(),
            None => Some(o.owner.clone()),
        };
        let ranges = self.files.get(&l.file).map(|f| f.ranges.of(id)).unwrap_or_default();
        Some(LocksNote {
            id,
            mark: l.mark,
            client: l.client,
            owner: l.owner.to_vec(),
            file: l.file.to_vec(),
            seqid: l.seqid,
            open: (open, o.mark, owner.map(|name| name.to_vec()), o.access),
            ranges: ranges
                .into_iter()
                .map(|(span, exclusive)| (span.first(), span.last(), exclusive))
                .collect(),
        })
    }

    /// Has the log know these locks as they are now, under this version. `None` if it has no room for them; then it must forget what it knew. `settles`: the note is
    /// not lost where another is kept that says that the client holds nothing else.
    fn log_locks(&mut self, id: u64, v: u64, most: u64, settles: bool) -> Option<Stamped> {
        let locks = self.locks.get(&id)?;
        self.opens.get(&locks.open?)?;
        let ranges = self.files.get(&locks.file).map_or(0, |f| f.ranges.count_of(id));
        // Of very many ranges no note is made for each LOCK, only to find that it is too large.
        let small = LocksNote::bytes_of_ranges(ranges) <= limits::LOCKS_NOTE_BYTES_MAX;
        let note = if small { Some(self.note_of_locks(id)?) } else { None };
        let bytes = note.as_ref().map_or(u64::MAX, LocksNote::bytes);
        let locks = self.locks.get_mut(&id)?;
        let before = locks.logged.take();
        let was = before.as_ref().map_or(0, |logged| logged.bytes);
        let of_client = self.clients.get_mut(&locks.client)?;
        let logged = &mut self.logged_locks;
        let fits = bytes <= limits::LOCKS_NOTE_BYTES_MAX && logged.bytes - was + bytes <= most;
        let Some(note) = note.filter(|_| fits) else {
            let counts = before.is_some() && !logged.no_room.contains(&id);
            of_client.unlogged_locks += usize::from(counts);
            if let Some(before) = before {
                logged.dropped(id, &before);
            }
            logged.no_room.insert(id);
            return None;
        };
        logged.ids.insert(id);
        // Its client may have been told of it while the log had no room.
        let counted = if settles { logged.no_room.remove(&id) } else { logged.no_room.contains(&id) };
        let counts_no_more = if counted { settles } else { before.is_none() };
        of_client.unlogged_locks -= usize::from(counts_no_more);
        logged.bytes = logged.bytes - was + bytes;
        locks.logged = Some(Logged { v, bytes });
        Some(Stamped { v, note: Note::Locks(note) })
    }

    fn restore_locks(&mut self, v: u64, note: LocksNote) {
        let (client, file) = (note.client, FileKey::from(note.file.clone()));
        let (open, open_mark, owner, access) = note.open.clone();
        if self.locks.contains_key(&note.id) || self.opens.contains_key(&note.id) || note.file.is_empty() {
            return;
        }
        match self.opens.get(&open) {
            None => {
                let owner = owner.map(Bytes::from);
                // Without a locked range it may have been closed, which waits for no flush then. It is in nobody's way until it is used, as others are that the
                // log does not know.
                let access = if note.ranges.is_empty() { 0 } else { access };
                self.enter_open(open, Open::former(client, file.clone(), (open, open_mark), access, owner));
                // Unless the log has a note of it as well, which comes next.
                self.preserved.is_to_be_logged(open);
            }
            Some(known) if known.client == client && known.file == file && known.former.is_some() => {
                if !note.ranges.is_empty()
                    && let Some(known) = self.opens.get_mut(&open)
                {
                    known.access |= access;
                }
            }
            Some(_) => return,
        }
        let logged = Logged { v, bytes: note.bytes() };
        self.logged_locks.bytes += logged.bytes;
        self.logged_locks.ids.insert(note.id);
        let state = LockState {
            client,
            owner: Bytes::from(note.owner),
            file: file.clone(),
            open: Some(open),
            seqid: note.seqid,
            mark: note.mark,
            logged: Some(logged),
        };
        self.enter_lock_state(note.id, state);
        for (first, last, exclusive) in note.ranges {
            let Some(span) = Span::of(first, last) else { continue };
            self.restore_range(note.id, &file, span, exclusive);
        }
    }

    /// Locks what others have not locked by later notes. Where theirs are shared and this one is exclusive, this owner had released those bytes or made its lock of them
    /// a shared one, and waits for the answer: it is shared.
    fn restore_range(&mut self, id: u64, file: &FileKey, span: Span, exclusive: bool) {
        let mut rest = Some(span);
        while let Some(span) = rest {
            let ranges = self.files.get(file).map(|f| &f.ranges);
            let Some(other) = ranges.and_then(|r| r.conflict(&span, exclusive, Some(id))) else {
                return self.change_ranges(id, span, Some(exclusive));
            };
            let (first, last) = (span.first(), span.last());
            let (from, to) = (other.span.first().max(first), other.span.last().min(last));
            if from > first
                && let Some(before) = Span::of(first, from - 1)
            {
                self.change_ranges(id, before, Some(exclusive));
            }
            if !other.exclusive
                && let Some(beside) = Span::of(from, to)
            {
                self.change_ranges(id, beside, Some(false));
            }
            rest = if to < last { Span::of(to + 1, last) } else { None };
        }
    }
}

impl<F> State<F> {
    /// Before a stateid is used for `want`: if it is a former open's, or of locks under one, the open is known from now on.
    /// Errors: `GRACE` while a client may reclaim what the instance before this one has given to it without a look at this open.
    pub fn adopt(
        &mut self,
        now: Millis,
        client: u64,
        file: &FileKey,
        stateid: &Stateid,
        want: Share,
    ) -> Result<(), NfsStat> {
        let of_this_instance = mark(stateid) == self.files.mark;
        if of_this_instance && !self.files.locks.contains_key(&number(stateid)) || !self.goes_on(client) {
            return Ok(());
        }
        self.files.adopt(client, file, stateid, want, self.grace.active(now))
    }

    /// Before READ or WRITE by an open's stateid in a grace period: others may have to reclaim what they were given without a look at this open, or what
    /// this open has no right to be used against.
    /// Errors: `GRACE` if the last instance may not have known an open that the client has reclaimed, or the open may be beside a delegation; for reading by an open that is for writing only, which another's
    /// share reservation may deny (RFC 8881 sections 8.4.2.1, 9.1.2).
    pub fn may_use_in_grace(
        &self,
        now: Millis,
        client: u64,
        file: &FileKey,
        stateid: &Stateid,
        want: Share,
    ) -> Result<(), NfsStat> {
        if !self.grace.waits_for_others(client, now) {
            return Ok(());
        }
        let reads_by = |open: Option<u64>, id: u64| match open.and_then(|id| self.files.opens.get(&id)) {
            Some(open) if open.former.is_none() => open.access & READ == 0,
            Some(open) => open.access & READ == 0 && id & OPENED_FOR_WRITING != 0,
            None => id & OPENED_FOR_WRITING != 0,
        };
        let open = self.files.open_of(client, file, stateid).ok();
        let by_writer = want & READ != 0 && reads_by(open, open.unwrap_or(number(stateid)));
        let went_on = self.clients.get(client).is_some_and(|c| c.went_on);
        let reclaimed = mark(stateid) == self.files.mark && went_on && !self.goes_on(client);
        let in_the_way = |(holder, right): &(u64, Right)| {
            *holder != client && (right.excludes_others() || want & WRITE != 0)
        };
        if self.files.unreclaimed.get(file).is_some_and(in_the_way) {
            return Err(NfsStat::NFS4ERR_GRACE);
        }
        let waits = by_writer && !bug(Bug::DeniedReadInGrace) || reclaimed;
        if waits { Err(NfsStat::NFS4ERR_GRACE) } else { Ok(()) }
    }

    /// CLOSE of a former open that was not used since the restart. Returns whether the stateid is one.
    pub fn close_unused_former(&mut self, client: u64, file: &FileKey, stateid: &Stateid) -> bool {
        if !self.is_unused_former(client, stateid) {
            return false;
        }
        let id = number(stateid);
        if self.files.unused_owner(id, client, file).is_ok() {
            self.files.close_unused(id);
        }
        true
    }

    pub(super) fn is_unused_former(&self, client: u64, stateid: &Stateid) -> bool {
        self.goes_on(client) && self.files.is_unknown_former(client, stateid)
    }

    /// Whether the client goes on with what a former instance gave to it.
    pub(super) fn goes_on(&self, client: u64) -> bool {
        self.clients.get(client).is_some_and(|c| c.restored && !c.needs_reclaim && c.v40.is_none())
    }

    /// Whether there may be opens that only their clients know, so that nobody may be promised that there are none. A client that uses its open
    /// makes it known; for one lease after a restart it has time to.
    pub fn may_have_unknown_opens(&self, now: Millis) -> bool {
        now < self.unknown_opens_until
    }

    /// After a LOCK or LOCKU: the note to be written with it. If the log has no room for it, the client holds something that the log does not
    /// know, as after an OPEN that denies something.
    pub fn log_locks(&mut self, stateid: &Stateid) -> Vec<Stamped> {
        let id = number(stateid);
        let Some(locks) = self.files.locks.get(&id) else { return Vec::new() };
        if self.bounds.lock_bytes == 0 || self.clients.get(locks.client).is_none_or(|c| c.v40.is_some()) {
            return Vec::new();
        }
        let v = self.next_version();
        match self.files.log_locks(id, v, self.bounds.lock_bytes, false) {
            Some(_) if bug(Bug::LocksUnlogged) => Vec::new(),
            Some(note) => vec![note],
            None => self.take_gone(),
        }
    }

    /// After an OPEN that has taken the place of a former open: its CLOSE will end the locks that were under that one, so the log has to know before the
    /// OPEN is answered.
    pub(super) fn log_moved_locks(&mut self) -> Vec<Stamped> {
        let mut notes = Vec::new();
        for id in std::mem::take(&mut self.files.logged_locks.moved) {
            let v = self.next_version();
            match self.files.log_locks(id, v, self.bounds.lock_bytes, false) {
                Some(note) => notes.push(note),
                None => notes.extend(self.take_gone()),
            }
        }
        notes
    }

    /// Has locks stand in the log for which there was no room, so many at a time. Also those that a LOCK has noted meanwhile: what it has written may be lost.
    pub(super) fn log_more_locks(&mut self) -> Vec<Stamped> {
        let mut notes = Vec::new();
        let ids: Vec<u64> = self.files.logged_locks.no_room.iter().copied().collect();
        for id in ids.into_iter().take(limits::LOCKS_NOTED_AT_ONCE) {
            let v = self.next_version();
            notes.extend(self.files.log_locks(id, v, self.bounds.lock_bytes, true));
        }
        notes
    }

    /// Puts locks back that the log kept, of clients that need not reclaim. Where two have the same bytes, the later note counts: the other client
    /// had released them, and the log did not know yet.
    pub(super) fn restore_locks(&mut self, notes: impl IntoIterator<Item = (u64, LocksNote)>) {
        let mut notes: Vec<_> = notes.into_iter().filter(|(_, note)| self.goes_on(note.client)).collect();
        notes.sort_by_key(|(v, _)| std::cmp::Reverse(*v));
        for (v, note) in notes {
            self.files.restore_locks(v, note);
        }
    }

    /// What a client holds that the log does not know: after a restart it has to reclaim.
    pub fn unlogged_of(&self, client: u64) -> usize {
        if self.clients.get(client).is_none_or(|c| c.v40.is_some()) || self.bounds.lock_bytes == 0 {
            return self.files.opens_of(client);
        }
        let of_client = self.files.clients.get(&client);
        let others = of_client.map_or(0, |c| c.denying + c.narrowed + c.unlogged_locks);
        self.files.delegations.unsettled_of(client) + others
    }
}
