//! The steps of a long run: each is named, timed, and ends as passed, failed or skipped.

use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it should.
    Passed,
    /// It did not, and why.
    Failed(String),
    /// It could not run here, and why.
    Skipped(String),
}

impl Outcome {
    fn word(&self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed(_) => "FAILED",
            Outcome::Skipped(_) => "skipped",
        }
    }

    fn reason(&self) -> &str {
        match self {
            Outcome::Passed => "",
            Outcome::Failed(why) | Outcome::Skipped(why) => why,
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

/// The steps so far.
#[derive(Default)]
pub struct Steps {
    done: Vec<(String, Outcome, Duration)>,
}

impl Steps {
    /// Runs one step; a failure does not stop the next ones.
    pub fn step(&mut self, name: &str, run: impl FnOnce() -> Outcome) -> Outcome {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = run();
        let took = start.elapsed();
        let gap = if outcome.reason().is_empty() { "" } else { ": " };
        println!("== {name}: {} ({:.1} s){gap}{}", outcome.word(), took.as_secs_f64(), outcome.reason());
        self.done.push((name.to_owned(), outcome.clone(), took));
        outcome
    }

    /// Prints one line a step and the counts, which are the last line.
    pub fn finish(&self) -> ExitCode {
        println!("\nSummary:");
        for (name, outcome, took) in &self.done {
            let gap = if outcome.reason().is_empty() { "" } else { "  " };
            println!("  {:7} {:7.1} s  {name}{gap}{}", outcome.word(), took.as_secs_f64(), outcome.reason());
        }
        let total: Duration = self.done.iter().map(|(_, _, took)| *took).sum();
        println!("  {:7} {:7.1} s  all", "", total.as_secs_f64());
        let (passed, failed, skipped) = self.counts();
        println!("\n{passed} passed, {failed} failed, {skipped} skipped");
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn counts(&self) -> (usize, usize, usize) {
        let count = |word| self.done.iter().filter(|(_, outcome, _)| outcome.word() == word).count();
        (count("passed"), count("FAILED"), count("skipped"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_does_not_stop_the_next_step_and_is_counted() {
        let mut steps = Steps::default();
        steps.step("one", || Outcome::from(Err("broken".to_owned())));
        steps.step("two", || Outcome::from(Ok(())));
        steps.step("three", || Outcome::Skipped("no root".to_owned()));
        assert_eq!(steps.counts(), (1, 1, 1));
    }
}
