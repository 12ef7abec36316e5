//! Clients that open a thousand connections, send halves of records, or never read: others are served as before, and what the
//! server holds for them is bounded.

mod common;

use common::v3::V3;
use common::wire::{Line, record};
use common::*;
use landfast_nfs::v3::args::ReadArgs;
use landfast_nfs::v3::types::StableHow;
use landfast_nfs::v3::{self, Call, NfsStat3};
use landfast_nfs::v4::*;
use landfast_xdr::Encode;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The same of `landfast_rpc::limits`, which the server names in its documentation.
const CLIENT_CONNECTIONS_MAX: usize = landfast_rpc::limits::CLIENT_CONNECTIONS_MAX;

/// A connection from another address than the tests' other clients.
async fn from_elsewhere(rig: &Rig) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from((IpAddr::from([127, 0, 0, 9]), 0))).expect("an address");
    socket.connect(rig.addr()).await.expect("connected")
}

/// Both ends of all connections are in this process.
fn many_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).expect("a limit");
}

/// Each time as another client.
async fn all_are_served(rig: &Rig) {
    static TIMES: AtomicUsize = AtomicUsize::new(0);
    let name = format!("client {}", TIMES.fetch_add(1, Ordering::Relaxed));
    let mut c = rig.client(name.as_bytes()).await;
    assert_eq!(c.status(vec![ArgOp::Putrootfh, ArgOp::Getattr(Bitmap::of(&[4]))]).await, NfsStat::NFS4_OK);
    let c = V3::new(rig).await;
    assert_eq!(c.status(Call::Getattr(c.root.clone())).await, NfsStat3::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_thousand_connections_of_one_client_are_cut_to_its_share() {
    many_descriptors();
    let rig = Rig::new().await;
    let mut first = Line::new(rig.addr()).await;
    let mut open = Vec::new();
    for _ in 0..1000 {
        open.push(from_elsewhere(&rig).await);
    }
    all_are_served(&rig).await;
    // Each is either served or closed.
    let null = record(&wire::header(100_003, 3, 0));
    let mut served = 0;
    for stream in &mut open {
        let mut reply = [0; 28];
        let answer = async {
            stream.write_all(&null).await?;
            stream.read_exact(&mut reply).await
        };
        let answer = tokio::time::timeout(PATIENCE, answer).await.expect("neither served nor closed");
        served += usize::from(answer.is_ok());
    }
    assert_eq!(served, CLIENT_CONNECTIONS_MAX, "of a thousand");
    let connections = rig.server().stats().connections;
    assert!(connections <= CLIENT_CONNECTIONS_MAX + 8, "{connections} are held");
    assert_eq!(first.call((100_003, 3, 0), &[]).await, (0, Vec::new()), "who was there before");
    drop(open);
    let freed = async {
        while rig.server().stats().connections > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.expect("places are free again");
    let mut again = from_elsewhere(&rig).await;
    again.write_all(&null).await.expect("sent");
    again.read_exact(&mut [0; 28]).await.expect("served");
}

/// Four hundred megabytes are announced, and half of each record is sent: others have their turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn halves_of_records_take_no_more_than_a_clients_share() {
    let rig = Rig::new().await;
    let half = [&(0x8000_0000u32 | 4 << 20).to_be_bytes()[..], &[0; 4096]].concat();
    let mut halves = Vec::new();
    for _ in 0..100 {
        let mut stream = from_elsewhere(&rig).await;
        stream.write_all(&half).await.expect("sent");
        halves.push(stream);
        if halves.len() % 20 == 0 {
            all_are_served(&rig).await;
        }
    }
    all_are_served(&rig).await;
}

/// Reads of half a megabyte, again and again, and nobody takes what comes: of NFS version 3 and of version 4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn who_never_reads_its_replies_is_not_read_from_for_ever() {
    let rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let file = c.file("f").await;
    c.write(&file, 0, &vec![7; 512 << 10], StableHow::FileSync).await;
    let read = Call::Read(ReadArgs { file: file.clone(), offset: 0, count: 512 << 10 });
    let three = [wire::header(100_003, v3::VERSION, v3::proc::READ), read.to_bytes().to_vec()].concat();
    // Without a session a version 4.0 COMPOUND may read.
    let fh = FileHandle(file.0.clone());
    let mut raw = rig.raw().await;
    raw.minor = 0;
    let zero = raw.encode(vec![ArgOp::Putfh(fh), read_op(Stateid::READ_BYPASS, 0, 512 << 10)]);
    let zero = [wire::header(100_003, 4, 1), zero.to_vec()].concat();
    for call in [three, zero] {
        let call = record(&call);
        let deaf = from_elsewhere(&rig).await;
        // Until nothing more is taken for as long as somebody else needs for two mounts.
        let mut sent = 0usize;
        loop {
            let pushed = deaf.try_write(&call);
            match pushed {
                Ok(n) if n == call.len() => sent += n,
                // A part of a call: the buffers are full.
                _ => {
                    let before = rig.server().stats().connections;
                    all_are_served(&rig).await;
                    assert!(before > 0);
                    if deaf.try_write(&call[..1]).is_err() {
                        break;
                    }
                }
            }
            assert!(sent < 256 << 20, "a server that keeps 256 MiB of requests keeps anything");
        }
        all_are_served(&rig).await;
    }
    // What was asked for on other connections comes.
    assert_eq!(c.read(&file, 0, 10).await.data[..], [7; 10]);
    assert!(file.to_bytes().len() > 4);
}
