//! Directory entries: detach the wrong ones, attach the wanted ones, empty staging.
//!
//! First *every* touched entry that disagrees is detached: directories and files move into staging under their identity.
//! Only then is anything attached. So no order of renames can meet a cycle or a non-empty directory: after detaching,
//! each entry that is left belongs to the final state.
//!
//! At each point of this every live object has a name, in the tree or in staging.

use std::io::ErrorKind;

use bytes::Bytes;

use super::materialise::made_again;
use super::{Error, FoundHow, Run, io, present, staging_name, surprise};
use crate::fold::Plan;
use crate::record::{Kind, ObjId};
use crate::recover::tree::Tree;

impl<T: Tree> Run<'_, T> {
    /// Removes each touched entry that names another object than it must.
    pub(super) fn detach(&mut self) -> Result<(), Error> {
        let fold = self.fold;
        for (dir, names) in &fold.entries {
            // A dead directory that is not on disk has no entries; a live one is on disk by now.
            let logged = dir;
            let Some(dir) = self.now.get(dir).filter(|now| now.came == FoundHow::Found) else { continue };
            let dir = dir.id.clone();
            for (name, want) in names {
                let Some((found, kind)) =
                    self.tree.lookup(&dir, name).map_err(io("looking a name up", &dir))?
                else {
                    continue;
                };
                if self.is_conceded(logged, name) {
                    continue;
                }
                // An object that somebody has removed is no longer wanted.
                let there = want.as_ref().and_then(|want| self.now.get(want)).map(|now| now.id.clone());
                if there.as_ref() != Some(&found) {
                    let wanted =
                        there.is_some() || want.as_ref().is_some_and(|want| self.is_still_made(want));
                    self.detach_one((logged, name), &dir, found, kind, wanted)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a lost object has not been made again yet ([`Run::make_room`]).
    fn is_still_made(&self, id: &ObjId) -> bool {
        made_again(self.fold, id).is_some_and(|plan| !plan.must_be_there) && !self.now.contains_key(id)
    }

    fn is_conceded(&self, dir: &ObjId, name: &Bytes) -> bool {
        !self.conceded.is_empty() && self.conceded.contains(&(dir.clone(), name.clone()))
    }

    /// Removes what stands at an entry (`at`, in the log's terms), or concedes the entry to it.
    fn detach_one(
        &mut self,
        at: (&ObjId, &Bytes),
        dir: &ObjId,
        found: ObjId,
        kind: Kind,
        wanted: bool,
    ) -> Result<(), Error> {
        let name = at.1;
        let stranger = "somebody has put another object here";
        let Some(logged) = self.logged(&found).cloned() else {
            if !wanted && !self.strict {
                self.conceded.insert((at.0.clone(), name.clone()));
                return self.concede(stranger, &found, Some(at), "it stays");
            }
            self.done.detached += 1;
            return self.set_aside(at, dir, &found);
        };
        let plan = self.fold.objects.get(&logged);
        let dead = plan.is_some_and(|p| p.dead);
        // After a crash an object may be at entries from which the log has removed it, or at which the log put it for a while.
        let explained = |plan: &Plan| plan.left.iter().any(|(d, n)| (d, n) == at);
        if !dead && !plan.is_some_and(explained) && !self.strict {
            if !wanted {
                self.conceded.insert((at.0.clone(), name.clone()));
                return self.concede(stranger, &found, Some(at), "it stays");
            }
            if plan.is_some_and(|plan| plan.names.is_empty()) {
                self.done.detached += 1;
                return self.set_aside(at, dir, &found);
            }
        }
        self.done.detached += 1;
        if kind != Kind::Dir && (dead || self.staged.contains_key(&found)) {
            self.done.removed += u64::from(dead);
            return self.tree.unlink(dir, name).map_err(io("removing a name", &found));
        }
        let stage = self.tree.stage();
        let parked = staging_name("park", &found);
        self.tree.rename((dir, name), (&stage, &parked)).map_err(io("moving a name into staging", &found))?;
        self.staged.entry(found).or_default().push((stage, parked));
        Ok(())
    }

    /// Moves an object that the log does not know there to `lost+found`, under its identity and its former name.
    fn set_aside(&mut self, at: (&ObjId, &Bytes), dir: &ObjId, found: &ObjId) -> Result<(), Error> {
        let to = self.keep_in_lost_found("found", (dir, at.1), found, at.1)?;
        self.done.foreign += 1;
        let what = "somebody has put another object where the log has one";
        let done = format!("the log's is there now, the other one is {to}");
        if self.strict { Ok(()) } else { self.concede(what, found, Some(at), &done) }
    }

    pub(super) fn attach(&mut self) -> Result<(), Error> {
        let fold = self.fold;
        for (dir, names) in &fold.entries {
            let wanted = || names.iter().filter_map(|(n, w)| Some((n, w.as_ref()?)));
            if wanted().next().is_none() {
                continue;
            }
            let fresh = self.is_fresh(dir);
            let logged = dir;
            // What belongs into a directory that somebody has removed is handled when staging is emptied.
            let Some(dir) = self.now.get(dir).map(|now| now.id.clone()) else { continue };
            for (name, want) in wanted() {
                if fresh && self.is_placed(want, logged, name) {
                    continue;
                }
                let Some(obj) = self.now.get(want).map(|now| now.id.clone()) else { continue };
                let found = match fresh {
                    true => None,
                    false => self.tree.lookup(&dir, name).map_err(io("looking a name up", &dir))?,
                };
                match found {
                    Some((found, _)) if found == obj => continue,
                    Some((found, _)) => return Err(surprise("a name is taken again", &found, Some(name))),
                    None if self.attach_one((logged, name), &dir, want, &obj)? => self.done.attached += 1,
                    None => _ = self.conceded.insert((logged.clone(), name.clone())),
                }
            }
        }
        Ok(())
    }

    /// Checks every touched entry once more, before the volume is declared recovered.
    pub(super) fn verify(&mut self) -> Result<(), Error> {
        let fold = self.fold;
        let (now, conceded) = (&self.now, &self.conceded);
        let dirs: Vec<_> = fold
            .entries
            .iter()
            .filter(|(dir, _)| !fold.objects.get(*dir).is_some_and(|plan| plan.dead))
            .filter_map(|(dir, names)| Some((dir, &now.get(dir)?.id, names)))
            .collect();
        self.tree.spread(&dirs, |tree, (logged, dir, names)| {
            for (name, want) in *names {
                let gone = want.as_ref().is_some_and(|want| !now.contains_key(want));
                if gone || !conceded.is_empty() && conceded.contains(&((*logged).clone(), name.clone())) {
                    continue;
                }
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
        let placed = self.now.get(obj).is_some_and(|now| now.came == FoundHow::Placed);
        let first = || self.fold.objects.get(obj).and_then(|plan| plan.names.first());
        placed && first().is_some_and(|(first_dir, first_name)| first_dir == dir && first_name == name)
    }

    /// Gives an object a name. Returns false if that is impossible because somebody has moved things.
    fn attach_one(
        &mut self,
        at: (&ObjId, &Bytes),
        dir: &ObjId,
        want: &ObjId,
        obj: &ObjId,
    ) -> Result<bool, Error> {
        let name = at.1;
        let staged = self.staged.get_mut(obj).and_then(Vec::pop);
        if let Some(staged) = staged {
            match self.tree.rename((&staged.0, &staged.1), (dir, name)) {
                Ok(()) => {
                    if self.staged.get(obj).is_some_and(Vec::is_empty) {
                        self.staged.remove(obj);
                    }
                    return Ok(true);
                }
                // The target is below this directory, or somebody has given it another project.
                Err(e)
                    if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::CrossesDevices)
                        && !self.strict =>
                {
                    self.staged.entry(obj.clone()).or_default().push(staged);
                    return Ok(false);
                }
                Err(e) => return Err(io("moving a name into place", want)(e)),
            }
        }
        let meta =
            self.probe(obj)?.ok_or_else(|| surprise("an object has gone meanwhile", want, Some(name)))?;
        if meta.kind == Kind::Dir {
            let what = "a directory is at a place that the log does not know";
            self.concede(what, want, Some(at), "it stays where somebody has moved it")?;
            return Ok(false);
        }
        match self.tree.link(obj, dir, name) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::CrossesDevices && !self.strict => {
                let what = "somebody has given the directory another project than this object has";
                self.concede(what, want, Some(at), "it keeps its other names")?;
                Ok(false)
            }
            Err(e) => Err(io("adding a name", want)(e)),
        }
    }

    /// Removes what is left in staging: dead objects, and second names of live ones.
    pub(super) fn empty_stage(&mut self) -> Result<(), Error> {
        // Live objects are moved out of dead directories before those are emptied.
        let (dead, living): (Vec<_>, Vec<_>) =
            self.staged.clone().into_iter().partition(|(found, _)| self.is_dead(found));
        self.staged.clear();
        for (found, names) in living.into_iter().chain(dead) {
            for (stage, name) in names {
                self.drop_staged(&stage, &found, &name)?;
            }
        }
        Ok(())
    }

    /// Removes only the dead objects in staging, and forgets all that are gone. A directory that hands something down stays for now: lost
    /// objects may have to be made in it.
    pub(super) fn empty_stage_of_the_dead(&mut self) -> Result<(), Error> {
        let dead: Vec<_> = self.staged.keys().filter(|found| self.is_dead(found)).cloned().collect();
        for found in dead {
            if self.probe(&found)?.is_some_and(|meta| meta.kind == Kind::Dir) {
                let asked = self.tree.hands_down(&found);
                if asked.map_err(io("asking what a directory hands down", &found))? {
                    continue;
                }
                if let Some(logged) = self.logged(&found).cloned() {
                    self.native.entry(logged).or_insert(None);
                }
            }
            for (stage, name) in self.staged.remove(&found).unwrap_or_default() {
                self.drop_staged(&stage, &found, &name)?;
            }
        }
        let dead = |id: &ObjId| self.fold.objects.get(id).is_some_and(|plan| plan.dead);
        let mut dead: Vec<_> = self
            .now
            .iter()
            .filter(|(id, _)| dead(id))
            .map(|(id, now)| (id.clone(), now.id.clone()))
            .collect();
        dead.sort_unstable();
        for (id, now) in dead {
            if self.probe(&now)?.is_none() {
                self.now.remove(&id);
            }
        }
        Ok(())
    }

    fn is_dead(&self, found: &ObjId) -> bool {
        let plan = self.logged(found).and_then(|logged| self.fold.objects.get(logged));
        plan.is_some_and(|plan| plan.dead)
    }

    /// Sets aside what is in a dead directory. Each entry that the log knows has been detached, so what is left is not ours. The
    /// directory itself is ours and is removed, so that its handle becomes stale.
    fn empty_dead(&mut self, dir: &ObjId) -> Result<(), Error> {
        for name in self.tree.list(dir).map_err(io("listing a directory", dir))? {
            if let Some((found, _)) = self.tree.lookup(dir, &name).map_err(io("looking a name up", dir))? {
                self.set_aside((dir, &name), dir, &found)?;
            }
        }
        Ok(())
    }

    fn drop_staged(&mut self, stage: &ObjId, found: &ObjId, name: &Bytes) -> Result<(), Error> {
        let Some(logged) = self.logged(found).cloned() else {
            return self.set_aside((stage, name), stage, found);
        };
        let meta = self
            .probe(found)?
            .ok_or_else(|| surprise("an object has gone meanwhile", &logged, Some(name)))?;
        let dead = self.fold.objects.get(&logged).is_some_and(|p| p.dead);
        if !dead && (meta.kind == Kind::Dir || meta.nlink < 2) {
            return self.keep_beside(stage, &logged, found, name);
        }
        if meta.kind == Kind::Dir {
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
            self.tree.unlink(stage, name).map_err(io("removing a name from staging", &logged))?;
        }
        self.done.removed += u64::from(dead);
        Ok(())
    }

    /// Keeps in `lost+found` a live object that has no place, since somebody has removed or moved its directory.
    fn keep_beside(
        &mut self,
        stage: &ObjId,
        logged: &ObjId,
        found: &ObjId,
        name: &Bytes,
    ) -> Result<(), Error> {
        let place = self.fold.objects.get(logged).and_then(|plan| plan.names.first().or(plan.place.as_ref()));
        let at = place.map(|(dir, name)| (dir, name));
        let what = "the place of an object that must live is gone";
        if self.strict {
            return Err(surprise(what, logged, at.map(|(_, name)| name)));
        }
        let called = at.map_or(Bytes::new(), |(_, name)| name.clone());
        let to = self.keep_in_lost_found("orphan", (stage, name), found, &called)?;
        self.concede(what, logged, at, &format!("it is {to} now"))
    }
}
