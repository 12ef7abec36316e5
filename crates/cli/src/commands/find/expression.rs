//! The expressions of `find`. Pure.

use super::format::Format;
use super::object::{Context, Object};
use super::regex::{self, Syntax};
use crate::commands::mode;
use landfast_client::fs::Meta;
use landfast_client::glob;
use landfast_nfs::v4::{FileType, NfsTime};
use regex_automata::meta::Regex;
use std::cmp::Ordering;

/// Limit of nested parentheses and negations.
const DEPTH_MAX: usize = 256;
const DAY: i64 = 86_400;

#[derive(Debug, Default)]
pub struct Query {
    /// Objects that are fewer levels below a starting point are skipped.
    pub depth_min: usize,
    /// Directories that are more levels below a starting point are not entered.
    pub depth_max: Option<usize>,
    /// What `-newer`, `-samefile` and the like compare with; [`Test::Newer`] and [`Test::Same`] have an index into this.
    pub references: Vec<Reference>,
    /// Users and (`true`) groups as typed; [`Test::Owner`] has an index into this.
    pub owners: Vec<(bool, String)>,
    pub empty: bool,
    /// Entries come before their directory.
    pub depth_first: bool,
    /// Other filesystems are not entered.
    pub one_filesystem: bool,
    pub deletes: bool,
    pub quits: bool,
    /// The targets of symbolic links are printed.
    pub texts: bool,
    expression: Option<Expression>,
    acts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    Url(String),
    Time(String),
}

#[derive(Debug)]
enum Expression {
    Test(Test),
    Not(Box<Expression>),
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
    /// `a , b`: both are evaluated, the second one gives the value.
    List(Box<Expression>, Box<Expression>),
}

#[derive(Debug)]
enum Test {
    Always(bool),
    Name { pattern: Vec<u8>, fold: bool },
    Path { pattern: Vec<u8>, fold: bool },
    Type(Vec<FileType>),
    Size { count: Count, unit: u64 },
    Age { count: Count, seconds: i64, of: TimeField },
    Newer { of: TimeField, n: usize, than: TimeField },
    Same(usize),
    Empty,
    Perm { which: PermTest, mode: u32 },
    Owner { group: bool, n: usize },
    OwnerNumber { group: bool, count: Count },
    Nameless { group: bool },
    Inode(Count),
    Links(Count),
    Prune,
    Print(&'static [u8]),
    Printf(Format),
    List,
    Delete,
    Quit,
    Regex(Regex),
}

#[derive(Debug, Clone, Copy)]
enum TimeField {
    Modified,
    Accessed,
    Changed,
}

impl TimeField {
    fn time(self, meta: &Meta) -> NfsTime {
        match self {
            TimeField::Modified => meta.modified,
            TimeField::Accessed => meta.accessed,
            TimeField::Changed => meta.changed,
        }
    }

    fn letter(letter: u8) -> Option<TimeField> {
        match letter {
            b'm' => Some(TimeField::Modified),
            b'a' => Some(TimeField::Accessed),
            b'c' => Some(TimeField::Changed),
            _ => None,
        }
    }
}

/// Which bits of a mode must be set.
#[derive(Debug, Clone, Copy)]
enum PermTest {
    Exactly,
    All,
    Any,
}

/// `N`, `+N` or `-N`.
#[derive(Debug, Clone, Copy)]
struct Count {
    than: Ordering,
    n: u64,
}

impl Count {
    fn holds(self, n: u64) -> bool {
        n.cmp(&self.n) == self.than
    }
}

/// What an expression wants done with an object.
#[derive(Debug, Default)]
pub struct Verdict<'q> {
    pub outputs: Vec<Output<'q>>,
    pub prune: bool,
    /// It is to be deleted. What else is to be done depends on whether that works: the rest of this verdict means nothing.
    pub delete: bool,
    pub quit: bool,
}

#[derive(Debug)]
pub enum Output<'q> {
    /// The path with this terminator.
    Path(&'static [u8]),
    Format(&'q Format),
    /// A line as that of `ls -dils`.
    Line,
}

struct Evaluation<'a> {
    object: &'a Object<'a>,
    context: &'a Context<'a>,
    deleted: Option<bool>,
}

impl Query {
    /// Parses what follows the starting points. Warnings are sentences; the error is one, too.
    pub fn parse(words: &[String], warnings: &mut Vec<String>) -> Result<Query, String> {
        let mut parser = Parser {
            words,
            warnings,
            at: 0,
            depth: 0,
            syntax: Syntax::Emacs,
            has_prune: false,
            has_depth: false,
            query: Query::default(),
        };
        if !words.is_empty() {
            let expression = parser.list()?;
            match parser.peek() {
                None => {}
                Some(")") => return Err("invalid expression; you have too many ')'".to_owned()),
                Some(word) => return Err(format!("paths must precede expression: `{word}'")),
            }
            parser.query.expression = Some(expression);
        }
        if parser.query.deletes && parser.has_prune && !parser.has_depth {
            return Err("The -delete action automatically turns on -depth, but -prune does nothing when -depth is in \
                        effect.  If you want to carry on anyway, just explicitly use the -depth option."
                .to_owned());
        }
        Ok(parser.query)
    }

    /// What to do with an object. `deleted`: whether its deletion worked, once it was tried.
    pub fn judge(&self, object: &Object<'_>, context: &Context<'_>, deleted: Option<bool>) -> Verdict<'_> {
        let mut verdict = Verdict::default();
        let case = Evaluation { object, context, deleted };
        let found = self.expression.as_ref().is_none_or(|e| e.judge(&case, &mut verdict));
        if found && !self.acts {
            verdict.outputs.push(Output::Path(b"\n"));
        }
        verdict
    }
}

impl Expression {
    fn judge<'q>(&'q self, case: &Evaluation<'_>, verdict: &mut Verdict<'q>) -> bool {
        match self {
            // The rest of the expression is not evaluated.
            _ if verdict.delete || verdict.quit => false,
            Expression::Test(test) => test.judge(case, verdict),
            Expression::Not(e) => !e.judge(case, verdict),
            Expression::And(a, b) => a.judge(case, verdict) && b.judge(case, verdict),
            Expression::Or(a, b) => a.judge(case, verdict) || b.judge(case, verdict),
            Expression::List(a, b) => {
                a.judge(case, verdict);
                b.judge(case, verdict)
            }
        }
    }
}

impl Test {
    fn judge<'q>(&'q self, case: &Evaluation<'_>, verdict: &mut Verdict<'q>) -> bool {
        let Evaluation { object: Object { path, meta, empty_dir, .. }, context, deleted } = case;
        let owner =
            |group| if group { context.who.group(&meta.group) } else { context.who.user(&meta.owner) };
        match self {
            Test::Always(answer) => *answer,
            Test::Name { pattern, fold } => matches(pattern, name_of(path), *fold),
            Test::Path { pattern, fold } => matches(pattern, path, *fold),
            Test::Type(kinds) => meta.kind.is_some_and(|kind| kinds.contains(&kind)),
            Test::Size { count, unit } => count.holds(meta.size.div_ceil(*unit)),
            Test::Age { count, seconds, of } => {
                let time = of.time(meta);
                // Whole units that have passed. A unit begins one nanosecond after the last one ends.
                let nanoseconds = |t: NfsTime| i128::from(t.seconds) * 1_000_000_000 + i128::from(t.nseconds);
                let age = nanoseconds(context.now) - nanoseconds(time);
                let passed = age.div_euclid(i128::from(*seconds) * 1_000_000_000);
                passed.cmp(&i128::from(count.n)) == count.than
            }
            Test::Newer { of, n, than } => {
                context.references.get(*n).is_some_and(|reference| of.time(meta) > than.time(reference))
            }
            Test::Same(n) => context
                .references
                .get(*n)
                .is_some_and(|other| (meta.fsid, meta.fileid) == (other.fsid, other.fileid)),
            Test::Empty => *empty_dir || meta.kind == Some(FileType::Reg) && meta.size == 0,
            Test::Perm { which, mode } => match which {
                PermTest::Exactly => meta.mode & 0o7777 == *mode,
                PermTest::All => meta.mode & mode == *mode,
                PermTest::Any => *mode == 0 || meta.mode & mode != 0,
            },
            Test::Owner { group, n } => context.owners.get(*n).is_some_and(|id| owner(*group).0 == *id),
            Test::OwnerNumber { group, count } => count.holds(u64::from(owner(*group).0)),
            Test::Nameless { group } => owner(*group).1.is_empty(),
            Test::Inode(count) => count.holds(meta.fileid),
            Test::Links(count) => count.holds(u64::from(meta.links)),
            Test::Prune => {
                verdict.prune = true;
                true
            }
            Test::Print(end) => {
                verdict.outputs.push(Output::Path(end));
                true
            }
            Test::Printf(format) => {
                verdict.outputs.push(Output::Format(format));
                true
            }
            Test::List => {
                verdict.outputs.push(Output::Line);
                true
            }
            Test::Delete => {
                verdict.delete |= deleted.is_none();
                deleted.unwrap_or_default()
            }
            Test::Quit => {
                verdict.quit = true;
                true
            }
            Test::Regex(regex) => regex.is_match(path),
        }
    }
}

/// The last name of a path, without slashes behind it.
fn name_of(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
    let start = path[..end].iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    &path[start..end]
}

fn matches(pattern: &[u8], text: &[u8], fold: bool) -> bool {
    match fold {
        true => glob::matches(&lower(pattern), &lower(text)),
        false => glob::matches(pattern, text),
    }
}

fn lower(text: &[u8]) -> Vec<u8> {
    std::str::from_utf8(text).map_or_else(|_| text.to_ascii_lowercase(), |t| t.to_lowercase().into_bytes())
}

struct Parser<'a> {
    words: &'a [String],
    warnings: &'a mut Vec<String>,
    at: usize,
    depth: usize,
    /// The syntax of regular expressions from here on.
    syntax: Syntax,
    has_prune: bool,
    has_depth: bool,
    query: Query,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(String::as_str)
    }

    fn take(&mut self, words: &[&str]) -> bool {
        let there = self.peek().is_some_and(|word| words.contains(&word));
        self.at += usize::from(there);
        there
    }

    fn argument(&mut self, of: &str) -> Result<&'a str, String> {
        let word = self.peek().ok_or_else(|| format!("missing argument to `{of}'"))?;
        self.at += 1;
        Ok(word)
    }

    /// `a , b`
    fn list(&mut self) -> Result<Expression, String> {
        let mut all = self.any()?;
        while self.take(&[","]) {
            all = Expression::List(Box::new(all), Box::new(self.any()?));
        }
        Ok(all)
    }

    /// `a -o b`
    fn any(&mut self) -> Result<Expression, String> {
        let mut all = self.every()?;
        while self.take(&["-o", "-or"]) {
            all = Expression::Or(Box::new(all), Box::new(self.every()?));
        }
        Ok(all)
    }

    /// `a b`, `a -a b`
    fn every(&mut self) -> Result<Expression, String> {
        let mut all = self.one()?;
        loop {
            let said = self.take(&["-a", "-and"]);
            let ends = matches!(self.peek(), None | Some(")" | "," | "-o" | "-or"));
            if ends && !said {
                return Ok(all);
            }
            all = Expression::And(Box::new(all), Box::new(self.one()?));
        }
    }

    /// `! a`, `( a )`, a test
    fn one(&mut self) -> Result<Expression, String> {
        let operator = |word| {
            format!("invalid expression; you have used a binary operator '{word}' with nothing before it.")
        };
        let Some(word) = self.peek() else {
            let last = self.words.last().map_or("", String::as_str);
            return Err(format!("expected an expression after '{last}'"));
        };
        self.at += 1;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("the expression is nested too deeply".to_owned());
        }
        let one = match word {
            "!" | "-not" => Expression::Not(Box::new(self.one()?)),
            "(" => {
                if self.take(&[")"]) {
                    return Err("invalid expression; empty parentheses are not allowed.".to_owned());
                }
                let inner = self.list()?;
                if !self.take(&[")"]) {
                    return Err(
                        "invalid expression; I was expecting to find a ')' somewhere but did not see one."
                            .to_owned(),
                    );
                }
                inner
            }
            "-o" | "-or" | "-a" | "-and" | "," => return Err(operator(word)),
            ")" => return Err("invalid expression; you have too many ')'".to_owned()),
            word => Expression::Test(self.test(word)?),
        };
        self.depth -= 1;
        Ok(one)
    }

    fn test(&mut self, word: &str) -> Result<Test, String> {
        let pattern = |text: &str| text.as_bytes().to_vec();
        Ok(match word {
            "-true" => Test::Always(true),
            "-false" => Test::Always(false),
            "-name" | "-iname" => {
                Test::Name { pattern: pattern(self.argument(word)?), fold: word == "-iname" }
            }
            "-path" | "-wholename" | "-ipath" | "-iwholename" => {
                Test::Path { pattern: pattern(self.argument(word)?), fold: word.starts_with("-i") }
            }
            "-type" => Test::Type(kinds(self.argument(word)?)?),
            "-size" => size(self.argument(word)?)?,
            "-mtime" => self.age(word, DAY, TimeField::Modified)?,
            "-mmin" => self.age(word, 60, TimeField::Modified)?,
            "-atime" => self.age(word, DAY, TimeField::Accessed)?,
            "-amin" => self.age(word, 60, TimeField::Accessed)?,
            "-ctime" => self.age(word, DAY, TimeField::Changed)?,
            "-cmin" => self.age(word, 60, TimeField::Changed)?,
            "-newer" | "-anewer" | "-cnewer" => {
                let of = match word {
                    "-newer" => TimeField::Modified,
                    "-anewer" => TimeField::Accessed,
                    _ => TimeField::Changed,
                };
                Test::Newer { of, n: self.reference(word, Reference::Url)?, than: TimeField::Modified }
            }
            "-samefile" => Test::Same(self.reference(word, Reference::Url)?),
            "-empty" => {
                self.query.empty = true;
                Test::Empty
            }
            "-perm" => permissions(self.argument(word)?)?,
            "-user" | "-group" => {
                let (group, name) = (word == "-group", self.argument(word)?);
                self.query.owners.push((group, name.to_owned()));
                Test::Owner { group, n: self.query.owners.len() - 1 }
            }
            "-uid" | "-gid" => Test::OwnerNumber { group: word == "-gid", count: self.count(word)? },
            "-nouser" | "-nogroup" => Test::Nameless { group: word == "-nogroup" },
            "-inum" => Test::Inode(self.count(word)?),
            "-depth" => {
                self.has_depth = true;
                self.query.depth_first = true;
                Test::Always(true)
            }
            "-xdev" | "-mount" => {
                self.query.one_filesystem = true;
                Test::Always(true)
            }
            "-links" => Test::Links(self.count(word)?),
            "-prune" => {
                self.has_prune = true;
                Test::Prune
            }
            "-regex" | "-iregex" => {
                let pattern = self.argument(word)?;
                Test::Regex(regex::compile(pattern, self.syntax, word == "-iregex")?)
            }
            "-regextype" => {
                let name = self.argument(word)?;
                self.syntax = Syntax::named(name).ok_or_else(|| {
                    format!("-regextype: '{name}' is not supported; what is: emacs (as without it), posix-extended")
                })?;
                Test::Always(true)
            }
            "-printf" => {
                self.query.acts = true;
                let format = Format::parse(self.argument(word)?, self.warnings)?;
                self.query.texts |= format.needs_texts();
                Test::Printf(format)
            }
            "-ls" => {
                (self.query.acts, self.query.texts) = (true, true);
                Test::List
            }
            "-delete" => {
                (self.query.acts, self.query.deletes, self.query.depth_first) = (true, true, true);
                Test::Delete
            }
            "-quit" => {
                (self.query.acts, self.query.quits) = (true, true);
                Test::Quit
            }
            "-print" | "-print0" => {
                self.query.acts = true;
                Test::Print(if word == "-print" { b"\n" } else { b"\0" })
            }
            "-maxdepth" | "-mindepth" => {
                let text = self.argument(word)?;
                let n = text.parse().map_err(|_| {
                    format!("Expected a positive decimal integer argument to {word}, but got '{text}'")
                })?;
                match word {
                    "-maxdepth" => self.query.depth_max = Some(n),
                    _ => self.query.depth_min = n,
                }
                Test::Always(true)
            }
            word if word.len() == 8 && word.starts_with("-newer") => {
                let unknown = || format!("unknown predicate `{word}'");
                let (x, y) = (word.as_bytes()[6], word.as_bytes()[7]);
                let of = TimeField::letter(x).ok_or_else(unknown)?;
                let (than, kind): (_, fn(String) -> Reference) = match y {
                    b't' => (TimeField::Modified, Reference::Time),
                    y => (TimeField::letter(y).ok_or_else(unknown)?, Reference::Url),
                };
                Test::Newer { of, n: self.reference(word, kind)?, than }
            }
            word if word.starts_with('-') => return Err(format!("unknown predicate `{word}'")),
            word => return Err(format!("paths must precede expression: `{word}'")),
        })
    }

    fn reference(&mut self, word: &str, kind: fn(String) -> Reference) -> Result<usize, String> {
        let text = self.argument(word)?.to_owned();
        self.query.references.push(kind(text));
        Ok(self.query.references.len() - 1)
    }

    fn count(&mut self, of: &str) -> Result<Count, String> {
        let text = self.argument(of)?;
        count(text).ok_or_else(|| format!("invalid argument `{text}' to `{of}'"))
    }

    fn age(&mut self, word: &str, seconds: i64, of: TimeField) -> Result<Test, String> {
        Ok(Test::Age { count: self.count(word)?, seconds, of })
    }
}

fn count(text: &str) -> Option<Count> {
    let (than, digits) = match text.as_bytes().first()? {
        b'+' => (Ordering::Greater, &text[1..]),
        b'-' => (Ordering::Less, &text[1..]),
        _ => (Ordering::Equal, text),
    };
    let digits = Some(digits).filter(|d| d.bytes().all(|b| b.is_ascii_digit()))?;
    Some(Count { than, n: digits.parse().ok()? })
}

fn permissions(text: &str) -> Result<Test, String> {
    let (which, mode) = match text.as_bytes().first() {
        Some(b'-') => (PermTest::All, &text[1..]),
        Some(b'/') => (PermTest::Any, &text[1..]),
        _ => (PermTest::Exactly, text),
    };
    let mode = mode::of_nothing(mode).ok_or_else(|| format!("invalid mode '{text}'"))?;
    Ok(Test::Perm { which, mode })
}

fn size(text: &str) -> Result<Test, String> {
    let invalid = || format!("Invalid argument `{text}' to -size");
    let (number, unit) = match text.char_indices().last() {
        Some((at, last)) if !last.is_ascii_digit() => {
            let unit = match last {
                'c' => 1,
                'w' => 2,
                'b' => 512,
                'k' => 1 << 10,
                'M' => 1 << 20,
                'G' => 1 << 30,
                last => return Err(format!("invalid -size type `{last}'")),
            };
            (&text[..at], unit)
        }
        _ => (text, 512),
    };
    Ok(Test::Size { count: count(number).ok_or_else(invalid)?, unit })
}

fn kinds(text: &str) -> Result<Vec<FileType>, String> {
    text.split(',')
        .map(|letter| match letter {
            "f" => Ok(FileType::Reg),
            "d" => Ok(FileType::Dir),
            "l" => Ok(FileType::Lnk),
            "b" => Ok(FileType::Blk),
            "c" => Ok(FileType::Chr),
            "p" => Ok(FileType::Fifo),
            "s" => Ok(FileType::Sock),
            "" => Err("Arguments to -type should contain at least one letter".to_owned()),
            letter => Err(format!("Unknown argument to -type: {letter}")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_nfs::v4::attr::AttrValues;

    fn parse(text: &str) -> Result<Query, String> {
        Query::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), &mut Vec::new())
    }

    /// How many things are printed for an object, and whether it is pruned.
    fn judge(text: &str, path: &str, attrs: &AttrValues, deleted: Option<bool>) -> (usize, bool) {
        let meta = Meta::of(attrs);
        let reference =
            AttrValues { time_modify: Some(NfsTime { seconds: 7, nseconds: 3 }), ..AttrValues::default() };
        let context = Context {
            now: NfsTime { seconds: 10 * DAY, nseconds: 5 },
            references: &[Meta::of(&reference)],
            owners: &[],
            who: &landfast_client::fs::AsNamed,
        };
        let path = path.as_bytes();
        let object = Object { path, start: path, depth: 0, meta: &meta, text: None, empty_dir: false };
        let query = parse(text).expect(text);
        let verdict = query.judge(&object, &context, deleted);
        (verdict.outputs.len(), verdict.prune)
    }

    #[test]
    fn operators_bind_as_they_should_and_actions_take_printing_over() {
        let none = AttrValues::default();
        for (text, lines) in [
            ("", 1),
            ("-false", 0),
            ("! -false", 1),
            ("-false -o -true", 1),
            ("-true -o -true -false", 1),
            ("( -true -o -true ) -false", 0),
            ("-false , -true", 1),
            ("-print -o -print", 1),
            ("-print , -print", 2),
            ("-false -a -print", 0),
            ("! ! -name x", 1),
            ("-maxdepth 3 -name y", 0),
        ] {
            assert_eq!(judge(text, "a/x/", &none, None).0, lines, "{text}");
        }
        assert!(judge("-name x -prune -o -print", "a/x", &none, None).1);
        for (text, deleted, lines) in [
            ("-delete -print", true, 1),
            ("-delete -print", false, 0),
            ("-delete -o -print", false, 1),
            ("-delete", true, 0),
            ("-print -quit -print", false, 1),
            ("-quit", false, 0),
            ("-print , -quit , -print", false, 1),
        ] {
            assert_eq!(judge(text, "a", &none, Some(deleted)).0, lines, "{text}");
        }
    }

    #[test]
    fn sizes_and_ages_are_counted_in_whole_units() {
        let attrs = |size, seconds, nseconds| AttrValues {
            size: Some(size),
            time_modify: Some(NfsTime { seconds, nseconds }),
            kind: Some(FileType::Reg),
            ..AttrValues::default()
        };
        for (text, found, attrs) in [
            ("-size 1", true, attrs(1, 0, 0)),
            ("-size 1", false, attrs(0, 0, 0)),
            ("-size -1M", false, attrs(1, 0, 0)),
            ("-size -2M", true, attrs(1 << 20, 0, 0)),
            ("-size +1k", true, attrs(1025, 0, 0)),
            ("-size 7c", true, attrs(7, 0, 0)),
            ("-mtime 0", true, attrs(0, 9 * DAY, 6)),
            ("-mtime 1", true, attrs(0, 9 * DAY, 5)),
            ("-mtime +1", false, attrs(0, 9 * DAY, 5)),
            ("-mtime -1", true, attrs(0, 11 * DAY, 5)),
            ("-newer x", true, attrs(0, 7, 4)),
            ("-newer x", false, attrs(0, 7, 3)),
            ("-newermm x", true, attrs(0, 7, 4)),
            ("-newermc x", true, attrs(0, 7, 3)),
            ("-empty", true, attrs(0, 0, 0)),
            ("-empty", false, attrs(1, 0, 0)),
            ("-perm 0", true, attrs(0, 0, 0)),
            ("-perm -u+w", false, attrs(0, 0, 0)),
            ("-perm /0", true, attrs(0, 0, 0)),
            ("-perm /111", false, attrs(0, 0, 0)),
            ("-type f,d", true, attrs(0, 0, 0)),
            ("-type l", false, attrs(0, 0, 0)),
        ] {
            assert_eq!(judge(text, "x", &attrs, None).0 > 0, found, "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "(",
            ")",
            "( )",
            "-o",
            "-a -true",
            "-true -o",
            "!",
            "-name",
            "-type",
            "-type q",
            "-type f,",
            "-size x",
            "-size 5q",
            "-mtime one",
            "-maxdepth -1",
            "-exec",
            "-newerxm x",
            "-newermq x",
            "-newermt",
            "-perm 9",
            "-perm u",
            "-perm",
            "-inum x",
            "-user",
            "x",
            "-true -true )",
            "-true y",
            "-links é",
            "-size é",
            "-delete -prune",
            "-printf",
            "-printf %",
            "-printf %F",
            "-regex \\(",
            "-regextype sed",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"! ".repeat(100_000)).is_err());
    }
}
