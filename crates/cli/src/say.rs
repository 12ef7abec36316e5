//! The way out for everything that this command prints. Nothing that comes from a server, a capture, a log or a name
//! can move the cursor, change a colour, or fake a line.
//!
//! [`eprintln`], [`eprint`] and [`println`] hide those of the standard library, so that nobody has to think of it; a
//! writer uses [`stdout`] in place of the library's. The rules:
//!
//! - A message on standard error, also a log line, is one line, wherever it goes: it may end in a journal that a terminal shows later.
//! - Standard output is escaped on a terminal. Into a pipe or a file bytes go unchanged, which is GNU's rule.
//! - If standard output is closed or full, the command goes on, and later output is dropped. A full one gets one
//!   message on standard error, and the exit status tells of both ([`is_closed`], [`is_full`]). Nothing here panics.
//! - A progress bar is cleared before a line and drawn again after it ([`progress::without_bar`]).
//! - Escapes are octal, as GNU's: `\033`. For tools with another rule (`find` and `ls -N` print `?` on a terminal) there is [`marked`].

use crate::progress;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// The exit status of a process that SIGPIPE has killed.
pub const ENDED_BY_PIPE: u8 = 128 + 13;

macro_rules! eprintln {
    () => { $crate::say::message(format_args!(""), true) };
    ($($arg:tt)*) => { $crate::say::message(format_args!($($arg)*), true) };
}

macro_rules! eprint {
    ($($arg:tt)*) => { $crate::say::message(format_args!($($arg)*), false) };
}

macro_rules! println {
    () => { $crate::say::line(format_args!("")) };
    ($($arg:tt)*) => { $crate::say::line(format_args!($($arg)*)) };
}

/// The control characters that are not escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unescaped {
    Tabs,
    /// Tabs, newlines, and the NUL of `-print0`.
    Lines,
}

impl Unescaped {
    fn contains(self, c: char) -> bool {
        c == '\t' || self == Unescaped::Lines && matches!(c, '\n' | '\0')
    }
}

pub fn to_terminal() -> bool {
    static TERMINAL: OnceLock<bool> = OnceLock::new();
    *TERMINAL.get_or_init(|| io::stdout().is_terminal())
}

static OUTPUT: AtomicU8 = AtomicU8::new(THERE);
const THERE: u8 = 0;
/// Nobody reads it any more.
const CLOSED: u8 = 1;
/// It takes no more, as on a full disk.
const FULL: u8 = 2;

/// The tool that reports a failure of standard output.
static REPORTING_TOOL: Mutex<Option<&'static str>> = Mutex::new(None);

/// From now on a failure of standard output is reported in the words of this GNU tool; `None`: in Landfast's own.
pub fn report_failures_as(tool: Option<&'static str>) {
    *REPORTING_TOOL.lock() = tool;
}

/// Records that writing to standard output has failed. If its reader has closed it, there is no message.
pub fn output_failed(e: &io::Error) {
    let closed = e.kind() == io::ErrorKind::BrokenPipe;
    let new = if closed { CLOSED } else { FULL };
    if OUTPUT.compare_exchange(THERE, new, Ordering::AcqRel, Ordering::Acquire).is_err() || closed {
        return;
    }
    let why = crate::commands::message::plain(e);
    let speaker = *REPORTING_TOOL.lock();
    match speaker {
        Some(tool) => message(format_args!("{tool}: write error: {why}"), true),
        None => message(format_args!("landfast: standard output: {why}"), true),
    }
}

/// Whether output was lost because standard output is full.
pub fn is_full() -> bool {
    OUTPUT.load(Ordering::Acquire) == FULL
}

pub fn is_closed() -> bool {
    OUTPUT.load(Ordering::Acquire) == CLOSED
}

pub fn flush() {
    let _ = raw().flush();
}

/// Standard output without escapes. After a failure every write fails.
pub struct Raw<W = io::Stdout>(W);

pub fn raw() -> Raw {
    Raw(io::stdout())
}

/// The same without a buffer, for large binary data.
pub fn unbuffered() -> io::Result<Raw<File>> {
    Ok(Raw(io::stdout().as_fd().try_clone_to_owned()?.into()))
}

impl<W: Write + AsFd> Raw<W> {
    fn tried<T>(&mut self, mut step: impl FnMut(&mut W) -> io::Result<T>) -> io::Result<T> {
        if OUTPUT.load(Ordering::Acquire) != THERE {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        loop {
            match step(&mut self.0) {
                // Another process has made the shared file non-blocking: it is slow, not full.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => crate::sys::wait_writable(&self.0)?,
                Err(e) if e.kind() != io::ErrorKind::Interrupted => {
                    output_failed(&e);
                    return Err(e);
                }
                Err(_) => {}
                Ok(done) => return Ok(done),
            }
        }
    }
}

impl<W: Write + AsFd> Write for Raw<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match to_terminal() {
            true => progress::without_bar(|| self.tried(|out| out.write(bytes))),
            false => self.tried(|out| out.write(bytes)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match to_terminal() {
            true => progress::without_bar(|| self.tried(|out| out.flush())),
            false => self.tried(|out| out.flush()),
        }
    }
}

/// Calls `f` with each piece that is harmless (`true`), and with each character or byte that is not.
fn for_each_piece<'t>(text: &'t [u8], unescaped: Unescaped, mut f: impl FnMut(&'t [u8], bool)) {
    for chunk in text.utf8_chunks() {
        let (valid, mut from) = (chunk.valid(), 0);
        for (at, c) in valid.char_indices().filter(|(_, c)| c.is_control() && !unescaped.contains(*c)) {
            f(&valid.as_bytes()[from..at], true);
            from = at + c.len_utf8();
            f(&valid.as_bytes()[at..from], false);
        }
        f(&valid.as_bytes()[from..], true);
        // One byte at a time: a terminal without UTF-8 takes 0x9b for an escape.
        chunk.invalid().chunks(1).for_each(|byte| f(byte, false));
    }
}

fn is_harmless(text: &[u8], unescaped: Unescaped) -> bool {
    let mut harmless = true;
    for_each_piece(text, unescaped, |_, shown| harmless &= shown);
    harmless
}

fn escape(text: &[u8], unescaped: Unescaped) -> Cow<'_, [u8]> {
    if is_harmless(text, unescaped) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    for_each_piece(text, unescaped, |piece, shown| match (shown, piece) {
        (true, piece) => out.extend_from_slice(piece),
        (false, b"\n") => out.extend_from_slice(b"\\n"),
        (false, b"\r") => out.extend_from_slice(b"\\r"),
        (false, bytes) => {
            bytes.iter().for_each(|byte| out.extend_from_slice(format!("\\{byte:03o}").as_bytes()))
        }
    });
    Cow::Owned(out)
}

/// A name or another single value, with `?` for each control character.
pub fn marked(name: &[u8]) -> Cow<'_, [u8]> {
    let keep = |shown: &[u8]| !shown.contains(&b'\t');
    if is_harmless(name, Unescaped::Tabs) && keep(name) {
        return Cow::Borrowed(name);
    }
    let mut out = Vec::with_capacity(name.len());
    for_each_piece(name, Unescaped::Tabs, |piece, shown| match shown {
        true => out.extend(piece.iter().map(|byte| if *byte == b'\t' { b'?' } else { *byte })),
        false => out.push(b'?'),
    });
    Cow::Owned(out)
}

pub fn for_stdout(lines: &[u8]) -> Cow<'_, [u8]> {
    if to_terminal() { escape(lines, Unescaped::Lines) } else { Cow::Borrowed(lines) }
}

/// A name for a line on standard output.
pub fn name_for_stdout(name: &[u8]) -> Cow<'_, [u8]> {
    if to_terminal() { escape(name, Unescaped::Tabs) } else { Cow::Borrowed(name) }
}

/// JSON without control characters: those that JSON allows are written as `\u` escapes.
pub fn json(text: &str) -> Cow<'_, str> {
    let plain = |c: char| !c.is_control() || c == '\n';
    if text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    let escaped =
        text.chars().map(|c| if plain(c) { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) });
    Cow::Owned(escaped.collect())
}

pub fn message(text: Arguments<'_>, whole_line: bool) {
    let text = text.to_string();
    let text = escape(text.as_bytes(), Unescaped::Tabs);
    // Nobody can be told if standard error is gone.
    progress::without_bar(|| {
        let _ = io::stderr().lock().write_all(&[&text[..], if whole_line { b"\n" } else { b"" }].concat());
    });
}

/// Writes several lines to standard error: names, a usage.
pub fn lines_to_stderr(lines: &[u8]) -> io::Result<()> {
    progress::without_bar(|| io::stderr().lock().write_all(&escape(lines, Unescaped::Lines)))
}

pub fn line(text: Arguments<'_>) {
    let text = format!("{text}\n");
    // A failure shows in the exit status.
    let _ = raw().write_all(&for_stdout(text.as_bytes()));
}

/// A writer of lines to standard output. It escapes them on a terminal; a character may come in pieces.
pub fn stdout() -> Lines<Raw> {
    Lines::to(raw(), to_terminal())
}

pub struct Lines<W: Write> {
    to: W,
    terminal: bool,
    /// The beginning of an incomplete character.
    begun: Vec<u8>,
}

impl<W: Write> Lines<W> {
    fn to(to: W, terminal: bool) -> Self {
        Lines { to, terminal, begun: Vec::new() }
    }
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.terminal {
            return self.to.write(bytes);
        }
        let mut text = std::mem::take(&mut self.begun);
        text.extend_from_slice(bytes);
        // The decoder says whether the last piece can still become a character.
        if let Err(e) = std::str::from_utf8(text.utf8_chunks().last().map_or(&[][..], |last| last.invalid()))
            && e.error_len().is_none()
        {
            let last = text.utf8_chunks().last().map_or(0, |last| last.invalid().len());
            self.begun = text.split_off(text.len() - last);
        }
        self.to.write_all(&escape(&text, Unescaped::Lines))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(&escape(&std::mem::take(&mut self.begun), Unescaped::Lines))?;
        self.to.flush()
    }
}

impl<W: Write> Drop for Lines<W> {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

/// A writer of log lines to standard error, without a buffer.
pub struct LogLine;

impl Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let end: &[u8] = if text.len() < line.len() { b"\n" } else { b"" };
        // A log that nobody can read is no failure. If this returned one, the subscriber would print it on standard
        // error, and panic if that is gone.
        let _ = io::stderr().lock().write_all(&[&escape(text, Unescaped::Tabs), end].concat());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        for (text, line, lines) in [
            (&b"plain \xc3\xa9 \\x"[..], &b"plain \xc3\xa9 \\x"[..], &b"plain \xc3\xa9 \\x"[..]),
            (b"\x1b[31mred\r\x07", b"\\033[31mred\\r\\007", b"\\033[31mred\\r\\007"),
            (b"a\nb\tc", b"a\\nb\tc", b"a\nb\tc"),
            (b"\xc2\x9b2J \x9b \x7f", b"\\302\\2332J \\233 \\177", b"\\302\\2332J \\233 \\177"),
        ] {
            assert_eq!(escape(text, Unescaped::Tabs), line);
            assert_eq!(escape(text, Unescaped::Lines), lines);
        }
        assert_eq!(*marked(b"a\x1b[m\tb\nc\xc2\x9bd\xff\xc3\xa9"), *b"a?[m?b?c?d?\xc3\xa9");
        assert_eq!(json("\"\u{9b}a\u{7f}\u{e9}\""), "\"\\u009ba\\u007f\u{e9}\"");
    }

    proptest! {
        /// However the text is cut into pieces.
        #[test]
        fn a_writer_to_a_terminal_escapes_as_a_whole(text in "[\\x00-\\x{a0}\\x{2028}aé漢]{0,40}", cut in prop::collection::vec(1..5usize, 1..9)) {
            let mut out = Vec::new();
            let mut writer = Lines::to(&mut out, true);
            let (mut rest, mut cuts) = (text.as_bytes(), cut.iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*cuts.next().unwrap_or(&1)));
                writer.write_all(now).unwrap();
                rest = later;
            }
            drop(writer);
            prop_assert_eq!(&out, &escape(text.as_bytes(), Unescaped::Lines).into_owned());
            prop_assert!(std::str::from_utf8(&out).unwrap().chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t' | '\0')));
        }
    }

    /// Only this file uses standard output and standard error. The exceptions are listed with the reason.
    #[test]
    fn nobody_prints_past_this_file() {
        /// Bytes of a file or an archive, as they are; whether it is a terminal; a duplicate for an archive.
        const FINE: [&str; 4] = ["is_terminal()", "as_fd()", "use_stderr()", "// bytes as they are"];
        fn sources(dir: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { sources(&path, found) } else { found.push(path) }
            }
        }
        let mut all = Vec::new();
        sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
        assert!(all.len() > 40);
        for file in all.iter().filter(|file| !file.ends_with("say.rs")) {
            let text = std::fs::read_to_string(file).unwrap();
            for (n, line) in text.lines().enumerate() {
                let past = ["stdout()", "stderr()", "std::println", "std::eprint", "std::print"];
                let past = past.iter().any(|p| line.contains(p)) && !line.contains("say::stdout()");
                assert!(
                    !past || FINE.iter().any(|f| line.contains(f)),
                    "{}:{}: {line}",
                    file.display(),
                    n + 1
                );
            }
        }
    }
}
