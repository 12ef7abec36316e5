//! Statuses of NFS as error numbers of this system.

use landfast_nfs::v4::NfsStat;

/// An error number (`libc::E*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub i32);

impl Errno {
    pub const IO: Errno = Errno(libc::EIO);
    pub const STALE: Errno = Errno(libc::ESTALE);
    pub const NOENT: Errno = Errno(libc::ENOENT);
    pub const EXIST: Errno = Errno(libc::EEXIST);
    pub const NOTSUP: Errno = Errno(libc::EOPNOTSUPP);
    pub const INVAL: Errno = Errno(libc::EINVAL);
    pub const TIMEDOUT: Errno = Errno(libc::ETIMEDOUT);
    pub const BADF: Errno = Errno(libc::EBADF);
    pub const NODATA: Errno = Errno(libc::ENODATA);
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl From<NfsStat> for Errno {
    fn from(status: NfsStat) -> Errno {
        Errno(match status {
            NfsStat::NFS4ERR_PERM => libc::EPERM,
            NfsStat::NFS4ERR_NOENT => libc::ENOENT,
            NfsStat::NFS4ERR_NXIO => libc::ENXIO,
            NfsStat::NFS4ERR_ACCESS | NfsStat::NFS4ERR_SHARE_DENIED | NfsStat::NFS4ERR_WRONGSEC => {
                libc::EACCES
            }
            NfsStat::NFS4ERR_EXIST => libc::EEXIST,
            NfsStat::NFS4ERR_XDEV => libc::EXDEV,
            NfsStat::NFS4ERR_NOTDIR => libc::ENOTDIR,
            NfsStat::NFS4ERR_ISDIR => libc::EISDIR,
            NfsStat::NFS4ERR_INVAL
            | NfsStat::NFS4ERR_BADTYPE
            | NfsStat::NFS4ERR_BADCHAR
            | NfsStat::NFS4ERR_BADNAME
            | NfsStat::NFS4ERR_BADOWNER
            | NfsStat::NFS4ERR_LOCK_RANGE
            | NfsStat::NFS4ERR_BAD_RANGE => libc::EINVAL,
            NfsStat::NFS4ERR_FBIG => libc::EFBIG,
            NfsStat::NFS4ERR_NOSPC => libc::ENOSPC,
            NfsStat::NFS4ERR_ROFS => libc::EROFS,
            NfsStat::NFS4ERR_MLINK => libc::EMLINK,
            NfsStat::NFS4ERR_NAMETOOLONG => libc::ENAMETOOLONG,
            NfsStat::NFS4ERR_NOTEMPTY => libc::ENOTEMPTY,
            NfsStat::NFS4ERR_DQUOT => libc::EDQUOT,
            NfsStat::NFS4ERR_STALE | NfsStat::NFS4ERR_BADHANDLE | NfsStat::NFS4ERR_FHEXPIRED => libc::ESTALE,
            NfsStat::NFS4ERR_NOTSUPP
            | NfsStat::NFS4ERR_ATTRNOTSUPP
            | NfsStat::NFS4ERR_OP_ILLEGAL
            | NfsStat::NFS4ERR_UNION_NOTSUPP => libc::EOPNOTSUPP,
            NfsStat::NFS4ERR_SYMLINK => libc::ELOOP,
            NfsStat::NFS4ERR_DENIED | NfsStat::NFS4ERR_LOCKED => libc::EAGAIN,
            NfsStat::NFS4ERR_LOCK_NOTSUPP | NfsStat::NFS4ERR_NO_GRACE => libc::ENOLCK,
            NfsStat::NFS4ERR_DEADLOCK => libc::EDEADLK,
            NfsStat::NFS4ERR_FILE_OPEN => libc::EBUSY,
            NfsStat::NFS4ERR_NOXATTR => libc::ENODATA,
            NfsStat::NFS4ERR_XATTR2BIG => libc::E2BIG,
            _ => libc::EIO,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_number_of_its_own_is_an_input_output_error() {
        assert_eq!(Errno::from(NfsStat::NFS4ERR_NOENT), Errno::NOENT);
        assert_eq!(Errno::from(NfsStat::NFS4ERR_DQUOT), Errno(libc::EDQUOT));
        assert_eq!(Errno::from(NfsStat::NFS4ERR_SERVERFAULT), Errno::IO);
        assert_eq!(Errno::from(NfsStat(99_999)), Errno::IO);
    }
}
