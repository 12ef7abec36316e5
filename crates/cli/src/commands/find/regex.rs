//! `-regex`: translates GNU's syntaxes `emacs` (the default of `find`) and `posix-extended` into that of the engine. Pure.
//!
//! Text is UTF-8, as in a UTF-8 locale: no character matches bytes that are not UTF-8. These are refused: back
//! references (an automaton cannot match them), `[.x.]` and `[=x=]`.

use regex_automata::meta::{Config, Regex};
use regex_automata::util::syntax;
use std::fmt::Write;

const COMPILED_BYTES_MAX: usize = 4 << 20;
const REPEATED_MAX: u32 = 0x7fff;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// The default of `find`: `\(`, `\)` and `\|`, no intervals, no character classes.
    Emacs,
    /// As `grep -E`.
    Extended,
}

impl Syntax {
    pub fn named(name: &str) -> Option<Syntax> {
        match name {
            "emacs" => Some(Syntax::Emacs),
            "posix-extended" => Some(Syntax::Extended),
            _ => None,
        }
    }
}

/// Compiles a pattern that must match a whole text; `fold`: case does not matter. The error is a sentence.
pub fn compile(pattern: &str, syntax: Syntax, fold: bool) -> Result<Regex, String> {
    let invalid = |why: &str| format!("failed to compile regular expression '{pattern}': {why}");
    let own = translate(pattern, syntax).map_err(|why| invalid(&why))?;
    Regex::builder()
        .configure(Config::new().nfa_size_limit(Some(COMPILED_BYTES_MAX)).utf8_empty(false))
        .syntax(syntax::Config::new().utf8(false).case_insensitive(fold))
        .build(&format!(r"\A(?:{own})\z"))
        .map_err(|_| invalid("Regular expression too big"))
}

fn translate(pattern: &str, syntax: Syntax) -> Result<String, String> {
    let mut t = Translator { rest: pattern, syntax, out: String::new(), open: Vec::new(), atom: None };
    while let Some(c) = t.next() {
        t.one(c)?;
    }
    match t.open.is_empty() {
        true => Ok(t.out),
        false => Err("Unmatched ( or \\(".to_owned()),
    }
}

struct Translator<'a> {
    rest: &'a str,
    syntax: Syntax,
    out: String,
    /// Where each open group begins.
    open: Vec<usize>,
    /// Where the atom begins that a following operator repeats, and the operator that it has already.
    atom: Option<(usize, Option<char>)>,
}

impl Translator<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Adds something that can be repeated.
    fn atom(&mut self, own: &str) {
        self.atom = Some((self.out.len(), None));
        self.out.push_str(own);
    }

    fn literal(&mut self, c: char) {
        let own = escaped(c);
        self.atom(&own);
    }

    /// Adds something that matches between characters.
    fn anchor(&mut self, own: &str) {
        self.out.push_str(own);
        self.atom = None;
    }

    fn one(&mut self, c: char) -> Result<(), String> {
        let extended = self.syntax == Syntax::Extended;
        // Whether this is the start of an expression, a group or an alternative.
        let begins = self.out.is_empty() || self.out.ends_with("(?:") || self.out.ends_with('|');
        match c {
            '\\' => return self.escape(),
            '[' => return self.bracket(),
            '.' if extended => self.atom("(?s:.)"),
            '.' => self.atom("."),
            '(' if extended => self.group(),
            ')' if extended && !self.open.is_empty() => self.end_of_group(),
            '|' if extended => self.or(),
            '^' if extended || begins => self.anchor("(?m:^)"),
            '$' if extended || self.ends() => self.anchor("(?m:$)"),
            '*' | '+' | '?' => match self.atom {
                Some(_) => self.repeat(c),
                None if extended => return Err("Invalid preceding regular expression".to_owned()),
                None => self.literal(c),
            },
            '{' if extended => return self.interval(),
            c => self.literal(c),
        }
        Ok(())
    }

    fn ends(&self) -> bool {
        self.rest.is_empty() || self.rest.starts_with("\\)") || self.rest.starts_with("\\|")
    }

    fn group(&mut self) {
        self.open.push(self.out.len());
        self.out.push_str("(?:");
        self.atom = None;
    }

    fn end_of_group(&mut self) {
        if let Some(start) = self.open.pop() {
            self.out.push(')');
            self.atom = Some((start, None));
        }
    }

    fn or(&mut self) {
        self.out.push('|');
        self.atom = None;
    }

    /// `*`, `+` or `?` behind an atom. Several of them in a row count as one.
    fn repeat(&mut self, operator: char) {
        match self.atom {
            Some((start, None)) => {
                self.out.push(operator);
                self.atom = Some((start, Some(operator)));
            }
            Some((start, Some(before))) if before != operator => {
                self.out.pop();
                self.out.push('*');
                self.atom = Some((start, Some('*')));
            }
            _ => {}
        }
    }

    /// `N}`, `N,}`, `,M}` or `N,M}`
    fn interval(&mut self) -> Result<(), String> {
        let Some((start, repeated)) = self.atom else {
            return Err("Invalid preceding regular expression".to_owned());
        };
        let bad = || "Invalid content of \\{\\}".to_owned();
        let (inner, rest) = self.rest.split_once('}').ok_or_else(|| "Unmatched { or \\{".to_owned())?;
        self.rest = rest;
        let number = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
            true => text.parse::<u32>().map_err(|_| bad()).and_then(|n| {
                if n > REPEATED_MAX { Err("Regular expression too big".to_owned()) } else { Ok(n) }
            }),
            false => Err(bad()),
        };
        let (least, most) = match inner.split_once(',') {
            None => {
                let n = number(inner)?;
                (n, Some(n))
            }
            Some((least, most)) => (
                if least.is_empty() { 0 } else { number(least)? },
                if most.is_empty() { None } else { Some(number(most)?) },
            ),
        };
        if most.is_some_and(|most| most < least) {
            return Err(bad());
        }
        if repeated.is_some() {
            self.out.insert_str(start, "(?:");
            self.out.push(')');
        }
        let most = most.map(|n| n.to_string()).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = write!(self.out, "{{{least},{most}}}");
        self.out.insert_str(start, "(?:");
        self.out.push(')');
        self.atom = Some((start, None));
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        let emacs = self.syntax == Syntax::Emacs;
        let Some(c) = self.next() else { return Err("Trailing backslash".to_owned()) };
        match c {
            '(' if emacs => self.group(),
            ')' if emacs && self.open.is_empty() => return Err("Unmatched ) or \\)".to_owned()),
            ')' if emacs => self.end_of_group(),
            '|' if emacs => self.or(),
            'w' => self.atom(r"[\p{Alphabetic}\p{Nd}_]"),
            'W' => self.atom(r"[^\p{Alphabetic}\p{Nd}_]"),
            's' => self.atom(r"\s"),
            'S' => self.atom(r"\S"),
            'b' => self.anchor(r"\b"),
            'B' => self.anchor(r"\B"),
            '<' => self.anchor(r"\b{start}"),
            '>' => self.anchor(r"\b{end}"),
            '`' => self.anchor(r"\A"),
            '\'' => self.anchor(r"\z"),
            '1'..='9' => return Err("references back (\\1) are not supported".to_owned()),
            c => self.literal(c),
        }
        Ok(())
    }

    /// Translates what follows `[`, up to its `]`.
    fn bracket(&mut self) -> Result<(), String> {
        let unmatched = || "Unmatched [, [^, [:, [., or [=".to_owned();
        let extended = self.syntax == Syntax::Extended;
        let negated = self.take("^");
        let mut set = String::new();
        let mut first = true;
        loop {
            let c = self.next().ok_or_else(unmatched)?;
            if c == ']' && !first {
                break;
            }
            first = false;
            if extended && c == '[' && self.rest.starts_with(['.', '=']) {
                return Err("[.x.] and [=x=] are not supported".to_owned());
            }
            if extended && c == '[' && self.take(":") {
                let (name, rest) = self.rest.split_once(":]").ok_or_else(unmatched)?;
                self.rest = rest;
                set.push_str(class(name).ok_or_else(|| "Invalid character class name".to_owned())?);
                continue;
            }
            let is_range = self.rest.starts_with('-') && !self.rest[1..].starts_with(']');
            let last = if is_range {
                self.next();
                self.next().ok_or_else(unmatched)?
            } else {
                c
            };
            match c <= last {
                true => set.push_str(&format!("{}-{}", escaped(c), escaped(last))),
                false if extended => return Err("Invalid range end".to_owned()),
                // The range is empty.
                false => {}
            }
        }
        let all = r"\x{0}-\x{10FFFF}";
        match (set.is_empty(), negated) {
            (true, true) => self.atom(&format!("[{all}]")),
            (true, false) => self.atom(&format!("[^{all}]")),
            (_, true) => self.atom(&format!("[^{set}]")),
            _ => self.atom(&format!("[{set}]")),
        }
        Ok(())
    }
}

fn escaped(c: char) -> String {
    match c.is_ascii_alphanumeric() || !c.is_ascii() {
        true => c.to_string(),
        false => format!(r"\x{{{:X}}}", u32::from(c)),
    }
}

/// The members of a character class, to be put in brackets.
fn class(name: &str) -> Option<&'static str> {
    Some(match name {
        "alpha" => r"\p{Alphabetic}",
        "digit" => "0-9",
        "alnum" => r"\p{Alphabetic}\p{Nd}",
        "upper" => r"\p{Uppercase}",
        "lower" => r"\p{Lowercase}",
        "space" => r"\s",
        "blank" => r"\x20\t",
        "xdigit" => "0-9A-Fa-f",
        "cntrl" => r"\x00-\x1F\x7F-\x{9F}",
        "graph" => r"\x21-\x7E\x{A1}-\x{10FFFF}",
        "print" => r"\x20-\x7E\x{A1}-\x{10FFFF}",
        "punct" => r"[\x21-\x7E\x{A1}-\x{10FFFF}&&[^\p{Alphabetic}\p{Nd}]]",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_expression_is_refused() {
        for (pattern, syntax) in [
            ("\\(", Syntax::Emacs),
            ("\\)", Syntax::Emacs),
            ("[", Syntax::Emacs),
            ("[]", Syntax::Emacs),
            ("[a-", Syntax::Emacs),
            ("a\\", Syntax::Emacs),
            ("\\(a\\)\\1", Syntax::Emacs),
            ("*", Syntax::Extended),
            ("(+)", Syntax::Extended),
            ("(", Syntax::Extended),
            ("[b-a]", Syntax::Extended),
            ("[[:nothing:]]", Syntax::Extended),
            ("[[.a.]]", Syntax::Extended),
            ("a{2", Syntax::Extended),
            ("a{2,1}", Syntax::Extended),
            ("a{99999}", Syntax::Extended),
            ("((a{1000}){1000}){1000}", Syntax::Extended),
        ] {
            assert!(compile(pattern, syntax, false).is_err(), "{pattern}");
        }
    }

    proptest! {
        /// What is translated is always valid for the engine.
        #[test]
        fn all_that_is_translated_is_understood(pattern in r"[a-c.*+?\\(){}|^$\[\]:,1-3é-]{0,12}") {
            for syntax in [Syntax::Emacs, Syntax::Extended] {
                if translate(&pattern, syntax).is_ok() {
                    let compiled = compile(&pattern, syntax, true);
                    prop_assert!(compiled.is_ok(), "{pattern} {syntax:?} {:?}", translate(&pattern, syntax));
                }
            }
        }
    }
}
