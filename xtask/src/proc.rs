//! Running other programs: the command is shown, its output is not hidden, its failure is one line.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

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

/// Where the documentation is made: in a directory of its own, since cargo builds one thing at a time in each.
pub fn documentation() -> PathBuf {
    target_dir().join("documentation")
}

/// The cargo that runs us, so that the toolchain is the same one.
pub fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

pub fn landfast() -> PathBuf {
    target_dir().join("release/landfast")
}

/// The program with debug assertions.
pub fn debug_landfast() -> PathBuf {
    target_dir().join("debug/landfast")
}

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

/// As [`command`], the first word being the program; it leaves the processors to those who need them. What builds does not hold up
/// what is tested meanwhile.
pub fn yielding<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Command {
    let mut command = command("nice", ["-n", "10"]);
    command.args(words);
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

/// The first success of so many tries with pauses between them, or the last failure.
pub fn tried<T>(
    tries: usize,
    pause: Duration,
    mut run: impl FnMut() -> Result<T, String>,
) -> Result<T, String> {
    let mut result = run();
    for _ in 1..tries {
        let Err(why) = &result else { break };
        println!("once more, in {} s: {why}", pause.as_secs());
        std::thread::sleep(pause);
        result = run();
    }
    result
}

/// As [`run`], but ends the command and everything that it started when it takes longer than `limit`, so that
/// one hanging test is a failure with a name and not a run without an end.
pub fn run_within(limit: Duration, command: &mut Command) -> Result<(), String> {
    eprintln!("+ {}", show(command));
    wait_within(limit, command, 0)
}

fn wait_within(limit: Duration, command: &mut Command, wanted: i32) -> Result<(), String> {
    let mut child = command.spawn().map_err(|e| format!("{}: {e}", show(command)))?;
    let pid = child.id();
    let (ended, end) = mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        let late = end.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
        if late {
            kill_tree(pid);
        }
        late
    });
    let status = child.wait();
    drop(ended);
    let late = guard.join().unwrap_or(false);
    match status {
        _ if late => Err(format!("{}: ended after {} minutes", show(command), limit.as_secs() / 60)),
        Ok(status) if status.code() == Some(wanted) => Ok(()),
        Ok(status) if wanted != 0 => Err(format!("{}: {status}, not {wanted}", show(command))),
        Ok(status) => Err(format!("{}: {status}", show(command))),
        Err(e) => Err(format!("{}: {e}", show(command))),
    }
}

/// As [`run_within`], with its output in a file, for a command that must end with the exit status `wanted`.
pub fn run_within_to(
    mut output: &File,
    limit: Duration,
    command: &mut Command,
    wanted: i32,
) -> Result<(), String> {
    let streams = writeln!(output, "+ {}", show(command))
        .and_then(|()| Ok((output.try_clone()?, output.try_clone()?)))
        .map_err(|e| format!("{}: {e}", show(command)))?;
    wait_within(limit, command.stdout(streams.0).stderr(streams.1), wanted)
}

/// Kills a process and all its descendants, the ancestors first so that none starts another.
fn kill_tree(root: u32) {
    let mut doomed = vec![root];
    let mut next = 0;
    while let Some(&parent) = doomed.get(next) {
        next += 1;
        let pid = i32::try_from(parent).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // Stopped and not yet killed: its children keep it as their parent while we look for them.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::STOP);
        }
        doomed.extend(children_of(parent));
    }
    for pid in doomed.into_iter().filter_map(|pid| i32::try_from(pid).ok()) {
        if let Some(pid) = rustix::process::Pid::from_raw(pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// The processes whose parent is `parent`, as far as they can be seen.
fn children_of(parent: u32) -> Vec<u32> {
    let Ok(all) = procfs::process::all_processes() else { return Vec::new() };
    let stats = all.flatten().filter_map(|process| process.stat().ok());
    stats.filter(|stat| stat.ppid == parent.cast_signed()).map(|stat| stat.pid.cast_unsigned()).collect()
}

/// Runs a command and returns its standard output; its standard error is part of the error.
pub fn output(command: &mut Command) -> Result<String, String> {
    output_of(command, &[0])
}

/// The same of a command that may end with any of these statuses.
pub fn output_of(command: &mut Command, good: &[i32]) -> Result<String, String> {
    let out = command.output().map_err(|e| format!("{}: {e}", show(command)))?;
    if out.status.code().is_some_and(|code| good.contains(&code)) {
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    } else {
        let why = String::from_utf8_lossy(&out.stderr);
        Err(format!("{}: {}: {}", show(command), out.status, why.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_ends_with_all_that_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("held");
        let script = format!("mkfifo {0}; sleep 1000 > {0} & cat {0}; wait", fifo.display());
        let start = std::time::Instant::now();
        let late = run_within(Duration::from_millis(500), &mut command("sh", ["-c", &script]));
        assert!(late.unwrap_err().contains("ended after"));
        assert!(start.elapsed() < Duration::from_secs(100));
        // Nobody holds the pipe any more: a writer without a reader is refused.
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        // The kernel may take a moment to bury them.
        let gone = || {
            rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty()).err() == Some(rustix::io::Errno::NXIO)
        };
        while !gone() {
            assert!(start.elapsed() < Duration::from_secs(100), "somebody still reads the pipe");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_ends_in_time_is_judged_by_its_status() {
        assert_eq!(run_within(Duration::from_secs(60), &mut command("true", [""; 0])), Ok(()));
        assert!(run_within(Duration::from_secs(60), &mut command("false", [""; 0])).is_err());
    }
}
