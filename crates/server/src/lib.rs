//! NFSv4.1 and 4.2 server over a [`landfast_volume::Volume`]: sessions, replies kept for replay, opens, locks, leases,
//! dispatch.
//!
//! - [`state`]: the state as a pure core;
//! - `v4`: COMPOUND and its operations, one file for each family;
//! - `attr`, `errors`, `pseudo`: attributes, statuses, the pseudo root;
//! - `serve`, `pool`, `server`: the thin shell of sockets, threads and clocks;
//! - [`limits`]: every limit, with the answer at it.
//!
//! Invariants: a reply whose operations changed anything is sent only when the log holds them and it; reads never wait
//! for the log; the room for a reply is known before an operation that changes something runs.

mod attr;
mod errors;
pub mod limits;
mod pool;
mod pseudo;
mod serve;
mod server;
pub mod state;
mod stats;
mod v4;

pub use serve::{Running, Server, ServerConfig, StartError, Stopped};
pub use state::notes::Restored;
pub use stats::Stats;
