//! A client that makes one call at a time is served on a thread of its own, where it may wait; nobody else waits for it, and nothing of it is lost when it
//! moves there and back. Of many such clients, each is served on a thread of a pool of theirs.

use bytes::{Bytes, BytesMut};
use landfast_rpc::limits::{LONE_THREADS_MAX, SERIAL_AFTER};
use landfast_rpc::message::RawCall;
use landfast_rpc::record::last_fragment_header;
use landfast_rpc::{
    CallHeader, ConnConfig, ConnInfo, OpaqueAuth, Program, Response, Server, ServerConfig, Service, Standing,
    on_lone_thread,
};
use landfast_xdr::Encode;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

const PROG: u32 = 0x2000_0004;
/// Replies with where it ran: a byte for the thread, one for [`CallHeader::lone`] and one for the pool, and with its arguments.
const WHERE: u32 = 1;
/// As [`WHERE`], but waits in place until the test lets it go on.
const WAIT: u32 = 2;
/// As [`WHERE`], but waits, and lets others go on, until the test opens the gate.
const PARK: u32 = 3;
/// As [`WHERE`], after a moment, for which it waits in a task of its own.
const LATER: u32 = 4;
/// As [`WHERE`], but keeps its thread for as many milliseconds as the arguments say.
const NAP: u32 = 5;
/// Far longer than a loaded machine takes for a call.
const SOON: Duration = Duration::from_secs(30);

struct Places {
    closed: AtomicU32,
    gate: Mutex<Option<mpsc::Receiver<()>>>,
    waits: Mutex<Option<mpsc::Sender<()>>>,
    opened: Semaphore,
    /// An address and its standing. All others are named.
    standing: Mutex<Option<(IpAddr, Standing)>>,
    /// Grows with each change of `standing`.
    standings: AtomicU64,
    /// The reader of the next call panics.
    panics: AtomicBool,
    stalls: AtomicBool,
    /// The pool's runtime, once it has served a call.
    pool: Mutex<Option<Handle>>,
}

impl Default for Places {
    fn default() -> Places {
        let (closed, gate, waits) = Default::default();
        let (standing, standings, panics) = Default::default();
        let (stalls, pool) = Default::default();
        let opened = Semaphore::new(0);
        Places { closed, gate, waits, opened, standing, standings, panics, stalls, pool }
    }
}

impl Service for Places {
    fn programs(&self) -> &[Program] {
        assert!(!self.panics.swap(false, Ordering::SeqCst), "as the test wishes");
        &[Program { number: PROG, low: 1, high: 1 }]
    }

    async fn call(&self, _: &Arc<ConnInfo>, mut call: CallHeader, body: Bytes) -> Response {
        if call.proc == WAIT {
            let gate = self.gate.lock().unwrap().take().expect("one waits");
            self.waits.lock().unwrap().take().expect("the test listens").send(()).unwrap();
            gate.recv_timeout(2 * SOON).expect("let go");
        }
        if call.proc == PARK {
            call.turn.give();
            let _opened = self.opened.acquire().await;
        }
        if call.proc == LATER {
            let task = tokio::spawn(tokio::time::sleep(Duration::from_millis(300)));
            task.await.expect("it ends");
        }
        if call.proc == NAP {
            let ms = u32::from_be_bytes(body[..].try_into().unwrap());
            std::thread::sleep(Duration::from_millis(ms.into()));
        }
        let pool = std::thread::current().name() == Some("nfs-serial");
        if pool {
            self.pool.lock().unwrap().get_or_insert_with(Handle::current);
        }
        let place = [u8::from(on_lone_thread()), u8::from(call.lone), u8::from(pool), 0];
        Response::Segments(vec![Bytes::copy_from_slice(&place), body])
    }

    fn standing(&self, addr: IpAddr) -> Standing {
        let standing = *self.standing.lock().unwrap();
        standing.filter(|(of, _)| *of == addr).map_or(Standing::Named, |(_, standing)| standing)
    }

    fn standings(&self) -> u64 {
        self.standings.load(Ordering::SeqCst)
    }

    fn stalls(&self) -> bool {
        self.stalls.load(Ordering::SeqCst)
    }

    fn closed(&self, _: &Arc<ConnInfo>) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

async fn server() -> (Arc<Places>, Server) {
    server_with(ServerConfig::default()).await
}

async fn server_with(config: ServerConfig) -> (Arc<Places>, Server) {
    let service = Arc::new(Places::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (service.clone(), Server::start(listener, service, config).unwrap())
}

fn call(xid: u32, proc: u32, args: &[u8]) -> Vec<u8> {
    let mut message = BytesMut::new();
    let (cred, verf) = (OpaqueAuth::NONE, OpaqueAuth::NONE);
    RawCall { xid, prog: PROG, vers: 1, proc, cred, verf }.encode(&mut message);
    message.extend_from_slice(args);
    [&last_fragment_header(message.len())[..], &message].concat()
}

struct Client {
    stream: TcpStream,
    xid: u32,
    /// The last reply came from the pool.
    in_pool: bool,
}

impl Client {
    async fn connect(server: &Server) -> Client {
        Client::connect_from([127, 0, 0, 1].into(), server).await
    }

    async fn connect_from(address: IpAddr, server: &Server) -> Client {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((address, 0).into()).unwrap();
        let stream = socket.connect(server.local_addr()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, xid: 0, in_pool: false }
    }

    async fn send(&mut self, proc: u32, args: &[u8]) {
        self.xid += 1;
        self.stream.write_all(&call(self.xid, proc, args)).await.unwrap();
    }

    /// The xid of the next reply, where the call ran, and its arguments.
    async fn reply(&mut self) -> (u32, bool, bool, Vec<u8>) {
        let reply = async {
            let len = self.stream.read_u32().await.expect("connected") & 0x7fff_ffff;
            let mut reply = vec![0; len as usize];
            self.stream.read_exact(&mut reply).await.expect("a whole reply");
            reply
        };
        let reply = timeout(SOON, reply).await.expect("a reply in time");
        let xid = u32::from_be_bytes(reply[..4].try_into().unwrap());
        self.in_pool = reply[26] == 1;
        (xid, reply[24] == 1, reply[25] == 1, reply[28..].to_vec())
    }

    async fn asks(&mut self, args: &[u8]) -> (bool, bool) {
        self.send(WHERE, args).await;
        let (xid, thread, lone, back) = self.reply().await;
        assert_eq!((xid, &back[..]), (self.xid, args));
        (thread, lone)
    }

    /// Calls, one at a time, until it is alone on the thread, which may have to end an earlier call first.
    async fn becomes_lone(&mut self) {
        let begun = Instant::now();
        while self.asks(&self.xid.to_be_bytes()).await != (true, true) {
            assert!(begun.elapsed() < SOON, "it never moves");
        }
    }
}

/// So many clients that each has been served in the pool.
async fn in_pool(server: &Server) -> Vec<Client> {
    let mut all = Vec::new();
    for _ in 0..=LONE_THREADS_MAX {
        all.push(Client::connect(server).await);
    }
    let begun = Instant::now();
    while !all.iter().all(|client| client.in_pool) {
        for client in &mut all {
            client.asks(b"here").await;
        }
        assert!(begun.elapsed() < SOON, "they never move");
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_few_clients_have_a_thread_each_and_none_has_one_where_there_are_more() {
    let (_service, server) = server().await;
    let mut few = Vec::new();
    for _ in 0..LONE_THREADS_MAX {
        let mut client = Client::connect(&server).await;
        for n in 0..SERIAL_AFTER {
            assert_eq!(client.asks(&n.to_be_bytes()).await, (false, false), "too soon");
        }
        client.becomes_lone().await;
        few.push(client);
    }
    for client in &mut few {
        assert_eq!(client.asks(b"ping").await, (true, true));
    }
    let mut one_more = Client::connect(&server).await;
    for n in 0..2 * SERIAL_AFTER {
        assert_eq!(one_more.asks(&n.to_be_bytes()).await, (false, false));
    }
    for client in &mut few {
        // The next call may find it still there, but one of too many; then it has moved.
        assert!(!client.asks(b"next").await.1);
        assert_eq!(client.asks(b"then").await, (false, false));
    }
    drop(one_more);
    for client in &mut few {
        client.becomes_lone().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_more_clients_each_is_served_in_the_pool_and_one_that_is_busy_leaves_it() {
    let (service, server) = server().await;
    let mut all = in_pool(&server).await;
    all.push(Client::connect(&server).await);
    for n in 0..2 * SERIAL_AFTER {
        for client in &mut all {
            assert_eq!(client.asks(&n.to_be_bytes()).await, (false, false));
        }
    }
    assert!(all.iter().all(|client| client.in_pool));
    let busy = &mut all[0];
    let before = busy.xid;
    for n in 0_u32..100 {
        busy.send(PARK, &n.to_be_bytes()).await;
    }
    busy.asks(b"more").await;
    busy.asks(b"than one").await;
    assert!(!busy.in_pool);
    for client in &mut all[1..] {
        client.asks(b"still").await;
        assert!(client.in_pool);
    }
    service.opened.add_permits(100);
    let mut seen = Vec::new();
    for _ in 0..100 {
        seen.push(all[0].reply().await.0);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(before + 1..=before + 100), "each has one reply");
    all.truncate(LONE_THREADS_MAX);
    for client in &mut all {
        client.becomes_lone().await;
    }
}

/// A client that has many calls in flight takes no thread from others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_makes_many_calls_at_a_time_does_not_count() {
    let (service, server) = server().await;
    let mut lone = Client::connect(&server).await;
    lone.becomes_lone().await;
    let mut busy = Vec::new();
    for _ in 0..2 * LONE_THREADS_MAX {
        let mut client = Client::connect(&server).await;
        for n in 0..2_u32 {
            client.send(PARK, &n.to_be_bytes()).await;
        }
        busy.push(client);
    }
    for n in 0..2 * SERIAL_AFTER {
        for client in &mut busy {
            assert_eq!(client.asks(&n.to_be_bytes()).await, (false, false));
        }
        assert_eq!(lone.asks(&n.to_be_bytes()).await, (true, true));
    }
    service.opened.add_permits(busy.len() * 2);
}

/// They take no thread from others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_named_has_no_thread_of_its_own() {
    let (service, server) = server().await;
    let address = IpAddr::from([127, 0, 9, 9]);
    let has = |standing| {
        *service.standing.lock().unwrap() = Some((address, standing));
        service.standings.fetch_add(1, Ordering::SeqCst);
    };
    let mut lone = Client::connect(&server).await;
    for standing in [Standing::Outsider, Standing::Unknown] {
        has(standing);
        let mut strangers = Vec::new();
        for _ in 0..LONE_THREADS_MAX {
            strangers.push(Client::connect_from(address, &server).await);
        }
        lone.becomes_lone().await;
        for n in 0..2 * SERIAL_AFTER {
            for stranger in &mut strangers {
                assert_eq!(stranger.asks(&n.to_be_bytes()).await, (false, false));
                assert!(!stranger.in_pool);
            }
            assert_eq!(lone.asks(&n.to_be_bytes()).await, (true, true));
        }
    }
    has(Standing::Named);
    let mut served = Client::connect_from(address, &server).await;
    served.becomes_lone().await;
    has(Standing::Outsider);
    while served.asks(b"leaves").await != (false, false) {
        assert!(served.xid < 10 * SERIAL_AFTER, "it is an outsider now");
    }
    assert!(!served.in_pool);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_it_waits_in_place_others_are_served() {
    let (service, server) = server().await;
    let (mut lone, mut other) = (Client::connect(&server).await, Client::connect(&server).await);
    lone.becomes_lone().await;
    let (go, gate) = mpsc::channel();
    let (tell, waits) = mpsc::channel();
    *service.gate.lock().unwrap() = Some(gate);
    *service.waits.lock().unwrap() = Some(tell);
    lone.send(WAIT, b"slow").await;
    waits.recv_timeout(SOON).expect("it waits");
    for n in 0_u32..100 {
        other.asks(&n.to_be_bytes()).await;
    }
    go.send(()).unwrap();
    assert_eq!(lone.reply().await.3, b"slow");
}

/// Waits until no connection has a place any more.
async fn all_are_gone(server: &Server) {
    let gone = async {
        while server.connections() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, gone).await.expect("its place is free");
}

/// A disk that does not answer: [`Places`]' gate stands for it.
struct Held {
    go: mpsc::Sender<()>,
}

impl Held {
    /// Has the client make a call that does not end before [`Held::end`].
    async fn by(client: &mut Client, service: &Places) -> Held {
        let (go, gate) = mpsc::channel();
        let (tell, waits) = mpsc::channel();
        *service.gate.lock().unwrap() = Some(gate);
        *service.waits.lock().unwrap() = Some(tell);
        client.send(WAIT, b"held").await;
        waits.recv_timeout(SOON).expect("it waits");
        Held { go }
    }

    fn end(self) {
        self.go.send(()).expect("it has waited until now");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_it_waits_in_place_its_own_next_calls_are_served() {
    let (service, server) = server().await;
    let mut lone = Client::connect(&server).await;
    for _ in 0..2 {
        lone.becomes_lone().await;
        let held = Held::by(&mut lone, &service).await;
        for n in 0_u32..100 {
            assert_eq!(lone.asks(&n.to_be_bytes()).await, (false, false));
        }
        held.end();
        assert_eq!(lone.reply().await.3, b"held");
    }
    assert_eq!(service.closed.load(Ordering::SeqCst), 0);
    drop(lone);
    all_are_gone(&server).await;
    assert_eq!(service.closed.load(Ordering::SeqCst), 1);
}

/// Wakes a runtime again and again, as the server does it whose threads are in calls (`landfast_server`).
struct Watch(Arc<AtomicBool>);

impl Watch {
    fn start() -> Watch {
        Watch::of(Handle::current())
    }

    fn of(runtime: Handle) -> Watch {
        let ended = Arc::new(AtomicBool::new(false));
        let until = ended.clone();
        std::thread::spawn(move || {
            while !until.load(Ordering::SeqCst) {
                drop(runtime.spawn(async {}));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Watch(ended)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Its next call asks the same disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn while_two_calls_do_not_end_its_next_ones_are_served() {
    let (service, server) = server().await;
    let _watch = Watch::start();
    let mut lone = Client::connect(&server).await;
    lone.becomes_lone().await;
    let first = Held::by(&mut lone, &service).await;
    assert_eq!(lone.asks(b"next").await, (false, false));
    let second = Held::by(&mut lone, &service).await;
    for n in 0_u32..100 {
        assert_eq!(lone.asks(&n.to_be_bytes()).await, (false, false));
    }
    for held in [first, second] {
        held.end();
        assert_eq!(lone.reply().await.3, b"held");
    }
    lone.becomes_lone().await;
}

/// The server has seen before that calls take long.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn while_calls_take_long_in_the_pool_each_connection_is_read_on() {
    let (service, server) = server().await;
    let mut all = in_pool(&server).await;
    let _watch = Watch::of(service.pool.lock().unwrap().clone().expect("it has served them"));
    service.stalls.store(true, Ordering::SeqCst);
    let held = Held::by(&mut all[0], &service).await;
    for n in 0_u32..100 {
        all[0].asks(&n.to_be_bytes()).await;
    }
    held.end();
    assert_eq!(all[0].reply().await.3, b"held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_server_stops_while_a_call_that_was_begun_among_others_does_not_end() {
    let (service, server) = server().await;
    let _watch = Watch::start();
    let mut client = Client::connect(&server).await;
    let held = Held::by(&mut client, &service).await;
    let stopped = timeout(SOON, server.shutdown(Duration::from_millis(200))).await;
    assert!(!stopped.expect("it stops"), "a call was cut off");
    held.end();
}

/// A call waits for a timer; the next one keeps the thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_call_starts_does_not_wait_for_the_thread() {
    let (service, server) = server().await;
    let mut lone = Client::connect(&server).await;
    lone.becomes_lone().await;
    lone.send(LATER, b"timer").await;
    let held = Held::by(&mut lone, &service).await;
    let (_, thread, _, args) = lone.reply().await;
    assert_eq!((thread, &args[..]), (false, &b"timer"[..]));
    held.end();
    assert_eq!(lone.reply().await.3, b"held");
}

/// Threads are kept by calls that do not end; others that make one call at a time are not served among those that make many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_no_thread_is_free_a_client_is_served_in_the_pool() {
    let (service, server) = server().await;
    let (mut held, mut clients) = (Vec::new(), Vec::new());
    for _ in 0..LONE_THREADS_MAX {
        let mut client = Client::connect(&server).await;
        client.becomes_lone().await;
        held.push(Held::by(&mut client, &service).await);
        // The connection goes on without the thread, which is left behind.
        assert_eq!(client.asks(b"next").await, (false, false));
        clients.push(client);
    }
    let mut other = Client::connect(&server).await;
    while !other.in_pool {
        assert_eq!(other.asks(b"here").await, (false, false));
        assert!(other.xid < 10 * SERIAL_AFTER, "it never moves");
    }
    for n in 0..2 * SERIAL_AFTER {
        assert_eq!(other.asks(&n.to_be_bytes()).await, (false, false));
        assert!(other.in_pool, "it stays there");
    }
    for (held, client) in held.into_iter().zip(&mut clients) {
        held.end();
        assert_eq!(client.reply().await.3, b"held");
    }
    other.becomes_lone().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_stops_while_it_waits_in_place() {
    let (service, server) = server().await;
    let mut lone = Client::connect(&server).await;
    lone.becomes_lone().await;
    let held = Held::by(&mut lone, &service).await;
    let stopped = timeout(SOON, server.shutdown(Duration::from_millis(200))).await;
    assert!(!stopped.expect("it stops"), "a call was cut off");
    assert_eq!(service.closed.load(Ordering::SeqCst), 1);
    // Though the thread still holds the socket.
    let refused = async { while lone.stream.write_all(&[0; 64 << 10]).await.is_ok() {} };
    timeout(SOON, refused).await.expect("nobody takes what it sends");
    held.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_peer_goes_while_it_waits_in_place() {
    let (service, server) = server().await;
    let mut lone = Client::connect(&server).await;
    lone.becomes_lone().await;
    let held = Held::by(&mut lone, &service).await;
    drop(lone);
    let closed = async {
        while service.closed.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, closed).await.expect("the service is told at once");
    held.end();
    all_are_gone(&server).await;
    assert_eq!(service.closed.load(Ordering::SeqCst), 1);
    let mut next = Client::connect(&server).await;
    next.becomes_lone().await;
}

/// Calls end before, while and after their connection is taken from the thread; others are behind them, or arrive meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_repeated_when_the_thread_is_left_behind() {
    let (_service, server) = server().await;
    let mut lone = Client::connect(&server).await;
    let mut taken = 0;
    for n in 0..40_u32 {
        lone.becomes_lone().await;
        let behind = n % 4;
        lone.send(NAP, &(45 + 3 * n).to_be_bytes()).await;
        let first = lone.xid;
        for _ in 0..behind {
            lone.send(WHERE, b"next").await;
        }
        let mut seen = Vec::new();
        for _ in 0..=behind {
            let (xid, thread, ..) = lone.reply().await;
            taken += u32::from(xid != first && !thread);
            seen.push(xid);
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(first..=first + behind), "each call has one reply");
    }
    assert!(taken > 0, "the thread was never left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_makes_several_calls_at_a_time_leaves_the_thread() {
    let (_service, server) = server().await;
    let mut client = Client::connect(&server).await;
    client.becomes_lone().await;
    let first = client.xid + 1;
    let mut seen = Vec::new();
    let mut last = (true, true);
    // Eight at a time.
    for n in 0_u32..2000 {
        client.send(WHERE, &n.to_be_bytes()).await;
        if n >= 7 {
            let (xid, thread, lone, _) = client.reply().await;
            last = (thread, lone);
            seen.push(xid);
        }
    }
    assert_eq!(last, (false, false));
    for _ in 0..7 {
        seen.push(client.reply().await.0);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(first..first + 2000), "each call has one reply");
    client.becomes_lone().await;
}

/// Its calls wait for something; others come meanwhile, and its next calls. None waits for the first ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_moves_while_calls_are_in_flight() {
    let (service, server) = server().await;
    let (mut lone, mut other) = (Client::connect(&server).await, Client::connect(&server).await);
    lone.becomes_lone().await;
    for n in 0_u32..100 {
        lone.send(PARK, &n.to_be_bytes()).await;
    }
    assert_eq!(other.asks(b"ping").await, (false, false));
    let parked = lone.xid;
    for n in 0..3 * SERIAL_AFTER {
        let place = lone.asks(&n.to_be_bytes()).await;
        assert!(!place.1, "others are in flight");
        if n > 10 {
            assert!(!place.0, "it has left");
        }
    }
    service.opened.add_permits(100);
    let mut seen: Vec<u32> = Vec::new();
    for _ in 0..100 {
        seen.push(lone.reply().await.0);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(parked - 99..=parked), "each has one reply");
    lone.becomes_lone().await;
}

/// A peer that sends without end and takes no reply is read on, also where its connection is to move.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_late_is_read_on() {
    let (_service, server) = server().await;
    let (mut lone, mut other) = (Client::connect(&server).await, Client::connect(&server).await);
    lone.becomes_lone().await;
    let args = vec![5; 1 << 20];
    for n in 0..24 {
        let sent = timeout(SOON, lone.send(WHERE, &args)).await;
        sent.expect("it is read");
        if n % 8 == 0 {
            other.asks(b"ping").await;
        }
    }
    for _ in 0..24 {
        assert_eq!(lone.reply().await.3.len(), args.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_repeated_when_it_moves() {
    let (_service, server) = server().await;
    moves_to_and_fro(Client::connect(&server).await, &mut []).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_repeated_when_it_moves_to_the_pool() {
    let (_service, server) = server().await;
    let mut all = in_pool(&server).await;
    let client = all.remove(0);
    moves_to_and_fro(client, &mut all).await;
}

/// Records of all sizes, also in pieces, while it moves to and fro.
async fn moves_to_and_fro(mut lone: Client, companions: &mut [Client]) {
    let mut moves = 0;
    let mut before = false;
    for n in 0_usize..3000 {
        if n % 50 == 0 {
            for client in &mut *companions {
                client.asks(b"we go on").await;
            }
        }
        let args = vec![n as u8; (n * 37) % 9000 / 4 * 4];
        let thread = if n % 10 == 3 {
            lone.xid += 1;
            let record = call(lone.xid, WHERE, &args);
            let (head, rest) = record.split_at(n % record.len());
            lone.stream.write_all(head).await.unwrap();
            tokio::task::yield_now().await;
            lone.stream.write_all(rest).await.unwrap();
            let (xid, thread, _, back) = lone.reply().await;
            assert_eq!((xid, back), (lone.xid, args));
            thread
        } else {
            lone.asks(&args).await.0
        };
        let apart = thread || lone.in_pool;
        moves += u32::from(apart != before);
        before = apart;
        if n % 150 == 149 {
            // Two calls at a time: it has to leave.
            let both = [call(lone.xid + 1, WHERE, b"one "), call(lone.xid + 2, WHERE, b"two ")];
            lone.stream.write_all(&both.concat()).await.unwrap();
            let mut xids = [lone.reply().await.0, lone.reply().await.0];
            xids.sort_unstable();
            assert_eq!(xids, [lone.xid + 1, lone.xid + 2]);
            lone.xid += 2;
        }
    }
    assert!(moves >= 20, "it moved {moves} times");
}

/// A peer that sends its record byte by byte loses its connection in time, also if that moves at each byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_stalls_as_elsewhere_when_it_moves() {
    let stall_max = Duration::from_millis(500);
    let conn = ConnConfig { record_stall_max: stall_max, ..ConnConfig::default() };
    let (_service, server) = server_with(ServerConfig { conn, ..ServerConfig::default() }).await;
    let mut others = in_pool(&server).await;
    let mut slow = others.remove(0);
    let mut record = call(0, WHERE, &[0; 100 << 10]).into_iter();
    let begun = Instant::now();
    let mut end = [0; 1];
    while timeout(Duration::ZERO, slow.stream.read(&mut end)).await.is_err() {
        assert!(begun.elapsed() < 10 * stall_max, "it is read on");
        for other in &mut others {
            other.asks(b"we go on").await;
        }
        let next = record.next().expect("a byte is left");
        // It may be closed by now.
        let _ = slow.stream.write_all(&[next]).await;
        // As many as have threads of their own, then one more.
        let mut one = others.pop().expect("there are some");
        for args in [b"once", b"more"] {
            one.send(WHERE, args).await;
        }
        one.reply().await;
        one.reply().await;
        let _ = slow.stream.write_all(&[record.next().expect("a byte is left")]).await;
        // Once the slow one is gone, there are threads for all.
        while !one.asks(b"here").await.0 && !one.in_pool {
            assert!(begun.elapsed() < SOON, "it never moves");
        }
        others.push(one);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_there_as_elsewhere() {
    let (service, server) = server().await;
    let mut lone = Client::connect(&server).await;
    lone.becomes_lone().await;
    drop(lone);
    all_are_gone(&server).await;
    assert_eq!(service.closed.load(Ordering::SeqCst), 1);
    // The thread is free for the next one.
    let mut next = Client::connect(&server).await;
    next.becomes_lone().await;
    assert!(server.shutdown(SOON).await, "everything went out");
    assert_eq!(service.closed.load(Ordering::SeqCst), 2);
    assert_eq!(next.stream.read(&mut [0; 1]).await.unwrap(), 0, "closed in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_in_the_pool_as_elsewhere() {
    let (service, server) = server().await;
    let mut all = in_pool(&server).await;
    let left = all.len() as u32;
    drop(all.pop());
    while service.closed.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert!(server.shutdown(SOON).await, "everything went out");
    assert_eq!(service.closed.load(Ordering::SeqCst), left);
    for client in &mut all {
        assert_eq!(client.stream.read(&mut [0; 1]).await.unwrap(), 0, "closed in order");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_ends_if_its_reader_panics_wherever_it_is_served() {
    let (service, server) = server().await;
    let mut ended = 0;
    for is_lone in [false, true] {
        let mut client = Client::connect(&server).await;
        if is_lone {
            client.becomes_lone().await;
        }
        panics(&mut client, &service).await;
        ended += 1;
        all_are_gone(&server).await;
        assert_eq!(service.closed.load(Ordering::SeqCst), ended);
    }
    panics(&mut in_pool(&server).await.remove(0), &service).await;
    all_are_gone(&server).await;
    ended += 1 + LONE_THREADS_MAX as u32;
    assert_eq!(service.closed.load(Ordering::SeqCst), ended, "each was told once");
    Client::connect(&server).await.becomes_lone().await;
}

/// A reader that panics. The client sees the end of its connection.
async fn panics(client: &mut Client, service: &Places) {
    service.panics.store(true, Ordering::SeqCst);
    client.send(WHERE, b"fail").await;
    let end = timeout(SOON, client.stream.read(&mut [0; 1])).await;
    assert_eq!(end.expect("it is told").unwrap_or(0), 0);
}
