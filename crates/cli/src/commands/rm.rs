//! `landfast rm`: as GNU's, which never asks here. A directory's entries are removed many in one COMPOUND, from below.

use super::args::RmArgs;
use super::operand::{Operand, Place};
use super::tool::{self, Tool};
use super::{message, quote};
use crate::exit::Exit;
use landfast_client::fs::{Doomed, ItemError, Meta, Outcome, Removal};
use landfast_nfs::v4::NfsStat;
use serde_json::json;
use std::collections::HashSet;

const TOP: &str = "this is the top of the export";

/// Removes.
pub fn run(args: RmArgs) -> Exit {
    tool::run("rm", args.common, |tool| remove(tool, args))
}

async fn remove(mut tool: Tool, args: RmArgs) -> Tool {
    let mut operands = tool.places(&args.urls, "cannot remove", Exit::Partly).await;
    operands.retain(|(operand, place)| {
        let top = place.path.is_empty();
        if top {
            complain(&tool, operand, TOP);
        }
        !top
    });
    tool.stop_on_signals();
    let mut removed = 0;
    let mut batch = Batch::default();
    for operand in operands {
        // Operands that lie in one another are one after another what they are to GNU's rm.
        if !batch.takes(&operand.1) {
            remove_batch(&mut tool, &args, std::mem::take(&mut batch).operands, &mut removed).await;
        }
        batch.add(operand);
    }
    remove_batch(&mut tool, &args, batch.operands, &mut removed).await;
    tool.summary("removed", removed);
    tool
}

/// Operands none of which lies in another.
#[derive(Default)]
struct Batch {
    operands: Vec<(Operand, Place)>,
    ends: HashSet<Place>,
    passed: HashSet<Place>,
}

impl Batch {
    fn takes(&self, place: &Place) -> bool {
        !self.passed.contains(place) && place.and_above().all(|p| !self.ends.contains(&p))
    }

    fn add(&mut self, operand: (Operand, Place)) {
        self.passed.extend(operand.1.and_above());
        self.ends.insert(operand.1.clone());
        self.operands.push(operand);
    }
}

async fn remove_batch(tool: &mut Tool, args: &RmArgs, operands: Vec<(Operand, Place)>, removed: &mut u64) {
    // Each one and the directory that it is in, which need not be different ones of all.
    let mut wanted: Vec<Place> = Vec::with_capacity(operands.len() * 2);
    for (_, place) in &operands {
        wanted.extend(place.split().map(|(above, _)| above));
        wanted.push(place.clone());
    }
    let found = tool.servers.look(&wanted, false).await;
    let mut doomed: Vec<(Place, Doomed)> = Vec::new();
    for (pair, (operand, place)) in found.chunks_exact(2).zip(&operands) {
        let ([above, own], Some((_, name))) = (pair, place.split()) else { continue };
        match (above, own) {
            (Ok(above), Ok(own)) => {
                let meta = Meta::of(&own.attrs);
                if meta.is_dir() && !args.recursive && !args.dir {
                    complain(tool, operand, "Is a directory");
                    continue;
                }
                let dir = (meta.is_dir() && args.recursive).then(|| own.fh.clone());
                let path = operand.shown.trim_end_matches('/').as_bytes().to_vec();
                let tree = Doomed {
                    path,
                    parent: above.fh.clone(),
                    name: name.to_vec(),
                    dir,
                    is_dir: meta.is_dir(),
                };
                doomed.push((place.clone(), tree));
            }
            // With version 3 there is nothing above an export.
            (Err(_), Ok(_)) => complain(tool, operand, TOP),
            (_, Err(e)) => {
                let nothing = [NfsStat::NFS4ERR_NOENT, NfsStat::NFS4ERR_NOTDIR];
                if !args.force || !e.status().is_some_and(|status| nothing.contains(&status)) {
                    complain(tool, operand, &message::of(e));
                }
            }
        }
    }
    let trees = tool.servers.by_tree(doomed.iter().map(|(place, _)| place));
    let trees: Vec<_> = trees.into_iter().map(|(nfs, numbers)| (nfs.clone(), numbers)).collect();
    for (nfs, numbers) in trees {
        let trees: Vec<_> = numbers.iter().map(|n| doomed[*n].1.clone()).collect();
        nfs.remove_trees(trees, |removal| {
            if removal.outcome == Outcome::Committed(()) {
                *removed += 1;
                say(tool, &removal, args.verbose);
            } else {
                failed(tool, removal);
            }
        })
        .await;
    }
}

fn complain(tool: &Tool, operand: &Operand, why: &str) {
    tool.complain(&format!("cannot remove {}: {why}", quote::shown(operand.shown.as_bytes())));
}

fn failed(tool: &Tool, removal: Removal) {
    let Err(e) = removal.outcome.into_result() else { return };
    // After an interruption the summary speaks for all that was not begun.
    if tool.stopped() && matches!(e, ItemError::NotExecuted(_)) {
        return;
    }
    let name = quote::shown(&removal.path);
    let what = if removal.unlisted { "cannot open directory" } else { "cannot remove" };
    tool.complain(&format!("{what} {name}: {}", message::of(&e)));
}

fn say(tool: &mut Tool, removal: &Removal, verbose: bool) {
    let Removal { path, dir, .. } = removal;
    if tool.json() {
        tool.print_object(
            &json!({ "path": String::from_utf8_lossy(path), "directory": dir, "removed": true }),
        );
    } else if verbose {
        let what: &[u8] = if *dir { b"removed directory " } else { b"removed " };
        tool.print(&[what, &quote::always(path), b"\n"].concat());
    }
}
