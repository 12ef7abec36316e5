//! Commands that do on an NFS server what the GNU tools of the same names do on a mounted filesystem: their names,
//! flags, output and exit statuses, with `nfs://` URLs.
//!
//! | file | subject |
//! |---|---|
//! | `common` | options that several commands have |
//! | `object` | attributes as JSON, names of file types |
//! | `operand` | URLs as operands: the server, the path there, the name in messages |
//! | `ask` | questions on standard error, answers from standard input |
//! | `owners` | numbers and names of owners on this machine |
//! | `tool` | shared by all commands: messages, output, statistics, interruption |
//! | `quote`, `mode`, `message` | names, modes and errors as GNU prints them (pure) |
//! | `show` | owners, times and sizes as GNU prints them |
//! | `lines` | the options of `cat` that change lines (pure) |
//! | `visit` | operands and everything below them, depth first |
//! | `value` | values of a format, printed as by printf(3) (pure) |
//! | `ls`, `stat`, `du`, `find`, `cat`, `cp`, `rm`, `mkdir`, `tar`, `diff_tree`, `sync_tree` | one command each |

mod ask;
mod cat;
pub mod causes;
mod common;
pub mod cp;
mod diff_tree;
mod du;
mod find;
mod lines;
mod ls;
pub mod message;
mod mkdir;
mod mode;
mod object;
mod operand;
mod owners;
pub mod quote;
mod rm;
mod show;
mod stat;
mod sync_tree;
pub mod tar;
mod tool;
mod trees_args;
mod value;
mod visit;

use crate::exit::Exit;
use clap::Subcommand;
use common::Common;

#[derive(Debug, Subcommand)]
pub enum Tools {
    /// List directories on an NFS server, as ls does
    #[command(disable_help_flag = true)]
    Ls(ls::args::LsArgs),
    /// Print the attributes of files on an NFS server, as stat does
    #[command(disable_help_flag = true)]
    Stat(stat::StatArgs),
    /// Add up the space that trees on an NFS server take, as du does
    #[command(disable_help_flag = true)]
    Du(du::DuArgs),
    /// Search trees on an NFS server, as find does
    #[command(
        disable_help_flag = true,
        after_help = "Tests: -name -iname -path -ipath -type -size -mtime -mmin -atime -amin -ctime -cmin -newer URL \
-anewer URL -cnewer URL -newerXY URL -newermt TIME -samefile URL -empty -perm -user -group -uid -gid -nouser -nogroup -inum \
-links -regex -iregex -regextype -true -false; actions: -print -print0 -printf -ls -delete -quit -prune; -mindepth -maxdepth -depth -xdev; operators: ( ) ! -not -a -and -o -or ,\n\
--json, --rpc-counts and --timeout DURATION as with the other commands."
    )]
    Find(find::FindArgs),
    /// Print files of an NFS server, as cat does
    #[command(disable_help_flag = true)]
    Cat(cat::CatArgs),
    /// Copy files and directories to, from and between NFS servers, as cp does
    #[command(disable_help_flag = true)]
    Cp(cp::args::CpArgs),
    /// Remove files and directories on an NFS server, as rm does
    #[command(disable_help_flag = true)]
    Rm(rm::args::RmArgs),
    /// Make directories on an NFS server, as mkdir does
    #[command(disable_help_flag = true)]
    Mkdir(mkdir::MkdirArgs),
    /// Create an archive of trees on an NFS server, as tar -c does; durable when it returns
    #[command(disable_help_flag = true, after_help = tar::args::AFTER_HELP)]
    Tar(tar::args::TarArgs),
    /// Compare two trees: directories of this machine, trees on NFS servers, archives
    #[command(disable_help_flag = true, after_help = trees_args::DIFF_AFTER_HELP)]
    DiffTree(trees_args::DiffTreeArgs),
    /// Make one tree the same as another, to, from or between NFS servers; only differences are sent
    #[command(disable_help_flag = true, after_help = trees_args::SYNC_AFTER_HELP)]
    SyncTree(trees_args::SyncTreeArgs),
}

pub fn run(command: Tools) -> Exit {
    match command {
        Tools::Cat(args) => cat::run(args),
        Tools::Cp(args) => cp::run(args),
        Tools::Du(args) => du::run(args),
        Tools::Find(args) => find::run(args),
        Tools::Stat(args) => stat::run(args),
        Tools::Ls(args) => ls::run(args),
        Tools::Rm(args) => rm::run(args),
        Tools::Mkdir(args) => mkdir::run(args),
        Tools::Tar(args) => tar::run(args),
        Tools::DiffTree(args) => diff_tree::run(args),
        Tools::SyncTree(args) => sync_tree::run(args),
    }
}

/// Makes the directory of a URL and those above it, as `mkdir -p`. Failures are printed.
pub fn make_destination(url: &str) -> Exit {
    let common = Common::default();
    mkdir::run(mkdir::MkdirArgs {
        urls: vec![url.to_owned()],
        parents: true,
        mode: None,
        verbose: false,
        common,
    })
}

/// The exit status of the GNU tool for a wrong command line.
pub fn usage_status(command: &str) -> Option<u8> {
    match command {
        "cp" | "rm" | "mkdir" | "stat" | "du" | "find" | "cat" => Some(1),
        "ls" => Some(2),
        _ => None,
    }
}

/// What to use in place of `tar -x` and `tar -t`, which do not exist here.
pub fn not_for_tar(words: &[String]) -> Option<&'static str> {
    let [tool, first, ..] = words else { return None };
    let letters = first.strip_prefix('-').unwrap_or(first);
    let asks =
        |letter: char, long: &str| first == long || !first.starts_with("--") && letters.starts_with(letter);
    if tool != "tar" {
        return None;
    }
    match (asks('x', "--extract") || first == "--get", asks('t', "--list")) {
        (true, _) => Some("it creates archives; landfast untar ARCHIVE nfs://HOST[:PORT]/PATH extracts them"),
        (_, true) => Some("it creates archives; tar -t of this machine lists them"),
        _ => None,
    }
}

/// The GNU tool's message for a wrong command line. `None`: use that of clap.
pub fn usage_words(e: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    match (e.kind(), e.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(arg))) => Some(match arg.strip_prefix("--") {
            Some(_) => format!("unrecognized option '{arg}'"),
            None => format!("invalid option -- '{}'", arg.trim_start_matches('-')),
        }),
        (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(args)))
            if args.iter().any(|arg| arg.starts_with("<URL")) =>
        {
            Some("missing operand".to_owned())
        }
        _ => None,
    }
}
