//! Checks whether any NFS server keeps what it acknowledged.
//!
//! [`write`](mod@write) performs operations and notes in a journal on this machine what was acknowledged; somebody cuts the server's power;
//! [`check`] says what was lost, by operation.
//!
//! | room | subject |
//! |---|---|
//! | [`op`] | the operations and what a reply to each says |
//! | [`plan`] | which operation is next; pure |
//! | [`model`], [`contents`] | the tree that acknowledged operations make, each fact with the operation that made it; pure |
//! | [`rounds`] | two clients that race on one object, and what their replies say of what must be there; pure |
//! | [`judge`] | the tree that should be there against the one that is; pure |
//! | [`journal`] | the file: its format (pure) and how it is made durable |
//! | [`blocking`] | a small NFS client: one call after another, in each version of the protocol |
//! | [`perform`](mod@perform) | an operation of the plan, done with such a client |
//! | [`write`](mod@write), `pair`, [`observe`], [`check`] | the loops around them |
//! | [`report`] | what is printed |
//! | [`rng`] | seeded random numbers |
//!
//! Invariants:
//! - the journal never says of an operation that it was acknowledged before its reply was read;
//! - an operation is sent only when the journal has durably what it is, and every acknowledgement that its client
//!   had before it: whatever is cut, the server's power or this machine's, at most one operation of each client is in doubt;
//! - both operations of a race ([`rounds`]) may be in doubt; what was made for them was acknowledged before their note;
//! - an operation in doubt may be there whole or not at all, a write in doubt in any part of its range: neither is a loss.

// What comes from the wire, the disk or the user gets an answer.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo, clippy::unimplemented)
)]
#![forbid(unsafe_code)]

pub mod blocking;
pub mod check;
pub mod contents;
pub mod error;
pub mod journal;
pub mod judge;
pub mod limits;
pub mod model;
pub mod observe;
pub mod op;
mod pair;
pub mod perform;
pub mod plan;
pub mod report;
pub mod rng;
pub mod rounds;
pub mod url;
pub mod write;

pub use error::Error;
pub use url::Target;
