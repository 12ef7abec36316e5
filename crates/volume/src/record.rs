//! The records of the intent log: what one operation did, as facts.
//!
//! A record states the outcome ("this entry now names that object"), not the procedure ("rename a to b"). So recovery can
//! compute the final state and make the disk agree with it ([`crate::fold`], [`crate::recover`]). One [`Record`] is one
//! operation. Its encoding is a version byte, then postcard.
//!
//! # What an operation must state
//!
//! | operation | facts, in this order |
//! |---|---|
//! | create, mkdir, symlink, mknod | `Born` (result of `statx`), `Bind`, `Mtime` of the directory; `Xattr` for each ACL that the object inherited, and for an exclusive create's verifier |
//! | create, mkdir, ... that the server undid | `Bind`, `Unbind`, `Links` 0, `Mtime` of the directory |
//! | link | `Bind`, `Links` of the object, `Mtime` of the directory |
//! | remove | `Unbind`, `Links` of the object (0: it is gone; always 0 for a directory), `Mtime` of the directory |
//! | remove, or rename over, the last name of a file that is kept among the orphans | `Bind` of its place first, and `Links` 1; nothing of the orphans' directory itself |
//! | release of an orphan | `Unbind`, `Links` 0 |
//! | rename | if a victim: `Unbind` of it and its `Links`; `Unbind` of the old name, `Bind` of the new, `Mtime` of both directories |
//! | setattr | `Size` if the size was set, then `Attrs` with all resulting attributes; `Xattr` if it ends an exclusive create's verifier, as a write does |
//! | set or remove an extended attribute | `Xattr` |
//! | set ACLs | `Xattr` for each of them, also for an absent one, as the kernel stores them; then `Attrs`, since the mode follows |
//! | write | `Data`, then `Attrs`. For a file made in the same part of the transaction one `Attrs` at the part's end may cover several writes, or a setattr's `Attrs` may serve |
//! | large write, large commit | after the `fdatasync`: `Durable`, then `Mtime` of the file |
//! | small commit | `Data` of the dirty ranges, `Mtime` of the file |
//! | deallocate | `Zero` up to the end of the file, then `Attrs` |
//! | allocate, clone, large copy | after the `fsync`: `Durable`, then `Attrs`, since recovery cannot repeat them |
//! | small copy | `Data`, as a write |
//!
//! An operation on an object without a name (unlinked, still open) states nothing about it, or states `Links` 0 as well:
//! the record of its removal may be older than the log.
//!
//! A record names objects by the kernel's *present* identity ([`ObjId`]), never by the identity that clients see of a
//! remapped object. [`Record::seq`] is the number that [`crate::marker::Marker`] gave to the transaction; with it recovery
//! tells whether the disk is ahead of the log. **Each** transaction that took a number appends a record with it, even
//! when its operation failed and there is no fact to state.
//!
//! Invariants: decoding any bytes gives a record or an error, never a panic, and allocates in proportion to the
//! input. All names, handles and times of a decoded record are within their limits.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::limits::{
    HANDLE_BYTES_MAX, NAME_BYTES_MAX, SYMLINK_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
};
pub use crate::objmap::HandleBytes;
pub use crate::types::{Kind, Timestamp};

/// First byte of every record. A log with another version is refused.
pub const RECORD_VERSION: u8 = 1;

/// A kernel file handle, as `name_to_handle_at(2)` gives it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KernelHandle {
    /// The filesystem's number for the layout of `bytes`.
    pub kind: i32,
    /// At most [`HANDLE_BYTES_MAX`] bytes.
    pub bytes: HandleBytes,
}

impl KernelHandle {
    /// The inode number, for the layouts that are known: the kernel's generic 32 bits (ext4, XFS), XFS's 64, btrfs's. Serves
    /// only to check that a handle and a `statx` result belong to the same object.
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

/// Identifies an object: the kernel's handle and the birth time. The birth time is part of it because btrfs issues the
/// same handle again after a crash that lost its first owner.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjId {
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

/// Attributes that a client can set, as they are after the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owned {
    /// Permission bits with setuid, setgid and sticky: `st_mode & 0o7777`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Birth {
    pub kind: Kind,
    pub owned: Owned,
    /// Device number as (major, minor); (0, 0) unless it is a device.
    pub rdev: (u32, u32),
    /// The target of a symbolic link, else empty. At most [`SYMLINK_BYTES_MAX`] bytes.
    #[serde(with = "blob")]
    pub target: Bytes,
    /// The fileid that clients were told (RFC 8881 section 5.8.1.19).
    pub fileid: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The entry `name` of `dir` now names `obj`. Just before, it named nothing: a rename over something states the
    /// victim's `Unbind` first.
    Bind {
        dir: ObjId,
        /// One component, 1 to [`NAME_BYTES_MAX`] bytes, without `/` and NUL.
        #[serde(with = "blob")]
        name: Bytes,
        obj: ObjId,
    },
    /// The entry `name` of `dir`, which named `obj`, is gone.
    Unbind {
        dir: ObjId,
        #[serde(with = "blob")]
        name: Bytes,
        obj: ObjId,
    },
    Born {
        obj: ObjId,
        birth: Birth,
    },
    /// `obj` now has `nlink` names; 0 means that it is dead.
    Links {
        obj: ObjId,
        /// For a directory only zero or not zero matters.
        nlink: u32,
    },
    Attrs {
        obj: ObjId,
        owned: Owned,
    },
    /// The contents of `obj` changed at this time; for a directory, its entries did.
    Mtime {
        obj: ObjId,
        mtime: Timestamp,
    },
    /// `obj` was cut or extended to `size` bytes. Everything beyond that is zero from now on.
    Size {
        /// A regular file.
        obj: ObjId,
        size: u64,
    },
    Data {
        obj: ObjId,
        /// In bytes. `offset + bytes.len()` is at most `i64::MAX`.
        offset: u64,
        #[serde(with = "blob")]
        bytes: Bytes,
    },
    /// An `fdatasync` of `obj` succeeded: all its earlier `Data`, `Size` and `Zero` facts are on disk, except the last `keep`
    /// ones, which were appended after the `fdatasync` had begun.
    Durable {
        /// A regular file.
        obj: ObjId,
        keep: u32,
    },
    /// The extended attribute `name` of `obj` now has this value, or is gone.
    Xattr {
        obj: ObjId,
        /// Full name with its namespace, at most [`XATTR_NAME_BYTES_MAX`] bytes, without NUL.
        #[serde(with = "blob")]
        name: Bytes,
        /// At most [`XATTR_VALUE_BYTES_MAX`] bytes.
        #[serde(with = "blob_option")]
        value: Option<Bytes>,
    },
    /// Bytes of the server (replies, sessions, clients), which recovery hands back in order.
    Note {
        #[serde(with = "blob")]
        bytes: Bytes,
    },
    /// This range of the file became a hole: it reads as zero from now on. The size stays the same. Logs of versions before
    /// this fact existed do not have it; nothing else about them differs.
    Zero {
        /// A regular file.
        obj: ObjId,
        offset: u64,
        /// In bytes; `offset + len` is at most the size of the file.
        len: u64,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The number of the transaction ([`crate::marker::Marker::advance`]); 0 for records that change no file (state
    /// snapshots).
    pub seq: u64,
    pub facts: Vec<Fact>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RecordError {
    #[error("empty record")]
    Empty,
    #[error("record version {0}, this program reads version {RECORD_VERSION}")]
    Version(u8),
    #[error("malformed record: {0}")]
    Malformed(postcard::Error),
    #[error("{0} bytes behind the record")]
    Trailing(usize),
    #[error("record holds {0}")]
    Range(&'static str),
}

/// Room for the parts of a fact that are not data. Few facts need more.
const FACT_BYTES_MOSTLY: usize = 128;

/// From this length on, copying data costs more than passing it as a slice of its own.
const LONG_BYTES: usize = 1024;

fn is_long(bytes: &[u8]) -> bool {
    bytes.len() >= LONG_BYTES
}

/// An encoded record: short bytes, with long data in between that is not copied.
#[derive(Debug)]
pub struct Parts<'a> {
    short: Vec<u8>,
    /// Each long piece with the position in `short` before which it belongs; ascending.
    long: Vec<(usize, &'a Bytes)>,
}

impl Parts<'_> {
    /// The slices of the record, in order.
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

/// Collects the short bytes and the positions of the long ones.
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

/// Appends the value in postcard's form. Copies long byte strings in one go, where [`postcard::to_extend`] copies byte by
/// byte. Fails for a sequence of unknown length.
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
    /// Encodes the record for the log. Fails only if a field is out of its range: a bug of the caller, found here before
    /// anything is promised.
    pub fn encode(&self) -> Result<Vec<u8>, RecordError> {
        self.check()?;
        let most = |fact: &Fact| FACT_BYTES_MOSTLY + fact.data().map_or(0, Bytes::len);
        let mut out = Vec::with_capacity(self.facts.iter().map(most).sum());
        out.push(RECORD_VERSION);
        append(self, out).map_err(RecordError::Malformed)
    }

    /// Gives the same bytes as [`Record::encode`], in parts, without copying long data.
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
        // Another field is long, too: encode the record without gaps.
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
