//! The arguments of `landfast ls`. Letters and names are GNU's.

use super::super::common::{Common, Time};
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub struct LsArgs {
    /// Directories and files to list: nfs://HOST[:PORT]/PATH
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// List names that begin with . as well, and . and ..
    #[arg(short = 'a', long, overrides_with = "almost_all")]
    all: bool,
    /// List names that begin with . as well, but not . and ..
    #[arg(short = 'A', long, overrides_with = "all")]
    pub almost_all: bool,
    /// Print a line for each: mode, links, owner, group, size, time of modification, name
    #[arg(short = 'l', overrides_with_all = ["across", "commas"])]
    long: bool,
    /// The same as -l, with numbers for owners and groups
    #[arg(short = 'n', long = "numeric-uid-gid")]
    pub numeric: bool,
    /// List subdirectories as well, with everything in them
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Print one name a line (the default if the output is not a terminal)
    #[arg(short = '1', overrides_with_all = ["columns", "across", "commas"])]
    single: bool,
    /// Print columns (the default on a terminal)
    #[arg(short = 'C', overrides_with_all = ["single", "across", "commas"])]
    columns: bool,
    /// Print columns that are filled line by line
    #[arg(short = 'x', overrides_with_all = ["single", "columns", "commas", "long"])]
    across: bool,
    /// Print names in lines, separated by commas
    #[arg(short = 'm', overrides_with_all = ["single", "columns", "across", "long"])]
    commas: bool,
    /// Width of a line in columns; 0: no limit
    #[arg(short = 'w', long, value_name = "COLS")]
    pub width: Option<usize>,
    /// List directories themselves, not their contents
    #[arg(short = 'd', long)]
    pub directory: bool,
    /// Sort by time of modification, newest first
    #[arg(short = 't', overrides_with_all = ["by_size", "unsorted", "by_extension", "sort"])]
    by_time: bool,
    /// Sort by size, largest first
    #[arg(short = 'S', overrides_with_all = ["by_time", "unsorted", "by_extension", "sort"])]
    by_size: bool,
    /// Do not sort: keep the server's order
    #[arg(short = 'U', overrides_with_all = ["by_time", "by_size", "by_extension", "sort"])]
    unsorted: bool,
    /// Sort by extension, the part of a name from the last dot on
    #[arg(short = 'X', overrides_with_all = ["by_time", "by_size", "unsorted", "sort"])]
    by_extension: bool,
    /// Sort by this
    #[arg(long, value_name = "WORD", overrides_with_all = ["by_time", "by_size", "unsorted", "by_extension"])]
    sort: Option<Sort>,
    /// The same as -a -U
    #[arg(short = 'f')]
    raw: bool,
    /// List directories before everything else
    #[arg(long)]
    pub group_directories_first: bool,
    /// Use the time of the last change of attributes: print it with -l, sort by it with -t or without -l
    #[arg(short = 'c', overrides_with_all = ["access_time", "time"])]
    change_time: bool,
    /// Use the time of the last access in the same way
    #[arg(short = 'u', overrides_with_all = ["change_time", "time"])]
    access_time: bool,
    /// Use this time in the same way
    #[arg(long, value_name = "WORD", overrides_with_all = ["change_time", "access_time"])]
    time: Option<Time>,
    /// Format of times
    #[arg(long, value_name = "STYLE")]
    time_style: Option<TimeStyle>,
    /// The same as -l --time-style=full-iso
    #[arg(long)]
    full_time: bool,
    /// The same as -l without owners
    #[arg(short = 'g')]
    pub no_owner: bool,
    /// The same as -l without groups
    #[arg(short = 'o')]
    long_without_group: bool,
    /// With -l: print no groups
    #[arg(short = 'G', long)]
    no_group: bool,
    /// Print the space that each file takes, in blocks of 1024 bytes
    #[arg(short = 's', long = "size")]
    pub blocks: bool,
    /// Append a mark to names: / directory, * program, @ symbolic link, | FIFO, = socket
    #[arg(short = 'F', long, overrides_with = "slashes")]
    pub classify: bool,
    /// Append / to directories
    #[arg(short = 'p', overrides_with = "classify")]
    pub slashes: bool,
    /// Leave out names that end in ~
    #[arg(short = 'B', long)]
    pub ignore_backups: bool,
    /// Leave out names that match this shell pattern; may be given more than once
    #[arg(short = 'I', long, value_name = "PATTERN")]
    pub ignore: Vec<String>,
    /// The same, but not with -a or -A
    #[arg(long, value_name = "PATTERN")]
    pub hide: Vec<String>,
    /// Count in blocks of 1024 bytes (the default)
    #[arg(short = 'k', long)]
    kibibytes: bool,
    /// Accepted for compatibility; there are no colours
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "auto")]
    color: Option<Colour>,
    /// Reverse the order
    #[arg(short = 'r', long)]
    pub reverse: bool,
    /// Print sizes with units, such as 1.5K or 12M
    #[arg(short = 'h', long, overrides_with = "si")]
    pub human_readable: bool,
    /// The same, with powers of 1000
    #[arg(long, overrides_with = "human_readable")]
    pub si: bool,
    /// Print the file id (inode number) of each file
    #[arg(short = 'i', long)]
    pub inode: bool,
    /// Print names unchanged, also on a terminal
    #[arg(short = 'N', long, overrides_with_all = ["quote", "quote_name", "escape"])]
    literal: bool,
    /// Quote names for a shell where needed, also if the output is not a terminal
    #[arg(long, overrides_with_all = ["literal", "quote_name", "escape"])]
    quote: bool,
    /// Print names in double quotes, with C escapes
    #[arg(short = 'Q', long, overrides_with_all = ["literal", "quote", "escape"])]
    quote_name: bool,
    /// Print names with C escapes for what is not printable
    #[arg(short = 'b', long, overrides_with_all = ["literal", "quote", "quote_name"])]
    escape: bool,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// By name
    Name,
    /// By time, newest first
    Time,
    /// By size, largest first
    Size,
    /// By extension
    Extension,
    /// In the server's order
    None,
}

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Single,
    Down,
    Across,
    Commas,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quoting {
    None,
    /// For a shell, where needed.
    Shell,
    /// C escapes in double quotes.
    Quotes,
    /// C escapes without quotes.
    Escapes,
}

impl LsArgs {
    /// Only used without `-l`.
    pub fn layout(&self, terminal: bool) -> Layout {
        match (self.single, self.across, self.commas) {
            (true, ..) => Layout::Single,
            (_, true, _) => Layout::Across,
            (.., true) => Layout::Commas,
            _ if self.columns || terminal => Layout::Down,
            _ => Layout::Single,
        }
    }

    pub fn quoting(&self, terminal: bool) -> Quoting {
        match (self.literal, self.quote_name, self.escape) {
            (true, ..) => Quoting::None,
            (_, true, _) => Quoting::Quotes,
            (.., true) => Quoting::Escapes,
            _ if self.quote || terminal => Quoting::Shell,
            _ => Quoting::None,
        }
    }

    pub fn in_lines(&self) -> bool {
        self.long || self.numeric || self.no_owner || self.long_without_group || self.full_time
    }

    /// Whether names that begin with a dot are listed, with `.` and `..`.
    pub fn all(&self) -> bool {
        self.all || self.raw
    }

    pub fn no_group(&self) -> bool {
        self.no_group || self.long_without_group
    }

    pub fn sort(&self) -> Sort {
        match (self.sort, self.by_time, self.by_size, self.by_extension) {
            _ if self.raw || self.unsorted => Sort::None,
            (Some(sort), ..) => sort,
            (_, true, ..) => Sort::Time,
            (_, _, true, _) => Sort::Size,
            (.., true) => Sort::Extension,
            // A time that is not printed can only be meant for sorting.
            _ if !self.in_lines() && self.time() != Time::Mtime => Sort::Time,
            _ => Sort::Name,
        }
    }

    pub fn time(&self) -> Time {
        match (self.time, self.change_time, self.access_time) {
            (Some(time), ..) => time,
            (_, true, _) => Time::Ctime,
            (.., true) => Time::Atime,
            _ => Time::Mtime,
        }
    }

    pub fn time_style(&self) -> TimeStyle {
        let full = if self.full_time { TimeStyle::FullIso } else { TimeStyle::Locale };
        self.time_style.unwrap_or(full)
    }
}
