//! Changes that are made here, in directories of this mount's own, and sent later. Each returns `None` where the server must be asked.

use bytes::Bytes;
use landfast_nfs::v4::FileType;
use landfast_nfs::v4::attr::AttrValues;

use super::changes;
use super::room;
use super::shared::{Open, Shared};
use crate::core::Ino;
use crate::core::attrs::{Attrs, Set};
use crate::core::pending::What;
use crate::core::space::Needs;
use crate::core::tree::Tree;
use crate::core::tree::own::Entry;
use crate::core::tree::right::Right;
use crate::errno::Errno;
use crate::remote::Caller;

/// A directory or a symbolic link to be made.
pub(super) enum New {
    Dir(u32),
    Link(Bytes),
}

/// Whether a user's change of names in a directory is made here.
pub(super) fn takes(shared: &Shared, tree: &Tree<Open>, who: &Caller, dir: Ino) -> bool {
    let takes = tree.takes_changes(dir, who.uid) && !tree.is_too_large(dir);
    takes && shared.lanes.have_room() && !shared.is_full()
}

/// The attributes of something new in a directory.
pub(super) fn new_attrs(
    shared: &Shared,
    above: &Attrs,
    who: &Caller,
    (kind, mode): (FileType, u32),
) -> Option<Attrs> {
    let values = AttrValues { kind: Some(kind), mode: Some(mode), ..AttrValues::default() };
    // A set-group-ID directory gives its group, and passes that on.
    let inherits = above.mode & 0o2000 != 0;
    let group = if inherits { above.gid } else { who.gid };
    let owner = |_: Option<&Bytes>, is_group| if is_group { group } else { who.uid };
    let mut attrs = Attrs::of(&values, owner)?;
    if inherits && kind == FileType::Dir {
        attrs.mode |= 0o2000;
    }
    let clock = shared.clock();
    attrs.fsid = above.fsid;
    (attrs.atime, attrs.mtime, attrs.ctime) = (clock, clock, clock);
    Some(attrs)
}

/// mkdir(2), symlink(2). The node belongs to the kernel.
pub(super) fn make(
    shared: &Shared,
    who: &Caller,
    dir: Ino,
    name: &Bytes,
    new: New,
) -> Option<Result<(Ino, Attrs), Errno>> {
    let mut tree = shared.tree();
    if !takes(shared, &tree, who, dir) {
        return None;
    }
    if tree.entry(dir, name) != Entry::Nobody {
        return Some(Err(Errno::EXIST));
    }
    let _room = room::admit(shared, who, Needs::CHANGE)?;
    let above = tree.get(dir)?.attrs.clone();
    let (attrs, text, what) = match new {
        New::Dir(mode) => {
            let mut attrs = new_attrs(shared, &above, who, (FileType::Dir, mode))?;
            (attrs.links, attrs.size) = (2, 4096);
            (attrs, None, What::Dir { name: name.clone(), mode })
        }
        New::Link(text) => {
            let mut attrs = new_attrs(shared, &above, who, (FileType::Lnk, 0o777))?;
            attrs.size = text.len() as u64;
            let what = What::Link { name: name.clone(), text: text.clone(), set: Set::default() };
            (attrs, Some(text), what)
        }
    };
    let more = i32::from(attrs.is_dir());
    let ino = tree.make_here(dir, name, attrs.clone(), text, who.uid, shared.now());
    tree.touched(dir, more, shared.clock());
    tree.refer(ino);
    changes::add(shared, &mut tree, who, (dir, ino), what);
    Some(Ok((ino, attrs)))
}

/// Whether a file is open, or has data on its way that is not part of its creation.
fn is_busy(tree: &Tree<Open>, ino: Ino) -> bool {
    tree.get(ino).and_then(|n| n.file.as_ref()).is_some_and(|open| {
        let file = open.state.lock();
        file.opens > 0 || file.held.is_none() && !file.is_finished()
    })
}

/// unlink(2), rmdir(2)
pub(super) fn remove(
    shared: &Shared,
    who: &Caller,
    dir: Ino,
    name: &Bytes,
    is_dir: bool,
) -> Option<Result<(), Errno>> {
    let mut tree = shared.tree();
    if !takes(shared, &tree, who, dir) {
        return None;
    }
    let ino = match tree.entry(dir, name) {
        Entry::Node(ino) => ino,
        Entry::Nobody => return Some(Err(Errno::NOENT)),
        Entry::Somebody => return None,
    };
    match (is_dir, tree.get(ino)?.attrs.is_dir()) {
        (true, false) => return Some(Err(Errno(libc::ENOTDIR))),
        (false, true) => return Some(Err(Errno(libc::EISDIR))),
        // Only of an own directory it is known whether it is empty.
        (true, true) if !matches!(tree.right(ino), Some(Right::New | Right::Delegated(_))) => return None,
        // The last close of a removed file may be on its way: it is waited for first.
        (true, true) if shared.hidden.has_in(ino) => return None,
        (true, true) if !tree.has_no_names(ino) => return Some(Err(Errno(libc::ENOTEMPTY))),
        (false, false) if is_busy(&tree, ino) => return None,
        _ => {}
    }
    let clock = shared.clock();
    tree.removed_here(dir, name, clock);
    tree.touched(dir, -i32::from(is_dir), clock);
    changes::add(shared, &mut tree, who, (dir, ino), What::Remove { name: name.clone(), is_dir });
    Some(Ok(()))
}

/// rename(2) within a directory.
pub(super) fn rename(
    shared: &Shared,
    who: &Caller,
    dir: Ino,
    from: &Bytes,
    to: &Bytes,
) -> Option<Result<(), Errno>> {
    let mut tree = shared.tree();
    if !takes(shared, &tree, who, dir) {
        return None;
    }
    let ino = match tree.entry(dir, from) {
        Entry::Node(ino) => ino,
        Entry::Nobody => return Some(Err(Errno::NOENT)),
        Entry::Somebody => return None,
    };
    // Its data comes before its new name.
    let unwritten = tree.get(ino)?.file.as_ref().is_some_and(|open| {
        let file = open.state.lock();
        file.held.is_none() && !file.is_finished()
    });
    let over = match tree.entry(dir, to) {
        Entry::Node(other) if other == ino => return Some(Ok(())),
        // A directory must be empty, a file may be open.
        Entry::Node(other) if tree.get(other)?.attrs.is_dir() || is_busy(&tree, other) => return None,
        Entry::Node(_) if tree.get(ino)?.attrs.is_dir() => return Some(Err(Errno(libc::ENOTDIR))),
        Entry::Node(other) => Some(other),
        Entry::Somebody => return None,
        Entry::Nobody => None,
    };
    if unwritten {
        return None;
    }
    let _room = room::admit(shared, who, Needs::CHANGE)?;
    if let Some(e) = shared.lanes.take_lost(ino) {
        return Some(Err(e));
    }
    let clock = shared.clock();
    tree.renamed_here(dir, from, to, clock);
    tree.touched(dir, 0, clock);
    changes::add(
        shared,
        &mut tree,
        who,
        (dir, ino),
        What::Rename { from: from.clone(), to: to.clone(), over },
    );
    Some(Ok(()))
}

/// chmod(2), chown(2), utimensat(2) of what is on its way, or has its place in an own directory. A new size is the server's.
pub(super) fn set(shared: &Shared, who: &Caller, ino: Ino, set: &Set) -> Option<Attrs> {
    if set.is_empty() || set.size.is_some() {
        return None;
    }
    let mut tree = shared.tree();
    let node = tree.get(ino)?;
    // Data that is written behind it would move the times.
    if node.file.as_ref().is_some_and(|open| {
        open.turn.try_lock().is_err() || {
            let file = open.state.lock();
            !file.is_finished()
        }
    }) {
        return None;
    }
    let lane = match node.attrs.is_dir() {
        true => ino,
        // Others may have found the file before, and see its attributes without a look at its name.
        false => tree.above(ino).filter(|_| tree.is_unshared(ino))?,
    };
    if !takes(shared, &tree, who, lane) {
        return None;
    }
    let clock = shared.clock();
    tree.set_here(ino, set, clock);
    changes::add(shared, &mut tree, who, (lane, ino), What::Set(*set));
    let attrs = tree.get(ino)?.attrs.clone();
    Some(shared.seen_by_programs(&tree, ino, attrs))
}

/// readlink(2) of a link that was made here.
pub(super) fn text(shared: &Shared, ino: Ino) -> Option<Bytes> {
    shared.tree().get(ino)?.text.clone()
}
