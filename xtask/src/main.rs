//! Project tasks, run as `cargo xtask ...`.
//!
//! - `test`: everything that continuous integration checks, on a fresh machine with Rust;
//! - `guest`: a QEMU guest with Linux's own NFS client.
//!
//! Nothing here is part of the product: `xtask` drives the `landfast` binary from outside, as a user would.

mod demo;
mod guest;
mod packages;
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
    /// A virtual machine with Linux's own NFS client.
    #[command(subcommand)]
    Guest(guest::Task),
}

fn main() -> ExitCode {
    match Cli::parse().task {
        Task::Test(options) => test::run(&options),
        Task::Guest(task) => guest::run(&task),
    }
}
