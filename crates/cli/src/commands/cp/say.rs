//! The output of `cp`: GNU's lines, JSON objects, the progress bar.

use super::super::causes::{self, Causes};
use super::super::object::below;
use super::super::tool::Tool;
use super::super::{message, quote};
use crate::progress::{self, before, bytes_bar};
use indicatif::ProgressBar;
use landfast_client::archive::Kind;
use landfast_client::put::{Cause, MemberError, Progress, Report};
use landfast_nfs::v4::{NfsStat, OpNum};
use parking_lot::Mutex;
use serde_json::json;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Output is collected up to this many bytes.
const OUTPUT_BYTES: usize = 64 << 10;

/// How the members of one operand are named in messages.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The prefix of all its members' names.
    pub name: Vec<u8>,
    /// What replaces the prefix in the name of the source.
    pub source: Vec<u8>,
    pub dest: Vec<u8>,
}

pub struct CopyOutput {
    shown: Vec<Shown>,
    verbose: bool,
    json: bool,
    shows: bool,
    out: Mutex<Vec<u8>>,
    bar: OnceLock<ProgressBar>,
    start: Instant,
    failures: AtomicU64,
    resumed: AtomicU64,
    causes: Causes,
}

impl CopyOutput {
    pub fn new(shown: Vec<Shown>, verbose: bool, json: bool, shows: bool) -> CopyOutput {
        CopyOutput {
            shown,
            verbose,
            json,
            shows,
            out: Mutex::new(Vec::new()),
            bar: OnceLock::new(),
            start: Instant::now(),
            failures: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
            causes: Causes::default(),
        }
    }

    /// Ends the output and returns how many failures were printed or counted.
    pub fn end(&self) -> u64 {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
        self.flush();
        self.causes.print_others("cp", self.verbose);
        self.failures.load(Ordering::Relaxed)
    }

    pub fn flush(&self) {
        flush(&mut self.out.lock());
    }

    pub fn dest(&self, path: &[u8]) -> Vec<u8> {
        self.names(path, false).1
    }

    /// The names of a member's source and copy in messages. If two sources have one name, the first one is copied.
    fn names(&self, path: &[u8], last: bool) -> (Vec<u8>, Vec<u8>) {
        let of = |shown: &Shown| {
            let rest = path.strip_prefix(&shown.name[..])?;
            match rest.first() {
                None => Some((shown.source.clone(), shown.dest.clone())),
                Some(b'/') => Some((below(&shown.source, &rest[1..]), below(&shown.dest, &rest[1..]))),
                Some(_) if shown.name.is_empty() => {
                    Some((below(&shown.source, rest), below(&shown.dest, rest)))
                }
                Some(_) => None,
            }
        };
        let found = match last {
            true => self.shown.iter().rev().find_map(of),
            false => self.shown.iter().find_map(of),
        };
        found.unwrap_or_else(|| (path.to_vec(), path.to_vec()))
    }

    fn print(&self, bytes: &[u8]) {
        // This must be outside of the closure, in which the bar is locked.
        let at_once = self.bar.get().is_some_and(|bar| !bar.is_hidden());
        let write = || {
            let mut out = self.out.lock();
            out.extend_from_slice(bytes);
            if at_once || out.len() >= OUTPUT_BYTES {
                flush(&mut out);
            }
        };
        progress::without_bar(write);
    }
}

fn flush(out: &mut Vec<u8>) {
    // The copy goes on if the reader of its output goes away.
    let mut to = crate::say::stdout();
    let _ = to.write_all(out).and_then(|()| to.flush());
    out.clear();
}

impl Progress for CopyOutput {
    fn opened(&self, _: Option<u64>) {
        if self.shows {
            let _ = self.bar.set(bytes_bar(None));
        }
    }

    fn committed(&self, members: u64, bytes: u64) {
        if let Some(bar) = self.bar.get().filter(|bar| !bar.is_hidden()) {
            bar.set_position(bytes);
            let resumed = self.resumed.load(Ordering::Relaxed);
            bar.set_message(progress::stable(members, bytes, self.start, resumed));
        }
    }

    fn stable(&self, path: &[u8]) {
        if !self.json && !self.verbose {
            return;
        }
        let (source, dest) = self.names(path, false);
        if self.json {
            let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
            let object = json!({ "path": text(&dest), "source": text(&source), "copied": true });
            self.print(format!("{object}\n").as_bytes());
        } else {
            self.print(&[&quote::always(&source)[..], b" -> ", &quote::always(&dest), b"\n"].concat());
        }
    }

    fn resumed(&self, _: &[u8]) {
        let resumed = self.resumed.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(bar) = self.bar.get().filter(|bar| !bar.is_hidden()) {
            bar.set_message(before(resumed).trim_start_matches(", ").to_owned());
        }
    }

    /// GNU cp prints nothing for these.
    fn dir_existed(&self, _: &[u8]) {}

    fn failed(&self, path: &[u8], why: &MemberError) {
        // The directory's own failure was printed.
        if why.cause == Cause::Parent {
            return;
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        let advice = of_many(why);
        let again = advice.as_ref().is_some_and(|(words, _)| self.causes.again(words));
        if again && !self.verbose {
            return;
        }
        let (source, dest) = self.names(path, why.cause == Cause::JustMade);
        let mut line = sentence(&source, &dest, why);
        if let Some((_, advice)) = advice.filter(|_| !again) {
            line.push_str(&advice);
        }
        eprintln!("cp: {line}");
    }

    fn warning(&self, text: &str) {
        eprintln!("cp: {text}");
    }
}

/// For a cause that many members have if one has it: the cause in words, and advice. A file that may not be written is
/// no such cause, since others may be writable.
fn of_many(why: &MemberError) -> Option<(String, String)> {
    let (what, status) = match why.cause {
        Cause::Attributes(status) => ("failed to preserve attributes: ", status),
        Cause::Refused(
            _,
            status @ (NfsStat::NFS4ERR_NOSPC | NfsStat::NFS4ERR_DQUOT | NfsStat::NFS4ERR_ROFS),
        ) => ("", status),
        _ => return None,
    };
    let advice = causes::advice(why.cause, "--no-preserve=ownership").unwrap_or_default();
    Some((format!("{what}{}{advice}", message::of_status(status)), advice))
}

fn sentence(source: &[u8], dest: &[u8], why: &MemberError) -> String {
    let (from, to) = (quote::shown(source), quote::shown(dest));
    let kind = match why.kind {
        Some(Kind::File) => "cannot create regular file",
        Some(Kind::Dir) => "cannot create directory",
        Some(Kind::Symlink) => "cannot create symbolic link",
        Some(Kind::HardLink) => "cannot create hard link",
        Some(Kind::Fifo) => "cannot create fifo",
        Some(Kind::Char | Kind::Block | Kind::Socket) => "cannot create special file",
        None => "cannot copy to",
    };
    let text = why.status.map_or_else(|| why.to_string(), message::of_status);
    match why.cause {
        Cause::Unseen => format!("cannot stat {from}: {text}"),
        Cause::Unlisted => format!("cannot access {from}: {text}"),
        Cause::Unopened => format!("cannot open {from} for reading: {text}"),
        Cause::Unread => format!("error reading {from}: {text}"),
        Cause::Unmade => format!("{kind} {to}: {text}"),
        Cause::Unwritten => format!("error writing {to}: {text}"),
        Cause::Unset => format!("failed to preserve attributes of {to}: {text}"),
        Cause::DirInTheWay => format!("cannot overwrite directory {to} with non-directory"),
        Cause::NoDirInTheWay => format!("cannot overwrite non-directory {to} with directory {from}"),
        Cause::Xattrs(status) => {
            format!("setting attributes for {to}: {}", message::of_status(status))
        }
        Cause::UnreadXattrs => format!("cannot read the extended attributes of {from}: {text}"),
        Cause::SameFile => format!("{from} and {to} are the same file"),
        Cause::Uncloned => format!("failed to clone {to} from {from}: {text}"),
        Cause::JustMade => format!("will not overwrite just-created {to} with {from}"),
        Cause::Attributes(status) => {
            format!("failed to preserve attributes of {to}: {}", message::of_status(status))
        }
        Cause::Refused(op, status) => {
            let status = message::of_status(status);
            let what = match op {
                OpNum::WRITE | OpNum::COMMIT => "error writing",
                OpNum::SETATTR => "failed to preserve attributes of",
                OpNum::REMOVE => "cannot remove",
                _ => kind,
            };
            format!("{what} {to}: {status}")
        }
        Cause::Parent | Cause::NotBegun | Cause::OtherSpelling | Cause::LeftOut | Cause::Other => {
            format!("cannot copy {from} to {to}: {why}")
        }
    }
}

/// Prints the rest of the report and returns how many objects are durable.
pub fn copied(tool: &Tool, say: &CopyOutput, report: &Report) -> u64 {
    tool.count_failures(say.end());
    if let Some(why) = &report.stopped {
        tool.complain(&format!("the rest was not copied: {why}"));
    }
    report.counts.all()
}
