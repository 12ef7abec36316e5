//! Delegations of files (RFC 8881 sections 10.2 to 10.4, RFC 9754), over real sockets: who gets one, what recalls it, what comes of a
//! client that does not return it.

use crate::common;

use common::back::*;
use common::v3::V3;
use common::*;
use landfast_nfs::v3 as nfs3;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::callback::*;
use landfast_nfs::v4::flags::*;
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;
use landfast_rpc::conn::CallHeader;
use landfast_server::exports::{Delegate, Features};
use landfast_volume::Durability;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

pub(crate) const XOR: u32 = OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;
const TIMES: u32 = OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS;

pub(crate) type Heard = UnboundedReceiver<(CallHeader, CbCompoundArgs)>;

pub(crate) async fn rig(delegations: Delegate) -> Rig {
    rig_with_lease(delegations, 90).await
}

pub(crate) async fn rig_with_lease(delegations: Delegate, seconds: u32) -> Rig {
    let mut rig = Rig::with(Durability::Log, seconds).await;
    rig.features = Features { delegations, ..Features::default() };
    rig.restart().await;
    rig
}

/// An OPEN in the root, made if need be: the result and the file's handle.
pub(crate) async fn open(c: &mut Client, file: &str, share_access: u32) -> (OpenRes, FileHandle) {
    let how = OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
    let res = c.run(vec![ArgOp::Putrootfh, open_op(b"o", file, share_access, 0, how), ArgOp::Getfh]).await;
    assert_ok(&res);
    match (&res[1].body, &res[2].body) {
        (ResBody::Open(open), ResBody::Getfh(fh)) => (open.clone(), fh.clone()),
        other => panic!("OPEN gave {other:?}"),
    }
}

pub(crate) fn stateid_of(delegation: &OpenDelegation) -> Option<Stateid> {
    match delegation {
        OpenDelegation::Read(d) | OpenDelegation::ReadAttrs(d) => Some(d.stateid),
        OpenDelegation::Write(d) | OpenDelegation::WriteAttrs(d) => Some(d.stateid),
        OpenDelegation::None | OpenDelegation::NoneExt(_) => None,
    }
}

/// A client whose back channel the server has tried out, and what it hears.
pub(crate) async fn holder(rig: &Rig, answers: Vec<NfsStat>) -> (Client, Heard) {
    let (mut c, heard) = with_back_channel(rig, answers).await;
    tried_out(&mut c).await;
    (c, heard)
}

/// The same on an export that gives delegations for reading only.
pub(crate) async fn holder_of_reads(rig: &Rig) -> (Client, Heard) {
    let (mut c, heard) = with_back_channel(rig, Vec::new()).await;
    tried_out_with(&mut c, 1 | XOR).await;
    (c, heard)
}

/// Returns when the server has tried out the client's back channel.
pub(crate) async fn tried_out(c: &mut Client) {
    tried_out_with(c, 3 | XOR).await;
}

async fn tried_out_with(c: &mut Client, share_access: u32) {
    let until = Instant::now() + PATIENCE;
    for at in 0.. {
        assert!(Instant::now() < until, "no delegation is given");
        let (res, fh) = open(c, &format!("tried{at}"), share_access).await;
        if let Some(stateid) = stateid_of(&res.delegation) {
            return assert_ok(&[on(c, &fh, ArgOp::DelegReturn(stateid)).await]);
        }
        assert_ok(&[on(c, &fh, close_op(res.stateid)).await]);
    }
}

/// Asks until the server lets the rival. The holder, if it is given, renews its lease meanwhile, but returns nothing.
pub(crate) async fn until_let(
    rival: &mut Client,
    fh: &FileHandle,
    op: ArgOp,
    mut holder: Option<&mut Client>,
) {
    let until = Instant::now() + PATIENCE;
    while on(rival, fh, op.clone()).await.status != NfsStat::NFS4_OK {
        assert!(Instant::now() < until);
        if let Some(holder) = &mut holder {
            holder.status_flags().await;
        }
    }
}

pub(crate) async fn recalled(heard: &mut Heard) -> CbRecallArgs {
    let (_, args) = timeout(PATIENCE, heard.recv()).await.expect("in time").expect("a callback");
    match args.ops.into_iter().nth(1) {
        Some(CbOp::Recall(recall)) => recall,
        other => panic!("the client heard {other:?}"),
    }
}

/// A file that `c` has a write delegation of, with some data.
async fn delegated(c: &mut Client, file: &str, wish: u32) -> (Stateid, FileHandle) {
    let (res, fh) = open(c, file, 2 | XOR | wish).await;
    let stateid = stateid_of(&res.delegation).expect("a delegation");
    assert_ok(&[on(c, &fh, write_op(stateid, 0, b"data")).await]);
    (stateid, fh)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc9754_7_a_delegation_instead_of_an_open_is_good_for_io() {
    let rig = rig(Delegate::Times).await;
    let (mut c, _heard) = holder(&rig, Vec::new()).await;
    let (res, fh) = open(&mut c, "f", 2 | XOR | TIMES).await;
    assert_eq!((res.stateid, res.rflags & OPEN4_RESULT_NO_OPEN_STATEID), (Stateid::ANONYMOUS, 0x10));
    let OpenDelegation::WriteAttrs(given) = &res.delegation else { panic!("{:?}", res.delegation) };
    assert!(!given.recall && given.permissions.access_mask == 0);
    let stateid = given.stateid;
    assert_ok(&[on(&mut c, &fh, write_op(stateid, 0, b"hello")).await]);
    match on(&mut c, &fh, read_op(stateid, 0, 9)).await.body {
        ResBody::Read(r) => assert_eq!(r.data.as_ref(), b"hello"),
        other => panic!("READ gave {other:?}"),
    }
    let size = fattr(AttrValues { size: Some(2), ..AttrValues::default() });
    assert_ok(&[on(&mut c, &fh, ArgOp::Setattr(SetattrArgs { stateid, attrs: size })).await]);
    match c.last(vec![ArgOp::TestStateid(vec![stateid])]).await.body {
        ResBody::TestStateid(all) => assert_eq!(all, [NfsStat::NFS4_OK]),
        other => panic!("TEST_STATEID gave {other:?}"),
    }
    assert_eq!(on(&mut c, &fh, close_op(stateid)).await.status, NfsStat::NFS4ERR_BAD_STATEID, "no open");
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
    assert_eq!(on(&mut c, &fh, write_op(stateid, 0, b"x")).await.status, NfsStat::NFS4ERR_BAD_STATEID);
    assert_eq!(std::fs::read(rig.export().join("f")).expect("the file"), b"he");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_who_is_given_one_and_who_is_not() {
    let of_write = rig(Delegate::Write).await;
    let (mut c, _heard) = holder(&of_write, Vec::new()).await;
    let given = |res: &OpenRes| stateid_of(&res.delegation).is_some();
    let (res, _) = open(&mut c, "plain", 2).await;
    assert!(!given(&res), "one for writing is of no use to who opens each file");
    let (res, _) = open(&mut c, "unwanted", 1 | XOR | OPEN4_SHARE_ACCESS_WANT_NO_DELEG).await;
    let unwanted = OpenDelegation::NoneExt(WhyNone { why: WND4_NOT_WANTED, will_signal: false });
    assert_eq!(res.delegation, unwanted);
    let (res, _) = open(&mut c, "times", 2 | XOR | TIMES).await;
    assert!(matches!(res.delegation, OpenDelegation::Write(_)), "this export's level has no times");
    let mut other = of_write.client(b"other").await;
    let (theirs, fh) = open(&mut other, "theirs", 1).await;
    assert!(!given(&theirs), "no back channel");
    let (res, _) = open(&mut c, "theirs", 2 | XOR).await;
    let contended = OpenDelegation::NoneExt(WhyNone { why: WND4_CONTENTION, will_signal: false });
    assert_eq!(res.delegation, contended, "somebody else reads it");
    let (res, mine) = open(&mut c, "theirs2", 3).await;
    assert_ok(&[on(&mut c, &mine, close_op(res.stateid)).await]);
    assert_ok(&[on(&mut other, &fh, close_op(theirs.stateid)).await]);
    for (level, read, write) in [(Delegate::Off, false, false), (Delegate::Read, true, false)] {
        let rig = rig(level).await;
        let (mut c, _heard) = with_back_channel(&rig, Vec::new()).await;
        let mut got = (false, false);
        for at in 0..200 {
            got.0 |= given(&open(&mut c, &format!("r{at}"), 1 | XOR).await.0);
            got.1 |= given(&open(&mut c, &format!("w{at}"), 2 | XOR).await.0);
        }
        assert_eq!(got, (read, write), "{level:?}");
    }
}

/// What somebody else does to a file that is delegated for writing, by its name in the root and its handle.
type Rival = (&'static str, fn(&FileHandle) -> Vec<ArgOp>);

const RIVALS: [Rival; 9] = [
    ("GETATTR", |fh| vec![ArgOp::Putfh(fh.clone()), ArgOp::Getattr(Bitmap::of(&[n::SIZE, n::CHANGE]))]),
    ("READ", |fh| vec![ArgOp::Putfh(fh.clone()), read_op(Stateid::ANONYMOUS, 0, 9)]),
    ("WRITE", |fh| vec![ArgOp::Putfh(fh.clone()), write_op(Stateid::ANONYMOUS, 0, b"D")]),
    ("SETATTR", |fh| {
        let stateid = Stateid::ANONYMOUS;
        vec![ArgOp::Putfh(fh.clone()), ArgOp::Setattr(SetattrArgs { stateid, attrs: mode(0o600) })]
    }),
    ("OPEN", |_| vec![ArgOp::Putrootfh, open_op(b"rival", "f", 1, 0, OpenHow::NoCreate)]),
    ("READDIR", |_| vec![ArgOp::Putrootfh, readdir_op(0, 4096, 4096, &[n::SIZE])]),
    ("RENAME", |_| {
        let (oldname, newname) = (name("f"), name("g"));
        vec![ArgOp::Putrootfh, ArgOp::Savefh, ArgOp::Rename(RenameArgs { oldname, newname })]
    }),
    ("LINK", |fh| vec![ArgOp::Putfh(fh.clone()), ArgOp::Savefh, ArgOp::Putrootfh, ArgOp::Link(name("l"))]),
    ("REMOVE", |_| vec![ArgOp::Putrootfh, ArgOp::Remove(name("f"))]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_what_others_do_waits_until_the_delegation_is_back() {
    for (what, ops) in RIVALS {
        let rig = rig(Delegate::Write).await;
        let (mut c, mut heard) = holder(&rig, Vec::new()).await;
        let (stateid, fh) = delegated(&mut c, "f", 0).await;
        // The holder itself is in nobody's way.
        assert_ok(&c.run(RIVALS[0].1(&fh)).await);
        assert_ok(&c.run(RIVALS[5].1(&fh)).await);
        let mut rival = rig.client(b"rival").await;
        let asked = fh.clone();
        let waits = tokio::spawn(async move { rival.run(ops(&asked)).await });
        let recall = recalled(&mut heard).await;
        assert_eq!((recall.stateid, &recall.fh), (stateid, &fh), "{what}");
        assert!(!waits.is_finished(), "{what} waits");
        assert_ok(&[on(&mut c, &fh, write_op(stateid, 4, b" more")).await]);
        assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
        let res = timeout(PATIENCE, waits).await.expect("in time").expect("no panic");
        assert_ok(&res);
        if let Some(ResBody::Read(r)) = res.last().map(|r| &r.body) {
            assert_eq!(r.data.as_ref(), b"data more", "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_a_request_that_waits_too_long_is_told_to_come_again() {
    let rig = rig(Delegate::Write).await;
    let (mut c, mut heard) = holder(&rig, Vec::new()).await;
    let (stateid, fh) = delegated(&mut c, "f", 0).await;
    let mut rival = rig.client(b"rival").await;
    let ask = || vec![ArgOp::Putfh(fh.clone()), ArgOp::Getattr(Bitmap::of(&[n::SIZE]))];
    assert_eq!(rival.status(ask()).await, NfsStat::NFS4ERR_DELAY);
    recalled(&mut heard).await;
    // A request that has changed something already is told so at once, and is not executed twice.
    let began = Instant::now();
    let mut ops = vec![ArgOp::Putrootfh, mkdir("made")];
    ops.extend(ask());
    assert_eq!(rival.status(ops).await, NfsStat::NFS4ERR_DELAY);
    assert!(began.elapsed() < Duration::from_secs(1));
    let v3 = V3::connect(rig.addr()).await;
    let jukebox = v3.status(nfs3::Call::Getattr(nfs3::FileHandle(fh.0.clone()))).await;
    assert_eq!(jukebox, nfs3::NfsStat3::JUKEBOX);
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
    assert_eq!(rival.status(ask()).await, NfsStat::NFS4_OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_2_1_a_delegation_that_does_not_come_back_is_revoked_and_stays_so_over_a_restart() {
    let mut rig = rig_with_lease(Delegate::Write, 5).await;
    let (mut c, mut heard) = holder(&rig, Vec::new()).await;
    let (stateid, fh) = delegated(&mut c, "f", 0).await;
    let (kept, other) = delegated(&mut c, "other", 0).await;
    // It holds something that the log does not know, so it will have to reclaim.
    c.deny("held").await;
    let mut rival = rig.client(b"rival").await;
    until_let(&mut rival, &fh, write_op(Stateid::ANONYMOUS, 0, b"rival"), Some(&mut c)).await;
    recalled(&mut heard).await;
    assert_eq!(
        c.status_flags().await & SEQ4_STATUS_RECALLABLE_STATE_REVOKED,
        SEQ4_STATUS_RECALLABLE_STATE_REVOKED
    );
    assert_eq!(on(&mut c, &fh, write_op(stateid, 0, b"old")).await.status, NfsStat::NFS4ERR_DELEG_REVOKED);
    match c.last(vec![ArgOp::TestStateid(vec![stateid, kept])]).await.body {
        ResBody::TestStateid(all) => assert_eq!(all, [NfsStat::NFS4ERR_DELEG_REVOKED, NfsStat::NFS4_OK]),
        other => panic!("TEST_STATEID gave {other:?}"),
    }
    assert_eq!(std::fs::read(rig.export().join("f")).expect("the file"), b"rival");
    let restored = rig.crash().await;
    assert_eq!(restored.reclaiming, 1);
    // It reclaims under a new ID.
    let mut c = Client::without_reclaim(Raw { minor: 2, ..rig.raw().await }, b"back", 1).await;
    let reclaim = |fh: &FileHandle| {
        let claim = OpenClaim::Previous(2);
        let ArgOp::Open(open) = open_op(b"o", "f", 3, 0, OpenHow::NoCreate) else { unreachable!() };
        vec![ArgOp::Putfh(fh.clone()), ArgOp::Open(OpenArgs { claim, ..open })]
    };
    assert_eq!(c.status(reclaim(&fh)).await, NfsStat::NFS4ERR_RECLAIM_BAD);
    assert_eq!(c.status(reclaim(&other)).await, NfsStat::NFS4_OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_38_a_revoked_stateid_is_known_until_it_is_freed() {
    let mut rig = rig_with_lease(Delegate::Write, 1).await;
    let (mut c, _heard) = holder(&rig, Vec::new()).await;
    let (stateid, fh) = delegated(&mut c, "f", 0).await;
    let mut rival = rig.client(b"rival").await;
    until_let(&mut rival, &fh, read_op(Stateid::ANONYMOUS, 0, 9), Some(&mut c)).await;
    // Also after a crash of the server.
    assert_eq!(rig.crash().await.reclaiming, 0);
    c.raw = Raw { minor: 2, ..rig.raw().await };
    assert_eq!(on(&mut c, &fh, write_op(stateid, 0, b"x")).await.status, NfsStat::NFS4ERR_DELEG_REVOKED);
    assert_eq!(c.last(vec![ArgOp::FreeStateid(stateid)]).await.status, NfsStat::NFS4_OK);
    assert_eq!(c.status_flags().await & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
    assert_eq!(c.last(vec![ArgOp::FreeStateid(stateid)]).await.status, NfsStat::NFS4ERR_BAD_STATEID);
    // What was freed is not revoked again.
    rig.crash().await;
    c.raw = Raw { minor: 2, ..rig.raw().await };
    assert_eq!(c.status_flags().await & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_9_7_a_share_reservation_is_entered_beside_a_delegation() {
    let rig = rig(Delegate::Write).await;
    let (mut c, _heard) = holder(&rig, Vec::new()).await;
    let how = OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
    let ops = vec![ArgOp::Putrootfh, open_op(b"o", "f", 1 | XOR, OPEN4_SHARE_DENY_READ, how)];
    let res = c.run(ops).await;
    assert!(matches!(&res[1].body, ResBody::Open(o) if o.stateid != Stateid::ANONYMOUS));
    let mut rival = rig.client(b"rival").await;
    let ops = vec![ArgOp::Putrootfh, open_op(b"rival", "f", 1, 0, OpenHow::NoCreate)];
    assert_eq!(rival.status(ops).await, NfsStat::NFS4ERR_SHARE_DENIED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn c6_who_may_not_open_a_file_recalls_nothing() {
    let rig = rig(Delegate::Write).await;
    let (mut c, mut heard) = holder(&rig, Vec::new()).await;
    let (stateid, fh) = delegated(&mut c, "f", 0).await;
    let private = ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: mode(0o600) });
    assert_ok(&[on(&mut c, &fh, private).await]);
    let mut rival = rig.client(b"rival").await;
    rival.raw.cred = user(1000);
    let ops = vec![ArgOp::Putrootfh, open_op(b"rival", "f", 3, 0, OpenHow::NoCreate)];
    assert_eq!(rival.status(ops).await, NfsStat::NFS4ERR_ACCESS);
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
    assert!(heard.try_recv().is_err(), "nobody asked for it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_holder_whose_lease_is_over_is_gone_before_anybody_goes_on_and_stays_so() {
    let mut rig = rig_with_lease(Delegate::Write, 1).await;
    let (mut c, _heard) = holder(&rig, Vec::new()).await;
    let (_, fh) = delegated(&mut c, "f", 0).await;
    let mut rival = rig.client(b"rival").await;
    let silent = Instant::now();
    while silent.elapsed() < Duration::from_millis(1500) {
        rival.status_flags().await;
    }
    until_let(&mut rival, &fh, write_op(Stateid::ANONYMOUS, 0, b"rival"), None).await;
    assert_eq!(rig.crash().await.clients, 1, "the rival");
    assert_eq!(std::fs::read(rig.export().join("f")).expect("the file"), b"rival");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_20_2_a_client_that_is_busy_or_knows_nothing_of_it() {
    let rig = rig(Delegate::Write).await;
    // The last is the first answer.
    let bad = NfsStat::NFS4ERR_BAD_STATEID;
    let (mut c, mut heard) = holder(&rig, vec![bad, bad, bad, NfsStat::NFS4ERR_DELAY]).await;
    let (_, fh) = delegated(&mut c, "f", 0).await;
    let mut rival = rig.client(b"rival").await;
    let ask = vec![ArgOp::Putfh(fh.clone()), read_op(Stateid::ANONYMOUS, 0, 9)];
    assert_eq!(rival.status(ask).await, NfsStat::NFS4_OK);
    for _ in 0..4 {
        recalled(&mut heard).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_2_opens_under_a_delegation_become_opens_when_it_is_recalled() {
    let rig = rig(Delegate::Write).await;
    let (mut c, mut heard) = holder(&rig, Vec::new()).await;
    let (stateid, fh) = delegated(&mut c, "f", 0).await;
    let (elsewhere, _) = delegated(&mut c, "g", 0).await;
    let claim = |stateid, access| {
        let ArgOp::Open(open) = open_op(b"o", "", access | XOR, 0, OpenHow::NoCreate) else { unreachable!() };
        ArgOp::Open(OpenArgs { claim: OpenClaim::DelegCurFh(stateid), ..open })
    };
    assert_eq!(on(&mut c, &fh, claim(elsewhere, 3)).await.status, NfsStat::NFS4ERR_INVAL);
    let mut rival = rig.client(b"rival").await;
    let waits = tokio::spawn(async move {
        rival.run(vec![ArgOp::Putrootfh, open_op(b"rival", "f", 3, 0, OpenHow::NoCreate)]).await
    });
    recalled(&mut heard).await;
    let opened = on(&mut c, &fh, claim(stateid, 3)).await;
    let ResBody::Open(opened) = opened.body else { panic!("OPEN gave {opened:?}") };
    assert!(stateid_of(&opened.delegation).is_none() && opened.stateid != Stateid::ANONYMOUS);
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
    assert_ok(&timeout(PATIENCE, waits).await.expect("in time").expect("no panic"));
    assert_ok(&[on(&mut c, &fh, write_op(opened.stateid, 0, b"both")).await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc9754_8_2_the_holder_sets_times_and_one_in_the_past_is_applied() {
    let mut rig = rig(Delegate::Times).await;
    let (mut c, _heard) = holder(&rig, Vec::new()).await;
    let (stateid, fh) = delegated(&mut c, "f", TIMES).await;
    let past = NfsTime { seconds: 981_173_106, nseconds: 5 };
    let future = NfsTime { seconds: 32_503_680_000, nseconds: 0 };
    let set = |modify, access| {
        let attrs = AttrValues {
            time_deleg_modify: Some(modify),
            time_deleg_access: Some(access),
            ..AttrValues::default()
        };
        ArgOp::Setattr(SetattrArgs { stateid, attrs: fattr(attrs) })
    };
    match on(&mut c, &fh, set(past, future)).await {
        ResOp { status: NfsStat::NFS4_OK, body: ResBody::Setattr(done), .. } => {
            assert_eq!(done, Bitmap::of(&[n::TIME_DELEG_ACCESS, n::TIME_DELEG_MODIFY]));
        }
        other => panic!("SETATTR gave {other:?}"),
    }
    let times = Bitmap::of(&[n::TIME_MODIFY, n::TIME_ACCESS]);
    let now = c.attrs(&fh, times).await;
    assert_eq!(now.time_modify, Some(past));
    assert!(now.time_access.is_some_and(|t| t.seconds < future.seconds && t.seconds > past.seconds));
    let anonymous = SetattrArgs {
        stateid: Stateid::ANONYMOUS,
        attrs: fattr(AttrValues { time_deleg_modify: Some(past), ..AttrValues::default() }),
    };
    assert_eq!(on(&mut c, &fh, ArgOp::Setattr(anonymous)).await.status, NfsStat::NFS4ERR_BAD_STATEID);
    assert_eq!(
        on(&mut c, &fh, ArgOp::Getattr(Bitmap::of(&[n::TIME_DELEG_MODIFY]))).await.status,
        NfsStat::NFS4ERR_INVAL
    );
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
    // With this the log learns of the return.
    assert_ok(&c.run(vec![ArgOp::Putrootfh, mkdir("d")]).await);
    rig.crash().await;
    let mut c = rig.client(b"later").await;
    assert_eq!(c.attrs(&fh, times).await.time_modify, Some(past));
}

/// Linux sends both times with each return, changed or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc9754_8_2_an_access_time_does_not_advance_the_change_time() {
    let rig = rig(Delegate::Times).await;
    let (mut c, _heard) = holder(&rig, Vec::new()).await;
    let asked = Bitmap::of(&[n::CHANGE, n::TIME_METADATA, n::TIME_ACCESS, n::TIME_MODIFY]);
    let (stateid, fh) = delegated(&mut c, "written", TIMES).await;
    let (res, read) = open(&mut c, "read", 1 | XOR | TIMES).await;
    assert!(matches!(res.delegation, OpenDelegation::ReadAttrs(_)), "{res:?}");
    let reader = stateid_of(&res.delegation).expect("a delegation");
    for (stateid, fh, write) in [(stateid, &fh, true), (reader, &read, false)] {
        let first = c.attrs(fh, asked).await;
        let (access, modify) = (first.time_access.expect("set"), first.time_modify.expect("set"));
        let set = |access, modify: NfsTime| {
            let attrs = AttrValues {
                time_deleg_access: Some(access),
                time_deleg_modify: write.then_some(modify),
                ..AttrValues::default()
            };
            ArgOp::Setattr(SetattrArgs { stateid, attrs: fattr(attrs) })
        };
        let later = NfsTime { nseconds: (access.nseconds + 1) % 1_000_000_000, ..access };
        let later = NfsTime { seconds: later.seconds + i64::from(later.nseconds == 0), ..later };
        for access in [access, later] {
            match on(&mut c, fh, set(access, modify)).await {
                ResOp { status: NfsStat::NFS4_OK, body: ResBody::Setattr(done), .. } => {
                    assert_eq!(
                        (done.has(n::TIME_DELEG_ACCESS), done.has(n::TIME_DELEG_MODIFY)),
                        (true, write)
                    );
                }
                other => panic!("SETATTR gave {other:?}"),
            }
            assert_eq!(c.attrs(fh, asked).await, first);
        }
        // Earlier than it was: no reading does that.
        let past = NfsTime { seconds: 981_173_106, nseconds: 5 };
        assert_ok(&[on(&mut c, fh, set(past, modify)).await]);
        assert_eq!(c.attrs(fh, asked).await.time_access, Some(past));
    }
    // With a new time of modification both are set.
    let first = c.attrs(&fh, asked).await;
    let modify = NfsTime { seconds: 981_173_107, nseconds: 0 };
    let access = NfsTime { seconds: 981_173_108, nseconds: 0 };
    let attrs = AttrValues {
        time_deleg_access: Some(access),
        time_deleg_modify: Some(modify),
        ..AttrValues::default()
    };
    assert_ok(&[on(&mut c, &fh, ArgOp::Setattr(SetattrArgs { stateid, attrs: fattr(attrs) })).await]);
    let now = c.attrs(&fh, asked).await;
    assert_eq!((now.time_access, now.time_modify), (Some(access), Some(modify)));
    assert_ne!(now.change, first.change);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn c6_a_delegation_gives_its_rights_to_its_client_and_its_user_only() {
    let rig = rig(Delegate::Write).await;
    let (mut c, _heard) = holder(&rig, Vec::new()).await;
    let (stateid, fh) = delegated(&mut c, "f", 0).await;
    assert_ok(&[on(
        &mut c,
        &fh,
        ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: mode(0o600) }),
    )
    .await]);
    c.raw.cred = user(1000);
    assert_eq!(on(&mut c, &fh, write_op(stateid, 0, b"x")).await.status, NfsStat::NFS4ERR_ACCESS);
    c.raw.cred = user(0);
    let mut other = rig.client(b"other").await;
    for op in [write_op(stateid, 0, b"x"), ArgOp::DelegReturn(stateid)] {
        let waited = on(&mut other, &fh, op).await.status;
        assert!(matches!(waited, NfsStat::NFS4ERR_BAD_STATEID | NfsStat::NFS4ERR_DELAY), "{waited}");
    }
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_storm_of_recalls_ends() {
    const FILES: usize = 600;
    let rig = rig(Delegate::Write).await;
    let (mut c, mut heard) = holder(&rig, Vec::new()).await;
    for at in 0..FILES {
        delegated(&mut c, &format!("f{at}"), 0).await;
    }
    // The holder returns whatever it is asked for.
    let holder = tokio::spawn(async move {
        for _ in 0..FILES {
            let recall = recalled(&mut heard).await;
            assert_ok(&[on(&mut c, &recall.fh, ArgOp::DelegReturn(recall.stateid)).await]);
        }
    });
    let mut rival = rig.client(b"rival").await;
    let until = Instant::now() + PATIENCE;
    let (mut cookie, mut listed) = (0, 0);
    while Instant::now() < until {
        let page = readdir_op(cookie, 32 << 10, 32 << 10, &[n::SIZE, n::FILEID]);
        let res = rival.last(vec![ArgOp::Putrootfh, page]).await;
        if res.status == NfsStat::NFS4ERR_DELAY {
            continue;
        }
        let ResBody::Readdir(page) = res.body else { panic!("READDIR gave {res:?}") };
        listed += page.entries.iter().filter(|e| e.name.starts_with(b"f")).count();
        cookie = page.entries.last().map_or(cookie, |e| e.cookie);
        if page.eof {
            break;
        }
    }
    assert_eq!(listed, FILES);
    timeout(PATIENCE, holder).await.expect("in time").expect("no panic");
}

/// A holder returns delegations with the times that it has kept to itself, several in one COMPOUND, while a READDIR goes on when the first of
/// them is back: what it shows is no older than what came with the others (RFC 8881 section 10.4.3, RFC 9754).
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc9754_a_listing_shows_the_times_that_came_back_meanwhile() {
    const ROUNDS: usize = 40;
    const FILES: usize = 12;
    // They are looked at, too, so that this takes a while; with the others they fit into one page.
    const MORE: usize = 80;
    let past = NfsTime { seconds: 981_173_106, nseconds: 5 };
    let rig = rig(Delegate::Times).await;
    let (mut c, mut heard) = holder(&rig, Vec::new()).await;
    let mut rival = rig.client(b"rival").await;
    for at in 0..MORE {
        let (res, fh) = open(&mut rival, &format!("more{at}"), 2 | OPEN4_SHARE_ACCESS_WANT_NO_DELEG).await;
        assert_ok(&[on(&mut rival, &fh, close_op(res.stateid)).await]);
    }
    for round in 0..ROUNDS {
        let names: Vec<String> = (0..FILES).map(|at| format!("f{round}-{at}")).collect();
        for name in &names {
            delegated(&mut c, name, TIMES).await;
        }
        let holder = tokio::spawn(async move {
            let mut ops = Vec::new();
            for _ in 0..FILES {
                let CbRecallArgs { stateid, fh, .. } = recalled(&mut heard).await;
                let attrs = AttrValues { time_deleg_modify: Some(past), ..AttrValues::default() };
                let set = ArgOp::Setattr(SetattrArgs { stateid, attrs: fattr(attrs) });
                ops.extend([ArgOp::Putfh(fh), set, ArgOp::DelegReturn(stateid)]);
            }
            assert_ok(&c.run(ops).await);
            (c, heard)
        });
        let until = Instant::now() + PATIENCE;
        let page = loop {
            let page = readdir_op(0, 32 << 10, 32 << 10, &[n::TIME_MODIFY]);
            let res = rival.last(vec![ArgOp::Putrootfh, page]).await;
            match res.body {
                ResBody::Readdir(page) => break page,
                _ => assert!(res.status == NfsStat::NFS4ERR_DELAY && Instant::now() < until, "{res:?}"),
            }
        };
        let listed = page.entries.iter().filter(|e| e.name.starts_with(b"f"));
        let times: Vec<_> = listed.map(|e| AttrValues::from_fattr(&e.attrs).map(|a| a.time_modify)).collect();
        assert_eq!(times.len(), FILES);
        let wrong = times.iter().filter(|time| **time != Ok(Some(past))).count();
        assert_eq!(wrong, 0, "round {round}: times that are older than what came back");
        (c, heard) = timeout(PATIENCE, holder).await.expect("in time").expect("no panic");
        let removes = names.into_iter().map(|name| ArgOp::Remove(name.into()));
        assert_ok(&c.run([ArgOp::Putrootfh].into_iter().chain(removes).collect()).await);
    }
}

/// A delegation that was given to the OPEN that made its file stands in the log with the file: its client passes a crash of the server and
/// reclaims nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn after_a_crash_a_client_goes_on_with_its_delegations() {
    let mut rig = rig(Delegate::Times).await;
    let (mut c, _) = holder(&rig, Vec::new()).await;
    let (stateid, fh) = delegated(&mut c, "f", TIMES).await;
    let (returned, other) = delegated(&mut c, "returned", TIMES).await;
    assert_ok(&[on(&mut c, &other, ArgOp::DelegReturn(returned)).await]);
    for again in 0..2 {
        let restored = rig.crash().await;
        assert_eq!((restored.sessions, restored.reclaiming), (1, 0));
        let (raw, mut heard) = callable(rig.addr(), Vec::new()).await;
        c.raw = raw;
        let bind = BindConnToSessionArgs {
            sessid: c.session,
            dir: CDFC4_FORE_OR_BOTH,
            use_conn_in_rdma_mode: false,
        };
        assert_ok(&[c.raw.alone(ArgOp::BindConnToSession(bind)).await]);
        assert_eq!(c.status_flags().await, 0);
        assert_ok(&[on(&mut c, &fh, write_op(stateid, 4, b" more")).await]);
        let time = NfsTime { seconds: 981_173_106, nseconds: again };
        let attrs = fattr(AttrValues { time_deleg_modify: Some(time), ..AttrValues::default() });
        assert_ok(&[on(&mut c, &fh, ArgOp::Setattr(SetattrArgs { stateid, attrs })).await]);
        match c.last(vec![ArgOp::TestStateid(vec![stateid])]).await.body {
            ResBody::TestStateid(all) => assert_eq!(all, [NfsStat::NFS4_OK]),
            other => panic!("TEST_STATEID gave {other:?}"),
        }
        if again == 0 {
            continue;
        }
        // It is still in others' way, and nobody has to wait for a grace period.
        let mut rival = rig.client(b"rival").await;
        let asked = fh.clone();
        let waits = tokio::spawn(async move {
            rival.run(vec![ArgOp::Putfh(asked), ArgOp::Getattr(Bitmap::of(&[n::SIZE, n::TIME_MODIFY]))]).await
        });
        assert_eq!(recalled(&mut heard).await.stateid, stateid);
        assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
        let res = timeout(PATIENCE, waits).await.expect("in time").expect("no panic");
        let Some(ResBody::Getattr(f)) = res.last().map(|r| &r.body) else { panic!("GETATTR gave {res:?}") };
        let found = AttrValues::from_fattr(f).expect("values");
        assert_eq!((found.size, found.time_modify), (Some(9), Some(time)));
    }
    assert_eq!(std::fs::read(rig.export().join("f")).expect("the file"), b"data more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_a_lock_through_an_open_of_before_a_crash_waits_for_a_delegation() {
    let mut rig = rig(Delegate::Write).await;
    let mut rival = rig.client(b"rival").await;
    let (res, fh) = open(&mut rival, "f", 3).await;
    assert_eq!(rig.crash().await.reclaiming, 0);
    rival.raw.conn = rig.raw().await.conn;
    // The server does not know that open yet.
    let (mut c, mut heard) = holder(&rig, Vec::new()).await;
    let (stateid, same) = delegated(&mut c, "f", 0).await;
    assert_eq!(same, fh);
    let locker =
        Locker::New { open_seqid: 0, open_stateid: res.stateid, lock_seqid: 0, lock_owner: owner(0, b"l") };
    let lock = LockArgs { locktype: LockType::Write, reclaim: false, offset: 0, length: 10, locker };
    let waits = tokio::spawn(async move { on(&mut rival, &fh, ArgOp::Lock(lock)).await });
    assert_eq!(recalled(&mut heard).await.stateid, stateid, "its holder may have locked the same bytes");
    assert_ok(&[on(&mut c, &same, ArgOp::DelegReturn(stateid)).await]);
    assert_ok(&[timeout(PATIENCE, waits).await.expect("in time").expect("no panic")]);
}
