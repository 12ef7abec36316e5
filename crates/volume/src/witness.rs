//! Witnesses: descriptors that know of every error in writing a file's data back since before its unstable data was written.
//!
//! The kernel writes data back when it likes. If that fails it notes an error for the file and takes the data for clean; sooner or
//! later a reader gets what is on the disk instead. Linux tells each open file description (open(2)) of such an error once,
//! and only of errors since it was opened (`errseq_t`, `lib/errseq.c`): a descriptor opened later learns of an earlier error
//! only if nobody has been told yet, and of none that was noted on an inode the kernel has evicted since. So a COMMIT that
//! opens the file anew may hear of nothing although the data is lost.
//!
//! Invariants:
//!
//! - A file that is not [`crate::dirty::Dirty::Clean`] has a witness that was opened before the first of these changes. It stays open,
//!   whoever closes the file, and keeps the inode in memory.
//! - A witness is asked only under the node's attribute lock, and an error fails the volume before the lock is given up. So nobody
//!   finds it silent because it has just told somebody else. Nothing else is done with it but reading: a flush through it would
//!   take the error away.
//! - Flushing the whole filesystem through the descriptor that is open since the start tells of errors of every file
//!   ([`crate::together`]). What was written before such a flush needs no witness any more.
//! - It is open for reading only, so a local process can run the file.
//! - A dead file has none, so that its space is free with its last open.
//! - There are at most [`crate::limits::WITNESSES_MAX`]. Those of clean files go first. Files that nobody has committed for [`crate::limits::UNSTABLE_OLD`] the
//!   server commits itself, on a thread that may wait for the disk. Should all places be taken nevertheless, unstable writes to
//!   further files are done stably (RFC 1813 section 3.3.7 and RFC 8881 section 18.32.3 let the server do more than was asked
//!   for): that costs only those who write, and keeps no worker waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::kernel::{AsFd, BorrowedFd, OwnedFd};

/// A file's witness. See the module's comment.
#[derive(Debug, Clone)]
pub(crate) struct Witness(pub(crate) Arc<Inner>);

/// See [`Witness`].
#[derive(Debug)]
pub(crate) struct Inner {
    fd: Arc<Opened>,
    /// What was written before needs no witness.
    pub(crate) since: Instant,
    /// [`crate::node::NodeState::logged_at`] then: the log may hold facts that are older than the witness. 0: none that anybody need doubt.
    doubtful: u64,
}

/// The descriptor, counted.
#[derive(Debug)]
struct Opened {
    fd: OwnedFd,
    count: Arc<AtomicUsize>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl AsFd for Witness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.fd.as_fd()
    }
}

impl Witness {
    /// One that is counted in `count` as long as it is there.
    pub(crate) fn new(fd: OwnedFd, since: Instant, doubtful: u64, count: &Arc<AtomicUsize>) -> Witness {
        count.fetch_add(1, Ordering::AcqRel);
        let fd = Arc::new(Opened { fd, count: count.clone() });
        Witness(Arc::new(Inner { fd, since, doubtful }))
    }

    /// The same descriptor; what was written before `since` needs it no more.
    pub(crate) fn renewed(&self, since: Instant) -> Witness {
        Witness(Arc::new(Inner { fd: self.0.fd.clone(), since, doubtful: 0 }))
    }

    /// See [`Inner::doubtful`].
    pub(crate) fn doubtful(&self) -> u64 {
        self.0.doubtful
    }

    /// True if a row is of this one.
    pub(crate) fn is(&self, row: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.0, row)
    }
}
