//! The commands that do on an NFS server what the GNU tools of the same names do on a mounted one: their names, flags,
//! output and exit statuses, on `nfs://` URLs.
//!
//! | room | subject |
//! |---|---|
//! | `args` | what can be typed |
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

pub mod args;
mod ask;
mod cat;
pub mod causes;
mod cp;
mod diff_tree;
mod du;
mod find;
mod lines;
mod ls;
pub mod message;
mod mkdir;
mod mode;
mod operand;
mod owners;
pub mod quote;
mod rm;
mod show;
mod stat;
mod sync_tree;
mod tar;
pub mod tar_args;
mod tool;
mod trees_args;
mod value;
mod visit;

use crate::exit::Exit;
use args::Tools;
use landfast_client::fs::{Meta, Owner};
use landfast_nfs::v4::{FileType, NfsTime};
use serde_json::{Value, json};

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
    let common = args::Common::default();
    mkdir::run(args::MkdirArgs {
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

/// `dir/name`, as GNU's tools put it together.
fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let between: &[u8] = if dir.is_empty() || dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, between, name].concat()
}

/// An object for programs: its path (bytes that are not UTF-8 are replaced) and attributes.
fn meta_json(path: &[u8], meta: &Meta) -> Value {
    let owner = |owner: &Owner| match owner {
        Owner::Id(id) => json!(id),
        Owner::Name(name) => json!(String::from_utf8_lossy(name)),
    };
    let time = |t: NfsTime| json!(format!("{}.{:09}", t.seconds, t.nseconds));
    json!({
        "path": String::from_utf8_lossy(path),
        "type": meta.kind.map_or("unknown", kind_name),
        "mode": format!("{:04o}", meta.mode),
        "links": meta.links,
        "owner": owner(&meta.owner),
        "group": owner(&meta.group),
        "size": meta.size,
        "used": meta.used,
        "fileid": meta.fileid,
        "modified": time(meta.modified),
        "changed": time(meta.changed),
        "accessed": time(meta.accessed),
    })
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Dir => "directory",
        FileType::Lnk => "symbolic link",
        FileType::Blk => "block special file",
        FileType::Chr => "character special file",
        FileType::Sock => "socket",
        FileType::Fifo => "fifo",
        _ => "regular file",
    }
}
