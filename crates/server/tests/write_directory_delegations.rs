//! Write directory delegations (docs/internals/write-directory-delegations.md), over real sockets: who gets one, that each request of others on the
//! directory's names and attributes waits until it is back, and what comes of it at a restart and when it does not come back.

use crate::common;
use crate::delegations::{Heard, recalled};
use crate::directory_delegations::{at, rename};
use crate::v40::Client40;

use common::back::*;
use common::v3::{self, V3};
use common::*;
use landfast_nfs::mount::{MntRes, MountStat};
use landfast_nfs::v3 as nfs3;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::flags::{NOTIFY4_WRITE_DELEGATION, SEQ4_STATUS_RECALLABLE_STATE_REVOKED};
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;
use landfast_nfs::{nfsacl, nfsacl::GetaclArgs};
use landfast_server::exports::{Delegate, Features};
use landfast_volume::Durability;
use landfast_xdr::{Bytes, Decode, Encode};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const OFFERED: Features =
    Features { acls: true, xattrs: true, delegations: Delegate::Off, write_delegations: true };

async fn rig(features: Features) -> Rig {
    rig_of(features, Durability::Log, 90).await
}

async fn rig_of(features: Features, durability: Durability, lease: u32) -> Rig {
    let mut rig = Rig::with(durability, lease).await;
    rig.features = features;
    rig.restart().await;
    rig
}

fn ask(write: bool) -> ArgOp {
    let notifications = if write { Bitmap::of(&[NOTIFY4_WRITE_DELEGATION]) } else { Bitmap::default() };
    ArgOp::GetDirDelegation(GetDirDelegationArgs::new(notifications))
}

/// What was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Got {
    Write(Stateid),
    Ordinary(Stateid),
    Nothing,
}

impl Got {
    fn of(res: &ResOp) -> Got {
        match &res.body {
            ResBody::GetDirDelegation(GetDirDelegationRes::Given(given)) => {
                assert_eq!((given.cookieverf, given.child_attributes), ([0; 8], Bitmap::default()));
                if given.notifications == Bitmap::of(&[NOTIFY4_WRITE_DELEGATION]) {
                    Got::Write(given.stateid)
                } else {
                    assert_eq!(given.notifications, Bitmap::default());
                    Got::Ordinary(given.stateid)
                }
            }
            ResBody::GetDirDelegation(GetDirDelegationRes::Unavailable(false)) => Got::Nothing,
            other => panic!("GET_DIR_DELEGATION gave {other:?}"),
        }
    }

    fn write(self) -> Stateid {
        match self {
            Got::Write(stateid) => stateid,
            other => panic!("it got {other:?}"),
        }
    }
}

async fn get(c: &mut Client, fh: &FileHandle, write: bool) -> Got {
    Got::of(&on(c, fh, ask(write)).await)
}

fn handle_of(res: &ResOp) -> FileHandle {
    match &res.body {
        ResBody::Getfh(fh) => fh.clone(),
        other => panic!("GETFH gave {other:?}"),
    }
}

/// Makes a directory in the root and asks for it in one COMPOUND.
async fn make(c: &mut Client, dir: &str) -> (Got, FileHandle) {
    let res = c.run(vec![ArgOp::Putrootfh, mkdir(dir), ArgOp::Getfh, ask(true)]).await;
    assert_ok(&res);
    (Got::of(&res[3]), handle_of(&res[2]))
}

/// A client to which the server gives write directory delegations.
async fn holder(rig: &Rig) -> (Client, Heard) {
    holder_named(rig, b"holder").await
}

async fn holder_named(rig: &Rig, name: &[u8]) -> (Client, Heard) {
    let (raw, heard) = callable(rig.addr(), Vec::new()).await;
    let mut c = callable_client(raw, name).await;
    tried_out(&mut c).await;
    (c, heard)
}

async fn tried_out(c: &mut Client) {
    let until = Instant::now() + PATIENCE;
    for at in 0.. {
        assert!(Instant::now() < until, "no delegation is given");
        let (got, fh) = make(c, &format!("tried{at}-{:x}", c.id)).await;
        if let Got::Write(stateid) = got {
            return assert_ok(&[on(c, &fh, ArgOp::DelegReturn(stateid)).await]);
        }
    }
}

/// A directory with a file and a directory in it, which `c` has a write delegation of.
async fn delegated(c: &mut Client, dir: &str) -> (Stateid, FileHandle) {
    let (got, fh) = make(c, dir).await;
    let file = open_op(b"o", "f", 3, 0, OpenHow::Create(CreateHow::Unchecked(mode(0o644))));
    let ops = vec![
        ArgOp::Putfh(fh.clone()),
        mkdir("sub"),
        ArgOp::Putfh(fh.clone()),
        file,
        close_op(Stateid { seqid: 1, other: [0; 12] }),
    ];
    assert_ok(&c.run(ops).await);
    (got.write(), fh)
}

/// What the task does once the delegation was recalled and returned.
async fn after_the_return<T: Send + 'static>(
    (c, heard, fh, stateid): (&mut Client, &mut Heard, &FileHandle, Stateid),
    what: &str,
    rival: JoinHandle<T>,
) -> T {
    let recall = recalled(heard).await;
    assert_eq!((recall.stateid, &recall.fh), (stateid, fh), "{what}");
    assert!(!rival.is_finished(), "{what} waits");
    // What the holder sends now is seen by who waits.
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), mkdir("flushed")]).await);
    assert!(!rival.is_finished(), "{what} waits for the return");
    assert_ok(&[on(c, fh, ArgOp::DelegReturn(stateid)).await]);
    timeout(PATIENCE, rival).await.expect("in time").expect("no panic")
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let hex = |bytes: Bytes| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let asked = concat!(
        "0000002e",
        "00000000",
        "0000000180000000",
        "000000000000000000000000",
        "000000000000000000000000"
    );
    assert_eq!(hex(ask(true).to_bytes()), format!("{asked}0000000000000000"));
    let stateid = Stateid { seqid: 1, other: [0xab; 12] };
    let given = DirDelegation {
        cookieverf: [0; 8],
        stateid,
        notifications: Bitmap::of(&[NOTIFY4_WRITE_DELEGATION]),
        child_attributes: Bitmap::default(),
        dir_attributes: Bitmap::default(),
    };
    let body = ResBody::GetDirDelegation(GetDirDelegationRes::Given(given));
    let answer = ResOp::ok(OpNum::GET_DIR_DELEGATION, body).to_bytes();
    let stateid = "00000001abababababababababababab";
    assert_eq!(
        hex(answer),
        format!("0000002e00000000000000000000000000000000{stateid}00000001800000000000000000000000")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn the_bit_is_answered_as_the_export_says() {
    let mut rig = rig(OFFERED).await;
    let (mut c, _heard) = holder(&rig).await;
    let root = c.handle(&[]).await;
    // Without the bit nothing is different.
    assert_eq!(on(&mut c, &root, ask(false)).await.status, NfsStat::NFS4ERR_NOTSUPP);
    let (got, fh) = make(&mut c, "new").await;
    let given = got.write();
    assert_eq!(get(&mut c, &fh, true).await, Got::Nothing, "it has one");
    // RFC 8881 section 16.2.3.1.2: what was given is the current stateid.
    let current = Stateid { seqid: 1, other: [0; 12] };
    let ops = vec![ArgOp::Putrootfh, mkdir("at-once"), ask(true), ArgOp::DelegReturn(current)];
    assert_ok(&c.run(ops).await);
    match c.last(vec![ArgOp::TestStateid(vec![given])]).await.body {
        ResBody::TestStateid(all) => assert_eq!(all, [NfsStat::NFS4_OK]),
        other => panic!("TEST_STATEID gave {other:?}"),
    }
    let stats = rig.server().stats();
    assert_eq!((stats.delegations, stats.write_directory_delegations), (1, 1));
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(given)).await]);
    assert_eq!(on(&mut c, &fh, ArgOp::DelegReturn(given)).await.status, NfsStat::NFS4ERR_BAD_STATEID);
    let file = file(&mut c).await;
    assert_eq!(on(&mut c, &file, ask(true)).await.status, NfsStat::NFS4ERR_NOTDIR);
    // Who may not change the directory has no use for one.
    c.raw.cred = user(1000);
    assert_eq!(get(&mut c, &fh, true).await, Got::Nothing);
    c.raw.cred = user(0);
    // Nobody could be called back.
    let mut other = rig.client(b"other").await;
    assert_eq!(make(&mut other, "of-other").await.0, Got::Nothing);

    rig.features = Features { delegations: Delegate::Write, ..OFFERED };
    rig.restart().await;
    let (mut c, _heard) = holder_named(&rig, b"second").await;
    let (got, fh) = make(&mut c, "both").await;
    let returned = on(&mut c, &fh, ArgOp::DelegReturn(got.write())).await;
    assert_ok(&[returned]);
    assert!(matches!(get(&mut c, &fh, false).await, Got::Ordinary(_)));
    c.raw.cred = user(1000);
    let root = c.handle(&[]).await;
    let Got::Ordinary(of_root) = get(&mut c, &root, true).await else { panic!("it may only read it") };
    assert_ok(&[on(&mut c, &root, ArgOp::DelegReturn(of_root)).await]);

    rig.features = Features { delegations: Delegate::Write, ..Features::default() };
    rig.restart().await;
    let (mut c, _heard) = crate::delegations::holder(&rig, Vec::new()).await;
    assert!(matches!(make(&mut c, "not-offered").await.0, Got::Ordinary(_)));

    rig.features = Features::default();
    rig.restart().await;
    let mut c = rig.client(b"fourth").await;
    let fh = c.handle(&["both"]).await;
    assert_eq!(on(&mut c, &fh, ask(true)).await.status, NfsStat::NFS4ERR_NOTSUPP);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn directories_that_a_compound_makes_are_delegated_in_it_at_no_further_flush() {
    let rig = rig(OFFERED).await;
    let (mut c, _heard) = holder(&rig).await;
    let flushes = || rig.server().volumes()[0].stats().log.expect("a log").batches;
    let before = flushes();
    let made = |n: &str| vec![mkdir(n), ArgOp::Getfh, ask(true)];
    let mut ops = vec![ArgOp::Putrootfh];
    ops.extend(made("a"));
    ops.push(ArgOp::Savefh);
    ops.extend(made("b"));
    ops.push(ArgOp::Restorefh);
    ops.extend(made("c"));
    let res = c.run(ops).await;
    assert_ok(&res);
    assert_eq!(flushes(), before + 1);
    let given: Vec<Stateid> = [3, 7, 11].map(|at| Got::of(&res[at]).write()).into();
    assert!(given[0] != given[1] && given[1] != given[2] && given[0] != given[2]);
    // One that was there is known to the log before the answer.
    std::fs::create_dir(rig.export().join("there")).expect("a directory");
    let there = c.handle(&["there"]).await;
    let before = flushes();
    get(&mut c, &there, true).await.write();
    assert_eq!(flushes(), before + 1);
    assert_eq!(rig.server().stats().delegations_unlogged, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn one_that_was_there_is_given_to_who_is_alone_in_it() {
    let rig = rig(Features { delegations: Delegate::Read, ..OFFERED }).await;
    let (mut c, mut heard) = holder(&rig).await;
    for dir in ["alone", "looked", "upgraded", "seen", "shared"] {
        std::fs::create_dir(rig.export().join(dir)).expect("a directory");
    }
    let mut rival = rig.client(b"rival").await;
    let alone = c.handle(&["alone"]).await;
    // Its own looks do not count.
    assert_ok(&[on(&mut c, &alone, readdir_op(0, 4096, 4096, &[n::SIZE])).await]);
    let given = get(&mut c, &alone, true).await.write();
    // Whoever has looked into it in the last seconds would come again.
    let looked = rival.handle(&["looked"]).await;
    assert_ok(&[on(&mut rival, &looked, ArgOp::Access(1)).await]);
    let Got::Ordinary(ordinary) = get(&mut c, &looked, true).await else { panic!("not an ordinary one") };
    assert_eq!(get(&mut c, &looked, true).await, Got::Nothing, "it stays what it is");
    assert_ok(&[on(&mut c, &looked, ArgOp::DelegReturn(ordinary)).await]);
    let seen = v3::V3::new(&rig).await;
    let seen = seen.lookup(&seen.root, "seen").await.object;
    let fh = FileHandle(seen.0.clone());
    assert!(matches!(get(&mut c, &fh, true).await, Got::Ordinary(_)), "NFSv3 has looked at it");
    // An ordinary one becomes one for writing, under the same stateid.
    let upgraded = c.handle(&["upgraded"]).await;
    let Got::Ordinary(ordinary) = get(&mut c, &upgraded, false).await else { panic!("not an ordinary one") };
    assert_eq!(get(&mut c, &upgraded, true).await, Got::Write(ordinary));
    assert_eq!(rig.server().stats().write_directory_delegations, 2);
    // Not beside another client's.
    let (raw, _heard) = callable(rig.addr(), Vec::new()).await;
    let mut other = callable_client(raw, b"another").await;
    let shared = other.handle(&["shared"]).await;
    let until = Instant::now() + PATIENCE;
    while get(&mut other, &shared, false).await == Got::Nothing {
        assert!(Instant::now() < until, "no delegation is given");
    }
    assert!(matches!(get(&mut c, &shared, true).await, Got::Ordinary(_)));
    assert!(heard.try_recv().is_err(), "nothing was recalled");
    // It was fought over just now.
    let waits = tokio::spawn(async move { on(&mut rival, &alone, ArgOp::Access(1)).await.status });
    let alone = c.handle(&["alone"]).await;
    let status = after_the_return((&mut c, &mut heard, &alone, given), "ACCESS", waits).await;
    assert_eq!(status, NfsStat::NFS4_OK);
    assert_eq!(get(&mut c, &alone, true).await, Got::Nothing);
    // An upgraded one is recalled as any.
    let mut rival = rig.client(b"rival again").await;
    let fh = upgraded.clone();
    let waits = tokio::spawn(async move { on(&mut rival, &fh, ArgOp::Lookup(name("f"))).await.status });
    let status = after_the_return((&mut c, &mut heard, &upgraded, ordinary), "LOOKUP", waits).await;
    assert_eq!(status, NfsStat::NFS4ERR_NOENT);
    assert_eq!(rig.server().stats().write_directory_delegations, 0);
}

/// A client with a back channel on this connection.
async fn callable_client(raw: Raw, name: &[u8]) -> Client {
    let ex = raw.exchange_id(name, 1).await;
    let mut args = session_args(ex.clientid, ex.sequenceid);
    args.flags |= flags::CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
    let s = raw.create_session(args).await;
    let (session, flags, fore) = (s.sessionid, s.flags, s.fore_chan_attrs);
    let mut c = Client { raw, id: ex.clientid, session, seq: 0, cachethis: true, flags, fore };
    assert_ok(&c.run(vec![ArgOp::ReclaimComplete(false)]).await);
    c
}

fn unchecked() -> OpenHow {
    OpenHow::Create(CreateHow::Unchecked(mode(0o644)))
}

fn setxattr() -> ArgOp {
    ArgOp::Setxattr(SetxattrArgs { option: SetxattrOption::Either, key: name("k"), value: name("v") })
}

/// What somebody else does: to the directory of this handle and name, and what comes of it.
type Rival = (&'static str, fn(FileHandle, &str) -> Vec<ArgOp>, NfsStat);

use NfsStat as S;

const RIVALS: [Rival; 31] = [
    ("LOOKUP", |fh, _| at(fh, ArgOp::Lookup(name("f"))), S::NFS4_OK),
    ("LOOKUP of nothing", |fh, _| at(fh, ArgOp::Lookup(name("flushed"))), S::NFS4_OK),
    (
        "a walk through it",
        |_, dir| vec![ArgOp::Putrootfh, ArgOp::Lookup(name(dir)), ArgOp::Lookup(name("sub")), ArgOp::Getfh],
        S::NFS4_OK,
    ),
    ("SECINFO", |fh, _| at(fh, ArgOp::Secinfo(name("f"))), S::NFS4_OK),
    ("OPEN", |fh, _| at(fh, open_op(b"rival", "f", 1, 0, OpenHow::NoCreate)), S::NFS4_OK),
    ("OPEN, unchecked", |fh, _| at(fh, open_op(b"rival", "f", 3, 0, unchecked())), S::NFS4_OK),
    (
        "OPEN, guarded",
        |fh, _| at(fh, open_op(b"rival", "made", 3, 0, OpenHow::Create(CreateHow::Guarded(mode(0o644))))),
        S::NFS4_OK,
    ),
    (
        "OPEN, exclusive",
        |fh, _| {
            let attrs = mode(0o644);
            let how = CreateHow::Exclusive41 { verf: [7; 8], attrs };
            at(fh, open_op(b"rival", "made", 3, 0, OpenHow::Create(how)))
        },
        S::NFS4_OK,
    ),
    ("READDIR", |fh, _| at(fh, readdir_op(0, 4096, 4096, &[])), S::NFS4_OK),
    ("CREATE", |fh, _| at(fh, mkdir("made")), S::NFS4_OK),
    ("CREATE of what was made meanwhile", |fh, _| at(fh, mkdir("flushed")), S::NFS4ERR_EXIST),
    (
        "LINK",
        |fh, _| {
            let outside = [ArgOp::Putrootfh, ArgOp::Lookup(name("outside")), ArgOp::Savefh];
            outside.into_iter().chain(at(fh, ArgOp::Link(name("l")))).collect()
        },
        S::NFS4_OK,
    ),
    ("REMOVE", |fh, _| at(fh, ArgOp::Remove(name("f"))), S::NFS4_OK),
    ("REMOVE of a directory in it", |fh, _| at(fh, ArgOp::Remove(name("sub"))), S::NFS4_OK),
    ("REMOVE of it", |_, dir| vec![ArgOp::Putrootfh, ArgOp::Remove(name(dir))], S::NFS4ERR_NOTEMPTY),
    ("RENAME from", |fh, _| rename(Some(fh), "f", None, "moved"), S::NFS4_OK),
    ("RENAME to", |fh, _| rename(None, "outside", Some(fh), "moved"), S::NFS4_OK),
    ("RENAME in it", |fh, _| rename(Some(fh.clone()), "f", Some(fh), "g"), S::NFS4_OK),
    ("RENAME of it", |_, dir| rename(None, dir, None, &format!("{dir}-moved")), S::NFS4_OK),
    ("GETATTR of its change", |fh, _| at(fh, ArgOp::Getattr(Bitmap::of(&[n::CHANGE]))), S::NFS4_OK),
    ("GETATTR of its mode", |fh, _| at(fh, ArgOp::Getattr(Bitmap::of(&[n::MODE]))), S::NFS4_OK),
    ("VERIFY", |fh, _| at(fh, ArgOp::Verify(mode(0o755))), S::NFS4_OK),
    ("NVERIFY", |fh, _| at(fh, ArgOp::Nverify(mode(0o711))), S::NFS4_OK),
    ("ACCESS", |fh, _| at(fh, ArgOp::Access(1)), S::NFS4_OK),
    (
        "SETATTR",
        |fh, _| at(fh, ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: mode(0o711) })),
        S::NFS4_OK,
    ),
    ("SETXATTR", |fh, _| at(fh, setxattr()), S::NFS4_OK),
    ("GETXATTR", |fh, _| at(fh, ArgOp::Getxattr(name("k"))), S::NFS4ERR_NOXATTR),
    (
        "LISTXATTRS",
        |fh, _| at(fh, ArgOp::Listxattrs(ListxattrsArgs { cookie: 0, maxcount: 4096 })),
        S::NFS4_OK,
    ),
    ("REMOVEXATTR", |fh, _| at(fh, ArgOp::Removexattr(name("k"))), S::NFS4ERR_NOXATTR),
    (
        "READDIR beside it, with times",
        |_, _| vec![ArgOp::Putrootfh, readdir_op(0, 1 << 16, 1 << 16, &[n::TIME_MODIFY])],
        S::NFS4_OK,
    ),
    (
        "READDIR beside it, with modes",
        |_, _| vec![ArgOp::Putrootfh, readdir_op(0, 1 << 16, 1 << 16, &[n::MODE])],
        S::NFS4_OK,
    ),
];

/// Requests of others that need no name and no attribute of the directory.
fn harmless(fh: &FileHandle, file: &FileHandle, sub: &FileHandle) -> Vec<Vec<ArgOp>> {
    vec![
        at(fh.clone(), ArgOp::Getattr(Bitmap::of(&[n::TYPE, n::FSID, n::FILEID, n::LEASE_TIME]))),
        vec![ArgOp::Putfh(fh.clone()), ArgOp::Lookupp, ArgOp::Getattr(Bitmap::of(&[n::CHANGE]))],
        vec![ArgOp::Putfh(sub.clone()), ArgOp::Lookupp, ArgOp::Getfh],
        at(sub.clone(), readdir_op(0, 4096, 4096, &[n::SIZE])),
        at(file.clone(), read_op(Stateid::ANONYMOUS, 0, 9)),
        at(file.clone(), ArgOp::Getattr(Bitmap::of(&[n::CHANGE, n::SIZE]))),
        vec![ArgOp::Putrootfh, readdir_op(0, 1 << 16, 1 << 16, &[n::TYPE, n::FILEID])],
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn each_request_of_others_on_its_names_and_attributes_waits_until_it_is_back() {
    let rig = rig(OFFERED).await;
    let (mut c, mut heard) = holder(&rig).await;
    let mut rival = rig.client(b"rival").await;
    for (at, (what, ops, becomes)) in RIVALS.into_iter().enumerate() {
        std::fs::write(rig.export().join("outside"), b"").expect("a file");
        let dir = format!("d{at}");
        let (stateid, fh) = delegated(&mut c, &dir).await;
        if at == 0 {
            let (file, sub) = (c.handle(&[&dir, "f"]).await, c.handle(&[&dir, "sub"]).await);
            for ops in harmless(&fh, &file, &sub) {
                assert_ok(&rival.run(ops).await);
            }
            assert_eq!(get(&mut rival, &fh, true).await, Got::Nothing);
        }
        assert!(heard.try_recv().is_err(), "nothing was recalled yet");
        let (ops, mut by) = (ops(fh.clone(), &dir), rival.clone());
        let task = tokio::spawn(async move {
            let status = by.status(ops).await;
            (by, status)
        });
        let holds = (&mut c, &mut heard, &fh, stateid);
        let (by, status) = after_the_return(holds, what, task).await;
        assert_eq!(status, becomes, "{what}");
        rival = by;
    }
    let counts = rig.server().stats().delegation_counts;
    assert_eq!((counts.recalled, counts.revoked), (RIVALS.len() as u64, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn its_holder_is_never_in_its_own_way() {
    let rig = rig(OFFERED).await;
    let (mut c, mut heard) = holder(&rig).await;
    for (at, (what, ops, becomes)) in RIVALS.into_iter().enumerate() {
        std::fs::write(rig.export().join("outside"), b"").expect("a file");
        let dir = format!("d{at}");
        let (_, fh) = delegated(&mut c, &dir).await;
        assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), mkdir("flushed")]).await);
        assert_eq!(c.status(ops(fh, &dir)).await, becomes, "{what}");
    }
    assert!(heard.try_recv().is_err(), "nothing was recalled");
    assert_eq!(rig.server().stats().write_directory_delegations, RIVALS.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_request_of_nfsv40_comes_again_when_it_is_back() {
    let rig = rig(OFFERED).await;
    let (mut c, mut heard) = holder(&rig).await;
    let mut rival = Client40::new(&rig, b"rival").await;
    let root = c.handle(&[]).await;
    rival.open("its-own", 1, 0).await;
    for (at, what) in ["LOOKUP", "GETATTR", "OPEN", "REMOVE", "READDIR", "ACCESS"].into_iter().enumerate() {
        let (stateid, fh) = delegated(&mut c, &format!("d{at}")).await;
        let op = |rival: &mut Client40| match what {
            "LOOKUP" => ArgOp::Lookup(name("flushed")),
            "GETATTR" => ArgOp::Getattr(Bitmap::of(&[n::TIME_METADATA])),
            "OPEN" => {
                let seqid = rival.next();
                rival.open_with(seqid, 1, 0, OpenHow::NoCreate, "f")
            }
            "REMOVE" => ArgOp::Remove(name("flushed")),
            "READDIR" => readdir_op(0, 4096, 4096, &[]),
            _ => ArgOp::Access(1),
        };
        let ask = op(&mut rival);
        assert_eq!(rival.on(&fh, ask).await.status, NfsStat::NFS4ERR_DELAY, "{what}");
        let recall = recalled(&mut heard).await;
        assert_eq!((recall.stateid, &recall.fh), (stateid, &fh));
        assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), mkdir("flushed")]).await);
        assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
        let ask = op(&mut rival);
        assert_eq!(rival.on(&fh, ask).await.status, NfsStat::NFS4_OK, "{what}");
        assert_eq!(rival.on(&root, ArgOp::Lookup(name("d0"))).await.status, NfsStat::NFS4_OK);
    }
}

/// What an NFSv3 client does to the directory of this handle and name, and with a file outside; what comes of it.
type Rival3 =
    (&'static str, fn(&nfs3::FileHandle, &nfs3::FileHandle, &V3, &str) -> nfs3::Call, nfs3::NfsStat3);

fn rivals_of_nfsv3() -> Vec<Rival3> {
    use nfs3::Call;
    use nfs3::NfsStat3 as S;
    use nfs3::args::*;
    vec![
        ("GETATTR", |dir, _, _, _| Call::Getattr(dir.clone()), S::OK),
        ("SETATTR", |dir, _, _, _| v3::setattr(dir, v3::mode(0o711)), S::OK),
        ("ACCESS", |dir, _, _, _| Call::Access(AccessArgs { object: dir.clone(), access: 1 }), S::OK),
        ("LOOKUP", |dir, _, _, _| Call::Lookup(v3::at(dir, "flushed")), S::OK),
        ("LOOKUP of it", |_, _, c, n| Call::Lookup(v3::at(&c.root, n)), S::OK),
        ("READLINK", |dir, _, _, _| Call::Readlink(dir.clone()), S::INVAL),
        ("READ", |dir, _, _, _| Call::Read(ReadArgs { file: dir.clone(), offset: 0, count: 1 }), S::ISDIR),
        (
            "READDIR",
            |dir, _, _, _| {
                Call::Readdir(ReaddirArgs { dir: dir.clone(), cookie: 0, cookieverf: [0; 8], count: 4096 })
            },
            S::OK,
        ),
        ("READDIRPLUS", |dir, _, _, _| plus(dir), S::OK),
        ("READDIRPLUS beside it", |_, _, c, _| plus(&c.root), S::OK),
        ("FSSTAT", |dir, _, _, _| Call::Fsstat(dir.clone()), S::OK),
        ("FSINFO", |dir, _, _, _| Call::Fsinfo(dir.clone()), S::OK),
        ("PATHCONF", |dir, _, _, _| Call::Pathconf(dir.clone()), S::OK),
        ("CREATE", |dir, _, _, _| v3::create(dir, "made", CreateHow::Unchecked(v3::mode(0o644))), S::OK),
        (
            "MKDIR",
            |dir, _, _, _| Call::Mkdir(MkdirArgs { at: v3::at(dir, "flushed"), attrs: v3::mode(0o755) }),
            S::EXIST,
        ),
        (
            "SYMLINK",
            |dir, _, _, _| {
                let (attrs, target) = (v3::mode(0o777), v3::name("f"));
                Call::Symlink(SymlinkArgs { at: v3::at(dir, "made"), attrs, target })
            },
            S::OK,
        ),
        (
            "MKNOD",
            |dir, _, _, _| {
                Call::Mknod(MknodArgs { at: v3::at(dir, "made"), what: MknodWhat::Fifo(v3::mode(0o644)) })
            },
            S::OK,
        ),
        (
            "LINK",
            |dir, outside, _, _| Call::Link(LinkArgs { file: outside.clone(), link: v3::at(dir, "made") }),
            S::OK,
        ),
        ("REMOVE", |dir, _, _, _| Call::Remove(v3::at(dir, "f")), S::OK),
        ("RMDIR", |dir, _, _, _| Call::Rmdir(v3::at(dir, "sub")), S::OK),
        ("RMDIR of it", |_, _, c, n| Call::Rmdir(v3::at(&c.root, n)), S::NOTEMPTY),
        (
            "RENAME from",
            |dir, _, c, _| Call::Rename(RenameArgs { from: v3::at(dir, "f"), to: v3::at(&c.root, "moved3") }),
            S::OK,
        ),
        (
            "RENAME to",
            |dir, _, c, _| {
                Call::Rename(RenameArgs { from: v3::at(&c.root, "outside"), to: v3::at(dir, "moved") })
            },
            S::OK,
        ),
        (
            "COMMIT",
            |dir, _, _, _| Call::Commit(CommitArgs { file: dir.clone(), offset: 0, count: 0 }),
            S::ISDIR,
        ),
    ]
}

fn plus(dir: &nfs3::FileHandle) -> nfs3::Call {
    nfs3::Call::Readdirplus(nfs3::args::ReaddirplusArgs {
        dir: dir.clone(),
        cookie: 0,
        cookieverf: [0; 8],
        dircount: 1 << 16,
        maxcount: 1 << 16,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_call_of_nfsv3_waits_until_it_is_back() {
    let rig = rig(OFFERED).await;
    let (mut c, mut heard) = holder(&rig).await;
    let rival = V3::new(&rig).await;
    for (at, (what, call, becomes)) in rivals_of_nfsv3().into_iter().enumerate() {
        std::fs::write(rig.export().join("outside"), b"").expect("a file");
        let outside = rival.lookup(&rival.root, "outside").await.object;
        let name = format!("d{at}");
        let (stateid, fh) = delegated(&mut c, &name).await;
        assert!(heard.try_recv().is_err(), "nothing was recalled yet");
        let call = call(&nfs3::FileHandle(fh.0.clone()), &outside, &rival, &name);
        let by = rival.clone();
        let task = tokio::spawn(async move { by.status(call).await });
        let status = after_the_return((&mut c, &mut heard, &fh, stateid), what, task).await;
        assert_eq!(status, becomes, "{what}");
    }
    // `..` in a directory below it.
    let (stateid, fh) = delegated(&mut c, "above").await;
    let sub = nfs3::FileHandle(c.handle(&["above", "sub"]).await.0);
    let by = rival.clone();
    let task = tokio::spawn(async move { by.status(nfs3::Call::Lookup(v3::at(&sub, ".."))).await });
    let status = after_the_return((&mut c, &mut heard, &fh, stateid), "LOOKUP of ..", task).await;
    assert_eq!(status, nfs3::NfsStat3::OK);
    // NFSACL.
    let (stateid, fh) = delegated(&mut c, "acl").await;
    let body = GetaclArgs { object: nfs3::FileHandle(fh.0.clone()), mask: nfsacl::mask::ACL }.to_bytes();
    let by = rival.clone();
    let getacl =
        async move { by.program(nfsacl::PROGRAM, nfsacl::VERSION, nfsacl::proc::GETACL, body).await };
    let answer = after_the_return((&mut c, &mut heard, &fh, stateid), "GETACL", tokio::spawn(getacl)).await;
    let status = nfs3::NfsStat3::from_bytes(answer.expect("an answer").slice(..4));
    assert_eq!(status, Ok(nfs3::NfsStat3::OK));
    // MOUNT walks through it.
    let (stateid, fh) = delegated(&mut c, "walked").await;
    let path = |n: &str| [rig.export().as_os_str().as_encoded_bytes(), n.as_bytes()].concat();
    let (by, walk) = (rival.clone(), path("/walked/flushed"));
    let task = tokio::spawn(async move { matches!(by.mnt(&walk).await, MntRes::Ok(_)) });
    assert!(after_the_return((&mut c, &mut heard, &fh, stateid), "MNT", task).await);
    // One that does not come back: everybody is told to come later.
    let (stateid, fh) = delegated(&mut c, "kept").await;
    let (began, below) = (Instant::now(), path("/kept/sub"));
    let (status, mounted) =
        tokio::join!(rival.status(nfs3::Call::Getattr(nfs3::FileHandle(fh.0.clone()))), rival.mnt(&below),);
    assert_eq!(status, nfs3::NfsStat3::JUKEBOX);
    assert!(matches!(mounted, MntRes::Fail(MountStat::SERVERFAULT)));
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn session_and_delegation_go_on_after_a_crash_and_after_a_stop() {
    let mut rig = rig(OFFERED).await;
    let (mut c, _heard) = holder(&rig).await;
    let (stateid, fh) = delegated(&mut c, "made").await;
    std::fs::create_dir(rig.export().join("there")).expect("a directory");
    let there = c.handle(&["there"]).await;
    let of_there = get(&mut c, &there, true).await.write();
    for crashes in [true, false] {
        let restored = if crashes { rig.crash().await } else { rig.restart().await };
        assert_eq!((restored.sessions, restored.reclaiming), (1, 0));
        assert_eq!(rig.server().stats().write_directory_delegations, 2);
        c.raw = callable(rig.addr(), Vec::new()).await.0;
        match c.last(vec![ArgOp::TestStateid(vec![stateid, of_there])]).await.body {
            ResBody::TestStateid(all) => assert_eq!(all, [NfsStat::NFS4_OK; 2]),
            other => panic!("TEST_STATEID gave {other:?}"),
        }
        assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), mkdir(&format!("after-{crashes}"))]).await);
    }
    // Nobody else goes on before it is back.
    let mut rival = rig.client(b"rival").await;
    let dir = fh.clone();
    let task = tokio::spawn(async move { on(&mut rival, &dir, ArgOp::Lookup(name("late"))).await.status });
    let until = Instant::now() + PATIENCE;
    while rig.server().stats().delegation_counts.recalled == 0 {
        assert!(Instant::now() < until && !task.is_finished());
        tokio::task::yield_now().await;
    }
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), mkdir("late")]).await);
    assert!(!task.is_finished());
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
    assert_eq!(timeout(PATIENCE, task).await.expect("in time").expect("no panic"), NfsStat::NFS4_OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn without_a_log_it_is_given_and_ends_with_the_server() {
    let mut rig = rig_of(OFFERED, Durability::Sync, 90).await;
    let (mut c, mut heard) = holder(&rig).await;
    let (stateid, fh) = delegated(&mut c, "d").await;
    let (mut rival, dir) = (rig.client(b"rival").await, fh.clone());
    let task = tokio::spawn(async move { on(&mut rival, &dir, ArgOp::Lookup(name("flushed"))).await.status });
    let status = after_the_return((&mut c, &mut heard, &fh, stateid), "LOOKUP", task).await;
    assert_eq!(status, NfsStat::NFS4_OK);
    delegated(&mut c, "other").await;
    rig.restart().await;
    assert_eq!(rig.server().stats().delegations, 0);
    c.raw = Raw { minor: 2, ..rig.raw().await };
    assert_eq!(c.sequence_status().await, NfsStat::NFS4ERR_BADSESSION);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn one_that_does_not_come_back_is_revoked_for_good() {
    let mut rig = rig_of(OFFERED, Durability::Log, 1).await;
    let (mut c, mut heard) = holder(&rig).await;
    let (stateid, fh) = delegated(&mut c, "d").await;
    let mut rival = rig.client(b"rival").await;
    let (dir, until) = (fh.clone(), Instant::now() + PATIENCE);
    let task = tokio::spawn(async move {
        while on(&mut rival, &dir, ArgOp::Remove(name("f"))).await.status != NfsStat::NFS4_OK {
            assert!(Instant::now() < until);
        }
    });
    recalled(&mut heard).await;
    // It renews its lease, but returns nothing.
    while !task.is_finished() {
        c.status_flags().await;
    }
    task.await.expect("no panic");
    assert!(!rig.export().join("d/f").exists());
    for crashed in [false, true] {
        if crashed {
            rig.crash().await;
            c.raw = Raw { minor: 2, ..rig.raw().await };
        }
        let revoked = SEQ4_STATUS_RECALLABLE_STATE_REVOKED;
        assert_eq!(c.status_flags().await & revoked, revoked);
        match c.last(vec![ArgOp::TestStateid(vec![stateid])]).await.body {
            ResBody::TestStateid(all) => assert_eq!(all, [NfsStat::NFS4ERR_DELEG_REVOKED]),
            other => panic!("TEST_STATEID gave {other:?}"),
        }
    }
    let returned = on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await.status;
    assert_eq!(returned, NfsStat::NFS4ERR_DELEG_REVOKED);
    assert_eq!(c.status(vec![ArgOp::FreeStateid(stateid)]).await, NfsStat::NFS4_OK);
    assert_eq!(c.status_flags().await & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_holder_that_is_gone_is_waited_for_a_lease_and_no_longer() {
    let mut rig = rig_of(OFFERED, Durability::Log, 1).await;
    let (mut c, _heard) = holder(&rig).await;
    let (_, fh) = delegated(&mut c, "d").await;
    let rival = V3::new(&rig).await;
    let dir = nfs3::FileHandle(fh.0.clone());
    let until = Instant::now() + PATIENCE;
    while rival.status(nfs3::Call::Remove(v3::at(&dir, "f"))).await == nfs3::NfsStat3::JUKEBOX {
        assert!(Instant::now() < until);
    }
    assert!(!rig.export().join("d/f").exists());
    assert_eq!(rig.server().stats().delegations, 0);
    rig.crash().await;
    assert_eq!(rig.server().stats().delegations, 0, "it does not come back");
    // The same owner with another verifier has none of it.
    let (mut c, _heard) = holder_named(&rig, b"again").await;
    delegated(&mut c, "e").await;
    Client::without_reclaim(rig.raw().await, b"again", 2).await;
    assert_eq!(rig.server().stats().delegations, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn it_ends_with_its_directory_and_goes_along_with_it() {
    let rig = rig(OFFERED).await;
    let (mut c, mut heard) = holder(&rig).await;
    let live = || rig.server().stats().write_directory_delegations;
    let (got, _) = make(&mut c, "removed").await;
    got.write();
    assert_ok(&c.run(vec![ArgOp::Putrootfh, ArgOp::Remove(name("removed"))]).await);
    assert_eq!(live(), 0);
    let (stateid, moved) = delegated(&mut c, "moved").await;
    assert_ok(&c.run(rename(None, "moved", None, "moved2")).await);
    assert_eq!(live(), 1);
    let (mut rival, dir) = (rig.client(b"rival").await, moved.clone());
    let task = tokio::spawn(async move { on(&mut rival, &dir, ArgOp::Lookup(name("f"))).await.status });
    let status = after_the_return((&mut c, &mut heard, &moved, stateid), "LOOKUP", task).await;
    assert_eq!((status, live()), (NfsStat::NFS4_OK, 0));
}
