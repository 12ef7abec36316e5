//! What one operation did, as facts: the records of the intent log.
//!
//! A record states outcomes, never procedures ("this entry now names that object", not "rename a to b"), so that
//! recovery can compute the final state and make the disk agree with it ([`crate::fold`], [`crate::recover`]).
//! One [`Record`] is one operation; it is encoded as a version byte and postcard.
//!
//! # What an operation must state
//!
//! | operation | facts, in this order |
//! |---|---|
//! | create, mkdir, symlink, mknod | `Born` (result of `statx`), `Bind`, `Mtime` of the directory; `Xattr` for each ACL that the object inherited |
//! | create, mkdir, ... that was taken back | `Bind`, `Unbind`, `Links` 0, `Mtime` of the directory |
//! | link | `Bind`, `Links` of the object, `Mtime` of the directory |
//! | remove | `Unbind`, `Links` of the object (0: it is gone, always so for a directory), `Mtime` of the directory |
//! | rename | if a victim: `Unbind` of it and its `Links`; `Unbind` of the old name, `Bind` of the new, `Mtime` of both directories |
//! | setattr | `Size` if the size was set, then `Attrs` with everything that results |
//! | set or remove an extended attribute | `Xattr` |
//! | set ACLs | `Xattr` for each of them, also for one that is not there, as the kernel keeps them; then `Attrs`, since the mode follows |
//! | write | `Data`, then `Attrs`; to a file that the same part of the transaction has made `Attrs` may come at the part's end, once for several writes, or be those of a setattr |
//! | large write, large commit | after the `fdatasync`: `Durable`, then `Mtime` of the file |
//! | small commit | `Data` of the dirty ranges, `Mtime` of the file |
//! | deallocate | `Zero` up to the end of the file, then `Attrs` |
//! | allocate, clone, large copy | after the `fsync`: `Durable`, then `Attrs`: they cannot be done again by recovery |
//! | small copy | `Data`, as a write |
//!
//! An operation on an object that has no name any more (unlinked, still open) states nothing about it, or `Links` 0
//! with whatever it states: its removal may be older than the log.
//!
//! Objects are named by the kernel's *present* identity ([`ObjId`]), never by the identity that clients see of a
//! remapped object. [`Record::seq`] is the number that [`crate::marker::Marker`] gave to the transaction: recovery
//! tells by it whether the disk is ahead of the log. **Each** transaction that took a number appends a record with
//! it, also when its operation failed and there is no fact to state.
//!
//! Invariants: decoding any bytes gives a record or an error, never a panic, and allocates in proportion to the
//! input; a decoded record holds only names, handles and times that are within their limits.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::limits::{
    HANDLE_BYTES_MAX, NAME_BYTES_MAX, SYMLINK_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
};
pub use crate::objmap::HandleBytes;
pub use crate::types::{Kind, Timestamp};

/// First byte of every record. A log with another version is refused, not guessed at.
pub const RECORD_VERSION: u8 = 1;

/// A kernel file handle, as `name_to_handle_at(2)` gives it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KernelHandle {
    /// The filesystem's own number for the layout of `bytes`.
    pub kind: i32,
    /// At most [`HANDLE_BYTES_MAX`] bytes.
    pub bytes: HandleBytes,
}

impl KernelHandle {
    /// The number of the object's inode, for the layouts that are known: the kernel's own 32 bits (ext4, XFS), XFS's 64,
    /// btrfs's. Only a check that a handle and a look are of the same object.
    pub(crate) fn ino(&self) -> Option<u64> {
        const INO32: [i32; 2] = [0x01, 0x02];
        const XFS_INO64: [i32; 2] = [0x81, 0x82];
        const BTRFS: [i32; 3] = [0x4d, 0x4e, 0x4f];
        if INO32.contains(&self.kind) {
            return Some(u64::from(u32::from_ne_bytes(*self.bytes.first_chunk()?)));
        }
        let wide = XFS_INO64.contains(&self.kind) || BTRFS.contains(&self.kind);
        Some(u64::from_ne_bytes(*self.bytes.first_chunk().filter(|_| wide)?))
    }
}

impl fmt::Debug for KernelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:", self.kind)?;
        self.bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Which object: the kernel's handle and the time of birth. The birth time is part of it because btrfs issues the
/// same handle again after a crash that lost the first owner.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjId {
    /// The kernel's handle.
    pub kh: KernelHandle,
    /// Nanoseconds since 1970; 0 where the filesystem keeps no birth time.
    pub btime_ns: i64,
}

impl fmt::Debug for ObjId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{}", self.kh, self.btime_ns)
    }
}

impl fmt::Display for ObjId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Attributes that a client can set, as they resulted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owned {
    /// Permission bits with setuid, setgid and sticky: `st_mode & 0o7777`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
}

/// Everything needed to make a lost object again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Birth {
    /// What it is.
    pub kind: Kind,
    /// Mode, owner, group, times.
    pub owned: Owned,
    /// Device number as (major, minor); (0, 0) unless a device.
    pub rdev: (u32, u32),
    /// The target of a symbolic link; else empty. At most [`SYMLINK_BYTES_MAX`] bytes.
    #[serde(with = "blob")]
    pub target: Bytes,
    /// The fileid that clients were told (RFC 8881 section 5.8.1.19).
    pub fileid: u64,
}

/// One statement about the volume after an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The entry `name` of `dir` now names `obj`. It named nothing just before (a rename over something states the
    /// victim's `Unbind` first).
    Bind {
        /// The directory.
        dir: ObjId,
        /// One component, 1 to [`NAME_BYTES_MAX`] bytes, without `/` and NUL.
        #[serde(with = "blob")]
        name: Bytes,
        /// What it names.
        obj: ObjId,
    },
    /// The entry `name` of `dir`, which named `obj`, is gone.
    Unbind {
        /// The directory.
        dir: ObjId,
        /// The component.
        #[serde(with = "blob")]
        name: Bytes,
        /// What it named.
        obj: ObjId,
    },
    /// `obj` was made.
    Born {
        /// The new object.
        obj: ObjId,
        /// What it was when new.
        birth: Birth,
    },
    /// `obj` has `nlink` names now; 0: it lives no more.
    Links {
        /// The object.
        obj: ObjId,
        /// Link count, for a directory 0 or any other number.
        nlink: u32,
    },
    /// The attributes of `obj` are these now.
    Attrs {
        /// The object.
        obj: ObjId,
        /// All of them.
        owned: Owned,
    },
    /// The contents of `obj` changed at this time (a directory: its entries).
    Mtime {
        /// The object.
        obj: ObjId,
        /// Its mtime now.
        mtime: Timestamp,
    },
    /// `obj` was cut or extended to `size` bytes; what lay behind is zero from now on.
    Size {
        /// A regular file.
        obj: ObjId,
        /// Bytes.
        size: u64,
    },
    /// These bytes were written.
    Data {
        /// A regular file.
        obj: ObjId,
        /// Where, in bytes. `offset + bytes.len()` is at most `i64::MAX`.
        offset: u64,
        /// What.
        #[serde(with = "blob")]
        bytes: Bytes,
    },
    /// An `fdatasync` of `obj` ended well: all but the last `keep` of its earlier `Data`, `Size` and `Zero` facts are on
    /// disk. `keep` counts those that were appended after the `fdatasync` had begun.
    Durable {
        /// A regular file.
        obj: ObjId,
        /// How many of the last `Data`, `Size` and `Zero` facts of `obj` it does not cover.
        keep: u32,
    },
    /// The extended attribute `name` of `obj` has this value now, or is gone.
    Xattr {
        /// The object.
        obj: ObjId,
        /// Full name with its namespace, at most [`XATTR_NAME_BYTES_MAX`] bytes, without NUL.
        #[serde(with = "blob")]
        name: Bytes,
        /// At most [`XATTR_VALUE_BYTES_MAX`] bytes.
        #[serde(with = "blob_option")]
        value: Option<Bytes>,
    },
    /// Bytes of the server's own (replies, sessions, clients), handed back in order after a restart.
    Note {
        /// Opaque here.
        #[serde(with = "blob")]
        bytes: Bytes,
    },
    /// These bytes of the file became a hole: they are zero from now on. The size is as it was. (Logs of versions
    /// before this fact existed do not have it; there is nothing else to know about them.)
    Zero {
        /// A regular file.
        obj: ObjId,
        /// Where, in bytes.
        offset: u64,
        /// How many; `offset + len` is at most the size of the file.
        len: u64,
    },
}

/// One operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The number of its transaction ([`crate::marker::Marker::advance`]); 0 for records that change no file (state
    /// snapshots).
    pub seq: u64,
    /// What it did, in order.
    pub facts: Vec<Fact>,
}

/// Why bytes are not a record.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RecordError {
    /// No version byte.
    #[error("empty record")]
    Empty,
    /// Written by another version of Landfast.
    #[error("record version {0}, this program reads version {RECORD_VERSION}")]
    Version(u8),
    /// Not the encoding of a record.
    #[error("malformed record: {0}")]
    Malformed(postcard::Error),
    /// Bytes left over behind the record.
    #[error("{0} bytes behind the record")]
    Trailing(usize),
    /// A field out of its range.
    #[error("record holds {0}")]
    Range(&'static str),
}

/// Room for what of a fact is not data: few need more.
const FACT_BYTES_MOSTLY: usize = 128;

/// Data from this length on costs more to copy than to find again.
const LONG_BYTES: usize = 1024;

fn is_long(bytes: &[u8]) -> bool {
    bytes.len() >= LONG_BYTES
}

/// An encoded record: short bytes, and the long data that stands between them.
#[derive(Debug)]
pub struct Parts<'a> {
    short: Vec<u8>,
    /// Before which of the short bytes, in order.
    long: Vec<(usize, &'a Bytes)>,
}

impl Parts<'_> {
    /// One behind the other they are the record.
    pub fn slices(&self) -> Vec<&[u8]> {
        let (mut slices, mut rest, mut at) =
            (Vec::with_capacity(2 * self.long.len() + 1), &self.short[..], 0);
        for (before, data) in &self.long {
            let (head, tail) = rest.split_at(before - at);
            slices.extend([head, &data[..]]);
            (rest, at) = (tail, *before);
        }
        slices.push(rest);
        slices
    }
}

/// Collects what is short, and where something long was.
struct Around {
    short: Vec<u8>,
    gaps: Vec<usize>,
}

impl postcard::ser_flavors::Flavor for Around {
    type Output = Around;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.short.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        match is_long(bytes) {
            true => self.gaps.push(self.short.len()),
            false => self.short.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Around> {
        Ok(self)
    }
}

/// Appends the value in postcard's form. Long bytes are copied at once, where [`postcard::to_extend`] gives one after the other.
///
/// # Errors
/// What has no such form: a sequence whose length is not known.
pub fn append<T: Serialize + ?Sized>(value: &T, to: Vec<u8>) -> postcard::Result<Vec<u8>> {
    postcard::serialize_with_flavor(value, Appended(to))
}

struct Appended(Vec<u8>);

impl postcard::ser_flavors::Flavor for Appended {
    type Output = Vec<u8>;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
}

impl Record {
    /// The bytes for the log. Fails only if a field is out of its range, which is a bug of the caller and is found
    /// here, before anything is promised.
    pub fn encode(&self) -> Result<Vec<u8>, RecordError> {
        self.check()?;
        let most = |fact: &Fact| FACT_BYTES_MOSTLY + fact.data().map_or(0, Bytes::len);
        let mut out = Vec::with_capacity(self.facts.iter().map(most).sum());
        out.push(RECORD_VERSION);
        append(self, out).map_err(RecordError::Malformed)
    }

    /// The same bytes as [`Record::encode`] gives, in parts: long data is not copied.
    pub fn encode_parts(&self) -> Result<Parts<'_>, RecordError> {
        self.check()?;
        let long: Vec<&Bytes> = self.facts.iter().filter_map(Fact::data).filter(|b| is_long(b)).collect();
        if long.is_empty() {
            return Ok(Parts { short: self.encode()?, long: Vec::new() });
        }
        let mut short = Vec::with_capacity(1 + FACT_BYTES_MOSTLY * self.facts.len());
        short.push(RECORD_VERSION);
        let around = Around { short, gaps: Vec::new() };
        let around = postcard::serialize_with_flavor(self, around).map_err(RecordError::Malformed)?;
        // Other fields may be long, too. Then nothing is left out.
        if around.gaps.len() != long.len() {
            return Ok(Parts { short: self.encode()?, long: Vec::new() });
        }
        Ok(Parts { short: around.short, long: around.gaps.into_iter().zip(long).collect() })
    }

    /// Reads what [`Record::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Record, RecordError> {
        let (&version, rest) = bytes.split_first().ok_or(RecordError::Empty)?;
        if version != RECORD_VERSION {
            return Err(RecordError::Version(version));
        }
        let (record, left) = postcard::take_from_bytes::<Record>(rest).map_err(RecordError::Malformed)?;
        if !left.is_empty() {
            return Err(RecordError::Trailing(left.len()));
        }
        record.check()?;
        Ok(record)
    }

    /// The number of an encoded record's transaction, without reading the rest.
    pub(crate) fn number_of(bytes: &[u8]) -> Option<u64> {
        let (_, rest) = bytes.split_first()?;
        postcard::take_from_bytes(rest).ok().map(|(seq, _)| seq)
    }

    fn check(&self) -> Result<(), RecordError> {
        self.facts.iter().try_for_each(Fact::check)
    }
}

/// One line for people.
impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &Bytes| bytes.escape_ascii().to_string();
        let owned = |f: &mut fmt::Formatter<'_>, o: &Owned| {
            write!(f, "mode {:04o}, owner {}:{}, ", o.mode, o.uid, o.gid)?;
            write!(f, "atime {}, mtime {}", Seconds(&o.atime), Seconds(&o.mtime))
        };
        match self {
            Fact::Bind { dir, name, obj } => write!(f, "entry \"{}\" of {dir} is {obj}", text(name)),
            Fact::Unbind { dir, name, obj } => {
                write!(f, "entry \"{}\" of {dir} is gone, it was {obj}", text(name))
            }
            Fact::Born { obj, birth } => {
                write!(f, "{obj} is new: {:?}, fileid {}, ", birth.kind, birth.fileid)?;
                if birth.kind == Kind::Symlink {
                    write!(f, "target \"{}\", ", text(&birth.target))?;
                }
                owned(f, &birth.owned)
            }
            Fact::Links { obj, nlink } => write!(f, "{obj} has {nlink} names"),
            Fact::Attrs { obj, owned: o } => {
                write!(f, "{obj} has ")?;
                owned(f, o)
            }
            Fact::Mtime { obj, mtime } => write!(f, "{obj} changed at {}", Seconds(mtime)),
            Fact::Size { obj, size } => write!(f, "{obj} has {size} bytes"),
            Fact::Data { obj, offset, bytes } => {
                write!(f, "{obj} has {} bytes written at {offset}", bytes.len())
            }
            Fact::Durable { obj, keep } => {
                write!(f, "{obj} is on disk but for its last {keep} changes of data")
            }
            Fact::Xattr { obj, name, value: Some(value) } => {
                write!(f, "{obj} has the attribute {} of {} bytes", text(name), value.len())
            }
            Fact::Xattr { obj, name, value: None } => write!(f, "{obj} has no attribute {}", text(name)),
            Fact::Note { bytes } => write!(f, "{} bytes of the server's", bytes.len()),
            Fact::Zero { obj, offset, len } => write!(f, "{obj} has a hole of {len} bytes at {offset}"),
        }
    }
}

struct Seconds<'a>(&'a Timestamp);

impl fmt::Display for Seconds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0.secs, self.0.nanos)
    }
}

impl Fact {
    /// The data in it, which may be long.
    fn data(&self) -> Option<&Bytes> {
        match self {
            Fact::Data { bytes, .. } | Fact::Note { bytes } => Some(bytes),
            _ => None,
        }
    }

    fn check(&self) -> Result<(), RecordError> {
        let want = |ok: bool, what| if ok { Ok(()) } else { Err(RecordError::Range(what)) };
        let handle = |id: &ObjId| want(id.kh.bytes.len() <= HANDLE_BYTES_MAX, "a handle that is too long");
        let component = |name: &[u8]| {
            want((1..=NAME_BYTES_MAX).contains(&name.len()), "a name of no or too many bytes")?;
            want(!name.contains(&b'/') && !name.contains(&0), "a name with / or NUL")?;
            want(name != b"." && name != b"..", "the name . or ..")
        };
        let time = |t: &Timestamp| want(t.nanos < 1_000_000_000, "nanoseconds of a second or more");
        let owned = |o: &Owned| {
            want(o.mode <= 0o7777, "a mode with more than permission bits")?;
            time(&o.atime)?;
            time(&o.mtime)
        };
        match self {
            Fact::Bind { dir, name, obj } | Fact::Unbind { dir, name, obj } => {
                handle(dir)?;
                handle(obj)?;
                component(name)
            }
            Fact::Born { obj, birth } => {
                handle(obj)?;
                owned(&birth.owned)?;
                want(birth.target.len() <= SYMLINK_BYTES_MAX, "a link target that is too long")?;
                want(
                    birth.target.is_empty() != (birth.kind == Kind::Symlink),
                    "a link target on no link, or none",
                )?;
                want(!birth.target.contains(&0), "a link target with NUL")
            }
            Fact::Links { obj, .. } | Fact::Durable { obj, .. } => handle(obj),
            Fact::Attrs { obj, owned: o } => handle(obj).and_then(|()| owned(o)),
            Fact::Mtime { obj, mtime } => handle(obj).and_then(|()| time(mtime)),
            Fact::Size { obj, size } => {
                handle(obj)?;
                want(*size <= i64::MAX as u64, "a size beyond 2^63")
            }
            Fact::Data { obj, offset, bytes } => {
                handle(obj)?;
                let end = offset.checked_add(bytes.len() as u64);
                want(end.is_some_and(|end| end <= i64::MAX as u64), "a write beyond 2^63")
            }
            Fact::Xattr { obj, name, value } => {
                handle(obj)?;
                want(
                    (1..=XATTR_NAME_BYTES_MAX).contains(&name.len()),
                    "an attribute name of no or too many bytes",
                )?;
                want(!name.contains(&0), "an attribute name with NUL")?;
                let len = value.as_ref().map_or(0, Bytes::len);
                want(len <= XATTR_VALUE_BYTES_MAX, "an attribute value that is too long")
            }
            Fact::Note { .. } => Ok(()),
            Fact::Zero { obj, offset, len } => {
                handle(obj)?;
                let end = offset.checked_add(*len);
                want(end.is_some_and(|end| end <= i64::MAX as u64), "a hole beyond 2^63")
            }
        }
    }
}

/// `Bytes` as one length and one run of bytes. Decoding borrows from the input before it copies, so an announced
/// length larger than the input allocates nothing.
mod blob {
    use super::{Bytes, fmt};
    use serde::de::{Error, Visitor};

    pub(super) fn serialize<S: serde::Serializer>(b: &Bytes, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(b)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Bytes, D::Error> {
        d.deserialize_bytes(Blob)
    }

    struct Blob;

    impl Visitor<'_> for Blob {
        type Value = Bytes;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: Error>(self, v: &[u8]) -> Result<Bytes, E> {
            Ok(Bytes::copy_from_slice(v))
        }
    }
}

mod blob_option {
    use super::Bytes;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Wrap(#[serde(with = "super::blob")] Bytes);

    pub(super) fn serialize<S: serde::Serializer>(b: &Option<Bytes>, s: S) -> Result<S::Ok, S::Error> {
        b.clone().map(Wrap).serialize(s)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<Bytes>, D::Error> {
        Ok(Option::<Wrap>::deserialize(d)?.map(|w| w.0))
    }
}

#[cfg(test)]
mod tests;
