//! Hosts that lock by NLM and call by NFSv3.

use super::super::op::Op;
use super::super::rights::{File, Kind, Right, Who, set_range, share_range};
use super::super::server::{Nlm, key, owner};
use super::{Waiting, World};
use crate::state::nlm::LockRequest;
use crate::state::ranges::Span;
use landfast_nfs::v4::Stateid;

impl World<'_> {
    pub(super) fn acts_v3(&mut self, who: Who) {
        let own: Vec<Right> = self.m.of(who).cloned().collect();
        let (from, name) = (self.p.all[who].from, self.p.all[who].name.clone());
        if let Some(lost) = own.iter().find(|r| r.reclaim) {
            return self.reclaims_v3(who, lost.clone());
        }
        let Some(file) = self.file() else { return };
        let by = self.c.below(2) as u8;
        match self.c.below(12) {
            0..3 => {
                let ask = Nlm::Lock { owner: by, exclusive: self.c.one_in(2), range: self.range() };
                self.asks_nlm(who, file, ask, None);
            }
            3 => {
                let (access, deny) = self.access();
                self.asks_nlm(who, file, Nlm::Share { owner: by, access, deny }, None);
            }
            4..6 => {
                let Some(right) = self.c.pick(&own) else { return };
                let Some(host) = self.s.st.hosts.find(from, &name) else { return };
                match right.kind {
                    Kind::Locks { owner: by, .. } => {
                        let range = self.range();
                        let Some(span) = Span::of(range.0, range.1) else { return };
                        let (file, exclusive) = (key(right.file), false);
                        let ask = LockRequest { host, from, owner: owner(by), file, span, exclusive };
                        // A LOCK that waits for the log was executed before this.
                        let stateid = right.stateid;
                        let waiting = self.waiting.iter_mut().map(|w| &mut w.right);
                        let waiting = waiting.filter(|r| r.who == who && r.stateid == stateid);
                        for right in self.m.find(who, &stateid).into_iter().chain(waiting) {
                            if let Kind::Locks { ranges, .. } = &mut right.kind {
                                set_range(ranges, range, None);
                            }
                        }
                        self.m.tells(|| format!("host {who} unlocks {range:?} of file {}", right.file));
                        let _ = self.s.st.files.nlm_unlock(&ask);
                    }
                    Kind::Open { owner: by, .. } => {
                        self.m.gone(who, &right.stateid);
                        self.waiting.retain(|w| w.who != who || w.right.stateid != right.stateid);
                        self.s.st.files.nlm_unshare(host, &owner(by), &key(right.file));
                    }
                    _ => {}
                }
            }
            n => {
                let stateid = Stateid::ANONYMOUS;
                let names = self.names;
                let op = match n {
                    6 => Op::Read { file, stateid },
                    7 => Op::Write { file, stateid },
                    8 => Op::SetAttributes { file },
                    9 => Op::Look { file },
                    10 => Op::Remove { name: self.c.below(names) as usize },
                    _ => Op::Rename { from: self.c.below(names) as usize, to: self.c.below(names) as usize },
                };
                self.m.tells(|| format!("host {who}: {op:?}"));
                self.s.serves_v3(&mut self.m, &self.p, who, op, from);
            }
        }
    }

    pub(super) fn asks_nlm(&mut self, who: Who, file: File, ask: Nlm, reclaim: Option<Right>) {
        // One at a time for each owner, so that what it asks for last is what it has.
        let (by, waits) = match ask {
            Nlm::Lock { owner, .. } | Nlm::Share { owner, .. } => (owner, !self.waiting.is_empty()),
        };
        if waits && self.waiting.iter().any(|w| w.who == who) {
            return;
        }
        let (from, name) = (self.p.all[who].from, self.p.all[who].name.clone());
        let Some((host, group, news)) =
            self.s.serves_nlm(&self.m, (from, &name), file, &ask, reclaim.is_some())
        else {
            return;
        };
        self.m.tells(|| format!("host {who} asks for {ask:?} of file {file}"));
        let mut other = [0xee; 12];
        other[0] = who as u8;
        other[1] = by;
        other[2] = matches!(ask, Nlm::Lock { .. }).into();
        other[3..5].copy_from_slice(&file.to_be_bytes());
        let stateid = Stateid { seqid: 1, other };
        let before = self.m.of(who).find(|r| r.stateid == stateid).cloned();
        let kind = match ask {
            Nlm::Lock { owner, exclusive, range } => {
                let mut ranges = match before {
                    Some(Right { kind: Kind::Locks { ranges, .. }, .. }) => ranges,
                    _ => Vec::new(),
                };
                set_range(&mut ranges, range, Some(exclusive));
                if !exclusive {
                    // What it had of this was its alone until now.
                    let waiting = self.waiting.iter_mut().map(|w| &mut w.right);
                    let waiting = waiting.filter(|r| r.who == who && r.stateid == stateid);
                    for right in self.m.find(who, &stateid).into_iter().chain(waiting) {
                        if let Kind::Locks { ranges, .. } = &mut right.kind {
                            share_range(ranges, range);
                        }
                    }
                }
                Kind::Locks { owner, ranges, open: [0; 12] }
            }
            Nlm::Share { owner, access, deny } => {
                // It replaces the one that it had.
                self.m.gone(who, &stateid);
                Kind::Open { owner, access, deny, known: access }
            }
        };
        let broken = reclaim.and_then(|r| r.broken);
        self.s.executed += 1;
        let at = self.s.executed;
        let right = Right { broken, at, ..Right::new(who, file, stateid, kind) };
        if group == 0 {
            self.has(right);
        } else {
            self.waiting.push(Waiting { who, host, group, news, right });
        }
    }

    pub(super) fn reclaims_v3(&mut self, who: Who, lost: Right) {
        if !self.s.st.grace.may_reclaim(self.m.now) {
            return self.m.gone(who, &lost.stateid);
        }
        match &lost.kind {
            Kind::Locks { owner, ranges, .. } => match ranges.first() {
                None => self.m.gone(who, &lost.stateid),
                Some((first, last, exclusive)) if ranges.len() == 1 => {
                    let ask = Nlm::Lock { owner: *owner, exclusive: *exclusive, range: (*first, *last) };
                    let file = lost.file;
                    self.m.gone(who, &lost.stateid);
                    self.asks_nlm(who, file, ask, Some(lost));
                }
                Some((first, last, exclusive)) => {
                    // All but one are given up, to keep it simple.
                    let one = vec![(*first, *last, *exclusive)];
                    if let Some(right) = self.m.find(who, &lost.stateid)
                        && let Kind::Locks { ranges, .. } = &mut right.kind
                    {
                        *ranges = one;
                    }
                }
            },
            Kind::Open { owner, access, deny, .. } => {
                let ask = Nlm::Share { owner: *owner, access: *access, deny: *deny };
                let file = lost.file;
                self.m.gone(who, &lost.stateid);
                self.asks_nlm(who, file, ask, Some(lost));
            }
            _ => {}
        }
    }
}
