//! Fills one compound: encodes its operations, and counts what they cost. No I/O.
//!
//! The compound never exceeds its capacity. If a member's operations do not fit, they are removed again.

use bytes::{Bytes, BytesMut};
use landfast_nfs::v4::args::{
    CloseArgs, CommitArgs, CreateArgs, CreateType, ReadArgs, SetattrArgs, SetxattrArgs, SetxattrOption,
    WriteArgs,
};
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{ArgOp, Fattr, FileHandle, FileType, StableHow, Stateid};
use landfast_xdr::Encode;

use super::ownership::{OWNERSHIP, With, with};
use super::tree::{DirId, ItemId};
use crate::compound::fattr;
use crate::cost::{REPLY_HEAD, REQUEST_HEAD, data_is_late, result_bytes};
use crate::fs::Xattr;
use crate::fs::attrs::owner_first;
use crate::fs::open_file::open_args;
use crate::fs::server_copy::{CopyMethod, Original, clone, copy};
use crate::limits::{COPIED_PER_COMPOUND, DIRS_FOR_A_MEMBER};
use crate::session::SessionLimits;

/// What one compound may cost. Reduced when a server takes less than it promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capacity {
    /// Bytes of the request.
    pub(super) request: usize,
    /// Bytes of the reply.
    pub(super) reply: usize,
    /// Bytes of a reply that the server keeps for replay.
    pub(super) reply_cached: usize,
    /// Operations, SEQUENCE included.
    pub(super) ops: usize,
    pub(super) members: usize,
    /// Data may be anywhere in the request. See [`crate::session::Session::packs_data`].
    pub(super) packs_data: bool,
    /// Read back new objects' owners where it is not known whether the server sets them ([`super::ownership`]).
    pub(super) looks: bool,
}

impl Capacity {
    pub(super) fn new(limits: &SessionLimits, members: usize, request_max: usize) -> Capacity {
        Capacity {
            request: request_max.min(limits.request as usize),
            reply: limits.response as usize,
            reply_cached: limits.response_cached as usize,
            ops: limits.ops as usize,
            members: members.max(1),
            packs_data: true,
            looks: false,
        }
    }
}

/// The current and the saved filehandle at this point of the compound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    current: Option<DirId>,
    saved: Option<DirId>,
}

/// How to reach a directory: from a filehandle or the server's root, then along names that exist or that this compound
/// makes.
#[derive(Debug, Clone)]
pub(super) struct Route {
    pub(super) dir: DirId,
    pub(super) from: Option<FileHandle>,
    pub(super) names: Vec<Bytes>,
}

/// A member, as far as a compound needs to know it.
pub(super) enum Parts<'a> {
    Dir(DirId),
    File(&'a Bytes),
    /// A file that the server copies.
    Copy(&'a Original),
    Other(CreateType),
    Link(Route, &'a [Bytes]),
}

pub(super) struct Piece<'a> {
    pub(super) at: Route,
    pub(super) name: &'a Bytes,
    /// The name exists and must be removed first.
    pub(super) replace: bool,
    pub(super) create: &'a Fattr,
    pub(super) xattrs: &'a [Xattr],
    pub(super) finish: &'a Fattr,
    /// It is not known whether the server sets the owner.
    pub(super) look: bool,
    pub(super) parts: Parts<'a>,
    /// More members for the same directory follow.
    pub(super) stay: bool,
}

/// An encoded compound.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    pub(super) body: Bytes,
    /// The number of operations.
    pub(super) ops: usize,
    /// The number of operations before those of the members. If one fails, the rest is not executed.
    pub(super) guard: usize,
    /// The members in order, with the number of operations of each.
    pub(super) members: Vec<(ItemId, usize)>,
    /// Directories that get their final attributes after all members, in the same form.
    pub(super) finished: Vec<(DirId, usize)>,
    /// An upper bound for the bytes of the reply.
    pub(super) reply: usize,
    /// Whether the reply can be kept for replay.
    pub(super) cachethis: bool,
}

/// A state of a compound to return to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    bytes: usize,
    ops: usize,
    reply: usize,
    place: Place,
    members: usize,
    copied: u64,
    weight: usize,
    looked: usize,
}

pub(super) struct Packer {
    capacity: Capacity,
    number: u64,
    body: BytesMut,
    ops: usize,
    guard: usize,
    reply: usize,
    place: Place,
    members: Vec<(ItemId, usize)>,
    finished: Vec<(DirId, usize)>,
    copied: u64,
    /// The weight of the members, in fractions of one: a directory is little work.
    weight: usize,
    /// There is data at a position that not every server accepts.
    late: bool,
    /// The creation attributes for which this compound already reads back an object.
    looked: Vec<With>,
}

impl Packer {
    pub(super) fn new(capacity: Capacity, number: u64) -> Packer {
        Packer {
            capacity,
            number,
            body: BytesMut::new(),
            ops: 0,
            guard: 0,
            reply: REPLY_HEAD,
            place: Place::default(),
            members: Vec::new(),
            finished: Vec::new(),
            copied: 0,
            weight: 0,
            late: false,
            looked: Vec::new(),
        }
    }

    /// Encodes into `body`, which has no contents.
    pub(super) fn into_body(mut self, body: BytesMut) -> Packer {
        debug_assert!(self.body.is_empty() && body.is_empty());
        self.body = body;
        self
    }

    /// A compound that begins with the operations `guard`. If one of them fails, nothing else is executed.
    pub(super) fn guarded(capacity: Capacity, number: u64, guard: &[ArgOp]) -> Packer {
        let mut packer = Packer::new(capacity, number);
        guard.iter().for_each(|op| packer.op(op));
        packer.guard = guard.len();
        packer
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.weight >= self.capacity.members * DIRS_FOR_A_MEMBER
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn is_half_full(&self) -> bool {
        self.weight * 2 >= self.capacity.members * DIRS_FOR_A_MEMBER
            || self.body.len() * 2 >= self.capacity.request
            || self.ops * 2 >= self.capacity.ops
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            bytes: self.body.len(),
            ops: self.ops,
            reply: self.reply,
            place: self.place,
            members: self.members.len(),
            copied: self.copied,
            weight: self.weight,
            looked: self.looked.len(),
        }
    }

    /// Removes what was added since the mark. Returns those members in order.
    pub(super) fn back_to(&mut self, mark: Mark) -> Vec<ItemId> {
        self.body.truncate(mark.bytes);
        (self.ops, self.reply, self.place) = (mark.ops, mark.reply, mark.place);
        (self.copied, self.weight) = (mark.copied, mark.weight);
        self.looked.truncate(mark.looked);
        self.members.split_off(mark.members).into_iter().map(|(id, _)| id).collect()
    }

    pub(super) fn finished(&self) -> &[(DirId, usize)] {
        &self.finished
    }

    pub(super) fn members(&self) -> &[(ItemId, usize)] {
        &self.members
    }

    fn fits(&self) -> bool {
        (self.capacity.packs_data || !self.late)
            && REQUEST_HEAD + self.body.len() <= self.capacity.request
            && self.ops < self.capacity.ops
            && self.reply <= self.capacity.reply
    }

    /// Sets a directory's final attributes after all members, if there is room.
    pub(super) fn finish_dir(&mut self, dir: &Route, attrs: &Fattr) {
        let mark = self.mark();
        self.go(dir);
        // A directory keeps its set-ID bits when its owner changes.
        self.set(attrs.clone());
        // This does not make the reply too large to keep.
        let was_cached = mark.reply <= self.capacity.reply_cached;
        if self.fits() && (!was_cached || self.reply <= self.capacity.reply_cached) {
            self.finished.push((dir.dir, self.ops - mark.ops));
        } else {
            self.back_to(mark);
        }
    }

    /// Adds a member's operations, or nothing if they do not fit.
    pub(super) fn add(&mut self, id: ItemId, piece: &Piece<'_>) -> bool {
        let mark = self.mark();
        self.late = false;
        self.put(piece);
        let copied = match piece.parts {
            Parts::Copy(original) => original.size,
            _ => 0,
        };
        let fits = (self.members.is_empty() || self.copied + copied <= COPIED_PER_COMPOUND) && self.fits();
        if fits {
            self.members.push((id, self.ops - mark.ops));
            self.copied += copied;
            // A member that must be alone shares a compound with nothing.
            let is_light = matches!(piece.parts, Parts::Dir(_)) && self.capacity.members > 1;
            self.weight += if is_light { 1 } else { DIRS_FOR_A_MEMBER };
        } else {
            self.back_to(mark);
        }
        fits
    }

    pub(super) fn finish(self) -> Batch {
        Batch {
            body: self.body.freeze(),
            ops: self.ops,
            guard: self.guard,
            members: self.members,
            finished: self.finished,
            reply: self.reply,
            cachethis: self.reply <= self.capacity.reply_cached,
        }
    }

    fn op(&mut self, op: &ArgOp) {
        op.encode(&mut self.body);
        self.late |= data_is_late(op, self.body.len());
        self.ops += 1;
        self.reply += result_bytes(op);
    }

    fn put(&mut self, piece: &Piece<'_>) {
        if let Parts::Link(target, names) = &piece.parts {
            // For LINK the target is the saved filehandle, and the directory the current one.
            self.go(target);
            for name in *names {
                self.op(&ArgOp::Lookup(name.clone()));
            }
            if piece.replace {
                // Check the target before the existing name is removed.
                self.op(&ArgOp::Nverify(is_dir()));
            }
            self.op(&ArgOp::Savefh);
            self.place = Place::default();
        }
        if let Parts::Copy(original) = &piece.parts {
            self.op(&ArgOp::Putfh(original.fh.clone()));
            // Nothing is made for a file that may not be read. Others than Landfast may stumble over several READs; what was
            // made for it on one of them goes again.
            if !original.copies.commits {
                self.op(&ArgOp::Read(ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: 0 }));
            }
            self.op(&ArgOp::Savefh);
            self.place = Place::default();
        }
        self.go(&piece.at);
        if piece.stay
            && self.place.saved != Some(piece.at.dir)
            && !matches!(piece.parts, Parts::Link(..) | Parts::Copy(_))
        {
            self.op(&ArgOp::Savefh);
            self.place.saved = Some(piece.at.dir);
        }
        if piece.replace {
            self.op(&ArgOp::Remove(piece.name.clone()));
        }
        match &piece.parts {
            Parts::File(data) => {
                self.op(&ArgOp::Open(open_args(self.number, piece.name, piece.create)));
                // RFC 8881 section 2.10.6.4: GETFH right behind what changes the filehandle for good.
                self.op(&ArgOp::Getfh);
                self.set_xattrs(piece.xattrs);
                if !data.is_empty() {
                    self.op(&ArgOp::Write(WriteArgs {
                        stateid: Stateid::CURRENT,
                        offset: 0,
                        stable: StableHow::FileSync,
                        data: (*data).clone(),
                    }));
                }
                self.look(piece);
                self.set_last(piece.finish);
                self.op(&ArgOp::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT }));
                self.place.current = None;
            }
            Parts::Copy(original) => {
                self.op(&ArgOp::Open(open_args(self.number, piece.name, piece.create)));
                self.op(&ArgOp::Getfh);
                self.copy(original);
                self.set_xattrs(piece.xattrs);
                self.look(piece);
                self.set_last(piece.finish);
                self.op(&ArgOp::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT }));
                self.place.current = None;
            }
            Parts::Dir(id) => {
                self.create(CreateType::Dir, piece);
                self.set_xattrs(piece.xattrs);
                self.place.current = Some(*id);
            }
            Parts::Other(kind) => {
                self.create(kind.clone(), piece);
                self.set_last(piece.finish);
                self.place.current = None;
            }
            Parts::Link(..) => self.op(&ArgOp::Link(piece.name.clone())),
        }
    }

    /// From the saved file to the current one. Servers do not agree on which of both the current stateid is of; one that wants
    /// an open's own gets it where files go alone.
    fn copy(&mut self, original: &Original) {
        if original.size == 0 {
            return;
        }
        let none = Stateid::ANONYMOUS;
        let cloned = original.way() == CopyMethod::Clone;
        match cloned {
            true => self.op(&clone(none, none)),
            false => self.op(&copy(none, none, 0, original.size, true)),
        }
        if cloned || original.copies.commits {
            self.op(&ArgOp::Commit(CommitArgs { offset: 0, count: 0 }));
        }
    }

    fn create(&mut self, kind: CreateType, piece: &Piece<'_>) {
        self.op(&ArgOp::Create(CreateArgs { kind, name: piece.name.clone(), attrs: piece.create.clone() }));
        self.op(&ArgOp::Getfh);
        self.look(piece);
    }

    /// Reads back the owner, once for all members with the same creation attributes.
    fn look(&mut self, piece: &Piece<'_>) {
        let with = with(piece.create).filter(|_| self.capacity.looks && piece.look);
        if let Some(with) = with.filter(|with| !self.looked.contains(with)) {
            self.op(&ArgOp::Getattr(OWNERSHIP));
            self.looked.push(with);
        }
    }

    fn set_xattrs(&mut self, xattrs: &[Xattr]) {
        for xattr in xattrs {
            self.op(&set_xattr(xattr));
        }
    }

    /// The final attributes of a member that is no directory.
    fn set_last(&mut self, attrs: &Fattr) {
        owner_first(attrs).for_each(|part| self.set(part));
    }

    fn set(&mut self, attrs: Fattr) {
        self.op(&ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs }));
    }

    fn go(&mut self, to: &Route) {
        if self.place.current == Some(to.dir) {
            return;
        }
        if self.place.saved == Some(to.dir) {
            self.op(&ArgOp::Restorefh);
        } else {
            self.op(&to.from.clone().map_or(ArgOp::Putrootfh, ArgOp::Putfh));
            for name in &to.names {
                self.op(&ArgOp::Lookup(name.clone()));
            }
        }
        self.place.current = Some(to.dir);
    }
}

/// SETXATTR that creates or replaces the attribute.
pub(super) fn set_xattr((key, value): &Xattr) -> ArgOp {
    let (key, value) = (key.clone(), value.clone());
    ArgOp::Setxattr(SetxattrArgs { option: SetxattrOption::Either, key, value })
}

/// For NVERIFY: go on unless the object is a directory.
pub(super) fn is_dir() -> Fattr {
    fattr(&AttrValues { kind: Some(FileType::Dir), ..AttrValues::default() })
}
