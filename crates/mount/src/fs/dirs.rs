//! Listing directories.
//!
//! An entry's offset is its place in the listing: `.`, `..`, new files that are held back, then the server's entries. Of these only the
//! part that is being read is in memory; another one is asked for again by the cookie that it began at.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use bytes::Bytes;
use fuser::{FileAttr, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use landfast_nfs::v4::{FileHandle, Verifier};
use tokio::sync::Mutex;

use super::changes;
use super::convert::{TTL, attr, kind};
use super::shared::Shared;
use crate::core::attrs::Attrs;
use crate::core::tree::Listing;
use crate::core::tree::own;
use crate::core::{Ino, Time};
use crate::errno::Errno;
use crate::limits::COMPLETE_DIR_MAX;
use crate::remote::{Caller, Page};

/// An open directory.
pub(super) struct DirHandle {
    pub(super) ino: Ino,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// All entries, if the directory was this mount's own when the listing began.
    own: Option<Vec<(Bytes, Ino, fuser::FileType)>>,
    /// New files that were held back when the listing began.
    held: Vec<(Bytes, Ino)>,
    /// Where each part of the server's listing begins: the place of its first entry, the cookie before it, the verifier.
    parts: Vec<(u64, u64, Verifier)>,
    /// The number of the part in memory.
    current: Option<(usize, Part)>,
    /// Names so far, while all parts were read in order and the directory did not change.
    whole: Option<Listing>,
}

struct Part {
    entries: Vec<Entry>,
    eof: bool,
}

struct Entry {
    name: Bytes,
    object: Option<(Ino, Attrs)>,
}

/// An entry for the kernel.
pub(super) struct Item {
    /// Where the listing goes on behind it.
    next: u64,
    name: Bytes,
    ino: Ino,
    /// `None`: the kernel asks when it needs them.
    attrs: Option<Attrs>,
    kind: fuser::FileType,
}

#[cfg(test)]
impl Item {
    pub(super) fn place(&self) -> u64 {
        self.next
    }

    pub(super) fn name(&self) -> Bytes {
        self.name.clone()
    }
}

impl DirHandle {
    pub(super) fn new(ino: Ino) -> DirHandle {
        DirHandle { ino, state: Mutex::default() }
    }
}

/// Fills a reply with as many entries as fit.
pub(super) fn plain(reply: &mut ReplyDirectory, items: &[Item]) {
    for i in items {
        if reply.add(INodeNo(i.ino), i.next, i.kind, OsStr::from_bytes(&i.name)) {
            return;
        }
    }
}

/// The same with attributes: the kernel gets a reference to each object.
pub(super) fn plus(shared: &Shared, reply: &mut ReplyDirectoryPlus, items: &[Item]) {
    for i in items {
        // Number zero tells the kernel that there are no attributes.
        let none = || FileAttr { ino: INodeNo(0), kind: i.kind, ..attr(0, &empty()) };
        let attrs = i.attrs.as_ref().map_or_else(none, |a| attr(i.ino, a));
        if reply.add(INodeNo(i.ino), i.next, OsStr::from_bytes(&i.name), &TTL, &attrs, Generation(0)) {
            return;
        }
        if i.attrs.is_some() {
            shared.tree().refer(i.ino);
        }
    }
}

fn empty() -> Attrs {
    Attrs {
        kind: landfast_nfs::v4::FileType::Reg,
        mode: 0,
        links: 1,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        fileid: 0,
        fsid: landfast_nfs::v4::Fsid::default(),
        rdev: (0, 0),
        atime: Default::default(),
        mtime: Default::default(),
        ctime: Default::default(),
        change: 0,
    }
}

/// Entries of an own directory in one answer: more than the kernel takes.
const OWN_TOGETHER: usize = 512;

/// A number for a name of which the server has told nothing else; never that of a node.
const SOME_INO: Ino = u64::MAX;

/// The entries from `offset` on, as far as one part of the server's listing has them; none: the listing has ended.
pub(super) async fn list(
    shared: &Arc<Shared>,
    who: &Caller,
    dir: &DirHandle,
    offset: u64,
) -> Result<Vec<Item>, Errno> {
    let mut state = dir.state.lock().await;
    if offset == 0 || state.parts.is_empty() {
        // The kernel may go on where another handle of the same listing was.
        state.own = {
            let tree = shared.tree();
            let kind = |ino: Ino| tree.get(ino).map_or(fuser::FileType::RegularFile, |n| kind(n.attrs.kind));
            let with_kind = |(name, ino)| (name, ino, kind(ino));
            tree.entries(dir.ino).map(|all| all.into_iter().map(with_kind).collect())
        };
        if state.own.is_none() {
            // The server knows more of some names, and has to know them all.
            changes::settle_dir(shared, dir.ino).await;
        }
        state.begin(shared, dir.ino);
    }
    let mut items = Vec::new();
    let mut at = offset;
    for (place, name, ino) in [(0, &b"."[..], dir.ino), (1, b"..", parent(shared, dir.ino))] {
        if at == place {
            at += 1;
            let kind = fuser::FileType::Directory;
            items.push(Item { next: at, name: Bytes::from_static(name), ino, attrs: None, kind });
        }
    }
    if let Some(own) = &state.own {
        let tree = shared.tree();
        for (name, ino, was) in own.iter().skip((at - 2) as usize) {
            if items.len() >= OWN_TOGETHER {
                break;
            }
            at += 1;
            let attrs = tree.get(*ino).map(|n| shared.seen_by_programs(&tree, *ino, n.attrs.clone()));
            // Its node may be forgotten since the listing began, though the name is there: then the kernel asks. A directory that is not
            // this mount's own any more has no names here.
            let gone = tree.is_own(dir.ino) && tree.entry(dir.ino, name) == own::Entry::Nobody;
            if attrs.is_none() && gone {
                continue;
            }
            let kind = attrs.as_ref().map_or(*was, |attrs| kind(attrs.kind));
            items.push(Item { next: at, name: name.clone(), ino: *ino, kind, attrs });
        }
        return Ok(items);
    }
    let handle = shared.server_handle(dir.ino)?;
    let behind = 2 + state.held.len() as u64;
    while at < behind {
        let (name, ino) = state.held[(at - 2) as usize].clone();
        at += 1;
        let tree = shared.tree();
        // Without attributes it is gone.
        if let Some(attrs) = tree.get(ino).map(|n| n.attrs.clone()) {
            let attrs = shared.seen_by_programs(&tree, ino, attrs);
            items.push(Item { next: at, name, ino, kind: kind(attrs.kind), attrs: Some(attrs) });
        }
    }
    while state.read(shared, who, &handle, dir.ino, at).await? {
        let Some((number, part)) = &state.current else { break };
        let first = state.parts.get(*number).map_or(0, |p| p.0);
        let before = items.len();
        let tree = shared.tree();
        for entry in part.entries.iter().skip((at - first) as usize) {
            at += 1;
            // What was held back when the listing began stands in it already.
            if state.held.iter().any(|(name, _)| *name == entry.name) {
                continue;
            }
            items.push(match &entry.object {
                Some((ino, attrs)) => {
                    // Its node may be forgotten since the part was read: then the kernel asks.
                    let there = tree.get(*ino).is_some();
                    let kind = kind(attrs.kind);
                    let attrs = there.then(|| shared.seen_by_programs(&tree, *ino, attrs.clone()));
                    Item { next: at, name: entry.name.clone(), ino: *ino, attrs, kind }
                }
                None => {
                    let kind = fuser::FileType::RegularFile;
                    Item { next: at, name: entry.name.clone(), ino: SOME_INO, attrs: None, kind }
                }
            });
        }
        if items.len() > before {
            break;
        }
    }
    Ok(items)
}

fn parent(shared: &Shared, ino: Ino) -> Ino {
    shared.tree().get(ino).and_then(|n| n.place.as_ref()).map_or(ino, |(dir, _)| *dir)
}

impl State {
    fn begin(&mut self, shared: &Shared, dir: Ino) {
        let (held, own) = (shared.tree().held_in(dir), self.own.take());
        let first = 2 + held.len() as u64;
        let parts = vec![(first, 0, Verifier::default())];
        *self = State { held, own, parts, current: None, whole: None };
    }

    /// Has the part in memory that the entry at `at` is in. `false`: the listing has ended.
    async fn read(
        &mut self,
        shared: &Arc<Shared>,
        who: &Caller,
        handle: &FileHandle,
        dir: Ino,
        at: u64,
    ) -> Result<bool, Errno> {
        loop {
            if let Some((number, part)) = &self.current {
                let first = self.parts.get(*number).map_or(0, |p| p.0);
                let end = first + part.entries.len() as u64;
                if (first..end).contains(&at) {
                    return Ok(true);
                }
                if at >= end && part.eof {
                    return Ok(false);
                }
            }
            let number = self.parts.iter().rposition(|p| p.0 <= at).unwrap_or(0);
            let (first, cookie, verifier) = self.parts[number];
            let asked = shared.now();
            let changes = shared.tree().changes(dir);
            let page = shared.remote.list(who, handle, cookie, verifier).await?;
            self.take(shared, dir, (number, first, cookie), (asked, changes), page);
            if self.is_lost(number, at) {
                return Err(Errno::INVAL);
            }
        }
    }

    /// Whether no part has the place `at` any more: the part `number`, which was read just now, has lost entries since the listing passed
    /// it, and the next one begins behind the place. Reading it once more would find the same.
    fn is_lost(&self, number: usize, at: u64) -> bool {
        let Some((_, part)) = &self.current else { return false };
        let first = self.parts.get(number).map_or(0, |p| p.0);
        let end = first + part.entries.len() as u64;
        let same = self.parts.iter().rposition(|p| p.0 <= at).unwrap_or(0) == number;
        let ended = at >= end && part.eof;
        same && !ended && !(first..end).contains(&at)
    }

    fn take(
        &mut self,
        shared: &Shared,
        dir: Ino,
        (number, first, cookie): (usize, u64, u64),
        (asked, changes): (Time, u64),
        page: Page,
    ) {
        let mut tree = shared.tree();
        let entries: Vec<Entry> = page
            .entries
            .iter()
            .map(|(_, name, object)| {
                let object = object.as_ref().map(|(handle, attrs)| {
                    let ino = tree.node(handle, attrs.clone(), asked);
                    if let Some(node) = tree.get_mut(ino) {
                        node.place = Some((dir, name.clone()));
                    }
                    tree.is_listed(ino);
                    (ino, attrs.clone())
                });
                Entry { name: name.clone(), object }
            })
            .collect();
        if number == 0 {
            self.whole = Some(Listing { change: page.change, asked, changes, names: Vec::new() });
        }
        let in_order = number + 1 == self.parts.len();
        match &mut self.whole {
            Some(whole)
                if in_order && whole.change == page.change && whole.names.len() <= COMPLETE_DIR_MAX =>
            {
                whole.names.extend(entries.iter().map(|e| (e.name.clone(), e.object.as_ref().map(|o| o.0))));
                if page.eof
                    && let Some(whole) = self.whole.take()
                {
                    tree.listed(dir, whole);
                }
            }
            _ => self.whole = None,
        }
        // A page without entries that is not the last would be asked for for ever.
        let eof = page.eof || entries.is_empty();
        if in_order && !eof {
            let next = page.entries.last().map_or(cookie, |e| e.0);
            self.parts.push((first + entries.len() as u64, next, page.verifier));
        }
        self.current = Some((number, Part { entries, eof }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_no_part_has_any_more_is_lost() {
        let part = |count, eof| {
            let entry = || Entry { name: Bytes::from_static(b"n"), object: None };
            Part { entries: std::iter::repeat_with(entry).take(count).collect(), eof }
        };
        // Two parts of three entries; the first is read again and has one left.
        let parts = vec![(2, 0, Verifier::default()), (5, 7, Verifier::default())];
        let mut state = State { parts, current: Some((0, part(1, false))), ..State::default() };
        let lost: Vec<u64> = (0..9).filter(|at| state.is_lost(0, *at)).collect();
        // 5 and more are the second part's. A new file that is held back may have had the places 0 and 1.
        assert_eq!(lost, [0, 1, 3, 4]);
        // The end of the listing is no loss.
        state.current = Some((0, part(1, true)));
        assert!(!state.is_lost(0, 3));
    }
}
