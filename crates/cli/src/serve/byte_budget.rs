//! Bytes that may be in use at a time, shared by threads.

use std::sync::{Condvar, Mutex, PoisonError};

pub struct ByteBudget {
    all: u64,
    free: Mutex<u64>,
    changed: Condvar,
}

/// Bytes in use. Dropping it gives them back.
pub struct Held<'a> {
    of: &'a ByteBudget,
    bytes: u64,
}

impl ByteBudget {
    pub fn new(bytes: u64) -> ByteBudget {
        ByteBudget { all: bytes, free: Mutex::new(bytes), changed: Condvar::new() }
    }

    /// Waits until so many bytes are free. More than all there are count as all: they are used alone.
    pub fn take(&self, bytes: u64) -> Held<'_> {
        let bytes = bytes.min(self.all);
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free =
            self.changed.wait_while(free, |free| *free < bytes).unwrap_or_else(PoisonError::into_inner);
        *free -= bytes;
        Held { of: self, bytes }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.of.free.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.of.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn no_more_is_in_use_than_there_is_and_what_is_too_large_has_all() {
        let budget = ByteBudget::new(10);
        let in_use = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for bytes in [4, 6, 3, 99, 10, 1, 7, 0] {
                let (budget, in_use) = (&budget, &in_use);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let held = budget.take(bytes);
                        assert!(in_use.fetch_add(held.bytes, Ordering::SeqCst) + held.bytes <= 10);
                        in_use.fetch_sub(held.bytes, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(*budget.free.lock().unwrap(), 10);
    }
}
