//! What a program did on a mount, in the order in which it did it. Times are those since the round began. No I/O.
//!
//! One thread works below one top directory, so the changes of each directory, and of each file, have an order; at most one call is under
//! way, and a file may stay open beside it.

use landfast_verify::rng::Rng;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// An object that the program made; no two have the same number.
pub type Id = u64;

/// Bytes at the beginning of each file that is not empty: its number.
pub const HEADER_BYTES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Dir,
    Symlink,
}

/// A change of a directory's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Naming {
    Add { name: String, object: Id },
    Remove { name: String },
    Rename { from: String, to: String },
}

#[derive(Debug, Clone)]
pub struct Step {
    pub what: Naming,
    /// The object that it is about.
    pub object: Id,
    pub begun: Duration,
    /// When the call returned with success.
    pub done: Option<Duration>,
}

/// How a version of a file comes from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The whole file is new.
    Fresh,
    /// Bytes are added to its end.
    Appended,
}

#[derive(Debug, Clone)]
pub struct Version {
    pub how: How,
    /// Bytes that this version writes.
    pub bytes: usize,
    /// When the file was closed.
    pub done: Option<Duration>,
}

#[derive(Debug, Clone)]
pub struct Mode {
    pub mode: u32,
    pub done: Option<Duration>,
}

#[derive(Debug, Clone)]
pub struct Object {
    pub kind: Kind,
    /// The directory in which it has its name.
    pub place: Option<Id>,
    /// Of a file.
    pub versions: Vec<Version>,
    /// So many of the first versions are replaced, or stable: the last of them is the oldest that may be there.
    pub stable_versions: usize,
    /// Of this version so many of the file's first bytes are stable, closed or not.
    pub stable_part: (usize, usize),
    /// Of a file; none: nobody looks at its mode.
    pub modes: Vec<Mode>,
    pub stable_modes: usize,
    /// Of a directory.
    pub steps: Vec<Step>,
    /// So many of the first steps are stable.
    pub stable_steps: usize,
}

/// A rename into another directory that is under way.
#[derive(Debug, Clone, Copy)]
pub struct Moving {
    pub object: Id,
    pub from: Id,
    pub to: Id,
}

#[derive(Debug, Default)]
pub struct History {
    pub objects: HashMap<Id, Object>,
    last: Id,
    /// Calls that have promised that something is stable: fsync and what is as good.
    pub syncs: u64,
    pub moving: Option<Moving>,
    /// The server ended in the middle of its work, and nobody sent once more what it was executing: an operation is there whole or not at all, of a
    /// write any part (ARCHITECTURE.md, C2), and a file takes several operations.
    pub torn: bool,
}

/// Of each object the number of its steps and of its versions that were stable at some time.
pub type Stable = HashMap<Id, (usize, usize)>;

/// Of each directory the number of its steps that were done at some time.
pub type Done = HashMap<Id, usize>;

/// A directory's names and what they lead to.
pub type Names = BTreeMap<String, Id>;

/// What a step makes of a directory's names.
pub fn apply(names: &mut Names, what: &Naming) {
    match what {
        Naming::Add { name, object } => {
            names.insert(name.clone(), *object);
        }
        Naming::Remove { name } => {
            names.remove(name);
        }
        Naming::Rename { from, to } => {
            if let Some(object) = names.remove(from) {
                names.insert(to.clone(), object);
            }
        }
    }
}

/// What a symbolic link with this number says.
pub fn text(object: Id) -> String {
    format!("target-{object}")
}

impl Object {
    pub fn new(kind: Kind) -> Object {
        Object {
            kind,
            place: None,
            versions: Vec::new(),
            stable_versions: 0,
            stable_part: (0, 0),
            modes: Vec::new(),
            stable_modes: 0,
            steps: Vec::new(),
            stable_steps: 0,
        }
    }

    /// The names after all steps that have begun.
    pub fn names(&self) -> Names {
        let mut names = Names::new();
        self.steps.iter().for_each(|step| apply(&mut names, &step.what));
        names
    }

    /// What version `version` adds to, or makes of, the file.
    pub fn written(&self, object: Id, version: usize) -> Vec<u8> {
        let Some(v) = self.versions.get(version) else { return Vec::new() };
        let mut bytes = vec![0; v.bytes];
        Rng::new(object.wrapping_mul(0x1_0001).wrapping_add(version as u64)).fill(&mut bytes);
        if v.how == How::Fresh {
            let header = object.to_be_bytes();
            let len = header.len().min(bytes.len());
            bytes[..len].copy_from_slice(&header[..len]);
        }
        bytes
    }

    /// The whole file as version `version` is.
    pub fn content(&self, object: Id, version: usize) -> Vec<u8> {
        let first = (0..=version).rev().find(|v| self.versions.get(*v).is_some_and(|v| v.how == How::Fresh));
        (first.unwrap_or(0)..=version).flat_map(|v| self.written(object, v)).collect()
    }

    /// Bytes of the newest version.
    pub fn bytes(&self) -> usize {
        let first = self.versions.iter().rposition(|v| v.how == How::Fresh).unwrap_or(0);
        self.versions.iter().skip(first).map(|v| v.bytes).sum()
    }

    /// The oldest version that may be there.
    pub fn oldest_version(&self) -> usize {
        self.stable_versions.saturating_sub(1)
    }
}

impl History {
    pub fn add(&mut self, kind: Kind) -> Id {
        self.last += 1;
        self.objects.insert(self.last, Object::new(kind));
        self.last
    }

    /// Numbers from here on, so that those of several histories differ.
    pub fn numbered_from(first: Id) -> History {
        History { last: first, ..History::default() }
    }

    pub fn get(&self, id: Id) -> Option<&Object> {
        self.objects.get(&id)
    }

    fn get_mut(&mut self, id: Id) -> &mut Object {
        self.objects.entry(id).or_insert_with(|| Object::new(Kind::File))
    }

    /// What is stable now: of each object so many steps, so many versions.
    pub fn stable_now(&self) -> Stable {
        self.objects.iter().map(|(id, node)| (*id, (node.stable_steps, node.stable_versions))).collect()
    }

    /// What is done now.
    pub fn done_now(&self) -> Done {
        let done = |node: &Object| node.steps.iter().take_while(|s| s.done.is_some()).count();
        self.objects.iter().map(|(id, node)| (*id, done(node))).collect()
    }

    /// A call that changes names is made. Returns the step's number.
    pub fn begin(&mut self, dir: Id, what: Naming, object: Id, now: Duration) -> usize {
        let above = self.get_mut(dir);
        above.steps.push(Step { what, object, begun: now, done: None });
        above.steps.len() - 1
    }

    /// It has returned with success.
    pub fn end(&mut self, dir: Id, step: usize, now: Duration) {
        let Some(step) = self.get_mut(dir).steps.get_mut(step) else { return };
        step.done = Some(now);
        let (object, gone) = (step.object, matches!(step.what, Naming::Remove { .. }));
        let node = self.get_mut(object);
        if !gone {
            node.place = Some(dir);
        } else if node.place == Some(dir) {
            node.place = None;
        }
    }

    /// A file is written. The version is done with the file's close.
    pub fn write(&mut self, file: Id, how: How, bytes: usize) -> usize {
        let node = self.get_mut(file);
        node.versions.push(Version { how, bytes, done: None });
        node.versions.len() - 1
    }

    pub fn written(&mut self, file: Id, version: usize, now: Duration) {
        if let Some(v) = self.get_mut(file).versions.get_mut(version) {
            v.done = Some(now);
        }
    }

    /// A file gets a mode; the first is that of its creation.
    pub fn chmod(&mut self, file: Id, mode: u32) {
        self.get_mut(file).modes.push(Mode { mode, done: None });
    }

    pub fn chmod_done(&mut self, file: Id, now: Duration) {
        if let Some(mode) = self.get_mut(file).modes.last_mut() {
            mode.done = Some(now);
        }
    }

    /// All that was done to an object, its name, and the directories above it are stable.
    pub fn stable(&mut self, object: Id) {
        let node = self.get_mut(object);
        let closed = node.versions.iter().take_while(|v| v.done.is_some()).count();
        node.stable_versions = node.stable_versions.max(closed);
        let set = node.modes.iter().take_while(|m| m.done.is_some()).count();
        node.stable_modes = node.stable_modes.max(set);
        let mut object = object;
        // Up to the top, which has no place.
        while let Some(dir) = self.get_mut(object).place {
            let above = self.get_mut(dir);
            let last = above.steps.iter().rposition(|s| s.object == object && s.done.is_some());
            above.stable_steps = above.stable_steps.max(last.map_or(0, |last| last + 1));
            object = dir;
        }
    }

    /// A file was synced when it had so many bytes of a version that is still open.
    pub fn stable_part(&mut self, file: Id, version: usize, bytes: usize) {
        self.get_mut(file).stable_part = (version, bytes);
        self.stable(file);
    }

    /// All names of a directory are stable.
    pub fn stable_names(&mut self, dir: Id) {
        let node = self.get_mut(dir);
        let done = node.steps.iter().take_while(|s| s.done.is_some()).count();
        node.stable_steps = node.stable_steps.max(done);
        self.stable(dir);
    }

    /// All below a directory is stable, and the directory.
    pub fn stable_below(&mut self, dir: Id) {
        let mut left = vec![dir];
        while let Some(id) = left.pop() {
            let Some(node) = self.get(id) else { continue };
            match node.kind {
                Kind::Dir => {
                    left.extend(node.names().into_values().filter(|n| *n != id));
                    self.stable_names(id);
                }
                Kind::File | Kind::Symlink => self.stable(id),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_millis(5);

    fn add(history: &mut History, dir: Id, name: &str, kind: Kind) -> Id {
        let object = history.add(kind);
        let step = history.begin(dir, Naming::Add { name: name.into(), object }, object, NOW);
        history.end(dir, step, NOW);
        object
    }

    #[test]
    fn what_is_stable_takes_the_names_above_it_along() {
        let mut h = History::default();
        let top = h.add(Kind::Dir);
        let d = add(&mut h, top, "d", Kind::Dir);
        let (_, f) = (add(&mut h, d, "e", Kind::File), add(&mut h, d, "f", Kind::File));
        add(&mut h, d, "g", Kind::File);
        h.stable(f);
        assert_eq!((h.objects[&d].stable_steps, h.objects[&top].stable_steps), (2, 1));
        h.stable_below(top);
        assert_eq!(h.objects[&d].stable_steps, 3);
    }

    #[test]
    fn a_version_is_what_was_written_since_the_file_was_new() {
        let mut h = History::numbered_from(7);
        let f = h.add(Kind::File);
        for (how, bytes) in [(How::Fresh, 20), (How::Appended, 5), (How::Fresh, 3)] {
            h.write(f, how, bytes);
        }
        let node = &h.objects[&f];
        let [one, two, three] = [0, 1, 2].map(|v| node.content(f, v));
        assert_eq!((one.len(), two.len(), three.len()), (20, 25, 3));
        assert_eq!(node.bytes(), 3);
        assert_eq!(one[..HEADER_BYTES], 8u64.to_be_bytes());
        assert!(two.starts_with(&one) && !two.starts_with(&three[..]) || three == [0, 0, 0]);
    }
}
