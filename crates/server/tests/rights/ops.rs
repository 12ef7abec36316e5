//! The operations that act on a file under a stateid, or without one on behalf of who has it open: what each needs, and how it
//! is said.

use super::victim::Victim;
use crate::common::{fattr, read_op, write_op};
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::data::*;
use landfast_nfs::v4::*;

/// What an operation needs of the caller's rights to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Read,
    Write,
    /// Any of the two.
    Either,
    /// It only gives up what the client has: any user of the client may.
    Nothing,
}

pub struct Op {
    pub name: &'static str,
    pub needs: Needs,
    /// It changes something, so a read-only export refuses it whatever it needs of this file.
    pub modifies: bool,
    /// It presents a stateid.
    pub stateid: bool,
    pub since: u32,
    /// What a caller is told who may, where that is not `OK` everywhere.
    pub also: &'static [NfsStat],
    pub say: fn(&Victim) -> Vec<ArgOp>,
}

pub const NEW: &[u8] = b"overwritten";

fn range(v: &Victim) -> RangeArgs {
    RangeArgs { stateid: v.open, offset: 0, length: 4096 }
}

fn lock(v: &Victim, locktype: LockType, locker: Locker) -> Vec<ArgOp> {
    vec![v.put(), ArgOp::Lock(LockArgs { locktype, reclaim: false, offset: 100, length: 10, locker })]
}

fn new_locker(v: &Victim) -> Locker {
    let lock_owner = owner(v.client, &[v.owner.as_bytes(), b"-second"].concat());
    Locker::New { open_seqid: v.open_seqid + 1, open_stateid: v.open, lock_seqid: 1, lock_owner }
}

fn copy(src: Stateid, dst: Stateid) -> CopyArgs {
    CopyArgs {
        src_stateid: src,
        dst_stateid: dst,
        src_offset: 0,
        dst_offset: 0,
        count: 0,
        consecutive: true,
        synchronous: true,
        source_server: Vec::new(),
    }
}

fn clone(src: Stateid, dst: Stateid) -> CloneArgs {
    CloneArgs { src_stateid: src, dst_stateid: dst, src_offset: 0, dst_offset: 0, count: 0 }
}

/// From the file into one that everybody may write, or back.
fn out_of(v: &Victim, op: ArgOp) -> Vec<ArgOp> {
    vec![v.put(), ArgOp::Savefh, ArgOp::Putfh(v.common.clone()), op]
}

fn into(v: &Victim, op: ArgOp) -> Vec<ArgOp> {
    vec![ArgOp::Putfh(v.common.clone()), ArgOp::Savefh, v.put(), op]
}

const fn op(name: &'static str, needs: Needs, since: u32, say: fn(&Victim) -> Vec<ArgOp>) -> Op {
    let modifies = matches!(needs, Needs::Write);
    Op { name, needs, modifies, stateid: true, since, also: &[], say }
}

/// ext4 has no CLONE.
const NO_CLONE: &[NfsStat] = &[NfsStat::NFS4ERR_NOTSUPP];

pub fn all() -> Vec<Op> {
    use Needs::*;
    vec![
        op("READ", Read, 0, |v| vec![v.put(), read_op(v.open, 0, 100)]),
        op("READ by lock stateid", Read, 0, |v| vec![v.put(), read_op(v.lock, 0, 100)]),
        op("WRITE", Write, 0, |v| vec![v.put(), write_op(v.open, 0, NEW)]),
        op("WRITE by lock stateid", Write, 0, |v| vec![v.put(), write_op(v.lock, 0, NEW)]),
        op("WRITE UNSTABLE", Write, 0, |v| match write_op(v.open, 0, NEW) {
            ArgOp::Write(a) => {
                vec![v.put(), ArgOp::Write(WriteArgs { stable: StableHow::Unstable, ..a })]
            }
            other => panic!("{other:?}"),
        }),
        op("SETATTR size", Write, 0, |v| {
            let attrs = fattr(AttrValues { size: Some(1), ..AttrValues::default() });
            vec![v.put(), ArgOp::Setattr(SetattrArgs { stateid: v.open, attrs })]
        }),
        Op {
            stateid: false,
            ..op("COMMIT", Write, 0, |v| vec![v.put(), ArgOp::Commit(CommitArgs { offset: 0, count: 0 })])
        },
        op("LOCK new WRITE", Write, 0, |v| lock(v, LockType::Write, new_locker(v))),
        op("LOCK new READ", Read, 0, |v| lock(v, LockType::Read, new_locker(v))),
        op("LOCK known WRITE", Write, 0, |v| {
            lock(v, LockType::Write, Locker::Existing { lock_stateid: v.lock, lock_seqid: 2 })
        }),
        Op {
            stateid: false,
            ..op("LOCKT", Either, 0, |v| {
                let owner = owner(v.client, b"somebody");
                let a = LocktArgs { locktype: LockType::Write, offset: 500, length: 1, owner };
                vec![v.put(), ArgOp::Lockt(a)]
            })
        },
        op("LOCKU", Nothing, 0, |v| {
            let a =
                LockuArgs { locktype: LockType::Write, seqid: 2, lock_stateid: v.lock, offset: 0, length: 1 };
            vec![v.put(), ArgOp::Locku(a)]
        }),
        op("OPEN_DOWNGRADE", Nothing, 0, |v| {
            let a = OpenDowngradeArgs {
                open_stateid: v.open,
                seqid: v.open_seqid + 1,
                share_access: 3,
                share_deny: 0,
            };
            vec![v.put(), ArgOp::OpenDowngrade(a)]
        }),
        op("CLOSE", Nothing, 0, |v| {
            vec![v.put(), ArgOp::Close(CloseArgs { seqid: v.open_seqid + 1, open_stateid: v.open })]
        }),
        Op {
            also: &[NfsStat::NFS4ERR_LOCKS_HELD],
            ..op("FREE_STATEID", Nothing, 1, |v| vec![v.put(), ArgOp::FreeStateid(v.lock)])
        },
        op("SEEK", Read, 2, |v| {
            vec![v.put(), ArgOp::Seek(SeekArgs { stateid: v.open, offset: 0, what: CONTENT_DATA })]
        }),
        op("READ_PLUS", Read, 2, |v| {
            vec![v.put(), ArgOp::ReadPlus(ReadPlusArgs { stateid: v.open, offset: 0, count: 100 })]
        }),
        op("IO_ADVISE", Read, 2, |v| {
            let hints = Bitmap::of(&[advice::WILLNEED]);
            let a = IoAdviseArgs { stateid: v.open, offset: 0, count: 0, hints };
            vec![v.put(), ArgOp::IoAdvise(a)]
        }),
        op("ALLOCATE", Write, 2, |v| vec![v.put(), ArgOp::Allocate(range(v))]),
        op("DEALLOCATE", Write, 2, |v| vec![v.put(), ArgOp::Deallocate(range(v))]),
        Op {
            modifies: true,
            ..op("COPY out of", Read, 2, |v| out_of(v, ArgOp::Copy(copy(v.open, Stateid::ANONYMOUS))))
        },
        op("COPY into", Write, 2, |v| into(v, ArgOp::Copy(copy(Stateid::ANONYMOUS, v.open)))),
        Op {
            modifies: true,
            also: NO_CLONE,
            ..op("CLONE out of", Read, 2, |v| out_of(v, ArgOp::Clone(clone(v.open, Stateid::ANONYMOUS))))
        },
        Op {
            also: NO_CLONE,
            ..op("CLONE into", Write, 2, |v| into(v, ArgOp::Clone(clone(Stateid::ANONYMOUS, v.open))))
        },
    ]
}
