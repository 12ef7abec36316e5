//! Running other programs: the command is shown, its output is not hidden, its failure is one line.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The workspace's root directory.
pub fn workspace() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Where cargo puts what it builds, and where xtask keeps what it caches.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => workspace().join(dir),
        None => workspace().join("target"),
    }
}

/// The cargo that runs us, so that the toolchain is the same one.
pub fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// The release binary of the product.
pub fn landfast() -> PathBuf {
    target_dir().join("release/landfast")
}

/// Whether this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The path of a program on `PATH`, or in the system directories that a user's `PATH` may lack.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// A command, with its arguments, that runs in the workspace's root.
pub fn command<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(workspace()).stdin(Stdio::null());
    command
}

/// The command line as a person would type it.
fn show(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        let arg = arg.to_string_lossy();
        if arg.contains([' ', '\'', '"', '$', '\n']) {
            line.push_str(&format!("{arg:?}"))
        } else {
            line.push_str(&arg)
        }
    }
    line
}

/// Runs a command with its output on ours; an error is a line that says which command and how it ended.
pub fn run(command: &mut Command) -> Result<(), String> {
    eprintln!("+ {}", show(command));
    let status = command.status().map_err(|e| format!("{}: {e}", show(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", show(command))) }
}

/// Runs a command and returns its standard output; its standard error is part of the error.
pub fn output(command: &mut Command) -> Result<String, String> {
    let out = command.output().map_err(|e| format!("{}: {e}", show(command)))?;
    if out.status.success() {
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    } else {
        let why = String::from_utf8_lossy(&out.stderr);
        Err(format!("{}: {}: {}", show(command), out.status, why.trim()))
    }
}
