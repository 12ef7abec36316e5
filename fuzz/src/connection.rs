//! Whole connections: a server in this process over a temporary directory, and a client that sends any sequence of
//! COMPOUNDs, made from handles, stateids and names that mean something, or from bytes that mean nothing.
//!
//! Invariants: every request is answered and the answer decodes; its status is that of its last result; each status is one that
//! the RFCs allow the operation; there are never more results than operations; a retry gets the same bytes; the server
//! never holds more than this client made.

use arbitrary::{Arbitrary, Unstructured};
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use landfast_nfs::{PROGRAM, v4};
use landfast_rpc::client::Connection;
use landfast_rpc::conn::{ConnConfig, Target};
use landfast_rpc::{AuthSys, Credential, NoService};
use landfast_server::{Running, Server, ServerConfig};
use landfast_volume::{Durability, OpenOptions, Volume};
use landfast_xdr::{Bytes, BytesMut, Decode, Encode};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const NAMES: &[&[u8]] =
    &[b"a", b"b", b"c", b"d", b"", b".", b"..", b"x/y", b"\xff\xfe", b"nul\0", &[b'n'; 256]];

/// A request.
#[derive(Debug, Arbitrary)]
enum Request {
    /// In the session, of these operations; said again so many times.
    Known { minor: u8, cachethis: bool, ops: Vec<Op>, again: u8, user: u8 },
    /// In the session, then any bytes as operations.
    Raw { announced: u8, bytes: Vec<u8> },
    /// Any bytes instead of a COMPOUND's arguments.
    Garbage(Vec<u8>),
    /// Alone, without the session.
    Alone(Op),
    /// As NFSv4.0, which has no sessions.
    V40(Vec<Op>),
    /// A new session of the same client.
    NewSession { slots: u8, ops: u8, request: u16, response: u16, cached: u16 },
}

/// An operation; the small numbers choose among names, handles and stateids that are known.
#[derive(Debug, Arbitrary)]
enum Op {
    Access(u32),
    Close(u8),
    Commit { offset: u64, count: u32 },
    Create { kind: u8, name: u8, attrs: Attrs },
    Getattr([u32; 3]),
    Getfh,
    Link(u8),
    Lock { kind: u8, reclaim: bool, offset: u64, length: u64, stateid: u8, owner: u8, new: bool },
    Lockt { kind: u8, offset: u64, length: u64, owner: u8 },
    Locku { offset: u64, length: u64, stateid: u8 },
    Lookup(u8),
    Lookupp,
    Verify { attrs: Attrs, not: bool },
    Open { access: u32, deny: u8, owner: u8, how: u8, verf: u8, attrs: Attrs, claim: u8, name: u8 },
    Downgrade { stateid: u8, access: u8, deny: u8 },
    Putfh(u8),
    PutForged { byte: u8, xor: u8, of: u8 },
    Putrootfh,
    Read { stateid: u8, offset: u64, count: u32 },
    Readdir { cookie: u64, dircount: u32, maxcount: u32, attrs: [u32; 2] },
    Readlink,
    Remove(u8),
    Rename(u8, u8),
    Restorefh,
    Savefh,
    Secinfo(u8),
    SecinfoNoName(u8),
    Setattr { stateid: u8, attrs: Attrs },
    Write { stateid: u8, offset: u64, how: u8, bytes: u8 },
    FreeStateid(u8),
    TestStateid(Vec<u8>),
    ReclaimComplete(bool),
    Number(u8),
    Malformed(u8),
}

#[derive(Debug, Arbitrary)]
struct Attrs {
    mode: Option<u16>,
    size: Option<u64>,
    owner: Option<u32>,
    times: Option<(i64, u32)>,
    odd: Option<(u32, Vec<u8>)>,
}

impl Attrs {
    fn fattr(&self) -> Fattr {
        if let Some((word, values)) = &self.odd {
            let mut mask = Bitmap::default();
            (0..32).filter(|b| word & (1 << b) != 0).for_each(|b| mask.set(b * 3));
            return Fattr { mask, values: Bytes::copy_from_slice(values) };
        }
        let v = AttrValues {
            mode: self.mode.map(u32::from),
            size: self.size.map(|s| if s & 1 == 0 { s & 0xffff } else { s }),
            owner: self.owner.map(|o| Bytes::from(o.to_string())),
            time_modify_set: self
                .times
                .map(|(seconds, nseconds)| SetTime::ClientTime(NfsTime { seconds, nseconds })),
            ..AttrValues::default()
        };
        v.to_fattr(&AttrValues::KNOWN)
    }
}

/// The server, started once for all inputs.
struct Rig {
    runtime: tokio::runtime::Runtime,
    running: Running,
    export: PathBuf,
    dir: tempfile::TempDir,
}

thread_local! {
    static RIG: RefCell<Option<Rig>> = const { RefCell::new(None) };
}

impl Rig {
    fn start() -> Rig {
        let dir =
            tempfile::Builder::new().prefix("landfast-fuzz-").tempdir_in("/var/tmp").expect("a directory");
        let export = dir.path().join("data");
        std::fs::create_dir(&export).expect("the export");
        let (volume, recovery) =
            Volume::open(OpenOptions { accept_weak: true, ..OpenOptions::new(&export, Durability::Unsafe) })
                .expect("the volume opens; fuzzing it needs root");
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let config =
            ServerConfig { workers: 2, ..ServerConfig::new(volume, recovery, listen, export.clone()) };
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let running = runtime.block_on(Server::start(config)).expect("the server starts");
        Rig { runtime, running, export, dir }
    }

    /// Takes away what an input left in the directory.
    fn clean(&self) {
        for entry in std::fs::read_dir(&self.export).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name() != ".landfast" && std::fs::remove_file(&path).is_err() {
                let _ = std::fs::remove_dir_all(&path);
            }
        }
        assert!(self.dir.path().exists());
    }
}

/// Any sequence of requests.
pub fn connection(data: &[u8]) {
    RIG.with_borrow_mut(|rig| {
        let rig = rig.get_or_insert_with(Rig::start);
        rig.runtime.block_on(run(&rig.running, data));
        rig.clean();
    });
}

struct Client {
    conn: Connection,
    clientid: u64,
    create_sequence: u32,
    session: SessionId,
    seq: u32,
    handles: Vec<FileHandle>,
    stateids: Vec<Stateid>,
}

fn cred(user: u8) -> Credential {
    let uid = if user % 4 == 3 { 1000 } else { 0 };
    Credential::Sys(Arc::new(AuthSys {
        stamp: 0,
        machine_name: b"fuzz".to_vec(),
        uid,
        gid: uid,
        gids: Vec::new(),
    }))
}

async fn run(server: &Running, data: &[u8]) {
    let config = ConnConfig::default();
    let conn =
        Connection::connect(server.local_addr(), Arc::new(NoService), &config).await.expect("connected");
    let mut c = Client {
        conn,
        clientid: 0,
        create_sequence: 0,
        session: [0; 16],
        seq: 0,
        handles: Vec::new(),
        stateids: vec![Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::CURRENT, Stateid::INVALID],
    };
    c.begin().await;
    let mut u = Unstructured::new(data);
    for _ in 0..24 {
        if u.is_empty() {
            break;
        }
        let Ok(request) = Request::arbitrary(&mut u) else { break };
        c.send(request).await;
        let stats = server.stats();
        assert!(stats.clients <= 2 && stats.sessions <= 17 && stats.opens <= 24 * 64, "{stats:?}");
    }
    c.end().await;
}

impl Client {
    async fn call(&self, user: u8, body: Bytes) -> Option<Bytes> {
        let to = Target { prog: PROGRAM, vers: v4::VERSION, proc: v4::PROC_COMPOUND };
        match self.conn.call(to, &cred(user).to_opaque(), vec![body], PATIENCE).await {
            Ok(reply) => Some(reply),
            Err(landfast_rpc::CallError::Failed(landfast_rpc::AcceptStat::GarbageArgs)) => None,
            Err(e) => panic!("no answer: {e}"),
        }
    }

    async fn one(&self, op: ArgOp) -> ResOp {
        let args = CompoundArgs { tag: Bytes::new(), minor_version: 2, announced: 1, ops: vec![op] };
        let reply = self.call(0, args.to_bytes()).await.expect("no garbage");
        CompoundRes::from_bytes(reply).expect("a result").results.remove(0)
    }

    /// A client record of its own, and a session.
    async fn begin(&mut self) {
        let ask = ExchangeIdArgs {
            client_owner: ClientOwner {
                verifier: *b"verifier",
                owner_id: Opaque1024(Bytes::from_static(b"fuzz")),
            },
            flags: 0,
            state_protect: StateProtectArgs::None,
            client_impl_id: Vec::new(),
        };
        let ResBody::ExchangeId(found) = self.one(ArgOp::ExchangeId(ask)).await.body else {
            panic!("EXCHANGE_ID failed");
        };
        (self.clientid, self.create_sequence) = (found.clientid, found.sequenceid);
        assert!(self.new_session([8, 64, 1 << 15, 1 << 15, 4096]).await);
        let res = self.compound(2, true, vec![ArgOp::ReclaimComplete(false)], 0).await;
        assert!(res.is_some());
    }

    async fn new_session(&mut self, [slots, ops, request, response, cached]: [u32; 5]) -> bool {
        let channel = ChannelAttrs {
            header_pad_size: 0,
            max_request_size: request,
            max_response_size: response,
            max_response_size_cached: cached,
            max_operations: ops,
            max_requests: slots,
            rdma_ird: Vec::new(),
        };
        let back = ChannelAttrs {
            max_request_size: 4096,
            max_response_size: 4096,
            max_operations: 2,
            ..channel.clone()
        };
        let args = CreateSessionArgs {
            clientid: self.clientid,
            sequence: self.create_sequence,
            flags: 0,
            fore_chan_attrs: channel,
            back_chan_attrs: back,
            cb_program: 0x4000_0000,
            sec_parms: vec![CallbackSecParms::None],
        };
        let ResBody::CreateSession(s) = self.one(ArgOp::CreateSession(args)).await.body else { return false };
        (self.session, self.seq) = (s.sessionid, 0);
        self.create_sequence += 1;
        true
    }

    /// All that the client has goes, so that the next input finds the server as this one did.
    async fn end(mut self) {
        // A new instance of the owner takes the place of the old one, which loses what it still has.
        let ask = ExchangeIdArgs {
            client_owner: ClientOwner { verifier: [9; 8], owner_id: Opaque1024(Bytes::from_static(b"fuzz")) },
            flags: 0,
            state_protect: StateProtectArgs::None,
            client_impl_id: Vec::new(),
        };
        let ResBody::ExchangeId(found) = self.one(ArgOp::ExchangeId(ask)).await.body else {
            panic!("EXCHANGE_ID failed");
        };
        (self.clientid, self.create_sequence) = (found.clientid, found.sequenceid);
        assert!(self.new_session([1, 8, 4096, 4096, 512]).await);
        assert!(self.one(ArgOp::DestroySession(self.session)).await.status.is_ok());
        assert!(self.one(ArgOp::DestroyClientid(self.clientid)).await.status.is_ok());
    }

    fn sequence(&self, cachethis: bool) -> ArgOp {
        ArgOp::Sequence(SequenceArgs {
            sessionid: self.session,
            sequenceid: self.seq,
            slotid: 0,
            highest_slotid: 0,
            cachethis,
        })
    }

    async fn compound(
        &mut self,
        minor: u32,
        cachethis: bool,
        ops: Vec<ArgOp>,
        user: u8,
    ) -> Option<(Bytes, Bytes)> {
        self.seq += 1;
        let mut all = vec![self.sequence(cachethis)];
        all.extend(ops);
        let announced = all.len() as u32;
        let args = CompoundArgs { tag: Bytes::new(), minor_version: minor, announced, ops: all };
        let body = args.to_bytes();
        let reply = self.call(user, body.clone()).await?;
        self.look(minor, &reply, announced as usize);
        Some((body, reply))
    }

    /// Checks a reply, and remembers what it gives.
    fn look(&mut self, minor: u32, reply: &Bytes, announced: usize) {
        let res = CompoundRes::from_bytes(reply.clone()).expect("a COMPOUND result");
        assert!(res.results.len() <= announced);
        let last = res.results.last().map_or(res.status, |r| r.status);
        assert_eq!(res.status, last);
        for (i, r) in res.results.iter().enumerate() {
            assert!(v4::valid::is_plausible(minor, r.op, r.status), "{} may not be {}", r.op, r.status);
            assert!(r.status.is_ok() || i + 1 == res.results.len(), "something ran after a failure");
            match &r.body {
                ResBody::Getfh(fh) if self.handles.len() < 16 => self.handles.push(fh.clone()),
                ResBody::Open(o) if self.stateids.len() < 32 => self.stateids.push(o.stateid),
                ResBody::Lock(s) if self.stateids.len() < 32 => self.stateids.push(*s),
                _ => {}
            }
        }
        if res.results.first().is_none_or(|r| r.op == OpNum::SEQUENCE && !r.status.is_ok()) {
            self.seq -= 1;
        }
    }

    async fn send(&mut self, request: Request) {
        match request {
            Request::Known { minor, cachethis, ops, again, user } => {
                let minor = u32::from(minor % 2) + 1;
                let ops: Vec<ArgOp> = ops.iter().take(48).map(|op| self.op(op)).collect();
                let Some((body, first)) = self.compound(minor, cachethis, ops, user).await else { return };
                let status = u32::from_be_bytes([first[0], first[1], first[2], first[3]]);
                for _ in 0..again % 3 {
                    let reply = self.call(user, body.clone()).await.expect("as before");
                    let res = CompoundRes::from_bytes(reply.clone()).expect("a COMPOUND result");
                    // A reply that was not kept is refused; any other comes again as it was.
                    let kept =
                        res.results.get(1).map(|r| r.status) != Some(NfsStat::NFS4ERR_RETRY_UNCACHED_REP);
                    let slot_moved = first.len() > 16 && status != NfsStat::NFS4ERR_BADSESSION.0;
                    if kept && slot_moved && res.results[0].status.is_ok() {
                        assert_eq!(reply, first);
                    }
                }
            }
            Request::Raw { announced, bytes } => {
                self.seq += 1;
                let args = CompoundArgs {
                    tag: Bytes::new(),
                    minor_version: 2,
                    announced: 1,
                    ops: vec![self.sequence(true)],
                };
                let mut body = BytesMut::from(&args.to_bytes()[..]);
                let announced = u32::from(announced) + 1;
                body[8..12].copy_from_slice(&announced.to_be_bytes());
                body.extend_from_slice(&bytes);
                body.resize(body.len().next_multiple_of(4), 0);
                match self.call(0, body.freeze()).await {
                    Some(reply) => self.look(2, &reply, announced as usize),
                    None => self.seq -= 1,
                }
            }
            Request::Garbage(bytes) => {
                if let Some(reply) = self.call(0, Bytes::from(bytes)).await {
                    assert!(CompoundRes::from_bytes(reply).is_ok());
                }
            }
            Request::Alone(op) => {
                let op = self.op(&op);
                let res = self.one(op).await;
                assert!(
                    v4::valid::is_plausible(2, res.op, res.status),
                    "{} may not be {}",
                    res.op,
                    res.status
                );
            }
            Request::V40(ops) => {
                let ops: Vec<ArgOp> = ops.iter().take(48).map(|op| self.op(op)).collect();
                let announced = ops.len() as u32;
                let args = CompoundArgs { tag: Bytes::new(), minor_version: 0, announced, ops };
                let Some(reply) = self.call(0, args.to_bytes()).await else { return };
                let res = CompoundRes::from_bytes(reply).expect("a COMPOUND result");
                assert!(res.results.len() <= announced as usize);
                for r in &res.results {
                    assert!(
                        v4::valid::is_plausible(0, r.op, r.status),
                        "{} may not be {} in 4.0",
                        r.op,
                        r.status
                    );
                }
            }
            Request::NewSession { slots, ops, request, response, cached } => {
                let ask = [slots.into(), ops.into(), request.into(), response.into(), cached.into()];
                self.new_session(ask).await;
            }
        }
    }

    fn stateid(&self, n: u8) -> Stateid {
        let s = self.stateids[usize::from(n) % self.stateids.len()];
        match n / 64 {
            1 => Stateid { seqid: 0, ..s },
            2 => Stateid { seqid: s.seqid.wrapping_add(1), ..s },
            _ => s,
        }
    }

    fn handle(&self, n: u8) -> FileHandle {
        let none = FileHandle(Bytes::from(vec![1; usize::from(n % 129)]));
        self.handles.get(usize::from(n) % self.handles.len().max(1)).cloned().unwrap_or(none)
    }

    fn op(&self, op: &Op) -> ArgOp {
        let name = |n: &u8| Bytes::from_static(NAMES[usize::from(*n) % NAMES.len()]);
        let who = |n: &u8| owner(0, &[n % 3]);
        let kind = |n: &u8| match n % 4 {
            0 => LockType::Read,
            1 => LockType::Write,
            2 => LockType::ReadW,
            _ => LockType::WriteW,
        };
        match op {
            Op::Access(a) => ArgOp::Access(*a),
            Op::Close(s) => ArgOp::Close(CloseArgs { seqid: 0, open_stateid: self.stateid(*s) }),
            Op::Commit { offset, count } => ArgOp::Commit(CommitArgs { offset: *offset, count: *count }),
            Op::Create { kind, name: n, attrs } => {
                let d = SpecData { major: u32::from(*kind), minor: 2 };
                let kind = match kind % 8 {
                    0 => CreateType::Lnk(name(n)),
                    1 => CreateType::Blk(d),
                    2 => CreateType::Chr(d),
                    3 => CreateType::Sock,
                    4 => CreateType::Fifo,
                    5 => CreateType::Other(u32::from(*kind)),
                    _ => CreateType::Dir,
                };
                ArgOp::Create(CreateArgs { kind, name: name(n), attrs: attrs.fattr() })
            }
            Op::Getattr(words) => ArgOp::Getattr(bitmap(words)),
            Op::Getfh => ArgOp::Getfh,
            Op::Link(n) => ArgOp::Link(name(n)),
            Op::Lock { kind: k, reclaim, offset, length, stateid, owner, new } => {
                let s = self.stateid(*stateid);
                let locker = if *new {
                    Locker::New { open_seqid: 0, open_stateid: s, lock_seqid: 0, lock_owner: who(owner) }
                } else {
                    Locker::Existing { lock_stateid: s, lock_seqid: 0 }
                };
                let (reclaim, offset, length) = (*reclaim, *offset, *length);
                ArgOp::Lock(LockArgs { locktype: kind(k), reclaim, offset, length, locker })
            }
            Op::Lockt { kind: k, offset, length, owner } => ArgOp::Lockt(LocktArgs {
                locktype: kind(k),
                offset: *offset,
                length: *length,
                owner: who(owner),
            }),
            Op::Locku { offset, length, stateid } => ArgOp::Locku(LockuArgs {
                locktype: LockType::Read,
                seqid: 0,
                lock_stateid: self.stateid(*stateid),
                offset: *offset,
                length: *length,
            }),
            Op::Lookup(n) => ArgOp::Lookup(name(n)),
            Op::Lookupp => ArgOp::Lookupp,
            Op::Verify { attrs, not: true } => ArgOp::Nverify(attrs.fattr()),
            Op::Verify { attrs, not: false } => ArgOp::Verify(attrs.fattr()),
            Op::Open { access, deny, owner, how, verf, attrs, claim, name: n } => {
                let verf = [*verf; 8];
                let openhow = match how % 5 {
                    0 => OpenHow::NoCreate,
                    1 => OpenHow::Create(CreateHow::Unchecked(attrs.fattr())),
                    2 => OpenHow::Create(CreateHow::Guarded(attrs.fattr())),
                    3 => OpenHow::Create(CreateHow::Exclusive(verf)),
                    _ => OpenHow::Create(CreateHow::Exclusive41 { verf, attrs: attrs.fattr() }),
                };
                let claim = match claim % 10 {
                    0 => OpenClaim::Fh,
                    1 => OpenClaim::Previous(0),
                    2 => OpenClaim::DelegCurFh(self.stateid(*deny)),
                    3 => OpenClaim::DelegPrevFh,
                    4 => OpenClaim::DelegatePrev(name(n)),
                    _ => OpenClaim::Null(name(n)),
                };
                ArgOp::Open(OpenArgs {
                    seqid: 0,
                    share_access: *access,
                    share_deny: u32::from(deny % 5),
                    owner: who(owner),
                    openhow,
                    claim,
                })
            }
            Op::Downgrade { stateid, access, deny } => ArgOp::OpenDowngrade(OpenDowngradeArgs {
                open_stateid: self.stateid(*stateid),
                seqid: 0,
                share_access: u32::from(access % 5),
                share_deny: u32::from(deny % 5),
            }),
            Op::Putfh(n) => ArgOp::Putfh(self.handle(*n)),
            Op::PutForged { byte, xor, of } => {
                let mut fh = self.handle(*of).0.to_vec();
                let at = usize::from(*byte) % fh.len().max(1);
                if let Some(b) = fh.get_mut(at) {
                    *b ^= xor;
                }
                ArgOp::Putfh(FileHandle(fh.into()))
            }
            Op::Putrootfh => ArgOp::Putrootfh,
            Op::Read { stateid, offset, count } => {
                ArgOp::Read(ReadArgs { stateid: self.stateid(*stateid), offset: *offset, count: *count })
            }
            Op::Readdir { cookie, dircount, maxcount, attrs } => ArgOp::Readdir(ReaddirArgs {
                cookie: if cookie & 1 == 0 { cookie & 3 } else { *cookie },
                cookieverf: [0; 8],
                dircount: *dircount,
                maxcount: *maxcount,
                attr_request: bitmap(attrs),
            }),
            Op::Readlink => ArgOp::Readlink,
            Op::Remove(n) => ArgOp::Remove(name(n)),
            Op::Rename(a, b) => ArgOp::Rename(RenameArgs { oldname: name(a), newname: name(b) }),
            Op::Restorefh => ArgOp::Restorefh,
            Op::Savefh => ArgOp::Savefh,
            Op::Secinfo(n) => ArgOp::Secinfo(name(n)),
            Op::SecinfoNoName(n) => ArgOp::SecinfoNoName(u32::from(n % 3)),
            Op::Setattr { stateid, attrs } => {
                ArgOp::Setattr(SetattrArgs { stateid: self.stateid(*stateid), attrs: attrs.fattr() })
            }
            Op::Write { stateid, offset, how, bytes } => ArgOp::Write(WriteArgs {
                stateid: self.stateid(*stateid),
                // Far offsets at the end of what there is, near ones elsewhere: files stay small.
                offset: if offset & 7 == 7 { *offset } else { offset & 0xffff },
                stable: match how % 3 {
                    0 => StableHow::Unstable,
                    1 => StableHow::DataSync,
                    _ => StableHow::FileSync,
                },
                data: Bytes::from(vec![*how; usize::from(*bytes)]),
            }),
            Op::FreeStateid(s) => ArgOp::FreeStateid(self.stateid(*s)),
            Op::TestStateid(all) => ArgOp::TestStateid(all.iter().map(|s| self.stateid(*s)).collect()),
            Op::ReclaimComplete(one_fs) => ArgOp::ReclaimComplete(*one_fs),
            Op::Number(n) => ArgOp::Other(OpNum(u32::from(*n))),
            Op::Malformed(n) => ArgOp::Malformed(OpNum(u32::from(*n))),
        }
    }
}

fn bitmap(words: &[u32]) -> Bitmap {
    let mut b = Bitmap::default();
    for (i, w) in words.iter().enumerate() {
        (0..32).filter(|n| w & (1 << n) != 0).for_each(|n| b.set(i as u32 * 32 + n));
    }
    b
}
