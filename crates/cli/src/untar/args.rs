//! What can be typed behind `landfast untar`.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// `landfast untar`. Letters and names are those of GNU tar where it has them.
#[derive(Debug, Args)]
pub struct UntarArgs {
    /// The archive, or - for standard input; plain, gzip, bzip2, xz or zstd, recognised by content
    pub archive: PathBuf,
    /// Where to: nfs://HOST[:PORT]/PATH
    pub url: String,
    /// Make the directory that URL names, and those above it, if they are not there
    #[arg(long)]
    pub mkdir: bool,
    /// Name each member as it is done
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Set modes as in the archive, whatever the umask (default for root)
    #[arg(short = 'p', long, alias = "same-permissions")]
    pub preserve_permissions: bool,
    /// Apply the umask to modes (default for others than root)
    #[arg(long, conflicts_with = "preserve_permissions")]
    pub no_same_permissions: bool,
    /// Leave modification times as they come
    #[arg(short = 'm', long)]
    pub touch: bool,
    /// Take off so many leading components of each name
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub strip_components: usize,
    /// Leave out members that match this shell pattern; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Files belong to the caller (default for others than root)
    #[arg(long, conflicts_with = "same_owner")]
    pub no_same_owner: bool,
    /// Files belong to whom the archive says (default for root)
    #[arg(long)]
    pub same_owner: bool,
    /// Set extended attributes as in the archive (`user.`, NFSv4.2)
    #[arg(long)]
    pub xattrs: bool,
    /// An existing file is an error, and stays as it is
    #[arg(short = 'k', long, conflicts_with = "overwrite")]
    pub keep_old_files: bool,
    /// Write into existing files instead of replacing them
    #[arg(long)]
    pub overwrite: bool,
    /// Note in this file what is on stable storage, and go on from there when it is there already
    #[arg(long, value_name = "JOURNAL")]
    pub resume: Option<PathBuf>,
    /// Print the summary as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
    /// TCP connections to the server, 1 to 16
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub connections: u16,
    /// Give up when the server has not replied for so long; otherwise it is waited for for ever
    #[arg(long, value_name = "DURATION", value_parser = crate::units::patience)]
    pub timeout: Option<Duration>,
}
