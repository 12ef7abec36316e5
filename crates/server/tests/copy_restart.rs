//! A copy that goes on by itself while the server dies (RFC 7862 sections 4.8, 15.2 and 15.9): what a client finds afterwards.

use crate::common;

use common::back::*;
use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::data::*;
use landfast_nfs::v4::*;

/// A hole: far more than can be copied before the server dies.
const LARGE: u64 = 8 << 30;

/// Enough to be copied after the COPY was answered.
const LONG: u64 = 24 << 20;

fn copy_op(source: Stateid, dest: Stateid, count: u64) -> ArgOp {
    ArgOp::Copy(CopyArgs {
        src_stateid: source,
        dst_stateid: dest,
        src_offset: 0,
        dst_offset: 0,
        count,
        consecutive: true,
        synchronous: false,
        source_server: Vec::new(),
    })
}

fn copy(from: &FileHandle, to: &FileHandle, op: ArgOp) -> Vec<ArgOp> {
    vec![ArgOp::Putfh(from.clone()), ArgOp::Savefh, ArgOp::Putfh(to.clone()), op]
}

fn response(res: ResOp) -> WriteResponse {
    match res.body {
        ResBody::Copy(r) => r.response,
        other => panic!("COPY gave {:?} {other:?}", res.status),
    }
}

async fn verifier(c: &mut Client, fh: &FileHandle) -> [u8; 8] {
    let commit = ArgOp::Commit(CommitArgs { offset: 0, count: 0 });
    match c.last(vec![ArgOp::Putfh(fh.clone()), commit]).await.body {
        ResBody::Commit(verf) => verf,
        other => panic!("COMMIT gave {other:?}"),
    }
}

/// What is asked about the copy gets this.
async fn is_unknown(c: &mut Client, to: &FileHandle, stateid: Stateid) {
    for op in [ArgOp::OffloadStatus(stateid), ArgOp::OffloadCancel(stateid)] {
        let ops = vec![ArgOp::Putfh(to.clone()), op];
        assert_eq!(c.status(ops).await, NfsStat::NFS4ERR_BAD_STATEID, "never STALE_STATEID");
    }
    match c.last(vec![ArgOp::TestStateid(vec![stateid])]).await.body {
        ResBody::TestStateid(s) => assert_eq!(s, [NfsStat::NFS4ERR_BAD_STATEID]),
        other => panic!("TEST_STATEID gave {other:?}"),
    }
}

fn make_files(rig: &Rig) {
    let large = std::fs::File::create(rig.export().join("from")).expect("a file");
    large.set_len(LARGE).expect("a large file");
    std::fs::write(rig.export().join("small"), b"contents").expect("a file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7862_15_9_a_copy_dies_with_the_server_and_the_client_copies_again() {
    let mut rig = Rig::new().await;
    make_files(&rig);
    let (mut c, mut listening) = with_back_channel(&rig, Vec::new()).await;
    let (from, src) = c.open("from", 3).await;
    let (to, dst) = c.open("to", 3).await;
    c.deny("denied").await;
    let begun = response(c.last(copy(&from, &to, copy_op(src, dst, LARGE))).await);
    let stateid = begun.callback_id.expect("it goes on by itself");
    let status = c.last(vec![ArgOp::Putfh(to.clone()), ArgOp::OffloadStatus(stateid)]).await;
    assert!(matches!(&status.body, ResBody::OffloadStatus(s) if s.complete.is_none()), "{status:?}");
    let restored = rig.crash().await;
    assert_eq!(restored.reclaiming, 1);
    // The client held an open that denies something, so it starts over and reclaims all. It has heard nothing of the copy.
    c.raw.conn = rig.raw().await.conn;
    assert_eq!(c.sequence_status().await, NfsStat::NFS4ERR_DEADSESSION);
    let mut c = Client::without_reclaim(c.raw, b"back", 1).await;
    let reclaim = |share_access| {
        ArgOp::Open(OpenArgs {
            seqid: 0,
            share_access,
            share_deny: 0,
            owner: landfast_nfs::v4::args::owner(0, b"o"),
            openhow: OpenHow::NoCreate,
            claim: OpenClaim::Previous(0),
        })
    };
    let mut opened = Vec::new();
    for fh in [&from, &to] {
        is_unknown(&mut c, &to, stateid).await;
        match c.last(vec![ArgOp::Putfh(fh.clone()), reclaim(3)]).await.body {
            ResBody::Open(o) => opened.push(o.stateid),
            other => panic!("OPEN gave {other:?}"),
        }
    }
    assert_ok(&c.run(vec![ArgOp::ReclaimComplete(false)]).await);
    is_unknown(&mut c, &to, stateid).await;
    assert!(listening.try_recv().is_err());
    // What it began with does not count any more: another verifier than that of the COPY.
    assert_ne!(verifier(&mut c, &to).await, begun.writeverf);
    // Of the copy there is any part of its own range, and nothing else; the next one is whole.
    let part = std::fs::metadata(rig.export().join("to")).expect("the copy").len();
    assert!(part < LARGE);
    assert_eq!(std::fs::metadata(rig.export().join("from")).expect("the source").len(), LARGE);
    let small = c.handle(&["small"]).await;
    let cut = fattr(AttrValues { size: Some(0), ..AttrValues::default() });
    let cut = ArgOp::Setattr(SetattrArgs { stateid: opened[1], attrs: cut });
    assert_ok(&c.run(vec![ArgOp::Putfh(to.clone()), cut]).await);
    let again = response(c.last(copy(&small, &to, copy_op(Stateid::ANONYMOUS, opened[1], 0))).await);
    assert_eq!((again.callback_id, again.count, again.committed), (None, 8, StableHow::FileSync));
    rig.crash().await;
    assert_eq!(std::fs::read(rig.export().join("to")).expect("the copy"), b"contents");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7862_15_9_a_session_that_goes_on_does_not_know_the_copy_either() {
    let mut rig = Rig::new().await;
    make_files(&rig);
    std::fs::write(rig.export().join("to"), b"").expect("a file");
    let (mut c, _listening) = with_back_channel(&rig, Vec::new()).await;
    let (from, to) = (c.handle(&["from"]).await, c.handle(&["to"]).await);
    // Without opens the client has nothing to reclaim, and its session survives.
    let op = copy_op(Stateid::ANONYMOUS, Stateid::ANONYMOUS, LONG);
    let ops = copy(&from, &to, op);
    let begun = c.run(ops.clone()).await;
    let stateid = response(begun[3].clone()).callback_id.expect("it goes on by itself");
    for crash in [true, false] {
        let restored = if crash { rig.crash().await } else { rig.restart().await };
        assert_eq!((restored.sessions, restored.reclaiming), (1, 0));
        c.raw.conn = rig.raw().await.conn;
        if crash {
            // The COPY had changed nothing when it was answered, so the log does not know it: a retry copies, and since
            // nobody can be called back now it does so before it is answered.
            let mut retry = c.again(ops.clone()).await.results;
            let again = response(retry.remove(4));
            assert_eq!((again.callback_id, again.count, again.committed), (None, LONG, StableHow::FileSync));
            assert_ne!(again.writeverf, response(begun[3].clone()).writeverf);
        }
        is_unknown(&mut c, &to, stateid).await;
    }
}
