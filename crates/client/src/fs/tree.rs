//! Whole trees: the next requests of a walk and of a removal, directory by directory. No I/O.
//!
//! Entries are addressed by handle, never by path. So an object that somebody puts in a directory's place meanwhile is
//! not entered, and symbolic links are never followed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use landfast_nfs::v4::{ArgOp, FileHandle, NfsStat};

use super::action::{Action, AfterLostReply, Answer, Budget, Wants};
use super::attrs::Readlink;
use super::item::Item;
use super::list::{FirstPage, List, Listed, Page, Rest};
use super::meta::{Entry, LISTED, REMOVED};
use super::names::Unlink;
use super::outcome::Outcome;
use super::path::join;
use super::queue::Turn;
use crate::compound::{OpError, Results};
use crate::limits::{REMOVED_PART, REMOVED_TOGETHER, WALKED_ASKED_MAX, WALKED_PART};

#[derive(Debug)]
pub(super) enum Visit {
    List(List),
    Text(Readlink),
    Unlink(Unlink),
}

/// The result of a [`Visit`].
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

    fn ops(&mut self, name: Option<&Bytes>, room: &Budget, out: &mut Vec<ArgOp>) {
        match self {
            Visit::List(list) => list.ops(name, room, out),
            Visit::Text(text) => text.ops(name, room, out),
            Visit::Unlink(unlink) => unlink.ops(name, room, out),
        }
    }

    fn stays(&self) -> bool {
        // READDIR and READLINK leave the filehandle as well, but no further item uses the place.
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

    fn lost(&mut self) -> AfterLostReply {
        AfterLostReply::Again
    }
}

/// Where a walk begins, and the path under which it reports.
#[derive(Debug, Clone)]
pub struct Start {
    pub path: Vec<u8>,
    pub fh: FileHandle,
    /// The first page of the listing, if it is known.
    pub first_page: Option<FirstPage>,
}

impl Start {
    /// A start of which only the handle is known.
    pub fn new(path: impl Into<Vec<u8>>, fh: FileHandle) -> Start {
        Start { path: path.into(), fh, first_page: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkOptions {
    /// Ask for the targets of symbolic links.
    pub texts: bool,
    /// Do not enter directories more than this many levels below the start; 0 lists the start alone.
    pub depth_max: usize,
    /// List entries, and ask for directories, in the byte order of their names. For a visitor who needs this order and
    /// would otherwise have to hold entries back.
    pub by_name: bool,
    /// List a large directory in parts, each in a [`Listing`] of its own ([`Listing::next`]). Not with
    /// [`WalkOptions::by_name`].
    pub parts: bool,
}

impl Default for WalkOptions {
    fn default() -> Self {
        WalkOptions { texts: false, depth_max: usize::MAX, by_name: false, parts: false }
    }
}

#[derive(Debug)]
pub struct Listing {
    /// Its number. The starts are 0, 1, ... in their order. See [`Entry::listing`].
    pub number: usize,
    /// The path, beginning with the start's.
    pub path: Vec<u8>,
    /// The entries in the server's order (with [`WalkOptions::by_name`] by name), or why there are none.
    pub entries: Outcome<Vec<Entry>>,
    /// The number of the listing that continues this one. See [`WalkOptions::parts`].
    pub next: Option<usize>,
}

impl Listing {
    /// How many entries came.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        match &self.entries {
            Outcome::Committed(entries) => entries.len(),
            _ => 0,
        }
    }
}

/// A walk in progress.
pub(super) struct Walk {
    options: WalkOptions,
    /// What each item asks for, until it is done.
    asked: HashMap<usize, Request>,
    /// Items that were asked for so far.
    given: usize,
    /// Directories by number, until they are reported.
    dirs: HashMap<usize, Dir>,
    /// The next directory's number.
    numbered: usize,
    /// Directories in those that were listed, until they are asked for; by the turn of the first of each.
    waiting: BTreeMap<Turn, Waiting>,
}

/// The directories in one directory that are not asked for yet.
struct Waiting {
    path: Vec<u8>,
    depth: usize,
    /// They share this beginning of their turns.
    turn: Turn,
    dirs: std::vec::IntoIter<WaitingDir>,
}

struct WaitingDir {
    number: usize,
    /// Its index in the turn.
    index: u32,
    name: Box<[u8]>,
    fh: Option<FileHandle>,
}

enum Request {
    /// A directory's entries; the handle, where it is known.
    Entries(usize, Option<FileHandle>),
    /// The target of an entry that is a symbolic link.
    Text(usize, usize),
}

struct Dir {
    path: Vec<u8>,
    depth: usize,
    /// Its turn in the walk. A continuation of its listing stands between entries: at this index of their turns.
    turn: Turn,
    first: u32,
    entries: Vec<Entry>,
    texts_missing: usize,
    next: Option<usize>,
}

impl Dir {
    fn new(path: Vec<u8>, depth: usize, turn: Turn) -> Dir {
        Dir { path, depth, turn, first: 0, entries: Vec::new(), texts_missing: 0, next: None }
    }
}

/// The turn of entry `n` of a directory. Its own listing, and the targets of its links, come before all of these.
fn below(turn: &[u32], n: u32) -> Turn {
    turn.iter().copied().chain([n]).collect()
}

impl Walk {
    pub(super) fn new(options: WalkOptions) -> Walk {
        let (asked, dirs) = (HashMap::new(), HashMap::new());
        Walk { options, asked, given: 0, dirs, numbered: 0, waiting: BTreeMap::new() }
    }

    /// Returns the items that list the starts, and the starts that are listed already.
    pub(super) fn start(
        &mut self,
        starts: impl IntoIterator<Item = Start>,
    ) -> (Vec<Item<Visit>>, Vec<Listing>) {
        let starts: Vec<_> = starts
            .into_iter()
            .map(|start| {
                let number = self.dir(Dir::new(start.path, 0, below(&[], self.numbered as u32)));
                (number, start.fh, start.first_page)
            })
            .collect();
        let (mut items, mut done) = (Vec::with_capacity(starts.len()), Vec::new());
        for (number, fh, first_page) in starts {
            let list = match first_page {
                Some(FirstPage(Page::Whole(entries))) => {
                    let listed = Visited::Entries(Listed { entries, rest: None });
                    done.extend(self.listed(number, None, Outcome::Committed(listed), &mut items));
                    continue;
                }
                Some(FirstPage(Page::First(list))) => list.up_to(self.part()),
                None => List::new(LISTED, false).up_to(self.part()),
            };
            let item = self.asks(Request::Entries(number, Some(fh.clone())), Item::at(fh, Visit::List(list)));
            items.push(item);
        }
        while self.asked.len() < WALKED_ASKED_MAX && self.ask_next(&mut items) {}
        (items, done)
    }

    /// As above, by a path and through symbolic links.
    pub(super) fn start_at(&mut self, path: &[u8]) -> Item<Visit> {
        let number = self.dir(Dir::new(path.to_vec(), 0, below(&[], self.numbered as u32)));
        self.asks(Request::Entries(number, None), Item::new(path, Visit::List(List::new(LISTED, true))))
    }

    fn dir(&mut self, dir: Dir) -> usize {
        self.dirs.insert(self.numbered, dir);
        self.numbered += 1;
        self.numbered - 1
    }

    /// Registers what the next item asks for, and gives the item its turn.
    fn asks(&mut self, request: Request, item: Item<Visit>) -> Item<Visit> {
        let (Request::Entries(dir, _) | Request::Text(dir, _)) = &request;
        let turn = self.dirs.get(dir).map_or_else(Turn::default, |dir| match dir.first {
            0 => dir.turn.clone(),
            first => below(&dir.turn, first),
        });
        self.asked.insert(self.given, request);
        self.given += 1;
        item.in_turn(turn)
    }

    /// Entries after which a listing ends for now.
    fn part(&self) -> usize {
        if self.options.parts && !self.options.by_name { WALKED_PART } else { usize::MAX }
    }

    /// Takes the result of item `number`. Returns a directory that it completes, and further items.
    pub(super) fn visited(
        &mut self,
        number: usize,
        outcome: Outcome<Visited>,
        more: &mut Vec<Item<Visit>>,
    ) -> Option<Listing> {
        let done = match self.asked.remove(&number)? {
            Request::Entries(dir, fh) => self.listed(dir, fh, outcome, more),
            Request::Text(dir, entry) => self.text(dir, entry, outcome),
        };
        while self.asked.len() < WALKED_ASKED_MAX && self.ask_next(more) {}
        done
    }

    fn text(&mut self, dir: usize, entry: usize, outcome: Outcome<Visited>) -> Option<Listing> {
        let state = self.dirs.get_mut(&dir)?;
        if let (Outcome::Committed(Visited::Text(text)), Some(entry)) =
            (outcome, state.entries.get_mut(entry))
        {
            entry.text = Some(Bytes::copy_from_slice(&text));
        }
        state.texts_missing -= 1;
        if state.texts_missing == 0 { self.give(dir) } else { None }
    }

    /// Puts directories in their place among those that wait: that of the first of them.
    fn waits(&mut self, waiting: Waiting) {
        if let Some(first) = waiting.dirs.as_slice().first() {
            self.waiting.insert(below(&waiting.turn, first.index), waiting);
        }
    }

    /// Asks for the first directory that waits for it. `false`: there is none.
    fn ask_next(&mut self, more: &mut Vec<Item<Visit>>) -> bool {
        let Some((_, mut first)) = self.waiting.pop_first() else { return false };
        let Some(WaitingDir { number, index, name, fh }) = first.dirs.next() else { return true };
        let dir = Dir::new(join(&first.path, &name), first.depth, below(&first.turn, index));
        self.waits(first);
        let item = match &fh {
            Some(fh) => Item::at(fh.clone(), Visit::List(List::new(LISTED, false).up_to(self.part()))),
            None => Item::new(&dir.path, Visit::List(List::new(LISTED, false))),
        };
        self.dirs.insert(number, dir);
        more.push(self.asks(Request::Entries(number, fh), item));
        true
    }

    fn listed(
        &mut self,
        number: usize,
        fh: Option<FileHandle>,
        outcome: Outcome<Visited>,
        more: &mut Vec<Item<Visit>>,
    ) -> Option<Listing> {
        let listed = outcome.map(|visited| match visited {
            Visited::Entries(listed) => listed,
            Visited::Text(_) | Visited::Gone => Listed { entries: Vec::new(), rest: None },
        });
        let Listed { mut entries, rest } = match listed {
            Outcome::Committed(listed) => listed,
            other => {
                let path = self.dirs.remove(&number)?.path;
                return Some(Listing {
                    number,
                    path,
                    entries: other.map(|listed| listed.entries),
                    next: None,
                });
            }
        };
        if self.options.by_name {
            entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        }
        let dir = self.dirs.get(&number)?;
        let (path, depth, turn, first) = (dir.path.clone(), dir.depth, dir.turn.clone(), dir.first);
        let (mut texts, mut dirs) = (0, Vec::new());
        for (n, entry) in entries.iter_mut().enumerate() {
            if entry.meta.is_dir() && depth < self.options.depth_max {
                entry.listing = Some(self.numbered);
                let (name, index) = (entry.name.clone(), first + 1 + n as u32);
                dirs.push(WaitingDir { number: self.numbered, index, name, fh: entry.fh.clone() });
                self.numbered += 1;
            } else if entry.meta.is_link() && self.options.texts {
                texts += 1;
                let item = match &entry.fh {
                    Some(fh) => Item::at(fh.clone(), Visit::Text(Readlink)),
                    None => Item::new(&join(&path, &entry.name), Visit::Text(Readlink)),
                };
                more.push(self.asks(Request::Text(number, n), item));
            }
        }
        if !dirs.is_empty() {
            let (path, turn, dirs) = (path.clone(), turn.clone(), dirs.into_iter());
            self.waits(Waiting { path, depth: depth + 1, turn, dirs });
            // What is next in the walk is always asked for.
            self.ask_next(more);
        }
        let next = rest.zip(fh).map(|(from, fh)| {
            let first = first + 1 + entries.len() as u32;
            let next = self.dir(Dir { first, ..Dir::new(path, depth, turn) });
            let list = List::part(LISTED, Some(from), self.part());
            let item = Item::at(fh.clone(), Visit::List(list));
            more.push(self.asks(Request::Entries(next, Some(fh)), item));
            next
        });
        let dir = self.dirs.get_mut(&number)?;
        (dir.entries, dir.texts_missing, dir.next) = (entries, texts, next);
        if texts == 0 { self.give(number) } else { None }
    }

    fn give(&mut self, number: usize) -> Option<Listing> {
        let Dir { path, entries, next, .. } = self.dirs.remove(&number)?;
        Some(Listing { number, path, entries: Outcome::Committed(entries), next })
    }
}

/// What a removal reports of one object.
#[derive(Debug, PartialEq, Eq)]
pub struct Removal {
    /// The path, beginning with the start's.
    pub path: Vec<u8>,
    pub dir: bool,
    /// The result. A directory that still holds something is neither tried nor reported.
    pub outcome: Outcome<()>,
    /// Listing the directory is what failed.
    pub unlisted: bool,
}

/// A tree, or a single object, to remove.
#[derive(Debug, Clone)]
pub struct ToRemove {
    /// The path for messages.
    pub path: Vec<u8>,
    /// The directory that holds it.
    pub parent: FileHandle,
    pub name: Vec<u8>,
    /// Its own handle, if it is a directory to be emptied first.
    pub dir: Option<FileHandle>,
    pub is_dir: bool,
    /// The first page of the listing, if it is known.
    pub first_page: Option<FirstPage>,
}

/// Removals in progress. A directory is listed page by page, its entries are removed, then the directory. It goes in
/// the COMPOUND of its last entries if they fit.
#[derive(Default)]
pub(super) struct Removals {
    /// By number, until they end.
    asked: HashMap<usize, Asking>,
    given: usize,
    dirs: Vec<Option<DirToRemove>>,
    /// Places in `dirs` that can be used again.
    free: Vec<usize>,
    /// Removals that are requested and have not ended.
    removals: usize,
    /// Trees that were begun.
    trees: u32,
}

enum Asking {
    Entries(usize),
    /// This directory, in one COMPOUND with its remaining entries.
    Together(usize),
    /// The directory that holds it, if that is to be removed as well; its path; and which directory it is, if it is
    /// one.
    Unlink {
        within: Option<usize>,
        path: Vec<u8>,
        dir: bool,
    },
}

/// A directory that is being removed.
struct DirToRemove {
    path: Vec<u8>,
    fh: FileHandle,
    parent: FileHandle,
    name: Vec<u8>,
    within: Option<usize>,
    /// Its turn in the walk.
    turn: Turn,
    /// Entries that are not removed yet.
    open: usize,
    /// The numbers of the removals of entries that are requested.
    removals: BTreeSet<usize>,
    /// Its own removal was requested together with theirs.
    together: bool,
    /// Its removal was requested at some time.
    tried: bool,
    /// Where the listing continues.
    rest: Option<Rest>,
    /// Something in it cannot be removed.
    stays: bool,
}

impl DirToRemove {
    fn new(
        path: Vec<u8>,
        fh: FileHandle,
        parent: FileHandle,
        name: Vec<u8>,
        (within, turn): (Option<usize>, Turn),
    ) -> DirToRemove {
        DirToRemove {
            path,
            fh,
            parent,
            name,
            within,
            turn,
            open: 0,
            removals: BTreeSet::new(),
            together: false,
            tried: false,
            rest: None,
            stays: false,
        }
    }
}

impl Removals {
    /// The first items of a tree.
    pub(super) fn start(
        &mut self,
        target: ToRemove,
        more: &mut Vec<Item<Visit>>,
        tell: &mut impl FnMut(Removal),
    ) {
        let ToRemove { path, parent, name, dir, is_dir, first_page } = target;
        let Some(fh) = dir else { return more.push(self.unlink(&parent, &name, None, path, is_dir)) };
        let turn = below(&[], self.trees);
        self.trees += 1;
        let branch = DirToRemove::new(path, fh.clone(), parent, name, (None, turn));
        let number = self.branch(branch);
        match first_page.map(FirstPage::listed) {
            Some(listed) => self.listed(number, Outcome::Committed(Visited::Entries(listed)), more, tell),
            None => more.push(self.list(number, fh, None)),
        }
    }

    /// Registers what the next item asks for and returns its number.
    fn asks(&mut self, asking: Asking) -> usize {
        self.removals += usize::from(!matches!(asking, Asking::Entries(_)));
        self.asked.insert(self.given, asking);
        self.given += 1;
        self.given - 1
    }

    /// Objects whose removal is requested.
    pub(super) fn requested(&self) -> usize {
        self.removals
    }

    fn branch(&mut self, branch: DirToRemove) -> usize {
        match self.free.pop() {
            Some(number) => {
                self.dirs[number] = Some(branch);
                number
            }
            None => {
                self.dirs.push(Some(branch));
                self.dirs.len() - 1
            }
        }
    }

    /// Takes a directory out. Nothing refers to it any more: its entries have ended.
    fn take(&mut self, number: usize) -> Option<DirToRemove> {
        let branch = self.dirs.get_mut(number)?.take()?;
        self.free.push(number);
        Some(branch)
    }

    fn at(&mut self, number: usize) -> Option<&mut DirToRemove> {
        self.dirs.get_mut(number).and_then(Option::as_mut)
    }

    fn list(&mut self, dir: usize, fh: FileHandle, from: Option<Rest>) -> Item<Visit> {
        self.asks(Asking::Entries(dir));
        let turn = self.at(dir).map(|branch| branch.turn.clone()).unwrap_or_default();
        Item::at(fh, Visit::List(List::part(REMOVED, from, REMOVED_PART))).in_turn(turn)
    }

    fn unlink(
        &mut self,
        parent: &FileHandle,
        name: &[u8],
        within: Option<usize>,
        path: Vec<u8>,
        dir: bool,
    ) -> Item<Visit> {
        let number = self.asks(Asking::Unlink { within, path, dir });
        if let Some(branch) = within.and_then(|within| self.at(within)) {
            branch.removals.insert(number);
        }
        Item::at(parent.clone(), Visit::Unlink(Unlink { name: Bytes::copy_from_slice(name) }))
    }

    /// Requests the removal of a directory together with its last entries, and then of its parents in the same way,
    /// once the removal of all their entries is requested.
    fn together(&mut self, number: usize, more: &mut Vec<Item<Visit>>) {
        let Some(branch) = self.at(number) else { return };
        let asked_for = branch.removals.len() == branch.open && branch.rest.is_none();
        if !asked_for || branch.together || branch.stays || !(1..=REMOVED_TOGETHER).contains(&branch.open) {
            return;
        }
        (branch.together, branch.tried) = (true, true);
        let behind = branch.removals.iter().copied().collect();
        let (parent, name, within) =
            (branch.parent.clone(), Bytes::copy_from_slice(&branch.name), branch.within);
        let own = self.asks(Asking::Together(number));
        let mut item = Item::at(parent, Visit::Unlink(Unlink { name }));
        item.behind = behind;
        more.push(item);
        if let Some(above) = within.and_then(|within| self.at(within)) {
            above.removals.insert(own);
        }
        if let Some(within) = within {
            self.together(within, more);
        }
    }

    /// Takes the result of item `number`. Returns what to report, and further items.
    pub(super) fn visited(
        &mut self,
        number: usize,
        outcome: Outcome<Visited>,
        more: &mut Vec<Item<Visit>>,
        tell: &mut impl FnMut(Removal),
    ) {
        let asked = self.asked.remove(&number);
        self.removals -= usize::from(matches!(asked, Some(Asking::Unlink { .. } | Asking::Together(_))));
        match asked {
            Some(Asking::Entries(dir)) => self.listed(dir, outcome, more, tell),
            Some(Asking::Unlink { within, path, dir }) => {
                let mut outcome = outcome.map(drop);
                // It was removed with its entries, and the reply was lost.
                let gone = is_stale(&outcome)
                    && within.and_then(|within| self.at(within)).is_some_and(|branch| branch.tried);
                if gone {
                    outcome = Outcome::Committed(());
                }
                let stays = outcome != Outcome::Committed(());
                tell(Removal { path, dir, outcome, unlisted: false });
                self.entry_done(within, Some(number), stays, more);
            }
            Some(Asking::Together(dir)) => match outcome {
                Outcome::Committed(_) => {
                    let Some(branch) = self.take(dir) else { return };
                    let outcome = Outcome::Committed(());
                    tell(Removal { path: branch.path, dir: true, outcome, unlisted: false });
                    self.entry_done(branch.within, Some(number), false, more);
                }
                // It is removed by itself once it is empty.
                _ => {
                    let Some(branch) = self.at(dir) else { return };
                    branch.together = false;
                    let (empty, within) = (branch.open == 0, branch.within);
                    if let Some(above) = within.and_then(|within| self.at(within)) {
                        above.removals.remove(&number);
                    }
                    if empty {
                        self.emptied(dir, more);
                    }
                }
            },
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
        let Some(branch) = self.at(number) else { return };
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
        let (fh, path, turn) = (branch.fh.clone(), branch.path.clone(), branch.turn.clone());
        for (n, entry) in listed.entries.into_iter().enumerate() {
            let path = join(&path, &entry.name);
            let item = match (&entry.fh, entry.meta.is_dir()) {
                (Some(own), true) => {
                    let (name, within) = (entry.name.to_vec(), (Some(number), below(&turn, n as u32)));
                    let branch = DirToRemove::new(path, own.clone(), fh.clone(), name, within);
                    let branch = self.branch(branch);
                    self.list(branch, own.clone(), None)
                }
                _ => self.unlink(&fh, &entry.name, Some(number), path, entry.meta.is_dir()),
            };
            more.push(item);
        }
        match self.at(number).is_some_and(|branch| branch.open == 0) {
            true => self.emptied(number, more),
            false => self.together(number, more),
        }
    }

    /// An entry of a directory is removed or stays. `removal`: the number of its removal.
    fn entry_done(
        &mut self,
        within: Option<usize>,
        removal: Option<usize>,
        stays: bool,
        more: &mut Vec<Item<Visit>>,
    ) {
        let Some(number) = within else { return };
        let Some(branch) = self.at(number) else { return };
        branch.open -= 1;
        removal.inspect(|removal| _ = branch.removals.remove(removal));
        branch.stays |= stays;
        if branch.open == 0 {
            self.emptied(number, more);
        }
    }

    /// Every listed entry of a directory has been dealt with.
    fn emptied(&mut self, number: usize, more: &mut Vec<Item<Visit>>) {
        let Some(branch) = self.at(number).filter(|branch| !branch.together) else { return };
        if let Some(from) = branch.rest.take() {
            let fh = branch.fh.clone();
            return more.push(self.list(number, fh, Some(from)));
        }
        let Some(branch) = self.take(number) else { return };
        let DirToRemove { path, parent, name, within, .. } = branch;
        if branch.stays {
            // Its own removal was not requested.
            return self.entry_done(within, None, true, more);
        }
        more.push(self.unlink(&parent, &name, within, path, true));
        if let Some(within) = within {
            self.together(within, more);
        }
    }
}

fn is_stale(outcome: &Outcome<()>) -> bool {
    matches!(outcome, Outcome::Failed(failure) if failure.status() == NfsStat::NFS4ERR_STALE)
}

#[cfg(test)]
mod tests {
    use landfast_nfs::v4::attr::AttrValues;
    use landfast_nfs::v4::{FileType, OpNum};

    use super::super::meta::Meta;
    use super::super::outcome::Failure;
    use super::super::queue::Queue;
    use super::*;

    fn files(names: &[&str]) -> Outcome<Visited> {
        let entry = |name: &&str| Entry {
            name: name.as_bytes().into(),
            meta: Meta::of(&AttrValues::default()),
            fh: None,
            text: None,
            listing: None,
        };
        let entries = names.iter().map(entry).collect();
        Outcome::Committed(Visited::Entries(Listed { entries, rest: None }))
    }

    fn stale() -> Outcome<Visited> {
        Outcome::Failed(Failure::Status { op: OpNum::PUTFH, status: NfsStat::NFS4ERR_STALE })
    }

    /// Removes `d` with items that end with these results, one after another. Returns what each asks for next (the
    /// numbers it goes behind) and what was reported.
    fn removed(ends: Vec<Outcome<Visited>>) -> (Vec<Vec<usize>>, Vec<String>) {
        let fh = |text: &'static str| FileHandle(Bytes::from_static(text.as_bytes()));
        let target = ToRemove {
            path: b"d".to_vec(),
            parent: fh("top"),
            name: b"d".to_vec(),
            dir: Some(fh("d")),
            is_dir: true,
            first_page: None,
        };
        let (mut removals, mut told, mut asked) = (Removals::default(), Vec::new(), Vec::new());
        let mut tell = |removal: Removal| {
            let good = removal.outcome == Outcome::Committed(());
            told.push(removal.path.escape_ascii().to_string() + if good { "" } else { "!" });
        };
        removals.start(target, &mut Vec::new(), &mut tell);
        for (number, outcome) in ends.into_iter().enumerate() {
            let mut more = Vec::new();
            removals.visited(number, outcome, &mut more, &mut tell);
            asked.push(more.iter().map(|item| item.behind.len()).collect());
        }
        (asked, told)
    }

    #[test]
    fn a_directory_goes_together_with_what_is_in_it() {
        let gone = || Outcome::Committed(Visited::Gone);
        let apart = || Outcome::NotExecuted(String::new());
        let first = vec![0, 0, 2];
        let (asked, told) = removed(vec![files(&["a", "b"]), gone(), gone(), gone()]);
        assert_eq!((asked, told), (vec![first.clone(), vec![], vec![], vec![]], shown("d/a d/b d")));
        // The COMPOUND did not hold it: it is removed by itself when it is empty.
        let (asked, told) = removed(vec![files(&["a", "b"]), gone(), gone(), apart(), gone()]);
        assert_eq!((asked, told), (vec![first, vec![], vec![], vec![0], vec![]], shown("d/a d/b d")));
        // It was removed though the reply was lost: the missing entries show it.
        let (_, told) = removed(vec![files(&["a", "b"]), stale(), stale(), apart(), gone()]);
        assert_eq!(told, shown("d/a d/b d"));
        // If an entry stays, the directory stays.
        let denied = Outcome::Failed(Failure::Status { op: OpNum::REMOVE, status: NfsStat::NFS4ERR_ACCESS });
        let (asked, told) = removed(vec![files(&["a", "b"]), denied, gone(), apart()]);
        assert_eq!((asked[3].len(), told), (0, shown("d/a! d/b")));
    }

    #[test]
    fn a_large_directory_comes_in_parts_each_in_its_turn() {
        let fh = |text: &'static str| FileHandle(Bytes::from_static(text.as_bytes()));
        let entry = |name: &'static str, kind| Entry {
            fh: Some(fh(name)),
            ..Entry::of(name.as_bytes(), &AttrValues { kind: Some(kind), ..AttrValues::default() })
                .unwrap()
                .unwrap()
        };
        let listed =
            |entries, rest: Option<Rest>| Outcome::Committed(Visited::Entries(Listed { entries, rest }));
        let (file, dir, link) = (FileType::Reg, FileType::Dir, FileType::Lnk);
        let mut walk = Walk::new(WalkOptions { parts: true, texts: true, ..WalkOptions::default() });
        let (items, done) = walk.start([Start::new("s", fh("s")), Start::new("t", fh("t"))]);
        assert!(done.is_empty());
        let mut queue = Queue::Turns(Default::default());
        items.into_iter().enumerate().for_each(|item| queue.push(item));
        let first = queue.pop().unwrap();
        assert_eq!((first.0, &first.1.turn[..]), (0, &[0][..]));
        let mut more = Vec::new();
        let part = walk.visited(
            0,
            listed(vec![entry("a", file), entry("b", dir)], Some(Rest::default())),
            &mut more,
        );
        let part = part.unwrap();
        assert_eq!((part.number, part.len(), part.next), (0, 2, Some(3)));
        // Below `b` first, then the rest, then `t`.
        let numbered = std::mem::take(&mut more).into_iter().zip(2..).map(|(item, n)| (n, item));
        numbered.for_each(|item| queue.push(item));
        assert_eq!(queue.pop().map(|(n, _)| n), Some(2));
        let below = walk.visited(2, listed(vec![entry("x", dir)], None), &mut more).unwrap();
        assert_eq!((&below.path[..], below.number), (&b"s/b"[..], part_listing(&part, 1)));
        queue.push((4, more.pop().unwrap()));
        assert_eq!(queue.pop().map(|(n, _)| n), Some(4));
        assert_eq!(queue.pop().map(|(n, item)| (n, item.turn)), Some((3, [0, 3].into())));
        // A link's target is asked for before what is in the directories beside it, and holds the part back.
        assert!(walk.visited(3, listed(vec![entry("c", dir), entry("l", link)], None), &mut more).is_none());
        more.into_iter().zip(5..).for_each(|(item, n)| queue.push((n, item)));
        let text = Outcome::Committed(Visited::Text(Bytes::from_static(b"to")));
        assert_eq!(queue.pop().map(|(n, _)| n), Some(5));
        let rest = walk.visited(5, text, &mut Vec::new()).unwrap();
        assert_eq!((rest.number, rest.next, &rest.path[..]), (3, None, &b"s"[..]));
        assert_eq!([queue.pop(), queue.pop()].map(|item| item.map(|(n, _)| n)), [Some(6), Some(1)]);
    }

    fn part_listing(part: &Listing, entry: usize) -> usize {
        match &part.entries {
            Outcome::Committed(entries) => entries[entry].listing.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn shown(all: &str) -> Vec<String> {
        all.split(' ').map(str::to_owned).collect()
    }
}
