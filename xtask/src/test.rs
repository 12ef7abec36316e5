//! `cargo xtask test`: everything that continuous integration checks, in one command.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use clap::Args;

use crate::again;
use crate::demo;
use crate::deny;
use crate::fuzz;
use crate::guest;
use crate::packages;
use crate::parts;
use crate::powercut;
use crate::proc::{self, command};
use crate::steps::{self, Job, Outcome, Steps, Times};

/// The experiments whose claims must hold.
const EXPERIMENTS: [&str; 15] = [
    "client-rpcs",
    "client-memory",
    "nested-open",
    "web-page",
    "serial-flushes",
    "eight-clients",
    "server-memory",
    "large-directory",
    "beside-ganesha",
    "predicted",
    "log-throughput",
    "operation-steps",
    "checkpoint-stall",
    "recovery-speed",
    "trace-speed",
];

/// What is asked of cargo for the lints alone.
const CLIPPY: &[&str] = &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];

/// All targets, as they are built for the tests; the last one, which no test needs, as `cargo xtask` has built it.
const BUILDS: [&[&str]; 2] = [&["test", "--workspace", "--no-run"], &["build", "--package", "xtask"]];

/// The longest that one call of cargo may take: a test that hangs is a failure, not the end of the whole run. On a busy machine,
/// beside the release build and the other parts of the tests, half an hour is not enough.
const CARGO_LIMIT: Duration = Duration::from_secs(45 * 60);

/// The same for a build that leaves the processors to the tests.
const BUILD_LIMIT: Duration = Duration::from_secs(50 * 60);

/// The same for one experiment or one series of power cuts.
const LAB_LIMIT: Duration = Duration::from_secs(10 * 60);

/// What is built and downloaded, guests' disks and the data of tests included.
const GIB_OF_A_WHOLE_RUN: u64 = 14;

/// Power cuts over all filesystems and workloads, two for each pair of them; and that each deliberate bug is caught. The tests
/// have built the binary with debug assertions, for the workspace as a whole: cargo would build another one for one package.
const POWER_CUT_STEPS: [(&str, &[&str]); 2] = [
    ("power cuts", &["--built", "--cuts", "36"]),
    ("power cuts find each deliberate bug", &["--built", "--bugs"]),
];

/// Cuts while programs work on `landfast mount`: whether with the program that has debug assertions, options: the longest first, then in each
/// row as much as takes less than a minute. Not with `close=wait` and a cut of the server alone: there a program may hear, once in a hundred rounds, that a name is
/// taken by its own request (docs/mount.md, "What is not there").
const MOUNT_CUT_STEPS: [(&str, bool, &[&str]); 4] = [
    ("cuts under a mount find each deliberate bug", true, &["--bugs", "--seed", "4"]),
    ("cuts under a mount", false, &["--rounds", "2", "--what", "kill,server,both", "--seed", "4"]),
    ("cuts under a mount: other clients", false, &["--rounds", "2", "--what", "network,look", "--seed", "5"]),
    (
        "cuts under a mount that waits",
        false,
        &["--rounds", "2", "--what", "kill,both,network", "--close", "wait", "--fs", "xfs", "--seed", "4"],
    ),
];

/// What they may take longer than on a quiet machine: guests have turns on the same processors.
const MOUNT_CUT_SLACK: &str = "10s";

/// The same for one step in guests.
const GUEST_LIMIT: Duration = Duration::from_secs(20 * 60);

/// `landfast lab verify` under servers that keep what they acknowledge, and under one that does not: the exit status that it
/// must have, so that it is known to find losses.
const VERIFY_STEPS: [(&str, i32, &[&str]); 6] = [
    ("verify: Landfast", 0, &["--fs", "xfs", "--cuts", "2", "--vers", "3,4.2"]),
    (
        "verify: nfs-ganesha",
        0,
        &["--server", "ganesha", "--fs", "xfs", "--mount-options", "wsync", "--cuts", "2"],
    ),
    (
        "verify: Landfast, pairs of clients",
        0,
        &["--cuts", "4", "--clients", "1", "--pairs", "16", "--log-flush", "60ms"],
    ),
    (
        "verify: Landfast with no log, pairs of clients",
        0,
        &["--durability", "sync", "--cuts", "2", "--clients", "1", "--pairs", "16", "--flush", "60ms"],
    ),
    (
        "verify: Landfast, a write-back that fails",
        0,
        &["--kinds", "create,write,commit-late", "--writeback-fails", "--cuts", "2", "--clients", "1"],
    ),
    ("verify: an unsafe server is found out", 1, &["--durability", "unsafe", "--cuts", "1"]),
];

/// The experiments of the report, in small sizes: its counts are judged.
const REPORT: &str = "report";

/// Its rows that take seconds each. Many clients, the map, growth and the mount take longer than all of these together.
const REPORT_ROWS: &str = "1,2,3,5,6,7,9,11";

/// Steps that run at a time once everything is built: guests compute on a core each, but a third of the time they wait for
/// leases to end, and power cuts wait for their disks.
const SIDE_BY_SIDE: usize = 5;

/// What of the guest's commands fits into the run, the longest first; CONTRIBUTING.md has the rest.
///
/// Each check of the client runs on NFSv3 and on NFSv4.2. NFSv4.0 has open owners, locks and recovery of its own, its
/// operations on names and attributes are those of the later versions; NFSv4.1 is NFSv4.2 without its additions. The client's commands
/// meet each version of the protocol on one of two kernels' servers.
const GUEST_STEPS: [(&str, &[&str]); 17] = [
    (
        "guest: checks on NFSv4.0",
        &["check", "--files", "300", "--vers", "4.0", "--except", "git,types,access"],
    ),
    ("guest: checks on NFSv3", &["check", "--files", "300", "--vers", "3", "--from-file"]),
    (
        "guest: checks on NFSv4.2",
        &[
            "check",
            "--files",
            "300",
            "--vers",
            "4.2",
            "--kernel",
            "6.12",
            "--from-file",
            "--delegations",
            "write",
        ],
    ),
    (
        "guest: the client's commands on Linux's server",
        &["commands", "--only", "commands", "--files", "100", "--vers", "3,4.1"],
    ),
    (
        "guest: the client's commands on Linux 6.12's server",
        &["commands", "--only", "commands", "--files", "100", "--kernel", "6.12", "--vers", "4.0,4.2"],
    ),
    (
        "guest: Linux's client and Landfast's beside each other",
        &["speed", "--kernel", "6.12", "--vers", "3,4.2", "--files", "128", "--round-trips", "10"],
    ),
    (
        "guest: RPCs of Linux's client for tar",
        &[
            "rpcs",
            "--kernel",
            "6.12",
            "--server",
            "landfast",
            "--only",
            "tar,attributes",
            "--files",
            "200",
            "--delegations",
            "times",
            "--most-per-file",
            "4",
            "--most-per-file-as-user",
            "2",
        ],
    ),
    (
        "guest: a listing of what another client has delegations of",
        &["listing", "--kernel", "6.12", "--files", "400"],
    ),
    ("guest: work", &["work", "--vers", "4.2", "--only", "make"]),
    ("guest: pjdfstest", &["suite", "pjdfstest", "--vers", "3,4.2"]),
    ("guest: fsx", &["suite", "fsx", "--operations", "1000", "--vers", "3"]),
    (
        "guest: fsx with delegations",
        &[
            "suite",
            "fsx",
            "--operations",
            "1000",
            "--vers",
            "4.2",
            "--kernel",
            "6.12",
            "--from-file",
            "--delegations",
            "times",
        ],
    ),
    (
        "guest: power cuts in the middle of tar, git and SQLite",
        &["cuts", "--cuts", "2", "--files", "200", "--delegations", "write"],
    ),
    ("guest: a holder of delegations that stands still", &["frozen", "--others", "4.2"]),
    (
        "guest: checks on NFSv4.1",
        &["check", "--files", "300", "--vers", "4.1", "--only", "untar,compare,locks,restart-kill"],
    ),
    ("guest: captures of Linux's client, beside tshark", &["captures", "--vers", "3,4.1"]),
    ("guest: what slows Linux's client down, as captures tell", &["injected"]),
];

/// Options of `cargo xtask test`.
#[derive(Args)]
pub struct Options {
    /// Only what needs neither root nor a guest: format, lints, tests.
    #[arg(long, conflicts_with_all = ["steps", "list"])]
    quick: bool,
    /// Only these steps, by their names, and what they need built
    #[arg(value_name = "STEP")]
    steps: Vec<String>,
    /// Print the names of the steps, with the time that each took last
    #[arg(long)]
    list: bool,
}

/// Steps before anything else can be run, and what builds for others.
const DISK_SPACE: &str = "disk space";
const PACKAGES: &str = "packages";
const LINTS: &str = "lints";
const TESTS: &str = "tests";
const LONG_TESTS: &str = "tests: the longest programs";
const MORE_LONG_TESTS: &str = "tests: more long programs";
const RELEASE_BUILD: &str = "release build";
const DEBUG_BUILD: &str = "debug build";
const AGAIN: &str = "tests that failed, again";
const GUEST_BUILD: &str = "guest: disk, kernel, programs";

/// The steps that build or need no program of ours.
const FIRST_STEPS: [&str; 13] = [
    DISK_SPACE,
    PACKAGES,
    "format",
    LINTS,
    TESTS,
    LONG_TESTS,
    MORE_LONG_TESTS,
    RELEASE_BUILD,
    "fuzzing",
    GUEST_BUILD,
    "the library's documentation",
    "dependencies",
    AGAIN,
];

/// All steps, in the order in which they are begun.
fn names() -> Vec<String> {
    let experiments = EXPERIMENTS.map(|name| format!("experiment {name}"));
    let first = FIRST_STEPS.iter().chain(&["demo"]).map(|name| (*name).to_owned());
    let guests = GUEST_STEPS.iter().map(|(name, _)| *name);
    let cuts = POWER_CUT_STEPS.iter().map(|(name, _)| *name);
    let mount_cuts = MOUNT_CUT_STEPS.iter().map(|(name, ..)| *name);
    let last = [REPORT, "attacks"]
        .into_iter()
        .chain(guests)
        .chain(cuts)
        .chain(mount_cuts)
        .chain(VERIFY_STEPS.iter().map(|(name, ..)| *name));
    first.chain(experiments).chain(last.map(str::to_owned)).collect()
}

/// What was asked for and what it needs; nothing: all.
fn with_needs(asked: &[String]) -> Result<Vec<String>, String> {
    let known = names();
    if let Some(name) = asked.iter().find(|name| !known.contains(name)) {
        return Err(format!("`{name}` is no step; cargo xtask test --list names them"));
    }
    let mut all = asked.to_vec();
    if asked.iter().any(|name| !FIRST_STEPS.contains(&name.as_str())) {
        all.push(RELEASE_BUILD.to_owned());
    }
    if asked.iter().any(|name| GUEST_STEPS.iter().any(|(guest, _)| guest == name)) {
        all.push(GUEST_BUILD.to_owned());
    }
    let debug = MOUNT_CUT_STEPS.iter().filter(|(_, debug, _)| *debug).map(|(name, ..)| *name);
    let debug: Vec<&str> = POWER_CUT_STEPS.iter().map(|(name, _)| *name).chain(debug).collect();
    if asked.iter().any(|name| debug.contains(&name.as_str())) {
        all.push(DEBUG_BUILD.to_owned());
    }
    if asked.iter().any(|name| [TESTS, LONG_TESTS, MORE_LONG_TESTS].contains(&name.as_str())) {
        all.push(AGAIN.to_owned());
    }
    if !all.is_empty() {
        all.push(PACKAGES.to_owned());
    }
    Ok(all)
}

/// Runs all steps and prints their summary.
pub fn run(options: &Options) -> ExitCode {
    let times = Times::of(proc::target_dir().join("steps.json"));
    if options.list {
        let list: String = names().iter().map(|name| format!("{name:60} {}\n", times.last(name))).collect();
        // Who reads no further has seen enough.
        let _ = std::io::stdout().write_all(list.as_bytes());
        return ExitCode::SUCCESS;
    }
    let only = match with_needs(&options.steps) {
        Ok(only) => only,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let named = !only.is_empty();
    let mut steps = Steps::new(only, times);
    // Now: the lints build it again, and the name of what runs is then that of a removed file.
    let program = match std::env::current_exe() {
        Ok(path) => path.to_string_lossy().into_owned(),
        Err(e) => {
            eprintln!("our own path: {e}");
            return ExitCode::FAILURE;
        }
    };
    if !options.quick {
        steps.step(DISK_SPACE, disk_space_step);
        steps.step(PACKAGES, packages_step);
    }
    steps.step("format", || cargo(&["fmt", "--all", "--check"]));
    if options.quick {
        steps.step(LINTS, || cargo(CLIPPY));
        // Most of it is compiled by now.
        steps.step("a server alone", || deny::server_alone(&proc::target_dir()).into());
        steps.step(TESTS, || cargo(parts::WHOLE));
        return steps.finish();
    }
    // What is built, and what is tested as it is built: some of the tests wait, and so do downloads.
    let linted = OnceLock::new();
    if !steps.wants(LINTS) {
        let _ = linted.set(false);
    }
    let lints = |out: &File| {
        let result = lint_and_build(out);
        let _ = linted.set(result == Ok(true));
        result.map(drop).into()
    };
    // What lints have refused is not there: then it is built without them.
    let failed_once = Mutex::new(Vec::new());
    let tests = |out: &File| match parts::others() {
        Ok(asked) => tests_step(out, asked, *linted.wait(), &failed_once),
        Err(why) => Outcome::Failed(why),
    };
    let [first, second] = parts::long();
    let long_tests = |out: &File| match examples(out, *linted.wait()) {
        Ok(()) => tests_step(out, first, *linted.wait(), &failed_once),
        Err(why) => Outcome::Failed(why),
    };
    let more_long_tests = |out: &File| tests_step(out, second, *linted.wait(), &failed_once);
    let release = |out: &File| {
        let args = [&proc::cargo(), "build", "--release", "--package", "landfast-cli"];
        let mut cargo = proc::yielding(args);
        // Nobody looks at it with a debugger either, and line tables are most of the binary.
        cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "0");
        proc::run_within_to(out, BUILD_LIMIT, &mut cargo, 0).into()
    };
    let built = steps.lanes(
        4,
        vec![
            vec![Job::new(LINTS, lints), Job::new(TESTS, tests)],
            vec![Job::new(RELEASE_BUILD, release), Job::new("fuzzing", |out| fuzz_step(out, &program))],
            vec![
                Job::new(GUEST_BUILD, |out| guest_step(out, &program, &["build", "--all"])),
                Job::new(LONG_TESTS, long_tests),
                Job::new("the library's documentation", documentation),
            ],
            vec![
                // They begin when the lints have built them.
                Job::new(MORE_LONG_TESTS, more_long_tests),
                Job::new("dependencies", |out| dependencies(out, &program)),
            ],
        ],
    );
    let failed_once = failed_once.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let linted = linted.get() == Some(&true);
    steps.together(1, vec![Job::new(AGAIN, |out| again_step(out, &failed_once, linted))]);
    if named {
        // The tests have built it otherwise.
        steps.step(DEBUG_BUILD, || cargo(&["build", "--workspace"]));
    }
    if built.get(2) == Some(&Outcome::Passed) {
        // What is timed runs alone, and on disks that have nothing left to write.
        rustix::fs::sync();
        steps.step("demo", || demo_step().into());
        for name in EXPERIMENTS {
            steps.step(&format!("experiment {name}"), || experiment(name));
        }
        steps.step(REPORT, report_step);
        steps.step("attacks", || proc::run_within(LAB_LIMIT, &mut command(&program, ["attack"])).into());
        let binary = proc::landfast().to_string_lossy().into_owned();
        let (program, binary) = (program.as_str(), binary.as_str());
        let guests = GUEST_STEPS.map(|(name, args)| {
            let args = [args, &["--binary", binary]].concat();
            Job::new(name, move |out| guest_step(out, program, &args))
        });
        let cuts =
            POWER_CUT_STEPS.map(|(name, args)| Job::new(name, move |out| power_cuts(out, program, args)));
        let mount_cuts = MOUNT_CUT_STEPS
            .map(|(name, debug, args)| Job::new(name, move |out| mount_cuts_step(out, debug, args)));
        let verify = VERIFY_STEPS
            .map(|(name, status, args)| Job::new(name, move |out| verify_step(out, status, args)));
        steps
            .together(SIDE_BY_SIDE, guests.into_iter().chain(cuts).chain(mount_cuts).chain(verify).collect());
    }
    steps.finish()
}

fn cargo(args: &[&str]) -> Outcome {
    proc::run_within(CARGO_LIMIT, &mut command(&proc::cargo(), args)).into()
}

/// A few tests of a part that failed once: what was asked of cargo for the part, and their names.
type FailedOnce = (Vec<String>, Vec<String>);

/// The tests that `asked` names. A few that fail are for [`again_step`].
fn tests_step(
    output: &File,
    asked: Vec<String>,
    linted: bool,
    failed_once: &Mutex<Vec<FailedOnce>>,
) -> Outcome {
    let (result, said) = cargo_tests(output, &asked, &[], linted);
    match again::judge(result, &said) {
        again::First::Passed => Outcome::Passed,
        again::First::Failed(why) => Outcome::Failed(why),
        again::First::SomeFailed(names) => {
            let list = names.join(", ");
            failed_once.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((asked, names));
            Outcome::Unsteady(format!("failed once, \"{AGAIN}\" decides: {list}"))
        }
    }
}

/// Runs the tests that failed once some more times, now that no build and no other test keeps the processors busy ([`again`]).
fn again_step(output: &File, failed_once: &[FailedOnce], linted: bool) -> Outcome {
    let mut unsteady = Vec::new();
    for (asked, names) in failed_once {
        match again::repeat(names, |behind| cargo_tests(output, asked, behind, linted)) {
            Outcome::Unsteady(why) => unsteady.push(why),
            other => return other,
        }
    }
    if unsteady.is_empty() { Outcome::Passed } else { Outcome::Unsteady(unsteady.join("; ")) }
}

/// Runs tests: the result and what they printed.
fn cargo_tests(
    output: &File,
    asked: &[String],
    behind: &[&str],
    linted: bool,
) -> (Result<(), String>, String) {
    let begin = output.metadata().map_or(0, |meta| meta.len());
    let mut cargo = command(&proc::cargo(), asked);
    cargo.args(behind);
    if linted {
        with_lints(&mut cargo);
    }
    let result = proc::run_within_to(output, CARGO_LIMIT, &mut cargo, 0);
    (result, text(output, begin))
}

/// The examples of the documentation.
fn examples(output: &File, linted: bool) -> Result<(), String> {
    let mut examples = command(&proc::cargo(), ["test", "--workspace", "--doc"]);
    if linted {
        with_lints(&mut examples);
    }
    proc::run_within_to(output, CARGO_LIMIT, &mut examples, 0)
}

/// Clippy's compiler, beside cargo where the toolchain has it.
fn clippy_driver() -> PathBuf {
    Path::new(&proc::cargo()).with_file_name("clippy-driver")
}

/// Lets cargo build the workspace's crates with clippy's compiler, as `cargo clippy` lets it check them: what the tests
/// need is built once and looked through as it is built.
fn with_lints(cargo: &mut Command) {
    // Where words end is clippy's own way of saying it.
    const DENIED: &str = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";
    cargo.env("RUSTC_WORKSPACE_WRAPPER", clippy_driver()).env("CLIPPY_ARGS", DENIED);
    // Nobody changes a line and builds this again, or looks at it with a debugger.
    cargo.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
}

/// The lints, on every target; where it is possible as a by-product of building them for the tests. Whether it was.
fn lint_and_build(out: &File) -> Result<bool, String> {
    if !clippy_driver().is_file() {
        proc::run_within_to(out, CARGO_LIMIT, &mut command(&proc::cargo(), CLIPPY), 0)?;
        return Ok(false);
    }
    for build in BUILDS {
        let mut cargo = command(&proc::cargo(), build);
        with_lints(&mut cargo);
        proc::run_within_to(out, CARGO_LIMIT, &mut cargo, 0)?;
    }
    Ok(true)
}

/// The client crate's book: a link that leads nowhere is an error.
fn documentation(out: &File) -> Outcome {
    let mut doc = proc::yielding([&proc::cargo(), "doc", "--package", "landfast-client", "--no-deps"]);
    doc.arg("--target-dir").arg(proc::documentation()).env("RUSTDOCFLAGS", "-D warnings");
    proc::run_within_to(out, CARGO_LIMIT, &mut doc, 0).into()
}

/// What is built from others, with the tool that judges it, which is built when it is not there.
fn dependencies(out: &File, program: &str) -> Outcome {
    if let Err(why) = deny::possible()
        && let Err(e) = proc::run_within_to(out, deny::LIMIT, &mut deny::install(), 0)
    {
        return match deny::server_alone(&proc::documentation()) {
            Ok(()) => Outcome::Skipped(format!("{why}: {e}")),
            Err(why) => Outcome::Failed(why),
        };
    }
    proc::run_within_to(out, deny::LIMIT, &mut proc::yielding([program, "deny"]), 0).into()
}

/// Says at once what would be many obscure failures half an hour later.
fn disk_space_step() -> Outcome {
    let dir = proc::target_dir();
    // What an earlier run has left need not be made again.
    if dir.join("steps.json").exists() {
        return Outcome::Passed;
    }
    let free = std::fs::create_dir_all(&dir).and_then(|()| Ok(rustix::fs::statvfs(&dir)?));
    match free.map(|fs| (fs.f_bavail * fs.f_frsize) >> 30) {
        Ok(gib) if gib < GIB_OF_A_WHOLE_RUN => Outcome::Unsteady(format!(
            "THE DISK MAY GET FULL, {}: {gib} GiB are free, a whole run takes {GIB_OF_A_WHOLE_RUN}",
            dir.display()
        )),
        Ok(_) => Outcome::Passed,
        Err(e) => Outcome::Failed(format!("{}: {e}", dir.display())),
    }
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
    best_of(PAUSE, || judged_demo(&mut command(&proc::landfast().to_string_lossy(), ["demo", "--json"])))
}

/// Runs the demo once. Status 1 says that a promise was broken; what it printed says which.
fn judged_demo(demo: &mut Command) -> Result<(), String> {
    let json = proc::output_of(demo, &[0, 1])?;
    println!("{}", json.trim());
    let mut broken = Vec::new();
    for promise in demo::judge(&json)? {
        println!("{} {}", if promise.kept { "kept:  " } else { "BROKEN:" }, promise.what);
        if !promise.kept {
            let mark = if promise.is_of_data { WRONG_DATA } else { "" };
            broken.push([mark, &promise.what].concat());
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(broken.join("; ")) }
}

/// Runs an experiment, which says itself whether its claims hold.
fn experiment(name: &str) -> Outcome {
    if !proc::is_root() {
        return Outcome::Skipped("needs root (FUSE, loop devices, mounts)".to_owned());
    }
    let programs: &[&str] = match name {
        "beside-ganesha" => &packages::GANESHA,
        "trace-speed" => &packages::TRACERS,
        _ => &[],
    };
    if let Err(why) = packages::require(programs) {
        return Outcome::Skipped(why);
    }
    // A short form; the claims are about any number of files.
    let options: &[&str] = if name == "client-memory" { &["--files", "20000"] } else { &[] };
    let args = [&["lab", "run", name], options].concat();
    best_of(PAUSE, || measurement(&mut command(&proc::landfast().to_string_lossy(), &args))).into()
}

/// Runs the report in small sizes, each time in a directory of its own: what is kept is not measured again.
fn report_step() -> Outcome {
    if !proc::is_root() {
        return Outcome::Skipped("needs root (FUSE, loop devices, mounts)".to_owned());
    }
    if let Err(why) = packages::require(&packages::GANESHA) {
        return Outcome::Skipped(why);
    }
    best_of(PAUSE, || {
        let out = tempfile::tempdir().map_err(|e| format!("a directory for the report: {e}"))?;
        let args = ["lab", "report", "--quick", "--only", REPORT_ROWS, "--out"];
        let mut report = command(&proc::landfast().to_string_lossy(), args);
        measurement(report.arg(out.path()))
    })
    .into()
}

/// Runs one experiment and shows its output. The error names the claims that do not hold: of a long run, only the end may be at hand.
fn measurement(experiment: &mut Command) -> Result<(), String> {
    let file = tempfile::tempfile().map_err(|e| format!("a file for its output: {e}"))?;
    let result = proc::run_within_to(&file, LAB_LIMIT, experiment, 0);
    let output = text(&file, 0);
    println!("{output}");
    result.map_err(|why| {
        let telling = |line: &'_ str| -> Option<String> {
            let line = line.trim_start();
            let broken = line.strip_prefix("DOES NOT HOLD: ");
            broken.or_else(|| line.contains(WRONG_DATA).then_some(line)).map(str::to_owned)
        };
        let broken: Vec<String> = output.lines().filter_map(telling).collect();
        match (broken.as_slice(), output.lines().last()) {
            ([], Some(last)) => format!("{why}: {last}"),
            ([], None) => why,
            (broken, _) => broken.join("; "),
        }
    })
}

/// How long a machine that was too busy for a measurement is left alone before the next try: it may have much to write.
const PAUSE: Duration = Duration::from_secs(20);

/// With this the lab's errors and claims begin that tell of data that was lost or is wrong (`landfast_lab::error::WRONG_DATA`): what
/// has happened once has happened.
const WRONG_DATA: &str = "WRONG DATA: ";

/// The first success, or the last failure; the first one that tells of a loss.
fn best_of(pause: Duration, mut measure: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    proc::tried(TRIES, pause, || match measure() {
        Err(why) if why.contains(WRONG_DATA) => Ok(Err(why)),
        other => other.map(Ok),
    })?
}

fn power_cuts(output: &File, program: &str, args: &[&str]) -> Outcome {
    if let Err(why) = powercut::possible(&powercut::FILESYSTEMS) {
        return Outcome::Skipped(why);
    }
    let args = [&["powercut"], args].concat();
    proc::run_within_to(output, LAB_LIMIT, &mut command(program, args), 0).into()
}

fn mount_cuts_step(output: &File, debug: bool, args: &[&str]) -> Outcome {
    if let Err(why) = powercut::possible(&["ext4", "xfs"]) {
        return Outcome::Skipped(why);
    }
    let binary = if debug { proc::debug_landfast() } else { proc::landfast() };
    // A deliberate bug may show by nothing but the age of what it loses.
    let slack: &[&str] = if debug { &[] } else { &["--slack", MOUNT_CUT_SLACK] };
    let args = [&["lab", "mount-cuts"], args, slack].concat();
    proc::run_within_to(output, LAB_LIMIT, &mut command(&binary.to_string_lossy(), args), 0).into()
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

fn fuzz_step(output: &File, program: &str) -> Outcome {
    if !proc::is_root() {
        return Outcome::Skipped("needs root (a target serves a volume)".to_owned());
    }
    match fuzz::possible() {
        Ok(()) => {
            let mut fuzz = proc::yielding([program, "fuzz", "--quick"]);
            proc::run_within_to(output, BUILD_LIMIT, &mut fuzz, 0).into()
        }
        Err(why) => Outcome::Skipped(why),
    }
}

/// One of the guest's commands. Under emulation, beside four other steps, what is judged by times may fail once: if it passes
/// the next time, the summary says so, as with tests ([`again`]).
fn guest_step(output: &File, program: &str, args: &[&str]) -> Outcome {
    if let Err(why) = guest::possible() {
        return Outcome::Skipped(why);
    }
    let programs: &[&str] = match args.first() {
        Some(&("captures" | "cuts")) => &packages::CAPTURERS,
        Some(&"injected") => &packages::INJECTED,
        _ => &[],
    };
    if let Err(why) = packages::require(programs) {
        return Outcome::Skipped(why);
    }
    let args = [&["guest"], args].concat();
    let run = || proc::run_within_to(output, GUEST_LIMIT, &mut command(program, &args), 0);
    let Err(why) = run() else { return Outcome::Passed };
    let said = text(output, 0);
    // That is the emulation's failure, and nothing was tested.
    if said.contains(guest::NETWORK_STANDS) {
        return run().into();
    }
    // What a power cut has taken may not be there the next time.
    if args.contains(&"cuts") {
        return Outcome::Failed(why);
    }
    match run() {
        Ok(()) => Outcome::Unsteady(format!(
            "LOOK INTO THIS, failed once, then passed: {}",
            steps::telling(&said).into_iter().take(WHY_ONCE_LINES).collect::<Vec<_>>().join("; ")
        )),
        Err(why) => Outcome::Failed(why),
    }
}

/// So many lines tell why a step failed that passed when it ran again.
const WHY_ONCE_LINES: usize = 4;

/// What was written to a file behind its first `begin` bytes.
fn text(output: &File, begin: u64) -> String {
    let bytes = output.metadata().map_or(0, |meta| meta.len().saturating_sub(begin));
    let mut text = vec![0; usize::try_from(bytes).unwrap_or(0)];
    match output.read_exact_at(&mut text, begin) {
        Ok(()) => String::from_utf8_lossy(&text).into_owned(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of an option that takes a list.
    fn list<'a>(args: &[&'a str], option: &str) -> Vec<&'a str> {
        let at = args.iter().position(|arg| *arg == option);
        at.and_then(|at| args.get(at + 1)).map(|list| list.split(',').collect()).unwrap_or_default()
    }

    #[test]
    fn a_slow_measurement_is_repeated_and_a_loss_is_not() {
        let runs = |why: &str| {
            let mut number = 0;
            let result = best_of(Duration::ZERO, || {
                number += 1;
                if number == 1 { Err(why.to_owned()) } else { Ok(()) }
            });
            (result.is_ok(), number)
        };
        assert_eq!(runs("files a second: 3, at least 4"), (true, 2));
        assert_eq!(runs("WRONG DATA: operations that Landfast acknowledged and lost: 1"), (false, 1));
    }

    /// A program that prints the first text at its first run and the second afterwards, with these statuses.
    fn prints(dir: &std::path::Path, first: (&str, i32), then: (&str, i32)) -> Command {
        let file = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (one, two) = (file("first", first.0), file("then", then.0));
        let ran = dir.join("ran").display().to_string();
        let (first, then) = (first.1, then.1);
        let script =
            format!("if [ -e {ran} ]; then cat {two}; exit {then}; fi; touch {ran}; cat {one}; exit {first}");
        command("sh", ["-c", &script])
    }

    #[test]
    fn a_demo_that_lost_a_file_is_not_tried_again() {
        let good = demo::sample(0, 0);
        for lost in [demo::sample(1, 0), demo::sample(0, 1)] {
            let dir = tempfile::tempdir().unwrap();
            let result =
                best_of(Duration::ZERO, || judged_demo(&mut prints(dir.path(), (&lost, 1), (&good, 0))));
            assert!(result.as_ref().is_err_and(|why| why.contains(WRONG_DATA)), "{result:?}");
        }
        // What ended without a report may be tried again.
        let dir = tempfile::tempdir().unwrap();
        let again = || judged_demo(&mut prints(dir.path(), ("", 2), (&good, 0)));
        assert_eq!(best_of(Duration::ZERO, again), Ok(()));
    }

    #[test]
    fn an_experiment_that_found_wrong_data_is_not_run_again() {
        let said = [
            "  DOES NOT HOLD: WRONG DATA: differences between tree and archive: 1, wanted exactly 0\n",
            "landfast: WRONG DATA: 1 differences between tree and archive: a: has other contents\n",
            // A row of the report; the last line tells nothing.
            " 4. Many clients at once: failed: WRONG DATA: untar: 5 of 6 files are there\n/tmp/report.html\n",
        ];
        for said in said {
            let dir = tempfile::tempdir().unwrap();
            let result = best_of(Duration::ZERO, || measurement(&mut prints(dir.path(), (said, 1), ("", 0))));
            assert!(result.is_err(), "{said}");
        }
        let dir = tempfile::tempdir().unwrap();
        let slow = ("  DOES NOT HOLD: files a second: 3, wanted at least 4\n", 1);
        assert_eq!(best_of(Duration::ZERO, || measurement(&mut prints(dir.path(), slow, ("", 0)))), Ok(()));
    }

    #[test]
    fn what_a_step_needs_is_built_for_it() {
        let needs = |name: &str| with_needs(&[name.to_owned()]).unwrap();
        assert_eq!(needs("format"), ["format", PACKAGES]);
        assert_eq!(needs("demo"), ["demo", RELEASE_BUILD, PACKAGES]);
        assert_eq!(needs("guest: work"), ["guest: work", RELEASE_BUILD, GUEST_BUILD, PACKAGES]);
        assert_eq!(needs("power cuts"), ["power cuts", RELEASE_BUILD, DEBUG_BUILD, PACKAGES]);
        let [waits, bugs] = ["cuts under a mount that waits", "cuts under a mount find each deliberate bug"];
        assert_eq!(needs(waits), [waits, RELEASE_BUILD, PACKAGES]);
        assert_eq!(needs(bugs), [bugs, RELEASE_BUILD, DEBUG_BUILD, PACKAGES]);
        assert_eq!(with_needs(&[]).unwrap(), [""; 0]);
        assert!(with_needs(&["demos".to_owned()]).is_err());
    }

    #[test]
    fn each_check_of_the_guest_runs_on_nfsv3_and_on_the_latest_version() {
        let runs = |args: &[&str], vers: &str, name: &str| {
            let (only, except) = (list(args, "--only"), list(args, "--except"));
            args.first() == Some(&"check")
                && list(args, "--vers").contains(&vers)
                && (only.is_empty() || only.contains(&name))
                && !except.contains(&name)
        };
        for name in guest::checks() {
            for vers in ["3", "4.2"] {
                assert!(GUEST_STEPS.iter().any(|(_, args)| runs(args, vers, name)), "{name} on {vers}");
            }
        }
        for (_, args) in GUEST_STEPS.iter().filter(|(_, args)| args.first() == Some(&"check")) {
            for name in [list(args, "--only"), list(args, "--except")].concat() {
                assert!(guest::checks().any(|known| known == name), "{name} is no check");
            }
        }
    }
}
