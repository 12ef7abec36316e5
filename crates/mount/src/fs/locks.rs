//! Byte-range locks and flock(2), kept by the server (versions 4.1 and 4.2).
//!
//! The first lock of a file opens it on the server; its last close ends the open. flock(2) is a lock of the whole file, as with Linux's
//! client. Before a lock is given up the file's data is made stable, and after it is taken what memory knows of the file is old: so what
//! one writes under a lock the next one reads under it. A lock that somebody else has is asked for again every
//! [`LOCK_ASKED_EACH`]. The server forgets locks with the lease; a file whose locks were lost gives EIO to those who hold them.

use std::sync::Arc;

use landfast_client::Version;
use landfast_nfs::v4::{LockType, NfsStat};

use super::callers;
use super::flush::{self, Until};
use super::shared::{Handle, Shared};
use crate::errno::Errno;
use crate::limits::LOCK_ASKED_EACH;
use crate::remote::LockRange;

/// A lock as fcntl(2) has it: from `start` to `end`, both included.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) owner: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    /// `F_RDLCK`, `F_WRLCK`, `F_UNLCK`.
    pub(super) kind: i32,
}

impl Wanted {
    fn range(&self) -> LockRange {
        let whole = self.end >= i64::MAX as u64;
        LockRange { offset: self.start, length: if whole { u64::MAX } else { self.end - self.start + 1 } }
    }

    fn lock_type(&self) -> LockType {
        if self.kind == libc::F_RDLCK { LockType::Read } else { LockType::Write }
    }
}

/// Whether the server keeps locks.
fn can_lock(shared: &Shared) -> Result<(), Errno> {
    match shared.remote.version() {
        Version::V41 | Version::V42 => Ok(()),
        Version::V3 | Version::V40 => Err(Errno(libc::ENOLCK)),
    }
}

fn is_lost(status: Option<NfsStat>) -> bool {
    matches!(
        status,
        Some(
            NfsStat::NFS4ERR_BAD_STATEID
                | NfsStat::NFS4ERR_STALE_STATEID
                | NfsStat::NFS4ERR_OLD_STATEID
                | NfsStat::NFS4ERR_EXPIRED
                | NfsStat::NFS4ERR_ADMIN_REVOKED
        )
    )
}

/// fcntl(2) with `F_GETLK`: the lock that stands in the way, if there is one.
pub(super) async fn get(
    shared: &Arc<Shared>,
    handle: &Handle,
    wanted: Wanted,
) -> Result<Option<Wanted>, Errno> {
    can_lock(shared)?;
    flush::send(shared, handle.ino, &handle.open, &handle.who, Until::Made).await;
    let file = shared.server_handle(handle.ino)?;
    let found =
        shared.remote.test_lock(&handle.who, &file, wanted.owner, wanted.lock_type(), wanted.range()).await?;
    Ok(found.map(|(kind, range)| Wanted {
        owner: 0,
        start: range.offset,
        end: match range.length {
            u64::MAX => i64::MAX as u64,
            length => range.offset.saturating_add(length).saturating_sub(1),
        },
        kind: if matches!(kind, LockType::Read | LockType::ReadW) { libc::F_RDLCK } else { libc::F_WRLCK },
    }))
}

/// fcntl(2) with `F_SETLK` and `F_SETLKW`, and flock(2). `waits`: the process that waits for it, if it does.
pub(super) async fn set(
    shared: &Arc<Shared>,
    handle: &Handle,
    wanted: Wanted,
    waits: Option<u32>,
) -> Result<(), Errno> {
    can_lock(shared)?;
    if wanted.kind == libc::F_UNLCK {
        return unlock(shared, handle, wanted).await;
    }
    flush::send(shared, handle.ino, &handle.open, &handle.who, Until::Made).await;
    if let Some(e) = handle.open.state.lock().dead {
        return Err(e);
    }
    loop {
        match lock(shared, handle, wanted).await {
            Err(e) if e == Errno(libc::EAGAIN) && waits.is_some() => {}
            other => {
                other?;
                break;
            }
        }
        tokio::time::sleep(LOCK_ASKED_EACH).await;
        // The process may have been told to stop waiting.
        if waits.is_some_and(callers::is_signalled) {
            return Err(Errno(libc::EINTR));
        }
    }
    // The server may have been away for longer than the process lived: nobody would give the lock up.
    if waits.is_some_and(callers::is_gone) {
        unlock(shared, handle, Wanted { kind: libc::F_UNLCK, ..wanted }).await?;
        return Err(Errno(libc::EINTR));
    }
    // What others wrote before they gave it up is to be seen.
    let file = shared.server_handle(handle.ino)?;
    let attrs = shared.remote.get_attrs(&handle.who, &file).await?;
    let now = shared.now();
    let changed = {
        let mut tree = shared.tree();
        let changed = tree.get_mut(handle.ino).is_some_and(|node| {
            let changed = node.pages != Some(attrs.change);
            node.pages = node.pages.filter(|_| !changed);
            changed
        });
        tree.changed(handle.ino, Some(attrs.clone()), now);
        changed
    };
    if changed {
        handle.open.state.lock().generation += 1;
        shared.drop_pages(handle.ino).await;
        if let Some(node) = shared.tree().get_mut(handle.ino) {
            node.pages = Some(attrs.change);
        }
    }
    Ok(())
}

async fn lock(shared: &Arc<Shared>, handle: &Handle, wanted: Wanted) -> Result<(), Errno> {
    let file = shared.server_handle(handle.ino)?;
    let mut locks = handle.open.locks.lock().await;
    if locks.lost {
        return Err(Errno::IO);
    }
    let number = *locks.number.get_or_insert_with(|| shared.number());
    let access = handle.access();
    if locks.open.is_none_or(|(_, has)| has & access != access) {
        let access = access | locks.open.map_or(0, |(_, has)| has);
        let stateid = shared.remote.open_for_locks(&handle.who, &file, number, access).await?;
        locks.open = Some((stateid, access));
    }
    let Some((open, _)) = locks.open else { return Err(Errno::IO) };
    let held = locks.owners.get(&wanted.owner).copied();
    let done = shared
        .remote
        .lock(&handle.who, &file, (wanted.owner, held, open), wanted.lock_type(), wanted.range())
        .await;
    match done {
        Ok(stateid) => {
            locks.owners.insert(wanted.owner, stateid);
            Ok(())
        }
        Err(e) if is_lost(e.status()) => {
            // Locks that others of this machine hold on the file are gone with it.
            locks.lost = !locks.owners.is_empty();
            locks.owners.clear();
            locks.open = None;
            Err(if locks.lost { Errno::IO } else { Errno(libc::ENOLCK) })
        }
        Err(e) => Err(e.errno()),
    }
}

async fn unlock(shared: &Arc<Shared>, handle: &Handle, wanted: Wanted) -> Result<(), Errno> {
    let stateid = handle.open.locks.lock().await.owners.get(&wanted.owner).copied();
    if stateid.is_none() {
        return Ok(());
    }
    // Whoever gets it next reads what was written under it.
    flush::send(shared, handle.ino, &handle.open, &handle.who, Until::Stable).await;
    let file = shared.server_handle(handle.ino)?;
    let mut locks = handle.open.locks.lock().await;
    let Some(stateid) = locks.owners.get(&wanted.owner).copied() else { return Ok(()) };
    match shared.remote.unlock(&handle.who, &file, stateid, wanted.range()).await {
        Ok(stateid) => {
            locks.owners.insert(wanted.owner, stateid);
            Ok(())
        }
        Err(e) if is_lost(e.status()) => {
            locks.owners.remove(&wanted.owner);
            Err(Errno::IO)
        }
        Err(e) => Err(e.errno()),
    }
}

/// close(2) of any descriptor gives up all locks that its process has on the file (fcntl(2)).
pub(super) async fn closed(shared: &Arc<Shared>, handle: &Handle, owner: u64) {
    let all = Wanted { owner, start: 0, end: i64::MAX as u64, kind: libc::F_UNLCK };
    if let Err(e) = unlock(shared, handle, all).await {
        tracing::debug!("LOCKU at close: {e}");
    }
}

/// The last close: the open that the locks belonged to ends, and with it all of them.
pub(super) async fn end(shared: &Arc<Shared>, handle: &Handle) {
    let open = std::mem::take(&mut *handle.open.locks.lock().await);
    let (Some((stateid, _)), Ok(file)) = (open.open, shared.server_handle(handle.ino)) else { return };
    // The server refuses to close what has locks.
    let whole = LockRange { offset: 0, length: u64::MAX };
    for lock in open.owners.into_values() {
        if let Err(e) = shared.remote.unlock(&handle.who, &file, lock, whole).await {
            tracing::debug!("LOCKU: {e:?}");
        }
    }
    shared.remote.close(&handle.who, &file, stateid).await;
}

/// Whether reading and writing must fail: locks that its owner relies on are gone.
pub(super) fn are_lost(handle: &Handle) -> bool {
    handle.open.locks.try_lock().is_ok_and(|locks| locks.lost)
}

/// Whether an owner may have locks on the file.
pub(super) fn has_some(handle: &Handle, owner: u64) -> bool {
    handle.open.locks.try_lock().map_or(true, |locks| locks.owners.contains_key(&owner))
}
