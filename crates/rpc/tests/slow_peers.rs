//! Peers that send or take too slowly: cut off by a named limit, which the tests make short, while others are served.

use bytes::{Bytes, BytesMut};
use landfast_rpc::message::RawCall;
use landfast_rpc::{
    CallHeader, ConnConfig, ConnInfo, Connection, NoService, OpaqueAuth, Program, Response, Server,
    ServerConfig, Service, Target,
};
use landfast_xdr::Encode;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PROG: u32 = 0x2000_0001;
const PATIENCE: Duration = Duration::from_secs(20);
/// Short enough for a test, long enough for a loaded machine to serve a call in.
const STALL: Duration = Duration::from_millis(300);

struct Echo;

impl Service for Echo {
    fn programs(&self) -> &[Program] {
        &[Program { number: PROG, low: 1, high: 1 }]
    }

    async fn call(&self, _: &Arc<ConnInfo>, _: CallHeader, body: Bytes) -> Response {
        Response::Success(body)
    }
}

async fn server(conn: ConnConfig) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    Server::start(listener, Arc::new(Echo), ServerConfig { conn, ..ServerConfig::default() }).unwrap()
}

async fn connect(server: &Server) -> Connection {
    Connection::connect(server.local_addr(), Arc::new(NoService), &ConnConfig::default()).await.unwrap()
}

async fn is_served(conn: &Connection) {
    let to = Target { prog: PROG, vers: 1, proc: 1 };
    let reply = conn.call(to, &OpaqueAuth::NONE, vec![Bytes::from_static(b"ping")], PATIENCE).await;
    assert_eq!(reply.unwrap(), "ping");
}

fn record(xid: u32, args: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    RawCall { xid, prog: PROG, vers: 1, proc: 1, cred: OpaqueAuth::NONE, verf: OpaqueAuth::NONE }
        .encode(&mut out);
    out.extend_from_slice(args);
    [&(0x8000_0000 | out.len() as u32).to_be_bytes()[..], &out].concat()
}

/// It asks and asks and takes no answer: it is not read from any more once its share is used up, and then cut off.
#[tokio::test]
async fn who_never_reads_its_replies_is_cut_off() {
    const SHARE: usize = 1 << 20;
    let conn = ConnConfig { write_stall_max: STALL, bytes_in_flight_max: SHARE, ..ConnConfig::default() };
    let server = server(conn).await;
    let load = server.load();
    let other = connect(&server).await;
    let mut deaf = TcpStream::connect(server.local_addr()).await.unwrap();
    let call = record(1, &[7; 64 << 10]);
    let asking = async {
        // Until the server has enough.
        let mut sent = 0usize;
        while deaf.write_all(&call).await.is_ok() {
            sent += call.len();
            assert!(sent < 1 << 30, "a gigabyte was taken and nothing was read");
            assert!(load().bytes <= 2 * SHARE, "{:?}", load());
            is_served(&other).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("it is cut off");
    while load().connections > 1 || load().bytes > 0 || load().calls > 0 {
        tokio::task::yield_now().await;
    }
    is_served(&other).await;
}

/// A header without the rest of it, a record without its second half, a last fragment that never comes.
#[tokio::test]
async fn who_stops_in_the_middle_is_cut_off_wherever_it_stops() {
    let conn = ConnConfig { record_stall_max: STALL, ..ConnConfig::default() };
    let server = server(conn).await;
    let load = server.load();
    let other = connect(&server).await;
    let whole = record(1, b"some arguments..");
    let mut fragment = whole.clone();
    fragment[0] &= 0x7f;
    let mut halves: Vec<TcpStream> = Vec::new();
    for part in [&whole[..1], &whole[..4], &whole[..7], &whole[..whole.len() - 1], &fragment] {
        let mut half = TcpStream::connect(server.local_addr()).await.unwrap();
        half.write_all(part).await.unwrap();
        halves.push(half);
    }
    is_served(&other).await;
    for mut half in halves {
        let read = tokio::time::timeout(PATIENCE, half.read(&mut [0; 16])).await.expect("it is cut off");
        assert_eq!(read.unwrap_or(0), 0, "and gets no answer");
    }
    while load().connections > 1 || load().bytes > 0 {
        tokio::task::yield_now().await;
    }
    is_served(&other).await;
}
