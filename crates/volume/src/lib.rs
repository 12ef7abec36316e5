//! Serves a directory tree on a POSIX filesystem as operations on handles, and makes them durable through an intent log.
//!
//! A [`Volume`] is one directory on ext4, XFS or btrfs. Its objects are [`Node`]s. A node's wire handle ([`Node::fh`]) holds
//! the kernel's file handle, the birth time and a signature: it survives restarts without a table and cannot be forged.
//! Operations are blocking system calls into the page cache and run under the caller's identity. A modifying operation
//! takes a [`Tx`] and appends what it did to the intent log. The server may reply only after the [`Receipt`] of the
//! transaction says that the log is flushed.
//!
//! Invariants:
//! - A lock that orders an operation against its rivals is held over the system call *and* the append, so the order of
//!   records is the order of effects. It is never held while waiting for a disk.
//! - After any failed fsync, fdatasync, syncfs or log write, every modifying operation and every receipt returns
//!   [`Error::Failed`] for ever, and the write verifier has changed.
//! - No operation can see, enter or change `DIR/.landfast`.
//!
//! Lock order, outermost first: the log's gate (a joined transaction), names locks of at most two directories (sorted by
//! identity), attribute locks (sorted by identity), a node's descriptor slot, a shard of the node cache.

// Input from the wire, the disk or the user gets an error, never a panic.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo, clippy::unimplemented)
)]
#![deny(unsafe_code)]

mod access_cache;
pub mod acl;
mod cache;
mod change;
mod checkpoints;
mod clock;
mod cred;
mod damage;
mod dependencies;
mod descriptor_cache;
mod descriptor_queue;
mod dirty;
mod error;
mod exclusive;
mod flush;
mod flush_check;
pub mod fold;
mod handle;
mod identity;
pub mod inside;
mod kernel;
pub mod limits;
mod listing;
pub mod log;
mod lost_log;
pub mod marker;
mod nested;
mod node;
mod node_fd;
mod objmap;
mod open;
mod open_file;
mod ops;
mod options;
mod orphans;
mod overlap;
mod quota;
pub mod record;
pub mod recover;
pub mod remap;
mod reserve;
mod results;
pub mod salvage;
mod shared_syncfs;
#[cfg(test)]
mod simulation;
mod state;
pub mod tag;
mod truncation_notes;
mod tx;
mod types;
mod volume;
mod witness;
mod witnesses;

pub use acl::{Acl, AclError, Acls, SetAcls};
pub use checkpoints::NoteKeeper;
pub use descriptor_cache::Keep;
pub use error::{Error, OpenError};
pub use handle::HANDLE_VERSION;
pub use landfast_intentlog::limits::DEVICE_BYTES_MIN as LOG_BYTES_MIN;
pub use landfast_intentlog::{LogPlace, Part, Snapshot, Stats as LogStats, WAIT_BUCKETS_US, Waits, faults};
pub use nested::THIS_PROCESS;
pub use node::Node;
pub use open_file::OpenFile;
pub use options::{Durability, Experiment, OpenOptions};
pub use overlap::Overlap;
pub use quota::QuotaLeft;
pub use results::*;
pub use tx::{Receipt, Tx};
pub use types::*;
pub use volume::{RecoveryReport, ShutdownReport, Stats, Volume};
