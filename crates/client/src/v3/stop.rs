//! How an operation ends.

use landfast_nfs::v4::NfsStat;
use landfast_nfs::v4::res::LockDenied;

use crate::error::SessionError;

/// How an operation ends early.
pub(super) enum Stop {
    Status(NfsStat),
    /// LOCKT: a lock stands in the way.
    Denied(LockDenied),
    Session(SessionError),
}

impl From<NfsStat> for Stop {
    fn from(status: NfsStat) -> Self {
        Stop::Status(status)
    }
}

impl From<SessionError> for Stop {
    fn from(e: SessionError) -> Self {
        Stop::Session(e)
    }
}

pub(super) type Done<T> = Result<T, Stop>;
