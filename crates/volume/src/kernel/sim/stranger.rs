//! What somebody else does to the tree, past the server. It is root, and no call of the server's: nothing of it fails, and power
//! does not go in it.

use super::{Flavour, Kernel, ROOT, Serial};
use crate::types::Kind;

impl Kernel {
    /// Somebody else makes a file in a directory. `None` where the name is taken or the disk is full.
    pub fn intrude(&mut self, dir: Serial, name: &[u8]) -> Option<Serial> {
        let is_dir = self.peek(dir).is_some_and(|m| m.kind == Kind::Dir && m.nlink > 0);
        if !is_dir
            || !self.may_intrude()
            || self.meta(dir).entries.contains_key(name)
            || self.has_room(1).is_err()
        {
            return None;
        }
        let before = (std::mem::replace(&mut self.user, 0), std::mem::replace(&mut self.umask, 0));
        let serial = self.create(dir, name, Kind::File, 0o644).ok();
        (self.user, self.umask) = before;
        self.changed();
        serial
    }

    /// All directories that somebody else may find, but for the server's own.
    pub fn directories(&self) -> Vec<Serial> {
        let mut found = vec![ROOT];
        let mut at = 0;
        while let Some(dir) = found.get(at).copied() {
            at += 1;
            for (name, entry) in self.meta(dir).entries.iter() {
                if !name.starts_with(b".") && self.meta(entry.serial).kind == Kind::Dir {
                    found.push(entry.serial);
                }
            }
        }
        found
    }

    /// Somebody else gives a directory a project, which what is made in it from now on inherits, and flushes that. False where it
    /// has one, or there are none.
    pub fn set_project_as_stranger(&mut self, dir: Serial, project: u32) -> bool {
        let bare = self.peek(dir).is_some_and(|m| m.kind == Kind::Dir && m.nlink > 0 && m.project == 0);
        if self.flavour != Flavour::Xfs || !bare || !self.may_intrude() {
            return false;
        }
        let now = self.tick();
        let meta = self.edit(dir);
        (meta.project, meta.ctime) = (project, now);
        self.changed();
        self.flush_as_stranger();
        true
    }

    /// Somebody else flushes everything.
    pub fn flush_as_stranger(&mut self) {
        if !self.journal_lost {
            self.flush_everything();
        }
    }

    fn may_intrude(&self) -> bool {
        !self.down && !self.journal_lost
    }

    /// Somebody else takes a name away; that of a directory only when it is empty. False where there is no such name.
    pub fn remove_as_stranger(&mut self, dir: Serial, name: &[u8]) -> bool {
        let Some(found) = self.peek(dir).and_then(|m| m.entries.get(name)).map(|e| e.serial) else {
            return false;
        };
        let meta = self.meta(found);
        if !self.may_intrude() || meta.kind == Kind::Dir && !meta.entries.is_empty() {
            return false;
        }
        self.drop_link(dir, name, found);
        self.changed();
        true
    }

    /// Somebody else removes all that is in a directory.
    pub fn empty_as_stranger(&mut self, dir: Serial) {
        let entries = self.peek(dir).map(|m| m.entries.clone()).unwrap_or_default();
        for (name, entry) in entries.iter() {
            if self.meta(entry.serial).kind == Kind::Dir {
                self.empty_as_stranger(entry.serial);
            }
            self.remove_as_stranger(dir, name);
        }
    }

    /// Somebody else moves something, also over something. False where that cannot be.
    pub fn rename_as_stranger(&mut self, from: (Serial, &[u8]), to: (Serial, &[u8])) -> bool {
        self.may_intrude() && self.move_name(from, to, false).is_ok()
    }

    /// Somebody else writes into a file, and makes it empty before or not. False where it does not.
    pub fn edit_as_stranger(&mut self, file: Serial, cut: bool, at: u64, bytes: &[u8]) -> bool {
        if !self.may_intrude() || self.has_room(8).is_err() {
            return false;
        }
        (!cut || self.set_size(file, 0).is_ok()) && self.put(file, bytes, at).is_ok()
    }
}
