//! Clients, sessions, slots, replies: over a real socket, restarts included.

use crate::common;

use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::flags;
use landfast_nfs::v4::*;
use landfast_volume::Durability;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_46_a_retry_gets_the_first_reply_and_is_executed_once() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    c.seq += 1;
    let make = vec![ArgOp::Putrootfh, mkdir("d"), ArgOp::Getfh];
    let first = c.again(make.clone()).await;
    assert_eq!(first.status, NfsStat::NFS4_OK);
    assert_eq!(c.again(make.clone()).await, first, "not EXIST: the reply of the first time");
    assert_eq!(
        c.again(vec![ArgOp::Putrootfh, mkdir("e"), ArgOp::Getfh]).await.status,
        NfsStat::NFS4ERR_SEQ_FALSE_RETRY
    );
    let mut other = c.clone();
    other.raw.cred = user(1000);
    assert_eq!(other.again(make.clone()).await.status, NfsStat::NFS4ERR_SEQ_FALSE_RETRY);
    // A lone SEQUENCE with the same number is how Linux asks about an interrupted slot.
    assert_eq!(c.again(Vec::new()).await.status, NfsStat::NFS4_OK);
    c.seq += 2;
    assert_eq!(c.again(make.clone()).await.status, NfsStat::NFS4ERR_SEQ_MISORDERED);
    c.seq -= 1;
    assert_eq!(c.again(make).await.status, NfsStat::NFS4ERR_EXIST);
    assert_eq!(rig.server().stats().replays, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_retry_that_overtakes_its_request_waits_for_it() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let mut other = c.clone();
    other.raw.conn = rig.raw().await.conn;
    for i in 0..50 {
        c.seq += 1;
        other.seq += 1;
        let make = vec![ArgOp::Putrootfh, mkdir(&format!("d{i}")), ArgOp::Getfh];
        let (a, b) = tokio::join!(c.again(make.clone()), other.again(make));
        assert_eq!(a.status, NfsStat::NFS4_OK);
        assert_eq!(a, b);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_6_1_3_a_reply_that_was_not_kept() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    c.cachethis = false;
    let look = vec![ArgOp::Putrootfh, ArgOp::Getattr(Bitmap::of(&[4]))];
    c.run(look.clone()).await;
    let again = c.again(look).await;
    assert_eq!(again.results.len(), 2);
    assert_eq!(again.results[0].status, NfsStat::NFS4_OK);
    assert_eq!(again.results[1].status, NfsStat::NFS4ERR_RETRY_UNCACHED_REP);
    // What changes something is kept all the same.
    c.seq += 1;
    let make = vec![ArgOp::Putrootfh, mkdir("d")];
    let first = c.again(make.clone()).await;
    assert_eq!(c.again(make).await, first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_6_4_limits_are_checked_before_anything_is_done() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    let ex = raw.exchange_id(b"c", 1).await;
    let mut args = session_args(ex.clientid, ex.sequenceid);
    args.fore_chan_attrs.max_operations = 4;
    args.fore_chan_attrs.max_request_size = 2048;
    args.fore_chan_attrs.max_response_size = 600;
    args.fore_chan_attrs.max_response_size_cached = 230;
    let s = raw.create_session(args).await;
    let mut c = Client {
        raw,
        id: ex.clientid,
        session: s.sessionid,
        seq: 1,
        cachethis: false,
        flags: s.flags,
        fore: s.fore_chan_attrs,
    };
    let five = vec![ArgOp::Putrootfh, ArgOp::Getfh, ArgOp::Getfh, ArgOp::Getfh];
    let res = c.again(five).await;
    assert_eq!((res.status, res.results.len()), (NfsStat::NFS4ERR_TOO_MANY_OPS, 1));
    let long = vec![ArgOp::Putrootfh, ArgOp::Lookup(bytes::Bytes::from(vec![b'x'; 3000]))];
    assert_eq!(c.again(long).await.status, NfsStat::NFS4ERR_REQ_TOO_BIG);
    // The slot has not moved.
    assert_eq!(c.again(vec![ArgOp::Putrootfh]).await.status, NfsStat::NFS4_OK);
    // Attributes and a CREATE do not fit in 230 bytes; the directory does not come to be.
    c.cachethis = true;
    let big = vec![ArgOp::Putrootfh, ArgOp::Getattr(Bitmap::of(&(0..12).collect::<Vec<_>>())), mkdir("d")];
    let last = c.last(big).await;
    assert_eq!((last.op, last.status), (OpNum::CREATE, NfsStat::NFS4ERR_REP_TOO_BIG_TO_CACHE));
    assert!(!rig.export().join("d").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_2_1_what_may_stand_where() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let alone = |op| c.raw.alone(op);
    assert_eq!(alone(ArgOp::Putrootfh).await.status, NfsStat::NFS4ERR_OP_NOT_IN_SESSION);
    let two = vec![ArgOp::ExchangeId(exchange_args(b"x", 1)), ArgOp::Putrootfh];
    assert_eq!(c.raw.compound(two).await.status, NfsStat::NFS4ERR_NOT_ONLY_OP);
    let seq = c.sequence();
    assert_eq!(c.status(vec![seq]).await, NfsStat::NFS4ERR_SEQUENCE_POS);
    let bind = BindConnToSessionArgs { sessid: c.session, dir: 3, use_conn_in_rdma_mode: false };
    assert_eq!(c.status(vec![ArgOp::BindConnToSession(bind.clone())]).await, NfsStat::NFS4ERR_NOT_ONLY_OP);
    assert_eq!(c.raw.alone(ArgOp::BindConnToSession(bind)).await.status, NfsStat::NFS4_OK);
    assert_eq!(c.status(vec![ArgOp::Getfh]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
    assert_eq!(c.status(vec![ArgOp::Restorefh]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
    assert_eq!(c.raw.compound(Vec::new()).await.status, NfsStat::NFS4_OK);
    let mut bad = c.clone();
    bad.session[3] ^= 1;
    assert_eq!(bad.again(Vec::new()).await.status, NfsStat::NFS4ERR_BADSESSION);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_35_and_18_36_negotiation() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    let mut args = exchange_args(b"c", 1);
    args.flags = 0x8000_0000;
    assert_eq!(raw.alone(ArgOp::ExchangeId(args)).await.status, NfsStat::NFS4ERR_INVAL);
    let mut args = exchange_args(b"c", 1);
    args.state_protect = StateProtectArgs::MachCred(StateProtectOps::default());
    assert_eq!(raw.alone(ArgOp::ExchangeId(args)).await.status, NfsStat::NFS4ERR_INVAL);
    let ex = raw.exchange_id(b"c", 1).await;
    // Linux refuses a mount without exactly one role.
    assert_eq!(ex.flags & flags::EXCHGID4_FLAG_MASK_PNFS, flags::EXCHGID4_FLAG_USE_NON_PNFS);
    assert_eq!(ex.server_owner.major_id, ex.server_scope);
    let args = session_args(ex.clientid, ex.sequenceid);
    let s = raw.create_session(args.clone()).await;
    assert_eq!(s.flags & flags::CREATE_SESSION4_FLAG_PERSIST, flags::CREATE_SESSION4_FLAG_PERSIST);
    let (asked, got) = (channel(), &s.fore_chan_attrs);
    assert!(got.max_response_size <= asked.max_response_size && got.max_operations >= asked.max_operations);
    assert_eq!(s.back_chan_attrs, channel());
    // Its own reply cache.
    assert_eq!(raw.create_session(args.clone()).await, s);
    let stale = CreateSessionArgs { clientid: ex.clientid + 1, ..args.clone() };
    assert_eq!(raw.alone(ArgOp::CreateSession(stale)).await.status, NfsStat::NFS4ERR_STALE_CLIENTID);
    let ahead = CreateSessionArgs { sequence: args.sequence + 2, ..args };
    assert_eq!(raw.alone(ArgOp::CreateSession(ahead)).await.status, NfsStat::NFS4ERR_SEQ_MISORDERED);
    assert_eq!(raw.exchange_id(b"c", 1).await.flags & flags::EXCHGID4_FLAG_CONFIRMED_R, 0x8000_0000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn sessions_and_clients_end() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (_, open) = c.open("f", 1).await;
    assert_eq!(c.raw.alone(ArgOp::DestroyClientid(c.id)).await.status, NfsStat::NFS4ERR_CLIENTID_BUSY);
    assert_eq!(c.raw.alone(ArgOp::DestroyClientid(c.id + 9)).await.status, NfsStat::NFS4ERR_STALE_CLIENTID);
    assert_ok(&c.run(vec![ArgOp::Putrootfh, ArgOp::Lookup(name("f")), close_op(open)]).await);
    let destroy = ArgOp::DestroySession(c.session);
    assert_eq!(c.status(vec![destroy.clone(), ArgOp::Putrootfh]).await, NfsStat::NFS4ERR_NOT_ONLY_OP);
    assert_eq!(c.status(vec![destroy.clone()]).await, NfsStat::NFS4_OK);
    assert_eq!(c.raw.alone(destroy).await.status, NfsStat::NFS4ERR_BADSESSION);
    assert_eq!(c.raw.alone(ArgOp::DestroyClientid(c.id)).await.status, NfsStat::NFS4_OK);
    assert_eq!(rig.server().stats().clients, 0);
}

/// Whichever of the two runs first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_session_and_its_client_end_without_a_wait_between_them() {
    let rig = Rig::new().await;
    let c = rig.client(b"c").await;
    let forgotten = {
        let (raw, id) = (rig.raw().await, c.id);
        tokio::spawn(async move { raw.alone(ArgOp::DestroyClientid(id)).await.status })
    };
    let busy = || rig.server().stats().op(OpNum::DESTROY_CLIENTID);
    while busy() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!forgotten.is_finished(), "it is not refused at once");
    assert_eq!(c.raw.alone(ArgOp::DestroySession(c.session)).await.status, NfsStat::NFS4_OK);
    assert_eq!(forgotten.await.unwrap(), NfsStat::NFS4_OK);
    assert_eq!(rig.server().stats().clients, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn replies_survive_the_death_of_the_server() {
    let mut rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let server = c.raw.exchange_id(b"probe", 1).await;
    let handle = c.handle(&[]).await;
    c.seq += 1;
    let make = vec![ArgOp::Putfh(handle.clone()), mkdir("d"), ArgOp::Getfh];
    let first = c.again(make.clone()).await;
    assert_eq!(first.status, NfsStat::NFS4_OK);
    for clean in [false, true] {
        let restored = if clean { rig.restart().await } else { rig.crash().await };
        assert_eq!((restored.clients, restored.sessions, restored.reclaiming), (1, 1, 0), "clean: {clean}");
        c.raw.conn = rig.raw().await.conn;
        assert_eq!(c.again(make.clone()).await, first, "clean: {clean}");
        assert_eq!(c.status_flags_on(1).await, 0);
        let now = c.raw.exchange_id(b"probe", 1).await;
        assert_eq!(
            (now.server_owner, now.server_scope),
            (server.server_owner.clone(), server.server_scope.clone())
        );
    }
    // And the session goes on.
    assert_eq!(c.status(make).await, NfsStat::NFS4ERR_EXIST);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_8_4_2_opens_are_reclaimed_after_the_death_of_the_server() {
    let mut rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let mut d = rig.client(b"d").await;
    c.deny("denied").await;
    let (fh, stateid) = c.open("f", 3).await;
    let write = vec![ArgOp::Putfh(fh.clone()), write_op(stateid, 0, b"kept")];
    assert_ok(&c.run(write.clone()).await);
    // The second time in the middle of the reclaim.
    for times in [1, 2] {
        let restored = rig.crash().await;
        assert_eq!(restored.reclaiming, 1, "{times}");
        c.raw.conn = rig.raw().await.conn;
        d.raw.conn = rig.raw().await.conn;
        if times == 1 {
            // Section 2.10.6.5: the session is dead, which answers what was done before and does nothing new.
            let retry = c.again(write.clone()).await;
            assert_eq!((retry.status, retry.results.len()), (NfsStat::NFS4_OK, 3));
        }
        assert_eq!(c.sequence_status().await, NfsStat::NFS4ERR_DEADSESSION);
        let anew = vec![ArgOp::CreateSession(session_args(c.id, 2))];
        assert_eq!(c.raw.compound(anew).await.status, NfsStat::NFS4ERR_STALE_CLIENTID);
        let dead = c.id;
        c = Client::without_reclaim(c.raw, b"c", 1).await;
        assert_ne!(c.id, dead);
        assert_eq!(c.status_flags().await, flags::SEQ4_STATUS_RESTART_RECLAIM_NEEDED);
    }
    // Who held nothing goes on.
    assert_eq!(d.status_flags().await, 0);
    // A stateid of the former instance, never STALE_STATEID.
    let read = vec![ArgOp::Putfh(fh.clone()), read_op(stateid, 0, 10)];
    assert_eq!(c.status(read).await, NfsStat::NFS4ERR_BAD_STATEID);
    match c.last(vec![ArgOp::TestStateid(vec![stateid])]).await.body {
        ResBody::TestStateid(s) => assert_eq!(s, [NfsStat::NFS4ERR_BAD_STATEID]),
        other => panic!("TEST_STATEID gave {other:?}"),
    }
    let open = |claim| {
        ArgOp::Open(OpenArgs {
            seqid: 0,
            share_access: 3,
            share_deny: 0,
            owner: args::owner(0, b"o"),
            openhow: OpenHow::NoCreate,
            claim,
        })
    };
    let anew = vec![ArgOp::Putrootfh, open(OpenClaim::Null(name("f")))];
    assert_eq!(c.status(anew.clone()).await, NfsStat::NFS4ERR_GRACE);
    assert_eq!(d.status(anew.clone()).await, NfsStat::NFS4ERR_GRACE);
    assert_eq!(d.status(vec![ArgOp::Putrootfh, ArgOp::Remove(name("f"))]).await, NfsStat::NFS4ERR_GRACE);
    let reclaim = vec![ArgOp::Putfh(fh.clone()), open(OpenClaim::Previous(0))];
    assert!(matches!(
        d.status(reclaim.clone()).await,
        NfsStat::NFS4ERR_NO_GRACE | NfsStat::NFS4ERR_RECLAIM_BAD
    ));
    let res = c.run(reclaim.clone()).await;
    assert_ok(&res);
    let ResBody::Open(opened) = &res[1].body else { panic!("OPEN gave {:?}", res[1]) };
    assert_ok(&c.run(vec![ArgOp::ReclaimComplete(false)]).await);
    assert_eq!(c.status_flags().await, 0);
    assert_eq!(c.status(vec![ArgOp::ReclaimComplete(false)]).await, NfsStat::NFS4ERR_COMPLETE_ALREADY);
    assert_eq!(c.status(reclaim).await, NfsStat::NFS4ERR_NO_GRACE);
    // The last who had to has: grace is over, and what was reclaimed works.
    assert_eq!(d.status(anew).await, NfsStat::NFS4_OK);
    let read = c.last(vec![ArgOp::Putfh(fh), read_op(opened.stateid, 0, 10)]).await;
    assert!(matches!(read.body, ResBody::Read(r) if r.data == "kept"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn without_a_log_nothing_persistent_is_promised() {
    for durability in [Durability::Sync, Durability::Unsafe] {
        let mut rig = Rig::with(durability, 90).await;
        let mut c = rig.client(b"c").await;
        assert_eq!(c.flags & flags::CREATE_SESSION4_FLAG_PERSIST, 0);
        let fh = c.handle(&[]).await;
        c.run(vec![ArgOp::Putfh(fh.clone()), mkdir("d")]).await;
        let restored = rig.restart().await;
        assert_eq!((restored.clients, restored.sessions), (0, 0));
        c.raw.conn = rig.raw().await.conn;
        assert_eq!(c.again(Vec::new()).await.status, NfsStat::NFS4ERR_BADSESSION);
        let mut c = rig.client(b"c").await;
        // Handles hold all the same.
        assert_eq!(c.status(vec![ArgOp::Putfh(fh), ArgOp::Lookup(name("d"))]).await, NfsStat::NFS4_OK);
    }
}
