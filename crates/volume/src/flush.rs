//! Flushes of the volume's filesystem, believed only as far as they may be.
//!
//! `fsync`, `fdatasync` and `syncfs` wait for what the filesystem has still to do. If its journal could not be written, for
//! whatever reason it was just writing it (somebody else's flush, its own timer), there is nothing left to do, and a flush that comes
//! after that succeeds: ext4 sees no transaction to wait for, btrfs has turned read-only, and the kernel has nothing to flush
//! on what is read-only. What was changed before is gone all the same.
//!
//! Such a filesystem takes no changes any more, for good. So each flush is followed by a question that only a filesystem
//! answers that takes some: it is asked to remove an attribute that is not there. The failure is marked before the waiting for
//! the lost transaction can end, hence before the flush returns, so the question comes late enough; and when it is answered,
//! no journal was lost before the flush.

use std::io::{Error, Result};

use rustix::io::Errno;

use crate::kernel::{self, AsFd};

/// Nobody sets this.
const ABSENT_XATTR: &str = "trusted.landfast.absent";

/// fsync. `dir` is any directory of the same filesystem, open for reading.
pub(crate) fn file(fd: impl AsFd, dir: impl AsFd) -> Result<()> {
    kernel::fsync(fd)?;
    confirm(dir)
}

/// fdatasync.
pub(crate) fn data(fd: impl AsFd, dir: impl AsFd) -> Result<()> {
    kernel::fdatasync(fd)?;
    confirm(dir)
}

/// syncfs of the filesystem of `dir`. Reports write-back errors since `dir` was opened.
pub(crate) fn all(dir: impl AsFd) -> Result<()> {
    kernel::syncfs(&dir)?;
    confirm(dir)
}

fn confirm(dir: impl AsFd) -> Result<()> {
    match kernel::fremovexattr(dir, ABSENT_XATTR) {
        // For want of room, too, only a filesystem refuses that would take a change.
        Ok(()) | Err(Errno::NODATA | Errno::NOSPC | Errno::DQUOT) => Ok(()),
        // No such attributes here, or none for us: with a log neither is so, as the tag is one.
        Err(Errno::OPNOTSUPP | Errno::PERM) => Ok(()),
        Err(e) => Err(Error::new(
            e.kind(),
            format!(
                "{e}: the filesystem takes no changes any more, so those before the flush may be lost as well"
            ),
        )),
    }
}
