//! SEQUENCE, slots and the reply cache (RFC 8881 sections 2.10.6 and 18.46).

use crate::common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use landfast_xdr::{Bytes, Decode};

fn on(c: &Client, slotid: u32, sequenceid: u32, highest_slotid: u32) -> ArgOp {
    ArgOp::Sequence(SequenceArgs {
        sessionid: c.session,
        sequenceid,
        slotid,
        highest_slotid,
        cachethis: true,
    })
}

fn sequence(res: &CompoundRes) -> res::SequenceRes {
    match &res.results[0].body {
        ResBody::Sequence(s) => s.clone(),
        other => panic!("SEQUENCE gave {:?} {other:?}", res.status),
    }
}

/// A client whose session has these limits.
async fn limited(rig: &Rig, f: impl Fn(&mut ChannelAttrs)) -> Client {
    let raw = rig.raw().await;
    let ex = raw.exchange_id(b"limited", 1).await;
    let mut args = session_args(ex.clientid, ex.sequenceid);
    f(&mut args.fore_chan_attrs);
    let s = raw.create_session(args).await;
    Client {
        raw,
        id: ex.clientid,
        session: s.sessionid,
        seq: 0,
        cachethis: false,
        flags: s.flags,
        fore: s.fore_chan_attrs,
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_46_3_the_reply_names_the_slot() {
    let rig = Rig::new().await;
    let c = rig.client(b"c").await;
    let s = sequence(&c.raw.compound(vec![on(&c, 2, 1, 3)]).await);
    assert_eq!((s.sessionid, s.sequenceid, s.slotid), (c.session, 1, 2));
    assert_eq!(s.highest_slotid, c.fore.max_requests - 1);
    assert_eq!(s.target_highest_slotid, c.fore.max_requests - 1);
    assert_eq!(s.status_flags, 0);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_6_1_each_slot_counts_for_itself() {
    let rig = Rig::new().await;
    let c = rig.client(b"c").await;
    let slots = c.fore.max_requests;
    for slot in 1..slots {
        assert!(c.raw.compound(vec![on(&c, slot, 1, slots - 1)]).await.status.is_ok());
    }
    for slot in 1..slots {
        assert!(c.raw.compound(vec![on(&c, slot, 2, slots - 1)]).await.status.is_ok());
        for bad in [4, 1, 0, u32::MAX] {
            let res = c.raw.compound(vec![on(&c, slot, bad, slots - 1)]).await;
            assert_eq!(res.status, NfsStat::NFS4ERR_SEQ_MISORDERED, "slot {slot}, number {bad}");
        }
        // It has not moved.
        assert!(c.raw.compound(vec![on(&c, slot, 3, slots - 1)]).await.status.is_ok());
    }
    for (slot, highest, status) in [
        (slots, slots, NfsStat::NFS4ERR_BADSLOT),
        (u32::MAX, u32::MAX, NfsStat::NFS4ERR_BADSLOT),
        (3, 2, NfsStat::NFS4ERR_BAD_HIGH_SLOT),
    ] {
        assert_eq!(c.raw.compound(vec![on(&c, slot, 1, highest)]).await.status, status);
    }
    let mut unknown = c.clone();
    unknown.session = *b"Bad Session Id\0\0";
    assert_eq!(unknown.raw.compound(vec![on(&unknown, 0, 1, 0)]).await.status, NfsStat::NFS4ERR_BADSESSION);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_6_1_a_replay_gets_the_same_bytes() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    c.open("a", 3).await;
    let rename = |from: &str, to: &str| ArgOp::Rename(RenameArgs { oldname: name(from), newname: name(to) });
    let requests = [
        // Idempotent and not, successful and not, unknown, nothing at all.
        vec![ArgOp::Putrootfh],
        vec![ArgOp::Putrootfh, ArgOp::Savefh, rename("a", "b")],
        vec![ArgOp::Putrootfh, ArgOp::Lookup(name(""))],
        vec![ArgOp::Putrootfh, ArgOp::Savefh, rename("", "foo")],
        vec![ArgOp::Other(OpNum::ILLEGAL)],
        vec![
            ArgOp::Putrootfh,
            ArgOp::Readdir(ReaddirArgs {
                cookie: 0,
                cookieverf: [0; 8],
                dircount: 0,
                maxcount: 2000,
                attr_request: Bitmap::of(&[1, 3, 4]),
            }),
        ],
        vec![],
    ];
    for ops in requests {
        c.seq += 1;
        let mut all = vec![c.sequence()];
        all.extend(ops.clone());
        let body = c.raw.encode(all);
        let first = c.raw.call(1, body.clone()).await.expect("an answer");
        // On another connection as well.
        let other = rig.raw().await;
        for raw in [&c.raw, &other, &c.raw] {
            assert_eq!(raw.call(1, body.clone()).await.expect("an answer"), first, "{ops:?}");
        }
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_6_1_3_1_a_false_retry_is_recognised() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let ops = vec![ArgOp::Putrootfh, ArgOp::Getfh];
    c.run(ops.clone()).await;
    for other in [
        vec![ArgOp::Putrootfh],
        vec![ArgOp::Putrootfh, ArgOp::Getfh, ArgOp::Getfh],
        vec![ArgOp::Putrootfh, ArgOp::Savefh],
        vec![ArgOp::Putrootfh, mkdir("d")],
    ] {
        assert_eq!(c.again(other).await.status, NfsStat::NFS4ERR_SEQ_FALSE_RETRY);
    }
    let mut stranger = c.clone();
    stranger.raw.cred = user(1000);
    assert_eq!(stranger.again(ops.clone()).await.status, NfsStat::NFS4ERR_SEQ_FALSE_RETRY);
    assert!(c.again(ops).await.status.is_ok());
    assert!(!rig.export().join("d").exists());
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_6_4_a_request_that_is_too_big() {
    let rig = Rig::new().await;
    let mut c = limited(&rig, |f| f.max_request_size = 512).await;
    c.seq = 1;
    let long = |n: usize| vec![ArgOp::Putrootfh, ArgOp::Lookup(Bytes::from(vec![b'x'; n]))];
    let res = c.again(long(500)).await;
    assert_eq!((res.status, res.results.len()), (NfsStat::NFS4ERR_REQ_TOO_BIG, 1));
    // The slot has not moved, and the size counts the RPC header.
    assert_eq!(c.again(long(400)).await.status, NfsStat::NFS4ERR_REQ_TOO_BIG);
    assert_eq!(c.again(long(260)).await.status, NfsStat::NFS4ERR_NAMETOOLONG);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_6_4_too_many_operations() {
    let rig = Rig::new().await;
    let mut c = limited(&rig, |f| f.max_operations = 4).await;
    let max = c.fore.max_operations as usize;
    let ops = |n: usize| {
        let mut ops = vec![ArgOp::Putrootfh, ArgOp::Getfh];
        ops.resize(n - 1, ArgOp::Getattr(Bitmap::default()));
        ops
    };
    assert_ok(&c.run(ops(max)).await);
    c.seq += 1;
    let res = c.again(ops(max + 1)).await;
    assert_eq!((res.status, res.results.len()), (NfsStat::NFS4ERR_TOO_MANY_OPS, 1));
    assert_eq!(res.results[0].op, OpNum::SEQUENCE);
    assert!(c.again(ops(max)).await.status.is_ok());
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_6_4_a_reply_that_is_too_big() {
    let rig = Rig::new().await;
    let mut c = limited(&rig, |f| {
        (f.max_response_size, f.max_response_size_cached) = (400, 400);
    })
    .await;
    assert_ok(&c.run(vec![ArgOp::ReclaimComplete(false)]).await);
    let attrs = ArgOp::Getattr(Bitmap::of(&(0..12).collect::<Vec<_>>()));
    let four = vec![ArgOp::Putrootfh, attrs.clone(), attrs.clone(), attrs.clone(), attrs];
    let res = c.run(four.clone()).await;
    assert_eq!(res.last().map(|r| r.status), Some(NfsStat::NFS4ERR_REP_TOO_BIG));
    // No reply is longer than the client's buffer, whatever stands at its end.
    for n in 1..12 {
        let mut ops = vec![ArgOp::Putrootfh];
        ops.extend(vec![ArgOp::Getfh; n]);
        c.seq += 1;
        let mut all = vec![c.sequence()];
        all.extend(ops);
        let reply = c.raw.call(1, c.raw.encode(all)).await.expect("an answer");
        assert!(reply.len() + 24 <= 400, "{n} operations: {} bytes", reply.len());
        let res = CompoundRes::from_bytes(reply).expect("a COMPOUND result");
        assert!(matches!(res.status, NfsStat::NFS4_OK | NfsStat::NFS4ERR_REP_TOO_BIG));
    }
    // What changes something is not done when its reply has no room.
    let mut ops = four[..3].to_vec();
    ops.extend([ArgOp::Getfh, ArgOp::Getfh, mkdir("d")]);
    assert_eq!(c.status(ops).await, NfsStat::NFS4ERR_REP_TOO_BIG);
    assert!(!rig.export().join("d").exists());
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_6_4_a_reply_that_is_too_big_to_keep() {
    let rig = Rig::new().await;
    let mut c = limited(&rig, |f| f.max_response_size_cached = 10).await;
    c.seq = 1;
    c.cachethis = true;
    assert_eq!(c.again(Vec::new()).await.status, NfsStat::NFS4ERR_REP_TOO_BIG_TO_CACHE);
    // Not asked to be kept, it is answered, and a retry learns that it was not kept.
    c.cachethis = false;
    let ops = vec![ArgOp::Putrootfh, mkdir("d")];
    assert!(c.again(ops.clone()).await.status.is_ok());
    let again = c.again(ops).await;
    assert_eq!(again.results.len(), 2);
    assert_eq!(again.results[1].status, NfsStat::NFS4ERR_RETRY_UNCACHED_REP);
    // A lone SEQUENCE of the same number always succeeds: so clients ask about slots that were interrupted.
    assert!(c.again(Vec::new()).await.status.is_ok());
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_6_1_4_a_client_may_use_fewer_slots() {
    let rig = Rig::new().await;
    let c = rig.client(b"c").await;
    for (slot, seq, highest) in [(7, 1, 7), (1, 1, 1), (1, 2, 1), (7, 2, 7)] {
        assert!(c.raw.compound(vec![on(&c, slot, seq, highest)]).await.status.is_ok());
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_3_1_sessions_of_one_client_are_independent() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let second = c.raw.create_session(session_args(c.id, 2)).await;
    let mut d = Client { session: second.sessionid, seq: 0, ..c.clone() };
    assert_ok(&d.run(vec![ArgOp::Putrootfh, mkdir("d")]).await);
    assert_ok(&c.run(vec![ArgOp::Putrootfh, ArgOp::Lookup(name("d"))]).await);
    assert!(c.raw.alone(ArgOp::DestroySession(c.session)).await.status.is_ok());
    assert_eq!(c.again(Vec::new()).await.status, NfsStat::NFS4ERR_BADSESSION);
    assert_ok(&d.run(vec![ArgOp::Putrootfh]).await);
}
