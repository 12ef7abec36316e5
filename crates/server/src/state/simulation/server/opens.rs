//! The second half of OPEN, with the delegation that it may give, and LOCK (`v4/open.rs`, `v4/delegation.rs`, `v4/dir_delegation.rs`, `v4/lock.rs`).

use super::super::op::Done;
use super::super::rights::{DIRECTORY, File};
use super::{Server, Work, key, owner};
use crate::state::asked::{AsGiven, Asking};
use crate::state::bugs::{Bug, bug};
use crate::state::delegations::{GivenTo, Right as Given, Touch};
use crate::state::locks::{self, LockError, Locker};
use crate::state::opens::Share;
use crate::state::ranges::Span;
use landfast_nfs::v4::flags::{WND4_CONTENTION, WND4_RESOURCE};
use landfast_nfs::v4::{LockType, NfsStat, Stateid};

impl Server {
    /// Whether a delegation is in the way of who made a file; it is recalled.
    pub(super) fn recalls_from(&mut self, w: &mut Work, file: File) -> bool {
        w.touching.push(self.touches.begin(&key(file)));
        self.touches.any_delegation()
            && !self.st.recall_from_others(self.now, &key(file), w.by.client, Touch::Changes).is_empty()
    }

    pub(super) fn may_delegate(&mut self, w: &Work, file: File, right: Given) -> Result<GivenTo, u32> {
        let (Some(client), Some((session, slot))) = (w.by.client, w.by.session) else {
            return Err(WND4_RESOURCE);
        };
        let s = self.st.sessions.get(&session).ok_or(WND4_RESOURCE)?;
        if !s.can_call_back() {
            return Err(WND4_RESOURCE);
        }
        let (tried, sequence) = (s.back_tried, s.last_sequence(slot));
        if !tried {
            self.st.files.delegations.try_out(session);
            return Err(WND4_RESOURCE);
        }
        self.st.files.may_delegate(self.now, client, &key(file), right)?;
        Ok(GivenTo { session, slot, sequence, minor: 2 })
    }

    pub(super) fn gives(&mut self, w: &Work, file: File, right: Given, by: GivenTo) -> Result<Stateid, u32> {
        let client = w.by.client.ok_or(WND4_RESOURCE)?;
        self.st.files.may_delegate(self.now, client, &key(file), right)?;
        let given = (right == Given::Write).then_some(AsGiven { change: self.change, by_owner: true });
        let handle = (right != Given::Names).then_some(1);
        let holder = (false, by, key(file));
        let given = self.st.files.delegate(
            client,
            &key(file),
            right,
            holder,
            Asking::new(given),
            (w.by.from, handle),
        );
        let stateid = given.map_err(|_| WND4_RESOURCE)?;
        let live = &self.st.files.delegations;
        self.touches.set_delegations(live.live(), live.whole_directories());
        if !bug(Bug::WorkUnseen) && self.touches.others_touch(&key(file), &w.touching) {
            self.st.files.withdraw_delegation(client, &key(file), &stateid);
            return Err(WND4_CONTENTION);
        }
        Ok(stateid)
    }

    /// One for writing the directory. Who was alone in it is not asked here: the promise does not rest on it.
    pub(super) fn gives_whole_directory(&mut self, w: &mut Work) -> Result<Stateid, u32> {
        let client = w.by.client.ok_or(WND4_RESOURCE)?;
        let (file, right) = (key(DIRECTORY), Given::ChangeNames);
        let by = self.may_delegate(w, DIRECTORY, right)?;
        let upgraded = self.st.files.upgrade(client, &file, by);
        let stateid = match upgraded {
            Some(stateid) => stateid,
            None => {
                let holder = (false, by, file.clone());
                let place = (w.by.from, None);
                let given = self.st.files.delegate(client, &file, right, holder, Asking::default(), place);
                given.map_err(|_| WND4_RESOURCE)?
            }
        };
        let live = &self.st.files.delegations;
        self.touches.set_delegations(live.live(), live.whole_directories());
        let note = match !bug(Bug::WorkUnseen) && self.touches.others_look(&file, &w.touching) {
            true => Err(WND4_CONTENTION),
            false => self.st.log_whole_directory(&stateid),
        };
        match note {
            Ok(note) => {
                w.notes.extend(note);
                Ok(stateid)
            }
            Err(why) => {
                match upgraded {
                    Some(_) => self.st.files.withdraw_upgrade(&stateid),
                    None => self.st.files.withdraw_delegation(client, &file, &stateid),
                }
                Err(why)
            }
        }
    }

    /// The second half of OPEN. `wish`: whether a delegation would do in place of an open; `None` where none is given.
    #[allow(clippy::too_many_arguments)] // those of an OPEN
    pub(super) fn opens(
        &mut self,
        w: &mut Work,
        file: File,
        by: u8,
        access: Share,
        deny: Share,
        wish: Option<bool>,
        reclaims: bool,
    ) -> Result<Done, NfsStat> {
        let client = w.by.client.unwrap_or(0);
        let right = Given::of_access(access);
        let wanted = wish.is_some_and(|instead| instead || right == Given::Read);
        let given = if wanted && w.by.session.is_some() {
            self.may_delegate(w, file, right).and_then(|to| self.gives(w, file, right, to)).ok()
        } else {
            None
        };
        if let Some(given) = given
            && w.modified
        {
            let note = self.st.log_given(&given);
            w.notes.extend(note);
        }
        let alone = given.is_some()
            && wish == Some(true)
            && deny == 0
            && !self.st.files.has_open(client, &owner(by), &key(file));
        let stateid = if alone {
            let notes = self.st.is_opened_anew(client, &key(file));
            w.notes.extend(notes);
            Stateid::ANONYMOUS
        } else {
            match self.enters(w, client, file, by, access, deny, reclaims) {
                Ok(stateid) => stateid,
                Err(status) => {
                    if let Some(given) = given {
                        self.st.files.withdraw_delegation(client, &key(file), &given);
                    }
                    return Err(status);
                }
            }
        };
        let delegation = given.map(|given| (given, right == Given::Write));
        Ok(Done { delegation, alone, ..Done::with(stateid, file) })
    }

    #[allow(clippy::too_many_arguments)] // those of an OPEN
    pub(super) fn enters(
        &mut self,
        w: &mut Work,
        client: u64,
        file: File,
        by: u8,
        access: Share,
        deny: Share,
        reclaims: bool,
    ) -> Result<Stateid, NfsStat> {
        let (known, from) = (owner(by), w.by.from);
        let (room, gone) = self.st.make_room_for_open(self.now, client, Some((&known, &key(file))), from);
        w.notes.extend(gone);
        room?;
        self.share(w, file, access, deny, reclaims)?;
        if self.st.clients.get(client).is_none() {
            return Err(NfsStat::NFS4ERR_STALE_CLIENTID);
        }
        let stateid = self.st.files.open_from(from, &key(file), client, &known, access, deny, Some(1))?;
        let notes = self.st.is_opened_anew(client, &key(file));
        w.notes.extend(notes);
        Ok(stateid)
    }

    pub(super) fn locks(
        &mut self,
        w: &mut Work,
        file: File,
        locker: &Locker,
        kind: LockType,
        span: Span,
        reclaim: bool,
    ) -> Result<Done, NfsStat> {
        let client = w.by.client.unwrap_or(0);
        if reclaim {
            self.st.may_reclaim(client, self.now)?;
        } else if self.st.must_wait_for_grace(client, self.now) {
            return Err(NfsStat::NFS4ERR_GRACE);
        }
        let (Locker::New { open: held, .. } | Locker::Known(held)) = locker;
        self.st.adopt(self.now, client, &key(file), held, locks::needed(kind))?;
        self.st.files.lock_handle(client, &key(file), locker, kind)?;
        let done = loop {
            match self.st.files.lock(client, &key(file), locker, kind, span) {
                Err(LockError::Denied(d)) if d.client != client && self.st.lapsed(d.client, self.now) => {
                    w.notes.extend(self.removes(d.client));
                }
                Ok(stateid) => {
                    let notes = self.st.log_locks(&stateid);
                    w.notes.extend(notes);
                    break Ok(Done::with(stateid, file));
                }
                Err(LockError::Denied(_)) => break Err(NfsStat::NFS4ERR_DENIED),
                Err(LockError::Status(status)) => break Err(status),
            }
        };
        w.notes.extend(self.st.removals.unsettled());
        done
    }
}
