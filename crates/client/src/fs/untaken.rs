//! What a walk has given and its consumer has not taken yet.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// A count of objects. The walk gives all objects that have come, and then waits while there are `most` or more.
#[derive(Debug, Clone)]
pub(crate) struct Untaken(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    given: AtomicUsize,
    fewer: Notify,
}

/// Goes with objects to the consumer, who drops it when it has taken them.
#[derive(Debug)]
pub(crate) struct Given(Arc<Inner>, usize);

impl Untaken {
    pub(crate) fn new(most: usize) -> Untaken {
        Untaken(Arc::new(Inner { most, given: AtomicUsize::new(0), fewer: Notify::new() }))
    }

    pub(crate) fn give(&self, objects: usize) -> Given {
        self.0.given.fetch_add(objects, Ordering::AcqRel);
        Given(self.0.clone(), objects)
    }

    /// Waits until there are fewer than `most`.
    pub(crate) async fn fewer(&self) {
        loop {
            // Before the look: what is taken after it is not missed.
            let mut fewer = pin!(self.0.fewer.notified());
            fewer.as_mut().enable();
            if self.0.given.load(Ordering::Acquire) < self.0.most {
                return;
            }
            fewer.await;
        }
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        let before = self.0.given.fetch_sub(self.1, Ordering::AcqRel);
        if before >= self.0.most && before - self.1 < self.0.most {
            self.0.fewer.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Waker};

    use super::*;

    fn waits(wait: &mut std::pin::Pin<&mut impl Future>) -> bool {
        wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[test]
    fn who_has_given_too_much_waits_until_as_much_is_taken() {
        let untaken = Untaken::new(10);
        let first = untaken.give(4);
        assert!(!waits(&mut pin!(untaken.fewer())));
        // More than there was room for: all of it counts.
        let second = untaken.give(20);
        let mut wait = pin!(untaken.fewer());
        assert!(waits(&mut wait));
        drop(first);
        assert!(waits(&mut wait), "20 are left");
        let third = untaken.give(3);
        drop(second);
        assert!(!waits(&mut wait));
        drop(third);
        assert_eq!(untaken.0.given.load(Ordering::Relaxed), 0);
    }
}
