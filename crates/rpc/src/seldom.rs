//! Warnings that a client could cause as often as it likes: one an hour, with the number of those that were held back.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::WARN_EVERY;

/// A kind of warning.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    /// None given yet.
    #[must_use]
    pub const fn new() -> Seldom {
        Seldom(Mutex::new((None, 0)))
    }

    /// Gives the warning, unless one of the kind was given within the hour; `say` is told how many were not.
    pub fn warn(&self, say: impl FnOnce(HeldBack)) {
        if let Some(held_back) = self.due(Instant::now(), WARN_EVERY) {
            say(HeldBack(held_back));
        }
    }

    fn due(&self, now: Instant, every: Duration) -> Option<u64> {
        let mut kind = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, held_back) = &mut *kind;
        if last.is_some_and(|last| now.saturating_duration_since(last) < every) {
            *held_back += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(held_back))
    }
}

/// How many warnings of a kind were not given since the last; shown as an appendix to the next, or as nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldBack(u64);

impl std::fmt::Display for HeldBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => Ok(()),
            n => write!(f, " ({n} times more in the last hour or longer)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_an_hour_with_the_number_of_the_others() {
        let kind = Seldom::new();
        let (start, hour) = (Instant::now(), Duration::from_secs(3600));
        assert_eq!(kind.due(start, hour), Some(0));
        for s in 1..1000 {
            assert_eq!(kind.due(start + Duration::from_secs(s), hour), None);
        }
        assert_eq!(kind.due(start + hour, hour), Some(999));
        assert_eq!(kind.due(start + hour * 3, hour), Some(0));
        let shown: Vec<String> = [HeldBack(0), HeldBack(3)].iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["", " (3 times more in the last hour or longer)"]);
    }
}
