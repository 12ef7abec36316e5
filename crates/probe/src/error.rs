//! Errors of the probe, as messages for people.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server or the network failed.
    #[error(transparent)]
    Server(#[from] landfast_verify::Error),
    /// Nothing can be created in the directory of the URL.
    #[error("{url}: cannot make a directory to measure in: {why}; name one in which user {uid} may write")]
    Directory { url: String, uid: u32, why: landfast_verify::Error },
    /// The server failed during a measurement.
    #[error("{doing}: {why}")]
    While { doing: String, why: landfast_verify::Error },
    /// The server supports none of the known versions.
    #[error("{0} speaks neither NFS 3 nor 4.0, 4.1 or 4.2")]
    NoVersion(String),
    /// The server does not support the version in the URL.
    #[error("{server} does not offer NFS {version}; it offers {offered}")]
    NotOffered { server: String, version: String, offered: String },
    /// This machine lacks something.
    #[error("{0}")]
    Unable(String),
    /// A signal ended the run.
    #[error("interrupted")]
    Interrupted,
}

pub type Result<T> = std::result::Result<T, Error>;
