//! Whole trees: the next requests of a walk and of a removal, directory by directory. No I/O.
//!
//! Entries are addressed by handle, never by path. So an object that somebody puts in a directory's place meanwhile is
//! not entered, and symbolic links are never followed.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use landfast_nfs::v4::{ArgOp, FileHandle, NfsStat};

use super::action::{Action, AfterLostReply, Answer, Budget, Wants};
use super::attrs::Readlink;
use super::item::Item;
use super::list::{FirstPage, List, Listed, Page};
use super::meta::{Entry, LISTED, REMOVED};
use super::names::Unlink;
use super::outcome::Outcome;
use super::path::join;
use crate::compound::{OpError, Results};
use crate::limits::{REMOVED_PART, REMOVED_TOGETHER};

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
}

impl Default for WalkOptions {
    fn default() -> Self {
        WalkOptions { texts: false, depth_max: usize::MAX, by_name: false }
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
}

/// A walk in progress.
pub(super) struct Walk {
    options: WalkOptions,
    /// What each item asks for.
    asked: Vec<Request>,
    /// Directories by number, until they are reported.
    dirs: Vec<Option<Dir>>,
}

enum Request {
    Entries(usize),
    /// The target of an entry that is a symbolic link.
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

    /// Returns the items that list the starts, and the starts that are listed already.
    pub(super) fn start(
        &mut self,
        starts: impl IntoIterator<Item = Start>,
    ) -> (Vec<Item<Visit>>, Vec<Listing>) {
        let starts: Vec<_> =
            starts.into_iter().map(|start| (self.dir(start.path, 0), start.fh, start.first_page)).collect();
        let (mut items, mut done) = (Vec::with_capacity(starts.len()), Vec::new());
        for (number, fh, first_page) in starts {
            let list = match first_page {
                Some(FirstPage(Page::Whole(entries))) => {
                    let listed = Visited::Entries(Listed { entries, rest: None });
                    done.extend(self.listed(number, Outcome::Committed(listed), &mut items));
                    continue;
                }
                Some(FirstPage(Page::First(list))) => list,
                None => List::new(LISTED, false),
            };
            self.asked.push(Request::Entries(number));
            items.push(Item::at(fh, Visit::List(list)));
        }
        (items, done)
    }

    /// As above, by a path and through symbolic links.
    pub(super) fn start_at(&mut self, path: &[u8]) -> Item<Visit> {
        let number = self.dir(path.to_vec(), 0);
        self.asked.push(Request::Entries(number));
        Item::new(path, Visit::List(List::new(LISTED, true)))
    }

    fn dir(&mut self, path: Vec<u8>, depth: usize) -> usize {
        self.dirs.push(Some(Dir { path, depth, entries: Vec::new(), texts_missing: 0 }));
        self.dirs.len() - 1
    }

    /// Takes the result of item `number`. Returns a directory that it completes, and further items.
    pub(super) fn visited(
        &mut self,
        number: usize,
        outcome: Outcome<Visited>,
        more: &mut Vec<Item<Visit>>,
    ) -> Option<Listing> {
        match self.asked.get(number) {
            Some(&Request::Entries(dir)) => self.listed(dir, outcome, more),
            Some(&Request::Text(dir, entry)) => {
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
                self.asked.push(Request::Entries(child));
                more.push(item);
            } else if entry.meta.is_link() && self.options.texts {
                texts += 1;
                self.asked.push(Request::Text(number, n));
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
    /// Entries that are not removed yet.
    open: usize,
    /// The numbers of the removals of entries that are requested.
    removals: BTreeSet<usize>,
    /// Its own removal was requested together with theirs.
    together: bool,
    /// Its removal was requested at some time.
    tried: bool,
    /// Where the listing continues.
    rest: Option<(u64, landfast_nfs::v4::Verifier)>,
    /// Something in it cannot be removed.
    stays: bool,
}

impl DirToRemove {
    fn new(
        path: Vec<u8>,
        fh: FileHandle,
        parent: FileHandle,
        name: Vec<u8>,
        within: Option<usize>,
    ) -> DirToRemove {
        DirToRemove {
            path,
            fh,
            parent,
            name,
            within,
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
        let branch = DirToRemove::new(path, fh.clone(), parent, name, None);
        let number = self.branch(branch);
        match first_page.map(FirstPage::listed) {
            Some(listed) => self.listed(number, Outcome::Committed(Visited::Entries(listed)), more, tell),
            None => more.push(self.list(number, fh, None)),
        }
    }

    /// Registers what the next item asks for and returns its number.
    fn asks(&mut self, asking: Asking) -> usize {
        self.asked.insert(self.given, asking);
        self.given += 1;
        self.given - 1
    }

    fn branch(&mut self, branch: DirToRemove) -> usize {
        self.dirs.push(Some(branch));
        self.dirs.len() - 1
    }

    fn at(&mut self, number: usize) -> Option<&mut DirToRemove> {
        self.dirs.get_mut(number).and_then(Option::as_mut)
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
        match self.asked.remove(&number) {
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
                    let Some(branch) = self.dirs.get_mut(dir).and_then(Option::take) else { return };
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
        let (fh, path) = (branch.fh.clone(), branch.path.clone());
        for entry in listed.entries {
            let below = join(&path, &entry.name);
            let item = match (&entry.fh, entry.meta.is_dir()) {
                (Some(own), true) => {
                    let name = entry.name.to_vec();
                    let branch = DirToRemove::new(below, own.clone(), fh.clone(), name, Some(number));
                    let branch = self.branch(branch);
                    self.list(branch, own.clone(), None)
                }
                _ => self.unlink(&fh, &entry.name, Some(number), below, entry.meta.is_dir()),
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
        let Some(branch) = self.dirs.get_mut(number).and_then(Option::take) else { return };
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
    use landfast_nfs::v4::OpNum;
    use landfast_nfs::v4::attr::AttrValues;

    use super::super::meta::Meta;
    use super::super::outcome::Failure;
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

    fn shown(all: &str) -> Vec<String> {
        all.split(' ').map(str::to_owned).collect()
    }
}
