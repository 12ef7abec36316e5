//! What experiments need of this machine.

use crate::error::{Context, Error, Result};
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
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

/// A hash of this binary: another build has another one.
pub(crate) fn program() -> Result<String> {
    // Also when another file has its name now.
    let what = || "read this program".to_owned();
    let mut file = std::fs::File::open("/proc/self/exe").context(what)?;
    let mut hasher = DefaultHasher::new();
    let mut part = vec![0; 1 << 20];
    loop {
        match file.read(&mut part).context(what)? {
            0 => break,
            n => hasher.write(&part[..n]),
        }
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// The threads of a process.
pub(crate) fn threads(pid: u32) -> Result<Vec<u32>> {
    let dir = format!("/proc/{pid}/task");
    let entries = std::fs::read_dir(&dir).context(|| format!("read {dir}"))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}
