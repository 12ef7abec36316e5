//! `landfast lab ...`.

use crate::args::{DiskArgs, LabCommand, PowercutArgs};
use crate::exit::{self, Exit, complain};
use crate::units::show_count;
use landfast_lab::disk::DiskOptions;
use landfast_lab::{namespace, powercut};

/// Runs a lab command.
pub fn run(command: LabCommand) -> Exit {
    match command {
        LabCommand::Disk(args) => disk(args),
        LabCommand::Powercut(args) => powercut(&args),
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
        show: args.show,
    };
    let quiet = args.json;
    let result = namespace::run_private(|| {
        powercut::run(&options, |cut| {
            if quiet {
                return;
            }
            println!(
                "cut {:>4} after {:>5} ms: {} operations acknowledged, {} objects and {} handles checked, recovered in {:.2} s{}",
                cut.cut,
                cut.after_ms,
                show_count(cut.acknowledged),
                show_count(cut.objects),
                show_count(cut.handles),
                cut.recovery_s,
                if cut.wrong.is_empty() { "" } else { ": WRONG" }
            );
            for line in &cut.wrong {
                println!("    {line}");
            }
        })
    });
    let report = match result {
        Ok(Ok(report)) => report,
        Ok(Err(e)) | Err(e) => {
            complain(&e);
            return Exit::Failed;
        }
    };
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
