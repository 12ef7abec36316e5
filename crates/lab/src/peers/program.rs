//! A client that is a program: it copies the files of a local tree into a directory of a server, with so many files in flight,
//! and begins none after so many seconds.
//!
//! `PROGRAM --ways` prints its [`Mode`]s; `PROGRAM nfs://HOST:PORT/PATH WAY DIR IN_FLIGHT SECONDS` prints one JSON object, [`Pace`].
//! [`KNOWN`] are such.

use crate::error::{Context, Error, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Those in `peers/`, and the Debian packages that they need to be built.
pub const KNOWN: [(&str, Option<&str>); 2] = [
    ("nfs-rs", None),
    ("vnfs", Some("cmake, clang, libclang-dev, liburcu-dev, libkrb5-dev, libtirpc-dev, pkg-config")),
];

/// How far a client came.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Pace {
    pub files: u64,
    /// In this time.
    pub seconds: f64,
}

/// How it is to go about it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Mode {
    /// NFS's version, behind which a word of the program's own may stand.
    pub name: String,
    /// Files in flight; calls in flight if a call has many files.
    pub at_a_time: usize,
    /// A call has many files.
    #[serde(default)]
    pub vectored: bool,
}

impl Mode {
    /// Whether it is of NFSv3, where an export is mounted by its own path.
    pub fn is_v3(&self) -> bool {
        self.name.split(' ').next() == Some("3")
    }
}

/// What a program is called: its file's name, without what all peers begin with.
pub fn name(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix("landfast-peer-").unwrap_or(&name).to_owned()
}

pub fn ways(program: &Path) -> Result<Vec<Mode>> {
    if !program.exists() {
        return Err(Error::Missing(PathBuf::from(program)));
    }
    said(program, Command::new(program).arg("--ways"))
}

/// Copies what is in `tree` to `url`; no further file is begun after `budget`.
pub fn copy(program: &Path, url: &str, tree: &Path, way: &Mode, budget: Duration) -> Result<Pace> {
    let mut command = Command::new(program);
    command
        .args([url, &way.name])
        .arg(tree)
        .args([way.at_a_time.to_string(), budget.as_secs_f64().to_string()]);
    said(program, &mut command)
}

fn said<T: DeserializeOwned>(program: &Path, command: &mut Command) -> Result<T> {
    let out = command.stdin(Stdio::null()).output().context(|| format!("run {}", program.display()))?;
    if !out.status.success() {
        return Err(Error::Tool {
            command: format!("{command:?}"),
            status: out.status.to_string(),
            stderr: String::from_utf8_lossy(&out.stderr).chars().take(2000).collect(),
        });
    }
    serde_json::from_slice(&out.stdout)
        .map_err(|e| Error::Protocol(format!("{} printed something else: {e}", program.display())))
}
