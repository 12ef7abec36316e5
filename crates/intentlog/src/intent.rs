//! Announced requests.

use std::sync::Arc;

use crate::core::Core;
use crate::generation::Generation;

/// A request that has been received and will modify something. Its owner holds this from receipt until the transaction
/// is committed, and drops it before waiting for anything (admission, a ticket, a disk, another request).
///
/// It is a hint: a seal waits for it, so that it shares the flush, but no longer than
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

    /// Other requests are likely to arrive while this one runs: another is announced, or recent batches had several
    /// transactions. Then it pays to let them announce themselves first.
    pub fn in_company(&self) -> bool {
        self.generation.has_company() || self.core.state.lock().shared > 0
    }
}

impl std::fmt::Debug for Intent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Intent")
    }
}

impl Drop for Intent {
    fn drop(&mut self) {
        if self.generation.leave() {
            self.core.wake_writer();
        }
    }
}
