//! Captures of NFS traffic: which calls were made, and how long each took.
//!
//! [`source`] reads frames, [`frame`] takes them apart, `fragments` puts datagrams together, `tcp` puts a stream in order, `stream` finds the RPC records in it, [`skim`]
//! reads of each as much as is needed, [`trace`] brings calls and replies together, [`table`] counts,
//! [`listing`] shows, [`filter`] leaves out, [`anonymise`] makes a copy without names; [`mountstats`] is about a client's counters
//! instead. All but [`source`] is pure.
//!
//! RPC is recognised by its content, never by ports. Memory is bounded by [`limits`], however long the capture is and whatever
//! is in it; nothing in it makes this crate panic.

#![forbid(unsafe_code)]

pub mod analysis;
pub mod anonymise;
pub mod filter;
mod fragments;
pub mod frame;
pub mod limits;
mod line;
pub mod listing;
pub mod mountstats;
mod path;
pub mod skim;
pub mod source;
mod stream;
pub mod table;
mod tcp;
pub mod trace;
pub mod whole;

pub use stream::Stamp;
pub use tcp::Seen;
