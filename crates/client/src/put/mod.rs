//! Puts members onto a server: many files in one COMPOUND, many COMPOUNDs in flight. Members are those of an archive ([`crate::untar`]) or
//! of a tree ([`crate::copy`]).
//!
//! | module | what it does | I/O |
//! |---|---|---|
//! | `source` | reads the members on a thread of its own | their source |
//! | `existing` | what happens to existing names | no |
//! | `attrs` | which attributes a member gets, at creation and last | no |
//! | `ownership` | which owners the server sets at creation | no |
//! | `tree` | what is known of the destination, in bounded memory; paths are followed through real directories only | a temporary file |
//! | `dir`, `names` | one directory of it, and the names in it that are in progress | no |
//! | `dir_record` | a directory as bytes, while it is not in memory | no |
//! | `plan` | the order of members, and which waits for which | no |
//! | `replies` | what a reply means for the members in a compound | no |
//! | `run` | an extraction from its beginning to its end | server |
//! | `input`, `capacity`, `stop` | the source, the limits of the session, the request to stop | no |
//! | `start` | an extraction that begins together with its session | server |
//! | `early_dirs` | directories that are made in the session's first request | no |
//! | `early_files`, `early_send` | files that are sent into them before its reply | no, server |
//! | `early_results` | the results of both | no |
//! | `pack` | fills one compound up to the session's limits | no |
//! | `trouble` | why a member is not there | no |
//! | `stepwise` | one member, one operation at a time | server |
//! | `pieces` | large and sparse files | server |
//! | `server_copy` | files that the server copies, one at a time | server |
//! | `engine` | the loop around them | - |
//!
//! Per file in a compound: (RESTOREFH,) OPEN with mode, owner and group; GETFH; WRITE, stable, on the
//! current stateid; SETATTR of the time; CLOSE. A directory's mode, owner and time are set when nothing more is put
//! into it: in the compound that fills it, or at the end.

mod attrs;
mod capacity;
mod dir;
mod dir_record;
mod early_dirs;
mod early_files;
mod early_results;
mod early_send;
mod engine;
mod existing;
mod ids;
mod input;
mod names;
mod options;
mod ownership;
mod pack;
mod pieces;
mod plan;
mod replies;
mod report;
mod run;
mod server_copy;
#[cfg(test)]
mod sim;
mod source;
mod spelling;
mod start;
mod stepwise;
mod stop;
mod tree;
mod trouble;

pub(crate) use attrs::kept_bits;
pub use existing::{Existing, Over, When};
pub(crate) use existing::{ExistingObject, NewKind, Verdict};
pub use options::{Early, PutOptions, Tuning, Xattrs};
pub use report::{Cause, Failure, FatalError, MemberError, Progress, Report, Silent};
pub use run::{run, run_as, run_in};
pub(crate) use source::{ArchiveSource, OpenArchive, ReadCount};
pub use source::{DataError, Members, Source, SourceItem};
pub use start::{Started, start, start_in};
