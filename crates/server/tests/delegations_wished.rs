//! What a client wishes for when it opens a file beside which it keeps its open (RFC 8881 sections 10.4 and 18.16.3), over real sockets: what
//! pynfs's tests of delegations send, whose codes are named (docs/suites/pynfs.md).

use crate::common;
use crate::delegations::*;
use crate::delegations_asked::{Holder, looks};

use common::back::*;
use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::flags::*;
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;
use landfast_rpc::Credential;
use landfast_server::exports::Delegate;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const READ: u32 = OPEN4_SHARE_ACCESS_READ;
const WRITE: u32 = OPEN4_SHARE_ACCESS_WRITE;
const BOTH: u32 = OPEN4_SHARE_ACCESS_BOTH;
const TIMES: u32 = OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS;
const WANT_READ: u32 = OPEN4_SHARE_ACCESS_WANT_READ_DELEG;
const WANT_WRITE: u32 = OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG;
const WANT_ANY: u32 = OPEN4_SHARE_ACCESS_WANT_ANY_DELEG;
const WANT_NONE: u32 = OPEN4_SHARE_ACCESS_WANT_NO_DELEG;

/// A delegation for reading or for writing, beside an open.
async fn beside_an_open(
    c: &mut Client,
    file: &str,
    access: u32,
    write: bool,
) -> (Stateid, OpenRes, FileHandle) {
    let (res, fh) = open(c, file, access).await;
    assert!(res.stateid != Stateid::ANONYMOUS && res.rflags & OPEN4_RESULT_NO_OPEN_STATEID == 0, "{res:?}");
    match (&res.delegation, write) {
        (OpenDelegation::Read(_), false) | (OpenDelegation::Write(_), true) => {}
        other => panic!("{access:#x}: {other:?}"),
    }
    let stateid = stateid_of(&res.delegation).expect("a delegation");
    (stateid, res, fh)
}

/// An OPEN of somebody else, under way.
async fn rivals_open(rig: &Rig, file: &str, access: u32) -> JoinHandle<Vec<ResOp>> {
    let mut rival = rig.client(file.as_bytes()).await;
    let ops = vec![ArgOp::Putrootfh, open_op(b"rival", file, access, 0, OpenHow::NoCreate)];
    tokio::spawn(async move { rival.run(ops).await })
}

/// OPEN by handle (CLAIM_FH) of a file that is there.
async fn open_fh(c: &mut Client, fh: &FileHandle, owner: &[u8], access: u32) -> OpenRes {
    let ArgOp::Open(args) = open_op(owner, "", access, 0, OpenHow::NoCreate) else { unreachable!() };
    let res = on(c, fh, ArgOp::Open(OpenArgs { claim: OpenClaim::Fh, ..args })).await;
    match res.body {
        ResBody::Open(open) => open,
        _ => panic!("OPEN gave {res:?}"),
    }
}

async fn tested(c: &mut Client, stateid: Stateid) -> NfsStat {
    match c.last(vec![ArgOp::TestStateid(vec![stateid])]).await.body {
        ResBody::TestStateid(all) => all[0],
        other => panic!("TEST_STATEID gave {other:?}"),
    }
}

/// DELEG1, DELEG2, DELEG3, DELEG4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_16_3_who_wishes_for_a_delegation_by_its_name_is_given_it_beside_the_open() {
    let rig = rig(Delegate::Write).await;
    let (mut c, mut heard) = holder(&rig, Vec::new()).await;
    let cases = [
        (READ | WANT_READ, BOTH),
        (BOTH | WANT_WRITE, READ),
        (READ | WANT_ANY, BOTH),
        (BOTH | WANT_ANY, READ),
    ];
    for (access, rivals) in cases {
        let file = format!("f{access:x}");
        let (stateid, res, fh) = beside_an_open(&mut c, &file, access, access & WRITE != 0).await;
        let waits = rivals_open(&rig, &file, rivals).await;
        assert_eq!(recalled(&mut heard).await.stateid, stateid, "{file}");
        assert!(!waits.is_finished(), "{file}");
        assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
        assert_ok(&timeout(PATIENCE, waits).await.expect("in time").expect("no panic"));
        assert_ok(&[on(&mut c, &fh, close_op(res.stateid)).await]);
    }
    let (res, _) = open(&mut c, "none", READ | WANT_NONE).await;
    assert_eq!(res.delegation, OpenDelegation::NoneExt(WhyNone { why: WND4_NOT_WANTED, will_signal: false }));
}

/// DELEG5, DELEG6, DELEG7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_33_a_recall_shows_the_credentials_that_the_client_has_named() {
    let sys = |uid, gid| {
        let machine_name = name("fake name");
        CallbackSecParms::Sys(AuthSysParms { stamp: 13, machine_name, uid, gid, gids: Vec::new() })
    };
    let cases = [
        (CallbackSecParms::None, None, None),
        (sys(17, 19), None, Some((17, 19))),
        (sys(17, 19), Some(sys(29, 31)), Some((29, 31))),
    ];
    for (first, second, wanted) in cases {
        let rig = rig(Delegate::Read).await;
        let (raw, mut heard) = callable(rig.addr(), Vec::new()).await;
        let mut c = with_back_channel_on(raw, vec![first]).await;
        if let Some(second) = second {
            let args = BackchannelCtlArgs { cb_program: 0x4000_0000, sec_parms: vec![second] };
            assert_ok(&c.run(vec![ArgOp::BackchannelCtl(args)]).await);
        }
        let until = Instant::now() + PATIENCE;
        let (stateid, fh) = loop {
            assert!(Instant::now() < until, "no delegation is given");
            let (res, fh) = open(&mut c, "f", READ | WANT_READ).await;
            if let Some(stateid) = stateid_of(&res.delegation) {
                break (stateid, fh);
            }
        };
        let waits = rivals_open(&rig, "f", BOTH).await;
        let (call, _) = timeout(PATIENCE, heard.recv()).await.expect("in time").expect("a callback");
        let shown = match &call.cred {
            Credential::Sys(sys) => Some((sys.uid, sys.gid)),
            Credential::None => None,
        };
        assert_eq!(shown, wanted);
        assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
        assert_ok(&timeout(PATIENCE, waits).await.expect("in time").expect("no panic"));
    }
}

/// DELEG8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_2_1_a_read_delegation_is_revoked_and_the_open_beside_it_stays() {
    let rig = rig_with_lease(Delegate::Read, 5).await;
    let (raw, _heard) = callable(rig.addr(), Vec::new()).await;
    let mut c = with_back_channel_on(raw, vec![CallbackSecParms::None]).await;
    let until = Instant::now() + PATIENCE;
    let (stateid, opened, fh) = loop {
        assert!(Instant::now() < until, "no delegation is given");
        let (res, fh) = open(&mut c, "f", READ | WANT_READ).await;
        if let Some(stateid) = stateid_of(&res.delegation) {
            break (stateid, res.stateid, fh);
        }
    };
    let mut rival = rig.client(b"rival").await;
    let ops = vec![ArgOp::Putrootfh, open_op(b"rival", "f", WRITE, 0, OpenHow::NoCreate)];
    loop {
        assert!(Instant::now() < until, "the rival does not get in");
        match rival.status(ops.clone()).await {
            NfsStat::NFS4_OK => break,
            status => assert_eq!(status, NfsStat::NFS4ERR_DELAY),
        }
        // It is alive, and keeps what it was asked for.
        c.status_flags().await;
    }
    assert_eq!(on(&mut c, &fh, read_op(stateid, 0, 9)).await.status, NfsStat::NFS4ERR_DELEG_REVOKED);
    assert_eq!(c.status_flags().await, SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
    assert_eq!(tested(&mut c, stateid).await, NfsStat::NFS4ERR_DELEG_REVOKED);
    assert_ok(&[c.last(vec![ArgOp::FreeStateid(stateid)]).await]);
    assert_eq!(c.status_flags().await, 0);
    assert_ok(&[on(&mut c, &fh, close_op(opened)).await]);
}

/// DELEG9, DELEG23.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_an_open_for_writing_is_in_the_way_of_others_only() {
    let rig = rig(Delegate::Write).await;
    let (mut c, mut heard) = holder(&rig, Vec::new()).await;
    let mut writer = rig.client(b"writer").await;
    open(&mut writer, "theirs", WRITE).await;
    let (res, _) = open(&mut c, "theirs", READ | WANT_READ).await;
    assert_eq!(res.delegation, OpenDelegation::NoneExt(WhyNone { why: WND4_CONTENTION, will_signal: false }));
    // The holder itself may write.
    let (stateid, _, fh) = beside_an_open(&mut c, "own", READ | WANT_READ, false).await;
    let (res, _) = open(&mut c, "own", WRITE).await;
    let waits = rivals_open(&rig, "own", WRITE).await;
    assert_eq!(recalled(&mut heard).await.stateid, stateid, "for the rival, and for nobody before");
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
    assert_ok(&timeout(PATIENCE, waits).await.expect("in time").expect("no panic"));
    assert_ok(&[on(&mut c, &fh, close_op(res.stateid)).await]);
}

/// DELEG24, DELEG25.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_3_who_looks_sees_what_the_holder_says() {
    for (level, wish) in [(Delegate::Write, WANT_WRITE), (Delegate::Times, WANT_WRITE | TIMES)] {
        let rig = rig(level).await;
        let mut holder = Holder::new(&rig).await;
        let mut rival = rig.client(b"rival").await;
        let (res, fh) = open(&mut holder.c, "f", BOTH | wish).await;
        let stateid = stateid_of(&res.delegation).expect("a delegation");
        let given = looks(&mut holder.c, &fh).await;
        holder.says(&fh, &given, Says::attrs).await;
        assert_eq!(looks(&mut rival, &fh).await, given);
        let more = |is: AttrValues| {
            Says::attrs(AttrValues { change: is.change.map(|c| c + 1), size: Some(5), ..is })
        };
        holder.says(&fh, &given, more).await;
        let seen = looks(&mut rival, &fh).await;
        assert!(seen.size == Some(5) && seen.change != given.change, "{seen:?}");
        assert_eq!(holder.asked(), 2);
        holder.still_has(stateid).await;
        assert_ok(&[on(&mut holder.c, &fh, ArgOp::DelegReturn(stateid)).await]);
    }
}

/// DELEG27: data that the server has when it is asked for attributes. The modify time is that of the WRITE, or that which its holder says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_3_the_modify_time_of_a_write_stays_until_the_delegation_is_back() {
    for (level, wish) in [(Delegate::Write, WANT_WRITE), (Delegate::Times, WANT_WRITE | TIMES)] {
        let rig = rig(level).await;
        let mut holder = Holder::new(&rig).await;
        let (res, fh) = open(&mut holder.c, "f", BOTH | wish).await;
        let stateid = stateid_of(&res.delegation).expect("a delegation");
        assert_ok(&[on(&mut holder.c, &fh, write_op(stateid, 0, b"hello")).await]);
        let written = looks(&mut holder.c, &fh).await;
        // It says the change attribute that it was told after the WRITE.
        holder.says(&fh, &written, Says::attrs).await;
        let mut rival = rig.client(b"rival").await;
        assert_eq!(looks(&mut rival, &fh).await, written);
        let waits = rivals_open(&rig, "f", READ).await;
        assert_eq!(recalled(&mut holder.heard).await.stateid, stateid);
        let mut back = vec![ArgOp::Putfh(fh.clone())];
        if level == Delegate::Times {
            let (access, modify) = (written.time_access, written.time_modify);
            let times =
                AttrValues { time_deleg_access: access, time_deleg_modify: modify, ..AttrValues::default() };
            back.push(ArgOp::Setattr(SetattrArgs { stateid, attrs: fattr(times) }));
        }
        back.push(ArgOp::DelegReturn(stateid));
        assert_ok(&holder.c.run(back).await);
        assert_ok(&timeout(PATIENCE, waits).await.expect("in time").expect("no panic"));
        assert_eq!(looks(&mut rival, &fh).await.time_modify, written.time_modify);
        assert_eq!(holder.asked(), 1);
    }
}

/// DELEG26, DELEG34.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_a_delegation_outlives_the_open_that_it_came_with() {
    let rig = rig(Delegate::Write).await;
    let (mut c, _heard) = holder(&rig, Vec::new()).await;
    let (res, fh) = open(&mut c, "f", BOTH | WANT_NONE).await;
    assert_ok(&[on(&mut c, &fh, write_op(res.stateid, 0, b"data")).await]);
    assert_ok(&[on(&mut c, &fh, close_op(res.stateid)).await]);
    let (stateid, res, fh) = beside_an_open(&mut c, "f", READ | WANT_READ, false).await;
    assert_ok(&[on(&mut c, &fh, close_op(res.stateid)).await]);
    match on(&mut c, &fh, read_op(stateid, 0, 10)).await.body {
        ResBody::Read(r) => assert_eq!(r.data.as_ref(), b"data"),
        other => panic!("READ gave {other:?}"),
    }
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
    // One of a second open owner's.
    let (first, fh) = open(&mut c, "g", READ | WANT_NONE).await;
    let second = open_fh(&mut c, &fh, b"second", READ | WANT_READ).await;
    let stateid = stateid_of(&second.delegation).expect("a delegation");
    assert_ok(&[on(&mut c, &fh, close_op(second.stateid)).await]);
    assert_eq!(tested(&mut c, stateid).await, NfsStat::NFS4_OK);
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
    assert_ok(&[on(&mut c, &fh, close_op(first.stateid)).await]);
}

/// DELEG28, DELEG29, DELEG33.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_16_3_an_open_by_handle_is_given_one_too() {
    let rig = rig(Delegate::Write).await;
    let (mut c, _heard) = holder(&rig, Vec::new()).await;
    let (res, fh) = open(&mut c, "closed", BOTH | WANT_NONE).await;
    assert_ok(&[on(&mut c, &fh, close_op(res.stateid)).await]);
    let again = open_fh(&mut c, &fh, b"o", READ | WANT_READ).await;
    assert!(matches!(again.delegation, OpenDelegation::Read(_)), "{again:?}");

    // The same open owner once more: its open goes on.
    let (res, fh) = open(&mut c, "open", READ | WANT_NONE).await;
    let again = open_fh(&mut c, &fh, b"o", READ | WANT_READ).await;
    let wider = Stateid { seqid: res.stateid.seqid + 1, ..res.stateid };
    assert!(again.stateid == wider && matches!(again.delegation, OpenDelegation::Read(_)), "{again:?}");

    // Another open owner that would have the delegation alone (RFC 9754 section 7): the open of the first is as it was.
    let (res, fh) = open(&mut c, "alone", READ | WANT_NONE).await;
    let access = READ | WANT_READ | OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;
    let alone = open_fh(&mut c, &fh, b"second", access).await;
    assert_eq!((alone.stateid, alone.rflags & OPEN4_RESULT_NO_OPEN_STATEID), (Stateid::ANONYMOUS, 0x10));
    assert!(matches!(alone.delegation, OpenDelegation::Read(_)), "{alone:?}");
    let again = open_fh(&mut c, &fh, b"o", READ | WANT_NONE).await;
    assert_eq!(again.stateid, Stateid { seqid: res.stateid.seqid + 1, ..res.stateid });
}

/// DELEG31, DELEG32.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_what_its_holder_changes_recalls_no_delegation() {
    let rig = rig(Delegate::Write).await;
    let (mut c, mut heard) = holder(&rig, Vec::new()).await;
    for (file, access) in [("w", BOTH | WANT_WRITE), ("r", READ | WANT_READ)] {
        let (stateid, _, fh) = beside_an_open(&mut c, file, access, access & WRITE != 0).await;
        let change = SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: mode(0o600) };
        assert_ok(&[on(&mut c, &fh, ArgOp::Setattr(change)).await]);
        assert_eq!(tested(&mut c, stateid).await, NfsStat::NFS4_OK);
        assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
    }
    assert!(heard.try_recv().is_err(), "nobody asked for one");
}

/// CSESS20, CSESS21.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_2_1_a_back_channel_is_tried_out_before_anything_is_opened() {
    let rig = rig(Delegate::Read).await;
    let (raw, _heard, nulls) = connected(rig.addr(), Vec::new(), false).await;
    let mut c = with_back_channel_on(raw, vec![CallbackSecParms::None]).await;
    let until = Instant::now() + PATIENCE;
    while nulls.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < until, "no CB_NULL");
        c.status_flags().await;
    }
}

/// DSESS9002, DSESS9003: what was sent on a session that is gone is sent on the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_3_1_a_recall_that_a_session_took_with_it_comes_on_the_next() {
    let rig = rig(Delegate::Read).await;
    let (raw, mut unanswered, _) = connected(rig.addr(), Vec::new(), true).await;
    let mut c = with_back_channel_on(raw, vec![CallbackSecParms::None]).await;
    let (stateid, fh) = given_to_read(&mut c).await;
    let waits = rivals_open(&rig, "f", BOTH).await;
    assert_eq!(recalled(&mut unanswered).await.stateid, stateid);
    assert_ok(&[c.raw.alone(ArgOp::DestroySession(c.session)).await]);
    let (raw, mut heard) = callable(rig.addr(), Vec::new()).await;
    let mut args = session_args(c.id, raw.exchange_id(b"back", 1).await.sequenceid);
    args.flags |= CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
    let session = raw.create_session(args).await.sessionid;
    let mut c = Client { raw, session, seq: 0, ..c };
    assert_eq!(recalled(&mut heard).await.stateid, stateid);
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
    // It was told to come again meanwhile.
    let first = timeout(PATIENCE, waits).await.expect("in time").expect("no panic");
    let status = first.last().map(|res| res.status);
    assert!(matches!(status, Some(NfsStat::NFS4_OK | NfsStat::NFS4ERR_DELAY)), "{status:?}");
}

/// Asks for a delegation of a file for reading until it is given.
async fn given_to_read(c: &mut Client) -> (Stateid, FileHandle) {
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < until, "no delegation is given");
        let (res, fh) = open(c, "f", READ | WANT_READ).await;
        if let Some(stateid) = stateid_of(&res.delegation) {
            return (stateid, fh);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_3_1_a_recall_comes_on_a_session_that_can_be_called() {
    let rig = rig(Delegate::Read).await;
    let (raw, _unheard) = callable(rig.addr(), Vec::new()).await;
    let mut c = with_back_channel_on(raw, vec![CallbackSecParms::None]).await;
    let (stateid, fh) = given_to_read(&mut c).await;
    // Another session with a connection of its own. That of the first is closed, and the client does not bind one.
    let (raw, mut heard) = callable(rig.addr(), Vec::new()).await;
    let mut args = session_args(c.id, raw.exchange_id(b"back", 1).await.sequenceid);
    args.flags |= CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
    let session = raw.create_session(args).await.sessionid;
    (c.raw, c.session, c.seq) = (raw, session, 0);
    let waits = rivals_open(&rig, "f", BOTH).await;
    assert_eq!(recalled(&mut heard).await.stateid, stateid);
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
    timeout(PATIENCE, waits).await.expect("in time").expect("no panic");
}
