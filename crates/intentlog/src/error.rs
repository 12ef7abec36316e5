//! What can go wrong, said so that a person knows what to do.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

/// Why a log could not be opened. Nothing on the device was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The device or file cannot be opened, sized, locked, read or written.
    #[error("log {path}: cannot {action}: {source}")]
    Io {
        /// The log's path.
        path: PathBuf,
        /// What was attempted, as an infinitive ("open", "read", ...).
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// Another process (or another `Log` of this one) holds it, or it is mounted.
    #[error("log {path}: in use by {holder}; stop it first")]
    InUse {
        /// The log's path.
        path: PathBuf,
        /// Who holds it, in words.
        holder: String,
    },
    /// Neither a regular file nor a block device.
    #[error("log {path}: must be a regular file or a block device")]
    Kind {
        /// The log's path.
        path: PathBuf,
    },
    /// A file on FUSE: the kernel passes O_DSYNC on without a flush, and takes "not implemented" for a done one.
    #[error(
        "log {path}: lies on a FUSE filesystem, where a flush may be answered without being done; use a block \
         device, or a file on ext4, XFS or btrfs"
    )]
    Fuse {
        /// The log's path.
        path: PathBuf,
    },
    /// What is below cannot keep the promise.
    #[error("log {path}: {why}; or, if you know better, start with --accept-weak")]
    Weak {
        /// The log's path.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// Requests to the device must be larger than a block of the log.
    #[error(
        "log {path}: its device takes requests of {bytes} bytes and more, a log needs ones of 4096; use another device"
    )]
    Blocks {
        /// The log's path.
        path: PathBuf,
        /// Smallest request, in bytes.
        bytes: u64,
    },
    /// Fewer bytes than [`crate::limits::DEVICE_BYTES_MIN`].
    #[error("log {path}: {bytes} bytes are too few, at least {min} are needed")]
    TooSmall {
        /// The log's path.
        path: PathBuf,
        /// Size found or asked for, in bytes.
        bytes: u64,
        /// Smallest size accepted, in bytes.
        min: u64,
    },
    /// It holds bytes that are not a log of Landfast.
    #[error(
        "log {path}: holds something that is not a Landfast log; erase it first if it may be overwritten"
    )]
    Foreign {
        /// The log's path.
        path: PathBuf,
    },
    /// Written by a newer version of Landfast with another format.
    #[error(
        "log {path}: was written by a newer Landfast, in format version {found}; this one knows versions up to {known}: \
         start the newer one, or stop it cleanly there and name a new log here"
    )]
    Version {
        /// The log's path.
        path: PathBuf,
        /// Version on the device.
        found: u32,
        /// Newest version that this program reads.
        known: u32,
    },
    /// It belongs to another volume.
    #[error(
        "log {path}: belongs to another volume ({found}, this one is {wanted}); name this volume's own log, or a new \
         file"
    )]
    OtherVolume {
        /// The log's path.
        path: PathBuf,
        /// Volume of the log, hexadecimal.
        found: String,
        /// Volume that was asked for, hexadecimal.
        wanted: String,
    },
    /// It is a log already.
    #[error("log {path}: is a log already, of volume {volume}; erase it first if it may be overwritten")]
    Taken {
        /// The log's path.
        path: PathBuf,
        /// Whose, hexadecimal.
        volume: String,
    },
    /// Something in it is still to be replayed.
    #[error("log {path}: its server was not stopped cleanly; start it and stop it once")]
    NotClean {
        /// The log's path.
        path: PathBuf,
    },
    /// The two halves of a mirror cannot be used together.
    #[error("logs {path} and {other}: {why}")]
    Halves {
        /// The first half's path.
        path: PathBuf,
        /// The second half's path.
        other: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// Acknowledged records are damaged: replaying the rest would lose them silently.
    #[error(
        "log {path}: damaged: {what}; nothing was replayed, keep the device for examination \
         (docs/internals/recovery.md says how to give up what it holds)"
    )]
    Corrupt {
        /// The log's path.
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
