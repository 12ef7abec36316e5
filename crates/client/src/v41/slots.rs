//! The slots of a session (RFC 8881 section 2.10.6.1), as a value: who holds which, and the next
//! sequence number of each. No I/O.
//!
//! | state of a slot | meaning | leaves it by |
//! |---|---|---|
//! | free | its last reply arrived, or it was never used | [`SlotTable::take`], lowest number first |
//! | taken | a request with its number may be at the server | [`SlotTable::put_back`] (executed or not) |
//!
//! A slot is put back only when it is known whether the server has seen the number: a slot for which
//! that stays unknown is lost with its session.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A slot that the holder may send one request on, and retransmit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub id: u32,
    /// The sequence number for the request.
    pub seq: u32,
}

/// All slots of one session.
#[derive(Debug)]
pub struct SlotTable {
    next_seq: Vec<u32>,
    taken: Vec<bool>,
    free: BinaryHeap<Reverse<u32>>,
    /// Slots from here up are not given out (the server asked for fewer).
    enough: u32,
}

impl SlotTable {
    /// `slots` slots, all free, at sequence number 1.
    pub fn new(slots: u32) -> SlotTable {
        SlotTable {
            next_seq: vec![1; slots as usize],
            taken: vec![false; slots as usize],
            free: (0..slots).map(Reverse).collect(),
            enough: slots,
        }
    }

    /// The lowest free slot, if the server's target leaves one.
    pub fn take(&mut self) -> Option<Slot> {
        let id = self.free.peek().map(|r| r.0).filter(|id| *id < self.enough)?;
        self.free.pop();
        self.taken[id as usize] = true;
        Some(Slot { id, seq: self.next_seq[id as usize] })
    }

    /// Gives a slot back; `used` when the server has counted its sequence number.
    pub fn put_back(&mut self, slot: Slot, used: bool) {
        if used {
            // RFC 8881 section 2.10.6.1: the number wraps around.
            self.next_seq[slot.id as usize] = slot.seq.wrapping_add(1);
        }
        self.taken[slot.id as usize] = false;
        self.free.push(Reverse(slot.id));
    }

    /// Follows `sr_target_highest_slotid` (RFC 8881 section 18.46.3); never below one slot, never above
    /// the slots there are.
    pub fn set_target(&mut self, highest: u32) {
        self.enough = highest.saturating_add(1).clamp(1, self.next_seq.len() as u32);
    }

    /// The highest slot taken, for `sa_highest_slotid`; 0 when none is.
    pub fn highest(&self) -> u32 {
        self.taken.iter().rposition(|t| *t).unwrap_or(0) as u32
    }

    /// Slots that may be in use at the same time.
    pub fn usable(&self) -> u32 {
        self.enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rfc8881_2_10_6_1_the_number_moves_only_when_used_and_wraps() {
        let mut t = SlotTable::new(1);
        let s = t.take().unwrap();
        assert_eq!((s, t.take()), (Slot { id: 0, seq: 1 }, None));
        t.put_back(s, false);
        assert_eq!(t.take(), Some(Slot { id: 0, seq: 1 }));
        t.put_back(Slot { id: 0, seq: u32::MAX }, true);
        assert_eq!(t.take(), Some(Slot { id: 0, seq: 0 }));
    }

    #[test]
    fn the_target_is_followed_down_and_up() {
        let mut t = SlotTable::new(4);
        t.set_target(0);
        let s = t.take().unwrap();
        assert_eq!(t.take(), None);
        t.set_target(99);
        assert_eq!(t.take().map(|s| s.id), Some(1));
        t.put_back(s, true);
        assert_eq!(t.take(), Some(Slot { id: 0, seq: 2 }));
    }

    proptest! {
        #[test]
        fn no_slot_is_held_twice_and_numbers_never_jump(script in prop::collection::vec((any::<bool>(), any::<bool>(), 0u32..9), 0..200)) {
            let mut t = SlotTable::new(8);
            let mut held: Vec<Slot> = Vec::new();
            let mut expected = [1u32; 8];
            for (take, used, n) in script {
                if take {
                    if let Some(s) = t.take() {
                        prop_assert!(held.iter().all(|h| h.id != s.id));
                        prop_assert_eq!(s.seq, expected[s.id as usize]);
                        held.push(s);
                        prop_assert!(t.highest() == held.iter().map(|h| h.id).max().unwrap());
                    }
                } else if !held.is_empty() {
                    let s = held.remove(n as usize % held.len());
                    if used { expected[s.id as usize] += 1; }
                    t.put_back(s, used);
                } else {
                    t.set_target(n);
                }
            }
        }
    }
}
