//! What can be typed behind `landfast log`.

use crate::units;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `landfast log`.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Make a file or block device ready to become a log, and measure how it is flushed
    Create(LogCreateArgs),
    /// Give a log another size; its server must have stopped cleanly
    Resize(LogResizeArgs),
    /// What a log is, whose, and what would be replayed
    Info(LogArgs),
    /// Whether all of a log is whole: exit status 0, or 1 with what is damaged and where
    Check(LogArgs),
    /// Each record that would be replayed
    Dump(LogArgs),
    /// What can be had out of any log, also a damaged one and without its volume: files, and a REPORT of what is whole
    Salvage(LogSalvageArgs),
}

/// `landfast log salvage`.
#[derive(Debug, Args)]
pub struct LogSalvageArgs {
    /// The log: a file or a block device; it is only read
    pub path: PathBuf,
    /// A directory that does not exist yet, or is empty
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

/// `landfast log create`.
#[derive(Debug, Args)]
pub struct LogCreateArgs {
    /// A file that does not exist yet, or a block device without contents
    pub path: PathBuf,
    /// Size of the file; a block device is used whole
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = units::log_size)]
    pub size: u64,
}

/// `landfast log resize`.
#[derive(Debug, Args)]
pub struct LogResizeArgs {
    /// The log
    pub path: PathBuf,
    /// The new size of a file; a block device is used whole, whatever its size is now
    #[arg(long, value_name = "SIZE", value_parser = units::log_size)]
    pub size: Option<u64>,
}

/// Which log.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// The log: a file or a block device that no server runs on
    pub path: PathBuf,
    /// For programs; `dump`: an object on each line
    #[arg(long)]
    pub json: bool,
}
