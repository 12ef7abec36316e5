//! Requests of a soft mount that were given up: they go on being sent until the server has answered, and may be executed later. What
//! comes after them waits for that, so that older data never lands over newer.

use std::future::Future;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// At most as many are in it as were under way when the first was given up: later ones are not sent before those have ended.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    given_up: Mutex<Vec<JoinHandle<()>>>,
    /// One waits for those that were given up, the others for that one.
    gate: tokio::sync::Mutex<()>,
}

/// A request that somebody waits for. Dropped before its end, it is given up.
struct Waiting<'a> {
    task: Option<JoinHandle<()>>,
    given_up: &'a Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take().filter(|t| !t.is_finished()) {
            self.given_up.lock().push(task);
        }
    }
}

impl InOrder {
    /// Does `work` once all that was given up has ended. Dropping the future gives it up; it goes on. `None`: the work has panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.settled().await;
        let (done, result) = oneshot::channel();
        let task = tokio::spawn(async move { drop(done.send(work.await)) });
        let _waiting = Waiting { task: Some(task), given_up: &self.given_up };
        result.await.ok()
    }

    async fn settled(&self) {
        let _gate = self.gate.lock().await;
        loop {
            let next = self.given_up.lock().pop();
            if next.is_none() {
                return;
            }
            let mut waiting = Waiting { task: next, given_up: &self.given_up };
            if let Some(task) = &mut waiting.task {
                let _ = task.await;
            }
            waiting.task = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// What a future has after one poll. It is dropped.
    async fn poll_once<T>(work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
            std::task::Poll::Ready(done) => std::task::Poll::Ready(Some(done)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }

    #[tokio::test]
    async fn what_follows_a_request_that_was_given_up_waits_for_its_end() {
        let (order, log) = (InOrder::default(), Arc::new(Mutex::new(Vec::new())));
        let (answer, answered) = oneshot::channel::<()>();
        let write = |text: &'static str| {
            let log = log.clone();
            async move { log.lock().push(text) }
        };
        let (old, new) = (write("old"), write("new"));
        let first = order.run(async move {
            let _ = answered.await;
            old.await;
        });
        assert!(poll_once(first).await.is_none());
        // Given up as well while it waits for the first, it is never sent.
        assert!(poll_once(order.run(write("never"))).await.is_none());
        let mut second = Box::pin(order.run(new));
        assert!(poll_once(second.as_mut()).await.is_none());
        answer.send(()).unwrap();
        second.await.unwrap();
        assert_eq!(*log.lock(), ["old", "new"]);
        assert!(order.given_up.lock().is_empty());
    }
}
