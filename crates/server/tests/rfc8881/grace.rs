//! Grace and reclaim after the death of the server (RFC 8881 sections 8.4.2.1, 9.11, 18.51).

use crate::common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::flags;
use landfast_nfs::v4::*;

fn previous(who: &[u8], share_access: u32) -> ArgOp {
    ArgOp::Open(OpenArgs {
        seqid: 0,
        share_access,
        share_deny: 0,
        owner: owner(0, who),
        openhow: OpenHow::NoCreate,
        claim: OpenClaim::Previous(0),
    })
}

fn lock(open_stateid: Stateid, reclaim: bool, offset: u64) -> ArgOp {
    ArgOp::Lock(LockArgs {
        locktype: LockType::Write,
        reclaim,
        offset,
        length: 10,
        locker: Locker::New { open_seqid: 0, open_stateid, lock_seqid: 0, lock_owner: owner(0, b"l") },
    })
}

fn stateid(res: &[ResOp]) -> Stateid {
    match &res.last().expect("a result").body {
        ResBody::Open(o) => o.stateid,
        ResBody::Lock(s) => *s,
        other => panic!("no stateid: {other:?}"),
    }
}

/// A server that died while `c` held a lock on `f`, and a client `d` that held nothing, both connected again.
async fn after_a_crash(lease_seconds: u32) -> (Rig, Client, Client, FileHandle) {
    let mut rig = Rig::with(landfast_volume::Durability::Log, lease_seconds).await;
    let mut c = rig.client(b"c").await;
    let mut d = rig.client(b"d").await;
    assert_ok(&d.run(vec![ArgOp::Putrootfh, mkdir("d")]).await);
    let (fh, open) = c.open("f", 3).await;
    c.deny("denied").await;
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), write_op(open, 0, b"kept"), lock(open, false, 0)]).await);
    let restored = rig.crash().await;
    assert_eq!(restored.reclaiming, 1);
    (c.raw.conn, d.raw.conn) = (rig.raw().await.conn, rig.raw().await.conn);
    // Who held something is nobody any more; with the same name it is known as who may reclaim.
    assert_eq!(c.sequence_status().await, NfsStat::NFS4ERR_DEADSESSION);
    let c = Client::without_reclaim(c.raw, b"c", 1).await;
    (rig, c, d, fh)
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_8_4_2_1_what_is_served_during_grace_and_what_waits() {
    let (_rig, mut c, mut d, fh) = after_a_crash(90).await;
    let put = ArgOp::Putfh(fh);
    let lockt =
        ArgOp::Lockt(LocktArgs { locktype: LockType::Read, offset: 0, length: 1, owner: owner(0, b"x") });
    let size = fattr(AttrValues { size: Some(0), ..AttrValues::default() });
    let set = |attrs| ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs });
    let rename = ArgOp::Rename(RenameArgs { oldname: name("f"), newname: name("g") });
    let waits = [
        vec![ArgOp::Putrootfh, open_op(b"o", "f", 1, 0, OpenHow::NoCreate)],
        vec![put.clone(), lockt],
        vec![put.clone(), read_op(Stateid::ANONYMOUS, 0, 1)],
        vec![put.clone(), write_op(Stateid::ANONYMOUS, 0, b"x")],
        vec![put.clone(), set(size)],
        vec![ArgOp::Putrootfh, ArgOp::Remove(name("f"))],
        vec![ArgOp::Putrootfh, ArgOp::Savefh, rename],
    ];
    for ops in waits {
        for client in [&mut c, &mut d] {
            let last = client.last(ops.clone()).await;
            assert_eq!(last.status, NfsStat::NFS4ERR_GRACE, "{}", last.op);
        }
    }
    let (option, key, value) = (SetxattrOption::Either, name("k"), name("v"));
    let xattr = ArgOp::Setxattr(SetxattrArgs { option, key, value });
    let served = [
        vec![put.clone(), ArgOp::Getattr(Bitmap::of(&[n::SIZE, n::CHANGE])), ArgOp::Access(1)],
        vec![put.clone(), set(mode(0o600))],
        // As attributes are: RFC 8276 section 8.5 has no GRACE for them.
        vec![put.clone(), xattr],
        vec![put.clone(), ArgOp::Removexattr(name("k"))],
        vec![ArgOp::Putrootfh, ArgOp::Lookup(name("d")), ArgOp::Lookupp, readdir_op(0, 0, 4096, &[n::TYPE])],
        vec![put.clone(), ArgOp::Commit(CommitArgs { offset: 0, count: 0 })],
        vec![ArgOp::TestStateid(vec![Stateid::ANONYMOUS])],
    ];
    for ops in served {
        assert_ok(&d.run(ops).await);
    }
    // Only who was recorded may reclaim; what others claim is bad, or too late.
    assert_eq!(d.status(vec![put.clone(), previous(b"o", 1)]).await, NfsStat::NFS4ERR_NO_GRACE);
    let fresh = vec![put.clone(), previous(b"o", 1)];
    let mut e = Client::without_reclaim(d.raw.clone(), b"e", 1).await;
    assert_eq!(e.status(fresh).await, NfsStat::NFS4ERR_RECLAIM_BAD);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_9_11_opens_and_locks_are_reclaimed_and_hold() {
    let (rig, mut c, mut d, fh) = after_a_crash(90).await;
    assert_eq!(c.status_flags().await, flags::SEQ4_STATUS_RESTART_RECLAIM_NEEDED);
    let put = ArgOp::Putfh(fh);
    let open = stateid(&c.run(vec![put.clone(), previous(b"o", 3)]).await);
    assert_eq!(c.status(vec![put.clone(), lock(open, false, 50)]).await, NfsStat::NFS4ERR_GRACE);
    let held = stateid(&c.run(vec![put.clone(), lock(open, true, 0)]).await);
    assert_ok(&c.run(vec![put.clone(), write_op(held, 0, b"more")]).await);
    assert_ok(&c.run(vec![ArgOp::ReclaimComplete(false)]).await);
    assert_eq!(c.status_flags().await, 0);
    // Grace is over, since all that had to have reclaimed.
    let (_, o) = d.open("f", 3).await;
    assert_eq!(d.status(vec![put.clone(), lock(o, false, 5)]).await, NfsStat::NFS4ERR_DENIED);
    assert_ok(&d.run(vec![put.clone(), lock(o, false, 10)]).await);
    assert_eq!(c.status(vec![put.clone(), lock(open, true, 20)]).await, NfsStat::NFS4ERR_NO_GRACE);
    assert_eq!(c.status(vec![put, previous(b"o", 3)]).await, NfsStat::NFS4ERR_NO_GRACE);
    assert_eq!(rig.server().stats().opens, 2);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_8_4_2_1_grace_ends_with_the_lease_when_a_client_does_not_come_back() {
    let (_rig, _c, mut d, fh) = after_a_crash(1).await;
    let open = vec![ArgOp::Putrootfh, open_op(b"o", "f", 3, 0, OpenHow::NoCreate)];
    let patience = std::time::Instant::now();
    let mut graced = false;
    loop {
        match d.status(open.clone()).await {
            NfsStat::NFS4ERR_GRACE => graced = true,
            status => {
                assert_eq!(status, NfsStat::NFS4_OK);
                break;
            }
        }
        assert!(patience.elapsed() < PATIENCE, "grace for ever");
    }
    assert!(graced);
    assert_ok(&d.run(vec![ArgOp::Putfh(fh), read_op(Stateid::ANONYMOUS, 0, 4)]).await);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_8_4_2_1_a_clean_stop_with_nothing_held_needs_no_grace() {
    let mut rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, open) = c.open("f", 3).await;
    assert_ok(&c.run(vec![ArgOp::Putfh(fh), close_op(open)]).await);
    assert_eq!(rig.restart().await.reclaiming, 0);
    c.raw.conn = rig.raw().await.conn;
    assert_eq!(c.status_flags().await, 0);
    c.open("f", 3).await;
}
