//! Who looks at the attributes of a file that another client has a write delegation of (RFC 8881 section 10.4.3), over real sockets: its holder is
//! asked with CB_GETATTR, and keeps the delegation; or has to return it.

use crate::common;
use crate::delegations::*;

use common::back::*;
use common::v3::V3;
use common::*;
use landfast_nfs::v3 as nfs3;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::flags::*;
use landfast_nfs::v4::*;
use landfast_server::exports::Delegate;
use landfast_server::limits;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const XOR: u32 = OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;
const TIMES: u32 = OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS;
const LOOKED_AT: [u32; 5] = [n::CHANGE, n::SIZE, n::TIME_ACCESS, n::TIME_METADATA, n::TIME_MODIFY];

/// What a holder says of a file: how it is on the server, with some of it changed.
type Change = fn(AttrValues) -> Says;

/// A client that holds delegations and answers for their files.
pub(crate) struct Holder {
    pub(crate) c: Client,
    pub(crate) heard: Heard,
    says: Arc<Mutex<Box<dyn Fn() -> Says + Send>>>,
    asked: Arc<AtomicUsize>,
}

impl Holder {
    pub(crate) async fn new(rig: &Rig) -> Holder {
        let says: Arc<Mutex<Box<dyn Fn() -> Says + Send>>> =
            Arc::new(Mutex::new(Box::new(|| Says::Fails(NfsStat::NFS4ERR_BADHANDLE))));
        let asked = Arc::new(AtomicUsize::new(0));
        let saying: Saying = {
            let (says, asked) = (says.clone(), asked.clone());
            Arc::new(move |_| {
                asked.fetch_add(1, Ordering::Relaxed);
                says.lock().expect("no panic")()
            })
        };
        let (raw, heard, _) = listening(rig.addr(), Vec::new(), false, Some(saying)).await;
        let mut c = with_back_channel_on(raw, vec![CallbackSecParms::None]).await;
        tried_out(&mut c).await;
        Holder { c, heard, says, asked }
    }

    /// A file that it has a write delegation of, with some data, and the file as it was when that was given.
    pub(crate) async fn delegated(&mut self, file: &str, wish: u32) -> (Stateid, FileHandle, AttrValues) {
        let (res, fh) = open(&mut self.c, file, 2 | XOR | wish).await;
        let stateid = stateid_of(&res.delegation).expect("a delegation");
        let given = self.c.attrs(&fh, Bitmap::of(&LOOKED_AT)).await;
        assert_ok(&[on(&mut self.c, &fh, write_op(stateid, 0, b"data")).await]);
        (stateid, fh, given)
    }

    /// From now on it says that the change attribute is as it was given, with what `change` does to that and to the rest of what the server has.
    pub(crate) async fn says(&mut self, fh: &FileHandle, given: &AttrValues, change: Change) {
        let is = self.c.attrs(fh, Bitmap::of(&LOOKED_AT)).await;
        let base = AttrValues {
            change: given.change,
            size: is.size,
            time_deleg_access: is.time_access,
            time_deleg_modify: is.time_modify,
            ..AttrValues::default()
        };
        *self.says.lock().expect("no panic") = Box::new(move || change(base.clone()));
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    pub(crate) async fn still_has(&mut self, stateid: Stateid) {
        assert!(self.heard.try_recv().is_err(), "nothing is recalled");
        match self.c.last(vec![ArgOp::TestStateid(vec![stateid])]).await.body {
            ResBody::TestStateid(all) => assert_eq!(all, [NfsStat::NFS4_OK]),
            other => panic!("TEST_STATEID gave {other:?}"),
        }
    }
}

pub(crate) async fn looks(c: &mut Client, fh: &FileHandle) -> AttrValues {
    c.attrs(fh, Bitmap::of(&LOOKED_AT)).await
}

fn ahead(is: AttrValues) -> Says {
    Says::attrs(AttrValues { change: is.change.map(|c| c + 1), size: Some(100), ..is })
}

fn as_here(is: AttrValues) -> Says {
    Says::attrs(is)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_3_a_holder_that_has_changed_nothing_keeps_its_delegation_and_the_file_is_as_it_is() {
    let rig = rig(Delegate::Write).await;
    let mut holder = Holder::new(&rig).await;
    let (stateid, fh, given) = holder.delegated("f", 0).await;
    holder.says(&fh, &given, as_here).await;
    let is = looks(&mut holder.c, &fh).await;
    assert_eq!(holder.asked(), 0, "the holder itself is in nobody's way");
    let mut rival = rig.client(b"rival").await;
    for times in 1..3 {
        assert_eq!(looks(&mut rival, &fh).await, is);
        assert_eq!(holder.asked(), times, "each time somebody looks");
    }
    holder.still_has(stateid).await;
}

/// A file "f" of 4 bytes whose holder says that it has 100; and somebody who looks.
async fn with_more() -> (Rig, Holder, Stateid, FileHandle, Client) {
    let rig = rig(Delegate::Write).await;
    let mut holder = Holder::new(&rig).await;
    let (stateid, fh, given) = holder.delegated("f", 0).await;
    holder.says(&fh, &given, ahead).await;
    let rival = rig.client(b"rival").await;
    (rig, holder, stateid, fh, rival)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_3_what_a_holder_has_not_sent_yet_is_seen_and_the_change_attribute_only_grows() {
    let (_rig, mut holder, stateid, fh, mut rival) = with_more().await;
    let mut last = looks(&mut holder.c, &fh).await;
    for _ in 0..3 {
        let seen = looks(&mut rival, &fh).await;
        assert_eq!(seen.size, Some(100));
        assert!(seen.change > last.change && seen.time_modify >= last.time_modify, "{seen:?} {last:?}");
        assert!(seen.time_metadata >= last.time_metadata);
        last = seen;
    }
    holder.still_has(stateid).await;
    // It returns the delegation, and never sends what it had.
    assert_ok(&[on(&mut holder.c, &fh, ArgOp::DelegReturn(stateid)).await]);
    let seen = looks(&mut rival, &fh).await;
    assert!(seen.size == Some(4) && seen.change > last.change && seen.time_modify >= last.time_modify);
    assert!(seen.time_metadata >= last.time_metadata);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_15_and_18_31_and_18_23_verify_and_readdir_say_what_the_holder_says() {
    let (_rig, mut holder, stateid, fh, mut rival) = with_more().await;
    let size = |size| fattr(AttrValues { size: Some(size), ..AttrValues::default() });
    assert_ok(&[on(&mut rival, &fh, ArgOp::Verify(size(100))).await]);
    assert_eq!(on(&mut rival, &fh, ArgOp::Verify(size(4))).await.status, NfsStat::NFS4ERR_NOT_SAME);
    assert_eq!(on(&mut rival, &fh, ArgOp::Nverify(size(100))).await.status, NfsStat::NFS4ERR_SAME);
    let before = looks(&mut holder.c, &fh).await;
    let page = vec![ArgOp::Putrootfh, readdir_op(0, 4096, 4096, &[n::SIZE, n::CHANGE])];
    let ResBody::Readdir(page) = rival.last(page).await.body else { panic!("no READDIR") };
    let listed = page.entries.iter().find(|e| e.name.as_ref() == b"f").expect("an entry");
    let listed = AttrValues::from_fattr(&listed.attrs).expect("values");
    assert!(listed.size == Some(100) && listed.change > before.change);
    holder.still_has(stateid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc1813_2_6_the_attributes_that_version_3_tells_are_those_that_the_holder_says() {
    let (rig, mut holder, stateid, fh, _) = with_more().await;
    let v3 = V3::new(&rig).await;
    let file = nfs3::FileHandle(fh.0.clone());
    assert_eq!(v3.attrs(&file).await.size, 100);
    assert_eq!(v3.lookup(&v3.root, "f").await.attrs.map(|a| a.size), Some(100));
    let access = nfs3::Call::Access(nfs3::args::AccessArgs { object: file.clone(), access: 1 });
    let access = v3.ok::<nfs3::res::AccessOk, nfs3::res::PostOp>(access).await;
    assert_eq!(access.attrs.map(|a| a.size), Some(100));
    let fsstat = v3.ok::<nfs3::res::FsstatOk, nfs3::res::PostOp>(nfs3::Call::Fsstat(file)).await;
    assert_eq!(fsstat.attrs.map(|a| a.size), Some(100));
    assert_eq!(holder.asked(), 4);
    holder.still_has(stateid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_3_what_was_told_is_not_taken_back_when_the_holder_writes_or_has_no_more() {
    let rig = rig(Delegate::Write).await;
    let mut holder = Holder::new(&rig).await;
    let (stateid, fh, given) = holder.delegated("f", 0).await;
    let mut rival = rig.client(b"rival").await;
    holder.says(&fh, &given, ahead).await;
    let first = looks(&mut rival, &fh).await;
    // It has thrown away what it had.
    holder.says(&fh, &given, as_here).await;
    let second = looks(&mut rival, &fh).await;
    assert!(second.size == Some(4) && second.change > first.change, "{first:?} {second:?}");
    assert_eq!(looks(&mut rival, &fh).await, second);
    // It sends it.
    assert_ok(&[on(&mut holder.c, &fh, write_op(stateid, 0, &[7; 100])).await]);
    holder.says(&fh, &given, as_here).await;
    let third = looks(&mut rival, &fh).await;
    assert!(third.size == Some(100) && third.change > second.change);
    assert_ok(&[on(&mut holder.c, &fh, ArgOp::DelegReturn(stateid)).await]);
    assert_eq!(looks(&mut rival, &fh).await, third);
}

/// GETATTR of somebody else, under way.
fn looking(mut rival: Client, fh: &FileHandle) -> JoinHandle<(Client, ResOp)> {
    let fh = fh.clone();
    tokio::spawn(async move {
        let until = Instant::now() + PATIENCE;
        loop {
            let res = on(&mut rival, &fh, ArgOp::Getattr(Bitmap::of(&LOOKED_AT))).await;
            if res.status != NfsStat::NFS4ERR_DELAY || Instant::now() > until {
                return (rival, res);
            }
        }
    })
}

fn values(res: ResOp) -> AttrValues {
    match res.body {
        ResBody::Getattr(f) => AttrValues::from_fattr(&f).expect("values"),
        other => panic!("GETATTR gave {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_20_1_a_holder_that_does_not_say_what_it_was_asked_has_to_return_the_delegation() {
    let answers: [(&str, Change); 7] = [
        ("an error", |_| Says::Fails(NfsStat::NFS4ERR_BADHANDLE)),
        ("not now", |_| Says::Fails(NfsStat::NFS4ERR_DELAY)),
        ("no size", |is| Says::attrs(AttrValues { size: None, ..is })),
        ("no change", |is| Says::attrs(AttrValues { change: None, ..is })),
        ("a size that no file has", |is| Says::attrs(AttrValues { size: Some(u64::MAX), ..is })),
        ("a time that is none", |is| {
            let none = NfsTime { seconds: 1, nseconds: 1_000_000_000 };
            Says::attrs(AttrValues { time_deleg_modify: Some(none), ..is })
        }),
        ("no time", |is| Says::attrs(AttrValues { time_deleg_access: None, ..is })),
    ];
    let rig = rig(Delegate::Times).await;
    let mut holder = Holder::new(&rig).await;
    let mut rival = rig.client(b"rival").await;
    for (at, (what, says)) in answers.into_iter().enumerate() {
        let (stateid, fh, given) = holder.delegated(&format!("f{at}"), TIMES).await;
        holder.says(&fh, &given, says).await;
        let waits = looking(rival, &fh);
        assert_eq!(recalled(&mut holder.heard).await.stateid, stateid, "{what}");
        assert!(!waits.is_finished(), "{what}");
        assert_ok(&[on(&mut holder.c, &fh, ArgOp::DelegReturn(stateid)).await]);
        let res;
        (rival, res) = timeout(PATIENCE, waits).await.expect("in time").expect("no panic");
        assert_eq!(values(res).size, Some(4), "{what}");
        assert_eq!(holder.asked(), at + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_20_1_a_holder_that_does_not_answer_in_time_has_to_return_its_delegations() {
    let rig = rig(Delegate::Write).await;
    let mut holder = Holder::new(&rig).await;
    let rival = rig.client(b"rival").await;
    let (first, fh, given) = holder.delegated("f", 0).await;
    let (second, other, _) = holder.delegated("g", 0).await;
    holder.says(&fh, &given, |_| Says::Nothing).await;
    let began = Instant::now();
    let waits = [looking(rival, &fh), looking(rig.client(b"another").await, &other)];
    let recalls = [recalled(&mut holder.heard).await.stateid, recalled(&mut holder.heard).await.stateid];
    assert!(began.elapsed() >= limits::GETATTR_PATIENCE);
    assert!(recalls.contains(&first) && recalls.contains(&second), "{recalls:?}");
    assert_ok(&[on(&mut holder.c, &fh, ArgOp::DelegReturn(first)).await]);
    assert_ok(&[on(&mut holder.c, &other, ArgOp::DelegReturn(second)).await]);
    for waits in waits {
        let (_, res) = timeout(PATIENCE, waits).await.expect("in time").expect("no panic");
        assert_eq!(values(res).size, Some(4));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_3_any_other_change_attribute_or_size_means_that_there_is_more() {
    let answers: [(&str, Change, u64); 5] = [
        ("a smaller size", |is| Says::attrs(AttrValues { size: Some(1), ..is }), 1),
        ("change 0", |is| Says::attrs(AttrValues { change: Some(0), ..is }), 4),
        ("the largest change", |is| Says::attrs(AttrValues { change: Some(u64::MAX), ..is }), 4),
        (
            "the largest size",
            |is| Says::attrs(AttrValues { size: Some(i64::MAX as u64), ..is }),
            i64::MAX as u64,
        ),
        ("both", |_| Says::attrs(AttrValues { change: Some(1), size: Some(0), ..AttrValues::default() }), 0),
    ];
    let rig = rig(Delegate::Write).await;
    let mut holder = Holder::new(&rig).await;
    let mut rival = rig.client(b"rival").await;
    for (at, (what, says, size)) in answers.into_iter().enumerate() {
        let file = format!("f{at}");
        let (stateid, fh, given) = holder.delegated(&file, 0).await;
        holder.says(&fh, &given, says).await;
        let before = looks(&mut holder.c, &fh).await.change;
        let seen = looks(&mut rival, &fh).await;
        assert_eq!(seen.size, Some(size), "{what}");
        assert!(seen.change > before && looks(&mut holder.c, &fh).await.change > seen.change, "{what}");
        assert_eq!(std::fs::read(rig.export().join(file)).expect("the file"), b"data", "it is as it was");
        holder.still_has(stateid).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_delegation_that_is_looked_at_again_and_again_is_recalled() {
    let rig = rig(Delegate::Write).await;
    let mut holder = Holder::new(&rig).await;
    let (stateid, fh, given) = holder.delegated("f", 0).await;
    holder.says(&fh, &given, as_here).await;
    let mut rival = rig.client(b"rival").await;
    for _ in 0..limits::GETATTRS_MAX {
        looks(&mut rival, &fh).await;
    }
    holder.still_has(stateid).await;
    let waits = looking(rival, &fh);
    assert_eq!(recalled(&mut holder.heard).await.stateid, stateid);
    assert_ok(&[on(&mut holder.c, &fh, ArgOp::DelegReturn(stateid)).await]);
    timeout(PATIENCE, waits).await.expect("in time").expect("no panic");
    assert_eq!(holder.asked(), limits::GETATTRS_MAX as usize);
}

/// A page has no more files than holders are asked about for one request; the rest comes with the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_3_a_listing_of_many_delegated_files_asks_once_about_each() {
    const FILES: usize = 2 * limits::GETATTRS_FOR_ONE + 40;
    let rig = rig(Delegate::Write).await;
    let mut holder = Holder::new(&rig).await;
    let mut stateids = Vec::new();
    for at in 0..FILES {
        let (res, fh) = open(&mut holder.c, &format!("f{at}"), 2 | XOR).await;
        stateids.push((stateid_of(&res.delegation).expect("a delegation"), fh));
    }
    *holder.says.lock().expect("no panic") =
        Box::new(|| Says::attrs(AttrValues { change: Some(7), size: Some(1234), ..AttrValues::default() }));
    let mut rival = rig.client(b"rival").await;
    let (mut cookie, mut sizes) = (0, Vec::new());
    loop {
        let page = readdir_op(cookie, 256 << 10, 256 << 10, &[n::SIZE, n::FILEID]);
        let res = rival.last(vec![ArgOp::Putrootfh, page]).await;
        let ResBody::Readdir(page) = res.body else { panic!("READDIR gave {res:?}") };
        let files = page.entries.iter().filter(|e| e.name.starts_with(b"f"));
        sizes.extend(files.map(|e| AttrValues::from_fattr(&e.attrs).expect("values").size));
        cookie = page.entries.last().map_or(cookie, |e| e.cookie);
        if page.eof {
            break;
        }
    }
    assert_eq!(sizes, vec![Some(1234); FILES]);
    assert_eq!(holder.asked(), FILES);
    assert!(holder.heard.try_recv().is_err(), "nothing is recalled");

    // Version 3 does the same.
    let v3 = V3::new(&rig).await;
    let (mut cookie, mut files, mut most) = (0, 0, 0);
    loop {
        let before = files;
        let args = nfs3::args::ReaddirplusArgs {
            dir: v3.root.clone(),
            cookie,
            cookieverf: [0; 8],
            dircount: 256 << 10,
            maxcount: 512 << 10,
        };
        let page = v3.ok::<nfs3::res::ReaddirplusOk, nfs3::res::PostOp>(nfs3::Call::Readdirplus(args)).await;
        for entry in page.entries.0.iter().filter(|e| e.name.starts_with(b"f")) {
            assert_eq!(entry.attrs.as_ref().map(|a| a.size), Some(1234));
            files += 1;
        }
        most = most.max(files - before);
        cookie = page.entries.0.last().map_or(cookie, |e| e.cookie);
        if page.eof {
            break;
        }
    }
    assert_eq!((files, holder.asked(), most), (FILES, 2 * FILES, limits::GETATTRS_FOR_ONE));
    let (stateid, _) = stateids.swap_remove(0);
    holder.still_has(stateid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc9754_5_the_times_that_a_holder_answers_for_are_in_the_file_before_anybody_sees_them() {
    let mut rig = rig(Delegate::Times).await;
    let mut holder = Holder::new(&rig).await;
    let (stateid, fh, given) = holder.delegated("f", TIMES).await;
    let past = NfsTime { seconds: 981_173_106, nseconds: 5 };
    let chosen: Change = |is| {
        let past = NfsTime { seconds: 981_173_106, nseconds: 5 };
        Says::attrs(AttrValues { time_deleg_modify: Some(past), ..is })
    };
    holder.says(&fh, &given, chosen).await;
    let before = looks(&mut holder.c, &fh).await;
    let mut rival = rig.client(b"rival").await;
    let seen = looks(&mut rival, &fh).await;
    assert!(seen.time_modify == Some(past) && seen.change > before.change);
    assert_eq!(looks(&mut rival, &fh).await, seen, "there is nothing more to set");
    holder.still_has(stateid).await;
    // Nobody is told a time that has not come.
    let future: Change = |is| {
        let future = NfsTime { seconds: 32_503_680_000, nseconds: 0 };
        Says::attrs(AttrValues { time_deleg_modify: Some(future), ..is })
    };
    holder.says(&fh, &given, future).await;
    let now = looks(&mut rival, &fh).await;
    assert!(
        now.time_modify > Some(past)
            && now.time_modify < Some(NfsTime { seconds: 32_503_680_000, nseconds: 0 })
    );
    holder.says(&fh, &given, chosen).await;
    assert_eq!(looks(&mut rival, &fh).await.time_modify, Some(past));
    // A power cut takes nothing of that back.
    rig.crash().await;
    let mut c = Client { raw: Raw { minor: 2, ..rig.raw().await }, ..holder.c };
    assert_eq!(looks(&mut c, &fh).await.time_modify, Some(past));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn c6_who_may_not_choose_a_files_times_does_not_choose_them_by_an_answer() {
    let rig = rig(Delegate::Times).await;
    let mut holder = Holder::new(&rig).await;
    let (res, fh) = open(&mut holder.c, "f", 2 | OPEN4_SHARE_ACCESS_WANT_NO_DELEG).await;
    let open_to_all = SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: mode(0o666) };
    assert_ok(&[on(&mut holder.c, &fh, ArgOp::Setattr(open_to_all)).await]);
    assert_ok(&[on(&mut holder.c, &fh, close_op(res.stateid)).await]);
    holder.c.raw.cred = user(1000);
    let (stateid, fh, given) = holder.delegated("f", TIMES).await;
    holder
        .says(&fh, &given, |is| {
            let past = NfsTime { seconds: 981_173_106, nseconds: 5 };
            Says::attrs(AttrValues { time_deleg_modify: Some(past), ..is })
        })
        .await;
    let is = looks(&mut holder.c, &fh).await;
    let mut rival = rig.client(b"rival").await;
    assert_eq!(looks(&mut rival, &fh).await, is);
    holder.still_has(stateid).await;
}

/// What others were told is at its holder alone; the change attribute shows that it is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_10_4_3_after_a_crash_of_the_server_nothing_goes_back_that_was_told() {
    let mut rig = rig_with_lease(Delegate::Write, 1).await;
    let mut holder = Holder::new(&rig).await;
    let (_, fh, given) = holder.delegated("f", 0).await;
    holder.says(&fh, &given, ahead).await;
    let mut rival = rig.client(b"rival").await;
    let told = looks(&mut rival, &fh).await;
    assert_eq!(told.size, Some(100));
    drop(holder);
    rig.crash().await;
    // The holder is gone for good, and its lease ends.
    let rival = Client { raw: Raw { minor: 2, ..rig.raw().await }, ..rival };
    let (_, res) = timeout(PATIENCE, looking(rival, &fh)).await.expect("in time").expect("no panic");
    let seen = values(res);
    assert_eq!(seen.size, Some(4));
    assert!(seen.change > told.change && seen.time_modify >= told.time_modify, "{seen:?} {told:?}");
    assert!(seen.time_metadata >= told.time_metadata);
}

/// Requests of NFSv4.0, and those that have changed something, do not wait: the delegation is recalled for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn who_cannot_wait_for_an_answer_has_the_delegation_recalled() {
    let rig = rig(Delegate::Write).await;
    let mut holder = Holder::new(&rig).await;
    let (stateid, fh, given) = holder.delegated("f", 0).await;
    holder.says(&fh, &given, as_here).await;
    let old = Raw { minor: 0, ..rig.raw().await };
    let ask = vec![ArgOp::Putfh(fh.clone()), ArgOp::Getattr(Bitmap::of(&[n::SIZE]))];
    assert_eq!(old.compound(ask.clone()).await.status, NfsStat::NFS4ERR_DELAY);
    assert_eq!(recalled(&mut holder.heard).await.stateid, stateid);
    assert_ok(&[on(&mut holder.c, &fh, ArgOp::DelegReturn(stateid)).await]);
    assert_eq!(old.compound(ask).await.status, NfsStat::NFS4_OK);
    let (stateid, fh, given) = holder.delegated("g", 0).await;
    holder.says(&fh, &given, as_here).await;
    let mut rival = rig.client(b"rival").await;
    let ops = vec![
        ArgOp::Putrootfh,
        mkdir("made"),
        ArgOp::Putfh(fh.clone()),
        ArgOp::Getattr(Bitmap::of(&[n::SIZE])),
    ];
    assert_eq!(rival.status(ops).await, NfsStat::NFS4ERR_DELAY);
    assert_eq!(recalled(&mut holder.heard).await.stateid, stateid);
    assert_eq!(holder.asked(), 0);
}

/// The server changes a file's times for what a holder has; not those that the holder has just set.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_time_that_the_holder_sets_before_it_answers_stays() {
    for wish in [0, TIMES] {
        let rig = rig(Delegate::Times).await;
        let mut holder = Holder::new(&rig).await;
        let (stateid, fh, given) = holder.delegated("f", wish).await;
        let is = looks(&mut holder.c, &fh).await;
        let sender = Client { raw: rig.raw().await, ..holder.c.clone() };
        let file = fh.clone();
        let past = NfsTime { seconds: 981_173_106, nseconds: 5 };
        *holder.says.lock().expect("no panic") = Box::new(move || {
            let time_modify_set = Some(SetTime::ClientTime(past));
            let attrs = fattr(AttrValues { time_modify_set, ..AttrValues::default() });
            let mut c = sender.clone();
            let set = on(&mut c, &file, ArgOp::Setattr(SetattrArgs { stateid, attrs }));
            let set = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(set));
            assert_eq!(set.status, NfsStat::NFS4_OK);
            Says::attrs(AttrValues {
                change: given.change.map(|c| c + 1),
                size: Some(100),
                time_deleg_access: is.time_access,
                time_deleg_modify: is.time_modify,
                ..AttrValues::default()
            })
        });
        let mut waits = looking(rig.client(b"rival").await, &fh);
        tokio::select! {
            recall = recalled(&mut holder.heard) => assert_eq!(recall.stateid, stateid),
            told = &mut waits => panic!("it was told {:?}", told.map(|(_, res)| res)),
        }
        // The request that the closure has sent.
        holder.c.seq += 1;
        assert_ok(&[on(&mut holder.c, &fh, ArgOp::DelegReturn(stateid)).await]);
        let (_, res) = timeout(PATIENCE, waits).await.expect("in time").expect("no panic");
        assert_eq!(values(res).time_modify, Some(past));
    }
}
