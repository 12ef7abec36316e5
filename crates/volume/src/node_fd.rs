//! Shared descriptors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::kernel::{AsFd, BorrowedFd, OwnedFd};

/// A descriptor that several may hold, and the counter that includes it.
pub(crate) struct NodeFd {
    fd: OwnedFd,
    counter: Option<Arc<AtomicUsize>>,
}

impl NodeFd {
    /// A descriptor that a node keeps.
    pub(crate) fn counted(fd: OwnedFd, counter: &Arc<AtomicUsize>) -> Arc<NodeFd> {
        counter.fetch_add(1, Ordering::Relaxed);
        Arc::new(NodeFd { fd, counter: Some(counter.clone()) })
    }

    pub(crate) fn uncounted(fd: OwnedFd) -> Arc<NodeFd> {
        Arc::new(NodeFd { fd, counter: None })
    }
}

impl AsFd for NodeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for NodeFd {
    fn drop(&mut self) {
        if let Some(counter) = &self.counter {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
