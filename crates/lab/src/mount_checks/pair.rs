//! Where a check works.

use std::path::PathBuf;

/// Two mounts of one directory of a server, and a directory in it.
pub(super) struct Pair {
    pub(super) one: PathBuf,
    pub(super) two: PathBuf,
    /// Whether the mounts have the server's locks, whatever the server, and extended attributes.
    pub(super) locks: bool,
    pub(super) xattrs: bool,
}
