//! Byte-range locks (RFC 8881 sections 18.10 to 18.12). The session makes of them what versions 3 and 4.0 have.

use bytes::Bytes;
use landfast_client::Version;
use landfast_client::compound::Results;
use landfast_nfs::v4::args::{
    CloseArgs, LockArgs, Locker, LocktArgs, LockuArgs, OpenArgs, OpenClaim, OpenHow, owner,
};
use landfast_nfs::v4::flags::{OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_DENY_NONE};
use landfast_nfs::v4::{ArgOp, FileHandle, LockType, NfsStat, OpNum, ResBody, StateOwner, Stateid};

use super::send::{Caller, Fault, Remote};

/// A part of a file. `length` of `u64::MAX`: to its end, wherever that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    pub offset: u64,
    pub length: u64,
}

/// A lock owner. Each file has its own, and with version 4.0 each try to get the first lock: see the client's `v40::locks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockName {
    /// The number of the file's open owner.
    pub file: u64,
    /// Who has the lock, as the kernel calls it.
    pub owner: u64,
    pub attempt: u32,
}

impl LockName {
    fn wire(self) -> StateOwner {
        let LockName { file, owner: by, attempt } = self;
        owner(0, format!("lock {file:x} {by:016x} {attempt:x}").as_bytes())
    }
}

impl Remote {
    /// Opens a file for what needs an open: locks, copies by the server. `number`: that of its open owner. `place`: its directory and name,
    /// without which version 4.0 cannot open it.
    pub async fn open_file(
        &self,
        who: &Caller,
        file: &FileHandle,
        place: Option<(FileHandle, Bytes)>,
        (number, access): (u64, u32),
    ) -> Result<Stateid, Fault> {
        let by_name = self.version() == Version::V40;
        let (base, claim) = match place.filter(|_| by_name) {
            Some((dir, name)) => (dir, OpenClaim::Null(name)),
            None if by_name => return Err(Fault::Op(OpNum::OPEN, NfsStat::NFS4ERR_STALE)),
            None => (file.clone(), OpenClaim::Fh),
        };
        let want = if by_name { 0 } else { OPEN4_SHARE_ACCESS_WANT_NO_DELEG };
        let open = OpenArgs {
            seqid: 0,
            share_access: access | want,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: owner(0, format!("mount lock {number}").as_bytes()),
            openhow: OpenHow::NoCreate,
            claim,
        };
        // A second OPEN by the same owner is the same open.
        let ops = vec![ArgOp::Putfh(base), ArgOp::Open(open), ArgOp::Getfh];
        let mut results = self.ask(who, ops).await?;
        results.take(OpNum::PUTFH)?;
        let stateid = results.open()?.stateid;
        let opened = results.getfh()?;
        if opened != *file {
            // Another object has the name now.
            self.close(who, &opened, stateid).await;
            return Err(Fault::Op(OpNum::OPEN, NfsStat::NFS4ERR_STALE));
        }
        Ok(stateid)
    }

    /// LOCK. The lock owner has locks on the file already (`held`) or not; `open` is the open that they belong to. DENIED: somebody else
    /// has one that excludes it.
    pub async fn lock(
        &self,
        who: &Caller,
        file: &FileHandle,
        (name, held, open): (LockName, Option<Stateid>, Stateid),
        locktype: LockType,
        range: LockRange,
    ) -> Result<Stateid, Fault> {
        let locker = match held {
            Some(held) => Locker::Existing { lock_stateid: newest(held), lock_seqid: 0 },
            None => Locker::New { open_seqid: 0, open_stateid: open, lock_seqid: 0, lock_owner: name.wire() },
        };
        let args = LockArgs { locktype, reclaim: false, offset: range.offset, length: range.length, locker };
        // Locking again what one has locked is no change.
        let mut results = self.ask(who, vec![ArgOp::Putfh(file.clone()), ArgOp::Lock(args)]).await?;
        results.take(OpNum::PUTFH)?;
        stateid(&mut results, OpNum::LOCK)
    }

    /// Whether an owner can be forgotten before the file's CLOSE (FREE_STATEID, RFC 8881 section 18.38).
    pub fn frees_lock_owners(&self) -> bool {
        matches!(self.version(), Version::V41 | Version::V42)
    }

    /// LOCKU. `frees`: the owner has no locks on the file then, and the server is to forget it.
    pub async fn unlock(
        &self,
        who: &Caller,
        file: &FileHandle,
        lock_stateid: Stateid,
        range: LockRange,
        frees: bool,
    ) -> Result<Stateid, Fault> {
        let locktype = LockType::Write;
        let args = LockuArgs {
            locktype,
            seqid: 0,
            lock_stateid: newest(lock_stateid),
            offset: range.offset,
            length: range.length,
        };
        let mut ops = vec![ArgOp::Putfh(file.clone()), ArgOp::Locku(args)];
        if frees {
            ops.push(ArgOp::FreeStateid(newest(lock_stateid)));
        }
        let mut results = self.ask(who, ops).await?;
        results.take(OpNum::PUTFH)?;
        stateid(&mut results, OpNum::LOCKU)
    }

    /// LOCKT: the lock that excludes this one, if there is one.
    pub async fn test_lock(
        &self,
        who: &Caller,
        file: &FileHandle,
        name: LockName,
        locktype: LockType,
        range: LockRange,
    ) -> Result<Option<(LockType, LockRange)>, Fault> {
        let args = LocktArgs { locktype, offset: range.offset, length: range.length, owner: name.wire() };
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
