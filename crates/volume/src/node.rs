//! Nodes: the objects that operations work on, and open files.

use bytes::Bytes;

use crate::types::Kind;

/// First byte of every wire handle of a volume. A server's own handles (pseudo filesystem) must start with another.
pub const HANDLE_VERSION: u8 = 1;

/// An object of a volume. Cheap to clone; equal when it is the same object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {}

impl Node {
    /// The signed wire handle: at most 128 bytes (64 on ext4, XFS and btrfs), the same for the life of the object.
    pub fn fh(&self) -> Bytes {
        todo!()
    }

    /// The kind of the object; it never changes.
    pub fn kind(&self) -> Kind {
        todo!()
    }
}

/// An open regular file. Cheap to clone; closed with the last clone. Stays usable when the file is unlinked.
#[derive(Clone, Debug)]
pub struct OpenFile {}

impl OpenFile {
    /// The file.
    pub fn node(&self) -> &Node {
        todo!()
    }

    /// True when it may be read.
    pub fn can_read(&self) -> bool {
        todo!()
    }

    /// True when it may be written.
    pub fn can_write(&self) -> bool {
        todo!()
    }
}
