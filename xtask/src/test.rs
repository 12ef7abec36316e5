//! `cargo xtask test`: everything that continuous integration checks, in one command.

use std::fs::File;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::demo;
use crate::fuzz;
use crate::guest;
use crate::packages;
use crate::powercut;
use crate::proc::{self, command, output};
use crate::steps::{Job, Outcome, Steps};

/// The experiments whose claims must hold.
const EXPERIMENTS: [&str; 7] = [
    "serial-flushes",
    "eight-clients",
    "server-memory",
    "large-directory",
    "beside-ganesha",
    "log-throughput",
    "checkpoint-stall",
];

/// The longest that one call of cargo may take: a test that hangs is a failure, not the end of the whole run.
const CARGO_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The same for one experiment or one series of power cuts.
const LAB_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Power cuts over all filesystems and workloads, two for each pair of them; and that each deliberate bug is caught.
const POWER_CUT_STEPS: [(&str, &[&str]); 2] =
    [("power cuts", &["--cuts", "36"]), ("power cuts find each deliberate bug", &["--bugs"])];

/// Rigs of emulated disks that have their power cut at a time: each waits for its disks most of the time.
const CUT_RIGS: usize = 2;

/// The same for one step in guests.
const GUEST_LIMIT: Duration = Duration::from_secs(15 * 60);

/// `landfast lab verify` under servers that keep what they acknowledge, and under one that does not: the exit status that it
/// must have, so that it is known to find losses.
const VERIFY_STEPS: [(&str, i32, &[&str]); 3] = [
    ("verify: Landfast", 0, &["--fs", "xfs", "--cuts", "2", "--vers", "3,4.2"]),
    (
        "verify: nfs-ganesha",
        0,
        &["--server", "ganesha", "--fs", "xfs", "--mount-options", "wsync", "--cuts", "2"],
    ),
    ("verify: an unsafe server is found out", 1, &["--durability", "unsafe", "--cuts", "1"]),
];

/// Guests that run at a time: emulation takes a core each, but a third of the time they wait for leases to end.
const GUESTS: usize = 3;

/// What of the guest's commands fits into the run, the longest first; CONTRIBUTING.md has the rest.
const GUEST_STEPS: [(&str, &[&str]); 7] = [
    ("guest: checks on NFSv3", &["check", "--files", "300", "--vers", "3"]),
    ("guest: checks on NFSv4.0", &["check", "--files", "300", "--vers", "4.0"]),
    ("guest: checks on NFSv4.1", &["check", "--files", "300", "--vers", "4.1"]),
    ("guest: checks on NFSv4.2", &["check", "--files", "300", "--vers", "4.2"]),
    ("guest: pjdfstest", &["suite", "pjdfstest", "--vers", "3,4.2"]),
    ("guest: work", &["work", "--vers", "4.2", "--only", "make"]),
    ("guest: fsx", &["suite", "fsx", "--operations", "1000", "--vers", "3,4.2"]),
];

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
    steps.step("tests", || cargo(&["test", "--workspace", "--no-fail-fast"]));
    if !options.quick {
        // The one mostly computes, the other mostly fetches.
        let built = steps.together(
            2,
            vec![
                Job::new("release build", |out| {
                    let args = ["build", "--release", "--package", "landfast-cli"];
                    proc::run_within_to(out, CARGO_LIMIT, &mut command(&proc::cargo(), args), 0).into()
                }),
                Job::new("guest: disk, kernel, programs", |out| guest_step(out, &["build", "--all"])),
            ],
        );
        steps.step("fuzzing", fuzz_step);
        if built.first() == Some(&Outcome::Passed) {
            steps.step("demo", || demo_step().into());
            for name in EXPERIMENTS {
                steps.step(&format!("experiment {name}"), || experiment(name));
            }
            // What is timed above runs alone; all that follows waits for disks, leases and restarts more than it computes.
            let cuts = |(name, args): (&'static str, &'static [&'static str])| {
                Job::new(name, move |out| power_cuts(out, args))
            };
            let verify = |(name, status, args)| Job::new(name, move |out| verify_step(out, status, args));
            let jobs = POWER_CUT_STEPS.into_iter().map(cuts).chain(VERIFY_STEPS.into_iter().map(verify));
            steps.together(CUT_RIGS, jobs.collect());
            let binary = proc::landfast().to_string_lossy().into_owned();
            let guest = |(name, args): (&'static str, &[&'static str])| {
                let args = [args, &["--binary", &binary]].concat();
                Job::new(name, move |out| guest_step(out, &args))
            };
            steps.together(GUESTS, GUEST_STEPS.map(guest).into());
        }
    }
    steps.finish()
}

fn cargo(args: &[&str]) -> Outcome {
    run_cargo(args).into()
}

fn run_cargo(args: &[&str]) -> Result<(), String> {
    proc::run_within(CARGO_LIMIT, &mut command(&proc::cargo(), args))
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

/// How often a measurement may be repeated: times wobble on a shared machine, counts do not, and what is really
/// broken is broken each time.
const TRIES: usize = 5;

/// Runs the demo and holds it to the promised ratios.
fn demo_step() -> Result<(), String> {
    best_of(|| {
        let json = output(&mut command(&proc::landfast().to_string_lossy(), ["demo", "--json"]))?;
        println!("{}", json.trim());
        let mut broken = 0;
        for (line, kept) in demo::judge(&json)? {
            println!("{} {line}", if kept { "kept:  " } else { "BROKEN:" });
            broken += usize::from(!kept);
        }
        if broken == 0 { Ok(()) } else { Err(format!("{broken} promises are broken")) }
    })
}

/// Runs an experiment, which says itself whether its claims hold.
fn experiment(name: &str) -> Outcome {
    if !proc::is_root() {
        return Outcome::Skipped("needs root (FUSE, loop devices, mounts)".to_owned());
    }
    if name == "beside-ganesha"
        && let Err(why) = packages::require(&packages::GANESHA)
    {
        return Outcome::Skipped(why);
    }
    best_of(|| {
        proc::run_within(LAB_LIMIT, &mut command(&proc::landfast().to_string_lossy(), ["lab", "run", name]))
    })
    .into()
}

/// How long a machine that was too busy for a measurement is left alone before the next try: it may have much to write.
const PAUSE: Duration = Duration::from_secs(20);

/// The first success, or the last failure.
fn best_of(mut measure: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let mut result = measure();
    for _ in 1..TRIES {
        if result.is_ok() {
            break;
        }
        println!("once more, in {} s: {}", PAUSE.as_secs(), result.err().unwrap_or_default());
        std::thread::sleep(PAUSE);
        result = measure();
    }
    result
}

fn power_cuts(output: &File, args: &[&str]) -> Outcome {
    if let Err(why) = powercut::possible(&powercut::FILESYSTEMS) {
        return Outcome::Skipped(why);
    }
    let run = || -> Result<(), String> {
        let program = std::env::current_exe().map_err(|e| format!("our own path: {e}"))?;
        let args = [&["powercut"], args].concat();
        proc::run_within_to(output, LAB_LIMIT, &mut command(&program.to_string_lossy(), args), 0)
    };
    run().into()
}

fn verify_step(output: &File, status: i32, args: &[&str]) -> Outcome {
    if !proc::is_root() {
        return Outcome::Skipped("needs root (FUSE, loop devices, mounts)".to_owned());
    }
    let programs: &[&str] = if args.contains(&"ganesha") { &packages::GANESHA } else { &[] };
    if let Err(why) =
        packages::require(&[&["fusermount3", "losetup", "mkfs.ext4", "mkfs.xfs"], programs].concat())
    {
        return Outcome::Skipped(why);
    }
    let args = [&["lab", "verify"], args].concat();
    proc::run_within_to(output, LAB_LIMIT, &mut command(&proc::landfast().to_string_lossy(), args), status)
        .into()
}

fn fuzz_step() -> Outcome {
    if !proc::is_root() {
        return Outcome::Skipped("needs root (a target serves a volume)".to_owned());
    }
    match fuzz::possible() {
        Ok(()) => fuzz::in_tests().into(),
        Err(why) => Outcome::Skipped(why),
    }
}

fn guest_step(output: &File, args: &[&str]) -> Outcome {
    if let Err(why) = guest::possible() {
        return Outcome::Skipped(why);
    }
    let run = || -> Result<(), String> {
        let program = std::env::current_exe().map_err(|e| format!("our own path: {e}"))?;
        let args = [&["guest"], args].concat();
        proc::run_within_to(output, GUEST_LIMIT, &mut command(&program.to_string_lossy(), args), 0)
    };
    run().into()
}
