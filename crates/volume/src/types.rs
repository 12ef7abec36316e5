//! The values that operations take and return: kinds, attributes, credentials, options of single operations.
//!
//! Nothing here does I/O. Times are [`Timestamp`]s (seconds and nanoseconds since 1970), sizes are bytes.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    File,
    Dir,
    Symlink,
    Fifo,
    Socket,
    CharDev,
    BlockDev,
}

impl Kind {
    /// The kind in the `S_IFMT` bits of a mode; `None` for a value that Linux does not define.
    pub fn from_mode(mode: u32) -> Option<Kind> {
        Some(match mode & libc::S_IFMT {
            libc::S_IFREG => Kind::File,
            libc::S_IFDIR => Kind::Dir,
            libc::S_IFLNK => Kind::Symlink,
            libc::S_IFIFO => Kind::Fifo,
            libc::S_IFSOCK => Kind::Socket,
            libc::S_IFCHR => Kind::CharDev,
            libc::S_IFBLK => Kind::BlockDev,
            _ => return None,
        })
    }

    pub fn mode_bits(self) -> u32 {
        match self {
            Kind::File => libc::S_IFREG,
            Kind::Dir => libc::S_IFDIR,
            Kind::Symlink => libc::S_IFLNK,
            Kind::Fifo => libc::S_IFIFO,
            Kind::Socket => libc::S_IFSOCK,
            Kind::CharDev => libc::S_IFCHR,
            Kind::BlockDev => libc::S_IFBLK,
        }
    }
}

/// A point in time: whole seconds since 1970 and nanoseconds (0..1e9) after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp {
    /// Negative before 1970.
    pub secs: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

impl Timestamp {
    /// Nanoseconds since 1970, saturating (the range of `i64` ends in the year 2262).
    pub fn as_nanos(self) -> i64 {
        self.secs.saturating_mul(1_000_000_000).saturating_add(i64::from(self.nanos))
    }

    /// The time `ns` nanoseconds after 1970, or before it if negative.
    pub fn from_nanos(ns: i64) -> Timestamp {
        Timestamp { secs: ns.div_euclid(1_000_000_000), nanos: ns.rem_euclid(1_000_000_000) as u32 }
    }
}

/// Who has a file open that is about to lose its last name ([`crate::Volume::remove_keeping`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Nobody: it goes.
    ByNobody,
    /// Somebody: it is kept if it can be.
    Open,
    /// Somebody who was told that it outlasts its last name: it is kept, or has to keep its name where there is no space to keep it.
    Promised,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attrs {
    pub kind: Kind,
    /// Permission bits with set-uid, set-gid and sticky: the low 12 bits of `st_mode`.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Device number (major, minor) of a device node, else (0, 0).
    pub rdev: (u32, u32),
    pub size: u64,
    pub used: u64,
    /// The same for all objects of a volume, also after a restart.
    pub fsid: (u64, u64),
    /// File id: never 0, never shared by two live objects, the same for the life of the object.
    pub fileid: u64,
    pub atime: Timestamp,
    /// Last modification of the contents.
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Zero where the filesystem keeps no birth time.
    pub btime: Timestamp,
    /// Change attribute: grows with every change and never repeats for different contents, even after a crash.
    pub change: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSet {
    Now,
    At(Timestamp),
}

/// Attributes to set; `None` leaves an attribute unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttrs {
    /// Permission bits (low 12 bits of `st_mode`).
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeSet>,
    pub mtime: Option<TimeSet>,
    /// (mode, umask) of a create (RFC 8275): the umask applies unless the directory has a default ACL. Only for creating
    /// operations; excludes `mode`.
    pub mode_umask: Option<(u32, u32)>,
}

impl SetAttrs {
    pub fn is_empty(&self) -> bool {
        *self == SetAttrs::default()
    }
}

/// What an object must still be like for attributes to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Its ctime (RFC 1813 section 3.3.2). Two changes within one tick of the kernel's clock have the same.
    Ctime(Timestamp),
    /// Its change attribute and ctime, as [`crate::Volume::getattr`] gave them.
    Change(u64, Timestamp),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrsSet {
    pub mode: bool,
    pub uid: bool,
    pub gid: bool,
    pub size: bool,
    pub atime: bool,
    pub mtime: bool,
    pub mode_umask: bool,
}

/// Change attribute of a directory before and after an operation (`change_info4`, RFC 8881 section 3.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeInfo {
    pub before: u64,
    /// Equals `before` when nothing changed.
    pub after: u64,
    /// True when nothing else changed the directory in between.
    pub atomic: bool,
}

/// The attributes of an object before an operation that show whether a cached copy was current (`wcc_attr`, RFC 1813 section 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreOp {
    pub size: u64,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Opens an existing file; of the attributes only `size: Some(0)` applies to it.
    Unchecked(SetAttrs),
    /// Fails with [`Error::Exists`] if the name exists.
    Guarded(SetAttrs),
    /// Fails if the name exists, unless the file was created with the same verifier and is unchanged since. Times in `attrs` are
    /// ignored.
    Exclusive {
        verifier: Verifier,
        /// For EXCLUSIVE4_1; empty for EXCLUSIVE4.
        attrs: SetAttrs,
    },
}

/// By what a repeated exclusive create is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verifier {
    /// The create's own (`createverf3`, `cva_verf`).
    pub create: [u8; 8],
    /// The verifier of the client's instance (`co_verifier`, RFC 8881 section 2.4). With it the verifier is kept apart from what
    /// clients see of the file where that is possible, and counts for this instance alone. Without it, it is kept in the file's
    /// times.
    pub instance: Option<[u8; 8]>,
}

/// Where the verifier of an exclusive create is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The client must set the file's times (RFC 8881 section 18.16.4).
    InTimes,
    /// In an extended attribute that clients do not see.
    Apart,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// A file with only the execute right can be opened for reading, too, since its client must load it.
    pub read: bool,
    pub write: bool,
    /// The owner passes even where the mode forbids it. For opens that continue an earlier one (reclaims), and for access without
    /// an open, where the check was made when the file was created.
    pub owner_override: bool,
}

impl OpenMode {
    pub const READ: OpenMode = OpenMode { read: true, write: false, owner_override: false };
    pub const WRITE: OpenMode = OpenMode { read: false, write: true, owner_override: false };
    pub const BOTH: OpenMode = OpenMode { read: true, write: true, owner_override: false };
}

/// How stable a write must be when it is answered, or is (`stable_how4`). Ordered, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stable {
    /// Only in memory until a COMMIT.
    Unstable,
    /// The data and the metadata needed to read it.
    DataSync,
    FileSync,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes that may be other than zero.
    Data,
    /// A range of zeroes; the end of the file begins one.
    Hole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    /// The offset of its first byte; the size of the file if there is none before the end.
    pub found: u64,
    /// The size of the file at the same time.
    pub size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    Normal,
    Sequential,
    Random,
    WillNeed,
    DontNeed,
    NoReuse,
}

/// The identity under which an operation runs. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cred {
    pub uid: u32,
    pub gid: u32,
    pub groups: Arc<[u32]>,
}

impl Cred {
    pub fn root() -> Cred {
        Cred { uid: 0, gid: 0, groups: Arc::from([]) }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessMask {
    /// Read the contents; list a directory.
    pub read: bool,
    /// Write the contents; change a directory's entries.
    pub write: bool,
    /// Execute a file; look up names in a directory.
    pub execute: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryDetail {
    Names,
    /// Also node and attributes.
    Attrs,
}

/// When an extended attribute may be set (`setxattr_option4`, RFC 8276 section 8.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetXattr {
    Either,
    /// Fails with [`Error::Exists`] if it exists.
    Create,
    /// Fails with [`Error::NoXattr`] if it does not exist.
    Replace,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrEntry {
    /// Position after this entry, > 0; stays valid while attributes come and go.
    pub cookie: u64,
    /// Without the namespace.
    pub name: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    Fifo,
    Socket,
    /// (major, minor).
    CharDev(u32, u32),
    /// (major, minor).
    BlockDev(u32, u32),
}

/// Space and object counts of the filesystem. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsStat {
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Free space for users other than root.
    pub avail_bytes: u64,
    /// How many objects it can hold; 0 if unlimited.
    pub total_files: u64,
    pub free_files: u64,
    pub name_max: u32,
}
