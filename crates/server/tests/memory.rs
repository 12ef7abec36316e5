//! What clients make the server hold for a while it gives back when they are gone; and what it keeps for long does not hold
//! what was received with it.

mod common;

use common::lockd::{cookie, text};
use common::v3::V3;
use common::wire::Line;
use common::{Client, Rig, assert_ok, exchange_args, name, user};
use landfast_nfs::v3::args::{ReadArgs, ReaddirplusArgs};
use landfast_nfs::v3::{self, Call};
use landfast_nfs::v4::args::{CreateSessionArgs, LockArgs, Locker, OpenHow, owner};
use landfast_nfs::v4::v40::{CallbackClient, ClientAddr, NfsClientId, SetclientidArgs};
use landfast_nfs::v4::{ArgOp, ChannelAttrs, CompoundArgs, LockType, Opaque1024};
use landfast_nfs::{mount, nlm, v4};
use landfast_rpc::message::RawCall;
use landfast_rpc::record::last_fragment_header;
use landfast_server::limited::{Limit, Limits};
use landfast_xdr::{Bytes, Encode};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const ENTRIES: usize = 20_000;
/// Addresses, connections of each, requests of each of these: each reply is about a mebibyte.
const ADDRESSES: u8 = 4;
const CONNECTIONS: usize = 4;
const REQUESTS: usize = 48;
/// What the server may keep, and what a test's own allocations make of it.
const KEPT: u64 = 96 << 20;

/// The tests look at the memory of the whole process, one after the other.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number");
    pages * rustix::param::page_size() as u64
}

async fn connect(host: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from(([127, 0, 0, host], 0))).expect("an address of the loopback network");
    socket.connect(to).await.expect("connected")
}

fn message(call: &Call) -> Vec<u8> {
    let mut message = landfast_xdr::BytesMut::new();
    let cred = user(0).to_opaque();
    let (prog, vers, proc) = (landfast_nfs::PROGRAM, v3::VERSION, call.number());
    RawCall { xid: 7, prog, vers, proc, cred, verf: landfast_rpc::OpaqueAuth::NONE }.encode(&mut message);
    call.encode(&mut message);
    [&last_fragment_header(message.len())[..], &message].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn memory_of_large_listings_is_given_back() {
    let _alone = ALONE.lock().await;
    let rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let dir = c.dir("d").await;
    for i in 0..ENTRIES {
        std::fs::File::create(rig.export().join("d").join(format!("{i:0100}"))).expect("a file");
    }
    let max = (1 << 20) - (32 << 10);
    let args = ReaddirplusArgs { dir, cookie: 0, cookieverf: [0; 8], dircount: max, maxcount: max };
    let listing = message(&Call::Readdirplus(args));
    let before = resident();
    let mut open = Vec::new();
    for host in 0..ADDRESSES {
        for _ in 0..CONNECTIONS {
            let mut stream = connect(2 + host, rig.addr()).await;
            stream.write_all(&listing.repeat(REQUESTS)).await.expect("sent");
            open.push(stream);
        }
    }
    let used = |resource| {
        let all = rig.server().stats().limited();
        all.iter().find(|(r, ..)| *r == resource).map(|(_, used, _)| *used).expect("a resource")
    };
    // Nobody reads what is made until there is much of it.
    let mut peak = 0;
    while peak < before + 3 * KEPT {
        peak = peak.max(resident());
        tokio::task::yield_now().await;
    }
    for mut stream in open {
        let mut head = [0; 4];
        stream.read_exact(&mut head).await.expect("a reply");
        assert!(u32::from_be_bytes(head) & 0x7fff_ffff > 512 << 10, "a large reply");
    }
    while used("reply_bytes") > 0 || used("connections") > 1 {
        tokio::task::yield_now().await;
    }
    let freed = Instant::now();
    while resident() > before + KEPT {
        let (now, mib) = (resident(), |n: u64| n >> 20);
        let waited = freed.elapsed();
        assert!(
            waited < Duration::from_secs(20),
            "{} MiB before, {} at most, {} when nobody asked for anything any more for {waited:?}",
            mib(before),
            mib(peak),
            mib(now)
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!(
        "{} MiB before, {} at most, {} after {:?}",
        before >> 20,
        peak >> 20,
        resident() >> 20,
        freed.elapsed()
    );
}

const COMPOUND: (u32, u32, u32) = (landfast_nfs::PROGRAM, v4::VERSION, v4::PROC_COMPOUND);
const NULL: (u32, u32, u32) = (landfast_nfs::PROGRAM, v4::VERSION, v4::PROC_NULL);
const MNT: (u32, u32, u32) = (mount::PROGRAM, mount::VERSION, mount::proc::MNT);
const LOCK: (u32, u32, u32) = (nlm::PROGRAM, nlm::VERSION, nlm::proc::LOCK);

/// A COMPOUND whose arguments have so many bytes more behind them.
async fn padded(line: &mut Line, minor_version: u32, ops: Vec<ArgOp>, more: usize) -> Vec<u8> {
    let announced = ops.len() as u32;
    let args = CompoundArgs { tag: Bytes::new(), minor_version, announced, ops }.to_bytes();
    let (accepted, reply) = line.call(COMPOUND, &[args.to_vec(), vec![0xaa; more]].concat()).await;
    assert_eq!((accepted, &reply[..4]), (0, &[0; 4][..]), "an answer, and success");
    reply
}

/// Bytes that are received with each of the following, and how often. Together they are twice what may be kept.
const LARGE: usize = 4 << 20;
const LARGE_TIMES: usize = 48;
/// What comes in a buffer of usual size, between other records.
const BESIDE: usize = 100 << 10;
const BESIDE_TIMES: usize = 1000;

/// Owners, client owners, callback addresses, mounted paths and waiting locks are kept for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn what_is_kept_of_a_request_does_not_hold_the_rest_of_it() {
    let _alone = ALONE.lock().await;
    let mut rig = Rig::new().await;
    // Nobody is called back: nothing listens where the port mapper would be.
    rig.portmapper = common::lockd::portmapper_port().await;
    rig.restart().await;
    let mut line = Line::new(rig.addr()).await;
    let raw = rig.raw().await;
    let ex = raw.exchange_id(b"client", 1).await;
    let fore = ChannelAttrs { max_request_size: 8 << 20, ..common::channel() };
    let args =
        CreateSessionArgs { fore_chan_attrs: fore, ..common::session_args(ex.clientid, ex.sequenceid) };
    let s = raw.create_session(args).await;
    let (session, fore) = (s.sessionid, s.fore_chan_attrs);
    let mut c = Client { raw, id: ex.clientid, session, seq: 0, cachethis: false, flags: s.flags, fore };
    assert_ok(&c.run(vec![ArgOp::ReclaimComplete(false)]).await);
    let (file, open_stateid) = c.open("f", 3).await;
    let lock_owner = owner(0, b"holder");
    let locker = Locker::New { open_seqid: 0, open_stateid, lock_seqid: 0, lock_owner };
    let lock = LockArgs { locktype: LockType::Write, reclaim: false, offset: 0, length: 1, locker };
    assert_ok(&[common::on(&mut c, &file, ArgOp::Lock(lock)).await]);
    let before = resident();
    let holds_no_more = async |what: &str| {
        let begun = Instant::now();
        while resident() > before + KEPT {
            let more = (resident() - before) >> 20;
            assert!(begun.elapsed() < Duration::from_secs(20), "{more} MiB more after {what}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };

    for n in 0..LARGE_TIMES {
        let open = common::open_op(format!("owner {n}").as_bytes(), "f", 1, 0, OpenHow::NoCreate);
        c.seq += 1;
        padded(&mut line, 1, vec![c.sequence(), ArgOp::Putrootfh, open], LARGE).await;
    }
    holds_no_more("OPEN").await;

    for n in 0..LARGE_TIMES {
        let args = exchange_args(format!("client {n}").as_bytes(), 1);
        padded(&mut line, 1, vec![ArgOp::ExchangeId(args)], LARGE).await;
    }
    holds_no_more("EXCHANGE_ID").await;

    for n in 0..LARGE_TIMES {
        let id = Opaque1024(Bytes::from(format!("client {n}")));
        let location = ClientAddr { netid: name("tcp"), addr: name("127.0.0.1.3.4") };
        let op = ArgOp::Setclientid(SetclientidArgs {
            client: NfsClientId { verifier: [1; 8], id },
            callback: CallbackClient { program: 0x4000_0000, location },
            callback_ident: 1,
        });
        padded(&mut line, 0, vec![op], LARGE).await;
    }
    holds_no_more("SETCLIENTID").await;

    for n in 0..BESIDE_TIMES {
        line.call(NULL, &vec![0xaa; BESIDE]).await;
        // The root, by another spelling each time.
        let path = Bytes::from("/".repeat(n + 1));
        let (accepted, reply) = line.call(MNT, &path.to_bytes()).await;
        assert_eq!((accepted, &reply[..4]), (0, &[0; 4][..]), "MNT");
    }
    holds_no_more("MNT").await;

    for n in 0..BESIDE_TIMES {
        line.call(NULL, &vec![0xaa; BESIDE]).await;
        let lock = nlm::Lock {
            caller_name: text("host"),
            fh: Opaque1024(file.0.clone()),
            oh: text(&format!("owner {n}")),
            svid: n as i32,
            offset: 0,
            length: 1,
        };
        let args =
            nlm::LockArgs { cookie: cookie(), block: true, exclusive: true, lock, reclaim: false, state: 1 };
        let (accepted, reply) = line.call(LOCK, &args.to_bytes()).await;
        let stat = nlm::NlmStat::BLOCKED.0.to_be_bytes();
        assert_eq!((accepted, &reply[reply.len() - 4..]), (0, &stat[..]), "LOCK");
    }
    holds_no_more("LOCK").await;
}

/// COMPOUNDs that wait, each with as many operations of 4 bytes as it may have, and READs whose replies leave no room for theirs.
const WAITING: usize = 400;
const UNREAD: usize = 64;

/// An operation may take far more memory than bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn requests_that_wait_take_little_more_memory_than_they_have_bytes() {
    let _alone = ALONE.lock().await;
    let mut rig = Rig::new().await;
    rig.limits = Limits::default().with(Limit::ConnectionReplyBytes, 8 << 20);
    rig.restart().await;
    std::fs::write(rig.export().join("f"), vec![7; 1 << 20]).expect("a file");
    let v3 = V3::new(&rig).await;
    let file = v3.lookup(&v3.root, "f").await.object;
    let mut stream = connect(2, rig.addr()).await;
    let read = Call::Read(ReadArgs { file, offset: 0, count: 1 << 20 });
    stream.write_all(&message(&read).repeat(UNREAD)).await.expect("sent");
    let used = |resource| {
        let all = rig.server().stats().limited();
        all.iter().find(|(r, ..)| *r == resource).map(|(_, used, _)| *used).expect("a resource")
    };
    while used("connection_reply_bytes") < 7 << 20 {
        tokio::task::yield_now().await;
    }
    let before = resident();
    let ops: Vec<ArgOp> = std::iter::once(ArgOp::Putrootfh)
        .chain(std::iter::repeat_n(ArgOp::Getfh, landfast_server::limits::OPS_MAX as usize - 1))
        .collect();
    let announced = ops.len() as u32;
    let args = CompoundArgs { tag: Bytes::new(), minor_version: 0, announced, ops }.to_bytes();
    let (prog, vers, proc) = COMPOUND;
    let mut call = landfast_xdr::BytesMut::new();
    let (cred, verf) = (user(0).to_opaque(), landfast_rpc::OpaqueAuth::NONE);
    RawCall { xid: 8, prog, vers, proc, cred, verf }.encode(&mut call);
    let call = [&last_fragment_header(call.len() + args.len())[..], &call, &args].concat();
    for _ in 0..WAITING {
        stream.write_all(&call).await.expect("sent");
    }
    while used("requests") < WAITING as u64 {
        tokio::task::yield_now().await;
    }
    let more = resident().saturating_sub(before);
    assert!(more < KEPT, "{} MiB for {} MiB", more >> 20, (WAITING * call.len()) >> 20);
    println!("{} KiB for {} KiB", more >> 10, (WAITING * call.len()) >> 10);
}
