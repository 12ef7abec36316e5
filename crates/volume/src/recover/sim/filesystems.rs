//! The same histories on ext4, XFS and btrfs. Each change of the model is made on a mounted loop image. The filesystem is
//! stopped without a flush (ext4, XFS: shut down; btrfs: the image is copied), mounted again and recovered, and the result
//! is compared with the model. Recovery is stopped the same way, up to twice.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};

use super::fused::Fused;
use super::history::{Server, XATTRS};
use super::model::{Change, Inode, LOST, Model, ROOT, Rng, STAGE, State, Step, blank, number, object_id};
use super::{Fault, Want, certain, ends, env};
use crate::fold::Fold;
use crate::kernel::{self, OwnedFd};
use crate::marker::Marker;
use crate::objmap::ObjMap;
use crate::record::{Birth, Fact, Kind, ObjId, Owned, Record, Timestamp};
use crate::recover::tree::Tree;
use crate::recover::{Counts, Disk, Error, RecoveryMode, disk, reconcile};
use crate::remap::Remap;

/// Several, so that spread work is done in any order; a run that is to be stopped at a chosen call has one.
const THREADS: usize = 3;

#[allow(unsafe_code)] // a mount namespace of its own
#[path = "../../../tests/common/image.rs"]
pub(super) mod image;
use image::{Image, Kernel};

fn open_dir(path: &Path) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    kernel::open(path, flags, Mode::empty()).expect("a directory")
}

pub(super) struct Volume {
    pub(super) root: OwnedFd,
    pub(super) state: OwnedFd,
    pub(super) remap: Remap,
    marker: Marker,
}

impl Volume {
    pub(super) fn open(image: &Image) -> Volume {
        let path = image.path().join("export");
        std::fs::create_dir_all(path.join(".landfast")).expect("state directory");
        let (root, state) = (open_dir(&path), open_dir(&path.join(".landfast")));
        let remap = Remap::load(&state).expect("remap table").unwrap_or_default();
        let marker = Marker::open(&state).expect("marker");
        Volume { root, state, remap, marker }
    }
}

/// The model's identities, with the kernel's present ones and those that clients first saw.
#[derive(Default)]
struct Names {
    now: BTreeMap<ObjId, ObjId>,
    first: BTreeMap<ObjId, (ObjId, u64)>,
    by_ino: BTreeMap<u64, ObjId>,
}

impl Names {
    fn meet(&mut self, ino: u64, model: &ObjId, real: ObjId, fileid: u64) {
        self.by_ino.insert(ino, model.clone());
        self.first.insert(model.clone(), (real.clone(), fileid));
        self.now.insert(model.clone(), real);
    }

    fn real(&self, ino: u64) -> &ObjId {
        &self.now[&self.by_ino[&ino]]
    }

    fn id(&self, model: &ObjId) -> ObjId {
        self.now.get(model).cloned().unwrap_or_else(|| panic!("{model} was never made"))
    }

    fn record(&self, r: &Record) -> Record {
        let mut r = r.clone();
        for fact in &mut r.facts {
            match fact {
                Fact::Bind { dir, obj, .. } | Fact::Unbind { dir, obj, .. } => {
                    (*dir, *obj) = (self.id(dir), self.id(obj));
                }
                Fact::Born { obj, birth } => {
                    birth.fileid = self.first[obj].1;
                    *obj = self.id(obj);
                }
                Fact::Links { obj, .. }
                | Fact::Attrs { obj, .. }
                | Fact::Mtime { obj, .. }
                | Fact::Size { obj, .. }
                | Fact::Data { obj, .. }
                | Fact::Durable { obj, .. }
                | Fact::Xattr { obj, .. }
                | Fact::Zero { obj, .. } => *obj = self.id(obj),
                Fact::Note { .. } => {}
            }
        }
        r
    }
}

/// Repeats on the filesystem what was done to the model.
fn do_step(image: &Image, v: &mut Volume, names: &mut Names, step: &Step) -> std::io::Result<()> {
    let open = |names: &Names, ino: u64| kernel::open_handle(&v.root, &names.real(ino).kh);
    let look = |names: &Names, ino: u64| -> std::io::Result<OwnedFd> { Ok(open(names, ino)?) };
    let touch = |names: &Names, ino: u64, now: Timestamp| -> std::io::Result<()> {
        let fd = open(names, ino)?;
        set_times(&fd, None, now)
    };
    match step {
        Step::Flush => kernel::syncfs(&v.root)?,
        Step::Fdatasync(_) if image.kernel == Kernel::Btrfs => kernel::syncfs(&v.root)?,
        Step::Fdatasync(ino) => kernel::fdatasync(kernel::reopen(&look(names, *ino)?, OFlags::RDWR)?)?,
        Step::Change(change, now) => match change {
            Change::Make(dir, name, ino, inode) => {
                let birth = Birth {
                    kind: inode.kind,
                    owned: inode.owned,
                    rdev: inode.rdev,
                    target: inode.target.clone(),
                    fileid: 0,
                };
                let dir_id = names.real(*dir).clone();
                let mut real = Disk::new(&v.root, &v.state, &mut v.remap, 1)?;
                let (real, _) = real.make(&dir_id, name, &birth, 0o600)?;
                let fd = kernel::open_handle(&v.root, &real.kh)?;
                own(&fd, inode.owned.uid, inode.owned.gid)?;
                for (name, value) in &inode.xattrs {
                    kernel::setxattr(&fd, &name[..], value, XattrFlags::empty())?;
                }
                if inode.kind != Kind::Symlink {
                    kernel::chmod(&fd, inode.owned.mode)?;
                }
                set_times(&fd, Some(inode.owned.atime), inode.owned.mtime)?;
                let fileid = v.remap.fileid(&real, kernel::look(&fd)?.stx_ino);
                names.meet(*ino, &inode.id, real, fileid);
                let fd = kernel::open_handle(&v.root, &dir_id.kh)?;
                set_times(&fd, None, *now)?;
            }
            Change::Link(ino, dir, name) => {
                let (fd, to) = (look(names, *ino)?, look(names, *dir)?);
                kernel::linkat(&fd, c"", &to, &name[..], AtFlags::EMPTY_PATH)?;
                touch(names, *dir, *now)?;
            }
            Change::Unlink(dir, name) => {
                let fd = look(names, *dir)?;
                if kernel::unlinkat(&fd, &name[..], AtFlags::empty()).is_err() {
                    kernel::unlinkat(&fd, &name[..], AtFlags::REMOVEDIR)?;
                }
                touch(names, *dir, *now)?;
            }
            Change::Rename(dir, name, to, to_name) => {
                let (a, b) = (look(names, *dir)?, look(names, *to)?);
                kernel::renameat_with(&a, &name[..], &b, &to_name[..], RenameFlags::empty())?;
                touch(names, *dir, *now)?;
                touch(names, *to, *now)?;
            }
            Change::Write(ino, offset, bytes) => {
                let fd = kernel::reopen(&look(names, *ino)?, OFlags::WRONLY)?;
                assert_eq!(kernel::pwrite(&fd, bytes, *offset)?, bytes.len());
                touch(names, *ino, *now)?;
            }
            Change::Punch(ino, offset, len) => {
                let fd = kernel::reopen(&look(names, *ino)?, OFlags::WRONLY)?;
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                kernel::fallocate(fd, flags, *offset, *len)?;
                touch(names, *ino, *now)?;
            }
            Change::Allocate(ino, offset, len) => {
                let fd = kernel::reopen(&look(names, *ino)?, OFlags::WRONLY)?;
                kernel::fallocate(fd, FallocateFlags::empty(), *offset, *len)?;
                touch(names, *ino, *now)?;
            }
            Change::Copy(from, from_offset, to, offset, bytes) => {
                let source = kernel::reopen(&look(names, *from)?, OFlags::RDONLY)?;
                let fd = kernel::reopen(&look(names, *to)?, OFlags::WRONLY)?;
                let size = kernel::look(&fd)?.stx_size;
                let cloned = (*from_offset, *offset) == (0, 0)
                    && size <= bytes.len() as u64
                    && kernel::clone_range(&source, 0, 0, &fd, 0).is_ok();
                // The kernel clones whole files only if the filesystem can.
                assert!(!cloned || image.kernel != Kernel::Ext4);
                if !cloned {
                    let (mut from, mut to) = (*from_offset, *offset);
                    let n =
                        kernel::copy_file_range(&source, Some(&mut from), &fd, Some(&mut to), bytes.len())?;
                    assert_eq!(n, bytes.len());
                }
                touch(names, *to, *now)?;
            }
            Change::Truncate(ino, size) => {
                kernel::ftruncate(kernel::reopen(&look(names, *ino)?, OFlags::WRONLY)?, *size)?;
                touch(names, *ino, *now)?;
            }
            Change::Own(ino, uid, gid) => {
                let fd = look(names, *ino)?;
                let look = kernel::look(&fd)?;
                let mut mode = u32::from(look.stx_mode) & 0o7777;
                own(&fd, *uid, *gid)?;
                // Kernels differ in whether root's chown clears these bits; the model clears them.
                if Kind::from_mode(look.stx_mode.into()) == Some(Kind::File) {
                    mode &= 0o1777;
                }
                kernel::chmod(&fd, mode)?;
            }
            Change::Mode(ino, mode) => kernel::chmod(look(names, *ino)?, *mode)?,
            Change::Times(ino, atime, mtime) => set_times(&look(names, *ino)?, *atime, *mtime)?,
            Change::Xattr(ino, name, value) => {
                let path = look(names, *ino)?;
                match value {
                    Some(value) => kernel::setxattr(&path, &name[..], value, XattrFlags::empty())?,
                    None => _ = kernel::removexattr(&path, &name[..]),
                }
            }
            Change::Marker(seq) if *seq > v.marker.last() => {
                v.marker.raise(seq - 1);
                assert_eq!(v.marker.advance()?, *seq);
            }
            Change::Marker(_) => {}
        },
    }
    Ok(())
}

fn own(fd: &OwnedFd, uid: u32, gid: u32) -> std::io::Result<()> {
    let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
    Ok(kernel::chownat(fd, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?)
}

fn set_times(fd: &OwnedFd, atime: Option<Timestamp>, mtime: Timestamp) -> std::io::Result<()> {
    let spec = |t: Timestamp| rustix::fs::Timespec { tv_sec: t.secs, tv_nsec: t.nanos.into() };
    let omit = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times =
        rustix::fs::Timestamps { last_access: atime.map_or(omit, spec), last_modification: spec(mtime) };
    Ok(kernel::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH)?)
}

struct Reader<'a> {
    disk: Disk<'a>,
    /// From the identity and fileid that clients know to the model's identity.
    known: BTreeMap<(ObjId, u64), ObjId>,
    state: State,
    numbers: BTreeMap<ObjId, u64>,
    now: BTreeMap<ObjId, ObjId>,
}

impl Reader<'_> {
    fn read(&mut self, real: &ObjId, fileid: u64, remap: &Remap, root: bool) -> std::io::Result<u64> {
        if let Some(ino) = self.numbers.get(real) {
            return Ok(*ino);
        }
        let meta = self.disk.probe(real)?.expect("what a name leads to is alive");
        let told = (remap.outward(real).unwrap_or(real).clone(), fileid);
        let id = match self.known.get(&told) {
            Some(id) => id.clone(),
            None => object_id(1_000_000 + self.numbers.len() as u64, 0, 0),
        };
        let ino = number(&id);
        self.numbers.insert(real.clone(), ino);
        self.now.insert(id.clone(), real.clone());
        let mut inode: Inode = blank(meta.kind);
        (inode.id, inode.nlink, inode.owned) = (id, meta.nlink, meta.owned);
        let fd = kernel::open_handle(self.disk.root_fd(), &real.kh)?;
        let look = kernel::look(&fd)?;
        if matches!(meta.kind, Kind::CharDev | Kind::BlockDev) {
            inode.rdev = (look.stx_rdev_major, look.stx_rdev_minor);
        }
        match meta.kind {
            Kind::File => inode.data = std::fs::read(kernel::proc_path(&fd))?,
            Kind::Symlink => inode.target = kernel::read_link(&fd)?.into_bytes().into(),
            Kind::Dir => {
                for name in self.disk.list(real)? {
                    if root && name == ".landfast"[..] {
                        continue;
                    }
                    let (child, _) = self.disk.lookup(real, &name)?.expect("listed");
                    let child_fd = kernel::open_handle(self.disk.root_fd(), &child.kh)?;
                    let fileid = remap.fileid(&child, kernel::look(&child_fd)?.stx_ino);
                    let n = self.read(&child, fileid, remap, false)?;
                    if let Some(i) = self.state.inodes.get_mut(&n) {
                        i.parent = ino;
                    }
                    inode.entries.insert(name, n);
                }
            }
            _ => {}
        }
        for name in XATTRS.into_iter().filter(|_| meta.kind != Kind::Symlink) {
            if let Some(value) = self.disk.xattr(real, name)? {
                inode.xattrs.insert(Bytes::from_static(name), value);
            }
        }
        self.state.inodes.insert(ino, inode);
        Ok(ino)
    }
}

fn read_back(v: &Volume, names: &mut Names) -> std::io::Result<Model> {
    let mut known: BTreeMap<_, _> = names.first.iter().map(|(id, told)| (told.clone(), id.clone())).collect();
    let mut remap = v.remap.clone();
    let disk = Disk::new(&v.root, &v.state, &mut remap, THREADS)?;
    let (stage, lost) = (disk.stage(), disk.lost_found());
    known.insert((stage.clone(), STAGE), object_id(STAGE, 0, 1));
    known.insert((lost.clone(), LOST), object_id(LOST, 0, 1));
    let mut r =
        Reader { disk, known, state: State::default(), numbers: BTreeMap::new(), now: BTreeMap::new() };
    for (ino, real) in [(ROOT, disk::identity(&v.root)?), (STAGE, stage), (LOST, lost)] {
        let root = ino == ROOT;
        r.read(&real, ino, &v.remap, root)?;
    }
    names.by_ino.extend(r.now.keys().map(|id| (number(id), id.clone())));
    names.now.extend(r.now);
    let mut model = Model::new(1, false);
    model.live = r.state;
    model.settle();
    Ok(model)
}

/// Stops and recovers until recovery completes.
fn recover(
    image: &mut Image,
    rng: &mut Rng,
    records: &[Record],
    ends: &[usize],
) -> Result<(Volume, Counts, bool), String> {
    let mut cuts = rng.below(3);
    loop {
        let mut v = Volume::open(image);
        let marker = v.marker.last();
        let certain = certain(records, ends, marker);
        let fold = Fold::resolved_of(records.iter().cloned(), certain);
        let fold = fold.and_then(Fold::unanimous).map_err(|e| e.to_string())?;
        let mut disk = Disk::new(&v.root, &v.state, &mut v.remap, THREADS).map_err(|e| e.to_string())?;
        disk.prepare(&fold).map_err(|e| e.to_string())?;
        let left = (cuts > 0).then(|| rng.below(records.len() * 3 + 2));
        let result = match left {
            Some(left) => reconcile(
                &mut Fused { tree: &mut disk, left: Some(left), over_quota: &|| false },
                &fold,
                marker,
                RecoveryMode::default(),
                &ObjMap::default,
            ),
            None => reconcile(&mut disk, &fold, marker, RecoveryMode::default(), &ObjMap::default),
        };
        match result {
            Ok(r) => {
                disk.finish(&fold).map_err(|e| e.to_string())?;
                drop(disk);
                v.marker.raise(r.last_seq);
                return Ok((v, r.done, r.ahead));
            }
            Err(Error::Io { why, .. }) if why.to_string() == "power cut" => {
                cuts -= 1;
                drop(disk);
                if rng.chance(50) {
                    image.commit();
                }
                drop(v);
                image.power_off();
                image.power_on();
            }
            Err(e) => return Err(e.to_string()),
        }
    }
}

fn lives(kernel: Kernel, count: u64) {
    let Some(mut image) = Image::new(kernel) else { return };
    let start = std::time::Instant::now();
    let seed = env("LANDFAST_SEED").unwrap_or(1);
    let mut s = Server::new(seed);
    s.model.trace = Some(Vec::new());
    let mut v = Volume::open(&image);
    let mut names = Names::default();
    let root = disk::identity(&v.root).expect("identity");
    names.meet(ROOT, &s.model.live.get(ROOT).id.clone(), root, ROOT);
    let (mut sum, mut aheads) = (Counts::default(), 0);
    for life in 0..count {
        let fail = |e: String| -> ! { panic!("{kernel:?}, LANDFAST_SEED={seed}, life {life}: {e}") };
        s.begin(v.marker.last());
        kernel::syncfs(&v.root).expect("syncfs");
        for _ in 0..2 + s.rng.below(24) {
            s.batch();
            for step in std::mem::take(&mut s.model.trace).unwrap_or_default() {
                if let Err(e) = do_step(&image, &mut v, &mut names, &step) {
                    fail(format!("{step:?}: {e}"));
                }
                if s.rng.chance(2) {
                    image.commit();
                }
            }
            s.model.trace = Some(Vec::new());
        }
        let all = s.batches.len();
        let flushed = if s.rng.chance(70) { all } else { s.log_start + s.rng.below(all - s.log_start + 1) };
        let logged_end = flushed.checked_sub(1).map_or(0, |last| s.batches[last].end);
        let records: Vec<Record> = s.batches[s.log_start..flushed]
            .iter()
            .flat_map(|b| &b.records)
            .map(|r| names.record(r))
            .collect();
        drop(v);
        image.power_off();
        image.power_on();
        let ends = ends(&s, flushed, Fault::None);
        let (recovered, done, ahead) = match recover(&mut image, &mut s.rng, &records, &ends) {
            Ok(r) => r,
            Err(e) => fail(e),
        };
        v = recovered;
        sum.add(done);
        aheads += u64::from(ahead);
        let got = match read_back(&v, &mut names) {
            Ok(got) => got,
            Err(e) => fail(format!("reading back: {e}")),
        };
        // How far the disk was ahead is unknown: it must be one of these states.
        let ends = logged_end..=s.model.changes.len();
        let mut wrong = Vec::new();
        let right = ends.rev().any(|n| {
            let mut want = Want::of(&s, flushed, n);
            want.told_by_identity();
            want.check(&got).map_err(|e| wrong.push(e)).is_ok()
        });
        if !right {
            fail(wrong.pop().unwrap_or_default());
        }
        s.model.live = got.live;
    }
    println!(
        "{kernel:?}: {count} lives (seed {seed}), {aheads} ahead of the log, {:.1} s; {sum:?}",
        start.elapsed().as_secs_f64()
    );
    assert!(sum.made > 0 && sum.detached + sum.attached > 0 && sum.attrs > 0);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn ext4_is_recovered() {
    lives(Kernel::Ext4, env("LANDFAST_LIVES").unwrap_or(12));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn xfs_is_recovered() {
    lives(Kernel::Xfs, env("LANDFAST_LIVES").unwrap_or(12));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn btrfs_is_recovered() {
    lives(Kernel::Btrfs, env("LANDFAST_LIVES").unwrap_or(12));
}

fn make_some(v: &mut Volume, prefix: &str) -> Vec<ObjId> {
    let root = disk::identity(&v.root).expect("identity");
    let owned = Owned { mode: 0o600, ..Owned::default() };
    let birth = Birth { kind: Kind::File, owned, rdev: (0, 0), target: Bytes::new(), fileid: 1 };
    let mut disk = Disk::new(&v.root, &v.state, &mut v.remap, THREADS).expect("disk");
    (0..5)
        .map(|n| disk.make(&root, format!("{prefix}{n}").as_bytes(), &birth, 0o600).expect("make").0)
        .collect()
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn btrfs_does_not_issue_a_lost_handle_again() {
    for bump in [false, true] {
        let Some(mut image) = Image::new(Kernel::Btrfs) else { return };
        let mut v = Volume::open(&image);
        // Makes the subdirectories of the state directory, which are to stay.
        drop(Disk::new(&v.root, &v.state, &mut v.remap, THREADS).expect("disk"));
        kernel::syncfs(&v.root).expect("syncfs");
        let lost = make_some(&mut v, "lost");
        image.power_off();
        drop(v);
        image.power_on();
        let mut v = Volume::open(&image);
        if bump {
            let facts = lost.iter().map(|id| Fact::Size { obj: id.clone(), size: 0 }).collect();
            let fold = Fold::of([Record { seq: 1, facts }]).expect("a fold");
            Disk::new(&v.root, &v.state, &mut v.remap, THREADS)
                .expect("disk")
                .prepare(&fold)
                .expect("prepare");
        }
        let new = make_some(&mut v, "new");
        let again = new.iter().filter(|n| lost.iter().any(|l| l.kh == n.kh)).count();
        println!("btrfs, generation brought forward: {bump}; of 5 lost handles {again} were issued again");
        assert!(!bump || again == 0);
        // Birth times tell them apart in any case.
        assert!(new.iter().all(|n| !lost.contains(n)));
        drop(v);
    }
}

/// Until a removed file is gone from the disk, it counts for its owner's quota.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_is_made_again_waits_for_the_quota_that_dead_objects_use() {
    let Some(image) = Image::new(Kernel::Ext4) else { return };
    let mut v = Volume::open(&image);
    let dead = make_some(&mut v, "f").swap_remove(0);
    let root = disk::identity(&v.root).expect("identity");
    let lost = ObjId { btime_ns: 7, ..dead.clone() };
    let owned = Owned { mode: 0o600, uid: 1001, ..Owned::default() };
    let birth = Birth { kind: Kind::File, owned, rdev: (0, 0), target: Bytes::new(), fileid: 1 };
    let data = Bytes::from_static(b"data");
    let facts = vec![
        Fact::Unbind { dir: root.clone(), name: Bytes::from_static(b"f0"), obj: dead.clone() },
        Fact::Links { obj: dead.clone(), nlink: 0 },
        Fact::Born { obj: lost.clone(), birth },
        Fact::Bind { dir: root, name: Bytes::from_static(b"new"), obj: lost.clone() },
        Fact::Data { obj: lost, offset: 0, bytes: data.clone() },
    ];
    let fold = Fold::of([Record { seq: 1, facts }]).expect("a fold");
    let mut disk = Disk::new(&v.root, &v.state, &mut v.remap, 1).expect("disk");
    // Also while somebody has it open.
    let over_quota = || kernel::open_handle(&v.root, &dead.kh).is_ok();
    assert!(over_quota());
    let mut tree = Fused { tree: &mut disk, left: None, over_quota: &over_quota };
    reconcile(&mut tree, &fold, 0, RecoveryMode::default(), &ObjMap::default).expect("recovered");
    let made = image.path().join("export/new");
    assert_eq!(std::fs::read(&made).expect("a file"), data);
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&made.metadata().expect("a file")), 1001);
    assert!(!image.path().join("export/f0").exists());
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn rows_of_what_is_gone_are_dropped() {
    let Some(image) = Image::new(Kernel::Ext4) else { return };
    let mut v = Volume::open(&image);
    let ids = make_some(&mut v, "f");
    v.remap.insert(ids[0].clone(), ids[1].clone(), 70);
    v.remap.insert(ids[2].clone(), ids[3].clone(), 71);
    let root = disk::identity(&v.root).expect("identity");
    let facts = vec![
        Fact::Unbind { dir: root, name: Bytes::from_static(b"f1"), obj: ids[1].clone() },
        Fact::Links { obj: ids[1].clone(), nlink: 0 },
    ];
    let record = Record { seq: 1, facts }.encode().expect("a record in range");
    let mut disk = Disk::new(&v.root, &v.state, &mut v.remap, THREADS).expect("disk");
    let r = crate::recover::run(&mut disk, vec![record], &[1], 0, RecoveryMode::default(), &ObjMap::default)
        .expect("recovered");
    assert_eq!((r.done.detached, r.done.removed), (1, 1));
    let saved = Remap::load(&v.state).expect("remap table").unwrap_or_default();
    assert_eq!((saved.inward(&ids[0]), saved.inward(&ids[2])), (None, Some(&ids[3])));
}

/// After a failed write-back the page cache has what the disk has not.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_file_is_read_from_the_disk_itself() {
    use std::os::unix::fs::FileExt;

    const BYTES: usize = 1 << 20;
    for kernel in [Kernel::Ext4, Kernel::Xfs] {
        let Some(image) = Image::new(kernel) else { return };
        let mut v = Volume::open(&image);
        let file = make_some(&mut v, "f").swap_remove(0);
        let path = image.path().join("export/f0");
        let end = BYTES as u64 + 5;
        let mut contents = [&b"in memory".repeat(BYTES / 9 + 1)[..BYTES], b"tail."].concat();
        contents[..16].copy_from_slice(b"the first block ");
        std::fs::write(&path, &contents).expect("written");
        kernel::syncfs(&v.root).expect("syncfs");
        // Changes it below the filesystem, which does not notice.
        let device = std::fs::File::options().read(true).write(true).open(image.device()).expect("a device");
        let mut block = vec![0; BYTES];
        let first = (0..).find_map(|n| {
            device.read_exact_at(&mut block, n * BYTES as u64).expect("its beginning is on the device");
            let at = block.chunks(512).position(|piece| piece == &contents[..512])?;
            Some(n * BYTES as u64 + at as u64 * 512)
        });
        device.write_all_at(b"on the disk", first.expect("found")).expect("written");
        device.sync_all().expect("flushed");
        let mut disk = Disk::new(&v.root, &v.state, &mut v.remap, 1).expect("disk");
        let read = disk.read_disk(&file, 0).expect("read");
        assert!(read.starts_with(b"on the disk"), "{kernel:?}: {:?}", &read[..20]);
        assert_eq!(read[20..], contents[20..read.len()]);
        assert_eq!(disk.read_disk(&file, 4097).expect("read")[..], contents[4097..]);
        assert_eq!(disk.read_disk(&file, end - 3).expect("read")[..], *b"il.");
        assert_eq!(disk.read_disk(&file, end).expect("read")[..], *b"");
        assert_eq!(std::fs::read(&path).expect("a file"), contents, "memory has not changed");
    }
}
