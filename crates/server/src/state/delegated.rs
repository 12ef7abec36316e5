//! Delegations of files and directories (RFC 8881 sections 10.2 to 10.4 and 10.9, RFC 9754): to whom one may be given, who is in whose way, recall.
//!
//! A delegation is kept as an open of an owner that no client can name. So it counts where opens count: in the limits, in what a
//! client holds, in what goes with its client. Its stateid is good for I/O as an open's is. It differs in what it means to others.
//! One of a directory is in everything like one for reading a file: others look, but whoever changes names or attributes recalls it. One for writing
//! a directory is like one for writing a file, but that nobody is asked: whoever looks recalls it ([`super::whole_directories`]).
//!
//! Invariants: while a client has a write delegation, nobody else has an open or a delegation of the file; while a client has a
//! read delegation, nobody else has an open for writing or a write delegation. One exception: an OPEN that has made its file is entered
//! beside a delegation that was given in between, and recalls it. A delegation is live until it was returned, its
//! client is gone, or it was revoked; a revoked one is known by its stateid until its client frees that.

use super::asked::Asking;
use super::bugs::{Bug, bug};
use super::clock::Millis;
use super::delegations::{Delegation, GivenTo, Recall, Right, Touch, owner};
use super::ids::FileKey;
use super::notes::{DelegationNote, Note, Stamped};
use super::opens::{BOTH, Files, Open, OpenOrLock, READ, Share, WRITE, number};
use super::share::is_over_its_share;
use super::tables::State;
use crate::limited::Limit;
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::flags::{WND4_CONTENTION, WND4_RESOURCE};
use landfast_nfs::v4::{NfsStat, Stateid};
use std::net::IpAddr;

impl Right {
    /// Of a file that was opened with this access.
    pub fn of_access(access: Share) -> Right {
        if access & WRITE != 0 { Right::Write } else { Right::Read }
    }

    /// The access of the open that the delegation is.
    pub(super) fn access(self) -> Share {
        if self.excludes_others() { BOTH } else { READ }
    }
}

impl<F> Open<F> {
    pub(super) fn conflicts(&self, by: Option<u64>, touch: Touch) -> bool {
        let is_in_the_way = match touch {
            Touch::Looks | Touch::Reads => self.access & WRITE != 0,
            Touch::Changes => self.access & WRITE != 0 || !bug(Bug::ReaderUnasked),
        };
        self.delegation.is_some() && Some(self.client) != by && is_in_the_way
    }
}

impl<F> Files<F> {
    pub(super) fn of_file(&self, file: &FileKey) -> impl Iterator<Item = (u64, &Open<F>)> {
        let ids = self.files.get(file).map(|f| f.opens.as_slice()).unwrap_or_default();
        ids.iter().filter_map(|id| Some((*id, self.opens.get(id)?)))
    }

    /// Whether this client may be given a delegation of the file. The client's own opens are in nobody's way.
    /// Errors: `WND4_*`, why not.
    pub fn may_delegate(&self, now: Millis, client: u64, file: &FileKey, right: Right) -> Result<(), u32> {
        if self.delegations.is_contended(now, file) {
            return Err(WND4_CONTENTION);
        }
        for (_, open) in self.of_file(file) {
            if bug(Bug::RivalUnseen) && open.delegation.is_none() {
                continue;
            }
            if open.client == client {
                if open.delegation.as_ref().is_some_and(|d| !d.may_become(right)) {
                    return Err(WND4_RESOURCE);
                }
            } else if right.excludes_others() || open.access & WRITE != 0 || open.deny != 0 {
                return Err(WND4_CONTENTION);
            }
        }
        // Also its own locks: there the server is asked in any case.
        if self.files.get(file).is_some_and(|f| f.ranges.len() > 0) || self.waiters.any_of_file(file) {
            return Err(WND4_CONTENTION);
        }
        let most_of_client = self.limits[Limit::ClientOpens];
        let most_of_client = most_of_client - most_of_client / limits::UNDELEGATED_OPENS_DIVISOR;
        if self.opens_of(client) >= most_of_client
            || self.opens.len() >= self.limits[Limit::Opens] / limits::DELEGATED_OPENS_DIVISOR
        {
            return Err(WND4_RESOURCE);
        }
        Ok(())
    }

    /// Gives a delegation; [`Files::may_delegate`] has allowed it.
    /// Errors: those of [`Files::open`].
    pub fn delegate(
        &mut self,
        client: u64,
        file: &FileKey,
        right: Right,
        (times, given_to, fh): (bool, GivenTo, Bytes),
        asking: Asking,
        (from, handle): (IpAddr, Option<F>),
    ) -> Result<Stateid, NfsStat> {
        let stateid = self.open_from(from, file, client, &owner(), right.access(), 0, handle)?;
        let id = number(&stateid);
        if let Some(open) = self.opens.get_mut(&id) {
            open.delegation = Some(Delegation {
                right,
                times,
                given_to,
                fh,
                logged: None,
                settled: false,
                undecided: false,
                asking,
                recalled: None,
            });
            self.delegations.given(client, right);
            self.delegations.grants.given(id);
            let counts = &mut self.delegations.counts;
            let count = match right {
                Right::Read => &mut counts.given_read,
                Right::Write => &mut counts.given_write,
                Right::Names => &mut counts.given_directory,
                Right::ChangeNames => &mut counts.given_directory_write,
            };
            *count += 1;
        }
        Ok(stateid)
    }

    /// The delegation of this stateid, with the access that it gives.
    /// Errors: those of [`Files::find_on`]; `BAD_STATEID` for an open's or a lock's.
    pub fn delegation(
        &self,
        client: u64,
        file: &FileKey,
        stateid: &Stateid,
    ) -> Result<(Share, &Delegation), NfsStat> {
        let OpenOrLock::Open(id) = self.find_on(client, file, stateid)? else {
            return Err(NfsStat::NFS4ERR_BAD_STATEID);
        };
        let open = self.opens.get(&id).ok_or(NfsStat::NFS4ERR_BAD_STATEID)?;
        open.delegation.as_ref().map(|d| (open.access, d)).ok_or(NfsStat::NFS4ERR_BAD_STATEID)
    }

    /// DELEGRETURN (RFC 8881 section 18.6). Returns what the shell had opened for it.
    /// Errors: those of [`Files::delegation`].
    pub fn return_delegation(
        &mut self,
        client: u64,
        file: &FileKey,
        stateid: &Stateid,
    ) -> Result<Vec<F>, NfsStat> {
        self.delegation(client, file, stateid)?;
        self.delegations.counts.returned += 1;
        Ok(self.drop_open(number(stateid)))
    }

    /// Takes back a delegation that nobody has heard of yet.
    pub fn withdraw_delegation(&mut self, client: u64, file: &FileKey, stateid: &Stateid) {
        if let Ok(handles) = self.return_delegation(client, file, stateid) {
            self.delegations.counts.returned -= 1;
            self.closed.extend(handles);
        }
    }

    /// A directory is no more: its delegations cannot be returned, as no operation gets to it.
    pub fn directory_is_gone(&mut self, dir: &FileKey) {
        let ids: Vec<u64> =
            self.of_file(dir).filter(|(_, open)| open.delegation.is_some()).map(|(id, _)| id).collect();
        for id in ids {
            self.delegation_is_unknown(id);
        }
    }

    /// A client that does not know a delegation when it is recalled has none: its reply was lost, or it has returned it.
    pub fn delegation_is_unknown(&mut self, id: u64) {
        if self.is_delegated(id) {
            self.delegations.counts.returned += 1;
            let handles = self.drop_open(id);
            self.closed.extend(handles);
        }
    }

    /// Delegations that stand in the log.
    pub(super) fn logged_delegations(&self) -> Vec<u64> {
        self.delegations.logged.iter().copied().collect()
    }

    /// The note of a delegation that stands in the log.
    pub(super) fn delegation_note(&self, id: u64) -> Option<Stamped> {
        let open = self.opens.get(&id)?;
        let d = open.delegation.as_ref()?;
        let by = d.given_to;
        let note = DelegationNote {
            id,
            mark: open.mark,
            client: open.client,
            file: open.file.to_vec(),
            fh: d.fh.to_vec(),
            right: if d.undecided { Right::Names } else { d.right },
            times: d.times,
            given_to: (by.session, by.slot, by.sequence, by.minor),
        };
        Some(Stamped { v: d.logged?, note: Note::Delegation(note) })
    }

    /// Whether this delegation is live.
    pub fn is_delegated(&self, id: u64) -> bool {
        self.opens.get(&id).is_some_and(|o| o.delegation.is_some())
    }

    /// Delegations of the file that are in the way, with their clients.
    fn delegations_of_others(&self, file: &FileKey, by: Option<u64>, touch: Touch) -> Vec<(u64, u64)> {
        self.of_file(file)
            .filter(|(_, open)| open.conflicts(by, touch))
            .map(|(id, open)| (id, open.client))
            .collect()
    }

    pub(super) fn recall(&mut self, now: Millis, id: u64) {
        let Some(open) = self.opens.get_mut(&id) else { return };
        let Some(d) = &mut open.delegation else { return };
        if d.recalled.is_none() {
            d.recalled = Some(now);
            let (client, file) = (open.client, open.file.clone());
            self.delegations.recall(id, client);
            self.delegations.counts.recalled += 1;
            self.delegations.contend(now, &file);
        }
    }

    /// The next recall to be sent to a client that `may` be sent one more.
    pub fn take_recall(&mut self, may: impl Fn(u64) -> bool) -> Option<Recall> {
        while let Some(id) = self.delegations.next_due(&may) {
            if let Some(open) = self.opens.get(&id)
                && let Some(d) = &open.delegation
            {
                return Some(Recall {
                    id,
                    client: open.client,
                    fh: d.fh.clone(),
                    stateid: Self::marked(open.mark, id, open.seqid),
                    given_to: d.given_to,
                });
            }
        }
        None
    }
}

impl<F> State<F> {
    /// Whether no delegation of another client is in the way of what `by` does to the file. Those in the way are recalled; a client whose
    /// lease is over is to lose all that it holds, which the log must have before anybody goes on.
    pub fn clear_delegations(&mut self, now: Millis, file: &FileKey, by: Option<u64>, touch: Touch) -> bool {
        self.recall_from_others(now, file, by, touch).is_empty()
    }

    /// [`State::clear_delegations`]: those that are in the way.
    pub fn recall_from_others(
        &mut self,
        now: Millis,
        file: &FileKey,
        by: Option<u64>,
        touch: Touch,
    ) -> Vec<u64> {
        let in_the_way = self.files.delegations_of_others(file, by, touch);
        for (id, client) in &in_the_way {
            if !self.expels(now, *client) {
                self.files.recall(now, *id);
            }
        }
        in_the_way.into_iter().map(|(id, _)| id).collect()
    }

    /// Has a client go whose lease is over.
    pub(super) fn expels(&mut self, now: Millis, client: u64) -> bool {
        let over = self.lapsed(client, now) && !self.is_busy(client);
        if over {
            self.files.delegations.expel(client);
            if let Some(c) = self.clients.get_mut(client) {
                c.leaves = true;
            }
        }
        over
    }

    /// Whether there is room for one more delegation of a directory for this client: only so many that the log takes them all, beside those of
    /// files, and of one client no more than are free.
    pub fn has_room_for_directory(&self, client: u64) -> bool {
        let d = &self.files.delegations;
        let of_all = match self.bounds.delegations {
            // There is no log: as many as a large one keeps.
            0 => limits::LOGGED_DELEGATIONS_MAX,
            kept => kept,
        };
        let most = of_all / limits::DELEGATED_DIRECTORIES_DIVISOR;
        !is_over_its_share(d.directories(), most, 1, || d.directories_of(client))
    }

    /// The log has not taken what [`State::note_expulsion`] gave it: the client stays.
    pub fn is_not_expelled(&mut self, client: u64) {
        if let Some(c) = self.clients.get_mut(client) {
            c.leaves = false;
        }
    }

    /// What the log must have before a client is removed whose delegations are in somebody's way. After that it goes, whatever it does
    /// meanwhile: the log has said so.
    pub fn note_expulsion(&mut self, client: u64) -> Vec<Stamped> {
        if self.clients.get(client).is_none() {
            return Vec::new();
        }
        let gone = self.sessions.of_client(client).into_iter().map(Note::SessionGone);
        let gone: Vec<Note> = gone.chain([Note::ClientGone(client)]).collect();
        gone.into_iter().map(|note| Stamped { v: self.next_version(), note }).collect()
    }

    /// Notes of the delegations and locks that have ended, to go with whatever goes into the log next. Those that ended with their client
    /// go together with the note that it is gone: otherwise the client might be there after a crash without them, and nobody would tell
    /// it.
    pub fn take_gone(&mut self) -> Vec<Stamped> {
        let delegations = std::mem::take(&mut self.files.delegations.gone);
        let locks = self.files.logged_locks.take_gone();
        let gone =
            delegations.into_iter().map(Note::DelegationGone).chain(locks.into_iter().map(Note::LocksGone));
        let mut notes = Vec::with_capacity(gone.size_hint().0);
        for note in gone {
            notes.push(Stamped { v: self.next_version(), note });
        }
        notes.extend(self.take_gone_opens());
        if !notes.is_empty() {
            notes.extend(self.removals.unsettled());
        }
        notes
    }

    /// Whether so many have ended that the log should be told now.
    pub fn many_gone(&self) -> bool {
        let opens = self.files.preserved.gone();
        self.files.delegations.gone.len() + self.files.logged_locks.gone() + opens >= limits::GONE_MAX
    }

    /// Puts a delegation back that the log kept, if its client need not reclaim.
    pub(super) fn restore_delegation(&mut self, v: u64, note: DelegationNote) {
        if note.file.is_empty() {
            return;
        }
        match self.clients.get(note.client).map(|c| c.needs_reclaim) {
            Some(false) => {}
            Some(true) => {
                let of_file = self.files.unreclaimed.entry(FileKey::from(note.file));
                let right = of_file.or_insert((note.client, note.right));
                if note.right.excludes_others() {
                    *right = (note.client, note.right);
                }
                return;
            }
            None => return,
        }
        let key = (owner(), FileKey::from(note.file));
        if self.files.clients.get(&note.client).is_some_and(|c| c.opens.contains_key(&key)) {
            // It had come back before the client was given the later one, and the log did not know yet.
            self.files.delegations.gone.push(note.id);
            return;
        }
        let is_beside = |open: &Open<F>| open.client != note.client && open.delegation.is_some();
        let excludes = |open: &Open<F>| open.access & WRITE != 0 || note.right.excludes_others();
        if self.files.of_file(&key.1).any(|(_, open)| is_beside(open) && excludes(open)) {
            // The same with another client: the later one was given when this one had ended.
            self.files.delegations.gone.push(note.id);
            return;
        }
        let (session, slot, sequence, minor) = note.given_to;
        let delegation = Delegation {
            right: note.right,
            times: note.times,
            given_to: GivenTo { session, slot, sequence, minor },
            fh: Bytes::from(note.fh),
            logged: Some(v),
            settled: true,
            undecided: false,
            // What the file was like when it was given is not known any more, so its holder is not asked.
            asking: Asking::default(),
            recalled: None,
        };
        let open = Open {
            access: note.right.access(),
            seqid: 1,
            delegation: Some(delegation),
            ..Open::new(note.client, key.0, key.1, note.mark)
        };
        self.files.enter_open(note.id, open);
        self.files.delegations.given(note.client, note.right);
        self.files.delegations.logged.insert(note.id);
        self.files.delegations.is_settled(note.client, true);
    }
}
