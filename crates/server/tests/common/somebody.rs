//! Somebody at an address of this machine, honest or not, who speaks RPC byte by byte: from the source address, port and user that
//! he likes.

use super::{PATIENCE, user};
use landfast_nfs::v4::{self, ArgOp, CompoundArgs, CompoundRes};
use landfast_xdr::{Bytes, BytesMut, Decode, Encode};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// How long nothing has to come for it to be nothing.
const SILENCE: Duration = Duration::from_millis(400);

/// What came of a call.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// Its results.
    Results(Bytes),
    /// No such program, version or procedure: the accept status.
    NotServed(u32),
    /// Refused as a whole: the authentication status.
    Refused(u32),
    /// Nothing at all.
    Nothing,
}

impl Said {
    pub fn results(self) -> Bytes {
        match self {
            Said::Results(r) => r,
            other => panic!("no results: {other:?}"),
        }
    }
}

/// See the module.
pub struct Somebody {
    pub addr: Ipv4Addr,
    /// Ports below 1024: what root of a machine uses.
    pub reserved: bool,
    pub uid: u32,
    server: SocketAddr,
    tcp: Option<TcpStream>,
    xid: u32,
    /// Bytes of the last call and its reply.
    pub bytes: (usize, usize),
}

/// A reserved port that no other test of this process was given.
fn reserved_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    600 + NEXT.fetch_add(1, Ordering::Relaxed) % 400
}

impl Somebody {
    /// 127.0.0.`n`.
    pub fn at(server: SocketAddr, n: u8) -> Somebody {
        let addr = Ipv4Addr::new(127, 0, 0, n);
        Somebody { addr, reserved: false, uid: 0, server, tcp: None, xid: 0, bytes: (0, 0) }
    }

    /// The same as root of that machine.
    pub fn root_at(server: SocketAddr, n: u8) -> Somebody {
        Somebody { reserved: true, ..Somebody::at(server, n) }
    }

    fn port(&self) -> u16 {
        if self.reserved { reserved_port() } else { 0 }
    }

    fn call_bytes(&mut self, prog: u32, vers: u32, proc: u32, args: &[u8]) -> BytesMut {
        self.xid += 1;
        let mut message = BytesMut::new();
        [self.xid, 0, 2, prog, vers, proc].iter().for_each(|n| n.encode(&mut message));
        user(self.uid).to_opaque().encode(&mut message);
        [0u32, 0].iter().for_each(|n| n.encode(&mut message));
        message.extend_from_slice(args);
        message
    }

    fn said(&mut self, call: usize, reply: &Bytes) -> Said {
        self.bytes = (call, reply.len());
        let word = |i: usize| u32::from_be_bytes(reply[4 * i..4 * i + 4].try_into().expect("four bytes"));
        assert_eq!([word(0), word(1)], [self.xid, 1], "a reply to this call");
        match word(2) {
            0 => match word(5) {
                0 => Said::Results(reply.slice(24..)),
                stat => Said::NotServed(stat),
            },
            _ => Said::Refused(word(4)),
        }
    }

    /// A call over TCP.
    pub async fn call(&mut self, prog: u32, vers: u32, proc: u32, args: &[u8]) -> Said {
        let message = self.call_bytes(prog, vers, proc, args);
        while self.tcp.is_none() {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.set_reuseaddr(true).expect("set");
            if socket.bind((self.addr, self.port()).into()).is_ok() {
                self.tcp = socket.connect(self.server).await.ok();
            }
        }
        let stream = self.tcp.as_mut().expect("a connection");
        let mark = 0x8000_0000 | message.len() as u32;
        stream.write_all(&[&mark.to_be_bytes()[..], &message].concat()).await.expect("sent");
        let reply = tokio::time::timeout(PATIENCE, async {
            let mark = stream.read_u32().await.expect("a reply");
            let mut reply = vec![0; (mark & 0x7fff_ffff) as usize];
            stream.read_exact(&mut reply).await.expect("a reply");
            Bytes::from(reply)
        });
        let reply = reply.await.expect("a reply in time");
        self.said(message.len(), &reply)
    }

    /// A call by datagram, from a port of its own.
    pub async fn datagram(&mut self, prog: u32, vers: u32, proc: u32, args: &[u8]) -> Said {
        let message = self.call_bytes(prog, vers, proc, args);
        let socket = loop {
            if let Ok(socket) = UdpSocket::bind((self.addr, self.port())).await {
                break socket;
            }
        };
        socket.connect(self.server).await.expect("connected");
        let mut buf = vec![0; 64 << 10];
        socket.send(&message).await.expect("sent");
        match tokio::time::timeout(SILENCE, socket.recv(&mut buf)).await {
            Ok(Ok(len)) => {
                buf.truncate(len);
                self.said(message.len(), &Bytes::from(buf))
            }
            Ok(Err(_)) | Err(_) => Said::Nothing,
        }
    }

    pub async fn compound(&mut self, minor: u32, ops: Vec<ArgOp>) -> CompoundRes {
        let announced = ops.len() as u32;
        let args = CompoundArgs { tag: Bytes::new(), minor_version: minor, announced, ops };
        let said = self.call(landfast_nfs::PROGRAM, v4::VERSION, v4::PROC_COMPOUND, &args.to_bytes()).await;
        CompoundRes::from_bytes(said.results()).expect("a COMPOUND result")
    }
}
