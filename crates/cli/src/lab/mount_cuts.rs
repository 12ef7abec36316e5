//! `landfast lab mount-cuts`.

use super::args::{CloseArg, MountCutsArgs};
use crate::exit::{Exit, failed, ok_or_print};
use crate::units::show_count;
use landfast_lab::mount_cuts::{Options, Round, Row, What, run};
use landfast_lab::namespace;

/// Rounds of each kind.
const ROUNDS: u32 = 2;

/// A deliberate bug that so many rounds do not show is not found.
const BUG_ROUNDS: u32 = 40;

pub fn command(args: &MountCutsArgs) -> Exit {
    let options = Options {
        rounds: args.rounds.unwrap_or(if args.bugs { BUG_ROUNDS } else { ROUNDS }),
        what: args.what.clone(),
        local: args.close == CloseArg::Local,
        fs: args.fs,
        seed: args.seed,
        time_limit: args.time_limit,
        slack: args.slack.unwrap_or_default(),
        bug: args.bug.clone(),
        until_wrong: args.until_wrong,
        show: args.show,
    };
    if args.bugs {
        return bugs(&options, args.json);
    }
    let Some(rows) = ok_or_print(rounds(&options, args.json)) else { return Exit::Failed };
    match args.json {
        true => println!("{}", serde_json::json!(rows)),
        false => table(&rows),
    }
    if rows.iter().all(|row| row.wrong == 0) { Exit::Done } else { Exit::Partly }
}

fn rounds(options: &Options, json: bool) -> landfast_lab::Result<Vec<Row>> {
    let progress = |round: &Round| if json { println!("{}", serde_json::json!(round)) } else { show(round) };
    namespace::run_private(|| run(options, progress)).and_then(|rows| rows)
}

/// One deliberate bug after another.
fn bugs(options: &Options, json: bool) -> Exit {
    let all = deliberate();
    if all.is_empty() {
        return failed("this program has no deliberate bugs: they need debug assertions, and the mount");
    }
    let mut unseen = 0;
    for (name, cut, local) in all {
        let Some(what) = ok_or_print(cut.parse::<What>()) else { return Exit::Failed };
        let bug = Some(name.to_owned());
        let options = Options { bug, what: vec![what], until_wrong: true, local, ..options.clone() };
        let Some(rows) = ok_or_print(rounds(&options, json)) else { return Exit::Failed };
        let found = rows.iter().any(|row| row.wrong > 0);
        unseen += u32::from(!found);
        let took: u32 = rows.iter().map(|row| row.rounds).sum();
        println!("{name}: {} {took} rounds of {cut}", if found { "found in" } else { "NOT FOUND in" });
    }
    if unseen == 0 { Exit::Done } else { Exit::Partly }
}

/// The mount's deliberate bugs: name, what is to be cut, whether with `close=local`.
type Deliberate = Vec<(&'static str, &'static str, bool)>;

#[cfg(all(feature = "mount", debug_assertions))]
fn deliberate() -> Deliberate {
    landfast_mount::core::bugs::Bug::IN_PROGRAMS.map(|one| (one.name, one.cut, one.local)).to_vec()
}

#[cfg(not(all(feature = "mount", debug_assertions)))]
fn deliberate() -> Deliberate {
    Vec::new()
}

fn show(round: &Round) {
    println!(
        "{:7} {:>3}: over {:>2} ms, after {:>4} ms {:>5} calls, {:>3} fsyncs, {:>5} names compared; {} lost, the oldest {} ms old; longest wait {} ms; {} told{}",
        round.what.name(),
        round.round,
        round.round_trip_ms,
        round.after_ms,
        round.calls,
        round.syncs,
        round.names,
        round.lost,
        round.oldest_lost_ms,
        round.longest_wait_ms,
        round.told,
        if round.wrong.is_empty() { "" } else { ": WRONG" }
    );
    round.wrong.iter().for_each(|line| println!("    {line}"));
}

fn table(rows: &[Row]) {
    let head = [
        "cut",
        "rounds",
        "calls",
        "names compared",
        "fsyncs",
        "changes lost",
        "oldest lost, ms",
        "longest wait, ms",
        "told",
        "wrong",
    ];
    println!("| {} |", head.join(" | "));
    println!("|---|{}", "--:|".repeat(head.len() - 1));
    for row in rows {
        let counts = [
            u64::from(row.rounds),
            row.calls,
            row.names,
            row.syncs,
            row.lost,
            row.oldest_lost_ms,
            row.longest_wait_ms,
            row.told,
            u64::from(row.wrong),
        ];
        println!("| {} | {} |", row.what.name(), counts.map(show_count).join(" | "));
    }
}
