//! An attacker's own client: RPC as bytes on a socket that is bound to the address he wants, AUTH_SYS with the numbers he wants.
//! Only the COMPOUND's own encoding is the project's.

use landfast_nfs::v4::*;
use landfast_nfs::{PROGRAM, v4};
use landfast_xdr::{Bytes, Decode, Encode};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const PATIENCE: Duration = Duration::from_secs(30);

/// What an outsider is told by a server that hears it: `NFS4ERR_ACCESS` to its PUTFH.
const REFUSED: [u8; 20] = [0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 22, 0, 0, 0, 13];

/// A connection from 127.0.0.`host`.
pub struct Wire {
    stream: TcpStream,
    xid: u32,
}

impl Wire {
    pub async fn from(host: u8, to: SocketAddr) -> Wire {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, host], 0))).expect("the address");
        let stream = socket.connect(to).await.expect("connected");
        stream.set_nodelay(true).expect("an option");
        Wire { stream, xid: u32::from(host) << 16 }
    }

    /// One call by AUTH_SYS as this user and group, with no other groups.
    pub async fn call(&mut self, uid: u32, (prog, vers, proc): (u32, u32, u32), args: &[u8]) -> Bytes {
        self.xid += 1;
        let cred = [0u32, 0, uid, uid, 0];
        let mut record = Vec::new();
        for n in [self.xid, 0, 2, prog, vers, proc, 1, 4 * cred.len() as u32] {
            record.extend(n.to_be_bytes());
        }
        record.extend(cred.iter().flat_map(|n| n.to_be_bytes()));
        record.extend([0; 8]);
        record.extend(args);
        let mark = (0x8000_0000 | record.len() as u32).to_be_bytes();
        let exchange = async {
            self.stream.write_all(&[&mark[..], &record].concat()).await?;
            let mut reply = Vec::new();
            loop {
                let mark = self.stream.read_u32().await?;
                let begin = reply.len();
                reply.resize(begin + (mark & 0x7fff_ffff) as usize, 0);
                self.stream.read_exact(&mut reply[begin..]).await?;
                if mark & 0x8000_0000 != 0 {
                    return std::io::Result::Ok(reply);
                }
            }
        };
        let reply = tokio::time::timeout(PATIENCE, exchange).await.expect("in time").expect("a reply");
        assert_eq!(reply[..4], self.xid.to_be_bytes(), "the transaction");
        if reply[4..12] == [0, 0, 0, 1, 0, 0, 0, 1] {
            // Denied: who is named by no export is not heard.
            return Bytes::from_static(&REFUSED);
        }
        assert_eq!(reply[4..24], [[0, 0, 0, 1], [0; 4], [0; 4], [0; 4], [0; 4]].concat()[..], "accepted");
        Bytes::from(reply).slice(24..)
    }

    pub async fn compound(&mut self, uid: u32, minor_version: u32, ops: Vec<ArgOp>) -> CompoundRes {
        let announced = ops.len() as u32;
        let args = CompoundArgs { tag: Bytes::new(), minor_version, announced, ops };
        let res = self.call(uid, (PROGRAM, v4::VERSION, v4::PROC_COMPOUND), &args.to_bytes()).await;
        CompoundRes::from_bytes(res).expect("a COMPOUND result")
    }
}
