//! What is to be done, in which order, and what has become of it. No I/O: members and replies go in,
//! compounds come out.
//!
//! | where an item is | until |
//! |---|---|
//! | `ready`, in the archive's order | it is packed, or has to wait for a directory's handle |
//! | held by a directory that is being made | the directory has a handle, or failed |
//! | parked behind another item on the same path, or a listing | that is done |
//! | in a batch | its reply |
//! | slow: one operation at a time, or in pieces | its outcome |
//!
//! Invariants: a path is busy with one item at a time, and the next one for it starts when that is done,
//! in the archive's order; every member added comes out exactly once as settled; an item is settled as
//! done only when the server has said so of each of its operations.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use landfast_nfs::v4::args::CreateType;
use landfast_nfs::v4::{
    CompoundRes, Fattr, FileHandle, FileType, NfsStat, ResBody, ResOp, StableHow, Stateid,
};

use super::attrs::{MemberAttrs, merge};
use super::options::Existing;
use super::pack::{Batch, Capacity, Packer, Parts, Piece, Route};
use super::tree::{DirId, DirState, ItemId, Name, ROOT, Tree, Walk};
use crate::ops::Entry;

/// What to make.
#[derive(Debug, Clone)]
pub(super) enum Make {
    Dir,
    /// A whole file.
    File(Bytes),
    /// A file that comes in pieces; its size in bytes.
    Pieces(u64),
    /// A symbolic link, a device, a FIFO.
    Other(CreateType),
    /// A hard link to this path.
    Link(Vec<Bytes>),
}

/// A member to extract. `P` goes along untouched until the member is settled.
#[derive(Debug)]
pub(super) struct Job<P> {
    /// Its name in the archive.
    pub(super) shown: Vec<u8>,
    /// Its place below the destination.
    pub(super) path: Vec<Bytes>,
    pub(super) make: Make,
    pub(super) attrs: MemberAttrs,
    pub(super) payload: P,
}

/// What became of a member.
#[derive(Debug)]
pub(super) struct Settled<P> {
    pub(super) job: Job<P>,
    pub(super) result: Result<(), String>,
    /// A directory that the archive did not name.
    pub(super) implied: bool,
}

/// What is known of a slow item's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Leftover {
    Nothing,
    /// Made, but left open.
    Opened(FileHandle, Stateid),
    /// Made and complete, but for these attributes.
    Incomplete(FileHandle, Fattr),
}

/// An item to be extracted one operation at a time.
#[derive(Debug)]
pub(super) struct SlowTask<P> {
    pub(super) id: ItemId,
    pub(super) dir: FileHandle,
    pub(super) name: Bytes,
    /// A hard link's target: directory and name.
    pub(super) target: Option<(FileHandle, Bytes)>,
    pub(super) job: Job<P>,
    /// The name exists, or may exist, and has to go first.
    pub(super) replace: bool,
    pub(super) leftover: Leftover,
}

/// What came of a slow item.
#[derive(Debug)]
pub(super) enum SlowDone {
    Done,
    /// A directory: its handle, and whether it was there before.
    Dir(FileHandle, bool),
    Failed(String),
}

struct Item<P> {
    job: Option<Job<P>>,
    dir: DirId,
    name: Bytes,
    replace: bool,
    child: Option<DirId>,
    target: Option<(DirId, Bytes)>,
    implied: bool,
    /// To be done slowly.
    slow: bool,
    /// Packed with all its attributes set at the end.
    merged: bool,
    leftover: Leftover,
}

enum Parked<P> {
    /// A member whose path could not be followed yet.
    Job(Job<P>),
    /// A hard link whose target is not there yet.
    Link(ItemId),
}

pub(super) struct Plan<P> {
    existing: Existing,
    implied_attrs: Fattr,
    tree: Tree,
    items: Vec<Option<Item<P>>>,
    free: Vec<ItemId>,
    ready: VecDeque<ItemId>,
    slow: VecDeque<ItemId>,
    behind_items: HashMap<ItemId, VecDeque<Parked<P>>>,
    behind_listings: HashMap<DirId, VecDeque<Parked<P>>>,
    settled: Vec<Settled<P>>,
    capacity: Capacity,
    next_batch: u64,
    /// The server does not set at creation what it is asked to: set it again at the end.
    attrs_again: bool,
    /// Members that were added and are not settled.
    open: usize,
}

/// What the reply to a batch asks of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feedback {
    GoOn,
    /// The server wants to be left alone for a moment.
    Pause,
}

impl<P: Default> Plan<P> {
    pub(super) fn new(
        root: FileHandle,
        existing: Existing,
        implied_attrs: Fattr,
        capacity: Capacity,
    ) -> Plan<P> {
        Plan {
            existing,
            implied_attrs,
            tree: Tree::new(root),
            items: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            slow: VecDeque::new(),
            behind_items: HashMap::new(),
            behind_listings: HashMap::new(),
            settled: Vec::new(),
            capacity,
            next_batch: 1,
            attrs_again: false,
            open: 0,
        }
    }

    /// Members that are not settled.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Items that could be packed, or may turn out to have to wait.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn capacity(&self) -> Capacity {
        self.capacity
    }

    pub(super) fn take_settled(&mut self) -> Vec<Settled<P>> {
        std::mem::take(&mut self.settled)
    }

    /// Directories whose entries are wanted.
    pub(super) fn take_listings(&mut self) -> Vec<(DirId, FileHandle)> {
        self.tree.take_wanted()
    }

    /// Takes up a member.
    pub(super) fn add(&mut self, job: Job<P>) {
        self.open += 1;
        self.enter(job);
    }

    fn enter(&mut self, mut job: Job<P>) {
        let Some((name, parents)) = job.path.split_last().map(|(n, p)| (n.clone(), p.to_vec())) else {
            return self.enter_root(job);
        };
        let dir = loop {
            match self.tree.walk(&parents) {
                Walk::In(dir) => break dir,
                Walk::Wait(dir) => {
                    return self.behind_listings.entry(dir).or_default().push_back(Parked::Job(job));
                }
                Walk::Busy(item) => {
                    return self.behind_items.entry(item).or_default().push_back(Parked::Job(job));
                }
                Walk::Missing(dir, at) => self.add_implied(dir, &parents[..=at]),
                Walk::Blocked(n) => {
                    let at: Vec<u8> = parents[..n].join(&b'/');
                    let why = format!("`{}` is not a directory, or is a symbolic link", at.escape_ascii());
                    return self.settle(job, Err(why), false);
                }
                Walk::Failed(why) => return self.settle(job, Err(why), false),
            }
        };
        let is_dir = matches!(job.make, Make::Dir);
        let mut replace = false;
        match self.tree.dir(dir).names.get(&name) {
            None => {}
            Some(Name::Busy(item)) => {
                let item = *item;
                return self.behind_items.entry(item).or_default().push_back(Parked::Job(job));
            }
            Some(Name::Dir(_) | Name::Found(_)) if !is_dir => {
                return self.settle(job, Err("a directory is in the way".into()), false);
            }
            Some(Name::Dir(id)) => return self.meet_dir(*id, job),
            Some(Name::Found(fh)) => {
                let fh = fh.clone();
                let id = self.tree.adopt(dir, &name, fh);
                return self.meet_dir(id, job);
            }
            Some(Name::Other | Name::Pinned { .. }) if self.existing == Existing::Keep => {
                return self.settle(job, Err("File exists".into()), false);
            }
            // A link that comes earlier in the archive is to what is there now.
            Some(Name::Pinned { last, .. }) => {
                let last = *last;
                return self.behind_items.entry(last).or_default().push_back(Parked::Job(job));
            }
            Some(Name::Other) => replace = true,
        }
        // Writing into an existing file is a matter for the slow way, which looks at what is there.
        let overwrite = replace
            && self.existing == Existing::Overwrite
            && matches!(job.make, Make::File(_) | Make::Pieces(_));
        let child = is_dir.then(|| self.tree.add_new(dir, name.clone()));
        if let Some(child) = child {
            self.tree.dir_mut(child).finish =
                Some((std::mem::take(&mut job.attrs.finish), job.shown.clone()));
        }
        let is_link = matches!(job.make, Make::Link(_));
        let slow = overwrite || matches!(job.make, Make::Pieces(_));
        let id = self.new_item(Item {
            job: Some(job),
            dir,
            name: name.clone(),
            replace,
            child,
            target: None,
            implied: false,
            slow,
            merged: false,
            leftover: Leftover::Nothing,
        });
        if child.is_none() {
            self.tree.dir_mut(dir).names.insert(name, Name::Busy(id));
        }
        if is_link { self.aim(id) } else { self.ready.push_back(id) }
    }

    /// `./`: the destination's own attributes.
    fn enter_root(&mut self, mut job: Job<P>) {
        if matches!(job.make, Make::Dir) {
            self.tree.dir_mut(ROOT).finish = Some((std::mem::take(&mut job.attrs.finish), job.shown.clone()));
            self.settle(job, Ok(()), false);
        } else {
            self.settle(job, Err("a directory is in the way".into()), false);
        }
    }

    /// A directory that there is already: only its attributes count.
    fn meet_dir(&mut self, id: DirId, mut job: Job<P>) {
        let dir = self.tree.dir_mut(id);
        if let DirState::Failed(why) = &dir.state {
            let why = why.clone();
            return self.settle(job, Err(why), false);
        }
        // A directory that the archive had to be given gets the archive's attributes when it names it.
        if self.existing != Existing::Keep || dir.all_known {
            dir.finish = Some((std::mem::take(&mut job.attrs.finish), job.shown.clone()));
        }
        self.settle(job, Ok(()), false);
    }

    /// A directory that the archive does not name, at `path`, missing in `parent`.
    fn add_implied(&mut self, parent: DirId, path: &[Bytes]) {
        let Some(name) = path.last().cloned() else { return };
        let child = self.tree.add_new(parent, name.clone());
        let attrs = MemberAttrs { create: self.implied_attrs.clone(), finish: Fattr::default() };
        let shown = path.join(&b'/');
        let job = Job { shown, path: path.to_vec(), make: Make::Dir, attrs, payload: P::default() };
        self.open += 1;
        let id = self.new_item(Item {
            job: Some(job),
            dir: parent,
            name,
            replace: false,
            child: Some(child),
            target: None,
            implied: true,
            slow: false,
            merged: false,
            leftover: Leftover::Nothing,
        });
        self.ready.push_back(id);
    }

    /// Finds a hard link's target, or what to wait for.
    fn aim(&mut self, id: ItemId) {
        let Some(Item { job: Some(Job { make: Make::Link(path), .. }), .. }) = self.item(id) else { return };
        let path = path.clone();
        let Some((name, parents)) = path.split_last() else {
            return self.fail(id, "hard link to the destination itself".into());
        };
        let missing = || format!("hard link to `{}`: no such file", path.join(&b'/').escape_ascii());
        let dir = match self.tree.walk(parents) {
            Walk::In(dir) => dir,
            Walk::Wait(dir) => {
                return self.behind_listings.entry(dir).or_default().push_back(Parked::Link(id));
            }
            Walk::Busy(item) if item == id => return self.fail(id, missing()),
            Walk::Busy(item) => {
                return self.behind_items.entry(item).or_default().push_back(Parked::Link(id));
            }
            Walk::Missing(..) => return self.fail(id, missing()),
            Walk::Blocked(_) => {
                return self
                    .fail(id, format!("{} (not a directory, or a symbolic link, in the way)", missing()));
            }
            Walk::Failed(why) => return self.fail(id, why),
        };
        match self.tree.dir(dir).names.get(name) {
            // To itself: it is there already, or never will be.
            Some(Name::Busy(item)) if *item == id => {
                let there = self.item(id).is_some_and(|i| i.replace);
                return if there { self.done(id) } else { self.fail(id, missing()) };
            }
            Some(Name::Busy(item)) => {
                let item = *item;
                return self.behind_items.entry(item).or_default().push_back(Parked::Link(id));
            }
            Some(Name::Dir(_) | Name::Found(_)) => return self.fail(id, "hard link to a directory".into()),
            Some(Name::Other | Name::Pinned { .. }) => {}
            None if self.tree.dir(dir).all_known => return self.fail(id, missing()),
            None => {}
        }
        // The target is not replaced until the link is there.
        let links = match self.tree.dir(dir).names.get(name) {
            Some(Name::Pinned { links, .. }) => links + 1,
            _ => 1,
        };
        self.tree.dir_mut(dir).names.insert(name.clone(), Name::Pinned { links, last: id });
        if let Some(item) = self.item_mut(id) {
            item.target = Some((dir, name.clone()));
        }
        self.ready.push_back(id);
    }

    /// A directory's entries, `None` when they cannot all be known.
    pub(super) fn listed(&mut self, id: DirId, entries: Option<Vec<Entry>>) {
        let dir = self.tree.dir_mut(id);
        let DirState::Listing(fh) = &dir.state else { return };
        dir.state = DirState::Open(fh.clone());
        dir.all_known = entries.is_some();
        let mut there = Vec::new();
        for e in entries.unwrap_or_default() {
            match dir.names.get(&e.name) {
                Some(Name::Busy(item)) => there.push(*item),
                Some(_) => {}
                None => {
                    let name = match (e.attrs.kind, e.attrs.filehandle) {
                        (Some(FileType::Dir), Some(fh)) => Name::Found(fh),
                        // What the server does not tell is found out by trying.
                        (None, _) | (Some(FileType::Dir), None) => {
                            dir.all_known = false;
                            continue;
                        }
                        _ => Name::Other,
                    };
                    dir.names.insert(e.name, name);
                }
            }
        }
        // Planned for an empty directory: now they know better.
        for item in there {
            if let Some(item) = self.item_mut(item)
                && item.dir == id
            {
                item.slow = true;
            }
        }
        self.wake(id);
    }

    /// A directory is open, or has failed: what waited for that goes on, in its order.
    fn wake(&mut self, id: DirId) {
        for item in std::mem::take(&mut self.tree.dir_mut(id).held).into_iter().rev() {
            self.ready.push_front(item);
        }
        let parked = self.behind_listings.remove(&id).unwrap_or_default();
        self.unpark(parked, None);
    }

    /// Lets parked work go on, in its order. What waited for `name` keeps waiting together when the first
    /// of it makes that name busy again.
    fn unpark(&mut self, mut parked: VecDeque<Parked<P>>, name: Option<(DirId, Bytes)>) {
        while let Some(p) = parked.pop_front() {
            match p {
                Parked::Job(job) => self.enter(job),
                Parked::Link(id) => self.aim(id),
            }
            if let Some((dir, name)) = &name
                && let Some(Name::Busy(item)) = self.tree.dir(*dir).names.get(name)
            {
                let behind = self.behind_items.entry(*item).or_default();
                parked.extend(behind.drain(..));
                *behind = parked;
                return;
            }
        }
    }

    /// Packs as many ready items as fit into a compound; `None` when none is ready.
    pub(super) fn next_batch(&mut self) -> Option<Batch> {
        let mut packer = Packer::new(self.capacity, self.next_batch);
        self.next_batch += 1;
        while !packer.is_full() {
            let Some(id) = self.ready.pop_front() else { break };
            let Some(item) = self.items[id.0 as usize].as_ref() else { continue };
            let wanted = [Some(item.dir), item.target.as_ref().map(|t| t.0)];
            let mut routes = [None, None];
            let mut obstacle = None;
            for (i, dir) in wanted.into_iter().enumerate() {
                match dir.map(|d| self.route(d, packer.number())) {
                    Some(Ok(route)) => routes[i] = Some(route),
                    Some(Err(o)) => obstacle = obstacle.or(Some(o)),
                    None => {}
                }
            }
            match obstacle {
                Some(Obstacle::Wait(dir)) => {
                    self.tree.dir_mut(dir).held.push(id);
                    continue;
                }
                Some(Obstacle::Failed(why)) => {
                    self.fail(id, why);
                    continue;
                }
                None => {}
            }
            let [Some(at), target] = routes else { continue };
            if item.slow {
                // Needs handles of its own, which a directory made in this very compound has not yet.
                match [Some(&at), target.as_ref()].into_iter().flatten().find(|r| !r.names.is_empty()) {
                    Some(route) => self.tree.dir_mut(route.dir).held.push(id),
                    None => self.slow.push_back(id),
                }
                continue;
            }
            let stay = self.ready.front().and_then(|n| self.item(*n)).is_some_and(|n| n.dir == item.dir);
            let Some(job) = &item.job else { continue };
            let parts = match (&job.make, target, &item.target, item.child) {
                (Make::Dir, _, _, Some(child)) => Parts::Dir(child),
                (Make::File(data), ..) => Parts::File(data),
                (Make::Other(kind), ..) => Parts::Other(kind.clone()),
                (Make::Link(_), Some(route), Some((_, name)), _) => Parts::Link(route, name),
                _ => continue,
            };
            let merged = (self.attrs_again && item.child.is_none())
                .then(|| merge(&job.attrs.create, &job.attrs.finish));
            let is_merged = merged.is_some();
            let piece = Piece {
                at,
                name: &item.name,
                replace: item.replace,
                create: &job.attrs.create,
                finish: merged.as_ref().unwrap_or(&job.attrs.finish),
                parts,
                stay,
            };
            let child = item.child;
            if packer.add(id, &piece) {
                if let Some(item) = self.items[id.0 as usize].as_mut() {
                    item.merged = is_merged;
                }
                if let Some(child) = child {
                    self.tree.dir_mut(child).in_batch = packer.number();
                }
            } else if packer.is_empty() {
                // Alone it does not fit either.
                self.make_slow(id);
                self.ready.push_front(id);
            } else {
                self.ready.push_front(id);
                break;
            }
        }
        (!packer.is_empty()).then(|| packer.finish())
    }

    /// How to reach a directory in batch `number`.
    fn route(&self, dir: DirId, number: u64) -> Result<Route, Obstacle> {
        let (mut at, mut names, mut wait) = (dir, Vec::new(), None);
        loop {
            let d = self.tree.dir(at);
            match &d.state {
                DirState::Open(fh) | DirState::Unlisted(fh) => {
                    names.reverse();
                    return match wait {
                        Some(dir) => Err(Obstacle::Wait(dir)),
                        None => Ok(Route { dir, from: fh.clone(), names }),
                    };
                }
                DirState::Failed(why) => return Err(Obstacle::Failed(why.clone())),
                DirState::Listing(_) => return Err(Obstacle::Wait(at)),
                DirState::Making if d.in_batch != number => wait = Some(at),
                DirState::Making => {}
            }
            names.push(d.name.clone());
            at = d.parent;
        }
    }

    /// The next item that goes the slow way, its job handed over.
    pub(super) fn next_slow(&mut self) -> Option<SlowTask<P>> {
        while let Some(id) = self.slow.pop_front() {
            let Some(item) = self.items[id.0 as usize].as_mut() else { continue };
            let Some(dir) = self.tree.dir(item.dir).fh().cloned() else { continue };
            let target = match &item.target {
                None => None,
                Some((dir, name)) => self.tree.dir(*dir).fh().cloned().map(|fh| (fh, name.clone())),
            };
            let Some(job) = item.job.take() else { continue };
            return Some(SlowTask {
                id,
                dir,
                name: item.name.clone(),
                target,
                job,
                replace: item.replace,
                leftover: std::mem::replace(&mut item.leftover, Leftover::Nothing),
            });
        }
        None
    }

    pub(super) fn slow_done(&mut self, id: ItemId, job: Job<P>, outcome: SlowDone) {
        let child = match self.item_mut(id) {
            Some(item) => {
                item.job = Some(job);
                item.child
            }
            // Abandoned meanwhile.
            None => return self.settle(job, Err("not finished".into()), false),
        };
        match (outcome, child) {
            (SlowDone::Failed(why), _) => self.fail(id, why),
            (SlowDone::Dir(fh, existed), Some(child)) => {
                if existed {
                    // Others may have put things into it.
                    self.tree.dir_mut(child).all_known = false;
                    self.tree.list(child, fh);
                } else {
                    self.tree.dir_mut(child).state = DirState::Open(fh);
                    self.wake(child);
                }
                self.done(id);
            }
            _ => self.done(id),
        }
    }

    /// The reply to a batch.
    pub(super) fn replied(&mut self, batch: &Batch, reply: CompoundRes) -> Feedback {
        let status = reply.status;
        if reply.results.is_empty() && !status.is_ok() {
            return self.refused(batch, status);
        }
        let mut feedback = Feedback::GoOn;
        let mut results = reply.results.into_iter().peekable();
        let mut again = Vec::new();
        let mut stopped = false;
        for &(id, ops) in &batch.members {
            if stopped || results.peek().is_none() {
                stopped = true;
                again.push(id);
                continue;
            }
            let mine: Vec<ResOp> = results.by_ref().take(ops).collect();
            let failed = mine.last().map(|r| r.status).filter(|s| !s.is_ok());
            match failed {
                None if mine.len() == ops => self.executed(id, &mine),
                // Fewer results than operations and no error: no telling.
                None => {
                    self.make_slow(id);
                    again.push(id);
                }
                Some(NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE) => {
                    feedback = Feedback::Pause;
                    self.partly(id, &mine);
                    again.push(id);
                }
                Some(status) => {
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
        for id in again.into_iter().rev() {
            self.ready.push_front(id);
        }
        feedback
    }

    /// The batch was not executed.
    pub(super) fn refused(&mut self, batch: &Batch, status: NfsStat) -> Feedback {
        let learnt = self.learn(batch, status);
        for (id, _) in batch.members.iter().rev() {
            if !learnt || batch.members.len() == 1 {
                self.make_slow(*id);
            }
            self.ready.push_front(*id);
        }
        if learnt { Feedback::GoOn } else { Feedback::Pause }
    }

    /// Whether the batch was executed is not known: each of its items is looked at one by one.
    pub(super) fn lost(&mut self, batch: &Batch) {
        for (id, _) in batch.members.iter().rev() {
            if let Some(item) = self.item_mut(*id) {
                item.slow = true;
                // A directory that exists is no harm, anything else may be half made by us. What cannot be
                // told from a file that is to be kept is left alone.
                let (dir, is_dir) = (item.dir, item.child.is_some());
                let ours = self.existing != Existing::Keep || self.tree.dir(dir).all_known;
                if let Some(item) = self.item_mut(*id) {
                    item.replace |= ours && !is_dir;
                }
            }
            self.ready.push_front(*id);
        }
    }

    /// Makes later compounds smaller, if `status` says that this one was too large.
    fn learn(&mut self, batch: &Batch, status: NfsStat) -> bool {
        let c = &mut self.capacity;
        match status {
            NfsStat::NFS4ERR_TOO_MANY_OPS | NfsStat::NFS4ERR_RESOURCE => {
                c.ops = c.ops.min((batch.ops / 2 + 1).max(crate::limits::OPS_MIN as usize));
            }
            NfsStat::NFS4ERR_REQ_TOO_BIG | NfsStat::NFS4ERR_BADXDR => {
                c.request = c.request.min(super::pack::REQUEST_HEAD + batch.body.len() / 2);
            }
            NfsStat::NFS4ERR_REP_TOO_BIG => {
                c.reply = c.reply.min((batch.reply / 2).max(super::pack::REPLY_HEAD));
            }
            NfsStat::NFS4ERR_REP_TOO_BIG_TO_CACHE => {
                c.reply_cached = c.reply_cached.min(batch.reply / 2);
            }
            _ => return false,
        }
        true
    }

    /// All operations of an item succeeded: what did they say?
    fn executed(&mut self, id: ItemId, results: &[ResOp]) {
        let Some(item) = self.items[id.0 as usize].as_mut() else { return };
        let Some(job) = &item.job else { return };
        let mut handle = None;
        let mut missing = landfast_nfs::v4::Bitmap::default();
        let mut written = true;
        for r in results {
            match &r.body {
                ResBody::Open(open) => missing = job.attrs.create.mask.minus(&open.attrset),
                ResBody::Create(create) => missing = job.attrs.create.mask.minus(&create.attrset),
                ResBody::Getfh(fh) => handle = Some(fh.clone()),
                ResBody::Write(w) => {
                    let Make::File(data) = &job.make else { continue };
                    written = w.count as usize == data.len() && w.committed == StableHow::FileSync;
                }
                _ => {}
            }
        }
        if !written {
            // A short write, or one that is not stable: all over again.
            (item.slow, item.replace) = (true, true);
            return self.ready.push_front(id);
        }
        if let Some(child) = item.child {
            let Some(fh) = handle else { return self.fail(id, "the server gave no filehandle".into()) };
            // What was not set at creation is set at the end for a directory that the archive names.
            self.tree.dir_mut(child).state = DirState::Open(fh);
            self.wake(child);
            return self.done(id);
        }
        if let (false, false, Some(fh)) = (missing.is_empty(), item.merged, handle) {
            self.attrs_again = true;
            let all = merge(&job.attrs.create, &job.attrs.finish);
            item.leftover = Leftover::Incomplete(fh, all);
            item.slow = true;
            return self.ready.push_front(id);
        }
        self.done(id);
    }

    /// An item's operations stopped half way: what is left of them?
    fn partly(&mut self, id: ItemId, results: &[ResOp]) {
        let Some(item) = self.item_mut(id) else { return };
        let mut opened = None;
        for r in results.iter().filter(|r| r.status.is_ok()) {
            match &r.body {
                ResBody::Open(open) => opened = Some((open.stateid, None)),
                ResBody::Getfh(fh) => {
                    if let Some((_, place @ None)) = &mut opened {
                        *place = Some(fh.clone());
                    }
                }
                ResBody::Remove(_) => item.replace = false,
                ResBody::Create(_) => {
                    // Made, but not finished.
                    item.replace = item.child.is_none();
                    item.slow = true;
                }
                _ => {}
            }
        }
        if let Some((stateid, fh)) = opened {
            (item.slow, item.replace) = (true, true);
            if let Some(fh) = fh {
                item.leftover = Leftover::Opened(fh, stateid);
            }
        }
    }

    fn make_slow(&mut self, id: ItemId) {
        if let Some(item) = self.item_mut(id) {
            item.slow = true;
        }
    }

    fn done(&mut self, id: ItemId) {
        self.close(id, Ok(()));
    }

    fn fail(&mut self, id: ItemId, why: String) {
        self.close(id, Err(why));
    }

    /// Settles an item and lets go on what waited for it.
    fn close(&mut self, id: ItemId, result: Result<(), String>) {
        let Some(item) = self.items[id.0 as usize].take() else { return };
        self.free.push(id);
        match (item.child, &result) {
            (None, _) => {
                // Also after a failure the name may exist.
                self.tree.dir_mut(item.dir).names.insert(item.name.clone(), Name::Other);
            }
            (Some(child), Err(why)) => {
                self.tree.dir_mut(child).state =
                    DirState::Failed(format!("its directory was not made: {why}"));
                self.wake(child);
            }
            (Some(_), Ok(())) => {}
        }
        if let Some((dir, name)) = item.target
            && let Some(place) = self.tree.dir_mut(dir).names.get_mut(&name)
            && let Name::Pinned { links, .. } = place
        {
            *links -= 1;
            if *links == 0 {
                *place = Name::Other;
            }
        }
        let parked = self.behind_items.remove(&id).unwrap_or_default();
        if let Some(job) = item.job {
            self.settle(job, result, item.implied);
        }
        self.unpark(parked, Some((item.dir, item.name)));
    }

    fn settle(&mut self, job: Job<P>, result: Result<(), String>, implied: bool) {
        self.open -= 1;
        self.settled.push(Settled { job, result, implied });
    }

    fn new_item(&mut self, item: Item<P>) -> ItemId {
        match self.free.pop() {
            Some(id) => {
                self.items[id.0 as usize] = Some(item);
                id
            }
            None => {
                self.items.push(Some(item));
                ItemId(self.items.len() as u32 - 1)
            }
        }
    }

    fn item(&self, id: ItemId) -> Option<&Item<P>> {
        self.items.get(id.0 as usize)?.as_ref()
    }

    fn item_mut(&mut self, id: ItemId) -> Option<&mut Item<P>> {
        self.items.get_mut(id.0 as usize)?.as_mut()
    }

    /// What directories get at the very end, deepest first: handle, attributes, name in the archive.
    pub(super) fn take_finals(&mut self) -> Vec<(FileHandle, Fattr, Vec<u8>)> {
        let mut all = Vec::new();
        for id in self.tree.ids() {
            let depth = self.tree.depth(id);
            let dir = self.tree.dir_mut(id);
            if let (Some((attrs, shown)), Some(fh)) = (dir.finish.take(), dir.fh())
                && !attrs.mask.is_empty()
            {
                all.push((depth, (fh.clone(), attrs, shown)));
            }
        }
        all.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
        all.into_iter().map(|(_, f)| f).collect()
    }

    /// Nothing more will be done: what is open fails with `why`.
    pub(super) fn abandon(&mut self, why: &str) {
        for item in self.items.iter_mut() {
            if let Some(job) = item.take().and_then(|i| i.job) {
                self.settled.push(Settled { job, result: Err(why.to_owned()), implied: false });
                self.open = self.open.saturating_sub(1);
            }
        }
        let parked = std::mem::take(&mut self.behind_items).into_values();
        let parked: Vec<_> =
            parked.chain(std::mem::take(&mut self.behind_listings).into_values()).flatten().collect();
        for p in parked {
            if let Parked::Job(job) = p {
                self.settled.push(Settled { job, result: Err(why.to_owned()), implied: false });
                self.open = self.open.saturating_sub(1);
            }
        }
        (self.ready, self.slow) = (VecDeque::new(), VecDeque::new());
    }
}

/// Why an item cannot be packed now.
#[derive(Debug)]
enum Obstacle {
    Wait(DirId),
    Failed(String),
}
