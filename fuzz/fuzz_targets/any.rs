//! All targets in one program, so that there is one to link: `LANDFAST_FUZZ` says which.
#![no_main]

use landfast_fuzz::{TARGETS, Target};
use std::sync::LazyLock;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let wanted = std::env::var("LANDFAST_FUZZ").unwrap_or_default();
    match TARGETS.iter().find(|(name, _)| *name == wanted) {
        Some((_, target)) => *target,
        None => {
            let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
            eprintln!("LANDFAST_FUZZ is {wanted:?}; it has to be one of {}", names.join(", "));
            std::process::exit(2);
        }
    }
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
