//! Reads RPC calls and replies in place and only as far as needed: header, names of operations, statuses. Skips data.
//!
//! No I/O, and resumable: each step takes the available bytes and says how many it consumed. So a record is decoded
//! while it arrives and is never held whole.

mod beside;
mod callback;
pub(crate) mod cursor;
pub mod facts;
mod head;
mod header;
mod kind;
mod opened;
mod procedures;
mod program;
mod show;
pub(crate) mod v2;
mod v3;
pub mod v4;

use crate::limits::{OPERATIONS_KEPT, OPERATIONS_MAX};
use cursor::Cursor;
use facts::{Gather, WantedFiles};
use header::{header, rest_of_header};
use landfast_nfs::v4::OpNum;

pub use head::{CallHead, Head, Outcome, ReplyHead};
pub(crate) use header::plausible;
pub use kind::{Kind, Protection};
pub(crate) use procedures::main_operations;
pub use procedures::{main_operation, only_main_operation};
pub use program::Program;
use show::Show;
pub(crate) use show::digest;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Needs more bytes.
    More,
    /// Consumed this many bytes. Another step may consume more.
    Used(usize),
    /// Consumed this many bytes. This many bytes of data follow.
    Data(usize, u64),
    /// Knows everything needed of this record.
    Enough,
    /// Not an RPC message.
    Strange,
}

/// What comes next in the record.
#[derive(Debug, Default)]
enum State {
    #[default]
    Header,
    Rest,
    Body,
    Operations(u32),
    Results(u32),
    /// Operations of a CB_COMPOUND, or their results.
    Callback(u32),
    Over,
}

/// A record that is being read.
#[derive(Debug, Default)]
pub(crate) struct Skim {
    state: State,
    head: Option<Head>,
    gather: Gather,
    show: Option<Show>,
}

impl Skim {
    /// Starts a record. `detail`: for a listing.
    pub fn new(detail: bool) -> Self {
        Skim { show: detail.then(Show::default), ..Skim::default() }
    }

    /// What is known of the record. `None`: not even its header was read.
    pub fn finish(&mut self) -> Option<Head> {
        let show = self.show.take();
        match self.head.take()? {
            Head::Call(mut call) => {
                if let Some(show) = show {
                    call.kind.checks = show.checks.unwrap_or(0);
                    call.shown = show.operations;
                }
                Some(Head::Call(call))
            }
            Head::Reply(mut reply) => {
                reply.shown = show.map(|show| show.operations).unwrap_or_default();
                Some(Head::Reply(reply))
            }
        }
    }

    /// Bytes of memory held for the names of operations. The few of an ordinary record do not count.
    pub fn held(&self) -> usize {
        let ops = match &self.head {
            Some(Head::Call(call)) => call.ops.capacity(),
            _ => 0,
        };
        let shown = self.show.as_ref().map_or(0, Show::held);
        if ops > OPERATIONS_KEPT || shown > 0 { ops + shown } else { 0 }
    }

    /// Drops the names of operations but the first.
    pub fn let_go(&mut self) {
        if let Some(Head::Call(call)) = &mut self.head {
            call.ops.truncate(OPERATIONS_KEPT);
            call.ops.shrink_to_fit();
        }
        if let Some(show) = &mut self.show {
            show.let_go();
        }
    }

    /// What follows `held` is not captured. An operation whose number is in `held` counts all the same.
    pub fn blind(&mut self, held: &[u8]) {
        if let (State::Operations(1..) | State::Callback(1..), Some(Head::Call(call)), Some(op)) =
            (&self.state, &mut self.head, Cursor::new(held).u32())
            && call.ops.len() < OPERATIONS_MAX
            && call.kind.program.operation(op).is_some()
        {
            call.ops.push(v4::byte(OpNum(op)));
        }
        self.state = State::Over;
    }

    /// Continues to read. `last`: the record ends with these bytes. `known` returns the call that a reply answers,
    /// `asked` recognises the wanted files.
    pub fn advance(
        &mut self,
        bytes: &[u8],
        last: bool,
        known: &dyn Fn(u32) -> Option<Kind>,
        asked: Option<&dyn WantedFiles>,
    ) -> Progress {
        let mut c = Cursor::new(bytes);
        match self.state {
            State::Over => Progress::Enough,
            State::Header => match header(&mut c) {
                Ok(Some(head)) => {
                    self.state = State::Rest;
                    self.head = Some(head);
                    Progress::Used(c.at())
                }
                Ok(None) if !last => Progress::More,
                Ok(None) | Err(()) => Progress::Strange,
            },
            State::Rest => match self.head.as_mut().map_or(Err(()), |head| rest_of_header(head, &mut c)) {
                Ok(Some(())) => {
                    self.state = State::Body;
                    Progress::Used(c.at())
                }
                Ok(None) if !last => Progress::More,
                Ok(None) | Err(()) => Progress::Strange,
            },
            State::Body => match self.body(&mut c, known, asked, last) {
                Some(state) => {
                    self.state = state;
                    Progress::Used(c.at())
                }
                None if last => Progress::Enough,
                None => Progress::More,
            },
            State::Results(left @ 1..) => {
                let Some(Head::Reply(reply)) = &mut self.head else { return Progress::Enough };
                let (Some(op), Some(status)) = (c.u32(), c.u32()) else { return more(last) };
                let from = c;
                let Some(results) = v4::results(OpNum(op), status, &mut c) else { return more(last) };
                self.state = State::Results(left - 1);
                if let Some(show) = &mut self.show {
                    v4::describe_results(OpNum(op), status, from, show);
                }
                match results {
                    v4::Results::Passed => return Progress::Used(c.at()),
                    v4::Results::Data(len) => return Progress::Data(c.at(), len.next_multiple_of(4)),
                    v4::Results::Handle(handle) => {
                        reply.handle = reply.handle.or(Some(handle));
                        if self.show.is_some() {
                            return Progress::Used(c.at());
                        }
                    }
                    v4::Results::Unknown => {}
                }
                self.state = State::Over;
                Progress::Enough
            }
            State::Callback(left @ 1..) => {
                let ends = if let Some(Head::Call(call)) = &mut self.head {
                    callback::arguments(&mut c, asked, self.show.as_mut()).map(|read| {
                        if call.ops.len() < OPERATIONS_MAX {
                            call.ops.push(v4::byte(OpNum(read.op)));
                        }
                        call.facts.asked |= read.asked;
                        read.ends
                    })
                } else {
                    let Some(show) = &mut self.show else { return Progress::Enough };
                    callback::results(&mut c, show)
                };
                let Some(ends) = ends else { return more(last) };
                self.state = if ends { State::Callback(left - 1) } else { State::Over };
                Progress::Used(c.at())
            }
            State::Operations(0) | State::Results(0) | State::Callback(0) => {
                self.state = State::Over;
                Progress::Enough
            }
            State::Operations(left) => {
                let Some(Head::Call(call)) = &mut self.head else { return Progress::Enough };
                let Some(op) = c.u32().map(OpNum) else { return more(last) };
                let Some(arguments) =
                    v4::arguments(op, &mut c, (&mut self.gather, &mut call.facts, asked), self.show.as_mut())
                else {
                    return more(last);
                };
                if op == OpNum::GETFH && !call.kind.gives_handle {
                    call.kind.gives_handle = true;
                    call.facts.finds_asked = self.gather.is_asked();
                }
                if call.ops.len() < OPERATIONS_MAX {
                    call.ops.push(v4::byte(op));
                }
                self.state = State::Operations(left - 1);
                match arguments {
                    v4::Arguments::All => Progress::Used(c.at()),
                    v4::Arguments::Data(len) => Progress::Data(c.at(), len.next_multiple_of(4)),
                    v4::Arguments::Unknown => {
                        self.state = State::Over;
                        Progress::Enough
                    }
                }
            }
        }
    }

    /// What follows the header, up to the operations of a COMPOUND.
    fn body(
        &mut self,
        c: &mut Cursor<'_>,
        known: &dyn Fn(u32) -> Option<Kind>,
        asked: Option<&dyn WantedFiles>,
        last: bool,
    ) -> Option<State> {
        match self.head.as_mut()? {
            Head::Call(call) => {
                let kind = call.kind;
                if matches!(kind.protection, Protection::Privacy | Protection::TlsProbe) {
                    if (kind.program, kind.version) == (Program::Nfs, 3) {
                        call.facts = facts::v3_encrypted(kind.procedure);
                    }
                    return Some(State::Over);
                }
                if kind.protection == Protection::Integrity {
                    c.take(8)?;
                }
                if kind.is_compound() {
                    c.opaque()?;
                    c.u32()?;
                    return Some(State::Operations(c.u32()?));
                }
                if kind.is_callbacks() {
                    c.opaque()?;
                    c.skip(8)?;
                    return Some(State::Callback(c.u32()?));
                }
                if (kind.program, kind.version) == (Program::Nfs, 3) {
                    let mut from = *c;
                    match facts::v3(kind.procedure, &mut from, asked) {
                        Some(facts) => call.facts = facts,
                        None if !last => return None,
                        None => {}
                    }
                    call.kind.gives_handle = facts::v3_gives_handle(kind.procedure);
                    if let Some(show) = &mut self.show {
                        let line = v3::call(kind.procedure, c, last, show)?;
                        show.push(0, line);
                    }
                    return Some(State::Over);
                }
                if (kind.program, kind.version) == (Program::Nfs, v2::VERSION) {
                    match v2::facts(kind.procedure, &mut c.clone(), asked) {
                        Some(facts) => call.facts = facts,
                        None if !last => return None,
                        None => {}
                    }
                }
                if let Some(show) = &mut self.show {
                    show.push(0, beside::call(&kind, c, last)?);
                }
                Some(State::Over)
            }
            Head::Reply(reply) => {
                let Some(kind) = known(reply.xid) else { return Some(State::Over) };
                if reply.outcome != Outcome::Done(None) || kind.procedure == 0 {
                    return Some(State::Over);
                }
                match kind.protection {
                    Protection::Privacy | Protection::TlsProbe => return Some(State::Over),
                    Protection::Integrity => drop(c.take(8)?),
                    Protection::None => {}
                }
                if kind.is_compound() {
                    let status = c.u32()?;
                    c.opaque()?;
                    reply.operations = Some(c.u32()?);
                    reply.outcome = Outcome::Done(Some(status));
                    if let Some(show) = &mut self.show {
                        show.checks = Some(kind.checks);
                    }
                    if kind.gives_handle || self.show.is_some() {
                        return Some(State::Results(reply.operations.unwrap_or(0)));
                    }
                } else if kind.program == Program::Nfs && kind.version == 3 {
                    let status = c.u32()?;
                    if kind.gives_handle && status == 0 {
                        let mut from = *c;
                        match facts::v3_handle(kind.procedure, &mut from) {
                            Some(handle) => reply.handle = handle,
                            None if !last => return None,
                            None => {}
                        }
                    }
                    if let Some(show) = &mut self.show {
                        show.push(0, v3::reply(&kind, status, c, last)?);
                    }
                    reply.outcome = Outcome::Done(Some(status));
                } else if (kind.program, kind.version) == (Program::Nfs, v2::VERSION)
                    && v2::has_status(kind.procedure)
                {
                    reply.outcome = Outcome::Done(Some(c.u32()?));
                } else if kind.is_callbacks() {
                    let status = c.u32()?;
                    c.opaque()?;
                    let results = c.u32()?;
                    reply.operations = Some(results);
                    reply.outcome = Outcome::Done(Some(status));
                    return Some(State::Callback(results));
                } else if let Some(show) = &mut self.show {
                    show.push(0, beside::reply(&kind, c, last)?);
                }
                Some(State::Over)
            }
        }
    }
}

fn more(last: bool) -> Progress {
    if last { Progress::Enough } else { Progress::More }
}
