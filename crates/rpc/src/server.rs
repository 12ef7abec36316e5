//! The listening side: accepts connections and serves them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::conn::{self, Budget, ConnConfig, ConnInfo, Service, Shares};
use crate::limits;
use crate::seldom::Seldom;
use crate::turns::Turns;

/// Limits of a server; the defaults are those of [`limits`].
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Limits of each connection.
    pub conn: ConnConfig,
    /// Connections at the same time; more are closed when they arrive.
    pub connections_max: usize,
    /// The same of one client (an address).
    pub client_connections_max: usize,
    /// Calls of one client being served at the same time.
    pub client_calls_in_flight_max: usize,
    /// Request bytes of one client being served or received.
    pub client_bytes_in_flight_max: usize,
    /// Calls being served at the same time on all connections.
    pub calls_in_flight_max: usize,
    /// Request bytes being served or received on all connections together.
    pub bytes_in_flight_max: usize,
    /// Bytes of large replies of one client that are being made or sent.
    pub client_reply_bytes_max: usize,
    /// The same of all connections together.
    pub reply_bytes_max: usize,
    /// Calls that run, or wait for a thread, at the same time.
    pub turns: usize,
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
        }
    }
}

/// Connections that are open, and the clients that have any.
#[derive(Default)]
struct Table {
    open: HashMap<u64, Weak<ConnInfo>>,
    clients: HashMap<IpAddr, Client>,
}

/// One address.
struct Client {
    connections: usize,
    calls: Budget,
    bytes: Budget,
    replies: Budget,
}

impl Client {
    /// Whether calls of it still hold something.
    fn holds(&self) -> bool {
        [&self.calls, &self.bytes, &self.replies].iter().any(|b| b.used() > 0)
    }
}

/// What all connections share.
#[derive(Clone)]
struct All {
    calls: Budget,
    bytes: Budget,
    replies: Budget,
    turns: Turns,
}

type Connections = Arc<Mutex<Table>>;

/// What a server holds at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Connections.
    pub connections: usize,
    /// Addresses that they come from.
    pub clients: usize,
    /// Calls being served.
    pub calls: usize,
    /// Request bytes being served or received.
    pub bytes: usize,
    /// Connections of the client that has most.
    pub client_connections: usize,
    /// Calls of the client that has most.
    pub client_calls: usize,
    /// Request bytes of the client that has most.
    pub client_bytes: usize,
    /// Bytes of large replies that are being made or sent.
    pub reply_bytes: usize,
    /// The same of the client that has most.
    pub client_reply_bytes: usize,
    /// Calls of the connection that has most,
    pub connection_calls: usize,
    /// request bytes of the one that has most,
    pub connection_bytes: usize,
    /// and bytes of large replies.
    pub connection_reply_bytes: usize,
    /// Calls that wait for their turn; no more than one of each connection.
    pub waiting: usize,
    /// Clients that have such.
    pub clients_waiting: usize,
    /// Connections that were closed when they came, since the start.
    pub refused: u64,
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
    /// Serves the connections that `listener` accepts.
    ///
    /// # Errors
    /// When the listener's own address cannot be read.
    pub fn start<S: Service>(
        listener: TcpListener,
        service: Arc<S>,
        config: ServerConfig,
    ) -> std::io::Result<Server> {
        Server::start_all(vec![listener], service, config)
    }

    /// Serves the connections that any of `listeners` accepts; the limits are for all of them together.
    ///
    /// # Errors
    /// When a listener's own address cannot be read, or there is none.
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
            calls: Budget::new(config.calls_in_flight_max),
            bytes: Budget::new(config.bytes_in_flight_max),
            replies: Budget::new(config.reply_bytes_max),
            turns: Turns::new(config.turns),
        };
        let refused = Arc::new(AtomicU64::new(0));
        let accepting = Acceptor {
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

    /// The address that is listened on; the first of several.
    pub fn local_addr(&self) -> SocketAddr {
        // There is one: `start_all` has seen to it.
        self.addrs.first().copied().unwrap_or_else(|| SocketAddr::from(([0; 4], 0)))
    }

    /// All addresses that are listened on.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        lock(&self.connections).open.len()
    }

    /// A closure that tells what the server holds, also when it has been moved.
    pub fn load(&self) -> impl Fn() -> Load + Send + Sync + 'static {
        let (connections, all, refused) = (self.connections.clone(), self.all.clone(), self.refused.clone());
        move || {
            let table = lock(&connections);
            let (waiting, clients_waiting) = all.turns.waiting();
            let most = |f: fn(&Client) -> usize| table.clients.values().map(f).max().unwrap_or(0);
            let held = || table.open.values().filter_map(Weak::upgrade).map(|c| c.holds());
            let most_of_one = |i: usize| held().filter_map(|h| h.get(i).copied()).max().unwrap_or(0);
            Load {
                connection_calls: most_of_one(0),
                connection_bytes: most_of_one(1),
                connection_reply_bytes: most_of_one(2),
                connections: table.open.len(),
                clients: table.clients.len(),
                calls: all.calls.used(),
                bytes: all.bytes.used(),
                client_connections: most(|c| c.connections),
                client_calls: most(|c| c.calls.used()),
                client_bytes: most(|c| c.bytes.used()),
                reply_bytes: all.replies.used(),
                client_reply_bytes: most(|c| c.replies.used()),
                waiting,
                clients_waiting,
                refused: refused.load(Ordering::Relaxed),
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
        while tasks.join_next().await.is_some() {}
        in_time
    }

    fn each(&self, f: impl Fn(&ConnInfo)) {
        let open: Vec<_> = lock(&self.connections).open.values().filter_map(Weak::upgrade).collect();
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
    warnings: [Seldom; 3],
    connections: Connections,
    tasks: JoinSet<()>,
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
                    sleep(limits::ACCEPT_RETRY).await;
                }
            }
        }
    }

    /// Room for one more connection of this address: what it shares.
    fn admit(&self, addr: IpAddr) -> Option<Shares> {
        let config = &self.config;
        let mut table = lock(&self.connections);
        if table.open.len() >= config.connections_max {
            let max = config.connections_max;
            self.warnings[1]
                .warn(|more| warn!("connection from {addr} closed: {max} connections are open{more}"));
            return None;
        }
        let client = table.clients.entry(addr).or_insert_with(|| Client {
            connections: 0,
            calls: Budget::new(config.client_calls_in_flight_max),
            bytes: Budget::new(config.client_bytes_in_flight_max),
            replies: Budget::new(config.client_reply_bytes_max),
        });
        if client.connections >= config.client_connections_max {
            let has = client.connections;
            self.warnings[2].warn(|more| info!("connection from {addr} closed: it has {has}{more}"));
            return None;
        }
        client.connections += 1;
        let All { calls, bytes, replies, turns } = self.all.clone();
        Some(Shares {
            calls: [client.calls.clone(), calls],
            bytes: [client.bytes.clone(), bytes],
            replies: [client.replies.clone(), replies],
            turns,
            client: addr,
        })
    }

    fn serve(&mut self, stream: TcpStream, peer: SocketAddr) {
        let addr = peer.ip().to_canonical();
        let Some(shares) = self.admit(addr) else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let leaves = Leaves(self.connections.clone(), addr);
        let started = conn::start(stream, self.service.clone(), &self.config.conn, Some(shares));
        let (conn, task) = match started {
            Ok(started) => started,
            Err(e) => return debug!("connection from {peer} lost at once: {e}"),
        };
        let connections = self.connections.clone();
        lock(&connections).open.insert(conn.id(), Arc::downgrade(&conn));
        let id = conn.id();
        self.tasks.spawn(async move {
            let _ = task.await;
            lock(&connections).open.remove(&id);
            drop(leaves);
        });
    }
}

/// A connection of this address that ends when this is dropped. Calls of it that still run keep what they hold.
struct Leaves(Connections, IpAddr);

impl Drop for Leaves {
    fn drop(&mut self) {
        let mut table = lock(&self.0);
        if let Some(client) = table.clients.get_mut(&self.1) {
            client.connections -= 1;
            // With calls under way the same budgets must stand when it comes back.
            if client.connections == 0 && !client.holds() {
                table.clients.remove(&self.1);
            }
        }
        if table.clients.len() > limits::CLIENTS_REMEMBERED_MAX {
            table.clients.retain(|_, c| c.connections > 0 || c.holds());
        }
    }
}
