//! What can go wrong in the lab, in words that say what to do.

use landfast_nfs::v4::NfsStat;
use std::path::PathBuf;

/// How errors begin that tell of data that was lost or is wrong.
pub const WRONG_DATA: &str = "WRONG DATA";

/// Says which tool, file or step of an experiment failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call or file operation failed; `what` has the path.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    /// A program that the lab needs is not installed.
    #[error("`{tool}` is not installed (Debian package {package})")]
    NoTool { tool: String, package: &'static str },
    /// A program ran and failed; `stderr` is shortened.
    #[error("`{command}` failed ({status}): {stderr}")]
    Tool { command: String, status: String, stderr: String },
    /// A setting of an emulated disk is wrong.
    #[error("disk setting `{word}`: {why}")]
    Setting { word: String, why: &'static str },
    /// A process that the lab started ended or said something unexpected.
    #[error("{role} process: {what}")]
    Child { role: &'static str, what: String },
    /// The machine or the caller lacks something the experiment cannot do without.
    #[error("{0}")]
    Unable(String),
    #[error("`{0}` is not a filesystem of the lab: use ext4, xfs or btrfs")]
    UnknownFilesystem(String),
    /// A path that the lab was told to use does not exist.
    #[error("{0}: no such file or directory")]
    Missing(PathBuf),
    /// The server refused an operation. A status of version 3 has its number in version 4.
    #[error("{op}: {status:?}")]
    Nfs { op: String, status: NfsStat },
    /// The connection broke: what was in flight may have been executed or not.
    #[error("{what}: connection lost: {source}")]
    Lost { what: String, source: std::io::Error },
    /// Data that was lost, or is not what it should be. `cargo xtask test` repeats a measurement that failed, but not after this.
    #[error("{WRONG_DATA}: {0}")]
    WrongData(String),
    /// A server or program answered in a way that the experiment does not allow.
    #[error("{0}")]
    Protocol(String),
}

impl From<landfast_verify::Error> for Error {
    fn from(e: landfast_verify::Error) -> Error {
        use landfast_verify::Error as Verify;
        match e {
            Verify::Gone { server, why } => Error::Lost { what: server, source: why },
            Verify::Refused { op, code: Some(code), .. } => Error::Nfs { op, status: NfsStat(code) },
            // RPC itself refused: it is not known what of the call was executed.
            Verify::Refused { op, status, code: None, .. } => {
                Error::Lost { what: op, source: std::io::Error::other(status) }
            }
            e @ (Verify::Nonsense(_) | Verify::Path { .. }) => Error::Protocol(e.to_string()),
            e => Error::Unable(e.to_string()),
        }
    }
}

pub type Result<T> = std::result::Result<T, Error>;

/// Turns an I/O error into one that says what was being done.
pub trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::Io { what: what(), source: e.into() })
    }
}
