//! Results of operations that contain objects.

use bytes::Bytes;

use crate::error::Error;
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::types::{Attrs, AttrsSet, ChangeInfo, Kept, PreOp};

/// How an object looked before and after an operation; nothing else changed it between the two looks.
#[derive(Clone, Debug)]
pub struct Around {
    pub node: Node,
    pub before: PreOp,
    pub after: Attrs,
}

#[derive(Clone, Debug)]
pub struct DirEntry {
    /// 1 to 255 bytes, never `.` or `..`.
    pub name: Bytes,
    /// Position after this entry, > 2; stays valid while entries come and go.
    pub cookie: u64,
    pub fileid: u64,
    /// With [`EntryDetail::Attrs`]: the object, or why it could not be looked at (`rdattr_error`).
    pub object: Option<Result<(Node, Attrs), Error>>,
}

/// A borrowed [`DirEntry`]; see [`crate::Volume::list`].
#[derive(Clone, Debug)]
pub struct ListedEntry<'a> {
    /// 1 to 255 bytes, never `.` or `..`.
    pub name: &'a [u8],
    /// Position after this entry, > 2; stays valid while entries come and go.
    pub cookie: u64,
    pub fileid: u64,
    /// With [`EntryDetail::Attrs`]: the object, or why it could not be looked at (`rdattr_error`).
    pub object: Option<Result<(&'a Node, &'a Attrs), Error>>,
}

#[derive(Clone, Debug)]
pub struct DirPage {
    pub entries: Vec<DirEntry>,
    /// The last entry of `entries` is the directory's last.
    pub eof: bool,
}

#[derive(Clone, Debug)]
pub struct Removed {
    pub dir_change: ChangeInfo,
    /// The object, if it has lost its last name and is kept.
    pub kept: Option<Node>,
}

#[derive(Clone, Debug)]
pub struct Renamed {
    /// The changes of the directories: of the old name, of the new one.
    pub source: ChangeInfo,
    pub target: ChangeInfo,
    /// The replaced object, if it has lost its last name and is kept.
    pub kept: Option<Node>,
}

#[derive(Clone, Debug)]
pub struct Made {
    pub node: Node,
    pub dir_change: ChangeInfo,
    /// Which of the requested attributes were set.
    pub attrs_set: AttrsSet,
}

#[derive(Clone, Debug)]
pub struct Created {
    pub node: Node,
    pub file: OpenFile,
    pub dir_change: ChangeInfo,
    /// This call made the file, or was a retry of an exclusive create that did.
    pub created: bool,
    /// Which of the requested attributes were set.
    pub attrs_set: AttrsSet,
    /// Where the verifier is, after an exclusive create.
    pub kept: Option<Kept>,
    /// If this call made the file, and the caller owns it or is root: the file's count of changes of rights at that time.
    pub(crate) rights: Option<u64>,
}
