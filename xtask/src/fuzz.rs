//! `cargo xtask fuzz`: runs libFuzzer on every target, starting from the stored corpus.
//!
//! All targets are one program, `any`, so that only one must be linked; [`CHOSEN`] selects the target. It has
//! cargo-fuzz's layout (`fuzz/`), but needs neither cargo-fuzz nor a nightly toolchain: an LLVM pass that the stable
//! compiler also has records coverage. libFuzzer itself is C++ and is built by its crate. As many targets run in
//! parallel as there are processors.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;

use crate::proc::{self, command, find_program, output};

/// Default number of seconds in total, as in `cargo xtask test`.
const SECONDS: u64 = 120;

/// Makes the compiler put counters into every branch, and keep the checks of debug builds.
const FLAGS: &[&str] = &[
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// The variable that selects the target.
const CHOSEN: &str = "LANDFAST_FUZZ";

/// Memory limit of a target, in MiB.
const MEMORY_MIB: u32 = 2048;
/// Time limit of a build or a target, beyond its own time.
const LIMIT: Duration = Duration::from_secs(50 * 60);

/// Options of `cargo xtask fuzz`.
#[derive(Args)]
pub struct Options {
    /// Seconds for all targets together, shared alike; on several processors they pass sooner.
    #[arg(long, default_value_t = SECONDS)]
    seconds: u64,
    /// Build with little optimisation, as the tests do: ready in a third of the time, then a few times slower.
    #[arg(long)]
    quick: bool,
    /// Keep what is new and smallest in fuzz/corpus.
    #[arg(long)]
    keep: bool,
    /// The targets; all when none is named.
    targets: Vec<String>,
}

pub fn run(options: &Options) -> ExitCode {
    match possible().and_then(|()| all(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Whether fuzzing can run here, and if not, what is missing.
pub fn possible() -> Result<(), String> {
    match ["c++", "g++", "clang++"].iter().find_map(|n| find_program(n)) {
        Some(_) => Ok(()),
        None => Err("fuzzing needs a C++ compiler (libFuzzer is C++): install g++".to_owned()),
    }
}

fn dir() -> PathBuf {
    proc::workspace().join("fuzz")
}

/// The names of the targets, which are those of their corpora.
fn targets() -> Result<Vec<String>, String> {
    let dir = dir().join("corpus");
    let entries = std::fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut names: Vec<String> =
        entries.filter_map(|e| Some(e.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort();
    Ok(names)
}

fn all(options: &Options) -> Result<(), String> {
    let known = targets()?;
    if let Some(unknown) = options.targets.iter().find(|t| !known.contains(t)) {
        return Err(format!("no target {unknown}; there are {}", known.join(", ")));
    }
    let chosen = if options.targets.is_empty() { known } else { options.targets.clone() };
    let program = build(options.quick)?;
    let each = (options.seconds / chosen.len().max(1) as u64).max(1);
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(target) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            one(&program, target, each, options)?;
        }
        Ok(())
    };
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).min(chosen.len());
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..jobs).map(|_| s.spawn(work)).collect();
        let results =
            workers.into_iter().map(|w| w.join().unwrap_or_else(|_| Err("a worker panicked".to_owned())));
        results.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Builds the targets with coverage. Returns the program.
fn build(quick: bool) -> Result<PathBuf, String> {
    let version = output(&mut command("rustc", ["-vV"]))?;
    let host = version
        .lines()
        .find_map(|l| l.strip_prefix("host: "))
        .ok_or_else(|| "rustc -vV names no host".to_owned())?
        .to_owned();
    let out = proc::target_dir().join("fuzz");
    // With --target, the flags do not apply to build scripts and macros, which are not linked to libFuzzer.
    let profile = if quick { "quick" } else { "release" };
    let args = ["build", "--profile", profile, "--features", "libfuzzer", "--bin", "any", "--target", &host];
    let mut cargo = command(&proc::cargo(), args);
    cargo.current_dir(dir()).env("CARGO_TARGET_DIR", &out).env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
    proc::run_within(LIMIT, &mut cargo)?;
    Ok(out.join(host).join(profile).join("any"))
}

fn one(program: &Path, target: &str, seconds: u64, options: &Options) -> Result<(), String> {
    let work = proc::target_dir().join("fuzz/corpus").join(target);
    let kept = dir().join("corpus").join(target);
    let artifacts = dir().join("artifacts").join(target);
    for d in [&work, &kept, &artifacts] {
        std::fs::create_dir_all(d).map_err(|e| format!("{}: {e}", d.display()))?;
    }
    let program = program.to_string_lossy().into_owned();
    let (work, kept) = (work.to_string_lossy().into_owned(), kept.to_string_lossy().into_owned());
    let artifacts = format!("-artifact_prefix={}/", artifacts.to_string_lossy());
    let fuzz = [
        format!("-max_total_time={seconds}"),
        // 0: another one each time. What a change is checked with begins with the same one: what it finds is there to be found again.
        format!("-seed={}", u8::from(options.quick)),
        format!("-rss_limit_mb={MEMORY_MIB}"),
        "-timeout=30".to_owned(),
        "-max_len=4096".to_owned(),
        "-print_final_stats=1".to_owned(),
        "-verbosity=0".to_owned(),
        artifacts,
        work.clone(),
        kept.clone(),
    ];
    let limit = LIMIT + Duration::from_secs(seconds);
    proc::run_within(limit, command(&program, fuzz).env(CHOSEN, target)).map_err(|e| {
        format!("{target}: {e}\nthe input is in fuzz/artifacts/{target}; see it again with {CHOSEN}={target} {program} FILE")
    })?;
    if options.keep {
        let merge = ["-set_cover_merge=1".to_owned(), "-max_len=4096".to_owned(), kept, work];
        proc::run_within(limit, command(&program, merge).env(CHOSEN, target))?;
    }
    Ok(())
}
