//! Finds each object of the log on disk, and makes those that a crash lost again, in staging.
//!
//! An object is looked for by handle and birth time, then through the remap table, then in staging under the name of
//! its old identity (a crash may have come between making it and the row). What must live and is nowhere is made,
//! if the log saw it born. Identity alone decides, never a name: after a crash a name may be that of another object.

use bytes::Bytes;

use super::{Error, How, Now, Run, io, staging_name, surprise};
use crate::faults::point;
use crate::fold::Plan;
use crate::objmap::ObjSet;
use crate::record::{Kind, ObjId};
use crate::recover::tree::Tree;

impl<'a, T: Tree> Run<'a, T> {
    /// Reads what an earlier run left in staging.
    pub(super) fn find_staged(&mut self) -> Result<(), Error> {
        let stage = self.tree.stage();
        for name in self.tree.list(&stage).map_err(io("listing staging", &stage))? {
            if let Some(found) =
                self.tree.lookup(&stage, &name).map_err(io("looking into staging", &stage))?
            {
                self.staged.entry(found.0.clone()).or_default().push(name.clone());
                self.left_staged.insert(name, found);
            }
        }
        Ok(())
    }

    /// After this, every live object of the log is on disk and durable, and known by its present identity.
    pub(super) fn materialise(&mut self) -> Result<(), Error> {
        let mut made = Vec::new();
        let mut ids: Vec<&ObjId> = self.fold.objects.keys().collect();
        ids.sort_unstable();
        // Parents first: what is made may be made in them.
        let mut waiting: Vec<&ObjId> = Vec::new();
        let mut seen = ObjSet::default();
        for id in ids {
            let mut next = Some(id);
            while let Some(id) = next.filter(|id| seen.insert((*id).clone())) {
                waiting.push(id);
                next = self.first_name(id).map(|(dir, _)| dir);
            }
            while let Some(id) = waiting.pop() {
                self.materialise_one(id, &mut made)?;
            }
        }
        point("recovery.materialised");
        self.barrier(made)?;
        point("recovery.barrier");
        Ok(())
    }

    /// The entry at which an object is made if its directory is made, too.
    fn first_name(&self, id: &ObjId) -> Option<&'a (ObjId, Bytes)> {
        self.fold.objects.get(id)?.names.first()
    }

    fn materialise_one(&mut self, id: &ObjId, made: &mut Vec<(ObjId, ObjId, u64)>) -> Result<(), Error> {
        let Some(plan) = self.fold.objects.get(id) else { return Ok(()) };
        if let Some(now) = self.find(id)? {
            self.know(id, now, How::Found);
            return Ok(());
        }
        if plan.dead {
            return Ok(());
        }
        let Some(birth) = &plan.birth else {
            return Err(surprise("an object older than the log is missing", id, None));
        };
        // Its name in staging if it is there, or else in the directory that recovery has made for it.
        let in_stage = staging_name("made", id);
        let placed = self.first_name(id).filter(|(dir, _)| self.ours.contains(dir));
        let (dir, name, left) = match (self.left_staged.get(&in_stage), placed) {
            (None, Some((dir, name))) => {
                let fresh = self.is_fresh(dir);
                let dir = self.present(dir)?;
                let left = match fresh {
                    true => None,
                    false => {
                        self.tree.lookup(&dir, name).map_err(io("looking into a directory made again", id))?
                    }
                };
                (dir, name, left)
            }
            (left, _) => (self.tree.stage(), &in_stage, left.cloned()),
        };
        let (now, how) = match left {
            Some((now, kind)) if kind == birth.kind => (now, How::Found),
            Some(_) => return Err(surprise("an object of another kind is in staging", id, Some(name))),
            None if plan.relies_on_disk => {
                return Err(surprise("a file is missing whose data the disk had confirmed", id, None));
            }
            None => {
                let mode = first_mode(plan);
                let made = self.tree.make(&dir, name, birth, mode);
                let now = made.map_err(io("making a lost object again", id))?;
                self.done.made += 1;
                let in_staging = std::ptr::eq(name, &in_stage);
                if in_staging {
                    self.staged.entry(now.clone()).or_default().push(in_stage);
                }
                (now, if in_staging { How::Staged } else { How::Placed })
            }
        };
        if birth.kind == Kind::Dir {
            self.ours.insert(id.clone());
        }
        made.push((id.clone(), now.clone(), birth.fileid));
        self.know(id, now, how);
        Ok(())
    }

    /// By handle and birth time, or through the remap table.
    pub(super) fn find(&mut self, id: &ObjId) -> Result<Option<ObjId>, Error> {
        if self.probe(id)?.is_some() {
            return Ok(Some(id.clone()));
        }
        match self.tree.remapped(id) {
            Some(now) if self.probe(&now)?.is_some() => Ok(Some(now)),
            _ => Ok(None),
        }
    }

    fn know(&mut self, id: &ObjId, now: ObjId, how: How) {
        if *id != now {
            self.then.insert(now.clone(), id.clone());
        }
        self.now.insert(id.clone(), Now { id: now, how });
    }
}

/// What a file is made with: as far as it goes what it has in the end, so that nothing is left to set. Nobody may look into
/// it who may not in the end: an ACL's mask is no permission of the group, and the group is not yet the file's.
fn first_mode(plan: &Plan) -> u32 {
    match &plan.owned {
        Some(owned) if plan.xattrs.is_empty() => owned.mode & if owned.gid == 0 { 0o777 } else { 0o707 },
        _ => 0o600,
    }
}
