//! Operating system threads for compounds that wait for the disk. Clients have their turns here too.
//!
//! The queue is bounded by the RPC layer's limits on calls under way; a job that
//! comes when the pool has ended is dropped, which its waiter sees.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread::JoinHandle;

use landfast_rpc::{FairQueue, Seldom};
use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: FairQueue<Job>,
    closed: bool,
}

#[derive(Default)]
struct Inner {
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// A fixed number of worker threads.
pub struct Pool {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `threads` workers.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let inner = Arc::new(Inner::default());
        let mut pool = Pool { inner, threads: Vec::with_capacity(threads) };
        for i in 0..threads.max(1) {
            let inner = pool.inner.clone();
            let thread =
                std::thread::Builder::new().name(format!("nfs-disk-{i}")).spawn(move || work(&inner))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Queues a job of the server's own: all of these have their turn as if they were one client's.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.run_for(IpAddr::V4(Ipv4Addr::UNSPECIFIED), job);
    }

    /// Queues a client's job.
    pub fn run_for(&self, client: IpAddr, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.inner.queue.lock();
        if !queue.closed {
            queue.jobs.push(client, Box::new(job));
            drop(queue);
            self.inner.wake.notify_one();
        }
    }
}

static PANICS: Seldom = Seldom::new();

fn work(inner: &Inner) {
    loop {
        let mut queue = inner.queue.lock();
        let job = loop {
            if let Some(job) = queue.jobs.pop() {
                break job;
            }
            if queue.closed {
                return;
            }
            inner.wake.wait(&mut queue);
        };
        drop(queue);
        // A panic must not take the worker with it; the job's waiter sees that it was dropped.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
            PANICS
                .warn(|more| tracing::error!("a compound ended in a panic; its connection is closed{more}"));
        }
    }
}

impl Drop for Pool {
    /// Runs what is queued to its end.
    fn drop(&mut self) {
        self.inner.queue.lock().closed = true;
        self.inner.wake.notify_all();
        for thread in self.threads.drain(..) {
            // Its panics were caught and reported.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// One thread is busy; of the jobs that wait meanwhile the other client's are not behind all of the first's.
    #[test]
    fn clients_have_their_turns() {
        let pool = Pool::new(1).expect("a thread");
        let (flood, polite) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let (go, busy) = std::sync::mpsc::channel::<()>();
        pool.run_for(flood, move || busy.recv().expect("told to go on"));
        let order = Arc::new(Mutex::new(Vec::new()));
        for i in 0..500 {
            let order = order.clone();
            pool.run_for(flood, move || order.lock().push((flood, i)));
        }
        for i in 0..2 {
            let order = order.clone();
            pool.run_for(polite, move || order.lock().push((polite, i)));
        }
        go.send(()).expect("the job waits");
        drop(pool);
        let order = order.lock();
        let at = |who| order.iter().position(|o| *o == who).expect("it ran");
        assert!(at((polite, 0)) <= 2 && at((polite, 1)) <= 4, "{:?}", &order[..8]);
        assert_eq!(order.len(), 502);
    }

    #[test]
    fn all_jobs_run_before_the_pool_ends_and_a_panic_harms_nobody() {
        let done = Arc::new(AtomicUsize::new(0));
        let pool = Pool::new(2).expect("threads");
        for i in 0..100 {
            let done = done.clone();
            pool.run(move || {
                assert!(i % 10 != 0, "every tenth job fails");
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        drop(pool);
        assert_eq!(done.load(Ordering::Relaxed), 90);
    }
}
