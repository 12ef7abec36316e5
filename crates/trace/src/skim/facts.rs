//! What a call tells about where its time goes: whether its effect must be durable, and which file it is about.

use super::cursor::Cursor;
use foldhash::fast::FixedState;
use landfast_nfs::v3::proc;
use landfast_nfs::v4::OpNum;
use std::hash::BuildHasher;

/// What a server has to do for a call. The last applicable variant counts for a COMPOUND.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Class {
    /// Look something up.
    #[default]
    Light,
    /// Read data or a directory.
    Fetch,
    /// Accept data that need not be durable yet.
    Unstable,
    /// Change names or attributes durably.
    Metadata,
    /// Make the data of this call durable.
    StableWrite,
    /// Make the data of earlier calls durable.
    Commit,
}

impl Class {
    pub const ALL: [Class; 6] =
        [Class::Light, Class::Fetch, Class::Unstable, Class::Metadata, Class::StableWrite, Class::Commit];

    /// Whether the reply promises that something is durable (RFC 1813 section 1.1.1, RFC 7530 section 14.3).
    pub fn is_synchronous(self) -> bool {
        self >= Class::Metadata
    }

    pub fn words(self) -> &'static str {
        match self {
            Class::Light => "looking up",
            Class::Fetch => "fetching",
            Class::Unstable => "WRITE UNSTABLE",
            Class::Metadata => "changes of names and attributes",
            Class::StableWrite => "WRITE FILE_SYNC",
            Class::Commit => "COMMIT",
        }
    }
}

/// What is known of a call besides its operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    pub class: Class,
    /// Digest of the handle that the call is about. With a name: of the directory.
    pub handle: Option<u64>,
    /// Digest of the name in that directory.
    pub name: Option<u64>,
    /// How many files it creates if they do not exist.
    pub makes: u16,
    /// Whether it names a wanted file or has the handle of one.
    pub asked: bool,
    /// Whether the handle in its results is of a wanted file.
    pub finds_asked: bool,
}

/// Recognises the wanted files.
pub trait WantedFiles {
    fn name(&self, name: &[u8]) -> bool;
    fn handle(&self, handle: &[u8]) -> bool;
}

/// Stands for the root's handle, which the call does not contain.
pub const ROOT: u64 = 0;

/// Digest of a handle or a name, the same in every run.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    FixedState::with_seed(0x6c61_6e64).hash_one(bytes)
}

/// Facts of an encrypted call of version 3: only the procedure is known, so not how stable a WRITE must be.
pub(super) fn v3_encrypted(procedure: u32) -> Facts {
    let class = match procedure {
        proc::WRITE => Class::Light,
        _ => v3_class(procedure),
    };
    Facts { class, makes: v3_makes(procedure), ..Facts::default() }
}

/// What a call asks of the server whose arguments were cut off when it was captured, as far as its procedure says, or the operation that
/// a COMPOUND was sent for. What could have to be stable counts so: if it had not, it takes no longer than others.
pub(crate) fn of_name(main: Option<OpNum>, procedure: u32) -> Class {
    match main {
        None if procedure == proc::WRITE => Class::StableWrite,
        None => v3_class(procedure),
        Some(OpNum::WRITE) => Class::StableWrite,
        Some(OpNum::COMMIT) => Class::Commit,
        Some(OpNum::READ | OpNum::READ_PLUS | OpNum::READDIR) => Class::Fetch,
        Some(OpNum::OPEN | OpNum::CREATE | OpNum::REMOVE | OpNum::RENAME | OpNum::LINK | OpNum::SETATTR) => {
            Class::Metadata
        }
        Some(_) => Class::Light,
    }
}

/// What a procedure of version 3 asks of the server. The arguments of a WRITE say more.
fn v3_class(procedure: u32) -> Class {
    match procedure {
        proc::CREATE | proc::MKDIR | proc::SYMLINK | proc::MKNOD | proc::REMOVE | proc::RMDIR => {
            Class::Metadata
        }
        proc::RENAME | proc::LINK | proc::SETATTR => Class::Metadata,
        proc::COMMIT => Class::Commit,
        proc::READ | proc::READDIR | proc::READDIRPLUS => Class::Fetch,
        proc::WRITE => Class::Unstable,
        _ => Class::Light,
    }
}

pub(super) fn v3_makes(procedure: u32) -> u16 {
    u16::from(matches!(procedure, proc::CREATE | proc::SYMLINK | proc::MKNOD))
}

/// Of a call of version 3. `None`: more bytes are needed.
pub(super) fn v3(procedure: u32, c: &mut Cursor<'_>, asked: Option<&dyn WantedFiles>) -> Option<Facts> {
    let mut all = *c;
    if procedure == proc::NULL {
        return Some(Facts::default());
    }
    let handle = Some(digest(c.opaque()?));
    let (class, makes) = (v3_class(procedure), v3_makes(procedure));
    let mut facts = Facts { handle, class, makes, ..Facts::default() };
    match procedure {
        proc::LOOKUP
        | proc::CREATE
        | proc::MKDIR
        | proc::SYMLINK
        | proc::MKNOD
        | proc::REMOVE
        | proc::RMDIR
        | proc::RENAME => facts.name = Some(digest(c.opaque()?)),
        proc::WRITE => {
            c.take(12)?;
            facts.class = write(c.u32()?);
        }
        _ => {}
    }
    if let Some(asked) = asked {
        let at_name = |c: &mut Cursor<'_>| c.opaque().map(|name| asked.name(name));
        facts.asked = asked.handle(all.opaque()?);
        if facts.name.is_some() {
            let named = at_name(&mut all)?;
            facts.asked |= named;
            facts.finds_asked = named && v3_gives_handle(procedure);
        }
        if matches!(procedure, proc::RENAME | proc::LINK) {
            facts.asked |= asked.handle(all.opaque()?);
            facts.asked |= at_name(&mut all)?;
        }
    }
    Some(facts)
}

/// Whether the results of a procedure of version 3 begin with the handle of what was found or made.
pub(super) fn v3_gives_handle(procedure: u32) -> bool {
    matches!(procedure, proc::LOOKUP | proc::CREATE | proc::MKDIR | proc::SYMLINK | proc::MKNOD)
}

pub(super) fn v3_handle(procedure: u32, c: &mut Cursor<'_>) -> Option<Option<u64>> {
    if procedure != proc::LOOKUP && c.u32()? == 0 {
        return Some(None);
    }
    Some(Some(digest(c.opaque()?)))
}

fn write(stable: u32) -> Class {
    if stable == 0 { Class::Unstable } else { Class::StableWrite }
}

/// The facts of a COMPOUND, gathered while its operations go by.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// The current filehandle, where it is in the call.
    handle: Option<u64>,
    saved: Option<u64>,
    rank: Option<u8>,
    /// Whether the current and the saved filehandle are of a file that is asked for.
    asked: (bool, bool),
}

impl Gather {
    /// Whether the current filehandle is of a file that is asked for.
    pub fn is_asked(&self) -> bool {
        self.asked.0
    }

    /// Whether an operation is about such a file by its own arguments.
    fn look(&mut self, op: OpNum, mut c: Cursor<'_>, asked: &dyn WantedFiles) -> Option<bool> {
        match op {
            OpNum::PUTFH => self.asked.0 = asked.handle(c.opaque()?),
            OpNum::PUTROOTFH | OpNum::PUTPUBFH | OpNum::LOOKUPP => self.asked.0 = false,
            OpNum::SAVEFH => self.asked.1 = self.asked.0,
            OpNum::RESTOREFH => self.asked.0 = self.asked.1,
            OpNum::LOOKUP => self.asked.0 = asked.name(c.opaque()?),
            OpNum::CREATE => self.asked.0 = asked.name(super::opened::created(&mut c)?),
            OpNum::OPEN => {
                if let Some(name) = super::opened::open(&mut c)?.name {
                    self.asked.0 = asked.name(name);
                }
            }
            OpNum::REMOVE | OpNum::LINK | OpNum::SECINFO => return Some(asked.name(c.opaque()?)),
            OpNum::RENAME => return Some(asked.name(c.opaque()?) | asked.name(c.opaque()?)),
            _ => return Some(false),
        }
        Some(self.asked.0)
    }

    pub fn operation(
        &mut self,
        op: OpNum,
        rank: u8,
        mut c: Cursor<'_>,
        facts: &mut Facts,
        asked: Option<&dyn WantedFiles>,
    ) -> Option<()> {
        if let Some(asked) = asked {
            facts.asked |= self.look(op, c, asked).unwrap_or(false);
        }
        let mut name = None;
        let mut class = Class::Light;
        let at = self.handle;
        match op {
            OpNum::PUTFH => self.handle = Some(digest(c.opaque()?)),
            OpNum::PUTROOTFH | OpNum::PUTPUBFH => self.handle = Some(ROOT),
            OpNum::SAVEFH => self.saved = self.handle,
            OpNum::RESTOREFH => self.handle = self.saved,
            OpNum::LOOKUP => name = Some(digest(c.opaque()?)),
            OpNum::REMOVE | OpNum::RENAME | OpNum::LINK => {
                name = Some(digest(c.opaque()?));
                class = Class::Metadata;
            }
            OpNum::OPEN => {
                let opened = super::opened::open(&mut c)?;
                name = opened.name.map(digest);
                class = if opened.creates { Class::Metadata } else { Class::Light };
                facts.makes = facts.makes.saturating_add(u16::from(opened.creates));
            }
            OpNum::CREATE => {
                name = Some(digest(super::opened::created(&mut c)?));
                class = Class::Metadata;
            }
            OpNum::SETATTR
            | OpNum::SETXATTR
            | OpNum::REMOVEXATTR
            | OpNum::ALLOCATE
            | OpNum::DEALLOCATE
            | OpNum::CLONE
            | OpNum::LAYOUTCOMMIT => class = Class::Metadata,
            OpNum::WRITE => {
                c.take(24)?;
                class = write(c.u32()?);
            }
            OpNum::COMMIT => class = Class::Commit,
            OpNum::COPY => class = Class::Unstable,
            OpNum::READ | OpNum::READ_PLUS | OpNum::READDIR => class = Class::Fetch,
            _ => {}
        }
        if matches!(op, OpNum::LOOKUP | OpNum::LOOKUPP | OpNum::OPEN | OpNum::CREATE) {
            // What was found has no handle that is in the call.
            self.handle = None;
        }
        facts.class = facts.class.max(class);
        if self.rank.is_none_or(|best| rank < best) {
            self.rank = Some(rank);
            facts.handle = if op == OpNum::PUTFH { self.handle } else { at };
            facts.name = name;
        }
        Some(())
    }
}
