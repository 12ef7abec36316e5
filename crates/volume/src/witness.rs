//! Witnesses: descriptors that learn of every write-back error of a file since before its unstable data was written.
//!
//! The kernel writes data back when it likes. If that fails, it notes an error for the file and treats the data as clean;
//! sooner or later a reader gets what is on the disk instead. Linux reports such an error once to each open file description
//! (open(2)), and only if it was opened before the error (`errseq_t`, `lib/errseq.c`). A descriptor opened later learns of
//! the error only if nobody has been told yet and the kernel has not evicted the inode since. So a COMMIT that opens the
//! file anew may see no error although the data is lost.
//!
//! Invariants:
//!
//! - A file that is not [`crate::dirty::Dirty::Clean`] has a witness that was opened before the first of these changes. The witness
//!   stays open, whoever closes the file, and keeps the inode in memory. An operation that changes data without the attribute lock
//!   keeps the witness itself until it has noted the change.
//! - A witness is asked only under the node's attribute lock, and an error fails the volume before the lock is released. So nobody
//!   finds it silent because it has just told somebody else. It is used only for that and for reading: a flush through it would
//!   consume the error.
//! - Flushing the whole filesystem through the descriptor that is open since the start reports errors of every file
//!   ([`crate::shared_syncfs`]). Data written before such a flush needs no witness any more.
//! - It is open for reading only, so a local process can run the file.
//! - A dead file has none, so that its space is freed with its last open.
//! - There are at most [`crate::limits::WITNESSES_MAX`]:
//!   - Those of clean files are closed first.
//!   - A thread that may wait for the disk commits files that nobody has committed for [`crate::limits::UNSTABLE_OLD`].
//!   - If all places are taken nevertheless, unstable writes to further files are done stably (RFC 1813 section 3.3.7 and RFC
//!     8881 section 18.32.3 allow more than was asked for). That costs only the writers and blocks no worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::kernel::{AsFd, BorrowedFd, OwnedFd};

#[derive(Debug, Clone)]
pub(crate) struct Witness(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    fd: Arc<Opened>,
    /// Data written before this needs no witness.
    pub(crate) since: Instant,
    /// The value of [`crate::node::NodeState::logged_at`] at opening, if the log may hold facts older than the witness; 0: it holds
    /// none that can be doubtful.
    doubtful: u64,
}

/// The descriptor; `count` includes it.
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
    /// A witness that is counted in `count` while it exists.
    pub(crate) fn new(fd: OwnedFd, since: Instant, doubtful: u64, count: &Arc<AtomicUsize>) -> Witness {
        count.fetch_add(1, Ordering::AcqRel);
        let fd = Arc::new(Opened { fd, count: count.clone() });
        Witness(Arc::new(Inner { fd, since, doubtful }))
    }

    /// The same descriptor, when data written before `since` no longer needs it.
    pub(crate) fn renewed(&self, since: Instant) -> Witness {
        Witness(Arc::new(Inner { fd: self.0.fd.clone(), since, doubtful: 0 }))
    }

    /// True if one of the two is the other or was made of it by [`Witness::renewed`].
    pub(crate) fn is_same_descriptor(&self, other: &Witness) -> bool {
        Arc::ptr_eq(&self.0.fd, &other.0.fd)
    }

    pub(crate) fn doubtful(&self) -> u64 {
        self.0.doubtful
    }

    /// True if `row` is of this witness.
    pub(crate) fn is(&self, row: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.0, row)
    }
}
