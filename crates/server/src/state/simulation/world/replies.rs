//! What a client makes of a reply.

use super::super::op::{Call, Done, Op, Reply, file_of, stateid_of};
use super::super::people::Out;
use super::super::rights::{DIRECTORY, File, Kind, Right, Who, set_range};
use super::super::server::key;
use super::World;
use crate::state::opens::{READ, Share, WRITE};
use landfast_nfs::v4::flags::SEQ4_STATUS_RECALLABLE_STATE_REVOKED;
use landfast_nfs::v4::{NfsStat, Stateid};

impl World<'_> {
    pub(super) fn hears(&mut self, call: &Call, reply: &Reply, out: &Out) {
        let who = call.who;
        self.m.tells(|| {
            format!("client {who} slot {} hears: {:?} {:?}", call.slot, reply.sequence, reply.done)
        });
        match reply.sequence {
            NfsStat::NFS4_OK => {}
            NfsStat::NFS4ERR_BADSESSION | NfsStat::NFS4ERR_DEADSESSION => {
                return self.loses_session(who, Some(call));
            }
            other => return self.m.fails(format!("client {who} gets {other:?} for {call:?}")),
        }
        let knows = &mut self.m.knows[who];
        knows.renewed = Some(knows.renewed.unwrap_or(0).max(out.sent));
        let p = &mut self.p.all[who];
        if reply.flags & SEQ4_STATUS_RECALLABLE_STATE_REVOKED != 0 {
            (p.tests, knows.doubts) = (true, true);
        } else if !p.tests {
            knows.doubts = false;
        }
        if out.forged.is_some() {
            if reply.done.status.is_ok() {
                let known = stateid_of(&call.op)
                    .is_some_and(|s| self.s.st.files.find(out.forged.unwrap_or(0), &s).is_ok());
                if out.must_fail && known {
                    self.m.fails(format!("client {who} uses another client's stateid: {call:?}"));
                }
                if let Op::Read { file, stateid }
                | Op::Write { file, stateid }
                | Op::Downgrade { file, stateid, .. } = call.op
                {
                    self.p.all[who].again.push(Op::Close { file, stateid: Stateid { seqid: 0, ..stateid } });
                }
            }
            return;
        }
        self.learns(who, call, &reply.done);
    }

    /// The session is gone; perhaps the client record, too.
    pub(super) fn loses_session(&mut self, who: Who, call: Option<&Call>) {
        self.m.knows[who].doubts = true;
        let p = &mut self.p.all[who];
        p.session = None;
        let out = std::mem::take(&mut p.out).into_iter().flatten().map(|out| out.call);
        for call in out.chain(call.cloned()) {
            match call.op {
                op @ (Op::Close { .. } | Op::Return { .. } | Op::Unlock { .. } | Op::Free { .. }) => {
                    p.again.push(op)
                }
                // Not known what came of it.
                Op::Open { .. } | Op::OpenFile { .. } | Op::Lock { .. } | Op::Directory { .. } => {}
                _ => {}
            }
        }
    }

    pub(super) fn learns(&mut self, who: Who, call: &Call, done: &Done) {
        let ok = done.status.is_ok();
        let forgotten = self.s.executed_before;
        let op = call.op.clone();
        match op {
            Op::Open { owner, access, deny, .. }
            | Op::OpenFile { owner, access, deny, .. }
            | Op::Reclaim { owner, access, deny, .. } => {
                let reclaims = matches!(op, Op::Reclaim { .. });
                if ok {
                    let by_delegation = matches!(op, Op::OpenFile { by: Some(_), .. });
                    self.opened(who, done, owner, (access, deny), by_delegation);
                    self.m.figures.reclaimed += u64::from(reclaims);
                } else if reclaims && !matches!(done.status, NfsStat::NFS4ERR_GRACE | NfsStat::NFS4ERR_DELAY)
                {
                    let file = file_of(&op).unwrap_or(DIRECTORY);
                    self.m.rights.retain(|r| r.who != who || r.file != file || !r.reclaim);
                }
            }
            Op::Downgrade { ref stateid, access, deny, .. } if ok => {
                if let Some(right) = self.m.find(who, stateid) {
                    right.stateid = done.stateid;
                    if let Kind::Open { access: a, deny: d, known, .. } = &mut right.kind {
                        // A former instance may have executed it.
                        let knows = if done.at > forgotten { access } else { *known & access };
                        (*a, *d, *known) = (access, deny, knows);
                    }
                }
            }
            Op::Lock { file, open, owner, known, exclusive, range, reclaim } => {
                if ok {
                    self.m.figures.locks += 1;
                    let open = known.map_or(open.other, |_| open.other);
                    let mut ranges = Vec::new();
                    let before = self.m.of(who).find(|r| {
                        r.file == file && matches!(&r.kind, Kind::Locks { owner: o, .. } if *o == owner)
                    });
                    let mut broken = None;
                    if let Some(Right {
                        kind: Kind::Locks { ranges: r, .. },
                        broken: b,
                        reclaim: false,
                        ..
                    }) = before
                    {
                        ranges.clone_from(r);
                        broken.clone_from(b);
                    } else if let (true, Some(before)) = (reclaim, before) {
                        // All but one are given up, to keep it simple.
                        broken.clone_from(&before.broken);
                    }
                    set_range(&mut ranges, range, Some(exclusive));
                    let kind = Kind::Locks { owner, ranges, open };
                    let at = done.at;
                    self.has(Right { broken, at, ..Right::new(who, file, done.stateid, kind) });
                    let want = if exclusive { WRITE } else { READ };
                    if let Some(right) =
                        self.m.rights.iter_mut().find(|r| r.who == who && r.stateid.other == open)
                        && let Kind::Open { access, known, .. } = &mut right.kind
                    {
                        *known |= want & *access;
                    }
                    self.m.figures.reclaimed += u64::from(reclaim);
                } else if reclaim && !matches!(done.status, NfsStat::NFS4ERR_GRACE | NfsStat::NFS4ERR_DELAY) {
                    self.m.rights.retain(|r| {
                        r.who != who
                            || !r.reclaim
                            || !matches!(&r.kind, Kind::Locks { owner: o, .. } if *o == owner)
                    });
                } else if matches!(done.status, NfsStat::NFS4ERR_BAD_STATEID) {
                    self.refused(who, &known.unwrap_or(open), done.status, &op);
                }
            }
            Op::Unlock { ref stateid, .. } => {
                if ok {
                    if let Some(right) = self.m.find(who, stateid) {
                        right.stateid = done.stateid;
                    }
                } else {
                    self.refused(who, stateid, done.status, &op);
                }
            }
            Op::Read { ref stateid, .. } | Op::Write { ref stateid, .. } => match done.status {
                NfsStat::NFS4ERR_BAD_STATEID | NfsStat::NFS4ERR_OPENMODE | NfsStat::NFS4ERR_DELEG_REVOKED => {
                    self.refused(who, stateid, done.status, &op);
                    // The server may know of it, if not for this.
                    if done.status == NfsStat::NFS4ERR_OPENMODE
                        && let Some(file) = file_of(&op)
                    {
                        let stateid = Stateid { seqid: 0, ..*stateid };
                        self.p.all[who].again.push(Op::Close { file, stateid });
                    }
                }
                _ => {}
            },
            Op::Return { ref stateid, .. } if done.status == NfsStat::NFS4ERR_DELEG_REVOKED => {
                self.p.all[who].free.push(*stateid);
            }
            Op::Test { ref stateids } => {
                for (stateid, status) in stateids.iter().zip(&done.tests) {
                    if *status == NfsStat::NFS4ERR_DELEG_REVOKED {
                        self.p.all[who].free.push(*stateid);
                    }
                    if matches!(*status, NfsStat::NFS4ERR_DELEG_REVOKED | NfsStat::NFS4ERR_BAD_STATEID)
                        && self
                            .m
                            .find(who, stateid)
                            .is_some_and(|r| matches!(r.kind, Kind::Delegation { .. } | Kind::Names { .. }))
                    {
                        self.m.gone(who, stateid);
                    }
                }
                (self.p.all[who].tests, self.m.knows[who].doubts) = (false, false);
            }
            Op::Directory { .. } if ok => {
                if let Some((stateid, write)) = done.delegation {
                    let kind = Kind::Names { write };
                    self.forgets_delegation(who, DIRECTORY, &stateid);
                    self.m.figures.given += 1;
                    self.has(Right { at: done.at, ..Right::new(who, DIRECTORY, stateid, kind) });
                }
            }
            Op::Complete if done.status != NfsStat::NFS4ERR_DELAY => {
                self.p.all[who].complete = true;
                self.m.rights.retain(|r| r.who != who || !r.reclaim);
            }
            _ => {}
        }
    }

    /// What the client has is refused, so it is lost. An open that was not used since a restart may be; nothing else of a client with a lease.
    pub(super) fn refused(&mut self, who: Who, stateid: &Stateid, status: NfsStat, op: &Op) {
        let (now, lease) = (self.m.now, self.m.lease);
        let sure = self.m.knows[who].is_sure(now, lease);
        let Some(right) = self.m.find(who, stateid) else { return };
        let may = match &right.kind {
            Kind::Open { deny, known, access, .. } => *deny == 0 && (*known != *access || *access == 0),
            _ => status == NfsStat::NFS4ERR_DELEG_REVOKED,
        };
        let right = right.clone();
        if !may && sure && !right.reclaim {
            self.m.fails(format!("client {who} is refused {op:?} ({status:?}) though it holds {right:?}"));
        }
        self.m.gone(who, stateid);
        if status == NfsStat::NFS4ERR_DELEG_REVOKED {
            self.p.all[who].free.push(*stateid);
        }
        let other = stateid.other;
        self.m
            .rights
            .retain(|r| r.who != who || !matches!(&r.kind, Kind::Locks { open, .. } if *open == other));
    }

    /// A client that is given another delegation has lost the one that it had, and is to find out.
    fn forgets_delegation(&mut self, who: Who, file: File, new: &Stateid) {
        let is =
            |r: &&Right| r.file == file && matches!(r.kind, Kind::Delegation { .. } | Kind::Names { .. });
        let before = self.m.of(who).find(is).map(|r| r.stateid);
        self.p.all[who].denied.extend(before.filter(|old| old.other != new.other));
    }

    pub(super) fn opened(
        &mut self,
        who: Who,
        done: &Done,
        owner: u8,
        (access, deny): (Share, Share),
        mut by_delegation: bool,
    ) {
        if let Some((stateid, write)) = done.delegation {
            self.m.figures.given += 1;
            let size = self.s.size(done.file);
            self.forgets_delegation(who, done.file, &stateid);
            let p = self.person(who);
            p.sizes.retain(|(f, _)| *f != done.file);
            p.sizes.push((done.file, size));
            let kind = Kind::Delegation { write };
            self.has(Right { at: done.at, ..Right::new(who, done.file, stateid, kind) });
        }
        if done.alone {
            return;
        }
        // A reply that comes after a restart brings an open that the server has forgotten.
        let of_this_instance = done.stateid.other[..4] == (self.s.st.files.mark).to_be_bytes();
        let fresh = if of_this_instance { access } else { 0 };
        let (mut all, mut denies, mut knows, mut broken) = (access, deny, fresh, None);
        let (mut beside, mut reclaimed, at) = (done.beside, false, done.at);
        let before = self
            .m
            .of(who)
            .find(|r| r.file == done.file && matches!(&r.kind, Kind::Open { owner: o, .. } if *o == owner));
        if let Some(before) = before.cloned()
            && let Kind::Open { access, deny, known, .. } = before.kind
        {
            if before.stateid.other == done.stateid.other {
                (all, denies, knows) = (all | access, denies | deny, knows | known);
                broken = before.broken;
                beside |= before.beside;
                by_delegation |= before.by_delegation;
            } else {
                if before.reclaim {
                    broken = before.broken;
                    if deny == 0 {
                        knows &= before.was_known;
                        reclaimed = true;
                    }
                }
                // The server does not know whose open it was that there are locks under: it is closed by its own stateid.
                let (old, file) = (before.stateid, done.file);
                if self.s.st.files.find_open(self.p.all[who].id, &key(file), &old).is_ok() {
                    self.m.rights.retain(|r| {
                        r.who != who || !matches!(&r.kind, Kind::Locks { open, .. } if *open == old.other)
                    });
                    self.p.all[who].again.push(Op::Close { file, stateid: Stateid { seqid: 0, ..old } });
                }
                // Otherwise its locks are under the new one.
                for right in &mut self.m.rights {
                    if let Kind::Locks { open, .. } = &mut right.kind
                        && right.who == who
                        && *open == before.stateid.other
                    {
                        *open = done.stateid.other;
                    }
                }
            }
        }
        let kind = Kind::Open { owner, access: all, deny: denies, known: knows };
        self.has(Right {
            broken,
            beside,
            by_delegation,
            reclaimed,
            at,
            ..Right::new(who, done.file, done.stateid, kind)
        });
    }
}
