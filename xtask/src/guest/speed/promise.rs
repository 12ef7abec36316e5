//! What is promised of Landfast's client beside Linux's, and whether a run has kept it.
//!
//! RPCs do not depend on the machine: their bounds are near to what they are. Times do, and the guest's one processor is emulated:
//! their bounds leave room.

use serde::Serialize;

use super::small_work::FIRST;
use super::{Row, Side, Subject};
use crate::guest::setup::Who;

/// What is promised of one work: Linux's figure over Landfast's.
struct Bound {
    subject: Subject,
    work: &'static str,
    /// Times the RPCs, and times the time (0: nothing) where round trips are long enough: on Landfast's server.
    here: (f64, f64),
    /// The same on the kernel's, which takes one file's data in a COMPOUND, and shares the guest's processor with its clients.
    on_kernel: (f64, f64),
}

/// A listing is as few RPCs in the kernel's client, and its command starts quicker than an emulated processor starts ours. A page
/// that comes again comes in part from the kernel's cache, which the library has not.
const BOUNDS: [Bound; 5] = [
    Bound { subject: Subject::Files, work: "tar -x", here: (50.0, 4.0), on_kernel: (5.0, 1.5) },
    Bound { subject: Subject::Files, work: "ls -lR", here: (1.0, 0.0), on_kernel: (1.0, 0.0) },
    Bound { subject: Subject::Files, work: "du -s", here: (1.0, 0.0), on_kernel: (1.0, 0.0) },
    Bound { subject: Subject::Files, work: "rm -r", here: (8.0, 1.5), on_kernel: (5.0, 1.2) },
    Bound { subject: Subject::WebPage, work: FIRST, here: (10.0, 3.0), on_kernel: (2.0, 1.2) },
];

/// The shortest round trip whose times are judged; beside a server on the same processor there is more to compute for everybody.
const TIMED_FROM_MS: f64 = 1.0;
const TIMED_FROM_MS_ON_KERNEL: f64 = 10.0;

/// On `landfast mount` with a version 4 an extraction takes so many times fewer RPCs than Linux's client, and every work where round
/// trips are so long is as fast at least.
const MOUNT_TAR_RPCS: f64 = 4.0;
const MOUNT_TIMED_FROM_MS: f64 = 10.0;
const MOUNT_TIME: f64 = 0.9;

/// RPCs of a first open by the library, at any depth; the kernel's client looks up each name by itself.
const OPEN_RPCS: f64 = 1.0;

/// So many times as long as the library's a first open takes in the kernel's client, for each directory above, where round trips are
/// as long as this.
const OPEN_TIMES: f64 = 0.25;
const OPEN_TIMED_FROM_MS: f64 = 10.0;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Promise {
    pub what: String,
    pub value: f64,
    /// Lower limit of `value`, or with `at_most` the upper limit.
    pub bound: f64,
    pub at_most: bool,
    pub kept: bool,
}

impl Promise {
    fn at_least(what: String, value: f64, bound: f64) -> Promise {
        Promise { what, value, bound, at_most: false, kept: value >= bound }
    }

    fn at_most(what: String, value: f64, bound: f64) -> Promise {
        Promise { what, value, bound, at_most: true, kept: value <= bound }
    }
}

/// Judges a run: for each work and round trip Landfast beside each of the kernel's versions.
pub fn judge(rows: &[Row], server: Who) -> Vec<Promise> {
    let mut promises = Vec::new();
    for ours in rows.iter().filter(|row| row.client == Side::OURS) {
        if ours.subject == Subject::NestedOpen {
            let what = format!("first open below {}, {} ms: RPCs", ours.work, ours.round_trip_ms);
            promises.push(Promise::at_most(what, ours.rpcs, OPEN_RPCS));
        }
        for theirs in rows.iter().filter(|row| row.is_beside(ours) && row.client.starts_with(Side::LINUX)) {
            let Some((rpcs, time)) = bounds(ours, server) else { continue };
            let who = format!("{}, {} ms, {}", name(ours), ours.round_trip_ms, theirs.client);
            let times = theirs.rpcs / ours.rpcs;
            promises.push(Promise::at_least(format!("{who}: times the RPCs"), times, rpcs));
            if time > 0.0 {
                let times = theirs.seconds / ours.seconds;
                promises.push(Promise::at_least(format!("{who}: times the time"), times, time));
            }
        }
    }
    promises.extend(mounts(rows));
    promises
}

/// The same of `landfast mount`, beside Linux's client with the same version.
fn mounts(rows: &[Row]) -> Vec<Promise> {
    let mut promises = Vec::new();
    for ours in rows.iter().filter(|row| row.client.starts_with(Side::MOUNT)) {
        let version = ours.client.trim_start_matches(Side::MOUNT);
        let theirs = rows.iter().filter(|row| row.is_beside(ours));
        for theirs in theirs.filter(|row| row.client.strip_prefix(Side::LINUX) == Some(version)) {
            let who = format!("{}, {} ms, {}", name(ours), ours.round_trip_ms, ours.client);
            if ours.work == "tar -x" && !version.ends_with(" v3") {
                let times = theirs.rpcs / ours.rpcs;
                promises.push(Promise::at_least(format!("{who}: times Linux's RPCs"), times, MOUNT_TAR_RPCS));
            }
            if ours.round_trip_ms >= MOUNT_TIMED_FROM_MS {
                let times = theirs.seconds / ours.seconds;
                promises.push(Promise::at_least(format!("{who}: times Linux's time"), times, MOUNT_TIME));
            }
        }
    }
    promises
}

/// What is promised of a row of Landfast's: times the RPCs, times the time.
fn bounds(ours: &Row, server: Who) -> Option<(f64, f64)> {
    let timed = |from_ms: f64, time: f64| if ours.round_trip_ms >= from_ms { time } else { 0.0 };
    if ours.subject == Subject::NestedOpen {
        // A LOOKUP for each directory, and what opens the file.
        let depth: f64 = ours.work.parse().ok()?;
        return Some((depth + 1.0, timed(OPEN_TIMED_FROM_MS, OPEN_TIMES * depth)));
    }
    let bound = BOUNDS.iter().find(|bound| (bound.subject, bound.work) == (ours.subject, &ours.work))?;
    let ((rpcs, time), from_ms) = match server {
        Who::Landfast => (bound.here, TIMED_FROM_MS),
        Who::Kernel | Who::Ganesha | Who::Local => (bound.on_kernel, TIMED_FROM_MS_ON_KERNEL),
    };
    Some((rpcs, timed(from_ms, time)))
}

fn name(row: &Row) -> String {
    match row.subject {
        Subject::Files => row.work.clone(),
        Subject::NestedOpen => format!("first open below {}", row.work),
        Subject::WebPage => format!("page, {}", row.work),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(subject: Subject, work: &str, client: &str, rpcs: f64, seconds: f64) -> Row {
        let (work, client) = (work.to_owned(), client.to_owned());
        Row {
            subject,
            work,
            round_trip_ms: 10.0,
            client,
            objects: 100,
            seconds,
            rpcs,
            operations: Default::default(),
        }
    }

    /// Which promises are kept, of Landfast's figures beside 600 RPCs and 10 seconds.
    fn kept(subject: Subject, work: &str, (rpcs, seconds): (f64, f64), server: Who) -> Vec<bool> {
        let rows =
            [row(subject, work, Side::OURS, rpcs, seconds), row(subject, work, "Linux, v3", 600.0, 10.0)];
        judge(&rows, server).iter().map(|promise| promise.kept).collect()
    }

    #[test]
    fn a_run_with_too_many_rpcs_or_too_slow_is_found_out() {
        let untar = |figures, server| kept(Subject::Files, "tar -x", figures, server);
        assert_eq!(untar((10.0, 1.0), Who::Landfast), [true, true]);
        assert_eq!(untar((100.0, 1.0), Who::Landfast), [false, true]);
        assert_eq!(untar((100.0, 9.0), Who::Kernel), [true, false]);
        assert_eq!(kept(Subject::Files, "ls -lR", (601.0, 99.0), Who::Kernel), [false]);
        assert!(judge(&[row(Subject::Files, "tar -x", Side::OURS, 1.0, 1.0)], Who::Landfast).is_empty());
    }

    #[test]
    fn a_mount_is_beside_linuxs_client_of_its_version() {
        let kept = |work, rpcs, seconds| {
            let linux = |vers: &str| row(Subject::Files, work, &format!("Linux, v{vers}"), 600.0, 10.0);
            let rows =
                [linux("3"), linux("4.2"), row(Subject::Files, work, "landfast mount, v4.2", rpcs, seconds)];
            judge(&rows, Who::Landfast).iter().map(|promise| promise.kept).collect::<Vec<_>>()
        };
        assert_eq!(kept("tar -x", 100.0, 5.0), [true, true]);
        assert_eq!(kept("tar -x", 300.0, 20.0), [false, false]);
        assert_eq!(kept("ls -lR", 9000.0, 10.0), [true]);
    }

    #[test]
    fn an_open_is_one_rpc_and_a_page_is_judged_the_first_time() {
        let open = |figures| kept(Subject::NestedOpen, "32", figures, Who::Landfast);
        assert_eq!(open((1.0, 1.0)), [true, true, true]);
        assert_eq!(open((2.0, 1.0)), [false, true, true]);
        assert_eq!(open((1.0, 2.0)), [true, true, false]);
        assert_eq!(kept(Subject::WebPage, FIRST, (61.0, 1.0), Who::Landfast), [false, true]);
        assert!(kept(Subject::WebPage, "again", (900.0, 99.0), Who::Landfast).is_empty());
    }
}
