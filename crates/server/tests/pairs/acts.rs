//! What one client can do to a prepared directory, as a table: what it changes, what it names, how it is answered.
//!
//! Each pair of clients has a directory of its own:
//!
//! | name | what it is |
//! |---|---|
//! | `x` | a file with contents and an extended attribute, known to both clients by its handle |
//! | `y` | another file |
//! | `h`, `l` | two names of one file |
//! | `s` | an empty directory, known to both clients by its handle |
//! | `f` | a directory with one file, `e`; known to both clients by its handle |
//! | `k` | a symbolic link |
//! | `n` | what is made, or moved there |
//! | `m` | what is not there |

use landfast_volume::Durability;

/// An object that an operation changes or names. Entries are their directory's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obj {
    Dir,
    X,
    Y,
    H,
    S,
    F,
}

impl Obj {
    /// As the document says it.
    pub fn said(self) -> &'static str {
        match self {
            Obj::Dir => "the directory",
            Obj::X => "the file",
            Obj::Y => "the other file",
            Obj::H => "the file with two names",
            Obj::S => "the empty directory",
            Obj::F => "the full directory",
        }
    }
}

/// A way of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    V3,
    V40,
    V41,
    V42,
}

use Version::*;

impl Version {
    pub fn said(self) -> &'static str {
        match self {
            V3 => "3",
            V40 => "4.0",
            V41 => "4.1",
            V42 => "4.2",
        }
    }

    pub fn minor(self) -> u32 {
        match self {
            V3 | V40 => 0,
            V41 => 1,
            V42 => 2,
        }
    }
}

/// What an answer has to be preceded by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// Stable storage: the protocol makes the operation synchronous.
    Stable,
    /// A later COMMIT sees to it.
    Later,
    /// Nothing: it only reads.
    Nothing,
}

/// How it is answered in the directory as it was prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Ok,
    /// Or that the filesystem cannot do it.
    OkOrNot,
    Exist,
    NoEnt,
    NotEmpty,
    NotSync,
    NoXattr,
}

impl Answer {
    pub fn said(self) -> &'static str {
        match self {
            Answer::Ok => "OK",
            Answer::OkOrNot => "OK, NOTSUPP",
            Answer::Exist => "EXIST",
            Answer::NoEnt => "NOENT",
            Answer::NotEmpty => "NOTEMPTY",
            Answer::NotSync => "NOT_SYNC",
            Answer::NoXattr => "NOXATTR",
        }
    }

    /// Whether `status` says so in this version.
    pub fn is(self, status: u32, op: Op, version: Version) -> bool {
        match self {
            Answer::Ok => status == 0,
            Answer::OkOrNot => status == 0 || status == 10004,
            Answer::Exist => status == 17,
            Answer::NoEnt => status == 2,
            // RFC 8881 section 18.26.3: RENAME says EXIST.
            Answer::NotEmpty if op == Op::RenameOverFull && version != V3 => status == 17,
            Answer::NotEmpty => status == 66,
            Answer::NotSync => status == 10002,
            Answer::NoXattr => status == 10095,
        }
    }
}

/// One act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    CreateGuarded,
    CreateUnchecked,
    CreateExclusive,
    CreateUncheckedThere,
    CreateTruncating,
    CreateGuardedThere,
    CreateExclusiveThere,
    Mkdir,
    MkdirThere,
    Symlink,
    SymlinkThere,
    Mknod,
    MknodThere,
    Remove,
    RemoveOneOfTwo,
    RemoveMissing,
    Rmdir,
    RmdirFull,
    Rename,
    RenameOver,
    RenameSame,
    RenameMissing,
    RenameOverFull,
    RenameInto,
    Link,
    LinkThere,
    MakeInDir,
    RemoveInDir,
    SetMode,
    SetSize,
    SetTimes,
    SetNothing,
    SetGuarded,
    SetAcl,
    WriteSync,
    WriteUnstable,
    Commit,
    CommitOwn,
    WriteOpen,
    SetSizeOpen,
    CommitOpen,
    SetxattrNew,
    SetxattrThere,
    SetxattrMissing,
    Removexattr,
    RemovexattrMissing,
    Allocate,
    Deallocate,
    Copy,
    Clone,
    Lookup,
    LookupMissing,
    GetattrFile,
    GetattrDir,
    Read,
    Readdir,
    Access,
    Readlink,
    Open,
    Getxattr,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Act {
    pub op: Op,
    /// As the document calls it.
    pub said: &'static str,
    /// The first version that has it, and the last.
    pub since: Version,
    pub until: Version,
    pub answer: Answer,
    pub asks: Asks,
    /// What it changes where it is answered so: what another's answer may rest on.
    pub changes: &'static [Obj],
    /// What its answer tells of.
    pub names: &'static [Obj],
    /// With a log it leaves a record.
    pub own: bool,
}

const fn act(op: Op, said: &'static str, changes: &'static [Obj], names: &'static [Obj]) -> Act {
    let own = !changes.is_empty();
    Act { op, said, since: V3, until: V42, answer: Answer::Ok, asks: Asks::Stable, changes, names, own }
}

impl Act {
    const fn says(self, answer: Answer) -> Act {
        Act { answer, ..self }
    }

    /// Nobody's answer rests on it, and it has a record all the same.
    const fn with_record(self) -> Act {
        Act { own: true, ..self }
    }

    const fn from(self, since: Version) -> Act {
        Act { since, ..self }
    }

    const fn only(self, version: Version) -> Act {
        Act { since: version, until: version, ..self }
    }

    /// Whether it has something flushed where there is no log.
    pub fn own_flush(&self) -> bool {
        !self.changes.is_empty() || self.op == Op::Commit
    }

    pub fn in_version(&self, version: Version) -> bool {
        (self.since..=self.until).contains(&version)
    }

    /// What is changed, and not flushed, while it waits for its flush. Without a log what a COMMIT makes durable has happened before.
    pub fn pending(&self, durability: Durability) -> &'static [Obj] {
        let commits = matches!(self.op, Op::CommitOwn | Op::CommitOpen);
        if commits && durability == Durability::Sync { &[] } else { self.changes }
    }

    /// Whether the answer to `self` must not come before what `first` has done is durable.
    pub fn rests_on(&self, first: &Act, durability: Durability) -> bool {
        self.asks == Asks::Stable && self.shares(first, durability)
    }

    /// Whether `first` changes something that this names.
    pub fn shares(&self, first: &Act, durability: Durability) -> bool {
        first.pending(durability).iter().any(|object| self.names.contains(object))
    }
}

const fn reads(op: Op, said: &'static str) -> Act {
    Act { asks: Asks::Nothing, ..act(op, said, &[], &[]) }
}

use Obj::{Dir, F, H, S, X, Y};

/// All acts.
pub const ACTS: &[Act] = &[
    act(Op::CreateGuarded, "CREATE GUARDED", &[Dir], &[Dir]),
    act(Op::CreateUnchecked, "CREATE UNCHECKED", &[Dir], &[Dir]),
    act(Op::CreateExclusive, "CREATE EXCLUSIVE", &[Dir], &[Dir]),
    act(Op::CreateUncheckedThere, "CREATE UNCHECKED of a file that is there", &[], &[Dir, X]),
    act(Op::CreateTruncating, "CREATE UNCHECKED that truncates", &[X], &[Dir, X]),
    act(Op::CreateGuardedThere, "CREATE GUARDED", &[], &[Dir]).says(Answer::Exist),
    act(Op::CreateExclusiveThere, "CREATE EXCLUSIVE", &[], &[Dir, X]).says(Answer::Exist),
    act(Op::Mkdir, "MKDIR", &[Dir], &[Dir]),
    act(Op::MkdirThere, "MKDIR", &[], &[Dir]).says(Answer::Exist),
    act(Op::Symlink, "SYMLINK", &[Dir], &[Dir]),
    act(Op::SymlinkThere, "SYMLINK", &[], &[Dir]).says(Answer::Exist),
    act(Op::Mknod, "MKNOD", &[Dir], &[Dir]),
    act(Op::MknodThere, "MKNOD", &[], &[Dir]).says(Answer::Exist),
    act(Op::Remove, "REMOVE", &[Dir, X], &[Dir, X]),
    act(Op::RemoveOneOfTwo, "REMOVE of one of two names", &[Dir, H], &[Dir, H]),
    act(Op::RemoveMissing, "REMOVE", &[], &[Dir]).says(Answer::NoEnt),
    act(Op::Rmdir, "RMDIR", &[Dir, S], &[Dir, S]),
    act(Op::RmdirFull, "RMDIR", &[], &[Dir, F]).says(Answer::NotEmpty),
    act(Op::Rename, "RENAME", &[Dir, Y], &[Dir, Y]),
    act(Op::RenameOver, "RENAME over a file", &[Dir, Y, X], &[Dir, Y, X]),
    act(Op::RenameSame, "RENAME of two names of one file", &[], &[Dir, H]).with_record(),
    act(Op::RenameMissing, "RENAME", &[], &[Dir]).says(Answer::NoEnt),
    act(Op::RenameOverFull, "RENAME over a directory", &[], &[Dir, S, F]).says(Answer::NotEmpty),
    act(Op::RenameInto, "RENAME into another directory", &[Dir, S, Y], &[Dir, S, Y]),
    act(Op::Link, "LINK", &[Dir, X], &[Dir, X]),
    act(Op::LinkThere, "LINK", &[], &[Dir, X]).says(Answer::Exist),
    act(Op::MakeInDir, "CREATE in a directory by its handle", &[S], &[S]),
    act(Op::RemoveInDir, "REMOVE in a directory by its handle", &[F], &[F]),
    act(Op::SetMode, "SETATTR mode", &[X], &[X]),
    act(Op::SetSize, "SETATTR size", &[X], &[X]),
    act(Op::SetTimes, "SETATTR times", &[X], &[X]),
    act(Op::SetNothing, "SETATTR of nothing", &[X], &[X]),
    act(Op::SetGuarded, "SETATTR with a guard", &[], &[X]).says(Answer::NotSync).only(V3),
    act(Op::SetAcl, "SETACL, SETATTR of an ACL", &[X], &[X]),
    act(Op::WriteSync, "WRITE FILE_SYNC", &[X], &[X]),
    Act { asks: Asks::Later, ..act(Op::WriteUnstable, "WRITE UNSTABLE", &[], &[X]) },
    act(Op::Commit, "COMMIT of nothing of one's own", &[], &[X]).with_record(),
    act(Op::CommitOwn, "COMMIT", &[X], &[X]),
    act(Op::WriteOpen, "WRITE FILE_SYNC to an open file", &[X], &[X]).from(V40),
    act(Op::SetSizeOpen, "SETATTR size of an open file", &[X], &[X]).from(V40),
    act(Op::CommitOpen, "COMMIT of an open file", &[X], &[X]).from(V40),
    act(Op::SetxattrNew, "SETXATTR", &[X], &[X]).from(V42),
    act(Op::SetxattrThere, "SETXATTR REPLACE", &[X], &[X]).from(V42),
    act(Op::SetxattrMissing, "SETXATTR REPLACE", &[], &[X]).says(Answer::NoXattr).from(V42),
    act(Op::Removexattr, "REMOVEXATTR", &[X], &[X]).from(V42),
    act(Op::RemovexattrMissing, "REMOVEXATTR", &[], &[X]).says(Answer::NoXattr).from(V42),
    act(Op::Allocate, "ALLOCATE", &[X], &[X]).from(V42),
    act(Op::Deallocate, "DEALLOCATE", &[X], &[X]).from(V42),
    act(Op::Copy, "COPY", &[X], &[X, Y]).from(V42),
    act(Op::Clone, "CLONE", &[X], &[X, Y]).says(Answer::OkOrNot).from(V42),
    reads(Op::Lookup, "LOOKUP"),
    reads(Op::LookupMissing, "LOOKUP").says(Answer::NoEnt),
    reads(Op::GetattrFile, "GETATTR"),
    reads(Op::GetattrDir, "GETATTR"),
    reads(Op::Read, "READ"),
    reads(Op::Readdir, "READDIR"),
    reads(Op::Access, "ACCESS"),
    reads(Op::Readlink, "READLINK"),
    reads(Op::Open, "OPEN without CREATE").from(V40),
    reads(Op::Getxattr, "GETXATTR").from(V42),
];

/// The acts of one version.
pub fn of(version: Version) -> impl Iterator<Item = &'static Act> {
    ACTS.iter().filter(move |act| act.in_version(version))
}
