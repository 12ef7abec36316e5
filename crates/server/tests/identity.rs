//! Who may speak for a client, as bytes on sockets: attackers at other addresses of this machine, and as other users at the
//! victim's, who know the victim's name, its client ID and its numbers.

use crate::common;
use crate::v40::{Client40, setclientid_op};

use common::lockd::text;
use common::somebody::{Said, Somebody};
use common::v3::V3;
use common::*;
use landfast_nfs::mount::{self, ExportEntry, MountEntry};
use landfast_nfs::nlm::{
    self, Lock, NlmStat, Share, ShareArgs, ShareRes, TestArgs, TestRes, UnlockArgs, proc,
};
use landfast_nfs::v3::types::List;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use landfast_nfs::{nsm, v3, v4};
use landfast_server::exports::Features;
use landfast_server::exports::rules::{ClientSpec, Rule, Rules};
use landfast_server::{Running, Served, Server, ServerConfig};
use landfast_volume::{Durability, OpenOptions, Volume};
use landfast_xdr::{Bytes, Decode, Encode};
use std::net::SocketAddr;

const OK: NfsStat = NfsStat::NFS4_OK;

/// One operation in a COMPOUND of its own.
async fn alone(who: &mut Somebody, minor: u32, op: ArgOp) -> ResOp {
    who.compound(minor, vec![op]).await.results.remove(0)
}

async fn exchange(who: &mut Somebody, name: &[u8], verifier: u8) -> Result<(u64, u32), NfsStat> {
    match alone(who, 2, ArgOp::ExchangeId(exchange_args(name, verifier))).await {
        ResOp { body: ResBody::ExchangeId(r), .. } => Ok((r.clientid, r.sequenceid)),
        failed => Err(failed.status),
    }
}

async fn session(who: &mut Somebody, client: u64, sequence: u32) -> Result<SessionId, NfsStat> {
    match alone(who, 2, ArgOp::CreateSession(session_args(client, sequence))).await {
        ResOp { body: ResBody::CreateSession(r), .. } => Ok(r.sessionid),
        failed => Err(failed.status),
    }
}

fn sequence(session: SessionId, slotid: u32, sequenceid: u32) -> ArgOp {
    let (highest_slotid, cachethis) = (slotid, false);
    ArgOp::Sequence(SequenceArgs { sessionid: session, sequenceid, slotid, highest_slotid, cachethis })
}

fn lock_op(open_stateid: Stateid) -> ArgOp {
    let lock_owner = args::owner(0, b"l");
    let locker = Locker::New { open_seqid: 0, open_stateid, lock_seqid: 0, lock_owner };
    let (locktype, reclaim, offset, length) = (LockType::Write, false, 0, 10);
    ArgOp::Lock(v4::args::LockArgs { locktype, reclaim, offset, length, locker })
}

/// The client of 4.1 and 4.2 at 127.0.0.1 with an open and a lock; its file.
async fn holder(rig: &Rig) -> (Client, FileHandle) {
    let mut c = rig.client(b"Linux NFSv4.2 victim").await;
    let (f, stateid) = c.open("f", 3).await;
    assert_ok(&c.run(vec![ArgOp::Putfh(f.clone()), lock_op(stateid)]).await);
    (c, f)
}

/// Nothing of it is gone.
async fn holds(rig: &Rig, c: &mut Client) {
    assert_ok(&c.run(vec![ArgOp::Putrootfh]).await);
    let stats = rig.server().stats();
    assert_eq!((stats.opens, stats.locks), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_host_that_knows_a_clients_name_ends_nothing_of_it() {
    let rig = Rig::new().await;
    let (mut c, _) = holder(&rig).await;
    let mut bad = Somebody::at(rig.addr(), 2);
    for uid in [0, 1000] {
        bad.uid = uid;
        // As the victim after a restart, as the victim itself; and the session that would confirm it.
        for verifier in [9, 1] {
            if let Ok((client, number)) = exchange(&mut bad, b"Linux NFSv4.2 victim", verifier).await {
                assert_ne!(client, c.id);
                session(&mut bad, client, number).await.expect("a client of its own");
            }
            holds(&rig, &mut c).await;
        }
        // More sessions than a client may have; the first of these would be a replay, which tells a session's name.
        for number in 0..21 {
            let made = session(&mut bad, c.id, 1 + number).await;
            assert_eq!(made, Err(NfsStat::NFS4ERR_STALE_CLIENTID), "number {number}");
        }
        let res = alone(&mut bad, 2, ArgOp::DestroySession(c.session)).await;
        assert_eq!(res.status, NfsStat::NFS4ERR_BADSESSION);
        let res = alone(&mut bad, 2, ArgOp::DestroyClientid(c.id)).await;
        assert_eq!(res.status, NfsStat::NFS4ERR_STALE_CLIENTID);
        holds(&rig, &mut c).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn another_user_of_a_host_ends_nothing_of_its_client() {
    let rig = Rig::new().await;
    let (mut c, _) = holder(&rig).await;
    let mut bad = Somebody::at(rig.addr(), 1);
    bad.uid = 1000;
    const IN_USE: NfsStat = NfsStat::NFS4ERR_CLID_INUSE;
    assert_eq!(exchange(&mut bad, b"Linux NFSv4.2 victim", 9).await, Err(IN_USE));
    for number in 0..21 {
        assert_eq!(session(&mut bad, c.id, 1 + number).await, Err(IN_USE), "number {number}");
    }
    const WRONG: NfsStat = NfsStat::NFS4ERR_WRONG_CRED;
    assert_eq!(alone(&mut bad, 2, ArgOp::DestroySession(c.session)).await.status, WRONG);
    assert_eq!(alone(&mut bad, 2, ArgOp::DestroyClientid(c.id)).await.status, WRONG);
    let bind =
        BindConnToSessionArgs { sessid: c.session, dir: flags::CDFC4_BACK, use_conn_in_rdma_mode: false };
    let bound = alone(&mut bad, 2, ArgOp::BindConnToSession(bind)).await;
    assert_eq!(bound.status, NfsStat::NFS4ERR_BADSESSION);
    holds(&rig, &mut c).await;
    // But it works in the session of its host.
    let res = bad.compound(2, vec![sequence(c.session, 3, 1), ArgOp::Putrootfh]).await;
    assert_eq!(res.status, OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_honest_client_goes_on_from_another_address() {
    let rig = Rig::new().await;
    let (mut c, _) = holder(&rig).await;
    let mut moved = Somebody::at(rig.addr(), 3);
    // It has the session: it works, binds, makes another and ends both, as if it had never been elsewhere.
    assert_eq!(moved.compound(2, vec![sequence(c.session, 1, 1), ArgOp::Putrootfh]).await.status, OK);
    let bind =
        BindConnToSessionArgs { sessid: c.session, dir: flags::CDFC4_FORE, use_conn_in_rdma_mode: false };
    assert_eq!(alone(&mut moved, 2, ArgOp::BindConnToSession(bind)).await.status, OK);
    holds(&rig, &mut c).await;
    let second = session(&mut moved, c.id, 2).await.expect("another session");
    assert_eq!(alone(&mut moved, 2, ArgOp::DestroySession(second)).await.status, OK);
    // Without it, it is a new client at once, and the former one stays until its lease is over.
    let mut back = Somebody::at(rig.addr(), 4);
    let (client, number) = exchange(&mut back, b"Linux NFSv4.2 victim", 7).await.expect("served at once");
    session(&mut back, client, number).await.expect("a session");
    holds(&rig, &mut c).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn what_a_client_left_at_another_address_is_free_when_its_lease_is_over() {
    let rig = Rig::with(Durability::Log, 1).await;
    let (c, _) = holder(&rig).await;
    drop(c);
    let mut back = Somebody::at(rig.addr(), 4);
    let (client, number) = exchange(&mut back, b"Linux NFSv4.2 victim", 7).await.expect("served at once");
    let session = session(&mut back, client, number).await.expect("a session");
    let mut seqid = 0;
    let mut run = async |ops: Vec<ArgOp>| {
        seqid += 1;
        let mut all = vec![sequence(session, 0, seqid)];
        all.extend(ops);
        back.compound(2, all).await
    };
    assert_eq!(run(vec![ArgOp::ReclaimComplete(false)]).await.status, OK);
    let opened = run(vec![ArgOp::Putrootfh, open_op(b"o", "f", 3, 0, OpenHow::NoCreate)]).await;
    let ResBody::Open(open) = &opened.results[2].body else { panic!("OPEN gave {}", opened.status) };
    let begin = std::time::Instant::now();
    loop {
        let ops = vec![ArgOp::Putrootfh, ArgOp::Lookup(name("f")), lock_op(open.stateid)];
        match run(ops).await.status {
            OK => break,
            NfsStat::NFS4ERR_DENIED if begin.elapsed() < PATIENCE => tokio::task::yield_now().await,
            other => panic!("LOCK gave {other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_client_of_nfsv40_is_its_hosts() {
    let rig = Rig::new().await;
    let mut c = Client40::new(&rig, b"victim").await;
    let (f, stateid) = c.open("f", 3, 0).await;
    let seqid = c.next();
    assert_eq!(c.on(&f, c.new_lock(stateid, seqid, b"l", 0, (0, 10))).await.status, OK);
    let mut bad = Somebody::at(rig.addr(), 2);
    for verifier in [9, 1] {
        let res = alone(&mut bad, 0, setclientid_op(b"victim", verifier, "127.0.0.2.3.4")).await;
        let ResBody::Setclientid(r) = res.body else { panic!("SETCLIENTID gave {}", res.status) };
        assert_ne!(r.clientid, c.id);
        let args = v4::v40::SetclientidConfirmArgs { clientid: r.clientid, confirm: r.confirm };
        assert_eq!(alone(&mut bad, 0, ArgOp::SetclientidConfirm(args)).await.status, OK);
    }
    // Its owner's number would be wrong for the victim after this.
    let open = c.open_op(c.seqid + 1, "g", 3, 0);
    let opened = bad.compound(0, vec![ArgOp::Putrootfh, open]).await;
    assert_eq!(opened.status, NfsStat::NFS4ERR_DELAY);
    let released = alone(&mut bad, 0, ArgOp::ReleaseLockowner(owner(c.id, b"l"))).await;
    assert_eq!(released.status, NfsStat::NFS4ERR_RESOURCE);
    assert_eq!(alone(&mut bad, 0, ArgOp::Renew(c.id)).await.status, OK, "says nothing, does nothing");
    let stats = rig.server().stats();
    assert_eq!((stats.opens, stats.locks), (1, 1));
    assert_eq!(c.renew().await, OK);
    let seqid = c.next();
    let res = c.last(vec![ArgOp::Putrootfh, c.open_op(seqid, "g", 3, 0)]).await;
    assert_eq!(res.status, OK, "its numbers are its own");
}

/// A server of `dir` with these rules.
async fn serve(dir: &std::path::Path, rules: Vec<Rule>) -> Running {
    let (volume, recovery) =
        Volume::open(OpenOptions { accept_weak: true, ..OpenOptions::new(dir, Durability::Sync) })
            .unwrap_or_else(|e| panic!("{e}"));
    let (path, rules) = (dir.to_owned(), Rules(rules));
    let served = Served {
        volume,
        recovery,
        path,
        name: "/".into(),
        rules,
        manage_gids: false,
        features: Features::default(),
    };
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = ServerConfig { workers: 4, ..ServerConfig::of(vec![served], vec![listen]) };
    Server::start(config).await.unwrap_or_else(|e| panic!("{e}"))
}

fn directory() -> tempfile::TempDir {
    let dir = tempfile::Builder::new().prefix("landfast-identity-").tempdir_in("/var/tmp");
    let dir = dir.expect("a directory");
    std::fs::write(dir.path().join("f"), b"content").expect("a file");
    dir
}

fn only(n: &[u8]) -> Vec<ClientSpec> {
    n.iter().map(|n| ClientSpec::parse(&format!("127.0.0.{n}")).expect("an address")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_address_that_no_export_names_gets_nothing() {
    let dir = directory();
    let running = serve(dir.path(), vec![Rule::open(only(&[1]))]).await;
    let at = running.local_addr();
    let mut friend = V3::connect(at).await;
    friend.root = friend.mounted(b"/").await.handle;
    let file = friend.file("g").await;
    let kept = running.stats().calls_kept;
    let mut bad = Somebody::at(at, 2);
    let refused = Said::Refused(1);
    let nfs = landfast_nfs::PROGRAM;
    for (prog, vers, proc) in [
        (nfs, 3, 1),
        (nfs, 4, 1),
        (nlm::PROGRAM, 4, proc::TEST),
        (nlm::PROGRAM, 4, proc::FREE_ALL),
        (nsm::PROGRAM, 1, 6),
    ] {
        assert_eq!(bad.call(prog, vers, 0, &[]).await, Said::Results(Bytes::new()), "NULL of {prog}");
        assert_eq!(bad.call(prog, vers, proc, &[]).await, refused, "{prog} {vers} {proc}");
    }
    let exchange = ArgOp::ExchangeId(exchange_args(b"c", 1));
    let args = CompoundArgs { tag: Bytes::new(), minor_version: 2, announced: 1, ops: vec![exchange] };
    assert_eq!(bad.call(nfs, 4, v4::PROC_COMPOUND, &args.to_bytes()).await, refused);
    let set = setclientid_op(b"c", 1, "127.0.0.2.3.4");
    let args = CompoundArgs { tag: Bytes::new(), minor_version: 0, announced: 1, ops: vec![set] };
    assert_eq!(bad.call(nfs, 4, v4::PROC_COMPOUND, &args.to_bytes()).await, refused);
    let stats = running.stats();
    assert_eq!((stats.clients, stats.nlm_hosts.0, stats.calls_kept), (0, 0, kept));
    // By datagram nothing at all comes back, or no more than was sent.
    let lock = test_args("victim", &file);
    assert_eq!(bad.datagram(nlm::PROGRAM, 4, proc::TEST, &lock.to_bytes()).await, Said::Nothing);
    assert_eq!(bad.datagram(nlm::PROGRAM, 4, proc::TEST_MSG, &lock.to_bytes()).await, Said::Nothing);
    for (prog, vers, proc) in [(nlm::PROGRAM, 4, 0), (nlm::PROGRAM, 3, 1), (nfs, 3, 1)] {
        bad.datagram(prog, vers, proc, &[]).await;
        assert!(bad.bytes.1 <= bad.bytes.0, "{prog} {vers} {proc}: {:?}", bad.bytes);
    }
    // MOUNT says what it may mount, which is nothing, and nothing of who mounts what.
    let path = Bytes::copy_from_slice(b"/").to_bytes();
    let mnt = bad.call(mount::PROGRAM, 3, mount::proc::MNT, &path).await.results();
    assert_eq!(u32::from_bytes(mnt).expect("a status"), mount::MountStat::ACCES.0);
    let list = bad.call(mount::PROGRAM, 3, mount::proc::EXPORT, &[]).await.results();
    assert_eq!(List::<ExportEntry>::from_bytes(list).expect("a list").0, []);
    let list = bad.call(mount::PROGRAM, 3, mount::proc::DUMP, &[]).await.results();
    assert_eq!(List::<MountEntry>::from_bytes(list).expect("a list").0, []);
    let list = friend.mount(mount::proc::DUMP, Bytes::new()).await.expect("rows");
    assert_eq!(List::<MountEntry>::from_bytes(list).expect("a list").0.len(), 1, "its own");
    running.stop().await.expect("a clean stop");
}

/// Bytes of a file for the process 1 of a host.
fn lock_of(host: &str, file: &v3::FileHandle) -> Lock {
    let fh = Opaque1024(file.0.clone());
    Lock { caller_name: text(host), fh, oh: text("1"), svid: 1, offset: 0, length: 0 }
}

fn test_args(host: &str, file: &v3::FileHandle) -> TestArgs {
    TestArgs { cookie: text("c"), exclusive: true, lock: lock_of(host, file) }
}

async fn locks(who: &mut Somebody, host: &str, file: &v3::FileHandle) -> NlmStat {
    let args = nlm::LockArgs {
        cookie: text("c"),
        block: false,
        exclusive: true,
        lock: lock_of(host, file),
        reclaim: false,
        state: 3,
    };
    let res = who.call(nlm::PROGRAM, 4, proc::LOCK, &args.to_bytes()).await.results();
    nlm::Res::from_bytes(res).expect("a result").stat
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn only_root_of_a_host_frees_what_it_has_locked() {
    let dir = directory();
    // As Linux clients are served: from ports that only their root can use.
    let secure = |n: &[u8]| Rule { secure: true, ..Rule::open(only(n)) };
    let running = serve(dir.path(), vec![secure(&[2, 3]), Rule::open(only(&[1]))]).await;
    let at = running.local_addr();
    let mut setup = V3::connect(at).await;
    setup.root = setup.mounted(b"/").await.handle;
    let file = setup.file("g").await;
    let mut victim = Somebody::root_at(at, 2);
    assert_eq!(locks(&mut victim, "victim", &file).await, NlmStat::GRANTED);
    let share = ShareArgs {
        cookie: text("c"),
        share: Share {
            caller_name: text("victim"),
            fh: Opaque1024(file.0.clone()),
            oh: text("s"),
            mode: 0,
            access: 1,
        },
        reclaim: false,
    };
    let res = victim.call(nlm::PROGRAM, 4, proc::SHARE, &share.to_bytes()).await.results();
    assert_eq!(ShareRes::from_bytes(res).expect("a result").stat, NlmStat::GRANTED);
    // A user of the victim's machine, and root of another one. Datagrams, too.
    let unlock = UnlockArgs { cookie: text("c"), lock: lock_of("victim", &file) }.to_bytes();
    let all = nlm::Notify { name: text("victim"), state: 5 }.to_bytes();
    let restarted = nsm::StatChange { mon_name: text("victim"), state: 5 }.to_bytes();
    for mut bad in [Somebody::at(at, 2), Somebody::root_at(at, 3)] {
        for (prog, proc, args) in [
            (nlm::PROGRAM, proc::UNLOCK, &unlock),
            (nlm::PROGRAM, proc::UNSHARE, &share.to_bytes()),
            (nlm::PROGRAM, proc::FREE_ALL, &all),
            (nsm::PROGRAM, nsm::proc::NOTIFY, &restarted),
        ] {
            let vers = if prog == nlm::PROGRAM { 4 } else { 1 };
            let said = bad.call(prog, vers, proc, args).await;
            let by_datagram = bad.datagram(prog, vers, proc, args).await;
            if !bad.reserved {
                assert_eq!((said, by_datagram), (Said::Refused(5), Said::Nothing));
            }
            let stats = running.stats();
            assert_eq!((stats.opens, stats.locks), (1, 1), "{prog} {proc} from {}", bad.addr);
        }
    }
    let mut other = Somebody::root_at(at, 3);
    assert_eq!(locks(&mut other, "other", &file).await, NlmStat::DENIED);
    // What it may, from its own address.
    victim.call(nlm::PROGRAM, 4, proc::UNLOCK, &unlock).await.results();
    assert_eq!(locks(&mut other, "other", &file).await, NlmStat::GRANTED);
    running.stop().await.expect("a clean stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_datagram_is_answered_by_no_more_than_it_was() {
    let rig = Rig::new().await;
    // An owner with the longest name that there is: TEST tells it.
    let mut c = rig.client(b"c").await;
    let (f, stateid) = c.open("f", 3).await;
    let long = vec![b'x'; 1000];
    let lock_owner = args::owner(0, &long);
    let locker = Locker::New { open_seqid: 0, open_stateid: stateid, lock_seqid: 0, lock_owner };
    let (locktype, reclaim, offset, length) = (LockType::Write, false, 0, 10);
    let lock = ArgOp::Lock(v4::args::LockArgs { locktype, reclaim, offset, length, locker });
    assert_ok(&c.run(vec![ArgOp::Putfh(f.clone()), lock]).await);
    let mut who = Somebody::at(rig.addr(), 2);
    let args = test_args("host", &v3::FileHandle(f.0.clone())).to_bytes();
    let by_datagram = who.datagram(nlm::PROGRAM, 4, proc::TEST, &args).await.results();
    assert!(who.bytes.1 <= who.bytes.0, "{:?}", who.bytes);
    let holder = TestRes::from_bytes(by_datagram).expect("a result").reply.holder.expect("a holder");
    assert!(!holder.oh.0.is_empty() && long.starts_with(&holder.oh.0) && holder.exclusive);
    // On a connection nobody makes his address up: there it is whole.
    let whole = who.call(nlm::PROGRAM, 4, proc::TEST, &args).await.results();
    let holder = TestRes::from_bytes(whole).expect("a result").reply.holder.expect("a holder");
    assert_eq!(holder.oh.0, long);
}
