//! Owners while a LOCK or LOCKU uses their numbers.

use landfast_nfs::v4::{NfsStat, ResBody, Stateid};

use super::client::Client;
use super::owners::{LockOwner, Owner};

/// Those whose numbers a LOCK or LOCKU uses. Nobody else uses them meanwhile.
#[derive(Debug)]
pub(super) struct Locking {
    /// For a lock owner's first lock: the open's owner, and the open.
    pub(super) open: Option<(Owner, Stateid)>,
    pub(super) owner: LockOwner,
}

impl Locking {
    /// The request was answered.
    pub(super) fn answered(mut self, client: &Client, status: NfsStat, body: &ResBody) {
        let useful = self.owner.answered(status);
        let first = self.open.is_some();
        if let Some((mut owner, stateid)) = self.open.take()
            && owner.answered(status)
        {
            client.keep(stateid, owner);
        }
        if let ResBody::Lock(stateid) | ResBody::Locku(stateid) = body {
            self.owner.stateid = Some(*stateid);
        }
        // One whose first lock was denied has no stateid.
        if useful && (status.is_ok() || !first) {
            client.keep_lock(self.owner);
        }
    }

    /// The server has not come to it.
    pub(super) fn not_reached(self, client: &Client) {
        match self.open {
            Some((owner, stateid)) => client.keep(stateid, owner),
            None => client.keep_lock(self.owner),
        }
    }
}
