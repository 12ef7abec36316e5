//! Why a compound has no reply.

use std::io;
use std::time::Duration;

use landfast_nfs::v4::NfsStat;
use landfast_rpc::CallError;

/// Why a session could not be made, or a compound got no reply.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SessionError {
    /// No connection to the server.
    #[error("cannot connect to {server}: {why}")]
    Connect {
        /// Host and port.
        server: String,
        /// The system's reason.
        why: String,
    },
    /// The server did not make a session.
    #[error("{server} refuses a session: {step}: {status}")]
    Setup {
        /// Host and port.
        server: String,
        /// The operation that failed.
        step: &'static str,
        status: NfsStat,
    },
    /// The server's limits are too small to work with.
    #[error("{server} grants too little: {what}")]
    TooSmall {
        /// Host and port.
        server: String,
        /// Which limit, with its value.
        what: String,
    },
    /// The server could not take the call at the RPC level (no NFSv4, AUTH_SYS refused, ...); it was not
    /// executed.
    #[error("RPC: {0}")]
    Rpc(CallError),
    /// The COMPOUND was refused as a whole and not executed: TOO_MANY_OPS, REQ_TOO_BIG, ...
    #[error("request refused: {0}")]
    Refused(NfsStat),
    /// Whether the COMPOUND was executed is not known.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// The server did not reply for so long that it was given up: whether the COMPOUND was executed is not known.
    #[error("{server} has not replied for {} s: given up; what was under way may or may not be done", after.as_secs_f64())]
    GivenUp {
        /// Host and port.
        server: String,
        /// How long.
        after: Duration,
    },
    /// The session was ended by this side.
    #[error("the session has ended")]
    Ended,
}

impl SessionError {
    pub(crate) fn connect(server: &str, e: &io::Error) -> SessionError {
        SessionError::Connect { server: server.to_owned(), why: e.to_string() }
    }

    /// The server is there, but does not speak the version.
    pub(crate) fn is_other_version(&self) -> bool {
        matches!(
            self,
            SessionError::Setup { status: NfsStat::NFS4ERR_MINOR_VERS_MISMATCH, .. }
                | SessionError::Rpc(CallError::Failed(_))
        )
    }

    /// Whether the COMPOUND may have been executed, and nothing more can be known of it.
    /// The session goes on; with [`SessionError::GivenUp`] it does not.
    pub fn is_unknown(&self) -> bool {
        matches!(self, SessionError::Unknown(_))
    }
}
