//! A host that locks by NLM: it calls the server from an address of its own, and has a port mapper, a lock manager and a
//! status monitor that the server calls.

use super::{PATIENCE, Rig, user};
use landfast_nfs::nlm::{
    CancelArgs, Lock, LockArgs, NlmStat, Notify, Res, Share, ShareArgs, ShareRes, TestArgs, TestReply,
    TestRes, UnlockArgs, proc,
};
use landfast_nfs::v4::{FileHandle, Opaque1024};
use landfast_nfs::{nlm, nsm};
use landfast_rpc::conn::{CallHeader, ConnInfo, Program, Response, Service};
use landfast_rpc::{ServerConfig, udp};
use landfast_xdr::{Bytes, BytesMut, Decode, Encode};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::sync::mpsc;

const MAPPER: &[Program] = &[Program { number: 100_000, low: 2, high: 4 }];
const HOST: &[Program] =
    &[Program { number: nlm::PROGRAM, low: 4, high: 4 }, Program { number: nsm::PROGRAM, low: 1, high: 1 }];

/// A call of the server.
#[derive(Debug, PartialEq, Eq)]
pub struct Called {
    pub prog: u32,
    pub proc: u32,
    pub udp: bool,
    /// The server's address that it came from.
    pub from: IpAddr,
    pub body: Bytes,
}

#[derive(Clone)]
struct Ears {
    heard: mpsc::UnboundedSender<Called>,
    /// What GRANTED is answered with; more than 9 is no answer.
    answer: Arc<AtomicU32>,
}

impl Ears {
    async fn call(self, udp: bool, from: SocketAddr, call: CallHeader, body: Bytes) -> Response {
        // Before the test hears of it: then it may want another answer for the next.
        let answer = self.answer.load(Ordering::Relaxed);
        let called = Called { prog: call.prog, proc: call.proc, udp, from: from.ip(), body: body.clone() };
        // The test may be over.
        let _ = self.heard.send(called);
        if (call.prog, call.proc) != (nlm::PROGRAM, proc::GRANTED) {
            return Response::Success(Bytes::new());
        }
        match answer {
            stat @ 0..=9 => {
                let cookie = TestArgs::from_bytes(body).expect("GRANTED has arguments").cookie;
                Response::Success(Res { cookie, stat: NlmStat(stat) }.to_bytes())
            }
            _ => Response::Close,
        }
    }
}

impl Service for Ears {
    fn programs(&self) -> &[Program] {
        HOST
    }

    async fn call(&self, conn: &Arc<ConnInfo>, call: CallHeader, body: Bytes) -> Response {
        self.clone().call(false, conn.peer(), call, body).await
    }
}

/// Ports by protocol: TCP, UDP.
#[derive(Clone, Copy)]
struct Mapper(u16, u16);

impl Mapper {
    fn answer(self, call: &CallHeader, body: &Bytes) -> Response {
        if call.proc != 3 || body.len() != 16 {
            return Response::ProcUnavail;
        }
        let port = if body[11] == 17 { self.1 } else { self.0 };
        Response::Success(u32::from(port).to_bytes())
    }
}

impl Service for Mapper {
    fn programs(&self) -> &[Program] {
        MAPPER
    }

    async fn call(&self, _: &Arc<ConnInfo>, call: CallHeader, body: Bytes) -> Response {
        self.answer(&call, &body)
    }
}

/// A lock client.
pub struct Lockd {
    pub name: &'static str,
    pub addr: IpAddr,
    pub server: SocketAddr,
    tcp: Option<TcpStream>,
    udp: UdpSocket,
    /// Calls go by datagram.
    pub by_udp: bool,
    xid: u32,
    pub heard: mpsc::UnboundedReceiver<Called>,
    answer: Arc<AtomicU32>,
    servers: Vec<landfast_rpc::Server>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drop for Lockd {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// A port that is free on all loopback addresses. It is below those that the kernel gives to sockets which name none, so
/// that none of this test's own connections takes it before the port mapper does.
pub async fn portmapper_port() -> u16 {
    const FIRST: u32 = 10_000;
    const PORTS: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Programs that run at the same time begin at different places.
    let begin = std::process::id().wrapping_mul(499);
    for _ in 0..PORTS {
        let n = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + n % PORTS).expect("below 65,536");
        let all = (Ipv4Addr::UNSPECIFIED, port);
        if TcpListener::bind(all).await.is_ok() && UdpSocket::bind(all).await.is_ok() {
            return port;
        }
    }
    panic!("no free port from {FIRST} to {}", FIRST + PORTS);
}

impl Lockd {
    /// The host 127.0.0.`n`, which calls itself `name`.
    pub async fn new(rig: &Rig, name: &'static str, n: u8) -> Lockd {
        let addr = IpAddr::from([127, 0, 0, n]);
        let (heard, ears) = mpsc::unbounded_channel();
        let answer = Arc::new(AtomicU32::new(0));
        let service = Ears { heard, answer: answer.clone() };
        let (mut servers, mut tasks) = (Vec::new(), Vec::new());
        let listener = TcpListener::bind((addr, 0)).await.expect("a listener");
        let tcp_port = listener.local_addr().expect("an address").port();
        servers.push(
            landfast_rpc::Server::start(listener, Arc::new(service.clone()), ServerConfig::default())
                .expect("started"),
        );
        let socket = UdpSocket::bind((addr, 0)).await.expect("a socket");
        let udp_port = socket.local_addr().expect("an address").port();
        let serve = move |from, call, body| service.clone().call(true, from, call, body);
        tasks.push(tokio::spawn(udp::serve(socket, HOST, serve)));
        let mapper = Mapper(tcp_port, udp_port);
        let listener = TcpListener::bind((addr, rig.portmapper)).await.expect("a port mapper");
        servers.push(
            landfast_rpc::Server::start(listener, Arc::new(mapper), ServerConfig::default())
                .expect("started"),
        );
        let socket = UdpSocket::bind((addr, rig.portmapper)).await.expect("a port mapper");
        let serve = move |_, call, body| async move { mapper.answer(&call, &body) };
        tasks.push(tokio::spawn(udp::serve(socket, MAPPER, serve)));
        let udp = UdpSocket::bind((addr, 0)).await.expect("a socket");
        let server = rig.addr();
        Lockd {
            name,
            addr,
            server,
            tcp: None,
            udp,
            by_udp: false,
            xid: 0,
            heard: ears,
            answer,
            servers,
            tasks,
        }
    }

    /// Another caller of the same host, which the server does not call.
    pub async fn other_caller(&self) -> Lockd {
        let udp = UdpSocket::bind((self.addr, 0)).await.expect("a socket");
        let (_, heard) = mpsc::unbounded_channel();
        let (name, addr, server, by_udp) = (self.name, self.addr, self.server, self.by_udp);
        let (answer, servers, tasks) = (self.answer.clone(), Vec::new(), Vec::new());
        Lockd { name, addr, server, tcp: None, udp, by_udp, xid: 1 << 16, heard, answer, servers, tasks }
    }

    /// What GRANTED is answered with; `None` ends the connection instead.
    pub fn answers(&self, stat: Option<NlmStat>) {
        self.answer.store(stat.map_or(99, |s| s.0), Ordering::Relaxed);
    }

    /// The server has been started again.
    pub fn moved(&mut self, rig: &Rig) {
        self.server = rig.addr();
        self.tcp = None;
    }

    /// What the server calls next.
    pub async fn hears(&mut self) -> Called {
        tokio::time::timeout(PATIENCE, self.heard.recv()).await.expect("called in time").expect("called")
    }

    /// A call, byte for byte: the accept status and what follows it.
    pub async fn raw(&mut self, prog: u32, vers: u32, proc: u32, args: &[u8]) -> (u32, Bytes) {
        self.xid += 1;
        let mut message = BytesMut::new();
        [self.xid, 0, 2, prog, vers, proc].iter().for_each(|n| n.encode(&mut message));
        let cred = user(0).to_opaque();
        cred.encode(&mut message);
        [0u32, 0].iter().for_each(|n| n.encode(&mut message));
        message.extend_from_slice(args);
        let reply = tokio::time::timeout(PATIENCE, self.exchange(&message)).await.expect("a reply in time");
        let word = |i: usize| u32::from_be_bytes(reply[4 * i..4 * i + 4].try_into().expect("four bytes"));
        assert_eq!(
            [word(0), word(1), word(2), word(3), word(4)],
            [self.xid, 1, 0, 0, 0],
            "an accepted reply"
        );
        (word(5), reply.slice(24..))
    }

    async fn exchange(&mut self, message: &[u8]) -> Bytes {
        if self.by_udp {
            self.udp.send_to(message, self.server).await.expect("sent");
            let mut buf = vec![0; 16 << 10];
            let (len, from) = self.udp.recv_from(&mut buf).await.expect("received");
            assert_eq!(from, self.server);
            buf.truncate(len);
            return Bytes::from(buf);
        }
        if self.tcp.is_none() {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.bind((self.addr, 0).into()).expect("bound");
            self.tcp = Some(socket.connect(self.server).await.expect("connected"));
        }
        let stream = self.tcp.as_mut().expect("a connection");
        let mark = 0x8000_0000 | message.len() as u32;
        stream.write_all(&[&mark.to_be_bytes()[..], message].concat()).await.expect("sent");
        let mark = stream.read_u32().await.expect("a reply");
        let mut reply = vec![0; (mark & 0x7fff_ffff) as usize];
        stream.read_exact(&mut reply).await.expect("a reply");
        Bytes::from(reply)
    }

    async fn ok(&mut self, prog: u32, vers: u32, proc: u32, args: Bytes) -> Bytes {
        let (stat, results) = self.raw(prog, vers, proc, &args).await;
        assert_eq!(stat, 0, "procedure {proc} succeeds");
        results
    }

    async fn nlm(&mut self, proc: u32, args: Bytes) -> Bytes {
        self.ok(nlm::PROGRAM, nlm::VERSION, proc, args).await
    }

    async fn stat(&mut self, proc: u32, args: Bytes) -> NlmStat {
        let res = Res::from_bytes(self.nlm(proc, args).await).expect("a result");
        assert_eq!(res.cookie, cookie());
        res.stat
    }

    /// Bytes of a file, for the process `svid`.
    pub fn bytes(&self, file: &FileHandle, svid: i32, offset: u64, length: u64) -> Lock {
        Lock {
            caller_name: text(self.name),
            fh: Opaque1024(file.0.clone()),
            oh: text(&format!("{svid}@{}", self.name)),
            svid,
            offset,
            length,
        }
    }

    /// LOCK says that the status monitor is in state 3.
    pub fn lock_args(&self, lock: Lock, exclusive: bool, block: bool) -> LockArgs {
        LockArgs { cookie: cookie(), block, exclusive, lock, reclaim: false, state: 3 }
    }

    pub async fn lock(&mut self, lock: Lock, exclusive: bool) -> NlmStat {
        let args = self.lock_args(lock, exclusive, false).to_bytes();
        self.stat(proc::LOCK, args).await
    }

    pub async fn lock_and_wait(&mut self, lock: Lock, exclusive: bool) -> NlmStat {
        let args = self.lock_args(lock, exclusive, true).to_bytes();
        self.stat(proc::LOCK, args).await
    }

    pub async fn reclaim(&mut self, lock: Lock, exclusive: bool) -> NlmStat {
        let args = LockArgs { reclaim: true, ..self.lock_args(lock, exclusive, false) };
        self.stat(proc::LOCK, args.to_bytes()).await
    }

    pub async fn nm_lock(&mut self, lock: Lock, exclusive: bool) -> NlmStat {
        let args = self.lock_args(lock, exclusive, false).to_bytes();
        self.stat(proc::NM_LOCK, args).await
    }

    pub async fn unlock(&mut self, lock: Lock) -> NlmStat {
        let args = UnlockArgs { cookie: cookie(), lock }.to_bytes();
        self.stat(proc::UNLOCK, args).await
    }

    pub async fn cancel(&mut self, lock: Lock, exclusive: bool) -> NlmStat {
        let args = CancelArgs { cookie: cookie(), block: true, exclusive, lock }.to_bytes();
        self.stat(proc::CANCEL, args).await
    }

    pub async fn test(&mut self, lock: Lock, exclusive: bool) -> TestReply {
        let args = TestArgs { cookie: cookie(), exclusive, lock }.to_bytes();
        let res = TestRes::from_bytes(self.nlm(proc::TEST, args).await).expect("a result");
        assert_eq!(res.cookie, cookie());
        res.reply
    }

    pub async fn share(&mut self, proc: u32, file: &FileHandle, access: u32, mode: u32) -> NlmStat {
        let (caller_name, oh) = (text(self.name), text("share"));
        let share = Share { caller_name, fh: Opaque1024(file.0.clone()), oh, mode, access };
        let args = ShareArgs { cookie: cookie(), share, reclaim: false }.to_bytes();
        ShareRes::from_bytes(self.nlm(proc, args).await).expect("a result").stat
    }

    pub async fn free_all(&mut self, name: &str) {
        let args = Notify { name: text(name), state: 0 }.to_bytes();
        assert_eq!(self.nlm(proc::FREE_ALL, args).await, Bytes::new());
    }

    pub async fn sm_notify(&mut self, name: &str, state: i32) {
        let args = nsm::StatChange { mon_name: text(name), state }.to_bytes();
        assert_eq!(self.ok(nsm::PROGRAM, nsm::VERSION, nsm::proc::NOTIFY, args).await, Bytes::new());
    }

    /// Sends an asynchronous message, which has no result.
    pub async fn message(&mut self, proc: u32, args: Bytes) {
        assert_eq!(self.nlm(proc, args).await, Bytes::new());
    }
}

pub fn cookie() -> Opaque1024 {
    text("cookie")
}

pub fn text(s: &str) -> Opaque1024 {
    Opaque1024(Bytes::copy_from_slice(s.as_bytes()))
}
