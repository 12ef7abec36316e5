//! Delegations of files (RFC 8881 sections 10.4 and 18.6, RFC 9754): giving one with an OPEN, and DELEGRETURN. Of directories: `dir_delegation.rs`.

use super::context::{Context, InSession, Obj, OpError, OpResult, key};
use crate::exports::Delegate;
use crate::limits;
use crate::state::asked::{AsGiven, Asking};
use crate::state::delegations::{GivenTo, Right};
use crate::state::opens::{FileKey, READ, Share, WRITE};
use bytes::Bytes;
use landfast_nfs::v4::flags::{
    ACE4_ACCESS_ALLOWED_ACE_TYPE, OPEN4_SHARE_ACCESS_WANT_ANY_DELEG, OPEN4_SHARE_ACCESS_WANT_CANCEL,
    OPEN4_SHARE_ACCESS_WANT_DELEG_MASK, OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS,
    OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION,
    OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG, WND4_CONTENTION, WND4_NOT_WANTED, WND4_RESOURCE,
};
use landfast_nfs::v4::res::{OpenDelegation, ReadDelegation, SpaceLimit, WhyNone, WriteDelegation};
use landfast_nfs::v4::types::NfsAce;
use landfast_nfs::v4::{NfsStat, ResBody, Stateid};
use landfast_rpc::share_of;
use landfast_volume::faults::point;
use landfast_volume::{Node, OpenFile, OpenMode};

/// What an OPEN says about delegations (`share_access`, RFC 8881 section 18.16.3, RFC 9754 section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wish {
    /// It said something, so it is told why it gets none.
    said: bool,
    unwanted: bool,
    /// One for writing was asked for by that name.
    write: bool,
    /// The holder would answer for the times.
    times: bool,
    /// A delegation will do instead of an open.
    pub(super) instead: bool,
}

impl Wish {
    pub(super) fn of(share_access: u32) -> Wish {
        let want = share_access & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK;
        let has = |flag| share_access & flag != 0;
        let (times, instead) =
            (has(OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS), has(OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION));
        Wish {
            said: want != 0 || times || instead,
            unwanted: matches!(want, OPEN4_SHARE_ACCESS_WANT_NO_DELEG | OPEN4_SHARE_ACCESS_WANT_CANCEL),
            write: matches!(want, OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG | OPEN4_SHARE_ACCESS_WANT_ANY_DELEG),
            times,
            instead,
        }
    }

    /// No delegation, with the reason when the client said what it wants (RFC 8881 section 18.16.3).
    pub(super) fn none(self, why: u32) -> OpenDelegation {
        let why = if self.unwanted { WND4_NOT_WANTED } else { why };
        if self.said {
            OpenDelegation::NoneExt(WhyNone { why, will_signal: false })
        } else {
            OpenDelegation::None
        }
    }
}

/// A delegation that was given.
pub(super) struct Given {
    pub(super) stateid: Stateid,
    pub(super) says: OpenDelegation,
}

impl Context<'_> {
    /// Gives a delegation of a file that was opened with this access, if all conditions hold.
    /// Errors: `WND4_*`, why not.
    pub(super) fn delegate(
        &mut self,
        obj: &Obj,
        access: Share,
        file: &OpenFile,
        wish: Wish,
    ) -> Result<Given, u32> {
        let level = obj.export.features.delegations;
        let write = access & WRITE != 0;
        let Some(session) = self.session.clone().filter(|_| !wish.unwanted && level != Delegate::Off) else {
            return Err(WND4_RESOURCE);
        };
        // A client that still opens each file gains nothing from one for writing (RFC 9754 section 7), unless it says that it
        // wants one (RFC 8881 section 18.16.3), which Linux never does.
        if write && (level == Delegate::Read || !(wish.instead || wish.times || wish.write)) {
            return Err(WND4_RESOURCE);
        }
        let times = wish.times && level.sets_times(self.minor);
        let right = Right::of_access(access);
        let given_to = self.may_delegate(&session, &obj.node, right)?;
        let (handle, as_given) = if write {
            let (handle, as_given) = self.opened_for_both(obj, access, file)?;
            (handle, Some(as_given))
        } else {
            (file.clone(), None)
        };
        let asking = Asking::new(as_given);
        let stateid = self.give(&session, obj, right, (times, given_to), asking, Some(handle))?;
        // Whom the file lets in without being asked: nobody. Clients ask with ACCESS.
        let permissions =
            NfsAce { kind: ACE4_ACCESS_ALLOWED_ACE_TYPE, flag: 0, access_mask: 0, who: Bytes::new() };
        let says = if write {
            let space_limit = SpaceLimit::Size(limits::DELEGATED_DIRTY_BYTES);
            let given = WriteDelegation { stateid, recall: false, space_limit, permissions };
            if times { OpenDelegation::WriteAttrs(given) } else { OpenDelegation::Write(given) }
        } else {
            let given = ReadDelegation { stateid, recall: false, permissions };
            if times { OpenDelegation::ReadAttrs(given) } else { OpenDelegation::Read(given) }
        };
        Ok(Given { stateid, says })
    }

    /// Whether the client that sends this may be given a delegation; the operation that it is given to.
    /// Errors: `WND4_*`, why not.
    pub(super) fn may_delegate(&self, on: &InSession, node: &Node, right: Right) -> Result<GivenTo, u32> {
        // The log could not be told of it, and an OPEN for reading needs no log.
        if self.home().is_some_and(|home| home.volume.failed().is_some()) {
            return Err(WND4_RESOURCE);
        }
        let mut st = self.sh.state();
        let s = st.sessions.get(&on.id).ok_or(WND4_RESOURCE)?;
        if !s.can_call_back() {
            return Err(WND4_RESOURCE);
        }
        let (tried, sequence) = (s.back_tried, s.last_sequence(on.slot));
        if !tried {
            // RFC 8881 section 10.2.1: only to whom callbacks have been proven to reach.
            st.files.delegations.try_out(on.id);
            return Err(WND4_RESOURCE);
        }
        if let Err(why) = st.files.may_delegate(self.now, on.client, &key(node), right) {
            if why == WND4_RESOURCE {
                st.make_room_for_delegations(self.now, on.client);
            }
            return Err(why);
        }
        Ok(GivenTo { session: on.id, slot: on.slot, sequence, minor: self.minor })
    }

    /// Gives a delegation.
    /// Errors: `WND4_*`: meanwhile it may not be given, or somebody else is at work on the file.
    pub(super) fn give(
        &self,
        on: &InSession,
        obj: &Obj,
        right: Right,
        (times, given_to): (bool, GivenTo),
        asking: Asking,
        handle: Option<OpenFile>,
    ) -> Result<Stateid, u32> {
        let fh = self.wire(&obj.to(obj.node.clone()));
        let from = share_of(self.caller.addr);
        point("cross.delegation");
        let mut st = self.sh.state();
        let file = key(&obj.node);
        // It may have gone since it was asked about: nobody would return the delegation.
        st.clients.get(on.client).ok_or(WND4_RESOURCE)?;
        st.files.may_delegate(self.now, on.client, &file, right)?;
        let holder = (times, given_to, fh);
        let given = st.files.delegate(on.client, &file, right, holder, asking, (from, handle));
        let stateid = given.map_err(|_| WND4_RESOURCE)?;
        let live = &st.files.delegations;
        self.sh.touches.set_delegations(live.live(), live.whole_directories());
        if self.sh.touches.others_touch(obj.node.wire(), &self.touching) {
            st.files.withdraw_delegation(on.client, &file, &stateid);
            return Err(WND4_CONTENTION);
        }
        st.make_room_for_delegations(self.now, on.client);
        Ok(stateid)
    }

    /// Has a delegation stand in the log before it is answered: with what else the request changes, or alone if it may wait for that.
    pub(super) fn note_given(&mut self, client: u64, file: &FileKey, stateid: &Stateid) {
        let changes = self.txs.modified();
        let (note, gone) = {
            let mut st = self.sh.state();
            let note = match changes {
                true => st.log_given(stateid),
                false => st.log_given_alone(self.now, client, stateid),
            };
            (note, st.removals.of_file(file))
        };
        self.rests_on_gone(gone);
        self.note(note);
    }

    /// The file opened for reading, too, and how it is now: the holder of a write delegation reads around what it writes. A file that gives its caller other
    /// rights (setuid, setgid) is written through, so that the kernel takes these away in time.
    fn opened_for_both(&self, obj: &Obj, access: Share, file: &OpenFile) -> Result<(OpenFile, AsGiven), u32> {
        let attrs = obj.volume().getattr(&obj.node).map_err(|_| WND4_RESOURCE)?;
        if attrs.mode & 0o6000 != 0 {
            return Err(WND4_RESOURCE);
        }
        let by_owner = [0, attrs.uid].contains(&obj.cred().uid);
        let as_given = AsGiven { change: attrs.change, by_owner };
        if access & READ != 0 {
            return Ok((file.clone(), as_given));
        }
        let both = OpenMode { read: true, write: true, owner_override: false };
        let handle = obj.volume().open_file(obj.cred(), &obj.node, both).map_err(|_| WND4_RESOURCE)?;
        Ok((handle, as_given))
    }

    /// Checks the delegation by which a client opens a file (CLAIM_DELEGATE_CUR, CLAIM_DELEG_CUR_FH).
    /// Errors: those of a stateid; `INVAL` for another file's, since Linux asks without end after `BAD_STATEID`; `OPENMODE` for more than
    /// the delegation gives.
    pub(super) fn may_open_by(&self, obj: &Obj, stateid: &Stateid, access: Share) -> Result<(), NfsStat> {
        let stateid = self.resolve_stateid(stateid, false)?;
        let client = self.client()?;
        let st = self.sh.state();
        st.files.find(client, &stateid)?;
        let (given, _) =
            st.files.delegation(client, &key(&obj.node), &stateid).map_err(|_| NfsStat::NFS4ERR_INVAL)?;
        if access & !given == 0 { Ok(()) } else { Err(NfsStat::NFS4ERR_OPENMODE) }
    }

    /// Whether the stateid is a delegation of this file by which the client answers for its times.
    /// Errors: `BAD_STATEID` if not, and those of a stateid.
    pub(super) fn answers_for_times(&self, obj: &Obj, stateid: &Stateid, write: bool) -> Result<(), OpError> {
        let stateid = self.resolve_stateid(stateid, false)?;
        let client = self.client()?;
        let st = self.sh.state();
        let (access, delegation) = st.files.delegation(client, &key(&obj.node), &stateid)?;
        if delegation.times && (!write || access & WRITE != 0) {
            Ok(())
        } else {
            Err(NfsStat::NFS4ERR_BAD_STATEID.into())
        }
    }

    /// DELEGRETURN (RFC 8881 section 18.6).
    pub(super) fn deleg_return(&mut self, stateid: &Stateid) -> OpResult {
        let stateid = self.resolve_stateid(stateid, false)?;
        let client = self.client()?;
        let obj = self.object(self.fh()?)?.ok_or(NfsStat::NFS4ERR_BAD_STATEID)?;
        // The descriptors are closed when the lock is not held any more.
        let handles = self.sh.state().files.return_delegation(client, &key(&obj.node), &stateid)?;
        drop(handles);
        let notes = {
            let mut st = self.sh.state();
            if st.many_gone() { st.take_gone() } else { Vec::new() }
        };
        self.note(notes);
        Ok(ResBody::Empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc8881_18_16_3_who_wishes_nothing_is_told_nothing() {
        assert_eq!(Wish::of(1).none(WND4_RESOURCE), OpenDelegation::None);
        let none = |why| OpenDelegation::NoneExt(WhyNone { why, will_signal: false });
        assert_eq!(Wish::of(1 | OPEN4_SHARE_ACCESS_WANT_NO_DELEG).none(WND4_RESOURCE), none(WND4_NOT_WANTED));
        assert_eq!(Wish::of(1 | 0x100).none(WND4_CONTENTION), none(WND4_CONTENTION));
        let xor = Wish::of(3 | OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION);
        assert!(xor.instead && !xor.times && xor.none(WND4_RESOURCE) == none(WND4_RESOURCE));
    }
}
