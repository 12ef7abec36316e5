//! What can be typed behind `landfast cp`, and what it means together.

use super::super::common::Common;
use clap::{Args, ValueEnum};
use landfast_client::copy::Sparse;
use landfast_client::fs::Reflink;
use landfast_client::local::Follow;
use landfast_client::put::{When, Xattrs};
use std::path::PathBuf;

/// `landfast cp`.
#[derive(Debug, Args)]
pub struct CpArgs {
    /// What to copy, and where to: paths of this machine, or nfs://HOST[:PORT]/PATH
    #[arg(value_name = "SOURCE... DEST")]
    pub operands: Vec<String>,
    /// As -dR --preserve=all
    #[arg(short = 'a', long)]
    archive: bool,
    /// Directories with all below them
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    recursive: bool,
    /// As -P --preserve=links
    #[arg(short = 'd')]
    links_as_links: bool,
    /// Symbolic links are copied as such
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "start_dereference"])]
    no_dereference: bool,
    /// Symbolic links are followed
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "start_dereference"])]
    dereference: bool,
    /// Symbolic links are followed that are operands themselves
    #[arg(short = 'H', id = "start_dereference", overrides_with_all = ["no_dereference", "dereference"])]
    start_dereference: bool,
    /// As --preserve=mode,ownership,timestamps
    #[arg(short = 'p')]
    preserve_some: bool,
    /// What is kept: mode, ownership, timestamps, links, xattr, all
    #[arg(
        long,
        value_name = "LIST",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "mode,ownership,timestamps",
        value_delimiter = ','
    )]
    preserve: Vec<Kept>,
    /// What is not
    #[arg(long, value_name = "LIST", require_equals = true, value_delimiter = ',')]
    no_preserve: Vec<Kept>,
    /// A file that exists and may not be opened is removed first
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Ask before a file is copied over
    #[arg(short = 'i', long, overrides_with = "no_clobber")]
    pub interactive: bool,
    /// Existing files stay
    #[arg(short = 'n', long, overrides_with = "interactive")]
    no_clobber: bool,
    /// Existing files stay unless they are older than the source
    #[arg(short = 'u', long)]
    update: bool,
    /// Existing files are removed first
    #[arg(long)]
    pub remove_destination: bool,
    /// Directories of other filesystems are copied empty
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// What becomes of holes
    #[arg(long, value_name = "WHEN", require_equals = true, default_value = "auto")]
    sparse: Holes,
    /// Whether copies share the sources' storage, which a server does for files that it has already (`auto`: if it can, and
    /// else it copies; `never`: data goes through this machine)
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always"
    )]
    reflink: Sharing,
    /// DEST is the copy itself, never a directory to put it in
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    pub no_target_directory: bool,
    /// Where to: all operands are sources
    #[arg(short = 't', long, value_name = "DIRECTORY")]
    pub target_directory: Option<String>,
    /// Note in this file what is on stable storage, and go on from there when it is there already
    #[arg(long, value_name = "JOURNAL")]
    pub resume: Option<PathBuf>,
    /// Say what is copied
    #[arg(short = 'v', long)]
    pub verbose: bool,
    #[command(flatten)]
    pub common: Common,
}

/// What can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kept {
    Mode,
    Ownership,
    Timestamps,
    Links,
    Xattr,
    All,
}

/// `--sparse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Holes {
    Auto,
    Always,
    Never,
}

/// `--reflink`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sharing {
    Auto,
    Always,
    Never,
}

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preserve {
    /// Permission bits.
    pub mode: bool,
    /// Owner and group.
    pub ownership: bool,
    /// Times of modification and of access.
    pub timestamps: bool,
    /// Which names are one file.
    pub links: bool,
    /// Extended attributes of users.
    pub xattrs: Xattrs,
}

impl CpArgs {
    /// Whether directories are entered.
    pub fn recursive(&self) -> bool {
        self.recursive || self.archive
    }

    /// Which symbolic links are followed.
    pub fn follow(&self) -> Follow {
        match (self.dereference, self.start_dereference, self.no_dereference) {
            (true, ..) => Follow::Always,
            (_, true, _) => Follow::Start,
            (.., true) => Follow::Never,
            _ if self.recursive() || self.links_as_links => Follow::Never,
            _ => Follow::Always,
        }
    }

    /// What is kept.
    pub fn preserve(&self) -> Preserve {
        let mut kept = Preserve::default();
        if self.links_as_links {
            kept.set(Kept::Links, true);
        }
        if self.preserve_some {
            [Kept::Mode, Kept::Ownership, Kept::Timestamps].iter().for_each(|what| kept.set(*what, true));
        }
        if self.archive {
            kept.set(Kept::All, true);
        }
        self.preserve.iter().for_each(|what| kept.set(*what, true));
        self.no_preserve.iter().for_each(|what| kept.set(*what, false));
        kept
    }

    /// Which existing files are copied over.
    pub fn when(&self) -> When {
        match (self.no_clobber, self.interactive, self.update) {
            (true, ..) => When::Never,
            (_, true, _) => When::Agreed,
            (.., true) => When::Older,
            _ => When::Always,
        }
    }

    /// Only those that are older than the source are asked about.
    pub fn asks_of_older(&self) -> bool {
        self.update
    }

    /// Whether copies share storage.
    pub fn reflink(&self) -> Reflink {
        match self.reflink {
            Sharing::Auto => Reflink::Auto,
            Sharing::Always => Reflink::Always,
            Sharing::Never => Reflink::Never,
        }
    }

    /// What it was asked to do, as far as that makes a difference to what comes of it.
    pub fn options(&self) -> String {
        let kept = self.preserve();
        [
            (self.recursive(), "-r"),
            (self.follow() == Follow::Always, "-L"),
            (self.follow() == Follow::Start, "-H"),
            (kept.mode, "--preserve=mode"),
            (kept.ownership, "--preserve=ownership"),
            (kept.timestamps, "--preserve=timestamps"),
            (kept.links, "--preserve=links"),
            (kept.xattrs != Xattrs::No, "--preserve=xattr"),
            (self.force, "-f"),
            (self.remove_destination, "--remove-destination"),
            (self.one_file_system, "-x"),
            (self.sparse() == Sparse::Always, "--sparse=always"),
            (self.sparse() == Sparse::Never, "--sparse=never"),
            (self.reflink() == Reflink::Always, "--reflink=always"),
            (self.reflink() == Reflink::Never, "--reflink=never"),
            (self.no_target_directory, "-T"),
            (self.target_directory.is_some(), "-t"),
        ]
        .iter()
        .filter_map(|(set, word)| set.then_some(*word))
        .collect::<Vec<_>>()
        .join(" ")
    }

    /// What becomes of holes.
    pub fn sparse(&self) -> Sparse {
        match self.sparse {
            Holes::Auto => Sparse::Auto,
            Holes::Always => Sparse::Always,
            Holes::Never => Sparse::Never,
        }
    }
}

impl Preserve {
    fn set(&mut self, what: Kept, yes: bool) {
        let all = what == Kept::All;
        self.xattrs = match (what, yes) {
            (Kept::Xattr | Kept::All, false) => Xattrs::No,
            (Kept::Xattr, true) => Xattrs::Must,
            (Kept::All, true) if self.xattrs == Xattrs::No => Xattrs::Try,
            _ => self.xattrs,
        };
        for (kept, place) in [
            (Kept::Mode, &mut self.mode),
            (Kept::Ownership, &mut self.ownership),
            (Kept::Timestamps, &mut self.timestamps),
            (Kept::Links, &mut self.links),
        ] {
            if all || what == kept {
                *place = yes;
            }
        }
    }
}
