//! The calling side: one connection to a server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream, ToSocketAddrs, lookup_host};
use tokio::time::timeout;

use crate::conn::{ConnConfig, ConnInfo, Service};
use crate::limits;
use crate::tasks;

/// A connection made by this side; closed when its last clone is dropped.
///
/// It does not reconnect. [`ConnInfo::closed`] tells when it has ended; pending calls then fail with
/// [`crate::CallError::Closed`]. The layer above decides what to retry.
#[derive(Clone)]
pub struct Connection {
    owner: Arc<Owner>,
}

struct Owner(Arc<ConnInfo>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Connection {
    /// Connects. `service` answers the server's calls (the back channel); use [`crate::NoService`] when there is none.
    /// Errors: When no connection can be made within [`limits::CONNECT_TIMEOUT`].
    pub async fn connect<S: Service>(
        addr: impl ToSocketAddrs,
        service: Arc<S>,
        config: &ConnConfig,
    ) -> io::Result<Connection> {
        Self::connect_within(addr, service, config, limits::CONNECT_TIMEOUT).await
    }

    /// [`Connection::connect`] with a time limit of the caller's choice.
    pub async fn connect_within<S: Service>(
        addr: impl ToSocketAddrs,
        service: Arc<S>,
        config: &ConnConfig,
        patience: Duration,
    ) -> io::Result<Connection> {
        let connecting = async {
            if !config.reserved_port {
                return TcpStream::connect(addr).await;
            }
            let mut failed = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
            for to in lookup_host(addr).await? {
                match from_reserved_port(to).await {
                    Ok(stream) => return Ok(stream),
                    Err(e) => failed = e,
                }
            }
            Err(failed)
        };
        let stream = timeout(patience, connecting).await.map_err(|_| io::ErrorKind::TimedOut)??;
        Self::over(stream, service, config)
    }

    /// [`Connection::connect_within`] from this address of this machine.
    pub async fn connect_from<S: Service>(
        from: IpAddr,
        to: SocketAddr,
        service: Arc<S>,
        config: &ConnConfig,
        patience: Duration,
    ) -> io::Result<Connection> {
        Self::connect_between(Ends { local: SocketAddr::new(from, 0), peer: to }, service, config, patience)
            .await
    }

    /// Connects again to the peer of an earlier connection, from the same port: some servers recognise retries by the
    /// port, too.
    /// Errors: When no connection can be made within [`limits::CONNECT_TIMEOUT`], or the port is in use.
    pub async fn connect_again<S: Service>(
        earlier: Ends,
        service: Arc<S>,
        config: &ConnConfig,
    ) -> io::Result<Connection> {
        Self::connect_between(earlier, service, config, limits::CONNECT_TIMEOUT).await
    }

    async fn connect_between<S: Service>(
        ends: Ends,
        service: Arc<S>,
        config: &ConnConfig,
        patience: Duration,
    ) -> io::Result<Connection> {
        let connecting = bound_to(ends.local)?.connect(ends.peer);
        let stream = timeout(patience, connecting).await.map_err(|_| io::ErrorKind::TimedOut)??;
        Self::over(stream, service, config)
    }

    fn over<S: Service>(stream: TcpStream, service: Arc<S>, config: &ConnConfig) -> io::Result<Connection> {
        let (conn, _task) = tasks::start(stream, service, config, None)?;
        Ok(Connection { owner: Arc::new(Owner(conn)) })
    }

    pub fn ends(&self) -> Ends {
        Ends { local: self.owner.0.local(), peer: self.owner.0.peer() }
    }
}

fn bound_to(local: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match local {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(local)?;
    Ok(socket)
}

/// Connects from a port that only root can open, since servers with `secure` exports want it. Uses any port if none of
/// these is available.
async fn from_reserved_port(to: SocketAddr) -> io::Result<TcpStream> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let ports = limits::RESERVED_PORTS;
    let count = ports.end() - ports.start() + 1;
    // Does not start at the first port: most of the first ones are taken.
    let first =
        std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.subsec_nanos()) % u32::from(count);
    for n in 0..count {
        let port = ports.start() + (first as u16 + n) % count;
        match bound_to(SocketAddr::new(any, port)) {
            Ok(socket) => match socket.connect(to).await {
                // An earlier connection from this port to the server is not quite over.
                Err(e) if matches!(e.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse) => {}
                done => return done,
            },
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            // Only root and holders of the capability may.
            Err(_) => break,
        }
    }
    TcpStream::connect(to).await
}

impl Deref for Connection {
    type Target = Arc<ConnInfo>;

    fn deref(&self) -> &Arc<ConnInfo> {
        &self.owner.0
    }
}
