//! Strangers: administrators of the machine who change the tree past the server, and what the oracle demands after that
//! (`docs/internals/recovery.md`, *Who else changes the tree*).
//!
//! Recovery leaves names alone if the disk is ahead of the log, if the kernel kept the tree after a kill, and after a clean stop.
//! Then the tree must be as the stranger left it. Otherwise:
//! - what he has not touched, and what does not depend on it, is exact;
//! - what he removed and no crash can have taken stays removed;
//! - what only lost its place is somewhere;
//! - what he moved or made is there.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::oracle::Logged;
use super::past::{Apart, Past, State};
use super::world::World;
use crate::kernel::sim::{self, Kernel, Meta, ROOT, Serial};
use crate::marker::MARKER_FILE;
use crate::orphans::ORPHANS_DIR;
use crate::recover::disk::LOST_FOUND;
use crate::state::STATE_DIR;
use crate::types::Kind;

#[derive(Clone, Copy)]
pub(super) struct Edit {
    /// The maximum size of the file after it.
    pub(super) end: u64,
    pub(super) byte: u8,
}

/// An object that he removed with all its names, and about which the log has records.
struct Missing {
    serial: Serial,
    /// The path under which recovery must report it, unless that is uncertain.
    path: Option<String>,
    names: Vec<String>,
}

#[derive(Default)]
pub(super) struct Touched {
    moved: HashSet<Serial>,
    /// Objects that have had no name since.
    removed: Vec<Serial>,
    pub(super) edits: HashMap<Serial, Edit>,
    entries: HashSet<(Serial, Vec<u8>)>,
    /// Directories in which he changed something: their times are his.
    dirs: HashSet<Serial>,
    pub(super) disk: State,
    missing: Vec<Missing>,
}

fn of_the_server(k: &Kernel, name: &str) -> Option<Serial> {
    let within = |dir: Serial, name: &str| Some(k.peek(dir)?.entries.get(name.as_bytes())?.serial);
    within(within(ROOT, STATE_DIR)?, name)
}

pub(super) fn marker(k: &Kernel) -> Option<u64> {
    u64::try_from(k.peek(of_the_server(k, MARKER_FILE)?)?.mtime).ok()
}

/// Whether there are files without a name that are kept, or may be after recovery.
pub(super) fn has_orphans(k: &Kernel) -> bool {
    of_the_server(k, ORPHANS_DIR).and_then(|dir| k.peek(dir)).is_some_and(|dir| !dir.entries.is_empty())
}

/// Where recovery keeps objects that have lost their place.
pub(super) fn lost_found(k: &Kernel) -> Option<Serial> {
    of_the_server(k, LOST_FOUND)
}

/// All objects that have a name, each with one of its paths, except the server's own.
pub(super) fn paths(k: &Kernel) -> BTreeMap<Serial, String> {
    let mut found = BTreeMap::from([(ROOT, String::new())]);
    let mut dirs = vec![ROOT];
    while let Some(dir) = dirs.pop() {
        let at = found.get(&dir).cloned().unwrap_or_default();
        for (name, entry) in named(k, dir) {
            let name = String::from_utf8_lossy(&name);
            let path = if at.is_empty() { name.into_owned() } else { format!("{at}/{name}") };
            if found.insert(entry, path).is_none() && k.peek(entry).is_some_and(|m| m.kind == Kind::Dir) {
                dirs.push(entry);
            }
        }
    }
    found
}

fn named(k: &Kernel, dir: Serial) -> Vec<(Vec<u8>, Serial)> {
    let Some(meta) = k.peek(dir) else { return Vec::new() };
    let entries = meta.entries.iter().filter(|(name, _)| !name.starts_with(b"."));
    entries.map(|(name, entry)| (name.to_vec(), entry.serial)).collect()
}

impl World {
    pub(super) fn administrator(&mut self, logged: &Logged) -> Touched {
        let before = sim::with(|k| paths(k));
        let spoken: Vec<(Serial, bool)> = sim::with(|k| {
            logged.live.iter().filter_map(|(id, bound)| Some((k.serial_of(id)?, *bound))).collect()
        });
        let links: HashMap<Serial, u32> =
            sim::with(|k| spoken.iter().filter_map(|(s, _)| Some((*s, k.peek(*s)?.nlink))).collect());
        let mut names: HashMap<Serial, Vec<String>> = HashMap::new();
        for dir in sim::with(|k| k.directories()) {
            for (name, serial) in sim::with(|k| named(k, dir)) {
                names.entry(serial).or_default().push(shown(&name));
            }
        }
        let parents: HashMap<Serial, Serial> =
            sim::with(|k| before.keys().filter_map(|s| Some((*s, k.peek(*s)?.parent))).collect());
        let mut touched = Touched::default();
        for _ in 0..=self.rng.below(4) {
            match self.rng.below(10) {
                0..3 => self.strangers_rm(&mut touched),
                3..6 => self.strangers_mv(&mut touched),
                6..8 => self.strangers_editor(&mut touched),
                _ => self.strangers_edit(&mut touched),
            }
        }
        for (serial, bound) in spoken {
            if !touched.removed.contains(&serial) {
                continue;
            }
            // Where it was, if nothing above it has been moved or removed.
            let mut above = parents.get(&serial).copied().unwrap_or(ROOT);
            while above != ROOT && !touched.moved.contains(&above) {
                above = parents.get(&above).copied().unwrap_or(ROOT);
            }
            let kept = above == ROOT
                && (links.get(&serial) == Some(&1) || names.get(&serial).map(Vec::len) == Some(1));
            touched.missing.push(Missing {
                serial,
                path: before.get(&serial).filter(|_| kept && bound).cloned(),
                names: names.get(&serial).cloned().unwrap_or_default(),
            });
        }
        sim::with(|k| {
            k.flush_as_stranger();
            touched.disk = k.snapshot();
        });
        touched
    }

    fn strangers_pick(&mut self, which: impl Fn(&Meta) -> bool) -> Option<(Serial, Vec<u8>, Serial)> {
        let all: Vec<_> = sim::with(|k| {
            let dirs = k.directories();
            let entries =
                dirs.into_iter().flat_map(|dir| named(k, dir).into_iter().map(move |(n, s)| (dir, n, s)));
            entries.filter(|(.., s)| k.peek(*s).is_some_and(|m| which(m))).collect()
        });
        (!all.is_empty()).then(|| self.rng.pick(&all).clone())
    }

    fn strangers_name(&mut self) -> Vec<u8> {
        vec![b'a' + self.rng.below(8) as u8]
    }

    fn strangers_rm(&mut self, touched: &mut Touched) {
        let Some((dir, name, serial)) = self.strangers_pick(|_| true) else { return };
        self.say(|| format!("a stranger removes {} from {dir}: object {serial}", shown(&name)));
        self.strangers_take_away(touched, dir, &name, serial);
    }

    fn strangers_take_away(&mut self, touched: &mut Touched, dir: Serial, name: &[u8], serial: Serial) {
        if sim::with(|k| k.peek(serial).is_some_and(|m| m.kind == Kind::Dir)) {
            for (name, below) in sim::with(|k| named(k, serial)) {
                self.strangers_take_away(touched, serial, &name, below);
            }
        }
        if sim::with(|k| k.remove_as_stranger(dir, name)) {
            touched.entry(dir, name);
            self.strangers_victim(touched, serial);
        }
    }

    /// Notes that he has taken a name from an object.
    fn strangers_victim(&mut self, touched: &mut Touched, serial: Serial) {
        self.figures.altered += 1;
        touched.moved.insert(serial);
        if sim::with(|k| k.peek(serial).is_none_or(|m| m.nlink == 0)) {
            touched.removed.push(serial);
            // Even if it was another stranger's.
            self.forget_stranger(serial);
        }
    }

    fn strangers_mv(&mut self, touched: &mut Touched) {
        let Some((from, name, serial)) = self.strangers_pick(|_| true) else { return };
        let dirs = sim::with(|k| k.directories());
        let (to, new) = (*self.rng.pick(&dirs), self.strangers_name());
        self.strangers_move(touched, (from, &name), (to, &new), serial);
    }

    fn strangers_move(
        &mut self,
        touched: &mut Touched,
        from: (Serial, &[u8]),
        to: (Serial, &[u8]),
        serial: Serial,
    ) {
        let victim = sim::with(|k| Some(k.peek(to.0)?.entries.get(to.1)?.serial));
        if victim == Some(serial) || !sim::with(|k| k.rename_as_stranger(from, to)) {
            return;
        }
        self.say(|| {
            let ((dir, name), (to, new)) = (from, to);
            format!("a stranger moves {} of {dir} to {} in {to}: object {serial}", shown(name), shown(new))
        });
        self.figures.altered += 1;
        self.may_be_met(serial);
        touched.moved.insert(serial);
        touched.entry(from.0, from.1);
        touched.entry(to.0, to.1);
        if let Some(victim) = victim {
            self.strangers_victim(touched, victim);
        }
    }

    /// Changes a file as editors do: moves a new one over it.
    fn strangers_editor(&mut self, touched: &mut Touched) {
        let Some((dir, name, _)) = self.strangers_pick(|m| m.kind == Kind::File) else { return };
        let new = b"stranger-new";
        let Some(made) = sim::with(|k| k.intrude(dir, new)) else { return };
        self.figures.foreign += 1;
        touched.moved.insert(made);
        self.is_strangers(made);
        self.strangers_move(touched, (dir, new), (dir, &name), made);
    }

    /// Writes into a file, but only once into each: the oracle knows one byte of his.
    fn strangers_edit(&mut self, touched: &mut Touched) {
        let Some((.., serial)) = self.strangers_pick(|m| m.kind == Kind::File) else { return };
        if touched.edits.contains_key(&serial) {
            return;
        }
        let (cut, at, len) = (self.rng.one_in(2), self.rng.below(900), 1 + self.rng.below(300));
        let byte = 1 + self.rng.below(255) as u8;
        if sim::with(|k| k.edit_as_stranger(serial, cut, at, &vec![byte; len as usize])) {
            self.say(|| format!("a stranger writes {len} at {at} of {serial}, cut before: {cut}"));
            self.figures.altered += 1;
            touched.edits.insert(serial, Edit { end: at + len, byte });
        }
    }
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

impl Touched {
    fn entry(&mut self, dir: Serial, name: &[u8]) {
        self.entries.insert((dir, name.to_vec()));
        self.dirs.insert(dir);
    }

    /// Whether he has moved it and it still has a name. If clients had removed it, it is no longer theirs: its handle leads to it
    /// or nowhere, and its number may belong to another object.
    pub(super) fn has_moved(&self, serial: Serial) -> bool {
        self.moved.contains(&serial) && !self.removed.contains(&serial)
    }

    /// Checks that recovery reports each object that he removed, in cases where it left names as he left them.
    pub(super) fn check_said(&self, local: &[String], more: u64, with_paths: bool) -> Result<(), String> {
        if more == 0 && local.len() < self.missing.len() {
            let n = self.missing.len();
            return Err(format!(
                "{n} objects are missing that a stranger has removed, and it says {local:?}"
            ));
        }
        for missing in self.missing.iter().filter(|_| more == 0 && with_paths) {
            let said = |path: &String| local.iter().any(|line| line.starts_with(&format!("{path}: ")));
            if missing.path.as_ref().is_some_and(|path| !said(path)) {
                return Err(format!(
                    "a stranger has removed {:?} (object {}), and it says {local:?}",
                    missing.path, missing.serial
                ));
            }
        }
        Ok(())
    }

    /// The same where a crash may have taken some: checks the objects that existed before the life that has ended.
    pub(super) fn check_said_of_old(
        &self,
        past: &Past,
        then: &State,
        local: &[String],
        with_paths: bool,
    ) -> Result<(), String> {
        let lives = |s: Serial| then.get(s as usize).is_some_and(Option::is_some);
        let old: Vec<_> = self.missing.iter().filter(|m| past.had(m.serial) && lives(m.serial)).collect();
        if local.len() < old.len() {
            return Err(format!(
                "{} objects are missing that a stranger has removed, and it says {local:?}",
                old.len()
            ));
        }
        for missing in old.into_iter().filter(|m| with_paths && m.path.is_some()) {
            let all = then.iter().flatten().flat_map(|dir| dir.entries.iter());
            let names = all.filter(|(_, e)| e.serial == missing.serial).map(|(name, _)| shown(name));
            let names: Vec<String> = names.chain(missing.names.iter().cloned()).collect();
            let said = |line: &String| {
                let name = line.split(": ").next().and_then(|path| path.rsplit('/').next());
                name.is_some_and(|name| names.iter().any(|n| n == name))
            };
            if !local.iter().any(said) {
                let serial = missing.serial;
                return Err(format!(
                    "a stranger has removed object {serial}, called {names:?}, and it says {local:?}"
                ));
            }
        }
        Ok(())
    }

    /// Checks what must hold whatever he did, in cases where recovery has restored names from the log. `leads`: where handles
    /// lead. Returns the pairs of old and present objects.
    pub(super) fn beside(
        &self,
        k: &Kernel,
        past: &Past,
        at: (u64, (u64, u64)),
        strangers: &HashSet<Serial>,
        leads: &BTreeMap<Serial, Serial>,
    ) -> Result<Vec<(Serial, Serial)>, String> {
        let then = past.at(at.0);
        let apart = Apart { strangers, edits: &self.edits, dirs: Some(&self.dirs) };
        let mut walk = Beside { k, past, then, at, apart, touched: self, leads, pairs: BTreeMap::new() };
        walk.directory(ROOT, Some(ROOT))?;
        let Beside { then, mut pairs, .. } = walk;
        let there = |serial: Serial| k.peek(serial).is_some_and(|m| m.nlink > 0);
        let lives = |serial: Serial| then.get(serial as usize).is_some_and(Option::is_some);
        for serial in self.moved.iter().copied().filter(|s| !self.removed.contains(s)) {
            if lives(serial) && !there(serial) {
                return Err(format!("object {serial}, which a stranger has moved, is deleted"));
            }
        }
        for serial in self.removed.iter().copied().filter(|s| past.had(*s)) {
            if let Some(now) = leads.get(&serial) {
                return Err(format!(
                    "object {serial}, which a stranger has removed, is there again as {now}"
                ));
            }
        }
        for serial in self.moved.iter().filter(|s| lives(**s)) {
            if let Some(now) = leads.get(serial) {
                pairs.insert(*serial, *now);
            }
        }
        let distinct: HashSet<Serial> = pairs.values().copied().collect();
        if distinct.len() < pairs.len() {
            return Err("two objects have become one".to_owned());
        }
        Ok(pairs.into_iter().collect())
    }
}

/// A walk through everything that must be there.
struct Beside<'a> {
    k: &'a Kernel,
    past: &'a Past,
    then: State,
    at: (u64, (u64, u64)),
    apart: Apart<'a>,
    touched: &'a Touched,
    leads: &'a BTreeMap<Serial, Serial>,
    pairs: BTreeMap<Serial, Serial>,
}

impl Beside<'_> {
    /// `now`: what the directory `old` is now, if neither it nor anything on the way to it was touched.
    fn directory(&mut self, old: Serial, now: Option<Serial>) -> Result<(), String> {
        let Some(was) = self.then.get(old as usize).and_then(Clone::clone) else {
            return Err(format!("object {old} was not there at {}", self.at.0));
        };
        let his = |s: &Self, name: &[u8]| s.touched.entries.contains(&(old, name.to_vec()));
        if old == ROOT {
            self.object(ROOT, ROOT, true)?;
        }
        if let Some(now) = now {
            for (name, found) in named(self.k, now) {
                let known = his(self, &name)
                    || self.touched.moved.contains(&found)
                    || self.apart.strangers.contains(&found)
                    || was.entries.contains_key(&name[..]);
                if !known {
                    return Err(format!("{old}: entry {} should not be there", shown(&name)));
                }
            }
        }
        for (name, entry) in was.entries.iter().filter(|(name, _)| !name.starts_with(b".")) {
            let child = entry.serial;
            if self.apart.strangers.contains(&child) {
                continue;
            }
            let moved = self.touched.moved.contains(&child);
            let exact = now.filter(|_| !moved && !his(self, name));
            let found = match exact {
                Some(dir) => {
                    let entries = self.k.peek(dir).map(|m| m.entries.clone());
                    let found = entries.and_then(|e| Some(e.get(name)?.serial));
                    Some(found.ok_or_else(|| {
                        format!("{old}: entry {} is missing, and nobody has touched it", shown(name))
                    })?)
                }
                None if moved => None,
                None => Some(self.leads.get(&child).copied().ok_or_else(|| {
                    format!("{old}: {} ({child}), whose place was touched, is nowhere", shown(name))
                })?),
            };
            let kind = self.then.get(child as usize).and_then(Option::as_ref).map(|m| m.kind);
            if let Some(found) = found {
                match self.pairs.insert(child, found) {
                    Some(known) if known != found => {
                        return Err(format!("{old}: {} was a name of what is {known} now", shown(name)));
                    }
                    Some(_) => continue,
                    None => self.object(child, found, exact.is_some())?,
                }
            }
            if kind == Some(Kind::Dir) {
                self.directory(child, exact.and(found))?;
            }
        }
        Ok(())
    }

    fn object(&self, old: Serial, now: Serial, exact: bool) -> Result<(), String> {
        let missing = || format!("object {old} was not there at {}", self.at.0);
        let was = self.then.get(old as usize).and_then(Option::as_ref).ok_or_else(missing)?;
        let is = self.k.peek(now).filter(|m| m.nlink > 0);
        let is = is.ok_or_else(|| format!("object {old}, now {now}, is not there"))?;
        let links = exact && was.nlink == 1;
        self.past
            .compare_one(self.k, (old, was), is, self.at, &self.apart, links)
            .map_err(|e| format!("object {old}, now {now} ({:?}): {e}", was.kind))
    }
}
