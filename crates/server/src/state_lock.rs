//! The lock on the state. It is a leaf: a thread that holds it takes no other lock, waits for nothing and makes no system call. It is the standard library's, whose
//! waiters sleep: its holder may have to wait for a processor, and who gave up theirs in between would have it back only after all other threads.

use crate::state::State;
use crate::state::delegations::Signals as Happened;
use crate::touches::Touches;
use landfast_volume::OpenFile;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// What changes of the state are told to tasks that wait.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// An NLM lock that somebody waits for has become free.
    pub(crate) lock_freed: Notify,
    /// A delegation has ended, or its holder has said what it was asked.
    pub(crate) delegation_ended: Arc<Notify>,
    /// There are callbacks to send that have to do with delegations.
    pub(crate) callbacks_due: Notify,
    /// A client was given delegations that the log does not know.
    pub(crate) grants_unsettled: Notify,
    /// There are files without a name that nobody has open any more.
    pub(crate) orphans_released: Notify,
}

/// The locked state. Dropping this wakes those whom its changes concern.
pub(crate) struct StateGuard<'a> {
    state: MutexGuard<'a, State<OpenFile>>,
    signals: &'a Signals,
    touches: &'a Touches,
    /// Files to close, after the lock is released: fields are dropped in this order.
    _closed: Vec<OpenFile>,
}

impl<'a> StateGuard<'a> {
    pub(crate) fn lock(
        state: &'a Mutex<State<OpenFile>>,
        signals: &'a Signals,
        touches: &'a Touches,
    ) -> StateGuard<'a> {
        not_under_the_state();
        #[cfg(debug_assertions)]
        HAS_STATE.set(true);
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        StateGuard { state, signals, touches, _closed: Vec::new() }
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
            self.signals.lock_freed.notify_one();
        }
        if self.state.files.preserved.any_released() {
            self.signals.orphans_released.notify_one();
        }
        let Happened { ended, answered, due, unsettled } = self.state.files.delegations.signals();
        if ended {
            self.touches.some_ended();
        }
        self.touches.set_holders_gone(self.state.removals.of_holders());
        let delegations = &self.state.files.delegations;
        self.touches.set_delegations(delegations.live(), delegations.whole_directories());
        if ended || answered {
            self.signals.delegation_ended.notify_waiters();
        }
        if due {
            self.signals.callbacks_due.notify_one();
        }
        if unsettled {
            self.signals.grants_unsettled.notify_one();
        }
    }
}
