//! `landfast find`, as GNU's, for names, types, sizes, times, modes and owners.
//!
//! | room | subject |
//! |---|---|
//! | `expression` | what it is asked (pure) |
//! | `regex` | regular expressions (pure) |
//! | `format` | what is said of an object |
//! | `delete` | what is to be deleted, many objects in one request |

mod delete;
mod expression;
mod format;
mod object;
mod regex;

use super::common::Common;
use super::object::meta_json;
use super::tool::{self, Tool};
use super::visit::{How, Visit, in_order};
use super::{message, owners, quote};
use crate::exit::Exit;
use crate::say;
use crate::sys;
use crate::units::patience;
use clap::Args;
use delete::{At, Queued};
use expression::{Query, Reference, Says, Verdict};
use format::Widths;
use landfast_client::fs::{Meta, WalkOptions};
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{FileHandle, Fsid, NfsTime};
use object::{Known, Object};
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `landfast find`.
#[derive(Debug, Args)]
pub struct FindArgs {
    /// Starting points and an expression: nfs://HOST[:PORT]/PATH... [-name PATTERN] [-type f] [-o] [-print0] ...
    #[arg(
        value_name = "URL... EXPRESSION",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<String>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Objects that wait for a deletion: theirs, or that of one before them.
const QUEUED_MAX: usize = 4096;

/// Searches.
pub fn run(args: FindArgs) -> Exit {
    // The expression is no list of options: what all commands take is looked for among its words.
    let mut words = args.words;
    let mut given = |option: &str| {
        let before = words.len();
        words.retain(|word| word != option);
        words.len() < before
    };
    let (json, rpc_counts) = (given("--json"), given("--rpc-counts"));
    let timeout = match timeout(&mut words) {
        Ok(timeout) => timeout,
        Err(why) => {
            eprintln!("find: {why}");
            return Exit::Partly;
        }
    };
    let common = Common::new(json, rpc_counts, timeout);
    // Symbolic links are never followed.
    let given = words.iter().take_while(|word| *word == "-P").count();
    words.drain(..given);
    let begins = |word: &String| word.starts_with('-') || matches!(word.as_str(), "(" | "!" | ")" | ",");
    let starts = words.iter().position(begins).unwrap_or(words.len());
    let expression = words.split_off(starts);
    let mut warnings = Vec::new();
    let query = Query::parse(&expression, &mut warnings);
    for warning in &warnings {
        eprintln!("find: {warning}");
    }
    let query = match query {
        Ok(query) if !words.is_empty() => query,
        Ok(_) => {
            eprintln!("find: where? Give a starting point: nfs://HOST[:PORT]/PATH");
            return Exit::Partly;
        }
        Err(e) => {
            eprintln!("find: {e}");
            return Exit::Partly;
        }
    };
    tool::run("find", common, |tool| search(tool, words, query))
}

/// Takes `--timeout` out of the words.
fn timeout(words: &mut Vec<String>) -> Result<Option<Duration>, String> {
    const OPTION: &str = "--timeout";
    let mut timeout = None;
    while let Some(at) = words.iter().position(|word| {
        word.strip_prefix(OPTION).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    }) {
        let word = words.remove(at);
        let value = match word.split_once('=') {
            Some((_, value)) => value.to_owned(),
            None if at < words.len() => words.remove(at),
            None => return Err(format!("option '{OPTION}' requires an argument")),
        };
        timeout = Some(patience(&value)?);
    }
    Ok(timeout)
}

async fn search(mut tool: Tool, urls: Vec<String>, query: Query) -> Tool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = NfsTime { seconds: now.as_secs().cast_signed(), nseconds: now.subsec_nanos() };
    let mut references = Vec::with_capacity(query.references.len());
    for reference in &query.references {
        match compared_with(&mut tool, reference).await {
            Some(meta) => references.push(meta),
            None => return tool,
        }
    }
    let mut owners = Vec::with_capacity(query.owners.len());
    for (group, name) in &query.owners {
        let found = if *group { sys::group_id(name.as_bytes()) } else { sys::user_id(name.as_bytes()) };
        let Some(id) = found.or_else(|| name.parse().ok()) else {
            let of = if *group { "an existing group" } else { "a known user" };
            tool.complain(&format!("'{name}' is not the name of {of}"));
            return tool;
        };
        owners.push(id);
    }
    let operands = tool.places(&urls, "cannot access", Exit::Partly).await;
    // Whether a directory is empty shows when it is listed.
    let listed_below = if query.empty { 0 } else { 1 };
    let depth_below = query.depth_max.map_or(usize::MAX, |depth| depth.saturating_sub(listed_below));
    let who = owners::Known::default();
    let known = Known { now, references: &references, owners: &owners, who: &who };
    let mut search = Search::new(&query, known);
    if query.deletes {
        tool.stop_on_signals();
    }
    let walk = WalkOptions { depth_max: depth_below, texts: query.texts, ..WalkOptions::default() };
    in_order(&mut tool, operands, "", How { walk, follow: false }, |tool, visit| search.visit(tool, visit))
        .await;
    // Of what is left nothing can end a search that is over.
    let _ = search.flush(&mut tool);
    match query.deletes {
        true => tool.summary("deleted", search.deleted),
        false => tool.summary("found", search.found),
    }
    tool
}

/// A directory on the way to where the search is.
struct Level {
    /// What is in it is left out.
    pruned: bool,
    /// Entries that are in it, as far as is known.
    entries: usize,
    /// It could not be listed.
    unlisted: bool,
    /// Its handle.
    fh: Option<FileHandle>,
    /// It is yet to be judged.
    held: Option<Queued>,
}

/// A search on its way.
struct Search<'a> {
    query: &'a Query,
    known: Known<'a>,
    found: u64,
    deleted: u64,
    /// That of the starting point.
    filesystem: Option<Fsid>,
    stack: Vec<Level>,
    /// What waits for a deletion, in its order.
    queue: Vec<Queued>,
    widths: Widths,
}

impl<'a> Search<'a> {
    fn new(query: &'a Query, known: Known<'a>) -> Search<'a> {
        Search {
            query,
            known,
            found: 0,
            deleted: 0,
            filesystem: None,
            stack: Vec::new(),
            queue: Vec::new(),
            widths: Widths::default(),
        }
    }

    fn visit(&mut self, tool: &mut Tool, visit: Visit<'_>) -> ControlFlow<()> {
        match visit {
            Visit::Object { path, depth, meta, text, fh, top: (operand, place), walked } => {
                if let Some(above) = self.stack.last_mut() {
                    above.entries += 1;
                }
                if !self.query.depth_first {
                    self.judge_held(tool)?;
                }
                if depth == 0 {
                    self.filesystem = Some(meta.fsid);
                }
                let above = self.stack.last();
                let out = above.is_some_and(|above| above.pruned);
                let at = At {
                    parent: above.and_then(|above| above.fh.clone()),
                    place: place.clone(),
                    dot: depth == 0 && operand.ends_in_dot(),
                    level: self.stack.len().checked_sub(1),
                };
                let start = operand.shown.as_bytes();
                let object = Object { path, start, depth, meta, text, empty_dir: false };
                // What only shows when it is listed, or comes behind what is in it, waits for that.
                let waits = walked && !out && (self.query.depth_first || self.query.empty);
                let held = waits.then(|| Queued::new(&object, at.clone()));
                let prune = match out || waits {
                    true => out,
                    false => self.judge(tool, &object, at)?,
                };
                if walked {
                    let elsewhere = self.query.one_filesystem && self.filesystem != Some(meta.fsid);
                    let (pruned, fh) = (prune || elsewhere, fh.cloned());
                    self.stack.push(Level { pruned, entries: 0, unlisted: false, fh, held });
                }
            }
            Visit::Unlisted => {
                if let Some(level) = self.stack.last_mut() {
                    level.unlisted = true;
                }
            }
            Visit::Left => {
                if self.query.empty {
                    // What is gone of it counts.
                    self.flush(tool)?;
                }
                self.judge_held(tool)?;
                self.stack.pop();
            }
        }
        ControlFlow::Continue(())
    }

    /// Judges the innermost directory, if that is still to be done.
    fn judge_held(&mut self, tool: &mut Tool) -> ControlFlow<()> {
        let Some(level) = self.stack.last_mut() else { return ControlFlow::Continue(()) };
        let (empty, held) = (level.entries == 0 && !level.unlisted, level.held.take());
        let Some(mut held) = held else { return ControlFlow::Continue(()) };
        held.empty_dir = empty;
        let prune = self.judge(tool, &held.object(), held.at.clone())?;
        if let Some(level) = self.stack.last_mut() {
            level.pruned |= prune && !self.query.depth_first;
        }
        ControlFlow::Continue(())
    }

    /// Does what an object asks for, or lets it wait for its deletion; whether it is not gone into.
    fn judge(&mut self, tool: &mut Tool, object: &Object<'_>, at: At) -> ControlFlow<(), bool> {
        let depth = object.depth;
        if depth < self.query.depth_min || self.query.depth_max.is_some_and(|most| depth > most) {
            return ControlFlow::Continue(false);
        }
        let verdict = self.query.judge(object, &self.known, None);
        if verdict.delete || !self.queue.is_empty() {
            let mut queued = Queued::new(object, at);
            queued.asked = verdict.delete;
            self.queue.push(queued);
            // What comes behind the end of a search is not deleted.
            if self.queue.len() >= QUEUED_MAX || self.query.quits {
                self.flush(tool)?;
            }
            return ControlFlow::Continue(false);
        }
        let prune = verdict.prune;
        self.act(tool, object, verdict)?;
        ControlFlow::Continue(prune)
    }

    /// Deletes what waits for it, and does what else was asked.
    fn flush(&mut self, tool: &mut Tool) -> ControlFlow<()> {
        let queue = std::mem::take(&mut self.queue);
        if queue.is_empty() {
            return ControlFlow::Continue(());
        }
        // The walk waits: it asks for no more than what it has under way.
        let deleting = || tokio::runtime::Handle::current().block_on(delete::all(tool, &queue));
        let gone = tokio::task::block_in_place(deleting);
        for (queued, gone) in queue.iter().zip(gone) {
            if gone {
                self.deleted += 1;
                if let Some(level) = queued.at.level.and_then(|n| self.stack.get_mut(n)) {
                    level.entries = level.entries.saturating_sub(1);
                }
            }
            let object = queued.object();
            let verdict = self.query.judge(&object, &self.known, queued.asked.then_some(gone));
            self.act(tool, &object, verdict)?;
        }
        ControlFlow::Continue(())
    }

    fn act(&mut self, tool: &mut Tool, object: &Object<'_>, verdict: Verdict<'_>) -> ControlFlow<()> {
        self.found += u64::from(!verdict.says.is_empty());
        for says in verdict.says {
            if tool.json() {
                tool.print_object(&meta_json(object.path, object.meta));
                continue;
            }
            match says {
                Says::Path(b"\n") if say::to_terminal() => {
                    tool.print(&[&say::marked(object.path), &b"\n"[..]].concat());
                }
                Says::Path(end) => tool.print(&[object.path, end].concat()),
                Says::Format(format) if say::to_terminal() => {
                    let (path, start) = (say::marked(object.path), say::marked(object.start));
                    let text = object.text.map(say::marked);
                    let object = Object { path: &path, start: &start, text: text.as_deref(), ..*object };
                    tool.print_raw(&format.say(&object, &self.known));
                }
                Says::Format(format) => tool.print_raw(&format.say(object, &self.known)),
                Says::Line => tool.print(&self.widths.line(object, &self.known)),
            }
        }
        match verdict.quit {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// What `-newer` and its like compare with.
async fn compared_with(tool: &mut Tool, reference: &Reference) -> Option<Meta> {
    let url = match reference {
        Reference::Url(url) => url.clone(),
        Reference::Time(text) => {
            let Some(time) = moment(text) else {
                tool.complain(&format!("I cannot figure out how to interpret '{text}' as a date or time"));
                return None;
            };
            let all = AttrValues {
                time_modify: Some(time),
                time_access: Some(time),
                time_metadata: Some(time),
                ..AttrValues::default()
            };
            return Some(Meta::of(&all));
        }
    };
    let (operand, place) =
        tool.places(std::slice::from_ref(&url), "cannot access", Exit::Partly).await.pop()?;
    match tool.servers.look(&[place], false).await.pop()? {
        Ok(object) => Some(Meta::of(&object.attrs)),
        Err(e) => {
            tool.complain(&format!("{}: {}", quote::shown(operand.shown.as_bytes()), message::of(&e)));
            None
        }
    }
}

/// `@SECONDS`, or a date, perhaps with a time of day, in the time zone of this process.
fn moment(text: &str) -> Option<NfsTime> {
    if let Some(seconds) = text.strip_prefix('@') {
        return Some(NfsTime { seconds: seconds.parse().ok()?, nseconds: 0 });
    }
    let civil: jiff::civil::DateTime = text.trim().parse().ok()?;
    let there = civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    let east = |seconds| sys::local(seconds).map_or(0, |local| local.offset);
    // The offset of about then, and with it that of then.
    let about = there.as_second() - east(there.as_second());
    let seconds = there.as_second() - east(about);
    Some(NfsTime { seconds, nseconds: u32::try_from(there.subsec_nanosecond()).ok()? })
}
