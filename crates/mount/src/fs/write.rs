//! Writing: data is taken into memory, and sent from there.

use std::sync::Arc;

use bytes::Bytes;
use fuser::{OpenFlags, ReplyWrite, Request, WriteFlags};

use super::convert::errno;
use super::flush::{self, Until};
use super::reply::written;
use super::shared::{Handle, Shared};
use super::{Mount, changes, files, locks, room};
use crate::core::attrs::{Set, without_privileges};
use crate::core::file::Next;
use crate::core::space::Needs;
use crate::errno::Errno;
use crate::tasks;

/// FUSE_WRITE: `data` at `offset`.
pub(super) fn request(
    mount: &Mount,
    req: &Request,
    handle: Arc<Handle>,
    (offset, data): (u64, &[u8]),
    (write_flags, flags): (WriteFlags, OpenFlags),
    reply: ReplyWrite,
) {
    let paged = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
    let append = flags.0 & libc::O_APPEND != 0 && !paged;
    let kill = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
    // What bypasses the kernel's pages is meant to be on the server when write(2) returns.
    let direct = flags.0 & libc::O_DIRECT != 0 && !paged;
    let how = How { append, kill, paged };
    let kept = if kill { keeps_privileges(&mount.shared, &handle) } else { Kept::Nothing };
    let admitted = match kept {
        Kept::Nothing => room::admit_data(&mount.shared, &handle.who, data.len()),
        _ => None,
    };
    let Some(admitted) = admitted else {
        let (shared, data) = (mount.shared.clone(), Bytes::copy_from_slice(data));
        let work = async move {
            take_privileges(&shared, &handle, kept).await?;
            let done = write_with_room(&shared, &handle, offset, data, how).await?;
            if direct {
                files::flush(&shared, &handle).await?;
            }
            Ok(done)
        };
        return mount.run(req, work, |done| match done {
            Ok(done) => reply.written(done as u32),
            Err(e) => reply.error(errno(e)),
        });
    };
    let (next, moved) = match take(&mount.shared, &handle, offset, data, how) {
        Ok(next) => next,
        Err(e) => return reply.error(errno(e)),
    };
    drop(admitted);
    let (shared, len) = (mount.shared.clone(), data.len() as u32);
    if moved {
        let (shared, ino) = (shared.clone(), handle.ino);
        mount.spawn(async move { shared.drop_pages(ino).await });
    }
    match next {
        _ if direct => {
            mount.run(req, async move { files::flush(&shared, &handle).await }, move |done| {
                written(reply, len, done);
            });
        }
        Next::Done => reply.written(len),
        Next::Write | Next::Make => {
            reply.written(len);
            let until = if next == Next::Make { Until::Made } else { Until::Pieces };
            // Whoever has the turn sends this as well.
            if handle.open.turn.try_lock().is_ok() {
                mount.spawn(async move {
                    flush::send(&shared, handle.ino, &handle.open, &handle.who, until).await;
                });
            }
        }
        Next::Wait => {
            let work = async move {
                make_room(&shared, &handle).await;
                Ok(())
            };
            mount.run(req, work, move |done| written(reply, len, done));
        }
    }
}

/// How data is written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct How {
    /// Behind the end of the file.
    pub(super) append: bool,
    /// The writer has no right to privileges of the file.
    pub(super) kill: bool,
    /// From the kernel's pages: a program has changed a mapping.
    pub(super) paged: bool,
}

/// How a file would keep set-user-ID or set-group-ID bits that somebody without privileges has to take away by writing.
enum Kept {
    Nothing,
    /// What is written is sent in the name of another one, who wrote before.
    ByOther,
    /// The server takes everybody of this mount for root.
    ByRoot,
}

fn keeps_privileges(shared: &Shared, handle: &Handle) -> Kept {
    let mode = {
        let tree = shared.tree();
        let Some(node) = tree.get(handle.ino) else { return Kept::Nothing };
        // Its creation takes them away.
        if handle.open.state.lock().held.is_some() {
            return Kept::Nothing;
        }
        node.attrs.mode
    };
    if without_privileges(mode) == mode {
        return Kept::Nothing;
    }
    match shared.writer(handle.ino) {
        _ if handle.who.uid == 0 => Kept::ByRoot,
        Some(other) if other.uid != handle.who.uid => Kept::ByOther,
        _ => Kept::Nothing,
    }
}

async fn take_privileges(shared: &Arc<Shared>, handle: &Handle, kept: Kept) -> Result<(), Errno> {
    match kept {
        Kept::Nothing => {}
        Kept::ByOther => flush::send(shared, handle.ino, &handle.open, &handle.who, Until::Stable).await,
        Kept::ByRoot => {
            // Others may have set another mode since memory has heard of it.
            let file = shared.server_handle(handle.ino)?;
            let mode = shared.remote.get_attrs(&handle.who, &file).await?.mode;
            let set = Set { mode: Some(without_privileges(mode)), ..Set::default() };
            if set.mode != Some(mode) {
                match files::set_attrs(shared, &handle.who, handle.ino, &set).await {
                    // A server that does not take it for root takes them away itself.
                    Ok(_) | Err(Errno(libc::EPERM | libc::EACCES)) => {}
                    Err(e) => return Err(e),
                }
            }
        }
    }
    Ok(())
}

/// Takes data. Returns what must happen before, or because of, the answer, and whether the data went to another place than the kernel
/// thinks.
pub(super) fn take(
    shared: &Shared,
    handle: &Handle,
    mut offset: u64,
    data: &[u8],
    How { append, kill, paged }: How,
) -> Result<(Next, bool), Errno> {
    let clock = shared.clock();
    let mut tree = shared.tree();
    let node = tree.get_mut(handle.ino).ok_or(Errno::STALE)?;
    let mut file = handle.open.state.lock();
    // Nobody hears what is answered to a page of a mapping: an earlier error is for who writes, or closes.
    if !paged {
        file.errors.report(&mut handle.seen.lock())?;
    }
    if let Some(e) = file.dead {
        return Err(e);
    }
    if locks::are_lost(handle) {
        return Err(Errno::IO);
    }
    let size = node.attrs.size.max(file.content.end());
    let mut moved = false;
    if append {
        // The kernel takes the size that it saw last for the file's end.
        moved = offset != size;
        offset = size;
    }
    if offset.checked_add(data.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
        return Err(Errno(libc::EFBIG));
    }
    file.write(offset, data, kill, &mut node.attrs, clock);
    shared.charge(&mut file);
    let next = file.next();
    // Before anybody sees the data: it is sent in this name.
    shared.is_dirty(handle.ino, &handle.who);
    drop(file);
    drop(tree);
    Ok((if shared.is_full() { Next::Wait } else { next }, moved))
}

/// Waits until a file, and the mount, have room for more data.
pub(super) async fn make_room(shared: &Arc<Shared>, handle: &Handle) {
    loop {
        flush::send(shared, handle.ino, &handle.open, &handle.who, Until::Pieces).await;
        let full = handle.open.state.lock().next() == Next::Wait;
        if !full && !shared.is_full() {
            return;
        }
        // Small parts of many files, or data that waits for its COMMIT.
        flush::send(shared, handle.ino, &handle.open, &handle.who, Until::Stable).await;
        if shared.is_full() {
            flush::send_all(shared).await;
        }
    }
}

/// write(2) of data for which there was no room. Returns how much of it was written.
async fn write_with_room(
    shared: &Arc<Shared>,
    handle: &Arc<Handle>,
    offset: u64,
    data: Bytes,
    how: How,
) -> Result<usize, Errno> {
    loop {
        let needs = Needs::data(data.len() as u64);
        let found = room::look(shared, &handle.who, needs).await;
        if found == room::Found::None {
            return write_through(shared, handle, (offset, how), data).await;
        }
        let admitted = room::admit(shared, &handle.who, needs);
        if admitted.is_none() && found == room::Found::Room {
            // Somebody else has taken it.
            continue;
        }
        let (next, moved) = take(shared, handle, offset, &data, how)?;
        drop(admitted);
        if moved {
            let (shared, ino) = (shared.clone(), handle.ino);
            tasks::spawn(async move { shared.drop_pages(ino).await });
        }
        match next {
            Next::Done => {}
            Next::Wait => make_room(shared, handle).await,
            Next::Write | Next::Make => {
                let until = if next == Next::Make { Until::Made } else { Until::Pieces };
                let (shared, handle) = (shared.clone(), handle.clone());
                tasks::spawn(async move {
                    flush::send(&shared, handle.ino, &handle.open, &handle.who, until).await;
                });
            }
        }
        return Ok(data.len());
    }
}

/// Writes with the server's answer: it knows best whether there is space. Nothing is kept here.
pub(super) async fn write_through(
    shared: &Arc<Shared>,
    handle: &Arc<Handle>,
    (mut offset, How { append, paged, .. }): (u64, How),
    data: Bytes,
) -> Result<usize, Errno> {
    let needs = Needs::data(data.len() as u64);
    let _passes = room::pass(shared, needs);
    let (ino, open) = (handle.ino, &handle.open);
    flush::send(shared, ino, open, &handle.who, Until::Stable).await;
    // The data moves a time that was set before. Without the turn: what waits may wait for data of the file's creation.
    changes::settle_node(shared, ino).await;
    let _turn = open.turn.lock().await;
    {
        let file = open.state.lock();
        if !paged {
            file.errors.report(&mut handle.seen.lock())?;
        }
        if let Some(e) = file.dead {
            return Err(e);
        }
    }
    if locks::are_lost(handle) {
        return Err(Errno::IO);
    }
    if append {
        let tree = shared.tree();
        let node = tree.get(ino).ok_or(Errno::STALE)?;
        let size = node.attrs.size.max(open.state.lock().content.end());
        if size != offset {
            // The kernel has the data at another place of its pages.
            let kernel = shared.clone();
            tasks::spawn(async move { kernel.drop_pages(ino).await });
        }
        offset = size;
    }
    let end = offset.checked_add(data.len() as u64).filter(|end| *end <= i64::MAX as u64);
    end.ok_or(Errno(libc::EFBIG))?;
    let file = shared.server_handle(ino)?;
    let most = shared.remote.write_room().max(1);
    let mut done = 0;
    let failed = loop {
        let part = data.slice(done..data.len().min(done + most));
        if part.is_empty() {
            break None;
        }
        let at = offset + done as u64;
        match shared.remote.write_between(&handle.who, &file, at, part).await {
            Ok((before, written, after)) => {
                done += written.count;
                let before = Some(before).filter(|_| after.is_some());
                flush::pages(&mut shared.tree(), ino, before, after.unwrap_or_default());
            }
            Err(e) => break Some(e.errno()),
        }
    };
    shared.space.lock().spend(Needs::data(done as u64));
    let attrs = shared.remote.get_attrs(&handle.who, &file).await;
    let now = shared.now();
    {
        let mut tree = shared.tree();
        open.state.lock().generation += 1;
        if let Some(node) = tree.get_mut(ino) {
            node.attrs.size = node.attrs.size.max(offset + done as u64);
            // The kernel may have more in its pages than the server took.
            node.pages = node.pages.filter(|_| failed.is_none());
        }
        tree.changed(ino, attrs.ok(), now);
    }
    if paged && let Some(e) = failed {
        // Nobody hears it from here.
        let path = shared.tree().path(ino);
        shared.failed(&path, &format!("what a mapping has changed is lost: {e}"));
        open.state.lock().errors.add(e);
    }
    match failed {
        Some(e) if done == 0 => Err(e),
        _ => Ok(done),
    }
}
