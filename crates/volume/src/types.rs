//! The values that operations take and give: kinds, attributes, credentials, options of single operations.
//!
//! Nothing here does I/O. Times are [`Timestamp`]s (seconds and nanoseconds since 1970), sizes are bytes.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Kind of a filesystem object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Local socket.
    Socket,
    /// Character device.
    CharDev,
    /// Block device.
    BlockDev,
}

impl Kind {
    /// The kind that the `S_IFMT` bits of a mode say; `None` for a value that Linux does not define.
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

    /// The `S_IFMT` bits of this kind.
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
    /// Seconds since 1970-01-01 00:00 UTC; negative before.
    pub secs: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanos: u32,
}

impl Timestamp {
    /// Nanoseconds since 1970, saturating (the range of `i64` ends in the year 2262).
    pub fn as_nanos(self) -> i64 {
        self.secs.saturating_mul(1_000_000_000).saturating_add(i64::from(self.nanos))
    }

    /// The time that is `ns` nanoseconds after 1970 (before it, when negative).
    pub fn from_nanos(ns: i64) -> Timestamp {
        Timestamp { secs: ns.div_euclid(1_000_000_000), nanos: ns.rem_euclid(1_000_000_000) as u32 }
    }
}

/// Attributes of an object, as one consistent snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attrs {
    /// Kind of the object.
    pub kind: Kind,
    /// Permission bits with set-uid, set-gid and sticky: the low 12 bits of `st_mode`.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number (major, minor) of a device node, else (0, 0).
    pub rdev: (u32, u32),
    /// Size in bytes.
    pub size: u64,
    /// Bytes of storage in use.
    pub used: u64,
    /// Filesystem id, the same for all objects of a volume and over restarts.
    pub fsid: (u64, u64),
    /// File id: never 0, never shared by two live objects, the same for the life of the object.
    pub fileid: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last modification of the content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Birth; zero where the filesystem keeps none.
    pub btime: Timestamp,
    /// Change attribute: grows with every change, never repeats for different contents, also over a crash.
    pub change: u64,
}

/// Where a time comes from when it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSet {
    /// The server's clock.
    Now,
    /// The caller's value.
    At(Timestamp),
}

/// Attributes to set; `None` leaves one alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttrs {
    /// Permission bits (low 12 bits of `st_mode`).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes (regular files).
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<TimeSet>,
    /// Modification time.
    pub mtime: Option<TimeSet>,
    /// Mode and umask of a create (RFC 8275): the umask applies unless the directory has a default ACL. Only for
    /// creating operations; excludes `mode`. (mode, umask)
    pub mode_umask: Option<(u32, u32)>,
}

impl SetAttrs {
    /// True when nothing is to be set.
    pub fn is_empty(&self) -> bool {
        *self == SetAttrs::default()
    }
}

/// Which of the attributes of a [`SetAttrs`] were really set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrsSet {
    /// `mode` was set.
    pub mode: bool,
    /// `uid` was set.
    pub uid: bool,
    /// `gid` was set.
    pub gid: bool,
    /// `size` was set.
    pub size: bool,
    /// `atime` was set.
    pub atime: bool,
    /// `mtime` was set.
    pub mtime: bool,
    /// `mode_umask` was used.
    pub mode_umask: bool,
}

/// Change attribute of a directory before and after an operation (`change_info4`, RFC 8881 section 3.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeInfo {
    /// Change attribute before.
    pub before: u64,
    /// Change attribute after; equal to `before` when nothing changed.
    pub after: u64,
    /// True when nothing else changed the directory in between.
    pub atomic: bool,
}

/// What of an object, before an operation, tells whether a cache of it was current (`wcc_attr`, RFC 1813 section 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreOp {
    /// Size in bytes.
    pub size: u64,
    /// Last modification of the content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
}

/// How a regular file is created (`createmode4`, RFC 8881 section 18.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// An existing file is opened; of the attributes only `size: Some(0)` applies to it.
    Unchecked(SetAttrs),
    /// An existing name is an error ([`Error::Exists`]).
    Guarded(SetAttrs),
    /// An existing name is an error unless it was created with the same verifier and is still as it was made. The
    /// verifier is kept in the file's times, so `attrs` must not contain times (they are ignored).
    Exclusive {
        /// The client's verifier.
        verf: [u8; 8],
        /// Attributes to set (EXCLUSIVE4_1), empty for EXCLUSIVE4.
        attrs: SetAttrs,
    },
}

/// What an open file may be used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// Reading. A file that may only be executed can be opened for reading, too, as its client must load it.
    pub read: bool,
    /// Writing.
    pub write: bool,
    /// The owner passes even where the mode forbids it: for opens that continue an earlier one (reclaims) and for access without an open, where the check was made when the file was created.
    pub owner_override: bool,
}

impl OpenMode {
    /// Reading only.
    pub const READ: OpenMode = OpenMode { read: true, write: false, owner_override: false };
    /// Writing only.
    pub const WRITE: OpenMode = OpenMode { read: false, write: true, owner_override: false };
    /// Reading and writing.
    pub const BOTH: OpenMode = OpenMode { read: true, write: true, owner_override: false };
}

/// How stable a write must be (or is) when it is answered (`stable_how4`); ordered, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stable {
    /// Only in memory until a commit.
    Unstable,
    /// The data and what is needed to read it.
    DataSync,
    /// Data and all attributes.
    FileSync,
}

/// What [`crate::Volume::seek`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes that may be other than zero.
    Data,
    /// A range without any, such as the one behind the end of the file.
    Hole,
}

/// Where [`crate::Volume::seek`] found what it looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    /// The first byte of it; the size of the file if there is none before its end.
    pub found: u64,
    /// The size of the file at the same time.
    pub size: u64,
}

/// How a range of a file is going to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Nothing special.
    Normal,
    /// From lower to higher offsets.
    Sequential,
    /// In no order.
    Random,
    /// Soon.
    WillNeed,
    /// Not soon.
    DontNeed,
    /// Once.
    NoReuse,
}

/// On whose behalf an operation runs. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cred {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
}

impl Cred {
    /// The superuser.
    pub fn root() -> Cred {
        Cred { uid: 0, gid: 0, groups: Arc::from([]) }
    }
}

/// A set of the three access rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessMask {
    /// Read the content; list a directory.
    pub read: bool,
    /// Write the content; change a directory's entries.
    pub write: bool,
    /// Execute a file; look names up in a directory.
    pub execute: bool,
}

/// What a READDIR entry is to carry beside its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryDetail {
    /// File id and cookie only.
    Names,
    /// Node and attributes, too.
    Attrs,
}

/// When an extended attribute may be set (`setxattr_option4`, RFC 8276 section 8.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetXattr {
    /// Whether it is there or not.
    Either,
    /// Only if it is not there, else [`Error::Exists`].
    Create,
    /// Only if it is there, else [`Error::NoXattr`].
    Replace,
}

/// The name of an extended attribute in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrEntry {
    /// Position after this entry, > 0; stays valid while attributes come and go.
    pub cookie: u64,
    /// Name without the namespace.
    pub name: Bytes,
}

/// What kind of special file [`crate::Volume::mknod`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Named pipe.
    Fifo,
    /// Local socket.
    Socket,
    /// Character device (major, minor).
    CharDev(u32, u32),
    /// Block device (major, minor).
    BlockDev(u32, u32),
}

/// Space and object counts of the filesystem below the volume. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsStat {
    /// Size of the filesystem.
    pub total_bytes: u64,
    /// Free space.
    pub free_bytes: u64,
    /// Free space for users other than root.
    pub avail_bytes: u64,
    /// Objects it can hold; 0 where that is not limited.
    pub total_files: u64,
    /// Free objects.
    pub free_files: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}
