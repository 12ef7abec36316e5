//! `landfast verify`: checks whether an NFS server keeps what it acknowledged.

pub mod args;

use crate::exit::{Exit, failed, ok_or_print, print_json};
use crate::progress::spinner;
use crate::signals::stop_on_signals;
use crate::table::table;
use crate::units::show_count;
use args::{VerifyCheckArgs, VerifyCommand, VerifyWriteArgs};
use landfast_verify::journal::End;
use landfast_verify::op::Kind;
use landfast_verify::report::{Examples, RaceResult, Report, Verifier};
use landfast_verify::rounds::RaceOp;
use landfast_verify::{Target, check, write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub fn run(command: VerifyCommand) -> Exit {
    match command {
        VerifyCommand::Write(args) => write(args),
        VerifyCommand::Check(args) => check(&args),
    }
}

fn write(args: VerifyWriteArgs) -> Exit {
    let Some(target) = ok_or_print(args.url.parse::<Target>()) else { return Exit::Failed };
    let options = write::Options {
        journal: args.journal,
        operations: args.operations,
        time: args.seconds.map(Duration::from_secs),
        clients: args.clients,
        seed: args.seed,
        kinds: args.kinds,
        pairs: args.pairs,
        meetings: args.meet,
    };
    let stop = Arc::new(AtomicBool::new(false));
    if let Err(e) = stop_on_signals(stop.clone()) {
        return failed(e);
    }
    let bar = spinner();
    let progress = |event: write::Event| {
        if let write::Event::Acknowledged(acknowledged) = event {
            bar.set_message(format!("{} operations acknowledged", show_count(acknowledged)));
            bar.inc(1);
        }
    };
    let result = write::run(&target, &options, &stop, &progress);
    bar.finish_and_clear();
    let Some(report) = ok_or_print(result) else { return Exit::Failed };
    if !args.json {
        say_written(&report);
    } else if print_json(&report) != Exit::Done {
        return Exit::Failed;
    }
    match report.end {
        End::Done | End::Interrupted => Exit::Done,
        End::Gone | End::Refused => Exit::Partly,
    }
}

fn say_written(report: &write::Report) {
    let n = show_count(report.acknowledged);
    let why = report.why.as_deref().unwrap_or_default();
    match report.end {
        End::Done => println!("{n} operations acknowledged in {:.1} s", report.seconds),
        End::Interrupted => println!("interrupted after {n} acknowledged operations"),
        End::Gone => println!("the server is gone after {n} acknowledged operations: {why}"),
        End::Refused => println!("the server refused to go on after {n} acknowledged operations: {why}"),
    }
    let when = if report.end == End::Gone { "when it is back, run" } else { "to check, run" };
    println!("{when}: landfast verify check '{}' --journal '{}'", report.url, report.journal.display());
}

fn check(args: &VerifyCheckArgs) -> Exit {
    let Some(target) = ok_or_print(args.url.parse::<Target>()) else { return Exit::Failed };
    let options = check::Options {
        journal: args.journal.clone(),
        patience: Duration::from_secs(args.wait),
        remove: args.remove,
    };
    let waiting = |e: &landfast_verify::Error| eprintln!("landfast: waiting for the server: {e}");
    let Some(report) = ok_or_print(check::run(&target, &options, &waiting)) else { return Exit::Failed };
    if !args.json {
        say_checked(&report);
    } else if print_json(&report) != Exit::Done {
        return Exit::Failed;
    }
    if report.has_losses() { Exit::Partly } else { Exit::Done }
}

fn say_checked(r: &Report) {
    let mut table = table(["operation", "acknowledged", "checked", "lost"], 1);
    for row in &r.rows {
        let promised = row.kind != Kind::WriteUnstable || row.lost > 0;
        table.add_row([
            row.operation.clone(),
            show_count(row.acknowledged),
            if promised { show_count(row.checked) } else { "-".to_owned() },
            if promised { show_count(row.lost) } else { "-".to_owned() },
        ]);
    }
    table.add_row(["all".to_owned(), show_count(r.acknowledged), show_count(r.checked), show_count(r.lost)]);
    println!("{table}");
    say_met(r);
    for row in r.rows.iter().filter(|row| row.lost > 0) {
        println!("lost of {}:", row.operation);
        examples(&row.examples, row.lost);
    }
    for met in r.met.iter().filter(|met| met.broken > 0) {
        println!("not so, after {} met {}:", met.meeting.second.label(), met.meeting.first.label());
        examples(&met.examples, met.broken);
    }
    found("told what fits to no order (no loss)", &r.unexplained);
    found("there, though nobody made it", &r.strange);
    found("handles from before that went stale", &r.stale);
    found("file ids that changed", &r.renumbered);
    found("unacknowledged operations that are there in part (no loss)", &r.partly);
    if r.weaker > 0 {
        println!(
            "{} WRITEs asked for FILE_SYNC and were promised less: they count as unstable",
            show_count(r.weaker)
        );
    }
    if r.journal_torn > 0 {
        println!(
            "the journal has a torn tail of {} bytes, which counts for nothing",
            show_count(r.journal_torn)
        );
    }
    println!(
        "{} objects and {} handles from before looked at; {} operations in doubt; {}",
        show_count(r.objects),
        show_count(r.handles),
        show_count(r.in_doubt),
        match (r.verifier, r.unstable_lost) {
            (Verifier::Changed, 0) => "the write verifier changed".to_owned(),
            (Verifier::Changed, n) => {
                format!(
                    "the write verifier changed, and tells clients of {} unstable writes that are gone",
                    show_count(n)
                )
            }
            (Verifier::Kept, _) => "the write verifier is the same".to_owned(),
            (Verifier::Unknown, _) => "no write verifier to compare".to_owned(),
        }
    );
    if r.broken() > 0 {
        println!(
            "NOT SO: what one of two clients was told, in {} of {} rounds",
            show_count(r.broken()),
            show_count(r.rounds())
        );
    }
    if r.lost > 0 || (r.has_losses() && r.broken() == 0) {
        println!(
            "LOST: {} of {} acknowledged operations that can be checked",
            show_count(r.lost),
            show_count(r.checked)
        );
    } else if !r.has_losses() {
        println!("nothing is lost of {} acknowledged operations", show_count(r.acknowledged));
    }
}

/// Prints the table of the pairs, by the operation of the second client.
fn say_met(r: &Report) {
    if r.met.is_empty() {
        return;
    }
    let mut table = table(["one client while another changed it", "rounds", "only it answered", "not so"], 1);
    for deed in RaceOp::ALL {
        let of: Vec<_> = r.met.iter().filter(|met| met.meeting.second == *deed).collect();
        let sum = |count: fn(&RaceResult) -> u64| show_count(of.iter().map(|met| count(met)).sum());
        if !of.is_empty() {
            let label = deed.label().to_owned();
            table.add_row([label, sum(|m| m.rounds), sum(|m| m.second_alone), sum(|m| m.broken)]);
        }
    }
    println!("{table}");
}

fn found(what: &str, found: &Examples) {
    if found.count > 0 {
        println!("{what}:");
        examples(&found.examples, found.count);
    }
}

fn examples(shown: &[String], all: u64) {
    for example in shown {
        println!("    {example}");
    }
    let more = all.saturating_sub(shown.len() as u64);
    if more > 0 {
        println!("    and {} more", show_count(more));
    }
}
