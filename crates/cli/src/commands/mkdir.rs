//! `landfast mkdir`, as GNU's.

use super::common::Common;
use super::operand::{Operand, Place};
use super::tool::{self, Tool};
use super::{message, mode, quote};
use crate::exit::Exit;
use crate::process;
use clap::Args;
use landfast_client::fs::{Meta, Outcome};
use landfast_nfs::v4::NfsStat;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};

#[derive(Debug, Args)]
pub struct MkdirArgs {
    /// Directories to make: nfs://HOST[:PORT]/PATH
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Make missing directories above as well; it is no error if a directory exists
    #[arg(short = 'p', long)]
    pub parents: bool,
    /// Mode of the new directories, as in chmod
    #[arg(short = 'm', long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Print each directory that is made
    #[arg(short = 'v', long)]
    pub verbose: bool,
    #[command(flatten)]
    pub common: Common,
}

/// Up to this many directories of several levels are made in one COMPOUND.
const TOGETHER: usize = 32;

pub fn run(args: MkdirArgs) -> Exit {
    let umask = process::umask();
    let last = match &args.mode {
        None => Some(0o777 & !umask),
        Some(text) => mode::parse(text, umask),
    };
    let Some(last) = last else {
        let text = args.mode.unwrap_or_default();
        eprintln!("mkdir: invalid mode {}", quote::shown(text.as_bytes()));
        return Exit::Partly;
    };
    let modes = Modes { last, above: (0o777 & !umask) | 0o300 };
    tool::run("mkdir", args.common, move |tool| make(tool, args, modes))
}

#[derive(Clone, Copy)]
struct Modes {
    last: u32,
    above: u32,
}

async fn make(mut tool: Tool, args: MkdirArgs, modes: Modes) -> Tool {
    let operands = tool.places(&args.urls, "cannot create directory", Exit::Partly).await;
    tool.stop_on_signals();
    let mut made = 0;
    if args.parents {
        parents(&mut tool, &operands, modes, args.verbose, &mut made).await;
    } else {
        let places: Vec<_> = operands.iter().map(|(_, place)| place.clone()).collect();
        let outcomes = create(&tool, &places, &vec![modes.last; places.len()], false).await;
        for ((operand, _), outcome) in operands.iter().zip(outcomes) {
            said(&mut tool, &operand.shown, outcome, args.verbose, &mut made);
        }
    }
    tool.summary("made", made);
    tool
}

/// Sends CREATE for each; `Committed(false)`: it exists, which is only a success if `or_there` is set.
async fn create(tool: &Tool, places: &[Place], modes: &[u32], or_there: bool) -> Vec<Outcome<bool>> {
    let mut all: Vec<_> = places.iter().map(|_| Outcome::NotExecuted(String::new())).collect();
    for (nfs, numbers) in tool.servers.by_tree(places) {
        let wanted = numbers.iter().map(|n| (places[*n].joined(), modes[*n]));
        for (n, outcome) in numbers.iter().zip(nfs.mkdir_each(wanted, or_there).await) {
            all[*n] = outcome;
        }
    }
    all
}

async fn parents(
    tool: &mut Tool,
    operands: &[(Operand, Place)],
    modes: Modes,
    verbose: bool,
    made: &mut u64,
) {
    // Each directory on the paths once, by depth and operand, with its name in messages and whether it is an operand itself.
    let mut levels: BTreeMap<(usize, usize), (Place, String, bool)> = BTreeMap::new();
    let mut seen: HashSet<(Place, bool)> = HashSet::new();
    for (n, (operand, place)) in operands.iter().enumerate() {
        let mut at = Some(place.clone());
        while let Some(this) = at.filter(|p| !p.path.is_empty()) {
            let depth = this.path.len();
            let last = depth == place.path.len();
            let shown = if last { operand.shown.clone() } else { operand.shown_above(depth) };
            at = this.split().map(|(above, _)| above);
            if seen.insert((this.clone(), last)) {
                levels.insert((depth, n), (this, shown, last));
            }
        }
    }
    let all: Vec<_> = levels.values().map(|(place, ..)| place.clone()).collect();
    let there = tool.servers.look_for(&all).await;
    // With version 3 the directories above an export need not be visible: if something below one exists, it is not made.
    let above_something: HashSet<Place> = all
        .iter()
        .zip(&there)
        .filter(|(_, found)| found.is_ok())
        .flat_map(|(place, _)| place.and_above())
        .collect();
    // Nothing below these is tried: the failure was printed.
    let mut failed: Vec<Place> = Vec::new();
    let mut missing: BTreeMap<usize, Vec<(Place, String, bool)>> = BTreeMap::new();
    for (((depth, _), (place, shown, last)), found) in levels.into_iter().zip(there) {
        match found {
            Ok(object) if Meta::of(&object.attrs).is_dir() => {}
            Ok(_) => {
                let why = if last { "File exists" } else { "Not a directory" };
                tool.complain(&format!("cannot create directory {}: {why}", quote::shown(shown.as_bytes())));
                failed.extend((!last).then_some(place));
            }
            Err(_) if above_something.contains(&place) => {}
            Err(_) => missing.entry(depth).or_default().push((place, shown, last)),
        }
    }
    let mut levels: Vec<Vec<(Place, String, bool)>> = missing.into_values().collect();
    // A COMPOUND is executed in order, so that one is enough for a few.
    if levels.iter().map(Vec::len).sum::<usize>() <= TOGETHER {
        levels = vec![levels.concat()];
    }
    for level in levels {
        let under = |place: &Place, failed: &[Place]| failed.iter().any(|f| place.path.starts_with(&f.path));
        let level: Vec<_> = level.into_iter().filter(|(place, ..)| !under(place, &failed)).collect();
        let places: Vec<_> = level.iter().map(|(place, ..)| place.clone()).collect();
        let wanted: Vec<_> =
            level.iter().map(|(_, _, last)| if *last { modes.last } else { modes.above }).collect();
        let outcomes = create(tool, &places, &wanted, true).await;
        for (((place, shown, _), mut outcome), mode) in level.into_iter().zip(outcomes).zip(wanted) {
            if under(&place, &failed) {
                continue;
            }
            if is_missing(&outcome) {
                // The request may have been executed before the one that made its parent.
                let again = create(tool, std::slice::from_ref(&place), &[mode], true).await.pop();
                outcome = again.unwrap_or(outcome);
            }
            if !matches!(outcome, Outcome::Committed(_)) {
                failed.push(place);
            }
            said(tool, &shown, outcome, verbose, made);
        }
    }
}

fn is_missing(outcome: &Outcome<bool>) -> bool {
    matches!(outcome, Outcome::Failed(failure) if failure.status() == NfsStat::NFS4ERR_NOENT)
}

fn said(tool: &mut Tool, shown: &str, outcome: Outcome<bool>, verbose: bool, made: &mut u64) {
    let name = quote::shown(shown.as_bytes());
    match outcome.into_result() {
        Ok(true) => {
            *made += 1;
            if tool.json() {
                tool.print_object(&json!({ "path": shown, "made": true }));
            } else if verbose {
                tool.print(format!("mkdir: created directory {name}\n").as_bytes());
            }
        }
        Ok(false) => {}
        Err(e) => tool.complain(&format!("cannot create directory {name}: {}", message::of(&e))),
    }
}
