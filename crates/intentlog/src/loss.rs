//! That the log was found lost, and how far its renewal is.

use std::time::Instant;

/// The log was found lost.
#[derive(Debug, Clone)]
pub(crate) struct Loss {
    pub(crate) why: String,
    pub(crate) noticed: Instant,
    pub(crate) course: Course,
}

/// How far that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Course {
    /// The writer has not taken it up yet.
    Noticed,
    /// The writer makes another.
    Renewing,
    /// It did not come to it in time.
    GivenUp,
}
