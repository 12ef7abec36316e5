//! NFSv3, MOUNT, NFSv4.0 to 4.2 server over [`landfast_volume::Volume`]s: sessions, replies kept for replay, opens, locks, leases,
//! dispatch.
//!
//! - [`state`]: the state as a pure core;
//! - `v4`: COMPOUND and its operations, one file for each family;
//! - `v3`: NFS version 3, one file for each family of procedures; `mount`: the MOUNT protocol;
//! - `exports`: which volumes are served, under which names, to whom; the pseudo root;
//! - `back`: callbacks; `offload`: copies that go on after their COPY was answered;
//! - `attr`, `acl`, `errors`: attributes, NFSv4's ACLs and POSIX's, statuses;
//! - `nlm`: locks of NFSv3 clients (NLM, NSM);
//! - `portmap`: registration with the machine's port mapper;
//! - `protocols`: which of them are served; `admission`: whose calls are taken at all;
//! - `once`: calls without a session, executed once;
//! - `dispatcher`: which program a call is for; `path`: the order of a request, the same for all versions;
//! - `shared`: what all requests share; `start`, `running`, `background`, `pool`: the thin shell of sockets, threads and clocks;
//! - [`limits`]: every limit, with the answer at it.
//!
//! Invariants: a reply whose operations changed anything is sent only when the log holds them and it; reads never wait
//! for the log; the room for a reply is known before an operation that changes something runs.

// What comes from the wire, the disk or the user gets an answer.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo, clippy::unimplemented)
)]
#![deny(unsafe_code)]

mod acl;
mod admission;
mod attr;
mod back;
mod background;
pub mod config;
mod descriptors;
mod dispatcher;
mod errors;
pub mod exports;
pub mod limited;
pub mod limits;
mod listen;
mod memory;
mod metrics;
mod mount;
mod nlm;
mod offload;
mod once;
mod owner;
mod path;
pub mod places;
mod pool;
mod portmap;
#[cfg(test)]
mod protocol_doc;
pub mod protocols;
mod released;
mod reload;
mod replies;
mod running;
mod shared;
mod standing;
mod start;
pub mod state;
mod stats;
#[allow(unsafe_code)]
mod sys;
mod turned_away;
mod v3;
mod v4;
mod workers;

pub use exports::Served;
pub use exports::down::Unavailable;
pub use exports::pseudo::hidden_by;
pub use portmap::{PortMapper, Rpcbind};
pub use protocols::Protocols;
pub use reload::{ReloadError, Reloaded, is_overlap};
pub use running::{Running, Stopped};
pub use start::{Server, ServerConfig, StartError};
pub use state::restore::Restored;
pub use stats::Stats;
