//! Disks that fail while they have power, through the binary: nothing is acknowledged afterwards, nothing acknowledged is lost, and
//! the check that says so is one that finds losses where there are some.

mod common;

use common::{emulates_disks, landfast, makes, run, stderr, stdout};

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn every_fault_on_ext4() {
    if !emulates_disks() || !makes("ext4") {
        return;
    }
    let o = run(&["lab", "faults", "--seed", "5"]);
    assert_eq!(o.status.code(), Some(0), "{}{}", stdout(&o), stderr(&o));
    println!("{}", stdout(&o));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_data_disk_that_fails_on_the_other_filesystems() {
    if !emulates_disks() {
        return;
    }
    for fs in ["xfs", "btrfs"].into_iter().filter(|fs| makes(fs)) {
        let faults = ["data-write", "data-flush", "data-unwritten"].map(|name| ["--fault", name]);
        let o = run(&[&["lab", "faults", "--fs", fs], faults.as_flattened()].concat());
        assert_eq!(o.status.code(), Some(0), "{fs}: {}{}", stdout(&o), stderr(&o));
        println!("{}", stdout(&o));
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_error_that_is_taken_for_success_is_found_out() {
    // Deliberate bugs are in debug builds only.
    if !emulates_disks() || !makes("ext4") || !cfg!(debug_assertions) {
        return;
    }
    for (bug, fault, said) in [
        ("flush-error-ignored", "log-flush-once", "it is not noticed"),
        ("write-error-forgotten", "data-unwritten", "succeeds under the verifier of its WRITE"),
    ] {
        let o = landfast()
            .args(["lab", "faults", "--fault", fault])
            .env("LANDFAST_BUG", bug)
            .output()
            .expect("it runs");
        assert_eq!(o.status.code(), Some(1), "{bug}: {}{}", stdout(&o), stderr(&o));
        assert!(stdout(&o).contains(said), "{bug}: {}", stdout(&o));
    }
}
