//! Damage that a filesystem has found in itself.
//!
//! ext4 allocates blocks when it writes data back. If its own metadata is damaged or unreadable, it drops the data in the
//! background ("This should not happen!! Data will be lost" in the kernel's log) and notes no error for the file or the
//! filesystem: later `fsync` and `syncfs` calls succeed. Unless it is mounted with `errors=remount-ro`, the only trace is that
//! its error counter has grown (`errors_count` in sysfs). So a flush is believed only if the counter is the same as when the
//! directory was opened. XFS and btrfs note an error for the file.

use std::io::{Error, Result};

use crate::kernel::{self, AsFd, OwnedFd};

/// The counter and its first value. `None` for filesystems that do not need it, and where the system does not show it.
pub(crate) struct Damage(Option<(OwnedFd, Vec<u8>)>);

impl Damage {
    pub(crate) fn watch(mount: impl AsFd) -> Damage {
        let counter = kernel::error_counter(mount);
        Damage(
            counter.and_then(|counter| Some((read(&counter)?, counter))).map(|(at, counter)| (counter, at)),
        )
    }

    /// Fails if damage was found since [`Damage::watch`].
    pub(crate) fn check(&self) -> Result<()> {
        match &self.0 {
            Some((counter, at)) if read(counter).is_some_and(|now| now != *at) => Err(Error::other(
                "the filesystem has found itself damaged (errors_count has grown), and may have dropped data without an error",
            )),
            _ => Ok(()),
        }
    }
}

fn read(counter: &OwnedFd) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(24);
    kernel::pread_spare(counter, &mut value, 0).ok().map(|_| value)
}
