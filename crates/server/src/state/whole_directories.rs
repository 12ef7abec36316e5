//! Write directory delegations (`docs/internals/write-directory-delegations.md`): the holder changes names and attributes of a directory by itself, and
//! nobody else looks into it meanwhile. Giving one, in the place of an ordinary one too. What is in whose way, recall and revocation are those of all
//! delegations ([`super::delegated`]).
//!
//! Invariant: while a client has one, nobody else has a delegation of the directory; and if there is a log, it has the note before the client hears of it.

use super::bugs::{Bug, bug};
use super::delegations::GivenTo;
use super::ids::FileKey;
use super::notes::{Right, Stamped};
use super::opens::{Files, Open, number};
use super::tables::State;
use landfast_nfs::v4::Stateid;
use landfast_nfs::v4::flags::WND4_RESOURCE;

impl<F> Open<F> {
    fn set_right(&mut self, right: Right) {
        self.access = right.access();
        if let Some(d) = &mut self.delegation {
            d.right = right;
        }
    }
}

impl<F> Files<F> {
    /// Makes this client's ordinary delegation of the directory one for writing; [`Files::may_delegate`] has allowed it. `None`: it has none.
    pub fn upgrade(&mut self, client: u64, dir: &FileKey, given_to: GivenTo) -> Option<Stateid> {
        let becomes = |o: &Open<F>| o.delegation.as_ref().is_some_and(|d| d.may_become(Right::ChangeNames));
        let id = self.of_file(dir).find(|(_, open)| open.client == client && becomes(open))?.0;
        let open = self.opens.get_mut(&id)?;
        open.set_right(Right::ChangeNames);
        if let Some(d) = &mut open.delegation {
            // A recall is not to overtake this reply either.
            d.given_to = given_to;
            d.undecided = true;
        }
        let stateid = Self::marked(open.mark, id, open.seqid);
        self.delegations.is_for_writing(client, true);
        self.delegations.counts.given_directory_write += 1;
        Some(stateid)
    }

    /// Whether this client has one of this directory.
    pub fn has_whole_directory(&self, client: u64, dir: &FileKey) -> bool {
        let has = |open: &Open<F>| open.delegation.as_ref().is_some_and(|d| d.right == Right::ChangeNames);
        self.of_file(dir).any(|(_, open)| open.client == client && has(open))
    }

    /// Takes an upgrade back that nobody has heard of yet. The client has the ordinary one as before.
    pub fn withdraw_upgrade(&mut self, stateid: &Stateid) {
        if let Some(open) = self.opens.get_mut(&number(stateid))
            && open.delegation.as_ref().is_some_and(|d| d.right == Right::ChangeNames)
        {
            let client = open.client;
            open.set_right(Right::Names);
            if let Some(d) = &mut open.delegation {
                d.undecided = false;
            }
            self.delegations.is_for_writing(client, false);
            self.delegations.counts.given_directory_write -= 1;
        }
    }
}

impl<F> State<F> {
    /// Has one stand in the log before its request is answered.
    /// Errors: `WND4_RESOURCE`: the log has its fill of delegations.
    pub fn log_whole_directory(&mut self, stateid: &Stateid) -> Result<Option<Stamped>, u32> {
        let id = number(stateid);
        let of_it = self.files.opens.get(&id).and_then(|o| o.delegation.as_ref());
        let upgraded = of_it.is_some_and(|d| d.undecided);
        if self.bounds.delegations > 0 && !self.has_room_to_log(id) {
            return Err(WND4_RESOURCE);
        }
        if let Some(d) = self.files.opens.get_mut(&id).and_then(|o| o.delegation.as_mut()) {
            d.undecided = false;
        }
        match self.bounds.delegations {
            // There is no log.
            0 => Ok(None),
            // Its client may know it already: this note does not settle it.
            _ if upgraded && !bug(Bug::UpgradeSettles) => Ok(self.note_delegation(id)),
            _ => Ok(self.log_given(stateid)),
        }
    }
}
