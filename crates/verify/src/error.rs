//! What can go wrong, in words for people.

use std::path::PathBuf;

/// What a status means to the one who asked, in whatever version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// No such name.
    NoEntry,
    /// The handle leads nowhere.
    Stale,
    /// Not now: ask again.
    Later,
    /// There is something at the name already.
    Exists,
    /// The directory is not empty.
    NotEmpty,
    /// The server does not do this.
    NotSupported,
    /// Anything else.
    Other,
}

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection, or it broke, or no reply came: what was under way may have been done or not.
    #[error("{server}: {why}")]
    Gone {
        /// Which server.
        server: String,
        /// What happened.
        why: std::io::Error,
    },
    /// The server answered, and refused.
    #[error("{op}: the server answered {status}")]
    Refused {
        /// The operation's name in the protocol.
        op: String,
        /// The status's name.
        status: String,
        /// What it means.
        meaning: Meaning,
    },
    /// The server's answer makes no sense.
    #[error("the server's answer makes no sense: {0}")]
    Nonsense(String),
    /// The URL.
    #[error("{0}")]
    Url(String),
    /// The path of the URL.
    #[error("{path}: {why}")]
    Path {
        /// Up to which name.
        path: String,
        /// Why.
        why: Box<Error>,
    },
    /// The journal's file.
    #[error("{path}: {why}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// The journal's contents.
    #[error("{path}: {why}")]
    Journal {
        /// Which.
        path: PathBuf,
        /// What is wrong, and where.
        why: String,
    },
    /// What this machine or this request lacks.
    #[error("{0}")]
    Unable(String),
}

impl Error {
    /// What the status means, if there was one.
    #[must_use]
    pub fn meaning(&self) -> Option<Meaning> {
        match self {
            Error::Refused { meaning, .. } => Some(*meaning),
            Error::Path { why, .. } => why.meaning(),
            _ => None,
        }
    }

    /// Whether the server could not be reached or did not answer.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self {
            Error::Gone { .. } => true,
            Error::Path { why, .. } => why.is_gone(),
            _ => false,
        }
    }
}

/// This crate's result type.
pub type Result<T> = std::result::Result<T, Error>;
