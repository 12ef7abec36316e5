//! Byte-range locks and flock(2), kept by the server; and opens on the server, for what needs one.
//!
//! The first lock of a file opens it on the server; its last close ends the open. flock(2) is a lock of the whole file, as with Linux's
//! client. Before a lock is given up the file's data is made stable, and after it is taken what memory knows of the file is old: so what
//! one writes under a lock the next one reads under it. A lock that somebody else has is asked for again every
//! [`LOCK_ASKED_EACH`]. The server forgets locks with the lease; a file whose locks were lost gives EIO to those who hold them.
//!
//! | version | locks |
//! |---|---|
//! | 4.1, 4.2 | an open by the handle |
//! | 4.0 | an open by the name. Whoever waits asks with LOCKT, which needs no number of an owner |
//! | 3 | the Network Lock Manager: no open, and no lease. If the server restarts its locks are gone, and nobody is told |

use std::sync::Arc;

use landfast_client::Version;
use landfast_nfs::v4::flags::OPEN4_SHARE_ACCESS_BOTH;
use landfast_nfs::v4::{FileHandle, LockType, NfsStat, Stateid};

use super::callers;
use super::changes;
use super::flush::{self, Until};
use super::held_locks::{Locks, Owner};
use super::shared::{Handle, Shared};
use crate::errno::Errno;
use crate::limits::LOCK_ASKED_EACH;
use crate::remote::{Fault, LockRange};

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

pub(super) fn is_lost(status: Option<NfsStat>) -> bool {
    matches!(
        status,
        Some(
            NfsStat::NFS4ERR_BAD_STATEID
                | NfsStat::NFS4ERR_STALE_STATEID
                | NfsStat::NFS4ERR_OLD_STATEID
                | NfsStat::NFS4ERR_EXPIRED
                | NfsStat::NFS4ERR_ADMIN_REVOKED
                | NfsStat::NFS4ERR_STALE_CLIENTID
        )
    )
}

/// fcntl(2) with `F_GETLK`: the lock that stands in the way, if there is one.
pub(super) async fn get(
    shared: &Arc<Shared>,
    handle: &Handle,
    wanted: Wanted,
) -> Result<Option<Wanted>, Errno> {
    flush::send(shared, handle.ino, &handle.open, &handle.who, Until::Made).await;
    changes::settle_rights(shared, handle.ino).await;
    let found = test(shared, handle, wanted).await?;
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
    if wanted.kind == libc::F_UNLCK {
        return unlock(shared, handle, wanted, false).await;
    }
    flush::send(shared, handle.ino, &handle.open, &handle.who, Until::Made).await;
    if let Some(e) = handle.open.state.lock().dead {
        return Err(e);
    }
    changes::settle_rights(shared, handle.ino).await;
    loop {
        match lock(shared, handle, wanted).await {
            Err(e) if e == Errno(libc::EAGAIN) && waits.is_some() => {}
            other => {
                other?;
                break;
            }
        }
        loop {
            tokio::time::sleep(LOCK_ASKED_EACH).await;
            // The process may have been told to stop waiting.
            if waits.is_some_and(callers::is_signalled) {
                return Err(Errno(libc::EINTR));
            }
            if shared.remote.version() != Version::V40 || test(shared, handle, wanted).await?.is_none() {
                break;
            }
        }
    }
    // The server may have been away for longer than the process lived: nobody would give the lock up.
    if waits.is_some_and(callers::is_gone) {
        unlock(shared, handle, Wanted { kind: libc::F_UNLCK, ..wanted }, false).await?;
        return Err(Errno(libc::EINTR));
    }
    // What others wrote before they gave it up is to be seen.
    let file = shared.server_handle(handle.ino)?;
    // A reply that is older than one to a write of ours would bring back the size before it.
    let turn = handle.open.turn.lock().await;
    let sent = shared.now();
    let attrs = shared.remote.get_attrs(&handle.who, &file).await?;
    let now = shared.now();
    let changed = {
        let mut tree = shared.tree();
        let changed = tree.get_mut(handle.ino).is_some_and(|node| {
            let changed = node.pages != Some(attrs.change);
            node.pages = node.pages.filter(|_| !changed);
            changed
        });
        tree.changed_since(sent, handle.ino, Some(attrs.clone()), now);
        changed
    };
    // The kernel writes changed pages of a mapping before it forgets them.
    drop(turn);
    if changed {
        handle.open.state.lock().generation += 1;
        shared.drop_pages(handle.ino).await;
        if let Some(node) = shared.tree().get_mut(handle.ino) {
            node.pages = Some(attrs.change);
        }
    }
    Ok(())
}

/// The lock that stands in the way, if there is one.
async fn test(
    shared: &Arc<Shared>,
    handle: &Handle,
    wanted: Wanted,
) -> Result<Option<(LockType, LockRange)>, Errno> {
    let file = shared.server_handle(handle.ino)?;
    let name = handle.open.locks.lock().await.name(wanted.owner);
    Ok(shared.remote.test_lock(&handle.who, &file, name, wanted.lock_type(), wanted.range()).await?)
}

/// The open of a file on the server with at least `access` (`OPEN4_SHARE_ACCESS_*`). It stays until the last close.
async fn open(
    shared: &Shared,
    handle: &Handle,
    locks: &mut Locks,
    (file, access): (&FileHandle, u32),
) -> Result<Stateid, Fault> {
    if let Some((stateid, _)) = locks.open.filter(|(_, has)| has & access == access) {
        return Ok(stateid);
    }
    let number = *locks.number.get_or_insert_with(|| shared.number());
    let had = locks.open.map_or(0, |(_, has)| has);
    // In version 4.0 the locks of an open do not move to one with more access: it should not be needed.
    let mut wanted = match shared.remote.version() {
        Version::V40 => vec![OPEN4_SHARE_ACCESS_BOTH],
        _ => Vec::new(),
    };
    wanted.push(access | had);
    wanted.dedup();
    let mut refused = Fault::Failed(Errno::IO);
    for access in wanted {
        match shared.remote.open_file(&handle.who, file, shared.place(handle.ino), (number, access)).await {
            Ok(stateid) => {
                if let Some((earlier, _)) = locks.open.filter(|(earlier, _)| earlier.other != stateid.other) {
                    locks.earlier.push(earlier);
                }
                locks.open = Some((stateid, access));
                return Ok(stateid);
            }
            Err(e) => refused = e,
        }
    }
    Err(refused)
}

/// As [`open`], for what is no lock.
pub(super) async fn opened(
    shared: &Shared,
    handle: &Handle,
    file: &FileHandle,
    access: u32,
) -> Result<Stateid, Errno> {
    let mut locks = handle.open.locks.lock().await;
    Ok(open(shared, handle, &mut locks, (file, access)).await?)
}

/// The server says that it does not know an open. If locks belong to it, their owners get errors from now on.
pub(super) async fn opens_are_gone(handle: &Handle) {
    handle.open.locks.lock().await.forgotten();
}

async fn lock(shared: &Arc<Shared>, handle: &Handle, wanted: Wanted) -> Result<(), Errno> {
    let file = shared.server_handle(handle.ino)?;
    let mut locks = handle.open.locks.lock().await;
    if locks.lost {
        return Err(Errno::IO);
    }
    let mut again = false;
    loop {
        match lock_once(shared, handle, &mut locks, &file, wanted).await {
            Ok(()) => return Ok(()),
            Err(e) if is_lost(e.status()) => {
                // Locks that others of this machine hold on the file are gone with it.
                if locks.forgotten() {
                    return Err(Errno::IO);
                }
                if std::mem::replace(&mut again, true) {
                    return Err(Errno(libc::ENOLCK));
                }
            }
            Err(e) => return Err(no_locks(e)),
        }
    }
}

/// A server that has no locks at all.
fn no_locks(e: Fault) -> Errno {
    match e.errno() {
        Errno::NOTSUP => Errno(libc::ENOLCK),
        e => e,
    }
}

async fn lock_once(
    shared: &Arc<Shared>,
    handle: &Handle,
    locks: &mut Locks,
    file: &FileHandle,
    wanted: Wanted,
) -> Result<(), Fault> {
    let open = open(shared, handle, locks, (file, handle.access())).await?;
    let name = locks.name(wanted.owner);
    let held = locks.owners.get(&wanted.owner).map(|owner| owner.stateid);
    if held.is_none() && shared.remote.version() == Version::V40 {
        locks.attempts += 1;
    }
    let done =
        shared.remote.lock(&handle.who, file, (name, held, open), wanted.lock_type(), wanted.range()).await;
    let stateid = done?;
    locks.owners.insert(wanted.owner, Owner { stateid, attempt: name.attempt, through: handle.number });
    Ok(())
}

/// `ends`: the owner has closed the file. Where the server can forget it before the file's last close, both do.
async fn unlock(shared: &Arc<Shared>, handle: &Handle, wanted: Wanted, ends: bool) -> Result<(), Errno> {
    unlock_if(shared, handle, wanted, ends, |locks| locks.owners.get(&wanted.owner).copied()).await
}

/// As [`unlock`], of the owner that `owner` names when its turn has come.
async fn unlock_if(
    shared: &Arc<Shared>,
    handle: &Handle,
    wanted: Wanted,
    ends: bool,
    owner: impl Fn(&Locks) -> Option<Owner>,
) -> Result<(), Errno> {
    if owner(&*handle.open.locks.lock().await).is_none() {
        return Ok(());
    }
    // Whoever gets it next reads what was written under it, through a mapping, too. Before a close the kernel has written that by itself.
    if !ends && handle.open.may_be_mapped() {
        shared.drop_pages_of(handle.ino, wanted.range()).await;
    }
    flush::send(shared, handle.ino, &handle.open, &handle.who, Until::Stable).await;
    let file = shared.server_handle(handle.ino)?;
    let mut locks = handle.open.locks.lock().await;
    let Some(owner) = owner(&locks) else { return Ok(()) };
    let stateid = owner.stateid;
    let ends = ends && shared.remote.frees_lock_owners();
    match shared.remote.unlock(&handle.who, &file, stateid, wanted.range(), ends).await {
        Ok(_) if ends => {
            locks.owners.remove(&wanted.owner);
            Ok(())
        }
        Ok(stateid) => {
            locks.owners.insert(wanted.owner, Owner { stateid, ..owner });
            Ok(())
        }
        Err(e) if is_lost(e.status()) => {
            locks.owners.remove(&wanted.owner);
            Err(Errno::IO)
        }
        Err(e) => Err(e.errno()),
    }
}

fn all_of(owner: u64) -> Wanted {
    Wanted { owner, start: 0, end: i64::MAX as u64, kind: libc::F_UNLCK }
}

/// close(2) of any descriptor gives up all locks that its process has on the file (fcntl(2)).
pub(super) async fn closed(shared: &Arc<Shared>, handle: &Handle, owner: u64) {
    if let Err(e) = unlock(shared, handle, all_of(owner), true).await {
        tracing::debug!("LOCKU at close: {e}");
    }
}

/// The last close of an open file description gives up its lock of flock(2).
pub(super) async fn released(shared: &Arc<Shared>, handle: &Handle, owner: u64) {
    let its_own = |locks: &Locks| locks.through(owner, handle.number);
    if let Err(e) = unlock_if(shared, handle, all_of(owner), true, its_own).await {
        tracing::debug!("LOCKU at the last close: {e}");
    }
}

/// The last close: the open that the locks belonged to ends, and with it all of them.
pub(super) async fn end(shared: &Arc<Shared>, handle: &Handle) {
    let open = std::mem::take(&mut *handle.open.locks.lock().await);
    let (Some((stateid, _)), Ok(file)) = (open.open, shared.server_handle(handle.ino)) else { return };
    // The server refuses to close what has locks.
    let whole = LockRange { offset: 0, length: u64::MAX };
    for lock in open.owners.into_values() {
        if let Err(e) = shared.remote.unlock(&handle.who, &file, lock.stateid, whole, false).await {
            tracing::debug!("LOCKU: {e:?}");
        }
    }
    for stateid in open.earlier.into_iter().chain([stateid]) {
        shared.remote.close(&handle.who, &file, stateid).await;
    }
}

/// Whether reading and writing must fail: locks that its owner relies on are gone.
pub(super) fn are_lost(handle: &Handle) -> bool {
    handle.open.locks.try_lock().is_ok_and(|locks| locks.lost)
}

/// Whether an owner may have locks on the file.
pub(super) fn has_some(handle: &Handle, owner: u64) -> bool {
    handle.open.locks.try_lock().map_or(true, |locks| locks.owners.contains_key(&owner))
}
