//! Attackers with sockets of their own at many loopback addresses, beside an honest client whose answers are timed; and as many
//! honest clients as a server is made for.

mod common;

use common::wire::{Line, header, record};
use common::*;
use landfast_nfs::v3;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use landfast_rpc::record::last_fragment_header;
use landfast_rpc::{Connection, Ends, NoService};
use landfast_server::exports::rules::{ClientSpec, Rule, Rules};
use landfast_server::limited::{Limit, Limits};
use landfast_server::{Running, Server, ServerConfig};
use landfast_volume::{Durability, OpenOptions, Volume};
use landfast_xdr::{Bytes, Encode};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

const MIB: usize = 1 << 20;
/// What an honest client may feel on a machine that is busy with other things as well. Attacks that work stop it for a minute and
/// more; what it feels on an idle machine is printed.
const SOON: Duration = Duration::from_secs(3);
const CALLS: usize = 200;

fn many_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).expect("a limit");
}

/// A server that names 127.0.0.1 and 127.0.1.0/24 and nobody else.
async fn server(dir: &tempfile::TempDir) -> Running {
    let data = dir.path().join("data");
    std::fs::create_dir(&data).expect("the export");
    std::fs::write(data.join("large"), vec![7; MIB]).expect("a file");
    let options = OpenOptions {
        log_size: 16 << 20,
        accept_weak: true,
        ..OpenOptions::with_log(data.clone(), dir.path().join("log"))
    };
    let (volume, recovery) = Volume::open(options).expect("the volume opens");
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut config = ServerConfig::new(volume, recovery, listen, data);
    let named = ["127.0.0.1", "127.0.1.0/24"].map(|text| ClientSpec::parse(text).expect("a client"));
    config.exports[0].rules = Rules(vec![Rule::open(named.to_vec())]);
    config.limits = Limits::default().with(Limit::Connections, 1024);
    Server::start(ServerConfig { workers: 4, ..config }).await.expect("the server starts")
}

async fn from(client: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::new(IpAddr::from(client), 0)).expect("an address of the loopback network");
    socket.connect(to).await.expect("connected")
}

/// The filehandle that these bytes begin with, its length and what pads it included.
fn handle(bytes: &[u8]) -> Vec<u8> {
    let len = u32::from_be_bytes(bytes[..4].try_into().expect("a length")) as usize;
    bytes[..4 + len.next_multiple_of(4)].to_vec()
}

/// An honest client of NFS version 3, which knows two handles and asks from a thread of its own.
#[derive(Clone)]
struct Honest {
    to: SocketAddr,
    root: Vec<u8>,
    large: Vec<u8>,
}

impl Honest {
    async fn new(to: SocketAddr, path: &[u8]) -> Honest {
        let mut line = Line::new(to).await;
        let (accepted, mounted) = line.call((100_005, 3, 1), &Bytes::copy_from_slice(path).to_bytes()).await;
        assert_eq!((accepted, mounted.get(..4)), (0, Some(&[0; 4][..])), "MNT3_OK");
        let root = handle(&mounted[4..]);
        let name = Bytes::from_static(b"large").to_bytes();
        let (_, found) = line.call((100_003, 3, v3::proc::LOOKUP), &[&root[..], &name].concat()).await;
        assert_eq!(found.get(..4), Some(&[0; 4][..]), "NFS3_OK");
        Honest { to, large: handle(&found[4..]), root }
    }

    /// A READ of a megabyte.
    fn read(&self) -> Vec<u8> {
        let args = [&self.large[..], &0u64.to_be_bytes(), &(MIB as u32).to_be_bytes()].concat();
        record(&[header(100_003, 3, v3::proc::READ), args].concat())
    }

    /// The 99th percentile, over a connection of its own, of GETATTR, and of READ.
    async fn feels(&self) -> [Duration; 2] {
        let getattr = record(&[header(100_003, 3, v3::proc::GETATTR), self.root.clone()].concat());
        let (to, calls) = (self.to, [getattr, self.read()]);
        let feels = tokio::task::spawn_blocking(move || {
            let mut stream = std::net::TcpStream::connect(to).expect("connected");
            stream.set_nodelay(true).expect("a socket");
            calls.map(|call| {
                let mut times: Vec<Duration> = (0..CALLS).map(|_| ask(&mut stream, &call)).collect();
                times.sort_unstable();
                times[CALLS * 99 / 100]
            })
        });
        tokio::time::timeout(PATIENCE, feels).await.expect("it is kept waiting").expect("it is served")
    }
}

fn ask(stream: &mut std::net::TcpStream, call: &[u8]) -> Duration {
    let begun = Instant::now();
    stream.write_all(call).expect("sent");
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).expect("a reply");
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).expect("a whole reply");
    assert_eq!(reply[20..28], [0; 8], "accepted, executed, NFS3_OK");
    begun.elapsed()
}

fn is_bounded(what: &str, alone: [Duration; 2], beside: [Duration; 2]) {
    println!("{what}: GETATTR, READ of 1 MiB: {alone:?} alone, {beside:?} beside (99th percentile)");
    assert!(beside.iter().all(|t| *t < SOON), "{what}: {beside:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_honest_client_beside_attackers() {
    many_descriptors();
    let dir =
        tempfile::Builder::new().prefix("landfast-server-").tempdir_in("/var/tmp").expect("a directory");
    let running = server(&dir).await;
    let to = running.local_addr();
    let path = dir.path().join("data");
    let honest = Honest::new(to, path.to_str().expect("a path").as_bytes()).await;
    let alone = honest.feels().await;

    // Named, 4 addresses with 16 connections: 4 MiB are announced on each, and a byte is sent.
    let mut open = Vec::new();
    for n in 1..=4 {
        for _ in 0..16 {
            let mut stream = from([127, 0, 1, n], to).await;
            let header = last_fragment_header(4 * MIB);
            stream.write_all(&[&header[..], b"x"].concat()).await.expect("sent");
            open.push(stream);
        }
    }
    is_bounded("records that are announced and not sent", alone, honest.feels().await);
    open.clear();

    // Named, 8 addresses with 8 connections: each asks for all the replies that it may have, and takes none.
    let read = honest.read();
    for n in 11..=18 {
        for _ in 0..8 {
            let mut stream = from([127, 0, 1, n], to).await;
            // What does not fit into the buffers need not be sent.
            let _ = tokio::time::timeout(Duration::from_millis(20), stream.write_all(&read.repeat(64))).await;
            open.push(stream);
        }
    }
    let begun = Instant::now();
    while running.stats().load.reply_bytes < 300 * MIB {
        assert!(begun.elapsed() < PATIENCE, "{:?}", running.stats().load);
        tokio::task::yield_now().await;
    }
    is_bounded("replies that are not taken", alone, honest.feels().await);
    open.clear();

    // Outsiders: 4 addresses with 256 connections each, where 1,024 are served.
    for n in 1..=4 {
        for _ in 0..256 {
            open.push(from([127, 0, 3, n], to).await);
        }
    }
    is_bounded("outsiders with a thousand connections", alone, honest.feels().await);
    assert!(running.stats().load.outsiders <= 64, "{:?}", running.stats().load);
    // NULL is answered to one more of them, also beside a large record that it announces.
    let stream = from([127, 0, 3, 9], to).await.into_std().expect("a socket");
    stream.set_nonblocking(false).expect("a socket");
    let null = tokio::task::spawn_blocking(move || {
        let mut stream = stream;
        stream.write_all(&record(&header(100_003, 4, 0))).expect("sent");
        let mut reply = [0; 28];
        stream.read_exact(&mut reply).expect("answered");
    });
    tokio::time::timeout(PATIENCE, null).await.expect("in time").expect("answered");
    open.clear();
    running.stop().await.expect("a clean stop");
}

/// A Linux client at an address of its own.
async fn linux(to: SocketAddr, n: u16) -> Raw {
    let [high, low] = n.to_be_bytes();
    let ends = Ends { local: SocketAddr::from(([127, 1, high, low], 0)), peer: to };
    let conn =
        Connection::connect_again(ends, Arc::new(NoService), &Default::default()).await.expect("connected");
    Raw { conn, cred: user(0), minor: 2 }
}

fn getattr(sessionid: SessionId, sequenceid: u32) -> Vec<ArgOp> {
    let sequence = SequenceArgs { sessionid, sequenceid, slotid: 0, highest_slotid: 0, cachethis: true };
    vec![ArgOp::Sequence(sequence), ArgOp::Putrootfh, ArgOp::Getattr(Bitmap::of(&[4]))]
}

/// Each with the session that Linux asks for and a connection of its own, on the log that a server has by default; and again
/// after a crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn four_thousand_linux_clients() {
    const CLIENTS: u16 = 4096;
    const AT_ONCE: usize = 64;
    many_descriptors();
    let dir =
        tempfile::Builder::new().prefix("landfast-server-").tempdir_in("/var/tmp").expect("a directory");
    std::fs::create_dir(dir.path().join("data")).expect("the export");
    let mut rig = Rig::stopped(dir, Durability::Log, 90, None);
    rig.log_size = 256 << 20;
    rig.start().await;
    let to = rig.addr();
    let fore = ChannelAttrs {
        max_request_size: 1 << 20,
        max_response_size: 1 << 20,
        max_response_size_cached: 7584,
        max_operations: 8,
        max_requests: 64,
        ..channel()
    };
    let mut all = Vec::new();
    let numbers: Vec<u16> = (0..CLIENTS).collect();
    for some in numbers.chunks(AT_ONCE) {
        let mut mounting = tokio::task::JoinSet::new();
        for n in some.iter().copied() {
            let fore = fore.clone();
            mounting.spawn(async move {
                let raw = linux(to, n).await;
                let ex = raw.exchange_id(format!("Linux NFSv4.2 client {n}").as_bytes(), 1).await;
                let args = session_args(ex.clientid, ex.sequenceid);
                let s = raw.create_session(CreateSessionArgs { fore_chan_attrs: fore, ..args }).await;
                let got = &s.fore_chan_attrs;
                assert_eq!((got.max_requests, got.max_response_size_cached), (64, 7584), "client {n}");
                let res = raw.compound(getattr(s.sessionid, 1)).await;
                assert_eq!(res.status, NfsStat::NFS4_OK, "client {n}");
                (n, raw, s.sessionid)
            });
        }
        all.extend(mounting.join_all().await);
    }
    let load = rig.server().stats().load;
    assert_eq!((load.connections, load.clients), (CLIENTS as usize, CLIENTS as usize));
    let sessions: Vec<(u16, SessionId)> = all
        .into_iter()
        .map(|(n, raw, id)| {
            drop(raw);
            (n, id)
        })
        .collect();
    assert_eq!(rig.crash().await.sessions, CLIENTS as usize);
    let to = rig.addr();
    let mut open = Vec::new();
    for some in sessions.chunks(AT_ONCE) {
        let mut again = tokio::task::JoinSet::new();
        for (n, id) in some.iter().copied() {
            again.spawn(async move {
                let raw = linux(to, n).await;
                let res = raw.compound(getattr(id, 2)).await;
                assert_eq!(res.status, NfsStat::NFS4_OK, "client {n} after the crash");
                raw
            });
        }
        open.extend(again.join_all().await);
    }
    assert_eq!(open.len(), CLIENTS as usize);
}

/// One address asks for sessions with all that a session can have, as many as it can; another is served as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn sessions_that_ask_for_all_leave_room_for_others() {
    let rig = Rig::new().await;
    let to = rig.addr();
    let greedy = ChannelAttrs { max_response_size_cached: u32::MAX, max_requests: u32::MAX, ..channel() };
    let attacker = linux(to, 1).await;
    for n in 0..40u32 {
        let ex = attacker.exchange_id(format!("greedy {n}").as_bytes(), 1).await;
        let args =
            CreateSessionArgs { fore_chan_attrs: greedy.clone(), ..session_args(ex.clientid, ex.sequenceid) };
        attacker.alone(ArgOp::CreateSession(args)).await;
    }
    let honest = linux(to, 2).await;
    let ex = honest.exchange_id(b"honest", 1).await;
    let s = honest.create_session(session_args(ex.clientid, ex.sequenceid)).await;
    assert_eq!((s.fore_chan_attrs.max_requests, s.fore_chan_attrs.max_response_size_cached), (8, 8192));
    assert_eq!(honest.compound(getattr(s.sessionid, 1)).await.status, NfsStat::NFS4_OK);
}
