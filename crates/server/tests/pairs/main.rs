//! Answers that rest on what another client has done and nothing has flushed yet: each act after each other one, on one directory, in each
//! version, with a log and without, while the flush that the first one needs is held; and what is left of it after power cuts.
//!
//! A program of its own: a hold is the process's, and so are the figures of how often it came by a point.

// There are no points to hold in other builds.
#![cfg_attr(not(debug_assertions), allow(dead_code))]

mod acts;
#[path = "../common/mod.rs"]
mod common;
mod doc;
#[allow(dead_code)] // it serves others, too
#[path = "../../../volume/tests/common/image.rs"]
mod image;
#[cfg(debug_assertions)]
mod run;
mod say;
mod tree;
#[path = "../v40/mod.rs"]
mod v40;

#[cfg(debug_assertions)]
mod tests {
    use crate::acts::Version::{V3, V40, V41, V42};
    use crate::image::Kernel::{Btrfs, Ext4, Xfs};
    use crate::run::every_pair;
    use landfast_volume::Durability::{Log, Sync};

    /// In a process of its own, since that is what a bug is chosen for.
    #[test]
    #[cfg_attr(not(root), ignore = "needs root")]
    fn answers_that_wait_for_nobody_are_seen() {
        for test in ["tests::v3_with_a_log_on_ext4", "tests::v3_in_sync_on_xfs"] {
            let program = std::env::current_exe().expect("this program");
            let mut command = std::process::Command::new(program);
            command.args(["--exact", test, "--nocapture"]).env("LANDFAST_BUG", "answer-unflushed");
            let out = command.output().expect("it runs");
            let text = [out.stdout, out.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            if text.contains("skipped: ") {
                return;
            }
            let seen = text.contains("answered before the first's flush had ended");
            assert!(seen && !out.status.success(), "{test} sees nothing of it:\n{text}");
        }
    }

    #[test]
    #[cfg_attr(not(root), ignore = "needs root")]
    fn v3_with_a_log_on_ext4() {
        every_pair(V3, Log, Ext4);
    }

    #[test]
    #[cfg_attr(not(root), ignore = "needs root")]
    fn v40_with_a_log_on_xfs() {
        every_pair(V40, Log, Xfs);
    }

    #[test]
    #[cfg_attr(not(root), ignore = "needs root")]
    fn v41_with_a_log_on_btrfs() {
        every_pair(V41, Log, Btrfs);
    }

    #[test]
    #[cfg_attr(not(root), ignore = "needs root")]
    fn v42_with_a_log_on_xfs() {
        every_pair(V42, Log, Xfs);
    }

    #[test]
    #[cfg_attr(not(root), ignore = "needs root")]
    fn v3_in_sync_on_xfs() {
        every_pair(V3, Sync, Xfs);
    }

    #[test]
    #[cfg_attr(not(root), ignore = "needs root")]
    fn v40_in_sync_on_ext4() {
        every_pair(V40, Sync, Ext4);
    }

    #[test]
    #[cfg_attr(not(root), ignore = "needs root")]
    fn v41_in_sync_on_ext4() {
        every_pair(V41, Sync, Ext4);
    }

    #[test]
    #[cfg_attr(not(root), ignore = "needs root")]
    fn v42_in_sync_on_btrfs() {
        every_pair(V42, Sync, Btrfs);
    }
}
