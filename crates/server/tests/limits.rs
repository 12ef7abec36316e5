//! Each limit of what clients hold is reached, answered as `docs/limits.md` says, and left again.

mod common;

use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use landfast_rpc::{Connection, NoService};
use landfast_server::limited::{Limit, Limits};
use landfast_server::limits::LOCK_OWNERS_PER_CLIENT_MAX;
use landfast_xdr::Bytes;
use std::sync::Arc;

async fn rig(limits: Limits) -> Rig {
    let mut rig = Rig::new().await;
    rig.limits = limits;
    rig.restart().await;
    rig
}

fn used(rig: &Rig, resource: &str) -> (u64, u64) {
    let all = rig.server().stats().limited();
    all.iter().find(|(r, ..)| *r == resource).map(|(_, used, limit)| (*used, *limit)).expect("a resource")
}

/// A thousand connections are served, each is heard, the next is closed, and when one goes there is room.
#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_thousand_connections() {
    const MANY: usize = 1000;
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wanted = rustix::process::Rlimit { current: files.maximum, ..files };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, wanted).expect("descriptors");
    let limits = Limits::default().with(Limit::Connections, MANY).with(Limit::ClientConnections, MANY);
    let rig = rig(limits).await;
    let mut all = Vec::with_capacity(MANY);
    for _ in 0..MANY {
        all.push(rig.raw().await);
    }
    for c in &all {
        assert_eq!(c.call(PROC_NULL, Bytes::new()).await, Ok(Bytes::new()));
    }
    assert_eq!(used(&rig, "connections"), (MANY as u64, MANY as u64));
    let further = rig.raw().await;
    assert!(further.call(PROC_NULL, Bytes::new()).await.is_err(), "closed");
    all.pop();
    while used(&rig, "connections").0 == MANY as u64 {
        tokio::task::yield_now().await;
    }
    assert_eq!(rig.raw().await.call(PROC_NULL, Bytes::new()).await, Ok(Bytes::new()));
    assert_eq!(all[0].call(PROC_NULL, Bytes::new()).await, Ok(Bytes::new()));
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn sessions_and_slots_over_the_limit() {
    let rig = rig(Limits::default().with(Limit::ClientSessions, 2).with(Limit::SessionSlots, 4)).await;
    let raw = rig.raw().await;
    let ex = raw.exchange_id(b"c", 1).await;
    let mut sessions = Vec::new();
    for n in 0..3 {
        let s = raw.create_session(session_args(ex.clientid, ex.sequenceid + n)).await;
        assert_eq!(s.fore_chan_attrs.max_requests, 4, "slots");
        sessions.push(s.sessionid);
    }
    assert_eq!(used(&rig, "client_sessions"), (2, 2));
    assert_eq!(used(&rig, "session_slots"), (4, 4));
    let mut status = Vec::new();
    for sessionid in sessions {
        let op = ArgOp::Sequence(SequenceArgs {
            sessionid,
            sequenceid: 1,
            slotid: 0,
            highest_slotid: 0,
            cachethis: false,
        });
        status.push(raw.alone(op).await.status);
    }
    assert_eq!(status, [NfsStat::NFS4ERR_BADSESSION, NfsStat::NFS4_OK, NfsStat::NFS4_OK]);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn operations_over_the_limit() {
    let rig = rig(Limits::default().with(Limit::CompoundOperations, 16)).await;
    let mut a = rig.client(b"a").await;
    let raw = rig.raw().await;
    let ex = raw.exchange_id(b"b", 1).await;
    let session = raw.create_session(session_args(ex.clientid, ex.sequenceid)).await;
    assert_eq!(session.fore_chan_attrs.max_operations, 16);
    assert_eq!(used(&rig, "compound_operations"), (16, 16));
    // With the SEQUENCE before it 16, and 17.
    assert_eq!(a.status(vec![ArgOp::Putrootfh; 15]).await, NfsStat::NFS4_OK);
    a.seq += 1;
    assert_eq!(a.again(vec![ArgOp::Putrootfh; 16]).await.status, NfsStat::NFS4ERR_TOO_MANY_OPS);
    let raw = Raw { minor: 0, ..raw };
    assert_eq!(raw.compound(vec![ArgOp::Putrootfh; 16]).await.status, NfsStat::NFS4_OK);
    assert_eq!(raw.compound(vec![ArgOp::Putrootfh; 17]).await.status, NfsStat::NFS4ERR_RESOURCE);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn opens_over_the_limit() {
    // Both clients are at one address, which has as many as are free.
    let rig = rig(Limits::default().with(Limit::Opens, 40).with(Limit::ClientOpens, 16)).await;
    let (mut a, mut b) = (rig.client(b"a").await, rig.client(b"b").await);
    let open = |i: u32| {
        let how = OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
        vec![ArgOp::Putrootfh, open_op(b"o", &format!("f{i}"), 3, 0, how)]
    };
    let mut last = Stateid::ANONYMOUS;
    for i in 0..16 {
        let res = a.last(open(i)).await;
        let ResBody::Open(o) = res.body else { panic!("OPEN gave {:?}", res.status) };
        last = o.stateid;
    }
    assert_eq!(a.status(open(16)).await, NfsStat::NFS4ERR_NOSPC, "of one client");
    assert_eq!(a.status(open(3)).await, NfsStat::NFS4_OK, "what it has it has");
    for i in 0..4 {
        assert_eq!(b.status(open(i)).await, NfsStat::NFS4_OK, "another client");
    }
    assert_eq!(b.status(open(4)).await, NfsStat::NFS4ERR_DELAY, "of one address");
    assert_eq!((used(&rig, "opens"), used(&rig, "client_opens")), ((20, 40), (16, 16)));
    let fh = a.handle(&["f15"]).await;
    assert_eq!(a.status(vec![ArgOp::Putfh(fh), close_op(last)]).await, NfsStat::NFS4_OK);
    assert_eq!(b.status(open(4)).await, NfsStat::NFS4_OK, "there is room again");
}

fn lock(open_stateid: Stateid, owner: &'static [u8], clientid: u64, offset: u64) -> ArgOp {
    let lock_owner = StateOwner { clientid, owner: Opaque1024(Bytes::from_static(owner)) };
    let locker = Locker::New { open_seqid: 0, open_stateid, lock_seqid: 0, lock_owner };
    ArgOp::Lock(LockArgs { locktype: LockType::Write, reclaim: false, offset, length: 1, locker })
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn locks_over_the_limit() {
    // Both clients are at one address, which has as many as are free.
    let rig = rig(Limits::default().with(Limit::Locks, 40).with(Limit::ClientLocks, 16)).await;
    let (mut a, mut b) = (rig.client(b"a").await, rig.client(b"b").await);
    let (fa, sa) = a.open("a", 3).await;
    let (fb, sb) = b.open("b", 3).await;
    let (ida, idb) = (a.id, b.id);
    let mut held = Stateid::ANONYMOUS;
    for i in 0..16 {
        let mut op = lock(sa, b"l", ida, 4 * i);
        if let ArgOp::Lock(l) = &mut op {
            l.length = 3;
        }
        let res = a.last(vec![ArgOp::Putfh(fa.clone()), op]).await;
        let ResBody::Lock(stateid) = res.body else { panic!("LOCK gave {:?}", res.status) };
        held = stateid;
    }
    let more = vec![ArgOp::Putfh(fa.clone()), lock(sa, b"l", ida, 100)];
    // RFC 8881 section 15.2 has no NOSPC for LOCK and LOCKU.
    assert_eq!(a.status(more.clone()).await, NfsStat::NFS4ERR_SERVERFAULT, "of one client");
    for i in 0..4 {
        let op = lock(sb, b"l", idb, 2 * i);
        assert_eq!(b.status(vec![ArgOp::Putfh(fb.clone()), op]).await, NfsStat::NFS4_OK, "another client");
    }
    let op = lock(sb, b"l", idb, 100);
    assert_eq!(
        b.status(vec![ArgOp::Putfh(fb.clone()), op]).await,
        NfsStat::NFS4ERR_SERVERFAULT,
        "of one address"
    );
    assert_eq!((used(&rig, "locks"), used(&rig, "client_locks")), ((20, 40), (16, 16)));
    let unlock = |offset, length| {
        let (locktype, lock_stateid) = (LockType::Write, Stateid { seqid: 0, ..held });
        let op = ArgOp::Locku(LockuArgs { locktype, seqid: 0, lock_stateid, offset, length });
        vec![ArgOp::Putfh(fa.clone()), op]
    };
    assert_eq!(a.status(unlock(1, 1)).await, NfsStat::NFS4ERR_SERVERFAULT, "two ranges of one");
    assert_eq!(a.status(unlock(0, 2)).await, NfsStat::NFS4_OK, "a shorter one");
    assert_eq!(a.status(more.clone()).await, NfsStat::NFS4ERR_SERVERFAULT);
    assert_eq!(a.status(unlock(0, u64::MAX)).await, NfsStat::NFS4_OK);
    assert_eq!(a.status(more).await, NfsStat::NFS4_OK, "there is room again");
}

/// So many that each of the last limit's locks has an owner of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn lock_owners_over_the_limit() {
    const AT_ONCE: usize = 120;
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let files = [c.open("a", 3).await, c.open("b", 3).await];
    let mut made = 0;
    let (refused, full) = loop {
        // On each file half of them: so many ranges of one would be at a limit of their own.
        let (fh, open) = &files[usize::from(made >= LOCK_OWNERS_PER_CLIENT_MAX / 2)];
        let locks = (made..made + AT_ONCE).map(|n| {
            let lock_owner = StateOwner { clientid: c.id, owner: Opaque1024(name(&format!("owner {n}"))) };
            let locker = Locker::New { open_seqid: 0, open_stateid: *open, lock_seqid: 0, lock_owner };
            let (locktype, offset) = (LockType::Write, 2 * n as u64);
            ArgOp::Lock(LockArgs { locktype, reclaim: false, offset, length: 1, locker })
        });
        let res = c.run(std::iter::once(ArgOp::Putfh(fh.clone())).chain(locks).collect()).await;
        made += res.iter().filter(|r| r.op == OpNum::LOCK && r.status.is_ok()).count();
        match res.last().map(|r| r.status) {
            Some(NfsStat::NFS4_OK) => {}
            other => break (other, made),
        }
    };
    assert_eq!((refused, full), (Some(NfsStat::NFS4ERR_SERVERFAULT), LOCK_OWNERS_PER_CLIENT_MAX));
    // An owner that is known locks on; another client has its own share; who lets go makes room.
    let (fh, open) = &files[1];
    let known: &'static [u8] = b"owner 65535";
    let again = vec![ArgOp::Putfh(fh.clone()), lock(*open, known, c.id, 1)];
    let res = c.last(again).await;
    let ResBody::Lock(held) = res.body else { panic!("LOCK gave {:?}", res.status) };
    let mut d = rig.client(b"d").await;
    let (fd, sd) = d.open("c", 3).await;
    let (idc, idd) = (c.id, d.id);
    assert_eq!(d.status(vec![ArgOp::Putfh(fd), lock(sd, b"l", idd, 0)]).await, NfsStat::NFS4_OK);
    let new = vec![ArgOp::Putfh(fh.clone()), lock(*open, b"new", idc, 1 << 40)];
    assert_eq!(c.status(new.clone()).await, NfsStat::NFS4ERR_SERVERFAULT);
    let unlock = ArgOp::Locku(LockuArgs {
        locktype: LockType::Write,
        seqid: 0,
        lock_stateid: held,
        offset: 0,
        length: u64::MAX,
    });
    let let_go = vec![ArgOp::Putfh(fh.clone()), unlock, ArgOp::FreeStateid(Stateid { seqid: 0, ..held })];
    assert_ok(&c.run(let_go).await);
    assert_eq!(c.status(new).await, NfsStat::NFS4_OK, "there is room again");
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn clients_over_the_limit() {
    let rig = rig(Limits::default().with(Limit::Clients, 2)).await;
    let (mut a, mut b) = (rig.client(b"a").await, rig.client(b"b").await);
    let (fa, sa) = a.open("a", 3).await;
    b.open("b", 3).await;
    let conn =
        Connection::connect(rig.addr(), Arc::new(NoService), &Default::default()).await.expect("connected");
    let c = Raw { conn, ..rig.raw().await };
    let exchange = || ArgOp::ExchangeId(exchange_args(b"c", 1));
    assert_eq!(c.alone(exchange()).await.status, NfsStat::NFS4ERR_DELAY, "each holds something");
    assert_eq!(used(&rig, "clients"), (2, 2));
    assert_eq!(a.status(vec![ArgOp::Putfh(fa), close_op(sa)]).await, NfsStat::NFS4_OK);
    assert_eq!(c.alone(exchange()).await.status, NfsStat::NFS4_OK, "who holds nothing has gone");
    assert_eq!(used(&rig, "clients"), (2, 2));
    assert_eq!(
        b.status(vec![ArgOp::Putrootfh, ArgOp::Getfh]).await,
        NfsStat::NFS4_OK,
        "who holds something stays"
    );
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_open_over_the_limit_leaves_the_file_as_it_is() {
    let rig = rig(Limits::default().with(Limit::ClientOpens, 16)).await;
    let (mut a, mut b) = (rig.client(b"a").await, rig.client(b"b").await);
    std::fs::write(rig.export().join("full"), b"data").expect("a file");
    for i in 0..16 {
        a.open(&format!("f{i}"), 3).await;
    }
    let empty = fattr(AttrValues { size: Some(0), ..AttrValues::default() });
    let how = || OpenHow::Create(CreateHow::Unchecked(empty.clone()));
    let cut = || vec![ArgOp::Putrootfh, open_op(b"another", "full", 3, 0, how())];
    assert_eq!(a.status(cut()).await, NfsStat::NFS4ERR_NOSPC);
    assert_eq!(std::fs::read(rig.export().join("full")).expect("the file"), b"data");
    assert_eq!(b.status(cut()).await, NfsStat::NFS4_OK);
    assert_eq!(std::fs::read(rig.export().join("full")).expect("the file"), b"");
}
