//! The NFS protocols as types: numbers, names and limits from the RFCs; no behaviour.
//!
//! Field names are the RFCs' without their prefixes (`eia_clientowner` is `client_owner`). Every type decodes any
//! bytes without panicking; lengths are bounded by the record that they came in.

// What comes from the wire, the disk or the user gets an answer.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo, clippy::unimplemented)
)]
#![forbid(unsafe_code)]

mod common;
pub mod mount;
pub mod nfsacl;
pub mod nlm;
pub mod nsm;
mod status;
pub mod v3;
pub mod v4;

/// The RPC program number of NFS (RFC 5531 section 13, RFC 8881 section 2.2).
pub const PROGRAM: u32 = 100_003;
/// The well-known port (RFC 8881 section 2.9.3).
pub const PORT: u16 = 2049;
