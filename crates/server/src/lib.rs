//! A server of NFSv3, MOUNT and NFSv4.0 to 4.2 over [`landfast_volume::Volume`]s: sessions, replies kept for retries,
//! opens, locks, leases, dispatch.
//!
//! The modules from the bottom up. Each uses only modules of its own line and of the lines before:
//!
//! - [`limits`], [`limited`]: every limit and the answer at it; which limits can be configured; `errors`: the volume's
//!   errors as statuses; `fnv`: a digest;
//! - [`state`]: clients, sessions, opens and locks as a pure core; `state_lock`: the lock on it;
//! - [`protocols`]: which protocols are served; [`exports`]: which volumes are served, under which names, to whom; the
//!   pseudo root; [`config`], [`own_files`]: the configuration file; `owner`, `acl`: conversion between NFSv4's values
//!   and the volume's;
//! - `refused_clients`: logs refused clients; `lookers`: who has looked into which directory lately; `backchannel/conns.rs`: connections for callbacks; `shared`: what all
//!   requests share;
//! - `admission`, `known_clients`: whose calls are accepted at all; `attr`: attributes; `backchannel`: callbacks;
//!   `offload`: copies that continue after the reply to their COPY; `wakeups`, `duplicate_requests`: retries that wait,
//!   and the duplicate request cache;
//! - `looks`: what a request waits for that looks at delegated files, and is told of them; `renamed`: delegations of objects whose names change;
//! - `path`: the steps of a request, the same for all versions;
//! - `v4`, `v3`, `mount`, `nlm`: the protocols, one file for each family of operations; `reply_sizes`: how large a reply
//!   may become;
//! - `dispatcher`: which program a call is for;
//! - `background`, `running`, `reload`, `start`: the thin shell of sockets, threads and clocks. `pool`, `workers`,
//!   `listen`, `portmap`, `memory` and `metrics` are its tools.
//!
//! Invariants:
//! - A reply whose operations changed anything is sent only when the log holds the changes and the reply.
//! - Reads never wait for the log, but for attributes that were set since the holder of a delegation said so (`backchannel/getattr.rs`).
//! - Room for the reply is reserved before an operation that changes something runs.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo, clippy::unimplemented)
)]
#![deny(unsafe_code)]

mod acl;
mod admission;
mod attr;
mod backchannel;
mod background;
pub mod config;
mod descriptors;
mod dispatcher;
mod duplicate_requests;
mod errors;
pub mod exports;
mod fnv;
mod known_clients;
pub mod limited;
pub mod limits;
mod listen;
mod lookers;
mod looks;
mod memory;
mod metrics;
mod mount;
mod nlm;
mod offload;
pub mod own_files;
mod owner;
pub mod parallel;
mod path;
mod pool;
mod portmap;
#[cfg(test)]
mod protocol_doc;
pub mod protocols;
mod refused_clients;
mod reload;
mod renamed;
mod reply_sizes;
mod reservations;
mod retiring;
mod running;
mod shared;
mod space;
mod stable;
mod start;
pub mod state;
mod state_lock;
mod stats;
#[allow(unsafe_code)]
mod sys;
mod touches;
mod unlinked;
mod v3;
mod v4;
mod wakeups;
mod workers;

pub use exports::Served;
pub use exports::pseudo::hidden_by;
pub use exports::unavailable::Unavailable;
pub use portmap::{PortMapper, Rpcbind};
pub use protocols::Protocols;
pub use reload::{ReloadError, Reloaded, is_overlap};
pub use running::{Running, Stopped};
pub use start::{Server, ServerConfig, StartError};
pub use state::restore::Restored;
pub use stats::Stats;
