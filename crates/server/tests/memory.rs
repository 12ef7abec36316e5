//! What clients make the server hold for a while it gives back when they are gone.

mod common;

use common::v3::V3;
use common::{Rig, user};
use landfast_nfs::v3::{self, Call, args::ReaddirplusArgs};
use landfast_rpc::message::RawCall;
use landfast_rpc::record::last_fragment_header;
use landfast_xdr::Encode;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const ENTRIES: usize = 20_000;
/// Addresses, connections of each, requests of each of these: each reply is about a mebibyte.
const ADDRESSES: u8 = 4;
const CONNECTIONS: usize = 4;
const REQUESTS: usize = 48;
/// What the server may keep, and what a test's own allocations make of it.
const KEPT: u64 = 96 << 20;

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number");
    pages * rustix::param::page_size() as u64
}

async fn connect(host: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from(([127, 0, 0, host], 0))).expect("an address of the loopback network");
    socket.connect(to).await.expect("connected")
}

fn message(call: &Call) -> Vec<u8> {
    let mut message = landfast_xdr::BytesMut::new();
    let cred = user(0).to_opaque();
    let (prog, vers, proc) = (landfast_nfs::PROGRAM, v3::VERSION, call.number());
    RawCall { xid: 7, prog, vers, proc, cred, verf: landfast_rpc::OpaqueAuth::NONE }.encode(&mut message);
    call.encode(&mut message);
    [&last_fragment_header(message.len())[..], &message].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn memory_of_large_listings_is_given_back() {
    let rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let dir = c.dir("d").await;
    for i in 0..ENTRIES {
        std::fs::File::create(rig.export().join("d").join(format!("{i:0100}"))).expect("a file");
    }
    let max = (1 << 20) - (32 << 10);
    let args = ReaddirplusArgs { dir, cookie: 0, cookieverf: [0; 8], dircount: max, maxcount: max };
    let listing = message(&Call::Readdirplus(args));
    let before = resident();
    let mut open = Vec::new();
    for host in 0..ADDRESSES {
        for _ in 0..CONNECTIONS {
            let mut stream = connect(2 + host, rig.addr()).await;
            stream.write_all(&listing.repeat(REQUESTS)).await.expect("sent");
            open.push(stream);
        }
    }
    let used = |resource| {
        let all = rig.server().stats().limited();
        all.iter().find(|(r, ..)| *r == resource).map(|(_, used, _)| *used).expect("a resource")
    };
    // Nobody reads what is made until there is much of it.
    let mut peak = 0;
    while peak < before + 3 * KEPT {
        peak = peak.max(resident());
        tokio::task::yield_now().await;
    }
    for mut stream in open {
        let mut head = [0; 4];
        stream.read_exact(&mut head).await.expect("a reply");
        assert!(u32::from_be_bytes(head) & 0x7fff_ffff > 512 << 10, "a large reply");
    }
    while used("reply_bytes") > 0 || used("connections") > 1 {
        tokio::task::yield_now().await;
    }
    let freed = Instant::now();
    while resident() > before + KEPT {
        let (now, mib) = (resident(), |n: u64| n >> 20);
        let waited = freed.elapsed();
        assert!(
            waited < Duration::from_secs(20),
            "{} MiB before, {} at most, {} when nobody asked for anything any more for {waited:?}",
            mib(before),
            mib(peak),
            mib(now)
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!(
        "{} MiB before, {} at most, {} after {:?}",
        before >> 20,
        peak >> 20,
        resident() >> 20,
        freed.elapsed()
    );
}
