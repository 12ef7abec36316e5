//! The volume's errors as the protocol's.

use landfast_nfs::v4::NfsStat;
use landfast_volume::Error;

/// The status for an error of the volume, where the operation does not know better.
#[must_use]
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

/// The status for an error of REMOVE and RENAME: something that is busy there (a mount point) will not cease to be by
/// waiting a little, as `DELAY` would say.
#[must_use]
pub fn status_of_names(e: Error) -> NfsStat {
    match e {
        Error::Busy | Error::Mounted => NfsStat::NFS4ERR_FILE_OPEN,
        e => status(e),
    }
}

/// The status for an error of setting attributes, ACLs among them: a filesystem without them, or an object that can have none,
/// does not support the attribute (RFC 8881 sections 6.4.1 and 15.2).
#[must_use]
pub fn status_of_acls(e: Error) -> NfsStat {
    match e {
        Error::NotSupported => NfsStat::NFS4ERR_ATTRNOTSUPP,
        e => status(e),
    }
}

/// Checks a component name (RFC 8881 section 14.2; any bytes but NUL and `/` may stand in it).
///
/// # Errors
/// `INVAL` for an empty name, `BADNAME` for `.` and `..`, `NAMETOOLONG`, `BADCHAR`.
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
