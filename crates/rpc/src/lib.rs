//! ONC RPC version 2 (RFC 5531) over TCP.
//!
//! - [`message`]: the call and reply headers, every reject and accept status;
//! - [`auth`]: AUTH_NONE and AUTH_SYS;
//! - [`record`]: record marking (RFC 5531 section 11) as a pure assembler of bytes;
//! - [`conn`]: a connection, which both makes and serves calls (NFSv4.1 uses one TCP connection for fore channel and
//!   back channel);
//! - [`server`]: a listener that serves connections; [`client`]: connecting to a server;
//! - [`udp`]: calls by datagram, for the small protocols around NFSv3;
//! - [`rpcbind`]: a client of the machine's port mapper (RFC 1833);
//! - [`shares`]: what each client may hold; [`places`]: which connections stay when there are too many;
//! - [`lone`]: a thread for the connection of a client that is alone;
//! - [`turns`]: whose call is next; [`rate_limit`]: warnings that clients cannot flood the log with;
//! - [`limits`]: every number that bounds memory or time.
//!
//! Invariants:
//! - Buffers grow with the bytes that have arrived; nothing is allocated for bytes that were only announced.
//! - A peer that sends something other than RPC messages loses its connection. A peer that sends a well-formed call
//!   that cannot be served gets the RFC's error and keeps it.
//! - Every queue has a bound. Calls and bytes in flight are counted until their reply is in the socket, large replies
//!   from before they are made.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo, clippy::unimplemented)
)]
#![forbid(unsafe_code)]

pub mod auth;
pub mod client;
pub mod conn;
pub mod limits;
mod lone;
pub mod message;
pub mod places;
pub mod rate_limit;
mod reader;
pub mod record;
pub mod rpcbind;
pub mod server;
pub mod shares;
mod tasks;
pub mod turns;
pub mod udp;
mod writer;

pub use auth::{AuthSys, Credential};
pub use client::{Connection, Ends};
pub use conn::{
    CallError, CallHeader, ConnConfig, ConnInfo, NoService, Program, Response, Room, Service, Target,
};
pub use lone::on_lone_thread;
pub use message::{AcceptStat, AuthStat, OpaqueAuth, RejectStat};
pub use places::Standing;
pub use rate_limit::{KeyedRateLimit, RateLimit};
pub use server::{Load, Server, ServerConfig};
pub use shares::share_of;
pub use turns::{FairQueue, Turn, Turns};
