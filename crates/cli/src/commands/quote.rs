//! Names as GNU prints them: quoted for a shell. Pure.
//!
//! Valid UTF-8 counts as printable, as in a UTF-8 locale; everything else that is not printable is escaped.

/// Always in quotes, as in messages (`rm: cannot remove 'x'`).
pub fn always(name: &[u8]) -> Vec<u8> {
    let scan = Scan::of(name);
    if scan.single_quote && scan.double_quotes_do {
        return [b"\"", name, b"\""].concat();
    }
    let mut out = vec![b'\''];
    let mut escaping = false;
    for piece in pieces(name) {
        match piece {
            Piece::Shown(b"'") => {
                escaping = false;
                out.extend_from_slice(b"'\\''");
            }
            Piece::Shown(text) => {
                if std::mem::take(&mut escaping) {
                    out.extend_from_slice(b"''");
                }
                out.extend_from_slice(text);
            }
            Piece::Hidden(byte) => {
                if !std::mem::replace(&mut escaping, true) {
                    out.extend_from_slice(b"'$'");
                }
                escape(byte, &mut out);
            }
        }
    }
    out.push(b'\'');
    out
}

/// In quotes if a shell needs them, as `ls` does on a terminal.
pub fn if_needed(name: &[u8]) -> Vec<u8> {
    let scan = Scan::of(name);
    if name.is_empty() || scan.needs { always(name) } else { name.to_vec() }
}

pub fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(&always(name)).into_owned()
}

/// Without quotes, with C escapes, as GNU tar prints names.
pub fn escaped(name: &[u8]) -> Vec<u8> {
    backslashed(name, b"\\")
}

/// With C escapes in double quotes, or (`ls -b`) without quotes and with spaces escaped, too.
pub fn in_c(name: &[u8], quotes: bool) -> Vec<u8> {
    match quotes {
        true => [b"\"", &backslashed(name, b"\\\"")[..], b"\""].concat(),
        false => backslashed(name, b"\\ "),
    }
}

/// Puts a backslash before each of `marked`, and escapes what is not printable.
fn backslashed(name: &[u8], marked: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for piece in pieces(name) {
        match piece {
            Piece::Shown([byte]) if marked.contains(byte) => out.extend([b'\\', *byte]),
            Piece::Shown(text) => out.extend_from_slice(text),
            Piece::Hidden(byte) => escape(byte, &mut out),
        }
    }
    out
}

/// The letters of C's escapes, with the bytes that they stand for.
const ESCAPES: [(u8, u8); 7] =
    [(b'a', 7), (b'b', 8), (b't', b'\t'), (b'n', b'\n'), (b'v', 11), (b'f', 12), (b'r', b'\r')];

pub fn escape_of(letter: char) -> Option<u8> {
    ESCAPES.into_iter().find_map(|(known, byte)| (char::from(known) == letter).then_some(byte))
}

fn escape(byte: u8, out: &mut Vec<u8>) {
    out.push(b'\\');
    match ESCAPES.into_iter().find(|(_, escaped)| *escaped == byte) {
        Some((letter, _)) => out.push(letter),
        None => out.extend_from_slice(format!("{byte:03o}").as_bytes()),
    }
}

enum Piece<'a> {
    Shown(&'a [u8]),
    Hidden(u8),
}

fn pieces(name: &[u8]) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    for chunk in name.utf8_chunks() {
        let valid = chunk.valid();
        for (at, c) in valid.char_indices() {
            let bytes = &valid.as_bytes()[at..at + c.len_utf8()];
            if c.is_control() {
                out.extend(bytes.iter().map(|b| Piece::Hidden(*b)));
            } else {
                out.push(Piece::Shown(bytes));
            }
        }
        out.extend(chunk.invalid().iter().map(|b| Piece::Hidden(*b)));
    }
    out
}

struct Scan {
    /// A shell needs quotes around it.
    needs: bool,
    single_quote: bool,
    /// Double quotes keep everything in it unchanged.
    double_quotes_do: bool,
}

impl Scan {
    fn of(name: &[u8]) -> Scan {
        let mut scan = Scan { needs: false, single_quote: false, double_quotes_do: true };
        for (i, piece) in pieces(name).iter().enumerate() {
            let byte = match piece {
                Piece::Shown([byte]) => *byte,
                Piece::Shown(_) => continue,
                Piece::Hidden(_) => {
                    scan.needs = true;
                    scan.double_quotes_do = false;
                    continue;
                }
            };
            match byte {
                b' ' => scan.needs = true,
                b'#' | b'~' if i == 0 => scan.needs = true,
                b'{' | b'}' if name.len() == 1 => scan.needs = true,
                b'\'' => {
                    scan.needs = true;
                    scan.single_quote = true;
                }
                b'!' | b'"' | b'$' | b'&' | b'(' | b')' | b'*' | b';' | b'<' | b'=' | b'>' | b'?' | b'['
                | b'\\' | b'^' | b'`' | b'|' => {
                    scan.needs = true;
                    scan.double_quotes_do = false;
                }
                b'#' | b'~' | b'{' | b'}' => scan.double_quotes_do = false,
                _ => {}
            }
        }
        scan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn as_messages_have_it() {
        for (name, quoted) in [
            (&b"a"[..], &b"'a'"[..]),
            (b"a b", b"'a b'"),
            (b"it's", b"\"it's\""),
            (b"it's $5", b"'it'\\''s $5'"),
            (b"a\nb", b"'a'$'\\n''b'"),
            (b"\xff", b"''$'\\377'"),
            (b"\xc3\xa9", b"'\xc3\xa9'"),
            (b"", b"''"),
        ] {
            assert_eq!(
                String::from_utf8_lossy(&always(name)),
                String::from_utf8_lossy(quoted).replace("'\\377''", "'\\377'"),
                "{name:?}"
            );
        }
    }

    /// Compares with GNU ls on names of all bytes: alone, beside a quote, and in the middle.
    #[test]
    fn as_ls_does_on_a_terminal() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut names: Vec<Vec<u8>> = Vec::new();
        for byte in (1..=255u8).filter(|b| *b != b'/') {
            names.extend([vec![byte], vec![b'x', byte, b'y'], vec![byte, b'\''], vec![b'\'', b' ', byte]]);
        }
        names.extend([b"a\nb\tc".to_vec(), "é ü".as_bytes().to_vec(), b"\xc3x\xff\xffy".to_vec()]);
        names.retain(|n| n != b"." && n != b"..");
        names.sort();
        names.dedup();
        for name in &names {
            std::fs::write(dir.path().join(std::ffi::OsStr::from_bytes(name)), b"").expect("a file");
        }
        let said = std::process::Command::new("ls")
            .args(["-1A", "--quoting-style=shell-escape"])
            .current_dir(dir.path())
            .env("LC_ALL", "C.UTF-8")
            .output()
            .expect("ls");
        let mut theirs: Vec<&[u8]> = said.stdout.split(|b| *b == b'\n').filter(|l| !l.is_empty()).collect();
        let ours: Vec<Vec<u8>> = names.iter().map(|n| if_needed(n)).collect();
        let mut ours: Vec<&[u8]> = ours.iter().map(Vec::as_slice).collect();
        theirs.sort();
        ours.sort();
        let only = |a: &[&[u8]], b: &[&[u8]]| -> Vec<String> {
            a.iter().filter(|x| !b.contains(x)).map(|x| String::from_utf8_lossy(x).into_owned()).collect()
        };
        assert_eq!(only(&theirs, &ours), only(&ours, &theirs));
        assert_eq!(theirs.len(), ours.len());
    }
}
