//! The model of a server: COMPOUNDs on objects in memory, one after the other.
//!
//! It obeys RFC 8881 and docs/internals/write-directory-delegations.md, and knows nothing of how the mount works.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use landfast_client::Recall;
use landfast_nfs::v4::args::{CreateHow, CreateType, OpenClaim, OpenHow};
use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::flags::NOTIFY4_WRITE_DELEGATION;
use landfast_nfs::v4::res::{
    AccessRes, CreateRes, DirDelegation, DirEntry, GetDirDelegationRes, OpenDelegation, OpenRes, ReadRes,
    ReaddirRes, RenameRes, WriteRes,
};
use landfast_nfs::v4::{
    ArgOp, ChangeInfo, CompoundRes, Fattr, NfsStat, NfsTime, OpNum, ResBody, ResOp, StableHow, Stateid,
};

use super::choices::Choices;
use super::objects::{Id, Kind, Object, Tag, handle, id_of};

/// A client's number.
pub(crate) type Who = usize;

pub(crate) const ROOT: Id = 1;

/// How long nobody else may have looked into a directory that is not new.
const UNSEEN: Duration = Duration::from_secs(10);
/// How long a directory is given to nobody after a recall.
const AFTER_RECALL: Duration = Duration::from_secs(60);
/// How often a recall is sent again.
const RECALLED_EACH: Duration = Duration::from_secs(1);

/// The open of a file by its handle.
const OPENED: Stateid = Stateid { seqid: 1, other: [8; 12] };

/// How much trouble there is, in percent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trouble {
    /// An operation is answered with DELAY.
    pub(crate) busy: u64,
    /// A change fails (ENOSPC), in a thousandth.
    pub(crate) full: u64,
    /// WRITEs are stable though nobody asked for it.
    pub(crate) stable: u64,
    /// A delegation is refused without a reason.
    pub(crate) refused: u64,
}

/// What became of the names of a directory: for the oracle.
#[derive(Debug, Clone)]
pub(crate) enum Effect {
    /// A client has changed names in a directory, which are these now.
    Names { who: Who, dir: Id, after: BTreeMap<Bytes, Tag> },
    /// An object has lost its last name.
    Gone { who: Who, id: Id, tag: Tag, is_dir: bool },
    /// Something new.
    Made { dir: Id, id: Id, tag: Tag },
    /// A change was refused, in this directory or of this file.
    Refused { who: Who, id: Id },
    /// A delegation was taken away.
    Revoked { who: Who, dir: Id },
}

#[derive(Debug)]
pub(crate) struct Delegation {
    pub(crate) who: Who,
    pub(crate) stateid: Stateid,
    recalled: Option<Duration>,
    sent: Duration,
}

/// What the server knows of a client.
#[derive(Debug, Default)]
pub(crate) struct Client {
    pub(crate) session: u64,
    pub(crate) revoked: Vec<Stateid>,
    pub(crate) restarts: u64,
    /// Its last request.
    pub(crate) heard: Duration,
    /// It is cut off until then, so that its lease may end.
    pub(crate) unreachable: Duration,
}

pub(crate) enum Done {
    Reply(CompoundRes),
    /// Nothing is changed yet; a delegation is in the way, and was recalled.
    Blocked,
}

pub(crate) struct Server {
    pub(crate) objects: BTreeMap<Id, Object>,
    pub(crate) delegations: BTreeMap<Id, Delegation>,
    pub(crate) clients: Vec<Client>,
    pub(crate) effects: Vec<Effect>,
    /// Callbacks to be sent.
    pub(crate) recalls: Vec<(Who, Recall)>,
    pub(crate) trouble: Trouble,
    pub(crate) lease: Duration,
    /// It answers from then on.
    pub(crate) up: Duration,
    pub(crate) verifier: u64,
    /// Files that were opened by their handle and are not closed.
    pub(crate) opens: u32,
    pub(crate) commits: u64,
    looked: BTreeMap<Id, Vec<(Who, Duration)>>,
    recalled: BTreeMap<Id, Duration>,
    next: u64,
    changes: u64,
}

/// One COMPOUND.
struct Call<'a> {
    who: Who,
    now: Duration,
    current: Option<Id>,
    saved: Option<Id>,
    /// Directories that it has made.
    new: Vec<Id>,
    choices: &'a mut Choices,
}

fn time(now: Duration) -> NfsTime {
    NfsTime { seconds: 1_000_000 + now.as_secs() as i64, nseconds: now.subsec_nanos() }
}

/// Attributes of a directory that its holder may change.
const HELD: Bitmap = Bitmap::of(&[
    number::CHANGE,
    number::SIZE,
    number::MODE,
    number::NUMLINKS,
    number::OWNER,
    number::OWNER_GROUP,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_METADATA,
    number::TIME_MODIFY,
]);

impl Server {
    pub(crate) fn new(clients: usize, lease: Duration, trouble: Trouble) -> Server {
        let root = Object::new(Kind::Dir(BTreeMap::new()), 0o755, time(Duration::ZERO), 1);
        Server {
            objects: BTreeMap::from([(ROOT, root)]),
            delegations: BTreeMap::new(),
            clients: (0..clients).map(|_| Client { session: 1, ..Client::default() }).collect(),
            effects: Vec::new(),
            recalls: Vec::new(),
            trouble,
            lease,
            up: Duration::ZERO,
            verifier: 1,
            opens: 0,
            commits: 0,
            looked: BTreeMap::new(),
            recalled: BTreeMap::new(),
            next: 100,
            changes: 1,
        }
    }

    /// A directory that was there before.
    pub(crate) fn old_dir(&mut self, name: &Bytes, mode: u32) -> Id {
        self.make(ROOT, name, Kind::Dir(BTreeMap::new()), mode, Duration::ZERO)
    }

    pub(crate) fn make(&mut self, dir: Id, name: &Bytes, kind: Kind, mode: u32, now: Duration) -> Id {
        self.next += 1;
        self.changes += 1;
        let id = self.next;
        let object = Object::new(kind, mode, time(now), self.changes);
        self.effects.push(Effect::Made { dir, id, tag: object.tag });
        self.objects.insert(id, object);
        if let Some(Kind::Dir(names)) = self.objects.get_mut(&dir).map(|d| &mut d.kind) {
            names.insert(name.clone(), id);
        }
        id
    }

    /// Names of a directory, with what they lead to.
    pub(crate) fn tags(&self, dir: Id) -> BTreeMap<Bytes, Tag> {
        let names = self.objects.get(&dir).and_then(Object::names).into_iter().flatten();
        let shown = names.filter(|(name, _)| !name.starts_with(b".nfs"));
        shown.filter_map(|(name, id)| Some((name.clone(), self.objects.get(id)?.tag))).collect()
    }

    /// Directories that have a name for an object, and itself if it is one.
    pub(crate) fn dirs_of(&self, id: Id) -> Vec<Id> {
        let has = |dir: &Id, object: &Object| {
            object.names().is_some_and(|names| *dir == id || names.values().any(|n| *n == id))
        };
        self.objects.iter().filter(|(dir, object)| has(dir, object)).map(|(dir, _)| *dir).collect()
    }

    /// What it has in memory gets to the disk sooner or later.
    pub(crate) fn writes_back(&mut self, of: impl Fn(Id) -> bool) {
        for (_, object) in self.objects.iter_mut().filter(|(id, _)| of(**id)) {
            if let Kind::File { data, stable } = &mut object.kind {
                stable.clone_from(data);
            }
        }
    }

    /// All state of a client is gone.
    pub(crate) fn expel(&mut self, who: Who) {
        let gone: Vec<Id> =
            self.delegations.iter().filter(|(_, d)| d.who == who).map(|(id, _)| *id).collect();
        for dir in gone {
            self.delegations.remove(&dir);
            self.effects.push(Effect::Revoked { who, dir });
        }
        if let Some(client) = self.clients.get_mut(who) {
            client.session += 1;
            client.revoked.clear();
        }
    }

    /// The lease of a client that cannot be reached may be over.
    fn is_expired(&self, who: Who, now: Duration) -> bool {
        self.clients.get(who).is_some_and(|c| c.unreachable > now && now.saturating_sub(c.heard) > self.lease)
    }

    /// The session in force, and all that was told of state, at a request.
    pub(crate) fn heard(&mut self, who: Who, now: Duration) {
        if let Some(client) = self.clients.get_mut(who) {
            client.heard = now;
        }
    }

    /// Somebody uses a directory. Returns whether another one's delegation is in the way.
    fn touch(&mut self, call: &Call<'_>, dir: Id) -> bool {
        let (who, now) = (call.who, call.now);
        if let Some(looked) = self.looked.get_mut(&dir) {
            looked.retain(|(w, _)| *w != who);
            looked.push((who, now));
        } else {
            self.looked.insert(dir, vec![(who, now)]);
        }
        let Some(delegation) = self.delegations.get(&dir).filter(|d| d.who != who) else { return false };
        let (holder, stateid) = (delegation.who, delegation.stateid);
        if self.is_expired(holder, now) {
            self.expel(holder);
            return false;
        }
        let over = delegation.recalled.is_some_and(|at| now.saturating_sub(at) > self.lease);
        if over {
            self.delegations.remove(&dir);
            self.effects.push(Effect::Revoked { who: holder, dir });
            if let Some(client) = self.clients.get_mut(holder) {
                client.revoked.push(stateid);
            }
            return false;
        }
        let Some(delegation) = self.delegations.get_mut(&dir) else { return false };
        if delegation.recalled.is_none() || now.saturating_sub(delegation.sent) >= RECALLED_EACH {
            delegation.recalled.get_or_insert(now);
            delegation.sent = now;
            self.recalled.insert(dir, now);
            self.recalls.push((holder, Recall { stateid, fh: handle(dir) }));
        }
        true
    }

    /// Executes a COMPOUND.
    pub(crate) fn execute(&mut self, who: Who, ops: &[ArgOp], now: Duration, choices: &mut Choices) -> Done {
        let mut call = Call { who, now, current: None, saved: None, new: Vec::new(), choices };
        let mut results: Vec<ResOp> = Vec::with_capacity(ops.len());
        let mut changed = false;
        for op in ops {
            let late = self.trouble.busy > 0 && call.choices.below(400) < self.trouble.busy;
            let done = if late { Err(NfsStat::NFS4ERR_DELAY) } else { self.one(&mut call, op) };
            match done {
                Ok(body) => {
                    changed |= changes(op);
                    results.push(ResOp::ok(op.op(), body));
                }
                Err(NfsStat::NFS4ERR_DELAY) if !late && !changed => return Done::Blocked,
                Err(status) => {
                    results.push(ResOp::failed(op.op(), status));
                    return Done::Reply(CompoundRes { status, tag: Bytes::new(), results });
                }
            }
        }
        Done::Reply(CompoundRes { status: NfsStat::NFS4_OK, tag: Bytes::new(), results })
    }

    fn object(&self, id: Option<Id>) -> Result<&Object, NfsStat> {
        self.objects.get(&id.ok_or(NfsStat::NFS4ERR_NOFILEHANDLE)?).ok_or(NfsStat::NFS4ERR_STALE)
    }

    fn named(&self, dir: Id, name: &Bytes) -> Result<Option<Id>, NfsStat> {
        match &self.object(Some(dir))?.kind {
            Kind::Dir(names) => Ok(names.get(name).copied()),
            Kind::Link(_) => Err(NfsStat::NFS4ERR_SYMLINK),
            Kind::File { .. } => Err(NfsStat::NFS4ERR_NOTDIR),
        }
    }

    /// Another one's delegation of one of these is in the way.
    fn waits(&mut self, call: &Call<'_>, dirs: &[Id]) -> Result<(), NfsStat> {
        let mut blocked = false;
        for dir in dirs {
            if self.object(Some(*dir)).is_ok_and(Object::is_dir) {
                blocked |= self.touch(call, *dir);
            }
        }
        if blocked { Err(NfsStat::NFS4ERR_DELAY) } else { Ok(()) }
    }

    /// A change may be refused.
    fn takes(&mut self, call: &mut Call<'_>, id: Id) -> Result<(), NfsStat> {
        if self.trouble.full > 0 && call.choices.below(1000) < self.trouble.full {
            self.effects.push(Effect::Refused { who: call.who, id });
            return Err(NfsStat::NFS4ERR_NOSPC);
        }
        Ok(())
    }

    /// Names of a directory have changed.
    fn moved(&mut self, call: &Call<'_>, dir: Id) -> ChangeInfo {
        self.changes += 1;
        let after = self.changes;
        let before = self.objects.get_mut(&dir).map_or(0, |d| {
            let before = std::mem::replace(&mut d.change, after);
            (d.mtime, d.ctime) = (time(call.now), time(call.now));
            before
        });
        let names = Effect::Names { who: call.who, dir, after: self.tags(dir) };
        self.effects.push(names);
        ChangeInfo { atomic: true, before, after }
    }

    fn touched(&mut self, id: Id, call: &Call<'_>) {
        self.changes += 1;
        let changes = self.changes;
        if let Some(object) = self.objects.get_mut(&id) {
            (object.change, object.ctime) = (changes, time(call.now));
        }
    }

    /// An object loses a name.
    fn unlinked(&mut self, call: &Call<'_>, id: Id) {
        self.touched(id, call);
        let Some(object) = self.objects.get_mut(&id) else { return };
        object.links = object.links.saturating_sub(1);
        let (tag, is_dir) = (object.tag, object.is_dir());
        if is_dir || object.links == 0 {
            self.objects.remove(&id);
            self.delegations.remove(&id);
            self.effects.push(Effect::Gone { who: call.who, id, tag, is_dir });
        }
    }

    fn one(&mut self, call: &mut Call<'_>, op: &ArgOp) -> Result<ResBody, NfsStat> {
        let current = call.current.ok_or(NfsStat::NFS4ERR_NOFILEHANDLE);
        match op {
            ArgOp::Putfh(fh) => {
                self.object(Some(id_of(fh)))?;
                call.current = Some(id_of(fh));
                Ok(ResBody::Empty)
            }
            ArgOp::Savefh => {
                call.saved = Some(current?);
                Ok(ResBody::Empty)
            }
            ArgOp::Restorefh => {
                call.current = call.saved;
                self.object(call.current).map(|_| ResBody::Empty)
            }
            ArgOp::Getfh => {
                self.object(Some(current?))?;
                Ok(ResBody::Getfh(handle(current?)))
            }
            ArgOp::Getattr(wanted) => {
                let id = current?;
                if HELD.iter().any(|n| wanted.has(n)) {
                    self.waits(call, &[id])?;
                }
                Ok(ResBody::Getattr(self.object(Some(id))?.values(id).to_fattr(wanted)))
            }
            ArgOp::Access(wanted) => {
                self.waits(call, &[current?])?;
                Ok(ResBody::Access(AccessRes { supported: *wanted, access: *wanted }))
            }
            ArgOp::Lookup(name) => {
                self.waits(call, &[current?])?;
                call.current = Some(self.named(current?, name)?.ok_or(NfsStat::NFS4ERR_NOENT)?);
                Ok(ResBody::Empty)
            }
            ArgOp::Readdir(args) => self.readdir(call, current?, args.cookie, &args.attr_request),
            ArgOp::Readlink => match &self.object(Some(current?))?.kind {
                Kind::Link(text) => Ok(ResBody::Readlink(text.clone())),
                _ => Err(NfsStat::NFS4ERR_INVAL),
            },
            ArgOp::Open(args) if args.claim == OpenClaim::Fh => {
                self.object(Some(current?))?;
                self.opens += 1;
                Ok(ResBody::Open(OpenRes {
                    stateid: OPENED,
                    cinfo: ChangeInfo { atomic: true, before: 0, after: 0 },
                    rflags: 0,
                    attrset: Bitmap::default(),
                    delegation: OpenDelegation::None,
                }))
            }
            ArgOp::Open(args) => {
                let (dir, OpenClaim::Null(name)) = (current?, &args.claim) else {
                    return Err(NfsStat::NFS4ERR_NOTSUPP);
                };
                self.waits(call, &[dir])?;
                let OpenHow::Create(CreateHow::Guarded(attrs)) = &args.openhow else {
                    return Err(NfsStat::NFS4ERR_NOTSUPP);
                };
                if self.named(dir, name)?.is_some() {
                    return Err(NfsStat::NFS4ERR_EXIST);
                }
                self.takes(call, dir)?;
                let mode = AttrValues::from_fattr(attrs)?.mode.unwrap_or(0o600);
                let empty = Kind::File { data: Vec::new(), stable: Vec::new() };
                call.current = Some(self.make(dir, name, empty, mode, call.now));
                let cinfo = self.moved(call, dir);
                let (stateid, delegation) = (Stateid { seqid: 1, other: [7; 12] }, OpenDelegation::None);
                Ok(ResBody::Open(OpenRes {
                    stateid,
                    cinfo,
                    rflags: 0,
                    attrset: Bitmap::default(),
                    delegation,
                }))
            }
            ArgOp::Close(args) if args.open_stateid.other == OPENED.other => {
                self.opens -= 1;
                Ok(ResBody::Close(OPENED))
            }
            // Nobody else locks here.
            ArgOp::Lock(_) => Ok(ResBody::Lock(Stateid { seqid: 1, other: [9; 12] })),
            ArgOp::Locku(_) => Ok(ResBody::Locku(Stateid { seqid: 2, other: [9; 12] })),
            ArgOp::Close(_) => Ok(ResBody::Close(Stateid { seqid: 2, other: [7; 12] })),
            ArgOp::Create(args) => {
                let dir = current?;
                self.waits(call, &[dir])?;
                if self.named(dir, &args.name)?.is_some() {
                    return Err(NfsStat::NFS4ERR_EXIST);
                }
                self.takes(call, dir)?;
                let mode = AttrValues::from_fattr(&args.attrs)?.mode.unwrap_or(0o777);
                let kind = match &args.kind {
                    CreateType::Dir => Kind::Dir(BTreeMap::new()),
                    CreateType::Lnk(text) => Kind::Link(text.clone()),
                    _ => return Err(NfsStat::NFS4ERR_BADTYPE),
                };
                let is_dir = matches!(kind, Kind::Dir(_));
                let id = self.make(dir, &args.name, kind, mode, call.now);
                if is_dir {
                    call.new.push(id);
                }
                call.current = Some(id);
                let cinfo = self.moved(call, dir);
                Ok(ResBody::Create(CreateRes { cinfo, attrset: Bitmap::default() }))
            }
            ArgOp::Remove(name) => {
                let dir = current?;
                let gone = self.named(dir, name)?;
                let dirs: Vec<Id> = [Some(dir), gone].into_iter().flatten().collect();
                self.waits(call, &dirs)?;
                let gone = gone.ok_or(NfsStat::NFS4ERR_NOENT)?;
                if self.object(Some(gone))?.names().is_some_and(|names| !names.is_empty()) {
                    return Err(NfsStat::NFS4ERR_NOTEMPTY);
                }
                self.takes(call, dir)?;
                self.unname(dir, name);
                self.unlinked(call, gone);
                Ok(ResBody::Remove(self.moved(call, dir)))
            }
            ArgOp::Rename(args) => {
                let (from, to) = (call.saved.ok_or(NfsStat::NFS4ERR_NOFILEHANDLE)?, current?);
                self.rename(call, (from, &args.oldname), (to, &args.newname))
            }
            ArgOp::Link(name) => {
                let (object, dir) = (call.saved.ok_or(NfsStat::NFS4ERR_NOFILEHANDLE)?, current?);
                self.waits(call, &[dir])?;
                if self.named(dir, name)?.is_some() {
                    return Err(NfsStat::NFS4ERR_EXIST);
                }
                if self.object(Some(object))?.is_dir() {
                    return Err(NfsStat::NFS4ERR_ISDIR);
                }
                self.takes(call, dir)?;
                self.touched(object, call);
                if let Some(object) = self.objects.get_mut(&object) {
                    object.links += 1;
                }
                self.name(dir, name, object);
                Ok(ResBody::Link(self.moved(call, dir)))
            }
            ArgOp::Read(args) => match &self.object(Some(current?))?.kind {
                Kind::File { data, .. } => {
                    let from = (args.offset as usize).min(data.len());
                    let end = from.saturating_add(args.count as usize).min(data.len());
                    let data = Bytes::copy_from_slice(&data[from..end]);
                    let eof = end == self.object(Some(current?))?.values(0).size.unwrap_or(0) as usize;
                    Ok(ResBody::Read(ReadRes { eof, data }))
                }
                _ => Err(NfsStat::NFS4ERR_INVAL),
            },
            ArgOp::Write(args) => {
                let id = current?;
                self.takes(call, id)?;
                let keep = args.stable != StableHow::Unstable || call.choices.percent(self.trouble.stable);
                self.touched(id, call);
                let writeverf = self.verifier.to_be_bytes();
                let object = self.objects.get_mut(&id).ok_or(NfsStat::NFS4ERR_STALE)?;
                object.mtime = time(call.now);
                let Kind::File { data, stable } = &mut object.kind else {
                    return Err(NfsStat::NFS4ERR_INVAL);
                };
                let (from, end) = (args.offset as usize, args.offset as usize + args.data.len());
                data.resize(data.len().max(end), 0);
                data[from..end].copy_from_slice(&args.data);
                if keep {
                    *stable = data.clone();
                }
                let committed = if keep { StableHow::FileSync } else { StableHow::Unstable };
                Ok(ResBody::Write(WriteRes { count: args.data.len() as u32, committed, writeverf }))
            }
            ArgOp::Commit(_) => {
                self.commits += 1;
                let verifier = self.verifier.to_be_bytes();
                match self.objects.get_mut(&current?).map(|o| &mut o.kind) {
                    Some(Kind::File { data, stable }) => *stable = data.clone(),
                    _ => return Err(NfsStat::NFS4ERR_INVAL),
                }
                Ok(ResBody::Commit(verifier))
            }
            ArgOp::Setattr(args) => {
                let id = current?;
                self.waits(call, &[id])?;
                self.takes(call, id)?;
                let values = AttrValues::from_fattr(&args.attrs)?;
                self.touched(id, call);
                let object = self.objects.get_mut(&id).ok_or(NfsStat::NFS4ERR_STALE)?;
                object.set(&values, time(call.now));
                Ok(ResBody::Setattr(args.attrs.mask))
            }
            ArgOp::GetDirDelegation(args) => self.delegate(call, current?, &args.notifications),
            ArgOp::DelegReturn(stateid) => {
                let dir = current?;
                match self.delegations.get(&dir) {
                    Some(d) if d.who == call.who && d.stateid.other == stateid.other => {
                        self.delegations.remove(&dir);
                        Ok(ResBody::Empty)
                    }
                    _ => Err(NfsStat::NFS4ERR_BAD_STATEID),
                }
            }
            ArgOp::TestStateid(all) => {
                let revoked = self.clients.get(call.who).map(|c| c.revoked.clone()).unwrap_or_default();
                let stands = |id: &Stateid| {
                    let is = |d: &Delegation| d.who == call.who && d.stateid.other == id.other;
                    if self.delegations.values().any(is) {
                        NfsStat::NFS4_OK
                    } else if revoked.iter().any(|r| r.other == id.other) {
                        NfsStat::NFS4ERR_DELEG_REVOKED
                    } else {
                        NfsStat::NFS4ERR_BAD_STATEID
                    }
                };
                Ok(ResBody::TestStateid(all.iter().map(stands).collect()))
            }
            ArgOp::FreeStateid(stateid) => {
                let revoked = self.clients.get_mut(call.who).map(|c| &mut c.revoked);
                let Some(revoked) = revoked else { return Err(NfsStat::NFS4ERR_BAD_STATEID) };
                let before = revoked.len();
                revoked.retain(|r| r.other != stateid.other);
                if revoked.len() < before { Ok(ResBody::Empty) } else { Err(NfsStat::NFS4ERR_BAD_STATEID) }
            }
            other => {
                debug_assert!(false, "the model has no {:?}", other.op());
                Err(NfsStat::NFS4ERR_NOTSUPP)
            }
        }
    }

    fn name(&mut self, dir: Id, name: &Bytes, id: Id) {
        if let Some(Kind::Dir(names)) = self.objects.get_mut(&dir).map(|d| &mut d.kind) {
            names.insert(name.clone(), id);
        }
    }

    fn unname(&mut self, dir: Id, name: &Bytes) {
        if let Some(Kind::Dir(names)) = self.objects.get_mut(&dir).map(|d| &mut d.kind) {
            names.remove(name);
        }
    }

    fn rename(
        &mut self,
        call: &mut Call<'_>,
        (from, old): (Id, &Bytes),
        (to, new): (Id, &Bytes),
    ) -> Result<ResBody, NfsStat> {
        let (source, target) = (self.named(from, old)?, self.named(to, new)?);
        let dirs: Vec<Id> = [Some(from), Some(to), source, target].into_iter().flatten().collect();
        self.waits(call, &dirs)?;
        let source = source.ok_or(NfsStat::NFS4ERR_NOENT)?;
        let is_dir = self.object(Some(source))?.is_dir();
        let none = ChangeInfo { atomic: true, before: 0, after: 0 };
        if target == Some(source) {
            let same = |dir: Id| {
                self.object(Some(dir)).map_or(none, |d| ChangeInfo {
                    before: d.change,
                    after: d.change,
                    ..none
                })
            };
            return Ok(ResBody::Rename(RenameRes { source_cinfo: same(from), target_cinfo: same(to) }));
        }
        if is_dir && self.is_below(to, source) {
            return Err(NfsStat::NFS4ERR_INVAL);
        }
        if let Some(target) = target {
            let over = self.object(Some(target))?;
            if over.is_dir() != is_dir || over.names().is_some_and(|names| !names.is_empty()) {
                return Err(NfsStat::NFS4ERR_EXIST);
            }
        }
        self.takes(call, from)?;
        self.unname(from, old);
        self.name(to, new, source);
        self.touched(source, call);
        if let Some(target) = target {
            self.unlinked(call, target);
        }
        let target_cinfo = self.moved(call, to);
        let source_cinfo = if from == to { target_cinfo } else { self.moved(call, from) };
        Ok(ResBody::Rename(RenameRes { source_cinfo, target_cinfo }))
    }

    fn is_below(&self, id: Id, top: Id) -> bool {
        let mut dirs = vec![top];
        while let Some(dir) = dirs.pop() {
            if dir == id {
                return true;
            }
            let names = self.objects.get(&dir).and_then(Object::names);
            dirs.extend(names.into_iter().flat_map(|names| names.values().copied()));
        }
        false
    }

    fn readdir(
        &mut self,
        call: &Call<'_>,
        dir: Id,
        cookie: u64,
        wanted: &Bitmap,
    ) -> Result<ResBody, NfsStat> {
        self.waits(call, &[dir])?;
        let names: Vec<(Bytes, Id)> = match &self.object(Some(dir))?.kind {
            Kind::Dir(names) => names.iter().map(|(n, id)| (n.clone(), *id)).collect(),
            _ => return Err(NfsStat::NFS4ERR_NOTDIR),
        };
        if HELD.iter().any(|n| wanted.has(n)) {
            let below: Vec<Id> = names.iter().map(|(_, id)| *id).collect();
            self.waits(call, &below)?;
        }
        let first = cookie.saturating_sub(2) as usize;
        let entry = |(n, (name, id)): (usize, &(Bytes, Id))| -> Option<DirEntry> {
            let attrs: Fattr = self.objects.get(id)?.values(*id).to_fattr(wanted);
            Some(DirEntry { cookie: n as u64 + 3, name: name.clone(), attrs })
        };
        let entries = names.iter().enumerate().skip(first).filter_map(entry).collect();
        Ok(ResBody::Readdir(ReaddirRes { cookieverf: Default::default(), entries, eof: true }))
    }

    fn delegate(&mut self, call: &mut Call<'_>, dir: Id, wanted: &Bitmap) -> Result<ResBody, NfsStat> {
        if !self.object(Some(dir))?.is_dir() {
            return Err(NfsStat::NFS4ERR_NOTDIR);
        }
        let refused = call.choices.percent(self.trouble.refused);
        let new = call.new.contains(&dir);
        let looked = self.looked.get(&dir).into_iter().flatten();
        let seen = |within: Duration| {
            looked.clone().any(|(who, at)| *who != call.who && call.now.saturating_sub(*at) < within)
        };
        let recalled = self.recalled.get(&dir).is_some_and(|at| call.now.saturating_sub(*at) < AFTER_RECALL);
        let free = if new { !seen(Duration::MAX) } else { !seen(UNSEEN) && !recalled };
        let unavailable = Ok(ResBody::GetDirDelegation(GetDirDelegationRes::Unavailable(false)));
        if refused || !free || self.delegations.contains_key(&dir) || !wanted.has(NOTIFY4_WRITE_DELEGATION) {
            return unavailable;
        }
        self.next += 1;
        let mut other = [0; 12];
        other[..8].copy_from_slice(&self.next.to_be_bytes());
        let stateid = Stateid { seqid: 1, other };
        let delegation = Delegation { who: call.who, stateid, recalled: None, sent: Duration::ZERO };
        self.delegations.insert(dir, delegation);
        Ok(ResBody::GetDirDelegation(GetDirDelegationRes::Given(DirDelegation {
            cookieverf: Default::default(),
            stateid,
            notifications: Bitmap::of(&[NOTIFY4_WRITE_DELEGATION]),
            child_attributes: Bitmap::default(),
            dir_attributes: Bitmap::default(),
        })))
    }

    /// Power goes and comes back at `up`. `log`: sessions and delegations are kept.
    pub(crate) fn cut(&mut self, up: Duration, log: bool) {
        self.up = up;
        self.verifier += 1;
        for object in self.objects.values_mut() {
            if let Kind::File { data, stable } = &mut object.kind {
                *data = stable.clone();
            }
        }
        if !log {
            self.looked.clear();
            self.recalled.clear();
            for who in 0..self.clients.len() {
                self.expel(who);
            }
        }
    }
}

fn changes(op: &ArgOp) -> bool {
    let changing =
        [OpNum::OPEN, OpNum::CREATE, OpNum::REMOVE, OpNum::RENAME, OpNum::LINK, OpNum::SETATTR, OpNum::WRITE];
    changing.contains(&op.op())
}
