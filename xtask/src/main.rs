//! Project tasks, run as `cargo xtask ...`.
//!
//! - `attack`: an attacker against a running server, and an honest client beside it;
//! - `test`: everything that continuous integration checks, on a fresh machine with Rust;
//! - `deny`: licences, sources and known faults of the dependencies, and what a server alone is built from;
//! - `docs`: the documents that are made from the code;
//! - `fuzz`: the fuzz targets, from the corpus that is kept;
//! - `powercut`: power cuts over filesystems and workloads, in one table;
//! - `simulate`: the same on a simulated kernel and disk, thousands of times a minute;
//! - `guest`: a QEMU guest with Linux's own NFS client.
//!
//! Nothing here is part of the product: `xtask` drives the `landfast` binary from outside, as a user would.

#![forbid(unsafe_code)]

mod again;
mod attack;
mod demo;
mod deny;
mod docs;
mod fuzz;
mod guest;
mod packages;
mod parts;
mod picture;
mod powercut;
mod proc;
mod simulate;
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
    /// Attack a running server in each known way, and see what an honest client beside it feels.
    Attack(attack::Options),
    /// Check licences, sources and known faults of the dependencies, and what a server alone is built from.
    Deny,
    /// Write the documents that are made from the code.
    Docs,
    /// Run the fuzz targets, from the corpus that is kept in fuzz/corpus.
    Fuzz(fuzz::Options),
    /// Cut the power of data and log disk in the middle of work, again and again, and check what was acknowledged.
    Powercut(powercut::Options),
    /// Run volumes with their logs on a simulated kernel and disk, through power cuts and errors.
    Simulate(simulate::Options),
    /// A virtual machine with Linux's own NFS client.
    #[command(subcommand)]
    Guest(guest::Task),
}

fn main() -> ExitCode {
    match Cli::parse().task {
        Task::Test(options) => test::run(&options),
        Task::Attack(options) => attack::run(&options),
        Task::Deny => deny::run(),
        Task::Docs => docs::run(),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Powercut(options) => powercut::run(&options),
        Task::Simulate(options) => simulate::run(&options),
        Task::Guest(task) => guest::run(&task),
    }
}
