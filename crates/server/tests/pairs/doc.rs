//! The table of `docs/durability.md` that says what each answer waits for, made from the acts that the test runs in pairs.

use crate::acts::{ACTS, Act, Asks, Obj};
use landfast_volume::Durability;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

/// Set to write the file instead of comparing it.
const WRITE: &str = "LANDFAST_WRITE_DOCS";
const BEGIN: &str = "<!-- From here to the end mark: made from crates/server/tests/pairs/acts.rs by `cargo xtask docs`. -->\n";
const END: &str = "<!-- end -->\n";

const OBJECTS: [Obj; 6] = [Obj::Dir, Obj::X, Obj::Y, Obj::H, Obj::S, Obj::F];

/// What names an object, in the order of the table and each once.
fn listed(said: impl Iterator<Item = &'static str>) -> String {
    let mut seen = BTreeSet::new();
    said.filter(|said| seen.insert(*said)).collect::<Vec<_>>().join("; ")
}

fn objects(act: &Act) -> String {
    act.names.iter().map(|object| object.said()).collect::<Vec<_>>().join(", ")
}

/// What the reply waits for when something of another's is pending and when nothing is.
fn waits(act: &Act) -> [&'static str; 4] {
    let nothing = "nothing";
    match (act.asks, act.own, act.own_flush()) {
        (Asks::Nothing | Asks::Later, ..) => [nothing; 4],
        (Asks::Stable, true, true) => [
            "its own record, and so for all before it",
            "the other's flush and its own",
            "its own record",
            "its own flush",
        ],
        (Asks::Stable, true, false) => {
            ["its own record, and so for all before it", "the other's flush", "its own record", nothing]
        }
        (Asks::Stable, false, true) => {
            ["that record", "the other's flush and its own", nothing, "its own flush"]
        }
        (Asks::Stable, false, false) => ["that record", "the other's flush", nothing, nothing],
    }
}

fn row(act: &Act) -> String {
    let versions = match (act.since.said(), act.until.said()) {
        (a, b) if a == b => a.to_owned(),
        (a, b) => format!("{a} to {b}"),
    };
    let [log, sync, log_alone, sync_alone] = waits(act);
    let (said, answer) = (act.said, act.answer.said());
    let pending = match act.asks {
        Asks::Stable => objects(act),
        Asks::Nothing | Asks::Later => "anything".to_owned(),
    };
    format!("| {said} | {versions} | {answer} | {pending} | {log} | {sync} | {log_alone} | {sync_alone} |")
}

fn markdown() -> String {
    let mut out = BEGIN.to_owned();
    out += "\n| what is pending | by which operations of another client |\n|---|---|\n";
    for object in OBJECTS {
        let by = ACTS.iter().filter(|act| act.changes.contains(&object)).map(|act| act.said);
        let by = listed(by);
        if !by.is_empty() {
            let _ = writeln!(out, "| a change of {} | {by} |", object.said());
        }
    }
    let by = ACTS.iter().filter(|act| act.pending(Durability::Sync) != act.changes).map(|act| act.said);
    let _ =
        writeln!(out, "\nWithout a log these change nothing that was not there before: {}.\n", listed(by));
    out += "| operation | versions | answer | pending by another client, of | the reply waits, with a log, for | without one, for \
            | when nothing is pending, with a log, for | without one, for |\n|---|---|---|---|---|---|---|---|\n";
    let mut rows = BTreeSet::new();
    for act in ACTS {
        let row = row(act);
        if rows.insert(row.clone()) {
            out += &row;
            out.push('\n');
        }
    }
    out += "| any that changes something, by the handle of an object that is gone | 3 to 4.2 | STALE | the removal of a last \
            name | the record of the latest such removal | the flushes of those under way | nothing | nothing |\n\n";
    out + END
}

#[test]
fn docs_durability_md_says_what_the_acts_say() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/durability.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("the begin mark");
    let (_, after) = rest.split_once(END).expect("the end mark");
    let wanted = format!("{before}{}{after}", markdown());
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &wanted).expect("the file can be written");
    } else {
        assert!(
            page == wanted,
            "docs/durability.md is not what the table of acts says: run `cargo xtask docs`"
        );
    }
}
