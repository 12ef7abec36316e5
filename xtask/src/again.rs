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

/// Runs all tests. `cargo_test` receives additional arguments and returns the result and the output.
pub fn run(mut cargo_test: impl FnMut(&[&str]) -> (Result<(), String>, String)) -> Outcome {
    let (Err(why), said) = cargo_test(&[]) else { return Outcome::Passed };
    let Some(failed) = failed(&said) else { return Outcome::Failed(why) };
    let names: Vec<&str> = failed.iter().copied().collect();
    let list = names.join(", ");
    if failed.len() > ACCIDENTS_MAX {
        return Outcome::Failed(format!("{list}: {why}"));
    }
    for _ in 0..TIMES {
        let (result, said) = cargo_test(&[&["--", "--exact"], &names[..]].concat());
        match result {
            Err(why) => return Outcome::Failed(format!("again, {list}: {why}")),
            Ok(()) if !all_passed(&failed, &said) => {
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
fn all_passed(names: &BTreeSet<&str>, output: &str) -> bool {
    let passed: BTreeSet<&str> = output.lines().filter_map(|line| outcome(line, "ok")).collect();
    names.is_subset(&passed)
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

    /// The outcome of these runs, and their number.
    fn runs(all: &[(bool, &str)]) -> (Outcome, usize) {
        let mut number = 0;
        let outcome = run(|behind| {
            let (passes, said) = all[number];
            let again = ["--", "--exact", "every_fault", "here::handles"];
            assert_eq!(behind, if number == 0 { &[] } else { &again[..] });
            number += 1;
            (passes.then_some(()).ok_or_else(|| "exit status: 101".to_owned()), said.to_owned())
        });
        (outcome, number)
    }

    #[test]
    fn what_failed_must_pass_three_times_and_is_told() {
        assert_eq!(runs(&[(true, OK)]), (Outcome::Passed, 1));
        let (outcome, number) = runs(&[(false, TWO), (true, OK), (true, OK), (true, OK)]);
        assert!(matches!(outcome, Outcome::Unsteady(why) if why.ends_with(": every_fault, here::handles")));
        assert_eq!(number, 4);
        let (outcome, number) = runs(&[(false, TWO), (true, OK), (true, OK), (false, TWO)]);
        assert!(matches!(outcome, Outcome::Failed(_)) && number == 4);
        let (outcome, number) = runs(&[(false, TWO), (true, "")]);
        assert!(matches!(outcome, Outcome::Failed(_)) && number == 2);
        // Four failures.
        let four = TWO.replace("test another ... ok", "test another ... FAILED\ntest a_fourth ... FAILED");
        let (outcome, number) = runs(&[(false, &four)]);
        assert!(matches!(outcome, Outcome::Failed(_)) && number == 1);
    }

    #[test]
    fn a_test_that_did_not_run_did_not_pass() {
        let names = BTreeSet::from(["every_fault", "here::handles"]);
        assert!(all_passed(&names, OK));
        assert!(!all_passed(&names, "test every_fault ... ok\n"));
        assert!(!all_passed(&names, TWO));
    }
}
