//! How members are put onto a server, and how much of them is in hand at a time.

use std::sync::Arc;

use tokio::sync::watch;

use super::existing::Existing;
use crate::limits;
use crate::resume::Resume;

/// How members are put onto a server.
#[derive(Debug, Clone)]
pub struct PutOptions {
    /// Set the archive's mode bits as they are, set-user-ID and set-group-ID included (`-p`); otherwise
    /// the umask applies. Unset: as root yes, otherwise no.
    pub same_permissions: Option<bool>,
    /// Set the archive's owner and group. Unset: as root yes, otherwise no.
    pub same_owner: Option<bool>,
    /// Leave modification times alone (`-m`).
    pub touch: bool,
    /// What to do about existing files.
    pub existing: Existing,
    /// Groups that files may be given when owners are not set: those of the source that are among these.
    pub own_groups: Option<Vec<u32>>,
    /// Bits that are taken out of modes unless permissions are kept.
    pub umask: u32,
    /// Whether extended attributes are set (those of users, RFC 8276).
    pub xattrs: Xattrs,
    /// What an earlier run did, and where to note what this one does. It does not go with [`Existing::Keep`] and
    /// [`super::When`] other than `Always`: files of the earlier run could not be told from others.
    pub resume: Option<Arc<Resume>>,
    /// When it becomes true, no further member is begun.
    pub stop: Option<watch::Receiver<bool>>,
    /// Limits on what is in hand at a time.
    pub tuning: Tuning,
}

/// Whether extended attributes are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Xattrs {
    #[default]
    No,
    /// Where the destination has any; elsewhere nothing is said of them.
    Try,
    /// A member whose attributes cannot be set is reported.
    Must,
}

impl Default for PutOptions {
    fn default() -> Self {
        PutOptions {
            same_permissions: None,
            same_owner: None,
            touch: false,
            existing: Existing::default(),
            own_groups: None,
            umask: 0o022,
            xattrs: Xattrs::No,
            resume: None,
            stop: None,
            tuning: Tuning::default(),
        }
    }
}

/// How much is packed together and how much is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    pub members_per_compound: usize,
    /// Bytes of one request, at most; the session's limit holds too.
    pub request_bytes: usize,
    /// Files larger than this are written in pieces, by several requests.
    pub whole_file_max: u64,
    /// Bytes of file data read ahead and not yet on stable storage.
    pub bytes_in_flight: usize,
    /// Compounds under way, at most; the session's slots hold too.
    pub compounds_in_flight: usize,
    /// TCP connections.
    pub connections: usize,
    /// What is sent before the destination is known. Experiments ask for less, to measure what it earns.
    #[doc(hidden)]
    pub early: Early,
}

/// What is sent before the reply to the session's first request: each includes those before it.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Early {
    /// Nothing: first the session, then the destination's path, then members.
    Nothing,
    /// The first request resolves the destination's path and lists it.
    Destination,
    /// It makes directories, too.
    Directories,
    /// Files follow it before its reply.
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
        }
    }
}
