//! The arguments of `landfast untar`. Letters and names are those of GNU tar, if it has them.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct UntarArgs {
    /// The archive, or - for standard input: plain or compressed with gzip, bzip2, xz or zstd, recognised by its content
    pub archive: PathBuf,
    /// Directory to extract into: nfs://HOST[:PORT]/PATH
    pub url: String,
    /// Make the directory and those above it if they do not exist
    #[arg(long)]
    pub mkdir: bool,
    /// Print the name of each member when it is done
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Set modes as in the archive, ignoring the umask (the default for root)
    #[arg(short = 'p', long, alias = "same-permissions")]
    pub preserve_permissions: bool,
    /// Apply the umask to modes (the default unless root)
    #[arg(long, conflicts_with = "preserve_permissions")]
    pub no_same_permissions: bool,
    /// Do not set modification times
    #[arg(short = 'm', long)]
    pub touch: bool,
    /// Remove N leading components from each name
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub strip_components: usize,
    /// Leave out members that match this shell pattern; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Let files belong to the caller (the default unless root)
    #[arg(long, conflicts_with = "same_owner")]
    pub no_same_owner: bool,
    /// Let files belong to the owner in the archive (the default for root)
    #[arg(long)]
    pub same_owner: bool,
    /// Set extended attributes as in the archive (`user.`, NFSv4.2)
    #[arg(long)]
    pub xattrs: bool,
    /// Keep existing files, and report an error for each
    #[arg(short = 'k', long, conflicts_with = "overwrite")]
    pub keep_old_files: bool,
    /// Write into existing files, do not replace them
    #[arg(long)]
    pub overwrite: bool,
    /// Record in this file what is durable; if the file exists, continue from there
    #[arg(long, value_name = "JOURNAL")]
    pub resume: Option<PathBuf>,
    /// Print the summary as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
    /// Number of TCP connections to the server, 1 to 16
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub connections: u16,
    /// Give up when the server has not replied for this long (default: wait for ever)
    #[arg(long, value_name = "DURATION", value_parser = crate::units::patience)]
    pub timeout: Option<Duration>,
}
