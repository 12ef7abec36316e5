//! A client of the port mapper (RFC 1833, version 4) over its local socket, through which rpcbind itself learns which
//! user asks.
//!
//! Each question uses a new connection; nothing is kept. Time and bytes are bounded.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use landfast_xdr::{Bytes, BytesMut, Decode, Encode, Error, Reader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket, UnixStream};
use tokio::time::timeout;

use crate::limits::{RPCBIND_PATIENCE, RPCBIND_REPLY_MAX};
use crate::message::{AcceptStat, Incoming, OpaqueAuth, Outcome, RawCall, parse};
use crate::record::Assembler;

/// Where rpcbind listens on Linux.
pub const SOCKET: &str = "/run/rpcbind.sock";

const PROGRAM: u32 = 100_000;
const VERSION: u32 = 4;
const SET: u32 = 1;
const UNSET: u32 = 2;
const DUMP: u32 = 4;

/// `rpcb` (RFC 1833 section 2.1): where a version of a program listens.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Mapping {
    pub program: u32,
    pub version: u32,
    /// Transport: `tcp`, `udp`, `tcp6`, `udp6`.
    pub netid: Bytes,
    /// Universal address: see [`universal`].
    pub addr: Bytes,
    /// The owner; rpcbind replaces it by the user that really asked.
    pub owner: Bytes,
}

impl Mapping {
    /// A version of a program that listens on a TCP address.
    pub fn tcp(program: u32, version: u32, addr: SocketAddr) -> Mapping {
        Mapping::new(program, version, if addr.is_ipv4() { "tcp" } else { "tcp6" }, addr)
    }

    /// A version of a program that takes datagrams at a UDP address.
    pub fn udp(program: u32, version: u32, addr: SocketAddr) -> Mapping {
        Mapping::new(program, version, if addr.is_ipv4() { "udp" } else { "udp6" }, addr)
    }

    fn new(program: u32, version: u32, netid: &'static str, addr: SocketAddr) -> Mapping {
        Mapping {
            program,
            version,
            netid: Bytes::from_static(netid.as_bytes()),
            addr: Bytes::from(universal(addr)),
            owner: Bytes::from_static(b"superuser"),
        }
    }

    fn same_service(&self, other: &Mapping) -> bool {
        (self.program, self.version, &self.netid) == (other.program, other.version, &other.netid)
    }
}

/// The universal address of a socket (RFC 1833 section 2.1 and RFC 5665 section 5.2.3): the address, and the two bytes of
/// the port as decimal numbers.
pub fn universal(addr: SocketAddr) -> String {
    let [high, low] = addr.port().to_be_bytes();
    format!("{}.{high}.{low}", addr.ip())
}

pub fn socket_of(universal: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(universal).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (ip, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    Some(SocketAddr::new(ip.parse::<IpAddr>().ok()?, port))
}

#[derive(Debug, thiserror::Error)]
pub enum RpcbindError {
    /// It does not run, or does not answer.
    #[error("{0}: {1}")]
    Unreachable(PathBuf, io::Error),
    /// Its answer is invalid.
    #[error("no answer that rpcbind would give: {0}")]
    Nonsense(&'static str),
    /// Another program holds the registration.
    #[error(
        "program {program} version {version} is registered at {addr} by another server that listens there"
    )]
    Taken { program: u32, version: u32, addr: String },
    #[error("rpcbind refused to register program {program} version {version}; is this the superuser?")]
    Refused { program: u32, version: u32 },
}

#[derive(Debug, Clone)]
pub struct Rpcbind {
    socket: PathBuf,
}

impl Default for Rpcbind {
    fn default() -> Self {
        Rpcbind::at(SOCKET)
    }
}

/// The list of DUMP, each element behind a `TRUE`.
struct Rows(Vec<Mapping>);

impl Decode for Rows {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        let mut rows = Vec::new();
        while bool::decode(r)? {
            rows.push(Mapping::decode(r)?);
        }
        Ok(Rows(rows))
    }
}

impl Rpcbind {
    pub fn at(socket: impl AsRef<Path>) -> Rpcbind {
        Rpcbind { socket: socket.as_ref().to_owned() }
    }

    /// Registers a mapping. It replaces one of an earlier server that no longer listens.
    pub async fn register(&self, wanted: &Mapping) -> Result<(), RpcbindError> {
        if self.ask::<bool>(SET, wanted.to_bytes()).await? {
            return Ok(());
        }
        let Mapping { program, version, .. } = *wanted;
        let rows = self.mappings().await?;
        let there = rows.iter().find(|row| row.same_service(wanted));
        match there {
            Some(there) if there.addr == wanted.addr => return Ok(()),
            Some(there) if listens(there).await => {
                let addr = String::from_utf8_lossy(&there.addr).into_owned();
                return Err(RpcbindError::Taken { program, version, addr });
            }
            Some(there) => self.unregister(there).await?,
            None => return Err(RpcbindError::Refused { program, version }),
        }
        if self.ask::<bool>(SET, wanted.to_bytes()).await? {
            Ok(())
        } else {
            Err(RpcbindError::Refused { program, version })
        }
    }

    /// Removes a mapping, if it is still this one.
    pub async fn unregister(&self, mapping: &Mapping) -> Result<(), RpcbindError> {
        let rows = self.mappings().await?;
        if rows.iter().any(|row| row.same_service(mapping) && row.addr == mapping.addr) {
            self.ask::<bool>(UNSET, mapping.to_bytes()).await?;
        }
        Ok(())
    }

    pub async fn mappings(&self) -> Result<Vec<Mapping>, RpcbindError> {
        Ok(self.ask::<Rows>(DUMP, Bytes::new()).await?.0)
    }

    async fn ask<T: Decode>(&self, procedure: u32, args: Bytes) -> Result<T, RpcbindError> {
        let talk = async {
            let mut stream = UnixStream::connect(&self.socket).await?;
            exchange(&mut stream, procedure, &args).await
        };
        let answered = timeout(RPCBIND_PATIENCE, talk).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()));
        let record = answered.map_err(|e| RpcbindError::Unreachable(self.socket.clone(), e))?;
        match parse(record) {
            Ok(Incoming::Reply { xid: XID, outcome: Outcome::Accepted(AcceptStat::Success, results) }) => {
                T::from_bytes(results).map_err(|_| RpcbindError::Nonsense("results of another type"))
            }
            Ok(Incoming::Reply { .. }) => Err(RpcbindError::Nonsense("it refuses the call")),
            _ => Err(RpcbindError::Nonsense("no reply")),
        }
    }
}

/// Each connection carries one call.
const XID: u32 = 1;

fn call_of(prog: u32, vers: u32, proc: u32) -> BytesMut {
    let mut call = BytesMut::new();
    RawCall { xid: XID, prog, vers, proc, cred: OpaqueAuth::NONE, verf: OpaqueAuth::NONE }.encode(&mut call);
    call
}

async fn exchange(stream: &mut UnixStream, procedure: u32, args: &[u8]) -> io::Result<Bytes> {
    let mut call = call_of(PROGRAM, VERSION, procedure);
    call.extend_from_slice(args);
    let mark = (0x8000_0000 | call.len() as u32).to_be_bytes();
    stream.write_all(&[&mark[..], &call].concat()).await?;
    let mut records = Assembler::new(RPCBIND_REPLY_MAX);
    let mut buf = BytesMut::new();
    loop {
        match records.next(&mut buf) {
            Ok(Some(record)) => return Ok(record),
            Ok(None) => {}
            Err(e) => return Err(io::Error::other(e.to_string())),
        }
        if stream.read_buf(&mut buf).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Whether somebody listens where a mapping says. True also for an address that cannot be parsed: somebody may.
async fn listens(there: &Mapping) -> bool {
    let Some(mut addr) = socket_of(&there.addr) else { return true };
    match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => addr.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => addr.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    let refused = |e: &io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    if there.netid.starts_with(b"udp") {
        let null = call_of(there.program, there.version, 0);
        // Who says nothing may be busy.
        let answered = timeout(RPCBIND_PATIENCE, answers(addr, &null)).await;
        return !matches!(answered, Ok(Err(e)) if refused(&e));
    }
    match timeout(RPCBIND_PATIENCE, TcpStream::connect(addr)).await {
        Ok(Ok(_)) => true,
        Ok(Err(e)) => !refused(&e),
        Err(_) => false,
    }
}

/// Sends a datagram and waits for another one. The system refuses it where nobody has the port.
async fn answers(to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(to).await?;
    socket.send(datagram).await?;
    socket.recv(&mut [0; 4]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tokio::net::UnixListener;

    #[test]
    fn rfc5665_5_2_3_universal_addresses() {
        for (text, addr) in
            [("0.0.0.0.8.1", "0.0.0.0:2049"), ("::.8.1", "[::]:2049"), ("127.0.0.1.0.111", "127.0.0.1:111")]
        {
            let addr: SocketAddr = addr.parse().expect("an address");
            assert_eq!(universal(addr), text);
            assert_eq!(socket_of(text.as_bytes()), Some(addr));
        }
        for bad in ["", "1", "1.2.3.4", "0.0.0.0.256.1", "a.b.c.d.1.2", "\u{ff}"] {
            assert_eq!(socket_of(bad.as_bytes()), None, "{bad}");
        }
    }

    /// A port mapper that does what the RFC says.
    fn mapper(dir: &Path) -> Rpcbind {
        let socket = dir.join("rpcbind.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let rows = Arc::new(Mutex::new(Vec::<Mapping>::new()));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buf = BytesMut::new();
                let mut records = Assembler::new(RPCBIND_REPLY_MAX);
                let record = loop {
                    if let Some(record) = records.next(&mut buf).expect("a record") {
                        break record;
                    }
                    stream.read_buf(&mut buf).await.expect("bytes");
                };
                let Ok(Incoming::Call(call, args)) = parse(record) else { panic!("no call") };
                assert_eq!((call.prog, call.vers), (PROGRAM, VERSION));
                let mut reply = BytesMut::new();
                crate::message::encode_accepted(call.xid, AcceptStat::Success, &mut reply);
                {
                    let mut rows = rows.lock().expect("rows");
                    match call.proc {
                        SET => {
                            let m = Mapping::from_bytes(args).expect("a mapping");
                            let free = !rows.iter().any(|r| r.same_service(&m));
                            if free {
                                rows.push(m);
                            }
                            free.encode(&mut reply);
                        }
                        UNSET => {
                            let m = Mapping::from_bytes(args).expect("a mapping");
                            rows.retain(|r| !r.same_service(&m));
                            true.encode(&mut reply);
                        }
                        _ => {
                            for row in rows.iter() {
                                true.encode(&mut reply);
                                row.encode(&mut reply);
                            }
                            false.encode(&mut reply);
                        }
                    }
                }
                let mark = (0x8000_0000 | reply.len() as u32).to_be_bytes();
                stream.write_all(&[&mark[..], &reply].concat()).await.expect("sent");
            }
        });
        Rpcbind::at(socket)
    }

    #[tokio::test]
    async fn a_mapping_comes_and_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        let rpcbind = mapper(dir.path());
        let ours = Mapping::tcp(100_003, 3, "0.0.0.0:2049".parse().expect("an address"));
        rpcbind.register(&ours).await.expect("registered");
        rpcbind.register(&ours).await.expect("what is there already is no error");
        assert_eq!(rpcbind.mappings().await.expect("rows"), std::slice::from_ref(&ours));
        let other = Mapping::tcp(100_003, 3, "0.0.0.0:2050".parse().expect("an address"));
        rpcbind.unregister(&other).await.expect("nothing to do");
        assert_eq!(rpcbind.mappings().await.expect("rows").len(), 1, "another's is left alone");
        rpcbind.unregister(&ours).await.expect("unregistered");
        assert_eq!(rpcbind.mappings().await.expect("rows"), []);
    }

    #[tokio::test]
    async fn who_listens_stays_who_does_not_gives_way() {
        let dir = tempfile::tempdir().expect("a directory");
        let rpcbind = mapper(dir.path());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let theirs = Mapping::tcp(100_005, 3, listener.local_addr().expect("an address"));
        rpcbind.register(&theirs).await.expect("registered");
        let ours = Mapping::tcp(100_005, 3, "127.0.0.1:1".parse().expect("an address"));
        let taken = rpcbind.register(&ours).await;
        assert!(matches!(taken, Err(RpcbindError::Taken { program: 100_005, version: 3, .. })), "{taken:?}");
        drop(listener);
        rpcbind.register(&ours).await.expect("registered");
        assert_eq!(rpcbind.mappings().await.expect("rows"), [ours]);
    }

    /// Nobody takes connections there.
    #[tokio::test]
    async fn who_takes_datagrams_stays_whether_it_answers_or_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let rpcbind = mapper(dir.path());
        let ours = Mapping::udp(100_024, 1, "127.0.0.1:1".parse().expect("an address"));
        for silent in [false, true] {
            let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
            let theirs = Mapping::udp(100_024, 1, socket.local_addr().expect("an address"));
            rpcbind.register(&theirs).await.expect("registered");
            let listens = tokio::spawn(async move {
                let mut buf = [0; 64];
                loop {
                    let (_, from) = socket.recv_from(&mut buf).await.expect("a call");
                    if !silent {
                        socket.send_to(&buf[..4], from).await.expect("sent");
                    }
                }
            });
            let taken = rpcbind.register(&ours).await;
            assert!(
                matches!(taken, Err(RpcbindError::Taken { program: 100_024, version: 1, .. })),
                "{taken:?}"
            );
            listens.abort();
            let _ = listens.await;
            rpcbind.register(&ours).await.expect("registered");
            assert_eq!(rpcbind.mappings().await.expect("rows"), std::slice::from_ref(&ours));
            rpcbind.unregister(&ours).await.expect("unregistered");
        }
    }

    #[tokio::test]
    async fn no_port_mapper_is_an_error_that_names_its_socket() {
        let dir = tempfile::tempdir().expect("a directory");
        let rpcbind = Rpcbind::at(dir.path().join("absent"));
        let failed = rpcbind.mappings().await.expect_err("nobody there");
        assert!(failed.to_string().contains("absent"), "{failed}");
    }
}
