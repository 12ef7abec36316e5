//! A client that is not ours: libnfs's tools (Debian's libnfs-utils) with NFS versions 3 and 4.0, without a port mapper.
//!
//! With version 4, libnfs 4.0.0 writes at most what fits with the rest of the call into its 4 KiB encoding buffer: `nfs-cp` of
//! a larger file says "Failed to write to dest file" and sends no WRITE at all, to any server. So what goes up with version 4
//! here is smaller, and what comes down is not.

mod common;

use common::{Serving, path, stderr, stdout};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Whether the tools are here; says so when not.
fn tools() -> bool {
    let there = |tool: &str| {
        Command::new("sh")
            .args(["-c", &format!("command -v {tool}")])
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    let all = ["nfs-ls", "nfs-cp", "nfs-cat"].into_iter().all(there);
    if !all {
        println!("skipped: needs Debian's libnfs-utils");
    }
    all
}

/// A server and how libnfs reaches it.
struct Served {
    server: Serving,
    version: u32,
    volume: std::path::PathBuf,
}

impl Served {
    fn new(dir: &Path, version: u32) -> Served {
        let volume = dir.join("volume");
        fs::create_dir(&volume).expect("a directory");
        let server = Serving::start(&volume, &dir.join("log"));
        Served { server, version, volume }
    }

    /// The URL of a path in the export, which is mounted by its own path.
    fn url(&self, at: &str) -> String {
        let port = self.server.url.trim_end_matches('/').rsplit(':').next().expect("a port");
        format!(
            "nfs://127.0.0.1{}/{at}?version={}&nfsport={port}&mountport={port}",
            path(&self.volume),
            self.version
        )
    }
}

fn tool(args: &[&str]) -> Output {
    let out = Command::new(args[0]).args(&args[1..]).stdin(Stdio::null()).output().expect("the tool runs");
    assert!(out.status.success(), "{args:?}: {}{}", stdout(&out), stderr(&out));
    out
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_nfs_cp_puts_there_nfs_ls_shows_and_nfs_cat_reads_with_version_3() {
    put_show_read(3, 3_000_001);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_nfs_cp_puts_there_nfs_ls_shows_and_nfs_cat_reads_with_version_4() {
    put_show_read(4, 3_001);
}

/// A file of `up` bytes is put there, shown, and read in both ways; and one of 3 MB that was there is read in both ways.
fn put_show_read(version: u32, up: u32) {
    if !tools() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let served = Served::new(dir.path(), version);
    let bytes = |n: u32| -> Vec<u8> { (0..n).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect() };
    let data = bytes(up);
    let local = dir.path().join("local");
    fs::write(&local, &data).expect("a file");
    tool(&["nfs-cp", path(&local), &served.url("copy")]);
    assert!(fs::read(served.volume.join("copy")).expect("the copy") == data, "on the server's disk");
    fs::create_dir(served.volume.join("sub")).expect("a directory");
    let inner = bytes(3_000_007);
    fs::write(served.volume.join("sub/inner"), &inner).expect("a file");
    for (name, expected) in [("copy", &data), ("sub/inner", &inner)] {
        assert!(tool(&["nfs-cat", &served.url(name)]).stdout == *expected, "{name}: read");
        let back = dir.path().join(format!("back-of-{}", expected.len()));
        tool(&["nfs-cp", &served.url(name), path(&back)]);
        assert!(fs::read(&back).expect("the file") == *expected, "{name}: copied back");
    }
    let listed = stdout(&tool(&["nfs-ls", "-R", &served.url("")]));
    for entry in ["copy", "sub", "inner"] {
        assert!(listed.lines().any(|l| l.trim_end().ends_with(entry)), "no {entry} in: {listed}");
    }
    for size in [up.to_string(), "3000007".to_owned()] {
        assert!(listed.contains(&size), "no {size} in: {listed}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_long_directory_is_listed_whole_with_version_3() {
    long_directory(3);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_long_directory_is_listed_whole_with_version_4() {
    long_directory(4);
}

fn long_directory(version: u32) {
    if !tools() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let served = Served::new(dir.path(), version);
    for n in 0..2500 {
        fs::write(served.volume.join(format!("entry-{n:04}")), "").expect("a file");
    }
    let listed = stdout(&tool(&["nfs-ls", &served.url("")]));
    let mut names: Vec<&str> = listed.lines().filter_map(|l| l.split_whitespace().last()).collect();
    names.retain(|n| n.starts_with("entry-"));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 2500);
    let made = fs::metadata(served.volume.join("entry-0000")).expect("there");
    assert_eq!(made.uid(), 0);
}
