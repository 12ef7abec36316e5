//! The terms of the equation, and the work that they apply to.

use serde::{Deserialize, Serialize};

/// The costs of a call to a server. Seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Time for a message and its reply, with no work at either end.
    pub round_trip_s: f64,
    /// The server's time for a call with nothing to make durable.
    pub server_s: f64,
    /// The additional time for a call whose effect must be durable before the reply. 0: none was seen.
    pub persistence_s: f64,
    /// The client's time between a reply and its next call, per call.
    pub think_s: f64,
    /// The client's additional time before it begins a file: the program's own work for each new file, whatever calls
    /// it makes.
    #[serde(default)]
    pub file_think_s: f64,
    /// Bytes a second from client to server when the network is the bottleneck. `None`: never reached.
    pub upload_bytes_per_s: Option<f64>,
    /// The same from server to client.
    #[serde(default)]
    pub download_bytes_per_s: Option<f64>,
    /// Average number of calls in flight while any is in flight.
    pub in_flight: f64,
}

/// Work that was done, or is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Files created. 0: unknown.
    pub files: u64,
    /// Bytes from client to server.
    pub bytes: u64,
    /// Bytes from server to client.
    #[serde(default)]
    pub bytes_down: u64,
    pub calls: u64,
    /// Calls whose effect must be durable before the reply.
    pub synchronous_calls: u64,
    /// From the first call to the last reply, in seconds. `None`: not done yet.
    pub span_s: Option<f64>,
}
