//! The reading side of a connection: takes records, begins calls, hands replies to those who wait for them.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustix::net::RecvFlags;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::{Instant, timeout, timeout_at};

use crate::auth::Credential;
use crate::conn::{CallHeader, Cause, ConnConfig, ConnInfo, Response, Service, Shares, Stage, check_program};
use crate::limits;
use crate::lone::{Destination, Place, Rhythm, Seat, on_lone_thread};
use crate::message::{
    AcceptStat, Incoming, MessageError, RawCall, RejectStat, encode_accepted, encode_denied, parse,
};
use crate::places::Standing;
use crate::record::Assembler;
use crate::shares::ShareGuard;
use crate::turns::{Turn, if_it_waits};
use crate::writer::{self, Outgoing, Permits};

/// Why nothing more is read.
pub(crate) enum ReadEnd {
    Eof,
    /// The peer or the network ended the connection.
    Lost(String),
    /// This end closes the connection.
    Cause(Cause),
    /// The connection goes on on other threads.
    Move(Destination),
    /// The connection goes on elsewhere already: see [`Seat`].
    Taken,
}

/// Closes the connection when a service panics; otherwise the caller would wait for ever.
struct Unanswered<'a>(&'a ConnInfo);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.advance(Stage::Closed, "the service failed");
    }
}

/// Decides whether a call is begun by the reader itself or in a task of its own. A call that is answered from memory
/// takes less time than creating a task. A call that waits for a disk or copies much must not delay the calls after it.
#[derive(Default)]
pub(crate) struct Pace {
    /// Counts the calls begun, as far as that matters.
    first: AtomicU32,
    /// How many more calls get tasks of their own after a slow one.
    apart: AtomicU32,
    /// Calls on a thread of its own.
    lone: AtomicU32,
}

impl Pace {
    fn in_place(&self) -> bool {
        let first = self.first.load(Ordering::Relaxed);
        if first < limits::IN_PLACE_FIRST {
            self.first.store(first + 1, Ordering::Relaxed);
            return true;
        }
        let left = self.apart.load(Ordering::Relaxed);
        if left > 0 {
            self.apart.store(left - 1, Ordering::Relaxed);
        }
        left == 0
    }

    /// Whether it is to be looked now whether a call has arrived in the meantime.
    fn looks(&self) -> bool {
        self.lone.fetch_add(1, Ordering::Relaxed).is_multiple_of(limits::LONE_LOOK_EVERY)
    }

    fn took(&self, time: Duration) {
        if time > limits::IN_PLACE_MAX {
            self.apart.store(limits::APART_AFTER_SLOW, Ordering::Relaxed);
        }
    }
}

/// Calls that have to wait for something. They get tasks once all calls that were received together have been begun, so
/// these wait for the disk together. The reader awaits nothing while this holds any.
#[derive(Default)]
pub(crate) struct WaitingCalls(Mutex<Vec<Serving>>);

type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

impl WaitingCalls {
    fn push(&self, serving: Serving) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(serving);
    }

    fn take(&self) -> Vec<Serving> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The progress of a record that has begun: since when, and how many bytes.
#[derive(Default)]
struct Progress(Option<(Instant, usize)>);

impl Progress {
    /// The time at which the record counts as stalled.
    fn until(&mut self, stall_max: Duration) -> Instant {
        self.0.get_or_insert_with(|| (Instant::now(), 0)).0 + stall_max
    }

    fn came(&mut self, bytes: usize) {
        let Some((_, sum)) = &mut self.0 else { return };
        *sum += bytes;
        if *sum >= limits::RECORD_PROGRESS_MIN {
            self.0 = None;
        }
    }

    /// Does not count time in which this end did not read.
    fn waited(&mut self, time: Duration) {
        if let Some((since, _)) = &mut self.0 {
            *since += time;
        }
    }
}

/// What has arrived and makes no whole record yet.
pub(crate) struct Input {
    records: Assembler,
    buf: BytesMut,
    /// The room that a large record has taken so far.
    counted: Option<ShareGuard>,
    /// Goes on where the connection moves to.
    progress: Progress,
}

impl Input {
    pub(crate) fn new(config: &ConnConfig) -> Input {
        let (counted, progress) = (None, Progress::default());
        Input { records: Assembler::new(config.record_max), buf: BytesMut::new(), counted, progress }
    }
}

enum FirstBytes {
    Read(io::Result<usize>),
    /// Nothing arrived for too long.
    Idle,
    /// Nothing arrived for a moment: a thread of its own is too much for this connection.
    LeavesThread,
}

/// Waits for the first bytes of a record. For a moment it keeps a buffer at hand; then it waits without one, so that
/// idle connections take no memory.
async fn first_bytes(
    conn: &ConnInfo,
    rhythm: Option<&Rhythm>,
    socket: &mut OwnedReadHalf,
    buf: &mut BytesMut,
    chunk: usize,
    idle_max: Option<Duration>,
) -> FirstBytes {
    let begun = Instant::now();
    loop {
        if buf.capacity() < chunk / 8 {
            buf.reserve(chunk);
        }
        if let Ok(read) = timeout(limits::BUFFER_IDLE, socket.read_buf(buf)).await {
            return FirstBytes::Read(read);
        }
        if let Some(rhythm) = rhythm {
            rhythm.is_broken();
        }
        if on_lone_thread() {
            if conn.all_is_written() {
                return FirstBytes::LeavesThread;
            }
            // It leaves once the peer has taken what is written, which the writer bounds.
            continue;
        }
        *buf = BytesMut::new();
        let ready = match idle_max {
            None => socket.readable().await,
            Some(idle) => match timeout_at(begun + idle, socket.readable()).await {
                Ok(ready) => ready,
                Err(_) => return FirstBytes::Idle,
            },
        };
        if let Err(e) = ready {
            return FirstBytes::Read(Err(e));
        }
    }
}

/// Reads one connection. Whatever ends it ends the connection, a panic too, unless another reader goes on with it.
pub(crate) struct Reader<S: Service> {
    pace: Pace,
    waiting: WaitingCalls,
    /// Of a server's connection.
    rhythm: Option<Arc<Rhythm>>,
    pub(crate) conn: Arc<ConnInfo>,
    pub(crate) service: Arc<S>,
    pub(crate) shared: Option<Shares>,
    /// Only on the thread of a lone client.
    pub(crate) seat: Option<Arc<Seat>>,
    /// It reads only if the connection is taken from another one.
    pub(crate) waits: bool,
}

impl<S: Service> Drop for Reader<S> {
    fn drop(&mut self) {
        if self.waits || self.is_taken() {
            return;
        }
        self.conn.advance(Stage::Closed, "the server failed");
        // A second panic, while the first one unwinds, would end the process.
        let _ = catch_unwind(AssertUnwindSafe(|| self.conn.tell_closed(&*self.service)));
    }
}

impl<S: Service> Reader<S> {
    pub(crate) fn new(conn: Arc<ConnInfo>, service: Arc<S>, shared: Option<Shares>) -> Reader<S> {
        let rhythm = shared.as_ref().map(|shared| Arc::new(Rhythm::new(shared.lone.clone())));
        let (pace, waiting) = (Pace::default(), WaitingCalls::default());
        Reader { pace, waiting, rhythm, conn, service, shared, seat: None, waits: false }
    }

    /// Another one for the same connection, for when this one does not go on.
    pub(crate) fn substitute(&self) -> Reader<S> {
        let (conn, service, shared) = (self.conn.clone(), self.service.clone(), self.shared.clone());
        let (pace, waiting, rhythm) = (Pace::default(), WaitingCalls::default(), self.rhythm.clone());
        Reader { pace, waiting, rhythm, conn, service, shared, seat: None, waits: true }
    }

    /// The connection goes on without this reader.
    fn is_taken(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.is_taken())
    }

    /// Reads and dispatches until the input ends. Never returns `None`.
    ///
    /// A large record is counted as it arrives. So a peer that announces much and sends little holds little. A peer
    /// that stops in the middle of a record uses up its own share, until it has been silent for too long.
    pub(crate) async fn read(
        &self,
        socket: &mut OwnedReadHalf,
        input: &mut Input,
        config: &ConnConfig,
    ) -> Option<ReadEnd> {
        let end = self.read_all(socket, input, config).await;
        self.spawn_waiting();
        end
    }

    async fn read_all(
        &self,
        socket: &mut OwnedReadHalf,
        input: &mut Input,
        config: &ConnConfig,
    ) -> Option<ReadEnd> {
        let Input { records, buf, counted, progress } = input;
        let mut in_a_row = 0;
        loop {
            loop {
                let outsider = self.conn.standing_now(&*self.service) == Standing::Outsider;
                records.limit(if outsider { limits::OUTSIDER_RECORD_MAX } else { config.record_max });
                match records.next(buf) {
                    Ok(Some(record)) => {
                        *progress = Progress::default();
                        self.conn.set_active();
                        let single = buf.is_empty();
                        if !single {
                            self.calls_overlap();
                        }
                        let message = self.message(record, counted.take(), single);
                        if let Err(why) = if_it_waits(pin!(message), || self.spawn_waiting()).await {
                            return Some(ReadEnd::Cause(why.into()));
                        }
                        if self.is_taken() {
                            return Some(ReadEnd::Taken);
                        }
                        if on_lone_thread() {
                            self.look_for_overlap(socket);
                        }
                        in_a_row += 1;
                        if in_a_row == limits::IN_PLACE_IN_A_ROW {
                            // Let the writer run, in case all calls were answered in place.
                            in_a_row = 0;
                            self.spawn_waiting();
                            tokio::task::yield_now().await;
                            if let Some(to) = self.moves() {
                                return Some(ReadEnd::Move(to));
                            }
                        }
                    }
                    Ok(None) => break,
                    Err(e) => {
                        self.conn.set_garbled();
                        return Some(ReadEnd::Cause(e.into()));
                    }
                }
            }
            self.spawn_waiting();
            let within = records.within() || !buf.is_empty();
            let arrived = records.joined() + buf.len();
            if let Some(shared) = &self.shared
                && records.within()
                && arrived > limits::READ_CHUNK
            {
                let taken = counted.get_or_insert_with(|| shared.bytes.nothing(shared.client));
                if arrived > taken.amount() {
                    // Time spent waiting for room does not count against the peer.
                    let asked = Instant::now();
                    if timeout(config.record_stall_max, taken.grow(arrived)).await.is_err() {
                        return Some(ReadEnd::Cause(Cause::NoRoom));
                    }
                    progress.waited(asked.elapsed());
                }
            }
            let standing = self.conn.standing();
            let outsider = standing == Standing::Outsider;
            // Room grows with the bytes that have arrived, not with those announced.
            let chunk = if outsider { limits::OUTSIDER_RECORD_MAX } else { limits::READ_CHUNK };
            let room = records.missing(buf.len()).min(chunk.max(4 * buf.len()));
            if within && buf.capacity() - buf.len() < room.max(chunk / 8) {
                buf.reserve(room.max(chunk));
            }
            let before = buf.len();
            let read = if within {
                let until = progress.until(config.record_stall_max);
                match timeout_at(until, socket.read_buf(buf)).await {
                    Ok(read) => read,
                    Err(_) => return Some(ReadEnd::Cause(Cause::Stalled)),
                }
            } else {
                let idle_max = config
                    .idle_max
                    .map(|max| if outsider { max.min(limits::OUTSIDER_IDLE_MAX) } else { max });
                match first_bytes(&self.conn, self.rhythm.as_deref(), socket, buf, chunk, idle_max).await {
                    FirstBytes::Read(read) => read,
                    FirstBytes::Idle => return Some(ReadEnd::Eof),
                    FirstBytes::LeavesThread => return Some(ReadEnd::Move(Destination::Others)),
                }
            };
            match read {
                Ok(0) if !within => return Some(ReadEnd::Eof),
                Ok(0) => {
                    return Some(ReadEnd::Lost("the peer closed the connection inside a record".into()));
                }
                Ok(_) => progress.came(buf.len() - before),
                Err(e) => return Some(ReadEnd::Lost(e.to_string())),
            }
            if let Some(to) = self.moves() {
                return Some(ReadEnd::Move(to));
            }
        }
    }

    /// `single`: nothing that came after it has been read.
    async fn message(
        &self,
        record: Bytes,
        counted: Option<ShareGuard>,
        single: bool,
    ) -> Result<(), MessageError> {
        let len = record.len();
        match parse(record)? {
            Incoming::Reply { xid, outcome } => self.conn.replied(xid, outcome),
            Incoming::Refused { xid, why } => {
                let permits = self.permits(0, counted).await;
                self.deny(xid, why, permits);
            }
            Incoming::Call(call, body) => {
                let permits = self.permits(len, counted).await;
                // There are few such threads, each with one call at a time.
                let turn = match self.shared.as_ref().filter(|_| !self.is_lone()) {
                    Some(s) => s.turns.wait(s.client).await,
                    None => Turn::free(),
                };
                self.dispatch(call, (len, single), body, permits, turn);
            }
        }
        Ok(())
    }

    /// Takes the permits to serve a call of `len` bytes, some of which may be counted already. Bytes come first:
    /// otherwise the holder of a call permit could wait for bytes held by somebody who waits for a call permit.
    async fn permits(&self, len: usize, counted: Option<ShareGuard>) -> Permits {
        let (calls, bytes) = self.conn.budgets();
        let mut held = Permits::default();
        if let Some(s) = self.shared.as_ref().filter(|_| len > limits::SMALL_RECORD || counted.is_some()) {
            let mut taken = counted.unwrap_or_else(|| s.bytes.nothing(s.client));
            taken.grow(len).await;
            taken.grown();
            held.shares.push(taken);
        }
        bytes.take(len, &mut held).await;
        calls.take(1, &mut held).await;
        if let Some(s) = &self.shared {
            held.shares.push(s.calls.take(s.client, 1).await);
        }
        held
    }

    fn deny(&self, xid: u32, why: RejectStat, permits: Permits) {
        let mut head = writer::head_buffer();
        encode_denied(xid, why, &mut head);
        self.conn.reply(writer::seal(head, Vec::new(), permits));
    }

    fn dispatch(
        &self,
        call: RawCall,
        (message_bytes, single): (usize, bool),
        body: Bytes,
        permits: Permits,
        turn: Turn,
    ) {
        let xid = call.xid;
        if let Err(stat) = check_program(self.service.programs(), &call) {
            self.conn.reply(accepted(xid, stat, Vec::new(), permits));
            return;
        }
        let cred = match Credential::from_opaque(&call.cred) {
            Ok(cred) => cred,
            Err(stat) => return self.deny(xid, RejectStat::AuthError(stat), permits),
        };
        let counted = self.rhythm.as_ref().and_then(|rhythm| {
            // An address that nobody names, or that must be looked up, takes no thread from others.
            let named = self.conn.standing() == Standing::Named;
            if !named {
                rhythm.is_broken();
            }
            named.then(|| rhythm.call())
        });
        let RawCall { prog, vers, proc, .. } = call;
        let call = CallHeader { xid, prog, vers, proc, cred, message_bytes, turn, lone: self.is_lone() };
        let (service, conn) = (self.service.clone(), self.conn.clone());
        let serving = Box::pin(async move {
            let _counted = counted;
            let unanswered = Unanswered(&conn);
            let response = service.call(&conn, call, body).await;
            std::mem::forget(unanswered);
            let (stat, results) = match response {
                Response::Success(results) => (AcceptStat::Success, vec![results]),
                Response::Segments(results) => (AcceptStat::Success, results),
                Response::ProcUnavail => (AcceptStat::ProcUnavail, Vec::new()),
                Response::GarbageArgs => (AcceptStat::GarbageArgs, Vec::new()),
                Response::SystemErr => (AcceptStat::SystemErr, Vec::new()),
                Response::AuthError(stat) => {
                    let mut head = writer::head_buffer();
                    encode_denied(xid, RejectStat::AuthError(stat), &mut head);
                    return conn.reply(writer::seal(head, Vec::new(), permits));
                }
                Response::Close => return conn.advance(Stage::Closed, "closed by the service"),
            };
            conn.reply(accepted(xid, stat, results, permits));
        });
        match &self.seat {
            None => self.begin(serving),
            Some(seat) => self.begin_alone(seat, serving, single),
        }
    }

    /// The stream could not be moved to another thread.
    pub(crate) fn lost<T>(&self, why: &io::Error) -> Option<T> {
        self.conn.advance(Stage::Closed, &why.to_string());
        self.conn.tell_closed(&*self.service);
        None
    }

    fn is_lone(&self) -> bool {
        on_lone_thread() && self.rhythm.as_ref().is_some_and(|rhythm| rhythm.place() == Place::Lone)
    }

    /// Where the connection must move now. It does not while the writer has something to do, because then it would have to wait
    /// for the peer to take that. Calls in flight end where they are.
    fn moves(&self) -> Option<Destination> {
        let rhythm = self.rhythm.as_ref()?;
        let lone = rhythm.lone();
        let pool = || lone.pool().map(Destination::Serial);
        match (Place::here(), rhythm.place()) {
            (here, to) if here == to => None,
            _ if !self.conn.all_is_written() => None,
            // A thread may be in a call whose connection went on without it.
            (Place::Others, Place::Lone) => lone.enter().map(Destination::Lone).or_else(pool),
            (Place::Others, Place::Serial) => pool(),
            (Place::Serial, Place::Lone) if !lone.may_enter() => None,
            _ => Some(Destination::Others),
        }
    }

    /// On a thread of its own: looks now and then whether a call has arrived before the last one was answered.
    fn look_for_overlap(&self, socket: &OwnedReadHalf) {
        if self.pace.looks() && arrived(socket) {
            self.calls_overlap();
        }
    }

    /// The client makes several calls at a time.
    pub(crate) fn calls_overlap(&self) {
        if let Some(rhythm) = &self.rhythm {
            rhythm.is_broken();
        }
    }

    /// Runs a call until it first waits; a task runs the rest. While an earlier call does not end, this one may not either: then it
    /// gets a task from the beginning.
    fn begin(&self, mut serving: Serving) {
        let stalls = self.conn.is_held() || (Place::here() == Place::Serial && self.service.stalls());
        if stalls || !self.pace.in_place() {
            tokio::spawn(serving);
            return;
        }
        let begun = Instant::now();
        let waits = first_poll(&mut serving);
        self.pace.took(begun.elapsed());
        if waits {
            self.waiting.push(serving);
        }
    }

    /// As [`Reader::begin`], on the thread of a lone client, from where the connection may be taken meanwhile. So that nothing is
    /// lost then, a call is not begun here if others have been read behind it, or if a reply is not written yet. What the call
    /// starts, and its timers, are not to wait for the thread.
    fn begin_alone(&self, seat: &Seat, mut serving: Serving, single: bool) {
        let _others = seat.others.enter();
        if !single || !self.conn.all_is_written() {
            tokio::spawn(serving);
        } else if seat.during(|| first_poll(&mut serving)) {
            self.waiting.push(serving);
        }
    }

    /// Spawns a task for each call that waits. The task polls its call at once and so registers a waker of its own.
    fn spawn_waiting(&self) {
        for serving in self.waiting.take() {
            match &self.seat {
                None => tokio::spawn(serving),
                Some(seat) => seat.others.spawn(serving),
            };
        }
    }
}

/// Polls a call for the first time; whether it waits. After a panic `Unanswered` has closed the connection.
fn first_poll(serving: &mut Serving) -> bool {
    let mut nobody = Context::from_waker(Waker::noop());
    let polled = catch_unwind(AssertUnwindSafe(|| serving.as_mut().poll(&mut nobody)));
    matches!(polled, Ok(Poll::Pending))
}

fn accepted(xid: u32, stat: AcceptStat, results: Vec<Bytes>, permits: Permits) -> Outgoing {
    let mut head = writer::head_buffer();
    encode_accepted(xid, stat, &mut head);
    writer::seal(head, results, permits)
}

/// Whether something has arrived that is not read yet. (The runtime would not look: it waits for the kernel to tell it.)
fn arrived(socket: &OwnedReadHalf) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    rustix::net::recv(socket.as_ref(), &mut [0; 1], flags).is_ok_and(|(_, bytes)| bytes > 0)
}
