//! Warnings that a client could cause as often as it likes: at most one an hour, with the number of those held back.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::{WARN_EVERY, WARN_OF_MAX};

#[derive(Debug, Default)]
pub struct RateLimit(Mutex<(Option<Instant>, u64)>);

impl RateLimit {
    pub const fn new() -> RateLimit {
        RateLimit(Mutex::new((None, 0)))
    }

    /// Gives the warning unless this kind was given within the hour. `say` gets the number held back.
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

/// A kind of warning about many things, such as clients: one an hour for each of [`WARN_OF_MAX`] things, and one for
/// all others.
#[derive(Debug)]
pub struct KeyedRateLimit<K> {
    known: Mutex<HashMap<K, (Instant, u64)>>,
    others: RateLimit,
}

impl<K: Eq + Hash> Default for KeyedRateLimit<K> {
    fn default() -> Self {
        KeyedRateLimit { known: Mutex::default(), others: RateLimit::new() }
    }
}

impl<K: Eq + Hash> KeyedRateLimit<K> {
    /// Gives the warning unless it was given about this thing within the hour. `say` gets the number held back.
    pub fn warn(&self, of: K, say: impl FnOnce(HeldBack)) {
        if let Some(held_back) = self.due(of, Instant::now(), WARN_EVERY) {
            say(HeldBack(held_back));
        }
    }

    fn due(&self, of: K, now: Instant, every: Duration) -> Option<u64> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = |last: Instant| now.saturating_duration_since(last) < every;
        if let Some((last, held_back)) = known.get_mut(&of) {
            if recent(*last) {
                *held_back += 1;
                return None;
            }
            *last = now;
            return Some(std::mem::take(held_back));
        }
        if known.len() >= WARN_OF_MAX {
            known.retain(|_, (last, _)| recent(*last));
        }
        if known.len() >= WARN_OF_MAX {
            return self.others.due(now, every);
        }
        known.insert(of, (now, 0));
        Some(0)
    }
}

/// How many warnings of a kind were held back since the last; displayed as an appendix to the next, or as nothing.
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
        let kind = RateLimit::new();
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
    #[test]
    fn one_for_each_thing_and_one_for_all_beyond_the_bound() {
        let kind = KeyedRateLimit::default();
        let (start, hour) = (Instant::now(), Duration::from_secs(3600));
        for thing in 0..WARN_OF_MAX {
            assert_eq!(kind.due(thing, start, hour), Some(0));
            assert_eq!(kind.due(thing, start, hour), None);
        }
        let further = [0, 1, 2].map(|n| kind.due(WARN_OF_MAX + n, start, hour));
        assert_eq!(further, [Some(0), None, None], "counted as one");
        assert_eq!(kind.due(7, start + hour, hour), Some(1));
        // Those of which nothing was heard for so long make room.
        assert_eq!(kind.due(WARN_OF_MAX, start + hour, hour), Some(0));
        assert_eq!(kind.known.lock().unwrap().len(), 2);
    }
}
