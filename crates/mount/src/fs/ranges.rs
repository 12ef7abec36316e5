//! Space, holes and copies: fallocate(2), lseek(2) with SEEK_DATA and SEEK_HOLE, copy_file_range(2). The server does them (version 4.2),
//! as with Linux's client, once it has all that was written here before.

use std::sync::Arc;

use landfast_nfs::v4::data::{CONTENT_DATA, CONTENT_HOLE};
use landfast_nfs::v4::flags::{OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WRITE};
use landfast_nfs::v4::{FileHandle, NfsStat};

use super::flush::{self, Until};
use super::shared::{Handle, Shared};
use super::{changes, files, locks, room};
use crate::core::attrs::Attrs;
use crate::core::space::Needs;
use crate::errno::Errno;
use crate::limits::{COPY_BYTES_MAX, REWRITES_MAX, ROOM_BYTES_MAX};
use crate::remote::{Copied, Fault, Space};

/// ENOSYS tells the kernel that there is no such request: it does without from then on.
const NO_SUCH_REQUEST: Errno = Errno(libc::ENOSYS);

/// What a mode of fallocate(2) asks for.
pub(super) fn space(mode: i32) -> Option<Space> {
    match mode {
        0 => Some(Space::Allocate),
        m if m == libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE => Some(Space::Punch),
        libc::FALLOC_FL_ZERO_RANGE => Some(Space::Zero),
        _ => None,
    }
}

/// Has the server have all that was written to a file. Returns the server's handle.
async fn settled(shared: &Arc<Shared>, handle: &Handle) -> Result<FileHandle, Errno> {
    changes::settle_node(shared, handle.ino).await;
    flush::send(shared, handle.ino, &handle.open, &handle.who, Until::Stable).await;
    if let Some(e) = handle.open.state.lock().dead {
        return Err(e);
    }
    shared.server_handle(handle.ino)
}

/// The same, for a change of the file: an error of earlier data is reported, as a write does.
async fn settled_to_change(shared: &Arc<Shared>, handle: &Handle) -> Result<FileHandle, Errno> {
    let file = settled(shared, handle).await?;
    handle.open.state.lock().errors.report(&mut handle.seen.lock())?;
    match locks::are_lost(handle) {
        true => Err(Errno::IO),
        false => Ok(file),
    }
}

/// The server has changed a file's data. The kernel has dropped its pages of it.
fn changed(shared: &Shared, handle: &Handle, before: u64, attrs: Attrs) {
    let now = shared.now();
    let mut tree = shared.tree();
    flush::pages(&mut tree, handle.ino, Some(before), attrs.change);
    // What came with an open is older.
    handle.open.state.lock().generation += 1;
    tree.changed(handle.ino, Some(attrs), now);
}

/// The room that a request may take from what waits. At most as much as the server keeps for a user: a program may ask for 2^63 bytes, and
/// the sum of all such requests must stay a number that can grow.
fn needs(how: Space, (_, length): (u64, u64)) -> Needs {
    match how {
        Space::Allocate | Space::Zero => Needs::data(length.min(ROOM_BYTES_MAX)),
        Space::Punch => Needs::default(),
    }
}

/// fallocate(2)
pub(super) async fn allocate(
    shared: &Arc<Shared>,
    handle: &Handle,
    how: Space,
    range: (u64, u64),
) -> Result<(), Errno> {
    let needs = needs(how, range);
    let _admitted = room::admit_at_once(shared, &handle.who, needs).await;
    let file = settled_to_change(shared, handle).await?;
    let _turn = handle.open.turn.lock().await;
    let done = shared.remote.set_space(&handle.who, &file, how, range).await;
    // Also if it has failed: a part of it may be done.
    shared.space.lock().spend(needs);
    let (before, attrs) = done?;
    changed(shared, handle, before, attrs);
    Ok(())
}

/// lseek(2): where data or a hole begins, at `offset` or behind.
pub(super) async fn seek(
    shared: &Arc<Shared>,
    handle: &Handle,
    offset: i64,
    whence: i32,
) -> Result<u64, Errno> {
    let nothing = Errno(libc::ENXIO);
    let Ok(offset) = u64::try_from(offset) else { return Err(nothing) };
    if handle.open.may_be_mapped() {
        // Pages that a mapping has written, and the kernel has not, may lie where the server has a hole.
        shared.drop_pages(handle.ino).await;
    }
    let file = settled(shared, handle).await?;
    let data = whence == libc::SEEK_DATA;
    let what = if data { CONTENT_DATA } else { CONTENT_HOLE };
    match shared.remote.seek(&handle.who, &file, offset, what).await {
        // The end of the file counts as a hole, not as data.
        Ok((true, _)) if data => Err(nothing),
        Ok((_, found)) if found >= offset && found <= i64::MAX as u64 => Ok(found),
        Ok(_) => Err(Errno::IO),
        // The whole file is data, then.
        Err(e) if files::is_unknown(e) => Err(NO_SUCH_REQUEST),
        Err(e) => Err(e.errno()),
    }
}

/// copy_file_range(2) from one file into another. Returns how many bytes were copied: fewer if the source ends, or the server copies fewer
/// at a time.
///
/// # Errors
/// EOPNOTSUPP: the kernel reads and writes.
pub(super) async fn copy(
    shared: &Arc<Shared>,
    (from, from_offset): (&Handle, u64),
    (to, to_offset): (&Handle, u64),
    count: u64,
) -> Result<u64, Errno> {
    if from.ino == to.ino {
        // Servers refuse it (RFC 7862 section 15.2.3).
        return Err(Errno::NOTSUP);
    }
    let source = settled(shared, from).await?;
    let target = settled_to_change(shared, to).await?;
    let size = shared.remote.get_attrs(&from.who, &source).await?.size;
    // A server need not copy anything of a range that ends behind the file.
    let count = count.min(size.saturating_sub(from_offset)).min(COPY_BYTES_MAX);
    if count == 0 {
        return Ok(0);
    }
    let _admitted = room::admit_at_once(shared, &to.who, Needs::data(count)).await;
    let mut lost = false;
    for _ in 0..=REWRITES_MAX {
        let src_stateid = locks::opened(shared, from, &source, OPEN4_SHARE_ACCESS_READ).await?;
        let dst_stateid = locks::opened(shared, to, &target, OPEN4_SHARE_ACCESS_WRITE).await?;
        let turn = to.open.turn.lock().await;
        let done = shared
            .remote
            .copy(&to.who, (&source, src_stateid, from_offset), (&target, dst_stateid, to_offset), count)
            .await;
        // Also if it has failed, or the server has restarted: a part of it may be done.
        shared.space.lock().spend(Needs::data(count));
        let Copied { count, verifier, before, mut attrs } = match done {
            Ok(copied) => copied,
            Err(e) if locks::is_lost(e.status()) && !lost => {
                lost = true;
                drop(turn);
                locks::opens_are_gone(from).await;
                locks::opens_are_gone(to).await;
                continue;
            }
            Err(e) => return Err(refusal(e)),
        };
        if count == 0 {
            // Programs would take that for the end of the source.
            return Err(Errno::NOTSUP);
        }
        if let Some(verifier) = verifier {
            let (committed, after) = shared.remote.commit(&to.who, &target).await?;
            if committed != verifier {
                // The server has restarted and may have lost it.
                continue;
            }
            attrs = after;
        }
        changed(shared, to, before, attrs);
        return Ok(count);
    }
    Err(Errno::IO)
}

/// What the kernel is told when the server does not copy.
fn refusal(e: Fault) -> Errno {
    match e.status() {
        _ if files::is_unknown(e) => NO_SUCH_REQUEST,
        Some(
            NfsStat::NFS4ERR_XDEV
            | NfsStat::NFS4ERR_OFFLOAD_DENIED
            | NfsStat::NFS4ERR_OFFLOAD_NO_REQS
            | NfsStat::NFS4ERR_UNION_NOTSUPP,
        ) => Errno::NOTSUP,
        _ => e.errno(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_spent_counts_however_much_programs_have_asked_for_before() {
        let mut space = crate::core::space::Space::default();
        for _ in 0..3 {
            space.spend(needs(Space::Allocate, (0, i64::MAX as u64)));
        }
        let (now, lease) = (Duration::from_secs(1), Duration::from_secs(90));
        let asked = space.ask(now);
        let has = Needs { bytes: u64::MAX, files: u64::MAX };
        space.told(7, asked, Some(has), now);
        let most = Needs::data(ROOM_BYTES_MAX / 2);
        assert!(space.admit(7, most, Needs::default(), (now, lease)));
        space.is_in(most);
        space.spend(most);
        assert!(!space.admit(7, most, Needs::default(), (now, lease)), "the server may not know of it");
    }

    #[test]
    fn modes_are_those_of_linux_client() {
        assert_eq!(space(0), Some(Space::Allocate));
        assert_eq!(space(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE), Some(Space::Punch));
        assert_eq!(space(libc::FALLOC_FL_ZERO_RANGE), Some(Space::Zero));
        for other in [
            libc::FALLOC_FL_KEEP_SIZE,
            libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
            libc::FALLOC_FL_COLLAPSE_RANGE,
            libc::FALLOC_FL_INSERT_RANGE,
        ] {
            assert_eq!(space(other), None, "{other}");
        }
    }
}
