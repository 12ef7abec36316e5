//! The calling side: one connection to a server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream, ToSocketAddrs, lookup_host};
use tokio::time::timeout;

use crate::conn::{self, ConnConfig, ConnInfo, Service};
use crate::limits;

/// A connection that this side made; closed when the last clone of it is dropped.
///
/// It does not reconnect by itself: [`ConnInfo::closed`] tells when it ended, calls under way end with
/// [`crate::CallError::Closed`], and what to send again is for the layer above to know.
#[derive(Clone)]
pub struct Connection {
    owner: Arc<Owner>,
}

struct Owner(Arc<ConnInfo>);

/// The addresses of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// This end's.
    pub local: SocketAddr,
    /// The other end's.
    pub peer: SocketAddr,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Connection {
    /// Connects. `service` answers the calls that come from the server (the back channel):
    /// [`crate::NoService`] when there is none.
    ///
    /// # Errors
    /// When no connection can be made within [`limits::CONNECT_TIMEOUT`].
    pub async fn connect<S: Service>(
        addr: impl ToSocketAddrs,
        service: Arc<S>,
        config: &ConnConfig,
    ) -> io::Result<Connection> {
        Self::connect_within(addr, service, config, limits::CONNECT_TIMEOUT).await
    }

    /// As [`Connection::connect`], with a time of the caller's choice.
    ///
    /// # Errors
    /// When no connection can be made in that time.
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

    /// Connects to the other end of an earlier connection, from the same port: servers know calls that are sent again by
    /// the port, too.
    ///
    /// # Errors
    /// When no connection can be made within [`limits::CONNECT_TIMEOUT`], or the port is in use.
    pub async fn connect_again<S: Service>(
        earlier: Ends,
        service: Arc<S>,
        config: &ConnConfig,
    ) -> io::Result<Connection> {
        let socket = bound_to(earlier.local)?;
        let stream = timeout(limits::CONNECT_TIMEOUT, socket.connect(earlier.peer)).await;
        Self::over(stream.map_err(|_| io::ErrorKind::TimedOut)??, service, config)
    }

    fn over<S: Service>(stream: TcpStream, service: Arc<S>, config: &ConnConfig) -> io::Result<Connection> {
        let (conn, _task) = conn::start(stream, service, config, None)?;
        Ok(Connection { owner: Arc::new(Owner(conn)) })
    }

    /// Both addresses, for [`Connection::connect_again`].
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

/// Connects from a port that only root opens, as servers want it whose exports are `secure`; from any where there is none to
/// be had.
async fn from_reserved_port(to: SocketAddr) -> io::Result<TcpStream> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let ports = limits::RESERVED_PORTS;
    let count = ports.end() - ports.start() + 1;
    // Not all from the first one on: most of those are taken.
    let first =
        std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.subsec_nanos()) % u32::from(count);
    for n in 0..count {
        let port = ports.start() + (first as u16 + n) % count;
        match bound_to(SocketAddr::new(any, port)) {
            Ok(socket) => match socket.connect(to).await {
                // This one and the server's have a connection that is not quite over.
                Err(e) if matches!(e.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse) => {}
                done => return done,
            },
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            // Only root may, and who has the capability.
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
