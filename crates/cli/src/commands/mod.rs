//! The commands that do on an NFS server what the GNU tools of the same names do on a mounted one: their names, flags,
//! output and exit statuses, on `nfs://` URLs.
//!
//! | room | subject |
//! |---|---|
//! | `common` | what all of them can be told |
//! | `object` | names and attributes as they are shown |
//! | `operand` | URLs as operands: which server, which path there, how it is shown |
//! | `ask` | questions to whoever is at standard input |
//! | `owners` | owners as numbers and names of this machine |
//! | `tool` | what all commands share: messages, output, statistics, interruption |
//! | `quote`, `mode`, `message` | names, modes and errors as GNU shows them (pure) |
//! | `show` | owners, times and sizes as GNU shows them |
//! | `lines` | what `cat` makes of lines (pure) |
//! | `visit` | operands and all below them, depth first |
//! | `value` | what letters of formats stand for, as by printf(3) (pure) |
//! | `ls`, `stat`, `du`, `find`, `cat`, `cp`, `rm`, `mkdir`, `tar`, `diff_tree`, `sync_tree` | a command each |

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

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Tools {
    /// List directories of an NFS server
    #[command(disable_help_flag = true)]
    Ls(ls::args::LsArgs),
    /// Show what an NFS server knows of a file
    #[command(disable_help_flag = true)]
    Stat(stat::StatArgs),
    /// Add up what trees on an NFS server take
    #[command(disable_help_flag = true)]
    Du(du::DuArgs),
    /// Search trees on an NFS server
    #[command(
        disable_help_flag = true,
        after_help = "Tests: -name -iname -path -ipath -type -size -mtime -mmin -atime -amin -ctime -cmin -newer URL \
-anewer URL -cnewer URL -newerXY URL -newermt TIME -samefile URL -empty -perm -user -group -uid -gid -nouser -nogroup -inum \
-links -regex -iregex -regextype -true -false; actions: -print -print0 -printf -ls -delete -quit -prune; -mindepth -maxdepth -depth -xdev; operators: ( ) ! -not -a -and -o -or ,\n\
--json, --rpc-counts and --timeout DURATION as with the other commands."
    )]
    Find(find::FindArgs),
    /// Print files of an NFS server
    #[command(disable_help_flag = true)]
    Cat(cat::CatArgs),
    /// Copy files and directories to, from and between NFS servers
    #[command(disable_help_flag = true)]
    Cp(cp::args::CpArgs),
    /// Remove files or directories on an NFS server
    #[command(disable_help_flag = true)]
    Rm(rm::args::RmArgs),
    /// Make directories on an NFS server
    #[command(disable_help_flag = true)]
    Mkdir(mkdir::MkdirArgs),
    /// Put trees of an NFS server into an archive; durable when it returns
    #[command(disable_help_flag = true, after_help = tar::args::AFTER_HELP)]
    Tar(tar::args::TarArgs),
    /// Say what differs between two trees: local ones, those of NFS servers, archives
    #[command(disable_help_flag = true, after_help = trees_args::DIFF_AFTER_HELP)]
    DiffTree(trees_args::DiffTreeArgs),
    /// Make a directory on an NFS server as one of this machine is, sending only what differs
    #[command(disable_help_flag = true, after_help = trees_args::SYNC_AFTER_HELP)]
    SyncTree(trees_args::SyncTreeArgs),
}

/// Runs one of the commands.
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

/// Makes the directory that a URL names, and those above it, as `mkdir -p` does, and says what went wrong.
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

/// The exit status of a command that was typed wrongly, as GNU's.
pub fn usage_status(command: &str) -> Option<u8> {
    match command {
        "cp" | "rm" | "mkdir" | "stat" | "du" | "find" | "cat" => Some(1),
        "ls" => Some(2),
        _ => None,
    }
}

/// What `tar` is not for, and what is.
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

/// What is said of it, as GNU's. `None`: what clap says.
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
