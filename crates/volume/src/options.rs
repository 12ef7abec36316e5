//! Options for opening a volume.

use std::path::PathBuf;
use std::time::Duration;

use landfast_intentlog::LogPlace;

use crate::faults;
use crate::limits::LOG_SIZE_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the intent log is flushed.
    Log,
    /// Before the operation returns: fsync of the changed object and its directory.
    Sync,
    /// Some time later. A crash loses acknowledged operations.
    Unsafe,
}

#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub dir: PathBuf,
    /// Where the log stands; needed with [`Durability::Log`], forbidden otherwise.
    pub log: Option<LogPlace>,
    /// Size in bytes of a log file that does not exist yet.
    pub log_size: u64,
    pub durability: Durability,
    /// The volume is not opened unless a filesystem is mounted here.
    pub mount_point: Option<PathBuf>,
    /// Recovery stops where somebody has changed the directory behind the server's back, instead of resolving it.
    pub strict_recovery: bool,
    /// Accept filesystems and devices that cannot keep the promise, with a warning.
    pub accept_weak: bool,
    #[doc(hidden)]
    pub experiment: Experiment,
}

/// What experiments and tests change in a volume; none of it is for people's data.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Experiment {
    /// Each sync call of the volume (fsync, fdatasync, syncfs) also sleeps this long.
    pub injected_flush: Option<Duration>,
    /// Each flush of the log takes at least this long.
    pub injected_log_flush: Option<Duration>,
    /// Run without capabilities as the process's own user, whoever the caller is, on any filesystem with handles. Such a
    /// volume must not be offered to anyone else, and cannot be recovered.
    pub unprivileged: bool,
}

impl OpenOptions {
    /// Serve `dir` without a log, with default values for all other fields.
    pub fn new(dir: impl Into<PathBuf>, durability: Durability) -> OpenOptions {
        OpenOptions {
            dir: dir.into(),
            log: None,
            log_size: LOG_SIZE_BYTES,
            durability,
            mount_point: None,
            strict_recovery: false,
            accept_weak: faults::weak_accepted(),
            experiment: Experiment::default(),
        }
    }

    pub fn with_log(dir: impl Into<PathBuf>, log: impl Into<LogPlace>) -> OpenOptions {
        OpenOptions { log: Some(log.into()), ..OpenOptions::new(dir, Durability::Log) }
    }
}
