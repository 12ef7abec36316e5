//! What the server does by itself: callbacks, recalls, revocations, ticks (`backchannel/`).

use super::super::model::Model;
use super::{Answer, Holders, Recalling, Server, TICK, attrs, lease};
use crate::limits;
use crate::state::asked::Told;
use crate::state::bugs::{Bug, bug};
use crate::state::clock::Millis;

impl Server {
    /// What the server does by itself once the log has what it waits for.
    pub(super) fn goes_on(&mut self, m: &mut Model) {
        let mut again = Vec::new();
        for (client, group) in std::mem::take(&mut self.expelling) {
            if self.log.is_durable(group) {
                m.figures.lapsed += 1;
                self.took = true;
                m.tells(|| format!("  client {client:x} is expelled"));
                let notes = self.st.remove_client(client);
                self.write_down(notes);
            } else {
                again.push((client, group));
            }
        }
        self.expelling = again;
        for (id, client, group) in std::mem::take(&mut self.revoking) {
            if self.log.is_durable(group) {
                m.tells(|| format!("  delegation {id:x} is revoked"));
                self.took = true;
                let notes = self.st.revoke(client, id);
                self.write_down(notes);
            } else {
                self.revoking.push((id, client, group));
            }
        }
        for (question, told, group) in std::mem::take(&mut self.tells) {
            if self.log.is_durable(group) {
                self.st.files.is_told(&question, told);
            } else {
                self.tells.push((question, told, group));
            }
        }
        if self.ends_grace.is_some_and(|group| self.log.is_durable(group)) {
            self.ends_grace = None;
            self.st.grace.ended();
            m.tells(|| "  the grace period is over".to_owned());
        }
        self.lets_go();
    }

    /// What the server does by itself: callbacks, recalls, revocations.
    pub(in super::super) fn polls(&mut self, m: &mut Model, holders: &mut dyn Holders) {
        for session in self.st.files.delegations.take_untried() {
            let reached = self
                .st
                .sessions
                .get(&session)
                .is_some_and(|s| s.can_call_back() && holders.is_reached(s.client));
            if let Some(mut s) = self.st.sessions.get_mut(&session).filter(|_| reached) {
                s.back_tried = true;
            }
        }
        while let Some(client) = self.st.files.delegations.take_lapsed() {
            let notes = self.st.note_expulsion(client);
            let group = if bug(Bug::ExpulsionUnlogged) { 0 } else { self.write_down(notes) };
            self.expelling.push((client, group));
        }
        let of = |recalls: &[Recalling], client| recalls.iter().filter(|r| r.recall.client == client).count();
        while let Some(recall) = {
            let recalls = &self.recalls;
            self.st.files.take_recall(|client| of(recalls, client) < limits::RECALLS_AT_ONCE)
        } {
            m.tells(|| format!("  delegation {:x} of client {:x} is recalled", recall.id, recall.client));
            m.is_recalled(recall.client, &recall.stateid);
            let (until, next) = (self.now + lease(), self.now);
            let pause = limits::RECALL_PAUSE.as_millis() as Millis;
            self.recalls.push(Recalling { recall, until, next, pause, unknown: 0, answered: false });
        }
        self.recalls_go_on(m, holders);
        while let Some(question) = self.st.files.take_question(|_| true) {
            let reached = holders.is_reached(question.client) && {
                let sessions = self.st.sessions.of_client(question.client);
                sessions.iter().any(|id| self.st.sessions.get(id).is_some_and(|s| s.can_call_back()))
            };
            let said = if reached { holders.asked(m, &question) } else { None };
            match said {
                Some(size) => {
                    self.st.files.answers(question.client, true);
                    self.change += 4;
                    let told = Told::of(&attrs(size, self.change - 1));
                    let group = self.log.append(Vec::new(), None);
                    self.tells.push((question, told, group));
                }
                None => {
                    self.questions.push((question, self.now + limits::GETATTR_PATIENCE.as_millis() as Millis))
                }
            }
        }
        for (question, until) in std::mem::take(&mut self.questions) {
            if self.now >= until {
                self.st.files.answers(question.client, false);
                self.st.files.is_not_told(self.now, &question);
            } else {
                self.questions.push((question, until));
            }
        }
        self.goes_on(m);
    }

    pub(super) fn recalls_go_on(&mut self, m: &mut Model, holders: &mut dyn Holders) {
        for mut r in std::mem::take(&mut self.recalls) {
            let id = r.recall.id;
            if !self.st.files.is_delegated(id) {
                continue;
            }
            if !r.answered && self.now >= r.next && self.now < r.until {
                let by = r.recall.given_to;
                let sessions = self.st.sessions.of_client(r.recall.client);
                let reached = holders.is_reached(r.recall.client)
                    && sessions.iter().any(|id| self.st.sessions.get(id).is_some_and(|s| s.can_call_back()));
                let last = self.st.sessions.get(&by.session).map(|s| s.last_sequence(by.slot));
                let referring = (last == Some(by.sequence) && !bug(Bug::UnknownAtOnce)).then_some(&by);
                let said = if reached {
                    holders.recalled(m, r.recall.client, &r.recall.stateid, referring)
                } else {
                    Answer::None
                };
                match said {
                    Answer::Ok => r.answered = true,
                    Answer::Unknown => {
                        r.unknown += 1;
                        if r.unknown >= limits::RECALL_UNKNOWN_TRIES || bug(Bug::UnknownAtOnce) {
                            m.tells(|| format!("  delegation {id:x} is not known to its holder"));
                            self.st.files.delegation_is_unknown(id);
                            continue;
                        }
                    }
                    Answer::Later | Answer::None => {}
                }
                if said != Answer::None {
                    self.st.files.answers(r.recall.client, true);
                }
                r.next = self.now + r.pause;
                r.pause = (r.pause * 2).min(limits::RECALL_PAUSE_MAX.as_millis() as Millis);
            }
            if self.now >= r.until {
                let notes = self.st.note_revocation(id);
                let group = self.write_down(notes);
                self.revoking.push((id, r.recall.client, group));
                continue;
            }
            self.recalls.push(r);
        }
        self.lets_go();
    }

    /// What runs every few seconds.
    pub(in super::super) fn ticks(&mut self, m: &mut Model) {
        if self.now < self.next_tick {
            return;
        }
        self.next_tick = self.now + TICK;
        let now = self.now;
        let mut notes = self.st.tick(now);
        self.st.tick_owners(now);
        let over = self.st.end_grace(now);
        let ends = over.is_some();
        notes.extend(over.unwrap_or_default());
        let group = self.write_down(notes);
        if ends {
            self.ends_grace = Some(group);
        }
        self.lets_go();
        self.goes_on(m);
    }
}
