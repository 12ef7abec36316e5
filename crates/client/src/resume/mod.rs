//! Resumes a job after this program itself has died. A journal on this machine lists what is durable on the server.
//!
//! | module | what it does | I/O |
//! |---|---|---|
//! | `journal` | the format: a record a line, torn tails, damage | no |
//! | `batch`, `key`, `partial` | what became durable together; numbers that stand for paths and objects; unfinished large files | no |
//! | `done` | what a journal says was done; ranges of numbers | no |
//! | `earlier` | whether a member was done before; the digest of an archive that cannot be read twice | no |
//! | `part` | a large file in this run, from its durable part on | no |
//! | `destination` | what is still at the destination | server |
//! | `file` | the journal's file: whose it is, appending, syncing | this machine |
//!
//! Invariants:
//! - The journal lags. A member is noted after it became durable on the server, in that order. A member that was done but not noted is
//!   done again as a whole; a large file is continued from its last noted part.
//! - The journal is a note, not a promise of the server. A noted member that is missing at the destination is done again.
//! - A journal belongs to one job. Another job, other options or another archive are refused before anything is sent.

mod batch;
mod destination;
mod done;
mod earlier;
mod file;
mod journal;
mod key;

mod part;
mod partial;

pub use destination::Local;
pub(crate) use destination::fits;
pub(crate) use earlier::{Digested, EarlierResult, Running};
pub use file::{JournalFile, JournalStart, Resume, ResumeError};
pub use journal::{Job, Summary, framed};
pub(crate) use key::Item;
pub(crate) use part::Part;
