//! Identifiers of files and connections; and unguessable numbers for client IDs and stateids.
//!
//! Each such number is the next value of a counter under a keyed permutation. So one instance of the server never gives
//! a number twice, and one number says nothing about the others. The key is random, new for each instance, and passed
//! in. What the log kept of a former instance keeps its number.

use bytes::Bytes;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// Identifies a file: its wire filehandle.
pub type FileKey = Bytes;

/// Identifies a connection; assigned by the shell, never used twice.
pub type ConnId = u64;

/// A random key, new for each instance of the server.
pub type Secret = [u8; 16];

/// The kind of number. One kind says nothing about the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Client = 1,
    State = 2,
}

/// Rounds of the Feistel network. From six on the best known attacks need as many numbers as there are halves, 2^32
/// (J. Patarin, "Security of Random Feistel Schemes with 5 or more Rounds").
const ROUNDS: u8 = 8;
/// The highest bit marks NLM's hosts; no number has it.
const HIGHEST: u64 = 1 << 63;

#[derive(Clone)]
pub struct Ids {
    key: Secret,
    kind: Kind,
    next: u64,
}

impl std::fmt::Debug for Ids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key must not get into any log.
        f.debug_struct("Ids").field("kind", &self.kind).field("given", &self.next).finish_non_exhaustive()
    }
}

impl Ids {
    pub fn new(key: Secret, kind: Kind) -> Ids {
        Ids { key, kind, next: 0 }
    }

    /// A number from 1 to 2^63 - 1 that was not given before.
    pub fn fresh(&mut self) -> u64 {
        loop {
            let id = self.permuted(self.next);
            self.next += 1;
            if id != 0 {
                return id;
            }
        }
    }

    /// Whether this instance of the server has given this number. A made-up number, or one of a former instance, passes
    /// only by a lucky guess.
    pub fn was_given(&self, id: u64) -> bool {
        id != 0 && id < HIGHEST && self.origin(id) < self.next
    }

    /// A permutation of the numbers below 2^63: the 64-bit permutation, repeated until the result is in range.
    fn permuted(&self, n: u64) -> u64 {
        let mut n = self.forth(n);
        while n >= HIGHEST {
            n = self.forth(n);
        }
        n
    }

    fn origin(&self, id: u64) -> u64 {
        let mut n = self.back(id);
        while n >= HIGHEST {
            n = self.back(n);
        }
        n
    }

    fn forth(&self, n: u64) -> u64 {
        let (mut left, mut right) = halves(n);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.round(round, right));
        }
        whole(left, right)
    }

    fn back(&self, n: u64) -> u64 {
        let (mut left, mut right) = halves(n);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.round(round, left), left);
        }
        whole(left, right)
    }

    fn round(&self, round: u8, half: u32) -> u32 {
        let mut h = SipHasher24::new_with_key(&self.key);
        h.write(&[self.kind as u8, round]);
        h.write(&half.to_be_bytes());
        h.finish() as u32
    }
}

fn halves(n: u64) -> (u32, u32) {
    ((n >> 32) as u32, n as u32)
}

fn whole(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn none_is_given_twice_none_has_the_highest_bit_and_each_is_known_again() {
        let mut ids = Ids::new([7; 16], Kind::State);
        let mut seen = HashSet::new();
        for _ in 0..20_000 {
            let id = ids.fresh();
            assert!(id != 0 && id < HIGHEST && seen.insert(id) && ids.was_given(id));
        }
        let next = ids.clone().fresh();
        assert!(!ids.was_given(next), "not yet");
        assert!(!ids.was_given(0) && !ids.was_given(HIGHEST) && !ids.was_given(u64::MAX));
    }

    #[test]
    fn the_numbers_of_another_instance_or_kind_are_others() {
        let of = |key, kind| {
            let mut ids = Ids::new([key; 16], kind);
            (0..1000).map(|_| ids.fresh()).collect::<HashSet<_>>()
        };
        let mut ids = Ids::new([1; 16], Kind::Client);
        let own: Vec<u64> = (0..1000).map(|_| ids.fresh()).collect();
        for other in [of(2, Kind::Client), of(1, Kind::State)] {
            assert!(own.iter().all(|id| !other.contains(id)));
            assert!(other.iter().all(|id| !ids.was_given(*id)));
        }
    }

    #[test]
    fn neighbours_have_nothing_in_common() {
        // Half of the bits differ, as between random numbers: 31.5 of 63, here within six standard deviations of the mean.
        let mut ids = Ids::new([3; 16], Kind::State);
        let given: Vec<u64> = (0..4097).map(|_| ids.fresh()).collect();
        let differ: u32 = given.windows(2).map(|w| (w[0] ^ w[1]).count_ones()).sum();
        let mean = f64::from(differ) / 4096.0;
        assert!((31.1..31.9).contains(&mean), "{mean}");
        for bit in 0..63 {
            let set = given.iter().filter(|id| **id >> bit & 1 == 1).count();
            assert!((1856..2241).contains(&set), "bit {bit}: {set} of 4097");
        }
    }

    proptest! {
        #[test]
        fn the_permutation_can_be_undone(key: [u8; 16], n in 0..HIGHEST) {
            let ids = Ids::new(key, Kind::Client);
            prop_assert!(ids.permuted(n) < HIGHEST);
            prop_assert_eq!(ids.origin(ids.permuted(n)), n);
        }
    }
}
