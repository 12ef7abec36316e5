//! A filesystem in memory that can lose power.
//!
//! It keeps the state of the last flush and every change since. A power cut leaves the metadata changes up to some point in
//! their order, each of them whole (what ext4, XFS and btrfs promise without fsync of single files). Of the written data any
//! pieces before that point may be missing, and later overwrites in place may be there.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};

use bytes::Bytes;

use crate::acl::Acl;
use crate::faults::{Bug, bug};
use crate::record::{Birth, KernelHandle, Kind, ObjId, Owned, Timestamp};
use crate::recover::tree::{KeptTimes, Made, Meta, Tree};
use crate::remap::Remap;

/// Small and fast random numbers (splitmix64); a seed gives the same numbers everywhere.
#[derive(Clone)]
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// True with a probability of `percent` %.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { Some(&from[self.below(from.len())]) }
    }
}

pub(super) const ROOT: u64 = 1;
pub(super) const STAGE: u64 = 2;
pub(super) const LOST: u64 = 3;
const FIRST: u64 = 10;

/// The extended attribute that sets permission bits and changes with them.
pub(super) const ACL: &[u8] = b"system.posix_acl_access";

#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) id: ObjId,
    pub(super) kind: Kind,
    pub(super) nlink: u32,
    pub(super) owned: Owned,
    pub(super) rdev: (u32, u32),
    pub(super) target: Bytes,
    pub(super) xattrs: BTreeMap<Bytes, Bytes>,
    pub(super) data: Vec<u8>,
    pub(super) entries: BTreeMap<Bytes, u64>,
    pub(super) parent: u64,
    /// A directory passes it on to new entries and accepts only objects with the same one; 0: none.
    pub(super) project: u32,
}

impl Inode {
    /// Whether there is room for an extended attribute beside the others. ACLs have room of their own.
    pub(super) fn takes_xattr(&self, name: &[u8], value: &[u8]) -> bool {
        let others = self.xattrs.iter().filter(|(other, _)| *other != name && *other != ACL);
        name == ACL || others.map(|(_, value)| value.len()).sum::<usize>() + value.len() <= XATTR_BYTES_MAX
    }

    fn meta(&self) -> Meta {
        Meta { kind: self.kind, nlink: self.nlink, size: self.data.len() as u64, owned: self.owned }
    }
}

/// So much fits into an object, as ext4 has a limit: of two attributes, either may be of full size, but not both.
const XATTR_BYTES_MAX: usize = 14;

/// One change, atomic on disk (for a write: its metadata).
#[derive(Clone, Debug)]
pub(super) enum Change {
    Make(u64, Bytes, u64, Box<Inode>),
    Link(u64, u64, Bytes),
    Unlink(u64, Bytes),
    Rename(u64, Bytes, u64, Bytes),
    Write(u64, u64, Bytes),
    /// Object, offset, length; within the file.
    Punch(u64, u64, u64),
    /// Source object and offset, target object and offset, the copied bytes.
    Copy(u64, u64, u64, u64, Bytes),
    /// Object, offset, length: the file grows to hold it.
    Allocate(u64, u64, u64),
    Truncate(u64, u64),
    Own(u64, u32, u32),
    Mode(u64, u32),
    Times(u64, Option<Timestamp>, Timestamp),
    Xattr(u64, Bytes, Option<Bytes>),
    Marker(u64),
}

impl Change {
    /// The bytes that it wrote, of which a power cut may leave any part: object, offset, bytes, and whether the file grew.
    fn written(&self) -> Option<(u64, u64, Bytes, bool)> {
        match self {
            Change::Write(ino, offset, bytes) | Change::Copy(_, _, ino, offset, bytes) => {
                Some((*ino, *offset, bytes.clone(), true))
            }
            Change::Punch(ino, offset, len) => Some((*ino, *offset, vec![0; *len as usize].into(), false)),
            _ => None,
        }
    }
}

/// An operation on the model, to be repeated on a filesystem.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Change(Change, Timestamp),
    Fdatasync(u64),
    Flush,
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) marker: u64,
    generation: u64,
}

impl State {
    pub(super) fn get(&self, ino: u64) -> &Inode {
        &self.inodes[&ino]
    }

    /// Whether an object may get a name in a directory.
    pub(super) fn takes(&self, dir: u64, ino: u64) -> bool {
        let project = self.get(dir).project;
        project == 0 || project == self.get(ino).project
    }

    fn at(&mut self, ino: u64) -> Option<&mut Inode> {
        self.inodes.get_mut(&ino)
    }

    fn touch(&mut self, dir: u64, now: Timestamp) {
        if let Some(d) = self.at(dir) {
            d.owned.mtime = now;
        }
    }

    fn drop_name(&mut self, dir: u64, name: &Bytes) {
        let Some(ino) = self.at(dir).and_then(|d| d.entries.remove(name)) else { return };
        if let Some(i) = self.at(ino) {
            i.nlink -= 1;
            if i.nlink == 0 || i.kind == Kind::Dir {
                self.inodes.remove(&ino);
            }
        }
    }

    /// Metadata changes are applied only to a state that has all earlier ones, so this cannot fail.
    pub(super) fn apply(&mut self, change: &Change, now: Timestamp) {
        match change {
            Change::Make(dir, name, ino, inode) => {
                self.inodes.insert(*ino, (**inode).clone());
                self.at(*dir).map(|d| d.entries.insert(name.clone(), *ino));
                self.touch(*dir, now);
            }
            Change::Link(ino, dir, name) => {
                self.at(*ino).into_iter().for_each(|i| i.nlink += 1);
                self.at(*dir).map(|d| d.entries.insert(name.clone(), *ino));
                self.touch(*dir, now);
            }
            Change::Unlink(dir, name) => {
                self.drop_name(*dir, name);
                self.touch(*dir, now);
            }
            Change::Rename(dir, name, to, to_name) => {
                let ino = self.at(*dir).and_then(|d| d.entries.remove(name));
                self.drop_name(*to, to_name);
                if let Some(ino) = ino {
                    self.at(*to).map(|d| d.entries.insert(to_name.clone(), ino));
                    self.at(ino).into_iter().for_each(|i| i.parent = *to);
                }
                self.touch(*dir, now);
                self.touch(*to, now);
            }
            Change::Write(ino, offset, bytes) | Change::Copy(_, _, ino, offset, bytes) => {
                self.fill(*ino, *offset, bytes, true);
                self.touch(*ino, now);
            }
            Change::Punch(ino, offset, len) => {
                self.fill(*ino, *offset, &vec![0; *len as usize], false);
                self.touch(*ino, now);
            }
            Change::Allocate(ino, offset, len) => {
                let end = (*offset + *len) as usize;
                self.at(*ino).into_iter().for_each(|i| i.data.resize(i.data.len().max(end), 0));
                self.touch(*ino, now);
            }
            Change::Truncate(ino, size) => {
                self.at(*ino).into_iter().for_each(|i| i.data.resize(*size as usize, 0));
                self.touch(*ino, now);
            }
            Change::Own(ino, uid, gid) => self.at(*ino).into_iter().for_each(|i| {
                (i.owned.uid, i.owned.gid) = (*uid, *gid);
                if i.kind == Kind::File {
                    i.owned.mode &= 0o1777;
                }
            }),
            Change::Mode(ino, mode) => self.at(*ino).into_iter().for_each(|i| {
                i.owned.mode = *mode;
                if let Some(acl) = i.xattrs.get_mut(ACL) {
                    let changed = Acl::decode(acl).expect("an ACL").with_mode(*mode);
                    *acl = changed.encode().into();
                }
            }),
            Change::Times(ino, atime, mtime) => self.at(*ino).into_iter().for_each(|i| {
                i.owned.atime = atime.unwrap_or(i.owned.atime);
                i.owned.mtime = *mtime;
            }),
            Change::Xattr(ino, name, value) => self.at(*ino).into_iter().for_each(|i| match value {
                Some(v) => {
                    if name == ACL {
                        let bits = Acl::decode(v).expect("an ACL").mode();
                        i.owned.mode = i.owned.mode & 0o7000 | bits;
                    }
                    i.xattrs.insert(name.clone(), v.clone());
                }
                None => _ = i.xattrs.remove(name),
            }),
            Change::Marker(seq) => self.marker = *seq,
        }
    }

    fn fill(&mut self, ino: u64, offset: u64, bytes: &[u8], grow: bool) {
        let Some(i) = self.at(ino) else { return };
        let mut end = offset as usize + bytes.len();
        if !grow {
            end = end.min(i.data.len()).max(offset as usize);
        }
        if i.data.len() < end {
            i.data.resize(end, 0);
        }
        if let Some(place) = i.data.get_mut(offset as usize..end) {
            place.copy_from_slice(&bytes[..place.len()]);
        }
    }

    fn is_below(&self, mut dir: u64, top: u64) -> bool {
        while dir != top {
            if dir == ROOT || dir == STAGE || dir == LOST {
                return false;
            }
            dir = self.get(dir).parent;
        }
        true
    }
}

/// How many bytes reach the disk together.
const PIECE: usize = 3;

pub(super) struct Model {
    base: State,
    pub(super) live: State,
    /// Changes since `base`; a flushed data write is marked.
    pub(super) changes: Vec<(Change, Timestamp, bool)>,
    /// How many of them are certainly on disk.
    floor: usize,
    pub(super) clock: i64,
    /// Handles are reused after a crash, as on btrfs.
    reissue: bool,
    /// The filesystem has room for so many objects.
    pub(super) inodes_max: usize,
    /// How often recovery met that limit.
    pub(super) refused: u64,
    rng: Rng,
    pub(super) remap: Remap,
    /// How many more modifying calls succeed before the power fails.
    pub(super) fuse: Option<usize>,
    /// A crash loses the remap table (a deliberate fault).
    pub(super) volatile_rows: bool,
    /// The inode number alone is the identity (a deliberate fault).
    pub(super) numbers_only: bool,
    /// Birth times are not compared (a deliberate fault).
    pub(super) no_birth_times: bool,
    /// Objects taken for another one because they have its name (a deliberate fault).
    pub(super) mistaken: BTreeMap<ObjId, ObjId>,
    /// The mode is set before the owner (a deliberate fault).
    pub(super) mode_before_owner: bool,
    /// The mode is set before an ACL (a deliberate fault).
    pub(super) mode_before_acl: bool,
    durable_rows: Remap,
    kept_times: Option<(u64, KeptTimes)>,
    pub(super) trace: Option<Vec<Step>>,
}

impl Model {
    pub(super) fn new(seed: u64, reissue: bool) -> Model {
        let mut live = State::default();
        for ino in [ROOT, STAGE, LOST] {
            let mut dir = blank(Kind::Dir);
            dir.id = object_id(ino, 0, 1);
            dir.parent = ROOT;
            live.inodes.insert(ino, dir);
        }
        Model {
            base: live.clone(),
            live,
            changes: Vec::new(),
            floor: 0,
            clock: 1000,
            reissue,
            inodes_max: usize::MAX,
            refused: 0,
            rng: Rng(seed),
            remap: Remap::default(),
            fuse: None,
            volatile_rows: false,
            numbers_only: false,
            no_birth_times: false,
            mistaken: BTreeMap::new(),
            mode_before_owner: false,
            mode_before_acl: false,
            durable_rows: Remap::default(),
            kept_times: None,
            trace: None,
        }
    }

    pub(super) fn now(&mut self) -> Timestamp {
        self.clock += 1;
        Timestamp { secs: self.clock, nanos: 7 }
    }

    pub(super) fn change(&mut self, change: Change) -> Timestamp {
        let now = self.now();
        self.live.apply(&change, now);
        self.step(|| Step::Change(change.clone(), now));
        self.changes.push((change, now, false));
        now
    }

    fn step(&mut self, step: impl FnOnce() -> Step) {
        if let Some(trace) = &mut self.trace {
            trace.push(step());
        }
    }

    pub(super) fn has_inode(&self) -> bool {
        self.live.inodes.len() < self.inodes_max
    }

    /// A new inode that has no name yet.
    pub(super) fn inode(&mut self, kind: Kind, parent: u64) -> (u64, Inode) {
        let ino = self.live.inodes.last_key_value().map_or(FIRST, |(last, _)| (*last + 1).max(FIRST));
        let generation = if self.reissue { self.live.generation } else { self.rng.next() & 0xffff };
        let mut inode = blank(kind);
        let now = self.now();
        inode.id = object_id(ino, generation, now.secs);
        inode.owned.atime = now;
        inode.owned.mtime = now;
        inode.parent = parent;
        inode.project = self.live.get(parent).project;
        (ino, inode)
    }

    /// `fdatasync` on a filesystem with one journal: flushes all metadata so far and the file's data.
    pub(super) fn fdatasync(&mut self, ino: u64) {
        self.step(|| Step::Fdatasync(ino));
        self.floor = self.changes.len();
        for (change, _, flushed) in &mut self.changes {
            *flushed |= change.written().is_some_and(|(i, ..)| i == ino);
        }
    }

    pub(super) fn flush(&mut self) {
        self.step(|| Step::Flush);
        self.floor = self.changes.len();
        self.changes.iter_mut().for_each(|c| c.2 = true);
        self.live.generation += 1;
    }

    /// Forgets the history of the present state, which must be on disk.
    pub(super) fn settle(&mut self) {
        self.base = self.live.clone();
        self.changes.clear();
        self.floor = 0;
    }

    /// The state after the first `n` changes, nothing lost.
    pub(super) fn after(&self, n: usize) -> State {
        let mut s = self.base.clone();
        self.changes[..n].iter().for_each(|(change, now, _)| s.apply(change, *now));
        s
    }

    /// How many metadata changes reach the disk if the power fails now.
    pub(super) fn survivors(&mut self) -> usize {
        self.floor + self.rng.below(self.changes.len() - self.floor + 1)
    }

    /// Cuts the power, with `cut` metadata changes on disk.
    pub(super) fn crash(&mut self, cut: usize) {
        let changes = std::mem::take(&mut self.changes);
        let mut s = self.base.clone();
        s.generation = self.live.generation;
        for (i, (change, now, flushed)) in changes.iter().enumerate() {
            match change.written() {
                Some((ino, offset, bytes, grow)) if i < cut && !flushed => {
                    let lost = self.rng.below(100);
                    for (n, piece) in bytes.chunks(PIECE).enumerate() {
                        if !self.rng.chance(lost) {
                            s.fill(ino, offset + (n * PIECE) as u64, piece, grow);
                        }
                    }
                    s.touch(ino, *now);
                }
                // Overwritten in place, without metadata.
                Some((ino, offset, bytes, _)) if i >= cut && self.rng.chance(30) => {
                    let size = s.inodes.get(&ino).map_or(0, |i| i.data.len());
                    let same = s.inodes.get(&ino).map(|i| &i.id) == self.live.inodes.get(&ino).map(|i| &i.id);
                    if same && offset as usize + bytes.len() <= size {
                        s.fill(ino, offset, &bytes, false);
                    }
                }
                _ if i < cut => s.apply(change, *now),
                _ => {}
            }
        }
        self.live = s;
        self.settle();
        self.remap = if self.volatile_rows { Remap::default() } else { self.durable_rows.clone() };
        self.clock += 10;
    }

    /// Second half of a checkpoint.
    pub(super) fn drop_purged(&mut self) {
        if self.remap.drop_purged() {
            self.keep_rows();
        }
    }

    fn keep_rows(&mut self) {
        // Through the encoding, so that it is tested, too.
        let bytes = self.remap.encode().expect("rows encode");
        self.durable_rows = Remap::decode(&bytes).expect("rows decode");
    }

    pub(super) fn ino(&self, id: &ObjId) -> Option<u64> {
        let id = self.mistaken.get(id).unwrap_or(id);
        let ino = u64::from_le_bytes(id.kh.bytes.get(..8)?.try_into().ok()?);
        let found = &self.live.inodes.get(&ino)?.id;
        let same = if self.numbers_only {
            true
        } else if self.no_birth_times {
            found.kh == id.kh
        } else {
            found == id
        };
        same.then_some(ino)
    }

    fn need(&self, id: &ObjId) -> Result<u64> {
        self.ino(id).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn blown(&mut self) -> Result<()> {
        if let Some(left) = &mut self.fuse {
            if *left == 0 {
                return Err(Error::other("power cut"));
            }
            *left -= 1;
        }
        Ok(())
    }

    fn do_change(&mut self, change: Change) -> Result<()> {
        self.blown()?;
        self.change(change);
        Ok(())
    }

    fn free(&self, dir: u64, name: &[u8]) -> Result<()> {
        if self.live.get(dir).kind != Kind::Dir {
            return Err(ErrorKind::NotADirectory.into());
        }
        if self.live.get(dir).entries.contains_key(name) {
            Err(ErrorKind::AlreadyExists.into())
        } else {
            Ok(())
        }
    }

    fn named(&self, dir: u64, name: &[u8]) -> Result<u64> {
        self.live.get(dir).entries.get(name).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

pub(super) fn blank(kind: Kind) -> Inode {
    let id = object_id(0, 0, 0);
    let mode = if kind == Kind::Symlink { 0o777 } else { 0o600 };
    let owned = Owned { mode, ..Owned::default() };
    let (xattrs, entries) = (BTreeMap::new(), BTreeMap::new());
    Inode {
        id,
        kind,
        nlink: 1,
        owned,
        rdev: (0, 0),
        target: Bytes::new(),
        xattrs,
        data: Vec::new(),
        entries,
        parent: 0,
        project: 0,
    }
}

pub(super) fn object_id(ino: u64, generation: u64, born: i64) -> ObjId {
    let mut bytes = ino.to_le_bytes().to_vec();
    bytes.extend_from_slice(&generation.to_le_bytes());
    ObjId { kh: KernelHandle { kind: 1, bytes: bytes.into() }, btime_ns: born }
}

pub(super) fn number(id: &ObjId) -> u64 {
    id.kh.bytes.get(..8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Tree for Model {
    fn probe(&mut self, obj: &ObjId) -> Result<Option<Meta>> {
        Ok(self.ino(obj).map(|ino| self.live.get(ino).meta()))
    }

    fn lookup(&mut self, dir: &ObjId, name: &[u8]) -> Result<Option<(ObjId, Kind)>> {
        let dir = self.need(dir)?;
        let found = self.live.get(dir).entries.get(name).map(|ino| self.live.get(*ino));
        Ok(found.map(|i| {
            let mistaken = self.mistaken.iter().find(|(_, real)| **real == i.id);
            (mistaken.map_or(&i.id, |(taken_for, _)| taken_for).clone(), i.kind)
        }))
    }

    fn hands_down(&mut self, dir: &ObjId) -> Result<bool> {
        Ok(!bug(Bug::ProjectIgnored) && self.live.get(self.need(dir)?).project != 0)
    }

    fn path(&mut self, dir: &ObjId) -> Result<Option<String>> {
        let Some(mut ino) = self.ino(dir).filter(|ino| self.live.get(*ino).kind == Kind::Dir) else {
            return Ok(None);
        };
        let mut parts = Vec::new();
        while ino != ROOT {
            let parent = self.live.get(ino).parent;
            let entries = self.live.inodes.get(&parent).into_iter().flat_map(|p| &p.entries);
            let name = entries.filter(|(_, n)| **n == ino).map(|(name, _)| name).next();
            let Some(name) = name else { return Ok(None) };
            parts.push(String::from_utf8_lossy(name).into_owned());
            ino = parent;
        }
        parts.reverse();
        Ok(Some(parts.join("/")))
    }

    fn list(&mut self, dir: &ObjId) -> Result<Vec<Bytes>> {
        let dir = self.need(dir)?;
        Ok(self.live.get(dir).entries.keys().cloned().collect())
    }

    fn stage(&self) -> ObjId {
        self.live.get(STAGE).id.clone()
    }

    fn lost_found(&self) -> ObjId {
        self.live.get(LOST).id.clone()
    }

    fn make(&mut self, dir: &ObjId, name: &[u8], birth: &Birth, _mode: u32) -> Result<Made> {
        let dir = self.need(dir)?;
        self.free(dir, name)?;
        if !self.has_inode() {
            self.refused += 1;
            return Err(rustix::io::Errno::NOSPC.into());
        }
        let (ino, mut inode) = self.inode(birth.kind, dir);
        (inode.rdev, inode.target) = (birth.rdev, birth.target.clone());
        let made = (inode.id.clone(), inode.meta());
        self.do_change(Change::Make(dir, Bytes::copy_from_slice(name), ino, Box::new(inode)))?;
        Ok(made)
    }

    fn link(&mut self, obj: &ObjId, dir: &ObjId, name: &[u8]) -> Result<()> {
        let (ino, dir) = (self.need(obj)?, self.need(dir)?);
        self.free(dir, name)?;
        if self.live.get(ino).kind == Kind::Dir {
            return Err(ErrorKind::PermissionDenied.into());
        }
        if !self.live.takes(dir, ino) {
            return Err(ErrorKind::CrossesDevices.into());
        }
        self.do_change(Change::Link(ino, dir, Bytes::copy_from_slice(name)))
    }

    fn rename(&mut self, from: (&ObjId, &[u8]), to: (&ObjId, &[u8])) -> Result<()> {
        let (dir, to_dir) = (self.need(from.0)?, self.need(to.0)?);
        let ino = self.named(dir, from.1)?;
        self.free(to_dir, to.1)?;
        if self.live.get(ino).kind == Kind::Dir && self.live.is_below(to_dir, ino) {
            return Err(ErrorKind::InvalidInput.into());
        }
        if !self.live.takes(to_dir, ino) {
            return Err(ErrorKind::CrossesDevices.into());
        }
        let (a, b) = (Bytes::copy_from_slice(from.1), Bytes::copy_from_slice(to.1));
        self.do_change(Change::Rename(dir, a, to_dir, b))
    }

    fn unlink(&mut self, dir: &ObjId, name: &[u8]) -> Result<()> {
        let dir = self.need(dir)?;
        if self.live.get(self.named(dir, name)?).kind == Kind::Dir {
            return Err(ErrorKind::IsADirectory.into());
        }
        self.do_change(Change::Unlink(dir, Bytes::copy_from_slice(name)))
    }

    fn rmdir(&mut self, dir: &ObjId, name: &[u8]) -> Result<bool> {
        let dir = self.need(dir)?;
        let victim = self.live.get(self.named(dir, name)?);
        if victim.kind != Kind::Dir {
            return Err(ErrorKind::NotADirectory.into());
        }
        if !victim.entries.is_empty() {
            return Ok(false);
        }
        self.do_change(Change::Unlink(dir, Bytes::copy_from_slice(name)))?;
        Ok(true)
    }

    fn write(&mut self, obj: &ObjId, offset: u64, bytes: &Bytes) -> Result<()> {
        let ino = self.need(obj)?;
        self.do_change(Change::Write(ino, offset, bytes.clone()))
    }

    fn read_disk(&mut self, obj: &ObjId, offset: u64) -> Result<Vec<u8>> {
        let data = &self.live.get(self.need(obj)?).data;
        Ok(data.get(offset as usize..).unwrap_or_default().to_vec())
    }

    fn punch(&mut self, obj: &ObjId, offset: u64, len: u64) -> Result<()> {
        let ino = self.need(obj)?;
        self.do_change(Change::Punch(ino, offset, len))
    }

    fn truncate(&mut self, obj: &ObjId, size: u64) -> Result<()> {
        let ino = self.need(obj)?;
        self.do_change(Change::Truncate(ino, size))
    }

    fn chown(&mut self, obj: &ObjId, uid: u32, gid: u32) -> Result<()> {
        let ino = self.need(obj)?;
        self.do_change(Change::Own(ino, uid, gid))
    }

    fn chmod(&mut self, obj: &ObjId, mode: u32) -> Result<()> {
        let ino = self.need(obj)?;
        if self.live.get(ino).kind == Kind::Symlink {
            return Err(ErrorKind::Unsupported.into());
        }
        if self.mode_before_owner
            && matches!(self.changes.last(), Some((Change::Own(i, ..), ..)) if *i == ino)
        {
            return Ok(());
        }
        if self.mode_before_acl
            && matches!(self.changes.last(), Some((Change::Xattr(i, ..), ..)) if *i == ino)
        {
            return Ok(());
        }
        self.do_change(Change::Mode(ino, mode))
    }

    fn set_times(&mut self, obj: &ObjId, atime: Option<Timestamp>, mtime: Timestamp) -> Result<()> {
        let ino = self.need(obj)?;
        self.do_change(Change::Times(ino, atime, mtime))
    }

    fn xattr(&mut self, obj: &ObjId, name: &[u8]) -> Result<Option<Bytes>> {
        let ino = self.need(obj)?;
        Ok(self.live.get(ino).xattrs.get(name).cloned())
    }

    fn set_xattr(&mut self, obj: &ObjId, name: &[u8], value: Option<&Bytes>) -> Result<()> {
        let ino = self.need(obj)?;
        if value.is_some_and(|value| !self.live.get(ino).takes_xattr(name, value)) {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        self.do_change(Change::Xattr(ino, Bytes::copy_from_slice(name), value.cloned()))
    }

    fn sync(&mut self) -> Result<()> {
        self.blown()?;
        self.flush();
        Ok(())
    }

    /// Sometimes it claims to be full.
    fn room(&mut self) -> Result<u64> {
        Ok(if self.rng.chance(30) { 0 } else { u64::MAX })
    }

    fn remapped(&self, old: &ObjId) -> Option<ObjId> {
        self.remap.inward(old).cloned()
    }

    fn save_rows(&mut self, rows: Vec<(ObjId, ObjId, u64)>) -> Result<()> {
        self.blown()?;
        for (old, new, fileid) in rows {
            self.remap.insert(old, new, fileid);
        }
        self.keep_rows();
        Ok(())
    }

    fn kept_times(&mut self, marker: u64) -> Result<Option<KeptTimes>> {
        Ok(self.kept_times.as_ref().filter(|(m, _)| *m == marker).map(|(_, times)| times.clone()))
    }

    fn keep_times(&mut self, marker: u64, times: Option<&KeptTimes>) -> Result<()> {
        self.blown()?;
        self.kept_times = times.map(|t| (marker, t.clone()));
        Ok(())
    }
}
