//! Keeps the longest waits and pauses while the calls are read. No I/O.

use super::limits::{LONGEST_MAX, LONGEST_PAUSES_MAX};
use crate::skim::facts::Class;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Shorter waits are not kept, in nanoseconds. The search for periodic stalls uses what is kept.
pub(super) const LEAST_NS: u64 = 10_000_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Long {
    /// The part of it that is not the network's as far as that is known, and the network's part.
    pub rest_ns: u64,
    pub network_ns: u64,
    pub from_ns: i64,
    pub to_ns: i64,
    /// How long nothing was answered before this reply.
    pub quiet_ns: i64,
    pub weight: f64,
    pub class: Class,
    pub label: u8,
}

impl Long {
    pub(super) fn ns(&self) -> u64 {
        self.rest_ns.saturating_add(self.network_ns)
    }
}

impl PartialEq for Long {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Long {}

impl Ord for Long {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.ns(), other.from_ns).cmp(&(other.ns(), self.from_ns))
    }
}

impl PartialOrd for Long {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The longest waits of a client, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct Longest {
    pub(super) waits: BinaryHeap<Reverse<Long>>,
    /// Time of the last reply.
    answered_ns: Option<i64>,
}

impl Longest {
    #[cfg(test)]
    pub const BYTES_MAX: usize = LONGEST_MAX.next_power_of_two() * 3 / 2 * size_of::<Long>();

    /// A call was answered. Sets in `long` how long nothing was answered before.
    pub fn add(&mut self, long: Long) {
        self.add_up_to(LONGEST_MAX, long);
    }

    fn add_up_to(&mut self, most: usize, mut long: Long) {
        let before = self.answered_ns.replace(self.answered_ns.map_or(long.to_ns, |ns| ns.max(long.to_ns)));
        if long.ns() < LEAST_NS {
            return;
        }
        let since = before.map_or(long.from_ns, |ns| ns.max(long.from_ns));
        long.quiet_ns = long.to_ns.saturating_sub(since).max(0);
        if self.waits.len() < most {
            self.waits.push(Reverse(long));
        } else if let Some(mut least) = self.waits.peek_mut()
            && least.0 < long
        {
            *least = Reverse(long);
        }
    }

    pub fn pause(&mut self, from_ns: i64, to_ns: i64) {
        let (rest_ns, class) = (to_ns.saturating_sub(from_ns).max(0).unsigned_abs(), Class::Light);
        let long = Long { rest_ns, network_ns: 0, from_ns, to_ns, quiet_ns: 0, weight: 0.0, class, label: 0 };
        self.add_up_to(LONGEST_PAUSES_MAX, long);
    }
}
