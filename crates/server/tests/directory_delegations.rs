//! Delegations of directories (RFC 8881 sections 10.9 and 18.39), over real sockets: who gets one, and that each change of names or
//! attributes by others recalls it first.

use crate::common;
use crate::delegations::{Heard, holder, recalled, rig};

use common::back::*;
use common::v3::{self, V3};
use common::*;
use landfast_nfs::v3 as nfs3;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;
use landfast_server::exports::{Delegate, Features};
use std::time::Instant;
use tokio::time::timeout;

fn ask() -> ArgOp {
    ArgOp::GetDirDelegation(GetDirDelegationArgs::new(Bitmap::default()))
}

/// A directory in the root with a file and a directory in it, delegated to `c`.
async fn delegated(c: &mut Client, dir: &str) -> (Stateid, FileHandle) {
    let file = open_op(b"o", "f", 3, 0, OpenHow::Create(CreateHow::Unchecked(mode(0o644))));
    let res = c
        .run(vec![
            ArgOp::Putrootfh,
            mkdir(dir),
            ArgOp::Getfh,
            ArgOp::Savefh,
            mkdir("sub"),
            ArgOp::Restorefh,
            file,
            close_op(Stateid { seqid: 1, other: [0; 12] }),
        ])
        .await;
    assert_ok(&res);
    let ResBody::Getfh(fh) = &res[2].body else { panic!("GETFH gave {res:?}") };
    (get(c, fh).await.expect("a delegation"), fh.clone())
}

async fn get(c: &mut Client, fh: &FileHandle) -> Option<Stateid> {
    match on(c, fh, ask()).await.body {
        ResBody::GetDirDelegation(GetDirDelegationRes::Given(given)) => {
            assert_eq!(given.notifications, Bitmap::default());
            Some(given.stateid)
        }
        ResBody::GetDirDelegation(GetDirDelegationRes::Unavailable(signal)) => {
            assert!(!signal);
            None
        }
        other => panic!("GET_DIR_DELEGATION gave {other:?}"),
    }
}

/// What somebody else does to a directory.
type Rival = (&'static str, fn(FileHandle) -> Vec<ArgOp>);

pub fn at(fh: FileHandle, op: ArgOp) -> Vec<ArgOp> {
    vec![ArgOp::Putfh(fh), op]
}

/// RENAME from the first directory to the second; without one it is the root.
pub fn rename(from: Option<FileHandle>, oldname: &str, to: Option<FileHandle>, newname: &str) -> Vec<ArgOp> {
    let go = |fh: Option<FileHandle>| fh.map_or(ArgOp::Putrootfh, ArgOp::Putfh);
    let names = RenameArgs { oldname: name(oldname), newname: name(newname) };
    vec![go(from), ArgOp::Savefh, go(to), ArgOp::Rename(names)]
}

const RIVALS: [Rival; 9] = [
    ("CREATE", |fh| at(fh, mkdir("made"))),
    ("OPEN", |fh| {
        let how = OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
        at(fh, open_op(b"rival", "made", 3, 0, how))
    }),
    ("OPEN, guarded", |fh| {
        let how = OpenHow::Create(CreateHow::Guarded(mode(0o644)));
        at(fh, open_op(b"rival", "made", 3, 0, how))
    }),
    ("LINK", |fh| {
        vec![
            ArgOp::Putrootfh,
            ArgOp::Lookup(name("outside")),
            ArgOp::Savefh,
            ArgOp::Putfh(fh),
            ArgOp::Link(name("l")),
        ]
    }),
    ("REMOVE", |fh| at(fh, ArgOp::Remove(name("f")))),
    ("REMOVE of a directory", |fh| at(fh, ArgOp::Remove(name("sub")))),
    ("RENAME from", |fh| rename(Some(fh), "f", None, "moved")),
    ("RENAME to", |fh| rename(None, "outside", Some(fh), "moved")),
    ("SETATTR", |fh| {
        let attrs = mode(0o711);
        at(fh, ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs }))
    }),
];

/// Reads of others, and an OPEN that makes nothing.
fn harmless(fh: &FileHandle) -> Vec<Vec<ArgOp>> {
    vec![
        at(fh.clone(), ArgOp::Getattr(Bitmap::of(&[n::CHANGE, n::TIME_MODIFY]))),
        at(fh.clone(), readdir_op(0, 4096, 4096, &[n::SIZE])),
        at(fh.clone(), ArgOp::Lookup(name("f"))),
        at(fh.clone(), open_op(b"rival", "f", 3, 0, OpenHow::Create(CreateHow::Unchecked(mode(0o644))))),
    ]
}

/// What the task does once the delegation was recalled and returned.
async fn after_the_return<T: Send + 'static>(
    (c, heard, fh, stateid): (&mut Client, &mut Heard, &FileHandle, Stateid),
    what: &str,
    rival: tokio::task::JoinHandle<T>,
) -> T {
    let recall = recalled(heard).await;
    assert_eq!((recall.stateid, &recall.fh), (stateid, fh), "{what}");
    assert!(!rival.is_finished(), "{what} waits");
    assert_ok(&[on(c, fh, ArgOp::DelegReturn(stateid)).await]);
    timeout(PATIENCE, rival).await.expect("in time").expect("no panic")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_9_each_change_of_a_directory_by_others_waits_until_its_delegation_is_back() {
    let rig = rig(Delegate::Read).await;
    let (mut c, mut heard) = holder_of_directories(&rig).await;
    for (at, (what, ops)) in RIVALS.into_iter().enumerate() {
        std::fs::write(rig.export().join("outside"), b"").expect("a file");
        let (stateid, fh) = delegated(&mut c, &format!("d{at}")).await;
        let mut rival = rig.client(format!("rival{at}").as_bytes()).await;
        for ops in harmless(&fh) {
            assert_ok(&rival.run(ops).await);
        }
        // The holder itself may change it.
        assert_ok(
            &c.run(vec![
                ArgOp::Putfh(fh.clone()),
                mkdir("own"),
                ArgOp::Putfh(fh.clone()),
                ArgOp::Remove(name("own")),
            ])
            .await,
        );
        assert!(heard.try_recv().is_err(), "nothing was recalled yet");
        let ops = ops(fh.clone());
        let rival = tokio::spawn(async move { rival.run(ops).await });
        assert_ok(&after_the_return((&mut c, &mut heard, &fh, stateid), what, rival).await);
        assert_eq!(get(&mut c, &fh).await, None, "{what}: it was fought over just now");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc1813_a_change_by_nfsv3_recalls_it_too() {
    use nfs3::args::{CreateHow, LinkArgs, MkdirArgs, MknodArgs, MknodWhat, RenameArgs, SymlinkArgs};
    let rig = rig(Delegate::Read).await;
    let (mut c, mut heard) = holder_of_directories(&rig).await;
    type Rival = (&'static str, fn(&nfs3::FileHandle, &nfs3::FileHandle) -> nfs3::Call);
    let rivals: [Rival; 9] = [
        ("CREATE", |dir, _| v3::create(dir, "made", CreateHow::Unchecked(v3::mode(0o644)))),
        ("MKDIR", |dir, _| nfs3::Call::Mkdir(MkdirArgs { at: v3::at(dir, "made"), attrs: v3::mode(0o755) })),
        ("SYMLINK", |dir, _| {
            let (attrs, target) = (v3::mode(0o777), v3::name("f"));
            nfs3::Call::Symlink(SymlinkArgs { at: v3::at(dir, "made"), attrs, target })
        }),
        ("MKNOD", |dir, _| {
            nfs3::Call::Mknod(MknodArgs { at: v3::at(dir, "made"), what: MknodWhat::Fifo(v3::mode(0o644)) })
        }),
        ("LINK", |dir, outside| {
            nfs3::Call::Link(LinkArgs { file: outside.clone(), link: v3::at(dir, "made") })
        }),
        ("REMOVE", |dir, _| nfs3::Call::Remove(v3::at(dir, "f"))),
        ("RMDIR", |dir, _| nfs3::Call::Rmdir(v3::at(dir, "sub"))),
        ("RENAME", |dir, _| {
            nfs3::Call::Rename(RenameArgs { from: v3::at(dir, "f"), to: v3::at(dir, "moved") })
        }),
        ("SETATTR", |dir, _| v3::setattr(dir, v3::mode(0o711))),
    ];
    for (at, (what, call)) in rivals.into_iter().enumerate() {
        let (stateid, fh) = delegated(&mut c, &format!("d{at}")).await;
        let rival = V3::new(&rig).await;
        let outside = rival.file(&format!("outside{at}")).await;
        let dir = nfs3::FileHandle(fh.0.clone());
        rival.readdir(&dir, 0, 4096).await;
        assert!(heard.try_recv().is_err(), "nothing was recalled yet");
        let call = call(&dir, &outside);
        let rival = tokio::spawn(async move { rival.status(call).await });
        let status = after_the_return((&mut c, &mut heard, &fh, stateid), what, rival).await;
        assert_eq!(status, nfs3::NfsStat3::OK, "{what}");
    }
}

/// A client to which the server gives delegations.
async fn holder_of_directories(rig: &Rig) -> (Client, Heard) {
    let (mut c, heard) = with_back_channel(rig, Vec::new()).await;
    let until = Instant::now() + PATIENCE;
    let root = c.handle(&[]).await;
    loop {
        assert!(Instant::now() < until, "no delegation is given");
        if let Some(stateid) = get(&mut c, &root).await {
            assert_ok(&[on(&mut c, &root, ArgOp::DelegReturn(stateid)).await]);
            return (c, heard);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_39_who_is_given_one_and_who_is_not() {
    let mut rig = rig(Delegate::Write).await;
    let (mut c, mut heard) = holder(&rig, Vec::new()).await;
    let (stateid, fh) = delegated(&mut c, "d").await;
    assert_eq!(get(&mut c, &fh).await, None, "it has one");
    // Section 16.2.3.1.2: what was given is the current stateid.
    assert_ok(
        &c.run(vec![ArgOp::Putrootfh, ask(), ArgOp::DelegReturn(Stateid { seqid: 1, other: [0; 12] })]).await,
    );
    let file = c.handle(&["d", "f"]).await;
    assert_eq!(on(&mut c, &file, ask()).await.status, NfsStat::NFS4ERR_NOTDIR);
    // Without a back channel nothing could be recalled.
    let mut other = rig.client(b"other").await;
    assert_eq!(get(&mut other, &fh).await, None);
    // Nobody is told of what he may not read.
    std::fs::create_dir(rig.export().join("private")).expect("a directory");
    std::fs::set_permissions(
        rig.export().join("private"),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .expect("its mode");
    let private = c.handle(&["private"]).await;
    c.raw.cred = user(1000);
    assert_eq!(get(&mut c, &private).await, None);
    c.raw.cred = user(0);
    assert!(get(&mut c, &private).await.is_some());
    // It is no file's stateid.
    assert_eq!(on(&mut c, &file, read_op(stateid, 0, 1)).await.status, NfsStat::NFS4ERR_BAD_STATEID);
    assert!(heard.try_recv().is_err());

    rig.features = Features { delegations: Delegate::Off, ..Features::default() };
    rig.restart().await;
    let mut c = rig.client(b"stock").await;
    let root = c.handle(&[]).await;
    assert_eq!(on(&mut c, &root, ask()).await.status, NfsStat::NFS4ERR_NOTSUPP);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_delegation_ends_with_its_directory() {
    let rig = rig(Delegate::Write).await;
    let (mut c, _heard) = holder_of_directories(&rig).await;
    let live = || rig.server().stats().delegations;
    let (_, fh) = delegated(&mut c, "removed").await;
    assert_eq!(live(), 1);
    let res = c
        .run(vec![
            ArgOp::Putfh(fh.clone()),
            ArgOp::Remove(name("f")),
            ArgOp::Remove(name("sub")),
            ArgOp::Putrootfh,
            ArgOp::Remove(name("removed")),
        ])
        .await;
    assert_ok(&res);
    assert_eq!(live(), 0, "no operation can return it any more");
    let (_, replaced) = delegated(&mut c, "replaced").await;
    let ops = vec![ArgOp::Putfh(replaced), ArgOp::Remove(name("f")), ArgOp::Remove(name("sub"))];
    assert_ok(&c.run(ops).await);
    assert_ok(&c.run(vec![ArgOp::Putrootfh, mkdir("new")]).await);
    assert_ok(&c.run(rename(None, "new", None, "replaced")).await);
    assert_eq!(live(), 0);
    // One that only moves is kept.
    let (kept, moved) = delegated(&mut c, "moved").await;
    assert_ok(&c.run(rename(None, "moved", None, "moved2")).await);
    assert_eq!(live(), 1);
    assert_ok(&[on(&mut c, &moved, ArgOp::DelegReturn(kept)).await]);
    assert_eq!(live(), 0);
}
