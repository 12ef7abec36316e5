//! How the command ends: one line a cause on standard error, and an exit status as that of the tool it resembles.

use crate::say;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// All was done.
    Done,
    /// Some of it failed, and was named.
    Partly,
    /// Nothing could be done.
    Failed,
    /// A signal ended it before its time.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(e: Exit) -> ExitCode {
        match e {
            Exit::Done => ExitCode::SUCCESS,
            Exit::Partly => ExitCode::from(1),
            Exit::Failed => ExitCode::from(2),
            Exit::Interrupted => ExitCode::from(130),
        }
    }
}

/// The exit status of a command that ended like this, once all that it printed has arrived, or has not.
pub fn status(exit: Exit) -> ExitCode {
    say::flush();
    match exit {
        Exit::Done if say::is_closed() => ExitCode::from(say::ENDED_BY_PIPE),
        Exit::Done if say::is_full() => Exit::Failed.into(),
        exit => exit.into(),
    }
}

/// Prints an error with its causes in one line.
pub fn complain(error: &(dyn Error + 'static)) {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(c) = cause {
        let text = c.to_string();
        // Many errors already tell their cause in their own text.
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = c.source();
    }
    eprintln!("landfast: {line}");
}

/// What there is, or nothing but a line on standard error.
pub fn told<T, E: Error + 'static>(result: Result<T, E>) -> Option<T> {
    result.inspect_err(|e| complain(e)).ok()
}

/// Done, or failed with a line on standard error.
pub fn from<E: Error + 'static>(result: Result<(), E>) -> Exit {
    told(result).map_or(Exit::Failed, |()| Exit::Done)
}

/// Prints a report for programs on standard output; whether it arrives shows in the exit status.
pub fn print_json(report: &impl serde::Serialize) -> Option<()> {
    let text = told(serde_json::to_string_pretty(report))?;
    let _ = writeln!(say::stdout(), "{}", say::json(&text));
    Some(())
}
