//! Errors of the log, each with what a person can do about it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

/// Why a log could not be opened. Nothing on the device was changed. Identities of volumes are hexadecimal.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The device or file cannot be opened, sized, locked, read or written.
    #[error("log {path}: cannot {action}: {source}")]
    Io {
        path: PathBuf,
        /// An infinitive: "open", "read".
        action: &'static str,
        source: io::Error,
    },
    /// Another process, or another `Log` of this process, has locked it, or it is mounted.
    #[error("log {path}: in use by {holder}; stop it first")]
    InUse { path: PathBuf, holder: String },
    #[error("log {path}: must be a regular file or a block device")]
    Kind { path: PathBuf },
    /// A file on FUSE. The kernel passes O_DSYNC on without a flush, and counts a flush that is not implemented as done.
    #[error(
        "log {path}: lies on a FUSE filesystem, where a flush may be answered without being done; use a block \
         device, or a file on ext4, XFS or btrfs"
    )]
    Fuse { path: PathBuf },
    #[error("log {path}: {why}; or, if you know better, start with --accept-weak")]
    Weak { path: PathBuf, why: String },
    /// The smallest request that the device takes, of `bytes`, is larger than a block of the log.
    #[error(
        "log {path}: its device takes requests of {bytes} bytes and more, a log needs ones of 4096; use another device"
    )]
    Blocks { path: PathBuf, bytes: u64 },
    /// Fewer bytes than [`crate::limits::DEVICE_BYTES_MIN`].
    #[error("log {path}: {bytes} bytes are too few, at least {min} are needed")]
    TooSmall { path: PathBuf, bytes: u64, min: u64 },
    #[error(
        "log {path}: holds something that is not a Landfast log; erase it first if it may be overwritten"
    )]
    Foreign { path: PathBuf },
    /// Written by a newer version of Landfast with another format.
    #[error(
        "log {path}: was written by a newer Landfast, in format version {found}; this one knows versions up to {known}: \
         start the newer one, or stop it cleanly there and name a new log here"
    )]
    Version { path: PathBuf, found: u32, known: u32 },
    #[error(
        "log {path}: belongs to another volume ({found}, this one is {wanted}); name this volume's own log, or a new \
         file"
    )]
    OtherVolume { path: PathBuf, found: String, wanted: String },
    #[error("log {path}: is a log already, of volume {volume}; erase it first if it may be overwritten")]
    AlreadyALog { path: PathBuf, volume: String },
    /// It still holds records to replay.
    #[error("log {path}: its server was not stopped cleanly; start it and stop it once")]
    NotClean { path: PathBuf },
    /// The two halves of a mirror cannot be used together.
    #[error("logs {path} and {other}: {why}")]
    Halves { path: PathBuf, other: PathBuf, why: String },
    /// Acknowledged records are damaged: replaying the rest would lose them silently.
    #[error(
        "log {path}: damaged: {what}; nothing was replayed, keep the device for examination \
         (docs/internals/recovery.md says how to give up what it holds)"
    )]
    Corrupt {
        path: PathBuf,
        /// What is wrong and where (byte offsets on the device).
        what: String,
    },
}

/// Why a log does not take or keep records. Every variant is final for this [`crate::Log`].
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum LogError {
    /// A write, flush or checkpoint failed. Nothing is acknowledged any more until the log is opened anew.
    #[error("the intent log has failed and takes nothing more: {0}")]
    Failed(Arc<str>),
    /// [`crate::Log::shutdown`] was called, or every `Log` was dropped.
    #[error("the intent log is shut down")]
    Closed,
    /// [`crate::Log::start`] has not been called yet.
    #[error("the intent log has not been started")]
    NotStarted,
    /// [`crate::Log::start`] was called twice.
    #[error("the intent log was already started")]
    AlreadyStarted,
}
