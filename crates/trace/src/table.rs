//! Service times by procedure like tshark's `-z rpc,srt`, with median and 99th percentile. NFSv4 also by operation.

use crate::limits::ROWS_MAX;
use crate::skim::{self, Kind, Program};
use crate::trace::{Call, Reply};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// A procedure of the program.
    Procedure(u32),
    /// COMPOUNDs of NFSv4, or CB_COMPOUNDs, with this main operation.
    Operation(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub program: Program,
    pub version: u32,
    pub item: Item,
}

impl Place {
    pub fn name(&self) -> String {
        let (known, number) = match self.item {
            Item::Procedure(n) => (self.program.procedure(self.version, n), n),
            Item::Operation(n) => (self.program.operation(n), n),
        };
        known.map_or_else(|| format!("{number}"), str::to_owned)
    }

    pub fn index(&self) -> u32 {
        match self.item {
            Item::Procedure(n) | Item::Operation(n) => n,
        }
    }
}

#[derive(Debug)]
pub struct Row {
    pub calls: u64,
    /// The shortest service time, in nanoseconds.
    pub min_ns: u64,
    pub max_ns: u64,
    pub sum_ns: u128,
    times: Histogram<u32>,
}

impl Row {
    /// The most memory of a row in bytes: 31 powers of two above the first 2,048, each in 1,024 steps of four bytes.
    pub const BYTES_MAX: usize = 33 * 1024 * 4;

    fn new() -> Self {
        // A percentile needs no better precision than a thousandth.
        let times = Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed"));
        Row { calls: 0, min_ns: u64::MAX, max_ns: 0, sum_ns: 0, times }
    }

    fn add(&mut self, ns: u64) {
        self.calls += 1;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += u128::from(ns);
        // The histogram grows up to the longest time and has no other limit.
        let _ = self.times.record(ns.min(LONGEST_NS));
    }

    pub fn avg_ns(&self) -> u64 {
        u64::try_from(self.sum_ns / u128::from(self.calls.max(1))).unwrap_or(u64::MAX)
    }

    /// A percentile of the service times in nanoseconds, to three digits.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        self.times.value_at_percentile(percent).clamp(self.min_ns.min(self.max_ns), self.max_ns)
    }
}

/// Nanoseconds as seconds with six decimals, rounded as tshark does.
pub fn seconds(ns: u128) -> String {
    let us = (ns + 500) / 1000;
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// The longest time in the histograms: 73 minutes.
const LONGEST_NS: u64 = (1 << 42) - 1;

#[derive(Debug, Default)]
pub struct Table {
    rows: BTreeMap<Place, Row>,
    operations_unknown: u64,
}

impl Table {
    /// Ordered by program, version and number.
    pub fn rows(&self) -> impl Iterator<Item = (&Place, &Row)> {
        self.rows.iter()
    }

    /// COMPOUNDs of NFSv4 whose main operation is unknown.
    pub fn operations_unknown(&self) -> u64 {
        self.operations_unknown
    }

    /// Counts a call with its reply, if both times are known.
    pub fn add(&mut self, call: &Call, reply: &Reply) {
        let (Some(from), Some(to)) = (call.times.counted(), reply.times.counted()) else { return };
        let ns = u64::try_from(to.ns.saturating_sub(from.ns)).unwrap_or(0);
        let Kind { program, version, procedure, .. } = call.head.kind;
        self.row(Place { program, version, item: Item::Procedure(procedure) }, ns);
        if call.head.kind.is_compound() || call.head.kind.is_callbacks() {
            match main_operation(call, reply) {
                Some(op) => self.row(Place { program, version, item: Item::Operation(op) }, ns),
                None => self.operations_unknown += u64::from(program == Program::Nfs),
            }
        }
    }

    fn row(&mut self, place: Place, ns: u64) {
        if self.rows.len() < ROWS_MAX || self.rows.contains_key(&place) {
            self.rows.entry(place).or_insert_with(Row::new).add(ns);
        }
    }
}

/// The main operation among those that were executed. A reply lists them in the order of the call, up to the first
/// that failed. `None`: encrypted, or not in the captured part of the call.
pub fn main_operation(call: &Call, reply: &Reply) -> Option<u32> {
    let (of, ops) = (call.head.kind.program, &call.head.ops);
    let done = reply.head.operations.map_or(ops.len(), |n| n as usize);
    if done > ops.len() {
        return skim::only_main_operation(of, ops).map(|op| op.0);
    }
    skim::main_operation(of, if done == 0 { ops } else { &ops[..done] }).map(|op| op.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_one_in_a_thousand() {
        let mut row = Row::new();
        for us in 1..=1000u64 {
            row.add(us * 1000);
        }
        row.add(u64::MAX);
        for (percent, ns) in [(50.0, 501_000.0), (99.0, 991_000.0), (10.0, 101_000.0)] {
            let found = row.percentile_ns(percent) as f64;
            assert!((found - ns).abs() <= ns / 1000.0, "{percent}: {found}");
        }
        assert_eq!((row.min_ns, row.max_ns), (1000, u64::MAX));
        assert!(row.times.distinct_values() * 4 <= Row::BYTES_MAX, "{}", row.times.distinct_values());
    }
}
