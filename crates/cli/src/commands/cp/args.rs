//! The arguments of `landfast cp`, and what they mean together.

use super::super::common::Common;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use landfast_client::copy::Sparse;
use landfast_client::fs::Reflink;
use landfast_client::local::Follow;
use landfast_client::put::{When, Xattrs};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct CpArgs {
    /// Sources and the destination: paths of this machine or nfs://HOST[:PORT]/PATH
    #[arg(value_name = "SOURCE... DEST")]
    pub operands: Vec<String>,
    /// The same as -dR --preserve=all
    #[arg(short = 'a', long)]
    archive: bool,
    /// Copy directories with everything in them
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    recursive: bool,
    /// The same as -P --preserve=links
    #[arg(short = 'd')]
    links_as_links: bool,
    /// Copy symbolic links as symbolic links
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "start_dereference"])]
    no_dereference: bool,
    /// Follow symbolic links
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "start_dereference"])]
    dereference: bool,
    /// Follow symbolic links that are operands, but none below them
    #[arg(short = 'H', id = "start_dereference", overrides_with_all = ["no_dereference", "dereference"])]
    start_dereference: bool,
    /// The same as --preserve=mode,ownership,timestamps
    #[arg(short = 'p')]
    preserve_some: bool,
    /// Attributes to keep: mode, ownership, timestamps, links, xattr, all
    #[arg(
        long,
        value_name = "LIST",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "mode,ownership,timestamps",
        value_delimiter = ','
    )]
    preserve: Vec<Kept>,
    /// Attributes not to keep
    #[arg(long, value_name = "LIST", require_equals = true, value_delimiter = ',')]
    no_preserve: Vec<Kept>,
    /// If an existing file cannot be opened, remove it and try again
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Ask before an existing file is overwritten
    #[arg(short = 'i', long, overrides_with = "no_clobber")]
    pub interactive: bool,
    /// Never overwrite an existing file
    #[arg(short = 'n', long, overrides_with = "interactive")]
    no_clobber: bool,
    /// Overwrite an existing file only if it is older than the source
    #[arg(short = 'u', long)]
    pub(super) update: bool,
    /// Remove each existing file before it is written
    #[arg(long)]
    pub remove_destination: bool,
    /// Stay on the source's filesystem: directories of other filesystems are copied empty
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// When to make holes in copies of sparse files
    #[arg(
        long,
        value_name = "WHEN",
        require_equals = true,
        default_value = "auto",
        value_parser = when([Sparse::Auto, Sparse::Always, Sparse::Never])
    )]
    pub sparse: Sparse,
    /// Let copies share the sources' storage, which a server can do for files that it has already. auto: if the server
    /// can, otherwise copy; always: fail if it cannot; never: send all data through this machine
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always",
        value_parser = when([Reflink::Auto, Reflink::Always, Reflink::Never])
    )]
    pub reflink: Reflink,
    /// Treat DEST as the name of the copy, never as a directory to put it in
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    pub no_target_directory: bool,
    /// Copy all operands into this directory
    #[arg(short = 't', long, value_name = "DIRECTORY")]
    pub target_directory: Option<String>,
    /// Record in this file what is durable; if the file exists, continue from there
    #[arg(long, value_name = "JOURNAL")]
    pub resume: Option<PathBuf>,
    /// Print each file that is copied
    #[arg(short = 'v', long)]
    pub verbose: bool,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kept {
    Mode,
    Ownership,
    Timestamps,
    Links,
    Xattr,
    All,
}

/// Parses WHEN: the value for auto, always or never.
fn when<T: Clone + Send + Sync + 'static>([auto, always, never]: [T; 3]) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(["auto", "always", "never"]).map(move |word| match word.as_str() {
        "always" => always.clone(),
        "never" => never.clone(),
        _ => auto.clone(),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preserve {
    pub mode: bool,
    pub ownership: bool,
    pub timestamps: bool,
    pub links: bool,
    pub xattrs: Xattrs,
}

impl CpArgs {
    pub fn recursive(&self) -> bool {
        self.recursive || self.archive
    }

    pub fn follow(&self) -> Follow {
        match (self.dereference, self.start_dereference, self.no_dereference) {
            (true, ..) => Follow::Always,
            (_, true, _) => Follow::Start,
            (.., true) => Follow::Never,
            _ if self.recursive() || self.links_as_links => Follow::Never,
            _ => Follow::Always,
        }
    }

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

    pub fn when(&self) -> When {
        match (self.no_clobber, self.interactive, self.update) {
            (true, ..) => When::Never,
            (_, true, _) => When::Agreed,
            (.., true) => When::Older,
            _ => When::Always,
        }
    }

    /// The options that decide what the copy looks like, for the journal.
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
            (self.sparse == Sparse::Always, "--sparse=always"),
            (self.sparse == Sparse::Never, "--sparse=never"),
            (self.reflink == Reflink::Always, "--reflink=always"),
            (self.reflink == Reflink::Never, "--reflink=never"),
            (self.no_target_directory, "-T"),
            (self.target_directory.is_some(), "-t"),
        ]
        .iter()
        .filter_map(|(set, word)| set.then_some(*word))
        .collect::<Vec<_>>()
        .join(" ")
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
