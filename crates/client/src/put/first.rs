//! The results of what was sent with the session's first request and before its reply.

use landfast_nfs::v4::{CompoundRes, FileHandle};
use tokio::task::JoinHandle;

use super::ahead::NewDir;
use super::pack::Batch;
use super::source::Event;
use crate::ops::Entry;
use crate::session::SessionError;

/// What came of the session's first request, and before it.
#[derive(Default)]
pub(super) struct FirstResults {
    /// What the archive's reader said.
    pub(super) events: Vec<Event>,
    /// The destination's entries, if they are known.
    pub(super) entries: Option<Vec<Entry>>,
    /// Whether there are extended attributes, if that is known.
    pub(super) has_xattrs: Option<bool>,
    /// Directories that were made.
    pub(super) dirs: Vec<(NewDir, FileHandle)>,
    /// What was sent into them, and how many compounds were, in vain or not.
    pub(super) sent: Vec<InFlight>,
    pub(super) number: u64,
}

/// A compound that is under way.
pub(super) struct InFlight {
    pub(super) batch: Batch,
    pub(super) reply: JoinHandle<Result<CompoundRes, SessionError>>,
}
