//! What recovery needs of a filesystem, as a trait. The same code runs on a mounted filesystem ([`super::disk`]) and
//! on the model that the tests crash thousands of times a second.
//!
//! Objects are named by their present identity. Each call is one system call, or a few that a crash cannot split in a way
//! that matters.

use std::io::Result;

use bytes::Bytes;

use super::error::Error;
use crate::record::{Birth, Kind, ObjId, Owned, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    pub kind: Kind,
    pub nlink: u32,
    pub size: u64,
    pub owned: Owned,
}

/// A new object, and its attributes when it was made.
pub type Made = (ObjId, Meta);

/// Files with the atime and mtime that they must keep.
pub type KeptTimes = Vec<(ObjId, Timestamp, Timestamp)>;

pub trait Tree {
    /// Looks at an object. `None` if no live object has this identity (the handle is stale, or the birth time is another
    /// object's).
    fn probe(&mut self, obj: &ObjId) -> Result<Option<Meta>>;
    /// What an entry names, if it exists.
    fn lookup(&mut self, dir: &ObjId, name: &[u8]) -> Result<Option<(ObjId, Kind)>>;
    /// The path of a directory from the volume's root; empty for the root itself. `None` if `dir` is no live directory.
    fn path(&mut self, dir: &ObjId) -> Result<Option<String>>;
    /// Whether new objects in a directory inherit something that staging cannot give: a project, a flag, a key, a security label.
    fn hands_down(&mut self, dir: &ObjId) -> Result<bool>;
    /// True if an entry names `obj`, which lives.
    fn names(&mut self, dir: &ObjId, name: &[u8], obj: &ObjId) -> Result<bool> {
        Ok(self.lookup(dir, name)?.is_some_and(|(found, _)| found == *obj))
    }
    fn list(&mut self, dir: &ObjId) -> Result<Vec<Bytes>>;
    /// The directory for what has no place yet.
    fn stage(&self) -> ObjId;
    /// The directory for what the log does not know.
    fn lost_found(&self) -> ObjId;
    /// Makes an object. Its owner and mode need not be final: `mode` is what a file starts with.
    fn make(&mut self, dir: &ObjId, name: &[u8], birth: &Birth, mode: u32) -> Result<Made>;
    /// Gives an object that is no directory one more name, which must be free.
    fn link(&mut self, obj: &ObjId, dir: &ObjId, name: &[u8]) -> Result<()>;
    /// Moves an entry to a name, which must be free.
    fn rename(&mut self, from: (&ObjId, &[u8]), to: (&ObjId, &[u8])) -> Result<()>;
    fn unlink(&mut self, dir: &ObjId, name: &[u8]) -> Result<()>;
    /// Removes an empty directory. Returns false if it is not empty.
    fn rmdir(&mut self, dir: &ObjId, name: &[u8]) -> Result<bool>;
    fn write(&mut self, obj: &ObjId, offset: u64, bytes: &Bytes) -> Result<()>;
    /// Reads a file from the disk itself, also where memory has something else: a failed write-back leaves data in memory that counts as
    /// written. At least one byte, unless `offset` is at the end of the file.
    fn read_disk(&mut self, obj: &ObjId, offset: u64) -> Result<Vec<u8>>;
    /// Makes a hole: these bytes read as zero, the size stays the same.
    fn punch(&mut self, obj: &ObjId, offset: u64, len: u64) -> Result<()>;
    fn truncate(&mut self, obj: &ObjId, size: u64) -> Result<()>;
    /// May clear setuid and setgid bits.
    fn chown(&mut self, obj: &ObjId, uid: u32, gid: u32) -> Result<()>;
    /// `obj` must not be a symbolic link.
    fn chmod(&mut self, obj: &ObjId, mode: u32) -> Result<()>;
    fn set_times(&mut self, obj: &ObjId, atime: Option<Timestamp>, mtime: Timestamp) -> Result<()>;
    fn xattr(&mut self, obj: &ObjId, name: &[u8]) -> Result<Option<Bytes>>;
    /// `None` removes the attribute.
    fn set_xattr(&mut self, obj: &ObjId, name: &[u8], value: Option<&Bytes>) -> Result<()>;
    /// Makes everything so far durable (`syncfs`).
    fn sync(&mut self) -> Result<()>;
    /// Closes all objects, so that those without a name give back their room.
    fn let_go(&mut self) {}
    fn room(&mut self) -> Result<u64>;
    /// Calls `each` for each of `items`, which are independent, in any order, and on several threads if that pays. Returns the
    /// results in the order of `items`, or the first error. The tree that `each` gets has no remap table.
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
    /// The present identity of `old` according to the remap table.
    fn remapped(&self, old: &ObjId) -> Option<ObjId>;
    /// Enters (old, new, fileid) into the remap table and makes that durable. After an error they stay entered, for the next call.
    fn save_rows(&mut self, rows: Vec<(ObjId, ObjId, u64)>) -> Result<()>;
    /// What [`Tree::keep_times`] last kept for the same `marker`.
    fn kept_times(&mut self, marker: u64) -> Result<Option<KeptTimes>>;
    /// Saves times durably, for later runs; `None` deletes them.
    fn keep_times(&mut self, marker: u64, times: Option<&KeptTimes>) -> Result<()>;
}
