//! Reads RPC calls and replies in place and only as far as needed: header, names of operations, statuses. Skips data.
//!
//! No I/O, and resumable: each step takes the available bytes and says how many it consumed. So a record is decoded
//! while it arrives and is never held whole.

mod beside;
mod callback;
pub(crate) mod cursor;
pub mod facts;
pub(crate) mod v2;
mod v3;
pub mod v4;

use crate::limits::OPERATIONS_MAX;
use cursor::Cursor;
use facts::{Asked, Facts, Gather};
use landfast_nfs::v4::OpNum;
use landfast_nfs::{mount, nfsacl, nlm, v3 as nfs3};
use std::fmt::Write;

/// Programs that are distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    /// Program 100003.
    Nfs,
    /// Program 100227: ACLs beside NFS version 3.
    NfsAcl,
    /// Program 100005.
    Mount,
    /// Program 100021.
    Nlm,
    /// Callbacks of an NFSv4 server to its clients.
    Callback,
    /// Any other program, by its number.
    Other(u32),
}

/// Transient program numbers (RFC 5531 section 8.3). NFSv4 clients choose the program of their callbacks from these.
const TRANSIENT: std::ops::RangeInclusive<u32> = 0x4000_0000..=0x5fff_ffff;

impl Default for Program {
    fn default() -> Self {
        Program::Other(0)
    }
}

impl Program {
    #[must_use]
    pub fn of(number: u32) -> Program {
        match number {
            landfast_nfs::PROGRAM => Program::Nfs,
            nfsacl::PROGRAM => Program::NfsAcl,
            mount::PROGRAM => Program::Mount,
            nlm::PROGRAM => Program::Nlm,
            n if TRANSIENT.contains(&n) => Program::Callback,
            n => Program::Other(n),
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Program::Nfs => "NFS",
            Program::NfsAcl => "NFSACL",
            Program::Mount => "MOUNT",
            Program::Nlm => "NLM",
            Program::Callback => "NFS CB",
            Program::Other(_) => "RPC",
        }
    }

    /// The name of one of its procedures.
    #[must_use]
    pub fn procedure(self, version: u32, number: u32) -> Option<&'static str> {
        let at = usize::try_from(number).ok()?;
        match (self, version) {
            (Program::Callback, _) if number == 0 => Some("CB_NULL"),
            (_, _) if number == 0 => Some("NULL"),
            (Program::Nfs, v2::VERSION) => v2::PROC_NAMES.get(at).copied(),
            (Program::Nfs, 3) => nfs3::PROC_NAMES.get(at).copied(),
            (Program::Nfs, 4) if number == 1 => Some("COMPOUND"),
            (Program::Callback, _) if number == 1 => Some("CB_COMPOUND"),
            (Program::NfsAcl, 3) => ["NULL", "GETACL", "SETACL"].get(at).copied(),
            (Program::Mount, _) => ["NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"].get(at).copied(),
            (Program::Nlm, _) => nlm_procedure(number),
            _ => None,
        }
    }

    /// The name of an operation of its COMPOUNDs.
    #[must_use]
    pub fn operation(self, number: u32) -> Option<&'static str> {
        match self {
            Program::Callback => callback::name(number),
            _ => OpNum(number).name(),
        }
    }

    /// Which operation a COMPOUND was sent for: the one with the lowest rank.
    pub(crate) fn rank(self, op: u8) -> u8 {
        if self == Program::Callback { callback::rank(op) } else { v4::rank(op) }
    }
}

fn nlm_procedure(number: u32) -> Option<&'static str> {
    Some(match number {
        nlm::proc::TEST => "TEST",
        nlm::proc::LOCK => "LOCK",
        nlm::proc::CANCEL => "CANCEL",
        nlm::proc::UNLOCK => "UNLOCK",
        nlm::proc::GRANTED => "GRANTED",
        nlm::proc::TEST_MSG => "TEST_MSG",
        nlm::proc::LOCK_MSG => "LOCK_MSG",
        nlm::proc::CANCEL_MSG => "CANCEL_MSG",
        nlm::proc::UNLOCK_MSG => "UNLOCK_MSG",
        nlm::proc::GRANTED_MSG => "GRANTED_MSG",
        nlm::proc::TEST_RES => "TEST_RES",
        nlm::proc::LOCK_RES => "LOCK_RES",
        nlm::proc::CANCEL_RES => "CANCEL_RES",
        nlm::proc::UNLOCK_RES => "UNLOCK_RES",
        nlm::proc::GRANTED_RES => "GRANTED_RES",
        nlm::proc::SHARE => "SHARE",
        nlm::proc::UNSHARE => "UNSHARE",
        nlm::proc::NM_LOCK => "NM_LOCK",
        nlm::proc::FREE_ALL => "FREE_ALL",
        _ => return None,
    })
}

/// How RPCSEC_GSS protects the arguments of a call (RFC 2203 section 5.3.1), or that the call asks for TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protection {
    #[default]
    None,
    /// Signed, but readable.
    Integrity,
    Privacy,
    /// Probe before RPC over TLS (RFC 9289 section 4.1).
    TlsProbe,
}

/// What must be known of a call to read its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kind {
    pub program: Program,
    pub version: u32,
    pub procedure: u32,
    /// Whether arguments and results are readable.
    pub protection: Protection,
    /// Whether the results contain the handle of the object that was found or created.
    pub gives_handle: bool,
    /// For a listing: the bits that ACCESS asks about. 0: no ACCESS, or several with different bits.
    pub checks: u16,
}

impl Kind {
    #[must_use]
    pub fn is_compound(&self) -> bool {
        self.program == Program::Nfs && self.version == 4 && self.procedure == 1
    }

    /// Drops what only a listing needs, so that retransmissions compare equal with and without a listing.
    pub(crate) fn unlisted(self) -> Kind {
        Kind { checks: 0, ..self }
    }

    pub(crate) fn is_callbacks(&self) -> bool {
        self.program == Program::Callback && self.procedure == landfast_nfs::v4::callback::CB_PROC_COMPOUND
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallHead {
    pub xid: u32,
    pub kind: Kind,
    /// Operations of a COMPOUND or CB_COMPOUND, numbered as in [`v4::number`].
    pub ops: Vec<u8>,
    /// What the call asks of the server, and which file it is about.
    pub facts: Facts,
    /// For a listing: what each operation, or the procedure, is about.
    pub shown: Vec<(u8, String)>,
}

/// Result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Executed, with its status if the procedure has a readable one.
    Done(Option<u32>),
    /// Not accepted by the server, with `accept_stat`.
    NotTaken(u32),
    Denied,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyHead {
    pub xid: u32,
    pub outcome: Outcome,
    /// Number of executed operations of a COMPOUND or CB_COMPOUND. The last of them may have failed.
    pub operations: Option<u32>,
    /// Digest of the handle of the object that was found or created.
    pub handle: Option<u64>,
    /// For a listing: operations whose results were read, or the procedure, with the results.
    pub shown: Vec<(u8, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    Call(CallHead),
    Reply(ReplyHead),
}

/// For a listing: state from earlier operations of a COMPOUND.
#[derive(Debug, Default)]
pub(crate) struct Show {
    handle: Option<u32>,
    saved: Option<u32>,
    checks: Option<u16>,
    operations: Vec<(u8, String)>,
}

impl Show {
    fn handle(&self, text: &mut String) {
        if let Some(handle) = self.handle {
            let _ = write!(text, " FH: 0x{handle:08x}");
        }
    }

    fn checks(&mut self, bits: u32) {
        let bits = u16::try_from(bits).unwrap_or(0);
        self.checks = Some(if self.checks.is_none_or(|before| before == bits) { bits } else { 0 });
    }

    fn push(&mut self, op: u8, text: String) {
        if self.operations.len() < OPERATIONS_MAX {
            self.operations.push((op, text));
        }
    }

    fn name(&self, out: &mut String, name: &[u8]) {
        match self.handle {
            Some(handle) => _ = write!(out, " DH: 0x{handle:08x}/{}", text(name)),
            None => _ = write!(out, " {}", text(name)),
        }
    }
}

/// How a listing shows a handle: CRC-32 as in Wireshark.
pub(crate) fn digest(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// How a listing shows a stateid: CRC-16 of X.25 as in Wireshark.
fn stateid_digest(stateid: &[u8]) -> u16 {
    !stateid.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0x8408 })
    })
}

fn skip(c: &mut Cursor<'_>, n: usize) -> Option<()> {
    c.take(n).map(drop)
}

fn stateid(c: &mut Cursor<'_>, text: &mut String) -> Option<()> {
    let _ = write!(text, " StateID: 0x{:04x}", stateid_digest(c.take(16)?));
    Some(())
}

/// A name with control characters escaped, for one line.
pub(crate) fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().flat_map(char::escape_debug).collect::<String>().replace("\\'", "'")
}

pub(crate) fn access(bits: u32) -> String {
    let names = ["RD", "LU", "MD", "XT", "DL", "XE", "XAR", "XAW", "XAL"];
    let set = names.iter().enumerate().filter(|(i, _)| bits & (1 << i) != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
}

/// The byte range of a lock. Length `all` means to the end of the file.
fn range(offset: u64, length: u64, all: u64, text: &mut String) {
    let _ = write!(text, " Offset: {offset} Length: ");
    if length == all {
        text.push_str("<End of File>");
    } else {
        let _ = write!(text, "{length}");
    }
}

/// The reply of ACCESS: bits that the server does not support, denied bits, allowed bits.
fn answered(checked: u32, supported: u32, allowed: u32) -> String {
    let mut text = String::new();
    let kinds = [
        ("NOT Supported", checked & !supported),
        ("Access Denied", supported & !allowed),
        ("Allowed", allowed),
    ];
    for (what, bits) in kinds {
        let names = access(bits);
        if !names.is_empty() {
            let _ = write!(text, ", [{what}: {names}]");
        }
    }
    text
}

/// How stable a WRITE is to be, or was.
pub(crate) fn stable(how: u32) -> &'static str {
    ["UNSTABLE", "DATA_SYNC", "FILE_SYNC"].get(how as usize).copied().unwrap_or("stable?")
}

/// Result of a step.
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

const AUTH_BODY_MAX: u32 = 400;
const RPCSEC_GSS: u32 = 6;
const AUTH_TLS: u32 = 7;

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
        asked: Option<&dyn Asked>,
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
        asked: Option<&dyn Asked>,
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
                    skip(c, 8)?;
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

/// Yields the value, or returns if more bytes are needed.
macro_rules! get {
    ($e:expr) => {
        match $e {
            Some(v) => v,
            None => return Ok(None),
        }
    };
}

/// Reads as much of a header as is needed to recognise the message. In a truncated frame there may be no more. `Err`:
/// not an RPC header, reported as early as the bytes show it.
fn header(c: &mut Cursor<'_>) -> Result<Option<Head>, ()> {
    let xid = get!(c.u32());
    match get!(c.u32()) {
        0 => {
            if get!(c.u32()) != 2 {
                return Err(());
            }
            let (program, version, procedure) = (get!(c.u32()), get!(c.u32()), get!(c.u32()));
            let kind = Kind { program: Program::of(program), version, procedure, ..Kind::default() };
            Ok(Some(Head::Call(CallHead { xid, kind, ..CallHead::default() })))
        }
        1 => {
            let outcome = match get!(c.u32()) {
                0 => Outcome::Done(None),
                1 => Outcome::Denied,
                _ => return Err(()),
            };
            let (operations, handle) = (None, None);
            Ok(Some(Head::Reply(ReplyHead { xid, outcome, operations, handle, shown: Vec::new() })))
        }
        _ => Err(()),
    }
}

/// The rest of the header: credential and verifier of a call, result of a reply.
fn rest_of_header(head: &mut Head, c: &mut Cursor<'_>) -> Result<Option<()>, ()> {
    match head {
        Head::Call(call) => {
            let flavor = get!(c.u32());
            let credential = get!(auth_body(c)?);
            get!(c.u32());
            get!(auth_body(c)?);
            call.kind.protection = protection(flavor, credential);
        }
        Head::Reply(reply) if reply.outcome == Outcome::Denied => {
            if get!(c.u32()) > 1 {
                return Err(());
            }
            get!(c.u32());
        }
        Head::Reply(reply) => {
            get!(c.u32());
            get!(auth_body(c)?);
            reply.outcome = match get!(c.u32()) {
                0 => Outcome::Done(None),
                n @ 1..=5 => Outcome::NotTaken(n),
                _ => return Err(()),
            };
        }
    }
    Ok(Some(()))
}

fn auth_body<'a>(c: &mut Cursor<'a>) -> Result<Option<&'a [u8]>, ()> {
    let len = get!(c.u32());
    if len > AUTH_BODY_MAX {
        return Err(());
    }
    Ok(c.take((len as usize).next_multiple_of(4)))
}

fn protection(flavor: u32, body: &[u8]) -> Protection {
    match flavor {
        AUTH_TLS => Protection::TlsProbe,
        RPCSEC_GSS => {
            let mut c = Cursor::new(body);
            let fields = (c.u32(), c.u32(), c.u32(), c.u32());
            match fields {
                // Only calls with data are wrapped. Setting up a context is in clear text.
                (Some(1), Some(0), Some(_), Some(2)) => Protection::Integrity,
                (Some(1), Some(0), Some(_), Some(3)) => Protection::Privacy,
                _ => Protection::None,
            }
        }
        _ => Protection::None,
    }
}

/// Whether a record may begin here: a record mark, then the header of a call of a known program or of a reply to a
/// pending call. `None`: too few bytes to tell.
pub(crate) fn plausible(bytes: &[u8], record_max: u32, known: &dyn Fn(u32) -> Option<Kind>) -> Option<bool> {
    let mut c = Cursor::new(bytes);
    let mark = c.u32()?;
    let len = mark & 0x7fff_ffff;
    if mark >> 31 != 1 || len < 20 || len > record_max || len % 4 != 0 {
        return Some(false);
    }
    let xid = c.u32()?;
    Some(match c.u32()? {
        0 if len >= 40 => {
            let (rpc, program, version, procedure) = (c.u32()?, c.u32()?, c.u32()?, c.u32()?);
            let ours = !matches!(Program::of(program), Program::Other(_));
            rpc == 2 && ours && version <= 4 && procedure <= 64
        }
        1 => c.u32()? <= 1 && known(xid).is_some(),
        _ => false,
    })
}
