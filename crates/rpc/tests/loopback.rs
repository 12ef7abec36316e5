//! Both ends over loopback TCP, and raw bytes against the server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use landfast_rpc::message::{Incoming, Outcome, RawCall, parse};
use landfast_rpc::record::Assembler;
use landfast_rpc::{
    AcceptStat, AuthStat, CallError, CallHeader, ConnConfig, ConnInfo, Connection, Credential, NoService,
    OpaqueAuth, Program, RejectStat, Response, Server, ServerConfig, Service, Target,
};
use landfast_xdr::Encode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};

const PROG: u32 = 0x2000_0001;
const PATIENCE: Duration = Duration::from_secs(20);

/// What the procedures of the test program do.
mod proc {
    pub const ECHO: u32 = 1;
    /// Replies when the gate opens.
    pub const GATE: u32 = 2;
    pub const PANIC: u32 = 3;
    pub const GARBAGE: u32 = 4;
    pub const UID: u32 = 5;
    /// Calls the caller back with the body and returns its answer.
    pub const BACK: u32 = 6;
    pub const TOO_WEAK: u32 = 7;
    pub const CLOSE: u32 = 8;
    /// How many bytes came.
    pub const LENGTH: u32 = 9;
    pub const NONE: u32 = 99;
}

struct TestService {
    programs: [Program; 1],
    gate: Semaphore,
    waiting: AtomicUsize,
    arrived: Notify,
    closed: Notify,
    closed_ids: Mutex<Vec<u64>>,
}

impl TestService {
    fn new() -> Arc<Self> {
        Arc::new(TestService {
            programs: [Program { number: PROG, low: 3, high: 4 }],
            gate: Semaphore::new(0),
            waiting: AtomicUsize::new(0),
            arrived: Notify::new(),
            closed: Notify::new(),
            closed_ids: Mutex::new(Vec::new()),
        })
    }
}

impl Service for TestService {
    fn programs(&self) -> &[Program] {
        &self.programs
    }

    async fn call(&self, conn: &Arc<ConnInfo>, call: CallHeader, body: Bytes) -> Response {
        match call.proc {
            proc::ECHO => {
                Response::Segments(vec![body.slice(..body.len() / 2), body.slice(body.len() / 2..)])
            }
            proc::GATE => {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                self.arrived.notify_one();
                self.gate.acquire().await.unwrap().forget();
                Response::Success(body)
            }
            proc::PANIC => panic!("the test asks for it"),
            proc::LENGTH => Response::Success((body.len() as u32).to_bytes()),
            proc::GARBAGE => Response::GarbageArgs,
            proc::UID => match call.cred {
                Credential::Sys(sys) => Response::Success(sys.uid.to_bytes()),
                Credential::None => Response::SystemErr,
            },
            proc::BACK => match conn.call(to(proc::ECHO), &OpaqueAuth::NONE, vec![body], PATIENCE).await {
                Ok(answer) => Response::Success(answer),
                Err(_) => Response::SystemErr,
            },
            proc::TOO_WEAK => Response::AuthError(AuthStat::TOOWEAK),
            proc::CLOSE => Response::Close,
            _ => Response::ProcUnavail,
        }
    }

    fn closed(&self, conn: &Arc<ConnInfo>) {
        self.closed_ids.lock().unwrap().push(conn.id());
        self.closed.notify_one();
    }
}

fn to(proc: u32) -> Target {
    Target { prog: PROG, vers: 4, proc }
}

async fn server(config: ServerConfig) -> (Arc<TestService>, Server) {
    let service = TestService::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::start(listener, service.clone(), config).unwrap();
    (service, server)
}

async fn connect(server: &Server) -> Connection {
    Connection::connect(server.local_addr(), Arc::new(NoService), &ConnConfig::default()).await.unwrap()
}

async fn call(conn: &ConnInfo, to: Target, body: impl Into<Bytes>) -> Result<Bytes, CallError> {
    conn.call(to, &OpaqueAuth::NONE, vec![body.into()], PATIENCE).await
}

#[tokio::test]
async fn concurrent_calls_get_their_own_replies() {
    let (_service, server) = server(ServerConfig::default()).await;
    let conn = connect(&server).await;
    let calls: Vec<_> = (0..300u32)
        .map(|i| {
            let conn = conn.clone();
            // Sizes from one to a million bytes: batched, vectored, and larger than any buffer.
            let body = Bytes::from(vec![i as u8; if i % 50 == 7 { 1_000_000 } else { 4 * i as usize + 4 }]);
            tokio::spawn(async move { call(&conn, to(proc::ECHO), body.clone()).await.unwrap() == body })
        })
        .collect();
    for c in calls {
        assert!(c.await.unwrap());
    }
}

/// Calls that wait are set aside; those behind them are answered before, whoever arrived first.
#[tokio::test]
async fn a_call_that_waits_holds_up_nobody() {
    let (service, server) = server(ServerConfig::default()).await;
    let conn = connect(&server).await;
    let waiting: Vec<_> = (0..5u32)
        .map(|i| {
            let conn = conn.clone();
            tokio::spawn(async move { call(&conn, to(proc::GATE), vec![i as u8; 4]).await.unwrap() })
        })
        .collect();
    while service.waiting.load(Ordering::SeqCst) < 5 {
        service.arrived.notified().await;
    }
    for i in 0..100u8 {
        assert_eq!(call(&conn, to(proc::ECHO), vec![i; 8]).await.unwrap(), [i; 8][..]);
    }
    service.gate.add_permits(5);
    for (i, waiting) in waiting.into_iter().enumerate() {
        assert_eq!(waiting.await.unwrap(), [i as u8; 4][..]);
    }
    assert_eq!(service.waiting.load(Ordering::SeqCst), 5, "each was begun once");
}

#[tokio::test]
async fn errors_without_disconnect() {
    let (_service, server) = server(ServerConfig::default()).await;
    let conn = connect(&server).await;
    let failed = |stat| Err(CallError::Failed(stat));
    let other = Target { prog: PROG + 1, ..to(proc::ECHO) };
    assert_eq!(call(&conn, other, "").await, failed(AcceptStat::ProgUnavail));
    let other = Target { vers: 5, ..to(proc::ECHO) };
    assert_eq!(call(&conn, other, "").await, failed(AcceptStat::ProgMismatch { low: 3, high: 4 }));
    assert_eq!(call(&conn, to(proc::NONE), "").await, failed(AcceptStat::ProcUnavail));
    assert_eq!(call(&conn, to(proc::GARBAGE), "").await, failed(AcceptStat::GarbageArgs));
    let weak = CallError::Denied(RejectStat::AuthError(AuthStat::TOOWEAK));
    assert_eq!(call(&conn, to(proc::TOO_WEAK), "").await, Err(weak));
    let bad = OpaqueAuth { flavor: 1, body: Bytes::from_static(&[0; 7]) };
    let refused = CallError::Denied(RejectStat::AuthError(AuthStat::BADCRED));
    assert_eq!(conn.call(to(proc::UID), &bad, vec![], PATIENCE).await, Err(refused));
    let me = landfast_rpc::AuthSys { uid: 77, ..Default::default() };
    let me = Credential::Sys(Arc::new(me)).to_opaque();
    assert_eq!(conn.call(to(proc::UID), &me, vec![], PATIENCE).await, Ok(77u32.to_bytes()));
}

#[tokio::test]
async fn rpc_version_mismatch_is_answered() {
    let (_service, server) = server(ServerConfig::default()).await;
    let mut raw = TcpStream::connect(server.local_addr()).await.unwrap();
    let words: Vec<u8> = [0x8000_0000u32 | 12, 5, 0, 3].iter().flat_map(|w| w.to_be_bytes()).collect();
    raw.write_all(&words).await.unwrap();
    let outcome = Outcome::Denied(RejectStat::RpcMismatch { low: 2, high: 2 });
    assert_eq!(read_message(&mut raw).await, Incoming::Reply { xid: 5, outcome });
    // The connection still serves.
    raw.write_all(&record(&[&call_bytes(6, proc::ECHO, b"after")])).await.unwrap();
    assert!(matches!(read_message(&mut raw).await, Incoming::Reply { xid: 6, .. }));
}

#[tokio::test]
async fn fragments_are_joined() {
    let (_service, server) = server(ServerConfig::default()).await;
    let mut raw = TcpStream::connect(server.local_addr()).await.unwrap();
    let message = call_bytes(7, proc::ECHO, b"pieces!!");
    let (a, b) = message.split_at(9);
    raw.write_all(&record(&[a, b"", b])).await.unwrap();
    let outcome = Outcome::Accepted(AcceptStat::Success, Bytes::from_static(b"pieces!!"));
    assert_eq!(read_message(&mut raw).await, Incoming::Reply { xid: 7, outcome });
}

#[tokio::test]
async fn who_may_calls_from_a_reserved_port_and_who_may_not_from_another() {
    let (_service, server) = server(ServerConfig::default()).await;
    // Root may, and who has the capability.
    let may = (900..1000).any(|port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok());
    let config = ConnConfig { reserved_port: true, ..ConnConfig::default() };
    let mut open = Vec::new();
    for _ in 0..20 {
        let conn =
            Connection::connect(server.local_addr(), Arc::new(NoService), &config).await.expect("connected");
        let port = conn.ends().local.port();
        assert_eq!(port < 1024, may, "{port}");
        let echo = Target { prog: PROG, vers: 4, proc: proc::ECHO };
        let reply = conn.call(echo, &OpaqueAuth::NONE, vec![Bytes::from_static(b"x")], PATIENCE).await;
        assert_eq!(reply.expect("a reply"), "x");
        open.push(conn);
    }
    let by_default = connect(&server).await;
    assert!(by_default.ends().local.port() >= 1024);
}

#[tokio::test]
async fn the_largest_record_passes_in_fragments_of_any_size() {
    let (_service, server) = server(ServerConfig::default()).await;
    let mut raw = TcpStream::connect(server.local_addr()).await.unwrap();
    let body = vec![b'x'; landfast_rpc::limits::RECORD_MAX_DEFAULT - 40];
    let message = call_bytes(7, proc::LENGTH, &body);
    assert_eq!(message.len(), landfast_rpc::limits::RECORD_MAX_DEFAULT);
    for size in [1, 7, 2048, 4095] {
        let parts: Vec<&[u8]> = message.chunks(size).collect();
        let record = record(&parts);
        tokio::time::timeout(PATIENCE, raw.write_all(&record)).await.expect("taken").unwrap();
        let outcome = Outcome::Accepted(AcceptStat::Success, (body.len() as u32).to_bytes());
        assert_eq!(read_message(&mut raw).await, Incoming::Reply { xid: 7, outcome }, "{size}");
    }
}

#[tokio::test]
async fn garbage_closes_the_connection_and_only_that() {
    let (_service, server) = server(ServerConfig::default()).await;
    let other = connect(&server).await;
    let four_gib = vec![0xff; 4];
    let no_message = record(&[&[0, 0, 0, 1, 0, 0, 0, 9]]);
    let short_header = record(&[&[0; 8], &[0, 0, 0, 2]]);
    let empty = record(&[b""]);
    for bytes in [four_gib, no_message, short_header, empty] {
        let mut raw = TcpStream::connect(server.local_addr()).await.unwrap();
        raw.write_all(&bytes).await.unwrap();
        let mut rest = Vec::new();
        // A reset is a closed connection too.
        let read = tokio::time::timeout(PATIENCE, raw.read_to_end(&mut rest)).await.expect("closed");
        assert!(rest.is_empty(), "{read:?} {rest:?}");
    }
    assert_eq!(call(&other, to(proc::ECHO), "ok").await, Ok(Bytes::from_static(b"ok")));
}

#[tokio::test]
async fn the_server_calls_back() {
    let (_service, server) = server(ServerConfig::default()).await;
    let back = TestService::new();
    let conn = Connection::connect(server.local_addr(), back, &ConnConfig::default()).await.unwrap();
    assert_eq!(
        call(&conn, to(proc::BACK), "there and back").await,
        Ok(Bytes::from_static(b"there and back"))
    );
}

#[tokio::test]
async fn both_sides_learn_of_a_closed_connection() {
    let (service, server) = server(ServerConfig::default()).await;
    let conn = connect(&server).await;
    let waiting = tokio::spawn({
        let conn = conn.clone();
        async move { call(&conn, to(proc::GATE), "").await }
    });
    service.arrived.notified().await;
    conn.close();
    assert!(matches!(waiting.await.unwrap(), Err(CallError::Closed(_))));
    service.closed.notified().await;
    assert_eq!(service.closed_ids.lock().unwrap().len(), 1);
    assert!(matches!(call(&conn, to(proc::ECHO), "").await, Err(CallError::Closed(_))));

    let conn = connect(&server).await;
    assert!(matches!(call(&conn, to(proc::CLOSE), "").await, Err(CallError::Closed(_))));
    conn.closed().await;
}

#[tokio::test]
async fn a_panicking_service_costs_its_connection() {
    let (_service, server) = server(ServerConfig::default()).await;
    let conn = connect(&server).await;
    assert!(matches!(call(&conn, to(proc::PANIC), "").await, Err(CallError::Closed(_))));
    let conn = connect(&server).await;
    assert!(call(&conn, to(proc::ECHO), "").await.is_ok());
}

#[tokio::test]
async fn a_late_reply_is_dropped() {
    let (service, server) = server(ServerConfig::default()).await;
    let conn = connect(&server).await;
    let brief = Duration::from_millis(20);
    assert_eq!(
        conn.call(to(proc::GATE), &OpaqueAuth::NONE, vec![], brief).await,
        Err(CallError::Timeout(brief))
    );
    service.gate.add_permits(1);
    assert!(call(&conn, to(proc::ECHO), "").await.is_ok());
}

#[tokio::test]
async fn calls_over_the_limit_wait_their_turn() {
    let mut config = ServerConfig::default();
    config.conn.calls_in_flight_max = 4;
    let (service, server) = server(config).await;
    let conn = connect(&server).await;
    sixteen_with_room_for_four(&service, &[conn], || {}).await;
}

/// Sixteen calls that end one by one, and a look whenever one more may have come.
async fn sixteen_with_room_for_four(service: &TestService, conns: &[Connection], look: impl Fn()) {
    let calls: Vec<_> = conns
        .iter()
        .cycle()
        .take(16)
        .map(|conn| {
            let conn = conn.clone();
            tokio::spawn(async move { call(&conn, to(proc::GATE), "").await })
        })
        .collect();
    // The fifth is read only when one of four has been answered: never more than answered + 4 arrive.
    for answered in 0..16 {
        while service.waiting.load(Ordering::SeqCst) <= answered {
            service.arrived.notified().await;
        }
        assert!(service.waiting.load(Ordering::SeqCst) <= answered + 4);
        look();
        service.gate.add_permits(1);
    }
    for c in calls {
        assert!(c.await.unwrap().is_ok());
    }
}

/// The same for the calls of one client on all its connections, and for those of all.
#[tokio::test]
async fn calls_over_the_shared_limits_wait() {
    for (client, all) in [(4, 100), (100, 4)] {
        let config = ServerConfig {
            client_calls_in_flight_max: client,
            calls_in_flight_max: all,
            ..ServerConfig::default()
        };
        let (service, server) = server(config).await;
        let load = server.load();
        let conns = [connect(&server).await, connect(&server).await];
        // A call that waits for room among all has its client's already: one for each connection.
        let client_max = if client == 4 { 4 } else { 4 + conns.len() };
        let look = || assert!(load().calls <= 4 && load().client_calls <= client_max);
        sixteen_with_room_for_four(&service, &conns, look).await;
    }
}

#[tokio::test]
async fn shutdown_lets_replies_out() {
    let (service, server) = server(ServerConfig::default()).await;
    let conn = connect(&server).await;
    let waiting = tokio::spawn({
        let conn = conn.clone();
        async move { call(&conn, to(proc::GATE), "kept").await }
    });
    service.arrived.notified().await;
    let addr = server.local_addr();
    let stopping = tokio::spawn(server.shutdown(PATIENCE));
    // The service learns of the drain before the call is let go.
    service.closed.notified().await;
    service.gate.add_permits(1);
    assert_eq!(waiting.await.unwrap(), Ok(Bytes::from_static(b"kept")));
    assert!(stopping.await.unwrap());
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test]
async fn shutdown_cuts_off_after_the_grace() {
    let (service, server) = server(ServerConfig::default()).await;
    let conn = connect(&server).await;
    let waiting = tokio::spawn({
        let conn = conn.clone();
        async move { call(&conn, to(proc::GATE), "").await }
    });
    service.arrived.notified().await;
    assert!(!server.shutdown(Duration::from_millis(20)).await);
    assert!(matches!(waiting.await.unwrap(), Err(CallError::Closed(_))));
}

#[tokio::test]
async fn connections_over_the_limit_are_closed() {
    let (_service, server) = server(ServerConfig { connections_max: 1, ..ServerConfig::default() }).await;
    let first = connect(&server).await;
    assert!(call(&first, to(proc::ECHO), "").await.is_ok());
    let second = connect(&server).await;
    assert!(matches!(call(&second, to(proc::ECHO), "").await, Err(CallError::Closed(_))));
    assert!(call(&first, to(proc::ECHO), "").await.is_ok());
}

#[tokio::test]
async fn a_client_has_its_share_of_connections_and_a_place_is_free_again() {
    let config = ServerConfig { client_connections_max: 2, ..ServerConfig::default() };
    let (_service, server) = server(config).await;
    let load = server.load();
    let (first, second) = (connect(&server).await, connect(&server).await);
    for conn in [&first, &second] {
        assert!(call(conn, to(proc::ECHO), "").await.is_ok());
    }
    let third = connect(&server).await;
    assert!(matches!(call(&third, to(proc::ECHO), "").await, Err(CallError::Closed(_))));
    assert_eq!((load().connections, load().client_connections, load().refused), (2, 2, 1));
    drop(second);
    while load().client_connections == 2 {
        tokio::task::yield_now().await;
    }
    let again = connect(&server).await;
    assert!(call(&again, to(proc::ECHO), "").await.is_ok());
}

/// Half of a large record: what has arrived of it is counted, and it is cut off when nothing more comes. Others go on.
#[tokio::test]
async fn half_a_record_is_counted_and_cut_off() {
    let conn = ConnConfig { record_stall_max: Duration::from_millis(300), ..ConnConfig::default() };
    let (_service, server) = server(ServerConfig { conn, ..ServerConfig::default() }).await;
    let load = server.load();
    let other = connect(&server).await;
    let mut raw = TcpStream::connect(server.local_addr()).await.unwrap();
    raw.write_all(&(0x8000_0000u32 | 1 << 20).to_be_bytes()).await.unwrap();
    raw.write_all(&[0; 4096]).await.unwrap();
    assert!(call(&other, to(proc::ECHO), "").await.is_ok());
    assert_eq!(load().bytes, 0, "what was only announced does not count");
    raw.write_all(&vec![0; 300 << 10]).await.unwrap();
    while load().bytes != (300 << 10) + 4096 {
        tokio::task::yield_now().await;
    }
    assert!(call(&other, to(proc::ECHO), "").await.is_ok());
    assert_eq!(raw.read(&mut [0; 16]).await.unwrap_or(0), 0, "the connection is closed");
    while load().bytes != 0 {
        tokio::task::yield_now().await;
    }
    assert!(call(&other, to(proc::ECHO), "").await.is_ok());
}

fn call_bytes(xid: u32, proc: u32, args: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    RawCall { xid, prog: PROG, vers: 4, proc, cred: OpaqueAuth::NONE, verf: OpaqueAuth::NONE }
        .encode(&mut out);
    out.extend_from_slice(args);
    out.to_vec()
}

fn record(fragments: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, f) in fragments.iter().enumerate() {
        let last = if i + 1 == fragments.len() { 0x8000_0000 } else { 0 };
        out.extend_from_slice(&(last | f.len() as u32).to_be_bytes());
        out.extend_from_slice(f);
    }
    out
}

async fn read_message(raw: &mut TcpStream) -> Incoming {
    let (mut records, mut buf) = (Assembler::new(1 << 20), BytesMut::new());
    loop {
        if let Some(record) = records.next(&mut buf).unwrap() {
            return parse(record).unwrap();
        }
        assert_ne!(raw.read_buf(&mut buf).await.unwrap(), 0, "closed");
    }
}

/// A call is known again by its transaction id and its sender's port.
#[tokio::test]
async fn a_call_is_sent_again_under_its_id_from_the_same_port_after_a_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let first = Connection::connect(addr, Arc::new(NoService), &ConnConfig::default()).await.unwrap();
    let (mut server, from) = listener.accept().await.unwrap();
    let calling = {
        let conn = first.clone();
        tokio::spawn(async move { conn.call_as(77, to(1), &OpaqueAuth::NONE, Vec::new(), PATIENCE).await })
    };
    let mut call = vec![0; 44];
    server.read_exact(&mut call).await.unwrap();
    assert_eq!(call[4..8], 77u32.to_be_bytes());
    let twice = first.call_as(77, to(1), &OpaqueAuth::NONE, Vec::new(), PATIENCE).await;
    assert_eq!(twice, Err(CallError::SameXid(77)));
    first.abort();
    assert!(matches!(calling.await.unwrap(), Err(CallError::Closed(_))));
    let end = server.read(&mut call).await;
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    let config = ConnConfig::default();
    let again = Connection::connect_again(first.ends(), Arc::new(NoService), &config).await.unwrap();
    let (mut server, from_again) = listener.accept().await.unwrap();
    assert_eq!(from, from_again);
    let calling =
        tokio::spawn(async move { again.call_as(77, to(1), &OpaqueAuth::NONE, Vec::new(), PATIENCE).await });
    server.read_exact(&mut call).await.unwrap();
    assert_eq!(call[4..8], 77u32.to_be_bytes());
    drop(server);
    assert!(matches!(calling.await.unwrap(), Err(CallError::Closed(_))));
}
