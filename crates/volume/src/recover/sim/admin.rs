//! An administrator who changes the tree behind the server's back, while it is served and between a power cut and the next
//! start. Then the oracle demands: recovery completes; what he has not touched, and what does not depend on it, is exact; what
//! only lost its place is somewhere; nothing of his is deleted.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::history::{Server, outward};
use super::model::{Change, LOST, Model, ROOT, STAGE};
use super::{Fault, Tally, Want, history_with};
#[cfg(debug_assertions)]
use crate::faults;
use crate::record::{Kind, ObjId};

#[derive(Clone, Debug, Default)]
pub(super) struct Touched {
    pub(super) moved: BTreeSet<ObjId>,
    pub(super) changed: BTreeSet<ObjId>,
    pub(super) entries: BTreeSet<(ObjId, Bytes)>,
    /// Directories in which he changed something: their times are his.
    pub(super) dirs: BTreeSet<ObjId>,
    pub(super) foreign: BTreeSet<ObjId>,
    /// Objects whose last name he has removed since the power cut.
    pub(super) removed: BTreeSet<ObjId>,
}

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "x", "y", "z"];

impl Server {
    pub(super) fn administrator(&mut self) {
        self.stranger_at_work = true;
        match self.rng.below(100) {
            0..25 => self.rm(),
            25..40 => self.rm_rf(),
            40..60 => self.mv(),
            60..70 => self.edit_by_replacing(),
            70..80 => self.touch_new(),
            80..86 => self.ln(),
            86..93 => self.chmod(),
            _ => self.edit_in_place(),
        }
    }

    fn his_name(&mut self) -> Bytes {
        Bytes::from_static(NAMES[self.rng.below(NAMES.len())].as_bytes())
    }

    fn his_entry(&mut self, dir: u64, name: &Bytes) {
        let dir = self.model.live.get(dir).id.clone();
        self.touched.dirs.insert(dir.clone());
        self.touched.entries.insert((dir, name.clone()));
    }

    fn his_object(&mut self, ino: u64) -> ObjId {
        let id = self.model.live.get(ino).id.clone();
        self.touched.moved.insert(id.clone());
        id
    }

    fn unlink_his(&mut self, dir: u64, name: &Bytes, ino: u64) {
        self.his_entry(dir, name);
        let id = self.his_object(ino);
        self.model.change(Change::Unlink(dir, name.clone()));
        if self.model.ino(&id).is_none() {
            self.touched.removed.insert(id);
        }
    }

    fn rm(&mut self) {
        let Some((dir, name, ino)) = self.entry(|i| i.kind != Kind::Dir) else { return };
        self.unlink_his(dir, &name, ino);
    }

    fn rm_rf(&mut self) {
        let Some((dir, name, ino)) = self.entry(|i| i.kind == Kind::Dir) else { return };
        self.empty(ino);
        self.unlink_his(dir, &name, ino);
    }

    fn empty(&mut self, dir: u64) {
        for (name, ino) in self.model.live.get(dir).entries.clone() {
            if self.model.live.get(ino).kind == Kind::Dir {
                self.empty(ino);
            }
            self.unlink_his(dir, &name, ino);
        }
    }

    fn mv(&mut self) {
        let Some((from, name, ino)) = self.entry(|_| true) else { return };
        let (to, to_name) = (self.dir(), self.his_name());
        let is_dir = self.model.live.get(ino).kind == Kind::Dir;
        if is_dir && super::history::below(&self.model.live, to, ino) || !self.model.live.takes(to, ino) {
            return;
        }
        if let Some(victim) = self.model.live.get(to).entries.get(&to_name).copied() {
            let v = self.model.live.get(victim);
            if victim == ino || (v.kind == Kind::Dir) != is_dir || !v.entries.is_empty() {
                return;
            }
            self.his_object(victim);
        }
        self.his_object(ino);
        self.his_entry(from, &name);
        self.his_entry(to, &to_name);
        self.model.change(Change::Rename(from, name, to, to_name));
    }

    /// Makes a file of his; returns its number.
    fn make_his(&mut self, dir: u64, name: &Bytes) -> u64 {
        let kind = if self.rng.chance(25) { Kind::Dir } else { Kind::File };
        let (ino, mut inode) = self.model.inode(kind, dir);
        if kind == Kind::File {
            inode.data = b"his".to_vec();
        }
        self.touched.foreign.insert(inode.id.clone());
        self.model.change(Change::Make(dir, name.clone(), ino, Box::new(inode)));
        self.his_object(ino);
        self.his_entry(dir, name);
        ino
    }

    fn touch_new(&mut self) {
        let (dir, name) = (self.dir(), self.his_name());
        if !self.model.live.get(dir).entries.contains_key(&name) {
            self.make_his(dir, &name);
        }
    }

    /// As editors do: moves a new file over the old one.
    fn edit_by_replacing(&mut self) {
        let Some((dir, name, ino)) = self.entry(|i| i.kind == Kind::File) else { return };
        let new = Bytes::from_static(b".swp");
        if self.model.live.get(dir).entries.contains_key(&new) {
            return;
        }
        let made = self.make_his(dir, &new);
        if self.model.live.get(made).kind == Kind::File {
            self.his_object(ino);
            self.his_entry(dir, &name);
            self.model.change(Change::Rename(dir, new, dir, name));
        }
    }

    fn ln(&mut self) {
        let (dir, name) = (self.dir(), self.his_name());
        let Some(ino) = self.any(|i| i.kind != Kind::Dir) else { return };
        if self.model.live.get(dir).entries.contains_key(&name) || !self.model.live.takes(dir, ino) {
            return;
        }
        self.his_object(ino);
        self.his_entry(dir, &name);
        self.model.change(Change::Link(ino, dir, name));
    }

    fn chmod(&mut self) {
        let Some(ino) = self.any(|i| i.kind != Kind::Symlink) else { return };
        self.touched.changed.insert(self.model.live.get(ino).id.clone());
        let (uid, mode) = (self.rng.below(3) as u32, self.rng.next() as u32 & 0o7777);
        self.model.change(Change::Own(ino, uid, uid));
        self.model.change(Change::Mode(ino, mode));
    }

    fn edit_in_place(&mut self) {
        let Some(ino) = self.any(|i| i.kind == Kind::File) else { return };
        self.touched.changed.insert(self.model.live.get(ino).id.clone());
        if self.rng.chance(50) {
            self.model.change(Change::Truncate(ino, 0));
        }
        self.model.change(Change::Write(ino, 2, Bytes::from_static(b"mine")));
    }
}

impl Want {
    /// Checks what must hold whatever he has done.
    pub(super) fn check_beside(&self, model: &Model, before: &[ObjId]) -> Result<(), String> {
        let mut known = BTreeMap::new();
        for (ino, inode) in &model.live.inodes {
            known.insert(inode.id.clone(), *ino);
            known.insert(outward(model, &inode.id).0, *ino);
        }
        self.beside(model, &known, ROOT, Some(ROOT), "")?;
        let there: BTreeSet<&ObjId> = model.live.inodes.values().map(|i| &i.id).collect();
        match before.iter().find(|id| !there.contains(id)) {
            Some(id) => Err(format!("{id}, which the administrator has made, is deleted")),
            None => Ok(()),
        }
    }

    /// `got`: what `want` is now, if neither it nor anything on the way to it was touched.
    fn beside(
        &self,
        model: &Model,
        known: &BTreeMap<ObjId, u64>,
        want: u64,
        got: Option<u64>,
        path: &str,
    ) -> Result<(), String> {
        let (touched, want) = (&self.touched, self.state.get(want));
        if let Some(got) = got {
            for (name, found) in &model.live.get(got).entries {
                let his = touched.entries.contains(&(want.id.clone(), name.clone()))
                    || touched
                        .moved
                        .iter()
                        .any(|id| outward(model, id) == outward(model, &model.live.get(*found).id));
                if !his && !want.entries.contains_key(name) {
                    return Err(format!("{path}/ has {name:?}, which is not the administrator's"));
                }
            }
        }
        for (name, child) in &want.entries {
            let path = format!("{path}/{}", String::from_utf8_lossy(name));
            let inode = self.state.get(*child);
            let moved = touched.moved.contains(&inode.id);
            let at = (want.id.clone(), name.clone());
            let exact = got.filter(|_| !moved && !touched.entries.contains(&at));
            let found = match exact {
                Some(got) => {
                    let found = model.live.get(got).entries.get(name);
                    Some(*found.ok_or_else(|| format!("{path} is not there, and nobody has touched it"))?)
                }
                None if moved => None,
                None => {
                    let told = self.seen.0.get(&inode.id).map_or(&inode.id, |(id, _)| id);
                    let found = known.get(told);
                    Some(*found.ok_or_else(|| {
                        format!("{path} ({}), whose place was touched, is nowhere", inode.id)
                    })?)
                }
            };
            if let Some(found) = found {
                // Another name of it may be in something that was touched.
                self.object(model, *child, found, &path, exact.is_some() && inode.nlink == 1)?;
            }
            if inode.kind == Kind::Dir {
                self.beside(model, known, *child, exact.and(found), &path)?;
            }
        }
        Ok(())
    }
}

pub(super) fn his(s: &Server, dead: impl Fn(&ObjId) -> bool) -> Vec<ObjId> {
    let there = |id: &&ObjId| s.model.ino(id).is_some();
    s.touched.foreign.iter().filter(there).filter(|id| !dead(id)).cloned().collect()
}

/// Lets him take what was kept for him.
pub(super) fn clear_lost_found(s: &mut Server) {
    fn drop_all(model: &mut Model, dir: u64) {
        for (_, ino) in std::mem::take(&mut model.live.inodes.get_mut(&dir).expect("a directory").entries) {
            let inode = model.live.inodes.get_mut(&ino).expect("an entry names something");
            inode.nlink = inode.nlink.saturating_sub(1);
            if inode.kind == Kind::Dir {
                drop_all(model, ino);
                model.live.inodes.remove(&ino);
            } else if inode.nlink == 0 {
                model.live.inodes.remove(&ino);
            }
        }
    }
    drop_all(&mut s.model, LOST);
    assert!(s.model.live.get(STAGE).entries.is_empty(), "staging is empty");
}

#[test]
fn an_administrator_may_do_what_he_likes() {
    let mut tally = Tally::default();
    let (first, count) = match super::env("LANDFAST_SEED") {
        Some(seed) => (seed, 1),
        None => (1, super::env("LANDFAST_HISTORIES").unwrap_or(10_000)),
    };
    for seed in first..first + count {
        if let Err(e) = history_with(seed, Fault::None, &mut tally, true) {
            panic!("seed {seed} (LANDFAST_SEED={seed} runs it alone): {e}");
        }
    }
    println!(
        "{} histories, {} power cuts, {} ahead of the log, {} cases said; {:?}",
        tally.histories, tally.crashes, tally.ahead, tally.local, tally.done
    );
    if count > 1 {
        assert!(tally.local > count / 10 && tally.ahead > 0 && tally.done.foreign > 0 && tally.done.made > 0);
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_recovery_that_an_administrator_stops_is_seen() {
    let mut tally = Tally::default();
    let stopped = || (1..2_000).find_map(|seed| history_with(seed, Fault::None, &mut tally, true).err());
    let seen = faults::with(Some(faults::Bug::StrangerStops), stopped);
    println!("{}", seen.expect("it is seen"));
}
