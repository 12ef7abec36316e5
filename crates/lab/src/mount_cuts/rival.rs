//! Another client that changes the directories of a mount while that is cut off, and what must be so once the mount is back: what the
//! rival has put there is there, and each change of the program that is not there was told of.

use super::history::{Done, History, Id, Kind, Names, Naming, Object, Stable, Step, apply};
use super::oracle::{Entries, Forest, STILL_OPEN, Verdict, described, steps_there, version_there};
use super::record::Record;
use crate::error::{Error, Result};
use crate::powercut::found::{FoundObject, Type};
use crate::serial::{Action, Actor, Node};
use landfast_nfs::v4::{FileType, NfsStat};
use landfast_verify::rng::Rng;
use landfast_xdr::Bytes;
use std::collections::BTreeMap;

/// New names in a directory: those that the program may take next.
const PUT: u64 = 10;
/// How far from the highest number that is there.
const AHEAD: u64 = 60;

/// What the rival has made of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Made {
    /// A file where nobody had the name.
    New(Vec<u8>),
    /// A file in place of what the server had there.
    Over(Vec<u8>),
    /// What the server had is removed.
    Nothing,
}

/// What the rival has done, by path.
#[derive(Debug, Default)]
pub struct Rival {
    made: BTreeMap<(Vec<u8>, String), Made>,
    /// Changes.
    pub changes: u64,
}

impl Rival {
    /// Changes the directory at `top`, and those below it.
    /// Errors: A request fails.
    pub fn work(&mut self, client: &mut Actor, top: &str, rng: &mut Rng) -> Result<()> {
        let mut left = vec![top.as_bytes().to_vec()];
        while let Some(path) = left.pop() {
            let handle = client.handle(&path)?;
            let listed = client.list(&handle)?;
            let mut files = Vec::new();
            let mut highest = 0;
            for (name, attrs) in listed {
                let number = std::str::from_utf8(&name).ok().and_then(|n| n.get(1..)?.parse().ok());
                highest = highest.max(number.unwrap_or(0));
                match attrs.kind {
                    Some(FileType::Dir) => left.push([&path[..], b"/", &name[..]].concat()),
                    Some(FileType::Reg) => files.push(String::from_utf8_lossy(&name).into_owned()),
                    _ => {}
                }
            }
            for _ in 0..PUT {
                let kind = ['f', 't', 'd', 'r', 's'][rng.below(5) as usize];
                let name = format!("{kind}{:06}", highest + 1 + rng.below(AHEAD));
                self.put(client, &path, name)?;
            }
            for _ in 0..files.len().min(4) {
                let name = files.swap_remove(rng.below(files.len() as u64) as usize);
                let at = [&path[..], b"/", name.as_bytes()].concat();
                self.changes += 1;
                if rng.chance(500) {
                    match client.perform(&Action::Remove { path: at }) {
                        Err(Error::Nfs { status: NfsStat::NFS4ERR_NOENT, .. }) => continue,
                        done => done?,
                    };
                    self.made.insert((path.clone(), name), Made::Nothing);
                } else {
                    let other = format!("rival-{}", self.changes);
                    self.put(client, &path, other.clone())?;
                    let from = [&path[..], b"/", other.as_bytes()].concat();
                    client.perform(&Action::Rename { from, to: at })?;
                    let Some(Made::New(file)) = self.made.remove(&(path.clone(), other)) else { continue };
                    self.made.insert((path.clone(), name), Made::Over(file));
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, client: &mut Actor, dir: &[u8], name: String) -> Result<()> {
        if self.made.contains_key(&(dir.to_vec(), name.clone())) {
            return Ok(());
        }
        let path = [dir, b"/", name.as_bytes()].concat();
        self.changes += 1;
        let data = format!("the rival's, {}", self.changes).into_bytes();
        match client.perform(&Action::Create { path: path.clone(), mode: 0o640 }) {
            // What the mount had sent before the cut was executed just now.
            Err(Error::Nfs { status: NfsStat::NFS4ERR_EXIST, .. }) => return Ok(()),
            done => done?,
        };
        let bytes = Bytes::from(data.clone());
        client.perform(&Action::Write { path: path.clone(), offset: 0, data: bytes, stable: true })?;
        client.perform(&Action::Close { path })?;
        self.made.insert((dir.to_vec(), name), Made::New(data));
        Ok(())
    }

    /// What is wrong in the directory `top`, at `path`, after the mount has sent all. `told`: what it has told of. `before`: what was stable
    /// before the network went; a later fsync of one file says nothing of changes in the same directory that have failed. `done`: what
    /// was done when it came back.
    pub fn check(
        &self,
        record: &Record,
        (top, path): (Id, &str),
        forest: &Forest<'_>,
        (told, before, done): (&Told, &Stable, &Done),
    ) -> Verdict {
        let mut verdict = Verdict::default();
        for ((dir, name), made) in &self.made {
            let (Made::New(data) | Made::Over(data), true) =
                (made, crate::serial::action::is_below(dir, path.as_bytes()))
            else {
                continue;
            };
            verdict.names += 1;
            let late = |h: &History| {
                let id = dir_at(h, top, dir.strip_prefix(path.as_bytes())?)?;
                Some(self.came_late(done, (id, h.get(id)?), dir, name))
            };
            if record.with(|h, _| late(h)) == Some(true) {
                continue;
            }
            let entries = forest.entries(dir);
            let found = entries.get(name);
            if !found.is_some_and(|f| f.kind == Type::File && f.bytes == *data) {
                let got = found.map_or("nothing".to_owned(), |f| described(f));
                verdict.wrong.push(format!("{}/{name}: {got}, not the rival's file", dir.escape_ascii()));
            }
        }
        record.with(|h, _| {
            let mut left = vec![(path.as_bytes().to_vec(), top)];
            while let Some((path, id)) = left.pop() {
                let Some(dir) = h.get(id) else { continue };
                let entries = forest.entries(&path);
                let names = done_names(dir);
                for (name, object) in &names {
                    verdict.names += 1;
                    let Some(node) = h.get(*object) else { continue };
                    // Where the rival has taken a new name, the program's file was not sent yet: the mount has to tell.
                    let rival = matches!(
                        self.made.get(&(path.clone(), name.clone())),
                        Some(Made::Over(_) | Made::Nothing)
                    );
                    let found = entries.get(name).copied();
                    if let Some(kept) = told.kept(&path, name) {
                        if node.kind == Kind::Dir {
                            // The mount's request to make it was executed, and its reply lost; or the rival has the name.
                            left.push((kept.to_vec(), *object));
                        } else if !forest.at(kept).is_some_and(|f| holds(h, name, (*object, node), f)) {
                            let (path, kept) = (path.escape_ascii(), kept.escape_ascii());
                            verdict.wrong.push(format!(
                                "{path}/{name}: told that it is kept as {kept}, and it is not there"
                            ));
                        }
                        continue;
                    }
                    if found.is_some_and(|f| holds(h, name, (*object, node), f)) {
                        if node.kind == Kind::Dir {
                            left.push(([&path[..], b"/", name.as_bytes()].concat(), *object));
                        }
                        continue;
                    }
                    let stable = is_stable(before, (id, dir), name, (*object, node));
                    if self.came_late(done, (id, dir), &path, name) {
                        continue;
                    }
                    if rival || told.has(&path, name) && !stable || is_under_way(dir, name, node) {
                        continue;
                    }
                    let got = found.map_or("nothing".to_owned(), described);
                    let was = if stable { ", which was stable" } else { "" };
                    verdict.wrong.push(format!(
                        "{}/{name}: {got}, not object {object}{was}, and nobody was told",
                        path.escape_ascii()
                    ));
                }
                for (name, found) in entries {
                    let known = names.contains_key(&name) || told.has(&path, &name);
                    let rival = self.made.contains_key(&(path.clone(), name.clone()));
                    if !known && !rival && !begun(dir, &name) {
                        let path = path.escape_ascii();
                        verdict.wrong.push(format!("{path}/{name}: {} is still there", described(found)));
                    }
                }
            }
        });
        verdict
    }
}

impl Rival {
    /// Whether a call that waited until the network came back renames or removes what has this name, after the rival has changed one
    /// of its names. The server does what such a call asks for, as if it had been made just then.
    fn came_late(&self, done: &Done, (id, dir): (Id, &Object), path: &[u8], name: &str) -> bool {
        let done = done.get(&id).copied().unwrap_or(0);
        let changed = |name: &String| self.made.contains_key(&(path.to_vec(), name.clone()));
        dir.steps.iter().skip(done).any(|step| match &step.what {
            Naming::Add { .. } => false,
            Naming::Remove { name: gone } => gone == name && changed(gone),
            Naming::Rename { from, to } => (from == name || to == name) && (changed(from) || changed(to)),
        })
    }
}

/// The directory at a path below `top`, with a slash before each name.
fn dir_at(history: &History, top: Id, path: &[u8]) -> Option<Id> {
    let mut id = top;
    for wanted in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
        let made = |s: &Step| match &s.what {
            Naming::Add { name, object } if name.as_bytes() == wanted => Some(*object),
            _ => None,
        };
        id = history.get(id)?.steps.iter().find_map(made)?;
    }
    Some(id)
}

/// What a mount has told of.
#[derive(Debug)]
pub struct Told {
    lines: Vec<String>,
}

impl Told {
    pub fn new(lines: Vec<String>) -> Told {
        Told { lines }
    }

    pub fn count(&self) -> u64 {
        self.lines.len() as u64
    }

    /// Where a directory is kept whose name was taken.
    fn kept(&self, dir: &[u8], name: &str) -> Option<&[u8]> {
        let path = format!("{}/{name}: ", String::from_utf8_lossy(dir));
        let line = self.lines.iter().filter_map(|line| line.strip_prefix(&path));
        line.filter_map(|said| Some(said.split_once(" is kept as ")?.1.as_bytes())).next_back()
    }

    /// Whether one of the lines is about a name in a directory. If there were too many to be kept, it may have been one of the others.
    fn has(&self, dir: &[u8], name: &str) -> bool {
        let path = format!("{}/{name}", String::from_utf8_lossy(dir));
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || "-_.".contains(c));
        let about = |line: &String| {
            line.match_indices(&path).any(|(at, _)| line.get(at + path.len()..).is_some_and(ends))
        };
        let more = |line: &String| line.starts_with("and ") && line.ends_with(" more");
        self.lines.iter().any(|line| about(line) || more(line))
    }
}

/// The names of a directory after the calls that have returned.
fn done_names(dir: &Object) -> Names {
    let mut names = Names::new();
    dir.steps.iter().filter(|s| s.done.is_some()).for_each(|step| apply(&mut names, &step.what));
    names
}

fn holds(h: &History, name: &str, (object, node): (Id, &Object), found: &FoundObject) -> bool {
    let is_dir = matches!(found.kind, Type::Other(Node::Dir));
    if node.kind == Kind::Dir {
        return is_dir;
    }
    let entries: Entries<'_> = [(name.to_owned(), found)].into();
    let mut alone = Object::new(Kind::Dir);
    alone.steps.push(Step {
        what: Naming::Add { name: name.to_owned(), object },
        object,
        begun: Default::default(),
        done: None,
    });
    let same = steps_there(h, &alone, &entries, (1, 1), STILL_OPEN).is_some();
    let last = node.versions.iter().rposition(|v| v.done.is_some()).unwrap_or(0);
    same && (node.kind != Kind::File
        || version_there((object, node), &found.bytes, last, STILL_OPEN).is_some())
}

fn touches(what: &Naming, name: &str) -> bool {
    match what {
        Naming::Add { name: n, .. } | Naming::Remove { name: n } => n == name,
        Naming::Rename { from, to } => from == name || to == name,
    }
}

/// Whether a name and what it leads to were stable, and nothing has happened to them since.
fn is_stable(before: &Stable, (id, dir): (Id, &Object), name: &str, (object, node): (Id, &Object)) -> bool {
    let steps = before.get(&id).map_or(0, |(steps, _)| *steps);
    let versions = before.get(&object).map_or(0, |(_, versions)| *versions);
    let last = dir.steps.iter().rposition(|s| touches(&s.what, name));
    last.is_some_and(|n| n < steps) && versions == node.versions.len()
}

/// Whether a call is at work on it that has not returned.
fn is_under_way(dir: &Object, name: &str, node: &Object) -> bool {
    let naming = dir.steps.iter().any(|s| s.done.is_none() && touches(&s.what, name));
    naming || node.versions.iter().any(|v| v.done.is_none())
}

fn begun(dir: &Object, name: &str) -> bool {
    dir.steps.iter().any(|s| s.done.is_none() && touches(&s.what, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::powercut::found::Tree;
    use std::time::Instant;

    /// A program has made t, and renames it to f while the network is away; the rival makes f, and g as well. `waited`: until the network
    /// was back.
    fn verdict(waited: bool, what: Naming, there: &[(&str, &[u8])]) -> Verdict {
        let record = Record::new(Instant::now(), false, 0);
        let top = record.with(|h, _| h.add(Kind::Dir));
        let object = record.with(|h, _| h.add(Kind::File));
        let add = |what| record.with(|h, now| h.begin(top, what, object, now));
        record.named(top, add(Naming::Add { name: "t".into(), object }));
        let (before, first) = record.with(|h, _| (h.stable_now(), h.done_now()));
        record.named(top, add(what));
        let done = if waited { first } else { record.with(|h, _| h.done_now()) };
        let made = ["f", "g"].map(|name| ((b"p".to_vec(), name.to_owned()), Made::New(b"rival".to_vec())));
        let rival = Rival { made: made.into(), changes: 2 };
        let mut tree: Tree =
            there.iter().map(|(n, data)| (format!("p/{n}").into_bytes(), FoundObject::file(data))).collect();
        tree.insert(b"p/g".to_vec(), FoundObject::file(b"rival"));
        let told = Told::new(Vec::new());
        rival.check(&record, (top, "p"), &Forest::new(&tree), (&told, &before, &done))
    }

    #[test]
    fn a_call_that_waited_for_the_network_may_replace_what_the_rival_has_made() {
        let renamed = || Naming::Rename { from: "t".into(), to: "f".into() };
        assert_eq!(verdict(true, renamed(), &[("f", b"")]).wrong, Vec::<String>::new());
        // One that did not wait was told before that it is done.
        assert_eq!(verdict(false, renamed(), &[("f", b"")]).wrong.len(), 1);
        // A creation replaces nothing.
        let added = verdict(true, Naming::Add { name: "f".into(), object: 2 }, &[("t", b""), ("f", b"")]);
        assert_eq!(added.wrong.len(), 1, "{added:?}");
    }

    /// A program has made f, which the mount had not sent when the rival made one, too.
    #[test]
    fn a_file_whose_name_the_rival_has_taken_is_told_of_and_kept_whole() {
        let record = Record::new(Instant::now(), false, 0);
        let top = record.with(|h, _| h.add(Kind::Dir));
        let object = record.with(|h, _| h.add(Kind::File));
        let before = record.with(|h, _| h.stable_now());
        let add = Naming::Add { name: "f".into(), object };
        record.named(top, record.with(|h, now| h.begin(top, add, object, now)));
        let done = record.with(|h, _| h.done_now());
        let check = |lines: &[&str], made: Made, there: &[(&str, &[u8])]| {
            let told = Told::new(lines.iter().map(|line| (*line).to_owned()).collect());
            let rival = Rival { made: [((b"p".to_vec(), "f".to_owned()), made)].into(), changes: 1 };
            let tree: Tree = there
                .iter()
                .map(|(n, data)| (format!("p/{n}").into_bytes(), FoundObject::file(data)))
                .collect();
            rival.check(&record, (top, "p"), &Forest::new(&tree), (&told, &before, &done)).wrong
        };
        let (new, theirs) = (|| Made::New(b"rival".to_vec()), ("f", &b"rival"[..]));
        assert_eq!(check(&[], new(), &[theirs]).len(), 1, "nobody was told");
        assert_eq!(check(&["q/f: what was written is lost"], new(), &[theirs]).len(), 1, "another file");
        assert_eq!(check(&["p/f: what was written is lost"], new(), &[theirs]), Vec::<String>::new());
        let kept = ["p/f: this name is taken on the server: what was made here is kept as p/f.kept"];
        assert_eq!(check(&kept, new(), &[theirs]).len(), 1, "it is not there");
        assert_eq!(check(&kept, new(), &[theirs, ("f.kept", b"")]), Vec::<String>::new());
        // It had been sent, and the rival replaced it on the server.
        assert_eq!(check(&[], Made::Over(b"rival".to_vec()), &[theirs]), Vec::<String>::new());
    }

    #[test]
    fn what_is_in_a_directory_whose_name_was_taken_is_looked_for_where_that_is_kept() {
        let record = Record::new(Instant::now(), false, 0);
        let [top, dir, object] =
            [Kind::Dir, Kind::Dir, Kind::File].map(|kind| record.with(|h, _| h.add(kind)));
        for (at, name, object) in [(top, "d", dir), (dir, "f", object)] {
            let what = Naming::Add { name: name.into(), object };
            record.named(at, record.with(|h, now| h.begin(at, what, object, now)));
        }
        let done = record.with(|h, _| h.done_now());
        let line = "p/d: this name is taken on the server: what was made here is kept as p/d.kept";
        let told = Told::new(vec![line.to_owned()]);
        let check = |paths: &[&str]| {
            let object = |path: &str| match path.ends_with('f') {
                true => FoundObject::file(b""),
                false => FoundObject { kind: Type::Other(Node::Dir), ..FoundObject::file(b"") },
            };
            let tree: Tree = paths.iter().map(|p| (p.as_bytes().to_vec(), object(p))).collect();
            let before = Stable::new();
            Rival::default().check(&record, (top, "p"), &Forest::new(&tree), (&told, &before, &done)).wrong
        };
        assert_eq!(check(&["p/d", "p/d.kept", "p/d.kept/f"]), Vec::<String>::new());
        assert_eq!(check(&["p/d", "p/d.kept", "p/d/f"]).len(), 1);
    }
}
