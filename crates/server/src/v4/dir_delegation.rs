//! Delegations of directories: GET_DIR_DELEGATION (RFC 8881 sections 10.9 and 18.39), and those for writing, for which one bit of it asks
//! (`docs/internals/write-directory-delegations.md`).

use super::context::{Context, InSession, Obj, OpResult, key};
use crate::exports::Delegate;
use crate::state::Millis;
use crate::state::asked::Asking;
use crate::state::delegations::{GivenTo, Right};
use landfast_nfs::v4::args::GetDirDelegationArgs;
use landfast_nfs::v4::flags::{NOTIFY4_WRITE_DELEGATION, WND4_CONTENTION, WND4_RESOURCE};
use landfast_nfs::v4::res::{DirDelegation, GetDirDelegationRes};
use landfast_nfs::v4::{Bitmap, NfsStat, ResBody, Stateid};
use landfast_rpc::share_of;
use landfast_volume::faults::point;
use landfast_volume::{AccessMask, Error, Kind, Node};

impl Context<'_> {
    /// GET_DIR_DELEGATION. Its holder is told of no change: each by somebody else recalls it. One for writing is recalled by each look, too.
    pub(super) fn get_dir_delegation(&mut self, a: &GetDirDelegationArgs) -> OpResult {
        let none = Ok(ResBody::GetDirDelegation(GetDirDelegationRes::Unavailable(false)));
        let Some(dir) = self.object(self.fh()?)? else {
            // A synthetic directory. There may be exports below it that give some.
            return none;
        };
        let features = dir.export.features;
        let for_writing = features.write_delegations && a.notifications.has(NOTIFY4_WRITE_DELEGATION);
        if features.delegations == Delegate::Off && !for_writing {
            // Linux asks no more then.
            return Err(NfsStat::NFS4ERR_NOTSUPP.into());
        }
        if dir.node.kind() != Kind::Dir {
            return Err(NfsStat::NFS4ERR_NOTDIR.into());
        }
        let needs = AccessMask { read: true, write: for_writing, execute: for_writing };
        let may = dir.volume().access(dir.cred(), &dir.node, needs)?;
        if !may.read {
            return none;
        }
        let may_write = for_writing && may.write && may.execute && dir.writable().is_ok();
        let given = if may_write { self.delegate_whole_directory(&dir) } else { Err(WND4_RESOURCE) };
        let given = match given {
            Err(_) if features.delegations != Delegate::Off => self.delegate_names(&dir),
            given => given,
        };
        let Ok((right, stateid)) = given else { return none };
        self.stateid = stateid;
        let client = self.client()?;
        let notes = self.sh.state().is_opened_anew(client, &key(&dir.node));
        self.note(notes);
        Ok(ResBody::GetDirDelegation(GetDirDelegationRes::Given(DirDelegation {
            // READDIR's, which needs none.
            cookieverf: [0; 8],
            stateid,
            notifications: match right {
                Right::ChangeNames => Bitmap::of(&[NOTIFY4_WRITE_DELEGATION]),
                _ => Bitmap::default(),
            },
            child_attributes: Bitmap::default(),
            dir_attributes: Bitmap::default(),
        })))
    }

    /// Gives one for reading.
    /// Errors: `WND4_*`, why not.
    fn delegate_names(&mut self, dir: &Obj) -> Result<(Right, Stateid), u32> {
        let (session, given_to) = self.may_delegate_directory(dir, Right::Names)?;
        let stateid = self.give(&session, dir, Right::Names, (false, given_to), Asking::default(), None)?;
        self.note_given(session.client, &key(&dir.node), &stateid);
        Ok((Right::Names, stateid))
    }

    /// Gives one for writing, or makes one of the client's that is for reading one for writing.
    /// Errors: `WND4_*`, why not.
    fn delegate_whole_directory(&mut self, dir: &Obj) -> Result<(Right, Stateid), u32> {
        let file = key(&dir.node);
        let made_since = self.made.contains(&file).then_some(self.now);
        let client = self.client().map_err(|_| WND4_RESOURCE)?;
        if !self.sh.was_alone(&file, client, made_since) {
            return Err(WND4_CONTENTION);
        }
        let (session, given_to) = self.may_delegate_directory(dir, Right::ChangeNames)?;
        let (stateid, upgraded) = self.enter_whole_directory(&session, dir, given_to)?;
        let granted = self.is_still_alone(dir, client, made_since).and_then(|()| {
            let mut st = self.sh.state();
            let note = st.log_whole_directory(&stateid)?;
            st.make_room_for_delegations(self.now, client);
            Ok((note, st.removals.of_file(&file)))
        });
        match granted {
            Ok((note, gone)) => {
                self.rests_on_gone(gone);
                self.note(note);
                Ok((Right::ChangeNames, stateid))
            }
            Err(why) => {
                let mut st = self.sh.state();
                match upgraded {
                    true => st.files.withdraw_upgrade(&stateid),
                    false => st.files.withdraw_delegation(client, &file, &stateid),
                }
                Err(why)
            }
        }
    }

    /// Whether the client that sends this may be given a delegation of the directory; the operation that it is given to.
    /// Errors: `WND4_*`, why not.
    fn may_delegate_directory(&self, dir: &Obj, right: Right) -> Result<(InSession, GivenTo), u32> {
        let session = self.session.clone().ok_or(WND4_RESOURCE)?;
        {
            let st = self.sh.state();
            if !st.has_room_for_directory(session.client) || st.must_wait_for_grace(session.client, self.now)
            {
                return Err(WND4_RESOURCE);
            }
        }
        let given_to = self.may_delegate(&session, &dir.node, right)?;
        Ok((session, given_to))
    }

    /// Enters one for writing into the state. Whoever begins to look from now on sees it. Returns whether it has taken the place of one for reading.
    fn enter_whole_directory(
        &self,
        on: &InSession,
        dir: &Obj,
        given_to: GivenTo,
    ) -> Result<(Stateid, bool), u32> {
        let (file, fh) = (key(&dir.node), self.wire(&dir.to(dir.node.clone())));
        let from = share_of(self.caller.addr);
        point("cross.delegation");
        let mut st = self.sh.state();
        // As in `give`.
        st.clients.get(on.client).ok_or(WND4_RESOURCE)?;
        st.files.may_delegate(self.now, on.client, &file, Right::ChangeNames)?;
        let upgraded = st.files.upgrade(on.client, &file, given_to);
        let stateid = match upgraded {
            Some(stateid) => stateid,
            None => {
                let holder = (false, given_to, fh);
                let asking = Asking::default();
                st.files
                    .delegate(on.client, &file, Right::ChangeNames, holder, asking, (from, None))
                    .map_err(|_| WND4_RESOURCE)?
            }
        };
        let live = &st.files.delegations;
        self.sh.touches.set_delegations(live.live(), live.whole_directories());
        Ok((stateid, upgraded.is_some()))
    }

    /// Asked when the delegation is in the state: whoever has begun to look before is at work on the directory, or stands in the table.
    fn is_still_alone(&self, dir: &Obj, client: u64, made_since: Option<Millis>) -> Result<(), u32> {
        let alone = !self.sh.touches.others_look(dir.node.wire(), &self.touching)
            && self.sh.was_alone(&key(&dir.node), client, made_since);
        if alone { Ok(()) } else { Err(WND4_CONTENTION) }
    }

    /// The delegation of a directory ends with it: no DELEGRETURN could name it.
    pub(super) fn directories_may_be_gone(&self, of: &Obj, nodes: Vec<Node>) {
        if !self.sh.touches.any_delegation() {
            return;
        }
        for node in nodes {
            if matches!(of.volume().getattr(&node), Err(Error::Stale)) {
                self.sh.state().files.directory_is_gone(&key(&node));
            }
        }
    }
}
