//! `landfast find`, as GNU's, for names, types, sizes, times, modes and owners.

use super::args::{Common, FindArgs};
use super::expression::{Known, Object, Query, Reference};
use super::tool::{self, Tool};
use super::visit::{Visit, in_order};
use super::{message, meta_json, owners, quote};
use crate::exit::Exit;
use crate::sys;
use landfast_client::fs::Meta;
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{Fsid, NfsTime};
use std::time::{SystemTime, UNIX_EPOCH};

/// Searches.
pub fn run(args: FindArgs) -> Exit {
    // The expression is no list of options: what all commands take is looked for among its words.
    let mut words = args.words;
    let mut given = |option: &str| {
        let before = words.len();
        words.retain(|word| word != option);
        words.len() < before
    };
    let common = Common::new(given("--json"), given("--rpc-counts"));
    // Symbolic links are never followed.
    let given = words.iter().take_while(|word| *word == "-P").count();
    words.drain(..given);
    let begins = |word: &String| word.starts_with('-') || matches!(word.as_str(), "(" | "!" | ")" | ",");
    let starts = words.iter().position(begins).unwrap_or(words.len());
    let expression = words.split_off(starts);
    let query = match Query::parse(&expression) {
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
    let mut search = Search { query: &query, known, found: 0, filesystem: None, stack: Vec::new() };
    in_order(&mut tool, operands, "", depth_below, |tool, visit| search.visit(tool, visit)).await;
    let found = search.found;
    tool.summary("found", found);
    tool
}

/// A directory on the way to where the search is.
struct Level {
    /// What is in it is left out.
    pruned: bool,
    /// Nothing was found in it, as far as is known.
    empty: bool,
    /// It is yet to be judged.
    held: Option<(Vec<u8>, usize, Meta)>,
}

/// A search on its way.
struct Search<'a> {
    query: &'a Query,
    known: Known<'a>,
    found: u64,
    /// That of the starting point.
    filesystem: Option<Fsid>,
    stack: Vec<Level>,
}

impl Search<'_> {
    fn visit(&mut self, tool: &mut Tool, visit: Visit<'_>) {
        match visit {
            Visit::Object { path, depth, meta, walked } => {
                if let Some(above) = self.stack.last_mut() {
                    above.empty = false;
                }
                if !self.query.depth_first {
                    self.judge_held(tool);
                }
                if depth == 0 {
                    self.filesystem = Some(meta.fsid);
                }
                let out = self.stack.last().is_some_and(|above| above.pruned);
                // What only shows when it is listed, or comes behind what is in it, waits for that.
                let waits = walked && !out && (self.query.depth_first || self.query.empty);
                let prune = match out || waits {
                    true => out,
                    false => self.judge(tool, path, depth, meta, false),
                };
                if walked {
                    let elsewhere = self.query.one_filesystem && self.filesystem != Some(meta.fsid);
                    let held = waits.then(|| (path.to_vec(), depth, meta.clone()));
                    self.stack.push(Level { pruned: prune || elsewhere, empty: true, held });
                }
            }
            Visit::Unlisted => {
                if let Some(level) = self.stack.last_mut() {
                    level.empty = false;
                }
            }
            Visit::Left => {
                self.judge_held(tool);
                self.stack.pop();
            }
        }
    }

    /// Judges the innermost directory, if that is still to be done.
    fn judge_held(&mut self, tool: &mut Tool) {
        let Some(level) = self.stack.last_mut() else { return };
        let (Some((path, depth, meta)), empty) = (level.held.take(), level.empty) else { return };
        let prune = self.judge(tool, &path, depth, &meta, empty);
        if let Some(level) = self.stack.last_mut() {
            level.pruned |= prune && !self.query.depth_first;
        }
    }

    /// Does what an object asks for; whether it is not gone into.
    fn judge(&mut self, tool: &mut Tool, path: &[u8], depth: usize, meta: &Meta, empty_dir: bool) -> bool {
        if depth < self.query.depth_min || self.query.depth_max.is_some_and(|most| depth > most) {
            return false;
        }
        let verdict = self.query.judge(&Object { path, meta, empty_dir }, &self.known);
        self.found += u64::from(!verdict.print.is_empty());
        for end in verdict.print {
            print(tool, path, meta, end);
        }
        verdict.prune
    }
}

fn print(tool: &mut Tool, path: &[u8], meta: &Meta, end: &[u8]) {
    if tool.json() {
        tool.print_object(&meta_json(path, meta));
    } else {
        tool.print(&[path, end].concat());
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
