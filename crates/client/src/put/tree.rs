//! The destination as far as it is known: directories and the names in them. No I/O.
//!
//! A path is followed only through directories that this run made, or that the server listed as directories. Any other object
//! ends it. So nothing is written through a symbolic link, whether it existed before or came from the archive.
//!
//! | state of a directory | its handle | its names | next state |
//! |---|---|---|---|
//! | `Making` | not known | only ours, if it did not exist | mkdir done: `Open`; existed: `Listing`; failed: `Failed` |
//! | `Unlisted` | known | not known | a path leads into it: `Listing` |
//! | `Listing` | known | being read | `Open` or `Failed` |
//! | `Open` | known | known, unless there were too many to list | - |
//! | `Failed` | - | - | - |

use std::collections::HashMap;

use bytes::Bytes;
use landfast_nfs::v4::{Fattr, FileHandle};

use super::existing::ExistingObject;
pub(super) use super::ids::{DirId, ItemId};
use super::names::{Name, Names};
use crate::fs::Xattr;

/// The destination itself.
pub(super) const ROOT: DirId = DirId(0);

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

/// Where following a path ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// In this directory, whose names are known.
    In(DirId),
    /// At a directory whose names are not known yet.
    Wait(DirId),
    /// At a name that an item in progress uses.
    Busy(ItemId),
    /// In this directory, which does not have the next name; and the number of components before it.
    Missing(DirId, usize),
    /// At something that is not a directory, after this many components.
    Blocked(usize),
    /// At a directory that could not be made or read.
    Failed(String),
}

#[derive(Debug)]
pub(super) struct Tree {
    dirs: Vec<Dir>,
    /// Directories that are to be listed.
    wanted: Vec<DirId>,
}

impl Tree {
    /// A destination that exists but is not listed yet.
    pub(super) fn new(root: FileHandle) -> Tree {
        let root = new_dir(ROOT, Bytes::new(), DirState::Unlisted(root), false);
        Tree { dirs: vec![root], wanted: Vec::new() }
    }

    pub(super) fn dir(&self, id: DirId) -> &Dir {
        &self.dirs[id.0 as usize]
    }

    pub(super) fn dir_mut(&mut self, id: DirId) -> &mut Dir {
        &mut self.dirs[id.0 as usize]
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = DirId> + use<> {
        (0..self.dirs.len() as u32).map(DirId)
    }

    /// Adds a directory that will be made. If it certainly does not exist, all its future names are known.
    pub(super) fn add_new(&mut self, parent: DirId, name: Bytes) -> DirId {
        let certain = self.dir(parent).all_known;
        self.add(parent, name, DirState::Making, certain)
    }

    pub(super) fn made(&mut self, id: DirId, fh: FileHandle) {
        let dir = self.dir_mut(id);
        dir.state = DirState::Open(fh);
        dir.all_known = true;
    }

    fn add(&mut self, parent: DirId, name: Bytes, state: DirState, all_known: bool) -> DirId {
        let id = DirId(self.dirs.len() as u32);
        self.dirs.push(new_dir(parent, name.clone(), state, all_known));
        self.dir_mut(parent).names.insert(name, Name::Dir(id));
        id
    }

    /// The entry for an existing directory; adds one if there is none.
    pub(super) fn adopt(&mut self, parent: DirId, name: &Bytes, fh: FileHandle) -> DirId {
        self.add(parent, name.clone(), DirState::Unlisted(fh), false)
    }

    /// Follows a path from the destination.
    pub(super) fn walk(&mut self, path: &[Bytes]) -> Walk {
        let mut at = ROOT;
        for (i, name) in path.iter().enumerate() {
            match self.enter(at) {
                Walk::In(_) => {}
                other => return other,
            }
            at = match self.dir(at).names.get(name) {
                Some(Name::Dir(id)) => *id,
                Some(Name::Found(fh)) => {
                    let fh = fh.clone();
                    self.adopt(at, name, fh)
                }
                // Another item may wait to replace the link's target.
                Some(Name::Busy(item) | Name::Pinned { last: item, .. }) => return Walk::Busy(*item),
                Some(Name::Other | Name::Ours) => return Walk::Blocked(i + 1),
                None => return Walk::Missing(at, i),
            };
        }
        self.enter(at)
    }

    fn enter(&mut self, id: DirId) -> Walk {
        let dir = self.dir(id);
        match &dir.state {
            DirState::Making if dir.all_known => Walk::In(id),
            DirState::Open(_) => Walk::In(id),
            DirState::Making | DirState::Listing(_) => Walk::Wait(id),
            DirState::Failed(why) => Walk::Failed(why.clone()),
            DirState::Unlisted(fh) => {
                let fh = fh.clone();
                self.list(id, fh);
                Walk::Wait(id)
            }
        }
    }

    /// Requests a listing of a directory.
    pub(super) fn list(&mut self, id: DirId, fh: FileHandle) {
        self.dir_mut(id).state = DirState::Listing(fh);
        self.wanted.push(id);
    }

    pub(super) fn take_wanted(&mut self) -> Vec<(DirId, FileHandle)> {
        let wanted = std::mem::take(&mut self.wanted);
        wanted.into_iter().filter_map(|id| self.dir(id).fh().cloned().map(|fh| (id, fh))).collect()
    }

    pub(super) fn depth(&self, mut id: DirId) -> usize {
        let mut depth = 0;
        while id != ROOT {
            id = self.dir(id).parent;
            depth += 1;
        }
        depth
    }
}

fn new_dir(parent: DirId, name: Bytes, state: DirState, all_known: bool) -> Dir {
    Dir {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn fh(n: u8) -> FileHandle {
        FileHandle(Bytes::copy_from_slice(&[n]))
    }

    fn path(p: &str) -> Vec<Bytes> {
        p.split('/').map(|c| Bytes::copy_from_slice(c.as_bytes())).collect()
    }

    fn open_root() -> Tree {
        let mut t = Tree::new(fh(0));
        assert_eq!(t.walk(&[]), Walk::Wait(ROOT));
        assert_eq!(t.take_wanted(), [(ROOT, fh(0))]);
        t.dir_mut(ROOT).state = DirState::Open(fh(0));
        t.dir_mut(ROOT).all_known = true;
        t
    }

    #[test]
    fn nothing_leads_through_what_is_no_directory() {
        let mut t = open_root();
        t.dir_mut(ROOT).names.insert("link".into(), Name::Other);
        assert_eq!(t.walk(&path("link")), Walk::Blocked(1));
        assert_eq!(t.walk(&path("link/etc")), Walk::Blocked(1));
        assert_eq!(t.walk(&path("new/deep")), Walk::Missing(ROOT, 0));
        let new = t.add_new(ROOT, "new".into());
        t.dir_mut(new).names.insert("made".into(), Name::Busy(ItemId(3)));
        assert_eq!(t.walk(&path("new")), Walk::In(new));
        // Where names may exist that are not known, it is not certain to be ours before it is made.
        t.dir_mut(new).all_known = false;
        let below = t.add_new(new, "below".into());
        assert_eq!(t.walk(&path("new/below")), Walk::Wait(new));
        t.made(new, fh(9));
        t.dir_mut(new).all_known = false;
        assert_eq!(t.walk(&path("new/below")), Walk::Wait(below));
        t.made(below, fh(8));
        assert_eq!(t.walk(&path("new/below")), Walk::In(below));
        assert_eq!(t.walk(&path("new/made/x")), Walk::Busy(ItemId(3)));
    }

    #[test]
    fn a_directory_that_was_there_is_listed_first() {
        let mut t = open_root();
        t.dir_mut(ROOT).names.insert("old".into(), Name::Found(fh(1)));
        let Walk::Wait(old) = t.walk(&path("old")) else { panic!("not listed") };
        assert_eq!(t.walk(&path("old/x")), Walk::Wait(old));
        assert_eq!(t.take_wanted(), [(old, fh(1))]);
        t.dir_mut(old).state = DirState::Open(fh(1));
        assert_eq!(t.walk(&path("old/x")), Walk::Missing(old, 1));
        t.dir_mut(old).state = DirState::Failed("no".into());
        assert_eq!(t.walk(&path("old/x")), Walk::Failed("no".into()));
        assert_eq!(t.depth(old), 1);
    }
}
