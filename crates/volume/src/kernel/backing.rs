//! Finds the files that hold a block device's bytes: those of loop devices, also below partitions and mapped devices.

use std::path::{Path, PathBuf};

use crate::limits::STACKED_MAX;

/// The files that hold a block device's bytes, according to the system; none if it is a device of its own.
pub(crate) fn files_below((major, minor): (u32, u32)) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Ok(device) = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) {
        collect(&device, 0, &mut found);
    }
    found
}

fn collect(device: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if depth > STACKED_MAX {
        return;
    }
    if let Ok(file) = std::fs::read_to_string(device.join("loop/backing_file")) {
        found.push(PathBuf::from(file.trim_end_matches('\n')));
    }
    if device.join("partition").exists()
        && let Some(whole) = device.parent()
    {
        collect(whole, depth + 1, found);
    }
    for below in std::fs::read_dir(device.join("slaves")).into_iter().flatten().flatten() {
        if let Ok(below) = std::fs::canonicalize(below.path()) {
            collect(&below, depth + 1, found);
        }
    }
}
