//! A server on a temporary directory and a small client that says exactly what a test wants said.
#![allow(dead_code)] // each test file uses its part

pub mod back;
pub mod lockd;
pub mod somebody;
pub mod v3;
pub mod wire;

use landfast_nfs::v4::args::*;
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;
use landfast_nfs::{PROGRAM, v4};
use landfast_rpc::client::Connection;
use landfast_rpc::conn::{ConnConfig, Target};
use landfast_rpc::{AuthSys, CallError, Credential, NoService};
use landfast_server::exports::Features;
use landfast_server::limited::Limits;
use landfast_server::{Restored, Running, Server, ServerConfig};
use landfast_volume::{Durability, Experiment, OpenError, OpenOptions, RecoveryReport, Volume};
use landfast_xdr::{Bytes, Decode, Encode};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(30);

/// A server and its directory.
pub struct Rig {
    pub dir: tempfile::TempDir,
    pub durability: Durability,
    pub running: Option<Running>,
    pub lease_seconds: u32,
    /// The export's name under the pseudo root, where it is not its path.
    pub named: Option<PathBuf>,
    /// Where the log is, when it is not in `dir`.
    pub log: Option<PathBuf>,
    /// Where the port mappers of NLM clients listen.
    pub portmapper: u16,
    pub listen: Vec<SocketAddr>,
    pub limits: Limits,
    pub log_size: u64,
    /// How much longer each flush of the log takes.
    pub log_flush: Option<Duration>,
    /// Threads for requests that wait for the disk; `None`: as many as the server takes by itself.
    pub slow_workers: Option<usize>,
    pub features: Features,
}

impl Rig {
    pub async fn new() -> Rig {
        Rig::with(Durability::Log, 90).await
    }

    /// A server whose export is said to be at this path.
    pub async fn named(path: &str) -> Rig {
        let mut rig = Rig::new().await;
        rig.named = Some(path.into());
        rig.restart().await;
        rig
    }

    pub async fn with(durability: Durability, lease_seconds: u32) -> Rig {
        let dir =
            tempfile::Builder::new().prefix("landfast-server-").tempdir_in("/var/tmp").expect("a directory");
        std::fs::create_dir(dir.path().join("data")).expect("the export");
        Rig::at(dir, durability, lease_seconds, None).await
    }

    /// A server whose export is `data` in `dir`.
    pub async fn at(
        dir: tempfile::TempDir,
        durability: Durability,
        lease_seconds: u32,
        log: Option<PathBuf>,
    ) -> Rig {
        let mut rig = Rig::stopped(dir, durability, lease_seconds, log);
        rig.start().await;
        rig
    }

    /// The same, not started.
    pub fn stopped(
        dir: tempfile::TempDir,
        durability: Durability,
        lease_seconds: u32,
        log: Option<PathBuf>,
    ) -> Rig {
        Rig {
            dir,
            durability,
            running: None,
            lease_seconds,
            named: None,
            portmapper: 111,
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            log,
            limits: Limits::default(),
            log_size: 16 << 20,
            log_flush: None,
            slow_workers: None,
            features: Features::default(),
        }
    }

    pub fn export(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub async fn start(&mut self) -> Restored {
        let log = self.log.clone().unwrap_or_else(|| self.dir.path().join("log"));
        let log = (self.durability == Durability::Log).then_some(log);
        let options = OpenOptions {
            log: log.map(Into::into),
            log_size: self.log_size,
            accept_weak: true,
            experiment: Experiment { injected_log_flush: self.log_flush, ..Experiment::default() },
            ..OpenOptions::new(self.export(), self.durability)
        };
        let (volume, recovery) = open_when_free(&options).await;
        let mut usual = ServerConfig::new(
            volume,
            recovery,
            self.listen[0],
            self.named.clone().unwrap_or_else(|| self.export()),
        );
        usual.exports[0].features = self.features;
        let config = ServerConfig {
            lease_seconds: self.lease_seconds,
            workers: 4,
            listen: self.listen.clone(),
            portmapper: self.portmapper,
            limits: self.limits,
            slow_workers: self.slow_workers.unwrap_or(usual.slow_workers),
            ..usual
        };
        let running = Server::start(config).await.expect("the server starts");
        let restored = running.restored();
        self.running = Some(running);
        restored
    }

    pub async fn crash(&mut self) -> Restored {
        self.running.take().expect("a server").abandon().await;
        self.start().await
    }

    pub async fn restart(&mut self) -> Restored {
        self.running.take().expect("a server").stop().await.expect("a clean stop");
        self.start().await
    }

    pub fn server(&self) -> &Running {
        self.running.as_ref().expect("a server")
    }

    pub fn addr(&self) -> SocketAddr {
        self.server().local_addr()
    }

    pub async fn raw(&self) -> Raw {
        Raw::new(self.addr()).await
    }

    pub async fn client(&self, name: &[u8]) -> Client {
        Client::new(self.raw().await, name).await
    }
}

/// Opens a volume that may be held for another moment: by a checkpoint that was under way when its server died, or by a program that another
/// test is just starting, which has all descriptors until it runs.
async fn open_when_free(options: &OpenOptions) -> (Volume, RecoveryReport) {
    let begin = Instant::now();
    loop {
        match Volume::open(options.clone()) {
            Err(OpenError::DirInUse { .. } | OpenError::Log(_)) if begin.elapsed() < PATIENCE => {
                tokio::task::yield_now().await;
            }
            opened => return opened.expect("the volume opens"),
        }
    }
}

/// Notes which test was given this answer, in the file that `LANDFAST_ANSWERS` names (`clauses.rs`): its thread has its name.
fn note_answer(minor: u32, op: OpNum, status: NfsStat) {
    let Some(file) = std::env::var_os("LANDFAST_ANSWERS") else { return };
    let thread = std::thread::current();
    let (Some(test), Some(status)) = (thread.name(), status.name()) else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(file);
    let line = format!("{minor} {op} {status} {test}\n");
    std::io::Write::write_all(&mut file.expect("the file of answers"), line.as_bytes()).expect("noted");
}

/// A connection without a session.
#[derive(Clone)]
pub struct Raw {
    pub conn: Connection,
    pub cred: Credential,
    pub minor: u32,
}

impl Raw {
    pub async fn new(addr: SocketAddr) -> Raw {
        let conn =
            Connection::connect(addr, Arc::new(NoService), &ConnConfig::default()).await.expect("connected");
        Raw { conn, cred: user(0), minor: 2 }
    }

    pub async fn call(&self, proc: u32, body: Bytes) -> Result<Bytes, CallError> {
        let to = Target { prog: PROGRAM, vers: v4::VERSION, proc };
        self.conn.call(to, &self.cred.to_opaque(), vec![body], PATIENCE).await
    }

    pub fn encode(&self, ops: Vec<ArgOp>) -> Bytes {
        let announced = ops.len() as u32;
        let tag = Bytes::from_static(b"tag");
        CompoundArgs { tag, minor_version: self.minor, announced, ops }.to_bytes()
    }

    pub async fn compound(&self, ops: Vec<ArgOp>) -> CompoundRes {
        let res = self.call(v4::PROC_COMPOUND, self.encode(ops)).await.expect("an answer");
        let res = CompoundRes::from_bytes(res).expect("a COMPOUND result");
        assert_eq!(res.tag, "tag");
        // Whatever a test asks: each status is one of the RFCs' tables of valid errors.
        for r in &res.results {
            let (op, status) = (r.op, r.status);
            // A caller that no rule names: the tables have nothing that says so (docs/exports.md); Linux' server says STALE,
            // which clients take for a file that is gone.
            let refused = status == NfsStat::NFS4ERR_ACCESS && matches!(op, OpNum::PUTFH | OpNum::PUTROOTFH);
            let valid = self.minor > 2 || refused || v4::valid::is_valid(self.minor, op, status);
            assert!(valid, "{op} may not be {status}");
            note_answer(self.minor, op, status);
        }
        res
    }

    /// One operation without a session.
    pub async fn alone(&self, op: ArgOp) -> ResOp {
        let mut res = self.compound(vec![op]).await;
        assert_eq!(res.results.len(), 1);
        res.results.remove(0)
    }

    pub async fn exchange_id(&self, name: &[u8], verifier: u8) -> ExchangeIdRes {
        match self.alone(ArgOp::ExchangeId(exchange_args(name, verifier))).await.body {
            ResBody::ExchangeId(r) => *r,
            other => panic!("EXCHANGE_ID gave {other:?}"),
        }
    }

    pub async fn create_session(&self, args: CreateSessionArgs) -> CreateSessionRes {
        match self.alone(ArgOp::CreateSession(args)).await {
            ResOp { body: ResBody::CreateSession(r), .. } => *r,
            other => panic!("CREATE_SESSION gave {other:?}"),
        }
    }
}

pub fn user(uid: u32) -> Credential {
    let machine_name = b"test".to_vec();
    Credential::Sys(Arc::new(AuthSys { stamp: 0, machine_name, uid, gid: uid, gids: Vec::new() }))
}

pub fn exchange_args(name: &[u8], verifier: u8) -> ExchangeIdArgs {
    ExchangeIdArgs {
        client_owner: ClientOwner {
            verifier: [verifier; 8],
            owner_id: Opaque1024(Bytes::copy_from_slice(name)),
        },
        flags: 0,
        state_protect: StateProtectArgs::None,
        client_impl_id: Vec::new(),
    }
}

pub fn channel() -> ChannelAttrs {
    ChannelAttrs {
        header_pad_size: 0,
        max_request_size: 1 << 20,
        max_response_size: 1 << 20,
        max_response_size_cached: 8192,
        max_operations: 128,
        max_requests: 8,
        rdma_ird: Vec::new(),
    }
}

pub fn session_args(clientid: u64, sequence: u32) -> CreateSessionArgs {
    CreateSessionArgs {
        clientid,
        sequence,
        flags: flags::CREATE_SESSION4_FLAG_PERSIST,
        fore_chan_attrs: channel(),
        back_chan_attrs: channel(),
        cb_program: 0x4000_0000,
        sec_parms: vec![CallbackSecParms::None],
    }
}

/// A client with a session; it uses slot 0.
#[derive(Clone)]
pub struct Client {
    pub raw: Raw,
    pub id: u64,
    pub session: SessionId,
    pub seq: u32,
    pub cachethis: bool,
    pub flags: u32,
    pub fore: ChannelAttrs,
}

impl Client {
    pub async fn new(raw: Raw, name: &[u8]) -> Client {
        let c = Client::without_reclaim(raw, name, 1).await;
        let mut c = c;
        assert_ok(&c.run(vec![ArgOp::ReclaimComplete(false)]).await);
        c
    }

    pub async fn without_reclaim(raw: Raw, name: &[u8], verifier: u8) -> Client {
        let ex = raw.exchange_id(name, verifier).await;
        let s = raw.create_session(session_args(ex.clientid, ex.sequenceid)).await;
        Client {
            raw,
            id: ex.clientid,
            session: s.sessionid,
            seq: 0,
            cachethis: true,
            flags: s.flags,
            fore: s.fore_chan_attrs,
        }
    }

    /// On a session that does not outlast the server.
    pub async fn not_persistent(raw: Raw, name: &[u8]) -> Client {
        let ex = raw.exchange_id(name, 1).await;
        let args = CreateSessionArgs { flags: 0, ..session_args(ex.clientid, ex.sequenceid) };
        let res = raw.create_session(args).await;
        let (id, session, fore) = (ex.clientid, res.sessionid, res.fore_chan_attrs);
        let mut c = Client { raw, id, session, seq: 0, cachethis: true, flags: res.flags, fore };
        c.last(vec![ArgOp::ReclaimComplete(false)]).await;
        c
    }

    pub fn sequence(&self) -> ArgOp {
        ArgOp::Sequence(SequenceArgs {
            sessionid: self.session,
            sequenceid: self.seq,
            slotid: 0,
            highest_slotid: 0,
            cachethis: self.cachethis,
        })
    }

    /// The same sequence number again.
    pub async fn again(&self, ops: Vec<ArgOp>) -> CompoundRes {
        let mut all = vec![self.sequence()];
        all.extend(ops);
        self.raw.compound(all).await
    }

    /// A COMPOUND; its results without that of SEQUENCE, which must succeed.
    pub async fn run(&mut self, ops: Vec<ArgOp>) -> Vec<ResOp> {
        self.seq += 1;
        let mut res = self.again(ops).await;
        assert_eq!(res.results[0].status, NfsStat::NFS4_OK, "SEQUENCE");
        let status = res.results.last().expect("a result").status;
        assert_eq!(res.status, status);
        res.results.remove(0);
        res.results
    }

    /// The last result, which may have failed.
    pub async fn last(&mut self, ops: Vec<ArgOp>) -> ResOp {
        self.run(ops).await.pop().expect("a result")
    }

    pub async fn status(&mut self, ops: Vec<ArgOp>) -> NfsStat {
        self.last(ops).await.status
    }

    pub async fn status_flags(&mut self) -> u32 {
        self.seq += 1;
        match self.again(Vec::new()).await.results.remove(0).body {
            ResBody::Sequence(s) => s.status_flags,
            other => panic!("SEQUENCE gave {other:?}"),
        }
    }

    /// What a new request gets.
    pub async fn sequence_status(&mut self) -> NfsStat {
        self.seq += 1;
        self.again(Vec::new()).await.status
    }

    /// `sr_status_flags` of a lone SEQUENCE on another slot than the client's own.
    pub async fn status_flags_on(&self, slotid: u32) -> u32 {
        let mut args = match self.sequence() {
            ArgOp::Sequence(a) => a,
            other => panic!("{other:?}"),
        };
        (args.slotid, args.highest_slotid, args.sequenceid) = (slotid, slotid, 1);
        match self.raw.compound(vec![ArgOp::Sequence(args)]).await.results.remove(0).body {
            ResBody::Sequence(s) => s.status_flags,
            other => panic!("SEQUENCE gave {other:?}"),
        }
    }

    /// The handle of a path below the root.
    pub async fn handle(&mut self, path: &[&str]) -> FileHandle {
        let mut ops = vec![ArgOp::Putrootfh];
        ops.extend(path.iter().map(|n| ArgOp::Lookup(name(n))));
        ops.push(ArgOp::Getfh);
        match self.last(ops).await.body {
            ResBody::Getfh(fh) => fh,
            other => panic!("GETFH gave {other:?}"),
        }
    }

    pub async fn attrs(&mut self, fh: &FileHandle, wanted: Bitmap) -> AttrValues {
        match self.last(vec![ArgOp::Putfh(fh.clone()), ArgOp::Getattr(wanted)]).await.body {
            ResBody::Getattr(f) => AttrValues::from_fattr(&f).expect("values"),
            other => panic!("GETATTR gave {other:?}"),
        }
    }

    /// Holds an open that denies others something: the log does not know it, so after a restart the client has to reclaim.
    pub async fn deny(&mut self, file: &str) {
        let how = OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
        let deny = landfast_nfs::v4::flags::OPEN4_SHARE_DENY_WRITE;
        assert_ok(&self.run(vec![ArgOp::Putrootfh, open_op(b"denies", file, 1, deny, how)]).await);
    }

    /// Opens a file in the root, making it if need be: its handle and stateid.
    pub async fn open(&mut self, file: &str, access: u32) -> (FileHandle, Stateid) {
        let how = OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
        let ops = vec![ArgOp::Putrootfh, open_op(b"o", file, access, 0, how), ArgOp::Getfh];
        let res = self.run(ops).await;
        assert_ok(&res);
        let stateid = match &res[1].body {
            ResBody::Open(o) => o.stateid,
            other => panic!("OPEN gave {other:?}"),
        };
        match &res[2].body {
            ResBody::Getfh(fh) => (fh.clone(), stateid),
            other => panic!("GETFH gave {other:?}"),
        }
    }
}

pub fn name(n: &str) -> Bytes {
    Bytes::copy_from_slice(n.as_bytes())
}

pub fn fattr(v: AttrValues) -> Fattr {
    v.to_fattr(&AttrValues::KNOWN)
}

pub fn mode(mode: u32) -> Fattr {
    fattr(AttrValues { mode: Some(mode), ..AttrValues::default() })
}

pub fn open_op(owner: &[u8], file: &str, access: u32, deny: u32, openhow: OpenHow) -> ArgOp {
    ArgOp::Open(OpenArgs {
        seqid: 0,
        share_access: access,
        share_deny: deny,
        owner: v4::args::owner(0, owner),
        openhow,
        claim: OpenClaim::Null(name(file)),
    })
}

pub fn mkdir(n: &str) -> ArgOp {
    ArgOp::Create(CreateArgs { kind: CreateType::Dir, name: name(n), attrs: mode(0o755) })
}

pub fn write_op(stateid: Stateid, offset: u64, data: &[u8]) -> ArgOp {
    let data = Bytes::copy_from_slice(data);
    ArgOp::Write(WriteArgs { stateid, offset, stable: StableHow::FileSync, data })
}

pub fn read_op(stateid: Stateid, offset: u64, count: u32) -> ArgOp {
    ArgOp::Read(ReadArgs { stateid, offset, count })
}

pub fn close_op(open_stateid: Stateid) -> ArgOp {
    ArgOp::Close(CloseArgs { seqid: 0, open_stateid })
}

pub fn assert_ok(res: &[ResOp]) {
    for r in res {
        assert_eq!(r.status, NfsStat::NFS4_OK, "{}", r.op);
    }
}

pub fn readdir_op(cookie: u64, dircount: u32, maxcount: u32, attrs: &[u32]) -> ArgOp {
    ArgOp::Readdir(ReaddirArgs {
        cookie,
        cookieverf: [0; 8],
        dircount,
        maxcount,
        attr_request: Bitmap::of(attrs),
    })
}

/// Makes a file in the root.
pub async fn file(c: &mut Client) -> FileHandle {
    let (fh, stateid) = c.open("f", 3).await;
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), close_op(stateid)]).await);
    fh
}

/// An operation on an object.
pub async fn on(c: &mut Client, fh: &FileHandle, op: ArgOp) -> ResOp {
    c.last(vec![ArgOp::Putfh(fh.clone()), op]).await
}
