//! Reads what a Linux client counts of its NFS mounts: `/proc/self/mountstats`. No I/O.
//!
//! [`parse`] reads the text, [`difference()`] subtracts two readings, [`findings`] says where the time went.
//!
//! For each mount the kernel prints its options, its age, and counters of its transports. For each operation of the
//! protocol it prints:
//!
//! - calls, transmissions, major timeouts, bytes sent and received
//! - three sums of milliseconds: waiting to be sent, from sending to the reply, from the request to its end
//! - since Linux 5.3, failed calls
//!
//! Later kernels may add columns and lines. Unknown ones are skipped and counted.

mod difference;
pub mod findings;
mod parse;

pub use difference::{Difference, difference};
pub use parse::parse;

use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mountstats {
    pub mounts: Vec<Mount>,
    /// Lines of NFS mounts that could not be parsed.
    pub strange: u64,
    /// Mounts beyond the limit.
    pub too_many: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mount {
    /// The mounted export: `server:/path`.
    pub device: String,
    pub on: String,
    /// `nfs` or `nfs4`.
    pub fstype: String,
    /// Version of the format, as printed.
    pub statvers: String,
    pub options: String,
    /// Seconds since the mount.
    pub age_s: u64,
    /// Bytes read from the server, and bytes written to it.
    pub server_bytes: (u64, u64),
    pub transports: Vec<Transport>,
    pub operations: BTreeMap<String, Counters>,
    /// Names in the order in which the kernel prints them.
    pub order: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transport {
    /// `tcp`, `udp`, `rdma` or another.
    pub kind: String,
    pub sends: u64,
    pub receives: u64,
    /// Replies that belong to no request.
    pub bad_xids: u64,
    /// Sum, over all requests, of the number of those without a reply when each was sent, including it.
    pub under_way: u64,
    /// Sum, over all requests, of the number waiting for a slot.
    pub backlog: u64,
    /// Sum, over all requests, of the number of others that waited for their replies when it was sent. `None`: not
    /// counted, as with rdma.
    pub pending: Option<u64>,
    /// Requests without replies, at the lower of two readings. The kernel takes all of them for requests in flight,
    /// though those that were lost with a connection never get a reply.
    pub unanswered: u64,
}

impl Transport {
    /// Sum, over all requests, of the number in flight when each was sent, including it.
    fn in_flight(&self) -> f64 {
        match self.pending {
            Some(others) => others as f64 + self.sends as f64,
            None => (self.under_way as f64 - self.unanswered as f64 * self.sends as f64).max(0.0),
        }
    }
}

/// Counters of an operation. Times are sums in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Completed requests.
    pub ops: u64,
    /// How often requests were sent, retransmissions included.
    pub transmissions: u64,
    pub timeouts: u64,
    /// Bytes, RPC headers included.
    pub bytes_sent: u64,
    /// Bytes, RPC headers included.
    pub bytes_received: u64,
    /// Time waiting to be sent.
    pub queue_ms: u64,
    /// Time from sending to the reply.
    pub rtt_ms: u64,
    /// Time from the request to its end.
    pub execute_ms: u64,
    /// Failed requests. `None`: the kernel does not count them.
    pub errors: Option<u64>,
}

impl Counters {
    pub fn retransmissions(&self) -> u64 {
        self.transmissions.saturating_sub(self.ops)
    }

    /// Divides a sum by the number of requests.
    pub fn average(&self, sum: u64) -> f64 {
        if self.ops == 0 { 0.0 } else { sum as f64 / self.ops as f64 }
    }
}

impl Mount {
    /// The value of an option, such as `vers`.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.split(',').find_map(|o| o.strip_prefix(name)?.strip_prefix('='))
    }

    /// The NFS version: 3, 4.0, ...
    pub fn version(&self) -> String {
        let given = self.option("vers").map(str::to_owned);
        let minor = self.option("minorversion");
        match (given, minor) {
            (Some(v), Some(minor)) if !v.contains('.') => format!("{v}.{minor}"),
            (Some(v), _) => v,
            (None, _) => if self.fstype == "nfs4" { "4" } else { "3" }.to_owned(),
        }
    }

    /// Operations with requests, in the kernel's order.
    pub fn used(&self) -> impl Iterator<Item = (&str, &Counters)> {
        let named = self.order.iter().filter_map(|n| self.operations.get(n).map(|c| (n.as_str(), c)));
        named.filter(|(_, c)| c.ops > 0 || c.transmissions > 0)
    }

    pub fn ops(&self) -> u64 {
        self.operations.values().fold(0, |sum, c| sum.saturating_add(c.ops))
    }

    /// Average number of requests in flight when one is sent, including it. 1 if unknown: mounts of one server share
    /// connections, whose counters then say little about one of them.
    pub fn in_flight(&self) -> f64 {
        let sends = self.transports.iter().fold(0u64, |sum, t| sum.saturating_add(t.sends));
        let own = self.operations.values().fold(0u64, |sum, c| sum.saturating_add(c.transmissions));
        if sends == 0 || sends > own.saturating_add(own / 10).saturating_add(NOT_COUNTED_MAX) {
            return 1.0;
        }
        let sum: f64 = self.transports.iter().map(Transport::in_flight).sum();
        (sum / sends as f64).max(1.0)
    }
}

/// Requests that belong to no mount: about leases and sessions, and to find out what a server has.
const NOT_COUNTED_MAX: u64 = 100;
