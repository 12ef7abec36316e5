//! Where the time of a mount went, as far as its counters tell. No I/O.
//!
//! The counters are only sums, and the time from sending a call to its reply includes both network and server. So it
//! is divided by comparison:
//!
//! - The average of the quickest operation stands for the round trip, although a part of it is the server's.
//! - What other operations that change nothing take beyond that is the server's time.
//! - What operations that change something take beyond these is the wait for durability.

use super::{Counters, Mount};
use landfast_model::{Shares, Terms, Verdict, Work};

/// What an operation asks of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Little, and it changes nothing.
    Plain,
    /// A change that must be durable before the reply.
    Stable,
    /// A WRITE. The counters do not tell whether it must be durable.
    Write,
    /// Data or whole directories for the client.
    Read,
}

impl Class {
    /// The class of an operation, by its name in the kernel.
    pub fn of(name: &str) -> Class {
        match name {
            "WRITE" => Class::Write,
            "READ" | "READ_PLUS" | "READDIR" | "READDIRPLUS" | "READLINK" | "GETACL" | "GETXATTR" => {
                Class::Read
            }
            "SETATTR" | "CREATE" | "MKDIR" | "SYMLINK" | "MKNOD" | "REMOVE" | "RMDIR" | "RENAME" | "LINK"
            | "COMMIT" | "OPEN" | "SETACL" | "SETXATTR" | "REMOVEXATTR" | "ALLOCATE" | "DEALLOCATE"
            | "CLONE" | "COPY" | "LAYOUTCOMMIT" => Class::Stable,
            _ => Class::Plain,
        }
    }
}

/// An average over fewer calls means nothing.
const ENOUGH: u64 = 10;

/// With at least this average size in bytes, WRITEs spend their time in transfer rather than waiting.
const LARGE: f64 = 32.0 * 1024.0;

#[derive(Debug, Clone, PartialEq)]
pub struct Findings {
    /// Length of the span, in seconds.
    pub span_s: f64,
    pub terms: Terms,
    /// The work done. The number of files is unknown.
    pub work: Work,
    /// Where the time of the span went.
    pub shares: Shares,
    pub verdict: Option<Verdict>,
    /// What bounds the time with calls in flight.
    pub under_way: Option<Verdict>,
    /// The operation that stands for the round trip.
    pub quickest: Option<String>,
    /// WRITEs were assumed to be durable ones.
    pub writes_stable: bool,
    pub retransmissions: u64,
    pub timeouts: u64,
}

impl Findings {
    /// Evaluates a mount's counters over a span. `None`: over its age.
    pub fn of(mount: &Mount, span_s: Option<f64>) -> Findings {
        // The age is in whole seconds, so up to one more may have passed.
        let limit_s = span_s.unwrap_or(mount.age_s as f64 + 1.0).max(1e-3);
        // Each connection counts only its own requests in flight. With several connections, at least as many were in
        // flight as fit into the time.
        let in_flight = mount.in_flight().max(busy_s(mount) / limit_s);
        let round_trip = round_trip(mount);
        let round_trip_ms = round_trip.map_or(0.0, |(_, ms)| ms);
        let plain = sum(mount, |name| Class::of(name) == Class::Plain);
        let plain_ms = plain.average(plain.rtt_ms).max(round_trip_ms);
        let writes_stable = writes_stable(mount);
        let mut parts = Shares::default();
        let (mut synchronous, mut waits) = (0u64, 0.0);
        for (name, c) in mount.used() {
            let (rtt, ops) = (c.rtt_ms as f64, c.ops as f64);
            // After the reply the client processes it. While a request waits to be sent, others are in flight, and
            // the time is theirs.
            parts.client += behind_ms(c);
            let trips = (ops * round_trip_ms).min(rtt);
            let work = (ops * plain_ms).min(rtt) - trips;
            let rest = rtt - trips - work;
            parts.rtt += trips;
            let large = |bytes: u64| c.average(bytes) >= LARGE;
            match Class::of(name) {
                Class::Stable => {
                    (synchronous, waits) = (synchronous.saturating_add(c.ops), waits + rest);
                    parts.server += work;
                    parts.persistence += rest;
                }
                Class::Write if writes_stable => {
                    (synchronous, waits) = (synchronous.saturating_add(c.ops), waits + rest);
                    parts.server += work;
                    parts.persistence += rest;
                }
                Class::Write if large(c.bytes_sent) => parts.bandwidth += work + rest,
                Class::Read if large(c.bytes_received) => parts.bandwidth += work + rest,
                _ => parts.server += work + rest,
            }
        }
        // Calls that were in flight together share the elapsed time.
        let scale = 1e-3 / in_flight;
        let mut shares = Shares {
            rtt: parts.rtt * scale,
            persistence: parts.persistence * scale,
            server: parts.server * scale,
            bandwidth: parts.bandwidth * scale,
            client: parts.client * scale,
            loss: 0.0,
        };
        let under_way = shares.verdict();
        let busy = shares.total();
        let span_s = span_s.unwrap_or(mount.age_s as f64).max(busy);
        let idle = span_s - busy;
        shares.client += idle;
        let ops = mount.ops();
        let upload = mount.operations.get("WRITE").filter(|c| c.average(c.bytes_sent) >= LARGE);
        let reads = ["READ", "READ_PLUS"].into_iter().filter_map(|name| mount.operations.get(name));
        let download = reads.max_by_key(|c| c.bytes_received);
        let download = download.filter(|c| c.average(c.bytes_received) >= LARGE);
        let rate = |c: &Counters, bytes: u64| {
            let waited = (c.rtt_ms as f64 - c.ops as f64 * round_trip_ms).max(1.0) * scale;
            bytes as f64 / waited
        };
        let all = |of: fn(&Counters) -> u64| mount.used().fold(0u64, |sum, (_, c)| sum.saturating_add(of(c)));
        let per = |value: f64, n: u64| if n == 0 { 0.0 } else { value / n as f64 };
        let terms = Terms {
            round_trip_s: round_trip_ms / 1e3,
            server_s: (plain_ms - round_trip_ms) / 1e3,
            persistence_s: per(waits, synchronous) / 1e3,
            think_s: per(shares.client * in_flight, ops),
            file_think_s: 0.0,
            upload_bytes_per_s: upload.filter(|_| shares.bandwidth > 0.0).map(|c| rate(c, c.bytes_sent)),
            download_bytes_per_s: download
                .filter(|_| shares.bandwidth > 0.0)
                .map(|c| rate(c, c.bytes_received)),
            in_flight,
        };
        let work = Work {
            files: 0,
            bytes: mount.server_bytes.1,
            bytes_down: mount.server_bytes.0,
            calls: ops,
            synchronous_calls: synchronous,
            span_s: Some(span_s),
        };
        Findings {
            span_s,
            terms,
            work,
            shares,
            verdict: shares.verdict(),
            under_way,
            quickest: round_trip.map(|(name, _)| name.to_owned()),
            writes_stable,
            retransmissions: all(Counters::retransmissions),
            timeouts: all(|c| c.timeouts),
        }
    }

    /// The part of the span with no call in flight.
    pub fn idle_s(&self, mount: &Mount) -> f64 {
        (self.span_s - busy_s(mount) / self.terms.in_flight).max(0.0)
    }
}

/// Time that the client spends on processing replies, over all requests of an operation, in milliseconds.
fn behind_ms(c: &Counters) -> f64 {
    (c.execute_ms as f64 - c.queue_ms as f64 - c.rtt_ms as f64).max(0.0)
}

/// From sending to the end, over all requests, in seconds.
fn busy_s(mount: &Mount) -> f64 {
    mount.used().map(|(_, c)| c.rtt_ms as f64 + behind_ms(c)).sum::<f64>() / 1e3
}

/// The operation with the lowest average. Rarely used ones count only if there are no others.
fn round_trip(mount: &Mount) -> Option<(&str, f64)> {
    let quickest = |least: u64| {
        let used = mount.used().filter(|(_, c)| c.ops >= least);
        used.map(|(name, c)| (name, c.average(c.rtt_ms))).min_by(|a, b| a.1.total_cmp(&b.1))
    };
    quickest(ENOUGH).or_else(|| quickest(1))
}

fn sum(mount: &Mount, wanted: impl Fn(&str) -> bool) -> Counters {
    mount.used().filter(|(name, _)| wanted(name)).fold(Counters::default(), |sum, (_, c)| Counters {
        ops: sum.ops.saturating_add(c.ops),
        rtt_ms: sum.rtt_ms.saturating_add(c.rtt_ms),
        ..sum
    })
}

/// Whether WRITEs are assumed to be durable. Linux sends data that fits into one WRITE as FILE_SYNC, and more as
/// UNSTABLE followed by a COMMIT.
fn writes_stable(mount: &Mount) -> bool {
    let of = |name: &str| mount.operations.get(name).copied().unwrap_or_default();
    let (write, commit) = (of("WRITE"), of("COMMIT"));
    // More than half of the WRITEs have no COMMIT, and they are small.
    commit.ops.saturating_mul(2) < write.ops && write.average(write.bytes_sent) < 4.0 * LARGE
        || commit.ops == 0 && write.ops > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mountstats::parse;
    use landfast_model::Bound;

    fn findings(age: u64, in_flight: u64, operations: &str) -> Findings {
        let text = format!(
            "device s:/ mounted on /m with fstype nfs4 statvers=1.1\n\tage:\t{age}\n\txprt:\ttcp 1 1 1 1 1 100 100 0 {} 0\n{operations}",
            100 * in_flight
        );
        Findings::of(&parse(text.as_bytes()).mounts[0], None)
    }

    /// 1,000 LOOKUPs of 1 ms and as many SETATTRs.
    fn tar(setattr_ms: u64) -> String {
        format!(
            "LOOKUP: 1000 1000 0 1 1 0 1000 1000 0\nSETATTR: 1000 1000 0 1 1 0 {0} {0} 0\n",
            1000 * setattr_ms
        )
    }

    #[test]
    fn waits_for_stable_storage() {
        let found = findings(12, 1, &tar(11));
        assert_eq!(found.verdict.unwrap().bound, Bound::Persistence);
        assert!((found.terms.persistence_s - 0.010).abs() < 1e-9, "{found:?}");
        assert!((found.terms.round_trip_s - 0.001).abs() < 1e-9, "{found:?}");
        assert!((found.shares.total() - 12.0).abs() < 1e-6, "{found:?}");
        assert_eq!((found.work.calls, found.work.synchronous_calls), (2000, 1000));
    }

    #[test]
    fn round_trips_and_idle_time() {
        let found = findings(2, 1, &tar(1));
        assert_eq!(found.verdict.unwrap().bound, Bound::Rtt);
        let found = findings(100, 1, &tar(1));
        assert_eq!(found.verdict.unwrap().bound, Bound::Client);
        assert_eq!(found.under_way.unwrap().bound, Bound::Rtt);
        assert!((found.terms.think_s - 0.049).abs() < 1e-9, "{found:?}");
        // A mount made this second, or nearly two seconds ago.
        assert!((findings(0, 1, &tar(1)).span_s - 1.0).abs() < 1e-9);
    }

    #[test]
    fn parts_are_never_longer_than_the_time() {
        // Four connections. On each, one request was in flight when the next was sent.
        let text = format!(
            "device s:/ mounted on /m with fstype nfs4 statvers=1.1\n\tage:\t10\n{}{}",
            "\txprt:\ttcp 1 1 1 1 1 100 100 0 100 0\n".repeat(4),
            "LOOKUP: 1000 1000 0 1 1 0 1000 1000 0\nSETATTR: 3400 3400 0 1 1 0 34000 34000 0\n"
        );
        let mount = &parse(text.as_bytes()).mounts[0];
        for span in [None, Some(10.0)] {
            let found = Findings::of(mount, span);
            assert!(found.span_s <= 11.0 && (found.shares.total() - found.span_s).abs() < 1e-6, "{found:?}");
            assert!((3.1..3.6).contains(&found.terms.in_flight), "{found:?}");
            assert_eq!(found.verdict.unwrap().bound, Bound::Persistence);
            assert!(found.idle_s(mount) < 1e-6);
        }
        // Many requests wait for a slot; the server replies to one after another.
        let found =
            findings(5, 2, "LOOKUP: 10 10 0 1 1 0 10 10 0\nSETATTR: 1000 1000 0 1 1 20000 10000 30000 0\n");
        assert!((found.shares.total() - 5.005).abs() < 0.01, "{found:?}");
        assert_eq!(found.verdict.unwrap().bound, Bound::Persistence, "{found:?}");
        assert!(found.shares.client < 0.1, "{found:?}");
    }

    #[test]
    fn calls_under_way_together_share_the_time() {
        let found = findings(3, 4, &tar(11));
        assert!((found.shares.persistence - 2.5).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn mounts_that_share_a_connection_do_not_share_their_time() {
        // One mount asks for one thing at a time, and the other for sixteen. Both have the same line.
        let xprt = "\txprt:\ttcp 1 1 1 1 1 17000 17000 0 258000 0 64 0 241000\n";
        let of = |ops: u64, each_ms: u64| {
            let text = format!(
                "device s:/ mounted on /m with fstype nfs4 statvers=1.1\n\tage:\t20\n{xprt}LOOKUP: {ops} {ops} 0 1 1 0 {0} {0} 0\n",
                ops * each_ms
            );
            Findings::of(&parse(text.as_bytes()).mounts[0], None)
        };
        let found = of(1000, 10);
        assert!((found.terms.in_flight - 1.0).abs() < 1e-9, "{found:?}");
        assert!(
            (found.shares.rtt - 10.0).abs() < 1e-6 && (found.shares.client - 10.0).abs() < 1e-6,
            "{found:?}"
        );
        // Of the other as many are in flight as fit into its time, which is all that its counters say.
        let found = of(16_000, 16);
        assert!((found.shares.total() - 20.0).abs() < 1.1 && found.terms.in_flight > 12.0, "{found:?}");
    }

    #[test]
    fn large_writes_are_on_their_way() {
        let large = "LOOKUP: 10 10 0 1 1 0 10 10 0\nWRITE: 100 100 0 104857600 1 0 10100 10100 0\nCOMMIT: 1 1 0 1 1 0 20 20 0\n";
        let found = findings(11, 1, large);
        assert_eq!((found.verdict.unwrap().bound, found.writes_stable), (Bound::Bandwidth, false));
        let rate = found.terms.upload_bytes_per_s.unwrap();
        assert!((rate - 104_857_600.0 / 10.0).abs() < 1.0, "{rate}");
        assert!(findings(1, 1, "WRITE: 100 100 0 400000 1 0 10100 10100 0\n").writes_stable);
    }

    #[test]
    fn nothing_was_done() {
        let found = findings(0, 1, "");
        assert_eq!((found.verdict, found.under_way, found.work.calls), (None, None, 0));
        let found = findings(5, 1, "");
        assert_eq!((found.verdict.unwrap().bound, found.under_way), (Bound::Client, None));
    }
}
