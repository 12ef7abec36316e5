//! What recovery needs of a filesystem, as a trait: the same code runs on a mounted filesystem ([`super::disk`]) and
//! on the model that the tests crash thousands of times a second.
//!
//! Objects are named by their present identity. Every call is one system call or a few that cannot be torn apart by
//! a crash in a way that matters.

use std::io::Result;

use bytes::Bytes;

use super::error::Error;
use crate::record::{Birth, Kind, ObjId, Owned, Timestamp};

/// What an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its kind.
    pub kind: Kind,
    /// How many names.
    pub nlink: u32,
    /// Bytes.
    pub size: u64,
    /// Mode, owner, group, times.
    pub owned: Owned,
}

/// What is made, and what it was when it was new.
pub type Made = (ObjId, Meta);

/// Files with the atime and mtime that they must keep.
pub type KeptTimes = Vec<(ObjId, Timestamp, Timestamp)>;

/// A filesystem.
pub trait Tree {
    /// Looks at an object. `None` if no live object has this identity (the handle is stale, or the birth time is that
    /// of another object).
    fn probe(&mut self, obj: &ObjId) -> Result<Option<Meta>>;
    /// What an entry names. `None` if nothing.
    fn lookup(&mut self, dir: &ObjId, name: &[u8]) -> Result<Option<(ObjId, Kind)>>;
    /// Where a directory is, from the volume's root on; of the root itself it is empty. `None` if `dir` is no live directory.
    fn path(&mut self, dir: &ObjId) -> Result<Option<String>>;
    /// Whether what is made in a directory takes something from it that staging cannot give: a project, a flag, a key.
    fn hands_down(&mut self, dir: &ObjId) -> Result<bool>;
    /// True if an entry names `obj`, which lives.
    fn names(&mut self, dir: &ObjId, name: &[u8], obj: &ObjId) -> Result<bool> {
        Ok(self.lookup(dir, name)?.is_some_and(|(found, _)| found == *obj))
    }
    /// The names in a directory, without `.` and `..`.
    fn list(&mut self, dir: &ObjId) -> Result<Vec<Bytes>>;
    /// The directory for what has no place yet.
    fn stage(&self) -> ObjId;
    /// The directory for what the log does not know.
    fn lost_found(&self) -> ObjId;
    /// Makes an object. The owner need not be right yet, and the mode not either: `mode` is what a file begins with.
    fn make(&mut self, dir: &ObjId, name: &[u8], birth: &Birth, mode: u32) -> Result<Made>;
    /// Gives an object that is no directory one more name, which is free.
    fn link(&mut self, obj: &ObjId, dir: &ObjId, name: &[u8]) -> Result<()>;
    /// Moves an entry to a name that is free.
    fn rename(&mut self, from: (&ObjId, &[u8]), to: (&ObjId, &[u8])) -> Result<()>;
    /// Removes an entry that names no directory.
    fn unlink(&mut self, dir: &ObjId, name: &[u8]) -> Result<()>;
    /// Removes an empty directory; false if it is not empty.
    fn rmdir(&mut self, dir: &ObjId, name: &[u8]) -> Result<bool>;
    /// Writes all bytes.
    fn write(&mut self, obj: &ObjId, offset: u64, bytes: &Bytes) -> Result<()>;
    /// Makes a hole: these bytes read as zero, the size stays.
    fn punch(&mut self, obj: &ObjId, offset: u64, len: u64) -> Result<()>;
    /// Sets the size.
    fn truncate(&mut self, obj: &ObjId, size: u64) -> Result<()>;
    /// Sets owner and group. May clear setuid and setgid bits.
    fn chown(&mut self, obj: &ObjId, uid: u32, gid: u32) -> Result<()>;
    /// Sets the permission bits of something that is no symbolic link.
    fn chmod(&mut self, obj: &ObjId, mode: u32) -> Result<()>;
    /// Sets the mtime, and the atime if given.
    fn set_times(&mut self, obj: &ObjId, atime: Option<Timestamp>, mtime: Timestamp) -> Result<()>;
    /// An extended attribute.
    fn xattr(&mut self, obj: &ObjId, name: &[u8]) -> Result<Option<Bytes>>;
    /// Sets an extended attribute, or removes it.
    fn set_xattr(&mut self, obj: &ObjId, name: &[u8], value: Option<&Bytes>) -> Result<()>;
    /// Makes everything so far durable (`syncfs`).
    fn sync(&mut self) -> Result<()>;
    /// Bytes that are free.
    fn room(&mut self) -> Result<u64>;
    /// Does `each` to each of `items`, which do not depend on each other, in any order and several at a time if that pays; the results
    /// in the order of `items`, or the first error. The tree that `each` gets has no remap table.
    fn spread<I: Sync, R: Send>(
        &mut self,
        items: &[I],
        each: impl Fn(&mut dyn Tree, &I) -> std::result::Result<R, Error> + Sync,
    ) -> std::result::Result<Vec<R>, Error>
    where
        Self: Sized,
    {
        items.iter().map(|item| each(self, item)).collect()
    }
    /// What the remap table says an identity is now.
    fn remapped(&self, old: &ObjId) -> Option<ObjId>;
    /// Enters (old, new, fileid) into the remap table and makes that durable.
    fn save_rows(&mut self, rows: Vec<(ObjId, ObjId, u64)>) -> Result<()>;
    /// What [`Tree::keep_times`] kept last for the same `marker`.
    fn kept_times(&mut self, marker: u64) -> Result<Option<KeptTimes>>;
    /// Remembers times durably, for the next runs; `None` forgets them.
    fn keep_times(&mut self, marker: u64, times: Option<&KeptTimes>) -> Result<()>;
}
