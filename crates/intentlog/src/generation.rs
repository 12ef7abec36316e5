//! Requests in hand: received, modifying, not yet committed.
//!
//! With several clients at work, a flush that starts the moment the first of them is ready leaves the others
//! to the next one. So a seal first lets those requests join that had been *received* when the seal began:
//! no later ones, and for a bounded time. Requests belong to a generation; a seal closes the current
//! generation and waits for that one only. What is late once is never waited for again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Requests received between two seals.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    in_hand: AtomicU64,
    /// The writer waits for `in_hand` to reach 0, or once did.
    awaited: AtomicBool,
}

impl Generation {
    pub(crate) fn is_empty(&self) -> bool {
        self.in_hand.load(Ordering::SeqCst) == 0
    }

    /// Others are in hand beside the one that asks.
    pub(crate) fn has_company(&self) -> bool {
        self.in_hand.load(Ordering::SeqCst) > 1
    }

    /// One request less; `true` if the writer may wait for that.
    pub(crate) fn leave(&self) -> bool {
        self.in_hand.fetch_sub(1, Ordering::SeqCst) == 1 && self.awaited.load(Ordering::SeqCst)
    }

    pub(crate) fn set_awaited(&self) {
        self.awaited.store(true, Ordering::SeqCst);
    }
}

/// The generation that new requests join.
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

    /// Nobody is known to be on the way.
    pub(crate) fn none(&self) -> bool {
        self.current.lock().is_empty()
    }

    /// Closes the current generation if it has requests in hand.
    pub(crate) fn close(&self) -> Option<Arc<Generation>> {
        let mut current = self.current.lock();
        (!current.is_empty()).then(|| std::mem::take(&mut *current))
    }
}
