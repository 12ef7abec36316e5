//! The options of `cat` that change lines: numbers, ends, tabs, bytes that are not printable. Pure.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shown {
    /// Number lines; `Some(true)`: only lines that are not empty.
    pub numbers: Option<bool>,
    /// Print `$` at the ends of lines.
    pub ends: bool,
    /// Print tabs as `^I`.
    pub tabs: bool,
    /// Print what is not printable with `^` and `M-`.
    pub bytes: bool,
    /// Print one empty line in place of several.
    pub squeezed: bool,
}

/// The state of the output; it continues from one file to the next.
#[derive(Debug, Default)]
pub struct Lines {
    shown: Shown,
    number: u64,
    /// Where the output is after the last byte.
    newlines: Newlines,
    /// A carriage return is held back: it may be the end of a line.
    returned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Newlines {
    Within,
    #[default]
    Start,
    Empty,
}

impl Lines {
    pub fn new(shown: Shown) -> Lines {
        Lines { shown, ..Lines::default() }
    }

    pub fn put(&mut self, data: &[u8], out: &mut Vec<u8>) {
        for byte in data {
            if *byte == b'\n' {
                self.newline(out);
                continue;
            }
            self.flush(out);
            if self.newlines != Newlines::Within && self.shown.numbers.is_some() {
                self.put_number(out);
            }
            self.newlines = Newlines::Within;
            match byte {
                b'\r' if self.shown.ends && !self.shown.bytes => self.returned = true,
                b'\t' if self.shown.tabs => out.extend_from_slice(b"^I"),
                b'\t' => out.push(b'\t'),
                byte if self.shown.bytes => put_visible(*byte, out),
                byte => out.push(*byte),
            }
        }
    }

    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.returned) {
            out.push(b'\r');
        }
    }

    fn newline(&mut self, out: &mut Vec<u8>) {
        let empty = self.newlines != Newlines::Within;
        if empty {
            if self.newlines == Newlines::Empty && self.shown.squeezed {
                return;
            }
            if self.shown.numbers == Some(false) {
                self.put_number(out);
            }
        }
        self.newlines = if empty { Newlines::Empty } else { Newlines::Start };
        if std::mem::take(&mut self.returned) {
            out.extend_from_slice(b"^M");
        }
        if self.shown.ends {
            out.push(b'$');
        }
        out.push(b'\n');
    }

    fn put_number(&mut self, out: &mut Vec<u8>) {
        self.number += 1;
        out.extend_from_slice(format!("{:>6}\t", self.number).as_bytes());
    }
}

fn put_visible(byte: u8, out: &mut Vec<u8>) {
    let byte = match byte {
        128.. => {
            out.extend_from_slice(b"M-");
            byte - 128
        }
        _ => byte,
    };
    match byte {
        127 => out.extend_from_slice(b"^?"),
        0..32 => out.extend_from_slice(&[b'^', byte + 64]),
        byte => out.push(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn as_cat_shows_them() {
        let all: Vec<u8> = (0..=255).collect();
        let text = [b"\n\n\na\n\n\nb\tc\r\n\rd\r\r\n\n\x07e", &all[..], b"\r\n\r", b"f\n\n\n\r\r"].concat();
        for flags in 0..64u32 {
            let on = |bit| flags >> bit & 1 == 1;
            let letters: String =
                "nbETvs".chars().enumerate().filter(|(n, _)| on(*n)).map(|(_, c)| c).collect();
            let mut cat = std::process::Command::new("cat")
                .args((!letters.is_empty()).then(|| format!("-{letters}")))
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("cat");
            cat.stdin.take().expect("a pipe").write_all(&text).expect("written");
            let theirs = cat.wait_with_output().expect("it ends").stdout;
            let numbers = if on(1) { Some(true) } else { on(0).then_some(false) };
            let shown = Shown { numbers, ends: on(2), tabs: on(3), bytes: on(4), squeezed: on(5) };
            for piece in [1, 7, text.len()] {
                let (mut lines, mut ours) = (Lines::new(shown), Vec::new());
                text.chunks(piece).for_each(|piece| lines.put(piece, &mut ours));
                lines.flush(&mut ours);
                let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
                assert_eq!(shown(&ours), shown(&theirs), "-{letters} by {piece}");
            }
        }
    }
}
