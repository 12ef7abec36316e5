//! Files that are removed while clients have them open outlast a restart of the server (RFC 8881 section 18.16,
//! `OPEN4_RESULT_PRESERVE_UNLINKED`), and go when nobody has them open any more.

use crate::common;
use crate::delegations;
use crate::v40::Client40;

use common::v3::{V3, at as at3};
use common::*;
use delegations::{holder, stateid_of};
use landfast_nfs::v3 as nfs3;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::flags::*;
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;
use landfast_server::exports::Delegate;
use landfast_volume::Durability;
use std::time::Instant;

const XOR: u32 = OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;

fn remove(file: &str) -> Vec<ArgOp> {
    vec![ArgOp::Putrootfh, ArgOp::Remove(name(file))]
}

fn rename(from: &str, to: &str) -> Vec<ArgOp> {
    let (oldname, newname) = (name(from), name(to));
    vec![ArgOp::Putrootfh, ArgOp::Savefh, ArgOp::Rename(RenameArgs { oldname, newname })]
}

fn any_seqid(s: Stateid) -> Stateid {
    Stateid { seqid: 0, ..s }
}

/// Files without a name that the server keeps.
fn kept(rig: &Rig) -> usize {
    let entries = std::fs::read_dir(rig.export().join(".landfast/open")).expect("the directory of orphans");
    entries.filter(|e| e.as_ref().is_ok_and(|e| e.file_type().is_ok_and(|kind| kind.is_file()))).count()
}

async fn until_none_is_kept(rig: &Rig) {
    let until = Instant::now() + PATIENCE;
    while kept(rig) > 0 {
        assert!(Instant::now() < until, "a file that nobody has open stays");
        tokio::task::yield_now().await;
    }
}

/// OPEN of a file in the root: its handle and result.
async fn open(c: &mut Client, file: &str, access: u32, how: OpenHow) -> (FileHandle, OpenRes) {
    let res = c.run(vec![ArgOp::Putrootfh, open_op(b"o", file, access, 0, how), ArgOp::Getfh]).await;
    assert_ok(&res);
    match (&res[1].body, &res[2].body) {
        (ResBody::Open(open), ResBody::Getfh(fh)) => (fh.clone(), open.clone()),
        other => panic!("OPEN gave {other:?}"),
    }
}

/// The same of a new file, of which the client is told that it outlasts its last name.
async fn made(c: &mut Client, file: &str) -> (FileHandle, Stateid) {
    let (fh, res) = open(c, file, 3, OpenHow::Create(CreateHow::Guarded(mode(0o644)))).await;
    assert_ne!(res.rflags & OPEN4_RESULT_PRESERVE_UNLINKED, 0, "it outlasts its last name");
    (fh, res.stateid)
}

async fn wrote(c: &mut Client, fh: &FileHandle, s: Stateid, offset: u64, data: &[u8]) {
    assert_ok(&[on(c, fh, write_op(any_seqid(s), offset, data)).await]);
}

async fn reads(c: &mut Client, fh: &FileHandle, s: Stateid, data: &[u8]) {
    let got = on(c, fh, read_op(any_seqid(s), 0, 100)).await;
    assert!(matches!(&got.body, ResBody::Read(r) if &r.data[..] == data), "{got:?}");
}

async fn closed(c: &mut Client, fh: &FileHandle, s: Stateid) {
    assert_ok(&[on(c, fh, close_op(any_seqid(s))).await]);
}

async fn is_stale(c: &mut Client, fh: &FileHandle) {
    assert_eq!(c.status(vec![ArgOp::Putfh(fh.clone())]).await, NfsStat::NFS4ERR_STALE);
}

/// The server dies and comes back; nobody has to reclaim.
async fn crash(rig: &mut Rig, clients: &mut [&mut Client]) {
    assert_eq!(rig.crash().await.reclaiming, 0);
    for c in clients {
        c.raw.conn = rig.raw().await.conn;
        assert_eq!(c.status_flags().await, 0);
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_16_an_open_file_outlasts_its_last_name_and_the_server() {
    let mut rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, s) = made(&mut c, "f").await;
    wrote(&mut c, &fh, s, 0, b"before ").await;
    let wanted = Bitmap::of(&[n::NUMLINKS, n::SIZE, n::CHANGE]);
    let before = c.attrs(&fh, wanted).await;
    assert_eq!(before.numlinks, Some(1));
    assert_ok(&c.run(remove("f")).await);
    let lookup = vec![ArgOp::Putrootfh, ArgOp::Lookup(name("f"))];
    assert_eq!(c.status(lookup.clone()).await, NfsStat::NFS4ERR_NOENT);
    assert_eq!(kept(&rig), 1);
    let after = c.attrs(&fh, wanted).await;
    assert_eq!((after.numlinks, after.size), (Some(0), Some(7)));
    assert!(after.change > before.change);
    wrote(&mut c, &fh, s, 7, b"after ").await;
    for round in 0..2 {
        crash(&mut rig, &mut [&mut c]).await;
        assert_eq!(c.attrs(&fh, wanted).await.numlinks, Some(0), "{round}");
        reads(&mut c, &fh, s, b"before after ").await;
    }
    wrote(&mut c, &fh, s, 13, b"again").await;
    // A clean stop keeps it as well.
    rig.restart().await;
    c.raw.conn = rig.raw().await.conn;
    reads(&mut c, &fh, s, b"before after again").await;
    assert_eq!(c.status(lookup).await, NfsStat::NFS4ERR_NOENT);
    closed(&mut c, &fh, s).await;
    assert_eq!(kept(&rig), 0, "CLOSE removes it before it is answered");
    is_stale(&mut c, &fh).await;
    crash(&mut rig, &mut [&mut c]).await;
    is_stale(&mut c, &fh).await;
    assert_eq!(kept(&rig), 0);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_16_the_flag_is_given_where_the_log_has_the_open() {
    let mut rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, s) = made(&mut c, "f").await;
    let flag = |res: &OpenRes| res.rflags & OPEN4_RESULT_PRESERVE_UNLINKED != 0;
    // The same open: the log has it.
    let (_, again) = open(&mut c, "f", 1, OpenHow::NoCreate).await;
    assert!(flag(&again));
    closed(&mut c, &fh, s).await;
    // To say so would take a flush.
    let (_, anew) = open(&mut c, "f", 3, OpenHow::NoCreate).await;
    assert!(!flag(&anew));
    closed(&mut c, &fh, anew.stateid).await;
    let cut = fattr(AttrValues { size: Some(0), ..AttrValues::default() });
    let (_, cutting) = open(&mut c, "f", 3, OpenHow::Create(CreateHow::Unchecked(cut))).await;
    assert!(flag(&cutting), "it waits for a flush anyhow");
    // NFSv4.0 has no such flag.
    let mut old = Client40::new(&rig, b"old").await;
    let seqid = old.next();
    let ops = vec![ArgOp::Putrootfh, old.open_op(seqid, "g", 3, 0)];
    match old.last(ops).await.body {
        ResBody::Open(res) => assert!(!flag(&res)),
        other => panic!("OPEN gave {other:?}"),
    }
    // Nor is there a promise without a log.
    rig = Rig::with(Durability::Sync, 90).await;
    let mut c = rig.client(b"c").await;
    let (_, res) = open(&mut c, "f", 3, OpenHow::Create(CreateHow::Guarded(mode(0o644)))).await;
    assert!(!flag(&res));
    assert_ok(&c.run(remove("f")).await);
    assert!(!rig.export().join(".landfast/open").exists());
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn whoever_takes_the_last_name_away() {
    let mut rig = Rig::new().await;
    let (mut c, mut d) = (rig.client(b"c").await, rig.client(b"d").await);
    let v3 = V3::new(&rig).await;
    let mut files = Vec::new();
    for file in ["by-4", "by-3", "under-4", "under-3"] {
        let (fh, s) = made(&mut c, file).await;
        wrote(&mut c, &fh, s, 0, file.as_bytes()).await;
        files.push((file, fh, s));
    }
    for other in ["x", "y"] {
        let (fh, s) = made(&mut d, other).await;
        closed(&mut d, &fh, s).await;
    }
    assert_ok(&d.run(remove("by-4")).await);
    assert_eq!(v3.status(nfs3::Call::Remove(at3(&v3.root, "by-3"))).await, nfs3::NfsStat3::OK);
    assert_ok(&d.run(rename("x", "under-4")).await);
    let over = nfs3::args::RenameArgs { from: at3(&v3.root, "y"), to: at3(&v3.root, "under-3") };
    assert_eq!(v3.status(nfs3::Call::Rename(over)).await, nfs3::NfsStat3::OK);
    assert_eq!(kept(&rig), 4);
    assert_eq!(v3.attrs(&nfs3::FileHandle(files[1].1.0.clone())).await.nlink, 0);
    crash(&mut rig, &mut [&mut c, &mut d]).await;
    for (file, fh, s) in &files {
        reads(&mut c, fh, *s, file.as_bytes()).await;
    }
    let (mut left, mut names) = (files.len(), Vec::new());
    for (file, fh, s) in &files {
        closed(&mut c, fh, *s).await;
        left -= 1;
        assert_eq!(kept(&rig), left, "{file}");
    }
    for entry in std::fs::read_dir(rig.export()).expect("the export") {
        names.push(entry.expect("an entry").file_name().into_string().expect("a name"));
    }
    names.sort();
    assert_eq!(names, [".landfast", "under-3", "under-4"]);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn only_the_last_name_counts() {
    let mut rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, s) = made(&mut c, "f").await;
    let link =
        |to: &str| vec![ArgOp::Putfh(fh.clone()), ArgOp::Savefh, ArgOp::Putrootfh, ArgOp::Link(name(to))];
    assert_ok(&c.run(link("g")).await);
    assert_ok(&c.run(remove("f")).await);
    assert_eq!(kept(&rig), 0);
    assert_ok(&c.run(remove("g")).await);
    assert_eq!(kept(&rig), 1);
    assert_eq!(c.status(link("h")).await, NfsStat::NFS4ERR_STALE, "it has no name to be linked by");
    crash(&mut rig, &mut [&mut c]).await;
    assert_eq!(c.status(link("h")).await, NfsStat::NFS4ERR_STALE);
    reads(&mut c, &fh, s, b"").await;
    closed(&mut c, &fh, s).await;
    assert_eq!(kept(&rig), 0);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn it_stays_until_the_last_of_several_has_closed_it() {
    let mut rig = Rig::new().await;
    let (mut c, mut d) = (rig.client(b"c").await, rig.client(b"d").await);
    let (fh, s) = made(&mut c, "f").await;
    let (_, ds) = open(&mut d, "f", 1, OpenHow::NoCreate).await;
    wrote(&mut c, &fh, s, 0, b"both").await;
    // The log has d's open with the removal.
    assert_ok(&c.run(remove("f")).await);
    closed(&mut c, &fh, s).await;
    assert_eq!(kept(&rig), 1);
    crash(&mut rig, &mut [&mut c, &mut d]).await;
    crash(&mut rig, &mut [&mut c, &mut d]).await;
    reads(&mut d, &fh, ds.stateid, b"both").await;
    closed(&mut d, &fh, ds.stateid).await;
    assert_eq!(kept(&rig), 0);
    is_stale(&mut c, &fh).await;
}

/// The server learns of opens after a restart by their use. Of one that was promised to outlast its file's last name it knows without.
#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_open_that_is_idle_since_the_restart_counts() {
    let mut rig = Rig::new().await;
    let (mut c, mut d) = (rig.client(b"c").await, rig.client(b"d").await);
    let (fh, s) = made(&mut c, "f").await;
    let (gh, gs) = made(&mut c, "g").await;
    wrote(&mut c, &fh, s, 0, b"idle").await;
    crash(&mut rig, &mut [&mut c, &mut d]).await;
    assert_ok(&d.run(remove("f")).await);
    assert_ok(&d.run(remove("g")).await);
    assert_eq!(kept(&rig), 2);
    crash(&mut rig, &mut [&mut c, &mut d]).await;
    // Closed without having been used.
    closed(&mut c, &gh, gs).await;
    assert_eq!(kept(&rig), 1);
    is_stale(&mut c, &gh).await;
    // Nobody else takes it over.
    assert_eq!(on(&mut d, &fh, read_op(any_seqid(s), 0, 1)).await.status, NfsStat::NFS4ERR_BAD_STATEID);
    reads(&mut c, &fh, s, b"idle").await;
    closed(&mut c, &fh, s).await;
    assert_eq!(kept(&rig), 0);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn it_goes_with_its_client() {
    let mut rig = Rig::new().await;
    let (mut c, mut d) = (rig.client(b"c").await, rig.client(b"d").await);
    let (fh, _) = made(&mut c, "f").await;
    assert_ok(&d.run(remove("f")).await);
    assert_eq!(kept(&rig), 1);
    // The client's machine starts anew.
    let mut c = Client::without_reclaim(c.raw.clone(), b"c", 2).await;
    until_none_is_kept(&rig).await;
    is_stale(&mut d, &fh).await;
    assert_ok(&c.run(vec![ArgOp::ReclaimComplete(false)]).await);
    // Its open is unused since the restart, and is not in the way of DESTROY_CLIENTID.
    made(&mut c, "g").await;
    assert_ok(&d.run(remove("g")).await);
    crash(&mut rig, &mut [&mut c, &mut d]).await;
    assert_eq!(kept(&rig), 1);
    assert_ok(&[c.raw.alone(ArgOp::DestroySession(c.session)).await]);
    assert_ok(&[c.raw.alone(ArgOp::DestroyClientid(c.id)).await]);
    until_none_is_kept(&rig).await;
}

/// A log that knows of nobody: whoever had the file open is gone for the server.
#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn it_goes_where_nobody_is_known_to_have_it_open() {
    let mut rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    made(&mut c, "f").await;
    assert_ok(&c.run(remove("f")).await);
    rig.running.take().expect("a server").stop().await.expect("a clean stop");
    assert_eq!(kept(&rig), 1);
    rig.log = Some(rig.dir.path().join("another-log"));
    rig.start().await;
    until_none_is_kept(&rig).await;
}

/// Who holds something that the log does not know reclaims all that it has, orphans as well.
#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_8_4_2_1_it_is_reclaimed_by_its_handle() {
    for reclaims in [true, false] {
        let mut rig = Rig::new().await;
        let mut c = rig.client(b"c").await;
        let (fh, s) = made(&mut c, "f").await;
        wrote(&mut c, &fh, s, 0, b"mine").await;
        c.deny("other").await;
        assert_ok(&c.run(remove("f")).await);
        assert_eq!(rig.crash().await.reclaiming, 1);
        let mut c = Client::without_reclaim(rig.raw().await, b"c", 1).await;
        assert_eq!(kept(&rig), 1);
        if reclaims {
            let op = ArgOp::Open(OpenArgs {
                seqid: 0,
                share_access: 3,
                share_deny: 0,
                owner: args::owner(0, b"o"),
                openhow: OpenHow::NoCreate,
                claim: OpenClaim::Previous(0),
            });
            let s = match on(&mut c, &fh, op).await.body {
                ResBody::Open(res) => res.stateid,
                other => panic!("OPEN gave {other:?}"),
            };
            assert_ok(&c.run(vec![ArgOp::ReclaimComplete(false)]).await);
            reads(&mut c, &fh, s, b"mine").await;
            closed(&mut c, &fh, s).await;
        } else {
            assert_ok(&c.run(vec![ArgOp::ReclaimComplete(false)]).await);
        }
        until_none_is_kept(&rig).await;
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn who_may_not_remove_the_name_leaves_no_trace() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, s) = made(&mut c, "f").await;
    let (_, other) = made(&mut c, "other").await;
    let mut user = c.clone();
    user.raw.cred = common::user(1000);
    assert_eq!(user.status(remove("f")).await, NfsStat::NFS4ERR_ACCESS);
    user.seq = user.seq.max(c.seq);
    assert_eq!(user.status(rename("other", "f")).await, NfsStat::NFS4ERR_ACCESS);
    c.seq = user.seq;
    assert_eq!(kept(&rig), 0);
    assert_eq!(c.attrs(&fh, Bitmap::of(&[n::NUMLINKS])).await.numlinks, Some(1));
    closed(&mut c, &fh, s).await;
    assert_eq!(c.handle(&["f"]).await, fh, "its CLOSE removes nothing");
    let _ = other;
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_delegation_in_place_of_the_open_keeps_it() {
    let mut rig = delegations::rig(Delegate::Write).await;
    let (mut c, _heard) = holder(&rig, Vec::new()).await;
    let (fh, res) = open(&mut c, "f", 3 | XOR, OpenHow::Create(CreateHow::Guarded(mode(0o644)))).await;
    assert_ne!(res.rflags & OPEN4_RESULT_NO_OPEN_STATEID, 0);
    assert_ne!(res.rflags & OPEN4_RESULT_PRESERVE_UNLINKED, 0);
    let delegation = stateid_of(&res.delegation).expect("a delegation");
    wrote(&mut c, &fh, delegation, 0, b"delegated").await;
    // As clients do that return nothing before.
    assert_ok(&c.run(remove("f")).await);
    assert_eq!(kept(&rig), 1);
    rig.crash().await;
    c.raw.conn = rig.raw().await.conn;
    assert_eq!(c.sequence_status().await, NfsStat::NFS4_OK);
    reads(&mut c, &fh, delegation, b"delegated").await;
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(delegation)).await]);
    until_none_is_kept(&rig).await;
}

/// Linux up to 6.12 returns a delegation before it removes what it has open by it: the open that it gets instead was promised nothing, but Linux counts on it.
#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_open_in_place_of_a_delegation_keeps_it() {
    let mut rig = delegations::rig(Delegate::Write).await;
    let (mut c, _heard) = holder(&rig, Vec::new()).await;
    let (fh, res) = open(&mut c, "f", 3 | XOR, OpenHow::Create(CreateHow::Guarded(mode(0o644)))).await;
    let delegation = stateid_of(&res.delegation).expect("a delegation");
    wrote(&mut c, &fh, delegation, 0, b"open").await;
    let by = ArgOp::Open(OpenArgs {
        seqid: 0,
        share_access: 3 | XOR,
        share_deny: 0,
        owner: args::owner(0, b"o"),
        openhow: OpenHow::NoCreate,
        claim: OpenClaim::DelegCurFh(delegation),
    });
    let s = match on(&mut c, &fh, by).await.body {
        ResBody::Open(res) => res.stateid,
        other => panic!("OPEN gave {other:?}"),
    };
    assert_ok(&[on(&mut c, &fh, ArgOp::DelegReturn(delegation)).await]);
    // What goes into the log next takes both along.
    assert_ok(&c.run(vec![ArgOp::Putrootfh, mkdir("d")]).await);
    rig.crash().await;
    let mut d = rig.client(b"d").await;
    assert_ok(&d.run(remove("f")).await);
    assert_eq!(kept(&rig), 1);
    c.raw.conn = rig.raw().await.conn;
    assert_eq!(c.sequence_status().await, NfsStat::NFS4_OK);
    reads(&mut c, &fh, s, b"open").await;
    closed(&mut c, &fh, s).await;
    assert_eq!(kept(&rig), 0);
}

/// A file is removed while its OPEN is under way: whoever was told that it outlasts its last name finds it after a crash.
#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_removal_beside_the_open_breaks_no_promise() {
    const FILES: usize = 150;
    let mut rig = Rig::new().await;
    let (mut c, mut d) = (rig.client(b"c").await, rig.client(b"d").await);
    let mut told = Vec::new();
    for at in 0..FILES {
        let file = format!("f{at}");
        let how = OpenHow::Create(CreateHow::Guarded(mode(0o644)));
        let opens = vec![ArgOp::Putrootfh, open_op(b"o", &file, 3, 0, how), ArgOp::Getfh];
        let removal = async { while d.status(remove(&file)).await == NfsStat::NFS4ERR_NOENT {} };
        let (res, ()) = tokio::join!(c.run(opens), removal);
        assert_ok(&res);
        if let (ResBody::Open(open), ResBody::Getfh(fh)) = (&res[1].body, &res[2].body)
            && open.rflags & OPEN4_RESULT_PRESERVE_UNLINKED != 0
        {
            told.push((fh.clone(), open.stateid));
        }
    }
    assert!(!told.is_empty(), "nobody was told anything");
    assert!(kept(&rig) >= told.len(), "{} of {}", kept(&rig), told.len());
    crash(&mut rig, &mut [&mut c, &mut d]).await;
    for (fh, s) in &told {
        reads(&mut c, fh, *s, b"").await;
        wrote(&mut c, fh, *s, 0, b"there").await;
        closed(&mut c, fh, *s).await;
        is_stale(&mut c, fh).await;
    }
}

/// Two clients remove the same open file at the same time, by one name or by two. One of them takes its last name away, and its file is kept for whoever has it
/// open, whatever the other is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn two_removals_of_one_open_file_keep_it() {
    const FILES: usize = 100;
    let mut rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (mut d, mut e) = (rig.client(b"d").await, rig.client(b"e").await);
    let v3 = V3::new(&rig).await;
    let mut open = Vec::new();
    for at in 0..FILES {
        let (file, other) = (format!("f{at}"), format!("g{at}"));
        let (fh, s) = made(&mut c, &file).await;
        wrote(&mut c, &fh, s, 0, file.as_bytes()).await;
        let two_names = at % 2 == 1;
        if two_names {
            let link =
                vec![ArgOp::Putfh(fh.clone()), ArgOp::Savefh, ArgOp::Putrootfh, ArgOp::Link(name(&other))];
            assert_ok(&c.run(link).await);
        }
        let second = if two_names { other } else { file.clone() };
        let answers = if at % 4 < 2 {
            tokio::join!(d.status(remove(&file)), e.status(remove(&second)))
        } else {
            let older = async {
                match v3.status(nfs3::Call::Remove(at3(&v3.root, &second))).await {
                    nfs3::NfsStat3::OK => NfsStat::NFS4_OK,
                    nfs3::NfsStat3::NOENT => NfsStat::NFS4ERR_NOENT,
                    other => panic!("REMOVE in version 3 gave {other}"),
                }
            };
            tokio::join!(d.status(remove(&file)), older)
        };
        let done = [answers.0, answers.1].iter().filter(|status| status.is_ok()).count();
        assert_eq!(done, if two_names { 2 } else { 1 }, "{answers:?}");
        assert_eq!(kept(&rig), at + 1);
        open.push((file, fh, s));
    }
    crash(&mut rig, &mut [&mut c, &mut d, &mut e]).await;
    assert_eq!(kept(&rig), FILES);
    for (left, (file, fh, s)) in open.iter().enumerate().rev() {
        reads(&mut c, fh, *s, file.as_bytes()).await;
        closed(&mut c, fh, *s).await;
        // The state knows that it is an orphan: its CLOSE has removed it.
        assert_eq!(kept(&rig), left);
        is_stale(&mut c, fh).await;
    }
}
