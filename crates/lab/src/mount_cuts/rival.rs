//! Another client that changes the directories of a mount while that is cut off, and what must be so once the mount is back: what the
//! rival has put there is there, and each change of the program that is not there was told of.

use super::history::{Id, Kind, Names, Naming, Object, Stable, apply};
use super::oracle::{Entries, Forest, Verdict, described, steps_there, version_there};
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
    File(Vec<u8>),
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
                    let Some(file) = self.made.remove(&(path.clone(), other)) else { continue };
                    self.made.insert((path.clone(), name), file);
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
        self.made.insert((dir.to_vec(), name), Made::File(data));
        Ok(())
    }

    /// What is wrong in the directory `top`, at `path`, after the mount has sent all. `told`: what it has told of. `before`: what was stable
    /// before the network went; a later fsync of one file says nothing of changes in the same directory that have failed.
    pub fn check(
        &self,
        record: &Record,
        (top, path): (Id, &str),
        forest: &Forest<'_>,
        (told, before): (&Told, &Stable),
    ) -> Verdict {
        let mut verdict = Verdict::default();
        for ((dir, name), made) in &self.made {
            let (Made::File(data), true) = (made, crate::serial::action::is_below(dir, path.as_bytes()))
            else {
                continue;
            };
            verdict.names += 1;
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
                    let rival = self.made.contains_key(&(path.clone(), name.clone()));
                    let found = entries.get(name).copied();
                    if found.is_some_and(|f| holds(h, name, (*object, node), f)) {
                        if node.kind == Kind::Dir {
                            left.push(([&path[..], b"/", name.as_bytes()].concat(), *object));
                        }
                        continue;
                    }
                    let stable = is_stable(before, (id, dir), name, (*object, node));
                    if rival || told.has(name) && !stable || is_under_way(dir, name, node) {
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
                    let known = names.contains_key(&name) || told.has(&name);
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

    /// Whether one of the lines is about a name. If there were too many to be kept, it may have been one of the others.
    fn has(&self, name: &str) -> bool {
        let more = |line: &String| line.starts_with("and ") && line.ends_with(" more");
        self.lines.iter().any(|line| line.contains(name) || more(line))
    }
}

/// The names of a directory after the calls that have returned.
fn done_names(dir: &Object) -> Names {
    let mut names = Names::new();
    dir.steps.iter().filter(|s| s.done.is_some()).for_each(|step| apply(&mut names, &step.what));
    names
}

fn holds(
    h: &super::history::History,
    name: &str,
    (object, node): (Id, &Object),
    found: &FoundObject,
) -> bool {
    let is_dir = matches!(found.kind, Type::Other(Node::Dir));
    if node.kind == Kind::Dir {
        return is_dir;
    }
    let entries: Entries<'_> = [(name.to_owned(), found)].into();
    let mut alone = Object::new(Kind::Dir);
    alone.steps.push(super::history::Step {
        what: Naming::Add { name: name.to_owned(), object },
        object,
        begun: Default::default(),
        done: None,
    });
    let same = steps_there(h, &alone, &entries, (1, 1)).is_some();
    let last = node.versions.iter().rposition(|v| v.done.is_some()).unwrap_or(0);
    same && (node.kind != Kind::File || version_there(object, node, &found.bytes, last).is_some())
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
