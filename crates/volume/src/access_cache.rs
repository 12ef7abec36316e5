//! What an open file remembers of its opener: that he may read or write, and since when ([`crate::Volume::as_caller`]).
//!
//! Invariants:
//!
//! - What is remembered equals the result of an open by him now. So it no longer counts once the volume has changed the file's
//!   owner, mode or access list (`rights` counts that), or at the age of [`DESCRIPTOR_CACHE_TIME`], which bounds how long a local
//!   process's change goes unnoticed.
//! - Nothing is remembered of other callers: each access of theirs costs a system call.

use std::time::Instant;

use parking_lot::Mutex;

use crate::limits::DESCRIPTOR_CACHE_TIME;
use crate::types::OpenMode;

/// When the opener was last admitted, and the file's count of rights changes at that time.
#[derive(Clone, Copy)]
struct Grant {
    at: Instant,
    rights: u64,
}

/// For reading, for writing.
#[derive(Default)]
pub(crate) struct AccessCache(Mutex<[Option<Grant>; 2]>);

impl AccessCache {
    /// Notes that the opener may do what `mode` says; `rights` is the file's count before the check.
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
            known.is_some_and(|g| {
                g.rights == rights && now.saturating_duration_since(g.at) < DESCRIPTOR_CACHE_TIME
            })
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
        let (granted, at) = (AccessCache::default(), Instant::now());
        let late = at + DESCRIPTOR_CACHE_TIME;
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
