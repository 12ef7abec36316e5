//! Errors of the probe, as messages for people.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Server(#[from] landfast_verify::Error),
    #[error("{url}: cannot make a directory to measure in: {why}; name one in which user {uid} may write")]
    Directory { url: String, uid: u32, why: landfast_verify::Error },
    #[error("{doing}: {why}")]
    While { doing: String, why: landfast_verify::Error },
    #[error("{0} speaks neither NFS 3 nor 4.0, 4.1 or 4.2")]
    NoVersion(String),
    #[error("{server} does not offer NFS {version}; it offers {offered}")]
    NotOffered { server: String, version: String, offered: String },
    #[error("{0}")]
    Unable(String),
    #[error("interrupted")]
    Interrupted,
}

pub type Result<T> = std::result::Result<T, Error>;
