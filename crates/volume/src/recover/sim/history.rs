//! Random histories: a small server that changes the model and records what it did, as the volume does.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::admin::Touched;
use super::model::{ACL, Change, Inode, LOST, Model, ROOT, Rng, STAGE, State, number};
use crate::acl::Acl;
use crate::record::{Birth, Fact, Kind, ObjId, Record, Timestamp};

/// A write of which any part may be there after a crash.
#[derive(Clone, Debug)]
pub(super) struct Loose {
    pub(super) obj: ObjId,
    pub(super) offset: usize,
    pub(super) bytes: Bytes,
    /// The batch that made it stable, if any.
    pub(super) stable: Option<usize>,
}

pub(super) struct Batch {
    pub(super) records: Vec<Record>,
    /// How many changes had been made when it was sealed.
    pub(super) end: usize,
    /// What stable writes require each file to contain once the batch is flushed.
    pub(super) contents: BTreeMap<ObjId, Vec<u8>>,
}

/// A truncation, by batch. The contents of a truncated file are not checked if the truncation was not acknowledged but is
/// there.
pub(super) struct Cut {
    pub(super) obj: ObjId,
    pub(super) batch: usize,
}

pub(super) struct Server {
    pub(super) model: Model,
    pub(super) rng: Rng,
    pub(super) batches: Vec<Batch>,
    /// The first batch that the log still has.
    pub(super) log_start: usize,
    checkpoint: Option<usize>,
    contents: BTreeMap<ObjId, Vec<u8>>,
    pub(super) loose: Vec<Loose>,
    pub(super) cuts: Vec<Cut>,
    dirty: BTreeMap<ObjId, Vec<(usize, usize)>>,
    dead: Vec<ObjId>,
    seq: u64,
    pub(super) touched: Touched,
    pub(super) projects: bool,
    /// Objects may use up the filesystem's inodes.
    pub(super) few_inodes: bool,
    pub(super) stranger_at_work: bool,
    /// Large copies are not flushed (a deliberate fault).
    pub(super) copy_unflushed: bool,
    /// Large copies are flushed but not recorded (a deliberate fault).
    pub(super) copy_unsaid: bool,
}

/// Names of extended attributes; the last is an ACL, which depends on the mode.
pub(super) const XATTRS: [&[u8]; 3] = [b"trusted.x", b"trusted.y", ACL];

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

impl Server {
    pub(super) fn new(seed: u64) -> Server {
        let mut rng = Rng(seed);
        let model = Model::new(rng.next(), rng.chance(50));
        Server {
            model,
            rng,
            batches: Vec::new(),
            log_start: 0,
            checkpoint: None,
            contents: BTreeMap::new(),
            loose: Vec::new(),
            cuts: Vec::new(),
            dirty: BTreeMap::new(),
            dead: Vec::new(),
            seq: 0,
            touched: Touched::default(),
            projects: false,
            few_inodes: false,
            stranger_at_work: false,
            copy_unflushed: false,
            copy_unsaid: false,
        }
    }

    fn set_project(&mut self) {
        let (top, project) = (self.dir(), 1 + self.rng.below(2) as u32);
        let mut waiting = vec![top];
        while let Some(ino) = waiting.pop() {
            if let Some(inode) = self.model.live.inodes.get_mut(&ino) {
                inode.project = project;
                waiting.extend(inode.entries.values());
            }
        }
    }

    /// Begins with an empty log, on what is on disk.
    pub(super) fn begin(&mut self, last_seq: u64) {
        // A dead directory that hands something down keeps its inode while lost objects are made.
        if self.projects && !self.few_inodes && self.rng.chance(30) {
            self.set_project();
        }
        self.model.settle();
        self.model.inodes_max = usize::MAX;
        if self.few_inodes && self.rng.chance(25) {
            self.model.inodes_max = self.model.live.inodes.len() + self.rng.below(8);
        }
        self.seq = self.seq.max(last_seq).max(self.model.live.marker);
        self.batches.clear();
        self.log_start = 0;
        self.checkpoint = None;
        self.loose.clear();
        self.cuts.clear();
        self.dirty.clear();
        self.dead.clear();
        self.touched = Touched::default();
        let files = self.model.live.inodes.values().filter(|i| i.kind == Kind::File);
        self.contents = files.map(|i| (i.id.clone(), i.data.clone())).collect();
    }

    /// One batch of the log: a few transactions with interleaved operations.
    pub(super) fn batch(&mut self) {
        let txs = 1 + self.rng.below(3);
        let mut seqs = vec![0; txs];
        let mut records = Vec::new();
        if txs > 1 && self.rng.chance(20) {
            // Two transactions took their numbers at once and set them in reverse order.
            (seqs[0], seqs[1]) = (self.seq + 2, self.seq + 1);
            self.seq += 2;
            self.model.change(Change::Marker(seqs[0]));
            self.model.change(Change::Marker(seqs[1]));
        }
        for _ in 0..self.rng.below(4) {
            let tx = self.rng.below(txs);
            if seqs[tx] == 0 {
                self.seq += 1;
                seqs[tx] = self.seq;
                self.model.change(Change::Marker(self.seq));
            }
            let facts = self.operation();
            records.push(Record { seq: seqs[tx], facts });
        }
        for seq in seqs.into_iter().filter(|s| *s != 0) {
            if !records.iter().any(|r| r.seq == seq) {
                records.push(Record { seq, facts: Vec::new() });
            }
        }
        let (end, contents) = (self.model.changes.len(), self.contents.clone());
        self.batches.push(Batch { records, end, contents });
        if self.rng.chance(25) {
            self.unstable_write();
        }
        match self.checkpoint {
            None if self.rng.chance(5) => {
                self.checkpoint = Some(self.batches.len());
                self.model.remap.cut();
            }
            Some(cut) if self.rng.chance(50) => {
                self.model.flush();
                self.log_start = cut;
                self.checkpoint = None;
                self.model.drop_purged();
            }
            _ => {}
        }
    }

    fn id(&self, ino: u64) -> ObjId {
        self.model.live.get(ino).id.clone()
    }

    pub(super) fn any(&mut self, want: impl Fn(&Inode) -> bool) -> Option<u64> {
        let live = self.model.live.inodes.iter();
        let found: Vec<u64> =
            live.filter(|(n, i)| **n != STAGE && **n != LOST && want(i)).map(|(n, _)| *n).collect();
        self.rng.pick(&found).copied()
    }

    pub(super) fn dir(&mut self) -> u64 {
        self.any(|i| i.kind == Kind::Dir).unwrap_or(ROOT)
    }

    /// A random entry: (directory, name, object).
    pub(super) fn entry(&mut self, want: impl Fn(&Inode) -> bool) -> Option<(u64, Bytes, u64)> {
        let live = &self.model.live;
        let mut all = Vec::new();
        for (dir, d) in live.inodes.iter().filter(|(n, _)| **n != STAGE && **n != LOST) {
            all.extend(
                d.entries.iter().filter(|(_, n)| want(live.get(**n))).map(|(name, n)| (*dir, name, *n)),
            );
        }
        self.rng.pick(&all).map(|(d, name, n)| (*d, (*name).clone(), *n))
    }

    fn name(&mut self) -> Bytes {
        Bytes::from_static(NAMES[self.rng.below(NAMES.len())].as_bytes())
    }

    fn bytes(&mut self) -> Bytes {
        let tag = self.rng.next() as u8 | 1;
        (0..1 + self.rng.below(12)).map(|_| tag).collect()
    }

    fn mtime(&self, ino: u64) -> Fact {
        Fact::Mtime { obj: self.id(ino), mtime: self.model.live.get(ino).owned.mtime }
    }

    fn operation(&mut self) -> Vec<Fact> {
        match self.rng.below(100) {
            0..22 => self.create(),
            22..30 => self.link(),
            30..44 => self.remove(),
            44..61 => self.rename(),
            61..70 => self.write(),
            70..73 => self.truncate(),
            73..77 => self.xattr(),
            77..82 => self.setattr(),
            82..86 => self.commit(),
            86..90 => self.big_write(),
            90..93 => self.deallocate(),
            93..96 => self.copy(),
            96..98 => self.allocate(),
            _ => self.late_write(),
        }
    }

    fn create(&mut self) -> Vec<Fact> {
        let (dir, name) = (self.dir(), self.name());
        if self.model.live.get(dir).entries.contains_key(&name) || !self.model.has_inode() {
            return Vec::new();
        }
        let kind = match self.rng.below(10) {
            0..5 => Kind::File,
            5..8 => Kind::Dir,
            8 => Kind::Symlink,
            _ => Kind::CharDev,
        };
        let (ino, mut inode) = self.model.inode(kind, dir);
        if kind != Kind::Symlink {
            inode.owned.mode = 0o600 | (self.rng.next() as u32 & 0o4177);
        }
        inode.owned.uid = self.rng.below(3) as u32;
        if kind == Kind::Symlink {
            inode.target = Bytes::from_static(b"../x");
        }
        if kind == Kind::CharDev {
            inode.rdev = (5, self.rng.below(9) as u32);
        }
        let mut inherited = Vec::new();
        if kind != Kind::Symlink && self.rng.chance(20) {
            let acl = self.acl();
            inode.owned.mode = inode.owned.mode & 0o7000 | acl.mode();
            let (name, value) = (Bytes::from_static(ACL), Bytes::from(acl.encode()));
            inode.xattrs.insert(name.clone(), value.clone());
            inherited.push(Fact::Xattr { obj: inode.id.clone(), name, value: Some(value) });
        }
        let id = inode.id.clone();
        let birth = Birth {
            kind,
            owned: inode.owned,
            rdev: inode.rdev,
            target: inode.target.clone(),
            fileid: self.model.remap.fileid(&id, ino),
        };
        self.model.change(Change::Make(dir, name.clone(), ino, Box::new(inode)));
        if kind == Kind::File {
            self.contents.insert(id.clone(), Vec::new());
        }
        let bind = Fact::Bind { dir: self.id(dir), name, obj: id.clone() };
        let mut facts = vec![Fact::Born { obj: id, birth }, bind, self.mtime(dir)];
        facts.extend(inherited);
        facts
    }

    fn link(&mut self) -> Vec<Fact> {
        let (dir, name) = (self.dir(), self.name());
        let Some(ino) = self.any(|i| i.kind != Kind::Dir) else { return Vec::new() };
        if self.model.live.get(dir).entries.contains_key(&name) || !self.model.live.takes(dir, ino) {
            return Vec::new();
        }
        self.model.change(Change::Link(ino, dir, name.clone()));
        let (obj, nlink) = (self.id(ino), self.model.live.get(ino).nlink);
        vec![
            Fact::Bind { dir: self.id(dir), name, obj: obj.clone() },
            Fact::Links { obj, nlink },
            self.mtime(dir),
        ]
    }

    fn gone(&mut self, obj: &ObjId) {
        self.dead.push(obj.clone());
        self.model.remap.purge(obj);
    }

    fn remove(&mut self) -> Vec<Fact> {
        let Some((dir, name, ino)) = self.entry(|i| i.entries.is_empty()) else { return Vec::new() };
        let obj = self.id(ino);
        self.model.change(Change::Unlink(dir, name.clone()));
        let mut facts = vec![Fact::Unbind { dir: self.id(dir), name, obj: obj.clone() }];
        facts.push(self.links(ino, obj));
        facts.push(self.mtime(dir));
        facts
    }

    fn links(&mut self, ino: u64, obj: ObjId) -> Fact {
        let nlink = self.model.live.inodes.get(&ino).filter(|i| i.id == obj).map_or(0, |i| i.nlink);
        if nlink == 0 {
            self.gone(&obj);
        }
        Fact::Links { obj, nlink }
    }

    fn rename(&mut self) -> Vec<Fact> {
        let Some((from, name, ino)) = self.entry(|_| true) else { return Vec::new() };
        let (to, to_name) = (self.dir(), self.name());
        let is_dir = self.model.live.get(ino).kind == Kind::Dir;
        if is_dir && below(&self.model.live, to, ino) || !self.model.live.takes(to, ino) {
            return Vec::new();
        }
        let victim = self.model.live.get(to).entries.get(&to_name).copied();
        if let Some(v) = victim {
            let i = self.model.live.get(v);
            if v == ino || (i.kind == Kind::Dir) != is_dir || !i.entries.is_empty() {
                return Vec::new();
            }
        }
        let victim = victim.map(|v| (v, self.id(v)));
        let obj = self.id(ino);
        let (from_id, to_id) = (self.id(from), self.id(to));
        self.model.change(Change::Rename(from, name.clone(), to, to_name.clone()));
        let mut facts = Vec::new();
        if let Some((v, victim)) = victim {
            facts.push(Fact::Unbind { dir: to_id.clone(), name: to_name.clone(), obj: victim.clone() });
            facts.push(self.links(v, victim));
        }
        facts.push(Fact::Unbind { dir: from_id, name, obj: obj.clone() });
        facts.push(Fact::Bind { dir: to_id, name: to_name, obj });
        facts.push(self.mtime(from));
        facts.push(self.mtime(to));
        facts
    }

    fn place(&mut self) -> Option<(u64, usize, Bytes)> {
        let ino = self.any(|i| i.kind == Kind::File)?;
        let offset = self.rng.below(self.model.live.get(ino).data.len() + 6);
        Some((ino, offset, self.bytes()))
    }

    /// The number of the batch being filled, from 0.
    fn this_batch(&self) -> usize {
        self.batches.len()
    }

    fn stably(&mut self, obj: &ObjId, offset: usize, bytes: &Bytes) -> Fact {
        let content = self.contents.entry(obj.clone()).or_default();
        content.resize(content.len().max(offset + bytes.len()), 0);
        content[offset..offset + bytes.len()].copy_from_slice(bytes);
        let stable = Some(self.this_batch());
        self.loose.push(Loose { obj: obj.clone(), offset, bytes: bytes.clone(), stable });
        Fact::Data { obj: obj.clone(), offset: offset as u64, bytes: bytes.clone() }
    }

    fn write(&mut self) -> Vec<Fact> {
        let Some((ino, offset, bytes)) = self.place() else { return Vec::new() };
        self.model.change(Change::Write(ino, offset as u64, bytes.clone()));
        let obj = self.id(ino);
        vec![self.stably(&obj, offset, &bytes), self.mtime(ino)]
    }

    /// A write through an open file that has no name any more.
    fn late_write(&mut self) -> Vec<Fact> {
        let Some(obj) = self.rng.pick(&self.dead).cloned() else { return Vec::new() };
        let data = Fact::Data { obj: obj.clone(), offset: 0, bytes: Bytes::from_static(b"late") };
        vec![data, Fact::Links { obj, nlink: 0 }]
    }

    fn unstable_write(&mut self) {
        let Some((ino, offset, bytes)) = self.place() else { return };
        self.model.change(Change::Write(ino, offset as u64, bytes.clone()));
        let obj = self.id(ino);
        self.dirty.entry(obj.clone()).or_default().push((offset, offset + bytes.len()));
        self.loose.push(Loose { obj, offset, bytes, stable: None });
    }

    fn cleaned(&mut self, obj: &ObjId) {
        let stable = Some(self.this_batch());
        self.loose.iter_mut().filter(|l| l.obj == *obj && l.stable.is_none()).for_each(|l| l.stable = stable);
    }

    /// COMMIT of a few bytes, which are copied into the log.
    fn commit(&mut self) -> Vec<Fact> {
        let dirty: Vec<ObjId> = self.dirty.keys().cloned().collect();
        let Some(obj) = self.rng.pick(&dirty).cloned() else { return Vec::new() };
        let ranges = self.dirty.remove(&obj).unwrap_or_default();
        let Some(ino) = self.model.ino(&obj) else { return Vec::new() };
        let data = self.model.live.get(ino).data.clone();
        let mut facts = Vec::new();
        for (from, to) in ranges {
            if from < to.min(data.len()) {
                let bytes = Bytes::copy_from_slice(&data[from..to.min(data.len())]);
                facts.push(self.stably(&obj, from, &bytes));
            }
        }
        self.cleaned(&obj);
        facts.push(self.mtime(ino));
        facts
    }

    /// A write that is flushed to the file.
    fn big_write(&mut self) -> Vec<Fact> {
        let Some((ino, offset, bytes)) = self.place() else { return Vec::new() };
        let obj = self.id(ino);
        self.model.change(Change::Write(ino, offset as u64, bytes.clone()));
        self.loose.push(Loose { obj, offset, bytes, stable: None });
        self.flushed(ino, offset, true)
    }

    /// Flushes to the file what was done to it (among others at `offset`); something else may come between the flush and its
    /// record.
    fn flushed(&mut self, ino: u64, offset: usize, flush: bool) -> Vec<Fact> {
        let obj = self.id(ino);
        if flush {
            self.model.fdatasync(ino);
        }
        self.dirty.remove(&obj);
        self.cleaned(&obj);
        self.contents.insert(obj.clone(), self.model.live.get(ino).data.clone());
        let mut facts = Vec::new();
        if self.rng.chance(30) {
            let bytes = self.bytes();
            self.model.change(Change::Write(ino, offset as u64, bytes.clone()));
            facts.push(self.stably(&obj, offset, &bytes));
        } else if self.rng.chance(30) {
            facts.extend(self.zero(ino, offset, 5));
        }
        let keep = facts.len() as u32;
        facts.push(Fact::Durable { obj, keep });
        facts.push(self.mtime(ino));
        facts
    }

    fn zero(&mut self, ino: u64, offset: usize, len: usize) -> Option<Fact> {
        let end = self.model.live.get(ino).data.len().min(offset + len);
        if offset >= end {
            return None;
        }
        let (obj, len) = (self.id(ino), end - offset);
        self.model.change(Change::Punch(ino, offset as u64, len as u64));
        let content = self.contents.entry(obj.clone()).or_default();
        let stable_end = end.min(content.len());
        content.get_mut(offset..stable_end).into_iter().for_each(|hole| hole.fill(0));
        // This settles unstable writes to that range: only what lies beside the hole stays loose.
        let this = Some(self.this_batch());
        let mut beside = Vec::new();
        for l in self.loose.iter_mut().filter(|l| l.obj == obj && l.stable.is_none()) {
            let (from, to) = (l.offset, l.offset + l.bytes.len());
            if from < end && offset < to {
                for (a, b) in [(from, offset.max(from)), (end.min(to), to)] {
                    let bytes = l.bytes.slice(a - from..b - from);
                    beside.push(Loose { obj: obj.clone(), offset: a, bytes, stable: None });
                }
                l.stable = this;
            }
        }
        self.loose.append(&mut beside);
        let bytes = vec![0; len].into();
        self.loose.push(Loose { obj: obj.clone(), offset, bytes, stable: this });
        Some(Fact::Zero { obj, offset: offset as u64, len: len as u64 })
    }

    fn deallocate(&mut self) -> Vec<Fact> {
        let Some((ino, offset, bytes)) = self.place() else { return Vec::new() };
        let mut facts = Vec::from_iter(self.zero(ino, offset, bytes.len()));
        facts.push(self.mtime(ino));
        facts
    }

    fn allocate(&mut self) -> Vec<Fact> {
        let Some((ino, offset, bytes)) = self.place() else { return Vec::new() };
        let (obj, size) = (self.id(ino), self.model.live.get(ino).data.len());
        self.model.change(Change::Allocate(ino, offset as u64, bytes.len() as u64));
        let grown = vec![0; (offset + bytes.len()).saturating_sub(size)].into();
        self.loose.push(Loose { obj, offset: size, bytes: grown, stable: None });
        self.flushed(ino, offset, true)
    }

    /// Copies from another file, including its unstable data: into the log if it is small, else flushed to the file.
    fn copy(&mut self) -> Vec<Fact> {
        let Some(from) = self.any(|i| i.kind == Kind::File && !i.data.is_empty()) else { return Vec::new() };
        let Some(to) = self.any(|i| i.kind == Kind::File) else { return Vec::new() };
        if from == to {
            return Vec::new();
        }
        let data = self.model.live.get(from).data.clone();
        let (from_offset, offset) = match self.rng.chance(50) {
            // The whole file, which some filesystems clone.
            true => (0, 0),
            false => (self.rng.below(data.len()), self.rng.below(self.model.live.get(to).data.len() + 6)),
        };
        let bytes = Bytes::copy_from_slice(&data[from_offset..]);
        let obj = self.id(to);
        self.model.change(Change::Copy(from, from_offset as u64, to, offset as u64, bytes.clone()));
        if self.rng.chance(40) {
            return vec![self.stably(&obj, offset, &bytes), self.mtime(to)];
        }
        self.loose.push(Loose { obj, offset, bytes, stable: None });
        let mut facts = self.flushed(to, offset, !self.copy_unflushed);
        if self.copy_unsaid {
            facts.retain(|f| !matches!(f, Fact::Durable { .. }));
        }
        facts
    }

    fn truncate(&mut self) -> Vec<Fact> {
        let Some(ino) = self.any(|i| i.kind == Kind::File) else { return Vec::new() };
        let size = self.rng.below(self.model.live.get(ino).data.len() + 8);
        let obj = self.id(ino);
        self.model.change(Change::Truncate(ino, size as u64));
        self.contents.entry(obj.clone()).or_default().resize(size, 0);
        self.cuts.push(Cut { obj: obj.clone(), batch: self.this_batch() });
        for range in self.dirty.get_mut(&obj).into_iter().flatten() {
            *range = (range.0.min(size), range.1.min(size));
        }
        let owned = self.model.live.get(ino).owned;
        vec![Fact::Size { obj: obj.clone(), size: size as u64 }, Fact::Attrs { obj, owned }]
    }

    /// An ACL that permission bits alone cannot express.
    fn acl(&mut self) -> Acl {
        let bits = self.rng.next();
        let perm = |at: u32| (bits >> (at * 3) & 7) as u8;
        let users = BTreeMap::from([(1, perm(0))]);
        Acl { owner: perm(1), users, group: perm(2), mask: Some(perm(3)), other: perm(4), ..Acl::default() }
    }

    /// Sets only an extended attribute, or an ACL and the mode that follows from it.
    fn xattr(&mut self) -> Vec<Fact> {
        let Some(ino) = self.any(|i| i.kind != Kind::Symlink) else { return Vec::new() };
        let obj = self.id(ino);
        let name = XATTRS[self.rng.below(XATTRS.len())];
        let value = match self.rng.chance(70) {
            true if name == ACL => Some(Bytes::from(self.acl().encode())),
            true => Some(self.bytes()),
            false => None,
        };
        let name = Bytes::from_static(name);
        if value.as_ref().is_some_and(|value| !self.model.live.get(ino).takes_xattr(&name, value)) {
            return Vec::new();
        }
        self.model.change(Change::Xattr(ino, name.clone(), value.clone()));
        let mut facts = vec![Fact::Xattr { obj: obj.clone(), name: name.clone(), value }];
        if name == ACL {
            facts.push(Fact::Attrs { obj, owned: self.model.live.get(ino).owned });
        }
        facts
    }

    fn setattr(&mut self) -> Vec<Fact> {
        let Some(ino) = self.any(|i| i.kind != Kind::Symlink) else { return Vec::new() };
        let obj = self.id(ino);
        if self.rng.chance(50) {
            let (uid, gid) = (self.rng.below(3) as u32, self.rng.below(3) as u32);
            self.model.change(Change::Own(ino, uid, gid));
        }
        if self.rng.chance(50) {
            let mode = self.rng.next() as u32 & 0o7777;
            self.model.change(Change::Mode(ino, mode));
        }
        if self.rng.chance(50) {
            let past =
                Timestamp { secs: self.rng.below(900) as i64, nanos: self.rng.below(1_000_000_000) as u32 };
            self.model.change(Change::Times(ino, Some(past), past));
        }
        vec![Fact::Attrs { obj, owned: self.model.live.get(ino).owned }]
    }
}

pub(super) fn below(s: &State, mut dir: u64, top: u64) -> bool {
    while dir != top {
        if dir == ROOT {
            return false;
        }
        dir = s.get(dir).parent;
    }
    true
}

/// What a client knows of an object: its identity and fileid.
pub(super) fn outward(model: &Model, id: &ObjId) -> (ObjId, u64) {
    (model.remap.outward(id).unwrap_or(id).clone(), model.remap.fileid(id, number(id)))
}
