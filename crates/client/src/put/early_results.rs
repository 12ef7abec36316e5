//! The results of what was sent with the session's first request and before its reply.

use landfast_nfs::v4::{CompoundRes, FileHandle};
use tokio::task::JoinHandle;

use super::early_dirs::NewDir;
use super::pack::Batch;
use super::source::Event;
use crate::ops::Entry;
use crate::session::SessionError;

/// The results of the session's first request, and of what was sent before its reply.
#[derive(Default)]
pub(super) struct EarlyResults {
    /// What was read so far.
    pub(super) events: Vec<Event>,
    /// The destination's entries, if they are known.
    pub(super) entries: Option<Vec<Entry>>,
    /// Whether there are extended attributes, if that is known.
    pub(super) has_xattrs: Option<bool>,
    /// The directories that were made.
    pub(super) dirs: Vec<(NewDir, FileHandle)>,
    /// COMPOUNDs that put files into them, and how many there were, successful or not.
    pub(super) sent: Vec<InFlight>,
    pub(super) number: u64,
}

/// A COMPOUND in flight.
pub(super) struct InFlight {
    pub(super) batch: Batch,
    pub(super) reply: JoinHandle<Result<CompoundRes, SessionError>>,
}
