//! Upper bounds for what operations take up in a COMPOUND, for code that packs many. Pure.

use landfast_nfs::v4::ArgOp;
use landfast_nfs::v4::attr::number;

use crate::limits::XATTR_BYTES_MAX;

/// Bytes of a request before its operations: RPC header with a large AUTH_SYS, COMPOUND header, SEQUENCE.
pub(crate) const REQUEST_HEAD: usize = 768;
/// Bytes of a reply before its results: RPC header, COMPOUND header, SEQUENCE.
pub(crate) const REPLY_HEAD: usize = 128;
/// The first bytes of a request, in which Linux's server (up to 6.12 at least) reads the data of WRITE and SETXATTR
/// correctly. For data that starts after its first page it takes other bytes of the request, without an error.
pub(crate) const FIRST_PAGE: usize = 4096;
/// The longest name of an owner or group that a reply is expected to hold, in bytes.
const OWNER_BYTES: usize = 132;

/// Whether the operation that ends at `end` has data that starts after [`FIRST_PAGE`].
pub(crate) fn data_is_late(op: &ArgOp, end: usize) -> bool {
    let data = match op {
        ArgOp::Write(args) => args.data.len(),
        ArgOp::Setxattr(args) => args.value.len(),
        _ => 0,
    };
    data > 0 && REQUEST_HEAD + end.saturating_sub(data) > FIRST_PAGE
}

/// An upper bound for a successful result, with its number and status, in bytes.
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
        // A status only.
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

#[cfg(test)]
mod tests {
    use landfast_nfs::v4::args::WriteArgs;
    use landfast_nfs::v4::{StableHow, Stateid};

    use super::*;

    #[test]
    fn data_is_late_when_it_begins_behind_the_first_page_however_long_it_is() {
        let write = |bytes: usize| {
            let data = vec![0; bytes].into();
            ArgOp::Write(WriteArgs {
                stateid: Stateid::ANONYMOUS,
                offset: 0,
                stable: StableHow::FileSync,
                data,
            })
        };
        assert!(!data_is_late(&write(100_000), 100_300));
        assert!(data_is_late(&write(100_000), 100_000 + FIRST_PAGE));
        assert!(data_is_late(&write(1), FIRST_PAGE));
        assert!(!data_is_late(&write(0), FIRST_PAGE * 2) && !data_is_late(&ArgOp::Getfh, FIRST_PAGE * 2));
    }
}
