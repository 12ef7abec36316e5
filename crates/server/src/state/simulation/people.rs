//! Clients: what each is like, what it has sent and knows, and what it says to callbacks.

use super::super::clock::Millis;
use super::super::delegations::GivenTo;
use super::super::looking::Question;
use super::choices::Choices;
use super::model::Model;
use super::op::{Call, Op};
use super::rights::{File, Kind, Who};
use super::server::{Answer, Holders};
use bytes::Bytes;
use landfast_nfs::v4::{SessionId, Stateid};
use std::net::IpAddr;

/// A request without its reply.
#[derive(Debug, Clone)]
pub(super) struct Out {
    pub(super) call: Call,
    pub(super) sent: Millis,
    /// It has to be sent again.
    pub(super) lost: bool,
    /// It names what is another client's, and is not to succeed.
    pub(super) forged: Option<u64>,
    pub(super) must_fail: bool,
}

#[derive(Debug)]
pub(super) struct Person {
    /// Locks by NLM and calls by NFSv3.
    pub(super) v3: bool,
    pub(super) from: IpAddr,
    pub(super) name: Bytes,
    pub(super) verifier: u8,
    pub(super) id: u64,
    pub(super) session: Option<SessionId>,
    /// A session that waits for the log, and the client ID that it is for.
    pub(super) connecting: Option<(u64, SessionId, u64)>,
    /// The client IDs of all sessions that it has asked for since it had one.
    pub(super) asked: Vec<u64>,
    pub(super) sequences: [u32; 2],
    pub(super) out: [Option<Out>; 2],
    /// Callbacks reach it.
    pub(super) reached: bool,
    pub(super) asleep: bool,
    pub(super) complete: bool,
    /// In how many percent of all cases it returns late, denies to know a delegation, does not answer.
    pub(super) late: u64,
    pub(super) wrong: u64,
    pub(super) recalled: Vec<Stateid>,
    /// It is to test what it has, and to free these.
    pub(super) tests: bool,
    pub(super) free: Vec<Stateid>,
    /// Delegations that it has denied to know.
    pub(super) denied: Vec<Stateid>,
    /// What it gave up in a session that is gone.
    pub(super) again: Vec<Op>,
    /// The sizes of files that it has written to under delegations.
    pub(super) sizes: Vec<(File, u64)>,
}

pub(super) struct People {
    pub(super) all: Vec<Person>,
    /// How chance goes on for who is asked something by the server.
    pub(super) chance: u64,
}

impl People {
    fn who(&self, client: u64) -> Option<Who> {
        self.all.iter().position(|p| !p.v3 && p.id == client && client != 0)
    }

    fn percent(&mut self, n: u64) -> bool {
        let mut choices = Choices::Seed(self.chance);
        let yes = choices.percent(n);
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        yes
    }
}

impl Holders for People {
    fn recalled(
        &mut self,
        m: &mut Model,
        client: u64,
        stateid: &Stateid,
        referring: Option<&GivenTo>,
    ) -> Answer {
        let Some(who) = self.who(client) else { return Answer::None };
        let Some(p) = self.all.get(who) else { return Answer::None };
        if p.asleep {
            return Answer::None;
        }
        let waits = |by: &GivenTo| {
            let out = p.out.get(by.slot as usize).and_then(Option::as_ref);
            p.session == Some(by.session) && out.is_some_and(|out| out.call.sequence == by.sequence)
        };
        if referring.is_some_and(waits) {
            return Answer::Later;
        }
        let wrong = p.wrong;
        let known = m.find(who, stateid).is_some_and(|r| !r.reclaim);
        let answer = if !known {
            Answer::Unknown
        } else if self.percent(wrong) {
            // It says that it has none, and goes by that.
            m.gone(who, stateid);
            if let Some(p) = self.all.get_mut(who) {
                p.denied.push(*stateid);
            }
            Answer::Unknown
        } else if self.percent(10) {
            Answer::Later
        } else {
            if let Some(p) = self.all.get_mut(who) {
                p.recalled.push(*stateid);
            }
            Answer::Ok
        };
        m.tells(|| format!("  client {who} answers a recall of {:02x?}: {answer:?}", &stateid.other[8..]));
        answer
    }

    fn asked(&mut self, m: &mut Model, question: &Question) -> Option<u64> {
        let who = self.who(question.client)?;
        let p = self.all.get(who)?;
        let file = u16::from_be_bytes(*question.file.first_chunk()?);
        let holds =
            m.of(who).any(|r| r.file == file && !r.reclaim && r.kind == Kind::Delegation { write: true });
        if p.asleep || !holds {
            return None;
        }
        let size = p.sizes.iter().find(|(f, _)| *f == file).map(|(_, size)| *size)?;
        (!self.percent(15)).then_some(size)
    }

    fn size_at_holder(&self, m: &Model, file: File) -> Option<u64> {
        let holder = m.rights.iter().find(|r| {
            r.file == file
                && !r.reclaim
                && r.kind == Kind::Delegation { write: true }
                && m.knows.get(r.who).is_some_and(|k| k.is_sure(m.now, m.lease))
        })?;
        let sizes = &self.all.get(holder.who)?.sizes;
        sizes.iter().find(|(f, _)| *f == file).map(|(_, size)| *size)
    }

    fn is_reached(&self, client: u64) -> bool {
        self.who(client).and_then(|who| self.all.get(who)).is_some_and(|p| p.reached && !p.asleep)
    }
}
