//! Two clients that meet on one object: what each does, which answers fit together, and what must be there afterwards. Pure.
//!
//! In a round two clients each do one [`Deed`] on the same few names, the second while the first is probably still under way.
//! A server may execute them in either order, and one that was not answered perhaps not at all; but every answer that was
//! read, success or error, must be true of what is there after a cut. *There is an order of the deeds, with all that were
//! answered and with or without those that were not, in which each gives the answer that was read, and whose result is what
//! is there*: if there is none, the server has told something that was not stable.
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

/// The size to which [`Deed::SetSize`] sets, in bytes.
pub const SIZE: u64 = 300;

/// The permission bits that [`Deed::SetMode`] sets.
pub const MODE: u32 = 0o640;

/// The permission bits with which files are made.
pub const MODE_MADE: u32 = 0o664;

/// The extended attribute that [`Deed::NewXattr`] makes.
pub const XATTR_NEW: &str = "new";

/// The extended attribute that [`Deed::RemoveXattr`] removes.
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
    /// A directory.
    D,
    /// In that directory: nothing at first.
    Inner,
}

impl Name {
    /// All names; [`Name::Inner`] behind its directory.
    pub const ALL: [Name; 5] = [Name::X, Name::Y, Name::Z, Name::D, Name::Inner];

    /// The name as it stands in its directory.
    #[must_use]
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

macro_rules! deeds {
    ($($(#[$doc:meta])* $variant:ident = $word:literal, $label:literal, [$($name:ident),*];)*) => {
        /// What one of the two does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Deed {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)*
        }

        impl Deed {
            /// All deeds, in the order of tables.
            pub const ALL: &'static [Deed] = &[$(Deed::$variant),*];

            /// The word for the command line.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Deed::$variant => $word,)* }
            }

            /// The name in tables.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self { $(Deed::$variant => $label,)* }
            }

            /// The names that it is about.
            #[must_use]
            pub fn names(self) -> &'static [Name] {
                match self { $(Deed::$variant => &[$(Name::$name),*],)* }
            }
        }
    };
}

deeds! {
    /// CREATE of `y` that must not exist.
    Create = "create", "CREATE guarded", [Y];
    /// CREATE of `y` that may exist.
    CreateUnchecked = "create-unchecked", "CREATE unchecked", [Y];
    /// CREATE of `y` with a verifier; both clients send the same one.
    CreateExclusive = "create-exclusive", "CREATE exclusive, same verifier", [Y];
    /// CREATE of `x` that may exist, with size 0.
    Truncate = "truncate", "CREATE unchecked, size 0", [X];
    /// MKDIR of `y`.
    Mkdir = "mkdir", "MKDIR", [Y];
    /// SYMLINK at `y`.
    Symlink = "symlink", "SYMLINK", [Y];
    /// REMOVE of `x`.
    Remove = "remove", "REMOVE", [X];
    /// RENAME of `x` to `y`.
    Rename = "rename", "RENAME", [X, Y];
    /// RENAME of `z` over `x`.
    RenameOver = "rename-over", "RENAME over", [Z, X];
    /// RENAME of `y` to itself.
    RenameSelf = "rename-self", "RENAME to itself", [Y];
    /// LINK of `x` to `y`.
    Link = "link", "LINK", [X, Y];
    /// WRITE FILE_SYNC to `x`.
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
    /// RMDIR of `d`.
    Rmdir = "rmdir", "RMDIR", [D, Inner];
    /// SETXATTR of `x` that must not have it.
    NewXattr = "setxattr", "SETXATTR create", [X];
    /// REMOVEXATTR of `x`.
    RemoveXattr = "removexattr", "REMOVEXATTR", [X];
}

impl Deed {
    /// Whether its reply tells of what it made, which may be gone again by then.
    fn makes(self) -> bool {
        matches!(
            self,
            Deed::Create
                | Deed::CreateUnchecked
                | Deed::CreateExclusive
                | Deed::Truncate
                | Deed::Mkdir
                | Deed::Symlink
        )
    }

    /// Whether it takes version 4.2.
    #[must_use]
    pub fn of_42(self) -> bool {
        matches!(self, Deed::Allocate | Deed::NewXattr | Deed::RemoveXattr)
    }

    /// Whether it takes extended attributes.
    #[must_use]
    pub fn of_xattrs(self) -> bool {
        matches!(self, Deed::NewXattr | Deed::RemoveXattr)
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Two deeds on a common name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Meeting {
    /// Sent first.
    pub first: Deed,
    /// Sent while the first is probably under way.
    pub second: Deed,
}

impl Meeting {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Meeting> {
        let pairs = Deed::ALL.iter().flat_map(|a| Deed::ALL.iter().map(|b| (*a, *b)));
        pairs
            .map(|(first, second)| Meeting { first, second })
            .filter(|m| m.first.names().iter().any(|name| m.second.names().contains(name)))
    }

    /// Whether one of the two does this.
    #[must_use]
    pub fn has(self, deed: Deed) -> bool {
        self.first == deed || self.second == deed
    }

    /// Whether a name is looked at.
    #[must_use]
    pub fn uses(self, name: Name) -> bool {
        self.first.names().contains(&name) || self.second.names().contains(&name)
    }

    fn of(self, second: bool) -> Deed {
        if second { self.second } else { self.first }
    }
}

impl fmt::Display for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.first, self.second)
    }
}

impl FromStr for Meeting {
    type Err = String;

    fn from_str(s: &str) -> Result<Meeting, String> {
        let deed = |word: &str| Deed::ALL.iter().copied().find(|d| d.word() == word);
        let words: Vec<&str> = Deed::ALL.iter().map(|d| d.word()).collect();
        let usage = || format!("`{s}` is not FIRST:SECOND; each is one of {}", words.join(", "));
        let (first, second) = s.split_once(':').ok_or_else(usage)?;
        let (first, second) = (deed(first).ok_or_else(usage)?, deed(second).ok_or_else(usage)?);
        let meeting = Meeting { first, second };
        if Meeting::all().any(|m| m == meeting) {
            Ok(meeting)
        } else {
            Err(format!(
                "{first} and {second} have no name in common: what one is told says nothing of the other"
            ))
        }
    }
}

/// What a client was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It was done.
    Done(Reply),
    /// There is something at the name already.
    Exists,
    /// There is nothing at the name.
    NoEntry,
    /// The directory is not empty.
    NotEmpty,
    /// The handle leads nowhere.
    Stale,
    /// Another error, by its name: nothing follows from it.
    Other(String),
}

impl Answer {
    /// Whether it leaves open what was done.
    fn is_vague(&self, deed: Deed) -> bool {
        match self {
            Answer::Other(_) => true,
            // LOOKUP only reads.
            Answer::Stale | Answer::NoEntry => deed.makes() || deed == Deed::WriteFound,
            Answer::Done(_) | Answer::Exists | Answer::NotEmpty => false,
        }
    }

    /// In one word.
    #[must_use]
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
pub struct Before {
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
    /// Of which pair.
    pub pair: u32,
    /// Its number, which its names carry.
    pub no: u32,
    /// What the two do.
    pub meeting: Meeting,
    /// Its data depends on it.
    pub tag: u64,
    /// What was there before.
    pub before: Before,
    /// What the first and the second were told.
    pub told: [Option<Answer>; 2],
}

impl Round {
    /// What the two were told, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        let told = |who: usize| self.told[who].as_ref().map_or("not answered", Answer::word);
        let Meeting { first, second } = self.meeting;
        format!("{} was told {}, {} was told {}", first.label(), told(0), second.label(), told(1))
    }

    /// Whether extended attributes matter.
    #[must_use]
    pub fn looks_at_xattrs(&self) -> bool {
        self.meeting.first.of_xattrs() || self.meeting.second.of_xattrs()
    }
}

/// Which bytes of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bytes {
    /// What `x` held first.
    X,
    /// What was written UNSTABLE to it.
    Unstable,
    /// What `z` held.
    Z,
    /// What the first writes.
    First,
    /// What the second writes.
    Second,
}

/// The bytes of a round.
#[must_use]
pub fn bytes(tag: u64, which: Bytes) -> Vec<u8> {
    data(tag ^ (0x1000 + which as u64), BYTES)
}

/// The verifier of a round's exclusive creates.
#[must_use]
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

    /// What is there after a deed that gave this answer; `None`: after any answer. Nothing if it cannot give this answer here.
    fn after(&self, round: &Round, second: bool, answer: Option<&Answer>) -> Vec<State> {
        let deed = round.meeting.of(second);
        let reply = match answer {
            None => None,
            Some(Answer::Done(reply)) => Some(reply),
            // Whether it was done, or done in part, is not known: what was made may be gone when it is looked at.
            Some(error) if error.is_vague(deed) => {
                let mut states = vec![self.clone()];
                states.extend(self.cut_partly(deed));
                states.extend(self.done(round, second, None));
                return states;
            }
            Some(error) => return if self.fits(deed, error) { vec![self.clone()] } else { Vec::new() },
        };
        match (self.done(round, second, reply), answer) {
            (Some(state), None) => {
                let partly = self.cut_partly(deed);
                partly.into_iter().chain([state]).collect()
            }
            (Some(state), _) => vec![state],
            // It was refused, and nobody heard it.
            (None, None) => vec![self.clone()],
            (None, Some(_)) => Vec::new(),
        }
    }

    /// What is there when a deed was begun that makes a file shorter.
    fn cut_partly(&self, deed: Deed) -> Option<State> {
        let (object, size) = match deed {
            Deed::SetSize => (X, SIZE as usize),
            Deed::Truncate => (*self.names.get(&Name::X)?, 0),
            _ => return None,
        };
        let mut s = self.clone();
        s.objects[object].contents.cut_begun(size, PREPARED);
        Some(s)
    }

    /// Whether a deed can give this error here.
    fn fits(&self, deed: Deed, error: &Answer) -> bool {
        let there = |name| self.names.contains_key(&name);
        match (error, deed) {
            (
                Answer::Exists,
                Deed::Create
                | Deed::CreateUnchecked
                | Deed::CreateExclusive
                | Deed::Mkdir
                | Deed::Symlink
                | Deed::Link
                | Deed::Rename,
            ) => there(Name::Y),
            (Answer::Exists, Deed::RenameOver | Deed::Truncate) => there(Name::X),
            (Answer::Exists | Answer::NotEmpty, Deed::Rmdir) | (Answer::Exists, Deed::Fill) => {
                there(Name::Inner)
            }
            (Answer::Exists, Deed::NewXattr) => self.objects[X].xattrs.contains(XATTR_NEW),
            (Answer::NotEmpty, Deed::Rename) => there(Name::Y),
            (Answer::NoEntry, Deed::Remove | Deed::Rename) => !there(Name::X),
            (Answer::NoEntry, Deed::RenameOver) => !there(Name::Z),
            (Answer::NoEntry, Deed::RenameSelf) => !there(Name::Y),
            (Answer::NoEntry | Answer::Stale, Deed::Rmdir | Deed::Fill) => !there(Name::D),
            (Answer::NoEntry, Deed::RemoveXattr) => {
                self.dead() || !self.objects[X].xattrs.contains(XATTR_OLD)
            }
            (
                Answer::NoEntry | Answer::Stale,
                Deed::Link
                | Deed::Write
                | Deed::Commit
                | Deed::SetMode
                | Deed::SetSize
                | Deed::Allocate
                | Deed::NewXattr
                | Deed::RemoveXattr,
            ) => self.dead(),
            _ => false,
        }
    }

    /// What is there after a deed that succeeded; `None` if it cannot succeed here.
    fn done(&self, round: &Round, second: bool, reply: Option<&Reply>) -> Option<State> {
        let deed = round.meeting.of(second);
        let mut s = self.clone();
        let fileid = reply.and_then(|r| r.fileid);
        let there = |name| self.names.get(&name).copied();
        // A handle is good as long as the object is there, and on many servers as long as it is open.
        let op = OpNo::from(second) + 1;
        match deed {
            Deed::Create if there(Name::Y).is_some() => return None,
            Deed::Create => {
                s.bind(Name::Y, Object { mode: Some(MODE_MADE), ..Object::new(Kind::File, fileid) });
            }
            Deed::CreateUnchecked | Deed::CreateExclusive => {
                let exclusive = deed == Deed::CreateExclusive;
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
            Deed::Truncate => match there(Name::X) {
                None => s.bind(Name::X, Object::new(Kind::File, fileid)),
                Some(o) => {
                    let object = &mut s.objects[o];
                    if object.kind != Kind::File || !object.is(fileid) {
                        return None;
                    }
                    object.contents.resize(0, op);
                }
            },
            Deed::Mkdir | Deed::Symlink | Deed::Link if there(Name::Y).is_some() => return None,
            Deed::Mkdir => s.bind(Name::Y, Object::new(Kind::Dir, fileid)),
            Deed::Symlink => s.bind(Name::Y, Object::new(Kind::Symlink, fileid)),
            Deed::Link => drop(s.names.insert(Name::Y, X)),
            Deed::Remove => drop(s.names.remove(&Name::X)?),
            Deed::Rename => {
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
            Deed::RenameOver => {
                let z = s.names.remove(&Name::Z)?;
                s.names.insert(Name::X, z);
            }
            Deed::RenameSelf => drop(there(Name::Y)?),
            Deed::Write | Deed::WriteFound => {
                let written = if deed == Deed::Write { X } else { there(Name::Y)? };
                if s.objects[written].kind != Kind::File {
                    return None;
                }
                let which = if second { Bytes::Second } else { Bytes::First };
                let mut data = bytes(round.tag, which);
                data.truncate(reply.and_then(|r| r.count).map_or(data.len(), |n| n as usize));
                let contents = &mut s.objects[written].contents;
                match reply {
                    Some(r) if r.stable => contents.write(0, &data, op),
                    // Of a write that was not answered any part may be there.
                    _ => contents.write_unstable(Pending {
                        op,
                        offset: 0,
                        data,
                        verf: reply.and_then(|r| r.verf.clone()),
                    }),
                }
            }
            Deed::Commit => {
                s.objects[X].contents.commit(reply.and_then(|r| r.verf.as_deref()).or(Some("")), op)
            }
            Deed::SetMode => s.objects[X].mode = Some(MODE),
            Deed::SetSize => s.objects[X].contents.resize(SIZE as usize, op),
            Deed::Allocate => {
                let contents = &mut s.objects[X].contents;
                if contents.size_live() < 2 * BYTES {
                    contents.resize(2 * BYTES, op);
                }
            }
            Deed::Fill => {
                there(Name::D)?;
                if there(Name::Inner).is_some() {
                    return None;
                }
                s.bind(Name::Inner, Object { mode: Some(MODE_MADE), ..Object::new(Kind::File, fileid) });
            }
            Deed::Rmdir => {
                if there(Name::Inner).is_some() {
                    return None;
                }
                s.names.remove(&Name::D)?;
            }
            Deed::NewXattr => {
                if !s.objects[X].xattrs.insert(XATTR_NEW) {
                    return None;
                }
            }
            Deed::RemoveXattr => {
                if !s.objects[X].xattrs.remove(XATTR_OLD) {
                    return None;
                }
            }
        }
        Some(s)
    }

    /// How what is there differs.
    fn differences(&self, found: &Found) -> Vec<String> {
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
        // Names of one object lead to one file id, others to others.
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

    /// Whether it can have this file id, which is its own from now on.
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
pub struct Seen {
    /// It is a directory.
    pub dir: bool,
    /// It is a symbolic link.
    pub symlink: bool,
    /// Its file id.
    pub fileid: u64,
    /// Permission bits.
    pub mode: u32,
    /// Of a file: all its bytes.
    pub bytes: Vec<u8>,
    /// Those of [`XATTR_NEW`] and [`XATTR_OLD`] that it has.
    pub xattrs: BTreeSet<&'static str>,
}

impl Seen {
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
pub struct Found(pub BTreeMap<Name, Seen>);

/// What a round came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// What is there fits to what was told.
    Kept,
    /// It does not: what is wrong.
    Broken(String),
    /// What was told fits to no order of the two: nothing follows.
    Unexplained,
}

/// Everything that may be there after a round.
fn outcomes(round: &Round) -> Vec<State> {
    let start = State::of(round);
    let told = |second: bool| round.told[usize::from(second)].as_ref();
    let mut all = Vec::new();
    for order in [&[][..], &[false], &[true], &[false, true], &[true, false]] {
        // What was answered without doubt was executed, also when it was refused.
        if [false, true].iter().any(|who| told(*who).is_some() && !order.contains(who)) {
            continue;
        }
        let mut states = vec![start.clone()];
        for who in order {
            states = states.iter().flat_map(|s| s.after(round, *who, told(*who))).collect();
        }
        // Neither is promised: what was done to an object may be there without the name by which it was found.
        if let [first, then] = order
            && told(*first).is_none()
            && told(*then).is_none()
            && matches!(round.meeting.of(*then), Deed::WriteFound | Deed::Truncate)
        {
            all.extend(states.iter().map(|s| State { names: start.names.clone(), ..s.clone() }));
        }
        all.extend(states);
    }
    all
}

/// Judges a round by what was found.
#[must_use]
pub fn judge(round: &Round, found: &Found) -> Judgement {
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
