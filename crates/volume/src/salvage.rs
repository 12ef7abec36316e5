//! Salvages a log without its volume: takes every whole record, in order, and builds a tree from them as far as possible.
//!
//! [`crate::fold`] must be exact or refuse. This takes everything: missing or damaged batches, records from before the last
//! checkpoint, contradictions. It keeps what is known and reports what is not.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use landfast_intentlog::scavenge::Remains;

use crate::kernel;
use crate::log::OpenError;
use crate::objmap::ObjMap;
use crate::record::{Birth, Fact, Kind, ObjId, Owned, Record};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes these bytes at an offset.
    Write(u64, Bytes),
    /// Zeroes from an offset on, of this length.
    Zero(u64, u64),
    /// Cuts or extends the file to this size.
    Size(u64),
}

#[derive(Clone, Debug, Default)]
pub struct Object {
    /// Its paths in the result, as lists of components. If the log does not know a directory's place, the first component
    /// begins with [`UNPLACED`].
    pub paths: Vec<Vec<Bytes>>,
    pub birth: Option<Birth>,
    pub owned: Option<Owned>,
    pub xattrs: BTreeMap<Bytes, Bytes>,
    pub steps: Vec<Step>,
    /// The log relies on contents that only the disk had.
    pub on_disk: bool,
    /// A missing part of the log may be about it.
    pub gap: bool,
    pub is_dir: bool,
    dead: bool,
}

impl Object {
    pub fn kind(&self) -> Kind {
        let other = if self.is_dir { Kind::Dir } else { Kind::File };
        self.birth.as_ref().map_or(other, |birth| birth.kind)
    }

    /// The known ranges of a file, ordered and disjoint, and its size as far as known.
    pub fn known(&self) -> (Vec<Range<u64>>, u64) {
        let (mut ranges, mut size): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
        for step in &self.steps {
            let (range, grows) = match step {
                Step::Write(offset, bytes) => (*offset..offset.saturating_add(bytes.len() as u64), true),
                Step::Zero(offset, len) => (*offset..offset.saturating_add(*len), false),
                Step::Size(to) => {
                    ranges.iter_mut().for_each(|r| *r = r.start.min(*to)..r.end.min(*to));
                    let grown = size..*to;
                    size = *to;
                    (grown, true)
                }
            };
            if grows {
                size = size.max(range.end);
            }
            ranges.push(range);
        }
        ranges.retain(|r| !r.is_empty());
        ranges.sort_by_key(|r| r.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        (joined, size)
    }

    /// What is missing of it, in words; empty if nothing is.
    pub fn missing(&self) -> Vec<&'static str> {
        let mut missing = Vec::new();
        if self.birth.is_none() {
            missing.push(match self.kind() {
                Kind::Dir => "older than the log: what else was in it is not known",
                _ => "older than the log: what is not in the log is a hole here",
            });
        }
        if self.owned.is_none() {
            missing.push("mode, owner and times are not known");
        }
        if self.on_disk {
            missing.push("parts were flushed to the volume's disk and are holes, or older, here");
        }
        if self.gap {
            missing.push("a part of the log is missing that may be about it");
        }
        missing
    }
}

/// Prefix of the name in the result of a directory whose place the log does not know.
pub const UNPLACED: &str = "directory-";

/// The same for any other object.
pub const UNNAMED: &str = "object-";

#[derive(Debug, Default)]
pub struct Salvage {
    /// All living objects, directories before their contents.
    pub objects: Vec<(ObjId, Object)>,
    pub removed: u64,
    pub records: u64,
    pub batches: u64,
    pub gaps: u64,
    pub damaged: u64,
    /// Batches of an earlier log on the same device.
    pub foreign: u64,
    /// Records of a version that this program does not read.
    pub unread: u64,
    pub has_superblock: bool,
}

pub fn salvage(path: &Path) -> Result<Salvage, OpenError> {
    let mut remains = Remains::open(path)?;
    let mut collected = Collected::default();
    let mut found =
        Salvage { foreign: remains.foreign, has_superblock: remains.has_superblock, ..Salvage::default() };
    remains.each(|_, joined, records| {
        found.batches += 1;
        if !joined {
            found.gaps += 1;
            collected.gap();
        }
        for bytes in records {
            match Record::decode(&bytes) {
                Ok(record) => {
                    found.records += 1;
                    record.facts.into_iter().for_each(|fact| collected.take(fact));
                }
                Err(_) => found.unread += 1,
            }
        }
    });
    found.damaged = remains.damaged;
    if found.unread > 0 {
        collected.gap();
    }
    found.removed = collected.objects.values().filter(|o| o.dead).count() as u64;
    found.objects = collected.placed();
    Ok(found)
}

/// Where objects were (directory and name), as far as the rest of a log tells. Only for messages.
pub(crate) fn places(path: &Path) -> ObjMap<(ObjId, Bytes)> {
    let mut places = ObjMap::default();
    let Some(mut remains) = kernel::log_remains(path) else { return places };
    remains.each(|_, _, records| {
        for record in records.iter().filter_map(|bytes| Record::decode(bytes).ok()) {
            for fact in record.facts {
                if let Fact::Bind { dir, name, obj } = fact {
                    places.insert(obj, (dir, name));
                }
            }
        }
    });
    places
}

/// The state that facts add up to.
#[derive(Default)]
struct Collected {
    objects: BTreeMap<ObjId, Object>,
    entries: BTreeMap<ObjId, BTreeMap<Bytes, ObjId>>,
}

impl Collected {
    fn at(&mut self, obj: ObjId) -> &mut Object {
        self.objects.entry(obj).or_default()
    }

    /// Notes that a part is missing here, which may concern any known object.
    fn gap(&mut self) {
        self.objects.values_mut().for_each(|object| object.gap = true);
    }

    fn take(&mut self, fact: Fact) {
        match fact {
            Fact::Bind { dir, name, obj } => {
                self.at(dir.clone()).is_dir = true;
                self.at(obj.clone()).dead = false;
                self.entries.entry(dir).or_default().insert(name, obj);
            }
            Fact::Unbind { dir, name, obj } => {
                self.at(dir.clone()).is_dir = true;
                self.at(obj);
                self.entries.entry(dir).or_default().remove(&name);
            }
            Fact::Born { obj, birth } => {
                // Another object with the same identity, so other contents.
                let object = Object { owned: Some(birth.owned), birth: Some(birth), ..Object::default() };
                self.objects.insert(obj, object);
            }
            Fact::Links { obj, nlink } => self.at(obj).dead = nlink == 0,
            Fact::Attrs { obj, owned } => self.at(obj).owned = Some(owned),
            Fact::Mtime { obj, mtime } => {
                self.at(obj).owned.iter_mut().for_each(|owned| owned.mtime = mtime);
            }
            Fact::Size { obj, size } => self.at(obj).steps.push(Step::Size(size)),
            Fact::Data { obj, offset, bytes } => self.at(obj).steps.push(Step::Write(offset, bytes)),
            Fact::Zero { obj, offset, len } => self.at(obj).steps.push(Step::Zero(offset, len)),
            Fact::Durable { obj, .. } => self.at(obj).on_disk = true,
            Fact::Xattr { obj, name, value } => {
                let object = self.at(obj);
                match value {
                    Some(value) => _ = object.xattrs.insert(name, value),
                    None => _ = object.xattrs.remove(&name),
                }
            }
            Fact::Note { .. } => {}
        }
    }

    fn placed(mut self) -> Vec<(ObjId, Object)> {
        let mut named: BTreeSet<ObjId> = BTreeSet::new();
        for names in self.entries.values() {
            named.extend(names.values().cloned());
        }
        let living = |object: &Object| !object.dead;
        // Tops: directories that the log names nowhere. Living objects without any name go there, too.
        let mut waiting: Vec<(ObjId, Vec<Bytes>)> = Vec::new();
        for (id, object) in self.objects.iter().filter(|(id, o)| living(o) && !named.contains(*id)) {
            // Made but without a name: it was removed, in a missing part or as the last event.
            if object.birth.is_some() && !object.gap {
                continue;
            }
            let what = if object.kind() == Kind::Dir { UNPLACED } else { UNNAMED };
            let number = id.kh.ino().map_or_else(|| id.to_string(), |ino| ino.to_string());
            waiting.push((id.clone(), vec![format!("{what}{number}").into()]));
        }
        waiting.reverse();
        let mut order = Vec::new();
        let mut seen: BTreeSet<ObjId> = BTreeSet::new();
        while let Some((id, path)) = waiting.pop() {
            let Some(object) = self.objects.get_mut(&id).filter(|object| !object.dead) else { continue };
            object.paths.push(path.clone());
            let is_dir = object.kind() == Kind::Dir;
            // A directory has only one place, so this ends.
            if !seen.insert(id.clone()) {
                continue;
            }
            order.push(id.clone());
            if is_dir {
                for (name, child) in self.entries.remove(&id).into_iter().flatten().rev() {
                    if name != b"."[..] && name != b".."[..] && !name.is_empty() {
                        let mut path = path.clone();
                        path.push(name);
                        waiting.push((child, path));
                    }
                }
            }
        }
        order.into_iter().filter_map(|id| self.objects.remove(&id).map(|object| (id, object))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::KernelHandle;

    fn id(n: u8) -> ObjId {
        let bytes = [u32::from(n).to_le_bytes(), [0; 4]].concat();
        ObjId { kh: KernelHandle { kind: 1, bytes: bytes.into() }, btime_ns: i64::from(n) }
    }

    fn born(n: u8, kind: Kind) -> Fact {
        let owned = Owned { mode: 0o640, ..Owned::default() };
        Fact::Born { obj: id(n), birth: Birth { kind, owned, rdev: (0, 0), target: Bytes::new(), fileid: 1 } }
    }

    fn bind(dir: u8, name: &'static str, n: u8) -> Fact {
        Fact::Bind { dir: id(dir), name: Bytes::from_static(name.as_bytes()), obj: id(n) }
    }

    fn paths(facts: Vec<Fact>, gap_before_last: bool) -> Vec<(String, usize)> {
        let mut collected = Collected::default();
        let last = facts.len() - 1;
        for (n, fact) in facts.into_iter().enumerate() {
            if n == last && gap_before_last {
                collected.gap();
            }
            collected.take(fact);
        }
        let joined = |path: &Vec<Bytes>| {
            path.iter().map(|p| String::from_utf8_lossy(p).into_owned()).collect::<Vec<_>>().join("/")
        };
        let all = collected.placed();
        all.iter()
            .map(|(_, o)| (o.paths.iter().map(joined).collect::<Vec<_>>().join(" "), o.missing().len()))
            .collect()
    }

    #[test]
    fn a_tree_comes_out_with_what_is_missing_in_it() {
        let facts = vec![
            born(2, Kind::Dir),
            bind(1, "dir", 2),
            born(3, Kind::File),
            bind(2, "file", 3),
            bind(1, "link", 3),
            Fact::Data { obj: id(4), offset: 3, bytes: Bytes::from_static(b"x") },
            born(5, Kind::File),
            bind(2, "gone", 5),
            Fact::Unbind { dir: id(2), name: Bytes::from_static(b"gone"), obj: id(5) },
            Fact::Links { obj: id(5), nlink: 0 },
            bind(2, "..", 4),
        ];
        let wanted =
            [("directory-1", 2), ("directory-1/dir", 0), ("directory-1/dir/file directory-1/link", 0)];
        assert_eq!(paths(facts.clone(), false), wanted.map(|(p, n)| (p.to_owned(), n)));
        // A gap makes everything before it doubtful, but nothing after it.
        let all = paths(facts, true);
        assert_eq!(all[1], ("directory-1/dir".to_owned(), 1));
    }

    #[test]
    fn what_is_known_of_a_file() {
        let write = |offset, bytes: &'static [u8]| Step::Write(offset, Bytes::from_static(bytes));
        let known = |steps: &[Step]| Object { steps: steps.to_vec(), ..Object::default() }.known();
        assert_eq!(known(&[write(2, b"ab"), write(4, b"c"), write(9, b"d")]), (vec![2..5, 9..10], 10));
        assert_eq!(known(&[write(2, b"abcd"), Step::Size(4), write(8, b"x")]), (vec![2..4, 8..9], 9));
        assert_eq!(
            known(&[Step::Size(0), write(0, b"x"), Step::Zero(0, 1), write(5, b"y")]),
            (vec![0..1, 5..6], 6)
        );
    }

    #[test]
    fn directories_in_a_ring_end() {
        let facts =
            vec![bind(1, "a", 2), bind(2, "b", 1), bind(3, "c", 1), born(9, Kind::File), bind(3, "d", 9)];
        assert_eq!(paths(facts, false).len(), 4);
    }
}
