//! Operating system threads for requests that wait for the disk, shared out between clients.
//!
//! Waiting clients (addresses; [`landfast_rpc::share_of`]) take turns. Each client with work has an equal share of the
//! threads. The last [`limits::SLOW_WORKERS_KEPT_DIVISOR`]th are kept for clients that run nothing yet. A client may
//! exceed its share with other threads that nobody else wants. So a client whose work takes long delays only itself.
//! Another client's work begins at once, or after one request of each client that waits before it.
//!
//! The RPC layer's limits on calls in flight bound the queue. A job that comes after the pool has ended is dropped,
//! which its waiter sees.
//!
//! Invariant: `running` counts the jobs in progress by client; a client without any has no row.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use landfast_rpc::{FairQueue, RateLimit};
use parking_lot::{Condvar, Mutex};

use crate::limits;

type Job = Box<dyn FnOnce() + Send>;

struct Queue {
    jobs: FairQueue<Job>,
    running: HashMap<IpAddr, usize>,
    free: usize,
    threads: usize,
    closed: bool,
}

impl Queue {
    fn new(threads: usize) -> Queue {
        Queue { jobs: FairQueue::default(), running: HashMap::new(), free: threads, threads, closed: false }
    }

    /// How many free threads are kept for clients that run nothing.
    fn kept(&self) -> usize {
        match self.threads {
            0 | 1 => 0,
            n => (n / limits::SLOW_WORKERS_KEPT_DIVISOR).max(1),
        }
    }

    /// Takes the job that a free thread is to run now, if any.
    fn take(&mut self) -> Option<(IpAddr, Job)> {
        if self.free == 0 {
            return None;
        }
        let kept = self.kept();
        let running = &self.running;
        let waiting_only = self.jobs.clients() - running.keys().filter(|c| self.jobs.has(c)).count();
        let clients = (running.len() + waiting_only).max(1);
        let share = ((self.threads - kept) / clients).max(1);
        let under = |c: &IpAddr| running.get(c).is_none_or(|n| *n < share);
        let taken = match self.jobs.pop_of(under) {
            Some(taken) => Some(taken),
            // When the pool ends, everything in the queue is run.
            None if self.free > kept || self.closed => self.jobs.pop_of(|_| true),
            None => None,
        }?;
        *self.running.entry(taken.0).or_default() += 1;
        self.free -= 1;
        Some(taken)
    }

    fn ran(&mut self, client: IpAddr) {
        if let Some(n) = self.running.get_mut(&client) {
            *n -= 1;
            if *n == 0 {
                self.running.remove(&client);
            }
        }
        self.free += 1;
    }
}

struct Inner {
    queue: Mutex<Queue>,
    wake: Condvar,
}

pub struct Pool {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `threads` workers, at least one; an error if the system gives no more threads.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        Pool::with_nice("nfs-disk", threads, 0)
    }

    /// [`Pool::new`] with threads of this nice value (0 to 19), for work that nobody waits for.
    pub fn with_nice(name: &str, threads: usize, nice: i32) -> std::io::Result<Self> {
        let threads = threads.max(1);
        let inner = Arc::new(Inner { queue: Mutex::new(Queue::new(threads)), wake: Condvar::new() });
        let mut pool = Pool { inner, threads: Vec::with_capacity(threads) };
        for i in 0..threads {
            let inner = pool.inner.clone();
            let thread = std::thread::Builder::new().name(format!("{name}-{i}")).spawn(move || {
                set_nice(nice);
                work(&inner);
            })?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    pub fn run_for(&self, client: IpAddr, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.inner.queue.lock();
        if !queue.closed {
            queue.jobs.push(client, Box::new(job));
            drop(queue);
            self.inner.wake.notify_one();
        }
    }
}

/// Lowers the calling thread's priority. Linux does so for one thread, not for the process.
fn set_nice(nice: i32) {
    if nice > 0
        && let Err(e) = rustix::process::setpriority_process(None, nice)
    {
        tracing::debug!("threads for copies in the background do not give way to others: {e}");
    }
}

static PANICS: RateLimit = RateLimit::new();

fn work(inner: &Inner) {
    let mut queue = inner.queue.lock();
    loop {
        let (client, job) = loop {
            if let Some(taken) = queue.take() {
                break taken;
            }
            if queue.closed && queue.jobs.is_empty() {
                return;
            }
            inner.wake.wait(&mut queue);
        };
        // The job that ended may have made room for more than one.
        if !queue.jobs.is_empty() {
            inner.wake.notify_one();
        }
        drop(queue);
        // A panic must not end the worker. The job's waiter sees that the job was dropped.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
            PANICS
                .warn(|more| tracing::error!("a compound ended in a panic; its connection is closed{more}"));
        }
        queue = inner.queue.lock();
        queue.ran(client);
    }
}

impl Drop for Pool {
    /// Runs what is queued to its end.
    fn drop(&mut self) {
        self.inner.queue.lock().closed = true;
        self.inner.wake.notify_all();
        for thread in self.threads.drain(..) {
            // Panics were caught and reported.
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

    /// A client that has more long jobs than there are threads leaves some to others, which begin at once.
    #[test]
    fn a_client_never_has_all_threads() {
        const THREADS: usize = 16;
        let pool = Pool::new(THREADS).expect("threads");
        let flood = IpAddr::from([192, 0, 2, 1]);
        let (began, begun) = std::sync::mpsc::channel();
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        for _ in 0..10 * THREADS {
            let (began, gate) = (began.clone(), gate.clone());
            pool.run_for(flood, move || {
                began.send(flood).expect("the test waits");
                let mut open = gate.0.lock();
                while !*open {
                    gate.1.wait(&mut open);
                }
            });
        }
        let patience = std::time::Duration::from_secs(30);
        for _ in 0..THREADS - 2 {
            assert_eq!(begun.recv_timeout(patience), Ok(flood));
        }
        // Nothing of the flood ends, and two others are served one after the other.
        for n in [2, 3] {
            let (began, other) = (began.clone(), IpAddr::from([192, 0, 2, n]));
            pool.run_for(other, move || began.send(other).expect("the test waits"));
            assert_eq!(begun.recv_timeout(patience), Ok(other), "it waits for the flood");
        }
        *gate.0.lock() = true;
        gate.1.notify_all();
        drop(pool);
        assert_eq!(begun.try_iter().filter(|who| *who == flood).count(), 9 * THREADS + 2);
    }

    /// Shares by themselves: who runs how much while nothing ends, and what becomes free goes to who has less.
    #[test]
    fn threads_are_shared_by_the_clients_that_have_work() {
        let ip = |n| IpAddr::from([192, 0, 2, n]);
        let mut queue = Queue::new(32);
        let add =
            |queue: &mut Queue, n, jobs| (0..jobs).for_each(|_| queue.jobs.push(ip(n), Box::new(|| ())));
        add(&mut queue, 1, 100);
        let all = |queue: &mut Queue| std::iter::from_fn(|| queue.take().map(|(c, _)| c)).collect::<Vec<_>>();
        assert_eq!(all(&mut queue).len(), 28, "a lone client leaves some");
        add(&mut queue, 2, 100);
        assert_eq!(all(&mut queue), [ip(2); 4], "they are for who comes");
        // As the first's end the second gets its half.
        for _ in 0..14 {
            queue.ran(ip(1));
            all(&mut queue);
        }
        assert_eq!((queue.running[&ip(1)], queue.running[&ip(2)]), (14, 14));
        assert_eq!(queue.free, 4, "and some are free for a third");
        add(&mut queue, 3, 1);
        assert_eq!(all(&mut queue), [ip(3)]);
    }

    /// Only the threads that are to give way do.
    #[test]
    fn a_pool_may_give_way_to_others() {
        let nice = |pool: Pool| {
            let (say, said) = std::sync::mpsc::channel();
            pool.run_for(IpAddr::from([192, 0, 2, 1]), move || {
                let nice = rustix::process::getpriority_process(None).expect("a priority");
                say.send(nice).expect("the test waits");
            });
            said.recv().expect("it ran")
        };
        let usual = rustix::process::getpriority_process(None).expect("a priority");
        assert_eq!(nice(Pool::with_nice("copy", 1, 19).expect("a thread")), 19);
        assert_eq!(nice(Pool::new(1).expect("a thread")), usual);
    }

    #[test]
    fn all_jobs_run_before_the_pool_ends_and_a_panic_harms_nobody() {
        let done = Arc::new(AtomicUsize::new(0));
        let pool = Pool::new(2).expect("threads");
        for i in 0..100 {
            let done = done.clone();
            pool.run_for(IpAddr::from([192, 0, 2, 1]), move || {
                assert!(i % 10 != 0, "every tenth job fails");
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        drop(pool);
        assert_eq!(done.load(Ordering::Relaxed), 90);
    }
}
