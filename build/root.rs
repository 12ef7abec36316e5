//! Sets `cfg(root)` where root builds, so that a test that needs root is reported as ignored for everybody else.
//!
//! Cargo does not run this again when only the user changes. Tests that were built by root and are run by somebody else fail:
//! `cargo clean -p` of the crate builds them anew.

use std::os::unix::fs::MetadataExt;

fn main() {
    println!("cargo::rerun-if-changed=../../build/root.rs");
    println!("cargo::rerun-if-env-changed=USER");
    println!("cargo::rerun-if-env-changed=HOME");
    println!("cargo::rustc-check-cfg=cfg(root)");
    if std::fs::metadata("/proc/self").is_ok_and(|this| this.uid() == 0) {
        println!("cargo::rustc-cfg=root");
    }
}
