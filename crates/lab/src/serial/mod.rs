//! A client that does one thing at a time, as the kernel's does for `tar -x`.
//!
//! It is the peer that Landfast's own client is measured against, the client of most experiments
//! on the server, and a second implementation of the protocol's client side: it uses the wire
//! types but not the `client` crate.
//!
//! | room | subject |
//! |---|---|
//! | `wire` | one RPC after another over a blocking socket |
//! | `session` | EXCHANGE_ID, CREATE_SESSION, SEQUENCE on slots by turns; requests repeated; COMPOUNDs with the kernel's shapes |
//! | `action` | single file operations by path, each its own COMPOUND |
//! | `v3` | the same over NFS version 3 |
//! | `tar` | the operations that GNU tar makes of an archive's members |

pub mod action;
pub mod session;
pub mod tar;
pub mod v3;
mod wire;

pub use action::{Action, Actor, Change, Done, Node};
pub use session::{Connect, Counts, Session};
pub(crate) use wire::null_call;
