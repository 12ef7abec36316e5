//! Client of NFSv3, 4.0, 4.1 and 4.2: sessions, slots, compounds; files by their paths; archive extraction.
//!
//! [`book`] shows how each thing is done.
//!
//! - [`mod@url`]: URLs, `nfs://HOST[:PORT]/PATH?version=4.2`;
//! - [`session`]: one session on several connections, many requests in flight, replies replayed after a
//!   lost connection;
//! - [`compound`]: reading a reply's results one by one;
//! - [`ops`]: whole jobs of a few compounds: resolve a path, list, read;
//! - [`fs`]: files and directories by their paths, many in one call; whole trees;
//! - [`glob`]: shell wildcards;
//! - [`local`]: trees of this machine, read (blocking);
//! - [`copy`]: trees as if they were archives;
//! - [`archive`]: tar archives, read and written member by member (blocking);
//! - [`tar`]: trees of servers into an archive, many files read in one COMPOUND;
//! - [`trees`]: trees beside each other: what differs, and what makes one as the other;
//! - [`outage`]: servers that do not answer;
//! - [`resume`]: going on after this program itself has died;
//! - [`put`]: members, of an archive or a tree, onto a server: many files in one COMPOUND, many COMPOUNDs in flight;
//! - [`untar`]: an archive onto a server.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use landfast_client::fs::Nfs;
//!
//! let nfs = Nfs::connect(&"nfs://server/export?version=4.1&nconnect=4".parse()?).await?;
//! for (name, data) in ["a", "b"].iter().zip(nfs.read_files(["a", "b"]).await) {
//!     println!("{name}: {} bytes", data.into_result()?.len());
//! }
//! # Ok(()) }
//! ```
//!
//! Invariants: nothing is reported done before the server said so; what a lost reply leaves unknown is
//! reported as unknown or found out, never assumed; an archive's names never lead out of the destination.

#![forbid(unsafe_code)]

pub mod archive;
pub mod book;
mod caller;
pub mod compound;
pub mod copy;
mod cost;
mod counters;
pub mod cred;
mod error;
pub mod fs;
pub mod glob;
mod here;
pub mod limits;
pub mod local;
pub mod ops;
mod options;
pub mod outage;
mod overflow;
mod patience;
mod peer;
pub mod put;
mod requests;
pub mod resume;
pub mod session;
mod standing;
pub mod tar;
pub mod trees;
pub mod untar;
pub mod url;
mod v3;
mod v40;
mod v41;

pub use session::{
    Asked, FirstRequest, Recall, Session, SessionError, SessionLimits, SessionOptions, Standing, Trailing,
};
pub use url::{NfsUrl, Version};
