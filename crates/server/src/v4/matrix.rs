//! The operations as data (RFC 7530 section 16, RFC 8881 section 17, RFC 7862 section 14, RFC 8276 section 8.4): in
//! which minor versions they exist, what they do, what they need, how large their result can be.

use crate::limits;
use landfast_nfs::v4::args::OpenHow;
use landfast_nfs::v4::{ArgOp, OpNum, StableHow};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    /// Changes nothing, or only what the client can ask for again.
    Reads,
    /// Changes opens, locks, clients or sessions.
    State,
    /// Changes the tree, and so passes through the log.
    Modifies,
    /// The protocol has it, this server has not: `NOTSUPP`.
    Unsupported,
}

/// Where an operation may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// After a SEQUENCE.
    InSession,
    /// After a SEQUENCE, or alone (RFC 8881 section 2.10.2.1 and the operations' own sections).
    InSessionOrAlone,
    Alone,
    /// First only: SEQUENCE.
    First,
}

#[derive(Debug, Clone, Copy)]
pub struct OpSpec {
    pub op: OpNum,
    /// The first minor version that has it.
    pub minor: u32,
    /// The last minor version that has it: in later ones it is `NOTSUPP`.
    pub last: u32,
    /// The first minor version in which it is served: in earlier ones that have it, it is `NOTSUPP`.
    pub served_since: u32,
    pub does: Does,
    pub place: Place,
    pub needs_fh: bool,
    pub needs_saved: bool,
    /// The most bytes of a successful result, number and status included, for modifying operations. For reading ones it
    /// is 8: their results are measured once they exist.
    pub result_max: usize,
}

const fn spec(op: OpNum, minor: u32, does: Does, place: Place, result_max: usize) -> OpSpec {
    OpSpec {
        op,
        minor,
        last: 2,
        served_since: minor,
        does,
        place,
        needs_fh: true,
        needs_saved: false,
        result_max,
    }
}

/// The first minor version that has an operation of this number.
const fn since(op: OpNum) -> u32 {
    match op.0 {
        0..=39 => 0,
        40..=58 => 1,
        _ => 2,
    }
}

/// An operation that only NFSv4.0 has.
const fn only40(mut s: OpSpec) -> OpSpec {
    s.last = 0;
    s
}

/// An operation that is not served in NFSv4.0.
const fn not40(mut s: OpSpec) -> OpSpec {
    s.served_since = 1;
    s
}

const fn no_fh(mut s: OpSpec) -> OpSpec {
    s.needs_fh = false;
    s
}

const fn saved(mut s: OpSpec) -> OpSpec {
    s.needs_saved = true;
    s
}

const fn read(op: OpNum) -> OpSpec {
    spec(op, since(op), Does::Reads, Place::InSession, 8)
}

const fn state(op: OpNum, result_max: usize) -> OpSpec {
    spec(op, since(op), Does::State, Place::InSession, result_max)
}

const fn modify(op: OpNum, result_max: usize) -> OpSpec {
    spec(op, since(op), Does::Modifies, Place::InSession, result_max)
}

const fn absent(op: OpNum, minor: u32) -> OpSpec {
    no_fh(spec(op, minor, Does::Unsupported, Place::InSession, 8))
}

/// Number and status.
const HEAD: usize = 8;
const STATEID: usize = 16;
const CINFO: usize = 20;
/// A delegation for writing: type, stateid, whether it is recalled, space limit, an access control entry for nobody.
const DELEGATION: usize = 4 + STATEID + 4 + 12 + 16;
/// A bitmap of at most four words.
const BITMAP: usize = 20;

/// All operations of minor versions 0, 1 and 2.
pub const OPS: &[OpSpec] = &[
    read(OpNum::ACCESS),
    state(OpNum::CLOSE, HEAD + STATEID),
    modify(OpNum::COMMIT, HEAD + 8),
    modify(OpNum::CREATE, HEAD + CINFO + BITMAP),
    absent(OpNum::DELEGPURGE, 0),
    not40(state(OpNum::DELEGRETURN, HEAD)),
    read(OpNum::GETATTR),
    read(OpNum::GETFH),
    saved(modify(OpNum::LINK, HEAD + CINFO)),
    state(OpNum::LOCK, HEAD + STATEID),
    read(OpNum::LOCKT),
    state(OpNum::LOCKU, HEAD + STATEID),
    read(OpNum::LOOKUP),
    read(OpNum::LOOKUPP),
    read(OpNum::NVERIFY),
    modify(OpNum::OPEN, HEAD + STATEID + CINFO + 4 + BITMAP + DELEGATION),
    absent(OpNum::OPENATTR, 0),
    only40(state(OpNum::OPEN_CONFIRM, HEAD + STATEID)),
    state(OpNum::OPEN_DOWNGRADE, HEAD + STATEID),
    no_fh(read(OpNum::PUTFH)),
    no_fh(read(OpNum::PUTPUBFH)),
    no_fh(read(OpNum::PUTROOTFH)),
    read(OpNum::READ),
    read(OpNum::READDIR),
    read(OpNum::READLINK),
    modify(OpNum::REMOVE, HEAD + CINFO),
    saved(modify(OpNum::RENAME, HEAD + 2 * CINFO)),
    only40(no_fh(state(OpNum::RENEW, HEAD))),
    no_fh(saved(read(OpNum::RESTOREFH))),
    read(OpNum::SAVEFH),
    read(OpNum::SECINFO),
    modify(OpNum::SETATTR, HEAD + BITMAP),
    only40(no_fh(state(OpNum::SETCLIENTID, HEAD + 16))),
    only40(no_fh(state(OpNum::SETCLIENTID_CONFIRM, HEAD))),
    read(OpNum::VERIFY),
    modify(OpNum::WRITE, HEAD + 16),
    only40(no_fh(state(OpNum::RELEASE_LOCKOWNER, HEAD))),
    no_fh(state(OpNum::BACKCHANNEL_CTL, HEAD)),
    no_fh(spec(OpNum::BIND_CONN_TO_SESSION, 1, Does::State, Place::Alone, HEAD + 24)),
    no_fh(spec(OpNum::EXCHANGE_ID, 1, Does::State, Place::InSessionOrAlone, HEAD + 256)),
    no_fh(spec(OpNum::CREATE_SESSION, 1, Does::State, Place::InSessionOrAlone, HEAD + 24 + 2 * 32)),
    no_fh(spec(OpNum::DESTROY_SESSION, 1, Does::State, Place::InSessionOrAlone, HEAD)),
    no_fh(state(OpNum::FREE_STATEID, HEAD)),
    state(OpNum::GET_DIR_DELEGATION, HEAD + 4 + 8 + STATEID + 3 * BITMAP),
    absent(OpNum::GETDEVICEINFO, 1),
    absent(OpNum::GETDEVICELIST, 1),
    absent(OpNum::LAYOUTCOMMIT, 1),
    absent(OpNum::LAYOUTGET, 1),
    absent(OpNum::LAYOUTRETURN, 1),
    read(OpNum::SECINFO_NO_NAME),
    no_fh(spec(OpNum::SEQUENCE, 1, Does::State, Place::First, HEAD + 36)),
    absent(OpNum::SET_SSV, 1),
    no_fh(read(OpNum::TEST_STATEID)),
    absent(OpNum::WANT_DELEGATION, 1),
    no_fh(spec(OpNum::DESTROY_CLIENTID, 1, Does::State, Place::InSessionOrAlone, HEAD)),
    no_fh(state(OpNum::RECLAIM_COMPLETE, HEAD)),
    modify(OpNum::ALLOCATE, HEAD),
    saved(modify(OpNum::COPY, HEAD + 4 + STATEID + 8 + 4 + 8 + 8)),
    absent(OpNum::COPY_NOTIFY, 2),
    modify(OpNum::DEALLOCATE, HEAD),
    read(OpNum::IO_ADVISE),
    absent(OpNum::LAYOUTERROR, 2),
    absent(OpNum::LAYOUTSTATS, 2),
    state(OpNum::OFFLOAD_CANCEL, HEAD),
    read(OpNum::OFFLOAD_STATUS),
    read(OpNum::READ_PLUS),
    read(OpNum::SEEK),
    absent(OpNum::WRITE_SAME, 2),
    saved(modify(OpNum::CLONE, HEAD)),
    read(OpNum::GETXATTR),
    modify(OpNum::SETXATTR, HEAD + CINFO),
    read(OpNum::LISTXATTRS),
    modify(OpNum::REMOVEXATTR, HEAD + CINFO),
];

/// The numbers of [`OPS`] begin with this one, without gaps.
const FIRST: u32 = OpNum::ACCESS.0;

/// The operation of this number in this minor version; `None` is `OP_ILLEGAL`.
pub fn find(op: OpNum, minor: u32) -> Option<&'static OpSpec> {
    OPS.get(op.0.checked_sub(FIRST)? as usize).filter(|s| s.op == op && s.minor <= minor)
}

/// Whether an operation may change the tree: an OPEN that makes nothing does not.
pub fn may_modify(op: &ArgOp, minor: u32) -> bool {
    match op {
        ArgOp::Open(a) => a.openhow != OpenHow::NoCreate,
        op => find(op.op(), minor).is_some_and(|s| s.does == Does::Modifies),
    }
}

/// Whether a COMPOUND of these waits for the disk, even if no single operation does: many small copies add up to a
/// large one.
pub fn waits_for_the_disk(ops: &[ArgOp]) -> bool {
    let mut copied = 0u64;
    ops.iter().any(|op| {
        if let ArgOp::Copy(a) = op {
            copied = copied.saturating_add(a.count);
        }
        copied > limits::LOGGED_WRITE_MAX as u64 || may_flush(op)
    })
}

fn may_flush(op: &ArgOp) -> bool {
    match op {
        ArgOp::Commit(_) | ArgOp::Allocate(_) | ArgOp::Clone(_) | ArgOp::OffloadCancel(_) => true,
        ArgOp::Copy(a) => a.count == 0 || a.count > limits::LOGGED_WRITE_MAX as u64,
        ArgOp::Write(a) => a.stable != StableHow::Unstable && a.data.len() > limits::LOGGED_WRITE_MAX,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_nfs::v4::Stateid;
    use landfast_nfs::v4::data::CopyArgs;

    #[test]
    fn many_small_copies_wait_for_the_disk_as_a_large_one_does() {
        let copy = |count| {
            ArgOp::Copy(CopyArgs {
                src_stateid: Stateid::ANONYMOUS,
                dst_stateid: Stateid::ANONYMOUS,
                src_offset: 0,
                dst_offset: 0,
                count,
                consecutive: true,
                synchronous: true,
                source_server: Vec::new(),
            })
        };
        let max = limits::LOGGED_WRITE_MAX as u64;
        assert!(!waits_for_the_disk(&[copy(max)]));
        assert!(waits_for_the_disk(&[copy(max + 1)]) && waits_for_the_disk(&[copy(0)]));
        assert!(!waits_for_the_disk(&[copy(max / 2), copy(max / 2)]));
        assert!(waits_for_the_disk(&[copy(max / 2), copy(max / 2), copy(1)]));
        assert!(waits_for_the_disk(&[copy(u64::MAX), copy(u64::MAX)]));
    }

    #[test]
    fn the_table_is_dense_and_each_number_finds_its_own_row() {
        for (i, s) in OPS.iter().enumerate() {
            assert_eq!(s.op.0, FIRST + i as u32, "{}", s.op);
            assert_eq!(find(s.op, 2).map(|f| f.op), Some(s.op));
            assert_eq!(find(s.op, 1).is_some(), s.op.0 <= OpNum::RECLAIM_COMPLETE.0, "{}", s.op);
            assert_eq!(find(s.op, 0).is_some(), s.op.0 <= OpNum::RELEASE_LOCKOWNER.0, "{}", s.op);
        }
        for n in [0, 1, 2, 76, 1000, OpNum::ILLEGAL.0, u32::MAX] {
            assert!(find(OpNum(n), 2).is_none());
        }
    }
}
