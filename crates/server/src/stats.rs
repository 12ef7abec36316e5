//! Counters of a running server.
//!
//! Successes are counted in one of several shards, chosen by the thread, so that threads do not contend for a cache
//! line; failures in one table. Nothing here waits, so different counters may be read at slightly different moments.

use crate::limited::{Limit, Limits};
use crate::state::delegations::Counts;
use landfast_nfs::nlm::NlmStat;
use landfast_nfs::v3::{NfsStat3, PROC_NAMES};
use landfast_nfs::v4::{NfsStat, OpNum};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Operation numbers of NFSv4 with a counter of their own; all others share the last.
const OPS: usize = 80;
/// Statuses with a counter of their own: 0 to 99, 10000 to 10099; all others share the last.
const STATUSES: usize = 201;
/// Copies of what is counted often.
const SHARDS: usize = 8;

const MOUNT_NAMES: [&str; 6] = ["NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"];
const NFSACL_NAMES: [&str; 3] = ["NULL", "GETACL", "SETACL"];
const NLM_NAMES: [&str; 24] = [
    "NULL",
    "TEST",
    "LOCK",
    "CANCEL",
    "UNLOCK",
    "GRANTED",
    "TEST_MSG",
    "LOCK_MSG",
    "CANCEL_MSG",
    "UNLOCK_MSG",
    "GRANTED_MSG",
    "TEST_RES",
    "LOCK_RES",
    "CANCEL_RES",
    "UNLOCK_RES",
    "GRANTED_RES",
    "16",
    "17",
    "18",
    "19",
    "SHARE",
    "UNSHARE",
    "NM_LOCK",
    "FREE_ALL",
];
const NLM_STATUSES: [&str; 10] = [
    "NLM4_GRANTED",
    "NLM4_DENIED",
    "NLM4_DENIED_NOLOCKS",
    "NLM4_BLOCKED",
    "NLM4_DENIED_GRACE_PERIOD",
    "NLM4_DEADLCK",
    "NLM4_ROFS",
    "NLM4_STALE_FH",
    "NLM4_FBIG",
    "NLM4_FAILED",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    V40,
    V41,
    V42,
    V3,
    Nfsacl,
    Mount,
    Nlm,
}

const PROTOCOLS: [Protocol; 7] = [
    Protocol::V40,
    Protocol::V41,
    Protocol::V42,
    Protocol::V3,
    Protocol::Nfsacl,
    Protocol::Mount,
    Protocol::Nlm,
];

/// The counters of all protocols, one after the other.
const CELLS: usize = Protocol::Nlm.base() + NLM_NAMES.len();

impl Protocol {
    pub(crate) fn of_minor(minor: u32) -> Protocol {
        [Protocol::V40, Protocol::V41, Protocol::V42][minor.min(2) as usize]
    }

    const fn operations(self) -> usize {
        match self {
            Protocol::V40 | Protocol::V41 | Protocol::V42 => OPS,
            Protocol::V3 => PROC_NAMES.len(),
            Protocol::Nfsacl => NFSACL_NAMES.len(),
            Protocol::Mount => MOUNT_NAMES.len(),
            Protocol::Nlm => NLM_NAMES.len(),
        }
    }

    const fn base(self) -> usize {
        let mut base = 0;
        let mut i = 0;
        while i < self as usize {
            base += PROTOCOLS[i].operations();
            i += 1;
        }
        base
    }

    fn cell(self, operation: u32) -> usize {
        self.base() + (operation as usize).min(self.operations() - 1)
    }

    fn version(self) -> &'static str {
        match self {
            Protocol::V40 => "nfs4.0",
            Protocol::V41 => "nfs4.1",
            Protocol::V42 => "nfs4.2",
            Protocol::V3 => "nfs3",
            Protocol::Nfsacl => "nfsacl3",
            Protocol::Mount => "mount3",
            Protocol::Nlm => "nlm4",
        }
    }

    fn operation(self, number: usize) -> String {
        let names: &[&str] = match self {
            Protocol::V40 | Protocol::V41 | Protocol::V42 if number == OPS - 1 => return "OTHER".into(),
            Protocol::V40 | Protocol::V41 | Protocol::V42 => return OpNum(number as u32).to_string(),
            Protocol::V3 => &PROC_NAMES,
            Protocol::Nfsacl => &NFSACL_NAMES,
            Protocol::Mount => &MOUNT_NAMES,
            Protocol::Nlm => &NLM_NAMES,
        };
        names.get(number).copied().unwrap_or("OTHER").to_owned()
    }

    fn status(self, at: usize) -> String {
        let status = match at {
            0..100 => at as u32,
            _ if at == STATUSES - 1 => return "OTHER".into(),
            _ => 10_000 + (at as u32 - 100),
        };
        match self {
            Protocol::V40 | Protocol::V41 | Protocol::V42 => NfsStat(status).to_string(),
            Protocol::Nlm => NLM_STATUSES.get(at).map_or_else(|| at.to_string(), |s| (*s).to_owned()),
            // MOUNT's statuses are those of NFS version 3 of the same number (RFC 1813 section 5.1.5).
            Protocol::V3 | Protocol::Nfsacl | Protocol::Mount => NfsStat3(status).to_string(),
        }
    }
}

fn status_at(status: u32) -> usize {
    match status {
        0..100 => status as usize,
        10_000..10_100 => 100 + (status - 10_000) as usize,
        _ => STATUSES - 1,
    }
}

pub(crate) const LATENCIES: [&str; 5] = ["nfs4", "nfs3", "nfsacl3", "mount3", "nlm4"];
/// Upper bounds of a histogram's buckets, in microseconds; one more takes the rest.
pub(crate) const BUCKETS_US: [u64; 17] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// How long requests took, from when they were received until their reply was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latency {
    /// Requests of each bucket, not cumulative.
    pub buckets: [u64; BUCKETS_US.len() + 1],
    pub sum_ns: u64,
}

#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS_US.len() + 1],
    sum_ns: AtomicU64,
}

/// The counters of one group of threads, more than a cache line apart from the others'.
#[derive(Debug)]
#[repr(align(128))]
struct CounterShard {
    good: [AtomicU64; CELLS],
    latencies: [Histogram; LATENCIES.len()],
}

#[derive(Debug)]
pub(crate) struct Counters {
    compounds: AtomicU64,
    modifying: AtomicU64,
    replays: AtomicU64,
    strangers: AtomicU64,
    delegation_wait_ns: AtomicU64,
    shards: Box<[CounterShard]>,
    /// By cell, then by status.
    bad: Box<[AtomicU64]>,
}

impl Default for Counters {
    fn default() -> Self {
        let shard =
            || CounterShard { good: [const { AtomicU64::new(0) }; CELLS], latencies: Default::default() };
        Counters {
            compounds: AtomicU64::new(0),
            modifying: AtomicU64::new(0),
            replays: AtomicU64::new(0),
            strangers: AtomicU64::new(0),
            delegation_wait_ns: AtomicU64::new(0),
            shards: (0..SHARDS).map(|_| shard()).collect(),
            bad: (0..CELLS * STATUSES).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

fn add(counter: Option<&AtomicU64>, n: u64) {
    if let Some(c) = counter {
        c.fetch_add(n, Ordering::Relaxed);
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counters {
    fn shard(&self) -> Option<&CounterShard> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
        }
        // A thread that ends has given its number back.
        self.shards.get(MINE.try_with(|n| *n).unwrap_or(0))
    }

    fn done(&self, protocol: Protocol, operation: u32, status: u32) {
        let cell = protocol.cell(operation);
        if status == 0 {
            add(self.shard().and_then(|c| c.good.get(cell)), 1);
        } else {
            add(self.bad.get(cell * STATUSES + status_at(status)), 1);
        }
    }

    pub(crate) fn compound(&self) {
        add(Some(&self.compounds), 1);
    }

    pub(crate) fn replay(&self) {
        add(Some(&self.replays), 1);
    }

    /// A request waited so long for a delegation of another client.
    pub(crate) fn waited_for_delegation(&self, waited: Duration) {
        add(Some(&self.delegation_wait_ns), waited.as_nanos() as u64);
    }

    pub(crate) fn stranger(&self) {
        add(Some(&self.strangers), 1);
    }

    pub(crate) fn op(&self, minor: u32, op: OpNum, status: NfsStat, modified: bool) {
        self.done(Protocol::of_minor(minor), op.0, status.0);
        add(modified.then_some(&self.modifying), 1);
    }

    pub(crate) fn v3(&self, protocol: Protocol, procedure: u32, status: NfsStat3, modified: bool) {
        self.done(protocol, procedure, status.0);
        add(modified.then_some(&self.modifying), 1);
    }

    pub(crate) fn mount(&self, procedure: u32, status: u32) {
        self.done(Protocol::Mount, procedure, status);
    }

    /// A procedure of NLM, as its synchronous form.
    pub(crate) fn nlm(&self, procedure: u32, status: NlmStat) {
        self.done(Protocol::Nlm, procedure, status.0);
    }

    /// The time of a request; `program` is an index of [`LATENCIES`].
    pub(crate) fn took(&self, program: usize, time: Duration) {
        let us = time.as_micros() as u64;
        let bucket = BUCKETS_US.partition_point(|bound| *bound < us);
        if let Some(h) = self.shard().and_then(|c| c.latencies.get(program)) {
            add(h.buckets.get(bucket), 1);
            add(Some(&h.sum_ns), time.as_nanos() as u64);
        }
    }

    fn latencies(&self) -> Vec<(&'static str, Latency)> {
        let of = |(i, program): (usize, &&'static str)| {
            let mut sum = Latency::default();
            for h in self.shards.iter().filter_map(|c| c.latencies.get(i)) {
                sum.sum_ns += get(&h.sum_ns);
                sum.buckets.iter_mut().zip(&h.buckets).for_each(|(s, b)| *s += get(b));
            }
            (*program, sum)
        };
        LATENCIES.iter().enumerate().map(of).collect()
    }

    fn operations(&self) -> Vec<Operation> {
        let mut found = Vec::new();
        for protocol in PROTOCOLS {
            for number in 0..protocol.operations() {
                let cell = protocol.base() + number;
                let good = self.shards.iter().filter_map(|c| c.good.get(cell)).map(get).sum();
                let bad = self.bad.get(cell * STATUSES..(cell + 1) * STATUSES).unwrap_or_default();
                let failed: Vec<_> = bad
                    .iter()
                    .enumerate()
                    .map(|(at, c)| (protocol.status(at), get(c)))
                    .filter(|(_, n)| *n > 0)
                    .collect();
                if good > 0 || !failed.is_empty() {
                    let name = protocol.operation(number);
                    found.push(Operation {
                        version: protocol.version(),
                        number: number as u32,
                        name,
                        good,
                        failed,
                    });
                }
            }
        }
        found
    }

    pub(crate) fn stats(&self) -> Stats {
        let operations = self.operations();
        let mut ops: Vec<(OpNum, u64)> = Vec::new();
        for o in operations.iter().filter(|o| o.version.starts_with("nfs4")) {
            match ops.iter_mut().find(|(op, _)| op.0 == o.number) {
                Some((_, n)) => *n += o.all(),
                None => ops.push((OpNum(o.number), o.all())),
            }
        }
        ops.sort_by_key(|(op, _)| op.0);
        let v3 = operations.iter().filter(|o| o.version == "nfs3");
        let v3_procedures = v3.filter_map(|o| Some((*PROC_NAMES.get(o.number as usize)?, o.all()))).collect();
        Stats {
            compounds: get(&self.compounds),
            modifying_ops: get(&self.modifying),
            replays: get(&self.replays),
            calls_refused: get(&self.strangers),
            delegation_wait_ns: get(&self.delegation_wait_ns),
            ops,
            v3_procedures,
            operations,
            latencies: self.latencies(),
            ..Stats::default()
        }
    }
}

/// How often an operation of a protocol was executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    pub version: &'static str,
    pub number: u32,
    pub name: String,
    pub good: u64,
    pub failed: Vec<(String, u64)>,
}

impl Operation {
    pub fn all(&self) -> u64 {
        self.good + self.failed.iter().map(|(_, n)| n).sum::<u64>()
    }
}

#[derive(Debug, Clone, Default)]
pub struct Stats {
    pub compounds: u64,
    /// Operations that changed something and succeeded.
    pub modifying_ops: u64,
    /// COMPOUNDs and calls without a session that were answered with a kept reply.
    pub replays: u64,
    /// Calls refused unread, since no export names their address, or none with their port.
    pub calls_refused: u64,
    /// Operations executed, successful or not, by number, of all versions together.
    pub ops: Vec<(OpNum, u64)>,
    /// Calls of NFS version 3 that were executed, by procedure.
    pub v3_procedures: Vec<(&'static str, u64)>,
    pub operations: Vec<Operation>,
    pub latencies: Vec<(&'static str, Latency)>,
    /// Replies that are kept for calls without a session.
    pub calls_kept: usize,
    pub connections: usize,
    pub clients: usize,
    pub sessions: usize,
    pub opens: usize,
    /// Of these, delegations; and what came of all that were given.
    pub delegations: usize,
    /// Of these, those that do not stand in the log.
    pub delegations_unlogged: usize,
    /// Of these, those for writing directories.
    pub write_directory_delegations: usize,
    pub delegation_counts: Counts,
    /// How long requests waited for delegations of other clients.
    pub delegation_wait_ns: u64,
    /// Files that have lost their last name and are kept for those who have them open.
    pub unlinked_files: usize,
    /// Descriptors that opens keep.
    pub open_descriptors: usize,
    pub locks: usize,
    /// The most sessions, opens and locked ranges of one client.
    pub most: [usize; 3],
    pub session_slots: usize,
    /// The most operations that a COMPOUND of any session may have.
    pub session_operations: usize,
    /// Bytes that sessions may at worst keep for replay, and the limit for it.
    pub cached: (u64, u64),
    /// Bytes of the duplicate request cache, and the limit for it.
    pub calls_kept_bytes: (u64, u64),
    /// NLM hosts, and how many there may be.
    pub nlm_hosts: (usize, usize),
    pub nlm_waiters: usize,
    pub load: landfast_rpc::Load,
    pub limits: Limits,
}

impl Stats {
    /// What is used of each limited resource, and the limit.
    pub fn limited(&self) -> Vec<(&'static str, u64, u64)> {
        let l = &self.load;
        let used = |limit: Limit| match limit {
            Limit::Connections => l.connections,
            Limit::ClientConnections => l.client_connections,
            Limit::Requests => l.calls,
            Limit::ClientRequests => l.client_calls,
            Limit::ConnectionRequests => l.connection_calls,
            Limit::RequestBytes => l.bytes,
            Limit::ClientRequestBytes => l.client_bytes,
            Limit::ConnectionRequestBytes => l.connection_bytes,
            Limit::ReplyBytes => l.reply_bytes,
            Limit::ClientReplyBytes => l.client_reply_bytes,
            Limit::ConnectionReplyBytes => l.connection_reply_bytes,
            Limit::Clients => self.clients,
            Limit::ClientSessions => self.most[0],
            Limit::SessionSlots => self.session_slots,
            Limit::CompoundOperations => self.session_operations,
            Limit::Opens => self.opens,
            Limit::ClientOpens => self.most[1],
            Limit::OpenDescriptors => self.open_descriptors,
            Limit::Locks => self.locks,
            Limit::ClientLocks => self.most[2],
        };
        let n = |n: usize| n as u64;
        let set = crate::limited::SPECS.iter().map(|s| (s.key, n(used(s.limit)), n(self.limits[s.limit])));
        let others = [
            ("replay_bytes", self.cached.0, self.cached.1),
            ("call_replay_bytes", self.calls_kept_bytes.0, self.calls_kept_bytes.1),
            ("nlm_hosts", n(self.nlm_hosts.0), n(self.nlm_hosts.1)),
            ("nlm_waiters", n(self.nlm_waiters), n(crate::limits::NLM_WAITERS_MAX)),
        ];
        set.chain(others).collect()
    }

    pub fn op(&self, op: OpNum) -> u64 {
        self.ops.iter().find(|(n, _)| *n == op).map_or(0, |(_, c)| *c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_comes_out_under_its_name() {
        let c = Counters::default();
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..100 {
                        c.op(2, OpNum::GETATTR, NfsStat::NFS4_OK, false);
                    }
                    c.op(0, OpNum::REMOVE, NfsStat::NFS4_OK, true);
                });
            }
        });
        c.op(1, OpNum::LOOKUP, NfsStat::NFS4ERR_NOENT, false);
        c.op(1, OpNum::LOOKUP, NfsStat::NFS4ERR_DELAY, false);
        c.op(2, OpNum(10_044), NfsStat::NFS4ERR_OP_ILLEGAL, false);
        c.v3(Protocol::V3, 7, NfsStat3::OK, true);
        c.mount(1, 13);
        c.nlm(2, NlmStat(2));
        c.took(0, Duration::from_micros(50));
        c.took(0, Duration::from_micros(51));
        c.took(0, Duration::from_secs(3600));
        let stats = c.stats();
        let shown: Vec<_> = stats
            .operations
            .iter()
            .map(|o| format!("{} {} {} {:?}", o.version, o.name, o.good, o.failed))
            .collect();
        assert_eq!(
            shown,
            [
                "nfs4.0 REMOVE 4 []",
                r#"nfs4.1 LOOKUP 0 [("NFS4ERR_NOENT", 1), ("NFS4ERR_DELAY", 1)]"#,
                "nfs4.2 GETATTR 400 []",
                r#"nfs4.2 OTHER 0 [("NFS4ERR_OP_ILLEGAL", 1)]"#,
                "nfs3 WRITE 1 []",
                r#"mount3 MNT 0 [("NFS3ERR_ACCES", 1)]"#,
                r#"nlm4 LOCK 0 [("NLM4_DENIED_NOLOCKS", 1)]"#,
            ]
        );
        assert_eq!((stats.op(OpNum::LOOKUP), stats.modifying_ops), (2, 5));
        let latency = stats.latencies[0].1;
        assert_eq!((latency.buckets[0], latency.buckets[1], latency.buckets[17]), (1, 1, 1));
    }
}
