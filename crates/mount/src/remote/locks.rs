//! Byte-range locks (RFC 8881 sections 18.10 to 18.12), in versions with sessions.

use landfast_client::compound::Results;
use landfast_nfs::v4::args::{
    CloseArgs, LockArgs, Locker, LocktArgs, LockuArgs, OpenArgs, OpenClaim, OpenHow, owner,
};
use landfast_nfs::v4::flags::{OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_DENY_NONE};
use landfast_nfs::v4::{ArgOp, FileHandle, LockType, NfsStat, OpNum, ResBody, Stateid};

use super::send::{Caller, Fault, Remote};

/// A part of a file. `length` of `u64::MAX`: to its end, wherever that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    pub offset: u64,
    pub length: u64,
}

fn lock_owner(number: u64) -> landfast_nfs::v4::StateOwner {
    owner(0, format!("lock {number:016x}").as_bytes())
}

impl Remote {
    /// Opens a file so that it can be locked, with the open owner of this number.
    pub async fn open_for_locks(
        &self,
        who: &Caller,
        file: &FileHandle,
        number: u64,
        access: u32,
    ) -> Result<Stateid, Fault> {
        let open = OpenArgs {
            seqid: 0,
            share_access: access | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: owner(0, format!("mount lock {number}").as_bytes()),
            openhow: OpenHow::NoCreate,
            claim: OpenClaim::Fh,
        };
        // A second OPEN by the same owner is the same open.
        let mut results = self.ask(who, vec![ArgOp::Putfh(file.clone()), ArgOp::Open(open)]).await?;
        results.take(OpNum::PUTFH)?;
        Ok(results.open()?.stateid)
    }

    /// LOCK. The lock owner has locks on the file already (`held`) or not; `open` is the open that they belong to. DENIED: somebody else
    /// has one that excludes it.
    pub async fn lock(
        &self,
        who: &Caller,
        file: &FileHandle,
        (number, held, open): (u64, Option<Stateid>, Stateid),
        locktype: LockType,
        range: LockRange,
    ) -> Result<Stateid, Fault> {
        let locker = match held {
            Some(held) => Locker::Existing { lock_stateid: newest(held), lock_seqid: 0 },
            None => Locker::New {
                open_seqid: 0,
                open_stateid: open,
                lock_seqid: 0,
                lock_owner: lock_owner(number),
            },
        };
        let args = LockArgs { locktype, reclaim: false, offset: range.offset, length: range.length, locker };
        // Locking again what one has locked is no change.
        let mut results = self.ask(who, vec![ArgOp::Putfh(file.clone()), ArgOp::Lock(args)]).await?;
        results.take(OpNum::PUTFH)?;
        stateid(&mut results, OpNum::LOCK)
    }

    pub async fn unlock(
        &self,
        who: &Caller,
        file: &FileHandle,
        lock_stateid: Stateid,
        range: LockRange,
    ) -> Result<Stateid, Fault> {
        let locktype = LockType::Write;
        let args = LockuArgs {
            locktype,
            seqid: 0,
            lock_stateid: newest(lock_stateid),
            offset: range.offset,
            length: range.length,
        };
        let mut results = self.ask(who, vec![ArgOp::Putfh(file.clone()), ArgOp::Locku(args)]).await?;
        results.take(OpNum::PUTFH)?;
        stateid(&mut results, OpNum::LOCKU)
    }

    /// LOCKT: the lock that excludes this one, if there is one.
    pub async fn test_lock(
        &self,
        who: &Caller,
        file: &FileHandle,
        number: u64,
        locktype: LockType,
        range: LockRange,
    ) -> Result<Option<(LockType, LockRange)>, Fault> {
        let args =
            LocktArgs { locktype, offset: range.offset, length: range.length, owner: lock_owner(number) };
        let reply =
            self.change(who, vec![ArgOp::Putfh(file.clone()), ArgOp::Lockt(args)], OpNum::LOCKT).await?;
        if let Some(last) = reply.results.last()
            && last.status == NfsStat::NFS4ERR_DENIED
            && let ResBody::Denied(denied) = &last.body
        {
            let range = LockRange { offset: denied.offset, length: denied.length };
            return Ok(Some((denied.locktype, range)));
        }
        let mut results = Results::new(reply);
        results.skip(&[OpNum::PUTFH, OpNum::LOCKT])?;
        Ok(None)
    }

    /// Ends an open. If that fails, the lease ends it.
    pub async fn close(&self, who: &Caller, file: &FileHandle, open_stateid: Stateid) {
        let close = ArgOp::Close(CloseArgs { seqid: 0, open_stateid });
        let done = self.ask(who, vec![ArgOp::Putfh(file.clone()), close]).await;
        let done = done.and_then(|mut r| r.skip(&[OpNum::PUTFH, OpNum::CLOSE]).map_err(Fault::from));
        if let Err(e) = done {
            tracing::debug!("CLOSE: {e:?}");
        }
    }
}

/// The state as it is now, whatever the last reply said (RFC 8881 section 8.2.2).
fn newest(stateid: Stateid) -> Stateid {
    Stateid { seqid: 0, ..stateid }
}

fn stateid(results: &mut Results, op: OpNum) -> Result<Stateid, Fault> {
    match results.take(op)? {
        ResBody::Lock(stateid) | ResBody::Locku(stateid) => Ok(stateid),
        _ => Err(Fault::Op(op, NfsStat::NFS4ERR_IO)),
    }
}
