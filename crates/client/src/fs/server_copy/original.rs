//! A file that its server is to copy.

use std::fmt;
use std::sync::Arc;

use landfast_nfs::v4::{FileHandle, Fsid};

use super::choice::{CopyMethod, ServerCopies};
use crate::fs::Nfs;
use crate::limits::COPIED_WHOLE_MAX;

/// A file on the destination's server, to be copied there.
#[derive(Clone)]
pub struct Original {
    /// The file, as both sessions know it.
    pub fh: FileHandle,
    /// Bytes, when it was listed.
    pub size: u64,
    /// Its filesystem.
    pub fsid: Fsid,
    /// Its number there.
    pub fileid: u64,
    /// What it is read with, if it comes to that.
    pub nfs: Nfs,
    /// How it is copied.
    pub copies: Arc<ServerCopies>,
}

impl Original {
    pub(crate) fn way(&self) -> CopyMethod {
        self.copies.way(self.fsid, self.size)
    }

    /// It does not go with others in a COMPOUND.
    pub(crate) fn alone(&self) -> bool {
        let way = self.way();
        way == CopyMethod::Read
            || (way == CopyMethod::Copy && self.size > COPIED_WHOLE_MAX)
            || (self.size > 0 && self.copies.wants_opens())
    }
}

impl fmt::Debug for Original {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Original").field("fh", &self.fh).field("size", &self.size).finish_non_exhaustive()
    }
}
