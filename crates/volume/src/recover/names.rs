//! Entries: detach what is wrong, attach what is wanted, empty staging.
//!
//! First *every* touched entry that disagrees is detached, directories and files into staging under their identity;
//! only then is anything attached. So no order of renames can meet a cycle or a directory that is not empty: after
//! detaching, each entry that is left is one of the final state.
//!
//! At each point of this every live object has a name, in the tree or in staging.

use bytes::Bytes;

use super::{Error, How, Run, io, present, staging_name, surprise};
use crate::limits::NAME_BYTES_MAX;
use crate::record::{Kind, ObjId};
use crate::recover::tree::Tree;

impl<T: Tree> Run<'_, T> {
    /// Takes away each touched entry that names another object than it must.
    pub(super) fn detach(&mut self) -> Result<(), Error> {
        let fold = self.fold;
        for (dir, names) in &fold.entries {
            // A dead directory that is not on disk has no entries; a live one is on disk by now.
            let Some(dir) = self.now.get(dir).filter(|now| now.how == How::Found) else { continue };
            let dir = dir.id.clone();
            for (name, want) in names {
                let Some((found, kind)) =
                    self.tree.lookup(&dir, name).map_err(io("looking a name up", &dir))?
                else {
                    continue;
                };
                let want = want.as_ref().map(|w| self.present(w)).transpose()?;
                if want.as_ref() != Some(&found) {
                    self.detach_one(&dir, name, found, kind)?;
                    self.done.detached += 1;
                }
            }
        }
        Ok(())
    }

    fn detach_one(&mut self, dir: &ObjId, name: &Bytes, found: ObjId, kind: Kind) -> Result<(), Error> {
        let Some(logged) = self.logged(&found) else { return self.set_aside(dir, name, &found) };
        let dead = self.fold.objects.get(logged).is_some_and(|p| p.dead);
        if kind != Kind::Dir && (dead || self.staged.contains_key(&found)) {
            self.done.removed += u64::from(dead);
            return self.tree.unlink(dir, name).map_err(io("removing a name", &found));
        }
        let stage = self.tree.stage();
        let parked = staging_name("park", &found);
        self.tree.rename((dir, name), (&stage, &parked)).map_err(io("moving a name into staging", &found))?;
        self.staged.entry(found).or_default().push(parked);
        Ok(())
    }

    /// Moves something that the log does not know to `lost+found`, under its identity and the name that it had.
    fn set_aside(&mut self, dir: &ObjId, name: &Bytes, found: &ObjId) -> Result<(), Error> {
        let lost = self.tree.lost_found();
        for n in 0u32.. {
            let mut to = staging_name("found", found).to_vec();
            if n > 0 {
                to.extend_from_slice(format!("-{n}").as_bytes());
            }
            to.push(b'-');
            to.extend_from_slice(name);
            to.truncate(NAME_BYTES_MAX);
            if self.tree.lookup(&lost, &to).map_err(io("looking into lost+found", found))?.is_none() {
                self.tree
                    .rename((dir, name), (&lost, &to))
                    .map_err(io("moving an unknown object to lost+found", found))?;
                break;
            }
        }
        self.done.foreign += 1;
        Ok(())
    }

    /// Puts each wanted entry in place that is not.
    pub(super) fn attach(&mut self) -> Result<(), Error> {
        let fold = self.fold;
        for (dir, names) in &fold.entries {
            let wanted = || names.iter().filter_map(|(n, w)| Some((n, w.as_ref()?)));
            if wanted().next().is_none() {
                continue;
            }
            let fresh = self.is_fresh(dir);
            let (logged, dir) = (dir, self.present(dir)?);
            for (name, want) in wanted() {
                if fresh && self.is_placed(want, logged, name) {
                    continue;
                }
                let obj = self.present(want)?;
                let found = match fresh {
                    true => None,
                    false => self.tree.lookup(&dir, name).map_err(io("looking a name up", &dir))?,
                };
                match found {
                    Some((found, _)) if found == obj => continue,
                    Some((found, _)) => return Err(surprise("a name is taken again", &found, Some(name))),
                    None => self.attach_one(&dir, name, want, &obj)?,
                }
                self.done.attached += 1;
            }
        }
        Ok(())
    }

    /// Looks at every touched entry once more: what is about to be declared recovered is as the log wants it.
    pub(super) fn verify(&mut self) -> Result<(), Error> {
        let fold = self.fold;
        let now = &self.now;
        let dirs: Vec<_> = fold
            .entries
            .iter()
            .filter(|(dir, _)| !fold.objects.get(*dir).is_some_and(|plan| plan.dead))
            .filter_map(|(dir, names)| Some((&now.get(dir)?.id, names)))
            .collect();
        self.tree.spread(&dirs, |tree, (dir, names)| {
            for (name, want) in *names {
                let want = want.as_ref().map(|want| present(now, want)).transpose()?;
                let right = match &want {
                    Some(obj) => tree.names(dir, name, obj),
                    None => tree.lookup(dir, name).map(|found| found.is_none()),
                };
                if !right.map_err(io("looking a name up", dir))? {
                    let obj = want.as_ref().unwrap_or(*dir);
                    return Err(surprise("an entry is not as it was just made", obj, Some(name)));
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// True if this run has made an object at this entry.
    fn is_placed(&self, obj: &ObjId, dir: &ObjId, name: &Bytes) -> bool {
        let placed = self.now.get(obj).is_some_and(|now| now.how == How::Placed);
        let first = || self.fold.objects.get(obj).and_then(|plan| plan.names.first());
        placed && first().is_some_and(|(first_dir, first_name)| first_dir == dir && first_name == name)
    }

    fn attach_one(&mut self, dir: &ObjId, name: &Bytes, want: &ObjId, obj: &ObjId) -> Result<(), Error> {
        let staged = self.staged.get_mut(obj).and_then(Vec::pop);
        if self.staged.get(obj).is_some_and(Vec::is_empty) {
            self.staged.remove(obj);
        }
        if let Some(staged) = staged {
            let stage = self.tree.stage();
            return self
                .tree
                .rename((&stage, &staged), (dir, name))
                .map_err(io("moving a name into place", want));
        }
        let meta =
            self.probe(obj)?.ok_or_else(|| surprise("an object has gone meanwhile", want, Some(name)))?;
        if meta.kind == Kind::Dir {
            return Err(surprise("a directory is at a place that the log does not know", want, Some(name)));
        }
        self.tree.link(obj, dir, name).map_err(io("adding a name", want))
    }

    /// Removes what is left in staging: dead objects, and second names of live ones.
    pub(super) fn empty_stage(&mut self) -> Result<(), Error> {
        let stage = self.tree.stage();
        for (found, names) in std::mem::take(&mut self.staged) {
            for name in names {
                self.drop_staged(&stage, &found, &name)?;
            }
        }
        Ok(())
    }

    /// Sets aside what is in a dead directory. Each entry that the log knows has been detached, so it is not ours; the
    /// directory is, and goes, so that its handle leads nowhere.
    fn empty_dead(&mut self, dir: &ObjId) -> Result<(), Error> {
        for name in self.tree.list(dir).map_err(io("listing a directory", dir))? {
            if let Some((found, _)) = self.tree.lookup(dir, &name).map_err(io("looking a name up", dir))? {
                self.set_aside(dir, &name, &found)?;
            }
        }
        Ok(())
    }

    fn drop_staged(&mut self, stage: &ObjId, found: &ObjId, name: &Bytes) -> Result<(), Error> {
        let Some(logged) = self.logged(found).cloned() else { return self.set_aside(stage, name, found) };
        let meta = self
            .probe(found)?
            .ok_or_else(|| surprise("an object has gone meanwhile", &logged, Some(name)))?;
        let dead = self.fold.objects.get(&logged).is_some_and(|p| p.dead);
        if meta.kind == Kind::Dir {
            if !dead {
                return Err(surprise("a directory that must live has no name", &logged, Some(name)));
            }
            if !self.tree.rmdir(stage, name).map_err(io("removing a directory", &logged))? {
                self.empty_dead(found)?;
                if !self.tree.rmdir(stage, name).map_err(io("removing a directory", &logged))? {
                    return Err(surprise(
                        "a directory that was just emptied is not empty",
                        &logged,
                        Some(name),
                    ));
                }
            }
        } else {
            if !dead && meta.nlink < 2 {
                return Err(surprise("an object that must live has no other name", &logged, Some(name)));
            }
            self.tree.unlink(stage, name).map_err(io("removing a name from staging", &logged))?;
        }
        self.done.removed += u64::from(dead);
        Ok(())
    }
}
