//! Sessions and the reading jobs against Landfast's server.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::Rig;
use common::proxy::Proxy;
use common::stalled::Stalled;
use landfast_client::limits;
use landfast_client::ops::{self, Error};
use landfast_client::{NfsUrl, Session, SessionError, SessionLimits, SessionOptions};
use landfast_nfs::v4::args::{CreateHow, OpenArgs, OpenClaim, OpenHow, owner};
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::flags::OPEN4_SHARE_ACCESS_WRITE;
use landfast_nfs::v4::{ArgOp, NfsStat};

fn options(rig: &Rig) -> SessionOptions {
    let url: NfsUrl = format!("nfs://{}/", rig.addr()).parse().unwrap();
    SessionOptions::for_url(&url)
}

fn path(p: &str) -> Vec<Vec<u8>> {
    p.split('/').filter(|c| !c.is_empty()).map(|c| c.as_bytes().to_vec()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn more_compounds_than_slots_on_several_connections() {
    let rig = Rig::new().await;
    let mut options = options(&rig);
    options.connections = 3;
    options.ask.slots = 5;
    let session = Session::connect(options).await.unwrap();
    assert_eq!(session.limits().slots, 5);
    let all: Vec<_> = (0..200)
        .map(|_| {
            let session = session.clone();
            tokio::spawn(async move { session.compound(vec![ArgOp::Putrootfh, ArgOp::Getfh], true).await })
        })
        .collect();
    for one in all {
        let reply = one.await.unwrap().unwrap();
        assert_eq!((reply.status, reply.results.len()), (NfsStat::NFS4_OK, 2));
    }
    assert_eq!((session.stats().retransmissions, session.stats().renewals), (0, 0));
    session.destroy().await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_compound_over_the_limits_is_refused_and_the_slot_goes_on() {
    let rig = Rig::new().await;
    let ask = SessionLimits { request: 8192, response: 8192, response_cached: 1024, ops: 10, slots: 1 };
    let session = Session::connect(SessionOptions { ask, ..options(&rig) }).await.unwrap();
    for _ in 0..3 {
        let many = session.compound(vec![ArgOp::Putrootfh; 20], false).await;
        assert!(matches!(many, Err(SessionError::Refused(NfsStat::NFS4ERR_TOO_MANY_OPS))), "{many:?}");
        let long = ArgOp::Lookup(Bytes::from(vec![b'x'; 10_000]));
        let long = session.compound(vec![ArgOp::Putrootfh, long], false).await;
        assert!(matches!(long, Err(SessionError::Refused(NfsStat::NFS4ERR_REQ_TOO_BIG))), "{long:?}");
        let good = session.compound(vec![ArgOp::Putrootfh], false).await.unwrap();
        assert_eq!(good.status, NfsStat::NFS4_OK);
    }
    assert_eq!(session.stats().renewals, 0);
    session.destroy().await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn paths_lists_and_contents() {
    let rig = Rig::new().await;
    let dest = rig.dest();
    fs::create_dir_all(dest.join("a/b/c")).unwrap();
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    fs::write(dest.join("a/b/file"), &data).unwrap();
    symlink("b", dest.join("a/link")).unwrap();
    symlink("/dest/a", dest.join("top")).unwrap();
    symlink("round", dest.join("round")).unwrap();
    symlink("../out", dest.join("a/up")).unwrap();
    let session = Session::connect(options(&rig)).await.unwrap();
    let (direct, _) = ops::resolve(&session, &path("dest/a/b/file")).await.unwrap();
    for through in ["dest/a/link/file", "dest/top/b/file", "dest/top/link/file"] {
        assert_eq!(ops::resolve(&session, &path(through)).await.unwrap().0, direct, "{through}");
    }
    assert_eq!(ops::read_file(&session, &direct).await.unwrap(), data);
    let missing = ops::resolve(&session, &path("dest/a/nothing/x")).await;
    assert!(matches!(&missing, Err(Error::Path { path, .. }) if path == "/dest/a/nothing"), "{missing:?}");
    assert!(matches!(ops::resolve(&session, &path("dest/round")).await, Err(Error::Loop(_))));
    assert!(matches!(ops::resolve(&session, &path("dest/a/up")).await, Err(Error::Link(_))));
    let (root, _) = ops::resolve(&session, &path("dest")).await.unwrap();
    let listed = ops::list(&session, &root, ops::STAT, usize::MAX).await.unwrap().unwrap();
    let mut seen: Vec<_> = listed.iter().map(|e| &e.name[..]).collect();
    seen.sort();
    assert_eq!(seen, [&b"a"[..], b"round", b"top"]);
    let (link, attrs) = ops::lookup(&session, &root, b"top").await.unwrap().unwrap();
    assert_eq!(attrs.size, Some(7));
    assert_eq!(ops::readlink(&session, &link).await.unwrap(), "/dest/a");
    assert!(ops::lookup(&session, &root, b"none").await.unwrap().is_none());
    session.destroy().await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn connections_that_break_while_the_session_is_made_cost_no_session() {
    let rig = Rig::new().await;
    // Bytes of replies that each connection lets through more than the one before.
    for (version, more) in [("4.2", 100), ("4.2", 73), ("4.1", 100), ("4.0", 30), ("3", 10)] {
        let proxy = Proxy::cutting_early(rig.addr(), more).await;
        let url: NfsUrl = format!("nfs://{}/?version={version}", proxy.addr).parse().unwrap();
        let session = Session::connect(SessionOptions::for_url(&url)).await.unwrap();
        assert!(proxy.cuts() > 1, "{version}: {} cuts", proxy.cuts());
        let path = path(rig.top(version).trim_start_matches('/'));
        ops::resolve(&session, &path).await.unwrap_or_else(|e| panic!("{version}: {e}"));
        session.destroy().await;
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_answers_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let closing = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    for version in ["4.2", "4.0", "3"] {
        let url: NfsUrl = format!("nfs://{addr}/?version={version}").parse().unwrap();
        let reconnect_patience = Duration::from_millis(200);
        let options = SessionOptions { reconnect_patience, ..SessionOptions::for_url(&url) };
        let refused = Session::connect(options).await.err().expect("a session without a server");
        assert!(!matches!(refused, SessionError::Ended), "{version}: {refused}");
    }
    closing.abort();
    // Nobody is there at all: that is said at once, however patient the client is.
    assert!(closing.await.is_err_and(|e| e.is_cancelled()));
    let url: NfsUrl = format!("nfs://{addr}/").parse().unwrap();
    let refused = Session::connect(SessionOptions::for_url(&url)).await.err();
    assert!(matches!(refused, Some(SessionError::Connect { .. })), "{refused:?}");
}

/// What a session leaves behind goes although nobody hears that it has gone.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn the_answers_to_the_end_of_a_session_are_not_waited_for() {
    let rig = Rig::new().await;
    let there = || {
        let stats = rig.running.as_ref().unwrap().stats();
        (stats.clients, stats.sessions)
    };
    for version in ["4.2", "4.1"] {
        let proxy = Proxy::holding(rig.addr()).await;
        let url: NfsUrl = format!("nfs://{}/?version={version}", proxy.addr).parse().unwrap();
        let session = Session::connect(SessionOptions::for_url(&url)).await.unwrap();
        assert_eq!(there(), (1, 1), "{version}");
        proxy.hold_after(0);
        tokio::time::timeout(limits::GOODBYE_PATIENCE, session.destroy()).await.expect("it does not wait");
        let start = Instant::now();
        while there() != (0, 0) {
            assert!(start.elapsed() < Duration::from_secs(30), "{version}: {:?} are left", there());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    rig.stop().await;
}

/// A COMPOUND that makes a file: those for names of the same length look the same to a server's reply cache.
fn make(name: &str) -> Vec<ArgOp> {
    let mode = AttrValues { mode: Some(0o600), ..AttrValues::default() };
    let open = ArgOp::Open(OpenArgs {
        seqid: 0,
        share_access: OPEN4_SHARE_ACCESS_WRITE,
        share_deny: 0,
        owner: owner(0, b"any"),
        openhow: OpenHow::Create(CreateHow::Guarded(mode.to_fattr(&AttrValues::KNOWN))),
        claim: OpenClaim::Null(Bytes::copy_from_slice(name.as_bytes())),
    });
    vec![ArgOp::Putrootfh, ArgOp::Lookup(Bytes::from_static(b"dest")), open, ArgOp::Getfh]
}

/// RFC 8881 section 2.10.6.1: a request that was sent again while it ran, until the client had no more patience, still has its slot.
/// What is sent then must not get its reply.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_slot_whose_request_may_still_run_is_not_used_again() {
    let (end, ended) = tokio::sync::oneshot::channel();
    let (started, rig) = std::sync::mpsc::channel();
    // Its clock is not the one that is stopped.
    let server = std::thread::spawn(move || {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let rig = Rig::new().await;
            started.send((rig.addr(), rig.dest())).unwrap();
            let _ = ended.await;
            rig.stop().await;
        });
    });
    let (addr, dest) = rig.recv().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stalled = Stalled::new(addr);
        let url: NfsUrl = format!("nfs://{}/", stalled.addr).parse().unwrap();
        // With a clock that goes from one timer to the next, no reply would come in time.
        let call_patience = Duration::from_secs(u64::from(u32::MAX));
        let options = SessionOptions { call_patience, connections: 1, ..SessionOptions::for_url(&url) };
        let session = Session::connect(options).await.unwrap();
        let first = tokio::spawn({
            let session = session.clone();
            async move { session.compound(make("a"), true).await }
        });
        stalled.delayed().await;
        tokio::time::pause();
        let first = first.await.unwrap();
        tokio::time::resume();
        stalled.thaw();
        assert!(first.as_ref().is_err_and(SessionError::is_unknown), "{first:?}");
        let second = session.compound(make("b"), true).await.unwrap();
        assert_eq!(second.status, NfsStat::NFS4_OK, "{second:?}");
        for name in ["a", "b"] {
            assert!(dest.join(name).exists(), "{name}");
        }
        session.destroy().await;
    });
    end.send(()).unwrap();
    server.join().unwrap();
}
