//! `landfast lab`.

pub mod args;
pub mod demo;
mod mount_cuts;
mod report;
mod verify;

use crate::exit::{self, Exit, ok_or_print};
use crate::progress::Steps;
use crate::scratch::Scratch;
use crate::units::show_count;
use args::{
    AtArgs, CommandsArgs, DiskArgs, FaultsArgs, LabCommand, MountChecksArgs, PowercutArgs, RunArgs, WorkArg,
};
use landfast_lab::disk::DiskOptions;
use landfast_lab::experiments::{self, Choices, Relation, Report};
use landfast_lab::place::{self, Work};
use landfast_lab::{commands, mount_checks, namespace, powercut, trouble};

pub fn run(command: LabCommand) -> Exit {
    // A child is part of a run that has a scratch directory; a disk is there for somebody else and ends when it is told to.
    let alone = matches!(command, LabCommand::Disk(_) | LabCommand::Child { .. });
    let scratch = if alone { None } else { Some(ok_or_print(Scratch::new())) };
    if matches!(scratch, Some(None)) {
        return Exit::Failed;
    }
    match command {
        LabCommand::Disk(args) => disk(args),
        LabCommand::Run(args) => experiment(args),
        LabCommand::Report(args) => report::run(args),
        LabCommand::Powercut(args) => powercut(&args),
        LabCommand::Verify(args) => verify::run(&args),
        LabCommand::Faults(args) => faults(&args),
        LabCommand::Commands(args) => run_commands(&args),
        LabCommand::MountChecks(args) => run_mount_checks(&args),
        LabCommand::MountCuts(args) => mount_cuts::command(&args),
        LabCommand::At(args) => at(&args),
        LabCommand::Child { json } => exit::from(landfast_lab::child::main(&json)),
    }
}

fn disk(args: DiskArgs) -> Exit {
    exit::from(landfast_lab::disk::serve(&DiskOptions {
        mountpoint: args.mountpoint,
        size: args.size,
        image: args.image,
        threads: args.threads,
        exit_on_cut: args.exit_on_cut,
        prefault: args.prefault,
        apart: false,
        settings: args.settings.join(" "),
    }))
}

fn powercut(args: &PowercutArgs) -> Exit {
    let options = powercut::Options {
        fs: args.fs,
        cuts: args.cuts,
        load: args.workload,
        seed: args.seed,
        clients: args.clients,
        durability: args.durability.into(),
        variant: args.variant,
        points: match args.point.as_deref() {
            None => powercut::Points::None,
            Some("each") => powercut::Points::Each,
            Some(name) => powercut::Points::One(name.to_owned()),
        },
        bug: args.bug.clone(),
        binary: args.binary.clone(),
        until_wrong: args.until_wrong,
        show: args.show,
    };
    let quiet = args.json;
    let result = namespace::run_private(|| {
        powercut::run(&options, |cut| {
            if quiet {
                println!("{}", serde_json::json!(cut));
                return;
            }
            println!(
                "cut {:>4} ({}{}) after {:>5} ms: {} operations acknowledged, {} objects and {} handles checked, {} requests repeated, recovered in {:.2} s{}",
                cut.cut,
                cut.how,
                cut.points.iter().map(|p| format!(", {p}")).collect::<String>(),
                cut.after_ms,
                show_count(cut.acknowledged),
                show_count(cut.objects),
                show_count(cut.handles),
                show_count(cut.repeated),
                cut.recovery_s,
                if cut.wrong.is_empty() { "" } else { ": WRONG" }
            );
            for line in &cut.wrong {
                println!("    {line}");
            }
        })
    });
    let Some(report) = ok_or_print(result.and_then(|report| report)) else { return Exit::Failed };
    if args.json {
        println!("{}", serde_json::json!(report));
    } else {
        println!(
            "{}, {:?}, seed {}: {} cuts, {} acknowledged operations, {} blocks lost, {} handles from before; wrong after {} cuts",
            report.fs,
            report.workload,
            report.seed,
            report.cuts,
            show_count(report.acknowledged),
            show_count(report.blocks_lost),
            show_count(report.handles),
            report.failures
        );
    }
    if report.failures == 0 { Exit::Done } else { Exit::Partly }
}

fn faults(args: &FaultsArgs) -> Exit {
    if args.list {
        trouble::ALL.iter().for_each(|f| println!("{:16} {}", f.name, f.about));
        return Exit::Done;
    }
    let faults = if args.fault.is_empty() { trouble::ALL.to_vec() } else { args.fault.clone() };
    let options = trouble::Options {
        fs: args.fs,
        faults,
        rounds: args.rounds,
        seed: args.seed,
        clients: args.clients,
        show: args.show,
    };
    let quiet = args.json;
    let result = namespace::run_private(|| {
        trouble::run(&options, |round| {
            if quiet {
                println!("{}", serde_json::json!(round));
                return;
            }
            let noticed =
                round.noticed_after_ms.map_or("no failure".to_owned(), |ms| format!("FAILED after {ms} ms"));
            println!(
                "{:16} {} operations acknowledged, then {noticed}; ended by {}; {} objects checked{}",
                round.fault,
                show_count(round.acknowledged),
                round.ended,
                show_count(round.objects),
                if round.wrong.is_empty() { "" } else { ": WRONG" }
            );
            round.wrong.iter().for_each(|line| println!("    {line}"));
        })
    });
    let Some(report) = ok_or_print(result.and_then(|report| report)) else { return Exit::Failed };
    if args.json {
        println!("{}", serde_json::json!(report));
    } else {
        println!(
            "{}, seed {}: {} rounds, {} acknowledged operations; wrong in {}",
            report.fs,
            report.seed,
            report.rounds,
            show_count(report.acknowledged),
            report.failures
        );
    }
    if report.failures == 0 { Exit::Done } else { Exit::Partly }
}

fn experiment(args: RunArgs) -> Exit {
    let Some(name) = args.name.filter(|_| !args.list) else {
        for e in &experiments::ALL {
            println!("{:18} {}", e.name, e.about);
        }
        return Exit::Done;
    };
    let mut steps = Steps::new();
    let choices = Choices {
        files: args.files,
        peers: args.peers,
        round_trips_ms: args.round_trips,
        flushes_ms: args.flushes,
        only: args.only,
        mount_options: args.mount_options,
    };
    let result = experiments::run(&name, &choices, &mut |what| steps.doing(what));
    steps.finish();
    let Some(report) = ok_or_print(result) else { return Exit::Failed };
    if args.json {
        println!("{}", serde_json::json!(report));
    } else {
        print_experiment(&report);
    }
    if report.holds { Exit::Done } else { Exit::Partly }
}

fn run_commands(args: &CommandsArgs) -> Exit {
    let Some(binary) = ok_or_print(std::env::current_exe()) else { return Exit::Failed };
    let options = commands::Options { urls: args.urls.clone(), files: args.files, binary };
    let done = commands::run(&options, |step| {
        if args.json {
            println!("{}", serde_json::json!(step));
            return;
        }
        println!(
            "{:8} {:6.2} s  {}{}",
            step.command,
            step.seconds,
            step.url,
            if step.wrong.is_empty() { "" } else { ": WRONG" }
        );
        step.wrong.iter().for_each(|line| println!("    {line}"));
    });
    let Some(steps) = ok_or_print(done) else { return Exit::Failed };
    if steps.iter().all(|s| s.wrong.is_empty()) { Exit::Done } else { Exit::Partly }
}

fn run_mount_checks(args: &MountChecksArgs) -> Exit {
    let done = namespace::run_private(|| {
        mount_checks::run(&args.urls, &args.mount_options, |checked| {
            if args.json {
                println!("{}", serde_json::json!(checked));
                return;
            }
            let wrong = checked.wrong.as_ref().map(|why| format!(": WRONG: {why}")).unwrap_or_default();
            println!("{:26} {:6.2} s  {}{wrong}", checked.check, checked.seconds, checked.url);
        })
    });
    let Some(done) = ok_or_print(done.and_then(|done| done)) else { return Exit::Failed };
    if done.iter().all(|checked| checked.wrong.is_none()) { Exit::Done } else { Exit::Partly }
}

fn at(args: &AtArgs) -> Exit {
    let work = match args.work {
        WorkArg::NestedOpen => Work::NestedOpen(usize::from(args.depth)),
        WorkArg::WebPage => Work::WebPage,
    };
    if args.make || args.check {
        let done =
            if args.make { place::make(work, &args.place) } else { place::check(&args.place, args.seed) };
        return exit::from(done);
    }
    let Some(rounds) = ok_or_print(place::run(work, &args.place, args.rounds, args.seed)) else {
        return Exit::Failed;
    };
    for round in rounds {
        if args.json {
            println!("{}", serde_json::json!(round));
        } else {
            let rpcs = round.rpcs.map(|n| format!(", {} RPCs", show_count(n))).unwrap_or_default();
            println!("{:.3} ms{rpcs}", round.seconds * 1000.0);
        }
    }
    Exit::Done
}

fn print_experiment(r: &Report) {
    println!("{}: {}", r.name, r.about);
    for line in &r.lines {
        let values: Vec<String> = line.values.iter().map(|(k, v)| format!("{k} {}", figure(*v))).collect();
        println!("  {:20} {}", line.name, values.join(", "));
    }
    for note in &r.notes {
        println!("  {note}");
    }
    for c in &r.checks {
        let relation = match c.relation {
            Relation::AtLeast => "at least",
            Relation::AtMost => "at most",
            Relation::Exactly => "exactly",
        };
        println!("  {} {}: {}, wanted {relation} {}", c.verdict(), c.what, figure(c.value), figure(c.bound));
    }
    println!("  ({:.1} s)", r.total_s);
}

/// Three significant digits, or a whole number with commas.
fn figure(v: f64) -> String {
    match v.abs() {
        a if a >= 1000.0 => show_count(v.round() as u64),
        a if a >= 10.0 => format!("{v:.1}"),
        _ if v.fract() == 0.0 => format!("{v}"),
        _ => format!("{v:.3}"),
    }
}
