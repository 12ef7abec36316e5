//! What can go wrong, in words for people.

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server, or the way to it.
    #[error(transparent)]
    Server(#[from] landfast_verify::Error),
    /// Nothing can be made where it was to measure.
    #[error("{url}: cannot make a directory to measure in: {why}; name one in which user {uid} may write")]
    Directory {
        /// Where.
        url: String,
        /// Who asked.
        uid: u32,
        /// Why not.
        why: landfast_verify::Error,
    },
    /// What was being measured when it failed.
    #[error("{doing}: {why}")]
    While {
        /// What.
        doing: String,
        /// Why.
        why: landfast_verify::Error,
    },
    /// The server speaks none of the versions.
    #[error("{0} speaks neither NFS 3 nor 4.0, 4.1 or 4.2")]
    NoVersion(String),
    /// It speaks others than the one that the URL names.
    #[error("{server} does not offer NFS {version}; it offers {offered}")]
    NotOffered {
        /// Which server.
        server: String,
        /// What the URL says.
        version: String,
        /// What there is.
        offered: String,
    },
    /// This machine lacks something.
    #[error("{0}")]
    Unable(String),
    /// A signal ended it before its time.
    #[error("interrupted")]
    Interrupted,
}

/// This crate's result type.
pub type Result<T> = std::result::Result<T, Error>;
