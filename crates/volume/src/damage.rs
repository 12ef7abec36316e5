//! Damage that a filesystem has found in itself.
//!
//! ext4 allocates blocks when it writes data back. If its own metadata is damaged or unreadable, it drops the data in the
//! background ("This should not happen!! Data will be lost" in the kernel's log) and notes no error for the file or the
//! filesystem: later `fsync` and `syncfs` calls succeed. Unless it is mounted with `errors=remount-ro`, two traces are left:
//! a notice for who asked for it (`FAN_FS_ERROR` of fanotify(7), Linux 5.16), and its error counter (`errors_count` in
//! sysfs). The notice comes at once. The counter grows later, when a worker of the kernel has got a place in the journal: behind a
//! commit, that is, and the flush that must not be believed may be this commit. But some damage in the block groups is only counted.
//! So a flush is believed only if neither is there that was not when the directory was opened. XFS and btrfs note an
//! error for the file.

use std::io::{Error, Result};

use crate::kernel::{self, AsFd, OwnedFd};

pub(crate) struct Damage {
    /// Readable from the first damage on: nobody reads from it.
    notices: Option<OwnedFd>,
    /// The counter and its first value. `None` for filesystems that do not need it, and where the system does not show it.
    counter: Option<(OwnedFd, Vec<u8>)>,
}

impl Damage {
    pub(crate) fn watch(mount: impl AsFd) -> Damage {
        let counter = kernel::error_counter(&mount).and_then(|counter| Some((read(&counter)?, counter)));
        Damage { notices: kernel::error_notices(&mount), counter: counter.map(|(at, counter)| (counter, at)) }
    }

    /// Fails if damage was found since [`Damage::watch`].
    pub(crate) fn check(&self) -> Result<()> {
        let noticed = match &self.notices {
            Some(notices) => kernel::is_readable(notices)?,
            None => false,
        };
        let counted =
            || self.counter.as_ref().is_some_and(|(counter, at)| read(counter).is_some_and(|now| now != *at));
        if noticed || counted() {
            return Err(Error::other(
                "the filesystem has found itself damaged (see errors_count below /sys/fs/ext4 and the kernel's log), and may have \
                 dropped data without an error",
            ));
        }
        Ok(())
    }
}

fn read(counter: &OwnedFd) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(24);
    kernel::pread_spare(counter, &mut value, 0).ok().map(|_| value)
}
