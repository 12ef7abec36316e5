//! What clients do until the power goes: sources of actions that fit the tree.

use super::model::{Kind, Model};
use crate::serial::action::{Path, is_below};
use crate::serial::tar::Extraction;
use crate::serial::{Action, Change, Node};
use crate::tarball::{Kind as MemberKind, Member};
use landfast_nfs::v4::types::NfsAce;
use landfast_verify::rng::Rng;
use landfast_xdr::Bytes;
use std::collections::VecDeque;

/// Entries that the mixed workload keeps, approximately.
const ENTRIES_WANTED: usize = 60;

pub trait Workload: Send {
    /// The next action, given the tree as it is now.
    fn next(&mut self, model: &Model) -> Action;

    /// The power went: drops the actions that were planned.
    fn interrupt(&mut self);
}

/// Endless `tar -x` through a kernel client: small files in directories below `runN/`.
pub struct SerialTar {
    rng: Rng,
    run: u64,
    member: u64,
    extraction: Extraction,
    queue: VecDeque<Action>,
}

impl SerialTar {
    /// Extractions of archives that are the same for the same seed.
    pub fn new(seed: u64) -> Self {
        SerialTar {
            rng: Rng::new(seed),
            run: 0,
            member: 0,
            extraction: Extraction::new(),
            queue: VecDeque::new(),
        }
    }

    fn member(&mut self) -> Member {
        let (n, r) = (self.member, &mut self.rng);
        self.member += 1;
        let base = format!("run{}/d{}", self.run, n / 12);
        let path = format!("{base}/m{n}").into_bytes();
        let kind = match n % 12 {
            0 => return Member { path: base.into_bytes(), kind: MemberKind::Dir, ..meta(r) },
            5 => MemberKind::Symlink(format!("target {n}").into_bytes()),
            7 => MemberKind::Hardlink(format!("{base}/m{}", n - 1).into_bytes()),
            9 => MemberKind::Fifo,
            _ => {
                let mut data = vec![0; r.below(9000) as usize];
                r.fill(&mut data);
                MemberKind::File(data.into())
            }
        };
        Member { path, kind, ..meta(r) }
    }
}

fn meta(r: &mut Rng) -> Member {
    Member {
        path: Vec::new(),
        kind: MemberKind::Dir,
        mode: [0o644, 0o755, 0o600, 0o711][r.below(4) as usize],
        uid: 1000 + r.below(3) as u32,
        gid: 1000 + r.below(3) as u32,
        mtime: (1_500_000_000 + r.below(100_000_000) as i64, r.below(1_000_000_000) as u32),
    }
}

impl Workload for SerialTar {
    fn next(&mut self, _model: &Model) -> Action {
        loop {
            if let Some(action) = self.queue.pop_front() {
                return action;
            }
            let member = self.member();
            self.queue.extend(self.extraction.plan(&member));
            // The attributes of directories, now and then, so that a cut meets them too.
            if self.member.is_multiple_of(36) {
                self.queue.extend(self.extraction.finish());
            }
        }
    }

    /// The next extraction starts over in a directory of its own.
    fn interrupt(&mut self) {
        self.queue.clear();
        self.extraction = Extraction::new();
        self.member = 0;
        self.run += 1;
    }
}

/// Everything that changes a tree, at random: creations, writes, truncations, renames over each
/// other, links, removals, files that are removed while they are open, and, where the protocol has them, extended
/// attributes and access lists.
pub struct Mixed {
    rng: Rng,
    count: u64,
    queue: VecDeque<Action>,
    xattrs: bool,
    lists: bool,
}

impl Mixed {
    /// The same seed and the same tree give the same sequence.
    pub fn new(seed: u64) -> Self {
        Mixed { rng: Rng::new(seed), count: 0, queue: VecDeque::new(), xattrs: false, lists: false }
    }

    pub fn with_xattrs(self) -> Self {
        Mixed { xattrs: true, ..self }
    }

    pub fn with_lists(self) -> Self {
        Mixed { lists: true, ..self }
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.rng.below(from.len() as u64) as usize).cloned()
    }

    fn data(&mut self, max: u64) -> Bytes {
        let mut data = vec![0; 1 + self.rng.below(max) as usize];
        self.rng.fill(&mut data);
        data.into()
    }

    fn fresh(&mut self, dirs: &[Path]) -> Path {
        self.count += 1;
        let dir = self.pick(dirs).unwrap_or_default();
        let name = format!("n{}-{}", self.count, self.rng.below(1 << 32)).into_bytes();
        if dir.is_empty() { name } else { [&dir[..], b"/", &name[..]].concat() }
    }

    fn grow(&mut self, dirs: &[Path], others: &[Path]) -> Action {
        let path = self.fresh(dirs);
        let node = match self.rng.below(12) {
            0..=2 => Node::Dir,
            3 => Node::Symlink(format!("to {}", self.count).into_bytes()),
            4 => Node::Fifo,
            5 => Node::Char(1, 3),
            6 | 7 if !others.is_empty() => {
                let from = self.pick(others).unwrap_or_default();
                return Action::Link { from, to: path };
            }
            _ => {
                let data = self.data(20_000);
                let stable = self.rng.chance(800);
                self.queue.push_back(Action::Write { path: path.clone(), offset: 0, data, stable });
                if !stable && self.rng.chance(700) {
                    self.queue.push_back(Action::Commit { path: path.clone() });
                }
                let end = Action::Close { path: path.clone() };
                let gone = Action::Remove { path: path.clone() };
                self.queue.push_back(if self.rng.chance(80) { gone } else { end });
                return Action::Create { path, mode: 0o640 };
            }
        };
        Action::Make { path, node, mode: 0o750 }
    }

    fn attributes(&mut self, path: Path, is_file: bool, is_link: bool) -> Action {
        let mut change = Change::default();
        match self.rng.below(if is_file { 4 } else { 3 }) {
            0 if !is_link => change.mode = Some(self.rng.below(0o1000) as u32 | 0o400),
            1 => change.owner = Some((self.rng.below(5) as u32, self.rng.below(5) as u32)),
            3 => change.size = Some(self.rng.below(30_000)),
            _ => change.mtime = Some((self.rng.below(2_000_000_000) as i64, self.rng.below(1000) as u32)),
        }
        Action::Set { path, change }
    }
}

const XATTRS: [&str; 3] = ["one", "two", "a name that is longer than it needs to be"];

impl Mixed {
    fn xattr(&mut self, model: &Model, path: Path) -> Action {
        let name = XATTRS[self.rng.below(XATTRS.len() as u64) as usize].as_bytes().to_vec();
        let there =
            model.find(&path).and_then(|id| model.object(id)).is_some_and(|o| o.xattrs.contains_key(&name));
        let value = (!there || self.rng.chance(600)).then(|| self.data(300));
        Action::Xattr { path, name, value }
    }

    /// Sets an access list: the three classes, and now and then somebody who is named.
    fn list(&mut self, path: Path) -> Action {
        let mut acl = Vec::new();
        let mut allow = |who: String, flag, mask| {
            acl.push(NfsAce { kind: 0, flag, access_mask: mask, who: who.into_bytes().into() });
        };
        let mut mask =
            || [ACE_READ, ACE_READ | ACE_WRITE, ACE_READ | ACE_EXECUTE][self.rng.below(3) as usize];
        allow("OWNER@".into(), 0, ACE_READ | ACE_WRITE);
        let (group, everyone, named) = (mask(), mask() & ACE_READ, mask());
        if self.rng.chance(700) {
            allow((2000 + self.rng.below(4)).to_string(), 0, named);
        }
        allow("GROUP@".into(), ACE_FLAG_GROUP, group);
        allow("EVERYONE@".into(), 0, everyone);
        Action::Acl { path, acl }
    }
}

/// Rights as they go together in POSIX (RFC 8881 section 6.2.1.3): read, write and append, execute.
const ACE_READ: u32 = 0x1;
const ACE_WRITE: u32 = 0x2 | 0x4;
const ACE_EXECUTE: u32 = 0x20;
/// The entry is for a group.
const ACE_FLAG_GROUP: u32 = 0x40;

impl Workload for Mixed {
    fn next(&mut self, model: &Model) -> Action {
        if let Some(action) = self.queue.pop_front() {
            return action;
        }
        let (mut dirs, mut files, mut links, mut others) = (vec![Path::new()], vec![], vec![], vec![]);
        let mut empty = vec![];
        for (path, id) in model.paths() {
            match model.object(id).map(|o| &o.kind) {
                Some(Kind::Dir(entries)) => {
                    if entries.is_empty() {
                        empty.push(path.clone());
                    }
                    dirs.push(path);
                }
                Some(Kind::File(_)) => files.push(path),
                Some(Kind::Special(Node::Symlink(_))) => links.push(path),
                _ => others.push(path),
            }
        }
        let leaves: Vec<Path> = files.iter().chain(&links).chain(&others).cloned().collect();
        let crowded = leaves.len() + dirs.len() > ENTRIES_WANTED;
        for _ in 0..20 {
            match self.rng.below(10) {
                0..=3 if !crowded => return self.grow(&dirs, &files),
                4 | 5 => {
                    if let Some(path) = self.pick(&files) {
                        let (offset, data) = (self.rng.below(20_000), self.data(9000));
                        let stable = self.rng.chance(850);
                        if !stable && self.rng.chance(500) {
                            self.queue.push_back(Action::Commit { path: path.clone() });
                        }
                        return Action::Write { path, offset, data, stable };
                    }
                }
                6 if (self.xattrs || self.lists) && self.rng.chance(500) => {
                    let all: Vec<Path> = files.iter().chain(&dirs[1..]).cloned().collect();
                    if let Some(path) = self.pick(&all) {
                        let xattr = self.xattrs && (!self.lists || self.rng.chance(600));
                        return if xattr { self.xattr(model, path) } else { self.list(path) };
                    }
                }
                6 => {
                    let all: Vec<Path> = leaves.iter().chain(&dirs[1..]).cloned().collect();
                    if let Some(path) = self.pick(&all) {
                        let (file, link) = (files.contains(&path), links.contains(&path));
                        return self.attributes(path, file, link);
                    }
                }
                7 | 8 => {
                    if let Some(rename) = self.rename(model, &dirs, &leaves, &empty) {
                        return rename;
                    }
                }
                _ => {
                    let gone: Vec<Path> = leaves.iter().chain(&empty).cloned().collect();
                    if let Some(path) = self.pick(&gone) {
                        return Action::Remove { path };
                    }
                }
            }
        }
        self.grow(&dirs, &files)
    }

    fn interrupt(&mut self) {
        self.queue.clear();
    }
}

impl Mixed {
    fn rename(&mut self, model: &Model, dirs: &[Path], leaves: &[Path], empty: &[Path]) -> Option<Action> {
        let of_dir = self.rng.chance(300);
        let from = if of_dir { self.pick(&dirs[1..])? } else { self.pick(leaves)? };
        let to = if self.rng.chance(500) {
            // Over something of the same sort.
            if of_dir { self.pick(empty)? } else { self.pick(leaves)? }
        } else {
            self.fresh(dirs)
        };
        // Two names of one object: RENAME does nothing (RFC 8881 section 18.26.3).
        let same = model.find(&from) == model.find(&to);
        (!same && !is_below(&to, &from) && !is_below(&from, &to)).then_some(Action::Rename { from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::super::overwrite::Overwrite;
    use super::*;

    fn run(mut w: impl Workload, steps: usize) -> Model {
        let mut model = Model::new();
        for n in 0..steps {
            if n % 97 == 96 {
                w.interrupt();
            }
            let action = w.next(&model);
            model.apply(&action).unwrap_or_else(|e| panic!("{action:?}: {e}"));
            model.forget_unreachable();
        }
        model
    }

    #[test]
    fn a_workload_only_does_what_can_be_done() {
        for seed in 0..20 {
            assert!(!run(Mixed::new(seed), 1500).paths().is_empty());
            assert!(!run(Mixed::new(seed).with_xattrs().with_lists(), 700).paths().is_empty());
            assert!(!run(SerialTar::new(seed), 500).paths().is_empty());
        }
        assert!(!run(Overwrite::new(1), 150).paths().is_empty());
    }

    #[test]
    fn a_seed_gives_the_same_tree_again() {
        assert!(run(Mixed::new(7), 400) == run(Mixed::new(7), 400));
        assert!(run(Mixed::new(7), 400) != run(Mixed::new(8), 400));
    }
}
