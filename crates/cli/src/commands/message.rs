//! Errors in the words of the system (`strerror`). Pure.

use landfast_client::fs::{Failure, ItemError};
use landfast_nfs::v4::NfsStat;

pub fn of_status(status: NfsStat) -> String {
    let text = match status {
        NfsStat::NFS4ERR_PERM => "Operation not permitted",
        NfsStat::NFS4ERR_NOENT => "No such file or directory",
        NfsStat::NFS4ERR_IO => "Input/output error",
        NfsStat::NFS4ERR_NXIO => "No such device or address",
        NfsStat::NFS4ERR_ACCESS => "Permission denied",
        NfsStat::NFS4ERR_EXIST => "File exists",
        NfsStat::NFS4ERR_XDEV => "Invalid cross-device link",
        NfsStat::NFS4ERR_NOTDIR => "Not a directory",
        NfsStat::NFS4ERR_ISDIR => "Is a directory",
        NfsStat::NFS4ERR_INVAL | NfsStat::NFS4ERR_BADNAME | NfsStat::NFS4ERR_BADCHAR => "Invalid argument",
        NfsStat::NFS4ERR_FBIG => "File too large",
        NfsStat::NFS4ERR_NOSPC => "No space left on device",
        NfsStat::NFS4ERR_ROFS => "Read-only file system",
        NfsStat::NFS4ERR_MLINK => "Too many links",
        NfsStat::NFS4ERR_NAMETOOLONG => "File name too long",
        NfsStat::NFS4ERR_NOTEMPTY => "Directory not empty",
        NfsStat::NFS4ERR_DQUOT => "Disk quota exceeded",
        NfsStat::NFS4ERR_STALE | NfsStat::NFS4ERR_FHEXPIRED => "Stale file handle",
        NfsStat::NFS4ERR_NOTSUPP => "Operation not supported",
        NfsStat::NFS4ERR_SYMLINK => "Too many levels of symbolic links",
        NfsStat::NFS4ERR_SERVERFAULT => "Remote I/O error",
        NfsStat::NFS4ERR_LOCKED | NfsStat::NFS4ERR_DELAY => "Resource temporarily unavailable",
        status => return status.to_string(),
    };
    text.to_owned()
}

pub fn of(error: &ItemError) -> String {
    match error {
        ItemError::Failed(Failure::Root) => "this is the top of the export".to_owned(),
        ItemError::Failed(failure) => of_status(failure.status()),
        ItemError::NotExecuted(_) | ItemError::Unknown(_) => error.to_string(),
    }
}

/// An error of the system without its number.
pub fn plain(e: &impl std::fmt::Display) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_system_is_shown_without_its_number() {
        let e = std::io::Error::from_raw_os_error(2);
        assert_eq!(plain(&e), "No such file or directory");
    }
}
