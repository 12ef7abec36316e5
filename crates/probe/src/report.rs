//! What is printed.

use crate::ask::Operation;
use crate::delegations::Delegations;
use crate::findings::{PerFile, Remark};
use crate::search::Operations;
use crate::times::Distribution;
use landfast_model::{Bound, Device, Shares, Terms};
use serde::Serialize;

/// What a probe found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where.
    pub url: String,
    /// In which version.
    pub version: String,
    /// The versions that the server offers.
    pub versions: Vec<String>,
    /// How long it took.
    pub seconds: f64,
    /// The terms of the equation.
    pub terms: Terms,
    /// What bounds work on small files.
    pub verdict: Found,
    /// Making a connection.
    pub connect: Option<Distribution>,
    /// Single calls.
    pub latencies: Vec<Latency>,
    /// Many calls under way.
    pub concurrency: Vec<Rate>,
    /// How many operations a COMPOUND may have; `None` in version 3.
    pub operations_per_compound: Option<Operations>,
    /// Whether files are handed over.
    pub delegations: Delegations,
    /// Whether the connection could be encrypted.
    pub tls: Tls,
    /// Many large WRITEs under way; `None`: refused.
    pub bandwidth: Option<Bandwidth>,
}

/// The verdict with its evidence.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// In one word.
    pub bound: Bound,
    /// The largest part.
    pub first: Bound,
    /// The next one.
    pub runner_up: Bound,
    /// Seconds of one small file.
    pub shares: Shares,
    /// What is sent for such a file.
    pub file: PerFile,
    /// What the wait for stable storage looks like.
    pub device: Option<Device>,
    /// What else a reader should know.
    pub remarks: Vec<Remark>,
}

/// The times of one operation.
#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    /// Which.
    pub operation: Operation,
    /// Its times.
    #[serde(flatten)]
    pub times: Distribution,
}

/// How one operation goes with many under way.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rate {
    /// Which.
    pub operation: Operation,
    /// So many under way.
    pub in_flight: usize,
    /// So many were made.
    pub calls: u64,
    /// So many a second.
    pub calls_per_s: f64,
}

/// Encryption.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Tls {
    /// The server would go on in TLS (RFC 9289).
    pub offered: bool,
}

/// Bytes a second.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Bandwidth {
    /// Of UNSTABLE WRITEs.
    pub upload_bytes_per_s: f64,
    /// So many bytes were written.
    pub bytes: u64,
    /// So many WRITEs were under way.
    pub in_flight: usize,
}
