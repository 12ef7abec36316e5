//! Folds the records since the last checkpoint into the state that the volume must have. Pure: no I/O.
//!
//! The result says
//! - for each directory entry that a record touched: which object it names, or that it names none;
//! - for each object that a record touched: whether it lives, its attributes, and the steps on its contents that still matter.
//!
//! The history is dropped: an object that was made and removed again is dead and is never made. Data that a later
//! `Durable` covers or a later truncation cuts off is never written.
//!
//! Invariants of a [`Fold`] (checked here; a log that breaks them is refused):
//! - an entry names a living object, in a living directory;
//! - a directory has at most one name; an object whose birth is in the log has at least one name, or is dead;
//! - a record removes an entry only from the object that it names, and sets one only when it names nothing.
//!
//! Somebody who changes the directory behind the server's back can cause records that break these. Then the later record
//! counts, and the case is noted ([`Fold::strange`]). [`Fold::new`] and [`Fold::of`] refuse such a log; [`Fold::resolved`]
//! goes on.
//!
//! What is certainly on disk (`docs/internals/recovery.md`, *Behind or ahead*) needs no recovery: where the disk now differs,
//! somebody else has changed it since.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::objmap::ObjMap;
use crate::record::{Birth, Fact, Kind, ObjId, Owned, Record, RecordError, Timestamp};

#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    #[error("record {at} of the log: {why}")]
    Record { at: usize, why: RecordError },
    /// Records contradict each other: a bug of the program that wrote them.
    #[error("record {at} of the log contradicts the ones before: {what} (object {obj})")]
    Contradiction {
        /// Which record, counted from 0; the number of records if the end state is impossible.
        at: usize,
        obj: ObjId,
        what: &'static str,
    },
}

/// What recovery does to the contents of a regular file, in this order: cut, write, set the size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The size to which the file is cut first. Everything from here on was cut off at some time, so what the disk holds
    /// there is stale.
    pub cut: Option<u64>,
    /// What is then written or made a hole, in this order, without what a later truncation removed.
    pub writes: Vec<(u64, Fill)>,
    /// The final size. `None`: the size was never set, so the writes determine it.
    pub size: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fill {
    /// These bytes; the file grows if they reach beyond its end.
    Bytes(Bytes),
    /// A hole of this many bytes; the file does not grow.
    Zero(u64),
}

impl Fill {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Fill::Bytes(bytes) => bytes.len() as u64,
            Fill::Zero(len) => *len,
        }
    }

    /// Bytes that it takes on the disk.
    pub(crate) fn room(&self) -> u64 {
        match self {
            Fill::Bytes(bytes) => bytes.len() as u64,
            Fill::Zero(_) => 0,
        }
    }

    fn shorten(&mut self, keep: u64) {
        match self {
            Fill::Bytes(bytes) => bytes.truncate(usize::try_from(keep).unwrap_or(usize::MAX)),
            Fill::Zero(len) => *len = keep.min(*len),
        }
    }
}

impl Content {
    pub fn is_empty(&self) -> bool {
        *self == Content::default()
    }

    /// Does to `piece`, which are a file's bytes from `at` on, what the steps do to the file; with `end`, not beyond that.
    pub(crate) fn do_to(&self, piece: &mut [u8], at: u64, cut: Option<u64>, end: Option<u64>) {
        let end = end.unwrap_or(u64::MAX).saturating_sub(at).min(piece.len() as u64);
        // The part of it between two places in the file, and how much of what is put there lies before it.
        let part = |from: u64, to: u64| {
            let (start, stop) = (from.saturating_sub(at).min(end), to.saturating_sub(at).min(end));
            (start as usize..stop as usize, at.saturating_sub(from) as usize)
        };
        if let Some(cut) = cut {
            piece[part(cut, u64::MAX).0].fill(0);
        }
        for (offset, fill) in &self.writes {
            let (range, before) = part(*offset, offset.saturating_add(fill.len()));
            match fill {
                Fill::Bytes(bytes) if !range.is_empty() => {
                    let len = range.len();
                    piece[range].copy_from_slice(&bytes[before..before + len]);
                }
                Fill::Bytes(_) => {}
                Fill::Zero(_) => piece[range].fill(0),
            }
        }
    }

    /// A part of it gives back room to the filesystem.
    pub(crate) fn gives_room(&self) -> bool {
        self.cut.is_some() || self.writes.iter().any(|(_, fill)| matches!(fill, Fill::Zero(_)))
    }

    /// The size of a file that was empty before the writes.
    pub(crate) fn filled(&self) -> u64 {
        let end = |(offset, fill): &(u64, Fill)| match fill {
            Fill::Bytes(bytes) => offset + bytes.len() as u64,
            Fill::Zero(_) => 0,
        };
        self.writes.iter().map(end).max().unwrap_or(0)
    }

    fn from_ops(ops: Vec<Op>) -> Content {
        let mut c = Content { writes: Vec::with_capacity(ops.len()), ..Content::default() };
        for op in ops {
            match op {
                Op::Size(size) => {
                    c.cut = Some(c.cut.map_or(size, |cut| cut.min(size)));
                    c.size = Some(size);
                    c.writes.retain_mut(|(offset, fill)| {
                        let keep = size.saturating_sub(*offset).min(fill.len());
                        fill.shorten(keep);
                        keep > 0
                    });
                }
                Op::Data(offset, bytes) => {
                    if bytes.is_empty() {
                        continue;
                    }
                    c.size = c.size.map(|size| size.max(offset + bytes.len() as u64));
                    c.writes.push((offset, Fill::Bytes(bytes)));
                }
                Op::Zero(_, 0) => {}
                Op::Zero(offset, len) => c.writes.push((offset, Fill::Zero(len))),
            }
        }
        c
    }
}

#[derive(Debug)]
enum Op {
    Size(u64),
    Data(u64, Bytes),
    Zero(u64, u64),
}

#[derive(Debug, Default)]
pub struct Plan {
    /// How to make it, if its birth is in the log. `None`: it is older than the log, so it must be on disk.
    pub birth: Option<Birth>,
    pub dead: bool,
    pub owned: Option<Owned>,
    /// The mtime, if the log states it without `owned`.
    pub mtime: Option<Timestamp>,
    /// Extended attributes that must have this value, or must be absent (`None`).
    pub xattrs: BTreeMap<Bytes, Option<Bytes>>,
    pub content: Content,
    /// The log relies on data that only the disk has: the object cannot be made again.
    pub relies_on_disk: bool,
    pub links: Option<u32>,
    /// The touched entries that must name it.
    pub names: Vec<(ObjId, Bytes)>,
    pub(crate) is_dir: bool,
    /// A crash cannot have lost it: its birth is older than what is certainly on disk.
    pub(crate) must_be_there: bool,
    /// Its owner, mode and extended attributes are certainly on disk.
    pub(crate) dressed: bool,
    /// Entries that no longer name it, but may still do so on disk after a crash.
    pub(crate) left: Vec<(ObjId, Bytes)>,
    pub(crate) born_in: Option<ObjId>,
    /// The last entry that the log mentions for it, for messages.
    pub(crate) place: Option<(ObjId, Bytes)>,
    /// Somebody else removed it from the entry that the log knows.
    stray: bool,
    ops: Vec<Op>,
}

/// A contradiction between records. It arises when somebody moves, removes or makes something behind the server's back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strange {
    /// Which record, counted from 0; the number of records if the end state is impossible.
    pub at: usize,
    pub obj: ObjId,
    pub what: &'static str,
}

/// The state that the volume must have, as far as the log knows.
#[derive(Debug, Default)]
pub struct Fold {
    /// For each directory the entries that a record touched, and what each must name.
    pub entries: BTreeMap<ObjId, BTreeMap<Bytes, Option<ObjId>>>,
    pub objects: ObjMap<Plan>,
    /// The server's own bytes ([`Fact::Note`]), in order.
    pub notes: Vec<Vec<u8>>,
    pub last_seq: u64,
    pub records: usize,
    /// Changes by others, as far as the records show them. At most as many as there are records.
    pub strange: Vec<Strange>,
    /// The metadata of this many records, counted from the first, is certainly on disk.
    certain: usize,
    /// Entries that later records touch; empty if `certain` is 0.
    late: BTreeMap<ObjId, BTreeSet<Bytes>>,
}

/// How many of `records` have their names and attributes certainly on disk, if the volume's marker holds the number `marker`:
/// all records in batches before the batch of that transaction. `ends` says where each batch ends.
pub fn certain(records: &[Vec<u8>], ends: &[usize], marker: u64) -> usize {
    let mut start = 0;
    for end in ends {
        let batch = records.get(start..*end).unwrap_or_default();
        if batch.iter().any(|bytes| Record::number_of(bytes).is_none_or(|seq| seq >= marker)) {
            return start;
        }
        start = *end;
    }
    start
}

impl Fold {
    pub fn new(records: impl IntoIterator<Item = Vec<u8>>) -> Result<Fold, FoldError> {
        Fold::resolved(records, 0)?.unanimous()
    }

    pub fn of(records: impl IntoIterator<Item = Record>) -> Result<Fold, FoldError> {
        let mut f = Fold::default();
        records.into_iter().try_for_each(|r| f.take(r))?;
        f.finish()?.unanimous()
    }

    /// Folds encoded records, oldest first. The names and attributes of the first `certain` ones are on disk. Goes on where
    /// records show that others changed the directory.
    pub fn resolved(records: impl IntoIterator<Item = Vec<u8>>, certain: usize) -> Result<Fold, FoldError> {
        let mut f = Fold { certain, ..Fold::default() };
        for (at, bytes) in records.into_iter().enumerate() {
            let record = Record::decode(&bytes).map_err(|why| FoldError::Record { at, why })?;
            drop(bytes);
            f.take(record)?;
        }
        f.finish()
    }

    #[cfg(test)]
    pub(crate) fn resolved_of(
        records: impl IntoIterator<Item = Record>,
        certain: usize,
    ) -> Result<Fold, FoldError> {
        let mut f = Fold { certain, ..Fold::default() };
        records.into_iter().try_for_each(|r| f.take(r))?;
        f.finish()
    }

    /// Refuses records that show changes by others.
    pub fn unanimous(self) -> Result<Fold, FoldError> {
        match self.strange.first() {
            Some(Strange { at, obj, what }) => {
                Err(FoldError::Contradiction { at: *at, obj: obj.clone(), what })
            }
            None => Ok(self),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    fn plan(&mut self, obj: ObjId) -> &mut Plan {
        self.objects.entry(obj).or_default()
    }

    fn take(&mut self, record: Record) -> Result<(), FoldError> {
        let at = self.records;
        self.records += 1;
        self.last_seq = self.last_seq.max(record.seq);
        for fact in record.facts {
            self.fact(at, fact)?;
        }
        Ok(())
    }

    fn fact(&mut self, at: usize, fact: Fact) -> Result<(), FoldError> {
        let refuse = |obj: &ObjId, what| Err(FoldError::Contradiction { at, obj: obj.clone(), what });
        let settled = at < self.certain;
        match fact {
            Fact::Bind { dir, name, obj } => {
                let d = self.plan(dir.clone());
                d.is_dir = true;
                if d.dead {
                    return refuse(&dir, "an entry in a directory that is gone");
                }
                let plan = self.plan(obj.clone());
                if plan.dead {
                    return refuse(&obj, "a name for an object that is gone");
                }
                plan.stray = false;
                if plan.birth.is_some() && plan.born_in.is_none() {
                    plan.born_in = Some(dir.clone());
                }
                plan.place = Some((dir.clone(), name.clone()));
                self.touched(at, &dir, &name);
                let entry = self.entries.entry(dir).or_default().entry(name).or_insert(None);
                if let Some(other) = entry.replace(obj.clone()) {
                    self.plan(other).stray = true;
                    self.strange.push(Strange { at, obj, what: "a name that is taken already" });
                }
            }
            Fact::Unbind { dir, name, obj } => {
                self.plan(dir.clone()).is_dir = true;
                self.touched(at, &dir, &name);
                let certain = self.certain;
                let plan = self.plan(obj.clone());
                plan.place = Some((dir.clone(), name.clone()));
                if at >= certain {
                    plan.left.push((dir.clone(), name.clone()));
                }
                let before = self.entries.entry(dir).or_default().insert(name, None);
                // The first mention of an entry: the object stood there when the log began.
                if let Some(before) = before
                    && before.as_ref() != Some(&obj)
                {
                    if let Some(other) = before {
                        self.plan(other).stray = true;
                    }
                    let what = "taken from an entry that does not name it";
                    self.strange.push(Strange { at, obj, what });
                }
            }
            Fact::Born { obj, birth } => {
                let plan = self.plan(obj.clone());
                if plan.birth.is_some() {
                    return refuse(&obj, "born twice");
                }
                plan.is_dir |= birth.kind == Kind::Dir;
                plan.owned = Some(birth.owned);
                plan.birth = Some(birth);
                plan.must_be_there = settled;
                plan.dressed = settled;
            }
            Fact::Links { obj, nlink } => {
                let plan = self.plan(obj);
                plan.links = Some(nlink);
                plan.dead |= nlink == 0;
            }
            Fact::Attrs { obj, owned } => {
                let plan = self.plan(obj);
                plan.owned = Some(owned);
                plan.dressed = settled;
            }
            Fact::Mtime { obj, mtime } => {
                let plan = self.plan(obj);
                match &mut plan.owned {
                    Some(owned) => owned.mtime = mtime,
                    None => plan.mtime = Some(mtime),
                }
            }
            Fact::Size { obj, size } => self.plan(obj).ops.push(Op::Size(size)),
            Fact::Data { obj, offset, bytes } => self.plan(obj).ops.push(Op::Data(offset, bytes)),
            Fact::Durable { obj, keep } => {
                let plan = self.plan(obj);
                let covered = plan.ops.len().saturating_sub(keep as usize);
                plan.ops.drain(..covered);
                plan.relies_on_disk = true;
            }
            Fact::Xattr { obj, name, value } => {
                let plan = self.plan(obj);
                plan.xattrs.insert(name, value);
                plan.dressed = settled;
            }
            Fact::Note { bytes } => self.notes.push(bytes.into()),
            Fact::Zero { obj, offset, len } => self.plan(obj).ops.push(Op::Zero(offset, len)),
        }
        Ok(())
    }

    fn touched(&mut self, at: usize, dir: &ObjId, name: &Bytes) {
        if self.certain == 0 || at < self.certain {
            return;
        }
        match self.late.get_mut(dir) {
            Some(names) => _ = names.insert(name.clone()),
            None => _ = self.late.insert(dir.clone(), BTreeSet::from([name.clone()])),
        }
    }

    fn finish(mut self) -> Result<Fold, FoldError> {
        for (dir, names) in &self.entries {
            for (name, obj) in names {
                if let Some(plan) = obj.as_ref().and_then(|obj| self.objects.get_mut(obj)) {
                    // Nearly every object has one name.
                    plan.names.reserve_exact(usize::from(plan.names.is_empty()));
                    plan.names.push((dir.clone(), name.clone()));
                }
            }
        }
        // Its birth is in the log, so every name it ever had is known here. Without one it is gone.
        let gone = |plan: &Plan| plan.birth.is_some() && plan.names.is_empty() && !plan.stray;
        self.objects.values_mut().for_each(|plan| plan.dead |= gone(plan));
        self.settle();
        self.forget_what_is_certain();
        for plan in self.objects.values_mut() {
            plan.must_be_there |= plan.birth.is_none() || plan.relies_on_disk;
            let ops = std::mem::take(&mut plan.ops);
            if plan.dead {
                plan.left = Vec::new();
            } else {
                plan.content = Content::from_ops(ops);
            }
        }
        Ok(self)
    }

    /// Removes names that objects cannot have, since they did not lose them through this server.
    fn settle(&mut self) {
        let dead: BTreeSet<&ObjId> = self.objects.iter().filter(|(_, p)| p.dead).map(|(id, _)| id).collect();
        let mut wrong = Vec::new();
        for (id, plan) in &self.objects {
            let all = |what| plan.names.iter().map(move |at| (what, id.clone(), at.clone()));
            if plan.dead {
                wrong.extend(all("gone, but an entry names it"));
            } else if plan.is_dir && plan.names.len() > 1 {
                // It is where it was put last.
                let others = all("a directory with two names");
                wrong.extend(others.filter(|(_, _, at)| plan.place.as_ref() != Some(at)));
            }
            if !plan.dead {
                wrong.extend(all("in a directory that is gone").filter(|(.., (dir, _))| dead.contains(dir)));
            }
        }
        wrong.sort();
        for (what, obj, (dir, name)) in wrong {
            if let Some(entry) = self.entries.get_mut(&dir).and_then(|names| names.get_mut(&name)) {
                *entry = None;
            }
            if let Some(plan) = self.objects.get_mut(&obj) {
                plan.names.retain(|(d, n)| (d, n) != (&dir, &name));
                plan.stray |= plan.names.is_empty();
                // It may still be there.
                plan.left.push((dir, name));
            }
            let at = self.records;
            self.strange.push(Strange { at, obj, what });
        }
    }

    /// Drops what no crash can have undone.
    fn forget_what_is_certain(&mut self) {
        if self.certain == 0 {
            return;
        }
        let late = std::mem::take(&mut self.late);
        self.entries.retain(|dir, names| {
            let Some(late) = late.get(dir) else { return false };
            names.retain(|name, _| late.contains(name));
            true
        });
        for plan in self.objects.values_mut() {
            plan.names.retain(|(dir, name)| late.get(dir).is_some_and(|late| late.contains(name)));
            if plan.dressed {
                plan.xattrs.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests;
