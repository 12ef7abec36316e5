//! A live NFS server, measured from here in seconds: what each call takes, how it goes with many under way, what the server offers,
//! and what of that bounds work on small files.
//!
//! | room | subject |
//! |---|---|
//! | [`ask`] | what is asked, in whatever version |
//! | [`v3`], [`v4`] | how it is asked in each version, several calls under way on one connection |
//! | [`burst`] | the loop that keeps calls under way and takes their times |
//! | [`times`] | distributions; pure |
//! | [`findings`] | what distributions say: terms, shares, remarks; pure |
//! | [`search`] | how many operations fit in a COMPOUND, by trying: which number is next (pure), and the trying |
//! | [`offers`], [`delegations`], [`forty`] | versions, TLS, delegations; those of version 4.0, with a port for callbacks |
//! | [`place`] | the directory of its own, and how it goes away |
//! | [`run`](mod@run) | one thing after another |
//! | [`report`] | what is printed |
//! | [`limits`] | every number that bounds what it does to a server |
//!
//! Invariants:
//! - nothing outside a directory of its own is changed, and that directory goes away however the run ends; if it cannot, it is named;
//! - a time is that of one call from its first byte to the last of its reply; answers that say "later" are counted apart.

// What comes from the wire or the user gets an answer.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo, clippy::unimplemented)
)]
#![forbid(unsafe_code)]

pub mod ask;
pub mod burst;
pub mod delegations;
pub mod error;
pub mod findings;
pub mod forty;
pub mod limits;
pub mod offers;
pub mod place;
pub mod report;
pub mod run;
pub mod search;
pub mod times;
pub mod v3;
pub mod v4;

pub use error::{Error, Result};
pub use report::Report;
pub use run::{Options, run};
