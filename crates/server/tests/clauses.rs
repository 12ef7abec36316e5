//! Operation, clause, test: the table of docs/suites/clauses.md, made of two files and held to the tests that it names.
//!
//! - `clauses/musts.txt`: what the RFCs say an operation MUST and SHOULD do, in our words, and the tests of it.
//! - `clauses/answers.txt`: which test was given which status by which operation. The tests note it themselves:
//!
//! ```sh
//! LANDFAST_ANSWERS=/tmp/answers cargo test -p landfast-server --test all
//! LANDFAST_ANSWERS_FROM=/tmp/answers cargo test -p landfast-server --test all clauses
//! ```
//!
//! The second command writes `answers.txt` and the page. Without it both are compared.

use landfast_nfs::v4::valid::is_valid;
use landfast_nfs::v4::{NfsStat, OpNum};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Tests that are named for an answer; more say no more.
const TESTS_MAX: usize = 2;

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The versions whose tables differ: with sessions and without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Zero,
    Sessions,
}

impl Version {
    fn of(minor: u32) -> Version {
        if minor == 0 { Version::Zero } else { Version::Sessions }
    }

    fn name(self) -> &'static str {
        match self {
            Version::Zero => "4.0",
            Version::Sessions => "4.1+",
        }
    }

    /// Whether an operation may have this status in one of them.
    fn may(self, op: OpNum, status: NfsStat) -> bool {
        match self {
            Version::Zero => is_valid(0, op, status),
            Version::Sessions => is_valid(1, op, status) || is_valid(2, op, status),
        }
    }
}

/// What is asked of an operation.
struct Must {
    op: String,
    section: String,
    clause: String,
    tests: Vec<String>,
    /// Why there is none.
    without: Option<String>,
}

/// Lines of `operation | RFC section | clause | tests`; without a test the last one says why after a `-`.
fn musts() -> Vec<Must> {
    let text = read(&here("tests/clauses/musts.txt"));
    let line = |line: &str| {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [op, section, clause, tests] = parts[..] else { panic!("no line of musts.txt: {line}") };
        let without = tests.strip_prefix("- ").map(str::to_owned);
        let tests = match without {
            Some(_) => Vec::new(),
            None => tests.split_whitespace().map(str::to_owned).collect(),
        };
        Must { op: op.into(), section: section.into(), clause: clause.into(), tests, without }
    };
    text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).map(line).collect()
}

type Answers = BTreeMap<(Version, String, String), BTreeSet<String>>;

/// What the tests noted.
fn noted(text: &str) -> Answers {
    let mut all = Answers::new();
    for line in text.lines() {
        let Some((minor, rest)) = line.split_once(' ') else { continue };
        let parts: Vec<&str> = rest.split(' ').collect();
        let ([op, status, test], Ok(minor)) = (&parts[..], minor.parse::<u32>()) else { continue };
        // Threads of the runtime, and of a test's own, have other names.
        if minor > 2 || !test.contains("::") {
            continue;
        }
        let status = status.trim_start_matches("NFS4ERR_").to_owned();
        all.entry((Version::of(minor), (*op).to_owned(), status)).or_default().insert((*test).to_owned());
    }
    all
}

/// Those that are named for an answer: the ones that name a clause first.
fn named(tests: &BTreeSet<String>) -> Vec<&String> {
    let mut tests: Vec<&String> = tests.iter().collect();
    tests.sort_by_key(|test| !test.contains("::rfc"));
    tests.truncate(TESTS_MAX);
    tests
}

fn stored(answers: &Answers) -> String {
    let mut text = String::new();
    for ((version, op, status), tests) in answers {
        let tests: Vec<&str> = named(tests).into_iter().map(String::as_str).collect();
        writeln!(text, "{} {op} {status} {}", version.name(), tests.join(" ")).expect("a string");
    }
    text
}

fn answers(text: &str) -> Answers {
    let line = |line: &str| {
        let mut parts = line.split(' ');
        let version = match parts.next() {
            Some("4.0") => Version::Zero,
            Some("4.1+") => Version::Sessions,
            other => panic!("no version: {other:?}"),
        };
        let mut next = || parts.next().expect("a line of answers.txt").to_owned();
        let key = (version, next(), next());
        (key, parts.map(str::to_owned).collect())
    };
    text.lines().map(line).collect()
}

fn short(test: &str) -> String {
    format!("`{}`", test.rsplit("::").next().unwrap_or(test))
}

fn page(musts: &[Must], answers: &Answers) -> String {
    let mut text = String::from(HEAD);
    let with = musts.iter().filter(|m| !m.tests.is_empty()).count();
    writeln!(text, "{with} of {} clauses have a test that names them.\n", musts.len()).expect("a string");
    text += "| operation | section | clause | test |\n|---|---|---|---|\n";
    for m in musts {
        let tests: Vec<String> = m.tests.iter().map(|t| short(t)).collect();
        let tests = m.without.as_ref().map_or(tests.join(", "), |why| format!("**none**: {why}"));
        writeln!(text, "| {} | {} | {} | {tests} |", m.op, m.section, m.clause).expect("a string");
    }
    text += ERRORS;
    let statuses: Vec<NfsStat> = (0..20_000).map(NfsStat).filter(|s| s.name().is_some()).collect();
    for version in [Version::Zero, Version::Sessions] {
        let ops: Vec<OpNum> = (3..80).map(OpNum).filter(|op| version.may(*op, NfsStat::NFS4_OK)).collect();
        writeln!(text, "### NFSv{}\n\n| operation | status | test |\n|---|---|---|", version.name())
            .expect("a string");
        for op in ops {
            let name = op.name().expect("a name");
            let mut without = Vec::new();
            for status in statuses.iter().filter(|s| version.may(op, **s)) {
                let status = status.name().expect("a name").trim_start_matches("NFS4ERR_");
                match answers.get(&(version, name.to_owned(), status.to_owned())) {
                    Some(tests) => {
                        let tests: Vec<String> = tests.iter().map(|t| short(t)).collect();
                        writeln!(text, "| {name} | {status} | {} |", tests.join(", ")).expect("a string");
                    }
                    None => without.push(status),
                }
            }
            if !without.is_empty() {
                writeln!(text, "| {name} | {} | **none** |", without.join(" ")).expect("a string");
            }
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

const HEAD: &str = "# Operations, clauses, tests

What RFC 8881 (NFSv4.1), RFC 7862 (4.2) and RFC 7530 (4.0) say that a server MUST and SHOULD do in an operation, and the test of it; and each
status that their tables of valid errors have for an operation, with a test that is given it. `crates/server/tests/clauses.rs` makes this
page, and fails where it names a test that is not there. **none** is said where nothing shows it.

## MUST and SHOULD

";

const ERRORS: &str = "
## Each status of each operation

From a run of `cargo test -p landfast-server --test all`, in which each test notes what it is given. Where the row says **none** no test was
given this status: most are for what this server lacks (layouts, migration, SSV, mandatory locks), for trouble that no test makes (`IO`,
`DELAY`, `SERVERFAULT`), or for arguments that do not decode (`BADXDR`: `bad_input.rs` sends them as bytes and counts them there).

";

/// The names of all functions of the tests, here and beside the code.
fn functions(dir: &Path, all: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            functions(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = read(&path);
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            all.extend(names.map(str::to_owned));
        }
    }
}

#[test]
fn the_page_of_clauses_is_what_the_tests_say() {
    let (kept, shown) = (here("tests/clauses/answers.txt"), here("../../docs/suites/clauses.md"));
    let renews = std::env::var_os("LANDFAST_ANSWERS_FROM");
    if let Some(from) = &renews {
        std::fs::write(&kept, stored(&noted(&read(Path::new(from))))).expect("answers.txt");
    }
    let (musts, answers) = (musts(), answers(&read(&kept)));
    let mut all = BTreeSet::new();
    for dir in ["src", "tests", "../volume/src", "../client/tests", "../cli/tests"] {
        functions(&here(dir), &mut all);
    }
    assert!(musts.iter().all(|m| m.tests.is_empty() == m.without.is_some()), "a test, or why there is none");
    let tests = musts.iter().flat_map(|m| &m.tests).chain(answers.values().flatten());
    let missing: BTreeSet<&str> =
        tests.map(|t| t.rsplit("::").next().unwrap_or(t)).filter(|t| !all.contains(*t)).collect();
    assert!(missing.is_empty(), "named, and not there: {missing:?}");
    let page = page(&musts, &answers);
    if renews.is_some() {
        std::fs::write(&shown, page).expect("clauses.md");
    } else {
        assert!(read(&shown) == page, "docs/suites/clauses.md is not what its two files say; see clauses.rs");
    }
}
