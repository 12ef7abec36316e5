//! What went wrong, in the words of GNU tar; the result.

use std::io;

use landfast_nfs::v4::NfsStat;
use serde::Serialize;

use crate::archive::{Counts, DeviceRange};
use crate::fs::ItemError;

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth a word.
    Remark,
    /// What is in the archive is not what was on the server at one moment: exit status 1.
    Differs,
    /// Something is missing from the archive: exit status 2.
    Missing,
}

/// What is to be said of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Complaint {
    /// An archive cannot hold it.
    Socket,
    /// The server did not say what it is.
    UnknownType,
    /// It was listed and then was there no more.
    Removed,
    /// Its status has changed since it was listed.
    Changed,
    /// It had so many bytes less than when it was listed; zeroes stand for them.
    Shrank(u64),
    /// What was named is not there, or cannot be looked at.
    Unseen(ItemError),
    /// It could not be read.
    Unopened(ItemError),
    /// The directory could not be listed.
    Unlisted(ItemError),
    /// The symbolic link could not be read.
    Unlinked,
    /// It could not be read from this byte on; zeroes stand for the rest.
    Unread(u64, ItemError),
    /// No archive can hold its numbers.
    Device(DeviceRange),
}

impl Complaint {
    /// How bad it is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Complaint::Socket => Severity::Remark,
            Complaint::Removed | Complaint::Changed | Complaint::Shrank(_) => Severity::Differs,
            _ => Severity::Missing,
        }
    }

    /// Of an object that could not be read: gone, or there and not to be had.
    pub(super) fn unopened(e: ItemError) -> Complaint {
        if gone(&e) { Complaint::Removed } else { Complaint::Unopened(e) }
    }

    /// Of a directory that could not be listed.
    pub(super) fn unlisted(e: ItemError) -> Complaint {
        if gone(&e) { Complaint::Removed } else { Complaint::Unlisted(e) }
    }

    /// The sentence, with the server's errors in words of `error`'s.
    #[must_use]
    pub fn text(&self, error: impl Fn(&ItemError) -> String) -> String {
        match self {
            Complaint::Socket => "socket ignored".to_owned(),
            Complaint::UnknownType => "Unknown file type; file ignored".to_owned(),
            Complaint::Removed => "File removed before we read it".to_owned(),
            Complaint::Changed => "file changed as we read it".to_owned(),
            Complaint::Shrank(1) => "File shrank by 1 byte; padding with zeros".to_owned(),
            Complaint::Shrank(n) => format!("File shrank by {n} bytes; padding with zeros"),
            Complaint::Unseen(e) => format!("Cannot stat: {}", error(e)),
            Complaint::Unopened(e) | Complaint::Unlisted(e) => format!("Cannot open: {}", error(e)),
            Complaint::Unlinked => "Cannot readlink".to_owned(),
            Complaint::Unread(at, e) => format!("Read error at byte {at}: {}", error(e)),
            Complaint::Device(e) => e.to_string(),
        }
    }
}

fn gone(e: &ItemError) -> bool {
    matches!(e.status(), Some(NfsStat::NFS4ERR_NOENT | NfsStat::NFS4ERR_STALE | NfsStat::NFS4ERR_FHEXPIRED))
}

/// Hears of members and complaints, in the archive's order, on the task that makes the archive.
pub trait Watch: Send + Sync {
    /// A member is being put into the archive; a directory's name ends in `/`.
    fn member(&self, _path: &[u8]) {}
    /// Something is to be said of an object.
    fn complaint(&self, _path: &[u8], _what: &Complaint) {}
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Watch for Silent {}

/// What is in the archive.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Members.
    #[serde(flatten)]
    pub counts: Counts,
    /// Bytes of file data.
    pub bytes: u64,
    /// Bytes of the archive, before it was compressed.
    pub archive_bytes: u64,
    /// Objects that are missing.
    pub missing: u64,
    /// Objects that changed or went away while the archive was made.
    pub differing: u64,
}

impl Report {
    /// Whether the archive holds all as it was on the server.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.missing == 0 && self.differing == 0
    }
}

/// Why there is no archive.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// The archive's file cannot be made.
    #[error("Cannot open: {0}")]
    Open(io::Error),
    /// It cannot be written on.
    #[error("Cannot write: {0}")]
    Write(io::Error),
    /// It is written, but not on stable storage.
    #[error("Cannot make the archive durable: {0}")]
    Sync(io::Error),
}
