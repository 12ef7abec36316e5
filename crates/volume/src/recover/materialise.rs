//! Finds each object of the log on disk, and makes those that a crash lost again, in staging.
//!
//! An object is looked for by handle and birth time, then through the remap table, then in staging under the name of
//! its old identity (a crash may have come between making it and the row). What must live and is nowhere is made,
//! if the log saw it born. Identity alone decides, never a name: after a crash a name may be that of another object.

use super::{Error, Run, io, staging_name, surprise};
use crate::faults::point;
use crate::fold::Plan;
use crate::record::ObjId;
use crate::recover::tree::Tree;

impl<T: Tree> Run<'_, T> {
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
        let fold = self.fold;
        let mut made = Vec::new();
        let mut ids: Vec<&ObjId> = fold.objects.keys().collect();
        ids.sort();
        for id in ids {
            let plan = &fold.objects[id];
            if let Some(now) = self.find(id)? {
                self.know(id, now);
                continue;
            }
            if plan.dead {
                continue;
            }
            let stage = self.tree.stage();
            let name = staging_name("made", id);
            let staged = self.left_staged.get(&name).cloned();
            let Some(birth) = &plan.birth else {
                return Err(surprise("an object older than the log is missing", id, None));
            };
            let now = match staged {
                Some((now, kind)) if kind == birth.kind => now,
                Some(_) => return Err(surprise("an object of another kind is in staging", id, Some(&name))),
                None if plan.relies_on_disk => {
                    return Err(surprise("a file is missing whose data the disk had confirmed", id, None));
                }
                None => {
                    let now = self
                        .tree
                        .make(&stage, &name, birth, first_mode(plan))
                        .map_err(io("making a lost object again", id))?;
                    self.done.made += 1;
                    self.fresh.insert(now.clone());
                    self.staged.entry(now.clone()).or_default().push(name);
                    now
                }
            };
            made.push((id.clone(), now.clone(), birth.fileid));
            self.know(id, now);
        }
        point("recovery.materialised");
        self.barrier(made)?;
        point("recovery.barrier");
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

    fn know(&mut self, id: &ObjId, now: ObjId) {
        if *id != now {
            self.then.insert(now.clone(), id.clone());
        }
        self.now.insert(id.clone(), now);
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
