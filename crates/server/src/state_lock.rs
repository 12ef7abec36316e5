//! The lock on the state. It is a leaf: a thread that holds it takes no other lock, waits for nothing and makes no system call. It is the standard library's, whose
//! waiters sleep: its holder may have to wait for a processor, and who gave up theirs in between would have it back only after all other threads.

use crate::state::State;
use landfast_volume::OpenFile;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[cfg(debug_assertions)]
thread_local! {
    /// Does this thread hold the lock?
    static HAS_STATE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Asserts, in a debug build, that this thread does not hold the lock. Called before a call into a volume or its log: a log locks the
/// state when it is sealed, and the caller may have to wait for that. So a mistake shows at once, not only in a deadlock.
pub(crate) fn not_under_the_state() {
    #[cfg(debug_assertions)]
    assert!(!HAS_STATE.get(), "the state is a leaf lock, and this thread has it");
}

/// The locked state. Dropping this wakes the task that grants NLM locks, if a lock that somebody waits for has become free.
pub(crate) struct StateGuard<'a> {
    state: MutexGuard<'a, State<OpenFile>>,
    freed: &'a Notify,
    /// Files to close, after the lock is released: fields are dropped in this order.
    _closed: Vec<OpenFile>,
}

impl<'a> StateGuard<'a> {
    /// Locks the state; `freed` is notified when a lock that somebody waits for has become free.
    pub(crate) fn lock(state: &'a Mutex<State<OpenFile>>, freed: &'a Notify) -> StateGuard<'a> {
        not_under_the_state();
        #[cfg(debug_assertions)]
        HAS_STATE.set(true);
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        StateGuard { state, freed, _closed: Vec::new() }
    }
}

impl Deref for StateGuard<'_> {
    type Target = State<OpenFile>;

    fn deref(&self) -> &State<OpenFile> {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State<OpenFile> {
        &mut self.state
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        HAS_STATE.set(false);
        self._closed = std::mem::take(&mut self.state.files.closed);
        if self.state.files.waiters.any_freed() {
            self.freed.notify_one();
        }
    }
}
