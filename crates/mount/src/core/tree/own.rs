//! Directories of this mount's own: made here and not known to the server yet, or held by a write delegation.
//!
//! Memory has all names of such a directory and its attributes, so it answers for them, and takes changes of them before the server hears
//! of these ([`crate::core::pending`]). What a node is owed, the server has not heard of: until then its attributes are those in memory.
//!
//! | state | becomes |
//! |---|---|
//! | new: the server does not know it | delegated, by the reply to its creation; nobody's, if that gives no delegation |
//! | delegated | returning, when the server wants it back; nobody's, when the server has revoked it |
//! | returning: programs change nothing here until it is returned | nobody's |

use bytes::Bytes;
use landfast_nfs::v4::{FileHandle, NfsTime, Stateid};

use super::right::{Own, Right};
use super::{Known, Name, Node, Tree};
use crate::core::attrs::{Attrs, Set};
use crate::core::bugs::{Bug, bug};
use crate::core::{Ino, Time};
use crate::limits::{COMPLETE_DIR_MAX, NAMES_MAX};

/// What an own directory has under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    Node(Ino),
    /// It is there; what it is must be asked.
    Somebody,
    Nobody,
}

impl<F> Tree<F> {
    /// The right to a directory, if it is this mount's own.
    pub fn right(&self, dir: Ino) -> Option<Right> {
        self.own(dir).map(|own| own.right)
    }

    fn own(&self, dir: Ino) -> Option<&Own> {
        self.nodes.get(&dir)?.dir.as_ref()?.own.as_ref()
    }

    /// The delegation of a directory, also while it is being returned.
    pub fn stateid(&self, dir: Ino) -> Option<Stateid> {
        self.own(dir)?.stateid()
    }

    pub fn is_own(&self, dir: Ino) -> bool {
        self.own(dir).is_some()
    }

    /// Whether a user's changes of names in a directory need not be asked of the server.
    pub fn takes_changes(&self, dir: Ino, user: u32) -> bool {
        let own = self.own(dir);
        own.is_some_and(|own| !matches!(own.right, Right::Returning(_)) && own.users.contains(&user))
    }

    /// Whether an own directory has more names than memory is to have of one, or memory has too many in all.
    pub fn is_too_large(&self, dir: Ino) -> bool {
        let names = self.nodes.get(&dir).and_then(|n| n.dir.as_ref()).map_or(0, |d| d.names.len());
        names > COMPLETE_DIR_MAX || self.names > NAMES_MAX
    }

    /// A user may change names in an own directory, as the server says.
    pub fn admit(&mut self, dir: Ino, user: u32) {
        if let Some(own) = self.dir(dir).and_then(|d| d.own.as_mut())
            && !own.users.contains(&user)
        {
            own.users.push(user);
        }
    }

    /// Whether a node is only known to this mount, or is a directory of its own.
    pub(super) fn is_only_ours(&self, node: &Node<F>) -> bool {
        match &node.dir {
            Some(dir) if dir.own.is_some() => true,
            _ => node.unshared && node.place.as_ref().is_some_and(|(dir, _)| self.is_own(*dir)),
        }
    }

    /// Whether nobody else has ever been able to open this.
    pub fn is_unshared(&self, ino: Ino) -> bool {
        let node = self.nodes.get(&ino);
        node.is_some_and(|n| n.unshared && n.place.as_ref().is_some_and(|(dir, _)| self.is_own(*dir)))
    }

    /// It has, or had, a name that others may know.
    pub fn is_shared_now(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.unshared = false;
        }
    }

    /// A write delegation of a directory came, with all of its names known: it is new, or was listed under the delegation. `user`: who may
    /// change names in it, as far as is known.
    pub fn delegated(&mut self, ino: Ino, stateid: Stateid, user: Option<u32>) {
        let used = self.uses + 1;
        self.uses = used;
        if let Some(dir) = self.dir(ino) {
            match &mut dir.own {
                Some(own) => own.right = Right::Delegated(stateid),
                own => {
                    let users = user.into_iter().collect();
                    *own = Some(Own { right: Right::Delegated(stateid), users, used });
                }
            }
            dir.complete = true;
            dir.known.get_or_insert_with(|| Known::new(0, Time::ZERO));
        }
    }

    /// Takes the names of a directory that was delegated just now, instead of all that memory had.
    pub fn names_of_own(&mut self, ino: Ino, names: Vec<(Bytes, Option<Ino>)>) {
        let Some(dir) = self.dir(ino) else { return };
        let before = dir.forget_names();
        (dir.complete, dir.known) = (true, Some(Known::new(0, Time::ZERO)));
        let name = |ino: Option<Ino>| ino.map_or(Name::Somebody, Name::Node);
        dir.names = names.into_iter().map(|(n, ino)| (n, name(ino))).collect();
        let after = dir.names.len();
        self.names = self.names + after - before;
    }

    /// The server wants a delegation back. Returns the directory.
    pub fn recalled(&mut self, stateid: &Stateid) -> Option<Ino> {
        let dir = self.of_stateid(stateid)?;
        if !bug(Bug::RecallUnheeded)
            && let Some(own) = self.dir(dir).and_then(|d| d.own.as_mut())
        {
            own.right = Right::Returning(*stateid);
        }
        Some(dir)
    }

    /// The delegation of this directory is being returned.
    pub fn is_returning(&mut self, dir: Ino, stateid: Stateid) {
        if let Some(own) = self.dir(dir).and_then(|d| d.own.as_mut())
            && own.right == Right::Delegated(stateid)
        {
            own.right = Right::Returning(stateid);
        }
    }

    /// The delegations beyond `keep` that were of use least lately: nothing was changed in these directories for longest.
    pub fn idle_delegations(&self, keep: usize) -> Vec<(Ino, FileHandle, Stateid)> {
        let mut all = self.delegations();
        all.retain(|(ino, ..)| matches!(self.right(*ino), Some(Right::Delegated(_))));
        all.sort_unstable_by_key(|(ino, ..)| self.own(*ino).map(|own| own.used));
        all.truncate(all.len().saturating_sub(keep));
        all
    }

    /// A directory is used now.
    fn uses(&mut self, dir: Ino) {
        self.uses += 1;
        let now = self.uses;
        if let Some(own) = self.dir(dir).and_then(|d| d.own.as_mut()) {
            own.used = now;
        }
    }

    /// The directory that a stateid delegates.
    pub fn of_stateid(&self, stateid: &Stateid) -> Option<Ino> {
        let is = |node: &Node<F>| {
            let own = node.dir.as_ref().and_then(|d| d.own.as_ref()).and_then(Own::stateid);
            own.is_some_and(|own| own.other == stateid.other)
        };
        self.nodes.iter().find(|(_, node)| is(node)).map(|(ino, _)| *ino)
    }

    /// All delegations.
    pub fn delegations(&self) -> Vec<(Ino, FileHandle, Stateid)> {
        let own = |ino: Ino, node: &Node<F>| {
            let stateid = node.dir.as_ref()?.own.as_ref()?.stateid()?;
            Some((ino, node.handle.clone()?, stateid))
        };
        let mut all: Vec<_> = self.nodes.iter().filter_map(|(ino, node)| own(*ino, node)).collect();
        all.sort_unstable_by_key(|(ino, ..)| *ino);
        all
    }

    /// Delegations of directories that were forgotten.
    pub fn take_surplus(&mut self) -> Vec<(FileHandle, Stateid)> {
        std::mem::take(&mut self.surplus)
    }

    /// A directory is nobody's any more: others may change it.
    pub fn disown(&mut self, ino: Ino) {
        let Some(dir) = self.dir(ino).filter(|d| d.own.is_some()) else { return };
        dir.own = None;
        dir.changes += 1;
        let names: Vec<Ino> = dir.names.values().filter_map(|name| name.node()).collect();
        let count = dir.forget_names();
        self.names -= count;
        for node in names {
            if let Some(node) = self.nodes.get_mut(&node) {
                (node.unshared, node.asked) = (false, None);
            }
        }
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.asked = None;
        }
        self.drop_unused(ino);
    }

    /// What an own directory has under a name.
    pub fn entry(&self, dir: Ino, name: &[u8]) -> Entry {
        let dir = self.nodes.get(&dir).and_then(|n| n.dir.as_ref());
        match dir.and_then(|d| d.names.get(name)) {
            Some(Name::Node(ino)) if self.nodes.contains_key(ino) => Entry::Node(*ino),
            Some(Name::Node(_) | Name::Somebody) => Entry::Somebody,
            Some(Name::Nobody) | None => Entry::Nobody,
        }
    }

    /// All names of an own directory, in their order. `None`: of some the server must be asked what they are.
    pub fn entries(&self, dir: Ino) -> Option<Vec<(Bytes, Ino)>> {
        let dir = self.nodes.get(&dir)?.dir.as_ref().filter(|d| d.own.is_some())?;
        let mut all = Vec::with_capacity(dir.names.len());
        for (name, entry) in &dir.names {
            match entry {
                Name::Node(ino) if self.nodes.contains_key(ino) => all.push((name.clone(), *ino)),
                Name::Node(_) | Name::Somebody => return None,
                Name::Nobody => {}
            }
        }
        all.sort_unstable();
        Some(all)
    }

    /// Whether an own directory has no names.
    pub fn has_no_names(&self, dir: Ino) -> bool {
        let dir = self.nodes.get(&dir).and_then(|n| n.dir.as_ref());
        dir.is_some_and(|d| d.own.is_some() && d.names.values().all(|name| *name == Name::Nobody))
    }

    /// A new directory or symbolic link in an own directory. Returns its node.
    pub fn make_here(
        &mut self,
        dir: Ino,
        name: &Bytes,
        attrs: Attrs,
        text: Option<Bytes>,
        user: u32,
        now: Time,
    ) -> Ino {
        let ino = self.local();
        let is_dir = attrs.is_dir();
        let mut node = Node::new(None, attrs, now);
        (node.place, node.text) = (Some((dir, name.clone())), text);
        self.nodes.insert(ino, Box::new(node));
        if is_dir && let Some(new) = self.dir(ino) {
            new.own = Some(Own { right: Right::New, users: vec![user], used: 0 });
            (new.complete, new.known) = (true, Some(Known::new(0, now)));
        }
        self.make_own(dir, name, ino);
        ino
    }

    /// A new node gets its name in an own directory.
    pub(super) fn make_own(&mut self, dir: Ino, name: &Bytes, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.unshared = true;
        }
        self.set_name(dir, name, Name::Node(ino));
    }

    fn set_name(&mut self, dir: Ino, name: &Bytes, entry: Name) {
        if let Some(dir) = self.dir(dir) {
            dir.changes += 1;
            self.names += usize::from(dir.names.insert(name.clone(), entry).is_none());
        }
    }

    /// A name in an own directory is nobody's now. Its node has one name less.
    pub fn removed_here(&mut self, dir: Ino, name: &Bytes, clock: NfsTime) {
        let gone = self.entry(dir, name);
        if let Some(names) = self.dir(dir).map(|d| &mut d.names) {
            let count = usize::from(names.remove(name).is_some());
            self.names -= count;
        }
        if let Some(dir) = self.dir(dir) {
            dir.changes += 1;
        }
        if let Entry::Node(ino) = gone
            && let Some(node) = self.nodes.get_mut(&ino)
        {
            if node.place.as_ref().is_some_and(|(d, n)| *d == dir && n == name) {
                node.place = None;
            }
            node.attrs.links = if node.attrs.is_dir() { 0 } else { node.attrs.links.saturating_sub(1) };
            node.attrs.ctime = clock;
        }
    }

    /// A name in an own directory becomes another one.
    pub fn renamed_here(&mut self, dir: Ino, from: &Bytes, to: &Bytes, clock: NfsTime) {
        let Entry::Node(ino) = self.entry(dir, from) else { return };
        self.removed_here(dir, to, clock);
        if let Some(names) = self.dir(dir).map(|d| &mut d.names) {
            let count = usize::from(names.remove(from).is_some());
            self.names -= count;
        }
        self.set_name(dir, to, Name::Node(ino));
        if let Some(node) = self.nodes.get_mut(&ino) {
            (node.place, node.attrs.ctime) = (Some((dir, to.clone())), clock);
        }
    }

    /// An object has another name in a directory than programs gave it, which somebody else has.
    pub fn is_beside(&mut self, dir: Ino, ino: Ino, name: &Bytes) {
        let old = self.nodes.get(&ino).and_then(|node| node.place.clone()).filter(|(d, _)| *d == dir);
        if let Some((_, old)) = old
            && self.entry(dir, &old) == Entry::Node(ino)
        {
            self.unknown(dir, &old);
        }
        if let Some(node) = self.nodes.get_mut(&ino) {
            (node.place, node.unshared) = (Some((dir, name.clone())), false);
        }
        if self.is_own(dir) {
            self.set_name(dir, name, Name::Node(ino));
        }
    }

    /// The names of an own directory changed. `links`: directories more or less in it.
    pub fn touched(&mut self, dir: Ino, links: i32, clock: NfsTime) {
        self.uses(dir);
        if let Some(node) = self.nodes.get_mut(&dir) {
            (node.attrs.mtime, node.attrs.ctime) = (clock, clock);
            node.attrs.links = node.attrs.links.saturating_add_signed(links);
        }
    }

    /// Attributes are set here.
    pub fn set_here(&mut self, ino: Ino, set: &Set, clock: NfsTime) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.attrs.set(set, clock);
        }
    }

    /// The server will hear of a change that concerns a node. Replies to what was asked before say nothing new.
    pub fn owe(&mut self, ino: Ino, now: Time) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        node.owed += 1;
        node.pins += 1;
        node.floor = now;
        if node.attrs.is_dir() {
            self.keep(ino);
        }
    }

    /// The server has heard of one, or never will. [`Tree::changed`] follows, or the attributes are asked for.
    pub fn pay(&mut self, ino: Ino, now: Time) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.owed = node.owed.saturating_sub(1);
            node.floor = now;
            match node.attrs.is_dir() {
                true => self.unkeep(ino),
                false if node.owed == 0 => node.asked = None,
                false => {}
            }
        }
        self.unpin(ino);
    }

    /// Whether the server has not heard of all changes that concern a node.
    pub fn owes(&self, ino: Ino) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.owed > 0)
    }

    /// Keeps a directory in memory with those above it, until [`Tree::unkeep`] was called as often: the kernel forgets directories that no
    /// program is in, and whoever synchronizes one further up waits for this one, and is told of its errors.
    pub fn keep(&mut self, dir: Ino) {
        let (count, _) = self.kept.entry(dir).or_default();
        *count += 1;
        if *count > 1 {
            return;
        }
        let chain = self.pin_with_all_above(dir);
        self.kept.insert(dir, (1, chain));
    }

    /// Pins a directory and those above it. Returns them.
    fn pin_with_all_above(&mut self, dir: Ino) -> Vec<Ino> {
        let (mut at, mut chain) = (Some(dir), Vec::new());
        while let Some(ino) = at.filter(|ino| self.nodes.contains_key(ino) && !chain.contains(ino)) {
            self.pin(ino);
            chain.push(ino);
            at = self.above(ino);
        }
        chain
    }

    /// A directory was moved to another one. If it, or directories below it, are kept, those above it now are kept with them, in place of those
    /// that were above it before.
    pub fn keep_where_moved(&mut self, moved: Ino) {
        let below = self.kept.iter().filter(|(_, (_, chain))| chain.contains(&moved));
        let below: Vec<Ino> = below.map(|(dir, _)| *dir).collect();
        for dir in below {
            let chain = self.pin_with_all_above(dir);
            let Some((_, kept)) = self.kept.get_mut(&dir) else { continue };
            let before = std::mem::replace(kept, chain);
            before.into_iter().for_each(|ino| self.unpin(ino));
        }
    }

    pub fn unkeep(&mut self, dir: Ino) {
        let Some((count, _)) = self.kept.get_mut(&dir) else { return };
        *count -= 1;
        if *count == 0
            && let Some((_, chain)) = self.kept.remove(&dir)
        {
            chain.into_iter().for_each(|ino| self.unpin(ino));
        }
    }

    /// Changes that concern nodes and that the server has not heard of.
    #[cfg(test)]
    pub(crate) fn owing(&self) -> u32 {
        self.nodes.values().map(|node| node.owed).sum()
    }

    /// The parent of a node, as far as it is known.
    pub fn above(&self, ino: Ino) -> Option<Ino> {
        self.nodes.get(&ino)?.place.as_ref().map(|(dir, _)| *dir)
    }

    /// The directories above a node, as far as they are known, the nearest first.
    pub fn all_above(&self, ino: Ino) -> Vec<Ino> {
        let (mut all, mut passed) = (Vec::new(), std::collections::HashSet::from([ino]));
        let mut at = ino;
        while let Some(above) = self.above(at).filter(|above| passed.insert(*above)) {
            all.push(above);
            at = above;
        }
        all
    }

    /// Whether a node is `top`, or below it. `None`: a directory above it was forgotten.
    pub fn is_below(&self, ino: Ino, top: Ino) -> Option<bool> {
        let (mut at, mut passed) = (ino, std::collections::HashSet::new());
        while at != top {
            match self.nodes.get(&at)?.place.as_ref().filter(|_| passed.insert(at)) {
                Some((above, _)) => at = *above,
                None => return Some(false),
            }
        }
        Some(true)
    }

    /// Whether `top` is above a directory, and neither it nor one between them is this mount's own: who comes into `top` gets there.
    pub fn is_open_from(&self, dir: Ino, top: Ino) -> bool {
        let (mut at, mut passed) = (dir, std::collections::HashSet::new());
        while at != top {
            match self.above(at).filter(|_| !self.is_own(at) && passed.insert(at)) {
                Some(above) => at = above,
                None => return false,
            }
        }
        true
    }
}

impl Name {
    fn node(&self) -> Option<Ino> {
        match self {
            Name::Node(ino) => Some(*ino),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tree::{Ages, Found, ROOT};
    use landfast_nfs::v4::FileType;
    use landfast_nfs::v4::attr::AttrValues;

    const NOW: NfsTime = NfsTime { seconds: 7, nseconds: 0 };

    fn attrs(kind: FileType) -> Attrs {
        Attrs::of(&AttrValues { kind: Some(kind), ..AttrValues::default() }, |_, _| 0).unwrap()
    }

    fn handle(n: u8) -> FileHandle {
        FileHandle(Bytes::from(vec![n]))
    }

    fn stateid(n: u8) -> Stateid {
        Stateid { seqid: 1, other: [n; 12] }
    }

    fn tree() -> Tree<()> {
        let ages = Ages { files: Time::from_secs(1), dirs: Time::from_secs(1) };
        let mut tree = Tree::new(handle(1), attrs(FileType::Dir), Time::ZERO, ages);
        tree.delegated(ROOT, stateid(1), Some(0));
        tree
    }

    fn name(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn memory_answers_for_a_delegated_directory_however_old_it_is_until_it_is_returned() {
        let mut tree = tree();
        let late = Time::from_secs(99);
        let d = tree.make_here(ROOT, &name("d"), attrs(FileType::Dir), None, 0, Time::ZERO);
        tree.owe(d, Time::ZERO);
        tree.refer(d);
        assert_eq!(tree.lookup(ROOT, b"d", late), Found::Node(d));
        assert_eq!(tree.lookup(ROOT, b"e", late), Found::Nobody);
        assert_eq!(tree.lookup(d, b"x", late), Found::Nobody);
        tree.made(d, handle(2), Some(attrs(FileType::Dir)), late);
        tree.delegated(d, stateid(2), Some(0));
        tree.pay(d, late);
        assert_eq!(
            (tree.right(d), tree.entry(ROOT, b"d")),
            (Some(Right::Delegated(stateid(2))), Entry::Node(d))
        );
        assert!(tree.takes_changes(ROOT, 0) && !tree.takes_changes(ROOT, 5));
        assert_eq!(tree.recalled(&stateid(1)), Some(ROOT));
        assert!(!tree.takes_changes(ROOT, 0));
        assert_eq!(tree.lookup(ROOT, b"e", late), Found::Nobody);
        tree.disown(ROOT);
        assert_eq!(tree.lookup(ROOT, b"e", late), Found::Ask);
        assert_eq!(tree.lookup(ROOT, b"d", late), Found::Ask);
        assert_eq!(tree.names(), 0);
    }

    #[test]
    fn replies_do_not_undo_what_the_server_has_not_heard_of() {
        let mut tree = tree();
        let f = tree.node(&handle(3), attrs(FileType::Reg), Time::ZERO);
        tree.named(ROOT, &name("f"), Some(f));
        tree.pin(f);
        tree.owe(f, Time::from_secs(1));
        tree.set_here(f, &Set { mode: Some(0o600), ..Set::default() }, NOW);
        tree.learn(f, attrs(FileType::Reg), Time::from_secs(2));
        assert_eq!(tree.fresh(f, Time::from_secs(50)).unwrap().mode, 0o600);
        tree.pay(f, Time::from_secs(60));
        tree.learn(f, attrs(FileType::Reg), Time::from_secs(59));
        assert_eq!(tree.get(f).unwrap().attrs.mode, 0o600);
        tree.learn(f, attrs(FileType::Reg), Time::from_secs(61));
        assert_eq!(tree.get(f).unwrap().attrs.mode, 0);
    }

    #[test]
    fn those_are_returned_first_in_which_nothing_was_changed_for_longest() {
        let mut tree = tree();
        let dirs: Vec<Ino> = (2..5u8)
            .map(|n| {
                let d = tree.node(&handle(n), attrs(FileType::Dir), Time::ZERO);
                tree.delegated(d, stateid(n), Some(0));
                d
            })
            .collect();
        tree.touched(ROOT, 0, NOW);
        tree.touched(dirs[0], 0, NOW);
        let idle =
            |tree: &Tree<()>, keep| tree.idle_delegations(keep).iter().map(|(d, ..)| *d).collect::<Vec<_>>();
        assert_eq!(idle(&tree, 2), [dirs[1], dirs[2]]);
        assert_eq!(idle(&tree, 0), [dirs[1], dirs[2], ROOT, dirs[0]]);
        assert!(idle(&tree, 4).is_empty() && idle(&tree, 9).is_empty());
        tree.is_returning(dirs[1], stateid(3));
        assert_eq!(idle(&tree, 2), [dirs[2]], "that one goes already");
    }

    #[test]
    fn names_are_made_moved_and_removed_here() {
        let mut tree = tree();
        let make = |tree: &mut Tree<()>, text| {
            tree.make_here(ROOT, &name(text), attrs(FileType::Lnk), Some(name("t")), 0, Time::ZERO)
        };
        let (a, b) = (make(&mut tree, "a"), make(&mut tree, "b"));
        assert_eq!(tree.entries(ROOT), Some(vec![(name("a"), a), (name("b"), b)]));
        tree.renamed_here(ROOT, &name("a"), &name("b"), NOW);
        assert_eq!(tree.entries(ROOT), Some(vec![(name("b"), a)]));
        assert_eq!((tree.above(a), tree.above(b)), (Some(ROOT), None));
        tree.removed_here(ROOT, &name("b"), NOW);
        assert!(tree.has_no_names(ROOT));
        assert_eq!(tree.names(), 0);
    }

    #[test]
    fn a_directory_that_is_kept_is_kept_where_a_directory_above_it_was_moved_to() {
        let mut tree = tree();
        let dirs @ [old, new, moved, kept]: [Ino; 4] =
            [2, 3, 4, 5].map(|n| tree.node(&handle(n), attrs(FileType::Dir), Time::ZERO));
        for (above, dir, text) in
            [(ROOT, old, "old"), (ROOT, new, "new"), (old, moved, "d"), (moved, kept, "kept")]
        {
            tree.named(above, &name(text), Some(dir));
            tree.refer(dir);
        }
        tree.keep(kept);
        tree.keep(kept);
        tree.named(new, &name("d"), Some(moved));
        tree.keep_where_moved(moved);
        dirs.into_iter().for_each(|dir| tree.forget(dir, 1));
        assert_eq!((tree.is_below(kept, new), tree.get(old).is_some()), (Some(true), false));
        tree.unkeep(kept);
        assert_eq!(tree.is_below(kept, new), Some(true), "it is kept once more");
        tree.unkeep(kept);
        assert!([new, moved, kept].into_iter().all(|dir| tree.get(dir).is_none()));
    }

    #[test]
    fn the_delegation_of_a_directory_that_is_forgotten_is_to_be_returned() {
        let mut tree = tree();
        let d = tree.node(&handle(2), attrs(FileType::Dir), Time::ZERO);
        tree.delegated(d, stateid(2), Some(0));
        tree.refer(d);
        assert!(tree.take_surplus().is_empty());
        tree.forget(d, 1);
        assert_eq!(tree.take_surplus(), [(handle(2), stateid(2))]);
    }
}
