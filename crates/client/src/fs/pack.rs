//! Packs segments of many items in one COMPOUND, and says which results belong to which. No I/O.
//!
//! Segments at the same place follow each other without a new walk: from the current filehandle that the last one
//! leaves, or by SAVEFH and RESTOREFH. The contents stay within the capacity at every moment. A segment that does not
//! fit is taken out as if it had never been added.

use bytes::{Bytes, BytesMut};
use landfast_nfs::v4::{ArgOp, FileHandle, OpNum};
use landfast_xdr::Encode;

use super::action::Budget;
use super::item::{PathOf, Segment};
use super::path::{Base, Place, Step};
use crate::cost::{REPLY_HEAD, REQUEST_HEAD, data_is_late, result_bytes};
use crate::limits::COPIED_PER_COMPOUND;
use crate::session::SessionLimits;

/// The limits of one COMPOUND. They shrink when a server takes less than it promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capacity {
    /// Operations, without SEQUENCE.
    pub(super) ops: usize,
    pub(super) request: usize,
    pub(super) reply: usize,
    /// Bytes of a reply that the server keeps for replay.
    pub(super) reply_cached: usize,
    pub(super) members: usize,
    /// Whether a COMPOUND may hold several READs and READDIRs. If not, it holds one, in the first segment. See
    /// [`crate::session::Session::packs_data`].
    pub(super) packs_data: bool,
}

impl Capacity {
    pub(super) fn new(limits: &SessionLimits, members: usize, packs_data: bool) -> Capacity {
        let members = members.max(1);
        Capacity {
            ops: (limits.ops as usize).saturating_sub(1).max(1),
            request: (limits.request as usize).saturating_sub(REQUEST_HEAD),
            reply: (limits.response as usize).saturating_sub(REPLY_HEAD),
            reply_cached: (limits.response_cached as usize).saturating_sub(REPLY_HEAD),
            members,
            packs_data,
        }
    }

    /// Allows half of the operations of a COMPOUND that had `used`. Returns `false` if there is nothing left to give
    /// up. Of many COMPOUNDs in flight together the first one teaches; the others are only sent again, unless they have
    /// one member (`alone`).
    pub(super) fn fewer_ops(&mut self, used: usize, alone: bool) -> bool {
        halve(&mut self.ops, used, 8, alone)
    }

    /// As above, for the bytes of the request.
    pub(super) fn shorter_request(&mut self, used: usize, alone: bool) -> bool {
        halve(&mut self.request, used, 1024, alone)
    }

    /// As above, for the bytes of the reply.
    pub(super) fn shorter_reply(&mut self, used: usize, alone: bool) -> bool {
        halve(&mut self.reply, used, 1024, alone)
    }

    /// What one segment may fill: without PUTFH, the names of the path, SAVEFH and GETFH.
    pub(super) fn room(&self) -> Budget {
        Budget {
            ops: self.ops.saturating_sub(4).max(1),
            request: self.request.saturating_sub(1024),
            reply: self.reply.saturating_sub(512),
            packs_data: self.packs_data,
        }
    }
}

fn halve(limit: &mut usize, used: usize, least: usize, alone: bool) -> bool {
    if used > *limit && !alone {
        return true;
    }
    let half = (used.min(*limit) / 2).max(least);
    let less = half < *limit;
    *limit = half.min(*limit);
    less
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Prefix {
    /// PUTFH, PUTROOTFH.
    Put(PathOf, OpNum),
    /// LOOKUP or LOOKUPP of the place's step of this number.
    Step(PathOf, usize, OpNum),
    /// GETFH of the place, whose handle is remembered.
    Learn,
    /// SAVEFH, RESTOREFH.
    Keep(OpNum),
}

#[derive(Debug)]
pub(super) struct Member<T> {
    pub(super) whose: T,
    /// The operations before its own.
    pub(super) lead: Vec<Prefix>,
    /// How many operations are its own.
    pub(super) own: usize,
    pub(super) source: Option<Place>,
    pub(super) place: Place,
    pub(super) known_as: Option<Vec<Step>>,
}

/// An encoded COMPOUND.
#[derive(Debug)]
pub(super) struct Packed<T> {
    pub(super) body: Bytes,
    pub(super) ops: usize,
    /// An upper bound of the bytes of the results.
    pub(super) reply: usize,
    /// Whether the server shall keep the reply for replay.
    pub(super) cachethis: bool,
    pub(super) members: Vec<Member<T>>,
    /// Whether it changes something on the server.
    changes: bool,
}

impl<T> Packed<T> {
    /// How many of its members change nothing: all or none.
    pub(super) fn looks(&self) -> usize {
        if self.changes { 0 } else { self.members.len() }
    }
}

/// One COMPOUND being filled.
pub(super) struct Packer<T> {
    capacity: Capacity,
    /// Goes to the top.
    top: ArgOp,
    body: BytesMut,
    ops: usize,
    reply: usize,
    /// Bytes that the server copies.
    moves: u64,
    changes: bool,
    current: Option<Place>,
    saved: Option<Place>,
    members: Vec<Member<T>>,
}

impl<T> Packer<T> {
    pub(super) fn new(capacity: Capacity, top: &ArgOp) -> Packer<T> {
        Packer {
            capacity,
            top: top.clone(),
            body: BytesMut::new(),
            ops: 0,
            reply: 0,
            moves: 0,
            changes: false,
            current: None,
            saved: None,
            members: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Adds a segment, or returns it if it does not fit after the others. The first one always fits: the server must
    /// say whether it is too large.
    ///
    /// `more_here`: the next segment is for the same place.
    pub(super) fn add(&mut self, whose: T, segment: Segment, more_here: bool) -> Option<T> {
        let before = (self.body.len(), self.ops, self.reply, self.current.clone(), self.saved.clone());
        let mut lead = Vec::new();
        self.lead(&segment, more_here, &mut lead);
        let mut late = false;
        for op in &segment.ops {
            op.encode(&mut self.body);
            late |= data_is_late(op, self.body.len());
        }
        let has_data = segment.ops.iter().any(|op| matches!(op.op(), OpNum::READ | OpNum::READDIR));
        self.ops += segment.ops.len();
        self.reply += segment.reply;
        let changes = self.changes || segment.changes;
        // Operations that must not be executed twice go in replies that the server can keep, as long as such a COMPOUND
        // holds one member.
        let reply_max = match changes && self.capacity.reply_cached > 0 {
            true => self.capacity.reply.min(self.capacity.reply_cached),
            false => self.capacity.reply,
        };
        let fits = self.members.len() < self.capacity.members
            && self.ops <= self.capacity.ops
            && (self.capacity.packs_data || !(has_data || late))
            && self.body.len() <= self.capacity.request
            && self.reply <= reply_max
            && self.moves + segment.moves <= COPIED_PER_COMPOUND;
        if !fits && !self.members.is_empty() {
            self.body.truncate(before.0);
            (_, self.ops, self.reply, self.current, self.saved) = before;
            return Some(whose);
        }
        self.current = segment.stays.then(|| segment.place.clone());
        if segment.source.is_some() {
            self.saved = None;
        }
        self.changes = changes;
        self.moves += segment.moves;
        let Segment { source, place, known_as, ops, .. } = segment;
        self.members.push(Member { whose, lead, own: ops.len(), source, place, known_as });
        None
    }

    pub(super) fn finish(self) -> Packed<T> {
        Packed {
            body: self.body.freeze(),
            ops: self.ops,
            reply: self.reply,
            cachethis: self.changes && self.reply <= self.capacity.reply_cached,
            members: self.members,
            changes: self.changes,
        }
    }

    fn op(&mut self, op: &ArgOp) {
        op.encode(&mut self.body);
        self.ops += 1;
        self.reply += result_bytes(op);
    }

    fn lead(&mut self, segment: &Segment, more_here: bool, lead: &mut Vec<Prefix>) {
        if let Some(source) = &segment.source {
            self.walk(PathOf::Source, source, lead);
            self.op(&ArgOp::Savefh);
            lead.push(Prefix::Keep(OpNum::SAVEFH));
            // A COMPOUND within one directory need not go there twice.
            if *source == segment.place {
                return;
            }
        } else if self.current.as_ref() == Some(&segment.place) {
            return;
        } else if self.saved.as_ref() == Some(&segment.place) {
            self.op(&ArgOp::Restorefh);
            lead.push(Prefix::Keep(OpNum::RESTOREFH));
            return;
        }
        self.walk(PathOf::Place, &segment.place, lead);
        if segment.known_as.is_some() {
            self.op(&ArgOp::Getfh);
            lead.push(Prefix::Learn);
        }
        if segment.source.is_none() && !segment.stays && more_here {
            self.op(&ArgOp::Savefh);
            lead.push(Prefix::Keep(OpNum::SAVEFH));
            self.saved = Some(segment.place.clone());
        }
    }

    fn walk(&mut self, way: PathOf, place: &Place, lead: &mut Vec<Prefix>) {
        let put = match &place.base {
            Base::Top => self.top.clone(),
            Base::Handle(fh) => ArgOp::Putfh(fh.clone()),
        };
        self.op(&put);
        lead.push(Prefix::Put(way, put.op()));
        for (n, step) in place.steps.iter().enumerate() {
            let op = match step {
                Step::Name(name) => ArgOp::Lookup(name.clone()),
                Step::Up => ArgOp::Lookupp,
            };
            self.op(&op);
            lead.push(Prefix::Step(way, n, op.op()));
        }
    }
}

/// The handle that a place begins with, if any.
pub(super) fn base_handle(place: &Place) -> Option<&FileHandle> {
    match &place.base {
        Base::Handle(fh) => Some(fh),
        Base::Top => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_nfs::v4::Stateid;
    use landfast_nfs::v4::args::ReadArgs;
    use landfast_nfs::v4::attr::Bitmap;

    fn segment(op: ArgOp) -> Segment {
        Segment {
            source: None,
            place: Place { base: Base::Handle(FileHandle::default()), steps: Vec::new() },
            known_as: None,
            ops: vec![op],
            reply: 100,
            stays: true,
            changes: false,
            moves: 0,
        }
    }

    /// A server that may be Linux's gets READs and READDIRs first in a COMPOUND, and one of them.
    #[test]
    fn data_is_alone_where_several_of_it_are_not_to_be_trusted() {
        let read = || segment(ArgOp::Read(ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: 10 }));
        let look = || segment(ArgOp::Getattr(Bitmap::default()));
        let limits = SessionLimits {
            ops: 50,
            request: 1 << 20,
            response: 1 << 20,
            response_cached: 1 << 16,
            slots: 8,
        };
        let packed = |packs_data, segments: Vec<Segment>| {
            let mut packer = Packer::new(Capacity::new(&limits, usize::MAX, packs_data), &ArgOp::Putrootfh);
            segments.into_iter().map_while(|s| packer.add((), s, false).is_none().then_some(())).count()
        };
        assert_eq!(packed(true, vec![read(), read(), look(), read()]), 4);
        assert_eq!(packed(false, vec![read(), read()]), 1);
        assert_eq!(packed(false, vec![look(), read()]), 1);
        assert_eq!(packed(false, vec![read(), look(), look(), read()]), 3);
    }
}
