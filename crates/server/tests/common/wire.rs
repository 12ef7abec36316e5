//! Calls byte for byte: any program, any credential, any arguments, whole or not.

use super::{PATIENCE, Rig, user};
use landfast_xdr::Encode;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The programs that are served, with a version of each.
pub const PROGRAMS: [(u32, u32); 6] =
    [(100_003, 4), (100_003, 3), (100_005, 3), (100_021, 4), (100_024, 1), (100_227, 3)];

/// A call's header with AUTH_SYS, before its arguments.
pub fn header(prog: u32, vers: u32, proc: u32) -> Vec<u8> {
    header_of(7, prog, vers, proc)
}

fn header_of(xid: u32, prog: u32, vers: u32, proc: u32) -> Vec<u8> {
    let mut v = Vec::new();
    for n in [xid, 0, 2, prog, vers, proc] {
        v.extend(n.to_be_bytes());
    }
    let cred = user(0).to_opaque();
    v.extend(cred.flavor.to_be_bytes());
    v.extend(cred.body.to_bytes());
    v.extend([0; 8]);
    v
}

/// A record of one fragment.
pub fn record(body: &[u8]) -> Vec<u8> {
    let mut v = (0x8000_0000 | body.len() as u32).to_be_bytes().to_vec();
    v.extend(body);
    v
}

/// Sends bytes, ends the sending half, and takes what comes until the connection is closed.
pub async fn send(rig: &Rig, bytes: &[u8]) -> Vec<u8> {
    let mut s = TcpStream::connect(rig.addr()).await.expect("connected");
    // The server may close first.
    let _ = s.write_all(bytes).await;
    let _ = s.shutdown().await;
    let mut out = Vec::new();
    let read = tokio::time::timeout(PATIENCE, s.read_to_end(&mut out)).await;
    assert!(read.is_ok(), "the server neither answers nor closes");
    out
}

/// The words of a reply after the record mark.
pub fn words(reply: &[u8]) -> Vec<u32> {
    reply.chunks_exact(4).skip(1).map(|c| u32::from_be_bytes([c[0], c[1], c[2], c[3]])).collect()
}

/// A connection on which one call follows the other.
pub struct Line {
    pub stream: TcpStream,
    xid: u32,
}

impl Line {
    pub async fn new(addr: SocketAddr) -> Line {
        Line { stream: TcpStream::connect(addr).await.expect("connected"), xid: 0 }
    }

    /// The accept status of the reply, which must come, and the bytes behind it.
    pub async fn call(&mut self, (prog, vers, proc): (u32, u32, u32), args: &[u8]) -> (u32, Vec<u8>) {
        self.send((prog, vers, proc), args).await;
        self.receive().await
    }

    pub async fn send(&mut self, (prog, vers, proc): (u32, u32, u32), args: &[u8]) {
        self.xid += 1;
        let call = [header_of(self.xid, prog, vers, proc), args.to_vec()].concat();
        self.stream.write_all(&record(&call)).await.expect("sent");
    }

    /// The reply to the last call.
    pub async fn receive(&mut self) -> (u32, Vec<u8>) {
        let read = async {
            let mark = self.stream.read_u32().await?;
            let mut reply = vec![0; (mark & 0x7fff_ffff) as usize];
            self.stream.read_exact(&mut reply).await?;
            std::io::Result::Ok(reply)
        };
        let reply = tokio::time::timeout(PATIENCE, read).await.expect("in time").expect("a reply");
        let word = |i: usize| u32::from_be_bytes(reply[4 * i..4 * i + 4].try_into().expect("four bytes"));
        let head = [word(0), word(1), word(2), word(3), word(4)];
        assert_eq!(head, [self.xid, 1, 0, 0, 0], "an accepted reply");
        (word(5), reply[24..].to_vec())
    }
}
