//! The arguments of `landfast diff-tree` and `landfast sync-tree`.

use super::common::Common;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

pub const DIFF_AFTER_HELP: &str =
    "Exit status: 0 the trees are equal; 1 they differ; 2 something could not be compared.";
pub const SYNC_AFTER_HELP: &str = "Files count as equal if their sizes and times of modification are equal. Modes, owners (as root), times, links, \
devices and FIFOs are synchronised as well.\n\n\
Exit status: 0 everything is done and durable; 1 something failed and was reported; 2 nothing could be done.";

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
    /// Times of modification of directories
    DirMtime,
    /// Which names belong to one file
    Links,
}

#[derive(Debug, Args)]
pub struct DiffTreeArgs {
    /// One tree: a directory, an archive or nfs://HOST[:PORT]/PATH
    #[arg(value_name = "A")]
    pub first: OsString,
    /// The other tree: a directory, an archive or nfs://HOST[:PORT]/PATH
    #[arg(value_name = "B")]
    pub second: OsString,
    /// Do not read files: equal sizes and times of modification are enough
    #[arg(long)]
    pub quick: bool,
    /// Attributes that may differ
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',')]
    pub ignore: Vec<Field>,
    /// Compare extended attributes as well (`user.`)
    #[arg(long)]
    pub xattrs: bool,
    /// Leave out what matches this shell pattern; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Debug, Args)]
pub struct SyncTreeArgs {
    /// The source: a directory of this machine or nfs://HOST[:PORT]/PATH; its contents go into the destination
    #[arg(value_name = "SRC")]
    pub source: OsString,
    /// The destination: nfs://HOST[:PORT]/PATH or a directory of this machine; made if it does not exist
    #[arg(value_name = "DEST")]
    pub dest: OsString,
    /// Compare files of equal size by their data, whatever their times are
    #[arg(short = 'c', long)]
    pub checksum: bool,
    /// Synchronise extended attributes as well (`user.`)
    #[arg(short = 'X', long)]
    pub xattrs: bool,
    /// Remove from the destination what is not in the source
    #[arg(long)]
    pub delete: bool,
    /// Change nothing, print what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Print each object that is sent, set or removed
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Do not set owners and groups (the default unless root)
    #[arg(long)]
    pub no_owner: bool,
    /// Ignore on both sides what matches this shell pattern; may be given more than once. A directory that holds such an
    /// object is not removed
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Ignore what matches a pattern in this file, one a line
    #[arg(long, value_name = "FILE")]
    pub exclude_from: Vec<PathBuf>,
    /// Accepted for rsync's -rlptgoD, which is the default
    #[arg(short = 'a', long)]
    archive: bool,
    /// Accepted; trees are always synchronised with everything below them
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Accepted; times are always set
    #[arg(short = 't', long)]
    times: bool,
    /// Accepted; hard links are always made
    #[arg(short = 'H', long)]
    hard_links: bool,
    #[command(flatten)]
    pub common: Common,
}
