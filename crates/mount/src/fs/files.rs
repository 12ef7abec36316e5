//! Files: attributes, opening, writing, closing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use landfast_nfs::v4::{FileType, NfsStat};
use parking_lot::Mutex;

use super::ahead::Ahead;
use super::flush::{self, Until};
use super::locks;
use super::shared::{Handle, Open, Shared};
use super::{changes, delegations, room};
use crate::core::Ino;
use crate::core::attrs::{Attrs, Set};
use crate::core::bugs::{Bug, bug};
use crate::core::file::Held;
use crate::core::pending::What;
use crate::core::space::Needs;
use crate::core::tree::own::Entry;
use crate::errno::Errno;
use crate::limits::{FIRST_READ_BYTES, FIRST_READS_BYTES_MAX, HELD_FILES_MAX};
use crate::remote::{Also, Caller, Doubt, NewFile};
use crate::tasks;

/// What open(2) and creat(2) give: the handle's number, and whether the kernel's pages are still those of the file.
pub(super) struct Opened {
    pub(super) number: u64,
    pub(super) keep_pages: bool,
}

/// Folds a change of attributes into a file that is held back. Only its maker's: the file is made in one name, and another user may do
/// more or less with it.
pub(super) fn set_held(shared: &Shared, who: &Caller, ino: Ino, set: &Set) -> Option<Attrs> {
    if shared.writer(ino).is_some_and(|writer| writer.uid != who.uid) {
        return None;
    }
    let now = shared.clock();
    let mut tree = shared.tree();
    let node = tree.get_mut(ino)?;
    let open = node.file.clone()?;
    let mut file = open.state.lock();
    if !file.set(set, &mut node.attrs, now) {
        return None;
    }
    shared.charge(&mut file);
    Some(node.attrs.clone())
}

/// Sets attributes on the server.
pub(super) async fn set_attrs(
    shared: &Arc<Shared>,
    who: &Caller,
    ino: Ino,
    set: &Set,
) -> Result<Attrs, Errno> {
    let (open, is_dir) = {
        let tree = shared.tree();
        let node = tree.get(ino).ok_or(Errno::STALE)?;
        (node.file.clone(), node.attrs.is_dir())
    };
    changes::settle_node(shared, ino).await;
    if is_dir {
        // What was made in it before moved its times before.
        changes::settle_dir(shared, ino).await;
    }
    if let Some(open) = &open {
        // Data comes first: it moves the times, and a new size cuts it off.
        flush::send(shared, ino, open, who, Until::Stable).await;
        if let Some(e) = open.state.lock().dead {
            return Err(e);
        }
    }
    let _turn = match &open {
        Some(open) => Some(open.turn.lock().await),
        None => None,
    };
    let handle = shared.server_handle(ino)?;
    let sent = shared.now();
    let (before, attrs) = shared.remote.set_attrs_after(who, &handle, set).await?;
    let now = shared.now();
    let mut tree = shared.tree();
    // A change of attributes alone leaves the data as it was.
    flush::pages(&mut tree, ino, before.filter(|_| set.size.is_none()), attrs.change);
    if let Some(open) = &open
        && set.size.is_some()
    {
        open.state.lock().generation += 1;
    }
    tree.changed_since(sent, ino, Some(attrs.clone()), now);
    Ok(shared.seen_by_programs(&tree, ino, attrs))
}

fn add_handle(
    shared: &Shared,
    ino: Ino,
    open: Arc<Open>,
    who: Caller,
    flags: i32,
    first: Option<(Bytes, bool)>,
) -> u64 {
    let (seen, generation) = {
        let file = open.state.lock();
        (file.errors.seen(), file.generation)
    };
    let charged = first.as_ref().map_or(0, |f| f.0.len());
    shared.add_first(charged);
    let ahead = Mutex::new(Ahead { first, generation, charged });
    shared.add_handle(Handle {
        number: 0,
        ino,
        open,
        who,
        seen: Mutex::new(seen),
        ahead,
        flags,
        flushed: AtomicBool::new(false),
    })
}

/// A new file: held back if nobody has its name, else made at once.
pub(super) fn hold(
    shared: &Shared,
    who: &Caller,
    dir: Ino,
    name: &Bytes,
    mode: u32,
    flags: i32,
) -> Option<(Attrs, Ino, u64)> {
    let now = shared.now();
    let open = Arc::new(Open::default());
    let (attrs, ino) = {
        let mut tree = shared.tree();
        tree.fills(dir);
        let own = tree.is_own(dir);
        let may = match own {
            true => super::local::takes(shared, &tree, who, dir) && tree.entry(dir, name) == Entry::Nobody,
            false => {
                let may_wait = !shared.options.hold.is_zero() && shared.dirty_count() < HELD_FILES_MAX;
                let free = tree.is_free(dir, name, now);
                may_wait && free && !shared.is_full() && !delegations::is_worth_asking(shared, &tree, dir)
            }
        };
        if !may {
            return None;
        }
        let room = if own { Some(room::admit(shared, who, Needs::CHANGE)?) } else { None };
        let above = &tree.get(dir)?.attrs;
        let attrs = super::local::new_attrs(shared, above, who, (FileType::Reg, mode))?;
        let mut file = open.state.lock();
        file.opens = 1;
        file.held = Some(Held {
            dir,
            name: name.clone(),
            mode,
            exclusive: flags & libc::O_EXCL != 0,
            truncate: flags & libc::O_TRUNC != 0,
            append: flags & libc::O_APPEND != 0,
            since: now,
            set: Set::default(),
            sent: false,
            local: own,
        });
        drop(file);
        let ino = tree.hold(dir, name, attrs.clone(), open.clone(), now);
        if let Some(node) = tree.get_mut(ino) {
            node.opened = true;
        }
        tree.refer(ino);
        shared.is_dirty(ino, who);
        if own {
            tree.touched(dir, 0, attrs.mtime);
            changes::add(shared, &mut tree, who, (dir, ino), What::File { name: name.clone() });
        }
        drop(room);
        (attrs, ino)
    };
    Some((attrs, ino, add_handle(shared, ino, open, who.clone(), flags, None)))
}

/// A new file, made on the server at once.
pub(super) async fn create(
    shared: &Arc<Shared>,
    who: &Caller,
    dir: Ino,
    name: &Bytes,
    mode: u32,
    flags: i32,
) -> Result<(Attrs, Ino, Opened), Errno> {
    delegations::prepare(shared, who, dir).await?;
    let mut held = hold(shared, who, dir, name, mode, flags);
    if held.is_none() && shared.options.local && super::names::ask(shared, who, dir, name).await?.is_none() {
        // The directory was this mount's own when the kernel asked for the name, and memory has forgotten that since. Made at once, the
        // file would be seen without its content.
        held = hold(shared, who, dir, name, mode, flags);
    }
    if let Some((attrs, ino, number)) = held {
        return Ok((attrs, ino, Opened { number, keep_pages: false }));
    }
    changes::settle_dir(shared, dir).await;
    let handle = shared.server_handle(dir)?;
    let asked = shared.now();
    shared.space.lock().spend(Needs::CHANGE);
    shared.tree().begin(dir);
    let new = NewFile { name: name.clone(), mode, data: Vec::new(), set: Set::default() };
    let made = shared.remote.create(who, &handle, &new, Doubt::None).await;
    let now = shared.now();
    let made = match made {
        Ok(made) => made,
        Err(e) => {
            {
                let mut tree = shared.tree();
                tree.end(dir, None, asked, now);
                tree.unknown(dir, name);
            }
            let taken = e.status() == Some(NfsStat::NFS4ERR_EXIST);
            if !taken || flags & libc::O_EXCL != 0 {
                return Err(e.errno());
            }
            return existing(shared, who, dir, name, flags).await;
        }
    };
    let attrs = match made.attrs {
        Some(attrs) => attrs,
        None => shared.remote.get_attrs(who, &made.handle).await?,
    };
    let mut tree = shared.tree();
    tree.end(dir, Some((made.info, made.dir)), asked, now);
    let ino = tree.node(&made.handle, attrs.clone(), now);
    tree.named(dir, name, Some(ino));
    tree.refer(ino);
    let open = open_of(&mut tree, ino).ok_or(Errno::STALE)?;
    if let Some(node) = tree.get_mut(ino) {
        (node.pages, node.opened) = (Some(attrs.change), true);
    }
    drop(tree);
    let number = add_handle(shared, ino, open, who.clone(), flags, None);
    Ok((attrs, ino, Opened { number, keep_pages: false }))
}

/// mknod(2) of a regular file: nothing is opened, and no close comes that would tell an error.
pub(super) async fn make(
    shared: &Arc<Shared>,
    who: &Caller,
    dir: Ino,
    name: &Bytes,
    mode: u32,
) -> Result<(Ino, Attrs), Errno> {
    let (attrs, ino, opened) = create(shared, who, dir, name, mode, libc::O_EXCL).await?;
    let done = match shared.handle(opened.number) {
        Ok(handle) => flush(shared, &handle).await,
        Err(e) => Err(e),
    };
    give_back(shared, opened.number);
    if let Err(e) = done {
        shared.tree().forget(ino, 1);
        return Err(e);
    }
    Ok((ino, attrs))
}

/// creat(2) of a name that somebody has taken meanwhile.
async fn existing(
    shared: &Arc<Shared>,
    who: &Caller,
    dir: Ino,
    name: &Bytes,
    flags: i32,
) -> Result<(Attrs, Ino, Opened), Errno> {
    let (ino, mut attrs) = super::names::ask(shared, who, dir, name).await?.ok_or(Errno::NOENT)?;
    match attrs.kind {
        FileType::Reg => {}
        FileType::Dir => return Err(Errno(libc::EISDIR)),
        // The kernel looks again, and sees what it is.
        _ => return Err(Errno::STALE),
    }
    if flags & libc::O_TRUNC != 0 {
        attrs = set_attrs(shared, who, ino, &Set { size: Some(0), ..Set::default() }).await?;
    }
    let mut tree = shared.tree();
    tree.refer(ino);
    let open = open_of(&mut tree, ino).ok_or(Errno::STALE)?;
    if let Some(node) = tree.get_mut(ino) {
        (node.pages, node.opened) = (None, true);
    }
    drop(tree);
    let number = add_handle(shared, ino, open, who.clone(), flags, None);
    Ok((attrs, ino, Opened { number, keep_pages: false }))
}

/// The open file of a node, for one more open file description.
fn open_of(tree: &mut crate::core::tree::Tree<Open>, ino: Ino) -> Option<Arc<Open>> {
    tree.pin(ino);
    let node = tree.get_mut(ino)?;
    let open = node.file.get_or_insert_with(Arc::default).clone();
    // With the tree locked, so that a last close does not come between.
    open.state.lock().opens += 1;
    Some(open)
}

/// Opens an existing file: the server is asked whether the name still leads to it, and what it is like now.
pub(super) async fn open(shared: &Arc<Shared>, who: &Caller, ino: Ino, flags: i32) -> Result<Opened, Errno> {
    let asked = shared.now();
    let (handle, place, also) = {
        let mut tree = shared.tree();
        let node = tree.get(ino).ok_or(Errno::STALE)?;
        let Some(handle) = node.handle.clone() else {
            // It is held back: nobody else has it.
            let open = open_of(&mut tree, ino).ok_or(Errno::STALE)?;
            drop(tree);
            let number = add_handle(shared, ino, open, who.clone(), flags, None);
            return Ok(Opened { number, keep_pages: true });
        };
        if tree.is_unshared(ino) && tree.fresh(ino, asked).is_some() && node.pages == Some(node.attrs.change)
        {
            // Nobody else has ever seen it.
            let open = open_of(&mut tree, ino).ok_or(Errno::STALE)?;
            if let Some(node) = tree.get_mut(ino) {
                node.opened = true;
            }
            drop(tree);
            let number = add_handle(shared, ino, open, who.clone(), flags, None);
            return Ok(Opened { number, keep_pages: true });
        }
        // Its name at the server may still be another one, but nobody else changes it.
        let place = node.place.clone().filter(|(dir, _)| !tree.is_own(*dir)).and_then(|(dir, name)| {
            let above = tree.get(dir)?.handle.clone()?;
            Some((dir, name, above, tree.changes(dir)))
        });
        let reads = flags & libc::O_ACCMODE != libc::O_WRONLY;
        let small = node.attrs.size > 0 && node.attrs.size <= u64::from(FIRST_READ_BYTES);
        let known = node.pages == Some(node.attrs.change);
        let data =
            reads && small && !known && node.file.is_none() && shared.first_reads() < FIRST_READS_BYTES_MAX;
        (handle, place, if data { Also::Data } else { Also::Nothing })
    };
    let (attrs, first) = match place {
        Some((dir, name, above, changes)) => {
            let looked = shared.remote.look_up(who, &above, &name, also).await?;
            let same = looked.found.as_ref().is_some_and(|(h, _)| *h == handle);
            let mut tree = shared.tree();
            let found = looked.found.clone();
            tree.looked_up(dir, &name, (looked.change, asked, changes), looked.found);
            drop(tree);
            match found {
                Some((_, attrs)) if same => (attrs, looked.data),
                // Another object has the name, or none: the kernel resolves the path again.
                _ => return Err(Errno::STALE),
            }
        }
        None => {
            let attrs = shared.remote.get_attrs(who, &handle).await?;
            shared.tree().learn(ino, attrs.clone(), asked);
            (attrs, None)
        }
    };
    let (open, ours, stale) = {
        let mut tree = shared.tree();
        let open = open_of(&mut tree, ino).ok_or(Errno::STALE)?;
        let node = tree.get_mut(ino).ok_or(Errno::STALE)?;
        let ours = !open.state.lock().content.is_empty();
        let stale = !ours && node.opened && node.pages != Some(attrs.change);
        node.opened = true;
        (open, ours, stale)
    };
    if stale {
        // Nor may those who have it open already fill them again with what came with their opens.
        open.state.lock().generation += 1;
        // Before the answer: an open beside this one must not find them.
        shared.drop_pages(ino).await;
    }
    if !ours && let Some(node) = shared.tree().get_mut(ino) {
        node.pages = Some(attrs.change);
    }
    let first = first.filter(|_| !ours);
    Ok(Opened { number: add_handle(shared, ino, open, who.clone(), flags, first), keep_pages: true })
}

/// close(2) and fsync(2): all is stable, or the error is reported.
pub(super) async fn flush(shared: &Arc<Shared>, handle: &Handle) -> Result<(), Errno> {
    if bug(Bug::FsyncLocal) && handle.open.state.lock().is_local() {
        return Ok(());
    }
    flush::send(shared, handle.ino, &handle.open, &handle.who, Until::Stable).await;
    changes::settle_path(shared, handle.ino).await;
    handle.open.state.lock().errors.report(&mut handle.seen.lock())
}

/// The answer to close(2), if nothing is to be sent.
pub(super) fn is_flushed(handle: &Handle) -> Option<Result<(), Errno>> {
    // Whoever has the turn is sending something.
    let _turn = handle.open.turn.try_lock().ok()?;
    let file = handle.open.state.lock();
    // A file that is made with its directory's changes is sent later.
    let clean = file.is_local() || file.is_finished();
    clean.then(|| file.errors.report(&mut handle.seen.lock()))
}

/// fsync(2) of a directory: what was made in it and, where changes are made here first, in all below it, is on the server.
pub(super) async fn sync_dir(shared: &Arc<Shared>, dir: Ino) -> Result<(), Errno> {
    changes::settle_below(shared, dir).await;
    let done = flush::make_held(shared, dir).await;
    done.and(changes::take_failure(shared, dir).map_or(Ok(()), Err))?;
    let tree = shared.tree();
    // It could not be made. One that was removed before the server heard of it has nothing to be made stable.
    let lost = tree.get(dir).is_none_or(|node| node.handle.is_none() && node.place.is_some());
    if lost { Err(Errno::STALE) } else { Ok(()) }
}

/// Closes a handle, and does not wait for that.
pub(super) fn give_back(shared: &Arc<Shared>, number: u64) {
    if let Some(handle) = shared.take_handle(number) {
        let shared = shared.clone();
        tasks::spawn(async move { release(&shared, &handle).await });
    }
}

/// The last close of an open file description, which [`Shared::take_handle`] has given.
pub(super) async fn release(shared: &Arc<Shared>, handle: &Handle) {
    shared.drop_first(std::mem::take(&mut *handle.ahead.lock()).charged);
    let last = {
        let mut file = handle.open.state.lock();
        file.ending += 1;
        file.ending >= file.opens
    };
    if last {
        locks::end(shared, handle).await;
    }
    // Pages of a mapping may have been written after the file was closed.
    if !handle.open.state.lock().is_local() {
        flush::send(shared, handle.ino, &handle.open, &handle.who, Until::Stable).await;
    }
    let removed = {
        let mut tree = shared.tree();
        let mut file = handle.open.state.lock();
        file.opens -= 1;
        file.ending -= 1;
        handle.open.closing.fetch_sub(1, Ordering::AcqRel);
        let last = file.opens == 0;
        let removed = if last { file.removed_as.take() } else { None };
        // What is on its way keeps it.
        let needed = file.is_local() || !file.content.is_empty() || file.left.is_some();
        drop(file);
        if last && needed {
            // It may be due, now that it is whole.
            shared.lanes.file_is_whole();
        }
        if last
            && !needed
            && let Some(node) = tree.get_mut(handle.ino)
        {
            node.file = None;
        }
        tree.unpin(handle.ino);
        removed
    };
    handle.open.closed.notify_waiters();
    if let Some((dir, name)) = removed {
        if let Err(e) = super::names::remove(shared, &handle.who, dir, &name).await {
            tracing::warn!("{}: {e}", String::from_utf8_lossy(&name));
        }
        shared.hidden.remove(dir, &name);
    }
}

/// Ends what is open, after the kernel's last request. It does not tell the last closes of a mount that it takes away.
pub(super) async fn release_all(shared: &Arc<Shared>) {
    for number in shared.open_handles() {
        if let Some(handle) = shared.take_handle(number) {
            release(shared, &handle).await;
        }
    }
    // Closes that the kernel has told may not have ended.
    shared.hidden.all_removed().await;
}

/// Whether the server has said that it has no such operation.
pub(super) fn is_unknown(e: crate::remote::Fault) -> bool {
    matches!(e.status(), Some(NfsStat::NFS4ERR_NOTSUPP | NfsStat::NFS4ERR_OP_ILLEGAL))
}
