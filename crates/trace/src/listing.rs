//! Prints one line per call and one per reply, like tshark.

use crate::skim::{Kind, Outcome, Program, Protection, v4};
use crate::stream::Stamp;
use crate::table::main_operation;
use crate::trace::{Call, Ends, Reply, Times};
use landfast_nfs::v4::OpNum;
use std::fmt::{self, Display};

/// A call's line: `13 0.000175 0.005327 10.0.2.11 -> 10.0.2.10 NFS 194 V3 LOOKUP Call, DH: 0x44856022/testfile1`.
/// Times are relative to `from_ns`.
pub fn call(from_ns: i64, ends: Ends, call: &Call) -> String {
    let kind = &call.head.kind;
    let head = Head { from_ns, ends, times: &call.times, kind };
    if kind.protection == Protection::Privacy {
        return format!("{head}V{} {} Call (encrypted)", kind.version, name(kind));
    }
    if kind.is_compound() {
        return format!("{head}V4 Call {}", v4::line(&call.head.shown));
    }
    format!("{head}V{} {} Call{}", kind.version, name(kind), joined(kind, &call.head.shown))
}

/// A reply's line: `14 0.000044 0.005371 10.0.2.10 -> 10.0.2.11 NFS 186 V3 LOOKUP Reply (Call In 13) Error: NFS3ERR_NOENT`.
pub fn reply(from_ns: i64, ends: Ends, call: &Call, reply: &Reply) -> String {
    let kind = &call.head.kind;
    let head = Head { from_ns, ends, times: &reply.times, kind };
    let answered = stamp(&call.times).frame;
    if kind.protection == Protection::Privacy && matches!(reply.head.outcome, Outcome::Done(_)) {
        return format!("{head}V{} {} Reply (Call In {answered}) (encrypted)", kind.version, name(kind));
    }
    let shown = match reply.head.outcome {
        Outcome::Done(Some(status)) if kind.is_compound() => v4::status(status),
        Outcome::Done(Some(status)) if kind.is_callbacks() => {
            joined(kind, &reply.head.shown) + &v4::status(status)
        }
        Outcome::Done(_) => joined(kind, &reply.head.shown),
        Outcome::NotTaken(1) => " (program unavailable)".into(),
        Outcome::NotTaken(2) => " (version unavailable)".into(),
        Outcome::NotTaken(3) => " (procedure unavailable)".into(),
        Outcome::NotTaken(4) => " (arguments not understood)".into(),
        Outcome::NotTaken(_) => " (system error)".into(),
        Outcome::Denied => " (denied)".into(),
    };
    if kind.is_compound() {
        return format!("{head}V4 Reply (Call In {answered}){}{shown}", carried_out(call, reply));
    }
    format!("{head}V{} {} Reply (Call In {answered}){shown}", kind.version, name(kind))
}

/// The details of arguments or results: ` CB_SEQUENCE;CB_RECALL StateID: 0x3aa3 FH: 0x44856022`.
fn joined(kind: &Kind, shown: &[(u8, String)]) -> String {
    let mut all = String::new();
    for (i, (_, text)) in shown.iter().enumerate() {
        all.push_str(if !kind.is_callbacks() {
            ""
        } else if i == 0 {
            " "
        } else {
            ";"
        });
        all.push_str(text);
    }
    all
}

/// The main operations of a COMPOUND that were executed, with their results: ` OPEN StateID: 0x3aa3`. If not all
/// results could be read, the call supplies the remaining names.
fn carried_out(call: &Call, reply: &Reply) -> String {
    let (asked, shown) = (&call.head.ops, &reply.head.shown);
    let done = reply.head.operations.map_or(0, |n| n as usize);
    if done == 0 || done > asked.len().max(shown.len()) {
        return main_operation(call, reply).map_or_else(String::new, |op| format!(" {}", OpNum(op)));
    }
    let rest = asked.iter().take(done).skip(shown.len());
    let rest = rest.map(|op| (*op, v4::number(*op).to_string()));
    let all: Vec<_> = shown.iter().cloned().chain(rest).collect();
    format!(" {}", v4::line(&all))
}

/// The frame that a line is about: the one that completed the message.
fn stamp(times: &Times) -> Stamp {
    times.last.unwrap_or(times.first)
}

fn name(kind: &Kind) -> String {
    let known = kind.program.procedure(kind.version, kind.procedure).map(str::to_owned);
    known.unwrap_or_else(|| format!("procedure {}", kind.procedure))
}

/// The beginning of every line.
struct Head<'a> {
    from_ns: i64,
    ends: Ends,
    times: &'a Times,
    kind: &'a Kind,
}

impl Display for Head<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = stamp(self.times);
        write!(
            f,
            "{} {:.6} {:.6} {} -> {} ",
            at.frame,
            seconds(at.gap_ns),
            seconds(at.ns.saturating_sub(self.from_ns)),
            self.ends.from.ip(),
            self.ends.to.ip(),
        )?;
        match self.kind.program {
            Program::Other(number) => write!(f, "RPC {number}")?,
            known => f.write_str(known.name())?,
        }
        write!(f, " {} ", at.wire_len)
    }
}

fn seconds(ns: i64) -> f64 {
    // Avoids "-0.000000".
    if ns.abs() < 500 { 0.0 } else { ns as f64 / 1e9 }
}
