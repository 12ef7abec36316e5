//! Runs failed tests again, if they may have failed because the machine was busy with builds and fuzzing.
//!
//! On a shared machine, a run of more than a thousand tests fails more often because one test waits for a processor
//! than because of the change under test. So a few failed tests are repeated. If one fails again, the run fails. The
//! summary names those that pass, because each has a mistake that somebody has to find, in the test or in the code.

use std::collections::BTreeSet;

use crate::steps::Outcome;

/// More failures than this are not accidental.
const ACCIDENTS_MAX: usize = 3;

/// How often in a row each must pass.
const TIMES: usize = 3;

/// How the first run of some tests ended.
#[derive(Debug, PartialEq, Eq)]
pub enum First {
    Passed,
    /// These failed, few enough to be accidents: [`repeat`] decides.
    SomeFailed(Vec<String>),
    Failed(String),
}

/// Judges the first run from its result and its output.
pub fn judge(result: Result<(), String>, said: &str) -> First {
    let Err(why) = result else { return First::Passed };
    match failed(said) {
        None => First::Failed(why),
        Some(names) if names.len() > ACCIDENTS_MAX => {
            First::Failed(format!("{}: {why}", names.into_iter().collect::<Vec<_>>().join(", ")))
        }
        Some(names) => First::SomeFailed(names.into_iter().map(str::to_owned).collect()),
    }
}

/// Runs the tests of these names again, when nothing else keeps the processors busy. `cargo_test` receives additional
/// arguments and returns the result and the output.
pub fn repeat(
    names: &[String],
    mut cargo_test: impl FnMut(&[&str]) -> (Result<(), String>, String),
) -> Outcome {
    let list = names.join(", ");
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for _ in 0..TIMES {
        let (result, said) = cargo_test(&[&["--", "--exact"], &names[..]].concat());
        match result {
            Err(why) => return Outcome::Failed(format!("again, {list}: {why}")),
            Ok(()) if !all_passed(&names, &said) => {
                return Outcome::Failed(format!("did not run again: {list}"));
            }
            Ok(()) => {}
        }
    }
    Outcome::Unsteady(format!("LOOK INTO THIS, failed once, then passed {TIMES} times: {list}"))
}

/// Names of the failed tests from the output of cargo and libtest. `None` if something else failed, too: a build, or
/// a program that ended without a message.
fn failed(output: &str) -> Option<BTreeSet<&str>> {
    let mut names = BTreeSet::new();
    let (mut in_program, mut ended) = (0, false);
    // The tests' own output stands between these two lines.
    let mut quoted = false;
    for line in output.lines() {
        quoted = (quoted || line == "failures:") && !line.starts_with("test result: ");
        if quoted {
            continue;
        }
        if let Some(name) = outcome(line, "FAILED") {
            names.insert(name);
            in_program += 1;
        } else if line.starts_with("error: test failed, to rerun pass ")
            || line.starts_with("error: doctest failed, to rerun pass ")
        {
            if std::mem::take(&mut in_program) == 0 {
                return None;
            }
        } else if is_sum(line) {
            ended = true;
        } else if line.starts_with("error") {
            return None;
        }
    }
    (ended && in_program == 0).then_some(names)
}

/// Whether each of them ran and passed in this output.
fn all_passed(names: &[&str], output: &str) -> bool {
    let passed: BTreeSet<&str> = output.lines().filter_map(|line| outcome(line, "ok")).collect();
    names.iter().all(|name| passed.contains(name))
}

/// The test's name in a libtest line with this ending.
fn outcome<'a>(line: &'a str, how: &str) -> Option<&'a str> {
    line.strip_prefix("test ")?.strip_suffix(how)?.strip_suffix(" ... ")
}

/// "error: 2 targets failed:", the last line.
fn is_sum(line: &str) -> bool {
    line.strip_prefix("error: ").is_some_and(|rest| rest.ends_with(" failed:") && rest.contains(" target"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "\
     Running tests/faults.rs (target/debug/deps/faults-3f9e)
test every_fault ... FAILED
test another ... ok

failures:

---- every_fault stdout ----
error: a flush was to fail and has not

failures:
    every_fault

test result: FAILED. 1 passed; 1 failed; 0 ignored
error: test failed, to rerun pass `-p landfast-cli --test faults`
     Running tests/log.rs (target/debug/deps/log-1)
test what_a_log_holds ... ok
test here::handles ... FAILED
error: test failed, to rerun pass `-p landfast-volume --test ops`
error: 2 targets failed:
    `-p landfast-cli --test faults`
    `-p landfast-volume --test ops`
";

    #[test]
    fn what_failed_is_known_by_name() {
        assert_eq!(failed(TWO), Some(BTreeSet::from(["every_fault", "here::handles"])));
    }

    #[test]
    fn a_program_that_ends_without_a_word_is_no_test_that_failed() {
        let crash = "error: test failed, to rerun pass `-p landfast-cli --test log`\n";
        assert_eq!(failed(&[TWO, crash].concat()), None);
        assert_eq!(failed(crash), None);
        assert_eq!(failed("error: could not compile `landfast-cli`\n"), None);
        assert_eq!(failed("error[E0308]: mismatched types\n"), None);
        let cut = TWO.split_once("error: 2 targets").map_or("", |(before, _)| before);
        assert_eq!(failed(cut), None, "not all ran");
        assert_eq!(failed(""), None);
    }

    const OK: &str = "test every_fault ... ok\ntest here::handles ... ok\n";

    /// The outcome of these repetitions, and their number.
    fn repetitions(all: &[(bool, &str)]) -> (Outcome, usize) {
        let mut number = 0;
        let names = ["every_fault", "here::handles"].map(str::to_owned);
        let outcome = repeat(&names, |behind| {
            let (passes, said) = all[number];
            assert_eq!(behind, ["--", "--exact", "every_fault", "here::handles"]);
            number += 1;
            (passes.then_some(()).ok_or_else(|| "exit status: 101".to_owned()), said.to_owned())
        });
        (outcome, number)
    }

    #[test]
    fn what_failed_must_pass_three_times_and_is_told() {
        let (outcome, number) = repetitions(&[(true, OK), (true, OK), (true, OK)]);
        assert!(matches!(outcome, Outcome::Unsteady(why) if why.ends_with(": every_fault, here::handles")));
        assert_eq!(number, 3);
        let (outcome, number) = repetitions(&[(true, OK), (true, OK), (false, TWO)]);
        assert!(matches!(outcome, Outcome::Failed(_)) && number == 3);
        let (outcome, number) = repetitions(&[(true, "")]);
        assert!(matches!(outcome, Outcome::Failed(_)) && number == 1);
    }

    #[test]
    fn a_few_failures_may_be_accidents() {
        assert_eq!(judge(Ok(()), OK), First::Passed);
        let ended = || Err("exit status: 101".to_owned());
        let two = ["every_fault", "here::handles"].map(str::to_owned).to_vec();
        assert_eq!(judge(ended(), TWO), First::SomeFailed(two));
        let four = TWO.replace("test another ... ok", "test another ... FAILED\ntest a_fourth ... FAILED");
        assert!(matches!(judge(ended(), &four), First::Failed(_)));
        assert!(matches!(judge(ended(), "error: could not compile `landfast-cli`\n"), First::Failed(_)));
    }

    #[test]
    fn a_test_that_did_not_run_did_not_pass() {
        let names = ["every_fault", "here::handles"];
        assert!(all_passed(&names, OK));
        assert!(!all_passed(&names, "test every_fault ... ok\n"));
        assert!(!all_passed(&names, TWO));
    }
}
