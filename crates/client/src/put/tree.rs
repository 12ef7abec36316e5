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
//!
//! Memory does not grow with the tree. Of names that exist and are no directories, a hash of 8 bytes is remembered, in a
//! [`Table`] that goes to a temporary file beyond a limit. If two names had the same hash, a free name would be taken for an
//! existing one: the object that is supposed to exist is looked up or removed first, and is not there; only where existing
//! objects must stay is the member reported as failed. Of directories beyond a limit, those in which nothing is in progress
//! are written to a temporary file, each after all directories in it, and are read back when a path leads into them. The file
//! also holds their final attributes until the end.

use std::collections::VecDeque;

use bytes::Bytes;
use landfast_nfs::v4::FileHandle;
use landfast_xdr::Encode;

use super::dir::new_dir;
pub(super) use super::dir::{Dir, DirState};
use super::dir_record::DirRecord;
pub(super) use super::ids::{DirId, ItemId};
use super::names::Name;
use crate::limits::DIRS_LOOKED_AT;
use crate::overflow::{Key, Keys, OverflowError, Records, Table};

/// The destination itself.
pub(super) const ROOT: DirId = DirId(0);

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

/// What the table has for a name: one of these, or from [`DIR`] on the place of a directory in the temporary file.
const OTHER: u64 = 0;
const OURS: u64 = 1;
const DIR: u64 = 2;

#[derive(Debug)]
pub(super) struct Tree {
    dirs: Vec<Dir>,
    /// Places in `dirs` that can be used again.
    free: Vec<DirId>,
    /// Directories in memory, in the order in which they are looked at for one that may go.
    turns: VecDeque<DirId>,
    /// The next directory's number.
    number: u64,
    /// Names that are settled.
    settled: Table,
    keys: Keys,
    /// Directories that are not in memory.
    records: Records,
    /// How many may be in memory.
    most: usize,
    /// Some member has failed.
    any_failed: bool,
    /// What could not be read back.
    unread: Option<OverflowError>,
    /// Directories that are to be listed.
    wanted: Vec<DirId>,
    /// Where reading the records for final attributes goes on.
    finals_at: u64,
}

impl Tree {
    /// A destination that exists but is not listed yet. `most`: directories in memory; `settled`: where names go, `records`: where
    /// directories go.
    pub(super) fn new(root: FileHandle, most: usize, settled: Table, records: Records) -> Tree {
        let root = new_dir(0, ROOT, Bytes::new(), DirState::Unlisted(root), false);
        Tree {
            dirs: vec![root],
            free: Vec::new(),
            turns: VecDeque::new(),
            number: 1,
            settled,
            keys: Keys::default(),
            records,
            most,
            any_failed: false,
            unread: None,
            wanted: Vec::new(),
            finals_at: 0,
        }
    }

    pub(super) fn dir(&self, id: DirId) -> &Dir {
        &self.dirs[id.0 as usize]
    }

    pub(super) fn dir_mut(&mut self, id: DirId) -> &mut Dir {
        &mut self.dirs[id.0 as usize]
    }

    /// The directories in memory.
    pub(super) fn ids(&self) -> Vec<DirId> {
        (0..self.dirs.len() as u32).map(DirId).filter(|id| self.dir(*id).in_memory).collect()
    }

    /// What could not be read back. Nothing may go on then.
    pub(super) fn unread(&self) -> Option<&OverflowError> {
        self.unread.as_ref()
    }

    /// Why something is in memory that should be in a temporary file; once.
    pub(super) fn trouble(&mut self) -> Option<OverflowError> {
        self.settled.trouble().or_else(|| self.records.trouble())
    }

    fn key(&self, dir: DirId, name: &Bytes) -> Key {
        self.keys.of((self.dir(dir).number, &name[..]))
    }

    fn kept_key(&self, dir: DirId, name: &Bytes) -> Key {
        self.keys.of((self.dir(dir).number, &name[..], "kept"))
    }

    fn read<T>(&mut self, read: Result<T, OverflowError>) -> Option<T> {
        read.map_err(|e| _ = self.unread.get_or_insert(e)).ok()
    }

    /// What a name stands for. A directory comes back to memory.
    pub(super) fn name(&mut self, dir: DirId, name: &Bytes) -> Option<Name> {
        self.dir_mut(dir).needed = true;
        if let Some(known) = self.dir(dir).names.get(name) {
            return Some(known.clone());
        }
        let found = self.settled.get(self.key(dir, name));
        // If it cannot be read, all ends. Until then nothing is made in its place.
        let Some(found) = self.read(found) else { return Some(Name::Other) };
        match found? {
            OTHER => Some(Name::Other),
            OURS => Some(Name::Ours),
            place => self.take_back(dir, name, place - DIR),
        }
    }

    /// The name's entry, if something in progress needs it or it is a directory's in memory.
    pub(super) fn in_progress(&self, dir: DirId, name: &Bytes) -> Option<&Name> {
        self.dir(dir).names.get(name)
    }

    /// Whether something has the name.
    pub(super) fn has(&mut self, dir: DirId, name: &Bytes) -> bool {
        let found = self.settled.get(self.key(dir, name));
        self.dir(dir).names.get(name).is_some() || self.read(found).is_none_or(|found| found.is_some())
    }

    pub(super) fn set_name(&mut self, dir: DirId, name: Bytes, what: Name) {
        let settled = match what {
            Name::Other => OTHER,
            Name::Ours => OURS,
            what => return self.dir_mut(dir).names.insert(name, what),
        };
        self.settled.insert(self.key(dir, &name), settled);
        self.dir_mut(dir).names.remove(&name);
    }

    /// The name is free.
    pub(super) fn free_name(&mut self, dir: DirId, name: &Bytes) {
        self.dir_mut(dir).names.remove(name);
        let freed = self.settled.remove(self.key(dir, name));
        self.read(freed);
    }

    /// Remembers that another object stays at this name in place of the member.
    pub(super) fn keep(&mut self, dir: DirId, name: &Bytes) {
        self.settled.insert(self.kept_key(dir, name), OTHER);
    }

    /// Whether another object stays at this name in place of the member.
    pub(super) fn is_kept(&mut self, dir: DirId, name: &Bytes) -> bool {
        let kept = self.settled.get(self.kept_key(dir, name));
        self.read(kept).flatten().is_some()
    }

    fn failed_key(&self, path: &[Bytes]) -> Key {
        self.keys.of((path.join(&b'/'), "failed"))
    }

    /// Remembers that the member at this path has failed, so that no hard link is made to what has its name.
    pub(super) fn fail(&mut self, path: &[Bytes]) {
        self.any_failed = true;
        self.settled.insert(self.failed_key(path), OTHER);
    }

    /// A later member at this path was made.
    pub(super) fn forget_failure(&mut self, path: &[Bytes]) {
        if self.any_failed {
            let forgotten = self.settled.remove(self.failed_key(path));
            self.read(forgotten);
        }
    }

    pub(super) fn has_failed(&mut self, path: &[Bytes]) -> bool {
        if !self.any_failed {
            return false;
        }
        let failed = self.settled.get(self.failed_key(path));
        self.read(failed).flatten().is_some()
    }

    /// Writes directories to the temporary file while there are too many in memory. Only between members: nobody may have
    /// the number of a directory in which nothing is in progress.
    pub(super) fn make_room(&mut self) {
        for _ in 0..DIRS_LOOKED_AT {
            if self.turns.len() <= self.most {
                return;
            }
            let Some(id) = self.turns.pop_front() else { return };
            if std::mem::take(&mut self.dir_mut(id).needed) || !self.may_go(id) {
                self.turns.push_back(id);
            } else {
                self.put_away(id);
            }
        }
    }

    fn may_go(&self, id: DirId) -> bool {
        let dir = self.dir(id);
        let settled = matches!(dir.state, DirState::Unlisted(_) | DirState::Open(_) | DirState::Failed(_));
        let idle = dir.open == 0 && dir.dirs == 0 && dir.waiting.is_empty() && !dir.finishing;
        id != ROOT && settled && idle && dir.names.is_quiet()
    }

    fn put_away(&mut self, id: DirId) {
        let parent = self.dir(id).parent;
        let free = new_dir(0, ROOT, Bytes::new(), DirState::Failed(String::new()), false);
        let dir = std::mem::replace(self.dir_mut(id), Dir { in_memory: false, ..free });
        let (name, record) = (dir.name.clone(), dir.record);
        self.free.push(id);
        self.dir_mut(parent).dirs -= 1;
        if self.dir(parent).names.get(&name) != Some(&Name::Dir(id)) {
            // It could not be made, and something else has its name.
            return;
        }
        let bytes = DirRecord::of(dir, self.dir(parent).number).to_bytes();
        let again = record.map(|at| self.records.again(at, &bytes));
        let place = match (record, again.and_then(|again| self.read(again))) {
            (Some(at), Some(true)) => at,
            _ => self.records.add(&bytes),
        };
        // The directory that it is in comes after it, so that one does not go back to a place before this one.
        let above = self.dir_mut(parent);
        above.record = above.record.filter(|at| *at > place);
        self.settled.insert(self.key(parent, &name), DIR + place);
        self.dir_mut(parent).names.remove(&name);
    }

    fn take_back(&mut self, parent: DirId, name: &Bytes, place: u64) -> Option<Name> {
        let bytes = self.records.get(place);
        let Some(record) = self.read(bytes).and_then(DirRecord::read) else { return Some(Name::Other) };
        if (record.parent, &record.name) != (self.dir(parent).number, name) {
            // Another name with the same hash.
            return None;
        }
        let dropped = self.records.drop(place);
        self.read(dropped);
        let id = self.place(Dir { record: Some(place), needed: true, ..record.dir(parent) });
        Some(Name::Dir(id))
    }

    /// Gives a directory a place in memory.
    fn place(&mut self, dir: Dir) -> DirId {
        let (parent, name) = (dir.parent, dir.name.clone());
        let id = match self.free.pop() {
            Some(id) => {
                *self.dir_mut(id) = dir;
                id
            }
            None => {
                self.dirs.push(dir);
                DirId(self.dirs.len() as u32 - 1)
            }
        };
        self.turns.push_back(id);
        self.dir_mut(parent).dirs += 1;
        self.dir_mut(parent).names.insert(name, Name::Dir(id));
        id
    }

    /// The final attributes of directories in the temporary file, each after those of all directories in it that are there; at
    /// most `most` at a time.
    pub(super) fn put_away_finals(&mut self, most: usize) -> Vec<DirRecord> {
        let mut all = Vec::new();
        while all.len() < most {
            let next = self.records.next(self.finals_at);
            let Some((bytes, after)) = self.read(next).flatten() else { break };
            self.finals_at = after;
            all.extend(DirRecord::read(bytes));
        }
        all
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
        self.number += 1;
        self.place(new_dir(self.number - 1, parent, name, state, all_known))
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
            at = match self.name(at, name) {
                Some(Name::Dir(id)) => id,
                Some(Name::Found(fh)) => self.adopt(at, name, fh),
                // Another item may wait to replace the link's target.
                Some(Name::Busy(item) | Name::Pinned { last: item, .. }) => return Walk::Busy(item),
                Some(Name::Other | Name::Ours) => return Walk::Blocked(i + 1),
                None => return Walk::Missing(at, i),
            };
        }
        self.enter(at)
    }

    fn enter(&mut self, id: DirId) -> Walk {
        self.dir_mut(id).needed = true;
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

#[cfg(test)]
mod tests {
    use landfast_nfs::v4::Fattr;

    use super::*;
    use crate::overflow::TempFile;

    fn fh(n: u8) -> FileHandle {
        FileHandle(Bytes::copy_from_slice(&[n]))
    }

    fn path(p: &str) -> Vec<Bytes> {
        p.split('/').map(|c| Bytes::copy_from_slice(c.as_bytes())).collect()
    }

    fn open_root() -> Tree {
        let mut t = Tree::new(fh(0), usize::MAX, Table::default(), Records::default());
        assert_eq!(t.walk(&[]), Walk::Wait(ROOT));
        assert_eq!(t.take_wanted(), [(ROOT, fh(0))]);
        t.dir_mut(ROOT).state = DirState::Open(fh(0));
        t.dir_mut(ROOT).all_known = true;
        t
    }

    #[test]
    fn directories_beyond_the_limit_come_back_as_they_were() {
        let mut t =
            Tree::new(fh(0), 3, Table::new(2, TempFile::unbuffered()), Records::new(TempFile::unbuffered()));
        (t.dir_mut(ROOT).state, t.dir_mut(ROOT).all_known) = (DirState::Open(fh(0)), true);
        let attrs = |n: u8| Fattr { values: Bytes::copy_from_slice(&[n; 4]), ..Fattr::default() };
        for n in 0..20u8 {
            let above = t.add_new(ROOT, format!("d{n}").into());
            t.made(above, fh(n));
            let dir = t.add_new(above, "in".into());
            t.made(dir, fh(n + 100));
            t.dir_mut(dir).finish = Some((attrs(n), vec![n]));
            t.dir_mut(dir).xattrs = vec![("a".into(), "b".into())];
            t.dir_mut(dir).all_known = n % 2 == 0;
            t.set_name(dir, "file".into(), Name::Ours);
            t.set_name(dir, "busy".into(), Name::Busy(ItemId(n.into())));
            t.make_room();
            t.free_name(dir, &"busy".into());
            t.make_room();
        }
        assert!(t.ids().len() <= 1 + 3 && t.dirs.len() < 8, "{} in {}", t.ids().len(), t.dirs.len());
        for n in 0..20u8 {
            let Walk::In(dir) = t.walk(&path(&format!("d{n}/in"))) else { panic!("d{n}") };
            assert_eq!(t.dir(dir).finish, Some((attrs(n), vec![n])));
            assert_eq!((t.dir(dir).fh(), t.dir(dir).all_known), (Some(&fh(n + 100)), n % 2 == 0));
            let names = ["file", "busy", "none"].map(|name| t.name(dir, &name.into()));
            assert_eq!(names, [Some(Name::Ours), None, None]);
            t.make_room();
        }
        assert_eq!(t.walk(&path("d3/in/file/x")), Walk::Blocked(3));
        // At the end those in the file come first, and each once.
        let finals: Vec<u8> =
            t.put_away_finals(100).into_iter().filter_map(|r| Some(r.last()?.3[0])).collect();
        let here = t.ids().into_iter().filter_map(|id| Some(t.dir(id).finish.as_ref()?.1[0]));
        let mut all: Vec<u8> = finals.into_iter().chain(here).collect();
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<u8>>());
        assert!(t.unread().is_none() && t.trouble().is_none());
    }

    #[test]
    fn a_directory_that_comes_back_is_written_after_those_that_are_new_in_it() {
        let mut t = Tree::new(fh(0), 0, Table::default(), Records::default());
        (t.dir_mut(ROOT).state, t.dir_mut(ROOT).all_known) = (DirState::Open(fh(0)), true);
        let add = |t: &mut Tree, above: DirId, name: &str, n: u8| {
            let dir = t.add_new(above, name.to_owned().into());
            t.made(dir, fh(n));
            t.dir_mut(dir).finish = Some((Fattr::default(), vec![n]));
        };
        let puts_away_all = |t: &mut Tree| {
            while t.ids() != [ROOT] {
                t.make_room();
            }
        };
        add(&mut t, ROOT, "up", 1);
        puts_away_all(&mut t);
        for n in [2, 3] {
            let Walk::In(up) = t.walk(&path("up")) else { panic!("it is known") };
            add(&mut t, up, &format!("in{n}"), n);
            puts_away_all(&mut t);
        }
        // One in it comes back, and nothing new.
        assert!(matches!(t.walk(&path("up/in2")), Walk::In(_)));
        puts_away_all(&mut t);
        let finals = t.put_away_finals(100);
        assert_eq!(finals.into_iter().filter_map(|r| Some(r.last()?.3[0])).collect::<Vec<u8>>(), [2, 3, 1]);
    }

    #[test]
    fn a_directory_that_was_listed_is_listed_again() {
        let mut t = Tree::new(fh(0), 0, Table::default(), Records::default());
        (t.dir_mut(ROOT).state, t.dir_mut(ROOT).all_known) = (DirState::Open(fh(0)), true);
        let old = t.adopt(ROOT, &"old".into(), fh(1));
        (t.dir_mut(old).state, t.dir_mut(old).all_known) = (DirState::Open(fh(1)), true);
        t.dir_mut(old).listed = true;
        t.set_name(old, "below".into(), Name::Found(fh(2)));
        t.make_room();
        assert_eq!(t.ids(), [ROOT]);
        let Walk::Wait(old) = t.walk(&path("old/below")) else { panic!("it waits for no listing") };
        assert_eq!(t.take_wanted(), [(old, fh(1))]);
        t.make_room();
        assert_eq!(t.ids(), [ROOT, old], "it is in progress");
    }

    #[test]
    fn nothing_leads_through_what_is_no_directory() {
        let mut t = open_root();
        t.set_name(ROOT, "link".into(), Name::Other);
        assert_eq!(t.walk(&path("link")), Walk::Blocked(1));
        assert_eq!(t.walk(&path("link/etc")), Walk::Blocked(1));
        assert_eq!(t.walk(&path("new/deep")), Walk::Missing(ROOT, 0));
        let new = t.add_new(ROOT, "new".into());
        t.set_name(new, "made".into(), Name::Busy(ItemId(3)));
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
        t.set_name(ROOT, "old".into(), Name::Found(fh(1)));
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
