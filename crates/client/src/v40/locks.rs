//! LOCK, LOCKT and LOCKU with the numbers of their owners (RFC 7530 sections 9.1.7 and 16.10 to 16.12).
//!
//! A name of a lock owner is used for one file, and for one try to get its first lock: a server need not say whether it remembers an
//! owner whose first lock it has denied, nor with which number.

use landfast_nfs::v4::args::{LockArgs, Locker, LocktArgs, LockuArgs, owner};
use landfast_nfs::v4::{ArgOp, NfsStat, ResBody};

use super::exec::{Exec, Role, Step};
use super::locking::Locking;
use super::owners::LockOwner;
use crate::error::SessionError;

impl Exec<'_> {
    pub(super) async fn put_lock(&mut self, mut args: LockArgs) -> Result<(), SessionError> {
        let locking = match &args.locker {
            Locker::New { open_stateid, .. } => self.client.owner_of(*open_stateid).map(|open| {
                let owner = LockOwner::of(&open, *open_stateid);
                Locking { open: Some((open, *open_stateid)), owner }
            }),
            Locker::Existing { lock_stateid, .. } => {
                self.client.lock_owner_of(*lock_stateid).map(|owner| Locking { open: None, owner })
            }
        };
        let Some(locking) = locking else {
            // It is lost with its client ID.
            self.given(NfsStat::NFS4ERR_BAD_STATEID, ResBody::Empty, Role::Own);
            return Ok(());
        };
        args.locker = match (args.locker, &locking) {
            (Locker::New { open_stateid, lock_owner, .. }, Locking { open: Some((open, _)), owner: new }) => {
                Locker::New {
                    open_seqid: open.seqid,
                    open_stateid,
                    lock_seqid: new.seqid,
                    lock_owner: owner(self.client.client_id().await?, &lock_owner.owner.0),
                }
            }
            (Locker::Existing { lock_stateid, .. }, Locking { owner, .. }) => Locker::Existing {
                lock_stateid: owner.stateid.unwrap_or(lock_stateid),
                lock_seqid: owner.seqid,
            },
            (locker, _) => locker,
        };
        self.enter(Step::Send(ArgOp::Lock(args)), Role::Lock(locking));
        Ok(())
    }

    pub(super) async fn put_lock_test(&mut self, mut args: LocktArgs) -> Result<(), SessionError> {
        args.owner = owner(self.client.client_id().await?, &args.owner.owner.0);
        self.own(ArgOp::Lockt(args));
        Ok(())
    }

    pub(super) fn put_unlock(&mut self, mut args: LockuArgs) {
        match self.client.lock_owner_of(args.lock_stateid) {
            Some(owner) => {
                args.seqid = owner.seqid;
                args.lock_stateid = owner.stateid.unwrap_or(args.lock_stateid);
                let locking = Locking { open: None, owner };
                self.enter(Step::Send(ArgOp::Locku(args)), Role::Lock(locking));
            }
            None => self.given(NfsStat::NFS4ERR_BAD_STATEID, ResBody::Empty, Role::Own),
        }
    }
}
