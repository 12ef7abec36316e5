//! `landfast du`, as GNU's: what objects take on the server's disks, those with several names counted once.

use super::args::DuArgs;
use super::tool::{self, Tool};
use super::visit::{Visit, in_order};
use super::{meta_json, show};
use crate::exit::Exit;
use landfast_client::fs::Meta;
use serde_json::json;
use std::collections::HashSet;

/// Adds up.
pub fn run(args: DuArgs) -> Exit {
    tool::run("du", args.common, |tool| add_up(tool, args))
}

/// A directory that is being added up.
struct Level {
    path: Vec<u8>,
    meta: Meta,
    bytes: u64,
    /// It was counted before: nothing of it counts.
    skipped: bool,
}

async fn add_up(mut tool: Tool, args: DuArgs) -> Tool {
    let operands = tool.places(&args.urls, "cannot access", Exit::Partly).await;
    // What lies in another operand counts once.
    let all_once = args.urls.len() > 1;
    let depth_shown = if args.summarize { 0 } else { args.max_depth.unwrap_or(usize::MAX) };
    let mut seen: HashSet<(u64, u64, u64)> = HashSet::new();
    let mut stack: Vec<Level> = Vec::new();
    let (mut total, mut objects) = (0, 0);
    in_order(&mut tool, operands, "cannot access", usize::MAX, |tool, visit| match visit {
        Visit::Object { path, depth, meta, walked } => {
            objects += 1;
            let within_skipped = stack.last().is_some_and(|level| level.skipped);
            let once = all_once || (meta.links > 1 && !meta.is_dir());
            let skipped =
                within_skipped || (once && !seen.insert((meta.fsid.major, meta.fsid.minor, meta.fileid)));
            let bytes = match (skipped, args.apparent_size || args.bytes) {
                (true, _) => 0,
                (false, true) => meta.size,
                (false, false) => meta.used,
            };
            if walked {
                return stack.push(Level { path: path.to_vec(), meta: meta.clone(), bytes, skipped });
            }
            match stack.last_mut() {
                Some(level) => level.bytes += bytes,
                None => total += bytes,
            }
            if !skipped && (depth == 0 || (args.all && depth <= depth_shown)) {
                say(tool, &args, path, meta, bytes);
            }
        }
        Visit::Left => {
            let Some(Level { path, meta, bytes, skipped }) = stack.pop() else { return };
            match stack.last_mut() {
                Some(level) => level.bytes += bytes,
                None => total += bytes,
            }
            if !skipped && stack.len() <= depth_shown {
                say(tool, &args, &path, &meta, bytes);
            }
        }
    })
    .await;
    if args.total {
        if tool.json() {
            tool.print_object(&json!({ "total": true, "bytes": total }));
        } else {
            let line = format!("{}\ttotal\n", size(&args, total));
            tool.print(line.as_bytes());
        }
    }
    tool.summary("visited", objects);
    tool
}

fn size(args: &DuArgs, bytes: u64) -> String {
    if args.human_readable {
        show::human(bytes)
    } else if args.bytes {
        bytes.to_string()
    } else {
        bytes.div_ceil(1024).to_string()
    }
}

fn say(tool: &mut Tool, args: &DuArgs, path: &[u8], meta: &Meta, bytes: u64) {
    if tool.json() {
        let mut object = meta_json(path, meta);
        object["bytes"] = json!(bytes);
        tool.print_object(&object);
    } else {
        tool.print(&[size(args, bytes).as_bytes(), b"\t", path, b"\n"].concat());
    }
}
