//! COMPOUND itself (RFC 8881 sections 2.10.2.1, 15.1.3.4, 16.2): header, tag, minor version, operations that are none, requests
//! that do not decode.

use crate::common::*;
use landfast_nfs::v4::*;
use landfast_rpc::{AcceptStat, CallError};
use landfast_xdr::{Bytes, Decode, Encode};

/// A request with this tag, this number of operations announced, and these bytes for the operations.
fn request(tag: &[u8], minor: u32, announced: u32, ops: &[u8]) -> Bytes {
    let mut out = landfast_xdr::BytesMut::new();
    Bytes::copy_from_slice(tag).encode(&mut out);
    minor.encode(&mut out);
    announced.encode(&mut out);
    out.extend_from_slice(ops);
    out.freeze()
}

async fn call(raw: &Raw, body: Bytes) -> CompoundRes {
    CompoundRes::from_bytes(raw.call(1, body).await.expect("an answer")).expect("a COMPOUND result")
}

fn bytes(ops: &[ArgOp]) -> Vec<u8> {
    ops.iter().flat_map(|op| op.to_bytes().to_vec()).collect()
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_16_2_3_the_tag_comes_back_whatever_it_is() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    for tag in [&b""[..], b"tag test", b"\xc0\xc1", b"\0\0\0", &[b'x'; 1000]] {
        let empty = call(&raw, request(tag, 1, 0, &[])).await;
        assert_eq!((empty.status, &empty.tag[..], empty.results.len()), (NfsStat::NFS4_OK, tag, 0));
        let failed = call(&raw, request(tag, 1, 1, &bytes(&[ArgOp::Putrootfh]))).await;
        assert_eq!((failed.status, &failed.tag[..]), (NfsStat::NFS4ERR_OP_NOT_IN_SESSION, tag));
        let mismatch = call(&raw, request(tag, 50, 1, &bytes(&[ArgOp::Putrootfh]))).await;
        assert_eq!((mismatch.status, &mismatch.tag[..]), (NfsStat::NFS4ERR_MINOR_VERS_MISMATCH, tag));
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_16_2_3_a_minor_version_that_is_not_served_comes_before_all_else() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    for minor in [3, 50, u32::MAX] {
        for ops in [bytes(&[ArgOp::Putrootfh]), bytes(&[ArgOp::Other(OpNum::ILLEGAL)]), vec![0xff; 7]] {
            let res = call(&raw, request(b"t", minor, 1, &ops)).await;
            assert_eq!((res.status, res.results.len()), (NfsStat::NFS4ERR_MINOR_VERS_MISMATCH, 0));
        }
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_15_1_3_4_numbers_that_are_no_operation() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    for minor in [1, 2] {
        c.raw.minor = minor;
        let first_unknown = if minor == 1 { 59 } else { 76 };
        for number in [0, 1, 2, first_unknown, 200, 9999, 10043, 10044, 10045, u32::MAX] {
            let op = ArgOp::Other(OpNum(number));
            let alone = c.raw.alone(op.clone()).await;
            assert_eq!((alone.op, alone.status), (OpNum::ILLEGAL, NfsStat::NFS4ERR_OP_ILLEGAL), "{number}");
            let last = c.run(vec![ArgOp::Putrootfh, op, ArgOp::Getfh]).await;
            assert_eq!(last.len(), 2);
            assert_eq!((last[1].op, last[1].status), (OpNum::ILLEGAL, NfsStat::NFS4ERR_OP_ILLEGAL));
        }
        // Each number that the minor version knows is echoed, whatever becomes of it.
        for number in 3..first_unknown {
            let op = OpNum(number);
            let body =
                request(b"tag", minor, 2, &[bytes(&[c.sequence()]), op.0.to_be_bytes().to_vec()].concat());
            c.seq += 1;
            let body = {
                let mut b = body.to_vec();
                let at = 16 + 4 + 16;
                b[at..at + 4].copy_from_slice(&c.seq.to_be_bytes());
                Bytes::from(b)
            };
            let res = call(&c.raw, body).await;
            assert_eq!(res.results.len(), 2, "{op}");
            assert_eq!(res.results[1].op, op);
            assert_ne!(res.results[1].status, NfsStat::NFS4ERR_OP_ILLEGAL, "{op}");
        }
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_what_4_1_has_taken_away_is_not_supported() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    for op in [
        OpNum::OPEN_CONFIRM,
        OpNum::RENEW,
        OpNum::SETCLIENTID,
        OpNum::SETCLIENTID_CONFIRM,
        OpNum::RELEASE_LOCKOWNER,
    ] {
        let last = c.last(vec![ArgOp::Putrootfh, ArgOp::Other(op)]).await;
        assert_eq!((last.op, last.status), (op, NfsStat::NFS4ERR_NOTSUPP));
        let alone = c.raw.alone(ArgOp::Other(op)).await;
        assert_eq!((alone.op, alone.status), (op, NfsStat::NFS4ERR_NOTSUPP), "section 8.8: in any COMPOUND");
    }
    let ssv = c.last(vec![ArgOp::Other(OpNum::SET_SSV)]).await;
    assert_eq!((ssv.op, ssv.status), (OpNum::SET_SSV, NfsStat::NFS4ERR_INVAL), "section 18.47.3");
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_15_1_2_what_comes_before_a_malformed_operation_is_answered() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let malformed: &[(OpNum, &[u8])] = &[
        // A name that is longer than the request.
        (OpNum::LOOKUP, &[0, 0, 0, 200, b'x', b'x', b'x', b'x']),
        // Padding that is not zero.
        (OpNum::LOOKUP, &[0, 0, 0, 1, b'x', 1, 1, 1]),
        // A filehandle of more than 128 bytes.
        (OpNum::PUTFH, &[0, 0, 1, 0]),
        // A stable_how4 and a nfs_lock_type4 that do not exist.
        (OpNum::WRITE, &[[0; 27].as_slice(), &[9, 0, 0, 0, 0]].concat().leak()[..]),
        (OpNum::LOCKT, &[0, 0, 0, 9, 0, 0, 0, 0]),
        // Nothing at all.
        (OpNum::GETATTR, &[]),
        (OpNum::OPEN, &[0, 0]),
        // A bitmap of four billion words.
        (OpNum::GETATTR, &[0xff, 0xff, 0xff, 0xff]),
        // A boolean that is 2.
        (OpNum::RECLAIM_COMPLETE, &[0, 0, 0, 2]),
    ];
    for (op, args) in malformed {
        c.seq += 1;
        let mut ops = bytes(&[c.sequence(), ArgOp::Putrootfh, ArgOp::Getfh]);
        ops.extend(op.0.to_be_bytes());
        ops.extend_from_slice(args);
        let body = request(b"tag", 2, 4, &ops);
        let res = call(&c.raw, body.clone()).await;
        assert_eq!(res.results.len(), 4, "{op}");
        assert!(res.results[..3].iter().all(|r| r.status.is_ok()));
        assert_eq!((res.results[3].op, res.results[3].status), (*op, NfsStat::NFS4ERR_BADXDR));
        assert_eq!(res.status, NfsStat::NFS4ERR_BADXDR);
        // The reply is kept like any other.
        assert_eq!(call(&c.raw, body).await, res);
    }
    // More operations announced than there are.
    c.seq += 1;
    let body = request(b"tag", 2, 5, &bytes(&[c.sequence(), ArgOp::Putrootfh]));
    let res = call(&c.raw, body).await;
    assert_eq!((res.results.len(), res.status), (3, NfsStat::NFS4ERR_BADXDR));
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc5531_9_a_header_that_does_not_decode_is_garbage() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    for body in [vec![], vec![0, 0], vec![0xff; 4], vec![0, 0, 0, 1, b'x'], vec![0; 8]] {
        let res = raw.call(1, Bytes::from(body.clone())).await;
        assert!(matches!(res, Err(CallError::Failed(AcceptStat::GarbageArgs))), "{body:?}: {res:?}");
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_2_1_sequence_comes_first_or_one_of_the_few_alone() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    for op in [ArgOp::Putrootfh, ArgOp::Getfh, ArgOp::ReclaimComplete(false), ArgOp::TestStateid(Vec::new())]
    {
        assert_eq!(c.raw.alone(op).await.status, NfsStat::NFS4ERR_OP_NOT_IN_SESSION);
    }
    let two = c.raw.compound(vec![ArgOp::Putrootfh, c.sequence()]).await;
    assert_eq!((two.status, two.results.len()), (NfsStat::NFS4ERR_OP_NOT_IN_SESSION, 1));
    let sequence = c.sequence();
    let again = c.run(vec![ArgOp::Putrootfh, sequence]).await;
    assert_eq!((again.len(), again[1].status), (2, NfsStat::NFS4ERR_SEQUENCE_POS));
    for op in [ArgOp::DestroyClientid(0), ArgOp::DestroySession([0; 16])] {
        let two = c.raw.compound(vec![op, ArgOp::Putrootfh]).await;
        assert_eq!((two.status, two.results.len()), (NfsStat::NFS4ERR_NOT_ONLY_OP, 1));
    }
}
