//! A server as something to connect to: opening connections, the way back to one that was lost, and calls that are sent
//! again. What all versions share.
//!
//! | shared state | changed by | read by |
//! |---|---|---|
//! | a line: one connection, and what it was last bound to | who finds it closed, or bound to something older | calls on it |
//! | `answered` | the first reply | how long the server is waited for |
//! | `ended` | the end of the session, once | every wait for the server |
//! | the next transaction id | each call without a session | nobody else |
//!
//! A connection that is made again comes from the same port if it can: servers that keep replies for calls which are sent
//! again know their callers by it.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use landfast_rpc::{CallError, ConnConfig, Connection, Ends, NoService, OpaqueAuth, Service, Target};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::caller;
use crate::counters::{Counters, SessionStats};
use crate::error::SessionError;
use crate::limits;
use crate::options::SessionOptions;
use crate::outage::Health;
use crate::requests;

/// A server, and the identity and options for talking to it.
pub(crate) struct Peer {
    options: SessionOptions,
    server: String,
    cred: OpaqueAuth,
    answered: AtomicBool,
    ended: AtomicBool,
    health: Health,
    pub(crate) counters: Counters,
}

impl Peer {
    pub(crate) fn new(options: SessionOptions) -> Peer {
        let server = match options.host.contains(':') {
            true => format!("[{}]:{}", options.host, options.port),
            false => format!("{}:{}", options.host, options.port),
        };
        let cred = options.identity.credential().to_opaque();
        let (answered, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let health = Health::new(server.clone(), options.watch.clone(), options.reply_patience);
        Peer { options, server, cred, answered, ended, health, counters: Counters::default() }
    }

    /// Waits for work that needs replies of the server; see [`Health::waited`].
    pub(crate) async fn waited<T>(
        &self,
        work: impl Future<Output = Result<T, SessionError>>,
    ) -> Result<T, SessionError> {
        self.health.waited(work).await
    }

    /// Notes that a reply came.
    pub(crate) fn heard(&self) {
        self.health.heard();
    }

    /// Notes the end of a call: any reply shows that the server is there.
    pub(crate) fn called<T>(&self, done: &Result<T, CallError>) {
        if !matches!(done, Err(CallError::Closed(_) | CallError::Timeout(_))) {
            self.heard();
        }
    }

    pub(crate) fn options(&self) -> &SessionOptions {
        &self.options
    }

    /// Host and port, for messages.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn cred(&self) -> &OpaqueAuth {
        &self.cred
    }

    /// The credential of the caller for whom this task works.
    pub(crate) fn caller(&self) -> OpaqueAuth {
        caller::current().unwrap_or_else(|| self.cred.clone())
    }

    /// Notes that it is an NFS server: from now on a long absence is waited out.
    pub(crate) fn has_answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// How long the server may be unreachable, or lose every call, before that is an error.
    pub(crate) fn patience(&self) -> Duration {
        match self.answered.load(Ordering::Relaxed) {
            true => self.options.reconnect_patience,
            false => self.options.reconnect_patience.min(limits::FIRST_ANSWER_PATIENCE),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Sends nothing more. Returns `false` if that was so already.
    pub(crate) fn end(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn stats(&self) -> SessionStats {
        self.counters.stats()
    }

    fn config(&self) -> ConnConfig {
        let record_max = (self.options.ask.response as usize).max(1 << 20) + (64 << 10);
        ConnConfig { record_max, reserved_port: true, ..ConnConfig::default() }
    }

    /// Whether a call that got so many replies which are no RPC records is given up; counts it if so.
    pub(crate) fn gives_up(&self, garbled: u32) -> bool {
        let gives_up = garbled >= limits::GARBLED_MAX;
        self.counters.garbled.fetch_add(u64::from(gives_up), Ordering::Relaxed);
        gives_up
    }

    /// One try to connect to a port of the server.
    pub(crate) async fn open(&self, port: u16) -> io::Result<Connection> {
        let to = (self.options.host.as_str(), port);
        Connection::connect(to, Arc::new(NoService), &self.config()).await
    }

    /// One try to connect, with a service that answers the server's calls.
    pub(crate) async fn listen<S: Service>(&self, service: Arc<S>) -> io::Result<Connection> {
        let to = (self.options.host.as_str(), self.options.port);
        Connection::connect(to, service, &self.config()).await
    }

    /// The first connection. While it is refused, as by a server that is being restarted, it is tried for
    /// [`SessionOptions::refused_patience`].
    pub(crate) async fn connect(&self) -> Result<Connection, SessionError> {
        let patience =
            self.options.refused_patience.min(self.options.reply_patience.unwrap_or(Duration::MAX));
        let start = Instant::now();
        let mut told = false;
        loop {
            // A pause between two tries is no silence: the machine has answered.
            let tried = self.waited(async { Ok(self.open(self.options.port).await) }).await?;
            let watch = self.options.watch.as_ref();
            let refused = match tried {
                Err(e) if is_refusal(&e) => e,
                other => {
                    if let Some(watch) = watch.filter(|_| told) {
                        watch.refuses_no_more(&self.server, other.is_ok());
                    }
                    return other.map_err(|e| SessionError::connect(&self.server, &e));
                }
            };
            let (since, pause) = (start.elapsed(), limits::REFUSED_PAUSE);
            if since + pause > patience {
                if let Some(watch) = watch.filter(|_| told) {
                    watch.refuses_no_more(&self.server, false);
                }
                return Err(match patience.is_zero() {
                    true => SessionError::connect(&self.server, &refused),
                    false => SessionError::Connect {
                        server: self.server.clone(),
                        why: format!("{refused}, in each try of {:.1} s", since.as_secs_f64()),
                    },
                });
            }
            if let Some(watch) = watch.filter(|_| !told && since >= limits::REFUSED_TOLD_AFTER) {
                told = true;
                watch.refuses(&self.server, patience);
            }
            sleep(pause).await;
        }
    }

    /// One try of a further connection.
    pub(crate) async fn connect_once(&self) -> Result<Connection, SessionError> {
        self.open(self.options.port).await.map_err(|e| SessionError::connect(&self.server, &e))
    }

    /// A connection in place of an earlier one, tried for [`Peer::patience`].
    async fn reconnect(&self, earlier: Option<Ends>) -> Result<Connection, SessionError> {
        let start = Instant::now();
        let mut pause = limits::BACKOFF_MIN;
        let mut same_port = limits::SAME_PORT_TRIES;
        loop {
            if self.has_ended() {
                return Err(SessionError::Ended);
            }
            let again = match earlier {
                Some(ends) if same_port > 0 => {
                    Connection::connect_again(ends, Arc::new(NoService), &self.config()).await
                }
                _ => self.open(self.options.port).await,
            };
            let e = match again {
                Ok(conn) => return Ok(conn),
                Err(e) => e,
            };
            if start.elapsed() + pause > self.patience() {
                return Err(SessionError::connect(&self.server, &e));
            }
            debug!("cannot connect to {}: {e}", self.server);
            match e.kind() {
                // The earlier connection has not ended yet.
                io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable if same_port > 0 => {
                    same_port -= 1;
                    sleep(limits::BACKOFF_MIN).await;
                    continue;
                }
                io::ErrorKind::ConnectionRefused => {}
                // The server may have moved to another address.
                _ => same_port = 0,
            }
            sleep(pause).await;
            pause = (pause * 2).min(limits::RECONNECT_PAUSE_MAX);
        }
    }
}

/// Nobody listens there, or the listener has just ended: its end resets connections that it has not accepted.
fn is_refusal(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted
    )
}

/// Holds one connection.
#[derive(Default)]
pub(crate) struct ConnectionSlot {
    place: Mutex<Place>,
}

#[derive(Default)]
struct Place {
    conn: Option<Connection>,
    /// What the connection is bound to; 0: nothing.
    bound: u64,
    ends: Option<Ends>,
}

impl ConnectionSlot {
    /// Makes `count` slots, at least one. The first holds `first`.
    pub(crate) async fn several(count: usize, first: Option<Connection>) -> Vec<ConnectionSlot> {
        let lines: Vec<ConnectionSlot> = (0..count.max(1)).map(|_| ConnectionSlot::default()).collect();
        if let (Some(line), Some(conn)) = (lines.first(), first) {
            line.hold().await.keep(conn, 0);
        }
        lines
    }

    /// Waits for exclusive use of the slot.
    pub(crate) async fn hold(&self) -> ConnectionGuard<'_> {
        ConnectionGuard { place: self.place.lock().await }
    }
}

/// Exclusive use of a slot.
pub(crate) struct ConnectionGuard<'a> {
    place: MutexGuard<'a, Place>,
}

impl ConnectionGuard<'_> {
    /// The connection, if it is open and bound to `to`.
    pub(crate) fn ready(&self, to: u64) -> Option<Connection> {
        self.place.conn.as_ref().filter(|conn| self.place.bound == to && !conn.is_closed()).cloned()
    }

    /// The connection, opened again if necessary, whatever it is bound to. Fails when the server cannot be reached for
    /// too long, or the session has ended.
    pub(crate) async fn open(&mut self, peer: &Peer) -> Result<Connection, SessionError> {
        if let Some(conn) = self.place.conn.take().filter(|conn| !conn.is_closed()) {
            return Ok(self.keep(conn, self.place.bound));
        }
        let conn = peer.reconnect(self.place.ends).await?;
        Ok(self.keep(conn, 0))
    }

    /// Stores a connection.
    pub(crate) fn keep(&mut self, conn: Connection, bound: u64) -> Connection {
        self.place.ends = Some(conn.ends());
        self.place.bound = bound;
        self.place.conn.insert(conn).clone()
    }

    pub(crate) fn close(&mut self) {
        if let Some(conn) = self.place.conn.take() {
            conn.close();
        }
    }
}

/// Connections for calls that need no session: each is sent, under one transaction id and over one line, until its reply
/// comes, so that the server's duplicate request cache knows it again (RFC 5531 section 9).
pub(crate) struct Connections {
    pub(crate) peer: Arc<Peer>,
    lines: Vec<ConnectionSlot>,
    turn: AtomicUsize,
    next_xid: AtomicU32,
}

pub(crate) struct Answer {
    pub(crate) results: Bytes,
    /// It was sent more than once. It may be the answer to a second execution, if the server has not kept the first
    /// reply.
    pub(crate) again: bool,
}

impl Connections {
    /// Connects. Fails when the server cannot be reached.
    pub(crate) async fn connect(peer: Arc<Peer>) -> Result<Connections, SessionError> {
        let first = peer.connect().await?;
        let lines = ConnectionSlot::several(peer.options.connections, Some(first)).await;
        let next_xid =
            getrandom::u32().map_err(|e| SessionError::Unknown(format!("no random numbers: {e}")))?;
        Ok(Connections { peer, lines, turn: AtomicUsize::new(0), next_xid: AtomicU32::new(next_xid) })
    }

    /// Makes one call and waits for its reply. [`SessionError::Unknown`] if it was sent and no reply comes within
    /// [`Peer::patience`]; after other errors it was not executed.
    pub(crate) async fn call(&self, to: Target, args: Vec<Bytes>) -> Result<Answer, SessionError> {
        self.peer.waited(self.call_on(to, args)).await
    }

    async fn call_on(&self, to: Target, args: Vec<Bytes>) -> Result<Answer, SessionError> {
        let index = self.turn.fetch_add(1, Ordering::Relaxed) % self.lines.len().max(1);
        let line = self.lines.get(index).ok_or(SessionError::Ended)?;
        let xid = self.next_xid.fetch_add(1, Ordering::Relaxed);
        let options = self.peer.options();
        let cred = self.peer.caller();
        let start = Instant::now();
        let mut pause = limits::BACKOFF_MIN;
        let mut again = false;
        let mut garbled = 0;
        loop {
            if self.peer.has_ended() {
                return Err(match again {
                    true => SessionError::Unknown(SessionError::Ended.to_string()),
                    false => SessionError::Ended,
                });
            }
            let conn = {
                let mut held = line.hold().await;
                match held.ready(0) {
                    Some(conn) => conn,
                    None => held.open(&self.peer).await.map_err(|e| match again {
                        true => SessionError::Unknown(e.to_string()),
                        false => e,
                    })?,
                }
            };
            self.peer.counters.sent(&args, again);
            let done = conn.call_as(xid, to, &cred, args.clone(), options.call_patience);
            let done = requests::logged(to, &args, done).await;
            self.peer.called(&done);
            let why = match done {
                Ok(results) => {
                    self.peer.counters.received(&results);
                    self.peer.has_answered();
                    return Ok(Answer { results, again });
                }
                Err(e @ CallError::Timeout(_)) => {
                    warn!("{} does not answer; connecting again", self.peer.server);
                    conn.abort();
                    e
                }
                Err(e @ CallError::Closed(_)) => {
                    garbled += u32::from(conn.is_garbled());
                    e
                }
                // The first transmission may have been executed.
                Err(e) if again => return Err(SessionError::Unknown(e.to_string())),
                Err(e) => return Err(SessionError::Rpc(e)),
            };
            if start.elapsed() > self.peer.patience() || self.peer.gives_up(garbled) {
                return Err(SessionError::Unknown(why.to_string()));
            }
            again = true;
            sleep(pause).await;
            pause = (pause * 2).min(limits::BACKOFF_MAX);
        }
    }

    pub(crate) async fn close(&self) {
        for line in &self.lines {
            line.hold().await.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that ends resets or refuses a connection that is being made.
    #[test]
    fn a_server_that_is_being_started_again_refuses_or_resets() {
        for (kind, refusal) in [
            (io::ErrorKind::ConnectionRefused, true),
            (io::ErrorKind::ConnectionReset, true),
            (io::ErrorKind::ConnectionAborted, true),
            (io::ErrorKind::HostUnreachable, false),
            (io::ErrorKind::TimedOut, false),
        ] {
            assert_eq!(is_refusal(&kind.into()), refusal, "{kind:?}");
        }
    }
}
