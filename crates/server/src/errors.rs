//! The volume's errors as the protocol's.

use landfast_nfs::v4::valid::is_valid;
use landfast_nfs::v4::{NfsStat, OpNum};
use landfast_volume::Error;
use std::sync::LazyLock;

/// The status for an error of the volume, unless the operation has a better one.
pub fn status(e: Error) -> NfsStat {
    match e {
        Error::BadHandle => NfsStat::NFS4ERR_BADHANDLE,
        Error::Stale => NfsStat::NFS4ERR_STALE,
        Error::NoEnt => NfsStat::NFS4ERR_NOENT,
        Error::Exists => NfsStat::NFS4ERR_EXIST,
        Error::NotDir => NfsStat::NFS4ERR_NOTDIR,
        Error::IsDir => NfsStat::NFS4ERR_ISDIR,
        Error::NotEmpty => NfsStat::NFS4ERR_NOTEMPTY,
        Error::WrongKind => NfsStat::NFS4ERR_WRONG_TYPE,
        Error::Symlink => NfsStat::NFS4ERR_SYMLINK,
        Error::NameEmpty | Error::Inval => NfsStat::NFS4ERR_INVAL,
        Error::NameDots => NfsStat::NFS4ERR_BADNAME,
        Error::NameChar => NfsStat::NFS4ERR_BADCHAR,
        Error::NameTooLong => NfsStat::NFS4ERR_NAMETOOLONG,
        Error::BadCookie => NfsStat::NFS4ERR_BAD_COOKIE,
        // LOOKUP and OPEN have no status for a mount point that is not to be crossed; whoever asks may not go there.
        Error::Access | Error::Mounted => NfsStat::NFS4ERR_ACCESS,
        Error::Perm => NfsStat::NFS4ERR_PERM,
        Error::ReadOnly => NfsStat::NFS4ERR_ROFS,
        Error::BeyondEnd => NfsStat::NFS4ERR_NXIO,
        Error::NotSupported => NfsStat::NFS4ERR_NOTSUPP,
        Error::CrossDevice => NfsStat::NFS4ERR_XDEV,
        Error::TooManyLinks => NfsStat::NFS4ERR_MLINK,
        Error::TooBig => NfsStat::NFS4ERR_FBIG,
        Error::NoSpace => NfsStat::NFS4ERR_NOSPC,
        Error::Quota => NfsStat::NFS4ERR_DQUOT,
        Error::NoXattr => NfsStat::NFS4ERR_NOXATTR,
        Error::XattrTooBig => NfsStat::NFS4ERR_XATTR2BIG,
        Error::Busy | Error::Resources => NfsStat::NFS4ERR_DELAY,
        Error::Io | Error::Failed => NfsStat::NFS4ERR_IO,
    }
}

/// By the number of an operation: whether the tables of NFSv4.0 or 4.2 list `IO` for it. (Those of 4.2 include 4.1.)
static OPS_WITH_IO: LazyLock<[bool; 80]> = LazyLock::new(|| {
    let lists_io = |op| [0, 2].iter().any(|minor| is_valid(*minor, OpNum(op as u32), NfsStat::NFS4ERR_IO));
    std::array::from_fn(lists_io)
});

/// The status of an operation whose effect, or the basis of whose answer, may not be durable. It is `IO` where the
/// tables of RFC 8881 section 15.2, RFC 7862 section 11.2, RFC 8276 section 8.4.5 and RFC 7530 section 13.2 list that
/// for the operation, else `SERVERFAULT`. Both make clients give up: neither says that an object is gone, nor that a
/// retry may succeed.
pub fn status_of_failed(op: OpNum) -> NfsStat {
    let lists_io = OPS_WITH_IO.get(op.0 as usize) == Some(&true);
    if lists_io { NfsStat::NFS4ERR_IO } else { NfsStat::NFS4ERR_SERVERFAULT }
}

/// Whether a status is what [`status_of_failed`] gives.
pub fn says_failed(status: NfsStat) -> bool {
    matches!(status, NfsStat::NFS4ERR_IO | NfsStat::NFS4ERR_SERVERFAULT)
}

/// The status for an error of REMOVE and RENAME. A busy object (a mount point) stays busy, so `DELAY` would be wrong.
pub fn status_of_names(e: Error) -> NfsStat {
    match e {
        Error::Busy | Error::Mounted => NfsStat::NFS4ERR_FILE_OPEN,
        e => status(e),
    }
}

/// The status for an error of setting attributes or ACLs. Where the filesystem or the object cannot have ACLs, the
/// attribute is not supported (RFC 8881 sections 6.4.1 and 15.2).
pub fn status_of_acls(e: Error) -> NfsStat {
    match e {
        Error::NotSupported => NfsStat::NFS4ERR_ATTRNOTSUPP,
        e => status(e),
    }
}

/// Checks a component name (RFC 8881 section 14.2; any bytes but NUL and `/` may stand in it).
/// Errors: `INVAL` for an empty name, `BADNAME` for `.` and `..`, `NAMETOOLONG`, `BADCHAR`.
pub fn check_name(name: &[u8]) -> Result<(), NfsStat> {
    match name {
        b"" => Err(NfsStat::NFS4ERR_INVAL),
        b"." | b".." => Err(NfsStat::NFS4ERR_BADNAME),
        n if n.len() > crate::limits::NAME_MAX => Err(NfsStat::NFS4ERR_NAMETOOLONG),
        n if n.iter().any(|b| matches!(b, 0 | b'/')) => Err(NfsStat::NFS4ERR_BADCHAR),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc8881_15_2_and_rfc7530_13_2_what_failed_is_said_as_the_tables_have_it() {
        for minor in 0..=2 {
            let ops = (3..80).map(OpNum).filter(|op| is_valid(minor, *op, NfsStat::NFS4_OK));
            // RFC 7862 leaves GETDEVICELIST nothing but NOTSUPP.
            for op in ops.filter(|op| *op != OpNum::GETDEVICELIST) {
                let io = is_valid(minor, op, NfsStat::NFS4ERR_IO);
                let status = status_of_failed(op);
                assert_eq!(io, status == NfsStat::NFS4ERR_IO, "{op} in 4.{minor}");
                // What changes something, or waits for what others have changed, may say one of the two.
                let never_waits =
                    [OpNum::SEQUENCE, OpNum::BACKCHANNEL_CTL, OpNum::SET_SSV, OpNum::GETFH, OpNum::LOCKT];
                let of_another = minor > 0 && (35..=36).contains(&op.0) || [20, 30, 39].contains(&op.0);
                assert!(
                    is_valid(minor, op, status) || never_waits.contains(&op) || of_another,
                    "{op}: {status}"
                );
            }
        }
    }

    #[test]
    fn rfc8881_14_names() {
        assert_eq!(check_name(b""), Err(NfsStat::NFS4ERR_INVAL));
        assert_eq!(check_name(b".."), Err(NfsStat::NFS4ERR_BADNAME));
        assert_eq!(check_name(b"a/b"), Err(NfsStat::NFS4ERR_BADCHAR));
        assert_eq!(check_name(b"a\0"), Err(NfsStat::NFS4ERR_BADCHAR));
        assert_eq!(check_name(&[b'x'; 256]), Err(NfsStat::NFS4ERR_NAMETOOLONG));
        assert_eq!(check_name(&[0xff; 255]), Ok(()));
        assert_eq!(check_name(b"..."), Ok(()));
    }
}
