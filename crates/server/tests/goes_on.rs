//! A client goes on with its opens and locks after the server's death, without a reclaim (RFC 8881 sections 2.10.6.5, 8.4.2.1).

use crate::common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::flags::{OPEN4_SHARE_DENY_READ, OPEN4_SHARE_DENY_WRITE};
use landfast_nfs::v4::*;

/// LOCK of ten bytes from `offset` on by a new lock owner.
pub(crate) fn lock(open_stateid: Stateid, offset: u64) -> ArgOp {
    let lock_owner = owner(0, b"l");
    let locker = Locker::New { open_seqid: 0, open_stateid, lock_seqid: 0, lock_owner };
    ArgOp::Lock(LockArgs { locktype: LockType::Write, reclaim: false, offset, length: 10, locker })
}

/// LOCK of ten bytes from `offset` on by an owner that has locked something.
fn lock_more(lock_stateid: Stateid, offset: u64) -> ArgOp {
    let locker = Locker::Existing { lock_stateid, lock_seqid: 0 };
    ArgOp::Lock(LockArgs { locktype: LockType::Write, reclaim: false, offset, length: 10, locker })
}

fn unlock(lock_stateid: Stateid, offset: u64) -> ArgOp {
    ArgOp::Locku(LockuArgs { locktype: LockType::Write, seqid: 0, lock_stateid, offset, length: 10 })
}

async fn on(c: &mut Client, fh: &FileHandle, op: ArgOp) -> ResOp {
    c.last(vec![ArgOp::Putfh(fh.clone()), op]).await
}

async fn locked(c: &mut Client, fh: &FileHandle, op: ArgOp) -> Stateid {
    match on(c, fh, op).await.body {
        ResBody::Lock(s) | ResBody::Locku(s) => s,
        other => panic!("no stateid of a lock: {other:?}"),
    }
}

/// The server dies and comes back; nobody has to reclaim.
async fn crash(rig: &mut Rig, clients: [&mut Client; 2]) {
    assert_eq!(rig.crash().await.reclaiming, 0);
    for c in clients {
        c.raw.conn = rig.raw().await.conn;
        assert_eq!(c.status_flags().await, 0);
    }
}

async fn two(rig: &Rig) -> (Client, Client) {
    (rig.client(b"c").await, rig.client(b"d").await)
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_8_4_2_1_opens_go_on_after_a_crash() {
    let mut rig = Rig::new().await;
    let (mut c, mut d) = two(&rig).await;
    let (fh, s) = c.open("f", 3).await;
    let (there, read) = c.open("f", 1).await;
    assert_eq!((&there, read.other), (&fh, s.other), "the same open");
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), write_op(read, 0, b"kept")]).await);
    crash(&mut rig, [&mut c, &mut d]).await;
    let zero = Stateid { seqid: 0, ..s };
    let got = on(&mut c, &fh, read_op(zero, 0, 9)).await;
    assert!(matches!(&got.body, ResBody::Read(r) if &r.data[..] == b"kept"), "{got:?}");
    assert_ok(&[on(&mut c, &fh, write_op(zero, 0, b"more")).await]);
    assert_eq!(rig.server().stats().opens, 1);
    // Another file's handle with it, or a future instance's mark.
    let (other, _) = d.open("other", 1).await;
    assert_eq!(on(&mut c, &other, read_op(zero, 0, 9)).await.status, NfsStat::NFS4ERR_BAD_STATEID);
    let mut future = s;
    future.other[3] = future.other[3].wrapping_add(7);
    assert_eq!(on(&mut c, &fh, read_op(future, 0, 9)).await.status, NfsStat::NFS4ERR_BAD_STATEID);
    // Its sequence number is the client's.
    let downgrade = ArgOp::OpenDowngrade(OpenDowngradeArgs {
        open_stateid: read,
        seqid: 0,
        share_access: 1,
        share_deny: 0,
    });
    let down = match on(&mut c, &fh, downgrade).await.body {
        ResBody::OpenDowngrade(s) => s,
        other => panic!("OPEN_DOWNGRADE gave {other:?}"),
    };
    assert_eq!(down, Stateid { seqid: read.seqid + 1, ..read });
    assert_eq!(on(&mut c, &fh, close_op(read)).await.status, NfsStat::NFS4ERR_OLD_STATEID);
    assert_ok(&[on(&mut c, &fh, close_op(down)).await]);
    assert_eq!(on(&mut c, &fh, close_op(down)).await.status, NfsStat::NFS4_OK, "as one that was never used");
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_open_anew_takes_the_place_of_the_former_one() {
    let mut rig = Rig::new().await;
    let (mut c, mut d) = two(&rig).await;
    let (fh, s) = c.open("f", 3).await;
    let (_, ds) = d.open("f", 3).await;
    let l = locked(&mut c, &fh, lock(s, 0)).await;
    crash(&mut rig, [&mut c, &mut d]).await;
    assert_ok(&[on(&mut c, &fh, write_op(Stateid { seqid: 0, ..s }, 0, b"x")).await]);
    let (_, anew) = c.open("f", 3).await;
    assert_ne!(anew.other, s.other);
    assert_eq!(anew.seqid, 1, "as a client expects of an open that it does not know");
    assert_eq!(on(&mut d, &fh, lock(ds, 0)).await.status, NfsStat::NFS4ERR_DENIED);
    assert_ok(&[on(&mut c, &fh, write_op(Stateid { seqid: 0, ..l }, 0, b"y")).await]);
    // Its locks are under the new open, and go with it; and stay gone.
    assert_ok(&[on(&mut c, &fh, close_op(anew)).await]);
    crash(&mut rig, [&mut c, &mut d]).await;
    locked(&mut d, &fh, lock(ds, 0)).await;
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_9_locks_are_held_over_crashes_until_they_are_released() {
    let mut rig = Rig::new().await;
    let (mut c, mut d) = two(&rig).await;
    let (fh, s) = c.open("f", 3).await;
    let (_, ds) = d.open("f", 3).await;
    let l = locked(&mut c, &fh, lock(s, 0)).await;
    let l = locked(&mut c, &fh, lock_more(l, 40)).await;
    for round in 0..2 {
        crash(&mut rig, [&mut c, &mut d]).await;
        for offset in [5, 45] {
            let res = on(&mut d, &fh, lock(ds, offset)).await;
            let ResBody::Denied(held) = &res.body else { panic!("{round}: {res:?}") };
            assert_eq!((held.owner.clientid, &held.owner.owner.0[..]), (c.id, &b"l"[..]));
        }
    }
    locked(&mut d, &fh, lock(ds, 20)).await;
    assert_ok(&[on(&mut c, &fh, write_op(Stateid { seqid: 0, ..l }, 0, b"x")).await]);
    let l = locked(&mut c, &fh, unlock(l, 0)).await;
    crash(&mut rig, [&mut c, &mut d]).await;
    let dl = locked(&mut d, &fh, lock(Stateid { seqid: 0, ..ds }, 0)).await;
    assert_eq!(on(&mut d, &fh, lock_more(dl, 40)).await.status, NfsStat::NFS4ERR_DENIED);
    assert_eq!(on(&mut c, &fh, lock_more(l, 20)).await.status, NfsStat::NFS4ERR_DENIED);
    // A clean stop changes nothing.
    assert_eq!(rig.restart().await.reclaiming, 0);
    (c.raw.conn, d.raw.conn) = (rig.raw().await.conn, rig.raw().await.conn);
    assert_eq!(on(&mut d, &fh, lock_more(dl, 40)).await.status, NfsStat::NFS4ERR_DENIED);
    // CLOSE releases what is locked, and the log knows before it is answered.
    assert_ok(&[on(&mut c, &fh, close_op(s)).await]);
    crash(&mut rig, [&mut c, &mut d]).await;
    locked(&mut d, &fh, lock_more(dl, 40)).await;
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_9_7_nobody_is_promised_that_there_are_no_opens_while_some_may_be_unknown() {
    let mut rig = Rig::with(landfast_volume::Durability::Log, 2).await;
    let (mut c, mut d) = two(&rig).await;
    let (fh, s) = c.open("f", 3).await;
    crash(&mut rig, [&mut c, &mut d]).await;
    let deny = vec![ArgOp::Putrootfh, open_op(b"o", "f", 1, OPEN4_SHARE_DENY_WRITE, OpenHow::NoCreate)];
    assert_eq!(d.status(deny.clone()).await, NfsStat::NFS4ERR_GRACE);
    assert_ok(&[on(&mut c, &fh, write_op(Stateid { seqid: 0, ..s }, 0, b"x")).await]);
    let begun = std::time::Instant::now();
    loop {
        match d.status(deny.clone()).await {
            NfsStat::NFS4ERR_GRACE => assert!(begun.elapsed() < PATIENCE, "for ever"),
            status => break assert_eq!(status, NfsStat::NFS4ERR_SHARE_DENIED, "c has used its open"),
        }
    }
}

/// Clients may read by an open that is for writing only, for the sake of their page caches; but not while whoever denies that may have to reclaim.
#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_9_1_2_an_open_for_writing_reads_nothing_while_a_denial_may_be_reclaimed() {
    let mut rig = Rig::new().await;
    let (mut c, mut d) = two(&rig).await;
    let (f, writes) = c.open("f", 2).await;
    let (g, both) = c.open("g", 3).await;
    let deny = open_op(b"o", "f", 1, OPEN4_SHARE_DENY_READ, OpenHow::NoCreate);
    assert_ok(&d.run(vec![ArgOp::Putrootfh, deny]).await);
    assert_eq!(rig.crash().await.reclaiming, 1);
    c.raw.conn = rig.raw().await.conn;
    let [writes, both] = [writes, both].map(|s| Stateid { seqid: 0, ..s });
    assert_eq!(on(&mut c, &f, read_op(writes, 0, 9)).await.status, NfsStat::NFS4ERR_GRACE);
    assert_ok(&[on(&mut c, &f, write_op(writes, 0, b"x")).await, on(&mut c, &g, read_op(both, 0, 9)).await]);
    assert_eq!(on(&mut c, &f, read_op(writes, 0, 9)).await.status, NfsStat::NFS4ERR_GRACE);
}

/// More ranges than the log takes of one owner: the client reclaims, as long as it has them.
#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn who_locks_more_than_the_log_takes_reclaims() {
    let mut rig = Rig::new().await;
    let (mut c, _d) = two(&rig).await;
    let (fh, s) = c.open("f", 3).await;
    let mut l = locked(&mut c, &fh, lock(s, 0)).await;
    for n in 1..500 {
        l = locked(&mut c, &fh, lock_more(l, n * 20)).await;
    }
    assert_eq!(rig.crash().await.reclaiming, 1);
    c.raw.conn = rig.raw().await.conn;
    assert_eq!(c.sequence_status().await, NfsStat::NFS4ERR_DEADSESSION);
}
