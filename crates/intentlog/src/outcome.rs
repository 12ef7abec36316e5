//! The result of a batch, and the tasks and threads that wait for it.
//!
//! Finishing a batch wakes that batch's waiters and nobody else. Invariant: an outcome is set once and never changes.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::Thread;

use parking_lot::Mutex;

use crate::error::LogError;

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The batch's number, from 1 in the order in which batches become durable.
    batch: u64,
    result: OnceLock<Result<(), LogError>>,
    /// This batch has been asked to be flushed.
    wanted: AtomicBool,
    waiters: Mutex<Vec<Option<Waiter>>>,
}

#[derive(Debug)]
enum Waiter {
    Task(Waker),
    Thread(Thread),
}

impl Outcome {
    pub(crate) fn of(batch: u64) -> Outcome {
        Outcome { batch, ..Outcome::default() }
    }

    pub(crate) fn batch(&self) -> u64 {
        self.batch
    }

    /// Sets the result. The caller calls [`Wakeups::wake`] after it has released its locks.
    pub(crate) fn set(&self, result: Result<(), LogError>) -> Wakeups {
        let mut waiters = self.waiters.lock();
        // A second result can only be a failure after an acknowledged success, and must not replace it.
        let _ = self.result.set(result);
        Wakeups(std::mem::take(&mut *waiters))
    }

    pub(crate) fn result(&self) -> Option<&Result<(), LogError>> {
        self.result.get()
    }

    pub(crate) async fn wait(&self) -> Result<(), LogError> {
        WaitFuture { outcome: self, slot: None }.await
    }

    pub(crate) fn wait_blocking(&self) -> Result<(), LogError> {
        let mut registered = false;
        loop {
            if let Some(result) = self.result.get() {
                return result.clone();
            }
            if !registered {
                let mut waiters = self.waiters.lock();
                if self.result.get().is_none() {
                    waiters.push(Some(Waiter::Thread(std::thread::current())));
                }
                registered = true;
                continue;
            }
            std::thread::park();
        }
    }

    /// Marks the batch as wanted; `true` for the first call.
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
        // The list is empty once the result is set.
        if let Some(waiter) = self.outcome.waiters.lock().get_mut(slot) {
            *waiter = None;
        }
    }
}
