//! Clients, and what happens: requests, lost replies, sleep, the clock, power.

mod end;
mod hosts;
mod replies;
mod requests;
mod sessions;
mod time;
mod trouble;
mod wishes;

use super::super::Bounds;
use super::super::clock::Millis;
use super::checks;
use super::choices::Choices;
use super::model::{Figures, Model};
use super::people::{People, Person};
use super::rights::{Knows, NAMES, Right, Who};
use super::server::{Server, lease};
use crate::limited::Limits;
use bytes::Bytes;
use std::net::{IpAddr, Ipv4Addr};

const STEPS: u64 = 160;
/// The most that a message may be on its way.
const DELAY: Millis = 3000;
const RANGES: u64 = 6;
/// Of a hundred wishes, where each kind of them begins: OPEN by name and by handle, CLOSE, OPEN_DOWNGRADE, LOCK, LOCKU, LOCKT, READ, WRITE, SETATTR, GETATTR, REMOVE,
/// RENAME, DELEGRETURN, TEST_STATEID, GET_DIR_DELEGATION, writing under a delegation, somebody else's stateid, nothing.
const KINDS: [u64; 19] = [0, 24, 30, 38, 41, 53, 60, 62, 69, 76, 79, 84, 86, 89, 92, 93, 95, 97, 99];

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
    /// The kinds of [`KINDS`] that clients ask for in this run, as bits; how many names and how many bytes there are to fight over.
    kinds: u64,
    names: u64,
    bytes: u64,
    narrow: bool,
    /// In a narrow run: after so many more steps power goes: there is something that the log may not know.
    brink: Option<u64>,
}

/// Runs to the end. The error is what was seen, with the history if there is one.
pub(super) fn run(choices: Choices<'_>, with_history: bool, narrow: bool) -> Result<Figures, String> {
    let mut world = World::new(choices, with_history, narrow);
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
    fn new(mut c: Choices<'a>, with_history: bool, narrow: bool) -> World<'a> {
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
                asked: Vec::new(),
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
        // A narrow run lacks some kinds of requests, and has little to fight over, so that those that it has meet more often.
        let mut kinds = u64::MAX;
        if narrow {
            for kind in 2..KINDS.len() {
                if c.one_in(3) {
                    kinds &= !(1 << kind);
                }
            }
        }
        let names = if narrow { 1 + c.below(2) } else { NAMES as u64 };
        let bytes = if narrow { 1 + c.below(3) } else { RANGES };
        World {
            kinds,
            names,
            bytes,
            narrow,
            brink: None,
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
        if std::mem::take(&mut self.s.removed) && self.power > 0 && self.narrow && self.brink.is_none() {
            self.brink = Some(1 + self.c.below(6));
        }
        self.brink = self.brink.map(|steps| steps - 1);
        if self.brink == Some(0) {
            self.restarts();
            if self.c.one_in(2) {
                self.p.all.iter_mut().for_each(|p| p.asleep = false);
            }
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
}
