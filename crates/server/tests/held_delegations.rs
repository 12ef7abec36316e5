//! What happens to delegations while a request is under way: it is held at a point between what it has seen and what it does. A program of its own: the point is held
//! for the whole process.
#![cfg(debug_assertions)]

mod common;

use common::back::*;
use common::v3::{self as c3, V3};
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
use landfast_volume::faults::{Hold, hold};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinHandle, block_in_place};
use tokio::time::timeout;

type Heard = UnboundedReceiver<(CallHeader, CbCompoundArgs)>;

/// Who is not answered within this time waits.
const QUICK: Duration = Duration::from_millis(500);
/// A point is held for the whole process.
static HELD: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const OFFERED: Features =
    Features { acls: true, xattrs: true, delegations: Delegate::Write, write_delegations: true };

async fn rig() -> Rig {
    let mut rig = Rig::with(Durability::Log, 90).await;
    rig.features = OFFERED;
    rig.restart().await;
    rig
}

/// Asks for a write delegation of the current directory.
fn ask() -> ArgOp {
    ArgOp::GetDirDelegation(GetDirDelegationArgs::new(Bitmap::of(&[NOTIFY4_WRITE_DELEGATION])))
}

fn given(res: &ResOp) -> Option<Stateid> {
    match &res.body {
        ResBody::GetDirDelegation(GetDirDelegationRes::Given(given)) => {
            let for_writing = given.notifications == Bitmap::of(&[NOTIFY4_WRITE_DELEGATION]);
            for_writing.then_some(given.stateid)
        }
        _ => None,
    }
}

/// A client to which the server gives delegations.
async fn holder(rig: &Rig) -> (Client, Heard) {
    let (mut c, heard) = with_back_channel(rig, Vec::new()).await;
    tried_out(&mut c).await;
    (c, heard)
}

async fn tried_out(c: &mut Client) {
    let until = Instant::now() + PATIENCE;
    for at in 0.. {
        assert!(Instant::now() < until, "no delegation is given");
        let dir = format!("tried{at}");
        let res = c.run(vec![ArgOp::Putrootfh, mkdir(&dir), ask()]).await;
        if let Some(stateid) = given(&res[2]) {
            let back = vec![ArgOp::Putrootfh, ArgOp::Lookup(name(&dir)), ArgOp::DelegReturn(stateid)];
            return assert_ok(&c.run(back).await);
        }
    }
}

/// Makes an empty directory that this client has a write delegation of.
async fn held_directory(c: &mut Client, dir: &str) -> (Stateid, FileHandle) {
    let res = c.run(vec![ArgOp::Putrootfh, mkdir(dir), ask(), ArgOp::Getfh]).await;
    match &res[3].body {
        ResBody::Getfh(fh) => (given(&res[2]).expect("a write directory delegation"), fh.clone()),
        other => panic!("GETFH gave {other:?}"),
    }
}

/// Makes a file that this client has a write delegation of.
async fn held_file(c: &mut Client, file: &str) -> (Stateid, FileHandle) {
    let how = OpenHow::Create(CreateHow::Guarded(mode(0o644)));
    let access = 3 | OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;
    let res = c.run(vec![ArgOp::Putrootfh, open_op(b"o", file, access, 0, how), ArgOp::Getfh]).await;
    assert_ok(&res);
    match (&res[1].body, &res[2].body) {
        (ResBody::Open(open), ResBody::Getfh(fh)) => match &open.delegation {
            OpenDelegation::Write(given) => (given.stateid, fh.clone()),
            other => panic!("OPEN gave {other:?}"),
        },
        other => panic!("OPEN gave {other:?}"),
    }
}

fn rename(oldname: &str, newname: &str) -> Vec<ArgOp> {
    let names = RenameArgs { oldname: name(oldname), newname: name(newname) };
    vec![ArgOp::Putrootfh, ArgOp::Savefh, ArgOp::Rename(names)]
}

async fn recalled(heard: &mut Heard) -> CbRecallArgs {
    let (_, args) = timeout(PATIENCE, heard.recv()).await.expect("in time").expect("a callback");
    match args.ops.into_iter().nth(1) {
        Some(CbOp::Recall(recall)) => recall,
        other => panic!("the client heard {other:?}"),
    }
}

/// Waits until the request is held; others are not.
fn is_held(held: &Hold) {
    assert!(block_in_place(|| held.has(1, PATIENCE)), "the request comes by the point");
    held.lets_others_by();
}

/// Comes again while it is told to.
async fn once_let(c: &mut Client, ops: Vec<ArgOp>) -> NfsStat {
    loop {
        match c.status(ops.clone()).await {
            NfsStat::NFS4ERR_DELAY => {}
            status => return status,
        }
    }
}

/// What somebody else does to the name `n` in the root, and what comes of it when `n` leads to what a client holds, with something in it.
#[derive(Debug, Clone, Copy)]
enum Rival {
    Remove,
    Rename,
    RenameOver,
    Rmdir3,
    Remove3,
    Rename3,
    RenameOver3,
}

/// The answers are of one kind: NFSv3 has the same numbers.
type Answers = JoinHandle<u32>;

async fn begins(rig: &Rig, rival: Rival) -> Answers {
    let rename3 = |c: &V3, from: &str, to: &str| {
        let (from, to) = (c3::at(&c.root, from), c3::at(&c.root, to));
        nfs3::Call::Rename(nfs3::args::RenameArgs { from, to })
    };
    let ops = match rival {
        Rival::Remove => vec![ArgOp::Putrootfh, ArgOp::Remove(name("n"))],
        Rival::Rename => rename("n", "m"),
        Rival::RenameOver => rename("over", "n"),
        _ => {
            let c = V3::new(rig).await;
            let call = match rival {
                Rival::Rmdir3 => nfs3::Call::Rmdir(c3::at(&c.root, "n")),
                Rival::Remove3 => nfs3::Call::Remove(c3::at(&c.root, "n")),
                Rival::Rename3 => rename3(&c, "n", "m"),
                _ => rename3(&c, "over", "n"),
            };
            return tokio::spawn(async move {
                loop {
                    match c.status(call.clone()).await {
                        nfs3::NfsStat3::JUKEBOX => {}
                        status => return status.0,
                    }
                }
            });
        }
    };
    let mut c = rig.client(b"rival").await;
    tokio::spawn(async move { once_let(&mut c, ops).await.0 })
}

async fn a_name_gets_what_is_held(rival: Rival, is_file: bool, becomes: NfsStat) {
    let rig = rig().await;
    let (mut c, mut heard) = holder(&rig).await;
    let (stateid, fh) = match is_file {
        true => held_file(&mut c, "held").await,
        false => held_directory(&mut c, "held").await,
    };
    for other in ["n", "over"] {
        let path = rig.export().join(other);
        if is_file {
            std::fs::write(path, b"").expect("a file")
        } else {
            std::fs::create_dir(path).expect("a directory")
        }
    }
    let held = hold("tx.joined");
    let answers = begins(&rig, rival).await;
    is_held(&held);
    // The name leads to what the client holds before the request gets to it.
    let mut renames = c.clone();
    c.seq += 1;
    let renamed = tokio::spawn(async move { renames.run(rename("held", "n")).await });
    while rig.export().join("held").exists() {
        tokio::task::yield_now().await;
    }
    drop(held);
    assert_ok(&timeout(PATIENCE, renamed).await.expect("in time").expect("no panic"));
    let recall = recalled(&mut heard).await;
    assert_eq!((recall.stateid, &recall.fh), (stateid, &fh), "{rival:?}");
    assert!(!answers.is_finished(), "{rival:?} waits");
    let flush = if is_file { write_op(stateid, 0, b"flushed") } else { mkdir("flushed") };
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), flush]).await);
    assert!(!answers.is_finished(), "{rival:?} waits for the return");
    assert_ok(&on_all(&mut c, &fh, ArgOp::DelegReturn(stateid)).await);
    let status = timeout(PATIENCE, answers).await.expect("in time").expect("no panic");
    assert_eq!(status, becomes.0, "{rival:?}");
}

async fn on_all(c: &mut Client, fh: &FileHandle, op: ArgOp) -> Vec<ResOp> {
    c.run(vec![ArgOp::Putfh(fh.clone()), op]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn what_a_name_leads_to_when_it_is_removed_or_changed_is_what_is_recalled() {
    let _alone = HELD.lock().await;
    for (rival, becomes) in [
        (Rival::Remove, NfsStat::NFS4ERR_NOTEMPTY),
        (Rival::Rename, NfsStat::NFS4_OK),
        (Rival::RenameOver, NfsStat::NFS4ERR_EXIST),
        (Rival::Rmdir3, NfsStat::NFS4ERR_NOTEMPTY),
        (Rival::Rename3, NfsStat::NFS4_OK),
        (Rival::RenameOver3, NfsStat::NFS4ERR_NOTEMPTY),
    ] {
        a_name_gets_what_is_held(rival, false, becomes).await;
    }
    for rival in [Rival::Remove, Rival::RenameOver, Rival::Remove3] {
        a_name_gets_what_is_held(rival, true, NfsStat::NFS4_OK).await;
    }
}

/// What the server tells of the size of `f` in a listing of the root.
async fn listed_size(c: &mut Client) -> Option<u64> {
    let wanted = [n::SIZE, n::CHANGE, n::TIME_MODIFY];
    let res = c.run(vec![ArgOp::Putrootfh, readdir_op(0, 4096, 1 << 16, &wanted)]).await;
    match &res[1].body {
        ResBody::Readdir(list) => {
            let entry = list.entries.iter().find(|e| e.name == "f")?;
            AttrValues::from_fattr(&entry.attrs).expect("values").size
        }
        other => panic!("READDIR gave {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_3_a_listing_asks_about_what_was_delegated_since_it_began() {
    let _alone = HELD.lock().await;
    let rig = rig().await;
    std::fs::write(rig.export().join("f"), b"old").expect("a file");
    let says: Saying = std::sync::Arc::new(|_: &CbGetattrArgs| {
        Says::attrs(AttrValues { change: Some(1), size: Some(4711), ..AttrValues::default() })
    });
    let (raw, _heard, _) = listening(rig.addr(), Vec::new(), false, Some(says)).await;
    let mut c = with_back_channel_on(raw, vec![CallbackSecParms::None]).await;
    tried_out(&mut c).await;
    let mut rival = rig.client(b"rival").await;
    let held = hold("listing.begun");
    let listed = tokio::spawn(async move { listed_size(&mut rival).await });
    is_held(&held);
    let how = OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
    let access = 3 | OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;
    let res = c.last(vec![ArgOp::Putrootfh, open_op(b"o", "f", access, 0, how)]).await;
    assert!(
        matches!(&res.body, ResBody::Open(o) if matches!(o.delegation, OpenDelegation::Write(_))),
        "{res:?}"
    );
    drop(held);
    let size = timeout(PATIENCE, listed).await.expect("in time").expect("no panic");
    assert_eq!(size, Some(4711), "what its holder has");
}

/// A client that comes back as another instance is gone from memory before the log knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn who_goes_on_since_a_holder_is_gone_waits_until_the_log_knows() {
    let _alone = HELD.lock().await;
    let rivals: [fn(FileHandle) -> Vec<ArgOp>; 3] = [
        |dir| vec![ArgOp::Putfh(dir), ArgOp::Lookup(name("n"))],
        |dir| vec![ArgOp::Putfh(dir), ArgOp::Getattr(Bitmap::of(&[n::CHANGE]))],
        |_| vec![ArgOp::Putrootfh, readdir_op(0, 4096, 1 << 16, &[n::CHANGE])],
    ];
    for (at, ops) in rivals.into_iter().enumerate() {
        let rig = rig().await;
        let (mut c, _heard) = holder(&rig).await;
        let (_, dir) = held_directory(&mut c, "held").await;
        let (mut rival, v3) = (rig.client(b"rival").await, V3::new(&rig).await);
        let ex = rig.raw().await.exchange_id(b"back", 2).await;
        let raw = rig.raw().await;
        let held = hold("log.before-write");
        let again =
            tokio::spawn(async move { raw.create_session(session_args(ex.clientid, ex.sequenceid)).await });
        assert!(block_in_place(|| held.has(1, PATIENCE)), "the log is about to be told");
        let getattr = nfs3::Call::Getattr(nfs3::FileHandle(dir.0.clone()));
        let mut waits = tokio::spawn(async move { rival.status(ops(dir)).await });
        let mut waits3 = tokio::spawn(async move { v3.status(getattr).await });
        assert!(timeout(QUICK, &mut waits).await.is_err(), "{at}: the log does not know it yet");
        assert!(timeout(QUICK, &mut waits3).await.is_err(), "the same with NFSv3");
        drop(held);
        let status = timeout(PATIENCE, waits).await.expect("in time").expect("no panic");
        assert_eq!(status, if at == 0 { NfsStat::NFS4ERR_NOENT } else { NfsStat::NFS4_OK });
        let status = timeout(PATIENCE, waits3).await.expect("in time").expect("no panic");
        assert_eq!(status, nfs3::NfsStat3::OK);
        timeout(PATIENCE, again).await.expect("in time").expect("no panic");
    }
}

/// A recall may overtake the reply that gives the delegation, which waits for the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_6_3_who_was_not_told_of_a_delegation_yet_does_not_lose_it_by_not_knowing_it() {
    let _alone = HELD.lock().await;
    let rig = rig().await;
    const TIMES: usize = 5;
    // The last is the first answer.
    let answers = [vec![NfsStat::NFS4ERR_BAD_STATEID; TIMES], vec![NfsStat::NFS4_OK]].concat();
    let (raw, mut heard) = callable(rig.addr(), answers).await;
    let mut c = with_back_channel_on(raw, vec![CallbackSecParms::None]).await;
    tried_out(&mut c).await;
    let mut rival = rig.client(b"rival").await;
    // The log hears of a session's first callback before it is sent.
    let (stateid, dir) = held_directory(&mut c, "first").await;
    let looks = vec![ArgOp::Putfh(dir.clone()), ArgOp::Lookup(name("n"))];
    let looked = tokio::spawn(async move { (once_let(&mut rival, looks).await, rival) });
    recalled(&mut heard).await;
    assert_ok(&on_all(&mut c, &dir, ArgOp::DelegReturn(stateid)).await);
    let (status, mut rival) = timeout(PATIENCE, looked).await.expect("in time").expect("no panic");
    assert_eq!(status, NfsStat::NFS4ERR_NOENT);
    let held = hold("log.before-write");
    let mut opens = c.clone();
    c.seq += 1;
    let opened = tokio::spawn(async move { held_file(&mut opens, "f").await });
    assert!(block_in_place(|| held.has(1, PATIENCE)), "the reply waits for the log");
    let reads = vec![ArgOp::Putrootfh, ArgOp::Lookup(name("f")), read_op(Stateid::ANONYMOUS, 0, 1)];
    let reads = tokio::spawn(async move { once_let(&mut rival, reads).await });
    let mut recall = None;
    for _ in 0..TIMES {
        recall = Some(recalled(&mut heard).await);
    }
    drop(held);
    let (stateid, fh) = timeout(PATIENCE, opened).await.expect("in time").expect("no panic");
    assert_eq!(recall.map(|recall| recall.stateid), Some(stateid));
    assert_ok(&on_all(&mut c, &fh, write_op(stateid, 0, b"x")).await);
    assert!(!reads.is_finished());
    assert_ok(&on_all(&mut c, &fh, ArgOp::DelegReturn(stateid)).await);
    let status = timeout(PATIENCE, reads).await.expect("in time").expect("no panic");
    assert_eq!(status, NfsStat::NFS4_OK);
}

/// The server changes a file's times for what its holder has; not those that the holder has set since it answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_time_that_the_holder_sets_after_it_has_answered_stays() {
    let _alone = HELD.lock().await;
    let rig = rig().await;
    let is = Arc::new(Mutex::new(AttrValues::default()));
    let saying: Saying = {
        let is = is.clone();
        Arc::new(move |_| {
            let is = is.lock().expect("no panic").clone();
            Says::attrs(AttrValues { change: is.change.map(|c| c + 1), size: Some(100), ..is })
        })
    };
    let (raw, mut heard, _) = listening(rig.addr(), Vec::new(), false, Some(saying)).await;
    let mut c = with_back_channel_on(raw, vec![CallbackSecParms::None]).await;
    tried_out(&mut c).await;
    let mut rival = rig.client(b"rival").await;
    let (stateid, fh) = held_file(&mut c, "f").await;
    *is.lock().expect("no panic") = c.attrs(&fh, Bitmap::of(&[n::CHANGE])).await;
    let held = hold("cross.times");
    let asked = fh.clone();
    let mut looks = tokio::spawn(async move {
        loop {
            let look = on(&mut rival, &asked, ArgOp::Getattr(Bitmap::of(&[n::TIME_MODIFY]))).await;
            if look.status != NfsStat::NFS4ERR_DELAY {
                return look;
            }
        }
    });
    is_held(&held);
    let past = NfsTime { seconds: 981_173_106, nseconds: 5 };
    let time_modify_set = Some(SetTime::ClientTime(past));
    let attrs = fattr(AttrValues { time_modify_set, ..AttrValues::default() });
    assert_ok(&[on(&mut c, &fh, ArgOp::Setattr(SetattrArgs { stateid, attrs })).await]);
    drop(held);
    tokio::select! {
        recall = recalled(&mut heard) => assert_eq!(recall.stateid, stateid),
        told = &mut looks => panic!("it was told {told:?}"),
    }
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(stateid)).await]);
    let seen = timeout(PATIENCE, looks).await.expect("in time").expect("no panic");
    let ResBody::Getattr(seen) = seen.body else { panic!("{seen:?}") };
    assert_eq!(AttrValues::from_fattr(&seen).expect("values").time_modify, Some(past));
}

/// Has its request run where it may wait for the disk: nobody else waits for that thread.
fn waits() -> ArgOp {
    ArgOp::Commit(CommitArgs { offset: 0, count: 0 })
}

/// Nobody would return it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_client_that_has_gone_meanwhile_is_given_no_delegation() {
    let _alone = HELD.lock().await;
    for directory in [false, true] {
        let rig = rig().await;
        let (mut c, _heard) = holder(&rig).await;
        let mut rival = rig.client(b"rival").await;
        c.open("f", 3).await;
        let held = hold("cross.delegation");
        let mut ops = match directory {
            true => vec![ArgOp::Putrootfh, mkdir("d"), ask()],
            false => {
                let access = 3 | OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;
                vec![ArgOp::Putrootfh, open_op(b"another", "f", access, 0, OpenHow::NoCreate)]
            }
        };
        ops.push(waits());
        let beside = Client { raw: rig.raw().await, ..c.clone() };
        let asks = tokio::spawn(async move { c.run(ops).await });
        is_held(&held);
        // Its next instance comes, and all of this one goes.
        let raw = rig.raw().await;
        let comes = tokio::spawn(async move { Client::without_reclaim(raw, b"back", 2).await });
        let (sessionid, slotid, highest_slotid, sequenceid) = (beside.session, 1, 1, 1);
        let alone =
            ArgOp::Sequence(SequenceArgs { sessionid, sequenceid, slotid, highest_slotid, cachethis: false });
        while beside.raw.compound(vec![alone.clone()]).await.status != NfsStat::NFS4ERR_BADSESSION {}
        drop(held);
        // Whatever the former one is told, it is not there any more.
        let _ = asks.await;
        timeout(PATIENCE, comes).await.expect("in time").expect("no panic");
        let ops = match directory {
            true => vec![ArgOp::Putrootfh, ArgOp::Lookup(name("d")), mkdir("in it")],
            false => {
                let how = OpenHow::NoCreate;
                vec![ArgOp::Putrootfh, open_op(b"o", "f", 3, 0, how), write_op(Stateid::CURRENT, 0, b"data")]
            }
        };
        let let_in = timeout(Duration::from_secs(5), once_let(&mut rival, ops)).await;
        assert_eq!(let_in, Ok(NfsStat::NFS4_OK), "of a directory: {directory}");
    }
}

/// A session whose connection is lost before it is made has no back channel, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_46_3_a_session_that_is_made_on_a_lost_connection_asks_for_another() {
    let _alone = HELD.lock().await;
    let rig = rig().await;
    let (mut c, _heard) = with_back_channel(&rig, Vec::new()).await;
    let mut args = session_args(c.id, 2);
    args.flags |= CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
    let held = hold("cross.session");
    let (mut lost, asked) = (c.clone(), ArgOp::CreateSession(args.clone()));
    let asks = tokio::spawn(async move { lost.run(vec![asked, waits()]).await });
    is_held(&held);
    c.raw.conn.close();
    c.raw = rig.raw().await;
    // The server has seen that the connection is gone.
    while c.status_flags_on(1).await & SEQ4_STATUS_CB_PATH_DOWN_SESSION == 0 {}
    drop(held);
    assert!(asks.await.is_err(), "it hears nothing of it");
    let sessions = || {
        let all = rig.server().stats().limited();
        all.iter().find(|(resource, ..)| *resource == "client_sessions").map(|(_, used, _)| *used)
    };
    while sessions() != Some(2) {
        tokio::task::yield_now().await;
    }
    let again = c.raw.create_session(args).await;
    let mut c = Client { session: again.sessionid, seq: 0, ..c };
    let down = SEQ4_STATUS_CB_PATH_DOWN | SEQ4_STATUS_CB_PATH_DOWN_SESSION;
    assert_eq!(c.status_flags().await, down);
    let bind =
        BindConnToSessionArgs { sessid: c.session, dir: CDFC4_FORE_OR_BOTH, use_conn_in_rdma_mode: false };
    assert_ok(&[c.raw.alone(ArgOp::BindConnToSession(bind)).await]);
    assert_eq!(c.status_flags().await, 0);
}
