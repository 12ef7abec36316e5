//! Chooses the next operation at random. The same seed and the same replies give the same operations. Pure.
//!
//! The number of objects is bounded and names are used again. So a run can last for hours, and every operation of the last
//! seconds can still be checked.

use crate::limits::{
    DEPTH_MAX, DIRS_MAX, FILE_BYTES_MAX, LATE_FILES, LATE_MS, LIVE_MAX, NAMES, WRITE_BYTES_MAX,
    WRITE_BYTES_MIN,
};
use crate::model::{Id, Model, Node};
use crate::op::{Kind, Op};
use crate::rng::Rng;
use std::collections::VecDeque;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities {
    pub xattrs: bool,
    /// An exclusive create cannot set the mode (versions 3 and 4.0): a SETATTR follows.
    pub exclusive_is_bare: bool,
}

/// How often each kind is chosen, relative to the others.
const WEIGHTS: [(Kind, u64); 17] = [
    (Kind::Create, 20),
    (Kind::CreateExclusive, 8),
    (Kind::Write, 18),
    (Kind::Commit, 12),
    (Kind::SetMode, 6),
    (Kind::SetSize, 5),
    (Kind::SetTimes, 6),
    (Kind::Mkdir, 5),
    (Kind::Rmdir, 3),
    (Kind::Symlink, 5),
    (Kind::Link, 5),
    (Kind::Rename, 8),
    (Kind::RenameOver, 5),
    (Kind::Remove, 10),
    (Kind::SetXattr, 5),
    (Kind::RemoveXattr, 2),
    // Only on request: it mostly waits.
    (Kind::CommitLate, 4),
];

#[derive(Debug)]
pub struct Plan {
    rng: Rng,
    top: String,
    weights: Vec<(Kind, u64)>,
    abilities: Abilities,
    todo: VecDeque<Op>,
}

/// An object with one of its paths.
struct Existing {
    path: String,
    id: Id,
}

impl Plan {
    /// Operations below the directory `top`: those of `kinds` (all that the server can do, if it is empty) and those that
    /// these need first.
    pub fn new(seed: u64, top: String, kinds: &[Kind], abilities: Abilities) -> Plan {
        let wanted = |kind: &Kind| (kinds.is_empty() && *kind != Kind::CommitLate) || kinds.contains(kind);
        let able = |kind: &Kind| abilities.xattrs || !matches!(kind, Kind::SetXattr | Kind::RemoveXattr);
        let weights = WEIGHTS.into_iter().filter(|(k, _)| wanted(k) && able(k)).collect();
        Plan { rng: Rng::new(seed), top, weights, abilities, todo: VecDeque::new() }
    }

    /// The next operation on the tree as it is.
    pub fn next(&mut self, model: &Model) -> Op {
        if let Some(op) = self.todo.pop_front() {
            return op;
        }
        let all: Vec<Existing> =
            model.paths(&self.top).into_iter().map(|(path, id)| Existing { path, id }).collect();
        for _ in 0..8 {
            let kind = self.kind(all.len());
            if let Some(op) = self.make(kind, model, &all) {
                return op;
            }
        }
        // There is nothing to work on.
        self.create(model, &all, false)
    }

    fn kind(&mut self, live: usize) -> Kind {
        let weight = |(kind, w): &(Kind, u64)| match kind {
            Kind::Remove | Kind::Rmdir if live > LIVE_MAX => w * 6,
            _ => *w,
        };
        let mut left = self.rng.modulo(self.weights.iter().map(weight).sum());
        for one in &self.weights {
            let w = weight(one);
            if left < w {
                return one.0;
            }
            left -= w;
        }
        Kind::Create
    }

    /// Picks a directory that may get another entry.
    fn dir(&mut self, model: &Model, all: &[Existing]) -> String {
        let dirs: Vec<&str> = all
            .iter()
            .filter(|a| is_dir(model, a.id))
            .map(|a| a.path.as_str())
            .chain([self.top.as_str()])
            .collect();
        self.rng.pick(&dirs).copied().unwrap_or(&self.top).to_owned()
    }

    /// Picks a path that is free.
    fn free(&mut self, model: &Model, all: &[Existing]) -> String {
        for _ in 0..20 {
            let dir = self.dir(model, all);
            let path = format!("{dir}/n{:02}", self.rng.modulo(NAMES));
            if model.find(&path).is_none() {
                return path;
            }
        }
        format!("{}/x{:016x}", self.dir(model, all), self.rng.next_u64())
    }

    fn file<'a>(&mut self, model: &Model, all: &'a [Existing]) -> Option<&'a Existing> {
        let files: Vec<&Existing> = all.iter().filter(|a| size(model, a.id).is_some()).collect();
        self.rng.pick(&files).copied()
    }

    fn create(&mut self, model: &Model, all: &[Existing], exclusive: bool) -> Op {
        let path = self.free(model, all);
        let mode = 0o600 | (self.rng.modulo(0o100) as u32);
        if exclusive && self.abilities.exclusive_is_bare {
            self.todo.push_back(Op::SetMode { path: path.clone(), mode });
        }
        Op::Create { path, mode, exclusive }
    }

    fn write(&mut self, path: String, size: u64, stable: bool) -> Op {
        // Often an append, as most files are written.
        let offset = if self.rng.modulo(2) == 0 { size } else { self.rng.modulo(size + 2000) };
        let offset = offset.min(FILE_BYTES_MAX - WRITE_BYTES_MAX);
        let max = if self.rng.modulo(3) == 0 { WRITE_BYTES_MAX } else { 2000 };
        let len = WRITE_BYTES_MIN + self.rng.modulo(max - WRITE_BYTES_MIN);
        Op::Write { path, offset, len: len as u32, tag: self.rng.next_u64(), stable }
    }

    fn make(&mut self, kind: Kind, model: &Model, all: &[Existing]) -> Option<Op> {
        Some(match kind {
            Kind::Create => self.create(model, all, false),
            Kind::CreateExclusive => self.create(model, all, true),
            Kind::Write | Kind::WriteUnstable => {
                let file = self.file(model, all)?;
                self.write(file.path.clone(), size(model, file.id)?, kind == Kind::Write)
            }
            Kind::Commit => {
                let file = self.file(model, all)?;
                let size = size(model, file.id)?;
                for _ in 0..=self.rng.modulo(3) {
                    let write = self.write(file.path.clone(), size, false);
                    self.todo.push_back(write);
                }
                // Some writes wait for a later COMMIT, or get none.
                if self.rng.modulo(4) != 0 {
                    self.todo.push_back(Op::Commit { path: file.path.clone(), late: None });
                }
                self.todo.pop_front()?
            }
            Kind::CommitLate => {
                let files: Vec<&Existing> = all.iter().filter(|a| size(model, a.id).is_some()).collect();
                let mut late = Some(LATE_MS);
                let mut commits = VecDeque::new();
                for _ in 0..LATE_FILES.min(files.len()) {
                    let file = *self.rng.pick(&files)?;
                    // Overwrites, so that a lost write leaves older data in its place.
                    let len = WRITE_BYTES_MAX as u32;
                    let tag = self.rng.next_u64();
                    self.todo.push_back(Op::Write {
                        path: file.path.clone(),
                        offset: 0,
                        len,
                        tag,
                        stable: false,
                    });
                    commits.push_back(Op::Commit { path: file.path.clone(), late: late.replace(0) });
                }
                self.todo.append(&mut commits);
                self.todo.pop_front()?
            }
            Kind::SetMode => {
                let at = self.rng.pick(all).filter(|a| !is_symlink(model, a.id))?;
                let least = if is_dir(model, at.id) { 0o700 } else { 0o600 };
                Op::SetMode { path: at.path.clone(), mode: least | (self.rng.modulo(0o100) as u32) }
            }
            Kind::SetSize => {
                let file = self.file(model, all)?;
                let size = size(model, file.id)?;
                Op::SetSize {
                    path: file.path.clone(),
                    size: self.rng.modulo((size + 1000).min(FILE_BYTES_MAX)),
                }
            }
            Kind::SetTimes => {
                let at = self.rng.pick(all).filter(|a| !is_symlink(model, a.id))?;
                Op::SetTimes {
                    path: at.path.clone(),
                    mtime: 1_000_000_000 + (self.rng.modulo(600_000_000) as u32),
                }
            }
            Kind::Mkdir => {
                let path = self.free(model, all);
                let depth = path.matches('/').count() - self.top.matches('/').count();
                let dirs = all.iter().filter(|a| is_dir(model, a.id)).count();
                if depth > DEPTH_MAX || dirs >= DIRS_MAX {
                    return None;
                }
                Op::Mkdir { path, mode: 0o700 | (self.rng.modulo(0o100) as u32) }
            }
            Kind::Rmdir => {
                let empty = |a: &&Existing| is_dir(model, a.id) && model.names(a.id).next().is_none();
                let empty: Vec<&Existing> = all.iter().filter(empty).collect();
                Op::Rmdir { path: self.rng.pick(&empty)?.path.clone() }
            }
            Kind::Symlink => {
                let path = self.free(model, all);
                Op::Symlink { path, text: format!("to/{:x}", self.rng.next_u64()) }
            }
            Kind::Link => {
                let from = self.file(model, all)?.path.clone();
                Op::Link { from, to: self.free(model, all) }
            }
            Kind::Rename => {
                let from = self.rng.pick(all)?.path.clone();
                let to = self.free(model, all);
                let depth = to.matches('/').count() - self.top.matches('/').count();
                if to.starts_with(&format!("{from}/")) || depth > DEPTH_MAX {
                    return None;
                }
                Op::Rename { from, to, over: false }
            }
            Kind::RenameOver => {
                let (from, to) = (self.file(model, all)?, self.file(model, all)?);
                if from.id == to.id {
                    return None;
                }
                Op::Rename { from: from.path.clone(), to: to.path.clone(), over: true }
            }
            Kind::Remove => {
                let at = self.rng.pick(all).filter(|a| !is_dir(model, a.id))?;
                Op::Remove { path: at.path.clone() }
            }
            Kind::SetXattr => {
                let path = self.file(model, all)?.path.clone();
                let name = format!("v{}", self.rng.modulo(4));
                let len = 1 + self.rng.modulo(60) as u32;
                Op::SetXattr { path, name, len: len + 8, tag: self.rng.next_u64() }
            }
            Kind::RemoveXattr => {
                let set: Vec<(&Existing, &String)> = all
                    .iter()
                    .filter_map(|a| Some((a, model.object(a.id)?)))
                    .flat_map(|(a, o)| o.xattrs.iter().filter(|x| x.1.value.is_some()).map(move |x| (a, x.0)))
                    .collect();
                let (at, name) = self.rng.pick(&set)?;
                Op::RemoveXattr { path: at.path.clone(), name: (*name).clone() }
            }
        })
    }
}

fn is_dir(model: &Model, id: Id) -> bool {
    matches!(model.object(id).map(|o| &o.what), Some(Node::Dir { .. }))
}

fn is_symlink(model: &Model, id: Id) -> bool {
    matches!(model.object(id).map(|o| &o.what), Some(Node::Symlink(_)))
}

/// The size of a file; `None` for anything else.
fn size(model: &Model, id: Id) -> Option<u64> {
    match &model.object(id)?.what {
        Node::File(contents) => Some(contents.size_live() as u64),
        _ => None,
    }
}
