//! `landfast rm`, as GNU's. A tree is removed from below, many entries in one COMPOUND; with `-i` one object after another.

pub mod args;
mod asking;
mod say;

use super::ask::{self, Ask};
use super::operand::{Operand, Place};
use super::tool::{self, Tool};
use super::{message, quote};
use crate::exit::Exit;
use crate::progress::Counter;
use crate::resume::{self, Start};
use args::RmArgs;
use asking::Candidate;
use landfast_client::fs::{Meta, Outcome, ToRemove};
use landfast_client::resume::{JournalFile, Resume, ResumeError};
use landfast_nfs::v4::NfsStat;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

const TOP: &str = "this is the top of the export";

pub fn run(args: RmArgs) -> Exit {
    if args.urls.is_empty() && !args.asking.force {
        eprintln!("rm: missing operand");
        eprintln!("Try 'landfast rm --help' for more information.");
        return Exit::Partly;
    }
    if args.asking.when == Ask::Once && !agreed(&args) {
        return Exit::Done;
    }
    if args.asking.when == Ask::Always && args.resume.is_some() {
        eprintln!(
            "rm: --resume cannot be used with -i: an object that you wanted to keep looks like one that was not removed yet"
        );
        return Exit::Partly;
    }
    tool::run("rm", args.common, |tool| remove(tool, args))
}

/// `-I`: asks once before much is removed. Everything but a yes is a no.
fn agreed(args: &RmArgs) -> bool {
    /// Up to this many arguments are removed without a question.
    const FEW: usize = 3;
    let n = args.urls.len();
    if n == 0 || !args.recursive && n <= FEW {
        return true;
    }
    let (s, how) = (if n == 1 { "" } else { "s" }, if args.recursive { " recursively" } else { "" });
    eprint!("rm: remove {n} argument{s}{how}? ");
    ask::is_yes()
}

async fn remove(mut tool: Tool, args: RmArgs) -> Tool {
    let start = match begin(&mut tool, &args) {
        Ok(start) => start,
        Err(e) => {
            tool.complain(&e.to_string());
            return tool;
        }
    };
    if let (Start::Finished(done), Some(path)) = (&start, &args.resume) {
        eprintln!("rm: {}", resume::finished(path, *done));
        tool.count_resumed(*done);
        tool.summary("removed", 0);
        return tool;
    }
    let journal = start.journal();
    if let Some(journal) = &journal {
        tool.count_resumed(journal.removed_before());
    }
    let operands = tool.places(&args.urls, "cannot remove", Exit::Partly).await;
    let mut operands = numbered(&args, operands);
    operands.retain(|(_, operand, place)| {
        if operand.ends_in_dot() && (args.recursive || args.dir) {
            let name = quote::shown(operand.shown.as_bytes());
            tool.complain(&format!("refusing to remove '.' or '..' directory: skipping {name}"));
            return false;
        }
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
        // GNU's rm handles operands one after another: that matters if one is inside of another, or if it asks.
        let asks = args.asking.when == Ask::Always && !batch.operands.is_empty();
        if asks || !batch.takes(&operand.2) {
            let now = std::mem::take(&mut batch).operands;
            remove_batch(&mut tool, (&args, journal.as_ref()), now, &mut removed).await;
        }
        batch.add(operand);
    }
    remove_batch(&mut tool, (&args, journal.as_ref()), batch.operands, &mut removed).await;
    tool.close(journal.as_deref());
    tool.summary("removed", removed);
    tool
}

fn begin(tool: &mut Tool, args: &RmArgs) -> Result<Start, ResumeError> {
    let Some(path) = &args.resume else { return Ok(Start::Without) };
    let options = [(args.recursive, "-r"), (args.asking.force, "-f"), (args.dir, "-d")];
    let options: Vec<&str> = options.iter().filter_map(|(set, word)| set.then_some(*word)).collect();
    // The URLs as typed: filehandles depend on the protocol's version.
    let job = resume::job("rm").about("operands", args.urls.join(" ")).about("options", options.join(" "));
    let journal = JournalFile::open(path)?;
    tool.servers.instance = Some(journal.instance());
    resume::begin(Some(journal), job, BTreeMap::new())
}

/// The operands that were resolved, each with its index among all.
fn numbered(args: &RmArgs, operands: Vec<(Operand, Place)>) -> Vec<Numbered> {
    let mut numbers = 0..args.urls.len() as u32;
    let shown = |n: &u32| Operand::parse(&args.urls[*n as usize]).map(|operand| operand.shown);
    operands
        .into_iter()
        .filter_map(|(operand, place)| {
            let number = numbers.find(|n| shown(n).is_ok_and(|shown| shown == operand.shown))?;
            Some((number, operand, place))
        })
        .collect()
}

type Numbered = (u32, Operand, Place);

/// Operands none of which is inside of another.
#[derive(Default)]
struct Batch {
    operands: Vec<Numbered>,
    ends: HashSet<Place>,
    passed: HashSet<Place>,
}

impl Batch {
    fn takes(&self, place: &Place) -> bool {
        !self.passed.contains(place) && place.and_above().all(|p| !self.ends.contains(&p))
    }

    fn add(&mut self, operand: Numbered) {
        self.passed.extend(operand.2.and_above());
        self.ends.insert(operand.2.clone());
        self.operands.push(operand);
    }
}

/// What the journal says about an existing operand. `Some(true)`: removing it begins now; `Some(false)`: it began
/// earlier; `None`: this is another object than the one whose removal began.
fn may_go(journal: Option<&Arc<Resume>>, number: u32, handle: &[u8]) -> Option<bool> {
    match journal.and_then(|journal| journal.removal_started(number)) {
        None => Some(true),
        Some(begun) => (begun == handle).then_some(false),
    }
}

async fn remove_batch(
    tool: &mut Tool,
    (args, journal): (&RmArgs, Option<&Arc<Resume>>),
    mut operands: Vec<Numbered>,
    removed: &mut u64,
) {
    operands.retain(|(number, ..)| !journal.is_some_and(|journal| journal.removal_done(*number)));
    // Each operand after its directory. Several operands may have the same directory.
    let mut wanted: Vec<Place> = Vec::with_capacity(operands.len() * 2);
    for (_, _, place) in &operands {
        wanted.extend(place.split().map(|(above, _)| above));
        wanted.push(place.clone());
    }
    // If it is certain to be removed, its listing starts at once.
    let certain = args.recursive && args.asking.when != Ask::Always;
    let found = match &wanted[..] {
        [above, own] if certain => {
            let (above, own) = (std::slice::from_ref(above), std::slice::from_ref(own));
            let (above, own) =
                tokio::join!(tool.servers.look(above, false), tool.servers.look_into(own, false));
            above.into_iter().chain(own).collect()
        }
        _ => tool.servers.look(&wanted, false).await,
    };
    let mut to_remove: Vec<(Place, Candidate)> = Vec::new();
    // Operands by their names in messages, while there is a journal.
    let mut tops: HashMap<Vec<u8>, u32> = HashMap::new();
    for (pair, (number, operand, place)) in found.chunks_exact(2).zip(&operands) {
        let ([above, own], Some((_, name))) = (pair, place.split()) else { continue };
        match (above, own) {
            (Ok(above), Ok(own)) => {
                let meta = Meta::of(&own.attrs);
                if meta.is_dir() && !args.recursive && !args.dir {
                    complain(tool, operand, "Is a directory");
                    continue;
                }
                if args.recursive && meta.is_dir() && meta.fsid != Meta::of(&above.attrs).fsid {
                    complain(tool, operand, TOP);
                    continue;
                }
                let Some(first) = may_go(journal, *number, &own.fh.0) else {
                    complain(
                        tool,
                        operand,
                        "it is another object than the one whose removal began, and is kept",
                    );
                    continue;
                };
                let dir = (meta.is_dir() && args.recursive).then(|| own.fh.clone());
                let path = operand.shown.trim_end_matches('/').as_bytes().to_vec();
                if let Some(journal) = journal {
                    tops.insert(path.clone(), *number);
                    if first {
                        journal.begin_removal(*number, &own.fh.0);
                    }
                }
                let tree = ToRemove {
                    path,
                    parent: above.fh.clone(),
                    name: name.to_vec(),
                    dir,
                    is_dir: meta.is_dir(),
                    first_page: own.first_page.clone(),
                };
                to_remove.push((place.clone(), Candidate::new(tree, own.fh.clone(), meta)));
            }
            // With version 3 there is nothing above an export.
            (Err(_), Ok(_)) => complain(tool, operand, TOP),
            (_, Err(e)) => {
                let nothing = [NfsStat::NFS4ERR_NOENT, NfsStat::NFS4ERR_NOTDIR];
                let nothing = e.status().is_some_and(|status| nothing.contains(&status));
                let begun = journal.is_some_and(|journal| journal.removal_started(*number).is_some());
                if !nothing || !args.asking.force && !begun {
                    complain(tool, operand, &message::of(e));
                }
            }
        }
    }
    // The journal must durably have an operand's handle before anything of it is removed.
    if let Some(journal) = journal.filter(|_| !to_remove.is_empty()) {
        let journal = journal.clone();
        let noted = tokio::task::spawn_blocking(move || journal.flush()).await;
        if let Err(why) = noted.unwrap_or_else(|e| Err(e.to_string())) {
            tool.complain(&format!("{why}; nothing more was removed"));
            return;
        }
    }
    if args.asking.when == Ask::Always {
        for (place, found) in to_remove {
            let nfs = tool.servers.nfs(&place).clone();
            *removed += asking::remove(tool, args, nfs, found).await;
        }
        return;
    }
    let trees = tool.servers.by_tree(to_remove.iter().map(|(place, _)| place));
    let trees: Vec<_> = trees.into_iter().map(|(nfs, numbers)| (nfs.clone(), numbers)).collect();
    let prints = args.verbose || tool.json();
    let progress = Counter::new("removed", None, prints);
    for (nfs, numbers) in trees {
        let trees: Vec<_> = numbers.iter().map(|n| to_remove[*n].1.tree.clone()).collect();
        nfs.remove_trees(trees, |removal| {
            if removal.outcome == Outcome::Committed(()) {
                *removed += 1;
                progress.more(1);
                if let Some(journal) = journal {
                    journal.removed(tops.get(&removal.path).copied());
                }
                say::removed(tool, &removal, args.verbose);
            } else {
                say::failed(tool, removal);
            }
        })
        .await;
    }
}

fn complain(tool: &Tool, operand: &Operand, why: &str) {
    tool.complain(&format!("cannot remove {}: {why}", quote::shown(operand.shown.as_bytes())));
}
