//! One NFSv4.1 session: many compounds in flight on several connections, each exactly once as far as the
//! server's reply cache allows.
//!
//! A compound takes a slot, and is sent, with the same slot and sequence number, until a reply comes: the
//! server executes it once and answers a repetition from its cache (RFC 8881 section 2.10.6.1). When it
//! cannot (nothing cached, or the session was lost with the server), the outcome is
//! [`SessionError::Unknown`] unless the compound was never sent before.
//!
//! | shared state | changed by | read by |
//! |---|---|---|
//! | `epoch`: the session in force | `renew`, one at a time | every compound when it starts |
//! | an epoch's slot table | the compound that holds the slot | the same, and those that wait for one |
//! | a link: one TCP connection, bound to an epoch | whoever finds it closed or bound to an older session | compounds on its slots |
//!
//! Lock order: `setup`, then a link; slot tables last and never over an await.

mod error;
mod options;
mod setup;
mod slots;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use landfast_nfs::v4::args::SequenceArgs;
use landfast_nfs::v4::res::SequenceRes;
use landfast_nfs::v4::{ArgOp, CompoundRes, NfsStat, OpNum, ResBody, SessionId, Verifier, flags};
use landfast_rpc::{CallError, ConnConfig, Connection, NoService, OpaqueAuth};
use landfast_xdr::{Decode, Encode};
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{debug, warn};

pub use error::SessionError;
pub use options::{SessionLimits, SessionOptions};
use setup::{COMPOUND, Caller, ClientId, SetupError, compound_header};
use slots::{Slot, SlotTable};

use crate::limits;
use crate::three::Three;
use crate::url::Version;

/// A session with a server. Cheap to clone; end it with [`Session::destroy`].
///
/// With a version 3 server it is one in form only: [`crate::three`] executes the COMPOUNDs.
#[derive(Clone)]
pub struct Session {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Four(Arc<Inner>),
    Three(Arc<Three>),
}

/// What went over the wire so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionStats {
    /// Calls sent, retransmissions and session setup included.
    pub rpcs: u64,
    /// Calls sent again after a lost connection or reply.
    pub retransmissions: u64,
    /// Sessions made after the first.
    pub renewals: u64,
    /// Bytes of arguments sent.
    pub bytes_sent: u64,
}

#[derive(Default)]
struct Counters {
    rpcs: AtomicU64,
    retransmissions: AtomicU64,
    renewals: AtomicU64,
    bytes_sent: AtomicU64,
}

struct Inner {
    options: SessionOptions,
    minor: u32,
    server: String,
    cred: OpaqueAuth,
    owner_name: Vec<u8>,
    epoch: Mutex<Arc<Epoch>>,
    links: Vec<tokio::sync::Mutex<Option<Link>>>,
    setup: tokio::sync::Mutex<Setup>,
    /// New sessions since the last success.
    renewals_in_a_row: AtomicU32,
    /// Milliseconds from `started` to the last reply: the lease was renewed then.
    last_reply_ms: AtomicU64,
    started: Instant,
    ended: AtomicBool,
    counters: Counters,
}

struct Setup {
    client: Option<ClientId>,
    verifier: Verifier,
}

#[derive(Clone)]
struct Link {
    conn: Connection,
    epoch: u64,
}

/// One session ID and its slots.
struct Epoch {
    number: u64,
    id: SessionId,
    limits: SessionLimits,
    lease: Duration,
    table: Mutex<SlotTable>,
    freed: Notify,
    dead: AtomicBool,
    /// The server restarted and waits for RECLAIM_COMPLETE.
    reclaim_wanted: AtomicBool,
}

impl Epoch {
    fn table(&self) -> MutexGuard<'_, SlotTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot and the highest one in use; `None` when the session is gone.
    async fn take(&self) -> Option<(Slot, u32)> {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.dead.load(Ordering::Acquire) {
                return None;
            }
            {
                let mut table = self.table();
                if let Some(slot) = table.take() {
                    return Some((slot, table.highest()));
                }
            }
            freed.await;
        }
    }

    fn put_back(&self, slot: Slot, used: bool) {
        self.table().put_back(slot, used);
        self.freed.notify_one();
    }

    fn follow(&self, seq: &SequenceRes) {
        if seq.status_flags & flags::SEQ4_STATUS_RESTART_RECLAIM_NEEDED != 0 {
            self.reclaim_wanted.store(true, Ordering::Release);
        }
        let mut table = self.table();
        let before = table.usable();
        table.set_target(seq.target_highest_slotid);
        let more = table.usable() > before;
        drop(table);
        if more {
            self.freed.notify_waiters();
        }
    }

    fn bury(&self) {
        self.dead.store(true, Ordering::Release);
        self.freed.notify_waiters();
    }
}

/// What to do about a reply to a SEQUENCE.
enum Verdict {
    Done(CompoundRes),
    /// Not executed, the sequence number not counted.
    Refused(NfsStat),
    Again,
    Rebind,
    /// The session is gone.
    Lost,
    /// The server executed it and has no reply any more.
    Uncached,
}

impl Session {
    /// Connects and makes a session, of the version asked for or the highest that both sides have.
    ///
    /// # Errors
    /// When the server cannot be reached, does not speak the version, or refuses.
    pub async fn connect(options: SessionOptions) -> Result<Session, SessionError> {
        if let Some(version) = options.version {
            return Self::connect_as(options, version).await;
        }
        let mut last = None;
        for version in [Version::V42, Version::V41, Version::V3] {
            match Self::connect_as(options.clone(), version).await {
                Err(e) if e.is_other_version() => last = Some(e),
                other => return other,
            }
        }
        Err(last.unwrap_or(SessionError::Ended))
    }

    async fn connect_as(options: SessionOptions, version: Version) -> Result<Session, SessionError> {
        let options = SessionOptions { version: Some(version), ..options };
        if version == Version::V3 {
            return Ok(Session { kind: Kind::Three(Arc::new(Three::connect(options).await?)) });
        }
        let server = match options.host.contains(':') {
            true => format!("[{}]:{}", options.host, options.port),
            false => format!("{}:{}", options.host, options.port),
        };
        let conn = open_connection(&options).await.map_err(|e| SessionError::connect(&server, &e))?;
        let mut verifier = Verifier::default();
        let mut unique = [0; 8];
        getrandom::fill(&mut verifier)
            .and_then(|()| getrandom::fill(&mut unique))
            .map_err(|e| SessionError::Unknown(format!("no random numbers: {e}")))?;
        let owner_name = [&b"landfast "[..], &options.identity.host, &hex(&unique)].join(&b' ');
        let cred = options.identity.credential().to_opaque();
        let links = (0..options.connections.max(1)).map(|_| tokio::sync::Mutex::new(None)).collect();
        let nothing = Epoch {
            number: 0,
            id: SessionId::default(),
            limits: options.ask,
            lease: limits::LEASE_DEFAULT,
            table: Mutex::new(SlotTable::new(0)),
            freed: Notify::new(),
            dead: AtomicBool::new(true),
            reclaim_wanted: AtomicBool::new(false),
        };
        let inner = Arc::new(Inner {
            minor: version.minor(),
            options,
            server,
            cred,
            owner_name,
            epoch: Mutex::new(Arc::new(nothing)),
            links,
            setup: tokio::sync::Mutex::new(Setup { client: None, verifier }),
            renewals_in_a_row: AtomicU32::new(0),
            last_reply_ms: AtomicU64::new(0),
            started: Instant::now(),
            ended: AtomicBool::new(false),
            counters: Counters::default(),
        });
        {
            let mut setup = inner.setup.lock().await;
            inner.establish(&mut setup, conn).await?;
        }
        tokio::spawn(keep_alive(Arc::downgrade(&inner)));
        Ok(Session { kind: Kind::Four(inner) })
    }

    /// Sends `ops` behind a SEQUENCE and waits for the reply, through lost connections and server restarts.
    /// The result has no entry for the SEQUENCE. An operation's failure is part of the reply, not an error
    /// here; DELAY and GRACE of operations too.
    ///
    /// `cachethis` asks the server to keep the reply for a repetition; the reply must then fit in
    /// [`SessionLimits::response_cached`]. Dropping the future does not stop the compound.
    ///
    /// # Errors
    /// [`SessionError::Unknown`] when it may have been executed without its reply being known;
    /// [`SessionError::Refused`] when the server takes no such compound; others when it was not executed.
    pub async fn compound(&self, ops: Vec<ArgOp>, cachethis: bool) -> Result<CompoundRes, SessionError> {
        let mut body = BytesMut::new();
        ops.iter().for_each(|op| op.encode(&mut body));
        self.compound_encoded(body.freeze(), ops.len(), cachethis).await
    }

    /// As [`Session::compound`], with `count` operations that are encoded already.
    ///
    /// # Errors
    /// As [`Session::compound`].
    pub async fn compound_encoded(
        &self,
        ops: Bytes,
        count: usize,
        cachethis: bool,
    ) -> Result<CompoundRes, SessionError> {
        // A task of its own, so that a caller who goes away leaves no slot in an unknown state.
        let task = match self.kind.clone() {
            Kind::Four(inner) => tokio::spawn(async move {
                let done = inner.run(ops, count, cachethis).await;
                inner.end_reclaim().await;
                done
            }),
            Kind::Three(three) => tokio::spawn(async move { three.compound(ops, count).await }),
        };
        task.await.unwrap_or(Err(SessionError::Ended))
    }

    /// The limits of the session in force.
    pub fn limits(&self) -> SessionLimits {
        match &self.kind {
            Kind::Four(inner) => inner.epoch().limits,
            Kind::Three(three) => three.limits(),
        }
    }

    /// The version that is spoken.
    pub fn version(&self) -> Version {
        self.options().version.unwrap_or(Version::V42)
    }

    /// The operations of a COMPOUND cost a round trip each, one after another: many small COMPOUNDs are quicker than few
    /// large ones.
    pub(crate) fn one_by_one(&self) -> bool {
        matches!(self.kind, Kind::Three(_))
    }

    /// The server's lease time.
    pub fn lease(&self) -> Duration {
        match &self.kind {
            Kind::Four(inner) => inner.epoch().lease,
            Kind::Three(_) => limits::LEASE_DEFAULT,
        }
    }

    /// The options that the session was made with.
    pub fn options(&self) -> &SessionOptions {
        match &self.kind {
            Kind::Four(inner) => &inner.options,
            Kind::Three(three) => three.options(),
        }
    }

    /// Host and port, for messages.
    pub fn server(&self) -> &str {
        match &self.kind {
            Kind::Four(inner) => &inner.server,
            Kind::Three(three) => three.server(),
        }
    }

    /// What went over the wire so far.
    pub fn stats(&self) -> SessionStats {
        let c = match &self.kind {
            Kind::Four(inner) => &inner.counters,
            Kind::Three(three) => return three.stats(),
        };
        SessionStats {
            rpcs: c.rpcs.load(Ordering::Relaxed),
            retransmissions: c.retransmissions.load(Ordering::Relaxed),
            renewals: c.renewals.load(Ordering::Relaxed),
            bytes_sent: c.bytes_sent.load(Ordering::Relaxed),
        }
    }

    /// Ends the session and the client ID on the server. Compounds under way are lost. A server that does
    /// not answer within [`limits::GOODBYE_PATIENCE`] is left to its lease timer.
    pub async fn destroy(self) {
        let inner = match &self.kind {
            Kind::Four(inner) => inner,
            Kind::Three(three) => return three.close(),
        };
        if inner.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let epoch = inner.epoch();
        epoch.bury();
        let goodbye = async {
            let client = inner.setup.lock().await.client;
            if let Some(link) = inner.links[0].lock().await.clone() {
                let caller = inner.caller(&link.conn);
                // The server forgets both by itself when this fails.
                let _ = caller.raw(&[ArgOp::DestroySession(epoch.id)]).await;
                if let Some(client) = client {
                    let _ = caller.raw(&[ArgOp::DestroyClientid(client.id)]).await;
                }
                inner.counters.rpcs.fetch_add(2, Ordering::Relaxed);
            }
        };
        let _ = tokio::time::timeout(limits::GOODBYE_PATIENCE, goodbye).await;
        for link in &inner.links {
            if let Some(link) = link.lock().await.take() {
                link.conn.close();
            }
        }
    }
}

impl Inner {
    fn epoch(&self) -> Arc<Epoch> {
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn caller<'a>(&'a self, conn: &'a Connection) -> Caller<'a> {
        Caller { conn, cred: &self.cred, minor: self.minor, patience: self.options.call_patience }
    }

    /// After a restart that the session outlived, the server answers GRACE until the client has said that
    /// it has nothing (more) to reclaim (RFC 8881 sections 18.46.3 and 18.51). Opens are made anew here,
    /// never reclaimed, so it says so at once.
    async fn end_reclaim(&self) {
        let epoch = self.epoch();
        if !epoch.reclaim_wanted.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut body = BytesMut::new();
        ArgOp::ReclaimComplete(false).encode(&mut body);
        // When it is lost, the flag in the next reply asks for it again.
        if let Err(e) = Box::pin(self.run(body.freeze(), 1, true)).await {
            debug!("RECLAIM_COMPLETE to {}: {e}", self.server);
        }
        // Replies that were sent before the server knew may have set it meanwhile.
        epoch.reclaim_wanted.store(false, Ordering::Release);
    }

    async fn run(&self, ops: Bytes, count: usize, cachethis: bool) -> Result<CompoundRes, SessionError> {
        loop {
            if self.ended.load(Ordering::Acquire) {
                return Err(SessionError::Ended);
            }
            let epoch = self.epoch();
            let Some((slot, highest)) = epoch.take().await else {
                self.renew(&epoch).await?;
                continue;
            };
            let sequence = SequenceArgs {
                sessionid: epoch.id,
                sequenceid: slot.seq,
                slotid: slot.id,
                highest_slotid: highest,
                cachethis,
            };
            let mut head = BytesMut::new();
            compound_header(self.minor, count + 1, &mut head);
            ArgOp::Sequence(sequence).encode(&mut head);
            if let Some(done) = self.send(&epoch, slot, [head.freeze(), ops.clone()]).await? {
                return Ok(done);
            }
        }
    }

    /// Sends one request until its fate is known. `None`: the session was lost before the server saw it.
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
        let delays = Instant::now();
        loop {
            let link = match self.link(slot.id as usize % self.links.len(), epoch).await {
                Ok(link) => link,
                Err(e) => {
                    epoch.bury();
                    return Err(if in_doubt { SessionError::Unknown(e.to_string()) } else { e });
                }
            };
            self.counters.rpcs.fetch_add(1, Ordering::Relaxed);
            if !std::mem::take(&mut first) {
                self.counters.retransmissions.fetch_add(1, Ordering::Relaxed);
            }
            let bytes = args.iter().map(Bytes::len).sum::<usize>() as u64;
            self.counters.bytes_sent.fetch_add(bytes, Ordering::Relaxed);
            let reply = link.conn.call(COMPOUND, &self.cred, args.to_vec(), self.options.call_patience).await;
            let reply = match reply {
                Ok(reply) => reply,
                Err(CallError::Closed(why)) => {
                    if self.ended.load(Ordering::Acquire) {
                        return Err(SessionError::Unknown(why.to_string()));
                    }
                    in_doubt = true;
                    sleep(pause).await;
                    pause = (pause * 2).min(limits::BACKOFF_MAX);
                    continue;
                }
                Err(CallError::Timeout(_)) => {
                    warn!("{} does not answer; connecting again", self.server);
                    link.conn.close();
                    in_doubt = true;
                    continue;
                }
                Err(e) => {
                    epoch.put_back(slot, false);
                    return Err(SessionError::Rpc(e));
                }
            };
            let Ok(reply) = CompoundRes::from_bytes(reply) else {
                // The slot's number is in doubt: give up the session with it.
                epoch.bury();
                return Err(SessionError::Unknown("the server's reply cannot be decoded".into()));
            };
            match judge(reply, epoch, slot) {
                Verdict::Done(reply) => {
                    epoch.put_back(slot, true);
                    let now = self.started.elapsed().as_millis() as u64;
                    self.last_reply_ms.store(now, Ordering::Relaxed);
                    self.renewals_in_a_row.store(0, Ordering::Relaxed);
                    return Ok(Some(reply));
                }
                Verdict::Refused(status) => {
                    epoch.put_back(slot, false);
                    return Err(SessionError::Refused(status));
                }
                Verdict::Uncached => {
                    epoch.put_back(slot, true);
                    return Err(SessionError::Unknown("the server kept no reply".into()));
                }
                Verdict::Rebind => {
                    // A session that cannot be bound shows as lost in the next round.
                    let _ = self.caller(&link.conn).bind(epoch.id).await;
                }
                Verdict::Again if delays.elapsed() > limits::DELAY_PATIENCE => {
                    epoch.put_back(slot, false);
                    return Err(SessionError::Refused(NfsStat::NFS4ERR_DELAY));
                }
                Verdict::Again => {}
                Verdict::Lost => {
                    epoch.bury();
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

    /// The connection `index`, open and bound to `epoch`.
    async fn link(&self, index: usize, epoch: &Epoch) -> Result<Link, SessionError> {
        let mut place = self.links[index].lock().await;
        if let Some(link) = place.as_ref()
            && !link.conn.is_closed()
            && link.epoch == epoch.number
        {
            return Ok(link.clone());
        }
        let conn = match place.take().filter(|l| !l.conn.is_closed()) {
            Some(link) => link.conn,
            None => self.reconnect().await?,
        };
        // With SP4_NONE a SEQUENCE binds as well (RFC 8881 section 2.10.3.1), so a failure here is no end.
        self.counters.rpcs.fetch_add(1, Ordering::Relaxed);
        if let Err(e) = self.caller(&conn).bind(epoch.id).await {
            debug!("BIND_CONN_TO_SESSION: {e:?}");
        }
        Ok(place.insert(Link { conn, epoch: epoch.number }).clone())
    }

    async fn reconnect(&self) -> Result<Connection, SessionError> {
        let start = Instant::now();
        let mut pause = limits::BACKOFF_MIN;
        loop {
            if self.ended.load(Ordering::Acquire) {
                return Err(SessionError::Ended);
            }
            match open_connection(&self.options).await {
                Ok(conn) => return Ok(conn),
                Err(e) if start.elapsed() + pause > self.options.reconnect_patience => {
                    return Err(SessionError::connect(&self.server, &e));
                }
                Err(e) => debug!("cannot connect to {}: {e}", self.server),
            }
            sleep(pause).await;
            pause = (pause * 2).min(limits::BACKOFF_MAX);
        }
    }

    /// Makes a new session in place of `old`, unless somebody has.
    async fn renew(&self, old: &Epoch) -> Result<(), SessionError> {
        let mut setup = self.setup.lock().await;
        if self.epoch().number != old.number {
            return Ok(());
        }
        if self.ended.load(Ordering::Acquire) {
            return Err(SessionError::Ended);
        }
        if self.renewals_in_a_row.fetch_add(1, Ordering::Relaxed) >= limits::RENEWALS_MAX {
            return Err(SessionError::Setup {
                server: self.server.clone(),
                step: "SEQUENCE on a new session",
                status: NfsStat::NFS4ERR_BADSESSION,
            });
        }
        self.counters.renewals.fetch_add(1, Ordering::Relaxed);
        let conn = {
            let mut place = self.links[0].lock().await;
            place.take().map(|l| l.conn).filter(|c| !c.is_closed())
        };
        let conn = match conn {
            Some(conn) => conn,
            None => self.reconnect().await?,
        };
        self.establish(&mut setup, conn).await
    }

    /// Client ID, session, first request; then the new epoch is in force, with `conn` as its first link.
    async fn establish(&self, setup: &mut Setup, mut conn: Connection) -> Result<(), SessionError> {
        let start = Instant::now();
        let mut pause = limits::BACKOFF_MIN;
        loop {
            self.counters.rpcs.fetch_add(3, Ordering::Relaxed);
            match self.try_establish(setup, &conn).await {
                Ok(epoch) => {
                    *self.links[0].lock().await = Some(Link { conn, epoch: epoch.number });
                    *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(epoch);
                    return Ok(());
                }
                Err((step, e)) => {
                    let again = match &e {
                        SetupError::Call(CallError::Closed(_) | CallError::Timeout(_)) => {
                            self.epoch().number > 0
                        }
                        SetupError::Call(e) => return Err(SessionError::Rpc(e.clone())),
                        SetupError::Garbled => false,
                        SetupError::Op(_) => matches!(
                            e.status(),
                            Some(
                                NfsStat::NFS4ERR_DELAY
                                    | NfsStat::NFS4ERR_STALE_CLIENTID
                                    | NfsStat::NFS4ERR_SEQ_MISORDERED
                                    | NfsStat::NFS4ERR_BADSESSION
                            )
                        ),
                    };
                    if !again || start.elapsed() > self.options.reconnect_patience {
                        return Err(self.setup_error(step, &e));
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(limits::BACKOFF_MAX);
            if conn.is_closed() {
                conn = self.reconnect().await?;
            }
        }
    }

    async fn try_establish(
        &self,
        setup: &mut Setup,
        conn: &Connection,
    ) -> Result<Epoch, (&'static str, SetupError)> {
        let caller = self.caller(conn);
        let mut first = false;
        let client = match setup.client {
            Some(client) => client,
            None => {
                let res = caller.exchange_id(&self.owner_name, setup.verifier).await;
                let res = res.map_err(|e| ("EXCHANGE_ID", e))?;
                first = res.flags & flags::EXCHGID4_FLAG_CONFIRMED_R == 0;
                *setup.client.insert(ClientId { id: res.clientid, next_seq: res.sequenceid })
            }
        };
        let res = caller.create_session(client, &self.options.ask).await.map_err(|e| {
            if let Some(NfsStat::NFS4ERR_STALE_CLIENTID | NfsStat::NFS4ERR_SEQ_MISORDERED) = e.status() {
                // A restarted server, or a count that got lost: start as a new instance of the client.
                setup.client = None;
                for (i, byte) in setup.verifier.iter_mut().enumerate() {
                    *byte = byte.wrapping_mul(31).wrapping_add(i as u8 + 1);
                }
            }
            ("CREATE_SESSION", e)
        })?;
        setup.client = Some(ClientId { next_seq: client.next_seq.wrapping_add(1), ..client });
        let granted = &res.fore_chan_attrs;
        let limits = SessionLimits {
            request: granted.max_request_size,
            response: granted.max_response_size,
            response_cached: granted.max_response_size_cached,
            ops: granted.max_operations,
            slots: granted.max_requests.min(limits::SLOTS_MAX),
        };
        let lease = caller.first_request(res.sessionid, first).await.map_err(|e| ("first SEQUENCE", e))?;
        let mut table = SlotTable::new(limits.slots.max(1));
        if let Some(slot) = table.take() {
            table.put_back(slot, true);
        }
        Ok(Epoch {
            number: self.epoch().number + 1,
            id: res.sessionid,
            limits,
            lease,
            table: Mutex::new(table),
            freed: Notify::new(),
            dead: AtomicBool::new(false),
            reclaim_wanted: AtomicBool::new(false),
        })
    }

    fn setup_error(&self, step: &'static str, e: &SetupError) -> SessionError {
        match e {
            SetupError::Call(e) => SessionError::Connect { server: self.server.clone(), why: e.to_string() },
            SetupError::Garbled => {
                SessionError::Connect { server: self.server.clone(), why: format!("{step}: no NFSv4 reply") }
            }
            SetupError::Op(e) => {
                SessionError::Setup { server: self.server.clone(), step, status: e.status() }
            }
        }
    }
}

/// Reads the SEQUENCE result (RFC 8881 section 18.46).
fn judge(mut reply: CompoundRes, epoch: &Epoch, slot: Slot) -> Verdict {
    if reply.results.is_empty() {
        // Refused before the SEQUENCE was looked at.
        return match reply.status {
            NfsStat::NFS4ERR_DELAY => Verdict::Again,
            status => Verdict::Refused(status),
        };
    }
    let sequence = reply.results.remove(0);
    match (sequence.op, sequence.status, sequence.body) {
        (OpNum::SEQUENCE, NfsStat::NFS4_OK, ResBody::Sequence(res)) => {
            if res.sequenceid != slot.seq || res.slotid != slot.id {
                return Verdict::Lost;
            }
            epoch.follow(&res);
            Verdict::Done(reply)
        }
        (_, NfsStat::NFS4ERR_DELAY, _) => Verdict::Again,
        (
            _,
            NfsStat::NFS4ERR_BADSESSION
            | NfsStat::NFS4ERR_DEADSESSION
            | NfsStat::NFS4ERR_SEQ_MISORDERED
            | NfsStat::NFS4ERR_SEQ_FALSE_RETRY
            | NfsStat::NFS4ERR_BADSLOT
            | NfsStat::NFS4ERR_BAD_HIGH_SLOT,
            _,
        ) => Verdict::Lost,
        (_, NfsStat::NFS4ERR_CONN_NOT_BOUND_TO_SESSION, _) => Verdict::Rebind,
        (_, NfsStat::NFS4ERR_RETRY_UNCACHED_REP, _) => Verdict::Uncached,
        (_, status, _) => Verdict::Refused(status),
    }
}

async fn open_connection(options: &SessionOptions) -> std::io::Result<Connection> {
    let config = ConnConfig {
        record_max: (options.ask.response as usize).max(1 << 20) + (64 << 10),
        ..ConnConfig::default()
    };
    Connection::connect((options.host.as_str(), options.port), Arc::new(NoService), &config).await
}

/// Renews the lease while nothing else does.
async fn keep_alive(session: Weak<Inner>) {
    loop {
        let Some(inner) = session.upgrade() else { return };
        let pause = (inner.epoch().lease / 3).max(Duration::from_secs(1));
        drop(inner);
        sleep(pause).await;
        let Some(inner) = session.upgrade() else { return };
        if inner.ended.load(Ordering::Acquire) {
            return;
        }
        let last = Duration::from_millis(inner.last_reply_ms.load(Ordering::Relaxed));
        if inner.started.elapsed().saturating_sub(last) >= pause {
            // A failure shows in the next compound that somebody waits for.
            let _ = inner.run(Bytes::new(), 0, false).await;
        }
    }
}

fn hex(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|b| format!("{b:02x}").into_bytes()).collect()
}
