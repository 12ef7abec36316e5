//! Programs of this machine.

use crate::error::Result;
use std::path::Path;
use std::process::Command;

/// A word for the shell.
pub(super) fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "'\\''"))
}

/// Runs a script in `dir`; returns what it printed.
/// Errors: It does not end with success.
pub(super) fn shell(kit: &Path, dir: &Path, script: &str) -> Result<String> {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(dir).env("KIT", kit).env("OUT", kit).env("LC_ALL", "C");
    let out = crate::mounts::run(&mut command, "dash")?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Whether a program is installed.
pub(super) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}
