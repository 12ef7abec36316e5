//! What can be typed behind `landfast diff-tree` and `landfast sync-tree`.

use super::common::Common;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// What `diff-tree --help` says in the end.
pub const DIFF_AFTER_HELP: &str =
    "Exit status: 0 the trees are the same; 1 they are not; 2 something could not be compared.";
/// What `sync-tree --help` says in the end.
pub const SYNC_AFTER_HELP: &str = "Files are the same if their sizes and times of modification are. Modes, owners (as root), times, links, \
devices and FIFOs are made the same, too.\n\n\
Exit status: 0 all of the destination that was to be done is on stable storage; 1 something is not, and was named; 2 nothing could be done.";

/// What need not be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Field {
    /// Permission bits
    Mode,
    /// Owners
    Owner,
    /// Groups
    Group,
    /// Times of modification
    Mtime,
    /// Those of directories
    DirMtime,
    /// Which names are one file
    Links,
}

/// `landfast diff-tree`.
#[derive(Debug, Args)]
pub struct DiffTreeArgs {
    /// A directory, an archive or nfs://HOST[:PORT]/PATH
    #[arg(value_name = "A")]
    pub first: OsString,
    /// A directory, an archive or nfs://HOST[:PORT]/PATH
    #[arg(value_name = "B")]
    pub second: OsString,
    /// Do not read files: the same size and time of modification will do
    #[arg(long)]
    pub quick: bool,
    /// What need not be the same
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',')]
    pub ignore: Vec<Field>,
    /// Extended attributes as well (`user.`)
    #[arg(long)]
    pub xattrs: bool,
    /// Leave out what matches this shell pattern; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    #[command(flatten)]
    pub common: Common,
}

/// `landfast sync-tree`.
#[derive(Debug, Args)]
pub struct SyncTreeArgs {
    /// A directory of this machine, or nfs://HOST[:PORT]/PATH; what is in it goes into the destination
    #[arg(value_name = "SRC")]
    pub source: OsString,
    /// Where to: nfs://HOST[:PORT]/PATH, or a directory of this machine; made if it is not there
    #[arg(value_name = "DEST")]
    pub dest: OsString,
    /// Compare files of the same size by their data, whatever their times are
    #[arg(short = 'c', long)]
    pub checksum: bool,
    /// Extended attributes as well (`user.`)
    #[arg(short = 'X', long)]
    pub xattrs: bool,
    /// Remove from the destination what is not in the source
    #[arg(long)]
    pub delete: bool,
    /// Do nothing, say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Name each object that is sent, set or removed
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Owners and groups stay as they are (default for others than root)
    #[arg(long)]
    pub no_owner: bool,
    /// Leave alone, on both sides, what matches this shell pattern; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// And what matches a pattern in this file, one a line
    #[arg(long, value_name = "FILE")]
    pub exclude_from: Vec<PathBuf>,
    /// As rsync's -rlptgoD, all of which it does anyway
    #[arg(short = 'a', long)]
    archive: bool,
    /// Also what is below (as it does)
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Times as well (as it does)
    #[arg(short = 't', long)]
    times: bool,
    /// Hard links as well (as it does)
    #[arg(short = 'H', long)]
    hard_links: bool,
    #[command(flatten)]
    pub common: Common,
}
