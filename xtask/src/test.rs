//! `cargo xtask test`: everything that continuous integration checks, in one command.

use std::process::ExitCode;

use clap::Args;

use crate::packages;
use crate::proc::{self, command};
use crate::steps::{Outcome, Steps};

/// Options of `cargo xtask test`.
#[derive(Args)]
pub struct Options {
    /// Only what needs neither root nor a guest: format, lints, tests.
    #[arg(long)]
    quick: bool,
}

/// Runs all steps and prints their summary.
pub fn run(options: &Options) -> ExitCode {
    let mut steps = Steps::default();
    if !options.quick {
        steps.step("packages", packages_step);
    }
    steps.step("format", || cargo(&["fmt", "--all", "--check"]));
    steps.step("lints", || cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]));
    steps.step("tests", || cargo(&["test", "--workspace"]));
    if !options.quick {
        steps.step("release build", || cargo(&["build", "--release", "--package", "landfast-cli"]));
    }
    steps.finish()
}

fn cargo(args: &[&str]) -> Outcome {
    run_cargo(args).into()
}

fn run_cargo(args: &[&str]) -> Result<(), String> {
    // The cargo that runs us, so that the toolchain is the same one.
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    proc::run(&mut command(&cargo, args))
}

fn packages_step() -> Outcome {
    let missing = packages::missing();
    if missing.is_empty() {
        return Outcome::Passed;
    }
    if proc::find_program("apt-get").is_none() {
        return Outcome::Skipped(format!("no apt-get here to install {}", missing.join(", ")));
    }
    if !proc::is_root() {
        return Outcome::Skipped(format!("needs root to install {}", missing.join(", ")));
    }
    packages::install(&missing).into()
}
