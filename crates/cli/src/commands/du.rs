//! `landfast du`, as GNU's: the space that trees take on the server's disks. A file with several names counts once.

use super::common::{Common, Time};
use super::object::meta_json;
use super::tool::{self, Tool};
use super::visit::{Visit, VisitOptions, in_order};
use super::{quote, show};
use crate::exit::Exit;
use crate::say;
use clap::Args;
use landfast_client::fs::{Meta, WalkOptions};
use landfast_client::glob;
use landfast_nfs::v4::NfsTime;
use serde_json::json;
use std::collections::HashSet;
use std::ops::ControlFlow;

#[derive(Debug, Args)]
pub struct DuArgs {
    /// Trees to add up: nfs://HOST[:PORT]/PATH
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Print only the sum for each operand
    #[arg(short = 's', long)]
    pub summarize: bool,
    /// Print files as well, not only directories
    #[arg(short = 'a', long)]
    pub all: bool,
    /// Print only what is at most N levels below an operand
    #[arg(short = 'd', long, value_name = "N")]
    pub max_depth: Option<usize>,
    /// Print the sum of all operands at the end
    #[arg(short = 'c', long)]
    pub total: bool,
    /// Print sizes with units, such as 1.5K or 12M
    #[arg(short = 'h', long, overrides_with_all = ["si", "kibibytes", "mebibytes", "block_size"])]
    pub human_readable: bool,
    /// The same, with powers of 1000
    #[arg(long, overrides_with_all = ["human_readable", "kibibytes", "mebibytes", "block_size"])]
    pub si: bool,
    /// Count in blocks of 1024 bytes (the default)
    #[arg(short = 'k', overrides_with_all = ["human_readable", "si", "mebibytes", "block_size"])]
    kibibytes: bool,
    /// Count in blocks of 1 MiB
    #[arg(short = 'm', overrides_with_all = ["human_readable", "si", "kibibytes", "block_size"])]
    pub mebibytes: bool,
    /// Count in blocks of this size: 512, 1M, or M, which also prints M behind each number
    #[arg(
        short = 'B',
        long,
        value_name = "SIZE",
        overrides_with_all = ["human_readable", "si", "kibibytes", "mebibytes"]
    )]
    pub block_size: Option<String>,
    /// Follow operands that are symbolic links
    #[arg(short = 'D', visible_short_alias = 'H', long)]
    pub dereference_args: bool,
    /// Print the newest time of everything in it as well: the last change of data, or with atime or ctime the last
    /// access or change of attributes
    #[arg(long, value_name = "WORD", num_args = 0..=1, require_equals = true, default_missing_value = "mtime")]
    pub time: Option<Time>,
    /// Count objects, not the space that they take
    #[arg(long)]
    pub inodes: bool,
    /// Do not add subdirectories to the sum of a directory
    #[arg(short = 'S', long)]
    pub separate_dirs: bool,
    /// Count a file with several names once for each name
    #[arg(short = 'l', long)]
    pub count_links: bool,
    /// Stay on the operand's filesystem
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Leave out what matches this shell pattern; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Print only what takes at least SIZE, or at most SIZE if it is written as -SIZE
    #[arg(short = 't', long, value_name = "SIZE", allow_hyphen_values = true)]
    pub threshold: Option<String>,
    /// End lines with NUL, not newline
    #[arg(short = '0', long)]
    pub null: bool,
    /// Count the lengths of files, not the space that they take
    #[arg(long)]
    pub apparent_size: bool,
    /// The same as --apparent-size, in bytes
    #[arg(short = 'b', long)]
    pub bytes: bool,
    #[command(flatten)]
    pub common: Common,
}

pub fn run(args: DuArgs) -> Exit {
    let wrong = match (args.summarize, args.all, args.max_depth) {
        (true, true, _) => Some("cannot both summarize and show all entries".to_owned()),
        (true, _, Some(depth)) if depth > 0 => {
            Some(format!("warning: summarizing conflicts with --max-depth={depth}"))
        }
        _ => None,
    };
    if let Some(wrong) = wrong {
        eprintln!("du: {wrong}");
        eprintln!("Try 'landfast du --help' for more information.");
        return Exit::Partly;
    }
    if args.summarize && args.max_depth == Some(0) {
        eprintln!("du: warning: summarizing is the same as using --max-depth=0");
    }
    let threshold = match args.threshold.as_deref().map(|text| (text, Threshold::parse(text))) {
        None => None,
        Some((_, Some(threshold))) => Some(threshold),
        Some((text, None)) => {
            eprintln!("du: invalid --threshold argument {}", quote::shown(text.as_bytes()));
            return Exit::Partly;
        }
    };
    let blocks = match args.block_size.as_deref().map(|text| (text, Blocks::parse(text))) {
        None => Blocks { bytes: if args.mebibytes { 1 << 20 } else { 1 << 10 }, unit: String::new() },
        Some((_, Some(blocks))) => blocks,
        Some((text, None)) => {
            let suffix = if text.starts_with(|c: char| c.is_ascii_digit()) { "suffix in " } else { "" };
            eprintln!("du: invalid {suffix}-B argument {}", quote::shown(text.as_bytes()));
            return Exit::Partly;
        }
    };
    tool::run("du", args.common, move |tool| add_up(tool, args, threshold, blocks))
}

/// Parses `NUMBER[UNIT]` with GNU's units; `nothing`: the number if there is only a unit.
fn bytes_of(text: &str, nothing: u64) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (letter, base) = match unit.as_bytes() {
        [] => (b'B', 1024),
        [letter] | [letter, b'i', b'B'] => (*letter, 1024),
        [letter, b'B'] => (*letter, 1000),
        _ => return None,
    };
    let power = match letter {
        b'B' if unit.is_empty() => 0,
        letter => 1 + b"KMGTPE".iter().position(|known| *known == letter.to_ascii_uppercase())?,
    };
    let number = match number {
        "" if nothing > 0 && power > 0 => nothing,
        number => number.parse().ok()?,
    };
    number.checked_mul(u64::pow(base, power as u32))
}

/// The unit in which sizes are printed.
#[derive(Debug, PartialEq, Eq)]
struct Blocks {
    bytes: u64,
    /// The suffix of each number.
    unit: String,
}

impl Blocks {
    fn parse(text: &str) -> Option<Blocks> {
        let bytes = bytes_of(text, 1).filter(|bytes| *bytes > 0)?;
        let unit = match text.as_bytes() {
            [first, ..] if first.is_ascii_digit() => String::new(),
            [_, b'B'] if bytes == 1000 => "kB".to_owned(),
            [first, rest @ ..] => {
                format!("{}{}", first.to_ascii_uppercase() as char, String::from_utf8_lossy(rest))
            }
            [] => return None,
        };
        Some(Blocks { bytes, unit })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Threshold {
    Least(u64),
    Most(u64),
}

impl Threshold {
    /// Parses `[-]NUMBER[UNIT]` with GNU's units.
    fn parse(text: &str) -> Option<Threshold> {
        let (most, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        let number = bytes_of(text, 0)?;
        match most {
            true => (number > 0).then_some(Threshold::Most(number)),
            false => Some(Threshold::Least(number)),
        }
    }

    fn allows(self, size: u64) -> bool {
        match self {
            Threshold::Least(least) => size >= least,
            Threshold::Most(most) => size <= most,
        }
    }
}

/// A directory whose sum is not complete yet.
struct Level {
    path: Vec<u8>,
    meta: Meta,
    /// The directory itself and everything in it but subdirectories.
    own: u64,
    below: u64,
    /// The newest time of what `own` counts, and of what `below` counts.
    own_time: NfsTime,
    below_time: NfsTime,
    /// It was counted before or is excluded: nothing in it counts.
    skipped: bool,
}

async fn add_up(mut tool: Tool, args: DuArgs, threshold: Option<Threshold>, blocks: Blocks) -> Tool {
    let operands = tool.places(&args.urls, "cannot access", Exit::Partly).await;
    // An object that is in two operands counts once.
    let all_once = args.urls.len() > 1;
    let depth_shown = if args.summarize { 0 } else { args.max_depth.unwrap_or(usize::MAX) };
    let mut seen: HashSet<(u64, u64, u64)> = HashSet::new();
    let mut stack: Vec<Level> = Vec::new();
    let (mut total, mut objects) = (0, 0);
    let mut newest = NEVER;
    // The filesystem of the current operand.
    let mut filesystem = None;
    let shows = |bytes| threshold.is_none_or(|threshold| threshold.allows(bytes));
    let mut each = |tool: &mut Tool, visit: Visit<'_>| match visit {
        Visit::Object { path, depth, meta, walked, .. } => {
            objects += 1;
            if depth == 0 {
                filesystem = Some(meta.fsid);
            }
            let within_skipped = stack.last().is_some_and(|level| level.skipped);
            let elsewhere = args.one_file_system && filesystem != Some(meta.fsid);
            let once = !args.count_links && (all_once || (meta.links > 1 && !meta.is_dir()));
            let skipped = within_skipped
                || elsewhere
                || is_excluded(&args.exclude, path)
                || (once && !seen.insert((meta.fsid.major, meta.fsid.minor, meta.fileid)));
            let bytes = match (skipped, args.apparent_size || args.bytes) {
                (true, _) => 0,
                _ if args.inodes => 1,
                (false, true) => meta.size,
                (false, false) => meta.used,
            };
            let time = match (skipped, args.time) {
                (true, _) => NEVER,
                (_, Some(Time::Atime)) => meta.accessed,
                (_, Some(Time::Ctime)) => meta.changed,
                _ => meta.modified,
            };
            total += bytes;
            newest = newest.max(time);
            if walked {
                let (path, meta) = (path.to_vec(), meta.clone());
                let (own_time, below_time) = (time, NEVER);
                stack.push(Level { path, meta, own: bytes, below: 0, own_time, below_time, skipped });
                return;
            }
            if let Some(level) = stack.last_mut() {
                level.own += bytes;
                level.own_time = level.own_time.max(time);
            }
            if !skipped && (depth == 0 || (args.all && depth <= depth_shown)) && shows(bytes) {
                say(tool, (&args, &blocks), path, meta, (bytes, time));
            }
        }
        Visit::Unlisted => {}
        Visit::Left => {
            let Some(level) = stack.pop() else { return };
            let Level { path, meta, own, below, own_time, below_time, skipped } = level;
            let all_time = own_time.max(below_time);
            if let Some(level) = stack.last_mut() {
                level.below += own + below;
                level.below_time = level.below_time.max(all_time);
            }
            let (bytes, time) = match args.separate_dirs {
                true => (own, own_time),
                false => (own + below, all_time),
            };
            if !skipped && stack.len() <= depth_shown && shows(bytes) {
                say(tool, (&args, &blocks), &path, &meta, (bytes, time));
            }
        }
    };
    let walk = WalkOptions { parts: true, ..WalkOptions::default() };
    let how = VisitOptions { follow: args.dereference_args, walk };
    in_order(&mut tool, operands, "cannot access", how, |tool, visit| {
        each(tool, visit);
        ControlFlow::Continue(())
    })
    .await;
    if args.total {
        if tool.json() {
            tool.print_object(&json!({ "total": true, "bytes": total }));
        } else {
            let line = format!("{}\t{}total{}", size(&args, &blocks, total), time(&args, newest), end(&args));
            tool.print(line.as_bytes());
        }
    }
    tool.summary("visited", objects);
    tool
}

/// Whether a pattern matches the path, or the end of it from some name on.
fn is_excluded(patterns: &[String], path: &[u8]) -> bool {
    let like = |text: &[u8]| patterns.iter().any(|pattern| glob::matches(pattern.as_bytes(), text));
    let mut after = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| &path[at + 1..]);
    !patterns.is_empty() && (like(path) || after.any(|end| !end.starts_with(b"/") && like(end)))
}

const NEVER: NfsTime = NfsTime { seconds: i64::MIN, nseconds: 0 };

/// The column between size and path.
fn time(args: &DuArgs, time: NfsTime) -> String {
    match args.time {
        None => String::new(),
        Some(_) => format!("{}\t", show::iso_time(time)),
    }
}

fn size(args: &DuArgs, blocks: &Blocks, bytes: u64) -> String {
    if args.human_readable {
        show::human(bytes)
    } else if args.si {
        show::si(bytes)
    } else if args.inodes || args.bytes && args.block_size.is_none() {
        bytes.to_string()
    } else {
        format!("{}{}", bytes.div_ceil(blocks.bytes), blocks.unit)
    }
}

fn end(args: &DuArgs) -> char {
    if args.null { '\0' } else { '\n' }
}

fn say(
    tool: &mut Tool,
    (args, blocks): (&DuArgs, &Blocks),
    path: &[u8],
    meta: &Meta,
    (bytes, newest): (u64, NfsTime),
) {
    if tool.json() {
        let mut object = meta_json(path, meta);
        object["bytes"] = json!(bytes);
        tool.print_object(&object);
    } else {
        let (size, time) = (size(args, blocks, bytes), time(args, newest));
        let path = say::name_for_stdout(path);
        tool.print(&[size.as_bytes(), b"\t", time.as_bytes(), &path, &[end(args) as u8]].concat());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_sizes_of_gnu() {
        let blocks = |bytes, unit: &str| Some(Blocks { bytes, unit: unit.to_owned() });
        for (text, wanted) in [
            ("512", blocks(512, "")),
            ("1M", blocks(1 << 20, "")),
            ("M", blocks(1 << 20, "M")),
            ("k", blocks(1 << 10, "K")),
            ("KB", blocks(1000, "kB")),
            ("MiB", blocks(1 << 20, "MiB")),
            ("0", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(Blocks::parse(text), wanted, "{text}");
        }
    }

    #[test]
    fn thresholds_are_sizes_of_gnu() {
        for (text, threshold) in [
            ("0", Some(Threshold::Least(0))),
            ("1k", Some(Threshold::Least(1024))),
            ("2MB", Some(Threshold::Least(2_000_000))),
            ("-3GiB", Some(Threshold::Most(3 << 30))),
            ("-0", None),
            ("", None),
            ("k", None),
            ("1x", None),
            ("B", None),
            ("99999999999E", None),
        ] {
            assert_eq!(Threshold::parse(text), threshold, "{text}");
        }
    }
}
