//! What can be typed behind `landfast verify`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `landfast verify`.
#[derive(Debug, Subcommand)]
pub enum VerifyCommand {
    /// Perform operations on an NFS server, and note on this machine what it acknowledged
    #[command(
        after_help = "Cut the power of the server meanwhile; when it is back, run `landfast verify check`. \
The journal must be on another machine's disk than the server's.\n\nExit status: 0 all was done, or it was interrupted; \
1 the server went away or refused; 2 nothing could be begun."
    )]
    Write(VerifyWriteArgs),
    /// Say what the server has lost of what it acknowledged, by operation
    #[command(after_help = "Exit status: 0 nothing is lost; 1 something is; 2 it could not be checked.")]
    Check(VerifyCheckArgs),
}

/// `landfast verify write`.
#[derive(Debug, Args)]
pub struct VerifyWriteArgs {
    /// Where to: nfs://HOST[:PORT]/PATH[?version=3|4.0|4.1|4.2]; a directory of its own is made there
    pub url: String,
    /// Where to note what was acknowledged; a file that does not exist yet, not on the server
    #[arg(long, value_name = "FILE")]
    pub journal: PathBuf,
    /// End after so many operations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub operations: Option<u64>,
    /// End after this time
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
    /// Clients at work at the same time, each with a connection and a directory of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub clients: u32,
    /// Which operations come, and in which order, depends on it
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Only these kinds of operations, and what they need to work on
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub kinds: Vec<landfast_verify::op::Kind>,
    /// Beside them so many pairs of clients, of which one does something to what the other has not been answered about yet
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=64))]
    pub pairs: u32,
    /// What they do, as FIRST:SECOND, such as remove:commit [default: everything that has a name in common]
    #[arg(long, value_name = "FIRST:SECOND,...", value_delimiter = ',')]
    pub meet: Vec<landfast_verify::rounds::Race>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `landfast verify check`.
#[derive(Debug, Args)]
pub struct VerifyCheckArgs {
    /// The same directory: nfs://HOST[:PORT]/PATH
    pub url: String,
    /// The journal of `landfast verify write`
    #[arg(long, value_name = "FILE")]
    pub journal: PathBuf,
    /// How long to wait for the server to come back, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub wait: u64,
    /// Remove the directory of the run from the server afterwards
    #[arg(long)]
    pub remove: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
