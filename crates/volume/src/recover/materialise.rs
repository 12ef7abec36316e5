//! Finds each object of the log on disk, and makes again in staging those that a crash has lost.
//!
//! It looks for an object by handle and birth time, then through the remap table, then in staging under the name of its old
//! identity (a crash may have come between making it and writing the row). A living object that is nowhere is made, if its
//! birth is in the log. Only identity decides, never a name: after a crash a name may belong to another object.

use std::collections::HashMap;

use bytes::Bytes;

use super::work::{Object, Work};
use super::{Error, FoundHow, Now, Place, Run, io, present, staging_name, surprise};
use crate::faults::point;
use crate::fold::{Fold, Plan};
use crate::limits::{RECOVERY_OBJECT_BYTES, RECOVERY_PORTION};
use crate::objmap::{ObjMap, ObjSet};
use crate::record::{Kind, ObjId};
use crate::recover::tree::Tree;

impl<'a, T: Tree> Run<'a, T> {
    pub(super) fn find_staged(&mut self) -> Result<(), Error> {
        let stage = self.tree.stage();
        for name in self.tree.list(&stage).map_err(io("listing staging", &stage))? {
            if let Some(found) =
                self.tree.lookup(&stage, &name).map_err(io("looking into staging", &stage))?
            {
                self.staged.entry(found.0.clone()).or_default().push((stage.clone(), name.clone()));
                self.left_staged.insert(name, found);
            }
        }
        Ok(())
    }

    /// Afterwards every living object of the log is on disk, durable, and known by its present identity, except those that
    /// somebody has removed.
    pub(super) fn materialise(&mut self) -> Result<(), Error> {
        let mut rows = Vec::new();
        let roomy = self.is_roomy()?;
        self.directories(roomy, &mut rows)?;
        self.others(roomy, &mut rows)?;
        self.concede_the_gone()?;
        point("recovery.materialised");
        self.barrier(rows)?;
        point("recovery.barrier");
        Ok(())
    }

    /// True if all of the log's contents fit on the disk before dead objects have freed their space. Then each object gets its
    /// contents when it is made.
    fn is_roomy(&mut self) -> Result<bool, Error> {
        let takes = |plan: &Plan| {
            let contents: u64 = plan.content.writes.iter().map(|(_, fill)| fill.room()).sum();
            let xattrs: u64 = plan.xattrs.values().flatten().map(|value| value.len() as u64).sum();
            RECOVERY_OBJECT_BYTES + contents + xattrs
        };
        let wanted: u64 = self.fold.objects.values().map(takes).sum();
        let stage = self.tree.stage();
        let room = self.tree.room().map_err(io("asking for free space", &stage))?;
        Ok(room / 2 >= wanted)
    }

    /// Handles parents first, and directories in which others were made before those: objects may have to be made in them.
    fn directories(&mut self, roomy: bool, rows: &mut Rows) -> Result<(), Error> {
        let fold = self.fold;
        let mut ids: Vec<_> = fold.objects.iter().filter(|(_, plan)| plan.is_dir).map(|(id, _)| id).collect();
        ids.sort_unstable();
        let mut waiting: Vec<Visit<'_>> = Vec::new();
        let mut seen = ObjSet::default();
        for id in ids {
            waiting.push(Visit::Before(id));
            while let Some(visit) = waiting.pop() {
                let id = match visit {
                    Visit::Before(id) if seen.insert(id.clone()) => {
                        waiting.push(Visit::Now(id));
                        let born_in = made_again(fold, id).and_then(|plan| plan.born_in.as_ref());
                        let parent = first_name(fold, id).map(|(dir, _)| dir);
                        waiting.extend(born_in.into_iter().chain(parent).map(Visit::Before));
                        continue;
                    }
                    Visit::Before(_) => continue,
                    Visit::Now(id) => id,
                };
                let wanted = self.wanted(id);
                if let Some(plan) = made_again(fold, id) {
                    self.ask_what_is_handed_down(id, plan)?;
                }
                loop {
                    let (look, tree) = self.parts(roomy);
                    let mut work = Work::new(tree);
                    let found = find(work.tree, id, wanted.remapped.as_ref())?;
                    let met = look.find_or_make(&mut work, id, found)?;
                    let done = work.done;
                    self.done.add(done);
                    match met {
                        Met::NoRoom(why) => self.make_room(why)?,
                        met => break self.know(met, rows),
                    }
                }
            }
        }
        Ok(())
    }

    /// Handles all other objects, sorted by the directory in which they are made: two threads seldom need the same one.
    fn others(&mut self, roomy: bool, rows: &mut Rows) -> Result<(), Error> {
        let fold = self.fold;
        let is_other = |id: &ObjId| fold.objects.get(id).is_some_and(|plan| !plan.is_dir);
        // Collects the answers here, so that no directory is asked about twice.
        for id in fold.objects.keys() {
            if let Some(plan) = made_again(fold, id) {
                self.ask_what_is_handed_down(id, plan)?;
            }
        }
        let (mut wanted, mut ends) = (Vec::new(), Vec::new());
        for (dir, names) in &fold.entries {
            let firsts = names.iter().filter_map(|(name, want)| {
                let id = want.as_ref().filter(|id| is_other(id))?;
                first_name(fold, id).is_some_and(|first| (&first.0, &first.1) == (dir, name)).then_some(id)
            });
            wanted.extend(firsts.map(|id| self.wanted(id)));
            ends.push(wanted.len());
        }
        let mut nameless: Vec<_> = fold
            .objects
            .iter()
            .filter(|(_, plan)| !plan.is_dir && plan.names.is_empty())
            .map(|(id, _)| id)
            .collect();
        nameless.sort_unstable();
        wanted.extend(nameless.into_iter().map(|id| self.wanted(id)));
        ends.push(wanted.len());
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let dirs = starts.zip(&ends).filter_map(|(start, end)| wanted.get(start..*end));
        let portions: Vec<_> = dirs.flat_map(|same| same.chunks(RECOVERY_PORTION)).collect();
        // All are looked for before any is made: on Linux the handle of a lost object fails with ENOMEM, not ESTALE, while its
        // number is being given to a new inode (`iget_locked` finds `I_CREATING`).
        let found = self.tree.spread(&portions, |tree, portion| {
            portion.iter().map(|wanted| find(tree, wanted.id, wanted.remapped.as_ref())).collect()
        })?;
        let mut left: Vec<(Vec<_>, Vec<_>)> =
            portions.into_iter().map(|portion| portion.iter().collect()).zip(found).collect();
        loop {
            let (look, tree) = self.parts(roomy);
            let met = tree.spread(&left, |tree, (portion, found)| {
                let mut work = Work::new(tree);
                let met = portion
                    .iter()
                    .zip(found)
                    .map(|(wanted, found)| look.find_or_make(&mut work, wanted.id, found.clone()));
                Ok((met.collect::<Result<Vec<_>, _>>()?, work.done))
            })?;
            let (mut refused, mut no_room) = (Vec::new(), None);
            for ((portion, _), (met, done)) in left.into_iter().zip(met) {
                self.done.add(done);
                let mut again = Vec::new();
                for (wanted, met) in portion.into_iter().zip(met) {
                    match met {
                        Met::NoRoom(why) => {
                            no_room = Some(why);
                            again.push(wanted);
                        }
                        met => self.know(met, rows),
                    }
                }
                if !again.is_empty() {
                    let found = vec![None; again.len()];
                    refused.push((again, found));
                }
            }
            match no_room {
                Some(why) => self.make_room(why)?,
                None => return Ok(()),
            }
            left = refused;
        }
    }

    /// Called when there was no room for a lost object (`why`): removes everything dead first, since the object may have been made in its
    /// place. That room can be found only once: the second time, this fails.
    ///
    /// It does a part of [`Run::enforce`] early, which harms nothing: the fold says what is wrong, whether or not the lost objects are
    /// there yet, and what lives keeps a name in staging.
    pub(super) fn make_room(&mut self, why: Error) -> Result<(), Error> {
        if std::mem::replace(&mut self.room_made, true) {
            return Err(why);
        }
        let mut ids: Vec<_> = self.fold.objects.keys().filter(|id| !self.now.contains_key(id)).collect();
        ids.sort_unstable();
        for id in ids {
            if let Some(found) = self.find(id)? {
                self.know(Met::on_disk(id, found), &mut Vec::new());
            }
        }
        self.detach()?;
        self.empty_stage_of_the_dead()?;
        self.tree.let_go();
        // Some filesystems give back the room only then.
        self.sync()
    }

    /// Finds out of the directories of an object whether their entries inherit something, so that the object must be made in
    /// them. Its first name in a directory that recovery makes is used anyway.
    fn ask_what_is_handed_down(&mut self, id: &ObjId, plan: &Plan) -> Result<(), Error> {
        let first = first_name(self.fold, id).map(|(dir, _)| dir);
        for dir in plan.names.iter().map(|(dir, _)| dir).chain(&plan.born_in) {
            let Some(now) = self.now.get(dir) else { continue };
            if self.native.contains_key(dir) || first == Some(dir) && self.ours.contains(dir) {
                continue;
            }
            let now = now.id.clone();
            let does = self.tree.hands_down(&now).map_err(io("asking what a directory hands down", dir))?;
            self.native.insert(dir.clone(), does.then_some(now));
        }
        Ok(())
    }

    fn wanted(&self, id: &'a ObjId) -> LoggedObject<'a> {
        LoggedObject { id, remapped: self.tree.remapped(id) }
    }

    fn parts(&mut self, roomy: bool) -> (Look<'_>, &mut T) {
        let stage = self.tree.stage();
        let Run { tree, fold, now, ours, native, left_staged, .. } = self;
        (Look { fold, now, ours, native, left_staged, stage, roomy }, tree)
    }

    /// Finds an object by handle and birth time, or through the remap table.
    pub(super) fn find(&mut self, id: &ObjId) -> Result<Option<ObjId>, Error> {
        let remapped = self.tree.remapped(id);
        find(self.tree, id, remapped.as_ref())
    }

    /// Finds the living objects on disk; makes nothing.
    pub(super) fn look_for_all(&mut self) -> Result<(), Error> {
        for (id, _) in self.sorted(|_, _| true) {
            if let Some(found) = self.find(id)? {
                self.know(Met::on_disk(id, found), &mut Vec::new());
            }
        }
        Ok(())
    }

    fn know(&mut self, met: Met<'_>, rows: &mut Rows) {
        let Met::OnDisk(ObjectOnDisk { id, now, ours, fileid, staged }) = met else { return };
        if let Some(name) = staged {
            self.staged.entry(now.id.clone()).or_default().push(name);
        }
        if ours {
            self.ours.insert(id.clone());
        }
        if let Some(fileid) = fileid {
            rows.push((id.clone(), now.id.clone(), fileid));
        }
        if *id != now.id {
            self.then.insert(now.id.clone(), id.clone());
        }
        self.now.insert(id.clone(), now);
    }
}

/// Rows for the remap table: old identity, new identity, fileid.
type Rows = Vec<(ObjId, ObjId, u64)>;

/// A directory during the depth-first walk.
enum Visit<'a> {
    /// The directories that it needs come first.
    Before(&'a ObjId),
    /// They are done.
    Now(&'a ObjId),
}

/// The plan of an object that recovery makes again if it is lost.
pub(super) fn made_again<'a>(fold: &'a Fold, id: &ObjId) -> Option<&'a Plan> {
    fold.objects.get(id).filter(|plan| plan.birth.is_some() && !plan.dead)
}

/// An object of the log, and its identity according to the remap table.
struct LoggedObject<'a> {
    id: &'a ObjId,
    remapped: Option<ObjId>,
}

/// An object of the log that is on disk.
struct ObjectOnDisk<'a> {
    id: &'a ObjId,
    now: Now,
    /// It is a directory made by recovery.
    ours: bool,
    /// Recovery has made it, and it needs a row with this fileid.
    fileid: Option<u64>,
    /// Its temporary name, if not noted yet.
    staged: Option<Place>,
}

/// What came of looking for an object, or of making it.
enum Met<'a> {
    OnDisk(ObjectOnDisk<'a>),
    /// It is not on disk, and need not be.
    Absent,
    /// It must be made, and there is no room for it.
    NoRoom(Error),
}

impl<'a> Met<'a> {
    fn on_disk(id: &'a ObjId, found: ObjId) -> Met<'a> {
        let now = Now { id: found, came: FoundHow::Found, complete: false };
        Met::OnDisk(ObjectOnDisk { id, now, ours: false, fileid: None, staged: None })
    }
}

/// The data that tells where an object is.
struct Look<'b> {
    fold: &'b Fold,
    now: &'b ObjMap<Now>,
    ours: &'b ObjSet,
    native: &'b ObjMap<Option<ObjId>>,
    left_staged: &'b HashMap<Bytes, (ObjId, Kind)>,
    stage: ObjId,
    roomy: bool,
}

impl<'b> Look<'b> {
    /// The directory in which an object must be made because of what it inherits.
    fn native(&self, plan: &Plan) -> Option<&'b ObjId> {
        let born_in = plan.born_in.as_ref().and_then(|dir| Some((dir, self.native.get(dir)?)));
        match born_in {
            Some((_, Some(native))) => Some(native),
            Some((dir, None)) if !self.ours.contains(dir) => None,
            // That directory is gone, or was made again and what it passed on is unknown. As far as possible, the directory in
            // which the object now is passes on the same.
            _ => plan.names.iter().find_map(|(dir, _)| self.native.get(dir)?.as_ref()),
        }
    }

    /// Finds an object or makes it.
    fn find_or_make<'a>(
        &self,
        work: &mut Work<'_>,
        id: &'a ObjId,
        found: Option<ObjId>,
    ) -> Result<Met<'a>, Error> {
        let Some(plan) = self.fold.objects.get(id) else { return Ok(Met::Absent) };
        let known = |id: ObjId, came, complete| Now { id, came, complete };
        let met = |now| ObjectOnDisk { id, now, ours: false, fileid: None, staged: None };
        let native = self.native(plan);
        if let Some(now) = found {
            // An earlier run may have made it and written its row; the directories that such a run made are ordinary ones now.
            let mut staged = None;
            if plan.birth.is_some() && !plan.dead {
                let dirs = plan.names.iter().map(|(dir, _)| dir).chain(&plan.born_in);
                for dir in dirs.filter_map(|dir| self.native.get(dir)?.as_ref()) {
                    let name = beside(id);
                    if work.tree.names(dir, &name, &now).map_err(io("looking a name up", id))? {
                        staged = Some((dir.clone(), name));
                        break;
                    }
                }
            }
            return Ok(Met::OnDisk(ObjectOnDisk { staged, ..met(known(now, FoundHow::Found, false)) }));
        }
        if plan.dead {
            return Ok(Met::Absent);
        }
        // An object that a crash cannot have lost is not made again, but reported ([`Run::concede_the_gone`]).
        let Some(birth) = plan.birth.as_ref().filter(|_| !plan.must_be_there) else { return Ok(Met::Absent) };
        // Its name in staging, if it is there; else its name in the directory that recovery has made for it.
        let in_stage = staging_name("made", id);
        let in_native = beside(id);
        let placed = first_name(self.fold, id).filter(|(dir, _)| self.ours.contains(dir));
        let mut staged = None;
        let (dir, name, left, private) = match (self.left_staged.get(&in_stage), placed, native) {
            (None, Some((dir, name)), None) => {
                let fresh = self.now.get(dir).is_some_and(|now| now.came != FoundHow::Found);
                let dir = present(self.now, dir)?;
                let left = match fresh {
                    true => None,
                    false => {
                        work.tree.lookup(&dir, name).map_err(io("looking into a directory made again", id))?
                    }
                };
                // It gets its mode when everything in it is right.
                (dir, name, left, fresh)
            }
            // What it must inherit from its directory it gets there, under a name that shows its identity.
            (None, _, Some(dir)) => {
                let left = work.tree.lookup(dir, &in_native).map_err(io("looking a name up", id))?;
                staged = Some((dir.clone(), in_native.clone()));
                (dir.clone(), &in_native, left, false)
            }
            (left, ..) => {
                staged = left.is_none().then(|| (self.stage.clone(), in_stage.clone()));
                (self.stage.clone(), &in_stage, left.cloned(), true)
            }
        };
        let again =
            |now| ObjectOnDisk { ours: birth.kind == Kind::Dir, fileid: Some(birth.fileid), ..met(now) };
        match left {
            Some((now, kind)) if kind == birth.kind => {
                Ok(Met::OnDisk(ObjectOnDisk { staged, ..again(known(now, FoundHow::Found, false)) }))
            }
            Some(_) => Err(surprise("an object of another kind is in staging", id, Some(name))),
            None => {
                let made = work.tree.make(&dir, name, birth, first_mode(plan, private));
                let (now, mut meta) = match made.map_err(io("making a lost object again", id)) {
                    Err(e) if e.is_full() => return Ok(Met::NoRoom(e)),
                    made => made?,
                };
                if native.is_some() && staged.is_some() {
                    meta = work.disinherit(id, &now, meta)?;
                }
                work.done.made += 1;
                // The times of a directory are set after its entries, and its entries must not inherit an ACL that it is to pass on.
                let mut complete = self.roomy && birth.kind != Kind::Dir;
                let object = Object { id, plan, now, made: Some(meta) };
                if complete {
                    match work.complete(&object) {
                        // What dead objects still take may count for somebody's quota. It is completed when they are gone.
                        Err(e) if e.is_full() => complete = false,
                        done => done?,
                    }
                }
                let came = if staged.is_some() { FoundHow::Staged } else { FoundHow::Placed };
                Ok(Met::OnDisk(ObjectOnDisk { staged, ..again(known(object.now, came, complete)) }))
            }
        }
    }
}

/// The temporary name of an object that is made in its own directory.
fn beside(id: &ObjId) -> Bytes {
    [&b".landfast-"[..], &staging_name("made", id)].concat().into()
}

/// The entry at which an object is made if its directory is made, too.
fn first_name<'a>(fold: &'a Fold, id: &ObjId) -> Option<&'a (ObjId, Bytes)> {
    fold.objects.get(id)?.names.first()
}

/// Finds an object by handle and birth time, or by its identity in the remap table.
fn find(tree: &mut dyn Tree, id: &ObjId, remapped: Option<&ObjId>) -> Result<Option<ObjId>, Error> {
    for id in std::iter::once(id).chain(remapped) {
        if tree.probe(id).map_err(io("looking at an object", id))?.is_some() {
            return Ok(Some(id.clone()));
        }
    }
    Ok(None)
}

/// The mode with which a file is made: the final one where possible, so that nothing is left to set. But nobody may look into
/// the file who may not in the end. An ACL's mask is not the group's permission, and the file does not have its final group
/// yet; that matters where others than root can enter the directory.
fn first_mode(plan: &Plan, private: bool) -> u32 {
    match &plan.owned {
        Some(owned) if plan.xattrs.is_empty() => {
            owned.mode & if private || owned.gid == 0 { 0o777 } else { 0o707 }
        }
        _ => 0o600,
    }
}
