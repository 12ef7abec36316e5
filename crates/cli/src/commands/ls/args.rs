//! What can be typed behind `landfast ls`. Letters and names are GNU's.

use super::super::common::{Common, Time};
use clap::{Args, ValueEnum};

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
