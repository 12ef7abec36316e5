//! One request at a time for a member, and why it is not there.

use bytes::Bytes;
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{ArgOp, FileHandle, NfsStat, OpNum};

use super::report::Why;
use crate::compound::{OpError, Results};
use crate::ops;
use crate::patience::Patience;
use crate::session::{Session, SessionError};

/// Why a member is not there.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("{0}")]
    Op(#[from] OpError),
    /// May have been done, may not.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// It stays out, for a reason that has a name.
    #[error("{0}")]
    Refused(Why),
    #[error(transparent)]
    Fatal(SessionError),
    #[error("{0}")]
    Other(String),
}

impl From<Trouble> for Why {
    fn from(trouble: Trouble) -> Why {
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

/// Sends a compound until the server neither says DELAY nor GRACE.
pub(super) async fn step(session: &Session, ops: Vec<ArgOp>) -> Result<Results, Trouble> {
    let mut patience = Patience::new();
    loop {
        match session.compound(ops.clone(), true).await {
            Ok(reply) => {
                let busy = matches!(reply.status, NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE);
                if !busy || !patience.wait().await {
                    return Ok(Results::new(reply));
                }
            }
            Err(SessionError::Unknown(why)) => return Err(Trouble::Unknown(why)),
            Err(SessionError::Refused(status)) => {
                return Err(Trouble::Op(OpError::Failed { op: OpNum::SEQUENCE, status }));
            }
            Err(e) => return Err(Trouble::Fatal(e)),
        }
    }
}

/// The same of a compound that does no harm the second time: it is repeated when its reply is lost.
pub(super) async fn repeat(session: &Session, ops: Vec<ArgOp>) -> Result<Results, Trouble> {
    let mut patience = Patience::new();
    loop {
        match step(session, ops.clone()).await {
            Err(Trouble::Unknown(why)) => {
                if !patience.wait().await {
                    return Err(Trouble::Unknown(why));
                }
            }
            other => return other,
        }
    }
}

/// The same of a compound that changes nothing, and may be repeated when its reply is lost.
pub(super) async fn ask(session: &Session, ops: Vec<ArgOp>) -> Result<Results, Trouble> {
    match ops::repeatable(session, ops).await {
        Ok(reply) => Ok(Results::new(reply)),
        Err(SessionError::Unknown(why)) => Err(Trouble::Unknown(why)),
        Err(SessionError::Refused(status)) => {
            Err(Trouble::Op(OpError::Failed { op: OpNum::SEQUENCE, status }))
        }
        Err(e) => Err(Trouble::Fatal(e)),
    }
}

pub(super) async fn look_up(
    session: &Session,
    dir: &FileHandle,
    name: &Bytes,
) -> Result<Option<(FileHandle, AttrValues)>, Trouble> {
    ops::lookup(session, dir, name).await.map_err(|e| match e {
        ops::Error::Op(e) => Trouble::Op(e),
        ops::Error::Session(e) => Trouble::Fatal(e),
        e => Trouble::Other(e.to_string()),
    })
}
