//! Tickets: what a committed transaction waits on.
//!
//! Each batch has one [`Outcome`]; a ticket points at its batch's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::core::Core;
use crate::error::LogError;
use crate::lead;
use crate::outcome::Outcome;

/// Stands for the records of one committed transaction. Cloning gives another handle on the same promise.
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

    /// Number of the batch that it stands for: batches become durable in the order of their numbers.
    pub fn batch(&self) -> u64 {
        self.outcome.batch()
    }

    /// Asks for the flush without waiting for it. A thread that is about to hand the ticket to a waiting task
    /// calls this first: the flush then runs while the task is being woken.
    pub fn request(&self) {
        if self.outcome.want() {
            self.core.want(&self.outcome);
        }
    }

    /// Here, or by the writer.
    fn flush(&self) {
        if self.outcome.result().is_none() && !lead::flush(&self.core, &self.outcome) {
            self.request();
        }
    }

    /// `Some` once the outcome is known.
    pub fn poll_now(&self) -> Option<Result<(), LogError>> {
        self.outcome.result().cloned()
    }

    /// Waits until the records are on stable storage. Where nobody else is at work and the device is a fast one,
    /// this thread makes the flush ([`LEAD_FLUSH_MAX`](crate::limits::LEAD_FLUSH_MAX) bounds what it usually takes, and
    /// nothing bounds what it may take). So whoever polls this has to see to it that the other tasks of its thread go on
    /// meanwhile. At most one task of the process makes a flush at any time, whatever the number of logs.
    ///
    /// # Errors
    /// The log failed or was dropped first: the records may or may not be there after a restart.
    pub async fn wait(&self) -> Result<(), LogError> {
        static LEADING: AtomicBool = AtomicBool::new(false);
        struct Leading;
        impl Drop for Leading {
            fn drop(&mut self) {
                LEADING.store(false, Ordering::Release);
            }
        }
        if self.outcome.result().is_some() {
            // Nothing is to be done.
        } else if LEADING.swap(true, Ordering::Acquire) {
            self.request();
        } else {
            let _leading = Leading;
            self.flush();
        }
        self.outcome.known().await
    }

    /// As [`Ticket::wait`], on this thread. Not to be called on an async runtime's thread.
    ///
    /// # Errors
    /// As [`Ticket::wait`].
    pub fn wait_blocking(&self) -> Result<(), LogError> {
        self.flush();
        self.outcome.known_blocking()
    }
}
