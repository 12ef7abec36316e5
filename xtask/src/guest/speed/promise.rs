//! What is promised of Landfast's client beside Linux's, and whether a run has kept it.
//!
//! RPCs do not depend on the machine: their bounds are near to what they are. Times do, and the guest's one processor is emulated:
//! their bounds leave room.

use serde::Serialize;

use super::{Row, Side};
use crate::guest::setup::Who;

/// What is promised of one work, each as Linux's figure over Landfast's.
struct Bound {
    work: &'static str,
    /// Times the RPCs and times the time, where a round trip takes a millisecond or more: on Landfast's server.
    here: (f64, f64),
    /// The same on the kernel's, which takes one file's data in a COMPOUND, and shares the guest's processor with its clients.
    on_kernel: (f64, f64),
}

/// A listing is as few RPCs in the kernel's client, and its command starts quicker than an emulated processor starts ours.
const BOUNDS: [Bound; 4] = [
    Bound { work: "tar -x", here: (50.0, 4.0), on_kernel: (5.0, 1.5) },
    Bound { work: "ls -lR", here: (1.0, 0.0), on_kernel: (1.0, 0.0) },
    Bound { work: "du -s", here: (1.0, 0.0), on_kernel: (1.0, 0.0) },
    Bound { work: "rm -r", here: (8.0, 1.5), on_kernel: (5.0, 1.2) },
];

/// The shortest round trip whose times are judged.
const TIMED_FROM_MS: f64 = 1.0;

/// A promise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Promise {
    /// What it is of.
    pub what: String,
    /// What was measured.
    pub value: f64,
    /// What it must not be below.
    pub at_least: f64,
    /// Whether it holds.
    pub kept: bool,
}

impl Promise {
    fn new(what: String, value: f64, at_least: f64) -> Promise {
        // Not a number is no promise kept.
        Promise { what, value, at_least, kept: value >= at_least }
    }
}

/// Judges a run: for each work and round trip Landfast beside each of the kernel's versions.
pub fn judge(rows: &[Row], server: Who) -> Vec<Promise> {
    let mut promises = Vec::new();
    for bound in &BOUNDS {
        let (rpcs, time) = if server == Who::Landfast { bound.here } else { bound.on_kernel };
        for ours in rows.iter().filter(|row| row.work == bound.work && row.client == Side::OURS) {
            for theirs in rows.iter().filter(|row| row.is_beside(ours)) {
                let who = format!("{}, {} ms, {}", ours.work, ours.round_trip_ms, theirs.client);
                promises.push(Promise::new(format!("{who}: times the RPCs"), theirs.rpcs / ours.rpcs, rpcs));
                if time > 0.0 && ours.round_trip_ms >= TIMED_FROM_MS {
                    promises.push(Promise::new(
                        format!("{who}: times the time"),
                        theirs.seconds / ours.seconds,
                        time,
                    ));
                }
            }
        }
    }
    promises
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(client: &str, rpcs: f64, seconds: f64) -> Row {
        Row {
            work: "tar -x".into(),
            round_trip_ms: 1.0,
            client: client.into(),
            objects: 100,
            seconds,
            rpcs,
            operations: Default::default(),
        }
    }

    #[test]
    fn a_run_with_too_many_rpcs_or_too_slow_is_found_out() {
        let judged = |ours: Row, server: Who| -> Vec<bool> {
            let rows = [ours, row("Linux, v3", 600.0, 10.0)];
            judge(&rows, server).iter().map(|promise| promise.kept).collect()
        };
        assert_eq!(judged(row(Side::OURS, 10.0, 1.0), Who::Landfast), [true, true]);
        assert_eq!(judged(row(Side::OURS, 100.0, 1.0), Who::Landfast), [false, true]);
        assert_eq!(judged(row(Side::OURS, 100.0, 9.0), Who::Kernel), [true, false]);
        assert_eq!(judged(row(Side::OURS, 0.0, 0.0), Who::Kernel), [true, true], "more than any bound");
        assert!(judge(&[row(Side::OURS, 1.0, 1.0)], Who::Landfast).is_empty());
    }
}
