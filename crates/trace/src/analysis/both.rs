//! Two captures of one traffic, made at its two ends: the difference of their service times is the network's. Pure.

use super::limits::MERGED_MAX;
use crate::path::Shortest;
use crate::skim::Program;
use crate::trace::{Call, Ends, Observer, Reply};
use foldhash::HashMap;
use foldhash::fast::FixedState;
use std::collections::BTreeMap;
use std::hash::BuildHasher;

/// Calls as one end captured them: an observer.
#[derive(Debug, Default)]
pub struct OtherEnd {
    /// Service times in nanoseconds; `None`: two calls look alike.
    times: HashMap<u64, Option<i64>>,
    left_out: u64,
}

/// How a call is known again: addresses and ports may have been translated on the way.
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

/// Calls that both ends have. Nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub calls: u64,
    /// Their service times here.
    pub here_ns: i128,
    /// Their service times at the other end.
    pub there_ns: i128,
}

/// What both ends have.
#[derive(Debug, Default)]
pub struct Both {
    other: OtherEnd,
    /// By what was called.
    rows: BTreeMap<u8, Sum>,
}

impl Both {
    /// With the calls of the other end.
    #[must_use]
    pub fn new(other: OtherEnd) -> Self {
        Both { other, rows: BTreeMap::new() }
    }

    /// What of a call's service time is the network's; `None`: the other end does not have it.
    pub(super) fn network_ns(&mut self, label: u8, call: &Call, reply: &Reply) -> Option<i64> {
        let here = service_ns(call, reply)?;
        let there = self.other.times.remove(&key(call, reply))??;
        let sum = self.rows.entry(label).or_default();
        sum.calls += 1;
        sum.here_ns += i128::from(here);
        sum.there_ns += i128::from(there);
        Some(here.saturating_sub(there).max(0))
    }

    /// What both ends have, by what was called, and all together.
    #[must_use]
    pub fn rows(&self) -> (&BTreeMap<u8, Sum>, Sum) {
        let mut all = Sum::default();
        for sum in self.rows.values() {
            all.calls += sum.calls;
            all.here_ns += sum.here_ns;
            all.there_ns += sum.there_ns;
        }
        (&self.rows, all)
    }

    /// Calls of the other end that were too many to remember.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.other.left_out
    }
}
