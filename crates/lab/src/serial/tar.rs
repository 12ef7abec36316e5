//! The operations that GNU tar makes of an archive's members, through a kernel client: for a file
//! create, write, times, owner, mode, close, each a round trip of its own. Directories get their
//! attributes after all that is in them, as tar delays them.

use super::action::{Action, Actor, Change, Node, Path};
use crate::error::Result;
use crate::tarball::{Kind, Member};

/// What tar creates a file or directory with before it sets the mode of the archive.
const FIRST_MODE: u32 = 0o600;
const FIRST_DIR_MODE: u32 = 0o700;

/// The operations for one member, in order; those of a directory that must wait go to `later`. Only root gives files
/// away: for others the owner stays theirs, as with tar.
pub fn actions(member: &Member, later: &mut Vec<Action>) -> Vec<Action> {
    let mut all = all_actions(member, later);
    if !rustix::process::geteuid().is_root() {
        let gives_away = |a: &Action| matches!(a, Action::Set { change, .. } if change.owner.is_some());
        all.retain(|a| !gives_away(a));
        later.retain(|a| !gives_away(a));
    }
    all
}

fn all_actions(member: &Member, later: &mut Vec<Action>) -> Vec<Action> {
    let path = || member.path.clone();
    let set = |change: Change| Action::Set { path: path(), change };
    let times = || set(Change { mtime: Some(member.mtime), ..Change::default() });
    let owner = || set(Change { owner: Some((member.uid, member.gid)), ..Change::default() });
    let mode = || set(Change { mode: Some(member.mode), ..Change::default() });
    let make = |node, mode| Action::Make { path: path(), node, mode };
    match &member.kind {
        Kind::File(data) => {
            let mut all = vec![Action::Create { path: path(), mode: FIRST_MODE }];
            if !data.is_empty() {
                let stable = data.len() <= crate::limits::SERIAL_WRITE_BYTES_MAX;
                all.push(Action::Write { path: path(), offset: 0, data: data.clone(), stable });
                if !stable {
                    all.push(Action::Commit { path: path() });
                }
            }
            all.extend([times(), owner(), mode(), Action::Close { path: path() }]);
            all
        }
        Kind::Dir => {
            later.extend([mode(), owner(), times()]);
            vec![make(Node::Dir, FIRST_DIR_MODE)]
        }
        Kind::Symlink(to) => vec![make(Node::Symlink(to.clone()), 0o777), times(), owner()],
        Kind::Hardlink(to) => vec![Action::Link { from: to.clone(), to: path() }],
        Kind::Fifo => vec![make(Node::Fifo, FIRST_MODE), times(), owner(), mode()],
        Kind::Char(major, minor) => {
            vec![make(Node::Char(*major, *minor), FIRST_MODE), times(), owner(), mode()]
        }
        Kind::Block(major, minor) => {
            vec![make(Node::Block(*major, *minor), FIRST_MODE), times(), owner(), mode()]
        }
    }
}

/// Directories that a path needs and that no member made: `known` holds those that exist.
pub fn missing_parents(path: &[u8], known: &mut std::collections::HashSet<Path>) -> Vec<Action> {
    let mut out = Vec::new();
    for (i, _) in path.iter().enumerate().filter(|(_, b)| **b == b'/') {
        if known.insert(path[..i].to_vec()) {
            out.push(Action::Make { path: path[..i].to_vec(), node: Node::Dir, mode: 0o755 });
        }
    }
    out
}

/// Extracts members one operation after another.
pub struct Extraction {
    known: std::collections::HashSet<Path>,
    later: Vec<Action>,
    files: u64,
}

impl Default for Extraction {
    fn default() -> Self {
        Self::new()
    }
}

impl Extraction {
    /// An extraction into the actor's root.
    pub fn new() -> Self {
        Extraction { known: std::collections::HashSet::new(), later: Vec::new(), files: 0 }
    }

    pub fn files(&self) -> u64 {
        self.files
    }

    pub fn plan(&mut self, member: &Member) -> Vec<Action> {
        let mut all = missing_parents(&member.path, &mut self.known);
        if member.kind == Kind::Dir {
            self.known.insert(member.path.clone());
        }
        self.files += u64::from(matches!(member.kind, Kind::File(_)));
        all.extend(actions(member, &mut self.later));
        all
    }

    /// The operations at the end: attributes of directories, the deepest first.
    pub fn finish(&mut self) -> Vec<Action> {
        let mut later = std::mem::take(&mut self.later);
        later.reverse();
        later
    }

    pub fn extract(&mut self, actor: &mut Actor, member: &Member) -> Result<()> {
        self.plan(member).iter().try_for_each(|a| actor.perform(a).map(drop))
    }

    pub fn end(&mut self, actor: &mut Actor) -> Result<()> {
        self.finish().iter().try_for_each(|a| actor.perform(a).map(drop))
    }
}
