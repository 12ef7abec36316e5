//! What was found in a capture.

use landfast_trace::analysis::findings::Findings;
use landfast_trace::source::End;
use landfast_trace::table::Table;
use landfast_trace::trace::Totals;

/// What was found.
pub struct Found {
    /// Of the calls, those that were wanted.
    pub(super) totals: Totals,
    /// Calls in the capture, when not all were wanted.
    pub(super) all_calls: Option<u64>,
    pub(super) table: Table,
    pub(super) findings: Findings,
    pub(super) end: End,
    pub(super) strange: u64,
    /// Frames of an interface that came too quickly.
    pub(super) dropped: u64,
    /// It came at an interface, and from no file.
    pub(super) live: bool,
    pub(super) listed: bool,
    /// Procedures were asked for by their names, perhaps of other programs than NFS.
    pub(super) named: bool,
}
