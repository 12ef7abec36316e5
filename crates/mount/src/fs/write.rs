//! Writing: data is taken into memory, and sent from there.

use std::sync::Arc;

use fuser::{OpenFlags, ReplyWrite, Request, WriteFlags};

use super::convert::errno;
use super::flush::{self, Until};
use super::reply::written;
use super::shared::{Handle, Shared};
use super::{Mount, files, locks};
use crate::core::file::Next;
use crate::errno::Errno;

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
    let (next, moved) = match take(&mount.shared, &handle, offset, data, (append, kill)) {
        Ok(next) => next,
        Err(e) => return reply.error(errno(e)),
    };
    let (shared, len) = (mount.shared.clone(), data.len() as u32);
    if moved {
        let (shared, ino) = (shared.clone(), handle.ino);
        mount.spawn(async move { shared.drop_pages(ino).await });
    }
    // What bypasses the kernel's pages is meant to be on the server when write(2) returns.
    let direct = flags.0 & libc::O_DIRECT != 0 && !paged;
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
                room(&shared, &handle).await;
                Ok(())
            };
            mount.run(req, work, move |done| written(reply, len, done));
        }
    }
}

/// Takes data. Returns what must happen before, or because of, the answer, and whether the data went to another place than the kernel
/// thinks.
pub(super) fn take(
    shared: &Shared,
    handle: &Handle,
    mut offset: u64,
    data: &[u8],
    (append, kill): (bool, bool),
) -> Result<(Next, bool), Errno> {
    let clock = shared.clock();
    let mut tree = shared.tree();
    let node = tree.get_mut(handle.ino).ok_or(Errno::STALE)?;
    let mut file = handle.open.state.lock();
    file.errors.report(&mut handle.seen.lock())?;
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
pub(super) async fn room(shared: &Arc<Shared>, handle: &Handle) {
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
