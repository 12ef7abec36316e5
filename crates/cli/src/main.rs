//! The `landfast` command: arguments, progress, tables, exit statuses; no logic.

#![deny(unsafe_code)]

#[macro_use]
mod say;

mod args;
mod commands;
mod exit;
mod input;
#[cfg(feature = "lab")]
mod lab;
mod log;
#[cfg(feature = "mount")]
mod mount;
mod outage;
mod page;
mod predict;
mod probe;
mod process;
mod progress;
mod resume;
#[cfg(feature = "lab")]
mod scratch;
mod serve;
mod signals;
#[allow(unsafe_code)]
mod sys;
mod table;
mod trace;
mod units;
mod untar;
mod verify;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<std::ffi::OsString> = std::env::args_os().collect();
    #[cfg(feature = "mount")]
    let Some(args) = mount::args::as_called(args) else { return ExitCode::SUCCESS };
    let cli = match Cli::try_parse_from(commands::tar::args::with_dashes(args)) {
        Ok(cli) => cli,
        Err(e) => {
            // A wrong command line gets the message and the status of the GNU tool of that name.
            let words: Vec<String> =
                std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
            let tool = words.iter().find(|arg| !arg.starts_with('-')).cloned().unwrap_or_default();
            let gnu = commands::usage_status(&tool);
            if let Some(words) = commands::not_for_tar(&words) {
                eprintln!("tar: {words}");
                return ExitCode::from(2);
            }
            match gnu.and_then(|_| commands::usage_words(&e)) {
                Some(words) => {
                    eprintln!("{tool}: {words}");
                    eprintln!("Try 'landfast {tool} --help' for more information.");
                }
                // The message contains what was typed, which may be a name from anywhere: it is escaped.
                None if e.use_stderr() => {
                    drop(say::lines_to_stderr(e.render().to_string().as_bytes()));
                }
                None => {
                    let _ = e.print().inspect_err(say::output_failed);
                }
            }
            return match e.use_stderr() {
                true => ExitCode::from(gnu.unwrap_or(2)),
                false => exit::status(exit::Exit::Done),
            };
        }
    };
    log_to_stderr(cli.debug);
    // No thread may exist yet: `lab child` asks for a signal at the death of the thread that started it.
    let exit = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Exports(args) => serve::config::exports(&args),
        Command::Check(args) => serve::config::check(&args),
        Command::Untar(args) => untar::run(&args),
        #[cfg(feature = "mount")]
        Command::Mount(args) => mount::run(&args),
        #[cfg(feature = "mount")]
        Command::Umount(args) => mount::unmount(&args),
        #[cfg(feature = "mount")]
        Command::Sync(args) => mount::sync(&args),
        #[cfg(feature = "mount")]
        Command::Status(args) => mount::status(&args),
        Command::Tool(command) => commands::run(command),
        #[cfg(feature = "lab")]
        Command::Demo(args) => lab::demo::run(args),
        #[cfg(feature = "lab")]
        Command::Lab(command) => lab::run(command),
        Command::Verify(command) => verify::run(command),
        Command::Log(command) => log::run(&command),
        Command::Trace(args) => trace::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Predict(args) => predict::run(&args),
    };
    exit::status(exit)
}

/// Diagnostics go to standard error: warnings always, more with `--debug` or as LANDFAST_LOG says.
fn log_to_stderr(debug: u8) {
    let default = match debug {
        // fuser warns of requests that the emulated disk does not support, which is no problem.
        0 => "warn,fuser=error",
        1 => "landfast=info,warn,fuser=error",
        2 => "debug",
        _ => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("LANDFAST_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| say::LogLine)
        // The line is escaped as a whole, and colours would be escaped, too.
        .with_ansi(false)
        .with_target(false)
        .init();
}
