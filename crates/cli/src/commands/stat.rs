//! `landfast stat`, as GNU's. The block size that NFS does not tell is shown as 4096, the device as the server's fsid.

use super::args::StatArgs;
use super::operand::Place;
use super::show::{self, Names};
use super::tool::{self, Tool};
use super::{kind_name, message, meta_json, mode, quote};
use crate::exit::Exit;
use landfast_client::fs::{Meta, Owner};
use landfast_nfs::v4::{FileType, NfsTime};
use serde_json::json;

const BLOCK_BYTES: u64 = 4096;

const BEGIN: &str = "  File: %N\n  Size: %-10s\tBlocks: %-10b IO Block: %-6o %F\n";
const PLAIN: &str = "Device: %Hd,%Ld\tInode: %-10i  Links: %h\n";
const DEVICE: &str = "Device: %Hd,%Ld\tInode: %-10i  Links: %-5h Device type: %Hr,%Lr\n";
const END: &str = "Access: (%04a/%10.10A)  Uid: (%5u/%8U)   Gid: (%5g/%8G)\nAccess: %x\nModify: %y\nChange: %z\n Birth: %w\n";

/// Shows.
pub fn run(args: StatArgs) -> Exit {
    tool::run("stat", args.common, |tool| show_all(tool, args))
}

async fn show_all(mut tool: Tool, args: StatArgs) -> Tool {
    let operands = tool.places(&args.urls, "cannot statx", Exit::Partly).await;
    let places: Vec<Place> = operands.iter().map(|(_, place)| place.clone()).collect();
    let found = tool.servers.look(&places, args.dereference).await;
    let mut names = Names::new(false);
    let mut shown = 0;
    for ((operand, place), found) in operands.into_iter().zip(found) {
        let name = operand.shown.as_bytes();
        let meta = match found {
            Ok(object) => Meta::of(&object.attrs),
            Err(e) => {
                tool.complain(&format!("cannot statx {}: {}", quote::shown(name), message::of(&e)));
                continue;
            }
        };
        let text = match meta.is_link() {
            true => {
                let read = tool.servers.nfs(&place).readlinks([place.joined()]).await.pop();
                read.and_then(|r| r.into_result().ok())
            }
            false => None,
        };
        shown += 1;
        if tool.json() {
            let mut object = meta_json(name, &meta);
            if let Some(text) = text {
                object["target"] = json!(String::from_utf8_lossy(&text));
            }
            tool.print_object(&object);
            continue;
        }
        let mut object = Shown { name, meta: &meta, text: text.as_deref(), names: &mut names, quoted: true };
        let line = match &args.format {
            Some(format) => [format_as(format, &mut object), b"\n".to_vec()].concat(),
            None => {
                object.quoted = false;
                let device = matches!(meta.kind, Some(FileType::Blk | FileType::Chr));
                let middle = if device { DEVICE } else { PLAIN };
                format_as(&[BEGIN, middle, END].concat(), &mut object)
            }
        };
        tool.print(&line);
    }
    tool.summary("shown", shown);
    tool
}

/// What is shown, and how its name is quoted.
struct Shown<'a> {
    name: &'a [u8],
    meta: &'a Meta,
    text: Option<&'a [u8]>,
    names: &'a mut Names,
    quoted: bool,
}

/// `%[-0][WIDTH][.PRECISION][HL]LETTER`, each with what it stands for.
fn format_as(format: &str, object: &mut Shown<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let flags_len = rest.find(|c| !"-0+# '".contains(c)).unwrap_or(rest.len());
        let (flags, after) = rest.split_at(flags_len);
        let (width, after) = number(after);
        let (precision, after) = match after.strip_prefix('.') {
            Some(after) => number(after),
            None => (None, after),
        };
        let half = after.chars().next().filter(|c| matches!(c, 'H' | 'L'));
        let after = if half.is_some() { &after[1..] } else { after };
        let Some(letter) = after.chars().next() else {
            out.push(b'%');
            break;
        };
        rest = &after[letter.len_utf8()..];
        let Some(mut value) = value(letter, half, object) else {
            out.push(b'?');
            continue;
        };
        value.truncate(precision.unwrap_or(usize::MAX));
        let gap = width.unwrap_or_default().saturating_sub(value.len());
        let (left, zeros) = (flags.contains('-'), flags.contains('0'));
        if !left {
            out.resize(out.len() + gap, if zeros { b'0' } else { b' ' });
        }
        out.extend_from_slice(&value);
        if left {
            out.resize(out.len() + gap, b' ');
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// Digits at the start, if there are any that make sense.
fn number(text: &str) -> (Option<usize>, &str) {
    let len = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    // Nobody needs a field that wide; without a limit one would fill the memory.
    (text[..len].parse().ok().map(|n: usize| n.min(4096)), &text[len..])
}

/// What a letter stands for; `None`: nothing that is known.
fn value(letter: char, half: Option<char>, object: &mut Shown<'_>) -> Option<Vec<u8>> {
    let meta = object.meta;
    let id = |owner: &Owner| match owner {
        Owner::Id(id) => id.to_string().into_bytes(),
        Owner::Name(name) => name.to_vec(),
    };
    let named = |id: Vec<u8>, name: Vec<u8>| {
        if id == name && id.iter().all(u8::is_ascii_digit) { b"UNKNOWN".to_vec() } else { name }
    };
    let quoted = |name: &[u8]| if object.quoted { quote::always(name) } else { name.to_vec() };
    let seconds = |t: NfsTime| t.seconds.to_string().into_bytes();
    Some(match (letter, half) {
        ('%', None) => b"%".to_vec(),
        ('n', None) => object.name.to_vec(),
        ('N', None) => match object.text {
            Some(text) => [&quoted(object.name)[..], b" -> ", &quoted(text)].concat(),
            None => quoted(object.name),
        },
        ('d', Some('H')) => meta.fsid.major.to_string().into_bytes(),
        ('d', Some('L')) => meta.fsid.minor.to_string().into_bytes(),
        ('r' | 't', Some('H')) => meta.rdev.0.to_string().into_bytes(),
        ('r' | 'T', Some('L')) => meta.rdev.1.to_string().into_bytes(),
        ('t', None) => format!("{:x}", meta.rdev.0).into_bytes(),
        ('T', None) => format!("{:x}", meta.rdev.1).into_bytes(),
        ('a', None) => format!("{:o}", meta.mode).into_bytes(),
        ('A', None) => mode::shown(meta.kind, meta.mode).into_bytes(),
        ('b', None) => meta.used.div_ceil(512).to_string().into_bytes(),
        ('B', None) => b"512".to_vec(),
        ('F', None) => match meta.kind {
            Some(FileType::Reg) if meta.size == 0 => b"regular empty file".to_vec(),
            kind => kind.map_or("weird file", kind_name).as_bytes().to_vec(),
        },
        ('f', None) => format!("{:x}", kind_bits(meta.kind) | meta.mode).into_bytes(),
        ('u', None) => id(&meta.owner),
        ('g', None) => id(&meta.group),
        ('U', None) => named(id(&meta.owner), object.names.owner(&meta.owner)),
        ('G', None) => named(id(&meta.group), object.names.group(&meta.group)),
        ('h', None) => meta.links.to_string().into_bytes(),
        ('i', None) => meta.fileid.to_string().into_bytes(),
        ('o', None) => BLOCK_BYTES.to_string().into_bytes(),
        ('s', None) => meta.size.to_string().into_bytes(),
        ('w', None) => meta.born.map_or_else(|| b"-".to_vec(), |t| show::long_time(t).into_bytes()),
        ('W', None) => meta.born.map_or_else(|| b"0".to_vec(), seconds),
        ('x', None) => show::long_time(meta.accessed).into_bytes(),
        ('X', None) => seconds(meta.accessed),
        ('y', None) => show::long_time(meta.modified).into_bytes(),
        ('Y', None) => seconds(meta.modified),
        ('z', None) => show::long_time(meta.changed).into_bytes(),
        ('Z', None) => seconds(meta.changed),
        _ => return None,
    })
}

/// The type as it stands in `st_mode`.
fn kind_bits(kind: Option<FileType>) -> u32 {
    match kind {
        Some(FileType::Fifo) => 0o010_000,
        Some(FileType::Chr) => 0o020_000,
        Some(FileType::Dir) => 0o040_000,
        Some(FileType::Blk) => 0o060_000,
        Some(FileType::Lnk) => 0o120_000,
        Some(FileType::Sock) => 0o140_000,
        Some(_) => 0o100_000,
        None => 0,
    }
}
