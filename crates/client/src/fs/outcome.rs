//! The result of one item of a vectored call.

use landfast_nfs::v4::{NfsStat, OpNum};

use crate::compound::OpError;
use crate::session::SessionError;

/// The result of one item.
///
/// A vector is not a transaction: each item has its own result, and a failure does not stop the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The server has executed it, and what the protocol makes synchronous is on its stable storage.
    Committed(T),
    /// It was not executed: the server could not be reached, or it refused every request with the item.
    NotExecuted(String),
    /// The server executed it and refused.
    Failed(Failure),
    /// It may have been executed: its reply was lost and cannot be had again.
    Unknown(String),
}

impl<T> Outcome<T> {
    /// The value, or the error for everything but [`Outcome::Committed`].
    pub fn into_result(self) -> Result<T, ItemError> {
        match self {
            Outcome::Committed(value) => Ok(value),
            Outcome::NotExecuted(why) => Err(ItemError::NotExecuted(why)),
            Outcome::Failed(failure) => Err(ItemError::Failed(failure)),
            Outcome::Unknown(why) => Err(ItemError::Unknown(why)),
        }
    }

    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Outcome::Committed(value) => Outcome::Committed(f(value)),
            Outcome::NotExecuted(why) => Outcome::NotExecuted(why),
            Outcome::Failed(failure) => Outcome::Failed(failure),
            Outcome::Unknown(why) => Outcome::Unknown(why),
        }
    }
}

/// Why the server refused an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    Status {
        op: OpNum,
        status: NfsStat,
    },
    /// More symbolic links than [`crate::limits::SYMLINKS_MAX`].
    Loop,
    /// The path names the top of the export, which cannot be made, removed or renamed.
    Root,
}

impl Failure {
    /// The status for callers that know only statuses.
    pub fn status(self) -> NfsStat {
        match self {
            Failure::Status { status, .. } => status,
            Failure::Loop => NfsStat::NFS4ERR_SYMLINK,
            Failure::Root => NfsStat::NFS4ERR_INVAL,
        }
    }
}

impl From<OpError> for Failure {
    fn from(e: OpError) -> Self {
        match e {
            OpError::Failed { op, status } => Failure::Status { op, status },
            OpError::Missing { op } => Failure::Status { op, status: NfsStat::NFS4ERR_IO },
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Status { op, status } => write!(f, "{op}: {status}"),
            Failure::Loop => f.write_str("too many levels of symbolic links"),
            Failure::Root => f.write_str("this is the top of the export"),
        }
    }
}

/// An [`Outcome`] that is not [`Outcome::Committed`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    #[error("not executed: {0}")]
    NotExecuted(String),
    #[error("{0}")]
    Failed(Failure),
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
}

impl ItemError {
    /// The status, if the server gave one.
    pub fn status(&self) -> Option<NfsStat> {
        match self {
            ItemError::Failed(failure) => Some(failure.status()),
            _ => None,
        }
    }
}

impl<T> From<SessionError> for Outcome<T> {
    fn from(e: SessionError) -> Self {
        match e {
            SessionError::Unknown(why) => Outcome::Unknown(why),
            e @ SessionError::GivenUp { .. } => Outcome::Unknown(e.to_string()),
            e => Outcome::NotExecuted(e.to_string()),
        }
    }
}
