//! Why a member could not be made.

use landfast_nfs::v4::NfsStat;

use super::report::{Cause, MemberError};
use crate::compound::OpError;
use crate::fs::{CopyError, StepError};

#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Step(#[from] StepError),
    /// The member is not made, for this reason.
    #[error("{0}")]
    Refused(MemberError),
}

impl From<OpError> for Trouble {
    fn from(e: OpError) -> Trouble {
        Trouble::Step(e.into())
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
            Trouble::Step(StepError::Op(e)) => e.into(),
            Trouble::Refused(why) => why,
            Trouble::Step(other) => other.to_string().into(),
        }
    }
}

impl Trouble {
    pub(super) fn other(text: impl Into<String>) -> Trouble {
        Trouble::Step(StepError::Other(text.into()))
    }

    pub(super) fn status(&self) -> Option<NfsStat> {
        match self {
            Trouble::Step(e) => e.status(),
            Trouble::Refused(_) => None,
        }
    }
}
