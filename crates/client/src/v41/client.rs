//! One client and its session in force: connecting, sending, renewing.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use landfast_nfs::v4::args::SequenceArgs;
use landfast_nfs::v4::{
    ArgOp, ClientOwner, CompoundRes, FileHandle, ImplId, NfsStat, Opaque1024, ServerOwner, SessionId,
    Stateid, Verifier, flags,
};
use landfast_rpc::{CallError, Connection};
use landfast_xdr::{Decode, Encode};
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::callback::{Asked, Callbacks, CopyEnd};
use super::epoch::{Epoch, OpeningState};
use super::first_request::{FirstReply, FirstRequest};
use super::sequence::{Verdict, judge, too_much};
use super::setup::{Answered, Caller, ClientId, FIRST_BYTES, FIRST_OPS, Opening, SetupError};
use super::slots::{Slot, SlotTable};
use crate::compound::{COMPOUND, compound_header};
use crate::cost::{REPLY_HEAD, REQUEST_HEAD, result_bytes};
use crate::error::SessionError;
use crate::limits;
use crate::options::{SessionLimits, SessionOptions};
use crate::patience::Patience;
use crate::peer::{ConnectionSlot, Peer};
use crate::requests;
use crate::standing::Standing;

/// A client of a server that has sessions. See the module.
pub(crate) struct Client {
    peer: Peer,
    minor: u32,
    owner_id: Opaque1024,
    epoch: Mutex<Arc<Epoch>>,
    lines: Vec<ConnectionSlot>,
    back: tokio::sync::Mutex<(u64, Option<Connection>)>,
    callbacks: Arc<Callbacks>,
    setup: tokio::sync::Mutex<Setup>,
    /// New sessions since the last success.
    renewals_in_a_row: AtomicU32,
    /// Milliseconds from `started` to the last reply: the lease was renewed then.
    last_reply_ms: AtomicU64,
    started: Instant,
    /// Microseconds that the last CREATE_SESSION took.
    response_time_us: AtomicU64,
    /// The server calls itself Landfast.
    landfast: AtomicBool,
    /// Its owner and scope, as EXCHANGE_ID gave them.
    server: Mutex<Option<(ServerOwner, Opaque1024)>>,
}

/// nfs-ganesha's scope ends like this, with a NUL byte behind it.
fn is_ganesha(scope: &Opaque1024) -> bool {
    scope.0.strip_suffix(b"\0").unwrap_or(&scope.0).ends_with(b"_NFS-Ganesha")
}

struct Setup {
    client: Option<ClientId>,
    /// The server had no room for the reply cache that was asked for (NOSPC): ask for fewer and smaller replies.
    small_cache: bool,
    /// The server waits for this client ID's RECLAIM_COMPLETE.
    reclaims: bool,
    verifier: Verifier,
}

/// A session's first request that is sent like any other, and where its results go.
struct PendingOpening {
    opening: Opening,
    slot: Slot,
    answer: oneshot::Sender<Option<CompoundRes>>,
}

impl Client {
    /// Connects and makes a session of the options' version. `first`: see [`crate::Session::connect_with`].
    ///
    /// # Errors
    /// When the server cannot be reached, does not speak the version, or refuses.
    pub(crate) async fn connect(
        options: SessionOptions,
        minor: u32,
        first: &mut FirstRequest<'_>,
    ) -> Result<(Arc<Client>, FirstReply), SessionError> {
        let peer = Peer::new(options);
        let conn = peer.connect().await?;
        let ClientOwner { owner_id, verifier } = peer.options().client_owner()?;
        let nothing = Epoch {
            number: 0,
            id: SessionId::default(),
            limits: peer.options().ask,
            lease: OnceLock::new(),
            opening_in_flight: AtomicBool::new(false),
            opening: Mutex::new(OpeningState::Done),
            opening_changed: Notify::new(),
            table: Mutex::new(SlotTable::new(0)),
            freed: Notify::new(),
            dead: AtomicBool::new(true),
            reclaim_wanted: AtomicBool::new(false),
            restarts: AtomicU64::new(0),
            revoked: AtomicBool::new(false),
        };
        let client = Arc::new(Client {
            minor,
            owner_id,
            epoch: Mutex::new(Arc::new(nothing)),
            lines: ConnectionSlot::several(peer.options().connections, None).await,
            back: tokio::sync::Mutex::default(),
            callbacks: Arc::default(),
            setup: tokio::sync::Mutex::new(Setup {
                client: None,
                small_cache: false,
                reclaims: false,
                verifier,
            }),
            renewals_in_a_row: AtomicU32::new(0),
            last_reply_ms: AtomicU64::new(0),
            started: Instant::now(),
            response_time_us: AtomicU64::new(0),
            landfast: AtomicBool::new(false),
            server: Mutex::default(),
            peer,
        });
        if first.connect_all {
            client.open_lines();
        }
        let (answer, opens) = {
            let mut setup = client.setup.lock().await;
            client.peer.waited(client.establish(&mut setup, conn, first)).await?
        };
        match opens {
            None => drop(tokio::spawn(keep_alive(Arc::downgrade(&client)))),
            Some(opens) => {
                let mut opening = Box::pin(client.clone().open(opens));
                // Polled once, so that it is sent before anything else is.
                if poll_fn(|cx| Poll::Ready(opening.as_mut().poll(cx))).await.is_pending() {
                    tokio::spawn(opening);
                }
            }
        }
        Ok((client, answer))
    }

    /// Sends a session's first request, and again like any other until its outcome is known.
    async fn open(self: Arc<Self>, pending: PendingOpening) {
        let PendingOpening { opening, slot, answer } = pending;
        let epoch = self.epoch();
        let head = self.head(&epoch, slot, 0, opening.ops, false);
        let sending = self.send(&epoch, slot, [head, opening.body.clone()]);
        let results = match self.peer.waited(sending).await {
            Ok(Some(reply)) => self.accept_opening(&epoch, &opening, reply).await,
            other => {
                // The next session carries its operations.
                debug!("the first request to {}: {:?}", self.peer.server(), other.err());
                epoch.mark_dead();
                None
            }
        };
        epoch.opening_in_flight.store(false, Ordering::Release);
        // Nobody may be waiting any more.
        let _ = answer.send(results);
        keep_alive(Arc::downgrade(&self)).await;
    }

    /// Takes the results of the opening; the rest, which are the caller's, are returned.
    async fn accept_opening(
        &self,
        epoch: &Epoch,
        opening: &Opening,
        reply: CompoundRes,
    ) -> Option<CompoundRes> {
        let Answered { lease, results, reclaimed } = opening.answer(reply);
        let _ = epoch.lease.set(lease);
        epoch.reclaim_wanted.fetch_or(!reclaimed, Ordering::AcqRel);
        self.setup.lock().await.reclaims = false;
        results
    }

    /// See [`crate::Session::first_request`].
    pub(crate) async fn first_request(self: &Arc<Self>, first: &mut FirstRequest<'_>) -> FirstReply {
        let mut epoch = self.epoch();
        if !matches!(*epoch.opening(), OpeningState::Done) {
            // A failure shows below.
            let _ = self.run_in_task(Bytes::new(), 0).await;
            epoch = self.epoch();
        }
        let (queries, trailing, pipelined) = self.additions(first, &epoch.limits);
        if queries.is_empty() {
            return FirstReply::ready(None);
        }
        let (more, count) = trailing.unwrap_or_default();
        let mut body = BytesMut::new();
        queries.iter().for_each(|op| op.encode(&mut body));
        body.extend_from_slice(&more);
        let (body, count) = (body.freeze(), queries.len() + count);
        if !pipelined {
            return FirstReply::ready(self.run_in_task(body, count).await.ok());
        }
        let Some((slot, highest)) = epoch.take().await else { return FirstReply::ready(None) };
        epoch.opening_in_flight.store(true, Ordering::Release);
        let (answer, coming) = oneshot::channel();
        let client = self.clone();
        let mut going = Box::pin(async move {
            let head = client.head(&epoch, slot, highest, count, false);
            let reply = client.peer.waited(client.send(&epoch, slot, [head, body])).await;
            epoch.opening_in_flight.store(false, Ordering::Release);
            // Nobody may be waiting any more.
            let _ = answer.send(reply.ok().flatten());
        });
        // Polled once, so that it is sent before anything else is.
        if poll_fn(|cx| Poll::Ready(going.as_mut().poll(cx))).await.is_pending() {
            tokio::spawn(going);
        }
        FirstReply::pending(coming)
    }

    /// The caller's queries and trailing operations that fit, and whether further requests may be sent before the reply.
    #[allow(clippy::type_complexity)] // three things that go together once
    fn additions<'a>(
        &self,
        first: &mut FirstRequest<'a>,
        limits: &SessionLimits,
    ) -> (&'a [ArgOp], Option<(Bytes, usize)>, bool) {
        let queries =
            if first.queries.len() + FIRST_OPS <= limits.ops as usize { first.queries } else { &[] };
        let trailing = first.trailing.take().filter(|_| !queries.is_empty() && self.packs_data());
        // Landfast begins the requests of one connection in their order.
        let pipelined = self.is_landfast();
        let trailing = trailing.and_then(|trailing| trailing(&self.room_after(queries, limits), pipelined));
        let pipelined = pipelined && trailing.is_some();
        (queries, trailing, pipelined)
    }

    /// Opens the connections beside the first, without waiting for them.
    fn open_lines(self: &Arc<Self>) {
        for i in 1..self.lines.len() {
            let client = self.clone();
            tokio::spawn(async move {
                let Some(line) = client.lines.get(i) else { return };
                // A failure shows when the line is needed.
                if let Err(e) = line.hold().await.open(&client.peer).await {
                    debug!("connection {i} to {}: {e}", client.peer.server());
                }
            });
        }
    }

    /// Sends operations after a SEQUENCE; see [`crate::Session::compound`].
    pub(crate) async fn compound(
        &self,
        ops: Bytes,
        count: usize,
        cachethis: bool,
        only: Option<u64>,
    ) -> Result<CompoundRes, SessionError> {
        let done = self.peer.waited(self.run_on(ops, count, cachethis, only)).await;
        self.end_reclaim().await;
        done
    }

    /// See [`crate::Session::standing`].
    pub(crate) fn standing(&self) -> Standing {
        let epoch = self.epoch();
        let last = Duration::from_millis(self.last_reply_ms.load(Ordering::Relaxed));
        Standing {
            session: epoch.number,
            revoked: epoch.revoked.load(Ordering::Acquire),
            restarts: epoch.restarts.load(Ordering::Acquire),
            silence: self.started.elapsed().saturating_sub(last),
        }
    }

    /// See [`crate::Session::recalls`].
    pub(crate) fn recalls(&self) -> tokio::sync::mpsc::Receiver<Asked> {
        self.callbacks.recalls()
    }

    /// See [`crate::Session::flushed`].
    pub(crate) async fn flushed(&self) {
        let epoch = self.epoch();
        if let Some(line) = self.lines.first() {
            let conn = line.hold().await.ready(epoch.number);
            if let Some(conn) = conn {
                conn.flushed().await;
            }
        }
    }

    /// See [`crate::Session::destroy`].
    pub(crate) async fn destroy(&self) {
        if !self.peer.end() {
            return;
        }
        let epoch = self.epoch();
        epoch.mark_dead();
        let goodbye = async {
            let client = self.setup.lock().await.client;
            let Some(line) = self.lines.first() else { return };
            if let Some(conn) = line.hold().await.ready(epoch.number) {
                let caller = self.caller(&conn);
                // If this fails, the server forgets both when the lease expires. A client with a session cannot be destroyed, and requests
                // in flight together have no order; but Landfast itself waits for the session's end.
                let end = [ArgOp::DestroySession(epoch.id)];
                self.peer.counters.rpcs.fetch_add(1, Ordering::Relaxed);
                let mut ended = pin!(caller.raw(&end));
                if !self.is_landfast() {
                    let _ = (&mut ended).await;
                }
                let Some(client) = client else { return };
                let forget = [ArgOp::DestroyClientid(client.id)];
                self.peer.counters.rpcs.fetch_add(1, Ordering::Relaxed);
                let answers = async {
                    match self.is_landfast() {
                        true => drop(tokio::join!(biased; ended, caller.raw(&forget))),
                        false => drop(caller.raw(&forget).await),
                    }
                };
                // Over a long network nobody waits for replies: the server executes both requests all the same.
                let on_their_way = async {
                    conn.flushed().await;
                    if self.response_time() <= limits::GOODBYE_HEARD {
                        sleep(limits::GOODBYE_HEARD).await;
                    }
                };
                tokio::select! {
                    biased;
                    () = answers => {}
                    () = on_their_way => {}
                }
            }
        };
        let _ = tokio::time::timeout(limits::GOODBYE_PATIENCE, goodbye).await;
        for line in &self.lines {
            line.hold().await.close();
        }
        if let Some(conn) = self.back.lock().await.1.take() {
            conn.close();
        }
    }

    /// See [`crate::Session::binds_back_channel`].
    pub(crate) async fn binds_back_channel(&self) -> bool {
        let epoch = self.epoch();
        let mut back = self.back.lock().await;
        match &*back {
            (number, None) if *number == epoch.number => return false,
            (number, Some(conn)) if *number == epoch.number && !conn.is_closed() => return true,
            _ => {}
        }
        // A server that is away now is asked again. One that refuses is not.
        let conn = match self.peer.listen(self.callbacks.clone()).await {
            Ok(conn) => conn,
            Err(e) => {
                debug!("no back channel from {}: {e}", self.peer.server());
                return false;
            }
        };
        self.peer.counters.rpcs.fetch_add(1, Ordering::Relaxed);
        let bound = self.caller(&conn).bind(epoch.id, flags::CDFC4_BACK).await;
        if let Err(e) = &bound {
            debug!("no back channel from {}: {e:?}", self.peer.server());
            if conn.is_closed() {
                return false;
            }
        }
        let bound = bound.map(|()| conn);
        *back = (epoch.number, bound.ok());
        back.1.is_some()
    }

    /// See [`crate::Session::has_back_channel`].
    pub(crate) async fn has_back_channel(&self) -> bool {
        let back = self.back.lock().await;
        back.0 == self.epoch().number && back.1.as_ref().is_some_and(|conn| !conn.is_closed())
    }

    /// See [`crate::Session::copy_end`].
    pub(crate) async fn copy_end(
        &self,
        file: &FileHandle,
        copy: &Stateid,
        patience: Duration,
    ) -> Option<CopyEnd> {
        self.callbacks.end_of(file, copy, patience).await
    }

    /// How long the server took for its last CREATE_SESSION.
    pub(crate) fn response_time(&self) -> Duration {
        Duration::from_micros(self.response_time_us.load(Ordering::Relaxed))
    }

    /// The server calls itself Landfast.
    pub(crate) fn is_landfast(&self) -> bool {
        self.landfast.load(Ordering::Relaxed)
    }

    /// See [`crate::Session::packs_data`].
    pub(crate) fn packs_data(&self) -> bool {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_landfast() || server.as_ref().is_some_and(|(_, scope)| is_ganesha(scope))
    }

    /// Whether the other session is with the same server: owner and scope are equal, and this server accepts a connection for the other
    /// session. Owner and scope alone do not suffice, as two machines may have the same name.
    pub(crate) async fn is_same_server(&self, other: &Client) -> bool {
        let named = |client: &Client| client.server.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let one = named(self);
        if one.is_none() || one != named(other) {
            return false;
        }
        let Ok(conn) = self.peer.connect_once().await else { return false };
        self.peer.counters.rpcs.fetch_add(1, Ordering::Relaxed);
        let bound = self.caller(&conn).bind(other.epoch().id, flags::CDFC4_FORE).await.is_ok();
        conn.close();
        bound
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(crate) fn epoch(&self) -> Arc<Epoch> {
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn caller<'a>(&'a self, conn: &'a Connection) -> Caller<'a> {
        Caller {
            conn,
            cred: self.peer.cred(),
            minor: self.minor,
            patience: self.peer.options().call_patience,
        }
    }

    /// If the session survives a restart of the server, the server answers GRACE until the client has sent RECLAIM_COMPLETE (RFC 8881
    /// sections 18.46.3 and 18.51). This client reclaims nothing (it opens files again), so it sends that at once.
    async fn end_reclaim(&self) {
        let epoch = self.epoch();
        if !epoch.reclaim_wanted.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut body = BytesMut::new();
        ArgOp::ReclaimComplete(false).encode(&mut body);
        let (body, mut patience) = (body.freeze(), Patience::new());
        loop {
            match Box::pin(self.run(body.clone(), 1, true)).await {
                Ok(reply) if reply.status == NfsStat::NFS4ERR_DELAY => {}
                Ok(_) => break,
                // Sending it again finds out whether it was executed.
                Err(SessionError::Unknown(why)) => {
                    debug!("RECLAIM_COMPLETE to {}: {why}", self.peer.server())
                }
                // The next session sends it first of all.
                Err(e) => {
                    debug!("RECLAIM_COMPLETE to {}: {e}", self.peer.server());
                    break;
                }
            }
            if !patience.wait().await {
                break;
            }
        }
        // Replies that the server sent before it executed this may have set the flag meanwhile.
        epoch.reclaim_wanted.store(false, Ordering::Release);
    }

    /// Runs in a task of its own, so that a caller that is dropped leaves no slot in an unknown state.
    async fn run_in_task(self: &Arc<Self>, ops: Bytes, count: usize) -> Result<CompoundRes, SessionError> {
        let client = self.clone();
        let task = tokio::spawn(async move { client.run(ops, count, false).await });
        task.await.unwrap_or(Err(SessionError::Ended))
    }

    async fn run(&self, ops: Bytes, count: usize, cachethis: bool) -> Result<CompoundRes, SessionError> {
        self.peer.waited(self.run_on(ops, count, cachethis, None)).await
    }

    /// `only`: see [`crate::Session::compound_in`].
    async fn run_on(
        &self,
        ops: Bytes,
        count: usize,
        cachethis: bool,
        only: Option<u64>,
    ) -> Result<CompoundRes, SessionError> {
        loop {
            if self.peer.has_ended() {
                return Err(SessionError::Ended);
            }
            let epoch = self.epoch();
            if only.is_some_and(|number| number != epoch.number) {
                return Err(SessionError::Refused(NfsStat::NFS4ERR_BADSESSION));
            }
            let Some((slot, highest)) = epoch.take().await else {
                self.renew(&epoch).await?;
                continue;
            };
            if let Some(opening) = epoch.take_opening(self.is_landfast()).await {
                let with = self.open_with(&epoch, (slot, highest), opening, (&ops, count), cachethis).await?;
                match with {
                    Some(done) => return Ok(done),
                    None => continue,
                }
            }
            let head = self.head(&epoch, slot, highest, count, cachethis);
            if let Some(done) = self.send(&epoch, slot, [head, ops.clone()]).await? {
                return Ok(done);
            }
        }
    }

    /// Sends a session's opening, with a compound if there is room. `None`: nothing was executed.
    async fn open_with(
        &self,
        epoch: &Epoch,
        (slot, highest): (Slot, u32),
        (opening, alone): (Opening, bool),
        (ops, count): (&Bytes, usize),
        cachethis: bool,
    ) -> Result<Option<CompoundRes>, SessionError> {
        let with = !alone
            && opening.ops + count < epoch.limits.ops as usize
            && REQUEST_HEAD + FIRST_BYTES + ops.len() <= epoch.limits.request as usize;
        let (ops, count) = if with { (&ops[..], count) } else { (&[][..], 0) };
        let head = self.head(epoch, slot, highest, opening.ops + count, cachethis && with);
        let body = Bytes::from([&opening.body[..], ops].concat());
        epoch.opening_in_flight.store(true, Ordering::Release);
        let sent = self.send(epoch, slot, [head, body]).await;
        epoch.opening_in_flight.store(false, Ordering::Release);
        match sent {
            Ok(Some(reply)) => {
                // The compound after it was executed if all of the opening was.
                let whole = with && reply.status.is_ok();
                let nothing = CompoundRes { results: Vec::new(), ..reply.clone() };
                let rest = self.accept_opening(epoch, &opening, reply).await;
                epoch.set_opening(OpeningState::Done);
                Ok(rest.or(whole.then_some(nothing)))
            }
            Err(SessionError::Refused(status)) if count > 0 && too_much(status) => {
                epoch.set_opening(OpeningState::Pending(opening, true));
                Ok(None)
            }
            other => {
                // The next session carries its operations.
                epoch.mark_dead();
                epoch.set_opening(OpeningState::Done);
                other
            }
        }
    }

    /// The head of a COMPOUND: its SEQUENCE, and the number of operations, of which `count` follow.
    fn head(&self, epoch: &Epoch, slot: Slot, highest_slotid: u32, count: usize, cachethis: bool) -> Bytes {
        let (sessionid, sequenceid, slotid) = (epoch.id, slot.seq, slot.id);
        let mut head = BytesMut::new();
        compound_header(self.minor, count + 1, &mut head);
        ArgOp::Sequence(SequenceArgs { sessionid, sequenceid, slotid, highest_slotid, cachethis })
            .encode(&mut head);
        head.freeze()
    }

    /// Sends one request until its outcome is known. `None`: the session was lost before the server saw it.
    async fn send(
        &self,
        epoch: &Epoch,
        slot: Slot,
        args: [Bytes; 2],
    ) -> Result<Option<CompoundRes>, SessionError> {
        // Whether a transmission was made whose reply never came.
        let mut in_doubt = false;
        let mut pause = limits::BACKOFF_MIN;
        let mut first = true;
        let mut garbled = 0;
        let mut delays = Patience::new();
        loop {
            let conn = match self.line(slot.id as usize, epoch).await {
                Ok(conn) => conn,
                Err(e) => {
                    epoch.mark_dead();
                    return Err(if in_doubt { SessionError::Unknown(e.to_string()) } else { e });
                }
            };
            self.peer.counters.sent(&args, !std::mem::take(&mut first));
            let patience = self.peer.options().call_patience;
            let cred = self.peer.caller();
            let reply = conn.call(COMPOUND, &cred, args.to_vec(), patience);
            let reply = requests::logged(COMPOUND, &args, reply).await;
            self.peer.called(&reply);
            let reply = match reply {
                Ok(reply) => {
                    self.peer.counters.received(&reply);
                    reply
                }
                Err(CallError::Closed(why)) => {
                    if self.peer.has_ended() {
                        return Err(SessionError::Unknown(why.to_string()));
                    }
                    garbled += u32::from(conn.is_garbled());
                    if self.peer.gives_up(garbled) {
                        // The slot's reply cannot be had, so its number stays in doubt: the session goes with it.
                        epoch.mark_dead();
                        return Err(SessionError::Unknown(why.to_string()));
                    }
                    in_doubt = true;
                    sleep(pause).await;
                    pause = (pause * 2).min(limits::BACKOFF_MAX);
                    continue;
                }
                Err(CallError::Timeout(_)) => {
                    warn!("{} does not answer; connecting again", self.peer.server());
                    conn.abort();
                    in_doubt = true;
                    continue;
                }
                Err(e) => return Err(not_executed(epoch, slot, in_doubt, SessionError::Rpc(e))),
            };
            let Ok(reply) = CompoundRes::from_bytes(reply) else {
                // The slot's number is in doubt: give up the session with it.
                epoch.mark_dead();
                return Err(SessionError::Unknown("the server's reply cannot be decoded".into()));
            };
            match judge(reply, epoch, slot) {
                Verdict::Done(reply) => {
                    epoch.put_back(slot, true);
                    let now = self.started.elapsed().as_millis() as u64;
                    self.last_reply_ms.store(now, Ordering::Relaxed);
                    self.renewals_in_a_row.store(0, Ordering::Relaxed);
                    if in_doubt && !reply.status.is_ok() {
                        let why = format!("sent again after its reply was lost: {}", reply.status);
                        return Err(SessionError::Unknown(why));
                    }
                    return Ok(Some(reply));
                }
                Verdict::Refused(status) => {
                    return Err(not_executed(epoch, slot, in_doubt, SessionError::Refused(status)));
                }
                Verdict::Uncached => {
                    epoch.put_back(slot, true);
                    return Err(SessionError::Unknown("the server kept no reply".into()));
                }
                Verdict::Rebind => {
                    self.peer.counters.rpcs.fetch_add(1, Ordering::Relaxed);
                    // A session that cannot be bound shows as lost in the next round.
                    let _ = self.caller(&conn).bind(epoch.id, flags::CDFC4_FORE).await;
                }
                Verdict::Again => {
                    if !delays.wait().await {
                        let why = SessionError::Refused(NfsStat::NFS4ERR_DELAY);
                        return Err(not_executed(epoch, slot, in_doubt, why));
                    }
                    continue;
                }
                Verdict::Lost => {
                    epoch.mark_dead();
                    if in_doubt {
                        return Err(SessionError::Unknown("the server lost the session".into()));
                    }
                    return Ok(None);
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(limits::BACKOFF_MAX);
        }
    }

    /// The connection of a slot, open and bound to `epoch`.
    async fn line(&self, slot: usize, epoch: &Epoch) -> Result<Connection, SessionError> {
        let slot = if epoch.opening_in_flight.load(Ordering::Acquire) { 0 } else { slot };
        let line = self.lines.get(slot % self.lines.len().max(1)).ok_or(SessionError::Ended)?;
        let mut held = line.hold().await;
        if let Some(conn) = held.ready(epoch.number) {
            return Ok(conn);
        }
        let conn = held.open(&self.peer).await?;
        // A SEQUENCE on the connection binds it (RFC 8881 section 2.10.3.1). A server that requires BIND_CONN_TO_SESSION says so.
        Ok(held.keep(conn, epoch.number))
    }

    /// The first connection, open, whatever it is bound to.
    async fn first_line(&self) -> Result<Connection, SessionError> {
        let line = self.lines.first().ok_or(SessionError::Ended)?;
        line.hold().await.open(&self.peer).await
    }

    /// Makes a new session in place of `old`, unless somebody has.
    async fn renew(&self, old: &Epoch) -> Result<(), SessionError> {
        let mut setup = self.setup.lock().await;
        if self.epoch().number != old.number {
            return Ok(());
        }
        if self.peer.has_ended() {
            return Err(SessionError::Ended);
        }
        let in_a_row = self.renewals_in_a_row.fetch_add(1, Ordering::Relaxed);
        if in_a_row >= limits::RENEWALS_MAX {
            return Err(SessionError::Setup {
                server: self.peer.server().to_owned(),
                step: "SEQUENCE on a new session",
                status: NfsStat::NFS4ERR_BADSESSION,
            });
        }
        if in_a_row > 0 {
            // A server that restarts again and again takes its time.
            sleep((limits::BACKOFF_MIN * in_a_row * in_a_row).min(limits::BACKOFF_MAX)).await;
        }
        self.peer.counters.renewals.fetch_add(1, Ordering::Relaxed);
        let conn = self.first_line().await?;
        self.establish(&mut setup, conn, &mut FirstRequest::default()).await.map(drop)
    }

    /// Makes the client ID and the session, and sends the first request. Then the new epoch is in force, with `conn` as its first
    /// connection. If requests may follow before the reply, the first request is left to the caller.
    async fn establish(
        &self,
        setup: &mut Setup,
        mut conn: Connection,
        first: &mut FirstRequest<'_>,
    ) -> Result<(FirstReply, Option<PendingOpening>), SessionError> {
        let start = Instant::now();
        let mut pause = limits::BACKOFF_MIN;
        loop {
            self.peer.counters.rpcs.fetch_add(2, Ordering::Relaxed);
            let tried = self.try_establish(setup, &conn, first).await;
            if !matches!(&tried, Err((_, SetupError::Call(CallError::Closed(_) | CallError::Timeout(_))))) {
                self.peer.heard();
            }
            match tried {
                Ok((epoch, answer, opens)) => {
                    if let Some(line) = self.lines.first() {
                        line.hold().await.keep(conn, epoch.number);
                    }
                    *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(epoch);
                    self.peer.has_answered();
                    return Ok((answer, opens));
                }
                Err((step, e)) => {
                    let less = setup.small_cache && setup.client.is_none();
                    let again = match &e {
                        SetupError::Call(lost @ (CallError::Closed(_) | CallError::Timeout(_))) => {
                            // Like any other lost connection: reported only when it lasts.
                            debug!("{}: {step}: {lost}", self.peer.server());
                            true
                        }
                        SetupError::Call(e) => return Err(SessionError::Rpc(e.clone())),
                        SetupError::Garbled => false,
                        SetupError::Op(_) => {
                            matches!(
                                e.status(),
                                Some(
                                    NfsStat::NFS4ERR_DELAY
                                        | NfsStat::NFS4ERR_GRACE
                                        | NfsStat::NFS4ERR_STALE_CLIENTID
                                        | NfsStat::NFS4ERR_SEQ_MISORDERED
                                        | NfsStat::NFS4ERR_BADSESSION
                                        | NfsStat::NFS4ERR_DEADSESSION
                                )
                            ) || less && e.status() == Some(NfsStat::NFS4ERR_NOSPC)
                        }
                    };
                    if !again || start.elapsed() > self.peer.patience() {
                        return Err(self.setup_error(step, &e));
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(limits::BACKOFF_MAX);
            if conn.is_closed() {
                conn = self.first_line().await?;
            }
        }
    }

    async fn try_establish(
        &self,
        setup: &mut Setup,
        conn: &Connection,
        first: &mut FirstRequest<'_>,
    ) -> Result<(Epoch, FirstReply, Option<PendingOpening>), (&'static str, SetupError)> {
        let caller = self.caller(conn);
        let client = match setup.client {
            Some(client) => client,
            None => {
                let res = caller.exchange_id(&self.owner_id, setup.verifier).await;
                let res = res.map_err(|e| ("EXCHANGE_ID", e))?;
                let named = |id: &ImplId| id.name.starts_with(b"landfast");
                self.landfast.store(res.server_impl_id.iter().any(named), Ordering::Relaxed);
                debug!(
                    "{} calls itself {:?}, in {:?}",
                    self.peer.server(),
                    res.server_owner,
                    res.server_scope
                );
                let server = Some((res.server_owner.clone(), res.server_scope.clone()));
                *self.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
                setup.reclaims = res.flags & flags::EXCHGID4_FLAG_CONFIRMED_R == 0;
                *setup.client.insert(ClientId { id: res.clientid, next_seq: res.sequenceid })
            }
        };
        let mut ask = self.peer.options().ask;
        if setup.small_cache {
            ask.response_cached = ask.response_cached.min(limits::RESPONSE40_CACHED);
            ask.slots = ask.slots.min(limits::SLOTS_MODEST);
        }
        let begun = Instant::now();
        let res = caller.create_session(client, &ask).await.map_err(|e| {
            if e.status() == Some(NfsStat::NFS4ERR_NOSPC) && !setup.small_cache {
                // Servers differ in whether this used up the sequence number: EXCHANGE_ID tells.
                (setup.client, setup.small_cache) = (None, true);
                return ("CREATE_SESSION, asked for less now", e);
            }
            if let Some(NfsStat::NFS4ERR_STALE_CLIENTID | NfsStat::NFS4ERR_SEQ_MISORDERED) = e.status() {
                // The server restarted, or the sequence number is lost: start as a new instance of the client.
                setup.client = None;
                for (i, byte) in setup.verifier.iter_mut().enumerate() {
                    *byte = byte.wrapping_mul(31).wrapping_add(i as u8 + 1);
                }
            }
            ("CREATE_SESSION", e)
        })?;
        self.response_time_us.store(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
        setup.client = Some(ClientId { next_seq: client.next_seq.wrapping_add(1), ..client });
        let granted = &res.fore_chan_attrs;
        let limits = SessionLimits {
            request: granted.max_request_size,
            response: granted.max_response_size,
            response_cached: granted.max_response_size_cached,
            ops: granted.max_operations,
            slots: granted.max_requests.min(limits::SLOTS_MAX),
        };
        let (queries, trailing, pipelined) = self.additions(first, &limits);
        let opening = Opening::new(setup.reclaims, queries, trailing);
        let mut table = SlotTable::new(limits.slots.max(1));
        // Somebody waits for the first session.
        let later = queries.is_empty() && self.epoch().number == 0;
        let slot = if later { None } else { table.take() };
        let mut opening_state = OpeningState::Done;
        let mut reclaim_wanted = false;
        let (lease, answer, opens) = match slot.filter(|_| pipelined) {
            Some(slot) => {
                let (send, answer) = oneshot::channel();
                let answer = FirstReply::pending(answer);
                (OnceLock::new(), answer, Some(PendingOpening { opening, slot, answer: send }))
            }
            None if later => {
                opening_state = OpeningState::Pending(opening, false);
                (OnceLock::new(), FirstReply::ready(None), None)
            }
            None => {
                self.peer.counters.rpcs.fetch_add(1, Ordering::Relaxed);
                let mut done = caller.first_request(res.sessionid, &opening).await;
                if let Err(SetupError::Op(e)) = &done
                    && too_much(e.status())
                    && !queries.is_empty()
                {
                    // Refused before anything was done, and the slot was not used.
                    self.peer.counters.rpcs.fetch_add(1, Ordering::Relaxed);
                    let less = Opening::new(setup.reclaims, &[], None);
                    done = caller.first_request(res.sessionid, &less).await;
                }
                let Answered { lease, results, reclaimed } = done.map_err(|e| ("first SEQUENCE", e))?;
                setup.reclaims = false;
                reclaim_wanted = !reclaimed;
                if let Some(slot) = slot {
                    table.put_back(slot, true);
                }
                (OnceLock::from(lease), FirstReply::ready(results), None)
            }
        };
        let epoch = Epoch {
            number: self.epoch().number + 1,
            id: res.sessionid,
            limits,
            lease,
            opening_in_flight: AtomicBool::new(opens.is_some()),
            opening: Mutex::new(opening_state),
            opening_changed: Notify::new(),
            table: Mutex::new(table),
            freed: Notify::new(),
            dead: AtomicBool::new(false),
            reclaim_wanted: AtomicBool::new(reclaim_wanted),
            restarts: AtomicU64::new(0),
            revoked: AtomicBool::new(false),
        };
        Ok((epoch, answer, opens))
    }

    /// The room that the first request has after its queries.
    fn room_after(&self, queries: &[ArgOp], limits: &SessionLimits) -> SessionLimits {
        // Other servers may promise more than they take.
        let ops = if self.is_landfast() { limits.ops } else { limits.ops.min(limits::LEG_OPS as u32) };
        let mut body = BytesMut::new();
        queries.iter().for_each(|op| op.encode(&mut body));
        let reply: usize = queries.iter().map(result_bytes).sum();
        SessionLimits {
            request: limits.request.saturating_sub((REQUEST_HEAD + FIRST_BYTES + body.len()) as u32),
            response: limits.response.saturating_sub((REPLY_HEAD + FIRST_BYTES + reply) as u32),
            ops: ops.saturating_sub((FIRST_OPS + queries.len()) as u32),
            ..*limits
        }
    }

    fn setup_error(&self, step: &'static str, e: &SetupError) -> SessionError {
        match e {
            SetupError::Call(e) => {
                SessionError::Connect { server: self.peer.server().to_owned(), why: e.to_string() }
            }
            SetupError::Garbled => SessionError::Connect {
                server: self.peer.server().to_owned(),
                why: format!("{step}: no NFSv4 reply"),
            },
            SetupError::Op(e) => {
                SessionError::Setup { server: self.peer.server().to_owned(), step, status: e.status() }
            }
        }
    }
}

/// The error for a request that the server refused without executing it. If an earlier transmission has had no reply (`in_doubt`),
/// that one may still be running: the server would answer the next request on this slot with its reply, so the session is given up.
fn not_executed(epoch: &Epoch, slot: Slot, in_doubt: bool, why: SessionError) -> SessionError {
    if in_doubt {
        epoch.mark_dead();
        return SessionError::Unknown(format!("sent again after its reply was lost: {why}"));
    }
    epoch.put_back(slot, false);
    why
}

/// Renews the lease while no other request does.
async fn keep_alive(session: Weak<Client>) {
    // A restarted server may wait for the RECLAIM_COMPLETE that the opening carries.
    if let Some(epoch) = session.upgrade().map(|inner| inner.epoch())
        && tokio::time::timeout(limits::OPENING_WAITS_MAX, epoch.wait_opened()).await.is_err()
        && let Some(inner) = session.upgrade().filter(|inner| !inner.peer.has_ended())
    {
        let _ = inner.run(Bytes::new(), 0, false).await;
    }
    loop {
        let Some(inner) = session.upgrade() else { return };
        let pause = (inner.epoch().lease() / 3).max(Duration::from_secs(1));
        drop(inner);
        sleep(pause).await;
        let Some(inner) = session.upgrade() else { return };
        if inner.peer.has_ended() {
            return;
        }
        let last = Duration::from_millis(inner.last_reply_ms.load(Ordering::Relaxed));
        if inner.started.elapsed().saturating_sub(last) >= pause {
            // A failure shows in the next compound that somebody waits for.
            let _ = inner.run(Bytes::new(), 0, false).await;
        }
    }
}
