//! A client that is a program: it copies the files of a local tree into a directory of a server, with so many files under way,
//! and begins none after so many seconds.
//!
//! `PROGRAM nfs://HOST:PORT/PATH VERSION DIR IN_FLIGHT SECONDS` prints one JSON object, [`Pace`]. `peers/nfs-rs` is one.

use crate::error::{Context, Error, Result};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How far a client came.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Pace {
    /// Files that it has written.
    pub files: u64,
    /// In this time.
    pub seconds: f64,
}

/// How it is to go about it.
#[derive(Debug, Clone, Copy)]
pub struct Way<'a> {
    /// NFS's version.
    pub version: &'a str,
    /// Files under way at a time.
    pub in_flight: usize,
    /// After this time no further file is begun.
    pub budget: Duration,
}

/// What a program is called: its file's name, without what all peers begin with.
pub fn name(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix("landfast-peer-").unwrap_or(&name).to_owned()
}

/// Copies what is in `tree` to `url`.
///
/// # Errors
/// No such program, or it failed.
pub fn copy(program: &Path, url: &str, tree: &Path, way: Way<'_>) -> Result<Pace> {
    if !program.exists() {
        return Err(Error::Missing(PathBuf::from(program)));
    }
    let mut command = Command::new(program);
    command.args([url, way.version]).arg(tree);
    command.args([way.in_flight.to_string(), way.budget.as_secs_f64().to_string()]);
    let out = command.stdin(Stdio::null()).output().context(|| format!("run {}", program.display()))?;
    if !out.status.success() {
        return Err(Error::Tool {
            command: format!("{} {url} {}", program.display(), way.version),
            status: out.status.to_string(),
            stderr: String::from_utf8_lossy(&out.stderr).chars().take(2000).collect(),
        });
    }
    serde_json::from_slice(&out.stdout)
        .map_err(|e| Error::Protocol(format!("{} printed something else: {e}", program.display())))
}
