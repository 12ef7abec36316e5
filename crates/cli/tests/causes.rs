//! One cause of many failures is said once, in words, with what to do; what cannot succeed is not sent; the summary is true.

mod common;

use common::{Serving, path, run, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const DIRS: u64 = 30;
const FILES: u64 = 20;

fn shell(script: &str, dir: &Path) {
    let done = Command::new("bash").args(["-ec", script]).current_dir(dir).status().expect("a shell");
    assert!(done.success(), "{script}");
}

/// An archive of a tree that belongs to somebody: 31 directories, 600 files, and one that has its owner's rights.
fn archive(dir: &Path) -> PathBuf {
    shell(
        &format!(
            "umask 022
            mkdir tree
            for d in $(seq {DIRS}); do
                mkdir tree/d$d
                for f in $(seq {FILES}); do echo $d $f > tree/d$d/f$f; done
            done
            echo x > tree/suid
            chmod 640 tree/*/f*
            chmod 750 tree/d*
            chown -R 1234:1234 tree
            chmod 4755 tree/suid
            tar -cf tree.tar tree"
        ),
        dir,
    );
    dir.join("tree.tar")
}

/// Exports `exported` of a directory with these options.
fn exported(dir: &Path, options: &str) -> Serving {
    let at = dir.join("exported");
    fs::create_dir(&at).expect("a directory");
    fs::set_permissions(&at, fs::Permissions::from_mode(0o777)).expect("a mode");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n\n[[export]]\npath = \"{}\"\nname = \"/e\"\ndurability = \"sync\"\n\
         clients = [{{ from = \"127.0.0.1\", options = [{options}] }}]\n",
        path(&at)
    );
    fs::write(dir.join("exports.toml"), text).expect("a file");
    Serving::configured(&dir.join("exports.toml"))
}

/// What it counts, and what it says beside that.
fn extracted(archive: &Path, url: &str) -> (Value, String) {
    let o = run(&["untar", "--json", path(archive), url]);
    assert_eq!(o.status.code(), Some(1), "{}", stderr(&o));
    (serde_json::from_str(&stdout(&o)).expect("JSON"), stderr(&o))
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_destination_that_is_read_only() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let archive = archive(dir.path());
    let server = exported(dir.path(), "\"insecure\"");
    for version in ["4.2", "4.1", "4.0", "3"] {
        let (report, said) = extracted(&archive, &format!("{}e?version={version}", server.url));
        assert_eq!(said.matches("Read-only file system").count(), 1, "{version}: {said}");
        assert!(said.lines().count() <= 3 && !said.contains("NFS4ERR"), "{version}: {said}");
        assert!(
            report["stopped"].as_str().is_some_and(|why| why.contains("read-only")),
            "{version}: {report}"
        );
        assert_eq!(
            (&report["files"], &report["dirs"], &report["incomplete"]),
            (&0.into(), &0.into(), &0.into())
        );
        assert!(report["rpcs"].as_u64().is_some_and(|n| n < 60), "{version}: {report}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_server_on_which_root_is_nobody() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let archive = archive(dir.path());
    let server = exported(dir.path(), "\"rw\", \"insecure\"");
    let at = dir.path().join("exported/tree");
    for version in ["4.2", "4.1", "4.0", "3"] {
        let (report, said) = extracted(&archive, &format!("{}e?version={version}", server.url));
        // Each member is there, and none belongs to whom it should.
        let all = DIRS * FILES + DIRS + 2;
        assert_eq!(report["files"], DIRS * FILES + 1, "{version}: {report}");
        assert_eq!(report["dirs"], DIRS + 1, "{version}: {report}");
        assert_eq!((&report["incomplete"], &report["failures"]), (&all.into(), &all.into()), "{version}");
        assert!(said.lines().count() == 2 && !said.contains("NFS4ERR"), "{version}: {said}");
        assert!(
            said.contains("--no-same-owner") && said.contains(&format!("{} more", all - 1)),
            "{version}: {said}"
        );
        let meta = |name: &str| fs::metadata(at.join(name)).expect("it is there");
        for (name, mode) in [("d1", 0o750), ("d7/f3", 0o640), ("suid", 0o755)] {
            assert_eq!(meta(name).mode() & 0o7777, mode, "{version}: {name}");
            assert_ne!(meta(name).uid(), 1234);
        }
        let of_tree = fs::metadata(dir.path().join("tree/d1")).expect("it is there");
        assert_eq!(meta("d1").mtime(), of_tree.mtime(), "{version}");
        fs::remove_dir_all(&at).expect("removed");
    }
    // As it says.
    let o = run(&["untar", "--no-same-owner", path(&archive), &format!("{}e", server.url)]);
    assert!(o.status.success(), "{}", stderr(&o));
}

/// `cp` tells a lost owner once as well; its names are all told with `-v`.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_copy_to_a_server_on_which_root_is_nobody() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    archive(dir.path());
    let tree = dir.path().join("tree");
    let server = exported(dir.path(), "\"rw\", \"insecure\"");
    let all = DIRS * FILES + DIRS + 2;
    for version in ["4.2", "4.1", "4.0", "3"] {
        let url = format!("{}e/copy?version={version}", server.url);
        let o = run(&["cp", "-rp", path(&tree), &url]);
        let said = stderr(&o);
        assert_eq!(o.status.code(), Some(1), "{version}: {said}");
        assert!(said.lines().count() == 2 && !said.contains("NFS4ERR"), "{version}: {said}");
        let (first, more) = said.split_once('\n').expect("two lines");
        assert!(first.starts_with("cp: failed to preserve attributes of 'nfs://"), "{version}: {first}");
        assert!(
            first.contains("--no-preserve=ownership") && more.contains(&format!("{} more", all - 1)),
            "{version}: {said}"
        );
        let o = run(&["cp", "-rpv", path(&tree), &url]);
        assert_eq!(stderr(&o).matches("failed to preserve attributes of 'nfs://").count() as u64, all);
        assert!(run(&["rm", "-r", &url]).status.success());
        let o = run(&["sync-tree", path(&tree), &url]);
        let said = stderr(&o);
        assert_eq!(o.status.code(), Some(1), "{version}: {said}");
        assert!(said.lines().count() == 2 && !said.contains("NFS4ERR"), "{version}: {said}");
        assert!(
            said.contains("--no-owner") && said.contains(&format!("{} more", all - 1)),
            "{version}: {said}"
        );
        assert!(run(&["rm", "-r", &url]).status.success());
    }
    // As it says.
    let o = run(&["sync-tree", "--no-owner", path(&tree), &format!("{}e/copy", server.url)]);
    assert!(o.status.success(), "{}", stderr(&o));
    assert!(run(&["rm", "-r", &format!("{}e/copy", server.url)]).status.success());
    let o = run(&["cp", "-rp", "--no-preserve=ownership", path(&tree), &format!("{}e/copy", server.url)]);
    assert!(o.status.success(), "{}", stderr(&o));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_directory_that_one_may_not_write_to() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let archive = archive(dir.path());
    let server = exported(dir.path(), "\"rw\", \"insecure\"");
    fs::set_permissions(dir.path().join("exported"), fs::Permissions::from_mode(0o755)).expect("a mode");
    let (report, said) = extracted(&archive, &format!("{}e", server.url));
    assert_eq!((&report["files"], &report["dirs"], &report["incomplete"]), (&0.into(), &0.into(), &0.into()));
    assert_eq!(said.matches("Permission denied").count(), 1, "{said}");
    assert!(said.lines().count() == 2 && said.contains("root_squash"), "{said}");
}

/// A filesystem in memory that ends with the test.
struct Small(PathBuf);

impl Small {
    fn of(dir: &Path, kib: u32) -> Small {
        let at = dir.join("small");
        shell(&format!("mkdir small; mount -t tmpfs -o size={kib}k none small"), dir);
        Small(at)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_disk_that_is_full() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let archive = archive(dir.path());
    for version in ["4.2", "3"] {
        let small = Small::of(dir.path(), 300);
        let server = Serving::with(&small.0, &["--durability", "sync"]);
        let at = if version == "3" { path(&small.0).trim_start_matches('/') } else { "" };
        let (report, said) = extracted(&archive, &format!("{}{at}?version={version}", server.url));
        assert!(said.matches("No space left on device").count() <= 2, "{version}: {said}");
        assert!(said.lines().count() <= 4 && !said.contains("NFS4ERR"), "{version}: {said}");
        assert!(
            report["stopped"].as_str().is_some_and(|why| why.contains("no space left")),
            "{version}: {report}"
        );
        // The calls of version 3 are single ones.
        let bound = if version == "3" { 1_500 } else { 600 };
        assert!(report["rpcs"].as_u64().is_some_and(|n| n < bound), "{version}: {report}");
        // What is counted is there whole.
        let found =
            Command::new("find").arg(small.0.join("tree")).args(["-type", "f", "-size", "+0"]).output();
        let found = found.expect("find").stdout.iter().filter(|b| **b == b'\n').count() as u64;
        assert!(
            report["files"].as_u64().is_some_and(|n| n > 0 && n <= found),
            "{version}: {report}, {found} files"
        );
        // The others say it once as well, and what to do.
        let url = format!("{}{at}/again?version={version}", server.url);
        for command in [&["cp", "-r"][..], &["sync-tree"]] {
            assert!(run(&["rm", "-rf", &url, &url.replace("/again", "/tree")]).status.success());
            let o = run(&[command, &[path(&dir.path().join("tree")), &url]].concat());
            let said = stderr(&o);
            assert_eq!(o.status.code(), Some(1), "{version}: {said}");
            assert!(said.matches("make room on the server").count() >= 1, "{version}: {said}");
            assert!(said.lines().count() <= 4 && !said.contains("NFS4ERR"), "{version}: {said}");
        }
        drop(server);
        drop(small);
        fs::remove_dir(dir.path().join("small")).expect("removed");
    }
}
