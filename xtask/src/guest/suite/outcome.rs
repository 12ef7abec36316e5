//! What a suite found, case by case, read from its output.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Passed,
    Failed,
    Skipped,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::Skipped => "skipped",
        }
    }
}

/// A test case's end, and what it said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    pub verdict: Verdict,
    /// The lines below its verdict: why it failed or was skipped.
    pub said: String,
}

/// All cases of one run, by name.
pub type Outcomes = BTreeMap<String, Outcome>;

/// Reads lines `NAME ... VERDICT`, each followed by indented lines of explanation; other lines belong to no case.
///
/// This is what `pjdfstest` prints (`ok`, `FAILED`, `skipped`), and what our own scripts print for other suites.
pub fn parse(output: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    let mut last: Option<String> = None;
    for line in output.lines() {
        if line.starts_with(['\t', ' ']) {
            if let Some(outcome) = last.as_ref().and_then(|name| outcomes.get_mut(name)) {
                if !outcome.said.is_empty() {
                    outcome.said.push('\n');
                }
                outcome.said.push_str(line.trim());
            }
            continue;
        }
        let mut words = line.split_whitespace();
        let (name, verdict, more) = (words.next(), words.next_back(), words.next());
        let verdict = match verdict {
            Some("ok") => Verdict::Passed,
            Some("FAILED") => Verdict::Failed,
            Some("skipped") => Verdict::Skipped,
            _ => continue,
        };
        if let (Some(name), None) = (name, more) {
            outcomes.insert(name.to_owned(), Outcome { verdict, said: String::new() });
            last = Some(name.to_owned());
        }
    }
    outcomes
}

/// How many passed, failed and were skipped.
pub fn count(outcomes: &Outcomes) -> (usize, usize, usize) {
    let count = |verdict| outcomes.values().filter(|outcome| outcome.verdict == verdict).count();
    (count(Verdict::Passed), count(Verdict::Failed), count(Verdict::Skipped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_with_what_they_say() {
        let outcomes = parse(
            "chmod::one                ok\nchmod::two       FAILED\n\tassertion failed: a\n\tleft: 1\n\
             open::three     skipped\n\trequires features: x\n\nSummary: 1 failed, 1 skipped, 1 passed, 3 total\n",
        );
        let said: Vec<(&str, Verdict, &str)> =
            outcomes.iter().map(|(name, o)| (name.as_str(), o.verdict, o.said.as_str())).collect();
        assert_eq!(
            said,
            [
                ("chmod::one", Verdict::Passed, ""),
                ("chmod::two", Verdict::Failed, "assertion failed: a\nleft: 1"),
                ("open::three", Verdict::Skipped, "requires features: x"),
            ]
        );
        assert_eq!(count(&outcomes), (1, 1, 1));
    }
}
