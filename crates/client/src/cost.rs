//! What operations cost in a COMPOUND, for those who pack many into one. Pure.

use landfast_nfs::v4::ArgOp;
use landfast_nfs::v4::attr::number;

use crate::limits::XATTR_BYTES_MAX;

/// Bytes of a request before the operations: RPC header with a large AUTH_SYS, COMPOUND header, SEQUENCE.
pub(crate) const REQUEST_HEAD: usize = 768;
/// Bytes of a reply before the results: RPC header, COMPOUND header, SEQUENCE.
pub(crate) const REPLY_HEAD: usize = 128;
/// Longest owner or group name that a reply is expected to hold, bytes.
const OWNER_BYTES: usize = 132;

/// Upper bound of the bytes of an operation's successful result, its number and status included.
pub(crate) fn result_bytes(op: &ArgOp) -> usize {
    8 + match op {
        ArgOp::Open(_) => 104,
        ArgOp::Getfh => 4 + 128,
        ArgOp::Create(_) => 44,
        ArgOp::Remove(_) | ArgOp::Link(_) | ArgOp::Setxattr(_) => 20,
        ArgOp::Rename(_) => 40,
        ArgOp::Write(_) => 16,
        ArgOp::Setattr(_) => 20,
        ArgOp::Close(_) => 16,
        ArgOp::Commit(_) | ArgOp::Access(_) => 8,
        ArgOp::Readlink => 4 + 4096,
        ArgOp::Read(args) => 8 + 4 + args.count as usize,
        ArgOp::Readdir(args) => args.maxcount as usize,
        ArgOp::Listxattrs(args) => args.maxcount as usize,
        ArgOp::Getxattr(_) => 4 + XATTR_BYTES_MAX,
        ArgOp::Getattr(mask) => {
            let of = |n, bytes| if mask.has(n) { bytes } else { 0 };
            24 + 256
                + of(number::FILEHANDLE, 132)
                + of(number::OWNER, OWNER_BYTES)
                + of(number::OWNER_GROUP, OWNER_BYTES)
        }
        // A status and nothing else.
        ArgOp::Putfh(_)
        | ArgOp::Putrootfh
        | ArgOp::Savefh
        | ArgOp::Restorefh
        | ArgOp::Lookup(_)
        | ArgOp::Lookupp
        | ArgOp::Verify(_)
        | ArgOp::Nverify(_) => 0,
        _ => 64,
    }
}
