//! Two clients that race on one object: what each does, which replies fit together, and what must be there afterwards. Pure.
//!
//! In a round two clients each do one [`RaceOp`] on the same few names, the second while the first is probably still in flight.
//! A server may execute them in either order, and one that was not answered perhaps not at all; but every answer that was
//! read, success or error, must be true of what is there after a cut. *There is an order of the operations, with all that were
//! answered and with or without those that were not, in which each gives the answer that was read, and whose result is what
//! is there*: if there is none, the server's reply told of something that was not stable.
//!
//! Answers of operations that only read are not asked for: no RFC makes them wait for anything.

use crate::contents::{Contents, OpNo, Pending};
use crate::op::{Reply, data};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// Bytes of each write of a round; all are at the beginning of their file.
pub const BYTES: usize = 1024;

/// The size to which [`RaceOp::SetSize`] sets, in bytes.
pub const SIZE: u64 = 300;

pub const MODE: u32 = 0o640;

/// The permission bits with which files are made.
pub const MODE_MADE: u32 = 0o664;

/// The extended attribute that [`RaceOp::NewXattr`] makes.
pub const XATTR_NEW: &str = "new";

/// The extended attribute that [`RaceOp::RemoveXattr`] removes.
pub const XATTR_OLD: &str = "old";

/// A name of a round: the letter and the round's number in the pair's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// A file that both know by its handle.
    X,
    /// Nothing at first.
    Y,
    /// Another file.
    Z,
    D,
    /// In that directory: nothing at first.
    Inner,
}

impl Name {
    /// All names; [`Name::Inner`] behind its directory.
    pub const ALL: [Name; 5] = [Name::X, Name::Y, Name::Z, Name::D, Name::Inner];

    /// The name as it stands in its directory.
    pub fn text(self, round: u32) -> String {
        match self {
            Name::X => format!("x{round}"),
            Name::Y => format!("y{round}"),
            Name::Z => format!("z{round}"),
            Name::D => format!("d{round}"),
            Name::Inner => "inner".to_owned(),
        }
    }
}

macro_rules! race_ops {
    ($($(#[$doc:meta])* $variant:ident = $word:literal, $label:literal, [$($name:ident),*];)*) => {
        /// What one of the two does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum RaceOp {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)*
        }

        impl RaceOp {
            /// All operations, in the order of tables.
            pub const ALL: &'static [RaceOp] = &[$(RaceOp::$variant),*];

            pub fn word(self) -> &'static str {
                match self { $(RaceOp::$variant => $word,)* }
            }

            pub fn label(self) -> &'static str {
                match self { $(RaceOp::$variant => $label,)* }
            }

            pub fn names(self) -> &'static [Name] {
                match self { $(RaceOp::$variant => &[$(Name::$name),*],)* }
            }
        }
    };
}

race_ops! {
    /// CREATE of `y` that must not exist.
    Create = "create", "CREATE guarded", [Y];
    /// CREATE of `y` that may exist.
    CreateUnchecked = "create-unchecked", "CREATE unchecked", [Y];
    /// CREATE of `y` with a verifier; both clients send the same one.
    CreateExclusive = "create-exclusive", "CREATE exclusive, same verifier", [Y];
    /// CREATE of `x` that may exist, with size 0.
    Truncate = "truncate", "CREATE unchecked, size 0", [X];
    Mkdir = "mkdir", "MKDIR", [Y];
    Symlink = "symlink", "SYMLINK", [Y];
    Remove = "remove", "REMOVE", [X];
    Rename = "rename", "RENAME", [X, Y];
    RenameOver = "rename-over", "RENAME over", [Z, X];
    RenameSelf = "rename-self", "RENAME to itself", [Y];
    Link = "link", "LINK", [X, Y];
    Write = "write", "WRITE FILE_SYNC", [X];
    /// LOOKUP of `y`, and WRITE FILE_SYNC to the file that is found.
    WriteFound = "write-found", "LOOKUP, WRITE FILE_SYNC", [Y];
    /// COMMIT of `x`, to which something was written UNSTABLE before.
    Commit = "commit", "COMMIT", [X];
    /// SETATTR of the mode of `x`, to the same from both.
    SetMode = "setattr-mode", "SETATTR mode", [X];
    /// SETATTR of the size of `x`, to the same from both.
    SetSize = "setattr-size", "SETATTR size", [X];
    /// ALLOCATE of what `x` holds and some more.
    Allocate = "allocate", "ALLOCATE", [X];
    /// CREATE of a file in `d`.
    Fill = "fill", "CREATE in a directory", [D, Inner];
    Rmdir = "rmdir", "RMDIR", [D, Inner];
    /// SETXATTR of `x` that must not have it.
    NewXattr = "setxattr", "SETXATTR create", [X];
    RemoveXattr = "removexattr", "REMOVEXATTR", [X];
}

impl RaceOp {
    /// Whether its reply describes what it made, which the other client may have removed by then.
    fn makes(self) -> bool {
        matches!(
            self,
            RaceOp::Create
                | RaceOp::CreateUnchecked
                | RaceOp::CreateExclusive
                | RaceOp::Truncate
                | RaceOp::Mkdir
                | RaceOp::Symlink
        )
    }

    /// Whether it needs version 4.2.
    pub fn of_42(self) -> bool {
        matches!(self, RaceOp::Allocate | RaceOp::NewXattr | RaceOp::RemoveXattr)
    }

    pub fn of_xattrs(self) -> bool {
        matches!(self, RaceOp::NewXattr | RaceOp::RemoveXattr)
    }
}

impl fmt::Display for RaceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Race {
    pub first: RaceOp,
    /// Sent while the first is probably in flight.
    pub second: RaceOp,
}

impl Race {
    pub fn all() -> impl Iterator<Item = Race> {
        let pairs = RaceOp::ALL.iter().flat_map(|a| RaceOp::ALL.iter().map(|b| (*a, *b)));
        pairs
            .map(|(first, second)| Race { first, second })
            .filter(|m| m.first.names().iter().any(|name| m.second.names().contains(name)))
    }

    /// Whether one of the two does this.
    pub fn has(self, race_op: RaceOp) -> bool {
        self.first == race_op || self.second == race_op
    }

    /// Whether a name is looked at.
    pub fn uses(self, name: Name) -> bool {
        self.first.names().contains(&name) || self.second.names().contains(&name)
    }

    fn of(self, second: bool) -> RaceOp {
        if second { self.second } else { self.first }
    }
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.first, self.second)
    }
}

impl FromStr for Race {
    type Err = String;

    fn from_str(s: &str) -> Result<Race, String> {
        let race_op = |word: &str| RaceOp::ALL.iter().copied().find(|d| d.word() == word);
        let words: Vec<&str> = RaceOp::ALL.iter().map(|d| d.word()).collect();
        let usage = || format!("`{s}` is not FIRST:SECOND; each is one of {}", words.join(", "));
        let (first, second) = s.split_once(':').ok_or_else(usage)?;
        let (first, second) = (race_op(first).ok_or_else(usage)?, race_op(second).ok_or_else(usage)?);
        let meeting = Race { first, second };
        if Race::all().any(|m| m == meeting) {
            Ok(meeting)
        } else {
            Err(format!(
                "{first} and {second} have no name in common: what one is told says nothing of the other"
            ))
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Done(Reply),
    /// There is something at the name already.
    Exists,
    NoEntry,
    NotEmpty,
    /// The handle leads nowhere.
    Stale,
    /// Another error, with its name; nothing follows from it.
    Other(String),
}

impl Answer {
    /// Whether it leaves open what was done.
    fn is_vague(&self, race_op: RaceOp) -> bool {
        match self {
            Answer::Other(_) => true,
            // LOOKUP only reads.
            Answer::Stale | Answer::NoEntry => race_op.makes() || race_op == RaceOp::WriteFound,
            Answer::Done(_) | Answer::Exists | Answer::NotEmpty => false,
        }
    }

    pub fn word(&self) -> &str {
        match self {
            Answer::Done(_) => "OK",
            Answer::Exists => "EXIST",
            Answer::NoEntry => "NOENT",
            Answer::NotEmpty => "NOTEMPTY",
            Answer::Stale => "STALE",
            Answer::Other(status) => status,
        }
    }
}

/// What was there, and acknowledged, before the two began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// File ids of those of [`Name::X`], [`Name::Z`] and [`Name::D`] that are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<u64>,
    /// As above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub z: Option<u64>,
    /// As above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d: Option<u64>,
    /// The verifier of a WRITE UNSTABLE to `x`, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verf: Option<String>,
    /// `x` has [`XATTR_OLD`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub xattr: bool,
}

/// A round, as the journal tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    pub pair: u32,
    /// Its number, which its names carry.
    pub no: u32,
    pub meeting: Race,
    /// Its data depends on it.
    pub tag: u64,
    pub before: Prepared,
    /// The replies that the first and the second client read.
    pub told: [Option<Answer>; 2],
}

impl Round {
    /// The two replies, for people.
    pub fn shown(&self) -> String {
        let told = |who: usize| self.told[who].as_ref().map_or("not answered", Answer::word);
        let Race { first, second } = self.meeting;
        format!("{} was told {}, {} was told {}", first.label(), told(0), second.label(), told(1))
    }

    pub fn looks_at_xattrs(&self) -> bool {
        self.meeting.first.of_xattrs() || self.meeting.second.of_xattrs()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bytes {
    /// What `x` held first.
    X,
    /// What was written UNSTABLE to it.
    Unstable,
    /// What `z` held.
    Z,
    First,
    Second,
}

pub fn bytes(tag: u64, which: Bytes) -> Vec<u8> {
    data(tag ^ (0x1000 + which as u64), BYTES)
}

/// The verifier of a round's exclusive creates.
pub fn verifier(tag: u64) -> [u8; 8] {
    (tag | 1).to_be_bytes()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Dir,
    Symlink,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Object {
    kind: Kind,
    fileid: Option<u64>,
    mode: Option<u32>,
    contents: Contents,
    /// It was made by an exclusive create.
    exclusive: bool,
    /// Those of its extended attributes that are known to be there.
    xattrs: BTreeSet<&'static str>,
}

/// What is there: which names lead to which objects. The first object is that of the handle that both know.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct State {
    names: BTreeMap<Name, usize>,
    objects: Vec<Object>,
    /// Whether extended attributes are compared.
    xattrs: bool,
}

const X: usize = 0;
const PREPARED: OpNo = 0;

impl State {
    fn of(round: &Round) -> State {
        let mut s = State::default();
        let held = |which| {
            let mut contents = Contents::default();
            contents.write(0, &bytes(round.tag, which), PREPARED);
            contents
        };
        // Also where there is no `x`, so that it is the first.
        let mut contents = held(Bytes::X);
        if let Some(verf) = &round.before.verf {
            let data = bytes(round.tag, Bytes::Unstable);
            contents.write_unstable(Pending { op: PREPARED, offset: 0, data, verf: Some(verf.clone()) });
        }
        let mode = Some(MODE_MADE);
        s.objects.push(Object {
            mode,
            contents,
            xattrs: round.before.xattr.then_some(XATTR_OLD).into_iter().collect(),
            ..Object::new(Kind::File, round.before.x)
        });
        s.xattrs = round.looks_at_xattrs();
        if round.before.x.is_some() {
            s.names.insert(Name::X, X);
        }
        if round.before.z.is_some() {
            let z = Object { mode, contents: held(Bytes::Z), ..Object::new(Kind::File, round.before.z) };
            s.bind(Name::Z, z);
        }
        if round.before.d.is_some() {
            s.bind(Name::D, Object::new(Kind::Dir, round.before.d));
        }
        s
    }

    fn bind(&mut self, name: Name, object: Object) {
        self.objects.push(object);
        self.names.insert(name, self.objects.len() - 1);
    }

    fn dead(&self) -> bool {
        !self.names.values().any(|o| *o == X)
    }

    /// The states that are possible after an operation with this answer (`None`: with any answer). None if it cannot give this
    /// answer in this state.
    fn after(&self, round: &Round, second: bool, answer: Option<&Answer>) -> Vec<State> {
        let race_op = round.meeting.of(second);
        let reply = match answer {
            None => None,
            Some(Answer::Done(reply)) => Some(reply),
            // It is not known whether it was done, or done in part: what it made may be gone when the server looks for it.
            Some(error) if error.is_vague(race_op) => {
                let mut states = vec![self.clone()];
                states.extend(self.cut_partly(race_op));
                states.extend(self.done(round, second, None));
                return states;
            }
            Some(error) => return if self.fits(race_op, error) { vec![self.clone()] } else { Vec::new() },
        };
        match (self.done(round, second, reply), answer) {
            (Some(state), None) => {
                let partly = self.cut_partly(race_op);
                partly.into_iter().chain([state]).collect()
            }
            (Some(state), _) => vec![state],
            // It was refused, and the reply was lost.
            (None, None) => vec![self.clone()],
            (None, Some(_)) => Vec::new(),
        }
    }

    /// The state after a truncation that was done in part.
    fn cut_partly(&self, race_op: RaceOp) -> Option<State> {
        let (object, size) = match race_op {
            RaceOp::SetSize => (X, SIZE as usize),
            RaceOp::Truncate => (*self.names.get(&Name::X)?, 0),
            _ => return None,
        };
        let mut s = self.clone();
        s.objects[object].contents.cut_begun(size, PREPARED);
        Some(s)
    }

    /// Whether an operation can give this error in this state.
    fn fits(&self, race_op: RaceOp, error: &Answer) -> bool {
        let there = |name| self.names.contains_key(&name);
        match (error, race_op) {
            (
                Answer::Exists,
                RaceOp::Create
                | RaceOp::CreateUnchecked
                | RaceOp::CreateExclusive
                | RaceOp::Mkdir
                | RaceOp::Symlink
                | RaceOp::Link
                | RaceOp::Rename,
            ) => there(Name::Y),
            (Answer::Exists, RaceOp::RenameOver | RaceOp::Truncate) => there(Name::X),
            (Answer::Exists | Answer::NotEmpty, RaceOp::Rmdir) | (Answer::Exists, RaceOp::Fill) => {
                there(Name::Inner)
            }
            (Answer::Exists, RaceOp::NewXattr) => self.objects[X].xattrs.contains(XATTR_NEW),
            (Answer::NotEmpty, RaceOp::Rename) => there(Name::Y),
            (Answer::NoEntry, RaceOp::Remove | RaceOp::Rename) => !there(Name::X),
            (Answer::NoEntry, RaceOp::RenameOver) => !there(Name::Z),
            (Answer::NoEntry, RaceOp::RenameSelf) => !there(Name::Y),
            (Answer::NoEntry | Answer::Stale, RaceOp::Rmdir | RaceOp::Fill) => !there(Name::D),
            (Answer::NoEntry, RaceOp::RemoveXattr) => {
                self.dead() || !self.objects[X].xattrs.contains(XATTR_OLD)
            }
            (
                Answer::NoEntry | Answer::Stale,
                RaceOp::Link
                | RaceOp::Write
                | RaceOp::Commit
                | RaceOp::SetMode
                | RaceOp::SetSize
                | RaceOp::Allocate
                | RaceOp::NewXattr
                | RaceOp::RemoveXattr,
            ) => self.dead(),
            _ => false,
        }
    }

    /// The state after an operation that succeeded; `None` if it cannot succeed in this state.
    fn done(&self, round: &Round, second: bool, reply: Option<&Reply>) -> Option<State> {
        let race_op = round.meeting.of(second);
        let mut s = self.clone();
        let fileid = reply.and_then(|r| r.fileid);
        let there = |name| self.names.get(&name).copied();
        // A handle works as long as the object exists, and on many servers as long as it is open.
        let op = OpNo::from(second) + 1;
        match race_op {
            RaceOp::Create if there(Name::Y).is_some() => return None,
            RaceOp::Create => {
                s.bind(Name::Y, Object { mode: Some(MODE_MADE), ..Object::new(Kind::File, fileid) });
            }
            RaceOp::CreateUnchecked | RaceOp::CreateExclusive => {
                let exclusive = race_op == RaceOp::CreateExclusive;
                match there(Name::Y) {
                    None => s.bind(Name::Y, Object { exclusive, ..Object::new(Kind::File, fileid) }),
                    Some(o) => {
                        let object = &mut s.objects[o];
                        if object.kind != Kind::File || (exclusive && !object.exclusive) || !object.is(fileid)
                        {
                            return None;
                        }
                    }
                }
            }
            RaceOp::Truncate => match there(Name::X) {
                None => s.bind(Name::X, Object::new(Kind::File, fileid)),
                Some(o) => {
                    let object = &mut s.objects[o];
                    if object.kind != Kind::File || !object.is(fileid) {
                        return None;
                    }
                    object.contents.resize(0, op);
                }
            },
            RaceOp::Mkdir | RaceOp::Symlink | RaceOp::Link if there(Name::Y).is_some() => return None,
            RaceOp::Mkdir => s.bind(Name::Y, Object::new(Kind::Dir, fileid)),
            RaceOp::Symlink => s.bind(Name::Y, Object::new(Kind::Symlink, fileid)),
            RaceOp::Link => drop(s.names.insert(Name::Y, X)),
            RaceOp::Remove => drop(s.names.remove(&Name::X)?),
            RaceOp::Rename => {
                let (x, y) = (there(Name::X)?, there(Name::Y));
                match y.map(|y| self.objects[y].kind) {
                    // RFC 1813 section 3.3.14, RFC 8881 section 18.26.3: two names of one object stay as they are.
                    Some(_) if y == Some(x) => {}
                    Some(Kind::Dir) => return None,
                    _ => {
                        s.names.remove(&Name::X);
                        s.names.insert(Name::Y, x);
                    }
                }
            }
            RaceOp::RenameOver => {
                let z = s.names.remove(&Name::Z)?;
                s.names.insert(Name::X, z);
            }
            RaceOp::RenameSelf => drop(there(Name::Y)?),
            RaceOp::Write | RaceOp::WriteFound => {
                let written = if race_op == RaceOp::Write { X } else { there(Name::Y)? };
                if s.objects[written].kind != Kind::File {
                    return None;
                }
                let which = if second { Bytes::Second } else { Bytes::First };
                let mut data = bytes(round.tag, which);
                data.truncate(reply.and_then(|r| r.count).map_or(data.len(), |n| n as usize));
                let contents = &mut s.objects[written].contents;
                match reply {
                    Some(r) if r.stable => contents.write(0, &data, op),
                    // Any part of a write that was not answered may be there.
                    _ => contents.write_unstable(Pending {
                        op,
                        offset: 0,
                        data,
                        verf: reply.and_then(|r| r.verf.clone()),
                    }),
                }
            }
            RaceOp::Commit => {
                s.objects[X].contents.commit(reply.and_then(|r| r.verf.as_deref()).or(Some("")), op)
            }
            RaceOp::SetMode => s.objects[X].mode = Some(MODE),
            RaceOp::SetSize => s.objects[X].contents.resize(SIZE as usize, op),
            RaceOp::Allocate => {
                let contents = &mut s.objects[X].contents;
                if contents.size_live() < 2 * BYTES {
                    contents.resize(2 * BYTES, op);
                }
            }
            RaceOp::Fill => {
                there(Name::D)?;
                if there(Name::Inner).is_some() {
                    return None;
                }
                s.bind(Name::Inner, Object { mode: Some(MODE_MADE), ..Object::new(Kind::File, fileid) });
            }
            RaceOp::Rmdir => {
                if there(Name::Inner).is_some() {
                    return None;
                }
                s.names.remove(&Name::D)?;
            }
            RaceOp::NewXattr => {
                if !s.objects[X].xattrs.insert(XATTR_NEW) {
                    return None;
                }
            }
            RaceOp::RemoveXattr => {
                if !s.objects[X].xattrs.remove(XATTR_OLD) {
                    return None;
                }
            }
        }
        Some(s)
    }

    /// How the names and objects on the server differ from this state.
    fn differences(&self, found: &ObservedNames) -> Vec<String> {
        let mut out = Vec::new();
        for name in Name::ALL {
            let (want, is) = (self.names.get(&name).map(|o| &self.objects[*o]), found.0.get(&name));
            let shown = name.text(0).trim_end_matches('0').to_owned();
            let (object, is) = match (want, is) {
                (None, None) => continue,
                (None, Some(_)) => {
                    out.push(format!("{shown} is there"));
                    continue;
                }
                (Some(_), None) => {
                    out.push(format!("{shown} is not there"));
                    continue;
                }
                (Some(object), Some(is)) => (object, is),
            };
            if object.kind != is.kind() || object.fileid.is_some_and(|id| id != is.fileid) {
                out.push(format!("{shown} is another object"));
                continue;
            }
            if object.mode.is_some_and(|mode| mode != is.mode) {
                out.push(format!("{shown} has mode {:o}", is.mode));
            }
            if object.kind == Kind::File {
                let d = object.contents.difference(&is.bytes);
                if !d.ops.is_empty() || d.strange {
                    out.push(format!("{shown} has other data ({} bytes)", is.bytes.len()));
                }
            }
            if self.xattrs && object.xattrs != is.xattrs {
                out.push(format!("{shown} has other extended attributes"));
            }
        }
        // Two names have the same file id if and only if they are of one object.
        let ids: Vec<(usize, u64)> =
            self.names.iter().filter_map(|(n, o)| Some((*o, found.0.get(n)?.fileid))).collect();
        let mixed = |(n, a): (usize, &(usize, u64))| ids[..n].iter().any(|b| (a.0 == b.0) != (a.1 == b.1));
        if out.is_empty() && ids.iter().enumerate().any(mixed) {
            out.push("two names lead to the wrong objects".to_owned());
        }
        out
    }
}

impl Object {
    fn new(kind: Kind, fileid: Option<u64>) -> Object {
        Object {
            kind,
            fileid,
            mode: None,
            contents: Contents::default(),
            exclusive: false,
            xattrs: BTreeSet::new(),
        }
    }

    /// Whether it can have this file id. If its file id was not known, it is from now on.
    fn is(&mut self, fileid: Option<u64>) -> bool {
        match (self.fileid, fileid) {
            (Some(own), Some(told)) => own == told,
            (None, told) => {
                self.fileid = told;
                true
            }
            (Some(_), None) => true,
        }
    }
}

/// What was found at a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedFile {
    pub dir: bool,
    pub symlink: bool,
    pub fileid: u64,
    pub mode: u32,
    /// Of a file: all its bytes.
    pub bytes: Vec<u8>,
    /// Those of [`XATTR_NEW`] and [`XATTR_OLD`] that it has.
    pub xattrs: BTreeSet<&'static str>,
}

impl ObservedFile {
    fn kind(&self) -> Kind {
        match (self.dir, self.symlink) {
            (true, _) => Kind::Dir,
            (_, true) => Kind::Symlink,
            _ => Kind::File,
        }
    }
}

/// What was found at the names of a round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedNames(pub BTreeMap<Name, ObservedFile>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// What is there fits the replies.
    Kept,
    /// It does not; with what is wrong.
    Broken(String),
    /// The replies fit no order of the two operations; nothing follows.
    Unexplained,
}

/// All states that are possible after a round.
fn outcomes(round: &Round) -> Vec<State> {
    let start = State::of(round);
    let told = |second: bool| round.told[usize::from(second)].as_ref();
    let mut all = Vec::new();
    for order in [&[][..], &[false], &[true], &[false, true], &[true, false]] {
        // An operation that was answered was executed, also if it was refused.
        if [false, true].iter().any(|who| told(*who).is_some() && !order.contains(who)) {
            continue;
        }
        let mut states = vec![start.clone()];
        for who in order {
            states = states.iter().flat_map(|s| s.after(round, *who, told(*who))).collect();
        }
        // Neither was answered: the change of an object may be there without the name by which it was found.
        if let [first, then] = order
            && told(*first).is_none()
            && told(*then).is_none()
            && matches!(round.meeting.of(*then), RaceOp::WriteFound | RaceOp::Truncate)
        {
            all.extend(states.iter().map(|s| State { names: start.names.clone(), ..s.clone() }));
        }
        all.extend(states);
    }
    all
}

/// Judges a round by what was found.
pub fn judge(round: &Round, found: &ObservedNames) -> Judgement {
    let outcomes = outcomes(round);
    let nearest = outcomes.iter().map(|s| s.differences(found)).min_by_key(Vec::len);
    match nearest {
        None => Judgement::Unexplained,
        Some(none) if none.is_empty() => Judgement::Kept,
        Some(differences) => Judgement::Broken(format!("{}, but {}", round.shown(), differences.join(", "))),
    }
}

#[cfg(test)]
mod tests;
