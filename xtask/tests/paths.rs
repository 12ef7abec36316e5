//! The files that ARCHITECTURE.md, CONTRIBUTING.md and docs/internals name are there.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn documents_for_contributors_name_files_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let internals = fs::read_dir(root.join("docs/internals")).expect("docs/internals");
    let internals = internals.map(|entry| entry.expect("an entry").path());
    let documents: Vec<PathBuf> =
        [root.join("ARCHITECTURE.md"), root.join("CONTRIBUTING.md")].into_iter().chain(internals).collect();
    let (mut named, mut missing) = (0, Vec::new());
    for document in documents {
        let text = fs::read_to_string(&document).expect("a document");
        // What stands between backticks is every second piece.
        for word in text.split('`').skip(1).step_by(2).filter(|word| is_path(word)) {
            for path in expanded(word) {
                named += 1;
                let known = [root.join(&path), root.join("crates").join(&path)];
                if !known.iter().any(|path| path.exists()) {
                    missing.push(format!("{}: {path}", document.display()));
                }
            }
        }
    }
    assert!(named > 200, "only {named} paths were found");
    assert!(missing.is_empty(), "not there:\n{}", missing.join("\n"));
}

/// Whether a word is a path from the top of the repository, or from that of a crate.
fn is_path(word: &str) -> bool {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let Some((first, rest)) = word.split_once('/') else { return false };
    let top = ["crates", "xtask", "docs", "fuzz"].contains(&first);
    let plain = !word.contains([' ', '*', '<', '#', '(']);
    plain
        && (top || crates.join(first).is_dir())
        && (top || ["src", "tests"].iter().any(|dir| rest.starts_with(dir)))
}

/// `a/{b,c}.rs` is two paths.
fn expanded(word: &str) -> Vec<String> {
    let parts = word.find('{').and_then(|from| word[from..].find('}').map(|to| (from, from + to)));
    let Some((from, to)) = parts else { return vec![word.to_owned()] };
    let (head, list, tail) = (&word[..from], &word[from + 1..to], &word[to + 1..]);
    list.split(',').flat_map(|item| expanded(&format!("{head}{item}{tail}"))).collect()
}
