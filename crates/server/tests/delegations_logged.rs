//! Delegations of files that were there: when the log knows them, and what that costs. Clients that are asked to return some (CB_RECALL_ANY).

use crate::common::back::*;
use crate::common::*;
use crate::delegations::{holder, rig, rig_with_lease, stateid_of, tried_out};
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::callback::*;
use landfast_nfs::v4::flags::*;
use landfast_nfs::v4::*;
use landfast_server::exports::Delegate;
use landfast_server::limited::Limit;
use landfast_server::limits;
use std::time::{Duration, Instant};
use tokio::time::timeout;

const XOR: u32 = OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;

fn make(rig: &Rig, files: usize) {
    for at in 0..files {
        std::fs::write(rig.export().join(format!("there{at}")), b"data").expect("a file");
    }
}

/// OPEN of a file that is there, for reading: the delegation and the handle. What was opened without one is closed.
async fn read(c: &mut Client, at: usize) -> (Option<Stateid>, FileHandle) {
    let open = open_op(b"o", &format!("there{at}"), 1 | XOR, 0, OpenHow::NoCreate);
    let res = c.run(vec![ArgOp::Putrootfh, open, ArgOp::Getfh]).await;
    assert_ok(&res);
    let (open, fh) = match (&res[1].body, &res[2].body) {
        (ResBody::Open(open), ResBody::Getfh(fh)) => (open, fh.clone()),
        other => panic!("OPEN gave {other:?}"),
    };
    let given = stateid_of(&open.delegation);
    if given.is_none() {
        assert_ok(&[on(c, &fh, close_op(open.stateid)).await]);
    }
    (given, fh)
}

async fn on(c: &mut Client, fh: &FileHandle, op: ArgOp) -> ResOp {
    c.last(vec![ArgOp::Putfh(fh.clone()), op]).await
}

fn flushes(rig: &Rig) -> u64 {
    rig.server().volumes()[0].stats().log.expect("a log").batches
}

/// Returns when the log knows all delegations.
async fn settled(rig: &Rig) {
    let until = Instant::now() + PATIENCE;
    while rig.server().stats().delegations_unlogged > 0 {
        assert!(Instant::now() < until, "the log is not told");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The server dies and comes back, and the client goes on in its session.
async fn crash(rig: &mut Rig, c: &mut Client) {
    let restored = rig.crash().await;
    assert_eq!((restored.sessions, restored.reclaiming), (1, 0));
    c.raw = callable(rig.addr(), Vec::new()).await.0;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_client_goes_on_with_a_delegation_of_a_file_that_was_there() {
    let mut rig = rig(Delegate::Write).await;
    make(&rig, 1);
    let (mut c, _heard) = holder(&rig, Vec::new()).await;
    let (given, fh) = read(&mut c, 0).await;
    let given = given.expect("a delegation");
    // At once after the answer.
    crash(&mut rig, &mut c).await;
    assert_ok(&[on(&mut c, &fh, read_op(given, 0, 9)).await]);
    assert_eq!(rig.server().stats().delegations, 1);
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(given)).await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn of_many_files_that_were_there_few_opens_wait_for_the_log_and_all_are_known_soon() {
    const FILES: usize = 300;
    let mut rig = rig(Delegate::Write).await;
    make(&rig, FILES);
    let (mut c, _heard) = holder(&rig, Vec::new()).await;
    let (before, began) = (flushes(&rig), Instant::now());
    let mut given = Vec::new();
    for at in 0..FILES {
        let (stateid, fh) = read(&mut c, at).await;
        given.push((stateid.expect("a delegation"), fh));
    }
    // Each that waits has a flush. Now and then the client is given none for a while, so that the log is told of all; that is one, and one more says
    // that the client holds something.
    let took = began.elapsed().as_millis() as u64;
    let each = limits::GRANTS_AWAITED_EACH_MS.min(limits::GRANTS_SETTLE_MS);
    let most = limits::GRANTS_AWAITED_AT_ONCE + 3 * (took / each) + 4;
    let flushed = flushes(&rig) - before;
    assert!((1..=most).contains(&flushed), "{flushed} flushes in {took} ms");
    settled(&rig).await;
    crash(&mut rig, &mut c).await;
    assert_eq!(rig.server().stats().delegations, FILES);
    for (stateid, fh) in &given {
        assert_ok(&[on(&mut c, fh, read_op(*stateid, 0, 9)).await]);
    }
}

/// A request that is repeated after the crash is answered with the same delegation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_6_an_open_that_is_sent_again_after_a_crash_gives_the_same_delegation() {
    let mut rig = rig(Delegate::Write).await;
    make(&rig, 1);
    let (mut c, _heard) = holder(&rig, Vec::new()).await;
    let (first, _) = read(&mut c, 0).await;
    crash(&mut rig, &mut c).await;
    c.seq -= 1;
    let (again, _) = read(&mut c, 0).await;
    assert_eq!((again, first.is_some()), (first, true));
    assert_eq!(rig.server().stats().delegations, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_20_6_a_client_near_its_limit_is_asked_for_delegations_of_its_choice() {
    let mut rig = rig_with_lease(Delegate::Write, 5).await;
    rig.limits = rig.limits.with(Limit::ClientOpens, 16);
    rig.restart().await;
    make(&rig, 40);
    let (mut c, mut heard) = with_back_channel(&rig, Vec::new()).await;
    tried_out(&mut c).await;
    let (mut given, began) = (Vec::new(), Instant::now());
    for at in 0..20 {
        if let (Some(stateid), fh) = read(&mut c, at).await {
            given.push((stateid, fh));
        }
    }
    assert_eq!(given.len(), 15, "one is left to opens");
    let asks = |args: &CbCompoundArgs| match args.ops.get(1) {
        Some(CbOp::RecallAny(any)) => *any,
        other => panic!("the client heard {other:?}"),
    };
    let (_, first) = timeout(PATIENCE, heard.recv()).await.expect("in time").expect("a callback");
    let types = Bitmap::of(&[RCA4_TYPE_MASK_RDATA_DLG, RCA4_TYPE_MASK_WDATA_DLG]);
    assert_eq!(asks(&first), CbRecallAnyArgs { objects_to_keep: 12, types });
    let counts = rig.server().stats().delegation_counts;
    assert_eq!((counts.asked_any, counts.recalled), (1, 0));
    // It returns nothing. A lease later it is asked again.
    let second = loop {
        assert!(began.elapsed() < PATIENCE, "it is not asked again");
        if let Ok((_, args)) = heard.try_recv() {
            break args;
        }
        assert_eq!(read(&mut c, 30).await.0, None);
    };
    assert!(began.elapsed() >= Duration::from_secs(5), "before a lease is over");
    assert!(asks(&second).objects_to_keep == 12);
    // Who returns some is given others.
    for (stateid, fh) in given.drain(..5) {
        assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
    }
    assert!(read(&mut c, 39).await.0.is_some());
}
