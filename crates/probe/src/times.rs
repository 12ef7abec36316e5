//! Distributions of times. No I/O.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// Percentiles do not exceed this.
const LONGEST_NS: u64 = 1 << 40;

#[derive(Debug)]
pub struct Times {
    calls: u64,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
    times: Histogram<u32>,
}

impl Default for Times {
    fn default() -> Self {
        // A percentile needs no better precision than a thousandth.
        let times = Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed"));
        Times { calls: 0, min_ns: u64::MAX, max_ns: 0, sum_ns: 0, times }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Distribution {
    pub calls: u64,
    pub min_s: f64,
    pub p10_s: f64,
    pub median_s: f64,
    pub p90_s: f64,
    pub p99_s: f64,
    pub max_s: f64,
    pub mean_s: f64,
}

impl Times {
    pub fn add(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.calls += 1;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += u128::from(ns);
        // The histogram grows up to the longest time and has no other limit.
        let _ = self.times.record(ns.min(LONGEST_NS));
    }

    /// The summary. `None`: no times.
    pub fn distribution(&self) -> Option<Distribution> {
        let s = |ns: u64| ns as f64 / 1e9;
        // A histogram's value stands for a range, but minimum and maximum are exact.
        let percentile = |p: f64| s(self.times.value_at_percentile(p).clamp(self.min_ns, self.max_ns));
        (self.calls > 0).then(|| Distribution {
            calls: self.calls,
            min_s: s(self.min_ns),
            p10_s: percentile(10.0),
            median_s: percentile(50.0),
            p90_s: percentile(90.0),
            p99_s: percentile(99.0),
            max_s: s(self.max_ns),
            mean_s: self.sum_ns as f64 / self.calls as f64 / 1e9,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hundred_times() {
        let mut times = Times::default();
        assert_eq!(times.distribution(), None);
        (1..=100).rev().for_each(|ms| times.add(Duration::from_millis(ms)));
        let d = times.distribution().unwrap();
        let near = |a: f64, b: f64| assert!((a - b).abs() <= b / 1000.0, "{a} {b}");
        assert_eq!((d.calls, d.min_s, d.max_s), (100, 0.001, 0.1));
        near(d.p10_s, 0.010);
        near(d.median_s, 0.050);
        near(d.p90_s, 0.090);
        near(d.p99_s, 0.099);
        near(d.mean_s, 0.0505);
    }

    proptest! {
        #[test]
        fn parts_are_in_order(all in prop::collection::vec(any::<u64>(), 1..200)) {
            let mut times = Times::default();
            all.iter().for_each(|ns| times.add(Duration::from_nanos(*ns)));
            let d = times.distribution().unwrap();
            let parts = [d.min_s, d.p10_s, d.median_s, d.p90_s, d.p99_s, d.max_s];
            prop_assert!(parts.is_sorted(), "{d:?}");
            prop_assert!(d.min_s <= d.mean_s * 1.000_001 && d.mean_s <= d.max_s * 1.000_001, "{d:?}");
        }
    }
}
