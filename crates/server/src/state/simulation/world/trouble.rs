//! Sleep, lost connections, clients that die, power.

use super::super::rights::{Kind, Who};
use super::World;
use landfast_nfs::v4::SessionId;

impl World<'_> {
    pub(super) fn trouble(&mut self) {
        let people = self.p.all.len() as u64;
        let who = self.c.below(people) as usize;
        match self.c.below(8) {
            0..3 => {
                if self.c.percent(self.power * 20) {
                    self.restarts();
                }
            }
            3..5 => {
                if self.c.percent(self.sleep * 30) {
                    let p = self.person(who);
                    p.asleep = !p.asleep;
                    let asleep = p.asleep;
                    self.m
                        .tells(|| format!("client {who} {}", if asleep { "falls asleep" } else { "wakes" }));
                }
            }
            5..7 => {
                let p = self.person(who);
                p.reached = !p.reached;
                if let Some(session) = p.session {
                    let reached = p.reached;
                    self.m.tells(|| format!("client {who} is reached by callbacks: {reached}"));
                    if reached {
                        self.binds(session);
                    } else {
                        self.s.st.sessions.disconnected(who as u64 + 1);
                    }
                }
            }
            _ => {
                if self.c.one_in(2) {
                    self.crashes(who);
                }
            }
        }
    }

    pub(super) fn binds(&mut self, session: SessionId) {
        let Some(conn) = self.p.all.iter().position(|p| p.session == Some(session)) else { return };
        let st = &mut self.s.st;
        let v = st.next_version();
        let Some(mut s) = st.sessions.get_mut(&session) else { return };
        let news = s.bind_back(conn as u64 + 1);
        if news {
            s.version = v;
        }
        let notes = news.then(|| s.notes());
        let tried = s.back_tried;
        drop(s);
        if !tried {
            st.files.delegations.try_out(session);
        }
        if let Some(notes) = notes {
            self.s.log.append(notes.into(), None);
        }
    }

    /// A client's machine dies and starts again.
    pub(super) fn crashes(&mut self, who: Who) {
        self.m.tells(|| format!("client {who} dies"));
        self.m.rights.retain(|r| r.who != who);
        if self.p.all[who].v3 {
            // It says so.
            self.waiting.retain(|w| w.who != who);
            let p = &self.p.all[who];
            if let Some(host) = self.s.st.hosts.find(p.from, &p.name) {
                let note = self.s.st.nlm_free(host);
                self.s.log.append(note.into_iter().collect(), None);
            }
            return;
        }
        let p = self.person(who);
        p.verifier = p.verifier.wrapping_add(1);
        (p.session, p.connecting, p.out) = (None, None, [None, None]);
        p.recalled.clear();
        p.free.clear();
        p.again.clear();
        (p.tests, p.id) = (false, 0);
        self.m.ids[who] = 0;
        self.m.knows[who].renewed = None;
    }

    pub(super) fn restarts(&mut self) {
        self.brink = None;
        let in_order = self.c.one_in(4);
        if in_order {
            while self.s.log.late() > 0 {
                self.arrives_late();
            }
            self.flushes();
        } else if self.c.one_in(2) {
            self.arrives_late();
        }
        self.cut |= !in_order;
        let takes = self.c.below(self.s.log.at_risk() as u64 + 1) as usize;
        self.m.tells(|| {
            format!(
                "THE SERVER {}",
                if in_order { "is restarted".to_owned() } else { format!("loses power, and {takes} groups") }
            )
        });
        let has_to_reclaim = |id: &u64| self.s.st.clients.get(*id).is_some_and(|c| c.needs_reclaim);
        let dead: Vec<bool> = self.m.ids.iter().map(has_to_reclaim).collect();
        // NLM has no RECLAIM_COMPLETE: a host that reclaimed a part could reclaim the rest now (documented). It was refused when the
        // grace period was over.
        if !self.s.st.grace.may_reclaim(self.m.now) {
            self.m.rights.retain(|r| !(r.reclaim && self.p.all[r.who].v3));
        }
        self.s.restarts(&mut self.m, takes, in_order);
        let f = &self.s.st.files;
        let (locks, delegations) = (f.locks.len(), f.delegations.live());
        self.m.tells(|| format!("  {locks} locks and {delegations} delegations are there again"));
        self.m.figures.restarts += 1;
        self.m.started = self.m.now;
        self.waiting.clear();
        for (p, id) in self.p.all.iter_mut().zip(&mut self.m.ids) {
            // The server may know a client by an ID that the client has not heard of.
            p.connecting = None;
            let known = p.asked.iter().rev().find(|id| self.s.st.clients.get(**id).is_some());
            *id = known.copied().unwrap_or(p.id);
            p.out.iter_mut().flatten().for_each(|out| out.lost = true);
            // What a former instance gave and this one does not know is anybody's who has the right to the file (documented): not tried.
            p.out.iter_mut().for_each(|out| drop(out.take_if(|out| out.forged.is_some())));
        }
        for right in &mut self.m.rights {
            if self.p.all[right.who].v3 {
                // It is told (SM_NOTIFY), and reclaims.
                right.reclaim = true;
            }
            if let Kind::Open { deny, known, .. } = &mut right.kind {
                // Whoever has to reclaim uses nothing, and while he may nobody is given anything.
                if !dead.get(right.who).is_some_and(|dead| *dead) {
                    right.was_known = *known;
                }
                if *deny == 0 {
                    *known = 0;
                }
            }
        }
        // The connections are new.
        for p in 0..self.p.all.len() {
            if let Some(session) = self.p.all[p].session.filter(|_| self.p.all[p].reached) {
                self.binds(session);
            }
        }
    }
}
