//! What can be typed behind the commands that resemble GNU tools. Letters and names are theirs.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Tools {
    /// List directories of an NFS server
    #[command(disable_help_flag = true)]
    Ls(LsArgs),
    /// Show what an NFS server knows of a file
    #[command(disable_help_flag = true)]
    Stat(StatArgs),
    /// Add up what trees on an NFS server take
    #[command(disable_help_flag = true)]
    Du(DuArgs),
    /// Search trees on an NFS server
    #[command(
        disable_help_flag = true,
        after_help = "Tests: -name -iname -path -ipath -type -size -mtime -mmin -atime -amin -ctime -cmin -newer URL \
-links -true -false; actions: -print -print0 -prune; -mindepth -maxdepth; operators: ( ) ! -not -a -and -o -or ,\n\
--json and --rpc-counts as with the other commands."
    )]
    Find(FindArgs),
    /// Print files of an NFS server
    #[command(disable_help_flag = true)]
    Cat(CatArgs),
    /// Copy files and directories to, from and between NFS servers
    #[command(disable_help_flag = true)]
    Cp(super::cp::args::CpArgs),
    /// Remove files or directories on an NFS server
    #[command(disable_help_flag = true)]
    Rm(RmArgs),
    /// Make directories on an NFS server
    #[command(disable_help_flag = true)]
    Mkdir(MkdirArgs),
    /// Put trees of an NFS server into an archive; durable when it returns
    #[command(disable_help_flag = true, after_help = super::tar_args::AFTER_HELP)]
    Tar(super::tar_args::TarArgs),
    /// Say what differs between two trees: local ones, those of NFS servers, archives
    #[command(disable_help_flag = true, after_help = super::trees_args::DIFF_AFTER_HELP)]
    DiffTree(super::trees_args::DiffTreeArgs),
    /// Make a directory on an NFS server as one of this machine is, sending only what differs
    #[command(disable_help_flag = true, after_help = super::trees_args::SYNC_AFTER_HELP)]
    SyncTree(super::trees_args::SyncTreeArgs),
}

/// What all of them take.
#[derive(Debug, Clone, Copy, Args)]
pub struct Common {
    /// For programs: one JSON object a line on standard output, a summary last
    #[arg(long)]
    pub json: bool,
    /// Say on standard error at the end how many RPCs it took
    #[arg(long)]
    pub rpc_counts: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl Common {
    /// For a command whose words are no options.
    pub fn new(json: bool, rpc_counts: bool) -> Common {
        Common { json, rpc_counts, help: None }
    }
}

/// `landfast rm`.
#[derive(Debug, Args)]
pub struct RmArgs {
    /// What to remove: nfs://HOST[:PORT]/PATH
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    #[command(flatten)]
    pub asking: super::ask::Asking,
    /// Remove directories and their contents
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    pub recursive: bool,
    /// Remove empty directories
    #[arg(short = 'd', long)]
    pub dir: bool,
    /// Say what is done
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Note in this file what is begun and removed, and go on from there when it is there already
    #[arg(long, value_name = "JOURNAL")]
    pub resume: Option<PathBuf>,
    #[command(flatten)]
    pub common: Common,
}

/// `landfast mkdir`.
#[derive(Debug, Args)]
pub struct MkdirArgs {
    /// What to make: nfs://HOST[:PORT]/PATH
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Make directories above that are missing; no error if it is there already
    #[arg(short = 'p', long)]
    pub parents: bool,
    /// Its mode, as in chmod
    #[arg(short = 'm', long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Say what is done
    #[arg(short = 'v', long)]
    pub verbose: bool,
    #[command(flatten)]
    pub common: Common,
}

/// `landfast ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// What to list: nfs://HOST[:PORT]/PATH
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Also entries that begin with .
    #[arg(short = 'a', long, overrides_with = "almost_all")]
    pub all: bool,
    /// Also entries that begin with . but not . and ..
    #[arg(short = 'A', long, overrides_with = "all")]
    pub almost_all: bool,
    /// A line for each: mode, links, owner, group, size, time of modification, name
    #[arg(short = 'l')]
    pub long: bool,
    /// As -l, with numbers for owners and groups
    #[arg(short = 'n', long = "numeric-uid-gid")]
    pub numeric: bool,
    /// Also what is below
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// One name on a line (as when the output is no terminal)
    #[arg(short = '1', overrides_with = "columns")]
    pub single: bool,
    /// Columns (as on a terminal)
    #[arg(short = 'C', overrides_with = "single")]
    pub columns: bool,
    /// The width of columns; 0: no limit
    #[arg(short = 'w', long, value_name = "COLS")]
    pub width: Option<usize>,
    /// Directories themselves, not what is in them
    #[arg(short = 'd', long)]
    pub directory: bool,
    /// By time of modification, newest first
    #[arg(short = 't', overrides_with_all = ["by_size", "unsorted"])]
    pub by_time: bool,
    /// By size, largest first
    #[arg(short = 'S', overrides_with_all = ["by_time", "unsorted"])]
    pub by_size: bool,
    /// As the server has them
    #[arg(short = 'U', overrides_with_all = ["by_time", "by_size"])]
    pub unsorted: bool,
    /// The other way round
    #[arg(short = 'r', long)]
    pub reverse: bool,
    /// Sizes for people
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// The number of each file
    #[arg(short = 'i', long)]
    pub inode: bool,
    /// Names as they are, also on a terminal
    #[arg(short = 'N', long)]
    pub literal: bool,
    /// Names as a shell takes them, also in a pipe
    #[arg(long, conflicts_with = "literal")]
    pub quote: bool,
    #[command(flatten)]
    pub common: Common,
}

/// `landfast stat`.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// What to show: nfs://HOST[:PORT]/PATH
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    pub dereference: bool,
    /// A line for each in this form: %n name, %s size, %a mode, %y time, ... as GNU's
    #[arg(short = 'c', long, value_name = "FORMAT", overrides_with = "printf")]
    pub format: Option<String>,
    /// The same without an end of line, and with \n, \t, \0 and so on
    #[arg(long, value_name = "FORMAT", overrides_with = "format")]
    pub printf: Option<String>,
    #[command(flatten)]
    pub common: Common,
}

/// `landfast du`.
#[derive(Debug, Args)]
pub struct DuArgs {
    /// What to add up: nfs://HOST[:PORT]/PATH
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Only a sum for each operand
    #[arg(short = 's', long, conflicts_with_all = ["all", "max_depth"])]
    pub summarize: bool,
    /// Files, too, not just directories
    #[arg(short = 'a', long)]
    pub all: bool,
    /// Only what is so many levels below an operand
    #[arg(short = 'd', long, value_name = "N")]
    pub max_depth: Option<usize>,
    /// A sum of all in the end
    #[arg(short = 'c', long)]
    pub total: bool,
    /// Sizes for people
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// What files hold, not what they take
    #[arg(long)]
    pub apparent_size: bool,
    /// That, in bytes
    #[arg(short = 'b', long)]
    pub bytes: bool,
    #[command(flatten)]
    pub common: Common,
}

/// `landfast find`.
#[derive(Debug, Args)]
pub struct FindArgs {
    /// Starting points and an expression: nfs://HOST[:PORT]/PATH... [-name PATTERN] [-type f] [-o] [-print0] ...
    #[arg(
        value_name = "URL... EXPRESSION",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<String>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// `landfast cat`.
#[derive(Debug, Args)]
pub struct CatArgs {
    /// What to print: nfs://HOST[:PORT]/PATH
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    #[command(flatten)]
    pub common: Common,
}
