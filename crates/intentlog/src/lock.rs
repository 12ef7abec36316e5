//! A lock whose waiters sleep.
//!
//! Where there are more threads than processors, the holder of a lock may have to wait for a processor. Who wants the lock then must sleep, and be woken. A
//! lock that first gives its processor up a few times (`sched_yield`) waits at each of them until all other threads have had their turn: milliseconds.
//! The standard library's lock sleeps after a short spin. This gives it guards that a condition variable can wait with in place, and does without poison.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

/// Always holds the lock, except inside [`Condvar`].
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T>(Option<std::sync::MutexGuard<'a, T>>);

/// To notify it costs no system call while nobody waits.
#[derive(Debug, Default)]
pub(crate) struct Condvar {
    condvar: std::sync::Condvar,
    /// Changed by waiters that hold the lock. So whoever has changed something under the lock sees each waiter that has not seen the change.
    waiters: AtomicUsize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitTimeoutResult(bool);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(guard) => guard,
            None => unreachable!("a guard holds the lock"),
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.0 {
            Some(guard) => guard,
            None => unreachable!("a guard holds the lock"),
        }
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Condvar::default()
    }

    pub(crate) fn notify_one(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.condvar.notify_one();
        }
    }

    pub(crate) fn notify_all(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.condvar.notify_all();
        }
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        guard.0 = guard.0.take().map(|held| self.condvar.wait(held).unwrap_or_else(PoisonError::into_inner));
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> WaitTimeoutResult {
        let mut timed_out = false;
        self.waiters.fetch_add(1, Ordering::SeqCst);
        guard.0 = guard.0.take().map(|held| {
            let waited = self.condvar.wait_timeout(held, time).unwrap_or_else(PoisonError::into_inner);
            timed_out = waited.1.timed_out();
            waited.0
        });
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        WaitTimeoutResult(timed_out)
    }

    pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> WaitTimeoutResult {
        self.wait_for(guard, until.saturating_duration_since(Instant::now()))
    }
}

impl WaitTimeoutResult {
    pub(crate) fn timed_out(self) -> bool {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn who_waits_is_woken_and_has_the_lock() {
        let pair = Arc::new((Mutex::new(0), Condvar::new()));
        let other = pair.clone();
        let thread = std::thread::spawn(move || {
            let mut count = other.0.lock();
            while *count == 0 {
                other.1.wait(&mut count);
            }
            *count += 1;
        });
        *pair.0.lock() = 1;
        pair.1.notify_all();
        thread.join().unwrap();
        assert_eq!(*pair.0.lock(), 2);
    }

    #[test]
    fn a_wait_ends_in_time_with_the_lock_and_a_panic_spoils_nothing() {
        let (lock, condvar) = (Arc::new(Mutex::new(1)), Condvar::new());
        let same = lock.clone();
        let panicked = std::thread::spawn(move || {
            let _held = same.lock();
            panic!("while it holds the lock");
        });
        assert!(panicked.join().is_err());
        let mut guard = lock.lock();
        assert!(condvar.wait_until(&mut guard, Instant::now()).timed_out());
        *guard += 1;
        drop(guard);
        assert_eq!(*lock.lock(), 2);
    }
}
