//! What all of these commands can be told.

use clap::{Args, ValueEnum};
use std::time::Duration;

/// What all of them take.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Common {
    /// For programs: one JSON object a line on standard output, a summary last
    #[arg(long)]
    pub json: bool,
    /// Say on standard error at the end how many RPCs it took
    #[arg(long)]
    pub rpc_counts: bool,
    /// Give up when a server has not replied for so long; otherwise it is waited for for ever
    #[arg(long, value_name = "DURATION", value_parser = crate::units::patience)]
    pub timeout: Option<Duration>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl Common {
    /// For a command whose words are no options.
    pub fn new(json: bool, rpc_counts: bool, timeout: Option<Duration>) -> Common {
        Common { json, rpc_counts, timeout, help: None }
    }
}

/// Which time `ls` and `du` show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Time {
    /// Of the last change of data
    #[value(alias = "modification")]
    Mtime,
    /// Of the last access
    #[value(alias = "access", alias = "use")]
    Atime,
    /// Of the last change of attributes
    #[value(alias = "status")]
    Ctime,
}
