//! Names: found, made, removed, renamed.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use landfast_client::Version;
use landfast_nfs::v4::OpNum;
use landfast_nfs::v4::args::CreateType;

use super::flush::{self, Until};
use super::local::{self, New};
use super::shared::Shared;
use super::{changes, delegations};
use crate::core::Ino;
use crate::core::attrs::Attrs;
use crate::core::space::Needs;
use crate::core::tree::own::Entry;
use crate::core::tree::{Found, Listing};
use crate::errno::Errno;
use crate::remote::{Also, Caller, Changed, Delegation, Doubt, Fault};

/// What memory knows of a name: the node with its attributes, nobody (`Some(None)`), or nothing (`None`). A node that is found belongs to
/// the kernel from now on.
pub(super) fn from_memory(shared: &Shared, dir: Ino, name: &Bytes) -> Option<Option<(Ino, Attrs)>> {
    let now = shared.now();
    let mut tree = shared.tree();
    match tree.lookup(dir, name, now) {
        Found::Ask => None,
        Found::Nobody => Some(None),
        Found::Node(ino) => {
            let attrs = tree.fresh(ino, now)?.clone();
            let attrs = shared.seen_by_programs(&tree, ino, attrs);
            if let Some(node) = tree.get_mut(ino) {
                node.place = Some((dir, name.clone()));
            }
            tree.refer(ino);
            Some(Some((ino, attrs)))
        }
    }
}

/// Asks the server for a name. The node is the tree's, not the kernel's.
pub(super) async fn ask(
    shared: &Arc<Shared>,
    who: &Caller,
    dir: Ino,
    name: &Bytes,
) -> Result<Option<(Ino, Attrs)>, Errno> {
    let is_own = shared.tree().is_own(dir);
    match is_own {
        // The server decides whether this user may search it.
        true => changes::settle_rights(shared, dir).await,
        // It was, until a moment ago.
        false => changes::settle_dir(shared, dir).await,
    }
    let handle = shared.server_handle(dir)?;
    let asked = shared.now();
    let (changes, also) = {
        let tree = shared.tree();
        (tree.changes(dir), if tree.wants_names(dir) { Also::Names } else { Also::Nothing })
    };
    let looked = match shared.remote.look_up(who, &handle, name, also).await {
        // Who may search a directory need not be one who may read it.
        Err(Fault::Op(OpNum::READDIR, _)) => {
            shared.tree().is_large(dir);
            shared.remote.look_up(who, &handle, name, Also::Nothing).await?
        }
        other => other?,
    };
    let mut tree = shared.tree();
    match looked.names {
        Some(Some(names)) => {
            let names = names.into_iter().map(|n| (n, None)).collect();
            tree.listed(dir, Listing { change: looked.change, asked, changes, names });
        }
        Some(None) => tree.is_large(dir),
        None => {}
    }
    let ino = tree.looked_up(dir, name, (looked.change, asked, changes), looked.found);
    let Some(ino) = ino else { return Ok(None) };
    let attrs = tree.get(ino).map(|n| n.attrs.clone()).ok_or(Errno::STALE)?;
    Ok(Some((ino, shared.seen_by_programs(&tree, ino, attrs))))
}

/// As [`ask`], for the kernel.
pub(super) async fn look_up(
    shared: &Arc<Shared>,
    who: &Caller,
    dir: Ino,
    name: &Bytes,
) -> Result<Option<(Ino, Attrs)>, Errno> {
    let found = ask(shared, who, dir, name).await?;
    if let Some((ino, _)) = &found {
        shared.tree().refer(*ino);
    }
    Ok(found)
}

/// Sends a change of a name in `dir` and takes its reply into the tree.
async fn change<F>(shared: &Arc<Shared>, dir: Ino, name: &Bytes, work: F) -> Result<Changed, Errno>
where
    F: Future<Output = Result<Changed, Fault>>,
{
    let asked = shared.now();
    // It may take room of what waits.
    shared.space.lock().spend(Needs::CHANGE);
    shared.tree().begin(dir);
    let done = work.await;
    let now = shared.now();
    let mut tree = shared.tree();
    match done {
        Ok(mut changed) => {
            tree.end(dir, Some((changed.info, changed.dir.take())), asked, now);
            Ok(changed)
        }
        Err(e) => {
            tree.end(dir, None, asked, now);
            // Memory was wrong, or may be.
            tree.unknown(dir, name);
            Err(e.errno())
        }
    }
}

/// Makes a directory, a symbolic link or a special file.
pub(super) async fn make(
    shared: &Arc<Shared>,
    who: &Caller,
    dir: Ino,
    name: &Bytes,
    kind: CreateType,
    mode: Option<u32>,
) -> Result<(Ino, Attrs), Errno> {
    let new = match (&kind, mode) {
        (CreateType::Dir, mode) => Some(New::Dir(mode.unwrap_or(0o755))),
        (CreateType::Lnk(text), _) => Some(New::Link(text.clone())),
        _ => None,
    };
    if delegations::prepare(shared, who, dir).await? {
        if let Some(new) = new
            && let Some(made) = local::make(shared, who, dir, name, new)
        {
            return made;
        }
        changes::settle_dir(shared, dir).await;
    }
    // A file of this name may be held back: then the server would not see that it is taken.
    if shared.tree().held_in(dir).iter().any(|(n, _)| n == name) {
        return Err(Errno::EXIST);
    }
    let handle = shared.server_handle(dir)?;
    let is_dir = matches!(kind, CreateType::Dir);
    let delegate = is_dir && delegations::asks(shared);
    let asked = shared.space.lock().ask(shared.now());
    let work = shared.remote.make(who, &handle, name, (kind, mode), (Doubt::None, delegate));
    let changed = change(shared, dir, name, work).await?;
    let (handle, attrs) = changed.object.ok_or(Errno::IO)?;
    let now = shared.now();
    let mut tree = shared.tree();
    let ino = tree.node(&handle, attrs.clone(), now);
    tree.named(dir, name, Some(ino));
    if is_dir {
        tree.made_dir(ino, now);
    }
    tree.refer(ino);
    if let Some(given) = changed.delegation {
        if let Delegation::Write(_) = given {
            shared.space.lock().told(who.uid, asked, changed.room, now);
        }
        delegations::given(shared, &mut tree, ino, given, who);
    }
    Ok((ino, attrs))
}

/// Removes a name that is no open file's.
pub(super) async fn remove(shared: &Arc<Shared>, who: &Caller, dir: Ino, name: &Bytes) -> Result<(), Errno> {
    let handle = shared.server_handle(dir)?;
    change(shared, dir, name, shared.remote.remove(who, &handle, name, false)).await?;
    let now = shared.now();
    let mut tree = shared.tree();
    let gone = tree.named_node(dir, name);
    tree.named(dir, name, None);
    if let Some(ino) = gone {
        // The delegation of a directory goes with it.
        if tree.get(ino).is_some_and(|n| n.attrs.is_dir()) {
            tree.disown(ino);
        }
        // It may have other names.
        tree.changed(ino, None, now);
        if let Some(node) = tree.get_mut(ino)
            && node.place.as_ref().is_some_and(|(d, n)| *d == dir && n == name)
        {
            node.place = None;
        }
    }
    Ok(())
}

/// The node of a name. Memory may have forgotten it since the kernel asked, if the directory is busy. If it may be a file that programs have
/// open, the server is asked once more: its name must not be removed under them.
async fn named(shared: &Arc<Shared>, who: &Caller, dir: Ino, name: &Bytes) -> Result<Option<Ino>, Errno> {
    {
        let tree = shared.tree();
        let known = tree.named_node(dir, name);
        if known.is_some() || matches!(tree.lookup(dir, name, shared.now()), Found::Nobody) {
            return Ok(known);
        }
    }
    if !shared.has_open_in(dir) {
        return Ok(None);
    }
    Ok(ask(shared, who, dir, name).await?.map(|(ino, _)| ino))
}

/// As [`named`], with its file made on the server if it was held back.
///
/// # Errors
/// It could not be made: the name is not that of the program's file, but nobody's or somebody else's.
async fn known(shared: &Arc<Shared>, who: &Caller, dir: Ino, name: &Bytes) -> Result<Option<Ino>, Errno> {
    let Some(ino) = named(shared, who, dir, name).await? else { return Ok(None) };
    let (ino, open) = {
        let tree = shared.tree();
        let Some(node) = tree.get(ino) else { return Ok(None) };
        (ino, node.file.clone())
    };
    if let Some(open) = open {
        let held = open.state.lock().held.is_some();
        if held {
            let who = shared.remote.own().clone();
            flush::send(shared, ino, &open, &shared.writer(ino).unwrap_or(who), Until::Made).await;
        }
        if let Some(e) = open.state.lock().dead {
            return Err(e);
        }
    }
    Ok(Some(ino))
}

/// Has the server have all data of a file whose creation was not all of it, before it gets another name (`close=local`).
async fn finish(shared: &Arc<Shared>, who: &Caller, ino: Ino) -> Result<(), Errno> {
    if let Some(e) = shared.lanes.take_lost(ino) {
        return Err(e);
    }
    let open = shared.tree().get(ino).and_then(|n| n.file.clone());
    let Some(open) = open.filter(|open| shared.options.local && !open.state.lock().is_finished()) else {
        return Ok(());
    };
    flush::send(shared, ino, &open, who, Until::Stable).await;
    let lost = open.state.lock().lost;
    lost.map_or(Ok(()), Err)
}

/// Whether a node is a file that somebody has open. The kernel does not wait for the end of a close, so a program may remove what it has
/// just closed: if all who had it open have closed it, their end is waited for.
async fn is_open(shared: &Shared, ino: Ino) -> bool {
    loop {
        let Some(open) = shared.tree().get(ino).and_then(|n| n.file.clone()) else { return false };
        let mut closed = std::pin::pin!(open.closed.notified());
        closed.as_mut().enable();
        {
            let tree = shared.tree();
            let file = open.state.lock();
            if file.dead.is_some() || tree.get(ino).is_none_or(|n| n.file.is_none()) {
                return false;
            }
            if file.opens == 0 {
                // What is left of its data is not waited for: no close comes that would tell.
                return false;
            }
            if open.closing.load(Ordering::Acquire) < file.opens {
                return true;
            }
        }
        closed.await;
    }
}

/// Gives an open file that loses its name another one. Returns that.
async fn hide(shared: &Arc<Shared>, who: &Caller, dir: Ino, name: &Bytes) -> Result<Bytes, Errno> {
    let hidden = Bytes::from(format!(".nfs{:016x}{:08x}", shared.unique, shared.number() as u32));
    move_name(shared, who, (dir, name), (dir, &hidden)).await?;
    Ok(hidden)
}

/// Has the last close of a file remove its hidden name. If that has come already, it is removed now.
async fn remove_at_close(
    shared: &Arc<Shared>,
    who: &Caller,
    (dir, hidden): (Ino, Bytes),
    ino: Ino,
) -> Result<(), Errno> {
    let open = {
        let tree = shared.tree();
        let open = tree.get(ino).and_then(|n| n.file.as_ref());
        open.map(|open| {
            open.state.lock().removed_as = Some((dir, hidden.clone()));
            shared.hidden.add(dir, hidden.clone(), open.clone());
        })
        .is_some()
    };
    if open { Ok(()) } else { remove(shared, who, dir, &hidden).await }
}

/// Tries a change here, where all names that it needs are known; if not, the server is asked for them first. `None`: the server must do
/// it, and has heard of all before.
async fn here<T>(
    shared: &Arc<Shared>,
    who: &Caller,
    dir: Ino,
    names: &[&Bytes],
    change: impl Fn() -> Option<Result<T, Errno>>,
) -> Result<Option<T>, Errno> {
    if !delegations::prepare(shared, who, dir).await? {
        return Ok(None);
    }
    for name in names {
        let unknown = shared.tree().entry(dir, name) == Entry::Somebody;
        if unknown {
            ask(shared, who, dir, name).await?;
        }
    }
    match change() {
        Some(done) => done.map(Some),
        None => {
            changes::settle_dir(shared, dir).await;
            Ok(None)
        }
    }
}

/// unlink(2)
pub(super) async fn unlink(shared: &Arc<Shared>, who: &Caller, dir: Ino, name: &Bytes) -> Result<(), Errno> {
    let remove_here = || local::remove(shared, who, dir, name, false);
    if let Some(done) = here(shared, who, dir, &[name], remove_here).await? {
        return Ok(done);
    }
    if let Some(ino) = known(shared, who, dir, name).await?
        && is_open(shared, ino).await
        && shared.tree().get(ino).is_some_and(|n| !n.attrs.is_dir())
    {
        let links = super::look::attrs(shared, who, ino).await.map_or(1, |a| a.links);
        // Another name keeps it.
        if links <= 1 {
            let hidden = hide(shared, who, dir, name).await?;
            return remove_at_close(shared, who, (dir, hidden), ino).await;
        }
    }
    remove(shared, who, dir, name).await
}

/// Does what needs a directory without names. The kernel does not wait for the end of a close, so `dir` may have hidden names of files that
/// programs have removed and closed: these are waited for. `change` is told whether it is tried again: the first
/// failure has made memory forget its names.
async fn emptied<F>(shared: &Shared, dir: Option<Ino>, change: impl Fn(bool) -> F) -> Result<(), Errno>
where
    F: Future<Output = Result<(), Errno>>,
{
    let Some(dir) = dir else { return change(false).await };
    shared.hidden.removed(dir).await;
    match change(false).await {
        // The kernel may have told of a close only after this was asked. Servers have two errors for a directory that is not empty.
        Err(e) if e == Errno(libc::ENOTEMPTY) || e == Errno::EXIST => {
            match shared.hidden.removed_soon(dir).await {
                true => change(true).await,
                false => Err(e),
            }
        }
        done => done,
    }
}

/// rmdir(2)
pub(super) async fn rmdir(shared: &Arc<Shared>, who: &Caller, dir: Ino, name: &Bytes) -> Result<(), Errno> {
    let gone = shared.tree().named_node(dir, name);
    if let Some(gone) = gone {
        // Then it may be found empty here.
        shared.hidden.removed(gone).await;
    }
    let remove_here = || local::remove(shared, who, dir, name, true);
    if let Some(done) = here(shared, who, dir, &[name], remove_here).await? {
        return Ok(done);
    }
    let gone = shared.tree().named_node(dir, name);
    if let Some(gone) = gone {
        changes::settle_dir(shared, gone).await;
    }
    let holds = {
        let tree = shared.tree();
        gone.is_some_and(|ino| !tree.held_in(ino).is_empty())
    };
    if holds {
        return Err(Errno(libc::ENOTEMPTY));
    }
    let remove_it = |again| async move {
        if again {
            ask(shared, who, dir, name).await?;
        }
        remove(shared, who, dir, name).await
    };
    emptied(shared, gone, remove_it).await
}

/// rename(2)
pub(super) async fn rename(
    shared: &Arc<Shared>,
    who: &Caller,
    (from, oldname): (Ino, &Bytes),
    (to, newname): (Ino, &Bytes),
) -> Result<(), Errno> {
    if from == to {
        let rename_here = || local::rename(shared, who, from, oldname, newname);
        if let Some(done) = here(shared, who, from, &[oldname, newname], rename_here).await? {
            return Ok(done);
        }
    } else {
        for dir in [from, to] {
            delegations::prepare(shared, who, dir).await?;
            changes::settle_dir(shared, dir).await;
        }
    }
    let source = known(shared, who, from, oldname).await?;
    if let Some(source) = source {
        finish(shared, who, source).await?;
    }
    let target = known(shared, who, to, newname).await?;
    if let Some(target) = target {
        changes::settle_dir(shared, target).await;
    }
    if let Some(target) = target
        && Some(target) != source
        && is_open(shared, target).await
        && shared.tree().get(target).is_some_and(|n| !n.attrs.is_dir())
    {
        let hidden = hide(shared, who, to, newname).await?;
        let moved = move_name(shared, who, (from, oldname), (to, newname)).await;
        if moved.is_ok() {
            return remove_at_close(shared, who, (to, hidden), target).await;
        }
        // The target gets its name back. If it cannot have it, it stays under the other one: no close removes it.
        if let Err(e) = move_name(shared, who, (to, &hidden), (to, newname)).await {
            let (new, hidden) = (String::from_utf8_lossy(newname), String::from_utf8_lossy(&hidden));
            tracing::error!("{new} is {hidden} now, after a rename that failed: {e}");
        }
        return moved;
    }
    let over = target.filter(|ino| shared.tree().get(*ino).is_some_and(|n| n.attrs.is_dir()));
    let move_it = |again| async move {
        if again {
            ask(shared, who, from, oldname).await?;
            ask(shared, who, to, newname).await?;
        }
        move_name(shared, who, (from, oldname), (to, newname)).await
    };
    emptied(shared, over, move_it).await
}

async fn move_name(
    shared: &Arc<Shared>,
    who: &Caller,
    (from, oldname): (Ino, &Bytes),
    (to, newname): (Ino, &Bytes),
) -> Result<(), Errno> {
    let (from_handle, to_handle) = (shared.server_handle(from)?, shared.server_handle(to)?);
    let (moved, replaced, object) = {
        let tree = shared.tree();
        let moved = tree.named_node(from, oldname);
        let object = moved.and_then(|ino| tree.get(ino)?.handle.clone());
        (moved, tree.named_node(to, newname), object)
    };
    let asked = shared.now();
    let work =
        shared.remote.rename(who, (&from_handle, oldname), (&to_handle, newname), object.as_ref(), false);
    if from != to {
        shared.tree().begin(to);
    }
    let done = change(shared, from, oldname, work).await;
    let now = shared.now();
    let mut tree = shared.tree();
    if from != to {
        let other = done.as_ref().ok().map(|c| c.other.clone().unwrap_or_default());
        tree.end(to, other, asked, now);
    }
    if done.is_err() {
        tree.unknown(to, newname);
    }
    done?;
    // Two names of one object: rename(2) leaves both.
    if moved.is_some() && moved == replaced {
        return Ok(());
    }
    tree.named(from, oldname, None);
    match moved {
        Some(ino) => {
            if from != to {
                tree.is_shared_now(ino);
            }
            tree.changed(ino, None, now);
            tree.named(to, newname, Some(ino));
            tree.keep_where_moved(ino);
        }
        None => {
            tree.unknown(to, newname);
            if shared.remote.version() == Version::V40 {
                tree.open_file_moved((from, oldname), (to, newname));
            }
        }
    }
    if let Some(ino) = replaced {
        if tree.get(ino).is_some_and(|n| n.attrs.is_dir()) {
            tree.disown(ino);
        }
        tree.changed(ino, None, now);
    }
    Ok(())
}

/// link(2)
pub(super) async fn link(
    shared: &Arc<Shared>,
    who: &Caller,
    ino: Ino,
    dir: Ino,
    name: &Bytes,
) -> Result<Attrs, Errno> {
    let open = shared.tree().get(ino).and_then(|n| n.file.clone());
    if let Some(open) = open {
        flush::send(shared, ino, &open, &shared.writer(ino).unwrap_or_else(|| who.clone()), Until::Made)
            .await;
    }
    changes::settle_node(shared, ino).await;
    delegations::prepare(shared, who, dir).await?;
    changes::settle_dir(shared, dir).await;
    known(shared, who, dir, name).await?;
    shared.tree().is_shared_now(ino);
    let (object, above) = (shared.server_handle(ino)?, shared.server_handle(dir)?);
    let sent = shared.now();
    let changed = change(shared, dir, name, shared.remote.link(who, &object, &above, name)).await?;
    let now = shared.now();
    let attrs = match changed.object {
        Some((_, attrs)) => attrs,
        None => shared.remote.get_attrs(who, &object).await?,
    };
    let mut tree = shared.tree();
    flush::pages(&mut tree, ino, changed.object_before, attrs.change);
    let alone = tree.is_alone_since(ino, sent);
    tree.changed_beside_data(alone, ino, Some(attrs.clone()), now);
    tree.named(dir, name, Some(ino));
    tree.refer(ino);
    Ok(shared.seen_by_programs(&tree, ino, attrs))
}
