//! Threads of their own for the connections of clients that make one call at a time.
//!
//! Such a client is as fast as the server is quick to answer. It gains nothing from being served side by side with others; what it costs is that threads
//! wake each other, and that it waits for a thread which others keep busy. So while there are only a few such clients, each one's connection moves to a
//! thread that serves nothing else. There a call may wait for a disk in place: nobody else waits for that thread. What other clients do, however much it is,
//! costs it no more than the processor's time, which the system shares out.
//!
//! | the server sees | it does |
//! |---|---|
//! | [`SERIAL_AFTER`](limits::SERIAL_AFTER) calls of a connection in a row, each sent after the one before was answered | the connection counts as serial |
//! | a serial connection, of at most [`LONE_THREADS_MAX`](limits::LONE_THREADS_MAX) | it moves to a thread of its own when its next call arrives |
//! | a second call in flight, or a call that arrived while the one before was served; no call for [`BUFFER_IDLE`](limits::BUFFER_IDLE) | the connection is not serial any more |
//! | a connection on a thread of its own that is not serial, or one of too many | it moves back likewise |
//!
//! Each thread runs an async runtime of its own, and on it the connection's reader and writer. A call that has to wait for something else than a disk
//! goes on among the others, and so does all that a call starts.
//!
//! A disk may stop answering for minutes. Nothing else of the client may wait for that: it has to renew its lease, and other programs of its machine
//! use the same connection. So who left the connection to the thread looks every [`LONE_LOOK`](limits::LONE_LOOK) whether the thread is still in the
//! same call. Then the connection goes on without the thread ([`Seat`]), which only ends that call.
//!
//! | state of a seat | set by | next |
//! |---|---|---|
//! | even: the thread is in no call | the thread | it begins a call that came alone, when all replies are written: odd |
//! | odd: in a call | the thread | the call ends: even. It is the same at two looks: taken |
//! | taken: the connection goes on elsewhere | who looks | never. When the call ends, the thread touches nothing of the connection any more |
//!
//! Invariant: [`Inner::serial`] counts the [`Rhythm`]s whose `serial` is set.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tracing::warn;

use crate::limits;
use crate::writer::{WriteHalf, Writing};

thread_local! {
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is a thread of one connection only. Work may wait on it; [`tokio::task::block_in_place`] would panic.
pub fn on_lone_thread() -> bool {
    HERE.get()
}

/// What the connections of a server have in common: how many are serial, and the threads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lone(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    serial: AtomicUsize,
    threads: Mutex<Threads>,
}

/// Threads are started when they are first needed, and end when this is dropped.
#[derive(Debug, Default)]
struct Threads {
    free: Vec<LoneThread>,
    started: usize,
    /// The system gives no more.
    refused: bool,
}

/// The thread ends when this is dropped.
#[derive(Debug)]
struct LoneThread {
    runtime: Handle,
    _stop: oneshot::Sender<()>,
}

impl LoneThread {
    fn start(number: usize) -> std::io::Result<LoneThread> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new().name(format!("nfs-lone-{number}")).spawn(move || {
            HERE.set(true);
            // Nothing is ever sent: it waits until the sender is dropped.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(LoneThread { runtime: handle, _stop: stop })
    }
}

impl Lone {
    /// A thread that nobody is on.
    pub(crate) fn enter(&self) -> Option<LonePlace> {
        let mut threads = self.0.threads();
        let thread = match threads.free.pop() {
            Some(thread) => thread,
            None if threads.refused || threads.started >= limits::LONE_THREADS_MAX => return None,
            None => match LoneThread::start(threads.started) {
                Ok(thread) => {
                    threads.started += 1;
                    thread
                }
                Err(e) => {
                    threads.refused = true;
                    warn!(
                        "no thread for a client that makes one call at a time, so it is served like others: {e}"
                    );
                    return None;
                }
            },
        };
        Some(LonePlace { of: self.0.clone(), thread: Some(thread) })
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

    /// Whether the connection is to have a thread of its own.
    pub(crate) fn is_lone(&self) -> bool {
        self.serial.load(Ordering::Relaxed)
            && self.lone.0.serial.load(Ordering::Relaxed) <= limits::LONE_THREADS_MAX
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
            assert!(!rhythm.is_lone());
            drop(rhythm.call());
        }
        rhythm
    }

    #[test]
    fn calls_one_at_a_time_make_a_connection_serial() {
        let lone = Lone::default();
        let rhythm = serial(&lone);
        assert!(rhythm.is_lone());
        drop(rhythm.call());
        let first = rhythm.call();
        assert!(rhythm.is_lone());
        drop(rhythm.call());
        assert!(!rhythm.is_lone(), "two calls in flight");
        drop(first);
        for _ in 0..limits::SERIAL_AFTER {
            drop(rhythm.call());
        }
        assert!(rhythm.is_lone());
        rhythm.is_broken();
        assert!(!rhythm.is_lone());
    }

    #[test]
    fn what_others_do_matters_only_if_too_many_are_serial() {
        let lone = Lone::default();
        let mut all: Vec<_> = (0..limits::LONE_THREADS_MAX).map(|_| serial(&lone)).collect();
        let busy = Rhythm::new(lone.clone());
        let _calls: Vec<_> = (0..2 * limits::SERIAL_AFTER).map(|_| busy.call()).collect();
        assert!(all.iter().all(Rhythm::is_lone));
        let one_more = serial(&lone);
        assert!(!one_more.is_lone() && !all.iter().any(Rhythm::is_lone));
        all.pop();
        assert!(one_more.is_lone() && all.iter().all(Rhythm::is_lone), "it counts only while it is there");
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
}
