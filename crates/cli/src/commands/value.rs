//! Values of a format, printed as by printf(3). Pure.

use landfast_nfs::v4::NfsTime;

pub enum Value {
    Text(Vec<u8>),
    /// `%u`
    Number(u64),
    /// `%d`
    Signed(i64),
    /// `%o`
    Octal(u32),
    /// `%x`
    Hex(u64),
    /// Seconds since 1970.
    Time(NfsTime),
}

/// Flags, width and precision between `%` and the letter.
#[derive(Debug)]
pub struct Spec {
    flags: String,
    width: usize,
    /// Whether there is a dot, and the number behind it.
    precision: Option<Option<usize>>,
}

impl Spec {
    /// Parses a specification; returns what follows it. `flags`: the characters that count as flags.
    pub fn parse<'a>(text: &'a str, flags: &str) -> (Spec, &'a str) {
        let (flags, rest) = text.split_at(text.find(|c| !flags.contains(c)).unwrap_or(text.len()));
        let (width, rest) = number(rest);
        let (precision, rest) = match rest.strip_prefix('.').map(number) {
            Some((precision, rest)) => (Some(precision), rest),
            None => (None, rest),
        };
        (Spec { flags: flags.to_owned(), width: width.unwrap_or_default(), precision }, rest)
    }
}

impl Value {
    /// Prints it as printf(3) does. A flag that has no meaning for the value is ignored.
    pub fn put(self, out: &mut Vec<u8>, spec: &Spec) {
        let Spec { flags, width, precision } = spec;
        let has = |flag: char| flags.contains(flag);
        let plus = |negative: bool| match (negative, has('+'), has(' ')) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (.., true) => " ",
            _ => "",
        };
        let number = |before, digits: String| {
            let least = precision.map_or(0, Option::unwrap_or_default);
            (before, format!("{digits:0>least$}").into_bytes(), precision.is_none())
        };
        // The sign or prefix, the digits, and whether zeros may go between them.
        let (before, digits, zeros) = match self {
            Value::Text(mut text) => {
                text.truncate(precision.map_or(usize::MAX, Option::unwrap_or_default));
                ("", text, false)
            }
            Value::Time(time) => {
                let (negative, text) = seconds(time, precision.map_or(0, |p| p.unwrap_or(9)));
                (plus(negative), text.into_bytes(), true)
            }
            Value::Signed(n) => number(plus(n < 0), n.unsigned_abs().to_string()),
            Value::Octal(n) if has('#') && n > 0 => number("", format!("0{n:o}")),
            Value::Octal(n) => number("", format!("{n:o}")),
            Value::Hex(n) => number(if has('#') && n > 0 { "0x" } else { "" }, format!("{n:x}")),
            Value::Number(n) => number("", n.to_string()),
        };
        let gap = width.saturating_sub(before.len() + digits.len());
        let zeros = has('0') && !has('-') && zeros;
        if !has('-') && !zeros {
            out.resize(out.len() + gap, b' ');
        }
        out.extend_from_slice(before.as_bytes());
        if zeros {
            out.resize(out.len() + gap, b'0');
        }
        out.extend_from_slice(&digits);
        if has('-') {
            out.resize(out.len() + gap, b' ');
        }
    }
}

/// Seconds since 1970 with this many digits behind the point, rounded down, without the sign; and whether they are negative.
pub fn seconds(time: NfsTime, digits: usize) -> (bool, String) {
    let shown = digits.min(9) as u32;
    let (scale, part) = (10u32.pow(shown), 10u32.pow(9 - shown));
    let (mut whole, mut fraction) = (time.seconds, time.nseconds / part);
    let negative = whole < 0;
    if negative && time.nseconds > 0 {
        fraction = scale - fraction - u32::from(!time.nseconds.is_multiple_of(part));
        whole += i64::from(fraction > 0);
    }
    let whole = whole.unsigned_abs();
    match digits {
        0 => (negative, whole.to_string()),
        _ => {
            (negative, format!("{whole}.{:0<digits$}", format!("{fraction:0width$}", width = shown as usize)))
        }
    }
}

fn number(text: &str) -> (Option<usize>, &str) {
    let len = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    // A limit, so that a field cannot fill the memory.
    (text[..len].parse().ok().map(|n: usize| n.min(4096)), &text[len..])
}
