//! NFSv4.0, 4.1 and 4.2: COMPOUND, and one file for each family of operations.
//!
//! From the floor up:
//!
//! - [`matrix`]: the operations as data; `request`, `reply`: a COMPOUND as it was received, its reply as it grows;
//! - `allowance`: how much one COMPOUND may have the disk do; `context`: what its operations share;
//! - `touch`: whether delegations of others are in an operation's way;
//! - `session`, `handles`, `names`, `attributes`, `readdir`, `delegation`, `dir_delegation`, `open`, `io`, `lock`, `xattr`, `sparse`, `copy`: the operations;
//! - `dispatch`: which operation is whose code; `dispatch40`: the same as NFSv4.0 has them;
//! - `step`: one operation where it stands; `v40`: COMPOUNDs of NFSv4.0; `compound`: one request from its first operation to its
//!   reply;
//! - `serve`: from a received COMPOUND to its path through the server.

mod allowance;
mod attributes;
mod compound;
mod context;
mod copy;
mod delegation;
mod dir_delegation;
mod dispatch;
mod dispatch40;
mod handles;
mod io;
mod lock;
pub mod matrix;
mod names;
mod open;
mod readdir;
mod reply;
mod request;
mod serve;
mod session;
mod sparse;
mod step;
mod touch;
mod v40;
mod xattr;

pub(crate) use serve::{compound, compound_not_yet};
