//! Options of an extraction, and limits on what is in memory and in flight.

use std::sync::Arc;

use tokio::sync::watch;

use super::existing::Existing;
use crate::cred::Identity;
use crate::limits;
use crate::resume::Resume;

#[derive(Debug, Clone)]
pub struct PutOptions {
    /// Use the archive's mode bits unchanged, with set-user-ID and set-group-ID (`-p`). Otherwise the umask applies.
    /// `None`: yes for root, else no.
    pub same_permissions: Option<bool>,
    /// Set the archive's owner and group. `None`: yes for root, else no.
    pub same_owner: Option<bool>,
    /// Do not set modification times (`-m`).
    pub touch: bool,
    /// What to do about existing files.
    pub existing: Existing,
    /// If owners are not set: a file still gets the source's group if this user is in it. If owner or group is not the
    /// source's, it gets no set-user-ID and set-group-ID bits, and what is no directory no sticky bit, as with GNU cp.
    pub own: Option<Identity>,
    /// These bits are cleared in modes, unless permissions are kept.
    pub umask: u32,
    /// Whether to set user extended attributes (RFC 8276).
    pub xattrs: Xattrs,
    /// The journal: what an earlier run did, and where to note what this one does. It cannot be combined with
    /// [`Existing::Keep`], nor with a [`super::When`] other than `Always`: an earlier run's files would look like any others.
    pub resume: Option<Arc<Resume>>,
    /// When it becomes true, no further member is started.
    pub stop: Option<watch::Receiver<bool>>,
    pub tuning: Tuning,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Xattrs {
    #[default]
    No,
    /// Set them if the destination supports them. Otherwise say nothing.
    Try,
    /// Report each member whose extended attributes cannot be set.
    Must,
}

impl Default for PutOptions {
    fn default() -> Self {
        PutOptions {
            same_permissions: None,
            same_owner: None,
            touch: false,
            existing: Existing::default(),
            own: None,
            umask: 0o022,
            xattrs: Xattrs::No,
            resume: None,
            stop: None,
            tuning: Tuning::default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    pub members_per_compound: usize,
    /// Maximum bytes of a request. The session's limit applies, too.
    pub request_bytes: usize,
    /// Files larger than this are written in pieces, by several requests.
    pub whole_file_max: u64,
    /// Maximum bytes of file data that are read but not yet durable.
    pub bytes_in_flight: usize,
    /// Maximum number of compounds in flight. The session's slots limit it, too.
    pub compounds_in_flight: usize,
    /// TCP connections.
    pub connections: usize,
    /// What is sent before the destination is known. Experiments reduce it, to measure its benefit.
    #[doc(hidden)]
    pub early: Early,
    /// Names, and directories, that are remembered in memory. Tests reduce them.
    #[doc(hidden)]
    pub keys_in_memory: usize,
    #[doc(hidden)]
    pub dirs_in_memory: usize,
}

/// What is sent before the reply to the session's first request. Each level includes those before it.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Early {
    /// Nothing: first the session, then the destination's path, then members.
    Nothing,
    /// The first request resolves the destination's path and lists it.
    Destination,
    /// The first request also makes directories.
    Directories,
    /// Files are sent before the reply to the first request.
    Files,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            members_per_compound: limits::MEMBERS_PER_COMPOUND,
            request_bytes: limits::PACKED_REQUEST_MAX,
            whole_file_max: limits::WHOLE_FILE_MAX,
            bytes_in_flight: limits::BYTES_IN_FLIGHT_MAX,
            compounds_in_flight: limits::COMPOUNDS_IN_FLIGHT_MAX,
            connections: limits::CONNECTIONS,
            early: Early::Files,
            keys_in_memory: limits::KEYS_IN_MEMORY,
            dirs_in_memory: limits::DIRS_IN_MEMORY,
        }
    }
}
