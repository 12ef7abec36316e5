//! The volume's errors and bad names as `nfsstat3` (RFC 1813 sections 2.6 and 3.2).

use crate::limits;
use landfast_nfs::v3::NfsStat3;
use landfast_volume::Error;

/// The status for an error of the volume, where the procedure does not know better.
pub(super) fn status(e: Error) -> NfsStat3 {
    match e {
        Error::BadHandle => NfsStat3::BADHANDLE,
        Error::Stale => NfsStat3::STALE,
        Error::NoEnt => NfsStat3::NOENT,
        Error::Exists => NfsStat3::EXIST,
        Error::NotDir => NfsStat3::NOTDIR,
        Error::IsDir => NfsStat3::ISDIR,
        Error::NotEmpty => NfsStat3::NOTEMPTY,
        Error::NameTooLong => NfsStat3::NAMETOOLONG,
        // A mount point is not crossed: whoever asks may not go there.
        Error::NameEmpty | Error::NameChar | Error::Access | Error::Mounted => NfsStat3::ACCES,
        Error::BadCookie => NfsStat3::BAD_COOKIE,
        Error::Perm => NfsStat3::PERM,
        Error::ReadOnly => NfsStat3::ROFS,
        Error::NotSupported => NfsStat3::NOTSUPP,
        Error::CrossDevice => NfsStat3::XDEV,
        Error::TooManyLinks => NfsStat3::MLINK,
        Error::TooBig => NfsStat3::FBIG,
        Error::NoSpace => NfsStat3::NOSPC,
        Error::Quota => NfsStat3::DQUOT,
        Error::Busy | Error::Resources => NfsStat3::JUKEBOX,
        Error::Io | Error::Failed => NfsStat3::IO,
        // What else there is has no number of its own in this version.
        _ => NfsStat3::INVAL,
    }
}

/// The status for an error of REMOVE, RMDIR and RENAME: something that is busy there (a mount point) will not cease to be
/// by waiting a little, as `JUKEBOX` would say.
pub(super) fn status_of_names(e: Error) -> NfsStat3 {
    match e {
        Error::Busy => NfsStat3::ACCES,
        e => status(e),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameUse {
    New,
    /// To be removed or moved.
    Existing,
}

/// Checks the name of an entry (RFC 1813 section 3.2; any bytes but NUL and `/` may stand in it).
/// Errors: `ACCES` for an empty name and for what cannot stand in one; `NAMETOOLONG`; for `.` and `..`, which are
/// always there and never go, `EXIST` and `INVAL`.
pub(super) fn check_name(name: &[u8], what_for: NameUse) -> Result<(), NfsStat3> {
    match name {
        b"." | b".." if what_for == NameUse::New => Err(NfsStat3::EXIST),
        b"." | b".." => Err(NfsStat3::INVAL),
        n if n.len() > limits::NAME_MAX => Err(NfsStat3::NAMETOOLONG),
        n if n.is_empty() || n.iter().any(|b| matches!(b, 0 | b'/')) => Err(NfsStat3::ACCES),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc1813_3_2_names() {
        assert_eq!(check_name(b"", NameUse::New), Err(NfsStat3::ACCES));
        assert_eq!(check_name(b"..", NameUse::New), Err(NfsStat3::EXIST));
        assert_eq!(check_name(b".", NameUse::Existing), Err(NfsStat3::INVAL));
        assert_eq!(check_name(b"a/b", NameUse::New), Err(NfsStat3::ACCES));
        assert_eq!(check_name(b"a\0", NameUse::Existing), Err(NfsStat3::ACCES));
        assert_eq!(check_name(&[b'x'; 256], NameUse::New), Err(NfsStat3::NAMETOOLONG));
        assert_eq!(check_name(&[0xff; 255], NameUse::New), Ok(()));
    }
}
