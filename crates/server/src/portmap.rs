//! Registration with the machine's port mapper (RFC 1833): so that `showmount -e` and a `mount` without `port=` and
//! `mountport=` find this server.
//!
//! Every program of [`crate::serve::PROGRAMS`] is registered in each of its versions when the server starts, and taken
//! away when it stops cleanly; what a crash leaves behind is taken over by the next start. No port mapper is no error
//! unless one is required.

use landfast_rpc::conn::Program;
use landfast_rpc::rpcbind::{Mapping, Rpcbind, RpcbindError};
use std::net::{Ipv4Addr, SocketAddr};

/// Whether to register with the port mapper.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PortMapper {
    /// No.
    #[default]
    Off,
    /// If one runs.
    IfThere,
    /// Without one the server does not start.
    Required,
}

/// What is registered.
#[derive(Debug)]
pub(crate) struct Registered {
    rpcbind: Rpcbind,
    mappings: Vec<Mapping>,
}

/// What there is to register: each version of each program at the address that is listened on. `[::]` takes IPv4, too.
fn wanted(programs: &[Program], addr: SocketAddr) -> Vec<Mapping> {
    let both = addr.is_ipv6() && addr.ip().is_unspecified();
    let v4 = both.then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, addr.port())));
    let addrs: Vec<_> = [Some(addr), v4].into_iter().flatten().collect();
    programs
        .iter()
        .flat_map(|p| (p.low..=p.high).map(move |version| (p.number, version)))
        .flat_map(|(program, version)| addrs.iter().map(move |addr| Mapping::tcp(program, version, *addr)))
        .collect()
}

impl Registered {
    /// Registers all programs.
    ///
    /// # Errors
    /// When it is required and cannot be done. Otherwise what cannot be done is said in the log.
    pub(crate) async fn new(
        how: PortMapper,
        rpcbind: Rpcbind,
        programs: &[Program],
        addr: SocketAddr,
    ) -> Result<Option<Registered>, RpcbindError> {
        if how == PortMapper::Off {
            return Ok(None);
        }
        let mut registered = Registered { rpcbind, mappings: Vec::new() };
        for mapping in wanted(programs, addr) {
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

    /// Takes all away.
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
        let found = |addr: &str| {
            let rows = wanted(&programs, addr.parse().expect("an address"));
            let text = |m: &Mapping| {
                let (netid, addr) = (String::from_utf8_lossy(&m.netid), String::from_utf8_lossy(&m.addr));
                format!("{} {} {netid} {addr}", m.program, m.version)
            };
            rows.iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(
            found("10.0.0.1:2049"),
            ["100003 3 tcp 10.0.0.1.8.1", "100003 4 tcp 10.0.0.1.8.1", "100005 3 tcp 10.0.0.1.8.1"]
        );
        let both = found("[::]:2049");
        assert_eq!(both.len(), 6);
        assert!(both.contains(&"100005 3 tcp6 ::.8.1".to_owned()));
        assert!(both.contains(&"100005 3 tcp 0.0.0.0.8.1".to_owned()));
    }

    #[tokio::test]
    async fn without_a_port_mapper_only_who_requires_one_fails() {
        let dir = tempfile::tempdir().expect("a directory");
        let rpcbind = || Rpcbind::at(dir.path().join("absent"));
        let programs = [Program { number: 100_003, low: 3, high: 3 }];
        let addr = "127.0.0.1:2049".parse().expect("an address");
        let off = Registered::new(PortMapper::Off, rpcbind(), &programs, addr).await.expect("no error");
        assert!(off.is_none());
        let none = Registered::new(PortMapper::IfThere, rpcbind(), &programs, addr).await.expect("no error");
        assert!(none.expect("tried").mappings.is_empty());
        assert!(Registered::new(PortMapper::Required, rpcbind(), &programs, addr).await.is_err());
    }
}
