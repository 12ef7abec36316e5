//! One request at a time, repeated until the server has executed it.

use bytes::Bytes;
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{ArgOp, CompoundRes, FileHandle, NfsStat, OpNum};

use crate::compound::{OpError, Results};
use crate::ops;
use crate::patience::Patience;
use crate::session::{Session, SessionError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    #[error("{0}")]
    Op(#[from] OpError),
    /// It may or may not have been executed.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// The session cannot be used any more.
    #[error(transparent)]
    Fatal(SessionError),
    #[error("{0}")]
    Other(String),
}

impl StepError {
    pub(crate) fn status(&self) -> Option<NfsStat> {
        match self {
            StepError::Op(e) => Some(e.status()),
            _ => None,
        }
    }
}

/// Whether operations were executed that would fail, or do something else, the second time.
fn changed_names(reply: &CompoundRes) -> bool {
    let changes =
        |op| matches!(op, OpNum::OPEN | OpNum::CREATE | OpNum::LINK | OpNum::REMOVE | OpNum::RENAME);
    reply.results.iter().any(|result| result.status.is_ok() && changes(result.op))
}

/// Sends a COMPOUND, and again while the server answers DELAY or GRACE.
pub(crate) async fn step(session: &Session, ops: Vec<ArgOp>) -> Result<Results, StepError> {
    let mut patience = Patience::new();
    loop {
        match session.compound(ops.clone(), true).await {
            Ok(reply) => {
                let busy = matches!(reply.status, NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE);
                if busy && changed_names(&reply) {
                    return Err(StepError::Unknown("the server stopped in the middle of it".into()));
                }
                if !busy || !patience.wait().await {
                    return Ok(Results::new(reply));
                }
            }
            Err(SessionError::Unknown(why)) => return Err(StepError::Unknown(why)),
            Err(SessionError::Refused(status)) => {
                return Err(StepError::Op(OpError::Failed { op: OpNum::SEQUENCE, status }));
            }
            Err(e) => return Err(StepError::Fatal(e)),
        }
    }
}

/// As [`step`], and again when a reply is lost: for COMPOUNDs that do no harm when they are executed twice.
pub(crate) async fn repeat(session: &Session, ops: Vec<ArgOp>) -> Result<Results, StepError> {
    let mut patience = Patience::new();
    loop {
        match step(session, ops.clone()).await {
            Err(StepError::Unknown(why)) => {
                if !patience.wait().await {
                    return Err(StepError::Unknown(why));
                }
            }
            other => return other,
        }
    }
}

/// As [`repeat`], for COMPOUNDs that change nothing.
pub(crate) async fn ask(session: &Session, ops: Vec<ArgOp>) -> Result<Results, StepError> {
    match ops::repeatable(session, ops).await {
        Ok(reply) => Ok(Results::new(reply)),
        Err(SessionError::Unknown(why)) => Err(StepError::Unknown(why)),
        Err(SessionError::Refused(status)) => {
            Err(StepError::Op(OpError::Failed { op: OpNum::SEQUENCE, status }))
        }
        Err(e) => Err(StepError::Fatal(e)),
    }
}

/// LOOKUP; `None` if the name does not exist.
pub(crate) async fn look_up(
    session: &Session,
    dir: &FileHandle,
    name: &Bytes,
) -> Result<Option<(FileHandle, AttrValues)>, StepError> {
    ops::lookup(session, dir, name).await.map_err(|e| match e {
        ops::Error::Op(e) => StepError::Op(e),
        ops::Error::Session(e) => StepError::Fatal(e),
        e => StepError::Other(e.to_string()),
    })
}
