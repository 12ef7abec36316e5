//! The progress and the result of an extraction.

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
    /// The object is complete, but owner, mode or time could not be set.
    Attributes(NfsStat),
    /// A local object could not be made.
    Unmade,
    /// A local file could not be written.
    Unwritten,
    /// Owner, mode or times of a local object could not be set.
    Unset,
    /// The parent directory is missing. That directory is reported separately.
    Parent,
    /// The member was not started, because nothing more can be made ([`Report::stopped`]).
    NotBegun,
    /// A directory already has the name.
    DirInTheWay,
    /// The member is a directory, and something that is not a directory already has the name.
    NoDirInTheWay,
    /// This run has already made something else with this name.
    JustMade,
    /// The object is complete, but extended attributes could not be set.
    Xattrs(NfsStat),
    /// The object is complete, but extended attributes of the source could not be read.
    UnreadXattrs,
    /// A hard link to a member that was not extracted, because it failed or an existing object stays
    /// ([`super::existing::When::Never`]).
    LeftOut,
    /// The existing object is the source itself.
    SameFile,
    /// The copy could not share the source's storage ([`crate::fs::Reflink::Always`]).
    Uncloned,
    /// The server takes the name for another spelling of an existing name.
    OtherSpelling,
    /// The source's attributes could not be read.
    Unseen,
    /// A directory of the source could not be listed.
    Unlisted,
    /// The source could not be opened.
    Unopened,
    /// The source could not be read to its end.
    Unread,
    /// See [`MemberError::text`].
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
    /// The member's kind, where it is known.
    pub kind: Option<Kind>,
    /// The status from the source's server, if there was one.
    pub status: Option<NfsStat>,
}

impl MemberError {
    pub fn new(cause: Cause, text: impl Into<String>) -> MemberError {
        MemberError { cause, text: text.into(), kind: None, status: None }
    }

    /// Whether the member exists but lacks some attributes.
    pub fn is_incomplete(&self) -> bool {
        matches!(self.cause, Cause::Attributes(_) | Cause::Xattrs(_) | Cause::UnreadXattrs)
    }

    /// For a hard link to the member at `path`, where an existing object stayed.
    pub(crate) fn left_out(path: &[u8]) -> MemberError {
        let there = path.escape_ascii();
        let text = format!("the file of which it is another name was not copied: `{there}` was there");
        MemberError::new(Cause::LeftOut, text)
    }

    /// For a hard link to the member at `path`, which failed: what has that name now is not that member, or not all of it.
    pub(crate) fn link_to_failed(path: &[u8]) -> MemberError {
        MemberError::new(
            Cause::LeftOut,
            format!("it is a hard link to `{}`, which failed", path.escape_ascii()),
        )
    }

    /// For a member whose name exists, where existing objects stay.
    pub(crate) fn exists() -> MemberError {
        MemberError::new(Cause::Refused(OpNum::OPEN, NfsStat::NFS4ERR_EXIST), "File exists")
    }

    /// For a member that may or may not have been made, where existing objects stay.
    pub(crate) fn outcome_unknown() -> MemberError {
        "the outcome is unknown: the reply was lost, and what is there now may be the rest of it".into()
    }

    pub(crate) fn is_existing(&self) -> bool {
        matches!(self.cause, Cause::Refused(_, NfsStat::NFS4ERR_EXIST))
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

/// A member that is missing or incomplete on the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The name in the archive. Bytes that are not UTF-8 are replaced.
    pub path: String,
    pub why: String,
}

/// The result of an extraction. Everything counted here is durable on the server.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Members that exist now, including directories that the archive did not name.
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
    pub rpcs: u64,
    pub rpcs_per_file: f64,
    /// RPCs sent again.
    pub retransmissions: u64,
    /// Sessions that had to be created again, after server restarts.
    pub session_renewals: u64,
    /// The first [`limits::FAILURES_NAMED_MAX`] members that failed.
    pub failed: Vec<Failure>,
    /// The number of all members that failed.
    pub failures: u64,
    /// Members that exist but lack some attributes (owner, mode, times, extended attributes). They count both as made and
    /// as failures.
    pub incomplete: u64,
    /// Members of an earlier run that still exist. Directories do not count.
    pub resumed: u64,
    /// The caller asked to stop. Members that were not started by then were not extracted.
    pub interrupted: bool,
    /// Why the rest of the archive was not extracted.
    pub stopped: Option<String>,
}

impl Report {
    /// Whether every member is durable.
    pub fn complete(&self) -> bool {
        self.failures == 0 && self.stopped.is_none() && !self.interrupted
    }

    /// Fills in the figures of a session that did only this extraction.
    pub(super) fn measure(&mut self, start: Instant, stats: &SessionStats) {
        self.seconds = start.elapsed().as_secs_f64();
        self.files_per_s = self.counts.files as f64 / self.seconds.max(1e-9);
        (self.rpcs, self.retransmissions) = (stats.rpcs, stats.retransmissions);
        self.session_renewals = stats.renewals;
        self.rpcs_per_file =
            if self.counts.files > 0 { stats.rpcs as f64 / self.counts.files as f64 } else { 0.0 };
    }

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

/// The report, or the error if nothing was extracted.
pub(super) fn finished(mut report: Report, fatal: Option<FatalError>) -> Result<Report, FatalError> {
    let nothing = report.counts.without_dirs() == 0;
    match fatal {
        // Directories are extracted before the difference shows.
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
    /// The archive cannot be opened, or is not an archive.
    #[error("{name}: {source}")]
    Archive {
        name: String,
        /// What is wrong.
        source: ArchiveError,
    },
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
    #[error("destination {path} on {server} is not a directory")]
    NotDirectory {
        /// Host and port.
        server: String,
        path: String,
    },
    /// The caller asked to stop.
    #[error("interrupted: nothing was extracted")]
    Stopped,
    /// The archive is not the one that the earlier run began.
    #[error(transparent)]
    Another(ArchiveError),
    /// The reading thread could not start, or ended without an event.
    #[error("cannot start reading the archive: {0}")]
    Reader(String),
}

/// Receives the progress of an extraction. All methods are called often, and must return at once.
pub trait Progress: Send + Sync {
    /// The archive is open. `_archive_bytes`: its size on disk, if it is a regular file.
    fn opened(&self, _archive_bytes: Option<u64>) {}
    /// The number of bytes of the archive on disk that have been read so far.
    fn read(&self, _archive_bytes: u64) {}
    /// A member was read. Called in the archive's order.
    fn member(&self, _path: &[u8]) {}
    /// The number of members and of bytes of file data that are durable so far.
    fn committed(&self, _members: u64, _bytes: u64) {}
    /// A member is durable. For a directory this means only that it exists: its attributes are set at the end.
    fn stable(&self, _path: &[u8]) {}
    /// A directory existed already. Its attributes are set at the end.
    fn dir_existed(&self, path: &[u8]) {
        self.stable(path);
    }
    /// A member was not extracted, because an existing object stays as requested ([`super::When`]).
    fn skipped(&self, _path: &[u8]) {}
    /// An earlier run extracted this member.
    fn resumed(&self, _path: &[u8]) {}
    fn failed(&self, _path: &[u8], _why: &MemberError) {}
    /// Something that the user may want to change, though nothing has failed.
    fn warning(&self, _text: &str) {}
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {}
