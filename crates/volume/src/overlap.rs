//! Whether two volumes have objects in common: then two logs would tell of one object, and recovery could not know which
//! is right.

use rustix::fs::{Mode, OFlags, Statx};

use crate::error::Error;
use crate::kernel;
use crate::limits::DEPTH_MAX;
use crate::volume::Volume;

const UP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn device(sx: &Statx) -> (u32, u32) {
    (sx.stx_dev_major, sx.stx_dev_minor)
}

impl Volume {
    /// Whether the directory of `other` is that of this volume or lies below it, on the same filesystem. Also when it was
    /// reached by another mount: what counts is the filesystem's own tree.
    pub fn contains(&self, other: &Volume) -> Result<bool, Error> {
        self.assume_root()?;
        let top = kernel::look(&self.0.mount)?;
        let inner = kernel::look(&other.0.mount)?;
        if device(&top) != device(&inner) {
            return Ok(false);
        }
        // As this volume's mount sees it; where that shows another part of the filesystem, it cannot be below.
        let (kh, _) = kernel::handle_of(&other.0.mount)?;
        let Ok(mut at) = kernel::open_handle(&self.0.mount, &kh) else { return Ok(false) };
        for _ in 0..DEPTH_MAX {
            let here = kernel::look(&at)?;
            if (here.stx_ino, device(&here)) == (top.stx_ino, device(&top)) {
                return Ok(true);
            }
            let above = kernel::openat(&at, c"..", UP, Mode::empty())?;
            let seen = kernel::look(&above)?;
            if (seen.stx_ino, device(&seen)) == (here.stx_ino, device(&here)) || device(&seen) != device(&top)
            {
                return Ok(false);
            }
            at = above;
        }
        Ok(false)
    }
}
