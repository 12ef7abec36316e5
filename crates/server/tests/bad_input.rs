//! Bytes that are no request, and requests that nobody serves. After each the server answers others.

use crate::common;

use common::wire::{PROGRAMS, header, record, send, words};
use common::*;
use landfast_nfs::v4::*;
use landfast_xdr::{Bytes, Encode};
use proptest::prelude::*;

async fn still_serves(rig: &Rig) {
    let mut c = rig.client(b"after").await;
    assert_eq!(c.status(vec![ArgOp::Putrootfh, ArgOp::Getattr(Bitmap::of(&[4]))]).await, NfsStat::NFS4_OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc5531_9_unknown_programs_versions_procedures() {
    let rig = Rig::new().await;
    let accepted = |reply: Vec<u8>| words(&reply)[5..].to_vec();
    assert_eq!(accepted(send(&rig, &record(&header(100_099, 3, 0))).await), [1], "PROG_UNAVAIL");
    // Of each program the versions that are served, and a procedure that needs arguments.
    let served = [
        (100_003, 3, 4, 4, 1),
        (100_003, 3, 4, 3, 1),
        (100_005, 3, 3, 3, 1),
        (100_021, 4, 4, 4, 2),
        (100_024, 1, 1, 1, 6),
        (100_227, 3, 3, 3, 1),
    ];
    for (prog, low, high, vers, proc) in served {
        assert_eq!(accepted(send(&rig, &record(&header(prog, vers, 0))).await), [0], "NULL of {prog}");
        for other in [0, low - 1, high + 1, u32::MAX] {
            let reply = accepted(send(&rig, &record(&header(prog, other, 0))).await);
            assert_eq!(reply, [2, low, high], "PROG_MISMATCH of {prog} {other}");
        }
        for none in [99, u32::MAX] {
            let reply = accepted(send(&rig, &record(&header(prog, vers, none))).await);
            assert_eq!(reply, [3], "PROC_UNAVAIL of {prog} {none}");
        }
        let reply = accepted(send(&rig, &record(&header(prog, vers, proc))).await);
        assert_eq!(reply, [4], "GARBAGE_ARGS of {prog} {vers}");
    }
    still_serves(&rig).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc5531_8_2_credentials_that_lie() {
    let rig = Rig::new().await;
    // Stamp, machine name, user, group, groups.
    let sys = |groups: u32, there: u32| {
        let mut body: Vec<u8> = [0u32, 0, 0, 0, groups].iter().flat_map(|n| n.to_be_bytes()).collect();
        (0..there).for_each(|gid| body.extend(gid.to_be_bytes()));
        body
    };
    let call = |(prog, vers): (u32, u32), flavor: u32, len: u32, body: &[u8]| {
        let mut v = Vec::new();
        for n in [7u32, 0, 2, prog, vers, 0, flavor, len] {
            v.extend(n.to_be_bytes());
        }
        v.extend(body);
        v.extend([0; 8]);
        record(&v)
    };
    let len = |body: &[u8]| body.len() as u32;
    for to in PROGRAMS {
        let good = sys(16, 16);
        let reply = words(&send(&rig, &call(to, 1, len(&good), &good)).await);
        assert_eq!(reply[2..], [0, 0, 0, 0], "accepted by {to:?}");
        // Groups that are announced and not there, one too many, a machine name of 4 GiB, nothing.
        let mut name = sys(0, 0);
        name[4..8].copy_from_slice(&[0xff; 4]);
        for bad in [sys(65_535, 16), sys(u32::MAX, 0), sys(17, 17), name, Vec::new()] {
            let reply = words(&send(&rig, &call(to, 1, len(&bad), &bad)).await);
            // MSG_DENIED, AUTH_ERROR, AUTH_BADCRED.
            assert_eq!(reply[2..], [1, 1, 1], "{to:?} {bad:?}");
        }
        // A flavour that nobody knows; bodies that are longer than any may be.
        let reply = words(&send(&rig, &call(to, 77, 0, &[])).await);
        assert_eq!(reply[2..4], [1, 1]);
        for long in [sys(96, 96), sys(65_535, 65_535)] {
            let answer = send(&rig, &call(to, 1, len(&long), &long)).await;
            assert!(answer.is_empty() || words(&answer)[2] == 1, "refused or cut off: {answer:?}");
        }
    }
    still_serves(&rig).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn records_that_are_none() {
    let rig = Rig::new().await;
    let call = record(&header(100_003, 4, 0));
    for cut in 0..call.len() {
        assert_eq!(send(&rig, &call[..cut]).await, [], "cut at {cut}");
    }
    // A fragment that announces 2 GiB, 4 GiB in two; the largest that would be allowed, and nothing behind it.
    assert_eq!(send(&rig, &[0xff; 8]).await, []);
    assert_eq!(send(&rig, &[0x7f, 0xff, 0xff, 0xff, 1, 2, 3]).await, []);
    assert_eq!(send(&rig, &(0x8000_0000u32 | (4 << 20)).to_be_bytes()).await, []);
    assert_eq!(send(&rig, &[0; 8192]).await, [], "fragments without end and content");
    assert_eq!(send(&rig, &record(&[0xff; 40])).await, [], "no RPC message");
    still_serves(&rig).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn more_operations_than_anybody_may_send() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    c.seq += 1;
    let over = c.again(vec![ArgOp::Putrootfh; c.fore.max_operations as usize]).await;
    assert_eq!(over.status, NfsStat::NFS4ERR_TOO_MANY_OPS);
    let far_over = c.again(vec![ArgOp::Putrootfh; 5000]).await;
    assert_eq!(far_over.status, NfsStat::NFS4ERR_TOO_MANY_OPS);
    // Announced, and not there.
    let sequence = CompoundArgs {
        tag: Bytes::from_static(b"tag"),
        minor_version: 2,
        announced: 1,
        ops: vec![c.sequence()],
    };
    let mut body = sequence.to_bytes().to_vec();
    body[12..16].copy_from_slice(&100u32.to_be_bytes());
    let reply = c.raw.call(1, Bytes::from(body.clone())).await.expect("an answer");
    assert_eq!(words(&[&[0; 4], &reply[..]].concat())[0], NfsStat::NFS4ERR_BADXDR.0);
    still_serves(&rig).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn arguments_cut_anywhere_are_bad_xdr() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let how = args::OpenHow::Create(args::CreateHow::Unchecked(mode(0o644)));
    let ops = vec![
        c.sequence(),
        ArgOp::Putrootfh,
        open_op(b"o", "f", 3, 0, how.clone()),
        write_op(Stateid::CURRENT, 0, b"data"),
    ];
    let whole = c.raw.encode(ops);
    for cut in (0..whole.len()).step_by(4) {
        c.seq += 1;
        let ops = vec![
            c.sequence(),
            ArgOp::Putrootfh,
            open_op(b"o", "f", 3, 0, how.clone()),
            write_op(Stateid::CURRENT, 0, b"data"),
        ];
        let body = c.raw.encode(ops).slice(..cut);
        match c.raw.call(1, body).await {
            Err(landfast_rpc::CallError::Failed(landfast_rpc::AcceptStat::GarbageArgs)) => c.seq -= 1,
            Ok(reply) => {
                let status = words(&[&[0; 4], &reply[..]].concat())[0];
                assert_eq!(NfsStat(status), NfsStat::NFS4ERR_BADXDR, "cut at {cut}");
                // SEQUENCE itself was cut.
                if cut < 16 + 36 {
                    c.seq -= 1;
                }
            }
            Err(e) => panic!("cut at {cut}: {e}"),
        }
    }
    still_serves(&rig).await;
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn any_bytes_as_arguments_get_an_answer() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let rig = runtime.block_on(Rig::new());
    let c = std::cell::RefCell::new(runtime.block_on(rig.client(b"c")));
    let mut runner =
        proptest::test_runner::TestRunner::new(ProptestConfig { cases: 400, ..ProptestConfig::default() });
    let bytes = (prop::collection::vec((0u32..80, prop::collection::vec(any::<u8>(), 0..60)), 1..6), 0u32..8);
    runner
        .run(&bytes, |(ops, announced)| {
            let mut c = c.borrow_mut();
            c.seq += 1;
            let mut body = c.raw.encode(vec![c.sequence(), ArgOp::Putrootfh]).to_vec();
            body[12..16].copy_from_slice(&(2 + announced).to_be_bytes());
            for (op, args) in ops {
                body.extend(op.to_be_bytes());
                body.extend(&args);
                body.resize(body.len().next_multiple_of(4), 0);
            }
            let reply = runtime.block_on(c.raw.call(1, Bytes::from(body)));
            prop_assert!(reply.is_ok(), "{:?}", reply);
            Ok(())
        })
        .expect("an answer to all");
    runtime.block_on(still_serves(&rig));
}
