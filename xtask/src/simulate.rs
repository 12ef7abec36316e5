//! `cargo xtask simulate`: volumes with their logs on a simulated kernel and disk, as many seeds as asked for
//! (`docs/internals/simulation.md`); with `--what state` the server's state with its clients (`docs/internals/state-simulation.md`); with
//! `--what mount` three mounts that do not wait for a server (`docs/internals/mount-simulation.md`).
//!
//! A simulation is a test of its crate, since it sees the inside. It is built with a profile of its own: fast, and with debug assertions.

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::proc::{self, command};

/// Options of `cargo xtask simulate`.
#[derive(Args)]
pub struct Options {
    /// What is simulated
    #[arg(long, value_enum, default_value_t = What::Volume)]
    what: What,
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    seeds: u64,
    /// The first of them
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// At the same time; all processors unless told otherwise
    #[arg(long, value_name = "T")]
    threads: Option<usize>,
}

/// A simulation.
#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// A volume and its log, on a kernel and a disk
    Volume,
    /// Who holds which rights to files: the server's state, its log, its clients
    State,
    /// Three mounts with close=local, and a model of a server
    Mount,
}

impl What {
    /// Its crate and its test.
    fn test(self) -> (&'static str, &'static str) {
        match self {
            What::Volume => ("landfast-volume", "simulation::a_volume_survives"),
            What::State => {
                ("landfast-server", "state::simulation::tests::no_two_clients_hold_conflicting_rights")
            }
            What::Mount => {
                ("landfast-mount", "simulation::tests::programs_on_three_mounts_have_one_file_system")
            }
        }
    }

    /// The options that choose it.
    fn options(self) -> &'static str {
        match self {
            What::Volume => "",
            What::State => "--what state ",
            What::Mount => "--what mount ",
        }
    }
}

/// Builds and runs. Status 1 when a seed fails.
pub fn run(options: &Options) -> ExitCode {
    let threads =
        options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let (package, name) = options.what.test();
    let args = ["test", "--quiet", "--profile", "simulate", "-p", package, "--lib", "--"];
    let args = args.into_iter().chain(["--exact", name, "--nocapture"]);
    let mut test = command(&proc::cargo(), args);
    test.current_dir(proc::workspace())
        .env("LANDFAST_SEEDS", options.seeds.to_string())
        .env("LANDFAST_SEED", options.seed.unwrap_or(1).to_string())
        .env("LANDFAST_THREADS", threads.to_string());
    match test.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => {
            let what = options.what.options();
            eprintln!("replay the seed above alone: cargo xtask simulate {what}--seeds 1 --seed N");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("cargo: {e}");
            ExitCode::FAILURE
        }
    }
}
