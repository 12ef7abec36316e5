//! What can go wrong in the lab, in words that say what to do.

use std::path::PathBuf;

/// An error of the lab. Each says which tool, file or step failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call or file operation failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, with the path.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A program that the lab needs is not installed.
    #[error("`{tool}` is not installed (Debian package {package})")]
    NoTool {
        /// The program.
        tool: String,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A program ran and failed.
    #[error("`{command}` failed ({status}): {stderr}")]
    Tool {
        /// The command line.
        command: String,
        /// Its exit status.
        status: String,
        /// What it printed on standard error, shortened.
        stderr: String,
    },
    /// A setting of an emulated disk is wrong.
    #[error("disk setting `{word}`: {why}")]
    Setting {
        /// The word that was given.
        word: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A process that the lab started ended or said something unexpected.
    #[error("{role} process: {what}")]
    Child {
        /// What the process was for.
        role: &'static str,
        /// What happened.
        what: String,
    },
    /// The machine or the caller lacks something the experiment cannot do without.
    #[error("{0}")]
    Unable(String),
    /// A filesystem name that is not one of ext4, xfs, btrfs.
    #[error("`{0}` is not a filesystem of the lab: use ext4, xfs or btrfs")]
    UnknownFilesystem(String),
    /// A path that the lab was told to use does not exist.
    #[error("{0}: no such file or directory")]
    Missing(PathBuf),
    /// An operation that the server refused.
    #[error("{op}: {status:?}")]
    Nfs {
        /// The operation.
        op: String,
        /// The server's status.
        status: landfast_nfs::v4::NfsStat,
    },
    /// The connection broke: what was under way may have been executed or not.
    #[error("{what}: connection lost: {source}")]
    Lost {
        /// What was being done.
        what: String,
        /// How it broke.
        source: std::io::Error,
    },
    /// A server answered in a way that the experiment does not allow.
    #[error("{0}")]
    Protocol(String),
}

/// The lab's result type.
pub type Result<T> = std::result::Result<T, Error>;

/// Turns an I/O error into one that says what was being done.
pub trait Context<T> {
    /// Adds `what` to an error.
    ///
    /// # Errors
    /// The same error, with `what` before it.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::Io { what: what(), source: e.into() })
    }
}
