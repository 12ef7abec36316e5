//! Registration with the machine's port mapper (RFC 1833), so that `showmount -e` and a `mount` without `port=` and
//! `mountport=` find this server.
//!
//! When the server starts, it registers each version of every program of [`crate::protocols::Protocols::programs`] for
//! TCP, and for UDP those that take datagrams. A clean stop removes them all. After a crash the next start takes over
//! what is left. A missing port mapper is an error only if one is required.

use landfast_rpc::conn::Program;
use landfast_rpc::rpcbind::{self, Mapping, RpcbindError};
use std::net::{Ipv4Addr, SocketAddr};

/// Whether to register with the port mapper.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PortMapper {
    #[default]
    Off,
    IfThere,
    Required,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rpcbind {
    /// If one runs, and others than this machine can reach the server.
    #[default]
    Auto,
    Off,
    Require,
}

impl Rpcbind {
    /// Its meaning for a server that listens on these addresses.
    pub fn at(self, listen: &[SocketAddr]) -> PortMapper {
        match self {
            // Nobody else could reach what the port mapper would announce.
            Rpcbind::Auto if listen.iter().all(|addr| addr.ip().is_loopback()) => PortMapper::Off,
            Rpcbind::Auto => PortMapper::IfThere,
            Rpcbind::Off => PortMapper::Off,
            Rpcbind::Require => PortMapper::Required,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Registered {
    rpcbind: rpcbind::Rpcbind,
    mappings: Vec<Mapping>,
}

/// The address to register for each family: the first that is listened on, since the port mapper keeps one. `[::]`
/// stands for IPv4, too, if nothing else does.
fn told(addrs: &[SocketAddr]) -> Vec<SocketAddr> {
    let v6 = addrs.iter().find(|a| a.is_ipv6()).copied();
    let all = addrs.iter().find(|a| a.is_ipv6() && a.ip().is_unspecified());
    let v4 = addrs.iter().find(|a| a.is_ipv4()).copied();
    let v4 = v4.or(all.map(|a| SocketAddr::from((Ipv4Addr::UNSPECIFIED, a.port()))));
    [v6, v4].into_iter().flatten().collect()
}

/// What there is to register: each version of each program by TCP and of the others by UDP.
fn wanted((tcp, udp): (&[Program], &[Program]), addrs: &[SocketAddr]) -> Vec<Mapping> {
    let addrs = told(addrs);
    let each = |programs: &[Program], mapping: fn(u32, u32, SocketAddr) -> Mapping| -> Vec<Mapping> {
        programs
            .iter()
            .flat_map(|p| (p.low..=p.high).map(move |version| (p.number, version)))
            .flat_map(|(program, version)| addrs.iter().map(move |addr| mapping(program, version, *addr)))
            .collect()
    };
    [each(tcp, Mapping::tcp), each(udp, Mapping::udp)].concat()
}

impl Registered {
    /// Registers all programs: those served by TCP, and those by UDP. Failure is an error if registration is required,
    /// otherwise it is only logged.
    pub(crate) async fn new(
        how: PortMapper,
        rpcbind: rpcbind::Rpcbind,
        programs: (&[Program], &[Program]),
        addrs: &[SocketAddr],
    ) -> Result<Option<Registered>, RpcbindError> {
        if how == PortMapper::Off {
            return Ok(None);
        }
        let mut registered = Registered { rpcbind, mappings: Vec::new() };
        for mapping in wanted(programs, addrs) {
            match registered.rpcbind.register(&mapping).await {
                Ok(()) => registered.mappings.push(mapping),
                Err(e) if how == PortMapper::Required => {
                    registered.withdraw().await;
                    return Err(e);
                }
                Err(RpcbindError::Unreachable(socket, e)) => {
                    tracing::info!(
                        "no port mapper at {} ({e}): version 3 clients need port= and mountport=",
                        socket.display()
                    );
                    break;
                }
                Err(e) => tracing::warn!("port mapper: {e}"),
            }
        }
        Ok(Some(registered))
    }

    pub(crate) async fn withdraw(self) {
        for mapping in &self.mappings {
            if let Err(e) = self.rpcbind.unregister(mapping).await {
                tracing::warn!("port mapper: {e}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_of_each_program_at_each_kind_of_address() {
        let programs =
            [Program { number: 100_003, low: 3, high: 4 }, Program { number: 100_005, low: 3, high: 3 }];
        let datagrams = [Program { number: 100_021, low: 4, high: 4 }];
        let found = |addrs: &[&str]| {
            let addrs: Vec<_> = addrs.iter().map(|a| a.parse().expect("an address")).collect();
            let rows = wanted((&programs, &datagrams), &addrs);
            let text = |m: &Mapping| {
                let (netid, addr) = (String::from_utf8_lossy(&m.netid), String::from_utf8_lossy(&m.addr));
                format!("{} {} {netid} {addr}", m.program, m.version)
            };
            rows.iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(
            found(&["10.0.0.1:2049", "10.0.0.2:2049"]),
            [
                "100003 3 tcp 10.0.0.1.8.1",
                "100003 4 tcp 10.0.0.1.8.1",
                "100005 3 tcp 10.0.0.1.8.1",
                "100021 4 udp 10.0.0.1.8.1"
            ]
        );
        let both = found(&["[::]:2049"]);
        assert_eq!(both.len(), 8);
        for row in ["100005 3 tcp6 ::.8.1", "100005 3 tcp 0.0.0.0.8.1", "100021 4 udp6 ::.8.1"] {
            assert!(both.contains(&row.to_owned()), "no {row}: {both:?}");
        }
        let both = found(&["[::1]:2049", "10.0.0.1:2049"]);
        assert!(both.contains(&"100021 4 udp6 ::1.8.1".to_owned()), "{both:?}");
        assert!(both.contains(&"100021 4 udp 10.0.0.1.8.1".to_owned()), "{both:?}");
        assert_eq!(found(&["[::1]:2049"]).len(), 4, "nothing for IPv4");
    }

    #[tokio::test]
    async fn without_a_port_mapper_only_who_requires_one_fails() {
        let dir = tempfile::tempdir().expect("a directory");
        let rpcbind = || rpcbind::Rpcbind::at(dir.path().join("absent"));
        let programs = [Program { number: 100_003, low: 3, high: 3 }];
        let addrs = ["127.0.0.1:2049".parse().expect("an address")];
        let off = Registered::new(PortMapper::Off, rpcbind(), (&programs, &programs), &addrs)
            .await
            .expect("no error");
        assert!(off.is_none());
        let none = Registered::new(PortMapper::IfThere, rpcbind(), (&programs, &programs), &addrs)
            .await
            .expect("no error");
        assert!(none.expect("tried").mappings.is_empty());
        assert!(
            Registered::new(PortMapper::Required, rpcbind(), (&programs, &programs), &addrs).await.is_err()
        );
    }
}
