//! Threads for the connections of clients that make one call at a time: one for each while these are few, and a pool for all of them otherwise.
//!
//! Such a client is as fast as the server is quick to answer. It gains nothing from being served side by side with others; what it costs is that threads
//! wake each other, and that it waits for a thread which others keep busy. So while there are only a few such clients, each one's connection moves to a
//! thread that serves nothing else. There a call may wait for a disk in place: nobody else waits for that thread. What other clients do, however much it is,
//! costs it no more than the processor's time, which the system shares out. When they are more, these connections are served together by the threads of a
//! pool: those that share a pool share more flushes than those that have threads of their own, and what the clients do that make many calls at a time still
//! costs them only the processor's time.
//!
//! | the server sees | it does |
//! |---|---|
//! | [`SERIAL_AFTER`](limits::SERIAL_AFTER) calls of a connection in a row, each sent after the one before was answered | the connection counts as serial |
//! | the address is not named ([`Standing`](crate::Standing)), or not any more | the connection is not serial |
//! | a serial connection, of at most [`LONE_THREADS_MAX`](limits::LONE_THREADS_MAX) | it moves to a thread of its own when its next call arrives |
//! | a second call in flight, or a call that arrived while the one before was served; no call for [`BUFFER_IDLE`](limits::BUFFER_IDLE) | the connection is not serial any more |
//! | a serial connection, of more than that, or while no thread is free | it moves likewise to the pool of the serial ones |
//! | a connection that is not where it belongs any more | it moves back likewise, and from there on |
//!
//! Each thread runs an async runtime of its own, and on it the connection's reader and writer. A call that has to wait for something else than a disk
//! goes on among the others, and so does all that a call starts.
//!
//! A disk may stop answering for minutes. Nothing else of the client may wait for that: it has to renew its lease, and other programs of its machine
//! use the same connection. So who left the connection to the thread looks every [`LONE_LOOK`](limits::LONE_LOOK) whether the thread is still in the
//! same call. Then the connection goes on without the thread ([`Seat`]), which only ends that call. Until it has, the connection's other calls get tasks of
//! their own from the beginning, as they may ask the same disk.
//!
//! | state of a seat | set by | next |
//! |---|---|---|
//! | even: the thread is in no call | the thread | it begins a call that came alone, when all replies are written: odd |
//! | odd: in a call | the thread | the call ends: even. It is the same at two looks: taken |
//! | taken: the connection goes on elsewhere | who looks | never. When the call ends, the thread touches nothing of the connection any more |
//!
//! A call may wait in the pool as it may among the others: see [`tokio::task::block_in_place`]. While calls take long there
//! ([`Service::stalls`](crate::Service::stalls)), each has a task of its own, so that its connection is read on.
//!
//! The system may give no more threads. Then these clients are served like others, and threads are asked for again every
//! [`THREADS_RETRY`](limits::THREADS_RETRY). A connection asks for them in a task, where a [`Runtime`] must not be dropped.
//!
//! Invariant: [`Inner::serial`] counts the [`Rhythm`]s whose `serial` is set.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Instant;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tracing::warn;

use crate::limits;
use crate::rate_limit::RateLimit;
use crate::writer::{WriteHalf, Writing};

/// Where a connection is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the threads that the server was started on.
    Others,
    /// On a thread of its own.
    Lone,
    /// On the threads of all that make one call at a time.
    Serial,
}

thread_local! {
    static HERE: Cell<Place> = const { Cell::new(Place::Others) };
}

impl Place {
    /// That of this thread.
    pub(crate) fn here() -> Place {
        HERE.get()
    }
}

/// Whether this is a thread of one connection only. Work may wait on it; [`tokio::task::block_in_place`] would panic.
pub fn on_lone_thread() -> bool {
    Place::here() == Place::Lone
}

/// Where a connection goes on.
#[derive(Debug)]
pub(crate) enum Destination {
    Others,
    Lone(LonePlace),
    Serial(Handle),
}

/// What the connections of a server have in common: how many are serial, and the threads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lone(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    serial: AtomicUsize,
    threads: Mutex<Threads>,
    system: System,
}

/// What a thread runs.
type Work = Box<dyn FnOnce() + Send>;

/// How threads are started. Tests put in what fails.
#[derive(Debug)]
struct System {
    spawn: fn(String, Work) -> io::Result<()>,
    build: fn(&mut Builder) -> io::Result<Runtime>,
}

impl Default for System {
    fn default() -> System {
        System {
            spawn: |name, run| std::thread::Builder::new().name(name).spawn(run).map(drop),
            build: Builder::build,
        }
    }
}

impl System {
    /// Where the system gives no thread, [`Builder::build`] panics.
    fn runtime(&self, builder: &mut Builder) -> io::Result<Runtime> {
        catch_unwind(AssertUnwindSafe(|| (self.build)(builder)))
            .unwrap_or_else(|_| Err(io::ErrorKind::WouldBlock.into()))
    }
}

/// The threads of all serial connections together. They end when this is dropped.
#[derive(Debug)]
struct SerialPool(Option<Runtime>);

impl SerialPool {
    /// As many threads as there are where this is called. For each call that waits for a device one more may be needed.
    fn start(system: &System) -> io::Result<SerialPool> {
        let workers = Handle::current().metrics().num_workers().max(2);
        let mut builder = Builder::new_multi_thread();
        builder
            .worker_threads(workers)
            .max_blocking_threads(workers * limits::SERIAL_THREADS_PER_WORKER)
            .thread_name("nfs-serial")
            .on_thread_start(|| HERE.set(Place::Serial))
            .enable_all();
        Ok(SerialPool(Some(system.runtime(&mut builder)?)))
    }

    fn handle(&self) -> Option<&Handle> {
        self.0.as_ref().map(Runtime::handle)
    }
}

impl Drop for SerialPool {
    fn drop(&mut self) {
        // It may be dropped on one of its own threads, so this does not wait for them.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Threads are started when they are first needed, and end when this is dropped.
#[derive(Debug, Default)]
struct Threads {
    free: Vec<LoneThread>,
    started: usize,
    pool: Option<SerialPool>,
    /// When the system gave none, for a connection of its own or for the pool.
    refused: [Refused; 2],
}

/// When the system last gave no thread.
#[derive(Debug, Default)]
struct Refused {
    last: Option<Instant>,
    warnings: RateLimit,
}

impl Refused {
    /// It is too early to ask for one again.
    fn lasts(&self) -> bool {
        self.last.is_some_and(|last| last.elapsed() < limits::THREADS_RETRY)
    }

    fn now(&mut self, e: &io::Error) {
        self.last = Some(Instant::now());
        self.warnings.warn(|more| {
            warn!("no threads for clients that make one call at a time, so they are served like others: {e}{more}");
        });
    }
}

/// The thread ends when this is dropped.
#[derive(Debug)]
struct LoneThread {
    runtime: Handle,
    _stop: oneshot::Sender<()>,
}

impl LoneThread {
    fn start(number: usize, system: &System) -> io::Result<LoneThread> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (give, given) = mpsc::channel::<Runtime>();
        let run = move || {
            HERE.set(Place::Lone);
            if let Ok(runtime) = given.recv() {
                // Nothing is ever sent: it waits until the sender is dropped.
                let _ = runtime.block_on(stopped);
            }
        };
        // The runtime comes later: if there is no thread, what was to run is dropped here.
        (system.spawn)(format!("nfs-lone-{number}"), Box::new(run))?;
        let runtime = system.runtime(Builder::new_current_thread().enable_all())?;
        let handle = runtime.handle().clone();
        give.send(runtime).map_err(|unsent| {
            unsent.0.shutdown_background();
            io::Error::other("the thread has ended")
        })?;
        Ok(LoneThread { runtime: handle, _stop: stop })
    }
}

impl Lone {
    /// A thread that nobody is on.
    pub(crate) fn enter(&self) -> Option<LonePlace> {
        let mut threads = self.0.threads();
        let Threads { free, started, refused: [refused, _], .. } = &mut *threads;
        let thread = match free.pop() {
            Some(thread) => thread,
            None if *started >= limits::LONE_THREADS_MAX || refused.lasts() => return None,
            None => {
                let thread =
                    LoneThread::start(*started, &self.0.system).inspect_err(|e| refused.now(e)).ok()?;
                *started += 1;
                thread
            }
        };
        Some(LonePlace { of: self.0.clone(), thread: Some(thread) })
    }

    /// Whether [`Lone::enter`] may find one now.
    pub(crate) fn may_enter(&self) -> bool {
        let threads = self.0.threads();
        let [refused, _] = &threads.refused;
        !threads.free.is_empty() || (threads.started < limits::LONE_THREADS_MAX && !refused.lasts())
    }

    /// The threads of all serial connections together. Called where the other connections are served.
    pub(crate) fn pool(&self) -> Option<Handle> {
        let mut threads = self.0.threads();
        let Threads { pool, refused: [_, refused], .. } = &mut *threads;
        if pool.is_none() && !refused.lasts() {
            *pool = SerialPool::start(&self.0.system).inspect_err(|e| refused.now(e)).ok();
        }
        pool.as_ref()?.handle().cloned()
    }
}

impl Inner {
    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The calls of one connection.
#[derive(Debug)]
pub(crate) struct Rhythm {
    lone: Lone,
    in_flight: Arc<AtomicUsize>,
    /// Calls in a row, each alone in flight; not counted beyond [`limits::SERIAL_AFTER`].
    in_a_row: AtomicU32,
    serial: AtomicBool,
}

impl Rhythm {
    pub(crate) fn new(lone: Lone) -> Rhythm {
        let (in_flight, in_a_row) = (Arc::new(AtomicUsize::new(0)), AtomicU32::new(0));
        Rhythm { lone, in_flight, in_a_row, serial: AtomicBool::new(false) }
    }

    /// Counts a call, from now until the result is dropped.
    pub(crate) fn call(&self) -> InFlight {
        if self.in_flight.fetch_add(1, Ordering::Relaxed) > 0 {
            self.is_broken();
        } else if self.in_a_row.load(Ordering::Relaxed) < limits::SERIAL_AFTER
            && self.in_a_row.fetch_add(1, Ordering::Relaxed) + 1 == limits::SERIAL_AFTER
            && !self.serial.swap(true, Ordering::Relaxed)
        {
            self.lone.0.serial.fetch_add(1, Ordering::Relaxed);
        }
        InFlight(self.in_flight.clone())
    }

    /// A call has arrived before the one before it was answered, or none for long.
    pub(crate) fn is_broken(&self) {
        self.in_a_row.store(0, Ordering::Relaxed);
        if self.serial.swap(false, Ordering::Relaxed) {
            self.lone.0.serial.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Where the connection is to be served.
    pub(crate) fn place(&self) -> Place {
        if !self.serial.load(Ordering::Relaxed) {
            Place::Others
        } else if self.lone.0.serial.load(Ordering::Relaxed) <= limits::LONE_THREADS_MAX {
            Place::Lone
        } else {
            Place::Serial
        }
    }

    pub(crate) fn lone(&self) -> &Lone {
        &self.lone
    }
}

impl Drop for Rhythm {
    fn drop(&mut self) {
        self.is_broken();
    }
}

/// What the thread and who left the connection to it both know: see the module.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Where everything runs that is not to wait for the thread.
    pub(crate) others: Handle,
    state: AtomicU64,
    pub(crate) writing: Writing,
}

/// The value of [`Seat::state`] for good.
const TAKEN: u64 = u64::MAX;

impl Seat {
    /// Called where the other connections are served.
    pub(crate) fn new() -> Seat {
        Seat { others: Handle::current(), state: AtomicU64::new(0), writing: Writing::default() }
    }

    /// Runs a call on the thread. Meanwhile the connection may be taken from it.
    pub(crate) fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        let before = self.state.load(Ordering::Relaxed);
        self.state.store(before + 1, Ordering::Release);
        let done = call();
        // Fails if it was taken.
        let _ = self.state.compare_exchange(before + 1, before + 2, Ordering::AcqRel, Ordering::Acquire);
        done
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.state.load(Ordering::Acquire) == TAKEN
    }

    /// Takes the connection if the thread has been in the same call since the last look. `before` is the state then.
    pub(crate) fn take(&self, before: &mut u64) -> Option<WriteHalf> {
        let now = self.state.load(Ordering::Acquire);
        if now.is_multiple_of(2) || std::mem::replace(before, now) != now {
            return None;
        }
        self.writing
            .take_if(|| self.state.compare_exchange(now, TAKEN, Ordering::AcqRel, Ordering::Acquire).is_ok())
    }
}

/// A call that is being served.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to be on a thread, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct LonePlace {
    of: Arc<Inner>,
    thread: Option<LoneThread>,
}

impl LonePlace {
    pub(crate) fn runtime(&self) -> Option<&Handle> {
        self.thread.as_ref().map(|thread| &thread.runtime)
    }
}

impl Drop for LonePlace {
    fn drop(&mut self) {
        self.of.threads().free.extend(self.thread.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serial(lone: &Lone) -> Rhythm {
        let rhythm = Rhythm::new(lone.clone());
        for _ in 0..limits::SERIAL_AFTER {
            assert_eq!(rhythm.place(), Place::Others);
            drop(rhythm.call());
        }
        rhythm
    }

    #[test]
    fn calls_one_at_a_time_make_a_connection_serial() {
        let lone = Lone::default();
        let rhythm = serial(&lone);
        assert_eq!(rhythm.place(), Place::Lone);
        drop(rhythm.call());
        let first = rhythm.call();
        assert_eq!(rhythm.place(), Place::Lone);
        drop(rhythm.call());
        assert_eq!(rhythm.place(), Place::Others, "two calls in flight");
        drop(first);
        for _ in 0..limits::SERIAL_AFTER {
            drop(rhythm.call());
        }
        assert_eq!(rhythm.place(), Place::Lone);
        rhythm.is_broken();
        assert_eq!(rhythm.place(), Place::Others);
    }

    #[test]
    fn what_others_do_matters_only_if_too_many_are_serial() {
        let lone = Lone::default();
        let mut all: Vec<_> = (0..limits::LONE_THREADS_MAX).map(|_| serial(&lone)).collect();
        let busy = Rhythm::new(lone.clone());
        let _calls: Vec<_> = (0..2 * limits::SERIAL_AFTER).map(|_| busy.call()).collect();
        let are = |all: &[Rhythm], place| all.iter().all(|rhythm| rhythm.place() == place);
        assert!(are(&all, Place::Lone) && busy.place() == Place::Others);
        all.push(serial(&lone));
        assert!(are(&all, Place::Serial));
        all.remove(0);
        assert!(are(&all, Place::Lone), "it counts only while it is there");
    }

    #[test]
    fn each_place_is_a_thread_of_its_own() {
        let lone = Lone::default();
        let places: Vec<_> = (0..limits::LONE_THREADS_MAX).map(|_| lone.enter().expect("a thread")).collect();
        assert!(lone.enter().is_none());
        let (tell, told) = std::sync::mpsc::channel();
        for place in &places {
            let tell = tell.clone();
            let runtime = place.runtime().expect("it has one");
            runtime.spawn(async move { tell.send((on_lone_thread(), std::thread::current().id())) });
        }
        let mut seen: Vec<_> = (0..places.len()).map(|_| told.recv().expect("it ran")).collect();
        assert!(!on_lone_thread() && seen.iter().all(|(lone, _)| *lone));
        seen.sort_by_key(|(_, thread)| format!("{thread:?}"));
        seen.dedup();
        assert_eq!(seen.len(), places.len());
        drop(places);
        assert!(lone.enter().is_some());
    }

    /// How often a system that gives no threads was asked for one.
    static ASKED: AtomicUsize = AtomicUsize::new(0);

    /// Its limit of processes is reached.
    fn full() -> System {
        System {
            spawn: |_, run| {
                ASKED.fetch_add(1, Ordering::SeqCst);
                drop(run);
                Err(io::ErrorKind::WouldBlock.into())
            },
            build: |_| panic!("OS can't spawn worker thread"),
        }
    }

    #[tokio::test]
    async fn where_the_system_gives_no_thread_it_is_asked_again_now_and_then() {
        let lone = Lone(Arc::new(Inner { system: full(), ..Inner::default() }));
        for _ in 0..3 {
            assert!(lone.enter().is_none() && lone.pool().is_none());
        }
        assert_eq!(ASKED.load(Ordering::SeqCst), 1);
        lone.0.threads().refused[0].last = Instant::now().checked_sub(limits::THREADS_RETRY);
        assert!(lone.enter().is_none());
        assert_eq!(ASKED.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_thread_for_which_there_is_no_runtime_ends() {
        let system = System { build: full().build, ..System::default() };
        let lone = Lone(Arc::new(Inner { system, ..Inner::default() }));
        assert!(lone.enter().is_none());
        assert_eq!(lone.0.threads().started, 0);
    }
}
