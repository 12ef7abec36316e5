//! The steps of a long run: each is named, timed, and ends as passed, failed or skipped.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::ExitCode;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// How a step ended.
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
    /// A step of this name.
    pub fn new(name: &str, run: impl FnOnce(&File) -> Outcome + Send + 'a) -> Self {
        Job { name: name.to_owned(), run: Box::new(run) }
    }
}

/// The steps so far.
pub struct Steps {
    start: Instant,
    done: Vec<(String, Outcome, Duration)>,
}

impl Default for Steps {
    fn default() -> Self {
        Steps { start: Instant::now(), done: Vec::new() }
    }
}

impl Steps {
    /// Runs one step; a failure does not stop the next ones.
    pub fn step(&mut self, name: &str, run: impl FnOnce() -> Outcome) -> Outcome {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = run();
        let took = start.elapsed();
        end_line(name, &outcome, took);
        self.done.push((name.to_owned(), outcome.clone(), took));
        outcome
    }

    /// Runs steps that do not disturb each other, `width` at a time, in this order. What each prints is printed in one
    /// piece when it ends. The outcomes come in the order of the steps.
    pub fn together(&mut self, width: usize, jobs: Vec<Job<'_>>) -> Vec<Outcome> {
        self.lanes(width, jobs.into_iter().map(|job| vec![job]).collect())
    }

    /// As [`Steps::together`], with lanes in place of steps: the steps of a lane run one after the other.
    pub fn lanes(&mut self, width: usize, lanes: Vec<Vec<Job<'_>>>) -> Vec<Outcome> {
        let first = self.done.len();
        let skipped =
            |job: &Job| (job.name.clone(), Outcome::Skipped("did not run".to_owned()), Duration::ZERO);
        self.done.extend(lanes.iter().flatten().map(skipped));
        let mut place = 0;
        let mut numbered = |job| {
            place += 1;
            (place - 1, job)
        };
        let lanes: Vec<Vec<(usize, Job<'_>)>> =
            lanes.into_iter().map(|lane| lane.into_iter().map(&mut numbered).collect()).collect();
        let queue = Mutex::new(lanes.into_iter());
        let next = || queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
        std::thread::scope(|scope| {
            let (ended, ends) = mpsc::channel();
            for _ in 0..width {
                let (ended, next) = (ended.clone(), &next);
                scope.spawn(move || {
                    for (place, job) in std::iter::from_fn(next).flatten() {
                        println!("== {}: begins", job.name);
                        let start = Instant::now();
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
            for (place, outcome, took, output) in ends {
                let Some(entry) = self.done.get_mut(first + place) else { continue };
                println!("\n== {}", entry.0);
                if let Err(e) = output.and_then(show) {
                    println!("(its output is lost: {e})");
                }
                end_line(&entry.0, &outcome, took);
                (entry.1, entry.2) = (outcome, took);
            }
        });
        self.done[first..].iter().map(|(_, outcome, _)| outcome.clone()).collect()
    }

    /// Prints one line a step and the counts, which are the last line.
    pub fn finish(&self) -> ExitCode {
        println!("\nSummary:");
        for (name, outcome, took) in &self.done {
            let gap = if outcome.reason().is_empty() { "" } else { "  " };
            println!("  {:7} {:7.1} s  {name}{gap}{}", outcome.word(), took.as_secs_f64(), outcome.reason());
        }
        println!("  {:7} {:7.1} s  all", "", self.start.elapsed().as_secs_f64());
        let (passed, failed, skipped) = self.counts();
        println!("\n{passed} passed, {failed} failed, {skipped} skipped");
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn counts(&self) -> (usize, usize, usize) {
        let count = |word| self.done.iter().filter(|(_, outcome, _)| outcome.word() == word).count();
        (count("passed"), count("FAILED"), count("skipped"))
    }
}

fn end_line(name: &str, outcome: &Outcome, took: Duration) {
    let gap = if outcome.reason().is_empty() { "" } else { ": " };
    println!("== {name}: {} ({:.1} s){gap}{}", outcome.word(), took.as_secs_f64(), outcome.reason());
}

/// Prints what a step wrote.
fn show(mut output: File) -> io::Result<()> {
    let mut bytes = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut bytes)?;
    print!("{}", String::from_utf8_lossy(&bytes));
    Ok(())
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
        let names: Vec<&str> = steps.done.iter().map(|(name, _, _)| name.as_str()).collect();
        assert_eq!(names, ["one", "two", "three"]);
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
        let names: Vec<&str> = steps.done.iter().map(|(name, _, _)| name.as_str()).collect();
        assert_eq!(names, ["a1", "a2", "b"]);
        drop(steps);
        assert_eq!(began.into_inner().unwrap(), ["a1", "a2", "b"]);
    }
}
