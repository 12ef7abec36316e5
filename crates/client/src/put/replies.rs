//! What a reply to a compound means for the items in it. No I/O.
//!
//! A COMPOUND stops at its first error.
//! - Items before the error are done.
//! - The item at the error is sent again, or extracted in single steps.
//! - Items after the error were not executed, and are sent again in the same order.
//! - Directories whose final attributes were not set get them in a later compound, or at the end.

use std::time::Duration;

use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::{CompoundRes, NfsStat, OpNum, ResBody, ResOp, StableHow};

use super::attrs::merge;
use super::existing::{Existing, Over, When};
use super::pack::Batch;
use super::plan::{Leftover, Make, Plan};
use super::report::MemberError;
use super::tree::ItemId;
use crate::compound::{OpError, detached};
use crate::cost::{REPLY_HEAD, REQUEST_HEAD};
use crate::limits;

/// What the sender must do after a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feedback {
    GoOn,
    /// Send nothing for a moment. The item that the server refused for that long, if it was one ([`Plan::paused`]).
    Pause(Option<ItemId>),
}

impl<P: Default> Plan<P> {
    pub(super) fn replied(&mut self, batch: &Batch, reply: CompoundRes) -> Feedback {
        let status = reply.status;
        if reply.results.is_empty() && !status.is_ok() {
            return self.refused(batch, status);
        }
        let mut feedback = Feedback::GoOn;
        let mut results = reply.results.into_iter().peekable();
        if results.by_ref().take(batch.guard).any(|r| !r.status.is_ok()) {
            self.finished(batch, 0);
            for (id, _) in batch.members.iter().rev() {
                self.not_executed(batch, *id);
                self.push_first(*id);
            }
            return feedback;
        }
        let mut again = Vec::new();
        let mut stopped = false;
        for &(id, ops) in &batch.members {
            if stopped || results.peek().is_none() {
                stopped = true;
                self.not_executed(batch, id);
                again.push(id);
                continue;
            }
            let mine: Vec<ResOp> = results.by_ref().take(ops).collect();
            let failed = mine.last().map(|r| r.status).filter(|s| !s.is_ok());
            match failed {
                None if mine.len() == ops => self.executed(id, &mine),
                // Fewer results than operations and no error: the outcome is unknown.
                None => {
                    self.begin(id);
                    self.make_slow(id);
                    again.push(id);
                }
                Some(status @ (NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE)) => {
                    self.partly(id, &mine);
                    if self.has_waited(id) {
                        self.impatient = true;
                        let op = mine.last().map_or(OpNum::ILLEGAL, |r| r.op);
                        self.fail(id, OpError::Failed { op, status });
                    } else {
                        feedback = Feedback::Pause(Some(id));
                        again.push(id);
                    }
                }
                Some(status) => {
                    self.not_copied(id, &mine);
                    let first = batch.members.first().is_some_and(|m| m.0 == id);
                    if !self.learn(batch, status) || first {
                        self.make_slow(id);
                    }
                    self.partly(id, &mine);
                    again.push(id);
                }
            }
            stopped = failed.is_some();
        }
        let whole = |ops: usize| results.by_ref().take(ops).filter(|r| r.status.is_ok()).count() == ops;
        let finished = batch.finished.iter().map(|(_, ops)| *ops).map(whole).take_while(|done| *done).count();
        self.finished(batch, if stopped { 0 } else { finished });
        for id in again.into_iter().rev() {
            self.push_first(id);
        }
        feedback
    }

    /// Something of the item was executed, or may have been.
    fn begin(&mut self, id: ItemId) {
        if let Some(item) = self.item_mut(id) {
            item.begun = true;
        }
    }

    /// A member that was sent before it was planned counts as begun until its reply has come.
    fn not_executed(&mut self, batch: &Batch, id: ItemId) {
        if let Some(item) = self.item_mut(id).filter(|_| batch.guard > 0) {
            item.begun = false;
        }
    }

    /// Remembers it if the copy itself was refused.
    fn not_copied(&mut self, id: ItemId, results: &[ResOp]) {
        let job = self.items.get(id.0 as usize).and_then(Option::as_ref).and_then(|item| item.job.as_ref());
        if let (Some(Make::Copy(original)), Some(last)) = (job.map(|job| &job.make), results.last())
            && matches!(last.op, OpNum::CLONE | OpNum::COPY)
        {
            original.copies.refused(original.fsid, last.op, last.status);
        }
    }

    /// The batch was not executed.
    pub(super) fn refused(&mut self, batch: &Batch, status: NfsStat) -> Feedback {
        self.finished(batch, 0);
        let learnt = self.learn(batch, status);
        for (id, _) in batch.members.iter().rev() {
            if !learnt || batch.members.len() == 1 {
                self.make_slow(*id);
            }
            self.push_first(*id);
        }
        if learnt { Feedback::GoOn } else { Feedback::Pause(None) }
    }

    /// After [`Feedback::Pause`]: how long nothing is sent.
    pub(super) fn paused(&mut self, id: ItemId, pause: Duration) {
        if let Some(item) = self.item_mut(id) {
            item.waited += pause;
        }
    }

    /// Whether the server has refused an item for long enough. When it refuses all of them, only the first is waited for so long.
    /// What goes on in single steps has the patience of those.
    fn has_waited(&mut self, id: ItemId) -> bool {
        let patience = if self.impatient { limits::BACKOFF_MAX } else { limits::DELAY_PATIENCE };
        self.item_mut(id).is_some_and(|item| !item.slow && item.waited >= patience)
    }

    /// It is not known whether the batch was executed. Each item is checked one by one.
    pub(super) fn lost(&mut self, batch: &Batch) {
        self.finished(batch, 0);
        for (id, _) in batch.members.iter().rev() {
            if self.may_pass_for_another(*id) {
                self.fail(*id, MemberError::outcome_unknown());
                continue;
            }
            self.begin(*id);
            if let Some(item) = self.item_mut(*id) {
                item.slow = true;
                // An existing directory does no harm. Anything else may be our own incomplete object. If it cannot be told
                // from a file that must stay, it is left alone.
                let (dir, is_dir) = (item.dir, item.child.is_some());
                let all_known = self.tree.dir(dir).all_known;
                let ours = match self.existing {
                    Existing::Keep | Existing::Look(_) => all_known,
                    Existing::Replace | Existing::Overwrite => true,
                };
                if let Some(item) = self.item_mut(*id) {
                    item.replace |= ours && !is_dir;
                    item.made_if_there = all_known && is_dir;
                }
            }
            self.push_first(*id);
        }
    }

    /// Whether an incomplete object of this item would look like an existing file that must stay.
    fn may_pass_for_another(&self, id: ItemId) -> bool {
        let item = self.items.get(id.0 as usize).and_then(Option::as_ref);
        let stays = match self.existing {
            Existing::Look(Over { when: When::Never | When::Older, .. }) => true,
            Existing::Look(Over { when: When::Agreed, .. }) => {
                item.and_then(|i| i.job.as_ref()).is_some_and(|job| !job.agreed)
            }
            _ => false,
        };
        stays && item.is_some_and(|i| i.child.is_none() && !i.replace && !self.tree.dir(i.dir).all_known)
    }

    /// Reduces the size of later compounds, if `status` means that this one was too large.
    fn learn(&mut self, batch: &Batch, status: NfsStat) -> bool {
        let c = &mut self.capacity;
        match status {
            NfsStat::NFS4ERR_TOO_MANY_OPS | NfsStat::NFS4ERR_RESOURCE => {
                c.ops = c.ops.min((batch.ops / 2 + 1).max(limits::OPS_MIN as usize));
            }
            NfsStat::NFS4ERR_REQ_TOO_BIG | NfsStat::NFS4ERR_BADXDR => {
                c.request = c.request.min(REQUEST_HEAD + batch.body.len() / 2);
            }
            NfsStat::NFS4ERR_REP_TOO_BIG => {
                c.reply = c.reply.min((batch.reply / 2).max(REPLY_HEAD));
            }
            NfsStat::NFS4ERR_REP_TOO_BIG_TO_CACHE => {
                c.reply_cached = c.reply_cached.min(batch.reply / 2);
            }
            _ => return false,
        }
        true
    }

    /// Evaluates the results of an item whose operations all succeeded.
    fn executed(&mut self, id: ItemId, results: &[ResOp]) {
        let Some(item) = self.items.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let Some(job) = &item.job else { return };
        (item.begun, self.impatient) = (true, false);
        let mut handle = None;
        let mut missing = Bitmap::default();
        let mut written = true;
        let mut unstable = None;
        for r in results {
            match &r.body {
                ResBody::Copy(copied) => {
                    let Make::Copy(original) = &job.make else { continue };
                    let done = &copied.response;
                    written = done.callback_id.is_none() && done.count == original.size;
                    unstable = (done.committed != StableHow::FileSync).then_some(done.writeverf);
                }
                ResBody::Commit(verifier) if unstable == Some(*verifier) => unstable = None,
                ResBody::Open(open) => missing = job.attrs.create.mask.minus(&open.attrset),
                ResBody::Create(create) => missing = job.attrs.create.mask.minus(&create.attrset),
                ResBody::Getfh(fh) => handle = Some(detached(fh)),
                ResBody::Getattr(got) => self.ownership.found(&job.attrs.create, got),
                ResBody::Write(w) => {
                    let Make::File(data) = &job.make else { continue };
                    written = w.count as usize == data.len() && w.committed == StableHow::FileSync;
                }
                _ => {}
            }
        }
        if !written || unstable.is_some() {
            // A short or unstable write: start the file over.
            (item.slow, item.replace, item.exact_spelling) = (true, true, true);
            return self.push_first(id);
        }
        if let Some(child) = item.child {
            let Some(fh) = handle else { return self.fail(id, "the server gave no filehandle") };
            // For a directory that the archive names, attributes that creation did not set are set at the end.
            self.tree.made(child, fh);
            self.unpark_dir(child);
            return self.done(id);
        }
        let missing = missing.or(&self.ownership.left_out(&job.attrs.create));
        if let (true, false, Some(fh)) = (!missing.is_empty() || item.bits_wait, item.merged, handle) {
            let ownership = Bitmap::of(&[number::OWNER, number::OWNER_GROUP]);
            // A SETATTR of the owner together with the rest could fail as a whole.
            self.attrs_again |= !missing.minus(&ownership).is_empty();
            self.owners_again |= !missing.and(&ownership).is_empty();
            let create = AttrValues::from_fattr(&job.attrs.create).unwrap_or_default();
            let rest = merge(&create.to_fattr(&missing), &job.attrs.finish);
            item.leftover = Leftover::Incomplete(fh, rest);
            item.slow = true;
            return self.push_first(id);
        }
        self.done(id);
    }

    /// Evaluates the results of an item whose operations stopped half way.
    fn partly(&mut self, id: ItemId, results: &[ResOp]) {
        let Some(item) = self.item_mut(id) else { return };
        let mut opened = None;
        for r in results.iter().filter(|r| r.status.is_ok()) {
            let changes = matches!(r.op, OpNum::OPEN | OpNum::CREATE | OpNum::REMOVE | OpNum::LINK);
            item.begun |= changes;
            match &r.body {
                ResBody::Open(open) => opened = Some((open.stateid, None)),
                ResBody::Getfh(fh) => {
                    if let Some((_, place @ None)) = &mut opened {
                        *place = Some(detached(fh));
                    }
                }
                ResBody::Remove(_) => (item.replace, item.exact_spelling) = (false, false),
                ResBody::Create(_) => {
                    // Made, but not finished.
                    item.replace = item.child.is_none();
                    item.made_if_there = item.child.is_some();
                    (item.slow, item.exact_spelling) = (true, true);
                }
                _ => {}
            }
        }
        if let Some((stateid, fh)) = opened {
            (item.slow, item.replace, item.exact_spelling) = (true, true, true);
            if let Some(fh) = fh {
                item.leftover = Leftover::Opened(fh, stateid);
            }
        }
    }
}
