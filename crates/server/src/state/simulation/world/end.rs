//! The end: all that is held is given back, and nothing is left of it.

use super::super::checks;
use super::super::op::Op;
use super::super::rights::{Kind, Who};
use super::super::server::key;
use super::World;
use crate::state::clock::Millis;
use crate::state::delegations::Touch;

impl World<'_> {
    /// The end: nobody asks for anything new, all that is held is given back, and nothing is left of it.
    pub(super) fn winds_down(&mut self) {
        self.m.tells(|| "THE END: all is given back".to_owned());
        let cut = self.cut;
        // Bytes that are used up would let nothing arrive.
        self.late = 0;
        for who in 0..self.p.all.len() {
            let p = self.person(who);
            (p.late, p.wrong, p.asleep, p.reached) = (0, 0, false, true);
            if let Some(session) = p.session {
                self.binds(session);
            }
            self.split = 0;
        }
        self.settles_down();
        // What a client has given back and the log has not heard of is there again after a power cut, until somebody asks for it.
        for file in 0..=self.s.files {
            self.s.st.clear_delegations(self.m.now, &key(file), None, Touch::Changes);
        }
        self.settles_down();
        // Ticks tell the log.
        for _ in 0..4 {
            self.later(6000);
            self.flushes();
            self.settles();
        }
        self.settles_down();
        if self.m.fault.is_some() {
            return;
        }
        checks::holds(&self.s.st, &mut self.m);
        checks::is_empty(&self.s.st, &mut self.m, cut);
        self.s.restarts(&mut self.m, 0, false);
        checks::is_empty(&self.s.st, &mut self.m, cut);
        if !self.s.st.clients.iter().all(|c| !c.needs_reclaim) {
            self.m.fails("a client that holds nothing has to reclaim".to_owned());
        }
    }

    /// Until everybody has given back what he has and is heard.
    pub(super) fn settles_down(&mut self) {
        let since = self.m.now;
        self.later(1);
        for _ in 0..300 {
            self.flushes();
            self.settles();
            self.connects();
            let mut idle = true;
            for who in 0..self.p.all.len() {
                idle &= self.gives_back(who, since);
            }
            self.s.polls(&mut self.m, &mut self.p);
            self.s.unparks(&mut self.m, &self.p);
            if self.m.fault.is_some() || idle && self.s.is_at_rest() && self.s.sent.is_empty() {
                return;
            }
            self.later(2000);
        }
        self.m.fails("somebody waits for ever".to_owned());
    }

    /// Whether this one has nothing left to do.
    pub(super) fn gives_back(&mut self, who: Who, since: Millis) -> bool {
        if self.p.all[who].v3 {
            if self.m.of(who).next().is_some() || self.waiting.iter().any(|w| w.who == who) {
                self.crashes(who);
            }
            return true;
        }
        let p = &self.p.all[who];
        if p.session.is_none() {
            if p.connecting.is_none() {
                self.asks_for_session(who);
            }
            return false;
        }
        for slot in 0..2 {
            if let Some(out) = &self.p.all[who].out[slot] {
                if out.lost {
                    self.sends_again(who, slot);
                }
                return false;
            }
        }
        let p = &self.p.all[who];
        let busy = !p.again.is_empty() || p.tests || !p.free.is_empty() || !p.complete;
        if busy {
            if let Some(op) = self.next(who) {
                self.sends(who, 0, op, None);
            }
            return false;
        }
        let Some(right) = self.m.of(who).next().cloned() else {
            // It hears whether anything is left.
            return self.m.knows[who].renewed.is_some_and(|at| at > since) || {
                self.sends(who, 0, Op::Nothing, None);
                false
            };
        };
        let (file, stateid) = (right.file, right.stateid);
        match right.kind {
            Kind::Delegation { .. } | Kind::Names { .. } => self.returns(who, 0, file, stateid),
            Kind::Open { .. } => self.sends(who, 0, Op::Close { file, stateid }, None),
            Kind::Locks { .. } => {
                // It goes with its open, or it is freed.
                let under =
                    self.m.of(who).find(|r| matches!(r.kind, Kind::Open { .. }) && r.file == file).cloned();
                match under {
                    Some(open) => self.sends(who, 0, Op::Close { file, stateid: open.stateid }, None),
                    None => self.m.gone(who, &stateid),
                }
            }
        }
        false
    }
}
