//! `landfast verify` against Landfast: nothing is lost, whatever version and whoever is killed; what is lost behind the
//! server's back is found, by operation; what is no journal, or another's, is refused.

mod common;

use common::{Serving, landfast, one_line_with, path, run, stderr, stdout};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use tempfile::TempDir;

/// A directory to serve, with a log, and room for journals.
struct Place {
    _dir: TempDir,
    export: PathBuf,
    log: PathBuf,
    journal: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("export")).unwrap();
    Place { export: at("export"), log: at("log"), journal: at("journal"), _dir: dir }
}

impl Place {
    fn serve(&self) -> Serving {
        Serving::with(&self.export, &["--log", path(&self.log), "--log-size", "32M", "--lease", "2s"])
    }

    fn write(&self, url: &str, more: &[&str]) -> Output {
        run(&[&["verify", "write", url, "--journal", path(&self.journal)], more].concat())
    }

    fn check(&self, url: &str, more: &[&str]) -> Output {
        run(&[&["verify", "check", url, "--journal", path(&self.journal), "--wait", "60"], more].concat())
    }

    /// A writer in the background that has acknowledged some operations.
    fn writing(&self, url: &str, more: &[&str]) -> Child {
        let child = landfast()
            .args([&["verify", "write", url, "--journal", path(&self.journal)], more].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let acknowledged = || {
            let text = std::fs::read_to_string(&self.journal).unwrap_or_default();
            text.matches("{\"ack\"").count()
        };
        // The journal is the only one that tells how far it is.
        while acknowledged() < 100 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child
    }
}

fn json(o: &Output) -> serde_json::Value {
    serde_json::from_slice(&o.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", stdout(o), stderr(o)))
}

fn lost(report: &serde_json::Value, kind: &str) -> u64 {
    let rows = report["rows"].as_array().unwrap();
    rows.iter().find(|r| r["kind"] == kind).map_or(0, |r| r["lost"].as_u64().unwrap())
}

/// Every file below `dir` that is one of the run's.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && entry.file_name() != ".landfast" {
                todo.push(entry.path());
            } else if kind.is_file() {
                out.push(entry.path());
            }
        }
    }
    out.sort();
    out
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn every_version_keeps_all_and_the_directory_goes_when_asked() {
    let p = place();
    let server = p.serve();
    for version in ["3", "4.0", "4.1", "4.2"] {
        let url = format!("{}?version={version}", server.url);
        let o = p.write(&url, &["--operations", "400", "--clients", "2", "--seed", "9"]);
        assert_eq!(o.status.code(), Some(0), "{version}: {}", stderr(&o));
        assert!(stdout(&o).contains("400 operations acknowledged"), "{}", stdout(&o));
        // The URL need not say the version again.
        let o = p.check(&server.url, &["--json", "--remove"]);
        let report = json(&o);
        assert_eq!(o.status.code(), Some(0), "{version}: {report:#}");
        assert_eq!((report["nfs"].as_str(), report["acknowledged"].as_u64()), (Some(version), Some(400)));
        assert!(report["checked"].as_u64() > Some(100), "{report:#}");
        assert_eq!(files(&p.export).len(), 0, "{version}");
        std::fs::remove_file(&p.journal).unwrap();
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_server_that_is_killed_loses_nothing_and_the_writer_says_that_it_is_gone() {
    for version in ["3", "4.2"] {
        let p = place();
        let server = p.serve();
        let url = format!("{}?version={version}", server.url);
        let writer = p.writing(&url, &["--clients", "3"]);
        server.end(Signal::KILL);
        let o = writer.wait_with_output().unwrap();
        assert_eq!(o.status.code(), Some(1), "{}", stderr(&o));
        assert!(stdout(&o).starts_with("the server is gone after "), "{}", stdout(&o));
        assert!(stdout(&o).contains("when it is back, run: landfast verify check"), "{}", stdout(&o));
        let server = p.serve();
        let o = p.check(&server.url, &[]);
        assert_eq!(o.status.code(), Some(0), "{version}: {}{}", stdout(&o), stderr(&o));
        assert!(stdout(&o).contains("nothing is lost"), "{}", stdout(&o));
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_pairs_are_told_holds_in_every_version_and_after_a_kill() {
    for version in ["3", "4.0", "4.1", "4.2"] {
        let p = place();
        let server = p.serve();
        let url = format!("{}?version={version}", server.url);
        let writer = p.writing(&url, &["--clients", "1", "--pairs", "4"]);
        server.end(Signal::KILL);
        let o = writer.wait_with_output().unwrap();
        assert_eq!(o.status.code(), Some(1), "{}", stderr(&o));
        let server = p.serve();
        let o = p.check(&server.url, &["--json", "--remove"]);
        let report = json(&o);
        assert_eq!(o.status.code(), Some(0), "{version}: {report:#}");
        let sum = |of: &str| -> u64 {
            report["met"].as_array().unwrap().iter().map(|m| m[of].as_u64().unwrap()).sum()
        };
        assert!(sum("rounds") > 20, "{version}: {report:#}");
        assert_eq!((sum("broken"), &report["unexplained"]["count"]), (0, &0.into()), "{version}: {report:#}");
        assert_eq!(files(&p.export).len(), 0, "{version}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_one_of_a_pair_was_told_and_is_not_so_is_found() {
    let p = place();
    let server = p.serve();
    let meet = ["--pairs", "1", "--meet", "create:create-unchecked", "--operations", "60"];
    let o = p.write(&server.url, &meet);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    let o = p.check(&server.url, &[]);
    assert_eq!(o.status.code(), Some(0), "{}", stdout(&o));
    assert_eq!(server.end(Signal::TERM).0, Some(0));
    let in_pair = |f: &&PathBuf| f.parent().unwrap().ends_with("p0") && !f.ends_with("warm");
    std::fs::remove_file(files(&p.export).iter().find(in_pair).unwrap()).unwrap();
    let server = p.serve();
    let o = p.check(&server.url, &[]);
    assert_eq!(o.status.code(), Some(1), "{}", stdout(&o));
    let said = stdout(&o);
    assert!(said.contains("NOT SO: what one of two clients was told, in 1 of"), "{said}");
    // Either of the two may have made the file that was removed.
    let made = ["OK", "EXIST"].map(|guarded| {
        format!("CREATE guarded was told {guarded}, CREATE unchecked was told OK, but y is not there")
    });
    assert!(made.iter().any(|line| said.contains(line)), "{said}");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn late_commits_are_as_good_as_others() {
    let p = place();
    let server = p.serve();
    for version in ["3", "4.1"] {
        let url = format!("{}?version={version}", server.url);
        let o = p.write(&url, &["--kinds", "create,commit-late", "--operations", "60", "--seed", "4"]);
        assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
        let report = json(&p.check(&server.url, &["--json", "--remove"]));
        let rows = report["rows"].as_array().unwrap();
        let late = rows.iter().find(|r| r["kind"] == "commit-late").unwrap();
        assert!(late["checked"].as_u64() > Some(0), "{report:#}");
        assert_eq!(late["lost"], 0, "{report:#}");
        std::fs::remove_file(&p.journal).unwrap();
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_is_lost_behind_the_servers_back_is_found_by_operation() {
    let p = place();
    let server = p.serve();
    let kinds = ["--kinds", "create,write,mkdir", "--operations", "200", "--seed", "1"];
    let o = p.write(&server.url, &kinds);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    assert_eq!(server.end(Signal::TERM).0, Some(0));

    let all = files(&p.export);
    let full: Vec<&PathBuf> = all.iter().filter(|f| f.metadata().unwrap().len() > 100).collect();
    let [gone, changed, longer] = full[..3] else { panic!("{full:?}") };
    std::fs::remove_file(gone).unwrap();
    let mut data = std::fs::read(changed).unwrap();
    data[10] ^= 1;
    std::fs::write(changed, data).unwrap();
    let mut data = std::fs::read(longer).unwrap();
    data.push(7);
    std::fs::write(longer, data).unwrap();
    std::fs::write(p.export.join("not-ours"), "").unwrap();
    std::fs::write(gone.with_file_name("foreign"), "").unwrap();

    let server = p.serve();
    let o = p.check(&server.url, &["--json"]);
    let report = json(&o);
    assert_eq!(o.status.code(), Some(1), "{report:#}");
    assert_eq!((lost(&report, "create"), lost(&report, "mkdir")), (1, 0), "{report:#}");
    assert!(lost(&report, "write") >= 2, "{report:#}");
    // One file too long, one that nobody made; what stands beside the run's directory is not its business.
    assert_eq!(report["strange"]["count"], 2, "{report:#}");
    let o = p.check(&server.url, &[]);
    assert_eq!(o.status.code(), Some(1));
    let name = gone.strip_prefix(&p.export).unwrap().to_str().unwrap().to_owned();
    assert!(stdout(&o).contains(&format!("{name}: is missing")), "{}", stdout(&o));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_interrupted_writer_ends_cleanly() {
    let p = place();
    let server = p.serve();
    let writer = p.writing(&server.url, &[]);
    kill_process(Pid::from_child(&writer), Signal::INT).unwrap();
    let o = writer.wait_with_output().unwrap();
    assert!(stdout(&o).starts_with("interrupted after "), "{}{}", stdout(&o), stderr(&o));
    assert_eq!(o.status.code(), Some(0));
    let report = json(&p.check(&server.url, &["--json"]));
    assert_eq!((report["ended"].as_str(), report["in_doubt"].as_u64()), (Some("interrupted"), Some(0)));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn journals_that_are_torn_are_used_and_others_are_refused_by_name() {
    let p = place();
    let server = p.serve();
    let url = server.url.clone();
    assert_eq!(p.write(&url, &["--operations", "100"]).status.code(), Some(0));

    let o = p.write(&url, &["--operations", "1"]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &[path(&p.journal), "it exists"]);

    let whole = std::fs::read(&p.journal).unwrap();
    let places = |word: &[u8]| -> Vec<usize> {
        whole.windows(word.len()).enumerate().filter(|w| w.1 == word).map(|w| w.0).collect()
    };
    // In the middle of the last acknowledgement: the operation is in doubt.
    let (intents, acks) = (places(b"{\"intent\""), places(b"{\"ack\""));
    std::fs::write(&p.journal, &whole[..acks[99] + 10]).unwrap();
    let report = json(&p.check(&url, &["--json"]));
    assert_eq!(
        (&report["acknowledged"], &report["in_doubt"], &report["lost"]),
        (&99.into(), &1.into(), &0.into())
    );
    assert!(report["journal_torn"].as_u64() > Some(10), "{report:#}");

    let mut damaged = whole.clone();
    damaged[intents[50] + 15] ^= 1;
    std::fs::write(&p.journal, damaged).unwrap();
    let o = p.check(&url, &[]);
    assert_eq!(o.status.code(), Some(2), "{}", stdout(&o));
    one_line_with(&stderr(&o), &[path(&p.journal), "it is damaged at line"]);

    std::fs::write(&p.journal, "something else\n").unwrap();
    let o = p.check(&url, &[]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["no journal of `landfast verify write`"]);

    std::fs::write(&p.journal, &whole).unwrap();
    std::fs::create_dir(p.export.join("other")).unwrap();
    let o = p.check(&format!("{url}other"), &[]);
    assert_eq!(o.status.code(), Some(2), "{}", stdout(&o));
    one_line_with(&stderr(&o), &["it was written to another directory"]);
    let o = p.check(&format!("{url}?version=3"), &[]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["written over NFS 4.2"]);
    let o = p.check(&format!("{url}nowhere"), &[]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["/nowhere", "NFS4ERR_NOENT"]);
    drop(server);
    let o = run(&["verify", "check", &url, "--journal", path(&p.journal), "--wait", "0"]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["refused"]);
    let o = run(&["verify", "write", "nfs://127.0.0.1/?version=5", "--journal", "/nowhere/j"]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["`5` is no version of NFS"]);
}
