//! The lock manager of NFSv3 (NLM version 4) as bytes on a socket: RFC 1813 appendix II, C702 (XNFS) chapters 10 and 14.

use crate::common;

use common::lockd::{Lockd, cookie, portmapper_port, text};
use common::*;
use landfast_nfs::nlm::{self, Holder, NlmStat, Res, TestArgs, proc};
use landfast_nfs::nsm;
use landfast_nfs::v4::args::{LockArgs, Locker, OpenHow};
use landfast_nfs::v4::*;
use landfast_volume::Durability;
use landfast_xdr::{Bytes, Decode, Encode};
use std::net::IpAddr;

const GRANTED: NlmStat = NlmStat::GRANTED;
const DENIED: NlmStat = NlmStat::DENIED;
const BLOCKED: NlmStat = NlmStat::BLOCKED;
const DEADLCK: NlmStat = NlmStat::DEADLCK;
const FBIG: NlmStat = NlmStat::FBIG;

/// What a process asks for. Locks are exclusive unless they are said to be shared.
#[derive(Debug, Clone, Copy)]
enum Ask {
    Lock,
    LockShared,
    Wait,
    WaitShared,
    Unlock,
    Cancel,
    CancelShared,
}
use Ask::*;

/// A host by its place in a list, a process of it, what it asks for, which bytes (length 0: to the end), what it is told, and why.
type Row = (usize, i32, Ask, u64, u64, NlmStat, &'static str);
const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

async fn play(hosts: &mut [&mut Lockd], file: &FileHandle, rows: &[Row]) {
    for (n, row) in rows.iter().enumerate() {
        let (host, svid, ask, offset, length, told, _) = *row;
        let host = &mut hosts[host];
        let bytes = host.bytes(file, svid, offset, length);
        let stat = match ask {
            Lock => host.lock(bytes, true).await,
            LockShared => host.lock(bytes, false).await,
            Wait => host.lock_and_wait(bytes, true).await,
            WaitShared => host.lock_and_wait(bytes, false).await,
            Unlock => host.unlock(bytes).await,
            Cancel => host.cancel(bytes, true).await,
            CancelShared => host.cancel(bytes, false).await,
        };
        assert_eq!(stat, told, "row {n}: {row:?}");
    }
}

/// A server and a file `f` on it.
async fn rig(lease_seconds: u32) -> (Rig, Client, FileHandle, Stateid) {
    let mut rig = Rig::with(Durability::Log, lease_seconds).await;
    rig.portmapper = portmapper_port().await;
    rig.restart().await;
    let mut v4 = rig.client(b"v4").await;
    let (file, stateid) = v4.open("f", 3).await;
    (rig, v4, file, stateid)
}

fn v4_lock(open_stateid: Stateid, locktype: LockType, offset: u64, length: u64) -> ArgOp {
    ArgOp::Lock(LockArgs {
        locktype,
        reclaim: false,
        offset,
        length,
        locker: Locker::New {
            open_seqid: 0,
            open_stateid,
            lock_seqid: 0,
            lock_owner: args::owner(0, b"v4 owner"),
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc1813_6_1_4_lock_test_unlock() {
    let (rig, _v4, f, _) = rig(90).await;
    let (mut a, mut b) = (Lockd::new(&rig, "a", 2).await, Lockd::new(&rig, "b", 3).await);
    for by_udp in [false, true] {
        (a.by_udp, b.by_udp) = (by_udp, by_udp);
        let rows = [(A, 1, Lock, 10, 10, GRANTED, ""), (A, 1, Lock, 10, 10, GRANTED, "the same again")];
        play(&mut [&mut a], &f, &rows).await;
        let denied = b.test(b.bytes(&f, 7, 0, 0), false).await;
        let holder = Holder { exclusive: true, svid: 1, oh: text("1@a"), offset: 10, length: 10 };
        assert_eq!((denied.stat, denied.holder), (DENIED, Some(holder)));
        let rows = [
            (B, 7, LockShared, 19, 1, DENIED, ""),
            (A, 2, LockShared, 19, 1, DENIED, "another process of the same host"),
            (B, 7, LockShared, 20, 0, GRANTED, "to the end"),
            (A, 1, LockShared, 1 << 40, 5, GRANTED, "shared by two"),
        ];
        play(&mut [&mut a, &mut b], &f, &rows).await;
        let denied = a.test(a.bytes(&f, 1, 1 << 50, 5), true).await;
        let holder = Holder { exclusive: false, svid: 7, oh: text("7@b"), offset: 20, length: 0 };
        assert_eq!((denied.stat, denied.holder), (DENIED, Some(holder)));
        // The middle of a lock; then all of it, twice.
        assert_eq!(a.unlock(a.bytes(&f, 1, 12, 2)).await, GRANTED);
        assert_eq!(b.test(b.bytes(&f, 7, 12, 2), true).await.stat, GRANTED);
        assert_eq!(
            b.test(b.bytes(&f, 7, 14, 1), true).await.holder.map(|h| (h.offset, h.length)),
            Some((14, 6))
        );
        for _ in 0..2 {
            let rows = [(A, 1, Unlock, 0, 0, GRANTED, ""), (B, 7, Unlock, 0, 0, GRANTED, "")];
            play(&mut [&mut a, &mut b], &f, &rows).await;
        }
        assert_eq!(a.test(a.bytes(&f, 1, 0, 0), true).await.stat, GRANTED);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc1813_6_1_4_what_is_refused() {
    let (rig, mut v4, f, _) = rig(90).await;
    let mut a = Lockd::new(&rig, "a", 2).await;
    let max = i64::MAX as u64;
    let rows = [
        (A, 1, Lock, max, 1, GRANTED, ""),
        (A, 1, Lock, max, 2, FBIG, ""),
        (A, 1, Lock, max + 1, 0, FBIG, ""),
        (A, 1, Lock, 1, u64::MAX, FBIG, ""),
    ];
    play(&mut [&mut a], &f, &rows).await;
    let mut forged = f.clone();
    forged.0 = f.0.iter().map(|b| b ^ 1).collect::<Vec<u8>>().into();
    assert_eq!(a.lock(a.bytes(&forged, 1, 0, 1), true).await, NlmStat::STALE_FH);
    assert_eq!(a.unlock(a.bytes(&forged, 1, 0, 1)).await, GRANTED, "nothing is locked there");
    let dir = v4.handle(&[]).await;
    assert_eq!(a.lock(a.bytes(&dir, 1, 0, 1), true).await, NlmStat::FAILED);
    // A file that is gone is unlocked all the same.
    assert_eq!(v4.status(vec![ArgOp::Putrootfh, ArgOp::Remove(name("f"))]).await, NfsStat::NFS4_OK);
    assert_eq!(a.unlock(a.bytes(&f, 1, 0, 0)).await, GRANTED);
    // Bytes that are no arguments, procedures that are none.
    let nlm = nlm::PROGRAM;
    for proc in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 20, 21, 22, 23] {
        let expected = if (11..=14).contains(&proc) { 0 } else { 4 };
        assert_eq!(a.raw(nlm, 4, proc, &[0xff; 40]).await.0, expected, "procedure {proc}");
    }
    for proc in [16, 17, 18, 19, 24] {
        assert_eq!(a.raw(nlm, 4, proc, &[]).await.0, 3, "procedure {proc}");
    }
    assert_eq!(a.raw(nlm, 4, 0, &[]).await, (0, Bytes::new()), "NULL");
    assert_eq!(a.raw(nlm, 3, 0, &[]).await.0, 2, "another version");
    assert_eq!(a.lock(a.bytes(&dir, 1, 0, 1), true).await, NlmStat::FAILED, "still answers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_10_locks_of_both_protocols_are_in_one_table() {
    let (rig, mut v4, f, stateid) = rig(90).await;
    let mut a = Lockd::new(&rig, "a", 2).await;
    assert_eq!(a.lock(a.bytes(&f, 1, 0, 10), true).await, GRANTED);
    let put = ArgOp::Putfh(f.clone());
    let denied = v4.last(vec![put.clone(), v4_lock(stateid, LockType::Read, 5, 10)]).await;
    assert_eq!(denied.status, NfsStat::NFS4ERR_DENIED);
    match denied.body {
        ResBody::Denied(d) => {
            assert_eq!((d.offset, d.length, d.locktype), (0, 10, LockType::Write));
            assert_eq!(&d.owner.owner.0[4..], b"1@a");
        }
        other => panic!("LOCK gave {other:?}"),
    }
    let locked = v4_lock(stateid, LockType::Write, 10, u64::MAX);
    assert_ok(&v4.run(vec![put.clone(), locked]).await);
    let denied = a.test(a.bytes(&f, 1, 50, 1), false).await;
    let holder = Holder { exclusive: true, svid: 0, oh: text("v4 owner"), offset: 10, length: 0 };
    assert_eq!((denied.stat, denied.holder), (DENIED, Some(holder)));
    assert_eq!(a.lock(a.bytes(&f, 1, 5, 10), true).await, DENIED);
    // CLOSE gives the locks back, and NLM's are left alone.
    assert_ok(&v4.run(vec![put.clone(), close_op(stateid)]).await);
    assert_eq!(a.lock(a.bytes(&f, 1, 5, 10), true).await, GRANTED);
    let (f2, stateid) = v4.open("f", 3).await;
    let again = vec![ArgOp::Putfh(f2), v4_lock(stateid, LockType::Read, 14, 1)];
    assert_eq!(v4.status(again).await, NfsStat::NFS4ERR_DENIED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn c702_14_share_reservations_of_both_protocols() {
    let (rig, mut v4, f, stateid) = rig(90).await;
    let (mut a, mut b) = (Lockd::new(&rig, "a", 2).await, Lockd::new(&rig, "b", 3).await);
    assert_eq!(a.share(proc::SHARE, &f, 1, 2).await, DENIED, "the v4 client may write");
    assert_ok(&v4.run(vec![ArgOp::Putfh(f.clone()), close_op(stateid)]).await);
    assert_eq!(a.share(proc::SHARE, &f, 1, 2).await, GRANTED);
    assert_eq!(b.share(proc::SHARE, &f, 2, 0).await, DENIED);
    assert_eq!(b.share(proc::SHARE, &f, 1, 0).await, GRANTED);
    let open = |access, deny| vec![ArgOp::Putrootfh, open_op(b"o", "f", access, deny, OpenHow::NoCreate)];
    assert_eq!(v4.status(open(2, 0)).await, NfsStat::NFS4ERR_SHARE_DENIED);
    assert_eq!(v4.status(open(1, 1)).await, NfsStat::NFS4ERR_SHARE_DENIED);
    assert_eq!(v4.status(open(1, 2)).await, NfsStat::NFS4_OK);
    assert_eq!(a.share(proc::SHARE, &f, 1, 0).await, GRANTED, "less than before");
    assert_eq!(a.share(proc::SHARE, &f, 4, 0).await, NlmStat::FAILED, "no such access");
    for _ in 0..2 {
        assert_eq!(a.share(proc::UNSHARE, &f, 1, 0).await, GRANTED);
    }
    assert_eq!(b.share(proc::UNSHARE, &f, 1, 0).await, GRANTED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn c702_10_a_blocked_lock_is_granted_when_it_is_free() {
    let (rig, mut v4, f, stateid) = rig(90).await;
    let (mut a, mut b) = (Lockd::new(&rig, "a", 2).await, Lockd::new(&rig, "b", 3).await);
    for by_udp in [false, true] {
        (a.by_udp, b.by_udp) = (by_udp, by_udp);
        assert_eq!(a.lock(a.bytes(&f, 1, 0, 10), true).await, GRANTED);
        let wanted = b.bytes(&f, 7, 5, 0);
        for _ in 0..2 {
            assert_eq!(b.lock_and_wait(wanted.clone(), true).await, BLOCKED, "and when asked again");
        }
        assert_eq!(a.unlock(a.bytes(&f, 1, 0, 5)).await, GRANTED);
        assert_eq!(a.unlock(a.bytes(&f, 1, 0, 0)).await, GRANTED);
        let called = b.hears().await;
        assert_eq!((called.prog, called.proc, called.udp), (nlm::PROGRAM, proc::GRANTED, by_udp));
        let args = TestArgs::from_bytes(called.body).expect("arguments");
        assert_eq!((args.lock, args.exclusive), (wanted, true));
        assert_eq!(a.test(a.bytes(&f, 1, 9, 1), true).await.holder.map(|h| h.svid), Some(7));
        assert_eq!(b.unlock(b.bytes(&f, 7, 0, 0)).await, GRANTED);
    }
    // A lock of NFSv4 that goes frees it, too.
    let put = ArgOp::Putfh(f.clone());
    assert_ok(&v4.run(vec![put.clone(), v4_lock(stateid, LockType::Write, 0, 10)]).await);
    assert_eq!(b.lock_and_wait(b.bytes(&f, 7, 0, 1), true).await, BLOCKED);
    assert_ok(&v4.run(vec![put, close_op(stateid)]).await);
    assert_eq!(b.hears().await.proc, proc::GRANTED);
    assert!(b.heard.try_recv().is_err(), "told once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn c702_10_a_grant_that_is_not_wanted_goes_to_the_next() {
    let (rig, _v4, f, _) = rig(90).await;
    let (mut a, mut b) = (Lockd::new(&rig, "a", 2).await, Lockd::new(&rig, "b", 3).await);
    let mut c = Lockd::new(&rig, "c", 4).await;
    b.answers(Some(DENIED));
    let rows = [
        (A, 1, Lock, 0, 0, GRANTED, ""),
        (B, 2, Wait, 0, 0, BLOCKED, ""),
        (C, 3, Wait, 0, 0, BLOCKED, ""),
        (A, 1, Unlock, 0, 0, GRANTED, ""),
    ];
    play(&mut [&mut a, &mut b, &mut c], &f, &rows).await;
    assert_eq!(b.hears().await.proc, proc::GRANTED);
    assert_eq!(c.hears().await.proc, proc::GRANTED);
    // The server has c's answer when c's lock can no longer be cancelled.
    while c.cancel(c.bytes(&f, 9, 0, 0), true).await != DENIED {}
    assert_eq!(a.test(a.bytes(&f, 1, 0, 1), true).await.holder.map(|h| h.svid), Some(3));
    // One that asks again while it is being told gets it at once; that its answer was lost does no harm.
    a.answers(None);
    assert_eq!(a.lock_and_wait(a.bytes(&f, 1, 0, 0), true).await, BLOCKED);
    assert_eq!(c.unlock(c.bytes(&f, 3, 0, 0)).await, GRANTED);
    assert_eq!(a.hears().await.proc, proc::GRANTED);
    assert_eq!(c.test(c.bytes(&f, 3, 0, 1), true).await.holder.map(|h| h.svid), Some(1), "kept for it");
    assert_eq!(a.lock_and_wait(a.bytes(&f, 1, 0, 0), true).await, GRANTED);
}

/// Linux compares where it comes from.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn c702_10_granted_comes_from_the_address_that_was_asked() {
    let (mut rig, _v4, f, _) = rig(90).await;
    let second = IpAddr::from([127, 0, 0, 9]);
    rig.listen.push((second, 0).into());
    rig.restart().await;
    let (mut a, mut b) = (Lockd::new(&rig, "a", 2).await, Lockd::new(&rig, "b", 3).await);
    let at = rig.server().local_addrs().iter().find(|at| at.ip() == second);
    b.server = *at.expect("it listens there");
    for by_udp in [false, true] {
        b.by_udp = by_udp;
        let rows = [
            (A, 1, Lock, 0, 0, GRANTED, ""),
            (B, 7, Wait, 0, 0, BLOCKED, ""),
            (A, 1, Unlock, 0, 0, GRANTED, ""),
        ];
        play(&mut [&mut a, &mut b], &f, &rows).await;
        let called = b.hears().await;
        assert_eq!((called.proc, called.udp, called.from), (proc::GRANTED, by_udp, second));
        assert_eq!(b.unlock(b.bytes(&f, 7, 0, 0)).await, GRANTED);
    }
}

/// It has heard the first GRANTED, whose answer is lost; it no longer waits when the second comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn c702_10_a_refusal_of_what_is_told_again_takes_nothing() {
    let (rig, _v4, f, _) = rig(90).await;
    let (mut a, mut b) = (Lockd::new(&rig, "a", 2).await, Lockd::new(&rig, "b", 3).await);
    for by_udp in [false, true] {
        (a.by_udp, b.by_udp) = (by_udp, by_udp);
        b.answers(None);
        let rows = [
            (A, 1, Lock, 0, 0, GRANTED, ""),
            (B, 7, Wait, 0, 0, BLOCKED, ""),
            (A, 1, Unlock, 0, 0, GRANTED, ""),
        ];
        play(&mut [&mut a, &mut b], &f, &rows).await;
        assert_eq!(b.hears().await.proc, proc::GRANTED);
        b.answers(Some(DENIED));
        assert_eq!(b.hears().await.proc, proc::GRANTED);
        let answered = tokio::time::timeout(PATIENCE, async {
            while rig.server().stats().nlm_waiters > 0 {
                tokio::task::yield_now().await;
            }
        });
        answered.await.expect("the server has the answer");
        assert_eq!(a.test(a.bytes(&f, 1, 0, 1), true).await.holder.map(|h| h.svid), Some(7));
        assert_eq!(b.unlock(b.bytes(&f, 7, 0, 0)).await, GRANTED);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn c702_10_cancel() {
    let (rig, _v4, f, _) = rig(90).await;
    let (mut a, mut b) = (Lockd::new(&rig, "a", 2).await, Lockd::new(&rig, "b", 3).await);
    let rows = [
        (A, 1, Lock, 0, 0, GRANTED, ""),
        (B, 7, Cancel, 0, 4, DENIED, "nothing waits"),
        (B, 7, Wait, 0, 4, BLOCKED, ""),
        (B, 7, Wait, 8, 4, BLOCKED, ""),
        (B, 7, CancelShared, 0, 4, DENIED, "of another kind"),
        (A, 7, Cancel, 0, 4, DENIED, "another host's"),
        (B, 7, Cancel, 0, 4, GRANTED, ""),
        (A, 1, Unlock, 0, 0, GRANTED, ""),
    ];
    play(&mut [&mut a, &mut b], &f, &rows).await;
    let args = TestArgs::from_bytes(b.hears().await.body).expect("arguments");
    assert_eq!(args.lock.offset, 8, "only the other");
    assert_eq!(a.lock(a.bytes(&f, 1, 0, 4), true).await, GRANTED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc1813_6_2_asynchronous_messages_are_answered_by_calls() {
    let (rig, _v4, f, _) = rig(90).await;
    let (mut a, mut b) = (Lockd::new(&rig, "a", 2).await, Lockd::new(&rig, "b", 3).await);
    for by_udp in [false, true] {
        (a.by_udp, b.by_udp) = (by_udp, by_udp);
        assert_eq!(a.lock(a.bytes(&f, 1, 0, 0), true).await, GRANTED);
        let args = b.lock_args(b.bytes(&f, 7, 0, 4), true, true).to_bytes();
        b.message(proc::LOCK_MSG, args).await;
        let called = b.hears().await;
        assert_eq!((called.proc, called.udp), (proc::LOCK_RES, by_udp));
        let blocked = Res { cookie: cookie(), stat: BLOCKED };
        assert_eq!(Res::from_bytes(called.body), Ok(blocked));
        assert_eq!(a.unlock(a.bytes(&f, 1, 0, 0)).await, GRANTED);
        let called = b.hears().await;
        assert_eq!(called.proc, proc::GRANTED_MSG);
        let told = TestArgs::from_bytes(called.body).expect("arguments");
        // Of another host the answer is not taken: then the lock would be free.
        let refused = Res { cookie: told.cookie.clone(), stat: DENIED };
        a.message(proc::GRANTED_RES, refused.to_bytes()).await;
        assert_eq!(a.lock(a.bytes(&f, 1, 0, 1), true).await, DENIED);
        b.message(proc::GRANTED_RES, Res { cookie: told.cookie, stat: GRANTED }.to_bytes()).await;
        let args = TestArgs { cookie: cookie(), exclusive: true, lock: a.bytes(&f, 1, 0, 1) }.to_bytes();
        a.message(proc::TEST_MSG, args).await;
        assert_eq!(a.hears().await.proc, proc::TEST_RES);
        let args = nlm::UnlockArgs { cookie: cookie(), lock: b.bytes(&f, 7, 0, 0) }.to_bytes();
        b.message(proc::UNLOCK_MSG, args).await;
        assert_eq!(b.hears().await.proc, proc::UNLOCK_RES);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn c702_11_a_client_that_restarts_holds_nothing() {
    let (rig, _v4, f, _) = rig(90).await;
    let (mut a, mut b) = (Lockd::new(&rig, "a.example", 2).await, Lockd::new(&rig, "b", 3).await);
    for monitor in [true, false] {
        let held = a.bytes(&f, 1, 0, 0);
        let locked = if monitor { a.lock(held, true).await } else { a.nm_lock(held, true).await };
        assert_eq!(locked, GRANTED);
        assert_eq!(b.share(proc::SHARE, &f, 1, 0).await, GRANTED);
        // Another host cannot say it, nor is another name at the same address meant.
        b.sm_notify("a.example", 5).await;
        b.free_all("a.example").await;
        a.sm_notify("other", 5).await;
        assert_eq!(b.lock(b.bytes(&f, 7, 0, 1), true).await, DENIED);
        assert_eq!(b.lock_and_wait(b.bytes(&f, 7, 0, 1), true).await, BLOCKED);
        if monitor {
            a.by_udp = true;
            a.sm_notify("A", 5).await;
            a.by_udp = false;
        } else {
            a.free_all("a.example").await;
        }
        assert_eq!(b.hears().await.proc, proc::GRANTED);
        b.free_all("b").await;
        assert_eq!(a.lock(a.bytes(&f, 1, 0, 0), true).await, GRANTED);
        assert_eq!(a.unlock(a.bytes(&f, 1, 0, 0)).await, GRANTED);
    }
}

/// A status monitor says it under several names, and again if no answer comes; the host may have locked something in
/// between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn c702_11_a_restart_that_is_reported_again_frees_nothing() {
    let (rig, _v4, f, _) = rig(90).await;
    let (mut a, mut b) = (Lockd::new(&rig, "a.example", 2).await, Lockd::new(&rig, "b", 3).await);
    a.sm_notify("a.example", 5).await;
    assert_eq!(a.lock(a.bytes(&f, 1, 0, 0), true).await, GRANTED);
    a.sm_notify("a", 5).await;
    assert_eq!(b.lock(b.bytes(&f, 7, 0, 1), true).await, DENIED);
    a.sm_notify("a", 7).await;
    assert_eq!(b.lock(b.bytes(&f, 7, 0, 1), true).await, GRANTED);
    // It was asked for after the restart that is reported.
    b.sm_notify("b", 3).await;
    assert_eq!(a.lock(a.bytes(&f, 1, 0, 1), true).await, DENIED);
    a.free_all("a.example").await;
    b.free_all("b").await;
    assert_eq!(a.lock(a.bytes(&f, 1, 0, 1), true).await, GRANTED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn c702_11_after_a_restart_of_the_server_locks_are_reclaimed() {
    let (mut rig, mut v4, f, stateid) = rig(3).await;
    assert_ok(&v4.run(vec![ArgOp::Putfh(f.clone()), close_op(stateid)]).await);
    assert_eq!(rig.restart().await.reclaiming, 0);
    let mut a = Lockd::new(&rig, "a", 2).await;
    let mut b = Lockd::new(&rig, "b", 3).await;
    assert_eq!(a.reclaim(a.bytes(&f, 1, 0, 4), true).await, NlmStat::DENIED_GRACE_PERIOD, "no grace period");
    assert_eq!(a.lock(a.bytes(&f, 1, 0, 4), true).await, GRANTED);
    assert_eq!(rig.crash().await.reclaiming, 1);
    a.moved(&rig);
    b.moved(&rig);
    let called = a.hears().await;
    assert_eq!((called.prog, called.proc), (nsm::PROGRAM, nsm::proc::NOTIFY));
    let first = nsm::StatChange::from_bytes(called.body).expect("arguments").state;
    assert_eq!(first % 2, 1, "an odd number is up");
    assert_eq!(b.lock(b.bytes(&f, 7, 0, 1), true).await, NlmStat::DENIED_GRACE_PERIOD);
    assert_eq!(b.test(b.bytes(&f, 7, 0, 1), true).await.stat, NlmStat::DENIED_GRACE_PERIOD);
    assert_eq!(b.reclaim(b.bytes(&f, 7, 0, 1), true).await, DENIED, "it held nothing");
    assert_eq!(a.reclaim(a.bytes(&f, 1, 0, 4), true).await, GRANTED);
    // Once more: what was reclaimed can be reclaimed again, and the number goes up.
    assert_eq!(rig.crash().await.reclaiming, 1);
    a.moved(&rig);
    b.moved(&rig);
    let called = a.hears().await;
    let second = nsm::StatChange::from_bytes(called.body).expect("arguments").state;
    assert!(second > first && second % 2 == 1, "{first}, then {second}");
    assert_eq!(a.reclaim(a.bytes(&f, 1, 0, 4), true).await, GRANTED);
    // The grace period ends with the lease.
    let asked = tokio::time::timeout(PATIENCE, async {
        loop {
            match b.lock(b.bytes(&f, 7, 0, 8), true).await {
                NlmStat::DENIED_GRACE_PERIOD => tokio::task::yield_now().await,
                other => break other,
            }
        }
    });
    assert_eq!(asked.await.expect("it ends"), DENIED, "a holds it again");
    assert_eq!(a.reclaim(a.bytes(&f, 1, 4, 4), true).await, NlmStat::DENIED_GRACE_PERIOD);
    // Who holds nothing at a clean stop is not told of it, and nobody waits for it.
    assert_eq!(a.unlock(a.bytes(&f, 1, 0, 0)).await, GRANTED);
    assert_eq!(rig.restart().await.reclaiming, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn c702_11_nobody_monitors_through_this_server() {
    let (rig, _v4, f, _) = rig(90).await;
    let mut a = Lockd::new(&rig, "a", 2).await;
    assert_eq!(a.lock(a.bytes(&f, 1, 0, 0), true).await, GRANTED);
    let my_id = nsm::MyId { my_name: text("a"), my_prog: 1, my_vers: 1, my_proc: 1 };
    let mon_id = nsm::MonId { mon_name: text("victim"), my_id: my_id.clone() };
    let mon = nsm::Mon { mon_id: mon_id.clone(), private: [0; 16] };
    let nsm = nsm::PROGRAM;
    let (stat, res) = a.raw(nsm, 1, nsm::proc::MON, &mon.to_bytes()).await;
    assert_eq!((stat, nsm::StatRes::from_bytes(res).map(|r| r.res_stat)), (0, Ok(nsm::STAT_FAIL)));
    let (stat, res) = a.raw(nsm, 1, nsm::proc::UNMON, &mon_id.to_bytes()).await;
    assert_eq!((stat, res.len()), (0, 4));
    assert_eq!(a.raw(nsm, 1, nsm::proc::UNMON_ALL, &my_id.to_bytes()).await.0, 0);
    assert_eq!(a.raw(nsm, 1, nsm::proc::SIMU_CRASH, &[]).await, (0, Bytes::new()));
    assert_eq!(a.raw(nsm, 1, nsm::proc::NOTIFY, &[1, 2, 3]).await.0, 4, "GARBAGE_ARGS");
    assert_eq!(a.raw(nsm, 1, 7, &[]).await.0, 3, "PROC_UNAVAIL");
    let mut b = Lockd::new(&rig, "b", 3).await;
    assert_eq!(b.lock(b.bytes(&f, 7, 0, 1), true).await, DENIED, "all of it freed nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn c702_10_who_would_wait_for_itself_is_told() {
    let (rig, mut v4, f, _) = rig(90).await;
    let (g, g_open) = v4.open("g", 3).await;
    let (h, _) = v4.open("h", 3).await;
    let mut a = Lockd::new(&rig, "a", 2).await;
    let (mut b, mut c) = (Lockd::new(&rig, "b", 3).await, Lockd::new(&rig, "c", 4).await);
    // a has f, b has g, c has h; a waits for b, b for c.
    assert_eq!(a.lock(a.bytes(&f, 1, 0, 10), true).await, GRANTED);
    assert_eq!(b.lock(b.bytes(&g, 2, 0, 10), true).await, GRANTED);
    assert_eq!(c.lock(c.bytes(&h, 3, 0, 10), false).await, GRANTED);
    assert_eq!(a.lock_and_wait(a.bytes(&g, 1, 5, 1), false).await, BLOCKED);
    assert_eq!(b.lock_and_wait(b.bytes(&h, 2, 0, 0), true).await, BLOCKED);
    // c, which waits for a, would wait for itself; another process of c would not; and who does not wait is just denied.
    let rows = [
        (C, 3, WaitShared, 9, 1, DEADLCK, ""),
        (C, 3, WaitShared, 9, 1, DEADLCK, "again"),
        (C, 3, LockShared, 9, 1, DENIED, "it does not wait"),
        (C, 4, WaitShared, 9, 1, BLOCKED, "another process"),
        (C, 3, WaitShared, 20, 1, GRANTED, "nobody is in the way there"),
    ];
    play(&mut [&mut a, &mut b, &mut c], &f, &rows).await;
    // It did not wait: c lets go, and the others go on one after the other.
    assert_eq!(c.unlock(c.bytes(&h, 3, 0, 0)).await, GRANTED);
    assert_eq!(b.hears().await.proc, proc::GRANTED);
    assert_eq!(c.lock_and_wait(c.bytes(&f, 3, 9, 1), false).await, BLOCKED, "b waits for nobody now");
    assert_eq!(b.unlock(b.bytes(&g, 2, 0, 0)).await, GRANTED);
    assert_eq!(a.hears().await.proc, proc::GRANTED);
    assert_eq!(a.unlock(a.bytes(&g, 1, 0, 0)).await, GRANTED);
    // With NFSv4: its client has g and wants f; a has f and waits for g. RFC 8881 section 18.10.4.
    let (put_f, put_g) = (ArgOp::Putfh(f.clone()), ArgOp::Putfh(g.clone()));
    assert_ok(&v4.run(vec![put_g, v4_lock(g_open, LockType::Write, 0, 1)]).await);
    assert_eq!(a.lock_and_wait(a.bytes(&g, 1, 0, 0), true).await, BLOCKED);
    let (_, f_open) = v4.open("f", 3).await;
    for (kind, status) in [
        (LockType::ReadW, NfsStat::NFS4ERR_DEADLOCK),
        (LockType::WriteW, NfsStat::NFS4ERR_DEADLOCK),
        (LockType::Write, NfsStat::NFS4ERR_DENIED),
    ] {
        assert_eq!(v4.status(vec![put_f.clone(), v4_lock(f_open, kind, 0, 5)]).await, status, "{kind:?}");
    }
}
