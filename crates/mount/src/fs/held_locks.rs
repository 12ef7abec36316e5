//! What the server has of a file's locks. Pure.

use std::collections::HashMap;

use landfast_nfs::v4::Stateid;

/// The locks of one file, and the open that they belong to.
#[derive(Debug, Default)]
pub(super) struct Locks {
    /// The open, and its access (`OPEN4_SHARE_ACCESS_*`).
    pub(super) open: Option<(Stateid, u32)>,
    /// The number of its open owner.
    pub(super) number: Option<u64>,
    /// Lock owners that have, or had, locks.
    pub(super) owners: HashMap<u64, Stateid>,
    /// The server has forgotten locks.
    pub(super) lost: bool,
}
