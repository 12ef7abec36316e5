//! A device that does not answer holds nobody who reads what is in memory: neither on another object nor, where the order of
//! operations allows it, on the one that is being changed. A program of its own: the device is held for the whole process.
#![cfg(debug_assertions)]

mod common;

use common::lockd::{Lockd, portmapper_port};
use common::v3::{self as c3, V3};
use common::{Client, PATIENCE, Raw, Rig, mkdir};
use landfast_nfs::nlm::NlmStat;
use landfast_nfs::v3::args::{LinkArgs, MkdirArgs};
use landfast_nfs::v3::types::StableHow as Stable3;
use landfast_nfs::v3::{self, Call, FileHandle, NfsStat3};
use landfast_nfs::v4::args::{LockArgs, Locker, LocktArgs, OpenHow, SetattrArgs, owner};
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::flags::OPEN4_RESULT_PRESERVE_UNLINKED;
use landfast_nfs::v4::{self, ArgOp, Bitmap, LockType, NfsStat, ResBody, ResOp, Stateid};
use landfast_rpc::limits::SERIAL_AFTER;
use landfast_volume::Durability;
use landfast_volume::faults::{Hold, hold, passes};
use std::pin::pin;
use std::process::Command;
use std::time::{Duration, Instant};

/// What is answered from memory takes no longer, on a busy machine, too.
const AT_ONCE: Duration = Duration::from_millis(50);
/// A machine may be busier than that for a moment; who waits for the device waits each time.
const TRIES: usize = 5;
/// Who waits for so long waits for the device.
const HELD: Duration = Duration::from_secs(3);
/// The device is held for the whole process.
static DEVICE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
/// More than the server has threads, and than it lets run at once.
const CHANGES: usize = 12;
/// So large a file is flushed to its place instead of being copied into the log.
const LARGE: usize = 3 << 19;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V3,
    V40,
    V41,
    V42,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Create,
    Write,
    CommitSmall,
    CommitLarge,
    Setattr,
    Remove,
    Rename,
    Link,
}

const OPS: [Op; 8] =
    [Op::Create, Op::Write, Op::CommitSmall, Op::CommitLarge, Op::Setattr, Op::Remove, Op::Rename, Op::Link];

/// A directory with a file `file`, that one call changes.
#[derive(Clone)]
struct Place {
    dir: FileHandle,
    file: FileHandle,
}

impl Place {
    async fn new(c: &V3, name: &str) -> Place {
        let dir = c.dir(name).await;
        let how = v3::args::CreateHow::Guarded(c3::mode(0o644));
        let file = c.make(c3::create(&dir, "file", how)).await.object.expect("a handle");
        c.write(&file, 0, b"in memory", Stable3::FileSync).await;
        Place { dir, file }
    }

    /// What comes before the call: data for a COMMIT.
    async fn prepare(&self, c: &V3, op: Op) {
        let bytes = match op {
            Op::CommitSmall => 100,
            Op::CommitLarge => LARGE,
            _ => return,
        };
        for at in (0..bytes).step_by(1 << 19) {
            let data = vec![7; (bytes - at).min(1 << 19)];
            c.write(&self.file, at as u64, &data, Stable3::Unstable).await;
        }
    }

    fn call3(&self, op: Op) -> Call {
        match op {
            Op::Create => Call::Mkdir(MkdirArgs { at: c3::at(&self.dir, "new"), attrs: c3::mode(0o755) }),
            Op::Write => c3::write(&self.file, 0, b"on the disk", Stable3::FileSync),
            Op::CommitSmall | Op::CommitLarge => {
                Call::Commit(v3::args::CommitArgs { file: self.file.clone(), offset: 0, count: 0 })
            }
            Op::Setattr => c3::setattr(&self.file, c3::mode(0o600)),
            Op::Remove => Call::Remove(c3::at(&self.dir, "file")),
            Op::Rename => {
                let (from, to) = (c3::at(&self.dir, "file"), c3::at(&self.dir, "other"));
                Call::Rename(v3::args::RenameArgs { from, to })
            }
            Op::Link => {
                let link = c3::at(&self.dir, "second");
                Call::Link(LinkArgs { file: self.file.clone(), link })
            }
        }
    }

    fn ops4(&self, op: Op) -> Vec<ArgOp> {
        let at = |fh: &FileHandle| ArgOp::Putfh(v4::FileHandle(fh.0.clone()));
        let (dir, file, name) = (at(&self.dir), at(&self.file), common::name);
        match op {
            Op::Create => vec![dir, mkdir("new")],
            Op::Write => vec![file, common::write_op(Stateid::ANONYMOUS, 0, b"on the disk")],
            Op::CommitSmall | Op::CommitLarge => {
                vec![file, ArgOp::Commit(v4::args::CommitArgs { offset: 0, count: 0 })]
            }
            Op::Setattr => {
                let attrs = common::mode(0o600);
                vec![file, ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs })]
            }
            Op::Remove => vec![dir, ArgOp::Remove(name("file"))],
            Op::Rename => {
                let rename = v4::args::RenameArgs { oldname: name("file"), newname: name("other") };
                vec![dir, ArgOp::Savefh, ArgOp::Rename(rename)]
            }
            Op::Link => vec![file, ArgOp::Savefh, dir, ArgOp::Link(name("second"))],
        }
    }
}

/// A client on a connection of its own.
#[derive(Clone)]
enum Speaker {
    V3(V3),
    V40(Raw),
    V4(Box<Client>),
}

impl Speaker {
    async fn new(rig: &Rig, version: Version, name: &str) -> Speaker {
        let raw = rig.raw().await;
        match version {
            Version::V3 => Speaker::V3(V3::new(rig).await),
            Version::V40 => Speaker::V40(Raw { minor: 0, ..raw }),
            Version::V41 => Speaker::V4(Client::new(Raw { minor: 1, ..raw }, name.as_bytes()).await.into()),
            Version::V42 => Speaker::V4(Client::new(Raw { minor: 2, ..raw }, name.as_bytes()).await.into()),
        }
    }

    async fn ops(&mut self, ops: Vec<ArgOp>) {
        match self {
            Speaker::V3(_) => unreachable!("it has calls"),
            Speaker::V40(raw) => assert_eq!(raw.compound(ops).await.status, NfsStat::NFS4_OK),
            Speaker::V4(c) => assert_eq!(c.status(ops).await, NfsStat::NFS4_OK),
        }
    }

    async fn change(&mut self, place: &Place, op: Op) {
        match self {
            Speaker::V3(c) => assert_eq!(c.status(place.call3(op)).await, NfsStat3::OK, "{op:?}"),
            _ => self.ops(place.ops4(op)).await,
        }
    }

    async fn getattr(&mut self, fh: &FileHandle) {
        match self {
            Speaker::V3(c) => assert_eq!(c.status(Call::Getattr(fh.clone())).await, NfsStat3::OK),
            _ => {
                let wanted = Bitmap::of(&[n::TYPE, n::SIZE, n::CHANGE]);
                self.ops(vec![ArgOp::Putfh(v4::FileHandle(fh.0.clone())), ArgOp::Getattr(wanted)]).await;
            }
        }
    }

    async fn lookup(&mut self, dir: &FileHandle, name: &str) {
        match self {
            Speaker::V3(c) => drop(c.lookup(dir, name).await),
            _ => {
                let lookup = ArgOp::Lookup(common::name(name));
                self.ops(vec![ArgOp::Putfh(v4::FileHandle(dir.0.clone())), lookup]).await;
            }
        }
    }

    async fn read(&mut self, file: &FileHandle) {
        match self {
            Speaker::V3(c) => drop(c.read(file, 0, 9).await),
            _ => {
                let read = common::read_op(Stateid::ANONYMOUS, 0, 9);
                self.ops(vec![ArgOp::Putfh(v4::FileHandle(file.0.clone())), read]).await;
            }
        }
    }
}

/// Does what takes no time, several times at most; the time of the quickest.
macro_rules! at_once {
    ($what:expr, $work:expr) => {{
        let mut quickest = Duration::MAX;
        for _ in 0..TRIES {
            let begun = Instant::now();
            let done = tokio::time::timeout(HELD, $work).await;
            assert!(done.is_ok(), "{} waits for the device", $what);
            quickest = quickest.min(begun.elapsed());
            if quickest <= AT_ONCE {
                break;
            }
        }
        assert!(quickest <= AT_ONCE, "{} took {quickest:?} at the least", $what);
        quickest
    }};
}

/// Reads `place`, of which `op` is under way, and `other`, of which nothing is.
async fn read_all(c: &mut Speaker, what: &str, op: Op, place: &Place, other: &Place) -> Duration {
    let mut longest = Duration::ZERO;
    let objects = [("another", other), ("the same", place)];
    for (which, at) in objects {
        let same = which == "the same";
        for (kind, fh) in [("directory", &at.dir), ("file", &at.file)] {
            // A file that has lost its last name is stale.
            if same && op == Op::Remove && kind == "file" {
                continue;
            }
            let what = format!("{what}: GETATTR of {which} {kind}");
            longest = longest.max(at_once!(what, c.getattr(fh)));
        }
        if !(same && op == Op::Remove) {
            let name = if same && op == Op::Rename { "other" } else { "file" };
            longest = longest.max(at_once!(format!("{what}: LOOKUP in {which}"), c.lookup(&at.dir, name)));
            longest = longest.max(at_once!(format!("{what}: READ of {which}"), c.read(&at.file)));
        }
    }
    longest
}

fn led(rig: &Rig) -> u64 {
    rig.server().volumes()[0].stats().log.map_or(0, |log| log.led)
}

/// Each operation waits for a device that does not answer, in each version; another client reads meanwhile.
async fn reads_wait_for_no_device(durability: Durability, versions: &[Version]) {
    let log = tempfile::Builder::new().prefix("landfast-log-").tempdir_in("/dev/shm").expect("a directory");
    let dir = tempfile::Builder::new().prefix("landfast-held-").tempdir_in("/var/tmp").expect("a directory");
    std::fs::create_dir(dir.path().join("data")).expect("the export");
    // A log in memory is quick enough for requests to flush it themselves.
    let rig = Rig::at(dir, durability, 90, Some(log.path().join("log"))).await;
    let c = V3::new(&rig).await;
    let other = Place::new(&c, "other").await;
    let mut longest = (Duration::ZERO, String::new());
    let mut leads = 0;
    for &version in versions {
        let mut writer = Speaker::new(&rig, version, &format!("writer {version:?}")).await;
        let mut reader = Speaker::new(&rig, version, &format!("reader {version:?}")).await;
        for op in OPS {
            let what = format!("{durability:?}, {version:?}, {op:?} under way");
            let place = Place::new(&c, &format!("{version:?} {op:?}")).await;
            place.prepare(&c, op).await;
            reader.lookup(&place.dir, "file").await;
            reader.read(&place.file).await;
            // The company of the preparations is forgotten, as after a while: this one is alone.
            for _ in 0..10 {
                writer.change(&other, Op::Setattr).await;
            }
            let point = match (durability, op) {
                (Durability::Log, Op::CommitLarge) | (Durability::Sync, _) => "volume.flushing",
                _ => "log.before-write",
            };
            let before = led(&rig);
            let held: Hold = hold(point);
            let (mut changing, changed) = (writer.clone(), place.clone());
            let change = tokio::spawn(async move {
                changing.change(&changed, op).await;
                changing
            });
            let reached = tokio::task::block_in_place(|| held.has(1, PATIENCE));
            assert!(reached, "{what}: it flushes");
            let took = read_all(&mut reader, &what, op, &place, &other).await;
            if took > longest.0 {
                longest = (took, what.clone());
            }
            assert!(!change.is_finished(), "{what}: it waits for the device");
            tokio::task::block_in_place(|| drop(held));
            writer = change.await.expect("the change is answered");
            leads += led(&rig) - before;
        }
    }
    println!("the longest of all: {:?} ({})", longest.0, longest.1);
    if durability == Durability::Log {
        assert!(leads >= versions.len() as u64, "requests flushed the log themselves: {leads}");
    }
    rig.running.expect("a server").stop().await.expect("a clean stop");
}

const ALL: [Version; 4] = [Version::V3, Version::V40, Version::V41, Version::V42];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn reads_wait_for_no_log_and_no_disk() {
    let _device = DEVICE.lock().await;
    reads_wait_for_no_device(Durability::Log, &ALL).await;
    reads_wait_for_no_device(Durability::Sync, &ALL).await;
    what_comes_behind_a_lone_clients_change_waits_for_no_log().await;
    reads_wait_for_no_change().await;
    retries_are_run_again_for_their_own_request().await;
}

/// Sends a COMPOUND on a slot of its own, while the device is held, and sees it run: it is not answered before the device answers.
async fn waits_for_the_device(held: Hold, c: &Client, slot: u32, ops: Vec<ArgOp>, what: &str) -> Vec<ResOp> {
    let ArgOp::Sequence(mut args) = c.sequence() else { panic!("no SEQUENCE") };
    (args.slotid, args.highest_slotid, args.sequenceid) = (slot, slot, 1);
    let mut all = vec![ArgOp::Sequence(args)];
    all.extend(ops);
    let before = passes("request.ran");
    let mut answer = pin!(c.raw.compound(all));
    // Answers that wait for nothing leave in the order of their requests.
    let behind = async {
        let begun = Instant::now();
        while passes("request.ran") == before {
            assert!(begun.elapsed() < PATIENCE, "{what}: it does not run");
            tokio::task::yield_now().await;
        }
        c.status_flags_on(slot + 1).await
    };
    tokio::select! {
        biased;
        res = &mut answer => panic!("{what}: it is answered before the device answers: {res:?}"),
        _ = behind => {}
    }
    tokio::task::block_in_place(|| drop(held));
    let mut res = answer.await.results;
    common::assert_ok(&res);
    res.split_off(1)
}

/// The second OPEN of one owner is told what the first is being told: that the file outlasts its last name. It says so by the first's note.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_answer_waits_for_the_promise_that_it_repeats() {
    let _device = DEVICE.lock().await;
    let rig = Rig::new().await;
    let mut client = Client::new(rig.raw().await, b"opens twice").await;
    let open = |file, how| vec![ArgOp::Putrootfh, common::open_op(b"o", file, 3, 0, how)];
    let make = |file| open(file, OpenHow::Create(v4::args::CreateHow::Guarded(common::mode(0o644))));
    let flag = |res: &[ResOp]| match res.last().map(|res| &res.body) {
        Some(ResBody::Open(open)) => open.rflags & OPEN4_RESULT_PRESERVE_UNLINKED != 0,
        other => panic!("OPEN gave {other:?}"),
    };
    let (fh, there) = client.open("there", 3).await;
    common::assert_ok(&[common::on(&mut client, &fh, common::close_op(there)).await]);
    // The first makes the file, or another one.
    let beside = [make("other"), open("there", OpenHow::NoCreate)].concat();
    for (slot, file, ops) in [(1, "new", make("new")), (3, "there", beside)] {
        let held = hold("log.before-write");
        let mut first = client.clone();
        let first = tokio::spawn(async move {
            let res = first.run(ops).await;
            (first, res)
        });
        assert!(tokio::task::block_in_place(|| held.has(1, PATIENCE)), "the first waits for the device");
        let again = open(file, OpenHow::NoCreate);
        let second = waits_for_the_device(held, &client, slot, again, "the second OPEN").await;
        let (goes_on, first) = first.await.expect("an answer");
        assert!(flag(&second) && flag(&first), "both are told");
        client = goes_on;
    }
}

/// A client whose lease is over holds a lock. One rival makes it go; another finds nobody in the way, which holds after a crash as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_answer_waits_until_the_log_knows_who_is_gone() {
    let _device = DEVICE.lock().await;
    let rig = Rig::with(Durability::Log, 1).await;
    let mut holder = Client::new(rig.raw().await, b"holder").await;
    let (fh, open) = holder.open("f", 3).await;
    let lock = ArgOp::Lock(LockArgs {
        locktype: LockType::Write,
        reclaim: false,
        offset: 0,
        length: 10,
        locker: Locker::New { open_seqid: 0, open_stateid: open, lock_seqid: 0, lock_owner: owner(0, b"l") },
    });
    common::assert_ok(&[common::on(&mut holder, &fh, lock).await]);
    let mut rivals = Vec::new();
    for name in [b"first", b"other"] {
        rivals.push(Client::new(rig.raw().await, name).await);
    }
    let silent = Instant::now();
    while silent.elapsed() < Duration::from_millis(1500) {
        for rival in &mut rivals {
            rival.status_flags().await;
        }
    }
    let ask = |fh: &v4::FileHandle| {
        let ask = LocktArgs { locktype: LockType::Write, offset: 0, length: 10, owner: owner(0, b"r") };
        vec![ArgOp::Putfh(fh.clone()), ArgOp::Lockt(ask)]
    };
    let held = hold("log.before-write");
    let (mut first, ops) = (rivals[0].clone(), ask(&fh));
    let first = tokio::spawn(async move { first.run(ops).await });
    assert!(tokio::task::block_in_place(|| held.has(1, PATIENCE)), "the first waits for the device");
    waits_for_the_device(held, &rivals[1], 1, ask(&fh), "the other's LOCKT").await;
    common::assert_ok(&first.await.expect("an answer"));
}

/// The host restarts while its LOCK waits for the log: it holds nothing, so it is not told that it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_lock_that_was_freed_while_the_log_was_waited_for_is_not_granted() {
    let _device = DEVICE.lock().await;
    let mut rig = Rig::new().await;
    rig.portmapper = portmapper_port().await;
    rig.restart().await;
    let file = V3::new(&rig).await.file("f").await;
    let mut a = Lockd::new(&rig, "a", 2).await;
    let mut monitor = a.other_caller().await;
    let bytes = a.bytes(&v4::FileHandle(file.0.clone()), 1, 0, 0);
    let locks = async |number| {
        let reached = tokio::time::timeout(PATIENCE, async {
            while rig.server().stats().locks != number {
                tokio::task::yield_now().await;
            }
        });
        reached.await.unwrap_or_else(|_| panic!("there are {number} locks"));
    };
    let held = hold("log.before-write");
    let asked = tokio::spawn(async move { a.lock(bytes, true).await });
    locks(1).await;
    let told = tokio::spawn(async move { monitor.sm_notify("a", 5).await });
    locks(0).await;
    tokio::task::block_in_place(|| drop(held));
    assert_eq!(asked.await.expect("answered"), NlmStat::DENIED_GRACE_PERIOD, "it asks again");
    told.await.expect("answered");
    rig.running.expect("a server").stop().await.expect("a clean stop");
}

/// A client that has the server to itself, so that the thread of its connection waits for the device. What it asks meanwhile on the same connection
/// is answered: what other programs of its machine do, and what renews its lease.
async fn what_comes_behind_a_lone_clients_change_waits_for_no_log() {
    let rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let (place, other) = (Place::new(&c, "changed").await, Place::new(&c, "other").await);
    for version in ALL {
        let mut lone = Speaker::new(&rig, version, &format!("lone {version:?}")).await;
        for _ in 0..2 * SERIAL_AFTER {
            lone.change(&other, Op::Setattr).await;
        }
        let held = hold("log.before-write");
        let (mut changing, changed) = (lone.clone(), place.clone());
        let change = tokio::spawn(async move { changing.change(&changed, Op::Setattr).await });
        assert!(tokio::task::block_in_place(|| held.has(1, PATIENCE)), "{version:?}: it flushes");
        let behind = async {
            match &mut lone {
                Speaker::V4(client) => drop(client.status_flags_on(1).await),
                older => older.getattr(&other.file).await,
            }
        };
        let answered = tokio::time::timeout(HELD, behind).await;
        assert!(answered.is_ok(), "{version:?}: what comes behind waits for the device");
        assert!(!change.is_finished(), "{version:?}: it waits for the device");
        tokio::task::block_in_place(|| drop(held));
        change.await.expect("the change is answered");
    }
    rig.running.expect("a server").stop().await.expect("a clean stop");
}

/// Retries of one request that waits for the device: they get its one reply, and are not looked at again each time when somebody else is
/// answered.
async fn retries_are_run_again_for_their_own_request() {
    const RETRIES: u64 = 40;
    const ANSWERS: u64 = 50;
    let rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let (place, other) = (Place::new(&c, "held").await, Place::new(&c, "other").await);
    let raw = rig.raw().await;
    let client = Client::new(raw.clone(), b"repeats").await;
    let mut ops = place.ops4(Op::Create);
    let ArgOp::Sequence(mut args) = client.sequence() else { panic!("no SEQUENCE") };
    (args.slotid, args.highest_slotid, args.sequenceid) = (1, 1, 1);
    ops.insert(0, ArgOp::Sequence(args));
    let body = raw.encode(ops);
    let sequences = || rig.server().stats().op(v4::OpNum::SEQUENCE);
    let held = hold("log.before-write");
    let mut calls = tokio::task::JoinSet::new();
    let mut call = || {
        let (raw, body) = (raw.clone(), body.clone());
        calls.spawn(async move { raw.call(v4::PROC_COMPOUND, body).await });
    };
    call();
    let reached = tokio::task::block_in_place(|| held.has(1, PATIENCE));
    assert!(reached, "the request waits for the device");
    let before = sequences();
    (0..RETRIES).for_each(|_| call());
    let begun = Instant::now();
    while sequences() < before + RETRIES {
        assert!(begun.elapsed() < PATIENCE, "{} of {RETRIES} retries were looked at", sequences() - before);
        tokio::task::yield_now().await;
    }
    for _ in 0..ANSWERS {
        c.read(&other.file, 0, 9).await;
    }
    let again = sequences() - before;
    assert!(
        again <= 2 * RETRIES,
        "{RETRIES} retries were run {again} times while {ANSWERS} others were answered"
    );
    tokio::task::block_in_place(|| drop(held));
    let replies = calls.join_all().await;
    let first = replies[0].as_ref().expect("a reply");
    assert!(replies.iter().all(|reply| reply.as_ref().ok() == Some(first)), "one reply for all");
    assert_eq!(replies.len() as u64, 1 + RETRIES);
}

/// More changes than the server has threads wait within the filesystem, as they do while its journal is written; all of
/// them come at once.
async fn reads_wait_for_no_change() {
    let rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let other = Place::new(&c, "other").await;
    let mut places = Vec::new();
    for i in 0..CHANGES {
        places.push((Place::new(&c, &format!("d{i}")).await, V3::new(&rig).await));
    }
    let mut reader = Speaker::new(&rig, Version::V3, "reader").await;
    reader.read(&other.file).await;
    let held = hold("op.applied");
    let changes: Vec<_> = places
        .into_iter()
        .map(|(place, c)| tokio::spawn(async move { c.status(place.call3(Op::Setattr)).await }))
        .collect();
    let reached = tokio::task::block_in_place(|| held.has(CHANGES, PATIENCE));
    assert!(reached, "all changes are under way");
    let calls = [("GETATTR", 0), ("LOOKUP", 1), ("READ", 2)];
    for (what, which) in calls {
        at_once!(format!("{CHANGES} changes are under way: {what}"), async {
            match which {
                0 => reader.getattr(&other.file).await,
                1 => reader.lookup(&other.dir, "file").await,
                _ => reader.read(&other.file).await,
            }
        });
    }
    tokio::task::block_in_place(|| drop(held));
    for change in changes {
        assert_eq!(change.await.expect("answered"), NfsStat3::OK);
    }
    rig.running.expect("a server").stop().await.expect("a clean stop");
}

/// What the test above needs to be worth anything: a server whose threads wait for the device fails it.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_thread_that_waits_for_the_device_is_seen() {
    let this = std::env::current_exe().expect("this program");
    let test = ["--exact", "reads_wait_for_no_log_and_no_disk"];
    let run = Command::new(this).args(test).env("LANDFAST_BUG", "flush-in-place").output().expect("it runs");
    let told = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    // Or the first ones keep all threads, and the others are not even begun.
    let seen = told.contains("waits for the device") || told.contains("all changes are under way");
    assert!(!run.status.success() && seen, "{told}");
}
