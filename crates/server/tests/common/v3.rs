//! A client of NFS version 3 and MOUNT that says exactly what a test wants said.

use super::{PATIENCE, Rig, user};
use landfast_nfs::mount::{self, MntRes, Mounted};
use landfast_nfs::v3::args::*;
use landfast_nfs::v3::res::*;
use landfast_nfs::v3::types::*;
use landfast_nfs::v3::{self, Call, FileHandle, NfsStat3, Res, Sattr};
use landfast_rpc::client::Connection;
use landfast_rpc::conn::{ConnConfig, Target};
use landfast_rpc::{CallError, Credential, NoService};
use landfast_xdr::{Bytes, Decode, Encode};
use std::net::SocketAddr;
use std::sync::Arc;

/// A connection.
#[derive(Clone)]
pub struct V3 {
    pub conn: Connection,
    pub cred: Credential,
    pub root: FileHandle,
}

pub fn name(n: &str) -> Bytes {
    Bytes::copy_from_slice(n.as_bytes())
}

pub fn at(dir: &FileHandle, n: &str) -> DirOp {
    DirOp { dir: dir.clone(), name: name(n) }
}

pub fn mode(mode: u32) -> Sattr {
    Sattr { mode: Some(mode), ..Sattr::default() }
}

pub fn create(dir: &FileHandle, n: &str, how: CreateHow) -> Call {
    Call::Create(CreateArgs { at: at(dir, n), how })
}

pub fn write(file: &FileHandle, offset: u64, data: &[u8], stable: StableHow) -> Call {
    let count = data.len() as u32;
    Call::Write(WriteArgs { file: file.clone(), offset, count, stable, data: Bytes::copy_from_slice(data) })
}

pub fn setattr(object: &FileHandle, attrs: Sattr) -> Call {
    Call::Setattr(SetattrArgs { object: object.clone(), attrs, guard: None })
}

impl V3 {
    /// Connects and mounts the export.
    pub async fn new(rig: &Rig) -> V3 {
        let mut c = V3::connect(rig.addr()).await;
        c.root = c.mounted(b"/").await.handle;
        c
    }

    pub async fn connect(addr: SocketAddr) -> V3 {
        let conn =
            Connection::connect(addr, Arc::new(NoService), &ConnConfig::default()).await.expect("connected");
        V3 { conn, cred: user(0), root: FileHandle(Bytes::new()) }
    }

    pub fn by(&self, uid: u32) -> V3 {
        V3 { cred: user(uid), ..self.clone() }
    }

    pub async fn program(&self, prog: u32, vers: u32, proc: u32, body: Bytes) -> Result<Bytes, CallError> {
        self.conn.call(Target { prog, vers, proc }, &self.cred.to_opaque(), vec![body], PATIENCE).await
    }

    pub async fn mount(&self, proc: u32, body: Bytes) -> Result<Bytes, CallError> {
        self.program(mount::PROGRAM, mount::VERSION, proc, body).await
    }

    pub async fn mnt(&self, path: &[u8]) -> MntRes {
        let body = Bytes::copy_from_slice(path).to_bytes();
        MntRes::from_bytes(self.mount(mount::proc::MNT, body).await.expect("an answer"))
            .expect("a MNT result")
    }

    pub async fn mounted(&self, path: &[u8]) -> Mounted {
        match self.mnt(path).await {
            MntRes::Ok(mounted) => mounted,
            MntRes::Fail(status) => panic!("MNT gave {status:?}"),
        }
    }

    pub async fn raw(&self, proc: u32, body: Bytes) -> Result<Bytes, CallError> {
        self.program(landfast_nfs::PROGRAM, v3::VERSION, proc, body).await
    }

    /// A call and its result, of the type that belongs to it.
    pub async fn call<T: Decode, F: Decode>(&self, call: Call) -> Res<T, F> {
        let res = self.answer(call).await;
        Res::from_bytes(res).expect("a result of this procedure")
    }

    /// The status alone.
    pub async fn status(&self, call: Call) -> NfsStat3 {
        NfsStat3::from_bytes(self.answer(call).await.slice(..4)).expect("a status")
    }

    /// The answer, with a status that RFC 1813 lists.
    async fn answer(&self, call: Call) -> Bytes {
        let number = call.number();
        let res = self.raw(number, call.to_bytes()).await.expect("an answer");
        let status = NfsStat3::from_bytes(res.slice(..4)).expect("a status");
        assert!(
            v3::valid::is_valid(number, status),
            "{} may not be {status}",
            v3::PROC_NAMES[number as usize]
        );
        res
    }

    pub async fn ok<T: Decode, F: Decode + std::fmt::Debug>(&self, call: Call) -> T {
        let text = format!("{call:?}");
        match self.call::<T, F>(call).await {
            Res::Ok(ok) => ok,
            Res::Fail(status, fail) => panic!("{text} gave {status} {fail:?}"),
        }
    }

    pub async fn make(&self, call: Call) -> MakeOk {
        self.ok::<MakeOk, v3::WccData>(call).await
    }

    /// Makes a file in the root.
    pub async fn file(&self, n: &str) -> FileHandle {
        let made = self.make(create(&self.root, n, CreateHow::Guarded(mode(0o644)))).await;
        made.object.expect("a handle")
    }

    pub async fn dir(&self, n: &str) -> FileHandle {
        let made = self.make(Call::Mkdir(MkdirArgs { at: at(&self.root, n), attrs: mode(0o755) })).await;
        made.object.expect("a handle")
    }

    pub async fn attrs(&self, fh: &FileHandle) -> v3::Fattr {
        self.ok::<v3::Fattr, ()>(Call::Getattr(fh.clone())).await
    }

    pub async fn lookup(&self, dir: &FileHandle, n: &str) -> LookupOk {
        self.ok::<LookupOk, PostOp>(Call::Lookup(at(dir, n))).await
    }

    pub async fn read(&self, file: &FileHandle, offset: u64, count: u32) -> ReadOk {
        self.ok::<ReadOk, PostOp>(Call::Read(ReadArgs { file: file.clone(), offset, count })).await
    }

    pub async fn write(&self, file: &FileHandle, offset: u64, data: &[u8], stable: StableHow) -> WriteOk {
        self.ok::<WriteOk, v3::WccData>(write(file, offset, data, stable)).await
    }

    pub async fn readdir(&self, dir: &FileHandle, cookie: u64, count: u32) -> ReaddirOk {
        let args = ReaddirArgs { dir: dir.clone(), cookie, cookieverf: [0; 8], count };
        self.ok::<ReaddirOk, PostOp>(Call::Readdir(args)).await
    }

    pub async fn readdirplus(&self, dir: &FileHandle, cookie: u64, max: (u32, u32)) -> ReaddirplusOk {
        let (dircount, maxcount) = max;
        let args = ReaddirplusArgs { dir: dir.clone(), cookie, cookieverf: [0; 8], dircount, maxcount };
        self.ok::<ReaddirplusOk, PostOp>(Call::Readdirplus(args)).await
    }
}

/// A bare connection: the test chooses transaction ids, ports, and when to look at replies.
pub struct Wire {
    pub stream: tokio::net::TcpStream,
}

impl Wire {
    /// Connects, from `port` when it is not 0.
    pub async fn new(addr: SocketAddr, port: u16) -> Wire {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("an option");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], port))).expect("a port");
        Wire { stream: socket.connect(addr).await.expect("connected") }
    }

    pub fn port(&self) -> u16 {
        self.stream.local_addr().expect("an address").port()
    }

    /// Ends with a reset: the client knows nothing of what became of its calls.
    pub fn reset(self) {
        self.stream.set_zero_linger().expect("an option");
    }

    pub async fn send(&mut self, xid: u32, call: &Call) {
        use tokio::io::AsyncWriteExt;
        let mut record = Vec::new();
        for n in [xid, 0, 2, landfast_nfs::PROGRAM, v3::VERSION, call.number()] {
            record.extend(n.to_be_bytes());
        }
        let cred = user(0).to_opaque();
        record.extend(cred.flavor.to_be_bytes());
        record.extend(cred.body.to_bytes());
        record.extend([0; 8]);
        record.extend(call.to_bytes());
        let mark = (0x8000_0000 | record.len() as u32).to_be_bytes();
        self.stream.write_all(&[&mark[..], &record].concat()).await.expect("sent");
    }

    /// The next reply: its transaction id, and its results.
    pub async fn receive(&mut self) -> (u32, Bytes) {
        use tokio::io::AsyncReadExt;
        let read = async {
            let len = self.stream.read_u32().await? & 0x7fff_ffff;
            let mut reply = vec![0; len as usize];
            self.stream.read_exact(&mut reply).await?;
            std::io::Result::Ok(reply)
        };
        let reply =
            Bytes::from(tokio::time::timeout(PATIENCE, read).await.expect("in time").expect("a reply"));
        let xid = u32::from_bytes(reply.slice(..4)).expect("an id");
        assert_eq!(&reply[4..24], &[[0, 0, 0, 1], [0; 4], [0; 4], [0; 4], [0; 4]].concat()[..], "accepted");
        (xid, reply.slice(24..))
    }

    pub async fn call(&mut self, xid: u32, call: &Call) -> Bytes {
        self.send(xid, call).await;
        let (answered, reply) = self.receive().await;
        assert_eq!(answered, xid);
        reply
    }
}
