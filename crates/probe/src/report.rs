//! The report that is printed.

use crate::ask::Operation;
use crate::delegations::Delegations;
use crate::findings::{PerFile, Remark};
use crate::search::Operations;
use crate::times::Distribution;
use landfast_model::{Bound, Device, Shares, Terms};
use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub url: String,
    pub version: String,
    pub versions: Vec<String>,
    pub seconds: f64,
    pub terms: Terms,
    /// What bounds work on small files.
    pub verdict: Found,
    pub connect: Option<Distribution>,
    pub latencies: Vec<Latency>,
    pub concurrency: Vec<Rate>,
    /// The largest number of operations in a COMPOUND. `None` in version 3.
    pub operations_per_compound: Option<Operations>,
    pub delegations: Delegations,
    /// Whether the connection could be encrypted.
    pub tls: Tls,
    /// Rate of large WRITEs. `None`: refused.
    pub bandwidth: Option<Bandwidth>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Found {
    pub bound: Bound,
    /// The largest part of the time.
    pub first: Bound,
    pub runner_up: Bound,
    /// Seconds for one small file.
    pub shares: Shares,
    pub file: PerFile,
    /// The device that the wait for durability looks like.
    pub device: Option<Device>,
    /// Other observations for the reader.
    pub remarks: Vec<Remark>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    pub operation: Operation,
    #[serde(flatten)]
    pub times: Distribution,
}

/// The rate of one operation with many calls in flight.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rate {
    pub operation: Operation,
    pub in_flight: usize,
    pub calls: u64,
    pub calls_per_s: f64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Tls {
    /// The server accepts TLS (RFC 9289).
    pub offered: bool,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Bandwidth {
    /// With UNSTABLE WRITEs.
    pub upload_bytes_per_s: f64,
    pub bytes: u64,
    pub in_flight: usize,
    /// With more WRITEs in flight it would have been more.
    pub at_least: bool,
}
