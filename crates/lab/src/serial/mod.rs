//! A client that does one thing at a time, as the kernel's does for `tar -x`.
//!
//! It is the peer that Landfast's own client is measured against, and the client of most experiments
//! on the server. It works with the blocking client of the crate `verify`, not with the `client` crate.
//!
//! | room | subject |
//! |---|---|
//! | `session` | a session whose slots take turns; counts; requests repeated |
//! | `action` | single file operations by path, each its own COMPOUND in the kernel's shape |
//! | `v3` | the same over NFS version 3 |
//! | `lone` | one kind of request again and again, in either version |
//! | `least` | a server that does nothing but one durable write for each request |
//! | `tar` | the operations that GNU tar makes of an archive's members |

pub mod action;
pub mod least;
pub mod lone;
pub mod session;
pub mod tar;
pub mod v3;

pub use action::{Action, Actor, Change, Done, Node};
pub use session::{Connect, Counts, Session};
