//! One TCP connection. Both ends may call: on an NFSv4.1 session's connection the server makes its
//! callbacks over the same socket (RFC 8881 section 2.10.3.1).
//!
//! | state | set by | read by |
//! |---|---|---|
//! | stage: open -> draining -> closed, never back | reader (end of input, garbage), writer (socket error), owner (`drain`, `close`) | everybody |
//! | calls under way (`Calls`) | [`ConnInfo::call`] adds; reply, timeout, drop and close remove | reader |
//! | permits | reader takes them per call, bytes before calls; released when the reply has been written | reader waits for them |
//! | standing of the other end's address ([`Standing`]) | reader asks the service, again after each change | reader, service, whoever needs places |
//! | a place among the calls that run ([`Turn`]) | reader takes it last, so its client's queue is bounded by the above; the service gives it back | reader waits for it |
//! | room for a large reply ([`Room`]) | the service takes it before it makes the reply; released when the reply has been written | the service waits for it |

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use landfast_xdr::Encode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, warn};

use crate::auth::Credential;
use crate::limits;
use crate::message::{
    AcceptStat, AuthStat, Incoming, MessageError, OpaqueAuth, Outcome, RawCall, RejectStat, encode_accepted,
    encode_denied, parse,
};
use crate::places::Standing;
use crate::record::{Assembler, RecordError};
use crate::seldom::SeldomOf;
use crate::shares::{Pool, Taken, share_of};
use crate::turns::{Turn, Turns, if_it_waits};
use crate::writer::{self, Outgoing, Permits};

/// A program that a [`Service`] answers for, and its versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Program number.
    pub number: u32,
    /// Lowest version served.
    pub low: u32,
    /// Highest version served.
    pub high: u32,
}

/// A call, its credential decoded.
#[derive(Debug)]
pub struct CallHeader {
    /// Transaction id.
    pub xid: u32,
    /// Program number, one of [`Service::programs`].
    pub prog: u32,
    /// Version, within the program's range.
    pub vers: u32,
    /// Procedure.
    pub proc: u32,
    /// Who calls.
    pub cred: Credential,
    /// Bytes of the whole message, this header included.
    pub message_bytes: usize,
    /// The call's place among those that run; to be let go of before it waits for long.
    pub turn: Turn,
}

/// What a service answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// Done: the encoded results.
    Success(Bytes),
    /// Done: the encoded results in pieces, sent one after the other without copying.
    Segments(Vec<Bytes>),
    /// The procedure does not exist.
    ProcUnavail,
    /// The arguments do not decode.
    GarbageArgs,
    /// Unable.
    SystemErr,
    /// The credential does not do for this procedure.
    AuthError(AuthStat),
    /// No reply: the connection is closed (the effect of the call may not be acknowledged).
    Close,
}

/// What answers the calls that arrive on a connection.
pub trait Service: Send + Sync + 'static {
    /// The programs served. Calls to others get PROG_UNAVAIL or PROG_MISMATCH and are not delivered.
    fn programs(&self) -> &[Program];

    /// Serves one call; calls of one connection run concurrently. `body` holds the encoded arguments.
    fn call(
        &self,
        conn: &Arc<ConnInfo>,
        call: CallHeader,
        body: Bytes,
    ) -> impl Future<Output = Response> + Send;

    /// What is known of an address, answered at once. An outsider's records are small, and its connections are the first
    /// to go; what its calls get is the service's own business.
    fn standing(&self, _addr: IpAddr) -> Standing {
        Standing::Named
    }

    /// Grows whenever [`Service::standing`] may answer otherwise than before.
    fn standings(&self) -> u64 {
        0
    }

    /// The clients ([`share_of`] their addresses) that hold state. Asked for only where connections are short.
    fn holders(&self) -> HashSet<IpAddr> {
        HashSet::new()
    }

    /// The connection delivers no further call. Calls that it delivered before may still be running.
    /// Called exactly once for each connection.
    fn closed(&self, _conn: &Arc<ConnInfo>) {}
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

/// Limits of one connection; the defaults are those of [`limits`].
#[derive(Debug, Clone)]
pub struct ConnConfig {
    /// Largest record accepted, bytes.
    pub record_max: usize,
    /// Calls served at the same time.
    pub calls_in_flight_max: usize,
    /// Bytes of calls being served at the same time.
    pub bytes_in_flight_max: usize,
    /// Close when nothing has arrived for this long.
    pub idle_max: Option<Duration>,
    /// Close when nothing has arrived for this long of a record that has begun.
    pub record_stall_max: Duration,
    /// Close when the peer takes nothing for this long of what is to be sent.
    pub write_stall_max: Duration,
    /// Close when the peer takes less than [`limits::WRITE_PROGRESS_MIN`] for this long of what is to be sent.
    pub write_time_max: Duration,
    /// Bytes of large replies that are being made or sent.
    pub reply_bytes_max: usize,
    /// Connect from a port below 1024 where that is possible: as root. Servers may take no others.
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

/// Why a call has no results.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The connection is closed; whether the call was executed is not known.
    #[error("connection lost: {0}")]
    Closed(Arc<str>),
    /// No reply within the time given; whether the call was executed is not known.
    #[error("no reply within {0:?}")]
    Timeout(Duration),
    /// The arguments do not fit in a record.
    #[error("a call of {0} bytes does not fit in a record")]
    TooLarge(usize),
    /// A call with this transaction id is under way on the same connection; this one was not sent.
    #[error("a call with transaction id {0} is under way already")]
    SameXid(u32),
    /// The server denied the call.
    #[error(transparent)]
    Denied(#[from] RejectStat),
    /// The server accepted the call but did not execute it.
    #[error(transparent)]
    Failed(AcceptStat),
}

/// Where a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Program number.
    pub prog: u32,
    /// Version.
    pub vers: u32,
    /// Procedure.
    pub proc: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    /// Nothing more is read; replies under way still go out.
    Draining,
    Closed,
}

#[derive(Default)]
struct Calls {
    next_xid: u32,
    waiting: HashMap<u32, oneshot::Sender<Outcome>>,
    /// Why no reply will come any more.
    ended: Option<Arc<str>>,
}

/// A connection, shared by all who use it.
pub struct ConnInfo {
    id: u64,
    peer: SocketAddr,
    local: SocketAddr,
    queue: mpsc::UnboundedSender<Outgoing>,
    calls: Mutex<Calls>,
    stage: watch::Sender<Stage>,
    /// The end is to be a reset.
    aborted: AtomicBool,
    /// What came is not a record.
    garbled: AtomicBool,
    /// For calls, for their bytes, and for large replies: the connection's own.
    own: [Budget; 3],
    /// What it shares with others of large replies, and under which name.
    replies: Option<(Pool, IpAddr)>,
    /// What its other end is.
    standing: Asked,
    /// When its last whole record came: milliseconds of [`now_ms`].
    active: AtomicU64,
}

/// The answer of [`Service::standing`] for this address, asked for again when it may have changed.
struct Asked {
    addr: IpAddr,
    /// [`Standing`] as a number.
    standing: AtomicU8,
    /// Of which generation that is, plus one; 0: of none, ask again.
    generation: AtomicU64,
}

impl Asked {
    fn new<S: Service>(service: &S, addr: IpAddr) -> Asked {
        let asked =
            Asked { addr, standing: AtomicU8::new(Standing::Unknown as u8), generation: AtomicU64::new(0) };
        asked.again(service);
        asked
    }

    fn get(&self) -> Standing {
        match self.standing.load(Ordering::Relaxed) {
            0 => Standing::Outsider,
            1 => Standing::Unknown,
            _ => Standing::Named,
        }
    }

    /// While an address that was served has to be looked up again it is served on.
    fn again<S: Service>(&self, service: &S) {
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

/// Milliseconds since this was first asked.
pub(crate) fn now_ms() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed().as_millis() as u64
}

impl std::fmt::Debug for ConnInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnInfo").field("id", &self.id).field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// Takes a call's entry out of the table when its caller gives up.
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
    /// Number of this connection, unique in the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Calls that it holds, their bytes, and the bytes of large replies.
    pub(crate) fn holds(&self) -> [usize; 3] {
        self.own.each_ref().map(Budget::used)
    }

    /// What is known of the other end's address. Answers of the service are as old as the last message that came.
    pub fn standing(&self) -> Standing {
        self.standing.get()
    }

    /// The same, asked for again if it may have changed.
    pub(crate) fn standing_now<S: Service>(&self, service: &S) -> Standing {
        self.standing.again(service);
        self.standing.get()
    }

    /// When its last whole record came, by [`now_ms`].
    pub(crate) fn active_ms(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }

    /// Address of the other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Address of this end.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Whether calls can no longer be made.
    pub fn is_closed(&self) -> bool {
        *self.stage.borrow() != Stage::Open
    }

    /// Whether the other end has closed the connection in order (or this one is closing it): nothing was cut off.
    pub fn ended_by_peer(&self) -> bool {
        *self.stage.borrow() == Stage::Draining
    }

    /// Whether it was closed because what came is not a record, or one that is too long.
    pub fn is_garbled(&self) -> bool {
        self.garbled.load(Ordering::Acquire)
    }

    /// Waits until calls can no longer be made.
    pub async fn closed(&self) {
        // The sender lives in self: the wait ends only with the stage.
        let _ = self.stage.subscribe().wait_for(|s| *s != Stage::Open).await;
    }

    /// Waits for room for a reply of up to `len` bytes; a small one needs none, since the number of calls bounds them. So a
    /// peer that asks for much and takes nothing stops itself, and no other client.
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

    /// Closes at once; what is under way is lost.
    pub fn close(&self) {
        self.advance(Stage::Closed, "closed on this side");
    }

    /// Closes at once, and the other end sees a reset: a connection that was lost, not one that was ended in order. So a
    /// server that keeps replies for calls which are sent again keeps those of this connection.
    pub fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        self.advance(Stage::Closed, "given up on this side");
    }

    /// Takes no further calls, sends the replies to those under way, then closes.
    pub fn drain(&self) {
        self.advance(Stage::Draining, "closing");
    }

    /// Makes a call to the other end and waits for its results. Dropping the future forgets the call; it
    /// may have been executed.
    ///
    /// # Errors
    /// [`CallError`]; after `Closed` and `Timeout` the outcome is unknown.
    pub async fn call(
        &self,
        to: Target,
        cred: &OpaqueAuth,
        args: Vec<Bytes>,
        patience: Duration,
    ) -> Result<Bytes, CallError> {
        self.call_with(None, to, cred, args, patience).await
    }

    /// As [`ConnInfo::call`], with a transaction id of the caller's choice: the same call is sent again under it after its
    /// reply was lost, so that the server can tell it from a new one. A connection's calls have either all ids of the
    /// caller's choice or none.
    ///
    /// # Errors
    /// As [`ConnInfo::call`], and [`CallError::SameXid`].
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
        if self.queue.send(writer::seal(head, args, Permits::default())).is_err() {
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

    /// Waits until all calls and replies that were begun before are in the socket, or the connection is closed. From there
    /// on they go to the other end even if this process ends.
    pub async fn flushed(&self) {
        let written = Budget::new(1);
        let mut held = Permits::default();
        written.take(1, &mut held).await;
        // Fails only when the connection is closed.
        let _ = self.queue.send(writer::mark(held));
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

    /// This end closes the connection: told in the log of a server, and for debugging of a client.
    fn tell(&self, shared: Option<&Shares>, cause: &Cause) {
        match shared {
            Some(shared) => shared.closings.tell(self.peer, self.standing() == Standing::Outsider, cause),
            None => debug!(conn = self.id, peer = %self.peer, "connection closed: {cause}"),
        }
    }

    /// Moves to a later stage; our own calls end with `why`, since no reply to them is read any more.
    fn advance(&self, to: Stage, why: &str) {
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

    fn reply(&self, message: Outgoing) {
        // Fails only when the writer has ended, that is, when the connection is closed.
        let _ = self.queue.send(message);
    }
}

/// Room for a large reply: see [`ConnInfo::room`].
#[derive(Debug)]
pub struct Room {
    _held: Permits,
}

impl Room {
    /// The reply, which keeps the room until its last byte is in the socket.
    #[must_use]
    pub fn hold(self, reply: Bytes) -> Bytes {
        struct Held(Bytes, #[expect(dead_code, reason = "dropped with the bytes")] Room);
        impl AsRef<[u8]> for Held {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        Bytes::from_owner(Held(reply, self))
    }
}

impl Response {
    /// The same, in the room that was made for it.
    #[must_use]
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

/// Closes the connection when a service panics: its caller would wait for ever.
struct Unanswered<'a>(&'a ConnInfo);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.advance(Stage::Closed, "the service failed");
    }
}

/// Calls, or request bytes, that may be held together.
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

    /// Waits for `n`, or for all when that is less. The semaphore is never closed; what cannot be had is a bound not kept,
    /// no danger.
    async fn take(&self, n: usize, held: &mut Permits) {
        let few = n.min(self.max) as u32;
        if let Ok(at_once) = self.permits.clone().try_acquire_many_owned(few) {
            held.held.push(at_once);
            return;
        }
        held.held.extend(self.permits.clone().acquire_many_owned(n.min(self.max) as u32).await);
    }

    /// How much is held.
    pub(crate) fn used(&self) -> usize {
        self.max.saturating_sub(self.permits.available_permits())
    }
}

/// What a connection shares with others.
#[derive(Debug, Clone)]
pub(crate) struct Shares {
    pub(crate) calls: Pool,
    pub(crate) bytes: Pool,
    pub(crate) replies: Pool,
    /// Whose turn it is, and under which name.
    pub(crate) turns: Turns,
    pub(crate) client: IpAddr,
    /// Which were closed for a cause.
    pub(crate) closings: Arc<Closings>,
}

/// Starts the tasks of a connection on an established stream.
pub(crate) fn start<S: Service>(
    stream: TcpStream,
    service: Arc<S>,
    config: &ConnConfig,
    shared: Option<Shares>,
) -> io::Result<(Arc<ConnInfo>, JoinHandle<()>)> {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    stream.set_nodelay(true)?;
    let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
    let (queue, outgoing) = mpsc::unbounded_channel();
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    // Distinct starting points keep a duplicate request cache from seeing the xids of an earlier
    // connection again.
    let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos() as u64);
    let next_xid = (seed ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15)) as u32;
    let (calls, bytes) = (Budget::new(config.calls_in_flight_max), Budget::new(config.bytes_in_flight_max));
    let conn = Arc::new(ConnInfo {
        own: [calls.clone(), bytes.clone(), Budget::new(config.reply_bytes_max)],
        standing: Asked::new(&*service, peer.ip().to_canonical()),
        active: AtomicU64::new(now_ms()),
        id,
        peer,
        local,
        queue,
        calls: Mutex::new(Calls { next_xid, ..Calls::default() }),
        stage: watch::Sender::new(Stage::Open),
        garbled: AtomicBool::new(false),
        aborted: AtomicBool::new(false),
        replies: shared.as_ref().map(|s| (s.replies.clone(), s.client)),
    });
    let (read, write) = stream.into_split();
    let reader = Reader {
        pace: Pace::default(),
        begun: Begun::default(),
        conn: conn.clone(),
        service,
        calls,
        bytes,
        shared,
    };
    let config = config.clone();
    let task = tokio::spawn(run(reader, config, read, write, outgoing));
    Ok((conn, task))
}

async fn run<S: Service>(
    reader: Reader<S>,
    config: ConnConfig,
    read: OwnedReadHalf,
    mut write: OwnedWriteHalf,
    outgoing: mpsc::UnboundedReceiver<Outgoing>,
) {
    let conn = reader.conn.clone();
    let mut stage = conn.stage.subscribe();
    let patience = writer::Patience { stall_max: config.write_stall_max, time_max: config.write_time_max };
    let writing = {
        let (conn, mut stage) = (conn.clone(), conn.stage.subscribe());
        let shared = reader.shared.clone();
        tokio::spawn(async move {
            tokio::select! {
                done = writer::run(&mut write, outgoing, patience) => if let Err(e) = done {
                    if writer::too_slow(&e) {
                        conn.tell(shared.as_ref(), &Cause::TakesNothing);
                    }
                    conn.advance(Stage::Closed, &format!("cannot send: {e}"));
                },
                _ = stage.wait_for(|s| *s == Stage::Closed) => {}
            }
            if conn.aborted.load(Ordering::Acquire) {
                // Without a lingering end the last half that goes resets the connection; the end must not go before it.
                let _ = write.as_ref().set_zero_linger();
                return write.forget();
            }
            // Everything sent reaches the peer before the reset that unread input may cause.
            let _ = write.shutdown().await;
        })
    };
    let why = tokio::select! {
        why = reader.read(read, &config) => why,
        _ = stage.wait_for(|s| *s != Stage::Open) => None,
    };
    match why {
        Some(ReadEnd::Eof) => conn.advance(Stage::Draining, "the peer closed the connection"),
        Some(ReadEnd::Lost(why)) => {
            debug!(conn = conn.id, peer = %conn.peer, "connection closed: {why}");
            conn.advance(Stage::Closed, &why);
        }
        Some(ReadEnd::Cause(cause)) => {
            conn.tell(reader.shared.as_ref(), &cause);
            conn.advance(Stage::Closed, &cause.to_string());
        }
        None => {}
    }
    reader.service.closed(&conn);
    // All permits back: every reply under way has been written.
    let all = reader.calls.permits.acquire_many(reader.calls.max as u32);
    tokio::select! {
        _ = all => {}
        _ = stage.wait_for(|s| *s == Stage::Closed) => {}
    }
    conn.advance(Stage::Closed, "closed");
    let _ = writing.await;
}

enum ReadEnd {
    Eof,
    /// The other end or the network ended it.
    Lost(String),
    /// This end does.
    Cause(Cause),
}

/// Why this end closes a connection that the other one has not ended. Each is told to the server's log.
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

/// Closings for a cause, as the log is told of them: once an hour for each client and cause, and as of one client those
/// of all addresses that nobody names.
#[derive(Debug, Default)]
pub(crate) struct Closings(SeldomOf<(Option<IpAddr>, std::mem::Discriminant<Cause>)>);

impl Closings {
    pub(crate) fn tell(&self, peer: SocketAddr, outsider: bool, cause: &Cause) {
        let client = (!outsider).then(|| share_of(peer.ip().to_canonical()));
        let who = if outsider { ", which no rule names," } else { "" };
        self.0.warn((client, std::mem::discriminant(cause)), |more| {
            warn!("connection from {}{who} closed: {cause}{more}", peer.ip().to_canonical());
        });
    }
}

/// Whether calls are begun where they were read, or in tasks of their own. What is answered from memory takes less than
/// the making of a task; what waits for a disk, or copies much, must not keep those that came after it waiting.
#[derive(Default)]
struct Pace {
    /// Calls that were begun, as far as that is of interest.
    first: AtomicU32,
    /// Calls that still get tasks of their own, after one that took long.
    apart: AtomicU32,
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

    fn took(&self, time: Duration) {
        if time > limits::IN_PLACE_MAX {
            self.apart.store(limits::APART_AFTER_SLOW, Ordering::Relaxed);
        }
    }
}

/// Calls that wait for something, to be served further by tasks. They get these when what was received with them has been
/// begun, too: so calls that came together wait for the disk together. Nothing is awaited while there are any in here.
#[derive(Default)]
struct Begun(Mutex<Vec<Serving>>);

type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Begun {
    fn push(&self, serving: Serving) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(serving);
    }

    /// Polled again at once, which makes them wait with wakers that count.
    fn go_on(&self) {
        let begun = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for serving in begun {
            tokio::spawn(serving);
        }
    }
}

/// How a record that has begun goes on: so much since then.
#[derive(Default)]
struct Progress(Option<(Instant, usize)>);

impl Progress {
    /// When it has gone on too little.
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

    /// So long this end did not read.
    fn waited(&mut self, time: Duration) {
        if let Some((since, _)) = &mut self.0 {
            *since += time;
        }
    }
}

/// Waits for the first bytes of a record: with a buffer at hand for a moment, then without, so that connections that only
/// stand there take no memory. `None`: nothing came for too long.
async fn first_bytes(
    socket: &mut OwnedReadHalf,
    buf: &mut BytesMut,
    chunk: usize,
    idle_max: Option<Duration>,
) -> Option<io::Result<usize>> {
    let begun = Instant::now();
    loop {
        if buf.capacity() < chunk / 8 {
            buf.reserve(chunk);
        }
        if let Ok(read) = timeout(limits::BUFFER_IDLE, socket.read_buf(buf)).await {
            return Some(read);
        }
        *buf = BytesMut::new();
        let ready = match idle_max {
            None => socket.readable().await,
            Some(idle) => timeout_at(begun + idle, socket.readable()).await.ok()?,
        };
        if let Err(e) = ready {
            return Some(Err(e));
        }
    }
}

struct Reader<S> {
    pace: Pace,
    begun: Begun,
    conn: Arc<ConnInfo>,
    service: Arc<S>,
    calls: Budget,
    bytes: Budget,
    shared: Option<Shares>,
}

impl<S: Service> Reader<S> {
    /// Reads and dispatches until the input ends. Never `None`.
    ///
    /// A large record is counted as it arrives, so a peer that announces much and sends little holds little, and one that
    /// sends half of a record and stops takes from its own share, until it has been silent for too long.
    async fn read(&self, socket: OwnedReadHalf, config: &ConnConfig) -> Option<ReadEnd> {
        let end = self.read_all(socket, config).await;
        self.begun.go_on();
        end
    }

    async fn read_all(&self, mut socket: OwnedReadHalf, config: &ConnConfig) -> Option<ReadEnd> {
        let mut records = Assembler::new(config.record_max);
        let mut buf = BytesMut::new();
        let mut progress = Progress::default();
        let mut counted: Option<Taken> = None;
        let mut in_a_row = 0;
        loop {
            loop {
                let outsider = self.conn.standing_now(&*self.service) == Standing::Outsider;
                records.limit(if outsider { limits::OUTSIDER_RECORD_MAX } else { config.record_max });
                match records.next(&mut buf) {
                    Ok(Some(record)) => {
                        progress = Progress::default();
                        self.conn.active.store(now_ms(), Ordering::Relaxed);
                        let message = self.message(record, counted.take());
                        if let Err(why) = if_it_waits(pin!(message), || self.begun.go_on()).await {
                            return Some(ReadEnd::Cause(why.into()));
                        }
                        in_a_row += 1;
                        if in_a_row == limits::IN_PLACE_IN_A_ROW {
                            // The writer's turn, if all were answered in place.
                            in_a_row = 0;
                            self.begun.go_on();
                            tokio::task::yield_now().await;
                        }
                    }
                    Ok(None) => break,
                    Err(e) => {
                        self.conn.garbled.store(true, Ordering::Release);
                        return Some(ReadEnd::Cause(e.into()));
                    }
                }
            }
            self.begun.go_on();
            let within = records.within() || !buf.is_empty();
            let arrived = records.joined() + buf.len();
            if let Some(shared) = &self.shared
                && records.within()
                && arrived > limits::READ_CHUNK
            {
                let taken = counted.get_or_insert_with(|| shared.bytes.nothing(shared.client));
                if arrived > taken.amount() {
                    // While it waits for room nothing is asked of the peer.
                    let asked = Instant::now();
                    if timeout(config.record_stall_max, taken.grow(arrived)).await.is_err() {
                        return Some(ReadEnd::Cause(Cause::NoRoom));
                    }
                    progress.waited(asked.elapsed());
                }
            }
            let standing = self.conn.standing();
            let outsider = standing == Standing::Outsider;
            // Room grows with what has arrived, not with what was announced.
            let chunk = if outsider { limits::OUTSIDER_RECORD_MAX } else { limits::READ_CHUNK };
            let room = records.missing(buf.len()).min(chunk.max(4 * buf.len()));
            if within && buf.capacity() - buf.len() < room.max(chunk / 8) {
                buf.reserve(room.max(chunk));
            }
            let before = buf.len();
            let read = if within {
                let until = progress.until(config.record_stall_max);
                match timeout_at(until, socket.read_buf(&mut buf)).await {
                    Ok(read) => read,
                    Err(_) => return Some(ReadEnd::Cause(Cause::Stalled)),
                }
            } else {
                let idle_max = config
                    .idle_max
                    .map(|max| if outsider { max.min(limits::OUTSIDER_IDLE_MAX) } else { max });
                match first_bytes(&mut socket, &mut buf, chunk, idle_max).await {
                    Some(read) => read,
                    None => return Some(ReadEnd::Eof),
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
        }
    }

    async fn message(&self, record: Bytes, counted: Option<Taken>) -> Result<(), MessageError> {
        let len = record.len();
        match parse(record)? {
            Incoming::Reply { xid, outcome } => {
                if let Some(waiting) = self.conn.calls().waiting.remove(&xid) {
                    // The caller may have given up meanwhile.
                    let _ = waiting.send(outcome);
                }
            }
            Incoming::Refused { xid, why } => {
                let permits = self.permits(0, counted).await;
                self.deny(xid, why, permits);
            }
            Incoming::Call(call, body) => {
                let permits = self.permits(len, counted).await;
                let turn = match &self.shared {
                    Some(s) => s.turns.wait(s.client).await,
                    None => Turn::free(),
                };
                self.dispatch(call, len, body, permits, turn);
            }
        }
        Ok(())
    }

    /// Leave to serve a call of `len` bytes, of which some may be counted already. Bytes come first: nobody that has a call
    /// waits for bytes, which may be held by somebody who waits for a call.
    async fn permits(&self, len: usize, counted: Option<Taken>) -> Permits {
        let mut held = Permits::default();
        if let Some(s) = self.shared.as_ref().filter(|_| len > limits::SMALL_RECORD || counted.is_some()) {
            let mut taken = counted.unwrap_or_else(|| s.bytes.nothing(s.client));
            taken.grow(len).await;
            taken.grown();
            held.shares.push(taken);
        }
        self.bytes.take(len, &mut held).await;
        self.calls.take(1, &mut held).await;
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

    fn dispatch(&self, call: RawCall, message_bytes: usize, body: Bytes, permits: Permits, turn: Turn) {
        let xid = call.xid;
        if let Err(stat) = check_program(self.service.programs(), &call) {
            self.conn.reply(accepted(xid, stat, Vec::new(), permits));
            return;
        }
        let cred = match Credential::from_opaque(&call.cred) {
            Ok(cred) => cred,
            Err(stat) => return self.deny(xid, RejectStat::AuthError(stat), permits),
        };
        let call =
            CallHeader { xid, prog: call.prog, vers: call.vers, proc: call.proc, cred, message_bytes, turn };
        let (service, conn) = (self.service.clone(), self.conn.clone());
        self.begin(Box::pin(async move {
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
        }));
    }

    /// Serves a call up to where it waits for something; from there on in a task.
    fn begin(&self, mut serving: Serving) {
        if self.pace.in_place() {
            let begun = Instant::now();
            let mut nobody = Context::from_waker(Waker::noop());
            let polled = catch_unwind(AssertUnwindSafe(|| serving.as_mut().poll(&mut nobody)));
            self.pace.took(begun.elapsed());
            match polled {
                Ok(Poll::Pending) => return self.begun.push(serving),
                // After a panic the connection has been closed by `Unanswered`.
                Ok(Poll::Ready(())) | Err(_) => return,
            }
        }
        tokio::spawn(serving);
    }
}

fn accepted(xid: u32, stat: AcceptStat, results: Vec<Bytes>, permits: Permits) -> Outgoing {
    let mut head = writer::head_buffer();
    encode_accepted(xid, stat, &mut head);
    writer::seal(head, results, permits)
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
