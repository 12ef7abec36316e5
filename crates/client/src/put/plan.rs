//! Plans the members of an extraction: what to make, in which order, and what became of it. No I/O: members and
//! replies go in, compounds come out.
//!
//! | where an item is | until |
//! |---|---|
//! | `ready`, directories first, otherwise in the archive's order | it is packed, or has to wait for a directory's handle |
//! | held by a directory that is being made | the directory has a handle, or failed |
//! | parked behind another item on the same path, or a listing | that is done |
//! | held | the links made before it are in the journal |
//! | in a batch | its reply |
//! | slow: one operation at a time, or in pieces | its outcome |
//!
//! Invariants:
//! - A path is busy with one item at a time. The next item for it starts when that one is done, in the archive's
//!   order.
//! - Every member that was added is settled exactly once.
//! - An item is settled as done only after the server has confirmed each of its operations.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use landfast_nfs::v4::args::CreateType;
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{Fattr, FileHandle, FileType, NfsTime, Stateid};

use super::attrs::{MemberAttrs, merge};
use super::attrs::{has_set_id, without_its_owner};
use super::dir_record::DirRecord;
use super::existing::{Existing, ExistingObject, NewKind, Over, Verdict, When};
use super::names::Name;
use super::ownership::Ownership;
use super::pack::{Batch, Capacity, Mark, Packer, Parts, Piece, Route};
use super::report::{Cause, MemberError};
use super::tree::{Dir, DirId, DirState, ItemId, ROOT, Tree, Walk};
use crate::archive::components;
use crate::compound::detached;
use crate::fs::Original;
use crate::fs::Xattr;
use crate::limits;
use crate::ops::Entry;
use crate::overflow::OverflowError;

#[derive(Debug, Clone)]
pub(super) enum Make {
    Dir,
    File(Bytes),
    /// A file that comes in pieces; its size in bytes.
    Pieces(u64),
    Copy(Box<Original>),
    Other(CreateType),
    /// A hard link to this path.
    Link(Vec<Bytes>),
}

/// Memory for the next compounds. Without it each would grow by copies, into memory that the process does not have yet.
#[derive(Debug, Default)]
struct Bodies {
    spare: Vec<BytesMut>,
    last_bytes: usize,
}

impl Bodies {
    fn take(&mut self) -> BytesMut {
        // A little more than the last one: the members of an archive resemble each other.
        let room = self.last_bytes + self.last_bytes / 8;
        self.spare.pop().unwrap_or_else(|| BytesMut::with_capacity(room))
    }

    fn put(&mut self, body: Bytes) {
        if self.spare.len() < limits::BODIES_KEPT
            && let Ok(mut body) = body.try_into_mut()
        {
            body.clear();
            self.spare.push(body);
        }
    }
}

/// A member to extract. `P` is kept unchanged until the member is settled.
#[derive(Debug)]
pub(super) struct Job<P> {
    /// Its name in the archive.
    pub(super) shown: Vec<u8>,
    /// Its place below the destination.
    pub(super) path: Vec<Bytes>,
    pub(super) make: Make,
    pub(super) attrs: MemberAttrs,
    /// When the source was modified.
    pub(super) modified: NfsTime,
    /// A directory that an earlier run made.
    pub(super) ours: bool,
    /// It may replace an existing object. See [`When::Agreed`].
    pub(super) agreed: bool,
    /// It was sent early, under this number.
    pub(super) sent: Option<u32>,
    pub(super) payload: P,
}

impl<P> Job<P> {
    /// The kind of object, as the rules for existing names see it.
    pub(super) fn new_kind(&self) -> NewKind {
        match self.make {
            Make::Dir => NewKind::Dir,
            Make::File(_) | Make::Pieces(_) | Make::Copy(_) => NewKind::File,
            Make::Other(_) | Make::Link(_) => NewKind::Other,
        }
    }
}

impl<P> Job<P> {
    /// Whether it is the object that has its name already.
    pub(super) fn is_same_file(&self, found: &ExistingObject) -> bool {
        matches!(&self.make, Make::Copy(original) if found.id == Some((original.fsid, original.fileid)))
    }

    /// It needs requests of its own, whatever has its name.
    fn needs_own_requests(&self) -> bool {
        match &self.make {
            Make::Pieces(_) => true,
            Make::Copy(original) => original.alone(),
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Success {
    Made,
    /// A directory that existed already.
    Existed,
    /// The existing object stays, as asked.
    Skipped,
}

/// The final attributes of a directory. They are set when nothing more is put into it.
#[derive(Debug, Clone)]
pub(super) struct Final {
    pub(super) fh: FileHandle,
    pub(super) attrs: Fattr,
    pub(super) xattrs: Vec<Xattr>,
    /// Its name in the archive.
    pub(super) shown: Vec<u8>,
}

/// The outcome of a member.
#[derive(Debug)]
pub(super) struct Settled<P> {
    pub(super) job: Job<P>,
    pub(super) result: Result<Success, MemberError>,
    /// A directory that the archive did not name.
    pub(super) implied: bool,
}

/// How far a slow item's file has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Leftover {
    Nothing,
    /// Made, but left open.
    Opened(FileHandle, Stateid),
    /// Made and complete, but for these attributes.
    Incomplete(FileHandle, Fattr),
}

/// An item that is extracted one operation at a time.
#[derive(Debug)]
pub(super) struct SlowTask<P> {
    pub(super) id: ItemId,
    pub(super) dir: FileHandle,
    pub(super) name: Bytes,
    /// A hard link's target: a directory, and the names from there.
    pub(super) target: Option<(FileHandle, Vec<Bytes>)>,
    pub(super) job: Job<P>,
    /// The name exists, or may exist, and must be removed first.
    pub(super) replace: bool,
    /// It is known that the existing name has exactly this spelling.
    pub(super) exact_spelling: bool,
    /// A directory that the archive does not name. It replaces nothing.
    pub(super) implied: bool,
    /// The server has changed something for it before, or may have.
    pub(super) begun: bool,
    /// What has a name in the directory is known.
    pub(super) names_known: bool,
    pub(super) leftover: Leftover,
}

/// The outcome of a slow item.
#[derive(Debug)]
pub(super) enum SlowDone {
    Done,
    Dir(FileHandle, bool),
    /// Not made: something that is not a directory has the name, and stays.
    InTheWay,
    /// The same, as asked.
    Skipped,
    Failed(MemberError),
}

pub(super) struct Item<P> {
    pub(super) job: Option<Job<P>>,
    pub(super) dir: DirId,
    pub(super) name: Bytes,
    pub(super) replace: bool,
    /// It is known that the existing name has exactly this spelling.
    pub(super) exact_spelling: bool,
    pub(super) child: Option<DirId>,
    /// A hard link's target: a directory, and the names from there.
    pub(super) target: Option<(DirId, Vec<Bytes>)>,
    pub(super) implied: bool,
    pub(super) slow: bool,
    /// Packed so that all its attributes are set at the end.
    pub(super) merged: bool,
    /// Its set-ID bits are still to be set.
    pub(super) bits_wait: bool,
    /// Something was sent to the server for it.
    pub(super) sent: bool,
    /// The server has changed something for it, or may have.
    pub(super) begun: bool,
    /// The reply was lost. What has the name now was made for it, because nothing had the name before.
    pub(super) made_if_there: bool,
    /// The sum of the pauses after the server refused it for the moment.
    pub(super) waited: Duration,
    /// Hard links that were made before it was planned.
    after_links: u64,
    pub(super) leftover: Leftover,
}

#[expect(clippy::large_enum_variant, reason = "nearly all are jobs")]
enum Parked<P> {
    /// A member whose path could not be followed yet.
    Job(Job<P>),
    /// A hard link whose target is not there yet.
    Link(ItemId),
}

/// Items that could be packed. Directories go first: their contents can then go in any compound, and wait no longer
/// than necessary.
#[derive(Default)]
struct Ready {
    dirs: VecDeque<ItemId>,
    others: VecDeque<ItemId>,
}

impl Ready {
    fn pop(&mut self) -> Option<ItemId> {
        self.dirs.pop_front().or_else(|| self.others.pop_front())
    }

    fn front(&self) -> Option<&ItemId> {
        self.dirs.front().or_else(|| self.others.front())
    }
}

pub(super) struct Plan<P> {
    pub(super) existing: Existing,
    implied_attrs: Fattr,
    pub(super) tree: Tree,
    pub(super) items: Vec<Option<Item<P>>>,
    free: Vec<ItemId>,
    ready: Ready,
    slow: VecDeque<ItemId>,
    /// Members that follow an unplanned hard link in the archive. They wait because the link might change its target.
    behind_link: VecDeque<Job<P>>,
    link_unplanned: bool,
    behind_items: HashMap<ItemId, VecDeque<Parked<P>>>,
    behind_dirs: HashMap<DirId, VecDeque<Parked<P>>>,
    settled: Vec<Settled<P>>,
    pub(super) capacity: Capacity,
    next_batch: u64,
    bodies: Bodies,
    /// The server ignores attributes at creation: set them again at the end.
    pub(super) attrs_again: bool,
    /// The server creates objects with another owner than asked. Such objects get their set-ID bits only after the
    /// owner is set.
    pub(super) owners_again: bool,
    /// Which owners the server sets at creation.
    pub(super) ownership: Ownership,
    /// Members that were added and are not settled.
    open: usize,
    ended: bool,
    /// Directories that get no more entries, and can have their final attributes.
    quiet: Vec<DirId>,
    /// Members that were sent before they were planned, by number. `None`: settled otherwise.
    sent: HashMap<u32, Option<ItemId>>,
    /// There is a journal, and a later run goes by it ([`Plan::unjournalled_links`]).
    pub(super) journalled: bool,
    /// Hard links that were made, and how many of them are known to be in the journal.
    links: (u64, u64),
    /// Items that wait for the others.
    held: Vec<ItemId>,
    /// A member was refused for [`limits::DELAY_PATIENCE`], and nothing has been executed since.
    pub(super) impatient: bool,
}

impl<P: Default> Plan<P> {
    pub(super) fn new(tree: Tree, existing: Existing, implied_attrs: Fattr, capacity: Capacity) -> Plan<P> {
        Plan {
            existing,
            implied_attrs,
            tree,
            items: Vec::new(),
            free: Vec::new(),
            ready: Ready::default(),
            slow: VecDeque::new(),
            behind_link: VecDeque::new(),
            link_unplanned: false,
            behind_items: HashMap::new(),
            behind_dirs: HashMap::new(),
            settled: Vec::new(),
            capacity,
            next_batch: 1,
            bodies: Bodies::default(),
            attrs_again: false,
            owners_again: false,
            ownership: Ownership::default(),
            open: 0,
            ended: false,
            quiet: Vec::new(),
            sent: HashMap::new(),
            journalled: false,
            links: (0, 0),
            held: Vec::new(),
            impatient: false,
        }
    }

    /// How GNU cp treats existing names, if that is what was asked for.
    fn over(&self) -> Option<Over> {
        match self.existing {
            Existing::Look(over) => Some(over),
            _ => None,
        }
    }

    /// The attributes of a new directory that an existing directory gets, too.
    fn for_existing(&self, attrs: Fattr) -> Fattr {
        self.over().map_or(attrs.clone(), |over| over.for_existing(&attrs))
    }

    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Items that could be packed. Some may turn out to have to wait.
    pub(super) fn ready(&self) -> usize {
        self.ready.dirs.len() + self.ready.others.len()
    }

    pub(super) fn capacity(&self) -> Capacity {
        self.capacity
    }

    pub(super) fn take_settled(&mut self) -> Vec<Settled<P>> {
        std::mem::take(&mut self.settled)
    }

    pub(super) fn take_listings(&mut self) -> Vec<(DirId, FileHandle)> {
        self.tree.take_wanted()
    }

    pub(super) fn add(&mut self, job: Job<P>) {
        if !self.ended {
            self.tree.make_room();
        }
        self.open += 1;
        self.behind_link.push_back(job);
        self.plan_waiting();
    }

    /// The server made a directory before anything was planned. `implied`: the archive does not name it, or names it
    /// later.
    pub(super) fn made_early(
        &mut self,
        parent: DirId,
        path: Vec<Bytes>,
        implied: bool,
        fh: FileHandle,
    ) -> DirId {
        let child = self.tree.add_new(parent, path.last().cloned().unwrap_or_default());
        self.tree.made(child, fh);
        self.tree.dir_mut(child).ahead = !implied;
        if implied {
            let job = self.implied_job(path);
            self.open += 1;
            self.settle(job, Ok(Success::Made), true);
        }
        child
    }

    /// Compounds up to this number were sent before anything was planned. They set the final attributes of these
    /// directories.
    pub(super) fn sent_early(&mut self, number: u64, finishing: impl Iterator<Item = DirId>) {
        self.next_batch = number + 1;
        finishing.for_each(|dir| self.tree.dir_mut(dir).finishing = true);
    }

    /// A compound that was sent early, with the members that its numbers stand for. `None` until all of them are
    /// planned.
    pub(super) fn planned(&self, batch: &Batch) -> Option<Batch> {
        let item = |&(ItemId(number), ops): &(ItemId, usize)| {
            Some((self.sent.get(&number)?.unwrap_or(ItemId::NONE), ops))
        };
        let members = batch.members.iter().map(item).collect::<Option<Vec<_>>>()?;
        Some(Batch { members, ..batch.clone() })
    }

    fn implied_job(&self, path: Vec<Bytes>) -> Job<P> {
        let attrs = MemberAttrs { create: self.implied_attrs.clone(), ..MemberAttrs::default() };
        let (shown, modified) = (path.join(&b'/'), NfsTime::default());
        Job {
            shown,
            path,
            make: Make::Dir,
            attrs,
            modified,
            ours: false,
            agreed: false,
            sent: None,
            payload: P::default(),
        }
    }

    pub(super) fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.quiet = self.tree.ids().into_iter().filter(|id| self.tree.dir(*id).open == 0).collect();
        }
    }

    /// Plans members in the archive's order, up to a hard link that cannot be planned yet.
    fn plan_waiting(&mut self) {
        while !self.link_unplanned
            && let Some(job) = self.behind_link.pop_front()
        {
            self.link_unplanned = matches!(job.make, Make::Link(_));
            self.plan_member(job);
        }
    }

    fn plan_member(&mut self, mut job: Job<P>) {
        let Some((name, parents)) = job.path.split_last().map(|(n, p)| (n.clone(), p.to_vec())) else {
            return self.plan_root(job);
        };
        let dir = loop {
            match self.tree.walk(&parents) {
                Walk::In(dir) => break dir,
                Walk::Wait(dir) => {
                    return self.behind_dirs.entry(dir).or_default().push_back(Parked::Job(job));
                }
                Walk::Busy(item) => {
                    return self.behind_items.entry(item).or_default().push_back(Parked::Job(job));
                }
                Walk::Missing(dir, at) => self.add_implied(dir, &parents[..=at]),
                // The caller was told what has the name.
                Walk::Blocked(_) if self.over().is_some() => {
                    return self.reject(job, MemberError::new(Cause::Parent, "its directory is none"));
                }
                Walk::Blocked(n) => {
                    let at: Vec<u8> = parents[..n].join(&b'/');
                    let why = format!("`{}` is not a directory, or is a symbolic link", at.escape_ascii());
                    return self.reject(job, why);
                }
                Walk::Failed(why) => return self.reject(job, MemberError::new(Cause::Parent, why)),
            }
        };
        let is_dir = matches!(job.make, Make::Dir);
        let (mut replace, mut look) = (false, false);
        let known = self.tree.name(dir, &name);
        if let Some(e) = self.tree.unread() {
            // Nothing is put where something may be that may not be replaced.
            let why = e.to_string();
            return self.reject(job, why);
        }
        match known {
            None => {}
            Some(Name::Busy(item)) => {
                return self.behind_items.entry(item).or_default().push_back(Parked::Job(job));
            }
            // Whether it is a directory is known only after the server has made it.
            Some(Name::Dir(id)) if matches!(self.tree.dir(id).state, DirState::Making) => {
                return self.behind_dirs.entry(id).or_default().push_back(Parked::Job(job));
            }
            Some(Name::Dir(_) | Name::Found(_)) if !is_dir => {
                if self.over().is_some_and(|over| over.when == When::Never) {
                    return self.skip(job, (dir, name));
                }
                return self.reject(job, MemberError::new(Cause::DirInTheWay, "a directory is in the way"));
            }
            Some(Name::Dir(id)) if self.tree.dir(id).ahead => {
                let dir = self.tree.dir_mut(id);
                (dir.ahead, dir.finish) = (false, Some((job.attrs.finish.clone(), job.shown.clone())));
                dir.xattrs = std::mem::take(&mut job.attrs.xattrs);
                return self.settle(job, Ok(Success::Made), false);
            }
            Some(Name::Dir(id)) => return self.plan_existing_dir(id, job),
            Some(Name::Found(fh)) => {
                let id = self.tree.adopt(dir, &name, fh);
                return self.plan_existing_dir(id, job);
            }
            Some(Name::Other | Name::Ours | Name::Pinned { .. }) if self.existing == Existing::Keep => {
                return self.reject(job, MemberError::exists());
            }
            // An earlier link in the archive leads to the object that is there now.
            Some(Name::Pinned { last, .. }) => {
                return self.behind_items.entry(last).or_default().push_back(Parked::Job(job));
            }
            Some(Name::Ours) if self.over().is_some() => {
                return self.reject(job, MemberError::new(Cause::JustMade, "this run has just made it"));
            }
            Some(Name::Other) if let Some(over) = self.over() => match self.tree.dir(dir).found.get(&name) {
                None => look = true,
                Some(found) if job.is_same_file(found) => {
                    return self.reject(job, MemberError::new(Cause::SameFile, "they are the same file"));
                }
                Some(found) => match over.judge(job.new_kind(), job.modified, job.agreed, found) {
                    Verdict::Replace => replace = true,
                    Verdict::Into => look = true,
                    Verdict::Skip => return self.skip(job, (dir, name)),
                    Verdict::Refuse(why) => return self.reject(job, why),
                },
            },
            Some(Name::Other | Name::Ours) => replace = true,
        }
        // Only the slow way looks at an existing file before it writes into it.
        let overwrite = replace && self.existing == Existing::Overwrite && job.new_kind() == NewKind::File;
        let child = is_dir.then(|| self.tree.add_new(dir, name.clone()));
        if let Some(child) = child {
            self.tree.dir_mut(child).finish =
                Some((std::mem::take(&mut job.attrs.finish), job.shown.clone()));
        }
        let is_link = matches!(job.make, Make::Link(_));
        let slow = overwrite || look || job.needs_own_requests();
        // The object that has the name now was not there when the member was sent. Send it the usual way.
        let sent = job.sent.take_if(|_| !(replace || slow || is_dir || is_link));
        let id = self.new_item(Item {
            job: Some(job),
            dir,
            name: name.clone(),
            replace,
            exact_spelling: replace || look,
            child,
            target: None,
            implied: false,
            slow,
            merged: false,
            bits_wait: false,
            sent: sent.is_some(),
            begun: sent.is_some(),
            made_if_there: false,
            waited: Duration::ZERO,
            after_links: self.links.0,
            leftover: Leftover::Nothing,
        });
        if child.is_none() {
            self.tree.set_name(dir, name, Name::Busy(id));
        }
        if is_link {
            self.link_unplanned = false;
            self.resolve_link(id);
        } else if let Some(number) = sent {
            self.sent.insert(number, Some(id));
        } else {
            self.push_ready(id);
        }
    }

    /// Settles a member without planning it.
    fn reject(&mut self, job: Job<P>, why: impl Into<MemberError>) {
        self.link_unplanned &= !matches!(job.make, Make::Link(_));
        self.settle(job, Err(why.into()), false);
    }

    /// Skips a member in favour of the existing object. A link that is not made delays nothing.
    fn skip(&mut self, job: Job<P>, at: (DirId, Bytes)) {
        let is_link = matches!(job.make, Make::Link(_));
        self.keep_existing(at, is_link);
        self.link_unplanned &= !is_link;
        self.settle(job, Ok(Success::Skipped), false);
    }

    /// The existing object stays, and is not the member: links to the member are not made to it.
    fn keep_existing(&mut self, at: (DirId, Bytes), is_link: bool) {
        if !is_link && self.over().is_some_and(|over| over.when == When::Never) {
            self.tree.keep(at.0, &at.1);
        }
    }

    /// `./`: the destination's own attributes.
    fn plan_root(&mut self, mut job: Job<P>) {
        if matches!(job.make, Make::Dir) {
            let finish = self.for_existing(std::mem::take(&mut job.attrs.finish));
            let xattrs = std::mem::take(&mut job.attrs.xattrs);
            let dir = self.tree.dir_mut(ROOT);
            (dir.finish, dir.xattrs) = (Some((finish, job.shown.clone())), xattrs);
            self.settle(job, Ok(Success::Existed), false);
        } else {
            self.reject(job, MemberError::new(Cause::DirInTheWay, "a directory is in the way"));
        }
    }

    /// A member for a directory that exists: only its attributes count.
    fn plan_existing_dir(&mut self, id: DirId, mut job: Job<P>) {
        let finish = std::mem::take(&mut job.attrs.finish);
        let finish = if self.is_ours(id, job.ours) { finish } else { self.for_existing(finish) };
        let dir = self.tree.dir_mut(id);
        if let DirState::Failed(why) = &dir.state {
            let why = MemberError::new(Cause::Parent, why.clone());
            return self.reject(job, why);
        }
        // A directory that was made before the archive named it gets the archive's attributes when it is named.
        if self.existing != Existing::Keep || dir.all_known {
            dir.finish = Some((finish, job.shown.clone()));
            dir.xattrs = std::mem::take(&mut job.attrs.xattrs);
        }
        self.settle(job, Ok(Success::Existed), false);
    }

    /// Whether this run or an earlier one made an existing directory. `made`: it is known, as from the journal. Its contents were
    /// then made by these runs as well, even if the journal does not list them.
    fn is_ours(&mut self, id: DirId, made: bool) -> bool {
        let parent = self.tree.dir(id).parent;
        let ours = made || (id != ROOT && self.tree.dir(parent).ours);
        self.tree.dir_mut(id).ours |= ours;
        ours
    }

    /// Adds a directory at `path`, missing in `parent`, that the archive does not name.
    fn add_implied(&mut self, parent: DirId, path: &[Bytes]) {
        let Some(name) = path.last().cloned() else { return };
        let child = self.tree.add_new(parent, name.clone());
        let job = self.implied_job(path.to_vec());
        self.open += 1;
        let id = self.new_item(Item {
            job: Some(job),
            dir: parent,
            name,
            replace: false,
            exact_spelling: false,
            child: Some(child),
            target: None,
            implied: true,
            slow: false,
            merged: false,
            bits_wait: false,
            sent: false,
            begun: false,
            made_if_there: false,
            waited: Duration::ZERO,
            after_links: self.links.0,
            leftover: Leftover::Nothing,
        });
        self.push_ready(id);
    }

    /// Finds a hard link's target, or what the link has to wait for.
    fn resolve_link(&mut self, id: ItemId) {
        let Some(Item { job: Some(Job { make: Make::Link(path), .. }), .. }) = self.item(id) else { return };
        let path = path.clone();
        let Some((_, parents)) = path.split_last() else {
            return self.fail(id, "hard link to the destination itself");
        };
        let missing = || format!("hard link to `{}`: no such file", path.join(&b'/').escape_ascii());
        let (dir, rest) = match self.tree.walk(parents) {
            Walk::In(dir) => (dir, &path[parents.len()..]),
            Walk::Wait(dir) => return self.behind_dirs.entry(dir).or_default().push_back(Parked::Link(id)),
            Walk::Busy(item) if item == id => return self.fail(id, missing()),
            Walk::Busy(item) => {
                return self.behind_items.entry(item).or_default().push_back(Parked::Link(id));
            }
            // LOOKUP follows no symbolic links, so what it finds below a known directory is safe to use.
            Walk::Missing(dir, at) if !self.tree.dir(dir).all_known => (dir, &path[at..]),
            Walk::Missing(..) => return self.fail(id, missing()),
            Walk::Blocked(_) => {
                return self
                    .fail(id, format!("{} (not a directory, or a symbolic link, in the way)", missing()));
            }
            // The link is not below that directory, so nobody else says that it is missing.
            Walk::Failed(_) => return self.fail(id, MemberError::link_to_failed(&path.join(&b'/'))),
        };
        let Some(name) = rest.first() else { return self.fail(id, missing()) };
        if self.tree.is_kept(dir, name) {
            return self.fail(id, MemberError::left_out(&path.join(&b'/')));
        }
        let known = self.tree.name(dir, name);
        // A later member of this name may be under way.
        let in_progress = matches!(known, Some(Name::Busy(item)) if item != id);
        if !in_progress && self.tree.has_failed(&path) {
            return self.fail(id, MemberError::link_to_failed(&path.join(&b'/')));
        }
        if let Some(e) = self.tree.unread() {
            let why = e.to_string();
            return self.fail(id, why);
        }
        match known {
            // A link to itself: it exists already, or never will.
            Some(Name::Busy(item)) if item == id => {
                let exists = self.item(id).is_some_and(|i| i.replace);
                return if exists { self.done(id) } else { self.fail(id, missing()) };
            }
            Some(Name::Busy(item)) => {
                return self.behind_items.entry(item).or_default().push_back(Parked::Link(id));
            }
            Some(Name::Dir(dir)) if matches!(self.tree.dir(dir).state, DirState::Making) => {
                return self.behind_dirs.entry(dir).or_default().push_back(Parked::Link(id));
            }
            Some(Name::Dir(_) | Name::Found(_)) => return self.fail(id, "hard link to a directory"),
            // Another item waits to replace the target. It goes first; this link waits behind it.
            Some(Name::Pinned { last, .. }) if self.behind_items.contains_key(&last) => {
                return self.behind_items.entry(last).or_default().push_back(Parked::Link(id));
            }
            Some(Name::Other | Name::Ours | Name::Pinned { .. }) => {}
            None if self.tree.dir(dir).all_known => return self.fail(id, missing()),
            None => {}
        }
        // Pin the target: it is not replaced before the link exists. A target that may not exist is not touched.
        let pinned = match known {
            Some(Name::Pinned { links, .. }) => Name::Pinned { links: links + 1, last: id },
            Some(_) => Name::Pinned { links: 1, last: id },
            None => Name::Busy(id),
        };
        self.tree.set_name(dir, name.clone(), pinned);
        if let Some(item) = self.item_mut(id) {
            item.target = Some((dir, rest.to_vec()));
        }
        self.push_ready(id);
    }

    /// Takes a directory's entries; `None` when they cannot all be known.
    pub(super) fn listed(&mut self, id: DirId, entries: Option<Vec<Entry>>) {
        let looks = self.over().is_some();
        let dir = self.tree.dir_mut(id);
        let DirState::Listing(fh) = &dir.state else { return };
        dir.state = DirState::Open(fh.clone());
        (dir.all_known, dir.listed) = (entries.is_some(), entries.is_some());
        let mut in_progress = Vec::new();
        for e in entries.unwrap_or_default() {
            if let Some(Name::Busy(item)) = self.tree.in_progress(id, &e.name) {
                in_progress.push(*item);
            }
            if self.tree.has(id, &e.name) {
                continue;
            }
            let dir = self.tree.dir_mut(id);
            if let (true, Some(found)) = (looks, ExistingObject::of(&e.attrs))
                && found.kind != FileType::Dir
            {
                dir.found.insert(Bytes::copy_from_slice(&e.name), found);
            }
            let name = match (e.attrs.kind, e.attrs.filehandle) {
                (Some(FileType::Dir), Some(fh)) => Name::Found(detached(&fh)),
                // The server does not tell the type. Find out by trying.
                (None, _) | (Some(FileType::Dir), None) => {
                    dir.all_known = false;
                    continue;
                }
                _ => Name::Other,
            };
            self.tree.set_name(id, Bytes::copy_from_slice(&e.name), name);
        }
        // These were planned for an empty directory. They go the slow way instead.
        for item in in_progress {
            if let Some(item) = self.item_mut(item)
                && item.dir == id
            {
                item.slow = true;
            }
        }
        self.unpark_dir(id);
    }

    /// A directory is open or has failed: continues what waited for it, in order.
    pub(super) fn unpark_dir(&mut self, id: DirId) {
        for item in std::mem::take(&mut self.tree.dir_mut(id).waiting).into_iter().rev() {
            self.push_first(item);
        }
        let parked = self.behind_dirs.remove(&id).unwrap_or_default();
        self.unpark(parked, None);
    }

    /// Continues parked work in its order. If the first item makes `name` busy again, the others stay parked.
    fn unpark(&mut self, mut parked: VecDeque<Parked<P>>, name: Option<(DirId, Bytes)>) {
        while let Some(p) = parked.pop_front() {
            match p {
                Parked::Job(job) => self.plan_member(job),
                Parked::Link(id) => self.resolve_link(id),
            }
            if let Some((dir, name)) = &name
                && let Some(Name::Busy(item)) = self.tree.in_progress(*dir, name)
            {
                let behind = self.behind_items.entry(*item).or_default();
                parked.extend(behind.drain(..));
                *behind = parked;
                break;
            }
        }
        self.plan_waiting();
    }

    fn push_ready(&mut self, id: ItemId) {
        self.queue(id).push_back(id);
    }

    /// Puts an item before those that are ready already.
    pub(super) fn push_first(&mut self, id: ItemId) {
        self.queue(id).push_front(id);
    }

    fn queue(&mut self, id: ItemId) -> &mut VecDeque<ItemId> {
        match self.item(id).is_some_and(|item| item.child.is_some()) {
            true => &mut self.ready.dirs,
            false => &mut self.ready.others,
        }
    }

    /// How many hard links were made, if items wait until the journal has them. A later run makes a link again that is not in
    /// the journal. If its target had been replaced by then, the link would lead to what replaced it.
    pub(super) fn unjournalled_links(&self) -> Option<u64> {
        (!self.held.is_empty()).then_some(self.links.0)
    }

    /// So many links are in the journal.
    pub(super) fn links_journalled(&mut self, links: u64) {
        self.links.1 = self.links.1.max(links);
        for id in std::mem::take(&mut self.held).into_iter().rev() {
            self.push_first(id);
        }
    }

    /// Packs as many ready items as fit into a compound; `None` when none is ready.
    pub(super) fn next_batch(&mut self) -> Option<Batch> {
        let mut packer = Packer::new(self.capacity, self.next_batch).into_body(self.bodies.take());
        self.next_batch += 1;
        // The directory that is being filled, and where it began if the compound held much before it.
        let mut filling: Option<(DirId, Option<Mark>)> = None;
        while !packer.is_full() {
            let Some(id) = self.ready.pop() else { break };
            let Some(item) = self.items.get(id.0 as usize).and_then(Option::as_ref) else { continue };
            if self.journalled && item.replace && item.after_links > self.links.1 {
                self.held.push(id);
                continue;
            }
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
                    self.tree.dir_mut(dir).waiting.push(id);
                    continue;
                }
                Some(Obstacle::Failed(why)) => {
                    self.fail(id, MemberError::new(Cause::Parent, why));
                    continue;
                }
                None => {}
            }
            let [Some(at), target] = routes else { continue };
            // The server has refused to copy meanwhile: do not ask it again.
            if item.slow || item.job.as_ref().is_some_and(Job::needs_own_requests) {
                // This needs handles of its own. A directory that is made in this same compound has none yet.
                match [Some(&at), target.as_ref()].into_iter().flatten().find(|r| !r.names.is_empty()) {
                    Some(route) => self.tree.dir_mut(route.dir).waiting.push(id),
                    None => self.slow.push_back(id),
                }
                continue;
            }
            let stay = self.ready.front().and_then(|n| self.item(*n)).is_some_and(|n| n.dir == item.dir);
            let Some(job) = &item.job else { continue };
            let parts = match (&job.make, target, &item.target, item.child) {
                (Make::Dir, _, _, Some(child)) => Parts::Dir(child),
                (Make::File(data), ..) => Parts::File(data),
                (Make::Copy(original), ..) => Parts::Copy(original),
                (Make::Other(kind), ..) => Parts::Other(kind.clone()),
                (Make::Link(_), Some(route), Some((_, names)), _) => Parts::Link(route, names),
                _ => continue,
            };
            let again = match (item.child, self.attrs_again, self.owners_again) {
                (None, true, _) => Some(merge(&job.attrs.create, &job.attrs.finish)),
                (None, false, true) => Some(without_its_owner(&job.attrs.finish)),
                _ => None,
            };
            let piece = Piece {
                at,
                name: &item.name,
                replace: item.replace,
                create: &job.attrs.create,
                xattrs: &job.attrs.xattrs,
                finish: again.as_ref().unwrap_or(&job.attrs.finish),
                look: self.ownership.is_unknown(&job.attrs.create),
                parts,
                stay,
            };
            let child = item.child;
            let begins = child.is_none() && filling.is_none_or(|(dir, _)| dir != item.dir);
            let (dir, mark) = (item.dir, (begins && packer.is_half_full()).then(|| packer.mark()));
            if packer.add(id, &piece) {
                if begins {
                    filling = Some((dir, mark));
                }
                if let Some(child) = child {
                    self.tree.dir_mut(child).in_batch = packer.number();
                }
            } else if packer.is_empty() {
                // Does not fit into an empty compound either.
                self.make_slow(id);
                self.push_first(id);
            } else {
                self.push_first(id);
                break;
            }
        }
        // A directory that does not fit as a whole goes into the next compound, which can then finish it.
        if let (true, Some((dir, Some(mark)))) = (self.ended, filling)
            && self.ready.front().and_then(|next| self.item(*next)).is_some_and(|next| next.dir == dir)
        {
            for id in packer.back_to(mark).into_iter().rev() {
                self.push_first(id);
            }
        }
        if packer.is_empty() {
            return None;
        }
        for (id, _) in packer.members() {
            if let Some(item) = self.items[id.0 as usize].as_mut() {
                (item.merged, item.sent) = (self.attrs_again && item.child.is_none(), true);
                item.bits_wait = self.owners_again
                    && !item.merged
                    && item.job.as_ref().is_some_and(|job| has_set_id(&job.attrs.finish));
            }
        }
        self.finish_with(&mut packer);
        let batch = packer.finish();
        self.bodies.last_bytes = batch.body.len();
        Some(batch)
    }

    /// Takes back the memory of a compound that has been answered.
    pub(super) fn recycle(&mut self, body: Bytes) {
        self.bodies.put(body);
    }

    /// Sets final attributes of directories in this compound. These directories get no more entries: their contents
    /// are settled, or are in this compound.
    fn finish_with(&mut self, packer: &mut Packer) {
        let parked =
            self.behind_items.values().chain(self.behind_dirs.values()).any(|queue| !queue.is_empty());
        if !self.ended || parked || !self.behind_link.is_empty() {
            return;
        }
        let mut with: HashMap<DirId, usize> = HashMap::new();
        for (id, _) in packer.members() {
            if let Some(item) = self.item(*id) {
                *with.entry(item.dir).or_default() += 1;
            }
        }
        let quiet = std::mem::take(&mut self.quiet);
        for dir in &quiet {
            with.entry(*dir).or_default();
        }
        let mut whole: Vec<DirId> = with
            .into_iter()
            .filter(|(dir, items)| self.tree.dir(*dir).open == *items)
            .map(|(dir, _)| dir)
            .collect();
        whole.sort_unstable_by_key(|dir| dir.0);
        for id in whole {
            let dir = self.tree.dir(id);
            let Some((attrs, _)) = dir.finish.as_ref().filter(|_| !dir.finishing && dir.xattrs.is_empty())
            else {
                continue;
            };
            if attrs.mask.is_empty() || !leaves_open(attrs) {
                continue;
            }
            let attrs = attrs.clone();
            if let Ok(route) = self.route(id, packer.number()) {
                packer.finish_dir(&route, &attrs);
            }
        }
        for (id, _) in packer.finished() {
            self.tree.dir_mut(*id).finishing = true;
        }
        // What did not fit here may fit in the next compound.
        let waits = |dir: &Dir| !dir.finishing && dir.open == 0 && dir.finish.is_some();
        self.quiet = quiet.into_iter().filter(|id| waits(self.tree.dir(*id))).collect();
    }

    /// Notes which of the directories of a batch got their final attributes: the first `done`.
    pub(super) fn finished(&mut self, batch: &Batch, done: usize) {
        for (i, (id, _)) in batch.finished.iter().enumerate() {
            let dir = self.tree.dir_mut(*id);
            dir.finishing = false;
            // If another member is put into it after all, its attributes are set again.
            if i < done && dir.open == 0 {
                dir.finish = None;
            }
        }
    }

    fn route(&self, dir: DirId, number: u64) -> Result<Route, Obstacle> {
        let (mut at, mut names, mut wait) = (dir, Vec::new(), None);
        loop {
            let d = self.tree.dir(at);
            match &d.state {
                DirState::Open(fh) | DirState::Unlisted(fh) => {
                    names.reverse();
                    return match wait {
                        Some(dir) => Err(Obstacle::Wait(dir)),
                        None => Ok(Route { dir, from: Some(fh.clone()), names }),
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

    /// The next item that goes the slow way. Its job is handed over.
    pub(super) fn next_slow(&mut self) -> Option<SlowTask<P>> {
        while let Some(id) = self.slow.pop_front() {
            let Some(item) = self.items[id.0 as usize].as_mut() else { continue };
            let Some(dir) = self.tree.dir(item.dir).fh().cloned() else { continue };
            let target = match &item.target {
                None => None,
                Some((dir, names)) => self.tree.dir(*dir).fh().cloned().map(|fh| (fh, names.clone())),
            };
            let Some(job) = item.job.take() else { continue };
            item.sent = true;
            return Some(SlowTask {
                id,
                dir,
                name: item.name.clone(),
                target,
                job,
                replace: item.replace,
                exact_spelling: item.exact_spelling,
                implied: item.implied,
                begun: item.begun,
                names_known: self.tree.dir(item.dir).all_known,
                leftover: std::mem::replace(&mut item.leftover, Leftover::Nothing),
            });
        }
        None
    }

    pub(super) fn slow_done(&mut self, id: ItemId, job: Job<P>, outcome: SlowDone) {
        let (made_earlier, is_link) = (job.ours, matches!(job.make, Make::Link(_)));
        let (child, made_now) = match self.item_mut(id) {
            Some(item) => {
                item.job = Some(job);
                (item.child, item.made_if_there)
            }
            // Abandoned meanwhile.
            None => return self.settle(job, Err("not finished".into()), false),
        };
        match (outcome, child) {
            (SlowDone::Failed(why), _) => self.fail(id, why),
            (SlowDone::Skipped, _) => {
                if let Some((dir, name)) = self.item(id).map(|i| (i.dir, i.name.clone())) {
                    self.tree.set_name(dir, name.clone(), Name::Other);
                    self.keep_existing((dir, name), is_link);
                }
                self.close(id, Ok(Success::Skipped));
            }
            (SlowDone::InTheWay, _) => {
                if let Some((dir, name)) = self.item(id).map(|i| (i.dir, i.name.clone())) {
                    self.tree.set_name(dir, name, Name::Other);
                }
                self.fail(id, MemberError::exists());
            }
            (SlowDone::Dir(fh, existed), Some(child)) => {
                let job = self.item_mut(id).and_then(|item| item.job.as_mut());
                let xattrs = job.map(|job| std::mem::take(&mut job.attrs.xattrs)).unwrap_or_default();
                self.tree.dir_mut(child).xattrs = xattrs;
                if existed {
                    // Other clients may have put entries into it.
                    let finish = self.tree.dir_mut(child).finish.take();
                    let ours = self.is_ours(child, made_earlier || made_now);
                    let finish = finish
                        .map(|(attrs, shown)| (if ours { attrs } else { self.for_existing(attrs) }, shown));
                    self.tree.dir_mut(child).finish = finish;
                    self.tree.dir_mut(child).all_known = false;
                    self.tree.list(child, fh);
                    return self.close(id, Ok(if made_now { Success::Made } else { Success::Existed }));
                }
                self.tree.made(child, fh);
                self.unpark_dir(child);
                self.done(id);
            }
            _ => self.done(id),
        }
    }

    pub(super) fn make_slow(&mut self, id: ItemId) {
        if let Some(item) = self.item_mut(id) {
            item.slow = true;
        }
    }

    pub(super) fn done(&mut self, id: ItemId) {
        self.close(id, Ok(Success::Made));
    }

    pub(super) fn fail(&mut self, id: ItemId, why: impl Into<MemberError>) {
        self.close(id, Err(why.into()));
    }

    /// Settles an item and continues what waited for it.
    fn close(&mut self, id: ItemId, result: Result<Success, MemberError>) {
        let Some(item) = self.items.get_mut(id.0 as usize).and_then(Option::take) else { return };
        self.links.0 += u64::from(item.target.is_some() && result.is_ok());
        let dir = self.tree.dir_mut(item.dir);
        dir.open -= 1;
        if dir.open == 0 && self.ended {
            self.quiet.push(item.dir);
        }
        let parked = self.behind_items.remove(&id).unwrap_or_default();
        match (item.child, &result) {
            (None, Ok(good)) => {
                let ours = *good == Success::Made && self.over().is_some();
                self.tree.dir_mut(item.dir).found.remove(&item.name);
                let now = if ours { Name::Ours } else { Name::Other };
                self.tree.set_name(item.dir, item.name.clone(), now);
            }
            // The object that was there still is.
            (None, Err(_)) if !item.sent && item.replace => {
                self.tree.set_name(item.dir, item.name.clone(), Name::Other);
            }
            (None, Err(_)) if matches!(self.tree.in_progress(item.dir, &item.name), Some(Name::Busy(_))) => {
                self.tree.free_name(item.dir, &item.name);
                let dir = self.tree.dir_mut(item.dir);
                // After a partial failure the names are not known.
                dir.all_known &= !item.sent;
            }
            (Some(child), Err(why)) => {
                // Name the cause once, however deep it lies.
                let text = match why.cause {
                    Cause::Parent => why.text.clone(),
                    _ => format!("its directory was not made: {why}"),
                };
                self.tree.dir_mut(child).state = DirState::Failed(text);
                self.unpark_dir(child);
            }
            (Some(_), Ok(_)) | (None, Err(_)) => {}
        }
        // A link's waiters wait for its own name or for its target's name.
        let name = item.target.is_none().then(|| (item.dir, item.name.clone()));
        if let Some((dir, rest)) = item.target
            && let Some(name) = rest.first()
        {
            match self.tree.in_progress(dir, name).cloned() {
                Some(Name::Pinned { links, last }) if links > 1 => {
                    self.tree.set_name(dir, name.clone(), Name::Pinned { links: links - 1, last });
                }
                Some(Name::Pinned { .. }) => self.tree.set_name(dir, name.clone(), Name::Other),
                Some(Name::Busy(_)) if result.is_ok() && rest.len() == 1 => {
                    self.tree.set_name(dir, name.clone(), Name::Other);
                }
                Some(Name::Busy(_)) => self.tree.free_name(dir, name),
                _ => {}
            }
        }
        if let Some(job) = item.job {
            self.settle(job, result, item.implied);
        }
        self.unpark(parked, name);
        // Only now: nothing above may reuse the number for a new item.
        self.free.push(id);
    }

    fn settle(&mut self, job: Job<P>, result: Result<Success, MemberError>, implied: bool) {
        self.open -= 1;
        if let Some(number) = job.sent {
            self.sent.insert(number, None);
        }
        self.note_failure(&job, &result);
        self.settled.push(Settled { job, result, implied });
    }

    /// A hard link to a member that failed would be one to an older object, or to a part of the member.
    fn note_failure(&mut self, job: &Job<P>, result: &Result<Success, MemberError>) {
        if matches!(job.make, Make::Dir | Make::Link(_)) {
            return;
        }
        match result {
            Err(why) if why.is_incomplete() || why.cause == Cause::Parent => {}
            // GNU tar, too, makes links to the object that stays.
            Err(why) if self.existing == Existing::Keep && why.is_existing() => {}
            Err(_) => self.tree.fail(&job.path),
            // In an archive, a link is one to the latest member of a name. Of `cp`'s sources it may be one to the other.
            Ok(Success::Made) if self.over().is_none() => self.tree.forget_failure(&job.path),
            Ok(_) => {}
        }
    }

    /// The source could not give this member.
    pub(super) fn unread_member(&mut self, name: &[u8]) {
        if let Ok(path) = components(name) {
            self.tree.fail(&path);
        }
    }

    fn new_item(&mut self, item: Item<P>) -> ItemId {
        self.tree.dir_mut(item.dir).open += 1;
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

    pub(super) fn item_mut(&mut self, id: ItemId) -> Option<&mut Item<P>> {
        self.items.get_mut(id.0 as usize)?.as_mut()
    }

    /// The next final attributes of directories, those of a directory after those of all directories in it. None: there are no
    /// more, or [`Plan::unread`] says why they cannot be known.
    pub(super) fn next_finals(&mut self) -> Vec<Final> {
        let put_away: Vec<Final> = loop {
            let records = self.tree.put_away_finals(limits::FINALS_TOGETHER);
            let ended = records.is_empty();
            let finals = records.into_iter().filter_map(DirRecord::last);
            let finals: Vec<Final> = finals
                .filter(|(_, attrs, xattrs, _)| !(attrs.mask.is_empty() && xattrs.is_empty()))
                .map(|(fh, attrs, xattrs, shown)| Final { fh, attrs, xattrs, shown })
                .collect();
            if ended || !finals.is_empty() {
                break finals;
            }
        };
        if !put_away.is_empty() {
            return put_away;
        }
        let mut all = Vec::new();
        for id in self.tree.ids() {
            let depth = self.tree.depth(id);
            let dir = self.tree.dir_mut(id);
            let xattrs = std::mem::take(&mut dir.xattrs);
            if let (Some((attrs, shown)), Some(fh)) = (dir.finish.take(), dir.fh())
                && !(attrs.mask.is_empty() && xattrs.is_empty())
            {
                all.push((depth, Final { fh: fh.clone(), attrs, xattrs, shown }));
            }
        }
        all.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
        all.into_iter().map(|(_, f)| f).collect()
    }

    /// What was remembered of the tree and could not be read back. Nothing may go on then.
    pub(super) fn unread(&self) -> Option<&OverflowError> {
        self.tree.unread()
    }

    /// Why something is remembered in memory that should be in a temporary file; once.
    pub(super) fn trouble(&mut self) -> Option<OverflowError> {
        self.tree.trouble()
    }

    /// Stops: every open item fails with `why`, or with `begun` if something of it was executed.
    pub(super) fn abandon(&mut self, why: &MemberError, begun: &MemberError) {
        for item in self.items.iter_mut().filter_map(Option::take) {
            let why = if item.begun { begun } else { why };
            if let Some(job) = item.job {
                self.settled.push(Settled { job, result: Err(why.clone()), implied: false });
                self.open = self.open.saturating_sub(1);
            }
        }
        let parked = std::mem::take(&mut self.behind_items).into_values();
        let parked: Vec<_> =
            parked.chain(std::mem::take(&mut self.behind_dirs).into_values()).flatten().collect();
        let waiting = std::mem::take(&mut self.behind_link).into_iter().map(Parked::Job);
        for p in parked.into_iter().chain(waiting) {
            if let Parked::Job(job) = p {
                self.settled.push(Settled { job, result: Err(why.clone()), implied: false });
                self.open = self.open.saturating_sub(1);
            }
        }
        (self.ready, self.slow, self.held) = (Ready::default(), VecDeque::new(), Vec::new());
    }
}

/// Whether a directory with these attributes can still be filled if its last compound has to be sent again. Its owner
/// must have access, and it must not pass its group on to new entries.
pub(super) fn leaves_open(attrs: &Fattr) -> bool {
    let mode = AttrValues::from_fattr(attrs).map(|values| values.mode);
    mode.is_ok_and(|mode| mode.is_none_or(|mode| mode & 0o2300 == 0o300))
}

/// Why an item cannot be packed now.
#[derive(Debug)]
enum Obstacle {
    Wait(DirId),
    Failed(String),
}
