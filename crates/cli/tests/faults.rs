//! Disks that fail while they have power, through the binary: nothing is acknowledged afterwards, nothing acknowledged is lost, and
//! the check that says so is one that finds losses where there are some.

mod common;

use common::{landfast, root, run, stderr, stdout};
use std::path::Path;

/// Whether disks can be emulated here; says so when they cannot.
fn able() -> bool {
    if !Path::new("/dev/fuse").exists() || !Path::new("/dev/loop-control").exists() {
        println!("skipped: needs FUSE and loop devices");
        return false;
    }
    root()
}

fn has(fs: &str) -> bool {
    let there = ["/sbin", "/usr/sbin", "/bin", "/usr/bin"]
        .iter()
        .any(|d| Path::new(d).join(format!("mkfs.{fs}")).exists());
    if !there {
        println!("skipped on {fs}: needs mkfs.{fs}");
    }
    there
}

#[test]
fn every_fault_on_ext4() {
    if !able() || !has("ext4") {
        return;
    }
    let o = run(&["lab", "faults", "--seed", "5"]);
    assert_eq!(o.status.code(), Some(0), "{}{}", stdout(&o), stderr(&o));
    println!("{}", stdout(&o));
}

#[test]
fn a_data_disk_that_fails_on_the_other_filesystems() {
    if !able() {
        return;
    }
    for fs in ["xfs", "btrfs"].into_iter().filter(|fs| has(fs)) {
        let o = run(&["lab", "faults", "--fs", fs, "--fault", "data-write", "--fault", "data-flush"]);
        assert_eq!(o.status.code(), Some(0), "{fs}: {}{}", stdout(&o), stderr(&o));
        println!("{}", stdout(&o));
    }
}

#[test]
fn an_error_that_is_taken_for_success_is_found_out() {
    // Deliberate bugs are in debug builds only.
    if !able() || !has("ext4") || !cfg!(debug_assertions) {
        return;
    }
    let o = landfast()
        .args(["lab", "faults", "--fault", "log-flush-once"])
        .env("LANDFAST_BUG", "flush-error-ignored")
        .output()
        .expect("it runs");
    assert_eq!(o.status.code(), Some(1), "{}{}", stdout(&o), stderr(&o));
    assert!(stdout(&o).contains("it is not noticed"), "{}", stdout(&o));
}
