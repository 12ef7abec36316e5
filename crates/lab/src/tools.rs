//! The client's commands, each a process as a user starts it: what it sent, how long it took, and what it needed.

use crate::error::{Context, Error, Result};
use crate::sys::{Usage, wait_usage};
use serde::Deserialize;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// So much of what a command says on standard error is kept.
const SAID_MAX: usize = 4096;

#[derive(Debug, Clone, Copy, Default)]
pub struct ToolRun {
    /// Objects that it says it dealt with; those of `untar` are regular files.
    pub objects: u64,
    /// Calls that it says it sent.
    pub rpcs: u64,
    pub took: Duration,
    pub usage: Usage,
}

/// Where a command's standard input comes from.
pub enum Input<'a> {
    Nothing,
    /// What this writes.
    From(&'a mut (dyn FnMut(&mut dyn std::io::Write) -> std::io::Result<()> + Send)),
}

/// Runs `landfast ARGS... --json`.
/// Errors: It cannot be started, or does not end with success: with what it said.
pub fn run(args: &[&str]) -> Result<ToolRun> {
    run_with(args, Input::Nothing)
}

/// The same with something on its standard input.
pub fn run_with(args: &[&str], input: Input<'_>) -> Result<ToolRun> {
    run_to_the_end(args, input, &[0])
}

/// As [`run`], but some of it may have failed: status 1.
pub fn run_partly(args: &[&str]) -> Result<ToolRun> {
    run_to_the_end(args, Input::Nothing, &[0, 1])
}

fn run_to_the_end(args: &[&str], input: Input<'_>, good: &[i32]) -> Result<ToolRun> {
    let exe = crate::machine::exe()?;
    let start = Instant::now();
    let mut command = Command::new(exe);
    crate::sys::end_with_this_thread(&mut command);
    let mut child = command
        .args(args)
        .arg("--json")
        .stdin(if matches!(input, Input::Nothing) { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context(|| format!("run `landfast {}`", args.join(" ")))?;
    let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (printed, said) = std::thread::scope(|scope| {
        let printed = scope.spawn(move || stdout.map(|out| last_bytes(out, Keep::End)).unwrap_or_default());
        let said = scope.spawn(move || stderr.map(|err| last_bytes(err, Keep::Start)).unwrap_or_default());
        if let (Input::From(write), Some(mut to)) = (input, stdin.take()) {
            // When the command ends early its exit status tells why.
            let _ = write(&mut to);
        }
        (printed.join().unwrap_or_default(), said.join().unwrap_or_default())
    });
    let (status, usage) =
        wait_usage(child.id()).context(|| format!("wait for `landfast {}`", args.join(" ")))?;
    let took = start.elapsed();
    if !status.code().is_some_and(|code| good.contains(&code)) {
        return Err(Error::Tool {
            command: format!("landfast {}", args.join(" ")),
            status: status.to_string(),
            stderr: String::from_utf8_lossy(&said).into_owned(),
        });
    }
    let (objects, rpcs) = summary(&printed)
        .ok_or_else(|| Error::Protocol(format!("`landfast {}` printed no summary", args.join(" "))))?;
    Ok(ToolRun { objects, rpcs, took, usage })
}

/// What of a program's output is kept.
enum Keep {
    Start,
    End,
}

/// Reads to the end; keeps [`SAID_MAX`] bytes.
fn last_bytes(mut from: impl Read, keep: Keep) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut part = vec![0; 64 << 10];
    // A broken pipe is an end.
    while let Ok(n @ 1..) = from.read(&mut part) {
        match keep {
            Keep::Start => kept.extend_from_slice(&part[..n.min(SAID_MAX.saturating_sub(kept.len()))]),
            Keep::End => {
                kept.extend_from_slice(&part[..n]);
                kept.drain(..kept.len().saturating_sub(SAID_MAX));
            }
        }
    }
    kept
}

/// What `untar --json` says, as far as it matters here.
#[derive(Deserialize)]
struct Extracted {
    files: u64,
    rpcs: u64,
}

/// Objects and calls, from the end of what a command printed: a line with a summary, or the report of `untar`.
fn summary(printed: &[u8]) -> Option<(u64, u64)> {
    if let Some(at) = printed.iter().position(|b| *b == b'{')
        && let Ok(report) = serde_json::from_slice::<Extracted>(&printed[at..])
    {
        return Some((report.files, report.rpcs));
    }
    let line = printed.trim_ascii_end().rsplit(|b| *b == b'\n').next()?;
    let line: serde_json::Value = serde_json::from_slice(line).ok()?;
    let summary = line.get("summary")?.as_object()?;
    let number = |key: &str| summary.get(key)?.as_u64();
    let known = ["failures", "interrupted", "rpcs", "rpcs_each", "seconds"];
    let objects = summary.iter().find(|(key, value)| !known.contains(&key.as_str()) && value.is_u64());
    Some((objects?.1.as_u64()?, number("rpcs")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_all_commands_are_understood() {
        let line = br#"{"path":"a"}
{"summary":{"failures":0,"interrupted":false,"removed":7,"rpcs":9,"rpcs_each":1.2,"seconds":0.1}}
"#;
        assert_eq!(summary(line), Some((7, 9)));
        assert_eq!(summary(b"{\n  \"files\": 3,\n  \"rpcs\": 4\n}\n"), Some((3, 4)));
        assert_eq!(summary(b"nothing"), None);
        assert_eq!(summary(b""), None);
    }

    #[test]
    fn of_long_output_the_start_or_the_end_is_kept() {
        let long: Vec<u8> = (0..3 * SAID_MAX).map(|n| n as u8).collect();
        assert_eq!(last_bytes(&long[..], Keep::Start), long[..SAID_MAX]);
        assert_eq!(last_bytes(&long[..], Keep::End), long[2 * SAID_MAX..]);
    }
}
