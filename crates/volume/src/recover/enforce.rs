//! Enforce: names first, since removing what is dead frees space, and since they change the times of directories; then
//! for each object its contents, its attributes, and last its times, since everything else changes those.

use super::work::{Object, Work};
use super::{Error, Run};
use crate::faults::point;
use crate::fold::Plan;
use crate::limits::RECOVERY_PORTION;
use crate::record::ObjId;
use crate::recover::tree::Tree;

impl<'a, T: Tree> Run<'a, T> {
    /// Makes the disk agree with the fold. Every live object is on disk that somebody has not removed ([`Run::materialise`]).
    pub(super) fn enforce(&mut self) -> Result<(), Error> {
        self.detach()?;
        point("recovery.detached");
        self.attach()?;
        point("recovery.attached");
        self.empty_stage()?;
        self.objects(|work, object| work.complete(object))?;
        point("recovery.contents");
        self.verify()
    }

    /// Does something for each live object of the log that is not as it must be since it was made.
    pub(super) fn objects(
        &mut self,
        each: impl Fn(&mut Work<'_>, &Object<'_>) -> Result<(), Error> + Sync,
    ) -> Result<(), Error> {
        let now = &self.now;
        // What somebody has removed has nothing to be set.
        let left = self.sorted(|id, _| now.get(id).is_some_and(|now| !now.complete));
        let portions: Vec<_> = left.chunks(RECOVERY_PORTION).collect();
        let done = self.tree.spread(&portions, |tree, portion| {
            let mut work = Work::new(tree);
            for (id, plan) in *portion {
                let now = super::present(now, id)?;
                each(&mut work, &Object { id, plan, now, made: None })?;
            }
            Ok(work.done)
        })?;
        done.into_iter().for_each(|done| self.done.add(done));
        Ok(())
    }

    /// Those objects of the log in one fixed order, the live ones only.
    pub(super) fn sorted(&self, which: impl Fn(&ObjId, &Plan) -> bool) -> Vec<(&'a ObjId, &'a Plan)> {
        let live = self.fold.objects.iter().filter(|(id, plan)| !plan.dead && which(id, plan));
        let mut plans: Vec<_> = live.collect();
        plans.sort_by_key(|(id, _)| *id);
        plans
    }
}
