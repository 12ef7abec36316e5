//! Why a compound has no reply.

use std::io;
use std::time::Duration;

use landfast_nfs::v4::NfsStat;
use landfast_rpc::CallError;

/// Why a session could not be made, or a compound got no reply.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SessionError {
    #[error("cannot connect to {server}: {why}")]
    Connect { server: String, why: String },
    /// The server did not make a session.
    #[error("{server} refuses a session: {step}: {status}")]
    Setup { server: String, step: &'static str, status: NfsStat },
    /// The server's limits are too small.
    #[error("{server} grants too little: {what}")]
    TooSmall {
        server: String,
        /// Which limit, and its value.
        what: String,
    },
    /// The server refused the call at the RPC level (no NFSv4, AUTH_SYS refused, ...). It was not executed.
    #[error("RPC: {0}")]
    Rpc(CallError),
    /// The server refused the whole COMPOUND and did not execute it: TOO_MANY_OPS, REQ_TOO_BIG, ...
    #[error("request refused: {0}")]
    Refused(NfsStat),
    /// It is not known whether the COMPOUND was executed.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// The server did not reply for so long that it was given up. It is not known whether the COMPOUND was executed.
    #[error("{server} has not replied for {} s: given up; what was under way may or may not be done", after.as_secs_f64())]
    GivenUp { server: String, after: Duration },
    /// This side has ended the session.
    #[error("the session has ended")]
    Ended,
}

impl SessionError {
    pub(crate) fn connect(server: &str, e: &io::Error) -> SessionError {
        SessionError::Connect { server: server.to_owned(), why: e.to_string() }
    }

    /// The server answers but does not speak the version.
    pub(crate) fn is_other_version(&self) -> bool {
        matches!(
            self,
            SessionError::Setup { status: NfsStat::NFS4ERR_MINOR_VERS_MISMATCH, .. }
                | SessionError::Rpc(CallError::Failed(_))
        )
    }

    /// Whether the COMPOUND may have been executed, with nothing more to be learned of it. The session continues,
    /// except with [`SessionError::GivenUp`].
    pub fn is_unknown(&self) -> bool {
        matches!(self, SessionError::Unknown(_))
    }
}
