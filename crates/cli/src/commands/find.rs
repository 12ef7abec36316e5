//! `landfast find`, as GNU's, for names, types, sizes and times.

use super::args::{Common, FindArgs};
use super::expression::{Known, Object, Query};
use super::tool::{self, Tool};
use super::visit::{Visit, in_order};
use super::{message, meta_json, quote};
use crate::exit::Exit;
use landfast_client::fs::Meta;
use landfast_nfs::v4::NfsTime;
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
    let mut newer = Vec::with_capacity(query.newer.len());
    for url in &query.newer {
        match reference(&mut tool, url).await {
            Some(time) => newer.push(time),
            None => return tool,
        }
    }
    let operands = tool.places(&urls, "cannot access", Exit::Partly).await;
    let known = Known { now, newer: &newer };
    let (mut found, mut seen) = (0u64, 0u64);
    // Directories on the way to here, and whether what is in them is left out.
    let mut pruned: Vec<bool> = Vec::new();
    let depth_below = query.depth_max.map_or(usize::MAX, |depth| depth.saturating_sub(1));
    in_order(&mut tool, operands, "", depth_below, |tool, visit| {
        let (path, depth, meta, walked) = match visit {
            Visit::Object { path, depth, meta, walked } => (path, depth, meta, walked),
            Visit::Left => {
                pruned.pop();
                return;
            }
        };
        seen += 1;
        let out = pruned.last().copied().unwrap_or_default();
        let wanted = depth >= query.depth_min && query.depth_max.is_none_or(|most| depth <= most);
        let mut prune = out;
        if wanted && !out {
            let verdict = query.judge(&Object { path, meta }, &known);
            prune = verdict.prune;
            found += u64::from(!verdict.print.is_empty());
            for end in verdict.print {
                print(tool, path, meta, end);
            }
        }
        if walked {
            pruned.push(prune);
        }
    })
    .await;
    tool.summary("found", found);
    tool
}

fn print(tool: &mut Tool, path: &[u8], meta: &Meta, end: &[u8]) {
    if tool.json() {
        tool.print_object(&meta_json(path, meta));
    } else {
        tool.print(&[path, end].concat());
    }
}

/// The time of the file that `-newer` names.
async fn reference(tool: &mut Tool, url: &str) -> Option<NfsTime> {
    let (operand, place) =
        tool.places(std::slice::from_ref(&url.to_owned()), "cannot access", Exit::Partly).await.pop()?;
    match tool.servers.look(&[place], false).await.pop()? {
        Ok(object) => Some(Meta::of(&object.attrs).modified),
        Err(e) => {
            tool.complain(&format!("{}: {}", quote::shown(operand.shown.as_bytes()), message::of(&e)));
            None
        }
    }
}
