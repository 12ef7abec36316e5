//! The arguments of `landfast log`.

use crate::units;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Prepare a file or block device as a log, and measure its flush latency
    Create(LogCreateArgs),
    /// Change the size of a log whose server has stopped cleanly
    Resize(LogResizeArgs),
    /// Print what a log is, its volume, and what would be replayed
    Info(LogArgs),
    /// Check that a log is intact: exit status 0, or 1 with the damage and its place
    Check(LogArgs),
    /// Print each record that would be replayed
    Dump(LogArgs),
    /// Extract files from a log, even if it is damaged or its volume is lost; a REPORT says what is complete
    Salvage(LogSalvageArgs),
}

#[derive(Debug, Args)]
pub struct LogSalvageArgs {
    /// The log, a file or a block device; it is not changed
    pub path: PathBuf,
    /// Directory for the result: one that does not exist yet, or is empty
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

#[derive(Debug, Args)]
pub struct LogCreateArgs {
    /// A file that does not exist yet, or a block device without contents
    pub path: PathBuf,
    /// Size of the file; a block device is used whole
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = units::log_size)]
    pub size: u64,
}

#[derive(Debug, Args)]
pub struct LogResizeArgs {
    /// The log
    pub path: PathBuf,
    /// New size of a file; a block device is always used as a whole
    #[arg(long, value_name = "SIZE", value_parser = units::log_size)]
    pub size: Option<u64>,
}

#[derive(Debug, Args)]
pub struct LogArgs {
    /// The log, a file or a block device without a running server
    pub path: PathBuf,
    /// Print JSON; `dump` prints an object on each line
    #[arg(long)]
    pub json: bool,
}
