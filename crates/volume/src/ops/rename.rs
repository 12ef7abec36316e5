//! Removing and renaming.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use rustix::io::Errno;

use super::record;
use crate::error::Error;
use crate::faults::{Bug, bug};
use crate::kernel;
use crate::node::{Node, StateLocks, in_order};
use crate::node_fd::NodeFd;
use crate::record::Fact;
use crate::results::{Removed, Renamed};
use crate::tx::Tx;
use crate::types::{ChangeInfo, Cred, Held, Kind};
use crate::volume::Volume;

impl Volume {
    /// Removes the name of a directory (which must be empty) or of any other object.
    pub fn remove(&self, tx: &mut Tx, cred: &Cred, dir: &Node, name: &[u8]) -> Result<ChangeInfo, Error> {
        self.remove_if(tx, cred, dir, name, |_| Ok(()))
    }

    /// As [`Volume::remove`], if `allows` has nothing against the object.
    pub fn remove_if(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        allows: impl FnOnce(&Node) -> Result<(), Error>,
    ) -> Result<ChangeInfo, Error> {
        self.remove_keeping(tx, cred, dir, name, allows, |_| Held::ByNobody).map(|removed| removed.dir_change)
    }

    /// As [`Volume::remove_if`]. A file that loses its last name is kept if `held` says that somebody has it open and wants it to outlast
    /// a restart. `held` is asked under the file's lock, so whoever opens it then sees what came of it ([`Volume::outlasts`]).
    /// `allows` is asked under the lock of the directory's names, before anything is changed: the name keeps its object until the end.
    /// Errors: those of `allows`; also `Busy`, if somebody was promised that the file is kept and there is no space for that.
    pub fn remove_keeping(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        allows: impl FnOnce(&Node) -> Result<(), Error>,
        held: impl FnOnce(&Node) -> Held,
    ) -> Result<Removed, Error> {
        tx.rests_on(dir);
        self.entry(dir, name, Error::NoEnt)?;
        tx.join()?;
        let dir_fd = self.fd(dir)?;
        self.assume(cred)?;
        let names = dir.0.names.write();
        let victim = self.found(dir, &dir_fd, name)?;
        tx.rests_on(&victim);
        allows(&victim)?;
        let mut states = StateLocks::lock([Some(dir), Some(&victim)]);
        let before = self.before(states.get(dir), &dir_fd)?;
        let left = links_left(&dir_fd, name, &victim)?;
        let mut kept = None;
        if left == 0 {
            kept = self.keep(&victim, cred, held)?;
            tx.removes_last_name();
        }
        if let Err(e) = Volume::unlink(&dir_fd, name, victim.kind()) {
            self.keeps_its_name(&victim, kept)?;
            return Err(e);
        }
        self.changed(&victim, states.get(&victim), None);
        note_left(&victim, left, kept.is_some());
        let (change, dir_mtime) = self.after(tx, dir, states.get(dir), &dir_fd, &before)?;
        record(tx, &[dir, &victim], || {
            let (dir, obj) = (&dir.0.id, &victim.0.id);
            let mut facts = Vec::with_capacity(4);
            facts.extend(kept.as_ref().and_then(|place| self.bind_orphan(&victim, place)));
            facts.push(Fact::Unbind {
                dir: dir.clone(),
                name: Bytes::copy_from_slice(name),
                obj: obj.clone(),
            });
            facts.push(Fact::Links { obj: obj.clone(), nlink: left + u32::from(kept.is_some()) });
            facts.push(Fact::Mtime { obj: dir.clone(), mtime: dir_mtime });
            facts
        })?;
        drop(states);
        drop(names);
        if left == 0 && kept.is_none() {
            self.bury(&victim);
        }
        self.settle(tx, &[dir], None)?;
        Ok(Removed { dir_change: change, kept: kept.map(|_| victim) })
    }

    /// Gives a file that is about to lose its last name a place among the orphans, if `held` says so. Returns the place.
    fn keep(
        &self,
        victim: &Node,
        cred: &Cred,
        held: impl FnOnce(&Node) -> Held,
    ) -> Result<Option<Vec<u8>>, Error> {
        if victim.kind() != Kind::File || !self.keeps_orphans() {
            return Ok(None);
        }
        let held = held(victim);
        if held == Held::ByNobody {
            return Ok(None);
        }
        let fd = self.fd(victim)?;
        let place = self.give_place(victim, &fd, held == Held::Promised);
        self.assume(cred)?;
        place
    }

    /// The removal of its last name was refused.
    fn keeps_its_name(&self, victim: &Node, kept: Option<Vec<u8>>) -> Result<(), Error> {
        kept.map_or(Ok(()), |place| self.take_place(victim, &place))
    }

    /// Renames, replacing a compatible object at the new name. Does nothing if both names belong to one object. Returns the
    /// changes of the source and the target directory.
    pub fn rename(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        from_dir: &Node,
        from: &[u8],
        to_dir: &Node,
        to: &[u8],
    ) -> Result<(ChangeInfo, ChangeInfo), Error> {
        let renamed =
            self.rename_keeping(tx, cred, (from_dir, from), (to_dir, to), |_| Ok(()), |_| Held::ByNobody)?;
        Ok((renamed.source, renamed.target))
    }

    /// As [`Volume::rename`]. A replaced file that loses its last name is kept if `held` says so, as in [`Volume::remove_keeping`]. `allows` is
    /// asked of the object that moves and of the one that is replaced, under the locks of the names.
    /// Errors: those of `allows`; also those of [`Volume::remove_keeping`].
    pub fn rename_keeping(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        (from_dir, from): (&Node, &[u8]),
        (to_dir, to): (&Node, &[u8]),
        mut allows: impl FnMut(&Node) -> Result<(), Error>,
        held: impl FnOnce(&Node) -> Held,
    ) -> Result<Renamed, Error> {
        tx.rests_on(from_dir);
        tx.rests_on(to_dir);
        self.entry(from_dir, from, Error::NoEnt)?;
        self.entry(to_dir, to, Error::Access)?;
        tx.join()?;
        let (from_fd, to_fd) = (self.fd(from_dir)?, self.fd(to_dir)?);
        self.assume(cred)?;
        let (first, second) =
            if in_order(from_dir, to_dir) { (from_dir, to_dir) } else { (to_dir, from_dir) };
        let names = (first.0.names.write(), (first != second).then(|| second.0.names.write()));
        let moved = self.named(&from_fd, from)?;
        tx.rests_on(&moved);
        allows(&moved)?;
        let victim = match self.named(&to_fd, to) {
            Ok(victim) => Some(victim),
            Err(Error::NoEnt) => None,
            Err(e) => return Err(e),
        };
        if let Some(victim) = &victim {
            tx.rests_on(victim);
            allows(victim)?;
        }
        let mut states = StateLocks::lock([Some(from_dir), Some(to_dir), Some(&moved), victim.as_ref()]);
        let before_from = self.before(states.get(from_dir), &from_fd)?;
        let before_to = self.before(states.get(to_dir), &to_fd)?;
        if victim.as_ref() == Some(&moved) {
            // An empty record, so that the reply is kept like that of any rename.
            record(tx, &[], Vec::new)?;
            let same = |change| ChangeInfo { before: change, after: change, atomic: true };
            return Ok(Renamed {
                source: same(before_from.change),
                target: same(before_to.change),
                kept: None,
            });
        }
        let left = match &victim {
            Some(victim) => links_left(&to_fd, to, victim)?,
            None => 0,
        };
        let mut kept = None;
        if let Some(victim) = victim.as_ref().filter(|_| left == 0) {
            kept = self.keep(victim, cred, held)?;
            tx.removes_last_name();
        }
        if let Err(e) = kernel::renameat(&*from_fd, from, &*to_fd, to) {
            victim.as_ref().map_or(Ok(()), |victim| self.keeps_its_name(victim, kept))?;
            // XFS's error for a directory that is not empty.
            return Err(if e == Errno::EXIST { Error::NotEmpty } else { e.into() });
        }
        self.changed(&moved, states.get(&moved), None);
        if let Some(victim) = &victim {
            self.changed(victim, states.get(victim), None);
            note_left(victim, left, kept.is_some());
        }
        let (change_from, mtime_from) =
            self.after(tx, from_dir, states.get(from_dir), &from_fd, &before_from)?;
        let (change_to, mtime_to) = if from_dir == to_dir {
            (change_from, mtime_from)
        } else {
            self.after(tx, to_dir, states.get(to_dir), &to_fd, &before_to)?
        };
        let mut changed = vec![from_dir, to_dir, &moved];
        changed.extend(&victim);
        record(tx, &changed, || {
            let (from_id, to_id, obj) = (&from_dir.0.id, &to_dir.0.id, &moved.0.id);
            let (from, to) = (Bytes::copy_from_slice(from), Bytes::copy_from_slice(to));
            let mut facts = Vec::with_capacity(7);
            if let Some(victim) = victim.as_ref().filter(|_| !bug(Bug::VictimUnlogged)) {
                let gone = victim.0.id.clone();
                facts.extend(kept.as_ref().and_then(|place| self.bind_orphan(victim, place)));
                facts.push(Fact::Unbind { dir: to_id.clone(), name: to.clone(), obj: gone.clone() });
                facts.push(Fact::Links { obj: gone, nlink: left + u32::from(kept.is_some()) });
            }
            facts.push(Fact::Unbind { dir: from_id.clone(), name: from, obj: obj.clone() });
            facts.push(Fact::Bind { dir: to_id.clone(), name: to, obj: obj.clone() });
            facts.push(Fact::Mtime { obj: from_id.clone(), mtime: mtime_from });
            if from_dir != to_dir {
                facts.push(Fact::Mtime { obj: to_id.clone(), mtime: mtime_to });
            }
            facts
        })?;
        drop(states);
        drop(names);
        if let Some(victim) = victim.as_ref().filter(|_| left == 0 && kept.is_none()) {
            self.bury(victim);
        }
        self.settle(tx, &[to_dir, from_dir], None)?;
        Ok(Renamed { source: change_from, target: change_to, kept: victim.filter(|_| kept.is_some()) })
    }
}

/// Notes how many names an object has left, and whether it is kept among the orphans. Call under its lock.
fn note_left(node: &Node, left: u32, kept: bool) {
    node.0.orphan.store(kept, Ordering::Release);
    node.0.dead.store(left == 0 && !kept, Ordering::Release);
}

/// How many names an object will have after the removal of `name`. Call under the locks, just before it. [`Error::Busy`]
/// if a local process has put something else there since the lookup.
fn links_left(dir_fd: &NodeFd, name: &[u8], node: &Node) -> Result<u32, Error> {
    let look = kernel::look_at(dir_fd, name)?;
    if look.stx_ino != node.0.ino {
        return Err(Error::Busy);
    }
    Ok(if node.kind() == Kind::Dir { 0 } else { look.stx_nlink.saturating_sub(1) })
}
