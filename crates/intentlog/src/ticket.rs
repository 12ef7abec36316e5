//! Tickets: what a committed transaction waits on. Each points at the [`Outcome`] of its batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::core::Core;
use crate::error::LogError;
use crate::lead;
use crate::outcome::Outcome;

/// Succeeds when the records of one committed transaction are on stable storage.
#[derive(Clone)]
pub struct Ticket {
    core: Arc<Core>,
    outcome: Arc<Outcome>,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ticket").field(&self.outcome.result()).finish()
    }
}

impl Ticket {
    pub(crate) fn new(core: Arc<Core>, outcome: Arc<Outcome>) -> Self {
        Ticket { core, outcome }
    }

    pub(crate) fn outcome(&self) -> &Arc<Outcome> {
        &self.outcome
    }

    /// Number of its batch. Batches become durable in the order of their numbers.
    pub fn batch(&self) -> u64 {
        self.outcome.batch()
    }

    /// Asks for the flush without waiting for it. Call this before handing the ticket to another task: the flush then
    /// runs while the task is being woken.
    pub fn request(&self) {
        if self.outcome.want() {
            self.core.want(&self.outcome);
        }
    }

    /// Flushes on this thread, or asks the writer to.
    fn flush(&self) {
        if self.outcome.result().is_none() && !lead::flush(&self.core, &self.outcome) {
            self.request();
        }
    }

    pub fn poll_now(&self) -> Option<Result<(), LogError>> {
        self.outcome.result().cloned()
    }

    /// Waits until the records are on stable storage. If nothing else is at work and the device is fast, this thread makes
    /// the flush: [`LEAD_FLUSH_MAX`](crate::limits::LEAD_FLUSH_MAX) bounds what that usually takes, nothing bounds the worst
    /// case. So the caller must make sure that other tasks of its thread can run meanwhile. At most one task of the process
    /// makes a flush at any time, whatever the number of logs.
    /// Errors: The log failed or was dropped first: the records may or may not be there after a restart.
    pub async fn wait(&self) -> Result<(), LogError> {
        static LEADING: AtomicBool = AtomicBool::new(false);
        struct Leading;
        impl Drop for Leading {
            fn drop(&mut self) {
                LEADING.store(false, Ordering::Release);
            }
        }
        if self.outcome.result().is_some() {
            // Nothing to do.
        } else if LEADING.swap(true, Ordering::Acquire) {
            self.request();
        } else {
            let _leading = Leading;
            self.flush();
        }
        self.outcome.wait().await
    }

    /// As [`Ticket::wait`], for a thread that nobody else waits for: it makes the flush if nothing else is at work, however
    /// long that takes.
    pub async fn wait_here(&self) -> Result<(), LogError> {
        if self.outcome.result().is_none() && !lead::flush_alone(&self.core, &self.outcome) {
            self.request();
        }
        self.outcome.wait().await
    }

    /// As [`Ticket::wait`], but blocks the thread. Must not be called on a thread of an async runtime.
    pub fn wait_blocking(&self) -> Result<(), LogError> {
        self.flush();
        self.outcome.wait_blocking()
    }
}
