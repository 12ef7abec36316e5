//! Enforce: names first, since removing what is dead frees space, and since they change the times of directories; then
//! for each object its contents, its attributes, and last its times, since everything else changes those.

use super::{Error, Run, io, surprise};
use crate::faults::point;
use crate::fold::Plan;
use crate::record::{Kind, ObjId, Owned};
use crate::recover::tree::Tree;

impl<'a, T: Tree> Run<'a, T> {
    /// Makes the disk agree with the fold. Every live object is on disk ([`Run::materialise`]).
    pub(super) fn enforce(&mut self) -> Result<(), Error> {
        self.detach()?;
        point("recovery.detached");
        self.attach()?;
        point("recovery.attached");
        self.empty_stage()?;
        self.objects(|run, id, plan| {
            run.contents(id, plan)?;
            run.attributes(id, plan)?;
            run.times(id, plan)
        })?;
        point("recovery.contents");
        self.verify()
    }

    /// Does something for each live object of the log.
    pub(super) fn objects(
        &mut self,
        each: impl Fn(&mut Self, &ObjId, &Plan) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.sorted().into_iter().try_for_each(|(id, plan)| each(self, id, plan))
    }

    /// The objects of the log in one fixed order, the live ones only.
    pub(super) fn sorted(&self) -> Vec<(&'a ObjId, &'a Plan)> {
        let mut plans: Vec<_> = self.fold.objects.iter().filter(|(_, p)| !p.dead).collect();
        plans.sort_by_key(|(id, _)| *id);
        plans
    }

    /// Owner, extended attributes (an ACL sets permission bits), mode (changing the owner clears setuid bits).
    pub(super) fn attributes(&mut self, id: &ObjId, plan: &Plan) -> Result<(), Error> {
        if plan.owned.is_none() && plan.xattrs.is_empty() && plan.links.is_none() {
            return Ok(());
        }
        let now = self.present(id)?;
        let meta = self.probe(&now)?.ok_or_else(|| surprise("an object has gone meanwhile", id, None))?;
        let mut set = false;
        if let Some(Owned { uid, gid, .. }) = plan.owned
            && (meta.owned.uid, meta.owned.gid) != (uid, gid)
        {
            self.tree.chown(&now, uid, gid).map_err(io("setting the owner", id))?;
            set = true;
        }
        for (name, value) in &plan.xattrs {
            if self.tree.xattr(&now, name).map_err(io("reading an extended attribute", id))? != *value {
                self.tree
                    .set_xattr(&now, name, value.as_ref())
                    .map_err(io("setting an extended attribute", id))?;
                set = true;
            }
        }
        if let Some(Owned { mode, .. }) = plan.owned
            && meta.kind != Kind::Symlink
            && (set || meta.owned.mode != mode)
        {
            self.tree.chmod(&now, mode).map_err(io("setting the mode", id))?;
            set = true;
        }
        self.done.attrs += u64::from(set);
        if plan.links.is_some_and(|n| n != meta.nlink) && meta.kind != Kind::Dir {
            self.done.odd_links += 1;
        }
        Ok(())
    }

    pub(super) fn times(&mut self, id: &ObjId, plan: &Plan) -> Result<(), Error> {
        let (atime, mtime) = match (plan.owned, plan.mtime) {
            (Some(owned), _) => (Some(owned.atime), owned.mtime),
            (None, Some(mtime)) => (None, mtime),
            (None, None) => return Ok(()),
        };
        let now = self.present(id)?;
        let right = !self.is_fresh(id) && {
            let meta = self.probe(&now)?.ok_or_else(|| surprise("an object has gone meanwhile", id, None))?;
            meta.owned.mtime == mtime && atime.is_none_or(|atime| meta.owned.atime == atime)
        };
        if !right {
            self.tree.set_times(&now, atime, mtime).map_err(io("setting times", id))?;
        }
        Ok(())
    }
}
