//! What somebody else does to the tree, past the server. This is root, and no call of the server: nothing fails, and power
//! does not go during it.

use std::rc::Rc;

use super::{Flavour, Kernel, ROOT, Serial};
use crate::types::Kind;

impl Kernel {
    /// Makes a file in a directory. `None` if the name is taken or the disk is full.
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

    /// Gives a directory a project, which new objects in it inherit, and flushes that. Returns false if it already has one, or
    /// the filesystem has no projects.
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

    /// Gives an object an attribute that only root can set, and flushes that.
    pub fn set_xattr_as_stranger(&mut self, serial: Serial, name: &[u8], value: &[u8]) {
        let now = self.tick();
        let meta = self.edit(serial);
        Rc::make_mut(&mut meta.xattrs).insert(name.to_vec(), value.into());
        meta.ctime = now;
        self.changed();
        self.flush_as_stranger();
    }

    pub fn flush_as_stranger(&mut self) {
        if !self.journal_lost {
            self.flush_everything();
        }
    }

    fn may_intrude(&self) -> bool {
        !self.down && !self.journal_lost
    }

    /// Removes a name; that of a directory only if it is empty. Returns false if there is no such name.
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

    pub fn empty_as_stranger(&mut self, dir: Serial) {
        let entries = self.peek(dir).map(|m| m.entries.clone()).unwrap_or_default();
        for (name, entry) in entries.iter() {
            if self.meta(entry.serial).kind == Kind::Dir {
                self.empty_as_stranger(entry.serial);
            }
            self.remove_as_stranger(dir, name);
        }
    }

    /// Moves an object, perhaps over another. Returns false if that is impossible.
    pub fn rename_as_stranger(&mut self, from: (Serial, &[u8]), to: (Serial, &[u8])) -> bool {
        self.may_intrude() && self.move_name(from, to, false).is_ok()
    }

    /// Writes into a file, and empties it before if `cut`. Returns false if it does nothing.
    pub fn edit_as_stranger(&mut self, file: Serial, cut: bool, at: u64, bytes: &[u8]) -> bool {
        if !self.may_intrude() || self.has_room(8).is_err() {
            return false;
        }
        (!cut || self.set_size(file, 0).is_ok()) && self.put(file, bytes, at).is_ok()
    }
}
