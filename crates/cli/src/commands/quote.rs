//! Names as GNU shows them: quoted for a shell. Pure.
//!
//! Valid UTF-8 counts as printable, as in a UTF-8 locale; everything else that cannot be printed is escaped.

/// In quotes always, as in messages (`rm: cannot remove 'x'`).
#[must_use]
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
#[must_use]
pub fn if_needed(name: &[u8]) -> Vec<u8> {
    let scan = Scan::of(name);
    if name.is_empty() || scan.needs { always(name) } else { name.to_vec() }
}

/// For a message: [`always`] as text.
#[must_use]
pub fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(&always(name)).into_owned()
}

/// Without quotes, with backslashes as in C: as GNU tar shows names.
#[must_use]
pub fn escaped(name: &[u8]) -> Vec<u8> {
    backslashed(name, b"\\")
}

/// With backslashes as in C, within double quotes or (`ls -b`) without: then spaces are escaped, too.
#[must_use]
pub fn in_c(name: &[u8], quotes: bool) -> Vec<u8> {
    match quotes {
        true => [b"\"", &backslashed(name, b"\\\"")[..], b"\""].concat(),
        false => backslashed(name, b"\\ "),
    }
}

/// With a backslash before each of `marked`, and instead of what cannot be shown.
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

fn escape(byte: u8, out: &mut Vec<u8>) {
    out.push(b'\\');
    match byte {
        7 => out.push(b'a'),
        8 => out.push(b'b'),
        b'\t' => out.push(b't'),
        b'\n' => out.push(b'n'),
        11 => out.push(b'v'),
        12 => out.push(b'f'),
        b'\r' => out.push(b'r'),
        byte => out.extend_from_slice(format!("{byte:03o}").as_bytes()),
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
    /// A shell would not take it as it is.
    needs: bool,
    single_quote: bool,
    /// Double quotes would keep everything in it as it is.
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

    /// What `ls` says of names made of all bytes, alone, in pairs with a quote, and in the middle.
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
