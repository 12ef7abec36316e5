//! Sends what is held back: new files as one COMPOUND, data, COMMITs.
//!
//! One at a time for each file, by its `turn`. An error stays with the file until all who have it open were told; the data that it hit is
//! gone, and the path stands in the log and in the answer to `landfast sync`.

use std::sync::Arc;

use bytes::Bytes;
use landfast_nfs::v4::{FileHandle, FileType, NfsStat, NfsTime, OpNum, StableHow};
use tokio::task::JoinSet;

use super::changes;
use super::shared::{Open, Shared};
use crate::core::Ino;
use crate::core::attrs::{Attrs, Set};
use crate::core::bugs::{Bug, bug};
use crate::core::content::Content;
use crate::core::file::Held;
use crate::core::space::Needs;
use crate::errno::Errno;
use crate::limits::{
    FLUSHES_TOGETHER, HOLD_AGE, HOLD_LOOKED_EACH, PIECE_BYTES, PIECES_IN_FLIGHT, REWRITES_MAX,
    UNCOMMITTED_BYTES_MAX, UNCOMMITTED_PIECES_MAX,
};
use crate::remote::{Also, Caller, Doubt, Fault, NewFile, patiently};
use crate::tasks;

/// How far a file's data is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// The server knows the file.
    Made,
    /// Whole pieces are written.
    Pieces,
    /// All is stable.
    Stable,
}

/// Sends a file's data, in the name of who wrote it; if that is nobody, in that of `who`, who wants it sent. What goes wrong becomes an
/// error of the file.
pub(super) async fn send(shared: &Arc<Shared>, ino: Ino, open: &Arc<Open>, who: &Caller, until: Until) {
    let sent = send_now(shared, ino, open, who, until);
    // A program was told that all of the file is done.
    match shared.lanes.is_unfinished(ino) {
        true => patiently(sent).await,
        false => sent.await,
    }
}

async fn send_now(shared: &Arc<Shared>, ino: Ino, open: &Arc<Open>, who: &Caller, until: Until) {
    let _turn = open.turn.lock().await;
    // Whoever closes the file first need not be allowed to write it.
    let who = &shared.writer(ino).unwrap_or_else(|| who.clone());
    settle_sets(shared, ino, open).await;
    make(shared, ino, open, who).await;
    let left = open.state.lock().left.take();
    if let Some((set, written)) = left {
        finish(shared, ino, open, who, (&set, written)).await;
    }
    let sent = match until {
        Until::Made => Ok(()),
        Until::Pieces => write(shared, ino, open, who, false).await,
        Until::Stable => write(shared, ino, open, who, true).await,
    };
    if let Err(e) = sent {
        lose(shared, ino, open, e);
    }
    let mut file = open.state.lock();
    shared.charge(&mut file);
    if file.is_finished() {
        file.written = None;
        shared.is_clean(ino);
    }
}

/// Has the server hear of attributes that were set before data was written: a time, or privileges that the data takes away. Whoever calls
/// has the file's turn. A file whose creation has left data is not waited for: what waits for it waits for that data.
async fn settle_sets(shared: &Arc<Shared>, ino: Ino, open: &Open) {
    let known = {
        // With it locked no creation ends.
        let _tree = shared.tree();
        let file = open.state.lock();
        file.held.is_none() && !file.content.is_empty() && !shared.lanes.is_unfinished(ino)
    };
    if known {
        changes::settle_node(shared, ino).await;
    }
}

/// The file's data is lost. The kernel must not show it any longer, as the server does not have it.
fn lose(shared: &Arc<Shared>, ino: Ino, open: &Open, e: Errno) {
    let path = {
        let mut tree = shared.tree();
        if let Some(node) = tree.get_mut(ino) {
            node.pages = None;
        }
        tree.path(ino)
    };
    shared.failed(&path, &format!("what was written is lost: {e}"));
    {
        let mut file = open.state.lock();
        file.errors.add(e);
        file.lost = Some(e);
        file.content.drop_all();
        file.generation += 1;
    }
    let shared = shared.clone();
    // The kernel writes changed pages of a mapping then: that waits for the turn, which whoever calls this has.
    tasks::spawn(async move { shared.drop_pages(ino).await });
}

/// Makes a file that is held back.
async fn make(shared: &Arc<Shared>, ino: Ino, open: &Arc<Open>, who: &Caller) {
    if open.state.lock().is_local() {
        // Not for later changes of it: those wait for its data.
        return changes::settle_creation(shared, ino).await;
    }
    let (held, new, pieces, written) = {
        let tree = shared.tree();
        let Some(attrs) = tree.get(ino).map(|n| n.attrs.clone()) else { return };
        let mut file = open.state.lock();
        let set = file.set_at_close(&attrs);
        let Some(held) = &mut file.held else { return };
        held.sent = true;
        let held = held.clone();
        let mut pieces = Vec::new();
        while let Some(piece) = file.content.take() {
            pieces.push(piece);
        }
        let data = pieces.iter().map(|(_, at, data)| (*at, data.clone())).collect();
        (held.clone(), NewFile { name: held.name.clone(), mode: held.mode, data, set }, pieces, file.written)
    };
    let asked = shared.now();
    shared.space.lock().spend(Needs::CHANGE);
    let dir = {
        let mut tree = shared.tree();
        tree.begin(held.dir);
        tree.get(held.dir).and_then(|n| n.handle.clone())
    };
    let made = match &dir {
        Some(dir) => shared.remote.create(who, dir, &new, Doubt::None).await,
        None => Err(Fault::Failed(Errno::STALE)),
    };
    let now = shared.now();
    match made {
        Ok(made) => {
            {
                let mut tree = shared.tree();
                tree.end(held.dir, Some((made.info, made.dir)), asked, now);
                let change = made.attrs.as_ref().map(|a| a.change);
                tree.made(ino, made.handle, made.attrs, now);
                if let Some(node) = tree.get_mut(ino) {
                    // All of it is what the kernel's pages hold, and nobody else has touched it.
                    node.pages = change;
                }
                let mut file = open.state.lock();
                pieces.iter().for_each(|(number, _, _)| file.content.written(*number, None));
                made.unwritten.iter().for_each(|(at, data)| file.content.again(*at, data));
                file.held = None;
            }
            if !made.unset.is_empty() {
                finish(shared, ino, open, who, (&made.unset, written)).await;
            }
        }
        Err(Fault::Op(OpNum::OPEN, NfsStat::NFS4ERR_EXIST)) if !held.exclusive => {
            shared.tree().end(held.dir, None, asked, now);
            match adopt(shared, who, &held).await {
                Ok((handle, attrs)) => {
                    let now = shared.now();
                    let mut set = new.set;
                    {
                        let mut tree = shared.tree();
                        let base = if held.append { attrs.size } else { 0 };
                        set.size = set.size.map(|size| size.saturating_add(base));
                        tree.made(ino, handle, Some(attrs), now);
                        let mut file = open.state.lock();
                        pieces.iter().for_each(|(number, _, _)| file.content.failed(*number));
                        pieces.iter().for_each(|(_, at, data)| file.content.again(*at, data));
                        // Together with what was written while the server was asked.
                        file.content.shift(base);
                        file.generation += 1;
                        file.held = None;
                    }
                    // The kernel has what was written at the places that it was written at. Not waited for: it may hold one of these
                    // pages until the WRITE that waits for this is answered.
                    let kernel = shared.clone();
                    tasks::spawn(async move { kernel.drop_pages(ino).await });
                    if !set.is_empty() {
                        finish(shared, ino, open, who, (&set, written)).await;
                    }
                }
                Err(e) => give_up(shared, ino, open, &held, e),
            }
        }
        Err(e) => {
            shared.tree().end(held.dir, None, asked, now);
            give_up(shared, ino, open, &held, e.errno());
        }
    }
}

/// Somebody has made a file of this name, which a program without `O_EXCL` would have opened.
async fn adopt(shared: &Arc<Shared>, who: &Caller, held: &Held) -> Result<(FileHandle, Attrs), Errno> {
    let dir = shared.server_handle(held.dir)?;
    let found = shared.remote.look_up(who, &dir, &held.name, Also::Nothing).await?.found;
    let (handle, mut attrs) = found.ok_or(Errno::NOENT)?;
    match attrs.kind {
        FileType::Reg => {}
        FileType::Dir => return Err(Errno(libc::EISDIR)),
        // A symbolic link would have been followed, a FIFO would have had a reader.
        _ => return Err(Errno::EXIST),
    }
    if held.truncate {
        attrs = shared.remote.set_attrs(who, &handle, &Set { size: Some(0), ..Set::default() }).await?;
    }
    Ok((handle, attrs))
}

/// The file cannot be made.
fn give_up(shared: &Arc<Shared>, ino: Ino, open: &Open, held: &Held, e: Errno) {
    let mut tree = shared.tree();
    let path = tree.path(ino);
    tree.unhold(held.dir, &held.name);
    tree.unknown(held.dir, &held.name);
    let mut file = open.state.lock();
    file.errors.add(e);
    file.content.drop_all();
    (file.held, file.dead) = (None, Some(e));
    drop(file);
    drop(tree);
    shared.failed(&path, &format!("the file could not be made: {e}"));
}

/// Sets attributes that the creation has not set; each of them, if not all together. `written`: when data was written last before the
/// creation was sent.
async fn finish(
    shared: &Arc<Shared>,
    ino: Ino,
    open: &Open,
    who: &Caller,
    (set, written): (&Set, Option<NfsTime>),
) {
    let Ok(handle) = shared.server_handle(ino) else { return };
    // Before the data: what was written meanwhile may lie behind this size.
    let size = Set { size: set.size, ..Set::default() };
    set_part(shared, ino, open, who, &handle, &size).await;
    // Data that is not written yet would move the times.
    if !open.state.lock().content.is_empty()
        && let Err(e) = write(shared, ino, open, who, true).await
    {
        lose(shared, ino, open, e);
    }
    let owners = Set { uid: set.uid, gid: set.gid, ..Set::default() };
    let mode = Set { mode: set.mode, ..Set::default() };
    for part in [owners, mode] {
        set_part(shared, ino, open, who, &handle, &part).await;
    }
    // The program set its time before it wrote more.
    let mtime = set.mtime.filter(|_| open.state.lock().written == written);
    set_part(shared, ino, open, who, &handle, &Set { atime: set.atime, mtime, ..Set::default() }).await;
}

/// Sets some attributes, if there are any. What goes wrong becomes an error of the file.
async fn set_part(
    shared: &Arc<Shared>,
    ino: Ino,
    open: &Open,
    who: &Caller,
    handle: &FileHandle,
    part: &Set,
) {
    if part.is_empty() {
        return;
    }
    let sent = shared.now();
    let set = shared.remote.set_attrs(who, handle, part).await;
    let now = shared.now();
    match set {
        Ok(attrs) => shared.tree().changed_since(sent, ino, Some(attrs), now),
        Err(e) => {
            let path = shared.tree().path(ino);
            shared.failed(&path, &format!("attributes could not be set: {}", e.errno()));
            open.state.lock().errors.add(e.errno());
        }
    }
}

/// Writes what waits; `all`: all of it, and stably.
async fn write(shared: &Arc<Shared>, ino: Ino, open: &Open, who: &Caller, all: bool) -> Result<(), Errno> {
    if open.state.lock().content.is_empty() {
        return Ok(());
    }
    let handle = shared.server_handle(ino)?;
    if all && let Some((number, offset, data)) = single(open, shared.remote.write_room()) {
        return match shared.remote.write_whole(who, &handle, offset, data.clone()).await {
            Ok(Some((before, attrs))) => {
                let now = shared.now();
                let mut tree = shared.tree();
                open.state.lock().content.written(number, None);
                pages(&mut tree, ino, Some(before), attrs.change);
                tree.changed(ino, Some(attrs), now);
                Ok(())
            }
            Ok(None) => {
                {
                    let mut file = open.state.lock();
                    file.content.failed(number);
                    file.content.again(offset, &data);
                }
                pieces(shared, ino, open, who, true).await
            }
            Err(e) => Err(e.errno()),
        };
    }
    pieces(shared, ino, open, who, all).await
}

/// The only piece of a file, if it has no more and one WRITE takes it.
fn single(open: &Open, room: usize) -> Option<(u64, u64, Bytes)> {
    let mut file = open.state.lock();
    let content = &mut file.content;
    let one = !content.is_sent() && content.waiting().count() == 1 && content.waiting_bytes() <= room as u64;
    if one { content.take() } else { None }
}

/// The kernel's pages are those of the file after a change of ours, if nobody else has changed it before.
pub(super) fn pages(tree: &mut crate::core::tree::Tree<Open>, ino: Ino, before: Option<u64>, after: u64) {
    if let Some(node) = tree.get_mut(ino) {
        let ours = node.pages.is_some() && node.pages == before;
        node.pages = ours.then_some(after);
    }
}

async fn pieces(shared: &Arc<Shared>, ino: Ino, open: &Open, who: &Caller, all: bool) -> Result<(), Errno> {
    let handle = shared.server_handle(ino)?;
    // A program that goes on writing behind it is not waited for.
    let end = if all { open.state.lock().content.end() } else { u64::MAX };
    let is_due = |content: &Content| all || content.waiting_bytes() >= PIECE_BYTES as u64;
    let mut rewrites = 0;
    while rewrites <= REWRITES_MAX {
        let mut under_way = JoinSet::new();
        let mut failed = None;
        loop {
            while under_way.len() < PIECES_IN_FLIGHT && failed.is_none() {
                let piece = {
                    let content = &mut open.state.lock().content;
                    let may = content.sent_count() < UNCOMMITTED_PIECES_MAX;
                    if may && is_due(content) { content.take_before(end) } else { None }
                };
                let Some((number, offset, data)) = piece else { break };
                let (shared, handle, who) = (shared.clone(), handle.clone(), who.clone());
                under_way.spawn(async move {
                    let end = offset + data.len() as u64;
                    (number, end, write_piece(&shared, &handle, &who, offset, data).await)
                });
            }
            match under_way.join_next().await {
                None => break,
                Some(Ok((number, end, Ok(verifier)))) => {
                    let now = shared.now();
                    let mut tree = shared.tree();
                    if verifier.is_none() {
                        // The piece leaves memory here, and no COMMIT tells the size: the file is not shorter than this.
                        tree.changed(ino, None, now);
                        if let Some(node) = tree.get_mut(ino) {
                            node.attrs.size = node.attrs.size.max(end);
                        }
                    }
                    let mut file = open.state.lock();
                    file.content.written(number, verifier.filter(|_| !bug(Bug::CommitForgotten)));
                    shared.charge(&mut file);
                }
                Some(Ok((number, _, Err(e)))) => {
                    open.state.lock().content.failed(number);
                    failed = Some(e);
                }
                Some(Err(_)) => failed = Some(Errno::IO),
            }
        }
        if let Some(e) = failed {
            return Err(e);
        }
        let (uncommitted, many) = {
            let content = &open.state.lock().content;
            (content.uncommitted_bytes(), content.sent_count() >= UNCOMMITTED_PIECES_MAX)
        };
        if !all && uncommitted < UNCOMMITTED_BYTES_MAX && !many {
            return Ok(());
        }
        if uncommitted == 0 {
            // All of it was stable at once.
            let attrs = shared.remote.get_attrs(who, &handle).await?;
            let now = shared.now();
            let mut tree = shared.tree();
            pages(&mut tree, ino, None, attrs.change);
            tree.changed(ino, Some(attrs), now);
            return Ok(());
        }
        let (verifier, attrs) = shared.remote.commit(who, &handle).await?;
        let now = shared.now();
        let mut tree = shared.tree();
        pages(&mut tree, ino, None, attrs.change);
        tree.changed(ino, Some(attrs), now);
        let mut file = open.state.lock();
        let is_stable = file.content.committed(verifier);
        shared.charge(&mut file);
        match is_stable {
            false => rewrites += 1,
            // The others are sent now.
            true if many && is_due(&file.content) && file.content.waits_before(end) => {}
            true => return Ok(()),
        }
    }
    tracing::error!("{}: the server keeps losing what was written", shared.tree().path(ino));
    Err(Errno::IO)
}

/// Writes all of a piece. Returns the verifier if it is not stable yet.
async fn write_piece(
    shared: &Shared,
    handle: &FileHandle,
    who: &Caller,
    offset: u64,
    data: Bytes,
) -> Result<Option<landfast_nfs::v4::Verifier>, Errno> {
    let (mut done, mut verifier) = (0, None);
    while done < data.len() {
        let rest = data.slice(done..);
        let written =
            shared.remote.write(who, handle, offset + done as u64, rest, StableHow::Unstable).await?;
        match (verifier, written.verifier) {
            // The server has restarted between two parts. The verifier of neither is that of the next COMMIT: all is written again.
            (Some(one), Some(other)) if one != other => verifier = Some([0xff; 8]),
            (_, Some(new)) => verifier = Some(new),
            (_, None) => {}
        }
        done += written.count;
    }
    Ok(verifier)
}

/// Makes all files stable that have something on its way.
pub(super) async fn send_all(shared: &Arc<Shared>) {
    changes::settle_all(shared).await;
    let mut under_way = JoinSet::new();
    for (ino, who) in shared.dirty_since(std::time::Duration::ZERO) {
        let open = shared.tree().get(ino).and_then(|n| n.file.clone());
        let Some(open) = open else {
            shared.is_clean(ino);
            continue;
        };
        let shared = shared.clone();
        under_way.spawn(async move { send(&shared, ino, &open, &who, Until::Stable).await });
        if under_way.len() >= FLUSHES_TOGETHER {
            under_way.join_next().await;
        }
    }
    while under_way.join_next().await.is_some() {}
}

/// Sends files that have waited for long enough, for as long as the mount lives.
pub(super) async fn clean(shared: std::sync::Weak<Shared>) {
    loop {
        tokio::time::sleep(HOLD_LOOKED_EACH).await;
        let Some(shared) = shared.upgrade() else { return };
        let age = if shared.options.hold.is_zero() { HOLD_AGE } else { shared.options.hold };
        for (ino, who) in shared.dirty_since(age) {
            let open = shared.tree().get(ino).and_then(|n| n.file.clone());
            let Some(open) = open else {
                shared.is_clean(ino);
                continue;
            };
            // What goes with its directory's changes has an age of its own.
            if open.state.lock().is_local() || open.turn.try_lock().is_err() {
                continue;
            }
            let shared = shared.clone();
            tasks::spawn(async move {
                send(&shared, ino, &open, &who, Until::Stable).await;
                close_unused(&shared, ino);
            });
        }
    }
}

/// Makes the new files that are held back in a directory.
pub(super) async fn make_held(shared: &Arc<Shared>, dir: Ino) -> Result<(), Errno> {
    let held = {
        let tree = shared.tree();
        let files = tree.held_in(dir).into_iter();
        files.filter_map(|(_, ino)| Some((ino, tree.get(ino)?.file.clone()?))).collect::<Vec<_>>()
    };
    let mut done = Ok(());
    for (ino, open) in held {
        let who = shared.writer(ino).unwrap_or_else(|| shared.remote.own().clone());
        send(shared, ino, &open, &who, Until::Made).await;
        if let Some(e) = open.state.lock().dead {
            done = Err(e);
        }
    }
    done
}

/// Forgets a file that nobody has open and of which nothing is on its way.
pub(super) fn close_unused(shared: &Shared, ino: Ino) {
    let mut tree = shared.tree();
    let unused = tree.get(ino).and_then(|n| n.file.clone()).filter(|open| {
        let file = open.state.lock();
        file.opens == 0 && file.is_finished()
    });
    if let Some(open) = unused {
        tree.pin(ino);
        if let Some(node) = tree.get_mut(ino) {
            node.file = None;
        }
        tree.unpin(ino);
        open.closed.notify_waiters();
    }
}
