//! `landfast lab verify`: cuts the power under servers and prints what `landfast verify` finds, as tables.

use super::args::LabVerifyArgs;
use crate::exit::{Exit, failed};
use crate::units::show_count;
use landfast_lab::peercut::{self, Count, Options, RaceCount, Summary};
use landfast_lab::rig::Latency;
use landfast_lab::{Error, namespace};
use landfast_verify::op::Kind;
use landfast_verify::report::Report;
use landfast_verify::rounds::RaceOp;

/// Examples that are printed of one cut.
const EXAMPLES: usize = 10;

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
            pairs: args.pairs,
            meetings: args.meet.clone(),
            writeback_fails: args.writeback_fails,
            latency: Latency { data_flush: args.flush, log_flush: args.log_flush },
            binary: args.binary.clone(),
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
            // The other servers can be tested without it.
            Err(e @ Error::NoTool { .. }) if args.all => {
                eprintln!("landfast: {}: skipped: {e}", options.title())
            }
            Err(e) => return failed(e),
        }
    }
    if args.json {
        println!("{}", serde_json::json!(summaries));
    } else {
        print_table(&summaries);
        print_pairs(&summaries);
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
    if r.rounds() > 0 {
        let alone: u64 = r.met.iter().map(|m| m.second_alone).sum();
        println!(
            "    {} rounds of pairs, in {} of them only the second was answered, after {} it is not so",
            show_count(r.rounds()),
            show_count(alone),
            show_count(r.broken())
        );
    }
    let met = r.met.iter().flat_map(|met| met.examples.iter().take(1));
    let rows = r.rows.iter().flat_map(|row| row.examples.iter().take(1)).chain(met);
    for example in rows
        .chain(&r.stale.examples)
        .chain(&r.renumbered.examples)
        .chain(&r.strange.examples)
        .chain(&r.unexplained.examples)
        .take(EXAMPLES)
    {
        println!("    {example}");
    }
}

/// Prints a Markdown table: for each operation how many were lost of how many that could be checked.
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

/// Prints a Markdown table of what pairs of clients were told, by the operation of the second client.
fn print_pairs(all: &[Summary]) {
    if all.iter().all(|s| s.met.is_empty()) {
        return;
    }
    let line = |cells: Vec<String>| println!("| {} |", cells.join(" | "));
    let row = |name: &str, cell: &dyn Fn(&Summary) -> String| {
        line(std::iter::once(name.to_owned()).chain(all.iter().map(cell)).collect());
    };
    println!();
    row("not so / only the second answered / rounds", &|s| s.title.clone());
    println!("|---|{}", "---:|".repeat(all.len()));
    let sum = |counts: &mut dyn Iterator<Item = &RaceCount>| {
        counts.fold(RaceCount::default(), |a, b| RaceCount {
            rounds: a.rounds + b.rounds,
            second_alone: a.second_alone + b.second_alone,
            broken: a.broken + b.broken,
        })
    };
    let shown = |c: RaceCount| {
        let figures =
            format!("{} / {} / {}", show_count(c.broken), show_count(c.second_alone), show_count(c.rounds));
        if c.broken > 0 { format!("**{figures}**") } else { figures }
    };
    for second in RaceOp::ALL.iter().filter(|d| all.iter().any(|s| s.met.contains_key(d))) {
        row(second.label(), &|s| s.met.get(second).map_or("-".to_owned(), |of| shown(sum(&mut of.values()))));
    }
    row("all", &|s| shown(sum(&mut s.met.values().flat_map(|of| of.values()))));
    row("told what fits to no order", &|s| show_count(s.unexplained));
    for summary in all {
        let mut broken: Vec<String> = Vec::new();
        for (second, of) in &summary.met {
            for (first, count) in of.iter().filter(|(_, count)| count.broken > 0) {
                broken.push(format!("{} while {} ({})", second.label(), first.label(), count.broken));
            }
        }
        if !broken.is_empty() {
            println!("\n{}: not so: {}.", summary.title, broken.join(", "));
        }
    }
}

fn lost(s: &Summary, kind: &Kind) -> u64 {
    s.kinds.get(kind).map_or(0, |c| c.lost)
}

fn cell(count: &Count) -> String {
    let figures = format!("{} / {}", show_count(count.lost), show_count(count.checked));
    if count.lost > 0 { format!("**{figures}**") } else { figures }
}
