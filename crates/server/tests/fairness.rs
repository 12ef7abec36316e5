//! A client that floods does not starve another. What is counted is turns, not time: how many requests of the one are
//! executed while the other waits for one reply.

mod common;

use common::v3::{self as c3, V3};
use common::{Rig, user};
use landfast_nfs::v3::types::StableHow;
use landfast_nfs::v3::{self, Call, FileHandle, args::ReaddirplusArgs};
use landfast_rpc::message::RawCall;
use landfast_rpc::record::last_fragment_header;
use landfast_xdr::Encode;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

const CONNECTIONS: usize = 16;
const IN_FLIGHT: usize = 100;
const ENTRIES: usize = 40;
const POLITE_REQUESTS: usize = 60;

fn message(xid: u32, call: &Call) -> Vec<u8> {
    let mut message = landfast_xdr::BytesMut::new();
    let cred = user(0).to_opaque();
    let (prog, vers, proc) = (landfast_nfs::PROGRAM, v3::VERSION, call.number());
    RawCall { xid, prog, vers, proc, cred, verf: landfast_rpc::OpaqueAuth::NONE }.encode(&mut message);
    call.encode(&mut message);
    [&last_fragment_header(message.len())[..], &message].concat()
}

async fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from((from, 0))).expect("an address of the loopback network");
    socket.connect(to).await.expect("connected")
}

/// Keeps so many requests in flight until the server goes.
async fn flood(stream: TcpStream, request: Vec<u8>) {
    let (mut read, mut write) = stream.into_split();
    if write.write_all(&request.repeat(IN_FLIGHT)).await.is_err() {
        return;
    }
    let mut head = [0; 4];
    while read.read_exact(&mut head).await.is_ok() {
        let mut reply = vec![0; (u32::from_be_bytes(head) & 0x7fff_ffff) as usize];
        if read.read_exact(&mut reply).await.is_err() || write.write_all(&request).await.is_err() {
            return;
        }
    }
}

fn ask(stream: &mut std::net::TcpStream, request: &[u8]) {
    stream.write_all(request).expect("sent");
    let mut head = [0; 4];
    stream.read_exact(&mut head).expect("a reply");
    let mut reply = vec![0; (u32::from_be_bytes(head) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).expect("a whole reply");
    // Accepted, executed, NFS3_OK.
    assert_eq!(reply.get(8..28), Some(&[0; 20][..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_client_that_floods_does_not_starve_another() {
    let rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let dir = c.dir("d").await;
    for i in 0..ENTRIES {
        c.make(c3::create(&dir, &format!("f{i}"), v3::args::CreateHow::Unchecked(c3::mode(0o644)))).await;
    }
    let file: FileHandle = c.file("polite").await;
    let listing = Call::Readdirplus(ReaddirplusArgs {
        dir,
        cookie: 0,
        cookieverf: [0; 8],
        dircount: 8 << 10,
        maxcount: 32 << 10,
    });
    let mut floods = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let stream = connect(Ipv4Addr::new(127, 0, 0, 1), rig.addr()).await;
        floods.spawn(flood(stream, message(7, &listing)));
    }
    let listings = || {
        let all = rig.server().stats().v3_procedures;
        all.iter().find(|(name, _)| *name == "READDIRPLUS").map_or(0, |(_, n)| *n)
    };
    while listings() < (CONNECTIONS * IN_FLIGHT) as u64 {
        tokio::task::yield_now().await;
    }
    let polite = connect(Ipv4Addr::new(127, 0, 0, 2), rig.addr()).await;
    let mut polite = polite.into_std().expect("a stream");
    polite.set_nonblocking(false).expect("a stream");
    let write = c3::write(&file, 0, b"x", StableHow::FileSync);
    for (what, request) in [("GETATTR", Call::Getattr(file)), ("WRITE", write)] {
        let mut behind: Vec<u64> = (0..POLITE_REQUESTS)
            .map(|i| {
                let request = message(i as u32, &request);
                let before = listings();
                tokio::task::block_in_place(|| ask(&mut polite, &request));
                listings() - before
            })
            .collect();
        behind.sort_unstable();
        let quarter = behind[POLITE_REQUESTS / 4];
        println!("{what}: {quarter} requests of the flood, {behind:?}");
        // A fair queue has one request of the other client before it, and those that have a place or a thread; besides, the
        // flood goes on while this thread, or the log's, waits for a processor: on a busy machine most of the time, but not each
        // time. Without turns it is all that are in flight, and more, each time.
        let all = CONNECTIONS * IN_FLIGHT;
        assert!(quarter as usize <= all / 2, "{what}: {quarter} of {all} in flight came first: {behind:?}");
    }
    assert_eq!(floods.len(), CONNECTIONS);
    floods.abort_all();
}
