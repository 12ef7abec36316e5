//! The results of reading a capture.

use landfast_trace::analysis::findings::Findings;
use landfast_trace::source::End;
use landfast_trace::table::Table;
use landfast_trace::trace::Totals;

pub struct Results {
    /// Only of calls that pass the filter.
    pub(super) totals: Totals,
    /// The number of calls in the capture, if there is a filter.
    pub(super) all_calls: Option<u64>,
    pub(super) table: Table,
    pub(super) findings: Findings,
    pub(super) end: End,
    pub(super) strange: u64,
    /// Frames that came too quickly to be read at an interface.
    pub(super) dropped: u64,
    /// It was captured at an interface, not read from a file.
    pub(super) live: bool,
    pub(super) listed: bool,
    /// The filter names procedures, perhaps of other programs than NFS.
    pub(super) named: bool,
}
