//! How delegations end otherwise than by their return, and what their clients hear of it (RFC 8881 sections 10.2.1, 18.38, 18.46.3), over real sockets.

use crate::common;
use crate::delegations::{XOR, open, recalled, rig, rig_with_lease, stateid_of, until_let};
use crate::exports::{Many, RW};
use crate::v40::Client40;

use common::back::*;
use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::flags::{NOTIFY4_WRITE_DELEGATION, SEQ4_STATUS_RECALLABLE_STATE_REVOKED};
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;
use landfast_server::exports::Delegate;
use std::time::Instant;

async fn tested(c: &mut Client, stateids: &[Stateid]) -> Vec<NfsStat> {
    match c.last(vec![ArgOp::TestStateid(stateids.to_vec())]).await.body {
        ResBody::TestStateid(all) => all,
        other => panic!("TEST_STATEID gave {other:?}"),
    }
}

async fn is_told(c: &mut Client) -> bool {
    c.status_flags().await & SEQ4_STATUS_RECALLABLE_STATE_REVOKED != 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_46_3_a_client_that_opens_a_revoked_file_anew_is_still_told_after_a_crash() {
    let mut rig = rig_with_lease(Delegate::Write, 1).await;
    let (mut c, _heard) = crate::delegations::holder(&rig, Vec::new()).await;
    let (res, fh) = open(&mut c, "f", 2 | XOR).await;
    let stateid = stateid_of(&res.delegation).expect("a delegation");
    let mut rival = rig.client(b"rival").await;
    until_let(&mut rival, &fh, read_op(Stateid::ANONYMOUS, 0, 9), Some(&mut c)).await;
    // It has not looked at what it is told, and believes to be alone in the file.
    let (again, _) = open(&mut c, "f", 3).await;
    assert!(stateid_of(&again.delegation).is_none());
    for _ in 0..2 {
        rig.crash().await;
        c.raw = Raw { minor: 2, ..rig.raw().await };
        assert!(is_told(&mut c).await);
        assert_eq!(tested(&mut c, &[stateid]).await, [NfsStat::NFS4ERR_DELEG_REVOKED]);
    }
    assert_eq!(c.last(vec![ArgOp::FreeStateid(stateid)]).await.status, NfsStat::NFS4_OK);
    rig.crash().await;
    c.raw = Raw { minor: 2, ..rig.raw().await };
    assert!(!is_told(&mut c).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn holders_on_an_export_that_was_taken_out_and_put_back_hear_of_it_also_after_a_restart() {
    let both = [("held", RW), ("other", RW)];
    let mut many = Many::new(&both).await;
    let (raw, _heard) = callable(many.server().local_addrs()[0], Vec::new()).await;
    let mut c = with_back_channel_on(raw, vec![CallbackSecParms::None]).await;
    let export = || vec![ArgOp::Putrootfh, ArgOp::Lookup(name("x")), ArgOp::Lookup(name("held"))];
    let (directory, dir) = of_directory(&mut c, export()).await;
    let how = OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
    let ops = [export(), vec![open_op(b"o", "f", 3 | XOR, 0, how)]].concat();
    let file = match c.last(ops).await.body {
        ResBody::Open(open) => stateid_of(&open.delegation).expect("a delegation"),
        other => panic!("OPEN gave {other:?}"),
    };
    many.reload(&both[1..]).await.expect("taken");
    many.reload(&both).await.expect("taken");
    for restarted in [false, true] {
        if restarted {
            many.restart().await;
            c.raw = Raw::new(many.server().local_addrs()[0]).await;
        }
        assert!(is_told(&mut c).await, "restarted: {restarted}");
        let revoked = [NfsStat::NFS4ERR_DELEG_REVOKED; 2];
        assert_eq!(tested(&mut c, &[directory, file]).await, revoked, "restarted: {restarted}");
        let mut rival = many.v4(&[u8::from(restarted)]).await;
        assert_eq!(on(&mut rival, &dir, ArgOp::Lookup(name("n"))).await.status, NfsStat::NFS4ERR_NOENT);
    }
    for stateid in [directory, file] {
        assert_eq!(c.last(vec![ArgOp::FreeStateid(stateid)]).await.status, NfsStat::NFS4_OK);
    }
    assert!(!is_told(&mut c).await);
}

/// Makes a directory that the client is given a write delegation of, as soon as the server has tried out its back channel.
async fn of_directory(c: &mut Client, parent: Vec<ArgOp>) -> (Stateid, FileHandle) {
    let until = Instant::now() + PATIENCE;
    for at in 0.. {
        assert!(Instant::now() < until, "no delegation is given");
        let asked = GetDirDelegationArgs::new(Bitmap::of(&[NOTIFY4_WRITE_DELEGATION]));
        let made = vec![mkdir(&format!("d{at}")), ArgOp::GetDirDelegation(asked), ArgOp::Getfh];
        let mut res = c.run([parent.clone(), made].concat()).await;
        let fh = match res.pop().map(|r| r.body) {
            Some(ResBody::Getfh(fh)) => fh,
            other => panic!("GETFH gave {other:?}"),
        };
        if let Some(ResBody::GetDirDelegation(GetDirDelegationRes::Given(given))) = res.pop().map(|r| r.body)
        {
            assert_eq!(given.notifications, Bitmap::of(&[NOTIFY4_WRITE_DELEGATION]));
            return (given.stateid, fh);
        }
    }
    unreachable!("the loop ends by the time")
}

/// DELAY is none of the errors that leave an owner's number as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_9_1_7_a_lock_that_waits_for_a_delegation_counts() {
    let rig = rig(Delegate::Read).await;
    let (mut c, mut heard) = crate::delegations::holder_of_reads(&rig).await;
    let mut rival = Client40::new(&rig, b"rival").await;
    let (fh, opened) = rival.open("f", 1, 0).await;
    let (res, _) = open(&mut c, "f", 1 | XOR).await;
    let stateid = stateid_of(&res.delegation).expect("a delegation beside somebody who reads");
    let seqid = rival.next();
    let lock = rival.new_lock(opened, seqid, b"lock", 0, (0, 1));
    assert_eq!(rival.on(&fh, lock.clone()).await.status, NfsStat::NFS4ERR_DELAY);
    assert_eq!(recalled(&mut heard).await.stateid, stateid);
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
    // A retry gets the first answer; the next request has the next number.
    assert_eq!(rival.on(&fh, lock).await.status, NfsStat::NFS4ERR_DELAY);
    let seqid = rival.next();
    let lock = rival.new_lock(opened, seqid, b"lock", 0, (0, 1));
    assert_eq!(rival.on(&fh, lock).await.status, NfsStat::NFS4ERR_OPENMODE, "it may only read");
}
