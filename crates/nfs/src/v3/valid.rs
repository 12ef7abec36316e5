//! Which statuses each procedure may have, as data: the ERRORS of RFC 1813 sections 3.3.1 to 3.3.21.
//!
//! The server does not use this. Tests check every answer against it.

use super::{NfsStat3, PROC_NAMES};
use crate::status::{ErrorTable, errors};

/// The ERRORS of each procedure.
const VALID: ErrorTable = errors! {
    GETATTR: BADHANDLE IO SERVERFAULT STALE;
    SETATTR: ACCES BADHANDLE DQUOT INVAL IO NOSPC NOT_SYNC PERM ROFS SERVERFAULT STALE;
    LOOKUP: ACCES BADHANDLE IO NAMETOOLONG NOENT NOTDIR SERVERFAULT STALE;
    ACCESS: BADHANDLE IO SERVERFAULT STALE;
    READLINK: ACCES BADHANDLE INVAL IO NOTSUPP SERVERFAULT STALE;
    READ: ACCES BADHANDLE INVAL IO NXIO SERVERFAULT STALE;
    WRITE: ACCES BADHANDLE DQUOT FBIG INVAL IO NOSPC ROFS SERVERFAULT STALE;
    CREATE: ACCES BADHANDLE DQUOT EXIST IO NAMETOOLONG NOSPC NOTDIR NOTSUPP ROFS SERVERFAULT STALE;
    MKDIR: ACCES BADHANDLE DQUOT EXIST IO NAMETOOLONG NOSPC NOTDIR NOTSUPP ROFS SERVERFAULT STALE;
    SYMLINK: ACCES BADHANDLE DQUOT EXIST IO NAMETOOLONG NOSPC NOTDIR NOTSUPP ROFS SERVERFAULT STALE;
    MKNOD: ACCES BADHANDLE BADTYPE DQUOT EXIST IO NAMETOOLONG NOSPC NOTDIR NOTSUPP ROFS SERVERFAULT STALE;
    REMOVE: ACCES BADHANDLE IO NAMETOOLONG NOENT NOTDIR ROFS SERVERFAULT STALE;
    RMDIR: ACCES BADHANDLE EXIST INVAL IO NAMETOOLONG NOENT NOTDIR NOTEMPTY NOTSUPP ROFS SERVERFAULT STALE;
    RENAME: ACCES BADHANDLE DQUOT EXIST INVAL IO ISDIR MLINK NAMETOOLONG NOENT NOSPC NOTDIR NOTEMPTY NOTSUPP ROFS
        SERVERFAULT STALE XDEV;
    LINK: ACCES BADHANDLE DQUOT EXIST INVAL IO MLINK NAMETOOLONG NOSPC NOTDIR NOTSUPP ROFS SERVERFAULT STALE XDEV;
    READDIR: ACCES BADHANDLE BAD_COOKIE IO NOTDIR SERVERFAULT STALE TOOSMALL;
    READDIRPLUS: ACCES BADHANDLE BAD_COOKIE IO NOTDIR NOTSUPP SERVERFAULT STALE TOOSMALL;
    FSSTAT: BADHANDLE IO SERVERFAULT STALE;
    FSINFO: BADHANDLE SERVERFAULT STALE;
    PATHCONF: BADHANDLE SERVERFAULT STALE;
    COMMIT: BADHANDLE IO SERVERFAULT STALE;
};

/// What those lists omit and another section asks for. Section 3.3 says that they are "not intended to be the definitive
/// statement".
const ALSO: ErrorTable = errors! {
    // Section 2.6: "the caller specified a directory in a non-directory operation". Linux' server says the same.
    SETATTR: ISDIR;
    WRITE: ISDIR;
    READ: ISDIR;
    REMOVE: ISDIR;
    LINK: ISDIR;
    // Section 2.6: "file too large", for a size as for a WRITE.
    SETATTR: FBIG;
    // Section 2.6: "invalid argument": the name `.` or `..`, a target that can be none, what is no regular file.
    REMOVE: INVAL;
    SYMLINK: INVAL;
    COMMIT: INVAL ISDIR;
};

pub fn is_valid(procedure: u32, status: NfsStat3) -> bool {
    let Some(procedure) = PROC_NAMES.get(procedure as usize) else { return false };
    let Some((_, errors)) = VALID.iter().find(|(p, _)| p == procedure) else { return false };
    let Some(name) = status.name() else { return false };
    // Section 2.6: JUKEBOX is "initiated, try again later", whatever was asked.
    let everywhere = status == NfsStat3::OK || status == NfsStat3::JUKEBOX;
    everywhere
        || errors.contains(&name)
        || ALSO.iter().any(|(p, errors)| p == procedure && errors.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_the_tables_is_a_procedure_or_a_status() {
        let statuses: Vec<&str> = (0..20_000).filter_map(|n| NfsStat3(n).name()).collect();
        for (procedure, errors) in VALID.iter().chain(ALSO) {
            assert!(PROC_NAMES.contains(procedure), "{procedure}");
            for name in *errors {
                assert!(statuses.contains(name), "{procedure}: {name}");
            }
        }
        assert_eq!(VALID.len(), PROC_NAMES.len() - 1, "NULL has no status");
    }

    #[test]
    fn rfc1813_3_3_2_setattr_has_no_notsupp() {
        use super::super::proc::{COMMIT, MKNOD, NULL, SETATTR};
        assert!(!is_valid(SETATTR, NfsStat3::NOTSUPP) && is_valid(SETATTR, NfsStat3::NOT_SYNC));
        assert!(is_valid(MKNOD, NfsStat3::NOTSUPP) && is_valid(COMMIT, NfsStat3::JUKEBOX));
        assert!(!is_valid(NULL, NfsStat3::OK) && !is_valid(22, NfsStat3::OK));
        assert!(!is_valid(COMMIT, NfsStat3(4711)));
    }
}
