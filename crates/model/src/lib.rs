//! The equation: what the time of NFS work consists of, and what bounds it. No I/O.
//!
//! - A capture, a client's counters and a probe of a live server all give [`Terms`].
//! - [`Shares`] says where a span of time went, and [`Shares::verdict`] says in one word what bounds the work.
//! - [`predict()`] says how long `tar -x` takes, now and after changes.

#![forbid(unsafe_code)]

mod device;
pub mod predict;
pub mod rhythm;
mod shares;
mod terms;

pub use device::{Device, SEEN_S, Wait};
pub use predict::{Change, Job, Prediction, predict};
pub use shares::{Bound, Shares, Verdict};
pub use terms::{Terms, Work};
