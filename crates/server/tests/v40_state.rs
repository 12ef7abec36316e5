//! NFSv4.0: clients, owners, sequence numbers, restarts, over a real socket (RFC 7530 sections 9, 16.33 to 16.37).

use crate::common;
use crate::v40;

use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use landfast_volume::Durability;
use v40::*;

const BAD_SEQID: NfsStat = NfsStat::NFS4ERR_BAD_SEQID;
const BAD_STATEID: NfsStat = NfsStat::NFS4ERR_BAD_STATEID;
const STALE_CLIENTID: NfsStat = NfsStat::NFS4ERR_STALE_CLIENTID;
const ALL: (u64, u64) = (0, u64::MAX);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_16_33_5_the_cases_of_setclientid() {
    let rig = Rig::new().await;
    let mut c = Client40::new(&rig, b"x").await;
    let (fh, s) = c.open("f", 3, 0).await;
    // Case 1: the same instance; its state stays.
    let update = set(&c.raw, b"x", 1).await;
    assert_eq!(update.clientid, c.id);
    assert_ne!(update.confirm, [0; 8]);
    assert_eq!(confirm(&c.raw, &update).await, NfsStat::NFS4_OK);
    assert_eq!(confirm(&c.raw, &update).await, NfsStat::NFS4_OK, "a retry");
    assert_eq!(c.on(&fh, write_op(s, 0, b"a")).await.status, NfsStat::NFS4_OK);
    // Cases 2 and 3: another instance, twice; the state stays until it is confirmed.
    let second = set(&c.raw, b"x", 2).await;
    let third = set(&c.raw, b"x", 2).await;
    assert!(second.clientid != third.clientid && second.confirm != third.confirm);
    assert_eq!(confirm(&c.raw, &second).await, STALE_CLIENTID);
    assert_eq!(c.renew().await, NfsStat::NFS4_OK);
    // Another principal, while the name is in use.
    let mut other = c.raw.clone();
    other.cred = user(1000);
    let res = other.alone(setclientid_op(b"x", 1, "127.0.0.1.5.6")).await;
    let ResBody::ClientInUse(by) = res.body else { panic!("{res:?}") };
    assert_eq!((res.status, by.addr), (NfsStat::NFS4ERR_CLID_INUSE, name("127.0.0.1.3.4")));
    assert_eq!(confirm(&other, &third).await, NfsStat::NFS4ERR_CLID_INUSE);
    assert_eq!(confirm(&c.raw, &third).await, NfsStat::NFS4_OK);
    assert_eq!(rig.server().stats().opens, 0);
    assert_eq!(c.renew().await, NfsStat::NFS4ERR_EXPIRED);
    assert_eq!(c.on(&fh, close_seq(s, 3)).await.status, NfsStat::NFS4ERR_EXPIRED);
    // Now it holds nothing, and the name may pass to another principal.
    let taken = set(&other, b"x", 1).await;
    assert_eq!(confirm(&other, &taken).await, NfsStat::NFS4_OK);
    // Case 4 and 5: no confirmed record.
    let first = set(&c.raw, b"y", 1).await;
    let second = set(&c.raw, b"y", 1).await;
    assert_ne!(first.clientid, second.clientid);
    assert_eq!(confirm(&c.raw, &first).await, STALE_CLIENTID);
    // One that was never confirmed cannot open.
    let never = Client40 { id: second.clientid, seqid: 0, ..c.clone() };
    let ops = vec![ArgOp::Putrootfh, never.open_op(1, "g", 1, 0)];
    assert_eq!(never.status(ops).await, STALE_CLIENTID);
    let unknown = Client40 { id: 0, ..never };
    assert_eq!(unknown.renew().await, STALE_CLIENTID);
    // Nor does a client ID of NFSv4.1 do.
    let later = rig.client(b"z").await;
    assert_eq!(Client40 { id: later.id, ..unknown }.renew().await, STALE_CLIENTID);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_9_1_7_retries_of_each_kind() {
    let rig = Rig::new().await;
    let c = Client40::new(&rig, b"x").await;
    // OPEN, with what follows it in the COMPOUND.
    let how = OpenHow::Create(CreateHow::Guarded(mode(0o644)));
    let open = vec![ArgOp::Putrootfh, c.open_with(1, 3, 0, how, "f"), ArgOp::Getfh];
    let first = c.run(open.clone()).await;
    assert_ok(&first);
    assert_eq!(c.run(open.clone()).await, first, "not EXIST; and the handle again");
    let ResBody::Getfh(fh) = first[2].body.clone() else { panic!("{first:?}") };
    let s = stateid_of(&first[1]);
    // Each of the others: once more the same, and not the same thing under the same number.
    let twice = async |op: ArgOp, wrong: ArgOp| {
        let res = c.on(&fh, op.clone()).await;
        assert_eq!(res.status, NfsStat::NFS4_OK, "{op:?}");
        assert_eq!(c.on(&fh, op).await, res);
        assert_eq!(c.on(&fh, wrong).await.status, BAD_SEQID);
        stateid_of(&res)
    };
    let s = twice(confirm_op(s, 2), close_seq(s, 2)).await;
    assert_eq!(s.seqid, 2);
    let s = twice(downgrade_op(s, 3, 3), downgrade_op(s, 3, 1)).await;
    let new = |seqid, lock_seqid, at| c.new_lock(s, seqid, b"l", lock_seqid, at);
    let l = twice(new(4, 0, (0, 10)), new(4, 0, (0, 11))).await;
    let l = twice(relock_op(l, 1, (20, 10)), relock_op(l, 3, (20, 10))).await;
    let l = twice(unlock_op(l, 2, (0, 5)), unlock_op(l, 0, (0, 5))).await;
    assert_eq!(l.seqid, 3);
    let s = Stateid { seqid: s.seqid, ..s };
    twice(close_seq(s, 5), close_seq(s, 7)).await;
    assert_eq!(rig.server().stats().opens, 0);
    assert_eq!(rig.server().stats().replays, 7);
    assert_eq!(c.on(&fh, close_seq(s, 6)).await.status, BAD_STATEID);
    // An error is an answer like another.
    let missing = vec![ArgOp::Putrootfh, c.open_with(6, 1, 0, OpenHow::NoCreate, "g")];
    assert_eq!(c.status(missing.clone()).await, NfsStat::NFS4ERR_NOENT);
    std::fs::write(rig.export().join("g"), b"").expect("a file");
    assert_eq!(c.status(missing).await, NfsStat::NFS4ERR_NOENT, "the first answer");
    let there = vec![ArgOp::Putrootfh, c.open_with(7, 1, 0, OpenHow::NoCreate, "g")];
    assert_eq!(c.status(there).await, NfsStat::NFS4_OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_9_1_7_retries_at_the_same_time_on_two_connections() {
    let rig = Rig::new().await;
    let mut c = Client40::new(&rig, b"x").await;
    let mut d = c.clone();
    d.raw.conn = rig.raw().await.conn;
    let (fh, s) = c.open("f", 3, 0).await;
    for i in 0..50 {
        let how = OpenHow::Create(CreateHow::Guarded(mode(0o600)));
        let file = format!("f{i}");
        let seqid = c.next();
        let open = vec![ArgOp::Putrootfh, c.open_with(seqid, 3, 0, how, &file), ArgOp::Getfh];
        let (a, b) = tokio::join!(c.run(open.clone()), d.run(open));
        assert_ok(&a);
        assert_eq!(a, b);
    }
    let seqid = c.next();
    let close = close_seq(s, seqid);
    let (a, b) = tokio::join!(c.on(&fh, close.clone()), d.on(&fh, close));
    assert_eq!((a.status, &a), (NfsStat::NFS4_OK, &b));
    assert_eq!(rig.server().stats().opens, 50);
}

/// RFC 7530 sections 9.1.7 to 9.1.9, 16.18.5: what is asked of another object is another request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_9_1_9_the_same_arguments_on_another_filehandle_are_no_retry() {
    let rig = Rig::new().await;
    for dir in ["A", "B"] {
        std::fs::create_dir(rig.export().join(dir)).expect("a directory");
        std::fs::write(rig.export().join(dir).join("x"), dir).expect("a file");
    }
    let mut c = Client40::new(&rig, b"c").await;
    let open = |c: &Client40, seqid, dir: &str| {
        let open = c.open_with(seqid, 3, 0, OpenHow::NoCreate, "x");
        vec![ArgOp::Putrootfh, ArgOp::Lookup(name(dir)), open, ArgOp::Getfh]
    };
    let opened = |res: &[ResOp]| {
        assert_ok(res);
        let ResBody::Getfh(fh) = res[3].body.clone() else { panic!("{res:?}") };
        (fh, stateid_of(&res[2]))
    };
    // An owner that is not confirmed: libnfs opens several files under one number.
    let (a, s) = opened(&c.run(open(&c, 1, "A")).await);
    let first = c.run(open(&c, 1, "B")).await;
    let (b, t) = opened(&first);
    assert!(a != b && s.other != t.other, "another file's answer");
    assert_eq!(c.run(open(&c, 1, "B")).await, first, "this one is a retry");
    assert_eq!(c.on(&a, confirm_op(s, 2)).await.status, BAD_STATEID, "the second has taken its place");
    // Of an owner that is confirmed, any operation with a number: the other request is refused, the retry is answered.
    let confirmed = c.on(&b, confirm_op(t, 2)).await;
    assert_eq!(c.on(&a, confirm_op(t, 2)).await.status, BAD_SEQID);
    assert_eq!(c.on(&b, confirm_op(t, 2)).await, confirmed);
    let t = stateid_of(&confirmed);
    let twice = async |c: &Client40, op: ArgOp| {
        let res = c.on(&b, op.clone()).await;
        assert_eq!(res.status, NfsStat::NFS4_OK, "{op:?}");
        assert_eq!(c.on(&a, op.clone()).await.status, BAD_SEQID, "{op:?}");
        assert_eq!(c.on(&b, op).await, res);
        stateid_of(&res)
    };
    let t = twice(&c, downgrade_op(t, 3, 3)).await;
    let l = twice(&c, c.new_lock(t, 4, b"l", 0, (0, 10))).await;
    let l = twice(&c, relock_op(l, 1, (20, 10))).await;
    twice(&c, unlock_op(l, 2, (0, 10))).await;
    twice(&c, close_seq(t, 5)).await;
    let (_, s) = opened(&c.run(open(&c, 6, "A")).await);
    assert_eq!(c.status(open(&c, 6, "B")).await, BAD_SEQID);
    c.seqid = 6;
    let seqid = c.next();
    assert_eq!(c.on(&a, close_seq(s, seqid)).await.status, NfsStat::NFS4_OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_16_18_open_confirm() {
    let rig = Rig::new().await;
    let mut c = Client40::new(&rig, b"x").await;
    let (fh, s, unconfirmed) = c.open_only("f", 3, 0).await;
    assert!(unconfirmed, "a new owner");
    assert_eq!(c.on(&fh, read_op(s, 0, 1)).await.status, BAD_STATEID);
    assert_eq!(c.on(&fh, close_seq(s, 2)).await.status, BAD_STATEID);
    assert_eq!(c.last(vec![confirm_op(s, 2)]).await.status, NfsStat::NFS4ERR_NOFILEHANDLE);
    assert_eq!(c.on(&fh, confirm_op(stale(s), 2)).await.status, NfsStat::NFS4ERR_STALE_STATEID);
    assert_eq!(c.on(&fh, confirm_op(Stateid::ANONYMOUS, 2)).await.status, BAD_STATEID);
    let t = stateid_of(&c.on(&fh, confirm_op(s, 2)).await);
    assert_eq!(c.on(&fh, confirm_op(t, 3)).await.status, BAD_STATEID, "twice");
    assert_eq!(c.on(&fh, read_op(s, 0, 1)).await.status, NfsStat::NFS4ERR_OLD_STATEID);
    assert_eq!(c.on(&fh, read_op(t, 0, 1)).await.status, NfsStat::NFS4_OK);
    // A known owner confirms no more.
    c.seqid = 2;
    assert!(!c.open_only("g", 1, 0).await.2);
    // A number out of order on an OPEN: another OPEN in the place of the first, which was not confirmed.
    c.owner = b"p";
    c.seqid = 10;
    let (fh, first, _) = c.open_only("h", 1, 0).await;
    c.seqid = 20;
    let (_, second, unconfirmed) = c.open_only("h", 1, 0).await;
    assert!(unconfirmed && first.other != second.other);
    assert_eq!(c.on(&fh, confirm_op(first, 12)).await.status, BAD_STATEID);
    assert_eq!(c.on(&fh, confirm_op(second, 50)).await.status, BAD_SEQID);
    assert_eq!(rig.server().stats().opens, 2, "f and g");
    // On an owner that is confirmed it is an error.
    c.owner = b"o";
    let ops = vec![ArgOp::Putrootfh, c.open_op(9, "g", 1, 0)];
    assert_eq!(c.status(ops).await, BAD_SEQID);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_9_1_4_stateids() {
    let rig = Rig::new().await;
    let mut c = Client40::new(&rig, b"x").await;
    let (fh, s) = c.open("f", 3, 0).await;
    let (other, _) = c.open("g", 3, 0).await;
    let old = Stateid { seqid: 1, ..s };
    let of_session = rig.client(b"y").await.open("f", 3).await.1;
    let mut no_state = s.other;
    no_state[8..].fill(0);
    for (stateid, status) in [
        (old, NfsStat::NFS4ERR_OLD_STATEID),
        (Stateid { seqid: 0, ..s }, NfsStat::NFS4ERR_OLD_STATEID),
        (Stateid { seqid: 7, ..s }, BAD_STATEID),
        (stale(s), NfsStat::NFS4ERR_STALE_STATEID),
        // Made up: small numbers are no mark of this instance, however young it is; its own mark and no state of it are bad.
        (Stateid { other: [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], ..s }, NfsStat::NFS4ERR_STALE_STATEID),
        (Stateid { other: [0, 0, 0, 2, 7, 7, 7, 7, 7, 7, 7, 7], ..s }, NfsStat::NFS4ERR_STALE_STATEID),
        (Stateid { other: no_state, ..s }, BAD_STATEID),
        (Stateid::CURRENT, BAD_STATEID),
        (Stateid::INVALID, BAD_STATEID),
        (of_session, BAD_STATEID),
    ] {
        assert_eq!(c.on(&fh, read_op(stateid, 0, 1)).await.status, status, "{stateid:?}");
        assert_eq!(c.on(&fh, write_op(stateid, 0, b"a")).await.status, status, "{stateid:?}");
    }
    assert_eq!(c.on(&other, read_op(s, 0, 1)).await.status, BAD_STATEID, "another file's");
    for special in [Stateid::ANONYMOUS, Stateid::READ_BYPASS] {
        assert_eq!(c.on(&fh, read_op(special, 0, 1)).await.status, NfsStat::NFS4_OK);
        assert_eq!(c.on(&fh, close_seq(special, 4)).await.status, BAD_STATEID);
    }
    // CLOSE of an old one is an answer that counts; a wrong number goes before it.
    assert_eq!(c.on(&fh, close_seq(old, 50)).await.status, BAD_SEQID);
    assert_eq!(c.on(&fh, close_seq(old, 4)).await.status, NfsStat::NFS4ERR_OLD_STATEID);
    assert_eq!(c.on(&fh, close_seq(stale(s), 5)).await.status, NfsStat::NFS4ERR_STALE_STATEID);
    assert_eq!(c.on(&fh, downgrade_op(s, 5, 1)).await.status, NfsStat::NFS4ERR_INVAL);
    assert_eq!(c.last(vec![close_seq(s, 6)]).await.status, NfsStat::NFS4ERR_NOFILEHANDLE);
    assert_eq!(c.on(&fh, close_seq(s, 6)).await.status, NfsStat::NFS4_OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_16_10_and_16_37_locks_and_their_owners() {
    let rig = Rig::new().await;
    let mut c = Client40::new(&rig, b"x").await;
    let (fh, s) = c.open("f", 3, 0).await;
    let mut foreign = c.new_lock(s, 3, b"l", 0, ALL);
    if let ArgOp::Lock(LockArgs { locker: Locker::New { lock_owner, .. }, .. }) = &mut foreign {
        lock_owner.clientid = 0;
    }
    assert_eq!(c.on(&fh, foreign).await.status, STALE_CLIENTID);
    assert_eq!(c.on(&fh, c.new_lock(s, 50, b"l", 0, ALL)).await.status, BAD_SEQID);
    assert_eq!(c.on(&fh, c.new_lock(stale(s), 3, b"l", 0, ALL)).await.status, NfsStat::NFS4ERR_STALE_STATEID);
    assert_eq!(c.on(&fh, c.new_lock(Stateid::ANONYMOUS, 3, b"l", 0, ALL)).await.status, BAD_STATEID);
    assert_eq!(c.on(&fh, c.new_lock(s, 3, b"l", 0, (0, 0))).await.status, NfsStat::NFS4ERR_INVAL);
    assert_eq!(c.on(&fh, c.new_lock(s, 4, b"l", 0, (9, u64::MAX - 2))).await.status, NfsStat::NFS4ERR_INVAL);
    let l = stateid_of(&c.on(&fh, c.new_lock(s, 5, b"l", 0, (0, 10))).await);
    assert_eq!(c.on(&fh, c.new_lock(s, 6, b"l", 1, (0, 10))).await.status, BAD_SEQID, "known here");
    // Another client of the same version, and one of another.
    let mut d = Client40::new(&rig, b"y").await;
    let (_, t) = d.open("f", 3, 0).await;
    let denied = d.on(&fh, d.new_lock(t, 3, b"l", 0, (5, 1))).await;
    let ResBody::Denied(by) = denied.body else { panic!("{denied:?}") };
    assert_eq!((by.offset, by.length, by.owner), (0, 10, owner(c.id, b"l")));
    let mut later = rig.client(b"z").await;
    let (_, u) = later.open("f", 3).await;
    let lock = ArgOp::Lock(LockArgs {
        locktype: LockType::Read,
        reclaim: false,
        offset: 0,
        length: 1,
        locker: Locker::New { open_seqid: 0, open_stateid: u, lock_seqid: 0, lock_owner: owner(0, b"l") },
    });
    assert_eq!(later.status(vec![ArgOp::Putfh(fh.clone()), lock]).await, NfsStat::NFS4ERR_DENIED);
    let test = |client| {
        let locktype = LockType::Write;
        ArgOp::Lockt(LocktArgs { locktype, offset: 0, length: 1, owner: owner(client, b"l") })
    };
    assert_eq!(c.on(&fh, test(c.id)).await.status, NfsStat::NFS4_OK, "its own");
    assert_eq!(c.on(&fh, test(d.id)).await.status, NfsStat::NFS4ERR_DENIED);
    assert_eq!(c.on(&fh, test(0)).await.status, STALE_CLIENTID);
    // RELEASE_LOCKOWNER.
    let release = |client| ArgOp::ReleaseLockowner(owner(client, b"l"));
    assert_eq!(c.status(vec![release(c.id)]).await, NfsStat::NFS4ERR_LOCKS_HELD);
    assert_eq!(c.on(&fh, unlock_op(l, 2, ALL)).await.status, BAD_SEQID);
    assert_eq!(c.on(&fh, unlock_op(stale(l), 1, ALL)).await.status, NfsStat::NFS4ERR_STALE_STATEID);
    assert_eq!(c.on(&fh, unlock_op(s, 1, ALL)).await.status, BAD_STATEID, "an open's");
    let m = stateid_of(&c.on(&fh, unlock_op(l, 1, ALL)).await);
    assert_eq!(c.on(&fh, unlock_op(l, 2, ALL)).await.status, NfsStat::NFS4ERR_OLD_STATEID);
    assert_eq!(c.status(vec![release(c.id)]).await, NfsStat::NFS4_OK);
    assert_eq!(c.status(vec![release(0)]).await, STALE_CLIENTID);
    assert_eq!(c.on(&fh, relock_op(m, 3, ALL)).await.status, BAD_STATEID);
    // The one that was denied asks again, and CLOSE frees what it got.
    assert_eq!(d.on(&fh, d.new_lock(t, 4, b"l", 0, ALL)).await.status, NfsStat::NFS4_OK);
    assert_eq!(d.on(&fh, close_seq(t, 5)).await.status, NfsStat::NFS4_OK);
    assert_eq!(c.on(&fh, c.new_lock(s, 6, b"l", 0, ALL)).await.status, NfsStat::NFS4_OK);
}

/// pynfs's LOCK24: an owner that holds nothing any more locks by way of the open again. Versions of the suite that count the
/// lock owner's requests find it allowed, as by Linux' server; older ones begin with 0 again, which is `BAD_SEQID` there, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_16_10_5_a_known_lock_owner_locks_by_its_open_once_more() {
    let rig = Rig::new().await;
    let mut c = Client40::new(&rig, b"x").await;
    let (fh, s) = c.open("f", 1, 0).await;
    let typed = |open: Stateid, open_seqid, lock_seqid, locktype| {
        let mut op = c.new_lock(open, open_seqid, b"l", lock_seqid, ALL);
        if let ArgOp::Lock(a) = &mut op {
            a.locktype = locktype;
        }
        op
    };
    let held = stateid_of(&c.on(&fh, typed(s, 3, 0, LockType::Read)).await);
    let mut upgrading = c.clone();
    upgrading.seqid = 3;
    let (_, s) = upgrading.open("f", 2, 0).await;
    assert_eq!(c.on(&fh, typed(s, 5, 1, LockType::Write)).await.status, BAD_SEQID, "it holds a lock");
    let free = stateid_of(&c.on(&fh, unlock_op(held, 1, ALL)).await);
    let s = stateid_of(&c.on(&fh, downgrade_op(s, 5, 2)).await);
    assert_eq!(c.on(&fh, typed(s, 6, 0, LockType::Write)).await.status, BAD_SEQID, "counted from 0 again");
    let again = stateid_of(&c.on(&fh, typed(s, 6, 2, LockType::Write)).await);
    assert_eq!((again.other, again.seqid), (free.other, free.seqid + 1));
    assert_eq!(c.on(&fh, close_seq(s, 7)).await.status, NfsStat::NFS4_OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_9_9_share_reservations() {
    let rig = Rig::new().await;
    let mut c = Client40::new(&rig, b"x").await;
    let (fh, s) = c.open("f", 3, 1).await;
    let denied = NfsStat::NFS4ERR_SHARE_DENIED;
    assert_eq!(c.status(vec![ArgOp::Putrootfh, c.open_op(3, "f", 1, 0)]).await, denied, "also one's own");
    let mut d = Client40::new(&rig, b"y").await;
    assert_eq!(d.status(vec![ArgOp::Putrootfh, d.open_op(1, "f", 1, 0)]).await, denied);
    d.seqid = 1;
    d.open("f", 2, 0).await;
    let mut later = rig.client(b"z").await;
    let open = open_op(b"o", "f", 3, 0, OpenHow::NoCreate);
    assert_eq!(later.status(vec![ArgOp::Putrootfh, open]).await, denied);
    assert_eq!(c.on(&fh, read_op(Stateid::ANONYMOUS, 0, 1)).await.status, NfsStat::NFS4ERR_LOCKED);
    assert_eq!(c.on(&fh, close_seq(s, 4)).await.status, NfsStat::NFS4_OK);
    assert_eq!(c.on(&fh, read_op(Stateid::ANONYMOUS, 0, 1)).await.status, NfsStat::NFS4_OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_9_6_3_a_lease_that_is_over() {
    let rig = Rig::with(Durability::Log, 1).await;
    let mut c = Client40::new(&rig, b"x").await;
    let (fh, s) = c.open("f", 3, 3).await;
    let lock = stateid_of(&c.on(&fh, c.new_lock(s, 3, b"l", 0, ALL)).await);
    let mut d = Client40::new(&rig, b"y").await;
    // Nobody renews; so the reservation goes as soon as somebody needs it, and not before that.
    let give_up = std::time::Instant::now() + PATIENCE;
    loop {
        let seqid = d.next();
        match d.status(vec![ArgOp::Putrootfh, d.open_op(seqid, "f", 3, 0)]).await {
            NfsStat::NFS4_OK => break,
            NfsStat::NFS4ERR_SHARE_DENIED => assert!(std::time::Instant::now() < give_up),
            other => panic!("{other}"),
        }
    }
    assert_eq!(c.renew().await, NfsStat::NFS4ERR_EXPIRED);
    assert_eq!(c.on(&fh, unlock_op(lock, 1, ALL)).await.status, NfsStat::NFS4ERR_EXPIRED);
    assert_eq!(c.on(&fh, read_op(s, 0, 1)).await.status, NfsStat::NFS4ERR_EXPIRED);
    assert_eq!(c.on(&fh, close_seq(s, 4)).await.status, NfsStat::NFS4ERR_EXPIRED);
    assert_eq!(c.status(vec![ArgOp::Putrootfh, c.open_op(4, "f", 1, 0)]).await, NfsStat::NFS4ERR_EXPIRED);
    let mut c = Client40::new(&rig, b"x").await;
    c.open("g", 3, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_9_6_2_after_a_crash_opens_and_locks_are_reclaimed() {
    let mut rig = Rig::with(Durability::Log, 3).await;
    let mut c = Client40::new(&rig, b"x").await;
    let (fh, s) = c.open("f", 3, 0).await;
    let l = stateid_of(&c.on(&fh, c.new_lock(s, 3, b"l", 0, ALL)).await);
    let idle = Client40::new(&rig, b"idle").await;
    let restored = rig.crash().await;
    assert_eq!(restored.reclaiming, 1);
    c.raw.conn = rig.raw().await.conn;
    assert_eq!(c.renew().await, STALE_CLIENTID);
    assert_eq!(Client40 { raw: c.raw.clone(), ..idle }.renew().await, STALE_CLIENTID);
    assert_eq!(c.on(&fh, read_op(s, 0, 1)).await.status, NfsStat::NFS4ERR_STALE_STATEID);
    assert_eq!(c.on(&fh, unlock_op(l, 1, ALL)).await.status, NfsStat::NFS4ERR_STALE_STATEID);
    assert_eq!(c.on(&fh, c.reclaim_op(1, 3)).await.status, STALE_CLIENTID);
    // Under a new client ID.
    let mut c = Client40::new(&rig, b"x").await;
    let mut stranger = Client40::new(&rig, b"y").await;
    assert_eq!(stranger.on(&fh, stranger.reclaim_op(1, 3)).await.status, NfsStat::NFS4ERR_RECLAIM_BAD);
    let grace = NfsStat::NFS4ERR_GRACE;
    assert_eq!(stranger.status(vec![ArgOp::Putrootfh, stranger.open_op(2, "f", 3, 0)]).await, grace);
    assert_eq!(stranger.on(&fh, read_op(Stateid::ANONYMOUS, 0, 1)).await.status, grace);
    assert_eq!(c.status(vec![ArgOp::Putrootfh, ArgOp::Remove(name("f"))]).await, grace);
    let opened = c.on(&fh, c.reclaim_op(1, 3)).await;
    let ResBody::Open(o) = &opened.body else { panic!("{opened:?}") };
    assert_eq!(o.rflags & flags::OPEN4_RESULT_CONFIRM, 0, "a reclaim is not confirmed");
    let s = o.stateid;
    let mut lock = c.new_lock(s, 2, b"l", 0, ALL);
    if let ArgOp::Lock(a) = &mut lock {
        a.reclaim = true;
    }
    let l = stateid_of(&c.on(&fh, lock.clone()).await);
    assert_eq!(c.on(&fh, write_op(s, 0, b"again")).await.status, NfsStat::NFS4_OK);
    // GRACE is an answer that counts.
    c.seqid = 2;
    let mut tries = 0;
    loop {
        let seqid = c.next();
        match c.status(vec![ArgOp::Putrootfh, c.open_op(seqid, "g", 3, 0)]).await {
            NfsStat::NFS4_OK => break,
            NfsStat::NFS4ERR_GRACE => tries += 1,
            other => panic!("{other}"),
        }
        tokio::task::yield_now().await;
    }
    assert!(tries > 0);
    // After grace nothing is reclaimed; what was stands.
    stranger.seqid = 2;
    assert_eq!(stranger.on(&fh, stranger.reclaim_op(3, 3)).await.status, NfsStat::NFS4ERR_NO_GRACE);
    stranger.seqid = 3;
    let (_, t) = stranger.open("f", 3, 0).await;
    let against = stranger.new_lock(t, 6, b"l", 0, (0, 1));
    assert_eq!(stranger.on(&fh, against).await.status, NfsStat::NFS4ERR_DENIED);
    assert_eq!(c.on(&fh, unlock_op(l, 1, ALL)).await.status, NfsStat::NFS4_OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_clean_stop_with_nothing_open_begins_no_grace() {
    let mut rig = Rig::new().await;
    let mut c = Client40::new(&rig, b"x").await;
    let (fh, s) = c.open("f", 3, 0).await;
    assert_eq!(c.on(&fh, close_seq(s, 3)).await.status, NfsStat::NFS4_OK);
    assert_eq!(rig.restart().await.reclaiming, 0);
    let mut c = Client40::new(&rig, b"x").await;
    c.open("f", 3, 0).await;
    // With something open it does, and a client that has restarted as well ends it.
    assert_eq!(rig.restart().await.reclaiming, 1);
    let mut c = Client40::with(&rig, b"x", 2).await;
    let (fh, _) = c.open("f", 3, 0).await;
    assert_eq!(c.on(&fh, c.reclaim_op(3, 3)).await.status, NfsStat::NFS4ERR_NO_GRACE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn what_was_answered_is_there_after_a_crash() {
    let mut rig = Rig::new().await;
    let mut c = Client40::new(&rig, b"x").await;
    let (fh, s) = c.open("f", 3, 0).await;
    assert_eq!(c.on(&fh, write_op(s, 0, b"data")).await.status, NfsStat::NFS4_OK);
    let make = ArgOp::Create(CreateArgs { kind: CreateType::Dir, name: name("d"), attrs: mode(0o755) });
    assert_ok(&c.run(vec![ArgOp::Putrootfh, make]).await);
    rig.crash().await;
    assert_eq!(std::fs::read(rig.export().join("f")).expect("the file"), b"data");
    assert!(rig.export().join("d").is_dir());
}
