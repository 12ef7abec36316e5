//! What experiments need of this machine.

use crate::error::{Context, Error, Result};
use std::path::PathBuf;

/// A directory for files of one run, which goes away when dropped.
pub(crate) fn scratch_dir(prefix: &str) -> Result<tempfile::TempDir> {
    let dir = tempfile::Builder::new().prefix(prefix).tempdir();
    dir.context(|| "make a temporary directory".to_owned())
}

pub(crate) fn needs_root() -> Result<()> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(Error::Unable("needs root".into())) }
}

/// This binary, for processes of it.
pub(crate) fn exe() -> Result<PathBuf> {
    std::env::current_exe().context(|| "path of this program".to_owned())
}

/// The threads of a process.
pub(crate) fn threads(pid: u32) -> Result<Vec<u32>> {
    let dir = format!("/proc/{pid}/task");
    let entries = std::fs::read_dir(&dir).context(|| format!("read {dir}"))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}
