//! Complaints in the words of GNU tar, and the result.

use std::io;

use landfast_nfs::v4::NfsStat;
use serde::Serialize;

use crate::archive::{Counts, DeviceRange};
use crate::fs::ItemError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Does not change the exit status.
    Remark,
    /// The archive does not show one state of the server: exit status 1.
    Differs,
    /// Something is missing from the archive: exit status 2.
    Missing,
}

/// A complaint about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Complaint {
    /// A socket, which an archive cannot hold.
    Socket,
    /// The server did not give a type.
    UnknownType,
    /// The object was listed, but was gone when it was read.
    Removed,
    /// The attributes changed since the object was listed.
    Changed,
    /// The file became this many bytes shorter since it was listed. Zeroes replace them.
    Shrank(u64),
    /// The operand does not exist, or its attributes cannot be read.
    Unseen(ItemError),
    /// The object could not be read.
    Unopened(ItemError),
    /// The directory could not be listed.
    Unlisted(ItemError),
    /// The symbolic link could not be read.
    Unlinked,
    /// The file could not be read from this offset on. Zeroes replace the rest.
    Unread(u64, ItemError),
    /// An archive cannot hold an extended attribute of this name.
    Xattr(Vec<u8>),
    /// An archive cannot hold these device numbers.
    Device(DeviceRange),
}

impl Complaint {
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Complaint::Socket => Severity::Remark,
            Complaint::Removed | Complaint::Changed | Complaint::Shrank(_) => Severity::Differs,
            _ => Severity::Missing,
        }
    }

    /// For an object that could not be read.
    pub(super) fn unopened(e: ItemError) -> Complaint {
        if gone(&e) { Complaint::Removed } else { Complaint::Unopened(e) }
    }

    /// For a directory that could not be listed.
    pub(super) fn unlisted(e: ItemError) -> Complaint {
        if gone(&e) { Complaint::Removed } else { Complaint::Unlisted(e) }
    }

    /// The complaint as a text. `error` gives the text of a server's error.
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
            Complaint::Xattr(name) => {
                format!(
                    "Extended attribute {} left out: an archive cannot hold this name",
                    name.escape_ascii()
                )
            }
            Complaint::Device(e) => e.to_string(),
        }
    }
}

fn gone(e: &ItemError) -> bool {
    matches!(e.status(), Some(NfsStat::NFS4ERR_NOENT | NfsStat::NFS4ERR_STALE | NfsStat::NFS4ERR_FHEXPIRED))
}

/// Receives members and complaints in the archive's order. Called on the task that makes the archive.
pub trait Watch: Send + Sync {
    /// A member is put into the archive. A directory's name ends in `/`.
    fn member(&self, _path: &[u8]) {}
    fn complaint(&self, _path: &[u8], _what: &Complaint) {}
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Watch for Silent {}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub counts: Counts,
    /// Bytes of file data.
    pub bytes: u64,
    /// Bytes of the archive before compression.
    pub archive_bytes: u64,
    pub missing: u64,
    /// Objects that changed or were removed while the archive was made.
    pub differing: u64,
}

impl Report {
    /// Whether the archive holds everything, unchanged.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.missing == 0 && self.differing == 0
    }
}

/// Why there is no archive.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    #[error("Cannot open: {0}")]
    Open(io::Error),
    #[error("Cannot write: {0}")]
    Write(io::Error),
    /// The archive is written, but not durable.
    #[error("Cannot make the archive durable: {0}")]
    Sync(io::Error),
}
