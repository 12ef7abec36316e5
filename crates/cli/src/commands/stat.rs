//! `landfast stat`, as GNU's. NFS does not tell a block size, which is printed as 4096; the device is the server's fsid.

use super::common::Common;
use super::object::{kind_name, meta_json, names_of};
use super::operand::Place;
use super::show::{self, Names};
use super::tool::{self, Tool};
use super::value::{Spec, Value};
use super::{message, mode, quote};
use crate::exit::Exit;
use clap::Args;
use landfast_client::fs::{Meta, Owner};
use landfast_nfs::v4::FileType;
use serde_json::json;

#[derive(Debug, Args)]
pub struct StatArgs {
    /// Files to look at: nfs://HOST[:PORT]/PATH
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    pub dereference: bool,
    /// Print a line for each in this format: %n name, %s size, %a mode, %y time, ... as in GNU stat
    #[arg(short = 'c', long, value_name = "FORMAT", overrides_with = "printf")]
    pub format: Option<String>,
    /// The same without a newline at the end, and with escapes such as \n, \t, \0
    #[arg(long, value_name = "FORMAT", overrides_with = "format")]
    pub printf: Option<String>,
    /// Print one short line for each
    #[arg(short = 't', long)]
    pub terse: bool,
    #[command(flatten)]
    pub common: Common,
}

const BLOCK_BYTES: u64 = 4096;

const BEGIN: &str = "  File: %N\n  Size: %-10s\tBlocks: %-10b IO Block: %-6o %F\n";
const PLAIN: &str = "Device: %Hd,%Ld\tInode: %-10i  Links: %h\n";
const DEVICE: &str = "Device: %Hd,%Ld\tInode: %-10i  Links: %-5h Device type: %Hr,%Lr\n";
const END: &str = "Access: (%04a/%10.10A)  Uid: (%5u/%8U)   Gid: (%5g/%8G)\nAccess: %x\nModify: %y\nChange: %z\n Birth: %w\n";

const TERSE: &str = "%n %s %b %f %u %g %D %i %h %t %T %X %Y %Z %W %o\n";

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
        let line = match (&args.printf, &args.format) {
            (Some(format), _) => format_as(format, &mut object, true),
            (None, Some(format)) => [format_as(format, &mut object, false), b"\n".to_vec()].concat(),
            (None, None) if args.terse => format_as(TERSE, &mut object, false),
            (None, None) => {
                object.quoted = false;
                let device = matches!(meta.kind, Some(FileType::Blk | FileType::Chr));
                let middle = if device { DEVICE } else { PLAIN };
                format_as(&[BEGIN, middle, END].concat(), &mut object, false)
            }
        };
        match args.printf.is_some() || args.format.is_some() {
            true => tool.print_raw(&line),
            false => tool.print(&line),
        }
    }
    tool.summary("shown", shown);
    tool
}

struct Shown<'a> {
    name: &'a [u8],
    meta: &'a Meta,
    text: Option<&'a [u8]>,
    names: &'a mut Names,
    quoted: bool,
}

/// Expands `%[FLAGS][WIDTH][.PRECISION][HL]LETTER`; with `escapes` also backslash escapes.
fn format_as(format: &str, object: &mut Shown<'_>, escapes: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find(|c| c == '%' || escapes && c == '\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = rest.as_bytes()[at] == b'\\';
        rest = &rest[at + 1..];
        if escape {
            rest = unescaped(rest, &mut out);
            continue;
        }
        let (spec, after) = Spec::parse(rest, "-0+# '");
        let half = after.chars().next().filter(|c| matches!(c, 'H' | 'L'));
        let after = if half.is_some() { &after[1..] } else { after };
        let Some(letter) = after.chars().next() else {
            out.push(b'%');
            break;
        };
        rest = &after[letter.len_utf8()..];
        let Some(value) = value(letter, half, object) else {
            out.push(b'?');
            continue;
        };
        value.put(&mut out, &spec);
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// Translates the escape behind a backslash, as in `printf`; returns what follows it.
fn unescaped<'a>(text: &'a str, out: &mut Vec<u8>) -> &'a str {
    let digits = |from: usize, most: usize, radix: u32| {
        let len = text[from..].chars().take(most).take_while(|c| c.is_digit(radix)).count();
        (from + len, u32::from_str_radix(&text[from..from + len], radix).ok())
    };
    let Some(first) = text.chars().next() else {
        eprintln!("stat: warning: backslash at end of format");
        out.push(b'\\');
        return text;
    };
    let (end, byte) = match first {
        '0'..='7' => digits(0, 3, 8),
        'x' if text[1..].starts_with(|c: char| c.is_ascii_hexdigit()) => digits(1, 2, 16),
        c => {
            let byte = match c {
                'e' => 27,
                '"' | '\\' => c as u32,
                c => match quote::escape_of(c) {
                    Some(byte) => byte.into(),
                    None => {
                        eprintln!("stat: warning: unrecognized escape '\\{c}'");
                        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                        return &text[c.len_utf8()..];
                    }
                },
            };
            (1, Some(byte))
        }
    };
    out.push((byte.unwrap_or_default() & 0xff) as u8);
    &text[end..]
}

/// The value of a letter; `None`: there is no such letter.
fn value(letter: char, half: Option<char>, object: &mut Shown<'_>) -> Option<Value> {
    let meta = object.meta;
    let id = |owner: &Owner| match owner {
        Owner::Id(id) => id.to_string().into_bytes(),
        Owner::Name(name) => name.to_vec(),
    };
    let named = |id: Vec<u8>, name: Vec<u8>| {
        if id == name && id.iter().all(u8::is_ascii_digit) { b"UNKNOWN".to_vec() } else { name }
    };
    let quoted = |name: &[u8]| if object.quoted { quote::always(name) } else { name.to_vec() };
    let owner = |owner: &Owner| match owner {
        Owner::Id(id) => Value::Number(u64::from(*id)),
        Owner::Name(name) => Value::Text(name.to_vec()),
    };
    let text = |text: &str| Value::Text(text.as_bytes().to_vec());
    Some(match (letter, half) {
        ('%', None) => text("%"),
        ('n', None) => Value::Text(object.name.to_vec()),
        ('N', None) => match object.text {
            Some(text) => Value::Text([&quoted(object.name)[..], b" -> ", &quoted(text)].concat()),
            None => Value::Text(quoted(object.name)),
        },
        ('d', Some('H')) => Value::Number(meta.fsid.major),
        ('d', Some('L')) => Value::Number(meta.fsid.minor),
        // One number for the device, in place of two.
        ('d', None) => Value::Number(meta.fsid.major << 8 | meta.fsid.minor & 0xff),
        ('D', None) => Value::Hex(meta.fsid.major << 8 | meta.fsid.minor & 0xff),
        ('r' | 't', Some('H')) => Value::Number(meta.rdev.0.into()),
        ('r' | 'T', Some('L')) => Value::Number(meta.rdev.1.into()),
        ('t', None) => Value::Hex(meta.rdev.0.into()),
        ('T', None) => Value::Hex(meta.rdev.1.into()),
        ('a', None) => Value::Octal(meta.mode),
        ('A', None) => text(&mode::shown(meta.kind, meta.mode)),
        ('b', None) => Value::Number(meta.used.div_ceil(512)),
        ('B', None) => Value::Number(512),
        ('F', None) => match meta.kind {
            Some(FileType::Reg) if meta.size == 0 => text("regular empty file"),
            kind => text(kind.map_or("weird file", kind_name)),
        },
        ('f', None) => Value::Hex((meta.kind.map_or(0, |kind| names_of(kind).bits) | meta.mode).into()),
        ('u', None) => owner(&meta.owner),
        ('g', None) => owner(&meta.group),
        ('U', None) => Value::Text(named(id(&meta.owner), object.names.owner(&meta.owner))),
        ('G', None) => Value::Text(named(id(&meta.group), object.names.group(&meta.group))),
        ('h', None) => Value::Number(meta.links.into()),
        ('i', None) => Value::Number(meta.fileid),
        ('o', None) => Value::Number(BLOCK_BYTES),
        ('s', None) => Value::Signed(meta.size.cast_signed()),
        ('w', None) => meta.born.map_or_else(|| text("-"), |t| text(&show::long_time(t))),
        ('W', None) => meta.born.map_or(Value::Number(0), Value::Time),
        ('x', None) => text(&show::long_time(meta.accessed)),
        ('X', None) => Value::Time(meta.accessed),
        ('y', None) => text(&show::long_time(meta.modified)),
        ('Y', None) => Value::Time(meta.modified),
        ('z', None) => text(&show::long_time(meta.changed)),
        ('Z', None) => Value::Time(meta.changed),
        _ => return None,
    })
}
