//! What a row is given: its size, its time, the guests' results, and where it says what it is doing.

use super::guests::Guests;
use crate::error::{Error, Result};
use crate::experiments::Progress;
use std::path::Path;
use std::time::Instant;

pub struct Plan<'a> {
    /// Small sizes, for continuous integration.
    pub quick: bool,
    /// The archive of a real source tree, if one was named.
    pub archive: Option<&'a Path>,
    pub guests: &'a Guests,
    pub(super) deadline: Option<Instant>,
    pub(super) out_of_time: bool,
    pub(super) progress: Progress<'a>,
}

impl Plan<'_> {
    /// Says what is done next.
    ///
    /// # Errors
    /// The time limit has come: the row ends, and the next run measures it as a whole.
    pub fn step(&mut self, what: &str) -> Result<()> {
        (self.progress)(what);
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.out_of_time = true;
            return Err(Error::Unable("the time limit has come".into()));
        }
        Ok(())
    }

    /// Whether claims about times are judged. Those of a quick run say too little: only its counts are judged.
    pub fn judges_times(&self) -> bool {
        !self.quick
    }

    /// The first for a quick run, else the second.
    pub fn pick<T>(&self, quick: T, whole: T) -> T {
        if self.quick { quick } else { whole }
    }
}
