//! LOCK, LOCKT, LOCKU (RFC 8881 sections 9.1 to 9.6, 18.10 to 18.12).

use crate::common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::res::LockDenied;
use landfast_nfs::v4::*;

const END: u64 = u64::MAX;

fn first(open_stateid: Stateid, who: &[u8], locktype: LockType, offset: u64, length: u64) -> ArgOp {
    let lock_owner = owner(0, who);
    let locker = Locker::New { open_seqid: 0, open_stateid, lock_seqid: 0, lock_owner };
    ArgOp::Lock(LockArgs { locktype, reclaim: false, offset, length, locker })
}

fn again(lock_stateid: Stateid, locktype: LockType, offset: u64, length: u64) -> ArgOp {
    let locker = Locker::Existing { lock_stateid, lock_seqid: 0 };
    ArgOp::Lock(LockArgs { locktype, reclaim: false, offset, length, locker })
}

fn test(who: &[u8], locktype: LockType, offset: u64, length: u64) -> ArgOp {
    ArgOp::Lockt(LocktArgs { locktype, offset, length, owner: owner(0, who) })
}

fn unlock(lock_stateid: Stateid, offset: u64, length: u64) -> ArgOp {
    ArgOp::Locku(LockuArgs { locktype: LockType::Write, seqid: 0, lock_stateid, offset, length })
}

/// A client with a file open for reading and writing.
struct Locking {
    c: Client,
    put: ArgOp,
    open: Stateid,
}

impl Locking {
    async fn new(rig: &Rig, who: &[u8]) -> Locking {
        let mut c = rig.client(who).await;
        let (fh, open) = c.open("f", 3).await;
        Locking { c, put: ArgOp::Putfh(fh), open }
    }

    async fn last(&mut self, op: ArgOp) -> ResOp {
        self.c.last(vec![self.put.clone(), op]).await
    }

    async fn status(&mut self, op: ArgOp) -> NfsStat {
        self.last(op).await.status
    }

    async fn lock(&mut self, op: ArgOp) -> Stateid {
        match self.last(op).await {
            ResOp { body: ResBody::Lock(s) | ResBody::Locku(s), .. } => s,
            other => panic!("LOCK gave {:?}", other.status),
        }
    }

    async fn denied(&mut self, op: ArgOp) -> LockDenied {
        match self.last(op).await {
            ResOp { body: ResBody::Denied(d), status: NfsStat::NFS4ERR_DENIED, .. } => d,
            other => panic!("not DENIED but {:?}", other.status),
        }
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_10_3_ranges() {
    let rig = Rig::new().await;
    let mut a = Locking::new(&rig, b"a").await;
    let lock = a.lock(first(a.open, b"l", LockType::Write, 0, 1)).await;
    for (offset, length, status) in [
        (25, 0, NfsStat::NFS4ERR_INVAL),
        (100, END - 1, NfsStat::NFS4ERR_INVAL),
        (END, 2, NfsStat::NFS4ERR_INVAL),
        (END, 1, NfsStat::NFS4ERR_INVAL),
        (END - 1, 1, NfsStat::NFS4_OK),
        (END, END, NfsStat::NFS4_OK),
        (1, END - 1, NfsStat::NFS4_OK),
        (0, 0xffff_ffff_ffff, NfsStat::NFS4_OK),
        (0, END, NfsStat::NFS4_OK),
    ] {
        assert_eq!(a.status(first(a.open, b"l", LockType::Write, offset, length)).await, status);
        assert_eq!(a.status(test(b"l", LockType::Write, offset, length)).await, status);
        let zero = Stateid { seqid: 0, ..lock };
        assert_eq!(a.status(unlock(zero, offset, length)).await, status, "{offset} {length}");
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_9_1_the_seqid_grows_with_every_lock_and_unlock() {
    let rig = Rig::new().await;
    let mut a = Locking::new(&rig, b"a").await;
    let one = a.lock(first(a.open, b"l", LockType::Write, 0, 25)).await;
    let two = a.lock(again(one, LockType::Write, 50, 25)).await;
    assert_eq!((one.seqid, two.seqid, one.other), (1, 2, two.other));
    assert_eq!(a.status(again(one, LockType::Write, 100, 25)).await, NfsStat::NFS4ERR_OLD_STATEID);
    assert_eq!(a.status(unlock(one, 0, 25)).await, NfsStat::NFS4ERR_OLD_STATEID);
    let three = a.lock(unlock(two, 0, 25)).await;
    assert_eq!((three.seqid, three.other), (3, two.other));
    // The same owner by its name again goes on with the same state.
    let four = a.lock(first(a.open, b"l", LockType::Write, 200, 5)).await;
    assert_eq!((four.seqid, four.other), (4, two.other));
    // What is refused changes nothing.
    let mut b = Locking::new(&rig, b"b").await;
    b.denied(first(b.open, b"m", LockType::Write, 50, 1)).await;
    assert_eq!(b.lock(first(b.open, b"m", LockType::Write, 300, 1)).await.seqid, 1);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_9_5_overlaps_upgrades_and_downgrades() {
    let rig = Rig::new().await;
    let mut a = Locking::new(&rig, b"a").await;
    let one = a.lock(first(a.open, b"l", LockType::Write, 25, 75)).await;
    let two = a.lock(again(one, LockType::Write, 50, 75)).await;
    let d = a.denied(test(b"other", LockType::Read, 0, END)).await;
    assert_eq!((d.offset, d.length, d.locktype), (25, 100, LockType::Write), "merged");
    let three = a.lock(again(two, LockType::Read, 25, 100)).await;
    assert_eq!(a.denied(test(b"other", LockType::Write, 0, END)).await.locktype, LockType::Read);
    assert_eq!(a.status(test(b"other", LockType::Read, 0, END)).await, NfsStat::NFS4_OK);
    let four = a.lock(again(three, LockType::Write, 50, 10)).await;
    let d = a.denied(test(b"other", LockType::Read, 0, END)).await;
    assert_eq!((d.offset, d.length, d.locktype), (50, 10, LockType::Write), "the middle alone");
    // Unlocking the middle of what is held, more than is held, and nothing that is held.
    let five = a.lock(unlock(four, 55, 2)).await;
    assert_eq!(a.status(test(b"other", LockType::Write, 55, 2)).await, NfsStat::NFS4_OK);
    assert_eq!(a.denied(test(b"other", LockType::Write, 57, 1)).await.offset, 57);
    let six = a.lock(unlock(five, 0, 50)).await;
    let seven = a.lock(unlock(six, 500, 50)).await;
    a.lock(unlock(seven, 0, END)).await;
    assert_eq!(a.status(test(b"other", LockType::Write, 0, END)).await, NfsStat::NFS4_OK);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_9_4_readers_and_writers() {
    let rig = Rig::new().await;
    let mut a = Locking::new(&rig, b"a").await;
    let mut b = Locking::new(&rig, b"b").await;
    let ra = a.lock(first(a.open, b"o", LockType::Read, 0, END)).await;
    let rb = b.lock(first(b.open, b"o", LockType::ReadW, 0, END)).await;
    let d = a.denied(again(ra, LockType::Write, 0, 10)).await;
    assert_eq!((d.owner.clientid, &d.owner.owner.0[..]), (b.c.id, &b"o"[..]));
    let free = b.lock(unlock(rb, 0, END)).await;
    let wa = a.lock(again(ra, LockType::WriteW, 0, 10)).await;
    let d = b.denied(again(free, LockType::Read, 5, 1)).await;
    assert_eq!((d.offset, d.length, d.locktype), (0, 10, LockType::Write));
    assert_eq!(b.status(again(free, LockType::Read, 10, 1)).await, NfsStat::NFS4_OK);
    // Two owners of one client are as strange to each other.
    let same = a.denied(first(a.open, b"o2", LockType::Read, 0, 1)).await;
    assert_eq!(same.owner.clientid, a.c.id);
    assert_eq!(a.status(test(b"o", LockType::Write, 0, 10)).await, NfsStat::NFS4_OK, "its own");
    a.lock(unlock(wa, 0, END)).await;
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_10_a_lock_needs_its_kind_of_open_and_a_file() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    c.open("f", 3).await;
    let open = |access, who: &[u8]| vec![ArgOp::Putrootfh, open_op(who, "f", access, 0, OpenHow::NoCreate)];
    for (access, allowed, refused) in
        [(1, LockType::Read, LockType::Write), (2, LockType::WriteW, LockType::ReadW)]
    {
        let who = [b'o', access as u8];
        let res = c.run(open(access, &who)).await;
        let ResBody::Open(o) = &res[1].body else { panic!("OPEN gave {:?}", res[1]) };
        let fh = ArgOp::Putfh(c.handle(&["f"]).await);
        assert_eq!(
            c.status(vec![fh.clone(), first(o.stateid, &who, refused, 0, 1)]).await,
            NfsStat::NFS4ERR_OPENMODE
        );
        let res = c.run(vec![fh.clone(), first(o.stateid, &who, allowed, 0, 1)]).await;
        assert_ok(&res);
        assert_ok(&c.run(vec![fh, close_op(o.stateid)]).await);
    }
    assert_ok(&c.run(vec![ArgOp::Putrootfh, mkdir("d")]).await);
    for (path, status) in [(&[][..], NfsStat::NFS4ERR_ISDIR), (&["d"][..], NfsStat::NFS4ERR_ISDIR)] {
        let fh = ArgOp::Putfh(c.handle(path).await);
        for op in [
            first(Stateid::ANONYMOUS, b"o", LockType::Read, 0, 1),
            test(b"o", LockType::Read, 0, 1),
            unlock(Stateid::ANONYMOUS, 0, 1),
        ] {
            let number = op.op();
            let got = c.status(vec![fh.clone(), op]).await;
            let expected = if number == OpNum::LOCKU { NfsStat::NFS4ERR_BAD_STATEID } else { status };
            assert_eq!(got, expected, "{number}");
        }
    }
    for op in [
        first(Stateid::ANONYMOUS, b"o", LockType::Read, 0, 1),
        test(b"o", LockType::Read, 0, 1),
        unlock(Stateid::ANONYMOUS, 0, 1),
    ] {
        assert_eq!(c.status(vec![op]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_9_1_4_4_close_releases_locks() {
    let rig = Rig::new().await;
    let mut a = Locking::new(&rig, b"a").await;
    let mut b = Locking::new(&rig, b"b").await;
    a.lock(first(a.open, b"o", LockType::Write, 0, END)).await;
    b.denied(test(b"o", LockType::Read, 0, 1)).await;
    assert_eq!(a.status(close_op(a.open)).await, NfsStat::NFS4_OK);
    assert_eq!(b.status(test(b"o", LockType::Read, 0, 1)).await, NfsStat::NFS4_OK);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_11_4_lockt_needs_no_open() {
    let rig = Rig::new().await;
    let mut a = Locking::new(&rig, b"a").await;
    a.lock(first(a.open, b"o", LockType::Write, 10, 5)).await;
    let mut c = rig.client(b"stranger").await;
    let fh = ArgOp::Putfh(c.handle(&["f"]).await);
    for (offset, length, free) in [(0, 10, true), (0, 11, false), (14, 1, false), (15, END, true)] {
        let status = c.status(vec![fh.clone(), test(b"o", LockType::Read, offset, length)]).await;
        assert_eq!(status.is_ok(), free, "{offset} {length}");
    }
    assert_eq!(rig.server().stats().opens, 1);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_12_3_what_can_be_unlocked() {
    let rig = Rig::new().await;
    let mut a = Locking::new(&rig, b"a").await;
    let held = a.lock(first(a.open, b"o", LockType::Write, 10, 10)).await;
    // Ranges that are none, and what is no lock's stateid.
    for op in [unlock(held, 0, 0), unlock(held, 9, END - 8)] {
        assert_eq!(a.status(op).await, NfsStat::NFS4ERR_INVAL);
    }
    assert_eq!(a.status(unlock(a.open, 10, 10)).await, NfsStat::NFS4ERR_BAD_STATEID, "an open's");
    assert_eq!(a.c.status(vec![unlock(held, 10, 10)]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
    let root = vec![ArgOp::Putrootfh, unlock(held, 10, 10)];
    assert_eq!(a.c.status(root).await, NfsStat::NFS4ERR_BAD_STATEID, "of something else");
    // What is not locked may be unlocked, and moves the stateid on; of what is, any part.
    let held = a.lock(unlock(held, 100, 5)).await;
    let held = a.lock(unlock(held, 0, 12)).await;
    let held = a.lock(unlock(held, 15, 1)).await;
    let mut b = Locking::new(&rig, b"b").await;
    for (offset, length, found) in
        [(0, 12, None), (12, 3, Some((12, 3))), (15, 1, None), (16, 9, Some((16, 4)))]
    {
        let last = b.last(test(b"p", LockType::Read, offset, length)).await;
        let denied = match last.body {
            ResBody::Denied(d) => Some((d.offset, d.length)),
            _ => None,
        };
        assert_eq!(denied, found, "{offset}, {length}: {}", last.status);
    }
    // To the end of the file, whatever length that is; the stateid stays good with nothing locked.
    let held = a.lock(unlock(held, 0, END)).await;
    assert_eq!(b.status(test(b"p", LockType::Write, 0, END)).await, NfsStat::NFS4_OK);
    a.lock(again(held, LockType::Read, 0, 1)).await;
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_2_3_what_can_be_closed_and_is_closed_then() {
    let rig = Rig::new().await;
    let mut a = Locking::new(&rig, b"a").await;
    let held = a.lock(first(a.open, b"o", LockType::Write, 0, END)).await;
    let (other, _) = a.c.open("g", 3).await;
    assert_eq!(a.status(close_op(held)).await, NfsStat::NFS4ERR_BAD_STATEID, "a lock's");
    assert_eq!(a.status(close_op(Stateid::ANONYMOUS)).await, NfsStat::NFS4ERR_BAD_STATEID);
    assert_eq!(a.c.status(vec![close_op(a.open)]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
    let elsewhere = vec![ArgOp::Putfh(other), close_op(a.open)];
    assert_eq!(a.c.status(elsewhere).await, NfsStat::NFS4ERR_BAD_STATEID);
    let mut b = Locking::new(&rig, b"b").await;
    assert_eq!(b.status(close_op(a.open)).await, NfsStat::NFS4ERR_BAD_STATEID, "another client's");
    // Locks go with it; a CLOSE after it finds nothing, nor does anything else.
    assert_ok(&[a.last(close_op(a.open)).await]);
    assert_eq!(b.status(test(b"p", LockType::Write, 0, END)).await, NfsStat::NFS4_OK);
    for op in [close_op(a.open), unlock(held, 0, END), read_op(a.open, 0, 1), write_op(a.open, 0, b"x")] {
        assert_eq!(a.status(op).await, NfsStat::NFS4ERR_BAD_STATEID);
    }
}

/// A client that has a whole file locked and is silent, and another one whose `ask` is denied until the first one's lease
/// is over.
async fn outlived(rig: &Rig, ask: impl Fn(&Locking) -> ArgOp) -> (Locking, Locking) {
    let mut a = Locking::new(rig, b"a").await;
    a.lock(first(a.open, b"o", LockType::Write, 0, END)).await;
    let mut b = Locking::new(rig, b"b").await;
    let patience = std::time::Instant::now();
    while b.status(ask(&b)).await == NfsStat::NFS4ERR_DENIED {
        assert!(patience.elapsed() < PATIENCE, "denied for ever");
    }
    (a, b)
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_9_10_locks_of_a_client_whose_lease_is_over_are_in_nobodys_way() {
    let rig = Rig::with(landfast_volume::Durability::Log, 1).await;
    let (a, mut b) = outlived(&rig, |b| first(b.open, b"o", LockType::Write, 0, END)).await;
    assert_eq!(b.denied(test(b"p", LockType::Read, 0, 1)).await.owner.clientid, b.c.id);
    assert_eq!(a.c.again(Vec::new()).await.status, NfsStat::NFS4ERR_BADSESSION);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_11_3_lockt_finds_no_lock_of_a_client_whose_lease_is_over() {
    let rig = Rig::with(landfast_volume::Durability::Log, 1).await;
    let (a, mut b) = outlived(&rig, |_| test(b"o", LockType::Read, 0, 1)).await;
    assert_ok(&[b.last(first(b.open, b"o", LockType::Write, 0, END)).await]);
    assert_eq!(a.c.again(Vec::new()).await.status, NfsStat::NFS4ERR_BADSESSION);
}

/// Whether a client still has its lock shows in what another one is told that wants it.
#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_46_3_only_a_sequence_that_succeeds_renews_the_lease() {
    const LEASE: std::time::Duration = std::time::Duration::from_secs(1);
    let rig = Rig::with(landfast_volume::Durability::Log, 1).await;
    let mut a = Locking::new(&rig, b"a").await;
    a.lock(first(a.open, b"o", LockType::Write, 0, END)).await;
    let mut b = Locking::new(&rig, b"b").await;
    let ask = first(b.open, b"o", LockType::Write, 0, END);
    let begun = std::time::Instant::now();
    let mut kept = 0;
    while begun.elapsed() < 2 * LEASE || kept == 0 {
        assert!(begun.elapsed() < PATIENCE, "this machine never answers within a lease");
        let renewed = std::time::Instant::now();
        assert_eq!(a.c.sequence_status().await, NfsStat::NFS4_OK);
        let said = b.status(ask.clone()).await;
        // Only then is it certain.
        if renewed.elapsed() < LEASE {
            assert_eq!(said, NfsStat::NFS4ERR_DENIED, "{:?} after the start", begun.elapsed());
            kept += u32::from(begun.elapsed() > LEASE);
        }
    }
    let silent = std::time::Instant::now();
    while b.status(ask.clone()).await == NfsStat::NFS4ERR_DENIED {
        let ArgOp::Sequence(mut far) = a.c.sequence() else { panic!("a SEQUENCE") };
        far.sequenceid += 5;
        let refused = a.c.raw.compound(vec![ArgOp::Sequence(far)]).await.status;
        // Once the lease is over the session may be gone.
        assert!(
            [NfsStat::NFS4ERR_SEQ_MISORDERED, NfsStat::NFS4ERR_BADSESSION].contains(&refused),
            "{refused:?}"
        );
        assert!(silent.elapsed() < PATIENCE, "what is refused has renewed the lease");
    }
}
