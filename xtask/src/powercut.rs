//! `cargo xtask powercut`: cuts the power on several filesystems and during several workloads. Runs several `landfast
//! lab powercut` in parallel and prints one table.
//!
//! The cuts are divided into short series. Each series has its own pair of disks and its own seed, so one short
//! command repeats a failure. Every second series stops the server at named points of its code, which needs a binary
//! with debug assertions.

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
use crate::steps::SAY_EVERY;

/// The filesystems on which the power is cut.
pub const FILESYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// What is going on when the power goes.
pub const WORKLOADS: [&str; 11] = [
    "untar",
    "resume",
    "copy",
    "serial",
    "v3",
    "mixed",
    "overwrite",
    "clients",
    "pairs",
    PAIRS_SYNC,
    "scenes",
];

/// The workload `pairs` with a server that needs no log.
const PAIRS_SYNC: &str = "pairs-sync";

/// The deliberate bugs of a server with debug assertions; for each the workload and the named point that show it soon. The one that
/// no power cut shows, and why, is in `docs/powercuts.md`.
const BUGS: [(&str, &str, Option<&str>); 19] = [
    ("reply-before-flush", "mixed", Some("op.applied")),
    ("checkpoint-before-syncfs", "mixed", Some("checkpoint.freed")),
    ("cut-late", "clients", Some("checkpoint.freed")),
    ("lost-remap-row", "mixed", None),
    ("empty-before-sync", "mixed", Some("recovery.emptied")),
    ("reply-apart", "v3", Some("op.applied")),
    ("verifier-kept", "overwrite", None),
    ("flush-error-ignored", "mixed", None),
    ("marker-unset", "mixed", Some("op.applied")),
    ("victim-unlogged", "mixed", None),
    ("answer-unflushed", "pairs", None),
    ("reply-kept-early", "scenes", None),
    ("old-reply-kept", "scenes", None),
    ("lost-log-unnoticed", "scenes", None),
    ("volatile-unnoticed", "scenes", None),
    ("overlap-unlocked", "scenes", None),
    ("stranger-stops", "scenes", None),
    (PROJECT_IGNORED, "scenes", None),
    ("write-error-forgotten", "scenes", None),
];

/// Shown where filesystems always have projects.
const PROJECT_IGNORED: &str = "project-ignored";

/// A bug that so many cuts do not show is not caught.
const BUG_CUTS: u32 = 120;

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
    /// Give the server this deliberate bug; exit status 1 means that it was caught
    #[arg(long, value_name = "NAME", conflicts_with = "bugs")]
    bug: Option<String>,
    /// Try each of the deliberate bugs that a power cut can show until it is caught, and say after how many cuts it was
    #[arg(long)]
    bugs: bool,
    /// Cut at this named point of the server's code only, or at random moments only (`none`); otherwise every second
    /// series cuts at named points
    #[arg(long, value_name = "NAME")]
    point: Option<String>,
    /// How the power goes in all cuts: power, kill, slow-log, log-lost or half-lost; otherwise by chance
    #[arg(long, value_name = "HOW")]
    variant: Option<String>,
    /// Begin no series after so many minutes; the table has what was done until then
    #[arg(long, value_name = "MINUTES")]
    within: Option<u64>,
    /// Take target/release/landfast and target/debug/landfast as they are
    #[arg(long)]
    built: bool,
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
    /// `--point`, for a server with debug assertions.
    point: Option<String>,
    bug: Option<String>,
    variant: Option<String>,
}

impl Series {
    fn args(&self, cuts: u32) -> Vec<String> {
        let text = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let (cuts, seed) = (cuts.to_string(), self.seed.to_string());
        let mut args = text(&["lab", "powercut", "--fs", &self.fs, "--workload"]);
        match self.workload.as_str() {
            PAIRS_SYNC => args.extend(text(&["pairs", "--durability", "sync"])),
            workload => args.push(workload.to_owned()),
        }
        args.extend(text(&["--cuts", &cuts, "--seed", &seed]));
        let mut option = |name: &str, value: &Option<String>| {
            args.extend(value.iter().flat_map(|value| [name.to_owned(), value.clone()]));
        };
        option("--point", &self.point);
        option("--variant", &self.variant);
        option("--bug", &self.bug);
        if self.needs_debug() {
            option("--binary", &Some(proc::debug_landfast().to_string_lossy().into_owned()));
        }
        if self.bug.is_some() {
            args.push("--until-wrong".to_owned());
        }
        args
    }

    fn needs_debug(&self) -> bool {
        self.point.is_some() || self.bug.is_some()
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
    how: String,
    points: Vec<String>,
    acknowledged: u64,
    handles: u64,
    repeated: u64,
    ahead: u64,
    refused: u64,
    cuts_in_recovery: u32,
    recovery_s: f64,
    wrong: Vec<String>,
}

/// What it prints at its end; the rest is the sum of the cuts.
#[derive(Deserialize)]
struct Ended {
    blocks_lost: u64,
}

#[derive(Clone, Debug, Default)]
struct Row {
    cuts: u64,
    at_points: u64,
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
        self.at_points += u64::from(!cut.points.is_empty());
        self.acknowledged += cut.acknowledged;
        self.handles += cut.handles;
        self.repeated += cut.repeated;
        self.cuts_in_recovery += u64::from(cut.cuts_in_recovery);
        self.recovery_s_max = self.recovery_s_max.max(cut.recovery_s);
        self.failures += u64::from(!cut.wrong.is_empty());
    }

    fn and(mut self, other: &Row) -> Row {
        self.cuts += other.cuts;
        self.at_points += other.at_points;
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
    /// Which cut; none when the series did not run.
    cut: Option<u32>,
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

#[derive(Default)]
struct Outcome {
    rows: BTreeMap<(String, String), Row>,
    /// How often the power went in which way, and how often at which named point.
    how: BTreeMap<String, u64>,
    points: BTreeMap<String, u64>,
    refused: u64,
    ahead: u64,
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
    let debug = options.bugs || options.bug.is_some() || options.point.as_deref() != Some("none");
    if !options.built {
        proc::run(&mut command(&proc::cargo(), ["build", "--release", "--package", "landfast-cli"]))?;
    }
    if debug && !options.built {
        proc::run(&mut command(&proc::cargo(), ["build", "--package", "landfast-cli"]))?;
    }
    if options.bugs {
        return bugs(filesystems.first().copied().unwrap_or("ext4"), options);
    }
    let mut series = deal(options.cuts, options.seed, &filesystems, &workloads);
    for one in &mut series {
        one.bug.clone_from(&options.bug);
        one.variant.clone_from(&options.variant);
        one.point = match options.point.as_deref() {
            Some("none") => None,
            Some(name) => Some(name.to_owned()),
            // The points are mostly the log's.
            None => (one.seed % 2 == 1 && one.workload != PAIRS_SYNC).then(|| "each".to_owned()),
        };
    }
    let start = Instant::now();
    let until = options.within.map(|minutes| start + Duration::from_secs(60 * minutes));
    let outcome = all(&proc::landfast(), series, options.jobs.max(1), options.cuts, until);
    if options.json {
        println!("{}", as_json(&outcome, options, start.elapsed()));
        return Ok(outcome.failures.is_empty());
    }
    print!("{}", table(&outcome));
    print!("{}", counts("how the power went", &outcome.how));
    print!("{}", counts("stopped at", &outcome.points));
    println!(
        "starts refused with another log or none: {}; requests under way that were on the disk ahead of the log: {}",
        outcome.refused, outcome.ahead
    );
    println!("seed {}, {:.0} s", options.seed, start.elapsed().as_secs_f64());
    for failure in &outcome.failures {
        println!("\n{} on {}:", failure.series.workload, failure.series.fs);
        failure.what.iter().for_each(|line| println!("    {line}"));
        println!("  again: {}", failure.repeat);
    }
    if let Some(failure) = outcome.failures.first() {
        // Of a long run, only the last line may be at hand.
        println!("wrong: {}; again: {}", failure.what.join("; "), failure.repeat);
    }
    Ok(outcome.failures.is_empty())
}

fn counts(what: &str, of: &BTreeMap<String, u64>) -> String {
    if of.is_empty() {
        return String::new();
    }
    let each: Vec<String> = of.iter().map(|(name, n)| format!("{name} {n}")).collect();
    format!("{what}: {}\n", each.join(", "))
}

/// Each deliberate bug until it is caught.
fn bugs(fs: &str, options: &Options) -> Result<bool, String> {
    let series = BUGS.map(|(bug, workload, point)| Series {
        fs: if bug == PROJECT_IGNORED { "xfs" } else { fs }.to_owned(),
        workload: workload.to_owned(),
        cuts: BUG_CUTS,
        seed: options.seed,
        point: point.map(str::to_owned),
        bug: Some(bug.to_owned()),
        variant: None,
    });
    let wanted = BUG_CUTS * BUGS.len() as u32;
    let outcome = all(&proc::landfast(), series.into(), options.jobs.max(1), wanted, None);
    let mut caught = 0;
    for (bug, ..) in BUGS {
        let of = |s: &Series| s.bug.as_deref() == Some(bug);
        match outcome.failures.iter().find(|f| of(&f.series)) {
            Some(Failure { cut: Some(cut), what, .. }) => {
                caught += 1;
                let first: String = what.first().map(|w| w.chars().take(110).collect()).unwrap_or_default();
                println!("{bug:26} caught by cut {cut:2}: {first}");
            }
            Some(broken) => println!("{bug:26} {}", broken.what.join("; ")),
            None => println!("{bug:26} NOT caught by {BUG_CUTS} cuts"),
        }
    }
    println!("{caught} of {} deliberate bugs caught", BUGS.len());
    Ok(caught == BUGS.len())
}

/// Deals the cuts out to series: as many for each pair of filesystem and workload as for any other, or one more.
fn deal(cuts: u32, seed: u64, filesystems: &[&str], workloads: &[&str]) -> Vec<Series> {
    let pairs: Vec<(&str, &str)> =
        workloads.iter().flat_map(|w| filesystems.iter().map(move |fs| (*fs, *w))).collect();
    let count = u32::try_from(pairs.len()).unwrap_or(1).max(1);
    let mut out: Vec<(u32, Series)> = Vec::new();
    let mut seed = seed.wrapping_mul(SEED_STEP);
    for (n, (fs, workload)) in (0..).zip(pairs) {
        let mut left = cuts / count + u32::from(n < cuts % count);
        for turn in 0.. {
            if left == 0 {
                break;
            }
            let here = left.min(SERIES_CUTS);
            left -= here;
            let (fs, workload) = (fs.to_owned(), workload.to_owned());
            out.push((
                turn,
                Series { fs, workload, cuts: here, seed, point: None, bug: None, variant: None },
            ));
            seed = seed.wrapping_add(1);
        }
    }
    // All pairs by turns.
    out.sort_by_key(|(turn, _)| *turn);
    out.into_iter().map(|(_, series)| series).collect()
}

/// Runs all series, `jobs` at a time.
fn all(binary: &Path, series: Vec<Series>, jobs: usize, cuts: u32, until: Option<Instant>) -> Outcome {
    let queue = Mutex::new(VecDeque::from(series));
    let in_time = || until.is_none_or(|until| Instant::now() < until);
    let next = || {
        let mut queue = queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if in_time() { queue.pop_front() } else { None }
    };
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
        loop {
            match news.recv_timeout(SAY_EVERY) {
                Ok(item) => outcome.hear(item, &mut shown),
                Err(mpsc::RecvTimeoutError::Timeout) => shown.say(),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        shown.end();
    });
    outcome
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
        } else if let Ok(end) = serde_json::from_str::<Ended>(&line) {
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
                *self.how.entry(cut.how.clone()).or_default() += 1;
                for point in &cut.points {
                    *self.points.entry(point.clone()).or_default() += 1;
                }
                self.refused += cut.refused;
                self.ahead += cut.ahead;
                shown.cut(!cut.wrong.is_empty());
                if !cut.wrong.is_empty() {
                    let repeat = series.repeat(cut.cut);
                    if series.bug.is_none() {
                        shown.failure(&cut.wrong, &repeat);
                    }
                    self.failures.push(Failure { series, cut: Some(cut.cut), what: cut.wrong, repeat });
                }
            }
            News::Blocks(series, blocks) => self.row(&series).blocks_lost += blocks,
            News::Broken(series, why) => {
                self.row(&series).failures += 1;
                shown.cut(true);
                let repeat = series.repeat(series.cuts);
                shown.failure(std::slice::from_ref(&why), &repeat);
                self.failures.push(Failure { series, cut: None, what: vec![why], repeat });
            }
        }
    }
}

/// How far it is: on a terminal one line that changes with each cut, elsewhere a line now and then.
struct Shown {
    terminal: bool,
    start: Instant,
    said: Instant,
    wanted: u32,
    done: u32,
    failures: u32,
}

impl Shown {
    fn new(wanted: u32) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let now = Instant::now();
        Shown { terminal, start: now, said: now, wanted, done: 0, failures: 0 }
    }

    fn cut(&mut self, failed: bool) {
        self.done += 1;
        self.failures += u32::from(failed);
        if self.terminal || self.said.elapsed() >= SAY_EVERY {
            self.say();
        }
    }

    fn say(&mut self) {
        self.said = Instant::now();
        let took = self.start.elapsed().as_secs();
        let far = format!("{} of {} cuts, {} failures, {took} s", self.done, self.wanted, self.failures);
        let mut err = std::io::stderr();
        let _ = if self.terminal { write!(err, "\r{far} ") } else { writeln!(err, "{far}") };
        let _ = err.flush();
    }

    /// A failure is told when it comes: the table may be far away.
    fn failure(&self, what: &[String], repeat: &str) {
        eprintln!("{}{}: {repeat}", if self.terminal { "\n" } else { "" }, what.join("; "));
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
        "at named points",
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
            grouped(row.at_points),
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
                "fs": fs, "workload": workload, "cuts": r.cuts, "at_points": r.at_points, "acknowledged": r.acknowledged,
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
    json!({
        "seed": options.seed, "seconds": took.as_secs_f64(), "rows": rows, "how": outcome.how,
        "points": outcome.points, "refused": outcome.refused, "ahead": outcome.ahead, "failed": failed,
    })
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
        let of = |fs: &str| deal(180, 7, &FILESYSTEMS, &WORKLOADS).iter().filter(|s| s.fs == fs).count();
        assert_eq!([of("ext4"), of("xfs"), of("btrfs")], [WORKLOADS.len(); 3]);
    }

    #[test]
    fn pairs_without_a_log_are_a_workload_of_their_own_here_and_an_option_there() {
        let args = |workload: &str| deal(1, 1, &["ext4"], &[workload]).remove(0).args(1).join(" ");
        assert!(args("pairs").contains("--workload pairs --cuts 1"), "{}", args("pairs"));
        assert!(
            args(PAIRS_SYNC).contains("--workload pairs --durability sync --cuts 1"),
            "{}",
            args(PAIRS_SYNC)
        );
    }

    #[test]
    fn the_table_adds_up() {
        let mut outcome = Outcome::default();
        let mut shown = Shown::new(2);
        let series = deal(2, 9, &["xfs"], &["mixed"]).remove(0);
        let line = r#"{"cut":1,"how":"power","points":["op.applied"],"acknowledged":1234,"handles":5,"repeated":3,
            "ahead":0,"refused":0,"cuts_in_recovery":1,"recovery_s":0.25,"wrong":[]}"#;
        outcome.hear(News::Cut(series.clone(), serde_json::from_str(line).unwrap()), &mut shown);
        let line = r#"{"cut":2,"how":"kill","points":[],"acknowledged":1,"handles":5,"repeated":0,
            "ahead":0,"refused":0,"cuts_in_recovery":0,"recovery_s":0.5,"wrong":["f: is missing"]}"#;
        outcome.hear(News::Cut(series, serde_json::from_str(line).unwrap()), &mut shown);
        let table = table(&outcome);
        let last = table.lines().last().unwrap();
        let cells: Vec<&str> = last.split('|').map(str::trim).collect();
        assert_eq!(cells[1..11], ["all", "all", "2", "1", "1,235", "10", "3", "0", "1", "0.50 s"]);
        assert_eq!(counts("how", &outcome.how), "how: kill 1, power 1\n");
        assert!(outcome.failures[0].repeat.contains("--workload mixed --cuts 2 --seed "));
    }
}
