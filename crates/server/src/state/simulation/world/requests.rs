//! Requests of NFSv4.1, sent, sent again and answered.

use super::super::op::{Call, Op, file_of, stateid_of};
use super::super::people::Out;
use super::super::rights::{DIRECTORY, File, Kind, Right, Who, set_range, share_range};
use super::World;
use landfast_nfs::v4::{NfsStat, Stateid};

impl World<'_> {
    pub(super) fn acts(&mut self, who: Who) {
        let p = &self.p.all[who];
        if p.v3 {
            return self.acts_v3(who);
        }
        if p.asleep || p.connecting.is_some() {
            return;
        }
        if p.session.is_none() {
            return self.asks_for_session(who);
        }
        match &p.out {
            [None, _] => {
                if let Some(op) = self.next(who) {
                    self.sends(who, 0, op, None);
                }
            }
            [Some(out), _] if out.lost => self.sends_again(who, 0),
            [Some(out), None] => {
                // What was recalled comes back though another request waits.
                let busy = file_of(&out.call.op);
                let recalled = self.p.all[who].recalled.clone();
                let next = recalled.iter().find_map(|s| {
                    let right = self.m.of(who).find(|r| r.stateid.other == s.other)?;
                    (busy.is_none_or(|busy| busy != right.file)).then_some((right.file, *s))
                });
                match next {
                    Some((file, stateid)) if !self.c.percent(self.p.all[who].late) => {
                        self.returns(who, 1, file, stateid)
                    }
                    _ => {
                        if self.c.one_in(4) {
                            self.sends(who, 1, Op::Nothing, None);
                        }
                    }
                }
            }
            [_, Some(out)] if out.lost => self.sends_again(who, 1),
            _ => {}
        }
    }

    pub(super) fn returns(&mut self, who: Who, slot: u32, file: File, stateid: Stateid) {
        // What was written is sent first.
        if file != DIRECTORY
            && let Some(size) = self.p.all[who].sizes.iter().find(|(f, _)| *f == file).map(|(_, size)| *size)
        {
            self.s.grows(file, size);
        }
        self.sends(who, slot, Op::Return { file, stateid }, None);
    }

    pub(super) fn sends(&mut self, who: Who, slot: u32, op: Op, forged: Option<u64>) {
        let p = &mut self.p.all[who];
        let Some(session) = p.session else { return };
        p.sequences[slot as usize] += 1;
        self.prints += 1;
        let call = Call {
            who,
            session,
            slot,
            sequence: p.sequences[slot as usize],
            op: op.clone(),
            print: self.prints,
        };
        p.out[slot as usize] =
            Some(Out { call: call.clone(), sent: self.m.now, lost: false, forged, must_fail: false });
        self.m.tells(|| {
            format!("client {who} slot {slot}: {op:?}{}", if forged.is_some() { " FORGED" } else { "" })
        });
        match forged {
            None => self.gives_up(who, &op),
            Some(of) => self.must_fail(who, slot as usize, of),
        }
        let split = forged.is_none() && self.c.percent(self.split);
        let from = self.p.all[who].from;
        self.s.arrives(&mut self.m, &self.p, call, from, split);
    }

    pub(super) fn sends_again(&mut self, who: Who, slot: usize) {
        // The reply may be as old as the first sending: that one counts for the lease.
        let Some(out) = self.p.all[who].out[slot].as_mut() else { return };
        out.lost = false;
        let (call, forged) = (out.call.clone(), out.forged);
        self.m.tells(|| format!("client {who} slot {slot} sends again: {:?}", call.op));
        if let Some(of) = forged {
            self.must_fail(who, slot, of);
        }
        let from = self.p.all[who].from;
        self.s.arrives(&mut self.m, &self.p, call, from, false);
    }

    /// What a client forges must fail if the server knows whose it is. (A stateid of a former instance that this one does not know is anybody's, but
    /// for his right to the file.)
    pub(super) fn must_fail(&mut self, who: Who, slot: usize, of: u64) {
        let Some(out) = self.p.all[who].out[slot].as_mut() else { return };
        out.must_fail = stateid_of(&out.call.op).is_some_and(|s| self.s.st.files.find(of, &s).is_ok());
    }

    /// What a request gives up is given up when it is sent.
    pub(super) fn gives_up(&mut self, who: Who, op: &Op) {
        match op {
            Op::Close { stateid, .. } => {
                let other = stateid.other;
                self.m.rights.retain(|r| {
                    r.who != who || !matches!(&r.kind, Kind::Locks { open, .. } if *open == other)
                });
                self.m.gone(who, stateid);
            }
            Op::Return { file, stateid } => {
                self.m.gone(who, stateid);
                let p = self.person(who);
                p.recalled.retain(|s| s.other != stateid.other);
                p.sizes.retain(|(f, _)| f != file);
            }
            Op::Unlock { stateid, range, .. } => {
                if let Some(right) = self.m.find(who, stateid)
                    && let Kind::Locks { ranges, .. } = &mut right.kind
                {
                    set_range(ranges, *range, None);
                }
            }
            Op::Lock { file, owner, exclusive: false, range, .. } => {
                let right = self.m.rights.iter_mut().find(|r| {
                    r.who == who
                        && r.file == *file
                        && matches!(&r.kind, Kind::Locks { owner: o, .. } if o == owner)
                });
                if let Some(Right { kind: Kind::Locks { ranges, .. }, reclaim: false, .. }) = right {
                    share_range(ranges, *range);
                }
            }
            Op::Downgrade { stateid, access: to, deny: less, .. } => {
                if let Some(right) = self.m.find(who, stateid)
                    && let Kind::Open { access, deny, known, .. } = &mut right.kind
                {
                    (*access, *deny) = (*access & to, *deny & less);
                    *known &= to;
                }
            }
            _ => {}
        }
    }

    pub(super) fn delivers(&mut self) {
        if self.s.sent.is_empty() {
            return;
        }
        let at = self.c.below(self.s.sent.len() as u64) as usize;
        let (call, reply) = self.s.sent.remove(at);
        let lost = self.c.one_in(12) || self.p.all[call.who].asleep;
        let p = &mut self.p.all[call.who];
        let Some(out) = p.out[call.slot as usize]
            .as_mut()
            .filter(|out| out.call == call && p.session == Some(call.session))
        else {
            return;
        };
        if lost || reply.sequence == NfsStat::NFS4ERR_DELAY {
            out.lost = true;
            self.m.tells(|| {
                format!("client {} slot {}: the reply is lost ({:?})", call.who, call.slot, reply.sequence)
            });
            return;
        }
        let out = p.out[call.slot as usize].take();
        if let Some(out) = out {
            self.hears(&call, &reply, &out);
        }
    }
}
