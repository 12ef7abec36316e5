//! What can be typed behind the commands that resemble GNU tools. Letters and names are theirs.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

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
-anewer URL -cnewer URL -newerXY URL -newermt TIME -samefile URL -empty -perm -user -group -uid -gid -nouser -nogroup -inum \
-links -regex -iregex -regextype -true -false; actions: -print -print0 -printf -ls -delete -quit -prune; -mindepth -maxdepth -depth -xdev; operators: ( ) ! -not -a -and -o -or ,\n\
--json, --rpc-counts and --timeout DURATION as with the other commands."
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
    /// The top of an export stays (as it does)
    #[arg(long)]
    preserve_root: bool,
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
    all: bool,
    /// Also entries that begin with . but not . and ..
    #[arg(short = 'A', long, overrides_with = "all")]
    pub almost_all: bool,
    /// A line for each: mode, links, owner, group, size, time of modification, name
    #[arg(short = 'l', overrides_with_all = ["across", "commas"])]
    long: bool,
    /// As -l, with numbers for owners and groups
    #[arg(short = 'n', long = "numeric-uid-gid")]
    pub numeric: bool,
    /// Also what is below
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// One name on a line (as when the output is no terminal)
    #[arg(short = '1', overrides_with_all = ["columns", "across", "commas"])]
    single: bool,
    /// Columns (as on a terminal)
    #[arg(short = 'C', overrides_with_all = ["single", "across", "commas"])]
    columns: bool,
    /// Columns, filled line by line
    #[arg(short = 'x', overrides_with_all = ["single", "columns", "commas", "long"])]
    across: bool,
    /// Names in lines, with commas between them
    #[arg(short = 'm', overrides_with_all = ["single", "columns", "across", "long"])]
    commas: bool,
    /// The width of columns; 0: no limit
    #[arg(short = 'w', long, value_name = "COLS")]
    pub width: Option<usize>,
    /// Directories themselves, not what is in them
    #[arg(short = 'd', long)]
    pub directory: bool,
    /// By time of modification, newest first
    #[arg(short = 't', overrides_with_all = ["by_size", "unsorted", "by_extension", "sort"])]
    by_time: bool,
    /// By size, largest first
    #[arg(short = 'S', overrides_with_all = ["by_time", "unsorted", "by_extension", "sort"])]
    by_size: bool,
    /// As the server has them
    #[arg(short = 'U', overrides_with_all = ["by_time", "by_size", "by_extension", "sort"])]
    unsorted: bool,
    /// By what stands behind the last dot
    #[arg(short = 'X', overrides_with_all = ["by_time", "by_size", "unsorted", "sort"])]
    by_extension: bool,
    /// By this
    #[arg(long, value_name = "WORD", overrides_with_all = ["by_time", "by_size", "unsorted", "by_extension"])]
    sort: Option<Sort>,
    /// As -a -U
    #[arg(short = 'f')]
    raw: bool,
    /// Directories before all others
    #[arg(long)]
    pub group_directories_first: bool,
    /// With -l and -t: the time of the last change of attributes; without -l: by it
    #[arg(short = 'c', overrides_with_all = ["access_time", "time"])]
    change_time: bool,
    /// The same with the time of the last access
    #[arg(short = 'u', overrides_with_all = ["change_time", "time"])]
    access_time: bool,
    /// The same with this time
    #[arg(long, value_name = "WORD", overrides_with_all = ["change_time", "access_time"])]
    time: Option<Time>,
    /// How times are shown
    #[arg(long, value_name = "STYLE")]
    time_style: Option<TimeStyle>,
    /// As -l --time-style=full-iso
    #[arg(long)]
    full_time: bool,
    /// As -l, without owners
    #[arg(short = 'g')]
    pub no_owner: bool,
    /// As -l, without groups
    #[arg(short = 'o')]
    long_without_group: bool,
    /// With -l: no groups
    #[arg(short = 'G', long)]
    no_group: bool,
    /// What each takes, in blocks of 1024 bytes
    #[arg(short = 's', long = "size")]
    pub blocks: bool,
    /// A mark behind names: / directory, * program, @ symbolic link, | FIFO, = socket
    #[arg(short = 'F', long, overrides_with = "slashes")]
    pub classify: bool,
    /// / behind directories
    #[arg(short = 'p', overrides_with = "classify")]
    pub slashes: bool,
    /// No names that end in ~
    #[arg(short = 'B', long)]
    pub ignore_backups: bool,
    /// No names like this shell pattern; may be given more than once
    #[arg(short = 'I', long, value_name = "PATTERN")]
    pub ignore: Vec<String>,
    /// The same, but with -a and -A
    #[arg(long, value_name = "PATTERN")]
    pub hide: Vec<String>,
    /// Blocks are of 1024 bytes (as they are)
    #[arg(short = 'k', long)]
    kibibytes: bool,
    /// There are no colours
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "auto")]
    color: Option<Colour>,
    /// The other way round
    #[arg(short = 'r', long)]
    pub reverse: bool,
    /// Sizes for people
    #[arg(short = 'h', long, overrides_with = "si")]
    pub human_readable: bool,
    /// The same with powers of 1000
    #[arg(long, overrides_with = "human_readable")]
    pub si: bool,
    /// The number of each file
    #[arg(short = 'i', long)]
    pub inode: bool,
    /// Names as they are, also on a terminal
    #[arg(short = 'N', long, overrides_with_all = ["quote", "quote_name", "escape"])]
    literal: bool,
    /// Names as a shell takes them, also in a pipe
    #[arg(long, overrides_with_all = ["literal", "quote_name", "escape"])]
    quote: bool,
    /// Names in double quotes, as in C
    #[arg(short = 'Q', long, overrides_with_all = ["literal", "quote", "escape"])]
    quote_name: bool,
    /// What cannot be printed in names is escaped, as in C
    #[arg(short = 'b', long, overrides_with_all = ["literal", "quote", "quote_name"])]
    escape: bool,
    #[command(flatten)]
    pub common: Common,
}

/// By what `ls` sorts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// By name
    Name,
    /// By time, newest first
    Time,
    /// By size, largest first
    Size,
    /// By what stands behind the last dot
    Extension,
    /// As the server has them
    None,
}

/// Which time `ls` shows.
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

/// How `ls` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TimeStyle {
    /// 2001-02-03 04:05:06.789000000 +0100
    FullIso,
    /// 2001-02-03 04:05
    LongIso,
    /// 02-03 04:05, or 2001-02-03
    Iso,
    /// Feb  3 04:05, or Feb  3  2001
    Locale,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Colour {
    Never,
    Auto,
}

/// How names are put on lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One on a line.
    Single,
    /// Columns, filled downwards.
    Down,
    /// Columns, filled line by line.
    Across,
    /// With commas between them.
    Commas,
}

/// How names are quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quoting {
    /// Not at all.
    None,
    /// As a shell takes them, where that is needed.
    Shell,
    /// As in C, in double quotes.
    Quotes,
    /// The same without the quotes.
    Escapes,
}

impl LsArgs {
    /// How names are put on lines, where these are no lines of their own (`-l`).
    pub fn layout(&self, terminal: bool) -> Layout {
        match (self.single, self.across, self.commas) {
            (true, ..) => Layout::Single,
            (_, true, _) => Layout::Across,
            (.., true) => Layout::Commas,
            _ if self.columns || terminal => Layout::Down,
            _ => Layout::Single,
        }
    }

    /// How names are quoted.
    pub fn quoting(&self, terminal: bool) -> Quoting {
        match (self.literal, self.quote_name, self.escape) {
            (true, ..) => Quoting::None,
            (_, true, _) => Quoting::Quotes,
            (.., true) => Quoting::Escapes,
            _ if self.quote || terminal => Quoting::Shell,
            _ => Quoting::None,
        }
    }

    /// A line for each.
    pub fn in_lines(&self) -> bool {
        self.long || self.numeric || self.no_owner || self.long_without_group || self.full_time
    }

    /// Also what begins with a dot, and the dots themselves.
    pub fn all(&self) -> bool {
        self.all || self.raw
    }

    /// No groups in the lines.
    pub fn no_group(&self) -> bool {
        self.no_group || self.long_without_group
    }

    /// By what they are sorted.
    pub fn sort(&self) -> Sort {
        match (self.sort, self.by_time, self.by_size, self.by_extension) {
            _ if self.raw || self.unsorted => Sort::None,
            (Some(sort), ..) => sort,
            (_, true, ..) => Sort::Time,
            (_, _, true, _) => Sort::Size,
            (.., true) => Sort::Extension,
            // A time that is not shown is asked for to sort by it.
            _ if !self.in_lines() && self.time() != Time::Mtime => Sort::Time,
            _ => Sort::Name,
        }
    }

    /// Which time counts.
    pub fn time(&self) -> Time {
        match (self.time, self.change_time, self.access_time) {
            (Some(time), ..) => time,
            (_, true, _) => Time::Ctime,
            (.., true) => Time::Atime,
            _ => Time::Mtime,
        }
    }

    /// How it is shown.
    pub fn time_style(&self) -> TimeStyle {
        let full = if self.full_time { TimeStyle::FullIso } else { TimeStyle::Locale };
        self.time_style.unwrap_or(full)
    }
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
    /// A short line for each
    #[arg(short = 't', long)]
    pub terse: bool,
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
    #[arg(short = 's', long)]
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
    #[arg(short = 'h', long, overrides_with_all = ["si", "kibibytes", "mebibytes", "block_size"])]
    pub human_readable: bool,
    /// The same with powers of 1000
    #[arg(long, overrides_with_all = ["human_readable", "kibibytes", "mebibytes", "block_size"])]
    pub si: bool,
    /// In blocks of 1024 bytes (as they are)
    #[arg(short = 'k', overrides_with_all = ["human_readable", "si", "mebibytes", "block_size"])]
    kibibytes: bool,
    /// In blocks of 1024 * 1024 bytes
    #[arg(short = 'm', overrides_with_all = ["human_readable", "si", "kibibytes", "block_size"])]
    pub mebibytes: bool,
    /// In blocks of this many bytes: 512, 1M, M (then with M behind the number), ...
    #[arg(
        short = 'B',
        long,
        value_name = "SIZE",
        overrides_with_all = ["human_readable", "si", "kibibytes", "mebibytes"]
    )]
    pub block_size: Option<String>,
    /// Operands that are symbolic links are followed
    #[arg(short = 'D', visible_short_alias = 'H', long)]
    pub dereference_args: bool,
    /// When the newest of all in it was changed last, or (atime, ctime) accessed, or its attributes changed
    #[arg(long, value_name = "WORD", num_args = 0..=1, require_equals = true, default_missing_value = "mtime")]
    pub time: Option<Time>,
    /// How many objects there are, not what they take
    #[arg(long)]
    pub inodes: bool,
    /// Directories without what is in those below
    #[arg(short = 'S', long)]
    pub separate_dirs: bool,
    /// Files with several names as often as they have some
    #[arg(short = 'l', long)]
    pub count_links: bool,
    /// Nothing of other filesystems
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Nothing like this shell pattern; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Only what takes as much, or (-SIZE) no more
    #[arg(short = 't', long, value_name = "SIZE", allow_hyphen_values = true)]
    pub threshold: Option<String>,
    /// Lines end in NUL
    #[arg(short = '0', long)]
    pub null: bool,
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
    /// Number all lines
    #[arg(short = 'n', long)]
    number: bool,
    /// Number lines that are not empty
    #[arg(short = 'b', long)]
    number_nonblank: bool,
    /// Of several empty lines one
    #[arg(short = 's', long)]
    squeeze_blank: bool,
    /// $ at ends of lines
    #[arg(short = 'E', long)]
    show_ends: bool,
    /// ^I for tabs
    #[arg(short = 'T', long)]
    show_tabs: bool,
    /// ^ and M- for what cannot be printed, but newlines and tabs
    #[arg(short = 'v', long)]
    show_nonprinting: bool,
    /// As -vET
    #[arg(short = 'A', long)]
    show_all: bool,
    /// As -vE
    #[arg(short = 'e')]
    show_ends_and_bytes: bool,
    /// As -vT
    #[arg(short = 't')]
    show_tabs_and_bytes: bool,
    /// Accepted for compatibility; output is never buffered
    #[arg(short = 'u')]
    unbuffered: bool,
    #[command(flatten)]
    pub common: Common,
}

impl CatArgs {
    /// What is shown of lines.
    pub fn shown(&self) -> super::lines::Shown {
        let numbers = if self.number_nonblank { Some(true) } else { self.number.then_some(false) };
        let (e, t) = (self.show_ends_and_bytes, self.show_tabs_and_bytes);
        super::lines::Shown {
            numbers,
            ends: self.show_ends || self.show_all || e,
            tabs: self.show_tabs || self.show_all || t,
            bytes: self.show_nonprinting || self.show_all || e || t,
            squeezed: self.squeeze_blank,
        }
    }
}
