//! Announced requests: received, modifying, not yet committed.
//!
//! With several clients, a flush that starts as soon as one request is ready leaves the others to the next flush. So a
//! seal waits, for a bounded time, for the requests that were *received* before it began. Each request belongs to a
//! generation. A seal closes the current generation and waits for that one only, so a late request is waited for once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(crate) struct Generation {
    in_hand: AtomicU64,
    /// The writer waits, or has waited, for `in_hand` to reach 0.
    awaited: AtomicBool,
}

impl Generation {
    pub(crate) fn is_empty(&self) -> bool {
        self.in_hand.load(Ordering::SeqCst) == 0
    }

    /// There are others beside the caller's.
    pub(crate) fn has_company(&self) -> bool {
        self.in_hand.load(Ordering::SeqCst) > 1
    }

    /// Removes one request; `true` if the writer may be waiting for that.
    pub(crate) fn leave(&self) -> bool {
        self.in_hand.fetch_sub(1, Ordering::SeqCst) == 1 && self.awaited.load(Ordering::SeqCst)
    }

    pub(crate) fn set_awaited(&self) {
        self.awaited.store(true, Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Intents {
    current: Mutex<Arc<Generation>>,
}

impl Intents {
    pub(crate) fn join(&self) -> Arc<Generation> {
        let current = self.current.lock();
        current.in_hand.fetch_add(1, Ordering::SeqCst);
        current.clone()
    }

    pub(crate) fn none(&self) -> bool {
        self.current.lock().is_empty()
    }

    /// Closes the current generation, unless it is empty.
    pub(crate) fn close(&self) -> Option<Arc<Generation>> {
        let mut current = self.current.lock();
        (!current.is_empty()).then(|| std::mem::take(&mut *current))
    }
}
