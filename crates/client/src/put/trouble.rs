//! Why a member is not there.

use landfast_nfs::v4::NfsStat;

use super::report::{Cause, MemberError};
use crate::compound::OpError;
use crate::fs::{CopyError, StepError};
use crate::session::SessionError;

/// Why a member is not there.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("{0}")]
    Op(#[from] OpError),
    /// It may have been made, or not.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// It is left out for this reason.
    #[error("{0}")]
    Refused(MemberError),
    /// The session cannot be used any more.
    #[error(transparent)]
    Fatal(SessionError),
    #[error("{0}")]
    Other(String),
}

impl From<StepError> for Trouble {
    fn from(e: StepError) -> Trouble {
        match e {
            StepError::Op(e) => Trouble::Op(e),
            StepError::Unknown(why) => Trouble::Unknown(why),
            StepError::Fatal(e) => Trouble::Fatal(e),
            StepError::Other(text) => Trouble::Other(text),
        }
    }
}

impl From<CopyError> for Trouble {
    fn from(e: CopyError) -> Trouble {
        let refused =
            |cause, status, text| Trouble::Refused(MemberError { status, ..MemberError::new(cause, text) });
        match e {
            CopyError::Step(e) => e.into(),
            CopyError::Unopened { status, text } => refused(Cause::Unopened, status, text),
            CopyError::Unread { status, text } => refused(Cause::Unread, status, text),
            CopyError::Uncloned(e) => refused(Cause::Uncloned, Some(e.status()), e.to_string()),
        }
    }
}

impl From<Trouble> for MemberError {
    fn from(trouble: Trouble) -> MemberError {
        match trouble {
            Trouble::Op(e) => e.into(),
            Trouble::Refused(why) => why,
            other => other.to_string().into(),
        }
    }
}

impl Trouble {
    pub(super) fn status(&self) -> Option<NfsStat> {
        match self {
            Trouble::Op(e) => Some(e.status()),
            _ => None,
        }
    }
}
