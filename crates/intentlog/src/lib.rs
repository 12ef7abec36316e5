//! An append-only log of opaque records on a device: group commit, checkpoints, replay.
//!
//! The log does not know what its records mean. It promises three things:
//! - a [`Ticket`] succeeds only when the records of its transaction are on stable storage;
//! - after a crash, [`Log::open`] returns, in order, every record since the last checkpoint whose ticket succeeded, and
//!   of the others whole transactions, a prefix in log order;
//! - after the first error of the device or of a checkpoint no ticket succeeds any more.
//!
//! Format, arithmetic, replay and back-pressure are pure ([`mod@format`], [`ring`], [`replay`], [`admit`]); the
//! shell around them is one writer thread (a waiting thread takes its place while no other transaction is at work), one
//! checkpoint thread, one watch thread and a [`device::Device`].
//! `docs/internals/intent-log.md` is the long version, with the format drawn byte by byte.
//!
//! Lock order for users, outermost first: the gate ([`Log::begin`] until [`Txn::commit`]), then every lock
//! that is taken while a transaction is open or in [`Checkpoint::snapshot`]. The holder of such a lock must not call
//! [`Log::begin`].

// Input from the wire, the disk or the user must not panic.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo, clippy::unimplemented)
)]
#![forbid(unsafe_code)]

pub mod admit;
pub mod aligned;
mod checkpoint;
mod config;
mod core;
pub mod device;
mod error;
mod examine;
pub mod faults;
pub mod format;
mod generation;
pub mod holder;
pub mod inspect;
mod intent;
mod lead;
pub mod limits;
mod lock;
mod log;
mod loss;
mod outcome;
mod owner;
mod pace;
mod renew;
pub mod replay;
pub mod ring;
pub mod scavenge;
pub mod shape;
pub mod sim;
mod stats;
pub mod step;
pub mod stepper;
mod superblocks;
mod task;
mod ticket;
mod transaction;
mod watch;
mod writer;

pub use config::Config;
pub use device::LogPlace;
pub use error::{LogError, OpenError};
pub use examine::hex;
pub use intent::Intent;
pub use log::{Log, Replay};
pub use owner::{Checkpoint, Part, Renewed, Snapshot};
pub use stats::{Stats, WAIT_BUCKETS_US, Waits};
pub use stepper::Stepper;
pub use ticket::Ticket;
pub use transaction::Txn;
