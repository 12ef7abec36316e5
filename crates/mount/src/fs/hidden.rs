//! Files that are removed and still open: each keeps a hidden name, `.nfs...`, until its last close. The kernel does not wait for the
//! end of a close, so a program may remove the directory before the hidden name is gone.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::core::Ino;
use crate::limits::CLOSE_TOLD_WITHIN;

/// A removed file.
pub(super) trait Removed {
    /// Whether all who had it open have closed it: then its name is being removed.
    fn is_closed(&self) -> bool;

    /// Whether all who had it open may have closed it, and the kernel has not told of the end of all closes yet.
    fn may_be_closed(&self) -> bool;
}

/// One hidden name.
#[derive(Debug)]
struct Hidden<T> {
    dir: Ino,
    name: Bytes,
    file: Arc<T>,
}

/// The hidden names of all directories. As many as there are removed files that are open.
#[derive(Debug)]
pub(super) struct HiddenNames<T> {
    names: Mutex<Vec<Hidden<T>>>,
    gone: Notify,
}

impl<T> Default for HiddenNames<T> {
    fn default() -> Self {
        HiddenNames { names: Mutex::default(), gone: Notify::new() }
    }
}

impl<T: Removed> HiddenNames<T> {
    /// A file is known to the server by this name only.
    pub(super) fn add(&self, dir: Ino, name: Bytes, file: Arc<T>) {
        let mut names = self.names.lock();
        // An earlier hidden name may have been removed as well.
        names.retain(|hidden| !Arc::ptr_eq(&hidden.file, &file));
        names.push(Hidden { dir, name, file });
    }

    /// The name is removed, or cannot be.
    pub(super) fn remove(&self, dir: Ino, name: &Bytes) {
        self.names.lock().retain(|hidden| hidden.dir != dir || hidden.name != *name);
        self.gone.notify_waiters();
    }

    /// Whether the directory has a hidden name.
    pub(super) fn has_in(&self, dir: Ino) -> bool {
        self.names.lock().iter().any(|hidden| hidden.dir == dir)
    }

    /// Waits until the directory has no hidden name of a file that nobody has open any more. Returns whether it had any.
    pub(super) async fn removed(&self, dir: Ino) -> bool {
        self.removed_where(|hidden| hidden.dir == dir && hidden.file.is_closed()).await
    }

    /// As [`HiddenNames::removed`], of files that may be closed, too: for a while, since a copy of a file descriptor may be open.
    pub(super) async fn removed_soon(&self, dir: Ino) -> bool {
        let closed = |file: &T| file.is_closed() || file.may_be_closed();
        let removed = self.removed_where(|hidden| hidden.dir == dir && closed(&hidden.file));
        // Who waited for nothing in vain asks once more in vain.
        tokio::time::timeout(CLOSE_TOLD_WITHIN, removed).await.unwrap_or(true)
    }

    /// As [`HiddenNames::removed`], of all directories.
    pub(super) async fn all_removed(&self) -> bool {
        self.removed_where(|hidden| hidden.file.is_closed()).await
    }

    async fn removed_where(&self, waits: impl Fn(&Hidden<T>) -> bool) -> bool {
        let mut waited = false;
        loop {
            let mut gone = std::pin::pin!(self.gone.notified());
            gone.as_mut().enable();
            if !self.names.lock().iter().any(&waits) {
                return waited;
            }
            waited = true;
            gone.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Closed(bool);

    impl Removed for Closed {
        fn is_closed(&self) -> bool {
            self.0
        }

        fn may_be_closed(&self) -> bool {
            self.0
        }
    }

    /// Flushed, and the kernel has not told that it is closed.
    struct Flushed;

    impl Removed for Flushed {
        fn is_closed(&self) -> bool {
            false
        }

        fn may_be_closed(&self) -> bool {
            true
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_close_that_the_kernel_tells_late_is_waited_for_a_while() {
        let names = Arc::new(HiddenNames::default());
        let name = Bytes::from_static(b".nfs0");
        names.add(1, name.clone(), Arc::new(Flushed));
        assert!(!names.removed(1).await, "it is not known to be closed");
        assert!(!names.removed_soon(2).await, "another directory");
        let begun = tokio::time::Instant::now();
        let here = names.clone();
        let waits = tokio::spawn(async move { here.removed_soon(1).await });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        names.remove(1, &name);
        assert!(waits.await.unwrap() && begun.elapsed() < CLOSE_TOLD_WITHIN);
        // A copy of it is open.
        names.add(1, name, Arc::new(Flushed));
        assert!(names.removed_soon(1).await && begun.elapsed() >= CLOSE_TOLD_WITHIN);
    }

    #[tokio::test]
    async fn only_names_of_closed_files_in_this_directory_are_waited_for() {
        let names = Arc::new(HiddenNames::default());
        let name = Bytes::from_static(b".nfs1");
        names.add(1, Bytes::from_static(b".nfs0"), Arc::new(Closed(false)));
        names.add(2, name.clone(), Arc::new(Closed(true)));
        assert!(!names.removed(1).await, "it is open");
        let (here, everywhere) = (names.clone(), names.clone());
        let waits = [
            tokio::spawn(async move { here.removed(2).await }),
            tokio::spawn(async move { everywhere.all_removed().await }),
        ];
        tokio::task::yield_now().await;
        assert!(!waits.iter().any(tokio::task::JoinHandle::is_finished));
        names.remove(2, &name);
        for waits in waits {
            assert!(waits.await.unwrap());
        }
        assert!(!names.removed(2).await && !names.all_removed().await);
    }
}
