//! A directory of the destination, in memory. No I/O.

use std::collections::HashMap;

use bytes::Bytes;
use landfast_nfs::v4::{Fattr, FileHandle};

use super::existing::ExistingObject;
use super::ids::{DirId, ItemId};
use super::names::Names;
use crate::fs::Xattr;

/// See [`super::tree`].
#[derive(Debug, Clone)]
pub(super) enum DirState {
    Making,
    Unlisted(FileHandle),
    Listing(FileHandle),
    Open(FileHandle),
    Failed(String),
}

#[derive(Debug)]
pub(super) struct Dir {
    /// Never that of another directory.
    pub(super) number: u64,
    /// Whether it is in memory. Otherwise its place in the table is free.
    pub(super) in_memory: bool,
    /// It was needed since it was last looked at for one that may go.
    pub(super) needed: bool,
    /// Directories in it that are in memory.
    pub(super) dirs: u32,
    /// Where it was in the temporary file.
    pub(super) record: Option<u64>,
    /// Its names are those that the server listed, and may be listed again.
    pub(super) listed: bool,
    pub(super) parent: DirId,
    pub(super) name: Bytes,
    pub(super) state: DirState,
    pub(super) names: Names,
    /// Existing objects that are [`Name::Other`], where the rules for existing names need their attributes.
    pub(super) found: HashMap<Bytes, ExistingObject>,
    /// Whether a name that is not in `names` is known not to exist.
    pub(super) all_known: bool,
    /// An earlier run made it.
    pub(super) ours: bool,
    /// It was made before its member was planned.
    pub(super) ahead: bool,
    /// The final attributes, and the name in the archive.
    pub(super) finish: Option<(Fattr, Vec<u8>)>,
    /// The extended attributes to set at the end.
    pub(super) xattrs: Vec<Xattr>,
    /// A compound in flight sets the final attributes.
    pub(super) finishing: bool,
    /// Items in it that are not settled.
    pub(super) open: usize,
    /// The compound that makes it.
    pub(super) in_batch: u64,
    /// Items that wait for the handle.
    pub(super) waiting: Vec<ItemId>,
}

impl Dir {
    pub(super) fn fh(&self) -> Option<&FileHandle> {
        match &self.state {
            DirState::Unlisted(fh) | DirState::Listing(fh) | DirState::Open(fh) => Some(fh),
            DirState::Making | DirState::Failed(_) => None,
        }
    }
}

pub(super) fn new_dir(number: u64, parent: DirId, name: Bytes, state: DirState, all_known: bool) -> Dir {
    Dir {
        number,
        in_memory: true,
        needed: true,
        dirs: 0,
        record: None,
        listed: false,
        parent,
        name,
        state,
        names: Names::default(),
        found: HashMap::new(),
        all_known,
        ours: false,
        ahead: false,
        finish: None,
        xattrs: Vec::new(),
        finishing: false,
        open: 0,
        in_batch: 0,
        waiting: Vec::new(),
    }
}
