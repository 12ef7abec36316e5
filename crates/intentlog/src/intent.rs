//! Requests in hand: received, modifying, not yet committed.
//!
//! With several clients at work, a flush that starts the moment the first of them is ready leaves the others
//! to the next one. So a seal first lets those requests join that had been *received* when the seal began:
//! no later ones, and for a bounded time. Requests belong to a generation; a seal closes the current
//! generation and waits for that one only. What is late once is never waited for again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::core::Core;

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

/// A request that has been received and will modify something. Hold it from receipt until its transaction
/// is committed; drop it before waiting for anything (admission, a ticket, a disk, another request).
///
/// It is a hint: no promise depends on it, and no seal waits longer than
/// [`INTENT_WAIT_MAX`](crate::limits::INTENT_WAIT_MAX).
pub struct Intent {
    core: Arc<Core>,
    generation: Arc<Generation>,
}

impl Intent {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        let generation = core.intents.join();
        Intent { core, generation }
    }

    /// Others are likely to arrive while this request is at work: another is in hand, or flushes have been shared
    /// of late. Then it pays to let them announce themselves first.
    pub fn in_company(&self) -> bool {
        self.generation.in_hand.load(Ordering::SeqCst) > 1 || self.core.state.lock().shared > 0
    }
}

impl std::fmt::Debug for Intent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Intent")
    }
}

impl Drop for Intent {
    fn drop(&mut self) {
        if self.generation.in_hand.fetch_sub(1, Ordering::SeqCst) == 1
            && self.generation.awaited.load(Ordering::SeqCst)
        {
            self.core.wake_writer();
        }
    }
}
