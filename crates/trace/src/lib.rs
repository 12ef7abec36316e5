//! Reads captures of NFS traffic: which calls were made, and how long each took.
//!
//! - [`source`] reads frames, [`frame`] parses them, `fragments` reassembles datagrams, `tcp` puts a stream in order.
//! - `stream` finds the RPC records, [`skim`] reads as much of each as is needed, [`trace`] matches replies to calls.
//! - [`table`] counts, [`listing`] prints, [`filter`] selects, [`anonymise`] makes a copy without names.
//! - [`mountstats`] reads a Linux client's counters instead of a capture.
//!
//! Only [`source`] does I/O.
//!
//! RPC is recognised by its content, never by ports. Memory is bounded by [`limits`], however long the capture is and
//! whatever is in it. No input makes this crate panic.

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
pub use tcp::SegmentCounts;
