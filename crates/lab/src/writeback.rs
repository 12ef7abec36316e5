//! Write-back that fails behind a server's back: blocks of files that were written UNSTABLE cannot be written, somebody else
//! on the machine is told so, and the pages leave the cache.
//!
//! Linux tells each open file of a write-back error once, and one that is opened later only if nobody has been told. So a
//! server that closes a file between WRITE and COMMIT and opens it again learns nothing, finds the older data, and must have
//! kept what would have told it.

use crate::error::{Context, Result};
use crate::mounts;
use crate::rig::Rig;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// All regular files below `dir`.
fn files(dir: &Path, out: &mut Vec<PathBuf>) -> Result<()> {
    let what = || format!("read {}", dir.display());
    for entry in std::fs::read_dir(dir).context(what)? {
        let entry = entry.context(what)?;
        let kind = entry.file_type().context(what)?;
        // The server's own are not what clients write.
        if kind.is_dir() && entry.file_name() != ".landfast" {
            files(&entry.path(), out)?;
        } else if kind.is_file() {
            out.push(entry.path());
        }
    }
    Ok(())
}

/// Where on the disk a file's blocks lie, in bytes: first and one behind the last of each extent.
fn extents(file: &Path) -> Result<Vec<(u64, u64)>> {
    let told = mounts::run(Command::new("filefrag").args(["-b1", "-v"]).arg(file), "e2fsprogs")?;
    // `   0:        0..   16383:   34816..   51199:  16384:             last,eof`
    let extent = |line: &str| -> Option<(u64, u64)> {
        let mut fields = line.split(':');
        fields.next()?.trim().parse::<u32>().ok()?;
        let physical = fields.nth(1)?;
        // Blocks that have no place yet.
        if line.contains("delalloc") || line.contains("unknown") {
            return None;
        }
        let (from, to) = physical.split_once("..")?;
        Some((from.trim().parse().ok()?, to.trim().parse::<u64>().ok()? + 1))
    };
    Ok(String::from_utf8_lossy(&told).lines().filter_map(extent).collect())
}

/// Makes the write-back of everything fail that is written to files below the export and has a place on the disk; what fails
/// is told to another process, and leaves the cache. Afterwards the disk is whole again. How many files' write-back failed.
/// Errors: What keeps it from working; not what it is for.
pub fn fails(rig: &Rig) -> Result<u32> {
    let mut all = Vec::new();
    files(&rig.export(), &mut all)?;
    let mut failed = 0;
    for path in all {
        let places = extents(&path)?;
        if places.is_empty() {
            continue;
        }
        let words: Vec<String> =
            places.iter().map(|(from, to)| format!("fail=write:from={from}:to={to}")).collect();
        let file = File::open(&path).context(|| format!("open {}", path.display()))?;
        rig.control_data(&words.join(" "))?;
        let told = file.sync_data();
        rig.control_data("mend")?;
        failed += u32::from(told.is_err());
        fadvise(&file, 0, None, Advice::DontNeed)
            .map_err(std::io::Error::from)
            .context(|| format!("drop {} from the cache", path.display()))?;
    }
    Ok(failed)
}
