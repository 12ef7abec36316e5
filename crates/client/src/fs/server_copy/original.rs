//! A file that its server copies.

use std::fmt;
use std::sync::Arc;

use landfast_nfs::v4::{FileHandle, Fsid};

use super::choice::{CopyMethod, ServerCopies};
use crate::fs::Nfs;
use crate::limits::COPIED_WHOLE_MAX;

/// A source file on the destination's server.
#[derive(Clone)]
pub struct Original {
    /// The handle, the same in both sessions.
    pub fh: FileHandle,
    /// The size when it was listed.
    pub size: u64,
    pub fsid: Fsid,
    pub fileid: u64,
    /// Reads the file if the server does not copy it.
    pub nfs: Nfs,
    pub copies: Arc<ServerCopies>,
}

impl Original {
    pub(crate) fn way(&self) -> CopyMethod {
        self.copies.way(self.fsid, self.size)
    }

    /// Whether it is copied alone and not with others in a COMPOUND.
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
