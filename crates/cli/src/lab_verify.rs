//! `landfast lab verify`: power cuts under servers, seen by `landfast verify`, in one table.

use crate::args::LabVerifyArgs;
use crate::exit::{Exit, told};
use crate::units::show_count;
use landfast_lab::peercut::{self, Count, Options, Summary};
use landfast_lab::{Error, namespace};
use landfast_verify::op::Kind;
use landfast_verify::report::Report;

/// Cuts, and prints the table.
pub fn run(args: &LabVerifyArgs) -> Exit {
    let servers = if args.all {
        Options::all(args.cuts, args.clients, args.seed)
    } else {
        let versions =
            if args.vers.is_empty() { Options::versions_of(args.server) } else { args.vers.clone() };
        vec![Options {
            server: args.server,
            durability: args.durability.into(),
            fs: args.fs,
            mount_options: args.mount_options.clone(),
            cuts: args.cuts,
            clients: args.clients,
            versions,
            kinds: args.kinds.clone(),
            seed: args.seed,
        }]
    };
    let quiet = args.json;
    let mut summaries = Vec::new();
    for options in &servers {
        let result = namespace::run_private(|| {
            peercut::run(options, |n, report| {
                if !quiet {
                    say_cut(&options.title(), n, report);
                }
            })
        });
        match result.and_then(|summary| summary) {
            Ok(summary) => summaries.push(summary),
            // The others can be asked without it.
            Err(e @ Error::NoTool { .. }) if args.all => {
                eprintln!("landfast: {}: skipped: {e}", options.title())
            }
            Err(e) => {
                told::<(), _>(Err(e));
                return Exit::Failed;
            }
        }
    }
    if args.json {
        println!("{}", serde_json::json!(summaries));
    } else {
        print_table(&summaries);
    }
    if summaries.iter().all(|s| s.cuts_with_losses == 0) { Exit::Done } else { Exit::Partly }
}

fn say_cut(title: &str, n: u32, r: &Report) {
    println!(
        "{title}: cut {n} over NFS {}: {} operations acknowledged, {} checked, {} lost{}",
        r.nfs,
        show_count(r.acknowledged),
        show_count(r.checked),
        show_count(r.lost),
        if r.has_losses() { ": LOST" } else { "" }
    );
    let rows = r.rows.iter().flat_map(|row| row.examples.iter().take(1));
    for example in
        rows.chain(&r.stale.examples).chain(&r.renumbered.examples).chain(&r.strange.examples).take(6)
    {
        println!("    {example}");
    }
}

/// A table in Markdown: for each operation how many were lost of how many that could be checked.
fn print_table(all: &[Summary]) {
    let line = |cells: Vec<String>| println!("| {} |", cells.join(" | "));
    let row = |name: &str, cell: &dyn Fn(&Summary) -> String| {
        line(std::iter::once(name.to_owned()).chain(all.iter().map(cell)).collect());
    };
    row("lost / checked", &|s| s.title.clone());
    println!("|---|{}", "---:|".repeat(all.len()));
    for kind in Kind::ALL.iter().filter(|k| **k != Kind::WriteUnstable || all.iter().any(|s| lost(s, k) > 0))
    {
        row(kind.label(), &|s| s.kinds.get(kind).map_or("-".to_owned(), cell));
    }
    row("all", &|s| cell(&s.all));
    row("acknowledged", &|s| show_count(s.all.acknowledged));
    row("cuts with losses / cuts", &|s| format!("{} / {}", s.cuts_with_losses, s.cuts));
    row("stale handles / tried", &|s| format!("{} / {}", show_count(s.stale), show_count(s.handles)));
    row("changed file ids", &|s| show_count(s.renumbered));
    row("what nobody made", &|s| show_count(s.strange));
    row("write verifier changed / kept", &|s| format!("{} / {}", s.verifier_changed, s.verifier_kept));
}

fn lost(s: &Summary, kind: &Kind) -> u64 {
    s.kinds.get(kind).map_or(0, |c| c.lost)
}

fn cell(count: &Count) -> String {
    let figures = format!("{} / {}", show_count(count.lost), show_count(count.checked));
    if count.lost > 0 { format!("**{figures}**") } else { figures }
}
