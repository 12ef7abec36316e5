//! What must be on the disk: a tree in memory that acknowledged actions are applied to.
//!
//! Pure. What a power cut may have done to an action that was not acknowledged is expressed by
//! variants of the tree ([`Model::variants`]); what it may have done to data, by pending ranges
//! ([`Contents`]).

use crate::serial::action::{Path, is_below, split};
use crate::serial::{Action, Change, Node};
use landfast_nfs::v4::types::NfsAce;
use landfast_nfs::v4::{AttrValues, FileHandle};
use landfast_xdr::Bytes;
use std::collections::{BTreeMap, HashMap};

/// Seconds and nanoseconds since 1970.
pub type Time = (i64, u32);

/// A file's contents: the stable bytes, and ranges of which any part may be there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    pub stable: Vec<u8>,
    /// Written, but not acknowledged as stable.
    pub pending: Vec<(u64, Bytes)>,
}

impl Contents {
    /// Puts `data` at `offset` into the stable contents; a gap is zeros.
    fn write(&mut self, offset: u64, data: &[u8]) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(data.len());
        if self.stable.len() < end {
            self.stable.resize(end, 0);
        }
        self.stable[start..end].copy_from_slice(data);
    }

    fn commit(&mut self) {
        for (offset, data) in std::mem::take(&mut self.pending) {
            self.write(offset, &data);
        }
    }

    fn resize(&mut self, size: u64) {
        self.stable.resize(usize::try_from(size).unwrap_or(usize::MAX), 0);
        for (offset, data) in &mut self.pending {
            let keep = size.saturating_sub(*offset).min(data.len() as u64);
            *data = data.slice(..keep as usize);
        }
        self.pending.retain(|(_, data)| !data.is_empty());
    }

    /// Applies a truncation that may have been done in part: filesystems write zeroes over the end before they cut it off.
    fn cut_begun(&mut self, size: u64) {
        let live =
            self.pending.iter().map(|(o, d)| *o + d.len() as u64).fold(self.stable.len() as u64, u64::max);
        let cut = live.saturating_sub(size);
        if cut > 0 {
            self.pending.push((size, vec![0; cut as usize].into()));
        }
    }

    /// Whether a file with these bytes is one that a power cut may have left.
    pub fn allows(&self, bytes: &[u8]) -> bool {
        let reach = self.pending.iter().map(|(o, d)| *o as usize + d.len()).max().unwrap_or(0);
        if bytes.len() < self.stable.len() || bytes.len() > reach.max(self.stable.len()) {
            return false;
        }
        if self.pending.is_empty() {
            return bytes == self.stable;
        }
        bytes.iter().enumerate().all(|(i, b)| self.allows_at(i, *b))
    }

    /// Whether the byte `b` is possible at `i`.
    fn allows_at(&self, i: usize, b: u8) -> bool {
        // Beyond the stable end, what was not written reads as zero.
        let pending = |(o, d): &(u64, Bytes)| i.checked_sub(*o as usize).and_then(|k| d.get(k)) == Some(&b);
        b == self.stable.get(i).copied().unwrap_or(0) || self.pending.iter().any(pending)
    }

    /// Describes where bytes are wrong that [`Contents::allows`] does not accept.
    pub fn why_not(&self, bytes: &[u8]) -> String {
        let wrong: Vec<usize> =
            bytes.iter().enumerate().filter(|(i, b)| !self.allows_at(*i, **b)).map(|(i, _)| i).collect();
        let zeros = wrong.iter().filter(|i| bytes[**i] == 0).count();
        match (wrong.first(), wrong.last()) {
            (Some(first), Some(last)) => {
                format!(
                    "{} bytes from {first} to {last} were never written there, {zeros} of them are zero",
                    wrong.len()
                )
            }
            _ => format!(
                "the length is wrong; unstable are {:?}",
                self.pending.iter().map(|(o, d)| (*o, d.len())).collect::<Vec<_>>()
            ),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    File(Contents),
    Dir(BTreeMap<Vec<u8>, usize>),
    /// Anything else that CREATE makes.
    Special(Node),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub kind: Kind,
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Modification time, when it is known.
    pub mtime: Option<(i64, u32)>,
    pub fh: Option<FileHandle>,
    pub fileid: Option<u64>,
    /// False if the mode follows from an access list that was not acknowledged.
    pub mode_known: bool,
    pub xattrs: BTreeMap<Vec<u8>, Bytes>,
    /// The access list, when the server has said it.
    pub acl: Option<Vec<NfsAce>>,
    /// The last change attribute that the server gave.
    pub change: Option<u64>,
}

impl Object {
    fn new(kind: Kind, mode: u32) -> Self {
        Object {
            kind,
            mode,
            owner: (0, 0),
            mtime: None,
            fh: None,
            fileid: None,
            mode_known: true,
            xattrs: BTreeMap::new(),
            acl: None,
            change: None,
        }
    }

    /// Whether a client with a cached copy of one could take the other for it; times do not count.
    pub fn looks_like(&self, other: &Object) -> bool {
        let settled = |o: &Object| o.mode_known && !matches!(&o.kind, Kind::File(c) if !c.pending.is_empty());
        settled(self)
            && settled(other)
            && (&self.kind, self.mode, self.owner) == (&other.kind, other.mode, other.owner)
            && self.xattrs == other.xattrs
            && (self.acl == other.acl || self.acl.is_none() || other.acl.is_none())
    }
}

/// A file's number with its uncommitted writes: offsets and bytes, in order.
pub type Unstable = (usize, Vec<(u64, Bytes)>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    objects: HashMap<usize, Object>,
    next: usize,
}

/// The number of the top directory.
pub const ROOT: usize = 0;

/// An action that does not fit the tree: a bug of the workload, not of the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the workload did what cannot be done: {0}")]
pub struct Nonsense(String);

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    pub fn new() -> Self {
        let root = Object::new(Kind::Dir(BTreeMap::new()), 0o755);
        Model { objects: HashMap::from([(ROOT, root)]), next: ROOT + 1 }
    }

    pub fn object(&self, id: usize) -> Option<&Object> {
        self.objects.get(&id)
    }

    pub fn object_mut(&mut self, id: usize) -> Option<&mut Object> {
        self.objects.get_mut(&id)
    }

    pub fn find(&self, path: &[u8]) -> Option<usize> {
        let mut names = path.split(|&b| b == b'/').filter(|n| !n.is_empty());
        names.try_fold(ROOT, |at, name| self.entries(at)?.get(name).copied())
    }

    fn entries(&self, dir: usize) -> Option<&BTreeMap<Vec<u8>, usize>> {
        match &self.objects.get(&dir)?.kind {
            Kind::Dir(entries) => Some(entries),
            _ => None,
        }
    }

    /// Every path with its object's number, parents first; without the top directory.
    pub fn paths(&self) -> Vec<(Path, usize)> {
        let mut out = Vec::new();
        let mut todo = vec![(Path::new(), ROOT)];
        while let Some((path, id)) = todo.pop() {
            for (name, child) in self.entries(id).into_iter().flatten() {
                let below =
                    if path.is_empty() { name.clone() } else { [&path[..], b"/", &name[..]].concat() };
                out.push((below.clone(), *child));
                todo.push((below, *child));
            }
        }
        out
    }

    pub fn links(&self, id: usize) -> usize {
        let dirs = self.objects.values().filter_map(|o| match &o.kind {
            Kind::Dir(entries) => Some(entries),
            _ => None,
        });
        dirs.flat_map(BTreeMap::values).filter(|i| **i == id).count()
    }

    fn enter(&mut self, path: &[u8], id: usize) -> Result<(), Nonsense> {
        let (dir, name) = split(path);
        let dir = self.find(dir).and_then(|d| self.objects.get_mut(&d));
        match dir.map(|d| (&mut d.kind, &mut d.mtime)) {
            Some((Kind::Dir(entries), mtime)) => {
                entries.insert(name.to_vec(), id);
                *mtime = None;
                Ok(())
            }
            _ => Err(Nonsense(format!("no directory for {}", path.escape_ascii()))),
        }
    }

    fn leave(&mut self, path: &[u8]) -> Result<usize, Nonsense> {
        let (dir, name) = split(path);
        let dir = self.find(dir).and_then(|d| self.objects.get_mut(&d));
        let gone = match dir.map(|d| (&mut d.kind, &mut d.mtime)) {
            Some((Kind::Dir(entries), mtime)) => {
                *mtime = None;
                entries.remove(name)
            }
            _ => None,
        };
        gone.ok_or_else(|| Nonsense(format!("nothing at {}", path.escape_ascii())))
    }

    /// Forgets objects that no path leads to; returns their handles.
    pub fn forget_unreachable(&mut self) -> Vec<FileHandle> {
        let live: std::collections::HashSet<usize> =
            self.paths().into_iter().map(|(_, id)| id).chain([ROOT]).collect();
        let dead: Vec<usize> = self.objects.keys().filter(|id| !live.contains(id)).copied().collect();
        dead.iter().filter_map(|id| self.objects.remove(id)?.fh).collect()
    }

    fn add(&mut self, path: &[u8], object: Object) -> Result<usize, Nonsense> {
        if self.find(path).is_some() {
            return Err(Nonsense(format!("{} exists", path.escape_ascii())));
        }
        let id = self.next;
        self.enter(path, id)?;
        self.objects.insert(id, object);
        self.next += 1;
        Ok(id)
    }

    fn at(&mut self, path: &[u8]) -> Result<(usize, &mut Object), Nonsense> {
        let id = self.find(path);
        let found = id.and_then(|id| Some((id, self.objects.get_mut(&id)?)));
        found.ok_or_else(|| Nonsense(format!("nothing at {}", path.escape_ascii())))
    }

    fn file(&mut self, path: &[u8]) -> Result<(usize, &mut Contents, &mut Option<Time>), Nonsense> {
        let wrong = Nonsense(format!("no file at {}", path.escape_ascii()));
        match self.at(path)? {
            (id, Object { kind: Kind::File(contents), mtime, .. }) => Ok((id, contents, mtime)),
            _ => Err(wrong),
        }
    }

    /// Applies an action whole. Returns the number of the object it was about; `None` for a removal.
    /// Errors: [`Nonsense`] when the action does not fit the tree.
    pub fn apply(&mut self, action: &Action) -> Result<Option<usize>, Nonsense> {
        match action {
            Action::Create { path, mode } => {
                self.add(path, Object::new(Kind::File(Contents::default()), *mode)).map(Some)
            }
            Action::Write { path, offset, data, stable } => {
                let (id, contents, mtime) = self.file(path)?;
                *mtime = None;
                if *stable {
                    // Older pending data must not reappear over it: the server ordered them.
                    contents.commit_under(*offset, data);
                } else {
                    contents.pending.push((*offset, data.clone()));
                }
                Ok(Some(id))
            }
            Action::Commit { path } => {
                let (id, contents, _) = self.file(path)?;
                contents.commit();
                Ok(Some(id))
            }
            Action::Set { path, change } => {
                let (id, object) = self.at(path)?;
                if let Some(mode) = change.mode {
                    (object.mode, object.mode_known) = (mode, true);
                    object.acl = None;
                }
                if let Some(owner) = change.owner {
                    object.owner = owner;
                }
                if let (Some(size), Kind::File(contents)) = (change.size, &mut object.kind) {
                    contents.resize(size);
                    object.mtime = None;
                }
                if change.touch {
                    object.mtime = None;
                }
                object.mtime = change.mtime.or(object.mtime);
                Ok(Some(id))
            }
            Action::Close { path } => Ok(self.find(path)),
            Action::Xattr { path, name, value } => {
                let (id, object) = self.at(path)?;
                match value {
                    Some(value) => drop(object.xattrs.insert(name.clone(), value.clone())),
                    None if object.xattrs.remove(name).is_some() => {}
                    None => return Err(Nonsense(format!("no such attribute of {}", path.escape_ascii()))),
                }
                Ok(Some(id))
            }
            Action::Acl { path, .. } => {
                let (id, object) = self.at(path)?;
                (object.acl, object.mode_known) = (None, false);
                Ok(Some(id))
            }
            Action::Make { path, node, mode } => {
                let kind = match node {
                    Node::Dir => Kind::Dir(BTreeMap::new()),
                    other => Kind::Special(other.clone()),
                };
                self.add(path, Object::new(kind, *mode)).map(Some)
            }
            Action::Link { from, to } => {
                let (id, _) = self.at(from)?;
                self.enter(to, id)?;
                Ok(Some(id))
            }
            Action::Rename { from, to } => {
                if is_below(to, from) {
                    return Err(Nonsense("a directory into itself".into()));
                }
                let id = self.leave(from)?;
                if self.find(to).is_some() {
                    self.leave(to)?;
                }
                self.enter(to, id)?;
                let moved = split(from).0 != split(to).0;
                if let Some(Object { kind: Kind::Dir(_), mtime, .. }) = self.objects.get_mut(&id) {
                    // A filesystem may or may not count the new parent as a change of the directory.
                    *mtime = mtime.filter(|_| !moved);
                }
                Ok(Some(id))
            }
            Action::Remove { path } => {
                self.leave(path)?;
                Ok(None)
            }
        }
    }

    /// The unstable data of every file, in the order in which it was written.
    pub fn unstable(&self) -> Vec<Unstable> {
        let files = self.paths().into_iter().filter_map(|(_, id)| match &self.object(id)?.kind {
            Kind::File(c) if !c.pending.is_empty() => Some((id, c.pending.clone())),
            _ => None,
        });
        // A file with several names counts once.
        files.collect::<BTreeMap<_, _>>().into_iter().collect()
    }

    /// Notes what the server said about an object after an acknowledged action.
    pub fn learn(&mut self, id: usize, attrs: Option<&AttrValues>, fh: Option<&FileHandle>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        if let Some(fh) = fh {
            object.fh = Some(fh.clone());
        }
        let Some(attrs) = attrs else { return };
        object.fileid = attrs.fileid.or(object.fileid);
        object.change = attrs.change.or(object.change);
        if let Some(acl) = &attrs.acl {
            object.acl = Some(acl.clone());
            (object.mode, object.mode_known) = (attrs.mode.unwrap_or(object.mode), attrs.mode.is_some());
        }
        let pending = matches!(&object.kind, Kind::File(c) if !c.pending.is_empty());
        // Unstable data has an unstable time; a directory's time changes with its entries.
        if !pending && !matches!(object.kind, Kind::Dir(_)) {
            object.mtime = attrs.time_modify.map(|t| (t.seconds, t.nseconds));
        }
    }

    /// The trees that a power cut may have left while `action` was in flight: without it and with it; of a write any part of its
    /// own range; a truncation may have been done in part.
    /// Errors: [`Nonsense`] when the action does not fit the tree.
    pub fn variants(&self, action: Option<&Action>) -> Result<Vec<Model>, Nonsense> {
        let mut without = self.clone();
        let Some(action) = action else { return Ok(vec![without]) };
        if let Action::Write { path, offset, data, .. } = action {
            let (_, contents, mtime) = without.file(path)?;
            contents.pending.push((*offset, data.clone()));
            *mtime = None;
            return Ok(vec![without]);
        }
        let mut with = self.clone();
        with.apply(action)?;
        if let Action::Set { path, change: Change { size: Some(size), .. } } = action
            && let Ok((_, contents, _)) = without.file(path)
        {
            contents.cut_begun(*size);
        }
        Ok(vec![without, with])
    }
}

impl Contents {
    /// Removes what a stable write covers from the pending ones.
    fn commit_under(&mut self, offset: u64, data: &Bytes) {
        let end = offset + data.len() as u64;
        let mut kept = Vec::new();
        for (o, d) in std::mem::take(&mut self.pending) {
            let e = o + d.len() as u64;
            let (left, right) = (offset.clamp(o, e), end.clamp(o, e));
            if left > o {
                kept.push((o, d.slice(..(left - o) as usize)));
            }
            if right < e {
                kept.push((right, d.slice((right - o) as usize..)));
            }
        }
        self.pending = kept;
        self.write(offset, data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &str, offset: u64, data: &'static [u8], stable: bool) -> Action {
        Action::Write { path: path.into(), offset, data: Bytes::from_static(data), stable }
    }

    fn create(path: &str) -> Action {
        Action::Create { path: path.into(), mode: 0o600 }
    }

    fn dir(path: &str) -> Action {
        Action::Make { path: path.into(), node: Node::Dir, mode: 0o700 }
    }

    fn model(actions: &[Action]) -> Model {
        let mut m = Model::new();
        for a in actions {
            m.apply(a).unwrap();
        }
        m
    }

    fn contents(m: &Model, path: &str) -> Contents {
        match &m.object(m.find(path.as_bytes()).unwrap()).unwrap().kind {
            Kind::File(c) => c.clone(),
            _ => panic!("not a file"),
        }
    }

    #[test]
    fn unstable_data_may_be_there_in_part_and_committed_data_must() {
        let mut m = model(&[create("f"), write("f", 0, b"abcd", true), write("f", 2, b"XYZ", false)]);
        let c = contents(&m, "f");
        for ok in [&b"abcd"[..], b"abXd", b"abXYZ", b"abcdZ", b"abcd\0"] {
            assert!(c.allows(ok), "{ok:?}");
        }
        for bad in [&b"abc"[..], b"aXcd", b"abXYZ!", b""] {
            assert!(!c.allows(bad), "{bad:?}");
        }
        m.apply(&Action::Commit { path: "f".into() }).unwrap();
        assert!(contents(&m, "f").allows(b"abXYZ") && !contents(&m, "f").allows(b"abcd"));
    }

    #[test]
    fn a_stable_write_ends_what_was_pending_under_it() {
        let m = model(&[create("f"), write("f", 0, b"1234", false), write("f", 1, b"ab", true)]);
        let c = contents(&m, "f");
        assert!(c.allows(b"1ab4") && c.allows(b"\0ab") && c.allows(b"\0ab4"));
        assert!(!c.allows(b"12b4") && !c.allows(b"1a"));
    }

    #[test]
    fn a_truncation_cuts_pending_data() {
        let size = Change { size: Some(2), ..Change::default() };
        let m = model(&[
            create("f"),
            write("f", 0, b"1234", false),
            Action::Set { path: "f".into(), change: size },
        ]);
        let c = contents(&m, "f");
        assert!(c.allows(b"12") && c.allows(b"\0\0") && !c.allows(b"123"));
    }

    #[test]
    fn a_truncation_that_was_not_done_may_have_cleared_what_it_would_cut_off() {
        let size = Change { size: Some(2), ..Change::default() };
        let m = model(&[create("f"), write("f", 0, b"1234", true)]);
        let variants = m.variants(Some(&Action::Set { path: "f".into(), change: size })).unwrap();
        let allows = |bytes: &[u8]| variants.iter().any(|m| contents(m, "f").allows(bytes));
        assert!(allows(b"1234") && allows(b"12\0\0") && allows(b"12"));
        assert!(!allows(b"1\0\0\0") && !allows(b"123"));
    }

    #[test]
    fn renames_links_and_removals_keep_objects_apart() {
        let mut m = model(&[
            dir("d"),
            create("d/f"),
            create("g"),
            Action::Link { from: "d/f".into(), to: "h".into() },
            Action::Rename { from: "g".into(), to: "d/f".into() },
            Action::Rename { from: "d".into(), to: "e".into() },
        ]);
        assert_ne!(m.find(b"e/f"), m.find(b"h"));
        assert_eq!((m.find(b"d"), m.find(b"g")), (None, None));
        assert_eq!(m.links(m.find(b"h").unwrap()), 1);
        assert!(m.apply(&Action::Rename { from: "e".into(), to: "e/x".into() }).is_err());
        m.apply(&Action::Remove { path: "h".into() }).unwrap();
        let before = m.objects.len();
        m.forget_unreachable();
        assert_eq!(m.objects.len(), before - 1);
    }

    #[test]
    fn an_action_under_way_is_there_whole_or_not() {
        let m = model(&[create("a")]);
        let remove = Action::Remove { path: "a".into() };
        let v = m.variants(Some(&remove)).unwrap();
        assert_eq!((v[0].find(b"a").is_some(), v[1].find(b"a")), (true, None));
        let v = m.variants(Some(&write("a", 0, b"xy", true))).unwrap();
        assert_eq!(v.len(), 1);
        assert!(contents(&v[0], "a").allows(b"") && contents(&v[0], "a").allows(b"\0y"));
    }

    #[test]
    fn what_a_client_sees_of_an_object_is_more_than_its_contents() {
        let xattr = |value| Action::Xattr {
            path: "a".into(),
            name: b"k".to_vec(),
            value: Some(Bytes::from_static(value)),
        };
        let object = |m: &Model| m.object(m.find(b"a").unwrap()).unwrap().clone();
        let plain = object(&model(&[create("a")]));
        let one = object(&model(&[create("a"), xattr(b"1")]));
        let two = object(&model(&[create("a"), xattr(b"1"), xattr(b"2")]));
        assert!(plain.looks_like(&plain) && one.looks_like(&one));
        assert!(!plain.looks_like(&one) && !one.looks_like(&two));
        let unstable = object(&model(&[create("a"), write("a", 0, b"x", false)]));
        assert!(!unstable.looks_like(&unstable), "nobody knows how much of it is there");
        let listed = object(&model(&[create("a"), Action::Acl { path: "a".into(), acl: Vec::new() }]));
        assert!(!listed.mode_known && !listed.looks_like(&plain));
    }
}
