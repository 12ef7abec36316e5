//! Power cuts through the binary: what is acknowledged with the log survives them, and the check that says so is one
//! that finds losses where there are some.

mod common;

use common::{emulates_disks, makes, run, stderr, stdout};

fn cuts(fs: &str, workload: &str, durability: &str, how: &[&str]) -> (Option<i32>, String) {
    let what = ["--fs", fs, "--workload", workload, "--durability", durability];
    let o = run(&[&["lab", "powercut", "--seed", "3"][..], how, &what[..]].concat());
    (o.status.code(), format!("{}{}", stdout(&o), stderr(&o)))
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_the_log_acknowledges_survives() {
    if !emulates_disks() {
        return;
    }
    // `cargo xtask powercut` takes each workload to each filesystem.
    let pairs = [
        ("ext4", "mixed"),
        ("ext4", "v3"),
        ("xfs", "overwrite"),
        ("btrfs", "untar"),
        ("btrfs", "serial"),
        ("ext4", "resume"),
        ("xfs", "copy"),
    ];
    for (fs, workload) in pairs.into_iter().filter(|(fs, _)| makes(fs)) {
        let (status, said) = cuts(fs, workload, "log", &["--cuts", "2"]);
        assert_eq!(status, Some(0), "{fs}, {workload}: {said}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_is_lost_without_a_log_is_found_out() {
    if !emulates_disks() {
        return;
    }
    // Some cuts come just after the kernel has written everything out by itself.
    for workload in ["mixed", "untar"] {
        let (status, said) = cuts("ext4", workload, "unsafe", &["--cuts", "12", "--until-wrong"]);
        assert_eq!(status, Some(1), "{workload}: {said}");
        assert!(said.contains("missing"), "{workload}: {said}");
    }
}
