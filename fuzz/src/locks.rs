//! Whole connections of NFSv4.0 and NLM: several clients with open owners, lock owners and their numbers, hosts that lock by
//! NLM, all on the same two files; requests that are sent again, late or with a wrong number; crashes and restarts.
//!
//! The oracle is a model of who has what, fed by the replies alone: every request is answered and the answer decodes; a
//! request that is sent again gets the same bytes, also after a crash; no two owners ever hold what excludes the other,
//! and nobody is refused without somebody in the way; a wrong number changes nothing; at the end each byte is locked for a stranger
//! exactly when the model says so.

use arbitrary::{Arbitrary, Unstructured};
use landfast_nfs::nlm::{self, NlmStat, proc};
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::v40::{CallbackClient, ClientAddr, NfsClientId};
use landfast_nfs::v4::v40::{OpenConfirmArgs, SetclientidArgs, SetclientidConfirmArgs};
use landfast_nfs::v4::*;
use landfast_nfs::{PROGRAM, v3, v4};
use landfast_rpc::{AuthSys, Credential};
use landfast_server::{Running, Server, ServerConfig};
use landfast_volume::{OpenOptions, Volume};
use landfast_xdr::{Bytes, BytesMut, Decode, Encode};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes that are locked and looked at.
const SPAN: u64 = 32;
const FILES: [&str; 2] = ["f0", "f1"];
/// Steps of one input.
const STEPS: usize = 40;

/// What happens next, and whether it is sent again.
#[derive(Debug, Arbitrary)]
struct Turn {
    step: Step,
    again: u8,
}

#[derive(Debug, Arbitrary)]
enum Step {
    SetClient { client: u8, verifier: u8, confirm: bool },
    Open { client: u8, owner: u8, file: u8, access: u8, deny: u8 },
    Reclaim { client: u8, owner: u8, file: u8, access: u8 },
    Downgrade { open: u8, access: u8, deny: u8 },
    Close { open: u8 },
    Lock { open: u8, owner: u8, exclusive: bool, at: Place, reclaim: bool },
    Unlock { lock: u8, at: Place },
    Test { client: u8, owner: u8, file: u8, exclusive: bool, at: Place },
    Release { client: u8, owner: u8 },
    Renew { client: u8 },
    Misordered { open: u8, by: u8 },
    Dir { name: u8, make: bool },
    NlmLock { host: u8, svid: u8, file: u8, exclusive: bool, at: Place, reclaim: bool },
    NlmUnlock { host: u8, svid: u8, file: u8, at: Place },
    NlmTest { host: u8, svid: u8, file: u8, exclusive: bool, at: Place },
    NlmShare { host: u8, file: u8, access: u8, deny: u8, undo: bool },
    FreeAll { host: u8 },
    Garbage { program: u8, proc: u8, bytes: Vec<u8> },
    Restart { clean: bool, chance: u8 },
}

/// A range.
#[derive(Debug, Clone, Copy, Arbitrary)]
struct Place(u8, u8);

impl Place {
    /// First byte, and the first after it.
    fn ends(self) -> (u64, u64) {
        let from = u64::from(self.0) % SPAN;
        match self.1 % 16 {
            0 => (from, u64::MAX),
            n => (from, from + u64::from(n)),
        }
    }

    fn v4(self) -> (u64, u64) {
        let (from, end) = self.ends();
        (from, if end == u64::MAX { u64::MAX } else { end - from })
    }

    fn nlm(self) -> (u64, u64) {
        let (from, end) = self.ends();
        (from, if end == u64::MAX { 0 } else { end - from })
    }
}

/// Who holds locks or shares.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Who {
    V40 { client: usize, owner: Bytes },
    Nlm { host: u8, svid: u8 },
}

#[derive(Debug)]
struct Held {
    who: Who,
    file: usize,
    from: u64,
    end: u64,
    exclusive: bool,
}

/// An open of NFSv4.0, or a share of NLM, which has no stateid.
#[derive(Debug)]
struct Open {
    who: Who,
    file: usize,
    access: u32,
    deny: u32,
    stateid: Stateid,
}

/// A lock owner's state on a file.
#[derive(Debug)]
struct Locked {
    client: usize,
    owner: Bytes,
    file: usize,
    stateid: Stateid,
}

#[derive(Debug, Default)]
struct Client {
    id: Option<u64>,
    verifier: Option<u8>,
}

/// The server's process, and the directory that stays.
struct Rig {
    runtime: tokio::runtime::Runtime,
    running: Option<Running>,
    dir: tempfile::TempDir,
    handles: Vec<FileHandle>,
    lines: HashMap<u8, TcpStream>,
    xid: u32,
}

thread_local! {
    static RIG: RefCell<Option<Rig>> = const { RefCell::new(None) };
}

fn serve(runtime: &tokio::runtime::Runtime, dir: &Path) -> Running {
    let export = dir.join("data");
    let (volume, recovery) = Volume::open(OpenOptions {
        log_size: 16 << 20,
        accept_weak: true,
        ..OpenOptions::with_log(&export, dir.join("log"))
    })
    .expect("the volume opens; fuzzing it needs root");
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    // Nobody listens where the hosts' port mappers would be.
    let config =
        ServerConfig { workers: 2, portmapper: 1, ..ServerConfig::new(volume, recovery, listen, export) };
    runtime.block_on(Server::start(config)).expect("the server starts")
}

impl Rig {
    fn start() -> Rig {
        let dir =
            tempfile::Builder::new().prefix("landfast-fuzz-").tempdir_in("/var/tmp").expect("a directory");
        std::fs::create_dir(dir.path().join("data")).expect("the export");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let running = Some(serve(&runtime, dir.path()));
        let mut rig = Rig { runtime, running, dir, handles: Vec::new(), lines: HashMap::new(), xid: 0 };
        for file in FILES {
            std::fs::write(rig.dir.path().join("data").join(file), b"").expect("a file");
            let look =
                vec![ArgOp::Putrootfh, ArgOp::Lookup(Bytes::from_static(file.as_bytes())), ArgOp::Getfh];
            let fh = match rig.compound(look, 0).pop().map(|r| r.body) {
                Some(ResBody::Getfh(fh)) => fh,
                other => panic!("no handle: {other:?}"),
            };
            rig.handles.push(fh);
        }
        rig
    }

    fn restart(&mut self, clean: bool) {
        self.lines.clear();
        let running = self.running.take().expect("a server");
        if clean {
            self.runtime.block_on(running.stop()).expect("a clean stop");
        } else {
            self.runtime.block_on(running.abandon());
        }
        self.running = Some(serve(&self.runtime, self.dir.path()));
    }

    fn addr(&self) -> SocketAddr {
        self.running.as_ref().expect("a server").local_addr()
    }

    /// Sends a record on a connection, and takes the reply: whole, as it came.
    fn exchange(&mut self, line: u8, record: &[u8]) -> Vec<u8> {
        let addr = self.addr();
        let stream = self.lines.entry(line).or_insert_with(|| {
            let stream = TcpStream::connect(addr).expect("connected");
            stream.set_read_timeout(Some(PATIENCE)).expect("an option");
            stream.set_nodelay(true).expect("an option");
            stream
        });
        stream.write_all(record).expect("sent");
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).expect("a reply in time");
        let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut reply).expect("a whole reply");
        reply
    }

    fn record(&mut self, to: (u32, u32, u32), args: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let mut out = BytesMut::new();
        [0, self.xid, 0, 2, to.0, to.1, to.2].iter().for_each(|n: &u32| n.encode(&mut out));
        let cred = AuthSys { stamp: 0, machine_name: Vec::new(), uid: 0, gid: 0, gids: Vec::new() };
        Credential::Sys(Arc::new(cred)).to_opaque().encode(&mut out);
        [0u32, 0].iter().for_each(|n| n.encode(&mut out));
        out.extend_from_slice(args);
        let mark = 0x8000_0000 | (out.len() as u32 - 4);
        out[..4].copy_from_slice(&mark.to_be_bytes());
        out.to_vec()
    }

    /// A call, which may be sent again on its connection; the results of a call that was accepted.
    fn call(&mut self, to: (u32, u32, u32), args: &[u8], again: u8) -> Option<Bytes> {
        let record = self.record(to, args);
        let reply = self.exchange(0, &record);
        for _ in 0..again % 3 {
            let second = self.exchange(0, &record);
            assert_eq!(second, reply, "the same call was answered in another way");
        }
        results(&reply)
    }

    fn compound(&mut self, ops: Vec<ArgOp>, again: u8) -> Vec<ResOp> {
        let reply = self.call(COMPOUND, &encode(ops), again).expect("no garbage");
        decode(reply)
    }
}

const COMPOUND: (u32, u32, u32) = (PROGRAM, v4::VERSION, v4::PROC_COMPOUND);

fn results(reply: &[u8]) -> Option<Bytes> {
    let word =
        |i: usize| u32::from_be_bytes([reply[4 * i], reply[4 * i + 1], reply[4 * i + 2], reply[4 * i + 3]]);
    assert_eq!((word(1), word(2)), (1, 0), "an accepted reply");
    match word(5) {
        0 => Some(Bytes::copy_from_slice(&reply[24..])),
        1..=4 => None,
        other => panic!("accept status {other}"),
    }
}

fn encode(ops: Vec<ArgOp>) -> Bytes {
    let announced = ops.len() as u32;
    CompoundArgs { tag: Bytes::new(), minor_version: 0, announced, ops }.to_bytes()
}

fn decode(reply: Bytes) -> Vec<ResOp> {
    let res = CompoundRes::from_bytes(reply).expect("a COMPOUND result");
    for r in &res.results {
        assert!(v4::valid::is_plausible(0, r.op, r.status), "{} may not be {}", r.op, r.status);
    }
    res.results
}

/// Any sequence of steps.
pub fn locks(data: &[u8]) {
    RIG.with_borrow_mut(|rig| {
        let mut w = World::new(rig.take().unwrap_or_else(Rig::start));
        let mut u = Unstructured::new(data);
        for _ in 0..STEPS {
            if u.is_empty() {
                break;
            }
            let Ok(turn) = Turn::arbitrary(&mut u) else { break };
            w.turn(turn);
        }
        *rig = w.end();
    });
}

struct World {
    rig: Rig,
    clients: [Client; 3],
    /// The number of the last request of an owner: an open owner's, or a lock owner's.
    numbers: HashMap<(usize, Bytes), u32>,
    opens: Vec<Open>,
    locked: Vec<Locked>,
    held: Vec<Held>,
    /// The last change of the tree, and its reply.
    last: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether a grace period may be going on.
    grace: bool,
    restarts: usize,
}

fn stat(res: &[ResOp]) -> NfsStat {
    res.last().map_or(NfsStat::NFS4_OK, |r| r.status)
}

fn stateid(res: &[ResOp]) -> Option<Stateid> {
    res.iter().rev().find_map(|r| match &r.body {
        ResBody::Open(o) => Some(o.stateid),
        ResBody::OpenConfirm(s)
        | ResBody::OpenDowngrade(s)
        | ResBody::Lock(s)
        | ResBody::Locku(s)
        | ResBody::Close(s) => Some(*s),
        _ => None,
    })
}

/// Whether a status does not count (RFC 7530 section 9.1.7).
fn uncounted(status: NfsStat) -> bool {
    matches!(
        status,
        NfsStat::NFS4ERR_STALE_CLIENTID
            | NfsStat::NFS4ERR_STALE_STATEID
            | NfsStat::NFS4ERR_BAD_STATEID
            | NfsStat::NFS4ERR_BAD_SEQID
            | NfsStat::NFS4ERR_RESOURCE
    )
}

impl World {
    fn new(rig: Rig) -> World {
        World {
            rig,
            clients: Default::default(),
            numbers: HashMap::new(),
            opens: Vec::new(),
            locked: Vec::new(),
            held: Vec::new(),
            last: None,
            grace: false,
            restarts: 0,
        }
    }

    fn turn(&mut self, turn: Turn) {
        let again = turn.again;
        match turn.step {
            Step::SetClient { client, verifier, confirm } => {
                self.set_client(usize::from(client) % 3, verifier % 2, confirm, again);
            }
            Step::Open { client, owner, file, access, deny } => {
                let (access, deny) = (u32::from(access % 3) + 1, u32::from(deny % 4));
                let (client, file) = (usize::from(client) % 3, usize::from(file) % 2);
                self.open(client, &owner_name(owner), file, access, deny, false, again);
            }
            Step::Reclaim { client, owner, file, access } => {
                let (client, file) = (usize::from(client) % 3, usize::from(file) % 2);
                self.open(client, &owner_name(owner), file, u32::from(access % 3) + 1, 0, true, again);
            }
            Step::Downgrade { open, access, deny } => self.downgrade(open, access, deny, again),
            Step::Close { open } => self.close(open, again),
            Step::Lock { open, owner, exclusive, at, reclaim } => {
                self.lock(open, owner, exclusive, at, reclaim, again);
            }
            Step::Unlock { lock, at } => self.unlock(lock, at, again),
            Step::Test { client, owner, file, exclusive, at } => {
                self.test(usize::from(client) % 3, owner, usize::from(file) % 2, exclusive, at, again);
            }
            Step::Release { client, owner } => self.release(usize::from(client) % 3, owner, again),
            Step::Renew { client } => {
                if let Some(id) = self.clients[usize::from(client) % 3].id {
                    let status = stat(&self.rig.compound(vec![ArgOp::Renew(id)], again));
                    let known = !matches!(status, NfsStat::NFS4ERR_STALE_CLIENTID | NfsStat::NFS4ERR_EXPIRED);
                    assert!(known, "a client was forgotten: {status}");
                }
            }
            Step::Misordered { open, by } => self.misordered(open, by),
            Step::Dir { name, make } => self.dir(name, make, again),
            Step::NlmLock { host, svid, file, exclusive, at, reclaim } => {
                self.nlm_lock(host % 2, svid % 2, usize::from(file) % 2, exclusive, at, reclaim);
            }
            Step::NlmUnlock { host, svid, file, at } => {
                let (host, svid, file) = (host % 2, svid % 2, usize::from(file) % 2);
                let args = nlm::UnlockArgs { cookie: text("c"), lock: self.nlm_args(host, svid, file, at) };
                assert_eq!(self.nlm(proc::UNLOCK, args.to_bytes(), again), NlmStat::GRANTED);
                self.set(Who::Nlm { host, svid }, file, at, None);
            }
            Step::NlmTest { host, svid, file, exclusive, at } => {
                self.nlm_test(host % 2, svid % 2, usize::from(file) % 2, exclusive, at.nlm(), at.ends());
            }
            Step::NlmShare { host, file, access, deny, undo } => {
                self.nlm_share(host % 2, usize::from(file) % 2, access, deny, undo);
            }
            Step::FreeAll { host } => {
                let host = host % 2;
                let args = nlm::Notify { name: text(host_name(host)), state: 0 }.to_bytes();
                self.rig.call((nlm::PROGRAM, nlm::VERSION, proc::FREE_ALL), &args, again).expect("freed");
                self.held.retain(|h| !matches!(h.who, Who::Nlm { host: h, .. } if h == host));
                self.opens.retain(|o| !matches!(o.who, Who::Nlm { host: h, .. } if h == host));
            }
            Step::Garbage { program, proc, bytes } => {
                let programs = [
                    COMPOUND,
                    (PROGRAM, v3::VERSION, u32::from(proc % 24)),
                    (100_005, 3, u32::from(proc % 8)),
                    (100_024, 1, u32::from(proc % 8)),
                    (100_227, 3, u32::from(proc % 4)),
                    (nlm::PROGRAM, nlm::VERSION, u32::from(proc % 26)),
                ];
                // NLM's arguments would have to be read here to know what they did; too short for a lock they do nothing.
                let short = &bytes[..bytes.len().min(20)];
                let _ = self.rig.call(programs[usize::from(program) % programs.len()], short, 0);
            }
            // Seldom, for it takes as long as a hundred others.
            Step::Restart { clean, chance } if chance % 8 == 0 && self.restarts < 2 => self.restart(clean),
            Step::Restart { .. } => {}
        }
    }

    fn id(&self, client: usize) -> Option<u64> {
        self.clients[client].id
    }

    fn next(&self, client: usize, owner: &Bytes) -> u32 {
        self.numbers.get(&(client, owner.clone())).map_or(1, |n| n + 1)
    }

    /// An owner's request has been answered.
    fn counted(&mut self, client: usize, owner: &Bytes, seqid: u32, status: NfsStat) {
        if !uncounted(status) {
            self.numbers.insert((client, owner.clone()), seqid);
        }
    }

    /// A client has lost all.
    fn forget(&mut self, client: usize) {
        let theirs = |w: &Who| matches!(w, Who::V40 { client: c, .. } if *c == client);
        self.opens.retain(|o| !theirs(&o.who));
        self.held.retain(|h| !theirs(&h.who));
        self.locked.retain(|l| l.client != client);
        self.numbers.retain(|(c, _), _| *c != client);
    }

    fn set_client(&mut self, client: usize, verifier: u8, confirm: bool, again: u8) {
        let set = SetclientidArgs {
            client: NfsClientId { verifier: [verifier; 8], id: text(&format!("client {client}")) },
            callback: CallbackClient {
                program: 0x4000_0000,
                location: ClientAddr { netid: bytes("tcp"), addr: bytes("127.0.0.1.0.1") },
            },
            callback_ident: 1,
        };
        let mut res = self.rig.compound(vec![ArgOp::Setclientid(set)], again);
        let Some(ResBody::Setclientid(r)) = res.pop().map(|r| r.body) else { panic!("SETCLIENTID failed") };
        if !confirm {
            return;
        }
        let args = SetclientidConfirmArgs { clientid: r.clientid, confirm: r.confirm };
        let res = self.rig.compound(vec![ArgOp::SetclientidConfirm(args)], again);
        assert_eq!(stat(&res), NfsStat::NFS4_OK);
        let c = &mut self.clients[client];
        let same = c.verifier == Some(verifier);
        assert!(!same || c.id == Some(r.clientid), "the same instance has another number");
        (c.id, c.verifier) = (Some(r.clientid), Some(verifier));
        if !same {
            self.forget(client);
        }
    }

    /// Whether a share is excluded by another owner's.
    /// An open meets its own owner's reservations as well (RFC 7530 section 9.9); the last SHARE of NLM is what its owner has.
    fn share_in_the_way(&self, who: &Who, file: usize, access: u32, deny: u32) -> bool {
        let spared = |o: &Open| matches!(who, Who::Nlm { .. }) && o.who == *who;
        self.opens
            .iter()
            .any(|o| o.file == file && !spared(o) && (o.deny & access != 0 || o.access & deny != 0))
    }

    fn in_the_way(&self, who: &Who, file: usize, exclusive: bool, (from, end): (u64, u64)) -> bool {
        self.held.iter().any(|h| {
            h.file == file && h.who != *who && h.from < end && from < h.end && (exclusive || h.exclusive)
        })
    }

    /// A range is locked, or unlocked.
    fn set(&mut self, who: Who, file: usize, at: Place, kind: Option<bool>) {
        let (from, end) = at.ends();
        let mut rest = Vec::new();
        self.held.retain(|h| {
            if h.file != file || h.who != who || h.end <= from || end <= h.from {
                return true;
            }
            for (a, b) in [(h.from, from.min(h.end)), (end.max(h.from), h.end)] {
                if a < b {
                    let who = who.clone();
                    rest.push(Held { who, file, from: a, end: b, exclusive: h.exclusive });
                }
            }
            false
        });
        self.held.extend(rest);
        if let Some(exclusive) = kind {
            self.held.push(Held { who, file, from, end, exclusive });
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn open(
        &mut self,
        client: usize,
        owner: &Bytes,
        file: usize,
        access: u32,
        deny: u32,
        reclaim: bool,
        again: u8,
    ) {
        let Some(id) = self.id(client) else { return };
        let seqid = self.next(client, owner);
        let first = !self.numbers.contains_key(&(client, owner.clone()));
        let open = ArgOp::Open(OpenArgs {
            seqid,
            share_access: access,
            share_deny: deny,
            owner: StateOwner { clientid: id, owner: Opaque1024(owner.clone()) },
            openhow: OpenHow::NoCreate,
            claim: if reclaim { OpenClaim::Previous(0) } else { OpenClaim::Null(bytes(FILES[file])) },
        });
        let base = if reclaim { ArgOp::Putfh(self.rig.handles[file].clone()) } else { ArgOp::Putrootfh };
        let res = self.rig.compound(vec![base, open, ArgOp::Getfh], again);
        let status = stat(&res);
        let who = Who::V40 { client, owner: owner.clone() };
        let excluded = self.share_in_the_way(&who, file, access, deny);
        match status {
            NfsStat::NFS4_OK => {
                assert!(!excluded, "{who:?} was given {access}/{deny} of {file} against {:?}", self.opens);
            }
            NfsStat::NFS4ERR_SHARE_DENIED => {
                assert!(excluded, "{who:?} was refused {access}/{deny} of {file}")
            }
            NfsStat::NFS4ERR_GRACE => assert!(self.grace && !reclaim),
            NfsStat::NFS4ERR_NO_GRACE | NfsStat::NFS4ERR_RECLAIM_BAD | NfsStat::NFS4ERR_RECLAIM_CONFLICT => {
                assert!(reclaim);
            }
            other => panic!("OPEN gave {other}"),
        }
        let Some(s) = stateid(&res) else {
            // An owner that never had a confirmed open starts anew.
            if !first {
                self.counted(client, owner, seqid, status);
            }
            return;
        };
        self.numbers.insert((client, owner.clone()), seqid);
        let Some(ResBody::Open(o)) = res.get(1).map(|r| &r.body) else { panic!("no OPEN result") };
        let mut s = s;
        if o.rflags & v4::flags::OPEN4_RESULT_CONFIRM != 0 {
            assert!(first, "an owner that is known has to confirm");
            let confirm = ArgOp::OpenConfirm(OpenConfirmArgs { open_stateid: s, seqid: seqid + 1 });
            let fh = self.rig.handles[file].clone();
            let res = self.rig.compound(vec![ArgOp::Putfh(fh), confirm], again);
            assert_eq!(stat(&res), NfsStat::NFS4_OK, "OPEN_CONFIRM");
            self.numbers.insert((client, owner.clone()), seqid + 1);
            s = stateid(&res).expect("a stateid");
        }
        match self.opens.iter_mut().find(|o| o.who == who && o.file == file) {
            Some(known) => {
                assert_eq!(known.stateid.other, s.other, "one open of an owner and a file");
                (known.access, known.deny, known.stateid) = (known.access | access, known.deny | deny, s);
            }
            None => self.opens.push(Open { who, file, access, deny, stateid: s }),
        }
    }

    /// One of the opens of NFSv4.0: its place, client and owner.
    fn pick(&self, n: u8) -> Option<(usize, usize, Bytes)> {
        let all: Vec<_> = self
            .opens
            .iter()
            .enumerate()
            .filter_map(|(i, o)| match &o.who {
                Who::V40 { client, owner } => Some((i, *client, owner.clone())),
                Who::Nlm { .. } => None,
            })
            .collect();
        all.get(usize::from(n) % all.len().max(1)).cloned()
    }

    fn on(&mut self, file: usize, op: ArgOp, again: u8) -> Vec<ResOp> {
        let fh = self.rig.handles[file].clone();
        self.rig.compound(vec![ArgOp::Putfh(fh), op], again)
    }

    fn downgrade(&mut self, open: u8, access: u8, deny: u8, again: u8) {
        let Some((i, client, owner)) = self.pick(open) else { return };
        let (access, deny, seqid) = (u32::from(access % 4), u32::from(deny % 4), self.next(client, &owner));
        let (file, open_stateid) = (self.opens[i].file, self.opens[i].stateid);
        let args = OpenDowngradeArgs { open_stateid, seqid, share_access: access, share_deny: deny };
        let res = self.on(file, ArgOp::OpenDowngrade(args), again);
        self.counted(client, &owner, seqid, stat(&res));
        let o = &mut self.opens[i];
        match stat(&res) {
            NfsStat::NFS4_OK => {
                assert!(access & !o.access == 0 && deny & !o.deny == 0, "a downgrade gave more");
                (o.access, o.deny, o.stateid) = (access, deny, stateid(&res).expect("a stateid"));
            }
            status => assert_eq!(status, NfsStat::NFS4ERR_INVAL),
        }
    }

    fn close(&mut self, open: u8, again: u8) {
        let Some((i, client, owner)) = self.pick(open) else { return };
        let seqid = self.next(client, &owner);
        let (file, open_stateid) = (self.opens[i].file, self.opens[i].stateid);
        let res = self.on(file, ArgOp::Close(CloseArgs { seqid, open_stateid }), again);
        self.counted(client, &owner, seqid, stat(&res));
        let of_this = |l: &Locked| l.client == client && l.file == file && l.owner.starts_with(&owner);
        if stat(&res) == NfsStat::NFS4ERR_LOCKS_HELD {
            assert!(self.locked.iter().any(of_this));
            return;
        }
        assert_eq!(stat(&res), NfsStat::NFS4_OK, "CLOSE");
        self.opens.remove(i);
        let gone: Vec<Bytes> = self.locked.iter().filter(|l| of_this(l)).map(|l| l.owner.clone()).collect();
        self.locked.retain(|l| !of_this(l));
        for owner in gone {
            let who = Who::V40 { client, owner: owner.clone() };
            self.held.retain(|h| h.file != file || h.who != who);
            if !self.locked.iter().any(|l| l.client == client && l.owner == owner) {
                self.numbers.remove(&(client, owner));
            }
        }
    }

    fn lock(&mut self, open: u8, owner: u8, exclusive: bool, at: Place, reclaim: bool, again: u8) {
        let Some((i, client, open_owner)) = self.pick(open) else { return };
        let Some(id) = self.id(client) else { return };
        let (file, open_stateid, access) = (self.opens[i].file, self.opens[i].stateid, self.opens[i].access);
        let name = lock_owner(&open_owner, owner);
        let who = Who::V40 { client, owner: name.clone() };
        let known = self.locked.iter().position(|l| l.client == client && l.owner == name && l.file == file);
        let (open_seqid, lock_seqid) = (self.next(client, &open_owner), self.next(client, &name));
        let locker = match known {
            Some(k) => Locker::Existing { lock_stateid: self.locked[k].stateid, lock_seqid },
            None => {
                let lock_owner = StateOwner { clientid: id, owner: Opaque1024(name.clone()) };
                Locker::New { open_seqid, open_stateid, lock_seqid, lock_owner }
            }
        };
        let (offset, length) = at.v4();
        let locktype = if exclusive { LockType::Write } else { LockType::Read };
        let res = self.on(file, ArgOp::Lock(LockArgs { locktype, reclaim, offset, length, locker }), again);
        let status = stat(&res);
        if known.is_none() {
            self.counted(client, &open_owner, open_seqid, status);
        }
        if known.is_some() || self.numbers.contains_key(&(client, name.clone())) || status.is_ok() {
            self.counted(client, &name, lock_seqid, status);
        }
        let excluded = self.in_the_way(&who, file, exclusive, at.ends());
        match status {
            NfsStat::NFS4_OK => {
                assert!(!excluded, "{who:?} was given {at:?} of {file} against {:?}", self.held);
                assert_ne!(access & if exclusive { 2 } else { 1 }, 0, "a lock that the open does not allow");
                let stateid = stateid(&res).expect("a stateid");
                match known {
                    Some(k) => self.locked[k].stateid = stateid,
                    None => self.locked.push(Locked { client, owner: name, file, stateid }),
                }
                self.set(who, file, at, Some(exclusive));
            }
            NfsStat::NFS4ERR_DENIED => assert!(excluded, "{who:?} was refused {at:?} of {file}"),
            NfsStat::NFS4ERR_OPENMODE => assert_eq!(access & if exclusive { 2 } else { 1 }, 0),
            NfsStat::NFS4ERR_GRACE => assert!(self.grace && !reclaim),
            NfsStat::NFS4ERR_NO_GRACE | NfsStat::NFS4ERR_RECLAIM_BAD | NfsStat::NFS4ERR_RECLAIM_CONFLICT => {
                assert!(reclaim);
            }
            other => panic!("LOCK gave {other}"),
        }
    }

    fn unlock(&mut self, lock: u8, at: Place, again: u8) {
        let k = usize::from(lock) % self.locked.len().max(1);
        let Some(l) = self.locked.get(k) else { return };
        let (client, owner, file, lock_stateid) = (l.client, l.owner.clone(), l.file, l.stateid);
        let seqid = self.next(client, &owner);
        let (offset, length) = at.v4();
        let args = LockuArgs { locktype: LockType::Write, seqid, lock_stateid, offset, length };
        let res = self.on(file, ArgOp::Locku(args), again);
        assert_eq!(stat(&res), NfsStat::NFS4_OK, "LOCKU");
        self.counted(client, &owner, seqid, stat(&res));
        self.locked[k].stateid = stateid(&res).expect("a stateid");
        self.set(Who::V40 { client, owner }, file, at, None);
    }

    fn test(&mut self, client: usize, owner: u8, file: usize, exclusive: bool, at: Place, again: u8) {
        let Some(id) = self.id(client) else { return };
        let name = lock_owner(&owner_name(owner), owner / 2);
        let (offset, length) = at.v4();
        let locktype = if exclusive { LockType::Write } else { LockType::Read };
        let owner = StateOwner { clientid: id, owner: Opaque1024(name.clone()) };
        let args = LocktArgs { locktype, offset, length, owner };
        let status = stat(&self.on(file, ArgOp::Lockt(args), again));
        let excluded = self.in_the_way(&Who::V40 { client, owner: name }, file, exclusive, at.ends());
        match status {
            NfsStat::NFS4_OK => assert!(!excluded, "LOCKT saw nothing of {:?}", self.held),
            NfsStat::NFS4ERR_DENIED => assert!(excluded, "LOCKT saw what is not there"),
            NfsStat::NFS4ERR_GRACE => assert!(self.grace),
            other => panic!("LOCKT gave {other}"),
        }
    }

    fn release(&mut self, client: usize, owner: u8, again: u8) {
        let Some(clientid) = self.id(client) else { return };
        let name = lock_owner(&owner_name(owner), owner / 2);
        let owner = StateOwner { clientid, owner: Opaque1024(name.clone()) };
        let status = stat(&self.rig.compound(vec![ArgOp::ReleaseLockowner(owner)], again));
        let who = Who::V40 { client, owner: name.clone() };
        let holds = self.held.iter().any(|h| h.who == who);
        match status {
            NfsStat::NFS4_OK => {
                assert!(!holds, "locks were released with their owner");
                self.locked.retain(|l| l.client != client || l.owner != name);
                self.numbers.remove(&(client, name));
            }
            status => {
                assert_eq!(status, NfsStat::NFS4ERR_LOCKS_HELD);
                assert!(holds);
            }
        }
    }

    /// A CLOSE that is neither the next nor the last: refused, and nothing is closed.
    fn misordered(&mut self, open: u8, by: u8) {
        let Some((i, client, owner)) = self.pick(open) else { return };
        let seqid = self.next(client, &owner).wrapping_add(1 + u32::from(by));
        let (file, open_stateid) = (self.opens[i].file, self.opens[i].stateid);
        let res = self.on(file, ArgOp::Close(CloseArgs { seqid, open_stateid }), 0);
        assert_eq!(stat(&res), NfsStat::NFS4ERR_BAD_SEQID);
    }

    /// A change that no number tells apart: sent again on its connection, and perhaps after a crash.
    fn dir(&mut self, n: u8, make: bool, again: u8) {
        let name = Bytes::from(format!("d{}", n % 2));
        let op = if make {
            let attrs = AttrValues { mode: Some(0o755), ..AttrValues::default() };
            ArgOp::Create(CreateArgs {
                kind: CreateType::Dir,
                name,
                attrs: attrs.to_fattr(&AttrValues::KNOWN),
            })
        } else {
            ArgOp::Remove(name)
        };
        let record = self.rig.record(COMPOUND, &encode(vec![ArgOp::Putrootfh, op]));
        let reply = self.rig.exchange(0, &record);
        for _ in 0..again % 3 {
            assert_eq!(self.rig.exchange(0, &record), reply, "a directory was made or removed twice");
        }
        let res = decode(results(&reply).expect("no garbage"));
        let allowed =
            [NfsStat::NFS4_OK, NfsStat::NFS4ERR_EXIST, NfsStat::NFS4ERR_NOENT, NfsStat::NFS4ERR_GRACE];
        assert!(allowed.contains(&stat(&res)), "{}", stat(&res));
        if stat(&res).is_ok() {
            self.last = Some((record, reply));
        }
    }

    fn nlm_args(&self, host: u8, svid: u8, file: usize, at: Place) -> nlm::Lock {
        let (offset, length) = at.nlm();
        nlm::Lock {
            caller_name: text(host_name(host)),
            fh: Opaque1024(self.rig.handles[file].0.clone()),
            oh: text(["x", "y"][usize::from(svid % 2)]),
            svid: svid.into(),
            offset,
            length,
        }
    }

    fn nlm(&mut self, proc: u32, args: Bytes, again: u8) -> NlmStat {
        let res = self.rig.call((nlm::PROGRAM, nlm::VERSION, proc), &args, again).expect("no garbage");
        let res = nlm::Res::from_bytes(res).expect("an NLM result");
        assert_eq!(res.cookie, text("c"));
        res.stat
    }

    fn nlm_lock(&mut self, host: u8, svid: u8, file: usize, exclusive: bool, at: Place, reclaim: bool) {
        let lock = self.nlm_args(host, svid, file, at);
        let args = nlm::LockArgs { cookie: text("c"), block: false, exclusive, lock, reclaim, state: 1 };
        let stat = self.nlm(proc::LOCK, args.to_bytes(), 0);
        let who = Who::Nlm { host, svid };
        let excluded = self.in_the_way(&who, file, exclusive, at.ends());
        match stat {
            NlmStat::GRANTED => {
                assert!(!excluded, "{who:?} was given {at:?} of {file} against {:?}", self.held);
                self.set(who, file, at, Some(exclusive));
            }
            NlmStat::DENIED => assert!(excluded || reclaim, "{who:?} was refused {at:?} of {file}"),
            NlmStat::DENIED_GRACE_PERIOD => assert!(self.grace || reclaim),
            other => panic!("LOCK gave {other:?}"),
        }
    }

    fn nlm_test(
        &mut self,
        host: u8,
        svid: u8,
        file: usize,
        exclusive: bool,
        (offset, length): (u64, u64),
        ends: (u64, u64),
    ) {
        let lock = nlm::Lock { offset, length, ..self.nlm_args(host, svid, file, Place(0, 0)) };
        let args = nlm::TestArgs { cookie: text("c"), exclusive, lock }.to_bytes();
        let res = self.rig.call((nlm::PROGRAM, nlm::VERSION, proc::TEST), &args, 0).expect("no garbage");
        let res = nlm::TestRes::from_bytes(res).expect("a result");
        let excluded = self.in_the_way(&Who::Nlm { host, svid }, file, exclusive, ends);
        match res.reply.stat {
            NlmStat::GRANTED => assert!(!excluded, "TEST saw nothing at {ends:?} of {:?}", self.held),
            NlmStat::DENIED => {
                assert!(excluded, "TEST saw what is not there at {ends:?}: {:?}, {:?}", res.reply, self.held);
            }
            NlmStat::DENIED_GRACE_PERIOD => assert!(self.grace),
            other => panic!("TEST gave {other:?}"),
        }
    }

    fn nlm_share(&mut self, host: u8, file: usize, access: u8, deny: u8, undo: bool) {
        let (access, deny) = (u32::from(access % 3) + 1, u32::from(deny % 4));
        let fh = Opaque1024(self.rig.handles[file].0.clone());
        let share =
            nlm::Share { caller_name: text(host_name(host)), fh, oh: text("share"), mode: deny, access };
        let args = nlm::ShareArgs { cookie: text("c"), share, reclaim: false }.to_bytes();
        let number = if undo { proc::UNSHARE } else { proc::SHARE };
        let res = self.rig.call((nlm::PROGRAM, nlm::VERSION, number), &args, 0).expect("no garbage");
        let stat = nlm::ShareRes::from_bytes(res).expect("a result").stat;
        let who = Who::Nlm { host, svid: 255 };
        if undo {
            assert_eq!(stat, NlmStat::GRANTED);
            self.opens.retain(|o| o.file != file || o.who != who);
            return;
        }
        let excluded = self.share_in_the_way(&who, file, access, deny);
        match stat {
            NlmStat::GRANTED => {
                assert!(!excluded, "{who:?} was given {access}/{deny} against {:?}", self.opens);
                // The last SHARE of an owner is what it has.
                self.opens.retain(|o| o.file != file || o.who != who);
                self.opens.push(Open { who, file, access, deny, stateid: Stateid::ANONYMOUS });
            }
            NlmStat::DENIED => assert!(excluded, "{who:?} was refused {access}/{deny}"),
            NlmStat::DENIED_GRACE_PERIOD => assert!(self.grace),
            other => panic!("SHARE gave {other:?}"),
        }
    }

    /// The server stops, or dies, and comes back: who held something may reclaim it.
    fn restart(&mut self, clean: bool) {
        self.restarts += 1;
        self.rig.restart(clean);
        self.grace = true;
        for client in 0..3 {
            self.forget(client);
            // The old number is not known any more.
            if let Some(id) = self.clients[client].id.take() {
                let status = stat(&self.rig.compound(vec![ArgOp::Renew(id)], 0));
                assert_eq!(status, NfsStat::NFS4ERR_STALE_CLIENTID);
            }
            self.clients[client].verifier = None;
        }
        self.opens.clear();
        self.held.clear();
        if let Some((record, reply)) = &self.last {
            assert_eq!(self.rig.exchange(1, record), *reply, "an acknowledged change was made again");
        }
    }

    /// Each byte once more; then the clients go. A server that was restarted is not used again: its grace period goes on.
    fn end(mut self) -> Option<Rig> {
        for file in 0..FILES.len() {
            for at in (0..SPAN + 16).step_by(3) {
                self.nlm_test(9, 9, file, true, (at, 1), (at, at + 1));
            }
        }
        if self.restarts > 0 {
            if let Some(running) = self.rig.running.take() {
                self.rig.runtime.block_on(running.abandon());
            }
            return None;
        }
        for host in 0..2 {
            self.turn(Turn { step: Step::FreeAll { host }, again: 0 });
        }
        for client in 0..3u8 {
            // Another instance takes the place of the one that was.
            let verifier = self.clients[usize::from(client)].verifier.map_or(0, |v| 1 - v);
            self.set_client(client.into(), verifier, true, 0);
        }
        assert_eq!(self.rig.running.as_ref().map_or(0, |r| r.stats().opens), 0, "opens are left over");
        // Through the server: what others do to the tree while the log speaks of it is not looked at here.
        for name in ["d0", "d1"] {
            let remove = vec![ArgOp::Putrootfh, ArgOp::Remove(bytes(name))];
            let status = stat(&self.rig.compound(remove, 0));
            assert!(matches!(status, NfsStat::NFS4_OK | NfsStat::NFS4ERR_NOENT), "REMOVE gave {status}");
        }
        self.rig.lines.clear();
        Some(self.rig)
    }
}

fn bytes(s: &str) -> Bytes {
    Bytes::copy_from_slice(s.as_bytes())
}

fn text(s: &str) -> Opaque1024 {
    Opaque1024(bytes(s))
}

fn host_name(host: u8) -> &'static str {
    ["host a", "host b", "stranger"][usize::from(host).min(2)]
}

fn owner_name(n: u8) -> Bytes {
    Bytes::from_static([&b"o"[..], b"p"][usize::from(n % 2)])
}

/// The lock owners under an open owner begin with its name.
fn lock_owner(open_owner: &Bytes, n: u8) -> Bytes {
    Bytes::from([&open_owner[..], &[b'0' + n % 2]].concat())
}
