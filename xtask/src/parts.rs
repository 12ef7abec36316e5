//! The tests in parts that run side by side: many of them wait, for leases to end and for disks that are slow on purpose.
//!
//! All name the programs of the whole workspace: a part of its packages would be built with other features, and so once more.

use std::collections::BTreeSet;

use crate::proc::{self, command};

/// The programs of all parts but the last one, the longest ones: each part takes about as long as the others, which are the last one.
const LONG: [&[&str]; 2] = [
    &["tools", "restarts", "powercut", "causes", "servers", "terminal"],
    &[
        "interrupted_demo",
        "bad_log",
        "faults",
        "pairs",
        "counts",
        "untar",
        "verify",
        "held_flush",
        "programs",
        "outputs",
        "attributes",
        "report",
    ],
];

pub const WHOLE: &[&str] = &["test", "--workspace", "--no-fail-fast"];

/// What to ask of cargo for each part but the last one.
pub fn long() -> [Vec<String>; LONG.len()] {
    LONG.map(|programs| with_programs(&[], programs.iter().map(|name| (*name).to_owned())))
}

/// What to ask of cargo for the last part: all others, but the examples of the documentation.
pub fn others() -> Result<Vec<String>, String> {
    let args = ["metadata", "--no-deps", "--format-version", "1"];
    Ok(with_programs(&["--lib", "--bins"], others_in(&proc::output(&mut command(&proc::cargo(), args))?)?))
}

fn with_programs(kinds: &[&str], names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut args: Vec<String> = WHOLE.iter().chain(kinds).map(|arg| (*arg).to_owned()).collect();
    args.extend(names.into_iter().flat_map(|name| ["--test".to_owned(), name]));
    args
}

/// The names of the other test programs that cargo's metadata lists.
fn others_in(metadata: &str) -> Result<BTreeSet<String>, String> {
    let metadata: serde_json::Value =
        serde_json::from_str(metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    let list = |of: &serde_json::Value, key: &str| of[key].as_array().cloned().unwrap_or_default();
    let targets =
        list(&metadata, "packages").iter().flat_map(|package| list(package, "targets")).collect::<Vec<_>>();
    let names: BTreeSet<String> = targets
        .iter()
        .filter(|target| list(target, "kind").iter().any(|kind| kind == "test"))
        .filter_map(|target| target["name"].as_str().map(str::to_owned))
        .collect();
    let long = LONG.concat();
    if let Some(unknown) = long.iter().find(|name| !names.contains(**name)) {
        return Err(format!("there is no test program {unknown}"));
    }
    Ok(names.into_iter().filter(|name| !long.contains(&name.as_str())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_is_in_one_of_the_parts() {
        let others = others().expect("cargo's metadata");
        for program in ["all", "ops", "rights", "parts_nobody_has"] {
            let named = others.iter().any(|arg| arg == program);
            assert_eq!(named, program != "parts_nobody_has", "{program}");
        }
        let in_long = |what: &str| long().iter().flatten().filter(|arg| *arg == what).count();
        for program in LONG.concat() {
            assert!(!others.iter().any(|arg| arg == program), "{program}");
            assert_eq!(in_long(program), 1, "{program}");
        }
        assert!(others.iter().any(|arg| arg == "--lib") && in_long("--lib") == 0);
    }

    #[test]
    fn a_program_that_is_not_there_any_more_is_noticed() {
        assert!(others_in(r#"{"packages": [{"targets": [{"name": "all", "kind": ["test"]}]}]}"#).is_err());
    }
}
