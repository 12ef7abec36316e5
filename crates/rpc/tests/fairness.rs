//! Whose call is next, and what a peer that takes no replies may hold.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use landfast_rpc::message::RawCall;
use landfast_rpc::record::last_fragment_header;
use landfast_rpc::{
    CallHeader, ConnConfig, ConnInfo, OpaqueAuth, Program, Response, Server, ServerConfig, Service,
};
use landfast_xdr::Encode;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;

const PROG: u32 = 0x2000_0002;
/// Runs for as long as the test wants.
const RUN: u32 = 1;
/// A reply of as many bytes as the argument says.
const DATA: u32 = 2;
const FLOOD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1));
const POLITE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

struct Runs {
    programs: [Program; 1],
    gate: Semaphore,
    order: Mutex<Vec<IpAddr>>,
    made: Mutex<usize>,
}

impl Service for Runs {
    fn programs(&self) -> &[Program] {
        &self.programs
    }

    async fn call(&self, conn: &Arc<ConnInfo>, call: CallHeader, body: Bytes) -> Response {
        if call.proc == RUN {
            self.order.lock().unwrap().push(conn.peer().ip());
            self.gate.acquire().await.unwrap().forget();
            return Response::Success(body);
        }
        let mut turn = call.turn;
        let len = u32::from_be_bytes(body[..4].try_into().unwrap()) as usize;
        let room = turn.before(std::pin::pin!(conn.room(len))).await;
        *self.made.lock().unwrap() += len;
        turn.give();
        Response::Success(vec![7; len].into()).in_room(room)
    }
}

impl Runs {
    fn ran(&self) -> usize {
        self.order.lock().unwrap().len()
    }

    fn made(&self) -> usize {
        *self.made.lock().unwrap()
    }
}

async fn server(config: ServerConfig) -> (Arc<Runs>, Server) {
    let service = Arc::new(Runs {
        programs: [Program { number: PROG, low: 1, high: 1 }],
        gate: Semaphore::new(0),
        order: Mutex::default(),
        made: Mutex::default(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (service.clone(), Server::start(listener, service, config).unwrap())
}

async fn from(client: IpAddr, server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(client, 0)).unwrap();
    socket.connect(server.local_addr()).await.unwrap()
}

fn call(xid: u32, proc: u32, args: u32) -> Vec<u8> {
    let mut message = BytesMut::new();
    let (cred, verf) = (OpaqueAuth::NONE, OpaqueAuth::NONE);
    RawCall { xid, prog: PROG, vers: 1, proc, cred, verf }.encode(&mut message);
    message.extend_from_slice(&args.to_be_bytes());
    [&last_fragment_header(message.len())[..], &message].concat()
}

async fn until(what: impl Fn() -> bool) {
    while !what() {
        tokio::task::yield_now().await;
    }
}

/// Four hundred calls of one client on eight connections wait for two places; the other client's two run as the second and
/// fourth of those that are let in after they came.
#[tokio::test]
async fn a_flood_does_not_starve_another_client() {
    let (service, server) = server(ServerConfig { turns: 2, ..ServerConfig::default() }).await;
    let load = server.load();
    let mut flood = Vec::new();
    for _ in 0..8 {
        let mut stream = from(FLOOD, &server).await;
        for xid in 0..50 {
            stream.write_all(&call(xid, RUN, 0)).await.unwrap();
        }
        flood.push(stream);
    }
    until(|| service.ran() == 2 && load().waiting == 8).await;
    let mut polite = [from(POLITE, &server).await, from(POLITE, &server).await];
    for stream in &mut polite {
        stream.write_all(&call(1, RUN, 0)).await.unwrap();
    }
    until(|| load().waiting == 10).await;
    assert_eq!((service.ran(), load().clients_waiting), (2, 2));
    for n in 3..=10 {
        service.gate.add_permits(1);
        until(|| {
            service.ran() == n
                && load().waiting + service.order.lock().unwrap().iter().filter(|a| **a == POLITE).count()
                    == 10
        })
        .await;
    }
    let order: Vec<_> = service.order.lock().unwrap()[2..].iter().map(|a| *a == POLITE).collect();
    assert_eq!(order.iter().filter(|p| **p).count(), 2, "{order:?}");
    let second = order.iter().rposition(|p| *p).unwrap();
    assert!(second <= 3, "{order:?}");
}

/// A client asks for much on several connections and takes nothing: what is made for it is bounded, for each connection and
/// for all of them; another goes on; in the end its connections are cut off and it holds nothing.
#[tokio::test]
async fn replies_that_nobody_takes_are_bounded_and_cut_off() {
    const MIB: usize = 1 << 20;
    let conn = ConnConfig {
        reply_bytes_max: 4 * MIB,
        write_stall_max: Duration::from_millis(1500),
        ..ConnConfig::default()
    };
    let config = ServerConfig {
        conn,
        client_reply_bytes_max: 6 * MIB,
        reply_bytes_max: 8 * MIB,
        ..ServerConfig::default()
    };
    let (service, server) = server(config).await;
    let load = server.load();
    let mut greedy = Vec::new();
    for _ in 0..3 {
        let mut stream = from(FLOOD, &server).await;
        for xid in 0..64 {
            stream.write_all(&call(xid, DATA, MIB as u32)).await.unwrap();
        }
        greedy.push(stream);
    }
    until(|| load().client_reply_bytes == 6 * MIB).await;
    let mut polite = from(POLITE, &server).await;
    for xid in 0..16 {
        polite.write_all(&call(xid, DATA, MIB as u32)).await.unwrap();
        let mut reply = vec![0; 4 + 24 + MIB];
        polite.read_exact(&mut reply).await.unwrap();
        assert!(load().client_reply_bytes <= 6 * MIB && load().reply_bytes <= 8 * MIB);
        assert_eq!(reply[28..], vec![7; MIB]);
    }
    // What was made is held or in sockets, whose buffers are far smaller than what was asked for.
    assert!(service.made() < (16 + 64) * MIB, "{} MiB were made", service.made() / MIB);
    until(|| load().client_connections == 1).await;
    until(|| load().reply_bytes == 0 && load().calls == 0).await;
    drop(greedy);
}

/// One that takes a little now and then is cut off too.
#[tokio::test]
async fn who_takes_next_to_nothing_is_cut_off() {
    let conn = ConnConfig { write_time_max: Duration::from_millis(300), ..ConnConfig::default() };
    let (_service, server) = server(ServerConfig { conn, ..ServerConfig::default() }).await;
    let load = server.load();
    let mut slow = from(FLOOD, &server).await;
    for xid in 0..8 {
        slow.write_all(&call(xid, DATA, 4 << 20)).await.unwrap();
    }
    let mut bit = [0; 4 << 10];
    let mut taken = 0;
    while load().connections == 1 {
        let within = tokio::time::timeout(Duration::from_millis(40), slow.read(&mut bit)).await;
        taken += within.map_or(0, |read| read.unwrap_or(0));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(taken < 32 << 20, "everything was taken");
    until(|| load().reply_bytes == 0).await;
}
