//! Progress and result of an extraction.

use std::time::Instant;

use landfast_nfs::v4::{NfsStat, OpNum};
use serde::Serialize;

use crate::archive::{ArchiveError, Counts, Kind};
use crate::compound::OpError;
use crate::limits;
use crate::ops;
use crate::session::{SessionError, SessionStats};

/// Why a member failed, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The server refused this operation.
    Refused(OpNum, NfsStat),
    /// All is there, but owner, mode or time could not be set.
    Attributes(NfsStat),
    /// It could not be made on this machine.
    Unmade,
    /// Its data could not be written on this machine.
    Unwritten,
    /// Its owner, mode or times could not be set on this machine.
    Unset,
    /// Its directory is not there; that directory is reported by itself.
    Parent,
    /// It was not begun, since nothing more can be made there ([`Report::stopped`]).
    NotBegun,
    /// A directory has its name.
    DirInTheWay,
    /// It is a directory, and something else has its name.
    NoDirInTheWay,
    /// This run has just made something else under its name.
    JustMade,
    /// All is there, but extended attributes could not be set.
    Xattrs(NfsStat),
    /// It is a further name of something that was left out, because what has its name stays ([`super::existing::When::Never`]).
    LeftOut,
    /// What has its name is the source itself.
    SameFile,
    /// It was to share the source's storage ([`crate::fs::Reflink::Always`]), and cannot.
    Uncloned,
    /// For the server it is another spelling of a name that is there.
    OtherSpelling,
    /// The source could not be looked at.
    Unseen,
    /// A directory of the source could not be read.
    Unlisted,
    /// The source could not be opened.
    Unopened,
    /// The source could not be read to its end.
    Unread,
    /// What [`MemberError`] says.
    Other,
}

/// Why a member failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct MemberError {
    /// For programs.
    pub cause: Cause,
    /// For people.
    pub text: String,
    /// What the member is, where that is known.
    pub kind: Option<Kind>,
    /// What the source's server said, where it said something.
    pub status: Option<NfsStat>,
}

impl MemberError {
    pub fn new(cause: Cause, text: impl Into<String>) -> MemberError {
        MemberError { cause, text: text.into(), kind: None, status: None }
    }

    /// Whether the member is there, but not all of its attributes.
    pub fn is_incomplete(&self) -> bool {
        matches!(self.cause, Cause::Attributes(_) | Cause::Xattrs(_))
    }

    /// It is a hard link to the member at `path`, where an existing object stayed.
    pub(crate) fn left_out(path: &[u8]) -> MemberError {
        let there = path.escape_ascii();
        let text = format!("the file of which it is another name was not copied: `{there}` was there");
        MemberError::new(Cause::LeftOut, text)
    }
}

impl From<String> for MemberError {
    fn from(text: String) -> MemberError {
        MemberError::new(Cause::Other, text)
    }
}

impl From<&str> for MemberError {
    fn from(text: &str) -> MemberError {
        MemberError::new(Cause::Other, text)
    }
}

impl From<OpError> for MemberError {
    fn from(e: OpError) -> MemberError {
        let cause = match e {
            OpError::Failed { op, status } => Cause::Refused(op, status),
            OpError::Missing { .. } => Cause::Other,
        };
        MemberError::new(cause, e.to_string())
    }
}

/// A member that is not, or not wholly, on the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Its name in the archive; bytes that are not UTF-8 are replaced.
    pub path: String,
    pub why: String,
}

/// The result of an extraction. Everything that is counted here is on the server's stable storage.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// What is there; directories made on the way are among them.
    #[serde(flatten)]
    pub counts: Counts,
    /// Members left out on request.
    pub skipped: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// From the first connection to the last reply.
    pub seconds: f64,
    /// Files per second.
    pub files_per_s: f64,
    /// Calls sent.
    pub rpcs: u64,
    /// Calls per regular file.
    pub rpcs_per_file: f64,
    /// Calls that had to be sent again.
    pub retransmissions: u64,
    /// Sessions that had to be made anew (server restarts).
    pub session_renewals: u64,
    /// Members that failed, the first [`limits::FAILURES_NAMED_MAX`] of them.
    pub failed: Vec<Failure>,
    /// How many failed.
    pub failures: u64,
    /// Members that are there, and counted, without all of their attributes: owner, mode, times, extended ones. They are among the
    /// failures.
    pub incomplete: u64,
    /// Members, directories left out, that an earlier run had done and that are still there.
    pub resumed: u64,
    /// It was asked to stop: what was not begun then was not extracted.
    pub interrupted: bool,
    /// Why the rest of the archive was not extracted, if it was not.
    pub stopped: Option<String>,
}

impl Report {
    /// Whether every member is on stable storage.
    pub fn complete(&self) -> bool {
        self.failures == 0 && self.stopped.is_none() && !self.interrupted
    }

    /// The figures of a session that has done nothing else.
    pub(super) fn measure(&mut self, start: Instant, stats: &SessionStats) {
        self.seconds = start.elapsed().as_secs_f64();
        self.files_per_s = self.counts.files as f64 / self.seconds.max(1e-9);
        (self.rpcs, self.retransmissions) = (stats.rpcs, stats.retransmissions);
        self.session_renewals = stats.renewals;
        self.rpcs_per_file =
            if self.counts.files > 0 { stats.rpcs as f64 / self.counts.files as f64 } else { 0.0 };
    }

    /// A member is done.
    pub(crate) fn count(&mut self, kind: Option<Kind>, bytes: u64) {
        self.counts.add(kind.unwrap_or(Kind::Dir));
        if kind == Some(Kind::File) {
            self.bytes += bytes;
        }
    }

    pub(crate) fn fail(&mut self, path: &[u8], why: &MemberError) {
        self.failures += 1;
        self.incomplete += u64::from(why.is_incomplete());
        let why = why.to_string();
        if self.failed.len() < limits::FAILURES_NAMED_MAX {
            self.failed.push(Failure { path: String::from_utf8_lossy(path).into_owned(), why });
        }
    }
}

/// The result: the report, or the error when nothing was extracted.
pub(super) fn finished(mut report: Report, fatal: Option<FatalError>) -> Result<Report, FatalError> {
    let nothing = report.counts.without_dirs() == 0;
    match fatal {
        // Directories are met before it shows.
        Some(e @ FatalError::Another(_)) if nothing => Err(e),
        Some(e) if nothing && report.counts.dirs == 0 => Err(e),
        Some(e) => {
            report.stopped.get_or_insert(e.to_string());
            Ok(report)
        }
        None => Ok(report),
    }
}

/// Why nothing was extracted.
#[derive(Debug, thiserror::Error)]
pub enum FatalError {
    /// The archive cannot be opened or is none.
    #[error("{name}: {source}")]
    Archive {
        /// The archive's name.
        name: String,
        /// What is wrong.
        source: ArchiveError,
    },
    /// No session with the server.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The destination cannot be used.
    #[error("destination {path} on {server}: {source}")]
    Destination {
        /// Host and port.
        server: String,
        path: String,
        /// What is wrong.
        source: ops::Error,
    },
    /// The destination is no directory.
    #[error("destination {path} on {server} is not a directory")]
    NotDirectory {
        /// Host and port.
        server: String,
        path: String,
    },
    /// It was asked to stop.
    #[error("interrupted: nothing was extracted")]
    Stopped,
    /// What was to be gone on with is another archive.
    #[error(transparent)]
    Another(ArchiveError),
    /// The reading thread ended without a word.
    #[error("cannot start reading the archive: {0}")]
    Reader(String),
}

/// Receives the progress of an extraction. All methods are called often and must return at once.
pub trait Progress: Send + Sync {
    /// The archive is open; its size in bytes as it lies on disk, when it is a file.
    fn opened(&self, _archive_bytes: Option<u64>) {}
    /// So many bytes of the archive, as it lies on disk, have been read.
    fn read(&self, _archive_bytes: u64) {}
    /// A member was taken up, in the archive's order.
    fn member(&self, _path: &[u8]) {}
    /// So many members and bytes of file data are on stable storage in all.
    fn committed(&self, _members: u64, _bytes: u64) {}
    /// A member is on stable storage (of a directory: that it exists; its attributes come at the end).
    fn stable(&self, _path: &[u8]) {}
    /// A directory was there already; its attributes come at the end.
    fn met(&self, path: &[u8]) {
        self.stable(path);
    }
    /// A member was left out because of what has its name already, as asked ([`super::When`]).
    fn skipped(&self, _path: &[u8]) {}
    /// A member was done by an earlier run.
    fn resumed(&self, _path: &[u8]) {}
    fn failed(&self, _path: &[u8], _why: &MemberError) {}
}

/// Ignores all progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {}
