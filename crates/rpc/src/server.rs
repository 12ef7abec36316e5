//! The listening side: accepts connections and serves them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::conn::{self, Budget, ConnConfig, ConnInfo, Service};
use crate::limits;

/// Limits of a server; the defaults are those of [`limits`].
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Limits of each connection.
    pub conn: ConnConfig,
    /// Connections at the same time; more are closed when they arrive.
    pub connections_max: usize,
    /// Request bytes being served on all connections together.
    pub bytes_in_flight_max: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            conn: ConnConfig { idle_max: Some(limits::SERVER_IDLE_MAX), ..ConnConfig::default() },
            connections_max: limits::CONNECTIONS_MAX,
            bytes_in_flight_max: limits::SERVER_BYTES_IN_FLIGHT_MAX,
        }
    }
}

type Connections = Arc<Mutex<HashMap<u64, Weak<ConnInfo>>>>;

/// A running listener. Dropping it stops accepting and closes all connections at once.
pub struct Server {
    addr: SocketAddr,
    stop: watch::Sender<bool>,
    connections: Connections,
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
        let addr = listener.local_addr()?;
        let (stop, stopped) = watch::channel(false);
        let connections = Connections::default();
        let accepting = Acceptor {
            service,
            shared: Budget::new(config.bytes_in_flight_max),
            config,
            connections: connections.clone(),
            tasks: JoinSet::new(),
        };
        let accepting = Some(tokio::spawn(accepting.run(listener, stopped)));
        Ok(Server { addr, stop, connections, accepting })
    }

    /// The address that is listened on.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        lock(&self.connections).len()
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
        let open: Vec<_> = lock(&self.connections).values().filter_map(Weak::upgrade).collect();
        open.iter().for_each(|c| f(c));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        self.each(ConnInfo::close);
    }
}

fn lock(connections: &Connections) -> MutexGuard<'_, HashMap<u64, Weak<ConnInfo>>> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Acceptor<S> {
    service: Arc<S>,
    config: ServerConfig,
    shared: Budget,
    connections: Connections,
    tasks: JoinSet<()>,
}

impl<S: Service> Acceptor<S> {
    async fn run(mut self, listener: TcpListener, mut stopped: watch::Receiver<bool>) -> JoinSet<()> {
        loop {
            let accepted = tokio::select! {
                stop = stopped.wait_for(|s| *s) => {
                    drop(stop);
                    return self.tasks;
                }
                Some(_) = self.tasks.join_next() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.serve(stream, peer),
                Err(e) => {
                    warn!("cannot accept a connection: {e}");
                    sleep(limits::ACCEPT_RETRY).await;
                }
            }
        }
    }

    fn serve(&mut self, stream: TcpStream, peer: SocketAddr) {
        if lock(&self.connections).len() >= self.config.connections_max {
            warn!("connection from {peer} closed: {} connections are open", self.config.connections_max);
            return;
        }
        let started = conn::start(stream, self.service.clone(), &self.config.conn, Some(self.shared.clone()));
        let (conn, task) = match started {
            Ok(started) => started,
            Err(e) => return debug!("connection from {peer} lost at once: {e}"),
        };
        let connections = self.connections.clone();
        lock(&connections).insert(conn.id(), Arc::downgrade(&conn));
        let id = conn.id();
        self.tasks.spawn(async move {
            let _ = task.await;
            lock(&connections).remove(&id);
        });
    }
}
