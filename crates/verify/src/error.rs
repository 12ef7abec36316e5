//! What can go wrong, in words for people.

use landfast_nfs::v4::NfsStat;
use std::path::PathBuf;

/// What a status means to the caller, in whatever version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    NoEntry,
    /// The handle leads nowhere.
    Stale,
    /// Not now: ask again.
    Later,
    Exists,
    NotEmpty,
    NotSupported,
    Other,
}

impl Meaning {
    /// Of a status of NFS: the versions number the same statuses alike.
    fn of(code: u32) -> Meaning {
        match NfsStat(code) {
            NfsStat::NFS4ERR_NOENT | NfsStat::NFS4ERR_NOXATTR => Meaning::NoEntry,
            NfsStat::NFS4ERR_EXIST => Meaning::Exists,
            NfsStat::NFS4ERR_NOTEMPTY => Meaning::NotEmpty,
            NfsStat::NFS4ERR_STALE | NfsStat::NFS4ERR_BADHANDLE | NfsStat::NFS4ERR_FHEXPIRED => {
                Meaning::Stale
            }
            // The first is JUKEBOX in version 3.
            NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE => Meaning::Later,
            NfsStat::NFS4ERR_NOTSUPP | NfsStat::NFS4ERR_ATTRNOTSUPP => Meaning::NotSupported,
            _ => Meaning::Other,
        }
    }
}

/// Why an operation or a file of this crate failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection, or it broke, or no reply came: what was in flight may have been executed or not.
    #[error("{server}: {why}")]
    Gone { server: String, why: std::io::Error },
    /// The server answered, and refused; `op` and `status` are the protocol's names. `code` is the status of NFS; it is `None`
    /// if RPC or MOUNT refused.
    #[error("{op}: the server answered {status}")]
    Refused { op: String, status: String, meaning: Meaning, code: Option<u32> },
    /// The server's answer makes no sense.
    #[error("the server's answer makes no sense: {0}")]
    Nonsense(String),
    #[error("{0}")]
    Url(String),
    /// The path of the URL, up to the name that failed.
    #[error("{path}: {why}")]
    Path { path: String, why: Box<Error> },
    /// The journal's file cannot be used.
    #[error("{path}: {why}")]
    File { path: PathBuf, why: std::io::Error },
    /// The journal's contents are wrong.
    #[error("{path}: {why}")]
    Journal { path: PathBuf, why: String },
    /// What this machine or this request lacks.
    #[error("{0}")]
    Unable(String),
}

impl Error {
    /// An operation that the server refused with this status of NFS.
    pub(crate) fn refused(op: String, code: u32, status: String) -> Error {
        Error::Refused { op, status, meaning: Meaning::of(code), code: Some(code) }
    }

    /// What the status means, if there was one.
    pub fn meaning(&self) -> Option<Meaning> {
        match self {
            Error::Refused { meaning, .. } => Some(*meaning),
            Error::Path { why, .. } => why.meaning(),
            _ => None,
        }
    }

    /// Whether the server could not be reached or did not answer.
    pub fn is_gone(&self) -> bool {
        match self {
            Error::Gone { .. } => true,
            Error::Path { why, .. } => why.is_gone(),
            _ => false,
        }
    }
}

pub type Result<T> = std::result::Result<T, Error>;
