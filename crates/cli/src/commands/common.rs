//! Options that several commands have.

use clap::{Args, ValueEnum};
use std::time::Duration;

#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Common {
    /// Print one JSON object a line on standard output, with a summary at the end
    #[arg(long)]
    pub json: bool,
    /// Print at the end on standard error how many RPCs were sent
    #[arg(long)]
    pub rpc_counts: bool,
    /// Give up when a server has not replied for this long (default: wait for ever)
    #[arg(long, value_name = "DURATION", value_parser = crate::units::patience)]
    pub timeout: Option<Duration>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl Common {
    /// For `find`, whose words clap does not parse.
    pub fn new(json: bool, rpc_counts: bool, timeout: Option<Duration>) -> Common {
        Common { json, rpc_counts, timeout, help: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Time {
    /// The last change of data
    #[value(alias = "modification")]
    Mtime,
    /// The last access
    #[value(alias = "access", alias = "use")]
    Atime,
    /// The last change of attributes
    #[value(alias = "status")]
    Ctime,
}
