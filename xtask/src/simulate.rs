//! `cargo xtask simulate`: volumes with their logs on a simulated kernel and disk, as many seeds as asked for
//! (`docs/internals/simulation.md`).
//!
//! The simulation is a test of `landfast-volume`, since it sees the inside of the crate. It is built with a profile of its own:
//! fast, and with debug assertions.

use std::process::ExitCode;

use clap::Args;

use crate::proc::{self, command};

/// Options of `cargo xtask simulate`.
#[derive(Args)]
pub struct Options {
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

/// Builds and runs. Status 1 when a seed fails.
pub fn run(options: &Options) -> ExitCode {
    let threads =
        options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let args = ["test", "--quiet", "--profile", "simulate", "-p", "landfast-volume", "--lib", "--"];
    let args = args.into_iter().chain(["--exact", "simulation::a_volume_survives", "--nocapture"]);
    let mut test = command(&proc::cargo(), args);
    test.current_dir(proc::workspace())
        .env("LANDFAST_SEEDS", options.seeds.to_string())
        .env("LANDFAST_SEED", options.seed.unwrap_or(1).to_string())
        .env("LANDFAST_THREADS", threads.to_string());
    match test.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!("replay the seed above alone: cargo xtask simulate --seeds 1 --seed N");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("cargo: {e}");
            ExitCode::FAILURE
        }
    }
}
