//! Interprets the measured distributions: terms of the equation, where the time for small files goes, anomalies. No
//! I/O.

use crate::ask::Operation;
use crate::limits::WRITE_BYTES;
use crate::times::Distribution;
use landfast_model::{Device, SEEN_S, Shares, Terms, Wait};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default)]
pub struct Measured {
    pub connect: Option<Distribution>,
    /// Single calls, one at a time.
    pub latencies: BTreeMap<Operation, Distribution>,
    /// The server answered UNSTABLE WRITEs as durable.
    pub unstable_was_stable: bool,
    /// Bytes a second with many WRITEs in flight.
    pub upload_bytes_per_s: Option<f64>,
    /// The longest single calls: when they ended, in seconds since the start, and how long they took.
    pub longest: Vec<(f64, f64)>,
}

/// What a client sends for one small file. Measured for GNU tar on Linux's client in captures of 200 files.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PerFile {
    pub calls: f64,
    pub creates: f64,
    /// WRITEs that must be durable when answered.
    pub writes: f64,
    pub setattrs: f64,
    pub bytes: f64,
}

impl PerFile {
    pub const V3: PerFile = PerFile { calls: 9.4, creates: 1.0, writes: 1.0, setattrs: 4.1, bytes: 4096.0 };
    pub const V4: PerFile = PerFile { calls: 12.4, ..PerFile::V3 };

    fn synchronous(&self) -> [(Operation, f64); 3] {
        [
            (Operation::Create, self.creates),
            (Operation::WriteFileSync, self.writes),
            (Operation::Setattr, self.setattrs),
        ]
    }
}

/// An observation that a reader should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remark {
    pub kind: RemarkKind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemarkKind {
    /// WRITE FILE_SYNC is as fast as WRITE UNSTABLE.
    SyncAsFast,
    /// Changes of names or attributes wait less than a WRITE.
    MetadataFast,
    /// COMMIT waits less than WRITE FILE_SYNC.
    CommitFast,
    /// UNSTABLE is answered as durable, or waits as if it had to be.
    UnstableStable,
    /// Calls were answered with "later".
    Later,
    NotMeasured,
    /// Calls of all kinds are stalled periodically.
    Throttled,
    /// A few calls took much longer than all others.
    Stalled,
}

/// A call counts as stalled if it takes this many times the usual time of the slowest operation, and this many
/// seconds.
const ODD: f64 = 4.0;
const ODD_S: f64 = 0.01;
/// A single call of this length is reported. Seconds.
const STALL_S: f64 = 0.2;

/// A shorter wait may be work and cannot be compared. Seconds.
const CLEAR_S: f64 = 300e-6;

impl Measured {
    fn median(&self, operation: Operation) -> f64 {
        self.latencies.get(&operation).map_or(0.0, |d| d.median_s)
    }

    /// The round trip: the median time of connecting, because that needs no more than the two kernels. It is at least
    /// the quickest NULL, because something in between may accept connections, and at most the median NULL.
    pub fn round_trip_s(&self) -> f64 {
        let Some(null) = self.latencies.get(&Operation::Null) else { return 0.0 };
        self.connect.map_or(null.median_s, |c| c.median_s).clamp(null.min_s, null.median_s)
    }

    /// The time of a call that changes nothing.
    fn plain_s(&self) -> f64 {
        let reads = [Operation::Getattr, Operation::Access].map(|op| self.median(op));
        (reads.iter().sum::<f64>() / 2.0).max(self.round_trip_s())
    }

    /// The transfer time of a WRITE's data. It is at most what UNSTABLE shows.
    fn transfer_s(&self) -> f64 {
        let rate = self.upload_bytes_per_s.filter(|r| *r > 0.0);
        let seen = (self.median(Operation::WriteUnstable) - self.plain_s()).max(0.0);
        rate.map_or(0.0, |r| WRITE_BYTES as f64 / r).min(seen)
    }

    /// The time of a call that changes something without waiting for a device: the smaller of UNSTABLE, and of COMMIT
    /// if nothing is left to commit. Anything beyond plausible work is a wait.
    fn change_s(&self) -> f64 {
        let unstable = self.median(Operation::WriteUnstable) - self.transfer_s();
        unstable.min(self.median(Operation::Commit)).clamp(self.plain_s(), self.plain_s() + CLEAR_S)
    }

    /// The part of an operation's time beyond that of a change without a wait.
    fn wait_of(&self, operation: Operation, time_s: f64) -> f64 {
        let transfer = if operation == Operation::WriteFileSync { self.transfer_s() } else { 0.0 };
        time_s - transfer - self.change_s()
    }

    /// How long an operation waits for durability. Seconds.
    pub fn persistence_s(&self, operation: Operation) -> f64 {
        self.wait_of(operation, self.median(operation)).max(0.0)
    }

    /// The terms of the equation, for the calls of a file.
    pub fn terms(&self, file: &PerFile) -> Terms {
        let synchronous = file.synchronous();
        let weight: f64 = synchronous.iter().map(|(_, n)| n).sum();
        let waits: f64 = synchronous.iter().map(|(op, n)| n * self.persistence_s(*op)).sum();
        let round_trip_s = self.round_trip_s();
        Terms {
            round_trip_s,
            server_s: self.plain_s() - round_trip_s,
            persistence_s: waits / weight,
            think_s: 0.0,
            file_think_s: 0.0,
            upload_bytes_per_s: self.upload_bytes_per_s,
            download_bytes_per_s: None,
            in_flight: 1.0,
        }
    }

    /// Where the time for one file goes.
    pub fn shares(&self, file: &PerFile) -> Shares {
        let terms = self.terms(file);
        let synchronous: f64 = file.synchronous().iter().map(|(_, n)| n).sum();
        Shares {
            rtt: file.calls * terms.round_trip_s,
            persistence: synchronous * terms.persistence_s,
            server: file.calls * terms.server_s + synchronous * (self.change_s() - self.plain_s()),
            bandwidth: self.upload_bytes_per_s.filter(|r| *r > 0.0).map_or(0.0, |r| file.bytes / r),
            ..Shares::default()
        }
    }

    /// The wait of WRITE FILE_SYNC for durability.
    pub fn wait(&self) -> Option<Wait> {
        let d = self.latencies.get(&Operation::WriteFileSync)?;
        let wait = |s: f64| self.wait_of(Operation::WriteFileSync, s);
        Some(Wait { p10_s: wait(d.p10_s), median_s: wait(d.median_s) })
    }

    /// The device that this wait looks like.
    pub fn device(&self) -> Option<Device> {
        self.wait().map(|w| Device::of(&w))
    }

    /// What medians hide: a server that is stalled periodically, or was for a while.
    pub fn held_up(&self) -> Option<Remark> {
        // What the slowest operation takes in nine of ten cases is no stall.
        let usual = self.latencies.values().map(|d| d.median_s).fold(0.0, f64::max);
        let odd: Vec<_> = self.longest.iter().filter(|(_, took)| *took > (ODD * usual).max(ODD_S)).collect();
        let mut times: Vec<f64> = odd.iter().map(|(_, took)| *took).collect();
        times.sort_unstable_by(f64::total_cmp);
        let (longest, middle) = (*times.last()?, times[times.len() / 2]);
        let ms = |s: f64| format!("{:.0} ms", s * 1e3);
        let ends: Vec<f64> = odd.iter().map(|(end, _)| *end).collect();
        if let Some(period) = landfast_model::rhythm::period_s(&ends) {
            let text = format!(
                "every {} a call is held up for {} ({} times), whatever it is: as under a quota of processor time or of input and output; the \
                 times above are of the others",
                ms(period),
                ms(middle),
                odd.len()
            );
            return Some(Remark { kind: RemarkKind::Throttled, text });
        }
        let (n, were) = (odd.len(), if odd.len() == 1 { "call was" } else { "calls were" });
        (longest >= STALL_S).then(|| Remark {
            kind: RemarkKind::Stalled,
            text: format!("{n} {were} held up for up to {}, far longer than all others: look at what the server did then", ms(longest)),
        })
    }

    /// Whether replies look durable at all, and other remarks.
    pub fn remarks(&self) -> Vec<Remark> {
        const VERIFY: &str = "times cannot tell which; `landfast verify` around a power cut can";
        let mut remarks = Vec::new();
        let mut remark = |kind, text: String| remarks.push(Remark { kind, text });
        let ms = |s: f64| format!("{:.2} ms", s * 1e3);
        let (Some(unstable), Some(sync)) =
            (self.latencies.get(&Operation::WriteUnstable), self.latencies.get(&Operation::WriteFileSync))
        else {
            return remarks;
        };
        let write = self.persistence_s(Operation::WriteFileSync);
        if self.unstable_was_stable {
            remark(
                RemarkKind::UnstableStable,
                "WRITE UNSTABLE is answered as FILE_SYNC: the server makes all data stable at once, or says so".to_owned(),
            );
        } else if unstable.median_s - self.plain_s() - self.transfer_s() >= CLEAR_S.max(0.5 * write) {
            remark(
                RemarkKind::UnstableStable,
                format!(
                    "WRITE UNSTABLE ({}) waits like WRITE FILE_SYNC ({}), though it need not be stable before its COMMIT",
                    ms(unstable.median_s),
                    ms(sync.median_s)
                ),
            );
        } else if sync.median_s - unstable.median_s
            < SEEN_S.max(0.1 * unstable.median_s).max(unstable.p90_s - unstable.median_s).min(CLEAR_S)
        {
            remark(
                RemarkKind::SyncAsFast,
                format!(
                    "WRITE FILE_SYNC ({}) is as fast as WRITE UNSTABLE ({}): memory that survives a power cut, or answers before the \
                     data is stable; {VERIFY}",
                    ms(sync.median_s),
                    ms(unstable.median_s)
                ),
            );
        }
        if write < CLEAR_S {
            return remarks;
        }
        let fast: Vec<&str> = [Operation::Create, Operation::Setattr, Operation::Remove]
            .into_iter()
            .filter(|op| self.latencies.contains_key(op) && self.persistence_s(*op) < write / 4.0)
            .map(Operation::name)
            .collect();
        if !fast.is_empty() {
            remark(
                RemarkKind::MetadataFast,
                format!(
                    "a WRITE waits {} for stable storage, {} much less: perhaps what changes names and attributes is answered before it \
                     is stable; {VERIFY}",
                    ms(write),
                    fast.join(", ")
                ),
            );
        }
        let commit = self.median(Operation::Commit) - self.plain_s();
        let unstable = unstable.median_s - self.plain_s();
        if commit < write / 4.0 && unstable < write / 4.0 {
            remark(
                RemarkKind::CommitFast,
                format!(
                    "a WRITE FILE_SYNC waits {} for stable storage, WRITE UNSTABLE and its COMMIT much less: perhaps COMMIT is answered \
                     before the data is stable; {VERIFY}",
                    ms(write)
                ),
            );
        }
        remarks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::Times;
    use landfast_model::Bound;
    use proptest::prelude::*;
    use std::time::Duration;

    /// Times around a median, in microseconds.
    fn about(us: f64, spread: f64) -> Distribution {
        let mut times = Times::default();
        for n in 0..101 {
            times.add(Duration::from_secs_f64((us + spread * (f64::from(n) - 50.0) / 50.0).max(0.0) / 1e6));
        }
        times.distribution().unwrap()
    }

    fn measured(all: &[(Operation, f64)]) -> Measured {
        Measured {
            connect: Some(about(100.0, 10.0)),
            latencies: all.iter().map(|(op, us)| (*op, about(*us, us / 20.0))).collect(),
            unstable_was_stable: false,
            upload_bytes_per_s: Some(100e6),
            longest: Vec::new(),
        }
    }

    fn server(flush_us: f64, metadata_us: f64, commit_us: f64) -> Measured {
        measured(&[
            (Operation::Null, 105.0),
            (Operation::Getattr, 120.0),
            (Operation::Access, 120.0),
            (Operation::Create, 150.0 + metadata_us),
            (Operation::WriteUnstable, 190.0),
            (Operation::Commit, 150.0 + commit_us),
            (Operation::WriteFileSync, 190.0 + flush_us),
            (Operation::Setattr, 150.0 + metadata_us),
            (Operation::Remove, 150.0 + metadata_us),
        ])
    }

    fn kinds(m: &Measured) -> Vec<RemarkKind> {
        m.remarks().into_iter().map(|r| r.kind).collect()
    }

    #[test]
    fn a_disk_is_persistence_bound() {
        let m = server(10_000.0, 10_000.0, 10_000.0);
        let terms = m.terms(&PerFile::V4);
        assert!((terms.round_trip_s - 100e-6).abs() < 2e-6, "{terms:?}");
        assert!((terms.server_s - 20e-6).abs() < 3e-6, "{terms:?}");
        assert!((terms.persistence_s - 10e-3).abs() < 50e-6, "{terms:?}");
        let shares = m.shares(&PerFile::V4);
        assert_eq!(shares.verdict().unwrap().bound, Bound::Persistence);
        assert!((shares.persistence - 61e-3).abs() < 0.5e-3, "{shares:?}");
        assert_eq!(m.device(), Some(Device::Even));
        assert_eq!(kinds(&m), []);
    }

    #[test]
    fn what_medians_hide_is_told() {
        let mut m = server(200.0, 200.0, 200.0);
        assert_eq!(m.held_up(), None);
        // Every 100 ms, one call takes 80 ms.
        m.longest = (0..20).map(|n| (0.1 * f64::from(n), 0.08)).collect();
        m.longest.extend([(0.33, 0.001), (0.71, 0.002)]);
        let remark = m.held_up().expect("a remark");
        assert_eq!(remark.kind, RemarkKind::Throttled);
        assert!(
            remark.text.starts_with("every 100 ms a call is held up for 80 ms (20 times)"),
            "{}",
            remark.text
        );
        m.longest = vec![(0.5, 2.0), (1.0, 0.002)];
        assert_eq!(m.held_up().map(|r| r.kind), Some(RemarkKind::Stalled));
        // If a flush of the disk takes 60 ms, this is its usual time.
        let mut slow = server(60_000.0, 60_000.0, 60_000.0);
        slow.longest = (0..20).map(|n| (0.1 * f64::from(n), 0.08)).collect();
        assert_eq!(slow.held_up(), None);
    }

    #[test]
    fn what_is_not_waited_for() {
        assert_eq!(kinds(&server(0.0, 0.0, 0.0)), [RemarkKind::SyncAsFast]);
        assert_eq!(kinds(&server(8000.0, 0.0, 8000.0)), [RemarkKind::MetadataFast]);
        assert_eq!(kinds(&server(8000.0, 8000.0, 0.0)), [RemarkKind::CommitFast]);
        let mut m = server(0.0, 0.0, 0.0);
        m.unstable_was_stable = true;
        assert_eq!(kinds(&m), [RemarkKind::UnstableStable]);
        assert_eq!(server(0.0, 0.0, 0.0).shares(&PerFile::V4).verdict().unwrap().bound, Bound::Rtt);
    }

    /// A server that also makes UNSTABLE data durable leaves nothing for COMMIT. Its wait is found all the same.
    #[test]
    fn unstable_that_is_not() {
        let mut m = server(5000.0, 5000.0, -30.0);
        m.latencies.insert(Operation::WriteUnstable, about(5190.0, 100.0));
        m.unstable_was_stable = true;
        let waits = m.persistence_s(Operation::WriteFileSync);
        assert!((waits - 5e-3).abs() < 0.2e-3, "{waits}");
    }

    /// Here, UNSTABLE and COMMIT wait, too.
    #[test]
    fn all_that_changes_waits() {
        let mut m = server(10_000.0, 10_000.0, 10_000.0);
        m.latencies.insert(Operation::WriteUnstable, about(10_200.0, 100.0));
        assert_eq!(m.shares(&PerFile::V4).verdict().unwrap().bound, Bound::Persistence);
        assert!((m.terms(&PerFile::V4).persistence_s - 9.8e-3).abs() < 0.2e-3);
        assert_eq!(kinds(&m), [RemarkKind::UnstableStable]);
    }

    /// On a slow link a WRITE takes long, but it does not wait for a device.
    #[test]
    fn a_slow_line() {
        let mut m = server(0.0, 0.0, 0.0);
        for op in [Operation::WriteUnstable, Operation::WriteFileSync] {
            m.latencies.insert(op, about(33_000.0, 300.0));
        }
        m.upload_bytes_per_s = Some(125_000.0);
        let shares = m.shares(&PerFile::V3);
        assert_eq!(shares.verdict().unwrap().bound, Bound::Bandwidth, "{shares:?}");
        assert!(shares.persistence < 2e-3, "{shares:?}");
    }

    proptest! {
        #[test]
        fn no_measurement_gives_nonsense(us in prop::collection::vec(0.0f64..1e6, 9), rate in prop::option::of(0.0f64..1e9), connect: bool) {
            use Operation::{Access, Commit, Create, Getattr, Null, Remove, Setattr, WriteFileSync, WriteUnstable};
            let all = [Null, Getattr, Access, Create, WriteUnstable, Commit, WriteFileSync, Setattr, Remove];
            let mut m = measured(&all.into_iter().zip(us).collect::<Vec<_>>());
            m.upload_bytes_per_s = rate;
            m.connect = m.connect.filter(|_| connect);
            for file in [PerFile::V3, PerFile::V4] {
                let t = m.terms(&file);
                for part in [t.round_trip_s, t.server_s, t.persistence_s] {
                    prop_assert!(part.is_finite() && part >= 0.0, "{t:?}");
                }
                for (_, part) in m.shares(&file).parts() {
                    prop_assert!(part.is_finite() && part >= 0.0);
                }
            }
            prop_assert!(m.remarks().iter().all(|r| !r.text.is_empty()));
        }
    }
}
