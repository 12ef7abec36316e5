//! Going on after this program itself has died: a journal on this machine of what is stable on the server.
//!
//! | module | what it does | I/O |
//! |---|---|---|
//! | `journal` | the format: a record a line, torn tails, damage | no |
//! | `batch`, `key`, `begun` | what became stable together; numbers that stand for paths and objects; large files that were begun | no |
//! | `before` | what a journal says was done; ranges of numbers | no |
//! | `meet` | whether what comes was done before; the digest of an archive that cannot be read twice | no |
//! | `part` | large files that were not finished | no |
//! | `there` | what is still at the destination | server |
//! | `file` | the journal's file: whose it is, appending, syncing | this machine |
//!
//! Invariants:
//! - the journal lags: something enters it only when it is on the server's stable storage, in the order in which that
//!   became so. What was done and had not entered it is done again, whole; a large file from the last noted part of it on;
//! - it is a note, not a promise of the server's: what is in it and not at the destination any more is done again, too;
//! - it is of one job. Another job, other options or another archive are refused before anything is sent.

mod batch;
mod before;
mod begun;
mod file;
mod journal;
mod key;
mod meet;
mod part;
mod there;

pub use file::{Begun, JournalFile, Resume, ResumeError};
pub use journal::{Job, Summary, framed};
pub(crate) use key::Item;
pub(crate) use meet::{Digested, Known, Running};
pub(crate) use part::Part;
pub use there::Local;
pub(crate) use there::fits;
