//! The sockets that the server listens on: at each address one for TCP, and one for the datagrams of the lock manager and
//! the status monitor. Both are bound before the server says that it runs.

use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket, UdpSocket};

/// Connections that wait to be accepted.
const LISTEN_BACKLOG: u32 = 1024;
/// How many free ports are tried to find one that is also free for datagrams.
const FREE_PORTS_TRIED: usize = 16;

pub(crate) struct Listening {
    pub(crate) tcp: TcpListener,
    /// For datagrams; `None` when another program has the port, or none are served.
    pub(crate) udp: Option<UdpSocket>,
}

/// Binds all of `addrs` for connections and, if served, for datagrams. Port 0 gets a port that is free for both. The
/// error names the address.
pub(crate) fn all(addrs: &[SocketAddr], datagrams: bool) -> Result<Vec<Listening>, (SocketAddr, io::Error)> {
    let one = |addr: SocketAddr| match datagrams {
        true => both(addr, addrs),
        false => bind_tcp(addr, addrs).map(|tcp| Listening { tcp, udp: None }),
    };
    addrs.iter().map(|addr| one(*addr).map_err(|e| (*addr, e))).collect()
}

pub(crate) fn tcp(addr: SocketAddr) -> io::Result<TcpListener> {
    bind_tcp(addr, &[])
}

fn both(addr: SocketAddr, all: &[SocketAddr]) -> io::Result<Listening> {
    // Kept until one fits, so that the system does not offer the same port again.
    let mut taken = Vec::new();
    loop {
        let tcp = bind_tcp(addr, all)?;
        match bind_udp(tcp.local_addr()?, beside_all_of_ipv4(addr, all)) {
            Ok(udp) => return Ok(Listening { tcp, udp: Some(udp) }),
            Err(e)
                if addr.port() == 0
                    && e.kind() == io::ErrorKind::AddrInUse
                    && taken.len() + 1 < FREE_PORTS_TRIED =>
            {
                taken.push(tcp);
            }
            Err(e) => {
                tracing::warn!("no locks of NFSv3 clients over UDP: cannot listen on {addr}: {e}");
                return Ok(Listening { tcp, udp: None });
            }
        }
    }
}

/// If the list has both the IPv4 and the IPv6 wildcard address on one port, the latter takes IPv6 only.
fn bind_tcp(addr: SocketAddr, all: &[SocketAddr]) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if beside_all_of_ipv4(addr, all) {
        crate::sys::only_ipv6(&socket)?;
    }
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(LISTEN_BACKLOG)
}

fn bind_udp(addr: SocketAddr, only_ipv6: bool) -> io::Result<UdpSocket> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    if only_ipv6 {
        crate::sys::only_ipv6(&socket)?;
    }
    bind(&socket, &addr)?;
    UdpSocket::from_std(socket.into())
}

/// Whether `addr` is all of IPv6, and all of IPv4 on the same port is in the list.
fn beside_all_of_ipv4(addr: SocketAddr, all: &[SocketAddr]) -> bool {
    let beside = |a: &SocketAddr| a.is_ipv4() && a.ip().is_unspecified() && a.port() == addr.port();
    addr.is_ipv6() && addr.ip().is_unspecified() && addr.port() != 0 && all.iter().any(beside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_free_port_is_free_for_datagrams_too() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        // Many at a time: each has both, whatever the others of this test and of this machine took.
        let bound: Vec<_> = (0..200).map(|_| both(any, &[any]).expect("a free port")).collect();
        for Listening { tcp, udp } in &bound {
            let udp = udp.as_ref().expect("a socket for datagrams");
            assert_eq!(tcp.local_addr().expect("an address"), udp.local_addr().expect("an address"));
        }
    }

    #[tokio::test]
    async fn a_port_whose_datagrams_another_has_serves_connections() {
        let other = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let addr = other.local_addr().expect("an address");
        // The port may be another's for connections, and then there is nothing to see.
        if let Ok(bound) = both(addr, &[addr]) {
            assert!(bound.udp.is_none());
            assert_eq!(bound.tcp.local_addr().expect("an address"), addr);
        }
    }
}
