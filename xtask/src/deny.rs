//! `cargo xtask deny`: checks licences, sources and known vulnerabilities of the dependencies, and what a server-only
//! build contains.
//!
//! `cargo-deny` judges by `deny.toml`. Its database of vulnerabilities is generated from `advisories.toml`, so that
//! the check needs no network and always gives the same answer for the same commit. `cargo tree` says what cargo
//! resolves for the server alone, and `cargo check` whether that compiles.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use serde::Deserialize;

use crate::proc::{self, command, output};

/// The version that `deny.toml` is written for.
const VERSION: &str = "0.20.2";

/// Where `cargo-deny` expects the database of `deny.toml`: `db-path`, and a name derived from the address in
/// `db-urls`.
const DATABASE: &str = "target/advisories/advisory-db-3157b0e258782691";

/// Time limit for the installation, and for a check.
pub const LIMIT: Duration = Duration::from_secs(40 * 60);

/// What a server-only build must not contain: the lab, and FUSE.
const NOT_IN_A_SERVER: [&str; 2] = ["landfast-lab", "fuser"];

#[derive(Deserialize)]
struct KnownAdvisories {
    advisory: Vec<Advisory>,
}

/// A vulnerability of some versions of a crate.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advisory {
    id: String,
    package: String,
    date: String,
    patched: Vec<String>,
    #[serde(default)]
    unaffected: Vec<String>,
    title: String,
}

impl Advisory {
    /// In the format of RustSec's files.
    fn document(&self) -> String {
        let list = |all: &[String]| all.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>().join(", ");
        format!(
            "```toml\n[advisory]\nid = {:?}\npackage = {:?}\ndate = {:?}\n\n[versions]\npatched = [{}]\nunaffected = [{}]\n```\n\n# {}\n",
            self.id,
            self.package,
            self.date,
            list(&self.patched),
            list(&self.unaffected),
            self.title
        )
    }
}

pub fn run() -> ExitCode {
    let there = || if possible().is_ok() { Ok(()) } else { proc::run_within(LIMIT, &mut install()) };
    // Uses the target directory of the documentation, which nobody else waits for.
    match server_alone(&proc::documentation()).and_then(|()| there()).and_then(|()| dependencies()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Whether `cargo-deny` is installed. The error says how to install it.
pub fn possible() -> Result<(), String> {
    match program() {
        Some(_) => Ok(()),
        None => Err(format!("needs cargo-deny: cargo install cargo-deny --version {VERSION} --locked")),
    }
}

/// On `PATH`, or where [`install`] puts it.
fn program() -> Option<std::path::PathBuf> {
    let own = proc::target_dir().join("tools/bin/cargo-deny");
    proc::find_program("cargo-deny").or_else(|| own.is_file().then_some(own))
}

/// The command that builds `cargo-deny` from the registry. Without optimisation, because it only runs for seconds.
pub fn install() -> Command {
    let cargo = proc::cargo();
    let mut cargo =
        proc::yielding([&cargo, "install", "cargo-deny", "--version", VERSION, "--locked", "--debug"]);
    cargo.arg("--root").arg(proc::target_dir().join("tools"));
    cargo.env("CARGO_TARGET_DIR", proc::target_dir().join("tools/build"));
    cargo
}

/// Checks licences, sources, bans and known vulnerabilities. What violates `deny.toml` is printed.
pub fn dependencies() -> Result<(), String> {
    make_database(&proc::workspace())?;
    let program = program().ok_or_else(|| "cargo-deny is gone".to_owned())?;
    // `cargo-deny` reads the manifests of all platforms' crates, and does not retry if the network fails. So cargo
    // fetches them before.
    proc::run(&mut command(&proc::cargo(), ["fetch", "--locked"]))?;
    let args = ["--offline", "--locked", "--all-features", "check"];
    proc::run_within(LIMIT, &mut command(&program.to_string_lossy(), args))
}

/// Checks that a server-only build compiles and contains neither the lab nor FUSE, which the whole command does
/// contain. The build is kept in `target`.
pub fn server_alone(target: &Path) -> Result<(), String> {
    let tree = |options: &[&str]| {
        let args =
            ["tree", "--locked", "--package", "landfast-cli", "--edges", "normal,build", "--prefix", "none"];
        output(&mut command(&proc::cargo(), args.iter().chain(options)))
    };
    let (alone, whole) = (tree(&["--no-default-features"])?, tree(&[])?);
    for name in NOT_IN_A_SERVER {
        if has(&alone, name) {
            return Err(format!(
                "landfast-cli without its default features depends on {name}: cargo tree --invert {name}"
            ));
        }
        // Otherwise the comparison would pass with a name that nobody uses.
        if !has(&whole, name) {
            return Err(format!(
                "landfast-cli does not depend on {name} at all: the check would see nothing"
            ));
        }
    }
    // A check is enough: it finds what does not compile, without optimising and linking.
    let args =
        ["check", "--locked", "--package", "landfast-cli", "--bin", "landfast", "--no-default-features"];
    let mut check = command(&proc::cargo(), args);
    check.args(["--quiet", "--message-format", "json-render-diagnostics", "--target-dir"]).arg(target);
    let compiled = compiled(&output(&mut check)?);
    if let Some(name) = NOT_IN_A_SERVER.iter().find(|name| compiled.contains(&name.replace('-', "_"))) {
        return Err(format!("landfast without its default features was compiled with {name}"));
    }
    if !compiled.iter().any(|name| name == "landfast") {
        return Err("cargo check compiled no landfast: the check saw nothing".to_owned());
    }
    println!(
        "without the default features landfast compiles, with neither {}",
        NOT_IN_A_SERVER.join(" nor ")
    );
    Ok(())
}

/// The names of the compiled crates, from the messages of `cargo check`.
fn compiled(messages: &str) -> Vec<String> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let artifacts = messages.filter(|message| message["reason"] == "compiler-artifact");
    artifacts.filter_map(|artifact| Some(artifact["target"]["name"].as_str()?.replace('-', "_"))).collect()
}

fn has(tree: &str, name: &str) -> bool {
    tree.lines().any(|line| line.split(' ').next() == Some(name))
}

fn make_database(workspace: &Path) -> Result<(), String> {
    let file = workspace.join("advisories.toml");
    let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let known: KnownAdvisories = toml::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))?;
    let database = workspace.join(DATABASE);
    let cannot = |e: std::io::Error| format!("{}: {e}", database.display());
    if database.exists() {
        fs::remove_dir_all(&database).map_err(cannot)?;
    }
    for advisory in &known.advisory {
        let dir = database.join("crates").join(&advisory.package);
        fs::create_dir_all(&dir).map_err(cannot)?;
        fs::write(dir.join(format!("{}.md", advisory.id)), advisory.document()).map_err(cannot)?;
    }
    // `cargo-deny` expects the clone of a repository as its database.
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(&database).args(["-c", "user.name=xtask", "-c", "user.email=xtask"]).args(args);
        output(&mut git).map(drop)
    };
    git(&["init", "--quiet"])?;
    git(&["add", "--all"])?;
    git(&["commit", "--quiet", "--message", "advisories.toml"])?;
    fs::write(database.join(".git/FETCH_HEAD"), b"").map_err(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_fault_has_a_number_a_crate_and_versions_without_it() {
        let text = fs::read_to_string(proc::workspace().join("advisories.toml")).expect("the file");
        let known: KnownAdvisories = toml::from_str(&text).expect("TOML");
        let lock = fs::read_to_string(proc::workspace().join("Cargo.lock")).expect("the lock file");
        for a in &known.advisory {
            assert!(a.id.starts_with("RUSTSEC-") && !a.title.is_empty() && !a.patched.is_empty(), "{}", a.id);
            // An advisory on a crate that is no longer used need not be kept.
            assert!(
                lock.contains(&format!("name = \"{}\"", a.package)),
                "{}: {} is no dependency",
                a.id,
                a.package
            );
        }
    }

    #[test]
    fn a_crate_is_known_by_its_whole_name() {
        let tree = "landfast-cli v0.1.0 (/x)\nfuser v0.18.0\nserde v1.0 (*)\n";
        assert!(has(tree, "fuser") && has(tree, "serde") && !has(tree, "fuse") && !has(tree, "landfast"));
    }

    #[test]
    fn what_was_compiled_is_read_from_the_messages_of_cargo() {
        let messages = [
            r#"{"reason":"compiler-artifact","package_id":"path+file:///x#landfast-lab@0.1.0","target":{"kind":["lib"],"name":"landfast_lab"}}"#,
            r#"{"reason":"build-script-executed","package_id":"registry+x#fuser@0.18.0"}"#,
            r#"{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"landfast"},"executable":null}"#,
            r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"proc-macro2"},"fresh":true}"#,
            r#"{"reason":"build-finished","success":true}"#,
        ];
        assert_eq!(compiled(&messages.join("\n")), ["landfast_lab", "landfast", "proc_macro2"]);
    }

    /// The root files of all crates in this repository, including other workspaces, with their text.
    fn crates() -> Vec<(std::path::PathBuf, String)> {
        let workspace = proc::workspace();
        let within = |dir: &Path| {
            let entries = fs::read_dir(dir).expect("a directory").flatten();
            entries.map(|entry| entry.path()).filter(|path| path.join("Cargo.toml").is_file())
        };
        let mut packages: Vec<_> =
            ["", "crates", "peers"].iter().flat_map(|dir| within(&workspace.join(dir))).collect();
        packages.sort();
        let mut all = Vec::new();
        for package in packages {
            let mut text = String::new();
            let mut dirs = vec![package.join("src")];
            while let Some(dir) = dirs.pop() {
                for path in fs::read_dir(&dir).expect("a directory").flatten().map(|entry| entry.path()) {
                    if path.is_dir() {
                        dirs.push(path);
                    } else if path.extension().is_some_and(|ending| ending == "rs") {
                        text.push_str(&fs::read_to_string(&path).expect("a source"));
                    }
                }
            }
            let roots = ["src/lib.rs", "src/main.rs"].map(|root| package.join(root));
            all.extend(roots.into_iter().filter(|root| root.is_file()).map(|root| (root, text.clone())));
        }
        all
    }

    #[test]
    fn unsafe_code_is_forbidden_in_every_crate_that_needs_none() {
        let crates = crates();
        assert!(crates.len() >= 18, "only {} crates were found", crates.len());
        for (root, text) in crates {
            let needs_it = text.lines().any(|line| line.trim_start().starts_with("#[allow(unsafe_code)]"));
            // Crates with unsafe code name the place and deny it everywhere else.
            let wanted = if needs_it { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
            let own = fs::read_to_string(&root).expect("a source");
            assert!(own.lines().any(|line| line == wanted), "{} has no {wanted}", root.display());
        }
    }
}
