//! WRITE UNSTABLE (RFC 8881 section 18.32.3): it waits for no flush, and neither does its reply; a retry after a restart
//! writes again, under another verifier. What else its COMPOUND changes is kept as ever.

use crate::common;
use crate::v40;

use common::v3::V3;
use common::*;
use landfast_nfs::v3::types::StableHow as Stable3;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::res::WriteRes;
use landfast_nfs::v4::*;
use landfast_xdr::Bytes;
use std::future::Future;
use v40::Client40;

const WRITES: u64 = 40;

fn unstable(stateid: Stateid, offset: u64, data: &[u8]) -> ArgOp {
    let data = Bytes::copy_from_slice(data);
    ArgOp::Write(WriteArgs { stateid, offset, stable: StableHow::Unstable, data })
}

fn commit() -> ArgOp {
    ArgOp::Commit(CommitArgs { offset: 0, count: 0 })
}

fn guarded(file: &str) -> ArgOp {
    open_op(b"o", file, 3, 0, OpenHow::Create(CreateHow::Guarded(mode(0o644))))
}

fn wrote(res: &ResOp) -> &WriteRes {
    match &res.body {
        ResBody::Write(w) => w,
        other => panic!("WRITE gave {:?} {other:?}", res.status),
    }
}

/// Batches that the log writes while something is done. Checkpoints write, too, and come by the clock: should one fall into
/// it, it is done again.
async fn batches<F: Future<Output = ()>>(rig: &Rig, mut work: impl FnMut() -> F) -> u64 {
    let figures = || {
        let log = rig.server().volumes()[0].stats().log.expect("a log");
        (log.batches, log.checkpoints, log.checkpointing)
    };
    for _ in 0..20 {
        let (before, checkpoints, running) = figures();
        work().await;
        let (after, now, still) = figures();
        if (checkpoints, false, false) == (now, running, still) {
            return after - before;
        }
    }
    panic!("a checkpoint in each of 20 tries");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_32_3_an_unstable_write_waits_for_no_flush() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, stateid) = c.open("f", 3).await;
    let put = ArgOp::Putfh(fh.clone());
    let c = tokio::sync::Mutex::new(c);
    let run = |ops: Vec<ArgOp>| {
        let c = &c;
        async move { assert_ok(&c.lock().await.run(ops).await) }
    };
    for (minor, cachethis) in [(1, true), (1, false), (2, true), (2, false)] {
        {
            let mut c = c.lock().await;
            (c.raw.minor, c.cachethis) = (minor, cachethis);
        }
        let size = ArgOp::Getattr(Bitmap::of(&[4]));
        let writes = || async {
            for i in 0..WRITES {
                run(vec![put.clone(), unstable(stateid, i * 7, b"content"), size.clone()]).await;
            }
        };
        assert_eq!(batches(&rig, writes).await, 0, "minor {minor}");
        // What they wrote is stable with one COMMIT, and one flush.
        assert_eq!(batches(&rig, || run(vec![put.clone(), commit()])).await, 1, "minor {minor}");
        let mode = ArgOp::Setattr(SetattrArgs { stateid, attrs: mode(0o600) });
        let both = vec![put.clone(), unstable(stateid, 0, b"a"), mode];
        assert_eq!(batches(&rig, || run(both.clone())).await, 1, "minor {minor}");
    }
    let c = Client40::new(&rig, b"c40").await;
    let fh = rig.client(b"d").await.handle(&["f"]).await;
    let write = || async {
        let op = unstable(Stateid::ANONYMOUS, 0, b"content");
        assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), op]).await);
    };
    assert_eq!(batches(&rig, write).await, 0, "minor 0");
    let c = V3::new(&rig).await;
    let fh = c.lookup(&c.root, "f").await.object;
    let write = || async {
        assert_eq!(c.write(&fh, 0, b"content", Stable3::Unstable).await.count, 7);
    };
    assert_eq!(batches(&rig, write).await, 0, "version 3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_6_5_a_retry_after_a_restart_writes_again() {
    let mut rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    c.cachethis = false;
    // It holds nothing, so its session goes on; special stateids need none.
    let make = vec![
        ArgOp::Putrootfh,
        guarded("f"),
        ArgOp::Getfh,
        unstable(Stateid::CURRENT, 0, b"first"),
        close_op(Stateid::CURRENT),
    ];
    c.seq += 1;
    let made = c.again(make.clone()).await;
    assert_eq!(made.status, NfsStat::NFS4_OK);
    let ResBody::Getfh(fh) = &made.results[3].body else { panic!("GETFH gave {:?}", made.results[3]) };
    let write = |data: &[u8]| vec![ArgOp::Putfh(fh.clone()), unstable(Stateid::ANONYMOUS, 0, data)];
    let content = |rig: &Rig| std::fs::read(rig.export().join("f")).expect("the file");

    rig.crash().await;
    c.raw.conn = rig.raw().await.conn;
    assert_eq!(c.again(make).await, made, "the making and its reply are one, unstable data or not");

    // Four that the log knows nothing of.
    for data in [b"one", b"two", b"tri", b"for"] {
        assert_ok(&c.run(write(data)).await);
    }
    let first = c.again(write(b"for")).await;
    let verifier = wrote(&first.results[2]).writeverf;
    // As long as the server lives a retry is told what was said, and does not write.
    std::fs::write(rig.export().join("f"), b"other").expect("written");
    assert_eq!(c.again(write(b"for")).await, first);
    assert_eq!(content(&rig), b"other");

    for clean in [false, true] {
        let restored = if clean { rig.restart().await } else { rig.crash().await };
        assert_eq!((restored.sessions, restored.reclaiming), (1, 0), "clean: {clean}");
        c.raw.conn = rig.raw().await.conn;
        let anew = c.again(write(b"for")).await;
        assert_eq!(anew.status, NfsStat::NFS4_OK);
        assert_ne!(wrote(&anew.results[2]).writeverf, verifier, "a COMMIT shows what is to be sent again");
        assert!(content(&rig).starts_with(b"for"));
        assert_eq!(c.again(write(b"for")).await, anew, "known from here on");
        // An earlier one is not taken for new.
        c.seq -= 1;
        assert_eq!(c.again(write(b"tri")).await.status, NfsStat::NFS4ERR_SEQ_MISORDERED);
        c.seq += 1;
        std::fs::write(rig.export().join("f"), b"other").expect("written");
    }
    // The slot goes on with what is logged, which the next crash keeps.
    c.seq += 1;
    let mkdir = vec![ArgOp::Putrootfh, mkdir("d")];
    let done = c.again(mkdir.clone()).await;
    assert_eq!(done.status, NfsStat::NFS4_OK);
    rig.crash().await;
    c.raw.conn = rig.raw().await.conn;
    assert_eq!(c.again(mkdir).await, done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_3_1_1_what_an_unstable_write_stands_beside_is_kept_with_its_reply() {
    let mut rig = Rig::new().await;
    let c = Client40::new(&rig, b"c").await;
    let fh = rig.client(b"d").await.open("f", 3).await.0;
    let ops = [ArgOp::Putrootfh, mkdir("d"), ArgOp::Putfh(fh), unstable(Stateid::ANONYMOUS, 0, b"content")];
    let mut wire = common::v3::Wire::new(rig.addr(), 0).await;
    let first = crate::v40_replies::compound(&mut wire, 1, &ops).await;
    assert_eq!(first.status, NfsStat::NFS4_OK);
    drop(c);
    wire.reset();
    rig.crash().await;
    let mut wire = common::v3::Wire::new(rig.addr(), 0).await;
    assert_eq!(crate::v40_replies::compound(&mut wire, 1, &ops).await, first, "not EXIST");
}
