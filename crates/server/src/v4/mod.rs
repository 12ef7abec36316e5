//! NFSv4.0, 4.1 and 4.2: COMPOUND, and one file for each family of operations.
//!
//! - [`matrix`]: the operations as data;
//! - [`compound`]: one request from its first operation to its reply;
//! - `serve`: from a received COMPOUND to its path through the server;
//! - [`context`]: what operations of one compound share;
//! - `v40`: what is different in NFSv4.0;
//! - `work`: how much one compound may have the disk do;
//! - `session`, `handles`, `names`, `attributes`, `readdir`, `open`, `io`, `lock`, `xattr`, `sparse`, `copy`: the operations.

mod attributes;
mod compound;
mod context;
mod copy;
mod handles;
mod io;
mod lock;
pub mod matrix;
mod names;
mod open;
mod readdir;
mod serve;
mod session;
mod sparse;
mod v40;
mod work;
mod xattr;

pub(crate) use serve::{compound, compound_not_yet};
