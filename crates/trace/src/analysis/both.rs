//! Combines two captures of the same traffic, made at its two ends. The difference of their service times is the
//! network's part. No I/O.

use super::limits::MERGED_MAX;
use crate::path::Shortest;
use crate::skim::Program;
use crate::trace::{Call, Ends, Observer, Reply};
use foldhash::HashMap;
use foldhash::fast::FixedState;
use std::collections::BTreeMap;
use std::hash::BuildHasher;

/// An observer that records the calls as the other end captured them.
#[derive(Debug, Default)]
pub struct OtherEnd {
    /// Service times in nanoseconds. `None`: two calls look alike.
    times: HashMap<u64, Option<i64>>,
    left_out: u64,
}

/// A key that both captures have for a call. It contains no addresses and ports, because these may be translated on
/// the way.
fn key(call: &Call, reply: &Reply) -> u64 {
    let kind = call.head.kind;
    let Program::Nfs = kind.program else { return 0 };
    let what = (call.head.xid, kind.version, kind.procedure, call.times.bytes, reply.times.bytes);
    FixedState::with_seed(1).hash_one(what)
}

fn service_ns(call: &Call, reply: &Reply) -> Option<i64> {
    Some(reply.times.counted()?.ns.saturating_sub(call.times.counted()?.ns))
}

impl Observer for OtherEnd {
    fn call(&mut self, _: Ends, _: &Call) {}

    fn reply(&mut self, _: Ends, call: &Call, reply: &Reply) {
        let (Some(ns), true) = (service_ns(call, reply), call.head.kind.program == Program::Nfs) else {
            return;
        };
        let key = key(call, reply);
        if let Some(known) = self.times.get_mut(&key) {
            *known = None;
        } else if self.times.len() < MERGED_MAX {
            self.times.insert(key, Some(ns));
        } else {
            self.left_out += 1;
        }
    }

    fn stall(&mut self, _: Ends, _: i64, _: i64) {}
    fn path(&mut self, _: Ends, _: [Option<Shortest>; 2]) {}
}

/// Calls that both ends have. Times in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    pub calls: u64,
    /// Sum of their service times here.
    pub here_ns: i128,
    /// Sum of their service times at the other end.
    pub there_ns: i128,
}

#[derive(Debug, Default)]
pub struct Both {
    other: OtherEnd,
    /// By operation.
    rows: BTreeMap<u8, Sum>,
}

impl Both {
    pub fn new(other: OtherEnd) -> Self {
        Both { other, rows: BTreeMap::new() }
    }

    /// The network's part of a call's service time. `None`: the other end does not have the call.
    pub(super) fn network_ns(&mut self, label: u8, call: &Call, reply: &Reply) -> Option<i64> {
        let here = service_ns(call, reply)?;
        let there = self.other.times.remove(&key(call, reply))??;
        let sum = self.rows.entry(label).or_default();
        sum.calls += 1;
        sum.here_ns += i128::from(here);
        sum.there_ns += i128::from(there);
        Some(here.saturating_sub(there).max(0))
    }

    /// The sums by operation, and the total.
    pub fn rows(&self) -> (&BTreeMap<u8, Sum>, Sum) {
        let mut all = Sum::default();
        for sum in self.rows.values() {
            all.calls += sum.calls;
            all.here_ns += sum.here_ns;
            all.there_ns += sum.there_ns;
        }
        (&self.rows, all)
    }

    pub fn left_out(&self) -> u64 {
        self.other.left_out
    }
}
