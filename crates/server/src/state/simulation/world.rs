//! Clients, and what happens: requests, lost replies, sleep, the clock, power.

use super::super::Bounds;
use super::super::clients::{CreateSession, ExchangeId};
use super::super::clock::Millis;
use super::super::delegations::{GivenTo, Touch};
use super::super::identity::{Principal, Requester};
use super::super::looking::Question;
use super::super::nlm::LockRequest;
use super::super::opens::{BOTH, READ, Share, WRITE};
use super::super::ranges::Span;
use super::super::sessions::NewSession;
use super::checks;
use super::choices::Choices;
use super::model::{Figures, Model};
use super::rights::{File, Kind, Knows, NAMES, Right, Who, set_range};
use super::server::{Answer, Call, DIRECTORY, Done, Holders, Nlm, Op, Reply, Server, key, lease, owner};
use crate::limited::Limits;
use bytes::Bytes;
use landfast_nfs::v4::flags::{
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN, CREATE_SESSION4_FLAG_PERSIST, SEQ4_STATUS_RECALLABLE_STATE_REVOKED,
};
use landfast_nfs::v4::{ChannelAttrs, NfsStat, SessionId, Stateid};
use landfast_rpc::OpaqueAuth;
use std::net::{IpAddr, Ipv4Addr};

const STEPS: u64 = 160;
/// The most that a message may be on its way.
const DELAY: Millis = 3000;
const RANGES: u64 = 6;

/// A request without its reply.
#[derive(Debug, Clone)]
struct Out {
    call: Call,
    sent: Millis,
    /// It has to be sent again.
    lost: bool,
    /// It names what is another client's, and is not to succeed.
    forged: Option<u64>,
    must_fail: bool,
}

#[derive(Debug)]
struct Person {
    /// Locks by NLM and calls by NFSv3.
    v3: bool,
    from: IpAddr,
    name: Bytes,
    verifier: u8,
    id: u64,
    session: Option<SessionId>,
    /// A session that waits for the log, and the client ID that it is for.
    connecting: Option<(u64, SessionId, u64)>,
    sequences: [u32; 2],
    out: [Option<Out>; 2],
    /// Callbacks reach it.
    reached: bool,
    asleep: bool,
    complete: bool,
    /// In how many percent of all cases it returns late, denies to know a delegation, does not answer.
    late: u64,
    wrong: u64,
    recalled: Vec<Stateid>,
    /// It is to test what it has, and to free these.
    tests: bool,
    free: Vec<Stateid>,
    /// Delegations that it has denied to know.
    denied: Vec<Stateid>,
    /// What it gave up in a session that is gone.
    again: Vec<Op>,
    /// The sizes of files that it has written to under delegations.
    sizes: Vec<(File, u64)>,
}

pub(super) struct People {
    all: Vec<Person>,
    /// How chance goes on for who is asked something by the server.
    chance: u64,
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

/// An NLM request whose reply waits for the log.
struct Waiting {
    who: Who,
    host: u64,
    group: u64,
    news: bool,
    right: Right,
}

struct World<'a> {
    c: Choices<'a>,
    m: Model,
    s: Server,
    p: People,
    waiting: Vec<Waiting>,
    prints: u64,
    sessions: u64,
    /// Power has gone.
    cut: bool,
    /// How much trouble there is in this run, in percent.
    sleep: u64,
    power: u64,
    split: u64,
    late: u64,
}

/// Runs to the end. The error is what was seen, with the history if there is one.
pub(super) fn run(choices: Choices<'_>, with_history: bool) -> Result<Figures, String> {
    let mut world = World::new(choices, with_history);
    let mut steps = 0;
    while steps < STEPS && world.m.fault.is_none() && !world.c.are_over() {
        world.step();
        steps += 1;
    }
    world.m.figures.steps += steps;
    if world.m.fault.is_none() {
        world.winds_down();
    }
    world.m.figures.digest = world.m.now ^ world.m.figures.requests << 40 ^ world.m.figures.given << 52;
    match world.m.fault {
        None => Ok(world.m.figures),
        Some(fault) => {
            let mut told = fault;
            for line in world.m.history.unwrap_or_default() {
                told.push('\n');
                told.push_str(&line);
            }
            Err(told)
        }
    }
}

impl<'a> World<'a> {
    fn new(mut c: Choices<'a>, with_history: bool) -> World<'a> {
        let count = 2 + c.below(3) as usize;
        let mut all = Vec::new();
        for n in 0..count {
            // One in some runs is a host of NFSv3.
            let v3 = n > 1 && c.one_in(2);
            all.push(Person {
                v3,
                from: IpAddr::V4(Ipv4Addr::new(192, 0, 2, n as u8)),
                name: Bytes::copy_from_slice(&[b'c', n as u8]),
                verifier: 1,
                id: 0,
                session: None,
                connecting: None,
                sequences: [0; 2],
                out: [None, None],
                reached: true,
                asleep: false,
                complete: false,
                late: c.pick(&[0, 0, 30, 60, 90]).unwrap_or(0),
                wrong: c.pick(&[0, 0, 20]).unwrap_or(0),
                recalled: Vec::new(),
                tests: false,
                free: Vec::new(),
                denied: Vec::new(),
                again: Vec::new(),
                sizes: Vec::new(),
            });
        }
        let knows = all.iter().map(|p| Knows { always: p.v3, ..Knows::default() }).collect();
        let bounds = Bounds::with(Some(1 << 26), Limits::default());
        let p = People { all, chance: c.below(1 << 20) };
        let m = Model {
            now: 0,
            lease: lease(),
            started: 0,
            rights: Vec::new(),
            knows,
            ids: vec![0; count],
            recalled: Vec::new(),
            fault: None,
            history: with_history.then(Vec::new),
            figures: Figures::default(),
        };
        World {
            s: Server::new(bounds),
            m,
            p,
            waiting: Vec::new(),
            prints: 0,
            sessions: 0,
            cut: false,
            sleep: c.pick(&[0, 1, 3]).unwrap_or(0),
            power: c.pick(&[0, 2, 5]).unwrap_or(0),
            split: c.pick(&[0, 30]).unwrap_or(0),
            late: c.pick(&[0, 30, 60]).unwrap_or(0),
            c,
        }
    }

    fn person(&mut self, who: Who) -> &mut Person {
        &mut self.p.all[who]
    }

    fn step(&mut self) {
        if std::mem::take(&mut self.s.took) && self.power > 0 && !self.c.one_in(3) {
            self.restarts();
        }
        let people = self.p.all.len() as u64;
        match self.c.below(100) {
            0..54 => {
                let who = self.c.below(people) as usize;
                self.acts(who);
            }
            54..72 => self.delivers(),
            72..82 => {
                if self.c.percent(self.late) {
                    self.arrives_late();
                } else {
                    self.flushes();
                }
            }
            82..84 => self.arrives_late(),
            84..88 => self.works(),
            88..90 => self.s.snapshots(),
            90..96 => self.passes(),
            _ => self.trouble(),
        }
        self.s.polls(&mut self.m, &mut self.p);
        self.s.unparks(&mut self.m, &self.p);
        self.connects();
        checks::holds(&self.s.st, &mut self.m);
    }

    fn arrives_late(&mut self) {
        let late = self.s.log.late();
        if late > 0 {
            let at = self.c.below(late as u64) as usize;
            self.s.log.arrives(at);
        }
    }

    fn flushes(&mut self) {
        if self.late == 0 || self.c.one_in(2) {
            while self.s.log.late() > 0 {
                self.arrives_late();
            }
        }
        self.s.flushes(&mut self.m);
        let waiting = std::mem::take(&mut self.waiting);
        for waiting in waiting {
            if !self.s.log.is_durable(waiting.group) {
                self.waiting.push(waiting);
                continue;
            }
            if waiting.news {
                self.s.st.nlm_is_noted(waiting.host);
            }
            self.has(waiting.right);
        }
    }

    fn has(&mut self, right: Right) {
        self.m.tells(|| format!("    client {} has {:?} of file {}", right.who, right.kind, right.file));
        self.m.given(right);
    }

    fn works(&mut self) {
        if self.s.working.is_empty() {
            return;
        }
        let at = self.c.below(self.s.working.len() as u64) as usize;
        let work = self.s.working.remove(at);
        self.s.runs(&mut self.m, &self.p, work, false);
    }

    /// Everything on its way arrives or is lost.
    fn settles(&mut self) {
        while !self.s.working.is_empty() {
            self.works();
        }
        while !self.s.sent.is_empty() {
            self.delivers();
        }
    }

    fn passes(&mut self) {
        let asleep = self.p.all.iter().any(|p| p.asleep);
        let by = match if asleep && self.c.one_in(3) { 11 } else { self.c.below(12) } {
            0..5 => 50 + self.c.below(200),
            5..8 => 500 + self.c.below(DELAY - 500),
            8..11 => 5000 + self.c.below(30_000),
            _ => 70_000 + self.c.below(60_000),
        };
        self.later(by);
    }

    fn later(&mut self, by: Millis) {
        if by > DELAY {
            self.flushes();
            self.settles();
        }
        // Nobody sleeps through a chance to act: the server looks every second.
        let until = self.m.now + by;
        while self.m.now < until {
            let step = (until - self.m.now).min(if by > 20_000 { 5000 } else { 1000 });
            self.m.now += step;
            self.s.now = self.m.now;
            self.s.ticks(&mut self.m);
            self.s.polls(&mut self.m, &mut self.p);
            self.s.unparks(&mut self.m, &self.p);
            if by > DELAY {
                self.flushes();
                self.keeps_leases();
            }
        }
        self.m.tells(|| "later".to_owned());
    }

    /// A client that is awake renews its lease in time.
    fn keeps_leases(&mut self) {
        for who in 0..self.p.all.len() {
            let renewed = self.m.knows.get(who).and_then(|k| k.renewed).unwrap_or(0);
            let p = &self.p.all[who];
            if !p.v3 && !p.asleep && p.session.is_some() && self.m.now - renewed > 20_000 {
                match &p.out {
                    [None, _] => self.sends(who, 0, Op::Nothing, None),
                    [Some(out), _] if out.lost => self.sends_again(who, 0),
                    [_, None] => self.sends(who, 1, Op::Nothing, None),
                    [_, Some(out)] if out.lost => self.sends_again(who, 1),
                    _ => {}
                }
                self.flushes();
                self.settles();
            }
        }
    }

    fn trouble(&mut self) {
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

    fn binds(&mut self, session: SessionId) {
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
    fn crashes(&mut self, who: Who) {
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

    fn restarts(&mut self) {
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
        self.s.restarts(&mut self.m, takes, in_order);
        let f = &self.s.st.files;
        let (locks, delegations) = (f.locks.len(), f.delegations.live());
        self.m.tells(|| format!("  {locks} locks and {delegations} delegations are there again"));
        self.m.figures.restarts += 1;
        self.m.started = self.m.now;
        self.waiting.clear();
        for (p, id) in self.p.all.iter_mut().zip(&mut self.m.ids) {
            (p.connecting, *id) = (None, p.id);
            p.out.iter_mut().flatten().for_each(|out| out.lost = true);
            // What a former instance gave and this one does not know is anybody's who has the right to the file (documented): not tried.
            p.out.iter_mut().for_each(|out| drop(out.take_if(|out| out.forged.is_some())));
        }
        for right in &mut self.m.rights {
            if self.p.all[right.who].v3 {
                // It is told (SM_NOTIFY), and reclaims.
                right.reclaim = true;
            }
            if let Kind::Open { deny: 0, known, .. } = &mut right.kind {
                *known = 0;
            }
        }
        // The connections are new.
        for p in 0..self.p.all.len() {
            if let Some(session) = self.p.all[p].session.filter(|_| self.p.all[p].reached) {
                self.binds(session);
            }
        }
    }

    fn acts(&mut self, who: Who) {
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

    fn returns(&mut self, who: Who, slot: u32, file: File, stateid: Stateid) {
        // What was written is sent first.
        if file != DIRECTORY
            && let Some(size) = self.p.all[who].sizes.iter().find(|(f, _)| *f == file).map(|(_, size)| *size)
        {
            self.s.grows(file, size);
        }
        self.sends(who, slot, Op::Return { file, stateid }, None);
    }

    fn sends(&mut self, who: Who, slot: u32, op: Op, forged: Option<u64>) {
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

    fn sends_again(&mut self, who: Who, slot: usize) {
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
    fn must_fail(&mut self, who: Who, slot: usize, of: u64) {
        let Some(out) = self.p.all[who].out[slot].as_mut() else { return };
        out.must_fail = stateid_of(&out.call.op).is_some_and(|s| self.s.st.files.find(of, &s).is_ok());
    }

    /// What a request gives up is given up when it is sent.
    fn gives_up(&mut self, who: Who, op: &Op) {
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

    fn delivers(&mut self) {
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

    fn hears(&mut self, call: &Call, reply: &Reply, out: &Out) {
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
    fn loses_session(&mut self, who: Who, call: Option<&Call>) {
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

    fn learns(&mut self, who: Who, call: &Call, done: &Done) {
        let ok = done.status.is_ok();
        let op = call.op.clone();
        match op {
            Op::Open { owner, access, deny, .. }
            | Op::OpenFile { owner, access, deny, .. }
            | Op::Reclaim { owner, access, deny, .. } => {
                let reclaims = matches!(op, Op::Reclaim { .. });
                if ok {
                    self.opened(who, done, owner, access, deny);
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
                        (*a, *d, *known) = (access, deny, access);
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
                        broken.clone_from(&before.broken);
                        if let Kind::Locks { ranges: r, .. } = &before.kind {
                            ranges.clone_from(r);
                        }
                    }
                    set_range(&mut ranges, range, Some(exclusive));
                    let kind = Kind::Locks { owner, ranges, open };
                    self.has(Right { broken, ..Right::new(who, file, done.stateid, kind) });
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
                    self.m.figures.given += 1;
                    self.has(Right::new(who, DIRECTORY, stateid, kind));
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
    fn refused(&mut self, who: Who, stateid: &Stateid, status: NfsStat, op: &Op) {
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

    fn opened(&mut self, who: Who, done: &Done, owner: u8, access: Share, deny: Share) {
        if let Some((stateid, write)) = done.delegation {
            self.m.figures.given += 1;
            let size = self.s.size(done.file);
            let p = self.person(who);
            p.sizes.retain(|(f, _)| *f != done.file);
            p.sizes.push((done.file, size));
            let kind = Kind::Delegation { write };
            self.has(Right::new(who, done.file, stateid, kind));
        }
        if done.alone {
            return;
        }
        // A reply that comes after a restart brings an open that the server has forgotten.
        let of_this_instance = done.stateid.other[..4] == (self.s.st.files.mark).to_be_bytes();
        let fresh = if of_this_instance { access } else { 0 };
        let (mut all, mut denies, mut knows, mut broken) = (access, deny, fresh, None);
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
            } else {
                if before.reclaim {
                    broken = before.broken;
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
        let beside = done.beside;
        self.has(Right { broken, beside, ..Right::new(who, done.file, done.stateid, kind) });
    }

    fn file(&mut self) -> Option<File> {
        let there: Vec<File> = self.s.names.iter().copied().flatten().collect();
        self.c.pick(&there)
    }

    fn access(&mut self) -> (Share, Share) {
        let access = self.c.pick(&[READ, READ, WRITE, BOTH, BOTH]).unwrap_or(READ);
        let deny = self.c.pick(&[0, 0, 0, 0, 0, 0, 0, 0, 0, READ, WRITE, BOTH]).unwrap_or(0);
        (access, deny)
    }

    fn range(&mut self) -> (u64, u64) {
        let first = self.c.below(RANGES);
        let last = if self.c.one_in(8) { u64::MAX } else { first + self.c.below(RANGES) };
        (first, last)
    }

    /// What a client does next.
    fn next(&mut self, who: Who) -> Option<Op> {
        let p = &mut self.p.all[who];
        if let Some(op) = p.again.pop() {
            return Some(op);
        }
        if p.tests {
            let stateids =
                self.m.of(who).map(|r| r.stateid).chain(p.free.iter().chain(&p.denied).copied()).collect();
            return Some(Op::Test { stateids });
        }
        if let Some(stateid) = p.free.pop() {
            return Some(Op::Free { stateid });
        }
        if !p.complete {
            return Some(self.reclaims(who));
        }
        let recalled = p.recalled.first().copied();
        if let Some(stateid) = recalled {
            let late = p.late;
            let right =
                self.m.of(who).find(|r| r.stateid.other == stateid.other).map(|r| (r.file, r.kind.clone()));
            match right {
                None => self.person(who).recalled.clear(),
                Some((file, kind)) => {
                    if !self.c.percent(late) {
                        if kind == (Kind::Delegation { write: true }) && self.c.one_in(3) {
                            let (access, _) = self.access();
                            let deny = 0;
                            return Some(Op::OpenFile {
                                file,
                                owner: 0,
                                access,
                                deny,
                                instead: false,
                                by: Some(stateid),
                            });
                        }
                        self.returns(who, 0, file, stateid);
                        return None;
                    }
                }
            }
        }
        let own: Vec<Right> = self.m.of(who).filter(|r| !r.reclaim).cloned().collect();
        let one = self.c.pick(&own);
        let of = |which: fn(&Kind) -> bool| {
            own.iter().filter(move |r| which(&r.kind)).cloned().collect::<Vec<_>>()
        };
        let opens = of(|k| matches!(k, Kind::Open { .. }));
        let locks = of(|k| matches!(k, Kind::Locks { .. }));
        let by = self.c.below(2) as u8;
        match self.c.below(100) {
            0..24 => {
                let (access, deny) = self.access();
                let name = self.c.below(NAMES as u64) as usize;
                let (instead, make) = (!self.c.one_in(4), !self.c.one_in(4));
                Some(Op::Open { name, owner: by, access, deny, instead, make })
            }
            24..30 => {
                let (access, deny) = self.access();
                let (file, instead) = (self.file()?, !self.c.one_in(4));
                Some(Op::OpenFile { file, owner: by, access, deny, instead, by: None })
            }
            30..38 => {
                let open = self.c.pick(&opens)?;
                Some(Op::Close { file: open.file, stateid: open.stateid })
            }
            38..41 => {
                let open = self.c.pick(&opens)?;
                let Kind::Open { access, .. } = open.kind else { return None };
                let to = self.c.pick(&[READ, WRITE]).filter(|to| to & access != 0)?;
                Some(Op::Downgrade { file: open.file, stateid: open.stateid, access: to, deny: 0 })
            }
            41..53 => {
                let open = self.c.pick(&opens)?;
                let range = self.range();
                let before = locks.iter().find(|l| {
                    l.file == open.file && matches!(&l.kind, Kind::Locks { owner, open: o, .. } if *owner == by && *o == open.stateid.other)
                });
                let other = locks.iter().any(|l| {
                    l.file == open.file && matches!(&l.kind, Kind::Locks { owner, open: o, .. } if *owner == by && *o != open.stateid.other)
                });
                if other {
                    return None;
                }
                let known = before.map(|l| l.stateid);
                let exclusive = self.c.one_in(2);
                Some(Op::Lock {
                    file: open.file,
                    open: open.stateid,
                    owner: by,
                    known,
                    exclusive,
                    range,
                    reclaim: false,
                })
            }
            53..60 => {
                let lock = self.c.pick(&locks)?;
                Some(Op::Unlock { file: lock.file, stateid: lock.stateid, range: self.range() })
            }
            60..62 => {
                let (file, range, exclusive) = (self.file()?, self.range(), self.c.one_in(2));
                Some(Op::TestLock { file, owner: by, exclusive, range })
            }
            62..69 => {
                let right = one.filter(|r| !matches!(r.kind, Kind::Names { .. }));
                match right {
                    Some(r) if !self.c.one_in(6) => {
                        Some(Op::Read { file: r.file, stateid: Stateid { seqid: 0, ..r.stateid } })
                    }
                    _ => Some(Op::Read { file: self.file()?, stateid: Stateid::ANONYMOUS }),
                }
            }
            69..76 => {
                let writes = |r: &Right| match &r.kind {
                    Kind::Delegation { write } => *write,
                    Kind::Open { access, .. } => access & WRITE != 0,
                    _ => false,
                };
                match one.filter(writes) {
                    Some(r) if !self.c.one_in(6) => {
                        Some(Op::Write { file: r.file, stateid: Stateid { seqid: 0, ..r.stateid } })
                    }
                    _ => Some(Op::Write { file: self.file()?, stateid: Stateid::ANONYMOUS }),
                }
            }
            76..79 => Some(Op::SetAttributes { file: self.file()? }),
            79..84 => {
                let file = self.file()?;
                Some(Op::Look { file: if self.prints.is_multiple_of(5) { DIRECTORY } else { file } })
            }
            84..86 => Some(Op::Remove { name: self.c.below(NAMES as u64) as usize }),
            86..89 => {
                let [from, to] = [(); 2].map(|()| self.c.below(NAMES as u64) as usize);
                Some(Op::Rename { from, to })
            }
            89..92 => {
                let r = one.filter(|r| matches!(r.kind, Kind::Delegation { .. } | Kind::Names { .. }))?;
                self.returns(who, 0, r.file, r.stateid);
                None
            }
            92..93 => Some(Op::Test { stateids: own.iter().map(|r| r.stateid).collect() }),
            93..95 => Some(Op::Directory { write: self.prints.is_multiple_of(2) }),
            95..97 => {
                // It writes to a file that it has a delegation of, and nobody knows.
                for (_, size) in &mut self.p.all[who].sizes {
                    *size += 10;
                }
                None
            }
            97..99 => self.forges(who),
            _ => Some(Op::Nothing),
        }
    }

    /// A client tries what is another's.
    fn forges(&mut self, who: Who) -> Option<Op> {
        let others: Vec<Right> = self
            .m
            .rights
            .iter()
            .filter(|r| r.who != who && !r.reclaim && !self.p.all[r.who].v3)
            // Documented: who shows a former open's stateid first has it.
            .filter(|r| self.s.st.files.find(self.p.all[r.who].id, &r.stateid).is_ok())
            .cloned()
            .collect();
        let right = self.c.pick(&others)?;
        let (file, stateid) = (right.file, right.stateid);
        let op = match self.c.below(8) {
            0 => Op::Read { file, stateid },
            1 => Op::Write { file, stateid },
            2 => Op::Close { file, stateid },
            3 => Op::Return { file, stateid },
            4 => Op::Unlock { file, stateid, range: (0, u64::MAX) },
            5 => Op::Free { stateid },
            6 => Op::Downgrade { file, stateid, access: READ, deny: 0 },
            _ => Op::OpenFile { file, owner: 1, access: READ, deny: 0, instead: false, by: Some(stateid) },
        };
        self.m.figures.forged += 1;
        let of = self.p.all[right.who].id;
        self.sends(who, 0, op, Some(of));
        None
    }

    /// What a client does that has lost its state: it reclaims, then says that it is done.
    fn reclaims(&mut self, who: Who) -> Op {
        let lost: Vec<Right> = self.m.of(who).filter(|r| r.reclaim).cloned().collect();
        for right in &lost {
            if let Kind::Open { owner, access, deny, .. } = right.kind {
                return Op::Reclaim { file: right.file, owner, access, deny };
            }
        }
        for right in &lost {
            if let Kind::Locks { owner, ranges, open } = &right.kind {
                let under =
                    self.m.of(who).find(|r| r.stateid.other == *open && !r.reclaim).map(|r| r.stateid);
                let (Some(open), Some((first, last, exclusive))) = (under, ranges.first().copied()) else {
                    let other = right.stateid;
                    self.m.gone(who, &other);
                    return Op::Nothing;
                };
                return Op::Lock {
                    file: right.file,
                    open,
                    owner: *owner,
                    known: None,
                    exclusive,
                    range: (first, last),
                    reclaim: true,
                };
            }
        }
        Op::Complete
    }

    fn asks_for_session(&mut self, who: Who) {
        let p = &self.p.all[who];
        let by = Requester { principal: Principal { flavor: 1, uid: 0 }, addr: p.from };
        let ask = ExchangeId { owner: p.name.clone(), verifier: [p.verifier; 8], by, update: false };
        let (from, now) = (p.from, self.m.now);
        let st = &mut self.s.st;
        let Ok(mut notes) = st.room_for_client(now, from) else { return };
        let Ok(found) = st.exchange_id(now, &ask) else { return };
        if let Some(old) = found.replaced {
            notes.extend(st.remove_client(old));
        }
        let id = found.client;
        if st.clients.check_create_session(id, found.sequence, by) != Ok(CreateSession::New) {
            self.s.log.append(notes, None);
            return;
        }
        if let Some(old) = st.sessions.to_evict(id) {
            notes.extend(st.remove_session(&old));
        }
        let channel = ChannelAttrs {
            header_pad_size: 0,
            max_request_size: 4096,
            max_response_size: 4096,
            max_response_size_cached: 1024,
            max_operations: 8,
            max_requests: 2,
            rdma_ird: Vec::new(),
        };
        let Ok((fore, ended)) = st.room_for_session(now, &channel, from) else { return };
        notes.extend(ended);
        self.sessions += 1;
        let mut session: SessionId = [0; 16];
        session[..8].copy_from_slice(&id.to_be_bytes());
        session[8..].copy_from_slice(&self.sessions.to_be_bytes());
        let v = st.next_version();
        if let Some(old) = st.clients.created(id, now, Bytes::from_static(b"reply"), v) {
            notes.extend(st.succeed_client(now, id, old));
        }
        notes.extend(st.client_notes(id));
        let v = st.next_version();
        let flags = CREATE_SESSION4_FLAG_CONN_BACK_CHAN | CREATE_SESSION4_FLAG_PERSIST;
        let new = NewSession {
            id: session,
            client: id,
            fore,
            back: channel,
            callback_program: 1,
            flags,
            callback_cred: Some(OpaqueAuth::NONE),
        };
        st.sessions.insert(new, v, now);
        if let Some(mut s) = st.sessions.get_mut(&session) {
            s.used_from(from);
            if self.p.all[who].reached {
                s.bind_back(who as u64 + 1);
            }
            notes.extend(s.notes());
        }
        st.files.delegations.try_out(session);
        let group = self.s.log.append(notes, None);
        self.m.tells(|| format!("client {who} asks for a session, as {id:x}"));
        self.m.ids[who] = id;
        self.p.all[who].connecting = Some((group, session, id));
    }

    /// Sessions whose replies the log allows.
    fn connects(&mut self) {
        for who in 0..self.p.all.len() {
            let Some((group, session, id)) = self.p.all[who].connecting else { continue };
            if !self.s.log.is_durable(group) {
                continue;
            }
            let p = &mut self.p.all[who];
            p.connecting = None;
            if p.asleep {
                continue;
            }
            (p.session, p.sequences) = (Some(session), [0; 2]);
            if p.id == id {
                continue;
            }
            (p.id, p.complete, p.tests) = (id, false, false);
            p.recalled.clear();
            p.free.clear();
            p.again.clear();
            self.m.knows[who].doubts = false;
            self.m.tells(|| format!("client {who} is {id:x} now"));
            // Opens and locks are reclaimed. A delegation is not: what was open under it is opened.
            for right in self.m.rights.iter_mut().filter(|r| r.who == who) {
                right.reclaim = true;
                if let Kind::Delegation { write } = right.kind {
                    if std::mem::take(&mut right.beside_an_open) {
                        right.broken = None;
                    }
                    let access = if write { BOTH } else { READ };
                    right.kind = Kind::Open { owner: 9, access, deny: 0, known: access };
                }
            }
            self.m.rights.retain(|r| r.who != who || !matches!(r.kind, Kind::Names { .. }));
        }
    }

    fn acts_v3(&mut self, who: Who) {
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
                let names = NAMES as u64;
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

    fn asks_nlm(&mut self, who: Who, file: File, ask: Nlm, reclaim: Option<Right>) {
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
                Kind::Locks { owner, ranges, open: [0; 12] }
            }
            Nlm::Share { owner, access, deny } => {
                // It replaces the one that it had.
                self.m.gone(who, &stateid);
                Kind::Open { owner, access, deny, known: access }
            }
        };
        let broken = reclaim.and_then(|r| r.broken);
        let right = Right { broken, ..Right::new(who, file, stateid, kind) };
        if group == 0 {
            self.has(right);
        } else {
            self.waiting.push(Waiting { who, host, group, news, right });
        }
    }

    fn reclaims_v3(&mut self, who: Who, lost: Right) {
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

    /// The end: nobody asks for anything new, all that is held is given back, and nothing is left of it.
    fn winds_down(&mut self) {
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
    fn settles_down(&mut self) {
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
    fn gives_back(&mut self, who: Who, since: Millis) -> bool {
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

/// The stateid that a request names.
fn stateid_of(op: &Op) -> Option<Stateid> {
    match op {
        Op::Read { stateid, .. }
        | Op::Write { stateid, .. }
        | Op::Close { stateid, .. }
        | Op::Return { stateid, .. }
        | Op::Unlock { stateid, .. }
        | Op::Free { stateid }
        | Op::Downgrade { stateid, .. }
        | Op::OpenFile { by: Some(stateid), .. } => Some(*stateid),
        _ => None,
    }
}

fn file_of(op: &Op) -> Option<File> {
    match op {
        Op::OpenFile { file, .. }
        | Op::Reclaim { file, .. }
        | Op::Downgrade { file, .. }
        | Op::Close { file, .. }
        | Op::Lock { file, .. }
        | Op::Unlock { file, .. }
        | Op::TestLock { file, .. }
        | Op::Read { file, .. }
        | Op::Write { file, .. }
        | Op::SetAttributes { file }
        | Op::Look { file }
        | Op::Return { file, .. } => Some(*file),
        _ => None,
    }
}
