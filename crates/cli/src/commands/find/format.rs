//! The output of `-printf` and `-ls`. Pure, but for time zones and the names of owners.

use super::object::{Context, Object};
use crate::commands::mode;
use crate::commands::object::names_of;
use crate::commands::quote;
use crate::commands::value::{self, Spec, Value};
use crate::say;
use crate::sys;
use landfast_nfs::v4::{FileType, NfsTime};

/// As the traditional `ls -l`: a time less than this many seconds ago has a time of day, an older one a year.
const RECENT: i64 = 6 * 30 * 86_400;
/// The same for a time that is at most this far in the future.
const SOON: i64 = 3600;

#[derive(Debug)]
pub struct Format {
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Text(Vec<u8>),
    Field {
        letter: char,
        spec: Spec,
    },
    /// A part of the time of last access, change or modification.
    Time {
        of: char,
        part: u8,
        spec: Spec,
    },
    /// `\c`: nothing more is printed of this object.
    End,
}

impl Format {
    /// Parses a format. The error is a sentence, and so are warnings.
    pub fn parse(text: &str, warnings: &mut Vec<String>) -> Result<Format, String> {
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['%', '\\']) {
            plain.extend_from_slice(&rest.as_bytes()[..at]);
            let escape = rest.as_bytes()[at] == b'\\';
            let behind = &rest[at + 1..];
            if escape {
                if behind.starts_with('c') {
                    pieces.extend([Piece::Text(std::mem::take(&mut plain)), Piece::End]);
                    return Ok(Format { pieces });
                }
                rest = unescaped(behind, &mut plain, warnings);
                continue;
            }
            let (spec, after) = Spec::parse(behind, "-+ #0");
            let Some(letter) = after.chars().next() else {
                return Err("error: % at end of format string".to_owned());
            };
            let after = &after[letter.len_utf8()..];
            rest = after;
            let piece = match letter {
                '%' => {
                    plain.push(b'%');
                    continue;
                }
                '{' | '[' | '(' => {
                    return Err(format!(
                        "error: the format directive `%{letter}' is reserved for future use"
                    ));
                }
                'D' | 'F' | 'S' | 'Y' | 'Z' | 'B' => {
                    return Err(format!("-printf: %{letter} is not supported on NFS"));
                }
                'A' | 'C' | 'T' => match after.bytes().next() {
                    Some(part) if part.is_ascii_graphic() => {
                        rest = &after[1..];
                        Piece::Time { of: letter, part, spec }
                    }
                    _ => {
                        warnings.push(format!(
                            "warning: format directive `%{letter}' should be followed by another character"
                        ));
                        plain.extend([b'%', letter as u8]);
                        continue;
                    }
                },
                'a' | 'b' | 'c' | 'd' | 'f' | 'g' | 'G' | 'h' | 'H' | 'i' | 'k' | 'l' | 'm' | 'M' | 'n'
                | 'p' | 'P' | 's' | 't' | 'u' | 'U' | 'y' => Piece::Field { letter, spec },
                _ => {
                    let as_typed = &text[text.len() - behind.len() - 1..text.len() - after.len()];
                    warnings.push(format!("warning: unrecognized format directive `{as_typed}'"));
                    plain.extend_from_slice(as_typed.as_bytes());
                    continue;
                }
            };
            pieces.extend([Piece::Text(std::mem::take(&mut plain)), piece]);
        }
        plain.extend_from_slice(rest.as_bytes());
        pieces.push(Piece::Text(plain));
        Ok(Format { pieces })
    }

    pub fn needs_texts(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Field { letter: 'l', .. }))
    }

    pub fn say(&self, object: &Object<'_>, context: &Context<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in &self.pieces {
            let (value, spec) = match piece {
                Piece::Text(text) => {
                    out.extend_from_slice(text);
                    continue;
                }
                Piece::End => break,
                Piece::Field { letter, spec } => (field(*letter, object, context), spec),
                Piece::Time { of, part, spec } => {
                    let time = match of {
                        'A' => object.meta.accessed,
                        'C' => object.meta.changed,
                        _ => object.meta.modified,
                    };
                    (Value::Text(part_of(time, *part)), spec)
                }
            };
            value.put(&mut out, spec);
        }
        out
    }
}

/// Translates the escape behind a backslash; returns what follows it.
fn unescaped<'a>(text: &'a str, out: &mut Vec<u8>, warnings: &mut Vec<String>) -> &'a str {
    let Some(first) = text.chars().next() else {
        warnings.push("warning: escape `\\' followed by nothing at all".to_owned());
        out.push(b'\\');
        return text;
    };
    let byte = match first {
        '0'..='7' => {
            let len = text.chars().take(3).take_while(|c| c.is_digit(8)).count();
            let byte = u32::from_str_radix(&text[..len], 8).unwrap_or_default();
            out.push((byte & 0xff) as u8);
            return &text[len..];
        }
        '\\' => b'\\',
        c => match quote::escape_of(c) {
            Some(byte) => byte,
            None => {
                warnings.push(format!("warning: unrecognized escape `\\{c}'"));
                out.extend_from_slice(format!("\\{c}").as_bytes());
                return &text[c.len_utf8()..];
            }
        },
    };
    out.push(byte);
    &text[1..]
}

fn field(letter: char, object: &Object<'_>, context: &Context<'_>) -> Value {
    let Object { path, meta, .. } = object;
    let number = |n: u64| Value::Text(n.to_string().into_bytes());
    match letter {
        'a' => Value::Text(calendar(meta.accessed)),
        'b' => number(meta.used.div_ceil(512)),
        'c' => Value::Text(calendar(meta.changed)),
        'd' => Value::Signed(object.depth as i64),
        'f' => Value::Text(split(path).1.to_vec()),
        'g' => Value::Text(name(context.who.group(&meta.group))),
        'G' => number(context.who.group(&meta.group).0.into()),
        'h' => Value::Text(split(path).0.to_vec()),
        'H' => Value::Text(object.start.to_vec()),
        'i' => number(meta.fileid),
        'k' => number(meta.used.div_ceil(1024)),
        'l' => Value::Text(object.text.unwrap_or_default().to_vec()),
        'm' => Value::Octal(meta.mode & 0o7777),
        'M' => Value::Text(mode::shown(meta.kind, meta.mode).into_bytes()),
        'n' => number(meta.links.into()),
        'p' => Value::Text(path.to_vec()),
        'P' => {
            let below = path.strip_prefix(object.start).unwrap_or_default();
            Value::Text(below.strip_prefix(b"/").unwrap_or(below).to_vec())
        }
        's' => number(meta.size),
        't' => Value::Text(calendar(meta.modified)),
        'u' => Value::Text(name(context.who.user(&meta.owner))),
        'U' => number(context.who.user(&meta.owner).0.into()),
        _ => Value::Text(vec![meta.kind.map_or(b'U', |kind| names_of(kind).find as u8)]),
    }
}

/// The name of an owner, or the number if there is no name.
fn name((id, name): (u32, Vec<u8>)) -> Vec<u8> {
    if name.is_empty() { id.to_string().into_bytes() } else { say::marked(&name).into_owned() }
}

/// The directory part of a path, and its last name with everything behind it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|b| *b != b'/').map_or(path.len(), |at| at + 1);
    match path[..end].iter().rposition(|b| *b == b'/') {
        None => (b".", path),
        Some(at) => (&path[..at], &path[at + 1..]),
    }
}

/// The fraction of a second, with ten digits.
fn fraction(time: NfsTime) -> String {
    format!(".{:09}0", time.nseconds)
}

/// `Sat Feb  3 04:05:06.7890000000 2001`
fn calendar(time: NfsTime) -> Vec<u8> {
    let part = |letter| sys::strftime(letter, time.seconds);
    let day = [part(b'a'), part(b'b'), part(b'e')].join(&b' ');
    let clock = [part(b'T'), fraction(time).into_bytes()].concat();
    [day, clock, part(b'Y')].join(&b' ')
}

/// One part of a time, by the letter of its format.
fn part_of(time: NfsTime, letter: u8) -> Vec<u8> {
    let part = |letter| sys::strftime(letter, time.seconds);
    match letter {
        b'@' => {
            let (negative, text) = value::seconds(time, 9);
            format!("{}{text}0", if negative { "-" } else { "" }).into_bytes()
        }
        b'+' => [&part(b'F')[..], b"+", &part(b'T'), fraction(time).as_bytes()].concat(),
        b'S' | b'T' | b'X' => [part(letter), fraction(time).into_bytes()].concat(),
        letter => part(letter),
    }
}

/// The widths of the columns of `-ls`: they grow with their contents.
#[derive(Debug, Clone, Copy)]
pub struct Widths([usize; 6]);

impl Default for Widths {
    fn default() -> Widths {
        Widths([9, 6, 3, 8, 8, 8])
    }
}

impl Widths {
    pub fn line(&mut self, object: &Object<'_>, context: &Context<'_>) -> Vec<u8> {
        let meta = object.meta;
        let name = |of| String::from_utf8_lossy(&name(of)).into_owned();
        let device = matches!(meta.kind, Some(FileType::Blk | FileType::Chr));
        let size =
            if device { format!("{:>3}, {:>3}", meta.rdev.0, meta.rdev.1) } else { meta.size.to_string() };
        let columns = [
            meta.fileid.to_string(),
            meta.used.div_ceil(1024).to_string(),
            meta.links.to_string(),
            name(context.who.user(&meta.owner)),
            name(context.who.group(&meta.group)),
            size,
        ];
        for (width, column) in self.0.iter_mut().zip(&columns) {
            *width = (*width).max(column.len());
        }
        let [inode, blocks, links, user, group, size] = self.0;
        let time = {
            let part =
                |letter| String::from_utf8_lossy(&sys::strftime(letter, meta.modified.seconds)).into_owned();
            let (then, now) = (meta.modified.seconds, context.now.seconds);
            let end = match now - RECENT <= then && then <= now + SOON {
                true => part(b'R'),
                false => format!(" {}", part(b'Y')),
            };
            format!("{} {} {end}", part(b'b'), part(b'e'))
        };
        let [c0, c1, c2, c3, c4, c5] = &columns;
        let mut line = format!(
            "{c0:>inode$} {c1:>blocks$} {} {c2:>links$} {c3:<user$} {c4:<group$} {c5:>size$} {time} ",
            mode::shown(meta.kind, meta.mode),
        )
        .into_bytes();
        escape(object.path, &mut line);
        if let Some(text) = object.text {
            line.extend_from_slice(b" -> ");
            escape(text, &mut line);
        }
        line.push(b'\n');
        line
    }
}

fn escape(name: &[u8], out: &mut Vec<u8>) {
    for byte in name {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            8 => out.extend_from_slice(b"\\b"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            12 => out.extend_from_slice(b"\\f"),
            b' ' => out.extend_from_slice(b"\\ "),
            b'"' => out.extend_from_slice(b"\\\""),
            0x21..=0x7e => out.push(*byte),
            byte => out.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
        }
    }
}
