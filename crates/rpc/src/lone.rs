//! A thread of its own for the connection of a lone client.
//!
//! A client that makes one call at a time, while no other client makes any, is as fast as the server is quick to answer. It gains nothing from being
//! served side by side with others; what it costs is that threads wake each other. So its connection moves to a thread that serves nothing else. There a
//! call may wait for a disk in place: nobody else waits for that thread.
//!
//! | the server sees | it does |
//! |---|---|
//! | [`LONE_AFTER`](limits::LONE_AFTER) calls of one connection in a row, none of them while another call was in flight | the connection moves to the thread when its next call arrives |
//! | a call of another connection, a second call in flight, a call that arrived while the one before was served | the connection moves back likewise |
//! | no call for [`BUFFER_IDLE`](limits::BUFFER_IDLE) | the same |
//!
//! One connection at a time is on the thread. The thread runs an async runtime of its own, and on it the connection's reader and writer. A call
//! that has to wait for something else than a disk goes on among the others, and so does all that a call starts.
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

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tracing::warn;

use crate::limits;
use crate::writer::{WriteHalf, Writing};

thread_local! {
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is the thread of a lone client. Work may wait on it; [`tokio::task::block_in_place`] would panic.
pub fn on_lone_thread() -> bool {
    HERE.get()
}

/// Watches all calls of a server, and has the thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lone(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    in_flight: AtomicUsize,
    /// The connection of the last call, and how many calls in a row were its own and alone.
    last: AtomicU64,
    in_a_row: AtomicU32,
    occupied: AtomicBool,
    /// Started when it is first needed; `None` if the system gives no more threads.
    thread: OnceLock<Option<LoneThread>>,
}

/// The thread ends when this is dropped.
#[derive(Debug)]
struct LoneThread {
    runtime: Handle,
    _stop: oneshot::Sender<()>,
}

impl LoneThread {
    fn start() -> std::io::Result<LoneThread> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new().name("nfs-lone".into()).spawn(move || {
            HERE.set(true);
            // Nothing is ever sent: it waits until the sender is dropped.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(LoneThread { runtime: handle, _stop: stop })
    }
}

impl Lone {
    /// Counts a call of connection `conn`, from now until the result is dropped.
    pub(crate) fn call(&self, conn: u64) -> InFlight {
        let inner = &self.0;
        let others = inner.in_flight.fetch_add(1, Ordering::Relaxed);
        let same = inner.last.swap(conn, Ordering::Relaxed) == conn;
        if others > 0 || !same {
            inner.in_a_row.store(0, Ordering::Relaxed);
        } else if inner.in_a_row.load(Ordering::Relaxed) < limits::LONE_AFTER {
            inner.in_a_row.fetch_add(1, Ordering::Relaxed);
        }
        InFlight(self.0.clone())
    }

    /// Whether this connection alone has made the last calls, one at a time.
    pub(crate) fn is_alone(&self, conn: u64) -> bool {
        self.0.last.load(Ordering::Relaxed) == conn
            && self.0.in_a_row.load(Ordering::Relaxed) >= limits::LONE_AFTER
    }

    /// A call of this connection has arrived before the one before it was answered.
    pub(crate) fn calls_overlap(&self, conn: u64) {
        if self.0.last.load(Ordering::Relaxed) == conn {
            self.0.in_a_row.store(0, Ordering::Relaxed);
        }
    }

    /// The thread, if nobody is on it.
    pub(crate) fn enter(&self) -> Option<LonePlace> {
        if self.0.occupied.swap(true, Ordering::Acquire) {
            return None;
        }
        let place = LonePlace(self.0.clone());
        let thread = self.0.thread.get_or_init(|| {
            LoneThread::start()
                .inspect_err(|e| {
                    warn!("no thread for a client that is alone, so it is served like others: {e}")
                })
                .ok()
        });
        thread.is_some().then_some(place)
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
pub(crate) struct InFlight(Arc<Inner>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to be on the thread.
#[derive(Debug)]
pub(crate) struct LonePlace(Arc<Inner>);

impl LonePlace {
    pub(crate) fn runtime(&self) -> Option<&Handle> {
        self.0.thread.get()?.as_ref().map(|thread| &thread.runtime)
    }
}

impl Drop for LonePlace {
    fn drop(&mut self) {
        self.0.occupied.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(lone: &Lone, conn: u64) {
        for _ in 0..=limits::LONE_AFTER {
            drop(lone.call(conn));
        }
    }

    #[test]
    fn calls_one_at_a_time_of_one_connection_make_it_alone() {
        let lone = Lone::default();
        assert!(!lone.is_alone(1));
        alone(&lone, 1);
        assert!(lone.is_alone(1) && !lone.is_alone(2));
    }

    #[test]
    fn another_connection_or_a_second_call_in_flight_ends_it() {
        let lone = Lone::default();
        alone(&lone, 1);
        drop(lone.call(2));
        assert!(!lone.is_alone(1) && !lone.is_alone(2));
        alone(&lone, 1);
        let first = lone.call(1);
        assert!(lone.is_alone(1));
        drop(lone.call(1));
        assert!(!lone.is_alone(1));
        drop(first);
        alone(&lone, 1);
        lone.calls_overlap(1);
        assert!(!lone.is_alone(1));
    }

    #[test]
    fn one_at_a_time_is_on_the_thread() {
        let lone = Lone::default();
        let place = lone.enter().expect("nobody is on it");
        assert!(lone.enter().is_none());
        let runtime = place.runtime().expect("a thread").clone();
        let (tell, told) = std::sync::mpsc::channel();
        runtime.spawn(async move { tell.send(on_lone_thread()) });
        assert_eq!(told.recv(), Ok(true));
        assert!(!on_lone_thread());
        drop(place);
        assert!(lone.enter().is_some());
    }
}
