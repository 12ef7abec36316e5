//! Measures a live NFS server from here within seconds: the time of each call, the rate with many calls in flight,
//! what the server offers, and what bounds work on small files.
//!
//! | module | subject |
//! |---|---|
//! | [`ask`] | the calls that it makes, in any version |
//! | [`v3`], [`v4`] | how each version sends them, several in flight on one connection |
//! | [`burst`] | keeps calls in flight and measures their times |
//! | [`times`] | distributions; no I/O |
//! | [`findings`] | interprets distributions: terms, shares, remarks; no I/O |
//! | [`search`] | finds the largest COMPOUND by trying |
//! | [`offers`], [`delegations`], [`delegations40`] | versions, TLS, delegations; those of version 4.0 need a port for callbacks |
//! | [`place`] | the probe's own directory, and its removal |
//! | [`progress`] | whom a run tells what it is doing |
//! | [`run`](mod@run) | the whole run, step by step |
//! | [`report`] | what is printed |
//! | [`limits`] | every number that bounds the load on a server |
//!
//! Invariants:
//! - It changes nothing outside its own directory. The directory is removed however the run ends; if that fails, its
//!   name is reported.
//! - A time is that of one call, from its first byte to the last byte of its reply. Replies that say "later" are
//!   counted separately.

// Input from the wire or the user never panics.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo, clippy::unimplemented)
)]
#![forbid(unsafe_code)]

pub mod ask;
pub mod burst;
pub mod delegations;
pub mod delegations40;
pub mod error;
pub mod findings;
pub mod limits;
pub mod offers;
pub mod place;
pub mod progress;
pub mod report;
pub mod run;
pub mod search;
pub mod times;
pub mod v3;
pub mod v4;

pub use error::{Error, Result};
pub use report::Report;
pub use run::{Options, run};
