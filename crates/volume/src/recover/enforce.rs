//! Makes the disk agree with the fold, in this order:
//! 1. names, since removing dead objects frees space, and since names change the times of directories;
//! 2. what else gives back space: files that were cut, and holes;
//! 3. for each object its contents, its attributes, and last its times, since everything else changes those.

use super::work::{Object, Work};
use super::{Error, FoundHow, Run};
use crate::faults::point;
use crate::fold::Plan;
use crate::limits::RECOVERY_PORTION;
use crate::record::ObjId;
use crate::recover::tree::Tree;

impl<'a, T: Tree> Run<'a, T> {
    /// Makes the disk agree with the fold. By now every live object is on disk, unless somebody has removed it ([`Run::materialise`]).
    pub(super) fn enforce(&mut self) -> Result<(), Error> {
        self.detach()?;
        point("recovery.detached");
        self.attach()?;
        point("recovery.attached");
        self.empty_stage()?;
        self.tree.let_go();
        let gives = self.give_room()?;
        if gives || self.is_short() {
            // Some filesystems give back the room only then.
            self.sync()?;
        }
        self.objects(|work, object| work.complete(object))?;
        point("recovery.contents");
        self.verify()
    }

    /// Cuts files and makes holes before anything is written. Returns whether there were any.
    fn give_room(&mut self) -> Result<bool, Error> {
        let now = &self.now;
        let gives = |id: &ObjId, plan: &Plan| {
            plan.content.gives_room() && now.get(id).is_some_and(|now| now.came == FoundHow::Found)
        };
        if !self.fold.objects.iter().any(|(id, plan)| !plan.dead && gives(id, plan)) {
            return Ok(false);
        }
        self.objects(|work, object| work.give_room(object))?;
        Ok(true)
    }

    /// Whether an object that this run made has not got its contents yet, because room was short.
    fn is_short(&self) -> bool {
        let incomplete =
            |id: &ObjId| self.now.get(id).is_some_and(|now| now.came != FoundHow::Found && !now.complete);
        self.fold.objects.iter().any(|(id, plan)| !plan.is_dir && incomplete(id))
    }

    /// Runs `each` for each live object of the log that was not completed when it was made.
    pub(super) fn objects(
        &mut self,
        each: impl Fn(&mut Work<'_>, &Object<'_>) -> Result<(), Error> + Sync,
    ) -> Result<(), Error> {
        let now = &self.now;
        // An object that somebody has removed needs nothing.
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

    /// The selected live objects of the log, in a fixed order.
    pub(super) fn sorted(&self, which: impl Fn(&ObjId, &Plan) -> bool) -> Vec<(&'a ObjId, &'a Plan)> {
        let live = self.fold.objects.iter().filter(|(id, plan)| !plan.dead && which(id, plan));
        let mut plans: Vec<_> = live.collect();
        plans.sort_by_key(|(id, _)| *id);
        plans
    }
}
