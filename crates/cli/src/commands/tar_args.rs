//! What can be typed behind `landfast tar`. Letters and names are GNU tar's.

use super::args::Common;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// What `--help` says in the end.
pub const AFTER_HELP: &str = "The archive is in pax format; names in a directory are sorted.\n\n\
Exit status: 0 all is in the archive; 1 files changed while they were read; 2 something is missing, or there is no archive.";

/// `landfast tar`.
#[derive(Debug, Args)]
pub struct TarArgs {
    /// What to put into the archive: below the -C URL, or nfs://HOST[:PORT]/PATH
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// Create an archive (landfast untar extracts)
    #[arg(short = 'c', long, required = true)]
    pub create: bool,
    /// The archive; -, or when it is not given: standard output
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Where paths begin: nfs://HOST[:PORT]/PATH
    #[arg(short = 'C', long, value_name = "URL")]
    pub directory: Option<String>,
    /// Compress with gzip
    #[arg(short = 'z', long, group = "compression")]
    pub gzip: bool,
    /// Compress with bzip2
    #[arg(short = 'j', long, group = "compression")]
    pub bzip2: bool,
    /// Compress with xz
    #[arg(short = 'J', long, group = "compression")]
    pub xz: bool,
    /// Compress with Zstandard
    #[arg(long, group = "compression")]
    pub zstd: bool,
    /// Compress as the archive's name says
    #[arg(short = 'a', long, group = "compression")]
    pub auto_compress: bool,
    /// Name each member
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Further paths from this file, one a line; - for standard input
    #[arg(short = 'T', long, value_name = "FILE")]
    pub files_from: Option<PathBuf>,
    /// There they end in NUL
    #[arg(long)]
    pub null: bool,
    /// Leave out what matches this shell pattern; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Extended attributes as well (NFSv4.2)
    #[arg(long)]
    pub xattrs: bool,
    /// Owners and groups by number only
    #[arg(long)]
    pub numeric_owner: bool,
    #[command(flatten)]
    pub common: Common,
}
