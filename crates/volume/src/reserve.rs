//! A reserve of space on the volume, so that recovery is possible on a full disk.
//!
//! An operation found its space before it was promised. But after a crash something else may have taken that space, and staging
//! needs some, too. So the state directory has a preallocated file, which recovery removes first.

use std::io::Result;

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::flush;
use crate::kernel::{self, OwnedFd};
use crate::limits::{RESERVE_BYTES_MAX, RESERVE_BYTES_MIN, RESERVE_PART};

const RESERVE_FILE: &str = "reserve";

/// Takes the reserve, unless it exists: 1/[`RESERVE_PART`] of the filesystem, at most [`RESERVE_BYTES_MAX`]. Takes
/// less if space is short, and nothing if there is none: a full disk must not keep a volume from being served.
pub(crate) fn take(state_dir: &OwnedFd) -> Result<()> {
    let fs = kernel::fstatvfs(state_dir)?;
    let bytes = (fs.f_blocks.saturating_mul(fs.f_frsize) / RESERVE_PART).min(RESERVE_BYTES_MAX);
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = match kernel::openat(state_dir, RESERVE_FILE, flags, Mode::from_raw_mode(0o600)) {
        Ok(file) => file,
        Err(Errno::NOSPC | Errno::DQUOT) => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    if kernel::fstat(&file)?.st_size as u64 == bytes {
        return Ok(());
    }
    let mut wanted = bytes.max(1);
    loop {
        match kernel::fallocate(&file, FallocateFlags::empty(), 0, wanted) {
            Ok(()) => return Ok(()),
            Err(Errno::NOSPC | Errno::DQUOT) if wanted > RESERVE_BYTES_MIN => wanted /= 2,
            Err(Errno::NOSPC | Errno::DQUOT | Errno::OPNOTSUPP) => return release(state_dir),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Gives the reserve back to the filesystem and waits until the space is usable: btrfs updates its free space and quotas
/// at the end of its transaction.
pub(crate) fn release(state_dir: &OwnedFd) -> Result<()> {
    match kernel::unlinkat(state_dir, RESERVE_FILE, AtFlags::empty()) {
        Ok(()) => flush::all(state_dir),
        Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
