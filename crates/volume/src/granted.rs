//! What an open file remembers for its opener: that he may read or write, and since when ([`crate::Volume::as_caller`]).
//!
//! Invariants:
//!
//! - What is remembered is what an open by him would be told now: it is worth nothing when the volume has changed the file's
//!   owner, mode or access list since (`rights` counts that), or when it is as old as [`BRIEF_OPEN`], which bounds how long
//!   what a local process changes goes unnoticed.
//! - Of any other caller nothing is remembered: each access of his costs the system call that asks.

use std::time::Instant;

use parking_lot::Mutex;

use crate::limits::BRIEF_OPEN;
use crate::types::OpenMode;

/// When the opener was last let in, and how often the file's rights had been changed then.
#[derive(Clone, Copy)]
struct Grant {
    at: Instant,
    rights: u64,
}

/// What an open file remembers: of reading, of writing.
#[derive(Default)]
pub(crate) struct Granted(Mutex<[Option<Grant>; 2]>);

impl Granted {
    /// The opener may do what `mode` says; `rights` was the file's count before he was asked about.
    pub(crate) fn note(&self, mode: OpenMode, rights: u64, at: Instant) {
        let mut known = self.0.lock();
        let [read, write] = &mut *known;
        for (wanted, known) in [(mode.read, read), (mode.write, write)] {
            if wanted {
                *known = Some(Grant { at, rights });
            }
        }
    }

    pub(crate) fn holds(&self, mode: OpenMode, rights: u64, now: Instant) -> bool {
        let [read, write] = *self.0.lock();
        let good = |known: Option<Grant>| {
            known.is_some_and(|g| g.rights == rights && now.saturating_duration_since(g.at) < BRIEF_OPEN)
        };
        (!mode.read || good(read)) && (!mode.write || good(write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_remembered_holds_for_what_was_asked_and_until_rights_change_or_time_is_over() {
        let (granted, at) = (Granted::default(), Instant::now());
        let late = at + BRIEF_OPEN;
        assert!(!granted.holds(OpenMode::READ, 0, at), "nothing was asked yet");
        granted.note(OpenMode::READ, 3, at);
        assert!(granted.holds(OpenMode::READ, 3, late - Duration::from_nanos(1)));
        assert!(!granted.holds(OpenMode::READ, 3, late));
        assert!(!granted.holds(OpenMode::READ, 4, at));
        assert!(!granted.holds(OpenMode::WRITE, 3, at));
        assert!(!granted.holds(OpenMode::BOTH, 3, at));
        granted.note(OpenMode::WRITE, 4, at);
        assert!(granted.holds(OpenMode::WRITE, 4, at));
        assert!(!granted.holds(OpenMode::BOTH, 4, at), "reading was asked about before the change");
        granted.note(OpenMode::BOTH, 4, at);
        assert!(granted.holds(OpenMode::BOTH, 4, at));
    }
}
