//! `cargo xtask powercut`: power cuts over filesystems and workloads, several instances of `landfast lab powercut` at a
//! time, and one table.
//!
//! The cuts are dealt out in series of a few on one pair of disks, each with a seed of its own, so that a failure is
//! repeated by one short command. Every second series stops the server at named points of its code; that takes a
//! binary with debug assertions.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::Path;
use std::process::{Child, ExitCode, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use crate::packages;
use crate::proc::{self, command};

/// The filesystems on which the power is cut.
pub const FILESYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// What is going on when the power goes.
pub const WORKLOADS: [&str; 3] = ["untar", "serial", "mixed"];

/// Cuts of one series on one pair of disks: later ones meet what earlier recoveries made.
const SERIES_CUTS: u32 = 12;

/// Two seeds of a run are this far apart, so that neighbouring runs share no series.
const SEED_STEP: u64 = 1_000_003;

/// Options of `cargo xtask powercut`.
#[derive(Args)]
pub struct Options {
    /// How many cuts in all
    #[arg(long, value_name = "N", default_value_t = 30)]
    cuts: u32,
    /// On which filesystem: ext4, xfs, btrfs, or all three
    #[arg(long, value_name = "NAME", default_value = "all")]
    fs: String,
    /// During what: a workload of `landfast lab powercut`, or all
    #[arg(long, value_name = "NAME", default_value = "all")]
    workload: String,
    /// Where everything random comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Series at the same time
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A number of cuts on one pair of disks.
#[derive(Clone, Debug)]
struct Series {
    fs: String,
    workload: String,
    cuts: u32,
    seed: u64,
}

impl Series {
    fn args(&self, cuts: u32) -> Vec<String> {
        let text = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let (cuts, seed) = (cuts.to_string(), self.seed.to_string());
        let mut args = text(&["lab", "powercut", "--fs", &self.fs, "--workload", &self.workload]);
        args.extend(text(&["--cuts", &cuts, "--seed", &seed]));
        args
    }

    /// What a person types to see a failure of cut `n` again.
    fn repeat(&self, n: u32) -> String {
        format!("target/release/landfast {}", self.args(n).join(" "))
    }
}

/// One cut, as `landfast lab powercut --json` prints it.
#[derive(Deserialize)]
struct Cut {
    cut: u32,
    acknowledged: u64,
    handles: u64,
    #[serde(default)]
    repeated: u64,
    cuts_in_recovery: u32,
    recovery_s: f64,
    wrong: Vec<String>,
}

/// What it prints at its end; the rest is the sum of the cuts.
#[derive(Deserialize)]
struct End {
    blocks_lost: u64,
}

/// One line of the table.
#[derive(Clone, Debug, Default)]
struct Row {
    cuts: u64,
    acknowledged: u64,
    handles: u64,
    repeated: u64,
    blocks_lost: u64,
    cuts_in_recovery: u64,
    recovery_s_max: f64,
    failures: u64,
}

impl Row {
    fn add(&mut self, cut: &Cut) {
        self.cuts += 1;
        self.acknowledged += cut.acknowledged;
        self.handles += cut.handles;
        self.repeated += cut.repeated;
        self.cuts_in_recovery += u64::from(cut.cuts_in_recovery);
        self.recovery_s_max = self.recovery_s_max.max(cut.recovery_s);
        self.failures += u64::from(!cut.wrong.is_empty());
    }

    fn and(mut self, other: &Row) -> Row {
        self.cuts += other.cuts;
        self.acknowledged += other.acknowledged;
        self.handles += other.handles;
        self.repeated += other.repeated;
        self.blocks_lost += other.blocks_lost;
        self.cuts_in_recovery += other.cuts_in_recovery;
        self.recovery_s_max = self.recovery_s_max.max(other.recovery_s_max);
        self.failures += other.failures;
        self
    }
}

/// What went wrong, with the command that shows it again.
struct Failure {
    series: Series,
    what: Vec<String>,
    repeat: String,
}

/// What an instance tells while it works.
enum News {
    Cut(Series, Cut),
    Blocks(Series, u64),
    /// It could not do its work.
    Broken(Series, String),
}

/// The result of all series.
#[derive(Default)]
struct Outcome {
    rows: BTreeMap<(String, String), Row>,
    failures: Vec<Failure>,
}

/// Cuts the power so many times, and prints the table.
pub fn run(options: &Options) -> ExitCode {
    match try_run(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

/// What is missing here for power cuts on these filesystems.
pub fn possible(filesystems: &[&str]) -> Result<(), String> {
    if !proc::is_root() {
        return Err("needs root (FUSE, loop devices, mounts)".to_owned());
    }
    let tools: Vec<String> = filesystems.iter().map(|fs| format!("mkfs.{fs}")).collect();
    let mut names = vec!["fusermount3", "losetup"];
    names.extend(tools.iter().map(String::as_str));
    packages::require(&names)
}

fn chosen<'a>(name: &'a str, all: &[&'a str], what: &str) -> Result<Vec<&'a str>, String> {
    match name {
        "all" => Ok(all.to_vec()),
        one if all.contains(&one) => Ok(vec![one]),
        other => Err(format!("`{other}` is not a {what}: use {} or all", all.join(", "))),
    }
}

fn try_run(options: &Options) -> Result<bool, String> {
    let filesystems = chosen(&options.fs, &FILESYSTEMS, "filesystem")?;
    let workloads = chosen(&options.workload, &WORKLOADS, "workload")?;
    possible(&filesystems)?;
    proc::run(&mut command(&proc::cargo(), ["build", "--release", "--package", "landfast-cli"]))?;
    let series = deal(options.cuts, options.seed, &filesystems, &workloads);
    let start = Instant::now();
    let outcome = all(&proc::landfast(), series, options.jobs.max(1), options.cuts)?;
    if options.json {
        println!("{}", as_json(&outcome, options, start.elapsed()));
    } else {
        print!("{}", table(&outcome));
        println!("seed {}, {:.0} s", options.seed, start.elapsed().as_secs_f64());
        for failure in &outcome.failures {
            println!("\n{} on {}:", failure.series.workload, failure.series.fs);
            failure.what.iter().for_each(|line| println!("    {line}"));
            println!("  again: {}", failure.repeat);
        }
    }
    Ok(outcome.failures.is_empty())
}

/// Deals the cuts out to series: as many for each pair of filesystem and workload as for any other, or one more.
fn deal(cuts: u32, seed: u64, filesystems: &[&str], workloads: &[&str]) -> Vec<Series> {
    let pairs: Vec<(&str, &str)> =
        workloads.iter().flat_map(|w| filesystems.iter().map(move |fs| (*fs, *w))).collect();
    let count = u32::try_from(pairs.len()).unwrap_or(1).max(1);
    let mut out = Vec::new();
    let mut seed = seed.wrapping_mul(SEED_STEP);
    for (n, (fs, workload)) in (0..).zip(pairs) {
        let mut left = cuts / count + u32::from(n < cuts % count);
        while left > 0 {
            let here = left.min(SERIES_CUTS);
            left -= here;
            out.push(Series { fs: fs.to_owned(), workload: workload.to_owned(), cuts: here, seed });
            seed = seed.wrapping_add(1);
        }
    }
    out
}

/// Runs all series, `jobs` at a time.
fn all(binary: &Path, series: Vec<Series>, jobs: usize, cuts: u32) -> Result<Outcome, String> {
    let queue = Mutex::new(VecDeque::from(series));
    let next = || queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop_front();
    let (tell, news) = mpsc::channel();
    let mut outcome = Outcome::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let (tell, next) = (tell.clone(), &next);
            scope.spawn(move || {
                while let Some(series) = next() {
                    if let Err(why) = one(binary, &series, &tell) {
                        let _ = tell.send(News::Broken(series, why));
                    }
                }
            });
        }
        drop(tell);
        let mut shown = Shown::new(cuts);
        for item in news {
            outcome.hear(item, &mut shown);
        }
        shown.end();
    });
    Ok(outcome)
}

/// Runs one series to its end and tells what it says.
fn one(binary: &Path, series: &Series, tell: &mpsc::Sender<News>) -> Result<(), String> {
    let mut errors = tempfile::tempfile().map_err(|e| format!("a temporary file: {e}"))?;
    let mut instance = Instance::start(binary, series, &errors)?;
    let mut ended = false;
    for line in instance.lines()? {
        let line = line.map_err(|e| format!("its output: {e}"))?;
        if let Ok(cut) = serde_json::from_str::<Cut>(&line) {
            let _ = tell.send(News::Cut(series.clone(), cut));
        } else if let Ok(end) = serde_json::from_str::<End>(&line) {
            ended = true;
            let _ = tell.send(News::Blocks(series.clone(), end.blocks_lost));
        } else {
            return Err(format!("said what nobody understands: {line}"));
        }
    }
    let status = instance.0.wait().map_err(|e| e.to_string())?;
    if ended && matches!(status.code(), Some(0 | 1)) {
        return Ok(());
    }
    let mut said = String::new();
    use std::io::Seek as _;
    let _ = errors.rewind().and_then(|()| errors.read_to_string(&mut said));
    Err(format!("{status}: {}", said.trim()))
}

/// A running `landfast lab powercut`; killed when dropped, and its disks and server end with it.
struct Instance(Child);

impl Instance {
    fn start(binary: &Path, series: &Series, errors: &File) -> Result<Self, String> {
        let errors = errors.try_clone().map_err(|e| e.to_string())?;
        let mut command = command(&binary.to_string_lossy(), series.args(series.cuts));
        let child = command.arg("--json").stdout(Stdio::piped()).stderr(errors).spawn();
        child.map(Instance).map_err(|e| format!("{}: {e}", binary.display()))
    }

    fn lines(&mut self) -> Result<impl Iterator<Item = std::io::Result<String>> + use<>, String> {
        let out = self.0.stdout.take().ok_or("no output")?;
        Ok(BufReader::new(out).lines())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Outcome {
    fn row(&mut self, series: &Series) -> &mut Row {
        self.rows.entry((series.fs.clone(), series.workload.clone())).or_default()
    }

    fn hear(&mut self, news: News, shown: &mut Shown) {
        match news {
            News::Cut(series, cut) => {
                self.row(&series).add(&cut);
                shown.cut(!cut.wrong.is_empty());
                if !cut.wrong.is_empty() {
                    let repeat = series.repeat(cut.cut);
                    self.failures.push(Failure { series, what: cut.wrong, repeat });
                }
            }
            News::Blocks(series, blocks) => self.row(&series).blocks_lost += blocks,
            News::Broken(series, why) => {
                self.row(&series).failures += 1;
                shown.cut(true);
                let repeat = series.repeat(series.cuts);
                self.failures.push(Failure { series, what: vec![why], repeat });
            }
        }
    }
}

/// The line of progress on a terminal; nothing elsewhere.
struct Shown {
    terminal: bool,
    start: Instant,
    wanted: u32,
    done: u32,
    failures: u32,
}

impl Shown {
    fn new(wanted: u32) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Shown { terminal, start: Instant::now(), wanted, done: 0, failures: 0 }
    }

    fn cut(&mut self, failed: bool) {
        self.done += 1;
        self.failures += u32::from(failed);
        if self.terminal {
            let took = self.start.elapsed().as_secs();
            let mut err = std::io::stderr();
            let _ =
                write!(err, "\r{} of {} cuts, {} failures, {took} s ", self.done, self.wanted, self.failures);
            let _ = err.flush();
        }
    }

    fn end(&self) {
        if self.terminal {
            eprintln!();
        }
    }
}

/// The table, in Markdown, which a terminal shows well enough.
fn table(outcome: &Outcome) -> String {
    let head = [
        "filesystem",
        "workload",
        "cuts",
        "operations acknowledged",
        "handles tried",
        "replies repeated",
        "blocks lost",
        "cuts in recovery",
        "longest recovery",
        "failures",
    ];
    let mut lines = vec![head.map(str::to_owned)];
    let all = outcome.rows.values().fold(Row::default(), |sum, row| sum.and(row));
    let named = outcome.rows.iter().map(|((fs, workload), row)| (fs.as_str(), workload.as_str(), row));
    for (fs, workload, row) in named.chain([("all", "all", &all)]) {
        lines.push([
            fs.to_owned(),
            workload.to_owned(),
            grouped(row.cuts),
            grouped(row.acknowledged),
            grouped(row.handles),
            grouped(row.repeated),
            grouped(row.blocks_lost),
            grouped(row.cuts_in_recovery),
            format!("{:.2} s", row.recovery_s_max),
            grouped(row.failures),
        ]);
    }
    let width = |n: usize| lines.iter().map(|l| l[n].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    for (i, line) in lines.iter().enumerate() {
        for (n, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let _ = if n < 2 { write!(out, "| {cell:width$} ") } else { write!(out, "| {cell:>width$} ") };
        }
        out.push_str("|\n");
        if i == 0 {
            for (n, width) in widths.iter().enumerate() {
                let _ = write!(out, "|{}{}", "-".repeat(width + 1), if n < 2 { "-" } else { ":" });
            }
            out.push_str("|\n");
        }
    }
    out
}

/// A number with commas.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

fn as_json(outcome: &Outcome, options: &Options, took: Duration) -> serde_json::Value {
    let rows: Vec<_> = outcome
        .rows
        .iter()
        .map(|((fs, workload), r)| {
            json!({
                "fs": fs, "workload": workload, "cuts": r.cuts, "acknowledged": r.acknowledged,
                "handles": r.handles, "repeated": r.repeated, "blocks_lost": r.blocks_lost,
                "cuts_in_recovery": r.cuts_in_recovery, "recovery_s_max": r.recovery_s_max,
                "failures": r.failures,
            })
        })
        .collect();
    let failed: Vec<_> = outcome
        .failures
        .iter()
        .map(|f| json!({"fs": f.series.fs, "workload": f.series.workload, "seed": f.series.seed, "wrong": f.what, "repeat": f.repeat}))
        .collect();
    json!({"seed": options.seed, "seconds": took.as_secs_f64(), "rows": rows, "failed": failed})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_is_dealt_out_once_and_every_series_has_a_seed_of_its_own() {
        for cuts in [1, 8, 30, 1000] {
            let series = deal(cuts, 7, &FILESYSTEMS, &WORKLOADS);
            assert_eq!(series.iter().map(|s| s.cuts).sum::<u32>(), cuts);
            assert!(series.iter().all(|s| (1..=SERIES_CUTS).contains(&s.cuts)));
            let seeds: std::collections::HashSet<u64> = series.iter().map(|s| s.seed).collect();
            assert_eq!(seeds.len(), series.len());
        }
        let of = |fs: &str| deal(90, 7, &FILESYSTEMS, &WORKLOADS).iter().filter(|s| s.fs == fs).count();
        assert_eq!((of("ext4"), of("xfs"), of("btrfs")), (3, 3, 3));
    }

    #[test]
    fn the_table_adds_up() {
        let mut outcome = Outcome::default();
        let mut shown = Shown::new(2);
        let series = Series { fs: "xfs".into(), workload: "mixed".into(), cuts: 2, seed: 9 };
        let line =
            r#"{"cut":1,"acknowledged":1234,"handles":5,"cuts_in_recovery":1,"recovery_s":0.25,"wrong":[]}"#;
        outcome.hear(News::Cut(series.clone(), serde_json::from_str(line).unwrap()), &mut shown);
        let line = r#"{"cut":2,"acknowledged":1,"handles":5,"cuts_in_recovery":0,"recovery_s":0.5,"wrong":["f: is missing"]}"#;
        outcome.hear(News::Cut(series, serde_json::from_str(line).unwrap()), &mut shown);
        let table = table(&outcome);
        let last = table.lines().last().unwrap();
        let cells: Vec<&str> = last.split('|').map(str::trim).collect();
        assert_eq!(cells[1..10], ["all", "all", "2", "1,235", "10", "0", "0", "1", "0.50 s"]);
        assert!(outcome.failures[0].repeat.ends_with("--workload mixed --cuts 2 --seed 9"));
    }
}
