//! Attackers with connections of their own, beside a client that wants nothing but its share: what they announce and do not
//! send, ask for and do not take, open and do not use, keeps nobody else waiting.

use bytes::{Bytes, BytesMut};
use landfast_rpc::message::RawCall;
use landfast_rpc::record::last_fragment_header;
use landfast_rpc::{
    CallHeader, ConnConfig, ConnInfo, OpaqueAuth, Program, Response, Server, ServerConfig, Service, Standing,
};
use landfast_xdr::Encode;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

const PROG: u32 = 0x2000_0003;
const ECHO: u32 = 1;
/// A reply of as many bytes as the argument says.
const DATA: u32 = 2;
const MIB: usize = 1 << 20;
/// Far longer than a loaded machine takes for a call, and far shorter than the times after which peers are cut off.
const SOON: Duration = Duration::from_secs(20);
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));

#[derive(Default)]
struct Echo {
    /// Addresses that are not named.
    outsiders: Mutex<HashSet<IpAddr>>,
    changes: AtomicU64,
    holders: Mutex<HashSet<IpAddr>>,
}

impl Service for Echo {
    fn programs(&self) -> &[Program] {
        &[Program { number: PROG, low: 1, high: 1 }]
    }

    async fn call(&self, conn: &Arc<ConnInfo>, call: CallHeader, body: Bytes) -> Response {
        let mut turn = call.turn;
        if call.proc != DATA {
            return Response::Success(body);
        }
        let len = u32::from_be_bytes(body[..4].try_into().unwrap()) as usize;
        let room = turn.before(std::pin::pin!(conn.room(len))).await;
        turn.give();
        Response::Success(vec![7; len].into()).in_room(room)
    }

    fn standing(&self, addr: IpAddr) -> Standing {
        let outsider = self.outsiders.lock().unwrap().contains(&addr);
        if outsider { Standing::Outsider } else { Standing::Named }
    }

    fn standings(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn holders(&self) -> HashSet<IpAddr> {
        self.holders.lock().unwrap().clone()
    }
}

fn address(n: u8) -> IpAddr {
    IpAddr::from([127, 0, 1, n])
}

async fn server(config: ServerConfig) -> (Arc<Echo>, Server) {
    let service = Arc::new(Echo::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (service.clone(), Server::start(listener, service, config).unwrap())
}

async fn from(client: IpAddr, server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(client, 0)).unwrap();
    socket.connect(server.local_addr()).await.unwrap()
}

fn call(xid: u32, proc: u32, args: &[u8]) -> Vec<u8> {
    let mut message = BytesMut::new();
    let (cred, verf) = (OpaqueAuth::NONE, OpaqueAuth::NONE);
    RawCall { xid, prog: PROG, vers: 1, proc, cred, verf }.encode(&mut message);
    message.extend_from_slice(args);
    [&last_fragment_header(message.len())[..], &message].concat()
}

/// The bytes of the reply; `None` when the connection was closed.
async fn asks(stream: &mut TcpStream, proc: u32, args: &[u8]) -> Option<Vec<u8>> {
    let answer = async {
        stream.write_all(&call(1, proc, args)).await?;
        let len = stream.read_u32().await? & 0x7fff_ffff;
        let mut reply = vec![0; len as usize];
        stream.read_exact(&mut reply).await?;
        std::io::Result::Ok(reply)
    };
    timeout(SOON, answer).await.expect("it is kept waiting").ok()
}

async fn is_served(stream: &mut TcpStream) {
    assert_eq!(asks(stream, ECHO, b"ping").await.expect("served")[24..], *b"ping");
    let large = vec![3; MIB];
    assert_eq!(asks(stream, ECHO, &large).await.expect("served")[24..], large);
    let reply = asks(stream, DATA, &(MIB as u32).to_be_bytes()).await.expect("served");
    assert_eq!(reply.len(), 24 + MIB);
}

/// Four addresses with sixteen connections each announce four megabytes on each, and send a byte.
#[tokio::test]
async fn records_that_are_announced_and_not_sent_keep_nobody_waiting() {
    let (_service, server) = server(ServerConfig::default()).await;
    let mut open = Vec::new();
    for n in 1..=4 {
        for _ in 0..16 {
            let mut stream = from(address(n), &server).await;
            let header = last_fragment_header(4 * MIB);
            stream.write_all(&[&header[..], b"x"].concat()).await.unwrap();
            open.push(stream);
        }
    }
    let mut honest = from(HONEST, &server).await;
    is_served(&mut honest).await;
    assert_eq!((server.load())().bytes, 0, "nothing has arrived");
}

/// They send most of the record, so that all that may be held is held; each is still served beside them, and they are cut
/// off when they go on too slowly, though each sends a little now and then.
#[tokio::test]
async fn halves_of_records_fill_the_share_of_their_clients_only() {
    let conn = ConnConfig { record_stall_max: Duration::from_millis(1500), ..ConnConfig::default() };
    let config = ServerConfig {
        conn,
        bytes_in_flight_max: 32 * MIB,
        client_bytes_in_flight_max: 8 * MIB,
        ..ServerConfig::default()
    };
    let (_service, server) = server(config).await;
    let load = server.load();
    let half = [&last_fragment_header(4 * MIB)[..], &vec![1; 3 * MIB]].concat();
    let mut open = tokio::task::JoinSet::new();
    for n in 1..=8 {
        for _ in 0..4 {
            let mut stream = from(address(n), &server).await;
            let half = half.clone();
            open.spawn(async move {
                // Until it is cut off; never more than a byte where the server expects the rest.
                if stream.write_all(&half).await.is_ok() {
                    while stream.write_all(b"x").await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            });
        }
    }
    let mut honest = from(HONEST, &server).await;
    while !open.is_empty() {
        is_served(&mut honest).await;
        assert!(load().bytes <= 64 * MIB, "{:?}", load());
        while open.try_join_next().is_some() {}
    }
    while load().bytes > 0 || load().connections > 1 {
        tokio::task::yield_now().await;
    }
}

/// Readers at five addresses ask for all that they may have, and take nothing.
#[tokio::test]
async fn replies_that_are_not_taken_fill_the_share_of_their_clients_only() {
    let (_service, server) = server(ServerConfig::default()).await;
    let load = server.load();
    let mut open = Vec::new();
    for n in 1..=5 {
        for _ in 0..4 {
            let mut stream = from(address(n), &server).await;
            for xid in 0..48 {
                stream.write_all(&call(xid, DATA, &(4 * MIB as u32).to_be_bytes())).await.unwrap();
            }
            open.push(stream);
        }
    }
    // The first four may hold 128, 128, 128 and 64 MiB; whatever comes is left half of what is free.
    while load().reply_bytes < 400 * MIB {
        tokio::task::yield_now().await;
    }
    let mut honest = from(HONEST, &server).await;
    for _ in 0..8 {
        is_served(&mut honest).await;
    }
    assert!(load().reply_bytes <= 1024 * MIB, "{:?}", load());
}

/// Calls whose small replies nobody takes: they use up the calls of their clients.
#[tokio::test]
async fn calls_in_flight_are_shared_too() {
    let config =
        ServerConfig { calls_in_flight_max: 64, client_calls_in_flight_max: 32, ..ServerConfig::default() };
    let (_service, server) = server(config).await;
    let load = server.load();
    let mut open = Vec::new();
    for n in 1..=12 {
        let mut stream = from(address(n), &server).await;
        // Large replies that nobody takes keep their calls.
        let many: Vec<u8> = (0..64).flat_map(|xid| call(xid, DATA, &(MIB as u32).to_be_bytes())).collect();
        stream.write_all(&many).await.unwrap();
        open.push(stream);
    }
    while load().calls < 40 {
        tokio::task::yield_now().await;
    }
    let mut honest = from(HONEST, &server).await;
    is_served(&mut honest).await;
    assert!(load().client_calls <= 32, "{:?}", load());
}

/// Outsiders open as many connections as they can; a named newcomer is served, and so is NULL for any of them.
#[tokio::test]
async fn outsiders_have_few_places_and_fill_no_table() {
    let config = ServerConfig { connections_max: 64, outsiders_max: 16, ..ServerConfig::default() };
    let (service, server) = server(config).await;
    let load = server.load();
    service.outsiders.lock().unwrap().extend((1..=40).map(address));
    let mut before = from(HONEST, &server).await;
    is_served(&mut before).await;
    let mut open = Vec::new();
    for n in 1..=40 {
        for _ in 0..8 {
            open.push(from(address(n), &server).await);
            assert!(load().outsiders <= 16, "{:?}", load());
        }
        let newest = open.last_mut().expect("one");
        assert!(asks(newest, ECHO, b"null").await.is_some(), "outsiders are heard");
    }
    assert!(load().connections <= 17, "{:?}", load());
    let mut new = from(IpAddr::from([127, 0, 0, 2]), &server).await;
    is_served(&mut new).await;
    is_served(&mut before).await;
    // A large record of an outsider is not read.
    let newest = open.last_mut().expect("one");
    assert!(asks(newest, ECHO, &vec![0; 64 << 10]).await.is_none());
}

/// Who is named no more after a change keeps no more than an outsider's places.
#[tokio::test]
async fn who_is_named_no_more_is_an_outsider_from_then_on() {
    let config = ServerConfig { connections_max: 64, outsiders_max: 4, ..ServerConfig::default() };
    let (service, server) = server(config).await;
    let load = server.load();
    let mut open = Vec::new();
    for n in 1..=32 {
        let mut stream = from(address(n), &server).await;
        is_served(&mut stream).await;
        open.push(stream);
    }
    service.outsiders.lock().unwrap().extend((1..=32).map(address));
    service.changes.fetch_add(1, Ordering::SeqCst);
    assert!(asks(&mut open[31], ECHO, &vec![0; MIB]).await.is_none(), "its records are small now");
    let mut honest = from(HONEST, &server).await;
    is_served(&mut honest).await;
    assert!(load().outsiders >= 30, "{:?}", load());
    // Each that comes takes the place of one of them.
    let before = load().connections;
    let mut outsider = from(address(32), &server).await;
    assert!(asks(&mut outsider, ECHO, b"null").await.is_some());
    assert!(load().connections <= before);
    service.outsiders.lock().unwrap().clear();
    service.changes.fetch_add(1, Ordering::SeqCst);
    is_served(&mut outsider).await;
}

/// Named addresses fill the table; one that comes gets a place of the one that has most, and who holds state keeps its own.
#[tokio::test]
async fn a_full_table_has_a_place_for_a_newcomer() {
    let config = ServerConfig { connections_max: 64, ..ServerConfig::default() };
    let (service, server) = server(config).await;
    let load = server.load();
    let holder = address(200);
    service.holders.lock().unwrap().insert(holder);
    let mut holds = from(holder, &server).await;
    is_served(&mut holds).await;
    let mut open = Vec::new();
    for n in 1..=3 {
        for _ in 0..21 {
            let mut stream = from(address(n), &server).await;
            assert!(asks(&mut stream, ECHO, b"ping").await.is_some());
            open.push(stream);
        }
    }
    assert_eq!(load().connections, 64);
    for n in 100..150 {
        let mut new = from(address(n), &server).await;
        is_served(&mut new).await;
        open.push(new);
    }
    assert!(load().connections <= 64, "{:?}", load());
    is_served(&mut holds).await;
}
