//! Whole trees: what a walk and a removal ask for next, directory by directory. No I/O.
//!
//! A directory's entries are handled by handles, never by paths: what somebody puts in a directory's place meanwhile is
//! not entered, and symbolic links are never followed.

use std::collections::HashMap;

use bytes::Bytes;
use landfast_nfs::v4::{ArgOp, FileHandle};

use super::action::{Action, Answer, Lost, Room, Wants};
use super::attrs::Readlink;
use super::item::Item;
use super::list::{List, Listed};
use super::meta::{Entry, LISTED, REMOVED};
use super::names::Unlink;
use super::outcome::Outcome;
use super::path::join;
use crate::compound::{OpError, Results};
use crate::limits::REMOVED_PART;

/// One step of a walk or a removal.
#[derive(Debug)]
pub(super) enum Visit {
    List(List),
    Text(Readlink),
    Unlink(Unlink),
}

/// What came of one.
#[derive(Debug)]
pub(super) enum Visited {
    Entries(Listed),
    Text(Bytes),
    Gone,
}

impl Action for Visit {
    type Out = Visited;

    fn wants(&self) -> Wants {
        match self {
            Visit::List(list) => list.wants(),
            Visit::Text(text) => text.wants(),
            Visit::Unlink(unlink) => unlink.wants(),
        }
    }

    fn ops(&mut self, name: Option<&Bytes>, room: &Room, out: &mut Vec<ArgOp>) {
        match self {
            Visit::List(list) => list.ops(name, room, out),
            Visit::Text(text) => text.ops(name, room, out),
            Visit::Unlink(unlink) => unlink.ops(name, room, out),
        }
    }

    fn stays(&self) -> bool {
        // READDIR and READLINK leave the filehandle, too, but nobody comes to the same place again.
        matches!(self, Visit::Unlink(_))
    }

    fn changes(&self) -> bool {
        matches!(self, Visit::Unlink(_))
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<Visited>, OpError> {
        Ok(match self {
            Visit::List(list) => list.answer(results)?.map(Visited::Entries),
            Visit::Text(text) => text.answer(results)?.map(Visited::Text),
            Visit::Unlink(unlink) => unlink.answer(results)?.map(|_| Visited::Gone),
        })
    }

    fn lost(&mut self) -> Lost {
        Lost::Again
    }
}

/// Where a walk begins: an object and what it is called.
#[derive(Debug, Clone)]
pub struct Start {
    /// What its path is to be called.
    pub path: Vec<u8>,
    /// Its handle.
    pub fh: FileHandle,
}

/// How a tree is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkOptions {
    /// Symbolic links' texts are wanted.
    pub texts: bool,
    /// Directories so many levels below the start are not entered; 0: the start alone is listed.
    pub depth_max: usize,
    /// Entries in the order of their names' bytes, not the server's, and directories asked for in that order: for a visitor who wants them
    /// so, and would else hold those that come before their turn.
    pub by_name: bool,
}

impl Default for WalkOptions {
    fn default() -> Self {
        WalkOptions { texts: false, depth_max: usize::MAX, by_name: false }
    }
}

/// A directory that a walk has listed.
#[derive(Debug)]
pub struct Listing {
    /// Its number; those of the starts are 0, 1, ... in their order. See [`Entry::listing`].
    pub number: usize,
    /// Its path, from the start's on.
    pub path: Vec<u8>,
    /// Its entries in the server's order ([`WalkOptions::by_name`]: by name), or why there are none.
    pub entries: Outcome<Vec<Entry>>,
}

/// A walk on its way.
pub(super) struct Walk {
    options: WalkOptions,
    /// What each item is about.
    asked: Vec<Asked>,
    /// Directories by their numbers, until they are given away.
    dirs: Vec<Option<Dir>>,
}

enum Asked {
    Entries(usize),
    /// The text of such an entry.
    Text(usize, usize),
}

struct Dir {
    path: Vec<u8>,
    depth: usize,
    entries: Vec<Entry>,
    texts_missing: usize,
}

impl Walk {
    pub(super) fn new(options: WalkOptions) -> Walk {
        Walk { options, asked: Vec::new(), dirs: Vec::new() }
    }

    /// The item that lists a start.
    pub(super) fn start(&mut self, start: Start) -> Item<Visit> {
        let number = self.dir(start.path, 0);
        self.asked.push(Asked::Entries(number));
        Item::at(start.fh, Visit::List(List::new(LISTED, false)))
    }

    /// The same by a path, through symbolic links.
    pub(super) fn start_at(&mut self, path: &[u8]) -> Item<Visit> {
        let number = self.dir(path.to_vec(), 0);
        self.asked.push(Asked::Entries(number));
        Item::new(path, Visit::List(List::new(LISTED, true)))
    }

    fn dir(&mut self, path: Vec<u8>, depth: usize) -> usize {
        self.dirs.push(Some(Dir { path, depth, entries: Vec::new(), texts_missing: 0 }));
        self.dirs.len() - 1
    }

    /// Item `number` has ended: a directory that is complete by it, and further items.
    pub(super) fn visited(
        &mut self,
        number: usize,
        outcome: Outcome<Visited>,
        more: &mut Vec<Item<Visit>>,
    ) -> Option<Listing> {
        match self.asked.get(number) {
            Some(&Asked::Entries(dir)) => self.listed(dir, outcome, more),
            Some(&Asked::Text(dir, entry)) => {
                let state = self.dirs.get_mut(dir)?.as_mut()?;
                if let (Outcome::Committed(Visited::Text(text)), Some(entry)) =
                    (outcome, state.entries.get_mut(entry))
                {
                    entry.text = Some(Bytes::copy_from_slice(&text));
                }
                state.texts_missing -= 1;
                if state.texts_missing == 0 { self.give(dir) } else { None }
            }
            None => None,
        }
    }

    fn listed(
        &mut self,
        number: usize,
        outcome: Outcome<Visited>,
        more: &mut Vec<Item<Visit>>,
    ) -> Option<Listing> {
        let mut entries = match outcome.map(|visited| match visited {
            Visited::Entries(listed) => listed.entries,
            Visited::Text(_) | Visited::Gone => Vec::new(),
        }) {
            Outcome::Committed(entries) => entries,
            other => {
                let path = self.dirs.get_mut(number)?.take()?.path;
                return Some(Listing { number, path, entries: other });
            }
        };
        if self.options.by_name {
            entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        }
        let dir = self.dirs.get(number)?.as_ref()?;
        let (path, depth) = (dir.path.clone(), dir.depth);
        let mut texts = 0;
        for (n, entry) in entries.iter_mut().enumerate() {
            if entry.meta.is_dir() && depth < self.options.depth_max {
                let below = join(&path, &entry.name);
                let item = match &entry.fh {
                    Some(fh) => Item::at(fh.clone(), Visit::List(List::new(LISTED, false))),
                    None => Item::new(&below, Visit::List(List::new(LISTED, false))),
                };
                let child = self.dir(below, depth + 1);
                entry.listing = Some(child);
                self.asked.push(Asked::Entries(child));
                more.push(item);
            } else if entry.meta.is_link() && self.options.texts {
                texts += 1;
                self.asked.push(Asked::Text(number, n));
                more.push(match &entry.fh {
                    Some(fh) => Item::at(fh.clone(), Visit::Text(Readlink)),
                    None => Item::new(&join(&path, &entry.name), Visit::Text(Readlink)),
                });
            }
        }
        let dir = self.dirs.get_mut(number)?.as_mut()?;
        dir.entries = entries;
        dir.texts_missing = texts;
        if texts == 0 { self.give(number) } else { None }
    }

    fn give(&mut self, number: usize) -> Option<Listing> {
        let dir = self.dirs.get_mut(number)?.take()?;
        Some(Listing { number, path: dir.path, entries: Outcome::Committed(dir.entries) })
    }
}

/// What a removal tells of one object.
#[derive(Debug, PartialEq, Eq)]
pub struct Removal {
    /// Its path, from the start's on.
    pub path: Vec<u8>,
    /// It is, or was, a directory.
    pub dir: bool,
    /// What became of it. A directory in which something is left is not tried, and nothing is said of it.
    pub outcome: Outcome<()>,
    /// The failure is that of listing the directory.
    pub unlisted: bool,
}

/// A tree to be removed: a name in a directory.
#[derive(Debug, Clone)]
pub struct Doomed {
    /// What its path is to be called.
    pub path: Vec<u8>,
    /// The directory that it is in.
    pub parent: FileHandle,
    /// Its name there.
    pub name: Vec<u8>,
    /// Its own handle, if it is a directory that is to be emptied first.
    pub dir: Option<FileHandle>,
    /// It is a directory.
    pub is_dir: bool,
}

/// Removals on their way: directories are listed part by part, their entries removed, then they themselves.
#[derive(Default)]
pub(super) struct Removals {
    /// By their numbers, until they have ended.
    asked: HashMap<usize, Asking>,
    given: usize,
    dirs: Vec<Option<Branch>>,
}

enum Asking {
    Entries(usize),
    /// Its directory, if that is to be removed as well; its path; the directory that it is.
    Unlink {
        within: Option<usize>,
        path: Vec<u8>,
        dir: bool,
    },
}

/// A directory on its way out.
struct Branch {
    path: Vec<u8>,
    fh: FileHandle,
    parent: FileHandle,
    name: Vec<u8>,
    within: Option<usize>,
    /// Entries that are not gone yet.
    open: usize,
    /// Where the listing goes on.
    rest: Option<(u64, landfast_nfs::v4::Verifier)>,
    /// Something in it stays.
    stays: bool,
}

impl Removals {
    /// The first item of a tree.
    pub(super) fn start(&mut self, doomed: Doomed) -> Item<Visit> {
        let Doomed { path, parent, name, dir, is_dir } = doomed;
        match dir {
            Some(fh) => self.branch(Branch {
                path,
                fh,
                parent,
                name,
                within: None,
                open: 0,
                rest: None,
                stays: false,
            }),
            None => self.unlink(&parent, &name, None, path, is_dir),
        }
    }

    /// The next item is about this.
    fn asks(&mut self, asking: Asking) {
        self.asked.insert(self.given, asking);
        self.given += 1;
    }

    fn branch(&mut self, branch: Branch) -> Item<Visit> {
        let fh = branch.fh.clone();
        self.dirs.push(Some(branch));
        self.list(self.dirs.len() - 1, fh, None)
    }

    fn list(
        &mut self,
        dir: usize,
        fh: FileHandle,
        from: Option<(u64, landfast_nfs::v4::Verifier)>,
    ) -> Item<Visit> {
        self.asks(Asking::Entries(dir));
        Item::at(fh, Visit::List(List::part(REMOVED, from, REMOVED_PART)))
    }

    fn unlink(
        &mut self,
        parent: &FileHandle,
        name: &[u8],
        within: Option<usize>,
        path: Vec<u8>,
        dir: bool,
    ) -> Item<Visit> {
        self.asks(Asking::Unlink { within, path, dir });
        Item::at(parent.clone(), Visit::Unlink(Unlink { name: Bytes::copy_from_slice(name) }))
    }

    /// Item `number` has ended: what there is to tell, and further items.
    pub(super) fn visited(
        &mut self,
        number: usize,
        outcome: Outcome<Visited>,
        more: &mut Vec<Item<Visit>>,
        tell: &mut impl FnMut(Removal),
    ) {
        match self.asked.remove(&number) {
            Some(Asking::Entries(dir)) => self.listed(dir, outcome, more, tell),
            Some(Asking::Unlink { within, path, dir }) => {
                let outcome = outcome.map(drop);
                let stays = outcome != Outcome::Committed(());
                tell(Removal { path, dir, outcome, unlisted: false });
                self.entry_done(within, stays, more);
            }
            None => {}
        }
    }

    fn listed(
        &mut self,
        number: usize,
        outcome: Outcome<Visited>,
        more: &mut Vec<Item<Visit>>,
        tell: &mut impl FnMut(Removal),
    ) {
        let Some(branch) = self.dirs.get_mut(number).and_then(Option::as_mut) else { return };
        let listed = match outcome {
            Outcome::Committed(Visited::Entries(listed)) => listed,
            outcome => {
                let outcome = outcome.map(drop);
                tell(Removal { path: branch.path.clone(), dir: true, outcome, unlisted: true });
                branch.stays = true;
                return self.emptied(number, more);
            }
        };
        branch.rest = listed.rest;
        branch.open = listed.entries.len();
        let (fh, path) = (branch.fh.clone(), branch.path.clone());
        for entry in listed.entries {
            let below = join(&path, &entry.name);
            let item = match (&entry.fh, entry.meta.is_dir()) {
                (Some(own), true) => self.branch(Branch {
                    path: below,
                    fh: own.clone(),
                    parent: fh.clone(),
                    name: entry.name.to_vec(),
                    within: Some(number),
                    open: 0,
                    rest: None,
                    stays: false,
                }),
                _ => self.unlink(&fh, &entry.name, Some(number), below, entry.meta.is_dir()),
            };
            more.push(item);
        }
        if self.dirs.get(number).and_then(Option::as_ref).is_some_and(|branch| branch.open == 0) {
            self.emptied(number, more);
        }
    }

    /// An entry of a directory is gone, or stays.
    fn entry_done(&mut self, within: Option<usize>, stays: bool, more: &mut Vec<Item<Visit>>) {
        let Some(number) = within else { return };
        let Some(branch) = self.dirs.get_mut(number).and_then(Option::as_mut) else { return };
        branch.open -= 1;
        branch.stays |= stays;
        if branch.open == 0 {
            self.emptied(number, more);
        }
    }

    /// All that was listed of a directory is settled.
    fn emptied(&mut self, number: usize, more: &mut Vec<Item<Visit>>) {
        let Some(branch) = self.dirs.get_mut(number).and_then(Option::as_mut) else { return };
        if let Some(from) = branch.rest.take() {
            let fh = branch.fh.clone();
            return more.push(self.list(number, fh, Some(from)));
        }
        let Some(branch) = self.dirs.get_mut(number).and_then(Option::take) else { return };
        if branch.stays {
            return self.entry_done(branch.within, true, more);
        }
        more.push(self.unlink(&branch.parent, &branch.name, branch.within, branch.path, true));
    }
}
