//! How far listings may run ahead of the consumer of their entries. Pure.
//!
//! A walk knows only afterwards how many entries a listing brings. So a listing that is asked for counts as large as the largest
//! recent one.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::limits::{GATHERED_MIN, LISTING_EXPECTED};

/// A bound on the objects that the consumer holds and that the listings under way may bring.
#[derive(Debug)]
pub(super) struct Ahead {
    most: usize,
    held: AtomicUsize,
    /// Entries that a listing is expected to bring.
    each: AtomicUsize,
}

impl Ahead {
    pub(super) fn new(most: usize) -> Ahead {
        Ahead { most, held: AtomicUsize::new(0), each: AtomicUsize::new(LISTING_EXPECTED) }
    }

    /// A listing has come.
    pub(super) fn brought(&self, entries: usize) {
        let each = self.each.load(Relaxed);
        self.each.store(entries.max(each - each.div_ceil(16)).max(1), Relaxed);
    }

    /// The consumer holds so many objects now.
    pub(super) fn holds(&self, objects: usize) {
        self.held.store(objects, Relaxed);
    }

    /// How many listings may be asked for beside these.
    pub(super) fn more(&self, under_way: usize) -> usize {
        let left = self.most.saturating_sub(self.held.load(Relaxed));
        (left / self.each.load(Relaxed)).saturating_sub(under_way)
    }

    /// How many listings wait for each other to go in one COMPOUND: fewer where only a few may be under way.
    pub(super) fn together(&self) -> usize {
        (self.most / self.each.load(Relaxed) / 4).clamp(1, GATHERED_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_listings_let_more_be_asked_for_and_a_large_one_fewer() {
        let ahead = Ahead::new(LISTING_EXPECTED * 4);
        assert_eq!((ahead.more(0), ahead.more(3), ahead.more(9)), (4, 1, 0));
        ahead.holds(LISTING_EXPECTED * 3);
        assert_eq!(ahead.more(0), 1);
        ahead.holds(LISTING_EXPECTED * 9);
        assert_eq!(ahead.more(0), 0);
        ahead.holds(0);
        for _ in 0..200 {
            ahead.brought(1);
        }
        assert_eq!(ahead.more(0), LISTING_EXPECTED * 4);
        ahead.brought(LISTING_EXPECTED * 2);
        assert_eq!(ahead.more(0), 2);
    }
}
