//! The state of a log that was found lost.

use std::time::Instant;

#[derive(Debug, Clone)]
pub(crate) struct Loss {
    pub(crate) why: String,
    pub(crate) noticed: Instant,
    pub(crate) stage: RenewalStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalStage {
    /// The writer has not begun to make a new log.
    Noticed,
    Renewing,
    /// The writer did not begin in time.
    GivenUp,
}
