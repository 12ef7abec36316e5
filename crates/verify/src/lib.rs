//! Whether an NFS server keeps what it acknowledged, whoever made it.
//!
//! [`write`](mod@write) performs operations and notes in a journal on this machine what was acknowledged; the server's power is cut;
//! [`check`] says what was lost, by operation.
//!
//! | room | subject |
//! |---|---|
//! | [`op`] | the operations and what a reply to each says |
//! | [`plan`] | which operation is next; pure |
//! | [`model`], [`contents`] | the tree that acknowledged operations make, each fact with the operation that made it; pure |
//! | [`rounds`] | two clients that meet on one object, and what their answers say of what must be there; pure |
//! | [`judge`] | the tree that should be there against the one that is; pure |
//! | [`journal`] | the file: its format (pure) and how it is made durable |
//! | [`wire`], [`v3`], [`v4`], [`client`], [`mod@connect`] | one call after another, in each version of the protocol |
//! | [`write`](mod@write), `meet`, [`observe`], [`check`] | the loops around them |
//! | [`report`] | what is printed |
//!
//! Invariants:
//! - the journal never says of an operation that it was acknowledged before its reply was read;
//! - an operation is sent only when the journal has durably what it is, and every acknowledgement that its client
//!   had before it: whatever is cut, the server's power or this machine's, at most one operation of each client is in doubt;
//! - of two that meet ([`rounds`]) both may be in doubt; what was made for them was acknowledged before their note;
//! - an operation in doubt may be there whole or not at all, a write in doubt in any part of its range: neither is a loss.

// What comes from the wire, the disk or the user gets an answer.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo, clippy::unimplemented)
)]
#![forbid(unsafe_code)]

pub mod check;
pub mod client;
pub mod connect;
pub mod contents;
pub mod error;
pub mod journal;
pub mod judge;
pub mod limits;
mod meet;
pub mod model;
pub mod observe;
pub mod op;
pub mod plan;
pub mod report;
pub mod rounds;
pub mod url;
pub mod v3;
pub mod v4;
pub mod wire;
pub mod write;

pub use error::Error;
pub use url::Target;
