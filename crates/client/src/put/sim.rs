//! The plan against a server that exists only here: any archive, any limits, any trouble gives the tree
//! that extraction one by one gives, each member is accounted for, and no compound is over its limits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use landfast_nfs::v4::args::{CreateHow, CreateType, OpenClaim, OpenHow};
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::res::{CreateRes, OpenDelegation, OpenRes, WriteRes};
use landfast_nfs::v4::{
    ArgOp, ChangeInfo, CompoundRes, Fattr, FileHandle, FileType, NfsStat, NfsTime, OpNum, ResBody, ResOp,
    StableHow, Stateid,
};
use landfast_xdr::{Encode, Reader};
use proptest::prelude::*;

use super::attrs::MemberAttrs;
use super::existing::Existing;
use super::pack::{Batch, Capacity};
use super::plan::{Job, Leftover, Make, Plan, SlowDone, SlowTask};
use super::replies::Feedback;
use super::report::Cause;
use super::tree::{ItemId, Tree};
use crate::cost::{REPLY_HEAD, REQUEST_HEAD};
use crate::limits::{BACKOFF_MAX, DELAY_PATIENCE, DIRS_FOR_A_MEMBER};
use crate::ops::Entry;
use crate::overflow::{Records, Table, TempFile};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Object {
    Dir(BTreeMap<Bytes, u64>),
    File(Vec<u8>),
    Link(Bytes),
}

/// A filesystem of directories, files and symbolic links, with hard links.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Model {
    objects: BTreeMap<u64, Object>,
    next: u64,
    /// Directories that got attributes and were not changed since.
    finished: BTreeSet<u64>,
}

const ROOT: u64 = 0;

impl Model {
    fn new() -> Model {
        let objects = BTreeMap::from([(ROOT, Object::Dir(BTreeMap::new()))]);
        Model { objects, next: 1, finished: BTreeSet::new() }
    }

    fn dir(&mut self, id: u64) -> Result<&mut BTreeMap<Bytes, u64>, NfsStat> {
        match self.objects.get_mut(&id) {
            Some(Object::Dir(names)) => Ok(names),
            Some(Object::Link(_)) => Err(NfsStat::NFS4ERR_SYMLINK),
            Some(_) => Err(NfsStat::NFS4ERR_NOTDIR),
            None => Err(NfsStat::NFS4ERR_STALE),
        }
    }

    fn lookup(&mut self, dir: u64, name: &Bytes) -> Result<u64, NfsStat> {
        self.dir(dir)?.get(name).copied().ok_or(NfsStat::NFS4ERR_NOENT)
    }

    fn make(&mut self, dir: u64, name: &Bytes, object: Object) -> Result<u64, NfsStat> {
        let id = self.next;
        if self.dir(dir)?.contains_key(name) {
            return Err(NfsStat::NFS4ERR_EXIST);
        }
        self.put(dir, name, id)?;
        self.objects.insert(id, object);
        self.next += 1;
        Ok(id)
    }

    fn put(&mut self, dir: u64, name: &Bytes, id: u64) -> Result<(), NfsStat> {
        self.dir(dir)?.insert(name.clone(), id);
        self.finished.remove(&dir);
        Ok(())
    }

    fn remove(&mut self, dir: u64, name: &Bytes) -> Result<(), NfsStat> {
        let id = self.lookup(dir, name)?;
        if matches!(self.objects.get(&id), Some(Object::Dir(names)) if !names.is_empty()) {
            return Err(NfsStat::NFS4ERR_NOTEMPTY);
        }
        self.dir(dir)?.remove(name);
        self.finished.remove(&dir);
        Ok(())
    }

    /// Paths and what they hold; hard links show as equal object numbers, counted in order of appearance.
    fn tree(&self) -> BTreeMap<String, (String, usize)> {
        let (mut out, mut ids, mut stack) = (BTreeMap::new(), Vec::new(), vec![(String::new(), ROOT)]);
        while let Some((path, id)) = stack.pop() {
            let what = match &self.objects[&id] {
                Object::Dir(names) => {
                    for (name, id) in names.iter().rev() {
                        stack.push((format!("{path}/{}", name.escape_ascii()), *id));
                    }
                    "dir".to_owned()
                }
                Object::File(data) => format!("file {data:?}"),
                Object::Link(text) => format!("link {text:?}"),
            };
            let known = ids.iter().position(|i| *i == id);
            let number = known.unwrap_or_else(|| {
                ids.push(id);
                ids.len() - 1
            });
            out.insert(path, (what, number));
        }
        out
    }

    /// Executes a compound's operations as RFC 8881 has them, stopping before operation `stop` with a
    /// status.
    fn execute(&mut self, ops: &[ArgOp], stop: Option<(usize, NfsStat)>) -> CompoundRes {
        let (mut current, mut saved, mut results) = (None, None, Vec::new());
        let mut status = NfsStat::NFS4_OK;
        for (i, op) in ops.iter().enumerate() {
            let result = match stop {
                Some((at, status)) if at == i => Err(status),
                _ => self.one(op, &mut current, &mut saved),
            };
            match result {
                Ok(body) => results.push(ResOp::ok(op.op(), body)),
                Err(s) => {
                    status = s;
                    results.push(ResOp::failed(op.op(), s));
                    break;
                }
            }
        }
        CompoundRes { status, tag: Bytes::new(), results }
    }

    fn one(
        &mut self,
        op: &ArgOp,
        current: &mut Option<u64>,
        saved: &mut Option<u64>,
    ) -> Result<ResBody, NfsStat> {
        let here = current.ok_or(NfsStat::NFS4ERR_NOFILEHANDLE);
        let cinfo = ChangeInfo::default();
        Ok(match op {
            ArgOp::Putfh(fh) => {
                *current = Some(number(fh));
                ResBody::Empty
            }
            ArgOp::Savefh => {
                *saved = Some(here?);
                ResBody::Empty
            }
            ArgOp::Restorefh => {
                *current = Some(saved.ok_or(NfsStat::NFS4ERR_RESTOREFH)?);
                ResBody::Empty
            }
            ArgOp::Lookup(name) => {
                *current = Some(self.lookup(here?, name)?);
                ResBody::Empty
            }
            ArgOp::Nverify(_) => match self.objects.get(&here?) {
                Some(Object::Dir(_)) => return Err(NfsStat::NFS4ERR_SAME),
                _ => ResBody::Empty,
            },
            ArgOp::Getfh => ResBody::Getfh(handle(here?)),
            ArgOp::Remove(name) => {
                self.remove(here?, name)?;
                ResBody::Remove(cinfo)
            }
            ArgOp::Create(args) => {
                let object = match &args.kind {
                    CreateType::Dir => Object::Dir(BTreeMap::new()),
                    CreateType::Lnk(text) => Object::Link(text.clone()),
                    _ => return Err(NfsStat::NFS4ERR_BADTYPE),
                };
                *current = Some(self.make(here?, &args.name, object)?);
                ResBody::Create(CreateRes { cinfo, attrset: args.attrs.mask })
            }
            ArgOp::Open(args) => {
                let (OpenHow::Create(CreateHow::Guarded(attrs)), OpenClaim::Null(name)) =
                    (&args.openhow, &args.claim)
                else {
                    return Err(NfsStat::NFS4ERR_NOTSUPP);
                };
                *current = Some(self.make(here?, name, Object::File(Vec::new()))?);
                ResBody::Open(OpenRes {
                    stateid: Stateid { seqid: 1, other: [7; 12] },
                    cinfo,
                    rflags: 0,
                    attrset: attrs.mask,
                    delegation: OpenDelegation::None,
                })
            }
            ArgOp::Write(args) => match self.objects.get_mut(&here?) {
                Some(Object::File(data)) => {
                    assert_eq!((args.offset, args.stateid), (0, Stateid::CURRENT));
                    *data = args.data.to_vec();
                    let count = args.data.len() as u32;
                    ResBody::Write(WriteRes { count, committed: StableHow::FileSync, writeverf: [0; 8] })
                }
                _ => return Err(NfsStat::NFS4ERR_INVAL),
            },
            ArgOp::Setattr(args) => {
                if self.dir(here?).is_ok() {
                    self.finished.insert(here?);
                }
                ResBody::Setattr(args.attrs.mask)
            }
            ArgOp::Close(_) => ResBody::Close(Stateid::INVALID),
            ArgOp::Link(name) => {
                let target = saved.ok_or(NfsStat::NFS4ERR_NOFILEHANDLE)?;
                if matches!(self.objects.get(&target), Some(Object::Dir(_))) {
                    return Err(NfsStat::NFS4ERR_ISDIR);
                }
                if self.dir(here?)?.contains_key(name) {
                    return Err(NfsStat::NFS4ERR_EXIST);
                }
                self.put(here?, name, target)?;
                ResBody::Link(cinfo)
            }
            _ => return Err(NfsStat::NFS4ERR_NOTSUPP),
        })
    }
}

fn handle(id: u64) -> FileHandle {
    FileHandle(id.to_bytes())
}

fn number(fh: &FileHandle) -> u64 {
    Reader::new(fh.0.clone()).u64().unwrap()
}

/// A member of an archive.
#[derive(Debug, Clone)]
enum Thing {
    Dir,
    File(Vec<u8>),
    Symlink,
    HardLink(Vec<Bytes>),
}

/// Where a path leads when only real directories are passed, made on the way when `make`.
fn parent(model: &mut Model, path: &[Bytes], make: bool) -> Option<u64> {
    let mut at = ROOT;
    for name in path {
        at = match model.lookup(at, name) {
            Ok(id) => id,
            Err(NfsStat::NFS4ERR_NOENT) if make => model.make(at, name, Object::Dir(BTreeMap::new())).ok()?,
            Err(_) => return None,
        };
        model.dir(at).ok()?;
    }
    Some(at)
}

/// Extraction one by one: what the plan has to come out as.
fn reference(model: &mut Model, path: &[Bytes], thing: &Thing, keep: bool) -> bool {
    let Some((name, parents)) = path.split_last() else { return matches!(thing, Thing::Dir) };
    let Some(dir) = parent(model, parents, true) else { return false };
    let there = model.lookup(dir, name).ok();
    let is_dir = there.is_some_and(|id| model.dir(id).is_ok());
    match thing {
        Thing::Dir if is_dir => return true,
        _ if is_dir => return false,
        _ if there.is_some() && keep => return false,
        _ => {}
    }
    let target = match thing {
        Thing::HardLink(target) => {
            let Some((to, parents)) = target.split_last() else { return false };
            let Some(to) = parent(model, parents, false).and_then(|d| model.lookup(d, to).ok()) else {
                return false;
            };
            if model.dir(to).is_ok() {
                return false;
            }
            Some(to)
        }
        _ => None,
    };
    if there.is_some() {
        model.remove(dir, name).unwrap();
    }
    match thing {
        Thing::Dir => drop(model.make(dir, name, Object::Dir(BTreeMap::new()))),
        Thing::File(data) => drop(model.make(dir, name, Object::File(data.clone()))),
        Thing::Symlink => drop(model.make(dir, name, Object::Link(Bytes::from_static(b"/etc")))),
        Thing::HardLink(_) => drop(model.put(dir, name, target.unwrap_or(ROOT))),
    }
    true
}

fn target(model: &mut Model, task: &SlowTask<usize>) -> Result<u64, NfsStat> {
    let (dir, names) = task.target.as_ref().unwrap();
    names.iter().try_fold(number(dir), |at, name| model.lookup(at, name))
}

/// What `stepwise` does, on the model.
fn carefully(model: &mut Model, task: &SlowTask<usize>, keep: bool) -> SlowDone {
    if let Leftover::Incomplete(..) = task.leftover {
        return SlowDone::Done;
    }
    let dir = number(&task.dir);
    let there = model.lookup(dir, &task.name).ok();
    if let (Make::Dir, Some(id)) = (&task.job.make, there)
        && model.dir(id).is_ok()
    {
        return SlowDone::Dir(handle(id), true);
    }
    if there.is_some_and(|id| model.dir(id).is_ok()) {
        return SlowDone::Failed("a directory is in the way".into());
    }
    if task.target.is_some() && !target(model, task).is_ok_and(|id| model.dir(id).is_err()) {
        return SlowDone::Failed("no such file".into());
    }
    if there.is_some() {
        if (keep || task.implied) && !task.replace {
            return SlowDone::InTheWay;
        }
        model.remove(dir, &task.name).unwrap();
    }
    let made = match &task.job.make {
        Make::Dir => {
            let id = model.make(dir, &task.name, Object::Dir(BTreeMap::new())).unwrap();
            return SlowDone::Dir(handle(id), false);
        }
        Make::File(data) => model.make(dir, &task.name, Object::File(data.to_vec())),
        Make::Other(_) => model.make(dir, &task.name, Object::Link(Bytes::from_static(b"/etc"))),
        Make::Link(_) => {
            let target = target(model, task);
            target.and_then(|id| model.put(dir, &task.name, id).map(|()| id))
        }
        Make::Pieces(_) | Make::Copy(_) => unreachable!("not made here"),
    };
    made.map_or_else(|e| SlowDone::Failed(e.to_string().into()), |_| SlowDone::Done)
}

fn decode(batch: &Batch) -> Vec<ArgOp> {
    let mut r = Reader::new(batch.body.clone());
    let ops: Vec<ArgOp> = (0..batch.ops).map(|_| ArgOp::decode_lenient(&mut r).unwrap()).collect();
    assert_eq!(r.remaining(), 0);
    let last = batch.finished.iter().map(|f| f.1).sum::<usize>();
    assert_eq!(batch.members.iter().map(|m| m.1).sum::<usize>() + last, batch.ops);
    ops
}

#[derive(Debug, Clone, Copy)]
enum Trouble {
    None,
    /// DELAY at an operation.
    Delay(usize),
    /// An error that nobody foresees.
    Odd(usize),
    /// The reply is lost; executed or not.
    Lost(bool),
    TooMany,
}

#[derive(Debug, Clone)]
struct Case {
    before: Vec<(Vec<Bytes>, Thing)>,
    archive: Vec<(Vec<Bytes>, Thing)>,
    capacity: Capacity,
    troubles: Vec<Trouble>,
    /// Which of the compounds under way is answered next.
    order: Vec<usize>,
    window: usize,
    keep: bool,
    list_max: usize,
    /// How many names and directories are remembered in memory.
    in_memory: (usize, usize),
}

/// A member as it is named.
fn job(path: Vec<Bytes>, make: Make, attrs: MemberAttrs, payload: usize) -> Job<usize> {
    Job {
        shown: path.join(&b'/'),
        path,
        make,
        attrs,
        modified: NfsTime::default(),
        ours: false,
        agreed: false,
        sent: None,
        payload,
    }
}

fn run(case: &Case) {
    let mut model = Model::new();
    for (path, thing) in &case.before {
        reference(&mut model, path, thing, false);
    }
    let mut expected = model.clone();
    let wanted: Vec<bool> =
        case.archive.iter().map(|(p, t)| reference(&mut expected, p, t, case.keep)).collect();
    let existing = if case.keep { Existing::Keep } else { Existing::Replace };
    let (keys, dirs) = case.in_memory;
    let tree = Tree::new(
        handle(ROOT),
        dirs,
        Table::new(keys, TempFile::unbuffered()),
        Records::new(TempFile::unbuffered()),
    );
    let mut plan = Plan::new(tree, existing, Fattr::default(), case.capacity);
    let mut todo = case.archive.iter().enumerate();
    let mut flying: Vec<Batch> = Vec::new();
    let mut got: BTreeMap<usize, bool> = BTreeMap::new();
    let (mut troubles, mut order) = (case.troubles.iter(), case.order.iter().cycle());
    for _ in 0..100_000 {
        if let Some((i, (path, thing))) = todo.next() {
            let make = match thing {
                Thing::Dir => Make::Dir,
                Thing::File(data) => Make::File(data.clone().into()),
                Thing::Symlink => Make::Other(CreateType::Lnk(Bytes::from_static(b"/etc"))),
                Thing::HardLink(target) => Make::Link(target.clone()),
            };
            let mode = AttrValues { mode: Some(0o644), ..AttrValues::default() };
            let create = mode.to_fattr(&AttrValues::KNOWN);
            let finish = AttrValues { mode: Some(0o755), ..AttrValues::default() };
            let finish = matches!(thing, Thing::Dir).then(|| finish.to_fattr(&AttrValues::KNOWN));
            let finish = finish.unwrap_or_default();
            let attrs = MemberAttrs { create, finish, ..MemberAttrs::default() };
            // The payload of a directory that the archive does not name is 0.
            plan.add(job(path.clone(), make, attrs, i + 1));
        } else {
            plan.end();
        }
        for (id, fh) in plan.take_listings() {
            let names = model.dir(number(&fh)).unwrap().clone();
            let entries = (names.len() <= case.list_max).then(|| {
                let entry = |(name, id): (&Bytes, &u64)| {
                    let kind = match &model.objects[id] {
                        Object::Dir(_) => FileType::Dir,
                        Object::File(_) => FileType::Reg,
                        Object::Link(_) => FileType::Lnk,
                    };
                    let attrs = AttrValues {
                        kind: Some(kind),
                        filehandle: Some(handle(*id)),
                        ..AttrValues::default()
                    };
                    Entry { name: name.clone(), attrs }
                };
                names.iter().map(entry).collect()
            });
            plan.listed(id, entries);
        }
        while let Some(task) = plan.next_slow() {
            let done = carefully(&mut model, &task, case.keep);
            plan.slow_done(task.id, task.job, done);
        }
        while flying.len() < case.window
            && let Some(batch) = plan.next_batch()
        {
            let c = plan.capacity();
            assert!(
                batch.ops < c.ops && REQUEST_HEAD + batch.body.len() <= c.request && batch.reply <= c.reply
            );
            let of = |id: ItemId| plan.items[id.0 as usize].as_ref();
            let dirs = batch.members.iter().filter(|m| of(m.0).is_some_and(|i| i.child.is_some())).count();
            let others = batch.members.len() - dirs;
            assert!(others <= c.members && (1..=c.members * DIRS_FOR_A_MEMBER).contains(&(others + dirs)));
            assert!(c.members > 1 || others + dirs == 1);
            assert_eq!(batch.cachethis, batch.reply <= c.reply_cached);
            flying.push(batch);
        }
        if !flying.is_empty() {
            let batch = flying.remove(order.next().copied().unwrap_or(0) % flying.len());
            let ops = decode(&batch);
            let stop = |at: &usize, status| Some((at % ops.len(), status));
            match troubles.next().unwrap_or(&Trouble::None) {
                Trouble::TooMany => drop(plan.refused(&batch, NfsStat::NFS4ERR_TOO_MANY_OPS)),
                Trouble::Lost(executed) => {
                    if *executed {
                        model.execute(&ops, None);
                    }
                    plan.lost(&batch);
                }
                other => {
                    let stop = match other {
                        Trouble::Delay(at) => stop(at, NfsStat::NFS4ERR_DELAY),
                        Trouble::Odd(at) => stop(at, NfsStat::NFS4ERR_SERVERFAULT),
                        _ => None,
                    };
                    let reply = model.execute(&ops, stop);
                    let bytes = reply.to_bytes().len();
                    assert!(
                        bytes + REPLY_HEAD - 12 <= batch.reply,
                        "{bytes} bytes of reply, {} announced",
                        batch.reply
                    );
                    let pause = matches!(plan.replied(&batch, reply), Feedback::Pause(_));
                    assert!(!pause || matches!(other, Trouble::Delay(_)));
                }
            }
        }
        for s in plan.take_settled() {
            assert_eq!(s.implied, s.job.payload == 0);
            if s.job.payload > 0 {
                assert!(got.insert(s.job.payload - 1, s.result.is_ok()).is_none(), "settled twice");
            }
        }
        if got.len() == case.archive.len() && plan.open() == 0 && flying.is_empty() {
            assert_eq!(model.tree(), expected.tree());
            // Nothing is put into a directory that has its last attributes.
            loop {
                let finals = plan.next_finals();
                if finals.is_empty() {
                    break;
                }
                model.finished.extend(finals.iter().map(|f| number(&f.fh)));
            }
            let named = case
                .archive
                .iter()
                .zip(&wanted)
                .filter(|((_, thing), done)| matches!(thing, Thing::Dir) && **done && !case.keep);
            for ((path, _), _) in named {
                let id = parent(&mut model, path, false).expect("a directory");
                assert!(model.finished.contains(&id), "{path:?} was changed after it was finished");
            }
            assert_eq!(got.into_values().collect::<Vec<_>>(), wanted);
            return;
        }
    }
    panic!("stuck: {} open, {} of {} settled", plan.open(), got.len(), case.archive.len());
}

fn path() -> impl Strategy<Value = Vec<Bytes>> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4)
        .prop_map(|p| p.into_iter().map(|c| Bytes::from_static(c.as_bytes())).collect())
}

fn thing() -> impl Strategy<Value = Thing> {
    prop_oneof![
        3 => Just(Thing::Dir),
        6 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Thing::File),
        1 => Just(Thing::Symlink),
        2 => path().prop_map(Thing::HardLink),
    ]
}

fn capacity() -> impl Strategy<Value = Capacity> {
    (1500usize..6000, 800usize..4000, 0usize..3000, 8usize..60, 1usize..20).prop_map(
        |(request, reply, reply_cached, ops, members)| Capacity {
            request,
            reply,
            reply_cached,
            ops,
            packs_data: ops % 2 == 0,
            looks: false,
            members,
        },
    )
}

fn trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        4 => Just(Trouble::None),
        1 => any::<usize>().prop_map(Trouble::Delay),
        1 => any::<usize>().prop_map(Trouble::Odd),
        1 => Just(Trouble::TooMany),
    ]
}

fn case(trouble: impl Strategy<Value = Trouble>) -> impl Strategy<Value = Case> {
    let member = || (path(), thing());
    (
        prop::collection::vec(member(), 0..8),
        // A hard link to itself is done where the name is known to exist, and an error where it is not.
        prop::collection::vec(
            member().prop_filter("itself", |(p, t)| !matches!(t, Thing::HardLink(to) if to == p)),
            0..60,
        ),
        capacity(),
        prop::collection::vec(trouble, 0..30),
        prop::collection::vec(0usize..8, 1..20),
        1usize..5,
        any::<bool>(),
        (prop_oneof![Just(0usize), Just(1), Just(100)], (1usize..20, prop_oneof![0usize..6, Just(100)])),
    )
        .prop_map(|(before, archive, capacity, troubles, order, window, keep, (list_max, in_memory))| {
            Case { before, archive, capacity, troubles, order, window, keep, list_max, in_memory }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_archive_any_limits_any_trouble(case in case(trouble())) {
        run(&case);
    }

    /// Lost replies, where everything in the way may be replaced.
    #[test]
    fn lost_replies(mut case in case(prop_oneof![3 => trouble(), 2 => any::<bool>().prop_map(Trouble::Lost)])) {
        case.keep = false;
        run(&case);
    }
}

/// A plan for an empty destination on a server that takes much.
fn roomy() -> Plan<usize> {
    let capacity = Capacity {
        request: 768 << 10,
        reply: 1 << 20,
        reply_cached: 128 << 10,
        ops: 2048,
        members: 64,
        packs_data: true,
        looks: false,
    };
    let tree = Tree::new(handle(ROOT), usize::MAX, Table::default(), Records::default());
    Plan::new(tree, Existing::Replace, Fattr::default(), capacity)
}

/// 4,096 files in 64 directories: how many compounds, that none but the first waits for handles, and that no directory is left
/// for the end.
#[test]
fn compounds_are_full_and_finish_directories() {
    let mut plan = roomy();
    let mut model = Model::new();
    let finish = AttrValues { mode: Some(0o755), ..AttrValues::default() }.to_fattr(&AttrValues::KNOWN);
    let mut add = |path: &[String], make: Make| {
        let finish = if matches!(make, Make::Dir) { finish.clone() } else { Fattr::default() };
        let path = path.iter().cloned().map(Bytes::from).collect();
        plan.add(job(path, make, MemberAttrs { finish, ..MemberAttrs::default() }, 1));
    };
    add(&["d".into()], Make::Dir);
    for d in 0..64 {
        add(&["d".into(), format!("d{d}")], Make::Dir);
        for f in 0..64 {
            add(&["d".into(), format!("d{d}"), format!("f{f}")], Make::File(vec![1; 4096].into()));
        }
    }
    plan.end();
    let mut compounds = 0;
    let mut done = 0;
    while done < 4096 + 64 + 1 {
        for (id, _) in plan.take_listings() {
            plan.listed(id, Some(Vec::new()));
        }
        let batch = plan.next_batch().expect("something is ready");
        compounds += 1;
        assert!(batch.cachethis);
        let reply = model.execute(&decode(&batch), None);
        assert_eq!(plan.replied(&batch, reply), Feedback::GoOn);
        done += plan.take_settled().iter().filter(|s| s.result.is_ok()).count();
    }
    assert_eq!(compounds, (4096 + 64usize).div_ceil(64));
    assert_eq!((model.finished.len(), plan.next_finals().len()), (1 + 64, 0));
}

/// A server that sets no attributes at creation: later members get all at their end, and set-ID bits last.
#[test]
fn the_owner_is_set_alone_before_set_id_bits() {
    let mut plan = roomy();
    plan.attrs_again = true;
    let attrs = |mode, owner: Option<&'static str>| {
        let owner = owner.map(|owner| Bytes::from_static(owner.as_bytes()));
        AttrValues { mode: Some(mode), owner, ..AttrValues::default() }.to_fattr(&AttrValues::KNOWN)
    };
    let attrs = MemberAttrs {
        create: attrs(0o755, Some("7")),
        finish: attrs(0o4755, None),
        ..MemberAttrs::default()
    };
    plan.add(job(vec![Bytes::from_static(b"f")], Make::File(Bytes::from_static(b"data")), attrs, 1));
    plan.end();
    for (id, _) in plan.take_listings() {
        plan.listed(id, Some(Vec::new()));
    }
    let set = |op| match op {
        ArgOp::Setattr(set) => AttrValues::from_fattr(&set.attrs).ok().map(|v| (v.owner.is_some(), v.mode)),
        _ => None,
    };
    let all: Vec<_> = decode(&plan.next_batch().expect("a file")).into_iter().filter_map(set).collect();
    assert_eq!(all, [(true, None), (false, Some(0o4755))]);
}

/// `a`, `b` as a hard link to it, and another `a`.
#[test]
fn what_replaces_a_links_target_waits_until_the_link_is_in_the_journal() {
    let mut plan = roomy();
    plan.journalled = true;
    let (mut model, name) = (Model::new(), |name: &'static str| vec![Bytes::from_static(name.as_bytes())]);
    for (path, make) in [
        ("a", Make::File(Bytes::from_static(b"one"))),
        ("b", Make::Link(name("a"))),
        ("a", Make::File(Bytes::from_static(b"two"))),
    ] {
        plan.add(job(name(path), make, MemberAttrs::default(), 1));
    }
    plan.end();
    for (id, _) in plan.take_listings() {
        plan.listed(id, Some(Vec::new()));
    }
    let mut settled = 0;
    while let Some(batch) = plan.next_batch() {
        let reply = model.execute(&decode(&batch), None);
        plan.replied(&batch, reply);
        settled += plan.take_settled().len();
    }
    assert_eq!((settled, plan.open()), (2, 1));
    let links = plan.unjournalled_links().expect("something waits");
    plan.links_journalled(links);
    let batch = plan.next_batch().expect("it goes on");
    let reply = model.execute(&decode(&batch), None);
    plan.replied(&batch, reply);
    assert_eq!((plan.take_settled().len(), plan.open(), plan.unjournalled_links()), (1, 0, None));
    let tree = model.tree();
    assert!(tree["/a"].0.contains("116, 119, 111") && tree["/b"].0.contains("111, 110, 101"), "{tree:?}");
}

/// The server refuses what has these names with DELAY, for ever. Returns how long each member waited until it was given up, by name.
fn delayed(names: &[&'static str], refused: &[&str]) -> BTreeMap<String, Duration> {
    let mut plan = roomy();
    for name in names {
        let make = Make::File(Bytes::from_static(b"data"));
        plan.add(job(vec![Bytes::from_static(name.as_bytes())], make, MemberAttrs::default(), 1));
    }
    plan.end();
    for (id, _) in plan.take_listings() {
        plan.listed(id, Some(Vec::new()));
    }
    let (mut model, mut waited, mut all) = (Model::new(), Duration::ZERO, BTreeMap::new());
    while let Some(batch) = plan.next_batch() {
        let ops = decode(&batch);
        let is_refused = |op: &ArgOp| match op {
            ArgOp::Open(args) => {
                refused.iter().any(|name| args.claim == OpenClaim::Null(Bytes::from(name.to_string())))
            }
            _ => false,
        };
        let at = ops.iter().position(is_refused).map(|at| (at, NfsStat::NFS4ERR_DELAY));
        let reply = model.execute(&ops, at);
        if let Feedback::Pause(Some(id)) = plan.replied(&batch, reply) {
            plan.paused(id, BACKOFF_MAX);
            waited += BACKOFF_MAX;
        }
        for settled in plan.take_settled() {
            let name = String::from_utf8_lossy(&settled.job.shown).into_owned();
            match settled.result {
                Ok(_) => assert!(!refused.contains(&&name[..]), "{name}"),
                Err(why) => {
                    assert_eq!(why.cause, Cause::Refused(OpNum::OPEN, NfsStat::NFS4ERR_DELAY), "{name}");
                    all.insert(name, std::mem::take(&mut waited));
                }
            }
        }
    }
    assert_eq!((plan.open(), all.len()), (0, refused.len()));
    all
}

#[test]
fn what_is_refused_for_too_long_fails_and_the_rest_goes_on() {
    let waited = |name: &str, time| (name.to_owned(), time);
    assert_eq!(delayed(&["a", "b", "c"], &["b"]), BTreeMap::from([waited("b", DELAY_PATIENCE)]));
    // Once one is given up, another one right behind it is not waited for as long; if something was done since, it is.
    assert_eq!(
        delayed(&["a", "b", "c", "d", "e"], &["b", "c", "e"]),
        BTreeMap::from([waited("b", DELAY_PATIENCE), waited("c", BACKOFF_MAX), waited("e", DELAY_PATIENCE)])
    );
}
