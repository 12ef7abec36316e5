//! LOCK, LOCKT and LOCKU as calls of the Network Lock Manager, version 4 (RFC 1813 appendix II; The Open Group C702, chapter 10).
//!
//! A lock is asked for without waiting (`block` is false): whoever waits asks again. So the server never calls back. Locks are not
//! monitored (NM_LOCK): this client has no status monitor, and hears of no restart of the server.
//!
//! | of NFSv4 | of the lock manager |
//! |---|---|
//! | a lock owner's name | a digest of it: `oh`, and the first bytes as `svid` |
//! | a lock stateid | the digest |
//! | a length of 2^64 - 1, to the end of the file | 0 |

use landfast_nfs::nlm::{
    Holder, Lock, LockArgs as NlmLockArgs, NetObj, NlmStat, Res, TestArgs, TestRes, UnlockArgs, proc,
};
use landfast_nfs::v3::FileHandle;
use landfast_nfs::v4::args::{LockArgs, Locker, LocktArgs, LockuArgs, owner};
use landfast_nfs::v4::res::LockDenied;
use landfast_nfs::v4::{LockType, NfsStat, Opaque1024, ResBody, Stateid};
use landfast_rpc::CallError;
use landfast_xdr::{Bytes, Decode, Encode};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

use super::stop::{Done, Stop};
use super::wire::Wire;
use crate::error::SessionError;

/// What stands for a lock owner.
type Digest = [u8; 12];

/// Two owners of one client have the same digest with a probability of 2^-96.
fn digest(name: &[u8]) -> Digest {
    let mut hasher = SipHasher24::new_with_keys(0, 0);
    hasher.write(name);
    let mut digest = Digest::default();
    digest.copy_from_slice(&hasher.finish128().as_bytes()[..12]);
    digest
}

fn stateid(owner: Digest) -> Stateid {
    Stateid { seqid: 1, other: owner }
}

fn is_exclusive(kind: LockType) -> bool {
    matches!(kind, LockType::Write | LockType::WriteW)
}

fn lock_of(wire: &Wire, file: &FileHandle, by: Digest, (offset, length): (u64, u64)) -> Lock {
    let svid = i32::from_be_bytes([by[0] & 0x7f, by[1], by[2], by[3]]);
    Lock {
        caller_name: wire.lock_caller().clone(),
        fh: Opaque1024(file.0.clone()),
        oh: Opaque1024(Bytes::copy_from_slice(&by)),
        svid,
        offset,
        length: if length == u64::MAX { 0 } else { length },
    }
}

/// Answers belong to their calls by the transaction id.
fn cookie() -> NetObj {
    Opaque1024(Bytes::from_static(b"lock"))
}

async fn call<R: Decode>(wire: &Wire, proc: u32, args: Bytes) -> Done<R> {
    match wire.lock_manager(proc, args).await {
        Ok(reply) => Ok(reply),
        // NFS is there and the lock manager is not.
        Err(SessionError::Connect { .. } | SessionError::Rpc(CallError::Failed(_))) => {
            Err(NfsStat::NFS4ERR_LOCK_NOTSUPP.into())
        }
        Err(e) => Err(e.into()),
    }
}

fn status(stat: NlmStat) -> Result<(), NfsStat> {
    Err(match stat {
        NlmStat::GRANTED => return Ok(()),
        NlmStat::DENIED | NlmStat::BLOCKED => NfsStat::NFS4ERR_DENIED,
        NlmStat::DENIED_NOLOCKS => NfsStat::NFS4ERR_LOCK_NOTSUPP,
        NlmStat::DENIED_GRACE_PERIOD => NfsStat::NFS4ERR_GRACE,
        NlmStat::DEADLCK => NfsStat::NFS4ERR_DEADLOCK,
        NlmStat::ROFS => NfsStat::NFS4ERR_ROFS,
        NlmStat::STALE_FH => NfsStat::NFS4ERR_STALE,
        NlmStat::FBIG => NfsStat::NFS4ERR_LOCK_RANGE,
        _ => NfsStat::NFS4ERR_IO,
    })
}

pub(super) async fn lock(wire: &Wire, file: &FileHandle, args: &LockArgs) -> Done<ResBody> {
    let by = match &args.locker {
        Locker::New { lock_owner, .. } => digest(&lock_owner.owner.0),
        Locker::Existing { lock_stateid, .. } => lock_stateid.other,
    };
    let ask = NlmLockArgs {
        cookie: cookie(),
        block: false,
        exclusive: is_exclusive(args.locktype),
        lock: lock_of(wire, file, by, (args.offset, args.length)),
        reclaim: args.reclaim,
        state: 0,
    };
    let reply: Res = call(wire, proc::NM_LOCK, ask.to_bytes()).await?;
    status(reply.stat)?;
    Ok(ResBody::Lock(stateid(by)))
}

pub(super) async fn unlock(wire: &Wire, file: &FileHandle, args: &LockuArgs) -> Done<ResBody> {
    let by = args.lock_stateid.other;
    let ask = UnlockArgs { cookie: cookie(), lock: lock_of(wire, file, by, (args.offset, args.length)) };
    let reply: Res = call(wire, proc::UNLOCK, ask.to_bytes()).await?;
    status(reply.stat)?;
    Ok(ResBody::Locku(stateid(by)))
}

pub(super) async fn test(wire: &Wire, file: &FileHandle, args: &LocktArgs) -> Done<ResBody> {
    let by = digest(&args.owner.owner.0);
    let ask = TestArgs {
        cookie: cookie(),
        exclusive: is_exclusive(args.locktype),
        lock: lock_of(wire, file, by, (args.offset, args.length)),
    };
    let reply: TestRes = call(wire, proc::TEST, ask.to_bytes()).await?;
    match reply.reply.holder {
        Some(holder) => Err(Stop::Denied(denied(&holder))),
        None => {
            status(reply.reply.stat)?;
            Ok(ResBody::Empty)
        }
    }
}

fn denied(holder: &Holder) -> LockDenied {
    LockDenied {
        offset: holder.offset,
        length: if holder.length == 0 { u64::MAX } else { holder.length },
        locktype: if holder.exclusive { LockType::Write } else { LockType::Read },
        owner: owner(0, &holder.oh.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lock_manager_says_becomes_a_status() {
        assert_eq!(status(NlmStat::GRANTED), Ok(()));
        assert_eq!(status(NlmStat::DENIED), Err(NfsStat::NFS4ERR_DENIED));
        assert_eq!(status(NlmStat::DENIED_GRACE_PERIOD), Err(NfsStat::NFS4ERR_GRACE));
        assert_eq!(status(NlmStat::DENIED_NOLOCKS), Err(NfsStat::NFS4ERR_LOCK_NOTSUPP));
        assert_eq!(status(NlmStat(4711)), Err(NfsStat::NFS4ERR_IO));
    }

    #[test]
    fn owners_have_different_digests() {
        assert_eq!(digest(b"lock 1 2"), digest(b"lock 1 2"));
        assert_ne!(digest(b"lock 1 2"), digest(b"lock 1 3"));
    }

    #[test]
    fn a_holder_of_all_to_the_end_is_one_of_nfs() {
        let holder = Holder { exclusive: true, svid: 1, oh: Opaque1024(Bytes::new()), offset: 7, length: 0 };
        let denied = denied(&holder);
        assert_eq!((denied.offset, denied.length, denied.locktype), (7, u64::MAX, LockType::Write));
    }
}
