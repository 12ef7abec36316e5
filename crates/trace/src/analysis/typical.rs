//! Selects a typical file among those with the same calls. No I/O.
//!
//! It keeps a few files of each sequence, evenly spread over the capture. The typical one is the one with the median
//! time.

use super::limits::{SAMPLE_MAX, TIMED_CALLS_MAX};
use std::net::IpAddr;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timed {
    /// Procedure or operation, numbered as for [`super::name`].
    pub label: u8,
    /// Whether its effect had to be durable.
    pub synchronous: bool,
    /// Its status if it failed, otherwise 0.
    pub error: u32,
    /// Time of its first byte, in nanoseconds.
    pub begun_ns: i64,
    /// From its first byte to its last, in nanoseconds.
    pub upload_ns: f32,
    /// From there to the first byte of the reply.
    pub wait_ns: f32,
    /// From there to the last byte of the reply.
    pub reply_ns: f32,
    /// The network's part of the wait, if measured.
    pub network_ns: Option<f32>,
}

impl Timed {
    /// Time of the last byte of the reply.
    pub fn ended_ns(&self) -> i64 {
        self.begun_ns.saturating_add((self.upload_ns + self.wait_ns + self.reply_ns) as i64)
    }
}

/// The calls of a file, in the order of their replies.
#[derive(Debug, Clone, PartialEq)]
pub struct Steps {
    pub ends: (IpAddr, IpAddr),
    /// Its calls, up to [`TIMED_CALLS_MAX`].
    pub calls: Vec<Timed>,
}

impl Steps {
    pub(super) fn new(ends: (IpAddr, IpAddr)) -> Self {
        Steps { ends, calls: Vec::new() }
    }

    pub(super) fn add(&mut self, calls: impl IntoIterator<Item = Timed>) {
        let room = TIMED_CALLS_MAX.saturating_sub(self.calls.len());
        self.calls.extend(calls.into_iter().take(room));
    }

    fn span_ns(&self) -> i64 {
        let first = self.calls.iter().map(|call| call.begun_ns).min().unwrap_or(0);
        self.calls.iter().map(Timed::ended_ns).max().unwrap_or(0).saturating_sub(first)
    }
}

/// A sample of files: each nth is kept.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    kept: Vec<Steps>,
    seen: u64,
    /// The n, as a power of two.
    apart: u32,
}

impl Sample {
    pub fn add(&mut self, steps: Steps) {
        let wanted = self.seen.trailing_zeros() >= self.apart;
        self.seen += 1;
        if !wanted {
            return;
        }
        if self.kept.len() >= SAMPLE_MAX {
            let mut nth = 0u32..;
            self.kept.retain(|_| nth.next().is_some_and(|n| n % 2 == 0));
            self.apart = self.apart.saturating_add(1);
            if (self.seen - 1).trailing_zeros() < self.apart {
                return;
            }
        }
        self.kept.push(steps);
    }

    pub fn typical(mut self) -> Option<Steps> {
        self.kept.sort_by_key(Steps::span_ns);
        let middle = self.kept.len() / 2;
        (middle < self.kept.len()).then(|| self.kept.swap_remove(middle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn took(ns: f32) -> Steps {
        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        let mut steps = Steps::new((here, here));
        let call = Timed {
            label: 3,
            synchronous: false,
            error: 0,
            begun_ns: 1_000_000_000,
            upload_ns: 0.0,
            wait_ns: ns,
            reply_ns: 0.0,
            network_ns: None,
        };
        steps.add(vec![call; 2 * TIMED_CALLS_MAX]);
        steps
    }

    #[test]
    fn the_typical_file_is_in_the_middle_of_all() {
        assert_eq!(Sample::default().typical(), None);
        for n in [1u32, 2, 3, 10, 1000] {
            // In any order.
            for step in [1, 7, 331] {
                let mut sample = Sample::default();
                (0..n).for_each(|i| sample.add(took((i * step % n) as f32)));
                assert!(
                    sample.kept.len() <= SAMPLE_MAX && sample.kept.len() >= (SAMPLE_MAX / 2).min(n as usize)
                );
                let steps = sample.typical().expect("one");
                assert_eq!(steps.calls.len(), TIMED_CALLS_MAX);
                let off = (steps.calls[0].wait_ns - (n / 2) as f32).abs();
                assert!(off <= n as f32 * 0.25, "{n} {step}: {off}");
            }
        }
    }
}
