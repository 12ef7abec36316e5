//! Calls to a client: its port mapper (RFC 1833) says where its lock manager and its status monitor are.

use crate::limits;
use crate::state::nlm::RequestForm;
use bytes::Bytes;
use landfast_nfs::{nlm, nsm};
use landfast_rpc::conn::{CallError, ConnConfig, Target};
use landfast_rpc::{Connection, NoService, OpaqueAuth, udp};
use landfast_xdr::{BytesMut, Decode, Encode};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Port mapper: program, version 2 and its GETPORT, version 4 and its GETADDR (RFC 1833 sections 2 and 3).
const PMAP_PROG: u32 = 100_000;
const PMAP_GETPORT: Target = Target { prog: PMAP_PROG, vers: 2, proc: 3 };
const RPCB_GETADDR: Target = Target { prog: PMAP_PROG, vers: 4, proc: 3 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    /// The call cannot have reached it.
    NotDelivered,
    /// The call may have reached it.
    Unknown,
}

/// A service's address, program, version, and whether by datagram.
type ServiceAddr = (IpAddr, u32, u32, bool);

pub(super) struct Peers {
    portmapper: u16,
    ports: Mutex<HashMap<ServiceAddr, (u16, Instant)>>,
    calls: Arc<Semaphore>,
}

impl Peers {
    pub(super) fn new(portmapper: u16) -> Peers {
        let calls = Arc::new(Semaphore::new(limits::NLM_CALLBACKS_MAX));
        Peers { portmapper, ports: Mutex::new(HashMap::new()), calls }
    }

    /// A permit for one more call, if there is any.
    pub(super) fn room(&self) -> Option<OwnedSemaphorePermit> {
        self.calls.clone().try_acquire_owned().ok()
    }

    /// Waits for a permit; the semaphore is never closed.
    pub(super) async fn wait_for_room(&self) -> Option<OwnedSemaphorePermit> {
        self.calls.clone().acquire_owned().await.ok()
    }

    /// Calls the lock manager's GRANTED, if it is still `wanted` when its port is known, and waits for the results. It is
    /// sent once: before it is sent again somebody has to look whether it is still due.
    pub(super) async fn granted(
        &self,
        addr: IpAddr,
        by: RequestForm,
        args: Bytes,
        wanted: impl Fn() -> bool,
    ) -> Result<Bytes, Failed> {
        let to = Target { prog: nlm::PROGRAM, vers: nlm::VERSION, proc: nlm::proc::GRANTED };
        let waits = &limits::NLM_CALL_WAITS[..];
        self.to((addr, by.udp, by.at), to, args, (waits, if by.udp { &waits[..1] } else { waits }), wanted)
            .await
    }

    /// Sends the lock manager an asynchronous message, if it is still `wanted` when its port is known. Some clients send no
    /// reply to it.
    pub(super) async fn message(
        &self,
        addr: IpAddr,
        by: RequestForm,
        proc: u32,
        args: Bytes,
        wanted: impl Fn() -> bool,
    ) -> Result<(), Failed> {
        let to = Target { prog: nlm::PROGRAM, vers: nlm::VERSION, proc };
        let waits = &limits::NLM_MESSAGE_WAITS;
        self.to((addr, by.udp, by.at), to, args, (waits, waits), wanted).await.map(|_| ())
    }

    pub(super) async fn notify(&self, addr: IpAddr, args: Bytes) -> Result<(), Failed> {
        let to = Target { prog: nsm::PROGRAM, vers: nsm::VERSION, proc: nsm::proc::NOTIFY };
        let waits = &limits::NLM_CALL_WAITS;
        self.to((addr, true, None), to, args, (waits, waits), || true).await.map(|_| ())
    }

    /// Asks for the port, with the first of `waits`, and calls it, with the second, if that is still wanted then; `from` this address of
    /// the server, if that is known.
    async fn to(
        &self,
        (addr, udp, from): (IpAddr, bool, Option<IpAddr>),
        to: Target,
        args: Bytes,
        (port_waits, waits): (&[Duration], &[Duration]),
        wanted: impl Fn() -> bool,
    ) -> Result<Bytes, Failed> {
        let place = (addr, to.prog, to.vers, udp);
        let port = self.port(place, port_waits).await.ok_or(Failed::NotDelivered)?;
        if !wanted() {
            return Err(Failed::NotDelivered);
        }
        let done = send(from, SocketAddr::new(addr, port), udp, to, args, waits).await;
        if done.is_err() {
            // It may have another port by now.
            self.ports.lock().remove(&place);
        }
        done
    }

    async fn port(&self, place: ServiceAddr, waits: &[Duration]) -> Option<u16> {
        let known = self.ports.lock().get(&place).copied();
        if let Some((port, since)) = known
            && since.elapsed() < limits::PORT_KNOWN
        {
            return Some(port);
        }
        let port = self.ask_port(place, waits).await?;
        let mut ports = self.ports.lock();
        if ports.len() >= limits::PORTS_KNOWN_MAX {
            ports.clear();
        }
        ports.insert(place, (port, Instant::now()));
        Some(port)
    }

    /// The port mapper of version 2 knows IPv4 only. It is asked as often as the call itself is sent: a message's
    /// sender may be forged, so its answer is two datagrams at most.
    async fn ask_port(&self, (addr, prog, vers, udp): ServiceAddr, waits: &[Duration]) -> Option<u16> {
        let mapper = SocketAddr::new(addr, self.portmapper);
        let mut args = BytesMut::new();
        let port = if addr.is_ipv4() {
            let protocol: u32 = if udp { 17 } else { 6 };
            [prog, vers, protocol, 0].iter().for_each(|n| n.encode(&mut args));
            let found = send(None, mapper, udp, PMAP_GETPORT, args.freeze(), waits).await.ok()?;
            u16::try_from(u32::from_bytes(found).ok()?).ok()?
        } else {
            let netid: &[u8] = if udp { b"udp6" } else { b"tcp6" };
            [prog, vers].iter().for_each(|n| n.encode(&mut args));
            for text in [netid, b"", b""] {
                landfast_xdr::put_opaque(text, &mut args);
            }
            let found = send(None, mapper, udp, RPCB_GETADDR, args.freeze(), waits).await.ok()?;
            port_of(&Bytes::from_bytes(found).ok()?)?
        };
        Some(port).filter(|port| *port != 0)
    }
}

/// The port in a universal address: its last two numbers (RFC 5665 section 5.2.3.3).
fn port_of(universal: &[u8]) -> Option<u16> {
    let mut parts = std::str::from_utf8(universal).ok()?.rsplit('.');
    let (low, high) = (parts.next()?.parse::<u8>().ok()?, parts.next()?.parse::<u8>().ok()?);
    Some(u16::from_be_bytes([high, low]))
}

async fn send(
    from: Option<IpAddr>,
    to: SocketAddr,
    udp: bool,
    target: Target,
    args: Bytes,
    waits: &[Duration],
) -> Result<Bytes, Failed> {
    let done = if udp {
        match from {
            Some(from) => udp::call_from(from, to, target, &OpaqueAuth::NONE, &args, waits).await,
            None => udp::call(to, target, &OpaqueAuth::NONE, &args, waits).await,
        }
    } else {
        let patience = waits.iter().sum();
        let (service, config) = (Arc::new(NoService), ConnConfig::default());
        let conn = match from {
            Some(from) => Connection::connect_from(from, to, service, &config, patience).await,
            None => Connection::connect_within(to, service, &config, patience).await,
        };
        let conn = conn.map_err(|_| Failed::NotDelivered)?;
        match conn.call(target, &OpaqueAuth::NONE, vec![args], patience).await {
            // Sent, and then the connection ended.
            Err(CallError::Closed(_)) => return Err(Failed::Unknown),
            done => done,
        }
    };
    done.map_err(|e| match e {
        CallError::Timeout(_) => Failed::Unknown,
        CallError::Closed(_)
        | CallError::TooLarge(_)
        | CallError::SameXid(_)
        | CallError::Denied(_)
        | CallError::Failed(_) => Failed::NotDelivered,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc5665_5_2_3_3_universal_addresses() {
        assert_eq!(port_of(b"::1.8.1"), Some(2049));
        assert_eq!(port_of(b"127.0.0.1.0.111"), Some(111));
        for bad in [&b""[..], b"8.1.", b"x.1", b"::1.256.1", b"1", &[0xff]] {
            assert_eq!(port_of(bad), None, "{bad:?}");
        }
    }
}
