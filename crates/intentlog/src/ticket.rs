//! Tickets: what a committed transaction waits on.
//!
//! Each batch has one [`Outcome`]; a ticket points at its batch's. Finishing a batch wakes that batch's
//! waiters and nobody else. Invariant: an outcome is set once and never changes.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread::Thread;

use parking_lot::Mutex;

use crate::core::Core;
use crate::error::LogError;
use crate::lead;

/// What became of one batch, and who waits to hear of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The batch's number, from 1 in the order in which batches become durable.
    batch: u64,
    result: OnceLock<Result<(), LogError>>,
    /// Somebody has asked for this batch to be flushed.
    wanted: AtomicBool,
    waiters: Mutex<Vec<Option<Waiter>>>,
}

#[derive(Debug)]
enum Waiter {
    Task(Waker),
    Thread(Thread),
}

impl Outcome {
    /// Of the batch with this number.
    pub(crate) fn of(batch: u64) -> Outcome {
        Outcome { batch, ..Outcome::default() }
    }

    /// The batch's number.
    pub(crate) fn batch(&self) -> u64 {
        self.batch
    }

    /// Sets the result. Says who is to be woken, by [`Wakeups::wake`], after locks are released.
    pub(crate) fn set(&self, result: Result<(), LogError>) -> Wakeups {
        let mut waiters = self.waiters.lock();
        // A second result can only be a failure after a success was given out, which nobody may see.
        let _ = self.result.set(result);
        Wakeups(std::mem::take(&mut *waiters))
    }

    /// Marks the batch as wanted; `true` for the first who asks.
    pub(crate) fn want(&self) -> bool {
        !self.wanted.load(Ordering::Relaxed) && !self.wanted.swap(true, Ordering::AcqRel)
    }
}

/// Waiters taken from a finished batch.
#[must_use]
pub(crate) struct Wakeups(Vec<Option<Waiter>>);

impl Wakeups {
    pub(crate) fn wake(self) {
        for waiter in self.0.into_iter().flatten() {
            match waiter {
                Waiter::Task(waker) => waker.wake(),
                Waiter::Thread(thread) => thread.unpark(),
            }
        }
    }
}

/// Stands for the records of one committed transaction. Cloning gives another handle on the same promise.
#[derive(Clone)]
pub struct Ticket {
    core: Arc<Core>,
    outcome: Arc<Outcome>,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ticket").field(&self.outcome.result.get()).finish()
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
        self.outcome.batch
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
        if self.outcome.result.get().is_none() && !lead::flush(&self.core, &self.outcome) {
            self.request();
        }
    }

    /// `Some` once the outcome is known.
    pub fn poll_now(&self) -> Option<Result<(), LogError>> {
        self.outcome.result.get().cloned()
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
        if self.outcome.result.get().is_some() {
            // Nothing is to be done.
        } else if LEADING.swap(true, Ordering::Acquire) {
            self.request();
        } else {
            let _leading = Leading;
            self.flush();
        }
        WaitFuture { outcome: &self.outcome, slot: None }.await
    }

    /// As [`Ticket::wait`], on this thread. Not to be called on an async runtime's thread.
    ///
    /// # Errors
    /// As [`Ticket::wait`].
    pub fn wait_blocking(&self) -> Result<(), LogError> {
        self.flush();
        let mut registered = false;
        loop {
            if let Some(result) = self.outcome.result.get() {
                return result.clone();
            }
            if !registered {
                let mut waiters = self.outcome.waiters.lock();
                if self.outcome.result.get().is_none() {
                    waiters.push(Some(Waiter::Thread(std::thread::current())));
                }
                registered = true;
                continue;
            }
            std::thread::park();
        }
    }
}

struct WaitFuture<'a> {
    outcome: &'a Outcome,
    slot: Option<usize>,
}

impl Future for WaitFuture<'_> {
    type Output = Result<(), LogError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.outcome.result.get() {
            return Poll::Ready(result.clone());
        }
        let mut waiters = self.outcome.waiters.lock();
        if let Some(result) = self.outcome.result.get() {
            return Poll::Ready(result.clone());
        }
        match self.slot {
            Some(slot) => match &mut waiters[slot] {
                Some(Waiter::Task(waker)) => waker.clone_from(context.waker()),
                other => *other = Some(Waiter::Task(context.waker().clone())),
            },
            None => {
                let slot = waiters.len();
                waiters.push(Some(Waiter::Task(context.waker().clone())));
                drop(waiters);
                self.slot = Some(slot);
            }
        }
        Poll::Pending
    }
}

impl Drop for WaitFuture<'_> {
    fn drop(&mut self) {
        let Some(slot) = self.slot else { return };
        // After the result is set the list is gone.
        if let Some(waiter) = self.outcome.waiters.lock().get_mut(slot) {
            *waiter = None;
        }
    }
}
