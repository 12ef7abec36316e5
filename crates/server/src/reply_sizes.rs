//! How large a reply may become, known before it is made: the request waits for that much room
//! ([`landfast_rpc::ConnInfo::room`]).

use crate::limits;
use crate::v3::DecodedCall;
use landfast_nfs::v3::Call;
use landfast_nfs::v4::ArgOp;

/// A result without any of the following: a status, a handle, a stateid, change information.
const PLAIN: usize = 256;
/// Attributes, with the names of owners; a lock's owner; the target of a symbolic link.
const NAMES: usize = 4 << 10;
/// An access control list or the value of an extended attribute, whose bytes the filesystem bounds, in its longest
/// form.
const LIST: usize = 256 << 10;
const ACL: u32 = 12;

/// The largest reply to a COMPOUND.
pub(crate) fn compound(ops: &[ArgOp]) -> usize {
    let of = |op: &ArgOp| match op {
        ArgOp::Read(a) | ArgOp::ReadPlus(a) => NAMES + a.count.min(limits::IO_BYTES_MAX) as usize,
        ArgOp::Readdir(a) => NAMES + a.maxcount.min(limits::READDIR_BYTES_MAX) as usize,
        ArgOp::Listxattrs(a) => NAMES + a.maxcount.min(limits::READDIR_BYTES_MAX) as usize,
        ArgOp::Getattr(asked) if asked.has(ACL) => LIST,
        ArgOp::Getxattr(_) => LIST,
        ArgOp::Getattr(_) | ArgOp::Readlink | ArgOp::Lock(_) | ArgOp::Lockt(_) | ArgOp::ExchangeId(_) => {
            NAMES
        }
        ArgOp::TestStateid(a) => PLAIN + 4 * a.len(),
        _ => PLAIN,
    };
    ops.iter().map(of).fold(0, usize::saturating_add).min(limits::RESPONSE_BYTES_MAX as usize)
}

/// The largest reply to a call of NFSv3 or NFSACL.
pub(crate) fn v3(call: &DecodedCall) -> usize {
    let bytes = match call {
        DecodedCall::V3(Call::Read(a)) => a.count.min(limits::V3_IO_BYTES_MAX),
        DecodedCall::V3(Call::Readdir(a)) => a.count.min(limits::READDIR_BYTES_MAX),
        DecodedCall::V3(Call::Readdirplus(a)) => a.maxcount.min(limits::READDIR_BYTES_MAX),
        DecodedCall::Getacl(_) => return LIST,
        _ => 0,
    };
    NAMES + bytes as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_nfs::v4::args::ReadArgs;
    use landfast_nfs::v4::{Bitmap, Stateid};

    #[test]
    fn data_and_lists_count_and_no_reply_is_larger_than_the_largest() {
        let read = |count| ArgOp::Read(ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count });
        assert!(compound(&[ArgOp::Putrootfh, ArgOp::Getfh]) <= landfast_rpc::limits::SMALL_REPLY);
        assert_eq!(compound(&[ArgOp::Putrootfh, read(1 << 20)]), (1 << 20) + NAMES + PLAIN);
        assert_eq!(compound(&[ArgOp::Getattr(Bitmap::of(&[1, ACL]))]), LIST);
        let many: Vec<_> = (0..4096).map(|_| read(u32::MAX)).collect();
        assert_eq!(compound(&many), limits::RESPONSE_BYTES_MAX as usize);
    }
}
