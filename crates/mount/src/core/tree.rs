//! Nodes and names: what the server has said, and until when it may be answered from memory.
//!
//! A node is an object that the kernel knows, or that the mount itself works on. It keeps its number for its life. The number is the
//! server's fileid, unless another live node has that, or the node was made here before the server knew it: then it is one of the
//! mount's own, from 2^63 on.
//!
//! A directory may be this mount's own ([`own`]): then memory knows all of its names, and nobody else changes them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use bytes::Bytes;
use landfast_nfs::v4::{ChangeInfo, FileHandle, FileType, Stateid};

use super::attrs::Attrs;
use super::change::Known;
use super::{Ino, Time};
use crate::limits::{COMPLETE_DIR_MAX, HOLD_AGE, LISTED_NODES_MAX, NAMES_MAX, NODES_GIVEN_BACK, NODES_MAX};

pub mod own;
pub mod right;

use right::Own;

/// The number of the mount's top directory.
pub const ROOT: Ino = 1;
/// The first number of the mount's own.
const LOCAL: Ino = 1 << 63;

/// An object. `F` is what the mount keeps for an open file.
#[derive(Debug)]
pub struct Node<F> {
    /// `None`: the server does not know it yet.
    pub handle: Option<FileHandle>,
    pub attrs: Attrs,
    /// The request that brought the attributes was sent then. `None`: they may be false.
    asked: Option<Time>,
    /// Replies to requests sent before say nothing new.
    floor: Time,
    /// References of the kernel.
    lookups: u64,
    /// References of the mount itself: open files, directories that are being listed.
    pins: u32,
    /// Where it was found last: directory and name.
    pub place: Option<(Ino, Bytes)>,
    dir: Option<Box<Dir>>,
    /// It is in the tree's queue of listed nodes.
    listed: bool,
    pub file: Option<Arc<F>>,
    /// The kernel's pages are those of the file at this change attribute.
    pub pages: Option<u64>,
    /// It was opened, so the kernel may have pages of it.
    pub opened: bool,
    /// Changes that concern it and that the server has not heard of: its attributes are those in memory.
    owed: u32,
    /// It was made here, and has had no name but in directories of this mount's own: nobody else knows it.
    unshared: bool,
    /// The text of a symbolic link that was made here.
    pub text: Option<Bytes>,
}

#[derive(Debug, Default)]
struct Dir {
    known: Option<Known>,
    /// All names are in `names`.
    complete: bool,
    /// New files are being made in it, so it is worth knowing all its names. `Some(false)`: there are too many.
    filling: Option<bool>,
    names: HashMap<Bytes, Name>,
    /// New files that the server does not know yet.
    held: HashMap<Bytes, Ino>,
    /// Changes of ours begun and ended so far.
    changes: u64,
    /// Nobody else changes the names, or looks at them.
    own: Option<Own>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Node(Ino),
    /// It is there; the server must be asked what it is.
    Somebody,
    Nobody,
}

/// What memory knows of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Node(Ino),
    Nobody,
    /// The server must be asked.
    Ask,
}

/// The names of a directory as a whole listing gave them.
#[derive(Debug)]
pub struct Listing {
    /// The directory's change attribute in all its parts.
    pub change: u64,
    /// When it was begun, and how many changes of ours there were then.
    pub asked: Time,
    pub changes: u64,
    pub names: Vec<(Bytes, Option<Ino>)>,
}

#[derive(Debug)]
pub struct Tree<F> {
    /// In boxes: the table is twice as large as what is in it, and for a moment there are two of them.
    nodes: HashMap<Ino, Box<Node<F>>>,
    handles: HashMap<FileHandle, Ino>,
    next_local: Ino,
    /// Nodes that a listing told of, the oldest first. The kernel may never refer to them.
    listed: VecDeque<Ino>,
    /// Names in all directories.
    names: usize,
    ages: Ages,
    /// Delegations of directories that were forgotten: to be returned.
    surplus: Vec<(FileHandle, Stateid)>,
    /// Changes in own directories so far.
    uses: u64,
    /// Directories that are kept in memory with those above them: how often, and which.
    kept: HashMap<Ino, (u32, Vec<Ino>)>,
}

/// How old answers from memory may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ages {
    /// Attributes of files, names that lead to files, names that are not there.
    pub files: Time,
    /// Attributes of directories, names that lead to directories.
    pub dirs: Time,
}

impl<F> Tree<F> {
    /// A tree with nothing but its top.
    pub fn new(handle: FileHandle, attrs: Attrs, now: Time, ages: Ages) -> Tree<F> {
        let mut tree = Tree {
            nodes: HashMap::new(),
            handles: HashMap::new(),
            next_local: LOCAL,
            listed: VecDeque::new(),
            names: 0,
            ages,
            surplus: Vec::new(),
            uses: 0,
            kept: HashMap::new(),
        };
        let mut node = Node::new(Some(handle.clone()), attrs, now);
        // The kernel never forgets it.
        node.lookups = 1;
        tree.nodes.insert(ROOT, Box::new(node));
        tree.handles.insert(handle, ROOT);
        tree
    }

    pub fn get(&self, ino: Ino) -> Option<&Node<F>> {
        self.nodes.get(&ino).map(Box::as_ref)
    }

    pub fn get_mut(&mut self, ino: Ino) -> Option<&mut Node<F>> {
        self.nodes.get_mut(&ino).map(Box::as_mut)
    }

    /// Nodes in memory.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never: the top is there.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Names in memory.
    pub fn names(&self) -> usize {
        self.names
    }

    /// Files of which something is open or on its way.
    pub fn files(&self) -> impl Iterator<Item = (Ino, &Arc<F>)> {
        self.nodes.iter().filter_map(|(ino, n)| Some((*ino, n.file.as_ref()?)))
    }

    /// The path of a node from the mount's top, as far as it is known.
    pub fn path(&self, ino: Ino) -> String {
        let mut parts = Vec::new();
        let (mut at, mut passed) = (ino, HashSet::new());
        while at != ROOT && passed.insert(at) {
            match self.nodes.get(&at).and_then(|n| n.place.as_ref()) {
                Some((dir, name)) => {
                    parts.push(String::from_utf8_lossy(name).into_owned());
                    at = *dir;
                }
                None => {
                    parts.push("...".to_owned());
                    break;
                }
            }
        }
        parts.reverse();
        parts.join("/")
    }

    /// The attributes, if they may be answered from memory.
    pub fn fresh(&self, ino: Ino, now: Time) -> Option<&Attrs> {
        let node = self.nodes.get(&ino)?;
        let age = if node.attrs.is_dir() { self.ages.dirs } else { self.ages.files };
        let ours = node.handle.is_none() || node.owed > 0 || node.asked.is_some() && self.is_only_ours(node);
        let fresh = ours || node.asked.is_some_and(|at| now.saturating_sub(at) < age);
        fresh.then_some(&node.attrs)
    }

    /// What memory knows of `name` in `dir`.
    pub fn lookup(&self, dir: Ino, name: &[u8], now: Time) -> Found {
        let to_dir =
            self.named_node(dir, name).and_then(|ino| self.get(ino)).is_some_and(|n| n.attrs.is_dir());
        let age = if to_dir { self.ages.dirs } else { self.ages.files };
        match self.lookup_within(dir, name, now, age) {
            Found::Node(ino) if self.fresh(ino, now).is_none() => Found::Ask,
            found => found,
        }
    }

    /// Whether a new file of this name may be held back: nobody had the name when the server was asked, a moment ago.
    pub fn is_free(&self, dir: Ino, name: &[u8], now: Time) -> bool {
        self.lookup_within(dir, name, now, self.ages.files.max(HOLD_AGE)) == Found::Nobody
    }

    fn lookup_within(&self, dir: Ino, name: &[u8], now: Time, age: Time) -> Found {
        let Some(dir) = self.nodes.get(&dir).and_then(|n| n.dir.as_ref()) else { return Found::Ask };
        if let Some(ino) = dir.held.get(name) {
            return Found::Node(*ino);
        }
        if dir.own.is_none() && !dir.known.as_ref().is_some_and(|known| known.is_fresh(now, age)) {
            return Found::Ask;
        }
        match dir.names.get(name) {
            Some(Name::Node(ino)) if self.nodes.contains_key(ino) => Found::Node(*ino),
            Some(Name::Nobody) => Found::Nobody,
            None if dir.complete => Found::Nobody,
            _ => Found::Ask,
        }
    }

    /// The node of an object, which may be new.
    pub fn node(&mut self, handle: &FileHandle, attrs: Attrs, asked: Time) -> Ino {
        if let Some(ino) = self.handles.get(handle) {
            let ino = *ino;
            self.learn(ino, attrs, asked);
            return ino;
        }
        let wanted = self.number_of(&attrs);
        let ino = match wanted > ROOT && wanted < LOCAL && !self.nodes.contains_key(&wanted) {
            true => wanted,
            false => self.local(),
        };
        self.nodes.insert(ino, Box::new(Node::new(Some(handle.clone()), attrs, asked)));
        self.handles.insert(handle.clone(), ino);
        ino
    }

    /// The number that an object of the server is to have whenever it is seen. The mount is one filesystem for programs, also where the server has
    /// several below its root: then the same number may be that of two objects, and `tar` would take them for links of one file.
    fn number_of(&self, attrs: &Attrs) -> Ino {
        let same = self.nodes.get(&ROOT).is_none_or(|root| root.attrs.fsid == attrs.fsid);
        if same {
            return attrs.fileid;
        }
        let mut hasher = std::hash::DefaultHasher::new();
        (attrs.fsid.major, attrs.fsid.minor, attrs.fileid).hash(&mut hasher);
        hasher.finish() % LOCAL
    }

    /// A number that no node has had.
    fn local(&mut self) -> Ino {
        self.next_local += 1;
        self.next_local
    }

    /// Takes attributes from a reply to a request sent at `asked`.
    pub fn learn(&mut self, ino: Ino, attrs: Attrs, asked: Time) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        if asked < node.floor || node.asked.is_some_and(|at| at > asked) {
            return;
        }
        if node.owed > 0 {
            return node.has_size(&attrs);
        }
        node.asked = Some(asked);
        let change = attrs.change;
        node.attrs = attrs;
        self.seen(ino, change, asked);
    }

    /// Takes attributes that a change of ours left behind, beside which there was no other. Replies to requests sent before `now` say nothing
    /// new. Of a file that is open, this and [`Tree::changed_since`] are for replies received under its turn: their size is the last.
    pub fn changed(&mut self, ino: Ino, attrs: Option<Attrs>, now: Time) {
        self.changed_since(now, ino, attrs, now);
    }

    /// The same of a change that was sent at `sent`. If another one of ours has ended since, nobody knows which of the two was the last: the
    /// server is asked.
    pub fn changed_since(&mut self, sent: Time, ino: Ino, attrs: Option<Attrs>, now: Time) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        let alone = sent >= node.floor;
        node.floor = now;
        match attrs {
            // What programs have changed since is behind it.
            Some(attrs) if node.owed > 0 => {
                node.attrs.change = attrs.change;
                node.has_size(&attrs);
            }
            None if node.owed > 0 => {}
            Some(attrs) => (node.attrs, node.asked) = (attrs, alone.then_some(now)),
            None => node.asked = None,
        }
    }

    /// The same of a change that leaves the data as it is and is not made under the file's turn. `alone`: nothing of ours has ended since it
    /// was sent. If something has, that may have been a WRITE whose reply brought the size.
    pub fn changed_beside_data(&mut self, alone: bool, ino: Ino, attrs: Option<Attrs>, now: Time) {
        let Some(node) = self.nodes.get(&ino) else { return };
        if alone || node.attrs.kind != FileType::Reg {
            return self.changed(ino, attrs, now);
        }
        let size = node.attrs.size;
        self.changed(ino, attrs.map(|attrs| Attrs { size, ..attrs }), now);
        if let Some(node) = self.nodes.get_mut(&ino).filter(|node| node.owed == 0) {
            node.asked = None;
        }
    }

    /// Whether nothing of ours has ended, and nothing more is owed, since a request was sent at `sent`.
    pub fn is_alone_since(&self, ino: Ino, sent: Time) -> bool {
        self.nodes.get(&ino).is_none_or(|node| node.floor < sent)
    }

    /// A reply shows a directory's change attribute.
    fn seen(&mut self, dir: Ino, change: u64, asked: Time) {
        let Some(dir) = self.nodes.get_mut(&dir).and_then(|n| n.dir.as_mut()) else { return };
        if dir.own.is_none() && dir.known.as_mut().is_some_and(|known| !known.seen(change, asked)) {
            self.names -= dir.forget_names();
        }
    }

    fn dir(&mut self, ino: Ino) -> Option<&mut Dir> {
        let node = self.nodes.get_mut(&ino).filter(|n| n.attrs.is_dir())?;
        Some(node.dir.get_or_insert_default())
    }

    /// Takes the reply to a LOOKUP sent at `asked`, when `changes` of ours had been made. `change` is the directory's attribute
    /// before it. Returns the node.
    pub fn looked_up(
        &mut self,
        dir: Ino,
        name: &Bytes,
        (change, asked, changes): (u64, Time, u64),
        found: Option<(FileHandle, Attrs)>,
    ) -> Option<Ino> {
        self.seen(dir, change, asked);
        let ino = found.map(|(handle, attrs)| self.node(&handle, attrs, asked));
        if let Some(node) = ino.and_then(|ino| self.nodes.get_mut(&ino)) {
            node.place = Some((dir, name.clone()));
        }
        if let Some(dir) = self.dir(dir)
            && dir.changes == changes
        {
            let known = dir.known.get_or_insert_with(|| Known::new(change, asked));
            if dir.own.is_some() || known.verified() <= asked {
                let entry = ino.map_or(Name::Nobody, Name::Node);
                self.names += usize::from(dir.names.insert(name.clone(), entry).is_none());
            }
        }
        self.bound_names();
        ino
    }

    /// A new file goes into the directory: its names are worth knowing.
    pub fn fills(&mut self, dir: Ino) {
        if let Some(dir) = self.dir(dir) {
            dir.filling.get_or_insert(true);
        }
    }

    /// Whether all names of the directory should be asked for with the next one.
    pub fn wants_names(&self, dir: Ino) -> bool {
        let dir = self.nodes.get(&dir).and_then(|n| n.dir.as_ref());
        dir.is_some_and(|d| d.filling == Some(true) && !d.complete)
    }

    /// The directory has too many names, or they cannot be read.
    pub fn is_large(&mut self, dir: Ino) {
        if let Some(dir) = self.dir(dir) {
            dir.filling = Some(false);
        }
    }

    /// How many changes of ours a directory has had; to be told with the reply to what is asked now.
    pub fn changes(&self, dir: Ino) -> u64 {
        self.nodes.get(&dir).and_then(|n| n.dir.as_ref()).map_or(0, |d| d.changes)
    }

    /// Takes a whole listing. If nothing has changed meanwhile, all names of the directory are known.
    pub fn listed(&mut self, dir: Ino, listing: Listing) {
        if listing.names.len() > COMPLETE_DIR_MAX {
            return;
        }
        self.seen(dir, listing.change, listing.asked);
        let Some(dir) = self.dir(dir) else { return };
        let later = dir.known.as_ref().is_some_and(|k| k.verified() > listing.asked);
        if dir.own.is_some() || dir.changes != listing.changes || later {
            return;
        }
        let before = dir.forget_names();
        dir.known = Some(Known::new(listing.change, listing.asked));
        dir.complete = true;
        let name = |ino: Option<Ino>| ino.map_or(Name::Somebody, Name::Node);
        dir.names = listing.names.into_iter().map(|(n, ino)| (n, name(ino))).collect();
        let after = dir.names.len();
        self.names = self.names + after - before;
        self.bound_names();
    }

    /// A change of names in `dir` is sent.
    pub fn begin(&mut self, dir: Ino) {
        if let Some(dir) = self.dir(dir) {
            dir.changes += 1;
            if let Some(known) = &mut dir.known {
                known.begin();
            }
        }
    }

    /// The reply to it came, which was sent at `asked`. `change`: what the server tells of the directory, if anything, and its
    /// attributes afterwards; `None`: nothing was changed.
    pub fn end(
        &mut self,
        dir: Ino,
        change: Option<(Option<ChangeInfo>, Option<Attrs>)>,
        asked: Time,
        now: Time,
    ) {
        let failed = change.is_none();
        let (change, attrs) = change.unwrap_or_default();
        if !failed {
            self.changed_since(asked, dir, attrs, now);
        }
        let Some(dir) = self.dir(dir) else { return };
        dir.changes += 1;
        let ours = dir.known.as_mut().is_none_or(|known| known.end(change, failed, asked));
        if !ours && dir.own.is_none() {
            self.names -= dir.forget_names();
        }
    }

    /// `name` in `dir` is `ino` now, or nobody.
    pub fn named(&mut self, dir: Ino, name: &Bytes, ino: Option<Ino>) {
        if let Some(node) = ino.and_then(|ino| self.nodes.get_mut(&ino)) {
            node.place = Some((dir, name.clone()));
        }
        if let Some(dir) = self.dir(dir)
            && dir.known.is_some()
        {
            let entry = ino.map_or(Name::Nobody, Name::Node);
            self.names += usize::from(dir.names.insert(name.clone(), entry).is_none());
        }
        self.bound_names();
    }

    /// A name of which memory does not say what it leads to has become another one. An open file that was found under it is there now:
    /// version 4.0 opens it by its name. Looks at all nodes.
    pub fn open_file_moved(&mut self, (from, oldname): (Ino, &Bytes), (to, newname): (Ino, &Bytes)) {
        let moved = self.nodes.values_mut().filter(|node| {
            let place = node.place.as_ref();
            node.file.is_some() && place.is_some_and(|(dir, name)| *dir == from && name == oldname)
        });
        for node in moved {
            node.place = Some((to, newname.clone()));
        }
    }

    /// The node that memory has for `name`, however old that is.
    pub fn named_node(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        let dir = self.nodes.get(&dir)?.dir.as_ref()?;
        match dir.held.get(name).map(|ino| Name::Node(*ino)).or(dir.names.get(name).copied())? {
            Name::Node(ino) => Some(ino).filter(|ino| self.nodes.contains_key(ino)),
            _ => None,
        }
    }

    /// A directory that was just made, empty, with all its names known.
    pub fn made_dir(&mut self, ino: Ino, now: Time) {
        let Some(change) = self.nodes.get(&ino).map(|n| n.attrs.change) else { return };
        if let Some(dir) = self.dir(ino).filter(|d| d.names.is_empty() && d.held.is_empty()) {
            (dir.known, dir.complete) = (Some(Known::new(change, now)), true);
        }
    }

    /// A new file that is held back. Returns its node, referred to by the mount.
    pub fn hold(&mut self, dir: Ino, name: &Bytes, attrs: Attrs, file: Arc<F>, now: Time) -> Ino {
        let ino = self.local();
        let mut node = Node::new(None, attrs, now);
        node.place = Some((dir, name.clone()));
        (node.file, node.pins) = (Some(file), 1);
        self.nodes.insert(ino, Box::new(node));
        match self.dir(dir) {
            Some(own) if own.own.is_some() => self.make_own(dir, name, ino),
            Some(dir) => _ = dir.held.insert(name.clone(), ino),
            None => {}
        }
        ino
    }

    /// A held file is on the server. A listing may have made another node of it meanwhile, which nobody has open: it loses the handle, so
    /// that all who look the file up from now on get the node that has its data. One that is open keeps it.
    pub fn made(&mut self, ino: Ino, handle: FileHandle, attrs: Option<Attrs>, now: Time) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        node.handle = Some(handle.clone());
        let place = node.place.clone();
        self.changed(ino, attrs, now);
        let other = self.handles.get(&handle).and_then(|other| self.nodes.get(other));
        if other.is_none_or(|other| other.file.is_none()) {
            self.handles.insert(handle, ino);
        }
        if let Some((dir, name)) = place.filter(|(dir, _)| !self.is_own(*dir)) {
            self.unhold(dir, &name);
            self.named(dir, &name, Some(ino));
        }
    }

    /// A held file was given up.
    pub fn unhold(&mut self, dir: Ino, name: &Bytes) {
        if let Some(dir) = self.dir(dir) {
            dir.held.remove(name);
        }
    }

    /// `name` in `dir` is somebody: the server must be asked who.
    pub fn unknown(&mut self, dir: Ino, name: &Bytes) {
        if let Some(dir) = self.dir(dir)
            && dir.known.is_some()
        {
            self.names += usize::from(dir.names.insert(name.clone(), Name::Somebody).is_none());
        }
    }

    /// Names of held files in a directory.
    pub fn held_in(&self, dir: Ino) -> Vec<(Bytes, Ino)> {
        let dir = self.nodes.get(&dir).and_then(|n| n.dir.as_ref());
        let held = dir.into_iter().flat_map(|d| d.held.iter().map(|(n, ino)| (n.clone(), *ino)));
        let mut held: Vec<(Bytes, Ino)> = held.collect();
        held.sort_unstable();
        held
    }

    /// The kernel gets a reference.
    pub fn refer(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.lookups += 1;
        }
    }

    /// The kernel gives references back.
    pub fn forget(&mut self, ino: Ino, count: u64) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.lookups = node.lookups.saturating_sub(count);
        }
        self.drop_unused(ino);
    }

    /// A listing told of a node. Of such nodes only the last ones are kept, if nobody refers to them.
    pub fn is_listed(&mut self, ino: Ino) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        if std::mem::replace(&mut node.listed, true) {
            return;
        }
        self.listed.push_back(ino);
        if self.listed.len() > LISTED_NODES_MAX
            && let Some(oldest) = self.listed.pop_front()
        {
            if let Some(node) = self.nodes.get_mut(&oldest) {
                node.listed = false;
            }
            self.drop_unused(oldest);
        }
    }

    /// Names of files that the kernel could forget, if it refers to so many nodes that memory must be given back; the ones of which the
    /// server has told nothing for longest. Directories are not among them, since programs may be in them, nor is what is open.
    pub fn surplus(&self) -> Vec<(Ino, Bytes)> {
        if self.nodes.len() <= NODES_MAX {
            return Vec::new();
        }
        let idle = |node: &Node<F>| {
            node.lookups > 0
                && node.pins == 0
                && node.file.is_none()
                && node.handle.is_some()
                && node.place.is_some()
                && !node.attrs.is_dir()
        };
        let mut all: Vec<(Option<Time>, Ino)> =
            self.nodes.iter().filter(|(_, node)| idle(node)).map(|(ino, node)| (node.asked, *ino)).collect();
        let wanted = self.nodes.len() - (NODES_MAX - NODES_GIVEN_BACK);
        if wanted < all.len() {
            all.select_nth_unstable(wanted);
            all.truncate(wanted);
        }
        all.iter().filter_map(|(_, ino)| self.nodes.get(ino)?.place.clone()).collect()
    }

    pub fn pin(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.pins += 1;
        }
    }

    pub fn unpin(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.pins = node.pins.saturating_sub(1);
        }
        self.drop_unused(ino);
    }

    fn drop_unused(&mut self, ino: Ino) {
        let unused = self.nodes.get(&ino).is_some_and(|n| {
            n.lookups == 0
                && n.pins == 0
                && n.file.is_none()
                && n.dir.as_ref().is_none_or(|d| d.held.is_empty())
        });
        if !unused || ino == ROOT {
            return;
        }
        let Some(mut node) = self.nodes.remove(&ino) else { return };
        let own = node.dir.as_mut().and_then(|d| d.own.take());
        self.names -= node.dir.map_or(0, |d| d.names.len());
        if let (Some(handle), Some(stateid)) = (&node.handle, own.and_then(|own| own.stateid())) {
            self.surplus.push((handle.clone(), stateid));
        }
        if let Some(handle) = node.handle
            && self.handles.get(&handle) == Some(&ino)
        {
            self.handles.remove(&handle);
        }
    }

    /// Forgets names until there are few enough.
    fn bound_names(&mut self) {
        if self.names <= NAMES_MAX {
            return;
        }
        let mut left = self.names;
        for dir in self.nodes.values_mut().filter_map(|n| n.dir.as_mut()).filter(|d| d.own.is_none()) {
            if left <= NAMES_MAX / 2 {
                break;
            }
            left -= dir.forget_names();
        }
        self.names = left;
    }
}

impl<F> Node<F> {
    /// A reply told the size of a file. No change that waits here has one: what programs have written is in the file's own data.
    fn has_size(&mut self, attrs: &Attrs) {
        if self.attrs.kind == FileType::Reg && self.handle.is_some() {
            self.attrs.size = attrs.size;
        }
    }

    fn new(handle: Option<FileHandle>, attrs: Attrs, asked: Time) -> Node<F> {
        Node {
            handle,
            attrs,
            asked: Some(asked),
            floor: Time::ZERO,
            lookups: 0,
            pins: 0,
            place: None,
            dir: None,
            listed: false,
            file: None,
            pages: None,
            opened: false,
            owed: 0,
            unshared: false,
            text: None,
        }
    }
}

impl Dir {
    /// Returns how many there were.
    fn forget_names(&mut self) -> usize {
        let count = self.names.len();
        (self.known, self.complete, self.names) = (None, false, HashMap::new());
        count
    }
}

#[cfg(test)]
mod tests;
