//! `landfast find`, as GNU's.
//!
//! | file | subject |
//! |---|---|
//! | `expression` | expressions, parsed and evaluated (pure) |
//! | `regex` | regular expressions (pure) |
//! | `format` | the output for an object |
//! | `delete` | `-delete`, many objects in one request |

mod delete;
mod expression;
mod format;
mod object;
mod regex;

use super::common::Common;
use super::object::meta_json;
use super::tool::{self, Tool};
use super::visit::{Visit, VisitOptions, in_order};
use super::{message, owners, quote};
use crate::exit::Exit;
use crate::say;
use crate::sys;
use crate::units::patience;
use clap::Args;
use delete::{Location, Queued};
use expression::{Output, Query, Reference, Verdict};
use format::Widths;
use landfast_client::fs::{Meta, WalkOptions};
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{FileHandle, Fsid, NfsTime};
use object::{Context, Object};
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Debug, Args)]
pub struct FindArgs {
    /// Starting points, then an expression: nfs://HOST[:PORT]/PATH... [-name PATTERN] [-type f] [-o] [-print0] ...
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

/// Limit of objects that wait for their own deletion, or for one before them.
const QUEUED_MAX: usize = 4096;

pub fn run(args: FindArgs) -> Exit {
    // clap does not parse an expression: the options that all commands have are taken out of its words here.
    let mut words = args.words;
    let mut given = |option: &str| {
        let before = words.len();
        words.retain(|word| word != option);
        words.len() < before
    };
    let (json, rpc_counts) = (given("--json"), given("--rpc-counts"));
    let wrong = |why: &str| {
        eprintln!("find: {why}");
        Exit::Partly
    };
    let timeout = match timeout(&mut words) {
        Ok(timeout) => timeout,
        Err(why) => return wrong(&why),
    };
    let common = Common::new(json, rpc_counts, timeout);
    // `-P` is the default: symbolic links are not followed.
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
        Ok(_) => return wrong("missing starting point: give nfs://HOST[:PORT]/PATH"),
        Err(e) => return wrong(&e),
    };
    tool::run("find", common, |tool| search(tool, words, query))
}

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
    // `-empty` needs a listing of directories one level deeper.
    let listed_below = if query.empty { 0 } else { 1 };
    let depth_below = query.depth_max.map_or(usize::MAX, |depth| depth.saturating_sub(listed_below));
    let who = owners::LocalNames::default();
    let context = Context { now, references: &references, owners: &owners, who: &who };
    let mut search = Search::new(&query, context);
    if query.deletes {
        tool.stop_on_signals();
    }
    // What is deleted meanwhile would shift the places where listings continue.
    let parts = !query.deletes;
    let walk = WalkOptions { depth_max: depth_below, texts: query.texts, parts, ..WalkOptions::default() };
    in_order(&mut tool, operands, "", VisitOptions { walk, follow: false }, |tool, visit| {
        search.visit(tool, visit)
    })
    .await;
    // The search is over, so that `-quit` has nothing left to end.
    let _ = search.flush(&mut tool);
    match query.deletes {
        true => tool.summary("deleted", search.deleted),
        false => tool.summary("found", search.found),
    }
    tool
}

/// A directory on the path to the current object.
struct Level {
    pruned: bool,
    /// Entries that are left in it, as far as is known.
    entries: usize,
    unlisted: bool,
    fh: Option<FileHandle>,
    /// The directory itself, if it is judged after its entries.
    held: Option<Queued>,
}

struct Search<'a> {
    query: &'a Query,
    context: Context<'a>,
    found: u64,
    deleted: u64,
    filesystem: Option<Fsid>,
    stack: Vec<Level>,
    /// Objects that wait for a deletion, in their order.
    queue: Vec<Queued>,
    widths: Widths,
}

impl<'a> Search<'a> {
    fn new(query: &'a Query, context: Context<'a>) -> Search<'a> {
        Search {
            query,
            context,
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
                let at = Location {
                    parent: above.and_then(|above| above.fh.clone()),
                    place: place.clone(),
                    dot: depth == 0 && operand.ends_in_dot(),
                    level: self.stack.len().checked_sub(1),
                };
                let start = operand.shown.as_bytes();
                let object = Object { path, start, depth, meta, text, empty_dir: false };
                // `-empty` needs the listing, and `-depth` judges a directory after its entries.
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
                    // A directory from which everything was deleted is empty.
                    self.flush(tool)?;
                }
                self.judge_held(tool)?;
                self.stack.pop();
            }
        }
        ControlFlow::Continue(())
    }

    /// Judges the innermost directory, if that was postponed.
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

    /// Acts on an object, or queues it behind a deletion. Returns whether it is pruned.
    fn judge(&mut self, tool: &mut Tool, object: &Object<'_>, at: Location) -> ControlFlow<(), bool> {
        let depth = object.depth;
        if depth < self.query.depth_min || self.query.depth_max.is_some_and(|most| depth > most) {
            return ControlFlow::Continue(false);
        }
        let verdict = self.query.judge(object, &self.context, None);
        if verdict.delete || !self.queue.is_empty() {
            let mut queued = Queued::new(object, at);
            queued.asked = verdict.delete;
            self.queue.push(queued);
            // With `-quit` each deletion is done at once: nothing behind the end of the search may be deleted.
            if self.queue.len() >= QUEUED_MAX || self.query.quits {
                self.flush(tool)?;
            }
            return ControlFlow::Continue(false);
        }
        let prune = verdict.prune;
        self.act(tool, object, verdict)?;
        ControlFlow::Continue(prune)
    }

    /// Deletes what is queued, then acts on each queued object.
    fn flush(&mut self, tool: &mut Tool) -> ControlFlow<()> {
        let queue = std::mem::take(&mut self.queue);
        if queue.is_empty() {
            return ControlFlow::Continue(());
        }
        // The walk is blocked meanwhile, but its memory is bounded: it asks for no more than what is in flight.
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
            let verdict = self.query.judge(&object, &self.context, queued.asked.then_some(gone));
            self.act(tool, &object, verdict)?;
        }
        ControlFlow::Continue(())
    }

    fn act(&mut self, tool: &mut Tool, object: &Object<'_>, verdict: Verdict<'_>) -> ControlFlow<()> {
        self.found += u64::from(!verdict.outputs.is_empty());
        for output in verdict.outputs {
            if tool.json() {
                tool.print_object(&meta_json(object.path, object.meta));
                continue;
            }
            match output {
                Output::Path(b"\n") if say::to_terminal() => {
                    tool.print(&[&say::marked(object.path), &b"\n"[..]].concat());
                }
                Output::Path(end) => tool.print(&[object.path, end].concat()),
                Output::Format(format) if say::to_terminal() => {
                    let (path, start) = (say::marked(object.path), say::marked(object.start));
                    let text = object.text.map(say::marked);
                    let object = Object { path: &path, start: &start, text: text.as_deref(), ..*object };
                    tool.print_raw(&format.say(&object, &self.context));
                }
                Output::Format(format) => tool.print_raw(&format.say(object, &self.context)),
                Output::Line => tool.print(&self.widths.line(object, &self.context)),
            }
        }
        match verdict.quit {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

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

/// Parses `@SECONDS`, or a date, perhaps with a time of day, in the time zone of this process.
fn moment(text: &str) -> Option<NfsTime> {
    if let Some(seconds) = text.strip_prefix('@') {
        return Some(NfsTime { seconds: seconds.parse().ok()?, nseconds: 0 });
    }
    let civil: jiff::civil::DateTime = text.trim().parse().ok()?;
    let there = civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    let east = |seconds| sys::local(seconds).map_or(0, |local| local.offset);
    // The offset of about that time leads to the exact offset.
    let about = there.as_second() - east(there.as_second());
    let seconds = there.as_second() - east(about);
    Some(NfsTime { seconds, nseconds: u32::try_from(there.subsec_nanosecond()).ok()? })
}
