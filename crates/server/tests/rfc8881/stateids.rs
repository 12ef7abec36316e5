//! Stateids (RFC 8881 sections 8.2, 16.2.3.1.2, 18.38, 18.48): old, bad, special, another's, another file's, the current one, in
//! every operation that takes one.

use crate::common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;

fn setsize(stateid: Stateid, size: u64) -> ArgOp {
    let attrs = fattr(AttrValues { size: Some(size), ..AttrValues::default() });
    ArgOp::Setattr(SetattrArgs { stateid, attrs })
}

fn downgrade(open_stateid: Stateid, share_access: u32) -> ArgOp {
    ArgOp::OpenDowngrade(OpenDowngradeArgs { open_stateid, seqid: 0, share_access, share_deny: 0 })
}

fn first_lock(open_stateid: Stateid, offset: u64) -> ArgOp {
    ArgOp::Lock(LockArgs {
        locktype: LockType::Write,
        reclaim: false,
        offset,
        length: 1,
        locker: Locker::New { open_seqid: 0, open_stateid, lock_seqid: 0, lock_owner: owner(0, b"l") },
    })
}

fn next_lock(lock_stateid: Stateid, offset: u64) -> ArgOp {
    ArgOp::Lock(LockArgs {
        locktype: LockType::Write,
        reclaim: false,
        offset,
        length: 1,
        locker: Locker::Existing { lock_stateid, lock_seqid: 0 },
    })
}

fn unlock(lock_stateid: Stateid) -> ArgOp {
    let locktype = LockType::Write;
    ArgOp::Locku(LockuArgs { locktype, seqid: 0, lock_stateid, offset: 0, length: u64::MAX })
}

fn lock_of(res: &[ResOp]) -> Stateid {
    match &res.last().expect("a result").body {
        ResBody::Lock(s) => *s,
        other => panic!("LOCK gave {other:?}"),
    }
}

/// What the operations that take an open's stateid say to this one.
async fn open_ops(c: &mut Client, fh: &FileHandle, s: Stateid) -> Vec<(OpNum, NfsStat)> {
    let ops = vec![
        read_op(s, 0, 1),
        write_op(s, 0, b"x"),
        setsize(s, 5),
        downgrade(s, 1),
        first_lock(s, 50),
        close_op(s),
        ArgOp::FreeStateid(s),
    ];
    let mut out = Vec::new();
    for op in ops {
        let number = op.op();
        out.push((number, c.status(vec![ArgOp::Putfh(fh.clone()), op]).await));
    }
    out
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_8_2_2_old_and_future_seqids() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, first) = c.open("f", 1).await;
    let (_, second) = c.open("f", 3).await;
    assert_eq!((first.other, first.seqid, second.seqid), (second.other, 1, 2));
    for (op, status) in open_ops(&mut c, &fh, first).await {
        assert_eq!(status, NfsStat::NFS4ERR_OLD_STATEID, "{op}");
    }
    for (op, status) in open_ops(&mut c, &fh, Stateid { seqid: 3, ..second }).await {
        assert_eq!(status, NfsStat::NFS4ERR_BAD_STATEID, "{op}");
    }
    // Zero stands for the present one.
    let zero = Stateid { seqid: 0, ..second };
    for op in [read_op(zero, 0, 1), write_op(zero, 0, b"x"), setsize(zero, 5), close_op(zero)] {
        assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), op]).await);
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_8_2_4_stateids_that_name_nothing_here() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let mut d = rig.client(b"d").await;
    let (fh, mine) = c.open("f", 3).await;
    let (other_fh, others) = c.open("g", 3).await;
    let (_, ds) = d.open("f", 3).await;
    let mut unknown = mine;
    unknown.other[11] ^= 0x40;
    let mut former = mine;
    former.other[0] ^= 1;
    for (what, s) in
        [("unknown", unknown), ("former instance", former), ("another file's", others), ("another's", ds)]
    {
        for (op, status) in open_ops(&mut c, &fh, s).await {
            // FREE_STATEID names no file.
            let of_file = op == OpNum::FREE_STATEID && s == others;
            let expected = if of_file { NfsStat::NFS4ERR_LOCKS_HELD } else { NfsStat::NFS4ERR_BAD_STATEID };
            assert_eq!(status, expected, "{op} with {what}");
        }
    }
    assert_ok(&c.run(vec![ArgOp::Putfh(other_fh), close_op(others)]).await);
    let gone = open_ops(&mut c, &fh, others).await;
    assert!(gone.iter().all(|(_, s)| *s == NfsStat::NFS4ERR_BAD_STATEID), "{gone:?}");
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_8_2_3_special_stateids() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, open) = c.open("f", 3).await;
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), write_op(open, 0, b"data")]).await);
    for s in [Stateid::ANONYMOUS, Stateid::READ_BYPASS] {
        for op in [read_op(s, 0, 4), write_op(s, 0, b"data"), setsize(s, 4)] {
            assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), op]).await);
        }
        for op in [
            downgrade(s, 1),
            first_lock(s, 0),
            next_lock(s, 0),
            unlock(s),
            close_op(s),
            ArgOp::FreeStateid(s),
        ] {
            let number = op.op();
            let status = c.status(vec![ArgOp::Putfh(fh.clone()), op]).await;
            assert_eq!(status, NfsStat::NFS4ERR_BAD_STATEID, "{number} of {s:?}");
        }
    }
    // All other combinations of zeroes and ones mean nothing.
    for s in [
        Stateid::INVALID,
        Stateid { seqid: 7, other: [0; 12] },
        Stateid { seqid: 0, other: [0xff; 12] },
        Stateid { seqid: 1, other: [0xff; 12] },
    ] {
        for (op, status) in open_ops(&mut c, &fh, s).await {
            assert_eq!(status, NfsStat::NFS4ERR_BAD_STATEID, "{op} of {s:?}");
        }
    }
    // The current one where there is none.
    for (op, status) in open_ops(&mut c, &fh, Stateid::CURRENT).await {
        assert_eq!(status, NfsStat::NFS4ERR_BAD_STATEID, "{op}");
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_16_2_3_1_2_what_sets_and_clears_the_current_stateid() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let root = ArgOp::Putrootfh;
    let create = OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
    let open = open_op(b"o", "f", 3, 0, create);
    let cur = Stateid::CURRENT;
    let with = |ops: Vec<ArgOp>| [vec![root.clone(), open.clone()], ops].concat();
    let good = [
        vec![ArgOp::Getfh, setsize(cur, 8), close_op(cur)],
        vec![write_op(cur, 5, b"x"), read_op(cur, 0, 1), close_op(cur)],
        vec![first_lock(cur, 0), write_op(cur, 5, b"x"), unlock(cur), ArgOp::FreeStateid(cur)],
        vec![first_lock(cur, 0), next_lock(cur, 3), unlock(cur)],
        vec![ArgOp::Savefh, root.clone(), ArgOp::Restorefh, close_op(cur)],
    ];
    for ops in good {
        assert_ok(&c.run(with(ops)).await);
    }
    // A downgrade gives one as well.
    let read_open = open_op(b"o2", "f", 1, 0, OpenHow::NoCreate);
    let more = open_op(b"o2", "f", 3, 0, OpenHow::NoCreate);
    let ops = vec![root.clone(), read_open, root.clone(), more, downgrade(cur, 1), close_op(cur)];
    assert_ok(&c.run(ops).await);
    let bad = [
        vec![root.clone(), ArgOp::Lookup(name("f")), close_op(cur)],
        vec![close_op(cur), close_op(cur)],
        vec![ArgOp::Savefh, close_op(cur), ArgOp::Restorefh, close_op(cur)],
    ];
    for ops in bad {
        assert_eq!(c.status(with(ops)).await, NfsStat::NFS4ERR_BAD_STATEID);
    }
    // FREE_STATEID of an open: it is closed by CLOSE.
    assert_eq!(c.status(with(vec![ArgOp::FreeStateid(cur)])).await, NfsStat::NFS4ERR_LOCKS_HELD);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_48_test_stateid_answers_for_each() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, open) = c.open("f", 1).await;
    let (_, newer) = c.open("f", 3).await;
    let lock = lock_of(&c.run(vec![ArgOp::Putfh(fh), first_lock(newer, 0)]).await);
    let mut unknown = open;
    unknown.other[11] ^= 0x40;
    let asked = vec![
        newer,
        Stateid { seqid: 0, ..newer },
        open,
        lock,
        unknown,
        Stateid::ANONYMOUS,
        Stateid::READ_BYPASS,
        Stateid::CURRENT,
    ];
    let last = c.last(vec![ArgOp::TestStateid(asked)]).await;
    let ResBody::TestStateid(got) = last.body else { panic!("TEST_STATEID gave {:?}", last.status) };
    const OK: NfsStat = NfsStat::NFS4_OK;
    const BAD: NfsStat = NfsStat::NFS4ERR_BAD_STATEID;
    assert_eq!(got, [OK, OK, NfsStat::NFS4ERR_OLD_STATEID, OK, BAD, BAD, BAD, BAD]);
    let none = c.last(vec![ArgOp::TestStateid(Vec::new())]).await;
    assert_eq!(none.body, ResBody::TestStateid(Vec::new()));
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_38_free_stateid() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, open) = c.open("f", 3).await;
    let put = ArgOp::Putfh(fh);
    let lock = lock_of(&c.run(vec![put.clone(), first_lock(open, 0)]).await);
    assert_eq!(c.status(vec![ArgOp::FreeStateid(lock)]).await, NfsStat::NFS4ERR_LOCKS_HELD);
    assert_ok(&c.run(vec![put.clone(), unlock(lock)]).await);
    assert_eq!(c.status(vec![ArgOp::FreeStateid(lock)]).await, NfsStat::NFS4ERR_OLD_STATEID);
    let now = Stateid { seqid: 0, ..lock };
    assert_ok(&c.run(vec![ArgOp::FreeStateid(now)]).await);
    assert_eq!(c.status(vec![ArgOp::FreeStateid(now)]).await, NfsStat::NFS4ERR_BAD_STATEID);
    assert_eq!(c.status(vec![put.clone(), next_lock(now, 0)]).await, NfsStat::NFS4ERR_BAD_STATEID);
    // The owner starts over.
    assert_ok(&c.run(vec![put, first_lock(open, 0)]).await);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_9_1_2_a_lock_stateid_is_for_io_of_its_open() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, _) = c.open("f", 3).await;
    let reader = open_op(b"reader", "f", 1, 0, OpenHow::NoCreate);
    let res = c.run(vec![ArgOp::Putrootfh, reader]).await;
    let ResBody::Open(opened) = &res[1].body else { panic!("OPEN gave {:?}", res[1]) };
    let read_lock = ArgOp::Lock(LockArgs {
        locktype: LockType::Read,
        reclaim: false,
        offset: 0,
        length: 1,
        locker: Locker::New {
            open_seqid: 0,
            open_stateid: opened.stateid,
            lock_seqid: 0,
            lock_owner: owner(0, b"r"),
        },
    });
    let put = ArgOp::Putfh(fh);
    let lock = lock_of(&c.run(vec![put.clone(), read_lock]).await);
    assert_ok(&c.run(vec![put.clone(), read_op(lock, 0, 1)]).await);
    assert_eq!(c.status(vec![put.clone(), write_op(lock, 0, b"x")]).await, NfsStat::NFS4ERR_OPENMODE);
    assert_eq!(c.status(vec![put.clone(), setsize(lock, 0)]).await, NfsStat::NFS4ERR_OPENMODE);
    // Where an open's stateid is wanted, a lock's is none, and the other way round.
    for op in [close_op(lock), downgrade(lock, 1), first_lock(lock, 9)] {
        assert_eq!(c.status(vec![put.clone(), op]).await, NfsStat::NFS4ERR_BAD_STATEID);
    }
    for op in [next_lock(opened.stateid, 0), unlock(opened.stateid)] {
        assert_eq!(c.status(vec![put.clone(), op]).await, NfsStat::NFS4ERR_BAD_STATEID);
    }
    // CLOSE takes the lock with it.
    assert_ok(&c.run(vec![put.clone(), close_op(opened.stateid)]).await);
    assert_eq!(c.status(vec![put, read_op(lock, 0, 1)]).await, NfsStat::NFS4ERR_BAD_STATEID);
}
