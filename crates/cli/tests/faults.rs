//! Disks that fail while they have power, through the binary: nothing is acknowledged afterwards, nothing acknowledged is lost, and
//! the check that says so is one that finds losses where there are some.

mod common;

use common::{emulates_disks, landfast, makes, run, stderr, stdout};

#[test]
fn every_fault_on_ext4() {
    if !emulates_disks() || !makes("ext4") {
        return;
    }
    let o = run(&["lab", "faults", "--seed", "5"]);
    assert_eq!(o.status.code(), Some(0), "{}{}", stdout(&o), stderr(&o));
    println!("{}", stdout(&o));
}

#[test]
fn a_data_disk_that_fails_on_the_other_filesystems() {
    if !emulates_disks() {
        return;
    }
    for fs in ["xfs", "btrfs"].into_iter().filter(|fs| makes(fs)) {
        let o = run(&["lab", "faults", "--fs", fs, "--fault", "data-write", "--fault", "data-flush"]);
        assert_eq!(o.status.code(), Some(0), "{fs}: {}{}", stdout(&o), stderr(&o));
        println!("{}", stdout(&o));
    }
}

#[test]
fn an_error_that_is_taken_for_success_is_found_out() {
    // Deliberate bugs are in debug builds only.
    if !emulates_disks() || !makes("ext4") || !cfg!(debug_assertions) {
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
