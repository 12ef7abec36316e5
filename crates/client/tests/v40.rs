//! NFSv4.0: open owners, and what stands for the current stateid.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Rig, shell};
use landfast_client::cred::Identity;
use landfast_client::fs::{NewFile, Nfs, Outcome};
use landfast_client::{NfsUrl, Session, SessionError, SessionOptions, Version};
use landfast_nfs::v4::args::{CloseArgs, CreateHow, OpenArgs, OpenClaim, OpenHow, WriteArgs, owner};
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::flags::OPEN4_SHARE_ACCESS_WRITE;
use landfast_nfs::v4::{ArgOp, NfsStat, ResBody, StableHow, Stateid};

fn options(rig: &Rig) -> SessionOptions {
    let url: NfsUrl = format!("nfs://{}/dest?version=4.0", rig.addr()).parse().unwrap();
    SessionOptions::for_url(&url)
}

async fn connect(options: SessionOptions) -> Nfs {
    Nfs::with(Session::connect(options).await.unwrap(), &[b"dest".to_vec()]).await.unwrap()
}

fn all<T: std::fmt::Debug>(outcomes: Vec<Outcome<T>>) {
    let bad = outcomes.iter().find(|o| !matches!(o, Outcome::Committed(_)));
    assert!(bad.is_none(), "{bad:?}");
}

/// Two COMPOUNDs for as many files as one takes, and one more for owners that the server does not know yet.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn owners_are_confirmed_once_and_used_again() {
    let rig = Rig::new().await;
    let nfs = connect(options(&rig)).await;
    assert_eq!(nfs.session().version(), Version::V40);
    let mut spent = Vec::new();
    for round in 0..3 {
        let before = nfs.stats().rpcs;
        // One COMPOUND after another, so that the number of them is known.
        for part in 0..4 {
            let files = (0..10).map(|n| NewFile::new(format!("{round}-{part}-{n}"), format!("{n}")));
            all(nfs.write_files(files).await);
        }
        spent.push(nfs.stats().rpcs - before);
    }
    // SETCLIENTID and its confirmation; OPEN_CONFIRM of ten owners.
    assert_eq!(spent, [2 + 1 + 8, 8, 8]);
    assert_eq!(fs::read_dir(rig.dest()).unwrap().count(), 120);
    rig.stop().await;
}

/// The mode of a new file forbids what its open allows: the anonymous stateid does not do there.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_file_without_write_permission_is_written_by_its_open() {
    let rig = Rig::new().await;
    shell(&rig.dest(), "chmod 777 .");
    let user = Identity { uid: 4321, gid: 4321, groups: Vec::new(), ..Identity::of_process() };
    let nfs = connect(SessionOptions { identity: user, ..options(&rig) }).await;
    let files = (0..5).map(|n| NewFile { mode: 0o400, ..NewFile::new(format!("f{n}"), format!("data {n}")) });
    all(nfs.write_files(files).await);
    for n in 0..5 {
        let path = rig.dest().join(format!("f{n}"));
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.permissions().mode() & 0o7777, meta.uid()), (0o400, 4321));
        assert_eq!(fs::read(&path).unwrap(), format!("data {n}").as_bytes());
    }
    rig.stop().await;
}

/// Names and opens in one COMPOUND of the caller's: more than one on the wire, and the results of one.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_compound_of_many_kinds_has_its_results_in_order() {
    let rig = Rig::new().await;
    let session = Session::connect(options(&rig)).await.unwrap();
    let name = |n: &str| Bytes::copy_from_slice(n.as_bytes());
    let mode = |m| AttrValues { mode: Some(m), ..AttrValues::default() }.to_fattr(&AttrValues::KNOWN);
    let dir = |n: &str| {
        ArgOp::Create(landfast_nfs::v4::args::CreateArgs {
            kind: landfast_nfs::v4::args::CreateType::Dir,
            name: name(n),
            attrs: mode(0o755),
        })
    };
    let open = |n: &str| {
        ArgOp::Open(OpenArgs {
            seqid: 0,
            share_access: OPEN4_SHARE_ACCESS_WRITE,
            share_deny: 0,
            owner: owner(0, b"any"),
            openhow: OpenHow::Create(CreateHow::Guarded(mode(0o600))),
            claim: OpenClaim::Null(name(n)),
        })
    };
    let write = |data: &str| {
        ArgOp::Write(WriteArgs {
            stateid: Stateid::CURRENT,
            offset: 0,
            stable: StableHow::FileSync,
            data: name(data),
        })
    };
    let close = || ArgOp::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT });
    let ops = vec![
        ArgOp::Putrootfh,
        ArgOp::Lookup(name("dest")),
        ArgOp::Savefh,
        dir("a"),
        ArgOp::Getfh,
        open("one"),
        ArgOp::Getfh,
        write("1"),
        close(),
        ArgOp::Restorefh,
        dir("b"),
        ArgOp::Getfh,
        open("two"),
        ArgOp::Getfh,
        write("2"),
        // Linked while it is open, from the handle that was saved.
        ArgOp::Savefh,
        ArgOp::Putrootfh,
        ArgOp::Lookup(name("dest")),
        ArgOp::Link(name("again")),
        ArgOp::Remove(name("none")),
        ArgOp::Putrootfh,
    ];
    let reply = session.compound(ops.clone(), true).await.unwrap();
    let got: Vec<_> = reply.results.iter().map(|r| r.op).collect();
    let wanted: Vec<_> = ops.iter().take(20).map(ArgOp::op).collect();
    assert_eq!(got, wanted);
    assert_eq!((reply.status, reply.results[19].status), (NfsStat::NFS4ERR_NOENT, NfsStat::NFS4ERR_NOENT));
    assert_eq!(fs::read(rig.dest().join("a/one")).unwrap(), b"1");
    assert_eq!(fs::read(rig.dest().join("again")).unwrap(), b"2");
    assert_eq!(fs::metadata(rig.dest().join("b/two")).unwrap().nlink(), 2);
    // The second open outlives its COMPOUND, under the stateid that it gave.
    let (ResBody::Open(opened), ResBody::Getfh(fh)) = (&reply.results[12].body, &reply.results[13].body)
    else {
        panic!("{reply:?}");
    };
    let mut more = match write("22") {
        ArgOp::Write(args) => args,
        _ => unreachable!(),
    };
    more.stateid = opened.stateid;
    let put = || ArgOp::Putfh(fh.clone());
    let end = || ArgOp::Close(CloseArgs { seqid: 0, open_stateid: opened.stateid });
    let reply = session.compound(vec![put(), ArgOp::Write(more.clone()), end()], true).await.unwrap();
    assert_eq!(reply.status, NfsStat::NFS4_OK, "{reply:?}");
    assert_eq!(fs::read(rig.dest().join("b/two")).unwrap(), b"22");
    let reply = session.compound(vec![put(), ArgOp::Write(more)], true).await.unwrap();
    assert!(!reply.status.is_ok(), "the open is closed: {reply:?}");
    let reply = session.compound(vec![put(), end()], true).await.unwrap();
    assert_eq!(reply.status, NfsStat::NFS4ERR_BAD_STATEID);
    session.destroy().await;
    rig.stop().await;
}

/// A client ID that the server has forgotten is got anew; what the server did not see is executed under the new one.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_forgotten_client_id_is_got_anew() {
    let mut rig = Rig::with(landfast_volume::Durability::Sync).await;
    rig.lease_seconds = 1;
    let nfs = connect(options(&rig)).await;
    all(nfs.write_files([NewFile::new("before", "1")]).await);
    let addr = rig.addr();
    rig.running.take().unwrap().abandon().await;
    rig.start(addr).await;
    all(nfs.write_files((0..20).map(|n| NewFile::new(format!("after{n}"), "2"))).await);
    assert_eq!(nfs.stats().renewals, 1);
    assert_eq!(fs::read_dir(rig.dest()).unwrap().count(), 21);
    nfs.session().clone().destroy().await;
    let ended = nfs.session().compound(vec![ArgOp::Putrootfh], false).await;
    assert!(matches!(ended, Err(SessionError::Ended)), "{ended:?}");
    rig.stop().await;
}

/// Many requests under way while a restarted server waits for a client that does not come back: one of them asks, for all.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn one_request_asks_a_server_in_its_grace_period() {
    const FILES: u64 = 64;
    const GRACE_SECONDS: u32 = 6;
    let mut rig = Rig::new().await;
    rig.lease_seconds = GRACE_SECONDS;
    let (nfs, gone) =
        (Arc::new(connect(options(&rig)).await), Session::connect(options(&rig)).await.unwrap());
    all(nfs.write_files([NewFile::new("before", "1")]).await);
    // It has something open, and is never heard of again.
    let open = ArgOp::Open(OpenArgs {
        seqid: 0,
        share_access: OPEN4_SHARE_ACCESS_WRITE,
        share_deny: 0,
        owner: owner(0, b"any"),
        openhow: OpenHow::NoCreate,
        claim: OpenClaim::Null(Bytes::from_static(b"before")),
    });
    let lookup = ArgOp::Lookup(Bytes::from_static(b"dest"));
    let opened = gone.compound(vec![ArgOp::Putrootfh, lookup, open, ArgOp::Getfh], false).await.unwrap();
    assert_eq!(opened.status, NfsStat::NFS4_OK);
    let addr = rig.addr();
    rig.running.take().unwrap().abandon().await;
    drop(gone);
    rig.start(addr).await;
    let (before, begin) = (nfs.stats().rpcs, Instant::now());
    let mut writes = tokio::task::JoinSet::new();
    for n in 0..FILES {
        let nfs = nfs.clone();
        writes.spawn(async move { all(nfs.write_files([NewFile::new(format!("f{n}"), "2")]).await) });
    }
    while let Some(done) = writes.join_next().await {
        done.unwrap();
    }
    let (rpcs, took) = (nfs.stats().rpcs - before, begin.elapsed());
    assert!(took > Duration::from_secs(1), "there was no grace period: {took:?}");
    // Each is refused for its client ID and for the period, sent again, its owner confirmed and its file closed; beside that one
    // asks five times a second.
    assert!(rpcs < FILES * 6 + u64::from(GRACE_SECONDS) * 5 * 2, "{rpcs} in {took:?}");
    assert_eq!(fs::read_dir(rig.dest()).unwrap().count() as u64, FILES + 1);
    rig.stop().await;
}
