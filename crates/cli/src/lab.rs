//! `landfast lab ...`.

use crate::args::{DiskArgs, LabCommand};
use crate::exit::{self, Exit};
use landfast_lab::disk::DiskOptions;

/// Runs a lab command.
pub fn run(command: LabCommand) -> Exit {
    match command {
        LabCommand::Disk(args) => disk(args),
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
