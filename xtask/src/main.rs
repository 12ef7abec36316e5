//! Project tasks, run as `cargo xtask ...`.
//!
//! - `test`: everything that continuous integration checks, on a fresh machine with Rust.
//!
//! Nothing here is part of the product: `xtask` drives the `landfast` binary from outside, as a user would.

#[allow(dead_code)] // the guest tasks use the rest
mod packages;
#[allow(dead_code)] // the guest tasks use the rest
mod proc;
mod steps;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Project tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every check of the project, as continuous integration does.
    Test(test::Options),
}

fn main() -> ExitCode {
    match Cli::parse().task {
        Task::Test(options) => test::run(&options),
    }
}
