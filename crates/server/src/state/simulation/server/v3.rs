//! Calls of NFSv3 and of NLM (`v3/`, `nlm/`).

use super::super::model::Model;
use super::super::op::{Call, Op};
use super::super::rights::{File, Who};
use super::{Asker, Holders, Server, Work, key, owner};
use crate::state::delegations::Touch;
use crate::state::locks::LockError;
use crate::state::nlm::LockRequest;
use crate::state::notes::Stamped;
use crate::state::opens::{Share, WRITE};
use crate::state::ranges::Span;
use bytes::Bytes;
use landfast_nfs::v4::NfsStat;
use std::net::IpAddr;

/// What an NLM host asks for.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Nlm {
    Lock { owner: u8, exclusive: bool, range: (u64, u64) },
    Share { owner: u8, access: Share, deny: Share },
}

impl Server {
    /// A call of NFSv3.
    pub(in super::super) fn serves_v3(
        &mut self,
        m: &mut Model,
        holders: &dyn Holders,
        who: Who,
        op: Op,
        from: IpAddr,
    ) -> NfsStat {
        let by = Asker { who, client: None, session: None, from };
        let call = Call { who, session: [0; 16], slot: 0, sequence: 0, op, print: 0 };
        let mut work = Work::new(by, call, 0, 0);
        work.may_wait = false;
        let done = self.before(m, holders, &mut work).and_then(|()| self.second(m, &mut work));
        work.touching.clear();
        let mut notes = std::mem::take(&mut work.notes);
        if work.modified {
            notes.extend(self.st.take_gone());
            self.log.append(notes, work.renamed.then_some(self.names));
        } else {
            self.write_down(notes);
        }
        self.lets_go();
        done.map_or_else(|status| status, |done| done.status)
    }

    /// LOCK or SHARE of NLM. Returns the group that the log must have before the host is told, and whether the host is noted by that.
    pub(in super::super) fn serves_nlm(
        &mut self,
        m: &Model,
        (from, name): (IpAddr, &Bytes),
        file: File,
        ask: &Nlm,
        reclaim: bool,
    ) -> Option<(u64, u64, bool)> {
        let touch = match ask {
            Nlm::Lock { exclusive, .. } => Touch::of_lock(*exclusive),
            Nlm::Share { access, deny, .. } => Touch::of_lock(access & WRITE != 0 || *deny != 0),
        };
        if self.touches.any_delegation() && !self.st.clear_delegations(self.now, &key(file), None, touch) {
            return None;
        }
        let refused =
            if reclaim { !self.st.grace.may_reclaim(self.now) } else { self.st.grace.active(self.now) };
        if refused {
            return None;
        }
        let (host, note) = self.st.nlm_host(from, name, self.now).ok()?;
        if reclaim && self.st.hosts.get(host).is_none_or(|h| !h.restored) {
            return None;
        }
        let mut notes: Vec<Stamped> = note.into_iter().collect();
        let granted = loop {
            let lapsed = match ask {
                Nlm::Lock { owner: by, exclusive, range } => {
                    let span = Span::of(range.0, range.1)?;
                    let ask = LockRequest {
                        host,
                        from,
                        owner: owner(*by),
                        file: key(file),
                        span,
                        exclusive: *exclusive,
                    };
                    match self.st.files.nlm_lock(&ask) {
                        Ok(()) => break true,
                        Err(LockError::Denied(d)) => d.client,
                        Err(LockError::Status(_)) => break false,
                    }
                }
                Nlm::Share { owner: by, access, deny } => {
                    if *deny != 0 && !reclaim && self.st.may_have_unknown_opens(self.now) {
                        break false;
                    }
                    match self.st.files.nlm_share((host, from), &owner(*by), &key(file), *access, *deny) {
                        Ok(Ok(())) => break true,
                        Ok(Err(who)) => who.client,
                        Err(_) => break false,
                    }
                }
            };
            if !self.st.lapsed(lapsed, self.now) {
                break false;
            }
            notes.extend(self.removes(lapsed));
        };
        let _ = m;
        notes.extend(self.st.removals.unsettled());
        let noted = if granted { self.st.nlm_note(host) } else { None };
        let news = noted.is_some();
        notes.extend(noted);
        let group = if notes.is_empty() { 0 } else { self.log.append_late(notes) };
        self.lets_go();
        granted.then_some((host, group, news))
    }
}
