//! Keeps a runtime thread free for calls that are answered from memory, whatever the other threads wait for.
//!
//! A call runs on the runtime thread that received it, and the call of a lone client also flushes there
//! (`landfast_intentlog::Ticket::wait`): handing either to another thread costs as much as doing it. So a runtime
//! thread may wait for a device: for that flush, for a filesystem whose journal is being written, for cold data. Then
//! nobody looks at the sockets. The runtime leaves them to the thread that found the last one ready, and for a single
//! call it wakes no other. So without help they would wait until the device is done.
//!
//! A watcher checks every [`WATCH_EVERY`](limits::WATCH_EVERY) what the threads are doing:
//!
//! | it sees | it does |
//! |---|---|
//! | a thread that is in a call | wakes that thread's runtime (clients that make one call at a time may have one of their own): an idle thread takes over the sockets and the waiting tasks |
//! | a thread in the same call as at the last check, and asleep (not one that waits for a processor) | from now on each call hands its thread's tasks to a spare thread before it runs ([`tokio::task::block_in_place`]), until no call takes that long |
//! | the same | all changes that wait for their turn begin |
//! | no calls for [`WATCH_QUIET`](limits::WATCH_QUIET) | sleeps until one comes |
//!
//! So that a thread stays free until the watcher has looked, there are never more changes in progress than all threads but one: a filesystem whose journal is
//! full or being written stops all its modifying calls at once. The other changes wait for their client's turn, as tasks. When the watcher sees one that
//! runs for long, all begin.
//!
//! Always handing over would cost every call several microseconds, more than a lone client gains by flushing in place.
//! The check costs a call two stores to memory of its own. The thread of a lone client (`landfast_rpc::on_lone_thread`) is not watched: nobody
//! waits for it, since its connection goes on without it.
//!
//! Invariant: a slot's number is not 0 exactly while its thread polls a call.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;

use landfast_rpc::{Turn, Turns, on_lone_thread};
use landfast_volume::faults::{self, Bug};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::limits;

/// What one thread is doing: the number of the call's poll; 0 outside calls.
#[derive(Debug)]
struct Slot {
    /// The kernel's number of the thread.
    thread: i32,
    /// The runtime that the thread belongs to.
    runtime: Handle,
    poll: AtomicU64,
    polls: AtomicU64,
}

#[derive(Debug)]
struct Inner {
    /// One for each thread that ever polled a call here.
    slots: Mutex<Vec<Weak<Slot>>>,
    /// The changes that run, and those that wait for their turn.
    changes: Turns,
    /// A call was in one poll for longer than the watcher's interval.
    stalled: AtomicBool,
    /// The watcher sleeps until a call comes.
    asleep: AtomicBool,
    stopped: AtomicBool,
    watcher: OnceLock<Thread>,
    /// The server's own.
    runtime: Handle,
}

/// The runtime's watched threads; see the module's comment. Watching ends with the last clone.
#[derive(Debug, Clone)]
pub(crate) struct Workers(Arc<Watched>);

#[derive(Debug)]
struct Watched(Arc<Inner>);

thread_local! {
    /// Belongs to the server that this thread last worked for.
    static SLOT: RefCell<Option<(Weak<Inner>, Arc<Slot>)>> = const { RefCell::new(None) };
}

impl Workers {
    /// Watches the threads of this multi-threaded runtime, and of others that run its calls; an error if the system gives no more threads.
    pub(crate) fn new(runtime: &Handle) -> std::io::Result<Workers> {
        let changes = runtime.metrics().num_workers().saturating_sub(1);
        let inner = Arc::new(Inner::new(changes, runtime.clone()));
        let watched = inner.clone();
        let watcher = std::thread::Builder::new().name("nfs-watch".into()).spawn(move || watched.watch())?;
        // Nobody has set it before.
        let _ = inner.watcher.set(watcher.thread().clone());
        Ok(Workers(Arc::new(Watched(inner))))
    }

    /// Runs work that may wait for a device in one of its polls. (The caller pins it: it may be large, and is not
    /// moved.)
    pub(crate) fn during<T>(&self, mut work: Pin<&mut impl Future<Output = T>>) -> impl Future<Output = T> {
        poll_fn(move |context| {
            if on_lone_thread() {
                return work.as_mut().poll(context);
            }
            let _in_poll = self.0.0.enter();
            if self.hand_over() {
                // This is the server's own runtime, which has several threads.
                tokio::task::block_in_place(|| work.as_mut().poll(context))
            } else {
                work.as_mut().poll(context)
            }
        })
    }

    /// Runs what goes on after its call in the server's own runtime. That of the call ends before the server has waited for such work.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let inside = self.clone();
        self.0.0.runtime.spawn(async move { inside.during(pin!(work)).await });
    }

    /// Runs a call that may change something when its client's turn has come. `apart` runs first when the call runs on a thread that nobody waits for.
    pub(crate) async fn change<T>(&self, client: IpAddr, apart: impl FnOnce(), run: impl FnOnce() -> T) -> T {
        if on_lone_thread() || faults::bug(Bug::FlushInPlace) {
            return run();
        }
        let _turn = if self.hand_over() { Turn::free() } else { self.0.0.changes.wait(client).await };
        if self.hand_over() {
            apart();
            return tokio::task::block_in_place(run);
        }
        run()
    }

    pub(crate) fn hand_over(&self) -> bool {
        self.0.0.stalled.load(Ordering::Relaxed)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::SeqCst);
        if let Some(watcher) = self.0.watcher.get() {
            watcher.unpark();
        }
    }
}

impl Inner {
    fn new(changes: usize, runtime: Handle) -> Inner {
        Inner {
            runtime,
            slots: Mutex::default(),
            changes: Turns::new(changes),
            stalled: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            watcher: OnceLock::new(),
        }
    }

    fn enter(self: &Arc<Self>) -> InPoll {
        let slot = SLOT.with_borrow_mut(|mine| match mine {
            Some((of, slot)) if std::ptr::eq(of.as_ptr(), Arc::as_ptr(self)) => slot.clone(),
            _ => {
                let thread = rustix::thread::gettid().as_raw_nonzero().get();
                let (poll, polls) = (AtomicU64::new(0), AtomicU64::new(0));
                let slot = Arc::new(Slot { thread, runtime: Handle::current(), poll, polls });
                let mut slots = self.slots.lock();
                slots.retain(|slot| slot.strong_count() > 0);
                slots.push(Arc::downgrade(&slot));
                *mine = Some((Arc::downgrade(self), slot.clone()));
                slot
            }
        });
        let number = slot.polls.load(Ordering::Relaxed) + 1;
        slot.polls.store(number, Ordering::Relaxed);
        // Sequentially consistent with `asleep`: either this sees that the watcher sleeps, or the watcher sees this.
        slot.poll.store(number, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst)
            && self.asleep.swap(false, Ordering::SeqCst)
            && let Some(watcher) = self.watcher.get()
        {
            watcher.unpark();
        }
        InPoll(slot)
    }

    fn watch(&self) {
        // Each slot at the last check: the poll in progress, and how many there were.
        let mut before: Vec<(Weak<Slot>, u64, u64)> = Vec::new();
        let mut quiet = 0;
        while !self.stopped.load(Ordering::SeqCst) {
            let slots = self.slots.lock().clone();
            let now: Vec<(Weak<Slot>, u64, u64)> = slots
                .into_iter()
                .filter_map(|weak| {
                    let slot = weak.upgrade()?;
                    let (poll, polls) =
                        (slot.poll.load(Ordering::SeqCst), slot.polls.load(Ordering::Relaxed));
                    Some((weak, poll, polls))
                })
                .collect();
            let same = |(slot, poll, _): &(Weak<Slot>, u64, u64)| {
                *poll != 0
                    && before.iter().any(|(s, p, _)| s.ptr_eq(slot) && p == poll)
                    && slot.upgrade().is_some_and(|slot| sleeps(slot.thread))
            };
            let busy = now.iter().any(|(_, poll, _)| *poll != 0);
            if !faults::bug(Bug::FlushInPlace) {
                let stalled = now.iter().any(same);
                self.stalled.store(stalled, Ordering::Relaxed);
                if stalled {
                    self.changes.let_all_go();
                }
                wake(now.iter().filter(|(_, poll, _)| *poll != 0).filter_map(|(slot, ..)| slot.upgrade()));
            }
            let polls = |all: &[(Weak<Slot>, u64, u64)]| all.iter().map(|(_, _, polls)| *polls).sum::<u64>();
            quiet = if busy || polls(&now) != polls(&before) { 0 } else { quiet + 1 };
            before = now;
            if quiet < limits::WATCH_QUIET {
                std::thread::park_timeout(limits::WATCH_EVERY);
                continue;
            }
            self.asleep.store(true, Ordering::SeqCst);
            let idle = {
                let slots = self.slots.lock();
                slots.iter().filter_map(Weak::upgrade).all(|slot| slot.poll.load(Ordering::SeqCst) == 0)
            };
            if idle && !self.stopped.load(Ordering::SeqCst) {
                std::thread::park();
            }
            self.asleep.store(false, Ordering::SeqCst);
            quiet = 0;
        }
    }
}

/// Wakes each runtime of these threads once.
fn wake(busy: impl Iterator<Item = Arc<Slot>>) {
    let mut woken = Vec::new();
    for slot in busy {
        if !woken.contains(&slot.runtime.id()) {
            woken.push(slot.runtime.id());
            drop(slot.runtime.spawn(async {}));
        }
    }
}

/// Whether a thread of this process sleeps: it waits for something else than a processor. Where that cannot be seen, it may.
fn sleeps(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    // The name, in parentheses, may hold anything (proc_pid_stat(5)).
    let state = stat.ok().and_then(|stat| stat.rsplit_once(')')?.1.trim_start().chars().next());
    state != Some('R')
}

/// Exists while a thread polls a call.
struct InPoll(Arc<Slot>);

impl Drop for InPoll {
    fn drop(&mut self) {
        self.0.poll.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;
    use tokio::sync::oneshot;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn runtime(threads: usize) -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()
            .expect("a runtime")
    }

    /// More calls than there are threads wait for a device, one after the other; what is answered from memory goes on each
    /// time.
    #[test]
    fn calls_that_wait_for_a_device_leave_a_thread_to_the_others() {
        let runtime = runtime(2);
        let workers = Workers::new(runtime.handle()).expect("a watcher");
        let mut held = Vec::new();
        for _ in 0..6 {
            let (go, device) = mpsc::channel::<()>();
            let (began, begun) = mpsc::channel();
            let inside = workers.clone();
            runtime.spawn(async move {
                let work = async move {
                    began.send(()).expect("the test waits");
                    device.recv().expect("the device answers");
                };
                inside.during(pin!(work)).await;
            });
            begun.recv_timeout(PATIENCE).expect("the call began");
            held.push(go);
            // Until the watcher has seen that it takes long: calls that come before that may take the last thread.
            while !workers.hand_over() {
                std::thread::yield_now();
            }
            let (answer, answered) = oneshot::channel();
            let inside = workers.clone();
            runtime.spawn(async move { inside.during(pin!(async move { answer.send(()) })).await });
            let waited = runtime.block_on(async { tokio::time::timeout(PATIENCE, answered).await });
            assert_eq!(waited.expect("in time"), Ok(()), "with {} calls at the device", held.len());
        }
        drop(held);
    }

    #[test]
    fn sockets_are_looked_at_while_the_thread_that_did_waits_for_a_device() {
        let runtime = runtime(4);
        let workers = Workers::new(runtime.handle()).expect("a watcher");
        sockets_are_looked_at(&runtime, &workers);
    }

    #[test]
    fn sockets_of_another_runtime_are_looked_at_too() {
        let workers = Workers::new(runtime(2).handle()).expect("a watcher");
        sockets_are_looked_at(&runtime(4), &workers);
    }

    /// One call waits for a device; a socket becomes ready, which wakes a single task.
    fn sockets_are_looked_at(runtime: &tokio::runtime::Runtime, workers: &Workers) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a socket");
        let (go, device) = mpsc::channel::<()>();
        let device = Arc::new(Mutex::new(Some(device)));
        let (began, begun) = mpsc::channel();
        let workers = workers.clone();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            while let Ok((mut stream, _)) = listener.accept().await {
                let (workers, device, began) = (workers.clone(), device.clone(), began.clone());
                tokio::spawn(async move {
                    let mut what = [0; 1];
                    while stream.read_exact(&mut what).await.is_ok() {
                        let work = async {
                            let device = (what[0] == b'd').then(|| device.lock().take()).flatten();
                            if let Some(device) = device {
                                began.send(()).expect("the test waits");
                                device.recv().expect("the device answers");
                            }
                        };
                        workers.during(pin!(work)).await;
                        stream.write_all(&what).await.expect("sent");
                    }
                });
            }
        });
        let connect = || {
            let stream = std::net::TcpStream::connect(addr).expect("connected");
            stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
            stream
        };
        use std::io::{Read, Write};
        let (mut slow, mut quick) = (connect(), connect());
        let mut echo = [0; 1];
        for stream in [&mut slow, &mut quick] {
            stream.write_all(b"m").expect("sent");
            stream.read_exact(&mut echo).expect("an answer");
        }
        slow.write_all(b"d").expect("sent");
        begun.recv_timeout(PATIENCE).expect("the call began");
        for _ in 0..100 {
            quick.write_all(b"m").expect("sent");
            quick.read_exact(&mut echo).expect("an answer while the other waits");
        }
        go.send(()).expect("it waits");
        slow.read_exact(&mut echo).expect("an answer");
        assert_eq!(&echo, b"d");
    }

    /// More changes than may run at a time: the others wait as tasks, until one that runs waits for a device.
    #[test]
    fn changes_wait_for_their_turn_until_one_waits_for_a_device() {
        let runtime = runtime(2);
        let workers = Workers::new(runtime.handle()).expect("a watcher");
        let client = |n| IpAddr::from([192, 0, 2, n]);
        let (go, device) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel();
        let (inside, tell) = (workers.clone(), began.clone());
        runtime.spawn(async move {
            let run = move || {
                tell.send(0).expect("the test waits");
                device.recv().expect("the device answers");
            };
            inside.during(pin!(inside.change(client(1), || (), run))).await;
        });
        assert_eq!(begun.recv_timeout(PATIENCE), Ok(0));
        for n in 1..=5 {
            let (inside, tell) = (workers.clone(), began.clone());
            runtime.spawn(async move {
                let run = move || tell.send(n).expect("the test waits");
                inside.during(pin!(inside.change(client(2), || (), run))).await;
            });
        }
        let mut all: Vec<_> = (0..5).map(|_| begun.recv_timeout(PATIENCE).expect("it began")).collect();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4, 5]);
        go.send(()).expect("it waits");
    }

    #[test]
    fn what_goes_on_after_its_call_outlives_the_runtime_of_the_call() {
        let (own, of_the_call) = (runtime(2), runtime(2));
        let workers = Workers::new(own.handle()).expect("a watcher");
        let (go, gate) = oneshot::channel::<()>();
        let (tell, told) = oneshot::channel();
        of_the_call.block_on(async {
            workers.spawn(async move {
                gate.await.expect("the test goes on");
                tell.send(()).expect("the test waits");
            });
        });
        drop(of_the_call);
        go.send(()).expect("it was not dropped");
        let ended = own.block_on(async { tokio::time::timeout(PATIENCE, told).await });
        assert_eq!(ended.expect("in time"), Ok(()));
    }

    #[test]
    fn a_thread_that_computes_does_not_sleep() {
        let (tell, told) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("the test waits");
            let _ = wait.recv();
        });
        let other = told.recv().expect("it runs");
        while !sleeps(other) {
            std::thread::yield_now();
        }
        assert!(!sleeps(rustix::thread::gettid().as_raw_nonzero().get()));
        go.send(()).expect("it waits");
        thread.join().expect("no panic");
    }

    #[test]
    fn the_watcher_sleeps_while_nothing_comes_and_wakes_for_the_next_call() {
        let runtime = runtime(2);
        let workers = Workers::new(runtime.handle()).expect("a watcher");
        for _ in 0..2 {
            while !workers.0.0.asleep.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let inside = workers.clone();
            let (go, device) = mpsc::channel::<()>();
            let call = runtime.spawn(async move { inside.during(pin!(async move { device.recv() })).await });
            while !workers.hand_over() {
                std::thread::yield_now();
            }
            go.send(()).expect("it waits");
            runtime.block_on(call).expect("no panic").expect("told");
            while workers.hand_over() {
                std::thread::yield_now();
            }
        }
    }
}
