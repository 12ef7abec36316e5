//! One TCP connection. Both ends may call: on a connection of an NFSv4.1 session the server sends its callbacks over
//! the same socket (RFC 8881 section 2.10.3.1).
//!
//! | state | set by | read by |
//! |---|---|---|
//! | stage: open -> draining -> closed, never back | reader (end of input, garbage), writer (socket error), owner (`drain`, `close`) | everybody |
//! | calls in flight (`Calls`) | [`ConnInfo::call`] adds; reply, timeout, drop and close remove | reader |
//! | permits | reader takes them per call, bytes before calls; released when the reply has been written | reader waits for them |
//! | standing of the peer's address ([`Standing`]) | reader asks the service, again after each change | reader, service, whoever needs places |
//! | a place among the calls that run ([`Turn`]) | reader takes it last, so its client's queue is bounded by the rows above; the service gives it back | reader waits for it |
//! | room for a large reply ([`Room`]) | the service takes it before it makes the reply; released when the reply has been written | the service waits for it |

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use landfast_xdr::Encode;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use crate::auth::Credential;
use crate::limits;
use crate::lone::Lone;
use crate::message::{AcceptStat, AuthStat, MessageError, OpaqueAuth, Outcome, RawCall, RejectStat};
use crate::places::Standing;
use crate::rate_limit::KeyedRateLimit;
use crate::record::RecordError;
use crate::shares::{Pool, share_of};
use crate::turns::{Turn, Turns};
use crate::writer::{self, Outgoing, Permits};

/// A program that a [`Service`] answers for, and its versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    pub number: u32,
    pub low: u32,
    pub high: u32,
}

/// A call, its credential decoded.
#[derive(Debug)]
pub struct CallHeader {
    pub xid: u32,
    /// Program number, one of [`Service::programs`].
    pub prog: u32,
    pub vers: u32,
    pub proc: u32,
    pub cred: Credential,
    /// Bytes of the whole message, header included.
    pub message_bytes: usize,
    /// The call's place among the calls that run. Give it back before a long wait.
    pub turn: Turn,
    /// The call of a client that makes one at a time, on a thread of its own ([`crate::lone`]): to wait on this thread
    /// keeps nobody else waiting. That holds as long as the call is on that thread ([`crate::on_lone_thread`]): once it has waited for something, it is not.
    pub lone: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    Success(Bytes),
    /// The encoded results in pieces, which are sent in order without copying.
    Segments(Vec<Bytes>),
    ProcUnavail,
    GarbageArgs,
    /// The service is unable to answer.
    SystemErr,
    /// The credential is not sufficient for this procedure.
    AuthError(AuthStat),
    /// Send no reply and close the connection: the call's effect must not be acknowledged.
    Close,
}

/// Answers the calls that arrive on a connection.
pub trait Service: Send + Sync + 'static {
    /// The programs served. Calls to others get PROG_UNAVAIL or PROG_MISMATCH and are not delivered.
    fn programs(&self) -> &[Program];

    /// Serves one call. Calls of one connection run concurrently. `body` holds the encoded arguments.
    fn call(
        &self,
        conn: &Arc<ConnInfo>,
        call: CallHeader,
        body: Bytes,
    ) -> impl Future<Output = Response> + Send;

    /// Classifies an address; must answer at once. An outsider may send only small records, and its connections are
    /// closed first. How its calls are answered is up to the service.
    fn standing(&self, _addr: IpAddr) -> Standing {
        Standing::Named
    }

    /// A generation that grows whenever [`Service::standing`] may answer differently than before.
    fn standings(&self) -> u64 {
        0
    }

    /// The clients ([`share_of`] their addresses) that hold state. Called only where connections are short.
    fn holders(&self) -> HashSet<IpAddr> {
        HashSet::new()
    }

    /// Calls take long where they are begun, as when a disk does not answer. Clients that make one call at a time and share threads then have
    /// each call in a task of its own.
    fn stalls(&self) -> bool {
        false
    }

    /// The connection delivers no further calls; calls that it delivered before may still be running. Called exactly
    /// once for each connection.
    fn closed(&self, _conn: &Arc<ConnInfo>) {}

    /// After [`Service::closed`]: the connection ended in order, and all replies are in its socket. What the peer has
    /// acknowledged of them, the socket knows. Not called for a connection that ended otherwise.
    fn drained(&self, _conn: &Arc<ConnInfo>, _socket: BorrowedFd<'_>) {}
}

/// Serves nothing: for a client without a back channel.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoService;

impl Service for NoService {
    fn programs(&self) -> &[Program] {
        &[]
    }

    async fn call(&self, _: &Arc<ConnInfo>, _: CallHeader, _: Bytes) -> Response {
        Response::ProcUnavail
    }
}

/// Limits of one connection. The defaults are in [`limits`].
#[derive(Debug, Clone)]
pub struct ConnConfig {
    /// Largest record accepted, bytes.
    pub record_max: usize,
    pub calls_in_flight_max: usize,
    /// Bytes of calls that are served at the same time.
    pub bytes_in_flight_max: usize,
    /// Close when nothing arrives for this long.
    pub idle_max: Option<Duration>,
    /// Close when a record has begun and nothing more of it arrives for this long.
    pub record_stall_max: Duration,
    /// Close when output is pending and the peer takes no byte of it for this long.
    pub write_stall_max: Duration,
    /// Close when output is pending and the peer takes less than [`limits::WRITE_PROGRESS_MIN`] of it in this time.
    pub write_time_max: Duration,
    /// Bytes of large replies that are being made or sent.
    pub reply_bytes_max: usize,
    /// Connect from a port below 1024 if possible, that is, as root. Some servers require it.
    pub reserved_port: bool,
}

impl Default for ConnConfig {
    fn default() -> Self {
        ConnConfig {
            record_max: limits::RECORD_MAX_DEFAULT,
            calls_in_flight_max: limits::CALLS_IN_FLIGHT_MAX,
            bytes_in_flight_max: limits::BYTES_IN_FLIGHT_MAX,
            idle_max: None,
            record_stall_max: limits::RECORD_STALL_MAX,
            write_stall_max: limits::WRITE_STALL_MAX,
            write_time_max: limits::WRITE_TIME_MAX,
            reply_bytes_max: limits::REPLY_BYTES_MAX,
            reserved_port: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The connection is closed; the call may have been executed.
    #[error("connection lost: {0}")]
    Closed(Arc<str>),
    /// No reply within this time; the call may have been executed.
    #[error("no reply within {0:?}")]
    Timeout(Duration),
    #[error("a call of {0} bytes does not fit in a record")]
    TooLarge(usize),
    /// A call with this transaction id is in flight on the same connection; this one was not sent.
    #[error("a call with transaction id {0} is under way already")]
    SameXid(u32),
    /// The server denied the call.
    #[error(transparent)]
    Denied(#[from] RejectStat),
    /// The server accepted the call but did not execute it.
    #[error(transparent)]
    Failed(AcceptStat),
}

/// The program, version and procedure of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub prog: u32,
    pub vers: u32,
    pub proc: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Open,
    /// Nothing more is read; pending replies still go out.
    Draining,
    Closed,
}

#[derive(Default)]
struct Calls {
    next_xid: u32,
    waiting: HashMap<u32, oneshot::Sender<Outcome>>,
    /// Why no more replies will come.
    ended: Option<Arc<str>>,
}

/// A connection, shared by all its users.
pub struct ConnInfo {
    id: u64,
    peer: SocketAddr,
    local: SocketAddr,
    queue: mpsc::UnboundedSender<Outgoing>,
    /// Messages in the queue or with the writer.
    unwritten: AtomicUsize,
    calls: Mutex<Calls>,
    stage: watch::Sender<Stage>,
    aborted: AtomicBool,
    /// The peer sent something that is not a record.
    garbled: AtomicBool,
    /// [`Service::closed`] was called.
    told: AtomicBool,
    /// Threads that were left behind in a call hold the socket too: see [`crate::lone`].
    held: AtomicUsize,
    /// The connection's own budgets: calls, their bytes, and bytes of large replies.
    own: [Budget; 3],
    /// The shared pool for large replies, and the client it counts for.
    replies: Option<(Pool, IpAddr)>,
    standing: CachedStanding,
    /// When the last whole record arrived, in milliseconds of [`now_ms`].
    active: AtomicU64,
}

/// The cached answer of [`Service::standing`] for this address. It is asked for again when it may have changed.
struct CachedStanding {
    addr: IpAddr,
    standing: AtomicU8,
    /// The generation of that answer plus one; 0 if there is no answer yet.
    generation: AtomicU64,
}

impl CachedStanding {
    fn new<S: Service>(service: &S, addr: IpAddr) -> CachedStanding {
        let cached = CachedStanding {
            addr,
            standing: AtomicU8::new(Standing::Unknown as u8),
            generation: AtomicU64::new(0),
        };
        cached.refresh(service);
        cached
    }

    fn get(&self) -> Standing {
        match self.standing.load(Ordering::Relaxed) {
            0 => Standing::Outsider,
            1 => Standing::Unknown,
            _ => Standing::Named,
        }
    }

    /// Asks the service again. An address that was served is still served while it is looked up again.
    fn refresh<S: Service>(&self, service: &S) {
        let generation = service.standings().wrapping_add(1);
        if self.generation.load(Ordering::Relaxed) == generation {
            return;
        }
        match service.standing(self.addr) {
            Standing::Unknown => {
                if self.get() == Standing::Outsider {
                    self.standing.store(Standing::Unknown as u8, Ordering::Relaxed);
                }
            }
            known => {
                self.standing.store(known as u8, Ordering::Relaxed);
                self.generation.store(generation, Ordering::Relaxed);
            }
        }
    }
}

/// Milliseconds since the first call of this function.
pub(crate) fn now_ms() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed().as_millis() as u64
}

impl std::fmt::Debug for ConnInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnInfo").field("id", &self.id).field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// Removes a call from the table when its caller gives up.
struct Pending<'a> {
    conn: &'a ConnInfo,
    xid: u32,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.conn.calls().waiting.remove(&self.xid);
    }
}

impl ConnInfo {
    pub(crate) fn new<S: Service>(
        stream: &TcpStream,
        service: &S,
        config: &ConnConfig,
        shared: Option<&Shares>,
        queue: mpsc::UnboundedSender<Outgoing>,
    ) -> io::Result<ConnInfo> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        // A distinct starting point for each connection keeps a duplicate request cache from seeing the xids of an earlier
        // connection again.
        let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos() as u64);
        let next_xid = (seed ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15)) as u32;
        let own = [config.calls_in_flight_max, config.bytes_in_flight_max, config.reply_bytes_max];
        Ok(ConnInfo {
            own: own.map(Budget::new),
            standing: CachedStanding::new(service, peer.ip().to_canonical()),
            active: AtomicU64::new(now_ms()),
            id,
            peer,
            local,
            queue,
            unwritten: AtomicUsize::new(0),
            calls: Mutex::new(Calls { next_xid, ..Calls::default() }),
            stage: watch::Sender::new(Stage::Open),
            garbled: AtomicBool::new(false),
            told: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            aborted: AtomicBool::new(false),
            replies: shared.map(|s| (s.replies.clone(), s.client)),
        })
    }

    /// The budgets of calls and of their bytes.
    pub(crate) fn budgets(&self) -> (&Budget, &Budget) {
        let [calls, bytes, _] = &self.own;
        (calls, bytes)
    }

    pub(crate) fn stages(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    /// Tells the service, once, that no further calls come.
    pub(crate) fn tell_closed<S: Service>(self: &Arc<Self>, service: &S) {
        if !self.told.swap(true, Ordering::AcqRel) {
            service.closed(self);
        }
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// A thread was left behind, and its call has not ended.
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire) > 0
    }

    pub(crate) fn hold(&self) {
        self.held.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn release(&self) {
        self.held.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn set_garbled(&self) {
        self.garbled.store(true, Ordering::Release);
    }

    /// A whole record has arrived.
    pub(crate) fn set_active(&self) {
        self.active.store(now_ms(), Ordering::Relaxed);
    }

    /// Hands the reply of a call to its caller, who may have given up.
    pub(crate) fn replied(&self, xid: u32, outcome: Outcome) {
        if let Some(waiting) = self.calls().waiting.remove(&xid) {
            let _ = waiting.send(outcome);
        }
    }

    /// A number of this connection that is unique in the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Calls that it holds, their bytes, and bytes of large replies.
    pub(crate) fn holds(&self) -> [usize; 3] {
        self.own.each_ref().map(Budget::used)
    }

    /// The standing of the peer's address, as of the last message that arrived.
    pub fn standing(&self) -> Standing {
        self.standing.get()
    }

    /// The standing of the peer's address, asked for again if it may have changed.
    pub(crate) fn standing_now<S: Service>(&self, service: &S) -> Standing {
        self.standing.refresh(service);
        self.standing.get()
    }

    /// When the last whole record arrived: milliseconds since some moment of this process.
    pub fn active_ms(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Whether it is too late to make calls.
    pub fn is_closed(&self) -> bool {
        *self.stage.borrow() != Stage::Open
    }

    /// Whether the peer closed the connection in order, or this end is closing it: nothing was cut off.
    pub(crate) fn is_draining(&self) -> bool {
        *self.stage.borrow() == Stage::Draining
    }

    /// Whether it was closed because the peer sent something that is no record, or a record that is too long.
    pub fn is_garbled(&self) -> bool {
        self.garbled.load(Ordering::Acquire)
    }

    /// Waits until no more calls can be made.
    pub async fn closed(&self) {
        // `self` owns the sender, so the wait ends only when the stage changes.
        let _ = self.stage.subscribe().wait_for(|s| *s != Stage::Open).await;
    }

    /// Waits for room for a reply of up to `len` bytes. A small reply needs none, since the number of calls bounds
    /// those. So a peer that asks for much and reads nothing stops only itself.
    pub async fn room(&self, len: usize) -> Option<Room> {
        if len <= limits::SMALL_REPLY {
            return None;
        }
        let mut held = Permits::default();
        let [_, _, own] = &self.own;
        own.take(len, &mut held).await;
        if let Some((pool, client)) = &self.replies {
            held.shares.push(pool.take(*client, len).await);
        }
        Some(Room { _held: held })
    }

    /// Closes at once; calls and replies in flight are lost.
    pub fn close(&self) {
        self.advance(Stage::Closed, "closed on this side");
    }

    /// Closes at once with a reset, so that the peer sees a lost connection, not an orderly end. A server that keeps
    /// replies for retries then keeps those of this connection.
    pub fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        self.advance(Stage::Closed, "given up on this side");
    }

    /// Takes no further calls, sends the pending replies, then closes.
    pub fn drain(&self) {
        self.advance(Stage::Draining, "closing");
    }

    /// Calls the peer and waits for the results. Dropping the future forgets the call, which may still be executed.
    /// Errors: After [`CallError::Closed`] and [`CallError::Timeout`] the call may or may not have been executed.
    pub async fn call(
        &self,
        to: Target,
        cred: &OpaqueAuth,
        args: Vec<Bytes>,
        patience: Duration,
    ) -> Result<Bytes, CallError> {
        self.call_with(None, to, cred, args, patience).await
    }

    /// Like [`ConnInfo::call`], with a transaction id chosen by the caller. A call whose reply was lost can so be
    /// retried under the same id, and the server can recognise the retry. On one connection the caller chooses either
    /// all ids or none.
    /// Errors: Those of [`ConnInfo::call`], and [`CallError::SameXid`].
    pub async fn call_as(
        &self,
        xid: u32,
        to: Target,
        cred: &OpaqueAuth,
        args: Vec<Bytes>,
        patience: Duration,
    ) -> Result<Bytes, CallError> {
        self.call_with(Some(xid), to, cred, args, patience).await
    }

    async fn call_with(
        &self,
        xid: Option<u32>,
        to: Target,
        cred: &OpaqueAuth,
        args: Vec<Bytes>,
        patience: Duration,
    ) -> Result<Bytes, CallError> {
        let len = args.iter().map(Bytes::len).sum::<usize>();
        if len > limits::FRAGMENT_MAX - 1024 {
            return Err(CallError::TooLarge(len));
        }
        let (reply, pending) = self.enter(xid)?;
        let mut head = writer::head_buffer();
        let call = RawCall {
            xid: pending.xid,
            prog: to.prog,
            vers: to.vers,
            proc: to.proc,
            cred: cred.clone(),
            verf: OpaqueAuth::NONE,
        };
        call.encode(&mut head);
        if !self.send(writer::seal(head, args, Permits::default())) {
            return Err(self.ended());
        }
        match timeout(patience, reply).await {
            Err(_) => Err(CallError::Timeout(patience)),
            Ok(Err(_)) => Err(self.ended()),
            Ok(Ok(Outcome::Accepted(AcceptStat::Success, results))) => Ok(results),
            Ok(Ok(Outcome::Accepted(stat, _))) => Err(CallError::Failed(stat)),
            Ok(Ok(Outcome::Denied(why))) => Err(CallError::Denied(why)),
        }
    }

    /// Waits until everything queued so far is in the socket, or the connection is closed. What is in the socket
    /// reaches the peer even if this process ends.
    pub async fn flushed(&self) {
        let written = Budget::new(1);
        let mut held = Permits::default();
        written.take(1, &mut held).await;
        // Fails only when the connection is closed.
        let _ = self.send(writer::mark(held));
        let _ = written.permits.acquire().await;
    }

    fn enter(&self, xid: Option<u32>) -> Result<(oneshot::Receiver<Outcome>, Pending<'_>), CallError> {
        let mut calls = self.calls();
        if let Some(why) = &calls.ended {
            return Err(CallError::Closed(why.clone()));
        }
        let xid = match xid {
            Some(xid) if calls.waiting.contains_key(&xid) => return Err(CallError::SameXid(xid)),
            Some(xid) => xid,
            None => loop {
                calls.next_xid = calls.next_xid.wrapping_add(1);
                if !calls.waiting.contains_key(&calls.next_xid) {
                    break calls.next_xid;
                }
            },
        };
        let (tx, rx) = oneshot::channel();
        calls.waiting.insert(xid, tx);
        Ok((rx, Pending { conn: self, xid }))
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> CallError {
        CallError::Closed(self.calls().ended.clone().unwrap_or_else(|| "closed".into()))
    }

    /// Reports why this end closes the connection: a server in its log, a client at debug level.
    pub(crate) fn tell(&self, shared: Option<&Shares>, cause: &Cause) {
        match shared {
            Some(shared) => shared.closings.tell(self.peer, self.standing() == Standing::Outsider, cause),
            None => debug!(conn = self.id, peer = %self.peer, "connection closed: {cause}"),
        }
    }

    /// Moves to a later stage. Pending calls of this end fail with `why`, since no replies are read any more.
    pub(crate) fn advance(&self, to: Stage, why: &str) {
        let moved = self.stage.send_if_modified(|s| {
            let later = to > *s;
            if later {
                *s = to;
            }
            later
        });
        if moved {
            let mut calls = self.calls();
            calls.ended.get_or_insert_with(|| why.into());
            calls.waiting.clear();
        }
    }

    pub(crate) fn reply(&self, message: Outgoing) {
        // Fails only when the writer has ended, that is, when the connection is closed.
        let _ = self.send(message);
    }

    fn send(&self, message: Outgoing) -> bool {
        self.unwritten.fetch_add(1, Ordering::AcqRel);
        self.queue.send(message).is_ok()
    }

    /// The writer has put so many messages into the socket.
    pub(crate) fn written(&self, messages: usize) {
        self.unwritten.fetch_sub(messages, Ordering::AcqRel);
    }

    /// The writer has nothing to do.
    pub(crate) fn all_is_written(&self) -> bool {
        self.unwritten.load(Ordering::Acquire) == 0
    }
}

/// Room for a large reply: see [`ConnInfo::room`].
#[derive(Debug)]
pub struct Room {
    _held: Permits,
}

impl Room {
    /// Wraps the reply so that it keeps the room until its last byte is in the socket.
    pub fn hold(self, reply: Bytes) -> Bytes {
        struct ReplyWithRoom(Bytes, #[expect(dead_code, reason = "dropped with the bytes")] Room);
        impl AsRef<[u8]> for ReplyWithRoom {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        Bytes::from_owner(ReplyWithRoom(reply, self))
    }
}

impl Response {
    /// Attaches to the response the room that was taken for it.
    pub fn in_room(self, room: Option<Room>) -> Response {
        let Some(room) = room else { return self };
        match self {
            Response::Success(results) => Response::Success(room.hold(results)),
            Response::Segments(mut results) => {
                let longest = results.iter_mut().max_by_key(|r| r.len());
                if let Some(longest) = longest {
                    *longest = room.hold(std::mem::take(longest));
                }
                Response::Segments(results)
            }
            other => other,
        }
    }
}

/// A budget of calls or of bytes.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) max: usize,
}

impl Budget {
    pub(crate) fn new(max: usize) -> Self {
        let max = max.min(u32::MAX as usize).min(Semaphore::MAX_PERMITS);
        Budget { permits: Arc::new(Semaphore::new(max)), max }
    }

    /// Waits for `n`, or for the whole budget if that is less. The semaphore is never closed; if it were, the call
    /// would go on without a permit, which is harmless.
    pub(crate) async fn take(&self, n: usize, held: &mut Permits) {
        let few = n.min(self.max) as u32;
        if let Ok(at_once) = self.permits.clone().try_acquire_many_owned(few) {
            held.held.push(at_once);
            return;
        }
        held.held.extend(self.permits.clone().acquire_many_owned(n.min(self.max) as u32).await);
    }

    pub(crate) fn used(&self) -> usize {
        self.max.saturating_sub(self.permits.available_permits())
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Shares {
    pub(crate) calls: Pool,
    pub(crate) bytes: Pool,
    pub(crate) replies: Pool,
    /// The turns of calls, and the client that this connection's calls count for.
    pub(crate) turns: Turns,
    pub(crate) client: IpAddr,
    /// Rate limits the log messages about closed connections.
    pub(crate) closings: Arc<Closings>,
    pub(crate) lone: Lone,
}

/// Why this end closes a connection. Each cause is reported in the server's log.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Cause {
    #[error("{0}")]
    Record(#[from] RecordError),
    #[error("what it sent is no RPC message: {0}")]
    Message(#[from] MessageError),
    #[error("it does not finish its record")]
    Stalled,
    #[error("there was no room for its record, since others of its address take all of theirs")]
    NoRoom,
    #[error("it does not take what is sent to it")]
    TakesNothing,
    #[error("{0} needs its place")]
    Place(IpAddr),
}

/// Limits the log to one message an hour for each client and cause. All outsiders count as one client.
#[derive(Debug, Default)]
pub(crate) struct Closings(KeyedRateLimit<(Option<IpAddr>, std::mem::Discriminant<Cause>)>);

impl Closings {
    pub(crate) fn tell(&self, peer: SocketAddr, outsider: bool, cause: &Cause) {
        let client = (!outsider).then(|| share_of(peer.ip().to_canonical()));
        let who = if outsider { ", which no rule names," } else { "" };
        self.0.warn((client, std::mem::discriminant(cause)), |more| {
            warn!("connection from {}{who} closed: {cause}{more}", peer.ip().to_canonical());
        });
    }
}

/// PROG_UNAVAIL and PROG_MISMATCH (RFC 5531 section 9).
pub(crate) fn check_program(served: &[Program], call: &RawCall) -> Result<(), AcceptStat> {
    let mut same = served.iter().filter(|p| p.number == call.prog).peekable();
    if same.peek().is_none() {
        return Err(AcceptStat::ProgUnavail);
    }
    let (mut low, mut high) = (u32::MAX, 0);
    for program in same {
        if (program.low..=program.high).contains(&call.vers) {
            return Ok(());
        }
        (low, high) = (low.min(program.low), high.max(program.high));
    }
    Err(AcceptStat::ProgMismatch { low, high })
}
