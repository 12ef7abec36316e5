//! The arguments of `landfast verify`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum VerifyCommand {
    /// Perform operations on an NFS server, and record on this machine what it acknowledged
    #[command(
        after_help = "Cut the power of the server while this runs; when the server is back, run `landfast verify check`. \
The journal must not be on a disk of the server.\n\nExit status: 0 all operations were done, or it was interrupted; \
1 the server went away or refused to go on; 2 it could not start."
    )]
    Write(VerifyWriteArgs),
    /// Report which acknowledged operations the server has lost
    #[command(after_help = "Exit status: 0 nothing is lost; 1 something is; 2 it could not be checked.")]
    Check(VerifyCheckArgs),
}

#[derive(Debug, Args)]
pub struct VerifyWriteArgs {
    /// Directory on the server: nfs://HOST[:PORT]/PATH[?version=3|4.0|4.1|4.2]; a subdirectory is made there
    pub url: String,
    /// File for the record of acknowledged operations; it must not exist yet, and not be on the server
    #[arg(long, value_name = "FILE")]
    pub journal: PathBuf,
    /// Stop after this many operations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub operations: Option<u64>,
    /// Stop after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
    /// Number of clients that work at the same time, each with its own connection and directory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub clients: u32,
    /// Seed that decides which operations are performed, and in which order (default: random)
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Use only these kinds of operations, and those that they depend on
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub kinds: Vec<landfast_verify::op::Kind>,
    /// Number of pairs of clients, in addition: the second changes an object while the first still waits for its reply about it
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=64))]
    pub pairs: u32,
    /// What the pairs do, as FIRST:SECOND, such as remove:commit [default: every combination that shares a name]
    #[arg(long, value_name = "FIRST:SECOND,...", value_delimiter = ',')]
    pub meet: Vec<landfast_verify::rounds::Race>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct VerifyCheckArgs {
    /// The directory that was given to `landfast verify write`
    pub url: String,
    /// The file that `landfast verify write` has written
    #[arg(long, value_name = "FILE")]
    pub journal: PathBuf,
    /// How long to wait for the server to come back, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub wait: u64,
    /// Remove the subdirectory from the server afterwards
    #[arg(long)]
    pub remove: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
