//! What a Linux client counts of its NFS mounts: `/proc/self/mountstats`. Pure.
//!
//! [`parse`] reads it, [`difference()`] takes one reading from a later one, [`findings`] says where the time went.
//!
//! For each mount the kernel prints options, the time since it was mounted, counters of its transports, and for each operation of the
//! protocol: calls, transmissions, major timeouts, bytes sent and received, and three sums of milliseconds: waiting to be sent, from sending to
//! the reply, and from the request to its end; since Linux 5.3 also calls that failed. Later kernels may add columns and lines:
//! what is not known is passed over and counted.

mod difference;
pub mod findings;
mod parse;

pub use difference::{Difference, difference};
pub use parse::parse;

use std::collections::BTreeMap;

/// A reading.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mountstats {
    /// NFS mounts, in the order of the file.
    pub mounts: Vec<Mount>,
    /// Lines of NFS mounts that were not understood.
    pub strange: u64,
    /// Mounts that were passed over, as there are more than the limit.
    pub too_many: u64,
}

/// An NFS mount.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mount {
    /// What is mounted: `server:/path`.
    pub device: String,
    /// Where.
    pub on: String,
    /// `nfs` or `nfs4`.
    pub fstype: String,
    /// The version of the format, as printed.
    pub statvers: String,
    /// Options.
    pub options: String,
    /// Seconds since it was mounted.
    pub age_s: u64,
    /// Bytes that the server was asked for, and that it was sent.
    pub server_bytes: (u64, u64),
    /// One for each connection.
    pub transports: Vec<Transport>,
    /// Counters by the operation's name.
    pub operations: BTreeMap<String, Counters>,
    /// The order in which the kernel prints them.
    pub order: Vec<String>,
}

/// Counters of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transport {
    /// `tcp`, `udp`, `rdma` or what else there may be.
    pub kind: String,
    /// Requests sent.
    pub sends: u64,
    /// Replies received.
    pub receives: u64,
    /// Replies to nothing.
    pub bad_xids: u64,
    /// For each request the number of those under way when it was sent, summed up.
    pub under_way: u64,
    /// The same of those that waited for a place.
    pub backlog: u64,
}

/// Counters of an operation. Times are sums in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Requests that have ended.
    pub ops: u64,
    /// How often requests were sent.
    pub transmissions: u64,
    /// Major timeouts.
    pub timeouts: u64,
    /// Bytes, RPC headers included.
    pub bytes_sent: u64,
    /// Bytes, RPC headers included.
    pub bytes_received: u64,
    /// Waiting to be sent.
    pub queue_ms: u64,
    /// From sending to the reply.
    pub rtt_ms: u64,
    /// From the request to its end.
    pub execute_ms: u64,
    /// Requests that failed; `None`: the kernel does not count them.
    pub errors: Option<u64>,
}

impl Counters {
    /// Requests that were sent again.
    #[must_use]
    pub fn retransmissions(&self) -> u64 {
        self.transmissions.saturating_sub(self.ops)
    }

    /// A sum for each request.
    #[must_use]
    pub fn average(&self, sum: u64) -> f64 {
        if self.ops == 0 { 0.0 } else { sum as f64 / self.ops as f64 }
    }
}

impl Mount {
    /// The value of an option, such as `vers`.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.split(',').find_map(|o| o.strip_prefix(name)?.strip_prefix('='))
    }

    /// The version of NFS: 3, 4.0, ...
    #[must_use]
    pub fn version(&self) -> String {
        let given = self.option("vers").map(str::to_owned);
        let minor = self.option("minorversion");
        match (given, minor) {
            (Some(v), Some(minor)) if !v.contains('.') => format!("{v}.{minor}"),
            (Some(v), _) => v,
            (None, _) => if self.fstype == "nfs4" { "4" } else { "3" }.to_owned(),
        }
    }

    /// The operations that were used, in the kernel's order.
    pub fn used(&self) -> impl Iterator<Item = (&str, &Counters)> {
        let named = self.order.iter().filter_map(|n| self.operations.get(n).map(|c| (n.as_str(), c)));
        named.filter(|(_, c)| c.ops > 0 || c.transmissions > 0)
    }

    /// All requests.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.operations.values().fold(0, |sum, c| sum.saturating_add(c.ops))
    }

    /// How many requests were under way when one was sent, it included; 1 when that is not known.
    #[must_use]
    pub fn in_flight(&self) -> f64 {
        let sum = |of: fn(&Transport) -> u64| self.transports.iter().map(|t| of(t) as f64).sum::<f64>();
        let (sends, under_way) = (sum(|t| t.sends), sum(|t| t.under_way));
        if sends > 0.0 { (under_way / sends).max(1.0) } else { 1.0 }
    }
}
