//! The steps of a long run: each is named, timed, and ends as passed, failed or skipped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// So often long work says how far it is, where no terminal shows it.
pub const SAY_EVERY: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it should.
    Passed,
    /// It did, but not at once: what somebody has to look into.
    Unsteady(String),
    /// It did not, and why.
    Failed(String),
    /// It could not run here, and why.
    Skipped(String),
}

impl Outcome {
    fn word(&self) -> &'static str {
        match self {
            Outcome::Passed | Outcome::Unsteady(_) => "passed",
            Outcome::Failed(_) => "FAILED",
            Outcome::Skipped(_) => "skipped",
        }
    }

    fn reason(&self) -> &str {
        match self {
            Outcome::Passed => "",
            Outcome::Unsteady(why) | Outcome::Failed(why) | Outcome::Skipped(why) => why,
        }
    }
}

impl From<Result<(), String>> for Outcome {
    fn from(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Outcome::Passed,
            Err(why) => Outcome::Failed(why),
        }
    }
}

/// A step that may run beside others: what it prints goes to the file that it gets.
pub struct Job<'a> {
    name: String,
    run: Box<dyn FnOnce(&File) -> Outcome + Send + 'a>,
}

impl<'a> Job<'a> {
    pub fn new(name: &str, run: impl FnOnce(&File) -> Outcome + Send + 'a) -> Self {
        Job { name: name.to_owned(), run: Box::new(run) }
    }
}

/// A step that has ended.
struct Done {
    name: String,
    outcome: Outcome,
    took: Duration,
    /// If it failed: the lines of its output that tell why.
    telling: Vec<String>,
}

pub struct Steps {
    start: Instant,
    done: Vec<Done>,
    /// Steps of these names are run; none: all.
    only: Vec<String>,
    times: Times,
}

impl Default for Steps {
    fn default() -> Self {
        Steps::new(Vec::new(), Times::default())
    }
}

impl Steps {
    /// Only steps of these names will run, or all if there are none. `times` knows how long they took before.
    pub fn new(only: Vec<String>, times: Times) -> Self {
        Steps { start: Instant::now(), done: Vec::new(), only, times }
    }

    /// Whether a step of this name is run.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// Runs one step, if it is wanted; a failure does not stop the next ones.
    pub fn step(&mut self, name: &str, run: impl FnOnce() -> Outcome) -> Outcome {
        if !self.wants(name) {
            return not_asked_for();
        }
        println!("\n== {name}");
        let start = Instant::now();
        let times = &self.times;
        let outcome = std::thread::scope(|scope| {
            let (_ends_with_the_step, ended) = mpsc::channel::<()>();
            scope.spawn(move || {
                while ended.recv_timeout(SAY_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                    println!("== under way: {}", times.say(name, start));
                }
            });
            run()
        });
        let took = start.elapsed();
        end_line(name, &outcome, took);
        self.done.push(Done { name: name.to_owned(), outcome: outcome.clone(), took, telling: Vec::new() });
        outcome
    }

    /// Runs steps that do not disturb each other, `width` at a time, in this order. What each prints is printed in one
    /// piece when it ends. The outcomes come in the order of the steps.
    pub fn together<'a>(&mut self, width: usize, jobs: Vec<Job<'a>>) -> Vec<Outcome> {
        self.lanes(width, jobs.into_iter().map(|job| vec![job]).collect())
    }

    /// As [`Steps::together`], with lanes in place of steps: the steps of a lane run one after the other.
    pub fn lanes<'a>(&mut self, width: usize, lanes: Vec<Vec<Job<'a>>>) -> Vec<Outcome> {
        let first = self.done.len();
        let all: Vec<String> = lanes.iter().flatten().map(|job| job.name.clone()).collect();
        let wanted = |lane: Vec<Job<'a>>| lane.into_iter().filter(|job| self.wants(&job.name)).collect();
        let lanes: Vec<Vec<Job<'a>>> = lanes.into_iter().map(wanted).collect();
        let skipped = |job: &Job| Done {
            name: job.name.clone(),
            outcome: Outcome::Skipped("did not run".to_owned()),
            took: Duration::ZERO,
            telling: Vec::new(),
        };
        self.done.extend(lanes.iter().flatten().map(skipped));
        let mut place = 0;
        let mut numbered = |job| {
            place += 1;
            (place - 1, job)
        };
        let lanes: Vec<Vec<(usize, Job<'a>)>> =
            lanes.into_iter().map(|lane| lane.into_iter().map(&mut numbered).collect()).collect();
        let queue = Mutex::new(lanes.into_iter());
        let under_way = Mutex::new(BTreeMap::new());
        let under_way = || under_way.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let next = || queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
        std::thread::scope(|scope| {
            let (ended, ends) = mpsc::channel();
            for _ in 0..width {
                let (ended, next, under_way) = (ended.clone(), &next, &under_way);
                scope.spawn(move || {
                    for (place, job) in std::iter::from_fn(next).flatten() {
                        println!("== {}: begins", job.name);
                        let start = Instant::now();
                        under_way().insert(place, (job.name, start));
                        let output = tempfile::tempfile();
                        let outcome = match &output {
                            Ok(file) => (job.run)(file),
                            Err(e) => Outcome::Failed(format!("a file for its output: {e}")),
                        };
                        // The other end waits for all of us.
                        let _ = ended.send((place, outcome, start.elapsed(), output));
                    }
                });
            }
            drop(ended);
            loop {
                let (place, outcome, took, output) = match ends.recv_timeout(SAY_EVERY) {
                    Ok(end) => end,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        let all = under_way();
                        let each: Vec<String> =
                            all.values().map(|(name, start)| self.times.say(name, *start)).collect();
                        println!("== under way: {}", each.join(", "));
                        continue;
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                };
                under_way().remove(&place);
                let Some(entry) = self.done.get_mut(first + place) else { continue };
                println!("\n== {}", entry.name);
                match output.and_then(show) {
                    Ok(text) if matches!(outcome, Outcome::Failed(_)) => entry.telling = telling(&text),
                    Ok(_) => {}
                    Err(e) => println!("(its output is lost: {e})"),
                }
                end_line(&entry.name, &outcome, took);
                (entry.outcome, entry.took) = (outcome, took);
            }
        });
        let ended = &self.done[first..];
        let of = |name: String| ended.iter().find(|done| done.name == name).map(|done| done.outcome.clone());
        all.into_iter().map(|name| of(name).unwrap_or_else(not_asked_for)).collect()
    }

    /// Prints one line a step, why steps failed, and the counts, which are the last line: of a long run, only the end may be at hand.
    pub fn finish(&self) -> ExitCode {
        println!("\nSummary:");
        for Done { name, outcome, took, .. } in &self.done {
            let gap = if outcome.reason().is_empty() { "" } else { "  " };
            println!("  {:7} {:7.1} s  {name}{gap}{}", outcome.word(), took.as_secs_f64(), outcome.reason());
        }
        println!("  {:7} {:7.1} s  all", "", self.start.elapsed().as_secs_f64());
        if let Err(e) = self.times.keep(&self.done) {
            println!("(the steps' times are not kept: {e})");
        }
        for done in self.done.iter().filter(|done| matches!(done.outcome, Outcome::Failed(_))) {
            println!("\nFAILED: {}: {}", done.name, done.outcome.reason());
            done.telling.iter().for_each(|line| println!("  {line}"));
        }
        let (passed, failed, skipped) = self.counts();
        println!("\n{passed} passed, {failed} failed, {skipped} skipped");
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn counts(&self) -> (usize, usize, usize) {
        let count = |word| self.done.iter().filter(|done| done.outcome.word() == word).count();
        (count("passed"), count("FAILED"), count("skipped"))
    }
}

fn not_asked_for() -> Outcome {
    Outcome::Skipped("not asked for".to_owned())
}

/// How long steps took when they last passed, in a file from run to run.
#[derive(Default)]
pub struct Times {
    path: Option<PathBuf>,
    seconds: BTreeMap<String, f64>,
}

impl Times {
    /// What the file has; nothing if it is not there or cannot be read.
    pub fn of(path: PathBuf) -> Times {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        Times { path: Some(path), seconds: serde_json::from_str(&text).unwrap_or_default() }
    }

    /// How long a step took, in words; empty if that is not known.
    pub fn last(&self, name: &str) -> String {
        self.seconds.get(name).map(|seconds| format!("{seconds:.0} s last time")).unwrap_or_default()
    }

    fn say(&self, name: &str, start: Instant) -> String {
        let last = self.last(name);
        let behind = if last.is_empty() { last } else { format!(" ({last})") };
        format!("{name} {} s{behind}", start.elapsed().as_secs())
    }

    fn keep(&self, done: &[Done]) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut seconds = self.seconds.clone();
        for Done { name, outcome, took, .. } in done {
            if outcome.word() == "passed" {
                seconds.insert(name.clone(), took.as_secs_f64());
            }
        }
        std::fs::write(path, serde_json::to_string_pretty(&seconds)?)
    }
}

fn end_line(name: &str, outcome: &Outcome, took: Duration) {
    let gap = if outcome.reason().is_empty() { "" } else { ": " };
    println!("== {name}: {} ({:.1} s){gap}{}", outcome.word(), took.as_secs_f64(), outcome.reason());
}

/// Prints what a step has written, and returns it.
fn show(mut output: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    print!("{text}");
    Ok(text.into_owned())
}

/// How failures begin in what cargo, libtest, apt and our own programs print.
const MARKS: [&str; 6] = ["FAILED", "panicked at", "DOES NOT HOLD", "wrong: ", "error", "E: "];

/// The most lines of a step's output that are repeated at the end of a run.
const TELLING_MAX: usize = 24;

/// Of them, the last lines, whatever they say.
const LAST_LINES: usize = 8;

/// The longest of them, in characters.
const TELLING_LINE_MAX: usize = 400;

/// The lines that tell why a step failed: those that begin a failure, each with the next one, then the last ones.
pub fn telling(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let (before, last) = lines.split_at(lines.len().saturating_sub(LAST_LINES));
    let marked = |line: &str| MARKS.iter().any(|mark| line.contains(mark));
    let begins = |at: usize| before.get(at).is_some_and(|line| marked(line));
    let mut telling: Vec<&str> = (0..before.len())
        .filter(|at| begins(*at) || at.checked_sub(1).is_some_and(begins))
        .map(|at| before[at])
        .collect();
    telling.truncate(TELLING_MAX - LAST_LINES);
    telling
        .into_iter()
        .chain(last.iter().copied())
        .map(|line| line.chars().take(TELLING_LINE_MAX).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_failure_does_not_stop_the_next_step_and_is_counted() {
        let mut steps = Steps::default();
        steps.step("one", || Outcome::from(Err("broken".to_owned())));
        steps.step("two", || Outcome::from(Ok(())));
        steps.step("three", || Outcome::Skipped("no root".to_owned()));
        assert_eq!(steps.counts(), (1, 1, 1));
    }

    #[test]
    fn what_tells_why_a_step_failed_is_kept_for_the_end() {
        let steps: Vec<String> = (0..40).map(|n| format!("step {n} passed")).collect();
        let output = format!("one\na: FAILED: the disk is full\nof all disks\n\n{}\n", steps.join("\n"));
        let mut told = vec!["a: FAILED: the disk is full".to_owned(), "of all disks".to_owned()];
        told.extend_from_slice(&steps[40 - LAST_LINES..]);
        assert_eq!(telling(&output), told);
        assert_eq!(telling("two lines\nFAILED"), ["two lines", "FAILED"]);
        assert_eq!(telling(""), [""; 0]);
        assert_eq!(telling(&"FAILED\n".repeat(100)).len(), TELLING_MAX);

        let mut steps = Steps::default();
        let job = |name: &str, outcome: Outcome| {
            let output = output.clone();
            Job::new(name, move |mut out| match out.write_all(output.as_bytes()) {
                Ok(()) => outcome,
                Err(e) => Outcome::Failed(e.to_string()),
            })
        };
        let failed = Outcome::Failed("exit status: 125".to_owned());
        let jobs = vec![job("guest", failed.clone()), job("other", Outcome::Passed)];
        assert_eq!(steps.together(1, jobs), [failed, Outcome::Passed]);
        let kept: Vec<usize> = steps.done.iter().map(|done| done.telling.len()).collect();
        assert_eq!(kept, [told.len(), 0]);
    }

    #[test]
    fn steps_run_beside_each_other_and_are_counted_in_their_order() {
        let (to_second, from_first) = mpsc::channel();
        let (to_first, from_second) = mpsc::channel();
        let mut steps = Steps::default();
        // Each waits for the other: they end only if both run at once.
        let outcomes = steps.together(
            2,
            vec![
                Job::new("one", move |mut out| {
                    let met = to_second.send(()).is_ok() && from_second.recv().is_ok();
                    Outcome::from(writeln!(out, "one {met}").map_err(|e| e.to_string()))
                }),
                Job::new("two", move |_| {
                    let met = to_first.send(()).is_ok() && from_first.recv().is_ok();
                    if met { Outcome::from(Err("met".to_owned())) } else { Outcome::Passed }
                }),
                Job::new("three", |_| Outcome::Passed),
            ],
        );
        assert_eq!(outcomes, [Outcome::Passed, Outcome::Failed("met".to_owned()), Outcome::Passed]);
        let names: Vec<&str> = steps.done.iter().map(|done| done.name.as_str()).collect();
        assert_eq!(names, ["one", "two", "three"]);
    }

    #[test]
    fn only_what_was_asked_for_runs_and_its_time_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("times");
        let mut steps = Steps::new(vec!["b".to_owned(), "d".to_owned()], Times::of(path.clone()));
        let must_not = || -> Outcome { panic!("nobody asked for it") };
        assert_eq!(steps.step("a", must_not), not_asked_for());
        assert_eq!(steps.step("b", || Outcome::Passed), Outcome::Passed);
        let failed = Outcome::Failed("broken".to_owned());
        let d = failed.clone();
        let outcomes = steps.together(1, vec![Job::new("c", move |_| must_not()), Job::new("d", move |_| d)]);
        assert_eq!(outcomes, [not_asked_for(), failed]);
        assert_eq!(steps.counts(), (1, 1, 0));
        let _ = steps.finish();
        let times = Times::of(path);
        assert_eq!((times.last("b").as_str(), times.last("d").as_str()), ("0 s last time", ""));
    }

    #[test]
    fn the_steps_of_a_lane_run_one_after_the_other() {
        let began = Mutex::new(Vec::new());
        let job = |name: &'static str| {
            let began = &began;
            Job::new(name, move |_| {
                began.lock().unwrap().push(name);
                Outcome::Passed
            })
        };
        let mut steps = Steps::default();
        let outcomes = steps.lanes(1, vec![vec![job("a1"), job("a2")], vec![job("b")]]);
        assert_eq!(outcomes, [Outcome::Passed, Outcome::Passed, Outcome::Passed]);
        let names: Vec<&str> = steps.done.iter().map(|done| done.name.as_str()).collect();
        assert_eq!(names, ["a1", "a2", "b"]);
        drop(steps);
        assert_eq!(began.into_inner().unwrap(), ["a1", "a2", "b"]);
    }
}
