//! Flushes of the volume's filesystem, with a check that they can be believed.
//!
//! `fsync`, `fdatasync` and `syncfs` wait for the filesystem's pending work. If its journal could not be written, for
//! whatever reason it was being written (somebody else's flush, its own timer), nothing is pending any more, and a later
//! flush succeeds although earlier changes are lost: ext4 sees no transaction to wait for, btrfs has turned read-only, and
//! the kernel has nothing to flush on a read-only filesystem.
//!
//! Such a filesystem refuses all changes from then on. So after each flush we make a call that only a filesystem which accepts
//! changes answers normally: we remove an attribute that does not exist. The filesystem marks its failure before the wait for the
//! lost transaction can end, hence before the flush returns. So if the call is answered normally, no journal was lost before
//! the flush.

use std::io::{Error, Result};

use rustix::io::Errno;

use crate::kernel::{self, AsFd};

const ABSENT_XATTR: &str = "trusted.landfast.absent";

/// Calls fsync. `dir` is any directory of the same filesystem, open for reading.
pub(crate) fn file(fd: impl AsFd, dir: impl AsFd) -> Result<()> {
    kernel::fsync(fd)?;
    confirm(dir)
}

pub(crate) fn data(fd: impl AsFd, dir: impl AsFd) -> Result<()> {
    kernel::fdatasync(fd)?;
    confirm(dir)
}

/// Calls syncfs for the filesystem of `dir`. Reports write-back errors since `dir` was opened.
pub(crate) fn all(dir: impl AsFd) -> Result<()> {
    kernel::syncfs(&dir)?;
    confirm(dir)
}

fn confirm(dir: impl AsFd) -> Result<()> {
    match kernel::fremovexattr(dir, ABSENT_XATTR) {
        // Also "no space": only a filesystem that accepts changes refuses for that reason.
        Ok(()) | Err(Errno::NODATA | Errno::NOSPC | Errno::DQUOT) => Ok(()),
        // No such attributes here, or no right to them. With a log neither happens, since the tag is such an attribute.
        Err(Errno::OPNOTSUPP | Errno::PERM) => Ok(()),
        Err(e) => Err(Error::new(
            e.kind(),
            format!(
                "{e}: the filesystem takes no changes any more, so those before the flush may be lost as well"
            ),
        )),
    }
}
