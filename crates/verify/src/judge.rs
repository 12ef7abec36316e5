//! Compares the tree that should be on the server with the one that is. Pure.
//!
//! The oracle: *each fact of the model holds on the server, or the operation that made it is lost.*

use crate::contents::OpNo;
use crate::model::{Id, Model, Node};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What kind of object was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    File,
    Dir,
    Symlink,
    /// Something that no operation makes.
    Other,
}

/// An entry of a directory on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedEntry {
    pub kind: FileKind,
    pub fileid: u64,
}

/// What a handle from before the cut leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handle {
    Untried,
    Stale,
    /// To this file id.
    Leads(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedObject {
    pub kind: FileKind,
    pub fileid: u64,
    pub mode: u32,
    /// Modification time: seconds, nanoseconds.
    pub mtime: (i64, u32),
    /// Of a file: all its bytes.
    pub bytes: Vec<u8>,
    pub text: String,
    /// Those extended attributes of it that were asked for.
    pub xattrs: BTreeMap<String, Option<Vec<u8>>>,
    pub entries: BTreeMap<String, ObservedEntry>,
}

/// What was found of a model's objects.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The objects that were found, by a name or by the handle from before the cut.
    pub objects: HashMap<Id, ObservedObject>,
    pub handles: HashMap<Id, Handle>,
}

/// What a fact is about, to compare two judgements.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aspect {
    /// A name in a directory that should not exist.
    Name(String),
    /// The object's names: an operation in doubt may have given it another one.
    Names,
    Bytes,
    Text,
    Mode,
    Mtime,
    Xattr(String),
    /// Data that was not committed, by the operation that wrote it.
    Unstable(OpNo),
}

/// A fact that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub object: Id,
    pub aspect: Aspect,
    /// The operation that is lost; `None` if there is something that nobody did.
    pub op: Option<OpNo>,
    pub path: String,
    pub why: String,
}

#[derive(Debug, Clone, Default)]
pub struct Verdict {
    pub wrong: Vec<Violation>,
    /// Unstable writes that are gone, with their verifiers. If the verifier has changed, the client knows.
    pub unstable: Vec<(Violation, String)>,
    /// Paths of objects whose handle from before leads nowhere or elsewhere, though they are there.
    pub stale: Vec<String>,
    /// Paths of objects that have another file id than before.
    pub renumbered: Vec<String>,
    pub objects: u64,
    pub handles: u64,
}

/// Whether an entry can be the model's object `id`: it has the same kind, and the file id is the object's or no other's.
pub fn plausible(model: &Model, id: Id, entry: &ObservedEntry) -> bool {
    let Some(object) = model.object(id) else { return false };
    let kind = match object.what {
        Node::Dir { .. } => FileKind::Dir,
        Node::File(_) => FileKind::File,
        Node::Symlink(_) => FileKind::Symlink,
    };
    let same = object.fileid == Some(entry.fileid);
    entry.kind == kind && (same || model.owner(entry.fileid).is_none_or(|owner| owner == id))
}

struct Judge<'a> {
    model: &'a Model,
    seen: &'a Observed,
    verdict: Verdict,
}

/// Compares what was observed with a model.
pub fn judge(model: &Model, seen: &Observed) -> Verdict {
    let mut j = Judge { model, seen, verdict: Verdict::default() };
    j.dir(crate::model::BASE, "");
    let mut done = BTreeSet::new();
    for (path, id) in model.paths("") {
        if done.insert(id) {
            j.object(id, &path);
        }
    }
    j.verdict
}

impl Judge<'_> {
    fn wrong(&mut self, object: Id, aspect: Aspect, op: Option<OpNo>, path: &str, why: impl Into<String>) {
        self.verdict.wrong.push(Violation { object, aspect, op, path: path.to_owned(), why: why.into() });
    }

    fn object(&mut self, id: Id, path: &str) {
        let Some(object) = self.model.object(id) else { return };
        let found = self.seen.objects.get(&id);
        if let Node::Dir { .. } = object.what {
            self.dir(id, path);
        }
        if let Some(found) = found {
            self.verdict.objects += 1;
            self.identity(id, path, found.fileid);
        }
        let gone = "the object is gone";
        if let Some(mode) = &object.mode {
            match found.map(|f| f.mode) {
                Some(m) if m == mode.value => {}
                Some(m) => {
                    let why = format!("mode is {m:o}, should be {:o}", mode.value);
                    self.wrong(id, Aspect::Mode, Some(mode.op), path, why);
                }
                None => self.wrong(id, Aspect::Mode, Some(mode.op), path, gone),
            }
        }
        if let Some(mtime) = &object.mtime {
            match found.map(|f| f.mtime) {
                Some(t) if t == (i64::from(mtime.value), 0) => {}
                Some(t) => {
                    let why = format!("modified at {}.{:09}, should be {}", t.0, t.1, mtime.value);
                    self.wrong(id, Aspect::Mtime, Some(mtime.op), path, why);
                }
                None => self.wrong(id, Aspect::Mtime, Some(mtime.op), path, gone),
            }
        }
        match &object.what {
            Node::Dir { .. } => {}
            Node::Symlink(text) => match found {
                Some(f) if f.text == *text => {}
                Some(f) => {
                    let why = format!("leads to {}, should to {text}", f.text);
                    self.wrong(id, Aspect::Text, Some(object.born), path, why);
                }
                // The missing name is reported already.
                None => {}
            },
            Node::File(contents) => {
                let bytes = found.map_or(&[][..], |f| &f.bytes);
                let difference = contents.difference(bytes);
                for op in difference.ops {
                    let why = match found {
                        Some(f) => {
                            let from = difference.first.unwrap_or(f.bytes.len());
                            format!(
                                "data is missing or wrong from byte {from} on ({} bytes there)",
                                f.bytes.len()
                            )
                        }
                        None => gone.to_owned(),
                    };
                    self.wrong(id, Aspect::Bytes, Some(op), path, why);
                }
                if difference.strange {
                    self.wrong(id, Aspect::Bytes, None, path, "there is data that nobody wrote");
                }
                for (op, verf) in contents.unstable_missing(bytes) {
                    let wrong = Violation {
                        object: id,
                        aspect: Aspect::Unstable(op),
                        op: Some(op),
                        path: path.to_owned(),
                        why: "unstable data is gone and the verifier has not changed".to_owned(),
                    };
                    self.verdict.unstable.push((wrong, verf));
                }
            }
        }
        for (name, fact) in &object.xattrs {
            let there = found.and_then(|f| f.xattrs.get(name)).and_then(Option::as_ref);
            if there != fact.value.as_ref() {
                let why = match (there, &fact.value) {
                    (None, _) => format!("extended attribute {name} is missing"),
                    (_, None) => format!("extended attribute {name} is still there"),
                    _ => format!("extended attribute {name} has another value"),
                };
                self.wrong(id, Aspect::Xattr(name.clone()), Some(fact.op), path, why);
            }
        }
    }

    fn identity(&mut self, id: Id, path: &str, now: u64) {
        let before = self.model.object(id).and_then(|o| o.fileid);
        if before.is_some_and(|before| before != now) {
            self.verdict.renumbered.push(path.to_owned());
        }
        match self.seen.handles.get(&id) {
            None | Some(Handle::Untried) => {}
            Some(Handle::Leads(to)) if *to == now => self.verdict.handles += 1,
            Some(Handle::Leads(_) | Handle::Stale) => {
                self.verdict.handles += 1;
                self.verdict.stale.push(path.to_owned());
            }
        }
    }

    fn dir(&mut self, id: Id, path: &str) {
        let Some(Node::Dir { entries, shared }) = self.model.object(id).map(|o| &o.what) else { return };
        let found = self.seen.objects.get(&id).map(|o| &o.entries);
        let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        for (name, fact) in entries {
            let entry = found.and_then(|f| f.get(name));
            let why = match (fact.value, entry) {
                (None, None) => continue,
                (None, Some(_)) => "is still there",
                (Some(_), None) if found.is_none() => "its directory is gone",
                (Some(_), None) => "is missing",
                (Some(child), Some(entry)) if plausible(self.model, child, entry) => continue,
                (Some(_), Some(_)) => "is another object",
            };
            let (whose, aspect) = match fact.value {
                Some(child) => (child, Aspect::Names),
                None => (id, Aspect::Name(name.clone())),
            };
            self.wrong(whose, aspect, Some(fact.op), &at(name), why);
        }
        if !shared {
            for name in found.into_iter().flat_map(BTreeMap::keys).filter(|n| !entries.contains_key(*n)) {
                self.wrong(id, Aspect::Name(name.clone()), None, &at(name), "is there, and nobody made it");
            }
        }
    }
}

/// What is lost, from the verdicts on all possible trees: one if no operation is in doubt, else two, without it and with it.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub verdict: Verdict,
    /// The operation in doubt was done in part.
    pub partly: bool,
}

/// Joins the verdicts: a fact is lost if it holds in none of the trees.
pub fn decide(mut verdicts: Vec<Verdict>) -> Outcome {
    if let Some(right) = verdicts.iter().position(|v| v.wrong.is_empty()) {
        return Outcome { verdict: verdicts.swap_remove(right), partly: false };
    }
    let mut verdicts = verdicts.into_iter();
    let Some(mut verdict) = verdicts.next() else { return Outcome::default() };
    let mut one_tree = true;
    for other in verdicts {
        one_tree = false;
        let same = |w: &Violation| {
            other
                .wrong
                .iter()
                .any(|o| o.object == w.object && o.aspect == w.aspect && o.op.is_some() == w.op.is_some())
        };
        verdict.wrong.retain(same);
    }
    let partly = !one_tree && verdict.wrong.is_empty();
    Outcome { verdict, partly }
}
