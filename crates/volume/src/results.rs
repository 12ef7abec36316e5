//! What operations give that holds objects.

use bytes::Bytes;

use crate::error::Error;
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::types::{Attrs, AttrsSet, ChangeInfo, PreOp};

/// An object that an operation changed: nothing but the operation happened to it between the two looks.
#[derive(Clone, Debug)]
pub struct Around {
    /// The object.
    pub node: Node,
    /// Before.
    pub before: PreOp,
    /// After.
    pub after: Attrs,
}

/// One entry of a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// Name: 1 to 255 bytes, never `.` or `..`.
    pub name: Bytes,
    /// Position after this entry, > 2; stays valid while entries come and go.
    pub cookie: u64,
    /// File id.
    pub fileid: u64,
    /// With [`EntryDetail::Attrs`]: the object, or why it could not be looked at (`rdattr_error`).
    pub object: Option<Result<(Node, Attrs), Error>>,
}

/// The same, where it stands: see [`crate::Volume::list`].
#[derive(Clone, Debug)]
pub struct ListedEntry<'a> {
    /// Name: 1 to 255 bytes, never `.` or `..`.
    pub name: &'a [u8],
    /// Position after this entry, > 2; stays valid while entries come and go.
    pub cookie: u64,
    /// File id.
    pub fileid: u64,
    /// With [`EntryDetail::Attrs`]: the object, or why it could not be looked at (`rdattr_error`).
    pub object: Option<Result<(&'a Node, &'a Attrs), Error>>,
}

/// A piece of a directory.
#[derive(Clone, Debug)]
pub struct DirPage {
    /// Entries in the directory's own order.
    pub entries: Vec<DirEntry>,
    /// True when the last entry of `entries` is the directory's last.
    pub eof: bool,
}

/// Result of creating an object other than a regular file.
#[derive(Clone, Debug)]
pub struct Made {
    /// The new object.
    pub node: Node,
    /// Change of the directory.
    pub dir_change: ChangeInfo,
    /// What was set of the attributes asked for.
    pub attrs_set: AttrsSet,
}

/// Result of creating (or finding) a regular file by name.
#[derive(Clone, Debug)]
pub struct Created {
    /// The file.
    pub node: Node,
    /// The file, open as asked for.
    pub file: OpenFile,
    /// Change of the directory.
    pub dir_change: ChangeInfo,
    /// True when this call made the file (also when an exclusive create was repeated).
    pub created: bool,
    /// What was set of the attributes asked for.
    pub attrs_set: AttrsSet,
}
