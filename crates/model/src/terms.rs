//! The terms of the equation.

use serde::{Deserialize, Serialize};

/// What each call costs on a way to a server. Seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// A message there and its answer back, with no work at either end.
    pub round_trip_s: f64,
    /// What the server needs for a call that has nothing to make stable.
    pub server_s: f64,
    /// What it needs beyond that for a call whose effect has to be stable before the answer. 0: none was seen.
    pub persistence_s: f64,
    /// What the client lets pass between an answer and its next call, for each call.
    pub think_s: f64,
    /// What it lets pass before it begins a file, beyond that: the program's own work for each file that is made, whatever its calls.
    #[serde(default)]
    pub file_think_s: f64,
    /// Bytes that go from the client to the server in a second when the network is what is waited for; `None`: not reached.
    pub upload_bytes_per_s: Option<f64>,
    /// Calls under way at a time, on average over the time in which any was.
    pub in_flight: f64,
}

/// What was done, or is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Files made; 0: not known.
    pub files: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Calls in all.
    pub calls: u64,
    /// Those of them whose effect has to be stable before the answer.
    pub synchronous_calls: u64,
    /// From the first call to the last answer, in seconds; `None`: not done yet.
    pub span_s: Option<f64>,
}
