//! The listening side: accepts connections and serves them.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::conn::{self, Cause, Closings, ConnConfig, ConnInfo, Service, Shares};
use crate::limits;
use crate::lone::Lone;
use crate::places::{self, Admitted, Newcomer, Open, Places, Seen, Standing};
use crate::rate_limit::RateLimit;
use crate::shares::{Pool, share_of};
use crate::tasks;
use crate::turns::Turns;

/// Limits of a server. The defaults are in [`limits`].
#[derive(Debug, Clone)]
pub struct ServerConfig {
    pub conn: ConnConfig,
    /// Connections at the same time. One more takes the place of another, or is closed on arrival ([`places`]).
    pub connections_max: usize,
    /// Connections of one client (an address) at the same time.
    pub client_connections_max: usize,
    /// Calls of one client that are served at the same time.
    pub client_calls_in_flight_max: usize,
    /// Request bytes of one client that are served or received.
    pub client_bytes_in_flight_max: usize,
    /// Calls that are served at the same time on all connections.
    pub calls_in_flight_max: usize,
    /// Request bytes that are served or received on all connections.
    pub bytes_in_flight_max: usize,
    /// Bytes of large replies of one client that are being made or sent.
    pub client_reply_bytes_max: usize,
    /// Bytes of large replies on all connections that are being made or sent.
    pub reply_bytes_max: usize,
    /// Calls that run, or wait for a thread, at the same time.
    pub turns: usize,
    /// Connections of outsiders at the same time. One more takes the place of the oldest.
    pub outsiders_max: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            conn: ConnConfig { idle_max: Some(limits::SERVER_IDLE_MAX), ..ConnConfig::default() },
            connections_max: limits::CONNECTIONS_MAX,
            client_connections_max: limits::CLIENT_CONNECTIONS_MAX,
            client_calls_in_flight_max: limits::CLIENT_CALLS_IN_FLIGHT_MAX,
            client_bytes_in_flight_max: limits::CLIENT_BYTES_IN_FLIGHT_MAX,
            calls_in_flight_max: limits::SERVER_CALLS_IN_FLIGHT_MAX,
            bytes_in_flight_max: limits::SERVER_BYTES_IN_FLIGHT_MAX,
            client_reply_bytes_max: limits::CLIENT_REPLY_BYTES_MAX,
            reply_bytes_max: limits::SERVER_REPLY_BYTES_MAX,
            turns: limits::TURNS,
            outsiders_max: limits::OUTSIDERS_MAX,
        }
    }
}

/// Open connections, and how many each client has.
#[derive(Default)]
struct Table {
    open: HashMap<u64, Entry>,
    clients: HashMap<IpAddr, Client>,
    outsiders: usize,
    /// Connections whose standing has to be looked up.
    unknown: usize,
    /// The value of [`Service::standings`] for which `open` is sorted.
    standings: u64,
}

#[derive(Default)]
struct Client {
    open: usize,
    /// Until this time the client is at its limit and its connections are not searched for an idle one. So a flood does
    /// not cost a search through all connections each time.
    full_until_ms: u64,
}

struct Entry {
    conn: Weak<ConnInfo>,
    client: IpAddr,
    /// The standing when it was last asked for.
    standing: Standing,
}

impl Table {
    fn insert(&mut self, id: u64, entry: Entry) {
        self.clients.entry(entry.client).or_default().open += 1;
        self.outsiders += usize::from(entry.standing == Standing::Outsider);
        self.unknown += usize::from(entry.standing == Standing::Unknown);
        self.open.insert(id, entry);
    }

    fn remove(&mut self, id: u64) {
        let Some(entry) = self.open.remove(&id) else { return };
        self.outsiders -= usize::from(entry.standing == Standing::Outsider);
        self.unknown -= usize::from(entry.standing == Standing::Unknown);
        if let Some(client) = self.clients.get_mut(&entry.client) {
            client.open -= 1;
            if client.open == 0 {
                self.clients.remove(&entry.client);
            }
        }
    }

    /// Sorts connections again when standings may have changed.
    fn sort<S: Service>(&mut self, service: &S) {
        let standings = service.standings();
        // A standing that was unknown may be known by now.
        let all = standings != self.standings;
        self.standings = standings;
        if !all && self.unknown == 0 {
            return;
        }
        for entry in self.open.values_mut().filter(|e| all || e.standing == Standing::Unknown) {
            if let Some(conn) = entry.conn.upgrade() {
                let before = std::mem::replace(&mut entry.standing, conn.standing_now(service));
                self.outsiders += usize::from(entry.standing == Standing::Outsider);
                self.outsiders -= usize::from(before == Standing::Outsider);
                self.unknown += usize::from(entry.standing == Standing::Unknown);
                self.unknown -= usize::from(before == Standing::Unknown);
            }
        }
    }
}

#[derive(Clone)]
struct All {
    calls: Pool,
    bytes: Pool,
    replies: Pool,
    turns: Turns,
    closings: Arc<Closings>,
    lone: Lone,
}

type Connections = Arc<Mutex<Table>>;

/// What a server holds at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    pub connections: usize,
    pub clients: usize,
    pub calls: usize,
    /// Request bytes being served or received.
    pub bytes: usize,
    /// The most connections of one client.
    pub client_connections: usize,
    /// The most calls of one client.
    pub client_calls: usize,
    /// The most request bytes of one client.
    pub client_bytes: usize,
    /// Bytes of large replies that are being made or sent.
    pub reply_bytes: usize,
    /// The most bytes of large replies of one client.
    pub client_reply_bytes: usize,
    /// The most calls of one connection.
    pub connection_calls: usize,
    /// The most request bytes of one connection.
    pub connection_bytes: usize,
    /// The most bytes of large replies of one connection.
    pub connection_reply_bytes: usize,
    /// Calls that wait for their turn; at most one per connection.
    pub waiting: usize,
    pub clients_waiting: usize,
    /// Connections closed since the start, on arrival or to make room for a newcomer.
    pub refused: u64,
    /// Connections of addresses that no export names.
    pub outsiders: usize,
}

/// A running listener. Dropping it stops accepting and closes all connections at once.
pub struct Server {
    addrs: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    connections: Connections,
    all: All,
    refused: Arc<AtomicU64>,
    accepting: Option<JoinHandle<JoinSet<()>>>,
}

impl Server {
    /// Serves the connections that `listener` accepts; an error if its own address cannot be read.
    pub fn start<S: Service>(
        listener: TcpListener,
        service: Arc<S>,
        config: ServerConfig,
    ) -> std::io::Result<Server> {
        Server::start_all(vec![listener], service, config)
    }

    /// Serves the connections that any of `listeners` accepts, under common limits.
    /// Errors: When a listener's own address cannot be read, or there is no listener.
    pub fn start_all<S: Service>(
        listeners: Vec<TcpListener>,
        service: Arc<S>,
        config: ServerConfig,
    ) -> std::io::Result<Server> {
        let addrs = listeners.iter().map(TcpListener::local_addr).collect::<std::io::Result<Vec<_>>>()?;
        if addrs.is_empty() {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "no address to listen on"));
        }
        let (stop, stopped) = watch::channel(false);
        let connections = Connections::default();
        let all = All {
            calls: Pool::new(
                config.calls_in_flight_max,
                config.client_calls_in_flight_max,
                limits::CALLS_LEAST,
            ),
            bytes: Pool::new(
                config.bytes_in_flight_max,
                config.client_bytes_in_flight_max,
                limits::BYTES_LEAST,
            ),
            replies: Pool::new(
                config.reply_bytes_max,
                config.client_reply_bytes_max,
                limits::REPLY_BYTES_LEAST,
            ),
            turns: Turns::new(config.turns),
            closings: Arc::default(),
            lone: Lone::default(),
        };
        let refused = Arc::new(AtomicU64::new(0));
        let accepting = Acceptor {
            holders: (HashSet::new(), None),
            service,
            all: all.clone(),
            refused: refused.clone(),
            warnings: Default::default(),
            config,
            connections: connections.clone(),
            tasks: JoinSet::new(),
        };
        let accepting = Some(tokio::spawn(accepting.run(listeners, stopped)));
        Ok(Server { addrs, stop, connections, all, refused, accepting })
    }

    /// The first address that the server listens on.
    pub fn local_addr(&self) -> SocketAddr {
        // `start_all` has checked that there is one.
        self.addrs.first().copied().unwrap_or_else(|| SocketAddr::from(([0; 4], 0)))
    }

    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    pub fn connections(&self) -> usize {
        lock(&self.connections).open.len()
    }

    /// A closure that returns the load; it stays valid when the server has been moved.
    pub fn load(&self) -> impl Fn() -> Load + Send + Sync + 'static {
        let (connections, all, refused) = (self.connections.clone(), self.all.clone(), self.refused.clone());
        move || {
            let table = lock(&connections);
            let (waiting, clients_waiting) = all.turns.waiting();
            let held = || table.open.values().filter_map(|e| e.conn.upgrade()).map(|c| c.holds());
            let most_of_one = |i: usize| held().filter_map(|h| h.get(i).copied()).max().unwrap_or(0);
            Load {
                connection_calls: most_of_one(0),
                connection_bytes: most_of_one(1),
                connection_reply_bytes: most_of_one(2),
                connections: table.open.len(),
                clients: table.clients.len(),
                calls: all.calls.used(),
                bytes: all.bytes.used(),
                client_connections: table.clients.values().map(|client| client.open).max().unwrap_or(0),
                client_calls: all.calls.most(),
                client_bytes: all.bytes.most(),
                reply_bytes: all.replies.used(),
                client_reply_bytes: all.replies.most(),
                waiting,
                clients_waiting,
                refused: refused.load(Ordering::Relaxed),
                outsiders: table.outsiders,
            }
        }
    }

    /// Stops accepting, lets calls under way finish and their replies out, then closes. After `grace`
    /// what is left is cut off. Returns whether everything went out.
    pub async fn shutdown(mut self, grace: Duration) -> bool {
        let _ = self.stop.send(true);
        let Some(Ok(mut tasks)) = (match self.accepting.take() {
            Some(task) => Some(task.await),
            None => None,
        }) else {
            return false;
        };
        self.each(ConnInfo::drain);
        let in_time = timeout(grace, async { while tasks.join_next().await.is_some() {} }).await.is_ok();
        self.each(ConnInfo::close);
        // A reader that is in a call which does not end is left behind.
        let ended = timeout(limits::CLOSE_MAX, async { while tasks.join_next().await.is_some() {} });
        let _ = ended.await;
        in_time
    }

    fn each(&self, f: impl Fn(&ConnInfo)) {
        let open: Vec<_> = lock(&self.connections).open.values().filter_map(|e| e.conn.upgrade()).collect();
        open.iter().for_each(|c| f(c));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        self.each(ConnInfo::close);
    }
}

fn lock(connections: &Connections) -> MutexGuard<'_, Table> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next connection of any of them.
async fn accept(listeners: &[TcpListener]) -> std::io::Result<(TcpStream, SocketAddr)> {
    std::future::poll_fn(|cx| {
        let ready = listeners.iter().map(|l| l.poll_accept(cx)).find(Poll::is_ready);
        ready.unwrap_or(Poll::Pending)
    })
    .await
}

struct Acceptor<S> {
    service: Arc<S>,
    config: ServerConfig,
    all: All,
    refused: Arc<AtomicU64>,
    /// That `accept` failed; that there are too many connections, and too many of one client.
    warnings: [RateLimit; 3],
    connections: Connections,
    tasks: JoinSet<()>,
    /// Who holds state, and when that was asked for.
    holders: (HashSet<IpAddr>, Option<u64>),
}

impl<S: Service> Acceptor<S> {
    async fn run(mut self, listeners: Vec<TcpListener>, mut stopped: watch::Receiver<bool>) -> JoinSet<()> {
        loop {
            let accepted = tokio::select! {
                stop = stopped.wait_for(|s| *s) => {
                    drop(stop);
                    return self.tasks;
                }
                Some(_) = self.tasks.join_next() => continue,
                accepted = accept(&listeners) => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.serve(stream, peer),
                Err(e) => {
                    self.warnings[0].warn(|more| warn!("cannot accept a connection: {e}{more}"));
                    // Perhaps for want of descriptors: who would make room for one more does so now.
                    let nobody = Newcomer { client: Ipv4Addr::UNSPECIFIED.into(), standing: Standing::Named };
                    let open = lock(&self.connections).open.len();
                    self.make_room(nobody, open);
                    sleep(limits::ACCEPT_RETRY).await;
                }
            }
        }
    }

    /// Makes room for one more connection where there may be `most`, if anybody can.
    fn make_room(&mut self, new: Newcomer, most: usize) -> Admitted {
        let now = conn::now_ms();
        if self.holders.1.is_none_or(|at| now.saturating_sub(at) > limits::HOLDERS_KNOWN_MS) {
            // Only needed where there is no place; no lock of the service is asked for under the table's.
            let full = lock(&self.connections).open.len() >= most;
            if full {
                self.holders = (self.service.holders(), Some(now));
            }
        }
        let (config, holders) = (&self.config, &self.holders.0);
        let mut table = lock(&self.connections);
        table.sort(&*self.service);
        let (client_open, full_until_ms) =
            table.clients.get(&new.client).map_or((0, 0), |client| (client.open, client.full_until_ms));
        let open = Open { all: table.open.len(), outsiders: table.outsiders, client: client_open };
        let places = Places {
            all: most,
            client: config.client_connections_max,
            outsiders: config.outsiders_max,
            outsider: limits::OUTSIDER_CONNECTIONS_MAX,
        };
        // Of whom room can be made, where that is known beforehand: who floods is not to cost a look at everybody's.
        let (outsider, full) = (new.standing == Standing::Outsider, open.client >= places.client);
        if full && !outsider && now < full_until_ms {
            return Admitted::ClientFull;
        }
        let may_make_room = |e: &Entry| match (outsider, full) {
            (true, _) => e.standing == Standing::Outsider,
            (false, full) => !full || e.client == new.client,
        };
        let seen = || {
            let seen = |(id, e): (&u64, &Entry)| {
                if !may_make_room(e) {
                    return None;
                }
                let conn = e.conn.upgrade()?;
                let (active_ms, busy) = (conn.active_ms(), conn.holds()[0] > 0);
                let holds = holders.contains(&e.client);
                Some(Seen { id: *id, client: e.client, standing: e.standing, active_ms, busy, holds })
            };
            table.open.iter().filter_map(seen).collect()
        };
        let admitted = places::admit(new, now, open, places, seen);
        if admitted == Admitted::ClientFull
            && let Some(client) = table.clients.get_mut(&new.client)
        {
            client.full_until_ms = now + limits::FULL_KNOWN_MS;
        }
        if let Admitted::InPlaceOf(id) = admitted {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let closed = table.open.get(&id).and_then(|e| Some((e.conn.upgrade()?, e.standing)));
            if let Some((conn, _)) = &closed {
                conn.close();
            }
            // Its place is free from now on; its task ends in a moment.
            table.remove(id);
            drop(table);
            if let Some((conn, standing)) = closed {
                let outsider = standing == Standing::Outsider;
                self.all.closings.tell(conn.peer(), outsider, &Cause::Place(new.client));
            }
        }
        admitted
    }

    /// Whether there is a place for a connection from this address.
    fn admit(&mut self, addr: IpAddr, new: Newcomer) -> bool {
        let max = self.config.connections_max;
        match self.make_room(new, max) {
            Admitted::Free | Admitted::InPlaceOf(_) => return true,
            Admitted::ClientFull => {
                let has = self.config.client_connections_max;
                self.warnings[2].warn(|more| info!("connection from {addr} closed: it has {has}{more}"));
            }
            Admitted::Full => {
                self.warnings[1]
                    .warn(|more| warn!("connection from {addr} closed: {max} connections are open{more}"));
            }
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn serve(&mut self, stream: TcpStream, peer: SocketAddr) {
        let addr = peer.ip().to_canonical();
        let new = Newcomer { client: share_of(addr), standing: self.service.standing(addr) };
        if !self.admit(addr, new) {
            return;
        }
        let All { calls, bytes, replies, turns, closings, lone } = self.all.clone();
        let shares = Shares { calls, bytes, replies, turns, client: new.client, closings, lone };
        let started = tasks::start(stream, self.service.clone(), &self.config.conn, Some(shares));
        let (conn, task) = match started {
            Ok(started) => started,
            Err(e) => return debug!("connection from {peer} lost at once: {e}"),
        };
        let connections = self.connections.clone();
        let entry = Entry { conn: Arc::downgrade(&conn), client: new.client, standing: new.standing };
        let id = conn.id();
        lock(&connections).insert(id, entry);
        self.tasks.spawn(async move {
            let _ = task.await;
            lock(&connections).remove(id);
        });
    }
}
