//! The equation: what the time of NFS work is made of, and what bounds it. Pure.
//!
//! A capture, a client's counters and a probe of a live server all give [`Terms`]; what of a span of time went where is in [`Shares`],
//! and [`Shares::verdict`] says in one word what bounds the work.

mod shares;
mod terms;

pub use shares::{Bound, Shares, Verdict};
pub use terms::{Terms, Work};
