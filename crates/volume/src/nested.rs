//! Keeps two servers off one tree: with a volume inside another volume's directory, two logs would record one object.
//!
//! Each volume holds an exclusive lock (`flock`) on its own directory and a shared one on each directory above it, up to the
//! root of the filesystem. So a volume above or below a live volume cannot take its own lock, whichever starts first and
//! whichever mount or container it uses. Volumes side by side share the locks above them. The kernel drops the locks of a process
//! that dies. A volume that was not stopped cleanly holds no lock, but its tag says so: no volume is opened below it, and a
//! server above it does not enter it ([`is_anothers`]).

use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, Statx};
use rustix::io::Errno;

use crate::error::OpenError;
use crate::faults::{Bug, bug};
use crate::identity::Identity;
use crate::kernel::btime_ns;
use crate::kernel::{self, OwnedFd};
use crate::limits::{DEPTH_MAX, LOCK_TRIES, LOCK_TRY_PAUSE};
use crate::options::OpenOptions;
use crate::record::{KernelHandle, ObjId};
use crate::state::STATE_DIR;
use crate::tag;

/// The holder's name in [`OpenError::Within`] and [`OpenError::Around`] if it is this process.
pub const THIS_PROCESS: &str = "this process";

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

#[derive(Debug, Default)]
pub(crate) struct TreeLocks {
    _held: Vec<OwnedFd>,
}

/// Takes the locks of the volume at `mount`; `dir` is its path.
pub(crate) fn lock(o: &OpenOptions, dir: &Path, mount: &OwnedFd) -> Result<TreeLocks, OpenError> {
    if o.experiment.unprivileged || bug(Bug::OverlapUnlocked) || !kernel::has_tree() {
        return Ok(TreeLocks::default());
    }
    let wrap = |e: Errno| OpenError::io(format!("locking {} and the directories above it", dir.display()), e);
    let own = kernel::openat(mount, c".", DIRECTORY, Mode::empty()).map_err(wrap)?;
    if !take(&own, FlockOperation::NonBlockingLockExclusive) {
        let (holder, inner) = kernel::below_locked_by(&own, dir, STATE_DIR);
        let holder = or_this(holder);
        return Err(OpenError::Around { dir: dir.to_owned(), inner, holder });
    }
    let mut held = vec![own];
    let (mut at, mut seen) = start(mount).map_err(wrap)?;
    for _ in 0..DEPTH_MAX {
        let above = kernel::openat(&at, c"..", DIRECTORY, Mode::empty()).map_err(wrap)?;
        let look = kernel::look(&above).map_err(wrap)?;
        // The root of the filesystem, or of its only visible mount.
        if look.stx_mnt_id != seen.stx_mnt_id
            || (look.stx_ino, look.stx_dev_minor) == (seen.stx_ino, seen.stx_dev_minor)
        {
            break;
        }
        let path = kernel::path_of(&above);
        if !take(&above, FlockOperation::NonBlockingLockShared) {
            let holder = or_this(kernel::lock_holder(&above));
            return Err(OpenError::Within { dir: dir.to_owned(), outer: path, holder: Some(holder) });
        }
        let (kh, _) = kernel::handle_of(&above).map_err(wrap)?;
        if unclean(&above, &kh, &look).is_some() {
            return Err(OpenError::Within { dir: dir.to_owned(), outer: path, holder: None });
        }
        let next = kernel::openat(&above, c".", DIRECTORY, Mode::empty()).map_err(wrap)?;
        held.push(above);
        (at, seen) = (next, look);
    }
    Ok(TreeLocks { _held: held })
}

fn or_this(holder: String) -> String {
    if holder == format!("process {}", kernel::process_id()) { THIS_PROCESS.to_owned() } else { holder }
}

/// The directory, through the mount that shows most of what is above it.
fn start(mount: &OwnedFd) -> Result<(OwnedFd, Statx), Errno> {
    let look = kernel::look(mount)?;
    let (kh, _) = kernel::handle_of(mount)?;
    for wider in kernel::wider_mounts(look.stx_mnt_id) {
        let Ok(point) = kernel::open(&wider.point, DIRECTORY, Mode::empty()) else { continue };
        // Something else may be mounted over it.
        if !kernel::look(&point).is_ok_and(|seen| seen.stx_mnt_id == wider.id) {
            continue;
        }
        if let Ok(same) = kernel::open_handle_for(&point, &kh, DIRECTORY)
            && let Ok(seen) = kernel::look(&same)
            && seen.stx_ino == look.stx_ino
        {
            return Ok((same, seen));
        }
    }
    Ok((kernel::openat(mount, c".", DIRECTORY, Mode::empty())?, look))
}

/// Whether the lock was taken. A filesystem without such locks has none to respect. Other programs (`systemd-tmpfiles`) lock a
/// directory for a moment, so this tries several times.
fn take(fd: &OwnedFd, lock: FlockOperation) -> bool {
    for tried in 1..=LOCK_TRIES {
        match kernel::flock(fd, lock) {
            Err(Errno::WOULDBLOCK) if tried < LOCK_TRIES => kernel::pause(LOCK_TRY_PAUSE),
            Err(Errno::WOULDBLOCK) => return false,
            Err(_) | Ok(()) => return true,
        }
    }
    false
}

/// The id of the volume in this directory, if it is in use or was not stopped cleanly. A copy of a volume does not count.
fn unclean(dir: &OwnedFd, kh: &KernelHandle, look: &Statx) -> Option<[u8; 16]> {
    let tag = tag::read(dir).ok().flatten().filter(|tag| !tag.clean)?;
    let state_dir = kernel::openat(dir, STATE_DIR, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()).ok()?;
    let known = Identity::load(&state_dir).ok().flatten()?;
    let this = ObjId { kh: kh.clone(), btime_ns: btime_ns(look) };
    (known.root == this && !known.clean).then_some(tag.volume_id)
}

/// Whether a directory is the root of another volume than the one at `mount`, which is in use or whose log has changes that the
/// directory lacks. Then this volume must not change anything in it.
pub(crate) fn is_anothers(mount: &OwnedFd, volume_id: [u8; 16], kh: &KernelHandle, look: &Statx) -> bool {
    if bug(Bug::OverlapUnlocked) || !kernel::has_tree() {
        return false;
    }
    let Ok(dir) = kernel::open_handle(mount, kh) else { return false };
    if !kernel::has_xattr(&dir, tag::TAG_XATTR) {
        return false;
    }
    let Ok(dir) = kernel::reopen(&dir, DIRECTORY) else { return false };
    unclean(&dir, kh, look).is_some_and(|id| id != volume_id)
}
