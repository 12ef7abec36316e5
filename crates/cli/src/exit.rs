//! How a command ends: one line on standard error for a failure, and an exit status as that of the tool that it resembles.

use crate::say;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use tokio::runtime::{Builder, Runtime};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    Done,
    /// Something failed, and was printed.
    Partly,
    /// Nothing could be done.
    Failed,
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

/// The exit status, once all output has arrived, or failed to.
pub fn status(exit: Exit) -> ExitCode {
    say::flush();
    match exit {
        Exit::Done if say::is_closed() => ExitCode::from(say::ENDED_BY_PIPE),
        Exit::Done if say::is_full() => Exit::Failed.into(),
        exit => exit.into(),
    }
}

/// Prints an error with its causes in one line: the command ends with it.
pub fn failed(why: impl Into<Box<dyn Error>>) -> Exit {
    let error: Box<dyn Error> = why.into();
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(c) = cause {
        let text = c.to_string();
        // Many errors repeat their cause in their own text.
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = c.source();
    }
    eprintln!("landfast: {line}");
    Exit::Failed
}

/// The value; a failure is printed.
pub fn ok_or_print<T, E: Into<Box<dyn Error>>>(result: Result<T, E>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(e) => {
            failed(e);
            None
        }
    }
}

/// A runtime with a thread for each processor.
pub fn runtime() -> Option<Runtime> {
    ok_or_print(
        Builder::new_multi_thread().enable_all().build().map_err(|e| format!("cannot start threads: {e}")),
    )
}

pub fn from<E: Into<Box<dyn Error>>>(result: Result<(), E>) -> Exit {
    ok_or_print(result).map_or(Exit::Failed, |()| Exit::Done)
}

/// Prints a report as JSON. A failure to write shows in the exit status.
pub fn print_json(report: &impl serde::Serialize) -> Exit {
    let Some(text) = ok_or_print(serde_json::to_string_pretty(report)) else { return Exit::Failed };
    let _ = writeln!(say::stdout(), "{}", say::json(&text));
    Exit::Done
}
